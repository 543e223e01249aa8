/* mha conform: lists the conformance suite, writes its test cases as files, or checks the results of a kernel. */
#include <errno.h>
#include <sys/stat.h>

#include "cli/commands/conform/asking.h"
#include "formats/files/atomic_file.h"

/* ---------------------------------------------------------------- the list */

static json_t *test_case_record(const mha_conform_row *r)
{
    json_t *shape = record_of("B", J(r->B), "h", J(r->h), "h_kv", J(r->h_kv), "T_q", J(r->T_q), "T_k", J(r->T_k), "P",
                              J(r->P), "d_k", J(r->d_k), "d_v", J(r->d_v), NULL);
    return record_of("name", J(r->name), "family", J(r->family), "regime", J(r->regime), "settings", J(r->settings),
                     "needs", J(r->has), "level", J(mha_conform_level_name(r->level)), "shape", shape, NULL);
}

static int list_test_cases(const arguments *args, const asking *a)
{
    static const char *const columns[] = {"case: name", "needs: needs", "?regime: regime", "?level: level"};
    mha_conform_row row;
    json_t *list = json_array();
    for (size_t i = 0; mha_conform_at(i, &row); i++)
        if (asks(a, &row, false))
            json_array_append_new(list, test_case_record(&row));
    json_t *root = keep_json(record_of("suite", J(MHA_CONFORM_VERSION), "cases", list, NULL));
    if (report_is_text(args, root)) {
        REPORT_TABLE(list, columns);
        say("\n%s: %zu test cases up to level %s. \"mha conform --write DIR\" writes them as files, \"mha conform "
            "--check DIR\" checks the results.\n",
            MHA_CONFORM_VERSION, json_array_size(list), mha_conform_level_name(a->level));
    }
    return EXIT_DONE;
}

/* ---------------------------------------------------------------- writing */

/* The allowed error of a correct output in the test case's own type. */
static mha_status add_tolerance(json_t *record, mha_test_case *q, mha_dtype dtype, mha_error *error)
{
    mha_test_result exact;
    mha_verdict v = {0};
    TRY(mha_test_case_exact(q, &exact, error));
    const size_t bytes = mha_view_elements(&exact.output) * 4;
    const mha_test_result rounded = {
        mha_view_of(obtain(bytes, 1), dtype, exact.output.rank, exact.output.shape), exact.lse, {{0}}};
    mha_status status = mha_view_copy(&rounded.output, &exact.output, error);
    if (status == MHA_OK)
        status = mha_test_case_check(q, &rounded, &v, error);
    free(rounded.output.data);
    TRY(status);
    if (v.stage_count > 0)
        record_with(record, "rtol", J(v.stages[0].rtol), "atol", J(v.stages[0].atol), NULL);
    mha_verdict_clear(&v);
    return MHA_OK;
}

static int write_test_case(const asking *a, size_t index, const char *folder, json_t *list)
{
    mha_test_case *q;
    mha_error error = {0};
    TRY(done_or_refuse(mha_test_case_create(index, a->dtype, &a->choices, &q, &error), "", &error));
    json_t *record = test_case_record(mha_test_case_row(q));
    const char *path = text_of("%s/cases/%s.safetensors", folder, mha_test_case_row(q)->name);
    mha_status status = mha_test_case_save(q, path, NULL, &error);
    if (status == MHA_OK)
        status = add_tolerance(record, q, a->dtype, &error);
    json_array_append_new(list, record);
    const int code = done_or_refuse(status, path, &error);
    mha_test_case_destroy(q);
    return code;
}

/* The index appears last: a folder that has one is whole. */
static int write_index(const asking *a, const char *folder, json_t *list)
{
    const char *path = text_of("%s/index.json", folder), *declared = asking_declared(a);
    json_t *root = keep_json(
        record_of("suite", J(MHA_CONFORM_VERSION), "dtype", J(mha_dtype_name(a->dtype)), "level",
                  J(mha_conform_level_name(a->level)), "convention", J(declared), "cases", json_incref(list), NULL));
    const char *text = keep(json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17)));
    mha__output output;
    mha_error error = {0};
    mha_status status = text ? mha__output_open(&output, path, &error) : MHA_NO_MEMORY;
    if (status == MHA_OK)
        status = mha__output_finish(&output, mha__output_write(&output, text, strlen(text), &error), &error);
    return done_or_refuse(status, path, &error);
}

static int write_test_cases(const arguments *args, const asking *a, const char *folder)
{
    static const char *const folders[] = {"", "/cases", "/results"};
    mha_conform_row row;
    size_t all = 0;
    int code = EXIT_DONE;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const char *path = text_of("%s%s", folder, folders[i]);
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return refuse_errno(path, errno);
    }
    while (mha_conform_at(all, &row))
        all++;
    json_t *list = keep_json(json_array());
    progress_begin(args, "cases");
    for (size_t i = 0; i < all && code == EXIT_DONE; i++) {
        progress_show(i, all);
        (void)mha_conform_at(i, &row);
        if (asks(a, &row, true))
            code = write_test_case(a, i, folder, list);
    }
    progress_end();
    TRY(code);
    TRY(write_index(a, folder, list));
    json_t *root = keep_json(record_of("suite", J(MHA_CONFORM_VERSION), "written", J(json_array_size(list)), NULL));
    if (report_is_text(args, root))
        say("%zu test cases of %s, level %s, %s, in %s/cases. Results go into %s/results: NAME.safetensors or "
            "NAME.npz with the tensor output (lse, and d_query, d_key and d_value, where they are asked for), or "
            "NAME.npy.\n",
            json_array_size(list), MHA_CONFORM_VERSION, mha_conform_level_name(a->level), mha_dtype_name(a->dtype),
            folder, folder);
    return EXIT_DONE;
}

/* ---------------------------------------------------------------- the command */

int run_conform(const arguments *args)
{
    static const option_code of_index[] = {OPT_LEVEL,      OPT_ASKED_DTYPE, OPT_HAS,
                                           OPT_ASKED_ONLY, OPT_CONVENTION,  OPTION_COUNT};
    asking a;
    if (given(args, OPT_WRITE) && given(args, OPT_CHECK))
        return refuse_option(OPT_CHECK, "expected --write or --check, found both");
    TRY(refuse_alone(args, OPT_JUNIT, OPT_CHECK));
    if (given(args, OPT_CHECK))
        TRY(refuse_each(args, of_index, "no such option with --check: the index of its folder says it"));
    TRY(asking_read(args, &a));
    if (given(args, OPT_WRITE))
        return write_test_cases(args, &a, text_for(args, OPT_WRITE));
    if (!given(args, OPT_CHECK))
        return list_test_cases(args, &a);
    results checked = {.asked = a};
    TRY(check_results(args, text_for(args, OPT_CHECK), &checked));
    return results_report(&checked, args);
}
