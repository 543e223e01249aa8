/* The weights of a call: those of its layer, or those that a call without a layer gives. */
#include "attention/call/resolved.h"

#include "attention/layer/layer.h"
#include "params/params.h"

/* Rows of a table; 1 stands for none. */
static size_t rows_of(const mha_view *table)
{
    return table->shape[0] ? table->shape[0] : 1;
}

/* Whether the first relative table that is given has columns for each head. */
static bool has_heads(const mha_view *weights, size_t d_k)
{
    for (int w = MHA_RELATIVE_K; w <= MHA_RELATIVE_Q; w++)
        if (weights[w].data)
            return weights[w].rank == 2 && weights[w].shape[1] != d_k;
    return false;
}

/* Copies the weights of a call; of those that only later versions know none may be given. */
static mha_status copy_weights(const mha_call *call, mha_view weights[MHA_WEIGHT_COUNT], mha_error *error)
{
    if (call->weight_count == 0 || call->weight_count > MHA_WEIGHT_ROOM)
        return mha__fail(error, MHA_INVALID, "weight_count", "expected the number of views in `weights`, "
                         "MHA_WEIGHT_COUNT (%d), found %zu", MHA_WEIGHT_COUNT, call->weight_count);
    for (size_t w = 0; w < call->weight_count; w++)
        if (w < MHA_WEIGHT_COUNT)
            weights[w] = call->weights[w];
        else if (call->weights[w].data)
            return mha__fail(error, MHA_UNSUPPORTED, "weights",
                             "expected weights of this version, found weight %zu of a later version", w);
    return MHA_OK;
}

mha_config mha__config_of_weights(const mha_view weights[MHA_WEIGHT_COUNT], size_t h, size_t h_kv, size_t d_k,
                                  size_t d_v)
{
    return (mha_config){.n_heads = h, .kv_heads = h_kv, .d_k = d_k, .d_v = d_v, .bias_q = true, .bias_k = true,
                        .bias_v = true, .bias_kv = true, .sinks = true,
                        .q_norm = mha__norm_of_weight(&weights[MHA_Q_NORM], h, d_k),
                        .k_norm = mha__norm_of_weight(&weights[MHA_K_NORM], h_kv, d_k), .norm_bias = true,
                        .bias_rows = rows_of(&weights[MHA_BIAS_TABLE]),
                        .relative_k_rows = rows_of(&weights[MHA_RELATIVE_K]),
                        .relative_column_rows = rows_of(&weights[MHA_RELATIVE_COLUMNS]),
                        .relative_q_rows = rows_of(&weights[MHA_RELATIVE_Q]),
                        .relative_by_head = has_heads(weights, d_k)};
}

/* Checks the weights of a call without a layer: their shapes are those in a layer with the sizes of the call. */
static mha_status resolve_own_weights(mha__resolved *r, const mha_call *call, mha_error *error)
{
    const mha__sizes *p = &r->plan;
    mha_view weights[MHA_WEIGHT_COUNT] = {{0}};
    TRY(copy_weights(call, weights, error));
    const mha_config every = mha__config_of_weights(weights, p->h, p->h_kv, p->d_k, p->d_v);
    r->norm[0] = every.q_norm;
    r->norm[1] = every.k_norm;
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const char *name = mha_weight_at((mha_weight)w)->name;
        const mha_view *view = &weights[w];
        size_t shape[2];
        if (!view->data)
            continue;
        if ((w == MHA_Q_NORM_BIAS && !r->norm[0]) || (w == MHA_K_NORM_BIAS && !r->norm[1]))
            return mha__fail(error, MHA_INVALID, name, "expected the weight of the norm with it, found none");
        const int rank = mha_config_weight_shape(&every, (mha_weight)w, shape, NULL);
        if (rank == 0 || w == MHA_W_Q || w == MHA_W_K || w == MHA_W_V || w == MHA_W_O)
            return mha__fail(error, MHA_UNSUPPORTED, name,
                             "expected a layer with it, found none; heads are the output without one");
        TRY(mha__expect_shape(error, name, view, rank, shape));
        if (!mha__dtype_is_float(view->dtype))
            return mha__fail(error, MHA_INVALID, name, "expected a floating type, found %s",
                            mha_dtype_name(view->dtype));
        r->weight[w] = *view;
    }
    if (!weights[MHA_BIAS_K].data != !weights[MHA_BIAS_V].data)
        return mha__fail(error, MHA_UNSUPPORTED, "bias_k", "expected bias_k and bias_v together, found only one");
    return MHA_OK;
}

mha_status mha__resolve_weights(mha__resolved *r, const mha_call *call, mha_error *error)
{
    if (!r->layer)
        return call->weights ? resolve_own_weights(r, call, error) : MHA_OK;
    if (call->weights)
        return mha__fail(error, MHA_INVALID, "weights", "expected none with a layer, which has its own");
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_tensor *tensor = mha_layer_weight(r->layer, (mha_weight)w);
        if (!tensor)
            continue;
        if (r->plan.path == MHA_PATH_FAST && !(w == MHA_W_KVB && r->latent.absorbed))
            r->panels[w] = mha__layer_packed(r->layer, (mha_weight)w);
        const mha_tensor_info info = mha_tensor_info_of(tensor);
        r->weight[w] = r->panels[w] ? mha_view_of(NULL, info.dtype, info.rank, info.shape) : mha__tensor_plain(tensor);
        if (!r->weight[w].data && !r->panels[w])
            return mha__fail(error, MHA_NO_MEMORY, mha_weight_at((mha_weight)w)->name, "no memory to unpack it");
    }
    r->norm[0] = mha_layer_config(r->layer)->q_norm;
    r->norm[1] = mha_layer_config(r->layer)->k_norm;
    return MHA_OK;
}
