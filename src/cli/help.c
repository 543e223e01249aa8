/* Help texts, written from the tables of options and commands. */
#include "cli/help.h"

#include <string.h>

#include "cli/output/print.h"

void help_program(void)
{
    printf("mha: multi-head attention on a CPU: what it computes, how many parameters it has, how fast it goes\n\n"
           "  mha COMMAND [OPTION]...     mha help COMMAND     mha --version\n\n%sCommands%s\n", bold(), plain());
    for (command_code c = 0; c < COMMAND_COUNT; c++)
        printf("  %-12s %s\n", command_rows[c].name, command_rows[c].help);
    printf("\n%sExit code%s\n"
           "  0  done, and the answer is yes     2  the request is wrong: option, file or shape\n"
           "  1  done, and the answer is no      3  the machine could not: memory, reading, writing\n\n"
           "Start with \"mha forward\", then \"mha heads\".\n", bold(), plain());
}

static void help_option(const option_row *row)
{
    char left[64];
    snprintf(left, sizeof left, "--%s%s%s", row->name, row->form ? " " : "", row->form ? row->form : "");
    if (strlen(left) > 30)
        printf("  %s\n  %-30s", left, "");
    else
        printf("  %-30s", left);
    printf("  %s", row->help);
    if (row->fallback)
        printf(" [%s]", row->fallback);
    putchar('\n');
}

/* The list that drives the search. */
static void help_variants(void)
{
    printf("\n%sVariants tried, alone and in pairs%s\n", bold(), plain());
    for (size_t i = 0; i < mha_variant_count(); i++)
        printf("  %-30s  %s\n", mha_variant_at(i)->name, mha_variant_at(i)->help);
}

void help_command(command_code code)
{
    const command_row *c = &command_rows[code];
    printf("mha %s%s%s [OPTION]...\n%s\n", c->name, *c->operands ? " " : "", c->operands, c->help);
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
        help_variants();
}
