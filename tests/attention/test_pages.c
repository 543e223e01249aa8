/* Keys and values in pages: the bits of a cache of the same rows, on every path, and what is refused. */
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"
#include "support/unit.h"

enum { B = 3, H = 4, KV = 2, D_K = 8, D_V = 6, MODEL = 12, MOST = 1600, MOST_Q = 40 };

typedef struct setting {
    size_t lengths[B], T_q[B], page_rows;
    mha_dtype dtype;
    bool causal, ragged, layer, plus_one;
    int64_t window; /* 0: none */
} setting;

static const size_t widths[2] = {D_K, D_V};
static float rows[2][B][KV][MOST][D_K]; /* keys and values, as they are given to a cache */
static char pool[2][2 * MOST * KV * D_K * sizeof(double)];
static int32_t table[B * MOST];
static int64_t lengths[B], cu[B + 1];

static size_t used_of(const mha_pages *p, size_t b, size_t column)
{
    return (size_t)table[b * p->columns + column];
}

/* The pages of all sequences, from the last one on; entries that are not needed, and rows behind the last key, are
 * poison. */
static mha_pages make_pages(const setting *s)
{
    size_t columns = 0, used = 0;
    for (size_t b = 0; b < B; b++) {
        const size_t n = (s->lengths[b] + s->page_rows - 1) / s->page_rows;
        columns = n > columns ? n : columns, used += n;
        lengths[b] = (int64_t)s->lengths[b];
    }
    memset(pool, 0xFF, sizeof pool); /* NaN of every type */
    mha_pages p = {.table = table, .columns = columns + 1, .lengths = lengths};
    mha_view *const views[2] = {&p.keys, &p.values};
    for (int v = 0; v < 2; v++)
        *views[v] = mha_view_of(pool[v], s->dtype, 4, (size_t[]){used + 1, s->page_rows, KV, widths[v]});
    for (size_t i = 0; i < B * p.columns; i++)
        table[i] = -7;
    for (size_t b = 0; b < B; b++)
        for (size_t j = 0; j < s->lengths[b]; j++) {
            if (j % s->page_rows == 0)
                table[b * p.columns + j / s->page_rows] = (int32_t)--used;
            for (int v = 0; v < 2; v++)
                for (size_t g = 0; g < KV; g++)
                    for (size_t c = 0; c < widths[v]; c++)
                        mha_view_set(views[v], (size_t[]){used_of(&p, b, j / s->page_rows), j % s->page_rows, g, c},
                                     (double)rows[v][b][g][j][c]);
        }
    return p;
}

static mha_cache *cache_of(const setting *s, size_t b)
{
    const mha_cache_spec spec = {1, KV, D_K, D_V, s->lengths[b] + 1, 0, s->dtype};
    mha_cache *cache;
    mha_error error;
    mha_view past[2];
    assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
    for (int v = 0; v < 2; v++) {
        past[v] = mha_view_of(rows[v][b], MHA_F32, 4, (size_t[]){1, KV, s->lengths[b], widths[v]});
        past[v].stride[1] = MOST * D_K, past[v].stride[2] = D_K;
    }
    assert_ok(mha_cache_load(cache, &past[0], &past[1], &error), error);
    return cache;
}

enum { STAGES = 3 };
static const mha_stage stages[STAGES] = {MHA_STAGE_HEADS, MHA_STAGE_LSE, MHA_STAGE_WEIGHTS};

typedef struct results {
    float output[B * MOST_Q * H * D_K], kept[STAGES][B * H * MOST_Q * MOST];
} results;

static results paged, cached;

static mha_plan run(const mha_layer *layer, mha_call *call, bool keeps, results *to)
{
    mha_keep keep[STAGES];
    mha_plan plan;
    mha_error error;
    size_t shape[4];
    call->output = (mha_view){0};
    call->keep_count = 0;
    assert_ok(mha_plan_call(layer, call, &plan, &error), error);
    int rank = mha_plan_stage(&plan, MHA_STAGE_OUTPUT, shape);
    call->output = mha_view_of(to->output, MHA_F32, rank, shape);
    for (int i = 0; i < STAGES && keeps; i++) {
        rank = mha_plan_stage(&plan, stages[i], shape);
        keep[i] = (mha_keep){.stage = stages[i], .view = mha_view_of(to->kept[i], MHA_F32, rank, shape)};
    }
    call->keep = keep, call->keep_count = keeps ? STAGES : 0;
    assert_ok(mha_run(layer, call, &error), error);
    call->keep = NULL, call->keep_count = 0;
    return plan;
}

static void expect_bits(const float *a, const float *b, size_t n, const char *what, size_t row)
{
    if (memcmp(a, b, n * sizeof *a) != 0)
        fail_msg("%s, sequence %zu: other bits than a cache gives", what, row);
}

/* Each sequence by itself with a cache of its rows, held against its part of the call with pages. */
static void compare(const setting *s, const mha_layer *layer, const mha_call *call, const mha_plan *all, bool keeps)
{
    const size_t in = layer ? MODEL : H * D_K, out = layer ? MODEL : H * D_V;
    for (size_t b = 0; b < B; b++) {
        mha_call one = *call;
        const size_t from = s->ragged ? (size_t)cu[b] : b * all->T_q, n = s->T_q[b], S = s->lengths[b];
        one.pages = (mha_pages){.columns = 0};
        one.semantics.n_sequences = 0, one.semantics.cu_seqlens_q = NULL;
        one.semantics.has_offset = true, one.semantics.offset = (int64_t)S - (int64_t)n;
        float *q = (float *)call->query.data + from * in;
        one.query = layer ? mha_rows(q, 1, n, in) : mha_heads(q, 1, n, H, D_K);
        one.key = layer ? mha_rows(NULL, 1, 0, MODEL) : mha_heads(NULL, 1, 0, KV, D_K);
        one.value = layer ? mha_rows(NULL, 1, 0, MODEL) : mha_heads(NULL, 1, 0, KV, D_V);
        one.cache = cache_of(s, b);
        (void)run(layer, &one, keeps, &cached);
        mha_cache_destroy(one.cache);
        expect_bits(paged.output + from * out, cached.output, n * out, "output", b);
        if (keeps)
            expect_bits(paged.kept[0] + from * H * D_V, cached.kept[0], n * H * D_V, "heads", b);
        for (size_t h = 0; h < H && keeps; h++) {
            const size_t row = (b * H + h) * all->T_q;
            expect_bits(paged.kept[1] + row, cached.kept[1] + h * n, n, "lse", b);
            for (size_t i = 0; i < n; i++) {
                const float *w = paged.kept[2] + (row + i) * all->S;
                expect_bits(w, cached.kept[2] + (h * n + i) * S, S, "weights", b);
                for (size_t j = S; j < all->S; j++)
                    assert_true(w[j] == 0.0f);
            }
        }
    }
}

static const mha_config config = {.d_model = MODEL, .n_heads = H, .kv_heads = KV, .d_k = D_K, .d_v = D_V};

static mha_call call_of(const setting *s)
{
    static float query[B * MOST_Q * H * D_K];
    size_t total = 0;
    for (size_t b = 0; b < B; b++)
        total += s->T_q[b], cu[b + 1] = (int64_t)total;
    const size_t batch = s->ragged ? 1 : B, T = s->ragged ? total : s->T_q[0];
    mha_call call = {.query = s->layer ? mha_rows(query, batch, T, MODEL) : mha_heads(query, batch, T, H, D_K),
                     .pages = make_pages(s),
                     .threads = 2,
                     .semantics = {.causal = s->causal, .window = s->window > 0, .window_left = s->window - 1,
                                   .window_right = s->window > 0 ? -1 : 0, .softmax_plus_one = s->plus_one}};
    if (!s->window)
        call.semantics.window_left = 0;
    if (s->ragged)
        call.semantics.cu_seqlens_q = cu, call.semantics.n_sequences = B;
    mha_random_fill(&call.query, 3, 9, -1, 1);
    return call;
}

static void fill_rows(void)
{
    for (int v = 0; v < 2; v++) {
        mha_view all = mha_view_of(rows[v], MHA_F32, 1, (size_t[]){sizeof rows[v] / sizeof(float)});
        mha_random_fill(&all, 5, (uint64_t)v, -2, 2);
    }
}

static void check(const setting *s)
{
    mha_layer *layer = NULL;
    mha_error error;
    if (s->layer) {
        assert_ok(mha_layer_create(&config, NULL, NULL, &layer, &error), error);
        mha_layer_init(layer, 4);
    }
    for (int path = MHA_PATH_FAST; path <= MHA_PATH_EXACT; path++)
        for (int keeps = 0; keeps < 2; keeps++) {
            mha_call call = call_of(s);
            call.path = (mha_path)path;
            const mha_plan plan = run(layer, &call, keeps, &paged);
            assert_int_equal(plan.path, path);
            compare(s, layer, &call, &plan, keeps);
        }
    mha_layer_destroy(layer);
}

static void pages_give_the_bits_of_a_cache(void **state)
{
    (void)state;
    static const setting settings[] = {
        {{37, 5, 64}, {1, 1, 1}, 16, MHA_F32, .causal = true},
        {{37, 5, 64}, {3, 3, 3}, 1, MHA_F32, .causal = true, .plus_one = true},
        {{37, 0, 61}, {5, 5, 5}, 7, MHA_F32, .window = 9},
        {{100, 33, 64}, {40, 40, 40}, 32, MHA_F32, .causal = true},
        {{100, 33, 64}, {2, 2, 2}, 16, MHA_F16, .causal = true},
        {{90, 33, 64}, {19, 19, 19}, 3, MHA_BF16, .causal = false},
        {{37, 9, 64}, {4, 9, 0}, 16, MHA_F32, .causal = true, .ragged = true},
        {{37, 9, 1}, {4, 1, 2}, 5, MHA_F32, .ragged = true, .layer = true},
        {{60, 9, 44}, {3, 3, 3}, 16, MHA_F32, .causal = true, .layer = true},
        {{MOST - 1, 1100, 700}, {1, 1, 1}, 16, MHA_F32, .causal = true}, /* several segments */
        {{MOST - 1, 1100, 700}, {2, 2, 2}, 600, MHA_F16, .causal = true},
    };
    fill_rows();
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        check(&settings[i]);
}

/* Two sequences that begin alike share the pages of what they share. */
static void a_prefix_may_be_shared(void **state)
{
    (void)state;
    const setting s = {{40, 40, 40}, {1, 1, 1}, 8, MHA_F32, .causal = true};
    fill_rows();
    for (int v = 0; v < 2; v++)
        for (size_t g = 0; g < KV; g++)
            memcpy(rows[v][1][g], rows[v][0][g], 16 * sizeof rows[v][0][g][0]);
    mha_call call = call_of(&s);
    table[call.pages.columns] = table[0], table[call.pages.columns + 1] = table[1];
    const mha_plan plan = run(NULL, &call, false, &paged);
    compare(&s, NULL, &call, &plan, false);
}

static void bad_pages_are_refused(void **state)
{
    (void)state;
    const setting s = {{37, 5, 64}, {2, 2, 2}, 16, MHA_F32, .causal = false};
    mha_error error;
    mha_plan plan;
    static float out[B * 2 * H * D_V];
    static const int64_t two[2] = {0, 5};
#define REFUSED(status, words, ...)                                                                                    \
    {                                                                                                                  \
        mha_call call = call_of(&s);                                                                                   \
        mha_pages *p = &call.pages;                                                                                    \
        (void)p;                                                                                                       \
        __VA_ARGS__;                                                                                                   \
        assert_refused(mha_plan_call(NULL, &call, &plan, &error), status, error, words);                               \
    }
    REFUSED(MHA_INVALID, "page 1 of sequence 0 is 99, and there are pages 0 to 8", table[1] = 99)
    REFUSED(MHA_INVALID, "page 3 of sequence 2 is -1", table[2 * p->columns + 3] = -1)
    REFUSED(MHA_INVALID, "length 81 of sequence 2 is not between 0 and 5 pages of 16 rows", lengths[2] = 81)
    REFUSED(MHA_INVALID, "length -1 of sequence 0", lengths[0] = -1)
    REFUSED(MHA_INVALID, "a table and lengths", p->table = NULL)
    REFUSED(MHA_INVALID, "a table and lengths", p->lengths = NULL)
    REFUSED(MHA_INVALID, "page keys: no data", p->keys.data = NULL)
    REFUSED(MHA_INVALID, "page values: no data", p->values.data = NULL)
    REFUSED(MHA_INVALID, "page values: expected F32 as the keys", p->values.dtype = MHA_F16)
    REFUSED(MHA_INVALID, "page keys: expected F32, F16, BF16", p->keys.dtype = MHA_F64)
    REFUSED(MHA_INVALID, "page values: expected shape", p->values.shape[1] = 8)
    REFUSED(MHA_INVALID, "page keys: expected shape", p->keys.rank = 3)
    REFUSED(MHA_INVALID, "contiguous", p->keys.stride[3] = 2)
    REFUSED(MHA_INVALID, "key: the keys and values of the call lie in pages", call.key = call.query)
    REFUSED(MHA_INVALID, "value: the keys and values of the call lie in pages", call.value = call.query)
    REFUSED(MHA_INVALID, "set `offset`", call.semantics.has_key_offset = true)
    REFUSED(MHA_INVALID, "cu_seqlens_k", call.query.shape[0] = 1; call.query.shape[1] = 5;
            call.semantics.n_sequences = 1; call.semantics.cu_seqlens_q = call.semantics.cu_seqlens_k = two)
    REFUSED(MHA_INVALID, "overlap with the pages", (void)out;
            call.output = mha_heads((float *)p->values.data, B, 2, H, D_V))
    mha_cache *cache = cache_of(&s, 0);
    REFUSED(MHA_UNSUPPORTED, "in a cache", call.cache = cache; call.query = mha_heads(call.query.data, 1, 2, H, D_K))
    mha_cache_destroy(cache);
    mha_keep keep = {.stage = MHA_STAGE_PRESENT_KEY,
                     .view = mha_view_of(out, MHA_F32, 4, (size_t[]){1, 1, 1, 1})};
    REFUSED(MHA_UNSUPPORTED, "pages are the caller's", call.keep = &keep; call.keep_count = 1)
    mha_call call = call_of(&s);
    double bound[MHA_STAGE_COUNT];
    assert_refused(mha_error_bound(NULL, &call, 0x1p-24, bound, MHA_STAGE_COUNT, &error), MHA_UNSUPPORTED, error,
                   "pages");
    assert_refused(mha_case_save("/nowhere.safetensors", NULL, &call, NULL, &error), MHA_UNSUPPORTED, error, "pages");
    call.path = MHA_PATH_EXACT;
    assert_ok(mha_plan_call(NULL, &call, &plan, &error), error);
    assert_int_equal(plan.S, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_give_the_bits_of_a_cache),
        cmocka_unit_test(a_prefix_may_be_shared),
        cmocka_unit_test(bad_pages_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
