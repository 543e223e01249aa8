/* The costs of a forward pass: experts, windows, encoders, towers and states by hand; whole models beside what PyTorch
 * counted while transformers ran them. */
#include <stdio.h>
#include <string.h>

#include "mha/lab.h"
#include "support/built.h"
#include "support/scratch.h"
#include "support/unit.h"

static void build_preset(built *b, const char *name)
{
    assert_ok(build(b, (mha_model_spec){.preset = name}), b->error);
}

static mha_model_costs costs_of(built *b, size_t batch, size_t seq, size_t encoder_seq)
{
    mha_model_costs costs;
    assert_ok(mha_model_costs_of(b->model, &(mha_model_pass){batch, seq, encoder_seq}, &costs, &b->error), b->error);
    return costs;
}

static mha_model_lengths lengths_of(built *b, size_t seq, size_t encoder_seq, size_t index)
{
    mha_model_lengths lengths;
    assert_ok(mha_model_layer_lengths(b->model, &(mha_model_pass){1, seq, encoder_seq}, index, &lengths, &b->error),
              b->error);
    return lengths;
}

static uint64_t in_all(const mha_model_costs *c)
{
    return c->projections + c->scores_full + c->feed_forward + c->heads + c->patches + c->relative + c->linear;
}

/* Counts of torch.utils.flop_counter for transformers 5.23, without rotations, tables made of weights alone, and the
 * product of texts and images: tests/peers/costs_peer.py --presets 512. */
static void operations_are_those_of_the_library(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        size_t seq, encoder_seq;
        uint64_t operations;
    } rows[] = {
        {"albert-base-v2", 512, 0, 96738607104},
        {"beit-base-patch16-224", 512, 0, 35127656448},
        {"bert-base-uncased", 512, 0, 96637943808},
        {"clip-vit-base-patch32", 77, 0, 14777163776},
        {"deberta-base", 512, 0, 115964116992},
        {"deberta-v3-base", 512, 0, 106300440576},
        {"deepseek-v3", 512, 0, 38813552345088},
        {"deepseek-v3.2", 512, 0, 39685497815040}, /* without the indexers' scores, as of GLM-5 */
        {"ernie-4.5-0.3b", 512, 0, 408021893120},
        {"glm-4.5-air", 512, 0, 13702287851520},
        {"glm-5", 512, 0, 43151939076096},
        {"gpt-oss-120b", 512, 0, 5408865386496},
        {"gpt-oss-20b", 512, 0, 3796793032704},
        {"minimax-m2", 512, 0, 11064506843136},
        {"qwen3-next-80b-a3b", 512, 0, 3758599700480},
        {"qwen3.5-35b-a3b", 512, 0, 3108230922240},
        {"distilbert-base-uncased", 512, 0, 72925839360},
        {"falcon-7b", 512, 0, 7240006238208},
        {"gemma-2-2b", 512, 0, 2732672942080},
        {"gpt2-xl", 512, 0, 1672821145600},
        {"llama-3-70b", 512, 0, 71856950345728},
        {"mistral-nemo-12b", 512, 0, 12025908428800},
        {"mixtral-8x7b-v0.1", 512, 0, 13191992049664},
        {"modernbert-base", 512, 0, 170875944960},
        {"mpnet-base", 512, 0, 121248153600},
        {"phi-3-mini-4k", 512, 0, 3914795581440},
        {"qwen3-0.6b", 512, 0, 670417551360},
        {"roberta-base", 512, 0, 136770748416},
        {"swin-tiny-patch4-window7-224", 3136, 0, 8981133312},
        {"swinv2-tiny-patch4-window8-256", 1, 0, 11842056192},
        {"t5-base", 512, 256, 194380824576},
        {"t5-11b", 512, 256, 9413897224192},
        {"umt5-small", 512, 256, 173879066624},
        {"vit-base-patch16-224", 8, 0, 35127656448},
        {"whisper-large-v3", 512, 0, 3576724193280},
        {"whisper-large-v3", 512, 1500, 3576724193280},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        built b;
        build_preset(&b, rows[i].preset);
        const mha_model_costs once = costs_of(&b, 1, rows[i].seq, rows[i].encoder_seq),
                              twice = costs_of(&b, 2, rows[i].seq, rows[i].encoder_seq);
        if (in_all(&once) != rows[i].operations)
            fail_msg("%s: %llu operations", rows[i].preset, (unsigned long long)in_all(&once));
        assert_int_equal(in_all(&twice), 2 * in_all(&once));
        assert_int_equal(twice.cache_elements, 2 * once.cache_elements);
        assert_int_equal(twice.scores_causal, 2 * once.scores_causal);
        unbuild(&b);
    }
}

/* Of 8 experts 2 are used, and the router asks for all 8; of 256, 8, beside a shared one and three dense layers. */
static void experts_that_are_used_are_counted(void **state)
{
    (void)state;
    built b;
    build_preset(&b, "mixtral-8x7b-v0.1");
    const uint64_t expert = 3ull * 4096 * 14336;
    assert_int_equal(costs_of(&b, 1, 4096, 0).feed_forward, 2ull * 4096 * 32 * (2 * expert + 8 * 4096));
    assert_int_equal(costs_of(&b, 3, 5, 0).feed_forward, 2ull * 15 * 32 * (2 * expert + 8 * 4096));
    unbuild(&b);
    build_preset(&b, "deepseek-v3");
    const uint64_t small = 3ull * 7168 * 2048;
    assert_int_equal(costs_of(&b, 1, 4096, 0).feed_forward,
                     2ull * 4096 * (3 * 3ull * 7168 * 18432 + 58 * (9 * small + 256 * 7168)));
    unbuild(&b);
    /* Experts in one tensor, whose biases multiply nothing; top_k that is no less than all. */
    for (size_t k = 1; k < 8; k += 3) {
        char config[300];
        snprintf(config, sizeof config,
                 "{\"model_type\": \"gpt_oss\", \"hidden_size\": 16, \"num_attention_heads\": 2, \"head_dim\": 8,"
                 " \"num_key_value_heads\": 1, \"num_hidden_layers\": 2, \"intermediate_size\": 6,"
                 " \"num_local_experts\": 6, \"num_experts_per_tok\": %zu, \"sliding_window\": 3, \"vocab_size\": 9}",
                 k);
        assert_ok(build_text(&b, config, NULL, NULL), b.error);
        assert_int_equal(costs_of(&b, 1, 5, 0).feed_forward, 2 * 5 * 2 * ((k < 6 ? k : 6) * 3 * 16 * 6 + 6 * 16));
        unbuild(&b);
    }
}

/* w (T - w) + w (w + 1) / 2 pairs of a causal window of w keys. */
static uint64_t causal_pairs(uint64_t T, uint64_t w)
{
    return w < T ? w * (T - w) + w * (w + 1) / 2 : T * (T + 1) / 2;
}

/* Layers of either kind are counted by themselves: in pairs, and in the rows that caches keep. */
static void windows_count_in_pairs_and_caches(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        size_t seq, window, near, far, row, heads_width; /* layers with and without it; elements of a cached row */
    } rows[] = {{"gemma-2-2b", 8192, 4096, 13, 13, 2 * 4 * 256, 2 * 8 * 256},
                {"mistral-7b-v0.1", 16384, 4096, 32, 0, 2 * 8 * 128, 2 * 32 * 128},
                {"phi-3-mini-4k", 4096, 2047, 32, 0, 2 * 32 * 96, 2 * 32 * 96},
                {"mistral-7b-v0.1", 4096, 4096, 32, 0, 2 * 8 * 128, 2 * 32 * 128},
                {"mistral-7b-v0.3", 16384, 16384, 32, 0, 2 * 8 * 128, 2 * 32 * 128}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        built b;
        const uint64_t T = rows[i].seq, w = rows[i].window;
        build_preset(&b, rows[i].preset);
        const mha_model_costs costs = costs_of(&b, 1, T, 0);
        assert_int_equal(costs.cache_elements, (rows[i].near * w + rows[i].far * T) * rows[i].row);
        const uint64_t visible = rows[i].near * causal_pairs(T, w) + rows[i].far * causal_pairs(T, T);
        assert_int_equal(costs.scores_causal, 2 * rows[i].heads_width * visible);
        assert_int_equal(costs.scores_full, 2 * rows[i].heads_width * (rows[i].near + rows[i].far) * T * T);
        assert_int_equal(lengths_of(&b, T, 0, 0).cached, w);
        unbuild(&b);
    }
    built b;
    build_preset(&b, "gemma-2-2b"); /* 624 MiB in F16 at 8,192 tokens, not 832 */
    assert_int_equal(costs_of(&b, 1, 8192, 0).cache_elements * 2, 624ull << 20);
    unbuild(&b);
    /* ModernBERT: every third of 22 layers sees all, others 64 keys on either side; nothing is cached. */
    build_preset(&b, "modernbert-base");
    const uint64_t T = 8192, both = 129 * T - 2 * (64 * 65 / 2);
    const mha_model_costs costs = costs_of(&b, 1, T, 0);
    assert_int_equal(costs.scores_causal, 2 * 2 * 768 * (8 * T * T + 14 * both));
    assert_int_equal(costs.cache_elements, 0);
    unbuild(&b);
    /* DeepSeek-V3.2: a query attends to 2,048 of the keys that it sees, and all are kept. */
    build_preset(&b, "deepseek-v3.2");
    const mha_model_lengths chosen = lengths_of(&b, 5000, 0, 60);
    assert_true(chosen.visible == causal_pairs(5000, 2048) && chosen.cached == 5000);
    assert_true(strstr(costs_of(&b, 1, 5000, 0).not_counted, "indexers' scores"));
    unbuild(&b);
    /* Chunks of 4 in 9 positions: 10 + 10 + 1 pairs, 4 rows; every second layer sees all. */
    assert_ok(build_text(&b,
                         "{\"model_type\": \"llama4_text\", \"hidden_size\": 16, \"num_attention_heads\": 2,"
                         " \"head_dim\": 8, \"num_key_value_heads\": 1, \"num_hidden_layers\": 2,"
                         " \"no_rope_layer_interval\": 2, \"attention_chunk_size\": 4, \"vocab_size\": 9}",
                         NULL, NULL),
              b.error);
    assert_int_equal(lengths_of(&b, 9, 0, 0).visible, 21);
    assert_int_equal(lengths_of(&b, 9, 0, 0).cached, 4);
    assert_int_equal(lengths_of(&b, 9, 0, 1).visible, 45);
    assert_int_equal(lengths_of(&b, 9, 0, 1).cached, 9);
    assert_int_equal(costs_of(&b, 2, 9, 0).cache_elements, 2 * (4 + 9) * 16);
    unbuild(&b);
}

/* The encoder's length is a number of its own: its layers, the keys and values of cross-attention, their cache. */
static void an_encoder_has_its_own_length(void **state)
{
    (void)state;
    built b;
    build_preset(&b, "t5-base");
    const uint64_t d = 768, ff = 3072, L = 12;
    for (size_t seq = 1; seq < 600; seq += 511)
        for (size_t encoder = 0; encoder < 800; encoder += 7 + 90 * encoder) {
            const uint64_t T = seq, S = encoder ? encoder : seq;
            const mha_model_costs c = costs_of(&b, 1, seq, encoder);
            assert_int_equal(c.projections, 2 * L * d * d * (4 * S + 4 * T + 2 * T + 2 * S));
            assert_int_equal(c.scores_full, 2 * L * 2 * d * (S * S + T * T + T * S));
            assert_int_equal(c.scores_causal, 2 * L * 2 * d * (S * S + T * (T + 1) / 2 + T * S));
            assert_int_equal(c.feed_forward, 2 * L * 2 * d * ff * (S + T));
            assert_int_equal(c.cache_elements, L * 2 * d * (T + S));
            assert_int_equal(c.cross_elements, L * 2 * d * S);
        }
    const mha_model_lengths cross = lengths_of(&b, 5, 7, 2 * L);
    assert_true(cross.cross && cross.queries == 5 && cross.keys == 7 && cross.cached == 7 && cross.windows == 1);
    assert_false(lengths_of(&b, 5, 7, 0).cross);
    assert_int_equal(lengths_of(&b, 5, 7, 0).cached, 0);
    unbuild(&b);
    build_preset(&b, "whisper-large-v3"); /* 448 tokens and 1,500 frames: 0.23 of the cache is the decoder's own */
    assert_int_equal(costs_of(&b, 1, 448, 0).cache_elements, 32ull * 2 * 1280 * (448 + 1500));
    assert_int_equal(costs_of(&b, 1, 448, 100).cache_elements, 32ull * 2 * 1280 * (448 + 100));
    assert_int_equal(costs_of(&b, 1, 448, 0).patches, 2ull * 1280 * 3 * (3000 * 128 + 1500 * 1280));
    unbuild(&b);
}

/* Lengths of images follow from the configuration, whatever the text has. */
static void towers_have_the_lengths_of_their_images(void **state)
{
    (void)state;
    static const char *const fixed[] = {"swin-tiny-patch4-window7-224", "swinv2-tiny-patch4-window8-256",
                                        "vit-base-patch16-224", "beit-base-patch16-224"};
    built b;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        build_preset(&b, fixed[i]);
        const mha_model_costs some = costs_of(&b, 1, 3136, 0), more = costs_of(&b, 1, 7, 0);
        assert_int_equal(in_all(&some), in_all(&more));
        unbuild(&b);
    }
    build_preset(&b, "swin-tiny-patch4-window7-224");
    mha_model_lengths of = lengths_of(&b, 1, 0, 0);
    assert_true(of.queries == 49 && of.keys == 49 && of.windows == 64 && of.pairs == 64 * 49 * 49);
    unbuild(&b);
    /* SAM: 5 x 5 cells in windows of 3 x 3, and as a whole; 6 rows, or 10, of tables of relative positions. */
    assert_ok(build_text(&b,
                         "{\"model_type\": \"sam_vision_model\", \"hidden_size\": 16, \"num_attention_heads\": 2,"
                         " \"num_hidden_layers\": 2, \"image_size\": 40, \"patch_size\": 8, \"window_size\": 3,"
                         " \"global_attn_indexes\": [1]}",
                         NULL, NULL),
              b.error);
    of = lengths_of(&b, 1, 0, 0);
    assert_true(of.queries == 9 && of.windows == 4 && lengths_of(&b, 1, 0, 1).queries == 25);
    assert_int_equal(costs_of(&b, 3, 1, 0).relative, 3ull * 2 * 16 * (4 * 9 * 6 + 25 * 10));
    unbuild(&b);
    /* ViTMAE sees int(9 * (1 - 0.6)) = 3 of 9 patches, and makes all of them. */
    assert_ok(build_text(&b,
                         "{\"model_type\": \"vit_mae\", \"image_size\": 24, \"patch_size\": 8, \"mask_ratio\": 0.6,"
                         " \"num_hidden_layers\": 1}",
                         NULL, NULL),
              b.error);
    assert_true(lengths_of(&b, 1, 0, 0).queries == 4 && lengths_of(&b, 1, 0, 1).queries == 10);
    unbuild(&b);
    assert_ok(build_text(&b, "{\"model_type\": \"vit_mae\", \"mask_ratio\": 0, \"num_hidden_layers\": 1}", NULL, NULL),
              b.error);
    assert_int_equal(lengths_of(&b, 1, 0, 0).queries, 197);
    unbuild(&b);
    build_preset(&b, "clip-vit-base-patch32");
    const mha_model_costs c = costs_of(&b, 1, 77, 0);
    assert_int_equal(c.feed_forward, 2ull * 12 * (77 * 2 * 512 * 2048 + 50 * 2 * 768 * 3072));
    assert_int_equal(c.cache_elements, 0); /* its causal text tower decodes nothing */
    assert_true(strstr(c.not_counted, "every text with every image"));
    unbuild(&b);
}

/* Three layers of linear attention and one of softmax attention: 2 key heads of 3, 4 value heads of 5. */
static void linear_attention_is_counted(void **state)
{
    (void)state;
    built b;
    assert_ok(build_text(&b,
                         "{\"model_type\": \"qwen3_next\", \"hidden_size\": 16, \"num_attention_heads\": 2,"
                         " \"num_key_value_heads\": 1, \"head_dim\": 8, \"num_hidden_layers\": 4, \"vocab_size\": 9,"
                         " \"linear_num_key_heads\": 2, \"linear_key_head_dim\": 3, \"linear_num_value_heads\": 4,"
                         " \"linear_value_head_dim\": 5, \"linear_conv_kernel_dim\": 4, \"num_experts\": 4,"
                         " \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6,"
                         " \"shared_expert_intermediate_size\": 7}",
                         NULL, NULL),
              b.error);
    const uint64_t keys = 2 * 3, values = 4 * 5, channels = 2 * keys + values;
    const uint64_t matrices = 16 * (2 * keys + 2 * values) + 16 * 2 * 4 + values * 16 + channels * 4;
    const mha_model_costs c = costs_of(&b, 2, 7, 0);
    assert_int_equal(c.linear, 2ull * 14 * 3 * (matrices + 3 * 4 * 3 * 5));
    assert_int_equal(c.state_elements, 2ull * 3 * (4 * 3 * 5 + channels * 4));
    assert_int_equal(c.cache_elements, 14 * 2 * 8);
    assert_int_equal(c.feed_forward, 2ull * 14 * 4 * (2 * 3 * 16 * 6 + 4 * 16 + 3 * 16 * 7 + 16));
    assert_string_equal(c.not_counted, "");
    unbuild(&b);
}

/* Heads by token and by sequence, projections in front of the blocks and behind them. */
static void heads_multiply_what_they_are_given(void **state)
{
    (void)state;
    static const struct {
        const char *config, *class_name;
        uint64_t heads, patches; /* of 7 tokens */
    } rows[] = {
        {"{\"model_type\": \"opt\", \"word_embed_proj_dim\": 10, ", "OPTForCausalLM",
         2 * 7 * (2 * 10 * 16 + 10 * 9), 0},
        {"{\"model_type\": \"modernbert\", ", "ModernBertForMaskedLM", 2 * 7 * (16 * 16 + 16 * 9), 0},
        {"{\"model_type\": \"modernbert\", ", "ModernBertForSequenceClassification", 2 * (16 * 16 + 16 * 2), 0},
        {"{\"model_type\": \"bert\", ", "BertForTokenClassification", 2 * 7 * 16 * 2, 0},
        {"{\"model_type\": \"bert\", ", "BertForSequenceClassification", 2 * (16 * 16 + 16 * 2), 0},
        {"{\"model_type\": \"bert\", ", "BertForQuestionAnswering", 2 * 7 * 16 * 2, 0},
        {"{\"model_type\": \"electra\", \"embedding_size\": 5, ", "ElectraForSequenceClassification",
         2 * (16 * 16 + 16 * 2), 2 * 7 * 5 * 16},
        {"{\"model_type\": \"esm\", ", "EsmModel", 2 * 16 * 16, 0},
        {"{\"model_type\": \"mixtral\", ", "MixtralForTokenClassification", 2 * 7 * 16 * 2, 0},
        {"{\"model_type\": \"deberta-v2\", \"embedding_size\": 5, \"conv_kernel_size\": 3, ",
         "DebertaV2ForTokenClassification", 2 * 7 * 16 * 2, 2 * 7 * (5 * 16 + 3 * 16 * 16)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char config[400];
        built b;
        snprintf(config, sizeof config,
                 "%s\"hidden_size\": 16, \"num_attention_heads\": 2, \"num_hidden_layers\": 2, \"vocab_size\": 9,"
                 " \"num_key_value_heads\": 2, \"num_labels\": 2}",
                 rows[i].config);
        assert_ok(build_text(&b, config, rows[i].class_name, NULL), b.error);
        const mha_model_costs c = costs_of(&b, 1, 7, 0);
        if (c.heads != rows[i].heads || c.patches != rows[i].patches)
            fail_msg("%s: heads %llu, patches %llu", rows[i].class_name, (unsigned long long)c.heads,
                     (unsigned long long)c.patches);
        unbuild(&b);
    }
}

/* Each built-in type, from its own defaults: no layer sees or keeps more than there is, sums grow with the batch. */
static void every_type_has_costs(void **state)
{
    (void)state;
    size_t decoding = 0, named = 0;
    for (size_t i = 0; mha_architecture_at(i); i++) {
        char config[160];
        built b;
        snprintf(config, sizeof config, "{\"model_type\": \"%s\", \"num_hidden_layers\": 4}", mha_architecture_at(i));
        assert_ok(build_text(&b, config, NULL, NULL), b.error);
        const mha_model_costs once = costs_of(&b, 1, 40, 0), thrice = costs_of(&b, 3, 40, 0);
        assert_int_equal(in_all(&thrice), 3 * in_all(&once));
        assert_true(once.scores_causal <= once.scores_full && once.cross_elements <= once.cache_elements);
        for (size_t k = 0; k < mha_model_layer_count(b.model); k++) {
            const mha_model_lengths of = lengths_of(&b, 40, 0, k);
            assert_int_equal(of.pairs, (uint64_t)of.queries * of.keys * of.windows);
            assert_true(of.visible <= of.pairs && of.visible > 0 && of.cached <= of.keys);
        }
        decoding += once.cache_elements > 0;
        named += *once.not_counted != '\0';
        unbuild(&b);
    }
    assert_true(decoding > 40 && named >= 4);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    built b;
    mha_model_costs costs = {.projections = 77};
    mha_model_lengths lengths = {.queries = 77};
    build_preset(&b, "gpt2");
    assert_refused(mha_model_costs_of(b.model, &(mha_model_pass){1, 5, 5}, &costs, &b.error), MHA_INVALID, b.error,
                   "encoder_seq", "an encoder and a decoder, found GPT-2 (GPT2LMHeadModel)");
    assert_refused(mha_model_layer_lengths(b.model, &(mha_model_pass){1, 5, 5}, 0, &lengths, &b.error), MHA_INVALID,
                   b.error, "encoder_seq", "GPT-2");
    assert_refused(mha_model_layer_lengths(b.model, &(mha_model_pass){1, 5, 0}, 12, &lengths, &b.error),
                   MHA_NOT_FOUND, b.error, "index", "below 12, found 12");
    static const size_t large[][2] = {{1, SIZE_MAX}, {1, (size_t)1 << 33}, {SIZE_MAX, 3}, {(size_t)1 << 40, 1 << 20}};
    for (size_t i = 0; i < 4; i++) {
        const mha_model_pass pass = {large[i][0], large[i][1], 0};
        assert_refused(mha_model_costs_of(b.model, &pass, &costs, &b.error), MHA_INVALID, b.error, "seq", "64 bits");
        assert_refused(mha_model_layer_lengths(b.model, &pass, 0, &lengths, &b.error), MHA_INVALID, b.error, "seq",
                       "64 bits");
    }
    unbuild(&b);
    build_preset(&b, "t5-small");
    assert_refused(mha_model_costs_of(b.model, &(mha_model_pass){1, 5, SIZE_MAX}, &costs, &b.error), MHA_INVALID,
                   b.error, "seq", "an encoder's");
    assert_refused(mha_model_costs_of(b.model, &(mha_model_pass){1, 5, (size_t)1 << 33}, &costs, &b.error), MHA_INVALID,
                   b.error, "seq", "an encoder's");
    unbuild(&b);
    assert_int_equal(costs.projections, 77);
    assert_int_equal(lengths.queries, 77);
}

#define SYMBOLS                                                                                                        \
    "\"title\": \"Own\", \"symbols\": {\"d_model\": {\"value\": 8}, \"h\": {\"value\": 2}, \"h_kv\": {\"value\": 2},"  \
    " \"d_k\": {\"value\": 4}}, \"classes\": {\"Own\": \"\"}, "
#define ROWS(more)                                                                                                     \
    "\"tensors\": {\"all\": {\"rows\": [{\"name\": \"w\", \"shape\": \"8, 8\", " \
    "\"group\": \"ffn\", \"role\": \"W_1\"" more "}]}}, "

/* A description of one's own may say all of it; what is wrong in its formulas is named with the row. */
static void descriptions_say_lengths(void **state)
{
    (void)state;
    static const struct {
        const char *text, *blamed, *why; /* no blame: it is right */
        uint64_t feed_forward, pairs, linear;
    } rows[] = {
        {"{" SYMBOLS ROWS("") "\"attention\": [{\"prefix\": \"a\"}]}", NULL, NULL, 2 * 5 * 64, 25, 0},
        {"{" SYMBOLS ROWS(", \"tokens\": \"2*seq + 1\"") "\"attention\": [{\"prefix\": \"a\", \"tokens\": 3,"
         " \"keys\": \"seq\", \"windows\": 2}]}", NULL, NULL, 2 * 11 * 64, 30, 0},
        {"{" SYMBOLS ROWS("") "\"attention\": [{\"prefix\": \"a\"}], \"states\": [{\"blocks\": 3, \"when\": \"i != 1\","
         " \"products\": \"10 + i\", \"elements\": \"4\"}]}", NULL, NULL, 2 * 5 * 64, 25, 2 * 5 * 22},
        {"{" SYMBOLS ROWS(", \"tokens\": \"3 - seq\"") "\"attention\": []}", "3 - seq", "at least 0, found -2", 0, 0,
         0},
        {"{" SYMBOLS ROWS(", \"tokens\": \"there\"") "\"attention\": []}", "there", "there", 0, 0, 0},
        {"{" SYMBOLS "\"tensors\": {\"all\": {\"rows\": [{\"name\": \"w\", \"shape\": \"8, 8\", \"group\":"
         " \"embedding\", \"role\": \"patches\"}]}}, \"attention\": []}", "patches", "patches", 0, 0, 0},
        {"{" SYMBOLS ROWS("") "\"attention\": [{\"prefix\": \"a\", \"tokens\": \"x\"}]}", "x", "x", 0, 0, 0},
        {"{" SYMBOLS ROWS("") "\"attention\": [{\"prefix\": \"a\", \"keys\": \"x\"}]}", "x", "x", 0, 0, 0},
        {"{" SYMBOLS ROWS("") "\"attention\": [{\"prefix\": \"a\", \"windows\": \"x\"}]}", "x", "x", 0, 0, 0},
        {"{" SYMBOLS ROWS("") "\"attention\": [], \"not_counted\": [{\"when\": \"x\", \"why\": \"so\"}]}", "x", "x", 0,
         0, 0},
        {"{" SYMBOLS ROWS("") "\"attention\": [], \"states\": [{\"blocks\": \"x\", \"products\": \"1\", \"elements\":"
         " \"1\"}]}", "x", "x", 0, 0, 0},
        {"{" SYMBOLS ROWS("") "\"attention\": [], \"states\": [{\"when\": \"x\", \"products\": \"1\", \"elements\":"
         " \"1\"}]}", "x", "x", 0, 0, 0},
        {"{" SYMBOLS ROWS("") "\"attention\": [], \"states\": [{\"products\": \"x\", \"elements\": \"1\"}]}", "x", "x",
         0, 0, 0},
        {"{" SYMBOLS ROWS("") "\"attention\": [], \"states\": [{\"products\": \"1\", \"elements\": \"x\"}]}", "x", "x",
         0, 0, 0},
        {"{" SYMBOLS ROWS("") "\"attention\": [], \"states\": [{\"blocks\": \"100001\", \"products\": \"1\","
         " \"elements\": \"1\"}]}", "100001", "at most 2048 blocks", 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        built b;
        mha_model_costs c = {0};
        assert_ok(build_text(&b, "{}", NULL, rows[i].text), b.error);
        const mha_status status = mha_model_costs_of(b.model, &(mha_model_pass){1, 5, 0}, &c, &b.error);
        if (rows[i].blamed) {
            assert_refused(status, MHA_INVALID, b.error, rows[i].blamed, rows[i].why);
        } else {
            assert_ok(status, b.error);
            assert_int_equal(c.feed_forward, rows[i].feed_forward);
            assert_int_equal(c.scores_full, 2 * 2 * 8 * rows[i].pairs);
            assert_int_equal(c.linear, rows[i].linear);
        }
        unbuild(&b);
    }
}

/* A description may have so many symbols that lengths find no place. */
static void lengths_need_two_symbols(void **state)
{
    (void)state;
    char text[8000] = "{\"title\": \"Own\", \"symbols\": {\"d_model\": {\"value\": 8}, \"h\": {\"value\": 2},"
                      " \"h_kv\": {\"value\": 2}, \"d_k\": {\"value\": 4}";
    for (int i = 0; i < 89; i++) /* beside these four i and j, of 96 */
        snprintf(text + strlen(text), sizeof text - strlen(text), ", \"s%d\": {\"value\": 1}", i);
    strcat(text, "}, \"classes\": {\"Own\": \"\"}, " ROWS("") "\"attention\": []}");
    built b;
    mha_model_costs c;
    assert_ok(build_text(&b, "{}", NULL, text), b.error);
    assert_refused(mha_model_costs_of(b.model, &(mha_model_pass){1, 5, 0}, &c, &b.error), MHA_INVALID, b.error,
                   "at most 94 symbols besides seq and encoder_seq");
    unbuild(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_are_those_of_the_library),
        cmocka_unit_test(experts_that_are_used_are_counted),
        cmocka_unit_test(windows_count_in_pairs_and_caches),
        cmocka_unit_test(an_encoder_has_its_own_length),
        cmocka_unit_test(towers_have_the_lengths_of_their_images),
        cmocka_unit_test(linear_attention_is_counted),
        cmocka_unit_test(heads_multiply_what_they_are_given),
        cmocka_unit_test(every_type_has_costs),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(descriptions_say_lengths),
        cmocka_unit_test(lengths_need_two_symbols),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
