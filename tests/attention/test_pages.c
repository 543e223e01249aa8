/* Keys and values in pages: the bits of a cache of the same rows, on every path, and what is refused. */
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"
#include "support/layer.h"
#include "support/unit.h"

enum { B = 3, H = 4, KV = 2, D_K = 8, D_V = 6, MODEL = 12, MOST = 1600, MOST_Q = 40 };

typedef struct setting {
    size_t lengths[B], T_q[B], page_rows;
    mha_dtype dtype;
    bool causal, ragged, layer, plus_one, alibi;
    bool rounds; /* products of BF16, with pages and weights of that type */
    int64_t window; /* 0: none */
    int64_t before; /* keys before those in the pages, which are not there */
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

/* The pages of a pool; those of 8 bits have rows that end with a scale. */
static mha_view pool_view(void *data, mha_dtype dtype, size_t pages, size_t page_rows, size_t width)
{
    const size_t row = dtype == MHA_I8 ? (width + 3) / 4 * 4 + 4 : width;
    const mha_view all = mha_view_of(data, dtype, 4, (size_t[]){pages, page_rows, KV, row});
    return mha_view_slice(&all, 3, 0, width);
}

/* Writes rows first ... first + n - 1 of a sequence to its pages. */
static void write(const mha_pages *p, size_t b, size_t first, size_t n)
{
    mha_error error;
    mha_view from[2];
    for (int v = 0; v < 2; v++) {
        from[v] = mha_view_of(&rows[v][b][0][first][0], MHA_F32, 3, (size_t[]){n, KV, widths[v]});
        from[v].stride[0] = D_K, from[v].stride[1] = MOST * D_K;
    }
    assert_ok(mha_pages_write(p, b, first, &from[0], &from[1], &error), error);
}

/* The pages of all sequences, from the last one on; entries that are not needed, and rows after the last key, are
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
        *views[v] = pool_view(pool[v], s->dtype, used + 1, s->page_rows, widths[v]);
    for (size_t i = 0; i < B * p.columns; i++)
        table[i] = -7;
    for (size_t b = 0; b < B; b++) {
        for (size_t j = 0; j < s->lengths[b]; j++) {
            if (j % s->page_rows == 0)
                table[b * p.columns + j / s->page_rows] = (int32_t)--used;
            for (int v = 0; v < 2 && s->dtype != MHA_I8; v++)
                for (size_t g = 0; g < KV; g++)
                    for (size_t c = 0; c < widths[v]; c++)
                        mha_view_set(views[v], (size_t[]){used_of(&p, b, j / s->page_rows), j % s->page_rows, g, c},
                                     (double)rows[v][b][g][j][c]);
        }
        if (s->dtype == MHA_I8)
            write(&p, b, 0, s->lengths[b]);
    }
    return p;
}

static mha_cache *cache_of(const setting *s, size_t b)
{
    const mha_cache_spec spec = {1, KV, D_K, D_V, s->lengths[b] + 1, 0, .dtype = s->dtype};
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
        one.semantics.place.n_sequences = 0, one.semantics.place.cu_seqlens_q = NULL;
        one.semantics.place.position_offset = NULL;
        one.semantics.place.has_offset = true, one.semantics.place.offset = s->before + (int64_t)S - (int64_t)n;
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
    static const double slopes[H] = {0.5, 0.25, 0.125, 0};
    static int64_t offsets[B];
    static float relative[11 * D_K];
    static mha_view weights[MHA_WEIGHT_COUNT];
    weights[MHA_RELATIVE_Q] = mha_view_of(relative, MHA_F32, 2, (size_t[]){11, D_K});
    static float query[B * MOST_Q * H * D_K];
    size_t total = 0;
    for (size_t b = 0; b < B; b++)
        total += s->T_q[b], cu[b + 1] = (int64_t)total;
    const size_t batch = s->ragged ? 1 : B, T = s->ragged ? total : s->T_q[0];
    mha_call call = {.query = s->layer ? mha_rows(query, batch, T, MODEL) : mha_heads(query, batch, T, H, D_K),
                     .pages = make_pages(s),
                     .threads = 2,
                     .precision = mha_precision_of(s->rounds ? MHA_BF16 : MHA_F32),
                     .semantics = {.visible.causal = s->causal,
                                   .visible.has_window_left = s->window > 0,
                                   .visible.window_left = s->window > 0 ? s->window - 1 : 0,
                                   .softmax.softmax_plus_one = s->plus_one}};
    if (s->ragged)
        call.semantics.place.cu_seqlens_q = cu, call.semantics.place.n_sequences = B;
    if (s->alibi)
        call.semantics.added.alibi_slopes = slopes;
    if (s->alibi && !s->layer) { /* and relative terms, whose keys lie in pages, too */
        mha_random_fill(&weights[MHA_RELATIVE_Q], 4, 9, -1, 1);
        weights[MHA_RELATIVE_K] = weights[MHA_RELATIVE_Q];
        call.weights = weights, call.weight_count = MHA_WEIGHT_COUNT,
        call.semantics.added.relative.rule = MHA_RELATIVE_DISTANCE;
    }
    for (size_t b = 0; b < B; b++)
        offsets[b] = s->before + (int64_t)s->lengths[b] - (int64_t)s->T_q[b];
    if (s->before)
        call.semantics.place.key_offset = s->before, call.semantics.place.position_offset = offsets;
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
    if (s->layer) {
        mha_config typed = config;
        typed.dtype = s->rounds ? MHA_BF16 : MHA_F32;
        layer = made_layer(typed, 4);
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
        {{MOST - 1, 1100, 700}, {1, 1, 1}, 64, MHA_I8, .causal = true},
        {{100, 33, 64}, {40, 40, 40}, 5, MHA_I8, .causal = true, .layer = true},
        {{37, 5, 64}, {3, 3, 3}, 16, MHA_F32, .causal = true, .alibi = true, .before = 50},
        {{MOST - 1, 1100, 700}, {2, 2, 2}, 16, MHA_BF16, .causal = true, .rounds = true},
        {{60, 9, 44}, {3, 3, 3}, 7, MHA_BF16, .causal = true, .layer = true, .rounds = true},
    };
    fill_rows();
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        check(&settings[i]);
}

/* Related settings are drawn apart: every type, page size, kind of call and reach with every other. */
static void drawn_pages_give_the_bits_of_a_cache(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F32, MHA_F16, MHA_BF16, MHA_I8};
    fill_rows();
    for (uint64_t seed = 0; seed < 40; seed++) {
        uint64_t i = 0;
#define DRAWN(n) ((size_t)(mha__random_bits(seed, 77, i++) % (n)))
        setting s = {.page_rows = 1 + DRAWN(40)};
        s.dtype = types[DRAWN(4)];
        s.causal = DRAWN(2) != 0;
        s.ragged = DRAWN(2) != 0;
        s.layer = DRAWN(4) == 0;
        s.plus_one = DRAWN(4) == 0;
        s.alibi = s.causal && DRAWN(2) != 0;
        s.window = DRAWN(2) != 0 ? 1 + (int64_t)DRAWN(30) : 0;
        s.before = !s.layer && DRAWN(3) == 0 ? 1 + (int64_t)DRAWN(100) : 0;
        const size_t T_q = 1 + DRAWN(12);
        for (size_t b = 0; b < B; b++) {
            s.T_q[b] = s.ragged ? DRAWN(12) : T_q;
            s.lengths[b] = s.T_q[b] + DRAWN(90);
        }
        s.rounds = s.dtype == MHA_BF16 && DRAWN(2) != 0;
        check(&s);
    }
#undef DRAWN
}

/* ---------------------------------------------------------------- decoding */

enum { POOL = 14, PAGE = 4, COLUMNS = 8 };

/* Pages, and who holds them: how many sequences, 0: free. */
typedef struct keeper {
    mha_pages pages;
    int holders[POOL];
} keeper;

static int32_t free_page(keeper *k)
{
    for (int32_t page = 0; page < POOL; page++)
        if (k->holders[page] == 0) {
            k->holders[page] = 1;
            return page;
        }
    fail_msg("no page is free");
    return -1;
}

/* Appends a token: in a page of its own where one begins or where the last one is shared. */
static void append(keeper *k, size_t b)
{
    const size_t j = (size_t)lengths[b]++;
    int32_t *entry = &table[b * COLUMNS + j / PAGE];
    if (j % PAGE == 0) {
        *entry = free_page(k);
    } else if (k->holders[*entry] > 1) {
        const int32_t shared = *entry;
        k->holders[shared]--;
        *entry = free_page(k);
        for (int v = 0; v < 2; v++) {
            const mha_view *view = v ? &k->pages.values : &k->pages.keys;
            size_t element = 0;
            (void)mha_dtype_bytes(view->dtype, 1, &element, NULL);
            const size_t bytes = (size_t)view->stride[0] * element;
            memcpy(pool[v] + (size_t)*entry * bytes, pool[v] + (size_t)shared * bytes, bytes);
        }
    }
    write(&k->pages, b, j, 1);
}

static void free_sequence(keeper *k, size_t b)
{
    for (size_t c = 0; c * PAGE < (size_t)lengths[b]; c++) {
        k->holders[table[b * COLUMNS + c]]--;
        table[b * COLUMNS + c] = -9;
    }
    lengths[b] = 0;
}

/* Sequence `to` continues what sequence `from` has so far, in the same pages. */
static void fork_sequence(keeper *k, size_t from, size_t to)
{
    lengths[to] = lengths[from];
    for (size_t c = 0; c * PAGE < (size_t)lengths[from]; c++)
        k->holders[table[to * COLUMNS + c] = table[from * COLUMNS + c]]++;
    for (int v = 0; v < 2; v++)
        for (size_t g = 0; g < KV; g++)
            memcpy(rows[v][to][g], rows[v][from][g], (size_t)lengths[to] * sizeof rows[v][to][g][0]);
}

static void decode(keeper *k, mha_dtype dtype)
{
    static float query[B * H * D_K];
    setting s = {.T_q = {1, 1, 1}, .dtype = dtype, .causal = true};
    for (size_t b = 0; b < B; b++)
        s.lengths[b] = (size_t)lengths[b];
    mha_call call = {.query = mha_heads(query, B, 1, H, D_K), .pages = k->pages, .semantics = {.visible.causal = true}};
    mha_random_fill(&call.query, 3, (uint64_t)lengths[0], -1, 1);
    const mha_plan plan = run(NULL, &call, false, &paged);
    compare(&s, NULL, &call, &plan, false);
}

/* Prompts of different lengths; tokens across the borders of pages; a sequence that forks from another, inside a page;
 * one that ends, whose pages a new one takes. After every token each sequence has the bits of a cache of its own. */
static void a_decoding_program_keeps_its_sequences(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F32, MHA_F16, MHA_BF16, MHA_I8};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        keeper k = {.pages = {.keys = pool_view(pool[0], types[t], POOL, PAGE, D_K),
                              .values = pool_view(pool[1], types[t], POOL, PAGE, D_V),
                              .table = table,
                              .columns = COLUMNS,
                              .lengths = lengths}};
        memset(pool, 0xFF, sizeof pool);
        memset(lengths, 0, sizeof lengths);
        fill_rows();
        for (int i = 0; i < 11; i++)
            append(&k, 0);
        for (int i = 0; i < 3; i++)
            append(&k, 1);
        fork_sequence(&k, 0, 2);
        assert_int_equal(table[2 * COLUMNS + 2], table[2]);
        for (int step = 0; step < 18; step++) {
            if (step == 7) { /* sequence 1 ends; a prompt of 9 takes its place, and its pages */
                const int32_t freed = table[COLUMNS];
                free_sequence(&k, 1);
                assert_int_equal(k.holders[freed], 0);
                for (int v = 0; v < 2; v++)
                    for (size_t g = 0; g < KV; g++)
                        memmove(rows[v][1][g], rows[v][1][g][30], 100 * sizeof rows[v][1][g][0]);
                for (int i = 0; i < 9; i++)
                    append(&k, 1);
                assert_true(k.holders[freed] > 0);
            }
            for (size_t b = 0; b < B; b++)
                if (lengths[b] < COLUMNS * PAGE && (step < 12 || b != 2))
                    append(&k, b);
            if (step == 0) { /* both wrote to what was one page */
                assert_int_equal(table[2 * COLUMNS + 1], table[1]);
                assert_true(table[2 * COLUMNS + 2] != table[2]);
            }
            if (step == 12) /* room for what the others still get */
                free_sequence(&k, 2);
            decode(&k, types[t]);
        }
    }
}

/* Absorbed latents are their own values: a page has one row for both. */
static void latents_lie_in_pages(void **state)
{
    (void)state;
    enum { RANK = 10, ROPE = 4, WIDE = RANK + ROPE, KEYS = 45, PAGE_ROWS = 7 };
    static const mha_dtype types[] = {MHA_F32, MHA_BF16, MHA_I8};
    static const mha_config latent = {.d_model = MODEL, .n_heads = H, .kv_heads = H, .d_k = 6 + ROPE, .d_v = 5,
                                      .kv_rank = RANK, .d_rope = ROPE};
    static float query[MODEL], row[KEYS * WIDE];
    static char memory[8 * PAGE_ROWS * WIDE * sizeof(float)];
    static const int32_t pages[7] = {3, 0, 6, 1, 5, 7, 2};
    static const int64_t length = KEYS;
    mha_error error;
    mha_layer *layer = made_layer(latent, 4);
    const mha_view from = mha_view_of(row, MHA_F32, 4, (size_t[]){1, 1, KEYS, WIDE}),
                   past = mha_view_of(row, MHA_F32, 3, (size_t[]){KEYS, 1, WIDE}),
                   none = mha_view_slice(&from, 3, 0, 0);
    mha_random_fill(&from, 8, 1, -2, 2);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int path = MHA_PATH_FAST; path <= MHA_PATH_EXACT; path++) {
            mha_call call = {.query = mha_rows(query, 1, 1, MODEL), .absorbed = true, .path = (mha_path)path};
            const size_t wide = types[t] == MHA_I8 ? (WIDE + 3) / 4 * 4 + 4 : WIDE;
            mha_view pool_rows = mha_view_of(memory, types[t], 4, (size_t[]){8, PAGE_ROWS, 1, wide});
            mha_random_fill(&call.query, 8, 2, -1, 1);
            memset(memory, 0xFF, sizeof memory);
            call.pages = (mha_pages){.keys = mha_view_slice(&pool_rows, 3, 0, WIDE), .table = pages, .columns = 7,
                                     .lengths = &length};
            assert_ok(mha_pages_write(&call.pages, 0, 0, &past, NULL, &error), error);
            (void)run(layer, &call, false, &paged);
            call.pages = (mha_pages){.columns = 0};
            call.semantics.place.has_offset = true, call.semantics.place.offset = KEYS - 1;
            call.key = mha_rows(NULL, 1, 0, MODEL);
            const mha_cache_spec spec = {1, 1, WIDE, 0, KEYS + 1, 0, .dtype = types[t]};
            assert_ok(mha_cache_create(&spec, NULL, &call.cache, &error), error);
            assert_ok(mha_cache_load(call.cache, &from, &none, &error), error);
            (void)run(layer, &call, false, &cached);
            mha_cache_destroy(call.cache);
            expect_bits(paged.output, cached.output, MODEL, "latents", t);
        }
    mha_layer_destroy(layer);
}

static void bad_rows_are_not_written(void **state)
{
    (void)state;
    const setting s = {{37, 5, 64}, {2, 2, 2}, 16, MHA_F32, .causal = false};
    static float k[2 * KV * D_K], v[2 * KV * D_V];
    mha_error error;
#define NOT_WRITTEN(words, b, first, ...)                                                                              \
    {                                                                                                                  \
        mha_pages p = make_pages(&s);                                                                                  \
        mha_view keys = mha_view_of(k, MHA_F32, 3, (size_t[]){2, KV, D_K}),                                            \
                 values = mha_view_of(v, MHA_F32, 3, (size_t[]){2, KV, D_V});                                          \
        __VA_ARGS__;                                                                                                   \
        assert_refused(mha_pages_write(&p, b, first, &keys, &values, &error), MHA_INVALID, error, words);              \
    }
    NOT_WRITTEN("found -7 for page 3 of sequence 0", 0, 47, (void)p)
    NOT_WRITTEN("expected pages below 9, found 9 for page 0 of sequence 1", 1, 3, table[p.columns] = 9)
    NOT_WRITTEN("expected room in 5 pages of 16 rows, found 2 rows after 79", 2, 79, (void)p)
    NOT_WRITTEN("found 2 rows after 18446744073709551615", 2, SIZE_MAX, p.columns = SIZE_MAX)
    NOT_WRITTEN("a table", 0, 0, p.table = NULL)
    NOT_WRITTEN("a table", 0, 0, p.keys.data = NULL)
    NOT_WRITTEN("page values: expected data", 0, 0, p.values.data = NULL)
    NOT_WRITTEN("page values: expected shape", 0, 0, p.values.shape[1] = 15)
    NOT_WRITTEN("page keys: expected F32, F16, BF16, I8", 0, 0, p.keys.dtype = MHA_I32)
    NOT_WRITTEN("page keys: expected rows of 8 codes with their scale in 12 bytes", 0, 0, p.keys.dtype = MHA_I8)
    NOT_WRITTEN("values: expected shape (2, 2, 6)", 0, 0, values.shape[0] = 3)
    NOT_WRITTEN("keys: expected F32 with a last stride of 1, found F16", 0, 0, keys.dtype = MHA_F16)
    NOT_WRITTEN("values: expected data", 0, 0, values.data = NULL)
    mha_pages newer = make_pages(&s);
    const mha_view some = mha_view_of(k, MHA_F32, 3, (size_t[]){2, KV, D_K});
    newer.reserved[3] = 1;
    assert_refused(mha_pages_write(&newer, 0, 0, &some, NULL, &error), MHA_UNSUPPORTED, error, "pages", "reserved[3]");
    assert_int_equal(k[0], 0);
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
    REFUSED(MHA_INVALID, "expected pages below 9, found 99 for page 1 of sequence 0", table[1] = 99)
    REFUSED(MHA_INVALID, "found -1 for page 3 of sequence 2", table[2 * p->columns + 3] = -1)
    REFUSED(MHA_INVALID, "expected at most 5 pages of 16 rows, found length 81 of sequence 2", lengths[2] = 81)
    REFUSED(MHA_INVALID, "length -1 of sequence 0", lengths[0] = -1)
    REFUSED(MHA_INVALID, "a table and lengths", p->table = NULL)
    REFUSED(MHA_INVALID, "a table and lengths", p->lengths = NULL)
    REFUSED(MHA_INVALID, "page keys: expected data", p->keys.data = NULL)
    REFUSED(MHA_INVALID, "page values: expected data", p->values.data = NULL)
    REFUSED(MHA_INVALID, "page values: expected F32 as the keys", p->values.dtype = MHA_F16)
    REFUSED(MHA_INVALID, "expected rows of 8 codes with their scale in 12 bytes, found a stride of 8",
            p->keys.dtype = p->values.dtype = MHA_I8)
    REFUSED(MHA_INVALID, "more than a size can count", p->columns = SIZE_MAX / 2)
    REFUSED(MHA_INVALID, "page keys: expected F32, F16, BF16", p->keys.dtype = MHA_F64)
    REFUSED(MHA_INVALID, "page values: expected shape", p->values.shape[1] = 8)
    REFUSED(MHA_INVALID, "page keys: expected shape", p->keys.rank = 3)
    REFUSED(MHA_INVALID, "contiguous", p->keys.stride[3] = 2)
    REFUSED(MHA_INVALID, "key: expected none with pages", call.key = call.query)
    REFUSED(MHA_INVALID, "value: expected none with pages", call.value = call.query)
    REFUSED(MHA_INVALID, "set `offset`", call.semantics.place.has_key_offset = true)
    REFUSED(MHA_INVALID, "cu_seqlens_k", call.query.shape[0] = 1; call.query.shape[1] = 5;
            call.semantics.place.n_sequences = 1;
            call.semantics.place.cu_seqlens_q = call.semantics.place.cu_seqlens_k = two)
    REFUSED(MHA_INVALID, "overlap with page values", (void)out;
            call.output = mha_heads((float *)p->values.data, B, 2, H, D_V))
    REFUSED(MHA_INVALID, "overlap with page table", call.output = mha_heads((float *)(void *)table, B, 2, H, D_V))
    static int64_t both[B * 2 * H * D_V];
    REFUSED(MHA_INVALID, "overlap with page lengths", memcpy(both, lengths, sizeof lengths); p->lengths = both;
            call.output = mha_heads((float *)(void *)both, B, 2, H, D_V))
    mha_cache *cache = cache_of(&s, 0);
    REFUSED(MHA_UNSUPPORTED, "a cache", call.cache = cache; call.query = mha_heads(call.query.data, 1, 2, H, D_K))
    mha_cache_destroy(cache);
    mha_keep keep = {.stage = MHA_STAGE_PRESENT_KEY,
                     .view = mha_view_of(out, MHA_F32, 4, (size_t[]){1, 1, 1, 1})};
    REFUSED(MHA_UNSUPPORTED, "pages are the caller's", call.keep = &keep; call.keep_count = 1)
    mha_call call = call_of(&s);
    call.path = MHA_PATH_EXACT;
    assert_ok(mha_plan_call(NULL, &call, &plan, &error), error);
    assert_int_equal(plan.S, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_give_the_bits_of_a_cache),
        cmocka_unit_test(drawn_pages_give_the_bits_of_a_cache),
        cmocka_unit_test(a_decoding_program_keeps_its_sequences),
        cmocka_unit_test(a_prefix_may_be_shared),
        cmocka_unit_test(latents_lie_in_pages),
        cmocka_unit_test(bad_rows_are_not_written),
        cmocka_unit_test(bad_pages_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
