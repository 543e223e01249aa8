/* The diagnosis of a result whose heads were taken for time: (B, h, T, d) given to a function of (B, T, h, d). */
#include "support/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"

enum { D = 8, D_V = 5 };

/* The computation of a case, and the part of it that the case states. */
typedef struct setting {
    size_t B, T, h, h_kv;
    bool causal, softcap, window, heads_first; /* the order of axes in memory */
    mha_dtype dtype;                            /* of the recorded output */
} setting;

static double at(const mha_view *v, size_t b, size_t t, size_t head, size_t f)
{
    return mha_view_get(v, (size_t[]){b, t, head, f});
}

/* Attention over the heads of each position, head by head as if they were tokens. */
static void take_heads_for_time(const setting *s, const mha_view *q, const mha_view *k, const mha_view *v, double *y)
{
    for (size_t b = 0; b < s->B; b++)
        for (size_t t = 0; t < s->T; t++)
            for (size_t i = 0; i < s->h; i++) {
                double weights[16], most = -INFINITY, sum = 0;
                for (size_t j = 0; j < s->h_kv; j++) {
                    double score = 0;
                    for (size_t f = 0; f < D; f++)
                        score += at(q, b, t, i, f) * at(k, b, t, j, f);
                    score /= sqrt(D);
                    if (s->softcap)
                        score = 2 * tanh(score / 2);
                    weights[j] = (s->causal && j > i) || (s->window && j + 1 < i) ? -INFINITY : score;
                    most = fmax(most, weights[j]);
                }
                for (size_t j = 0; j < s->h_kv; j++)
                    sum += weights[j] = most == -INFINITY ? 0 : exp(weights[j] - most);
                double *to = y + ((b * s->T + t) * s->h + i) * D_V;
                for (size_t f = 0; f < D_V; f++) {
                    to[f] = 0;
                    for (size_t j = 0; j < s->h_kv && sum > 0; j++)
                        to[f] += weights[j] / sum * at(v, b, t, j, f);
                }
            }
}

/* (B, T, h, d) in either order of memory. */
static mha_view make_view(void *data, mha_dtype dtype, const setting *s, size_t heads, size_t d)
{
    if (!s->heads_first)
        return mha_view_of(data, dtype, 4, (const size_t[]){s->B, s->T, heads, d});
    const mha_view first = mha_view_of(data, dtype, 4, (const size_t[]){s->B, heads, s->T, d});
    return mha__view_swap(&first, 1, 2);
}

/* The diagnosis of such a result, or of the right one. */
static mha_diagnosis diagnose(const setting *s, bool right)
{
    const size_t n = s->B * s->T * s->h;
    float *x[3];
    double *y = calloc(n * D_V, sizeof *y), *stored = calloc(n * D_V, sizeof *stored);
    mha_call call = {.semantics.visible.causal = s->causal, .path = MHA_PATH_EXACT};
    mha_view *const views[] = {&call.query, &call.key, &call.value};
    mha_diagnosis d;
    mha_error error;
    mha_case *c;
    for (int i = 0; i < 3; i++) {
        x[i] = calloc(n * D, sizeof *x[i]);
        *views[i] = make_view(x[i], MHA_F32, s, i ? s->h_kv : s->h, i == 2 ? D_V : D);
        mha_random_fill(views[i], 3, (uint64_t)i, -2, 2);
    }
    if (s->softcap)
        call.semantics.softmax.softcap = 2;
    if (s->window)
        call.semantics.visible.has_window_left = true, call.semantics.visible.window_left = 1;
    const mha_view output = mha_view_of(y, MHA_F64, 4, (const size_t[]){s->B, s->T, s->h, D_V});
    if (right) {
        call.output = output;
        assert_ok(mha_run(NULL, &call, &error), error);
        call.output = (mha_view){0};
    } else {
        take_heads_for_time(s, views[0], views[1], views[2], y);
    }
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = make_view(stored, s->dtype, s, s->h, D_V)};
    assert_int_equal(mha_view_copy(&recorded.view, &output, NULL), MHA_OK);
    assert_ok(mha_case_of_call(NULL, &call, &recorded, 1, NULL, &c, &error), error);
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    mha_case_close(c);
    for (int i = 0; i < 3; i++)
        free(x[i]);
    free(y), free(stored);
    return d;
}

static bool is_named(const mha_diagnosis *d)
{
    bool named = false;
    for (size_t i = 0; i < d->match_count; i++)
        named |= d->matches[i].exact && d->matches[i].count == 1 && strcmp(d->matches[i].bugs[0], "heads-as-time") == 0;
    return named;
}

/* Causal or not, with what else a function takes, grouped or not, in both orders of memory and each type. */
static void heads_taken_for_time_are_named(void **state)
{
    (void)state;
    static const mha_dtype dtypes[] = {MHA_F32, MHA_F64, MHA_F32, MHA_F16};
    static const size_t sizes[][4] = {{1, 6, 4, 4}, {2, 5, 6, 3}, {2, 4, 4, 2}, {1, 1, 4, 4}, {3, 9, 2, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned bits = 0; bits < 16; bits++) {
            const setting s = {.B = sizes[i][0], .T = sizes[i][1], .h = sizes[i][2], .h_kv = sizes[i][3],
                               .causal = bits & 1, .softcap = bits & 2, .window = bits & 4, .heads_first = bits & 8,
                               .dtype = dtypes[(i + bits) % 4]};
            mha_diagnosis d = diagnose(&s, false);
            if (!is_named(&d))
                fail_msg("sizes %zu, bits %u: %zu matches, the first %s", i, bits, d.match_count,
                         d.match_count && d.matches[0].count ? d.matches[0].bugs[0] : "without a name");
            mha_diagnosis_clear(&d);
            d = diagnose(&s, true);
            assert_true(d.match_count == 1 && d.matches[0].count == 0 && d.matches[0].exact);
            mha_diagnosis_clear(&d);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(heads_taken_for_time_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
