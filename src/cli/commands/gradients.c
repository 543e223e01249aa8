/* The gradients of a diagnosed case: which known bug of a backward gives them. */
#include "cli/commands/commands.h"

bool gradients_named(const char *tensor)
{
    mha_case_word word;
    const char *dot = strchr(tensor, '.');
    for (size_t i = 0; mha_case_word_at(i, &word); i++) {
        const char *rest = strchr(word.name, '.');
        if (rest && strcmp(word.group, "gradients") == 0 && strcmp(rest + 1, dot ? dot + 1 : tensor) == 0)
            return true;
    }
    return false;
}

mha_status gradients_explain(const mha_case *c, explained_gradients *g, mha_error *error)
{
    return g->status = mha_case_explain_gradients(c, g->list, GRADIENTS_SHOWN, &g->count, &g->right, error);
}

static json_t *bugs_of(const explained_gradients *g)
{
    json_t *records = json_array();
    for (size_t i = 0; i < g->count && i < GRADIENTS_SHOWN; i++)
        json_array_append_new(records, record_of("bug", J(g->list[i].name), "help", J(g->list[i].help), NULL));
    return records;
}

void gradients_report(const explained_gradients *g, const mha_error *error, json_t *root)
{
    if (g->status == MHA_OK)
        record_with(root, "gradients", record_of("right", json_boolean(g->right), "bugs", bugs_of(g), NULL), NULL);
    else if (g->status == MHA_UNSUPPORTED)
        record_with(root, "gradients", record_of("unexplained", J(error->message), NULL), NULL);
}

void gradients_print(const explained_gradients *g, const mha_error *error)
{
    static const char *const columns[] = {"bug: bug", "what it is: help"};
    size_t named = 0;
    while (mha_gradient_bug_at(named))
        named++;
    if (g->status == MHA_UNSUPPORTED)
        say("Its gradients are not explained: %s: %s\n", error->name, error->message);
    if (g->status != MHA_OK)
        return;
    say("Its gradients, against %zu known bugs of a backward\n\n", named);
    if (g->right)
        say("They are right, within the error bound of rounding.\n");
    else if (g->count == 0)
        say("None of them gives these numbers.\n");
    else {
        say("Reproduced by\n");
        REPORT_TABLE(keep_json(bugs_of(g)), columns);
    }
}
