/* Bugs of the norms of q and k, of scales by position and of limits: what lists/norms.h asks of a case. */
#include "attention/call/resolved.h"
#include "verify/bugs/bugs.h"

/* ---------------------------------------------------------------- norms */

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

static bool is_other_norm(const mha_case *c, mha_norm_kind kind)
{
    return has_norm(c) && c->semantics.qkv.norm.kind != kind;
}

static bool is_other_eps(const mha_case *c, const mha__knobs *k, double eps)
{
    return has_norm(c) && k->s.qkv.norm_eps != eps;
}

static bool lacks_norm(const mha_case *c)
{
    return attends(c) && !has_norm(c);
}

/* ---------------------------------------------------------------- scale by position */

static bool has_query_scale(const mha_case *c)
{
    return c->semantics.qkv.query_scale.growth != 0;
}

static bool has_log_n(const mha__knobs *k)
{
    return k->s.qkv.query_scale.log_n != 0;
}

/* ---------------------------------------------------------------- limits */

static bool clips(const mha_case *c)
{
    return c->semantics.qkv.clip_qkv > 0;
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

#define LIST mha__bugs_of_norms
#define LIST_FILE "verify/bugs/lists/norms.h"
#include "verify/bugs/lists/list.h"
