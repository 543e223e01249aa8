/* The fast path from outside: what takes it and what does not, and the packed copies of the weights, which must
 * never be stale. */
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/layer/layer.h"
#include "mha/attention.h"
#include "mha/compare.h"
#include "mha/random.h"
#include "mha/system.h"
#include "support/call.h"
#include "support/failing.h"
#include "support/isa.h"
#include "support/trial.h"
#include "support/unit.h"
#include "support/stages.h"

/* ---------------------------------------------------------------- which path */

static trial plain(void)
{
    return (trial){.seed = 2, .B = 2, .T_q = 5, .T_k = 5, .config = {.d_model = 24, .n_heads = 3}};
}

static mha_plan plan_of(const trial *t, mha_path path, mha_stage keep)
{
    rig r;
    mha_error error;
    mha_plan plan;
    trial_build(t, &r);
    assert_ok(trial_run(&r, path, 1, 1u << keep, MHA_F32, &error), error);
    if (r.cache) /* which the run has filled */
        mha_cache_truncate(r.cache, t->past);
    assert_ok(mha_plan_call(r.layer, &r.call, &plan, &error), error);
    trial_release(&r);
    return plan;
}

/* One row per feature: what is set, and whether the fast path does it. */
static void every_feature_takes_the_fast_path(void **state)
{
    (void)state;
    const mha_config c = {.d_model = 24, .n_heads = 3};
    const struct {
        const char *name;
        trial t;
    } features[] = {
        {"plain", {.config = c}},
        {"causal", {.config = c, .semantics = {.visible.causal = true}}},
        {"offset for each row", {.config = c, .offset_each = true, .semantics = {.visible.causal = true}}},
        {"window", {.config = c, .semantics = {.visible = {.window_left = 1}}}},
        {"lengths", {.config = c, .lengths = true}},
        {"padding", {.config = c, .semantics = {.visible.key_padding = {.kind = MHA_MASK_HIDES}}}},
        {"filled padding",
         {.config = c,
          .semantics = {.visible.key_padding = {.kind = MHA_MASK_KEEPS},
                        .visible.has_padding_fill = true,
                        .visible.padding_fill = -1e4}}},
        {"mask that keeps", {.config = c, .semantics = {.visible.mask = {.kind = MHA_MASK_KEEPS}}}},
        {"mask that hides", {.config = c, .semantics = {.visible.mask = {.kind = MHA_MASK_HIDES}}}},
        {"additive mask", {.config = c, .semantics = {.visible.mask = {.kind = MHA_MASK_ADDITIVE}}}},
        {"short mask", {.config = c, .mask_short = 2, .semantics = {.visible.mask = {.kind = MHA_MASK_ADDITIVE}}}},
        {"ALiBi", {.config = c, .alibi = true}},
        {"softcap", {.config = c, .semantics = {.softmax.softcap = 2}}},
        {"scale", {.config = c, .semantics = {.softmax = {.has_scale = true, .scale = 0.5}}}},
        {"rotation", {.config = c, .semantics = {.qkv.rope = {.kind = MHA_ROPE_HALF_SPLIT}}}},
        {"zero row", {.config = c, .semantics = {.softmax.zero_row = true}}},
        {"softmax plus one", {.config = c, .semantics = {.softmax.softmax_plus_one = true}}},
        {"empty rows", {.config = c, .semantics = {.softmax.empty_rows = MHA_EMPTY_NAN}}},
        {"bias_kv", {.config = {.d_model = 24, .n_heads = 3, .bias_kv = true}}},
        {"sinks", {.config = {.d_model = 24, .n_heads = 3, .sinks = true}}},
        {"q/k norm", {.config = {.d_model = 24, .n_heads = 3, .q_norm = MHA_NORM_HEAD, .k_norm = MHA_NORM_ROW}}},
        {"gate by feature", {.config = {.d_model = 24, .n_heads = 3, .gate = MHA_GATE_FEATURE, .bias_gate = true}}},
        {"gate by head", {.config = {.d_model = 24, .n_heads = 3, .d_v = 5, .gate = MHA_GATE_HEAD}}},
        {"grouped heads", {.config = {.d_model = 24, .n_heads = 6, .kv_heads = 2}}},
        {"d_v", {.config = {.d_model = 24, .n_heads = 3, .d_k = 5, .d_v = 7}}},
        {"F16 weights", {.config = {.d_model = 24, .n_heads = 3, .bias_q = true, .dtype = MHA_F16}}},
        {"cache", {.config = c, .use_cache = true, .past = 3}},
        {"ragged batch", {.config = c, .sequences = 2}},
        {"core alone", {.config = {.d_model = 24, .n_heads = 3, .kv_heads = 3, .d_k = 8, .d_v = 8}, .bare = true}},
        {"sigmoid",
         {.config = c,
          .semantics = {.visible.causal = true, .softmax = {.normaliser = MHA_SIGMOID, .sigmoid_bias = -1}}}},
        {"propagated hidden values", {.config = c, .semantics = {.softmax.hidden_values = MHA_HIDDEN_PROPAGATE}}},
    };
    const char *best = mha_isa_at(0);
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        trial t = features[i].t;
        t.seed = 2, t.B = t.sequences ? 1 : 2, t.T_q = t.T_k = 5;
        mha_plan fast = plan_of(&t, MHA_PATH_FAST, MHA_STAGE_OUTPUT), any = plan_of(&t, MHA_PATH_AUTO, MHA_STAGE_HEADS);
        const bool slow =
            t.semantics.softmax.hidden_values == MHA_HIDDEN_PROPAGATE || t.semantics.softmax.normaliser == MHA_SIGMOID;
        if (fast.path != (slow ? MHA_PATH_BLAS : MHA_PATH_FAST))
            fail_msg("%s: path %s", features[i].name, mha_path_name(fast.path));
        assert_true((*fast.path_reason != '\0') == (fast.path != MHA_PATH_FAST));
        assert_int_equal(any.path, strcmp(best, "scalar") == 0 ? MHA_PATH_BLAS : fast.path);
        assert_trial(&t);
    }
}

/* The workspace holds the rows of whichever input is widest, staged: where that is all it holds, one that forgot an
 * input would end before them. */
static void any_input_may_be_by_far_the_widest(void **state)
{
    (void)state;
    enum { MANY = 140, WIDE = 4096 }; /* and an even seed: packed weights */
    const mha_config narrow = {.d_model = 8, .n_heads = 1, .d_k = 1, .d_v = 1, .d_kin = 8, .d_vin = 8};
    for (int widest = 0; widest < 3; widest++) {
        trial t = {.seed = 6, .B = 1, .T_q = widest == 0 ? MANY : 1, .T_k = widest == 0 ? 1 : MANY, .config = narrow};
        *(widest == 0 ? &t.config.d_q : widest == 1 ? &t.config.d_kin : &t.config.d_vin) = WIDE;
        assert_trial(&t);
    }
}

static void kept_scores_do_not_change_the_path(void **state)
{
    (void)state;
    trial t = plain();
    for (int s = 0; s < EVERY_STAGE; s++)
        assert_int_equal(plan_of(&t, MHA_PATH_FAST, (mha_stage)s).path, MHA_PATH_FAST);
}

static void the_portable_kernels_leave_auto_to_blas(void **state)
{
    (void)state;
    trial t = plain();
    assert_int_equal(mha_isa_select("scalar", NULL), MHA_OK);
    mha_plan any = plan_of(&t, MHA_PATH_AUTO, MHA_STAGE_OUTPUT);
    assert_int_equal(any.path, MHA_PATH_BLAS);
    assert_true(*any.path_reason);
    assert_int_equal(plan_of(&t, MHA_PATH_FAST, MHA_STAGE_OUTPUT).path, MHA_PATH_FAST);
    assert_int_equal(plan_of(&t, MHA_PATH_BLAS, MHA_STAGE_OUTPUT).path, MHA_PATH_BLAS);
    assert_string_equal(plan_of(&t, MHA_PATH_BLAS, MHA_STAGE_OUTPUT).path_reason, "");
}

/* ---------------------------------------------------------------- packed weights */

enum { T = 6, WIDTH = 40 };

typedef struct fixture {
    failing f;
    mha_allocator allocator;
    mha_params *table;
    mha_layer *layer;
    float x[T * WIDTH], out[T * WIDTH];
} fixture;

static void make(fixture *k, mha_dtype dtype)
{
    mha_error error;
    *k = (fixture){0};
    k->allocator = failing_allocator(&k->f);
    assert_int_equal(mha_params_create(&k->allocator, &k->table, NULL), MHA_OK);
    mha_config config = {
        .d_model = WIDTH, .n_heads = 4, .bias_q = true, .bias_k = true, .bias_v = true, .bias_o = true, .dtype = dtype};
    assert_ok(mha_layer_create(&config, k->table, "l.", &k->layer, &error), error);
    mha_layer_init(k->layer, 3);
    for (size_t i = 0; i < T * WIDTH; i++)
        k->x[i] = 2 * mha__random_unit(3, 99, i) - 1;
}

static void drop(fixture *k)
{
    mha_layer_destroy(k->layer);
    mha_params_destroy(k->table);
    assert_int_equal(k->f.live_bytes, 0);
    assert_int_equal(k->f.bugs, 0);
}

static const float *run(fixture *k, mha_path path)
{
    const size_t shape[3] = {1, T, WIDTH};
    mha_call call = {.query = mha_view_of(k->x, MHA_F32, 3, shape), .path = path, .threads = 1};
    call.output = mha_view_of(k->out, MHA_F32, 3, shape);
    assert_int_equal(run_call(k->layer, &call).path, path);
    return k->out;
}

/* Fast and blas: four products of 40 terms and a mean apart; a stale weight moves the output by about 0.1. */
static bool fresh(fixture *k)
{
    float fast[T * WIDTH];
    bool close = true;
    memcpy(fast, run(k, MHA_PATH_FAST), sizeof fast);
    const float *blas = run(k, MHA_PATH_BLAS);
    for (size_t i = 0; i < T * WIDTH; i++)
        close = close && fabs((double)fast[i] - blas[i]) < 1e-5;
    return close;
}

/* Panels take the place of a matrix that can be had back out of them, and of which nobody has a view. */
static void packed_weights_are_shown_and_never_counted_twice(void **state)
{
    (void)state;
    const mha_dtype dtypes[] = {MHA_F32, MHA_F64, MHA_F16, MHA_BF16};
    for (size_t d = 0; d < 4; d++)
        for (int viewed = 0; viewed < 2; viewed++) {
            fixture k;
            mha_error error;
            make(&k, dtypes[d]);
            const mha_totals before = mha_params_totals(k.table, NULL);
            const size_t live = k.f.live_bytes;
            for (int w = MHA_W_Q; viewed && w <= MHA_B_O; w++)
                assert_non_null(mha_tensor_view(mha_layer_weight(k.layer, (mha_weight)w)).data);
            assert_ok(mha_layer_pack(k.layer, &error), error);
            const mha_totals packed = mha_params_totals(k.table, NULL);
            const bool twice = viewed || dtypes[d] == MHA_F64;
            size_t each = 0;
            mha_dtype_bytes(dtypes[d] == MHA_F64 ? MHA_F32 : dtypes[d], 1, &each, NULL);
            const size_t panels = WIDTH * 64 * each; /* 40 columns fill two panels of 32 */
            assert_int_equal(packed.parameters, before.parameters);
            assert_int_equal(packed.parameter_bytes, before.parameter_bytes);
            assert_int_equal(packed.storages, before.storages);
            assert_int_equal(packed.tensors, before.tensors);
            assert_int_equal(packed.derived_bytes, twice ? 4 * panels : 0);
            assert_int_equal(packed.derived_storages, twice ? 4 : 0);
            assert_int_equal(k.f.live_bytes - live, packed.bytes_allocated - before.bytes_allocated);
            const mha_tensor_info info = mha_tensor_info_of(mha_params_find(k.table, "l.W_O"));
            assert_true(info.kind == MHA_TENSOR_PARAMETER && info.dtype == dtypes[d] && info.trainable);
            assert_int_equal(info.packed_bytes, panels);
            assert_true((info.data != NULL) == twice);
            assert_int_equal(mha_tensor_info_of(mha_params_find(k.table, "l.b_O")).packed_bytes, 0);
            assert_true(fresh(&k)); /* which unpacks them, for SGEMM */
            assert_int_equal(mha_params_totals(k.table, NULL).derived_bytes, 4 * panels);
            assert_ok(mha_layer_pack(k.layer, &error), error); /* again: nothing is added */
            assert_int_equal(mha_params_totals(k.table, NULL).derived_bytes, 4 * panels);
            mha_layer_drop_views(k.layer);
            assert_int_equal(mha_params_totals(k.table, NULL).derived_bytes, dtypes[d] == MHA_F64 ? 4 * panels : 0);
            mha__layer_unpack(k.layer);
            assert_int_equal(k.f.live_bytes, live);
            assert_int_equal(mha_params_totals(k.table, NULL).bytes_allocated, before.bytes_allocated);
            assert_int_equal(mha_params_totals(k.table, NULL).derived_bytes, 0);
            assert_true(fresh(&k));
            drop(&k);
        }
}

/* Weights in float64 are rounded and packed piece by piece: wider than a piece, and higher. */
static void wide_weights_of_doubles_are_packed_whole(void **state)
{
    (void)state;
    enum { NARROW = 3, WIDE = 2100 };
    mha_params *table;
    mha_layer *layer;
    mha_error error;
    assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
    const mha_config config = {.d_model = NARROW, .n_heads = 1, .d_k = WIDE, .d_v = WIDE, .dtype = MHA_F64};
    assert_ok(mha_layer_create(&config, table, NULL, &layer, &error), error);
    mha_layer_init(layer, 5);
    assert_ok(mha_layer_pack(layer, &error), error);
    float x[NARROW] = {1, -2, 0.5f};
    static float q[2][WIDE], y[2][NARROW];
    for (int p = 0; p < 2; p++) {
        mha_call call = {.query = mha_view_of(x, MHA_F32, 3, (size_t[]){1, 1, NARROW}),
                         .path = p ? MHA_PATH_BLAS : MHA_PATH_FAST, .threads = 1};
        mha_keep list[MHA_STAGE_COUNT];
        stages_list(&call, list);
        *stage_view(&call, MHA_STAGE_Q) = mha_view_of(q[p], MHA_F32, 3, (size_t[]){1, 1, WIDE});
        call.output = mha_view_of(y[p], MHA_F32, 3, (size_t[]){1, 1, NARROW});
        run_call(layer, &call);
    }
    for (size_t j = 0; j < WIDE; j++) /* three terms, each below 4 */
        assert_true(fabs((double)q[0][j] - q[1][j]) <= 12 * 0x1p-23);
    for (size_t j = 0; j < NARROW; j++) /* 2100 terms below 4 */
        assert_true(fabs((double)y[0][j] - y[1][j]) <= WIDE * 4 * WIDE * 0x1p-23);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
}

static void packed_copies_are_renewed_when_a_weight_is_set(void **state)
{
    (void)state;
    for (int w = MHA_W_Q; w <= MHA_B_O; w++) {
        fixture k;
        mha_error error;
        make(&k, w % 4 ? MHA_F32 : MHA_F16);
        assert_ok(mha_layer_pack(k.layer, &error), error);
        float before[T * WIDTH], values[WIDTH * WIDTH];
        memcpy(before, run(&k, MHA_PATH_FAST), sizeof before);
        for (size_t i = 0; i < WIDTH * WIDTH; i++)
            values[i] = mha__random_unit(8, 8, i) - 0.5f;
        const mha_view to = mha_tensor_view(mha_layer_weight(k.layer, (mha_weight)w));
        const mha_view from = mha_view_of(values, MHA_F32, to.rank, to.shape);
        assert_ok(mha_layer_set(k.layer, (mha_weight)w, &from, &error), error);
        assert_true(fresh(&k));
        if (w != MHA_B_K) /* which moves no weight */
            assert_memory_not_equal(before, run(&k, MHA_PATH_FAST), sizeof before);
        mha_layer_init(k.layer, 77);
        assert_true(fresh(&k));
        drop(&k);
    }
}

/* Writing through a view is not seen until the layer is told: then it is. */
static void packed_copies_are_renewed_when_the_layer_is_told(void **state)
{
    (void)state;
    fixture k;
    mha_error error;
    make(&k, MHA_F32);
    assert_ok(mha_layer_pack(k.layer, &error), error);
    mha_view head = mha_layer_head(k.layer, MHA_W_V, 2);
    for (size_t i = 0; i < head.shape[0]; i++)
        for (size_t j = 0; j < head.shape[1]; j++)
            mha_view_set(&head, (size_t[]){i, j}, 0.25);
    assert_false(fresh(&k));
    assert_int_equal(mha_layer_pack(k.layer, NULL), MHA_OK);
    assert_true(fresh(&k));
    drop(&k);
}

static void packing_without_memory_leaves_the_layer_as_it_was(void **state)
{
    (void)state;
    for (size_t n = 1;; n++) {
        fixture k;
        mha_error error;
        make(&k, MHA_F32);
        const size_t bytes = k.f.live_bytes;
        k.f.fail_at = k.f.calls + n;
        mha_status status = mha_layer_pack(k.layer, &error);
        k.f.fail_at = 0;
        if (status == MHA_OK) {
            drop(&k);
            assert_true(n > 4);
            break;
        }
        assert_int_equal(status, MHA_NO_MEMORY);
        assert_int_equal(k.f.live_bytes, bytes);
        assert_int_equal(mha_params_totals(k.table, NULL).derived_bytes, 0);
        assert_true(fresh(&k));
        drop(&k);
    }
}

/* The bits of a row through packed projections and the core depend on nobody else, unlike SGEMM's. */
static void a_row_has_the_same_bits_alone_and_in_company(void **state)
{
    (void)state;
    enum { B = 37 };
    mha_error error;
    fixture k;
    make(&k, MHA_F32);
    assert_ok(mha_layer_pack(k.layer, &error), error);
    static float x[B * T * WIDTH], out[B * T * WIDTH];
    for (size_t i = 0; i < B * T * WIDTH; i++)
        x[i] = 2 * mha__random_unit(4, 1, i) - 1;
    const size_t shape[3] = {B, T, WIDTH};
    mha_call call = {.query = mha_view_of(x, MHA_F32, 3, shape), .path = MHA_PATH_FAST};
    call.output = mha_view_of(out, MHA_F32, 3, shape);
    run_call(k.layer, &call);
    for (size_t b = 0; b < B; b += 6) {
        memcpy(k.x, x + b * T * WIDTH, sizeof k.x);
        assert_memory_equal(run(&k, MHA_PATH_FAST), out + b * T * WIDTH, sizeof k.x);
    }
    drop(&k);
}

/* Padding is the same for all rows, so its terms are worked out once for a stretch of keys; values that are no numbers
 * are asked about in another stretch, which ends at the same key. Hidden ones reach nobody. */
static void shared_terms_belong_to_their_stretch(void **state)
{
    (void)state;
    enum { QUERIES = 40, KEYS = 200, D = 16 };
    static float q[QUERIES * D], k[KEYS * D], v[KEYS * D], out[QUERIES * D];
    static double want[QUERIES * D];
    static uint8_t hidden[KEYS];
    for (size_t i = 0; i < KEYS * D; i++) {
        k[i] = mha__random_unit(5, 1, i) - 0.5f;
        v[i] = mha__random_unit(5, 2, i) - 0.5f;
        if (i < QUERIES * D)
            q[i] = mha__random_unit(5, 3, i) - 0.5f;
    }
    for (size_t j = 0; j < KEYS; j++)
        hidden[j] = j < 70 || j == 100;
    v[100 * D + 3] = NAN;
    mha_call call = {.query = mha_view_heads(q, MHA_F32, MHA_BTHD, 1, QUERIES, 1, D),
                     .key = mha_view_heads(k, MHA_F32, MHA_BTHD, 1, KEYS, 1, D),
                     .value = mha_view_heads(v, MHA_F32, MHA_BTHD, 1, KEYS, 1, D),
                     .semantics.visible.key_padding = {.kind = MHA_MASK_HIDES,
                                               .values = mha_view_of(hidden, MHA_U8, 2, (size_t[]){1, KEYS})},
                     .path = MHA_PATH_FAST};
    call.output = mha_view_rows(out, MHA_F32, MHA_BTE, 1, QUERIES, D);
    assert_int_equal(run_call(NULL, &call).path, MHA_PATH_FAST);
    call.path = MHA_PATH_EXACT;
    call.output = mha_view_rows(want, MHA_F64, MHA_BTE, 1, QUERIES, D);
    run_call(NULL, &call);
    /* Weights sum up to 1, each wrong by a few dozen units in the last place at most, times values below 1/2. */
    for (size_t i = 0; i < QUERIES * D; i++)
        assert_true(fabs(out[i] - want[i]) <= (KEYS + 64) * 0x1p-24);
}

/* Neither the number of threads nor the values of hidden keys change a bit of the output, in every direction in which
 * the caller's thread may round. One column of the visible values is 0: its sum has a sign, too. */
static void hidden_keys_add_nothing_however_the_caller_rounds(void **state)
{
    enum { LENGTH = 130, HEADS = 2, D = 24, ALL = LENGTH * HEADS * D };
    static float q[ALL], k[ALL], v[ALL], out[2][ALL];
    static const int roundings[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    static const float hidden_values[] = {0.0f, 3e38f, -3e38f, -1.0f};
    uint8_t keeps[LENGTH];
    for (size_t i = 0; i < ALL; i++) {
        q[i] = 4 * mha__random_unit(8, 1, i) - 2;
        k[i] = 4 * mha__random_unit(8, 2, i) - 2;
    }
    for (size_t j = 0; j < LENGTH; j++)
        keeps[j] = j % 7 != 3;
    FOR_EACH_ISA
    for (size_t way = 0; way < sizeof roundings / sizeof *roundings; way++)
        for (size_t n = 0; n < 12; n++) {
            static const int threads[] = {1, 2, 6};
            const float hidden = hidden_values[n / 3];
            for (size_t i = 0; i < ALL; i++)
                v[i] = !keeps[i / (HEADS * D)] ? hidden : i % D == 5 ? 0.0f : 2 * mha__random_unit(8, 3, i) - 1;
            mha_call call = {.query = mha_view_heads(q, MHA_F32, MHA_BTHD, 1, LENGTH, HEADS, D),
                             .key = mha_view_heads(k, MHA_F32, MHA_BTHD, 1, LENGTH, HEADS, D),
                             .value = mha_view_heads(v, MHA_F32, MHA_BTHD, 1, LENGTH, HEADS, D),
                             .semantics = {.visible.causal = true,
                                           .visible.mask = {.kind = MHA_MASK_KEEPS,
                                                    .values = mha_view_of(keeps, MHA_BOOL, 1, (size_t[]){LENGTH})}},
                             .path = MHA_PATH_FAST,
                             .threads = threads[n % 3]};
            call.output = mha_view_heads(out[n > 0], MHA_F32, MHA_BTHD, 1, LENGTH, HEADS, D);
            fesetround(roundings[way]);
            run_call(NULL, &call);
            fesetround(FE_TONEAREST);
            if (n > 0 && memcmp(out[0], out[1], sizeof *out) != 0)
                fail_msg("%s, rounding %d: hidden values of %g and %d threads give other bits", mha_isa(),
                         roundings[way], (double)hidden, threads[n % 3]);
        }
}

/* Scale times q is beyond float in some rows of Q, while the scores are ordinary numbers: the scale is then not put
 * into those rows whole. The other rows have the bits that they have without such company. */
static void a_scale_that_takes_a_query_beyond_float_gives_its_scores(void **state)
{
    enum { QUERIES = 40, KEYS = 600, D = 20 };
    static float q[QUERIES * D], k[KEYS * D], v[KEYS * D], out[2][QUERIES * D], lse[2][QUERIES];
    static double want[QUERIES * D], want_lse[QUERIES];
    static const struct {
        float scale, large, small, key; /* of scale, of every third query, of the others, of keys */
    } sizes[] = {{1e20f, 1e19f, 1e10f, 1e-38f},
                 {-1e20f, 1e19f, 1e10f, 1e-38f},
                 {3e38f, 3e38f, 1.0f, 1e-38f},
                 {2.0f, 3e38f, 1.0f, 1e-38f}};
    FOR_EACH_ISA
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        for (size_t i = 0; i < KEYS * D; i++) {
            k[i] = sizes[n].key * (mha__random_unit(5, 1, i) - 0.5f) * (n == 2 ? 1e-38f : 1.0f); /* subnormal, or 0 */
            v[i] = mha__random_unit(5, 2, i) - 0.5f;
        }
        mha_call call = {.query = mha_view_heads(q, MHA_F32, MHA_BTHD, 1, QUERIES, 1, D),
                         .key = mha_view_heads(k, MHA_F32, MHA_BTHD, 1, KEYS, 1, D),
                         .value = mha_view_heads(v, MHA_F32, MHA_BTHD, 1, KEYS, 1, D),
                         .semantics = {.softmax = {.has_scale = true, .scale = sizes[n].scale}},
                         .path = MHA_PATH_FAST};
        mha_keep list[MHA_STAGE_COUNT];
        stages_list(&call, list);
        for (int company = 1; company >= 0; company--) { /* the large queries, and then none of them */
            for (size_t i = 0; i < QUERIES * D; i++)
                q[i] =
                    (company && i / D % 3 == 0 ? sizes[n].large : sizes[n].small) * (mha__random_unit(5, 3, i) - 0.5f);
            call.output = mha_view_rows(out[company], MHA_F32, MHA_BTE, 1, QUERIES, D);
            *stage_view(&call, MHA_STAGE_LSE) = mha_view_of(lse[company], MHA_F32, 3, (size_t[]){1, 1, QUERIES});
            run_call(NULL, &call);
            for (size_t i = 0; i < QUERIES && company == 0; i++)
                assert_true(i % 3 == 0 || memcmp(out[0] + i * D, out[1] + i * D, D * sizeof(float)) == 0);
            mha_error error;
            double bound[MHA_STAGE_COUNT];
            call.path = MHA_PATH_EXACT;
            call.output = mha_view_rows(want, MHA_F64, MHA_BTE, 1, QUERIES, D);
            *stage_view(&call, MHA_STAGE_LSE) = mha_view_of(want_lse, MHA_F64, 3, (size_t[]){1, 1, QUERIES});
            run_call(NULL, &call);
            assert_ok(mha_error_bound(NULL, &call, 0x1p-24, bound, MHA_STAGE_COUNT, &error), error);
            assert_true(isfinite(bound[MHA_STAGE_OUTPUT]));
            for (size_t i = 0; i < QUERIES * D; i++)
                if (!(fabs(out[company][i] - want[i]) <= bound[MHA_STAGE_OUTPUT]))
                    fail_msg("%s, sizes %zu: output %zu is %g, expected %g within %g", mha_isa(), n, i,
                             (double)out[company][i], want[i], bound[MHA_STAGE_OUTPUT]);
            for (size_t i = 0; i < QUERIES; i++)
                assert_true(fabs(lse[company][i] - want_lse[i]) <= bound[MHA_STAGE_LSE]);
            call.path = MHA_PATH_FAST;
        }
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, isa_teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_feature_takes_the_fast_path),
        TEST(any_input_may_be_by_far_the_widest),
        TEST(kept_scores_do_not_change_the_path),
        TEST(the_portable_kernels_leave_auto_to_blas),
        TEST(packed_weights_are_shown_and_never_counted_twice),
        TEST(wide_weights_of_doubles_are_packed_whole),
        TEST(packed_copies_are_renewed_when_a_weight_is_set),
        TEST(packed_copies_are_renewed_when_the_layer_is_told),
        TEST(packing_without_memory_leaves_the_layer_as_it_was),
        TEST(a_row_has_the_same_bits_alone_and_in_company),
        TEST(shared_terms_belong_to_their_stretch),
        TEST(hidden_keys_add_nothing_however_the_caller_rounds),
        TEST(a_scale_that_takes_a_query_beyond_float_gives_its_scores),
    };
    return cmocka_run_group_tests_name("fast", tests, NULL, NULL);
}
