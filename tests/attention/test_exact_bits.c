/* The bits of the exact path: its sums are those of plain loops, term by term in the order of their definition, on
 * every instruction set, whatever is worked on together. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/core/exact/rounding.h"
#include "base/base.h"
#include "mha/attention.h"
#include "mha/random.h"
#include "support/isa.h"
#include "support/layer.h"
#include "support/unit.h"

/* More queries than are worked on together, more keys, widths that no vector divides. */
enum { T_q = 37, S = 53, H = 4, H_kv = 2, d_k = 19, d_v = 21 };

static double numbers[3][S * H * 32], out[T_q * H * d_v], scores[H * T_q * S], masked[H * T_q * S];
static unsigned char mask[H * T_q * S];

/* A double of all its bits, whose products are rounded. */
static double random_double(uint64_t stream, size_t i)
{
    return mha__random_unit(5, stream, 2 * i) - 0.5 + 0x1p-27 * mha__random_unit(5, stream, 2 * i + 1);
}

/* Numbers of many sizes, so that another order shows; scores that move the reference of a softmax again and again. */
static void draw(void)
{
    for (size_t i = 0; i < 3; i++)
        for (size_t e = 0; e < sizeof numbers[i] / sizeof **numbers; e++)
            numbers[i][e] = ldexp(random_double(i, e), i == 2 ? (int)(e % 11) : 3);
    for (size_t e = 0; e < sizeof mask; e++)
        mask[e] = mha__random_unit(5, 4, e) < 0.8f;
}

static double summed(const mha_precision *p, double x)
{
    return p->sums == MHA_F32 ? x : mha__round_to(p->sums, x);
}

static void expect(const double *found, double expected, const char *what, size_t h, size_t i, size_t at)
{
    if (memcmp(found, &expected, sizeof expected) != 0)
        fail_msg("%s of query %zu, head %zu, at %zu: %a, expected %a", what, i, h, at, *found, expected);
}

/* The softmax of a row of masked scores, and its sum of values, one term after the other. */
static void expect_row(const mha_precision *p, bool propagates, size_t h, size_t i)
{
    const double *s = masked + (h * T_q + i) * S;
    const mha__rounding stored = mha__rounding_of(p->probabilities, 1);
    double a[d_v] = {0}, l = 0, r = -INFINITY;
    for (size_t j = 0; mha__precision_rounds(p) && j < S; j++)
        r = fmax(r, s[j]);
    for (size_t j = 0; j < S; j++) {
        if (s[j] == -INFINITY && !propagates)
            continue;
        if (s[j] != -INFINITY && s[j] > r + 8) {
            const double factor = exp(r - s[j]);
            l = r == -INFINITY ? 0 : l * factor;
            for (size_t c = 0; c < d_v; c++)
                a[c] *= factor;
            r = s[j];
        }
        const double e = s[j] == -INFINITY ? 0 : exp(s[j] - r), term = mha__rounded(&stored, e);
        l = summed(p, l + e);
        for (size_t c = 0; c < d_v; c++)
            a[c] = summed(p, a[c] + term * numbers[2][(j * H_kv + h / (H / H_kv)) * d_v + c]);
    }
    for (size_t c = 0; c < d_v; c++) {
        const double expected = l == 0 ? 0 : a[c] / l;
        expect(&out[(i * H + h) * d_v + c], expected, "heads", h, i, c);
    }
}

static void check(bool causal, bool masks, bool propagates, mha_dtype sums, int threads)
{
    mha_keep keep[2] = {{.stage = MHA_STAGE_MASKED, .view = mha_view_of(masked, MHA_F64, 4, (size_t[]){1, H, T_q, S})},
                        {.stage = MHA_STAGE_SCORES, .view = mha_view_of(scores, MHA_F64, 4, (size_t[]){1, H, T_q, S})}};
    mha_call call = {.path = MHA_PATH_EXACT, .threads = threads, .keep = keep, .keep_count = threads == 1 ? 2 : 1,
                     .query = mha_view_heads(numbers[0], MHA_F64, MHA_BTE, 1, T_q, H, d_k),
                     .key = mha_view_heads(numbers[1], MHA_F64, MHA_BTE, 1, S, H_kv, d_k),
                     .value = mha_view_heads(numbers[2], MHA_F64, MHA_BTE, 1, S, H_kv, d_v),
                     .output = mha_view_heads(out, MHA_F64, MHA_BTE, 1, T_q, H, d_v)};
    mha_semantics *s = &call.semantics;
    s->visible.causal = causal, s->place.has_offset = causal;
    s->softmax.empty_rows = MHA_EMPTY_ZERO;
    s->softmax.hidden_values = propagates ? MHA_HIDDEN_PROPAGATE : s->softmax.hidden_values;
    if (masks)
        s->visible.mask = (mha_mask){MHA_MASK_KEEPS, mha_view_of(mask, MHA_BOOL, 4, (size_t[]){1, H, T_q, S})};
    call.precision.sums = sums, call.precision.probabilities = sums;
    mha_error error;
    assert_ok(mha_run(NULL, &call, &error), error);
    for (size_t h = 0; h < H; h++)
        for (size_t i = 0; i < T_q; i++) {
            for (size_t j = 0; j < S; j++) {
                double sum = 0;
                for (size_t c = 0; c < d_k; c++) {
                    const volatile double product =
                        numbers[0][(i * H + h) * d_k + c] * numbers[1][(j * H_kv + h / (H / H_kv)) * d_k + c];
                    sum = summed(&call.precision, sum + product);
                }
                const bool seen = (!causal || j <= i) && (!masks || mask[(h * T_q + i) * S + j]);
                const double score = sum * (1 / sqrt((double)d_k));
                if (call.keep_count == 2)
                    expect(&scores[(h * T_q + i) * S + j], score, "scores", h, i, j);
                expect(&masked[(h * T_q + i) * S + j], seen ? score + 0.0 : -INFINITY, "masked scores", h, i, j);
            }
            expect_row(&call.precision, propagates, h, i);
        }
}

static void attention_adds_term_by_term(void **state)
{
    draw();
    FOR_EACH_ISA
    for (unsigned bits = 0; bits < 32; bits++)
        check(bits & 1, bits & 2, bits & 4, bits & 8 ? MHA_BF16 : MHA_F32, bits & 16 ? 3 : 1);
}

/* More rows, columns and terms than a worker computes at a time. */
static void projections_add_term_by_term(void **state)
{
    enum { T = 70, d = 72 };
    static double x[T * d], q[T * d];
    static const mha_config config = {.d_model = d, .n_heads = 3, .bias_q = true};
    mha_error error;
    mha_layer *layer = made_layer(config, 3);
    for (size_t e = 0; e < T * d; e++)
        x[e] = ldexp(random_double(6, e), (int)(e % 13));
    const mha_view W = mha_tensor_view(mha_layer_weight(layer, MHA_W_Q)),
                   b = mha_tensor_view(mha_layer_weight(layer, MHA_B_Q));
    FOR_EACH_ISA {
        mha_keep keep = {.stage = MHA_STAGE_Q, .view = mha_view_of(q, MHA_F64, 3, (size_t[]){1, T, d})};
        const mha_call call = {.path = MHA_PATH_EXACT, .threads = 2, .keep = &keep, .keep_count = 1,
                               .query = mha_view_of(x, MHA_F64, 3, (size_t[]){1, T, d})};
        assert_ok(mha_run(layer, &call, &error), error);
        for (size_t i = 0; i < T; i++)
            for (size_t c = 0; c < d; c++) {
                double sum = 0;
                for (size_t k = 0; k < d; k++) {
                    const volatile double product = x[i * d + k] * mha_view_get(&W, (size_t[]){k, c});
                    sum = sum + product;
                }
                expect(&q[i * d + c], sum + mha_view_get(&b, &c), "q", 0, i, c);
            }
    }
    mha_layer_destroy(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(attention_adds_term_by_term, isa_teardown),
                                       cmocka_unit_test_teardown(projections_add_term_by_term, isa_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
