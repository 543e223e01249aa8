/* What the lists of bugs share: the form of a list, and the predicates of a case. lists/list.h has the form of a
 * row. */
#ifndef MHA_VERIFY_BUGS_BUGS_H
#define MHA_VERIFY_BUGS_BUGS_H

#include <math.h>

#include "attention/visibility/pattern.h"
#include "verify/bugs/knobs.h"

/* The list is written region by region, in the order of the data flow. */
typedef struct mha__bug_list {
    const mha__bug_entry *entries;
    size_t count;
} mha__bug_list;

extern const mha__bug_list mha__bugs_of_rows; /* projections, splitting, rotation */
extern const mha__bug_list mha__bugs_of_rows_solved;
extern const mha__bug_list mha__bugs_of_caches; /* what is read of cached rows */
extern const mha__bug_list mha__bugs_of_norms;  /* norms of q and k, scale by position */
extern const mha__bug_list mha__bugs_of_scores; /* keys, scores, masks, softmax, values */
extern const mha__bug_list mha__bugs_of_bias;   /* relative position bias */
extern const mha__bug_list mha__bugs_of_scores_solved;
extern const mha__bug_list mha__bugs_of_rounding; /* of one point alone */
extern const mha__bug_list mha__bugs_of_output;   /* merging of heads, output projection */

/* clang-format off */
/* Predicates of a case c, of the knobs k of a bug, or of both, as rows of lists use them. */
#define PREDICATE(name, is) static inline bool name(const mha_case *c) { return is; }
#define PREDICATE_OF_KNOBS(name, is) static inline bool name(const mha__knobs *k) { return is; }
#define PREDICATE_OF_BOTH(name, is) static inline bool name(const mha_case *c, const mha__knobs *k) { return is; }
/* Numbers that a bug tries: *x is number `index`; false past the last one. */
#define NUMBERS_OF(name, is) \
    static inline bool name(const mha_case *c, size_t index, double *x) { (void)c; return is; }
#define NUMBERS(name, number, is) NUMBERS_OF(name, (*x = (number), (is)))

static inline bool has_weight(const mha_case *c, mha_weight w)
{
    return c->weights[CASE_RECORDED][w].data != NULL;
}

static inline bool hides_keys(const mha_case *c)
{
    const mha__visibility v = mha__visibility_of(&c->semantics, 0);
    return mha__hides_keys(&v, &c->weights[CASE_RECORDED][MHA_BIAS_TABLE]);
}

/* Hidden scores become a number, or it is added to them. */
static inline void fill_hidden(mha__knobs *k, int how, double value)
{
    k->fill = how;
    k->fill_value = value;
}

PREDICATE(has_norm, has_weight(c, MHA_Q_NORM) || has_weight(c, MHA_K_NORM) || c->semantics.qkv.norm.unweighted)
PREDICATE(has_rope, c->semantics.qkv.rope.kind != MHA_ROPE_NONE)
PREDICATE(attends, c->kind != CASE_ROPE)
/* Whether weights are those of a softmax, or of a sigmoid in its place. */
PREDICATE(softens, attends(c) && c->semantics.softmax.normaliser == MHA_SOFTMAX)
PREDICATE(has_sigmoid, attends(c) && c->semantics.softmax.normaliser == MHA_SIGMOID)

/* Whether each of n numbers is one of the indices below another number. */
static inline bool are_indices(const double *x, size_t n, size_t below)
{
    bool all = true;
    for (size_t i = 0; i < n; i++)
        all &= x[i] >= 0 && x[i] < (double)below && x[i] == floor(x[i]);
    return all;
}

static inline bool is_whole(double x)
{
    return fabs(x) <= 0x1p31 && x == floor(x);
}

/* 1, -1, 2, -2, ... as far as half of n, and not beyond 64. */
static inline bool any_move(size_t n, size_t index, double *x)
{
    const size_t size = index / 2 + 1;
    *x = index % 2 ? -(double)size : (double)size;
    return size <= 64 && (index % 2 ? 2 * size < n : 2 * size <= n);
}

/* Bits of float16 and TF32, of bfloat16, and of float8. */
static inline bool any_bits(const mha_case *c, size_t index, double *x)
{
    static const double bits[] = {11, 8, BITS_E4M3, BITS_E5M2};
    (void)c;
    *x = bits[index < 4 ? index : 0];
    return index < 4;
}

static inline bool is_boolean(const mha_mask *mask)
{
    return mask->kind == MHA_MASK_KEEPS || mask->kind == MHA_MASK_HIDES;
}

/* Whether the mask has an axis of its own, which is so many from the end. */
static inline bool has_mask_axis(const mha_case *c, int from_end)
{
    const mha_mask *mask = &c->semantics.visible.mask;
    const int axis = mask->values.rank - from_end;
    return mask->kind && axis >= 0 && mask->values.shape[axis] > 1;
}

PREDICATE(has_cap, attends(c) && c->semantics.softmax.softcap > 0)
PREDICATE(has_left, c->semantics.visible.has_window_left)
PREDICATE(has_right, c->semantics.visible.has_window_right)
PREDICATE(is_windowed, has_left(c) || has_right(c))

static inline void limit_left(mha__knobs *k, int64_t keys)
{
    k->s.visible.has_window_left = true;
    k->s.visible.window_left = keys;
}

static inline void limit_right(mha__knobs *k, int64_t keys)
{
    k->s.visible.has_window_right = true;
    k->s.visible.window_right = keys;
}

static inline void open_left(mha__knobs *k)
{
    k->s.visible.has_window_left = false;
    k->s.visible.window_left = 0;
}

static inline void open_right(mha__knobs *k)
{
    k->s.visible.has_window_right = false;
    k->s.visible.window_right = 0;
}
/* clang-format on */

#endif
