/* Tries the case with other numbers of heads: without an axis for heads, a wrong number fits the widths unnoticed. */
#include <math.h>

#include "attention/layer/layer.h"
#include "base/base.h"
#include "verify/diagnose/search/search.h"

/* Whether the number of heads changes only how rows are split: no weight, cached row or mask has an axis of heads,
 * and the tensor to be explained has its heads side by side. */
static bool leaves_heads_open(const mha__search *s)
{
    const mha_case *c = s->c;
    const mha_view *w = c->weights[CASE_RECORDED];
    const mha_visible *v = &c->semantics.visible;
    const mha_stage stage = s->target.stage;
    const bool side_by_side = stage == MHA_STAGE_OUTPUT || stage == MHA_STAGE_HEADS;
    const bool by_head = c->P > 0 || c->semantics.added.alibi_slopes || w[MHA_SINKS].data || w[MHA_BIAS_TABLE].data ||
                         mha__has_heads(&v->mask.values) || mha__has_heads(&v->pattern.blocks.values) ||
                         mha__has_heads(&v->pattern.key_lists) || mha__has_heads(&c->semantics.softmax.dropout_keep) ||
                         c->semantics.qkv.rope.cos_table.data || c->semantics.qkv.rope.frequencies.data ||
                         c->semantics.added.relative.rule != MHA_RELATIVE_NONE;
    const mha_norm q_norm = mha__norm_of_weight(&w[MHA_Q_NORM], c->H, c->d_k),
                   k_norm = mha__norm_of_weight(&w[MHA_K_NORM], c->H_kv, c->d_k);
    const bool normed =
        c->semantics.qkv.norm.unweighted || (q_norm && q_norm != MHA_NORM_ROW) || (k_norm && k_norm != MHA_NORM_ROW);
    return side_by_side && !by_head && !normed && c->kind != CASE_ROPE && c->layout != MHA_BHTD &&
           c->layout != MHA_BTHD;
}

/* Makes the case with h query heads; false when they do not fit its widths. A scale that equals the case's default
 * becomes the default for the new heads: many writers state the default. */
static bool with_heads(const mha_case *c, size_t h, mha_case *other)
{
    const size_t q = c->H * c->d_k, k = c->H_kv * c->d_k, v = c->H_kv * c->d_v, h_kv = mha__kv_heads_of(q, k, v, h);
    const mha_rope *rope = &c->semantics.qkv.rope;
    if (h_kv == 0)
        return false;
    *other = *c;
    other->H = h;
    other->H_kv = h_kv;
    other->d_k = q / h;
    other->d_v = v / h_kv;
    if (fabs(other->semantics.softmax.scale * sqrt((double)c->d_k) - 1) < 1e-6) {
        other->semantics.softmax.has_scale = false;
        other->semantics.softmax.scale = 0;
    }
    const size_t dim = rope->dim ? rope->dim : other->d_k;
    return other->d_v * h == c->d_v * c->H && (rope->kind == MHA_ROPE_NONE || (dim <= other->d_k && dim % 2 == 0));
}

/* The inputs of the search for a case with other heads: no width is another one, so numbers are shared. The sequences
 * of a ragged batch are made anew. */
typedef struct turned {
    mha__inputs shared, *own; /* own: NULL when shared */
} turned;

static mha_status turn(const mha__search *s, const mha_case *other, turned *t, mha_error *error)
{
    t->own = NULL;
    t->shared = *s->inputs;
    if (s->inputs->sequences)
        return mha__inputs_create(other, &t->own, error);
    t->shared.c = other;
    t->shared.other = NULL;
    t->shared.h[0] = other->H, t->shared.d[0] = t->shared.d[1] = other->d_k;
    t->shared.h[1] = t->shared.h[2] = other->H_kv, t->shared.d[2] = other->d_v;
    return MHA_OK;
}

/* Fits the case with other heads where little is to be computed, and on all that is checked if it fits there. *bench is
 * made for the first one, which must be that of the most heads. */
static mha_status fit_other(const mha__search *s, mha__runner **bench, const mha_case *other, mha__candidate *x,
                            mha_error *error)
{
    turned t;
    TRY(turn(s, other, &t, error));
    mha__search search = *s;
    search.inputs = t.own ? t.own : &t.shared;
    search.c = search.inputs->c;
    if (!*bench)
        *bench = mha__runner_create(search.inputs, s->in_part ? s->rows_checked : NULL, 0);
    if (*bench) {
        search.workers.bench[0] = *bench;
        mha__runner_turn_to(*bench, search.inputs);
        *x = (mha__candidate){.a = -1, .b = -1, .complete = true};
        mha__search_fit(&search, 0, &s->region_first, x);
        if (mha__search_is_promising(s, x))
            mha__search_fit(&search, 0, &s->region_full, x);
        else
            x->finite = false;
    }
    mha__inputs_destroy(t.own);
    return *bench ? MHA_OK : mha__search_no_memory(s, error);
}

mha_status mha__search_other_heads(const mha__search *s, size_t *heads, mha__candidate *best, mha_error *error)
{
    mha__runner *bench = NULL;
    mha_status status = MHA_OK;
    mha_case other;
    *heads = 0;
    *best = (mha__candidate){.a = -1, .b = -1, .excess = INFINITY};
    if (!leaves_heads_open(s))
        return MHA_OK;
    for (size_t h = s->c->H * s->c->d_k; h >= 1 && status == MHA_OK; h--) {
        mha__candidate x = {.finite = false};
        if (h == s->c->H || !with_heads(s->asked, h, &other))
            continue;
        status = fit_other(s, &bench, &other, &x, error);
        if (x.finite && x.excess <= best->excess) {
            *best = x;
            *heads = h;
        }
    }
    mha__runner_destroy(bench);
    return status;
}
