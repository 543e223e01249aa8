/* Latent attention by its definition, in plain loops. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/latent.h"
#include "support/short_float.h"
#include "support/unit.h"

static const char *wrong;

static bool is(const char *bug)
{
    return wrong && strcmp(wrong, bug) == 0;
}

double latent_weight(const mha_layer *layer, mha_weight weight, size_t i, size_t j)
{
    const mha_view v = mha_tensor_view(mha_layer_weight(layer, weight));
    const double x = mha_view_get(&v, (size_t[]){i, j});
    const mha_dtype type = is("weights-f16") ? MHA_F16 : MHA_BF16;
    uint16_t near;
    if (is("weights-bf16-cut"))
        return short_float_cut((float)x);
    if (!is("weights-f16") && !is("weights-bf16"))
        return x;
    const mha_view rounded = mha_view_of(&near, type, 1, (size_t[]){1});
    short_float_set(&rounded, 0, short_float_pattern(x, type));
    return mha_view_get(&rounded, (size_t[]){0});
}

/* y = x W + b; b may be missing. */
static void product(const mha_layer *l, const double *x, size_t in, mha_weight W, mha_weight b, size_t out, double *y)
{
    const bool biased = b < MHA_WEIGHT_COUNT && mha_layer_weight(l, b) && !(b != MHA_B_O && is("latent-bias-dropped"));
    for (size_t j = 0; j < out; j++) {
        y[j] = biased ? latent_weight(l, b, j, 0) : 0;
        for (size_t i = 0; i < in; i++)
            y[j] += x[i] * latent_weight(l, W, i, j);
    }
}

/* The first n numbers; those after `weighted` have factor 1. */
static void norm(const mha_layer *l, const mha_call *call, double *x, size_t n, size_t weighted, mha_weight w)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    const double eps = call->semantics.qkv.norm_eps > 0 ? call->semantics.qkv.norm_eps : 1e-6;
    for (size_t i = 0; i < n; i++)
        x[i] *= (i < weighted ? latent_weight(l, w, i, 0) : 1) / sqrt(squares / (double)n + eps);
}

static void make_query(const mha_layer *l, const mha_call *call, const double *x, double *q)
{
    const mha_config *c = mha_layer_config(l);
    double latent[64];
    if (c->q_rank)
        product(l, x, c->d_q, MHA_W_QA, MHA_B_QA, c->q_rank, latent);
    if (c->q_rank && !is("latent-q-unnormed"))
        norm(l, call, latent, c->q_rank, c->q_rank, MHA_QA_NORM);
    product(l, c->q_rank ? latent : x, c->q_rank ? c->q_rank : c->d_q, MHA_W_Q, MHA_WEIGHT_COUNT, c->n_heads * c->d_k,
            q);
}

/* Where the keys and the values of a head begin in a row of norm(c) W_KVB. */
static void places(const mha_config *c, size_t head, size_t place[2])
{
    const size_t d_n = c->d_k - c->d_rope, wide = d_n + c->d_v;
    place[0] = head * wide, place[1] = head * wide + d_n;
    if (is("latent-values-first"))
        place[1] = head * wide, place[0] = head * wide + c->d_v;
    if (is("latent-blocks"))
        place[0] = head * d_n, place[1] = c->n_heads * d_n + head * c->d_v;
}

static void make_key(const mha_layer *l, const mha_call *call, const double *x, double *keys, double *values)
{
    const mha_config *c = mha_layer_config(l);
    const size_t d_n = c->d_k - c->d_rope, all = c->kv_rank + c->d_rope;
    double raw[128], latent[128], row[256];
    product(l, x, c->d_kin, MHA_W_KVA, MHA_B_KVA, all, raw);
    for (size_t i = 0; i < all; i++)
        latent[i] = raw[is("latent-shared-first") ? (i < c->kv_rank ? c->d_rope + i : i - c->kv_rank) : i];
    if (!is("latent-kv-unnormed"))
        norm(l, call, latent, is("latent-shared-normed") ? all : c->kv_rank, c->kv_rank, MHA_KVA_NORM);
    product(l, latent, c->kv_rank, MHA_W_KVB, MHA_WEIGHT_COUNT, c->n_heads * (d_n + c->d_v), row);
    for (size_t head = 0; head < c->n_heads; head++) {
        double *key = keys + head * c->d_k;
        size_t place[2];
        places(c, head, place);
        memcpy(key, row + place[0], d_n * sizeof *key);
        memcpy(values + head * c->d_v, row + place[1], c->d_v * sizeof *values);
        for (size_t i = 0; i < c->d_rope; i++)
            key[d_n + i] = head > 0 && is("latent-not-shared") ? 0 : latent[c->kv_rank + i];
    }
}

void latent_expect(const mha_layer *l, const mha_call *call, const char *bug, double *output)
{
    const mha_config *c = mha_layer_config(l);
    const mha_view *keys = call->key.data ? &call->key : &call->query;
    const size_t B = call->query.shape[0], T_q = call->query.shape[1], T_k = keys->shape[1], h = c->n_heads;
    double *Q = calloc(B * T_q * h * c->d_k + 1, sizeof *Q), *K = calloc(B * T_k * h * c->d_k + 1, sizeof *K),
           *V = calloc(B * T_k * h * c->d_v + 1, sizeof *V), *H = calloc(B * T_q * h * c->d_v + 1, sizeof *H), x[64];
    const float *x_q = call->query.data, *x_k = keys->data;
    wrong = bug;
    for (size_t t = 0; t < B * T_q; t++) {
        for (size_t i = 0; i < c->d_q; i++)
            x[i] = x_q[t * c->d_q + i];
        make_query(l, call, x, Q + t * h * c->d_k);
    }
    for (size_t t = 0; t < B * T_k; t++) {
        for (size_t i = 0; i < c->d_kin; i++)
            x[i] = x_k[t * c->d_kin + i];
        make_key(l, call, x, K + t * h * c->d_k, V + t * h * c->d_v);
    }
    mha_view weights[MHA_WEIGHT_COUNT] = {{0}};
    if (c->sinks)
        weights[MHA_SINKS] = mha_tensor_view(mha_layer_weight(l, MHA_SINKS));
    mha_call core = {.query = mha_view_of(Q, MHA_F64, 4, (size_t[]){B, T_q, h, c->d_k}),
                     .key = mha_view_of(K, MHA_F64, 4, (size_t[]){B, T_k, h, c->d_k}),
                     .value = mha_view_of(V, MHA_F64, 4, (size_t[]){B, T_k, h, c->d_v}),
                     .output = mha_view_of(H, MHA_F64, 4, (size_t[]){B, T_q, h, c->d_v}),
                     .semantics = call->semantics, .weights = weights,
                     .weight_count = MHA_WEIGHT_COUNT, .path = MHA_PATH_EXACT};
    mha_error error;
    if (is("scale-d-n"))
        core.semantics.softmax.scale = 1 / sqrt((double)(c->d_k - c->d_rope));
    if (is("scale-default"))
        core.semantics.softmax.scale = 0;
    if (is("rope-pairing"))
        core.semantics.qkv.rope.kind = MHA_ROPE_HALF_SPLIT;
    assert_ok(mha_run(NULL, &core, &error), error);
    for (size_t t = 0; t < B * T_q; t++)
        product(l, H + t * h * c->d_v, h * c->d_v, MHA_W_O, MHA_B_O, c->d_out, output + t * c->d_out);
    free(Q), free(K), free(V), free(H);
    wrong = NULL;
}
