/* Help texts, written from the tables of options and commands. */
#include "cli/help.h"

#include <stdlib.h>
#include <string.h>

#include "cli/output/print.h"

void help_program(void)
{
    enum { INDENT = 15 };
    static const char *const codes[] = {"done, and the answer is yes", "done, and the answer is no",
                                        "the request is wrong: option, file or shape",
                                        "the machine could not: memory, reading, writing",
                                        "nothing failed, but a case could not be judged"};
    write_prose("mha: multi-head attention on a CPU: what it computes, how many parameters it has, how fast it goes");
    printf("\n  mha COMMAND [OPTION]...     mha help COMMAND     mha --version\n\n%sCommands%s\n", bold(), plain());
    for (command_code c = 0; c < COMMAND_COUNT; c++) {
        printf("  %-12s ", command_rows[c].name);
        write_folded(command_rows[c].help, INDENT);
    }
    printf("\n%sExit code%s\n", bold(), plain());
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        printf("  %zu  %s\n", i, codes[i]);
    printf("\n%sTopics%s, explained by \"mha help TOPIC\"\n ", bold(), plain());
    for (size_t i = 0; topic_name(i); i++)
        printf(" %s", topic_name(i));
    printf("\n\nStart with \"mha forward\", then \"mha heads\".\n");
}

static void help_option(const option_row *row)
{
    enum { INDENT = 34 };
    char *left = text_of("--%s%s%s", row->name, row->form ? " " : "", row->form ? row->form : "");
    char *right = text_of("%s%s%s%s", row->help, row->fallback ? " [" : "", row->fallback ? row->fallback : "",
                          row->fallback ? "]" : "");
    if (strlen(left) > INDENT - 4)
        printf("  %s\n%*s", left, INDENT, "");
    else
        printf("  %-*s", INDENT - 2, left);
    write_folded(right, INDENT);
    free(left);
    free(right);
}

void help_command(command_code code)
{
    const command_row *c = &command_rows[code];
    printf("mha %s%s%s [OPTION]...\n", c->name, *c->operands ? " " : "", c->operands);
    if (takes(code, OPT_EXPECTED))
        printf("mha %s --weights FILE --input FILE --expected FILE [OPTION]...\n", c->name);
    printf("%s\n", c->help);
    for (section s = 0; s < SECTION_COUNT; s++) {
        bool titled = false;
        for (option_code o = 0; o < OPTION_COUNT; o++) {
            if (option_rows[o].section != s || !takes(code, o))
                continue;
            if (!titled)
                printf("\n%s%s%s\n", bold(), section_titles[s], plain());
            titled = true;
            help_option(&option_rows[o]);
        }
    }
    if (code == CMD_DIAGNOSE)
        printf("\n\"mha help variants\" lists what is tried, alone and in pairs; \"mha help case\" what a case file "
               "holds.\n");
    if (code == CMD_POWER)
        printf("\n\"mha help variants\" lists the wrong variants that are tried.\n");
    if (code == CMD_CHECK)
        printf("\n\"mha help case\" says what a case file holds.\n");
}
