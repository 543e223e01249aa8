/* Shares of a split: heads, rows, bytes and stored weights of all ranks together are those of the whole. */
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/unit.h"

static const mha_config shapes[] = {
    {.d_model = 24, .n_heads = 12, .kv_heads = 4, .bias_k = true, .bias_o = true, .bias_kv = true, .sinks = true},
    {.d_model = 32, .n_heads = 8, .kv_heads = 8, .d_k = 3, .d_v = 5, .bias_q = true, .q_norm = MHA_NORM_HEAD},
    {.d_model = 16, .n_heads = 8, .kv_heads = 1, .d_out = 7, .bias_v = true, .k_norm = MHA_NORM_HEAD},
    {.d_model = 14, .n_heads = 7, .kv_heads = 7, .q_norm = MHA_NORM_ROW, .k_norm = MHA_NORM_ROW},
    {.d_model = 10, .n_heads = 8, .d_k = 6, .d_v = 3, .q_rank = 5, .kv_rank = 7, .d_rope = 2, .bias_latent = true},
    {.d_model = 12, .n_heads = 12, .kv_heads = 4, .d_k = 2, .bias_rows = 5, .gate = MHA_GATE_FEATURE,
     .q_norm = MHA_NORM_EACH_HEAD, .k_norm = MHA_NORM_EACH_HEAD, .norm_bias = true},
    {.d_model = 6, .n_heads = 8, .d_k = 4, .kv_rank = 3, .gate = MHA_GATE_HEAD, .bias_gate = true},
    {.d_model = 8, .n_heads = 4, .relative_k_rows = 3, .relative_q_rows = 3},
    {.d_model = 8, .n_heads = 4, .relative_k_rows = 3, .relative_column_rows = 5, .relative_by_head = true},
};
static const size_t lengths[][2] = {{16, 16}, {5, 13}, {1, 1}, {0, 9}, {48, 48}};

/* Calls `check` with every split that is not refused. */
static size_t each_split(void (*check)(const mha_split *split))
{
    size_t done = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int scheme = 0; scheme < MHA_SPLIT_COUNT; scheme++)
            for (size_t ranks = 1; ranks <= 12; ranks++)
                for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
                    mha_split split = {(mha_split_scheme)scheme, ranks,          shapes[i],
                                       1 + l % 3,                lengths[l][0], lengths[l][1],
                                       l % 2 ? MHA_F64 : MHA_F32, 0, 0, false};
                    if (mha_split_check(&split, NULL) != MHA_OK)
                        continue;
                    check(&split);
                    done++;
                }
    return done;
}

/* ---------------------------------------------------------------- heads and rows */

static void mark(unsigned char *marks, mha_range range)
{
    for (size_t i = range.from; i < range.from + range.count; i++)
        marks[i]++;
}

static void check_cover(const mha_split *s)
{
    const mha_config *c = &s->config;
    const bool by_heads = s->scheme == MHA_SPLIT_TENSOR || s->scheme == MHA_SPLIT_ULYSSES;
    unsigned char heads[16] = {0}, queries[64] = {0}, keys[64] = {0}, read[16] = {0};
    uint64_t sent = 0, received = 0, pairs = 0, causal = 0;
    size_t cached = 0;
    for (size_t r = 0; r < s->ranks; r++) {
        const mha_share share = mha_split_share(s, r);
        mark(heads, share.heads);
        memset(read, 0, sizeof read);
        mark(read, share.kv_heads);
        for (size_t h = share.heads.from; h < share.heads.from + share.heads.count; h++) {
            assert_true(read[h / (c->n_heads / c->kv_heads)]); /* it has the key/value head of each query head */
            read[h / (c->n_heads / c->kv_heads)] = 2;
        }
        for (size_t g = 0; g < 16; g++)
            assert_true(read[g] != 1); /* and no other */
        for (size_t i = 0; i < share.chunks; i++) {
            mark(queries, share.queries[i]);
            mark(keys, share.keys[i]);
        }
        sent += share.bytes_sent, received += share.bytes_received;
        pairs += share.pairs, causal += share.causal_pairs, cached += share.cache_elements;
    }
    const bool all_queries = s->scheme == MHA_SPLIT_TENSOR || s->scheme == MHA_SPLIT_CACHE;
    for (size_t h = 0; h < c->n_heads; h++)
        assert_int_equal(heads[h], by_heads ? 1 : s->ranks);
    for (size_t t = 0; t < s->T_q; t++)
        assert_int_equal(queries[t], all_queries ? s->ranks : 1);
    for (size_t t = 0; t < s->T_k; t++)
        assert_int_equal(keys[t], s->scheme == MHA_SPLIT_TENSOR ? s->ranks : 1);
    assert_int_equal(sent, received);
    assert_int_equal(pairs, s->B * c->n_heads * s->T_q * s->T_k);
    if (s->T_q == s->T_k)
        assert_int_equal(causal, s->B * c->n_heads * (s->T_q * (s->T_q + 1) / 2));
    const size_t copies = by_heads && s->ranks > c->kv_heads ? s->ranks / c->kv_heads : 1;
    assert_int_equal(cached, copies * s->B * s->T_k * c->kv_heads * (c->d_k + c->d_v));
}

static void every_head_and_row_is_somewhere(void **state)
{
    (void)state;
    assert_true(each_split(check_cover) > 500);
}

/* ---------------------------------------------------------------- bytes */

/* Messages one by one: what one row or one element of the sender needs to be at the receiver. */
static uint64_t simulate(const mha_split *s, size_t from, size_t to)
{
    const mha_config *c = &s->config;
    const mha_share a = mha_split_share(s, from), b = mha_split_share(s, to);
    const size_t q = a.queries[0].count + (a.chunks > 1 ? a.queries[1].count : 0),
                 b_q = b.queries[0].count + (b.chunks > 1 ? b.queries[1].count : 0),
                 k = a.keys[0].count + (a.chunks > 1 ? a.keys[1].count : 0);
    const size_t element = s->dtype == MHA_F64 ? 8 : 4, n = s->B * s->T_q;
    switch (s->scheme) {
    case MHA_SPLIT_TENSOR:
        return element * (mha_range_of(n * c->d_out, s->ranks, to).count +
                          mha_range_of(n * c->d_out, s->ranks, from).count);
    case MHA_SPLIT_CACHE:
        return element * (mha_range_of(n * c->n_heads, s->ranks, to).count * (c->d_v + 1) +
                          mha_range_of(n * c->n_heads, s->ranks, from).count * c->d_v);
    case MHA_SPLIT_ULYSSES:
        return element * s->B * (q * b.heads.count * c->d_k + k * b.kv_heads.count * (c->d_k + c->d_v) +
                                 b_q * a.heads.count * c->d_v);
    default: break;
    }
    uint64_t bytes = 0; /* a ring: every rank's keys pass on until the one before it has them */
    for (size_t owner = 0; owner < s->ranks && to == (from + 1) % s->ranks; owner++) {
        const mha_share o = mha_split_share(s, owner);
        if (to != owner)
            bytes += element * s->B * c->kv_heads * (c->d_k + c->d_v) *
                     (o.keys[0].count + (o.chunks > 1 ? o.keys[1].count : 0));
    }
    return bytes;
}

static void check_bytes(const mha_split *s)
{
    for (size_t r = 0; r < s->ranks; r++) {
        uint64_t sent = 0, received = 0;
        for (size_t other = 0; other < s->ranks; other++)
            if (other != r)
                sent += simulate(s, r, other), received += simulate(s, other, r);
        assert_int_equal(mha_split_share(s, r).bytes_sent, sent);
        assert_int_equal(mha_split_share(s, r).bytes_received, received);
    }
}

static void bytes_are_those_of_the_messages(void **state)
{
    (void)state;
    assert_true(each_split(check_bytes) > 500);
}

static void volumes_are_those_of_the_literature(void **state)
{
    (void)state;
    const size_t N = 64, d = 16, h = 8, h_kv = 2;
    for (size_t P = 1; P <= 8; P *= 2) {
        mha_split s = {.ranks = P, .B = 1, .T_q = N, .T_k = N,
                       .config = {.d_model = h * d, .n_heads = h, .kv_heads = h}};
        s.scheme = MHA_SPLIT_TENSOR; /* an allreduce by a ring: 2 (P-1)/P of the output */
        assert_int_equal(mha_split_check(&s, NULL), MHA_OK);
        assert_int_equal(mha_split_share(&s, P - 1).bytes_sent, 4 * 2 * (P - 1) * N * h * d / P);
        s.scheme = MHA_SPLIT_ULYSSES; /* 4 (P-1)/P^2 N h d */
        assert_int_equal(mha_split_share(&s, 0).bytes_sent, 4 * 4 * (P - 1) * N * h * d / (P * P));
        s.scheme = MHA_SPLIT_ZIGZAG, s.config.kv_heads = h_kv; /* (P-1)/P N h_kv (d_k + d_v) */
        assert_int_equal(mha_split_share(&s, 0).bytes_sent, 4 * (P - 1) * N * h_kv * 2 * d / P);
        for (size_t r = 0; r < P; r++) /* zigzag shares the pairs of a causal mask evenly */
            assert_int_equal(mha_split_share(&s, r).causal_pairs, h * N * (N + 1) / 2 / P);
    }
}

/* ---------------------------------------------------------------- weights */

/* Every element of a whole weight is in as many slices as there are copies, and a slice is what the layer stores. */
static void check_slices(const mha_split *s)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        static unsigned char whole[4096];
        size_t shape[2], own[2];
        const int axes = mha_config_weight_shape(&s->config, (mha_weight)w, shape, NULL);
        mha_view view = mha_view_of(whole, MHA_U8, axes, shape);
        const size_t n = mha_view_elements(&view);
        assert_true(n <= sizeof whole);
        memset(whole, 0, sizeof whole);
        for (size_t r = 0; r < s->ranks; r++) {
            const mha_share share = mha_split_share(s, r);
            const mha_view slice = mha_split_slice(s, r, (mha_weight)w, &view);
            const int stored = mha_config_weight_shape(&share.config, (mha_weight)w, own, NULL);
            assert_int_equal(stored, slice.data ? axes : 0);
            for (int k = 0; k < stored; k++)
                assert_int_equal(slice.shape[k], own[k]);
            for (size_t i = 0; i < (slice.data ? mha_view_elements(&slice) : 0); i++) {
                const size_t columns = axes == 2 ? slice.shape[1] : 1;
                const size_t at[2] = {i / columns, i % columns};
                ((unsigned char *)slice.data)[(ptrdiff_t)at[0] * slice.stride[0] +
                                              (axes == 2 ? (ptrdiff_t)at[1] * slice.stride[1] : 0)]++;
            }
        }
        for (size_t i = 0; axes > 0 && i < n; i++)
            assert_int_equal(whole[i], mha_split_copies(s, (mha_weight)w));
        view.shape[0]++;
        assert_null(mha_split_slice(s, 0, (mha_weight)w, &view).data);
    }
}

static void slices_are_what_is_stored(void **state)
{
    (void)state;
    assert_true(each_split(check_slices) > 500);
}

static void check_weights(const mha_split *s)
{
    size_t stored[MHA_WEIGHT_COUNT] = {0}, one_machine = 0, unique = 0, shape[2];
    for (size_t r = 0; r < s->ranks; r++) {
        const mha_share share = mha_split_share(s, r);
        mha_layer *layer;
        assert_int_equal(mha_layer_create(&share.config, NULL, NULL, &layer, NULL), MHA_OK);
        for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
            if (mha_layer_weight(layer, (mha_weight)w))
                stored[w] += mha_tensor_info_of(mha_layer_weight(layer, (mha_weight)w)).elements;
        mha_layer_destroy(layer);
    }
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const int rank = mha_config_weight_shape(&s->config, (mha_weight)w, shape, NULL);
        const size_t whole = rank == 0 ? 0 : shape[0] * (rank == 2 ? shape[1] : 1);
        assert_int_equal(stored[w], whole * mha_split_copies(s, (mha_weight)w));
        one_machine += whole, unique += stored[w] / mha_split_copies(s, (mha_weight)w);
    }
    assert_int_equal(unique, one_machine);
}

static void stored_weights_are_the_layer_times_its_copies(void **state)
{
    (void)state;
    assert_true(each_split(check_weights) > 500);
}

/* ---------------------------------------------------------------- refusals */

static void refusals_say_what_would_do(void **state)
{
    (void)state;
    const mha_config grouped = {.d_model = 24, .n_heads = 12, .kv_heads = 4}, row = shapes[3],
                     wrong = {.d_model = 30, .n_heads = 7};
    const struct {
        mha_split split;
        mha_status status;
        const char *says;
    } refused[] = {
        {{MHA_SPLIT_TENSOR, 6, grouped, 1, 4, 4, MHA_F32, 0, 0, false},
         MHA_INVALID, "(1, 2, 4, 12)"},
        {{MHA_SPLIT_ULYSSES, 3, grouped, 1, 4, 4, MHA_F32, 0, 0, false},
         MHA_INVALID, "12 query heads and 4 key/value heads"},
        {{MHA_SPLIT_TENSOR, 7, row, 1, 4, 4, MHA_F32, 0, 0, false},
         MHA_UNSUPPORTED, "use ulysses, ring or zigzag"},
        {{MHA_SPLIT_RING, 0, grouped, 1, 4, 4, MHA_F32, 0, 0, false}, MHA_INVALID, "found 0"},
        {{MHA_SPLIT_RING, 2000000, grouped, 1, 4, 4, MHA_F32, 0, 0, false}, MHA_INVALID, "found 2000000"},
        {{(mha_split_scheme)9, 2, grouped, 1, 4, 4, MHA_F32, 0, 0, false}, MHA_INVALID, "found number 9"},
        {{MHA_SPLIT_RING, 2, grouped, 1, 4, 4, MHA_F16, 0, 0, false}, MHA_INVALID, "found F16"},
        {{MHA_SPLIT_RING, 2, wrong, 1, 4, 4, MHA_F32, 0, 0, false}, MHA_INVALID, "divisor of d_model"},
        {{MHA_SPLIT_RING, 2, grouped, 1, SIZE_MAX / 2, 4, MHA_F32, 0, 0, false}, MHA_INVALID, "bytes fit a size_t"},
        {{MHA_SPLIT_RING, 2, grouped, 1, 1ul << 33, 1ul << 33, MHA_F32, 0, 0, false}, MHA_INVALID,
         "bytes fit a size_t"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        mha_split split = refused[i].split;
        mha_error error;
        assert_int_equal(mha_split_check(&split, &error), refused[i].status);
        if (!strstr(error.message, refused[i].says))
            fail_msg("expected \"%s\" in \"%s\"", refused[i].says, error.message);
    }
    const mha_config many = {.d_model = 65536, .n_heads = 65536, .kv_heads = 3};
    mha_split most = {MHA_SPLIT_TENSOR, 4096, many, 1, 1, 1, MHA_F32, 0, 0, false};
    mha_error error;
    assert_int_equal(mha_split_check(&most, &error), MHA_INVALID);
    most.config.kv_heads = 65536, most.ranks = 3; /* more numbers than a message holds */
    assert_int_equal(mha_split_check(&most, &error), MHA_INVALID);
    assert_non_null(strstr(error.message, "1, 2, 4, 8, 16"));
}

/* Caches that fill up rank after rank: who keeps which new rows, and meets which keys. */
static void caches_fill_up_rank_after_rank(void **state)
{
    (void)state;
    const size_t P = 3, C = 5, T_q = 2;
    for (size_t cached = 0; cached <= P * C; cached++)
        for (size_t T_k = 0; cached + T_k <= P * C + 1; T_k++) {
            mha_split s = {MHA_SPLIT_CACHE, P, shapes[0], 2, T_q, T_k, MHA_F32, C, cached, false};
            mha_error error;
            if (cached + T_k > P * C) {
                assert_refused(mha_split_check(&s, &error), MHA_INVALID, error, "expected room", "3 caches of 5 rows");
                continue;
            }
            assert_int_equal(mha_split_check(&s, &error), MHA_OK);
            size_t next = 0, pairs = 0, elements = 0, causal = 0, all_causal = 0;
            for (size_t r = 0; r < P; r++) {
                const mha_share share = mha_split_share(&s, r);
                if (share.keys[0].count > 0)
                    assert_int_equal(share.keys[0].from, next);
                next += share.keys[0].count;
                for (size_t i = 0; i < share.keys[0].count; i++)
                    assert_int_equal((cached + share.keys[0].from + i) / C, r);
                pairs += share.pairs, causal += share.causal_pairs, elements += share.cache_elements;
            }
            for (size_t i = 0; i < T_k; i++)
                all_causal += cached + i + 1;
            assert_int_equal(next, T_k);
            assert_int_equal(pairs, 2 * 12 * T_q * (cached + T_k));
            assert_int_equal(elements, 2 * (cached + T_k) * 4 * (2 + 2));
            if (T_q == T_k)
                assert_int_equal(causal, 2 * 12 * all_causal);
        }
}

static void schemes_have_names(void **state)
{
    (void)state;
    mha_split_scheme found = MHA_SPLIT_COUNT;
    for (int i = 0; i < MHA_SPLIT_COUNT; i++) {
        assert_true(mha_split_scheme_find(mha_split_scheme_name((mha_split_scheme)i), &found));
        assert_int_equal(found, i);
    }
    assert_false(mha_split_scheme_find("pipeline", &found));
    assert_string_equal(mha_split_scheme_name(MHA_SPLIT_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_head_and_row_is_somewhere),
        cmocka_unit_test(bytes_are_those_of_the_messages),
        cmocka_unit_test(volumes_are_those_of_the_literature),
        cmocka_unit_test(slices_are_what_is_stored),
        cmocka_unit_test(stored_weights_are_the_layer_times_its_copies),
        cmocka_unit_test(refusals_say_what_would_do),
        cmocka_unit_test(caches_fill_up_rank_after_rank),
        cmocka_unit_test(schemes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
