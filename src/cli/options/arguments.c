/* Reads a command line against the table of options; every refusal says what was expected. */
#include <ctype.h>
#include <errno.h>
#include <math.h>

#include "cli/options/options.h"
#include "lab/settings.h"

/* ---------------------------------------------------------------- values */

static bool has_large_number(const char *text)
{
    while (*text && strspn(text, "0123456789") <= 18)
        text++;
    return *text != 0;
}

static int refuse_number(option_code option, const char *what, const char *found)
{
    const option_row *row = option_at(option);
    const char *expected;
    const bool large = row->type != REAL && has_large_number(found); /* beyond 64 bits */
    if (row->low == INT64_MIN)
        expected = text_of("%s%s", what, !large ? "" : " from -2^63 to 2^63 - 1");
    else if (row->high == INT64_MAX)
        expected = text_of("%s, at least %lld%s", what, (long long)row->low, large ? " and below 2^63" : "");
    else
        expected = text_of("%s from %lld to %lld", what, (long long)row->low, (long long)row->high);
    return refuse_option(option, "expected %s, found \"%s\"", expected, found);
}

/* Reads a number in range that fills all of [text, end): no spaces, no plus sign, nothing after it. */
static bool read_integer(const option_row *row, const char *text, const char *end, int64_t *number)
{
    const char *digits = text + (*text == '-');
    if (digits == end || !isdigit((unsigned char)*digits))
        return false;
    char *stop;
    errno = 0;
    long long value = strtoll(text, &stop, 10);
    *number = value;
    return errno == 0 && stop == end && value >= row->low && value <= row->high;
}

static int read_integers(option_code option, option_value *value)
{
    const option_row *row = option_at(option);
    const char *what =
        row->type == INTEGERS ? "two whole numbers with a comma between" : "whole numbers between commas";
    size_t n = 1;
    for (const char *c = value->text; *c; c++)
        n += *c == ',';
    value->numbers = keep(obtain(n, sizeof *value->numbers));
    value->n_numbers = 0;
    for (const char *from = value->text; value->n_numbers < n; from += strcspn(from, ",") + 1)
        if (!read_integer(row, from, from + strcspn(from, ","), &value->numbers[value->n_numbers++]))
            return refuse_number(option, what, value->text);
    return row->type == INTEGERS && n != 2 ? refuse_number(option, what, value->text) : EXIT_DONE;
}

static int read_choice(option_code option, option_value *value)
{
    const char *expected = "";
    char word[32];
    for (value->choice = 0; option_choice(option_at(option)->form, value->choice, word); value->choice++) {
        if (strcmp(word, value->text) == 0)
            return EXIT_DONE;
        expected = text_more(expected, "%s%s", value->choice ? " or " : "", word);
    }
    return refuse_option(option, "expected %s, found \"%s\"", expected, value->text);
}

static int read_value(option_code option, option_value *value)
{
    char *stop;
    mha_error error = {0};
    const option_row *row = option_at(option);
    const mha_setting *s = setting_of(option);
    if (s && s->kind < MHA_SETTING_VIEW) /* only tried: the call that is made later puts it into its semantics */
        return mha_setting_put(s, value->text, &(mha_semantics){0}, &error) == MHA_OK
                   ? EXIT_DONE
                   : refuse_option(option, "%s", error.message);
    switch (row->type) {
    case FLAG: return EXIT_DONE;
    case COUNT:
    case INTEGER:
        return read_integer(row, value->text, strchr(value->text, 0), &value->number)
                   ? EXIT_DONE
                   : refuse_number(option, "a whole number", value->text);
    case COUNTS:
    case INTEGERS: return read_integers(option, value);
    case REAL:
        errno = 0;
        value->real = strtod(value->text, &stop);
        if (errno == ERANGE && value->real == 0) /* underflow: a default of 0 may have a special meaning */
            return refuse_number(option, "a number that a double can hold", value->text);
        return *value->text && !isspace((unsigned char)*value->text) && !*stop && isfinite(value->real) &&
                       (row->low == INT64_MIN || value->real >= (double)row->low)
                   ? EXIT_DONE
                   : refuse_number(option, "a finite number", value->text);
    case CHOICE: return read_choice(option, value);
    case TEXTS: {
        const char **more = keep(obtain(value->n_texts + 1, sizeof *more));
        if (value->n_texts)
            memcpy(more, value->texts, value->n_texts * sizeof *more);
        more[value->n_texts++] = value->text;
        value->texts = more;
        return EXIT_DONE;
    }
    case TEXT:
    case LIST:
    case FILE_NAME: return *value->text ? EXIT_DONE : refuse_option(option, "expected a name, found \"\"");
    }
    return EXIT_DONE;
}

/* ---------------------------------------------------------------- the line */

/* The present name of an option of 0.3 that 0.4 renamed; NULL: it is none. */
static const char *renamed(command_code command, const char *name)
{
    static const char *const names[][2] = {{"dialect", "convention"}, {"judge", "check"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (command == CMD_CONFORM && strcmp(name, names[i][0]) == 0)
            return names[i][1];
    return NULL;
}

/* Refuses a word that is no option of this command: an option of other commands, a misspelt option, or neither. */
static int refuse_word(const char *word, command_code command)
{
    const char *about = text_of("%.*s", (int)strcspn(word, "="), word);
    const char *name = about + strspn(about, "-");
    const char *owners = "";
    size_t nearest = 3;
    option_code closest = option_count();
    const bool is_dashed = option_named(command, name, strlen(name)) < option_count(); /* -causal */
    for (command_code c = 0; c < COMMAND_COUNT; c++)
        if (!is_dashed && option_named(c, name, strlen(name)) < option_count())
            owners = text_more(owners, "%s%s", *owners ? ", " : "", command_rows[c].name);
    for (option_code code = 0; code < option_count(); code++) {
        size_t d = mha__text_distance(name, option_at(code)->name);
        if (takes(command, code) && d < nearest)
            nearest = d, closest = code;
    }
    const mha_setting *meant = mha__setting_near(name); /* what other programs call so */
    if (closest == option_count() && meant && option_of(meant) < option_count() && takes(command, option_of(meant)))
        closest = option_of(meant);
    const bool is_mha = strcmp(spoken_as(), "mha") == 0; /* mha-mpi has one page of help */
    const char *help =
        is_mha ? text_of("mha %s --help", command_rows[command].name) : text_of("%s --help", spoken_as());
    if (renamed(command, name))
        return refuse(about, "expected --%s, its new name", renamed(command, name));
    if (*owners && !is_mha)
        return refuse(about, "expected an option of %s, found one of mha %s; \"%s\" lists them", spoken_as(),
                      owners, help);
    if (*owners)
        return refuse(about, "expected an option of mha %s, found one of %s; \"%s\" lists them",
                      command_rows[command].name, owners, help);
    if (closest < option_count())
        return refuse(about, "unknown option; did you mean --%s?", option_at(closest)->name);
    return refuse(about, "unknown option; \"%s\" lists all", help);
}

static int take_option(arguments *args, option_code code, const char *text)
{
    option_value *value = &args->option[code];
    if (value->given && option_at(code)->type != TEXTS && strcmp(value->text, text) != 0)
        return refuse_option(code, "expected one of them, found \"%s\" and \"%s\"", value->text, text);
    value->given = true;
    value->text = text;
    return read_value(code, value);
}

/* Whether a text is "-" or "-:TENSOR". */
static bool is_standard_input(const char *text)
{
    return text[0] == '-' && (text[1] == 0 || text[1] == ':');
}

/* Reads the option that argv[*at] is, with the argument behind '=' or in the next word. */
static int take_word(arguments *args, char **argv, int *at)
{
    const char *word = argv[*at], *name = word + 2, *equals = strchr(word, '=');
    const option_code code =
        strncmp(word, "--", 2) == 0 ? option_named(args->command, name, strcspn(name, "=")) : option_count();
    if (strcmp(word, "-h") == 0) {
        args->option[OPT_HELP].given = true;
        return EXIT_DONE;
    }
    if (code == option_count())
        return refuse_word(word, args->command);
    if (option_at(code)->type == FLAG)
        return equals ? refuse(text_of("%.*s", (int)(equals - word), word), "expected no argument, found \"%s\"",
                               equals + 1)
                      : take_option(args, code, "1");
    if (!equals && !argv[*at + 1])
        return refuse(word, "expected %s, found nothing", option_at(code)->form);
    return take_option(args, code, equals ? equals + 1 : argv[++*at]);
}

static int take_words(arguments *args, int argc, char **argv)
{
    bool options = true; /* "--" ends them */
    for (int i = 1; i < argc; i++) {
        if (options && strcmp(argv[i], "--") == 0)
            options = false;
        else if (options && argv[i][0] == '-' && !is_standard_input(argv[i]))
            TRY(take_word(args, argv, &i));
        else
            args->operands[args->n_operands++] = argv[i];
    }
    return EXIT_DONE;
}

/* Refuses standard input given twice: it can be read only once. */
static int refuse_standard_input_twice(const arguments *args)
{
    size_t n = 0;
    for (size_t i = 0; i < args->n_operands; i++)
        n += is_standard_input(args->operands[i]);
    for (option_code code = 0; code < option_count(); code++)
        n += given(args, code) && option_at(code)->section != SECTION_RESULT && args->option[code].text &&
             names_file(code, args->option[code].text) && is_standard_input(args->option[code].text);
    return n < 2 ? EXIT_DONE : refuse("standard input", "expected \"-\" once, found it %zu times", n);
}

int arguments_parse(arguments *args, command_code command, int argc, char **argv)
{
    *args = (arguments){.command = command,
                        .option = keep(obtain(option_count(), sizeof *args->option)),
                        .operands = keep(obtain((size_t)argc + 1, sizeof *args->operands))};
    for (option_code code = 0; code < option_count(); code++) {
        args->option[code].text = option_at(code)->fallback;
        if (args->option[code].text)
            read_value(code, &args->option[code]);
    }
    int code = take_words(args, argc, argv);
    if (code != EXIT_DONE || given(args, OPT_HELP))
        return code;
    const command_row *c = &command_rows[command];
    if (given(args, OPT_EXPECTED) && args->n_operands > 0)
        return refuse_option(OPT_EXPECTED, "expected no case file with it, found \"%s\"", args->operands[0]);
    const char *hint =
        takes(args->command, OPT_PRESET) ? "; a model is --preset NAME, --config FILE or --weights FILE" : "";
    if (args->n_operands > c->most)
        return refuse("", "expected %s%s, found \"%s\"%s", c->most ? "no more than " : "no operand",
                      c->most ? c->operands : "", args->operands[c->most], hint);
    if (args->n_operands == 0 && takes(args->command, OPT_EXPECTED) && !given(args, OPT_EXPECTED) &&
        (given(args, OPT_WEIGHTS) || given(args, OPT_INPUT)))
        return refuse("--expected", "expected a recorded output with %s, found nothing",
                      given(args, OPT_WEIGHTS) ? "--weights" : "--input");
    if (args->n_operands < c->least && !given(args, OPT_EXPECTED))
        return refuse("", "expected %s, found %s", c->operands, args->n_operands ? "too few" : "nothing");
    return refuse_standard_input_twice(args);
}
