/* mha-mpi check: recorded calls, shared by the ranks in every way, compared with the recorded output. */
#include "cli/mpi/commands_mpi.h"
#include "mpi/shared.h"

/* The recorded output of a case, and the tolerance that the checker gives it. */
typedef struct recorded {
    mha_view output; /* (B, T_q, d_out) or (B, T_q, h, d_v), F64 */
    double rtol, atol;
} recorded;

typedef struct counts {
    size_t passed, failed, not_taken; /* shared results, and those that a scheme cannot take */
    size_t skipped;                   /* cases of which there are none but these */
} counts;

/* ---------------------------------------------------------------- what was recorded */

/* The tensor of a word, which the file may spell in another way. */
static const mha_file_tensor *find_tensor(const mha_file *file, const char *name)
{
    const mha_file_tensor *tensor = mha_file_find(file, name);
    mha_case_word word;
    for (size_t i = 0; !tensor && mha_case_word_at(i, &word); i++)
        if (strcmp(word.name, name) == 0)
            tensor = mha_file_find(file, word.also);
    return tensor;
}

/* Reads the tensor that the checker compared, in its layout, as (B, T, width) or head by head, like the query. */
static mha_status read_output(const char *path, const char *name, const mha_view *query, mha__arena *arena,
                              mha_view *output, mha_error *error)
{
    mha_file *file;
    mha_layout layout = MHA_BTE;
    TRY(mha_file_open(path, &file, error)); /* never fails: the case has been read from it */
    const mha_file_tensor *tensor = find_tensor(file, name);
    const char *word = mha_file_metadata(file, "layout");
    const size_t B = query->shape[0], T = query->shape[1], rows = B * T, width = tensor->elements / (rows ? rows : 1);
    for (int l = 0; word && l < MHA_LAYOUT_COUNT; l++)
        layout = strcmp(word, mha__layout_name((mha_layout)l)) == 0 ? (mha_layout)l : layout;
    const mha_view flat = obtain_view(arena, MHA_F64, 1, &tensor->elements);
    const mha_status status = mha_file_read(file, tensor, &flat, error);
    *output = query->rank == 3 ? mha_view_rows(flat.data, MHA_F64, layout, B, T, width)
                               : mha_view_heads(flat.data, MHA_F64, layout, B, T, query->shape[2],
                                                width / query->shape[2]);
    mha_file_close(file);
    return status;
}

/* The recorded output of a case, or in `reason` why this path has none. */
static mha_status open_recorded(const char *path, const mha_case *c, mha_path way, mha__arena *arena, recorded *r,
                                char reason[REASON_TEXT], mha_error *error)
{
    mha_verdict verdict;
    TRY(mha_case_check(c, way, "output", 1, &verdict, error));
    snprintf(reason, REASON_TEXT, "%s", *verdict.reason ? verdict.reason : "no output is recorded");
    mha_status status = MHA_OK;
    for (size_t i = 0; i < verdict.stage_count; i++) {
        const mha_stage_verdict *s = &verdict.stages[i];
        if (strcmp(s->name, "output") != 0 || !s->checked)
            continue;
        const mha_call call = mha_case_call(c);
        *reason = '\0';
        r->rtol = s->rtol, r->atol = s->atol;
        status = read_output(path, s->against, &call.query, arena, &r->output, error);
    }
    mha_verdict_clear(&verdict);
    return status;
}

/* ---------------------------------------------------------------- one case */

static void report(json_t *list, const char *path, const char *scheme, mha_path way,
                   const char *outcome, const char *why, double difference)
{
    if (list)
        json_array_append_new(list, record_of("file", J(path), "scheme", J(scheme), "path", J(mha_path_name(way)),
                                              "outcome", J(outcome), "reason", J(why), "max_abs_difference",
                                              why ? json_null() : J(difference), NULL));
    else if (strcmp(outcome, "failed") == 0)
        say_harmless("%s: %s on %s: FAILED, %s%.3g off\n", path, scheme, mha_path_name(way), why ? why : "",
                     difference);
}

/* The schemes that q asks for, on one path. `reason`: why none of them is tried, or "", and then why the last one that
 * could not take the case could not. */
static int check_path(const mpi_request *q, const char *path, const mha_case *c, mha_path way, counts *n, json_t *list,
                      char reason[REASON_TEXT])
{
    mha_error error = {0};
    recorded r = {{0}, 0, 0};
    mha__arena arena = {.allocator = mha__allocator_default()};
    const mha_status status = *reason ? MHA_OK : open_recorded(path, c, way, &arena, &r, reason, &error);
    const int code = worst_code(done_or_refuse(status, path, &error));
    agree_on_reason(reason);
    const bool skipped = *reason != '\0';
    for (int scheme = 0; scheme < MHA_SPLIT_COUNT && code == EXIT_DONE; scheme++) {
        const char *name = mha_split_scheme_name((mha_split_scheme)scheme);
        if (q->scheme >= 0 && q->scheme != scheme)
            continue;
        if (skipped) {
            n->not_taken++;
            report(list, path, name, way, "skipped", reason, 0);
            continue;
        }
        shared_call call = {.layer = mha_case_layer(c), .call = mha_case_call(c), .scheme = (mha_split_scheme)scheme};
        shared_result result;
        call.call.path = way, call.call.threads = 1;
        mha_case_past(c, &call.past[0], &call.past[1]);
        run_shared(&call, &arena, &result);
        if (result.status != MHA_OK) {
            n->not_taken++;
            snprintf(reason, REASON_TEXT, "%s", result.error.message);
            report(list, path, name, way, "skipped", reason, 0);
            continue;
        }
        uint64_t mismatches = 0;
        const double difference = compare_shared(&r.output, &call, &result, r.rtol, r.atol, &arena, &mismatches);
        n->passed += mismatches == 0, n->failed += mismatches != 0;
        report(list, path, name, way, mismatches ? "failed" : "passed", NULL, difference);
    }
    mha__arena_free(&arena);
    return code;
}

/* The digest of a file's bytes, which are the same on all ranks unless they hold different cases. */
static uint64_t digest_of_file(const char *path)
{
    static char bytes[1 << 16];
    uint64_t digest = 0;
    FILE *file = strcmp(path, "-") == 0 ? NULL : fopen(path, "rb");
    for (size_t n; file && (n = fread(bytes, 1, sizeof bytes, file)) > 0;)
        digest = mha__mpi_digest(digest, bytes, n);
    if (file)
        fclose(file);
    return digest;
}

static int check_case(const mpi_request *q, const char *path, const mha_path *ways, size_t n_ways, counts *n,
                      json_t *list)
{
    mha_error error = {0};
    mha_case *c = NULL;
    char reason[REASON_TEXT] = "";
    const size_t checked = n->passed + n->failed;
    const mha_status status = mha_case_open(path, NULL, &c, &error);
    if (status == MHA_OK && mha_case_skip_reason(c))
        snprintf(reason, sizeof reason, "%s", mha_case_skip_reason(c));
    else if (status == MHA_OK && strcmp(mha_case_kind(c), "rope") == 0)
        snprintf(reason, sizeof reason, "a rotation alone has no output");
    int code = worst_code(done_or_refuse(status, path, &error));
    agree_on_reason(reason);
    if (code == EXIT_DONE && !*reason)
        code = agreed_code(code, digest_of_file(path), path, "this rank has another case than rank 0 under this name");
    char of_path[REASON_TEXT];
    for (size_t w = 0; w < n_ways && code == EXIT_DONE; w++) {
        memcpy(of_path, reason, sizeof of_path);
        code = check_path(q, path, c, ways[w], n, list, of_path);
    }
    if (code == EXIT_DONE && n->passed + n->failed == checked) {
        n->skipped++;
        if (!list)
            say_harmless("%s: skipped: %s\n", path, of_path);
    }
    mha_case_close(c);
    return code;
}

/* The names of the cases, without the folders that they lie in. */
static uint64_t digest_of_list(const case_list *cases)
{
    uint64_t digest = mha__mpi_digest(0, &cases->n, sizeof cases->n);
    for (size_t i = 0; i < cases->n; i++) {
        const char *slash = strrchr(cases->paths[i], '/'), *name = slash ? slash + 1 : cases->paths[i];
        digest = mha__mpi_digest(digest, name, strlen(name) + 1);
    }
    return digest;
}

int run_mpi_check(const mpi_request *q)
{
    const arguments *args = q->args;
    case_list cases = {0};
    counts n = {0, 0, 0, 0};
    mha_path ways[2] = {MHA_PATH_EXACT, MHA_PATH_AUTO};
    size_t n_ways = 2;
    if (given(args, OPT_PATH)) {
        (void)mha_path_find(text_for(args, OPT_PATH), &ways[0]);
        n_ways = 1;
    }
    int code = case_list_read(&cases, args);
    code = agreed_code(code, digest_of_list(&cases), "cases",
                       "this rank has files of other names than rank 0, or more or fewer: expected the same cases");
    json_t *list = keep_json(given(args, OPT_JSON) ? json_array() : NULL);
    for (size_t i = 0; i < cases.n && code == EXIT_DONE; i++)
        code = check_case(q, cases.paths[i], ways, n_ways, &n, list);
    if (code == EXIT_DONE && list)
        json_print(json_pack("{si so so so so sO}", "ranks", q->ranks, "passed", json_count(n.passed), "failed",
                             json_count(n.failed), "skipped", json_count(n.not_taken), "cases_skipped",
                             json_count(n.skipped), "cases", list));
    else if (code == EXIT_DONE)
        say("%d ranks: %zu cases, %zu shared results passed, %zu failed, %zu that a scheme cannot take; %zu cases "
               "skipped\n", q->ranks, cases.n, n.passed, n.failed, n.not_taken, n.skipped);
    return worst_code(code != EXIT_DONE ? code : n.failed ? EXIT_NO : n.skipped ? EXIT_UNCHECKED : EXIT_DONE);
}
