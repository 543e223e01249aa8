/* Every setting and every field of a layer is an option by its row: listed, read, refused, and told in the report. */
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
             word                            ? word
             : s->kind == MHA_SETTING_CHOICE ? last_word(s->choices)
             : s->kind == MHA_SETTING_REAL   ? "0.5"
             : s->kind == MHA_SETTING_WHOLES ? "0,3,6"
             : is_array(s)                   ? "1,2"
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

/* The report states the field as it was given, or a refusal names it: some fields need another one. */
static void every_field_of_a_layer_is_an_option(void **state)
{
    (void)state;
    size_t told = 0, refused = 0;
    const mha_config_field *f;
    for (size_t i = 0; (f = mha_config_field_at(i)) != NULL; i++) {
        if (f->kind > MHA_CONFIG_CHOICE || strcmp(f->name, "sinks") == 0) /* --sinks names a file */
            continue;
        const char *args[MOST] = {"forward", SMALL, "--no-bias", "--json"},
                   *option = option_name(f->word, strlen(f->word));
        const char *value = f->kind == MHA_CONFIG_SIZE     ? "12"
                            : f->kind == MHA_CONFIG_CHOICE ? last_word(f->choices)
                                                           : NULL;
        args[13] = option, args[14] = value;
        program_result r = program_run(args);
        if (r.code == 2) {
            if ((!strstr(r.err, option) && !strstr(r.err, f->name)) || strstr(r.err, "unknown option"))
                fail_msg("%s: %s", option, r.err);
            refused++;
        } else {
            json_t *root = json_loads(r.out, 0, NULL);
            const json_t *item = json_object_get(json_object_get(root, "config"), f->word);
            if (value ? json_is_string(item) ? strcmp(json_string_value(item), value) != 0
                                             : json_integer_value(item) != 12
                      : !json_is_true(item))
                fail_msg("%s: not as given in the report (exit code %d): %s", option, r.code, r.err);
            json_decref(root);
            told++;
        }
        program_free(&r);
    }
    assert_true(told >= 16 && refused <= 12);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_is_listed),
        cmocka_unit_test(every_number_reaches_the_report),
        cmocka_unit_test(every_field_of_a_layer_is_an_option),
        cmocka_unit_test(no_value_is_refused_by_name),
    };
    return cmocka_run_group_tests_name("cli_settings", tests, NULL, scratch_remove);
}
