/* The error bound of gradients: no backward that rounds exceeds it, and it is of the size of what rounding does.
 * GRADIENT_TRIALS=n draws n calls, GRADIENT_SEED=s begins at seed s. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/compare.h"
#include "mha/gradients.h"
#include "support/gradient.h"
#include "support/narrow_backward.h"
#include "support/unit.h"
#include "support/words.h"

/* Memory of the same shapes as the gradients of `from`. */
static mha_gradients like(const mha_gradients *from)
{
    mha_gradients made = *from;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        if (from->of[g].data) {
            const size_t n = mha_view_elements(&from->of[g]);
            made.of[g] = mha_view_of(calloc(n ? n : 1, sizeof(double)), MHA_F64, from->of[g].rank, from->of[g].shape);
        }
    return made;
}

static void let_go(mha_gradients *made)
{
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        free(made->of[g].data);
}

static void drop_all(graded_stages stages[3])
{
    for (int i = 0; i < 3; i++)
        graded_drop(&stages[i]);
}

static size_t checked, endless, bounded, anything, of_stage[MHA_BACKWARD_STAGE_COUNT];
static double nearest, nearest_of_stage[MHA_BACKWARD_STAGE_COUNT]; /* the largest error as a part of its bound */

/* Whether an element of a backward that rounds exceeds its bound. */
static bool is_beyond(const mha_gradients *exact, const mha_gradients *found, const mha_gradients *bound, char *text,
                      size_t size)
{
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        for (size_t e = 0; exact->of[g].data && e < mha_view_elements(&exact->of[g]); e++) {
            const double x = ((double *)exact->of[g].data)[e], y = ((double *)found->of[g].data)[e],
                         E = ((double *)bound->of[g].data)[e];
            checked++;
            nearest = fmax(nearest, E > 0 ? fabs(x - y) / E : 0);
            if (fabs(x - y) <= E || (isnan(x) && isnan(y)))
                continue;
            snprintf(text, size, "d_%s, element %zu: %.9g for %.9g, off by %.3g, bound %.3g",
                     mha_gradient_name((mha_gradient)g), e, y, x, fabs(x - y), E);
            return true;
        }
    return false;
}

/* Whether an element of a stage of such a backward does. */
static bool is_stage_beyond(const graded_stages *exact, const graded_stages *found, const graded_stages *bound,
                            char *text, size_t size)
{
    for (size_t i = 0; i < exact->count; i++)
        for (size_t e = 0; e < mha_view_elements(&exact->keep[i].view); e++) {
            const mha_backward_stage s = exact->keep[i].stage;
            const double x = ((double *)exact->keep[i].view.data)[e], y = ((double *)found->keep[i].view.data)[e],
                         E = ((double *)bound->keep[i].view.data)[e];
            anything += isnan(E) ? 1 : 0, of_stage[s]++;
            if (isfinite(E) && E > 0)
                nearest_of_stage[s] = fmax(nearest_of_stage[s], fabs(x - y) / E);
            if (isnan(E) || fabs(x - y) <= E || (isnan(x) && isnan(y)))
                continue;
            snprintf(text, size, "%s, element %zu: %.9g for %.9g, off by %.3g, bound %.3g",
                     mha_backward_stage_at(s)->name, e, y, x, fabs(x - y), E);
            return true;
        }
    return false;
}

/* Points that are drawn from the seed, of either type: one, several, or those of a fused kernel. */
static mha_backward_precision draw_points(uint64_t seed)
{
    const mha_dtype type = seed / 2 % 2 ? MHA_BF16 : MHA_F16;
    const uint64_t bits = seed * 0x9e3779b97f4a7c15u >> 40;
    mha_dtype of[8];
    for (int k = 0; k < 8; k++)
        of[k] = (seed % 2 ? bits % 8 == (uint64_t)k : bits >> k & 1) ? type : MHA_F32;
    return seed % 5 == 0 ? mha_backward_precision_of(type)
                         : (mha_backward_precision){of[0], of[1], of[2], of[3], of[4], of[5], of[6], of[7],
                                                    of[7] == MHA_F32 ? 0 : (uint32_t)(seed / 16 % 4), {0}};
}

static bool bound_fails(const trial *drawn, char *text, size_t size)
{
    trial t = *drawn;
    graded g;
    mha_error error;
    if (!graded_adapt(&t))
        return false;
    graded_build(&t, &g);
    mha_gradients found = like(&g.gradients), bound = like(&g.gradients);
    graded_stages stages[3];
    graded_keep(&g, &stages[0], &g.gradients), graded_keep(&g, &stages[1], &found);
    graded_keep(&g, &stages[2], &bound);
    found.precision = bound.precision = draw_points(t.seed);
    bool failed = mha_backward(NULL, &g.r.call, &g.gradients, &error) != MHA_OK ||
                  mha_backward(NULL, &g.r.call, &found, &error) != MHA_OK;
    if (!failed) {
        const mha_status status = mha_gradient_bound(NULL, &g.r.call, &bound, 0x1p-53, &error);
        failed = status != MHA_OK;
        if (status == MHA_OK && (is_beyond(&g.gradients, &found, &bound, text, size) ||
                                 is_stage_beyond(&stages[0], &stages[1], &stages[2], text, size))) {
            drop_all(stages), let_go(&found), let_go(&bound), graded_release(&g);
            return true;
        }
    }
    if (failed)
        snprintf(text, size, "refused: %.250s", error.message);
    drop_all(stages), let_go(&found), let_go(&bound), graded_release(&g);
    return failed;
}

/* Each stage was compared with bounds; some error reached at least this part of them. */
static void stages_were_bounded(double least)
{
    assert_true(anything > 0);
    for (int s = 0; s < MHA_BACKWARD_STAGE_COUNT; s++) {
        print_message("%s: %zu elements, the nearest at %.2g of its bound\n",
                      mha_backward_stage_at((mha_backward_stage)s)->name, of_stage[s], nearest_of_stage[s]);
        assert_true(of_stage[s] > 0 && (s == MHA_BACKWARD_D_HEADS || nearest_of_stage[s] > least));
        of_stage[s] = 0, nearest_of_stage[s] = 0;
    }
    anything = 0;
}

static void no_rounding_goes_beyond_the_bound(void **state)
{
    (void)state;
    const size_t wrong = trials_that_fail(trial_number("GRADIENT_SEED", 1), trial_count("GRADIENT_TRIALS", 4000), 0,
                                          bound_fails);
    if (wrong)
        fail_msg("the gradients of %zu random calls lie beyond their bound", wrong);
    print_message("%zu elements, the nearest at %.2g of its bound\n", checked, nearest);
    assert_true(checked > 0 && nearest > 0.05);
    stages_were_bounded(0.02);
}

/* A backward that moves every number by a roundoff of float32, of any call or layer. */
static bool narrow_fails(const trial *t, char *text, size_t size)
{
    graded g;
    mha_error error = {0};
    graded_build(t, &g);
    mha_gradients found = like(&g.gradients), bound = like(&g.gradients);
    graded_stages stages[3];
    graded_keep(&g, &stages[0], &g.gradients), graded_keep(&g, &stages[1], &found);
    graded_keep(&g, &stages[2], &bound);
    bool failed = mha_backward(g.r.layer, &g.r.call, &g.gradients, &error) != MHA_OK ||
                  narrow_backward(g.r.layer, &g.r.call, &found, t->seed, &error) != MHA_OK ||
                  mha_gradient_bound(g.r.layer, &g.r.call, &bound, 0x1p-24, &error) != MHA_OK;
    if (failed)
        snprintf(text, size, "refused: %.250s", error.message);
    else
        failed = is_beyond(&g.gradients, &found, &bound, text, size) ||
                 is_stage_beyond(&stages[0], &stages[1], &stages[2], text, size);
    for (int i = 0; i < MHA_GRADIENT_COUNT && !failed; i++)
        for (size_t e = 0; bound.of[i].data && e < mha_view_elements(&bound.of[i]); e++)
            endless += isinf(((double *)bound.of[i].data)[e]), bounded++;
    drop_all(stages), let_go(&found), let_go(&bound), graded_release(&g);
    return failed;
}

static bool narrow_call_fails(const trial *drawn, char *text, size_t size)
{
    trial t = *drawn;
    return graded_adapt(&t) && narrow_fails(&t, text, size);
}

static bool narrow_layer_fails(const trial *drawn, char *text, size_t size)
{
    trial t = *drawn;
    return graded_adapt_layer(&t) && narrow_fails(&t, text, size);
}

static void no_float_goes_beyond_the_bound(void **state)
{
    (void)state;
    static const trial_failure of[2] = {narrow_call_fails, narrow_layer_fails};
    for (int layers = 0; layers < 2; layers++) {
        checked = endless = bounded = 0, nearest = 0;
        const size_t wrong = trials_that_fail(trial_number("GRADIENT_SEED", 1),
                                              trial_count("GRADIENT_TRIALS", 1500), 0, of[layers]);
        if (wrong)
            fail_msg("the gradients of %zu random %s lie beyond their bound", wrong, layers ? "layers" : "calls");
        print_message("%zu elements, the nearest at %.2g of its bound; %zu of %zu bounds are infinite\n", checked,
                      nearest, endless, bounded);
        assert_true(checked > 0 && nearest > 0.02);
        assert_true(endless * 4 < bounded);
        stages_were_bounded(0.01);
    }
}

/* One query, one key: dS is exactly 0, and so is dQ; what may be off is dP - D, times P = 1 and K. */
static void the_bound_is_of_the_size_of_a_rounding(void **state)
{
    (void)state;
    const float q[] = {1}, k[] = {1}, v[] = {3}, d[] = {1};
    double bound[3];
    mha_error error;
    const mha_call call = {.query = mha_heads(q, 1, 1, 1, 1), .key = mha_heads(k, 1, 1, 1, 1),
                           .value = mha_heads(v, 1, 1, 1, 1)};
    mha_gradients g = {.d_output = mha_heads(d, 1, 1, 1, 1)};
    for (int i = 0; i < 3; i++)
        g.of[i] = mha_view_of(&bound[i], MHA_F64, 4, (const size_t[]){1, 1, 1, 1});
    assert_ok(mha_gradient_bound(NULL, &call, &g, 0x1p-24, &error), error);
    assert_true(bound[MHA_D_QUERY] > 0x1p-24 && bound[MHA_D_QUERY] < 3 * 0x1p-24 * 400);
    assert_true(bound[MHA_D_VALUE] > 0x1p-24 && bound[MHA_D_VALUE] < 0x1p-24 * 400);
    g.precision.output = MHA_BF16; /* 3 / 256, from O in D */
    assert_ok(mha_gradient_bound(NULL, &call, &g, 0x1p-24, &error), error);
    assert_true(bound[MHA_D_QUERY] > 3 * 0x1p-8 && bound[MHA_D_QUERY] < 3.2 * 0x1p-8);
    assert_true(bound[MHA_D_VALUE] < 0x1p-24 * 400);
}

/* Two queries and two keys of one feature: numbers on the way that leave the range of float, of gradients that do not:
 * dP after keys of 1e-20, dP - D, the sum of dS K after a scale of 1e-30, that of P dO over two queries, causal. */
static void numbers_on_the_way_are_bounded(void **state)
{
    (void)state;
    static const struct {
        float q, k, v, d, scale;
        mha_normaliser normaliser;
        bool reaches[3]; /* the bound of dQ, dK, dV is infinite */
    } rows[] = {{1, 1, 1, 1, 1, MHA_SOFTMAX, {false, false, false}},
                {1e-20f, 1e-20f, 2e3f, 3e35f, 1, MHA_SIGMOID, {true, true, false}},
                {1, 1, 1, 3e38f, 1, MHA_SOFTMAX, {true, true, false}},
                {1, 1e20f, 1e10f, 1e10f, 1e-30f, MHA_SOFTMAX, {true, false, false}},
                {1e20f, 1, 1e10f, 1e10f, 1e-30f, MHA_SOFTMAX, {false, true, false}},
                {1, 1, 1e-20f, 3.4e38f, 1, MHA_SOFTMAX, {false, false, true}}};
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        const float q[] = {rows[n].q, -rows[n].q}, k[] = {rows[n].k, -rows[n].k}, v[] = {rows[n].v, -rows[n].v},
                    d[] = {rows[n].d, -rows[n].d};
        double bound[3][2];
        mha_error error;
        const mha_call call = {.query = mha_heads(q, 1, 2, 1, 1), .key = mha_heads(k, 1, 2, 1, 1),
                               .value = mha_heads(v, 1, 2, 1, 1), .semantics.softmax.scale = (double)rows[n].scale,
                               .semantics.visible.causal = true,
                               .semantics.softmax.normaliser = rows[n].normaliser};
        mha_gradients g = {.d_output = mha_heads(d, 1, 2, 1, 1)};
        for (int i = 0; i < 3; i++)
            g.of[i] = mha_view_of(bound[i], MHA_F64, 4, (const size_t[]){1, 2, 1, 1});
        assert_ok(mha_gradient_bound(NULL, &call, &g, 0x1p-24, &error), error);
        for (int i = 0; i < 3; i++)
            if ((isinf(bound[i][0]) || isinf(bound[i][1])) != rows[n].reaches[i])
                fail_msg("row %zu, gradient %d: %g, %g", n, i, bound[i][0], bound[i][1]);
        assert_ok(mha_gradient_bound(NULL, &call, &g, 0x1p-53, &error), error);
        for (int i = 0; i < 3; i++)
            assert_true(isfinite(bound[i][0]) && isfinite(bound[i][1]));
    }
}

/* A stage has no bound where its numbers leave the range of the type; where a key is hidden, any number is right. */
static void stages_out_of_range_are_not_bounded(void **state)
{
    (void)state;
    const float q[] = {1, -1}, v[] = {2, -2}, d[] = {3e38f, 1};
    double maps[2][4], sums[2];
    mha_error error;
    const size_t pairs[4] = {1, 1, 2, 2};
    const mha_call call = {.query = mha_heads(q, 1, 2, 1, 1), .key = mha_heads(q, 1, 2, 1, 1),
                           .value = mha_heads(v, 1, 2, 1, 1), .semantics.visible.causal = true};
    const mha_backward_keep keep[] = {{MHA_BACKWARD_D_WEIGHTS, mha_view_of(maps[0], MHA_F64, 4, pairs)},
                                      {MHA_BACKWARD_D_SCORES, mha_view_of(maps[1], MHA_F64, 4, pairs)},
                                      {MHA_BACKWARD_ROW_SUMS, mha_view_of(sums, MHA_F64, 3, pairs)}};
    const mha_gradients g = {.d_output = mha_heads(d, 1, 2, 1, 1), .keep = keep, .keep_count = 3};
    assert_ok(mha_gradient_bound(NULL, &call, &g, 0x1p-24, &error), error);
    assert_true(isinf(maps[0][0]) && isnan(maps[0][1]) && isfinite(maps[0][2]) && isfinite(maps[0][3]));
    assert_true(isinf(maps[1][0]) && isfinite(maps[1][1]) && isfinite(maps[1][2]) && isfinite(maps[1][3]));
    assert_true(isinf(sums[0]) && isfinite(sums[1]));
    assert_ok(mha_gradient_bound(NULL, &call, &g, 0x1p-53, &error), error);
    assert_true(isfinite(maps[0][0]) && isnan(maps[0][1]) && isfinite(maps[1][0]) && isfinite(sums[0]));
}

/* ---------------------------------------------------------------- dropout in float */

enum { T = 5, S = 7, D = 3 };

/* A call of one head, what a kernel in float makes of it, and the float64 of the exact path. */
typedef struct dropped {
    float q[T * D], k[S * D], v[S * D], d[T * D], O[T * D], dq[T * D], dk[S * D], dv[S * D];
    unsigned char keep[T * S];
} dropped;

/* The equations of mha/attention.h, with p as a float. */
static void run_in_float(dropped *x, float p)
{
    const float scale = 1 / sqrtf((float)D);
    memset(x->O, 0, sizeof x->O), memset(x->dq, 0, sizeof x->dq);
    memset(x->dk, 0, sizeof x->dk), memset(x->dv, 0, sizeof x->dv);
    for (size_t i = 0; i < T; i++) {
        float P[S], m[S], dP[S], most = -INFINITY, sum = 0, sums = 0;
        for (size_t j = 0; j < S; j++) {
            P[j] = dP[j] = 0;
            for (size_t c = 0; c < D; c++)
                P[j] += x->q[i * D + c] * x->k[j * D + c], dP[j] += x->d[i * D + c] * x->v[j * D + c];
            P[j] *= scale, most = fmaxf(most, P[j]);
        }
        for (size_t j = 0; j < S; j++)
            sum += P[j] = expf(P[j] - most);
        for (size_t j = 0; j < S; j++) {
            P[j] /= sum, m[j] = x->keep[i * S + j] ? 1 / (1 - p) : 0, dP[j] *= m[j];
            for (size_t c = 0; c < D; c++) {
                x->O[i * D + c] += P[j] * m[j] * x->v[j * D + c];
                x->dv[j * D + c] += P[j] * m[j] * x->d[i * D + c];
            }
        }
        for (size_t c = 0; c < D; c++)
            sums += x->d[i * D + c] * x->O[i * D + c];
        for (size_t j = 0; j < S; j++)
            for (size_t c = 0; c < D; c++) {
                x->dq[i * D + c] += scale * P[j] * (dP[j] - sums) * x->k[j * D + c];
                x->dk[j * D + c] += scale * P[j] * (dP[j] - sums) * x->q[i * D + c];
            }
    }
}

/* A p that is no float moves all of a row by one factor: 1/1024 in the last row. */
static void a_dropout_in_float_stays_within_the_bounds(void **state)
{
    (void)state;
    static const double rates[] = {0.1, 0.5, 0.9, 1 - 0x1p-20 + 0x1p-30};
    static dropped x;
    uint64_t random = 7;
    for (size_t n = 0; n < 40; n++) {
        double exact[4][S * D], bound[4][S * D], stages[MHA_STAGE_COUNT];
        mha_error error;
        float *const inputs[] = {x.q, x.k, x.v, x.d};
        for (size_t a = 0; a < 4; a++)
            for (size_t e = 0; e < (a % 3 ? S : T) * D; e++)
                inputs[a][e] = (float)((double)(word(&random) % 2001) / 1000 - 1);
        for (size_t e = 0; e < T * S; e++)
            x.keep[e] = word(&random) % 3 > 0;
        mha_call call = {.query = mha_heads(x.q, 1, T, 1, D), .key = mha_heads(x.k, 1, S, 1, D),
                         .value = mha_heads(x.v, 1, S, 1, D), .semantics.softmax.dropout_p = rates[n % 4],
                         .output = mha_view_of(exact[3], MHA_F64, 4, (const size_t[]){1, T, 1, D})};
        call.semantics.softmax.dropout_keep = mha_view_of(x.keep, MHA_U8, 2, (const size_t[]){T, S});
        mha_gradients g = {.d_output = mha_heads(x.d, 1, T, 1, D)}, off = g;
        for (int i = 0; i < 3; i++) {
            const size_t shape[4] = {1, i ? S : T, 1, D};
            g.of[i] = mha_view_of(exact[i], MHA_F64, 4, shape), off.of[i] = mha_view_of(bound[i], MHA_F64, 4, shape);
        }
        assert_ok(mha_run(NULL, &call, &error), error);
        assert_ok(mha_backward(NULL, &call, &g, &error), error);
        assert_ok(mha_gradient_bound(NULL, &call, &off, 0x1p-24, &error), error);
        assert_ok(mha_error_bound(NULL, &call, 0x1p-24, stages, MHA_STAGE_COUNT, &error), error);
        run_in_float(&x, (float)rates[n % 4]);
        const float *found[4] = {x.dq, x.dk, x.dv, x.O};
        for (int i = 0; i < 4; i++)
            for (size_t e = 0; e < (i == 1 || i == 2 ? S * D : T * D); e++) {
                const double allowed = i == 3 ? stages[MHA_STAGE_OUTPUT] : bound[i][e],
                             is = fabs((double)found[i][e] - exact[i][e]);
                if (!(is <= allowed))
                    fail_msg("p %g, %d: %g is %g off, allowed %g", rates[n % 4], i, exact[i][e], is, allowed);
            }
    }
}

static void numbers_without_a_meaning_are_refused(void **state)
{
    (void)state;
    const float q[2] = {1, 2};
    mha_error error;
    const mha_call call = {.query = mha_heads(q, 1, 1, 1, 2), .key = mha_heads(q, 1, 1, 1, 2),
                     .value = mha_heads(q, 1, 1, 1, 2)};
    mha_gradients g = {.d_output = mha_heads(q, 1, 1, 1, 2)};
    assert_refused(mha_gradient_bound(NULL, &call, &g, 0, &error), MHA_INVALID, error, "unit", "between 0 and 1");
    g.precision.sums = MHA_I8;
    assert_refused(mha_gradient_bound(NULL, &call, &g, 0.5, &error), MHA_INVALID, error, "precision.sums", "I8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_rounding_goes_beyond_the_bound),
                                       cmocka_unit_test(no_float_goes_beyond_the_bound),
                                       cmocka_unit_test(the_bound_is_of_the_size_of_a_rounding),
                                       cmocka_unit_test(numbers_on_the_way_are_bounded),
                                       cmocka_unit_test(stages_out_of_range_are_not_bounded),
                                       cmocka_unit_test(a_dropout_in_float_stays_within_the_bounds),
                                       cmocka_unit_test(numbers_without_a_meaning_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
