/* One thread's memory for computing programs, and the steps of a batch row, from its inputs to its output. */
#ifndef MHA_VERIFY_ENGINE_RUN_H
#define MHA_VERIFY_ENGINE_RUN_H

#include "verify/engine/inputs.h"

/* Memory for one thread's computation. */
typedef struct mha__runner mha__runner;

/* `needed`: the query rows (B, T_q) that later calls may ask for (NULL: all). `bytes`: the most memory for what is
 * kept between calls and for the scores of rows that no call asks for; 0: little is kept, all scores. NULL without
 * memory. */
mha__runner *mha__runner_create(const mha__inputs *inputs, const unsigned char *needed, size_t bytes);
void mha__runner_destroy(mha__runner *runner); /* NULL is allowed */
/* From now on it computes a case of the same inputs, weights and widths with not more query heads than the first one;
 * products with the weights are kept. */
void mha__runner_turn_to(mha__runner *runner, const mha__inputs *inputs);
enum { MHA__MOST_RUNNERS = 8, MHA__LEAST_SLOTS = 4 /* of rows, and of products x W */ };
/* How many threads run when `threads` are asked for (0: all), and the memory for what each keeps. */
size_t mha__runner_count(int threads, size_t *bytes);
/* Whether a change is no more than rounding in float64 of a result whose largest element is `largest`. */
static inline bool mha__is_nothing(double change, double largest)
{
    return change <= 0x1p-40 * largest;
}
/* From now on only the first columns of the output are wanted, if there is a projection; 0: all. */
void mha__runner_columns(mha__runner *runner, size_t columns);

/* Computes `stage` into `result`, row-major: the numbers of the exact path for a program without bugs. `kept`: the
 * wanted query rows (B, T_q) (NULL: all). Batch rows without a wanted row are skipped, and so are other query rows when
 * the stage is by query; the elements of skipped rows are unspecified. False without memory, and where a runner would
 * need more of it than it may have: never for programs that mix no rows. */
bool mha__run(mha__runner *runner, const mha__program *program, mha_stage stage, const unsigned char *kept,
              double *result);

/* The number that counts element e of row t of batch row b where MHA__LACKS_... of the output is not written. */
size_t mha__number_written(const mha_case *c, int part, size_t b, size_t t, size_t e, size_t width);

/* ---------------------------------------------------------------- what a query sees (see.c) */

enum {
    MHA__KEY_SEEN,
    MHA__KEY_HIDDEN,
    MHA__KEY_HIDDEN_LATE /* only after the softmax: its weight becomes 0 */
};

/* Whether a real key is hidden, and what is added to its score: before the scale and at the end. */
typedef struct mha__sight {
    unsigned char hidden;
    double early, added;
} mha__sight;

/* All keys as query row i of batch row b sees them under a head. */
void mha__see(const mha__inputs *in, const mha__program *p, size_t b, size_t h, size_t i, mha__sight *keys);
/* Whether a query is padding, which sees nothing. */
bool mha__is_padding(const mha__program *p, size_t b, size_t i);
/* How many keys beyond the last one, up to a multiple of the tile, no rule hides from a query row; how many keys of the
 * case no rule but its lengths hides from it. */
size_t mha__count_padded(const mha__inputs *in, const mha__program *p, size_t b, size_t i);
size_t mha__count_zeros(const mha__inputs *in, const mha__program *p, size_t b, size_t i);
/* The row of a table of relative terms; not below its number of rows when there is none. */
size_t mha__relative_at(const mha__inputs *in, const mha__program *p, mha_weight table, size_t b, size_t i, size_t j);
/* Whether all heads hide the same keys and add the same terms. */
bool mha__heads_see_alike(const mha__program *p);
/* Whether query row i of batch row b sees the same keys with the same added terms in both programs. */
bool mha__sees_alike(const mha__inputs *in, const mha__program *one, const mha__program *other, size_t b, size_t i);
/* How many keys query row i of batch row b sees under the first head, and how many are hidden from it. */
size_t mha__count_seen(const mha__inputs *in, const mha__program *p, size_t b, size_t i, size_t *hidden);

/* ---------------------------------------------------------------- inside */

enum { MHA__KEEPS_NO_WEIGHT = 2, MHA__TILE_ROWS = 64 }; /* of a visible key */
typedef enum mha__kept { KEPT_LATENT, KEPT_PRODUCT, KEPT_ROWS, KEPT_GATE, KEPT_SIGHT, KEPT_DOTS, KEPT_COUNT } mha__kept;

/* Something computed, by the key of what it depends on. The least recently used one is the first to be replaced. */
typedef struct mha__slot {
    uint64_t key;
    int node;
    size_t b, used;
    void *data;
} mha__slot;

/* A weight, and the row of values that it weighs. */
typedef struct mha__term {
    double weight;
    const double *value;
} mha__term;

struct mha__runner {
    const mha__inputs *in;
    const unsigned char *needed;
    mha__arena pool, score_pool; /* score_pool: for `room` rows of scores, of at most `most_rows` */
    mha__slot *slots[KEPT_COUNT];
    size_t count[KEPT_COUNT], most[KEPT_COUNT], clock; /* most: elements that a slot has room for */
    size_t elements[MHA_STAGE_COUNT];                  /* of a batch row of each stage */
    size_t columns;                                    /* of the output that are wanted; 0: all */
    size_t sequence;                                   /* of a ragged batch: the one that is computed */
    uint64_t key[NODE_COUNT];                          /* of the program that is computed */
    uint64_t lines;                                    /* a hash of the rows whose scores are needed */
    size_t line_count, row_count;                      /* of these under all heads, and of their query rows */
    double *W, *x, *bias, *flat, *rows, *turn, *written;
    double *of_sequence; /* the result of one sequence of a ragged batch */
    /* of the batch row being computed: */
    const double *q, *keys, *values; /* (T_q, h, d_k), (S', h_kv, d): cached rows first, extra rows last */
    unsigned char *scored, *weighed; /* (h, T_q): rows whose scores, and whose sums of values, are needed */
    size_t *stored;                  /* (h, T_q): the row of `scores` that has the scores of a row */
    size_t room, most_rows;
    double *scores;         /* (room, S') */
    unsigned char *visible; /* (room, S'): enters the softmax; MHA__KEEPS_NO_WEIGHT */
    mha__sight *sight;      /* of a tile of query rows, by S */
    double *heads, *merged; /* (T_q, h, d_v), (T_q, h*d_v) */
    double *lse;            /* (h, T_q) */
    double *ranked;         /* S': the scores of a row in another order */
    mha__term *terms;       /* S': of one row under one head */
};

static inline double *mha__take(mha__arena *pool, size_t n)
{
    size_t bytes;
    return n < SIZE_MAX / 16 && (bytes = (n + 1) * sizeof(double)) ? mha__arena_take(pool, bytes) : NULL;
}

/* Memory for a node of a batch row, n elements of sights or products, else for all or only the needed query rows (n).
 * *found: it was computed before. NULL where it is not kept. */
void *mha__node_of(mha__runner *w, mha__kept kind, mha__node node, size_t n, size_t b, bool *found);

/* Elements (T, h, d) of batch row b that a mutation reads for those of `to`. */
void mha__take_elements(const mha__mutation *m, size_t b, size_t T, size_t h, size_t d, const double *from, double *to);

/* Latents (latents.c): rows of a batch row of the queries, or keys, as they are multiplied, or raw; the matrix that
 * makes keys, or values, of them; cached latents as keys and values of all heads. */
void mha__latents_of(mha__runner *w, const mha__program *p, bool keys, size_t b, bool raw, double *to);
void mha__latent_matrix(const mha__inputs *in, const mha__program *p, bool values, double *to);
bool mha__latent_past(mha__inputs *in);

/* Rows of q (T_q, h, d_k), k or v (S', h_kv, d) of one batch row as they are multiplied, valid for a few more calls.
 * `all_rows`: also query rows that are not needed. */
const double *mha__rows_of(mha__runner *w, const mha__program *p, int which, size_t b, bool all_rows);
/* All new rows of q, k or v before heads are split, with bias, and rotated: (T, h*d). Valid until the next call. */
const double *mha__rows_before(mha__runner *w, const mha__program *p, int which, size_t b);
const double *mha__rows_turned(mha__runner *w, const mha__program *p, int which, size_t b);
/* An input row of n numbers as the program reads it. */
void mha__input_row(const mha__program *p, const double *from, size_t n, double *to);

/* Norm, rotation and scale of rows (T, h, d) of q, k or v (turn.c); cached keys (P, h_kv, d_k) rotated once more. */
void mha__norm_rows(const mha__inputs *in, const mha__program *p, int which, double *x);
void mha__rotate_rows(mha__runner *w, const mha__program *p, int which, size_t b, double *x);
void mha__rotate_past(mha__runner *w, const mha__program *p, size_t b, double direction, double *x);
void mha__scale_rows(const mha__inputs *in, const mha__program *p, int which, size_t b, double *x);

/* Scores of the rows that are marked, up to `stage`; weights and lse of them (score.c, weigh.c). */
void mha__score_rows(mha__runner *w, const mha__program *p, size_t b, mha_stage stage);
void mha__weigh_rows(mha__runner *w, const mha__program *p, size_t b);
/* W_O, at least its first columns, and its bias, each NULL where there is none. */
const double *mha__last_matrix(mha__runner *w, const mha__program *p, size_t columns, const double **bias);
/* Whether the merged rows mix rows of the heads. */
bool mha__mixes(const mha__program *p);
/* Weighted values, heads merged, gate and projection (output.c). `kept` NULL: all. */
void mha__sum_values(mha__runner *w, const mha__program *p, size_t b);
void mha__gate_rows(mha__runner *w, const mha__program *p, size_t b);
void mha__project_output(mha__runner *w, const mha__program *p, size_t b, const unsigned char *kept, double *y);

/* Where the scores of query row i under head h begin, among rows of S' scores. */
static inline size_t mha__scores_at(const mha__runner *w, size_t h, size_t i)
{
    return w->stored[h * w->in->c->T_q + i] * (w->in->S + mha__rows_beyond(w->in->c));
}

/* Cuts a program to sequence b of a ragged batch. */
void mha__enter_sequence(mha__program *p, size_t b);

/* The key/value head that a query head reads: site AT_KV_K or AT_KV_V. */
static inline size_t mha__kv_head(const mha_case *c, const mha__program *p, int site, size_t head)
{
    const mha__mutation *m = mha__mutation_at(p, site, OP_FROM);
    const size_t h_kv = (size_t)mha__number(p, AT_KV, OP_FROM, (double)c->H_kv), right = head * h_kv / c->H;
    const size_t i = m && (m->arg == MHA__REMAINDER || m->arg == MHA__TABLE) ? head : right;
    const mha__extents x = {.n = {1, 1, h_kv, 1}};
    return m ? mha__map_element(m, &x, (mha__element){{0, 0, i, 0}}).at[MHA__H] : right;
}

#endif
