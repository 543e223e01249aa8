/* Weights that are made of other tensors of a file when a layer is loaded; these are its parameters instead. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attention/layer/layer.h"
#include "base/base.h"
#include "models/layer/loader.h"
#include "params/params.h"

/* Dimensions of a source that its layer decides. */
enum { HEADS = -1, INSIDE = -2 /* the MLP */, ROWS = -3, WIDTH = -4 /* of the query input */, OUTPUTS = -5 };

/* Each source: its row, the end of its name, and its shape. */
static const struct {
    const char *role, *name;
    int rank, shape[3];
} sources[MHA_SOURCES] = {
    [MHA_SOURCE_LOGIT_SCALE] = {"logit_scale", "", 3, {HEADS, 1, 1}},
    [MHA_SOURCE_W_1] = {"bias_W_1", ".0.weight", 2, {INSIDE, 2}},
    [MHA_SOURCE_B_1] = {"bias_b_1", ".0.bias", 1, {INSIDE}},
    [MHA_SOURCE_W_2] = {"bias_W_2", ".2.weight", 2, {HEADS, INSIDE}},
    [MHA_SOURCE_RELATIVE] = {"relative_embeddings", "", 2, {ROWS, WIDTH}},
    [MHA_SOURCE_RELATIVE_NORM] = {"relative_norm", ".weight", 1, {WIDTH}},
    [MHA_SOURCE_RELATIVE_NORM_BIAS] = {"relative_norm_bias", ".bias", 1, {WIDTH}},
    [MHA_SOURCE_W_RELATIVE_K] = {"W_relative_k", ".weight", 2, {OUTPUTS, WIDTH}},
    [MHA_SOURCE_B_RELATIVE_K] = {"b_relative_k", ".bias", 1, {OUTPUTS}},
    [MHA_SOURCE_W_RELATIVE_Q] = {"W_relative_q", ".weight", 2, {OUTPUTS, WIDTH}},
    [MHA_SOURCE_B_RELATIVE_Q] = {"b_relative_q", ".bias", 1, {OUTPUTS}},
};

/* ---------------------------------------------------------------- found */

/* The weight that is made of a source; MHA_WEIGHT_COUNT where the layer needs no such source. */
static mha_weight made_of(const mha__loader *l, int s)
{
    const mha_weight table = mha__loader_makes(l, MHA_RELATIVE_K) ? MHA_RELATIVE_K : MHA_RELATIVE_Q;
    const mha_weight of = s == MHA_SOURCE_LOGIT_SCALE        ? MHA_Q_NORM
                          : s <= MHA_SOURCE_W_2                ? MHA_BIAS_TABLE
                          : s <= MHA_SOURCE_RELATIVE_NORM_BIAS ? table
                          : s <= MHA_SOURCE_B_RELATIVE_K       ? MHA_RELATIVE_K
                                                               : MHA_RELATIVE_Q;
    const bool norm = s == MHA_SOURCE_RELATIVE_NORM || s == MHA_SOURCE_RELATIVE_NORM_BIAS,
               left_out = (norm && !(l->facts && *l->facts->relative_norm)) ||
                          (s == MHA_SOURCE_B_RELATIVE_K && l->layer.scheme->relative_k_plain) ||
                          (s >= MHA_SOURCE_W_RELATIVE_K && l->facts && l->facts->relative_shared);
    return !left_out && mha__loader_makes(l, of) ? of : MHA_WEIGHT_COUNT;
}

/* The first part of a source's name, with or without the layer's prefix; NULL: the scheme has no word for it. */
static const char *stem_of(const mha__loader *l, int s, bool *own)
{
    const mha__scheme *scheme = l->layer.scheme;
    *own = s == MHA_SOURCE_LOGIT_SCALE || s >= MHA_SOURCE_W_RELATIVE_K;
    return s == MHA_SOURCE_LOGIT_SCALE          ? scheme->logit_scale
           : s <= MHA_SOURCE_W_2                ? l->bias_table
           : s == MHA_SOURCE_RELATIVE           ? l->facts->relative_table
           : s <= MHA_SOURCE_RELATIVE_NORM_BIAS ? l->facts->relative_norm
           : s <= MHA_SOURCE_B_RELATIVE_K       ? scheme->relative_k
                                                : scheme->relative_q;
}

mha_status mha__loader_find_sources(mha__loader *l)
{
    for (int s = 0; s < MHA_SOURCES; s++) {
        const mha_weight weight = made_of(l, s);
        char name[768];
        bool own;
        if (weight == MHA_WEIGHT_COUNT)
            continue;
        const char *stem = stem_of(l, s, &own);
        if (stem && !*stem)
            return mha__fail(l->error, MHA_INVALID, "layer",
                             "expected the prefix of a layer of the configuration, which names what %s is made of; "
                             "found '%s'", mha_weight_at(weight)->name, l->prefix);
        if (!stem)
            return mha__fail(l->error, MHA_NOT_FOUND, sources[s].role,
                             "expected a tensor of that use, which names of %s have no word for",
                             l->layer.scheme->name);
        snprintf(name, sizeof name, "%s%s%s", own ? l->prefix : "", stem, sources[s].name);
        l->source[s] = mha__file_named(l->file, name);
        if (!l->source[s])
            return mha__fail_inside(l->error, MHA_NOT_FOUND, mha_file_path(l->file), name, 0,
                                    "expected a tensor of this name, of which %s is made, found none",
                                    mha_weight_at(weight)->name);
        if (!mha__dtype_is_float(l->source[s]->reads_as))
            return mha__refuse(l, l->source[s], MHA_UNSUPPORTED, "expected F32, F64, F16 or BF16, found %s",
                               mha_dtype_name(l->source[s]->dtype));
        l->tensors++;
    }
    return MHA_OK;
}

static size_t extent(const mha__loader *l, int dimension)
{
    switch (dimension) {
    case HEADS: return l->config.n_heads;
    case INSIDE: return l->source[MHA_SOURCE_B_1] ? l->source[MHA_SOURCE_B_1]->elements : 0;
    case ROWS: return mha__relative_rows(l->facts);
    case WIDTH: return l->config.d_q;
    case OUTPUTS: return l->config.n_heads * l->config.d_k;
    default: return (size_t)dimension;
    }
}

mha_status mha__loader_expect(const mha__loader *l, const mha_file_tensor *tensor, const size_t *shape, int rank,
                              const char *what, const char *more)
{
    char want[80], have[80];
    if (tensor->rank == rank && memcmp(tensor->shape, shape, (size_t)rank * sizeof *shape) == 0)
        return MHA_OK;
    return mha__refuse(l, tensor, MHA_INVALID, "expected shape %s (%s%s), found %s",
                       mha__shape_text(want, sizeof want, shape, rank), what, more,
                       mha__shape_text(have, sizeof have, tensor->shape, tensor->rank));
}

mha_status mha__loader_check_sources(const mha__loader *l)
{
    const mha_config *c = &l->config;
    if (c->relative_by_head && (c->kv_heads != c->n_heads || c->d_kin != c->d_q))
        return mha__fail(l->error, MHA_UNSUPPORTED, "relative embeddings",
                         "expected as many key heads as query heads, and inputs of one width, found %zu, %zu, %zu and "
                         "%zu", c->kv_heads, c->n_heads, c->d_kin, c->d_q);
    for (int s = 0; s < MHA_SOURCES; s++) {
        const mha_file_tensor *tensor = l->source[s];
        size_t shape[3];
        for (int i = 0; tensor && i < sources[s].rank; i++)
            shape[i] = extent(l, sources[s].shape[i]);
        if (tensor)
            TRY(mha__loader_expect(l, tensor, shape, sources[s].rank, sources[s].role, ""));
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- made */

/* The inputs of made weights: the sources, in the order of the list, and room for one row of numbers. */
typedef struct making {
    const mha__loader *l;
    const mha_layer *layer;
    mha_view source[MHA_SOURCES];
    double *row;
} making;

static mha_view weight_of(const making *m, mha_weight weight)
{
    const mha_tensor *tensor = mha_layer_weight(m->layer, weight);
    return tensor ? mha__tensor_plain(tensor) : (mha_view){0};
}

/* exp(min(s, ln 100)) of each head, in all its features. */
static void make_scale(const making *m, const mha_view *to)
{
    for (size_t head = 0; head < to->shape[0]; head++) {
        const double s = mha_view_get(&m->source[MHA_SOURCE_LOGIT_SCALE], (size_t[]){head, 0, 0});
        for (size_t c = 0; c < to->shape[1]; c++)
            mha_view_set(to, (size_t[]){head, c}, exp(s > log(100) ? log(100) : s));
    }
}

/* The offset of two cells as the MLP reads it. */
static double log_spaced(double cells, size_t span)
{
    const double u = 8 * cells / (double)span;
    return copysign(log2(fabs(u) + 1) / 3, u);
}

/* 16 sigmoid(W_2 max(0, W_1 u + b_1)) for the offset u of each row (Swin v2). */
static void make_bias(const making *m, const mha_view *to)
{
    const mha_view *W_1 = &m->source[MHA_SOURCE_W_1], *b_1 = &m->source[MHA_SOURCE_B_1],
                   *W_2 = &m->source[MHA_SOURCE_W_2];
    const mha_model_facts *facts = m->l->facts;
    const size_t across = 2 * facts->semantics.added.bias.width - 1, inside = b_1->shape[0];
    for (size_t row = 0; row < to->shape[0]; row++) {
        const size_t down = row / across, right = row % across;
        const double y = log_spaced((double)down - (double)(facts->semantics.added.bias.height - 1), facts->bias_span),
                     x = log_spaced((double)right - (double)(facts->semantics.added.bias.width - 1), facts->bias_span);
        for (size_t k = 0; k < inside; k++) {
            const double sum = mha_view_get(W_1, (size_t[]){k, 0}) * y + mha_view_get(W_1, (size_t[]){k, 1}) * x +
                               mha_view_get(b_1, &k);
            m->row[k] = sum < 0 ? 0 : sum;
        }
        for (size_t head = 0; head < to->shape[1]; head++) {
            double sum = 0;
            for (size_t k = 0; k < inside; k++)
                sum += mha_view_get(W_2, (size_t[]){head, k}) * m->row[k];
            mha_view_set(to, (size_t[]){row, head}, 16 / (1 + exp(-sum)));
        }
    }
}

/* Reads a relative embedding into the row, normalised where the model does that (LayerNorm). */
static void read_embedding(const making *m, size_t r, size_t n)
{
    const mha_view *w = &m->source[MHA_SOURCE_RELATIVE_NORM], *b = &m->source[MHA_SOURCE_RELATIVE_NORM_BIAS];
    double mean = 0, squares = 0;
    for (size_t c = 0; c < n; c++) {
        m->row[c] = mha_view_get(&m->source[MHA_SOURCE_RELATIVE], (size_t[]){r, c});
        mean += m->row[c] / (double)n;
    }
    if (!w->data)
        return;
    for (size_t c = 0; c < n; c++)
        squares += (m->row[c] - mean) * (m->row[c] - mean) / (double)n;
    for (size_t c = 0; c < n; c++)
        m->row[c] = (m->row[c] - mean) / sqrt(squares + m->l->facts->semantics.qkv.norm_eps) * mha_view_get(w, &c) +
                    mha_view_get(b, &c);
}

/* The projections of the relative embeddings: by matrices of their own, (out, in), or by those of the layer, (in, out)
 * (DeBERTa). */
static void make_relative(const making *m, mha_weight table, const mha_view *to)
{
    const bool shared = m->l->facts->relative_shared, key = table == MHA_RELATIVE_K;
    const mha_view own = m->source[key ? MHA_SOURCE_W_RELATIVE_K : MHA_SOURCE_W_RELATIVE_Q],
                   of_layer = weight_of(m, key ? MHA_W_K : MHA_W_Q), W = shared ? of_layer : mha__view_swap(&own, 0, 1),
                   b = shared ? weight_of(m, key ? MHA_B_K : MHA_B_Q)
                              : m->source[key ? MHA_SOURCE_B_RELATIVE_K : MHA_SOURCE_B_RELATIVE_Q];
    for (size_t r = 0; r < to->shape[0]; r++) {
        read_embedding(m, r, W.shape[0]);
        for (size_t o = 0; o < to->shape[1]; o++) {
            double sum = b.data ? mha_view_get(&b, &o) : 0;
            for (size_t i = 0; i < W.shape[0]; i++)
                sum += m->row[i] * mha_view_get(&W, (size_t[]){i, o});
            mha_view_set(to, (size_t[]){r, o}, sum);
        }
    }
}

/* Makes the weights; each becomes a derived row. */
static void make_all(const making *m)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        mha_tensor *tensor = mha_layer_weight(m->layer, (mha_weight)w);
        if (!tensor || !mha__loader_makes(m->l, (mha_weight)w))
            continue;
        const mha_view to = mha__tensor_plain(tensor);
        mha__tensor_set_derived(tensor);
        if (w == MHA_Q_NORM)
            make_scale(m, &to);
        else if (w == MHA_BIAS_TABLE)
            make_bias(m, &to);
        else
            make_relative(m, (mha_weight)w, &to);
    }
}

/* Adds a row for each source, and reads it. */
static mha_status read_sources(making *m, mha_layer *layer)
{
    const mha__loader *l = m->l;
    for (int s = 0; s < MHA_SOURCES; s++) {
        const mha_file_tensor *from = l->source[s];
        mha_tensor *row;
        if (!from)
            continue;
        mha_tensor_spec spec = {.role = sources[s].role, .group = "attention", .source_dtype = from->dtype,
                                .has_source = true, .rank = from->rank};
        spec.dtype = mha__dtype_is_float(l->config.dtype) ? l->config.dtype : MHA_F32;
        memcpy(spec.shape, from->shape, sizeof spec.shape);
        TRY(mha__layer_add_source(layer, &spec, l->options.row_prefix, &row, l->error));
        m->source[s] = mha__tensor_plain(row);
        TRY(mha_file_read(l->file, from, &m->source[s], l->error));
    }
    return MHA_OK;
}

mha_status mha__loader_make(const mha__loader *l, mha_layer *layer)
{
    making m = {.l = l, .layer = layer};
    if (!l->made)
        return MHA_OK;
    TRY(read_sources(&m, layer));
    const mha_allocator *allocator = mha_params_allocator(mha_layer_params(layer));
    const size_t inside = extent(l, INSIDE), n = inside > l->config.d_q ? inside : l->config.d_q;
    m.row = mha__allocate(allocator, n * sizeof *m.row);
    if (!m.row)
        return mha__fail(l->error, MHA_NO_MEMORY, "layer", "no memory for a row of %zu numbers", n);
    make_all(&m);
    mha__release(allocator, m.row, n * sizeof *m.row);
    return MHA_OK;
}
