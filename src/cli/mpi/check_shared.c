/* mha-mpi check: recorded calls, shared by the ranks in every way, compared with the recorded output. */
#include <stdlib.h>
#include <string.h>

#include "cli/output/print.h"
#include "cli/setup/case_list.h"
#include "cli/mpi/commands_mpi.h"

/* The recorded output of a case, and the tolerance that the judge gives it. */
typedef struct recorded {
    mha_view output; /* (B, T_q, d_out) or (B, T_q, h, d_v), F64 */
    double rtol, atol;
} recorded;

typedef struct counts {
    size_t passed, failed, not_taken;
} counts;

/* ---------------------------------------------------------------- what was recorded */

/* Reads the tensor that the judge compared, in its layout, as (B, T, width) or head by head, like the query. */
static mha_status read_output(const char *path, const char *name, const mha_view *query, mha__arena *arena,
                              mha_view *output, mha_error *error)
{
    mha_file *file;
    mha_layout layout = MHA_BTE;
    mha_status status = mha_file_open(path, &file, error);
    if (status != MHA_OK)
        return status; /* unreachable: the case has been read from it */
    const mha_file_tensor *tensor = mha_file_find(file, name);
    const char *word = mha_file_metadata(file, "layout");
    const size_t B = query->shape[0], T = query->shape[1], rows = B * T, width = tensor->elements / (rows ? rows : 1);
    if (word)
        (void)mha_layout_find(word, &layout);
    const mha_view flat = obtain_view(arena, MHA_F64, 1, &tensor->elements);
    status = mha_file_read(file, tensor, &flat, error);
    *output = query->rank == 3 ? mha_view_rows(flat.data, MHA_F64, layout, B, T, width)
                               : mha_view_heads(flat.data, MHA_F64, layout, B, T, query->shape[2],
                                                width / query->shape[2]);
    mha_file_close(file);
    return status;
}

/* The recorded output of a case that ranks can share; otherwise *why says why there is none. */
static mha_status open_recorded(const char *path, const mha_case *c, mha_path way, mha__arena *arena, recorded *r,
                                const char **why, mha_error *error)
{
    mha_verdict verdict;
    *why = mha_case_skip_reason(c);
    if (!*why && strcmp(mha_case_kind(c), "rope") == 0)
        *why = "a rotation alone has no output";
    if (*why)
        return MHA_OK;
    TRY(mha_case_judge(c, way, "output", 1, &verdict, error));
    *why = "no output is recorded for this path";
    mha_status status = MHA_OK;
    for (size_t i = 0; i < verdict.stage_count; i++) {
        const mha_stage_verdict *s = &verdict.stages[i];
        if (strcmp(s->name, "output") != 0)
            continue;
        const mha_call call = mha_case_call(c);
        *why = NULL;
        r->rtol = s->rtol, r->atol = s->atol;
        status = read_output(path, s->against, &call.query, arena, &r->output, error);
    }
    mha_verdict_clear(&verdict);
    return status;
}

/* ---------------------------------------------------------------- one case */

/* The largest difference on any rank, and how many elements of all ranks differ by more than is allowed. */
static double compare(const recorded *r, const shared_call *call, const shared_result *result, mha__arena *arena,
                      uint64_t *mismatches)
{
    const mha_view expected =
        has_all_rows(call->scheme) ? r->output : rows_of_rank(&r->output, &result->own.share, false, arena);
    mha_difference d = {0};
    if (mha_view_elements(&expected) > 0 && mha_compare(&result->output, &expected, r->rtol, r->atol, &d, NULL))
        d.mismatches = 1; /* unreachable: their shapes are equal */
    uint64_t own = d.mismatches;
    double most = d.max_abs;
    MPI_Allreduce(&own, mismatches, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&d.max_abs, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

static void report(json_t *list, const char *path, const char *scheme, mha_path way,
                   const char *outcome, const char *why, double difference)
{
    if (list)
        json_array_append_new(list, json_pack("{so ss ss ss so so}", "file", json_text(path), "scheme", scheme, "path",
                                              mha_path_name(way), "outcome", outcome, "reason", json_text(why),
                                              "max_abs_difference",
                                              why ? json_null() : json_number(difference)));
    else if (strcmp(outcome, "failed") == 0) {
        print_harmless("%s: %s on %s: FAILED, %s%.3g off", path, scheme, mha_path_name(way), why ? why : "",
                       difference);
        putchar('\n');
    }
}

static int check_case(const mpi_request *q, const char *path, mha_path way, counts *n, json_t *list)
{
    mha_error error = {0};
    mha_case *c = NULL;
    recorded r = {{0}, 0, 0};
    const char *why = NULL;
    mha__arena arena = {.allocator = mha__allocator_default()};
    mha_status status = mha_case_open(path, NULL, &c, &error);
    if (status == MHA_OK)
        status = open_recorded(path, c, way, &arena, &r, &why, &error);
    int code = worst_code(status == MHA_OK ? EXIT_DONE : refuse_error(path, &error));
    for (int scheme = 0; scheme < MHA_SPLIT_COUNT && code == EXIT_DONE; scheme++) {
        const char *name = mha_split_scheme_name((mha_split_scheme)scheme);
        if (q->scheme >= 0 && q->scheme != scheme)
            continue;
        if (why) {
            n->not_taken++;
            report(list, path, name, way, "skipped", why, 0);
            continue;
        }
        shared_call call = {.layer = mha_case_layer(c), .call = mha_case_call(c), .scheme = (mha_split_scheme)scheme};
        shared_result result;
        call.call.path = way, call.call.threads = 1;
        mha_case_past(c, &call.past[0], &call.past[1]);
        run_shared(&call, &arena, &result);
        if (result.status != MHA_OK) {
            n->not_taken++;
            report(list, path, name, way, "skipped", result.error.message, 0);
            continue;
        }
        uint64_t mismatches = 0;
        const double difference = compare(&r, &call, &result, &arena, &mismatches);
        n->passed += mismatches == 0, n->failed += mismatches != 0;
        report(list, path, name, way, mismatches ? "failed" : "passed", NULL, difference);
    }
    mha_case_close(c);
    mha__arena_free(&arena);
    return code;
}

int run_mpi_check(const mpi_request *q)
{
    const arguments *args = q->args;
    case_list cases = {0};
    counts n = {0, 0, 0};
    int code = EXIT_DONE;
    mha_path ways[2] = {MHA_PATH_EXACT, MHA_PATH_AUTO};
    size_t n_ways = 2;
    if (given(args, OPT_PATH)) {
        (void)mha_path_find(text_for(args, OPT_PATH), &ways[0]);
        n_ways = 1;
    }
    for (size_t i = 0; i < args->n_operands && code == EXIT_DONE; i++)
        code = case_list_add(&cases, args->operands[i]);
    if (code == EXIT_DONE && cases.n == 0)
        code = refuse(args->operands[0], "expected case files (.safetensors, .npz), found none");
    code = worst_code(code);
    json_t *list = given(args, OPT_JSON) ? json_array() : NULL;
    for (size_t i = 0; i < cases.n && code == EXIT_DONE; i++)
        for (size_t w = 0; w < n_ways && code == EXIT_DONE; w++)
            code = check_case(q, cases.paths[i], ways[w], &n, list);
    if (code == EXIT_DONE && list)
        json_print(json_pack("{si so so so sO}", "ranks", q->ranks, "passed", json_count(n.passed), "failed",
                             json_count(n.failed), "skipped", json_count(n.not_taken), "cases", list));
    else if (code == EXIT_DONE)
        printf("%d ranks: %zu cases, %zu shared results passed, %zu failed, %zu that a scheme cannot take\n", q->ranks,
               cases.n, n.passed, n.failed, n.not_taken);
    json_decref(list);
    case_list_free(&cases);
    return worst_code(code != EXIT_DONE ? code : n.failed || n.passed == 0 ? EXIT_NO : EXIT_DONE);
}
