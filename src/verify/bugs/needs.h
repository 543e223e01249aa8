/* Declarations that the lists of bugs share: the form of a list, mutations of a row, and predicates of a case. */
#ifndef MHA_VERIFY_BUGS_NEEDS_H
#define MHA_VERIFY_BUGS_NEEDS_H

#include <math.h>

#include "attention/visibility/pattern.h"
#include "verify/bugs/bugs.h"

/* The list of one region of the data flow. */
typedef struct mha__bug_list {
    const mha__bug_entry *entries;
    size_t count;
} mha__bug_list;

extern const mha__bug_list mha__bugs_of_rows, mha__bugs_of_scores, mha__bugs_of_output;

/* clang-format off */
/* Mutations of a row: a mark only, with an argument, a number, a step, sides, numbers found by a search, an index map,
 * a view of memory. Those with _H read other heads or batch rows (ACROSS). */
enum { Q = MHA__SIDE_Q, K = MHA__SIDE_K, V = MHA__SIDE_V };
enum { MHA__BTCH = MHA__ORDER(B, T, C, H) };
#define ACROSS .readers = 1
#define PUT(Site, Op, ...) mha__put(k, (mha__mutation){.site = AT_##Site, .op = OP_##Op, __VA_ARGS__})
#define MARK(Site, Op) PUT(Site, Op, .readers = 0)
#define MARK_H(Site, Op) PUT(Site, Op, ACROSS)
#define ARG(Site, Op, what) PUT(Site, Op, .arg = MHA__##what)
#define ARG_H(Site, Op, what) PUT(Site, Op, .arg = MHA__##what, ACROSS)
#define NUM(Site, Op, by) PUT(Site, Op, .number = by)
/* A factor that is 1 is no mutation. */
#define FACTOR(Site, by) if ((by) != 1) NUM(Site, TIMES, by)
#define NUM_H(Site, Op, by) PUT(Site, Op, .number = by, ACROSS)
#define STEP(Site, Op, by) PUT(Site, Op, .step = (long long)(by))
#define SIDES(Site, Op, of) PUT(Site, Op, .sides = (unsigned char)(of))
#define SIDES_H(Site, Op, of) PUT(Site, Op, .sides = (unsigned char)(of), ACROSS)
#define OF_SIDES(Site, Op, of, by) PUT(Site, Op, .sides = of, .number = by, .readers = AT_##Site == AT_PAST)
#define NUMS(Site, Op) PUT(Site, Op, .table = x)
/* A number or rules more than the program has. */
#define MORE(Site, Op, by) NUM(Site, Op, mha__number(k, AT_##Site, OP_##Op, 0) + (by))
#define RULES(Op, bits) PUT(RULES, Op, .arg = (unsigned char)(mha__arg(k, AT_RULES, OP_##Op) | (bits)))
#define RULE(Op, rule) RULES(Op, MHA__RULE_##rule)
#define AXIS(Site, Axis) .axis = MHA__##Axis, .readers = AT_##Site == AT_ROW || AT_##Site == AT_PAST || \
    MHA__##Axis == MHA__H || MHA__##Axis == MHA__B
#define FROM(Site, of, map, Axis, by) \
    PUT(Site, FROM, .sides = of, .arg = MHA__##map, .step = (long long)(by), AXIS(Site, Axis))
#define TABLE(Site, of, Axis, found) PUT(Site, FROM, .sides = of, .arg = MHA__TABLE, .table = found, AXIS(Site, Axis))
#define VIEWS(Site, in_memory, order) .arg = MHA__VIEW, .written = MHA__##in_memory, .read = MHA__##order
#define VIEW(Site, in_memory, order) PUT(Site, FROM, VIEWS(Site, in_memory, order), ACROSS)
#define VIEW_IN_HEAD(Site, in_memory, order) PUT(Site, FROM, VIEWS(Site, in_memory, order))
#define BATCH(Site, of) \
    PUT(Site, FROM, .sides = of, .arg = *x == -1 ? MHA__FIRST : MHA__SHIFT, .step = (long long)-*x, AXIS(Site, B))

/* Rows with numbers that a search fits (SOLVE_...) or a solver finds. */
#define BY_HEAD(name, help, when, change, low, high) FITTED(name, help, when, change, SOLVE_BY_HEAD, low, high)
#define FREE(name, help, when, change, low, high) FITTED(name, help, when, change, SOLVE_FREE, low, high)
#define REAL(name, help, when, change, low, high) FITTED(name, help, when, change, SOLVE_REAL, low, high)
#define SIGNED(name, help, when, change, low, high) FITTED(name, help, when, change, SOLVE_SIGNED, low, high)
#define STEPPED(name, help, when, change, low, high) FITTED(name, help, when, change, SOLVE_STEPPED, low, high)
#define has(c, w) has_weight(c, MHA_##w)

/* Rows with a whole number n; with a size n. */
#define WHOLE(name, help, when, change, choice) LISTED(name, help ": n", (when) && is_whole(*x), change, choice)
#define SIZED(name, help, when, change, choice) LISTED(name, help, (when) && is_size(*x), change, choice)

/* Predicates of a case c, of the program k of a bug, or of both, as rows of lists use them. */
#define PREDICATE(name, is) static inline bool name(const mha_case *c) { return is; }
#define TEST(name, args, is) static inline bool name args { return is; }
#define PREDICATE_OF_PROGRAM(name, is) static inline bool name(const mha__program *k) { return is; }
#define PREDICATE_OF_BOTH(name, is) static inline bool name(const mha_case *c, const mha__program *k) { return is; }
/* Numbers of a row, up to one: in steps, 1, 2, ..., powers of two, moves; those of a function; at most so many. */
#define STEPS(first, step, below) ((*x = (double)(first) + (step) * (double)index) < (double)(below))
#define UP(first, below) STEPS(first, 1, below)
#define POWERS(first, below) ((*x = ldexp(first, (int)index)) < (double)(below))
#define MOVES(n) any_move(n, index, x)
#define ANY(of) any_##of(c, index, x)
#define MOST(count, numbers) (index < (count) && numbers)
TEST(has_weight, (const mha_case *c, mha_weight w), c->weights[CASE_RECORDED][w].data != NULL)

static inline bool hides_keys(const mha_case *c)
{
    const mha__visibility v = mha__visibility_of(&c->semantics, 0);
    return mha__hides_keys(&v, &c->weights[CASE_RECORDED][MHA_BIAS_TABLE]);
}

PREDICATE(has_norm, has_weight(c, MHA_Q_NORM) || has_weight(c, MHA_K_NORM) || c->semantics.qkv.norm.unweighted)
PREDICATE(has_rope, c->semantics.qkv.rope.kind != MHA_ROPE_NONE)
PREDICATE(attends, c->kind != CASE_ROPE)
/* True if weights come from a softmax; from a sigmoid. */
PREDICATE(softens, attends(c) && c->semantics.softmax.normaliser == MHA_SOFTMAX)
PREDICATE(drops, attends(c) && c->semantics.softmax.dropout_keep.data)
PREDICATE(has_sigmoid, attends(c) && c->semantics.softmax.normaliser == MHA_SIGMOID)

/* True if each of n numbers is an index smaller than `below`. */
static inline bool are_indices(const double *x, size_t n, size_t below)
{
    bool all = true;
    for (size_t i = 0; i < n; i++)
        all &= x[i] >= 0 && x[i] < (double)below && x[i] == floor(x[i]);
    return all;
}

TEST(is_whole, (double x), fabs(x) <= 0x1p31 && x == floor(x))

static inline size_t keys_of(const mha_case *c)
{
    return c->P + c->T_k;
}

/* 1, -1, 2, -2, ... up to half of n, and at most 64. */
static inline bool any_move(size_t n, size_t index, double *x)
{
    const size_t size = index / 2 + 1;
    *x = index % 2 ? -(double)size : (double)size;
    return size <= 64 && (index % 2 ? 2 * size < n : 2 * size <= n);
}

/* Bits of float16 and TF32, of bfloat16, and of float8; negative: cut. */
TEST(any_bits, (const mha_case *c, size_t index, double *x),
    ((void)c, index < 6 && (*x = ((const double[]){11, 8, MHA__E4M3_BITS, MHA__E5M2_BITS, -11, -8})[index], true)))

TEST(is_boolean, (const mha_mask *mask), mask->kind == MHA_MASK_KEEPS || mask->kind == MHA_MASK_HIDES)

/* True if axis `from_end` of the mask, counted from the last one, has more than one element. */
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
/* clang-format on */

#endif
