/* Layers with latents under the names of GGUF, W_KVB in one tensor or in two: files put together here from recorded
 * layers give the same weights, and their metadata the same semantics. */
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "mha/model.h"
#include "support/gguf.h"
#include "support/program.h"
#include "support/built.h"
#include "support/scratch.h"

#define PREFIX "model.layers.0.self_attn"
/* ---------------------------------------------------------------- from a recorded layer */

static const struct {
    const char *theirs, *ours;
} names[] = {{"q_proj.weight", "blk.0.attn_q.weight"},
             {"q_a_proj.weight", "blk.0.attn_q_a.weight"},
             {"q_a_layernorm.weight", "blk.0.attn_q_a_norm.weight"},
             {"q_b_proj.weight", "blk.0.attn_q_b.weight"},
             {"kv_a_proj_with_mqa.weight", "blk.0.attn_kv_a_mqa.weight"},
             {"kv_a_layernorm.weight", "blk.0.attn_kv_a_norm.weight"},
             {"kv_b_proj.weight", "blk.0.attn_kv_b.weight"},
             {"o_proj.weight", "blk.0.attn_output.weight"}};

/* kv_b, (h (d_n + d_v), rank), as llama.cpp's converter takes it apart. */
static void add_halves(gguf_plan *p, const mha_config *c, const float *kv_b)
{
    const size_t h = c->n_heads, d_n = c->d_k - c->d_rope, d_v = c->d_v, rank = c->kv_rank;
    float *keys = malloc(h * rank * d_n * sizeof *keys), *values = malloc(h * d_v * rank * sizeof *values);
    for (size_t head = 0; head < h; head++)
        for (size_t r = 0; r < rank; r++) {
            for (size_t i = 0; i < d_n; i++)
                keys[(head * rank + r) * d_n + i] = kv_b[(head * (d_n + d_v) + i) * rank + r];
            for (size_t j = 0; j < d_v; j++)
                values[(head * d_v + j) * rank + r] = kv_b[(head * (d_n + d_v) + d_n + j) * rank + r];
        }
    gguf_add(p, "blk.0.attn_k_b.weight", 3, (const size_t[]){h, rank, d_n}, keys);
    gguf_add(p, "blk.0.attn_v_b.weight", 3, (const size_t[]){h, d_v, rank}, values);
}

static void add_weights(gguf_plan *p, const mha_file *file, const mha_config *c, bool halves)
{
    mha_error error;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[200];
        snprintf(name, sizeof name, PREFIX ".%s", names[i].theirs);
        const mha_file_tensor *tensor = mha_file_find(file, name);
        if (!tensor)
            continue;
        float *values = malloc(tensor->elements * sizeof *values);
        const mha_view view = mha_view_of(values, MHA_F32, tensor->rank, tensor->shape);
        assert_ok(mha_file_read(file, tensor, &view, &error), error);
        if (halves && strstr(names[i].theirs, "kv_b")) {
            add_halves(p, c, values);
            free(values);
        } else
            gguf_add(p, names[i].ours, tensor->rank, tensor->shape, values);
    }
}

static void add_metadata(gguf_plan *p, const mha_config *c, const mha_model_facts *facts, bool halves)
{
    gguf_text(p, "general.architecture", "deepseek2");
    gguf_count(p, "deepseek2.embedding_length", c->d_model);
    gguf_count(p, "deepseek2.attention.head_count", c->n_heads);
    gguf_count(p, "deepseek2.attention.head_count_kv", halves ? 1 : c->n_heads);
    gguf_count(p, "deepseek2.attention.key_length", halves ? c->kv_rank + c->d_rope : c->d_k);
    if (halves)
        gguf_count(p, "deepseek2.attention.key_length_mla", c->d_k);
    gguf_count(p, "deepseek2.attention.kv_lora_rank", c->kv_rank);
    gguf_real(p, "deepseek2.attention.layer_norm_rms_epsilon", facts->semantics.qkv.norm_eps);
    gguf_count(p, "deepseek2.rope.dimension_count", c->d_rope);
    gguf_real(p, "deepseek2.rope.freq_base", facts->semantics.qkv.rope.base);
    const mha_rope_scaling *s = &facts->rope_scaling;
    if (s->kind == MHA_ROPE_UNSCALED)
        return;
    gguf_text(p, "deepseek2.rope.scaling.type", "yarn");
    gguf_real(p, "deepseek2.rope.scaling.factor", s->factor);
    gguf_count(p, "deepseek2.rope.scaling.original_context_length", (size_t)s->original_length);
    gguf_real(p, "deepseek2.rope.scaling.yarn_log_multiplier", 0.1 * s->mscale_all_dim);
}

/* The recorded layer of a name, and what its configuration says. */
static mha_layer *open_recorded(const char *name, mha_file **file, mha_model_facts *facts)
{
    char path[100];
    mha_error error;
    mha_layer *layer;
    snprintf(path, sizeof path, "tests/layers/%s.safetensors", name);
    assert_ok(mha_file_open(path, file, &error), error);
    const char *text = mha_file_metadata(*file, "config");
    const char *config = config_file(text);
    assert_ok(mha_model_read_layer(config, PREFIX, facts, &error), error);
    const mha_load_options options = {.layer = PREFIX, .facts = facts};
    assert_ok(mha_model_load_layer(*file, &options, NULL, &layer, NULL, &error), error);
    return layer;
}

static void same_weights(const mha_layer *a, const mha_layer *b)
{
    for (mha_weight w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_tensor *x = mha_layer_weight(a, w), *y = mha_layer_weight(b, w);
        assert_true(!x == !y);
        if (!x)
            continue;
        const mha_view u = mha_tensor_view(x), v = mha_tensor_view(y);
        assert_true(u.rank == v.rank && u.shape[0] == v.shape[0] && (u.rank < 2 || u.shape[1] == v.shape[1]));
        assert_memory_equal(u.data, v.data, mha_view_elements(&u) * sizeof(float));
    }
}

static void same_semantics(const mha_model_facts *found, const mha_model_facts *meant)
{
    const double u = 0x1p-23; /* the scale holds a number of the metadata, an F32, twice: m^2 */
    const mha_semantics *a = &found->semantics, *b = &meant->semantics;
    assert_string_equal(found->not_run, "");
    assert_true(found->has_semantics && a->visible.causal && a->qkv.rope.kind == b->qkv.rope.kind && a->qkv.rope.last);
    assert_true(a->qkv.rope.dim == b->qkv.rope.dim && found->config.d_k == meant->config.d_k &&
                found->config.n_heads == meant->config.n_heads);
    assert_true(a->softmax.has_scale == b->softmax.has_scale &&
                fabs(a->softmax.scale - b->softmax.scale) <= u * b->softmax.scale);
    assert_true(fabs(a->qkv.norm_eps - b->qkv.norm_eps) <= u * b->qkv.norm_eps);
    assert_int_equal(found->rope_scaling.kind, meant->rope_scaling.kind);
    for (size_t i = 0; i < a->qkv.rope.dim / 2 && found->rope_scaling.kind != MHA_ROPE_UNSCALED; i++)
        assert_true(found->rope_frequencies[i] == meant->rope_frequencies[i]);
    assert_true(a->qkv.rope.attention_factor == b->qkv.rope.attention_factor);
}

/* The same bits, from the same numbers. */
static void same_outputs(const mha_layer *a, const mha_model_facts *of_a, const mha_layer *b,
                         const mha_model_facts *of_b)
{
    static float x[5 * 16];
    double output[2][5 * 16];
    const mha_view input = mha_rows(x, 1, 5, 16);
    mha_random_fill(&input, 3, 0, -1.0f, 1.0f);
    for (int i = 0; i < 2; i++) {
        mha_error error;
        const mha_call call = {.query = input, .output = mha_view_of(output[i], MHA_F64, 3, (size_t[]){1, 5, 16}),
                               .path = MHA_PATH_EXACT, .semantics = mha_model_semantics(i ? of_b : of_a)};
        assert_ok(mha_run(i ? b : a, &call, &error), error);
    }
    assert_memory_equal(output[0], output[1], sizeof output[0]);
}

/* The program knows the names of both, and that their rows are in one order; halves have no like. */
static void compares(const char *gguf, const char *recorded, size_t alone)
{
    json_t *root = RUN_JSON(1, "compare", gguf, recorded, "--json"), *tensors = json_object_get(root, "tensors");
    size_t i, unequal = 0, known = 0;
    json_t *tensor;
    json_array_foreach(tensors, i, tensor)
    {
        const bool block = strncmp(json_string_value(json_object_get(tensor, "name")), "blk.", 4) == 0;
        known += block;
        unequal += block && !json_is_true(json_object_get(tensor, "equal"));
    }
    assert_true(known >= 5 && unequal == alone);
    json_decref(root);
}

static void latents_have_names_of_gguf(void **state)
{
    (void)state;
    static const char *const recorded[] = {"deepseek_v2-lite", "deepseek_v3"};
    for (size_t i = 0; i < 4; i++) {
        const bool halves = i % 2;
        mha_file *from, *to;
        mha_error error;
        mha_model_facts facts, found;
        mha_found_layer layer;
        mha_load_report report;
        mha_file_totals totals;
        mha_params *table;
        mha_layer *right = open_recorded(recorded[i / 2], &from, &facts), *made;
        const mha_config *c = mha_layer_config(right);
        gguf_plan p = {.count = 0};
        add_metadata(&p, c, &facts, halves);
        add_weights(&p, from, c, halves);
        to = gguf_open(&p);
        compares(mha_file_path(to), mha_file_path(from), halves ? 2 : 0);
        assert_int_equal(mha_model_find_layers(to, &layer, 1), 1);
        assert_string_equal(layer.prefix, "blk.0");
        assert_ok(mha_model_read_metadata(to, NULL, &found, &error), error);
        same_semantics(&found, &facts);
        assert_ok(mha_model_load_layer(to, NULL, NULL, &made, &report, &error), error);
        assert_int_equal(report.tensors, p.count);
        assert_int_equal(report.ignored, 0);
        same_weights(made, right);
        found.semantics.softmax.scale = facts.semantics.softmax.scale; /* of more digits than an F32 */
        found.semantics.qkv.norm_eps = facts.semantics.qkv.norm_eps;
        same_outputs(made, &found, right, &facts);
        assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
        assert_ok(mha_file_list_params(to, table, NULL, NULL, &totals, &error), error);
        assert_int_equal(totals.attention, totals.parameters);
        assert_int_equal(totals.parameters, mha_params_totals(mha_layer_params(right), NULL).parameters);
        mha_params_destroy(table);
        mha_layer_destroy(made);
        mha_layer_destroy(right);
        mha_file_close(to);
        mha_file_close(from);
        gguf_free(&p);
    }
}

/* One half is missing, or has another shape. */
static void halves_that_do_not_fit_are_named(void **state)
{
    (void)state;
    for (int fault = 0; fault < 4; fault++) {
        mha_file *from, *to;
        mha_error error;
        mha_model_facts facts;
        mha_layer *right = open_recorded("deepseek_v3", &from, &facts), *made = NULL;
        gguf_plan p = {.count = 0};
        add_metadata(&p, mha_layer_config(right), &facts, true);
        add_weights(&p, from, mha_layer_config(right), true);
        for (size_t i = 0; i < p.count; i++) {
            gguf_tensor *t = &p.tensors[i];
            const bool keys = strstr(t->name, "attn_k_b") != NULL, values = strstr(t->name, "attn_v_b") != NULL;
            const size_t first = t->shape[1];
            if (fault == 0 && values)
                t->name = "blk.0.ffn_norm.weight";
            if ((fault == 1 && keys) || (fault == 2 && values))
                t->shape[1] = t->shape[2], t->shape[2] = first;
            if (fault == 3 && values) /* one feature more for all heads than its latent has */
                t->rank = 2, t->shape[0] *= first, t->shape[1] = t->shape[2];
        }
        to = gguf_open(&p);
        const mha_status status = mha_model_load_layer(to, NULL, NULL, &made, NULL, &error);
        static const char *const where[] = {"attn_kv_b", "attn_k_b", "attn_v_b", "attn_"};
        assert_refused(status, fault == 0 ? MHA_NOT_FOUND : MHA_INVALID, error, where[fault]);
        mha_layer_destroy(right);
        mha_file_close(to);
        mha_file_close(from);
        gguf_free(&p);
    }
}

/* ---------------------------------------------------------------- how rotations are stretched */

static mha_model_facts llama_with(const char *type, double factor, size_t factors, const char *also)
{
    gguf_plan p = {.count = 0};
    mha_error error;
    mha_model_facts facts;
    gguf_text(&p, "general.architecture", "llama");
    gguf_count(&p, "llama.embedding_length", 16);
    gguf_count(&p, "llama.attention.head_count", 2);
    gguf_count(&p, "llama.rope.dimension_count", 8);
    if (type) {
        gguf_text(&p, "llama.rope.scaling.type", type);
        gguf_real(&p, "llama.rope.scaling.factor", factor);
        gguf_count(&p, "llama.rope.scaling.original_context_length", 64);
    }
    if (also)
        gguf_real(&p, also, 0.5);
    if (factors) {
        float *values = malloc(factors * sizeof *values);
        for (size_t i = 0; i < factors; i++)
            values[i] = (float)(i + 1);
        gguf_add(&p, "rope_freqs.weight", 1, &factors, values);
    }
    mha_file *file = gguf_open(&p);
    assert_ok(mha_model_read_metadata(file, NULL, &facts, &error), error);
    mha_file_close(file);
    gguf_free(&p);
    return facts;
}

static void scalings_of_gguf_are_obeyed_or_named(void **state)
{
    (void)state;
    mha_model_facts facts = llama_with("none", 4, 0, NULL);
    assert_true(facts.rope_scaling.kind == MHA_ROPE_UNSCALED && !*facts.not_run);
    facts = llama_with("linear", 4, 0, NULL);
    assert_true(facts.rope_scaling.kind == MHA_ROPE_LINEAR && !*facts.not_run &&
                facts.semantics.qkv.rope.attention_factor == 1);
    assert_true(facts.rope_frequencies[0] == 0.25);
    facts = llama_with("yarn", 4, 0, NULL);
    double frequencies[4], times;
    const mha_rope_scaling yarn = {.kind = MHA_ROPE_YARN, .factor = 4, .original_length = 64};
    assert_int_equal(mha_rope_frequencies(&yarn, 8, 10000, 0, frequencies, &times, NULL), MHA_OK);
    assert_memory_equal(frequencies, facts.rope_frequencies, sizeof frequencies);
    assert_true(facts.semantics.qkv.rope.attention_factor == times && times > 1);
    facts = llama_with(NULL, 0, 4, NULL);
    for (size_t i = 0; i < 4; i++)
        if (!(fabs(facts.rope_frequencies[i] * (double)(i + 1) - pow(10000, -(double)i / 4)) < 0x1p-50))
            fail_msg("%zu: %g '%s'", i, facts.rope_frequencies[i], facts.not_run);
    assert_true(facts.semantics.qkv.rope.attention_factor == 1 && !*facts.not_run);
    assert_non_null(strstr(llama_with("spiral", 4, 0, NULL).not_run, "rope.scaling.type: expected"));
    assert_non_null(strstr(llama_with("linear", 0.5, 0, NULL).not_run, "factor"));
    assert_non_null(strstr(llama_with("yarn", 4, 4, NULL).not_run, "rope_freqs.weight: expected"));
    assert_non_null(strstr(llama_with(NULL, 0, 3, NULL).not_run, "rope_freqs.weight: expected"));
    assert_non_null(strstr(llama_with("linear", 4, 0, "llama.rope.scaling.attn_factor").not_run, "attn_factor"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latents_have_names_of_gguf),
        cmocka_unit_test(halves_that_do_not_fit_are_named),
        cmocka_unit_test(scalings_of_gguf_are_obeyed_or_named),
    };
    return cmocka_run_group_tests_name("GGUF with latents", tests, NULL, NULL);
}
