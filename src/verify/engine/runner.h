/* One thread's memory for computing programs, and the steps of a batch row, from its inputs to its output. */
#ifndef MHA_VERIFY_ENGINE_RUNNER_H
#define MHA_VERIFY_ENGINE_RUNNER_H

#include "verify/engine/case_inputs.h"
#include "verify/thresholds/thresholds.h"

typedef struct mha__runner mha__runner;

/* `needed`: the query rows (B, T_q) that later runs may want (NULL: all); it must outlive the runner. `bytes`: limit of
 * memory for kept results and for scores of rows that are not needed; 0: few kept results, all scores. Returns NULL
 * without memory. */
mha__runner *mha__runner_create(const mha__inputs *inputs, const unsigned char *needed, size_t bytes);
void mha__runner_destroy(mha__runner *runner); /* NULL is allowed */
/* Sets other inputs: the same x, weights and widths, and at most the query heads of the first ones. The runner keeps
 * its products with the weights. */
void mha__runner_turn_to(mha__runner *runner, const mha__inputs *inputs);
enum { MHA__MOST_RUNNERS = 8, MHA__LEAST_SLOTS = 4 /* for rows, and for products x W */ };
/* Number of runners for `threads` threads (0: all available); *bytes: limit of memory of each. */
size_t mha__runner_count(int threads, size_t *bytes);
/* True if a change is at most float64 rounding of a result whose largest element is `largest`. */
static inline bool mha__is_nothing(double change, double largest)
{
    return change <= MHA__NOTHING * largest;
}
/* Computes `stage` into `result`, row-major; without bugs these are the numbers of the exact path. `kept`: the wanted
 * query rows (B, T_q) (NULL: all). A run skips batch rows without a wanted row, and other rows of a stage by query;
 * elements of skipped rows are unspecified. Returns false without memory, or if a program that mixes rows exceeds the
 * limit of the runner. */
bool mha__run(mha__runner *runner, const mha__program *program, mha_stage stage, const unsigned char *kept,
              double *result);

/* Index of output element e of row t of batch row b, in the unit that a bug MHA__LACKS_... (`part`) counts. */
size_t mha__number_written(const mha_case *c, int part, size_t b, size_t t, size_t e, size_t width);

/* ---------------------------------------------------------------- visibility (visibility.c, compare_visibility.c) */

enum {
    MHA__KEY_SEEN,
    MHA__KEY_HIDDEN,
    MHA__KEY_HIDDEN_LATE /* only after the softmax: its weight becomes 0 */
};

/* Visibility of a real key: MHA__KEY_..., and terms added to its score, before the scale and at the end. */
typedef struct mha__sight {
    unsigned char hidden;
    double early, added;
} mha__sight;

/* Writes the visibility of all S keys for query row i of batch row b under head h. */
void mha__see(const mha__inputs *in, const mha__program *p, size_t b, size_t h, size_t i, mha__sight *keys);
/* True if a query is padding: it sees no key. */
bool mha__is_padding(const mha__program *p, size_t b, size_t i);
/* Number of keys after the last one, up to a multiple of the tile, that no rule hides from a query row; without a tile
 * the number of keys of the case that only its lengths hide. */
size_t mha__count_zeros(const mha__inputs *in, const mha__program *p, const mha__mutation *tile, size_t b, size_t i);

/* A query row; the positions of key 0 and of query 0, keys counted from 0. */
typedef struct mha__query {
    const mha__inputs *in;
    const mha__program *p;
    size_t b, i;
    int64_t first, offset;
} mha__query;

mha__query mha__query_of(const mha__inputs *in, const mha__program *p, size_t b, size_t i);
/* Terms of key j (terms.c). ALiBi: the factor of distances, 0 without it, and the distance. A table of biases: 0 for
 * positions without a row. The logarithm of the number of times that a program counts the key. */
double mha__slope_at(const mha__inputs *in, const mha__program *p, size_t h);
double mha__distance(const mha__query *q, size_t j);
double mha__bias_term(const mha__query *q, size_t h, size_t j);
double mha__count_term(const mha__query *q, size_t j);
/* Row of a table of relative terms for query i and key j; at least its number of rows if there is none. */
size_t mha__relative_at(const mha__inputs *in, const mha__program *p, mha_weight table, size_t b, size_t i, size_t j);
/* True if a mask, or what else is shaped as one, has more than one head. */
bool mha__has_heads(const mha_view *v);
/* True if all heads hide the same keys and add the same terms. */
bool mha__heads_see_alike(const mha__program *p);
/* True if query row i of batch row b sees the same keys with the same added terms in both programs. */
bool mha__sees_alike(const mha__inputs *in, const mha__program *one, const mha__program *other, size_t b, size_t i);
/* Number of keys that query row i of batch row b sees under the first head; *hidden: number of other keys. */
size_t mha__count_seen(const mha__inputs *in, const mha__program *p, size_t b, size_t i, size_t *hidden);

/* ---------------------------------------------------------------- inside */

enum { MHA__KEEPS_NO_WEIGHT = 2, MHA__TILE_ROWS = 64 }; /* a mark in `visible`; query rows of a tile */
typedef enum mha__kept { KEPT_PRODUCT, KEPT_ROWS, KEPT_COUNT } mha__kept;

/* A kept result with the hash of its dependencies. A new result replaces the least recently used one. */
typedef struct mha__slot {
    uint64_t key;
    int node;
    size_t b, used;
    double *data;
} mha__slot;

/* A weight, and the row of values that it weighs. */
typedef struct mha__term {
    double weight;
    const double *value;
} mha__term;

struct mha__runner {
    const mha__inputs *in;
    const unsigned char *needed;
    mha__arena pool, score_pool; /* score_pool: `room` scores, at most `most_rows` rows */
    mha__slot *slots[KEPT_COUNT];
    size_t count[KEPT_COUNT], clock;
    size_t elements[MHA_STAGE_COUNT]; /* of a batch row of each stage */
    /* For later runs, as the caller sets them: */
    size_t columns;        /* wanted columns of a projected output, the first ones; 0: all */
    size_t head;           /* 1 + the head with the wanted scores; 0: all heads */
    uint64_t inside;       /* heads of an output that the program computes (bits); 0: all */
    const double *outside; /* the others: merged heads before a gate (B, T_q, h*d_v) */

    size_t sequence;          /* current sequence of a ragged batch */
    uint64_t key[NODE_COUNT]; /* hashes of the current program */
    double *W, *x, *bias, *flat, *rows, *turn, *written;
    double *of_sequence; /* the result of one sequence of a ragged batch */
    /* For the current batch row: */
    const double *q, *keys, *values; /* (T_q, h, d_k), (S', h_kv, d): cached rows first, extra rows last */
    unsigned char *scored, *weighed; /* (h, T_q): rows with needed scores, with needed sums of values */
    size_t *stored;                  /* (h, T_q): index of a row in `scores` */
    size_t room, most_rows;
    double *scores;         /* (rows, S') */
    unsigned char *visible; /* (rows, S'): the key enters the softmax; MHA__KEEPS_NO_WEIGHT */
    mha__sight *sight;      /* (query rows of a tile, S) */
    double *heads, *merged; /* (T_q, h, d_v), (T_q, h*d_v) */
    double *blocks;         /* (T_q, h*d_v): heads of several batch rows */
    double *lse;            /* (h, T_q) */
    double *ranked;         /* (S'): sorted scores of a row */
    mha__term *terms;       /* (S'): one row under one head */
};

static inline double *mha__take(mha__arena *pool, size_t n)
{
    size_t bytes;
    return n < SIZE_MAX / 16 && (bytes = (n + 1) * sizeof(double)) ? mha__arena_take(pool, bytes) : NULL;
}

/* Memory for a node of batch row b, of all query rows or of needed ones; *found: the memory has the result. */
static inline double *mha__node_of(mha__runner *w, mha__kept kind, mha__node node, bool all_rows, size_t b, bool *found)
{
    const uint64_t key = w->key[node], own = all_rows || !w->needed ? key : key * 31 + 7;
    *found = false;
    mha__slot *oldest = w->slots[kind];
    for (mha__slot *s = oldest; s < w->slots[kind] + w->count[kind]; s++) {
        if (s->key == own && key && s->node == (int)node && s->b == b + w->sequence && s->used) {
            s->used = ++w->clock;
            *found = true;
            return s->data;
        }
        oldest = s->used < oldest->used ? s : oldest;
    }
    *oldest = (mha__slot){
        .key = key ? own : 0, .node = (int)node, .b = b + w->sequence, .used = ++w->clock, .data = oldest->data};
    return oldest->data;
}

/* Writes rows (T, h, d) in the order (h, T, d). */
static const mha__mutation mha__heads_first = {.arg = MHA__VIEW, .written = MHA__BHTC, .read = MHA__BTHC};
/* Applies the index map of a mutation (NULL: none) to rows (T, h, d) of batch row b; `copy` has room for as many. */
void mha__reread(const mha__mutation *m, size_t b, size_t T, size_t h, size_t d, double *rows, double *copy);

/* Latents (latents.c): rows of a batch row of queries or keys, normed or raw; the matrix that computes keys or values
 * from them; cached latents as keys and values of all heads. */
void mha__latents_of(mha__runner *w, const mha__program *p, bool keys, size_t b, bool raw, double *to);
void mha__latent_matrix(const mha__inputs *in, const mha__program *p, bool values, double *to);
bool mha__latent_past(mha__inputs *in);

/* Rows of q (T_q, h, d_k), k or v (S', h_kv, d) of one batch row as products read them, valid for a few more calls.
 * `all_rows`: also query rows that are not needed. */
const double *mha__rows_of(mha__runner *w, const mha__program *p, int which, size_t b, bool all_rows);
/* All new rows (T, h*d) of q, k or v with bias, before the split into heads; rotated. Valid until the next call. */
const double *mha__rows_before(mha__runner *w, const mha__program *p, int which, size_t b);
const double *mha__rows_turned(mha__runner *w, const mha__program *p, int which, size_t b);
/* Computes the new rows of q, k or v of one batch row. */
void mha__new_rows(mha__runner *w, const mha__program *p, int which, size_t b, bool all_rows, double *rows);
/* Rounds rows (T, h, d) before products; `most`: the largest number of the tensor if it has one scale. */
void mha__round_rows(const mha__program *p, int which, size_t T, size_t h, size_t d, double most, double *x);
/* Copies an input row of n numbers to `to`, as the program reads it. */
void mha__input_row(const mha__program *p, const double *from, size_t n, double *to);

/* Norm, rotation and scale of rows (T, h, d) of q, k or v (turn.c); a second rotation of cached keys (P, h_kv, d_k). */
void mha__norm_rows(const mha__inputs *in, const mha__program *p, int which, double *x);
void mha__rotate_rows(mha__runner *w, const mha__program *p, int which, size_t b, double *x);
void mha__rotate_past(mha__runner *w, const mha__program *p, size_t b, double direction, double *x);
void mha__scale_rows(const mha__inputs *in, const mha__program *p, int which, size_t b, double *x);

/* Scores of the marked rows, up to `stage`; their weights and lse (score.c, weigh.c). */
void mha__score_rows(mha__runner *w, const mha__program *p, size_t b, mha_stage stage);
void mha__weigh_rows(mha__runner *w, const mha__program *p, size_t b);
/* W_O, at least its first columns, and its bias; NULL if the case has none. */
const double *mha__last_matrix(mha__runner *w, const mha__program *p, size_t columns, const double **bias);
/* True if a merged row mixes elements of several query rows. */
bool mha__mixes(const mha__program *p);
/* Weighted values, heads merged, gate and projection (output.c). `kept` NULL: all. */
void mha__sum_values(mha__runner *w, const mha__program *p, size_t b);
void mha__gate_rows(mha__runner *w, const mha__program *p, size_t b);
void mha__project_output(mha__runner *w, const mha__program *p, size_t b, const unsigned char *kept, double *y);

/* Index in `scores` of the first score of query row i under head h. */
static inline size_t mha__scores_at(const mha__runner *w, size_t h, size_t i)
{
    return w->stored[h * w->in->c->T_q + i] * (w->in->S + mha__rows_beyond(w->in->c));
}

/* The head that a mutation (NULL: none) reads for head h of n. */
static inline size_t mha__head_of(const mha__mutation *m, size_t n, size_t h)
{
    const mha__extents x = {.n = {1, 1, n, 1}, .order = MHA__BTHC};
    return m ? mha__map_element(m, &x, (mha__element){{0, 0, h, 0}}).at[MHA__H] : h;
}

/* The key/value head that a query head reads: site AT_KV_K or AT_KV_V. */
static inline size_t mha__kv_head(const mha_case *c, const mha__program *p, int site, size_t head)
{
    const mha__mutation *m = mha__mutation_at(p, site, OP_FROM);
    const size_t h_kv = (size_t)mha__number(p, AT_KV, OP_FROM, (double)c->H_kv), right = head * h_kv / c->H;
    const size_t i = m && (m->arg == MHA__REMAINDER || m->arg == MHA__TABLE) ? head : right;
    return m ? mha__head_of(m, h_kv, i) : right;
}

#endif
