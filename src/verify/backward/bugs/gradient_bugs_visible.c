/* Bugs of which keys a backward sees, and of what it adds to scores, when it computes P once more. The call is seen
 * with other settings, or with those of another batch row or head, and P follows. */
#include <math.h>
#include <string.h>

#include "attention/core/exact/exact_visible.h"
#include "base/base.h"
#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/backward/bugs/scores.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

typedef enum visibility {
    CAUSAL_MISSING,
    CAUSAL_MOVED, /* by `other` keys */
    FIRST_TOKENS, /* the queries are the first ones of the keys, or */
    LAST_TOKENS,
    CAUSAL_BLOCKS, /* of `other` keys are seen whole */
    WINDOW_MISSING,
    LEFT_MISSING,
    RIGHT_MISSING,
    LEFT_MOVED, /* by `other` keys */
    RIGHT_MOVED,
    WINDOW_MIRRORED,
    LENGTHS_MISSING,
    LENGTHS_MOVED, /* by `other` keys */
    LENGTHS_OF_NEXT,
    LENGTHS_OF_FIRST,
    LENGTHS_UP, /* to whole blocks of `other` keys */
    LENGTHS_DOWN,
    WINDOW_BLOCKS, /* of `other` keys are seen whole where a query of a block of as many sees one */
    FLAGS_MISSING,
    FLAGS_INVERTED,
    MASK_ELSEWHERE, /* by an index map */
    MASK_TIMES,     /* what the mask adds, `other` times; 0: times the scale, INFINITY: over the scale */
    SLOPES_TIMES,
    SLOPES_MISSING,
    SLOPES_OF_NEXT_HEAD,
    SLOPES_OF_FIRST_HEAD,
    SLOPES_OF_KEY_HEAD,
    PADDING_MISSING,
    SEGMENTS_MISSING,
    NOTHING_HIDDEN /* but what is added may be minus infinity */
} visibility;

/* A call as it is seen by mistake, a query at a time. */
typedef struct seeing {
    mha__resolved r;
    mha__sequence s;
    visibility how;
    double times; /* of the difference that the bug makes in what is added */
} seeing;

static visibility visibility_of(const mha__gradient_bug *m)
{
    return (visibility)(int)m->number;
}

/* What the mask adds to a score, read elsewhere; minus infinity hides the key. */
static double mask_elsewhere(const mha__backward *b, const mha__map *map, const mha__gradient_bug *m, size_t i,
                             size_t j)
{
    const mha__sizes *p = &b->r->plan;
    const mha__extents n = {{p->B, mha__resolved_sequence(b->r, map->b).T_q, p->h, map->s.S}, MHA__BHTC,
                            p->h / p->h_kv, 1};
    const mha__element of = mha__map_element(&m->mutation, &n, (mha__element){{map->b, i, map->head, j}});
    return mha__exact_parts_of(b->r, &map->s, of.at[MHA__B], of.at[MHA__H], of.at[MHA__T], of.at[MHA__C]).mask;
}

/* `lengths`: memory for those of all batch rows. */
static void change_lengths(const mha__backward *b, seeing *x, int64_t move, int64_t *lengths)
{
    const mha__sizes *p = &b->r->plan;
    const int64_t *right = b->r->semantics.visible.kv_lengths;
    for (size_t at = 0; at < p->B; at++)
        lengths[at] = x->how == LENGTHS_OF_NEXT    ? right[(at + 1) % p->B]
                      : x->how == LENGTHS_OF_FIRST ? right[0]
                      : x->how == LENGTHS_UP       ? (right[at] + move - 1) / move * move
                      : x->how == LENGTHS_DOWN     ? right[at] / move * move
                                                   : right[at] + move;
    x->r.semantics.visible.kv_lengths = lengths;
}

static void show_all(mha_visible *v)
{
    v->causal = v->window = false, v->chunk = 0, v->kv_lengths = NULL;
    v->mask.kind = v->mask.kind == MHA_MASK_ADDITIVE ? MHA_MASK_ADDITIVE : MHA_MASK_NONE;
    v->key_padding.kind = v->key_padding.kind == MHA_MASK_ADDITIVE ? MHA_MASK_ADDITIVE : MHA_MASK_NONE;
    v->pattern = (mha_pattern){0};
}

/* How often what is added is added. */
static double times_of(const mha__backward *b, size_t head, const mha__gradient_bug *m)
{
    const mha__sizes *p = &b->r->plan;
    const double *slopes = b->r->semantics.added.alibi_slopes;
    switch (visibility_of(m)) {
    case SLOPES_OF_NEXT_HEAD: return slopes[(head + 1) % p->h] / slopes[head];
    case SLOPES_OF_FIRST_HEAD: return slopes[0] / slopes[head];
    case SLOPES_OF_KEY_HEAD: return slopes[head / (p->h / p->h_kv)] / slopes[head];
    default: return m->other == 0 ? p->scale : isinf(m->other) ? 1 / p->scale : m->other;
    }
}

static seeing see_by_bug(const mha__backward *b, const mha__map *map, const mha__gradient_bug *m, int64_t *lengths)
{
    seeing x = {*b->r, map->s, visibility_of(m), 1};
    mha_visible *v = &x.r.semantics.visible;
    const int64_t left = v->window_left, other = isfinite(m->other) ? (int64_t)m->other : 0;
    if (x.how >= MASK_TIMES && x.how <= SLOPES_OF_KEY_HEAD && x.how != SLOPES_MISSING)
        x.times = 1 - times_of(b, map->head, m); /* what is added is right less so much of it */
    switch (x.how) {
    case CAUSAL_MISSING: v->causal = false; break;
    case CAUSAL_MOVED:
        x.s.offset += other, v->window_left += v->window_left >= 0 ? other : 0;
        v->window_right -= v->window_right > 0 ? other : 0;
        break;
    case FIRST_TOKENS: x.s.offset = 0; break;
    case LAST_TOKENS: x.s.offset = (int64_t)map->s.S - (int64_t)mha__resolved_sequence(b->r, map->b).T_q; break;
    case CAUSAL_BLOCKS: break;
    case WINDOW_MISSING: v->window = false; break;
    case LEFT_MISSING: v->window_left = -1; break;
    case RIGHT_MISSING: v->window_right = -1; break;
    case LEFT_MOVED: v->window_left += other; break;
    case RIGHT_MOVED: v->window_right += other; break;
    case WINDOW_MIRRORED: v->window_left = v->window_right, v->window_right = left; break;
    case LENGTHS_MISSING: v->kv_lengths = NULL; break;
    case WINDOW_BLOCKS: break;
    case LENGTHS_MOVED:
    case LENGTHS_UP:
    case LENGTHS_DOWN:
    case LENGTHS_OF_NEXT:
    case LENGTHS_OF_FIRST: change_lengths(b, &x, other, lengths); break;
    case FLAGS_INVERTED: v->mask.kind = v->mask.kind == MHA_MASK_KEEPS ? MHA_MASK_HIDES : MHA_MASK_KEEPS; break;
    case MASK_ELSEWHERE:
    case MASK_TIMES:
    case FLAGS_MISSING: v->mask.kind = MHA_MASK_NONE; break;
    case SLOPES_TIMES:
    case SLOPES_OF_NEXT_HEAD:
    case SLOPES_OF_FIRST_HEAD:
    case SLOPES_OF_KEY_HEAD:
    case SLOPES_MISSING: x.r.semantics.added.alibi_slopes = NULL; break;
    case PADDING_MISSING: v->key_padding.kind = MHA_MASK_NONE, v->has_padding_fill = false; break;
    case SEGMENTS_MISSING: v->pattern.q_segments.data = v->pattern.k_segments.data = NULL; break;
    case NOTHING_HIDDEN: show_all(v); break;
    }
    return x;
}

/* What query i sees, and what is added; where a factor is wrong it sees what is right. */
static void see_query(const mha__backward *b, seeing *x, const mha__map *map, const mha__gradient_bug *m, size_t i,
                      unsigned char *seen, double *added)
{
    if (x->how == CAUSAL_BLOCKS) {
        const int64_t p = map->s.offset + (int64_t)i, block = (int64_t)m->other;
        x->s.offset = p / block * block + block - 1 - (int64_t)i;
    }
    if (x->how == WINDOW_BLOCKS) {
        const int64_t block = (int64_t)m->other, p = map->s.offset + (int64_t)i,
                      left = b->r->semantics.visible.window_left, first = p / block * block - left,
                      begin = first > 0 ? first / block * block : 0;
        x->r.semantics.visible.window_left = p - begin;
    }
    mha__exact_see(&x->r, &x->s, map->b, map->head, i, seen, added);
    for (size_t j = 0; x->how == MASK_ELSEWHERE && j < map->s.S; j++) {
        const double mask = mask_elsewhere(b, map, m, i, j);
        seen[j] = seen[j] && mask > -INFINITY;
        added[j] += seen[j] ? mask : 0;
    }
}

static void see_otherwise(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const mha_allocator a = mha__allocator_default();
    const size_t S = map->s.S, B = b->r->plan.B, bytes = 2 * S * (sizeof(double) + 1) + B * sizeof(int64_t);
    double *room = mha__allocate(&a, bytes);
    if (!room)
        return;
    double *added[2] = {room, room + S};
    int64_t *lengths = (int64_t *)(void *)(room + 2 * S);
    unsigned char *seen[2] = {(unsigned char *)(lengths + B), (unsigned char *)(lengths + B) + S};
    seeing x = see_by_bug(b, map, m, lengths);
    const bool moves = x.how == CAUSAL_MOVED || x.how == FIRST_TOKENS || x.how == LAST_TOKENS || x.how == CAUSAL_BLOCKS;
    x.r.semantics.added.bias.rule = moves ? MHA_BIAS_RULE_NONE : x.r.semantics.added.bias.rule;
    for (size_t i = 0; i < map->s.T_q; i++) {
        mha__exact_see(b->r, &map->s, map->b, map->head, i, seen[0], added[0]);
        see_query(b, &x, map, m, i, seen[1], added[1]);
        if (moves) { /* what is added stays that of the right positions: the others may have no bias */
            seeing all = x;
            all.r.semantics.visible.causal = false, all.s = map->s;
            all.r.semantics.added.bias = b->r->semantics.added.bias;
            mha__exact_see(&all.r, &all.s, map->b, map->head, i, seen[0], added[0]);
            memcpy(added[1], added[0], S * sizeof *added[1]);
        }
        for (size_t j = 0; j < S; j++) {
            const size_t at = i * map->n + j;
            const bool was = map->seen[at] == MHA__SEEN, now = seen[1][j] && (!moves || seen[0][j]);
            const double more = x.times * (added[1][j] - added[0][j]);
            if (was && (now || x.times != 1) && more != 0)
                map->weights[at] *= exp(more);
            else
                mha__show_pair(b, map, i, j, x.times != 1 ? was : now, added[1][j]);
        }
    }
    mha__release(&a, room, bytes);
}

/* ---------------------------------------------------------------- pairs that are hidden */

/* Scores of the hidden pairs are 0. */
static void show_hidden(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)m;
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

static void count_hidden(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
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
                count_pair(b, map, (counted)(int)m->number, i, j, added[j]);
    }
    mha__release(&a, added, added ? bytes : 0);
}

/* ---------------------------------------------------------------- which calls have what it takes */

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
static bool has_elsewhere(const mha__backward *b, const mha__gradient_bug *bug)
{
    static const int from_right[] = {[MHA__B] = 4, [MHA__T] = 2, [MHA__H] = 3, [MHA__C] = 1};
    const mha__mutation *m = &bug->mutation;
    const mha__sizes *p = &b->r->plan;
    if (m->arg == MHA__VIEW)
        return !b->r->semantics.place.cu_seqlens_q && has_square_mask(b);
    return !b->r->semantics.place.cu_seqlens_q && has_own_masks(&b->r->semantics.visible.mask, from_right[m->axis]) &&
           (m->arg != MHA__GROUP || p->h > p->h_kv) &&
           (m->arg != MHA__FIRST_BLOCK || (m->axis == MHA__T ? p->T_q : p->S) > (size_t)m->step);
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

/* How many things hide keys, beside what is added. */
static int hiders(const mha_visible *v)
{
    const mha_pattern *p = &v->pattern;
    const int named = v->causal + v->window + (v->kv_lengths != NULL) + (v->pattern.q_segments.data != NULL) +
                      (v->mask.kind != MHA_MASK_NONE && v->mask.kind != MHA_MASK_ADDITIVE) +
                      (v->key_padding.kind != MHA_MASK_NONE && v->key_padding.kind != MHA_MASK_ADDITIVE);
    return named + (v->chunk > 0) + (p->key_lists.data != NULL) + (p->blocks.kind != MHA_MASK_NONE);
}

/* More than one does, or one that has no name of its own. */
static bool hides_together(const mha_visible *v)
{
    return hiders(v) > 1 || v->chunk || v->pattern.key_lists.data || v->pattern.blocks.kind;
}

static bool has_visibility(const mha__backward *b, const mha__gradient_bug *m)
{
    const mha_visible *v = &b->r->semantics.visible;
    const mha_added *added = &b->r->semantics.added;
    const mha__sizes *p = &b->r->plan;
    const bool flags = v->mask.kind && v->mask.kind != MHA_MASK_ADDITIVE, adds = v->mask.kind == MHA_MASK_ADDITIVE,
               left = v->window && v->window_left >= 0, right = v->window && v->window_right >= 0, many = p->B > 1,
               plain = v->causal && !v->window && !v->chunk && !v->prefix;
    const int64_t more = isfinite(m->other) ? (int64_t)m->other : 0;
    if (!sees_pairs(b))
        return false;
    switch (visibility_of(m)) {
    case CAUSAL_MISSING: return v->causal;
    case CAUSAL_MOVED: return v->causal && !v->chunk && (!left || v->window_left + more >= 0) && !right;
    case FIRST_TOKENS:
    case LAST_TOKENS: return plain && p->T_q != p->S;
    case CAUSAL_BLOCKS: return plain;
    case WINDOW_MISSING: return v->window;
    case LEFT_MISSING:
    case RIGHT_MISSING: return left && right;
    case LEFT_MOVED: return left && v->window_left + more >= 0;
    case RIGHT_MOVED: return right && v->window_right + more >= 0;
    case WINDOW_MIRRORED: return left && right && v->window_left != v->window_right;
    case LENGTHS_MISSING:
    case LENGTHS_UP:
    case LENGTHS_DOWN:
    case LENGTHS_MOVED: return v->kv_lengths;
    case WINDOW_BLOCKS: return left && b->r->first_key == 0;
    case LENGTHS_OF_NEXT:
    case LENGTHS_OF_FIRST: return v->kv_lengths && many;
    case FLAGS_MISSING:
    case FLAGS_INVERTED: return flags;
    case MASK_ELSEWHERE: return has_elsewhere(b, m);
    case MASK_TIMES: return adds && times_of(b, 0, m) != 1;
    case SLOPES_TIMES: return added->alibi_slopes && times_of(b, 0, m) != 1;
    case SLOPES_OF_NEXT_HEAD:
    case SLOPES_OF_FIRST_HEAD: return has_slopes(b);
    case SLOPES_OF_KEY_HEAD: return has_slopes(b) && p->h > p->h_kv;
    case SLOPES_MISSING: return added->alibi_slopes && (adds || added->bias.rule != MHA_BIAS_RULE_NONE);
    case PADDING_MISSING: return v->key_padding.kind || v->has_padding_fill;
    case SEGMENTS_MISSING: return v->pattern.q_segments.data;
    case NOTHING_HIDDEN: return hides_together(v);
    }
    return false;
}

/* Something hides keys beside what is added. */
static bool hides_keys(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return sees_pairs(b) && hiders(&b->r->semantics.visible) > 0;
}

/* clang-format off */
#define SEES(name, what, how, other) \
    {{name, what, false}, has_visibility, MHA__BACKWARD_SUMS, see_otherwise, how, other, NULL, 0, {0}}
#define MASKED(name, what, ...) \
    {{name, "the mask of the backward is " what, false}, has_visibility, MHA__BACKWARD_SUMS, see_otherwise, \
        MASK_ELSEWHERE, 0, NULL, 0, {__VA_ARGS__}}
#define MASK_BLOCKS(B) \
    MASKED("masked-by-first-queries-" #B, "that of the query of the first " #B " with its place in its block", \
           MHA__BY(FIRST_BLOCK, T, B)), \
    MASKED("masked-by-first-keys-" #B, "that of the key of the first " #B " with its place in its block", \
           MHA__BY(FIRST_BLOCK, C, B))
#define ADDED(name, added, how, times) SEES(name, "P is computed from scores to which " added, how, times)
#define TIMES(name, what, how) \
    ADDED(name "-added-twice", what " is added twice", how, 2), \
    ADDED(name "-added-scaled", what " is added times the scale", how, 0), \
    ADDED(name "-added-unscaled", what " is added over the scale", how, INFINITY), \
    ADDED(name "-times-log2e", what " is added times log2(e)", how, 1.4426950408889634), \
    ADDED(name "-times-ln2", what " is added times ln(2)", how, 0.6931471805599453), \
    ADDED(name "-taken-away", what " is added with the other sign", how, -1)
#define BLOCKS(B) \
    SEES("lengths-up-to-blocks-" #B, "the lengths of the backward are rounded up to whole blocks of " #B " keys", \
         LENGTHS_UP, B), \
    SEES("lengths-down-to-blocks-" #B, "the lengths of the backward are rounded down to whole blocks of " #B " keys", \
         LENGTHS_DOWN, B), \
    SEES("window-by-blocks-" #B, "the window of the backward begins with a whole block of " #B " keys, the first " \
         "that a query of a block sees", WINDOW_BLOCKS, B), \
    SEES("causal-by-blocks-" #B, "the backward is causal by blocks of " #B " keys: within the last one it hides none", \
         CAUSAL_BLOCKS, B)

static const mha__gradient_bug rows[] = {
    MASKED("mask-transposed", "transposed: that of query j and key i hides key j from query i", MHA__READ_AS(BHTC,
           BHCT)),
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
    SEES("alibi-not-recomputed", "P is computed from scores without ALiBi", SLOPES_MISSING, 0),
    TIMES("alibi", "ALiBi", SLOPES_TIMES),
    SEES("alibi-of-next-head", "P is computed from scores with ALiBi of the next head", SLOPES_OF_NEXT_HEAD, 1),
    SEES("alibi-of-first-head", "P is computed from scores with ALiBi of the first head", SLOPES_OF_FIRST_HEAD, 1),
    SEES("alibi-of-key-head", "P is computed from scores with ALiBi of the head with the number of the key/value head",
         SLOPES_OF_KEY_HEAD, 1),
    SEES("causal-missing", "the backward is not causal, the forward is", CAUSAL_MISSING, 0),
    SEES("causal-one-more", "the backward is causal with one key more: j <= i + 1", CAUSAL_MOVED, 1),
    SEES("causal-strict", "the backward is causal without the query's own position: j < i", CAUSAL_MOVED, -1),
    SEES("causal-top-left", "the backward is causal as if the queries were the first tokens", FIRST_TOKENS, 0),
    SEES("causal-bottom-right", "the backward is causal as if the queries were the last tokens", LAST_TOKENS, 0),
    BLOCKS(16), BLOCKS(32), BLOCKS(64), BLOCKS(128),
    SEES("window-missing", "the backward has no window, the forward has one", WINDOW_MISSING, 0),
    SEES("window-left-missing", "the window of the backward has no limit on the left", LEFT_MISSING, 0),
    SEES("window-right-missing", "the window of the backward has no limit on the right", RIGHT_MISSING, 0),
    SEES("window-one-more", "the window of the backward begins one key earlier", LEFT_MOVED, 1),
    SEES("window-one-less", "the window of the backward begins one key later", LEFT_MOVED, -1),
    SEES("window-right-one-more", "the window of the backward ends one key later", RIGHT_MOVED, 1),
    SEES("window-right-one-less", "the window of the backward ends one key earlier", RIGHT_MOVED, -1),
    SEES("window-mirrored", "the window of the backward has its limits left and right exchanged", WINDOW_MIRRORED, 0),
    SEES("mask-missing", "the backward has no mask of flags, the forward has one", FLAGS_MISSING, 0),
    SEES("mask-inverted", "the backward takes the flags of its mask for their opposite", FLAGS_INVERTED, 0),
    SEES("padding-missing", "the backward has no padding of keys, the forward has it", PADDING_MISSING, 0),
    SEES("segments-missing", "the backward has no segments, the forward has them", SEGMENTS_MISSING, 0),
    SEES("lengths-missing", "the backward counts keys behind the length of their sequence", LENGTHS_MISSING, 0),
    SEES("lengths-one-more", "the backward counts one key behind the length of its sequence", LENGTHS_MOVED, 1),
    SEES("lengths-one-less", "the backward leaves out the last key of each sequence", LENGTHS_MOVED, -1),
    SEES("lengths-of-next-batch-row", "the lengths of the backward are those of the next batch row", LENGTHS_OF_NEXT,
         0),
    SEES("lengths-of-first-batch-row", "the lengths of the backward are that of the first batch row", LENGTHS_OF_FIRST,
         0),
    SEES("hidden-pairs-counted", "the backward hides no pairs, the forward does", NOTHING_HIDDEN, 0),
    {{"hidden-scores-zero", "scores that are hidden are set to 0, not to minus infinity", false},
        hides_keys, MHA__BACKWARD_SUMS, show_hidden, 0, 0, NULL, 0, {0}},
    {{"hidden-pairs-in-dv", "P of pairs that are hidden is that of their scores, in dV alone", false},
        hides_keys, MHA__BACKWARD_ADDED, count_hidden, IN_DV, 0, NULL, MHA__LEAVES_Q | MHA__LEAVES_K, {0}},
    {{"hidden-pairs-in-ds", "P of pairs that are hidden is that of their scores, in dS alone", false},
        hides_keys, MHA__BACKWARD_ADDED, count_hidden, IN_DS, 0, NULL, MHA__LEAVES_V, {0}},
    {{"hidden-zeros-in-ds", "scores that are hidden are set to 0, not to minus infinity, in dS alone", false},
        hides_keys, MHA__BACKWARD_ADDED, count_hidden, IN_DS_AS_0, 0, NULL, MHA__LEAVES_V, {0}},
};
/* clang-format on */

mha__gradient_bug_list mha__gradient_bugs_of_visible(void)
{
    return (mha__gradient_bug_list){rows, COUNT(rows)};
}
