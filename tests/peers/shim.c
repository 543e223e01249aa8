/* One plain function between Python and the library: a layer in PyTorch's terms, run on one path. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "mha/mha.h"

enum { PEER_WEIGHTS = MHA_K_NORM + 1 }; /* the length of WEIGHTS in torch_peer.py */

typedef struct peer_layer {
    int64_t B, T_q, T_k, d_model, heads, d_kin, d_vin;
    int32_t bias, bias_kv, zero_attn, empty_nan;
    const double *weight[PEER_WEIGHTS]; /* in the order of mha_weight, (in, out); NULL where absent */
    const float *query, *key, *value;       /* (B, T, width) */
    const float *mask;                      /* additive, (mask_rows, T_q, T_k) with mask_rows 1, B or B*heads; NULL */
    int64_t mask_rows;
    const uint8_t *padding; /* (B, T_k), true hides; NULL */
} peer_layer;

/* Writes output (B, T_q, d_model) and weights (B, heads, T_q, S') and how far a float may be off in each.
 * Returns 0, or 1 with a message. */
__attribute__((visibility("default"))) int peer_run(const peer_layer *p, const char *path, double *output,
                                                    double *weights, double bound[2], char message[400]);

static mha_status set_weights(const peer_layer *p, mha_layer *layer, mha_error *error)
{
    mha_status status = MHA_OK;
    for (int w = 0; w < PEER_WEIGHTS && status == MHA_OK; w++) {
        size_t shape[2];
        int rank = mha_config_weight_shape(mha_layer_config(layer), (mha_weight)w, shape, NULL);
        if (rank == 0)
            continue;
        union {
            const double *in;
            void *out;
        } data = {p->weight[w]};
        mha_view view = mha_view_of(data.out, MHA_F64, rank, shape);
        status = mha_layer_set(layer, (mha_weight)w, &view, error);
    }
    return status;
}

static mha_view input(const float *data, int64_t B, int64_t T, int64_t width)
{
    union {
        const void *in;
        void *out;
    } p = {data};
    return mha_view_rows(p.out, MHA_F32, MHA_BTE, (size_t)B, (size_t)T, (size_t)width);
}

static mha_call describe(const peer_layer *p, mha_path path, double *output, double *weights, mha_keep *keep)
{
    size_t B = (size_t)p->B, h = (size_t)p->heads, T_q = (size_t)p->T_q, T_k = (size_t)p->T_k;
    size_t S = T_k + (size_t)p->bias_kv + (size_t)p->zero_attn;
    mha_call call = {.query = input(p->query, p->B, p->T_q, p->d_model),
                     .key = input(p->key, p->B, p->T_k, p->d_kin),
                     .value = input(p->value, p->B, p->T_k, p->d_vin),
                     .path = path};
    call.semantics.softmax.zero_row = p->zero_attn;
    call.semantics.softmax.empty_rows = p->empty_nan ? MHA_EMPTY_NAN : MHA_EMPTY_ZERO;
    if (p->mask) { /* (B*h, T_q, T_k) is (B, h, T_q, T_k); (B, ..) has one head extent */
        size_t rows = (size_t)p->mask_rows, shape[4] = {rows == 1 ? 1 : B, rows == B * h ? h : 1, T_q, T_k};
        mha_view rows_view = input(p->mask, 1, 1, 1);
        call.semantics.visible.mask = (mha_mask){MHA_MASK_ADDITIVE, mha_view_of(rows_view.data, MHA_F32, 4, shape)};
    }
    if (p->padding) {
        union {
            const void *in;
            void *out;
        } data = {p->padding};
        call.semantics.visible.key_padding =
            (mha_mask){MHA_MASK_HIDES, mha_view_of(data.out, MHA_BOOL, 2, (size_t[]){B, T_k})};
    }
    call.output = mha_view_of(output, MHA_F64, 3, (size_t[]){B, T_q, (size_t)p->d_model});
    *keep = (mha_keep){.stage = MHA_STAGE_WEIGHTS, .view = mha_view_of(weights, MHA_F64, 4, (size_t[]){B, h, T_q, S})};
    call.keep = keep;
    call.keep_count = 1;
    return call;
}

static mha_status run(const peer_layer *p, mha_layer *layer, mha_path path, double *output, double *weights,
                      double bound[2], mha_error *error)
{
    mha_keep keep;
    const mha_call call = describe(p, path, output, weights, &keep);
    mha_plan plan;
    double bounds[MHA_STAGE_COUNT];
    mha_status status = mha_plan_call(layer, &call, &plan, error);
    if (status == MHA_OK)
        status =
            mha_error_bound(layer, &call, path == MHA_PATH_EXACT ? 0x1p-53 : 0x1p-24, bounds, MHA_STAGE_COUNT, error);
    if (status != MHA_OK)
        return status;
    bound[0] = bounds[MHA_STAGE_OUTPUT];
    bound[1] = bounds[MHA_STAGE_WEIGHTS];
    return mha_run(layer, &call, error);
}

int peer_run(const peer_layer *p, const char *path_name, double *output, double *weights, double bound[2],
             char message[400])
{
    mha_error error = {.message = "no memory"};
    mha_path path;
    mha_params *table = NULL;
    mha_layer *layer = NULL;
    bool bias = p->bias;
    mha_config config = {.d_model = (size_t)p->d_model, .n_heads = (size_t)p->heads, .d_kin = (size_t)p->d_kin,
                         .d_vin = (size_t)p->d_vin, .bias_q = bias, .bias_k = bias, .bias_v = bias, .bias_o = bias,
                         .bias_kv = p->bias_kv, .dtype = MHA_F64};
    mha_status status = mha_path_find(path_name, &path) ? mha_params_create(NULL, &table, NULL) : MHA_NOT_FOUND;
    if (status == MHA_OK)
        status = mha_layer_create(&config, table, "", &layer, &error);
    if (status == MHA_OK)
        status = set_weights(p, layer, &error);
    if (status == MHA_OK)
        status = run(p, layer, path, output, weights, bound, &error);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
    snprintf(message, sizeof error.message, "%s", status == MHA_OK ? "" : error.message);
    return status != MHA_OK;
}
