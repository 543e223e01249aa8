/* Numbers under stress: logits as large as there are, subnormals, NaN and infinity at every place, nothing to see,
 * extents of one, a million keys. On every path, against the oracle or against values that follow by hand. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"
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

/* Equal logits, however far from zero, weigh equally: the mean. 320 terms and as many weights, each off by a few
 * roundings of values below 64: 64 * (2 * 320 + 16) * 2^-24. */
static void equal_logits_give_the_mean_whatever_their_size(void **state)
{
    (void)state;
    static table t;
    for (size_t p = 0; p < COUNT(paths); p++)
        for (size_t a = 0; a < 2 * COUNT(sizes); a++) {
            double mean[WIDTH] = {0};
            write_down(&t);
            for (size_t j = 0; j < KEYS; j++) {
                for (size_t i = 0; i < QUERIES; i++)
                    t.key[j][i] = a % 2 ? -sizes[a / 2] : sizes[a / 2];
                for (size_t c = 0; c < WIDTH; c++)
                    mean[c] += (double)t.value[j][c] / KEYS;
            }
            run_table(&t, paths[p], 2);
            for (size_t i = 0; i < QUERIES; i++)
                for (size_t c = 0; c < WIDTH; c++)
                    if (!(fabs((double)t.output[i][c] - mean[c]) <= 64 * (2 * KEYS + 16) * 0x1p-24))
                        fail_msg("%s, logits of %g: found %.9g, expected %.9g", mha_path_name(paths[p]),
                                 (double)t.key[0][0], (double)t.output[i][c], mean[c]);
        }
}

/* ---------------------------------------------------------------- inputs of every size */

static trial layered(uint64_t seed)
{
    return (trial){.seed = seed,
                   .B = 2,
                   .T_q = 5,
                   .T_k = 40,
                   .config = {.d_model = 12,
                              .n_heads = 2,
                              .kv_heads = 1 + seed % 2,
                              .bias_q = true,
                              .bias_k = true,
                              .bias_v = true,
                              .bias_o = true},
                   .semantics.visible.causal = seed % 2,
                   .semantics.place.has_offset = true,
                   .semantics.place.offset = 35};
}

static trial bare(uint64_t seed)
{
    return (trial){.seed = seed, .B = 1, .T_q = 9, .T_k = 70, .bare = true, .config = {.d_model = 16, .n_heads = 2}};
}

/* From subnormals to where products leave the range of float (the oracle then allows anything on the float paths). */
static void inputs_of_every_size_stay_within_the_bound(void **state)
{
    (void)state;
    static const double amplitudes[] = {1e-44, 1e-40, 1e-38, 1e-30, 1e-19, 1e-5, 1e2, 1e4, 1e8, 1e12, 1e18, 1e25, 3e38};
    for (size_t a = 0; a < COUNT(amplitudes); a++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            trial l = layered(10 * a + seed), b = bare(10 * a + seed);
            l.amplitude = b.amplitude = amplitudes[a];
            l.semantics.softmax.softcap = seed == 3 ? 30 : 0;
            assert_trial(&l);
            assert_trial(&b);
        }
}

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
            if (!trial_judge(r, paths[p], text, sizeof text))
                fail_msg("%s, %g in %s at element %zu: %s", mha_path_name(paths[p]), (double)x, what, place, text);
        }
}

static void values_below_the_normal_range_are_averaged(void **state)
{
    (void)state;
    trial t = bare(3);
    rig r;
    trial_build(&t, &r);
    for (size_t e = 0; e < mha_view_elements(&r.call.value); e++)
        *at(&r.call.value, e) *= 1e-40f;
    hold(&r, "value", 0, 1e-40f);
    trial_release(&r);
}

static void extents_of_one_are_as_good_as_others(void **state)
{
    (void)state;
    for (uint64_t k = 0; k < 64; k++) {
        trial t = {.seed = k, .B = 1 + k % 2, .T_q = 1 + k / 2 % 2, .T_k = 1 + k / 4 % 2,
                   .config = {.d_model = 1 + k / 8 % 2, .n_heads = 1, .d_k = 1, .d_v = 1 + k / 16 % 2, .bias_o = true},
                   .bare = k / 32 % 2, .semantics.visible.causal = k % 3 == 0};
        assert_trial(&t);
    }
}

/* ---------------------------------------------------------------- nothing to see */

static void queries_that_see_nothing_say_so(void **state)
{
    (void)state;
    for (int k = 0; k < 8; k++) {
        trial t = k % 2 ? layered(5) : bare(5);
        rig r;
        t.semantics.visible.causal = true, t.semantics.place.has_offset = true, t.semantics.place.offset = -1000;
        t.semantics.softmax.empty_rows = k / 2 % 2 ? MHA_EMPTY_NAN : MHA_EMPTY_ZERO;
        t.config.sinks = k / 4 % 2;
        trial_build(&t, &r);
        for (size_t e = 0; e < mha_view_elements(&r.call.value); e++) /* nobody looks at them */
            *at(&r.call.key, e % mha_view_elements(&r.call.key)) = NAN, *at(&r.call.value, e) = INFINITY;
        hold(&r, "all that is hidden", 0, NAN);
        trial_release(&r);
    }
}

/* ---------------------------------------------------------------- NaN and infinity everywhere */

static const float strange[] = {NAN, INFINITY, -INFINITY};

/* Every element of `v` in turn becomes each strange number; `layer`: it is told that a weight changed. */
static void everywhere(rig *r, const mha_view *v, const char *what, mha_layer *layer)
{
    for (size_t e = 0; e < mha_view_elements(v); e++)
        for (size_t s = 0; s < COUNT(strange); s++) {
            float *place = at(v, e), before = *place;
            *place = strange[s];
            if (layer)
                mha_layer_repack(layer);
            hold(r, what, e, strange[s]);
            *place = before;
        }
    if (layer)
        mha_layer_repack(layer);
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
        everywhere(&r, &r.call.query, "query", NULL);
        everywhere(&r, &r.call.key, "key", NULL);
        everywhere(&r, &r.call.value, "value", NULL);
        trial_release(&r);
    }
}

static void strange_masks_reach_their_rows(void **state)
{
    (void)state;
    for (uint64_t k = 0; k < 6;
         k++) { /* a mask for each head, and one for all; alone, and added to what distance says */
        trial t = small(3 + k);
        rig r;
        t.bare = k % 2, t.mask_rank = k < 2 ? 4 : 2, t.alibi = k > 3;
        trial_build(&t, &r);
        float numbers[2 * 4 * 5] = {0};
        r.call.semantics.visible.mask =
            (mha_mask){MHA_MASK_ADDITIVE, k < 2 ? mha_view_of(numbers, MHA_F32, 4, (size_t[]){1, 2, 4, 5})
                                                : mha_view_of(numbers, MHA_F32, 2, (size_t[]){4, 5})};
        everywhere(&r, &r.call.semantics.visible.mask.values, "mask", NULL);
        trial_release(&r);
    }
}

static void strange_weights_reach_what_they_feed(void **state)
{
    (void)state;
    for (uint64_t k = 0; k < 2; k++) {
        trial t = small(8 + k);
        rig r;
        trial_build(&t, &r);
        for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
            if (r.weights[w].data)
                everywhere(&r, &r.weights[w], mha_weight_name((mha_weight)w), r.layer);
        trial_release(&r);
    }
}

/* The oracle aside: a NaN in key or value row j changes no bit of a query that does not see j, nor of another head,
 * and leaves nothing finite in the queries that do. Several blocks of keys, each in turn. */
static void a_hidden_nan_changes_no_bit(void **state)
{
    (void)state;
    enum { T = 150, D = 8 };
    for (size_t p = 0; p < COUNT(paths); p++)
        for (size_t j = 0; j < T; j += 13)
            for (int which = 0; which < 2; which++) {
                trial t = {.seed = 2,
                           .B = 1,
                           .T_q = T,
                           .T_k = T,
                           .bare = true,
                           .config = {.d_model = 2 * D, .n_heads = 2},
                           .semantics.visible.causal = true};
                rig r;
                trial_build(&t, &r);
                snapshot clean = snapshot_run(&r, paths[p], 2, MHA_STAGE_OUTPUT, false);
                *at(which ? &r.call.value : &r.call.key, j * 2 * D + D + 3) = NAN; /* of head 1 */
                snapshot spoilt = snapshot_run(&r, paths[p], 2, MHA_STAGE_OUTPUT, false);
                const double *a = clean.view.data, *b = spoilt.view.data;
                for (size_t e = 0; e < (size_t)T * 2 * D; e++) {
                    size_t i = e / (2 * D), c = e % (2 * D);
                    bool reached = i >= j && c >= D && (!which || c == D + 3);
                    bool beside =
                        i >= j && c >= D && !reached; /* other columns of that head: to rounding, values are below 1 */
                    if (reached ? !isnan(b[e]) : beside ? !(fabs(a[e] - b[e]) <= 4 * T * 0x1p-24) : a[e] != b[e])
                        fail_msg("%s, NaN in %s row %zu: query %zu, column %zu is %g, was %g", mha_path_name(paths[p]),
                                 which ? "value" : "key", j, i, c, b[e], a[e]);
                }
                snapshot_release(&clean);
                snapshot_release(&spoilt);
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
        bool judge = paths[p] == MHA_PATH_EXACT;
        mha_call call = {.query = query, .key = key, .value = value, .path = paths[p], .threads = 2};
        mha_error error;
        call.output = mha_view_of(judge ? (void *)wide : found, judge ? MHA_F64 : MHA_F32, 3, (size_t[]){1, 1, NARROW});
        run_call(NULL, &call);
        assert_ok(mha_error_bound(NULL, &call, judge ? 0x1p-53 : 0x1p-24, bound, MHA_STAGE_COUNT, &error), error);
        /* the double loop above is itself off by as much as the exact path may be */
        double own[MHA_STAGE_COUNT];
        assert_ok(mha_error_bound(NULL, &call, 0x1p-53, own, MHA_STAGE_COUNT, &error), error);
        allowed[p] = bound[MHA_STAGE_OUTPUT] + own[MHA_STAGE_OUTPUT] + (judge ? 0 : 0x1p-25);
        for (size_t c = 0; c < NARROW; c++)
            worst[p] = fmax(worst[p], fabs((judge ? wide[c] : (double)found[c]) - exact[c]));
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
        TEST(equal_logits_give_the_mean_whatever_their_size),
        TEST(inputs_of_every_size_stay_within_the_bound),
        TEST(values_below_the_normal_range_are_averaged),
        TEST(extents_of_one_are_as_good_as_others),
        TEST(queries_that_see_nothing_say_so),
        TEST(strange_inputs_reach_those_who_see_them),
        TEST(strange_masks_reach_their_rows),
        TEST(strange_weights_reach_what_they_feed),
        TEST(a_hidden_nan_changes_no_bit),
        TEST(a_million_keys_stay_within_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
