/* Plans: run many times, moved to other memory, refused when what they stand on has changed; what a call may write. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/layer/layer.h"
#include "base/overlap.h"
#include "mha/lab.h"
#include "support/call.h"
#include "support/stages.h"
#include "support/unit.h"

enum { B = 2, T = 6, H = 2, D = 4, WIDTH = H * D, ROWS = B * T * WIDTH };

static float x[2][ROWS], y[2][ROWS];
static const mha_path paths[] = {MHA_PATH_FAST, MHA_PATH_BLAS, MHA_PATH_EXACT};

typedef struct fixture {
    mha_layer *layer;
    char *workspace;
    size_t bytes;
} fixture;

static int set_up(void **state)
{
    static fixture f;
    *state = &f;
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < ROWS; i++)
            x[s][i] = mha__random_unit(3, (uint64_t)s, i) - 0.5f;
    if (mha_layer_create(&(mha_config){.d_model = WIDTH, .n_heads = H}, NULL, NULL, &f.layer, NULL) != MHA_OK)
        return -1;
    mha_layer_init(f.layer, 1);
    f.workspace = malloc(f.bytes = 1 << 20);
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    mha_layer_destroy(f->layer);
    free(f->workspace);
    return 0;
}

static mha_call call_of(const float *input, float *output, mha_path path)
{
    return (mha_call){.query = mha_rows(input, B, T, WIDTH), .output = mha_rows(output, B, T, WIDTH),
                      .semantics.visible.causal = true, .path = path, .threads = 1};
}

/* ---------------------------------------------------------------- running */

/* One plan, copied too, gives the bits of a run whatever ran before; it needs neither the call nor the error. */
static void a_plan_runs_many_times(void **state)
{
    fixture *f = *state;
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        mha_error error;
        mha_plan plan;
        mha_call call = call_of(x[0], y[0], paths[p]);
        assert_ok(mha_run(f->layer, &call, &error), error);
        call.output = mha_rows(y[1], B, T, WIDTH);
        assert_ok(mha_plan_call(f->layer, &call, &plan, &error), error);
        memset(&call, 0xFF, sizeof call);
        mha_plan copy = plan;
        memset(&plan, 0xFF, sizeof plan);
        for (int i = 0; i < 3; i++) {
            memset(y[1], 0xFF, sizeof y[1]);
            assert_ok(mha_forward(&copy, f->workspace + i, f->bytes - 8, NULL), error);
            assert_memory_equal(y[0], y[1], sizeof y[0]);
        }
    }
}

/* Moved, a plan does what one made for the other memory does; keys and values that were not given follow. */
static void a_plan_moves(void **state)
{
    fixture *f = *state;
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++)
        for (int way = 0; way < 8; way++) {
            const bool query = way & 1, key = way & 2, value = way & 4;
            mha_error error;
            mha_plan plan;
            float moved[ROWS], made[ROWS];
            mha_call call = call_of(x[0], y[0], paths[p]);
            call.key = mha_rows(x[0], B, T, WIDTH), call.value = mha_rows(x[0], B, T, WIDTH);
            assert_ok(mha_plan_call(f->layer, &call, &plan, &error), error);
            assert_ok(mha_plan_move(&plan, query ? x[1] : NULL, key ? x[1] : NULL, value ? x[1] : NULL, moved, &error),
                      error);
            assert_ok(mha_forward(&plan, f->workspace, f->bytes, &error), error);
            call = call_of(x[query], made, paths[p]);
            call.key = mha_rows(x[key], B, T, WIDTH), call.value = mha_rows(x[value], B, T, WIDTH);
            assert_ok(mha_run(f->layer, &call, &error), error);
            assert_memory_equal(moved, made, sizeof made);

            call = call_of(x[0], y[0], paths[p]); /* key and value left out */
            call.key = key ? mha_rows(x[0], B, T, WIDTH) : (mha_view){0};
            assert_ok(mha_plan_call(f->layer, &call, &plan, &error), error);
            assert_ok(mha_plan_move(&plan, x[1], NULL, NULL, moved, &error), error);
            assert_ok(mha_forward(&plan, f->workspace, f->bytes, &error), error);
            call = call_of(x[1], made, paths[p]);
            call.key = key ? mha_rows(x[0], B, T, WIDTH) : (mha_view){0};
            assert_ok(mha_run(f->layer, &call, &error), error);
            assert_memory_equal(moved, made, sizeof made);
        }
    mha_error error;
    mha_plan plan;
    mha_call call = call_of(x[0], y[0], MHA_PATH_BLAS);
    assert_ok(mha_plan_call(f->layer, &call, &plan, &error), error);
    mha_plan before = plan;
    assert_refused(mha_plan_move(&plan, NULL, NULL, NULL, x[0], &error), MHA_INVALID, error, "output", "query");
    assert_refused(mha_plan_move(&plan, y[0] + WIDTH, NULL, NULL, NULL, &error), MHA_INVALID, error, "output", "query");
    assert_memory_equal(&plan, &before, sizeof plan);
    call.output = (mha_view){0};
    assert_ok(mha_plan_call(f->layer, &call, &plan, &error), error);
    assert_refused(mha_plan_move(&plan, NULL, NULL, NULL, y[0], &error), MHA_INVALID, error, "output", "plan");
}

/* ---------------------------------------------------------------- what has changed since */

static void a_plan_knows_what_has_changed(void **state)
{
    fixture *f = *state;
    mha_error error;
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        mha_plan plan;
        mha_cache *cache;
        const mha_cache_spec spec = {.batch = B, .kv_heads = H, .d_k = D, .d_v = D, .capacity = 2 * T,
                                     .dtype = paths[p] == MHA_PATH_EXACT ? MHA_F64 : MHA_F32};
        assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
        mha_call call = call_of(x[0], y[0], paths[p]);
        call.cache = cache;
        assert_ok(mha_plan_call(f->layer, &call, &plan, &error), error);
        assert_ok(mha_forward(&plan, f->workspace, f->bytes, &error), error);
        memset(y[0], 0x55, sizeof y[0]);
        memcpy(y[1], y[0], sizeof y[0]);
        assert_refused(mha_forward(&plan, f->workspace, f->bytes, &error), MHA_INVALID, error, "cache",
                       "plan the call again");
        assert_int_equal(mha_cache_length(cache), T);
        mha_cache_truncate(cache, 0); /* as it was */
        const char *isa = mha_isa();
        assert_int_equal(mha_isa_select("scalar", NULL), MHA_OK);
        if (strcmp(isa, "scalar") != 0)
            assert_refused(mha_forward(&plan, f->workspace, f->bytes, &error), MHA_INVALID, error, "scalar", "plan");
        assert_int_equal(mha_isa_select(isa, NULL), MHA_OK);
        assert_ok(mha_layer_pack(f->layer, &error), error);
        assert_refused(mha_forward(&plan, f->workspace, f->bytes, &error), MHA_INVALID, error, "layer", "packed");
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        assert_int_equal(mha_cache_length(cache), 0);
        assert_ok(mha_plan_call(f->layer, &call, &plan, &error), error);
        assert_ok(mha_layer_pack(f->layer, &error), error); /* again: the same copies, renewed */
        assert_ok(mha_forward(&plan, f->workspace, f->bytes, &error), error);
        mha_cache_clear(cache);
        assert_ok(mha_plan_call(f->layer, &call, &plan, &error), error);
        mha__layer_unpack(f->layer);
        assert_refused(mha_forward(&plan, f->workspace, f->bytes, &error), MHA_INVALID, error, "layer", "packed");
        mha_cache_destroy(cache);
    }
}

/* A window may leave another number of rows before the same position: the plan has room only for its own number. */
static void a_plan_knows_the_rows_of_a_window(void **state)
{
    fixture *f = *state;
    enum { WINDOW = 4, CAPACITY = 8, HELD = 5, POSITION = 7 };
    static float rows[B * H * CAPACITY * D];
    mha_error error;
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        mha_plan plan;
        mha_cache *cache;
        const mha_cache_spec spec = {
            .batch = B, .kv_heads = H, .d_k = D, .d_v = D, .capacity = CAPACITY, .window = WINDOW};
        assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
        const mha_view six = mha_view_of(rows, MHA_F32, 4, (size_t[]){B, H, 6, D}),
                       seven = mha_view_of(rows, MHA_F32, 4, (size_t[]){B, H, POSITION, D});
        assert_ok(mha_cache_load(cache, &six, &six, &error), error);
        mha_call call = {.query = mha_rows(x[0], B, 3, WIDTH), .cache = cache, .path = paths[p], .threads = 1};
        assert_ok(mha_run(f->layer, &call, &error), error); /* evicts two rows */
        mha_cache_truncate(cache, HELD);
        assert_int_equal(mha_cache_first(cache) + HELD, POSITION);
        call.query = mha_rows(x[0], B, 1, WIDTH);
        assert_ok(mha_plan_call(f->layer, &call, &plan, &error), error);
        assert_ok(mha_cache_load(cache, &seven, &seven, &error), error); /* the same position, nothing evicted */
        assert_refused(mha_forward(&plan, f->workspace, f->bytes, &error), MHA_INVALID, error, "cache", "plan");
        assert_int_equal(mha_cache_length(cache), POSITION);
        mha_cache_destroy(cache);
    }
}

static void a_plan_that_was_never_made_is_refused(void **state)
{
    fixture *f = *state;
    mha_error error;
    const mha_plan none = {0};
    size_t shape[4];
    assert_int_equal(mha_plan_stage(&none, MHA_STAGE_COUNT, shape), 0);
    assert_refused(mha_forward(&none, f->workspace, f->bytes, &error), MHA_INVALID, error, "plan", "mha_plan_call");
}

/* ---------------------------------------------------------------- the keep list */

static void a_keep_list_holds_a_stage_once(void **state)
{
    fixture *f = *state;
    mha_error error;
    mha_plan plan;
    double q[ROWS];
    mha_keep keep[] = {{.stage = MHA_STAGE_Q, .view = mha_view_of(q, MHA_F64, 3, (size_t[]){B, T, WIDTH})},
                       {.stage = MHA_STAGE_OUTPUT}};
    mha_call call = call_of(x[0], y[0], MHA_PATH_BLAS);
    call.keep = keep, call.keep_count = 2;
    assert_ok(mha_plan_call(f->layer, &call, &plan, &error), error);
    keep[0].ms = keep[1].ms = -1;
    assert_ok(mha_forward(&plan, f->workspace, f->bytes, &error), error);
    assert_true(keep[0].ms >= 0 && keep[1].ms >= 0);
    call.path = MHA_PATH_EXACT;
    assert_ok(mha_run(f->layer, &call, &error), error);
    assert_true(keep[0].ms == 0 && keep[1].ms == 0);
    keep[1].stage = MHA_STAGE_Q;
    assert_refused(mha_plan_call(f->layer, &call, &plan, &error), MHA_INVALID, error, "q: ", "twice");
    keep[1] = (mha_keep){.stage = MHA_STAGE_OUTPUT, .view = mha_rows(y[1], B, T, WIDTH)};
    assert_refused(mha_plan_call(f->layer, &call, &plan, &error), MHA_INVALID, error, "output");
    keep[1].stage = MHA_STAGE_COUNT;
    assert_refused(mha_plan_call(f->layer, &call, &plan, &error), MHA_INVALID, error, "keep", "stage");
    call.keep = NULL;
    assert_refused(mha_plan_call(f->layer, &call, &plan, &error), MHA_INVALID, error, "keep", "2");
    call.keep = keep, call.keep_count = MHA_STAGE_COUNT + 1;
    assert_refused(mha_plan_call(f->layer, &call, &plan, &error), MHA_INVALID, error, "keep", "18");
    call.keep_count = 0;
    call.weights = &(mha_view[MHA_WEIGHT_COUNT]){{0}}[0], call.weight_count = MHA_WEIGHT_COUNT;
    assert_refused(mha_plan_call(f->layer, &call, &plan, &error), MHA_INVALID, error, "weights", "layer");
}

/* ---------------------------------------------------------------- what may not meet */

static void output_apart_from_inputs(const mha_layer *layer, const mha_call *good, const mha_view *taken,
                                     const char *name, const size_t *output_shape, int rank)
{
    mha_error error;
    mha_plan plan;
    static const ptrdiff_t shifts[] = {0, 1, -1};
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++)
        for (int kept = 0; kept < 2; kept++) {
            mha_call call = *good;
            mha_view meets = mha_view_of((float *)taken->data + shifts[i], MHA_F32, rank, output_shape);
            mha_keep keep = {.stage = MHA_STAGE_HEADS, .view = meets};
            if (kept)
                call.keep = &keep, call.keep_count = 1;
            else
                call.output = meets;
            assert_refused(mha_plan_call(layer, &call, &plan, &error), MHA_INVALID, error, kept ? "heads" : "output",
                           name);
        }
}

static void what_is_written_is_apart_from_what_is_read(void **state)
{
    (void)state;
    enum { PAD = 4096 };
    static float memory[12][PAD];
    mha_error error;
    mha_plan plan;
    const size_t out[3] = {1, T, WIDTH};
    mha_view w[MHA_WEIGHT_COUNT] = {0};
    w[MHA_B_Q] = mha_view_of(memory[3] + 1024, MHA_F32, 1, (size_t[]){WIDTH});
    w[MHA_SINKS] = mha_view_of(memory[4] + 1024, MHA_F32, 1, (size_t[]){H});
    mha_call good = {.query = mha_heads(memory[0] + 1024, 1, T, H, D), .key = mha_heads(memory[1] + 1024, 1, T, H, D),
                     .value = mha_heads(memory[2] + 1024, 1, T, H, D), .weights = w,
                     .weight_count = MHA_WEIGHT_COUNT, .path = MHA_PATH_BLAS};
    mha_semantics *s = &good.semantics;
    s->visible.mask = (mha_mask){MHA_MASK_ADDITIVE, mha_view_of(memory[5] + 1024, MHA_F32, 2, (size_t[]){T, T})};
    s->visible.key_padding = (mha_mask){MHA_MASK_ADDITIVE, mha_view_of(memory[6] + 1024, MHA_F32, 2, (size_t[]){1, T})};
    s->qkv.rope.kind = MHA_ROPE_HALF_SPLIT;
    s->qkv.rope.cos_table = mha_view_of(memory[7] + 1024, MHA_F32, 2, (size_t[]){2 * T, D / 2});
    s->qkv.rope.sin_table = mha_view_of(memory[8] + 1024, MHA_F32, 2, (size_t[]){2 * T, D / 2});
    static int64_t offsets[PAD], lengths[PAD], cu[PAD];
    static double slopes[PAD];
    const mha_view offset = {.data = offsets + 1024}, length = {.data = lengths + 1024},
                   slope = {.data = slopes + 1024}, sequences = {.data = cu + 1024};
    s->place.position_offset = offset.data, s->visible.kv_lengths = length.data, s->added.alibi_slopes = slope.data;
    lengths[1024] = cu[1025] = T;
    static int64_t wholes[3][PAD];
    static unsigned char truths[2][PAD];
    mha_pattern *p = &s->visible.pattern;
    p->q_segments = mha_view_of(wholes[0] + 1024, MHA_I64, 2, (size_t[]){1, T});
    p->k_segments = mha_view_of(wholes[1] + 1024, MHA_I64, 2, (size_t[]){1, T});
    p->key_lists = mha_view_of(wholes[2] + 1024, MHA_I64, 2, (size_t[]){T, 2});
    p->query_padding = (mha_mask){MHA_MASK_HIDES, mha_view_of(truths[0] + 1024, MHA_U8, 2, (size_t[]){1, T})};
    p->blocks = (mha_mask){MHA_MASK_HIDES, mha_view_of(truths[1] + 1024, MHA_U8, 2, (size_t[]){T, T})};
    p->block_queries = p->block_keys = 1;
    assert_ok(mha_plan_call(NULL, &good, &plan, &error), error);
    const struct {
        const mha_view *view;
        const char *name;
    } taken[] = {{&good.query, "query"},
                 {&good.key, "key"},
                 {&good.value, "value"},
                 {&w[MHA_B_Q], "b_Q"},
                 {&w[MHA_SINKS], "sinks"},
                 {&s->visible.mask.values, "mask"},
                 {&s->visible.key_padding.values, "key_padding"},
                 {&s->qkv.rope.cos_table, "rope_cos"},
                 {&s->qkv.rope.sin_table, "rope_sin"},
                 {&p->q_segments, "q_segments"},
                 {&p->k_segments, "k_segments"},
                 {&p->key_lists, "key_lists"},
                 {&p->query_padding.values, "query_padding"},
                 {&p->blocks.values, "blocks"},
                 {&offset, "position_offset"},
                 {&length, "kv_lengths"},
                 {&slope, "alibi_slopes"}};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        output_apart_from_inputs(NULL, &good, taken[i].view, taken[i].name, out, 3);
    s->qkv.rope = (mha_rope){.kind = MHA_ROPE_HALF_SPLIT,
                         .frequencies = mha_view_of(memory[7] + 1024, MHA_F32, 1, (size_t[]){D / 2})};
    output_apart_from_inputs(NULL, &good, &s->qkv.rope.frequencies, "rope_frequencies", out, 3);
    s->place.position_offset = s->visible.kv_lengths = NULL, s->added.alibi_slopes = NULL;
    s->place.cu_seqlens_q = sequences.data, s->place.n_sequences = 1;
    s->visible.key_padding = (mha_mask){0};
    output_apart_from_inputs(NULL, &good, &sequences, "cu_seqlens_q", out, 3);
    s->place.cu_seqlens_q = (const int64_t[]){0, T}, s->place.cu_seqlens_k = sequences.data;
    output_apart_from_inputs(NULL, &good, &sequences, "cu_seqlens_k", out, 3);
    s->place.cu_seqlens_q = s->place.cu_seqlens_k = NULL, s->place.n_sequences = 0;
    /* the cache: also where its rows are still to come */
    mha_cache *cache;
    const mha_cache_spec spec = {.batch = 1, .kv_heads = H, .d_k = D, .d_v = D, .capacity = 4 * T};
    assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
    good.cache = cache;
    assert_ok(mha_cache_load(cache, &(mha_view){.rank = 4, .shape = {1, H, 0, D}},
                             &(mha_view){.rank = 4, .shape = {1, H, 0, D}}, &error),
              error);
    const mha_view keys = mha_cache_keys(cache), values = mha_cache_values(cache);
    const mha_view later[2] = {{.data = (float *)keys.data + 3 * T * D}, {.data = (float *)values.data + 3 * T * D}};
    s->visible.mask = s->visible.key_padding = (mha_mask){0};
    for (int i = 0; i < 2; i++)
        output_apart_from_inputs(NULL, &good, &later[i], "cache", out, 3);
    mha_cache_destroy(cache);
}

/* Stages and the output against each other; a layer's weights. */
static void stages_are_apart_from_each_other(void **state)
{
    fixture *f = *state;
    static float memory[4 * ROWS];
    mha_error error;
    mha_plan plan;
    for (size_t shift = 0; shift <= 2 * ROWS; shift += ROWS / 2)
        for (int stage = 0; stage < EVERY_STAGE; stage++)
            for (int other = 0; other < stage; other++) {
                mha_call call = call_of(x[0], y[0], MHA_PATH_BLAS);
                mha_keep list[MHA_STAGE_COUNT];
                stages_list(&call, list);
                call.output = (mha_view){0};
                assert_ok(mha_plan_call(f->layer, &call, &plan, &error), error);
                *stage_view(&call, (mha_stage)stage) = stage_of_plan(&plan, (mha_stage)stage, memory, MHA_F32);
                *stage_view(&call, (mha_stage)other) = stage_of_plan(&plan, (mha_stage)other, memory + shift, MHA_F32);
                const bool apart = shift >= mha_view_elements(stage_view(&call, (mha_stage)stage));
                const mha_status status = mha_plan_call(f->layer, &call, &plan, &error);
                if (apart)
                    assert_ok(status, error);
                else
                    assert_refused(status, MHA_INVALID, error, mha_stage_at((mha_stage)stage)->name,
                                   mha_stage_at((mha_stage)other)->name);
            }
    mha_call call = call_of(x[0], mha_tensor_view(mha_layer_weight(f->layer, MHA_W_V)).data, MHA_PATH_BLAS);
    assert_refused(mha_plan_call(f->layer, &call, &plan, &error), MHA_INVALID, error, "output", "W_");
}

/* Columns of one tensor: query, key, value and output side by side, in any order, do not meet; one feature more does.
 * Output in the gaps between rows that lie far apart, batch rows in reverse. */
static void columns_of_one_tensor_are_apart(void **state)
{
    (void)state;
    enum { ROW = 4 * WIDTH };
    static float packed[B * T * ROW], alone[B * T * ROW];
    static const int orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}};
    mha_error error;
    mha_plan plan;
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++)
        for (size_t o = 0; o < sizeof orders / sizeof *orders; o++)
            for (int backwards = 0; backwards < 2; backwards++) {
                for (size_t i = 0; i < B * T * ROW; i++)
                    packed[i] = alone[i] = mha__random_unit(9, 9, i) - 0.5f;
                mha_call call = {.path = paths[p], .threads = 1};
                mha_view *const views[] = {&call.query, &call.key, &call.value, &call.output};
                for (int i = 0; i < 4; i++)
                    *views[i] = (mha_view){.data = packed + orders[o][i] * WIDTH + (backwards ? T * ROW : 0),
                                           .rank = 4,
                                           .shape = {B, T, H, D},
                                           .stride = {backwards ? -T * ROW : T * ROW, ROW, D, 1}};
                assert_ok(mha_plan_call(NULL, &call, &plan, &error), error);
                run_call(NULL, &call);
                mha_view result = call.output;
                for (int i = 0; i < 3; i++)
                    views[i]->data = alone + ((float *)views[i]->data - packed);
                float *separate = calloc(ROWS, sizeof *separate);
                call.output = mha_heads(separate, B, T, H, D);
                run_call(NULL, &call);
                mha_difference d;
                assert_ok(mha_compare(&result, &call.output, 0, 0, &d, &error), error);
                assert_int_equal(d.mismatches, 0);
                free(separate);
                for (int i = 0; i < 3; i++)
                    views[i]->data = packed + ((float *)views[i]->data - alone);
                call.output = result;
                for (int shift = -1; shift <= 1; shift += 2) { /* one feature into its neighbours, or out of the row */
                    call.output.data = (float *)result.data + shift;
                    assert_refused(mha_plan_call(NULL, &call, &plan, &error), MHA_INVALID, error, "output");
                }
            }
}

/* Strides that leave all memory are counted without overflow: a view so long lies nowhere, and meets nothing. */
static void strides_beyond_all_memory_meet_nothing(void **state)
{
    (void)state;
    static const ptrdiff_t most = PTRDIFF_MAX, bytes = (ptrdiff_t)sizeof(float);
    const struct {
        ptrdiff_t batch, row;
        const char *key, *output; /* why it is refused as one or the other */
    } rows[] = {{most, WIDTH, NULL, NULL},
                {most / bytes, WIDTH, NULL, NULL},
                {most / bytes, most / bytes / T, "row stride", "memory of its own"}, /* in sum too long to count */
                {most / bytes / 2, most / bytes / T, "row stride", NULL},
                {PTRDIFF_MIN, WIDTH, NULL, NULL},
                {PTRDIFF_MIN / bytes, WIDTH, NULL, NULL},
                {-most / bytes, -most / bytes / T, "without overlap", NULL},
                {-most / bytes / 2, most / bytes / T, "row stride", NULL}};
    mha_error error;
    mha_plan plan;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int written = 0; written < 2; written++) {
            mha_call call = {.query = mha_heads(x[0], B, T, H, D), .output = mha_heads(y[0], B, T, H, D)};
            call.key = call.value = mha_heads(x[1], B, T, H, D);
            mha_view *view = written ? &call.output : &call.key;
            view->stride[0] = rows[i].batch;
            view->stride[1] = rows[i].row;
            const char *refused = written ? rows[i].output : rows[i].key;
            const mha_status status = mha_plan_call(NULL, &call, &plan, &error);
            if (refused)
                assert_refused(status, MHA_INVALID, error, refused);
            else
                assert_ok(status, error);
        }
}

/* Random strides of an output, a stage and `partial`: refused where several elements have one place, and only there. */
static void each_element_that_is_written_has_its_own_place(void **state)
{
    (void)state;
    enum { CALLS = 6000, MIDDLE = 600, PLACES = 2 * MIDDLE };
    static double memory[PLACES];
    size_t seen[3][2] = {{0}};
    uint64_t at = 0;
#define BELOW(n) ((size_t)(mha__random_bits(7, 7, at++) % (n)))
    for (int i = 0; i < CALLS; i++) {
        const size_t b = 1 + BELOW(2), t = 1 + BELOW(4), h = 1 + BELOW(2), d = 1 + BELOW(4), which = BELOW(3);
        const size_t shapes[3][4] = {{b, t, h, d}, {b, h, t, t}, {b, h, t, d + 2}};
        mha_error error;
        mha_plan plan;
        mha_call call = {.query = mha_heads(x[0], b, t, h, d), .key = mha_heads(x[1], b, t, h, d),
                         .value = mha_heads(x[1], b, t, h, d), .path = MHA_PATH_EXACT};
        mha_keep keep = {.stage = MHA_STAGE_WEIGHTS};
        mha_view view = mha_view_of(memory + MIDDLE, MHA_F64, 4, shapes[which]);
        unsigned char places[PLACES] = {0};
        size_t n[4], shared = 0;
        for (int k = 0; k < 4; k++) {
            const ptrdiff_t stride = (ptrdiff_t)BELOW(k == 3 ? 4 : 40);
            view.stride[k] = BELOW(3) == 0 ? -stride : BELOW(2) ? stride : view.stride[k];
        }
        for (n[0] = 0; n[0] < view.shape[0]; n[0]++)
            for (n[1] = 0; n[1] < view.shape[1]; n[1]++)
                for (n[2] = 0; n[2] < view.shape[2]; n[2]++)
                    for (n[3] = 0; n[3] < view.shape[3]; n[3]++) {
                        ptrdiff_t place = MIDDLE;
                        for (int k = 0; k < 4; k++)
                            place += (ptrdiff_t)n[k] * view.stride[k];
                        assert_true(place >= 0 && place < PLACES);
                        shared += places[place];
                        places[place] = 1;
                    }
        if (which == 0)
            call.output = view;
        else if (which == 1)
            keep.view = view, call.keep = &keep, call.keep_count = 1;
        else
            call.partial = view;
        const mha_status status = mha_plan_call(NULL, &call, &plan, &error);
        if (shared)
            assert_refused(status, MHA_INVALID, error, (const char *const[]){"output", "weights", "partial"}[which],
                           "a place for each element");
        else
            assert_ok(status, error);
        seen[which][shared > 0]++;
    }
#undef BELOW
    for (size_t which = 0; which < 3; which++)
        assert_true(seen[which][0] > 300 && seen[which][1] > 300);
}

static int by_value(const void *a, const void *b)
{
    const int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    return (one > other) - (one < other);
}

/* Random strides, some of them nearly the same along all axes: those that give two elements one place are refused,
 * and of the others only those that would take too long to check. */
static void no_strides_that_overlap_are_accepted(void **state)
{
    (void)state;
    enum { VIEWS = 800, AXES = 7, SIDE = 6, MOST = 279936 /* SIDE^AXES */ };
    int64_t *places = malloc(MOST * sizeof *places);
    size_t refused = 0, irregular = 0, accepted = 0;
    for (uint64_t i = 0; i < VIEWS; i++) {
        const bool alike = i % 32 == 0;
        const uint64_t draw = mha__random_bits(11, 3, 16 * i), spread = alike ? 1 << 18 : (uint64_t)16 << draw % 20;
        mha_view view = {.data = (void *)((uintptr_t)1 << 50), .dtype = MHA_F32};
        view.rank = alike ? AXES : 1 + (int)(i % 8);
        size_t n = 1;
        for (int k = 0; k < view.rank; k++) {
            const uint64_t bits = mha__random_bits(11, 3, 16 * i + 1 + (uint64_t)k);
            view.shape[k] = alike ? SIDE : 1 + bits % 4;
            view.stride[k] = 1 + (ptrdiff_t)((bits >> 8) & (spread - 1)) + (alike ? 1 << 24 : 0);
            view.stride[k] *= bits >> 63 ? -1 : 1;
            places[0] = 0;
            for (size_t copy = 1; copy < view.shape[k]; copy++)
                for (size_t e = 0; e < n; e++)
                    places[copy * n + e] = places[e] + (int64_t)copy * view.stride[k];
            n *= view.shape[k];
        }
        qsort(places, n, sizeof *places, by_value);
        bool overlaps = false;
        for (size_t e = 1; e < n; e++)
            overlaps |= places[e] == places[e - 1];
        mha_error error;
        const bool passes = mha__expect_own_places("output", &view, &error) == MHA_OK;
        assert_false(passes && overlaps);
        assert_true(passes || overlaps || strstr(error.message, "too irregular to check"));
        refused += overlaps, accepted += passes, irregular += !passes && !overlaps;
    }
    free(places);
    print_message("%zu views overlap, %zu do not, %zu are too irregular\n", refused, accepted, irregular);
    assert_true(refused > 100 && accepted > 100);
}

/* Strides that interleave are accepted. Strides that would take long to check are refused: some of them overlap. */
static void strides_may_interleave(void **state)
{
    (void)state;
    enum { WIDE = 1000, FAR = 700000001 };
    mha_error error;
    mha_plan plan;
    mha_call call = {.query = mha_heads(x[0], 1, 3, 1, 2), .key = mha_heads(x[1], 1, 3, 1, 2),
                     .value = mha_heads(x[1], 1, 3, 1, 2), .output = mha_heads(y[0], 1, 3, 1, 2)};
    call.output.stride[1] = 2, call.output.stride[3] = 3; /* 0 2 4, 3 5 7 */
    assert_ok(mha_plan_call(NULL, &call, &plan, &error), error);
    call.output.stride[3] = 4; /* 0 2 4, 4 6 8 */
    assert_refused(mha_plan_call(NULL, &call, &plan, &error), MHA_INVALID, error, "a place for each element");
    call.query = call.key = call.value = mha_heads(x[0], WIDE, WIDE, WIDE, WIDE);
    call.output = mha_heads(NULL, WIDE, WIDE, WIDE, WIDE);
    call.output.data = (void *)((uintptr_t)1 << 60); /* nothing is written */
    for (int k = 0; k < 4; k++)
        call.output.stride[k] = FAR + k * k * 12345;
    assert_refused(mha_plan_call(NULL, &call, &plan, &error), MHA_INVALID, error, "output", "too irregular to check");
}

/* ---------------------------------------------------------------- order */

/* The faults of a call, in the order in which mha_plan_call says that it checks. */
enum { SETTING, INPUT, PATH, CACHE, MEETING, STAGE, APART, FAULTS };
static const char *const blamed[FAULTS] = {"scale", "key", "threads", "cache", "mask", "weights", "q"};

/* Makes a call with the faults whose bits are set. */
static mha_call faulty(unsigned faults, mha_cache *short_cache, mha_keep keep[2])
{
    mha_call call = call_of(x[0], y[0], MHA_PATH_EXACT);
    keep[0] = (mha_keep){.stage = MHA_STAGE_WEIGHTS};
    keep[1] = (mha_keep){.stage = MHA_STAGE_Q};
    call.keep = keep, call.keep_count = 2;
    if (faults & 1 << SETTING)
        call.semantics.softmax.has_scale = true, call.semantics.softmax.scale = NAN;
    if (faults & 1 << INPUT)
        call.key = mha_view_of(x[1], MHA_F32, 2, (const size_t[]){T, WIDTH});
    if (faults & 1 << PATH)
        call.threads = -1;
    if (faults & 1 << CACHE)
        call.cache = short_cache;
    if (faults & 1 << MEETING)
        call.semantics.visible.mask = (mha_mask){.kind = MHA_MASK_ADDITIVE,
                                                   .values = mha_view_of(x[1], MHA_F32, 2, (const size_t[]){2, T})};
    if (faults & 1 << STAGE)
        keep[0].view = mha_view_of(y[1], MHA_F64, 1, (const size_t[]){1});
    if (faults & 1 << APART)
        keep[1].view = mha_rows(y[0], B, T, WIDTH);
    return call;
}

/* Of any number of faults the first in that order is named. */
static void the_first_fault_is_named(void **state)
{
    fixture *f = *state;
    mha_cache *short_cache;
    const mha_cache_spec spec = {.batch = B, .kv_heads = H, .d_k = D, .d_v = D, .capacity = T - 1};
    assert_int_equal(mha_cache_create(&spec, NULL, &short_cache, NULL), MHA_OK);
    for (unsigned faults = 0; faults < 1 << FAULTS; faults++) {
        mha_keep keep[2];
        const mha_call call = faulty(faults, short_cache, keep);
        mha_plan plan;
        mha_error error = {0};
        const mha_status status = mha_plan_call(f->layer, &call, &plan, &error);
        if (!faults) {
            assert_ok(status, error);
            continue;
        }
        assert_int_not_equal(status, MHA_OK);
        assert_string_equal(error.name, blamed[__builtin_ctz(faults)]);
    }
    mha_cache_destroy(short_cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_fault_is_named),
        cmocka_unit_test(a_plan_runs_many_times),
        cmocka_unit_test(a_plan_moves),
        cmocka_unit_test(a_plan_knows_what_has_changed),
        cmocka_unit_test(a_plan_knows_the_rows_of_a_window),
        cmocka_unit_test(a_plan_that_was_never_made_is_refused),
        cmocka_unit_test(a_keep_list_holds_a_stage_once),
        cmocka_unit_test(what_is_written_is_apart_from_what_is_read),
        cmocka_unit_test(stages_are_apart_from_each_other),
        cmocka_unit_test(columns_of_one_tensor_are_apart),
        cmocka_unit_test(strides_beyond_all_memory_meet_nothing),
        cmocka_unit_test(each_element_that_is_written_has_its_own_place),
        cmocka_unit_test(no_strides_that_overlap_are_accepted),
        cmocka_unit_test(strides_may_interleave),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
