/* Named bugs of a backward: rows of lists, one for each part of it. */
#ifndef MHA_VERIFY_BACKWARD_BUGS_GRADIENT_BUGS_H
#define MHA_VERIFY_BACKWARD_BUGS_GRADIENT_BUGS_H

#include "attention/core/backward/backward.h"
#include "mha/gradients.h"
#include "verify/mutate/mutation.h"

/* One gradient of a backward that is right, (B, T, heads, width) where it is one of rows, and memory for what a bug
 * makes of it. */
typedef struct mha__wrong_gradient {
    const mha__backward *b; /* of which all is right */
    mha_gradient gradient;
    mha_view right, from; /* it, and it or its errors: F64 and contiguous */
    double *to;           /* filled with zeros */
    bool sizes;           /* these are errors, which are never negative */
} mha__wrong_gradient;

/* A bug is a change of what a step made. One of a step after the sums is made of the errors of the bound, too,
 * which are laid out likewise and are never negative. A wide one with a change reads what somebody computed,
 * b->given->of, and takes numbers from there. */
typedef struct mha__gradient_bug mha__gradient_bug;
struct mha__program;

/* A reading that replaces that of rows, or of a number of each query: it takes rows of `kind`, by index `from` along an
 * axis (NULL: at their place), times a factor, and rounds them to `bits` bits (0: it does not). */
typedef struct mha__other_reading {
    int kind, axis, bits;
    const size_t *from;
    double factor;
    const double *O; /* (B, T, h, d_v) */
} mha__other_reading;

/* clang-format off */
/* Lines of a map: of each query all keys, or each block of `step` keys; of each key all queries; of each query its
 * features, or nothing. */
typedef enum mha__lines {
    MHA__ALONG_KEYS, MHA__ALONG_BLOCKS, MHA__ALONG_QUERIES, MHA__ALONG_FEATURES, MHA__ALONG_NOTHING
} mha__lines;
/* clang-format on */

struct mha__gradient_bug {
    mha_gradient_bug shown;
    /* Whether the call has what it takes; NULL: every call does. */
    bool (*applies)(const mha__backward *b, const mha__gradient_bug *bug);
    mha__backward_step step;
    void (*change)(mha__backward *b, mha__map *map, const mha__gradient_bug *bug);
    /* In place of a change: makes of each gradient that somebody has wrong what the bug does; false: it does
     * nothing to such a gradient. */
    bool (*result)(const mha__wrong_gradient *x, const mha__gradient_bug *bug);
    /* Sums of what it leaves right of the gradients of query, key and value, whether dQ of a query depends on other
     * queries, and whether it is called once more, without a map, when all heads are added up. */
    unsigned leaves;
    mha__mutation mutation; /* what `change` or `result` interprets, of rows that are data */
    /* In place of a change: what becomes of the site of the mutation, by names of interpret.c, and along which lines
     * it has sums. */
    const char *formula;
    mha__lines along;
    /* Of P that is computed once more (mha__recompute): the bug of a forward, with its number if it has one or with
     * those of the mutation, and a function that changes its program; false: the call has nothing to change. */
    const char *forward;
    bool (*prepare)(const mha__backward *b, struct mha__program *program);
    const mha__other_reading *other; /* NULL: the index map of the mutation says what a reading takes */
};

/* clang-format off */
/* Numbers of the bug of a forward: `read` of a mutation. A scale is put in place of that of the program. */
enum {
    MHA__NO_NUMBERS, MHA__A_FACTOR, MHA__A_SCALE, MHA__A_CAP, /* `step`, or `number` times that of the call */
    MHA__SLOPES_TIMES, MHA__SLOPES_OF, MHA__LENGTHS_OF /* other heads or batch rows */
};
/* Ways to compute P once more: bits of a mutation's `readers`. Pairs that are hidden stay hidden; the slope of the
 * softcap is right; dQ and dK have the scale of the bug, too; from scores to which nothing is added; dS reads this P,
 * and dV the right one. */
enum { MHA__SAME_PAIRS = 1, MHA__SAME_SLOPE = 2, MHA__SCALES_ALL = 4, MHA__NOTHING_ADDED = 8, MHA__IN_DS_ALONE = 16 };

enum { MHA__LEAVES_Q = 1, MHA__LEAVES_K = 2, MHA__LEAVES_V = 4, MHA__READS_ALL_QUERIES = 8, MHA__ENDS_LATER = 16 };

/* Sites of formulas: bits of numbers of a map, */
enum {
    MHA__AT_P = 1, MHA__AT_SLOPE = 2, MHA__AT_DP = 4, MHA__AT_DZ = 8, MHA__AT_DS = 16, MHA__AT_D = 32,
    MHA__AT_DLSE = 64, MHA__AT_DO = 128
};
/* or, of operators, bits of gradients and of their scales. */
enum { MHA__OF_DQ = 1, MHA__OF_DK = 2, MHA__OF_DV = 4, MHA__OF_Q_SCALE = 8, MHA__OF_K_SCALE = 16 };
/* Rows of a map, and O. */
enum { MHA__ROWS_Q, MHA__ROWS_K, MHA__ROWS_V, MHA__ROWS_DO, MHA__ROWS_O, MHA__ROW_KINDS };
/* Sites of readings: bits of kinds of rows, or a number of each query. Readers: P, dP, D, or all steps after that of
 * the change. */
enum { MHA__AT_ROWS_Q = 1, MHA__AT_ROWS_K = 2, MHA__AT_ROWS_V = 4, MHA__AT_ROWS_DO = 8, MHA__AT_ROWS_O = 16,
       MHA__THE_D = 32, MHA__THE_LSE = 64, MHA__THE_DLSE = 128 };
enum { MHA__IN_P = 1, MHA__IN_DP = 2, MHA__AFTER = 4, MHA__IN_D = 8 };

/* Operators of rows without a function. */
enum {
    /* A formula is put in place of numbers; gradients are products with it, or such a product is added to them; a
     * gradient with a number for each head has the formula added. */
    MHA__PUT, MHA__PRODUCT, MHA__MORE_PRODUCT, MHA__ADDS,
    /* Gradients times a factor; those of a part of the heads of a group; dQ or dV and dK exchanged; one gradient of all
     * heads times a factor. */
    MHA__TIMES, MHA__KEEPS, MHA__EXCHANGES, MHA__TIMES_ALL,
    /* Rows `arg` are those of kind `read`; dP = dO . rows `arg`, over some features (`read` 1: of key i and query j;
     * `written` 1: not of extra rows); dQ and dK have scale `arg`. */
    MHA__TAKES, MHA__MEETS, MHA__OTHER_SCALE,
    /* gradient_bugs_reads.c: rows, or D, lse and dlse, are read by an index map. */
    MHA__READS, MHA__READS_NUMBERS,
    MHA__RECOMPUTES, /* recompute.c: P is that of a forward with a bug */
    /* gradient_bugs_back.c: rows are turned back, forward or not; by other positions or pairs; a norm is differentiated
     * by a formula; its weight has the gradient of a part of the rows. */
    MHA__TURNS, MHA__TURNS_BY, MHA__NORMALISES, MHA__KEEPS_OF_NORM,
    /* layers/gradient_bugs_inputs.c: gates have the gradient of a formula; paths to an input are changed. */
    MHA__GATES, MHA__WAYS,
    /* gradient_bugs_results.c: gradients are written elsewhere, in part, as sums, times a factor, for others, or are
     * added to what is there. */
    MHA__OUT_FROM, MHA__OUT_TO, MHA__OUT_KEEPS, MHA__OUT_OVER, MHA__OUT_TIMES, MHA__OUT_FITS, MHA__OUT_OTHER,
    MHA__OUT_PLUS,
    MHA__OUT_SUMS /* layers/gradient_bugs_parameters.c: x^T dy of a part of the rows, or of other ones */
};

/* The list of a file's `rows`, and a predicate of them. */
#define MHA__GRADIENT_BUGS(part) \
    mha__gradient_bug_list mha__gradient_bugs_of_##part(void) \
    { return (mha__gradient_bug_list){rows, sizeof rows / sizeof *rows}; }
#define APPLIES(name, is) \
    static bool name(const mha__backward *b, const mha__gradient_bug *bug) { (void)bug; return is; }

/* What a call must have for a bug: bits of a mutation's `needs`. */
enum {
    MHA__HAS_SOFTMAX = 1 << 0, MHA__HAS_SINKS = 1 << 1, MHA__HAS_MORE_TERMS = 1 << 2, /* sinks or plus-one */
    MHA__HAS_KEYS_ALONE = 1 << 3, /* neither */
    MHA__HAS_D_LSE = 1 << 4, MHA__HAS_SOFTCAP = 1 << 5, MHA__HAS_SCALE = 1 << 6, /* not 1 */
    MHA__HAS_BATCH = 1 << 7, MHA__HAS_QUERIES = 1 << 8, MHA__HAS_HEADS = 1 << 9, /* more than one */
    MHA__HAS_GROUPS = 1 << 10, MHA__HAS_KV_HEADS = 1 << 11,
    MHA__HAS_QUERY_BLOCKS = 1 << 12, MHA__HAS_KEY_BLOCKS = 1 << 13, /* more than `step` */
    MHA__HAS_NO_RELATIVE = 1 << 14, MHA__HAS_NO_EXTRA = 1 << 15,
    MHA__HAS_SQUARE = 1 << 16, /* as many queries as keys, more than one, not ragged */
    MHA__HAS_ALL_KV_HEADS = 1 << 17, MHA__HAS_EQUAL_WIDTHS = 1 << 18, MHA__HAS_WIDE_VALUES = 1 << 19,
    MHA__HAS_ADDED = 1 << 20, MHA__HAS_MORE_ADDED = 1 << 21, /* than ALiBi */
    MHA__HAS_WHOLE = 1 << 22, /* all keys of the softmax */
    MHA__HAS_CAUSAL = 1 << 23, MHA__HAS_FLAGS = 1 << 24, /* a mask of booleans */
    MHA__HAS_FEATURES = 1 << 25, /* more than the sum of a row is over */
    MHA__HAS_TAIL = 1 << 26, /* a last block that is not full */
    MHA__HAS_OTHER_SCALE = 1 << 27, /* than that of the row */
    MHA__HAS_GRADIENT = 1 << 28, /* that of the row */
    MHA__HAS_D_ADDED = 1 << 29 /* gradients of terms that heads or batch rows share */
};

/* A row with an operator; one with a formula, and with lines. */
#define MHA__ROW(name, what, at, leaving, operator, ...) \
    {.shown = {name, what, false}, .step = MHA__BACKWARD_##at, .leaves = leaving, \
        .mutation = {.op = MHA__##operator, __VA_ARGS__}}
#define MHA__BY_FORMULA(name, what, at, leaving, where, text, ...) \
    MHA__BY_LINES(name, what, at, leaving, where, text, KEYS, __VA_ARGS__)
#define MHA__BY_LINES(name, what, at, leaving, where, text, lines, ...) \
    {.shown = {name, what, false}, .step = MHA__BACKWARD_##at, .leaves = leaving, .formula = text, \
        .along = MHA__ALONG_##lines, .mutation = {.site = where, __VA_ARGS__}}
#define MHA__P_OF(name, what, bug, prepares, ...) \
    {.shown = {name, what, false}, .step = MHA__BACKWARD_SUMS, .forward = bug, .prepare = prepares, \
        .mutation = {.op = MHA__RECOMPUTES, __VA_ARGS__}}
/* clang-format on */

typedef struct mha__gradient_bug_list {
    const mha__gradient_bug *rows;
    size_t count;
} mha__gradient_bug_list;

mha__gradient_bug_list mha__gradient_bugs_of_weights(void);    /* P, computed once more */
mha__gradient_bug_list mha__gradient_bugs_of_visible(void);    /* P, of other keys, or with another mask */
mha__gradient_bug_list mha__gradient_bugs_of_reads(void);      /* rows, D, lse, dlse: of another place */
mha__gradient_bug_list mha__gradient_bugs_of_sums(void);       /* dO, D, dlse, dS */
mha__gradient_bug_list mha__gradient_bugs_of_products(void);   /* dQ, dK, dV, and heads that share them */
mha__gradient_bug_list mha__gradient_bugs_of_ways_back(void);  /* rotation, norms */
mha__gradient_bug_list mha__gradient_bugs_of_added(void);      /* gradients of what is added; empty rows */
mha__gradient_bug_list mha__gradient_bugs_of_inputs(void);     /* heads, gates, latents and inputs of a layer */
mha__gradient_bug_list mha__gradient_bugs_of_parameters(void); /* gradients of matrices and biases */
mha__gradient_bug_list mha__gradient_bugs_of_results(void);  /* what goes out: by a factor, in another order, in part */
mha__gradient_bug_list mha__gradient_bugs_of_forward(void);  /* P with other bugs of a forward */
mha__gradient_bug_list mha__gradient_bugs_of_unknowns(void); /* those whose numbers are taken from what was computed */

/* Row `index` of all lists; NULL after the last. After the changes come the points at which a kernel may round, and
 * those whose numbers are unknown. */
const mha__gradient_bug *mha__gradient_bug_at(size_t index);
/* Rows that compute P once more: whether a call has the bug, and its P in a map. */
bool mha__recomputes(const mha__backward *b, const mha__gradient_bug *bug);
void mha__recompute(mha__backward *b, mha__map *map, const mha__gradient_bug *bug);
/* The bug of rows, of dQ (1), dK (2) or both, that are turned back by positions that are n too small; false: the call
 * has none that it could change. */
bool mha__turns_shifted(const mha__backward *b, int sides, long long n, mha__gradient_bug *bug);
/* Lets such rows apply to a backward that has begun. Must be ended in any case, before the backward is freed. */
mha_status mha__again_begin(mha__backward *b, mha_error *error);
void mha__again_end(mha__backward *b);
/* Whether a row changes what a step made; makes that change. */
static inline bool mha__changes(const mha__gradient_bug *bug)
{
    const int op = bug->mutation.op;
    return bug->change || bug->formula || (!bug->result && op >= MHA__TIMES && op < MHA__OUT_FROM);
}
/* Whether it makes other gradients of those that are wrong. */
static inline bool mha__has_result(const mha__gradient_bug *bug)
{
    return bug->result || (!bug->change && bug->mutation.op >= MHA__OUT_FROM);
}
bool mha__change_result(const mha__wrong_gradient *x, const mha__gradient_bug *bug);
void mha__change(mha__backward *b, mha__map *map, const mha__gradient_bug *bug);
/* Operators, and whether a call has what they need. */
/* Rows of a kind, (batch, rows, heads, width), contiguous; those of O have no data. */
typedef struct mha__rows {
    const double *data;
    mha__extents n;
} mha__rows;
mha__rows mha__rows_read(const mha__backward *b, int kind);
static inline bool mha__are_keys(int kind)
{
    return kind == MHA__ROWS_K || kind == MHA__ROWS_V;
}
double mha__round_bits(double x, int bits);
void mha__read_rows(mha__backward *b, mha__map *map, const mha__gradient_bug *bug);
void mha__read_numbers(mha__backward *b, mha__map *map, const mha__gradient_bug *bug);
void mha__turn_rows(mha__backward *b, const mha__mutation *m);
void mha__norm_by_formula(mha__backward *b, const mha__gradient_bug *bug);
void mha__keep_of_norm(mha__backward *b, const mha__mutation *m);
void mha__gate_by_formula(mha__backward *b, const mha__gradient_bug *bug);
void mha__change_ways(mha__backward *b, const mha__mutation *m);
bool mha__sum_of_rows(const mha__wrong_gradient *x, const mha__mutation *m);
bool mha__reads_rows(const mha__backward *b, const mha__gradient_bug *bug);
bool mha__reads_numbers(const mha__backward *b, const mha__gradient_bug *bug);
bool mha__has_angles(const mha__backward *b, const mha__gradient_bug *bug);
bool mha__has_norms(const mha__backward *b, const mha__gradient_bug *bug);
bool mha__has_gates(const mha__backward *b, const mha__gradient_bug *bug);
bool mha__has_ways(const mha__backward *b, const mha__gradient_bug *bug);
bool mha__has_norm_part(const mha__backward *b, const mha__gradient_bug *bug);
/* How many elements a mask has for each pair. */
double mha__mask_share(const mha__backward *b);
/* The features that the sum of a row is over. */
size_t mha__width_of(const mha__backward *b, const mha__mutation *m);
/* Whether a call has what a row needs. */
bool mha__gradient_bug_applies(const mha__backward *b, const mha__gradient_bug *bug);
/* The precision of a row that rounds, with `also`. */
mha_backward_precision mha__gradient_bug_rounds(const mha__gradient_bug *bug, const mha_backward_precision *also);

/* scores.c: scores and weights of a map, as bugs compute them once more. The normaliser is a softmax. */
bool mha__is_softmax(const mha__backward *b);
/* scale Q_i . K_j, of the rows that the map has. */
double mha__score_of(const mha__backward *b, const mha__map *map, size_t i, size_t j);
/* A scale that is taken for that of the call. */
typedef enum mha__other_scale {
    MHA__SCALE_MISSING,
    MHA__SCALE_TWICE,
    MHA__SCALE_DEFAULT,    /* 1 / sqrt(d_k) */
    MHA__SCALE_OF_VALUES,  /* 1 / sqrt(d_v) */
    MHA__SCALE_OF_PADDED,  /* 1 / sqrt(n), n the power of two from d_k on */
    MHA__SCALE_OF_MODEL,   /* 1 / sqrt(h d_k) */
    MHA__SCALE_OVER_WIDTH, /* 1 / d_k */
    MHA__SCALE_TIMES_LOG2E,
    MHA__SCALE_TIMES_LN2
} mha__other_scale;
double mha__scale_of(const mha__backward *b, mha__other_scale which);
/* It is another one than that of the call, and than those before it in this list. */
bool mha__has_scale(const mha__backward *b, mha__other_scale which);
/* The slope of a softcap `cap` (0: none) at a score. */
double mha__slope_of(double score, double cap);
/* Whether all that is added to the score of a pair has an element for it: then its gradient has a place. */
bool mha__has_terms(const mha__backward *b, const mha__map *map, size_t i, size_t j);
/* Makes b->map that of a head, up to dS. */
void mha__make_map(mha__backward *b, size_t sequence, size_t head);
/* dP_ij = dO_i . V_j, of given rows. */
double mha__d_weight_of(const mha__backward *b, const double *dO, const double *V);
/* The weights of all pairs that are seen, of the rows that the map has, and the slopes of their softcaps. Calls with
 * extra rows or relative terms are none for it. */
void mha__weigh_again(const mha__backward *b, mha__map *map);
bool mha__can_weigh_again(const mha__backward *b);

/* unknowns: numbers that are taken from what somebody computed, as those that bring a backward nearest to it. Rows go
 * out as they are attended to, or rotated. */
bool mha__has_plain_rows(const mha__backward *b, const mha__gradient_bug *bug);
/* Row i of a head of a gradient that somebody computed, as a map has it: not yet turned back. */
void mha__found_row(const mha__backward *b, const mha__map *map, mha_gradient g, size_t i, double *row);
/* The least squares w of sum_k w_k term_k = found, of n terms of `size` numbers; `otherwise` where nothing tells.
 * `room`: (n + 1) n numbers. */
void mha__least_squares(const double *terms, const double *found, size_t n, size_t size, double otherwise, double *room,
                        double *w);
/* After the sums of all heads: makes dQ, dK and dV whole multiples of the parts that are added up to them, those that
 * come nearest to what was found. A part of rows of dQ are `block` keys; one of rows of dK and dV are `block` queries
 * of a head that shares them. Rows are those of `block` keys or queries, or, with `whole`, all. */
void mha__fit_parts(mha__backward *b, size_t block, bool whole);
/* After the sums of all heads: a query that sees one key says nothing in dQ. Makes its P in dV what was found. */
void mha__fit_lone_queries(mha__backward *b);

#endif
