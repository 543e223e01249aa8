/* Tries the case with other numbers of heads: without an axis for heads, a wrong number fits the widths unnoticed. */
#include <math.h>

#include "base/base.h"
#include "verify/diagnose/search.h"

/* Whether the number of heads changes only how rows are split: no weight, cached row or mask has an axis of heads,
 * and the tensor to be explained has its heads side by side. */
static bool leaves_heads_open(const mha__search *s)
{
    const mha_case *c = s->c;
    const mha_view *w = c->weights[CASE_RECORDED], *mask = &c->semantics.mask.values;
    const mha_stage stage = s->target.stage;
    const bool side_by_side = stage == MHA_STAGE_OUTPUT || stage == MHA_STAGE_HEADS;
    const bool by_head = c->P > 0 || c->semantics.alibi_slopes || w[MHA_SINKS].data ||
                         (mask->data && mask->rank >= 3 && mask->shape[mask->rank - 3] > 1) ||
                         c->semantics.rope.cos_table.data;
    const bool normed = (w[MHA_Q_NORM].data && w[MHA_Q_NORM].shape[0] != c->H * c->d_k) ||
                        (w[MHA_K_NORM].data && w[MHA_K_NORM].shape[0] != c->H_kv * c->d_k);
    return side_by_side && !by_head && !normed && c->kind != CASE_ROPE && c->layout != MHA_BHTD &&
           c->layout != MHA_BTHD;
}

/* Makes the case with h query heads; false when they do not fit its widths. A scale that equals the case's default
 * becomes the default for the new heads: many writers state the default. */
static bool with_heads(const mha_case *c, size_t h, mha_case *other)
{
    const size_t q = c->H * c->d_k, k = c->H_kv * c->d_k, v = c->H_kv * c->d_v, h_kv = mha__kv_heads_of(q, k, v, h);
    const mha_rope *rope = &c->semantics.rope;
    if (h_kv == 0)
        return false;
    *other = *c;
    other->H = h;
    other->H_kv = h_kv;
    other->d_k = q / h;
    other->d_v = v / h_kv;
    if (fabs(other->semantics.scale * sqrt((double)c->d_k) - 1) < 1e-6) {
        other->semantics.has_scale = false;
        other->semantics.scale = 0;
    }
    const size_t dim = rope->dim ? rope->dim : other->d_k;
    return other->d_v * h == c->d_v * c->H && (rope->kind == MHA_ROPE_NONE || (dim <= other->d_k && dim % 2 == 0));
}

static mha_status fit_other(const mha__search *s, const mha_case *other, mha__candidate *x, mha_error *error)
{
    mha__search search = *s;
    TRY(mha__variant_inputs_create(other, &search.inputs, error));
    search.c = search.inputs->c;
    const unsigned char *needed = s->in_part ? s->judged : NULL;
    mha__variant_bench *bench = mha__variant_bench_create(search.inputs, needed, 0);
    if (bench) {
        search.bench[0] = bench;
        *x = (mha__candidate){.a = -1, .b = -1, .complete = true};
        mha__search_fit(&search, 0, &s->full, x);
    }
    mha__variant_bench_destroy(bench);
    mha__variant_inputs_destroy(search.inputs);
    return bench ? MHA_OK : mha__search_no_memory(s, error);
}

mha_status mha__search_other_heads(const mha__search *s, size_t *heads, mha__candidate *best, mha_error *error)
{
    const size_t width = s->c->H * s->c->d_k;
    mha_case other;
    *heads = 0;
    *best = (mha__candidate){.a = -1, .b = -1, .excess = INFINITY};
    if (!leaves_heads_open(s))
        return MHA_OK;
    for (size_t h = 1; h <= width; h++) {
        mha__candidate x;
        if (h == s->c->H || !with_heads(s->asked, h, &other))
            continue;
        TRY(fit_other(s, &other, &x, error));
        if (x.finite && x.excess < best->excess) {
            *best = x;
            *heads = h;
        }
    }
    return MHA_OK;
}
