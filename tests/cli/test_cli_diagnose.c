/* mha diagnose: a result computed wrongly on purpose is explained by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"
#include "support/program.h"
#include "support/recase.h"
#include "support/short_float.h"
#include "support/unit.h"

static char right[600], wrong[600], made[600];

static int name_files(void **state)
{
    (void)state;
    snprintf(right, sizeof right, "%s", scratch("right.safetensors"));
    snprintf(wrong, sizeof wrong, "%s", scratch("wrong.safetensors"));
    snprintf(made, sizeof made, "%s", scratch("made.safetensors"));
    return 0;
}

static void record(const char *path, const char *const *more)
{
    const char *args[32] = {"forward", "--d-model", "24", "--heads", "4",           "--seq",
                            "6",       "--batch",   "2",  "--quiet", "--save-case", path};
    size_t n = 12;
    while (*more)
        args[n++] = *more++;
    program_result r = program_run(args);
    assert_int_equal(r.code, 0);
    program_free(&r);
}
#define RECORD(path, ...) record(path, (const char *const[]){__VA_ARGS__, NULL})

/* Writes `to`: the request of the case `asked` with the output of the case `done`, and no other result.
 * `shift` times 0 to 6 is added to its elements; a negative shift is what they are multiplied with. */
static void graft(const char *asked, const char *done, const char *to, double shift)
{
    static const char output[] = "expected.output";
    mha_file *request, *result;
    mha_writer *writer;
    mha_error error;
    assert_ok(mha_file_open(asked, &request, &error), error);
    assert_ok(mha_file_open(done, &result, &error), error);
    assert_ok(mha_writer_create(to, &writer, &error), error);
    void *memory[64];
    size_t used = 0;
    for (size_t i = 0; i < mha_file_count(request); i++) {
        const mha_file_tensor *t = mha_file_at(request, i);
        bool is_output = strcmp(t->name, output) == 0;
        if (strncmp(t->name, "expected", 8) == 0 && !is_output)
            continue;
        const mha_file *from = is_output ? result : request;
        t = mha_file_find(from, t->name);
        mha_view view = mha_view_of(memory[used++] = calloc(t->bytes, 1), t->dtype, t->rank, t->shape);
        assert_ok(mha_file_read(from, t, &view, &error), error);
        mha_view flat = mha_view_of(view.data, t->dtype, 1, &t->elements);
        for (size_t e = 0; is_output && e < t->elements; e++)
            mha_view_set(&flat, &e, shift < 0 ? shift * mha_view_get(&flat, &e)
                                              : mha_view_get(&flat, &e) + shift * (double)(e % 7));
        assert_ok(mha_writer_add(writer, t->name, &view, &error), error);
    }
    for (size_t i = 0; i < mha_file_metadata_count(request); i++) {
        const char *name, *value;
        mha_file_metadata_at(request, i, &name, &value);
        assert_ok(mha_writer_add_metadata(writer, name, value, &error), error);
    }
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    mha_file_close(request);
    mha_file_close(result);
    while (used > 0)
        free(memory[--used]);
}

/* Whether an explanation of exactly these variants (the second may be NULL) is in the list. */
static bool explains(const json_t *list, const char *first, const char *second)
{
    size_t i;
    json_t *e;
    json_array_foreach(list, i, e)
    {
        json_t *names = json_object_get(e, "variants");
        size_t n = json_array_size(names);
        bool found[2] = {false, !second};
        for (size_t v = 0; v < n; v++) {
            found[0] |= strcmp(json_string_value(json_array_get(names, v)), first) == 0;
            found[1] |= second && strcmp(json_string_value(json_array_get(names, v)), second) == 0;
        }
        if (found[0] && found[1] && n == (second ? 2u : 1u))
            return true;
    }
    return false;
}

static void test_a_wrong_result_is_named(void **state)
{
    (void)state;
    RECORD(right, "--causal");
    RECORD(wrong, "--seed", "0");
    graft(right, wrong, made, 0);
    json_decref(RUN_JSON(1, "check", made, "--json"));
    json_t *root = RUN_JSON(0, "diagnose", made, "--json"), *match;
    assert_keys(root, "matches,closest,tensor,tried,stored,rows_judged,rows,undecided,baseline,clues");
    assert_int_equal(json_integer_value(json_object_get(root, "rows_judged")),
                     json_integer_value(json_object_get(root, "rows")));
    assert_string_equal(json_string_value(json_object_get(root, "tensor")), "expected.output");
    assert_true(explains(json_object_get(root, "matches"), "causal-missing", NULL));
    match = json_array_get(json_object_get(root, "matches"), 0);
    assert_keys(match, "variants,max_abs,exact,within");
    assert_string_equal(json_string_value(json_object_get(match, "within")), "F32");
    assert_true(json_is_true(json_object_get(match, "exact")));
    json_decref(root);
    program_result r = RUN("diagnose", made);
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "Reproduced, within float32 rounding, by"));
    assert_non_null(strstr(r.out, "causal-missing"));
    assert_non_null(strstr(r.out, "future keys not hidden"));
    program_free(&r);

    RECORD(wrong, "--scale", "1"); /* two things wrong at once */
    graft(right, wrong, made, 0);
    root = RUN_JSON(0, "diagnose", made, "--json", "--tensor", "output");
    assert_true(explains(json_object_get(root, "matches"), "causal-missing", "scale-missing"));
    json_decref(root);
}

static void test_a_wrong_number_of_heads_is_named(void **state)
{
    (void)state;
    RECORD(wrong, "--causal");
    program_result r = RUN("forward", "--d-model", "24", "--heads", "8", "--seq", "6", "--batch", "2", "--quiet",
                           "--causal", "--save-case", right);
    assert_int_equal(r.code, 0);
    program_free(&r);
    graft(right, wrong, made, 0);
    json_t *root = RUN_JSON(0, "diagnose", made, "--json"), *match;
    match = json_array_get(json_object_get(root, "matches"), 0);
    assert_int_equal(json_integer_value(json_object_get(match, "num_heads")), 4);
    assert_int_equal(json_array_size(json_object_get(match, "variants")), 0);
    json_decref(root);
    r = RUN("diagnose", made);
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "  num_heads 4  the case as it says, but with so many heads "));
    assert_null(strstr(r.out, "It is what the case says"));
    program_free(&r);
}

static void test_a_right_result_raises_no_alarm(void **state)
{
    (void)state;
    RECORD(right, "--causal", "--window", "2,0");
    json_t *root = RUN_JSON(0, "diagnose", right, "--json");
    json_t *first = json_array_get(json_object_get(root, "matches"), 0);
    assert_int_equal(json_array_size(json_object_get(first, "variants")), 0); /* the case as it says */
    json_decref(root);
    program_result r = RUN("diagnose", right);
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "It is what the case says it should be"));
    /* random layers have biases that are seen when they are dropped, but for the one softmax cannot see */
    assert_non_null(strstr(r.out, "bias-k-dropped"));
    assert_null(strstr(r.out, "bias-q-dropped"));
    assert_null(strstr(r.out, "bias-v-dropped"));
    assert_null(strstr(r.out, "bias-o-dropped"));
    assert_null(strstr(r.out, "biases-dropped"));
    program_free(&r);
    r = RUN("diagnose", right, "--quiet");
    assert_int_equal(r.code + (int)r.out_size, 0);
    program_free(&r);
}

static void test_what_nothing_explains_is_no(void **state)
{
    (void)state;
    RECORD(right, "--causal");
    graft(right, right, made, 3);
    json_t *root = RUN_JSON(1, "diagnose", made, "--json");
    assert_int_equal(json_array_size(json_object_get(root, "matches")), 0);
    assert_int_equal(json_array_size(json_object_get(root, "closest")), 0);
    assert_int_equal(json_array_size(json_object_get(root, "clues")), 0);
    json_decref(root);
    program_result r = RUN("diagnose", made);
    assert_int_equal(r.code, 1);
    assert_non_null(strstr(r.out, "No variant or pair of variants reproduces it or explains most"));
    assert_null(strstr(r.out, "Held against"));
    program_free(&r);
    graft(right, right, made, -20000); /* a smaller factor has a name */
    root = RUN_JSON(1, "diagnose", made, "--json");
    json_t *clue = json_array_get(json_object_get(root, "clues"), 0);
    assert_string_equal(json_string_value(json_object_get(clue, "kind")), "factor");
    assert_string_equal(json_string_value(json_object_get(clue, "text")), "it is what the case says times -2e+04");
    json_decref(root);
    r = RUN("diagnose", made);
    assert_non_null(strstr(r.out, "\n\nHeld against the case as it says:\n  it is what the case says times -2e+04\n"));
    program_free(&r);
    assert_program_refuses(RUN("diagnose", right, "--tensor", "nothing"), 2,
                           "mha diagnose: --tensor: expected a recorded stage, found none named nothing\n");
    assert_program_refuses(RUN("diagnose", scratch("absent")), 2, "absent: expected a file");
    assert_program_refuses(RUN("diagnose"), 2, "expected FILE, found nothing");
    assert_program_refuses(RUN("diagnose", "--weights", right, "--input", right), 2,
                           "mha diagnose: --expected: expected a recorded output beside --weights, found nothing");
    assert_program_refuses(RUN("check", "--input", right), 2, "output beside --input, found nothing");
}

/* Two variants with the same numbers on this input are one answer; noise on one leaves it near. */
static void test_one_answer_and_near_ones(void **state)
{
    (void)state;
    RECORD(right, "--seed", "0");
    RECORD(wrong, "--causal");
    static const struct {
        double shift;
        int code;
        const char *heading, *ending;
    } rows[] = {{0, 0, "Reproduced, within float32 rounding, by",
                 "On this input they give the same numbers, so they are one answer."},
                {1e-4, 1, "Nothing reproduces it; these come near:", "causal-bottom-right"}};
    for (size_t i = 0; i < 2; i++) {
        graft(right, wrong, made, rows[i].shift);
        program_result r = RUN("diagnose", made);
        assert_int_equal(r.code, rows[i].code);
        if (!strstr(r.out, rows[i].heading) || !strstr(r.out, "causal-top-left") || !strstr(r.out, rows[i].ending))
            fail_msg("shift %g: %s", rows[i].shift, r.out);
        program_free(&r);
    }
}

/* Two mistakes at once are two lines of one answer, and two names in JSON. */
static void test_a_pair_is_named(void **state)
{
    (void)state;
    RECORD(right, "--scale", "0.9");
    RECORD(wrong, "--causal");
    graft(right, wrong, made, 0);
    program_result r = RUN("diagnose", made);
    assert_int_equal(r.code, 0);
    const char *first = strstr(r.out, "Reproduced, within float32 rounding, by");
    assert_non_null(first);
    assert_non_null(strstr(first, "\n    and causal-"));
    assert_non_null(strstr(first, "scale-default"));
    program_free(&r);
    json_t *root = RUN_JSON(0, "diagnose", made, "--json");
    json_t *match = json_array_get(json_object_get(root, "matches"), 0);
    assert_int_equal(json_array_size(json_object_get(match, "variants")), 2);
    json_decref(root);
}

/* Of a large case the rows that tell variants apart are judged; for keys those are all rows of one batch row. */
static void test_a_large_case_is_judged_in_part(void **state)
{
    (void)state;
    enum { B = 2, ROWS = 640, WIDTH = 64 };
    static float k[B * ROWS * WIDTH];
    const mha_view view = mha_view_of(k, MHA_F32, 3, (const size_t[]){B, ROWS, WIDTH});
    mha_file *file;
    mha_error error;
    for (int spoilt = 0; spoilt < 2; spoilt++) {
        program_result r = RUN("forward", "--d-model", "64", "--heads", "4", "--seq", "640", "--batch", "2", "--quiet",
                               spoilt ? "--trace" : "--save-case", spoilt ? wrong : right,
                               spoilt ? "--no-bias" : "--bias");
        assert_int_equal(r.code, 0);
        program_free(&r);
    }
    assert_ok(mha_file_open(wrong, &file, &error), error);
    assert_ok(mha_file_read(file, mha_file_find(file, "k"), &view, &error), error);
    mha_file_close(file);
    recase_write(right, made, &(recase){.drop = "expected", .tensors = {{"expected.k", view}}});
    program_result r = RUN("diagnose", made);
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "judged on 640 of 1,280 query rows, with all keys\n"));
    assert_non_null(strstr(r.out, "  bias-k-dropped "));
    program_free(&r);
}

/* Each type that a result is stored in allows for its own rounding, which the answer names. */
static void test_the_rounding_of_each_type_is_named(void **state)
{
    (void)state;
    static const struct {
        mha_dtype type;
        const char *words, *within;
    } rows[] = {{MHA_F64, "within float64 rounding", "F64"},      {MHA_F32, "within float32 rounding", "F32"},
                {MHA_F16, "within float16 rounding", "F16"},      {MHA_BF16, "within bfloat16 rounding", "BF16"},
                {MHA_F8_E4M3, "within float8 rounding", "F8_E4M3"}, {MHA_F8_E5M2, "within float8 rounding", "F8_E5M2"}};
    enum { OUTPUT = 2 * 6 * 24 };
    static double y[OUTPUT];
    static double stored[OUTPUT];
    const size_t shape[] = {2, 6, 24};
    mha_file *file;
    mha_error error;
    record(right, (const char *const[]){"--path", "exact", NULL});
    assert_ok(mha_file_open(right, &file, &error), error);
    const mha_file_tensor *output = mha_file_find(file, "expected64.output");
    assert_non_null(output);
    const mha_view exact = mha_view_of(y, MHA_F64, 3, shape);
    assert_ok(mha_file_read(file, output, &exact, &error), error);
    mha_file_close(file);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool wide = rows[i].type == MHA_F64;
        const mha_view view = mha_view_of(stored, rows[i].type, 3, shape);
        if (mha_view_copy(&view, &exact) != MHA_OK) /* which rounds to 16 bits and more only */
            for (size_t e = 0; e < OUTPUT; e++)
                short_float_set(&view, e, short_float_pattern(y[e], rows[i].type));
        recase_write(right, made, &(recase){.drop = "expected",
                                            .tensors = {{wide ? "expected64.output" : "expected.output", view}}});
        json_t *root = RUN_JSON(0, "diagnose", made, "--json");
        json_t *first = json_array_get(json_object_get(root, "matches"), 0);
        assert_string_equal(json_string_value(json_object_get(first, "within")), rows[i].within);
        json_decref(root);
        program_result r = RUN("diagnose", made);
        assert_int_equal(r.code, 0);
        if (!strstr(r.out, rows[i].words))
            fail_msg("%s: %s", rows[i].within, r.out);
        program_free(&r);
    }
}

/* On a terminal standard error counts what was tried and is blank again; --quiet says nothing, nor does a file. */
static void test_a_terminal_shows_how_far_it_is(void **state)
{
    (void)state;
    RECORD(right, "--causal");
    RECORD(wrong, "--seed", "0");
    graft(right, wrong, made, 0);
    program_result r = RUN_ON_TERMINALS(100, "diagnose", made, "--threads", "1");
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.err, " explanations"));
    const char *blank = strrchr(r.err, '\r');
    assert_non_null(blank);
    assert_int_equal(blank[1], '\0');
    while (blank[-1] == ' ')
        blank--;
    assert_true(blank[-1] == '\r');
    assert_ptr_equal(strstr(r.out, "\x1b[1mexpected.output\x1b[0m of "), r.out);
    program_free(&r);
    r = RUN_ON_TERMINALS(100, "diagnose", made, "--quiet");
    assert_string_equal(r.err, "");
    assert_string_equal(r.out, "");
    program_free(&r);
    r = RUN("diagnose", made);
    assert_string_equal(r.err, "");
    assert_null(strchr(r.out, '\x1b'));
    program_free(&r);
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
static void test_help_lists_the_variants(void **state)
{
    (void)state;
    program_result r = RUN("help", "variants");
    join_lines(r.out);
    assert_true(mha_variant_count() > 30);
    for (size_t i = 0; i < mha_variant_count(); i++)
        if (!strstr(r.out, mha_variant_at(i)->name) || !strstr(r.out, mha_variant_at(i)->help))
            fail_msg("help lacks %s", mha_variant_at(i)->name);
    program_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_wrong_result_is_named),
        cmocka_unit_test(test_a_wrong_number_of_heads_is_named), cmocka_unit_test(test_a_right_result_raises_no_alarm),
        cmocka_unit_test(test_what_nothing_explains_is_no),
        cmocka_unit_test(test_one_answer_and_near_ones),
        cmocka_unit_test(test_a_pair_is_named),
        cmocka_unit_test(test_a_large_case_is_judged_in_part),
        cmocka_unit_test(test_the_rounding_of_each_type_is_named),
        cmocka_unit_test(test_a_terminal_shows_how_far_it_is),
        cmocka_unit_test(test_help_lists_the_variants),
    };
    return cmocka_run_group_tests_name("cli_diagnose", tests, name_files, scratch_remove);
}
