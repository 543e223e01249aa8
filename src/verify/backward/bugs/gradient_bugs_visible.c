/* Bugs of the keys that a backward sees, and of the terms that it adds to scores, when it computes P once more. */
#include "attention/call/definition.h"
#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/engine/program.h"

static bool mirror_window(const mha__backward *b, mha__program *program)
{
    mha_visible *v = &program->s.visible;
    const int64_t left = v->window_left;
    (void)b;
    v->window_left = v->window_right, v->window_right = left;
    return v->has_window_left && v->has_window_right && v->window_left != left;
}

static void show_all(mha_visible *v)
{
    v->causal = v->has_window_left = v->has_window_right = false, v->chunk = 0, v->kv_lengths = NULL;
    v->mask.kind = v->mask.kind == MHA_MASK_ADDITIVE ? MHA_MASK_ADDITIVE : MHA_MASK_NONE;
    v->key_padding.kind = v->key_padding.kind == MHA_MASK_ADDITIVE ? MHA_MASK_ADDITIVE : MHA_MASK_NONE;
    v->pattern = (mha_pattern){0};
}

/* How many things hide keys, besides added terms. */
static int hiders(const mha_visible *v)
{
    const mha_pattern *p = &v->pattern;
    const int named = v->causal + (v->has_window_left || v->has_window_right) + (v->kv_lengths != NULL) +
                      (v->pattern.q_segments.data != NULL) +
                      (v->mask.kind != MHA_MASK_NONE && v->mask.kind != MHA_MASK_ADDITIVE) +
                      (v->key_padding.kind != MHA_MASK_NONE && v->key_padding.kind != MHA_MASK_ADDITIVE);
    return named + (v->chunk > 0) + (p->key_lists.data != NULL) + (p->blocks.kind != MHA_MASK_NONE);
}

/* Everything that hides keys; more than one thing does, or one that has no name of its own. */
static bool show_pairs(const mha__backward *b, mha__program *program)
{
    const mha_visible *v = &mha__semantics_of(b->r)->visible;
    show_all(&program->s.visible);
    return hiders(v) > 1 || v->chunk || v->pattern.key_lists.data || v->pattern.blocks.kind;
}

static bool hides_pairs(const mha__backward *b, mha__program *program)
{
    (void)program;
    return hiders(&mha__semantics_of(b->r)->visible) > 0;
}

static bool show_hidden(const mha__backward *b, mha__program *program)
{
    show_all(&program->s.visible);
    return hides_pairs(b, program);
}

/* clang-format off */
#define MASKED(name, what, ...) \
    MHA__P_OF(name, "the mask of the backward is " what, NULL, NULL, .site = AT_MASK, .written = OP_FROM, __VA_ARGS__)
/* Hidden pairs count, by P of their scores or of scores of 0: only in dV, which reads P at the end, or in dS. */
#define HIDDEN(name, what, stage, leaving, bug, prepares, how) \
    {.shown = {"hidden-" name, what, false}, .step = MHA__BACKWARD_##stage, .leaves = leaving, .forward = bug, \
        .prepare = prepares, .mutation = {.op = MHA__RECOMPUTES, .readers = how}}
#define MASK_BLOCKS(B) \
    MASKED("masked-by-first-queries-" #B, "that of the query of the first " #B " with its place in its block", \
           MHA__BY(FIRST_BLOCK, T, B)), \
    MASKED("masked-by-first-keys-" #B, "that of the key of the first " #B " with its place in its block", \
           MHA__BY(FIRST_BLOCK, C, B))
#define ADDED(name, added, forward, numbers, ...) \
    MHA__P_OF(name, "P is computed from scores to which " added, forward, NULL, .readers = MHA__SAME_PAIRS, \
        .read = MHA__##numbers, __VA_ARGS__)
#define FACTOR(base, power) .arg = MHA__##base, .number = power
#define TIMES(name, what, ...) \
    ADDED(name "-added-twice", what " is added twice", __VA_ARGS__, FACTOR(NUMBER, 2)), \
    ADDED(name "-added-scaled", what " is added times the scale", __VA_ARGS__, FACTOR(SCALE, 1)), \
    ADDED(name "-added-unscaled", what " is added over the scale", __VA_ARGS__, FACTOR(SCALE, -1)), \
    ADDED(name "-times-log2e", what " is added times log2(e)", __VA_ARGS__, FACTOR(NUMBER, MHA__LOG2_E)), \
    ADDED(name "-times-ln2", what " is added times ln(2)", __VA_ARGS__, FACTOR(NUMBER, MHA__LN_2)), \
    ADDED(name "-taken-away", what " is added with the other sign", __VA_ARGS__, FACTOR(NUMBER, -1))
#define SLOPES(name, head, ...) \
    MHA__P_OF(name, "P is computed from scores with ALiBi of " head, "slopes-other", NULL, .read = MHA__SLOPES_OF, \
        __VA_ARGS__)
/* Rows that are a bug of a forward, if the call has what it needs. */
#define OF(name, what, forward) MHA__P_OF(name, what, forward, NULL, 0)
#define OF_CAUSAL(name, what, forward) MHA__P_OF(name, what, forward, NULL, .needs = MHA__HAS_CAUSAL)
#define BLOCKS(B) \
    OF("lengths-up-to-blocks-" #B, "the lengths of the backward are rounded up to whole blocks of " #B " keys", \
       "lengths-to-tile " #B), \
    OF("lengths-down-to-blocks-" #B, "the lengths of the backward are rounded down to whole blocks of " #B " keys", \
       "lengths-to-tile -" #B), \
    MHA__P_OF("window-by-blocks-" #B, "the window of the backward begins with a whole block of " #B " keys, the " \
        "first that a query of a block sees", NULL, NULL, .site = AT_WINDOW, .written = OP_KEEP, .step = B), \
    OF_CAUSAL("causal-by-blocks-" #B, "the backward is causal by blocks of " #B " keys: within the last one it hides " \
        "none", "causal-block " #B)

static const mha__gradient_bug rows[] = {
    OF("mask-transposed", "the mask of the backward is transposed: that of query j and key i hides key j from query i",
       "mask-transposed"),
    MASKED("masked-by-next-batch-row", "that of the next batch row", MHA__NEXT(B)),
    MASKED("masked-by-first-batch-row", "that of the first batch row", MHA__BY(FIRST, B, 0)),
    MASKED("masked-by-next-head", "that of the next head", MHA__NEXT(H)),
    MASKED("masked-by-first-head", "that of the first head", MHA__BY(FIRST, H, 0)),
    MASKED("masked-by-key-head", "that of the head with the number of the key/value head", MHA__BY(GROUP, H, 0)),
    MASKED("masked-by-next-query", "that of the next query", MHA__NEXT(T)),
    MASKED("masked-by-next-key", "that of the next key", MHA__NEXT(C)),
    MASKED("masked-by-previous-query", "that of the query before", MHA__PREVIOUS(T)),
    MASKED("masked-by-previous-key", "that of the key before", MHA__PREVIOUS(C)),
    TIMES("mask", "the mask", "mask-times", A_FACTOR),
    MHA__P_OF("alibi-not-recomputed", "P is computed from scores without ALiBi", "alibi-missing", NULL,
        .needs = MHA__HAS_MORE_ADDED),
    TIMES("alibi", "ALiBi", "slopes-other", SLOPES_TIMES),
    SLOPES("alibi-of-next-head", "the next head", MHA__NEXT(H)),
    SLOPES("alibi-of-first-head", "the first head", MHA__BY(FIRST, H, 0)),
    SLOPES("alibi-of-key-head", "the head with the number of the key/value head", MHA__BY(GROUP, H, 0)),
    OF("causal-missing", "the backward is not causal, the forward is", "causal-missing"),
    OF("causal-one-more", "the backward is causal with one key more: j <= i + 1", "causal-plus-1"),
    OF("causal-strict", "the backward is causal without the query's own position: j < i", "causal-strict"),
    OF_CAUSAL("causal-top-left", "the backward is causal as if the queries were the first tokens", "causal-top-left"),
    OF_CAUSAL("causal-bottom-right", "the backward is causal as if the queries were the last tokens",
        "causal-bottom-right"),
    OF("window-missing", "the backward has no window, the forward has one", "window-missing"),
    OF("window-left-missing", "the window of the backward has no limit on the left", "window-right-only"),
    OF("window-right-missing", "the window of the backward has no limit on the right", "window-left-only"),
    OF("window-one-more", "the window of the backward begins one key earlier", "window-left-more"),
    OF("window-one-less", "the window of the backward begins one key later", "window-left-less"),
    OF("window-right-one-more", "the window of the backward ends one key later", "window-right-more"),
    OF("window-right-one-less", "the window of the backward ends one key earlier", "window-right-less"),
    MHA__P_OF("window-mirrored", "the window of the backward has its limits left and right exchanged", NULL,
        mirror_window, 0),
    MHA__P_OF("mask-missing", "the backward has no mask of flags, the forward has one", "mask-missing", NULL,
        .needs = MHA__HAS_FLAGS),
    OF("mask-inverted", "the backward takes the flags of its mask for their opposite", "mask-polarity"),
    OF("padding-missing", "the backward has no padding of keys, the forward has it", "padding-missing"),
    OF("segments-missing", "the backward has no segments, the forward has them", "segments-missing"),
    OF("lengths-missing", "the backward counts keys behind the length of their sequence", "lengths-missing"),
    OF("lengths-one-more", "the backward counts one key behind the length of its sequence", "lengths-more"),
    OF("lengths-one-less", "the backward leaves out the last key of each sequence", "lengths-less"),
    MHA__P_OF("lengths-of-next-batch-row", "the lengths of the backward are those of the next batch row",
        "lengths-other", NULL, .read = MHA__LENGTHS_OF, MHA__NEXT(B)),
    MHA__P_OF("lengths-of-first-batch-row", "the lengths of the backward are that of the first batch row",
        "lengths-other", NULL, .read = MHA__LENGTHS_OF, MHA__BY(FIRST, B, 0)),
    MHA__P_OF("hidden-pairs-counted", "the backward hides no pairs, the forward does", NULL, show_pairs, 0),
    HIDDEN("scores-zero", "scores that are hidden are set to 0, not to minus infinity", SUMS, 0, "fill-0",
        hides_pairs, 0),
    HIDDEN("pairs-in-dv", "P of pairs that are hidden is that of their scores, in dV alone", SCORES,
        MHA__LEAVES_Q | MHA__LEAVES_K, NULL, show_hidden, 0),
    HIDDEN("pairs-in-ds", "P of pairs that are hidden is that of their scores, in dS alone", SCORES, MHA__LEAVES_V,
        NULL, show_hidden, MHA__IN_DS_ALONE),
    HIDDEN("zeros-in-ds", "scores that are hidden are set to 0, not to minus infinity, in dS alone", SCORES,
        MHA__LEAVES_V, "fill-0", hides_pairs, MHA__IN_DS_ALONE),
    MASK_BLOCKS(16), MASK_BLOCKS(32), MASK_BLOCKS(64), MASK_BLOCKS(128),
    BLOCKS(16), BLOCKS(32), BLOCKS(64), BLOCKS(128),
};
MHA__GRADIENT_BUGS(visible)
/* clang-format on */
