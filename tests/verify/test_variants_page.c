/* Every variant planted in a small case and looked for: the page src/verify/variants/VARIANTS.md is what is found. */
#include "support/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"
#include "support/axes.h"
#include "support/page.h"
#include "support/scratch.h"

static const char page_path[] = "src/verify/variants/VARIANTS.md";

/* ---------------------------------------------------------------- the cases */

#define LAYER .d_model = 32, .n_heads = 4, .bias_q = true, .bias_k = true, .bias_v = true, .bias_o = true
#define HEADS .n_heads = 4, .kv_heads = 2, .d_k = 8
#define TURNS .qkv.rope.kind = MHA_ROPE_HALF_SPLIT, .qkv.rope.dim = 4, .qkv.rope.base = 1000
#define NORMS .q_norm = MHA_NORM_HEAD, .k_norm = MHA_NORM_HEAD

/* What a variant is planted in: the first of these that shows it. */
typedef struct planted_in {
    const char *name, *words; /* as the page says it */
    mha_suggestion wish;
} planted_in;

/* The cases of call_with_pages and of deep_call, in place of a wish. */
static const char keys_in_pages[] = "in pages", deep[] = "deep";

static const double odd_slopes[] = {0.5, 0.25, 0.125, 0.0625};
static const double slopes[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125}; /* of Press et al., for 6 heads */

static double yarn[] = {1, 0.1, 0.006, 0.00025}; /* of base 10,000, the slower two divided */

/* Text, a picture of 2 x 2 tokens and text again: time, height, width; the tables are filled before they are read. */
static int64_t places[] = {0, 1, 2, 2, 2, 2, 4, 5, 0, 1, 2, 2, 3, 3, 4, 5, 0, 1, 2, 3, 2, 3, 4, 5};
static double cosines[8 * 4], sines[8 * 4];
#define AXES {MHA_ROPE_AXES_BLOCKS, 3, {2, 1, 1}}
#define TABLE(memory) {.data = memory, .dtype = MHA_F64, .rank = 3, .shape = {1, 8, 4}, .stride = {32, 4, 1}}

static const int64_t starts[] = {0, 5, 6, 12};

/* Of 8 tokens: documents, padding, lists of keys, blocks of two. */
static int64_t documents[] = {1, 1, 1, 2, 2, 2, 0, 0},
               lists[] = {0, 2, -1, 1, 3, 3, 4, 1, -1, 0, 5, 6, 2, 2, 4, 7, 3, -1, 1, 5, 0, 6, 7, 7};
/* Of 3 rows of 8 tokens: documents and positions. */
static int64_t documents_by_row[] = {0, 0, 0, 1, 1, 1, 2, 2, 0, 1, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 3, 4, 4, 4},
               positions_by_row[] = {0, 1, 2, 0, 1, 2, 0, 1, 0, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 9, 10, 11};
#define BY_ROW(memory) {.data = memory, .dtype = MHA_I64, .rank = 2, .shape = {3, 8}, .stride = {8, 1}}
static unsigned char padding[] = {0, 0, 0, 0, 0, 0, 1, 1}, blocks[] = {1, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1};

static const planted_in cases[] = {
    {"layer", "4 heads of 8, biases, 5 queries, 9 keys", {.config = {LAYER}}},
    {"causal",
     "the same layer, causal, 6 tokens and 3 cached ones",
     {.config = {LAYER}, .q_len = 6, .kv_len = 6, .past_len = 3, .semantics = {.visible.causal = true}}},
    {"turned",
     "the same with q/k norms and half of each head rotated, base 1000",
     {.config = {LAYER, NORMS}, .q_len = 6, .kv_len = 6, .past_len = 3, .semantics = {.visible.causal = true, TURNS}}},
    {"turned wholly",
     "one batch row of 8 tokens, each head rotated wholly",
     {.config = {LAYER}, .q_len = 8, .kv_len = 8, .semantics.qkv.rope.kind = MHA_ROPE_INTERLEAVED}},
    {"stretched",
     "the same, frequencies 1, 0.1, 0.006 and 0.00025, attention factor 1.25",
     {.config = {LAYER},
      .q_len = 8,
      .kv_len = 8,
      .semantics.qkv.rope = {.kind = MHA_ROPE_INTERLEAVED,
                             .attention_factor = 1.25,
                             .frequencies = {.data = yarn, .dtype = MHA_F64, .rank = 1, .shape = {4}, .stride = {1}}}}},
    {"pictured",
     "4 heads, 8 tokens, 4 of them a picture: a rotation by 3 axes",
     {.config = {LAYER},
      .q_len = 8,
      .kv_len = 8,
      .semantics.qkv.rope =
          {.kind = MHA_ROPE_HALF_SPLIT,
           .cos_table = TABLE(cosines),
           .sin_table = TABLE(sines),
           .origin = {.axes = AXES,
                      .positions = {.data = places, .dtype = MHA_I64, .rank = 2, .shape = {3, 8}, .stride = {8, 1}}}}}},
    {"grouped",
     "q, k, v of 4 heads on 2; causal, lengths, sinks, scale 0.3",
     {.config = {HEADS, .d_v = 6, .sinks = true},
      .by_head = true,
      .semantics = {.visible.causal = true, .softmax.scale = 0.3},
      .with = MHA_WITH_LENGTHS}},
    {"windowed",
     "q, k, v of 4 heads; window 4, 2; softcap 5; numbers as mask, padding",
     {.config = {.n_heads = 4, .d_k = 8},
      .by_head = true,
      .semantics = {.visible = {.window = true, .window_left = 4, .window_right = 2}, .softmax.softcap = 5},
      .with = MHA_WITH_MASK | MHA_WITH_PADDING}},
    {"masked",
     "q, k, v of 4 heads; boolean mask; padded keys filled with -3; ALiBi; sinks and one more exp(0); 2 cached tokens",
     {.config = {.n_heads = 4, .d_k = 8, .sinks = true},
      .by_head = true,
      .past_len = 2,
      .semantics = {.visible = {.has_padding_fill = true, .padding_fill = -3},
                    .added.alibi_slopes = odd_slopes,
                    .softmax.softmax_plus_one = true},
      .with = MHA_WITH_KEEPS | MHA_WITH_PADDING}},
    {"normed",
     "q, k, v of 4 heads, q/k norms with eps 1e-5",
     {.config = {.n_heads = 4, .d_k = 8, NORMS}, .by_head = true, .semantics.qkv.norm_eps = 1e-5}},
    {"layer norms",
     "q, k, v of 4 heads, each with weights and biases of its own for q/k norms: LayerNorm that multiplies by 1 + w",
     {.config = {.n_heads = 4, .d_k = 8, .q_norm = MHA_NORM_EACH_HEAD, .k_norm = MHA_NORM_EACH_HEAD, .norm_bias = true},
      .by_head = true,
      .semantics.qkv.norm = {.kind = MHA_NORM_LAYER, .plus_one = true}}},
    {"norms behind a rotation",
     "4 heads, 9 tokens, L2 norms behind the rotation, queries scaled every 2 positions",
     {.config = {LAYER, NORMS},
      .q_len = 9,
      .kv_len = 9,
      .semantics = {.visible.causal = true,
                    .qkv.rope.kind = MHA_ROPE_INTERLEAVED,
                    .qkv.norm = {.kind = MHA_NORM_L2, .after_rope = true},
                    .qkv.query_scale = {.growth = 2, .every = 2, .first = 1}}}},
    {"long",
     "4 heads, 9 tokens, rotated, queries scaled by the logarithm of their position beyond 4",
     {.config = {LAYER},
      .q_len = 9,
      .kv_len = 9,
      .semantics = {.visible.causal = true, .qkv.rope.kind = MHA_ROPE_HALF_SPLIT, .qkv.query_scale.log_n = 4}}},
    {"limited",
     "4 heads, biases, limits of 0.5 (clip_qkv), 9 tokens, rotated; of 4 heads with RMS norms of q and k",
     {.config = {LAYER, NORMS},
      .q_len = 9,
      .kv_len = 9,
      .semantics = {.visible.causal = true, .qkv.rope.kind = MHA_ROPE_HALF_SPLIT, .qkv.clip_qkv = 0.5}}},
    {"latents",
     "4 heads of 6 + 4 features, latents of 12 and 10, biases, 7 tokens, rotated",
     {.config = {.d_model = 32,
                 .n_heads = 4,
                 .d_k = 10,
                 .d_v = 5,
                 .q_rank = 12,
                 .kv_rank = 10,
                 .d_rope = 4,
                 .bias_latent = true},
      .q_len = 7,
      .kv_len = 7,
      .semantics.qkv.rope = {.kind = MHA_ROPE_INTERLEAVED, .dim = 4, .last = true}}},
    {"sigmoid",
     "4 heads, causal, sigmoid with bias -1 in place of softmax",
     {.config = {LAYER},
      .semantics = {.visible.causal = true, .softmax = {.normaliser = MHA_SIGMOID, .sigmoid_bias = -1}}}},
    {"gated", "4 heads, each feature with a gate", {.config = {LAYER, .gate = MHA_GATE_FEATURE, .bias_gate = true}}},
    {"square",
     "q, k, v of 6 heads, 8 tokens: numbers as mask, ALiBi with slopes for 6 heads",
     {.config = {.n_heads = 6, .d_k = 8},
      .by_head = true,
      .q_len = 8,
      .kv_len = 8,
      .semantics.added.alibi_slopes = slopes,
      .with = MHA_WITH_MASK}},
    {"by head",
     "q, k, v of 4 heads on 2, causal; 7 tokens",
     {.config = {HEADS}, .by_head = true, .q_len = 7, .kv_len = 7, .semantics.visible.causal = true}},
    {"windowed, causal",
     "q, k, v of 4 heads, causal; window 3 to the left; 3 cached tokens",
     {.config = {.n_heads = 4, .d_k = 8, .sinks = true},
      .by_head = true,
      .q_len = 8,
      .kv_len = 8,
      .past_len = 3,
      .semantics = {.visible = {.causal = true, .window = true, .window_left = 3, .window_right = -1}}}},
    {"masked, causal",
     "q, k, v of 4 heads, causal; boolean mask; 8 tokens",
     {.config = {.n_heads = 4, .d_k = 8},
      .by_head = true,
      .q_len = 8,
      .kv_len = 8,
      .semantics.visible.causal = true,
      .with = MHA_WITH_KEEPS}},
    {"longer", "q, k, v of 4 heads, 40 keys", {.config = {HEADS}, .by_head = true, .q_len = 3, .kv_len = 40}},
    {"T5",
     "4 heads, 8 buckets for two directions, up to distance 16; 8 tokens and 3 cached ones",
     {.config = {LAYER, .bias_rows = 8},
      .q_len = 8,
      .kv_len = 8,
      .past_len = 3,
      .semantics.added.bias = {.rule = MHA_BIAS_RULE_BUCKETS, .max_distance = 16}}},
    {"Swin",
     "4 heads, a grid of 3 x 4 cells",
     {.config = {LAYER, .bias_rows = 35},
      .q_len = 12,
      .kv_len = 12,
      .semantics.added.bias = {.rule = MHA_BIAS_RULE_GRID, .height = 3, .width = 4}}},
    {"DeBERTa",
     "4 heads, relative terms of queries and keys, 8 buckets up to distance 9, for each head; scale 0.2; 8 tokens",
     {.config = {LAYER, .relative_k_rows = 8, .relative_q_rows = 8, .relative_by_head = true},
      .q_len = 8,
      .kv_len = 8,
      .semantics = {.softmax.scale = 0.2, .added.relative = {.rule = MHA_RELATIVE_LOG_BUCKETS, .max_distance = 9}}}},
    {"relative_key_query",
     "4 heads, relative terms of queries and keys by distances up to 2; 8 tokens and 3 cached ones",
     {.config = {LAYER, .relative_k_rows = 5, .relative_q_rows = 5},
      .q_len = 8,
      .kv_len = 8,
      .past_len = 3,
      .semantics.added.relative = {.rule = MHA_RELATIVE_DISTANCE}}},
    {"SAM",
     "4 heads, a grid of 3 x 4 cells, relative terms of unscaled queries",
     {.config = {LAYER, .relative_k_rows = 5, .relative_column_rows = 7},
      .q_len = 12,
      .kv_len = 12,
      .semantics.added.relative = {.rule = MHA_RELATIVE_GRID, .height = 3, .width = 4, .k_scale = 1}}},
    {"extra keys",
     "4 heads, rows of bias_k and of zeros",
     {.config = {LAYER, .bias_kv = true}, .semantics.softmax.zero_row = true}},
    {"part",
     "4 heads, causal, 5 queries from position 6 on, 9 keys from position 3 on",
     {.config = {LAYER}, .semantics = {.visible.causal = true, .place = {.offset = 6, .key_offset = 3}}}},
    {"chunked",
     "4 heads, chunks of 4 positions, 3 cached tokens",
     {.config = {LAYER},
      .q_len = 9,
      .kv_len = 9,
      .past_len = 3,
      .semantics = {.visible = {.causal = true, .chunk = 4}}}},
    {"with a prefix",
     "4 heads, 9 tokens, causal behind a prefix of 3, window 3 to the left, which keeps the first key",
     {.config = {LAYER},
      .q_len = 9,
      .kv_len = 9,
      .semantics = {.visible.causal = true,
                    .visible.prefix = 3,
                    .visible.window = true,
                    .visible.window_left = 3,
                    .visible.window_right = -1,
                    .visible.window_keep = 1}}},
    {"packed",
     "q, k, v of 4 heads, 8 tokens in documents 1, 2 and 0; the last two queries are padding; sinks",
     {.config = {.n_heads = 4, .d_k = 8, .sinks = true},
      .by_head = true,
      .q_len = 8,
      .kv_len = 8,
      .semantics.visible.pattern =
          {.q_segments = {.data = documents, .dtype = MHA_I64, .rank = 1, .shape = {8}, .stride = {1}},
           .query_padding = {MHA_MASK_HIDES,
                             {.data = padding, .dtype = MHA_BOOL, .rank = 1, .shape = {8}, .stride = {1}}}}}},
    {"listed",
     "q, k, v of 4 heads, 8 tokens, lists of 3 keys: one twice, or with -1",
     {.config = {.n_heads = 4, .d_k = 8},
      .by_head = true,
      .q_len = 8,
      .kv_len = 8,
      .semantics.visible.pattern
          .key_lists = {.data = lists, .dtype = MHA_I64, .rank = 2, .shape = {8, 3}, .stride = {3, 1}}}},
    {"in blocks",
     "q, k, v of 4 heads, 8 tokens, a mask of blocks of 2 by 2",
     {.config = {.n_heads = 4, .d_k = 8},
      .by_head = true,
      .q_len = 8,
      .kv_len = 8,
      .semantics.visible
          .pattern = {.blocks = {MHA_MASK_KEEPS,
                                 {.data = blocks, .dtype = MHA_BOOL, .rank = 2, .shape = {4, 4}, .stride = {4, 1}}},
                      .block_queries = 2,
                      .block_keys = 2}}},
    {"ragged",
     "4 heads, causal, sequences of 5, 1 and 6 tokens",
     {.config = {LAYER},
      .batch = 1,
      .q_len = 12,
      .kv_len = 12,
      .semantics = {.visible.causal = true, .place = {.n_sequences = 3, .cu_seqlens_q = starts}}}},
    {"by row",
     "q, k, v of 4 heads, 3 rows of 8 tokens in documents and at positions of their own, rotated wholly",
     {.config = {.n_heads = 4, .d_k = 8},
      .by_head = true,
      .batch = 3,
      .q_len = 8,
      .kv_len = 8,
      .semantics = {.visible.pattern.q_segments = BY_ROW(documents_by_row),
                    .qkv.rope = {.kind = MHA_ROPE_HALF_SPLIT, .q_positions = BY_ROW(positions_by_row)}}}},
    {"padded",
     "q, k, v of 4 heads, 8 tokens; padded keys",
     {.config = {.n_heads = 4, .d_k = 8}, .by_head = true, .q_len = 8, .kv_len = 8, .with = MHA_WITH_PADDING}},
    {"of lengths",
     "q, k, v of 4 heads, 8 tokens; lengths",
     {.config = {.n_heads = 4, .d_k = 8}, .by_head = true, .q_len = 8, .kv_len = 8, .with = MHA_WITH_LENGTHS}},
    {"empty", "4 heads, lengths, one of them 0", {.config = {LAYER}, .with = MHA_WITH_EMPTY}},
    {"empty, NaN",
     "the same, where a query without keys gives NaN",
     {.config = {LAYER}, .semantics.softmax.empty_rows = MHA_EMPTY_NAN, .with = MHA_WITH_EMPTY}},
    {deep, "q, k, v of 4 heads, 9 tokens; all scores near -4,096", {.config = {HEADS}}},
    {keys_in_pages, "q of 4 heads, causal, sequences of 11 and 6 keys in pages of 4", {.config = {HEADS}}},
    {"poisoned",
     "q, k, v of 4 heads; NaN behind the lengths",
     {.config = {HEADS}, .by_head = true, .with = MHA_WITH_LENGTHS | MHA_WITH_POISON}},
    {"poisoned, read",
     "the same, where a hidden value times 0 counts",
     {.config = {HEADS},
      .by_head = true,
      .semantics.softmax.hidden_values = MHA_HIDDEN_PROPAGATE,
      .with = MHA_WITH_LENGTHS | MHA_WITH_POISON}},
};
enum { CASES = sizeof cases / sizeof *cases };

/* Two queries of each sequence; the pool has a page that is not named. */
static mha_call call_with_pages(void)
{
    static float query[2 * 2 * 4 * 8], pool[2][7 * 4 * 2 * 8];
    static const int32_t table[] = {4, 1, 3, 0, 5, 2};
    static const int64_t lengths[] = {11, 6};
    const size_t shape[4] = {7, 4, 2, 8};
    const mha_pages pages = {mha_view_of(pool[0], MHA_F32, 4, shape), mha_view_of(pool[1], MHA_F32, 4, shape), table, 3,
                             lengths};
    const mha_view q = mha_heads(query, 2, 2, 4, 8), *const all[] = {&q, &pages.keys, &pages.values};
    for (uint64_t i = 0; i < 3; i++)
        mha_random_fill(all[i], 7, i, -2, 2);
    return (mha_call){.query = q, .pages = pages, .semantics = {.visible.causal = true}};
}

/* Scores near -4,096, which are exact in float32. */
static mha_call deep_call(void)
{
    static float memory[3][2 * 9 * 4 * 4];
    mha_view rows[3];
    for (uint64_t i = 0; i < 3; i++) {
        rows[i] = mha_heads(memory[i], 2, 9, 4, 4);
        mha_random_fill(&rows[i], 5, i, -2, 2);
        for (size_t e = 0; i < 2 && e < sizeof memory[i] / sizeof *memory[i]; e++)
            memory[i][e] = e % 4 == 0 ? i == 0 ? -128 : 64 : rintf(4 * memory[i][e]) / 4;
    }
    return (mha_call){.query = rows[0], .key = rows[1], .value = rows[2]};
}

static mha_case *in_pages, *in_the_deep; /* while their cases are open */

static mha_case *open_call(const mha_call *call, mha_case **c)
{
    mha_error error;
    assert_ok(mha_case_of_call(NULL, call, NULL, 0, NULL, c, &error), error);
    return *c;
}

static mha_case *open_case(size_t i)
{
    const mha_call call = cases[i].name == deep ? deep_call() : call_with_pages();
    if (cases[i].name == keys_in_pages || cases[i].name == deep)
        return open_call(&call, cases[i].name == deep ? &in_the_deep : &in_pages);
    const char *path = scratch_path("planted.safetensors");
    mha_error error;
    mha_case *c;
    assert_ok(mha_case_suggest(path, &cases[i].wish, 0, NULL, &error), error);
    assert_ok(mha_case_open(path, NULL, &c, &error), error);
    return c;
}

/* ---------------------------------------------------------------- planting */

/* Numbers that a variant with numbers is planted with: the first with which it is found. It refuses those that have no
 * meaning for it, or is then right or another variant. */
static const char *const numbers[] = {"", " 4", " 0.7", " 2", " 5", " 1", " 7, 5, 4", " 2, 0, 3, 1", " 300", " 2, 0, 1",
                                      " 3; 1, 6; 0-2", " 16", " 8", " 0: 2, 2: 0", " 1, 1, 0, 0", " 0.1",
                                      " -1"};

/* Mistakes that no input tells apart: n keys of zeros add n exp(0), and so does a sink of log n. Whether both are found
 * is up to how near the second comes, and no other case is better. */
static const char *const equal[][2] = {{"tile-padded", "`case-lacks-sinks`"},
                                      {"tile-padded-seen", "`case-lacks-sinks`"}};

/* Whether an answer names the variant and none that could be told from it. */
static bool is_only(const char *answer, const char *variant)
{
    for (size_t i = 0; i < sizeof equal / sizeof *equal; i++)
        if (strcmp(equal[i][0], variant) == 0 && strstr(answer, equal[i][1]))
            return true;
    return !strchr(answer, '`');
}

/* The shape of the output of a case, or of its log sums. */
static int shape_of(const mha_case *c, mha_stage stage, size_t shape[3])
{
    const mha_layer *layer = mha_case_layer(c);
    const mha_call call = mha_case_call(c);
    const size_t heads = layer ? mha_layer_config(layer)->n_heads : call.query.shape[2];
    const size_t width = layer ? mha_layer_config(layer)->d_out : heads * call.value.shape[3];
    const bool sums = stage == MHA_STAGE_LSE;
    shape[0] = call.query.shape[0];
    shape[1] = sums ? heads : call.query.shape[1];
    shape[2] = sums ? call.query.shape[1] : width;
    return 3;
}

/* The result under a variant, as case c with that output (or those log sums) in float32; NULL when it does not apply
 * to c. */
static mha_case *plant(const mha_case *c, const char *variant, mha_stage stage)
{
    enum { MOST = 1 << 12 };
    static double wide[MOST];
    static float narrow[MOST];
    const mha_call call = c == in_pages ? call_with_pages() : c == in_the_deep ? deep_call() : mha_case_call(c);
    size_t shape[3];
    const int rank = shape_of(c, stage, shape);
    const mha_view found = mha_view_of(wide, MHA_F64, rank, shape);
    const mha_keep recorded = {.stage = stage, .view = mha_view_of(narrow, MHA_F32, rank, shape)};
    mha_case_notes notes = {.name = "planted"};
    mha_case *planted;
    mha_error error;
    assert_true(mha_view_elements(&found) <= MOST);
    if (mha_case_variant(c, &variant, 1, stage, &found, &error) != MHA_OK)
        return NULL;
    assert_int_equal(mha_view_copy(&recorded.view, &found), MHA_OK);
    if (c != in_pages && c != in_the_deep)
        mha_case_past(c, &notes.past_key, &notes.past_value);
    assert_ok(mha_case_of_call(mha_case_layer(c), &call, &recorded, 1, &notes, &planted, &error), error);
    return planted;
}

static bool is_right(const mha_case *c)
{
    mha_verdict v;
    mha_error error;
    assert_ok(mha_case_judge(c, MHA_PATH_EXACT, NULL, 1, &v, &error), error);
    const bool right = v.outcome == MHA_OUTCOME_PASSED;
    mha_verdict_clear(&v);
    return right;
}

/* Writes what the diagnosis says: "alone" when this variant is the one answer, with its number; the names that this
 * input cannot tell from it; NULL when it is not found. */
static const char *answer_to(const mha_case *planted, const char *variant)
{
    static char text[400];
    mha_diagnosis d;
    mha_error error;
    bool found = false;
    size_t others = 0;
    assert_ok(mha_case_diagnose(planted, NULL, 0, NULL, &d, &error), error);
    text[0] = '\0';
    for (size_t i = 0; i < d.match_count; i++) {
        const mha_explanation *e = &d.matches[i];
        if (!e->exact || e->count != 1)
            continue;
        const bool own = strcmp(e->variants[0], variant) == 0;
        found |= own;
        if (own && !*e->found[0])
            continue;
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s%s%s%s",
                 others++ ? ", "
                 : own    ? ""
                          : "with ",
                 own ? "" : "`", own ? "" : e->variants[0], own ? "" : "`", own ? e->found[0] : "");
    }
    mha_diagnosis_clear(&d);
    return !found ? NULL : *text ? text : "alone";
}

/* Adds text to a cell of a table, in which | would end it. */
static void add_cell(bytes *page, const char *text)
{
    bytes_text(page, "| ");
    for (; *text; text++) {
        if (*text == '|')
            bytes_text(page, "\\");
        bytes_add(page, text, 1);
    }
    bytes_text(page, " ");
}

/* One line of the page, with the first case in which the variant is the only answer, or else the first in which it is
 * one of several; false when there is none. */
static bool write_line(const mha_variant *variant, mha_case *const *open, bytes *page)
{
    const mha_stage stage = strncmp(variant->name, "lse-", 4) == 0 ? MHA_STAGE_LSE : MHA_STAGE_OUTPUT;
    char text[100], where[100] = "", found[400] = "";
    bool only = false;
    for (size_t i = 0; i < CASES && !only; i++)
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers && !only; k++) {
            snprintf(text, sizeof text, "%s%s", variant->name, numbers[k]);
            mha_case *planted = plant(open[i], text, stage);
            const char *answer = planted && !is_right(planted) ? answer_to(planted, variant->name) : NULL;
            mha_case_close(planted);
            only = answer && is_only(answer, variant->name);
            if (!answer || (*found && !only))
                continue;
            snprintf(found, sizeof found, "%s", answer);
            snprintf(where, sizeof where, "%s%s%s", cases[i].name, *numbers[k] ? "," : "", numbers[k]);
        }
    snprintf(text, sizeof text, "`%s`", variant->name);
    const char *const cells[] = {text, variant->help, where, found};
    for (size_t i = 0; i < 4; i++)
        add_cell(page, cells[i]);
    bytes_text(page, "|\n");
    return *found;
}

static void every_variant_is_found_in_a_case_of_the_page(void **state)
{
    (void)state;
    mha_case *open[CASES];
    bytes page = {0};
    char line[400];
    size_t missing = 0;
    axes_fill(&(mha_rope_axes)AXES, NULL, 10000, places, 1, 8, cosines, sines);
    bytes_text(&page, "\n| case | what it is |\n|---|---|\n");
    for (size_t i = 0; i < CASES; i++) {
        open[i] = open_case(i);
        snprintf(line, sizeof line, "| %s | %s |\n", cases[i].name, cases[i].words);
        bytes_text(&page, line);
    }
    snprintf(line, sizeof line, "\n%zu variants:\n\n| variant | what it is | planted in | found |\n|---|---|---|---|\n",
             mha_variant_count());
    bytes_text(&page, line);
    for (size_t i = 0; i < mha_variant_count(); i++)
        if (!write_line(mha_variant_at(i), open, &page)) {
            print_message("%s: no case of the page shows it\n", mha_variant_at(i)->name);
            missing++;
        }
    for (size_t i = 0; i < CASES; i++)
        mha_case_close(open[i]);
    bytes_add(&page, "\n", 2);
    assert_int_equal(missing, 0);
    page_holds(page_path, "variants", (const char *)page.data);
    bytes_free(&page);
}

/* What counts rows, keys or heads takes whole numbers alone, within reach. */
static void numbers_without_a_meaning_are_refused(void **state)
{
    (void)state;
    static const char *const counting[] = {"rows-", "batch-", "heads-", "features-", "memory-", "tile-", "parts-",
                                           "key-twice", "mask-moved", "causal-shift", "causal-block",
                                           "window-left-other", "rounded-", "top-"};
    static const char *const strange[] = {" 0.5", " 1e300", " -7", " 0"};
    size_t refused = 0;
    for (size_t i = 0; i < CASES; i++) {
        mha_case *c = open_case(i);
        size_t shape[3];
        const int rank = shape_of(c, MHA_STAGE_OUTPUT, shape);
        double *memory = calloc(shape[0] * shape[1] * shape[2] + 1, sizeof *memory);
        assert_non_null(memory);
        const mha_view output = mha_view_of(memory, MHA_F64, rank, shape);
        for (size_t v = 0; v < mha_variant_count(); v++)
            for (size_t n = 0; n < sizeof strange / sizeof *strange; n++) {
                char name[100];
                const char *one = name;
                mha_error error;
                snprintf(name, sizeof name, "%s%s", mha_variant_at(v)->name, strange[n]);
                const mha_status status = mha_case_variant(c, &one, 1, MHA_STAGE_OUTPUT, &output, &error);
                assert_true(status == MHA_OK || status == MHA_UNSUPPORTED || status == MHA_INVALID);
                refused += status != MHA_OK;
                for (size_t k = 0; n == 1 && k < sizeof counting / sizeof *counting; k++)
                    if (strncmp(name, counting[k], strlen(counting[k])) == 0 && status == MHA_OK)
                        fail_msg("%s is taken in case %s", name, cases[i].name);
            }
        free(memory);
        mha_case_close(c);
    }
    assert_true(refused > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_variant_is_found_in_a_case_of_the_page),
        cmocka_unit_test(numbers_without_a_meaning_are_refused)};
    return cmocka_run_group_tests_name("variants_page", tests, NULL, NULL);
}
