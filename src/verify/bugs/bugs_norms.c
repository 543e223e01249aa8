/* Bugs of the norms of q and k, of scales by position and of limits: what lists/norms.h asks of a case. */
#include "attention/call/resolved.h"
#include "verify/bugs/bugs.h"

/* clang-format off */
/* ---------------------------------------------------------------- norms */

PREDICATE(has_q_norm, has_weight(c, MHA_Q_NORM) || c->semantics.qkv.norm.unweighted)
PREDICATE(has_k_norm, has_weight(c, MHA_K_NORM) || c->semantics.qkv.norm.unweighted)
PREDICATE(has_norm_weight, has_weight(c, MHA_Q_NORM) || has_weight(c, MHA_K_NORM))
PREDICATE(has_norm_bias, has_weight(c, MHA_Q_NORM_BIAS) || has_weight(c, MHA_K_NORM_BIAS))

/* Whether a norm has weights of its own for each head. */
static bool has_own_weights(const mha_case *c)
{
    const mha_view *w = c->weights[CASE_RECORDED];
    return (w[MHA_Q_NORM].data && w[MHA_Q_NORM].rank == 2) || (w[MHA_K_NORM].data && w[MHA_K_NORM].rank == 2);
}

static bool is_other_norm(const mha_case *c, mha_norm_kind kind)
{
    return has_norm(c) && c->semantics.qkv.norm.kind != kind;
}

static bool is_other_eps(const mha_case *c, const mha__knobs *k, double eps)
{
    return has_norm(c) && k->s.qkv.norm_eps != eps;
}

PREDICATE(lacks_norm, attends(c) && !has_norm(c))

/* ---------------------------------------------------------------- scale by position */

PREDICATE(has_query_scale, c->semantics.qkv.query_scale.growth != 0)
PREDICATE_OF_KNOBS(has_log_n, k->s.qkv.query_scale.log_n != 0)

/* ---------------------------------------------------------------- limits */

PREDICATE(clips, c->semantics.qkv.clip_qkv > 0)

static bool has_bias(const mha_case *c)
{
    const mha_view *w = c->weights[CASE_RECORDED];
    return w[MHA_B_Q].data || w[MHA_B_K].data || w[MHA_B_V].data;
}

PREDICATE(norms_first, has_norm(c) && !c->semantics.qkv.norm.after_rope)
/* clang-format on */

#define LIST mha__bugs_of_norms
#define LIST_FILE "verify/bugs/lists/norms.h"
#include "verify/bugs/lists/list.h"
