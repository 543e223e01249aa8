/* Gradients of a part of the keys, by the O and lse of all keys: those of the whole, and their bounds. */
#include <math.h>
#include <string.h>

#include "mha/gradients.h"
#include "mha/compare.h"
#include "support/unit.h"

enum { TOKENS = 6, KEYS = 7, FIRST = 3, WIDTH = 4, HEADS = 2 };

/* A causal call of given heads, all of its keys or those from FIRST on, and its gradients. */
typedef struct part_of {
    double q[TOKENS * HEADS * WIDTH], k[KEYS * WIDTH], v[KEYS * WIDTH], d_o[TOKENS * HEADS * WIDTH];
    double o[TOKENS * HEADS * 2 * WIDTH], both[KEYS * 2 * WIDTH], lse[HEADS * TOKENS];
    double dq[TOKENS * HEADS * WIDTH], dk[KEYS * WIDTH], dv[KEYS * WIDTH];
    mha_call call;
    mha_gradients gradients;
} part_of;

static mha_view of_heads(double *data, size_t T, size_t h, size_t d)
{
    return mha_view_of(data, MHA_F64, 4, (const size_t[]){1, T, h, d});
}

static void begin_part(part_of *p, size_t first)
{
    const size_t n = KEYS - first;
    p->call = (mha_call){.query = of_heads(p->q, TOKENS, HEADS, WIDTH),
                         .key = of_heads(p->k + first * WIDTH, n, 1, WIDTH),
                         .value = of_heads(p->v + first * WIDTH, n, 1, WIDTH),
                         .path = MHA_PATH_EXACT};
    p->call.semantics.visible.causal = true;
    p->call.semantics.place.has_offset = true, p->call.semantics.place.offset = 1;
    p->call.semantics.place.has_key_offset = first > 0, p->call.semantics.place.key_offset = (int64_t)first;
    p->gradients.d_output = of_heads(p->d_o, TOKENS, HEADS, WIDTH);
    p->gradients.of[MHA_D_QUERY] = of_heads(p->dq, TOKENS, HEADS, WIDTH);
    p->gradients.of[MHA_D_KEY] = of_heads(p->dk + first * WIDTH, n, 1, WIDTH);
    p->gradients.of[MHA_D_VALUE] = of_heads(p->dv + first * WIDTH, n, 1, WIDTH);
}

static void fill_part(part_of *p)
{
    memset(p, 0, sizeof *p);
    for (size_t e = 0; e < TOKENS * HEADS * WIDTH; e++)
        p->q[e] = sin(1.7 * (double)e), p->d_o[e] = cos(2.3 * (double)e);
    for (size_t e = 0; e < KEYS * WIDTH; e++) {
        p->k[e] = cos(1.1 * (double)e), p->v[e] = sin(3.1 * (double)e);
        p->both[e / WIDTH * 2 * WIDTH + e % WIDTH] = p->v[e];
        p->both[e / WIDTH * 2 * WIDTH + WIDTH + e % WIDTH] = fabs(p->v[e]);
    }
    begin_part(p, 0);
}

/* Tells the gradients of a part what the forward makes of all keys. */
static void tell_whole(part_of *p, double lse_error)
{
    mha_error error;
    mha_call call = p->call;
    mha_keep keep = {.stage = MHA_STAGE_LSE,
                     .view = mha_view_of(p->lse, MHA_F64, 3, (const size_t[]){1, HEADS, TOKENS})};
    const mha_view both = of_heads(p->o, TOKENS, HEADS, 2 * WIDTH);
    call.value = of_heads(p->both, KEYS, 1, 2 * WIDTH), call.output = both;
    call.keep = &keep, call.keep_count = 1;
    assert_int_equal(mha_run(NULL, &call, &error), MHA_OK);
    p->gradients.whole = (mha_whole_softmax){.lse = keep.view,
                                             .output = mha_view_slice(&both, 3, 0, WIDTH),
                                             .sizes = mha_view_slice(&both, 3, WIDTH, WIDTH),
                                             .lse_error = lse_error,
                                             .largest = 1,
                                             .keys = KEYS};
}

/* The gradients of a part of the keys are those of the whole, and so are their bounds, or a little more. */
static void parts_of_the_keys_are_those_of_the_whole(void **state)
{
    static const mha_dtype types[] = {MHA_F32, MHA_BF16};
    part_of whole, part;
    mha_error error;
    double bounds[MHA_STAGE_COUNT];
    (void)state;
    fill_part(&whole), fill_part(&part);
    assert_int_equal(mha_error_bound(NULL, &whole.call, 0x1p-24, bounds, MHA_STAGE_COUNT, &error), MHA_OK);
    tell_whole(&part, bounds[MHA_STAGE_LSE]);
    begin_part(&part, FIRST);
    for (size_t t = 0; t < 2; t++) {
        whole.gradients.precision = part.gradients.precision = (mha_backward_precision){.output = types[t]};
        assert_int_equal(mha_backward(NULL, &whole.call, &whole.gradients, &error), MHA_OK);
        assert_int_equal(mha_backward(NULL, &part.call, &part.gradients, &error), MHA_OK);
        for (size_t e = FIRST * WIDTH; e < KEYS * WIDTH; e++)
            assert_true(fabs(whole.dk[e] - part.dk[e]) < 1e-14 && fabs(whole.dv[e] - part.dv[e]) < 1e-14);
        whole.gradients.precision.weights = part.gradients.precision.weights = types[t];
        assert_int_equal(mha_gradient_bound(NULL, &whole.call, &whole.gradients, 0x1p-24, &error), MHA_OK);
        assert_int_equal(mha_gradient_bound(NULL, &part.call, &part.gradients, 0x1p-24, &error), MHA_OK);
        for (size_t e = FIRST * WIDTH; e < KEYS * WIDTH; e++)
            assert_true(part.dk[e] >= whole.dk[e] * (1 - 1e-12) && part.dk[e] < 5 * whole.dk[e] &&
                        part.dv[e] >= whole.dv[e] * (1 - 1e-12) && part.dv[e] < 2 * whole.dv[e]);
    }
}

static void expect_refused(const part_of *p, mha_status status, const char *field)
{
    mha_error error;
    assert_int_equal(mha_backward(NULL, &p->call, &p->gradients, &error), status);
    assert_string_equal(error.name, field);
}

static void wholes_that_do_not_fit_are_refused(void **state)
{
    part_of p, kept;
    (void)state;
    fill_part(&p);
    tell_whole(&p, 0);
    begin_part(&p, FIRST);
    kept = p;
    p.gradients.whole.lse.shape[2]--;
    expect_refused(&p, MHA_INVALID, "whole lse");
    p = kept, p.gradients.whole.output = (mha_view){0};
    expect_refused(&p, MHA_INVALID, "whole output");
    p = kept, p.gradients.whole.sizes.rank = 3;
    expect_refused(&p, MHA_INVALID, "whole sizes");
    p = kept, p.call.semantics.softmax.normaliser = MHA_SIGMOID;
    expect_refused(&p, MHA_UNSUPPORTED, "whole lse");
    p = kept, p.gradients.whole.sizes = (mha_view){0};
    mha_error error;
    assert_int_equal(mha_gradient_bound(NULL, &p.call, &p.gradients, 0x1p-24, &error), MHA_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_of_the_keys_are_those_of_the_whole),
                                       cmocka_unit_test(wholes_that_do_not_fit_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
