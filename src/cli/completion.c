/* mha completion: scripts that let bash, zsh and fish complete commands, options and their arguments. All three are
 * written from the tables of options.c; `make install` uses the stored copies in src/cli/completions. */
#include <string.h>

#include "bench/shapes.h"
#include "cli/commands/commands.h"
#include "cli/help.h"
#include "cli/output/print.h"

static const char *const shells[] = {"bash", "zsh", "fish"};
static const char *const instruction_sets[] = {"auto", "avx512_bf16", "avx512",
                                               "avx2", "neon",        "scalar"}; /* of every machine type */
enum { N_SHELLS = sizeof shells / sizeof *shells, N_ISAS = sizeof instruction_sets / sizeof *instruction_sets };

/* ---------------------------------------------------------------- words */

/* Possible argument `index` of an option; NULL past the last, and for options that take any number or name. Valid
 * until the next call. */
static const char *argument_word(const option_row *row, size_t index)
{
    static char word[32];
    const bench_shape *shape;
    switch ((option_code)(row - option_rows)) {
    case OPT_PRESET: return index == 0 ? "list" : mha_preset_at(index - 1, NULL);
    case OPT_ISA: return index < N_ISAS ? instruction_sets[index] : NULL;
    case OPT_STAGE: return index < MHA_STAGE_COUNT ? mha_stage_name((mha_stage)index) : NULL;
    case OPT_SHAPE:
        shape = index < 2 ? NULL : bench_shape_at(index - 2);
        return index == 0 ? "list" : index == 1 ? BENCH_SET : shape ? shape->name : NULL;
    default: return row->type == CHOICE && option_choice(row, index, word) ? word : NULL;
    }
}

enum { WIDEST = 100 }; /* width of a line: longer lists and texts are continued on the next one */

/* Writes a word of a list that has reached `column`; starts a new line if the word does not fit. */
static void write_word(const char *word, size_t *column)
{
    const size_t length = strlen(word);
    const bool breaks = *column + length > WIDEST;
    printf("%s%s", breaks ? "\n      " : *column == 0 ? "" : " ", word);
    *column = (breaks ? 6 : *column + 1) + length;
}

static void write_arguments(const option_row *row)
{
    const char *word;
    size_t column = WIDEST; /* starts a new line, because the current one may be long */
    for (size_t i = 0; (word = argument_word(row, i)); i++)
        write_word(word, &column);
}

static void write_commands(const char *more)
{
    size_t column = 0;
    for (command_code c = 0; c < COMMAND_COUNT; c++)
        write_word(command_rows[c].name, &column);
    if (*more)
        write_word(more, &column);
}

static void write_topics(size_t column)
{
    for (size_t i = 0; topic_name(i); i++)
        write_word(topic_name(i), &column);
}

/* Writes a text in single quotes, as all three shells read it; a long text is continued on the next line. */
static void write_quoted(const char *text)
{
    size_t column = 50;
    putchar('\'');
    for (; *text; text++, column++)
        if (*text == '\'')
            printf("'\\''");
        else if (*text == ' ' && column > WIDEST) {
            printf(" '\\\n'");
            column = 0;
        } else
            putchar(*text);
    putchar('\'');
}

/* Whether other commands give this name another meaning, so that completion depends on the command. */
static bool has_namesake(const option_row *row)
{
    for (option_code o = 0; o < OPTION_COUNT; o++)
        if (&option_rows[o] != row && strcmp(option_rows[o].name, row->name) == 0)
            return true;
    return false;
}

/* Writes the pattern of COMMAND:OPTION under which bash and zsh complete an option's argument. */
static void write_pattern(const option_row *row)
{
    if (!has_namesake(row)) {
        printf("*:--%s", row->name);
        return;
    }
    const char *separator = "";
    for (command_code c = 0; c < COMMAND_COUNT; c++)
        if (takes(c, (option_code)(row - option_rows))) {
            printf("%s%s:--%s", separator, command_rows[c].name, row->name);
            separator = "|";
        }
}

/* Writes a case of bash or zsh for each option with an argument: `files` where it is a file, its words between `before`
 * and `after`, and else the form of the argument after `message`, if that is not NULL. */
static void write_option_cases(const char *files, const char *before, const char *after, const char *message)
{
    for (option_code o = 0; o < OPTION_COUNT; o++) {
        const option_row *row = &option_rows[o];
        if (row->type == FLAG)
            continue;
        printf("  ");
        write_pattern(row);
        if (row->type == FILE_NAME)
            printf(") %s; return ;;\n", files);
        else if (argument_word(row, 0)) {
            printf(") %s", before);
            write_arguments(row);
            printf("%s ;;\n", after);
        } else if (message) {
            printf(") %s", message);
            write_quoted(row->form);
            printf("; return ;;\n");
        } else
            printf(") return ;;\n");
    }
}

/* ---------------------------------------------------------------- the three shells */

static void write_bash(void)
{
    printf("# bash completion of mha, written by \"mha completion bash\"\n"
           "_mha_files() {\n"
           "  compopt -o filenames 2>/dev/null\n"
           "  COMPREPLY=($(compgen -f -- \"$word\"))\n"
           "}\n"
           "_mha() {\n"
           "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options= words=\n"
           "  COMPREPLY=()\n"
           "  if [ \"$COMP_CWORD\" = 1 ]; then\n    words='");
    write_commands("help --help --version");
    printf("'\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n    return\n  fi\n"
           "  case ${COMP_WORDS[1]}:$before in\n"
           "  help:help) words='");
    write_commands("");
    write_topics(WIDEST);
    printf("' ;;\n  completion:completion) words='%s %s %s' ;;\n", shells[0], shells[1], shells[2]);
    write_option_cases("_mha_files", "words='", "'", NULL);
    printf("  esac\n"
           "  if [ -n \"$words\" ]; then\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n    return\n  fi\n"
           "  case ${COMP_WORDS[1]} in\n");
    for (command_code c = 0; c < COMMAND_COUNT; c++) {
        size_t column = WIDEST;
        printf("  %s) options='", command_rows[c].name);
        for (option_code o = 0; o < OPTION_COUNT; o++)
            if (takes(c, o)) {
                char option[48];
                snprintf(option, sizeof option, "--%s", option_rows[o].name);
                write_word(option, &column);
            }
        printf("' ;;\n");
    }
    printf("  esac\n"
           "  case $word:${COMP_WORDS[1]} in\n  -*) ;;\n");
    for (command_code c = 0; c < COMMAND_COUNT; c++)
        if (command_rows[c].most > 0 && c != CMD_COMPLETION)
            printf("  *:%s) _mha_files; return ;;\n", command_rows[c].name);
    printf("  esac\n"
           "  COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
           "}\ncomplete -F _mha mha\n");
}

static void write_described(const char *word, const char *text)
{
    printf("      '%s:'", word);
    write_quoted(text);
    putchar('\n');
}

static void write_zsh(void)
{
    printf("#compdef mha\n"
           "# zsh completion of mha, written by \"mha completion zsh\"\n"
           "_mha() {\n"
           "  local -a commands options\n"
           "  commands=(\n");
    for (command_code c = 0; c < COMMAND_COUNT; c++)
        write_described(command_rows[c].name, command_rows[c].help);
    printf("  )\n"
           "  if (( CURRENT == 2 )); then\n"
           "    _describe -t commands command commands\n"
           "    compadd -- help --help --version\n    return\n  fi\n"
           "  case $words[2]:$words[CURRENT-1] in\n"
           "  help:help) _describe -t commands command commands; compadd -- ");
    write_topics(0);
    printf("; return ;;\n"
           "  completion:completion) compadd -- %s %s %s; return ;;\n",
           shells[0], shells[1], shells[2]);
    write_option_cases("_files", "compadd -- $(echo '", "'); return", "_message ");
    printf("  esac\n  case $words[2] in\n");
    for (command_code c = 0; c < COMMAND_COUNT; c++) {
        printf("  %s)\n    options=(\n", command_rows[c].name);
        for (option_code o = 0; o < OPTION_COUNT; o++)
            if (takes(c, o)) {
                char option[48];
                snprintf(option, sizeof option, "--%s", option_rows[o].name);
                write_described(option, option_rows[o].help);
            }
        printf("    ) ;;\n");
    }
    printf("  esac\n"
           "  [[ $PREFIX != -* ]] && case $words[2] in\n");
    for (command_code c = 0; c < COMMAND_COUNT; c++)
        if (command_rows[c].most > 0 && c != CMD_COMPLETION)
            printf("  %s) _files; return ;;\n", command_rows[c].name);
    printf("  esac\n"
           "  _describe -o -t options option options\n"
           "}\n"
           "# Run by zsh as the function _mha of a file in $fpath, or read by: source <(mha completion zsh)\n"
           "if [ \"$funcstack[1]\" = _mha ]; then _mha \"$@\"; else compdef _mha mha; fi\n");
}

static void write_fish(void)
{
    printf("# fish completion of mha, written by \"mha completion fish\"\n"
           "function __mha_runs --description 'the command of mha is one of these; none: there is no command yet'\n"
           "    set --local words (commandline -opc)\n"
           "    if test (count $argv) = 0\n        test (count $words) = 1\n"
           "    else\n        test (count $words) -gt 1; and contains -- $words[2] $argv\n    end\n"
           "end\n"
           "complete -c mha -f\n"
           "complete -c mha -n __mha_runs -a 'help --help --version'\n"
           "complete -c mha -n '__mha_runs help' -a '");
    write_commands("");
    write_topics(WIDEST);
    printf("'\ncomplete -c mha -n '__mha_runs completion' -a '%s %s %s'\n", shells[0], shells[1], shells[2]);
    for (command_code c = 0; c < COMMAND_COUNT; c++) {
        printf("complete -c mha -n __mha_runs -a %s -d ", command_rows[c].name);
        write_quoted(command_rows[c].help);
        putchar('\n');
        if (command_rows[c].most > 0 && c != CMD_COMPLETION)
            printf("complete -c mha -n '__mha_runs %s' -F\n", command_rows[c].name);
    }
    for (option_code o = 0; o < OPTION_COUNT; o++) {
        const option_row *row = &option_rows[o];
        printf("complete -c mha -n '__mha_runs");
        for (command_code c = 0; c < COMMAND_COUNT; c++)
            if (takes(c, o))
                printf(" %s", command_rows[c].name);
        printf("' -l %s%s \\\n", row->name, row->type == FLAG ? "" : row->type == FILE_NAME ? " -r -F" : " -x");
        if (argument_word(row, 0)) {
            printf("    -a '");
            write_arguments(row);
            printf("' \\\n");
        }
        printf("    -d ");
        write_quoted(row->help);
        putchar('\n');
    }
}

int run_completion(const arguments *args)
{
    static void (*const writers[N_SHELLS])(void) = {write_bash, write_zsh, write_fish};
    for (size_t i = 0; i < N_SHELLS; i++)
        if (strcmp(args->operands[0], shells[i]) == 0) {
            writers[i]();
            return EXIT_DONE;
        }
    return refuse("", "expected bash, zsh or fish, found \"%s\"", args->operands[0]);
}
