/* The one list of variants, in the order of the data flow: it drives the search, the help text and the tests. */
#include <string.h>

#include "verify/variants/variants.h"

static const mha__variant_list *const lists[] = {
    &mha__variants_of_rows,
    &mha__variants_of_norms,
    &mha__variants_of_scores,
    &mha__variants_of_bias,
    &mha__variants_of_scores_solved,
    &mha__variants_of_output,
};

/* Variants that are tried alone, because pairs of the rarer ones would cost much and explain little. */
static const char *const alone[] = {
    "batch-as-time", "heads-as-time", "sequences-joined", "input-layer-norm", "input-rms-norm",
    "inputs-reversed", "permute-q", "permute-k", "permute-qk", "unpermute-q",
    "unpermute-k", "unpermute-qk", "bias-q-unscaled", "bias-after-norm", "bias-after-rope", "norm-q-missing",
    "norm-k-missing", "norm-l2", "norm-first-head", "query-scale-keys",
    "query-scale-smooth", "norm-other-span", "norm-eps-outside", "norm-eps-1e-6", "norm-eps-1e-8",
    "norm-eps-0", "rope-reversed", "rope-sin-cos", "rope-angles-mixed", "rope-regrouped", "rope-last-features",
    "rope-half-dim", "rope-theta-d-model", "rope-theta-d-k", "groups-k-tiled", "groups-v-tiled", "groups-first",
    "groups-last-first", "merge-features-first", "merge-turned", "output-unprojected", "bias-o-before",
    "bias-o-per-head", "softmax-queries", "cache-behind", "cache-row-early", "cache-row-late",
    "page-table-ignored", "page-table-transposed", "page-table-first", "page-table-next", "softcap-no-divisor",
    "causal-reversed",
    "causal-after-softmax", "window-top-left", "window-bottom-right", "window-or-causal", "window-after-softmax",
    "mask-transposed", "mask-added", "all-after-softmax", "padding-reversed", "lengths-from-end",
    "lengths-after-softmax", "fill-add-f16", "fill-add-bf16", "alibi-scaled", "alibi-symmetric", "alibi-slopes-usual",
    "alibi-slopes-from-0", "alibi-slopes-plain", "lse-base-2", "lse-without-sinks", "lse-without-maximum",
    "lse-max-unscaled",
    "position-bias-scaled", "position-bias-next-row", "position-bias-transposed", "position-bias-other-ways",
    "position-bias-linear", "position-bias-by-column",
    "relative-k-missing", "relative-q-missing", "relative-q-other-way", "relative-from-0", "relative-next-row",
    "relative-linear", "relative-wrapped", "relative-by-column", "relative-head-0", "relative-scaled",
    "relative-unscaled", "relative-lone-scale",
    "case-lacks-rms-norm", "case-lacks-layer-norm", "case-lacks-l2-norm",
};

/* The variant at an index, in one of two forms; NULL past the end. */
typedef struct place {
    const mha__variant_entry *plain;
    const mha__solved_entry *solved;
} place;

static place find(size_t index)
{
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const mha__variant_list *l = lists[i];
        if (index < l->count)
            return (place){&l->entries[index], NULL};
        index -= l->count;
        if (index < l->solved_count)
            return (place){NULL, &l->solved[index]};
        index -= l->solved_count;
    }
    return (place){NULL, NULL};
}

size_t mha_variant_count(void)
{
    size_t count = 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        count += lists[i]->count + lists[i]->solved_count;
    return count;
}

const mha_variant *mha_variant_at(size_t index)
{
    const place at = find(index);
    return at.plain ? &at.plain->shown : at.solved ? &at.solved->shown : NULL;
}

const mha__solved_entry *mha__solved_entry_at(size_t index)
{
    return find(index).solved;
}

bool mha__variant_apply(const mha_case *c, size_t index, const double *numbers, mha__knobs *knobs)
{
    const place at = find(index);
    return at.plain ? at.plain->apply(c, knobs) : at.solved && numbers && at.solved->apply(c, knobs, numbers);
}

bool mha__variants_apply(const mha_case *c, int a, int b, mha__knobs *knobs)
{
    *knobs = mha__knobs_of(c);
    return (a < 0 || mha__variant_apply(c, (size_t)a, NULL, knobs)) &&
           (b < 0 || mha__variant_apply(c, (size_t)b, NULL, knobs));
}

bool mha_variant_is_paired(size_t index)
{
    const mha__variant_entry *e = find(index).plain;
    for (size_t i = 0; e && i < sizeof alone / sizeof *alone; i++)
        if (strcmp(alone[i], e->shown.name) == 0)
            return false;
    return e != NULL;
}
