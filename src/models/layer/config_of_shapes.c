/* The configuration of a layer out of the shapes of its tensors in a file. */
#include <string.h>

#include "base/base.h"
#include "formats/file.h"
#include "models/layer/loader.h"

static mha_status matrices_have_rank_two(mha__loader *l)
{
    for (int weight = 0; weight < MHA_WEIGHT_COUNT; weight++) {
        const mha_file_tensor *tensor = l->found[weight];
        char shape[80];
        if (tensor && mha__weight_is_matrix((mha_weight)weight) && tensor->rank != 2 &&
            !(weight == MHA_W_KVB && l->value_half))
            return mha__refuse(l, tensor, MHA_INVALID, "expected a matrix (%s), found shape %s",
                               mha_weight_at((mha_weight)weight)->name,
                               mha__shape_text(shape, sizeof shape, tensor->shape, tensor->rank));
    }
    return MHA_OK;
}

/* The orientation that was given, or else the scheme's. Fused GPT-2 weights come in both: a bias has as many elements
 * as there are outputs; without a bias there are three times as many outputs as inputs. */
static mha_status find_orientation(mha__loader *l)
{
    l->orientation =
        l->options.orientation != MHA_ORIENTATION_AUTO ? l->options.orientation : l->layer.scheme->orientation;
    if (l->orientation != MHA_ORIENTATION_AUTO)
        return MHA_OK;
    const mha_file_tensor *w = l->found[MHA_W_Q], *b = l->found[MHA_B_Q];
    size_t rows = w->shape[0], columns = w->shape[1], outputs = b ? b->elements : 0;
    bool out_in = b ? rows == outputs : columns > 0 && rows / 3 == columns && rows % 3 == 0;
    bool in_out = b ? columns == outputs : rows > 0 && columns / 3 == rows && columns % 3 == 0;
    if (out_in == in_out)
        return mha__refuse(
            l, w, MHA_INVALID,
            "expected a shape that tells (in, out) from (out, in), or a stated orientation; found (%zu, %zu)", rows,
            columns);
    l->orientation = in_out ? MHA_ORIENTATION_IN_OUT : MHA_ORIENTATION_OUT_IN;
    return MHA_OK;
}

static size_t width_in(const mha__loader *l, mha_weight weight)
{
    return l->found[weight]->shape[l->orientation == MHA_ORIENTATION_OUT_IN ? 1 : 0];
}

static size_t width_out(const mha__loader *l, mha_weight weight)
{
    return l->found[weight]->shape[l->orientation == MHA_ORIENTATION_OUT_IN ? 0 : 1];
}

/* The number of query heads: as given, or the width divided by d_k, or the number of sinks. */
static mha_status find_heads(mha__loader *l, size_t q_width)
{
    const mha_file_tensor *sinks = l->found[MHA_SINKS];
    mha_config *c = &l->config;
    c->n_heads = l->options.n_heads;
    if (c->n_heads == 0 && l->options.d_k > 0)
        c->n_heads = q_width / l->options.d_k;
    if (c->n_heads == 0 && sinks)
        c->n_heads = sinks->elements;
    if (c->n_heads == 0)
        return mha__fail(l->error, MHA_INVALID, "heads",
                         "expected their number, which a weights file does not say (query width %zu); found neither "
                         "it nor a config.json",
                         q_width);
    if (q_width == 0 || q_width % c->n_heads != 0 || (l->options.d_k > 0 && q_width / c->n_heads != l->options.d_k))
        return mha__fail(l->error, MHA_INVALID, "heads",
                         "expected %s%zu that divides the query width, found %zu for '%s' of width %zu",
                         l->options.d_k ? "d_k " : "a number, at most ", l->options.d_k ? l->options.d_k : q_width,
                         c->n_heads, l->found[MHA_W_Q]->name, q_width);
    c->d_k = q_width / c->n_heads;
    return MHA_OK;
}

static mha_status check_half(mha__loader *l, const mha_file_tensor *tensor, const size_t shape[3])
{
    if (!mha__dtype_is_float(tensor->reads_as))
        return mha__refuse(l, tensor, MHA_UNSUPPORTED, "expected a type of GGUF that is decoded here, found %s",
                           mha_dtype_name(tensor->dtype));
    return mha__loader_expect(l, tensor, shape, 3, "a part of W_KVB", "");
}

/* Latent attention: the norms have the widths of the latents, and what is left of the heads' outputs are values. */
static mha_status find_latents(mha__loader *l)
{
    mha_config *c = &l->config;
    const size_t latent = width_out(l, MHA_W_KVA);
    TRY(find_heads(l, width_out(l, MHA_W_Q)));
    const size_t wide = !l->value_half ? width_out(l, MHA_W_KVB)
                                       : c->n_heads * (l->found[MHA_W_KVB]->shape[2] + l->value_half->shape[1]);
    c->kv_heads = c->n_heads;
    c->q_rank = l->found[MHA_W_QA] ? width_out(l, MHA_W_QA) : 0;
    c->kv_rank = l->found[MHA_KVA_NORM]->elements;
    c->d_rope = latent > c->kv_rank ? latent - c->kv_rank : 0;
    if (latent < c->kv_rank || c->kv_rank == 0 || c->d_rope >= c->d_k || wide % c->n_heads != 0 ||
        wide / c->n_heads <= c->d_k - c->d_rope)
        return mha__refuse(l, l->found[MHA_W_KVB], MHA_INVALID,
                           "expected outputs for %zu heads with keys of %zu - %zu features of their own, a latent of "
                           "%zu, found %zu outputs", c->n_heads, c->d_k, c->d_rope, c->kv_rank, wide);
    c->d_v = wide / c->n_heads - (c->d_k - c->d_rope);
    c->d_q = width_in(l, c->q_rank ? MHA_W_QA : MHA_W_Q);
    c->d_kin = c->d_vin = width_in(l, MHA_W_KVA);
    c->d_model = c->d_out = width_out(l, MHA_W_O);
    if (!l->value_half)
        return MHA_OK;
    TRY(check_half(l, l->found[MHA_W_KVB], (const size_t[]){c->n_heads, c->kv_rank, c->d_k - c->d_rope}));
    return check_half(l, l->value_half, (const size_t[]){c->n_heads, c->d_v, c->kv_rank});
}

/* The outputs of query and key (of all three when fused) give the widths; their ratio gives the key/value heads. */
static mha_status find_config(mha__loader *l)
{
    mha_config *c = &l->config;
    bool fused = mha__loader_fuses(l, MHA_W_Q);
    size_t q_width = width_out(l, MHA_W_Q) / (l->fused_gate ? 2 : 1), k_width = width_out(l, MHA_W_K),
           v_width = width_out(l, MHA_W_V);
    if (fused) {
        size_t parts = 3, q_parts = 1;
        if (l->options.n_heads > 0 && l->options.kv_heads > 0 && l->options.kv_heads <= l->options.n_heads &&
            l->options.n_heads <= SIZE_MAX / 4) {
            parts = l->options.n_heads + 2 * l->options.kv_heads;
            q_parts = l->options.n_heads;
        }
        if (q_width % parts != 0)
            return mha__refuse(l, l->found[MHA_W_Q], MHA_INVALID,
                               "expected query, key and value side by side, a multiple of %zu outputs; found %zu",
                               parts, q_width);
        size_t unit = q_width / parts;
        q_width = unit * q_parts;
        k_width = v_width = unit * (parts - q_parts) / 2;
    }
    TRY(find_heads(l, q_width));
    c->kv_heads = l->options.kv_heads ? l->options.kv_heads : k_width / c->d_k;
    if (c->kv_heads == 0 || c->n_heads % c->kv_heads != 0 || k_width % c->kv_heads != 0 ||
        k_width / c->kv_heads != c->d_k)
        return mha__fail(l->error, MHA_INVALID, "kv_heads",
                         "expected a divisor of %zu heads with d_k %zu each, found %zu for '%s' of width %zu",
                         c->n_heads, c->d_k, c->kv_heads, l->found[MHA_W_K]->name, k_width);
    bool free_widths = l->layer.scheme->free_widths;
    c->d_v = free_widths && v_width % c->kv_heads == 0 && v_width > 0 ? v_width / c->kv_heads : c->d_k;
    c->d_model = c->d_q = width_in(l, MHA_W_Q);
    c->d_kin = free_widths ? width_in(l, MHA_W_K) : c->d_q;
    c->d_vin = free_widths ? width_in(l, MHA_W_V) : c->d_q;
    c->d_out = free_widths ? width_out(l, MHA_W_O) : c->d_q;
    return MHA_OK;
}

/* The blocks of a fused tensor: as the configuration says, where it knows better than the names. */
static mha_status find_blocks(mha__loader *l)
{
    const mha__fused_order order = l->layer.scheme->order;
    if (!mha__loader_fuses(l, MHA_W_Q) || order == MHA_FUSED_PLAIN || l->blocks == 0) {
        if (order == MHA_FUSED_AS_SAID)
            return mha__refuse(l, l->found[MHA_W_Q], MHA_INVALID,
                               "expected a config.json of a model type that is known, which says in what order this "
                               "tensor holds its heads; found none");
        l->blocks = 1;
        l->qvk = false;
    }
    if (l->config.kv_heads % l->blocks != 0)
        return mha__refuse(l, l->found[MHA_W_Q], MHA_INVALID,
                           "expected %zu key/value heads in %zu blocks of equal size, which they do not divide into",
                           l->config.kv_heads, l->blocks);
    return MHA_OK;
}

/* A norm is over one head or over the whole row, by the length of its weight. */
static mha_norm find_norm(const mha__loader *l, mha_weight weight)
{
    const mha_file_tensor *tensor = l->found[weight];
    const bool each = tensor && (l->by_head[weight] || tensor->rank == 2);
    return !tensor ? MHA_NORM_NONE : each ? MHA_NORM_EACH_HEAD : tensor->elements == l->config.d_k ? MHA_NORM_HEAD
                                                                                                   : MHA_NORM_ROW;
}

/* Matrices that are stored in blocks stay so: the type of all of them, or each one's own, and the others F32. */
static mha_status keep_types(const mha__loader *l, mha_config *c)
{
    mha_dtype first = MHA_F32;
    bool same = true;
    c->dtype = MHA_F32;
    if (l->orientation != MHA_ORIENTATION_OUT_IN)
        return MHA_OK;
    TRY(mha__file_stays(l->file, l->found[MHA_W_Q], &first, l->error));
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_file_tensor *tensor = l->found[w];
        if (!tensor || !mha__weight_is_matrix((mha_weight)w))
            continue;
        if (w == MHA_W_KVB && l->value_half) { /* whose blocks run in two directions */
            same = false;
            continue;
        }
        TRY(mha__file_stays(l->file, tensor, &c->matrix_dtype[w], l->error));
        same &= c->matrix_dtype[w] == first;
    }
    if (!same)
        return MHA_OK;
    c->dtype = first;
    memset(c->matrix_dtype, 0, sizeof c->matrix_dtype);
    return MHA_OK;
}

/* The weights that were found, and the tables of relative terms that are made at load, with columns for each head. */
static void add_weights(const mha__loader *l, mha_config *c)
{
    for (mha_weight w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_file_tensor *tensor = l->found[w];
        if (mha__is_relative_table(w) && mha__loader_makes(l, w)) {
            mha__config_add_weight(c, w, 2, (const size_t[]){mha__relative_rows(l->facts), c->n_heads * c->d_k});
            c->relative_by_head = true;
        } else if (tensor && w != MHA_BIAS_TABLE) { /* whose rows the configuration says */
            const size_t turned[] = {tensor->shape[1], tensor->shape[0]};
            mha__config_add_weight(c, w, tensor->rank, mha__loader_turns(l, w) ? turned : tensor->shape);
        }
    }
}

static mha_status find_extras(mha__loader *l)
{
    mha_config *c = &l->config;
    add_weights(l, c);
    if (!l->found[MHA_BIAS_K] != !l->found[MHA_BIAS_V]) {
        char name[512];
        const mha_weight missing = l->found[MHA_BIAS_K] ? MHA_BIAS_V : MHA_BIAS_K;
        return mha__fail_inside(l->error, MHA_NOT_FOUND, mha_file_path(l->file),
                                mha__file_layer_name(&l->layer, missing, name, sizeof name), 0,
                                "expected bias_k and bias_v together, found only %s",
                                missing == MHA_BIAS_V ? "bias_k" : "bias_v");
    }
    c->q_norm = find_norm(l, MHA_Q_NORM);
    c->k_norm = find_norm(l, MHA_K_NORM);
    if (mha__loader_makes(l, MHA_Q_NORM))
        c->q_norm = MHA_NORM_EACH_HEAD;
    if ((l->found[MHA_BIAS_TABLE] || mha__loader_makes(l, MHA_BIAS_TABLE)) && l->options.facts)
        c->bias_rows = l->options.facts->config.bias_rows; /* any other shape is refused as that of any weight */
    if (!l->options.has_dtype && l->options.keep_quantised)
        TRY(keep_types(l, c));
    else
        c->dtype = l->options.has_dtype ? l->options.dtype : MHA_F32;
    return mha_config_resolve(c, l->error);
}

/* The rank and shape that a weight must have in the file. */
static int file_shape(const mha__loader *l, mha_weight weight, size_t shape[2])
{
    int rank = mha_config_weight_shape(&l->config, weight, shape, NULL);
    if (mha__loader_fuses(l, weight)) { /* the outputs of all three weights */
        const mha_weight *parts = rank == 2 ? mha__matrices_in : mha__biases_in;
        size_t part[2], outputs = 0;
        for (size_t i = 0; i < 3; i++) {
            mha_config_weight_shape(&l->config, parts[i], part, NULL);
            outputs += part[rank - 1];
        }
        shape[rank - 1] = outputs;
    }
    if (mha__loader_shares_gate(l, weight))
        shape[rank - 1] = l->config.n_heads * (l->config.d_k + l->config.d_v);
    if (mha__loader_turns(l, weight)) {
        size_t in = shape[0];
        shape[0] = shape[1];
        shape[1] = in;
    }
    return rank;
}

/* Each head must have its tensor of a weight (heads, d). */
static mha_status check_heads(mha__loader *l, mha_weight weight, const size_t shape[2])
{
    for (size_t head = 0; head < shape[0]; head++) {
        const mha_file_tensor *tensor = mha__file_layer_head_norm(l->file, &l->layer, weight, head);
        if (!tensor)
            return mha__refuse(l, l->found[weight], MHA_NOT_FOUND,
                               "expected one like it for each of %zu heads, found %zu", shape[0], head);
        char found[80];
        if (tensor->rank != 1 || tensor->shape[0] != shape[1] || !mha__dtype_is_float(tensor->reads_as))
            return mha__refuse(l, tensor, MHA_INVALID, "expected shape (%zu,) of a floating type, found %s of %s",
                               shape[1], mha__shape_text(found, sizeof found, tensor->shape, tensor->rank),
                               mha_dtype_name(tensor->dtype));
    }
    const mha_file_tensor *more = mha__file_layer_head_norm(l->file, &l->layer, weight, shape[0]);
    if (more)
        return mha__refuse(l, more, MHA_INVALID, "expected one for each of %zu heads, found one more", shape[0]);
    l->tensors += shape[0] - 1;
    return MHA_OK;
}

static mha_status check_shapes(mha__loader *l)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_file_tensor *tensor = l->found[w];
        size_t shape[2];
        if (!tensor || (w == MHA_W_KVB && l->value_half))
            continue;
        int rank = file_shape(l, (mha_weight)w, shape);
        if (l->by_head[w]) {
            TRY(check_heads(l, (mha_weight)w, shape));
            continue;
        }
        bool row = (w == MHA_BIAS_K || w == MHA_BIAS_V) && tensor->rank == 3 && tensor->shape[0] == 1 &&
                   tensor->shape[1] == 1 && tensor->shape[2] == shape[0]; /* PyTorch stores (1, 1, E) */
        if (!row)
            TRY(mha__loader_expect(l, tensor, shape, rank, mha_weight_at((mha_weight)w)->name,
                                   mha__loader_fuses(l, (mha_weight)w) ? " and the two like it, fused" : ""));
    }
    return MHA_OK;
}

mha_status mha__loader_find_config(mha__loader *l)
{
    TRY(matrices_have_rank_two(l));
    TRY(find_orientation(l));
    TRY(l->layer.scheme->names[MHA_W_KVB] ? find_latents(l) : find_config(l));
    TRY(find_blocks(l));
    TRY(find_extras(l));
    TRY(mha__loader_check_sources(l));
    return check_shapes(l);
}
