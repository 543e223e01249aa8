/* Numbers under stress, on every path: the largest logits, NaN and infinity at every place of the inputs, a million
 * keys. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/call.h"
#include "support/compare.h"
#include "support/snapshot.h"
#include "support/trial.h"
#include "support/unit.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const mha_path paths[] = {MHA_PATH_FAST, MHA_PATH_BLAS, MHA_PATH_EXACT};

/* ---------------------------------------------------------------- logits written down */

enum { QUERIES = 6, KEYS = 320, WIDTH = 3 };

/* Queries are unit vectors, scale is 1: query i and key j have exactly the logit keys[j][i]. Values are whole. */
typedef struct table {
    float query[QUERIES][QUERIES], key[KEYS][QUERIES], value[KEYS][WIDTH], output[QUERIES][WIDTH];
} table;

static void write_down(table *t)
{
    memset(t, 0, sizeof *t);
    for (size_t i = 0; i < QUERIES; i++)
        t->query[i][i] = 1;
    for (size_t j = 0; j < KEYS; j++)
        for (size_t c = 0; c < WIDTH; c++)
            t->value[j][c] = (float)((j * 37 + c * 11) % 64) - 20;
}

static void run_table(table *t, mha_path path, int threads)
{
    mha_call call = {.query = mha_view_of(t->query, MHA_F32, 4, (size_t[]){1, QUERIES, 1, QUERIES}),
                     .key = mha_view_of(t->key, MHA_F32, 4, (size_t[]){1, KEYS, 1, QUERIES}),
                     .value = mha_view_of(t->value, MHA_F32, 4, (size_t[]){1, KEYS, 1, WIDTH}),
                     .semantics = {.softmax = {.has_scale = true, .scale = 1}}, .path = path, .threads = threads};
    call.output = mha_view_of(t->output, MHA_F32, 3, (size_t[]){1, QUERIES, WIDTH});
    memset(t->output, 0xFF, sizeof t->output);
    run_call(NULL, &call);
}

static const float sizes[] = {1e4f, 1e10f, 1e20f, 1e30f, 3e38f};

/* One logit is ahead of all others by more than exp can express (1e4 / 2): its value is the answer, to the bit. Two
 * such share: values are whole numbers below 2^6, so their mean is exact too. */
static void the_largest_logit_wins_whatever_its_size(void **state)
{
    (void)state;
    static table t;
    for (size_t p = 0; p < COUNT(paths); p++)
        for (size_t a = 0; a < COUNT(sizes); a++)
            for (int shared = 0; shared < 2; shared++) {
                const float A = sizes[a];
                size_t first[QUERIES], second[QUERIES];
                write_down(&t);
                for (size_t i = 0; i < QUERIES; i++) {
                    first[i] = i * (KEYS - 1) / (QUERIES - 1), second[i] = shared ? (first[i] + 131) % KEYS : first[i];
                    for (size_t j = 0; j < KEYS; j++)
                        t.key[j][i] = j == first[i] || j == second[i] ? A : j % 3 == 0 ? -A : j % 3 == 1 ? A / 2 : 0;
                }
                run_table(&t, paths[p], 1 + (int)(a % 3));
                for (size_t i = 0; i < QUERIES; i++)
                    for (size_t c = 0; c < WIDTH; c++) {
                        float expected = (t.value[first[i]][c] + t.value[second[i]][c]) / 2;
                        if (t.output[i][c] != expected)
                            fail_msg("%s, logits of %g, query %zu: found %.9g, expected %g", mha_path_name(paths[p]),
                                     (double)A, i, (double)t.output[i][c], (double)expected);
                    }
            }
}

/* ---------------------------------------------------------------- NaN and infinity */

static float *at(const mha_view *v, size_t element)
{
    ptrdiff_t offset = 0;
    for (int k = v->rank - 1; k >= 0; k--)
        offset += (ptrdiff_t)(element % v->shape[k]) * v->stride[k], element /= v->shape[k];
    return (float *)v->data + offset;
}

static void forget(rig *r)
{
    for (int k = 0; k < 2; k++)
        if (r->has_expected[k]) {
            oracle_free(&r->expected[k]);
            r->has_expected[k] = false;
        }
}

/* Runs every path as things are and holds it against the oracle. */
static void hold(rig *r, const char *what, size_t place, float x)
{
    forget(r);
    for (size_t p = 0; p < COUNT(paths); p++)
        for (int whole = 0; whole < 1 + (paths[p] == MHA_PATH_FAST); whole++) { /* kept scores go another way there */
            mha_error error;
            char text[300];
            unsigned keep = whole || paths[p] != MHA_PATH_FAST ? trial_stages(r) : TRIAL_OUTPUT;
            mha_status status = trial_run(r, paths[p], 1 + (int)(place % 2), keep, MHA_F32, &error);
            if (status != MHA_OK)
                fail_msg("%s: %s", mha_path_name(paths[p]), error.message);
            if (!trial_check(r, paths[p], text, sizeof text))
                fail_msg("%s, %g in %s at element %zu: %s", mha_path_name(paths[p]), (double)x, what, place, text);
        }
}

static const float strange[] = {NAN, INFINITY, -INFINITY};

/* Every element of `v` in turn becomes each strange number. */
static void everywhere(rig *r, const mha_view *v, const char *what)
{
    for (size_t e = 0; e < mha_view_elements(v); e++)
        for (size_t s = 0; s < COUNT(strange); s++) {
            float *place = at(v, e), before = *place;
            *place = strange[s];
            hold(r, what, e, strange[s]);
            *place = before;
        }
}

static trial small(uint64_t seed)
{
    return (trial){.seed = seed, .B = 1, .T_q = 4, .T_k = 5, .config = {.d_model = 4, .n_heads = 2, .bias_q = true,
                   .bias_k = true, .bias_v = true, .bias_o = true}, .semantics.visible.causal = true};
}

static void strange_inputs_reach_those_who_see_them(void **state)
{
    (void)state;
    for (uint64_t k = 0; k < 3; k++) { /* a layer, a packed one, heads */
        trial t = small(k);
        rig r;
        t.bare = k == 2;
        trial_build(&t, &r);
        everywhere(&r, &r.call.query, "query");
        everywhere(&r, &r.call.key, "key");
        everywhere(&r, &r.call.value, "value");
        trial_release(&r);
    }
}

/* ---------------------------------------------------------------- a million keys */

enum { MILLION = 1000000, NARROW = 4 };

/* One query in double, in the order of the definition. */
static void attend_in_double(const float *q, const float *K, const float *V, double *out)
{
    double *score = malloc(MILLION * sizeof *score), most = -INFINITY, sum = 0;
    for (size_t j = 0; j < MILLION; j++) {
        score[j] = 0;
        for (size_t c = 0; c < NARROW; c++)
            score[j] += (double)q[c] * (double)K[j * NARROW + c] / sqrt(NARROW);
        most = fmax(most, score[j]);
    }
    memset(out, 0, NARROW * sizeof *out);
    for (size_t j = 0; j < MILLION; j++) {
        double w = exp(score[j] - most);
        sum += w;
        for (size_t c = 0; c < NARROW; c++)
            out[c] += w * (double)V[j * NARROW + c];
    }
    for (size_t c = 0; c < NARROW; c++)
        out[c] /= sum;
    free(score);
}

static void a_million_keys_stay_within_the_bound(void **state)
{
    (void)state;
    float *q = malloc(NARROW * sizeof *q), *K = malloc(2 * (size_t)MILLION * NARROW * sizeof *K),
          *V = K + (size_t)MILLION * NARROW;
    const size_t one[4] = {1, 1, 1, NARROW}, all[4] = {1, MILLION, 1, NARROW};
    const mha_view query = mha_view_of(q, MHA_F32, 4, one), key = mha_view_of(K, MHA_F32, 4, all),
                   value = mha_view_of(V, MHA_F32, 4, all);
    mha_random_fill(&query, 5, 1, -3, 3);
    mha_random_fill(&key, 5, 2, -2, 2);
    mha_random_fill(&value, 5, 3, 0, 1); /* of one sign: what is lost does not cancel */
    double exact[NARROW], worst[COUNT(paths)] = {0}, allowed[COUNT(paths)];
    attend_in_double(q, K, V, exact);
    for (size_t p = 0; p < COUNT(paths); p++) {
        float found[NARROW];
        double wide[NARROW], bound[MHA_STAGE_COUNT];
        bool check = paths[p] == MHA_PATH_EXACT;
        mha_call call = {.query = query, .key = key, .value = value, .path = paths[p], .threads = 2};
        mha_error error;
        call.output = mha_view_of(check ? (void *)wide : found, check ? MHA_F64 : MHA_F32, 3, (size_t[]){1, 1, NARROW});
        run_call(NULL, &call);
        assert_ok(mha_error_bound(NULL, &call, check ? 0x1p-53 : 0x1p-24, bound, MHA_STAGE_COUNT, &error), error);
        /* the double loop above is itself off by as much as the exact path may be */
        double own[MHA_STAGE_COUNT];
        assert_ok(mha_error_bound(NULL, &call, 0x1p-53, own, MHA_STAGE_COUNT, &error), error);
        allowed[p] = bound[MHA_STAGE_OUTPUT] + own[MHA_STAGE_OUTPUT] + (check ? 0 : 0x1p-25);
        for (size_t c = 0; c < NARROW; c++)
            worst[p] = fmax(worst[p], fabs((check ? wide[c] : (double)found[c]) - exact[c]));
        print_message("%s: a million keys, off by %.2g, bound %.2g\n", mha_path_name(paths[p]), worst[p], allowed[p]);
        assert_true(worst[p] <= allowed[p]);
    }
    /* One key is far ahead, at the beginning, in the middle, at the end: its value, to the bit. */
    static const size_t places[] = {0, 499999, MILLION - 1};
    for (size_t p = 0; p < COUNT(paths); p++)
        for (size_t k = 0; k < COUNT(places); k++) {
            float found[NARROW], *ahead = K + places[k] * NARROW, before[NARROW];
            memcpy(before, ahead, sizeof before);
            for (size_t c = 0; c < NARROW; c++)
                ahead[c] = 1000 * q[c];
            mha_call call = {.query = query, .key = key, .value = value, .path = paths[p], .threads = 3};
            call.output = mha_view_of(found, MHA_F32, 3, (size_t[]){1, 1, NARROW});
            run_call(NULL, &call);
            assert_memory_equal(found, V + places[k] * NARROW, sizeof found);
            memcpy(ahead, before, sizeof before);
        }
    free(q);
    free(K);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, guard_teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_largest_logit_wins_whatever_its_size),
        TEST(strange_inputs_reach_those_who_see_them),
        TEST(a_million_keys_stay_within_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
