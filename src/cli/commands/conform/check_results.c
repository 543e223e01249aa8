/* mha conform --check: the results in a folder, checked by the test cases that its index lists. The test cases are made
 * anew: what their files hold is not read. */
#include <errno.h>
#include <unistd.h>

#include "cli/commands/conform/asking.h"

/* ---------------------------------------------------------------- the index */

/* Adds a test case of the index by its name. */
static int add_test_case(results *a, const char *path, const char *name)
{
    mha_conform_row row;
    for (size_t i = 0; name && mha_conform_at(i, &row); i++)
        if (strcmp(row.name, name) == 0) {
            a->rows[a->n++] = (tested){.index = i, .row = row, .outcome = MHA_OUTCOME_SKIPPED,
                                        .bugs = keep_json(json_array())};
            return EXIT_DONE;
        }
    return refuse(path, "expected names of test cases of %s, found %s", MHA_CONFORM_VERSION, name ? name : "none");
}

static int read_root(const json_t *root, const char *path, results *a)
{
    const char *suite = json_string_value(json_object_get(root, "suite")),
               *dtype = json_string_value(json_object_get(root, "dtype")),
               *convention = json_string_value(json_object_get(root, "convention"));
    const json_t *list = json_object_get(root, "cases"), *test_case;
    mha_error error = {0};
    size_t i;
    if (!suite || strcmp(suite, MHA_CONFORM_VERSION) != 0)
        return refuse(path, "expected the index of %s, found %s", MHA_CONFORM_VERSION, suite ? suite : "none");
    if (!dtype || !mha__dtype_find(dtype, &a->asked.dtype) ||
        (a->asked.dtype != MHA_F32 && a->asked.dtype != MHA_F16 && a->asked.dtype != MHA_BF16))
        return refuse(path, "dtype: expected F32, F16 or BF16, found %s", dtype ? dtype : "none");
    if (convention)
        TRY(done_or_refuse(asking_declare(&a->asked, convention, &error), path, &error));
    if (json_array_size(list) == 0)
        return refuse(path, "cases: expected a list, found none");
    a->rows = keep(obtain(json_array_size(list), sizeof *a->rows));
    json_array_foreach(list, i, test_case)
    {
        TRY(add_test_case(a, path, json_string_value(json_object_get(test_case, "name"))));
    }
    return EXIT_DONE;
}

static int read_index(const char *folder, results *a)
{
    json_error_t problem;
    const char *path = text_of("%s/index.json", folder);
    errno = 0; /* jansson does not say what the machine did */
    json_t *root = keep_json(json_load_file(path, JSON_REJECT_DUPLICATES, &problem));
    if (!root && errno == ENOENT)
        return refuse(path, "%s; \"mha conform --write %s\" writes it", strerror(errno), folder);
    if (!root)
        return errno ? refuse_errno(path, errno) : refuse(path, "line %d: %s", problem.line, problem.text);
    return read_root(root, path, a);
}

/* ---------------------------------------------------------------- one result */

typedef struct file_result {
    bool there;
    mha_test_result is;
    const char *fault; /* why the file is no result */
    mha__arena memory;
} file_result;

enum { GRADIENTS = sizeof((mha_test_result *)NULL)->gradients / sizeof(mha_view) };

/* Why a file is no result: what the kernel made of it is its fault, what the machine did is said in one line. */
static int blame(const char *path, const mha_error *error, const char **fault)
{
    if (exit_code_of(error->status) == EXIT_MACHINE)
        return refuse_error(path, error);
    *fault = file_error_text(path, error);
    return EXIT_DONE;
}

/* Reads a tensor of this shape, of which the last two axes may be one, unless there is a fault already. */
static int read_tensor(const mha_file *file, const char *path, const char *name, int rank, const size_t *shape,
                       mha_view *view, file_result *a)
{
    const mha_file_tensor *t = mha_file_find(file, name);
    const char **fault = &a->fault;
    mha_error error = {0};
    if (*fault)
        return EXIT_DONE;
    if (!t && mha_file_count(file) == 1 && strcmp(mha_file_format(file), "npy") == 0 && strcmp(name, "output") == 0)
        t = mha_file_at(file, 0);
    if (!t || !mha__dtype_is_float(t->reads_as)) {
        *fault = text_of(t ? "%s: expected floating-point numbers" : "expected a tensor %s", name);
        return EXIT_DONE;
    }
    bool same = t->rank == rank && memcmp(t->shape, shape, (size_t)rank * sizeof *shape) == 0;
    if (rank == 4 && t->rank == 3)
        same = memcmp(t->shape, shape, 2 * sizeof *shape) == 0 && t->shape[2] == shape[2] * shape[3];
    if (!same) {
        *fault =
            text_of("%s: expected shape %s, found %s", name, shape_text(rank, shape), shape_text(t->rank, t->shape));
        return EXIT_DONE;
    }
    *view = obtain_view(&a->memory, t->reads_as, rank, shape);
    return mha_file_read(file, t, view, &error) == MHA_OK ? EXIT_DONE : blame(path, &error, fault);
}

/* Reads what a test case asks for. */
static int read_tensors(const mha_file *file, const char *path, const mha_conform_row *r, file_result *a)
{
    const size_t output[] = {r->B, r->T_q, r->h, r->d_v}, lse[] = {r->B, r->h, r->T_q},
                 gradients[GRADIENTS][4] = {
                     {r->B, r->T_q, r->h, r->d_k}, {r->B, r->T_k, r->h_kv, r->d_k}, {r->B, r->T_k, r->h_kv, r->d_v}};
    char name[SHORT_TEXT];
    TRY(read_tensor(file, path, "output", 4, output, &a->is.output, a));
    if (strstr(r->has, "lse"))
        TRY(read_tensor(file, path, "lse", 3, lse, &a->is.lse, a));
    for (int g = 0; g < GRADIENTS && strstr(r->has, "backward"); g++) {
        snprintf(name, sizeof name, "d_%s", mha_gradient_name((mha_gradient)g));
        TRY(read_tensor(file, path, name, 4, gradients[g], &a->is.gradients[g], a));
    }
    return EXIT_DONE;
}

/* Reads the result to a test case, if there is one; the caller frees it in any case. */
static int read_result(const char *folder, const mha_conform_row *r, file_result *a)
{
    static const char *const endings[] = {"safetensors", "npz", "npy"};
    int code = EXIT_DONE;
    *a = (file_result){0};
    for (size_t i = 0; i < sizeof endings / sizeof *endings && !a->there && code == EXIT_DONE; i++) {
        const char *path = text_of("%s/results/%s.%s", folder, r->name, endings[i]);
        mha_file *file = NULL;
        mha_error error = {0};
        a->there = access(path, F_OK) == 0;
        if (!a->there && errno != ENOENT && errno != ENOTDIR)
            code = refuse_errno(path, errno);
        else if (a->there)
            code = mha_file_open(path, &file, &error) == MHA_OK ? read_tensors(file, path, r, a)
                                                                : blame(path, &error, &a->fault);
        mha_file_close(file);
    }
    return code;
}

/* ---------------------------------------------------------------- checking */

static int check_as(const results *all, const tested *row, const mha_conform_choices *choices,
                    const mha_test_result *result, mha_test_case **q, mha_verdict *verdict)
{
    mha_error error = {0};
    *verdict = (mha_verdict){0};
    TRY(done_or_refuse(mha_test_case_create(row->index, all->asked.dtype, choices, q, &error), "", &error));
    if (mha_test_case_check(*q, result, verdict, &error) == MHA_OK)
        return EXIT_DONE;
    mha_test_case_destroy(*q);
    *q = NULL;
    return refuse_error(row->row.name, &error);
}

/* Holds the forward of a result against one choice of a convention; *reads says whether it is right in that. */
static int try_choice(const results *all, const tested *row, size_t convention, const mha_conform_choices *choices,
                      const mha_test_result *result, bool *reads)
{
    const mha_test_result forward = {result->output, result->lse, {{0}}};
    mha_test_case *q;
    mha_verdict verdict;
    TRY(check_as(all, row, choices, &forward, &q, &verdict));
    *reads = mha_test_case_differs(q, convention) && verdict.outcome == MHA_OUTCOME_PASSED;
    mha_verdict_clear(&verdict);
    mha_test_case_destroy(q);
    return EXIT_DONE;
}

/* The first choice of a convention, beside those that are known, in which the forward of a result is right. */
static int try_choices(results *all, const char *folder, size_t convention, const tested *row, bool alone)
{
    file_result a;
    int code = read_result(folder, &row->row, &a);
    for (size_t r = 0; r < mha_conform_convention_at(convention)->count && a.there && !a.fault &&
                       !all->found[convention] && code == EXIT_DONE;
         r++) {
        mha_conform_choices choices = {0};
        if (!alone)
            choices = all->asked.choices;
        choices.of[convention] = r;
        code = try_choice(all, row, convention, &choices, &a.is, &all->found[convention]);
        if (all->found[convention])
            all->asked.choices.of[convention] = r;
    }
    mha__arena_free(&a.memory);
    return code;
}

/* Whether a convention matters to a test case. */
static int matters(const results *all, const tested *row, size_t convention, bool *does)
{
    mha_test_case *q;
    mha_error error = {0};
    TRY(done_or_refuse(mha_test_case_create(row->index, all->asked.dtype, NULL, &q, &error), "", &error));
    *does = mha_test_case_differs(q, convention);
    mha_test_case_destroy(q);
    return EXIT_DONE;
}

/* Finds the choice of a convention that is not declared: by its probe, or, if that has no result, by other cases. */
static int find_choice(results *all, const char *folder, size_t convention, bool by_probe)
{
    const char *probe = mha_conform_convention_at(convention)->probe;
    for (size_t i = 0; i < all->n && !all->asked.declared[convention] && !all->found[convention]; i++) {
        const tested *row = &all->rows[i];
        bool asked = by_probe && strcmp(row->row.name, probe) == 0;
        if (!by_probe && row->row.level == MHA_CONFORM_SMOKE)
            TRY(matters(all, row, convention, &asked));
        if (asked)
            TRY(try_choices(all, folder, convention, row, by_probe));
    }
    return EXIT_DONE;
}

/* The bugs that give a wrong forward, or the first clue. */
static mha_status diagnose_forward(const mha_case *c, const char *stage, tested *row, mha_error *error)
{
    mha_diagnosis d;
    char clue[SHAPE_TEXT];
    TRY(mha_case_diagnose(c, stage, 0, NULL, &d, error));
    for (size_t i = 0; i < d.match_count; i++) {
        const mha_bug_match *e = &d.matches[i];
        if (!e->exact || e->count == 0)
            continue;
        const char *name = "";
        for (size_t k = 0; k < e->count; k++)
            name = text_more(name, "%s%s%s%s", k ? " + " : "", e->bugs[k], *e->found[k] ? " " : "", e->found[k]);
        json_array_append_new(row->bugs, json_text(name));
    }
    if (json_array_size(row->bugs) == 0 && d.clue_count > 0)
        row->diagnosis = text_of("%s", mha_clue_text(&d.clues[0], clue, sizeof clue));
    mha_diagnosis_clear(&d);
    return MHA_OK;
}

/* The cause of a wrong result, by names and in a sentence; nothing without a diagnosis. */
static int diagnose(const mha_test_case *q, const mha_test_result *result, tested *row)
{
    const char *stage = row->verdict.stages[row->verdict.culprit].name;
    explained_gradients g = {0};
    mha_case *c;
    mha_error error = {0};
    mha_status status = mha_test_case_as_case(q, result, &c, &error);
    if (status == MHA_OK)
        status = gradients_named(stage) ? gradients_explain(c, &g, &error) : diagnose_forward(c, stage, row, &error);
    for (size_t i = 0; i < g.count && i < GRADIENTS_SHOWN; i++)
        json_array_append_new(row->bugs, json_text(g.list[i].name));
    mha_case_close(c);
    if (status != MHA_OK)
        return exit_code_of(status) == EXIT_MACHINE ? refuse_error(row->row.name, &error) : EXIT_DONE;
    const size_t named = json_array_size(row->bugs);
    if (named > 0)
        row->diagnosis =
            text_of(named > 1 ? "%s, or %zu more" : "%s", json_string_value(json_array_get(row->bugs, 0)), named - 1);
    return EXIT_DONE;
}

static int check_one(const results *all, const char *folder, tested *row, size_t *diagnosed)
{
    enum { MOST = 40 }; /* wrong results that are diagnosed: one takes about half a second */
    mha_test_case *q;
    file_result a;
    int code = read_result(folder, &row->row, &a);
    if (a.fault) {
        row->outcome = MHA_OUTCOME_FAILED;
        row->reason = a.fault;
    } else if (a.there && code == EXIT_DONE) {
        code = check_as(all, row, &all->asked.choices, &a.is, &q, &row->verdict);
        if (code == EXIT_DONE) {
            row->checked = true;
            row->outcome = row->verdict.outcome;
            if (row->outcome != MHA_OUTCOME_PASSED)
                row->reason = text_of("%s", row->verdict.reason);
            if (row->outcome == MHA_OUTCOME_FAILED && row->verdict.culprit < row->verdict.stage_count &&
                (*diagnosed)++ < MOST)
                code = diagnose(q, &a.is, row);
            mha_test_case_destroy(q);
        }
    }
    mha__arena_free(&a.memory);
    return code;
}

int check_results(const arguments *args, const char *folder, results *a)
{
    size_t diagnosed = 0;
    int code = EXIT_DONE;
    TRY(read_index(folder, a));
    for (size_t d = 0; d < (size_t)2 * MHA_CONFORM_CONVENTIONS; d++)
        TRY(find_choice(a, folder, d % MHA_CONFORM_CONVENTIONS, d < MHA_CONFORM_CONVENTIONS));
    progress_begin(args, "results");
    for (size_t i = 0; i < a->n && code == EXIT_DONE; i++) {
        progress_show(i, a->n);
        code = check_one(a, folder, &a->rows[i], &diagnosed);
        a->count[a->rows[i].outcome]++;
    }
    progress_end();
    return code;
}
