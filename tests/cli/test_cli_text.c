/* What the program tells people: sentences of every command, colours and progress on a terminal. */
#include <errno.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mha/mha.h"
#include "support/program.h"
#include "support/scratch.h"
#include "support/unit.h"

enum { MAX_ARGS = 18, MAX_TEXTS = 7 };

/* A run, its exit code and what standard output holds; "@name" is a scratch file, "!text" must not be there. */
typedef struct telling {
    const char *args[MAX_ARGS];
    int code;
    const char *texts[MAX_TEXTS];
} telling;

static const char *const *with_scratch(const char *const *args)
{
    static const char *named[MAX_ARGS + 1];
    size_t n = 0;
    for (; args[n]; n++)
        named[n] = args[n][0] == '@' ? scratch(args[n] + 1) : args[n];
    named[n] = NULL;
    return named;
}

static void tells(const telling *t)
{
    program_result r = program_run(with_scratch(t->args));
    if (r.code != t->code)
        fail_msg("mha %s %s: exit code %d, expected %d: %s", t->args[0], t->args[1], r.code, t->code, r.err);
    for (size_t i = 0; i < MAX_TEXTS && t->texts[i]; i++) {
        bool absent = t->texts[i][0] == '!';
        if (!strstr(r.out, t->texts[i] + absent) != absent)
            fail_msg("mha %s %s: \"%s\" is not as expected in:\n%s", t->args[0], t->args[1], t->texts[i], r.out);
    }
    program_free(&r);
}

static void each_tells(const telling *tellings, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tells(&tellings[i]);
}

#define EACH_TELLS(tellings) each_tells(tellings, sizeof(tellings) / sizeof *(tellings))

/* ---------------------------------------------------------------- files */

typedef struct named {
    const char *name;
    const float *values;
    int rank;
    size_t shape[4];
    mha_dtype dtype; /* what is written; F32 in memory has room enough */
} named;

static void write_tensors(const char *name, const named *tensors, size_t n)
{
    mha_writer *writer = NULL;
    mha_error error;
    assert_ok(mha_writer_create(scratch(name), &writer, &error), error);
    for (size_t i = 0; i < n; i++) {
        union {
            const float *in;
            void *out;
        } data = {tensors[i].values};
        mha_view view = mha_view_of(data.out, tensors[i].dtype, tensors[i].rank, tensors[i].shape);
        assert_ok(mha_writer_add(writer, tensors[i].name, &view, &error), error);
    }
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
}

__attribute__((format(printf, 2, 3))) static void write_text(const char *name, const char *format, ...)
{
    FILE *file = fopen(scratch(name), "w");
    assert_non_null(file);
    va_list values;
    va_start(values, format);
    vfprintf(file, format, values);
    va_end(values);
    fclose(file);
}

/* A LLaMA layer of width 8 whose metadata knows its heads. */
static void write_gguf(const char *name)
{
    static const char *const tensors[] = {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight",
                                          "blk.0.attn_output.weight"};
    static const char *const keys[] = {"general.architecture", "llama.embedding_length", "llama.attention.head_count"};
    enum { TEXT = 8, U32 = 4, F32 = 0, WIDTH = 8, MATRIX = WIDTH * WIDTH * 4 };
    bytes b = {0};
    bytes_text(&b, "GGUF");
    bytes_number(&b, 3, 4);
    bytes_number(&b, 4, 8);
    bytes_number(&b, 3, 8);
    for (size_t i = 0; i < 3; i++) {
        bytes_number(&b, strlen(keys[i]), 8);
        bytes_text(&b, keys[i]);
        bytes_number(&b, i ? U32 : TEXT, 4);
        bytes_number(&b, i == 2 ? 2 : i ? WIDTH : strlen("llama"), i ? 4 : 8);
        bytes_text(&b, i ? "" : "llama");
    }
    for (size_t i = 0; i < 4; i++) {
        bytes_number(&b, strlen(tensors[i]), 8);
        bytes_text(&b, tensors[i]);
        bytes_number(&b, 2, 4);
        bytes_number(&b, WIDTH, 8);
        bytes_number(&b, WIDTH, 8);
        bytes_number(&b, F32, 4);
        bytes_number(&b, i * MATRIX, 8);
    }
    bytes_zeros(&b, (32 - b.count % 32) % 32 + 4 * MATRIX);
    FILE *file = fopen(scratch(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(b.data, 1, b.count, file), b.count);
    fclose(file);
    bytes_free(&b);
}

static int write_files(void **state)
{
    (void)state;
    static const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8}, others[8] = {1, 2, 3, 4, 5, 6, 7, 9};
    static const float broken[12] = {0}; /* of a layer; one weight is set to NaN below */
    const named a[] = {{"x", values, 2, {2, 4, 0}, MHA_F32},
                       {"y", values, 1, {8, 0, 0}, MHA_F32},
                       {"only\ta", values, 1, {3, 0, 0}, MHA_F32}};
    const named b[] = {{"x", others, 2, {2, 4, 0}, MHA_F32},
                       {"y", values, 2, {4, 2, 0}, MHA_F32},
                       {"only b|c", values, 1, {3, 0, 0}, MHA_F32}};
    const named row[] = {{"row", values, 2, {2, 4, 0}, MHA_F32}}, batch[] = {{"batch", values, 3, {1, 2, 4}, MHA_F32}};
    write_tensors("a.safetensors", a, 3);
    write_tensors("b.safetensors", b, 3);
    write_tensors("none.safetensors", NULL, 0);
    write_tensors("row.npy", row, 1);
    write_tensors("batch.npy", batch, 1);
    float nan[8] = {1, 2, 3, 4, 5, 6, 7, 0};
    nan[7] = (float)strtod("nan", NULL);
    const named poisoned[] = {{"x", nan, 2, {2, 4, 0}, MHA_F32}};
    write_tensors("nan.safetensors", poisoned, 1);
    static float weights[4][16];
    weights[2][5] = nan[7];
    const named layer[] = {{"W_Q", weights[0], 2, {4, 4, 0}, MHA_F32}, {"W_K", weights[1], 2, {4, 4, 0}, MHA_F32},
                           {"W_V", weights[2], 2, {4, 4, 0}, MHA_F32}, {"W_O", weights[3], 2, {4, 4, 0}, MHA_F32}};
    write_tensors("poisoned.safetensors", layer, 4);
    const named misshapen[] = {{"wte.weight", broken, 2, {3, 4, 0}, MHA_F32},
                               {"h.0.ln_1.bias", broken, 1, {12, 0, 0}, MHA_F32}};
    write_tensors("misshapen.safetensors", misshapen, 2);
    static const float many[60] = {1, 2, 3}, large[8] = {1e30f, -2e30f, 3e30f, 1e30f, 2e30f, -1e30f, 1e30f, 5e30f};
    const named tied[] = {{"wte.weight", many, 2, {5, 8, 0}, MHA_F32},
                          {"lm_head.weight", many, 2, {5, 8, 0}, MHA_F32},
                          {"h.0.attn.bias", many, 4, {1, 1, 6, 6}, MHA_F32},
                          {"say \"so\"", many, 1, {2, 0, 0}, MHA_F32}};
    const named whole[] = {{"x", many, 3, {1, 2, 8}, MHA_I32}}, huge[] = {{"x", large, 2, {1, 8, 0}, MHA_F32}};
    const named mask[] = {{"m", many + 4, 2, {4, 4, 0}, MHA_F32}};
    const named half[] = {{"W_Q", weights[0], 2, {4, 4, 0}, MHA_F16}, {"W_K", weights[1], 2, {4, 4, 0}, MHA_F16},
                          {"W_V", weights[3], 2, {4, 4, 0}, MHA_F16}, {"W_O", weights[3], 2, {4, 4, 0}, MHA_F16}};
    write_tensors("tied.safetensors", tied, 4);
    write_tensors("whole.safetensors", whole, 1);
    write_tensors("huge.safetensors", huge, 1);
    write_tensors("mask.safetensors", mask, 1);
    write_tensors("half.safetensors", half, 4);
    write_tensors("not \xff UTF-8.safetensors", row, 1);
    write_text("twice.safetensors", "%c%c%c%c%c%c%c%c{\"__metadata__\":{},\"__metadata__\":{}}", 37, 0, 0, 0, 0, 0, 0,
               0);
    write_text("tiny.json",
               "{\"model_type\":\"gpt2\",\"n_embd\":8,\"n_head\":2,\"n_layer\":%d,\"vocab_size\":5,\"n_positions\":6}",
               1);
    write_text("linear.json",
               "{\"model_type\": \"qwen3_next\", \"hidden_size\": 16, \"num_attention_heads\": 2, \"head_dim\": 8,"
               " \"num_key_value_heads\": 1, \"num_hidden_layers\": 4, \"vocab_size\": 9, \"num_experts\": 2,"
               " \"linear_num_key_heads\": 2, \"linear_key_head_dim\": 3, \"linear_num_value_heads\": 4,"
               " \"linear_value_head_dim\": 5}");
    write_text("none.json",
               "{\"model_type\":\"gpt2\",\"n_embd\":8,\"n_head\":2,\"n_layer\":%d,\"vocab_size\":5,\"n_positions\":6}",
               0);
    write_gguf("layer.gguf");
    return 0;
}

/* ---------------------------------------------------------------- sentences */

#define LAYER "--d-model", "8", "--heads", "2", "--seq", "4", "--threads", "1"

static void forwards(void **state)
{
    (void)state;
    static const telling tellings[] = {
        {{"forward", LAYER, "--causal", "--window", "1,0", "--lengths", "3", "--softcap", "5", "--rope", "half"},
         0,
         {"rope half_split, causal, window_left 1, window_right 0, kv_lengths (B), softcap 5", "cap(Q_i K_i^T"}},
        {{"forward", LAYER, "--kv-heads", "1", "--d-v", "3", "--rope", "interleaved", "--rope-base", "500"},
         0,
         {", d_v 3; 1 key/value heads, each read by 2 query heads", "rope interleaved, rope_base 500"}},
        {{"forward", LAYER, "--alibi", "--cu-seqlens", "0,3,4"},
         0,
         {"meaning  n_sequences 2, cu_seqlens_q (n_sequences + 1), alibi_slopes (h)\n"}},
        {{"forward", LAYER, "--lengths", "0"}, 0, {"query     0  looks at no key"}},
        {{"forward", LAYER, "--merged-qk"},
         0,
         {"Scores (1, 2, 4, 4), float64", "with one (8, 8) matrix per head; the biases' terms",
          ": equal", "rank of W_0: 4 of at most d_k = 4", "elements: 144 in the pair, 162 merged"}},
        {{"forward", LAYER, "--merged-qk", "--no-bias"},
         0,
         {"matrix per head\n", "elements: 128 in the pair, 128 merged"}},
        {{"forward", LAYER, "--merged-qk", "--quiet"}, 0, {"!Scores"}},
        {{"forward", "--d-model", "16", "--heads", "1", "--seq", "2049", "--threads", "1"},
         0,
         {"!What head 0 looks at", "4,198,401 weights are too many"}},
        {{"forward", LAYER},
         0,
         {"What head 0 looks at", "keys 0 to 3 from left to right", "head 1", "--head N shows one head"}},
        {{"forward", LAYER, "--cache-dtype", "f16"}, 0, {"What head 0 looks at", "keys 0 to 3 from left to right"}},
        {{"forward", LAYER, "--head", "1"}, 0, {"What head 1 looks at", "head 1", "!head 0", "!--head N"}},
        {{"forward", LAYER, "--head", "1", "--query", "3"},
         0,
         {"What head 1 looks at", "query     3", "!query     0", "!left to right"}},
        {{"forward", LAYER, "--cu-seqlens", "0,3,4", "--query", "2"}, 0, {"each query has 3 weights", "query     2"}},
        {{"forward", LAYER, "--mask", "@mask.safetensors"},
         0,
         {"meaning  mask_kind additive, mask F32 (4, 4)\n", ", hidden keys left out"}},
        {{"forward", LAYER, "--path", "exact", "--kv-seq", "5"},
         0,
         {"4 queries, 5 keys (cross-attention)", "run on   path exact, 1 thread\n", "!timed together"}},
        {{"forward", "--weights", "@layer.gguf", "--seq", "2"},
         0,
         {"(GGUF names)", "model    llama, as its metadata says"}},
        {{"forward", "--weights", "@half.safetensors", "--heads", "2", "--seq", "2", "--orientation", "in-out"},
         0,
         {"F32 (file: F16)"}},
    };
    EACH_TELLS(tellings);
    assert_program_refuses(RUN("forward", LAYER, "--merged-qk", "--rope", "half"), 2, "--merged-qk: *rotation");
    assert_program_refuses(RUN("forward", LAYER, "--head", "2"), 2, "--head: expected a head from 0 to 1, found 2");
    assert_program_refuses(RUN("forward", LAYER, "--query", "4"), 2, "--query: expected one of 4 queries");
    assert_program_refuses(RUN("forward", LAYER, "--cu-seqlens", "0,3,4", "--query", "3"), 2,
                           "--query: expected one of 3 queries");
    assert_program_refuses(RUN("forward", LAYER, "--merged-qk", "--output", "x.npy"), 2, "--output");
    assert_program_refuses(RUN("params", "--merged-qk", "--preset", "gpt2"), 2, "--preset");
    assert_program_refuses(RUN("forward", LAYER, "--input", scratch("whole.safetensors")), 2,
                           "--input: expected floating-point numbers, found I32");
    program_result r = RUN("forward", "--d-model", "8", "--heads", "2", "--input", scratch("huge.safetensors"));
    assert_int_equal(r.code, 1);
    assert_non_null(strstr(r.err, "mha forward: output: expected finite numbers, found "));
    assert_non_null(strstr(r.out, "query     0  looks at NaN"));
    program_free(&r);
    r = RUN("forward", "--weights", scratch("poisoned.safetensors"), "--heads", "2", "--seq", "3", "--orientation",
            "in-out");
    assert_int_equal(r.code, 1);
    assert_non_null(strstr(r.err, "W_V: expected finite weights, found 1 NaN or infinite; so are "));
    program_free(&r);
}

static void tables(void **state)
{
    (void)state;
    static const telling tellings[] = {
        {{"params", "--preset", "gpt2", "--seq", "16"},
         0,
         {"GPT-2 (GPT2LMHeadModel): d_model 768, 12 heads of 64, 12 attention layers",
          "160 storages, 1 of the 161 names an alias", "buffers, not learned: 12,582,912 elements in 48.0 MiB",
          "one forward pass, batch 1, length 16", "key/value cache: 1.12 MiB in F32, 576 KiB in F16",
          "workspace of one attention layer: "}},
        {{"params", "--preset", "bert-base-uncased", "--seq", "4"}, 0, {"!key/value cache", "one forward pass"}},
        {{"params", "--preset", "mixtral", "--seq", "4096"}, 0, {"feed-forward 92367.567 (2 of 8 experts)"}},
        {{"params", "--preset", "deepseek-v3", "--seq", "4096"}, 0, {"feed-forward 198938.590 (8 of 256 experts)"}},
        {{"params", "--preset", "gemma-2-2b", "--seq", "8192"},
         0,
         {"13 attention layers of 8,192 x 8,192 tokens, 37.5 % of the pairs visible, 4,096 rows cached",
          "13 attention layers of 8,192 x 8,192 tokens, 50 % of the pairs visible, 8,192 rows cached",
          "key/value cache: 1.22 GiB in F32, 624 MiB in F16"}},
        {{"params", "--preset", "swin-tiny", "--seq", "3136"},
         0,
         {"batch 1, lengths of the configuration (--seq changes none)", "in all 8.981 over all pairs",
          "2 attention layers of 49 x 49 tokens in 64 windows", "!cached"}},
        {{"params", "--preset", "whisper", "--seq", "448"},
         0,
         {"32 attention layers, cross, of 448 x 1,500 tokens, 1,500 rows cached", "!relative terms",
          "key/value cache: 609 MiB in F32, 304 MiB in F16, 469 MiB and 234 MiB of them cross-attention's"}},
        {{"params", "--preset", "clip", "--seq", "77"},
         0,
         {"in all 14.777 over all pairs", "not counted: the products of every text with every image", "!cache"}},
        {{"params", "--preset", "deberta-base", "--seq", "512"}, 0, {"relative terms 19.327 "}},
        {{"params", "--config", "@linear.json", "--seq", "5000"},
         0,
         {"linear attention 0.048 ", "states of linear attention, for any length: 2.20 KiB in F32, 1.10 KiB in F16"}},
        {{"params", "--preset", "llama-2-70b", "--group", "dtype"},
         0,
         {"64 heads, 8 key/value heads of 128", "  F32 "}},
        {{"params", "--preset", "gpt2", "--group", "layer"},
         0,
         {"(outside the blocks)        4  39,385,344", "  h.11  "}},
        {{"params", "--preset", "gpt2", "--group", "part", "--format", "markdown"}, 0, {"| part ", "!GPT-2"}},
        {{"params", "--preset", "gpt2", "--sort", "elements"}, 0, {"elements"}},
        {{"params", "--preset", "gpt2", "--only", "attention"},
         0,
         {"total  28,348,416 parameters of attention in 108 MiB, 60 storages",
          "that is 22.78 % of all 124,439,808 parameters"}},
        {{"params", "--weights", "@a.safetensors"}, 0, {" elements in ", "the elements in F64", "!parameters"}},
        {{"params", "--preset", "gpt2", "--per-head"},
         0,
         {"One attention layer, head by head", "head 11", "columns 704 to 767"}},
        {{"params", "--weights", "@a.safetensors"}, 0, {"safetensors, 3 tensors, 76 B of data", "only?a"}},
        {{"params", "--weights", "@b.safetensors", "--format", "markdown"}, 0, {"only b\\|c"}},
        {{"params", "--weights", "@b.safetensors", "--format", "csv"}, 0, {"only b|c,"}},
        {{"params", "--weights", "@misshapen.safetensors", "--preset", "gpt2"},
         1,
         {"against gpt2 (GPT-2, GPT2LMHeadModel): 124,439,808 parameters expected",
          "wte.weight: expected (50257, 768), found (3, 4)", "missing ", "... and "}},
        {{"params", "--weights", "weights/lookup/model.safetensors", "--per-head", "--seq", "3"},
         0,
         {"0 tensors missing, extra or misshapen", "head 5  (48, 8)   columns 40 to 47", "key/value cache: 1.12 KiB"}},
        {{"params", "--format", "csv", "--per-head", "--d-model", "8", "--heads", "2"},
         0,
         {"W_K[head 1],W_K,\"(8, 4)\",F32,F32,32,128,2,W_K,true,view,0\n", "!b_O[head"}},
        {{"params", "--merged-qk", "--d-model", "24", "--heads", "4"},
         0,
         {"biases become vectors u_Q, u_K", "      1   24           1,200               625",
          "rank of W_0: 6 of at most d_k = 6"}},
        {{"params", "--merged-qk", "--d-model", "24", "--heads", "4", "--no-bias"},
         0,
         {"(24, 24) for each of 4 heads\n", "1,152              1,152  equal", "from 3 heads on the pair is smaller"}},
        {{"heads", "--d-model", "24", "--heads", "2,4", "--d-k", "4", "--d-v", "8", "--seq", "2"},
         1,
         {"d_k and d_v are held fixed"}},
        {{"heads", "--preset", "llama-2-70b", "--heads", "32,64"},
         1,
         {"key/value heads are held fixed while d_k = d_model / heads shrinks"}},
        {{"heads", "--config", "@tiny.json", "--run", "--seq", "4", "--heads", "1,2"},
         0,
         {"The same total in every row", "largest |output|"}},
        {{"params", "--weights", "@tied.safetensors"},
         0,
         {"in the file 118, tied tensors once 42, without buffers 82",
          "stored twice lm_head.weight (5, 8), tied to wte.weight\n",
          "h.0.attn.bias (1, 1, 6, 6), not learned: counters that sum a file include it"}},
        {{"params", "--weights", "@tied.safetensors", "--config", "@tiny.json"},
         1,
         {"missing, extra or misshapen", "extra        say \"so\" (2,)"}},
        {{"params", "--weights", "@tied.safetensors", "--config", "@tiny.json", "--quiet"}, 1, {"!missing"}},
        {{"params", "--weights", "@tied.safetensors", "--config", "@tiny.json", "--json"},
         1,
         {"\"differences\": 16", "\"tied_to\": \"wte.weight\"", "\"kind\": \"extra\""}},
        {{"params", "--weights", "@tied.safetensors", "--format", "csv"},
         0,
         {"\n\"say \"\"so\"\"\",,\"(2,)\",F32,F32,2,8,3,,true,parameter,0\n"}},
        {{"params", "--weights", "@not \xff UTF-8.safetensors", "--json"}, 0, {"not ? UTF-8.safetensors\""}},
        {{"params", "--preset", "gpt2", "--group", "role", "--format", "csv"},
         0,
         {"\npositions,1,786432,0.63,3145728\n"}},
        {{"params", "--d-model", "4", "--heads", "4", "--per-head"},
         0,
         {"head 3  (4, 1)  column 3 ", "head 2  (1,)    element 2", "head 1  (1, 4)  row 1 "}},
        {{"params", "--config", "@none.json", "--seq", "3"},
         0,
         {"one forward pass", "0 attention layers", "!workspace"}},
        {{"heads", "--d-model", "24", "--heads", "2,4", "--kv-heads", "2", "--d-v", "6", "--seq", "2", "--no-bias"},
         0,
         {"The widths differ from row to row, and the totals come out the same here."}},
        {{"heads", "--d-model", "24", "--heads", "2,4", "--kv-heads", "2", "--seq", "2"},
         1,
         {"the number of key/value heads is held fixed"}},
        {{"heads", "--d-model", "24", "--kdim", "12", "--heads", "2,4", "--seq", "2", "--quiet"}, 0, {"!heads"}},
        {{"heads", "--config", "@tiny.json", "--heads", "1,2", "--quiet"}, 0, {"!heads"}},
        {{"claims"}, 0, {"page 001", "  false "}},
        {{"claims", "--quiet"}, 0, {"!page"}},
        {{"info"}, 0, {"BLAS threading", "instruction set"}},
    };
    EACH_TELLS(tellings);
    const telling scalar = {{"info"}, 0, {"instruction set  scalar"}}, unset = {{"info"}, 0, {"instruction set  "}},
                  unneeded = {{"params", "--d-model", "8", "--heads", "2", "--quiet"}, 0, {"!8"}};
    setenv("MHA_ISA", "scalar", 1);
    tells(&scalar);
    setenv("MHA_ISA", "abacus",
           1); /* not one of this machine; an option comes before it, and who needs none does not mind */
    assert_program_refuses(RUN("info"), 2,
                           "mha info: MHA_ISA: expected one this machine has (*scalar), found \"abacus\"");
    assert_program_refuses(RUN("check", "tests/vectors/torch_one_token.safetensors"), 2, "mha check: MHA_ISA: *abacus");
    tells(&(telling){{"info", "--isa", "scalar"}, 0, {"instruction set  scalar"}});
    tells(&unneeded);
    setenv("MHA_ISA", "", 1);
    tells(&unset);
    unsetenv("MHA_ISA");
    assert_program_refuses(RUN("check", "--isa", "abacus", "tests/vectors/torch_one_token.safetensors"), 2,
                           "--isa: *abacus");
    assert_program_refuses(RUN("params", "--weights", scratch("a.safetensors"), "--per-head"), 2,
                           "--per-head: *unknown configuration");
    assert_program_refuses(RUN("params", "--weights", scratch("a.safetensors"), "--seq", "4"), 2,
                           "--seq: *unknown configuration");
    assert_program_refuses(RUN("params", "--config", scratch("none.json"), "--per-head"), 2,
                           "--per-head: *attention layers, found none");
    assert_program_refuses(RUN("params", "--weights", scratch("twice.safetensors")), 2,
                           "__metadata__: expected it once, found it twice (byte ");
    assert_program_refuses(RUN("params", "--preset", "gpt2", "--seq", "16777216", "--batch", "16777216"), 2,
                           "--seq: *fit in 64 bits");
    assert_program_refuses(RUN("params", "--preset", "gpt2", "--seq", "16777216", "--batch", "16777216", "--json"), 2,
                           "--seq: *fit in 64 bits");
    assert_program_refuses(RUN("heads", "--d-model", "7", "--kv-heads", "5"), 2, "--heads: *none to try");
    assert_program_refuses(RUN("heads", "--preset", "gpt2", "--heads", "5"), 2, "--heads: *768*5");
}

static void comparisons(void **state)
{
    (void)state;
    static const telling tellings[] = {
        {{"compare", "@a.safetensors", "@b.safetensors"},
         1,
         {"x              8       1         1    0.111", "only?a: only in the first file",
          "only b|c: only in the second file", "y: shapes differ: (8,) and (4, 2)", "Not all equal",
          "4 of 4 tensors differ."}},
        {{"compare", "@a.safetensors", "@b.safetensors", "--json"},
         1,
         {"\"reason\": \"only in the second file\"", "\"equal\": false"}},
        {{"compare", "@a.safetensors:x", "@b.safetensors"}, 1, {"Not equal", "!tensors differ"}},
        {{"compare", "@a.safetensors", "@b.safetensors:x", "--atol", "1"}, 0, {"Equal (rtol 0, atol 1)"}},
        {{"compare", "@row.npy", "@batch.npy"}, 0, {"(unnamed)", "Equal"}},
        {{"compare", "@batch.npy", "@row.npy"}, 0, {"Equal"}},
        {{"compare", "@row.npy", "@a.safetensors:x"}, 0, {"Equal"}},
        {{"compare", "@row.npy", "@a.safetensors:y"}, 1, {"shapes differ: (2, 4) and (8,)", "!elements"}},
        {{"compare", "@nan.safetensors", "@a.safetensors:x"}, 1, {"NO"}},
        {{"compare", "@nan.safetensors", "@nan.safetensors", "--json"}, 0, {"\"nan_a\": 1", "\"nan_b\": 1"}},
        {{"compare", "@a.safetensors", "@a.safetensors", "--quiet"}, 0, {"!Equal"}},
    };
    EACH_TELLS(tellings);
    assert_program_refuses(RUN("compare", scratch("none.safetensors"), scratch("none.safetensors")), 2,
                           "expected tensors to compare");
    assert_program_refuses(RUN("compare", scratch("row.npy"), scratch("a.safetensors")), 2,
                           "expected FILE:TENSOR, found a file of 3");
}

static void cases(void **state)
{
    (void)state;
    static const telling tellings[] = {
        {{"diagnose", "tests/vectors/torch_one_token.safetensors"},
         0,
         {"It is what the case says it should be, within float32 rounding.",
          "This input would not show the difference to:"}},
        {{"check", "tests/vectors/torch_one_token.safetensors"}, 0, {"1 passed, 0 failed, 0 skipped", "output"}},
        {{"check", "tests/vectors/torch_one_token.safetensors", "tests/vectors/torch_padding.safetensors"},
         0,
         {"of the tolerance used", "2 passed, 0 failed, 0 skipped"}},
        {{"check", "tests/vectors/torch_one_token.safetensors", "@a.safetensors"},
         1,
         {"1 passed, 1 failed, 0 skipped"}},
    };
    EACH_TELLS(tellings);
}

/* ---------------------------------------------------------------- a terminal */

/* Everything a program writes to a terminal, both streams; `variable` is put into its environment. */
static char *on_a_terminal_of(unsigned short columns, const char *variable, const char *const *args, int *code)
{
    const char *program = getenv("MHA_PROGRAM"), *argv[MAX_ARGS + 2] = {"mha"};
    for (size_t i = 0; args[i]; i++)
        argv[i + 1] = args[i];
    int terminal, status;
    fflush(NULL);
    pid_t pid = forkpty(&terminal, NULL, NULL, &(struct winsize){.ws_row = 50, .ws_col = columns});
    if (pid < 0) { /* a container may have no pseudo-terminals */
        skip_because("the system gives no terminal: %s", strerror(errno));
    }
    if (pid == 0) {
        setenv("TERM", "xterm", 1);
        unsetenv("NO_COLOR");
        if (variable)
            putenv(strdup(variable));
        execv(program && *program ? program : "build/mha", (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    size_t size = 0, room = 1 << 20;
    char *text = calloc(room, 1);
    for (ssize_t n; size + 1 < room && (n = read(terminal, text + size, room - 1 - size)) != 0;)
        if (n > 0)
            size += (size_t)n;
        else if (errno != EINTR)
            break; /* EIO: nobody writes any more */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(terminal);
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    return text;
}

static char *on_a_terminal(const char *variable, const char *const *args, int *code)
{
    return on_a_terminal_of(0, variable, args, code);
}

/* Tables keep to the width of the terminal: columns that matter less are left out, text goes on in lines below. */
static void a_narrow_terminal_is_enough(void **state)
{
    (void)state;
    static const struct {
        const char *args[MAX_ARGS];
        unsigned short columns;
        const char *there, *not_there;
    } runs[] = {
        {{"check", "tests/vectors/torch_padding.safetensors"}, 80, "not shown for want of room: ", "no such text"},
        {{"check", "tests/vectors/torch_padding.safetensors"}, 200, "max ULP", "no such text"},
        {{"claims"}, 80, "verdict", "no such text"},
        {{"claims"}, 120, "verdict", "no such text"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        int code;
        char *text = on_a_terminal_of(runs[i].columns, "NO_COLOR=1", runs[i].args, &code);
        if (code != 0 || !strstr(text, runs[i].there) || strstr(text, runs[i].not_there))
            fail_msg("run %zu: exit code %d, on the terminal: %s", i, code, text);
        for (char *line = strtok(text, "\r\n"); line; line = strtok(NULL, "\r\n"))
            if (strlen(line) > runs[i].columns)
                fail_msg("run %zu: a line of %zu characters: %s", i, strlen(line), line);
        free(text);
    }
}

static void a_terminal_gets_colours_and_progress(void **state)
{
    (void)state;
    static const struct {
        const char *variable;
        const char *args[MAX_ARGS];
        const char *there, *not_there;
    } runs[] = {
        {NULL, {"forward", LAYER}, "\033[1m", "\r\033[K"},
        {"NO_COLOR=1", {"forward", LAYER}, "Configuration", "\033["},
        {"TERM=dumb", {"forward", LAYER}, "Configuration", "\033["},
        {NULL, {"check", "tests/vectors"}, " cases \r", "no such text"},
        {NULL, {"check", "tests/vectors", "--quiet"}, "", " cases \r"},
        {NULL, {"power", "tests/vectors/torch_one_token.safetensors"}, " variants \r", "no such text"},
        {NULL, {"bench", "--shape", "1,4,4,8,2", "--rounds", "1", "--threads", "1"},
         "0 of 1 rounds of 1,4,4,8,2 layer", "no such text"},
        {NULL, {"bench", "--shape", "1,4,4,8,2", "--rounds", "1", "--threads", "1", "--quiet"}, "", "rounds of"},
        {NULL, {"help", "forward"}, "--d-model", "no such text"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        int code;
        char *text = on_a_terminal(runs[i].variable, runs[i].args, &code);
        if (code != 0 || !strstr(text, runs[i].there) || strstr(text, runs[i].not_there))
            fail_msg("run %zu: exit code %d, on the terminal: %s", i, code, text);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forwards),
        cmocka_unit_test(tables),
        cmocka_unit_test(comparisons),
        cmocka_unit_test(cases),
        cmocka_unit_test(a_narrow_terminal_is_enough),
        cmocka_unit_test(a_terminal_gets_colours_and_progress),
    };
    return cmocka_run_group_tests_name("cli_text", tests, write_files, scratch_remove);
}
