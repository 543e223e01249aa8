/* 10,000 random calls of the fast path have the bits that version 0.2 gave, on each instruction set of the machine.
 * bits_of_0_2.txt holds the digests, of 500 calls each, that this file prints when it is built with MHA_0_2 against the
 * library of commit 2496d54: its headers have the same settings in one struct without parts. BITS_EACH=1 runs all of
 * them, otherwise every fifth five hundred. */
#ifdef MHA_0_2
#include <stdio.h>
#define PART(part, field) field
#define WINDOW_TO_THE_LEFT(s) (s)->window = true, (s)->window_right = -1
#else
#include "support/trial.h"
#include "support/unit.h"
#define PART(part, field) part.field
#define WINDOW_TO_THE_LEFT(s) (s)->visible.has_window_left = true
#endif

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"

enum { CALLS = 10000, TOGETHER = 500, MOST = 1 << 15 };

static float q[MOST], k[MOST], v[MOST], out[MOST], mask[MOST], table[2][MOST];

static uint64_t word(uint64_t seed, uint64_t which)
{
    return mha__random_bits(97, which, seed);
}

/* A number from 0 to n - 1. */
static size_t draw(uint64_t seed, uint64_t which, size_t n)
{
    return (size_t)(word(seed, which) >> 33) % n;
}

static void fill(float *to, size_t n, uint64_t seed, uint64_t stream, float amplitude)
{
    for (size_t i = 0; i < n; i++)
        to[i] = amplitude * ((float)(mha__random_bits(seed, stream, i) >> 40) * 0x1p-23f - 1);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* A random call; *layer: of a packed layer, NULL for every second one. */
static void build(uint64_t seed, mha_call *c, mha_layer **layer, mha_params **params, int64_t lengths[4],
                  double slopes[16])
{
    static const size_t widths[] = {1, 3, 8, 16, 24, 40, 64, 80, 128};
    static const float amplitudes[] = {1, 1, 1, 4, 0x1p-60f, 20};
    const size_t B = 1 + draw(seed, 1, 3), h_kv = 1 + draw(seed, 2, 3), h = h_kv * (1 + draw(seed, 3, 3));
    const size_t d = widths[draw(seed, 4, 9)] & (seed % 3 ? SIZE_MAX : ~(size_t)1), width = larger(d, 2);
    const size_t fits = larger(MOST / (B * h * width), 1);
    const size_t T = 1 + draw(seed, 5, fits < 70 ? fits : 70), S = seed % 5 ? 1 + draw(seed, 6, fits < 150 ? fits : 150)
                                                                          : T;
    const float amplitude = amplitudes[draw(seed, 7, 6)];
    *c = (mha_call){.path = MHA_PATH_FAST, .threads = 1 + (int)(seed % 2)};
    *layer = NULL, *params = NULL;
    const size_t n = B * larger(T, S) * h * width;
    fill(q, n, seed, 1, amplitude), fill(k, n, seed, 2, amplitude), fill(v, n, seed, 3, 2);
    if (seed % 2) {
        const mha_config config = {.d_model = h * width < 96 ? h * width : 96, .n_heads = h, .kv_heads = h_kv,
                                   .d_k = width, .d_v = width, .bias_q = seed % 4 == 1, .bias_o = seed % 8 == 1};
        if (mha_params_create(NULL, params, NULL) || mha_layer_create(&config, *params, NULL, layer, NULL))
            abort();
        mha_layer_init(*layer, seed);
        if (mha_layer_pack(*layer, NULL))
            abort();
        c->query = mha_view_rows(q, MHA_F32, MHA_BTE, B, T, config.d_model);
        c->key = c->value = mha_view_rows(k, MHA_F32, MHA_BTE, B, S, config.d_model);
        c->output = mha_view_rows(out, MHA_F32, MHA_BTE, B, T, config.d_model);
    } else {
        const mha_layout layout = seed % 4 ? MHA_BHTD : MHA_BTHD;
        c->query = mha_view_heads(q, MHA_F32, layout, B, T, h, width);
        c->key = mha_view_heads(k, MHA_F32, layout, B, S, h_kv, width);
        c->value = mha_view_heads(v, MHA_F32, layout, B, S, h_kv, width);
        c->output = mha_view_heads(out, MHA_F32, layout, B, T, h, width);
    }
    mha_semantics *s = &c->semantics;
    s->PART(visible, causal) = draw(seed, 8, 2);
    if (draw(seed, 9, 3) == 0) {
        WINDOW_TO_THE_LEFT(s);
        s->PART(visible, window_left) = (int64_t)draw(seed, 10, 40);
    }
    if (draw(seed, 11, 3) == 0) {
        for (size_t b = 0; b < B; b++)
            lengths[b] = (int64_t)draw(seed, 12 + b, S + 1);
        s->PART(visible, kv_lengths) = lengths;
    }
    if (draw(seed, 16, 4) == 0 && T * S <= MOST) {
        fill(mask, T * S, seed, 4, 3);
        for (size_t i = 0; i < T * S; i++)
            mask[i] = mha__random_bits(seed, 5, i) % 4 ? mask[i] : -(float)INFINITY;
        s->PART(visible, mask) = (mha_mask){MHA_MASK_ADDITIVE, mha_view_of(mask, MHA_F32, 2, (size_t[]){T, S})};
    }
    if (draw(seed, 17, 4) == 0) {
        for (size_t i = 0; i < h; i++)
            slopes[i] = 0x1p-6 * (double)(i + 1);
        s->PART(added, alibi_slopes) = slopes;
    }
    if (draw(seed, 18, 4) == 0)
        s->PART(softmax, softcap) = 5 + (double)draw(seed, 19, 30);
    if (draw(seed, 20, 3) == 0)
        s->PART(softmax, scale) = 0.0625 * (1 + (double)draw(seed, 21, 9));
    s->PART(softmax, zero_row) = draw(seed, 22, 6) == 0;
    s->PART(softmax, softmax_plus_one) = draw(seed, 23, 6) == 0;
    const size_t positions = larger(T, S);
    if (draw(seed, 24, 3) == 0 && width % 2 == 0 && positions * width / 2 <= MOST) {
        fill(table[0], positions * width / 2, seed, 6, 1), fill(table[1], positions * width / 2, seed, 7, 1);
        mha_rope *rope = &s->PART(qkv, rope);
        rope->kind = draw(seed, 25, 2) ? MHA_ROPE_HALF_SPLIT : MHA_ROPE_INTERLEAVED;
        rope->cos_table = mha_view_of(table[0], MHA_F32, 2, (size_t[]){positions, width / 2});
        rope->sin_table = mha_view_of(table[1], MHA_F32, 2, (size_t[]){positions, width / 2});
    }
}

/* FNV-1a over the bits of the output and whether the call ran; a NaN is a NaN. */
static uint64_t add(uint64_t digest, uint32_t bits)
{
    for (int i = 0; i < 4; i++)
        digest = (digest ^ (bits >> 8 * i & 255)) * 1099511628211u;
    return digest;
}

static uint64_t digest_of(uint64_t seed, uint64_t digest)
{
    mha_call c;
    mha_layer *layer;
    mha_params *params;
    int64_t lengths[4];
    double slopes[16];
    build(seed, &c, &layer, &params, lengths, slopes);
    memset(out, 0, mha_view_elements(&c.output) * sizeof *out);
    const mha_status status = mha_run(layer, &c, NULL);
    const size_t n = mha_view_elements(&c.output);
    digest = add(digest, (uint32_t)status);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &out[i], sizeof bits);
        digest = add(digest, out[i] == out[i] ? bits : 0x7fc00000);
    }
    mha_layer_destroy(layer);
    mha_params_destroy(params);
    return digest;
}

static uint64_t digest_from(uint64_t first)
{
    uint64_t digest = 14695981039346656037u;
    for (uint64_t seed = first; seed < first + TOGETHER; seed++)
        digest = digest_of(seed, digest);
    return digest;
}

#ifdef MHA_0_2
int main(void)
{
    for (size_t i = 0; mha_isa_at(i); i++)
        for (uint64_t first = 0; first < CALLS && mha_isa_select(mha_isa_at(i), NULL) == MHA_OK; first += TOGETHER)
            printf("%s %llu %016llx\n", mha_isa_at(i), (unsigned long long)first,
                   (unsigned long long)digest_from(first));
    return 0;
}
#else
static void bits_are_those_of_0_2(void **state)
{
    (void)state;
    FILE *file = fopen("tests/attention/bits_of_0_2.txt", "r");
    assert_non_null(file);
    char isa[32];
    unsigned long long first, recorded;
    const size_t each = (size_t)trial_number("BITS_EACH", CALLS / TOGETHER) * TOGETHER;
    size_t compared = 0;
    while (fscanf(file, "%31s %llu %llx", isa, &first, &recorded) == 3) {
        if (first % each != 0 || mha_isa_select(isa, NULL) != MHA_OK) /* one of another machine */
            continue;
        if (digest_from(first) != recorded)
            fail_msg("%s: one of the calls from seed %llu on has other bits than version 0.2", isa, first);
        compared++;
    }
    fclose(file);
    assert_true(compared >= CALLS / each && compared % (CALLS / each) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits_are_those_of_0_2)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
