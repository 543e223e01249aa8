/* The one list of variants, in the order of the data flow: it drives the search, the help text and the tests. */
#include <string.h>

#include "verify/variants/variants.h"

static const mha__variant_list *const lists[] = {
    &mha__variants_of_rows,
    &mha__variants_of_scores,
    &mha__variants_of_output,
};

/* Variants that are tried alone, because pairs of the rarer ones would cost much and explain little. */
static const char *const alone[] = {
    "input-layer-norm", "input-rms-norm", "inputs-reversed", "permute-q", "permute-k", "permute-qk", "unpermute-q",
    "unpermute-k", "unpermute-qk", "bias-q-unscaled", "bias-after-norm", "bias-after-rope", "norm-q-missing",
    "norm-k-missing", "norm-l2", "norm-other-span", "norm-eps-outside", "norm-eps-1e-6", "norm-eps-1e-8",
    "norm-eps-0", "rope-reversed", "rope-sin-cos", "rope-angles-mixed", "rope-regrouped", "rope-last-features",
    "rope-half-dim", "rope-theta-d-model", "rope-theta-d-k", "groups-k-tiled", "groups-v-tiled", "groups-first",
    "groups-last-first", "merge-features-first", "merge-turned", "output-unprojected", "bias-o-before",
    "bias-o-per-head",
};

const mha__variant_entry *mha__variant_entry_at(size_t index)
{
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (index < lists[i]->count)
            return &lists[i]->entries[index];
        index -= lists[i]->count;
    }
    return NULL;
}

size_t mha_variant_count(void)
{
    size_t count = 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        count += lists[i]->count;
    return count;
}

const mha_variant *mha_variant_at(size_t index)
{
    const mha__variant_entry *e = mha__variant_entry_at(index);
    return e ? &e->shown : NULL;
}

bool mha__variants_apply(const mha_case *c, int a, int b, mha__knobs *knobs)
{
    *knobs = mha__knobs_of(c);
    return (a < 0 || mha__variant_entry_at((size_t)a)->apply(c, knobs)) &&
           (b < 0 || mha__variant_entry_at((size_t)b)->apply(c, knobs));
}

bool mha_variant_is_paired(size_t index)
{
    const mha__variant_entry *e = mha__variant_entry_at(index);
    for (size_t i = 0; e && i < sizeof alone / sizeof *alone; i++)
        if (strcmp(alone[i], e->shown.name) == 0)
            return false;
    return e != NULL;
}
