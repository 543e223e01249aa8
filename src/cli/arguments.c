/* Reads a command line against the table of options; every refusal says what was expected. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"
#include "cli/output/print.h"

/* ---------------------------------------------------------------- values */

static int refuse_value(const option_row *row, const char *expected, const char *found)
{
    return refuse_option((option_code)(row - option_rows), "expected %s, found \"%s\"", expected, found);
}

static bool has_large_number(const char *text)
{
    while (*text && strspn(text, "0123456789") <= 18)
        text++;
    return *text != 0;
}

static int refuse_number(const option_row *row, const char *what, const char *found)
{
    char expected[96];
    const bool large = row->type != REAL && has_large_number(found); /* beyond 64 bits */
    if (row->low == INT64_MIN)
        snprintf(expected, sizeof expected, "%s%s", what, !large ? "" : " from -2^63 to 2^63 - 1");
    else if (row->high == INT64_MAX)
        snprintf(expected, sizeof expected, "%s, at least %lld%s", what, (long long)row->low,
                 large ? " and below 2^63" : "");
    else
        snprintf(expected, sizeof expected, "%s from %lld to %lld", what, (long long)row->low, (long long)row->high);
    return refuse_value(row, expected, found);
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

static int read_integers(const option_row *row, option_value *value)
{
    const char *what =
        row->type == INTEGERS ? "two whole numbers with a comma between" : "whole numbers between commas";
    size_t n = 1;
    for (const char *c = value->text; *c; c++)
        n += *c == ',';
    free(value->numbers);
    value->numbers = obtain(n, sizeof *value->numbers);
    value->n_numbers = 0;
    for (const char *from = value->text; value->n_numbers < n; from += strcspn(from, ",") + 1)
        if (!read_integer(row, from, from + strcspn(from, ","), &value->numbers[value->n_numbers++]))
            return refuse_number(row, what, value->text);
    return row->type == INTEGERS && n != 2 ? refuse_number(row, what, value->text) : EXIT_DONE;
}

static int read_choice(const option_row *row, option_value *value)
{
    char word[32], expected[128] = "";
    for (value->choice = 0; option_choice(row, value->choice, word); value->choice++) {
        if (strcmp(word, value->text) == 0)
            return EXIT_DONE;
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "%s%s", value->choice ? " or " : "",
                 word);
    }
    return refuse_value(row, expected, value->text);
}

static int read_value(const option_row *row, option_value *value)
{
    char *stop;
    switch (row->type) {
    case FLAG: return EXIT_DONE;
    case COUNT:
    case INTEGER:
        return read_integer(row, value->text, strchr(value->text, 0), &value->number)
                   ? EXIT_DONE
                   : refuse_number(row, "a whole number", value->text);
    case COUNTS:
    case INTEGERS: return read_integers(row, value);
    case REAL:
        errno = 0;
        value->real = strtod(value->text, &stop);
        if (errno == ERANGE && value->real == 0) /* underflow: a default of 0 may have a special meaning */
            return refuse_number(row, "a number that a double can hold", value->text);
        return *value->text && !isspace((unsigned char)*value->text) && !*stop && isfinite(value->real) &&
                       (row->low == INT64_MIN || value->real >= (double)row->low)
                   ? EXIT_DONE
                   : refuse_number(row, "a finite number", value->text);
    case CHOICE: return read_choice(row, value);
    case TEXTS: {
        const char **more = obtain(value->n_texts + 1, sizeof *more);
        for (size_t i = 0; i < value->n_texts; i++)
            more[i] = value->texts[i];
        more[value->n_texts++] = value->text;
        free(value->texts);
        value->texts = more;
        return EXIT_DONE;
    }
    case TEXT:
    case FILE_NAME: return *value->text ? EXIT_DONE : refuse_value(row, "a name", value->text);
    }
    return EXIT_DONE;
}

/* ---------------------------------------------------------------- the line */

/* Refuses a word that is no option of this command: an option of other commands, a misspelt option, or neither. */
static int refuse_word(const char *word, command_code command)
{
    char *about = text_of("%.*s", (int)strcspn(word, "="), word);
    const char *name = about + strspn(about, "-");
    char owners[160] = "";
    size_t nearest = 3, closest = OPTION_COUNT;
    for (option_code code = 0; code < OPTION_COUNT; code++) {
        const option_row *row = &option_rows[code];
        if (strcmp(row->name, name) == 0)
            for (command_code c = 0; c < COMMAND_COUNT; c++)
                if (takes(c, code))
                    snprintf(owners + strlen(owners), sizeof owners - strlen(owners), "%s%s", *owners ? ", " : "",
                             command_rows[c].name);
        size_t d = mha__text_distance(name, row->name);
        if (takes(command, code) && d < nearest)
            nearest = d, closest = code;
    }
    if (*owners && strcmp(spoken_as(), "mha") != 0)
        refuse(about, "not an option here, but of mha %s; \"%s --help\" lists those there are", owners, spoken_as());
    else if (*owners)
        refuse(about, "not an option of mha %s, but of %s; \"mha %s --help\" lists those there are",
               command_rows[command].name, owners, command_rows[command].name);
    else if (closest < OPTION_COUNT)
        refuse(about, "unknown option; did you mean --%s?", option_rows[closest].name);
    else
        refuse(about, "unknown option; \"mha %s --help\" lists those there are", command_rows[command].name);
    free(about);
    return EXIT_REQUEST;
}

/* Whether an option's name is complete: getopt_long accepts abbreviations, which this program does not. */
static bool spelt_out(const char *word, option_code code)
{
    const char *name = word + 2;
    return strlen(option_rows[code].name) == strcspn(name, "=");
}

static int take_option(arguments *args, option_code code, const char *text)
{
    const option_row *row = &option_rows[code];
    option_value *value = &args->option[code];
    value->given = true;
    value->text = text;
    return read_value(row, value);
}

static int refuse_argument(const char *word)
{
    char *about = text_of("%.*s", (int)strcspn(word, "="), word);
    refuse(about, "expected no argument, found \"%s\"", strchr(word, '=') + 1);
    free(about);
    return EXIT_REQUEST;
}

/* Whether a text is "-" or "-:TENSOR". */
static bool is_standard_input(const char *text)
{
    return text[0] == '-' && (text[1] == 0 || text[1] == ':');
}

static int take_words(arguments *args, int argc, char **argv)
{
    struct option known[OPTION_COUNT + 1] = {0};
    size_t n_known = 0;
    for (option_code code = 0; code < OPTION_COUNT; code++)
        if (takes(args->command, code))
            known[n_known++] =
                (struct option){option_rows[code].name, option_rows[code].type != FLAG, NULL, 256 + (int)code};
    opterr = 0;
    optind = 1;
    for (;;) {
        const char *word = optind < argc ? argv[optind] : "";
        if (is_standard_input(word)) { /* getopt_long would read "-:TENSOR" as options */
            args->operands[args->n_operands++] = argv[optind++];
            continue;
        }
        int found = getopt_long(argc, argv, "-:h", known, NULL); /* '-': operands are returned in order, with code 1 */
        int code = EXIT_DONE;
        if (found == -1)
            break;
        else if (found == 1)
            args->operands[args->n_operands++] = optarg;
        else if (found == 'h')
            args->option[OPT_HELP].given = true;
        else if ((found < 256 && optopt < 256) ||
                 !spelt_out(word, (option_code)((found < 256 ? optopt : found) - 256)))
            code = refuse_word(word, args->command);
        else if (found >= 256)
            code = take_option(args, (option_code)(found - 256), optarg);
        else if (found == ':')
            code = refuse(word, "expected %s, found nothing", option_rows[optopt - 256].form);
        else
            code = refuse_argument(word);
        if (code != EXIT_DONE)
            return code;
    }
    while (optind < argc) /* words after "--" */
        args->operands[args->n_operands++] = argv[optind++];
    return EXIT_DONE;
}

/* Refuses standard input given twice: it can be read only once. */
static int refuse_standard_input_twice(const arguments *args)
{
    size_t n = 0;
    for (size_t i = 0; i < args->n_operands; i++)
        n += is_standard_input(args->operands[i]);
    for (option_code code = 0; code < OPTION_COUNT; code++)
        n += given(args, code) && option_rows[code].type == FILE_NAME && option_rows[code].section != SECTION_RESULT &&
             is_standard_input(args->option[code].text);
    return n < 2 ? EXIT_DONE : refuse("standard input", "expected \"-\" once, found it %zu times", n);
}

int arguments_parse(arguments *args, command_code command, int argc, char **argv)
{
    *args = (arguments){.command = command, .operands = obtain((size_t)argc + 1, sizeof *args->operands)};
    for (option_code code = 0; code < OPTION_COUNT; code++) {
        args->option[code].text = option_rows[code].fallback;
        if (args->option[code].text)
            read_value(&option_rows[code], &args->option[code]);
    }
    int code = take_words(args, argc, argv);
    if (code != EXIT_DONE || given(args, OPT_HELP))
        return code;
    const command_row *c = &command_rows[command];
    if (given(args, OPT_EXPECTED) && args->n_operands > 0)
        return refuse_option(OPT_EXPECTED, "expected no case file beside it, found \"%s\"", args->operands[0]);
    if (args->n_operands > c->most)
        return refuse("", "expected %s%s, found \"%s\"", c->most ? "no more than " : "no operand",
                      c->most ? c->operands : "", args->operands[c->most]);
    if (args->n_operands == 0 && takes(args->command, OPT_EXPECTED) && !given(args, OPT_EXPECTED) &&
        (given(args, OPT_WEIGHTS) || given(args, OPT_INPUT)))
        return refuse("--expected", "expected a recorded output beside %s, found nothing",
                      given(args, OPT_WEIGHTS) ? "--weights" : "--input");
    if (args->n_operands < c->least && !given(args, OPT_EXPECTED))
        return refuse("", "expected %s, found %s", c->operands, args->n_operands ? "too few" : "nothing");
    return refuse_standard_input_twice(args);
}

void arguments_free(arguments *args)
{
    for (option_code code = 0; code < OPTION_COUNT; code++) {
        free(args->option[code].numbers);
        free(args->option[code].texts);
    }
    free(args->operands);
}
