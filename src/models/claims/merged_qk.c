/* W_i^Q (W_i^K)^T as one matrix for each head: its memory, its values, its scores and its rank. */
#include <float.h>
#include <stdio.h>

#include "base/base.h"
#include "base/dot.h"
#include "compute/gemm.h"
#include "models/claims/merged_qk.h"

/* The rows, in the order they are added. */
enum row { W_QK, U_Q, U_K, C_QK, ROWS };

struct mha__merged {
    mha_config config;
    mha_params *table;
    mha_tensor *row[ROWS]; /* NULL: not needed */
};

/* ---------------------------------------------------------------- allocation */

static mha_status add_row(mha__merged *merged, enum row row, const char *name, const char *prefix, int rank,
                          size_t rows, size_t columns, mha_error *error)
{
    char full[512];
    size_t bytes; /* of one element, which blocks have none of: products of their matrices are floats */
    const mha_dtype own = merged->config.dtype, dtype = mha_dtype_bytes(own, 1, &bytes) == MHA_OK ? own : MHA_F32;
    mha_tensor_spec spec = {.name = full,
                            .role = name,
                            .group = "attention",
                            .dtype = dtype,
                            .rank = rank,
                            .shape = {merged->config.n_heads, rows, columns}};
    int length = snprintf(full, sizeof full, "%s%s", prefix ? prefix : "", name);
    if (length < 0 || (size_t)length >= sizeof full)
        return mha__fail(error, MHA_INVALID, name, "the prefix of %s is too long: %d bytes", name, length);
    return mha_params_add(merged->table, &spec, &merged->row[row], error);
}

mha_status mha__merged_create(const mha_config *config, mha_params *table, const char *prefix, mha__merged **merged,
                              mha_error *error)
{
    mha_config c = *config;
    const mha_allocator allocator = mha__allocator_default();
    mha_status status = mha_config_resolve(&c, error);
    if (status != MHA_OK)
        return status;
    if (c.q_norm != MHA_NORM_NONE || c.k_norm != MHA_NORM_NONE)
        return mha__fail(error, MHA_UNSUPPORTED, "merged-qk",
                         "expected nothing between W_Q and W_K, found a q/k norm, which is not linear");
    if (c.bias_kv)
        return mha__fail(error, MHA_UNSUPPORTED, "merged-qk",
                         "expected keys that all come from W_K, found bias_k, a row that does not");
    mha__merged *made = mha__allocate(&allocator, sizeof *made);
    if (!made)
        return mha__fail(error, MHA_NO_MEMORY, "merged-qk", "no memory for merged matrices");
    made->config = c;
    made->table = table;
    status = add_row(made, W_QK, "W_QK", prefix, 3, c.d_q, c.d_kin, error);
    if (status == MHA_OK && c.bias_k)
        status = add_row(made, U_Q, "u_Q", prefix, 2, c.d_q, 0, error);
    if (status == MHA_OK && c.bias_q)
        status = add_row(made, U_K, "u_K", prefix, 2, c.d_kin, 0, error);
    if (status == MHA_OK && c.bias_q && c.bias_k)
        status = add_row(made, C_QK, "c_QK", prefix, 1, 0, 0, error);
    if (status != MHA_OK) {
        mha__merged_destroy(made);
        return status;
    }
    *merged = made;
    return MHA_OK;
}

void mha__merged_destroy(mha__merged *merged)
{
    const mha_allocator allocator = mha__allocator_default();
    if (!merged)
        return;
    for (int row = ROWS - 1; row >= 0; row--)
        mha_params_remove(merged->table, merged->row[row]);
    mha__release(&allocator, merged, sizeof *merged);
}

/* ---------------------------------------------------------------- values */

/* A matrix or vector in float64, row-major, in memory that the caller releases; NULL when there is no memory. */
static double *widened(const mha_view *view, size_t *bytes)
{
    const mha_allocator allocator = mha__allocator_default();
    size_t elements = mha_view_elements(view);
    *bytes = 0;
    if (!mha__mul(elements, sizeof(double), bytes))
        return NULL;
    double *values = mha__allocate(&allocator, *bytes);
    mha_view wide = mha_view_of(values, MHA_F64, view->rank, view->shape);
    if (values && mha_view_copy(&wide, view) != MHA_OK) {
        mha__release(&allocator, values, *bytes); /* unreachable: all types of weights are widened */
        return NULL;                              /* unreachable: as above */
    }
    return values;
}

static void store(mha_tensor *tensor, const size_t *index, double value)
{
    const mha_view view = mha_tensor_view(tensor);
    mha_view_set(&view, index, value);
}

static void fill_head(mha__merged *merged, size_t head, const double *w_q, const double *w_k, const double *b_q,
                      const double *b_k)
{
    const mha_config *c = &merged->config;
    for (size_t i = 0; i < c->d_q; i++) {
        for (size_t j = 0; j < c->d_kin; j++)
            store(merged->row[W_QK], (size_t[]){head, i, j}, mha__dot(w_q + i * c->d_k, w_k + j * c->d_k, c->d_k));
        if (b_k)
            store(merged->row[U_Q], (size_t[]){head, i}, mha__dot(w_q + i * c->d_k, b_k, c->d_k));
    }
    for (size_t j = 0; j < c->d_kin && b_q; j++)
        store(merged->row[U_K], (size_t[]){head, j}, mha__dot(w_k + j * c->d_k, b_q, c->d_k));
    if (b_q && b_k)
        store(merged->row[C_QK], (size_t[]){head}, mha__dot(b_q, b_k, c->d_k));
}

mha_status mha__merged_fill(mha__merged *merged, const mha_layer *layer, mha_error *error)
{
    const mha_config *c = &merged->config, *l = mha_layer_config(layer);
    const mha_allocator allocator = mha__allocator_default();
    if (c->n_heads != l->n_heads || c->kv_heads != l->kv_heads || c->d_k != l->d_k || c->d_q != l->d_q ||
        c->d_kin != l->d_kin || c->bias_q != l->bias_q || c->bias_k != l->bias_k)
        return mha__fail(error, MHA_INVALID, "merged-qk", "expected a layer of the configuration it was made for");
    mha_status status = MHA_OK;
    for (size_t head = 0; head < c->n_heads && status == MHA_OK; head++) {
        size_t kv = head / (c->n_heads / c->kv_heads), bytes[4] = {0};
        const mha_weight weights[4] = {MHA_W_Q, MHA_W_K, MHA_B_Q, MHA_B_K};
        double *values[4] = {0};
        for (int i = 0; i < 4; i++) {
            mha_view view = mha_layer_head(layer, weights[i], i % 2 ? kv : head);
            if (view.data && !(values[i] = widened(&view, &bytes[i])))
                status = mha__fail(error, MHA_NO_MEMORY, "merged-qk", "no memory for head %zu", head);
        }
        if (status == MHA_OK)
            fill_head(merged, head, values[0], values[1], values[2], values[3]);
        for (int i = 0; i < 4; i++)
            mha__release(&allocator, values[i], bytes[i]);
    }
    return status;
}

/* ---------------------------------------------------------------- scores */

/* W_i^T x_q (d_kin): the factor of each feature of the key input in the query's scores. */
static void ask(const double *x, const double *w, size_t d_q, size_t d_kin, double *asked)
{
    for (size_t j = 0; j < d_kin; j++)
        asked[j] = 0;
    for (size_t i = 0; i < d_q; i++)
        for (size_t j = 0; j < d_kin; j++)
            asked[j] += x[i] * w[i * d_kin + j];
}

typedef struct held {
    double *values;
    size_t bytes;
} held;

mha_status mha__merged_scores(const mha__merged *merged, const mha_view *query, const mha_view *key, double scale,
                              const mha_view *scores, mha_error *error)
{
    enum { X_Q = ROWS, X_K, ASKED, HELD };
    const mha_config *c = &merged->config;
    const mha_allocator allocator = mha__allocator_default();
    if (query->rank != 3 || key->rank != 3 || scores->rank != 4 || query->shape[2] != c->d_q ||
        key->shape[2] != c->d_kin || key->shape[0] != query->shape[0] || scores->shape[0] != query->shape[0] ||
        scores->shape[1] != c->n_heads || scores->shape[2] != query->shape[1] || scores->shape[3] != key->shape[1])
        return mha__fail(error, MHA_INVALID, "merged-qk",
                         "expected query (B, T_q, %zu), key (B, S, %zu) and scores (B, %zu, T_q, S)", c->d_q, c->d_kin,
                         c->n_heads);
    size_t B = query->shape[0], T_q = query->shape[1], S = key->shape[1];
    held h[HELD] = {0};
    bool enough = true;
    for (int row = 0; row < ROWS; row++)
        if (merged->row[row]) {
            mha_view view = mha_tensor_view(merged->row[row]);
            h[row].values = widened(&view, &h[row].bytes);
            enough = enough && h[row].values;
        }
    h[X_Q].values = widened(query, &h[X_Q].bytes);
    h[X_K].values = widened(key, &h[X_K].bytes);
    h[ASKED].bytes = c->d_kin * sizeof(double);
    h[ASKED].values = mha__allocate(&allocator, h[ASKED].bytes);
    mha_status status = MHA_OK;
    if (!enough || !h[X_Q].values || !h[X_K].values || !h[ASKED].values)
        status = mha__fail(error, MHA_NO_MEMORY, "merged-qk", "no memory for its scores");
    for (size_t b = 0; b < B && status == MHA_OK; b++)
        for (size_t head = 0; head < c->n_heads; head++)
            for (size_t t = 0; t < T_q; t++) {
                const double *x = h[X_Q].values + (b * T_q + t) * c->d_q;
                double same = h[U_Q].values ? mha__dot(x, h[U_Q].values + head * c->d_q, c->d_q) : 0;
                same += h[C_QK].values ? h[C_QK].values[head] : 0;
                ask(x, h[W_QK].values + head * c->d_q * c->d_kin, c->d_q, c->d_kin, h[ASKED].values);
                for (size_t j = 0; j < c->d_kin && h[U_K].values; j++)
                    h[ASKED].values[j] += h[U_K].values[head * c->d_kin + j];
                for (size_t s = 0; s < S; s++)
                    mha_view_set(
                        scores, (size_t[]){b, head, t, s},
                        scale * (mha__dot(h[ASKED].values, h[X_K].values + (b * S + s) * c->d_kin, c->d_kin) + same));
            }
    for (int i = 0; i < HELD; i++)
        mha__release(&allocator, h[i].values, h[i].bytes);
    return status;
}

/* ---------------------------------------------------------------- rank */

mha_status mha__merged_rank(const mha__merged *merged, size_t head, size_t *rank, mha_error *error)
{
    const mha_config *c = &merged->config;
    const mha_allocator allocator = mha__allocator_default();
    if (head >= c->n_heads)
        return mha__fail(error, MHA_INVALID, "head", "expected at most %zu, found %zu", c->n_heads - 1, head);
    size_t larger = c->d_q > c->d_kin ? c->d_q : c->d_kin, smaller = c->d_q + c->d_kin - larger, bytes;
    mha_view whole = mha_tensor_view(merged->row[W_QK]);
    mha_view one = mha_view_slice(&whole, 0, head, 1);
    double *matrix = widened(&one, &bytes), *values = mha__allocate(&allocator, smaller * sizeof *values);
    mha_status status = matrix && values ? mha__singular_values(matrix, c->d_kin, c->d_q, values, error)
                                         : mha__fail(error, MHA_NO_MEMORY, "merged-qk", "no memory for its rank");
    double epsilon = c->dtype == MHA_F64    ? DBL_EPSILON
                     : c->dtype == MHA_F32  ? (double)FLT_EPSILON
                     : c->dtype == MHA_BF16 ? 0x1p-7
                                            : 0x1p-10;
    if (status == MHA_OK) {
        *rank = 0;
        while (*rank < smaller && values[*rank] > (double)larger * epsilon * values[0])
            ++*rank;
    }
    mha__release(&allocator, matrix, bytes);
    mha__release(&allocator, values, smaller * sizeof *values);
    return status;
}
