/* Caches counted in a parameter table, beside caches that are created; logs of llama.cpp and vLLM, line by line. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "mha/lab.h"
#include "support/built.h"
#include "support/gguf.h"
#include "support/scratch.h"
#include "support/unit.h"

static size_t bytes_of(built *b, mha_model_pass pass, mha_dtype dtype, size_t page, size_t ahead, const char *kind)
{
    mha_params *table;
    assert_ok(mha_params_create(NULL, &table, &b->error), b->error);
    assert_ok(mha_model_add_caches(b->model, &pass, dtype, page, ahead, table, &b->error), b->error);
    const size_t sum = mha_params_totals(table, kind).buffer_bytes;
    mha_params_destroy(table);
    return sum;
}

/* Each layer's cache is created as a decoder creates it: the sum of mha_cache_bytes is that of the table. */
static void caches_have_the_bytes_of_created_ones(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F32, MHA_F16, MHA_I8};
    const mha_model_pass pass = {.batch = 2, .seq = 300};
    const char *name;
    size_t compared = 0;
    for (size_t p = 0; (name = mha_preset_at(p, NULL)); p++)
        for (size_t t = 0; t < 3; t++) {
            built b = {.table = NULL};
            assert_ok(build(&b, (mha_model_spec){.preset = name}), b.error);
            size_t sum = 0;
            for (size_t i = 0; i < mha_model_layer_count(b.model); i++) {
                mha_model_lengths of;
                mha_model_layer layer;
                mha_cache *cache;
                mha_model_layer_at(b.model, i, &layer);
                assert_ok(mha_model_layer_lengths(b.model, &pass, i, &of, &b.error), b.error);
                const mha_config *c = &layer.config;
                mha_cache_spec spec = {.batch = 2, .kv_heads = c->kv_heads, .d_k = c->d_k, .d_v = c->d_v,
                                       .capacity = of.cached, .dtype = types[t]};
                if (c->kv_rank)
                    spec.kv_heads = 1, spec.d_k = of.latent_width, spec.d_v = 0;
                assert_ok(mha_cache_create(&spec, NULL, &cache, &b.error), b.error);
                sum += layer.uses * mha_cache_bytes(cache);
                compared += of.cached > 0;
                mha_cache_destroy(cache);
            }
            mha_model_costs costs;
            assert_ok(mha_model_costs_of(b.model, &pass, &costs, &b.error), b.error);
            assert_int_equal(bytes_of(&b, pass, types[t], 1, 0, "states"), 4 * costs.state_elements);
            const size_t index = bytes_of(&b, pass, types[t], 1, 0, "index keys");
            assert_int_equal(bytes_of(&b, pass, types[t], 1, 0, NULL), sum + 4 * costs.state_elements + index);
            unbuild(&b);
        }
    assert_true(compared > 3000);
}

/* DeepSeek-V3.2: 61 layers with a key of 128. GLM-5: 78. */
static void indexers_have_keys(void **state)
{
    (void)state;
    built b = {.table = NULL};
    assert_ok(build(&b, (mha_model_spec){.preset = "deepseek-v3.2"}), b.error);
    assert_int_equal(bytes_of(&b, (mha_model_pass){3, 100, 0}, MHA_F16, 1, 0, "index keys"), 3L * 100 * 61 * 128 * 2);
    unbuild(&b);
}

/* ---------------------------------------------------------------- logs */

static mha_status split_text(built *b, const char *text, size_t count, mha_model_pass *pass, mha_log_split *split)
{
    return mha_model_split_log(b->model, scratch_write("engine.log", text, count), pass, MHA_F16, split, &b->error);
}

/* "needed 3224371200, cells of window layers 15728640": the parts, which sum to the bytes. */
static void parts_text(const mha_log_split *split, char text[600])
{
    int64_t sum = 0;
    *text = '\0';
    for (size_t i = 0; i < split->count; i++) {
        sum += split->parts[i].bytes;
        snprintf(text + strlen(text), 600 - strlen(text), "%s%s %lld", i ? ", " : "", split->parts[i].name,
                 (long long)split->parts[i].bytes);
    }
    assert_int_equal(sum, split->bytes);
}

#define KV "llama_kv_cache: size = "

/* Lines that engines wrote, of public threads; numbers by hand. */
static void public_logs(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        size_t batch, seq;
        const char *log, *parts;
    } rows[] = {
        {"gpt-oss-20b", 1, 0,
         "llama_kv_cache_unified: size = 3072.00 MiB (131072 cells,  12 layers,  1/1 seqs), K (f16): 1536.00 MiB, V "
         "(f16): 1536.00 MiB\nllama_kv_cache_unified: size =   18.00 MiB (   768 cells,  12 layers,  1/1 seqs), K "
         "(f16):    9.00 MiB, V (f16):    9.00 MiB\n",
         "needed 3224371200, cells of window layers 15728640"},
        {"gpt-oss-20b", 2, 2000, /* 8 slots of 2,048 cells, micro-batch 512 */
         KV "384.00 MiB ( 2048 cells, 12 layers, 8/8 seqs), K (f16): 192.00 MiB, V (f16): 192.00 MiB\n"
         KV " 96.00 MiB (  512 cells, 12 layers, 8/8 seqs), K (f16): 48.00 MiB, V (f16): 48.00 MiB",
         "needed 104595456, streams 313786368, cells 9437184, cells of window layers 75497472"},
        {"qwen3-8b", 1, 131072,
         " llama_kv_cache_unified: size = 18432.00 MiB (131072 cells,  36 layers,  1/ 1 seqs), K (f16): 9216.00 MiB, V "
         "(f16): 9216.00 MiB\n",
         "needed 19327352832"},
        {"llama-3-70b", 1, 4000,
         "llama_kv_cache_unified: size = 1280.00 MiB (  4096 cells,  80 layers,  1 seqs), K (f16):  640.00 MiB, V "
         "(f16):  640.00 MiB\n",
         "needed 1310720000, cells 31457280"},
        {"qwen3.5-35b-a3b", 4, 16384, /* convolutions keep 3 tokens, 4 in transformers */
         KV "1280.00 MiB ( 65536 cells,  10 layers,  4/1 seqs), K (f16): 640.00 MiB, V (f16): 640.00 MiB\n"
         "llama_memory_recurrent: size =  251.25 MiB (     4 cells,  40 layers,  4 seqs), R (f32):   11.25 MiB, S "
         "(f32):  240.00 MiB",
         "needed 1609564160, convolutions, one token less -3932160"},
        {"deepseek-v3", 1, 4096,
         KV "274.50 MiB (  4096 cells,  61 layers,  1/1 seqs), K (f16):  274.50 MiB, V (f16):  0.00 MiB\n",
         "needed 287834112"},
        {"deepseek-v3", 1, 4096,
         KV "518.50 MiB (  4096 cells,  61 layers,  1/1 seqs), K (f16):  274.50 MiB, V (f16):  244.00 MiB\n",
         "needed 287834112, values next to latents 255852544"},
        {"deepseek-v3", 1, 512, KV "2440.00 MiB (   512 cells,  61 layers,  1/1 seqs), K (f16):  1464.00 MiB, V (f16):"
         "  976.00 MiB\n", "needed 35979264, keys and values of all heads 2522546176"},
        {"gemma-2-2b", 1, 8192, /* before caches for windows; q8_0 has 34 bytes for 32 elements */
         KV "442.00 MiB (  8192 cells,  26 layers,  1/1 seqs), K (q8_0):  221.00 MiB, V (q8_0):  221.00 MiB\n",
         "needed 654311424, type -306708480, window layers in full 115867648"},
        {"gpt2", 1, 500,
         "0.00 I llama_kv_cache_init: kv_size = 512, offload = 1, type_k = 'f16', type_v = 'f16', n_layer = 12\n"
         "0.00 I llama_init_from_model: KV self size  =   18.00 MiB, K (f16):    9.00 MiB, V (f16):    9.00 MiB\n",
         "needed 18432000, cells 442368"},
        {"llama-3-8b", 1, 4096, /* a draft of 1 layer, of the same model or of another */
         KV "528.00 MiB (  4096 cells,  33 layers,  1/1 seqs), K (f16):  264.00 MiB, V (f16):  264.00 MiB\n"
         KV "  7.00 MiB (  4096 cells,   1 layers,  1/1 seqs), K (f16):  3.50 MiB, V (f16):  3.50 MiB\n",
         "needed 536870912, caches of another context 7340032, layers 16777216"},
        {"llama-3-8b", 1, 4096, /* of a model with twice the heads */
         KV "1024.00 MiB (  4096 cells,  32 layers,  1/1 seqs), K (f16):  512.00 MiB, V (f16):  512.00 MiB\n",
         "needed 536870912, unexplained 536870912"},
        {"bert-base-uncased", 1, 4096, KV "0.00 MiB ( 1 cells, 1 layers, 1/1 seqs), K (f16): 0.00 MiB, V (f16): 0 MiB",
         "needed 0"},
        {"llama-3-8b", 1, 4096, /* half of the layers on another machine */
         KV "256.00 MiB (  4096 cells,  16 layers,  1/1 seqs), K (f16):  128.00 MiB, V (f16):  128.00 MiB\n",
         "needed 536870912, layers -268435456"},
        {"qwen3.5-35b-a3b", 1, 4096,
         KV " 80.00 MiB (  4096 cells,  10 layers,  1/1 seqs), K (f16):   40.00 MiB, V (f16):   40.00 MiB\n",
         "needed 150732800, states, not in the log -66846720"},
        {"llama-3-70b", 1, 0, /* 80 layers of 8 heads on 4 ranks: 81,920 bytes a token */
         "config: model='m', dtype=torch.bfloat16, tensor_parallel_size=4, kv_cache_dtype=auto, \n"
         "(Worker_TP0 pid=2) INFO [gpu_worker.py:359] Available KV cache memory: 52.36 GiB\n"
         "(Worker_TP1 pid=2) INFO [gpu_worker.py:359] Available KV cache memory: 52.37 GiB\n"
         "(EngineCore_DP0 pid=2) INFO [kv_cache_utils.py:1286] GPU KV cache size: 686,320 tokens\n"
         "(EngineCore_DP0 pid=2) INFO [kv_cache_utils.py:1291] Maximum concurrency for 100,000 tokens per request: "
         "6.86x\n",
         "needed 32768000000, share of one rank -24576000000, room for more tokens 48031334400, rounding of the log "
         "-2212495"},
        {"llama-3-8b", 1, 1001, /* 16 bits, then 8; the last page has 9 of 16 tokens */
         "kv_cache_dtype=fp8_e4m3 Available KV cache memory: 0.50 GiB\nGPU KV cache size: 8,192 tokens",
         "needed 131203072, type -65601536, last pages 458752, room for more tokens 470810624"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        built b = {.table = NULL};
        mha_log_split split;
        char text[600];
        mha_model_pass pass = {.batch = rows[i].batch, .seq = rows[i].seq};
        assert_ok(build(&b, (mha_model_spec){.preset = rows[i].preset}), b.error);
        assert_ok(split_text(&b, rows[i].log, strlen(rows[i].log), &pass, &split), b.error);
        parts_text(&split, text);
        assert_string_equal(text, rows[i].parts);
        assert_true(pass.seq > 0);
        unbuild(&b);
    }
}

/* Logs without a cache, or with numbers that no cache has, are errors; others have parts that sum to their bytes. */
static void hostile_logs(void **state)
{
    (void)state;
    static const char *const logs[] = {
        "", "\n\n", "\033[31msize = \033[0m", KV, KV "1.00 MiB", "size = 1.00 MiB (",
        KV "1e308 MiB ( 1 cells, 1 layers, 1/1 seqs), K (f16): 1 MiB, V (f16): 1 MiB",
        KV "nan MiB ( 1 cells, 1 layers, 1/1 seqs), K (f16): 1 MiB, V (f16): 1 MiB",
        KV "inf MiB ( 1 cells, 1 layers, 1/1 seqs), K (f16): 1 MiB, V (f16): 1 MiB",
        KV "-1 MiB ( 1 cells, 1 layers, 1/1 seqs), K (f16): 1 MiB, V (f16): 1 MiB",
        KV "1 MiB ( 0 cells, 1 layers, 1/1 seqs), K (f16): 1 MiB, V (f16): 1 MiB",
        KV "1 MiB ( 99999999999999999999 cells, 1 layers, 1/1 seqs), K (f16): 1 MiB, V (f16): 1 MiB",
        KV "1 MiB ( 1000000000 cells, 1 layers, 9/9 seqs), K (f16): 1 MiB, V (f16): 1 MiB",
        KV "1 MiB ( 1 cells, 99999 layers, 1/1 seqs), K (f16): 1 MiB, V (f16): 1 MiB",
        KV "1 MiB ( 1 cells, 1 layers, 1/1 seqs), K (\033[2J): 1 MiB, V (f16): 1 MiB",
        KV "1 MiB ( 1 cells, 1 layers, 1/1 seqs), K (aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa): 1 MiB, V (f16): 1 MiB",
        "Available KV cache memory: 1e99 GiB\nGPU KV cache size: 16 tokens",
        "Available KV cache memory: 1 GiB\nGPU KV cache size: 99999999999999999999999999 tokens",
        "GPU KV cache size: 16 tokens", "Available KV cache memory: 1.00 GiB"};
    built b = {.table = NULL};
    mha_log_split split;
    mha_model_pass pass = {.batch = 1, .seq = 16};
    assert_ok(build(&b, (mha_model_spec){.preset = "gpt2"}), b.error);
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++)
        assert_int_equal(split_text(&b, logs[i], strlen(logs[i]), &pass, &split), MHA_FORMAT);
    assert_int_equal(split_text(&b, "a\0b\n\0", 5, &pass, &split), MHA_FORMAT);
    static char longest[100000];
    memset(longest, 'x', sizeof longest);
    memcpy(longest + 50000, KV, strlen(KV));
    assert_int_equal(split_text(&b, longest, sizeof longest, &pass, &split), MHA_FORMAT);
    const char vllm[] = "Available KV cache memory: 1.00 GiB\nGPU KV cache size: 16 tokens";
    pass.seq = 0;
    assert_int_equal(split_text(&b, vllm, strlen(vllm), &pass, &split), MHA_INVALID);
    assert_string_equal(b.error.name, "seq");
    assert_int_equal(mha_model_split_log(b.model, ".", &pass, MHA_F16, &split, &b.error), MHA_NOT_FOUND);
    assert_int_equal(mha_model_split_log(b.model, "/no/such/file", &pass, MHA_F16, &split, &b.error), MHA_NOT_FOUND);
    unbuild(&b);
}

/* What llama.cpp allocates by its own rule, for random lengths, is explained to the last byte. */
static void drawn_logs(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (int n = 0; n < 60; n++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const size_t seq = 1 + (size_t)(random >> 40) % 40000, cells = (seq + 255) / 256 * 256;
        const size_t near = (128 + 512 < cells ? 128 + 512 : cells), window = (near + 255) / 256 * 256;
        const size_t streams = 1 + (size_t)(random >> 33) % 4, row = 512 * 2 * 2;
        const double full = 12.0 * (double)(cells * streams * row), swa = 12.0 * (double)(window * streams * row);
        char log[600], text[600];
        snprintf(log, sizeof log,
                 KV "%7.2f MiB (%6zu cells, %3d layers, %2zu/%zu seqs), K (f16): %7.2f MiB, V (f16): %7.2f MiB\n" KV
                    "%7.2f MiB (%6zu cells, %3d layers, %2zu/%zu seqs), K (f16): %7.2f MiB, V (f16): %7.2f MiB\n",
                 full / 1048576, cells, 12, streams, streams, full / 2097152, full / 2097152, swa / 1048576, window, 12,
                 streams, streams, swa / 2097152, swa / 2097152);
        built b = {.table = NULL};
        mha_log_split split;
        mha_model_pass pass = {.batch = streams, .seq = seq};
        assert_ok(build(&b, (mha_model_spec){.preset = "gpt-oss-20b"}), b.error);
        assert_ok(split_text(&b, log, strlen(log), &pass, &split), b.error);
        parts_text(&split, text);
        assert_null(strstr(text, "unexplained"));
        assert_int_equal(bytes_of(&b, pass, MHA_F16, 256, 512, NULL), (size_t)(full + swa));
        unbuild(&b);
    }
}

/* A GGUF needs no tensors: metadata are enough. */
static void metadata_are_enough(void **state)
{
    (void)state;
    built b = {.table = NULL};
    mha_file *file;
    mha_model_facts facts;
    assert_ok(mha_file_open("tests/gguf/gemma2.gguf", &file, &b.error), b.error);
    assert_ok(mha_params_create(NULL, &b.table, &b.error), b.error);
    assert_ok(mha_model_of_metadata(file, b.table, &b.model, &b.error), b.error);
    assert_ok(mha_model_read_metadata(file, "blk.0", &facts, &b.error), b.error);
    const size_t row = facts.config.kv_heads * 2 * facts.config.d_k * 2; /* F16 */
    const size_t layers = mha_model_layer_count(b.model), windows = (layers + 1) / 2;
    assert_int_equal(bytes_of(&b, (mha_model_pass){1, 50, 0}, MHA_F16, 1, 0, "window"),
                     windows * row * (size_t)(facts.semantics.visible.window_left + 1));
    assert_int_equal(bytes_of(&b, (mha_model_pass){1, 50, 0}, MHA_F16, 1, 0, "all keys"),
                     (layers - windows) * row * 50);
    mha_file_close(file);
    unbuild(&b);
}

/* The header of gguf-parser-go's issue 32: a window of 128 and no pattern of layers. Tensors are not needed. */
static void header_of_gpt_oss(void **state)
{
    (void)state;
    gguf_plan p = {.count = 0};
    built b = {.table = NULL};
    gguf_text(&p, "general.architecture", "gpt-oss");
    gguf_count(&p, "gpt-oss.block_count", 24);
    gguf_count(&p, "gpt-oss.embedding_length", 2880);
    gguf_count(&p, "gpt-oss.attention.head_count", 64);
    gguf_count(&p, "gpt-oss.attention.head_count_kv", 8);
    gguf_count(&p, "gpt-oss.attention.key_length", 64);
    gguf_count(&p, "gpt-oss.attention.value_length", 64);
    gguf_count(&p, "gpt-oss.attention.sliding_window", 128);
    mha_file *file = gguf_open(&p);
    assert_ok(mha_params_create(NULL, &b.table, &b.error), b.error);
    assert_ok(mha_model_of_metadata(file, b.table, &b.model, &b.error), b.error);
    const size_t all = bytes_of(&b, (mha_model_pass){1, 131072, 0}, MHA_F16, 1, 0, "all keys");
    assert_int_equal(all, (size_t)3 << 30);
    assert_int_equal(bytes_of(&b, (mha_model_pass){1, 131072, 0}, MHA_F16, 1, 0, NULL), all + (3 << 20));
    mha_file_close(file);
    gguf_free(&p);
    unbuild(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(caches_have_the_bytes_of_created_ones), cmocka_unit_test(indexers_have_keys),
        cmocka_unit_test(public_logs),     cmocka_unit_test(hostile_logs),
        cmocka_unit_test(drawn_logs),      cmocka_unit_test(metadata_are_enough), cmocka_unit_test(header_of_gpt_oss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
