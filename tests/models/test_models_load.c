/* Layers out of weights files: every naming scheme, both orientations, refusals, and trained models run against
 * what was recorded from them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mha/model.h"
#include "mha/random.h"
#include "models/layer/tensor_names.h"
#include "support/call.h"
#include "support/counted.h"
#include "support/scratch.h"
#include "support/unit.h"
#include "support/stages.h"

/* ---------------------------------------------------------------- files made here */

enum { MOST = 40 };

/* A weights file being put together; data lives until it is written. */
typedef struct made {
    mha_writer *writer;
    char path[512];
    void *data[MOST];
    size_t count;
} made;

static void make_begin(made *m, const char *name)
{
    mha_error error;
    memset(m, 0, sizeof *m);
    snprintf(m->path, sizeof m->path, "%s", scratch_path(name));
    assert_ok(mha_writer_create(m->path, &m->writer, &error), error);
}

/* Element i of the n-th tensor of a file. Every value is a multiple of 1/64 below 4: exact in F16 and BF16. */
static float sample(size_t n, size_t i)
{
    return (float)((int)((n * 131 + i * 29 + i / 7) % 15) - 7) / 64;
}

static void make_tensor_as(made *m, mha_dtype dtype, const char *prefix, const char *name, int rank, size_t a, size_t b)
{
    mha_error error;
    char full[300];
    size_t shape[2] = {a, b}, elements = rank == 2 ? a * b : a, size;
    float *values = malloc(elements * sizeof *values);
    assert_int_equal(mha_dtype_bytes(dtype, elements, &size, NULL), MHA_OK);
    m->data[m->count] = malloc(size);
    for (size_t i = 0; i < elements; i++)
        values[i] = sample(m->count, i);
    mha_view from = mha_view_of(values, MHA_F32, rank, shape), to = mha_view_of(m->data[m->count], dtype, rank, shape);
    if (dtype == MHA_I8)
        memset(m->data[m->count], 1, size);
    else
        assert_int_equal(mha_view_copy(&to, &from, NULL), MHA_OK);
    free(values);
    snprintf(full, sizeof full, "%s%s", prefix, name);
    assert_ok(mha_writer_add(m->writer, full, &to, &error), error);
    assert_true(++m->count < MOST);
}

/* PyTorch's (1, 1, E). */
static void make_row(made *m, const char *name, size_t E)
{
    mha_error error;
    float *values = malloc(E * sizeof *values);
    for (size_t i = 0; i < E; i++)
        values[i] = sample(m->count, i);
    mha_view view = mha_view_of(values, MHA_F32, 3, (size_t[]){1, 1, E});
    assert_ok(mha_writer_add(m->writer, name, &view, &error), error);
    m->data[m->count++] = values;
}

static void make_tensor(made *m, const char *prefix, const char *name, int rank, size_t a, size_t b)
{
    make_tensor_as(m, MHA_F32, prefix, name, rank, a, b);
}

static const char *make_end(made *m)
{
    mha_error error;
    assert_ok(mha_writer_commit(m->writer, &error), error);
    mha_writer_destroy(m->writer);
    for (size_t i = 0; i < m->count; i++)
        free(m->data[i]);
    return m->path;
}

/* The path of a file with tensors that are listed, "q.weight 12x4, q.bias 12", each with a prefix before its name. */
static const char *file_of(const char *prefix, const char *list)
{
    static int files;
    made m;
    char file[32], name[100];
    snprintf(file, sizeof file, "listed_%d.safetensors", files++);
    make_begin(&m, file);
    for (const char *at = list; *at; at += strcspn(at, ","), at += strspn(at, ", ")) {
        size_t a, b = 0;
        const int rank = sscanf(at, "%99s %zux%zu", name, &a, &b) - 1;
        make_tensor(&m, prefix, name, rank, a, b);
    }
    make_end(&m);
    return scratch_path(file);
}

#define SQUARES(prefix)                                                                                                \
    prefix "q_proj.weight 4x4, " prefix "k_proj.weight 4x4, " prefix "v_proj.weight 4x4, " prefix "o_proj.weight 4x4"

/* ---------------------------------------------------------------- loading */

typedef struct loaded {
    mha_file *file;
    mha_params *table;
    mha_layer *layer;
    mha_load_report report;
    mha_error error;
} loaded;

static mha_status load(loaded *l, const char *path, mha_load_options options)
{
    memset(l, 0, sizeof *l);
    assert_ok(mha_file_open(path, &l->file, &l->error), l->error);
    assert_int_equal(mha_params_create(NULL, &l->table, NULL), MHA_OK);
    mha_status status = mha_model_load_layer(l->file, &options, l->table, &l->layer, &l->report, &l->error);
    if (status) /* nothing stays behind */
        assert_int_equal(mha_params_count(l->table), 0);
    return status;
}

static void unload(loaded *l)
{
    mha_layer_destroy(l->layer);
    mha_params_destroy(l->table);
    mha_file_close(l->file);
}

static void refuse(const char *path, mha_load_options options, mha_status expected, const char *a, const char *b,
                   const char *c)
{
    loaded l;
    assert_refused(load(&l, path, options), expected, l.error, a, b, c);
    unload(&l);
}

/* The weight as loaded, against the file's tensor read on its own: element (i, j) of the weight is element
 * (i, j) of the tensor, or (j, i) when it lies (out, in), `from` outputs further on. */
static void assert_weight(const loaded *l, mha_weight weight, const char *name, bool out_in, size_t from)
{
    const mha_file_tensor *tensor = mha_file_find(l->file, name);
    assert_non_null(tensor);
    double *values = malloc(tensor->elements * sizeof *values);
    mha_view whole = mha_view_of(values, MHA_F64, tensor->rank, tensor->shape);
    mha_error error;
    assert_ok(mha_file_read(l->file, tensor, &whole, &error), error);
    assert_non_null(mha_layer_weight(l->layer, weight));
    mha_view view = mha_tensor_view(mha_layer_weight(l->layer, weight));
    size_t rows = view.shape[0], columns = view.rank == 2 ? view.shape[1] : 1;
    size_t row_length = tensor->rank == 2 ? tensor->shape[1] : 1;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            size_t index[2] = {i, j};
            size_t at = view.rank == 1 ? from + i : out_in ? (from + j) * row_length + i : i * row_length + from + j;
            double expected = values[at], found = mha_view_get(&view, index);
            if (found != expected)
                fail_msg("%s[%zu,%zu]: %g, in %s %g", mha_weight_at(weight)->name, i, j, found, name, expected);
        }
    free(values);
}

/* ---------------------------------------------------------------- naming schemes */

/* Names as the libraries write them: an independent copy. Suffix "" of a bias means: none. */
static const struct {
    const char *scheme, *prefix, *layer;
    const char *w[4], *b[4]; /* q k v o */
    bool in_out;
} separate[] = {
    {"own", "block0.", "block0", {"W_Q", "W_K", "W_V", "W_O"}, {"b_Q", "b_K", "b_V", "b_O"}, true},
    {"case file", "", NULL, {"W_q", "W_k", "W_v", "W_o"}, {"b_q", "b_k", "b_v", "b_o"}, true},
    {"BERT",
     "bert.encoder.layer.3.attention.",
     "bert.encoder.layer.3",
     {"self.query.weight", "self.key.weight", "self.value.weight", "output.dense.weight"},
     {"self.query.bias", "self.key.bias", "self.value.bias", "output.dense.bias"},
     false},
    {"ALBERT",
     "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.",
     "albert.",
     {"query.weight", "key.weight", "value.weight", "dense.weight"},
     {"query.bias", "key.bias", "value.bias", "dense.bias"},
     false},
    {"ViT",
     "vit.encoder.layer.11.attention.",
     "vit.encoder.layer.11.attention",
     {"attention.query.weight", "attention.key.weight", "attention.value.weight", "output.dense.weight"},
     {"attention.query.bias", "attention.key.bias", "attention.value.bias", "output.dense.bias"},
     false},
    {"DistilBERT",
     "distilbert.transformer.layer.0.attention.",
     NULL,
     {"q_lin.weight", "k_lin.weight", "v_lin.weight", "out_lin.weight"},
     {"q_lin.bias", "k_lin.bias", "v_lin.bias", "out_lin.bias"},
     false},
    {"LLaMA",
     "model.layers.0.self_attn.",
     "model.layers.0.",
     {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"},
     {"q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias"},
     false},
    {"BART",
     "model.decoder.layers.0.encoder_attn.",
     NULL,
     {"q_proj.weight", "k_proj.weight", "v_proj.weight", "out_proj.weight"},
     {"q_proj.bias", "k_proj.bias", "v_proj.bias", "out_proj.bias"},
     false},
    {"LLaMA (Meta)",
     "layers.31.attention.",
     "layers.31",
     {"wq.weight", "wk.weight", "wv.weight", "wo.weight"},
     {"", "", "", ""},
     false},
    {"GGUF",
     "blk.7.",
     "blk.7",
     {"attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight"},
     {"attn_q.bias", "attn_k.bias", "attn_v.bias", ""},
     false},
    {"nn.MultiheadAttention (kdim, vdim)",
     "",
     "",
     {"q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"},
     {"", "", "", "out_proj.bias"},
     false},
};

static void every_scheme_loads_each_weight_where_it_belongs(void **state)
{
    (void)state;
    static const mha_weight w[4] = {MHA_W_Q, MHA_W_K, MHA_W_V, MHA_W_O}, b[4] = {MHA_B_Q, MHA_B_K, MHA_B_V, MHA_B_O};
    const size_t in = 12, h = 3, kv = 3, d = 2; /* h*d is not the width: in and out cannot be mixed up unseen */
    for (size_t s = 0; s < sizeof separate / sizeof *separate; s++) {
        made m;
        make_begin(&m, "scheme.safetensors");
        for (int i = 0; i < 4; i++) {
            size_t rows = i == 3 ? h * d : in, columns = i == 3 ? in : (i == 0 ? h : kv) * d;
            make_tensor(&m, separate[s].prefix, separate[s].w[i], 2, separate[s].in_out ? rows : columns,
                        separate[s].in_out ? columns : rows);
            if (*separate[s].b[i])
                make_tensor(&m, separate[s].prefix, separate[s].b[i], 1, columns, 0);
        }
        make_tensor(&m, "something.else.", "weight", 1, 5, 0);
        loaded l;
        assert_ok(
            load(&l, make_end(&m), (mha_load_options){.layer = separate[s].layer, .n_heads = h, .row_prefix = "x."}),
            l.error);
        assert_string_equal(l.report.layer.scheme, separate[s].scheme);
        assert_int_equal(strlen(l.report.layer.prefix) + (*separate[s].prefix != 0), strlen(separate[s].prefix));
        assert_int_equal(l.report.orientation, separate[s].in_out ? MHA_ORIENTATION_IN_OUT : MHA_ORIENTATION_OUT_IN);
        assert_non_null(mha_params_find(l.table, "x.W_Q"));
        for (int i = 0; i < 4; i++) {
            char name[300];
            snprintf(name, sizeof name, "%s%s", separate[s].prefix, separate[s].w[i]);
            assert_weight(&l, w[i], name, !separate[s].in_out, 0);
            snprintf(name, sizeof name, "%s%s", separate[s].prefix, separate[s].b[i]);
            if (*separate[s].b[i])
                assert_weight(&l, b[i], name, false, 0);
            else
                assert_null(mha_layer_weight(l.layer, b[i]));
        }
        unload(&l);
    }
}

static void fused_weights_are_cut_into_query_key_and_value(void **state)
{
    (void)state;
    static const struct {
        const char *scheme, *prefix, *w, *b, *o;
        bool in_out;
    } fused[] = {{"nn.MultiheadAttention", "", "in_proj_weight", "in_proj_bias", "out_proj.weight", false},
                 {"nn.MultiheadAttention", "encoder.layers.0.self_attn.", "in_proj_weight", "in_proj_bias",
                  "out_proj.weight", false},
                 {"timm", "blocks.0.attn.", "qkv.weight", "qkv.bias", "proj.weight", false},
                 {"GGUF (fused)", "blk.0.", "attn_qkv.weight", "attn_qkv.bias", "attn_output.weight", false},
                 {"GPT-2", "transformer.h.0.attn.", "c_attn.weight", "c_attn.bias", "c_proj.weight", false},
                 {"GPT-2", "h.0.attn.", "c_attn.weight", "c_attn.bias", "c_proj.weight", true}};
    const size_t E = 12;
    for (size_t s = 0; s < sizeof fused / sizeof *fused; s++)
        for (int with_bias = 0; with_bias < 2; with_bias++) {
            made m;
            char name[3][100];
            const char *path;
            loaded l;
            make_begin(&m, "fused.safetensors");
            make_tensor(&m, fused[s].prefix, fused[s].w, 2, fused[s].in_out ? E : 3 * E, fused[s].in_out ? 3 * E : E);
            make_tensor(&m, fused[s].prefix, fused[s].o, 2, E, E);
            if (with_bias)
                make_tensor(&m, fused[s].prefix, fused[s].b, 1, 3 * E, 0);
            path = make_end(&m);
            assert_ok(load(&l, path, (mha_load_options){.n_heads = 4}), l.error);
            assert_string_equal(l.report.layer.scheme, fused[s].scheme);
            snprintf(name[0], 100, "%s%s", fused[s].prefix, fused[s].w);
            snprintf(name[1], 100, "%s%s", fused[s].prefix, fused[s].b);
            snprintf(name[2], 100, "%s%s", fused[s].prefix, fused[s].o);
            for (size_t part = 0; part < 3; part++) {
                assert_weight(&l, (mha_weight)(MHA_W_Q + 2 * part), name[0], !fused[s].in_out, part * E);
                if (with_bias)
                    assert_weight(&l, (mha_weight)(MHA_B_Q + 2 * part), name[1], false, part * E);
            }
            assert_weight(&l, MHA_W_O, name[2], !fused[s].in_out, 0);
            assert_int_equal(mha_layer_config(l.layer)->bias_k, with_bias);
            unload(&l);
        }
}

static void a_fused_matrix_can_share_key_heads(void **state)
{
    (void)state;
    loaded l;
    /* 4 query heads and 1 key/value head of 3 */
    const char *path = file_of("h.0.attn.", "c_attn.weight 18x12, c_attn.bias 18, c_proj.weight 12x12");
    assert_ok(load(&l, path, (mha_load_options){.n_heads = 4, .kv_heads = 1}), l.error);
    assert_int_equal(l.report.orientation, MHA_ORIENTATION_OUT_IN);
    assert_weight(&l, MHA_W_Q, "h.0.attn.c_attn.weight", true, 0);
    assert_weight(&l, MHA_W_K, "h.0.attn.c_attn.weight", true, 12);
    assert_weight(&l, MHA_W_V, "h.0.attn.c_attn.weight", true, 15);
    assert_weight(&l, MHA_B_V, "h.0.attn.c_attn.bias", false, 15);
    unload(&l);
}

/* 4 query heads and 2 key/value heads of 3, in every order that a configuration can say: the letters are the heads of
 * the file, one after the other. */
static void heads_of_a_fused_matrix_lie_as_the_configuration_says(void **state)
{
    (void)state;
    static const struct {
        const char *names[3];
        size_t blocks;
        bool qvk;
        const char *order;
    } rows[] = {{{"query_key_value.weight", "query_key_value.bias", "dense.weight"}, 1, false, "qqqqkkvv"},
                {{"query_key_value.weight", "query_key_value.bias", "dense.weight"}, 2, false, "qqkvqqkv"},
                {{"qkv_proj.weight", "qkv_proj.bias", "out_proj.weight"}, 2, true, "qqvkqqvk"},
                {{"qkv_proj.weight", "qkv_proj.bias", "o_proj.weight"}, 1, true, "qqqqvvkk"},
                {{"Wqkv.weight", "Wqkv.bias", "out_proj.weight"}, 0, true, "qqqqkkvv"}, /* the names' own */
                {{"attn_qkv.weight", "attn_qkv.bias", "attn_output.weight"}, 2, true, "qqqqkkvv"}}; /* of a converter */
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        made m;
        loaded l;
        size_t seen[3] = {0};
        const mha_model_facts facts = {.config.n_heads = 4,
                                       .config.kv_heads = 2,
                                       .config.d_k = 3,
                                       .fused_blocks = rows[r].blocks,
                                       .fused_qvk = rows[r].qvk};
        make_begin(&m, "order.safetensors");
        make_tensor(&m, "a.", rows[r].names[0], 2, 24, 12);
        make_tensor(&m, "a.", rows[r].names[1], 1, 24, 0);
        make_tensor(&m, "a.", rows[r].names[2], 2, 12, 12);
        assert_ok(load(&l, make_end(&m), (mha_load_options){.facts = &facts}), l.error);
        for (size_t head = 0; head < 8; head++) {
            const size_t part = rows[r].order[head] == 'q' ? 0 : rows[r].order[head] == 'k' ? 1 : 2;
            const mha_view w = mha_tensor_view(mha_layer_weight(l.layer, (mha_weight)(MHA_W_Q + 2 * part))),
                           b = mha_tensor_view(mha_layer_weight(l.layer, (mha_weight)(MHA_B_Q + 2 * part)));
            for (size_t d = 0; d < 3; d++) {
                const size_t out = 3 * seen[part] + d;
                assert_true(mha_view_get(&b, &out) == (double)sample(1, 3 * head + d));
                for (size_t in = 0; in < 12; in++)
                    assert_true(mha_view_get(&w, (size_t[]){in, out}) == (double)sample(0, (3 * head + d) * 12 + in));
            }
            seen[part]++;
        }
        unload(&l);
    }
}

/* 4 heads of 3 on 2, with a gate; W_G and b_G are the rows behind those of the query in each head of q_proj. */
static const char *gated(const char *q_proj, size_t q_width, const char *gate, size_t g_width)
{
    static made m;
    make_begin(&m, "gate.safetensors");
    make_tensor(&m, "a.", q_proj, 2, q_width, 12);
    make_tensor(&m, "a.", "k_proj.weight", 2, 6, 12);
    make_tensor(&m, "a.", "v_proj.weight", 2, 6, 12);
    make_tensor(&m, "a.", "o_proj.weight", 2, 12, 12);
    if (gate)
        make_tensor(&m, "a.", gate, strstr(gate, "bias") ? 1 : 2, g_width, 12);
    return make_end(&m);
}

static void a_gate_lies_among_the_queries_or_apart(void **state)
{
    (void)state;
    const mha_model_facts fused = {.config.n_heads = 4,
                                   .config.kv_heads = 2,
                                   .config.d_k = 3,
                                   .config.gate = MHA_GATE_FEATURE,
                                   .fused_gate = true};
    mha_model_facts apart = fused, none = fused;
    apart.fused_gate = none.fused_gate = false, none.config.gate = MHA_GATE_NONE;
    loaded l;
    assert_ok(load(&l, gated("q_proj.weight", 24, "q_proj.bias", 24), (mha_load_options){.facts = &fused}), l.error);
    assert_int_equal(l.report.tensors, 5);
    assert_int_equal(mha_layer_config(l.layer)->gate, MHA_GATE_FEATURE);
    for (int w = 0; w < 4; w++) {
        static const mha_weight weights[] = {MHA_W_Q, MHA_B_Q, MHA_W_G, MHA_B_G};
        const mha_view v = mha_tensor_view(mha_layer_weight(l.layer, weights[w]));
        for (size_t out = 0; out < 12; out++) {
            const size_t row = out / 3 * 6 + out % 3 + (w >= 2 ? 3 : 0);
            for (size_t in = 0; in < 12; in++)
                assert_true(w % 2 ? mha_view_get(&v, &out) == (double)sample(4, row)
                                  : mha_view_get(&v, (size_t[]){in, out}) == (double)sample(0, row * 12 + in));
        }
    }
    unload(&l);
    assert_ok(load(&l, gated("q_proj.weight", 12, "gate_proj.weight", 12), (mha_load_options){.facts = &apart}),
              l.error);
    assert_int_equal(mha_layer_config(l.layer)->gate, MHA_GATE_FEATURE);
    assert_weight(&l, MHA_W_G, "a.gate_proj.weight", true, 0);
    unload(&l);
    assert_ok(load(&l, gated("q_proj.weight", 12, "gate_proj.weight", 4), (mha_load_options){.facts = &apart}),
              l.error);
    assert_int_equal(mha_layer_config(l.layer)->gate, MHA_GATE_HEAD);
    unload(&l);
    refuse(gated("q_proj.weight", 12, "gate_proj.weight", 5), (mha_load_options){.facts = &apart}, MHA_INVALID,
           "a.gate_proj.weight", "(12, 12)", "(5, 12)");
    refuse(gated("q_proj.weight", 12, "gate_proj.weight", 12), (mha_load_options){.facts = &none}, MHA_INVALID,
           "a.gate_proj.weight", "config.json", "found none");
    refuse(gated("q_proj.weight", 12, NULL, 0), (mha_load_options){.facts = &apart}, MHA_NOT_FOUND,
           "a.gate_proj.weight", "the gate of the heads", "found none");
    refuse(gated("q_proj.weight", 12, NULL, 0), (mha_load_options){.facts = &fused}, MHA_INVALID, "heads", "d_k 3",
           "width 6");
}

static void linear_attention_is_refused_by_name(void **state)
{
    (void)state;
    const char *path = file_of("", "a.linear_attn.A_log 4, b.W_Q 4x4, b.W_K 4x4, b.W_V 4x4, b.W_O 4x4");
    refuse(path, (mha_load_options){.n_heads = 2, .layer = "a.linear_attn"}, MHA_UNSUPPORTED, "a.linear_attn.A_log",
           "softmax", "linear attention");
    refuse(path, (mha_load_options){.n_heads = 2, .layer = "a.linear"}, MHA_NOT_FOUND, "layer", "'b'", "'a.linear'");
}

/* A layer of 4 heads on 2 of width 3, with norms that are stored head by head; the last k norm has `width` features. */
static const char *norms_by_head(size_t q_norms, size_t k_norms, size_t width)
{
    static const char *const names[] = {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"};
    static const size_t outputs[] = {12, 6, 6, 12};
    static made m; /* whose path the caller reads */
    char name[64];
    make_begin(&m, "norms.safetensors");
    for (size_t i = 0; i < 4; i++)
        make_tensor(&m, "a.", names[i], 2, outputs[i], 12);
    for (size_t i = 0; i < q_norms + k_norms; i++) {
        const bool key = i >= q_norms;
        snprintf(name, sizeof name, "%c_layernorm.norms.%zu.weight", key ? 'k' : 'q', key ? i - q_norms : i);
        make_tensor(&m, "a.", name, 1, i + 1 == q_norms + k_norms ? width : 3, 0);
    }
    return make_end(&m);
}

static void norms_of_heads_may_have_tensors_of_their_own(void **state)
{
    (void)state;
    const mha_load_options options = {.n_heads = 4};
    loaded l;
    assert_ok(load(&l, norms_by_head(4, 2, 3), options), l.error);
    assert_int_equal(mha_layer_config(l.layer)->q_norm, MHA_NORM_EACH_HEAD);
    assert_int_equal(l.report.tensors, 10);
    for (size_t head = 0; head < 6; head++) {
        const mha_view w = mha_tensor_view(mha_layer_weight(l.layer, head < 4 ? MHA_Q_NORM : MHA_K_NORM));
        for (size_t d = 0; d < 3; d++)
            assert_true(mha_view_get(&w, (size_t[]){head % 4, d}) == (double)sample(4 + head, d));
    }
    unload(&l);
    refuse(norms_by_head(3, 2, 3), options, MHA_NOT_FOUND, "a.q_layernorm.norms.0.weight", "each of 4", "found 3");
    refuse(norms_by_head(4, 2, 5), options, MHA_INVALID, "a.k_layernorm.norms.1.weight", "(3,)", "(5,)");
    refuse(norms_by_head(4, 3, 3), options, MHA_INVALID, "a.k_layernorm.norms.2.weight", "each of 2", "one more");
}

static void heads_of_a_fused_matrix_are_not_guessed(void **state)
{
    (void)state;
    const char *path = file_of("a.", "query_key_value.weight 24x12, dense.weight 12x12");
    refuse(path, (mha_load_options){.n_heads = 4, .kv_heads = 2}, MHA_INVALID, "a.query_key_value.weight",
           "config.json", "order");
    const mha_model_facts facts = {.config.n_heads = 4, .config.kv_heads = 2, .config.d_k = 3, .fused_blocks = 4};
    refuse(path, (mha_load_options){.facts = &facts}, MHA_INVALID, "a.query_key_value.weight", "2 key/value heads",
           "4 blocks");
}

static void a_square_fused_matrix_needs_the_orientation_stated(void **state)
{
    (void)state;
    loaded l;
    /* h*d_k = 4: 3 * 4 outputs from 12 inputs */
    const char *path = file_of("attn.", "c_attn.weight 12x12, c_attn.bias 12, c_proj.weight 12x4");
    refuse(path, (mha_load_options){.n_heads = 2}, MHA_INVALID, "attn.c_attn.weight", "(12, 12)", "orientation");
    assert_ok(load(&l, path, (mha_load_options){.n_heads = 2, .orientation = MHA_ORIENTATION_OUT_IN}), l.error);
    assert_weight(&l, MHA_W_V, "attn.c_attn.weight", true, 8);
    unload(&l);
    refuse(path, (mha_load_options){.n_heads = 2, .orientation = MHA_ORIENTATION_IN_OUT}, MHA_INVALID,
           "attn.c_proj.weight", "expected shape (4, 12)", "found (12, 4)");
}

static void extras_and_norms_follow_their_shapes(void **state)
{
    (void)state;
    loaded l;
    const char *path = file_of("model.layers.0.self_attn.",
                               "q_proj.weight 8x6, k_proj.weight 4x6, v_proj.weight 4x6, o_proj.weight 6x8, "
                               "q_norm.weight 2, k_norm.weight 4, sinks 4, rotary_emb.inv_freq 1");
    assert_ok(load(&l, path, (mha_load_options){0}), l.error); /* the sinks say how many heads */
    const mha_config *c = mha_layer_config(l.layer);
    assert_int_equal(c->n_heads, 4);
    assert_int_equal(c->kv_heads, 2);
    assert_int_equal(c->d_k, 2);
    assert_int_equal(c->q_norm, MHA_NORM_HEAD);
    assert_int_equal(c->k_norm, MHA_NORM_ROW);
    assert_true(c->sinks);
    assert_weight(&l, MHA_SINKS, "model.layers.0.self_attn.sinks", false, 0);
    assert_int_equal(l.report.tensors, 7);
    assert_int_equal(l.report.ignored, 1);
    unload(&l);
    assert_ok(load(&l, path, (mha_load_options){.d_k = 2}), l.error);
    assert_int_equal(mha_layer_config(l.layer)->n_heads, 4);
    unload(&l);
}

static void learned_key_and_value_rows_come_as_pytorch_stores_them(void **state)
{
    (void)state;
    made m;
    loaded l;
    make_begin(&m, "rows.safetensors");
    make_tensor(&m, "", "in_proj_weight", 2, 12, 4);
    make_tensor(&m, "", "out_proj.weight", 2, 4, 4);
    make_row(&m, "bias_k", 4);
    make_row(&m, "bias_v", 4);
    assert_ok(load(&l, make_end(&m), (mha_load_options){.n_heads = 2}), l.error);
    assert_true(mha_layer_config(l.layer)->bias_kv);
    for (size_t i = 0; i < 4; i++) {
        mha_view k = mha_tensor_view(mha_layer_weight(l.layer, MHA_BIAS_K)),
                 v = mha_tensor_view(mha_layer_weight(l.layer, MHA_BIAS_V));
        assert_true(mha_view_get(&k, &i) == (double)sample(2, i));
        assert_true(mha_view_get(&v, &i) == (double)sample(3, i));
    }
    unload(&l);
    make_begin(&m, "bias_row.safetensors"); /* but a bias has one extent */
    make_tensor(&m, "", "in_proj_weight", 2, 12, 4);
    make_tensor(&m, "", "out_proj.weight", 2, 4, 4);
    make_row(&m, "out_proj.bias", 4);
    refuse(make_end(&m), (mha_load_options){.n_heads = 2}, MHA_INVALID, "out_proj.bias", "expected shape (4,)",
           "(1, 1, 4)");
}

/* ---------------------------------------------------------------- element types */

static void narrow_weights_are_widened_and_say_where_from(void **state)
{
    (void)state;
    static const mha_dtype dtypes[] = {MHA_F16, MHA_BF16, MHA_F64};
    for (size_t d = 0; d < 3; d++) {
        made m;
        loaded l;
        make_begin(&m, "narrow.safetensors");
        for (int i = 0; i < 4; i++)
            make_tensor_as(&m, i == 1 ? MHA_F32 : dtypes[d], "", (const char *[]){"W_Q", "W_K", "W_V", "W_O"}[i], 2, 4,
                           4);
        assert_ok(load(&l, make_end(&m), (mha_load_options){.n_heads = 2}), l.error);
        mha_tensor_info q = mha_tensor_info_of(mha_layer_weight(l.layer, MHA_W_Q));
        mha_tensor_info k = mha_tensor_info_of(mha_layer_weight(l.layer, MHA_W_K));
        assert_int_equal(q.dtype, MHA_F32);
        assert_int_equal(q.source_dtype, dtypes[d]);
        assert_int_equal(q.bytes, 64);
        assert_int_equal(k.source_dtype, MHA_F32);
        assert_weight(&l, MHA_W_Q, "W_Q", false, 0);
        unload(&l);
    }
}

/* ---------------------------------------------------------------- which layer */

static const char *two_layers(void)
{
    return file_of("", SQUARES("model.layers.1.self_attn.") ", " SQUARES("model.layers.10.self_attn."));
}

static void a_prefix_chooses_the_layer(void **state)
{
    (void)state;
    const char *path = two_layers();
    static const char *const first[] = {"model.layers.1", "model.layers.1.", "model.layers.1.self_attn",
                                        "model.layers.1.self_attn."};
    loaded l;
    for (size_t i = 0; i < 4; i++) {
        assert_ok(load(&l, path, (mha_load_options){.layer = first[i], .n_heads = 2}), l.error);
        assert_string_equal(l.report.layer.prefix, "model.layers.1.self_attn");
        assert_weight(&l, MHA_W_Q, "model.layers.1.self_attn.q_proj.weight", true, 0);
        unload(&l);
    }
    mha_found_layer layers[1];
    assert_ok(load(&l, path, (mha_load_options){.layer = "model.layers.10", .n_heads = 2}), l.error);
    assert_int_equal(mha_model_find_layers(l.file, layers, 1), 2);
    assert_string_equal(layers[0].prefix, "model.layers.1.self_attn");
    unload(&l);
    refuse(path, (mha_load_options){.n_heads = 2}, MHA_INVALID, "found 2", "'model.layers.1.self_attn'",
           "'model.layers.10.self_attn'");
    refuse(path, (mha_load_options){.layer = "model.layers", .n_heads = 2}, MHA_INVALID, "found 2", "model.layers.1.",
           "10");
    refuse(path, (mha_load_options){.layer = "model.layers.2", .n_heads = 2}, MHA_NOT_FOUND, "'model.layers.2'",
           "'model.layers.1.self_attn'", "found no prefix");
}

/* ---------------------------------------------------------------- refusals */

static void heads_must_be_stated_and_fit(void **state)
{
    (void)state;
    const char *path = two_layers();
    refuse(path, (mha_load_options){.layer = "model.layers.1"}, MHA_INVALID, "heads", "width 4", "config.json");
    refuse(path, (mha_load_options){.layer = "model.layers.1", .n_heads = 3}, MHA_INVALID, "heads", "found 3",
           "width 4");
    refuse(path, (mha_load_options){.layer = "model.layers.1", .n_heads = 4, .kv_heads = 2}, MHA_INVALID, "kv_heads",
           "found 2", "4 heads");
    refuse(path, (mha_load_options){.layer = "model.layers.1", .n_heads = 4, .d_k = 2}, MHA_INVALID, "d_k 2", "found 4",
           "");
}

static void what_is_missing_wrong_or_unknown_is_named(void **state)
{
    (void)state;
    static const char *const names[] = {"self.query.weight", "self.key.weight", "self.value.weight",
                                        "output.dense.weight"};
    mha_load_options heads = {.n_heads = 2};
    const char *prefix = "encoder.layer.0.attention.";
    made m;
    for (int missing = 0; missing < 4; missing++) {
        make_begin(&m, "missing.safetensors");
        for (int i = 0; i < 4; i++)
            if (i != missing)
                make_tensor(&m, prefix, names[i], 2, 4, 4);
        refuse(make_end(&m), heads, MHA_NOT_FOUND, names[missing], "encoder.layer.0.attention.", "found none");
    }
    for (int wrong = 0; wrong < 4; wrong++) {
        make_begin(&m, "misshapen.safetensors");
        for (int i = 0; i < 4; i++)
            make_tensor(&m, "model.layers.0.self_attn.",
                        (const char *[]){"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"}[i], 2, 4,
                        i == wrong ? 6 : 4);
        refuse(make_end(&m), heads, MHA_INVALID,
               wrong == 0 ? "k_proj" : (const char *[]){"q_proj", "k_proj", "v_proj", "o_proj"}[wrong],
               "expected shape (4, ", "found (4, ");
    }
    refuse(file_of(prefix,
                   "self.query.weight 4x4, self.key.weight 4x4, self.value.weight 4x4, output.dense.weight 4x4, "
                   "output.LayerNorm.weight 4, self.distance_embedding.weight 9x2"),
           heads, MHA_INVALID, "encoder.layer.0.attention.self.distance_embedding.weight", "(9, 2)", "not known");

    make_begin(&m, "integers.safetensors");
    for (int i = 0; i < 4; i++)
        make_tensor_as(&m, MHA_I8, prefix, names[i], 2, 4, 4);
    refuse(make_end(&m), heads, MHA_UNSUPPORTED, "self.query.weight", "F32", "found I8");

    refuse(file_of(prefix, "self.query.weight 4x4, self.key.weight 4x4, self.value.weight 4, output.dense.weight 4x4"),
           heads, MHA_INVALID, "self.value.weight", "expected a matrix", "(4,");

    refuse(file_of("", "in_proj_weight 12x4, out_proj.weight 4x4, bias_k 4"), heads, MHA_NOT_FOUND, "bias_v",
           "only bias_k", "");

    refuse(file_of("", "in_proj_weight 12x4, out_proj.weight 4x4, in_proj_bias 11"), heads, MHA_INVALID, "in_proj_bias",
           "expected shape (12,)", "found (11,)");

    refuse(file_of("", "embeddings 3x4"), heads, MHA_NOT_FOUND, "in_proj_weight", "found none among 1", "");
}

static void widths_that_heads_cannot_share_are_refused(void **state)
{
    (void)state;
    refuse(file_of("", "W_Q 6x0, W_K 6x4, W_V 6x4, W_O 4x6"), (mha_load_options){.n_heads = 2}, MHA_INVALID, "heads",
           "found 2 for 'W_Q' of width 0", "");
    refuse(file_of("", "W_Q 6x8, W_K 6x1, W_V 6x4, W_O 8x6"), (mha_load_options){.n_heads = 4}, MHA_INVALID, "kv_heads",
           "found 0 for 'W_K' of width 1", "");
    refuse(file_of("", "W_Q 6x8, W_K 6x5, W_V 6x4, W_O 8x6"), (mha_load_options){.n_heads = 4, .kv_heads = 2},
           MHA_INVALID, "kv_heads", "found 2 for 'W_K' of width 5", "");
    refuse(file_of("", "W_Q 6x8, W_K 6x6, W_V 6x6, W_O 8x6"), (mha_load_options){.n_heads = 4}, MHA_INVALID, "kv_heads",
           "found 3 for 'W_K' of width 6", "");
    refuse(file_of("", "W_Q 6x8, W_K 6x6, W_V 6x6, W_O 8x6"), (mha_load_options){.n_heads = 4, .kv_heads = 1},
           MHA_INVALID, "kv_heads", "found 1 for 'W_K' of width 6", "");
    /* Values of a width of their own, which four heads must share: expected is what keys have. */
    refuse(file_of("", "W_Q 6x8, W_K 6x8, W_V 6x6, W_O 8x6"), (mha_load_options){.n_heads = 4}, MHA_INVALID, "W_V",
           "expected shape (6, 8)", "found (6, 6)");
    refuse(file_of("", "W_Q 6x8, W_K 6x8, W_V 6x0, W_O 8x6"), (mha_load_options){.n_heads = 4}, MHA_INVALID, "W_V",
           "expected shape (6, 8)", "found (6, 0)");
}

static void a_fused_matrix_without_biases_tells_its_orientation_by_thirds(void **state)
{
    (void)state;
    static const struct {
        size_t rows, columns;
    } neither[] = {{37, 12}, {12, 37}, {3, 0}, {0, 3}, {0, 0}, {12, 12}};
    for (size_t i = 0; i < sizeof neither / sizeof *neither; i++) {
        made m;
        make_begin(&m, "thirds.safetensors");
        make_tensor(&m, "h.0.attn.", "c_attn.weight", 2, neither[i].rows, neither[i].columns);
        make_tensor(&m, "h.0.attn.", "c_proj.weight", 2, 12, 12);
        refuse(make_end(&m), (mha_load_options){.n_heads = 4}, MHA_INVALID, "orientation", "a stated orientation",
               "c_attn");
    }
}

/* Numbers of heads that cannot be those of a fused matrix do not cut it: it is then three equal parts. */
static void heads_that_cannot_be_do_not_cut_a_fused_matrix(void **state)
{
    (void)state;
    const char *path = file_of("", "in_proj_weight 12x4, out_proj.weight 4x4");
    refuse(path, (mha_load_options){.n_heads = 2, .kv_heads = 4}, MHA_INVALID, "kv_heads", "2 heads", "found 4");
    refuse(path, (mha_load_options){.n_heads = SIZE_MAX / 2, .kv_heads = 1}, MHA_INVALID, "heads", "width 4", "");
    refuse(path, (mha_load_options){.n_heads = 4, .kv_heads = 2}, MHA_INVALID, "in_proj_weight", "a multiple of 8",
           "found 12");
}

static void learned_rows_of_another_shape_are_refused(void **state)
{
    (void)state;
    static const size_t wrong[][3] = {{2, 1, 4}, {1, 2, 4}, {1, 1, 5}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        float zeros[8] = {0};
        mha_view row = mha_view_of(zeros, MHA_F32, 3, wrong[i]);
        mha_error error;
        made m;
        make_begin(&m, "rows.safetensors");
        make_tensor(&m, "", "in_proj_weight", 2, 12, 4);
        make_tensor(&m, "", "out_proj.weight", 2, 4, 4);
        make_row(&m, "bias_k", 4);
        assert_ok(mha_writer_add(m.writer, "bias_v", &row, &error), error);
        refuse(make_end(&m), (mha_load_options){.n_heads = 2}, MHA_INVALID, "bias_v", "expected shape (4,)", "found (");
    }
    made m;
    make_begin(&m, "rows.safetensors");
    make_tensor(&m, "", "in_proj_weight", 2, 12, 4);
    make_tensor(&m, "", "out_proj.weight", 2, 4, 4);
    make_row(&m, "bias_v", 4);
    refuse(make_end(&m), (mha_load_options){.n_heads = 2}, MHA_NOT_FOUND, "bias_k", "only bias_v", "");
}

/* A refusal names as many layers as fit its line, cuts long names, and says how many there are. */
static void many_layers_are_named_as_far_as_they_fit(void **state)
{
    (void)state;
    made m;
    make_begin(&m, "many.safetensors");
    for (int layer = 0; layer < 9; layer++)
        for (int i = 0; i < 4; i++) {
            char prefix[100];
            snprintf(prefix, sizeof prefix, "model.a_rather_long_name_of_a_module_which_fills_the_line.%d.", layer);
            make_tensor(&m, prefix, (const char *[]){"W_Q", "W_K", "W_V", "W_O"}[i], 2, 2, 2);
        }
    const char *path = make_end(&m);
    refuse(path, (mha_load_options){.n_heads = 2}, MHA_INVALID,
           "found 9: ", "'model.a_rather_long_name_of_a_module_which_fills'", "");
    refuse(path, (mha_load_options){.layer = "other", .n_heads = 2}, MHA_NOT_FOUND, "'other'", "'model.a_rather_long",
           "found no prefix");
}

/* A prefix that is a layer's own means that one, whatever stands under it. */
static void a_layer_is_chosen_before_those_inside_it(void **state)
{
    (void)state;
    loaded l;
    const char *path = file_of("", SQUARES("a.b.") ", " SQUARES("a.") ", " SQUARES("a.c."));
    refuse(path, (mha_load_options){.layer = "a", .n_heads = 2}, MHA_INVALID, ": a.b.q_proj.weight: ", "not known",
           "under 'a.'");
    assert_ok(load(&l, path, (mha_load_options){.layer = "a.c", .n_heads = 2}), l.error);
    assert_string_equal(l.report.layer.prefix, "a.c");
    unload(&l);

    /* a block's other tensors are none of its attention's */
    path = file_of("blk.0.", "attn_q.weight 4x4, attn_k.weight 4x4, attn_v.weight 4x4, attn_output.weight 4x4, "
                             "ffn_up.weight 8x4");
    assert_ok(load(&l, path, (mha_load_options){.n_heads = 2}), l.error);
    assert_int_equal(l.report.ignored, 0);
    unload(&l);
}

static void facts_fill_in_what_options_leave_open(void **state)
{
    (void)state;
    const char *path = two_layers();
    loaded l;
    const mha_model_facts facts = {.config.n_heads = 4, .config.kv_heads = 4},
                          wrong = {.config.n_heads = 2, .config.kv_heads = 2};
    const char *layer = "model.layers.1";
    assert_ok(load(&l, path, (mha_load_options){.layer = layer, .facts = &facts}), l.error);
    assert_int_equal(mha_layer_config(l.layer)->n_heads, 4);
    unload(&l);
    assert_ok(load(&l, path, (mha_load_options){.layer = layer, .facts = &wrong, .d_k = 1}), l.error);
    assert_int_equal(mha_layer_config(l.layer)->n_heads, 4);
    unload(&l);
    refuse(path, (mha_load_options){.layer = layer, .facts = &facts, .kv_heads = 2}, MHA_INVALID, "kv_heads", "found 2",
           "4 heads");

    mha_error error;
    mha_file *file;
    mha_params *table;
    mha_layer *none = NULL;
    assert_ok(mha_file_open(path, &file, &error), error);
    assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
    assert_refused(mha_model_load_layer(file, NULL, table, &none, NULL, &error), MHA_INVALID, error, "found 2");
    assert_null(none);
    mha_params_destroy(table);
    mha_file_close(file);
}

/* ---------------------------------------------------------------- copies */

typedef struct copies {
    size_t tied, others;
    char original[80];
} copies;

static void count_copies(void *context, const mha_finding *finding)
{
    copies *c = context;
    if (finding->kind != MHA_FINDING_TIED) {
        c->others++;
        return;
    }
    c->tied++;
    snprintf(c->original, sizeof c->original, "%s", finding->other);
}

static copies copies_in(const char *path)
{
    mha_file *file;
    mha_params *table;
    mha_error error;
    mha_file_totals totals;
    copies c = {0};
    assert_ok(mha_file_open(path, &file, &error), error);
    assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
    assert_ok(mha_file_list_params(file, table, count_copies, &c, &totals, &error), error);
    assert_int_equal(totals.tensors, mha_file_count(file));
    assert_int_equal(totals.unique != totals.parameters, c.tied > 0);
    mha_params_destroy(table);
    assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK); /* nobody listens */
    assert_ok(mha_file_list_params(file, table, NULL, NULL, NULL, &error), error);
    assert_int_equal(mha_params_count(table), mha_file_count(file));
    mha_params_destroy(table);
    mha_file_close(file);
    return c;
}

/* A copy has the name, the type, the shape and the bytes of its original. */
static void copies_are_told_by_name_place_and_bytes(void **state)
{
    (void)state;
    enum { LONG = 70000 }; /* more than 64 pieces of 4096 bytes */
    static float one[LONG], other[LONG];
    for (size_t i = 0; i < LONG; i++)
        one[i] = other[i] = (float)(i % 1000);
    other[11] = -1;
    const struct {
        const char *owner, *alias;
        mha_view view, copy;
        size_t tied;
    } rows[] = {
#define VIEW(data, dtype, rank, ...) mha_view_of(data, dtype, rank, (const size_t[]){__VA_ARGS__})
        {"model.embed_tokens.weight", "lm_head.weight", VIEW(one, MHA_F32, 2, 4, 3), VIEW(one, MHA_F32, 2, 4, 3), 1},
        {"model.embed_tokens.weight", "lm_head.weight", VIEW(one, MHA_F32, 1, LONG), VIEW(one, MHA_F32, 1, LONG), 1},
        {"model.embed_tokens.weight", "lm_head.weight", VIEW(one, MHA_F32, 2, 4, 3), VIEW(other, MHA_F32, 2, 4, 3), 0},
        {"model.embed_tokens.weight", "lm_head.weight", VIEW(one, MHA_F32, 2, 4, 3), VIEW(one, MHA_I32, 2, 4, 3), 0},
        {"model.embed_tokens.weight", "lm_head.weight", VIEW(one, MHA_F32, 2, 4, 3), VIEW(one, MHA_F32, 2, 3, 4), 0},
        {"model.embed_tokens.weight", "lm_head.weight", VIEW(one, MHA_F32, 2, 4, 3), VIEW(one, MHA_F32, 1, 12), 0},
        {"model.embed_tokens.weight", "lm_head.weight", VIEW(one, MHA_F32, 2, 0, 3), VIEW(one, MHA_F32, 2, 0, 3), 0},
        {"shared.weight", "encoder.embed_tokens.weight", VIEW(one, MHA_F32, 2, 4, 3), VIEW(one, MHA_F32, 2, 4, 3), 1},
        {"model.tokens.weight", "lm_head.weight", VIEW(one, MHA_F32, 2, 4, 3), VIEW(one, MHA_F32, 2, 4, 3), 0},
#undef VIEW
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mha_writer *writer;
        mha_error error;
        char path[512];
        snprintf(path, sizeof path, "%s", scratch_path("tied.safetensors"));
        assert_ok(mha_writer_create(path, &writer, &error), error);
        assert_ok(mha_writer_add(writer, rows[i].owner, &rows[i].view, &error), error);
        assert_ok(mha_writer_add(writer, rows[i].alias, &rows[i].copy, &error), error);
        assert_ok(mha_writer_commit(writer, &error), error);
        mha_writer_destroy(writer);
        const copies c = copies_in(path);
        if (c.tied != rows[i].tied || c.others != 0)
            fail_msg("row %zu: %zu tied, %zu others", i, c.tied, c.others);
        if (c.tied)
            assert_string_equal(c.original, rows[i].owner);
    }
}

/* Copies are looked for in the file, which may have become shorter since it was opened. */
static void a_file_that_shrinks_has_no_copies(void **state)
{
    (void)state;
    static float values[12];
    const mha_view view = mha_view_of(values, MHA_F32, 2, (const size_t[]){4, 3});
    for (int cut = 1; cut <= 2; cut++) { /* the second of the two, or both */
        mha_writer *writer;
        mha_file *file;
        mha_params *table;
        mha_error error;
        char path[512];
        snprintf(path, sizeof path, "%s", scratch_path("shrinks.safetensors"));
        assert_ok(mha_writer_create(path, &writer, &error), error);
        assert_ok(mha_writer_add(writer, "model.embed_tokens.weight", &view, &error), error);
        assert_ok(mha_writer_add(writer, "lm_head.weight", &view, &error), error);
        assert_ok(mha_writer_commit(writer, &error), error);
        mha_writer_destroy(writer);
        assert_ok(mha_file_open(path, &file, &error), error);
        assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
        size_t length;
        free(scratch_read(path, &length));
        assert_int_equal(truncate(path, (off_t)(length - (size_t)cut * sizeof values)), 0);
        assert_int_equal(mha_file_list_params(file, table, NULL, NULL, NULL, &error), MHA_IO);
        mha_params_destroy(table);
        mha_file_close(file);
    }
}

/* No more than 64 candidates are compared, so that a file of nothing else is listed as fast. */
static void copies_are_looked_for_in_few_places(void **state)
{
    (void)state;
    for (int enough = 0; enough < 2; enough++) {
        mha_writer *writer;
        mha_error error;
        char path[512], name[40];
        snprintf(path, sizeof path, "%s", scratch_path("many.safetensors"));
        assert_ok(mha_writer_create(path, &writer, &error), error);
        const int owners = enough ? 64 : 70;
        float values[71];
        for (int i = 0; i <= owners; i++) {
            values[i] = (float)(i < owners ? i : owners - 1); /* at the end a copy of the last */
            mha_view view = mha_view_of(&values[i], MHA_F32, 1, (const size_t[]){1});
            snprintf(name, sizeof name, "m%02d.%s", i, i < owners ? "embed_tokens.weight" : "lm_head.weight");
            assert_ok(mha_writer_add(writer, name, &view, &error), error);
        }
        assert_ok(mha_writer_commit(writer, &error), error);
        mha_writer_destroy(writer);
        assert_int_equal(copies_in(path).tied, enough);
    }
}

static mha_status load_layer(mha_params *table, const void *file, mha_error *error)
{
    mha_layer *layer = NULL;
    const mha_status status = mha_model_load_layer(file, &(mha_load_options){.n_heads = 2}, table, &layer, NULL, error);
    mha_layer_destroy(layer);
    return status;
}

static void every_failing_allocation_leaves_the_table_as_it_was(void **state)
{
    (void)state;
    const char *path = file_of("", "in_proj_weight 12x4, out_proj.weight 4x4");
    mha_file *file;
    mha_error error;
    assert_ok(mha_file_open(path, &file, &error), error);
    assert_true(counted_until_it_works(load_layer, file) >=
                4); /* at least one allocation per weight was made to fail */
    mha_file_close(file);
}

/* ---------------------------------------------------------------- running what was trained */

static double *read_all(const mha_file *file, const char *name, mha_dtype dtype, mha_view *view)
{
    mha_error error;
    const mha_file_tensor *tensor = mha_file_find(file, name);
    if (!tensor)
        fail_msg("no tensor %s in %s", name, mha_file_path(file));
    double *values = malloc(tensor->elements * sizeof *values);
    *view = mha_view_of(values, dtype, tensor->rank, tensor->shape);
    assert_ok(mha_file_read(file, tensor, view, &error), error);
    return values;
}

static double largest_difference(const double *found, const double *expected, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++) {
        double difference = fabs(found[i] - expected[i]);
        if (!(difference <= largest)) /* NaN counts */
            largest = difference;
    }
    return largest;
}

/* Runs a layer on the recorded input and compares weights and output with what was recorded. A recording of
 * one sequence has no batch extent. */
static void assert_recorded(const mha_layer *layer, const mha_file *inputs, const char *input, const mha_file *results,
                            const char *output, const char *weights, mha_semantics semantics, mha_path path,
                            double tolerance)
{
    mha_error error;
    mha_plan plan;
    mha_view x, expected_output, expected_weights;
    double *x_data = read_all(inputs, input, path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32, &x);
    double *o = read_all(results, output, MHA_F64, &expected_output);
    double *w = read_all(results, weights, MHA_F64, &expected_weights);
    if (x.rank == 2)
        x = mha_view_of(x_data, x.dtype, 3, (size_t[]){1, x.shape[0], x.shape[1]});
    mha_call call = {.query = x, .semantics = semantics, .path = path};
    assert_ok(mha_plan_call(layer, &call, &plan, &error), error);
    size_t n_o = mha_view_elements(&expected_output), n_w = mha_view_elements(&expected_weights);
    double *o_found = malloc(n_o * sizeof *o_found), *w_found = malloc(n_w * sizeof *w_found);
    call.output = stage_of_plan(&plan, MHA_STAGE_OUTPUT, o_found, MHA_F64);
    mha_keep list[MHA_STAGE_COUNT];
    stages_list(&call, list);
    *stage_view(&call, MHA_STAGE_WEIGHTS) = stage_of_plan(&plan, MHA_STAGE_WEIGHTS, w_found, MHA_F64);
    assert_int_equal(mha_view_elements(&call.output), n_o);
    assert_int_equal(mha_view_elements(stage_view(&call, MHA_STAGE_WEIGHTS)), n_w);
    assert_ok(mha_plan_call(layer, &call, &plan, &error), error);
    void *workspace = malloc(plan.workspace_bytes + 1);
    assert_ok(mha_forward(&plan, workspace, plan.workspace_bytes, &error), error);
    double difference_o = largest_difference(o_found, o, n_o), difference_w = largest_difference(w_found, w, n_w);
    if (difference_o > tolerance || difference_w > tolerance)
        fail_msg("%s: output off by %g, weights by %g, tolerance %g", output, difference_o, difference_w, tolerance);
    free(workspace);
    free(o_found);
    free(w_found);
    free(x_data);
    free(o);
    free(w);
}

/* A causal layer again, with a cache: a prefill of `prefill` rows, then one token at a time. */
static void assert_decodes(const mha_layer *layer, const mha_file *recorded, const char *input, const char *output,
                           mha_semantics semantics, mha_path path, size_t prefill, double tolerance)
{
    mha_error error;
    mha_cache *cache;
    mha_view rows, expected;
    mha_dtype dtype = path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32;
    double *x = read_all(recorded, input, dtype, &rows), *e = read_all(recorded, output, MHA_F64, &expected);
    rows = mha_view_of(x, dtype, 3, (size_t[]){1, rows.shape[rows.rank - 2], rows.shape[rows.rank - 1]});
    size_t T = rows.shape[1], width = mha_view_elements(&expected) / T;
    const mha_config *c = mha_layer_config(layer);
    mha_cache_spec spec = {
        .batch = 1, .kv_heads = c->kv_heads, .d_k = c->d_k, .d_v = c->d_v, .capacity = T, .dtype = dtype};
    assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
    double *found = malloc(T * width * sizeof *found);
    for (size_t t = 0, n = prefill; t < T; t += n, n = 1) {
        mha_call call = {.query = mha_view_slice(&rows, 1, t, n), .semantics = semantics, .path = path, .cache = cache};
        call.output = mha_view_of(found + t * width, MHA_F64, 3, (size_t[]){1, n, width});
        run_call(layer, &call);
    }
    assert_int_equal(mha_cache_length(cache), T);
    double difference = largest_difference(found, e, T * width);
    if (difference > tolerance)
        fail_msg("%s, decoded after %zu rows: off by %g, tolerance %g", output, prefill, difference, tolerance);
    mha_cache_destroy(cache);
    free(found);
    free(x);
    free(e);
}

/* Both sides compute in float64 from the same float32 numbers: sums of at most 256 products below 10 in
 * size, so 256 * 10 * 2^-53 < 3e-13. */
static const double exact_tolerance = 1e-12;
/* The float32 path: the same sums, 256 * 10 * 2^-24 at worst; roundings do not line up, a tenth is plenty. */
static const double float_tolerance = 2e-5;

static void our_own_checkpoint_gives_what_was_recorded(void **state)
{
    (void)state;
    mha_model_facts facts;
    mha_error error;
    loaded l;
    mha_file *recorded;
    assert_ok(mha_model_read_config("weights/lookup/config.json", &facts, &error), error);
    assert_true(facts.has_semantics && facts.semantics.visible.causal);
    assert_int_equal(facts.config.n_heads, 6);
    assert_ok(load(&l, "weights/lookup/model.safetensors", (mha_load_options){.facts = &facts}), l.error);
    assert_ok(mha_file_open("weights/lookup/recorded.safetensors", &recorded, &error), error);
    mha_semantics semantics = {.visible.causal = facts.semantics.visible.causal};
    assert_recorded(l.layer, recorded, "input", recorded, "output64", "weights64", semantics, MHA_PATH_EXACT,
                    exact_tolerance);
    assert_recorded(l.layer, recorded, "input", recorded, "output", "weights", semantics, MHA_PATH_BLAS,
                    float_tolerance);
    mha_file_close(recorded);
    unload(&l);
}

/* Two layers in one file, each recorded on the input that it had. */
static void our_own_two_layers_give_what_was_recorded(void **state)
{
    (void)state;
    mha_model_facts facts;
    mha_error error;
    mha_file *recorded;
    assert_ok(mha_model_read_config("weights/induction/config.json", &facts, &error), error);
    assert_ok(mha_file_open("weights/induction/recorded.safetensors", &recorded, &error), error);
    for (int i = 0; i < 2; i++) {
        loaded l;
        char names[4][32];
        static const char *const parts[] = {"self_attn", "input", "output", "weights"};
        for (int k = 0; k < 4; k++)
            snprintf(names[k], sizeof names[k], "layers.%d.%s", i, parts[k]);
        assert_ok(load(&l, "weights/induction/model.safetensors",
                       (mha_load_options){.facts = &facts, .layer = names[0]}),
                  l.error);
        assert_recorded(l.layer, recorded, names[1], recorded, names[2], names[3],
                        (mha_semantics){.visible.causal = true}, MHA_PATH_EXACT, exact_tolerance);
        unload(&l);
    }
    mha_file_close(recorded);
}

static const char *model_path(const char *name)
{
    static char path[4][600];
    static int next;
    const char *directory = getenv("MODELS_DIR");
    if (!directory || !*directory)
        skip_because("MODELS_DIR names no folder of trained models");
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", directory, name);
    return path[next];
}

typedef struct run {
    const char *model, *layer, *activations; /* layer: with %d for the number */
    int layers[6];                           /* ends with -1 */
    mha_load_options options;
    mha_semantics semantics;
    bool decodes; /* one sequence, causal: the cache gives the same rows */
} run;

static void assert_runs(const run *r)
{
    for (int i = 0; r->layers[i] >= 0; i++) {
        char layer[100], input[100], output[100], weights[100];
        loaded l;
        mha_file *recorded;
        mha_error error;
        mha_load_options options = r->options;
        if (r->layer) {
            char *to = layer;
            const char *at = strstr(r->layer, "%d");
            to += snprintf(to, sizeof layer, "%.*s", (int)(at - r->layer), r->layer);
            snprintf(to, 50, "%d%s", r->layers[i], at + 2);
            options.layer = layer;
        }
        snprintf(input, sizeof input, "layer.%d.attn_input", r->layers[i]);
        snprintf(output, sizeof output, "layer.%d.attn_output", r->layers[i]);
        snprintf(weights, sizeof weights, "layer.%d.probs", r->layers[i]);
        assert_ok(load(&l, model_path(r->model), options), l.error);
        assert_ok(mha_file_open(model_path(r->activations), &recorded, &error), error);
        assert_recorded(l.layer, recorded, input, recorded, output, weights, r->semantics, MHA_PATH_EXACT,
                        exact_tolerance);
        for (mha_path path = MHA_PATH_FAST; path < MHA_PATH_EXACT; path++)
            assert_recorded(l.layer, recorded, input, recorded, output, weights, r->semantics, path, float_tolerance);
        for (mha_path path = MHA_PATH_FAST; path <= MHA_PATH_EXACT && r->decodes; path++)
            for (size_t prefill = 1; prefill < 20; prefill += 9)
                assert_decodes(l.layer, recorded, input, output, r->semantics, path, prefill,
                               path == MHA_PATH_EXACT ? exact_tolerance : float_tolerance);
        mha_file_close(recorded);
        unload(&l);
    }
}

static void gpt_nano_sort_in_both_orientations(void **state)
{
    (void)state;
    assert_runs(&(run){"gpt-nano-sort/model.safetensors",
                       "transformer.h.%d",
                       "gpt-nano-sort/activations_f64.safetensors",
                       {0, 1, 2, -1},
                       {.n_heads = 3},
                       {.visible.causal = true},
                       false});
    assert_runs(&(run){"gpt-nano-sort/model.conv1d-layout.safetensors",
                       "h.%d.attn",
                       "gpt-nano-sort/activations_f64.safetensors",
                       {0, 1, 2, -1},
                       {.n_heads = 3},
                       {.visible.causal = true},
                       false});
}

static void rxnmapper_albert_under_both_names(void **state)
{
    (void)state;
    assert_runs(&(run){"rxnmapper-albert/model.safetensors",
                       NULL,
                       "rxnmapper-albert/activations_single_f64.safetensors",
                       {0, 10, 11, -1},
                       {.n_heads = 8},
                       {.place = {0}},
                       false});
    assert_runs(&(run){"rxnmapper-albert/shared-layer.bert-names.safetensors",
                       NULL,
                       "rxnmapper-albert/activations_single_f64.safetensors",
                       {0, 10, 11, -1},
                       {.n_heads = 8},
                       {.place = {0}},
                       false});
    mha_model_facts facts;
    mha_error error;
    assert_ok(mha_model_read_config(model_path("rxnmapper-albert/config.json"), &facts, &error), error);
    assert_int_equal(facts.config.n_heads, 8);
    assert_false(facts.semantics.visible.causal);
    assert_string_equal(facts.model_type, "albert");
}

static void stories260k_in_both_pairings(void **state)
{
    (void)state;
    assert_runs(&(run){"stories260k/stories260K.hf-layout.safetensors",
                       "model.layers.%d",
                       "stories260k/activations_short_f64.safetensors",
                       {0, 1, 2, 3, 4, -1},
                       {.n_heads = 8},
                       {.visible.causal = true, .qkv.rope = {.kind = MHA_ROPE_HALF_SPLIT}},
                       true});
    /* GGUF says in its metadata how many heads there are. */
    assert_runs(&(run){"stories260k-gguf/stories260K.gguf",
                       "blk.%d",
                       "stories260k/activations_short_f64.safetensors",
                       {0, 1, 2, 3, 4, -1},
                       {0},
                       {.visible.causal = true, .qkv.rope = {.kind = MHA_ROPE_INTERLEAVED}},
                       true});
    mha_file *file;
    mha_error error;
    mha_model_facts facts;
    assert_ok(mha_file_open(model_path("stories260k-gguf/stories260K.gguf"), &file, &error), error);
    assert_ok(mha_model_read_metadata(file, NULL, &facts, &error), error);
    assert_int_equal(facts.config.kv_heads, 4);
    assert_int_equal(facts.semantics.qkv.rope.kind, MHA_ROPE_INTERLEAVED);
    mha_file_close(file);
}

static void tiny_bert_weights_equal_direct_reads(void **state)
{
    (void)state;
    loaded l;
    mha_model_facts facts;
    mha_error error;
    assert_ok(mha_model_read_config(model_path("loader-tiny-bert/config.json"), &facts, &error), error);
    assert_ok(load(&l, model_path("loader-tiny-bert/model.safetensors"),
                   (mha_load_options){.layer = "encoder.layer.1.", .facts = &facts}),
              l.error);
    assert_int_equal(mha_layer_config(l.layer)->n_heads, 4);
    assert_weight(&l, MHA_W_K, "encoder.layer.1.attention.self.key.weight", true, 0);
    assert_weight(&l, MHA_W_O, "encoder.layer.1.attention.output.dense.weight", true, 0);
    assert_weight(&l, MHA_B_O, "encoder.layer.1.attention.output.dense.bias", false, 0);
    assert_int_equal(l.report.ignored, 2);
    unload(&l);
}

/* A list of other names ends with NULL, so none may be full; every scheme names the four matrices. */
static void every_scheme_is_complete(void **state)
{
    (void)state;
    size_t schemes = 0;
    for (const mha__scheme *scheme; (scheme = mha__scheme_at(schemes)); schemes++) {
        assert_true(*scheme->name && scheme->names[MHA_W_Q] && scheme->names[MHA_W_O]);
        assert_null(scheme->others[MHA_SCHEME_OTHERS - 1]);
    }
    assert_true(schemes > 10);
}

/* One test: where there are no trained models, one is skipped. */
static void trained_models_give_what_was_recorded(void **state)
{
    gpt_nano_sort_in_both_orientations(state);
    rxnmapper_albert_under_both_names(state);
    stories260k_in_both_pairings(state);
    tiny_bert_weights_equal_direct_reads(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scheme_is_complete),
        cmocka_unit_test(every_scheme_loads_each_weight_where_it_belongs),
        cmocka_unit_test(fused_weights_are_cut_into_query_key_and_value),
        cmocka_unit_test(a_fused_matrix_can_share_key_heads),
        cmocka_unit_test(heads_of_a_fused_matrix_lie_as_the_configuration_says),
        cmocka_unit_test(a_gate_lies_among_the_queries_or_apart),
        cmocka_unit_test(linear_attention_is_refused_by_name),
        cmocka_unit_test(norms_of_heads_may_have_tensors_of_their_own),
        cmocka_unit_test(heads_of_a_fused_matrix_are_not_guessed),
        cmocka_unit_test(a_square_fused_matrix_needs_the_orientation_stated),
        cmocka_unit_test(extras_and_norms_follow_their_shapes),
        cmocka_unit_test(learned_key_and_value_rows_come_as_pytorch_stores_them),
        cmocka_unit_test(narrow_weights_are_widened_and_say_where_from),
        cmocka_unit_test(a_prefix_chooses_the_layer),
        cmocka_unit_test(heads_must_be_stated_and_fit),
        cmocka_unit_test(what_is_missing_wrong_or_unknown_is_named),
        cmocka_unit_test(widths_that_heads_cannot_share_are_refused),
        cmocka_unit_test(a_fused_matrix_without_biases_tells_its_orientation_by_thirds),
        cmocka_unit_test(heads_that_cannot_be_do_not_cut_a_fused_matrix),
        cmocka_unit_test(learned_rows_of_another_shape_are_refused),
        cmocka_unit_test(many_layers_are_named_as_far_as_they_fit),
        cmocka_unit_test(a_layer_is_chosen_before_those_inside_it),
        cmocka_unit_test(facts_fill_in_what_options_leave_open),
        cmocka_unit_test(copies_are_told_by_name_place_and_bytes),
        cmocka_unit_test(a_file_that_shrinks_has_no_copies),
        cmocka_unit_test(copies_are_looked_for_in_few_places),
        cmocka_unit_test(every_failing_allocation_leaves_the_table_as_it_was),
        cmocka_unit_test(our_own_checkpoint_gives_what_was_recorded),
        cmocka_unit_test(our_own_two_layers_give_what_was_recorded),
        cmocka_unit_test(trained_models_give_what_was_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
