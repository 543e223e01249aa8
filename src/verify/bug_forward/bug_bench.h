/* One thread's memory for computing bugs, and the steps from a batch row's keys to its weights. */
#ifndef MHA_VERIFY_BUG_FORWARD_BUG_BENCH_H
#define MHA_VERIFY_BUG_FORWARD_BUG_BENCH_H

#include "verify/bug_forward/bug_forward.h"

enum {
    VISIBLE_SEEN,
    VISIBLE_HIDDEN,
    VISIBLE_LATE /* hidden only after the softmax: its weight becomes 0 */
};

/* Whether a real key is hidden, and what is added to its score: before the scale and at the end. */
typedef struct mha__key_visibility {
    unsigned char hidden;
    double early, added;
} mha__key_visibility;

/* A weight, and the row of values that it weighs. */
typedef struct mha__term {
    double weight;
    const double *value;
} mha__term;

enum { KEEPS_NO_WEIGHT = 2 }; /* of a visible key */
enum { MHA_BUG_TILE = 64 };   /* query rows that are looked at together */

/* What bugs that change something else find as the case says it, once: in small cases. */
typedef struct mha__as_said {
    mha__knobs knobs;            /* those of the case */
    bool rows, visibilities;     /* the bug being computed has these rows, and sees these keys */
    bool products;               /* it has these products */
    double *row[3];              /* q (B, T_q, h, d_k), keys and values (B, S', h_kv, d); NULL: nothing is kept */
    size_t heads;                /* that see keys of their own: 1 where all see alike */
    mha__key_visibility *visibility; /* (B, heads, T_q, S) */
    double *product;             /* q.k: (B, h, T_q, S) */
    unsigned char *made;         /* (3, B): which rows are known */
    unsigned char *seen;         /* (B, heads, T_q): which query rows have their visibilities */
    unsigned char *multiplied;   /* (B, h, T_q): and their products */
} mha__as_said;

struct mha__bug_bench {
    const mha__bug_inputs *inputs;
    size_t elements[MHA_STAGE_COUNT]; /* of a batch row of each stage of these inputs */
    mha__arena pool;
    mha__row_maker maker;
    size_t columns;                           /* of the output that are wanted; 0: all */
    mha__bug_bench *other;                    /* for the inputs read in the other way; NULL: there is none */
    mha__bug_bench *turned;                   /* for them with heads for time; NULL: there is none */
    unsigned char *other_kept, *other_needed; /* the rows wanted of the other one, now and ever */
    double *other_rows;                       /* the result of either; the result of one sequence of a ragged batch */
    mha__as_said said;
    /* of the batch row being computed: */
    const double *q;                 /* (T_q, h, d_k), rotated */
    double *own_keys, *own_values;   /* memory for (S', h_kv, d) */
    double *moving;                  /* for as many, of a case with cached rows */
    const double *keys, *values;     /* (S', h_kv, d), cached rows first, extra rows last */
    unsigned char *scored, *weighed; /* (h, T_q): rows whose scores, and whose sums of values, are needed */
    size_t *stored;                  /* (h, T_q): the row of `scores` that has the scores of a row that is scored */
    mha__arena score_pool;           /* memory for `room` rows of scores, of at most `most_rows` */
    size_t room, most_rows;
    double *scores;              /* (room, S') */
    unsigned char *visible;      /* (room, S'): enters the softmax; KEEPS_NO_WEIGHT */
    mha__key_visibility *visibility; /* of a tile of query rows, by S: of one head, or of all if equal */
    double *heads, *merged;      /* (T_q, h, d_v), (T_q, h*d_v) */
    double *lse;                 /* (h, T_q) */
    double *ranked;              /* S': the scores of a row in another order */
    mha__term *terms;            /* S': of one row under one head */
    double *written;             /* (T_q, width) of the output */
};

/* Where the scores of query row i under head h begin, among rows of S' scores. */
static inline size_t mha__bug_scores_at(const mha__bug_bench *w, size_t h, size_t i)
{
    return w->stored[h * w->inputs->c->T_q + i] * (w->inputs->S + mha__extra_rows(w->inputs->c));
}

/* The key/value head that a query head reads. */
static inline size_t mha__bug_kv_head(const mha_case *c, const mha__knobs *k, int how, size_t head)
{
    const size_t h_kv = k->groups ? (size_t)k->groups : c->H_kv, right = head * h_kv / c->H;
    return how == GROUPS_TILED        ? head % h_kv
           : how == GROUPS_FIRST      ? 0
           : how == GROUPS_LAST_FIRST ? h_kv - 1 - right
           : how == GROUPS_OTHER      ? (size_t)k->group_order[head]
                                      : right;
}

/* Cached, new and extra rows of keys, or of values (part 1), in one array; when there are only new rows, `rows` itself
 * (bug_cache.c). */
const double *mha__bug_gather(mha__bug_bench *w, const mha__knobs *k, size_t b, int part, const double *rows);

/* ---------------------------------------------------------------- what a query sees (bug_see.c) */

/* The indices of one score. */
typedef struct mha__score_at {
    size_t b, h, i, j;
} mha__score_at;

mha__key_visibility mha__bug_look(const mha__bug_inputs *inputs, const mha__knobs *k, const mha__score_at *at);
/* The row of a table of relative terms; not below its number of rows when there is none. */
size_t mha__bug_relative_row(const mha__bug_inputs *w, const mha__knobs *k, mha_weight table, const mha__score_at *at);
/* How many keys beyond the last one, up to a multiple of the tile, no rule hides from a query row. */
size_t mha__bug_count_padded(const mha__bug_inputs *inputs, const mha__knobs *k, size_t b, size_t i);
/* How many keys of the case no rule but its lengths hides from a query row. */
size_t mha__bug_count_zeros(const mha__bug_inputs *inputs, const mha__knobs *k, size_t b, size_t i);

/* The element of a mask, or of a part of a pattern, at the last of these indices, broadcast (bug_pattern.c). */
double mha__bug_element(const mha_view *v, const size_t index[4]);
/* Of the pattern (bug_pattern.c): whether a query is padding, which sees nothing; whether a key is hidden, and what
 * is added to its score; whether heads see other keys than each other. */
bool mha__bug_pads(const mha__knobs *k, size_t b, size_t i);
bool mha__bug_pattern_hides(const mha__bug_inputs *w, const mha__knobs *k, const mha__score_at *at, double *added);
bool mha__bug_pattern_by_head(const mha__knobs *k);

/* ---------------------------------------------------------------- scores (bug_scores.c) and softmax */

/* Fills `scores` up to `stage`, and `visible`, of one batch row, where `scored` is set. */
void mha__bug_score(mha__bug_bench *w, const mha__knobs *k, size_t b, mha_stage stage);
/* Turns `scores` into weights and fills `lse` (bug_softmax.c). */
void mha__bug_weigh(mha__bug_bench *w, const mha__knobs *k, size_t b);

/* ---------------------------------------------------------------- values, merging, output (bug_output.c) */

/* Whether the merged rows mix rows of the heads. */
bool mha__bug_mixes(const mha__knobs *k);
/* Sums the weighted values of one batch row into `heads` and `merged`, where `weighed` is set. */
void mha__bug_sum_values(mha__bug_bench *w, const mha__knobs *k, size_t b);
/* Multiplies `merged` by the gate, if there is one. */
void mha__bug_gate(mha__bug_bench *w, const mha__knobs *k, size_t b);
/* Multiplies the rows wanted of `merged` by W_O; what is not wanted is unspecified. `kept` NULL: all. */
void mha__bug_project(mha__bug_bench *w, const mha__knobs *k, size_t b, const unsigned char *kept, double *y);

#endif
