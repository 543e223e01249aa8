/* A backward of the exact path: its steps, which share a head of a sequence at a time. */
#ifndef MHA_ATTENTION_CORE_BACKWARD_BACKWARD_H
#define MHA_ATTENTION_CORE_BACKWARD_BACKWARD_H

#include "attention/call/resolved.h"
#include "base/arena.h"
#include "mha/backward.h"

/* Use of a key by a query: none; its score has a weight; hidden, it meets a weight of 0. */
enum { MHA__HIDDEN = 0, MHA__SEEN = 1, MHA__PROPAGATES = 2 };

/* One head of one sequence. Matrices are (T_q, n), row-major, with the extra rows behind the keys. */
typedef struct mha__map {
    size_t b, head, g; /* g: the key/value head */
    mha__sequence s;
    size_t n;                               /* keys and extra rows */
    double *Q, *K, *V, *dO;                 /* (T_q, d_k), (n, d_k), (n, d_v), (T_q, d_v): as they are attended to */
    unsigned char *seen;                    /* what query i makes of key j */
    double *weights;                        /* P */
    double *kept;                           /* m of a dropout, of all pairs; 1 without */
    double *slope;                          /* of the softcap at each score; 1 without */
    double *d_weights;                      /* dP = m dO V^T */
    double *d_masked;                       /* dZ, of the masked scores */
    double *d_scores;                       /* dS, of scale * Q K^T */
    double *lse, *d_lse, *sums;             /* (T_q): sums are D */
    double *dQ, *dK, *dV;                   /* (T_q, d_k), (n, d_k), (n, d_v) */
    double *turned;                         /* memory for a matrix of these, transposed */
    double q_scale, k_scale;                /* by which dQ and dK are multiplied */
    bool sizes;                             /* what d_masked is multiplied with is taken without its sign */
} mha__map;

/* The results of a map, or, without one, of all. */
typedef enum mha__backward_step {
    MHA__BACKWARD_OUTPUT,   /* the gradients of the heads and of what is behind them; there is no map */
    MHA__BACKWARD_READ,     /* Q, K, V, dO, seen, weights, slope, lse, d_lse */
    MHA__BACKWARD_WEIGHTS,  /* d_weights */
    MHA__BACKWARD_SUMS,     /* sums */
    MHA__BACKWARD_MASKED,   /* d_masked */
    MHA__BACKWARD_SCORES,   /* d_scores */
    MHA__BACKWARD_PRODUCTS, /* dQ, dK, dV, without relative terms */
    MHA__BACKWARD_ADDED,    /* the gradients of what is added; dQ, dK, dV, not yet added to those of all heads */
    MHA__BACKWARD_HEADS,    /* all heads of all sequences are added up; there is no map */
    MHA__BACKWARD_INPUTS    /* the gradients of the inputs and of all weights; there is no map */
} mha__backward_step;

/* How gradients of rows are rotated; back is right. */
typedef enum mha__turning { MHA__TURNED_BACK, MHA__NOT_TURNED, MHA__TURNED_FORWARD } mha__turning;

/* Results of a layer with latents from its inputs, as matrices with a row for each row of the inputs, and gradients of
 * that. */
typedef struct mha__latent_rows {
    mha_view q, q_normed, d_q;    /* x_q W_QA + b_QA, its norm */
    mha_view kv, kv_normed, d_kv; /* [c, k_r] = x_k W_KVA + b_KVA, norm(c) */
    mha_view wide, d_wide;        /* norm(c) W_KVB */
} mha__latent_rows;

typedef struct mha__norm mha__norm;
/* Another way back through a norm; `how` describes the difference. */
typedef struct mha__norm_otherwise {
    void (*back)(const mha__norm *norm, size_t first, size_t n, const double *x, double *d);
    const void *how;
} mha__norm_otherwise;

/* A backward with all that it needs. Matrices are F64, with a row for each row of the inputs. */
typedef struct mha__backward mha__backward;
struct mha__backward {
    const mha_gradients *given;
    mha__arena memory;
    mha_call call;
    mha_plan plan;                /* of the forward that was run */
    const mha__resolved *r;       /* of that plan */
    mha__turning turns[2];        /* of queries and of keys */
    mha__norm_otherwise norms;    /* another way back through the norms of these and of their latents, of */
    unsigned norms_of;                /* queries (1), keys (2) or both (3); 0 is right */
    bool alone;                   /* one map is run: that of this sequence and head, */
    size_t alone_sequence, alone_head, alone_queries; /* of so many first queries */
    mha_keep keep[MHA_STAGE_COUNT];
    mha_view stages[MHA_STAGE_COUNT]; /* of that forward, F64 and contiguous */
    /* F64 and contiguous. Those of query, key and value always have data: with a layer they are those of q, k and v,
     * (B, T, heads, d), and those of its inputs are d_x. */
    mha_view d[MHA_GRADIENT_COUNT];
    mha_view x[3];                    /* the inputs, as matrices */
    mha_view rows[3];                 /* q, k and v with their biases, before norms and limits */
    mha_view d_x[3];                  /* of a layer; an input that was left out shares that of the one it follows */
    mha_view matrix[MHA_WEIGHT_COUNT]; /* of a layer */
    mha__latent_rows latents;
    mha_view d_output, d_heads;       /* dO of the layer, and of the heads */
    /* Keys (0) and values (1) as they are attended to, and their gradients, (batch, rows, h_kv, d): those of the call
     * or, beside a cache or pages, of all S. */
    mha_view keys[2], d_keys[2];
    mha_cache *cache;                 /* a copy of that of the call, to which its forward appends */
    mha_view gates, gated, d_gated, d_gates;
    mha_view kept[MHA_BACKWARD_STAGE_COUNT]; /* F64 and contiguous; no data: not kept */
    mha__map map;
    double *row; /* memory for a row of all heads */
    struct mha__again *again; /* of known bugs that compute P once more; NULL: none does */
    /* Sees, and may change, what each step made; NULL: nobody does. */
    void (*watch)(void *context, mha__backward *b, mha__backward_step step, mha__map *map);
    void *context;
};

/* Checks a call and its gradients, and runs its forward. `wanted`: gradients beside those that are given. Must be
 * freed in any case. */
mha_status mha__backward_begin(mha__backward *b, const mha_layer *layer, const mha_call *call,
                               const mha_gradients *gradients, const bool wanted[MHA_GRADIENT_COUNT],
                               mha_error *error);
/* Makes the gradients, to b->d; may be called any number of times. */
void mha__backward_run(mha__backward *b);
void mha__backward_free(mha__backward *b);
/* A gradient of what was given: with a layer that of an input, not of q, k or v. */
const mha_view *mha__backward_result(const mha__backward *b, int gradient);

/* The way back through the norms of a side; NULL is right. */
static inline const mha__norm_otherwise *mha__norms_of(const mha__backward *b, bool keys)
{
    return b->norms_of >> keys & 1 ? &b->norms : NULL;
}

/* A view (B, T, ...) that is contiguous, as a matrix. */
static inline mha_view mha__as_matrix(const mha_view *v)
{
    const size_t shape[2] = {v->shape[0] * v->shape[1], v->rank == 4 ? v->shape[2] * v->shape[3] : v->shape[2]};
    return mha_view_of(v->data, v->dtype, 2, shape);
}

/* Row i of a matrix. */
static inline double *mha__matrix_row(const mha_view *v, size_t i)
{
    return (double *)v->data + (ptrdiff_t)i * v->stride[0];
}

/* Makes all numbers of a contiguous view 0, if it has data. */
void mha__matrix_clear(const mha_view *x);

/* Whether nothing comes to a row: then nothing leaves it, whatever its numbers are. */
bool mha__is_zero(const double *d, size_t n);

/* backward_products.c: a matrix and its bias, forward (y = x W + b, or x + b without W) and back, which adds to dW, db
 * and, where it has data, to dx. */
void mha__matrix_forward(const mha__backward *b, mha_weight W, const mha_view *x, const mha_view *y);
void mha__matrix_back(const mha__backward *b, mha_weight W, const mha_view *x, const mha_view *dy, const mha_view *dx);
/* The bias of a matrix; the matrix itself when it has none. */
mha_weight mha__bias_of(mha_weight W);

/* backward_rows.c: a norm, and where the gradients of its weight and bias go; no data: it has none, or they are not
 * wanted. */
struct mha__norm {
    mha_norm_kind kind;
    bool plus_one;
    double eps;
    const mha_view *weight, *d_weight, *d_bias;
    const mha__norm_otherwise *otherwise; /* NULL: as mha__norm_back has it */
};
/* The factor of a number behind a norm of n numbers, by element `at` of its weight; 1 without one. */
double mha__norm_weight(const mha__norm *norm, size_t at, size_t n);
/* Turns the gradients of n normalised numbers into those of x; `first`: the element of the weight for x[0]. */
void mha__norm_back(const mha__norm *norm, size_t first, size_t n, const double *x, double *d);

/* backward_stages.c: memory for the stages that are to be kept (false: there is none), copies of what a step made,
 * and copies of these to the views of `to`, rows rounded to `type`; MHA_F32: as they are. */
bool mha__backward_begin_stages(mha__backward *b);
void mha__backward_keep(const mha__backward *b, mha__backward_step step, const mha__map *map);
void mha__backward_hand_stages(const mha__backward *b, mha_dtype type, const mha_gradients *to);

typedef struct mha__backward_stage {
    mha_backward_stage_info shown;
    mha__backward_step made; /* in this step */
    size_t at; /* offset in mha__map of its numbers; of a step without a map in mha__backward of a view */
} mha__backward_stage;

/* The row of a stage. */
const mha__backward_stage *mha__backward_stage_of(mha_backward_stage stage);
/* A stage as a step without a map makes it, contiguous; NULL: another step makes it. */
const mha_view *mha__backward_stage_made(const mha__backward *b, mha_backward_stage stage, mha__backward_step step);
/* Where the number of query i and key j of a map is kept, or, of row_sums, that of query i; NULL: it is not. */
double *mha__backward_kept_at(const mha__backward *b, mha_backward_stage stage, const mha__map *map, size_t i,
                              size_t j);

/* Matrices for the two ends of a layer, and what its projections make of the inputs. False: there is no memory. */
bool mha__backward_begin_inputs(mha__backward *b);
bool mha__backward_begin_output(mha__backward *b);
bool mha__backward_begin_latents(mha__backward *b);
/* The gradients of W_O and of the gate; those of the heads, to d_heads. */
void mha__backward_output(const mha__backward *b);
/* From the gradients of q, k and v to those of the inputs and of the weights that made them. */
void mha__backward_inputs(const mha__backward *b);
void mha__backward_latents(const mha__backward *b);
/* A matrix taken from the memory of the backward. */
bool mha__backward_take(mha__backward *b, mha_view *to, size_t rows, size_t width);

/* Rounds what a step made where the precision that is modelled does. */
void mha__backward_round(const mha__backward *b, mha__backward_step step, mha__map *map);
/* MHA_INVALID: a point of a precision whose type is none that it takes; MHA_UNSUPPORTED: a precision with a layer. */
mha_status mha__backward_precision_check(const mha_layer *layer, const mha_backward_precision *precision,
                                         mha_error *error);

/* The steps: of a map, from the stages of the forward to its dQ, dK and dV. */
void mha__map_read(mha__backward *b, size_t sequence, size_t head);
/* Element c of query i of a map, of what is given of all keys: (B, T_q, h, d_v). */
double mha__map_whole(const mha__map *map, const mha_view *rows, size_t i, size_t c);
void mha__map_weights(const mha__backward *b, mha__map *map);
void mha__map_sums(const mha__backward *b, mha__map *map);
void mha__map_masked(const mha__backward *b, mha__map *map);
void mha__map_scores(const mha__backward *b, mha__map *map);
void mha__map_products(const mha__backward *b, mha__map *map);
void mha__map_added(const mha__backward *b, mha__map *map);
/* The element of a mask, F64 and contiguous, at the last of these indices, which it broadcasts. */
double *mha__mask_element(const mha_view *mask, const size_t *index, int rank);
/* Adds dQ, dK and dV of a map to those of all heads. */
void mha__map_gather(const mha__backward *b, const mha__map *map);

/* backward_held.c: keys that lie in a cache or in pages. Whether a call has such keys. */
static inline bool mha__holds_keys(const mha__resolved *r)
{
    return r->cache || r->pages.keys.data;
}
/* Memory for keys, which the forward fills where they are held, and for d_keys. False: there is none. */
bool mha__backward_keep_keys(mha__backward *b);
bool mha__backward_begin_keys(mha__backward *b);
/* Zeros in d_keys that are held. Deals those of all heads out to the gradients of the cache, of pages and of new rows.
 */
void mha__backward_clear_keys(const mha__backward *b);
void mha__backward_deal_keys(const mha__backward *b);
/* Turns d of query, key and value, of rows as they are attended to, into those of the rows that were projected. */
void mha__backward_rows(const mha__backward *b);

/* Bytes for the memory of one map; sets its pointers when `base` is there. */
size_t mha__map_lay_out(const mha__resolved *r, char *base, mha__map *map);

#endif
