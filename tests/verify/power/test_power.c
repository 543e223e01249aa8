/* The power of a test: each bug's answer against a plain comparison, and inputs that are suggested. */
#include "support/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/recase.h"
#include "support/scratch.h"
#include "support/trial.h"

/* ---------------------------------------------------------------- cases */

/* NULL for what a case has no word for. */
static mha_case *case_of(const rig *r)
{
    const mha_case_notes notes = {.past_key = r->past.keys, .past_value = r->past.values,
                                  .rope_origin = r->past.rope_origin};
    mha_case *c;
    mha_error error;
    const mha_status status = mha_case_of_call(r->layer, &r->call, NULL, 0, &notes, &c, &error);
    if (status != MHA_OK && status != MHA_UNSUPPORTED)
        fail_msg("%s", error.message);
    return c;
}

/* A random trial that is no ragged batch. */
static mha_case *drawn(uint64_t seed, rig *r)
{
    trial t = trial_draw(seed);
    t.sequences = 0;
    trial_build(&t, r);
    return case_of(r);
}

/* A causal call of grouped heads by head, in which masks, lengths and heads matter. */
static mha_case *plain_case(rig *r)
{
    const trial t = {.seed = 5,
                     .config = {.d_model = 32, .n_heads = 4, .kv_heads = 2, .d_k = 8, .d_v = 8},
                     .bare = true,
                     .B = 2,
                     .T_q = 6,
                     .T_k = 9,
                     .layout = MHA_BTHD,
                     .lengths = true,
                     .semantics = {.visible.causal = true, .place = {.has_offset = true, .offset = 2}}};
    trial_build(&t, r);
    return case_of(r);
}

static mha_power measure(const mha_case *c, const mha_criterion *criterion, int threads)
{
    mha_power p;
    mha_error error;
    assert_ok(mha_case_power(c, criterion, threads, NULL, &p, &error), error);
    return p;
}

static const mha_power_row *row_of(const mha_power *p, const char *bug)
{
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->rows[i].bug, bug) == 0)
            return &p->rows[i];
    return NULL;
}

/* ---------------------------------------------------------------- by hand */

/* A stage of a case under one bug (NULL: none), contiguous, to be freed. */
static double *stage_of(const mha_case *c, const char *bug, mha_stage stage, int rank, const size_t *shape)
{
    size_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= shape[i];
    double *x = malloc((n + 1) * sizeof *x);
    assert_non_null(x);
    const mha_view v = mha_view_of(x, MHA_F64, rank, shape);
    mha_error error;
    assert_ok(mha_case_with_bugs(c, &bug, bug != NULL, stage, &v, &error), error);
    return x;
}

/* The largest violation as a multiple of what is allowed, spelt out. */
static double factor_by_hand(const mha_criterion *k, const double *x, const double *y, size_t n)
{
    double most = 0, error = 0, square = 0, dot = 0, square_x = 0, outside = 0;
    bool one_is_finite = false;
    for (size_t i = 0; i < n; i++) {
        const double from_atol = fabs(x[i] - y[i]) / k->atol, from_rtol = fabs(x[i] - y[i]) / (k->rtol * fabs(y[i]));
        if (x[i] == y[i] || (isnan(x[i]) && isnan(y[i])))
            continue;
        if (!isfinite(x[i]) || !isfinite(y[i]))
            one_is_finite = true;
        else if (k->kind == MHA_CRITERION_EITHER)
            most = fmax(most, fmin(from_atol, from_rtol));
        else
            most = fmax(most, fabs(x[i] - y[i]) / (k->atol + k->rtol * fabs(y[i])));
        outside += !(fabs(x[i] - y[i]) <= k->atol + k->rtol * fabs(y[i]));
    }
    if (k->kind == MHA_CRITERION_SHARE)
        return outside / (double)n / (1 - k->limit);
    if (one_is_finite)
        return INFINITY;
    if (k->kind == MHA_CRITERION_BOUND || k->kind == MHA_CRITERION_CLOSE || k->kind == MHA_CRITERION_EITHER)
        return most;
    for (size_t i = 0; i < n; i++)
        if (isfinite(x[i]) && isfinite(y[i])) {
            error += (x[i] - y[i]) * (x[i] - y[i]);
            square += y[i] * y[i];
            square_x += x[i] * x[i];
            dot += x[i] * y[i];
        }
    if (most == 0)
        return 0;
    if (k->kind == MHA_CRITERION_NMSE)
        return error / square / k->limit;
    return (1 - (square * square_x > 0 ? dot / sqrt(square * square_x) : 0)) / (1 - k->limit);
}

/* Compares every row with the comparison by hand, and the counts with the rows. */
static void hold_against_hand(const mha_case *c, const mha_power *p, size_t d_out)
{
    const mha_call call = mha_case_call(c);
    const size_t shape[] = {call.query.shape[0], call.query.shape[1], d_out}, n = shape[0] * shape[1] * shape[2];
    double *y = stage_of(c, NULL, MHA_STAGE_OUTPUT, 3, shape), largest = 0;
    size_t counts[3] = {0};
    for (size_t i = 0; i < n; i++)
        largest = isfinite(y[i]) ? fmax(largest, fabs(y[i])) : largest;
    for (size_t i = 0; i < p->count; i++) {
        const mha_power_row *row = &p->rows[i];
        double *x = stage_of(c, row->bug, MHA_STAGE_OUTPUT, 3, shape);
        const double factor = factor_by_hand(&p->criterion, x, y, n);
        const mha_criterion check = {.rtol = p->derived_rtol, .atol = p->derived_atol};
        const bool faint = factor_by_hand(&check, x, y, n) <= 1;
        const bool same = row->max_abs <= 0x1p-40 * largest;
        /* 1 - cosine has an absolute error of some units in the last place of 1 */
        const double slack = p->criterion.kind == MHA_CRITERION_COSINE ? 1e-14 / (1 - p->criterion.limit) : 0;
        if (!(row->factor == factor || fabs(row->factor - factor) <= 1e-9 * factor + slack))
            fail_msg("%s: factor %g instead of %g", row->bug, row->factor, factor);
        if (fabs(factor - 1) > 1e-6)
            assert_int_equal(row->result, same ? MHA_POWER_SAME : factor > 1 ? MHA_POWER_REJECTED : MHA_POWER_ACCEPTED);
        assert_int_equal(row->excess <= 1, faint);
        counts[row->result]++;
        free(x);
    }
    free(y);
    assert_int_equal(counts[MHA_POWER_REJECTED], p->rejected);
    assert_int_equal(counts[MHA_POWER_ACCEPTED], p->accepted);
    assert_int_equal(counts[MHA_POWER_SAME], p->same);
}

static void every_answer_is_that_of_a_plain_comparison(void **state)
{
    (void)state;
    static const mha_criterion criteria[] = {
        {0},
        {.kind = MHA_CRITERION_CLOSE, .rtol = 0.1, .atol = 0.05},
        {.kind = MHA_CRITERION_CLOSE, .rtol = 0, .atol = 0.5},
        {.kind = MHA_CRITERION_NMSE, .limit = 1e-2},
        {.kind = MHA_CRITERION_COSINE, .limit = 0.95},
        {.kind = MHA_CRITERION_CLOSE, .rtol = 0.2, .precision = MHA_BF16},
        {.kind = MHA_CRITERION_EITHER, .rtol = 0.1, .atol = 0.05},
        {.kind = MHA_CRITERION_SHARE, .rtol = 0.1, .atol = 0.05, .limit = 0.9},
    };
    enum { CRITERIA = sizeof criteria / sizeof *criteria };
    size_t accepted = 0, rejected = 0, same = 0, measured = 0;
    for (uint64_t seed = 0; seed < 90; seed++) {
        rig r;
        mha_case *c = drawn(seed, &r);
        mha_power p;
        mha_error error;
        const mha_status status =
            c ? mha_case_power(c, &criteria[seed % CRITERIA], 0, NULL, &p, &error) : MHA_UNSUPPORTED;
        if (status == MHA_OK) {
            const size_t heads = mha_case_call(c).query.shape[2] * mha_case_call(c).value.shape[3];
            hold_against_hand(c, &p, r.layer ? mha_layer_config(r.layer)->d_out : heads);
            accepted += p.accepted;
            rejected += p.rejected;
            same += p.same;
            measured++;
            mha_power_clear(&p);
        } else if (status != MHA_UNSUPPORTED)
            fail_msg("seed %llu: %s", (unsigned long long)seed, error.message);
        mha_case_close(c);
        trial_release(&r);
    }
    assert_true(measured > 60 && accepted > 100 && rejected > 500 && same > 100); /* or nothing was tested */
}

/* ---------------------------------------------------------------- what is compared */

static void the_check_allows_what_power_says_it_does(void **state)
{
    (void)state;
    rig r;
    mha_case *c = plain_case(&r);
    static const mha_dtype types[] = {MHA_F32, MHA_F16, MHA_BF16};
    for (size_t i = 0; i < 3; i++) {
        mha_power p = measure(c, &(mha_criterion){.precision = types[i]}, 1);
        float zeros[2 * 6 * 4 * 8] = {0};
        const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT,
                                   .view = mha_view_of(zeros, types[i], 4, (const size_t[]){2, 6, 4, 8})};
        mha_case *with;
        mha_verdict v;
        mha_error error;
        mha_call call = r.call;
        call.precision = mha_precision_of(types[i]);
        assert_ok(mha_case_of_call(NULL, &call, &recorded, 1, NULL, &with, &error), error);
        assert_ok(mha_case_check(with, MHA_PATH_FAST, NULL, 1, &v, &error), error);
        assert_true(v.stages[0].atol == p.criterion.atol && v.stages[0].rtol == p.criterion.rtol);
        assert_true(p.derived_atol == p.criterion.atol && p.derived_rtol == p.criterion.rtol);
        mha_verdict_clear(&v);
        mha_case_close(with);
        mha_power_clear(&p);
    }
    mha_case_close(c);
    trial_release(&r);
}

static void rounding_to_the_type_of_the_implementation_is_no_bug(void **state)
{
    (void)state;
    rig r;
    mha_case *c = plain_case(&r);
    static const struct {
        mha_dtype precision;
        bool f16, bf16;
    } expected[] = {{MHA_F32, true, true}, {MHA_F16, false, true}, {MHA_BF16, false, false}};
    for (size_t i = 0; i < 3; i++) {
        const mha_criterion criterion = {.kind = MHA_CRITERION_CLOSE, .atol = 1e-6, .precision = expected[i].precision};
        mha_power p = measure(c, &criterion, 1);
        assert_int_equal(row_of(&p, "inputs-f16") != NULL, expected[i].f16);
        assert_int_equal(row_of(&p, "inputs-bf16") != NULL, expected[i].bf16);
        assert_non_null(row_of(&p, "inputs-bf16-cut"));
        assert_non_null(row_of(&p, "scale-missing"));
        mha_power_clear(&p);
    }
    mha_case_close(c);
    trial_release(&r);
}

/* Values and their merging cannot show in the weights, and a wrong scale does. */
static void another_stage_is_compared_when_asked(void **state)
{
    (void)state;
    rig r;
    mha_case *c = plain_case(&r);
    mha_power weights = measure(c, &(mha_criterion){.stage = "weights"}, 1),
              output = measure(c, &(mha_criterion){0}, 1);
    assert_int_equal(weights.stage, MHA_STAGE_WEIGHTS);
    assert_int_equal(row_of(&weights, "merge-interleaved")->result, MHA_POWER_SAME);
    assert_int_equal(row_of(&output, "merge-interleaved")->result, MHA_POWER_REJECTED);
    assert_int_equal(row_of(&weights, "scale-missing")->result, MHA_POWER_REJECTED);
    mha_power sums = measure(c, &(mha_criterion){.stage = "lse"}, 1);
    assert_int_equal(row_of(&sums, "lse-base-2")->result, MHA_POWER_REJECTED);
    assert_null(row_of(&output, "lse-base-2")); /* nothing else follows from it */
    mha_power_clear(&sums);
    mha_power_clear(&weights);
    mha_power_clear(&output);
    mha_case_close(c);
    trial_release(&r);
}

/* A case of kind rope has one result, which the bugs of rotation change. */
static void a_rotation_alone_has_power(void **state)
{
    (void)state;
    static const char from[] = "tests/vectors/torch_one_token.safetensors";
    const char *path = scratch_path("rope.safetensors");
    float x[2 * 5 * 2 * 8];
    mha_view query = mha_view_of(x, MHA_F32, 3, (const size_t[]){2, 5, 16});
    mha_random_fill(&query, 1, 1, -1, 1);
    recase_write(from, path,
                 &(recase){.drop = "",
                           .tensors = {{"query", query}},
                           .metadata = {{"kind", "rope"}, {"num_heads", "2"}, {"rope", "half_split"}}});
    mha_case *c;
    mha_power p;
    mha_error error = {0};
    assert_ok(mha_case_open(path, NULL, &c, &error), error);
    p = measure(c, &(mha_criterion){0}, 1);
    assert_int_equal(row_of(&p, "rope-pairing")->result, MHA_POWER_REJECTED);
    assert_int_equal(row_of(&p, "rope-base-5e5")->result, MHA_POWER_REJECTED);
    assert_int_equal(p.accepted, 0);
    mha_power_clear(&p);
    assert_refused(mha_case_power(c, &(mha_criterion){.stage = "weights"}, 1, NULL, &p, &error), MHA_UNSUPPORTED, error,
                   "stage", "no stage but the output");
    mha_case_close(c);
}

/* Of no query rows nothing can be said. */
static void nothing_to_compare_is_refused(void **state)
{
    (void)state;
    float keys[2 * 3 * 4] = {0};
    mha_case *c;
    mha_power p;
    mha_error error = {0};
    const mha_call call = {
        .query = mha_heads(keys, 1, 0, 2, 4), .key = mha_heads(keys, 1, 3, 2, 4), .value = mha_heads(keys, 1, 3, 2, 4)};
    assert_ok(mha_case_of_call(NULL, &call, NULL, 0, NULL, &c, &error), error);
    assert_refused(mha_case_power(c, &(mha_criterion){0}, 1, NULL, &p, &error), MHA_UNSUPPORTED, error, "output",
                   "found none");
    mha_case_close(c);
}

typedef struct reports {
    size_t calls, last, total;
} reports;

static void note(void *context, size_t done, size_t total)
{
    reports *r = context;
    assert_true(done > r->last && done <= total);
    r->calls++;
    r->last = done;
    r->total = total;
}

static void any_number_of_threads_gives_the_same_answer(void **state)
{
    (void)state;
    rig r;
    mha_case *c = plain_case(&r);
    mha_power one, three;
    mha_error error;
    reports seen = {0};
    const mha_progress progress = {note, &seen};
    assert_ok(mha_case_power(c, &(mha_criterion){0}, 1, &progress, &one, &error), error);
    assert_int_equal(seen.calls, one.count);
    assert_true(seen.last == one.count && seen.total == one.count);
    seen = (reports){0}; /* the calling thread has a part of the bugs: it tells of these, and of the end */
    assert_ok(mha_case_power(c, &(mha_criterion){0}, 3, &progress, &three, &error), error);
    assert_true(seen.last == one.count && seen.total == one.count);
    assert_int_equal(one.count, three.count);
    for (size_t i = 0; i < one.count; i++)
        assert_true(one.rows[i].bug == three.rows[i].bug && one.rows[i].factor == three.rows[i].factor &&
                    one.rows[i].max_abs == three.rows[i].max_abs && one.rows[i].result == three.rows[i].result);
    mha_power_clear(&one);
    mha_power_clear(&three);
    mha_case_close(c);
    trial_release(&r);
}

static void what_has_no_meaning_is_refused(void **state)
{
    (void)state;
    static const struct {
        mha_criterion criterion;
        mha_status status;
        const char *words[2];
    } wrong[] = {
        {{.kind = MHA_CRITERION_CLOSE, .rtol = -1}, MHA_INVALID, {"rtol", "found -1"}},
        {{.kind = MHA_CRITERION_CLOSE, .atol = NAN}, MHA_INVALID, {"atol", "found nan"}},
        {{.kind = MHA_CRITERION_NMSE, .limit = -0.5}, MHA_INVALID, {"nmse", "found -0.5"}},
        {{.kind = MHA_CRITERION_COSINE, .limit = 1.5}, MHA_INVALID, {"cosine", "from -1 to 1"}},
        {{.precision = MHA_F64}, MHA_INVALID, {"precision", "F32, F16 or BF16, found F64"}},
        {{.stage = "nothing"}, MHA_NOT_FOUND, {"stage", "found nothing"}},
    };
    rig r;
    mha_case *c = plain_case(&r);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mha_power p;
        mha_error error = {0};
        assert_refused(mha_case_power(c, &wrong[i].criterion, 1, NULL, &p, &error), wrong[i].status, error,
                       wrong[i].words[0], wrong[i].words[1]);
        assert_true(p.rows == NULL && p.count == 0);
    }
    mha_case_close(c);
    trial_release(&r);
}

/* ---------------------------------------------------------------- suggested inputs */

static mha_power proof_of(const mha_suggestion *wish, mha_call *call, mha_case **c)
{
    const char *path = scratch_path("suggested.safetensors");
    mha_error error;
    assert_ok(mha_case_suggest(path, wish, 0, NULL, &error), error);
    assert_ok(mha_case_open(path, NULL, c, &error), error);
    *call = mha_case_call(*c);
    for (mha_path p = MHA_PATH_AUTO; p <= MHA_PATH_EXACT; p++) {
        mha_verdict v;
        assert_ok(mha_case_check(*c, p, NULL, 1, &v, &error), error);
        if (v.outcome != MHA_OUTCOME_PASSED)
            fail_msg("%s", v.reason);
        mha_verdict_clear(&v);
    }
    return measure(*c, &(mha_criterion){0}, 0);
}

static void suggested_inputs_let_nothing_pass(void **state)
{
    (void)state;
    static const mha_config narrow = {.d_model = 32, .n_heads = 4, .bias_q = true, .bias_v = true, .bias_o = true};
    static const mha_config grouped = {.n_heads = 4, .kv_heads = 2, .d_k = 8, .sinks = true};
    static const mha_config normed = {.n_heads = 4, .d_k = 8, .q_norm = MHA_NORM_HEAD, .k_norm = MHA_NORM_HEAD};
    const struct {
        mha_suggestion wish;
        const char *shown[8]; /* bugs that these inputs must show */
    } wishes[] = {
        {{.config = narrow}, {"causal-top-left", "causal-bottom-right", "order-kqv", "bias-v-dropped", "transpose-o"}},
        {{.config = grouped,
          .by_head = true,
          .semantics.visible.causal = true,
          .with = MHA_WITH_LENGTHS | MHA_WITH_POISON},
         {"causal-bottom-right", "causal-missing", "lengths-more", "lengths-missing", "groups-tiled", "sinks-missing",
          "hidden-propagate"}},
        {{.config = grouped, .by_head = true, .with = MHA_WITH_EMPTY},
         {"lengths-less", "lengths-more", "split-untransposed"}},
        {{.config = narrow, .with = MHA_WITH_EMPTY}, {"fill-lowest", "fill-1e9", "empty-nan"}},
        {{.config = normed,
          .by_head = true,
          .semantics =
              {.visible = {.window_left = 3, .window_right = 1}, .softmax.softcap = 20},
          .with = MHA_WITH_MASK | MHA_WITH_PADDING,
          .past_len = 3},
         {"window-left-more", "window-right-more", "window-both-sides", "mask-subtracted", "padding-polarity",
          "softcap-before-scale", "cache-ignored", "norm-missing"}},
        {{.config = {.d_model = 32, .n_heads = 4, .bias_q = true, .q_norm = MHA_NORM_ROW, .k_norm = MHA_NORM_HEAD}},
         {"norm-missing", "norm-plus-one", "norm-eps-1e-5", "bias-q-dropped", "transpose-q"}},
        {{.config = {.n_heads = 4, .kv_heads = 2, .d_k = 8, .k_norm = MHA_NORM_ROW}, .by_head = true},
         {"norm-k-missing", "norm-eps-1e-5", "groups-tiled"}},
        {{.config = narrow,
          .q_len = 6,
          .kv_len = 6,
          .past_len = 3,
          .semantics = {.visible.causal = true, .qkv.rope.kind = MHA_ROPE_HALF_SPLIT},
          .with = MHA_WITH_KEEPS,
          .seed = 3},
         {"rope-restart", "rope-pairing", "causal-top-left", "mask-polarity", "cache-ignored"}},
    };
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        mha_case *c;
        mha_call call;
        mha_power p = proof_of(&wishes[i].wish, &call, &c);
        if (p.accepted > 0)
            fail_msg("wish %zu: %zu accepted", i, p.accepted);
        for (size_t k = 0; k < 8 && wishes[i].shown[k]; k++)
            if (!row_of(&p, wishes[i].shown[k]) || row_of(&p, wishes[i].shown[k])->result != MHA_POWER_REJECTED)
                fail_msg("wish %zu: %s is not shown", i, wishes[i].shown[k]);
        assert_true(call.query.shape[0] == 3 && call.query.shape[1] < 16 &&
                    (wishes[i].wish.kv_len || call.key.shape[1] != call.query.shape[1]));
        mha_power_clear(&p);
        mha_case_close(c);
    }
}

static void parts_that_do_not_go_together_are_refused(void **state)
{
    (void)state;
    static const int64_t lengths[] = {3, 2, 1};
    static const float numbers[11] = {0};
    const struct {
        mha_suggestion wish;
        const char *words[2];
    } wrong[] = {
        {{.with = MHA_WITH_MASK | MHA_WITH_KEEPS}, {"mask", "found two"}},
        {{.with = MHA_WITH_MASK, .semantics.visible.mask = {MHA_MASK_ADDITIVE, {0}}}, {"mask", "found two"}},
        {{.with = MHA_WITH_EMPTY, .semantics.visible.kv_lengths = lengths}, {"lengths", "found both"}},
        {{.with = MHA_WITH_PADDING, .semantics.visible.key_padding = {MHA_MASK_HIDES, {0}}}, {"padding", "found two"}},
        {{.with = MHA_WITH_POISON}, {"poison", "expected lengths"}},
        {{.with = MHA_WITH_POISON | MHA_WITH_LENGTHS, .q_len = 4, .kv_len = 4}, {"poison", "not the queries"}},
        {{.config.d_model = 10, .config.n_heads = 4}, {"d_model", "10"}},
        {{.semantics.visible.mask = {MHA_MASK_ADDITIVE,
                                     mha_view_of((void *)(uintptr_t)numbers, MHA_F32, 1, &(size_t){11})}},
         {"mask", "11"}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mha_error error = {0};
        assert_refused(mha_case_suggest(scratch_path("refused.safetensors"), &wrong[i].wish, 1, NULL, &error),
                       MHA_INVALID, error, wrong[i].words[0], wrong[i].words[1]);
    }
    mha_error error = {0};
    assert_int_equal(mha_case_suggest("/nowhere/a.safetensors", &(mha_suggestion){0}, 1, NULL, &error), MHA_IO);
}

/* Every mask by itself: hidden values that propagate are tried. Settings that hide no keys do not bring them. */
static void everything_that_hides_keys_may_leak(void **state)
{
    (void)state;
    enum { B = 2, T = 4, H = 2, D = 3 };
    static float x[3][B * T * H * D], added[T * T];
    static unsigned char few[B * T] = {1, 1, 0, 1, 1, 0, 1, 1}, square[T * T] = {1, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1};
    static const int64_t lengths[B] = {2, 4};
    static int64_t documents[B * T] = {1, 1, 2, 2, 1, 2, 2, 2}, lists[T * 2] = {0, 1, 1, 2, 2, 3, 0, 3};
    const size_t rows[2] = {B, T}, pairs[2] = {T, T}, listed[2] = {T, 2};
    const mha_mask padding = {MHA_MASK_KEEPS, mha_view_of(few, MHA_BOOL, 2, rows)},
                   mask = {MHA_MASK_KEEPS, mha_view_of(square, MHA_BOOL, 2, pairs)};
    added[3] = -INFINITY;
    const struct {
        const char *name;
        bool hides;
        mha_semantics semantics;
    } all[] = {
        {"nothing", false, {.place = {0}}},
        {"softcap", false, {.softmax.softcap = 3}},
        {"filled padding", false, {.visible = {.key_padding = padding, .padding_fill = -3}}},
        {"causal", true, {.visible.causal = true}},
        {"window", true, {.visible = {.window_left = 1, .window_right = 1}}},
        {"chunk", true, {.visible.chunk = 2}},
        {"lengths", true, {.visible.kv_lengths = lengths}},
        {"padding", true, {.visible.key_padding = padding}},
        {"mask", true, {.visible.mask = mask}},
        {"added mask", true, {.visible.mask = {MHA_MASK_ADDITIVE, mha_view_of(added, MHA_F32, 2, pairs)}}},
        {"segments", true, {.visible.pattern.q_segments = mha_view_of(documents, MHA_I64, 2, rows)}},
        {"query padding", true, {.visible.pattern.query_padding = padding}},
        {"lists", true, {.visible.pattern.key_lists = mha_view_of(lists, MHA_I64, 2, listed)}},
        {"blocks", true, {.visible.pattern = {.blocks = mask, .block_queries = 1, .block_keys = 1}}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        mha_error error;
        mha_case *c;
        mha_call call = {.query = mha_heads(x[0], B, T, H, D), .key = mha_heads(x[1], B, T, H, D),
                         .value = mha_heads(x[2], B, T, H, D), .semantics = all[i].semantics};
        const mha_view *const inputs[] = {&call.query, &call.key, &call.value};
        for (size_t n = 0; n < 3; n++)
            mha_random_fill(inputs[n], 3, n, -1, 1);
        assert_ok(mha_case_of_call(NULL, &call, NULL, 0, NULL, &c, &error), error);
        mha_power p = measure(c, &(mha_criterion){0}, 1);
        if ((row_of(&p, "hidden-propagate") != NULL) != all[i].hides)
            fail_msg("%s: %s", all[i].name, all[i].hides ? "not tried" : "tried");
        mha_power_clear(&p);
        mha_case_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_answer_is_that_of_a_plain_comparison),
        cmocka_unit_test(the_check_allows_what_power_says_it_does),
        cmocka_unit_test(rounding_to_the_type_of_the_implementation_is_no_bug),
        cmocka_unit_test(another_stage_is_compared_when_asked),
        cmocka_unit_test(a_rotation_alone_has_power),
        cmocka_unit_test(any_number_of_threads_gives_the_same_answer),
        cmocka_unit_test(what_has_no_meaning_is_refused),
        cmocka_unit_test(suggested_inputs_let_nothing_pass),
        cmocka_unit_test(parts_that_do_not_go_together_are_refused),
        cmocka_unit_test(nothing_to_compare_is_refused),
        cmocka_unit_test(everything_that_hides_keys_may_leak),
    };
    return cmocka_run_group_tests_name("power", tests, NULL, NULL);
}
