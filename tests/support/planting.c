/* Cases with results of the oracle, right ones and wrong ones. */
#include "support/planting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/unit.h"

void planting_run(rig *r, const oracle_bug *one, const oracle_bug *other, oracle *result)
{
    oracle_wrong = one, oracle_wrong_too = other;
    oracle_run(r->layer ? &r->t.config : NULL, r->weights, &r->call, &r->past, 0x1p-53,
               result);
    oracle_wrong = oracle_wrong_too = NULL;
}

mha_stage planting_stage(const oracle_bug *m)
{
    return strncmp(m->name, "lse-", 4) == 0 ? MHA_STAGE_LSE : MHA_STAGE_OUTPUT;
}

mha_case *planting_case(rig *r, mha_stage stage, mha_dtype type, const oracle_stage *recorded)
{
    mha_case *c;
    mha_error error;
    const bool by_head = !r->layer && stage == MHA_STAGE_OUTPUT;
    const size_t heads[] = {recorded->shape[0], recorded->shape[1], r->t.config.n_heads, r->t.config.d_v};
    const size_t *shape = by_head ? heads : recorded->shape;
    const int rank = by_head ? 4 : recorded->rank;
    void *memory = malloc((recorded->elements + 1) * sizeof(double));
    const mha_view values = mha_view_of(recorded->value, MHA_F64, rank, shape);
    const mha_keep keep = {.stage = stage, .view = mha_view_of(memory, type, rank, shape)};
    const mha_case_notes notes = {.past_key = r->past.keys, .past_value = r->past.values,
                                  .rope_origin = r->past.rope_origin};
    assert_int_equal(mha_view_copy(&keep.view, &values, NULL), MHA_OK);
    const mha_status status = mha_case_of_call(r->layer, &r->call, &keep, 1, &notes, &c, &error);
    free(memory);
    if (status != MHA_OK && status != MHA_UNSUPPORTED)
        fail_msg("seed %llu: %s: %s", (unsigned long long)r->t.seed, error.name, error.message);
    return status == MHA_OK ? c : NULL;
}

bool planting_is_named(const mha_bug_match *e, size_t which, const char *name)
{
    char text[128];
    const char *found = e->found[which];
    snprintf(text, sizeof text, "%s%s%s", e->bugs[which], *found ? " " : "", found);
    return strcmp(text, name) == 0 || strcmp(e->bugs[which], name) == 0 || (strchr(name, ' ') && !*found);
}
