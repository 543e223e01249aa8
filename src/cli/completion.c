/* mha completion: a script of some lines for each shell, which asks the program at every key what may stand there:
 * mha completion --words WORD..., the words of the line behind `mha`, the one being written last. */
#include "bench/shapes.h"
#include "cli/commands/commands.h"
#include "cli/help.h"

/* The scripts, which `make install` installs too: gen/completions.inc is made of src/cli/completions. */
static const struct {
    const char *shell, *script;
} scripts[] = {
#include "completions.inc"
};
enum { N_SHELLS = sizeof scripts / sizeof *scripts };

/* ---------------------------------------------------------------- what may stand there */

static void offer(const char *word, const char *text)
{
    printf("%s\t%s\n", word, text);
}

/* Possible argument `index` of an option; NULL past the last, and for options that take any number or name. Valid
 * until the next call. */
static const char *argument_word(option_code option, size_t index)
{
    static char word[32];
    const bench_shape *shape;
    switch (option) {
    case OPT_PRESET: return index == 0 ? "list" : mha_preset_at(index - 1, NULL);
    case OPT_BENCHMARK: return index == 0 ? "list" : mha_benchmark_at(index - 1, NULL);
    case OPT_ISA: return index == 0 ? "auto" : mha_isa_at(index - 1);
    case OPT_STAGE: return index < MHA_STAGE_COUNT ? mha_stage_at((mha_stage)index)->name : NULL;
    case OPT_SHAPE:
        shape = index < 2 ? NULL : bench_shape_at(index - 2);
        return index == 0 ? "list" : index == 1 ? BENCH_SET : shape ? shape->name : NULL;
    default: break;
    }
    return option_at(option)->type == CHOICE && option_choice(option_at(option)->form, index, word) ? word : NULL;
}

/* The argument of an option: its words, ":files", or ":form" and how it is written. */
static void offer_arguments(option_code option)
{
    const char *word;
    if (names_file(option, ""))
        puts(":files");
    else if (!argument_word(option, 0))
        printf(":form %s\n", option_at(option)->form);
    for (size_t i = 0; !names_file(option, "") && (word = argument_word(option, i)) != NULL; i++)
        offer(word, "");
}

static void offer_commands(void)
{
    for (command_code c = 0; c < COMMAND_COUNT; c++)
        offer(command_rows[c].name, command_rows[c].help);
}

void completion_words(int count, char **words)
{
    const char *word = count > 0 ? words[count - 1] : "";
    command_code command = 0;
    if (count < 2) {
        offer_commands();
        offer("help", "about a command or a topic");
        offer("--help", "what the commands do");
        offer("--version", "");
        return;
    }
    while (command < COMMAND_COUNT && strcmp(command_rows[command].name, words[0]) != 0)
        command++;
    if (strcmp(words[0], "help") == 0) {
        offer_commands();
        for (size_t i = 0; topic_name(i); i++)
            offer(topic_name(i), "");
    }
    if (command == COMMAND_COUNT)
        return;
    const char *before = words[count - 2];
    const bool is_option = strncmp(before, "--", 2) == 0;
    const option_code option = is_option ? option_named(command, before + 2, strlen(before + 2)) : option_count();
    if (option != option_count() && option_at(option)->type != FLAG)
        offer_arguments(option);
    else if (command == CMD_COMPLETION && *word != '-')
        for (size_t i = 0; i < N_SHELLS; i++)
            offer(scripts[i].shell, "");
    else if (command_rows[command].most > 0 && *word != '-')
        puts(":files");
    else
        for (option_code o = 0; o < option_count(); o++)
            if (takes(command, o))
                offer(text_of("--%s", option_at(o)->name), option_help(option_at(o)));
}

int run_completion(const arguments *args)
{
    for (size_t i = 0; i < N_SHELLS; i++)
        if (strcmp(args->operands[0], scripts[i].shell) == 0) {
            fputs(scripts[i].script, stdout);
            return EXIT_DONE;
        }
    return refuse("", "expected bash, zsh or fish, found \"%s\"", args->operands[0]);
}
