/* Open settings of a model, and differences of a file from it: kept, printed and recorded. */
#include "cli/commands/counting/counting.h"

void finding_keep(void *context, const mha_finding *finding)
{
    finding_list *list = context;
    list->items = obtain_more(list->items, list->count, &list->room, sizeof *list->items);
    list->items[list->count++] = *finding;
}

void findings_print(const finding_list *list)
{
    enum { SHOWN = 40 };
    for (size_t i = 0; i < list->count && i < SHOWN; i++) {
        const mha_finding *f = &list->items[i];
        say_harmless("  %-12s %s", mha_finding_name(f->kind), f->name);
        if (f->kind == MHA_FINDING_MISSHAPEN)
            say(": expected %s, found %s", shape_text(f->expected_rank, f->expected_shape),
                shape_text(f->found_rank, f->found_shape));
        else if (f->kind == MHA_FINDING_MISSING)
            say(": expected %s", shape_text(f->expected_rank, f->expected_shape));
        else
            say(" %s", shape_text(f->found_rank, f->found_shape));
        if (f->kind == MHA_FINDING_TIED && f->other && *f->other)
            say_harmless(", tied to %s", f->other);
        if (f->kind == MHA_FINDING_BUFFER)
            say(", not learned: counters that sum a file include it by mistake");
        say("\n");
    }
    if (list->count > SHOWN)
        say("  ... and %zu more\n", list->count - SHOWN);
}

json_t *finding_record(const mha_finding *f)
{
    const bool missing = f->kind == MHA_FINDING_MISSING;
    return record_of("kind", J(mha_finding_name(f->kind)), "name", J(f->name), "tied_to",
                     J(f->kind == MHA_FINDING_TIED ? f->other : NULL), "expected",
                     f->expected_rank || missing ? json_shape(f->expected_rank, f->expected_shape) : json_null(),
                     "found", missing ? json_null() : json_shape(f->found_rank, f->found_shape), "elements",
                     J(f->elements), NULL);
}

void doubts_say(const mha_model *model)
{
    enum { DOUBTS = 3 };
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
        if (doubts[i] && tables_style() != TABLE_TEXT)
            refuse("", "%s", doubts[i]);
        else if (doubts[i])
            say_harmless("%s\n", doubts[i]);
}
