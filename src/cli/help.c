/* Help texts, written from the tables of options and commands. */
#include "cli/help.h"

void help_program(void)
{
    enum { INDENT = 15 };
    static const char *const codes[] = {
        "done, and the answer is yes", "done, and the answer is no", "the request is wrong: option, file or shape",
        "the machine could not: memory, reading, writing", "nothing failed, but a case could not be checked"};
    write_prose("mha: multi-head attention on a CPU: what it computes, how many parameters it has, how fast it goes");
    say("\n  mha COMMAND [OPTION]...     mha help COMMAND     mha --version\n\n%sCommands%s\n", bold(), plain());
    for (command_code c = 0; c < COMMAND_COUNT; c++) {
        printf("  %-12s ", command_rows[c].name);
        write_folded(command_rows[c].help, INDENT);
    }
    say("\n%sExit code%s\n", bold(), plain());
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        say("  %zu  %s\n", i, codes[i]);
    say("\n%sTopics%s, explained by \"mha help TOPIC\"\n ", bold(), plain());
    for (size_t i = 0; topic_name(i); i++)
        say(" %s", topic_name(i));
    say("\n\nStart with \"mha forward\", then \"mha heads\".\n");
}

/* An option in words, and its default. */
static const char *text_of_option(const option_row *row)
{
    return row->fallback ? text_of("%s [%s]", option_help(row), row->fallback) : option_help(row);
}

static void help_option(const option_row *row)
{
    enum { INDENT = 34 };
    const size_t indent = line_width() < 2 * (size_t)INDENT ? 8 : INDENT; /* of the text */
    const char *left = text_of("--%s%s%s", row->name, row->form ? " " : "", row->form ? row->form : "");
    if (strlen(left) > indent - 4) {
        say("  %s\n", left);
        printf("%*s", (int)indent, "");
    } else
        printf("  %-*s", (int)indent - 2, left);
    write_folded(text_of_option(row), indent);
}

/* Meaning of the numbers of mha bench. */
static void help_numbers(void)
{
    static const char *const meanings[][2] = {
#include "numbers.inc"
    };
    static const char *const titles[] = {"number", "what it means"};
    say("\n%sWhat the numbers mean%s\n", bold(), plain());
    table *t = table_create(2, titles);
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        table_cell(t, meanings[i][0]);
        table_cell(t, meanings[i][1]);
    }
    table_print(t);
}

void help_command(command_code code)
{
    const command_row *c = &command_rows[code];
    say("mha %s%s%s [OPTION]...\n", c->name, *c->operands ? " " : "", c->operands);
    if (takes(code, OPT_EXPECTED))
        say("mha %s --weights FILE --input FILE --expected FILE [OPTION]...\n", c->name);
    say("%s\n", c->help);
    if (*c->common)
        say("\n%sCommon options%s\n", bold(), plain());
    bool *shown = keep(obtain(option_count(), sizeof *shown));
    for (const char *at = c->common; *at; at += strcspn(at, " "), at += *at == ' ') {
        const option_code o = option_named(code, at, strcspn(at, " "));
        shown[o] = true;
        help_option(option_at(o));
    }
    for (section s = 0; s < SECTION_COUNT; s++) {
        bool titled = false;
        for (option_code o = 0; o < option_count(); o++) {
            if (option_at(o)->section != s || !takes(code, o) || shown[o])
                continue;
            if (!titled)
                say("\n%s%s%s\n", bold(), section_titles[s], plain());
            titled = true;
            help_option(option_at(o));
        }
    }
    static const char diagnose[] =
        "Exit code 0: the tensor is right, or known bugs reproduce it. 1: neither.\n"
        "\"mha help bugs\" lists what is tried, alone and in pairs; \"mha help case\" what a case file holds.";
    static const char conform[] =
        "A kernel in Python: python3 -m mha conform FILE.py:FUNCTION.\n"
        "src/verify/conform/SUITE.md of the sources lists test cases, words, conventions and regimes.";
    static const char *const ends[COMMAND_COUNT] = {
        [CMD_DIAGNOSE] = diagnose,
        [CMD_POWER] = "\"mha help bugs\" lists the known bugs that are tried.",
        [CMD_CONFORM] = conform,
        [CMD_CHECK] = "\"mha help case\" says what a case file holds."};
    if (ends[code])
        say("\n%s\n", ends[code]);
    if (code == CMD_BENCH)
        help_numbers();
}

/* ---------------------------------------------------------------- the manual page */

/* Writes text for mdoc, which may be broken between words; a line that begins with a dot would be a macro. */
static void write_words(const char *text)
{
    const size_t longest = 118;
    size_t used = 0;
    for (size_t n; *text; text += n + (text[n] == ' ')) {
        n = strcspn(text, " ");
        if (used > 0 && used + n < longest)
            used += (size_t)printf(" ");
        else if (used > 0) {
            putchar('\n');
            used = 0;
        }
        used += (size_t)printf("%s%.*s", used == 0 && (*text == '.' || *text == '\'') ? "\\&" : "", (int)n, text);
    }
    putchar('\n');
}

/* The commands that take an option, with commas between; those of a setting are said above all of them. */
static const char *commands_of(option_code option)
{
    const char *text = "";
    for (command_code c = 0; c < COMMAND_COUNT; c++)
        if (takes(c, option))
            text = text_more(text, "%s%s", *text ? ", " : "", command_rows[c].name);
    return text;
}

/* The form of an argument; of many words as many as a line holds. */
static void manual_form(const char *form)
{
    const size_t longest = 80;
    size_t n = strlen(form);
    while (n > longest || (form[n] && form[n] != '|'))
        n--;
    printf("%s%.*s%s\n", *form ? " Ar " : "", (int)n, form, form[n] ? "|..." : "");
}

static void manual_option(option_code option, const char *usual)
{
    const option_row *row = option_at(option);
    const char *commands = commands_of(option);
    const char *text = text_of_option(row);
    printf(".It Fl -%s", row->name);
    manual_form(row->form ? row->form : "");
    write_words(strcmp(commands, usual) == 0 ? text : text_of("%s (%s)", text, commands));
}

void help_manual(void)
{
    const char *usual = commands_of(OPTION_COUNT); /* those of settings */
    for (section s = 0; s < SECTION_COUNT; s++) {
        printf(".Ss %s\n", section_titles[s]);
        if (s == SECTION_MEANING)
            printf("Taken by %s.\n", usual);
        puts(".Bl -tag -width Ds");
        for (option_code o = 0; o < option_count(); o++)
            if (option_at(o)->section == s)
                manual_option(o, s == SECTION_MEANING ? usual : "");
        puts(".El");
    }
}
