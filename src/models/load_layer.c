/* Loading one attention layer of a weights file: finding its tensors, deriving its configuration, reading. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "params/params.h"
#include "models/naming.h"

typedef struct loader {
    const mha_file *file;
    mha_load_options options;
    mha__file_layer layer;
    char prefix[256];
    mha_orientation orientation;
    mha_config config;
    const mha_file_tensor *found[MHA_WEIGHT_COUNT]; /* NULL: not in the file. A fused tensor is at three indices */
    size_t tensors, ignored;
    mha_error *error;
} loader;

/* An error about a tensor of the file. */
#define refuse(l, tensor, status, ...)                                                                                 \
    mha__fail_inside((l)->error, status, mha_file_path((l)->file), (tensor)->name, 0, __VA_ARGS__)

/* ---------------------------------------------------------------- which layer */

/* Text for messages: the layers of the file under `wanted`, as many as fit, "a, b, c, ... (12 in all)". */
static void list_layers(const mha_file *file, const char *wanted, char *text, size_t size)
{
    enum { SHOWN = 6 };
    mha__file_layer layer;
    size_t count = 0, used = 0;
    text[0] = '\0';
    for (size_t index = 0; mha__file_layer_next(file, &index, &layer);) {
        const bool under = strncmp(layer.tensor->name, wanted, strlen(wanted)) == 0;
        if (under && count++ < SHOWN && used < size) {
            int length = (int)(layer.prefix_length > 0 ? layer.prefix_length - 1 : 0);
            int n = snprintf(text + used, size - used, "%s'%.*s'%s", count > 1 ? ", " : "",
                             length > 48 ? mha__text_precision(layer.tensor->name, 48) : length, layer.tensor->name,
                             length ? "" : " (names without a prefix)");
            used += n > 0 ? (size_t)n : 0;
        }
    }
    if (count > SHOWN && used < size)
        snprintf(text + used, size - used, ", ... (%zu in all)", count);
}

/* `wanted` is the prefix of a layer when the names of the layer's tensors start with `wanted` and a dot. */
static bool is_under(const mha__file_layer *layer, const char *wanted, size_t length)
{
    const char *name = layer->tensor->name;
    return length == 0 || (strncmp(name, wanted, length) == 0 && name[length] == '.');
}

/* T5 can be counted, but not loaded: its scores need the relative position bias, which is not computed. */
static mha_status refuse_relative_bias(const loader *l)
{
    const mha_file_tensor *tensor;
    for (size_t i = 0; (tensor = mha_file_at(l->file, i)); i++)
        if (strstr(tensor->name, "relative_attention_bias.weight"))
            return refuse(l, tensor, MHA_UNSUPPORTED,
                          "expected no bias per relative position (T5), which is counted, not computed; found one");
    return MHA_OK;
}

static mha_status choose_layer(loader *l)
{
    char wanted[256], names[300];
    size_t length = l->options.layer ? strlen(l->options.layer) : 0;
    while (length > 0 && l->options.layer[length - 1] == '.')
        length--;
    if (length >= sizeof wanted)
        return mha__fail(l->error, MHA_NOT_FOUND, "layer", "expected a prefix below %zu bytes, found %zu",
                         sizeof wanted, length);
    snprintf(wanted, sizeof wanted, "%.*s", (int)length, l->options.layer ? l->options.layer : "");

    mha__file_layer layer;
    size_t all = 0, matching = 0;
    bool exact = false;
    for (size_t index = 0; mha__file_layer_next(l->file, &index, &layer); all++) {
        if (!is_under(&layer, wanted, length) || exact)
            continue;
        exact = length > 0 && layer.prefix_length == length + 1;
        matching = exact ? 1 : matching + 1;
        if (exact || matching == 1)
            l->layer = layer;
    }
    if (all == 0) {
        TRY(refuse_relative_bias(l));
        return mha__fail(l->error, MHA_NOT_FOUND, mha_file_path(l->file),
                         "expected the tensors of an attention layer (W_Q, in_proj_weight, attention.self.query.weight,"
                         " attn.c_attn.weight, self_attn.q_proj.weight, ...), found none among %zu tensors",
                         mha_file_count(l->file));
    }
    if (matching == 0) {
        list_layers(l->file, "", names, sizeof names);
        return mha__fail(l->error, MHA_NOT_FOUND, "layer", "expected one of %s, found no prefix '%s'", names, wanted);
    }
    if (matching > 1) {
        list_layers(l->file, wanted, names, sizeof names);
        return mha__fail(l->error, MHA_INVALID, "layer", "expected the prefix of one attention layer, found %zu: %s",
                         matching, names);
    }
    snprintf(l->prefix, sizeof l->prefix, "%.*s", (int)l->layer.prefix_length, l->layer.tensor->name);
    return MHA_OK;
}

/* ---------------------------------------------------------------- its tensors */

/* Whether the weight is part of a fused tensor of three weights. */
static bool is_fused(const loader *l, mha_weight weight)
{
    return mha__scheme_fuses(l->layer.scheme, weight);
}

/* Packed codes in place of a weight, which their scales and zero points do not fit. */
static mha_status refuse_codes_alone(const loader *l, mha_weight weight)
{
    char name[520];
    if (!mha__file_layer_name(&l->layer, weight, name, 512))
        return MHA_OK; /* unreachable: every scheme names its matrices */
    char *end = strrchr(name, '.');
    if (!end || strcmp(end, ".weight") != 0)
        return MHA_OK;
    memcpy(end, ".qweight", sizeof ".qweight");
    const mha_file_tensor *codes = mha_file_find(l->file, name);
    return codes ? refuse(l, codes, MHA_UNSUPPORTED,
                          "expected scales and zero points that fit it (.scales, .qzeros, perhaps .g_idx), found none")
                 : MHA_OK;
}

/* The last word of a name with dots. */
static const char *last_word(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static mha_status collect(loader *l)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_weight weight = (mha_weight)w;
        const mha_file_tensor *tensor = mha__file_layer_tensor(l->file, &l->layer, weight);
        char name[512];
        if (!tensor && mha__weight_is_matrix(weight))
            TRY(refuse_codes_alone(l, weight));
        if (!tensor && mha__weight_is_matrix(weight))
            return mha__fail_inside(l->error, MHA_NOT_FOUND, mha_file_path(l->file),
                                    mha__file_layer_name(&l->layer, weight, name, sizeof name), 0,
                                    "expected a tensor of this name (%s%s, by the names of %s), found none",
                                    mha_weight_name(weight), is_fused(l, weight) ? " and the two like it" : "",
                                    l->layer.scheme->name);
        if (!tensor)
            continue;
        if (!mha__dtype_is_float(tensor->reads_as))
            return refuse(l, tensor, MHA_UNSUPPORTED,
                          "expected F32, F64, F16, BF16, a type of GGUF that is decoded here, or scales beside it"
                          " (%s_scale, %s_scale_inv), found %s",
                          last_word(tensor->name), last_word(tensor->name), mha_dtype_name(tensor->dtype));
        l->found[w] = tensor;
        l->tensors += !is_fused(l, weight) || weight == mha__matrices_in[0] || weight == mha__biases_in[0];
    }
    return MHA_OK;
}

static bool listed(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Refuses unknown names under the layer's prefix, because such a tensor might change the result. A layer without a
 * prefix may share its file with any tensors. */
static mha_status refuse_unknown(loader *l)
{
    const mha__scheme *scheme = l->layer.scheme;
    size_t length = l->layer.prefix_length;
    const char *scope = scheme->scope ? scheme->scope : "";
    if (length == 0)
        return MHA_OK;
    const mha_file_tensor *tensor;
    for (size_t i = 0; (tensor = mha_file_at(l->file, i)); i++) {
        const char *rest = tensor->name + length;
        if (strncmp(tensor->name, l->prefix, length) != 0 || strncmp(rest, scope, strlen(scope)) != 0)
            continue;
        bool known = false;
        for (int weight = 0; weight < MHA_WEIGHT_COUNT && !known; weight++)
            known = mha__scheme_names(scheme, (mha_weight)weight, rest);
        if (known)
            continue;
        if (!listed(scheme->others, rest)) {
            char shape[80];
            return refuse(l, tensor, MHA_INVALID,
                          "expected only the names of a %s layer under '%s', found one that is not known, of shape %s",
                          scheme->name, l->prefix, mha__shape_text(shape, sizeof shape, tensor->shape, tensor->rank));
        }
        l->ignored++;
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- its shape */

static mha_status wrong_shape(loader *l, mha_weight weight, const size_t *expected, int rank)
{
    const mha_file_tensor *tensor = l->found[weight];
    char want[80], have[80];
    return refuse(l, tensor, MHA_INVALID, "expected shape %s (%s%s), found %s",
                  mha__shape_text(want, sizeof want, expected, rank), mha_weight_name(weight),
                  is_fused(l, weight) ? " and the two like it, fused" : "",
                  mha__shape_text(have, sizeof have, tensor->shape, tensor->rank));
}

static mha_status matrices_have_rank_two(loader *l)
{
    for (int weight = 0; weight < MHA_WEIGHT_COUNT; weight++) {
        const mha_file_tensor *tensor = l->found[weight];
        char shape[80];
        if (tensor && mha__weight_is_matrix((mha_weight)weight) && tensor->rank != 2)
            return refuse(l, tensor, MHA_INVALID, "expected a matrix (%s), found shape %s",
                          mha_weight_name((mha_weight)weight),
                          mha__shape_text(shape, sizeof shape, tensor->shape, tensor->rank));
    }
    return MHA_OK;
}

/* The orientation that was given, or else the scheme's. Fused GPT-2 weights come in both: a bias has as many elements
 * as there are outputs; without a bias there are three times as many outputs as inputs. */
static mha_status find_orientation(loader *l)
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
        return refuse(l, w, MHA_INVALID,
                      "expected a shape that tells (in, out) from (out, in), or a stated orientation; found (%zu, %zu)",
                      rows, columns);
    l->orientation = in_out ? MHA_ORIENTATION_IN_OUT : MHA_ORIENTATION_OUT_IN;
    return MHA_OK;
}

static size_t width_in(const loader *l, mha_weight weight)
{
    return l->found[weight]->shape[l->orientation == MHA_ORIENTATION_OUT_IN ? 1 : 0];
}

static size_t width_out(const loader *l, mha_weight weight)
{
    return l->found[weight]->shape[l->orientation == MHA_ORIENTATION_OUT_IN ? 0 : 1];
}

/* The number of query heads: as given, or the width divided by d_k, or the number of sinks. */
static mha_status find_heads(loader *l, size_t q_width)
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
                         "expected their number, which a weights file does not say (query width %zu); found neither an "
                         "option nor a config.json",
                         q_width);
    if (q_width == 0 || q_width % c->n_heads != 0 || (l->options.d_k > 0 && q_width / c->n_heads != l->options.d_k))
        return mha__fail(l->error, MHA_INVALID, "heads",
                         "expected %s%zu that divides the query width, found %zu for '%s' of width %zu",
                         l->options.d_k ? "d_k " : "a number, at most ", l->options.d_k ? l->options.d_k : q_width,
                         c->n_heads, l->found[MHA_W_Q]->name, q_width);
    c->d_k = q_width / c->n_heads;
    return MHA_OK;
}

/* The outputs of query and key (of all three when fused) give the widths; their ratio gives the key/value heads. */
static mha_status find_config(loader *l)
{
    mha_config *c = &l->config;
    bool fused = is_fused(l, MHA_W_Q);
    size_t q_width = width_out(l, MHA_W_Q), k_width = width_out(l, MHA_W_K), v_width = width_out(l, MHA_W_V);
    if (fused) {
        size_t parts = 3, q_parts = 1;
        if (l->options.n_heads > 0 && l->options.kv_heads > 0 && l->options.kv_heads <= l->options.n_heads &&
            l->options.n_heads <= SIZE_MAX / 4) {
            parts = l->options.n_heads + 2 * l->options.kv_heads;
            q_parts = l->options.n_heads;
        }
        if (q_width % parts != 0)
            return refuse(l, l->found[MHA_W_Q], MHA_INVALID,
                          "expected query, key and value side by side, a multiple of %zu outputs; found %zu", parts,
                          q_width);
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

/* A norm is over one head or over the whole row, by the length of its weight. */
static mha_norm find_norm(const loader *l, mha_weight weight)
{
    const mha_file_tensor *tensor = l->found[weight];
    return !tensor ? MHA_NORM_NONE : tensor->elements == l->config.d_k ? MHA_NORM_HEAD : MHA_NORM_ROW;
}

static mha_status find_extras(loader *l)
{
    mha_config *c = &l->config;
    c->bias_q = l->found[MHA_B_Q];
    c->bias_k = l->found[MHA_B_K];
    c->bias_v = l->found[MHA_B_V];
    c->bias_o = l->found[MHA_B_O];
    c->bias_kv = l->found[MHA_BIAS_K];
    if (c->bias_kv != (l->found[MHA_BIAS_V] != NULL)) {
        char name[512];
        const mha_weight missing = c->bias_kv ? MHA_BIAS_V : MHA_BIAS_K;
        return mha__fail_inside(l->error, MHA_NOT_FOUND, mha_file_path(l->file),
                                mha__file_layer_name(&l->layer, missing, name, sizeof name), 0,
                                "expected bias_k and bias_v together, found only %s", c->bias_kv ? "bias_k" : "bias_v");
    }
    c->sinks = l->found[MHA_SINKS];
    c->q_norm = find_norm(l, MHA_Q_NORM);
    c->k_norm = find_norm(l, MHA_K_NORM);
    c->dtype = l->options.has_dtype ? l->options.dtype : MHA_F32;
    return mha_config_resolve(c, l->error);
}

/* The rank and shape that a weight must have in the file. */
static int file_shape(const loader *l, mha_weight weight, size_t shape[2])
{
    int rank = mha_config_weight_shape(&l->config, weight, shape, NULL);
    if (is_fused(l, weight)) { /* the outputs of all three weights */
        const mha_weight *parts = rank == 2 ? mha__matrices_in : mha__biases_in;
        size_t part[2], outputs = 0;
        for (size_t i = 0; i < 3; i++) {
            mha_config_weight_shape(&l->config, parts[i], part, NULL);
            outputs += part[rank - 1];
        }
        shape[rank - 1] = outputs;
    }
    if (rank == 2 && l->orientation == MHA_ORIENTATION_OUT_IN) {
        size_t in = shape[0];
        shape[0] = shape[1];
        shape[1] = in;
    }
    return rank;
}

static mha_status check_shapes(loader *l)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_file_tensor *tensor = l->found[w];
        size_t shape[2];
        if (!tensor)
            continue;
        int rank = file_shape(l, (mha_weight)w, shape);
        bool same = tensor->rank == rank && memcmp(tensor->shape, shape, (size_t)rank * sizeof *shape) == 0;
        bool row = (w == MHA_BIAS_K || w == MHA_BIAS_V) && tensor->rank == 3 && tensor->shape[0] == 1 &&
                   tensor->shape[1] == 1 && tensor->shape[2] == shape[0]; /* PyTorch stores (1, 1, E) */
        if (!same && !row)
            return wrong_shape(l, (mha_weight)w, shape, rank);
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- its numbers */

static mha_view weight_view(const loader *l, const mha_layer *layer, mha_weight weight)
{
    mha_view view = mha_tensor_view(mha_layer_weight(layer, weight));
    return view.rank == 2 && l->orientation == MHA_ORIENTATION_OUT_IN ? mha_view_swap(&view, 0, 1) : view;
}

/* Reads a whole fused tensor and copies its slices of outputs, which are the weights of query, key and value. */
static mha_status read_fused(loader *l, const mha_layer *layer, const mha_weight parts[3])
{
    const mha_file_tensor *tensor = l->found[parts[0]];
    const mha_allocator *allocator = mha_params_allocator(mha_layer_params(layer));
    size_t bytes = 0, from = 0;
    mha_dtype dtype = l->config.dtype;
    bool fits = mha_dtype_bytes(dtype, tensor->elements, &bytes) == MHA_OK;
    void *block = fits ? mha__allocate(allocator, bytes) : NULL;
    if (!block)
        return refuse(l, tensor, MHA_NO_MEMORY, "expected %zu bytes to read it, found no memory", bytes);
    mha_view whole = mha_view_of(block, dtype, tensor->rank, tensor->shape);
    int outputs = tensor->rank == 2 && l->orientation == MHA_ORIENTATION_IN_OUT ? 1 : 0;
    mha_status status = mha_file_read(l->file, tensor, &whole, l->error);
    for (size_t part = 0; part < 3 && status == MHA_OK; part++) {
        mha_view to = weight_view(l, layer, parts[part]);
        mha_view slice = mha_view_slice(&whole, outputs, from, to.shape[outputs]);
        from += to.shape[outputs];
        status = mha_view_copy(&to, &slice);
    }
    mha__release(allocator, block, bytes);
    return status;
}

static mha_status read_weights(loader *l, const mha_layer *layer)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_weight weight = (mha_weight)w;
        const mha_file_tensor *tensor = l->found[w];
        if (!tensor)
            continue;
        if (!is_fused(l, weight)) {
            mha_view to = weight_view(l, layer, weight);
            TRY(mha_file_read(l->file, tensor, &to, l->error));
        }
        mha__tensor_set_source_dtype(mha_layer_weight(layer, weight), tensor->dtype);
    }
    if (is_fused(l, MHA_W_Q))
        TRY(read_fused(l, layer, mha__matrices_in));
    if (l->found[MHA_B_Q] && is_fused(l, MHA_B_Q))
        TRY(read_fused(l, layer, mha__biases_in));
    return MHA_OK;
}

/* Fills in head numbers that the caller did not give, from the facts of the config or of the file. */
static void take_facts(loader *l)
{
    mha_model_facts own;
    const mha_model_facts *facts = l->options.facts;
    if (!facts && mha_model_read_metadata(l->file, &own))
        facts = &own;
    if (!facts)
        return;
    bool heads_given = l->options.n_heads || l->options.d_k;
    if (!heads_given) {
        l->options.n_heads = facts->n_heads;
        l->options.d_k = facts->d_k;
        if (!l->options.kv_heads)
            l->options.kv_heads = facts->kv_heads;
    }
}

static mha_status prepare(loader *l)
{
    if (l->options.facts && *l->options.facts->not_run)
        return mha__fail(l->error, MHA_UNSUPPORTED, l->options.facts->model_type, "%s; it is counted, not computed",
                         l->options.facts->not_run);
    TRY(choose_layer(l));
    TRY(collect(l));
    TRY(refuse_unknown(l));
    TRY(matrices_have_rank_two(l));
    TRY(find_orientation(l));
    TRY(find_config(l));
    TRY(find_extras(l));
    return check_shapes(l);
}

mha_status mha_model_load_layer(const mha_file *file, const mha_load_options *options, mha_params *table,
                                mha_layer **layer, mha_load_report *report, mha_error *error)
{
    loader l = {.file = file, .error = error};
    if (options)
        l.options = *options;
    take_facts(&l);
    mha_layer *made = NULL;
    TRY(prepare(&l));
    TRY(mha_layer_create(&l.config, table, l.options.row_prefix, &made, error));
    const mha_status status = read_weights(&l, made);
    if (status != MHA_OK) {
        mha_layer_destroy(made);
        return status;
    }
    if (report) {
        *report = (mha_load_report){.orientation = l.orientation, .tensors = l.tensors, .ignored = l.ignored};
        size_t length = l.layer.prefix_length > 0 ? l.layer.prefix_length - 1 : 0;
        mha__text_print(report->layer.prefix, sizeof report->layer.prefix, "%.*s", (int)length, l.prefix);
        report->layer.scheme = l.layer.scheme->name;
    }
    *layer = made;
    return MHA_OK;
}
