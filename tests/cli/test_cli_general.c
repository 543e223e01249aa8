/* The program as a whole: help, version, how requests are refused, what happens when output cannot be written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mha/lab.h"
#include "support/program.h"
#include "support/sanitizer.h"
#include "support/scratch.h"
#include "support/unit.h"

static void says(program_result r, int code, const char *words)
{
    assert_int_equal(r.code, code);
    assert_non_null(strstr(r.out, words));
    assert_string_equal(r.err, "");
    program_free(&r);
}

/* The names in the list of commands of "mha --help": lines of two spaces, a word, more spaces, text. */
static size_t command_names(char names[32][32])
{
    program_result r = RUN("--help");
    assert_int_equal(r.code, 0);
    size_t n = 0;
    char *from = strstr(r.out, "Commands\n");
    assert_non_null(from);
    for (char *line = strchr(from, '\n') + 1; strncmp(line, "  ", 2) == 0; line = strchr(line, '\n') + 1)
        assert_int_equal(sscanf(line, "%31s", names[n++]), 1);
    program_free(&r);
    assert_true(n >= 5);
    return n;
}

/* ---------------------------------------------------------------- help */

static void test_version_is_the_library_s(void **state)
{
    (void)state;
    char version[64];
    snprintf(version, sizeof version, "mha %s\n", mha_version());
    says(RUN("--version"), 0, version);
}

static void test_case_words_are_explained(void **state)
{
    (void)state;
    program_result words = RUN("help", "case");
    mha_case_word word;
    for (size_t i = 0; mha_case_word_at(i, &word); i++)
        if (!strstr(words.out, word.name))
            fail_msg("help case lacks %s", word.name);
    program_free(&words);
}

static char *manual_page(void)
{
    FILE *file = fopen("src/cli/mha.1", "r");
    assert_non_null(file); /* tests run where `make` does */
    char *text = calloc(1, 1 << 18);
    assert_true(fread(text, 1, (1 << 18) - 1, file) > 1000);
    fclose(file);
    return text;
}

/* Help lists common options first, and each option once. */
static void common_options_come_first(void **state)
{
    (void)state;
    char names[32][32], word[64];
    const size_t n = command_names(names);
    size_t common = 0;
    for (size_t i = 0; i < n; i++) {
        program_result r = RUN(names[i], "--help");
        const char *first = strstr(r.out, "\n\n"), *heading = strstr(r.out, "\nCommon options\n");
        common += heading != NULL;
        if (heading && heading != first + 1)
            fail_msg("mha %s --help: another section comes before the common options", names[i]);
        for (const char *at = r.out; (at = strstr(at, "\n  --")); at++) {
            snprintf(word, sizeof word, "%.*s", (int)strcspn(at + 5, " \n") + 5, at);
            for (const char *more = at + 1; (more = strstr(more, word)); more++)
                if (strchr(" \n", more[strlen(word)]))
                    fail_msg("mha %s --help lists%s twice", names[i], word + 1);
        }
        program_free(&r);
    }
    assert_true(common >= 8);
    program_result r = RUN("forward", "--help");
    assert_true(strstr(r.out, "\n  --causal ") < strstr(r.out, "\nShape of the layer\n"));
    program_free(&r);
}

/* Every command stands in the manual page, and its options are those of the program's tables: "make manual" writes
 * them there. */
static void test_manual_page_has_every_command_and_option(void **state)
{
    (void)state;
    char names[32][32], *page = manual_page();
    const size_t n = command_names(names);
    for (size_t i = 0; i < n; i++) {
        char heading[64];
        snprintf(heading, sizeof heading, ".Ss mha %.31s", names[i]);
        if (!strstr(page, heading))
            fail_msg("the manual page lacks \"%s\"", heading);
    }
    program_result r = RUN("help", "--manual");
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "\n.It Fl -window-keep Ar N\n"));
    if (!strstr(page, r.out))
        fail_msg("the options of src/cli/mha.1 are not those of the program: \"make manual\" writes them");
    program_free(&r);
    free(page);
}

/* No other place of the page names an option that there is not. */
static void test_manual_page_has_no_other_option(void **state)
{
    (void)state;
    char *page = manual_page();
    program_result r = RUN("help", "--manual");
    for (char *at = page; (at = strstr(at, ".It Fl -"));) {
        char option[48];
        snprintf(option, sizeof option, "\n%.*s", (int)strcspn(at + 8, " \n") + 8, at);
        at += 8;
        if (!strstr(r.out, option))
            fail_msg("the manual page has%s, which no command takes", option + 8);
    }
    program_free(&r);
    free(page);
}

/* Quantised types of --dtype, as the program lists them and as fish sorts them. */
#define BLOCKS "q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4 f8_e4m3_scaled f8_e5m2_scaled"
#define SORTED_BLOCKS "iq4_nl iq4_xs mxfp4 q2_k q3_k q4_0 q4_1 q4_k q5_0 q5_1 q5_k q6_k q8_0"
#define SORTED_F8 "f8_e4m3_scaled f8_e5m2_scaled"

/* The script that mha writes for a shell, and behind it lines that use it, run by that shell. */
static void run_completion_script(const char *shell, const char *before, const char *lines)
{
    program_result r = RUN("completion", shell);
    assert_int_equal(r.code, 0);
    char line[600], folder[400];
    snprintf(folder, sizeof folder, "%s", getenv("MHA_PROGRAM"));
    *strrchr(folder, '/') = '\0';
    setenv("MHA_FOLDER", folder, 1);
    const char *path = scratch(shell);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s\n%s\n%s\n%s",
            strcmp(shell, "fish") == 0 ? "set --prepend PATH (realpath $MHA_FOLDER)"
                                       : "PATH=$(realpath \"$MHA_FOLDER\"):$PATH",
            before, r.out, lines);
    fclose(file);
    program_free(&r);
    snprintf(line, sizeof line, "command -v %s >/dev/null", shell);
    if (system(line) != 0)
        skip_because("bash, zsh or fish is not installed (make deps-dev)");
    snprintf(line, sizeof line, "%s %s %s", shell, strcmp(shell, "zsh") == 0 ? "-f" : "", path);
    assert_int_equal(system(line), 0);
}

static void test_completion_for_bash(void **state)
{
    (void)state;
    run_completion_script("bash", "",
                          "offers() { local wanted=$1; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _mha\n"
                          "  test \"${COMPREPLY[*]}\" = \"$wanted\" || { echo \"$*: expected $wanted, found "
                          "${COMPREPLY[*]}\"; exit 1; }; }\n"
                          "offers params mha para\n"
                          "offers --d-model mha params --d-m\n"
                          "offers interleaved mha forward --rope i\n"
                          "offers gpt2-large mha params --preset gpt2-l\n"
                          "offers params mha help par\n"
                          "offers inert mha help ine\n"
                          "offers 'bash zsh fish' mha completion ''\n"
                          "offers 'f32 f16 bf16 " BLOCKS "' mha bench --dtype ''\n"
                          "offers 'f32 f64 f16 bf16 " BLOCKS "' mha forward --dtype ''\n"
                          "offers 'weights weights_mean' mha check --stage weights\n"
                          "offers 'bert1x128 bert1x512 bert1x127' mha bench --shape bert1\n"
                          "offers 'auto' mha forward --isa au\n"
                          "offers 'scalar' mha forward --isa sc\n"
                          "offers '--heads --help' mha heads --he\n"
                          "offers 'heads help' mha h\n"
                          "offers 'exact' mha check --path e\n"
                          "offers tests/vectors mha check tests/vec\n"
                          "offers weights/lookup mha forward --weights weights/lo\n"
                          "offers '' mha forward --seq ''\n");
}

/* The functions that zsh's completion system provides stand here as ones that print what they are given. */
static void test_completion_for_zsh(void **state)
{
    (void)state;
    run_completion_script("zsh",
        "compdef() { [[ $1 == _mha ]] }\n"
        "compadd() { print -r -- ${@:#--} }\n"
        "_files() { print FILES }\n"
        "_message() { print -r -- MESSAGE $1 }\n"
        "_describe() { print -r -- ${(P)@[-1]} }\n",
        "offers() { local wanted=$1; shift; words=(\"$@\") CURRENT=$# PREFIX=${@[-1]}; found=$(_mha)\n"
        "  [[ $found == ${~wanted} ]] || { print -r -- \"$*: expected $wanted, found $found\"; exit 1 }; }\n"
        "offers '*params:the parameter table*completion:*help*' mha ''\n"
        "offers '*--d-model:width of the model *' mha params --d\n"
        "offers 'none: interleaved: half_split:' mha forward --rope ''\n"
        "offers '*gpt2: gpt2-large:*' mha params --preset ''\n"
        "offers '*params:the*inert: storage:*' mha help ''\n"
        "offers 'bash: zsh: fish:' mha completion ''\n"
        "offers 'f32: f16: bf16: q8_0:*f8_e5m2_scaled:' mha bench --dtype ''\n"
        "offers 'f32: f64: f16: bf16: q8_0:*f8_e5m2_scaled:' mha forward --dtype ''\n"
        "offers 'q: k: v: *weights_mean:*' mha check --stage ''\n"
        "offers 'list: standard: tiny16:*' mha bench --shape ''\n"
        "offers 'auto:*scalar:' mha forward --isa ''\n"
        "offers FILES mha check ''\n"
        "offers FILES mha forward --weights ''\n"
        "offers 'MESSAGE N' mha forward --seq ''\n");
}

static void test_completion_for_fish(void **state)
{
    (void)state;
    run_completion_script("fish", "",
        "function offers\n"
        "    set --local found (complete -C $argv[2] | string replace --regex '\\t.*' '')\n"
        "    test \"$found\" = $argv[1]; or begin; echo \"$argv[2]: expected $argv[1], found $found\"; exit 1; end\n"
        "end\n"
        "offers params 'mha para'\n"
        "offers --d-model 'mha params --d-m'\n"
        "offers interleaved 'mha forward --rope i'\n"
        "offers gpt2-large 'mha params --preset gpt2-l'\n"
        "offers params 'mha help par'\n"
        "offers inert 'mha help ine'\n"
        "offers 'bash fish zsh' 'mha completion '\n"
        "offers 'bf16 " SORTED_F8 " f16 f32 " SORTED_BLOCKS "' 'mha bench --dtype '\n"
        "offers 'bf16 " SORTED_F8 " f16 f32 f64 " SORTED_BLOCKS "' 'mha forward --dtype '\n"
        "offers 'weights weights_mean' 'mha check --stage weights'\n"
        "offers 'bert1x127 bert1x128 bert1x512' 'mha bench --shape bert1'\n"
        "offers scalar 'mha forward --isa sc'\n"
        "offers exact 'mha check --path e'\n"
        "offers tests/vectors/ 'mha check tests/vec'\n"
        "offers weights/lookup/ 'mha forward --weights weights/lo'\n"
        "offers '' 'mha forward --seq '\n");
}

/* ---------------------------------------------------------------- little memory */

/* From what loads at all to what is enough: each command ends, done or with one line. `timeout` ends one that does not:
 * OpenBLAS asks again for ever when it gets no memory. */
static void test_commands_end_however_little_memory_there_is(void **state)
{
    (void)state;
    static const char *const commands[] = {"--version", "info", "heads --d-model 64", "forward --seq 64",
                                           "forward --seq 64 --path blas --d-model 64 --heads 4",
                                           "bench --shape 1,8,8,64,4 --rounds 1"};
    size_t done = 0, refused = 0;
    if (ADDRESS_SANITIZER || THREAD_SANITIZER)
        skip_because("sanitizers need all addresses");
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++)
        for (int limit = 64; limit <= 600; limit += c == 0 ? 16 : 67)
            for (int data = 0; data < 2; data++) { /* address space, or what is written to */
                char line[200];
                snprintf(line, sizeof line, "ulimit -%c %d; exec timeout 60 mha %s", data ? 'd' : 'v', limit * 1000,
                         commands[c]);
                program_result r = program_run_in_shell(line);
                const char *end = strchr(r.err, '\n');
                if (r.code != 0 && (r.code != 3 || !end || end[1] || strncmp(r.err, "mha", 3) != 0))
                    fail_msg("%s: exit code %d: %s", line, r.code, r.err);
                done += r.code == 0, refused += r.code == 3;
                program_free(&r);
            }
    assert_true(done > 20 && refused > 10);
}

/* The file is a hole of 128 MiB. */
static void test_a_tensor_without_memory_is_named(void **state)
{
    (void)state;
    enum { BYTES = 1 << 27, HEADER = 72 };
    char head[8 + HEADER + 1] = {HEADER}, line[400];
    if (ADDRESS_SANITIZER || THREAD_SANITIZER)
        skip_because("sanitizers need all addresses");
    snprintf(head + 8, HEADER + 1, "%-*s", HEADER,
             "{\"W_k\":{\"dtype\":\"F32\",\"shape\":[33554432],\"data_offsets\":[0,134217728]}}");
    const char *path = scratch_write("hole.safetensors", head, 8 + HEADER);
    assert_int_equal(truncate(path, 8 + HEADER + BYTES), 0);
    snprintf(line, sizeof line, "ulimit -v 200000; exec mha compare %s %s", path, path);
    program_result r = program_run_in_shell(line);
    assert_int_equal(r.code, 3);
    assert_non_null(strstr(r.err, "hole.safetensors: W_k: no memory for its 134217728 bytes"));
    program_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_is_the_library_s),
        cmocka_unit_test(test_case_words_are_explained),
        cmocka_unit_test(common_options_come_first),
        cmocka_unit_test(test_manual_page_has_every_command_and_option),
        cmocka_unit_test(test_manual_page_has_no_other_option),
        cmocka_unit_test(test_completion_for_bash),
        cmocka_unit_test(test_completion_for_zsh),
        cmocka_unit_test(test_completion_for_fish),
        cmocka_unit_test(test_commands_end_however_little_memory_there_is),
        cmocka_unit_test(test_a_tensor_without_memory_is_named),
    };
    return cmocka_run_group_tests_name("cli_general", tests, NULL, scratch_remove);
}
