/* A layer: its configuration turned into tensors of a parameter table. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attention/layer/layer.h"
#include "base/base.h"
#include "params/quantise.h"
#include "mha/attention.h"
#include "mha/backward.h"
#include "mha/random.h"
#include "params/params.h"

enum { MHA_SOURCES_MOST = 16 };

struct mha_layer {
    mha_config config;
    mha_params *params;
    mha_tensor *weight[MHA_WEIGHT_COUNT]; /* NULL where the config asks for none */
    mha_tensor *gradient[MHA_WEIGHT_COUNT]; /* NULL: it has no row */
    mha_tensor *source[MHA_SOURCES_MOST]; /* what weights are made of, `sources` rows */
    size_t sources;
    unsigned long generation; /* number of times that weights were packed, unpacked, or views of them dropped */
    bool packed;              /* all matrices are */
    bool owns_table;
};

static bool is_matrix(mha_weight w)
{
    return mha_weight_at(w)->kind == MHA_WEIGHT_MATRIX;
}

/* Adds a row under its name behind a prefix. */
static mha_status add_row(mha_layer *layer, mha_tensor_spec spec, const char *prefix, mha_tensor **row,
                          mha_error *error)
{
    char name[512];
    const int length = snprintf(name, sizeof name, "%s%s", prefix ? prefix : "", spec.role);
    if (length < 0 || (size_t)length >= sizeof name)
        return mha__fail(error, MHA_INVALID, spec.role, "expected a short name, found %d bytes with the prefix",
                         length);
    const size_t block = spec.by_column ? mha__block_kind_of(spec.dtype)->elements : 1;
    if (spec.shape[0] % block != 0)
        return mha__fail(error, MHA_INVALID, name, "expected inputs in blocks of %zu for %s, found %zu: F16 takes any",
                         block, mha_dtype_name(spec.dtype), spec.shape[0]);
    spec.name = name;
    return mha_params_add(layer->params, &spec, row, error);
}

static mha_status add_weight(mha_layer *layer, mha_weight w, const char *prefix, mha_error *error)
{
    mha_tensor_spec spec = {.role = mha_weight_at(w)->name, .group = "attention", .dtype = layer->config.dtype};
    if (layer->config.matrix_dtype[w])
        spec.dtype = layer->config.matrix_dtype[w];
    spec.rank = mha_config_weight_shape(&layer->config, w, spec.shape, NULL);
    if (spec.rank == 0)
        return MHA_OK;
    if (mha__is_quantised_weight(spec.dtype) && !is_matrix(w))
        spec.dtype = MHA_F32;
    spec.by_column = mha__is_quantised_weight(spec.dtype);
    return add_row(layer, spec, prefix, &layer->weight[w], error);
}

mha_status mha__layer_add_source(mha_layer *layer, const mha_tensor_spec *spec, const char *prefix, mha_tensor **row,
                                 mha_error *error)
{
    if (layer->sources == MHA_SOURCES_MOST)
        return mha__fail(error, MHA_INVALID, spec->role, "a layer has too many sources"); /* unreachable: few kinds */
    TRY(add_row(layer, *spec, prefix, row, error));
    layer->source[layer->sources++] = *row;
    return MHA_OK;
}

mha_status mha_layer_create(const mha_config *config, mha_params *table, const char *prefix, mha_layer **layer,
                            mha_error *error)
{
    mha_config resolved = *config;
    mha_params *own = NULL;
    TRY(mha_config_resolve(&resolved, error));
    if (!table)
        TRY(mha_params_create(NULL, &own, error));
    mha_layer *made = mha__allocate(mha_params_allocator(table ? table : own), sizeof *made);
    if (!made) {
        mha_params_destroy(own);
        return mha__fail(error, MHA_NO_MEMORY, "layer", "no memory for a layer");
    }
    made->config = resolved;
    made->params = table ? table : own;
    made->owns_table = !table;
    mha_status status = MHA_OK;
    for (int w = 0; w < MHA_WEIGHT_COUNT && status == MHA_OK; w++)
        status = add_weight(made, (mha_weight)w, prefix, error);
    if (status == MHA_OK)
        status = mha_layer_mark_inert(made, NULL, error);
    if (status != MHA_OK) {
        mha_layer_destroy(made);
        return status;
    }
    *layer = made;
    return MHA_OK;
}

void mha_layer_destroy(mha_layer *layer)
{
    if (!layer)
        return;
    mha__layer_remove_gradients(layer);
    while (layer->sources > 0)
        mha__params_remove(layer->params, layer->source[--layer->sources]);
    for (int w = MHA_WEIGHT_COUNT - 1; w >= 0; w--)
        mha__params_remove(layer->params, layer->weight[w]);
    mha_params *own = layer->owns_table ? layer->params : NULL;
    const mha_allocator allocator = *mha_params_allocator(layer->params);
    mha__release(&allocator, layer, sizeof *layer);
    mha_params_destroy(own);
}

const mha_config *mha_layer_config(const mha_layer *layer)
{
    return &layer->config;
}

mha_params *mha_layer_params(const mha_layer *layer)
{
    return layer->params;
}

mha_tensor *mha_layer_weight(const mha_layer *layer, mha_weight weight)
{
    return (unsigned)weight < MHA_WEIGHT_COUNT ? layer->weight[weight] : NULL;
}

mha_view mha_layer_head(const mha_layer *layer, mha_weight weight, size_t head)
{
    const mha__weight_heads by = mha__config_weight_heads(&layer->config, weight);
    if (head >= by.heads)
        return (mha_view){0};
    const mha_view whole = mha_tensor_view(layer->weight[weight]);
    return mha_view_slice(&whole, by.axis, head * by.width, by.width);
}

/* ---------------------------------------------------------------- gradients */

static mha_status add_gradient(mha_layer *layer, mha_weight w, mha_dtype dtype, mha_error *error)
{
    const mha_tensor_info info = mha_tensor_info_of(layer->weight[w]);
    char name[520], role[40];
    snprintf(name, sizeof name, "%s.gradient", info.name);
    snprintf(role, sizeof role, "%s.gradient", info.role);
    mha_tensor_spec spec = {.name = name, .role = role, .group = info.group, .kind = MHA_TENSOR_DERIVED,
                            .dtype = dtype, .rank = info.rank};
    memcpy(spec.shape, info.shape, sizeof spec.shape);
    return mha_params_add(layer->params, &spec, &layer->gradient[w], error);
}

mha_status mha_layer_add_gradients(mha_layer *layer, mha_dtype dtype, mha_error *error)
{
    mha_status status = MHA_OK;
    if (dtype != MHA_F32 && dtype != MHA_F64)
        return mha__fail(error, MHA_INVALID, "gradients", "expected F32 or F64, found %s", mha_dtype_name(dtype));
    mha__layer_remove_gradients(layer);
    for (int w = 0; w < MHA_WEIGHT_COUNT && status == MHA_OK; w++)
        if (layer->weight[w])
            status = add_gradient(layer, (mha_weight)w, dtype, error);
    if (status != MHA_OK)
        mha__layer_remove_gradients(layer);
    return status;
}

void mha__layer_remove_gradients(mha_layer *layer)
{
    for (int w = MHA_WEIGHT_COUNT - 1; w >= 0; w--) {
        mha__params_remove(layer->params, layer->gradient[w]);
        layer->gradient[w] = NULL;
    }
}

mha_tensor *mha_layer_gradient(const mha_layer *layer, mha_weight weight)
{
    return (unsigned)weight < MHA_WEIGHT_COUNT ? layer->gradient[weight] : NULL;
}

void mha_layer_lend_gradients(const mha_layer *layer, mha_gradients *gradients)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
        if (layer->gradient[w])
            gradients->of[MHA_D_WEIGHTS + w] = mha_tensor_view(layer->gradient[w]);
}

/* ---------------------------------------------------------------- packed */

mha_status mha_layer_pack(mha_layer *layer, mha_error *error)
{
    mha_status status = MHA_OK;
    mha__layer_repack(layer);
    if (layer->packed)
        return MHA_OK;
    for (int w = 0; w < MHA_WEIGHT_COUNT && status == MHA_OK; w++)
        if (layer->weight[w] && is_matrix((mha_weight)w))
            status = mha__matrix_pack(layer->weight[w], error);
    if (status == MHA_OK) {
        layer->packed = true;
        layer->generation++;
    } else {
        mha__layer_unpack(layer);
    }
    return status;
}

void mha__layer_repack(mha_layer *layer)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
        if (layer->weight[w])
            mha__tensor_repack(layer->weight[w]);
}

void mha__layer_unpack(mha_layer *layer)
{
    layer->generation += layer->packed;
    layer->packed = false;
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
        if (layer->weight[w])
            mha__tensor_unpack(layer->weight[w]);
}

void mha_layer_drop_views(mha_layer *layer)
{
    bool dropped = false;
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
        if (layer->weight[w])
            dropped |= mha__tensor_drop_plain(layer->weight[w]);
    layer->generation += dropped;
}

const void *mha__layer_packed(const mha_layer *layer, mha_weight weight)
{
    return layer->packed && layer->weight[weight] ? mha__tensor_packed(layer->weight[weight]) : NULL;
}

unsigned long mha__layer_generation(const mha_layer *layer)
{
    return layer->generation;
}

/* ---------------------------------------------------------------- values */

/* No bias starts at 0 and no norm at 1, so that an implementation which drops one gives another output. */
static void random_range(const mha_layer *layer, int w, float *low, float *high)
{
    const mha_weight_info *info = mha_weight_at((mha_weight)w);
    size_t shape[2];
    mha_config_weight_shape(&layer->config, info->of, shape, NULL);
    const double in = (double)shape[0];
    double bound = 1, centre = 0;
    switch (info->kind) {
    case MHA_WEIGHT_MATRIX: bound = sqrt(6 / (in + (double)shape[1])); break;
    case MHA_WEIGHT_BIAS: bound = 1 / sqrt(in); break;
    case MHA_WEIGHT_ROW: bound = sqrt(6 / (in + 1)); break;
    case MHA_WEIGHT_NORM: bound = 0.5, centre = 1; break;
    case MHA_WEIGHT_NORM_BIAS: bound = 0.5; break;
    default: break;
    }
    *low = (float)(centre - bound);
    *high = (float)(centre + bound);
}

void mha_layer_init(mha_layer *layer, uint64_t seed)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        if (!layer->weight[w])
            continue;
        float low, high;
        random_range(layer, w, &low, &high);
        if (mha__is_packed_alone(layer->weight[w])) {
            mha__matrix_fill_packed(layer->weight[w], seed, (uint64_t)w, low, high);
            continue;
        }
        const mha_view view = mha__tensor_plain(layer->weight[w]);
        if (mha__is_quantised_weight(view.dtype))
            mha__random_blocks(&view, seed, (uint64_t)w, low, high);
        else
            mha_random_fill(&view, seed, (uint64_t)w, low, high);
        mha__tensor_repack(layer->weight[w]);
    }
}

static bool is_whole(mha_dtype dtype)
{
    return dtype >= MHA_I64 && dtype <= MHA_BOOL;
}

mha_status mha_layer_set(mha_layer *layer, mha_weight weight, const mha_view *from, mha_error *error)
{
    mha_tensor *tensor = mha_layer_weight(layer, weight);
    const mha_weight_info *info = mha_weight_at(weight);
    const char *name = info ? info->name : "weight";
    if (!tensor)
        return mha__fail(error, MHA_NOT_FOUND, name, "expected a weight of the layer, found none");
    if (!from->data && mha_view_elements(from) != 0)
        return mha__fail(error, MHA_INVALID, name, "expected data, found none");
    const bool alone = mha__is_packed_alone(tensor);
    mha_view to = mha__tensor_plain(tensor);
    if (alone && !to.data)
        return mha__fail(error, MHA_NO_MEMORY, name, "no memory to unpack it");
    mha_status status = is_whole(from->dtype)                ? MHA_UNSUPPORTED
                        : mha__is_quantised_weight(to.dtype) ? mha__quantise(&to, from)
                                                             : mha_view_copy(&to, from, NULL);
    if (status == MHA_OK)
        mha__tensor_repack(tensor);
    if (alone)
        (void)mha__tensor_drop_plain(tensor);
    if (status == MHA_OK)
        return MHA_OK;
    if (status == MHA_UNSUPPORTED && mha__dtype_is_float(from->dtype) && mha__is_quantised_weight(to.dtype))
        return mha__fail(error, status, name, "expected blocks of %s, to which nothing is rounded here (floats are to "
                         "Q8_0 and Q4_0), found %s", mha_dtype_name(to.dtype), mha_dtype_name(from->dtype));
    char expected[80], found[200];
    mha__shape_text(expected, sizeof expected, to.shape, to.rank);
    mha__shape_text(found, sizeof found, from->shape, from->rank);
    return mha__fail(error, status, name, "expected shape %s of a floating type%s, found %s of %s", expected,
                     is_matrix(weight) ? ", input dimension first (nn.Linear has it last)" : "", found,
                     mha_dtype_name(from->dtype));
}

mha_norm mha__norm_of_weight(const mha_view *weight, size_t heads, size_t d_k)
{
    const bool over_row = weight->shape[0] == heads * d_k && heads > 1;
    return !weight->data ? MHA_NORM_NONE : weight->rank == 2 ? MHA_NORM_EACH_HEAD : over_row ? MHA_NORM_ROW
                                                                                            : MHA_NORM_HEAD;
}

size_t mha__inert_key_bias(const mha_config *c, const mha_semantics *s)
{
    const bool normed = c->k_norm != MHA_NORM_NONE || s->qkv.norm.unweighted,
               matters = normed || c->sinks || c->bias_kv || s->softmax.softcap > 0 || s->softmax.zero_row ||
                         s->softmax.softmax_plus_one || s->softmax.normaliser != MHA_SOFTMAX || s->qkv.clip_qkv > 0 ||
                         /* a key's product with a row differs from pair to pair: */
                         (s->added.relative.rule != MHA_RELATIVE_NONE && c->relative_q_rows > 0);
    if (c->kv_rank) /* of k_r alone: c passes a norm */
        return matters || s->qkv.rope.kind != MHA_ROPE_NONE || !c->bias_latent ? 0 : c->d_rope;
    const size_t rotated = s->qkv.rope.kind == MHA_ROPE_NONE ? 0 : s->qkv.rope.dim ? s->qkv.rope.dim : c->d_k;
    return matters || rotated > c->d_k ? 0 : c->kv_heads * (c->d_k - rotated);
}

mha_status mha_layer_mark_inert(mha_layer *layer, const mha_semantics *semantics, mha_error *error)
{
    static const mha_semantics plain;
    mha_tensor *bias = layer->weight[layer->config.kv_rank ? MHA_B_KVA : MHA_B_K];
    if (!bias)
        return MHA_OK;
    const size_t inert = mha__inert_key_bias(&layer->config, semantics ? semantics : &plain);
    const char *why = inert ? "the key bias adds one number to all scores of a query; softmax does not see it" : "";
    if (mha__tensor_set_inert(bias, inert, why) != MHA_OK)
        return mha__fail(error, MHA_NO_MEMORY, NULL, "no memory to mark inert elements");
    return MHA_OK;
}
