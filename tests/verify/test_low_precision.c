/* Low precision: what the exact path models, and the tolerance that follows, compared with kernels written here. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/recase.h"
#include "support/rounded.h"
#include "support/scratch.h"
#include "support/trial.h"
#include "support/unit.h"

static const mha_dtype types[] = {MHA_F16, MHA_BF16, MHA_F8_E4M3, MHA_F8_E5M2, MHA_I8, MHA_TF32};
enum { TYPES = sizeof types / sizeof *types };

/* ---------------------------------------------------------------- kernels */

/* One head, T queries, S keys, width d: inputs and rounded copies. */
typedef struct problem {
    size_t T, S, d;
    float *q, *k, *v;
    double *Q, *K, *V, *out;
} problem;

static void problem_make(problem *p, size_t T, size_t S, size_t d, uint64_t seed)
{
    *p = (problem){.T = T, .S = S, .d = d, .q = calloc(T * d, sizeof(float)), .k = calloc(S * d, sizeof(float)),
                   .v = calloc(S * d, sizeof(float)), .Q = malloc(T * d * sizeof(double)),
                   .K = malloc(S * d * sizeof(double)), .V = malloc(S * d * sizeof(double)),
                   .out = malloc(T * d * sizeof(double))};
    const mha_view views[] = {mha_rows(p->q, 1, T, d), mha_rows(p->k, 1, S, d), mha_rows(p->v, 1, S, d)};
    for (unsigned i = 0; i < 3; i++)
        mha_random_fill(&views[i], seed, i, -2, 2);
}

static void problem_free(problem *p)
{
    void *const blocks[] = {p->q, p->k, p->v, p->Q, p->K, p->V, p->out};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
}

static mha_call call_of(const problem *p, mha_view output)
{
    return (mha_call){.query = mha_heads(p->q, 1, p->T, 1, p->d), .key = mha_heads(p->k, 1, p->S, 1, p->d),
                      .value = mha_heads(p->v, 1, p->S, 1, p->d), .output = output, .path = MHA_PATH_EXACT,
                      .threads = 2};
}

static void run_exact(const problem *p, mha_precision precision, double *out)
{
    mha_error error;
    mha_call call = call_of(p, mha_view_of(out, MHA_F64, 4, (const size_t[]){1, p->T, 1, p->d}));
    call.precision = precision;
    assert_ok(mha_run(NULL, &call, &error), error);
}

/* Inputs rounded; scores, weights and output rounded where the precision says so. `block` keys are attended to with one
 * maximum, which the next block rescales; a block of all keys, divided before the weights are rounded, is the plain
 * kernel (but for I8, whose 127 steps are for exponentials, not for weights of 1/S), which rounds q k before the scale
 * as well. Everything else is float. */
static void kernel(const problem *p, mha_precision precision, size_t block, bool plain)
{
    plain = plain && precision.probabilities != MHA_I8;
    for (size_t i = 0; i < p->T * p->d; i++)
        p->Q[i] = (double)p->q[i];
    for (size_t i = 0; i < p->S * p->d; i++)
        p->K[i] = (double)p->k[i], p->V[i] = (double)p->v[i];
    rounded_tensor(precision.inputs, p->Q, p->T * p->d);
    rounded_tensor(precision.inputs, p->K, p->S * p->d);
    rounded_tensor(precision.inputs, p->V, p->S * p->d);
    double *w = malloc(p->S * sizeof *w);
    const float scale = (float)(1 / sqrt((double)p->d));
    for (size_t i = 0; i < p->T; i++) {
        float most = -INFINITY, sum = 0;
        double *out = p->out + i * p->d;
        memset(out, 0, p->d * sizeof *out);
        for (size_t from = 0; from < p->S; from += block) {
            const size_t to = p->S - from < block ? p->S : from + block;
            float max = most;
            for (size_t j = from; j < to; j++) {
                float s = 0;
                for (size_t c = 0; c < p->d; c++)
                    s += (float)p->Q[i * p->d + c] * (float)p->K[j * p->d + c];
                s = plain ? (float)rounded_number(precision.scores, (double)s) : s;
                w[j] = rounded_number(precision.scores, (double)(s * scale));
                max = (float)w[j] > max ? (float)w[j] : max;
            }
            const float factor = expf(most - max);
            sum *= factor;
            for (size_t c = 0; c < p->d; c++)
                out[c] = (double)((float)out[c] * factor);
            for (size_t j = from; j < to; j++) {
                w[j] = (double)expf((float)w[j] - max);
                sum += (float)w[j];
            }
            for (size_t j = from; j < to; j++) {
                const double weight = rounded_share(precision.probabilities, plain ? w[j] / (double)sum : w[j]);
                for (size_t c = 0; c < p->d; c++)
                    out[c] = (double)((float)out[c] + (float)weight * (float)p->V[j * p->d + c]);
            }
            most = max;
        }
        for (size_t c = 0; c < p->d; c++)
            out[c] = rounded_number(rounded_stored(precision.output), plain ? out[c] : out[c] / (double)sum);
    }
    free(w);
}

/* ---------------------------------------------------------------- what is modelled */

static double farthest(const double *x, const double *y, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i] - y[i]));
    return most;
}

/* The definition of mha_precision in plain loops, sums in the order of the exact path: the same numbers come out. */
static void model(const problem *p, mha_precision m, double *out)
{
    for (size_t i = 0; i < p->T * p->d; i++)
        p->Q[i] = (double)p->q[i];
    for (size_t i = 0; i < p->S * p->d; i++)
        p->K[i] = (double)p->k[i], p->V[i] = (double)p->v[i];
    double *const rows[] = {p->Q, p->K, p->V};
    const size_t n[] = {p->T * p->d, p->S * p->d, p->S * p->d};
    for (int i = 0; i < 3; i++) {
        rounded_tensor(rounded_stored(m.inputs), rows[i], n[i]);
        rounded_tensor(m.rows, rows[i], n[i]);
    }
    double *s = malloc(p->S * sizeof *s);
    for (size_t i = 0; i < p->T; i++) {
        double most = -(double)INFINITY, sum = 0;
        for (size_t j = 0; j < p->S; j++) {
            s[j] = 0;
            for (size_t c = 0; c < p->d; c++)
                s[j] = rounded_number(m.sums, s[j] + p->Q[i * p->d + c] * p->K[j * p->d + c]);
            s[j] = rounded_number(m.scores, rounded_number(m.scores, s[j]) * (1 / sqrt((double)p->d)));
            most = fmax(most, s[j]);
        }
        for (size_t c = 0; c < p->d; c++)
            out[i * p->d + c] = 0;
        for (size_t j = 0; j < p->S; j++) {
            const double e = exp(s[j] - most), weight = rounded_share(m.probabilities, e);
            sum = rounded_number(m.sums, sum + e);
            for (size_t c = 0; c < p->d; c++)
                out[i * p->d + c] = rounded_number(m.sums, out[i * p->d + c] + weight * p->V[j * p->d + c]);
        }
        for (size_t c = 0; c < p->d; c++)
            out[i * p->d + c] /= sum;
    }
    rounded_tensor(rounded_stored(m.output), out, p->T * p->d);
    rounded_tensor(rounded_stored(m.output), out, p->T * p->d);
    free(s);
}

static void every_point_is_rounded_as_defined(void **state)
{
    (void)state;
    problem p;
    problem_make(&p, 5, 23, 12, 1);
    double found[5 * 12], expected[5 * 12], plain[5 * 12];
    run_exact(&p, (mha_precision){.inputs = MHA_F32}, plain);
    for (size_t point = 0; point < 7; point++)
        for (size_t t = 0; t < TYPES; t++) {
            const mha_dtype type = types[t];
            mha_precision m = {.inputs = MHA_F32};
            mha_dtype *const points[] = {&m.inputs, &m.rows, &m.probabilities, &m.output,
                                         &m.scores, &m.sums, &m.weights};
            const bool stored = point == 0 || point == 3; /* without a product that reads it */
            if ((rounded_scaled(type) || type == MHA_TF32) && (point == 4 || point == 5))
                continue;
            *points[point] = type;
            run_exact(&p, m, found);
            model(&p, m, expected);
            /* only one point: the error must be within its own part of the bound, as float64 allows next to nothing */
            mha_error error;
            double bound[MHA_STAGE_COUNT];
            mha_call call = call_of(&p, (mha_view){0});
            call.precision = m;
            assert_ok(mha_error_bound(NULL, &call, 0x1p-53, bound, MHA_STAGE_COUNT, &error), error);
            assert_true(farthest(found, plain, 5 * 12) <= bound[MHA_STAGE_OUTPUT]);
            if (point < 4) /* sums in 16 bits may have no bound; a point that does not round has hardly any */
                assert_true(bound[MHA_STAGE_OUTPUT] < 100);
            double moved = 0;
            for (size_t i = 0; i < 5 * 12; i++) {
                /* a quotient by the scale may be one rounding from a tie; none is here */
                assert_true(fabs(found[i] - expected[i]) <= 1e-14);
                moved = fmax(moved, fabs(found[i] - plain[i]));
            }
            /* weights: this call has none */
            assert_true(point == 6 || (stored && type == MHA_TF32) ? moved < 1e-14 : moved > 1e-5);
        }
    problem_free(&p);
}

/* Matrices and biases, and the rows between; a projection by the unit matrix shows the rounding as it is. */
static void weights_and_biases_are_rounded(void **state)
{
    (void)state;
    mha_layer *layer;
    mha_error error;
    const mha_config config = {.d_model = 8, .n_heads = 2, .bias_v = true, .bias_o = true};
    assert_ok(mha_layer_create(&config, NULL, NULL, &layer, &error), error);
    mha_layer_init(layer, 3);
    float x[8];
    double found[8], expected[8], W[64], b[8], h[8];
    const size_t shape[3] = {1, 1, 8};
    const mha_view rows = mha_rows(x, 1, 1, 8), v = mha_tensor_view(mha_layer_weight(layer, MHA_W_V)),
                   o = mha_tensor_view(mha_layer_weight(layer, MHA_W_O)),
                   b_v = mha_tensor_view(mha_layer_weight(layer, MHA_B_V)),
                   b_o = mha_tensor_view(mha_layer_weight(layer, MHA_B_O));
    mha_random_fill(&rows, 5, 5, -1, 1);
    mha_random_fill(&b_v, 5, 6, -1, 1);
    mha_random_fill(&b_o, 5, 7, -1, 1);
    for (size_t t = 0; t < TYPES; t++) {
        mha_call call = {.query = rows, .output = mha_view_of(found, MHA_F64, 3, shape), .path = MHA_PATH_EXACT,
                         .precision = {.weights = types[t]}};
        assert_ok(mha_run(layer, &call, &error), error);
        for (size_t c = 0; c < 8; c++) /* one key: the heads are v */
            h[c] = (double)x[c];
        for (int step = 0; step < 2; step++) {
            for (size_t i = 0; i < 64; i++)
                W[i] = mha_view_get(step ? &o : &v, (const size_t[]){i / 8, i % 8});
            for (size_t i = 0; i < 8; i++)
                b[i] = mha_view_get(step ? &b_o : &b_v, &i);
            rounded_tensor(types[t], W, 64);
            rounded_tensor(rounded_stored(types[t]), b, 8);
            for (size_t c = 0; c < 8; c++) {
                expected[c] = b[c];
                for (size_t k = 0; k < 8; k++)
                    expected[c] += h[k] * W[k * 8 + c];
            }
            memcpy(h, expected, sizeof h);
        }
        for (size_t c = 0; c < 8; c++)
            assert_true(fabs(found[c] - expected[c]) <= 1e-14);
        double bound[MHA_STAGE_COUNT];
        assert_ok(mha_error_bound(layer, &call, 0x1p-53, bound, MHA_STAGE_COUNT, &error), error);
        call.precision = (mha_precision){.inputs = MHA_F32};
        assert_ok(mha_run(layer, &call, &error), error);
        assert_true(farthest(found, expected, 8) > 1e-5 && farthest(found, expected, 8) <= bound[MHA_STAGE_OUTPUT]);
    }
    mha_layer_destroy(layer);
}

/* ---------------------------------------------------------------- the tolerance */

static mha_outcome checked(const problem *p, mha_precision precision, const double *out)
{
    mha_error error;
    mha_case *c;
    mha_verdict v;
    float *narrow = malloc(p->T * p->d * sizeof *narrow);
    for (size_t i = 0; i < p->T * p->d; i++)
        narrow[i] = (float)out[i];
    mha_call call = call_of(p, (mha_view){0});
    call.precision = precision;
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = mha_heads(narrow, 1, p->T, 1, p->d)};
    assert_ok(mha_case_of_call(NULL, &call, &recorded, 1, NULL, &c, &error), error);
    assert_ok(mha_case_check(c, MHA_PATH_EXACT, NULL, 2, &v, &error), error);
    const mha_outcome outcome = v.outcome;
    mha_verdict_clear(&v);
    mha_case_close(c);
    free(narrow);
    return outcome;
}

/* Right kernels of every type pass: the exact result rounded, the modelled one, a plain and a blocked one written here.
 * What is allowed is more than FlashAttention's rule allows by at most the intended factor of two, plus
 * float32's own tolerance; a stage of few elements has its bound instead. */
static void right_kernels_pass_at_every_size(void **state)
{
    (void)state;
    static const size_t sizes[][3] = {{1, 1, 1},    {1, 1, 1000},  {1, 1000, 1},  {2, 3, 5},       {7, 64, 16},
                                      {48, 40, 32}, {17, 300, 64}, {1000, 7, 10},  {1, 1000, 1000}, {300, 9, 33}};
    for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++)
        for (size_t t = 0; t < TYPES; t++) {
            const mha_precision precision = mha_precision_of(types[t]);
            problem p;
            mha_error error;
            problem_make(&p, sizes[z][0], sizes[z][1], sizes[z][2], 10 * z + t);
            const size_t n = p.T * p.d;
            const bool small = p.T * p.S * p.d < 10000; /* the checker derives the same tolerance again */
            double *exact = malloc(n * sizeof *exact), *other = malloc(n * sizeof *other);
            const mha_call call = call_of(&p, (mha_view){0});
            double atol[MHA_STAGE_COUNT], plain = 0, worst = 0;
            run_exact(&p, (mha_precision){.inputs = MHA_F32}, exact);
            assert_ok(mha_precision_tolerance(NULL, &call, &precision, atol, MHA_STAGE_COUNT, &error), error);
            const double allowed = atol[MHA_STAGE_OUTPUT];
            for (int which = 0; which < 5; which++) {
                if (which == 0)
                    for (size_t i = 0; i < n; i++)
                        p.out[i] = rounded_number(rounded_stored(precision.output), exact[i]);
                else if (which == 1)
                    run_exact(&p, precision, p.out);
                else
                    kernel(&p, precision, which == 2 ? p.S : which == 3 ? 64 : 5, which == 2);
                const double off = farthest(p.out, exact, n);
                plain = which == 2 ? off : plain;
                worst = fmax(worst, off);
                if (off > allowed)
                    fail_msg("%s, T %zu, S %zu, d %zu: kernel %d is %g off, allowed %g", mha_dtype_name(types[t]), p.T,
                             p.S, p.d, which, off, allowed);
                if (small)
                    assert_int_equal(checked(&p, precision, p.out), MHA_OUTCOME_PASSED);
            }
            if (n >= 64)
                assert_true(allowed <= 2 * (2 * plain + 1e-5) * 1.5);
            /* the smallest step beyond it is refused, at any element */
            for (size_t i = 0; small && i < n; i += n / 3 + 1) {
                memcpy(other, exact, n * sizeof *other);
                other[i] += 1.001 * allowed;
                assert_int_equal(checked(&p, precision, other), MHA_OUTCOME_FAILED);
                other[i] = exact[i] + 0.999 * allowed;
                assert_int_equal(checked(&p, precision, other), MHA_OUTCOME_PASSED);
            }
            free(exact);
            free(other);
            problem_free(&p);
        }
}

/* ---------------------------------------------------------------- the diagnosis */

enum { T_ = 24, D_ = 16, H_ = 4, G_ = 2 };

/* Grouped heads: inputs, and the keys and values that query heads read if they take the wrong head. */
typedef struct grouped {
    float q[T_ * H_ * D_], k[T_ * G_ * D_], v[T_ * G_ * D_], tiled_k[T_ * H_ * D_], tiled_v[T_ * H_ * D_];
    float out[T_ * H_ * D_];
} grouped;

static mha_call grouped_call(grouped *g, bool tiled)
{
    const size_t heads = tiled ? H_ : G_;
    return (mha_call){.query = mha_heads(g->q, 1, T_, H_, D_),
                      .key = mha_heads(tiled ? g->tiled_k : g->k, 1, T_, heads, D_),
                      .value = mha_heads(tiled ? g->tiled_v : g->v, 1, T_, heads, D_),
                      .output = mha_heads(g->out, 1, T_, H_, D_),
                      .path = MHA_PATH_EXACT};
}

static mha_call grouped_make(grouped *g, uint64_t seed)
{
    const mha_view inputs[] = {mha_rows(g->q, 1, T_, H_ * D_), mha_rows(g->k, 1, T_, G_ * D_),
                               mha_rows(g->v, 1, T_, G_ * D_)};
    for (unsigned i = 0; i < 3; i++)
        mha_random_fill(&inputs[i], seed, i, -2, 2);
    for (size_t i = 0; i < T_ * H_ * D_; i++) {
        const size_t from = i / (H_ * D_) * G_ * D_ + i % (G_ * D_);
        g->tiled_k[i] = g->k[from], g->tiled_v[i] = g->v[from];
    }
    return grouped_call(g, false);
}

static mha_diagnosis grouped_diagnosis(grouped *g, mha_precision precision)
{
    mha_error error;
    mha_case *c;
    mha_diagnosis d;
    mha_call call = grouped_call(g, false);
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = call.output};
    call.precision = precision;
    assert_ok(mha_case_of_call(NULL, &call, &recorded, 1, NULL, &c, &error), error);
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    mha_case_close(c);
    return d;
}

/* Query heads that read the wrong key/value head, by a kernel of low precision: named, within that rounding, whether
 * the case says the precision or not. So is the right kernel. Of 8 bits that nobody spoke of, a wrong one is only the
 * closest. */
static void kernels_are_named_within_low_rounding(void **state)
{
    (void)state;
    grouped g;
    mha_error error;
    for (size_t t = 0; t < TYPES; t++)
        for (int wrong = 0; wrong < 2; wrong++)
            for (int said = 0; said < 2; said++) {
                const mha_precision precision = mha_precision_of(types[t]), none = {.inputs = MHA_F32};
                grouped_make(&g, 9 + t);
                mha_call call = grouped_call(&g, wrong);
                call.precision = precision;
                assert_ok(mha_run(NULL, &call, &error), error);
                mha_diagnosis d = grouped_diagnosis(&g, said ? precision : none);
                if (wrong && !said && rounded_scaled(types[t])) {
                    assert_true((d.match_count == 0 || !d.matches[0].exact) && d.closest_count > 0);
                    assert_string_equal(d.closest[0].bugs[0], "groups-tiled");
                    mha_diagnosis_clear(&d);
                    continue;
                }
                if (d.match_count == 0 || !d.matches[0].exact || d.matches[0].rounding != types[t])
                    fail_msg("%s, wrong %d, said %d: %zu matches, within %s, off by %g", mha_dtype_name(types[t]),
                             wrong, said, d.match_count, d.match_count ? mha_dtype_name(d.matches[0].rounding) : "-",
                             d.baseline.relative);
                assert_int_equal(d.baseline.exact, said && !wrong);
                bool found = d.matches[0].count == 0 && d.match_count == 1;
                for (size_t i = 0; i < d.match_count && wrong; i++) {
                    assert_int_equal(d.matches[i].count, 1);
                    found |= strcmp(d.matches[i].bugs[0], "groups-tiled") == 0;
                }
                if (!found || (!said && d.match_count > 1))
                    fail_msg("%s, wrong %d, said %d: %zu matches, first %s", mha_dtype_name(types[t]), wrong, said,
                             d.match_count, d.matches[0].count ? d.matches[0].bugs[0] : "none");
                mha_diagnosis_clear(&d);
            }
}

/* An error as large as rounding, but of another kind, is not called so: multiples, and errors that spare most rows. */
static void bugs_are_not_called_rounding(void **state)
{
    (void)state;
    grouped g;
    mha_error error;
    for (size_t t = 0; t < TYPES; t++)
        for (int how = 0; how < 3; how++) {
            float low[T_ * H_ * D_];
            mha_call call = grouped_make(&g, 30 + t);
            call.precision = mha_precision_of(types[t]);
            assert_ok(mha_run(NULL, &call, &error), error);
            memcpy(low, g.out, sizeof low);
            call.precision = (mha_precision){.inputs = MHA_F32};
            assert_ok(mha_run(NULL, &call, &error), error);
            const double off = (double)fabsf(low[7] - g.out[7]) / fabs((double)g.out[7]) + 1e-4;
            for (size_t i = 0; i < T_ * H_ * D_; i++)
                if (how == 0)
                    g.out[i] *= (float)(1 + off);
                else if (how == 1 ? i / (H_ * D_) % 8 == 3 : i / D_ % H_ == 1)
                    g.out[i] = low[i];
            mha_diagnosis d = grouped_diagnosis(&g, call.precision);
            for (size_t i = 0; i < d.match_count; i++)
                assert_false(d.matches[i].exact && d.matches[i].rounding == types[t]);
            mha_diagnosis_clear(&d);
        }
}

/* A saved case says the precision of its results, which the checker then allows for, and would not allow without. */
static void a_saved_case_says_its_precision(void **state)
{
    (void)state;
    problem p;
    mha_error error;
    mha_case *c;
    mha_verdict v;
    problem_make(&p, 6, 9, 16, 4);
    const char *path = scratch_path("low.safetensors"), *again = scratch_path("again.safetensors");
    mha_call call = call_of(&p, mha_view_of(p.out, MHA_F64, 4, (const size_t[]){1, 6, 1, 16}));
    for (size_t t = 0; t < TYPES; t++) {
        call.precision = mha_precision_of(types[t]);
        assert_ok(mha_run(NULL, &call, &error), error);
        assert_ok(mha_case_save(path, NULL, &call, NULL, &error), error);
        recase_write(path, again, &(recase){.metadata = {{"precision", NULL}}});
        for (int said = 0; said < 2; said++) {
            assert_ok(mha_case_open(said ? path : again, NULL, &c, &error), error);
            assert_ok(mha_case_check(c, MHA_PATH_EXACT, NULL, 1, &v, &error), error);
            assert_int_equal(v.outcome, said ? MHA_OUTCOME_PASSED : MHA_OUTCOME_FAILED);
            mha_verdict_clear(&v);
            mha_case_close(c);
        }
    }
    call.precision.sums = MHA_F16;
    assert_refused(mha_case_save(path, NULL, &call, NULL, &error), MHA_UNSUPPORTED, error, "precision");
    problem_free(&p);
}

static void what_has_no_meaning_is_refused(void **state)
{
    (void)state;
    problem p;
    mha_error error;
    mha_plan plan;
    problem_make(&p, 2, 3, 4, 1);
    mha_call call = call_of(&p, (mha_view){0});
    call.precision.scores = MHA_F8_E4M3;
    assert_refused(mha_plan_call(NULL, &call, &plan, &error), MHA_INVALID, error, "precision.scores");
    call.precision = (mha_precision){.rows = MHA_I32};
    assert_refused(mha_plan_call(NULL, &call, &plan, &error), MHA_INVALID, error, "precision.rows", "F8_E5M2");
    call.precision = mha_precision_of(MHA_F16);
    call.path = MHA_PATH_FAST;
    assert_refused(mha_plan_call(NULL, &call, &plan, &error), MHA_UNSUPPORTED, error, "precision", "exact path");
    assert_int_equal(mha_precision_of(MHA_F64).rows, MHA_F32);
    problem_free(&p);
}

/* ---------------------------------------------------------------- small tensors */

/* Random outputs of 1 to 63 numbers, in all types: right kernels, plain and in blocks, are accepted; zeros in place of
 * all numbers, or of all but the last, are refused where the largest is far above the rounding of the type (v is below
 * 2). */
static void small_outputs_are_checked(void **state)
{
    (void)state;
    const uint64_t trials = trial_count("LOW_TRIALS", 240);
    size_t zeros = 0;
    for (uint64_t seed = 0; seed < trials; seed++) {
        const mha_dtype type = types[seed % TYPES];
        const size_t d = 1 + mha__random_bits(61, seed, 0) % 20, most = 63 / d,
                     T = 1 + mha__random_bits(61, seed, 1) % most,
                     S = 1 + mha__random_bits(61, seed, 2) % 40, n = T * d;
        problem p;
        mha_error error;
        double atol[MHA_STAGE_COUNT], exact[63], largest = 0, second = 0;
        const mha_precision m = mha_precision_of(type);
        const double clear = rounded_scaled(type) ? 1 : 0.25;
        problem_make(&p, T, S, d, 1000 + seed);
        run_exact(&p, (mha_precision){.inputs = MHA_F32}, exact);
        const mha_call call = call_of(&p, (mha_view){0});
        assert_ok(mha_precision_tolerance(NULL, &call, &m, atol, MHA_STAGE_COUNT, &error), error);
        for (int plain = 0; plain < 2; plain++) {
            kernel(&p, m, plain ? S : 1 + S / 3, plain);
            if (!(farthest(p.out, exact, n) <= atol[MHA_STAGE_OUTPUT]))
                fail_msg("seed %zu, %s, %zu x %zu of %zu keys: off by %g of %g", (size_t)seed, mha_dtype_name(type),
                         T, d, S, farthest(p.out, exact, n), atol[MHA_STAGE_OUTPUT]);
        }
        for (size_t i = 0; i < n; i++)
            largest = fmax(largest, fabs(exact[i])), second = i + 1 < n ? fmax(second, fabs(exact[i])) : second;
        if (largest >= clear && !(largest > atol[MHA_STAGE_OUTPUT]))
            fail_msg("seed %zu, %s, %zu x %zu of %zu keys: zeros pass, %g of %g", (size_t)seed, mha_dtype_name(type), T,
                     d, S, largest, atol[MHA_STAGE_OUTPUT]);
        if (second >= clear)
            assert_true(second > atol[MHA_STAGE_OUTPUT]);
        zeros += largest >= clear;
        problem_free(&p);
    }
    assert_true(zeros > trials / 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_point_is_rounded_as_defined), cmocka_unit_test(weights_and_biases_are_rounded),
        cmocka_unit_test(right_kernels_pass_at_every_size),  cmocka_unit_test(kernels_are_named_within_low_rounding),
        cmocka_unit_test(bugs_are_not_called_rounding),      cmocka_unit_test(small_outputs_are_checked),
        cmocka_unit_test(a_saved_case_says_its_precision),   cmocka_unit_test(what_has_no_meaning_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
