/* mha help TOPIC: explains the program's special words, in a few sentences each. */
#include "cli/help.h"

static void print_case(void)
{
    static const char *const titles[] = {"word", "form", "meaning"};
    const char *group = "";
    table *t = NULL;
    mha_case_word w;
    for (size_t i = 0; mha_case_word_at(i, &w); i++) {
        if (strcmp(w.group, group) != 0) {
            if (t)
                table_print(t);
            say("\n%s%s%s\n", bold(), w.group, plain());
            t = table_create(sizeof titles / sizeof *titles, titles);
            group = w.group;
        }
        table_cell(t, text_of("%s%s%s", w.name, *w.also ? ", " : "", w.also));
        table_cell(t, w.form);
        table_cell(t, text_of("%s%s%s", w.meaning, *w.missing ? "; without it: " : "", w.missing));
    }
    if (t)
        table_print(t);
    say("\nFrom numpy:\n\n  np.savez(\"case.npz\", query=x, W_q=W_q, W_k=W_k, W_v=W_v, W_o=W_o, output=y, "
           "num_heads=4)\n\n");
    write_prose(
        "\"mha forward --save-case mine.safetensors\" writes a case in which only expected.output has to be replaced "
        "by what you computed. Without a case file: mha check --weights FILE --heads 4 --causal --input x.npy "
        "--expected y.npy.");
}

static void print_architectures(void)
{
    const char *line = "Built in:";
    for (size_t i = 0; mha_architecture_at(i); i++)
        line = text_more(line, "%s %s", i > 0 ? "," : "", mha_architecture_at(i));
    say("\n");
    write_prose("%s", line);
}

static void print_bugs(void)
{
    static const char *const titles[] = {"bug", "what it does"};
    table *t = table_create(2, titles);
    say("\n");
    for (size_t i = 0; i < mha_bug_count(); i++) {
        table_cell(t, mha_bug_at(i)->name);
        table_cell(t, mha_bug_at(i)->help);
    }
    table_print(t);
}

static void print_stages(void)
{
    say("\nThey are called");
    for (mha_stage s = 0; s < MHA_STAGE_COUNT; s++)
        say(s % 8 ? " %s" : "\n  %s", mha_stage_at(s)->name);
    say("\n\nand those of a backward\n");
    for (mha_backward_stage s = 0; s < MHA_BACKWARD_STAGE_COUNT; s++)
        say("  %-9s  %s\n", mha_backward_stage_at(s)->name, mha_backward_stage_at(s)->meaning);
}

/* topics.inc is made of topics.txt. */
static const struct {
    const char *name, *text;
} topics[] = {
#include "topics.inc"
};

/* Topics that end with a table of the library. */
static const struct {
    const char *name;
    void (*print)(void);
} tables[] = {
    {"stage", print_stages},
    {"architectures", print_architectures},
    {"case", print_case},
    {"bugs", print_bugs},
};

const char *topic_name(size_t index)
{
    return index < sizeof topics / sizeof *topics ? topics[index].name : NULL;
}

bool help_topic(const char *name)
{
    size_t i = 0;
    while (topic_name(i) && strcmp(topic_name(i), name) != 0)
        i++;
    if (!topic_name(i))
        return false;
    write_prose("%s", topics[i].text);
    for (size_t k = 0; k < sizeof tables / sizeof *tables; k++)
        if (strcmp(tables[k].name, name) == 0)
            tables[k].print();
    return true;
}
