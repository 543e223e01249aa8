/* The fast path gives a query row the same bits in a call of any number of rows: prefill, chunks and decoding agree.
 * With a layer this holds for packed weights; a BLAS may sum one row in another order than many.
 * ROWS_TRIALS=n draws n calls, ROWS_SEED=s begins at seed s. */
#include <stdlib.h>
#include <string.h>

#include "support/call.h"
#include "support/isa.h"
#include "support/trial.h"
#include "support/unit.h"

enum { MOST_ROWS = 96, MOST_KEYS = 1400, MOST_WIDTH = 512, MOST_TOKENS = 300 };

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

/* Arrays of the settings that a call may have, for all its rows; views without data are not given. */
typedef struct arrays {
    mha_view mask, q_segments, query_padding, key_lists;
} arrays;

static float added[4 * MOST_ROWS * MOST_KEYS], weights[3][64 * 4 * 128];
static unsigned char flags[4 * MOST_ROWS * MOST_KEYS], padding[MOST_ROWS];
static int64_t documents[2][MOST_KEYS], lists[MOST_ROWS * 64];
static double slopes[4] = {0.5, 0.25, 0.125, 0.0625};

/* Settings of T queries after S - T earlier keys, for h heads; those of rows go to `of`. */
static void draw_semantics(mha_semantics *s, arrays *of, size_t T, size_t S, size_t h)
{
    *of = (arrays){0};
    s->visible.causal = draw(2);
    if ((s->visible.has_window_left = draw(4) == 0))
        s->visible.window_left = (int64_t)draw(S);
    s->visible.chunk = draw(6) == 0 ? (int64_t)draw_size(S) : 0;
    s->softmax.softcap = draw(4) == 0 ? 5 : 0;
    s->softmax.softmax_plus_one = draw(5) == 0;
    s->softmax.zero_row = draw(5) == 0;
    if (draw(5) == 0)
        s->added.alibi_slopes = slopes;
    const size_t heads = draw(2) ? h : 1, named = draw_size(64);
    switch (draw(8)) {
    case 0:
        s->visible.mask.kind = MHA_MASK_ADDITIVE;
        fill(added, heads * T * S);
        of->mask = mha_view_of(added, MHA_F32, 3, (size_t[]){heads, T, S});
        break;
    case 1:
        s->visible.mask.kind = draw(2) ? MHA_MASK_KEEPS : MHA_MASK_HIDES;
        for (size_t i = 0; i < heads * T * S; i++)
            flags[i] = draw(3) == 0;
        of->mask = mha_view_of(flags, MHA_U8, 3, (size_t[]){heads, T, S});
        break;
    case 2:
        for (size_t j = 0; j < S; j++)
            documents[0][j] = j ? documents[0][j - 1] + (draw(20) == 0) : 0;
        s->visible.pattern.k_segments = mha_view_of(documents[0], MHA_I64, 2, (size_t[]){1, S});
        of->q_segments = mha_view_of(documents[0] + S - T, MHA_I64, 2, (size_t[]){1, T});
        break;
    case 3:
        s->visible.pattern.query_padding.kind = MHA_MASK_HIDES;
        for (size_t t = 0; t < T; t++)
            padding[t] = draw(4) == 0;
        of->query_padding = mha_view_of(padding, MHA_U8, 2, (size_t[]){1, T});
        break;
    case 4:
        for (size_t i = 0; i < T * named; i++)
            lists[i] = (int64_t)draw(S + 1) - 1;
        of->key_lists = mha_view_of(lists, MHA_I64, 4, (size_t[]){1, 1, T, named});
        break;
    default: break;
    }
}

/* `all` of rows along `axis`: those from t on. */
static mha_view some(const mha_view *all, int axis, size_t t, size_t n)
{
    return all->data ? mha_view_slice(all, axis, t, n) : *all;
}

static void take_rows(mha_semantics *s, const arrays *of, size_t t, size_t n)
{
    s->visible.mask.values = some(&of->mask, 1, t, n);
    s->visible.pattern.q_segments = some(&of->q_segments, 1, t, n);
    s->visible.pattern.query_padding.values = some(&of->query_padding, 1, t, n);
    s->visible.pattern.key_lists = some(&of->key_lists, 2, t, n);
}

/* Sinks, and tables of what is added by position, of a call without a layer. */
static void draw_weights(mha_call *call, mha_view *of, size_t h, size_t d_k)
{
    for (size_t i = 0; i < 3; i++)
        fill(weights[i], 64 * 4 * 128);
    if (draw(4) == 0)
        of[MHA_SINKS] = mha_view_of(weights[0], MHA_F32, 1, (size_t[]){h});
    if (draw(5) == 0) {
        call->semantics.added.bias.rule = MHA_BIAS_RULE_BUCKETS;
        of[MHA_BIAS_TABLE] = mha_view_of(weights[1], MHA_F32, 2, (size_t[]){32, h});
    }
    if (draw(5) == 0) {
        call->semantics.added.relative.rule = MHA_RELATIVE_DISTANCE;
        of[MHA_RELATIVE_K] = mha_view_of(weights[2], MHA_F32, 2, (size_t[]){63, d_k});
    }
    call->weights = of, call->weight_count = MHA_WEIGHT_COUNT;
}

/* Heads that are given, or that lie in pages, of T queries after S - T earlier keys: at once, and cut into pieces of
 * `piece` queries. */
static bool core_differs(char *text, size_t size)
{
    static const size_t widths[] = {8, 16, 24, 32, 64, 80, 96, 128};
    static int32_t table[MOST_KEYS];
    const size_t d_k = widths[draw(8)], d_v = draw(3) ? d_k : widths[draw(8)], h_kv = 1 + draw(2), group = 1 + draw(2),
                 h = h_kv * group, T = draw_size(MOST_ROWS), S = T + draw(MOST_KEYS - MOST_ROWS), piece = draw_size(T),
                 page = draw(4) == 0 ? 1 + draw(40) : 0, pages = page ? S / page : 0;
    const int64_t held = (int64_t)(pages * page);
    mha_call call = {.path = MHA_PATH_FAST, .threads = 1 + (int)draw(2)};
    mha_view of[MHA_WEIGHT_COUNT] = {{0}};
    const bool paged = pages * page >= T;
    const size_t keys = paged ? pages * page : S;
    arrays rows_of;
    mha_error error;
    fill(rows[0], T * h * d_k), fill(rows[1], S * h_kv * d_k), fill(rows[2], S * h_kv * d_v);
    draw_semantics(&call.semantics, &rows_of, T, keys, h);
    draw_weights(&call, of, h, d_k);
    call.precision = draw(5) ? (mha_precision){0} : mha_precision_of(MHA_BF16);
    call.semantics.place.has_offset = true;
    if (paged && call.precision.inputs == MHA_F32) {
        for (size_t i = 0; i < pages; i++)
            table[i] = (int32_t)(pages - 1 - i);
        call.pages.keys = mha_view_of(rows[1], MHA_F32, 4, (size_t[]){pages, page, h_kv, d_k});
        call.pages.values = mha_view_of(rows[2], MHA_F32, 4, (size_t[]){pages, page, h_kv, d_v});
        call.pages.table = table, call.pages.columns = pages, call.pages.lengths = &held;
    } else {
        call.key = mha_view_heads(rows[1], MHA_F32, MHA_BTHD, 1, keys, h_kv, d_k);
        call.value = mha_view_heads(rows[2], MHA_F32, MHA_BTHD, 1, keys, h_kv, d_v);
    }
    for (int pieces = 0; pieces < 2; pieces++)
        for (size_t t = 0, n; t < T; t += n) {
            n = !pieces ? T : piece < T - t ? piece : T - t;
            take_rows(&call.semantics, &rows_of, t, n);
            call.semantics.place.offset = (int64_t)(keys - T + t);
            call.query = mha_view_heads(rows[0] + t * h * d_k, MHA_F32, MHA_BTHD, 1, n, h, d_k);
            call.output = mha_rows((pieces ? cut : whole) + t * h * d_v, 1, n, h * d_v);
            assert_ok(mha_run(NULL, &call, &error), error);
        }
    snprintf(text, size, "%zu queries, %zu keys, %zu and %zu heads of %zu and %zu, pieces of %zu", T, keys, h, h_kv,
             d_k, d_v, piece);
    return memcmp(whole, cut, T * h * d_v * sizeof *whole) != 0;
}

/* A layer with packed weights and a cache: a prefill of all rows, and pieces of it. No layer absorbs its latents, which
 * a BLAS multiplies. */
static bool layer_differs(char *text, size_t size)
{
    static const size_t widths[] = {4, 8, 16, 32, 64};
    static const mha_dtype caches[] = {MHA_F32, MHA_F16, MHA_BF16, MHA_I8},
                           types[] = {MHA_F32, MHA_F32, MHA_F16, MHA_BF16, MHA_Q8_0};
    const bool latent = draw(4) == 0;
    const size_t group = 1 + draw(2), h_kv = 1 + draw(2), h = h_kv * group,
                 d_k = widths[latent ? 1 + draw(4) : draw(5)], E = 32 * h, T = draw_size(MOST_TOKENS),
                 piece = draw_size(T);
    mha_config config = {.d_model = E,
                         .n_heads = h,
                         .d_k = d_k,
                         .bias_o = draw(2),
                         .dtype = types[draw(h * d_k % 32 ? 4 : 5)],
                         .sinks = draw(4) == 0,
                         .gate = draw(4)   ? MHA_GATE_NONE
                                 : draw(2) ? MHA_GATE_FEATURE
                                           : MHA_GATE_HEAD};
    if (latent) {
        config.kv_rank = 32, config.q_rank = draw(2) * 32, config.d_rope = d_k / 2, config.d_v = d_k;
    } else {
        config.kv_heads = h_kv, config.bias_q = draw(2), config.q_norm = draw(4) ? MHA_NORM_NONE : MHA_NORM_HEAD;
        config.bias_kv = draw(6) == 0, config.bias_rows = draw(5) ? 0 : 32;
        config.relative_k_rows = draw(6) ? 0 : 31;
    }
    const mha_cache_spec spec = {
        .batch = 1, .kv_heads = latent ? h : h_kv, .d_k = d_k, .d_v = d_k, .capacity = T, .dtype = caches[draw(4)]};
    mha_call call = {.path = MHA_PATH_FAST, .threads = 1 + (int)draw(2)};
    arrays rows_of;
    mha_layer *layer;
    mha_error error;
    assert_ok(mha_layer_create(&config, NULL, NULL, &layer, &error), error);
    assert_ok(mha_layer_pack(layer, &error), error);
    mha_layer_init(layer, draw(1000));
    fill(x, T * E);
    draw_semantics(&call.semantics, &rows_of, T, T, h);
    call.semantics.visible = (mha_visible){.causal = true, /* later rows are not there yet in a piece */
                                           .has_window_left = call.semantics.visible.has_window_left,
                                           .window_left = call.semantics.visible.window_left,
                                           .chunk = call.semantics.visible.chunk};
    call.semantics.qkv.rope.kind = (mha_rope_kind)(latent ? 1 + draw(2) : draw(3));
    call.semantics.qkv.rope.last = latent, call.semantics.qkv.rope.dim = config.d_rope;
    call.semantics.added.bias.rule = config.bias_rows ? MHA_BIAS_RULE_BUCKETS : MHA_BIAS_RULE_NONE;
    call.semantics.added.relative.rule = config.relative_k_rows ? MHA_RELATIVE_DISTANCE : MHA_RELATIVE_NONE;
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
    snprintf(text, size, "layer of width %zu, %zu heads of %zu, %zu rows in pieces of %zu, %s, cache of %s%s", E, h,
             d_k, T, piece, mha_dtype_name(config.dtype), mha_dtype_name(spec.dtype), latent ? ", latents" : "");
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
    FOR_EACH_ISA run(core_differs);
}

static void rows_of_a_packed_layer_have_the_same_bits_in_pieces(void **state)
{
    FOR_EACH_ISA run(layer_differs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(queries_have_the_same_bits_in_pieces, isa_teardown),
        cmocka_unit_test_teardown(rows_of_a_packed_layer_have_the_same_bits_in_pieces, isa_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
