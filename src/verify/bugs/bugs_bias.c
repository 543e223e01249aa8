/* Bugs of the relative position bias and of relative terms: what lists/bias.h asks of a case. */
#include "verify/bugs/bugs.h"

/* clang-format off */
PREDICATE_OF_KNOBS(has_rule, k->s.added.bias.rule != MHA_BIAS_RULE_NONE)
PREDICATE_OF_KNOBS(has_buckets, k->s.added.bias.rule == MHA_BIAS_RULE_BUCKETS)

/* Whether as many buckets as the case has can serve the other number of directions, too. */
static bool serves_other_ways(const mha_case *c, const mha__knobs *k)
{
    const size_t n = c->weights[CASE_RECORDED][MHA_BIAS_TABLE].shape[0], most = c->semantics.added.bias.max_distance;
    return has_buckets(k) && n >= 4 && n / 2 < (most ? most : 128);
}

PREDICATE_OF_KNOBS(has_terms, k->s.added.relative.rule != MHA_RELATIVE_NONE)

static bool has_table(const mha_case *c, const mha__knobs *k, mha_weight table)
{
    return has_terms(k) && c->weights[CASE_RECORDED][table].data;
}

PREDICATE_OF_BOTH(has_both, has_table(c, k, MHA_RELATIVE_K) && has_table(c, k, MHA_RELATIVE_Q))

/* Whether terms have the scale of q.k, which is given. */
static bool shares_scale(const mha_case *c, const mha__knobs *k)
{
    const mha_relative *relative = &k->s.added.relative;
    return has_terms(k) && c->semantics.softmax.scale != 0 && relative->k_scale == 0 && relative->q_scale == 0;
}

static bool has_columns(const mha_case *c, const mha__knobs *k)
{
    for (int w = MHA_RELATIVE_K; has_terms(k) && c->H > 1 && w <= MHA_RELATIVE_Q; w++)
        if (has_table(c, k, (mha_weight)w))
            return c->weights[CASE_RECORDED][w].shape[1] != c->d_k;
    return false;
}

/* Powers of two; the first is one that nobody has. */
NUMBERS(any_distance, ldexp(1, 15 - (int)index), index <= 12)
/* clang-format on */

#define LIST mha__bugs_of_bias
#define LIST_FILE "verify/bugs/lists/bias.h"
#include "verify/bugs/lists/list.h"
