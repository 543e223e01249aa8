/* The fast path's work grows as the visible (query, key) pairs do: counted in multiply-adds, never timed; its
 * memory does not. The limits it is held against.
 * The kernels are wrapped (the Makefile links mha__kernels_get to the one here) in others that count. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "compute/kernels/kernels.h"
#include "mha/mha.h"
#include "support/unit.h"
#include "bench/machine_peak.h"

const mha__kernels *__real_mha__kernels_get(void);
const mha__kernels *__wrap_mha__kernels_get(void);

static mha__kernels counting;
static _Atomic(const mha__kernels *) real;
static _Atomic uint64_t products, scored, packed, flags_read;

static void count_product(size_t m, size_t n, size_t k, const float *A, mha__panels B, const mha__panels *next,
                          float *C, size_t ldc, const float *factor, const float *bias)
{
    products += (uint64_t)m * n * k;
    atomic_load(&real)->product(m, n, k, A, B, next, C, ldc, factor, bias);
}

static void count_softmax(size_t m, size_t n, float *x, size_t ldx, float *max, float *sum, float *factor)
{
    scored += (uint64_t)m * n;
    atomic_load(&real)->softmax_rows(m, n, x, ldx, max, sum, factor);
}

static bool count_pack(size_t k, size_t n, const float *X, size_t ldx, float *panels, size_t panel)
{
    packed += k;
    return atomic_load(&real)->pack(k, n, X, ldx, panels, panel);
}

static bool count_hide(float *x, const uint8_t *flags, size_t n, bool when)
{
    flags_read += n;
    return atomic_load(&real)->hide(x, flags, n, when);
}

static void wrap(void)
{
    const mha__kernels *kernels = __real_mha__kernels_get();
    counting = *kernels;
    counting.product = count_product;
    counting.softmax_rows = count_softmax;
    counting.pack = count_pack;
    counting.hide = count_hide;
    atomic_store(&real, kernels);
}

const mha__kernels *__wrap_mha__kernels_get(void)
{
    return &counting;
}

/* One head of 64 with Q, K, V given. */
enum { WIDTH = 64 };

typedef struct counts {
    double products, scored, packed, flags_read;
} counts;

static float *floats(size_t n, uint64_t stream)
{
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    mha_view view = mha_view_of(x, MHA_F32, 1, &n);
    mha_random_fill(&view, 3, stream, -1.0f, 1.0f);
    return x;
}

static counts run(size_t T_q, size_t T_k, const mha_semantics *semantics)
{
    float *q = floats(T_q * WIDTH, 1), *k = floats(T_k * WIDTH, 2), *v = floats(T_k * WIDTH, 3),
          *out = floats(T_q * WIDTH, 4);
    mha_call call = {.query = mha_view_heads(q, MHA_F32, MHA_BTHD, 1, T_q, 1, WIDTH),
                     .key = mha_view_heads(k, MHA_F32, MHA_BTHD, 1, T_k, 1, WIDTH),
                     .value = mha_view_heads(v, MHA_F32, MHA_BTHD, 1, T_k, 1, WIDTH),
                     .semantics = *semantics,
                     .path = MHA_PATH_FAST,
                     .threads = 1};
    call.output = mha_view_rows(out, MHA_F32, MHA_BTE, 1, T_q, WIDTH);
    mha_plan plan;
    mha_error error;
    assert_ok(mha_plan_call(NULL, &call, &plan, &error), error);
    void *workspace = malloc(plan.workspace_bytes);
    assert_non_null(workspace);
    products = scored = packed = flags_read = 0;
    assert_ok(mha_forward(&plan, workspace, plan.workspace_bytes, &error), error);
    counts found = {(double)products, (double)scored, (double)packed, (double)flags_read};
    free(workspace);
    free(q);
    free(k);
    free(v);
    free(out);
    return found;
}

/* Q K^T and weights V: 2 * WIDTH multiply-adds for each visible pair. Rows are worked on in tiles of at most
 * MHA_TILE_ROWS neighbours, which take what any of them sees, from the start of a panel on: at each of its two
 * edges a row pays for less than MHA_PANEL + MHA_TILE_ROWS keys it does not see. What whole keys cost to pack is
 * shared by a block of 128 rows. */
static void assert_work(counts found, double T_q, double pairs)
{
    const double edges = T_q * 2 * (MHA_PANEL + MHA_TILE_ROWS);
    assert_true(found.products >= 2 * WIDTH * pairs);
    assert_true(found.products <= 2 * WIDTH * (pairs + edges));
    assert_true(found.scored >= pairs && found.scored <= pairs + edges);
}

static void everything_visible(void **state)
{
    (void)state;
    const mha_semantics all = {0};
    for (size_t T = 256; T <= 2048; T *= 2)
        assert_work(run(T, T, &all), (double)T, (double)T * (double)T);
    assert_work(run(512, 3000, &all), 512, 512.0 * 3000);
}

static void causal_costs_half(void **state)
{
    (void)state;
    const mha_semantics causal = {.visible.causal = true};
    for (size_t T = 256; T <= 4096; T *= 2)
        assert_work(run(T, T, &causal), (double)T, (double)T * ((double)T + 1) / 2);
}

/* With a window work grows with the length, not with its square. */
static void windows_cost_their_width(void **state)
{
    (void)state;
    const mha_semantics window = {
        .visible = {.causal = true, .has_window_right = true, .has_window_left = true, .window_left = 200}};
    for (size_t T = 1024; T <= 16384; T *= 4) {
        counts found = run(T, T, &window);
        assert_work(found, (double)T, (double)T * 201 - 200.0 * 201 / 2);
        /* values are packed once for each block of rows that sees them; a block has at least 64 rows */
        assert_true(found.packed <= (double)T * (64 + 200 + 2 * MHA_PANEL) / 64);
    }
}

static void keys_beyond_a_length_cost_nothing(void **state)
{
    (void)state;
    const int64_t length = 300;
    const mha_semantics short_keys = {.visible.kv_lengths = &length};
    for (size_t T_k = 512; T_k <= 8192; T_k *= 4)
        assert_work(run(256, T_k, &short_keys), 256, 256.0 * 300);
}

/* Padding at both ends: the 300 keys between cost what 300 keys cost. A hidden one among them is paid for. */
static void padding_at_the_ends_costs_nothing(void **state)
{
    (void)state;
    enum { LONGEST = 8192, SEEN = 300 };
    static uint8_t hidden[LONGEST];
    for (size_t T_k = 512, from = 97; T_k <= LONGEST; T_k *= 4, from = T_k - SEEN) {
        for (size_t j = 0; j < T_k; j++)
            hidden[j] = j < from || j >= from + SEEN || j == from + 7;
        const mha_semantics padded = {
            .visible.key_padding = {.kind = MHA_MASK_HIDES,
                                    .values = mha_view_of(hidden, MHA_U8, 2, (size_t[]){1, T_k})}};
        assert_work(run(256, T_k, &padded), 256, 256.0 * SEEN);
    }
}

/* Masks that hide stretches: documents, causal, and a window with the first 30 keys, whose stretch in between is
 * passed over in whole blocks. Where a row has no hidden key between others no term is made; flags that hide
 * nothing are only looked at. */
static void stretches_that_a_mask_hides_cost_nothing(void **state)
{
    (void)state;
    enum { T = 2048, FIRST = 30, WINDOW = 200 };
    uint8_t *flags = malloc((size_t)T * T);
    float *terms = malloc((size_t)T * T * sizeof *terms);
    assert_true(flags && terms);
    for (int shape = 0; shape < 4; shape++) {
        double pairs = 0, stretches = 0;
        for (size_t i = 0; i < T; i++)
            for (size_t j = 0; j < T; j++) {
                const bool near = j <= i && j + WINDOW > i;
                const bool sees = (const bool[]){i / 300 == j / 300, j <= i, true, near || j < FIRST}[shape];
                flags[i * T + j] = sees;
                terms[i * T + j] = sees ? 0.0f : -INFINITY;
                pairs += sees;
            }
        const mha_semantics boolean = {
            .visible.mask = {.kind = MHA_MASK_KEEPS, .values = mha_view_of(flags, MHA_BOOL, 2, (size_t[]){T, T})}};
        const mha_semantics additive = {
            .visible.mask = {.kind = MHA_MASK_ADDITIVE, .values = mha_view_of(terms, MHA_F32, 2, (size_t[]){T, T})}};
        const counts found = run(T, T, &boolean);
        if (shape == 3) { /* in each of the blocks of 512 that a row sees something of, at most all of it */
            stretches = (double)T * 2 * 512;
            assert_true(found.scored <= pairs + stretches && found.scored < (double)T * T / 2);
        } else {
            assert_work(found, T, pairs);
            assert_work(run(T, T, &additive), T, pairs);
            assert_true(found.flags_read == 0);
        }
    }
    free(flags);
    free(terms);
}

/* ---------------------------------------------------------------- memory */

enum { LONG = 16384, MODEL = 512, HEADS = 8 };

/* 16,384 tokens, 8 heads of 64, causal: beyond Q, K, V and output the core needs less than 16 MiB, a layer that and
 * its own Q, K, V and concatenation. */
static void long_sequences_need_little_memory(void **state)
{
    (void)state;
    const float *x = (const float *)(uintptr_t)0x100000000, *y = x + (size_t)LONG * MODEL; /* never read or written */
    mha_error error;
    mha_plan plan;
    for (int threads = 1; threads <= 2; threads++) {
        mha_view heads = mha_heads(x, 1, LONG, HEADS, MODEL / HEADS);
        mha_view rows = mha_rows(x, 1, LONG, MODEL);
        mha_call core = {.query = heads,
                         .key = heads,
                         .value = heads,
                         .semantics = {.visible.causal = true},
                         .path = MHA_PATH_FAST,
                         .threads = threads};
        core.output = mha_rows(y, 1, LONG, MODEL);
        assert_ok(mha_plan_call(NULL, &core, &plan, &error), error);
        assert_true(plan.workspace_bytes < 16u << 20);

        mha_params *table;
        mha_layer *layer;
        const mha_config config = {.d_model = MODEL, .n_heads = HEADS};
        assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
        assert_ok(mha_layer_create(&config, table, "", &layer, &error), error);
        assert_ok(mha_layer_pack(layer, &error), error);
        mha_call whole = {
            .query = rows, .semantics = {.visible.causal = true}, .path = MHA_PATH_FAST, .threads = threads};
        whole.output = mha_rows(y, 1, LONG, MODEL);
        assert_ok(mha_plan_call(layer, &whole, &plan, &error), error);
        assert_true(plan.workspace_bytes < (16u << 20) + 4u * LONG * MODEL * sizeof(float));
        mha_layer_destroy(layer);
        mha_params_destroy(table);
    }
}

/* ---------------------------------------------------------------- the machine's limits */

static bool no_memory;

void *__real_mha__allocate(const mha_allocator *a, size_t bytes);
void *__wrap_mha__allocate(const mha_allocator *a, size_t bytes);

void *__wrap_mha__allocate(const mha_allocator *a, size_t bytes)
{
    return no_memory ? NULL : __real_mha__allocate(a, bytes);
}

static void limits_are_measured_or_refused(void **state)
{
    (void)state;
    double peak = 0, reads = 0;
    assert_int_equal(mha__machine_limits(1, &peak, NULL), MHA_OK);
    assert_true(peak > 0);
    assert_int_equal(mha__machine_reads(2, 1 << 20, &reads), MHA_OK);
    assert_true(reads > 0);
    reads = -1;
    assert_int_equal(mha__machine_limits(0, &peak, &reads), MHA_INVALID);
    assert_int_equal(mha__machine_limits(1 << 20, &peak, &reads), MHA_INVALID);
    assert_int_equal(mha__machine_reads(0, 1 << 20, &reads), MHA_INVALID);
    assert_int_equal(mha__machine_reads(3, 2 * 512, &reads), MHA_INVALID); /* 512 bytes for each thread */
    no_memory = true;
    mha_status limits = mha__machine_limits(1, &peak, &reads), alone = mha__machine_reads(1, 1 << 20, &reads);
    no_memory = false;
    assert_int_equal(limits, MHA_NO_MEMORY);
    assert_int_equal(alone, MHA_NO_MEMORY);
    assert_true(reads == -1);
}

int main(void)
{
    wrap();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_visible),
        cmocka_unit_test(causal_costs_half),
        cmocka_unit_test(windows_cost_their_width),
        cmocka_unit_test(keys_beyond_a_length_cost_nothing),
        cmocka_unit_test(padding_at_the_ends_costs_nothing),
        cmocka_unit_test(stretches_that_a_mask_hides_cost_nothing),
        cmocka_unit_test(long_sequences_need_little_memory),
        cmocka_unit_test(limits_are_measured_or_refused),
    };
    return cmocka_run_group_tests_name("work", tests, NULL, NULL);
}
