/* A backward of calls that it cannot take is refused, in words, with nothing written; its results are of any type. */
#include <math.h>
#include <string.h>

#include "mha/backward.h"
#include "support/unit.h"

enum { B = 2, T = 3, H = 4, H_KV = 2, D = 4 };

/* A call, its gradients in F64, and what fills them while nothing is written. */
typedef struct fixture {
    float q[B * T * H * D], k[B * T * H_KV * D], v[B * T * H_KV * D], d[B * T * H * D];
    double dq[B * T * H * D], dk[B * T * H_KV * D], dv[B * T * H_KV * D];
    mha_call call;
    mha_gradients gradients;
} fixture;

static mha_view wide(double *data, size_t h)
{
    return mha_view_of(data, MHA_F64, 4, (const size_t[]){B, T, h, D});
}

static void begin(fixture *f)
{
    memset(f, 0, sizeof *f);
    for (size_t e = 0; e < B * T * H * D; e++) {
        f->q[e] = (float)sin(1.0 + (double)e), f->d[e] = (float)cos(3.0 * (double)e);
        f->dq[e] = 7;
    }
    for (size_t e = 0; e < B * T * H_KV * D; e++) {
        f->k[e] = (float)sin(2.0 * (double)e), f->v[e] = (float)cos(5.0 + (double)e);
        f->dk[e] = f->dv[e] = 7;
    }
    f->call = (mha_call){.query = mha_heads(f->q, B, T, H, D), .key = mha_heads(f->k, B, T, H_KV, D),
                         .value = mha_heads(f->v, B, T, H_KV, D)};
    f->gradients.d_output = mha_heads(f->d, B, T, H, D);
    f->gradients.of[MHA_D_QUERY] = wide(f->dq, H);
    f->gradients.of[MHA_D_KEY] = wide(f->dk, H_KV);
    f->gradients.of[MHA_D_VALUE] = wide(f->dv, H_KV);
}

static void expect(const fixture *f, mha_status status, const char *name, const char *text)
{
    mha_error error = {0};
    assert_refused(mha_backward(NULL, &f->call, &f->gradients, &error), status, error, name, text);
    for (size_t e = 0; e < B * T * H * D; e++)
        assert_true(f->dq[e] == 7);
}

static void what_it_cannot_do_is_refused_by_name(void **state)
{
    (void)state;
    fixture f;
    double softmaxes[B * H * T * (D + 2)];
    begin(&f);
    f.call.partial = mha_view_of(softmaxes, MHA_F64, 4, (const size_t[]){B, H, T, D + 2});
    expect(&f, MHA_UNSUPPORTED, "partial", "leave this out");
    begin(&f);
    f.call.precision = mha_precision_of(MHA_BF16);
    expect(&f, MHA_UNSUPPORTED, "precision", "in float64");
    unsigned char keep[T] = {1, 0, 1};
    begin(&f);
    f.call.semantics.softmax.dropout_keep = mha_view_of(keep, MHA_U8, 1, (const size_t[]){T});
    f.gradients.whole.lse = mha_view_of(softmaxes, MHA_F64, 3, (const size_t[]){B, H, T});
    expect(&f, MHA_UNSUPPORTED, "dropout_keep", "leave whole.lse out");
    begin(&f);
    double d_lse[B * H * T] = {0};
    f.gradients.d_lse = mha_view_of(d_lse, MHA_F64, 3, (const size_t[]){B, H, T});
    f.call.semantics.softmax.normaliser = MHA_SIGMOID;
    expect(&f, MHA_UNSUPPORTED, "d_lse", "sigmoid");
}

static void shapes_types_and_words_are_checked(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    f.gradients.d_output.shape[3] = D - 1;
    expect(&f, MHA_INVALID, "d_output", "expected shape (2, 3, 4, 4), found (2, 3, 4, 3)");
    begin(&f);
    f.gradients.d_output = (mha_view){0};
    expect(&f, MHA_INVALID, "d_output", "shape");
    begin(&f);
    f.gradients.d_output.data = NULL;
    expect(&f, MHA_INVALID, "d_output", "expected data");
    begin(&f);
    f.gradients.of[MHA_D_KEY].dtype = MHA_BF16;
    expect(&f, MHA_INVALID, "d_key", "F32 or F64");
    begin(&f);
    f.gradients.d_output.dtype = MHA_I32;
    expect(&f, MHA_INVALID, "d_output", "found I32");
    begin(&f);
    f.gradients.of[MHA_D_KEY] = wide(f.dk, H);
    expect(&f, MHA_INVALID, "d_key", "expected shape (2, 3, 2, 4)");
    begin(&f);
    f.gradients.of[MHA_D_MASK] = wide(f.dk, H_KV);
    expect(&f, MHA_INVALID, "d_mask", "no such gradient");
    begin(&f);
    f.gradients.of[MHA_D_WEIGHTS + MHA_SINKS] = wide(f.dk, H_KV);
    expect(&f, MHA_INVALID, "d_sinks", "no such gradient");
    begin(&f);
    f.gradients.reserved[3] = 1;
    expect(&f, MHA_UNSUPPORTED, "gradients", "reserve");
    begin(&f);
    f.gradients.precision.reserved[6] = MHA_F16;
    expect(&f, MHA_UNSUPPORTED, "precision", "reserve");
    begin(&f);
    f.gradients.whole.reserved[3] = 1;
    expect(&f, MHA_UNSUPPORTED, "whole", "reserve");
    begin(&f);
    f.gradients.of[MHA_GRADIENT_ROOM - 1] = wide(f.dk, H_KV);
    expect(&f, MHA_UNSUPPORTED, "gradients", "later version");
    begin(&f);
    f.call.query.shape[2] = 3;
    expect(&f, MHA_INVALID, "key", "expected a divisor");
}

/* Rows of dO side by side, and F32 results of other strides, have the numbers of the plain call. */
static void layouts_and_types_change_nothing(void **state)
{
    (void)state;
    fixture f;
    mha_error error;
    float turned[B * H * T * D], dk[B * T * H_KV * D * 2];
    begin(&f);
    assert_ok(mha_backward(NULL, &f.call, &f.gradients, &error), error);
    mha_gradients other = {.d_output = mha_rows(f.d, B, T, H * D)};
    other.of[MHA_D_QUERY] = mha_view_heads(turned, MHA_F32, MHA_BHTD, B, T, H, D);
    other.of[MHA_D_KEY] = mha_view_of(dk, MHA_F32, 4, (const size_t[]){B, T, H_KV, D});
    for (int k = 0; k < 4; k++)
        other.of[MHA_D_KEY].stride[k] *= 2;
    assert_ok(mha_backward(NULL, &f.call, &other, &error), error);
    for (size_t b = 0; b < B; b++)
        for (size_t i = 0; i < T; i++)
            for (size_t head = 0; head < H; head++)
                for (size_t c = 0; c < D; c++)
                    assert_true(turned[((b * H + head) * T + i) * D + c] ==
                                (float)f.dq[((b * T + i) * H + head) * D + c]);
    for (size_t e = 0; e < B * T * H_KV * D; e++)
        assert_true(dk[2 * e] == (float)f.dk[e]);
}

static void gradients_have_the_names_of_what_they_are_of(void **state)
{
    (void)state;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        for (int other = 0; other < g; other++)
            assert_string_not_equal(mha_gradient_name((mha_gradient)g), mha_gradient_name((mha_gradient)other));
    assert_string_equal(mha_gradient_name(MHA_GRADIENT_COUNT), "?");
    assert_string_equal(mha_gradient_name((mha_gradient)(MHA_D_WEIGHTS + MHA_SINKS)), "sinks");
}

/* One query, two keys of one feature, by hand: P = (1/2, 1/2), D = 1/2 (1 + 3) = 2, dS = (-1/2, 1/2). */
static void a_call_by_hand(void **state)
{
    (void)state;
    const float q[] = {0}, k[] = {1, 5}, v[] = {1, 3}, d[] = {1};
    double dq[1], dk[2], dv[2];
    mha_error error;
    const mha_call call = {.query = mha_heads(q, 1, 1, 1, 1), .key = mha_heads(k, 1, 2, 1, 1),
                           .value = mha_heads(v, 1, 2, 1, 1)};
    mha_gradients g = {.d_output = mha_heads(d, 1, 1, 1, 1)};
    g.of[MHA_D_QUERY] = mha_view_of(dq, MHA_F64, 4, (const size_t[]){1, 1, 1, 1});
    g.of[MHA_D_KEY] = mha_view_of(dk, MHA_F64, 4, (const size_t[]){1, 2, 1, 1});
    g.of[MHA_D_VALUE] = mha_view_of(dv, MHA_F64, 4, (const size_t[]){1, 2, 1, 1});
    assert_ok(mha_backward(NULL, &call, &g, &error), error);
    assert_true(dq[0] == 2 && dk[0] == 0 && dk[1] == 0 && dv[0] == 0.5 && dv[1] == 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_cannot_do_is_refused_by_name), cmocka_unit_test(shapes_types_and_words_are_checked),
        cmocka_unit_test(layouts_and_types_change_nothing),
        cmocka_unit_test(gradients_have_the_names_of_what_they_are_of), cmocka_unit_test(a_call_by_hand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
