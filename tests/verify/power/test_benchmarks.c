/* Published tests: their files, the bugs that they accept, and the page with the table. */
#include "support/unit.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/page.h"
#include "support/scratch.h"

static json_t *file_at(size_t index)
{
    const char *text;
    json_error_t why;
    assert_non_null(mha_benchmark_at(index, &text));
    json_t *file = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (!file)
        fail_msg("%s: %s, line %d", mha_benchmark_at(index, NULL), why.text, why.line);
    return file;
}

static const char *text_in(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static const mha_power_row *row_of(const mha_power *p, const char *bug)
{
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->rows[i].bug, bug) == 0)
            return &p->rows[i];
    fail_msg("%s does not apply", bug);
    return NULL;
}

static mha_power power_of(const char *name)
{
    mha_power p;
    mha_error error;
    assert_ok(mha_benchmark_power(name, 0, NULL, &p, &error), error);
    return p;
}

/* ---------------------------------------------------------------- the files */

static bool is_among(const char *word, const char *const *words)
{
    while (*words && strcmp(word, *words) != 0)
        words++;
    return *words != NULL;
}

static void expect_law(const char *name, const json_t *law)
{
    const json_t *normal = json_object_get(law, "normal"), *uniform = json_object_get(law, "uniform"),
                 *two = normal ? normal : uniform;
    if (!normal == !uniform || json_array_size(two) != 2 || !json_is_number(json_array_get(two, 0)) ||
        !json_is_number(json_array_get(two, 1)))
        fail_msg("%s: expected \"normal\" or \"uniform\" with two numbers", name);
}

/* What a file and a case may state: the reader trusts these files. */
static void expect_words(const char *name, json_t *object, const char *const *own)
{
    static const char *const both[] = {"inputs", "criterion", "rtol", "atol", "limit", NULL};
    const char *key, *other;
    json_t *value, *law;
    json_object_foreach(object, key, value)
    {
        if (!is_among(key, own) && !is_among(key, both))
            fail_msg("%s: unknown key \"%s\"", name, key);
        if (strcmp(key, "inputs") != 0)
            continue;
        expect_law(name, value);
        json_object_foreach(value, other, law)
            if (json_is_object(law))
                expect_law(name, law);
    }
}

static void expect_settings(const char *name, json_t *settings)
{
    const char *key;
    json_t *value;
    mha_semantics semantics = {0};
    mha_error error;
    json_object_foreach(settings, key, value)
    {
        const mha_setting *s = mha_setting_find(key);
        if (!s || !json_is_string(value) || mha_setting_put(s, json_string_value(value), &semantics, &error) != MHA_OK)
            fail_msg("%s: setting \"%s\"", name, key);
    }
}

static void each_file_is_complete(void **state)
{
    (void)state;
    static const char *const of_files[] = {"title", "source", "type", "reduced", "left_out", "cases", NULL};
    static const char *const of_cases[] = {"batch", "queries", "keys", "heads", "kv_heads", "width", "value_width",
                                           "d_model", "settings", NULL};
    static const char *const types[] = {"F32", "TF32", "F16", "BF16", NULL};
    size_t n = 0;
    for (const char *name, *before = ""; (name = mha_benchmark_at(n, NULL)) != NULL; before = name, n++) {
        json_t *file = file_at(n);
        const json_t *cases = json_object_get(file, "cases"), *sources = json_object_get(file, "source");
        assert_true(strcmp(before, name) < 0);
        expect_words(name, file, of_files);
        assert_non_null(text_in(file, "title"));
        assert_true(is_among(text_in(file, "type"), types));
        assert_true(json_array_size(cases) > 0 && json_array_size(sources) > 0);
        for (size_t i = 0; i < json_array_size(sources); i++) { /* OWNER/NAME COMMIT: FILE, or an issue */
            const char *source = json_string_value(json_array_get(sources, i)), *slash = strchr(source, '/');
            if (!slash || (!strstr(slash, ": ") && !strstr(slash, " issue ")))
                fail_msg("%s: source \"%s\"", name, source);
        }
        for (size_t i = 0; i < json_array_size(cases); i++) {
            json_t *one = json_array_get(cases, i);
            const char *kind = text_in(one, "criterion") ? text_in(one, "criterion") : text_in(file, "criterion");
            bool known = false;
            expect_words(name, one, of_cases);
            expect_settings(name, json_object_get(one, "settings"));
            for (mha_criterion_kind k = 0; k <= MHA_CRITERION_ERRORS; k++)
                known |= strcmp(mha_criterion_name(k), kind) == 0;
            assert_true(known && json_object_get(one, "queries") && json_object_get(one, "heads"));
            assert_true(json_object_get(one, "width") || json_object_get(one, "d_model"));
        }
        json_decref(file);
    }
    assert_true(n >= 20);
    assert_string_equal(mha_criterion_name(MHA_CRITERION_ERRORS + 1), "?");
}

static void an_unknown_name_is_refused(void **state)
{
    (void)state;
    mha_power p;
    mha_criterion k;
    mha_error error;
    assert_refused(mha_benchmark_power("kernelbench-98", 0, NULL, &p, &error), MHA_NOT_FOUND, error, "benchmark",
                   "kernelbench-98");
    assert_refused(mha_benchmark_suggest("", "nowhere.npz", 0, NULL, &k, &error), MHA_NOT_FOUND, error, "benchmark",
                   "published test");
}

/* ---------------------------------------------------------------- by hand */

/* A number of [0, 1), of another generator than the library's. */
static double drawn(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / (1 << 24);
}

enum { T_Q = 65, T_K = 127, D = 96 };

/* One head of causal attention, aligned bottom-right: right (0), without the query's own key (1), or with equal weights
 * of the keys that it sees (2). */
static void attend(const double *q, const double *k, const double *v, int bug, double *out)
{
    for (size_t i = 0; i < T_Q; i++, out += D) {
        double sum = 0;
        memset(out, 0, D * sizeof *out);
        for (size_t j = 0; j < T_K; j++) {
            double score = 0;
            for (size_t e = 0; e < D; e++)
                score += q[i * D + e] * k[j * D + e] / sqrt(D);
            const double weight = j + (bug == 1) > i + T_K - T_Q ? 0 : bug == 2 ? 1 : exp(score);
            sum += weight;
            for (size_t e = 0; e < D; e++)
                out[e] += weight * v[j * D + e];
        }
        for (size_t e = 0; e < D; e++)
            out[e] /= sum;
    }
}

/* MLX's test in bfloat16 accepts a causal mask that hides the own key, and a mean of the values: so do plain loops, on
 * other numbers of the same law. */
static void a_known_result_agrees_with_plain_loops(void **state)
{
    (void)state;
    static double q[T_Q * D], k[T_K * D], v[T_K * D], right[T_Q * D], wrong[2][T_Q * D];
    uint64_t seed = 11;
    double factor[2] = {0, 0};
    for (size_t i = 0; i < T_Q * D; i++)
        q[i] = drawn(&seed) / 2;
    for (size_t i = 0; i < T_K * D; i++)
        k[i] = drawn(&seed) / 2, v[i] = drawn(&seed) / sqrt(D);
    attend(q, k, v, 0, right), attend(q, k, v, 1, wrong[0]), attend(q, k, v, 2, wrong[1]);
    for (int bug = 0; bug < 2; bug++)
        for (size_t i = 0; i < T_Q * D; i++)
            factor[bug] = fmax(factor[bug], fabs(wrong[bug][i] - right[i]) / (5e-3 + 5e-3 * fabs(right[i])));
    mha_power p = power_of("mlx-bf16");
    const mha_power_row *rows[] = {row_of(&p, "causal-strict"), row_of(&p, "scores-0")};
    for (int bug = 0; bug < 2; bug++) {
        assert_true(factor[bug] <= 1);
        assert_int_equal(rows[bug]->result, MHA_POWER_ACCEPTED);
        /* Other draws of the same laws; the library compares eight heads and a second length. */
        assert_true(rows[bug]->factor > 0.5 * factor[bug] && rows[bug]->factor < 2 * factor[bug]);
    }
    mha_power_clear(&p);
}

/* A bug that one case rejects is rejected, though others accept it. */
static void one_case_that_rejects_is_enough(void **state)
{
    (void)state;
    /* A larger denominator scales each row: the cosine accepts that, the tolerance of the same inputs does not. */
    mha_power p = power_of("sglang-decode");
    assert_int_equal(row_of(&p, "plus-one-added")->result, MHA_POWER_REJECTED);
    assert_int_equal(p.rejected + p.accepted + p.same, p.count);
    mha_power_clear(&p);
}

/* The limit multiplies the error of a kernel of the type: its rounding alone passes, and no less than that. */
static void a_multiple_of_a_kernels_error_is_allowed(void **state)
{
    (void)state;
    enum { N = 2 * 9 * 3 * 16 };
    float x[3][N];
    double y[N], z[N];
    mha_view views[3];
    mha_error error;
    uint64_t seed = 3;
    for (int i = 0; i < 3; i++) {
        for (size_t e = 0; e < N; e++)
            x[i][e] = (float)(4 * drawn(&seed) - 2);
        views[i] = mha_heads(x[i], 2, 9, 3, 16);
    }
    mha_call call = {.query = views[0], .key = views[1], .value = views[2], .path = MHA_PATH_EXACT};
    double *to[] = {y, z}, most = 0;
    for (int rounded = 0; rounded < 2; rounded++) {
        call.precision = mha_precision_of(rounded ? MHA_BF16 : MHA_F32);
        call.precision.scores = rounded ? MHA_BF16 : MHA_F32;
        call.output = mha_view_of(to[rounded], MHA_F64, 3, (size_t[]){2, 9, 48});
        assert_ok(mha_run(NULL, &call, &error), error);
    }
    for (size_t e = 0; e < N; e++)
        most = fmax(most, fabs(y[e] - z[e]));
    call.precision = (mha_precision){.scores = MHA_F32}, call.output = (mha_view){0}, call.path = MHA_PATH_AUTO;
    mha_case *c;
    assert_ok(mha_case_of_call(NULL, &call, NULL, 0, NULL, &c, &error), error);
    for (int times = 1; times < 4; times++) {
        mha_power p;
        const mha_criterion k = {.kind = MHA_CRITERION_ERRORS, .limit = times, .precision = MHA_BF16};
        assert_ok(mha_case_power(c, &k, 0, NULL, &p, &error), error);
        assert_true(most > 1e-3 && fabs(p.criterion.atol - times * most) <= 1e-12 * most);
        assert_true(row_of(&p, "scale-missing")->result == MHA_POWER_REJECTED);
        mha_power_clear(&p);
    }
    mha_case_close(c);
}

/* ---------------------------------------------------------------- the page */

static int by_excess(const void *a, const void *b)
{
    const mha_power_row *x = a, *y = b;
    return (x->excess < y->excess) - (x->excess > y->excess);
}

/* How many bugs that `p` accepts suggested inputs reject under the same criterion. */
static size_t rejected_by_suggestion(const char *name, const mha_power *p)
{
    const char *path = scratch_path("suggested.safetensors");
    mha_criterion criterion;
    mha_case *c;
    mha_power better;
    mha_error error;
    size_t n = 0;
    assert_ok(mha_benchmark_suggest(name, path, 0, NULL, &criterion, &error), error);
    assert_ok(mha_case_open(path, NULL, &c, &error), error);
    assert_ok(mha_case_power(c, &criterion, 0, NULL, &better, &error), error);
    for (size_t i = 0; i < p->count; i++)
        for (size_t k = 0; k < better.count && p->rows[i].result == MHA_POWER_ACCEPTED; k++)
            n += better.rows[k].bug == p->rows[i].bug && better.rows[k].result == MHA_POWER_REJECTED;
    mha_power_clear(&better);
    mha_case_close(c);
    remove(path);
    return n;
}

/* The criterion of a case, "close rtol 0.01 atol 0.02; ", where the text has not got it yet. */
static void add_criterion(const json_t *file, const json_t *one, char *text, size_t size)
{
    static const char *const numbers[] = {"rtol", "atol", "limit"};
    const char *kind = text_in(one, "criterion") ? text_in(one, "criterion") : text_in(file, "criterion");
    const bool close = strcmp(kind, "close") == 0 || strcmp(kind, "either") == 0, share = strcmp(kind, "share") == 0;
    char added[128];
    int used = snprintf(added, sizeof added, "%s", kind);
    for (int i = 0; i < 3; i++) {
        const json_t *own = json_object_get(one, numbers[i]), *x = own ? own : json_object_get(file, numbers[i]);
        if (share || close == (i < 2))
            used += snprintf(added + used, sizeof added - (size_t)used, " %s %.9g", numbers[i], json_number_value(x));
    }
    if (!strstr(text, added))
        snprintf(text + strlen(text), size - strlen(text), "%s%s", *text ? "; " : "", added);
}

static void write_row(size_t index, bytes *page)
{
    json_t *file = file_at(index), *cases = json_object_get(file, "cases");
    const char *name = mha_benchmark_at(index, NULL);
    mha_power p = power_of(name);
    const size_t better = p.accepted ? rejected_by_suggestion(name, &p) : 0;
    char text[256], criteria[256] = "";
    for (size_t i = 0; i < json_array_size(cases); i++)
        add_criterion(file, json_array_get(cases, i), criteria, sizeof criteria);
    snprintf(text, sizeof text, "| `%s` | %zu | ", name, json_array_size(cases));
    bytes_text(page, text);
    bytes_text(page, criteria);
    snprintf(text, sizeof text, " | %zu | %zu |", p.rejected + p.accepted, p.accepted);
    bytes_text(page, text);
    qsort(p.rows, p.count, sizeof *p.rows, by_excess);
    size_t shown = 0;
    for (size_t i = 0; i < p.count && shown < 3; i++)
        if (p.rows[i].result == MHA_POWER_ACCEPTED) {
            snprintf(text, sizeof text, "%s %s (%.2g)", shown++ ? "," : "", p.rows[i].bug, p.rows[i].excess);
            bytes_text(page, text);
        }
    if (p.accepted)
        snprintf(text, sizeof text, " | %zu of %zu |\n", better, p.accepted);
    else
        snprintf(text, sizeof text, " none | |\n");
    bytes_text(page, text);
    mha_power_clear(&p);
    json_decref(file);
}

/* A lower bound of the work: the products of queries and keys. */
static double work_of(size_t index)
{
    json_t *file = file_at(index);
    const json_t *cases = json_object_get(file, "cases");
    double work = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i), *keys = json_object_get(one, "keys"),
                     *width = json_object_get(one, "d_model") ? json_object_get(one, "d_model")
                                                              : json_object_get(one, "width");
        const double T_q = json_number_value(json_object_get(one, "queries"));
        work += T_q * (keys ? json_number_value(keys) : T_q) * json_number_value(json_object_get(one, "heads")) *
                json_number_value(width);
    }
    json_decref(file);
    return work;
}

/* The row of the page as it is: of tests that take long, which only `make pages` computes. */
static void keep_row(size_t index, bytes *page)
{
    char begin[64], *text = page_text("src/verify/power/POWER.md");
    snprintf(begin, sizeof begin, "| `%s` |", mha_benchmark_at(index, NULL));
    char *row = strstr(text, begin), *end = row ? strchr(row, '\n') : NULL;
    if (!end)
        fail_msg("POWER.md: no row of %s; \"make pages\" writes it", mha_benchmark_at(index, NULL));
    bytes_add(page, row, (size_t)(end + 1 - row));
    free(text);
}

static void write_source(size_t index, bytes *page)
{
    json_t *file = file_at(index), *sources = json_object_get(file, "source");
    bytes item = {0};
    bytes_text(&item, "- `");
    bytes_text(&item, mha_benchmark_at(index, NULL));
    bytes_text(&item, "`: ");
    bytes_text(&item, text_in(file, "title"));
    for (size_t i = 0; i < json_array_size(sources); i++) {
        bytes_text(&item, i ? "; " : ". Source: ");
        bytes_text(&item, json_string_value(json_array_get(sources, i)));
    }
    bytes_text(&item, ".");
    for (int i = 0; i < 2; i++) {
        const char *const words[][2] = {{"reduced", " Reduced "}, {"left_out", " Left out: "}};
        if (!text_in(file, words[i][0]))
            continue;
        bytes_text(&item, words[i][1]);
        bytes_text(&item, text_in(file, words[i][0]));
        bytes_text(&item, ".");
    }
    bytes_add(&item, "", 1);
    page_item(page, (const char *)item.data);
    bytes_free(&item);
    json_decref(file);
}

static void the_page_has_what_each_test_accepts(void **state)
{
    (void)state;
    const double most = getenv("MHA_WRITE_PAGES") ? INFINITY : 1e6;
    size_t computed = 0;
    bytes page = {0};
    bytes_text(&page, "\n| test | cases | criterion | shown | accepted | accepted bugs, furthest from rounding | "
                      "rejected by suggested inputs |\n|---|---:|---|---:|---:|---|---|\n");
    for (size_t i = 0; mha_benchmark_at(i, NULL); i++) {
        const bool small = work_of(i) <= most;
        computed += small;
        small ? write_row(i, &page) : keep_row(i, &page);
    }
    assert_true(computed >= 3);
    bytes_text(&page, "\n");
    for (size_t i = 0; mha_benchmark_at(i, NULL); i++)
        write_source(i, &page);
    bytes_add(&page, "\n", 2);
    page_holds("src/verify/power/POWER.md", "benchmarks", (const char *)page.data);
    bytes_free(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_file_is_complete),
        cmocka_unit_test(an_unknown_name_is_refused),
        cmocka_unit_test(a_known_result_agrees_with_plain_loops),
        cmocka_unit_test(one_case_that_rejects_is_enough),
        cmocka_unit_test(a_multiple_of_a_kernels_error_is_allowed),
        cmocka_unit_test(the_page_has_what_each_test_accepts),
    };
    return cmocka_run_group_tests_name("benchmarks", tests, NULL, NULL);
}
