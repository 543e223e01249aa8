/* Every setting is an option by its row alone: listed, read, refused, and told in the report. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"
#include "support/program.h"
#include "support/scratch.h"
#include "support/unit.h"

#define SMALL "--d-model", "24", "--heads", "4", "--seq", "6", "--batch", "2", "--threads", "1"
enum { MOST = 40 };

/* The option of a name: "--window-keep". Valid until the next 8 calls. */
static const char *option_name(const char *name, size_t length)
{
    static char names[8][60];
    static size_t next;
    char *text = names[next++ % 8];
    snprintf(text, sizeof *names, "--%.*s", (int)length, name);
    for (char *at = text; *at; at++)
        *at = *at == '_' ? '-' : *at;
    return text;
}

/* Words that other settings have as short words of the program: --position-offset, --alibi, --sigmoid. */
static bool is_own_word(const char *option)
{
    static const char *const own[] = {"--position-offset", "--alibi", "--sigmoid"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(option, own[i]) == 0)
            return true;
    return false;
}

static bool is_array(const mha_setting *s)
{
    return s->kind >= MHA_SETTING_VIEW;
}

/* A line of `text` that begins so. */
static bool has_line(const char *text, const char *before, const char *option)
{
    char line[80];
    const size_t length = (size_t)snprintf(line, sizeof line, "\n%s%s", before, option);
    const char *at = strstr(text, line);
    while (at && !strchr(" \t\n", at[length]))
        at = strstr(at + 1, line);
    return at != NULL;
}

static void every_setting_is_listed(void **state)
{
    (void)state;
    static const char *const commands[] = {"forward", "heads", "show", "check", "diagnose", "power"};
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++) {
        program_result help = RUN(commands[c], "--help"), words = RUN("completion", "--words", commands[c], "-");
        for (size_t i = 0; mha_setting_at(i); i++) {
            const char *option = option_name(mha_setting_at(i)->name, strlen(mha_setting_at(i)->name));
            if (!has_line(help.out, "  ", option) || !has_line(words.out, "", option))
                fail_msg("mha %s: %s is not in help and completions", commands[c], option);
        }
        program_free(&help);
        program_free(&words);
    }
}

/* ---------------------------------------------------------------- numbers, switches, choices */

/* Last word of a choice in its first spelling. */
static const char *last_word(const char *choices)
{
    static char word[40];
    const char *last = strrchr(choices, '|') ? strrchr(choices, '|') + 1 : choices;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(last, "="), last);
    return word;
}

/* Adds the option of a setting with some value that is not its default, and before it what it needs. */
static void add_setting(const char **args, size_t *n, const mha_setting *s, const char *word)
{
    static char words[8][40];
    static size_t next;
    if (s->needs) {
        char name[60];
        const size_t length = strcspn(s->needs, "=");
        snprintf(name, sizeof name, "%.*s", (int)length, s->needs);
        char *value = words[next++ % 8];
        snprintf(value, sizeof *words, "%.*s", (int)strcspn(s->needs + length + (s->needs[length] == '='), ","),
                 s->needs + length + (s->needs[length] == '='));
        add_setting(args, n, mha_setting_find(name), *value ? value : NULL);
    }
    args[(*n)++] = option_name(s->name, strlen(s->name));
    if (s->kind == MHA_SETTING_SWITCH)
        return;
    char *value = words[next++ % 8];
    snprintf(value, sizeof *words, "%s",
             word                                ? word
             : s->kind == MHA_SETTING_CHOICE     ? last_word(s->choices)
             : s->kind == MHA_SETTING_REAL       ? "0.5"
             : s->kind == MHA_SETTING_WHOLES     ? "0,3,6"
             : is_array(s)                       ? "1,2"
                                                 : "2");
    args[(*n)++] = value;
}

/* Each is told in the report as it was given, or refused by the plan, which misses an array of some shape. */
static void every_number_reaches_the_report(void **state)
{
    (void)state;
    size_t told = 0, refused = 0;
    for (size_t i = 0; mha_setting_at(i); i++) {
        const mha_setting *s = mha_setting_at(i);
        const char *args[MOST] = {"forward", SMALL, "--json"};
        size_t n = 12;
        if (is_array(s))
            continue;
        if (strcmp(s->name, "norm_eps") == 0) /* is told where there is a norm */
            args[n++] = "--norm-unweighted";
        add_setting(args, &n, s, NULL);
        program_result r = program_run(args);
        if (r.code == 2) {
            assert_non_null(strstr(r.err, "mha forward: "));
            assert_null(strstr(r.err, "unknown option"));
            refused++;
        } else {
            mha_semantics expected = {0};
            mha_error error;
            char value[40], found[40] = "";
            assert_ok(mha_setting_put(s, s->kind == MHA_SETTING_SWITCH ? "1" : args[n - 1], &expected, &error), error);
            mha_setting_text(s, &expected, value, sizeof value);
            json_t *root = json_loads(r.out, 0, NULL);
            const json_t *item = json_object_get(json_object_get(json_object_get(root, "config"), "settings"), s->name);
            if (json_is_string(item))
                snprintf(found, sizeof found, "%s", json_string_value(item));
            else if (item)
                snprintf(found, sizeof found, "%.17g", json_is_true(item) ? 1 : json_number_value(item));
            if (strcmp(found, value) != 0)
                fail_msg("%s: expected %s, found \"%s\" (exit code %d): %s", s->name, value, found, r.code, r.err);
            json_decref(root);
            told++;
        }
        program_free(&r);
    }
    assert_true(told >= 20 && refused < 30); /* those need arrays, tables or a layer with norms */
}

/* A value that is none is refused under the option's name, by each name that a setting has. */
static void no_value_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; mha_setting_at(i); i++) {
        const mha_setting *s = mha_setting_at(i);
        const char *names[8] = {s->name};
        size_t n = 1;
        for (const char *at = s->aliases; at && *at; at += strcspn(at, " "), at += *at == ' ')
            names[n++] = at;
        for (size_t k = 0; k < n; k++) {
            const char *option = option_name(names[k], strcspn(names[k], " "));
            char wrong[80], words[100];
            snprintf(words, sizeof words, "mha forward: %s: expected ",
                     s->kind == MHA_SETTING_SWITCH ? option : option_name(s->name, strlen(s->name)));
            snprintf(wrong, sizeof wrong, "%s=%s", option, is_array(s) ? "" : "nonsense");
            if (!is_own_word(option))
                assert_program_refuses(RUN("forward", wrong), 2, words);
        }
    }
}

/* ---------------------------------------------------------------- arrays */

static json_t *settings_of(const char *const *more)
{
    const char *args[MOST] = {"forward", SMALL, "--json"};
    for (size_t n = 12; *more; n++)
        args[n] = *more++;
    json_t *root = run_json(0, args);
    json_t *settings = json_incref(json_object_get(json_object_get(root, "config"), "settings"));
    json_decref(root);
    return settings;
}

static void tells(const char *name, const char *value, const char *const *args)
{
    json_t *settings = settings_of(args);
    const char *found = json_string_value(json_object_get(settings, name));
    if (!found || strcmp(found, value) != 0)
        fail_msg("%s: expected %s, found %s", name, value, found ? found : "nothing");
    json_decref(settings);
}
#define TELLS(name, value, ...) tells(name, value, (const char *const[]){__VA_ARGS__, NULL})

static const char *array_file(const char *name, mha_dtype dtype, void *data, int rank, const size_t *shape)
{
    mha_writer *writer;
    mha_error error;
    const mha_view view = mha_view_of(data, dtype, rank, shape);
    assert_ok(mha_writer_create(scratch(name), &writer, &error), error);
    assert_ok(mha_writer_add(writer, "x", &view, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    return scratch(name);
}

static void arrays_are_lists_or_files(void **state)
{
    (void)state;
    int64_t lengths[2] = {3, 5}, segments[12] = {0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1};
    float slopes[4] = {0.5f, 0.25f, 0.125f, 0.0625f};
    uint8_t keeps[12] = {1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1};
    const char *of_lengths = array_file("lengths.npy", MHA_I64, lengths, 1, (size_t[]){2});
    const char *of_segments = array_file("segments.npy", MHA_I64, segments, 2, (size_t[]){2, 6});
    const char *of_slopes = array_file("slopes.npy", MHA_F32, slopes, 1, (size_t[]){4});
    const char *of_keeps = array_file("keeps.npy", MHA_BOOL, keeps, 2, (size_t[]){2, 6});
    TELLS("kv_lengths", "(B)", "--kv-lengths", "3,5");
    TELLS("kv_lengths", "(B)", "--lengths", of_lengths);
    TELLS("alibi_slopes", "(h)", "--alibi-slopes", "0.5,0.25,0.125,1e-2");
    TELLS("alibi_slopes", "(h)", "--alibi-slopes", of_slopes);
    TELLS("rope_frequencies", "F64 (3,)", "--rope", "half", "--rope-frequencies", "1,0.5,0.25");
    TELLS("q_segments", "I64 (2, 6)", "--q-segments", of_segments);
    TELLS("key_padding", "BOOL (2, 6)", "--key-padding", of_keeps, "--key-padding-kind", "keeps");
    TELLS("position_offset", "(B)", "--position-offset", "2,3");
    TELLS("cu_seqlens_q", "(n_sequences + 1)", "--batch", "1", "--cu-seqlens", "0,2,6", "--n-sequences", "2");
    const struct {
        const char *option, *value, *words;
    } refused[] = {
        {"--lengths", "1,,2", "--kv-lengths: expected whole numbers between commas, found \"1,,2\""},
        {"--alibi-slopes", "1,2e", "--alibi-slopes: expected numbers between commas, found \"1,2e\""},
        {"--kv-lengths", "1,2,3", "--kv-lengths: expected 2 numbers, (B), found 3"},
        {"--position-offset", "1,2,3", "--position-offset: expected 2 numbers, (B), found 3"},
        {"--kv-lengths", of_segments, "--kv-lengths: expected a row of numbers, (B), found shape (2, 6)"},
        {"--kv-lengths", of_slopes, "--kv-lengths: expected I64, found F32"},
        {"--key-padding", of_keeps, "--key-padding-kind: expected keeps or hides for a mask of BOOL, found neither"},
        {"--rope-sections", "1,1,1,1,1,1,1,1,1", "--rope-sections: expected at most "},
        {"--rope-sections", "1,2", "--rope-sections: has no effect without"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_program_refuses(RUN("forward", SMALL, refused[i].option, refused[i].value), 2, refused[i].words);
    assert_program_refuses(RUN("forward", SMALL, "--input", of_lengths), 2,
                           "expected floating-point numbers, found I64");
}

/* The same result, whichever words give a setting. */
static void short_words_stand_for_settings(void **state)
{
    (void)state;
    static const char *const pairs[][2][7] = {
        {{"--window", "2,0"}, {"--window-left", "2", "--window-right", "0"}},
        {{"--window", "-1,3"}, {"--window-right", "3"}},
        {{"--sigmoid", "-1.5"}, {"--normaliser", "sigmoid", "--sigmoid-bias", "-1.5"}},
        {{"--causal", "--position-offset", "2"}, {"--causal", "--offset", "2"}},
        {{"--causal", "--position-offset", "2,2"}, {"--causal", "--offset", "2"}},
        {{"--alibi"}, {"--alibi-slopes", "0.25,0.0625,0.015625,0.00390625"}},
        {{"--rope", "half"}, {"--rope=half_split"}},
        {{"--lengths", "4,6"}, {"--kv-lengths", "4,6"}}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        json_t *outputs[2];
        for (size_t k = 0; k < 2; k++) {
            const char *args[MOST] = {"forward", SMALL, "--json"};
            for (size_t n = 0; n < 7 && pairs[i][k][n]; n++)
                args[12 + n] = pairs[i][k][n];
            json_t *root = run_json(0, args);
            outputs[k] = json_incref(json_object_get(root, "output"));
            json_decref(root);
        }
        if (!json_equal(outputs[0], outputs[1]))
            fail_msg("%s %s: not what the settings give", pairs[i][0][0], pairs[i][0][1] ? pairs[i][0][1] : "");
        json_decref(outputs[0]);
        json_decref(outputs[1]);
    }
    assert_program_refuses(RUN("forward", "--window", "99999999999999999999,0"), 2, "--window: expected");
    assert_program_refuses(RUN("forward", "--window", "9223372036854775807,0"), 2, "--window: expected");
    assert_program_refuses(RUN("forward", "--softmax-scale", "2"), 2, "unknown option; did you mean --scale?");
    assert_program_refuses(RUN("forward", "-causal"), 2, "-causal: unknown option; did you mean --causal?");
    assert_program_refuses(RUN("params", "--lengths", "2"), 2, "--lengths: not an option here, but of*forward, heads");
    assert_program_refuses(RUN("forward", "--kv_lengths", "2"), 2, "unknown option; did you mean --kv-lengths?");
    assert_program_refuses(RUN("heads", "--preset", "gpt2", "--softcap", "2"), 2,
                           "--softcap: expected no --preset or --config beside it");
}

/* Suggested inputs have as many batch rows as a list has numbers. */
static void a_list_settles_how_many_rows_are_suggested(void **state)
{
    (void)state;
    const char *path = scratch("suggested.safetensors");
    program_result r = RUN("power", "--suggest", path, "--d-model", "8", "--heads", "2", "--lengths", "3", "--quiet");
    if (r.code > 1)
        fail_msg("exit code %d: %s", r.code, r.err);
    program_free(&r);
    mha_file *file;
    mha_error error;
    assert_ok(mha_file_open(path, &file, &error), error);
    const mha_file_tensor *query = mha_file_find(file, "query"), *lengths = mha_file_find(file, "kv_lengths");
    assert_true(query && lengths && query->shape[0] == 1 && lengths->elements == 1);
    mha_file_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_is_listed),        cmocka_unit_test(every_number_reaches_the_report),
        cmocka_unit_test(no_value_is_refused_by_name),    cmocka_unit_test(arrays_are_lists_or_files),
        cmocka_unit_test(short_words_stand_for_settings),
        cmocka_unit_test(a_list_settles_how_many_rows_are_suggested),
    };
    return cmocka_run_group_tests_name("cli_settings", tests, NULL, scratch_remove);
}
