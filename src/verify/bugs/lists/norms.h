/* Bugs of the norms of q and k, of queries scaled by their position, and of limits (list.h). */
/* clang-format off */

/* ---------------------------------------------------------------- norms */

PAIRED("norm-missing", "norms of q and k left out", has_q_norm(c) && has_k_norm(c), k->no_norm = 3)
ALONE("norm-q-missing", "norm of q left out", has_q_norm(c), k->no_norm = 1)
ALONE("norm-k-missing", "norm of k left out", has_k_norm(c), k->no_norm = 2)
PAIRED("norm-rms", "q/k norm divides by the root mean square",
    is_other_norm(c, MHA_NORM_RMS), k->s.qkv.norm.kind = MHA_NORM_RMS)
PAIRED("norm-layer", "q/k norm subtracts the mean, as a layer norm",
    is_other_norm(c, MHA_NORM_LAYER), k->s.qkv.norm.kind = MHA_NORM_LAYER)
ALONE("norm-l2", "q/k norm divides by the length of the row instead of its root mean square",
    is_other_norm(c, MHA_NORM_L2), k->s.qkv.norm.kind = MHA_NORM_L2)
ALONE("norm-other-span", "q/k norm over the whole row instead of each head, or the reverse",
    has_norm(c) && c->H > 1, k->norm_other_span = 1)
ALONE("norm-first-head", "the norm weights of the first head taken for all heads",
    has_own_weights(c) && c->H > 1, k->norm_first_head = 1)
PAIRED("norm-no-weight", "q/k norm without its weight", has_norm_weight(c), k->norm_no_weight = 1)
PAIRED("norm-bias-missing", "q/k norm without its bias", has_norm_bias(c), k->norm_no_bias = 1)
ALONE("norm-eps-outside", "q/k norm adds eps outside the root", has_norm(c), k->norm_eps_outside = 1)
PAIRED("norm-eps-1e-5", "q/k norm with eps 1e-5", is_other_eps(c, k, 1e-5), k->s.qkv.norm_eps = 1e-5)
ALONE("norm-eps-1e-6", "q/k norm with eps 1e-6", is_other_eps(c, k, 1e-6), k->s.qkv.norm_eps = 1e-6)
ALONE("norm-eps-1e-8", "q/k norm with eps 1e-8", is_other_eps(c, k, 1e-8), k->s.qkv.norm_eps = 1e-8)
ALONE("norm-eps-0", "q/k norm without eps", is_other_eps(c, k, 0), k->s.qkv.norm_eps = 0)
PAIRED("norm-after-rope", "q/k norm after the rotation",
    has_norm(c) && has_rope(c) && !c->semantics.qkv.norm.after_rope, k->s.qkv.norm.after_rope = 1)
PAIRED("norm-before-rope", "q/k norm before the rotation",
    has_norm(c) && has_rope(c) && c->semantics.qkv.norm.after_rope, k->s.qkv.norm.after_rope = 0)
PAIRED("norm-plus-one", "q/k norm multiplies by 1 + weight",
    has_norm_weight(c) && !k->s.qkv.norm.plus_one, k->s.qkv.norm.plus_one = 1)
PAIRED("norm-not-plus-one", "q/k norm multiplies by the weight instead of 1 + weight",
    has_norm_weight(c) && c->semantics.qkv.norm.plus_one, k->s.qkv.norm.plus_one = 0)

/* ---------------------------------------------------------------- limits */

PAIRED("clip-missing", "q, k and v not limited by clip_qkv", clips(c), k->s.qkv.clip_qkv = 0)
PAIRED("clip-queries-alone", "k and v not limited by clip_qkv", clips(c), k->clip_not = 2 + 4)
PAIRED("clip-without-values", "v not limited by clip_qkv", clips(c), k->clip_not = 4)
PAIRED("clip-before-bias", "q, k and v limited by clip_qkv before their biases are added",
    clips(c) && has_bias(c), k->clip_place = CLIP_BEFORE_BIAS)
PAIRED("clip-before-norm", "q and k limited by clip_qkv before their norm",
    clips(c) && norms_first(c), k->clip_place = CLIP_BEFORE_NORM)
PAIRED("clip-after-rope", "q and k limited by clip_qkv after the rotation",
    clips(c) && has_rope(c), k->clip_place = CLIP_AFTER_ROPE)

/* ---------------------------------------------------------------- scale by position */

PAIRED("query-scale-missing", "queries not scaled by their position",
    has_query_scale(c), k->s.qkv.query_scale.growth = 0)
PAIRED("query-scale-first", "positions of the scale counted from 0 instead of 1, or the reverse",
    has_query_scale(c), k->s.qkv.query_scale.first = k->s.qkv.query_scale.first == 0)
ALONE("query-scale-smooth", "the scale grows with each position, not in whole steps",
    has_query_scale(c) && c->semantics.qkv.query_scale.every > 1, k->scale_smooth = 1)
ALONE("query-scale-keys", "the keys scaled by their positions, too",
    mha__scales_queries(&c->semantics) && attends(c), k->scale_keys = 1)
PAIRED("log-n-missing", "queries beyond the training length not scaled (log_n_scale)",
    has_log_n(k), k->s.qkv.query_scale.log_n = 0)
PAIRED("log-n-from-0", "log(p) instead of log(p + 1): positions of log_n_scale counted from 0",
    has_log_n(k), k->log_n_from_0 = 1)
PAIRED("log-n-always", "queries below the training length scaled, too, to less than they are",
    has_log_n(k), k->log_n_always = 1)

/* ---------------------------------------------------------------- what the case does not have, or with a number */

ALONE("case-lacks-rms-norm", "an RMS norm of q and k, without weights, that the case lacks",
    attends(c) && !(has_q_norm(c) && has_k_norm(c)), k->s.qkv.norm.unweighted = 1)
ALONE("case-lacks-layer-norm", "a layer norm of q and k, without weights, that the case lacks",
    lacks_norm(c), k->s.qkv.norm.unweighted = 1; k->s.qkv.norm.kind = MHA_NORM_LAYER)
ALONE("case-lacks-l2-norm", "q and k divided by their length, which the case does not say",
    lacks_norm(c), k->s.qkv.norm.unweighted = 1; k->s.qkv.norm.kind = MHA_NORM_L2)
FITTED("cosine-scores", "scores that are cosines, q and k divided by their length, times a number: the number",
    lacks_norm(c), k->s.qkv.norm.unweighted = 1; k->s.qkv.norm.kind = MHA_NORM_L2; k->s.qkv.norm_eps = 0;
    k->s.softmax.scale = *x, SOLVE_REAL, 0.1, 100)
FITTED("norm-eps-other", "q/k norm with another eps: the number",
    has_norm(c), k->s.qkv.norm_eps = *x, SOLVE_REAL, 1e-12, 1)

/* clang-format on */
