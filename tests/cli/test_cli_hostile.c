/* Names from files, and names of files, that would drive a terminal, be markup, or be commands. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "mha/mha.h"
#include "support/program.h"
#include "support/scratch.h"
#include "support/unit.h"

/* Escape sequences in both spellings, a change of direction, a line end, quotes of the shell, markup of Markdown. */
#define EVIL "e\033[31m\xc2\x9b"                                                                                       \
             "31m\xe2\x80\xae\n'`id`<b>[l](x)*|$x"

static const char *const controls[] = {"\033", "\xc2\x9b", "\xe2\x80\xae", "\n'`"};

static void assert_harmless(const char *text)
{
    for (size_t i = 0; i < sizeof controls / sizeof *controls; i++)
        if (strstr(text, controls[i]))
            fail_msg("control %zu is in: %s", i, text);
}

static void add(mha_writer *writer, const char *name, size_t rows)
{
    static float values[8 * 8] = {1, 2, 3};
    mha_error error;
    const mha_view view = mha_view_of(values, MHA_F32, 2, (const size_t[]){rows, 8});
    assert_ok(mha_writer_add(writer, name, &view, &error), error);
}

/* A layer of width 8 in a folder of its own, beside a config.json; with tensors of other names. */
static int write_files(void **state)
{
    (void)state;
    static const char *const names[] = {"query.weight", "key.weight", "value.weight", "output.dense.weight"};
    mha_writer *writer;
    mha_error error;
    char path[600], prefix[100];
    mkdir(scratch(EVIL), 0777);
    snprintf(path, sizeof path, "%s/model.safetensors", scratch(EVIL));
    assert_ok(mha_writer_create(path, &writer, &error), error);
    for (size_t i = 0; i < 4; i++) {
        snprintf(prefix, sizeof prefix, "%s.attention.%s%s", EVIL, i < 3 ? "self." : "", names[i]);
        add(writer, prefix, 8);
    }
    add(writer, "=1+cmd|' /C calc'!A0", 1);
    add(writer, "-0.5", 1);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    snprintf(path, sizeof path, "%s/config.json", scratch(EVIL));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("{\"model_type\": \"e\\u001b[31m\\u009b31m\\u202e\\n'\", \"num_attention_heads\": 2}", file);
    fclose(file);
    return 0;
}

static void no_command_passes_controls_on(void **state)
{
    (void)state;
    char model[600], tensor[900];
    snprintf(model, sizeof model, "%s/model.safetensors", scratch(EVIL));
    snprintf(tensor, sizeof tensor, "%s:none", model);
    const struct {
        const char *args[9];
        int code;
    } runs[] = {
        {{"params", "--weights", model}, 0},
        {{"params", "--weights", model, "--format", "csv"}, 0},
        {{"params", "--weights", model, "--format", "markdown"}, 0},
        {{"params", "--weights", model, "--json"}, 0},
        {{"params", "--weights", model, "--preset", "gpt2"}, 1},
        {{"params", "--preset", EVIL}, 2},
        {{"params", "--config", EVIL}, 2},
        {{"forward", "--weights", model, "--seq", "2"}, 2}, /* what its model computes is not known */
        {{"forward", "--weights", model, "--seq", "2", "--causal"}, 0},
        {{"forward", "--weights", model, "--layer", EVIL, "--seq", "2", "--causal"}, 0},
        {{"forward", "--weights", model, "--layer", EVIL EVIL}, 2},
        {{"forward", "--weights", model, "--input", tensor}, 2},
        {{"compare", model, model}, 0},
        {{"compare", model, tensor}, 2},
        {{"check", model}, 2},
        {{"check", scratch(EVIL)}, 2},
        {{"diagnose", model}, 2},
        {{EVIL}, 2},
        {{"help", EVIL}, 2},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        program_result r = program_run(runs[i].args);
        if (r.code != runs[i].code)
            fail_msg("run %zu, mha %s: exit code %d: %s", i, runs[i].args[0], r.code, r.err);
        assert_harmless(r.out);
        assert_harmless(r.err);
        const char *line = strchr(r.err, '\n');
        assert_true(!line || line[1] == '\0');
        program_free(&r);
    }
}

/* An error names its file once, however it had to be written. */
static void an_error_names_its_file_once(void **state)
{
    (void)state;
    char missing[600];
    snprintf(missing, sizeof missing, "%s/none", scratch(EVIL));
    const char *const commands[][3] = {{"params", "--config", missing}, {"compare", missing, missing}};
    for (size_t i = 0; i < 2; i++) {
        program_result r = program_run((const char *const[]){commands[i][0], commands[i][1], commands[i][2], NULL});
        const char *once = strstr(r.err, "$x/none: expected");
        assert_non_null(once);
        assert_ptr_equal(strstr(r.err, "$x/none"), once);
        program_free(&r);
    }
}

/* Markdown shows names as they are; a spreadsheet computes none, and numbers stay numbers. */
static void names_are_neither_markup_nor_formulas(void **state)
{
    (void)state;
    char model[600];
    snprintf(model, sizeof model, "%s/model.safetensors", scratch(EVIL));
    program_result markdown = RUN("params", "--weights", model, "--format", "markdown"),
                   csv = RUN("params", "--weights", model, "--format", "csv");
    assert_non_null(strstr(markdown.out, "| e?\\[31m?31m?" "?'\\`id\\`\\<b>\\[l](x)\\*\\|\\$x.attention.self"));
    assert_non_null(strstr(csv.out, "\n'=1+cmd|' /C calc'!A0,"));
    assert_non_null(strstr(csv.out, "\n-0.5,"));
    program_free(&markdown);
    program_free(&csv);
}

/* The advice after a failed case is one command, whatever the file is called. */
static void advice_is_one_word_of_the_shell(void **state)
{
    (void)state;
    static const char *const names[][2] = {{"plain-1.safetensors", "plain-1.safetensors"},
                                           {"a; `id` it's.safetensors", "a; `id` it'\\''s.safetensors'"}};
    size_t count;
    unsigned char *wrong = scratch_read("weights/lookup/wrong_port.safetensors", &count);
    for (size_t i = 0; i < 2; i++) {
        const char *path = scratch_write(names[i][0], wrong, count), *quote = i ? "'" : "";
        const int folder = (int)(strrchr(path, '/') - path) + 1;
        char words[900];
        snprintf(words, sizeof words, "\n\"mha diagnose %s%.*s%s\" looks", quote, folder, path, names[i][1]);
        program_result r = RUN("check", path);
        if (!strstr(r.out, words))
            fail_msg("%s is not in: %s", words, r.out);
        program_free(&r);
    }
    free(wrong);
}

static int remove_files(void **state)
{
    static const char *const names[] = {"%s/model.safetensors", "%s/config.json", "%s"};
    for (size_t i = 0; i < 3; i++) {
        char path[600];
        snprintf(path, sizeof path, names[i], scratch(EVIL));
        remove(path);
    }
    return scratch_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_command_passes_controls_on),
        cmocka_unit_test(an_error_names_its_file_once),
        cmocka_unit_test(names_are_neither_markup_nor_formulas),
        cmocka_unit_test(advice_is_one_word_of_the_shell),
    };
    return cmocka_run_group_tests(tests, write_files, remove_files);
}
