/* Weights that are made of other tensors of a file when a layer is loaded; these are its parameters instead. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attention/layer.h"
#include "base/base.h"
#include "models/layer/loader.h"
#include "params/params.h"

/* What each source is: its row, the weight that is made of it, the end of its name, and its shape for h heads and n
 * features inside the MLP: -1 is h, -2 is n. */
static const struct {
    const char *role;
    mha_weight weight;
    const char *name;
    int rank, shape[3];
} sources[MHA_SOURCES] = {
    [MHA_SOURCE_LOGIT_SCALE] = {"logit_scale", MHA_Q_NORM, "", 3, {-1, 1, 1}},
    [MHA_SOURCE_W_1] = {"bias_W_1", MHA_BIAS_TABLE, ".0.weight", 2, {-2, 2}},
    [MHA_SOURCE_B_1] = {"bias_b_1", MHA_BIAS_TABLE, ".0.bias", 1, {-2}},
    [MHA_SOURCE_W_2] = {"bias_W_2", MHA_BIAS_TABLE, ".2.weight", 2, {-1, -2}},
};

/* ---------------------------------------------------------------- found */

/* The name of a source, prefix included; false: the scheme has none, or it is too long. */
static bool source_name(const mha__loader *l, int s, char *name, size_t size)
{
    const bool table = sources[s].weight == MHA_BIAS_TABLE;
    const char *own = table ? sources[s].name : l->layer.scheme->logit_scale;
    return own && snprintf(name, size, "%s%s", table ? l->bias_table : l->prefix, own) < (int)size;
}

mha_status mha__loader_find_sources(mha__loader *l)
{
    for (int s = 0; s < MHA_SOURCES; s++) {
        char name[512];
        if (!mha__loader_makes(l, sources[s].weight))
            continue;
        if (!source_name(l, s, name, sizeof name))
            return mha__fail(l->error, MHA_NOT_FOUND, sources[s].role,
                             "expected a tensor of that use, which names of %s have no word for",
                             l->layer.scheme->name);
        l->source[s] = mha__loader_named(l, name);
        if (!l->source[s])
            return mha__fail_inside(l->error, MHA_NOT_FOUND, mha_file_path(l->file), name, 0,
                                    "expected a tensor of this name, of which %s is made, found none",
                                    mha_weight_name(sources[s].weight));
        if (!mha__dtype_is_float(l->source[s]->reads_as))
            return mha__refuse(l, l->source[s], MHA_UNSUPPORTED, "expected F32, F64, F16 or BF16, found %s",
                               mha_dtype_name(l->source[s]->dtype));
        l->tensors++;
    }
    return MHA_OK;
}

mha_status mha__loader_check_sources(const mha__loader *l)
{
    const size_t inside = l->source[MHA_SOURCE_B_1] ? l->source[MHA_SOURCE_B_1]->elements : 0;
    for (int s = 0; s < MHA_SOURCES; s++) {
        const mha_file_tensor *tensor = l->source[s];
        size_t shape[3];
        char want[80], have[80];
        if (!tensor)
            continue;
        for (int i = 0; i < sources[s].rank; i++)
            shape[i] = sources[s].shape[i] == -1   ? l->config.n_heads
                       : sources[s].shape[i] == -2 ? inside
                                                   : (size_t)sources[s].shape[i];
        if (tensor->rank != sources[s].rank || memcmp(tensor->shape, shape, (size_t)tensor->rank * sizeof *shape) != 0)
            return mha__refuse(l, tensor, MHA_INVALID, "expected shape %s (%s), found %s",
                               mha__shape_text(want, sizeof want, shape, sources[s].rank), sources[s].role,
                               mha__shape_text(have, sizeof have, tensor->shape, tensor->rank));
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- made */

/* exp(min(s, ln 100)) of each head, in all its features. */
static void make_scale(const mha_view *logit_scale, const mha_view *to)
{
    for (size_t head = 0; head < to->shape[0]; head++) {
        const double s = mha_view_get(logit_scale, (size_t[]){head, 0, 0}), factor = exp(fmin(s, log(100)));
        for (size_t c = 0; c < to->shape[1]; c++)
            mha_view_set(to, (size_t[]){head, c}, isnan(s) ? s : factor);
    }
}

/* The offset of two cells as the MLP reads it. */
static double log_spaced(double cells, size_t span)
{
    const double u = 8 * cells / (double)span;
    return copysign(log2(fabs(u) + 1) / 3, u);
}

/* 16 sigmoid(W_2 max(0, W_1 u + b_1)) for the offset u of each row. */
static void make_table(const mha__loader *l, const mha_view *source, double *hidden, const mha_view *to)
{
    const mha_view *W_1 = &source[MHA_SOURCE_W_1], *b_1 = &source[MHA_SOURCE_B_1], *W_2 = &source[MHA_SOURCE_W_2];
    const size_t across = 2 * l->bias.width - 1;
    for (size_t row = 0; row < to->shape[0]; row++) {
        const size_t down = row / across, right = row % across;
        const double y = log_spaced((double)down - (double)(l->bias.height - 1), l->bias_span),
                     x = log_spaced((double)right - (double)(l->bias.width - 1), l->bias_span);
        for (size_t k = 0; k < b_1->shape[0]; k++) {
            const double sum = mha_view_get(W_1, (size_t[]){k, 0}) * y + mha_view_get(W_1, (size_t[]){k, 1}) * x +
                               mha_view_get(b_1, &k);
            hidden[k] = sum < 0 ? 0 : sum;
        }
        for (size_t head = 0; head < to->shape[1]; head++) {
            double sum = 0;
            for (size_t k = 0; k < b_1->shape[0]; k++)
                sum += mha_view_get(W_2, (size_t[]){head, k}) * hidden[k];
            mha_view_set(to, (size_t[]){row, head}, 16 / (1 + exp(-sum)));
        }
    }
}

/* The table of biases of Swin v2. */
static mha_status make_bias(mha__loader *l, const mha_view *source, const mha_layer *layer)
{
    const mha_allocator *allocator = mha_params_allocator(mha_layer_params(layer));
    const size_t bytes = source[MHA_SOURCE_B_1].shape[0] * sizeof(double);
    double *hidden = mha__allocate(allocator, bytes);
    if (!hidden)
        return mha__refuse(l, l->source[MHA_SOURCE_B_1], MHA_NO_MEMORY, "expected %zu bytes, found no memory", bytes);
    const mha_view to = mha_tensor_view(mha_layer_weight(layer, MHA_BIAS_TABLE));
    make_table(l, source, hidden, &to);
    mha__release(allocator, hidden, bytes);
    return MHA_OK;
}

mha_status mha__loader_make(mha__loader *l, mha_layer *layer)
{
    mha_view source[MHA_SOURCES] = {0};
    for (int s = 0; s < MHA_SOURCES; s++) {
        const mha_file_tensor *from = l->source[s];
        mha_tensor *row;
        if (!from)
            continue;
        mha_tensor_spec spec = {.role = sources[s].role, .group = "attention",
                                .source_dtype = from->dtype, .has_source = true, .rank = from->rank};
        spec.dtype = mha__dtype_is_float(l->config.dtype) ? l->config.dtype : MHA_F32;
        memcpy(spec.shape, from->shape, sizeof spec.shape);
        TRY(mha__layer_add_source(layer, &spec, l->options.row_prefix, &row, l->error));
        source[s] = mha_tensor_view(row);
        TRY(mha_file_read(l->file, from, &source[s], l->error));
    }
    for (int s = 0; s < MHA_SOURCES; s++) /* one for each weight */
        if (l->source[s])
            mha__tensor_set_derived(mha_layer_weight(layer, sources[s].weight));
    if (l->source[MHA_SOURCE_LOGIT_SCALE]) {
        const mha_view to = mha_tensor_view(mha_layer_weight(layer, MHA_Q_NORM));
        make_scale(&source[MHA_SOURCE_LOGIT_SCALE], &to);
    }
    return l->source[MHA_SOURCE_W_1] ? make_bias(l, source, layer) : MHA_OK;
}
