/* Recorded results of other libraries (tests/vectors) are correct on each path, and no known bug of them would be. */
#include "support/unit.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "mha/lab.h"
#include "verify/case/record.h"

static const char folder[] = "tests/vectors"; /* tests run where `make` does */

/* Opens the case of the next file; false when there is none left. */
static bool next_case(DIR *d, char path[600], mha_case **c)
{
    for (struct dirent *e; (e = readdir(d));) {
        const char *end = strstr(e->d_name, ".safetensors");
        mha_error error;
        if (!end)
            continue;
        snprintf(path, 600, "%s/%s", folder, e->d_name);
        assert_ok(mha_case_open(path, NULL, c, &error), error);
        return true;
    }
    return false;
}

static void every_recorded_result_is_right_on_each_path(void **state)
{
    (void)state;
    static const mha_path paths[] = {MHA_PATH_EXACT, MHA_PATH_BLAS, MHA_PATH_FAST};
    static const char *const sources[] = {"PyTorch 1", "PyTorch 2", "JAX 0", "onnx 1"};
    size_t of_source[4] = {0}, stages = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    char path[600];
    for (mha_case *c; next_case(d, path, &c);) {
        mha_error error;
        const char *version = mha_file_metadata(c->file, "source_version");
        for (size_t i = 0; i < 4; i++)
            of_source[i] += version && strncmp(version, sources[i], strlen(sources[i])) == 0;
        for (size_t i = 0; i < 3; i++) {
            mha_verdict v;
            assert_ok(mha_case_check(c, paths[i], NULL, 1, &v, &error), error);
            if (v.outcome != MHA_OUTCOME_PASSED)
                fail_msg("%s on %s: %s", path, mha_path_name(paths[i]), v.reason);
            stages += v.stage_count;
            mha_verdict_clear(&v);
        }
        mha_case_close(c);
    }
    closedir(d);
    for (size_t i = 0; i < 4; i++)
        assert_true(of_source[i] >= 5);
    assert_true(stages > 100);
}

/* The tolerances are no wider than what they are for: results in float32 tell every known bug that their inputs
 * show; results of 16 bits tell all that do more than round. */
static void no_wrong_bug_would_be_right(void **state)
{
    (void)state;
    size_t checked = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    char path[600];
    for (mha_case *c; next_case(d, path, &c); mha_case_close(c)) {
        const case_expected *output = &c->expected[0][MHA_STAGE_OUTPUT];
        mha_power p;
        mha_error error;
        if (!output->name)
            continue;
        const mha_criterion criterion = {.precision = output->stored};
        assert_ok(mha_case_power(c, &criterion, 1, NULL, &p, &error), error);
        for (size_t i = 0; i < p.count; i++)
            if (p.rows[i].result == MHA_POWER_ACCEPTED)
                fail_msg("%s: %s would pass", path, p.rows[i].bug);
        checked += p.rejected;
        mha_power_clear(&p);
    }
    closedir(d);
    assert_true(checked > 500);
}

/* The results of a specification before its errata (make_onnx_conventions.py) are wrong by the present one: they are
 * refused, and has the name of a bug. */
static void what_errata_changed_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *file, *bug;
    } rows[] = {{"onnx_softcap_after_mask", "softcap-after-mask"}, {"onnx_lengths_causal_top_left", "causal-top-left"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[200];
        mha_case *c;
        mha_error error;
        mha_verdict v;
        mha_diagnosis d;
        snprintf(path, sizeof path, "tests/conventions/%s.safetensors", rows[i].file);
        assert_ok(mha_case_open(path, NULL, &c, &error), error);
        assert_string_equal(mha_file_metadata(c->file, "source_version"), "onnx 1.21.0"); /* before both */
        assert_ok(mha_case_check(c, MHA_PATH_EXACT, NULL, 1, &v, &error), error);
        assert_int_equal(v.outcome, MHA_OUTCOME_FAILED);
        mha_verdict_clear(&v);
        assert_ok(mha_case_diagnose(c, NULL, 0, NULL, &d, &error), error);
        assert_true(d.match_count > 0 && d.matches[0].exact && !d.matches[0].bugs[1]);
        assert_string_equal(d.matches[0].bugs[0], rows[i].bug);
        mha_diagnosis_clear(&d);
        mha_case_close(c);
    }
}

/* Gradients without D = rowsum(dO O), of PyTorch's float32, are wrong, and have the name of a bug. */
static void a_backward_without_d_is_named(void **state)
{
    (void)state;
    mha_gradient_match found[2];
    size_t count;
    bool right;
    mha_case *c;
    mha_error error;
    mha_verdict v;
    assert_ok(mha_case_open("tests/conventions/gradients_d_missing.safetensors", NULL, &c, &error), error);
    assert_ok(mha_case_check(c, MHA_PATH_AUTO, NULL, 1, &v, &error), error);
    assert_true(v.outcome == MHA_OUTCOME_FAILED && v.stage_count == 3);
    assert_true(!v.stages[0].ok && !v.stages[1].ok && v.stages[2].ok);
    mha_verdict_clear(&v);
    assert_ok(mha_case_explain_gradients(c, found, 2, &count, &right, &error), error);
    assert_true(count == 1 && !right);
    assert_string_equal(found[0].name, "d-missing");
    mha_case_close(c);
}

/* The cases of ONNX follow the errata: they are of a release after both. */
static void onnx_is_recorded_after_its_errata(void **state)
{
    (void)state;
    size_t seen = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    char path[600];
    for (mha_case *c; next_case(d, path, &c); mha_case_close(c)) {
        int minor = 0;
        const char *version = mha_file_metadata(c->file, "source_version");
        if (!version || sscanf(version, "onnx 1.%d", &minor) != 1)
            continue;
        if (minor < 23)
            fail_msg("%s is of %s", path, version);
        seen++;
    }
    closedir(d);
    assert_true(seen >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_errata_changed_is_named),
        cmocka_unit_test(a_backward_without_d_is_named),
        cmocka_unit_test(onnx_is_recorded_after_its_errata),
        cmocka_unit_test(every_recorded_result_is_right_on_each_path),
        cmocka_unit_test(no_wrong_bug_would_be_right),
    };
    return cmocka_run_group_tests_name("vectors", tests, NULL, NULL);
}
