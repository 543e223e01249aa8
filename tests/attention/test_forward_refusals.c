/* Calls without a meaning are refused, in words, with nothing touched. */
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/failing.h"
#include "support/trial.h"
#include "support/unit.h"
#include "support/stages.h"

/* A layer with 2 heads of 4 over 1, inputs (2, 3, 8) and (2, 5, 8), every stage given, a cache of 2 rows. */
typedef struct fixture {
    mha_params *table;
    mha_layer *layer;
    mha_call call;
    mha_cache *cache;
    float *input;
    void *workspace;
    size_t workspace_bytes;
} fixture;

enum { INPUT_FLOATS = 512 };

static mha_view view3(void *data, size_t a, size_t b, size_t c)
{
    return mha_view_of(data, MHA_F32, 3, (size_t[]){a, b, c});
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    mha_config config = {.d_model = 8, .n_heads = 2, .kv_heads = 1};
    mha_cache_spec spec = {.batch = 2, .kv_heads = 1, .d_k = 4, .d_v = 4, .capacity = 7};
    mha_plan plan;
    mha_error error;
    f->input = guard_allocate(INPUT_FLOATS * sizeof(float), GUARD_AFTER, 0x11);
    if (mha_params_create(NULL, &f->table, NULL) || mha_layer_create(&config, f->table, "", &f->layer, &error) ||
        mha_cache_create(&spec, NULL, &f->cache, &error))
        return -1;
    mha_layer_init(f->layer, 1);
    mha_view past = mha_view_of(f->input, MHA_F32, 4, (size_t[]){2, 1, 2, 4});
    if (mha_cache_load(f->cache, &past, &past, &error))
        return -1;
    f->call = (mha_call){.query = view3(f->input, 2, 3, 8), .key = view3(f->input, 2, 5, 8), .path = MHA_PATH_BLAS};
    if (mha_plan_call(f->layer, &f->call, &plan, &error))
        return -1;
    f->workspace_bytes = 2 * plan.workspace_bytes + 100000;
    f->workspace = malloc(f->workspace_bytes);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    free(f->workspace);
    mha_cache_destroy(f->cache);
    mha_layer_destroy(f->layer);
    mha_params_destroy(f->table);
    guard_release_all();
    free(f);
    return 0;
}

/* The stages of the unspoiled call, filled with a pattern. */
static void give_stages(mha_call *call, mha_keep list[MHA_STAGE_COUNT], const mha_plan *plan)
{
    stages_list(call, list);
    for (int s = 0; s < EVERY_STAGE; s++) {
        mha_view v = stage_of_plan(plan, (mha_stage)s, NULL, MHA_F32);
        if (v.rank == 0) /* a ragged batch has no cache */
            continue;
        v.data = guard_allocate(mha_view_elements(&v) * sizeof(float), GUARD_AFTER, 0xCD);
        *stage_view(call, (mha_stage)s) = v;
    }
}

static void assert_untouched(mha_call *call)
{
    for (int s = 0; s < EVERY_STAGE; s++) {
        const mha_view *v = stage_view(call, (mha_stage)s);
        for (size_t i = 0; v->data && i < mha_view_elements(v) * sizeof(float); i++)
            assert_int_equal(((unsigned char *)v->data)[i], 0xCD);
    }
}

/* The plan and a run refuse with the same status and words; no stage or cache is touched. */
static void refused(fixture *f, const mha_layer *layer, mha_call *good, const mha_call *call, mha_status status,
                    const char *word)
{
    mha_error error;
    mha_plan plan;
    memset(&plan, 0x77, sizeof plan);
    mha_plan before = plan;
    assert_refused(mha_plan_call(layer, call, &plan, &error), status, error, word);
    assert_memory_equal(&plan, &before, sizeof plan);
    assert_int_equal(mha_plan_call(layer, call, &plan, NULL), status);
    assert_refused(mha_run(layer, call, &error), status, error, word);
    assert_untouched(good);
    assert_int_equal(mha_cache_length(f->cache), 2);
    assert_int_equal(mha_cache_first(f->cache), 0);
}

/* Spoils a good call in one way after another. */
#define SPOIL(status, word, ...)                                                                                       \
    {                                                                                                                  \
        mha_call call = good;                                                                                          \
        mha_keep own_list[MHA_STAGE_COUNT];                                                                            \
        stages_list(&call, own_list);                                                                                  \
        __VA_ARGS__;                                                                                                   \
        refused(f, layer, &good, &call, status, word);                                                                 \
    }

static void shapes_that_do_not_fit_are_named(void **state)
{
    fixture *f = *state;
    const mha_layer *layer = f->layer;
    mha_plan plan;
    mha_error error;
    mha_call good = f->call;
    assert_ok(mha_plan_call(layer, &good, &plan, &error), error);
    mha_keep list[MHA_STAGE_COUNT];
    give_stages(&good, list, &plan);
    assert_ok(mha_plan_call(layer, &good, &plan, &error), error);
    SPOIL(MHA_INVALID, "query", call.query.data = NULL)
    SPOIL(MHA_INVALID, "query", call.query = (mha_view){0})
    SPOIL(MHA_INVALID, "(2, 3, 9)", call.query.shape[2] = 9; call.query.stride[1] = 9)
    SPOIL(MHA_INVALID, "(2, 3, 8)", call.query.shape[2] = 7)
    SPOIL(MHA_INVALID, "key", call.query.shape[0] = 1)
    SPOIL(MHA_INVALID, "key", call.key.shape[2] = 7)
    SPOIL(MHA_INVALID, "key", call.key.shape[0] = 3)
    SPOIL(MHA_INVALID, "query", call.query.rank = 2)
    SPOIL(MHA_INVALID, "query", call.query = mha_view_of(f->input, MHA_F32, 4, (size_t[]){2, 3, 2, 4}))
    SPOIL(MHA_INVALID, "value", call.value = view3(f->input, 2, 4, 8))
    SPOIL(MHA_INVALID, "value", call.value = view3(f->input, 2, 5, 7))
    SPOIL(MHA_INVALID, "expected data", call.value = view3(NULL, 2, 5, 8)) /* forgotten, not left out */
    SPOIL(MHA_INVALID, "expected data", call.key = view3(NULL, 2, 5, 8))
    SPOIL(MHA_INVALID, "F64", call.query.dtype = MHA_F64)
    SPOIL(MHA_INVALID, "I32", call.key.dtype = MHA_I32)
    SPOIL(MHA_INVALID, "I32", call.key.dtype = MHA_I32; call.path = MHA_PATH_EXACT)
    SPOIL(MHA_INVALID, "query: expected a contiguous last index, found a stride of 2", call.query.stride[2] = 2)
    SPOIL(MHA_INVALID, "query: expected rows of 8 elements without overlap, found a stride of 7",
          call.query.stride[1] = 7)
    SPOIL(MHA_INVALID, "query", call.query = view3(f->input, 1, 3, 8); call.query.stride[1] = 7; call.key = call.query)
    SPOIL(MHA_INVALID, "query", call.query.stride[1] = -8)
    SPOIL(MHA_INVALID, "2147483647 elements, found 2147483648", call.query.stride[1] = (ptrdiff_t)INT_MAX + 1)
    SPOIL(MHA_INVALID, "threads", call.threads = -1)
    SPOIL(MHA_INVALID, "path", call.path = MHA_PATH_COUNT)
    for (int s = 0; s < EVERY_STAGE; s++) {
        const char *name = mha_stage_at((mha_stage)s)->name;
        SPOIL(MHA_INVALID, name, stage_view(&call, (mha_stage)s)->shape[stage_view(&call, (mha_stage)s)->rank - 1]++)
        SPOIL(MHA_INVALID, name, stage_view(&call, (mha_stage)s)->shape[0]--)
        SPOIL(MHA_INVALID, name, stage_view(&call, (mha_stage)s)->rank--)
        SPOIL(MHA_INVALID, "found rank 99", stage_view(&call, (mha_stage)s)->rank = 99)
        SPOIL(MHA_INVALID, "F16", stage_view(&call, (mha_stage)s)->dtype = MHA_F16)
    }
}

/* Memory for the arrays that semantics borrow. */
static struct {
    int64_t i64[32];
    float f32[64];
    double f64[64];
    uint8_t u8[64];
} borrowed;

static void semantics_without_meaning_are_refused(void **state)
{
    fixture *f = *state;
    const mha_layer *layer = f->layer;
    mha_plan plan;
    mha_error error;
    mha_call good = f->call;
    memset(&borrowed, 0, sizeof borrowed);
    assert_ok(mha_plan_call(layer, &good, &plan, &error), error);
    mha_keep list[MHA_STAGE_COUNT];
    give_stages(&good, list, &plan);
    /* ranges of numbers, and what needs what, are those of the table: test_settings walks its rows */
#define S call.semantics
    /* more, or less, than float holds; the exact path goes on */
    SPOIL(MHA_UNSUPPORTED, "only the exact path computes in float64), found 1e+300", S.softmax.softcap = 1e300)
    SPOIL(MHA_UNSUPPORTED, "found 1e-300", S.softmax.softcap = 1e-300)
    SPOIL(MHA_UNSUPPORTED, "found -1e+39", S.softmax.has_scale = true; S.softmax.scale = -1e39)
    SPOIL(MHA_UNSUPPORTED, "found 3.5e+38", S.softmax.has_scale = true; S.softmax.scale = 3.5e38;
          call.path = MHA_PATH_BLAS)
    for (size_t i = 0; i < 4; i++) {
        mha_call call = good;
        call.path = i < 3 ? MHA_PATH_EXACT : MHA_PATH_AUTO; /* a factor that vanishes in float is but 0 */
        S.softmax.softcap = i == 0 ? 1e300 : i == 1 ? 1e-300 : 0;
        S.softmax.has_scale = i >= 2;
        S.softmax.scale = i == 2 ? 1e39 : 1e-300;
        assert_ok(mha_plan_call(layer, &call, &plan, &error), error);
    }
    SPOIL(MHA_INVALID, "key_offset", S.place.key_offset = INT64_MAX)
    SPOIL(MHA_INVALID, "length", borrowed.i64[1] = INT64_MAX; S.visible.kv_lengths = borrowed.i64;
          S.place.has_key_offset = true)
    SPOIL(MHA_INVALID, "length", borrowed.i64[1] = 6; S.visible.kv_lengths = borrowed.i64)
    SPOIL(MHA_INVALID, "length", borrowed.i64[1] = -1; S.visible.kv_lengths = borrowed.i64)
    SPOIL(MHA_UNSUPPORTED, "sigmoid_bias: expected a number that float", S.softmax.normaliser = MHA_SIGMOID;
          S.softmax.sigmoid_bias = -1e39; call.path = MHA_PATH_BLAS)
    SPOIL(MHA_UNSUPPORTED, "softmax_plus_one: expected a softmax", S.softmax.normaliser = MHA_SIGMOID;
          S.softmax.softmax_plus_one = true)
    SPOIL(MHA_UNSUPPORTED, "empty_rows", S.softmax.normaliser = MHA_SIGMOID; S.softmax.empty_rows = MHA_EMPTY_NAN)
    SPOIL(MHA_UNSUPPORTED, "lse: expected a softmax", S.softmax.normaliser = MHA_SIGMOID)
    SPOIL(MHA_INVALID, "norm_kind", S.qkv.norm.kind = MHA_NORM_L2)
    SPOIL(MHA_INVALID, "norm_after_rope", S.qkv.norm.after_rope = true)
    SPOIL(MHA_INVALID, "norm_plus_one", S.qkv.norm.plus_one = true)
    SPOIL(MHA_INVALID, "norm_plus_one", S.qkv.norm.plus_one = S.qkv.norm.unweighted = true)
    SPOIL(MHA_UNSUPPORTED, "LayerNorm", S.qkv.norm.unweighted = S.qkv.norm.after_rope = true;
          S.qkv.norm.kind = MHA_NORM_LAYER)
    SPOIL(MHA_UNSUPPORTED, "clip_qkv: expected a number that float", S.qkv.clip_qkv = 1e-50)
    SPOIL(MHA_INVALID, "query_scale_growth", S.qkv.query_scale.growth = 1e38; S.qkv.query_scale.every = 1)
    SPOIL(MHA_INVALID, "query_scale_every", S.qkv.query_scale.growth = 1)
    /* masks */
#define MASK(kind_, dtype_, memory, rank, ...)                                                                         \
    S.visible.mask = (mha_mask){kind_, mha_view_of(memory, dtype_, rank, (size_t[]){__VA_ARGS__})}
    SPOIL(MHA_INVALID, "mask: expected values with a kind, found none", S.visible.mask.kind = MHA_MASK_KEEPS)
    SPOIL(MHA_INVALID, "rank 99", MASK(MHA_MASK_KEEPS, MHA_BOOL, borrowed.u8, 1, 5); S.visible.mask.values.rank = 99)
    SPOIL(MHA_INVALID, "rank -1", MASK(MHA_MASK_KEEPS, MHA_BOOL, borrowed.u8, 1, 5); S.visible.mask.values.rank = -1)
    SPOIL(MHA_INVALID, "query: expected shape (B, T, width), found rank 99", call.query.rank = 99)
    SPOIL(MHA_INVALID, "query: expected shape (B, T, width), found rank -1", call.query.rank = -1)
    SPOIL(MHA_INVALID, "mask", MASK(MHA_MASK_KEEPS, MHA_F32, borrowed.f32, 1, 5))
    SPOIL(MHA_INVALID, "mask", MASK(MHA_MASK_ADDITIVE, MHA_BOOL, borrowed.u8, 1, 5))
    SPOIL(MHA_INVALID, "(6,)", MASK(MHA_MASK_KEEPS, MHA_BOOL, borrowed.u8, 1, 6))
    SPOIL(MHA_INVALID, "(2, 5)", MASK(MHA_MASK_KEEPS, MHA_BOOL, borrowed.u8, 2, 2, 5))
    SPOIL(MHA_INVALID, "mask", MASK(MHA_MASK_KEEPS, MHA_BOOL, borrowed.u8, 0, 0))
    SPOIL(MHA_INVALID, "mask", MASK(MHA_MASK_KEEPS, MHA_BOOL, borrowed.u8, 5, 1, 1, 1, 1, 5))
    SPOIL(MHA_INVALID, "mask", MASK(MHA_MASK_KEEPS, MHA_BOOL, borrowed.u8, 1, 0))
#define PADDING(kind_, dtype_, memory, rank, ...)                                                                      \
    S.visible.key_padding = (mha_mask){kind_, mha_view_of(memory, dtype_, rank, (size_t[]){__VA_ARGS__})}
    SPOIL(MHA_INVALID, "padding", PADDING(MHA_MASK_KEEPS, MHA_BOOL, borrowed.u8, 2, 2, 4))
    SPOIL(MHA_INVALID, "padding", PADDING(MHA_MASK_KEEPS, MHA_BOOL, borrowed.u8, 2, 3, 5))
    SPOIL(MHA_INVALID, "padding", PADDING(MHA_MASK_KEEPS, MHA_BOOL, borrowed.u8, 3, 1, 2, 5))
    SPOIL(MHA_UNSUPPORTED, "fill", S.visible.has_padding_fill = true; S.visible.padding_fill = -1)
    SPOIL(MHA_UNSUPPORTED, "fill", PADDING(MHA_MASK_ADDITIVE, MHA_F32, borrowed.f32, 2, 2, 5);
          S.visible.has_padding_fill = true)
    /* dropout; the path is blas */
#define DROPOUT(p, dtype_, rank, ...)                                                                                  \
    S.softmax.dropout_p = (p);                                                                                         \
    S.softmax.dropout_keep = mha_view_of(borrowed.u8, dtype_, rank, (size_t[]){__VA_ARGS__})
    SPOIL(MHA_INVALID, "dropout_p: expected `dropout_keep` with it, found it unset", S.softmax.dropout_p = 0.5)
    SPOIL(MHA_INVALID, "dropout_p: expected a finite number below 1, or 0 (off), found 1", DROPOUT(1, MHA_BOOL, 1, 5))
    SPOIL(MHA_INVALID, "dropout_p", DROPOUT(-0.1, MHA_BOOL, 1, 5))
    SPOIL(MHA_UNSUPPORTED, "dropout_keep: expected path exact or auto with it, found blas",
          DROPOUT(0.5, MHA_BOOL, 1, 5))
    SPOIL(MHA_UNSUPPORTED, "found fast", DROPOUT(0, MHA_BOOL, 1, 5); call.path = MHA_PATH_FAST)
    SPOIL(MHA_INVALID, "dropout_keep: expected BOOL or U8, true where a weight is kept, found F32",
          DROPOUT(0.5, MHA_F32, 1, 5); call.path = MHA_PATH_EXACT)
    SPOIL(MHA_INVALID, "dropout_keep: expected a shape that broadcasts to (2, 2, 3, 5), found (4,)",
          DROPOUT(0.5, MHA_BOOL, 1, 4); call.path = MHA_PATH_AUTO)
    SPOIL(MHA_INVALID, "dropout_keep: expected a shape that broadcasts to (2, 2, 3, 6), found (5,)",
          DROPOUT(0.5, MHA_BOOL, 1, 5); S.softmax.zero_row = true; call.path = MHA_PATH_EXACT)
    /* pattern */
#define WHOLES(part, dtype_, rank, ...)                                                                                \
    S.visible.pattern.part = mha_view_of(borrowed.i64, dtype_, rank, (size_t[]){__VA_ARGS__})
#define TRUTHS(part, kind_, dtype_, rank, ...)                                                                         \
    S.visible.pattern.part = (mha_mask){kind_, mha_view_of(borrowed.u8, dtype_, rank, (size_t[]){__VA_ARGS__})}
    SPOIL(MHA_INVALID, "k_segments: expected them", WHOLES(q_segments, MHA_I64, 2, 2, 3))
    SPOIL(MHA_INVALID, "q_segments: expected I64, found I32", WHOLES(q_segments, MHA_I32, 2, 2, 3);
          WHOLES(k_segments, MHA_I64, 2, 2, 5))
    SPOIL(MHA_INVALID, "q_segments: expected a shape that broadcasts to (2, 3), found (2, 4)", WHOLES(q_segments,
                                                                                                      MHA_I64, 2, 2, 4);
          WHOLES(k_segments, MHA_I64, 1, 5))
    SPOIL(MHA_INVALID, "k_segments: expected a shape that broadcasts to (2, 5), found (3, 5)", WHOLES(q_segments,
                                                                                                      MHA_I64, 1, 3);
          WHOLES(k_segments, MHA_I64, 2, 3, 5))
    SPOIL(MHA_INVALID, "query_padding_kind: expected none, keeps or hides, found 3",
          TRUTHS(query_padding, MHA_MASK_ADDITIVE, MHA_F32, 2, 2, 3))
    SPOIL(MHA_INVALID, "query_padding: expected values with a kind, found none",
          S.visible.pattern.query_padding.kind = MHA_MASK_HIDES)
    SPOIL(MHA_INVALID, "query_padding: expected BOOL or U8 for a mask that keeps or hides, found F32",
          TRUTHS(query_padding, MHA_MASK_HIDES, MHA_F32, 2, 2, 5))
    SPOIL(MHA_INVALID, "query_padding: expected a shape that broadcasts to (2, 3), found (5, 1)",
          TRUTHS(query_padding, MHA_MASK_HIDES, MHA_U8, 2, 5, 1))
    SPOIL(MHA_INVALID, "key_lists: expected I64", WHOLES(key_lists, MHA_F64, 2, 3, 3))
    SPOIL(MHA_INVALID,
          "key_lists: expected a shape that broadcasts to (2, 2, 3) and a last axis of any extent, found (4, 3)",
          WHOLES(key_lists, MHA_I64, 2, 4, 3))
    SPOIL(MHA_INVALID, "found ()", WHOLES(key_lists, MHA_I64, 0, 1))
    SPOIL(MHA_INVALID, "blocks: expected no sizes without a mask of blocks, found blocks of 2 queries and 0 keys",
          S.visible.pattern.block_queries = 2)
    SPOIL(MHA_INVALID, "blocks: expected sizes of 1 or more, found blocks of 0 queries and 2 keys",
          TRUTHS(blocks, MHA_MASK_KEEPS, MHA_BOOL, 2, 5, 3); S.visible.pattern.block_keys = 2)
    SPOIL(MHA_INVALID, "blocks: expected a shape that broadcasts to (2, 2, 2, 2), found (3, 2)",
          TRUTHS(blocks, MHA_MASK_KEEPS, MHA_BOOL, 2, 3, 2);
          S.visible.pattern.block_queries = 2; S.visible.pattern.block_keys = 3)
    /* rotation */
    SPOIL(MHA_INVALID, "rope_dim", S.qkv.rope.kind = MHA_ROPE_HALF_SPLIT; S.qkv.rope.dim = 3)
    SPOIL(MHA_INVALID, "rope_dim", S.qkv.rope.kind = MHA_ROPE_HALF_SPLIT; S.qkv.rope.dim = 6)
#define ROPE(...) S.qkv.rope = (mha_rope){.kind = MHA_ROPE_INTERLEAVED, __VA_ARGS__}
    static double numbers[4] = {1, INFINITY, 1, 1};
    const size_t pairs = 2, too_few = 1;
    const mha_view one = mha_view_of(numbers, MHA_F64, 1, &too_few), two = mha_view_of(numbers, MHA_F64, 1, &pairs),
                   whole = mha_view_of(numbers, MHA_I64, 1, &pairs);
    SPOIL(MHA_INVALID, "rope_attention_factor", ROPE(.attention_factor = 1e300))
    SPOIL(MHA_INVALID, "rope_frequencies", ROPE(.frequencies = one))
    SPOIL(MHA_INVALID, "rope_frequencies", ROPE(.frequencies = two))
    SPOIL(MHA_INVALID, "rope_frequencies", ROPE(.frequencies = whole))
#define VIEW(memory, dtype, rank, ...) mha_view_of(memory, dtype, rank, (size_t[]){__VA_ARGS__})
    SPOIL(MHA_INVALID, "q_positions: expected I64 of shape (2, 3), found I64 of (2, 4)",
          ROPE(.q_positions = VIEW(borrowed.i64, MHA_I64, 2, 2, 4)))
    SPOIL(MHA_INVALID, "found F32 of (2, 3)", ROPE(.q_positions = VIEW(borrowed.f32, MHA_F32, 2, 2, 3)))
    SPOIL(MHA_INVALID, "q_positions", ROPE(.q_positions = VIEW(borrowed.i64, MHA_I64, 1, 3)))
    SPOIL(MHA_INVALID, "k_positions", ROPE(.k_positions = VIEW(borrowed.i64, MHA_I64, 2, 2, 3)))
    SPOIL(MHA_INVALID, "rope_frequencies: expected either frequencies or tables",
          ROPE(.frequencies = VIEW(borrowed.f32, MHA_F32, 1, 2), .cos_table = VIEW(borrowed.f32, MHA_F32, 2, 8, 2),
               .sin_table = VIEW(borrowed.f32, MHA_F32, 2, 8, 2)))
    SPOIL(MHA_INVALID, "cos", ROPE(.cos_table = VIEW(borrowed.f32, MHA_F32, 2, 8, 2)))
    SPOIL(MHA_INVALID, "cos", ROPE(.sin_table = VIEW(borrowed.f32, MHA_F32, 2, 8, 2)))
    SPOIL(MHA_INVALID, "tables",
          ROPE(.cos_table = VIEW(borrowed.f32, MHA_F32, 2, 8, 2), .sin_table = VIEW(borrowed.f32, MHA_F32, 2, 7, 2)))
    SPOIL(MHA_INVALID, "tables",
          ROPE(.cos_table = VIEW(borrowed.f32, MHA_F32, 2, 8, 3), .sin_table = VIEW(borrowed.f32, MHA_F32, 2, 8, 3)))
    SPOIL(MHA_INVALID, "tables",
          ROPE(.cos_table = VIEW(borrowed.f32, MHA_F32, 2, 8, 2), .sin_table = VIEW(borrowed.f64, MHA_F64, 2, 8, 2)))
    SPOIL(MHA_INVALID, "tables",
          ROPE(.cos_table = VIEW(borrowed.u8, MHA_U8, 2, 8, 2), .sin_table = VIEW(borrowed.u8, MHA_U8, 2, 8, 2)))
    SPOIL(MHA_INVALID, "4 rows", /* queries 0 to 2 fit, keys 0 to 4 do not */
          ROPE(.cos_table = VIEW(borrowed.f32, MHA_F32, 2, 4, 2), .sin_table = VIEW(borrowed.f32, MHA_F32, 2, 4, 2)))
    memset(&borrowed, 0, sizeof borrowed);
    SPOIL(MHA_INVALID, "from -1 to 0", borrowed.i64[2] = -1;
          ROPE(.cos_table = VIEW(borrowed.f32, MHA_F32, 2, 8, 2), .sin_table = VIEW(borrowed.f32, MHA_F32, 2, 8, 2),
               .q_positions = VIEW(borrowed.i64, MHA_I64, 2, 2, 3)))
    SPOIL(MHA_INVALID, "from 0 to 9", borrowed.i64[2] = 9;
          ROPE(.cos_table = VIEW(borrowed.f32, MHA_F32, 2, 9, 2), .sin_table = VIEW(borrowed.f32, MHA_F32, 2, 9, 2),
               .q_positions = VIEW(borrowed.i64, MHA_I64, 2, 2, 3)))
    SPOIL(MHA_INVALID, "from 0 to 9", borrowed.i64[2] = 0; borrowed.i64[5] = 9; /* the last of the last row */
          ROPE(.cos_table = VIEW(borrowed.f32, MHA_F32, 2, 9, 2), .sin_table = VIEW(borrowed.f32, MHA_F32, 2, 9, 2),
               .q_positions = VIEW(borrowed.i64, MHA_I64, 2, 2, 3)))
    SPOIL(MHA_UNSUPPORTED, "3 queries", /* a row for each token serves one length */
          ROPE(.cos_table = VIEW(borrowed.f32, MHA_F32, 3, 2, 3, 2),
               .sin_table = VIEW(borrowed.f32, MHA_F32, 3, 2, 3, 2)))
    SPOIL(MHA_UNSUPPORTED, "tables by position for a part of the keys", S.place.has_key_offset = true;
          ROPE(.cos_table = VIEW(borrowed.f32, MHA_F32, 3, 2, 3, 2),
               .sin_table = VIEW(borrowed.f32, MHA_F32, 3, 2, 3, 2)))
    /* ragged batches */
    SPOIL(MHA_INVALID, "batch extent 1", S.place.n_sequences = 2; S.place.cu_seqlens_q = borrowed.i64)
#undef S
}

static void ragged_offsets_must_cut_the_rows(void **state)
{
    fixture *f = *state;
    const mha_layer *layer = f->layer;
    static const int64_t bad[][4] = {{1, 2, 3, 6},  {0, 2, 3, 5}, {0, 4, 3, 6},        {0, 7, 7, 6},
                                     {0, -1, 3, 6}, {0, 2, 3, 7}, {0, INT64_MAX, 3, 6}};
    static const int64_t right[4] = {0, 2, 3, 6};
    mha_plan plan;
    mha_error error;
    mha_call good = {.query = view3(f->input, 1, 6, 8), .path = MHA_PATH_BLAS,
                     .semantics = {.place = {.n_sequences = 3, .cu_seqlens_q = right}}};
    assert_ok(mha_plan_call(layer, &good, &plan, &error), error);
    assert_true(plan.B == 3 && plan.T_q == 3 && plan.S == 3);
    mha_keep list[MHA_STAGE_COUNT];
    give_stages(&good, list, &plan);
    assert_ok(mha_plan_call(layer, &good, &plan, &error), error);
    mha_cache *single;
    const mha_cache_spec one = {.batch = 1, .kv_heads = 1, .d_k = 4, .d_v = 4, .capacity = 9};
    assert_ok(mha_cache_create(&one, NULL, &single, &error), error);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        SPOIL(MHA_INVALID, "cu_seqlens_q", call.semantics.place.cu_seqlens_q = bad[i])
        SPOIL(MHA_INVALID, "cu_seqlens_k", call.semantics.place.cu_seqlens_k = bad[i])
    }
    SPOIL(MHA_INVALID, "offset 2 of 3 after 4", call.semantics.place.cu_seqlens_q = bad[2])
    SPOIL(MHA_INVALID, "sequence", call.semantics.place.n_sequences = 0)
    SPOIL(MHA_INVALID, "cache", call.cache = f->cache) /* of two batch rows */
    SPOIL(MHA_UNSUPPORTED, "cache", call.cache = single)
    mha_cache_destroy(single);
    SPOIL(MHA_UNSUPPORTED, "present_key",
          *stage_view(&call, MHA_STAGE_PRESENT_KEY) = mha_view_of(f->input, MHA_F32, 4, (size_t[]){3, 1, 3, 4}))
}

static void caches_that_do_not_fit_are_refused(void **state)
{
    fixture *f = *state;
    const mha_layer *layer = f->layer;
    mha_plan plan;
    mha_error error;
    mha_call good = f->call;
    good.cache = f->cache;
    assert_ok(mha_plan_call(layer, &good, &plan, &error), error);
    assert_int_equal(plan.S, 7);
    mha_keep list[MHA_STAGE_COUNT];
    give_stages(&good, list, &plan);
    SPOIL(MHA_INVALID, "room", call.key = view3(f->input, 2, 6, 8))
    static const struct {
        mha_cache_spec spec;
        mha_status status;
    } wrong[] = {
        {{.batch = 1, .kv_heads = 1, .d_k = 4, .d_v = 4, .capacity = 9}, MHA_INVALID},
        {{.batch = 2, .kv_heads = 2, .d_k = 4, .d_v = 4, .capacity = 9}, MHA_INVALID},
        {{.batch = 2, .kv_heads = 1, .d_k = 3, .d_v = 4, .capacity = 9}, MHA_INVALID},
        {{.batch = 2, .kv_heads = 1, .d_k = 4, .d_v = 5, .capacity = 9}, MHA_INVALID},
        {{.batch = 2, .kv_heads = 1, .d_k = 4, .d_v = 4, .capacity = 9, .dtype = MHA_F64}, MHA_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mha_cache *other;
        assert_ok(mha_cache_create(&wrong[i].spec, NULL, &other, &error), error);
        SPOIL(wrong[i].status, "cache", call.cache = other)
        mha_cache_destroy(other);
    }
}

/* Words that are reserved for later versions are refused with the name of their struct, one at a time. */
static void a_setting_of_a_later_version_is_refused(void **state)
{
    fixture *f = *state;
    const mha_layer *layer = NULL;
    mha_plan plan;
    mha_error error;
    const mha_view rows = mha_heads(f->input, 1, 2, 2, 3);
    mha_view weights[MHA_WEIGHT_ROOM + 1] = {{0}};
    mha_call good = {.query = rows, .key = rows, .value = rows, .weights = weights,
                     .weight_count = MHA_WEIGHT_ROOM};
    assert_ok(mha_plan_call(layer, &good, &plan, &error), error);
    mha_keep list[MHA_STAGE_COUNT];
    give_stages(&good, list, &plan);
    assert_ok(mha_plan_call(layer, &good, &plan, &error), error);
#define WORD(place) call.place.reserved[sizeof call.place.reserved / sizeof *call.place.reserved - 1] = 1
    SPOIL(MHA_UNSUPPORTED, "call: reserved[15]: expected 0, found 7", call.reserved[15] = 7)
    SPOIL(MHA_UNSUPPORTED, "place: reserved", WORD(semantics.place))
    SPOIL(MHA_UNSUPPORTED, "qkv: reserved", WORD(semantics.qkv))
    SPOIL(MHA_UNSUPPORTED, "rope: reserved", WORD(semantics.qkv.rope))
    SPOIL(MHA_UNSUPPORTED, "visible: reserved", WORD(semantics.visible))
    SPOIL(MHA_UNSUPPORTED, "added: reserved", WORD(semantics.added))
    SPOIL(MHA_UNSUPPORTED, "softmax: reserved", WORD(semantics.softmax))
    SPOIL(MHA_UNSUPPORTED, "pages: reserved", WORD(pages))
    SPOIL(MHA_UNSUPPORTED, "precision: reserved", WORD(precision))
    SPOIL(MHA_INVALID, "weight_count", call.weight_count = 0)
    SPOIL(MHA_INVALID, "weight_count", call.weight_count = MHA_WEIGHT_ROOM + 1)
    SPOIL(MHA_UNSUPPORTED, "found weight 63", weights[63] = rows)
    weights[63] = (mha_view){0};

    mha_layer *made = NULL;
    mha_cache *cache = NULL;
    mha_params *table = NULL;
    assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
    mha_config config = {.d_model = 8, .n_heads = 2, .reserved[15] = 1};
    assert_int_equal(mha_layer_create(&config, table, NULL, &made, &error), MHA_UNSUPPORTED);
    assert_string_equal(error.name, "config");
    config = (mha_config){.d_model = 8, .n_heads = 2, .matrix_dtype[MHA_WEIGHT_ROOM - 1] = MHA_Q8_0};
    assert_int_equal(mha_layer_create(&config, table, NULL, &made, &error), MHA_UNSUPPORTED);
    assert_string_equal(error.name, "matrix_dtype");
    const mha_cache_spec spec = {.batch = 1, .kv_heads = 1, .d_k = 1, .d_v = 1, .capacity = 1, .reserved[3] = 1};
    assert_int_equal(mha_cache_create(&spec, NULL, &cache, &error), MHA_UNSUPPORTED);
    assert_string_equal(error.name, "cache");
    const mha_tensor_spec tensor = {.name = "t", .reserved[3] = 1};
    assert_int_equal(mha_params_add(table, &tensor, NULL, &error), MHA_UNSUPPORTED);
    assert_string_equal(error.name, "t");
    assert_int_equal(mha_params_count(table), 0);
    mha_params_destroy(table);
}

static void weights_that_do_not_fit_are_named(void **state)
{
    fixture *f = *state;
    const mha_layer *layer = NULL;
    mha_plan plan;
    mha_error error;
#define V4(a, b, c, d) mha_view_of(f->input, MHA_F32, 4, (size_t[]){a, b, c, d})
#define V1(n) mha_view_of(f->input, MHA_F32, 1, (size_t[]){n})
#define WEIGHT(w)                                                                                                      \
    (memcpy(weights, good_weights, sizeof weights), call.weights = weights, call.weight_count = MHA_WEIGHT_COUNT,      \
     &weights[w])[0]
    mha_call good = {.query = V4(2, 3, 4, 5), .key = V4(2, 6, 2, 5), .value = V4(2, 6, 2, 3), .path = MHA_PATH_BLAS};
    const mha_view good_weights[MHA_WEIGHT_COUNT] = {[MHA_B_Q] = V1(20),   [MHA_B_K] = V1(10),  [MHA_B_V] = V1(6),
                                                     [MHA_BIAS_K] = V1(10), [MHA_BIAS_V] = V1(6), [MHA_SINKS] = V1(4),
                                                     [MHA_Q_NORM] = V1(5), [MHA_K_NORM] = V1(10)};
    mha_view weights[MHA_WEIGHT_COUNT];
    good.weights = good_weights, good.weight_count = MHA_WEIGHT_COUNT;
    assert_ok(mha_plan_call(layer, &good, &plan, &error), error);
    mha_keep list[MHA_STAGE_COUNT];
    give_stages(&good, list, &plan);
    assert_ok(mha_plan_call(layer, &good, &plan, &error), error);
    good.output = (mha_view){0};
    SPOIL(MHA_INVALID, "key", call.key = (mha_view){0})
    SPOIL(MHA_INVALID, "value", call.value = (mha_view){0})
    SPOIL(MHA_INVALID, "key", call.key = V4(2, 6, 2, 4))
    SPOIL(MHA_INVALID, "key", call.key = V4(1, 6, 2, 5))
    SPOIL(MHA_INVALID, "value", call.value = V4(2, 5, 2, 3))
    SPOIL(MHA_INVALID, "value", call.value = V4(2, 6, 4, 3))
    SPOIL(MHA_INVALID, "3 key/value", call.key = V4(2, 6, 3, 5); call.value = V4(2, 6, 3, 3))
    SPOIL(MHA_INVALID, "8 key/value", call.key = V4(2, 2, 8, 5); call.value = V4(2, 2, 8, 3))
    SPOIL(MHA_INVALID, "0 key/value", call.key = V4(2, 6, 0, 5); call.value = V4(2, 6, 0, 3))
    SPOIL(MHA_INVALID, "width 0", call.query = V4(2, 3, 4, 0); call.key = V4(2, 6, 2, 0);
          call.semantics.softmax.has_scale = true)
    SPOIL(MHA_INVALID, "width 0", call.value = V4(2, 6, 2, 0))
    SPOIL(MHA_INVALID, "b_Q", WEIGHT(MHA_B_Q) = V1(19))
    SPOIL(MHA_INVALID, "b_K", WEIGHT(MHA_B_K) = V1(20))
    SPOIL(MHA_INVALID, "b_V", WEIGHT(MHA_B_V) = V1(10))
    SPOIL(MHA_INVALID, "bias_k", WEIGHT(MHA_BIAS_K) = V1(5))
    SPOIL(MHA_INVALID, "bias_v", WEIGHT(MHA_BIAS_V) = V1(3))
    SPOIL(MHA_INVALID, "sinks", WEIGHT(MHA_SINKS) = V1(2))
    SPOIL(MHA_UNSUPPORTED, "W_Q: expected a layer", WEIGHT(MHA_W_Q) = V1(19))
    SPOIL(MHA_UNSUPPORTED, "W_O: expected a layer", WEIGHT(MHA_W_O) = V1(19))
    SPOIL(MHA_UNSUPPORTED, "b_O: expected a layer", WEIGHT(MHA_B_O) = V1(12))
    /* one number for all is none for each */
    SPOIL(MHA_INVALID, "b_Q", WEIGHT(MHA_B_Q) = V1(1))
    SPOIL(MHA_INVALID, "b_K", WEIGHT(MHA_B_K) = V1(1))
    SPOIL(MHA_INVALID, "b_V", WEIGHT(MHA_B_V) = V1(1))
    SPOIL(MHA_INVALID, "bias_k", WEIGHT(MHA_BIAS_K) = V1(1))
    SPOIL(MHA_INVALID, "bias_v", WEIGHT(MHA_BIAS_V) = V1(1))
    SPOIL(MHA_INVALID, "sinks", WEIGHT(MHA_SINKS) = V1(1))
    SPOIL(MHA_INVALID, "q_norm", WEIGHT(MHA_Q_NORM) = V1(10))
    SPOIL(MHA_INVALID, "k_norm", WEIGHT(MHA_K_NORM) = V1(20))
    SPOIL(MHA_INVALID, "k_norm", WEIGHT(MHA_K_NORM) = mha_view_of(f->input, MHA_F32, 2, (size_t[]){5, 2}))
    SPOIL(MHA_INVALID, "q_norm_bias", WEIGHT(MHA_Q_NORM_BIAS) = V1(20))
    SPOIL(MHA_INVALID, "expected the weight of the norm with it",
          WEIGHT(MHA_K_NORM) = (mha_view){0}; weights[MHA_K_NORM_BIAS] = V1(5))
    SPOIL(MHA_INVALID, "expected the weight of the norm with it",
          WEIGHT(MHA_Q_NORM) = (mha_view){0}; weights[MHA_Q_NORM_BIAS] = V1(5))
    SPOIL(MHA_INVALID, "sinks", WEIGHT(MHA_SINKS).dtype = MHA_I32)
    SPOIL(MHA_UNSUPPORTED, "together", WEIGHT(MHA_BIAS_V) = (mha_view){0})
    SPOIL(MHA_UNSUPPORTED, "together", WEIGHT(MHA_BIAS_K) = (mha_view){0})
    SPOIL(MHA_INVALID, "output", call.output = V4(2, 3, 4, 5))
    /* after an output that is not kept, and after one by head */
    SPOIL(MHA_INVALID, "lse", *stage_view(&call, MHA_STAGE_LSE) = V4(2, 4, 3, 1))
    SPOIL(MHA_INVALID, "lse", call.output = V4(2, 3, 4, 3); *stage_view(&call, MHA_STAGE_LSE) = V4(2, 4, 3, 1))
    /* one feature has no next one: its step is of no concern */
    mha_call thin = {.query = V4(1, 2, 1, 1), .key = V4(1, 2, 1, 1), .value = V4(1, 2, 1, 1), .path = MHA_PATH_BLAS};
    thin.query.stride[3] = 9;
    assert_ok(mha_plan_call(NULL, &thin, &plan, &error), error);
#undef WEIGHT
#undef V4
#undef V1
}

static void a_workspace_too_small_is_refused(void **state)
{
    fixture *f = *state;
    for (int p = MHA_PATH_BLAS; p <= MHA_PATH_EXACT; p++) {
        mha_plan plan;
        mha_error error;
        char number[32];
        mha_call call = f->call;
        call.path = (mha_path)p;
        assert_ok(mha_plan_call(f->layer, &call, &plan, &error), error);
        mha_keep list[MHA_STAGE_COUNT];
        give_stages(&call, list, &plan);
        assert_ok(mha_plan_call(f->layer, &call, &plan, &error), error);
        snprintf(number, sizeof number, "%zu", plan.workspace_bytes);
        assert_refused(mha_forward(&plan, f->workspace, plan.workspace_bytes - 1, &error), MHA_INVALID, error,
                       "workspace", number);
        assert_refused(mha_forward(&plan, NULL, SIZE_MAX, &error), MHA_INVALID, error, "workspace");
        assert_untouched(&call);
        assert_ok(mha_forward(&plan, f->workspace, plan.workspace_bytes, &error), error);
    }
}

/* Broadcast inputs cost no memory, so their extents can be anything: sizes that do not fit are found out. */
static void sizes_beyond_the_machine_are_refused(void **state)
{
    fixture *f = *state;
    mha_error error;
    mha_plan plan;
    for (int p = MHA_PATH_AUTO; p <= MHA_PATH_EXACT; p++)
        for (int shift = 16; shift <= 30; shift += shift < 28 ? 4 : 1)
            for (int keep = 0; keep < 2; keep++) {
                mha_call call = {.path = (mha_path)p, .threads = 2};
                mha_keep list[MHA_STAGE_COUNT];
                stages_list(&call, list);
                size_t many = (size_t)1 << shift;
                call.query = view3(f->input, many, many, 8);
                call.query.stride[0] = 0, call.query.stride[1] = 8; /* never read */
                if (keep)
                    *stage_view(&call, MHA_STAGE_WEIGHTS_MEAN) =
                        (mha_view){.data = (void *)((uintptr_t)f->input + ((uintptr_t)1 << 45)),
                                   .rank = 3,
                                   .shape = {many, many, many},
                                   .stride = {1, 1, 1}};
                mha_status status = mha_plan_call(f->layer, &call, &plan, &error);
                if (p == MHA_PATH_FAST && status == MHA_UNSUPPORTED)
                    continue;
                if (status == MHA_OK) /* the least that output and concat take */
                    assert_true(plan.workspace_bytes / 4 / 8 / many >= many);
                else
                    assert_refused(status, MHA_INVALID, error, "");
                *stage_view(&call, MHA_STAGE_WEIGHTS_MEAN) = (mha_view){0};
                call.query = view3(f->input, 1, many, 8);
                status = mha_plan_call(f->layer, &call, &plan, &error);
                assert_true(status == MHA_OK || status == MHA_INVALID ||
                            (p == MHA_PATH_FAST && status == MHA_UNSUPPORTED));
                if (status == MHA_OK)
                    assert_true(plan.workspace_bytes / 8 / 4 >= many);
            }
    mha_view wide =
        mha_view_of(f->input, MHA_F32, 4, (size_t[]){(size_t)1 << 30, (size_t)1 << 30, 4, 4}); /* 2^64 elements */
    wide.stride[0] = 0;
    mha_call call = {.query = wide, .key = wide, .value = wide, .threads = 2};
    for (int p = MHA_PATH_AUTO; p <= MHA_PATH_EXACT; p++) {
        call.path = (mha_path)p;
        assert_int_not_equal(mha_plan_call(NULL, &call, &plan, &error), MHA_OK);
    }
    wide = mha_view_of(f->input, MHA_F32, 4, (size_t[]){1, 1, 1 << 16, 1 << 16}); /* rows of 2^32 features */
    call = (mha_call){.query = wide, .key = wide, .value = wide};
    assert_refused(mha_plan_call(NULL, &call, &plan, &error), MHA_INVALID, error, "4294967296");
    wide = mha_view_of(f->input, MHA_F32, 4, (size_t[]){1, 1, 1, INT_MAX}); /* the longest row there is */
    call = (mha_call){.query = wide, .key = wide, .value = wide};
    assert_ok(mha_plan_call(NULL, &call, &plan, &error), error);
    call = (mha_call){.query = view3(f->input, 1, (size_t)INT_MAX + 1, 8)};
    assert_refused(mha_plan_call(f->layer, &call, &plan, &error), MHA_INVALID, error, "query");
}

/* A forward asks its table and its cache for nothing. */
static void forward_allocates_nothing(void **state)
{
    fixture *f = *state;
    failing memory = {0};
    mha_allocator allocator = failing_allocator(&memory);
    mha_params *table;
    mha_layer *layer;
    mha_cache *cache;
    mha_error error;
    mha_config config = {.d_model = 8, .n_heads = 2, .kv_heads = 1, .dtype = MHA_BF16};
    mha_cache_spec spec = {.batch = 2, .kv_heads = 1, .d_k = 4, .d_v = 4, .capacity = 10, .window = 5};
    assert_int_equal(mha_params_create(&allocator, &table, NULL), MHA_OK);
    assert_ok(mha_layer_create(&config, table, "", &layer, &error), error);
    assert_ok(mha_cache_create(&spec, &allocator, &cache, &error), error);
    assert_int_equal(mha_cache_bytes(cache), 2 * 2 * 10 * 4 * sizeof(float));
    size_t calls = memory.calls;
    memory.fail_at = calls + 1, memory.then_all = true;
    for (int i = 0; i < 3; i++)
        for (int p = MHA_PATH_BLAS; p <= MHA_PATH_EXACT; p++) {
            mha_plan plan;
            mha_call call = f->call;
            call.path = (mha_path)p;
            call.cache = cache;
            call.key = view3(f->input, 2, 2, 8);
            assert_ok(mha_plan_call(layer, &call, &plan, &error), error);
            assert_true(plan.workspace_bytes <= f->workspace_bytes);
            assert_ok(mha_forward(&plan, f->workspace, f->workspace_bytes, &error), error);
        }
    assert_int_equal(memory.calls, calls);
    memory.fail_at = 0;
    mha_cache_destroy(cache);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
    assert_int_equal(memory.live_blocks, 0);
    assert_int_equal(memory.bugs, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(shapes_that_do_not_fit_are_named),
        TEST(semantics_without_meaning_are_refused),
        TEST(ragged_offsets_must_cut_the_rows),
        TEST(caches_that_do_not_fit_are_refused),
        TEST(a_setting_of_a_later_version_is_refused),
        TEST(weights_that_do_not_fit_are_named),
        TEST(a_workspace_too_small_is_refused),
        TEST(sizes_beyond_the_machine_are_refused),
        TEST(forward_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
