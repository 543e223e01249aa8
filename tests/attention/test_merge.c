/* The keys of a call cut into parts: merged by their lse on every path, and continued key after key on the exact one.
 * MERGE_SPLITS=n tries n splits on each path, MERGE_SEED=s begins with the calls of seed s. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/merged.h"
#include "support/rerun.h"
#include "support/trial.h"
#include "support/unit.h"
#include "support/words.h"

enum { MOST_PARTS = 5, HEADS = 1 << MHA_STAGE_HEADS, LSE = 1 << MHA_STAGE_LSE, WEIGHTS = 1 << MHA_STAGE_WEIGHTS };

static uint64_t random_state;

static size_t below(size_t n)
{
    return (size_t)(word(&random_state) % n);
}

/* ---------------------------------------------------------------- parts of a call */

/* n + 1 places from 0 to S, in order; parts may be empty. */
static size_t cut(size_t S, size_t places[MOST_PARTS + 1])
{
    const size_t n = 1 + below(MOST_PARTS);
    places[0] = 0, places[n] = S;
    for (size_t i = 1; i < n; i++)
        places[i] = below(S + 1);
    for (size_t i = 1; i < n; i++)
        for (size_t j = i; j > 1 && places[j - 1] > places[j]; j--) {
            const size_t swap = places[j];
            places[j] = places[j - 1], places[j - 1] = swap;
        }
    return n;
}

/* Attention over the keys [from, to), cached ones counted first. */
static void part_of(const rig *r, size_t from, size_t to, bool keys_only, rerun *p)
{
    rerun_init(p, r->layer, &r->call, &r->past.keys, &r->past.values);
    rerun_spell_out(p);
    mha_call *c = &p->call;
    mha_semantics *s = &c->semantics;
    const size_t P = r->past.length, old[2] = {from < P ? from : P, to < P ? to : P};
    const size_t new[2] = {from > P ? from - P : 0, to > P ? to - P : 0};
    if (old[0] < old[1]) {
        p->past_key = mha_view_slice(&p->past_key, 2, old[0], old[1] - old[0]);
        p->past_value = mha_view_slice(&p->past_value, 2, old[0], old[1] - old[0]);
    } else
        p->past_key = p->past_value = (mha_view){0};
    c->key = mha_view_slice(&c->key, 1, new[0], new[1] - new[0]);
    c->value = mha_view_slice(&c->value, 1, new[0], new[1] - new[0]);
    if (s->qkv.rope.k_positions.data)
        s->qkv.rope.k_positions = mha_view_slice(&s->qkv.rope.k_positions, 1, new[0], new[1] - new[0]);
    s->visible.key_padding.values = rerun_cut(&s->visible.key_padding.values, 1, from, to - from);
    s->visible.mask.values = rerun_cut(&s->visible.mask.values, 1, from, to - from);
    s->softmax.dropout_keep = rerun_cut(&s->softmax.dropout_keep, 1, from, to - from);
    const mha_view *segments =
        s->visible.pattern.k_segments.data ? &s->visible.pattern.k_segments : &s->visible.pattern.q_segments;
    s->visible.pattern.k_segments = rerun_cut(segments, 1, from, to - from); /* lists name keys of the whole sequence */
    s->place.has_key_offset = true;
    s->place.key_offset += (int64_t)from;
    s->place.keys_only |= keys_only;
}

static bool run(rerun *p, mha_path path, unsigned keep)
{
    mha_error error;
    const mha_status status = rerun_run(p, path, 1, keep, &error);
    if (status != MHA_OK && !(path != MHA_PATH_EXACT && status == MHA_UNSUPPORTED))
        fail_msg("%s: %s", mha_path_name(path), error.message);
    return status == MHA_OK;
}

static void expect_same_bits(const char *what, const mha_view *found, const mha_view *expected, uint64_t seed)
{
    mha_difference d;
    mha_error error;
    assert_ok(mha_compare(found, expected, 0, 0, &d, &error), error);
    if (d.mismatches)
        fail_msg("seed %llu: %s is %g off and should have the same bits", (unsigned long long)seed, what, d.max_abs);
}

/* ---------------------------------------------------------------- random calls, random splits */

/* A call whose keys can be cut: no ragged batch, whose sequences are merged one by one; no tables by row, no mask that
 * ends early, which a part would take for one that is broadcast; no blocks, which parts would cut. */
static trial draw(uint64_t seed)
{
    trial t = trial_draw(seed);
    if (t.semantics.softmax.normaliser == MHA_SIGMOID) /* has no lse to merge by */
        t.semantics.softmax.normaliser = MHA_SOFTMAX, t.semantics.softmax.sigmoid_bias = 0;
    if (t.sequences)
        t.sequences = 0, t.B = 2;
    t.rope_tables = t.rope_tables == 3 ? 2 : t.rope_tables;
    t.mask_short = 0;
    if (t.dropout > 0) /* its array ends with the extra rows, which only one part has */
        t.config.bias_kv = t.semantics.softmax.zero_row = false;
    t.semantics.visible.pattern = (mha_pattern){.query_padding = t.semantics.visible.pattern.query_padding};
    if (t.semantics.place.has_key_offset && t.use_cache)
        t.semantics.place.has_offset = true;
    return t;
}

static void bound_of(const rig *r, double unit, double bound[MHA_STAGE_COUNT])
{
    mha_call call = r->call;
    mha_cache *cache = NULL;
    mha_error error;
    const mha_view *k = &r->past.keys, *v = &r->past.values;
    call.path = MHA_PATH_EXACT;
    if (k->data) {
        const mha_view *key = call.key.data ? &call.key : &call.query;
        const mha_cache_spec spec = {.batch = k->shape[0], .kv_heads = k->shape[1], .d_k = k->shape[3],
                                     .d_v = v->shape[3], .capacity = k->shape[2] + key->shape[1], .dtype = MHA_F64};
        assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
        assert_ok(mha_cache_load(cache, k, v, &error), error);
    }
    call.cache = cache;
    assert_ok(mha_error_bound(r->layer, &call, unit, bound, MHA_STAGE_COUNT, &error), error);
    mha_cache_destroy(cache);
}

static void expect_near(const char *what, mha_path path, const mha_view *found, const mha_view *exact, double allowed,
                        uint64_t seed)
{
    mha_difference d;
    mha_error error;
    assert_ok(mha_compare(found, exact, 0, allowed, &d, &error), error);
    if (d.mismatches)
        fail_msg("seed %llu, %s: merged %s is %g off, allowed %g", (unsigned long long)seed, mha_path_name(path), what,
                 d.max_abs, allowed);
}

/* Merges the parts in any order, in place or into memory of its own, of three or four extents. */
static void merge_and_compare(const rig *r, const rerun *exact, mha_path path, double bound[2][MHA_STAGE_COUNT],
                              uint64_t seed)
{
    size_t places[MOST_PARTS + 1];
    const mha_view *whole = &exact->stages[MHA_STAGE_HEADS], *lse = &exact->stages[MHA_STAGE_LSE];
    const size_t n = cut(exact->plan.S, places), counting = below(n), turn = below(n);
    rerun parts[MOST_PARTS];
    mha_part given[MOST_PARTS], result;
    bool ran = true;
    for (size_t k = 0; k < n; k++) {
        const size_t i = (k + turn) % n;
        part_of(r, places[i], places[i + 1], i != counting, &parts[k]);
        parts[k].call.semantics.softmax.empty_rows = MHA_EMPTY_ZERO;
        ran = run(&parts[k], path, HEADS | LSE) && ran;
        given[k] = (mha_part){parts[k].stages[MHA_STAGE_HEADS], parts[k].stages[MHA_STAGE_LSE]};
        if (below(2))
            given[k].heads = mha_view_heads(given[k].heads.data, given[k].heads.dtype, MHA_BTHD, whole->shape[0],
                                            whole->shape[1], exact->plan.h, exact->plan.d_v);
    }
    const mha_dtype dtype = given[0].heads.dtype;
    double *heads = malloc((mha_view_elements(whole) + 1) * sizeof *heads);
    double *sums = malloc((mha_view_elements(lse) + 1) * sizeof *sums);
    result = (mha_part){mha_view_of(heads, dtype, 3, whole->shape), mha_view_of(sums, dtype, 3, lse->shape)};
    if (ran) {
        mha_error error;
        const bool wide = path == MHA_PATH_EXACT;
        double of_heads = bound[wide][MHA_STAGE_HEADS], of_lse = bound[wide][MHA_STAGE_LSE];
        merged_bound(given, n, wide ? 0x1p-53 : 0x1p-24, &of_heads, &of_lse);
        if (below(4) == 0)
            result = given[below(n)];
        assert_ok(mha_merge(given, n, r->call.semantics.softmax.empty_rows, &result, &error), error);
        mha_view rows = mha_view_of(result.heads.data, dtype, 3, whole->shape);
        expect_near("heads", path, &rows, whole, of_heads + bound[1][MHA_STAGE_HEADS], seed);
        expect_near("lse", path, &result.lse, lse, of_lse + bound[1][MHA_STAGE_LSE], seed);
    }
    free(heads);
    free(sums);
    for (size_t k = 0; k < n; k++)
        rerun_free(&parts[k]);
}

static void any_split_merges_to_the_whole(void **state)
{
    (void)state;
    static const mha_path paths[] = {MHA_PATH_FAST, MHA_PATH_BLAS, MHA_PATH_EXACT};
    const uint64_t splits = trial_number("MERGE_SPLITS", 3400), first = trial_number("MERGE_SEED", 1);
    uint64_t done[3] = {0};
    for (uint64_t seed = first; done[0] < splits || done[1] < splits || done[2] < splits; seed++) {
        trial t = draw(seed);
        random_state = seed;
        if (t.semantics.softmax.hidden_values ==
            MHA_HIDDEN_PROPAGATE) /* NaN in rows that see nothing of a part is lost */
            t.poison = false;
        rig r;
        trial_build(&t, &r);
        rerun exact;
        rerun_init(&exact, r.layer, &r.call, &r.past.keys, &r.past.values);
        run(&exact, MHA_PATH_EXACT, HEADS | LSE);
        double bound[2][MHA_STAGE_COUNT];
        bound_of(&r, 0x1p-24, bound[0]);
        bound_of(&r, 0x1p-53, bound[1]);
        for (size_t p = 0; p < 3; p++)
            for (size_t k = 0; k < 10 && (t.input_dtype == MHA_F32 || paths[p] == MHA_PATH_EXACT); k++, done[p]++)
                merge_and_compare(&r, &exact, paths[p], bound, seed);
        rerun_free(&exact);
        trial_release(&r);
    }
    print_message("%llu, %llu and %llu splits merged\n", (unsigned long long)done[0], (unsigned long long)done[1],
                  (unsigned long long)done[2]);
}

/* Key after key, call after call: the last one has the bits of the whole, whatever is hidden, empty or NaN. */
static void continued_calls_have_the_bits_of_the_whole(void **state)
{
    (void)state;
    const uint64_t splits = trial_number("MERGE_SPLITS", 3400), first = trial_number("MERGE_SEED", 1);
    for (uint64_t seed = first, done = 0; done < splits; seed++) {
        trial t = draw(seed);
        random_state = ~seed;
        rig r;
        trial_build(&t, &r);
        rerun whole;
        rerun_init(&whole, r.layer, &r.call, &r.past.keys, &r.past.values);
        run(&whole, MHA_PATH_EXACT, HEADS | LSE | WEIGHTS | TRIAL_OUTPUT);
        const mha_plan *plan = &whole.plan;
        const size_t shape[4] = {plan->B, plan->h, plan->T_q, plan->d_v + 2};
        double *memory = malloc((plan->B * plan->h * plan->T_q + 1) * (plan->d_v + 2) * sizeof *memory);
        mha_view partial = mha_view_of(memory, MHA_F64, 4, shape);
        for (size_t k = 0; k < 10; k++, done++) {
            size_t places[MOST_PARTS + 1];
            const size_t n = cut(plan->S, places), rows = plan->B * plan->h * plan->T_q;
            memset(memory, 0, rows * shape[3] * sizeof *memory);
            for (size_t row = 0; row < rows; row++)
                memory[row * shape[3]] = -INFINITY;
            for (size_t i = 0; i < n; i++) {
                rerun part;
                part_of(&r, places[i], places[i + 1], i > 0, &part);
                part.call.partial = partial;
                run(&part, MHA_PATH_EXACT, HEADS | LSE | WEIGHTS | TRIAL_OUTPUT);
                if (i + 1 == n) {
                    static const mha_stage stages[] = {MHA_STAGE_HEADS, MHA_STAGE_LSE, MHA_STAGE_OUTPUT};
                    for (size_t s = 0; s < 3; s++)
                        expect_same_bits(mha_stage_at(stages[s])->name, &part.stages[stages[s]],
                                         &whole.stages[stages[s]], seed);
                    const size_t keys = places[n] - places[n - 1];
                    const mha_view w = mha_view_slice(&whole.stages[MHA_STAGE_WEIGHTS], 3, places[n - 1], keys),
                                   found = mha_view_slice(&part.stages[MHA_STAGE_WEIGHTS], 3, 0, keys);
                    expect_same_bits("weights", &found, &w, seed);
                }
                rerun_free(&part);
            }
        }
        free(memory);
        rerun_free(&whole);
        trial_release(&r);
    }
}

/* ---------------------------------------------------------------- what is defined at the edges */

/* One row of two columns in each part. */
static void merge_rows(size_t n, const double lse[], double heads[][2], mha_empty_rows rule, double out[2],
                       double *sum)
{
    double copies[4][3];
    mha_part parts[4], result = {mha_view_of(out, MHA_F64, 3, (const size_t[]){1, 1, 2}),
                                 mha_view_of(sum, MHA_F64, 3, (const size_t[]){1, 1, 1})};
    mha_error error;
    for (size_t i = 0; i < n; i++) {
        copies[i][0] = heads[i][0], copies[i][1] = heads[i][1], copies[i][2] = lse[i];
        parts[i] = (mha_part){mha_view_of(copies[i], MHA_F64, 3, (const size_t[]){1, 1, 2}),
                              mha_view_of(&copies[i][2], MHA_F64, 3, (const size_t[]){1, 1, 1})};
    }
    assert_ok(mha_merge(parts, n, rule, &result, &error), error);
}

static void edges_are_as_the_header_says(void **state)
{
    (void)state;
    double out[2], lse;
    const double inf = (double)INFINITY;
    /* nothing seen anywhere, whatever the heads hold */
    for (size_t n = 0; n < 3; n++) {
        merge_rows(n, (double[]){-inf, -inf}, (double[][2]){{NAN, inf}, {1, 2}}, MHA_EMPTY_ZERO, out, &lse);
        assert_true(out[0] == 0 && out[1] == 0 && lse == -inf);
        merge_rows(n, (double[]){-inf, -inf}, (double[][2]){{0, 0}, {1, 2}}, MHA_EMPTY_NAN, out, &lse);
        assert_true(isnan(out[0]) && isnan(out[1]) && isnan(lse));
    }
    /* a part that saw nothing is a part that is not there: the other one is copied */
    merge_rows(2, (double[]){-inf, 0.1}, (double[][2]){{NAN, inf}, {1.0 / 3, -0.7}}, MHA_EMPTY_NAN, out, &lse);
    assert_true(out[0] == 1.0 / 3 && out[1] == -0.7 && lse == 0.1);
    /* equal shares; far beyond where exp overflows, and one part that vanishes next to the other */
    merge_rows(2, (double[]){5000, 5000}, (double[][2]){{1, 2}, {3, 6}}, MHA_EMPTY_ZERO, out, &lse);
    assert_true(out[0] == 2 && out[1] == 4 && fabs(lse - 5000 - log(2)) < 1e-12);
    merge_rows(2, (double[]){-5000, 5000}, (double[][2]){{1, 2}, {3, 6}}, MHA_EMPTY_ZERO, out, &lse);
    assert_true(out[0] == 3 && out[1] == 6 && lse == 5000);
    /* NaN and +inf */
    merge_rows(3, (double[]){1, NAN, 2}, (double[][2]){{1, 2}, {3, 6}, {1, 1}}, MHA_EMPTY_ZERO, out, &lse);
    assert_true(isnan(out[0]) && isnan(out[1]) && isnan(lse));
    merge_rows(2, (double[]){NAN, -inf}, (double[][2]){{1, 2}, {3, 6}}, MHA_EMPTY_ZERO, out, &lse);
    assert_true(isnan(out[0]) && isnan(out[1]) && isnan(lse));
    merge_rows(2, (double[]){inf, 1}, (double[][2]){{1, 2}, {3, 6}}, MHA_EMPTY_ZERO, out, &lse);
    assert_true(isnan(out[0]) && isnan(out[1]) && isnan(lse));
    /* a sink is a part of its own: heads of 0, its logit as lse */
    merge_rows(2, (double[]){log(3), 0}, (double[][2]){{1, 2}, {0, 0}}, MHA_EMPTY_ZERO, out, &lse);
    assert_true(fabs(out[0] - 0.75) < 1e-15 && fabs(out[1] - 1.5) < 1e-15 && fabs(lse - log(4)) < 1e-15);
    /* the order of two parts changes no bit */
    double other[2], lse2;
    merge_rows(2, (double[]){0.3, -1.7}, (double[][2]){{0.1, 7}, {0.9, -2}}, MHA_EMPTY_ZERO, out, &lse);
    merge_rows(2, (double[]){-1.7, 0.3}, (double[][2]){{0.9, -2}, {0.1, 7}}, MHA_EMPTY_ZERO, other, &lse2);
    assert_true(out[0] == other[0] && out[1] == other[1] && lse == lse2);
}

/* The result's heads and lse may be those of parts, the same or different ones. */
static void the_result_may_lie_in_parts(void **state)
{
    (void)state;
    enum { QUERIES = 5, COLUMNS = 70, BY = 2, N = 3 };
    static float heads[2][N][QUERIES * BY * COLUMNS], lse[2][N][BY * QUERIES], out[QUERIES * BY * COLUMNS];
    float sums[BY * QUERIES];
    const size_t of_heads[4] = {1, QUERIES, BY, COLUMNS}, of_lse[3] = {1, BY, QUERIES};
    for (size_t h = 0; h < N; h++)
        for (size_t l = 0; l < N; l++) {
            mha_part parts[2][N];
            const mha_part apart = {mha_view_of(out, MHA_F32, 4, of_heads), mha_view_of(sums, MHA_F32, 3, of_lse)};
            mha_error error;
            for (size_t i = 0; i < 2 * N; i++) {
                mha_part *part = &parts[i / N][i % N];
                part->heads = mha_view_of(heads[i / N][i % N], MHA_F32, 4, of_heads);
                part->lse = mha_view_of(lse[i / N][i % N], MHA_F32, 3, of_lse);
                mha_random_fill(&part->heads, i % N, 1, -2, 2);
                mha_random_fill(&part->lse, i % N, 2, -2, 2);
            }
            const mha_part within = {parts[1][h].heads, parts[1][l].lse};
            assert_ok(mha_merge(parts[0], N, MHA_EMPTY_ZERO, &apart, &error), error);
            assert_ok(mha_merge(parts[1], N, MHA_EMPTY_ZERO, &within, &error), error);
            assert_memory_equal(within.heads.data, out, sizeof out);
            assert_memory_equal(within.lse.data, sums, sizeof sums);
        }
}

/* Parts as wrong as their bound allows: what comes out stays within the merged bound, which is not twice as large. */
static void the_bound_of_merged_parts_is_sharp(void **state)
{
    (void)state;
    double heads[2][1] = {{1}, {-1}}, lse[2][1] = {{3}, {3}}, out, sum;
    const size_t one[3] = {1, 1, 1};
    mha_part parts[2], result = {mha_view_of(&out, MHA_F64, 3, one), mha_view_of(&sum, MHA_F64, 3, one)};
    for (int i = 0; i < 2; i++)
        parts[i] = (mha_part){mha_view_of(heads[i], MHA_F64, 3, one), mha_view_of(lse[i], MHA_F64, 3, one)};
    for (int what = 0; what < 3; what++) { /* exact: heads 0, lse 3 + log 2 */
        double of_heads = what == 0 ? 0 : 1e-4, of_lse = what == 1 ? 0 : 1e-4;
        for (int i = 0; i < 2; i++) {
            heads[i][0] = (i ? -1 : 1) + of_heads;
            lse[i][0] = 3 + (what < 2 && i ? -1 : 1) * of_lse;
        }
        mha_error error;
        merged_bound(parts, 2, 0x1p-53, &of_heads, &of_lse);
        assert_ok(mha_merge(parts, 2, MHA_EMPTY_ZERO, &result, &error), error);
        const double off = fabs(out), off_sum = fabs(sum - 3 - log(2));
        assert_true(off <= of_heads && off_sum <= of_lse);
        if (what < 2)
            assert_true(of_heads < 2.01 * off);
        else
            assert_true(of_lse < 1.01 * off_sum);
    }
}

/* A score of -inf counts nothing next to a finite one, in any of the calls. */
static void infinite_scores_continue(void **state)
{
    (void)state;
    double q[1] = {1}, k[2] = {-INFINITY, 0.5}, v[2] = {3, 5}, out[1], rows[3];
    const size_t one[4] = {1, 1, 1, 1}, three[4] = {1, 1, 1, 3};
    for (int finite_first = 0; finite_first < 2; finite_first++) {
        rows[0] = -INFINITY, rows[1] = rows[2] = 0;
        for (int i = 0; i < 2; i++) {
            const int key = finite_first ? 1 - i : i;
            mha_error error;
            const mha_call call = {.query = mha_view_of(q, MHA_F64, 4, one),
                                   .key = mha_view_of(k + key, MHA_F64, 4, one),
                                   .value = mha_view_of(v + key, MHA_F64, 4, one),
                                   .output = mha_view_of(out, MHA_F64, 4, one), .path = MHA_PATH_EXACT,
                                   .partial = mha_view_of(rows, MHA_F64, 4, three)};
            assert_ok(mha_run(NULL, &call, &error), error);
            assert_true(i == 0 && !finite_first ? isnan(out[0]) : out[0] == 5);
        }
        assert_true(rows[0] == 0.5 && rows[1] == 1 && rows[2] == 5);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    float heads[2][12], lse[2][4], out[12];
    memset(heads, 0, sizeof heads), memset(lse, 0, sizeof lse);
    const size_t rows[3] = {1, 2, 6}, by_head[4] = {1, 2, 2, 3}, sums[3] = {1, 2, 2};
    const mha_part good[2] = {{mha_view_of(heads[0], MHA_F32, 3, rows), mha_view_of(lse[0], MHA_F32, 3, sums)},
                              {mha_view_of(heads[1], MHA_F32, 4, by_head), mha_view_of(lse[1], MHA_F32, 3, sums)}};
    mha_error error;
    mha_part parts[2], result;
#define SPOIL(text, ...)                                                                                               \
    do {                                                                                                               \
        memcpy(parts, good, sizeof parts);                                                                             \
        result = good[0];                                                                                              \
        __VA_ARGS__;                                                                                                   \
        assert_refused(mha_merge(parts, 2, MHA_EMPTY_ZERO, &result, &error), MHA_INVALID, error, text);               \
    } while (0)
    assert_ok(mha_merge(good, 2, MHA_EMPTY_ZERO, &good[1], &error), error);
    assert_refused(mha_merge(good, 2, (mha_empty_rows)2, &good[0], &error), MHA_INVALID, error, "empty_rows");
    SPOIL("heads: expected shape (1, 2, 6), found (1, 3, 6)", parts[0].heads.shape[1] = 3);
    SPOIL("heads: expected shape (1, 2, 2, 3)", parts[1].heads.rank = 99);
    SPOIL("lse: expected shape (1, 2, 2), found (1, 2, 1)", parts[1].lse.shape[2] = 1);
    SPOIL("lse: expected data", parts[1].lse.data = NULL);
    SPOIL("heads: expected elements of a floating type, found I32", parts[0].heads.dtype = MHA_I32);
    SPOIL("heads: expected elements of a floating type, found I32", result.heads.dtype = MHA_I32);
    SPOIL("found memory of the heads of a part", result.heads.stride[1] = 7);
    SPOIL("found memory of the heads of a part", result.heads.data = heads[1] + 1);
    SPOIL("found memory of the lse of a part", result.lse.data = lse[0] + 1);
    SPOIL("expected memory apart from lse", parts[1].lse.data = heads[0]);
    SPOIL("expected memory apart from lse", result.lse.data = heads[1]);
    SPOIL("heads: expected a place for each element", result.heads.data = out; result.heads.stride[1] = 0);
    SPOIL("heads: expected a place for each element", result.heads.data = out; result.heads.stride[1] = 5);
    SPOIL("lse: expected a place for each element", result.lse.data = out; result.lse.stride[2] = 0);
    SPOIL("lse: expected (B, h, T_q)", parts[0].lse.rank = 1; result.lse = (mha_view){0});
#undef SPOIL

    float x[4] = {1, 2, 3, 4}, y[4];
    double state_rows[8];
    const size_t of_x[4] = {1, 2, 1, 2}, of_state[4] = {1, 1, 2, 4};
    const mha_call call = {.query = mha_view_of(x, MHA_F32, 4, of_x), .key = mha_view_of(x, MHA_F32, 4, of_x),
                           .value = mha_view_of(x, MHA_F32, 4, of_x), .output = mha_view_of(y, MHA_F32, 4, of_x),
                           .partial = mha_view_of(state_rows, MHA_F64, 4, of_state), .path = MHA_PATH_EXACT};
    mha_call wrong = call;
    mha_plan plan;
    assert_ok(mha_plan_call(NULL, &wrong, &plan, &error), error);
    mha_case *made;
    assert_refused(mha_case_of_call(NULL, &wrong, NULL, 0, NULL, &made, &error), MHA_UNSUPPORTED, error, "partial");
    assert_refused(mha_case_save("never", NULL, &wrong, NULL, &error), MHA_UNSUPPORTED, error, "partial");
    wrong.path = MHA_PATH_AUTO;
    assert_refused(mha_plan_call(NULL, &wrong, &plan, &error), MHA_UNSUPPORTED, error, "partial", "exact path");
    wrong = call, wrong.partial.dtype = MHA_F32;
    assert_refused(mha_plan_call(NULL, &wrong, &plan, &error), MHA_UNSUPPORTED, error, "partial", "F64");
    wrong = call, wrong.partial.shape[3] = 3;
    assert_refused(mha_plan_call(NULL, &wrong, &plan, &error), MHA_INVALID, error, "(1, 1, 2, 4)");
    wrong = call, wrong.partial.data = x;
    assert_refused(mha_plan_call(NULL, &wrong, &plan, &error), MHA_INVALID, error, "partial", "query");
    wrong = call, wrong.output = mha_view_of(state_rows + 1, MHA_F32, 4, of_x);
    assert_refused(mha_plan_call(NULL, &wrong, &plan, &error), MHA_INVALID, error, "partial", "output");
    mha_keep keep = {.stage = MHA_STAGE_LSE, .view = mha_view_of(state_rows, MHA_F32, 3, (const size_t[]){1, 1, 2})};
    wrong = call, wrong.keep = &keep, wrong.keep_count = 1;
    assert_refused(mha_plan_call(NULL, &wrong, &plan, &error), MHA_INVALID, error, "lse", "partial");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_split_merges_to_the_whole), cmocka_unit_test(continued_calls_have_the_bits_of_the_whole),
        cmocka_unit_test(edges_are_as_the_header_says),  cmocka_unit_test(the_bound_of_merged_parts_is_sharp),
        cmocka_unit_test(the_result_may_lie_in_parts),   cmocka_unit_test(infinite_scores_continue),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
