/* mha forward: what it prints, what it writes, which requests it refuses. */
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mha/mha.h"
#include "support/program.h"
#include "support/unit.h"

/* ---------------------------------------------------------------- files */

static void write_tensor(const char *path, const char *name, const mha_view *view)
{
    mha_writer *writer;
    mha_error error;
    assert_ok(mha_writer_create(path, &writer, &error), error);
    assert_ok(mha_writer_add(writer, name, view, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
}

/* Random numbers under `path`, as the program itself would draw them for this stream. */
static const char *random_file(const char *name, uint64_t stream, int rank, const size_t *shape)
{
    const char *path = scratch(name);
    mha_view view = mha_view_of(NULL, MHA_F32, rank, shape);
    view.data = calloc(mha_view_elements(&view), sizeof(float));
    mha_random_fill(&view, 0, stream, -1.7320508f, 1.7320508f);
    write_tensor(path, "x", &view);
    free(view.data);
    return path;
}

/* Reads a file's only tensor, or the one called `name`, as float64. To be freed. */
static double *read_tensor(const char *path, const char *name, mha_file_tensor *about)
{
    mha_file *file;
    mha_error error;
    assert_ok(mha_file_open(path, &file, &error), error);
    const mha_file_tensor *t = name ? mha_file_find(file, name) : mha_file_at(file, 0);
    assert_non_null(t);
    double *data = calloc(t->elements, sizeof *data);
    mha_view view = mha_view_of(data, MHA_F64, t->rank, t->shape);
    assert_ok(mha_file_read(file, t, &view, &error), error);
    *about = *t;
    about->name = "";
    mha_file_close(file);
    return data;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* ---------------------------------------------------------------- what it says */

#define SMALL "--d-model", "24", "--heads", "4", "--seq", "6"

static void test_json_has_the_promised_keys(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "forward", "--json", "--seed", "7");
    assert_keys(root, "config,path,threads,parameters,stages,total_ms,gflops,output");
    assert_keys(json_object_get(root, "config"), "d_model,heads,kv_heads,d_k,d_v,batch,seq,kv_seq,scale,seed,causal");
    assert_keys(json_object_get(root, "parameters"),
                "total_parameters,attention_parameters,total_bytes,buffer_elements,storages");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "parameters"), "total_parameters")),
                     2362368);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "parameters"), "storages")),
                     8); /* packed or not */
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "config"), "seed")), 7);
    json_t *output = json_object_get(root, "output"), *stages = json_object_get(root, "stages"), *stage;
    assert_keys(output, "shape,mean,rms,max_abs,finite");
    assert_true(json_is_true(json_object_get(output, "finite")));
    assert_int_equal(json_integer_value(json_array_get(json_object_get(output, "shape"), 1)), 128);
    size_t i, last = json_array_size(stages) - 1;
    double timed = 0;
    json_array_foreach(stages, i, stage)
    {
        assert_keys(stage, "name,shape,ms");
        timed += json_number_value(json_object_get(stage, "ms"));
    }
    assert_string_equal(json_string_value(json_object_get(json_array_get(stages, 0), "name")), "q");
    assert_string_equal(json_string_value(json_object_get(json_array_get(stages, last), "name")), "output");
    assert_true(timed > 0 && timed <= json_real_value(json_object_get(root, "total_ms")));
    json_decref(root);
}

/* Threads cut the same sums in the same places on the exact path; the statistics printed are equal bits.
 * On the others SGEMM may add in another order: an output element near 1 is a sum of 768 products, each
 * rounded, so 768 * 2^-24 < 1e-4 of it bounds what may move, and a mean or rms moves no more. */
static void test_threads_do_not_change_the_answer(void **state)
{
    (void)state;
    static const char *const keys[] = {"mean", "rms", "max_abs"};
    for (int exact = 0; exact < 2; exact++) {
        const char *path = exact ? "exact" : "auto", *seq = exact ? "8" : "128";
        json_t *one = RUN_JSON(0, "forward", "--seed", "7", "--json", "--path", path, "--seq", seq, "--threads", "1");
        json_t *two = RUN_JSON(0, "forward", "--seed", "7", "--json", "--path", path, "--seq", seq, "--threads", "2");
        assert_int_equal(json_integer_value(json_object_get(one, "threads")), 1);
        for (size_t i = 0; i < 3; i++) {
            double a = json_real_value(json_object_get(json_object_get(one, "output"), keys[i]));
            double b = json_real_value(json_object_get(json_object_get(two, "output"), keys[i]));
            assert_true(isfinite(a) && a != 0);
            if (exact)
                assert_true(a == b);
            else
                assert_true(fabs(a - b) <= 1e-4);
        }
        json_decref(one);
        json_decref(two);
    }
}

static void test_text_tells_the_whole_story(void **state)
{
    (void)state;
    program_result r = RUN("forward");
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    static const char *const parts[] = {"Configuration", "12 heads x d_k 64", "Parameters",
                                        "W_Q",           "2,362,368 parameters", "Stages",
                                        "(1, 12, 128, 128)", "GFLOP/s",        "Output (1, 128, 768)",
                                        "all finite",    "What head 0 looks at", "seed 0"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(r.out, parts[i]))
            fail_msg("forward does not show \"%s\"", parts[i]);
    assert_null(strstr(r.out, " \n"));
    program_free(&r);
    r = RUN("forward", "--causal", SMALL);
    assert_non_null(strstr(r.out, "query     0  looks at key 0 (100.0 %)\n"));
    assert_non_null(strstr( /* nothing to the right of the diagonal */
        r.out,
        "      0 |@@          | |@@          | |@@          | |@@          |\n"));
    program_free(&r);
    r = RUN("forward", "--quiet", SMALL);
    assert_int_equal(r.code + (int)r.out_size, 0);
    program_free(&r);
}

/* ---------------------------------------------------------------- what it writes */

static void test_output_and_trace_hold_the_same_numbers(void **state)
{
    (void)state;
    const char *npy = scratch("out.npy"), *safe = scratch("out.safetensors"), *trace = scratch("trace.safetensors");
    mha_file_tensor a, b, c;
    program_result r = RUN("forward", SMALL, "--batch", "2", "--output", npy, "--quiet");
    assert_int_equal(r.code, 0);
    program_free(&r);
    r = RUN("forward", SMALL, "--batch", "2", "--output", safe, "--trace", trace, "--quiet");
    assert_int_equal(r.code, 0);
    program_free(&r);
    double *x = read_tensor(npy, NULL, &a), *y = read_tensor(safe, "output", &b), *z = read_tensor(trace, "output", &c);
    assert_int_equal(a.dtype, MHA_F32);
    assert_int_equal(a.rank, 3);
    assert_memory_equal(a.shape, ((size_t[]){2, 6, 24}), 3 * sizeof(size_t));
    assert_memory_equal(x, y, a.elements * sizeof *x);
    assert_memory_equal(x, z, a.elements * sizeof *x);
    free(x), free(y), free(z);
    x = read_tensor(trace, "weights", &a);
    assert_memory_equal(a.shape, ((size_t[]){2, 4, 6, 6}), 4 * sizeof(size_t));
    for (size_t row = 0; row < a.elements / 6; row++) {
        double sum = 0;
        for (size_t j = 0; j < 6; j++)
            sum += x[6 * row + j];
        assert_true(fabs(sum - 1) < 6 * 0x1p-23); /* six numbers, each rounded to float */
    }
    free(x);
    mha_stage s = 0;
    for (; s < MHA_STAGE_Q_LATENT; s++)
        free(read_tensor(trace, mha_stage_name(s), &a));
}

/* An input file with the numbers the program would have drawn gives what it would have given. */
static void test_inputs_from_files(void **state)
{
    (void)state;
    char query[600], key[600], value[600], named[640];
    snprintf(query, sizeof query, "%s", random_file("query.npy", 32, 3, (size_t[]){1, 6, 24}));
    snprintf(key, sizeof key, "%s", random_file("key.safetensors", 33, 2, (size_t[]){5, 24}));
    snprintf(value, sizeof value, "%s", random_file("value.npy", 34, 2, (size_t[]){5, 7}));
    snprintf(named, sizeof named, "%s:x", key);
    json_t *drawn = RUN_JSON(0, "forward", "--json", SMALL, "--kv-seq", "5", "--vdim", "7");
    json_t *read = RUN_JSON(0, "forward", "--json", "--d-model", "24", "--heads", "4", "--vdim", "7", "--input", query,
                            "--key-input", named, "--value-input", value);
    json_t *a = json_object_get(drawn, "output"), *b = json_object_get(read, "output");
    assert_true(json_equal(a, b));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(read, "config"), "kv_seq")), 5);
    json_decref(drawn);
    json_decref(read);
    /* two axes in, two axes out; "-" is standard input */
    const char *out = scratch("rows.npy");
    mha_file_tensor about;
    program_result r =
        program_run_with(NULL, key,
                         (const char *const[]){"forward", "--d-model", "24", "--heads", "4", "--input", "-", "--output",
                                               out, "--path", "exact", "--quiet", NULL});
    assert_int_equal(r.code, 0);
    program_free(&r);
    free(read_tensor(out, NULL, &about));
    assert_int_equal(about.rank, 2);
    assert_int_equal(about.dtype, MHA_F64);
    assert_program_refuses(RUN("forward", "--d-model", "24", "--heads", "4", "--input", query, "--seq", "7"), 2,
                           "--seq: expected 6 as in --input, found 7");
    assert_program_refuses(RUN("forward", "--d-model", "32", "--heads", "4", "--input", query), 2,
                           "--input: expected shape (B, T, 32) or (T, 32), found (1, 6, 24)");
    assert_program_refuses(RUN("forward", "--d-model", "24", "--heads", "4", "--vdim", "7", "--input", query), 2,
                           "--value-input: expected a file of width 7 beside --input, found none");
    snprintf(named, sizeof named, "%s:y", key);
    assert_program_refuses(RUN("forward", "--d-model", "24", "--heads", "4", "--input", named), 2,
                           "expected a tensor called \"y\"");
}

static void test_masks_and_lengths_mean_what_they_say(void **state)
{
    (void)state;
    const char *keeps = scratch("keeps.npy"), *adds = scratch("adds.npy");
    const char *trace = scratch("masked.safetensors");
    uint8_t stay[6] = {1, 1, 0, 0, 0, 0};
    float add[6] = {0, 0, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    mha_view view = mha_view_of(stay, MHA_BOOL, 1, (size_t[]){6});
    write_tensor(keeps, "mask", &view);
    view = mha_view_of(add, MHA_F32, 1, (size_t[]){6});
    write_tensor(adds, "mask", &view);
    const char *const requests[][4] = {{"--mask", keeps, "--mask-kind", "keeps"},
                                       {"--mask", adds, "--mask-kind", "additive"},
                                       {"--lengths", "2", "--threads", "1"}};
    for (size_t i = 0; i < 3; i++) {
        program_result r = RUN("forward", SMALL, requests[i][0], requests[i][1], requests[i][2], requests[i][3],
                               "--trace", trace, "--quiet");
        assert_int_equal(r.code, 0);
        program_free(&r);
        mha_file_tensor about;
        double *weights = read_tensor(trace, "weights", &about);
        for (size_t e = 0; e < about.elements; e++)
            assert_true(e % 6 < 2 ? weights[e] > 0 : weights[e] == 0);
        free(weights);
    }
    assert_program_refuses(RUN("forward", SMALL, "--mask", keeps), 2,
                           "--mask-kind: expected keeps or hides for a mask of BOOL");
    assert_program_refuses(RUN("forward", SMALL, "--mask", adds, "--mask-kind", "hides"), 2,
                           "--mask-kind: expected additive");
    assert_program_refuses(RUN("forward", SMALL, "--mask-kind", "hides"), 2, "--mask: a kind is given, but no values");
    int64_t counts[6] = {1, 1, 0, 0, 0, 0};
    view = mha_view_of(counts, MHA_I64, 1, (size_t[]){6});
    write_tensor(keeps, "mask", &view);
    assert_program_refuses(RUN("forward", SMALL, "--mask", keeps), 2,
                           "--mask: expected F32 or F64 for an additive mask, found I64");
    assert_program_refuses(RUN("forward", SMALL, "--mask", keeps, "--mask-kind", "keeps"), 2,
                           "--mask-kind: expected additive for a mask of I64, found keeps");
    assert_program_refuses(RUN("forward", SMALL, "--lengths", "2,3"), 2,
                           "--kv-lengths: expected 1 numbers, (B), found 2");
    assert_program_refuses(RUN("forward", SMALL, "--rope-base", "500000"), 2,
                           "--rope-base: has no effect without `rope`, which is not set");
}

/* ---------------------------------------------------------------- trained weights */

#define LOOKUP "weights/lookup/model.safetensors"

/* Our own small checkpoint, recorded by PyTorch in float64: config.json beside it says heads and causal. */
static void test_a_trained_layer_gives_its_recorded_output(void **state)
{
    (void)state;
    char trace[600], tensor[2][640];
    snprintf(trace, sizeof trace, "%s", scratch("lookup.safetensors"));
    snprintf(tensor[0], sizeof tensor[0], "%s:output", trace);
    snprintf(tensor[1], sizeof tensor[1], "%s:weights", trace);
    program_result r = RUN("forward", "--weights", LOOKUP, "--input", "weights/lookup/recorded.safetensors:input",
                           "--path", "exact", "--trace", trace);
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "as its config.json says"));
    assert_non_null(strstr(r.out, "6 heads x d_k 8"));
    assert_non_null(strstr(r.out, "causal"));
    program_free(&r);
    /* Both sides in float64 from the same float32 numbers: sums of 48 products of size up to 100 err by less
     * than 48 * 100 * 2^-53 = 6e-13. */
    json_decref(
        RUN_JSON(0, "compare", tensor[0], "weights/lookup/recorded.safetensors:output64", "--atol", "1e-12", "--json"));
    json_decref(RUN_JSON(0, "compare", tensor[1], "weights/lookup/recorded.safetensors:weights64", "--atol", "1e-12",
                         "--json"));
    json_t *root = RUN_JSON(0, "forward", "--weights", LOOKUP, "--heads", "3", "--seq", "5", "--json");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "config"), "d_k")), 16);
    json_decref(root);
}

static void assert_text(const json_t *object, const char *key, const char *expected)
{
    const json_t *value = json_object_get(object, key);
    assert_non_null(value);
    if (expected)
        assert_string_equal(json_string_value(value), expected);
    else
        assert_true(json_is_null(value));
}

/* The rotation of a configuration is stretched for the positions of the call, and said in words. */
static void test_stretched_rotations(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model_type\":\"llama\",\"hidden_size\":32,\"num_attention_heads\":2,\"num_hidden_layers\":1,\"intermediate_"
        "size\":8,\"vocab_size\":9,\"max_position_embeddings\":8,"
        "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.0}}";
    const mha_rope_scaling dynamic = {.kind = MHA_ROPE_DYNAMIC, .factor = 2, .original_length = 8};
    const char *config = scratch("stretched.json"), *path = scratch("stretched.safetensors");
    FILE *f = fopen(config, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    static const char *const words[][2] = {{"--seq", "4"}, {"--seq", "12"}, {"--position-offset", "30"}};
    static const size_t lengths[] = {4, 12, 128 + 30};
    for (size_t i = 0; i < 3; i++) {
        program_result r = RUN("forward", "--config", config, words[i][0], words[i][1], "--save-case", path);
        assert_int_equal(r.code, 0);
        assert_true(text_says(r.out, "rope_base 10000, rope_attention_factor 1, "
                                     "rope_frequencies scaled: dynamic, factor 2, of 8 positions, "));
        program_free(&r);
        double expected[8], found[8], factor;
        mha_file *file;
        mha_error error;
        assert_ok(mha_file_open(path, &file, &error), error);
        const mha_file_tensor *tensor = mha_file_find(file, "rope_frequencies");
        const mha_view view = mha_view_of(found, MHA_F64, 1, (size_t[]){8});
        assert_non_null(tensor);
        assert_ok(mha_file_read(file, tensor, &view, &error), error);
        assert_ok(mha_rope_frequencies(&dynamic, 16, 0, lengths[i], expected, &factor, &error), error);
        assert_memory_equal(found, expected, sizeof found);
        mha_file_close(file);
    }
    program_result r = RUN("params", "--config", config);
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "rotary positions scaled: dynamic, factor 2, of 8 positions; attention factor 1\n"));
    program_free(&r);
    json_t *counted = RUN_JSON(0, "params", "--config", config, "--json");
    assert_text(json_object_get(json_object_get(counted, "model"), "rope_scaling"), "type", "dynamic");
    json_decref(counted);
    r = RUN("forward", "--config", config, "--rope-dim", "5");
    assert_int_equal(r.code, 2);
    assert_non_null(strstr(r.err, "--rope-dim: expected an even number of features, found 5"));
    program_free(&r);
}

/* The bias by position that a model's layers add, or do not. */
static void test_biases_by_position_are_told(void **state)
{
    (void)state;
    const char *small = "{\"model_type\": \"swin\", \"image_size\": 4, \"patch_size\": 1, \"window_size\": 2,"
                        " \"embed_dim\": 6, \"depths\": [2]}";
    const char *const rows[][3] = {
        {"{\"model_type\": \"t5\"}", "encoder.block.1.layer.0.SelfAttention",
         "* 1 + bias_i) V_i\n|  meaning  bias_rule buckets, bias_max_distance 128, scale 1\n"},
        {"{\"model_type\": \"t5\", \"relative_attention_max_distance\": 40}",
         "decoder.block.1.layer.0.SelfAttention",
         "  meaning  causal, bias_rule buckets, bias_one_way, bias_max_distance 40, scale 1\n"},
        {"{\"model_type\": \"t5\"}", "decoder.block.1.layer.1.EncDecAttention", "* 1) V_i\n"},
        {"{\"model_type\": \"swin\"}", "swin.encoder.layers.0.blocks.0.attention",
         "bias_rule grid, bias_height 7, bias_width 7\n"},
        {"{\"model_type\": \"mpt\", \"attn_config\": {\"clip_qkv\": 8}}", "transformer.blocks.0.attn",
         "  meaning  clip_qkv 8, causal, alibi_slopes (h)\n"},
        {small, "swin.encoder.layers.0.blocks.1.attention",
         "hidden keys left out|  meaning  q_segments I64 (8, 4), bias_rule grid, bias_height 2, bias_width 2"},
        {"{\"model_type\": \"beit\", \"use_shared_relative_position_bias\": true}",
         "beit.encoder.layer.3.attention",
         "bias_rule grid, bias_class_token, bias_height 14, bias_width 14\n"},
    };
    const char *config = scratch("biased.json");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        FILE *f = fopen(config, "w");
        assert_non_null(f);
        fputs(rows[i][0], f);
        fclose(f);
        program_result r = RUN("forward", "--config", config, "--layer", rows[i][1], "--seq", "4", "--batch", "8");
        assert_int_equal(r.code, 0);
        for (const char *at = rows[i][2]; *at;) {
            char part[120];
            const size_t length = strcspn(at, "|");
            snprintf(part, sizeof part, "%.*s", (int)length, at);
            assert_non_null(strstr(r.out, part));
            at += length + (at[length] == '|');
        }
        program_free(&r);
    }
    const char *trace = scratch("windows.safetensors"), *shifted = "swin.encoder.layers.0.blocks.1.attention";
    FILE *f = fopen(config, "w");
    assert_non_null(f);
    fputs(small, f);
    fclose(f);
    program_result r = RUN("forward", "--config", config, "--layer", shifted, "--seq", "4", "--batch", "8", "--trace",
                           trace);
    assert_int_equal(r.code, 0);
    program_free(&r);
    mha_file_tensor about;
    double *weights = read_tensor(trace, "weights", &about); /* of two images of 4 windows, 3 heads */
    for (size_t at = 0; at < (size_t)8 * 3 * 4 * 4; at++) {
        const size_t window = at / 48 % 4, query = at / 4 % 4, key = at % 4;
        const bool together = (window % 2 == 0 || query % 2 == key % 2) && (window < 2 || query / 2 == key / 2);
        assert_true((weights[at] > 0) == together);
    }
    free(weights);
    r = RUN("forward", "--config", config, "--layer", shifted, "--seq", "4", "--batch", "6");
    assert_int_equal(r.code, 2);
    assert_non_null(strstr(r.err, "--input: expected self-attention in windows of 4 tokens, 4 of them for each image"));
    program_free(&r);
}

/* What a model adds to its layers and this one does not have is told, in words and in JSON. */
static void test_what_is_left_out_is_told(void **state)
{
    (void)state;
    const char *windows = "each batch row is a window of the image";
    const char *config = scratch("swin.json");
    FILE *f = fopen(config, "w");
    assert_non_null(f);
    fputs("{\"model_type\": \"swin\"}", f);
    fclose(f);
    json_t *swin = RUN_JSON(0, "forward", "--seq", "4", "--config", config, "--json"),
           *gpt2 = RUN_JSON(0, "forward", "--seq", "4", "--preset", "gpt2", "--json"),
           *none = RUN_JSON(0, "forward", "--seq", "4", "--json");
    assert_text(json_object_get(swin, "config"), "model", "swin");
    assert_text(json_object_get(swin, "config"), "caveat", windows);
    assert_text(json_object_get(gpt2, "config"), "model", "gpt2");
    assert_text(json_object_get(gpt2, "config"), "caveat", NULL);
    assert_text(json_object_get(none, "config"), "model", NULL);
    assert_text(json_object_get(none, "config"), "caveat", NULL);
    program_result r = RUN("forward", "--seq", "4", "--config", config);
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, windows));
    program_free(&r);
    json_decref(swin);
    json_decref(gpt2);
    json_decref(none);
}

/* A preset gives shape and meaning: GPT-2's layer is causal, LLaMA's rotates and has no biases. */
static void test_layers_of_models(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "forward", "--preset", "gpt2", "--seq", "4", "--json"),
           *config = json_object_get(root, "config");
    assert_true(json_is_true(json_object_get(config, "causal")));
    assert_int_equal(json_integer_value(json_object_get(config, "heads")), 12);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "parameters"), "total_parameters")),
                     2362368);
    json_decref(root);
    root =
        RUN_JSON(0, "forward", "--preset", "qwen2-0.5b", "--seq", "4", "--json", "--layer", "model.layers.3.self_attn");
    config = json_object_get(root, "config");
    assert_int_equal(json_integer_value(json_object_get(config, "kv_heads")), 2);
    assert_true(json_is_true(json_object_get(config, "bias_q")) && json_is_false(json_object_get(config, "bias_o")));
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(root, "stages"), 3), "name")),
                        "q_rot");
    json_decref(root);
    program_result r = RUN("forward", "--config", "weights/lookup/config.json", "--seq", "4");
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "random, Xavier uniform"));
    assert_non_null(strstr(r.out, "6 heads x d_k 8"));
    program_free(&r);
    assert_program_refuses(
        RUN("forward", "--preset", "gpt2", "--layer", "h.12.attn"), 2,
        "--layer: expected one of the 12 attention layers from h.0.attn to h.11.attn, found h.12.attn");
    assert_program_refuses(RUN("forward", "--preset", "gpt2", "--d-k", "8"), 2,
                           "--d-k: expected nothing beside --preset");
    assert_program_refuses(RUN("forward", "--preset", "no-such-model"), 2,
                           "--preset: expected one of *found 'no-such-model'");
    assert_program_refuses(RUN("forward", "--preset", "gpt2", "--weights", LOOKUP), 2,
                           "--preset: expected nothing beside --weights");
}

static void test_weights_that_do_not_fit_the_request(void **state)
{
    (void)state;
    assert_program_refuses(RUN("forward", "--weights", LOOKUP, "--d-model", "48"), 2,
                           "--d-model: expected nothing beside --weights, whose file decides it");
    assert_program_refuses(RUN("forward", "--weights", LOOKUP, "--heads", "5"), 2, "48*5");
    assert_program_refuses(RUN("forward", "--weights", LOOKUP, "--layer", "h.3.attn"), 2,
                           "--layer: *expected one of '' (names without a prefix)*h.3.attn");
    assert_program_refuses(RUN("forward", "--weights", "weights/lookup/recorded.safetensors"), 2,
                           "recorded.safetensors");
    assert_program_refuses(RUN("forward", "--weights", scratch("absent")), 2, "absent: expected a file, found none");
    assert_program_refuses(RUN("forward", "--layer", "h.0"), 2, "--layer: expected --weights beside it");
    /* alone in its directory, nothing says how many heads there are */
    char line[900];
    snprintf(line, sizeof line, "cp %s %s", LOOKUP, scratch("alone.safetensors"));
    assert_int_equal(system(line), 0);
    assert_program_refuses(RUN("forward", "--weights", scratch("alone.safetensors")), 2,
                           "--heads: expected their number");
    json_t *root =
        RUN_JSON(0, "forward", "--weights", scratch("alone.safetensors"), "--heads", "6", "--json", "--seq", "4");
    assert_true(
        json_is_false(json_object_get(json_object_get(root, "config"), "causal"))); /* names switch nothing on */
    json_decref(root);
    root = RUN_JSON(0, "forward", "--weights", scratch("alone.safetensors"), "--config", "weights/lookup/config.json",
                    "--json", "--seq", "4");
    assert_true(json_is_true(json_object_get(json_object_get(root, "config"), "causal")));
    json_decref(root);
}

/* ---------------------------------------------------------------- what goes wrong */

static void test_not_a_number_is_said_and_is_no(void **state)
{
    (void)state;
    const char *path = scratch("nan.npy");
    float x[2 * 8];
    for (size_t i = 0; i < 16; i++)
        x[i] = i == 11 ? NAN : 1;
    mha_view view = mha_view_of(x, MHA_F32, 2, (size_t[]){2, 8});
    write_tensor(path, "x", &view);
    program_result r = RUN("forward", "--d-model", "8", "--heads", "2", "--input", path, "--json");
    assert_int_equal(r.code, 1);
    assert_non_null(strstr(
        r.err, "mha forward: --input: expected finite numbers, found 1 NaN or infinite, the first at (0, 1, 3)"));
    json_t *root = json_loads(r.out, 0, NULL);
    assert_true(json_is_false(json_object_get(json_object_get(root, "output"), "finite")));
    assert_true(json_is_null(json_object_get(json_object_get(root, "output"), "max_abs")));
    json_decref(root);
    program_free(&r);
    assert_program_refuses(RUN("forward", "--d-model", "8", "--heads", "2", "--input", path, "--quiet"), 1,
                           "--input: expected finite");
    /* NaN of the input is not excused by NaN that was asked for */
    assert_program_refuses(RUN("forward", "--d-model", "8", "--heads", "2", "--input", path, "--quiet", "--empty-rows",
                               "nan", "--lengths", "1"),
                           1, "--input: expected finite");
}

/* Cut at every byte of its header and in its data, a file gives one line and exit code 2; never a crash. */
static void test_truncated_files_are_refused(void **state)
{
    (void)state;
    const char *whole = random_file("whole.safetensors", 32, 2, (size_t[]){6, 24}), *cut = scratch("cut.safetensors");
    static char bytes[4096];
    FILE *file = fopen(whole, "rb");
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_true(size > 576 && size < sizeof bytes);
    for (size_t n = 0; n < size; n += n < size - 576 ? 7 : 101) {
        file = fopen(cut, "wb");
        fwrite(bytes, 1, n, file);
        fclose(file);
        assert_program_refuses(RUN("forward", "--d-model", "24", "--heads", "4", "--input", cut, "--quiet"), 2,
                               "cut.safetensors: ");
    }
}

static void test_outputs_that_cannot_be_written(void **state)
{
    (void)state;
    char nowhere[600];
    snprintf(nowhere, sizeof nowhere, "%s/none/out.npy", scratch("."));
    assert_program_refuses(RUN("forward", SMALL, "--quiet", "--output", nowhere), 3, "none/out.npy: ");
    assert_program_refuses(RUN("forward", SMALL, "--quiet", "--trace", scratch("trace.npy")), 2, "--trace: ");
    assert_false(exists(scratch("trace.npy")));
    const char *const written[] = {"--output", "--trace", "--save-case"};
    for (size_t i = 0; i < 3; i++) { /* before a run that may take long: nothing is on standard output yet */
        assert_program_refuses(RUN("forward", SMALL, written[i], scratch("out.txt")), 2,
                               "out.txt: expected a name that ends");
        snprintf(nowhere, sizeof nowhere, "%s/none/out.safetensors", scratch("."));
        assert_program_refuses(RUN("forward", SMALL, written[i], nowhere), 3, "none/out.safetensors: ");
    }
    assert_program_refuses(RUN("forward", SMALL, "--quiet", "--output", scratch("out.txt")), 2,
                           "out.txt: expected a name that ends");
    assert_false(exists(scratch("out.txt")));
    if (access("/dev/full", W_OK) == 0)
        assert_program_refuses(RUN("forward", SMALL, "--quiet", "--output", "/dev/full"), 3, "/dev/full: ");
    /* a request refused after the name was checked leaves nothing behind */
    assert_program_refuses(RUN("forward", "--d-model", "512", "--heads", "12", "--output", scratch("never.npy")), 2,
                           "512*12");
    assert_false(exists(scratch("never.npy")));
}

/* Inputs of 300 GB: said at once, before the machine is brought to its knees. */
static void test_more_than_the_machine_has_is_exit_3(void **state)
{
    (void)state;
    assert_program_refuses(RUN("forward", "--seq", "100000000"), 3, "mha forward: no memory");
    assert_program_refuses(RUN("forward", "--seq", "2000000000", "--batch", "2000000000"), 2,
                           "expected arrays that fit in memory");
}

/* A file that may not grow is an error, not the end by a signal. */
static void test_a_limit_on_files_leaves_nothing_behind(void **state)
{
    (void)state;
    const char *path = scratch("limited.npy");
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = (struct rlimit){65536, old.rlim_max}; /* half of the output, more than a build that counts lines writes */
    signal(SIGXFSZ, SIG_DFL);
    setrlimit(RLIMIT_FSIZE, &small);
    program_result r = RUN("forward", "--d-model", "64", "--heads", "2", "--seq", "512", "--output", path, "--quiet");
    setrlimit(RLIMIT_FSIZE, &old);
    char line[700];
    snprintf(line, sizeof line, "mha forward: --output: %s: cannot write it: File too large\n", path);
    assert_string_equal(r.err, line);
    assert_program_refuses(r, 3, "limited.npy");
    char directory[600];
    snprintf(directory, sizeof directory, "%s", path);
    *strrchr(directory, '/') = '\0';
    DIR *names = opendir(directory);
    for (struct dirent *entry; (entry = readdir(names));)
        if (strncmp(entry->d_name, ".mha-", 5) == 0 || strcmp(entry->d_name, "limited.npy") == 0)
            fail_msg("%s is left", entry->d_name);
    closedir(names);
}

static void test_names_near_the_one_asked_for(void **state)
{
    (void)state;
    assert_program_refuses(RUN("forward", "--weights", LOOKUP, "--input", "weights/lookup/recorded.safetensors:imput"),
                           2,
                           "recorded.safetensors: expected a tensor called \"imput\", found only near ones: input\n");
    assert_program_refuses(RUN("forward", "--weights", LOOKUP, "--input", "weights/lookup/recorded.safetensors:put6"),
                           2, "found only near ones: output64\n");
    assert_program_refuses(RUN("forward", "--weights", LOOKUP, "--input", "weights/lookup/recorded.safetensors:x"), 2,
                           "expected a tensor called \"x\", found none near it: tokens, ");
}

/* A layer may be named by a part of its prefix that no other has. */
static void test_layers_are_named_by_a_part(void **state)
{
    (void)state;
    static const char *const parts[] = {"h.3.attn", "h.3.attn.", "h.3", "3"}, *const none[] = {"h", "attn", "12",
                                                                                               "h.1.a", ""};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        program_result r =
            RUN("forward", "--preset", "gpt2", "--layer", parts[i], "--seq", "2", "--path", "exact", "--threads", "1");
        assert_int_equal(r.code, 0);
        assert_non_null(strstr(r.out, "h.3.attn"));
        program_free(&r);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_program_refuses(RUN("forward", "--preset", "gpt2", "--layer", none[i], "--seq", "2"), 2,
                               "--layer: expected");
}

/* The same of a file with two layers, the second of zeros: only its output is zero. */
static void test_layers_of_a_file_are_named_by_a_part(void **state)
{
    (void)state;
    static const char *const names[] = {"in_proj_weight", "out_proj.weight"};
    static const struct {
        const char *part;
        bool zeros;
    } parts[] = {{"layers.0.attn", false}, {"0", false}, {"layers.1.attn", true}, {"layers.1", true}, {"1", true}};
    static const char *const none[] = {"layers", "2", "1.a", ""};
    static float x[3 * 8 * 8], zeros[3 * 8 * 8];
    const char *path = scratch("two_layers.safetensors");
    mha_writer *writer;
    mha_error error;
    mha_view drawn = mha_view_of(x, MHA_F32, 1, (size_t[]){3 * 8 * 8});
    mha_random_fill(&drawn, 1, 1, 1, 2);
    assert_ok(mha_writer_create(path, &writer, &error), error);
    for (size_t i = 0; i < 4; i++) {
        char name[64];
        const mha_view view = mha_view_of(i < 2 ? x : zeros, MHA_F32, 2, (size_t[]){i % 2 ? 8 : 24, 8});
        snprintf(name, sizeof name, "layers.%zu.attn.%s", i / 2, names[i % 2]);
        assert_ok(mha_writer_add(writer, name, &view, &error), error);
    }
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        json_t *root = RUN_JSON(0, "forward", "--weights", path, "--heads", "2", "--layer", parts[i].part, "--seq", "2",
                                "--json");
        const json_t *largest = json_object_get(json_object_get(root, "output"), "max_abs");
        assert_true(json_is_number(largest));
        assert_int_equal(json_number_value(largest) == 0, parts[i].zeros);
        json_decref(root);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_program_refuses(RUN("forward", "--weights", path, "--heads", "2", "--layer", none[i], "--seq", "2"), 2,
                               "--layer: expected");
}

static void test_one_name_is_not_written_twice(void **state)
{
    (void)state;
    const char *path = scratch("both.safetensors"), *other = scratch("elsewhere.safetensors");
    static const char *const standard[] = {"-", "/dev/stdout"};
    assert_program_refuses(RUN("forward", SMALL, "--output", path, "--trace", path), 2,
                           "--trace: expected another name than that of --output");
    assert_program_refuses(RUN("forward", SMALL, "--trace", path, "--save-case", path), 2,
                           "--save-case: expected another name than that of --trace");
    for (size_t i = 0; i < 4; i++)
        assert_program_refuses(RUN("forward", SMALL, "--output", standard[i / 2], "--save-case", standard[i % 2]), 2,
                               "--save-case: expected another name");
    assert_false(exists(path));
    for (size_t i = 0; i < 2; i++)
        assert_program_refuses(RUN("forward", SMALL, "--json", "--trace", standard[i]), 2,
                               "--json: expected standard output for it alone");
    program_result r = RUN("forward", SMALL, "--output", path, "--trace", other, "--quiet");
    assert_int_equal(r.code, 0);
    assert_true(exists(path) && exists(other));
    program_free(&r);
    assert_program_refuses(RUN("forward", SMALL, "--trace", "a.npy"), 2,
                           "--trace: expected a name that ends in .safetensors, or --stage beside it, found a.npy\n");
    assert_program_refuses(RUN("forward", SMALL, "--save-case", "a.npy"), 2,
                           "--save-case: expected a name that ends in .safetensors");
}

/* Bytes for another program: no text around them. A safetensors file begins with the length of its header, then "{". */
static void test_files_on_standard_output_stand_alone(void **state)
{
    (void)state;
    const char *const options[] = {"--trace", "--save-case"};
    for (size_t i = 0; i < 2; i++) {
        program_result r = RUN("forward", SMALL, options[i], "-");
        assert_int_equal(r.code, 0);
        assert_true(r.out_size > 8);
        assert_int_equal(r.out[8], '{');
        program_free(&r);
    }
}

static void test_names_that_lead_nowhere_are_wrong_requests(void **state)
{
    (void)state;
    const char *loop = scratch("loop");
    assert_int_equal(symlink(loop, loop), 0);
    assert_program_refuses(RUN("forward", SMALL, "--input", loop), 2, "expected a file, found none");
    char name[5001];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_program_refuses(RUN("forward", SMALL, "--input", name), 2, "found none");
}

static void test_a_path_that_cannot_says_why(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "forward", "--json", SMALL, "--path", "blas", "--causal");
    assert_string_equal(json_string_value(json_object_get(root, "path")), "blas");
    json_decref(root);
    json_t *squashed = RUN_JSON(0, "forward", "--json", SMALL, "--sigmoid", "-1.5", "--causal");
    assert_string_equal(json_string_value(json_object_get(squashed, "path")), "blas");
    json_decref(squashed);
    root = RUN_JSON(0, "forward", "--json", SMALL, "--path", "exact", "--window", "2,-1", "--softcap", "30", "--scale",
                    "0.5", "--rope", "half", "--rope-dim", "4", "--position-offset", "-1", "--empty-rows", "zero");
    assert_string_equal(json_string_value(json_object_get(root, "path")), "exact");
    assert_true(json_real_value(json_object_get(json_object_get(root, "config"), "scale")) == 0.5);
    json_t *stages = json_object_get(root, "stages");
    assert_int_equal(json_array_size(stages), 11); /* all but weights_mean, present_key, present_value and lse */
    json_decref(root);
    assert_program_refuses(RUN("forward", SMALL, "--rope", "half", "--rope-dim", "5"), 2, "mha forward: ");
    assert_program_refuses(RUN("forward", SMALL, "--rope", "half", "--rope-dim", "8"), 2, "mha forward: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_has_the_promised_keys),
        cmocka_unit_test(test_threads_do_not_change_the_answer),
        cmocka_unit_test(test_text_tells_the_whole_story),
        cmocka_unit_test(test_output_and_trace_hold_the_same_numbers),
        cmocka_unit_test(test_inputs_from_files),
        cmocka_unit_test(test_masks_and_lengths_mean_what_they_say),
        cmocka_unit_test(test_a_trained_layer_gives_its_recorded_output),
        cmocka_unit_test(test_biases_by_position_are_told),
        cmocka_unit_test(test_what_is_left_out_is_told),
        cmocka_unit_test(test_stretched_rotations),
        cmocka_unit_test(test_layers_of_models),
        cmocka_unit_test(test_weights_that_do_not_fit_the_request),
        cmocka_unit_test(test_not_a_number_is_said_and_is_no),
        cmocka_unit_test(test_truncated_files_are_refused),
        cmocka_unit_test(test_outputs_that_cannot_be_written),
        cmocka_unit_test(test_more_than_the_machine_has_is_exit_3),
        cmocka_unit_test(test_a_limit_on_files_leaves_nothing_behind),
        cmocka_unit_test(test_names_near_the_one_asked_for),
        cmocka_unit_test(test_layers_are_named_by_a_part),
        cmocka_unit_test(test_layers_of_a_file_are_named_by_a_part),
        cmocka_unit_test(test_one_name_is_not_written_twice),
        cmocka_unit_test(test_files_on_standard_output_stand_alone),
        cmocka_unit_test(test_names_that_lead_nowhere_are_wrong_requests),
        cmocka_unit_test(test_a_path_that_cannot_says_why),
    };
    return cmocka_run_group_tests_name("cli_forward", tests, NULL, scratch_remove);
}
