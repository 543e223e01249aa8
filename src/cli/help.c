/* Help and shell completion: the tables of options.h, printed. */
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

/* ---------------------------------------------------------------- completion */

static void completion_presets(void)
{
    printf("list");
    for (size_t i = 0; mha_preset_at(i, NULL); i++)
        printf(" %s", mha_preset_at(i, NULL));
}

/* The words of a choice, or what bash shall list for the argument of an option. */
static void completion_argument(const option_row *row)
{
    char word[32];
    printf("    --%s) ", row->name);
    if (row->type == FILE_NAME)
        printf("COMPREPLY=($(compgen -f -- \"$word\"))");
    else {
        printf("COMPREPLY=($(compgen -W '");
        for (size_t i = 0; row->type == CHOICE && option_choice(row, i, word); i++)
            printf("%s%s", i ? " " : "", word);
        if (row == &option_rows[OPT_PRESET])
            completion_presets();
        printf("' -- \"$word\"))");
    }
    printf("; return ;;\n");
}

int run_completion(const arguments *args)
{
    if (strcmp(args->operands[0], "bash") != 0)
        return refuse("", "expected bash, found \"%s\"", args->operands[0]);
    printf("# bash completion of mha, written by \"mha completion bash\"\n"
           "_mha() {\n"
           "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options=\n"
           "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
           "    COMPREPLY=($(compgen -W '");
    for (command_code c = 0; c < COMMAND_COUNT; c++)
        printf("%s ", command_rows[c].name);
    printf("help --help --version' -- \"$word\"))\n    return\n  fi\n  case $before in\n");
    for (option_code o = 0; o < OPTION_COUNT; o++)
        if (option_rows[o].type != FLAG)
            completion_argument(&option_rows[o]);
    printf("  esac\n  case ${COMP_WORDS[1]} in\n");
    for (command_code c = 0; c < COMMAND_COUNT; c++) {
        printf("    %s) options='", command_rows[c].name);
        for (option_code o = 0; o < OPTION_COUNT; o++)
            if (takes(c, o))
                printf("--%s ", option_rows[o].name);
        printf("' ;;\n");
    }
    printf("  esac\n"
           "  case $word in\n"
           "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
           "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
           "  esac\n}\ncomplete -o filenames -F _mha mha\n");
    return EXIT_DONE;
}
