/* The program as a whole: help, version, how requests are refused, what happens when output cannot be written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mha/mha.h"
#include "support/program.h"
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

static void test_help_in_every_spelling(void **state)
{
    (void)state;
    char names[32][32];
    size_t n = command_names(names);
    for (size_t i = 0; i < n; i++) {
        program_result option = RUN(names[i], "--help"), word = RUN("help", names[i]), letter = RUN(names[i], "-h");
        assert_int_equal(option.code, 0);
        assert_int_equal(word.code, 0);
        assert_string_equal(option.out, word.out);
        assert_string_equal(option.out, letter.out);
        assert_string_equal(option.err, "");
        assert_non_null(strstr(option.out, names[i]));
        assert_non_null(strstr(option.out, "--help"));
        program_free(&option);
        program_free(&word);
        program_free(&letter);
    }
    says(RUN("help"), 0, "Commands");
    static const struct {
        const char *name, *text;
    } topics[] = {{"inert", "b_K"},
                  {"storage", "alias"},
                  {"derived", "--no-pack"},
                  {"stage", "present_value"},
                  {"paths", "float64"},
                  {"masks", "--cu-seqlens"},
                  {"case", "expected.output, output"},
                  {"architectures", "llama4_text, "},
                  {"variants", "causal-top-left"}};
    program_result all = RUN("help");
    for (size_t i = 0; i < sizeof topics / sizeof *topics; i++) {
        says(RUN("help", topics[i].name), 0, topics[i].text);
        assert_non_null(strstr(strstr(all.out, "Topics"), topics[i].name));
    }
    program_free(&all);
    program_result words = RUN("help", "case");
    assert_int_equal(words.code, 0);
    mha_case_word word;
    for (size_t i = 0; mha_case_word_at(i, &word); i++)
        if (!strstr(words.out, word.name))
            fail_msg("help case lacks %s", word.name);
    program_free(&words);
    says(RUN("-h"), 0, "Commands");
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
        skip_because("%s is not installed: make deps-dev installs it", shell);
    snprintf(line, sizeof line, "%s %s %s", shell, strcmp(shell, "zsh") == 0 ? "-f" : "", path);
    assert_int_equal(system(line), 0);
}

static void test_completion_for_bash(void **state)
{
    (void)state;
    assert_program_refuses(RUN("completion", "tcsh"), 2, "expected bash, zsh or fish*found \"tcsh\"");
    assert_program_refuses(RUN("completion"), 2, "expected SHELL*found nothing");
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

/* The program answers the shells; whatever stands in the line, it says nothing else and ends with 0. */
static void test_words_for_shells(void **state)
{
    (void)state;
    says(RUN("completion", "--words"), 0, "forward\trun a layer");
    says(RUN("completion", "--words", "fo"), 0, "help\t");
    says(RUN("completion", "--words", "forward", "--weights", ""), 0, ":files\n");
    says(RUN("completion", "--words", "forward", "--seq", ""), 0, ":form N\n");
    says(RUN("completion", "--words", "forward", "--causal", ""), 0, "--causal\t");
    says(RUN("completion", "--words", "check", ""), 0, ":files\n");
    says(RUN("completion", "--words", "check", "-"), 0, "--path\t");
    says(RUN("completion", "--words", "params", "--preset", "gpt"), 0, "gpt2\t");
    says(RUN("completion", "--words", "help", ""), 0, "case\t");
    says(RUN("completion", "--words", "completion", ""), 0, "fish\t");
    says(RUN("completion", "--words", "nonsense", ""), 0, "");
    says(RUN("completion", "--words", "forward", "--nonsense", "\x1b[31m", "--"), 0, "--rope\t");
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

/* ---------------------------------------------------------------- requests that are refused */

static void test_commands_are_refused_by_name(void **state)
{
    (void)state;
    assert_program_refuses(RUN("parms"), 2, "mha: parms: unknown command; did you mean params?");
    assert_program_refuses(RUN("hepl"), 2, "mha: hepl: unknown command; did you mean help?");
    assert_program_refuses(RUN("variants"), 2, "mha: variants: unknown command; expected one of forward, params");
    assert_program_refuses(RUN("help", "varients"), 2, "varients: unknown command or topic; did you mean variants?");
    assert_program_refuses(RUN("help", "chek"), 2, "chek: unknown command or topic; did you mean check?");
    assert_program_refuses(RUN("--json"), 2, "--json: expected a command before options");
    assert_program_refuses(RUN("help", "nothing"), 2, "nothing: unknown command or topic; topics are inert, storage");
    assert_program_refuses(RUN("--version", "x"), 2, "found \"x\"");
    program_result r = program_run((const char *const[]){NULL});
    assert_program_refuses(r, 2, "expected a command, found nothing");
}

static void test_options_are_refused_by_name(void **state)
{
    (void)state;
    assert_program_refuses(RUN("params", "--d-modle", "512"), 2,
                           "mha params: --d-modle: unknown option; did you mean --d-model?");
    assert_program_refuses(RUN("params", "--frobnicate"), 2,
                           "--frobnicate: unknown option; \"mha params --help\" lists");
    assert_program_refuses(RUN("params", "--frobnicate=3"), 2, "mha params: --frobnicate: unknown option");
    assert_program_refuses(RUN("params", "-x"), 2, "-x: unknown option");
    assert_program_refuses(RUN("params", "--causal"), 2, "--causal: not an option here, but of*forward");
    assert_program_refuses(RUN("params", "stray"), 2, "expected no operand, found \"stray\"");
    assert_program_refuses(RUN("params", "--json=1"), 2, "mha params: --json: expected no argument, found \"1\"");
    assert_program_refuses(RUN("params", "--d-model"), 2, "--d-model: expected N, found nothing");
    assert_program_refuses(RUN("compare", "a"), 2, "expected A[:TENSOR] B[:TENSOR], found too few");
    assert_program_refuses(RUN("compare", "a", "b", "c"), 2, "found \"c\"");
}

/* getopt_long would take these: the beginning of a name that could mean only one option. */
static void test_names_are_not_completed_silently(void **state)
{
    (void)state;
    assert_program_refuses(RUN("params", "--d-mod", "512"), 2, "--d-mod: unknown option");
    assert_program_refuses(RUN("params", "--js"), 2, "--js: unknown option");
    assert_program_refuses(RUN("params", "--d-mod"), 2, "--d-mod: unknown option");
    assert_program_refuses(RUN("params", "--d-mod=5"), 2, "--d-mod: unknown option");
}

static void test_numbers_are_read_strictly(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",  " 8",    "8 ",  "+8",  "8x",  "0x8", "8.0", "eight",
                                        "0", "-8", "1e3", "99999999999999999999", "8,8"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_program_refuses(RUN("params", "--heads", wrong[i]), 2,
                               "mha params: --heads: expected a whole number from 1 to 2147483647, found \"");
    assert_program_refuses(RUN("forward", "--threads", "1025"), 2,
                           "--threads: expected a whole number from 1 to 1024, found \"1025\"");
    assert_program_refuses(RUN("forward", "--scale", "nan"), 2, "--scale: expected a finite number, found nan");
    assert_program_refuses(RUN("forward", "--scale", "1e999"), 2, "--scale: expected a finite number");
    assert_program_refuses(RUN("forward", "--softcap", "1e-400"), 2,
                           "--softcap: expected a number, found \"1e-400\"");
    assert_program_refuses(RUN("forward", "--scale", "-1e-400"), 2,
                           "--scale: expected a number, found \"-1e-400\"");
    assert_program_refuses(RUN("forward", "--scale", "1e300"), 2,
                           "--scale: expected a number that float can hold*found 1e+300");
    says(RUN("forward", "--d-model", "8", "--heads", "2", "--seq", "3", "--rope", "half", "--rope-base", "1e300"), 0,
         "rope_base 1e+300");
    assert_program_refuses(RUN("forward", "--scale", "1 "), 2, "--scale: expected a number, found \"1 \"");
    assert_program_refuses(RUN("forward", "--softcap", "-1"), 2,
                           "--softcap: expected a finite number above 0, or 0 (off), found -1");
    assert_program_refuses(RUN("forward", "--sigmoid", "nan"), 2,
                           "--sigmoid: expected a finite number, found \"nan\"");
    assert_program_refuses(RUN("compare", "--rtol", "1e-400"), 2,
                           "--rtol: expected a number that a double can hold, at least 0, found \"1e-400\"");
    assert_program_refuses(RUN("compare", "--rtol", "-1"), 2, "--rtol: expected a finite number, at least 0");
    assert_program_refuses(RUN("forward", "--window", "3"), 2,
                           "--window: expected two whole numbers with a comma between*found \"3\"");
    assert_program_refuses(RUN("forward", "--window", "3,-2"), 2, "--window: expected*at least -1, found \"3,-2\"");
    assert_program_refuses(RUN("forward", "--window", "3,2,1"), 2, "--window: expected");
    assert_program_refuses(RUN("heads", "--heads", "1,,2"), 2,
                           "--heads: expected whole numbers between commas from 1 to");
    assert_program_refuses(RUN("heads", "--heads", "1,2,"), 2, "--heads: expected whole numbers between commas");
    assert_program_refuses(RUN("forward", "--path", "slow"), 2,
                           "--path: expected auto or fast or blas or exact, found \"slow\"");
    assert_program_refuses(RUN("forward", "--rope", "inter"), 2,
                           "--rope: expected none, interleaved or half_split, found \"inter\"");
}

static void test_widths_that_do_not_fit_name_the_numbers(void **state)
{
    (void)state;
    assert_program_refuses(RUN("params", "--d-model", "512", "--heads", "12"), 2, "512*12");
    assert_program_refuses(RUN("params", "--heads", "12", "--kv-heads", "5"), 2, "--kv-heads: *12*5");
    assert_program_refuses(RUN("params", "--bias", "--no-bias"), 2, "found both");
    /* at once, before any memory is asked for */
    assert_program_refuses(RUN("params", "--d-model", "2147483648", "--heads", "1"), 2,
                           "--d-model: expected*2147483647*\"2147483648\"");
    assert_program_refuses(RUN("forward", "--d-k", "4294967296"), 2, "--d-k: expected*2147483647*\"4294967296\"");
    assert_program_refuses(RUN("forward", "--d-k", "200000000"), 2,
                           "--d-k: expected at most 2147483647*found 12 x 200000000");
    assert_program_refuses(RUN("heads", "--d-v", "2147483647", "--heads", "2"), 2,
                           "--d-v: expected at most 2147483647*found 2 x");
    assert_program_refuses(RUN("forward", "--seq", "1099511627776"), 2, "--seq: expected*2147483647");
    assert_program_refuses(RUN("heads", "--batch", "1099511627776"), 2, "--batch: expected*2147483647");
    /* 4 TB: counted all the same, but not filled */
    assert_program_refuses(RUN("forward", "--d-model", "500000", "--heads", "1"), 3,
                           "bytes of memory for the weights, found");
}

static void test_counting_writes_no_weight(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "params", "--json", "--d-model", "500000", "--heads", "1", "--no-bias");
    assert_int_equal(json_integer_value(json_object_get(root, "total_parameters")), 1000000000000);
    json_decref(root);
}

/* A name from outside cannot break the line or drive the terminal. */
static void test_errors_hold_no_control_characters(void **state)
{
    (void)state;
    assert_program_refuses(RUN("compare", "no\nsuch\033[2Jfile", "b"), 2, "no?such?[2Jfile");
}

/* ---------------------------------------------------------------- standard output */

/* Seeds and positions are of 63 bits and a sign here: JSON libraries hold no more. */
static void test_numbers_beyond_64_bits_are_told_the_limit(void **state)
{
    (void)state;
    assert_program_refuses(
        RUN("forward", "--seed", "18446744073709551615"), 2,
        "--seed: expected a whole number, at least 0 and below 2^63, found \"18446744073709551615\"");
    assert_program_refuses(RUN("forward", "--seed", "-1"), 2,
                           "--seed: expected a whole number, at least 0, found \"-1\"");
    assert_program_refuses(RUN("forward", "--position-offset", "9223372036854775808"), 2,
                           "from -2^63 to 2^63 - 1, found");
    json_t *root = RUN_JSON(0, "forward", "--d-model", "8", "--heads", "2", "--seq", "2", "--seed",
                            "9223372036854775807", "--json");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "config"), "seed")), INT64_MAX);
    json_decref(root);
}

static void test_file_and_tensor_are_named_once(void **state)
{
    (void)state;
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}";
    bytes b = {0};
    bytes_number(&b, sizeof header - 1, 8);
    bytes_text(&b, header);
    bytes_zeros(&b, 4);
    const char *path = scratch_take("torn.safetensors", &b);
    char line[500];
    snprintf(line, sizeof line,
             "mha params: %s: a: expected 8 bytes for (2,) of F32, found data_offsets of 4 bytes (byte 9)\n", path);
    program_result r = RUN("params", "--weights", path);
    assert_int_equal(r.code, 2);
    assert_string_equal(r.err, line);
    program_free(&r);
}

static void test_output_that_cannot_be_written_is_exit_3(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0)
        skip_because("there is no /dev/full to write to");
    const char *const *commands[] = {
        (const char *const[]){"params", NULL}, (const char *const[]){"params", "--json", NULL},
        (const char *const[]){"--help", NULL}, (const char *const[]){"help", "forward", NULL},
        (const char *const[]){"info", NULL},   (const char *const[]){"--version", NULL}};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        assert_program_refuses(program_run_with("/dev/full", NULL, commands[i]), 3,
                               "standard output: No space left on device");
}

static void test_text_to_a_file_has_no_colours(void **state)
{
    (void)state;
    setenv("TERM", "xterm", 1);
    program_result r = RUN("params");
    assert_null(strchr(r.out, '\033'));
    program_free(&r);
}

/* ---------------------------------------------------------------- info */

static void test_info(void **state)
{
    (void)state;
    json_t *info = RUN_JSON(0, "info", "--json");
    assert_keys(info, "version,isa,isa_available,blas,blas_threading,threads,handover_us,operations_for_a_thread,"
                      "few_rows_ahead,one_row_ahead,blocks_ahead");
    assert_string_equal(json_string_value(json_object_get(info, "version")), mha_version());
    json_t *available = json_object_get(info, "isa_available");
    size_t n = json_array_size(available);
    assert_true(n >= 1);
    assert_string_equal(json_string_value(json_array_get(available, n - 1)), "scalar");
    assert_true(json_integer_value(json_object_get(info, "threads")) >= 1);
    assert_true(json_number_value(json_object_get(info, "operations_for_a_thread")) > 0);
    assert_true(json_number_value(json_object_get(info, "handover_us")) >= 0);
    json_decref(info);
    info = RUN_JSON(0, "info", "--json", "--isa", "scalar");
    assert_string_equal(json_string_value(json_object_get(info, "isa")), "scalar");
    json_decref(info);
    says(RUN("info"), 0, "instruction set");
    says(RUN("info"), 0, "a second thread  from ");
    says(RUN("info", "--isa", "scalar"), 0, "weights for one row 8192 bytes, for few rows 8192, quantised 2048");
    assert_program_refuses(RUN("info", "--isa", "mmx"), 2,
                           "--isa: expected one this machine has (*scalar), found \"mmx\"");
    program_result quiet = RUN("info", "--quiet");
    assert_int_equal(quiet.code, 0);
    assert_int_equal(quiet.out_size, 0);
    program_free(&quiet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_is_the_library_s),
        cmocka_unit_test(test_help_in_every_spelling),
        cmocka_unit_test(test_manual_page_has_every_command_and_option),
        cmocka_unit_test(test_manual_page_has_no_other_option),
        cmocka_unit_test(test_words_for_shells),
        cmocka_unit_test(test_completion_for_bash),
        cmocka_unit_test(test_completion_for_zsh),
        cmocka_unit_test(test_completion_for_fish),
        cmocka_unit_test(test_commands_are_refused_by_name),
        cmocka_unit_test(test_options_are_refused_by_name),
        cmocka_unit_test(test_names_are_not_completed_silently),
        cmocka_unit_test(test_numbers_are_read_strictly),
        cmocka_unit_test(test_widths_that_do_not_fit_name_the_numbers),
        cmocka_unit_test(test_counting_writes_no_weight),
        cmocka_unit_test(test_errors_hold_no_control_characters),
        cmocka_unit_test(test_numbers_beyond_64_bits_are_told_the_limit),
        cmocka_unit_test(test_file_and_tensor_are_named_once),
        cmocka_unit_test(test_output_that_cannot_be_written_is_exit_3),
        cmocka_unit_test(test_text_to_a_file_has_no_colours),
        cmocka_unit_test(test_info),
    };
    return cmocka_run_group_tests_name("cli_general", tests, NULL, scratch_remove);
}
