/* Numbers that no known bug takes. */
#include "support/unit.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"

/* Bugs that count rows, keys or heads take whole numbers within reach. Cases: the recorded ones of attention, each
 * bug in every EIGHTH of them. */
static void numbers_without_a_meaning_are_refused(void **state)
{
    (void)state;
    static const char *const counting[] = {
        "rows-",     "batch-",     "heads-",       "features-",    "memory-",           "tile-",    "parts-",
        "key-twice", "mask-moved", "causal-shift", "causal-block", "window-left-other", "rounded-", "top-"};
    static const char *const strange[] = {" 0.5", " 1e300", " -7", " 0"};
    enum { EIGHTH = 8 };
    size_t refused = 0;
    glob_t found;
    assert_int_equal(glob("tests/vectors/sdpa_*.safetensors", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        mha_case *c;
        mha_error error;
        assert_ok(mha_case_open(found.gl_pathv[i], NULL, &c, &error), error);
        const mha_call call = mha_case_call(c);
        const size_t shape[3] = {call.query.shape[0], call.query.shape[1], call.query.shape[2] * call.value.shape[3]};
        double *memory = calloc(shape[0] * shape[1] * shape[2] + 1, sizeof *memory);
        assert_non_null(memory);
        const mha_view output = mha_view_of(memory, MHA_F64, 3, shape);
        for (size_t v = i % EIGHTH; v < mha_bug_count(); v += EIGHTH)
            for (size_t n = 0; n < sizeof strange / sizeof *strange; n++) {
                char name[100];
                const char *one = name;
                snprintf(name, sizeof name, "%s%s", mha_bug_at(v)->name, strange[n]);
                const mha_status status = mha_case_with_bugs(c, &one, 1, MHA_STAGE_OUTPUT, &output, &error);
                assert_true(status == MHA_OK || status == MHA_UNSUPPORTED || status == MHA_INVALID);
                refused += status != MHA_OK;
                for (size_t k = 0; n == 1 && k < sizeof counting / sizeof *counting; k++)
                    if (strncmp(name, counting[k], strlen(counting[k])) == 0 && status == MHA_OK)
                        fail_msg("%s is taken in %s", name, found.gl_pathv[i]);
            }
        free(memory);
        mha_case_close(c);
    }
    globfree(&found);
    assert_true(refused > 1000);
}

/* A bug that computes another call (heads as time) has other extents than the numbers of a second bug, one for each
 * column of the heads. */
static void numbers_of_one_call_are_no_numbers_of_another(void **state)
{
    (void)state;
    size_t refused = 0;
    glob_t found;
    assert_int_equal(glob("tests/vectors/sdpa_*.safetensors", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        mha_case *c;
        mha_error error;
        assert_ok(mha_case_open(found.gl_pathv[i], NULL, &c, &error), error);
        const mha_call call = mha_case_call(c);
        const size_t columns = call.query.shape[2] * call.value.shape[3],
                     shape[3] = {call.query.shape[0], call.query.shape[1], columns};
        double *memory = calloc(shape[0] * shape[1] * columns + 1, sizeof *memory);
        char *text = malloc(32 + 48 * columns), *end = text;
        assert_true(memory && text);
        for (size_t k = 0; k < columns; k++)
            end += sprintf(end, "%s%zu: %zu", k ? ", " : "output-columns-other ", k, columns - 1 - k);
        const mha_view output = mha_view_of(memory, MHA_F64, 3, shape);
        const char *names[] = {"heads-as-time", text, "heads-as-time"};
        if (mha_case_with_bugs(c, names, 1, MHA_STAGE_OUTPUT, &output, &error) == MHA_OK &&
            mha_case_with_bugs(c, names + 1, 1, MHA_STAGE_OUTPUT, &output, &error) == MHA_OK)
            for (int first = 0; first < 2; first++, refused++)
                assert_int_equal(mha_case_with_bugs(c, names + first, 2, MHA_STAGE_OUTPUT, &output, &error),
                                 MHA_UNSUPPORTED);
        free(text);
        free(memory);
        mha_case_close(c);
    }
    globfree(&found);
    assert_true(refused >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_without_a_meaning_are_refused),
                                       cmocka_unit_test(numbers_of_one_call_are_no_numbers_of_another)};
    return cmocka_run_group_tests_name("bug_numbers", tests, NULL, NULL);
}
