/* The fast path gives a query row the same bits in a call of any number of rows: prefill, chunks and decoding agree.
 * With a layer this holds for packed weights; a BLAS may sum one row in another order than many.
 * ROWS_TRIALS=n draws n calls, ROWS_SEED=s begins at seed s. */
#include <stdlib.h>
#include <string.h>

#include "support/call.h"
#include "support/trial.h"
#include "support/unit.h"

enum { MOST_ROWS = 96, MOST_KEYS = 1400, MOST_WIDTH = 512 };

static float x[MOST_KEYS * MOST_WIDTH], rows[3][MOST_KEYS * MOST_WIDTH], whole[MOST_ROWS * MOST_WIDTH],
    cut[MOST_ROWS * MOST_WIDTH];
static uint64_t drawn;

static size_t draw(size_t n)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(drawn >> 33) % n;
}

/* A whole number from 1 to `most`, small ones as often as large ones. */
static size_t draw_size(size_t most)
{
    return 1 + draw(1 + draw(most));
}

static void fill(float *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (float)draw(2001) / 1000 - 1;
}

static void draw_semantics(mha_semantics *s, size_t S, double *slopes)
{
    s->visible.causal = draw(2);
    if ((s->visible.has_window_left = draw(4) == 0))
        s->visible.window_left = (int64_t)draw(S);
    s->visible.chunk = draw(6) == 0 ? (int64_t)draw_size(S) : 0;
    s->softmax.softcap = draw(4) == 0 ? 5 : 0;
    s->softmax.softmax_plus_one = draw(5) == 0;
    s->softmax.zero_row = draw(5) == 0;
    if (draw(5) == 0)
        s->added.alibi_slopes = slopes;
}

/* Heads that are given, of T queries behind S - T earlier keys: at once, and cut into pieces of `piece` queries. */
static bool core_differs(char *text, size_t size)
{
    static const size_t widths[] = {8, 16, 24, 32, 64, 80, 96, 128};
    const size_t d_k = widths[draw(8)], d_v = draw(3) ? d_k : widths[draw(8)], h_kv = 1 + draw(2), group = 1 + draw(2),
                 h = h_kv * group, T = draw_size(MOST_ROWS), S = T + draw(MOST_KEYS - MOST_ROWS), piece = draw_size(T);
    double slopes[4] = {0.5, 0.25, 0.125, 0.0625};
    mha_call call = {.path = MHA_PATH_FAST, .threads = 1 + (int)draw(2)};
    mha_error error;
    fill(rows[0], T * h * d_k), fill(rows[1], S * h_kv * d_k), fill(rows[2], S * h_kv * d_v);
    draw_semantics(&call.semantics, S, slopes);
    call.semantics.place.has_offset = true;
    call.key = mha_view_heads(rows[1], MHA_F32, MHA_BTHD, 1, S, h_kv, d_k);
    call.value = mha_view_heads(rows[2], MHA_F32, MHA_BTHD, 1, S, h_kv, d_v);
    for (int pieces = 0; pieces < 2; pieces++)
        for (size_t t = 0, n; t < T; t += n) {
            n = !pieces ? T : piece < T - t ? piece : T - t;
            call.semantics.place.offset = (int64_t)(S - T + t);
            call.query = mha_view_heads(rows[0] + t * h * d_k, MHA_F32, MHA_BTHD, 1, n, h, d_k);
            call.output = mha_rows((pieces ? cut : whole) + t * h * d_v, 1, n, h * d_v);
            assert_ok(mha_run(NULL, &call, &error), error);
        }
    snprintf(text, size, "%zu queries, %zu keys, %zu and %zu heads of %zu and %zu, pieces of %zu", T, S, h, h_kv, d_k,
             d_v, piece);
    return memcmp(whole, cut, T * h * d_v * sizeof *whole) != 0;
}

/* A layer with packed weights and a cache: a prefill of all rows, and pieces of it. */
static bool layer_differs(char *text, size_t size)
{
    static const size_t widths[] = {4, 8, 16, 32, 64};
    static const mha_dtype caches[] = {MHA_F32, MHA_F16, MHA_BF16, MHA_I8},
                           weights[] = {MHA_F32, MHA_F32, MHA_F16, MHA_BF16};
    const size_t h_kv = 1 + draw(2), h = h_kv * (1 + draw(2)), d_k = widths[draw(5)], E = h * d_k,
                 T = draw_size(MOST_ROWS), piece = draw_size(T);
    const mha_config config = {.d_model = E, .n_heads = h, .kv_heads = h_kv, .d_k = d_k, .bias_q = draw(2),
                               .bias_o = draw(2), .dtype = weights[draw(4)],
                               .q_norm = draw(4) ? MHA_NORM_NONE : MHA_NORM_HEAD};
    const mha_cache_spec spec = {.batch = 1, .kv_heads = h_kv, .d_k = d_k, .d_v = d_k, .capacity = T,
                                 .dtype = caches[draw(4)]};
    double slopes[4] = {0.5, 0.25, 0.125, 0.0625};
    mha_call call = {.path = MHA_PATH_FAST, .threads = 1 + (int)draw(2)};
    mha_layer *layer;
    mha_error error;
    assert_ok(mha_layer_create(&config, NULL, NULL, &layer, &error), error);
    assert_ok(mha_layer_pack(layer, &error), error);
    mha_layer_init(layer, draw(1000));
    fill(x, T * E);
    draw_semantics(&call.semantics, T, slopes);
    call.semantics.visible.causal = true; /* later rows are not there yet in a piece */
    call.semantics.qkv.rope.kind = (mha_rope_kind)draw(3);
    for (int pieces = 0; pieces < 2; pieces++) {
        assert_ok(mha_cache_create(&spec, NULL, &call.cache, &error), error);
        for (size_t t = 0, n; t < T; t += n) {
            n = !pieces ? T : piece < T - t ? piece : T - t;
            call.query = mha_rows(x + t * E, 1, n, E);
            call.output = mha_rows((pieces ? cut : whole) + t * E, 1, n, E);
            assert_ok(mha_run(layer, &call, &error), error);
        }
        mha_cache_destroy(call.cache);
    }
    mha_layer_destroy(layer);
    snprintf(text, size, "layer of width %zu, %zu and %zu heads, %zu rows in pieces of %zu, cache of %s", E, h, h_kv, T,
             piece, mha_dtype_name(spec.dtype));
    return memcmp(whole, cut, T * E * sizeof *whole) != 0;
}

static void run(bool (*differs)(char *text, size_t size))
{
    const uint64_t n = trial_count("ROWS_TRIALS", 150), first = trial_number("ROWS_SEED", 1);
    char text[200];
    size_t wrong = 0;
    for (uint64_t seed = first; seed < first + n; seed++) {
        drawn = seed * 0x9E3779B97F4A7C15u;
        if (differs(text, sizeof text))
            wrong++, print_message("ROWS_SEED=%llu: %s\n", (unsigned long long)seed, text);
    }
    if (wrong)
        fail_msg("%zu of %llu calls have other bits when their rows are cut", wrong, (unsigned long long)n);
}

static void queries_have_the_same_bits_in_pieces(void **state)
{
    (void)state;
    run(core_differs);
}

static void rows_of_a_packed_layer_have_the_same_bits_in_pieces(void **state)
{
    (void)state;
    run(layer_differs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queries_have_the_same_bits_in_pieces),
        cmocka_unit_test(rows_of_a_packed_layer_have_the_same_bits_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
