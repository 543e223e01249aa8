/* mha check and mha compare: cases recorded by the program itself, then spoilt in known places. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mha/mha.h"
#include "support/program.h"
#include "support/unit.h"

static void record(const char *path, const char *seed, const char *arithmetic)
{
    program_result r = RUN("forward", "--d-model", "24", "--heads", "4", "--seq", "6", "--batch", "2", "--causal",
                           "--seed", seed, "--path", arithmetic, "--save-case", path, "--quiet");
    assert_int_equal(r.code, 0);
    program_free(&r);
}

/* Copies a file of tensors and metadata, with one element of one tensor changed, or one key added or
 * given another value. */
static void respoil(const char *from, const char *to, const char *tensor, size_t element, double add, const char *key,
                    const char *said)
{
    mha_file *file;
    mha_writer *writer;
    mha_error error;
    assert_ok(mha_file_open(from, &file, &error), error);
    assert_ok(mha_writer_create(to, &writer, &error), error);
    void *memory[64];
    size_t n = mha_file_count(file);
    assert_true(n < 64);
    for (size_t i = 0; i < n; i++) {
        const mha_file_tensor *t = mha_file_at(file, i);
        mha_view view = mha_view_of(memory[i] = calloc(t->bytes + 1, 1), t->dtype, t->rank, t->shape);
        assert_ok(mha_file_read(file, t, &view, &error), error);
        if (tensor && strcmp(t->name, tensor) == 0) {
            mha_view flat = mha_view_of(view.data, t->dtype, 1, &t->elements);
            mha_view_set(&flat, &element, mha_view_get(&flat, &element) + add);
            tensor = NULL;
        }
        assert_ok(mha_writer_add(writer, t->name, &view, &error), error);
    }
    assert_null(tensor); /* it was there */
    for (size_t i = 0; i < mha_file_metadata_count(file); i++) {
        const char *name, *value;
        mha_file_metadata_at(file, i, &name, &value);
        if (!key || strcmp(name, key) != 0)
            assert_ok(mha_writer_add_metadata(writer, name, value, &error), error);
    }
    if (key)
        assert_ok(mha_writer_add_metadata(writer, key, said, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    mha_file_close(file);
    while (n > 0)
        free(memory[--n]);
}

static void spoil(const char *from, const char *to, const char *tensor, size_t element, double add, const char *key)
{
    respoil(from, to, tensor, element, add, key, "1");
}

static void say(const char *from, const char *to, const char *key, const char *value)
{
    respoil(from, to, NULL, 0, 0, key, value);
}

static int count(const json_t *root, const char *key)
{
    assert_true(json_is_integer(json_object_get(root, key)));
    return (int)json_integer_value(json_object_get(root, key));
}

/* ---------------------------------------------------------------- check */

static void test_a_recorded_case_passes_on_every_path(void **state)
{
    (void)state;
    static const char *const paths[] = {"auto", "blas", "exact"};
    const char *file = scratch("good.safetensors");
    for (size_t from = 0; from < 3; from++) {
        record(file, "3", paths[from]);
        for (size_t to = 0; to < 3; to++) {
            json_t *root = RUN_JSON(0, "check", file, "--json", "--path", paths[to]);
            assert_int_equal(count(root, "passed"), 1);
            assert_int_equal(count(root, "failed") + count(root, "skipped"), 0);
            json_t *c = json_array_get(json_object_get(root, "cases"), 0), *stages = json_object_get(c, "stages"),
                   *stage;
            assert_keys(c, "name,status,path,reason,stages,file,culprit");
            assert_string_equal(json_string_value(json_object_get(c, "status")), "passed");
            assert_true(json_is_null(json_object_get(c, "reason")));
            assert_true(json_array_size(stages) >= 10);
            size_t i;
            json_array_foreach(stages, i, stage)
            {
                assert_keys(stage,
                            "name,max_abs,max_rel,max_ulp,worst_index,tolerance_needed,ok,rms,cosine,mismatches");
                assert_true(json_is_true(json_object_get(stage, "ok")));
            }
            json_decref(root);
        }
    }
    json_t *root = RUN_JSON(0, "check", file, "--json", "--stage", "weights");
    assert_int_equal(json_array_size(json_object_get(json_array_get(json_object_get(root, "cases"), 0), "stages")), 1);
    json_decref(root);
    /* One stage alone: what the case says of PyTorch's packed weights is not held either. */
    json_t *whole = RUN_JSON(0, "check", "tests/vectors/torch_self.safetensors", "--json");
    json_t *output = RUN_JSON(0, "check", "tests/vectors/torch_self.safetensors", "--json", "--stage", "output");
    assert_true(json_array_size(json_object_get(json_array_get(json_object_get(whole, "cases"), 0), "stages")) > 3);
    assert_int_equal(json_array_size(json_object_get(json_array_get(json_object_get(output, "cases"), 0), "stages")),
                     1);
    json_decref(whole);
    json_decref(output);
    assert_program_refuses(RUN("check", file, "--stage", "wieghts"), 2,
                           "mha check: --stage: expected one of q, k, v,*prefill_output, found wieghts\n");
}

static void test_the_first_stage_that_diverges_is_named(void **state)
{
    (void)state;
    const char *good = scratch("good.safetensors"), *bad = scratch("bad.safetensors");
    record(good, "4", "blas");
    spoil(good, bad, "expected.weights", 7, 0.25, NULL);
    json_t *root = RUN_JSON(1, "check", bad, "--json");
    json_t *c = json_array_get(json_object_get(root, "cases"), 0);
    assert_int_equal(count(root, "failed"), 1);
    assert_string_equal(json_string_value(json_object_get(c, "status")), "failed");
    assert_string_equal(json_string_value(json_object_get(c, "culprit")), "weights");
    assert_true(json_is_string(json_object_get(c, "reason")));
    size_t i;
    json_t *stage;
    json_array_foreach(json_object_get(c, "stages"), i, stage)
    {
        bool weights = strcmp(json_string_value(json_object_get(stage, "name")), "weights") == 0;
        assert_int_equal(json_is_true(json_object_get(stage, "ok")), !weights);
        if (weights) {
            assert_true(fabs(json_real_value(json_object_get(stage, "max_abs")) - 0.25) < 1e-3);
            json_t *expected = json_pack("[i,i,i,i]", 0, 0, 1, 1); /* element 7 of rows of 6 */
            assert_true(json_equal(json_object_get(stage, "worst_index"), expected));
            json_decref(expected);
            assert_int_equal(count(stage, "mismatches"), 1);
        }
    }
    json_decref(root);
    program_result r =
        RUN("check", bad, good); /* people see the failure first, and the first stage that diverges marked */
    assert_int_equal(r.code, 1);
    char *failed = strstr(r.out, "failed  "), *first = strstr(r.out, "\n  q "),
         *culprit = strstr(r.out, "\n  weights ");
    assert_true(failed && first && culprit && failed < first && first < culprit);
    char *mark = strstr(r.out, " FIRST ");
    assert_true(mark && mark > culprit && !memchr(culprit + 1, '\n', (size_t)(mark - culprit - 1)));
    assert_null(strstr(mark + 1, " FIRST "));
    assert_true(strstr(r.out, "yours") && strstr(r.out, "exact") && !strstr(failed, "expected  "));
    assert_non_null(strstr(r.out, "1 passed, 1 failed, 0 skipped\n"));
    assert_non_null(strstr(r.out, "bad.safetensors\" looks for the variant"));
    program_free(&r);
    r = RUN("check", bad, "--quiet");
    assert_int_equal(r.code, 1);
    assert_int_equal(r.out_size, 0);
    program_free(&r);
}

static void test_directories_skips_and_unreadable_files(void **state)
{
    (void)state;
    char directory[600], inner[640];
    snprintf(directory, sizeof directory, "%s", scratch("cases"));
    snprintf(inner, sizeof inner, "%s/inner", directory);
    mkdir(directory, 0700);
    assert_program_refuses(RUN("check", directory), 2, "expected case files (.safetensors, .npz), found none");
    mkdir(inner, 0700);
    char paths[4][700];
    snprintf(paths[0], sizeof paths[0], "%s/a.safetensors", directory);
    snprintf(paths[1], sizeof paths[1], "%s/b.safetensors", inner);
    snprintf(paths[2], sizeof paths[2], "%s/c.safetensors", directory);
    snprintf(paths[3], sizeof paths[3], "%s/notes.txt", directory);
    record(paths[0], "5", "auto");
    snprintf(paths[3], sizeof paths[3], "%s/d.npz", directory); /* listed, though it is none */
    fclose(fopen(paths[3], "w"));
    json_t *listed = RUN_JSON(1, "check", directory, "--json");
    assert_int_equal(count(listed, "passed"), 1);
    assert_int_equal(count(listed, "failed"), 1);
    json_decref(listed);
    remove(paths[3]);
    snprintf(paths[3], sizeof paths[3], "%s/notes.txt", directory);
    spoil(paths[0], paths[1], NULL, 0, 0, "a_rule_nobody_knows");
    for (int i = 3; i < 4; i++)
        fclose(fopen(paths[i], "w"));
    json_t *root = RUN_JSON(4, "check", directory, "--json"); /* skipped is not failed, and not passed */
    assert_int_equal(count(root, "passed"), 1);
    assert_int_equal(count(root, "skipped"), 1);
    json_t *c = json_array_get(json_object_get(root, "cases"), 1); /* alphabetical: a, inner/b */
    assert_string_equal(json_string_value(json_object_get(c, "status")), "skipped");
    assert_non_null(strstr(json_string_value(json_object_get(c, "reason")), "a_rule_nobody_knows"));
    json_decref(root);
    program_result r = RUN("check", directory);
    assert_int_equal(r.code, 4);
    assert_non_null(strstr(r.out, "skipped because"));
    assert_non_null(strstr(r.out, "1 passed, 0 failed, 1 skipped\n"));
    assert_non_null(strstr(r.out, "unknown metadata key a_rule_nobody_knows"));
    program_free(&r);
    spoil(paths[0], paths[1], "expected.output", 3, strtod("nan", NULL), NULL);
    r = RUN("check", paths[1]);
    assert_int_equal(r.code, 1);
    assert_non_null(strstr(r.out, "  output: yours has 1 NaN and 0 infinities, the exact one 0 and 0\n"));
    program_free(&r);
    spoil(paths[0], paths[1], NULL, 0, 0, "a_rule_nobody_knows");
    fclose(fopen(paths[2], "w")); /* empty: no header */
    root = RUN_JSON(1, "check", directory, "--json", "--jobs", "3");
    assert_int_equal(count(root, "passed"), 1);
    assert_int_equal(count(root, "failed"), 1);
    assert_int_equal(count(root, "skipped"), 1);
    json_decref(root);
    root = RUN_JSON(4, "check", paths[1], "--json"); /* nothing was judged */
    assert_int_equal(count(root, "passed") + count(root, "failed"), 0);
    assert_int_equal(count(root, "skipped"), 1);
    json_decref(root);
    r = RUN("check", "--quiet", paths[1]);
    assert_int_equal(r.code, 4);
    program_free(&r);
    r = RUN("check", paths[0], "--stage", "q_latent"); /* of which the case has nothing */
    assert_int_equal(r.code, 4);
    assert_non_null(strstr(r.out, "0 passed, 0 failed, 1 skipped\n"));
    program_free(&r);
    assert_program_refuses(RUN("check", paths[2]), 2, "c.safetensors: ");
    assert_program_refuses(RUN("check", scratch("absent.safetensors")), 2, "absent.safetensors: ");
    for (int i = 0; i < 4; i++)
        remove(paths[i]);
    rmdir(inner);
    rmdir(directory);
}

/* Whatever order the directory itself has, cases are judged and listed by name. */
/* The file, then what is wrong in it by the file's own words: none of the options that mean the same elsewhere. */
static void test_what_is_wrong_in_a_case_is_said_of_the_file(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *words;
    } wrong[] = {
        {"causal", "maybe", "causal: expected 0, 1, false or true, found \"maybe\""},
        {"atol", "-1", "atol: expected 0 or more, found -1"},
        {"rtol64", "inf", "rtol64: expected a finite number, found inf"},
        {"kv_heads", "0", "kv_heads: expected a whole number of 1 or more, found 0"},
        {"num_heads", "5", "num_heads: expected 4, as W_q, W_k and W_v are 24 wide and kv_heads is 4, found 5"},
        {"scale", "inf", "scale: expected a finite number, found inf"},
        {"softcap", "-1", "softcap: expected a finite number above 0, or 0 (off), found -1"},
        {"layout", "TE", "query: expected rank 2 in layout TE, found shape (2, 6, 24): rank 3 is layout BTE or TBE"},
    };
    const char *good = scratch("right.safetensors"), *bad = scratch("wrong.safetensors"),
               *odd = scratch("odd.safetensors");
    record(good, "11", "auto");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        say(good, bad, wrong[i].key, wrong[i].value);
        char line[900];
        for (int diagnoses = 0; diagnoses < 2; diagnoses++) {
            snprintf(line, sizeof line, "mha %s: %s: %s\n", diagnoses ? "diagnose" : "check", bad, wrong[i].words);
            program_result r = RUN(diagnoses ? "diagnose" : "check", bad);
            assert_string_equal(r.err, line);
            assert_int_equal(r.code, 2);
            program_free(&r);
        }
    }
    say(good, odd, "rope", "interleaved");
    say(odd, bad, "rope_dim", "3");
    json_t *root = RUN_JSON(1, "check", bad, good, scratch("none.safetensors"), "--path", "exact", "--json");
    const json_t *cases = json_object_get(root, "cases"), *first = json_array_get(cases, 0);
    assert_string_equal(json_string_value(json_object_get(first, "reason")),
                        "rope_dim: expected an even number of features up to d_k = 6, found 3");
    for (size_t i = 0; i < json_array_size(cases); i++) /* none of them ran on another one */
        assert_string_equal(json_string_value(json_object_get(json_array_get(cases, i), "path")), "exact");
    json_decref(root);
}

/* Nor does what a file says drive the terminal, in the line of a failure as little as in an error. */
static void test_names_in_cases_do_not_drive_the_terminal(void **state)
{
    (void)state;
    const char *good = scratch("tame.safetensors"), *named = scratch("named.safetensors"),
               *bad = scratch("wild.safetensors");
    record(good, "13", "auto");
    say(good, named, "name", "wild\033[2Jname\nline");
    say(named, bad, "scale", "7");
    const char *const commands[] = {"check", "diagnose"};
    for (size_t i = 0; i < 2; i++) {
        program_result r = RUN(commands[i], bad);
        assert_non_null(strstr(r.out, "wild?[2Jname?line"));
        assert_null(strchr(r.out, '\033'));
        program_free(&r);
    }
}

/* What is too long for its place ends with a whole character, wherever the limit falls. */
static void test_text_is_cut_between_characters(void **state)
{
    (void)state;
    static const char *const keys[] = {"name", "format_version", "layout", "atol"};
    const char *good = scratch("short.safetensors"), *bad = scratch("long.safetensors");
    record(good, "12", "auto");
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (size_t before = 0; before < 4; before++) {
            char value[900] = "";
            memset(value, 'x', before);
            while (strlen(value) < 800)
                strcat(value, "\xe6\x97\xa5\xf0\x9f\x98\x80\xc3\xa9"); /* three, four and two bytes */
            say(good, bad, keys[k], value);
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

static void test_directories_are_read_in_order(void **state)
{
    (void)state;
    enum { FILES = 100 };
    char directory[600], path[FILES][700];
    snprintf(directory, sizeof directory, "%s", scratch("order"));
    mkdir(directory, 0700);
    for (size_t i = 0; i < FILES; i++) {
        snprintf(path[i], sizeof path[i], "%s/%zu.safetensors", directory, i * 37 % FILES);
        fclose(fopen(path[i], "w")); /* empty, so each fails at once and is listed */
    }
    json_t *root = RUN_JSON(1, "check", directory, "--json", "--jobs", "4"), *c;
    const char *last = "";
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        assert_true(strcmp(last, json_string_value(json_object_get(c, "file"))) < 0);
        last = json_string_value(json_object_get(c, "file"));
    }
    assert_int_equal(i, FILES);
    json_decref(root);
    for (i = 0; i < FILES; i++)
        remove(path[i]);
    rmdir(directory);
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
        assert_int_equal(count(root, "failed"), 0);
        assert_true(count(root, "passed") >= 26);
        json_decref(root);
    }
}

/* ---------------------------------------------------------------- compare */

static void test_compare_finds_the_difference(void **state)
{
    (void)state;
    char a[600], b[600], named[640], other[640];
    snprintf(a, sizeof a, "%s", scratch("a.safetensors"));
    snprintf(b, sizeof b, "%s", scratch("b.safetensors"));
    record(a, "6", "blas");
    json_t *root = RUN_JSON(0, "compare", a, a, "--json");
    assert_true(json_is_true(json_object_get(root, "equal")));
    assert_true(json_array_size(json_object_get(root, "tensors")) > 15);
    json_decref(root);
    spoil(a, b, "W_o", 30, 0.5, NULL); /* row 1, column 6 of 24 */
    root = RUN_JSON(1, "compare", a, b, "--json");
    json_t *tensor;
    size_t i;
    json_array_foreach(json_object_get(root, "tensors"), i, tensor)
    {
        assert_keys(tensor, "name,max_abs,max_rel,max_ulp,rms,cosine,worst_index,mismatches");
        assert_int_equal(count(tensor, "mismatches"),
                         strcmp(json_string_value(json_object_get(tensor, "name")), "W_o") == 0);
    }
    json_decref(root);
    snprintf(named, sizeof named, "%s:W_o", a);
    snprintf(other, sizeof other, "%s:W_o", b);
    root = RUN_JSON(1, "compare", named, other, "--json");
    tensor = json_array_get(json_object_get(root, "tensors"), 0);
    assert_int_equal(json_array_size(json_object_get(root, "tensors")), 1);
    assert_true(fabs(json_real_value(json_object_get(tensor, "max_abs")) - 0.5) < 1e-6);
    json_t *expected = json_pack("[i,i]", 1, 6);
    assert_true(json_equal(json_object_get(tensor, "worst_index"), expected));
    json_decref(expected);
    json_decref(root);
    root = RUN_JSON(0, "compare", named, other, "--json", "--atol", "0.51");
    json_decref(root);
    root = RUN_JSON(1, "compare", named, b, "--json"); /* the tensor of the same name */
    json_decref(root);
    snprintf(other, sizeof other, "%s:b_o", b);
    root = RUN_JSON(1, "compare", named, other, "--json"); /* shapes differ: an answer, not a crash */
    tensor = json_array_get(json_object_get(root, "tensors"), 0);
    assert_true(json_is_null(json_object_get(tensor, "max_abs")));
    json_decref(root);
    char fewer[600]; /* what only one side has is a difference, whichever side it is */
    snprintf(fewer, sizeof fewer, "%s", scratch("fewer.safetensors"));
    program_result trace = RUN("forward", "--d-model", "8", "--heads", "2", "--seq", "3", "--trace", fewer, "--quiet");
    assert_int_equal(trace.code, 0);
    program_free(&trace);
    for (int swap = 0; swap < 2; swap++) {
        root = RUN_JSON(1, "compare", swap ? a : fewer, swap ? fewer : a, "--json");
        size_t first = 0, second = 0;
        json_array_foreach(json_object_get(root, "tensors"), i, tensor)
        {
            const char *reason = json_string_value(json_object_get(tensor, "reason"));
            first += reason && strcmp(reason, "only in the first file") == 0;
            second += reason && strcmp(reason, "only in the second file") == 0;
        }
        assert_int_equal(swap ? second : first, 15); /* the stages, under names that no case has */
        assert_int_equal(json_array_size(json_object_get(root, "tensors")), first + second);
        json_decref(root);
    }
    program_result r = RUN("compare", a, b);
    assert_int_equal(r.code, 1);
    assert_non_null(strstr(r.out, "Not all equal (rtol 0, atol 0)\n1 of "));
    program_free(&r);
    assert_program_refuses(RUN("compare", a, scratch("absent")), 2, "absent: ");
    snprintf(other, sizeof other, "%s:nothing", b);
    assert_program_refuses(RUN("compare", a, other), 2, "expected a tensor called \"nothing\"");
    assert_program_refuses(RUN("compare", a, b, "--rtol", "-1"), 2, "--rtol: expected a finite number, at least 0");
}

/* A file whose whole name is given wins over a file and a tensor. */
static void test_colons_in_names(void **state)
{
    (void)state;
    char plain[600], odd[640];
    snprintf(plain, sizeof plain, "%s", scratch("c.safetensors"));
    snprintf(odd, sizeof odd, "%s:W_o", plain);
    record(plain, "6", "blas");
    float one[2] = {1, 2};
    mha_view view = mha_view_of(one, MHA_F32, 1, (size_t[]){2});
    mha_writer *writer;
    mha_error error;
    char made[640];
    snprintf(made, sizeof made, "%s", scratch("made.safetensors"));
    assert_ok(mha_writer_create(made, &writer, &error), error);
    assert_ok(mha_writer_add(writer, "x", &view, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    assert_int_equal(rename(made, odd), 0);
    json_t *root = RUN_JSON(0, "compare", odd, odd, "--json");
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(json_object_get(root, "tensors"), 0), "name")), "x");
    json_decref(root);
}

/* On a terminal standard error counts many cases, in a line that is blank in the end; few are done at once. */
static void test_a_terminal_counts_the_cases(void **state)
{
    (void)state;
    const char *c = scratch("counted.safetensors");
    record(c, "3", "exact");
    program_result r = RUN_ON_TERMINALS(90, "check", c, c, c, c, c, c, c, c, c);
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.err, "\r  1 of 9 cases "));
    assert_non_null(strstr(r.err, "\r  9 of 9 cases \r  "));
    assert_int_equal(r.err[strlen(r.err) - 1], '\r');
    assert_null(strchr(r.err, '\n'));
    program_free(&r);
    r = RUN_ON_TERMINALS(90, "check", c, c, c, c, c, c, c, c);
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    program_free(&r);
    r = RUN_ON_TERMINALS(90, "check", c, c, c, c, c, c, c, c, c, "--quiet");
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    program_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_recorded_case_passes_on_every_path),
        cmocka_unit_test(test_the_first_stage_that_diverges_is_named),
        cmocka_unit_test(test_directories_skips_and_unreadable_files),
        cmocka_unit_test(test_what_is_wrong_in_a_case_is_said_of_the_file),
        cmocka_unit_test(test_names_in_cases_do_not_drive_the_terminal),
        cmocka_unit_test(test_text_is_cut_between_characters),
        cmocka_unit_test(test_directories_are_read_in_order),
        cmocka_unit_test(test_a_terminal_counts_the_cases),
        cmocka_unit_test(test_the_corpus_passes),
        cmocka_unit_test(test_compare_finds_the_difference),
        cmocka_unit_test(test_colons_in_names),
    };
    return cmocka_run_group_tests_name("cli_check", tests, NULL, scratch_remove);
}
