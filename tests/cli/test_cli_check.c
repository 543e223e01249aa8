/* mha check of cases with long texts and of the corpus, and the help of what mha diagnose tries. */
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/program.h"
#include "support/recase.h"
#include "support/unit.h"

static void record(const char *path)
{
    program_result r =
        RUN("forward", "--d-model", "24", "--heads", "4", "--seq", "6", "--save-case", path, "--quiet");
    assert_int_equal(r.code, 0);
    program_free(&r);
}

/* A text that is too long ends with a whole character, wherever the limit falls. */
static void test_text_is_cut_between_characters(void **state)
{
    (void)state;
    static const char *const keys[] = {"name", "format_version", "layout", "atol"};
    const char *good = scratch("short.safetensors"), *bad = scratch("long.safetensors");
    record(good);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (size_t before = 0; before < 4; before++) {
            char value[900] = "";
            memset(value, 'x', before);
            while (strlen(value) < 800)
                strcat(value, "\xe6\x97\xa5\xf0\x9f\x98\x80\xc3\xa9"); /* three, four and two bytes */
            recase_write(good, bad, &(recase){.metadata = {{keys[k], value}}});
            program_result r = RUN("check", bad, good, "--json");
            json_t *root = json_loads(r.out, 0, NULL); /* strict UTF-8 */
            const json_t *c = json_array_get(json_object_get(root, "cases"), 0);
            const char *name = json_string_value(json_object_get(c, "name")),
                       *reason = json_string_value(json_object_get(c, "reason"));
            assert_null(strchr(k == 0 ? name : reason, '?')); /* what is no UTF-8 is shown so */
            assert_non_null(strstr(k == 0 ? name : reason, "\xe6\x97\xa5\xf0\x9f\x98\x80\xc3\xa9"));
            json_decref(root);
            program_free(&r);
            r = RUN("check", bad);
            json_t *told = json_string(k >= 2 ? r.err : r.out); /* NULL: no UTF-8 */
            assert_non_null(told);
            json_decref(told);
            program_free(&r);
        }
}

/* The recorded cases of other programs, where they are at hand. */
static void test_the_corpus_passes(void **state)
{
    (void)state;
    const char *corpus = getenv("CONFORMANCE_DIR");
    if (!corpus || !*corpus)
        skip_because("CONFORMANCE_DIR names no folder of recorded cases");
    static const char *const paths[] = {"exact", "blas"};
    for (size_t i = 0; i < 2; i++) {
        json_t *root = RUN_JSON(0, "check", corpus, "--json", "--path", paths[i], "--jobs", "2");
        assert_int_equal(json_integer_value(json_object_get(root, "failed")), 0);
        assert_true(json_integer_value(json_object_get(root, "passed")) >= 26);
        json_decref(root);
    }
}

/* Joins the lines of a table, which breaks long cells, with one blank. */
static void join_lines(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++)
        if ((*from != ' ' && *from != '\n') || (to > text && to[-1] != ' '))
            *to++ = *from == '\n' ? ' ' : *from;
    *to = '\0';
}

/* The help lists what the search tries. */
static void test_help_lists_the_bugs(void **state)
{
    (void)state;
    program_result r = RUN("help", "bugs");
    join_lines(r.out);
    assert_true(mha_bug_count() > 30);
    for (size_t i = 0; i < mha_bug_count(); i++)
        if (!strstr(r.out, mha_bug_at(i)->name) || !strstr(r.out, mha_bug_at(i)->help))
            fail_msg("help lacks %s", mha_bug_at(i)->name);
    program_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_cut_between_characters),
        cmocka_unit_test(test_the_corpus_passes),
        cmocka_unit_test(test_help_lists_the_bugs),
    };
    return cmocka_run_group_tests_name("cli_check", tests, NULL, scratch_remove);
}
