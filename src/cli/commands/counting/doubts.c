/* Prints what a model's configuration leaves open. */
#include "cli/commands/counting/counting.h"

#include "cli/setup/model.h"

enum { DOUBTS = 3 };

void doubts_say(const mha_model *model, bool on_error)
{
    const char *doubts[DOUBTS] = {NULL}; /* NULL where there is nothing of the kind */
    const mha_assumption *assumed;
    const char *key;
    const size_t n = mha_model_assumptions(model, &assumed);
    for (size_t i = 0; i < n; i++)
        doubts[0] = text_more(i ? doubts[0] : "assumed, as the configuration does not say: ", "%s%s = %lld",
                              i ? ", " : "", assumed[i].key, (long long)assumed[i].value);
    for (size_t i = 0; (key = mha_model_unread_key(model, i)); i++)
        doubts[1] = text_more(i ? doubts[1] : "not read, and not known: ", "%s%s", i ? ", " : "", key);
    if (*model_not_run(model))
        doubts[2] = text_of("attention is counted, not computed: %s", model_not_run(model));
    for (size_t i = 0; i < DOUBTS; i++)
        if (doubts[i] && on_error)
            refuse("", "%s", doubts[i]);
        else if (doubts[i])
            say_harmless("%s\n", doubts[i]);
}
