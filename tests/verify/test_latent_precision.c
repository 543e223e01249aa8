/* Latent attention in low precision: what the exact path models, as stored and absorbed, against plain loops; the bound
 * of these roundings; and the checker, which passes right kernels of a type and no coarser ones. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/layer.h"
#include "support/rounded.h"
#include "support/unit.h"

static const mha_dtype types[] = {MHA_F16, MHA_BF16, MHA_F8_E4M3, MHA_F8_E5M2, MHA_I8, MHA_TF32};
enum { TYPES = sizeof types / sizeof *types };
enum { T = 7, D = 12, H = 3, N = 4, R = 2, DK = N + R, DV = 5, Q_RANK = 6, RANK = 8, ROW = RANK + R, WIDE = N + DV };

/* ---------------------------------------------------------------- the definition */

/* A matrix of the layer, (in, out), or a bias, rounded to a type. */
static void read_weight(const mha_layer *layer, mha_weight weight, mha_dtype type, double *to)
{
    const mha_tensor *tensor = mha_layer_weight(layer, weight);
    assert_non_null(tensor);
    const mha_view v = mha_tensor_view(tensor);
    const size_t n = mha_view_elements(&v), columns = v.rank == 2 ? v.shape[1] : n;
    for (size_t i = 0; i < n; i++)
        to[i] = mha_view_get(&v, v.rank == 2 ? (const size_t[]){i / columns, i % columns} : &i);
    rounded_tensor(v.rank == 2 ? type : rounded_stored(type), to, n);
}

/* y (n, out) = x W + b of rows that are `stride` apart, sums rounded as accumulators do. */
static void times(const mha_precision *p, const double *x, size_t stride, size_t n, const double *W, size_t in,
                  size_t out, const double *b, double *y)
{
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < out; c++) {
            double sum = 0;
            for (size_t k = 0; k < in; k++)
                sum = rounded_number(p->sums, sum + x[i * stride + k] * W[k * out + c]);
            y[i * out + c] = sum + (b ? b[c] : 0);
        }
}

static void norm(const mha_layer *layer, mha_weight weight, size_t width, size_t stride, double *x)
{
    double w[RANK];
    read_weight(layer, weight, MHA_F32, w);
    for (size_t t = 0; t < T; t++) {
        double mean = 0;
        for (size_t c = 0; c < width; c++)
            mean += x[t * stride + c] * x[t * stride + c] / (double)width;
        for (size_t c = 0; c < width; c++)
            x[t * stride + c] = x[t * stride + c] / sqrt(mean + 1e-6) * w[c];
    }
}

/* The first `width` of `stride` numbers of each row as one tensor. */
static void round_part(mha_dtype type, double *x, size_t rows, size_t stride, size_t width)
{
    double *part = malloc(rows * width * sizeof *part);
    for (size_t i = 0; i < rows * width; i++)
        part[i] = x[i / width * stride + i % width];
    rounded_tensor(type, part, rows * width);
    for (size_t i = 0; i < rows * width; i++)
        x[i / width * stride + i % width] = part[i];
    free(part);
}

/* Attention of H heads, each with keys and values of its own or all with the same. */
static void attend(const mha_precision *p, const double *Q, const double *K, const double *V, size_t d, size_t d_v,
                   bool shared, double *out)
{
    const size_t heads = shared ? 1 : H;
    for (size_t t = 0; t < T; t++)
        for (size_t h = 0; h < H; h++) {
            double s[T], most = -(double)INFINITY, sum = 0, *o = out + (t * H + h) * d_v;
            for (size_t j = 0; j <= t; j++) {
                const double *q = Q + (t * H + h) * d, *k = K + (j * heads + (shared ? 0 : h)) * d;
                s[j] = 0;
                for (size_t c = 0; c < d; c++)
                    s[j] = rounded_number(p->sums, s[j] + q[c] * k[c]);
                s[j] = rounded_number(p->scores, rounded_number(p->scores, s[j]) * (1 / sqrt((double)DK)));
                most = fmax(most, s[j]);
            }
            memset(o, 0, d_v * sizeof *o);
            for (size_t j = 0; j <= t; j++) {
                const double e = exp(s[j] - most), weight = rounded_share(p->probabilities, e);
                const double *v = V + (j * heads + (shared ? 0 : h)) * d_v;
                sum = rounded_number(p->sums, sum + e);
                for (size_t c = 0; c < d_v; c++)
                    o[c] = rounded_number(p->sums, o[c] + weight * v[c]);
            }
            for (size_t c = 0; c < d_v; c++)
                o[c] /= sum;
        }
}

/* Column `from` on of each head of W_KVB, `count` of them: (RANK, H, count). */
static void part_of_heads(const double *W, size_t from, size_t count, double *to)
{
    for (size_t k = 0; k < RANK; k++)
        for (size_t i = 0; i < H * count; i++)
            to[k * H * count + i] = W[k * H * WIDE + i / count * WIDE + from + i % count];
}

/* The output (T, D) of the layer for x (T, D), causal, with roundings at the points of a precision. */
static void model(const mha_layer *layer, const float *x, const mha_precision *p, bool absorbed, double *out)
{
    static double W[4096], b[256], in[T * D], c_q[T * Q_RANK], q[T * H * DK], c[T * ROW], wide[T * H * WIDE],
        Q[T * H * ROW], K[T * H * ROW], V[T * H * RANK], mixed[T * H * RANK], heads[T * H * DV], W_KVB[RANK * H * WIDE];
    for (size_t i = 0; i < T * D; i++)
        in[i] = (double)x[i];
    rounded_tensor(p->inputs, in, T * D);
    read_weight(layer, MHA_W_QA, p->weights, W), read_weight(layer, MHA_B_QA, p->weights, b);
    times(p, in, D, T, W, D, Q_RANK, b, c_q);
    norm(layer, MHA_QA_NORM, Q_RANK, Q_RANK, c_q);
    rounded_tensor(p->rows, c_q, T * Q_RANK);
    read_weight(layer, MHA_W_Q, p->weights, W);
    times(p, c_q, Q_RANK, T, W, Q_RANK, H * DK, NULL, q);
    read_weight(layer, MHA_W_KVA, p->weights, W), read_weight(layer, MHA_B_KVA, p->weights, b);
    times(p, in, D, T, W, D, ROW, b, c);
    norm(layer, MHA_KVA_NORM, RANK, ROW, c);
    read_weight(layer, MHA_W_KVB, p->weights, W_KVB);
    if (absorbed) {
        round_part(p->rows, q, T * H, DK, N);
        part_of_heads(W_KVB, 0, N, W);
        for (size_t i = 0; i < T * H; i++) {
            for (size_t k = 0; k < RANK; k++) {
                double sum = 0;
                for (size_t f = 0; f < N; f++)
                    sum = rounded_number(p->sums, sum + q[i * DK + f] * W[k * H * N + i % H * N + f]);
                Q[i * ROW + k] = sum;
            }
            memcpy(Q + i * ROW + RANK, q + i * DK + N, R * sizeof *Q);
        }
        memcpy(K, c, sizeof c);
        for (size_t i = 0; i < T * RANK; i++)
            V[i] = c[i / RANK * ROW + i % RANK];
        rounded_tensor(p->rows, Q, T * H * ROW);
        rounded_tensor(p->rows, K, T * ROW);
        rounded_tensor(p->rows, V, T * RANK);
        attend(p, Q, K, V, ROW, RANK, true, mixed);
        rounded_tensor(p->output, mixed, T * H * RANK);
        part_of_heads(W_KVB, N, DV, W);
        for (size_t i = 0; i < T * H * DV; i++) {
            double sum = 0;
            for (size_t k = 0; k < RANK; k++)
                sum = rounded_number(p->sums, sum + mixed[i / DV * RANK + k] * W[k * H * DV + i % (H * DV)]);
            heads[i] = sum;
        }
    } else {
        round_part(p->rows, c, T, ROW, RANK);
        times(p, c, ROW, T, W_KVB, RANK, H * WIDE, NULL, wide);
        for (size_t i = 0; i < T * H; i++) {
            memcpy(K + i * DK, wide + i * WIDE, N * sizeof *K);
            memcpy(K + i * DK + N, c + i / H * ROW + RANK, R * sizeof *K);
            memcpy(V + i * DV, wide + i * WIDE + N, DV * sizeof *V);
        }
        rounded_tensor(p->rows, q, T * H * DK);
        rounded_tensor(p->rows, K, T * H * DK);
        rounded_tensor(p->rows, V, T * H * DV);
        attend(p, q, K, V, DK, DV, false, heads);
    }
    rounded_tensor(p->output, heads, T * H * DV); /* of TF32: as W_O reads them */
    read_weight(layer, MHA_W_O, p->weights, W), read_weight(layer, MHA_B_O, p->weights, b);
    times(p, heads, H * DV, T, W, H * DV, D, b, out);
    rounded_tensor(rounded_stored(p->output), out, T * D);
}

/* ---------------------------------------------------------------- a layer */

typedef struct fixture {
    mha_layer *layer;
    mha_call call;
    float x[T * D];
} fixture;

static int setup(void **state)
{
    static fixture f;
    const mha_config config = {.d_model = D, .n_heads = H, .d_k = DK, .d_v = DV, .d_rope = R, .kv_rank = RANK,
                               .q_rank = Q_RANK, .bias_latent = true, .bias_o = true};
    f.layer = made_layer(config, 5);
    for (mha_weight w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_tensor *tensor = mha_layer_weight(f.layer, w);
        if (tensor) {
            const mha_view v = mha_tensor_view(tensor);
            mha_random_fill(&v, 5, w, -1, 1);
        }
    }
    f.call = (mha_call){.query = mha_rows(f.x, 1, T, D), .semantics.visible.causal = true, .path = MHA_PATH_EXACT,
                        .threads = 2};
    mha_random_fill(&f.call.query, 6, 0, -1, 1);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    mha_layer_destroy(((fixture *)*state)->layer);
    return 0;
}

static void run_exact(const fixture *f, const mha_precision *p, bool absorbed, double *out)
{
    mha_error error;
    mha_call call = f->call;
    call.precision = *p, call.absorbed = absorbed;
    call.output = mha_view_of(out, MHA_F64, 3, (const size_t[]){1, T, D});
    assert_ok(mha_run(f->layer, &call, &error), error);
}

static double farthest(const double *x, const double *y)
{
    double most = 0;
    for (size_t i = 0; i < T * D; i++)
        most = fmax(most, fabs(x[i] - y[i]));
    return most;
}

/* ---------------------------------------------------------------- tests */

/* Each point on its own, and all of a fused kernel together: the numbers of the definition, within the bound. */
static void every_point_is_rounded_as_defined(void **state)
{
    const fixture *f = *state;
    double found[T * D], expected[T * D], plain[T * D];
    for (int absorbed = 0; absorbed < 2; absorbed++) {
        run_exact(f, &(mha_precision){.inputs = MHA_F32}, absorbed, plain);
        for (size_t t = 0; t < TYPES; t++)
            for (size_t point = 0; point < 8; point++) {
                mha_precision p = {.inputs = MHA_F32};
                mha_dtype *const points[] = {&p.inputs, &p.weights, &p.rows, &p.probabilities, &p.output, &p.scores,
                                             &p.sums};
                mha_error error;
                double bound[MHA_STAGE_COUNT];
                if (point < 7)
                    *points[point] = types[t];
                else
                    p = mha_precision_of(types[t]);
                if ((point == 5 || point == 6) && (rounded_scaled(types[t]) || types[t] == MHA_TF32))
                    continue;
                run_exact(f, &p, absorbed, found);
                model(f->layer, f->x, &p, absorbed, expected);
                mha_call call = f->call;
                call.precision = p, call.absorbed = absorbed;
                assert_ok(mha_error_bound(f->layer, &call, 0x1p-53, bound, MHA_STAGE_COUNT, &error), error);
                if (!(farthest(found, expected) <= 1e-12))
                    fail_msg("%s, point %zu, absorbed %d: %g off", mha_dtype_name(types[t]), point, absorbed,
                             farthest(found, expected));
                assert_true(farthest(found, plain) > 1e-6);
                assert_true(farthest(found, plain) <= bound[MHA_STAGE_OUTPUT]);
            }
    }
}

static mha_outcome checked(const fixture *f, mha_dtype said, bool absorbed, const double *out)
{
    mha_error error;
    mha_case *c;
    mha_verdict v;
    float narrow[T * D];
    for (size_t i = 0; i < T * D; i++)
        narrow[i] = (float)out[i];
    mha_call call = f->call;
    call.precision = mha_precision_of(said), call.absorbed = absorbed;
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = mha_rows(narrow, 1, T, D)};
    assert_ok(mha_case_of_call(f->layer, &call, &recorded, 1, NULL, &c, &error), error);
    assert_ok(mha_case_check(c, MHA_PATH_EXACT, NULL, 1, &v, &error), error);
    const mha_outcome outcome = v.outcome;
    mha_verdict_clear(&v);
    mha_case_close(c);
    return outcome;
}

/* A kernel that attends to latents where the case says that keys are expanded, and the other way round, is right, too.
 * One of a type with three bits less is not, nor is a single wrong number. */
static void kernels_of_16_bits_are_checked(void **state)
{
    const fixture *f = *state;
    static const struct {
        mha_dtype type, coarser;
    } rows[] = {{MHA_F16, MHA_BF16}, {MHA_TF32, MHA_BF16}, {MHA_BF16, MHA_F8_E4M3}, {MHA_F32, MHA_F16}};
    double out[T * D];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int said = 0; said < 2; said++)
            for (int done = 0; done < 2; done++) {
                const mha_precision own = mha_precision_of(rows[i].type), coarser = mha_precision_of(rows[i].coarser);
                model(f->layer, f->x, &own, done, out);
                assert_int_equal(checked(f, rows[i].type, said, out), MHA_OUTCOME_PASSED);
                model(f->layer, f->x, &coarser, done, out);
                assert_int_equal(checked(f, rows[i].type, said, out), MHA_OUTCOME_FAILED);
                run_exact(f, &own, done, out);
                out[3] += 0.2;
                assert_int_equal(checked(f, rows[i].type, said, out), MHA_OUTCOME_FAILED);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_point_is_rounded_as_defined),
        cmocka_unit_test(kernels_of_16_bits_are_checked),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
