/* The streaming core: against the textbook in double, with every way a key can be hidden, with poison in
 * what is hidden, cut into segments or not, alone or in company, between guard pages. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/core/flash/online_softmax.h"
#include "mha/random.h"
#include "mha/system.h"
#include "support/guard.h"
#include "support/isa.h"
#include "support/unit.h"

/* A problem with everything it needs; rows see what `see` says. */
typedef struct problem {
    size_t rows, keys, d_k, d_v, extra, logits;
    bool bias, cap;
    bool stretches; /* the bias hides stretches of keys; to the others it adds nothing, or most to the last */
    enum { ALL, CAUSAL, WINDOW, NOTHING } see;

    mha__flash stream;
    mha__flash_row row[64];
    float *q, *out, *lse, *bias_values, *logit_values, *scratch;
    float *K, *V, *K_extra, *V_extra;
} problem;

static float *floats(size_t n, uint64_t stream, float size)
{
    float *x = guard_allocate(n * sizeof *x, GUARD_AFTER, 0);
    for (size_t i = 0; i < n; i++)
        x[i] = size * (2.0f * mha__random_unit(11, stream, i) - 1.0f);
    return x;
}

/* Without stretches every fourth row has no bias. */
static bool has_bias(const problem *p, size_t row)
{
    return p->bias && (p->stretches || row % 4 != 3);
}

static const float *bias_of(void *context, size_t row, size_t key, size_t n, float *room)
{
    const problem *p = context;
    if (!has_bias(p, row))
        return NULL;
    memcpy(room, p->bias_values + row * p->keys + key, n * sizeof *room);
    return room;
}

static bool hides(const problem *p, size_t row, size_t key)
{
    return has_bias(p, row) && p->bias_values[row * p->keys + key] == -INFINITY;
}

/* Takes off all that is hidden at the ends; of the first rows only some of it. */
static void trim_of(void *context, const mha__flash_row *rows, size_t count, mha__row_keys *keys)
{
    const problem *p = context;
    for (size_t i = 0; i < count; i++) {
        const size_t row = rows[i].name, most = row < 8 ? 40 : SIZE_MAX;
        if (!keys[i].has_bias)
            continue;
        assert_true(keys[i].begin < keys[i].end);
        for (size_t n = 0; n < most && keys[i].begin < keys[i].end && hides(p, row, keys[i].begin); n++)
            keys[i].begin++;
        for (size_t n = 0; n < most && keys[i].begin < keys[i].end && hides(p, row, keys[i].end - 1); n++)
            keys[i].end--;
        bool adds = false;
        for (size_t j = keys[i].begin; j < keys[i].end; j++)
            adds |= has_bias(p, row) && p->bias_values[row * p->keys + j] != 0.0f;
        keys[i].has_bias = adds;
    }
}

static void set_up(problem *p)
{
    const size_t k_stride = p->d_k + 3, v_stride = p->d_v + 5;
    p->q = floats(p->rows * p->d_k, 1, 2.0f);
    p->out = floats(p->rows * p->d_v, 9, 1.0f);
    p->lse = floats(p->rows, 9, 1.0f);
    p->K = floats((p->keys ? p->keys - 1 : 0) * k_stride + p->d_k, 2, 2.0f);
    p->V = floats((p->keys ? p->keys - 1 : 0) * v_stride + p->d_v, 3, 1.0f);
    p->K_extra = floats(2 * p->d_k, 4, 2.0f);
    p->V_extra = floats(2 * p->d_v, 5, 1.0f);
    p->bias_values = floats(p->rows * p->keys, 6, 3.0f);
    for (size_t i = 0; i < p->rows * p->keys; i++)
        if (mha__random_unit(12, 1, i) < 0.2f)
            p->bias_values[i] = -INFINITY;
    for (size_t i = 0; i < p->rows * p->keys && p->stretches; i++) {
        const size_t row = i / p->keys, key = i % p->keys;
        if (row / 6 != 1 ? (row / 3 + key / 160) % 5 != 0 : key / 200 != row / 6)
            p->bias_values[i] = -INFINITY;
        else
            p->bias_values[i] = row % 8 == 2 ? 0.0f : p->bias_values[i] + 0.005f * (float)key;
    }
    p->logit_values = floats(2, 7, 2.0f);
    p->scratch = guard_allocate((mha__flash_scratch(p->rows, p->d_k, p->d_v) + 63) / 64 * 64, GUARD_AFTER, 0xff);
    p->stream = (mha__flash){
        .d_k = p->d_k,
        .d_v = p->d_v,
        .scale = 0.3f,
        .softcap = p->cap ? 5.0f : 0.0f,
        .keys = {.K = p->K, .V = p->V, .k_stride = k_stride, .v_stride = v_stride, .n = p->keys},
        .extra = {.K = p->K_extra, .V = p->V_extra, .k_stride = p->d_k, .v_stride = p->d_v, .n = p->extra},
        .bias = p->bias ? bias_of : NULL,
        .context = p,
        .empty = 0.0f};
    for (size_t i = 0; i < p->rows; i++) {
        size_t end = p->see == CAUSAL ? i * p->keys / p->rows + 1 : p->keys;
        size_t begin = p->see == WINDOW ? i * p->keys / p->rows : 0;
        if (p->see == WINDOW)
            end = begin + p->keys / 3 + 1 < p->keys ? begin + p->keys / 3 + 1 : p->keys;
        if (p->see == NOTHING)
            end = begin;
        p->row[i] = (mha__flash_row){p->q + i * p->d_k,
                                     p->out + i * p->d_v,
                                     p->lse + i,
                                     begin,
                                     end < p->keys ? end : p->keys,
                                     i,
                                     p->logit_values,
                                     p->logits};
    }
}

static bool sees(const problem *p, size_t i, size_t j)
{
    return j >= p->row[i].begin && j < p->row[i].end && !hides(p, i, j);
}

/* Row i in double, by the textbook; the largest magnitude a score had on its way, and that of a visible value. */
static void textbook(const problem *p, size_t i, double *out, double *lse, double *largest, double *value)
{
    const mha__flash *s = &p->stream;
    const size_t n = p->keys + p->extra;
    double *score = malloc((n + 1) * sizeof *score), max = -INFINITY, sum = 0.0;
    size_t seen = 0;
    *largest = *value = 0.0;
    for (size_t j = 0; j < n; j++) {
        const float *k = j < p->keys ? p->K + j * s->keys.k_stride : p->K_extra + (j - p->keys) * p->d_k;
        score[j] = -INFINITY;
        if (j < p->keys && !sees(p, i, j))
            continue;
        double x = 0.0, size = 0.0;
        for (size_t e = 0; e < p->d_k; e++) {
            x += (double)p->row[i].q[e] * k[e];
            size += fabs((double)p->row[i].q[e] * k[e]);
        }
        x *= s->scale;
        if (p->cap)
            x = 5.0 * tanh(x / 5.0);
        if (has_bias(p, i) && j < p->keys)
            x += p->bias_values[i * p->keys + j];
        score[j] = x;
        max = x > max ? x : max;
        *largest = size * s->scale + 8.0 > *largest ? size * s->scale + 8.0 : *largest;
        seen++;
    }
    for (size_t l = 0; l < p->logits; l++)
        max = p->logit_values[l] > max ? p->logit_values[l] : max;
    for (size_t l = 0; l < p->logits; l++)
        sum += exp(p->logit_values[l] - max);
    for (size_t e = 0; e < p->d_v; e++)
        out[e] = 0.0;
    for (size_t j = 0; j < n; j++) {
        if (score[j] == -INFINITY)
            continue;
        const float *v = j < p->keys ? p->V + j * s->keys.v_stride : p->V_extra + (j - p->keys) * p->d_v;
        sum += exp(score[j] - max);
        for (size_t e = 0; e < p->d_v; e++) {
            out[e] += exp(score[j] - max) * v[e];
            *value = fabs((double)v[e]) > *value ? fabs((double)v[e]) : *value;
        }
    }
    for (size_t e = 0; e < p->d_v; e++)
        out[e] = seen ? out[e] / sum : p->logits ? 0.0 : (double)s->empty;
    *lse = seen || p->logits ? max + log(sum) : -INFINITY;
    free(score);
}

/* A score carries (d_k + 8) u of the sum of its terms' magnitudes (scaling q, the chain, cap, bias, the maximum), exp
 * makes that a relative error of a weight and adds 1.02 ULP for itself and for each rescaling; the sums over n
 * keys add n u at worst. A weighted mean moves by at most twice the relative error of its weights, times the
 * largest value, and carries its own chain's n u. */
static void check(const problem *p)
{
    const double u = 0x1p-24;
    double *out = malloc(p->d_v * sizeof *out), lse, largest, value;
    for (size_t i = 0; i < p->rows; i++) {
        textbook(p, i, out, &lse, &largest, &value);
        const size_t n = p->keys + p->extra;
        double score = ((double)p->d_k + 8) * u * largest,
               weights = 2 * score + ((double)n + 4 * ((double)n / 64 + 8)) * u;
        double bound = (2 * weights + (double)n * u) * value;
        for (size_t e = 0; e < p->d_v; e++)
            if (!(fabs(p->row[i].out[e] - out[e]) <= bound + FLT_MIN))
                fail_msg("%s: rows %zu keys %zu d_k %zu d_v %zu extra %zu logits %zu bias %d cap %d see %d: "
                         "out[%zu][%zu] expected "
                         "%.9g, found %.9g, bound %.3g",
                         mha_isa(), p->rows, p->keys, p->d_k, p->d_v, p->extra, p->logits, p->bias, p->cap, (int)p->see,
                         i, e, out[e], p->row[i].out[e], bound);
        if (isinf(lse))
            assert_true((double)*p->row[i].lse == lse);
        else
            assert_true(fabs(*p->row[i].lse - lse) <= score + weights + 4 * u * (fabs(lse) + 1.0));
    }
    free(out);
}

static void outputs_agree_with_the_textbook(void **state)
{
    static const size_t keys[] = {1, 2, 15, 16, 17, 31, 33, 255, 256, 257, 511, 512, 513, 600, 1023, 1024, 1025, 2100};
    static const size_t widths[][2] = {{64, 64}, {1, 1},     {3, 7},     {16, 17},  {40, 40},
                                       {33, 80}, {128, 128}, {192, 128}, {300, 264}};
    FOR_EACH_ISA
    for (size_t a = 0; a < sizeof keys / sizeof *keys; a++)
        for (size_t b = 0; b < sizeof widths / sizeof *widths; b++) {
            size_t turn = a * 9 + b; /* the rest takes turns, so that every pair of features meets somewhere */
            if (keys[a] > 600 && b > 1 && turn % 3)
                continue;
            problem p = {.rows = (const size_t[]){1, 2, 5, 14, 15, 29, 31}[turn % 7],
                         .keys = keys[a],
                         .d_k = widths[b][0],
                         .d_v = widths[b][1],
                         .extra = turn % 5 == 4 ? 2 : turn % 5 == 2,
                         .logits = turn % 4 == 3 ? 2 : turn % 4 == 1,
                         .bias = turn % 2,
                         .cap = turn % 3 == 1,
                         .see = (const int[]){ALL, CAUSAL, WINDOW, CAUSAL, WINDOW, ALL, NOTHING}[(turn + a) % 7]};
            set_up(&p);
            mha__flash_rows(&p.stream, p.row, p.rows, p.scratch);
            check(&p);
            guard_release_all();
        }
}

/* Computes the segments of `p` apart, the last one first, and joins them. */
static void in_segments(const problem *p)
{
    const size_t segments = mha__flash_segments(&p->stream), floats_of_one = mha__flash_partial_floats(p->rows, p->d_v);
    float *memory = floats((segments + 1) * floats_of_one, 1, 1.0f);
    const mha__partial total = mha__partial_at(memory + segments * floats_of_one, p->rows, p->d_v);
    mha__partial_clear(&total, p->rows);
    for (size_t s = segments; s-- > 0;) {
        const mha__partial part = mha__partial_at(memory + s * floats_of_one, p->rows, p->d_v);
        mha__flash_segment(&p->stream, p->row, p->rows, s, false, &part, p->scratch);
    }
    for (size_t s = 0; s < segments; s++) {
        const mha__partial part = mha__partial_at(memory + s * floats_of_one, p->rows, p->d_v);
        mha__partial_join(&p->stream, &total, &part, p->rows);
    }
    mha__partial_finish(&p->stream, p->row, p->rows, &total);
}

/* The output of `p` computed once more: in segments, by single rows, with other memory. All bits must agree. */
static void the_bits_depend_on_neither_segments_nor_company(void **state)
{
    static const size_t keys[] = {1, 300, 1024, 1025, 3000};
    FOR_EACH_ISA
    for (size_t a = 0; a < 5; a++)
        for (int form = 0; form < 12; form++) {
            problem p = {.rows = 31,
                         .keys = keys[a],
                         .d_k = 64,
                         .d_v = form < 6 ? 48 : form % 2 ? 40 : 24, /* whole vectors of sixteen, or half of one left */
                         .extra = form % 6 == 4,
                         .logits = form % 6 == 5,
                         .bias = form % 2,
                         .see = (const int[]){ALL, CAUSAL, WINDOW}[form % 3]};
            set_up(&p);
            mha__flash_rows(&p.stream, p.row, p.rows, p.scratch);
            float *once = floats(p.rows * p.d_v, 1, 1.0f), *lse = floats(p.rows, 1, 1.0f);
            memcpy(once, p.out, p.rows * p.d_v * sizeof *once);
            memcpy(lse, p.lse, p.rows * sizeof *lse);

            memset(p.out, 0xff, p.rows * p.d_v * sizeof *once);
            assert_int_equal(mha__flash_segments(&p.stream), (keys[a] - 1) / MHA_SEGMENT + 1 + p.extra);
            in_segments(&p);
            assert_memory_equal(once, p.out, p.rows * p.d_v * sizeof *once);
            assert_memory_equal(lse, p.lse, p.rows * sizeof *lse);

            memset(p.out, 0xff, p.rows * p.d_v * sizeof *once);
            for (size_t i = 0; i < p.rows; i++) {
                memset(p.scratch, 0xff, mha__flash_scratch(1, p.d_k, p.d_v));
                mha__flash_rows(&p.stream, p.row + i, 1, p.scratch);
            }
            assert_memory_equal(once, p.out, p.rows * p.d_v * sizeof *once);
            guard_release_all();
        }
}

/* Few keys have a core of their own, which segments do not use. All bits must agree. */
static void few_keys_have_the_bits_of_segments(void **state)
{
    enum { PLAIN, LOGITS, INFINITE, LARGE_SCALE, KINDS, SIZES = 8 * 5 };
    static const size_t keys[] = {1, 5, 16, 31, 48, 63, 64, 65}, rows[] = {1, 4, 8, 16, 49};
    FOR_EACH_ISA
    for (int form = 0; form < SIZES * 4 * KINDS; form++) {
        const int kind = form / SIZES % KINDS, size = form % SIZES;
        problem p = {.rows = rows[size % 5],
                     .keys = keys[size / 5],
                     .d_k = size % 3 ? 64 : 37,
                     .d_v = 48,
                     .logits = kind == LOGITS,
                     .see = (const int[]){ALL, CAUSAL, WINDOW, NOTHING}[form / SIZES / KINDS]};
        set_up(&p);
        if (kind == INFINITE) /* rows that do not see it must not meet it */
            p.V[p.keys / 2 * p.stream.keys.v_stride] = INFINITY;
        if (kind == LARGE_SCALE) { /* scale * q overflows, and the product with k does not */
            p.stream.scale = 2.0f;
            p.q[0] = FLT_MAX;
            for (size_t j = 0; j < p.keys; j++)
                p.K[j * p.stream.keys.k_stride] *= 0x1p-126f;
        }
        mha__flash_rows(&p.stream, p.row, p.rows, p.scratch);
        float *once = floats(p.rows * p.d_v, 1, 1.0f), *lse = floats(p.rows, 1, 1.0f);
        memcpy(once, p.out, p.rows * p.d_v * sizeof *once);
        memcpy(lse, p.lse, p.rows * sizeof *lse);
        memset(p.out, 0xff, p.rows * p.d_v * sizeof *once);
        in_segments(&p);
        if (memcmp(once, p.out, p.rows * p.d_v * sizeof *once) != 0 || memcmp(lse, p.lse, p.rows * sizeof *lse) != 0)
            fail_msg("%s: %zu rows, %zu keys, kind %d, see %d: other bits than the segment", mha_isa(), p.rows, p.keys,
                     kind, (int)p.see);
        guard_release_all();
    }
}

/* Hidden keys at the ends of what a row sees, of all of it or of a block, may be taken off or not: the same bits,
 * also with values that are not finite among those that nobody sees. */
static void trimming_changes_no_bit(void **state)
{
    static const size_t keys[] = {1, 40, 300, 512, 1100, 2100};
    FOR_EACH_ISA
    for (size_t a = 0; a < 6; a++)
        for (int form = 0; form < 12; form++) {
            problem p = {.rows = (const size_t[]){1, 4, 31}[form % 3],
                         .keys = keys[a],
                         .d_k = form % 2 ? 64 : 130,
                         .d_v = form % 2 ? 48 : 128,
                         .extra = form % 5 == 4,
                         .bias = true,
                         .stretches = form % 4 != 3,
                         .cap = form == 7,
                         .see = (const int[]){ALL, CAUSAL, WINDOW}[form / 4]};
            set_up(&p);
            for (size_t j = 0; j < p.keys; j += 37) {
                bool seen = false;
                for (size_t i = 0; i < p.rows; i++)
                    seen |= sees(&p, i, j);
                if (!seen)
                    p.V[j * p.stream.keys.v_stride] = p.K[j * p.stream.keys.k_stride] = NAN;
            }
            mha__flash_rows(&p.stream, p.row, p.rows, p.scratch);
            check(&p);
            const size_t outputs = p.rows * p.d_v * sizeof(float);
            float *once = floats(p.rows * p.d_v, 1, 1.0f);
            memcpy(once, p.out, outputs);

            p.stream.trim = trim_of;
            memset(p.out, 0xff, outputs);
            mha__flash_rows(&p.stream, p.row, p.rows, p.scratch);
            assert_memory_equal(once, p.out, outputs);

            memset(p.out, 0xff, outputs);
            in_segments(&p);
            assert_memory_equal(once, p.out, outputs);
            guard_release_all();
        }
}

/* Keys that a row does not see may hold anything, also if its neighbour sees them. */
static void hidden_keys_contribute_nothing(void **state)
{
    const float poison[] = {NAN, INFINITY, -INFINITY, 3e38f};
    FOR_EACH_ISA
    for (int see = ALL; see <= WINDOW; see++)
        for (int form = 0; form < 4; form++)
            for (size_t z = 0; z < 4; z++) {
                const bool bias = form & 1,
                           few = form & 2; /* few: values are read where they lie, if all rows see all */
                problem p = {
                    .rows = few ? 4 : 20, .keys = 600, .d_k = 32, .d_v = few ? 48 : 40, .bias = bias, .see = see};
                set_up(&p);
                mha__flash_rows(&p.stream, p.row, p.rows, p.scratch);
                float *clean = floats(p.rows * p.d_v, 1, 1.0f);
                memcpy(clean, p.out, p.rows * p.d_v * sizeof *clean);
                const size_t bad[] = {0, 1, 37, 511, 512, 513, 599};
                const size_t first = see == CAUSAL ? 2 : 0; /* the first row sees the first key */
                for (size_t b = first; b < 7; b++) {
                    p.K[bad[b] * p.stream.keys.k_stride + b] = poison[z];
                    p.V[bad[b] * p.stream.keys.v_stride + 3 * b] = poison[z];
                }
                mha__flash_rows(&p.stream, p.row, p.rows, p.scratch);
                size_t untouched = 0;
                for (size_t i = 0; i < p.rows; i++) {
                    bool sees_bad = false, finite = true;
                    for (size_t b = first; b < 7; b++)
                        sees_bad |= sees(&p, i, bad[b]);
                    for (size_t e = 0; e < p.d_v; e++)
                        finite &= isfinite(p.out[i * p.d_v + e]);
                    if (!sees_bad)
                        assert_memory_equal(clean + i * p.d_v, p.out + i * p.d_v, p.d_v * sizeof *clean);
                    else
                        assert_true(!finite || z == 3);
                    untouched += !sees_bad;
                }
                assert_true(see == ALL || untouched > 0);
                guard_release_all();
            }
}

static void rows_without_keys_and_scores_without_limits(void **state)
{
    FOR_EACH_ISA
    {
        problem p = {.rows = 3, .keys = 300, .d_k = 16, .d_v = 16, .see = NOTHING};
        set_up(&p);
        p.stream.empty = NAN;
        mha__flash_rows(&p.stream, p.row, p.rows, p.scratch);
        assert_true(isnan(p.out[0]) && isnan(p.out[47]) && isnan(p.lse[0]));
        p.stream.keys.n = 0;
        mha__flash_rows(&p.stream, p.row, p.rows, p.scratch);
        assert_true(isnan(p.out[0]));
        p.stream.empty = 0.0f;
        assert_int_equal(mha__flash_segments(&p.stream), 0);
        in_segments(&p);
        assert_true(p.out[0] == 0.0f && p.out[47] == 0.0f);

        problem q = {.rows = 3, .keys = 600, .d_k = 16, .d_v = 16, .see = ALL};
        set_up(&q);
        for (size_t j = 0; j < 600; j++) /* row 0 sees -inf only, row 1 one +inf, row 2 NaN in the last block */
            q.K[j * q.stream.keys.k_stride] = -INFINITY;
        for (size_t i = 0; i < 3; i++)
            for (size_t e = 0; e < 16; e++)
                q.q[i * 16 + e] = 1.0f;
        q.row[1].end = 200;
        q.K[100 * q.stream.keys.k_stride] = INFINITY;
        q.row[0].end = 90;
        q.K[599 * q.stream.keys.k_stride] = NAN;
        q.row[2].begin = 512;
        mha__flash_rows(&q.stream, q.row, q.rows, q.scratch);
        for (size_t e = 0; e < 48; e++)
            assert_true(isnan(q.out[e]));
        guard_release_all();
    }
}

/* A segment in which a row sees only NaN has no maximum, and is still remembered. */
static void a_segment_of_nothing_but_nan_is_not_forgotten(void **state)
{
    FOR_EACH_ISA
    for (int second = 0; second < 2; second++) {
        problem p = {.rows = 1, .keys = 1030, .d_k = 8, .d_v = 8};
        set_up(&p);
        p.row[0].begin = second ? 1020 : 1023;
        p.row[0].end = second ? 1025 : 1029;
        p.K[(second ? 1024 : 1023) * p.stream.keys.k_stride] = NAN;
        mha__flash_rows(&p.stream, p.row, p.rows, p.scratch);
        for (size_t e = 0; e < p.d_v; e++)
            assert_true(isnan(p.out[e]));
        assert_true(isnan(p.lse[0]));
        guard_release_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(outputs_agree_with_the_textbook, isa_teardown),
        cmocka_unit_test_teardown(the_bits_depend_on_neither_segments_nor_company, isa_teardown),
        cmocka_unit_test_teardown(few_keys_have_the_bits_of_segments, isa_teardown),
        cmocka_unit_test_teardown(trimming_changes_no_bit, isa_teardown),
        cmocka_unit_test_teardown(hidden_keys_contribute_nothing, isa_teardown),
        cmocka_unit_test_teardown(rows_without_keys_and_scores_without_limits, isa_teardown),
        cmocka_unit_test_teardown(a_segment_of_nothing_but_nan_is_not_forgotten, isa_teardown),
    };
    return cmocka_run_group_tests_name("streaming", tests, NULL, NULL);
}
