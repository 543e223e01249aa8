/* Bugs of which keys a backward sees, and of what it adds to scores, when it computes P once more. The call is seen
 * with other settings, or with those of another batch row or head, and P follows. */
#include <math.h>
#include <string.h>

#include "attention/core/exact/exact_visible.h"
#include "base/base.h"
#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/backward/bugs/scores.h"

/* Sites: settings of the call. Where nothing is said they are left out; those that move do so by `step` keys. */
enum {
    CAUSAL, CAUSAL_MOVED,
    FIRST_TOKENS, LAST_TOKENS, /* of the keys are the queries */
    CAUSAL_BLOCKS,             /* of `step` keys are seen whole */
    WINDOW, LEFT, RIGHT, LEFT_MOVED, RIGHT_MOVED, WINDOW_MIRRORED,
    WINDOW_BLOCKS, /* of `step` keys are seen whole where a query of a block of as many sees one */
    LENGTHS, LENGTHS_MOVED,
    LENGTHS_OF, /* an index map */
    LENGTHS_UP, /* to whole blocks of `step` keys */
    LENGTHS_DOWN,
    FLAGS, FLAGS_INVERTED, PADDING, SEGMENTS,
    EVERYTHING, /* but what is added may be minus infinity */
    SLOPES,
    MASK_OF, /* an index map */
    /* What is added is right, less so much of the mask or of ALiBi: a factor, or slopes of an index map over others. */
    MASK_TIMES, SLOPES_TIMES, SLOPES_OF
};

/* A call as it is seen by mistake, a query at a time. */
typedef struct seeing {
    mha__resolved r;
    mha__sequence s;
    double times; /* of the difference that the bug makes in what is added */
} seeing;

static mha__extents extents_of(const mha__backward *b, size_t T)
{
    const mha__sizes *p = &b->r->plan;
    return (mha__extents){{p->B, T, p->h, p->S}, MHA__BHTC, p->h / p->h_kv, 1};
}

/* What the mask adds to a score, read elsewhere; minus infinity hides the key. */
static double mask_elsewhere(const mha__backward *b, const mha__map *map, const mha__mutation *m, size_t i, size_t j)
{
    mha__extents n = extents_of(b, mha__resolved_sequence(b->r, map->b).T_q);
    n.n[MHA__C] = map->s.S;
    const mha__element of = mha__map_element(m, &n, (mha__element){{map->b, i, map->head, j}});
    return mha__exact_parts_of(b->r, &map->s, of.at[MHA__B], of.at[MHA__H], of.at[MHA__T], of.at[MHA__C]).mask;
}

/* The length of batch row `at`. */
static int64_t length_of(const mha__backward *b, const mha__mutation *m, size_t at)
{
    const int64_t *right = b->r->semantics.visible.kv_lengths, n = m->step;
    const mha__extents all = extents_of(b, 1);
    switch (m->site) {
    case LENGTHS_OF: return right[mha__map_element(m, &all, (mha__element){{at}}).at[MHA__B]];
    case LENGTHS_UP: return (right[at] + n - 1) / n * n;
    case LENGTHS_DOWN: return right[at] / n * n;
    default: return right[at] + n;
    }
}

static void show_all(mha_visible *v)
{
    v->causal = v->has_window_left = v->has_window_right = false, v->chunk = 0, v->kv_lengths = NULL;
    v->mask.kind = v->mask.kind == MHA_MASK_ADDITIVE ? MHA_MASK_ADDITIVE : MHA_MASK_NONE;
    v->key_padding.kind = v->key_padding.kind == MHA_MASK_ADDITIVE ? MHA_MASK_ADDITIVE : MHA_MASK_NONE;
    v->pattern = (mha_pattern){0};
}

/* The slopes of heads differ, and none is 0. */
static bool has_slopes(const mha__backward *b)
{
    const double *slopes = b->r->semantics.added.alibi_slopes;
    bool differ = false, zero = false;
    for (size_t i = 0; slopes && i < b->r->plan.h; i++)
        differ |= slopes[i] != slopes[0], zero |= slopes[i] == 0;
    return differ && !zero;
}

static bool sees_pairs(const mha__backward *b)
{
    return mha__is_softmax(b) && b->r->semantics.added.relative.rule == MHA_RELATIVE_NONE &&
           b->r->semantics.softmax.hidden_values != MHA_HIDDEN_PROPAGATE;
}

/* A mask with elements of its own for each batch row (4), or head (3). */
static bool has_own_masks(const mha_mask *mask, int from_right)
{
    const int axis = mask->kind ? mask->values.rank - from_right : -1;
    return axis >= 0 && mask->values.shape[axis] > 1;
}

static bool has_square_mask(const mha__backward *b)
{
    const mha_mask *mask = &b->r->semantics.visible.mask;
    return b->r->plan.T_q == b->r->plan.S && has_own_masks(mask, 2) && has_own_masks(mask, 1);
}

/* The mask has elements of its own for what is taken for another. */
static bool has_elsewhere(const mha__backward *b, const mha__mutation *m)
{
    static const int from_right[] = {[MHA__B] = 4, [MHA__T] = 2, [MHA__H] = 3, [MHA__C] = 1};
    const mha__sizes *p = &b->r->plan;
    if (m->arg == MHA__VIEW)
        return !b->r->semantics.place.cu_seqlens_q && has_square_mask(b);
    return !b->r->semantics.place.cu_seqlens_q && has_own_masks(&b->r->semantics.visible.mask, from_right[m->axis]) &&
           (m->arg != MHA__GROUP || p->h > p->h_kv) &&
           (m->arg != MHA__FIRST_BLOCK || (m->axis == MHA__T ? p->T_q : p->S) > (size_t)m->step);
}

/* How many things hide keys, beside what is added. */
static int hiders(const mha_visible *v)
{
    const mha_pattern *p = &v->pattern;
    const int named = v->causal + (v->has_window_left || v->has_window_right) + (v->kv_lengths != NULL) +
                      (v->pattern.q_segments.data != NULL) +
                      (v->mask.kind != MHA_MASK_NONE && v->mask.kind != MHA_MASK_ADDITIVE) +
                      (v->key_padding.kind != MHA_MASK_NONE && v->key_padding.kind != MHA_MASK_ADDITIVE);
    return named + (v->chunk > 0) + (p->key_lists.data != NULL) + (p->blocks.kind != MHA_MASK_NONE);
}

/* More than one does, or one that has no name of its own. */
static bool hides_together(const mha_visible *v)
{
    return hiders(v) > 1 || v->chunk || v->pattern.key_lists.data || v->pattern.blocks.kind;
}

/* Changes what head `head` of sequence `sequence` sees. False: the call has nothing to change. `lengths`: memory for
 * those of all batch rows, or NULL. */
static bool change(const mha__backward *b, const mha__mutation *m, size_t sequence, size_t head, int64_t *lengths,
                   seeing *x)
{
    const mha__sizes *p = &b->r->plan;
    const mha_visible *was = &b->r->semantics.visible;
    const mha_added *added = &b->r->semantics.added;
    mha_visible *v = &x->r.semantics.visible;
    const int64_t n = m->step;
    const bool adds = was->mask.kind == MHA_MASK_ADDITIVE, flags = was->mask.kind && !adds,
               left = was->has_window_left, right = was->has_window_right,
               plain = was->causal && !left && !right && !was->chunk && !was->prefix;
    const mha__sequence s = mha__resolved_sequence(b->r, sequence);
    const mha__extents all = extents_of(b, s.T_q);
    *x = (seeing){*b->r, s, 1};
    switch (m->site) {
    case CAUSAL: v->causal = false; return was->causal;
    case CAUSAL_MOVED:
        x->s.offset += n, v->window_left += n;
        v->window_right -= v->window_right > 0 ? n : 0;
        return was->causal && !was->chunk && (!left || was->window_left + n >= 0) && !right;
    case FIRST_TOKENS: x->s.offset = 0; return plain && p->T_q != p->S;
    case LAST_TOKENS: x->s.offset = (int64_t)s.S - (int64_t)s.T_q; return plain && p->T_q != p->S;
    case CAUSAL_BLOCKS: return plain;
    case WINDOW: v->has_window_left = v->has_window_right = false; return left || right;
    case LEFT: v->has_window_left = false; return left && right;
    case RIGHT: v->has_window_right = false; return left && right;
    case LEFT_MOVED: v->window_left += n; return left && v->window_left >= 0;
    case RIGHT_MOVED: v->window_right += n; return right && v->window_right >= 0;
    case WINDOW_MIRRORED:
        v->window_left = was->window_right, v->window_right = was->window_left;
        return left && right && was->window_left != was->window_right;
    case WINDOW_BLOCKS: return left && b->r->first_key == 0;
    case LENGTHS: v->kv_lengths = NULL; return was->kv_lengths;
    case LENGTHS_MOVED:
    case LENGTHS_OF:
    case LENGTHS_UP:
    case LENGTHS_DOWN:
        for (size_t at = 0; lengths && at < p->B; at++)
            lengths[at] = length_of(b, m, at);
        v->kv_lengths = lengths;
        return was->kv_lengths && (m->site != LENGTHS_OF || p->B > 1);
    case FLAGS: v->mask.kind = MHA_MASK_NONE; return flags;
    case FLAGS_INVERTED:
        v->mask.kind = was->mask.kind == MHA_MASK_KEEPS ? MHA_MASK_HIDES : MHA_MASK_KEEPS;
        return flags;
    case PADDING:
        v->key_padding.kind = MHA_MASK_NONE, v->has_padding_fill = false;
        return was->key_padding.kind || was->has_padding_fill;
    case SEGMENTS:
        v->pattern.q_segments.data = v->pattern.k_segments.data = NULL;
        return was->pattern.q_segments.data;
    case EVERYTHING: show_all(v); return hides_together(was);
    case MASK_OF: v->mask.kind = MHA_MASK_NONE; return has_elsewhere(b, m);
    case MASK_TIMES:
        v->mask.kind = MHA_MASK_NONE, x->times = 1 - mha__factor(m, b->r);
        return adds && x->times != 0;
    default: x->r.semantics.added.alibi_slopes = NULL; break;
    }
    if (m->site == SLOPES)
        return added->alibi_slopes && (adds || added->bias.rule != MHA_BIAS_RULE_NONE);
    if (m->site == SLOPES_TIMES) {
        x->times = 1 - mha__factor(m, b->r);
        return added->alibi_slopes && x->times != 0;
    }
    if (!has_slopes(b))
        return false;
    const double *slopes = added->alibi_slopes;
    const size_t other = mha__map_element(m, &all, (mha__element){{0, 0, head, 0}}).at[MHA__H];
    x->times = 1 - slopes[other] / slopes[head];
    return m->arg != MHA__GROUP || p->h > p->h_kv;
}

static bool has_visibility(const mha__backward *b, const mha__gradient_bug *bug)
{
    seeing x;
    return sees_pairs(b) && change(b, &bug->mutation, 0, 0, NULL, &x);
}

/* What query i sees, and what is added; where a factor is wrong it sees what is right. */
static void see_query(const mha__backward *b, seeing *x, const mha__map *map, const mha__mutation *m, size_t i,
                      unsigned char *seen, double *added)
{
    const int64_t p = map->s.offset + (int64_t)i, block = m->step;
    if (m->site == CAUSAL_BLOCKS)
        x->s.offset = p / block * block + block - 1 - (int64_t)i;
    if (m->site == WINDOW_BLOCKS) {
        const int64_t first = p / block * block - b->r->semantics.visible.window_left;
        x->r.semantics.visible.window_left = p - (first > 0 ? first / block * block : 0);
    }
    mha__exact_see(&x->r, &x->s, map->b, map->head, i, seen, added);
    for (size_t j = 0; m->site == MASK_OF && j < map->s.S; j++) {
        const double mask = mask_elsewhere(b, map, m, i, j);
        seen[j] = seen[j] && mask > -INFINITY;
        added[j] += seen[j] ? mask : 0;
    }
}

static void see_otherwise(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const mha_allocator a = mha__allocator_default();
    const mha__mutation *m = &bug->mutation;
    const size_t S = map->s.S, B = b->r->plan.B, bytes = 2 * S * (sizeof(double) + 1) + B * sizeof(int64_t);
    double *room = mha__allocate(&a, bytes);
    if (!room)
        return;
    double *added[2] = {room, room + S};
    int64_t *lengths = (int64_t *)(void *)(room + 2 * S);
    unsigned char *seen[2] = {(unsigned char *)(lengths + B), (unsigned char *)(lengths + B) + S};
    seeing x, all = {*b->r, map->s, 1};
    (void)change(b, m, map->b, map->head, lengths, &x);
    const bool moves = m->site >= CAUSAL_MOVED && m->site <= CAUSAL_BLOCKS;
    if (moves) /* what is added stays that of the right positions: the others may have no bias */
        x.r.semantics.added.bias.rule = MHA_BIAS_RULE_NONE, all.r.semantics.visible = x.r.semantics.visible,
        all.r.semantics.visible.causal = false;
    for (size_t i = 0; i < map->s.T_q; i++) {
        see_query(b, &x, map, m, i, seen[1], added[1]);
        mha__exact_see(&all.r, &all.s, map->b, map->head, i, seen[0], added[0]);
        for (size_t j = 0; j < S; j++) {
            const size_t at = i * map->n + j;
            const bool was = map->seen[at] == MHA__SEEN, now = seen[1][j] && (!moves || seen[0][j]);
            const double more = moves ? 0 : x.times * (added[1][j] - added[0][j]);
            if (was && (now || x.times != 1) && more != 0)
                map->weights[at] *= exp(more);
            else
                mha__show_pair(b, map, i, j, x.times != 1 ? was : now, added[moves ? 0 : 1][j]);
        }
    }
    mha__release(&a, room, bytes);
}

/* ---------------------------------------------------------------- pairs that are hidden */

/* Scores of the hidden pairs are 0. */
static void show_hidden(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    (void)bug;
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t j = 0; j < map->s.S; j++) {
            const size_t at = i * map->n + j;
            const bool was = map->seen[at] == MHA__SEEN;
            mha__show_pair(b, map, i, j, true, 0);
            map->weights[at] = !was && map->seen[at] == MHA__SEEN ? exp(-map->lse[i]) : map->weights[at];
        }
}

/* Where a hidden pair counts, with the weight of its score or with e^(0 - lse). */
typedef enum counted { IN_DV, IN_DS, IN_DS_AS_0 } counted;

/* Adds a pair that is hidden to dV, or to dQ and dK. */
static void count_pair(mha__backward *b, mha__map *map, counted where, size_t i, size_t j, double added)
{
    const size_t at = i * map->n + j, d_k = b->r->plan.d_k, d_v = b->r->plan.d_v;
    mha__show_pair(b, map, i, j, true, added);
    const double P = where == IN_DS_AS_0 ? exp(-map->lse[i]) : map->weights[at],
                 dS = P * map->slope[at] * (map->d_weights[at] - map->sums[i] + map->d_lse[i]);
    map->seen[at] = MHA__HIDDEN, map->weights[at] = 0;
    for (size_t c = 0; c < d_v && where == IN_DV; c++)
        map->dV[j * d_v + c] += P * map->dO[i * d_v + c];
    for (size_t c = 0; c < d_k && where != IN_DV; c++) {
        map->dQ[i * d_k + c] += map->q_scale * dS * map->K[j * d_k + c];
        map->dK[j * d_k + c] += map->k_scale * dS * map->Q[i * d_k + c];
    }
}

static void count_hidden(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const mha_allocator a = mha__allocator_default();
    const size_t S = map->s.S, bytes = S * (sizeof(double) + 1) + 1;
    double *added = map->sizes ? NULL : mha__allocate(&a, bytes);
    mha__resolved all = *b->r;
    show_all(&all.semantics.visible);
    for (size_t i = 0; added && i < map->s.T_q; i++) {
        unsigned char *shown = (unsigned char *)(added + S);
        mha__exact_see(&all, &map->s, map->b, map->head, i, shown, added);
        for (size_t j = 0; j < S && isfinite(map->lse[i]); j++)
            if (map->seen[i * map->n + j] != MHA__SEEN && shown[j])
                count_pair(b, map, (counted)bug->mutation.arg, i, j, added[j]);
    }
    mha__release(&a, added, added ? bytes : 0);
}

/* clang-format off */
/* Something hides keys beside what is added. */
APPLIES(hides_keys, sees_pairs(b) && hiders(&b->r->semantics.visible) > 0)

#define SEES(name, what, ...) \
    {{name, what, false}, has_visibility, MHA__BACKWARD_SUMS, see_otherwise, NULL, 0, \
        {.site = __VA_ARGS__}}
#define MASKED(name, what, ...) SEES(name, "the mask of the backward is " what, MASK_OF, __VA_ARGS__)
#define HIDDEN(name, what, stage, function, leaves, where) \
    {{"hidden-" name, what, false}, hides_keys, MHA__BACKWARD_##stage, function, NULL, leaves, {.arg = where}}
#define MASK_BLOCKS(B) \
    MASKED("masked-by-first-queries-" #B, "that of the query of the first " #B " with its place in its block", \
           MHA__BY(FIRST_BLOCK, T, B)), \
    MASKED("masked-by-first-keys-" #B, "that of the key of the first " #B " with its place in its block", \
           MHA__BY(FIRST_BLOCK, C, B))
#define ADDED(name, added, setting, ...) \
    SEES(name, "P is computed from scores to which " added, setting, __VA_ARGS__)
#define BY(base, power) .arg = MHA__##base, .number = power
#define TIMES(name, what, setting) \
    ADDED(name "-added-twice", what " is added twice", setting, BY(NUMBER, 2)), \
    ADDED(name "-added-scaled", what " is added times the scale", setting, BY(SCALE, 1)), \
    ADDED(name "-added-unscaled", what " is added over the scale", setting, BY(SCALE, -1)), \
    ADDED(name "-times-log2e", what " is added times log2(e)", setting, BY(NUMBER, MHA__LOG2_E)), \
    ADDED(name "-times-ln2", what " is added times ln(2)", setting, BY(NUMBER, MHA__LN_2)), \
    ADDED(name "-taken-away", what " is added with the other sign", setting, BY(NUMBER, -1))
#define BLOCKS(B) \
    SEES("lengths-up-to-blocks-" #B, "the lengths of the backward are rounded up to whole blocks of " #B " keys", \
         LENGTHS_UP, .step = B), \
    SEES("lengths-down-to-blocks-" #B, "the lengths of the backward are rounded down to whole blocks of " #B " keys", \
         LENGTHS_DOWN, .step = B), \
    SEES("window-by-blocks-" #B, "the window of the backward begins with a whole block of " #B " keys, the first " \
         "that a query of a block sees", WINDOW_BLOCKS, .step = B), \
    SEES("causal-by-blocks-" #B, "the backward is causal by blocks of " #B " keys: within the last one it hides none", \
         CAUSAL_BLOCKS, .step = B)

static const mha__gradient_bug rows[] = {
    MASKED("mask-transposed", "transposed: that of query j and key i hides key j from query i",
           MHA__READ_AS(BHTC, BHCT)),
    MASKED("masked-by-next-batch-row", "that of the next batch row", MHA__NEXT(B)),
    MASKED("masked-by-first-batch-row", "that of the first batch row", MHA__BY(FIRST, B, 0)),
    MASKED("masked-by-next-head", "that of the next head", MHA__NEXT(H)),
    MASKED("masked-by-first-head", "that of the first head", MHA__BY(FIRST, H, 0)),
    MASKED("masked-by-key-head", "that of the head with the number of the key/value head", MHA__BY(GROUP, H, 0)),
    MASKED("masked-by-next-query", "that of the next query", MHA__NEXT(T)),
    MASKED("masked-by-next-key", "that of the next key", MHA__NEXT(C)),
    MASKED("masked-by-previous-query", "that of the query before", MHA__PREVIOUS(T)),
    MASKED("masked-by-previous-key", "that of the key before", MHA__PREVIOUS(C)),
    MASK_BLOCKS(16), MASK_BLOCKS(32), MASK_BLOCKS(64), MASK_BLOCKS(128),
    TIMES("mask", "the mask", MASK_TIMES),
    SEES("alibi-not-recomputed", "P is computed from scores without ALiBi", SLOPES),
    TIMES("alibi", "ALiBi", SLOPES_TIMES),
    SEES("alibi-of-next-head", "P is computed from scores with ALiBi of the next head", SLOPES_OF, MHA__NEXT(H)),
    SEES("alibi-of-first-head", "P is computed from scores with ALiBi of the first head", SLOPES_OF,
         MHA__BY(FIRST, H, 0)),
    SEES("alibi-of-key-head", "P is computed from scores with ALiBi of the head with the number of the key/value head",
         SLOPES_OF, MHA__BY(GROUP, H, 0)),
    SEES("causal-missing", "the backward is not causal, the forward is", CAUSAL),
    SEES("causal-one-more", "the backward is causal with one key more: j <= i + 1", CAUSAL_MOVED, .step = 1),
    SEES("causal-strict", "the backward is causal without the query's own position: j < i", CAUSAL_MOVED, .step = -1),
    SEES("causal-top-left", "the backward is causal as if the queries were the first tokens", FIRST_TOKENS),
    SEES("causal-bottom-right", "the backward is causal as if the queries were the last tokens", LAST_TOKENS),
    BLOCKS(16), BLOCKS(32), BLOCKS(64), BLOCKS(128),
    SEES("window-missing", "the backward has no window, the forward has one", WINDOW),
    SEES("window-left-missing", "the window of the backward has no limit on the left", LEFT),
    SEES("window-right-missing", "the window of the backward has no limit on the right", RIGHT),
    SEES("window-one-more", "the window of the backward begins one key earlier", LEFT_MOVED, .step = 1),
    SEES("window-one-less", "the window of the backward begins one key later", LEFT_MOVED, .step = -1),
    SEES("window-right-one-more", "the window of the backward ends one key later", RIGHT_MOVED, .step = 1),
    SEES("window-right-one-less", "the window of the backward ends one key earlier", RIGHT_MOVED, .step = -1),
    SEES("window-mirrored", "the window of the backward has its limits left and right exchanged", WINDOW_MIRRORED),
    SEES("mask-missing", "the backward has no mask of flags, the forward has one", FLAGS),
    SEES("mask-inverted", "the backward takes the flags of its mask for their opposite", FLAGS_INVERTED),
    SEES("padding-missing", "the backward has no padding of keys, the forward has it", PADDING),
    SEES("segments-missing", "the backward has no segments, the forward has them", SEGMENTS),
    SEES("lengths-missing", "the backward counts keys behind the length of their sequence", LENGTHS),
    SEES("lengths-one-more", "the backward counts one key behind the length of its sequence", LENGTHS_MOVED, .step = 1),
    SEES("lengths-one-less", "the backward leaves out the last key of each sequence", LENGTHS_MOVED, .step = -1),
    SEES("lengths-of-next-batch-row", "the lengths of the backward are those of the next batch row", LENGTHS_OF,
         MHA__NEXT(B)),
    SEES("lengths-of-first-batch-row", "the lengths of the backward are that of the first batch row", LENGTHS_OF,
         MHA__BY(FIRST, B, 0)),
    SEES("hidden-pairs-counted", "the backward hides no pairs, the forward does", EVERYTHING),
    HIDDEN("scores-zero", "scores that are hidden are set to 0, not to minus infinity", SUMS, show_hidden, 0, 0),
    HIDDEN("pairs-in-dv", "P of pairs that are hidden is that of their scores, in dV alone", ADDED, count_hidden,
           MHA__LEAVES_Q | MHA__LEAVES_K, IN_DV),
    HIDDEN("pairs-in-ds", "P of pairs that are hidden is that of their scores, in dS alone", ADDED, count_hidden,
           MHA__LEAVES_V, IN_DS),
    HIDDEN("zeros-in-ds", "scores that are hidden are set to 0, not to minus infinity, in dS alone", ADDED,
           count_hidden, MHA__LEAVES_V, IN_DS_AS_0),
};
MHA__GRADIENT_BUGS(visible)
/* clang-format on */
