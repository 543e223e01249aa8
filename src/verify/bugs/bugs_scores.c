/* Bugs between q, k, v and the heads: what lists/scores.h asks of a case, and changes that take more than a row. */
#include <math.h>

#include "verify/bugs/bugs.h"

/* clang-format off */
/* ---------------------------------------------------------------- scores */

PREDICATE(has_groups, attends(c) && c->H_kv > 1 && c->H_kv < c->H)

static double per_root(size_t n)
{
    return 1 / sqrt((double)n);
}

static bool is_other_scale(const mha_case *c, const mha__knobs *k, double scale)
{
    return attends(c) && !(fabs(k->s.softmax.scale - scale) <= 1e-9 * fabs(scale));
}

/* ---------------------------------------------------------------- what is visible */

static void take_chunk_for_window(mha__knobs *k)
{
    limit_left(k, k->s.visible.chunk - 1);
    k->s.visible.chunk = 0;
}

static mha_mask_kind flipped(mha_mask_kind kind)
{
    return kind == MHA_MASK_KEEPS ? MHA_MASK_HIDES : MHA_MASK_KEEPS;
}

/* Whether the mask has a square of rows and columns that can be taken for each other. */
static bool is_turnable(const mha_case *c)
{
    const mha_view *v = &c->semantics.visible.mask.values;
    return c->semantics.visible.mask.kind && v->rank >= 2 && v->shape[v->rank - 1] > 1 &&
           v->shape[v->rank - 1] == v->shape[v->rank - 2] && c->T_q == c->P + c->T_k;
}

/* Exchanges the last two axes: queries and keys. */
static void transpose(mha_view *v)
{
    *v = mha__view_swap(v, v->rank - 2, v->rank - 1);
}

/* Whether queries may see no key. */
static bool may_be_empty(const mha_case *c)
{
    const mha_place *p = &c->semantics.place;
    const int64_t *keys = p->cu_seqlens_k ? p->cu_seqlens_k : p->cu_seqlens_q;
    bool empty = c->P + c->T_k == 0;
    for (size_t b = 0; b < p->n_sequences; b++)
        empty |= keys[b] == keys[b + 1];
    return empty || hides_keys(c);
}

/* Which rules of the case hide whole keys from a softmax. */
static int hiding(const mha_case *c)
{
    const mha_visible *s = &c->semantics.visible;
    if (!softens(c)) /* weights that do not depend on each other can be hidden before and after */
        return 0;
    return (is_boolean(&s->mask) ? HIDES_MASK : 0) | (s->causal ? HIDES_CAUSAL : 0) |
           (is_windowed(c) ? HIDES_WINDOW : 0) |
           (is_boolean(&s->key_padding) && !s->has_padding_fill ? HIDES_PADDING : 0) |
           (s->kv_lengths ? HIDES_LENGTHS : 0);
}

static bool is_several(int bits)
{
    return (bits & (bits - 1)) != 0;
}

/* Whether cached keys and values lie in pages that the table could name otherwise. */
PREDICATE_OF_BOTH(has_pages, c->P > 0 && k->use_cache && c->tensors[CASE_PAGE_KEYS].data &&
    c->tensors[CASE_PAGE_VALUES].data)

/* Whether blocks of queries and of keys can be taken for each other. */
static bool has_square_blocks(const mha_case *c)
{
    const mha_pattern *p = &c->semantics.visible.pattern;
    const mha_view *v = &p->blocks.values;
    return p->blocks.kind && p->block_queries == p->block_keys && c->T_q == c->P + c->T_k && v->rank >= 2 &&
           v->shape[v->rank - 1] == v->shape[v->rank - 2];
}

/* Whether the segments of a batch row end at other places than those of the first one. */
static bool end_elsewhere(const mha_view *v)
{
    bool elsewhere = false;
    for (size_t e = 1; v->data && v->rank == 2 && e < v->shape[0] * v->shape[1]; e++) {
        const size_t b = e / v->shape[1], t = e % v->shape[1], before = t > 0 ? t - 1 : 0;
        const double own[] = {mha_view_get(v, (const size_t[]){b, t}), mha_view_get(v, (const size_t[]){b, before})},
                     first[] = {mha_view_get(v, (const size_t[]){0, t}), mha_view_get(v, (const size_t[]){0, before})};
        elsewhere |= (own[0] == own[1]) != (first[0] == first[1]);
    }
    return elsewhere;
}

/* Whether queries and keys of a batch row stand at the same places. */
PREDICATE(are_as_many, attends(c) && c->P == 0 && c->T_q == c->T_k && c->semantics.place.n_sequences == 0)

/* Whether nothing is added to the scores of a key, nor hides it one by one: a key of zeros has score 0. */
static bool adds_nothing(const mha_case *c)
{
    const mha_semantics *s = &c->semantics;
    return !s->visible.mask.kind && !s->visible.key_padding.kind && !mha__case_has_pattern(c) &&
           !s->added.alibi_slopes && !s->added.bias.rule && !s->added.relative.rule && s->place.n_sequences == 0;
}

/* Whether a softmax has no terms but keys. */
PREDICATE(adds_no_term, softens(c) && !has_weight(c, MHA_SINKS) && !c->semantics.softmax.softmax_plus_one)

static const double lowest = -3.4028234663852886e38; /* the lowest float32 */
/* clang-format on */

#define LIST mha__bugs_of_scores
#define LIST_FILE "verify/bugs/lists/scores.h"
#include "verify/bugs/lists/list.h"
