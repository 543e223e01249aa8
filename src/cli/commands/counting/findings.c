/* Differences of a file from its model, kept, printed and recorded. */
#include "cli/commands/counting/counting.h"

#include <stdlib.h>

#include "cli/text/print.h"

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
