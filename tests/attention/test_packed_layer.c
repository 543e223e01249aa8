/* Layers that keep only packed matrices: counts, memory, bits on every path, permitted and refused readers. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attention/layer/layer.h"
#include "base/base.h"
#include "mha/mha.h"
#include "support/failing.h"
#include "support/sanitizer.h"
#include "support/unit.h"

enum { B = 2, T = 5, MOST = B * T * 600 };

/* ---------------------------------------------------------------- layers */

/* Kinds of layers; each is crossed with types, paths and ways to pack. */
static const struct {
    const char *name;
    mha_config config;
    bool absorbed;
} shapes[] = {
    {"plain", {.d_model = 64, .n_heads = 4}, false},
    {"biases", {.d_model = 64, .n_heads = 4, .bias_q = true, .bias_k = true, .bias_v = true, .bias_o = true}, false},
    {"grouped", {.d_model = 64, .n_heads = 4, .kv_heads = 2, .d_k = 8, .d_v = 40}, false},
    {"odd widths", {.d_model = 32, .n_heads = 3, .d_k = 32, .d_v = 32, .d_out = 7}, false},
    {"wide", {.d_model = 32, .n_heads = 16, .d_k = 66, .d_v = 32}, false}, /* W_Q has more columns than a piece */
    {"extras", {.d_model = 64, .n_heads = 2, .bias_kv = true, .sinks = true, .q_norm = MHA_NORM_HEAD,
                .k_norm = MHA_NORM_ROW, .norm_bias = true}, false},
    {"gate of features", {.d_model = 64, .n_heads = 2, .gate = MHA_GATE_FEATURE, .bias_gate = true}, false},
    {"gate of heads", {.d_model = 64, .n_heads = 2, .gate = MHA_GATE_HEAD}, false},
    {"latents", {.d_model = 64, .n_heads = 2, .d_k = 40, .d_v = 32, .q_rank = 32, .kv_rank = 32, .d_rope = 8,
                 .bias_latent = true}, false},
    {"absorbed", {.d_model = 64, .n_heads = 2, .d_k = 40, .d_v = 32, .kv_rank = 32, .d_rope = 8}, true},
    {"other inputs", {.d_model = 32, .n_heads = 2, .d_kin = 64, .d_vin = 64, .d_q = 64}, false},
    {"one quantised", {.d_model = 64, .n_heads = 2, .matrix_dtype = {[MHA_W_V] = MHA_Q8_0}}, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const mha_dtype types[] = {MHA_F32, MHA_F16, MHA_BF16, MHA_F64, MHA_Q8_0};
enum { TYPES = sizeof types / sizeof *types };

static bool can_be_alone(mha_dtype dtype)
{
    return dtype == MHA_F32 || dtype == MHA_F16 || dtype == MHA_BF16;
}

static mha_config config_of(size_t shape, mha_dtype dtype)
{
    mha_config config = shapes[shape].config;
    config.dtype = dtype;
    return config;
}

static mha_layer *made(const mha_config *config, const mha_allocator *allocator)
{
    mha_params *table;
    mha_layer *layer;
    mha_error error;
    assert_int_equal(mha_params_create(allocator, &table, NULL), MHA_OK);
    assert_ok(mha_layer_create(config, table, "l.", &layer, &error), error);
    return layer;
}

static void unmake(mha_layer *layer)
{
    mha_params *table = mha_layer_params(layer);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
}

static void pack(mha_layer *layer)
{
    mha_error error;
    assert_ok(mha_layer_pack(layer, &error), error);
}

/* Ways to come to a packed layer with the weights of `plain`. */
enum { VIEWED, DRAWN_FIRST, PACKED_FIRST, SET, VIEWED_AND_DROPPED, PACKED_TWICE, WAYS };

static mha_layer *packed_by(int way, const mha_config *config, const mha_layer *plain)
{
    mha_layer *layer = made(config, NULL);
    mha_error error;
    if (way == PACKED_FIRST || way == SET)
        pack(layer);
    if (way != SET)
        mha_layer_init(layer, 7);
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_weight weight = (mha_weight)w;
        const mha_tensor *mine = mha_layer_weight(layer, weight), *theirs = mha_layer_weight(plain, weight);
        const mha_view from = theirs ? mha_tensor_view(theirs) : (mha_view){0};
        if (theirs && way == SET)
            assert_ok(mha_layer_set(layer, (mha_weight)w, &from, &error), error);
        if (mine && (way == VIEWED || way == VIEWED_AND_DROPPED))
            assert_non_null(mha_tensor_view(mine).data);
    }
    pack(layer);
    if (way == VIEWED_AND_DROPPED)
        mha_layer_drop_views(layer);
    if (way == PACKED_TWICE) {
        mha__layer_unpack(layer);
        pack(layer);
    }
    return layer;
}

static mha_call call_of(const mha_config *c, bool absorbed, mha_path path, float *x, float *keys, float *y)
{
    mha_call call = {.query = mha_rows(x, B, T, c->d_q), .output = mha_rows(y, B, T, c->d_out), .path = path,
                     .threads = 2, .absorbed = absorbed, .semantics = {.visible.causal = true}};
    mha_random_fill(&call.query, 3, 1, -1, 1);
    if (c->d_kin != c->d_q || c->d_vin != c->d_kin) {
        call.key = mha_rows(keys, B, T, c->d_kin);
        mha_random_fill(&call.key, 3, 2, -1, 1);
    }
    return call;
}

static void run(const mha_layer *layer, bool absorbed, mha_path path, float y[MOST])
{
    static float x[MOST], keys[MOST];
    mha_error error;
    const mha_call call = call_of(mha_layer_config(layer), absorbed, path, x, keys, y);
    assert_ok(mha_run(layer, &call, &error), error);
}

/* ---------------------------------------------------------------- the same as ever */

/* The weights, and those of each head, are the bytes of the layer that was never packed. */
static void expect_weights(const mha_layer *layer, const mha_layer *plain)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        if (!mha_layer_weight(plain, (mha_weight)w))
            continue;
        const mha_view a = mha_tensor_view(mha_layer_weight(layer, (mha_weight)w)),
                       b = mha_tensor_view(mha_layer_weight(plain, (mha_weight)w));
        assert_non_null(a.data);
        assert_true(a.dtype == b.dtype && a.rank == b.rank);
        assert_memory_equal(a.shape, b.shape, (size_t)a.rank * sizeof *a.shape);
        assert_memory_equal(a.stride, b.stride, (size_t)a.rank * sizeof *a.stride);
        assert_memory_equal(a.data, b.data, mha_tensor_info_of(mha_layer_weight(plain, (mha_weight)w)).bytes);
        for (size_t head = 0; head < 4; head++) {
            const mha_weight weight = (mha_weight)w;
            const mha_view of = mha_layer_head(layer, weight, head), its = mha_layer_head(plain, weight, head);
            assert_true(!of.data == !its.data);
            assert_true(!of.data || (char *)of.data - (char *)a.data == (char *)its.data - (char *)b.data);
        }
    }
}

static void expect_table(const mha_layer *layer, const mha_layer *plain)
{
    mha_params *a = mha_layer_params(layer), *b = mha_layer_params(plain);
    const mha_totals x = mha_params_totals(a, NULL), y = mha_params_totals(b, NULL);
    assert_int_equal(mha_params_count(a), mha_params_count(b));
    assert_true(x.parameters == y.parameters && x.parameter_bytes == y.parameter_bytes && x.storages == y.storages &&
                x.trainable == y.trainable && x.inert == y.inert && x.tensors == y.tensors);
    for (size_t i = 0; i < mha_params_count(a); i++) {
        const mha_tensor_info p = mha_tensor_info_of(mha_params_at(a, i)), q = mha_tensor_info_of(mha_params_at(b, i));
        assert_string_equal(p.name, q.name);
        assert_true(p.bytes == q.bytes && p.elements == q.elements && p.dtype == q.dtype && p.kind == q.kind);
    }
}

/* Whether every matrix that can be is there once. */
static bool is_alone(const mha_layer *layer)
{
    bool alone = true;
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_tensor *tensor = mha_layer_weight(layer, (mha_weight)w);
        if (!tensor || mha_weight_at((mha_weight)w)->kind != MHA_WEIGHT_MATRIX)
            continue;
        const mha_tensor_info info = mha_tensor_info_of(tensor);
        assert_true(info.packed_bytes > 0);
        alone &= !info.data || !can_be_alone(info.dtype);
        assert_true(info.data || can_be_alone(info.dtype));
    }
    return alone;
}

static void however_it_is_packed_a_layer_has_the_same_numbers(void **state)
{
    (void)state;
    static float plain_y[MOST], first[MOST], y[MOST];
    static const mha_path paths[] = {MHA_PATH_FAST, MHA_PATH_BLAS, MHA_PATH_EXACT};
    for (size_t s = 0; s < SHAPES; s++)
        for (size_t t = 0; t < TYPES; t++) {
            const mha_config config = config_of(s, types[t]);
            mha_layer *plain = made(&config, NULL);
            mha_layer_init(plain, 7);
            for (int way = 0; way < WAYS; way++) {
                mha_layer *layer = packed_by(way, &config, plain);
                assert_int_equal(is_alone(layer), way != VIEWED || types[t] == MHA_F64 || types[t] == MHA_Q8_0);
                expect_table(layer, plain);
                for (size_t p = 0; p < 3; p++) {
                    run(layer, shapes[s].absorbed, paths[p], y);
                    const size_t bytes = B * T * mha_layer_config(layer)->d_out * sizeof *y;
                    if (paths[p] == MHA_PATH_FAST && way == 0)
                        memcpy(first, y, bytes);
                    if (paths[p] != MHA_PATH_FAST)
                        run(plain, shapes[s].absorbed, paths[p], plain_y);
                    if (memcmp(y, paths[p] == MHA_PATH_FAST ? first : plain_y, bytes) != 0)
                        fail_msg("%s, %s, way %d, %s: other bits", shapes[s].name, mha_dtype_name(types[t]), way,
                                 mha_path_name(paths[p]));
                }
                expect_weights(layer, plain);
                expect_table(layer, plain);
                mha_layer_drop_views(layer);
                assert_true(is_alone(layer));
                run(layer, shapes[s].absorbed, MHA_PATH_FAST, y);
                assert_memory_equal(y, first, B * T * mha_layer_config(layer)->d_out * sizeof *y);
                mha__layer_unpack(layer);
                expect_weights(layer, plain);
                unmake(layer);
            }
            unmake(plain);
        }
}

static void gradients_do_not_ask_how_weights_are_kept(void **state)
{
    (void)state;
    static float x[MOST], y[MOST], keys[MOST];
    static double d_y[MOST];
    for (size_t s = 0; s < SHAPES; s++) {
        mha_layer *layers[2];
        mha_error error;
        const mha_config config = config_of(s, MHA_F32);
        if (shapes[s].absorbed)
            continue;
        for (int packed = 0; packed < 2; packed++) {
            layers[packed] = made(&config, NULL);
            mha_layer_init(layers[packed], 7);
            if (packed)
                pack(layers[1]);
            const mha_config *c = mha_layer_config(layers[packed]);
            mha_call call = call_of(c, false, MHA_PATH_EXACT, x, keys, y);
            call.output = (mha_view){0};
            mha_gradients gradients = {.d_output = mha_view_of(d_y, MHA_F64, 3, (size_t[]){B, T, c->d_out})};
            mha_random_fill(&gradients.d_output, 5, 5, -1, 1);
            assert_ok(mha_layer_add_gradients(layers[packed], MHA_F64, &error), error);
            mha_layer_lend_gradients(layers[packed], &gradients);
            assert_ok(mha_backward(layers[packed], &call, &gradients, &error), error);
        }
        for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
            const mha_weight weight = (mha_weight)w;
            const mha_tensor *a = mha_layer_gradient(layers[0], weight), *b = mha_layer_gradient(layers[1], weight);
            assert_true(!a == !b);
            if (a)
                assert_memory_equal(mha_tensor_view(a).data, mha_tensor_view(b).data, mha_tensor_info_of(a).bytes);
        }
        unmake(layers[0]);
        unmake(layers[1]);
    }
}

/* ---------------------------------------------------------------- memory */

/* The table counts the allocated bytes, less rows and names; at most one matrix is ever stored twice. */
static void each_weight_is_there_once(void **state)
{
    (void)state;
    for (size_t s = 0; s < SHAPES; s++)
        for (size_t t = 0; t < TYPES; t++)
            for (int first = 0; first < 2; first++) {
                failing f = {0};
                const mha_allocator allocator = failing_allocator(&f);
                const mha_config config = config_of(s, types[t]);
                mha_layer *layer = made(&config, &allocator);
                mha_params *table = mha_layer_params(layer);
                const size_t beside = f.live_bytes - mha_params_totals(table, NULL).bytes_allocated;
                if (first)
                    pack(layer);
                f.peak_bytes = f.live_bytes;
                const size_t before = f.live_bytes;
                mha_layer_init(layer, 7);
                assert_int_equal(f.peak_bytes, before);
                pack(layer);
                mha_totals now = mha_params_totals(table, NULL);
                assert_int_equal(f.live_bytes, beside + now.bytes_allocated);
                size_t panels = 0, largest = 0;
                for (size_t i = 0; i < mha_params_count(table); i++) {
                    const mha_tensor_info info = mha_tensor_info_of(mha_params_at(table, i));
                    panels += info.data ? info.packed_bytes : info.packed_bytes - info.bytes;
                    largest = info.packed_bytes > largest ? info.packed_bytes : largest;
                }
                assert_int_equal(now.bytes_allocated, now.parameter_bytes + panels);
                assert_true(f.peak_bytes <= beside + now.bytes_allocated + largest);
                if (mha_layer_weight(layer, MHA_W_KVB) == NULL && can_be_alone(types[t]) &&
                    !config.matrix_dtype[MHA_W_V])
                    assert_int_equal(now.derived_bytes, 0);
                const mha_view W = mha_tensor_view(mha_layer_weight(layer, MHA_W_Q));
                assert_non_null(W.data); /* which shows in the table, too */
                now = mha_params_totals(table, NULL);
                assert_int_equal(f.live_bytes, beside + now.bytes_allocated);
                assert_true(now.derived_bytes > 0);
                unmake(layer);
                assert_int_equal(f.live_blocks + f.bugs, 0);
            }
}

/* Without memory what is packed stays, goes on running on the fast path, and all else says what it lacks. */
static void without_memory_packed_weights_stay_what_they_are(void **state)
{
    (void)state;
    static float x[MOST], y[MOST], z[MOST], keys[MOST], values[64 * 64];
    failing f = {0};
    const mha_allocator allocator = failing_allocator(&f);
    const mha_config config = config_of(0, MHA_F32);
    mha_layer *layer = made(&config, &allocator);
    mha_params *table = mha_layer_params(layer);
    mha_error error;
    mha_plan plan;
    pack(layer);
    mha_layer_init(layer, 7);
    run(layer, false, MHA_PATH_FAST, y);
    const size_t live = f.live_bytes;
    f.fail_at = f.calls + 1, f.then_all = true;
    mha_call call = call_of(mha_layer_config(layer), false, MHA_PATH_EXACT, x, keys, z);
    assert_refused(mha_plan_call(layer, &call, &plan, &error), MHA_NO_MEMORY, error, "W_Q", "unpack");
    call.path = MHA_PATH_BLAS;
    assert_refused(mha_plan_call(layer, &call, &plan, &error), MHA_NO_MEMORY, error, "W_Q", "unpack");
    const mha_view from = mha_view_of(values, MHA_F32, 2, (size_t[]){64, 64});
    assert_refused(mha_layer_set(layer, MHA_W_V, &from, &error), MHA_NO_MEMORY, error, "W_V", "unpack");
    const mha_view W = mha_tensor_view(mha_layer_weight(layer, MHA_W_K));
    assert_true(!W.data && W.rank == 2 && W.shape[0] == 64 && W.shape[1] == 64);
    assert_null(mha_layer_head(layer, MHA_W_K, 1).data);
    mha__layer_unpack(layer);
    assert_int_equal(f.live_bytes, live);
    f.fail_at = 0, f.then_all = false;
    pack(layer);
    run(layer, false, MHA_PATH_FAST, z);
    assert_memory_equal(y, z, B * T * 64 * sizeof *y);
    assert_int_equal(mha_params_totals(table, NULL).derived_bytes, 0);
    unmake(layer);
    assert_int_equal(f.live_blocks + f.bugs, 0);
}

/* ---------------------------------------------------------------- views */

/* Anywhere in the panels of a weight, which are padded, whether the plain numbers are kept next to them or not. */
static void an_output_in_the_panels_of_a_weight_is_refused(void **state)
{
    (void)state;
    enum { D = 40 };
    const mha_config config = {.d_model = D, .n_heads = 4};
    float x[D] = {0};
    for (int kept = 0; kept < 2; kept++) {
        mha_layer *layer = made(&config, NULL);
        pack(layer);
        for (mha_weight w = 0; w < MHA_WEIGHT_COUNT; w++) {
            const mha_tensor *tensor = mha_layer_weight(layer, w);
            if (!tensor || !mha__layer_packed(layer, w))
                continue;
            if (kept)
                (void)mha_tensor_view(tensor);
            const char *panels = mha__layer_packed(layer, w);
            const size_t bytes = mha_tensor_info_of(tensor).packed_bytes;
            for (size_t at = 0; at < bytes; at += sizeof x) {
                mha_plan plan;
                mha_error error;
                const mha_call call = {.query = mha_rows(x, 1, 1, D),
                                       .output = mha_rows(mha__unconst(panels + at), 1, 1, D)};
                assert_refused(mha_plan_call(layer, &call, &plan, &error), MHA_INVALID, error, "output",
                               "overlap with", mha_weight_at(w)->name);
            }
        }
        unmake(layer);
    }
}

/* A view that was there first stays where it was; a plan that reads what was dropped is refused. */
static void views_and_plans_end_when_they_are_dropped(void **state)
{
    (void)state;
    static float x[MOST], y[MOST], keys[MOST];
    const mha_config config = config_of(0, MHA_F32);
    mha_layer *layer = made(&config, NULL);
    mha_error error;
    mha_plan plan;
    mha_layer_init(layer, 7);
    float *first = mha_tensor_view(mha_layer_weight(layer, MHA_W_Q)).data;
    pack(layer);
    assert_ptr_equal(mha_tensor_view(mha_layer_weight(layer, MHA_W_Q)).data, first);
    assert_null(mha_tensor_info_of(mha_layer_weight(layer, MHA_W_K)).data);
    const mha_call call = call_of(mha_layer_config(layer), false, MHA_PATH_BLAS, x, keys, y);
    assert_ok(mha_plan_call(layer, &call, &plan, &error), error);
    pack(layer); /* renews, and takes nothing away */
    assert_int_equal(mha_layer_pack(layer, NULL), MHA_OK);
    const mha_view from = mha_tensor_view(mha_layer_weight(layer, MHA_W_K));
    assert_ok(mha_layer_set(layer, MHA_W_V, &from, &error), error);
    char *workspace = malloc(plan.workspace_bytes);
    assert_ok(mha_forward(&plan, workspace, plan.workspace_bytes, &error), error);
    mha_layer_drop_views(layer);
    assert_refused(mha_forward(&plan, workspace, plan.workspace_bytes, &error), MHA_INVALID, error, "plan");
    assert_null(mha_tensor_info_of(mha_layer_weight(layer, MHA_W_Q)).data);
    free(workspace);
    unmake(layer);
}

/* Another name of a packed matrix reads what it is a name of. */
static void an_alias_reads_a_packed_matrix(void **state)
{
    (void)state;
    const mha_config config = config_of(3, MHA_BF16);
    mha_layer *layer = made(&config, NULL), *plain = made(&config, NULL);
    mha_error error;
    mha_tensor *flat;
    mha_layer_init(layer, 7);
    mha_layer_init(plain, 7);
    mha_tensor *W = mha_layer_weight(layer, MHA_W_Q);
    const size_t n = mha_tensor_info_of(W).elements;
    const mha_tensor_spec spec = {.name = "flat", .rank = 1, .shape = {n}};
    assert_ok(mha_params_alias(mha_layer_params(layer), &spec, W, &flat, &error), error);
    pack(layer);
    assert_memory_equal(mha_tensor_view(flat).data, mha_tensor_view(mha_layer_weight(plain, MHA_W_Q)).data,
                        n * sizeof(uint16_t));
    mha_layer_drop_views(layer);
    mha_params *table = mha_layer_params(layer);
    mha_layer_destroy(layer); /* the alias has the storage to itself */
    assert_memory_equal(mha_tensor_view(flat).data, mha_tensor_view(mha_layer_weight(plain, MHA_W_Q)).data,
                        n * sizeof(uint16_t));
    mha_params_destroy(table);
    unmake(plain);
}

static void *read_all(void *context)
{
    const mha_layer *layer = context;
    static const mha_weight weights[] = {MHA_W_Q, MHA_W_K, MHA_W_V, MHA_W_O};
    double sum = 0;
    for (size_t w = 0; w < 4; w++) {
        const mha_view view = mha_tensor_view(mha_layer_weight(layer, weights[w]));
        (void)mha_params_totals(mha_layer_params(layer), NULL);
        for (size_t i = 0; i < 64 * 64; i++)
            sum += ((const float *)view.data)[i];
    }
    double *result = malloc(sizeof *result);
    *result = sum;
    return result;
}

static void threads_may_unpack_at_the_same_time(void **state)
{
    (void)state;
    enum { THREADS = 4, ROUNDS = 20 };
    const mha_config config = config_of(0, MHA_F32);
    mha_layer *layer = made(&config, NULL);
    pack(layer);
    mha_layer_init(layer, 7);
    for (size_t round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        double *sums[THREADS];
        mha_layer_drop_views(layer);
        for (size_t i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, read_all, layer), 0);
        for (size_t i = 0; i < THREADS; i++)
            assert_int_equal(pthread_join(threads[i], (void **)&sums[i]), 0);
        for (size_t i = 0; i < THREADS; i++) {
            assert_true(*sums[i] == *sums[0]);
            if (i > 0)
                free(sums[i]);
        }
        free(sums[0]);
    }
    unmake(layer);
}

/* ---------------------------------------------------------------- fork */

/* An allocator that waits where a matrix is unpacked, until its context says so. */
typedef struct gate {
    atomic_int waits, reached;
} gate;

static void *allocate_behind(void *context, size_t bytes, size_t alignment)
{
    gate *g = context;
    while (g->waits) {
        g->reached = 1;
        usleep(1000);
    }
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void release_behind(void *context, void *block, size_t bytes)
{
    (void)context, (void)bytes;
    free(block);
}

static void *read_one(void *layer)
{
    return mha_tensor_view(mha_layer_weight(layer, MHA_W_Q)).data;
}

/* A child that is made while another thread unpacks does not wait for that thread, which it has not. */
static void a_child_unpacks_by_itself(void **state)
{
    (void)state;
    if (ADDRESS_SANITIZER || THREAD_SANITIZER)
        skip_because("a child of threads waits for locks of the sanitizer's own");
    const mha_config config = config_of(0, MHA_F32);
    gate g = {.waits = 0};
    const mha_allocator allocator = {allocate_behind, release_behind, &g};
    mha_layer *layer = made(&config, &allocator);
    pack(layer);
    mha_layer_drop_views(layer);
    pthread_t other;
    g.waits = 1;
    assert_int_equal(pthread_create(&other, NULL, read_one, layer), 0);
    while (!g.reached)
        usleep(1000);
    const pid_t child = fork();
    if (child == 0) {
        alarm(HANG_SECONDS);
        g.waits = 0;
        _exit(mha_tensor_view(mha_layer_weight(layer, MHA_W_Q)).data ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    g.waits = 0;
    void *data;
    assert_int_equal(pthread_join(other, &data), 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0 && data);
    unmake(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(however_it_is_packed_a_layer_has_the_same_numbers),
        cmocka_unit_test(gradients_do_not_ask_how_weights_are_kept),
        cmocka_unit_test(each_weight_is_there_once),
        cmocka_unit_test(without_memory_packed_weights_stay_what_they_are),
        cmocka_unit_test(an_output_in_the_panels_of_a_weight_is_refused),
        cmocka_unit_test(views_and_plans_end_when_they_are_dropped),
        cmocka_unit_test(an_alias_reads_a_packed_matrix),
        cmocka_unit_test(threads_may_unpack_at_the_same_time),
        cmocka_unit_test(a_child_unpacks_by_itself),
    };
    return cmocka_run_group_tests_name("packed layer", tests, NULL, NULL);
}
