/* Variants of the norms of q and k, and of queries scaled by their position. */
#include "attention/resolved.h"
#include "verify/variants/variants.h"

/* ---------------------------------------------------------------- what a case has */

static bool has_q_norm(const mha_case *c)
{
    return has_weight(c, MHA_Q_NORM) || c->semantics.qkv.norm.unweighted;
}

static bool has_k_norm(const mha_case *c)
{
    return has_weight(c, MHA_K_NORM) || c->semantics.qkv.norm.unweighted;
}

static bool has_norm_weight(const mha_case *c)
{
    return has_weight(c, MHA_Q_NORM) || has_weight(c, MHA_K_NORM);
}

static bool has_norm_bias(const mha_case *c)
{
    return has_weight(c, MHA_Q_NORM_BIAS) || has_weight(c, MHA_K_NORM_BIAS);
}

/* Whether a norm has weights of its own for each head. */
static bool has_own_weights(const mha_case *c)
{
    const mha_view *w = c->weights[CASE_RECORDED];
    return (w[MHA_Q_NORM].data && w[MHA_Q_NORM].rank == 2) || (w[MHA_K_NORM].data && w[MHA_K_NORM].rank == 2);
}

/* ---------------------------------------------------------------- norms */

APPLY(norm_missing, has_q_norm(c) && has_k_norm(c), k->no_norm = 3)
APPLY(norm_q_missing, has_q_norm(c), k->no_norm = 1)
APPLY(norm_k_missing, has_k_norm(c), k->no_norm = 2)

static bool other_kind(const mha_case *c, mha__knobs *k, mha_norm_kind kind)
{
    if (!has_norm(c) || c->semantics.qkv.norm.kind == kind)
        return false;
    k->s.qkv.norm.kind = kind;
    return true;
}

APPLY(norm_rms, other_kind(c, k, MHA_NORM_RMS), )
APPLY(norm_layer, other_kind(c, k, MHA_NORM_LAYER), )
APPLY(norm_l2, other_kind(c, k, MHA_NORM_L2), )
APPLY(norm_other_span, has_norm(c) && c->H > 1, k->norm_other_span = 1)
APPLY(norm_first_head, has_own_weights(c) && c->H > 1, k->norm_first_head = 1)
APPLY(norm_no_weight, has_norm_weight(c), k->norm_no_weight = 1)
APPLY(norm_no_bias, has_norm_bias(c), k->norm_no_bias = 1)
APPLY(norm_plus_one, has_norm_weight(c) && !k->s.qkv.norm.plus_one, k->s.qkv.norm.plus_one = 1)
APPLY(norm_not_plus_one, has_norm_weight(c) && c->semantics.qkv.norm.plus_one, k->s.qkv.norm.plus_one = 0)
APPLY(norm_eps_outside, has_norm(c), k->norm_eps_outside = 1)

static bool norm_eps(const mha_case *c, mha__knobs *k, double eps)
{
    if (!has_norm(c) || k->s.qkv.norm_eps == eps)
        return false;
    k->s.qkv.norm_eps = eps;
    return true;
}

APPLY(norm_eps_1e5, norm_eps(c, k, 1e-5), )
APPLY(norm_eps_1e6, norm_eps(c, k, 1e-6), )
APPLY(norm_eps_1e8, norm_eps(c, k, 1e-8), )
APPLY(norm_eps_0, norm_eps(c, k, 0), )
APPLY(norm_after_rope, has_norm(c) && has_rope(c) && !c->semantics.qkv.norm.after_rope, k->s.qkv.norm.after_rope = 1)
APPLY(norm_before_rope, has_norm(c) && has_rope(c) && c->semantics.qkv.norm.after_rope, k->s.qkv.norm.after_rope = 0)

static bool lacks_norm(const mha_case *c)
{
    return attends(c) && !has_norm(c);
}

APPLY(lacks_rms_norm, attends(c) && !(has_q_norm(c) && has_k_norm(c)),
      k->s.qkv.norm.unweighted = 1)
APPLY(lacks_layer_norm, lacks_norm(c), k->s.qkv.norm.unweighted = 1; k->s.qkv.norm.kind = MHA_NORM_LAYER)
APPLY(lacks_l2_norm, lacks_norm(c), k->s.qkv.norm.unweighted = 1; k->s.qkv.norm.kind = MHA_NORM_L2)

SOLVE(norm_eps_other, has_norm(c), k->s.qkv.norm_eps = *x)

/* ---------------------------------------------------------------- scale by position */

static bool has_query_scale(const mha_case *c)
{
    return c->semantics.qkv.query_scale.growth != 0;
}

APPLY(query_scale_missing, has_query_scale(c), k->s.qkv.query_scale.growth = 0)
APPLY(query_scale_first, has_query_scale(c), k->s.qkv.query_scale.first = k->s.qkv.query_scale.first == 0)
APPLY(query_scale_smooth, has_query_scale(c) && c->semantics.qkv.query_scale.every > 1, k->scale_smooth = 1)
APPLY(query_scale_keys, mha__scales_queries(&c->semantics) && attends(c), k->scale_keys = 1)

static bool has_log_n(const mha__knobs *k)
{
    return k->s.qkv.query_scale.log_n != 0;
}

APPLY(log_n_missing, has_log_n(k), k->s.qkv.query_scale.log_n = 0)
APPLY(log_n_from_0, has_log_n(k), k->log_n_from_0 = 1)
APPLY(log_n_always, has_log_n(k), k->log_n_always = 1)

/* ---------------------------------------------------------------- limits */

static bool clips(const mha_case *c)
{
    return mha__clips(&c->semantics);
}

static bool has_bias(const mha_case *c)
{
    const mha_view *w = c->weights[CASE_RECORDED];
    return w[MHA_B_Q].data || w[MHA_B_K].data || w[MHA_B_V].data;
}

static bool norms_first(const mha_case *c)
{
    return has_norm(c) && !c->semantics.qkv.norm.after_rope;
}

APPLY(clip_missing, clips(c), k->s.qkv.clip_qkv = 0)
APPLY(clip_queries, clips(c), k->clip_not = 2 + 4)
APPLY(clip_no_values, clips(c), k->clip_not = 4)
APPLY(clip_before_bias, clips(c) && has_bias(c), k->clip_place = CLIP_BEFORE_BIAS)
APPLY(clip_before_norm, clips(c) && norms_first(c), k->clip_place = CLIP_BEFORE_NORM)
APPLY(clip_after_rope, clips(c) && has_rope(c), k->clip_place = CLIP_AFTER_ROPE)

/* ---------------------------------------------------------------- the list */

static const mha__variant_entry entries[] = {
    {{"norm-missing", "norms of q and k left out"}, norm_missing},
    {{"norm-q-missing", "norm of q left out"}, norm_q_missing},
    {{"norm-k-missing", "norm of k left out"}, norm_k_missing},
    {{"norm-rms", "q/k norm divides by the root mean square"}, norm_rms},
    {{"norm-layer", "q/k norm subtracts the mean, as a layer norm"}, norm_layer},
    {{"norm-l2", "q/k norm divides by the length of the row instead of its root mean square"}, norm_l2},
    {{"norm-other-span", "q/k norm over the whole row instead of each head, or the reverse"}, norm_other_span},
    {{"norm-first-head", "the norm weights of the first head taken for all heads"}, norm_first_head},
    {{"norm-no-weight", "q/k norm without its weight"}, norm_no_weight},
    {{"norm-bias-missing", "q/k norm without its bias"}, norm_no_bias},
    {{"norm-eps-outside", "q/k norm adds eps outside the root"}, norm_eps_outside},
    {{"norm-eps-1e-5", "q/k norm with eps 1e-5"}, norm_eps_1e5},
    {{"norm-eps-1e-6", "q/k norm with eps 1e-6"}, norm_eps_1e6},
    {{"norm-eps-1e-8", "q/k norm with eps 1e-8"}, norm_eps_1e8},
    {{"norm-eps-0", "q/k norm without eps"}, norm_eps_0},
    {{"norm-after-rope", "q/k norm after the rotation"}, norm_after_rope},
    {{"norm-before-rope", "q/k norm before the rotation"}, norm_before_rope},
    {{"norm-plus-one", "q/k norm multiplies by 1 + weight"}, norm_plus_one},
    {{"norm-not-plus-one", "q/k norm multiplies by the weight instead of 1 + weight"}, norm_not_plus_one},
    {{"clip-missing", "q, k and v not limited by clip_qkv"}, clip_missing},
    {{"clip-queries-alone", "k and v not limited by clip_qkv"}, clip_queries},
    {{"clip-without-values", "v not limited by clip_qkv"}, clip_no_values},
    {{"clip-before-bias", "q, k and v limited by clip_qkv before their biases are added"}, clip_before_bias},
    {{"clip-before-norm", "q and k limited by clip_qkv before their norm"}, clip_before_norm},
    {{"clip-after-rope", "q and k limited by clip_qkv after the rotation"}, clip_after_rope},
    {{"query-scale-missing", "queries not scaled by their position"}, query_scale_missing},
    {{"query-scale-first", "positions of the scale counted from 0 instead of 1, or the reverse"}, query_scale_first},
    {{"query-scale-smooth", "the scale grows with each position, not in whole steps"}, query_scale_smooth},
    {{"query-scale-keys", "the keys scaled by their positions, too"}, query_scale_keys},
    {{"log-n-missing", "queries beyond the training length not scaled (log_n_scale)"}, log_n_missing},
    {{"log-n-from-0", "log(p) instead of log(p + 1): positions of log_n_scale counted from 0"}, log_n_from_0},
    {{"log-n-always", "queries below the training length scaled, too, to less than they are"}, log_n_always},
    {{"case-lacks-rms-norm", "an RMS norm of q and k, without weights, that the case lacks"}, lacks_rms_norm},
    {{"case-lacks-layer-norm", "a layer norm of q and k, without weights, that the case lacks"}, lacks_layer_norm},
    {{"case-lacks-l2-norm", "q and k divided by their length, which the case does not say"}, lacks_l2_norm},
};

static const mha__solved_entry solved[] = {
    {{"norm-eps-other", "q/k norm with another eps: the number"}, norm_eps_other, SOLVE_REAL, 1e-12, 1, NULL},
};

const mha__variant_list mha__variants_of_norms = {entries, sizeof entries / sizeof *entries, solved,
                                                  sizeof solved / sizeof *solved};
