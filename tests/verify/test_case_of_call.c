/* A case made of a call in memory says the same as the file that was written of that call. */
#include "support/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/recase.h"
#include "support/rerun.h"
#include "support/scratch.h"
#include "support/short_float.h"
#include "support/trial.h"

enum { KEPT = 1u << MHA_STAGE_OUTPUT | 1u << MHA_STAGE_WEIGHTS | 1u << MHA_STAGE_Q | 1u << MHA_STAGE_LSE };

/* A case of a call and of all stages of its last run. */
static mha_status case_of_run(const rerun *run, const mha_layer *layer, const mha_call *call,
                              const mha_case_notes *notes, mha_case **c, mha_error *error)
{
    mha_keep recorded[MHA_STAGE_COUNT];
    for (int s = 0; s < MHA_STAGE_COUNT; s++)
        recorded[s] = (mha_keep){.stage = (mha_stage)s, .view = run->stages[s]};
    return mha_case_of_call(layer, call, recorded, MHA_STAGE_COUNT, notes, c, error);
}

/* A random forward on the exact path with its stages, its case from memory, and its case from a file (NULL where the
 * format has no word for it). */
typedef struct pair {
    rig r;
    rerun run;
    mha_case *memory, *file;
} pair;

static bool pair_open(pair *p, uint64_t seed)
{
    trial t = trial_draw(seed);
    mha_error error;
    t.input_dtype = MHA_F32;
    t.poison = false;
    t.amplitude = 0;
    trial_build(&t, &p->r);
    rerun_init(&p->run, p->r.layer, &p->r.call, &p->r.past.keys, &p->r.past.values);
    assert_ok(rerun_run(&p->run, MHA_PATH_EXACT, 1, KEPT, &error), error);
    const mha_case_notes notes = {.name = "trial", .past_key = p->r.past.keys, .past_value = p->r.past.values,
                                  .rope_origin = p->r.past.rope_origin};
    p->memory = p->file = NULL;
    mha_status status = case_of_run(&p->run, p->r.layer, &p->run.call, &notes, &p->memory, &error);
    if (status != MHA_OK && status != MHA_UNSUPPORTED)
        fail_msg("seed %llu: %s", (unsigned long long)seed, error.message);
    const char *path = scratch_path("call.safetensors");
    if (mha_case_save(path, p->r.layer, &p->run.call, &notes, &error) == MHA_OK)
        assert_ok(mha_case_open(path, NULL, &p->file, &error), error);
    return p->memory != NULL;
}

static void pair_close(pair *p)
{
    mha_case_close(p->memory);
    mha_case_close(p->file);
    rerun_free(&p->run);
    trial_release(&p->r);
}

static mha_verdict checked(const mha_case *c, mha_path path)
{
    mha_verdict v;
    mha_error error;
    assert_ok(mha_case_check(c, path, NULL, 1, &v, &error), error);
    return v;
}

static void test_the_same_as_a_file(void **state)
{
    (void)state;
    size_t compared = 0;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        pair p;
        bool made = pair_open(&p, seed);
        assert_true(made || !p.file); /* no file says what a case in memory cannot */
        for (int path = MHA_PATH_AUTO; made && path <= MHA_PATH_EXACT; path++) {
            mha_verdict v = checked(p.memory, (mha_path)path);
            if (v.outcome == MHA_OUTCOME_FAILED)
                fail_msg("seed %llu, %s: %s", (unsigned long long)seed, mha_path_name((mha_path)path), v.reason);
            assert_string_equal(mha_case_name(p.memory), "trial");
            if (p.file) {
                mha_verdict f = checked(p.file, (mha_path)path);
                assert_int_equal(v.outcome, f.outcome);
                assert_int_equal(v.stage_count, f.stage_count);
                for (size_t i = 0; i < v.stage_count; i++) {
                    assert_string_equal(v.stages[i].name, f.stages[i].name);
                    assert_string_equal(v.stages[i].against, f.stages[i].against);
                    /* the file's layer is another one, whose weights may be packed: other bits on the float paths */
                    assert_true(path != MHA_PATH_EXACT ||
                                v.stages[i].difference.max_abs == f.stages[i].difference.max_abs);
                    compared++;
                }
                mha_verdict_clear(&f);
            }
            mha_verdict_clear(&v);
        }
        pair_close(&p);
    }
    assert_true(compared > 400);
}

/* The output of a call on the exact path with other rules for queries without keys and for hidden values. */
static mha_view output_under(rerun *run, mha_empty_rows empty, mha_hidden_values hidden)
{
    mha_error error;
    run->call.semantics.softmax.empty_rows = empty;
    run->call.semantics.softmax.hidden_values = hidden;
    assert_ok(rerun_run(run, MHA_PATH_EXACT, 1, 1u << MHA_STAGE_OUTPUT, &error), error);
    return run->stages[MHA_STAGE_OUTPUT];
}

static bool same_finite(const mha_view *a, const mha_view *b)
{
    const double *x = a->data, *y = b->data;
    for (size_t i = 0; i < mha_view_elements(a); i++)
        if (isfinite(x[i]) != isfinite(y[i]))
            return false;
    return true;
}

/* Random calls in which some queries see no key, or NaN is in a hidden value, whatever hides it: where another rule for
 * them changes what is finite, the bug of that name applies and gives it. */
static void test_bugs_of_hidden_keys_apply_wherever_keys_are_hidden(void **state)
{
    (void)state;
    size_t changed[2] = {0}, by_bias = 0;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        trial t = trial_draw(seed);
        rig r;
        rerun run;
        mha_error error;
        mha_case *c;
        t.input_dtype = MHA_F32, t.amplitude = 0, t.poison = seed % 2;
        t.semantics.softmax.normaliser = MHA_SOFTMAX, t.semantics.softmax.sigmoid_bias = 0;
        t.semantics.softmax.empty_rows = MHA_EMPTY_ZERO, t.semantics.softmax.hidden_values = MHA_HIDDEN_IGNORE;
        trial_build(&t, &r);
        mha_view *table = &r.weights[MHA_BIAS_TABLE];
        for (size_t i = 0; table->data && seed % 3 == 0 && i < table->shape[0]; i++)
            for (size_t h = 0; h < table->shape[1]; h++)
                if (mha__random_bits(seed, 1, i * table->shape[1] + h) % 4)
                    mha_view_set(table, (size_t[]){i, h}, -INFINITY);
        rerun_init(&run, r.layer, &r.call, &r.past.keys, &r.past.values);
        const mha_view plain = output_under(&run, MHA_EMPTY_ZERO, MHA_HIDDEN_IGNORE);
        const mha_case_notes notes = {.past_key = r.past.keys, .past_value = r.past.values,
                                      .rope_origin = r.past.rope_origin};
        if (mha_case_of_call(r.layer, &run.call, NULL, 0, &notes, &c, &error) == MHA_OK) {
            static const char *const names[] = {"empty-nan", "hidden-propagate"};
            for (size_t k = 0; k < 2; k++) {
                const mha_view other = output_under(&run, k == 0 ? MHA_EMPTY_NAN : MHA_EMPTY_ZERO,
                                                    k == 1 ? MHA_HIDDEN_PROPAGATE : MHA_HIDDEN_IGNORE);
                const size_t n = mha_view_elements(&other);
                mha_view bug = mha_view_of(rerun_memory(&run, n * 8 + 1), MHA_F64, other.rank, other.shape);
                if (same_finite(&plain, &other))
                    continue;
                const mha_status status = mha_case_with_bugs(c, &names[k], 1, MHA_STAGE_OUTPUT, &bug, &error);
                char text[900];
                trial_text(&t, text, sizeof text);
                if (status != MHA_OK || !same_finite(&bug, &other))
                    fail_msg("%s: %s: %s", text, names[k], status ? error.message : "other");
                changed[k]++, by_bias += table->data && seed % 3 == 0;
            }
            mha_case_close(c);
        }
        rerun_free(&run);
        trial_release(&r);
    }
    print_message("empty-nan changes %zu calls, hidden-propagate %zu\n", changed[0], changed[1]);
    assert_true(changed[0] > 50 && changed[1] > 50 && by_bias > 20);
}

/* One wrong number is found at its stage, whatever the strides of what is recorded. */
static void test_a_wrong_number_is_found(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        pair p;
        mha_error error;
        if (!pair_open(&p, seed)) {
            pair_close(&p);
            continue;
        }
        const mha_view *q = &p.run.stages[MHA_STAGE_Q];
        const size_t B = q->shape[0], T = q->shape[1], E = q->shape[2];
        double *backwards = malloc(B * T * E * sizeof *backwards);
        mha_view v = mha_view_of(backwards, MHA_F64, 3, (const size_t[]){E, T, B}); /* axes exchanged in memory */
        v.shape[0] = B, v.shape[2] = E;
        v.stride[0] = 1, v.stride[1] = (ptrdiff_t)B, v.stride[2] = (ptrdiff_t)(T * B);
        assert_int_equal(mha_view_copy(&v, q, NULL), MHA_OK);
        const mha_keep recorded[] = {{.stage = MHA_STAGE_OUTPUT, .view = p.run.stages[MHA_STAGE_OUTPUT]},
                                     {.stage = MHA_STAGE_Q, .view = v}};
        for (int wrong = 0; wrong < 2; wrong++) {
            mha_case *c;
            const mha_case_notes notes = {.past_key = p.r.past.keys, .past_value = p.r.past.values,
                                          .rope_origin = p.r.past.rope_origin};
            if (wrong)
                backwards[B * T * E - 1] += 1; /* the last element in either order */
            assert_ok(mha_case_of_call(p.r.layer, &p.run.call, recorded, 2, &notes, &c, &error), error);
            mha_verdict verdict = checked(c, MHA_PATH_EXACT);
            assert_int_equal(verdict.outcome, wrong ? MHA_OUTCOME_FAILED : MHA_OUTCOME_PASSED);
            assert_int_equal(verdict.stage_count, 2);
            assert_int_equal(verdict.culprit, wrong ? 0 : 2);
            assert_string_equal(verdict.stages[0].name, "q");
            mha_verdict_clear(&verdict);
            mha_case_close(c);
        }
        free(backwards);
        pair_close(&p);
    }
}

/* Without a case, mha_tolerance allows what the verdict of the case allows: of results computed in either type, and
 * stored in either. */
static void test_a_call_has_the_tolerance_of_its_verdict(void **state)
{
    (void)state;
    size_t compared = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        pair p;
        mha_error error;
        if (!pair_open(&p, seed) || p.r.past.keys.data) {
            pair_close(&p);
            continue;
        }
        for (int which = 0; which < 4; which++) {
            const mha_dtype computed = which % 2 ? MHA_F64 : MHA_F32, stored = which / 2 ? MHA_F64 : MHA_F32;
            const mha_case_notes notes = {.has_computed = true, .computed = computed};
            mha_keep recorded[2] = {{.stage = MHA_STAGE_OUTPUT}, {.stage = MHA_STAGE_WEIGHTS}};
            mha_allowance allowed[2];
            mha_case *c;
            for (int i = 0; i < 2; i++) {
                const mha_view *stage = &p.run.stages[recorded[i].stage];
                mha_view *view = &recorded[i].view;
                *view = mha_view_of(rerun_memory(&p.run, mha_view_elements(stage) * 8), stored, stage->rank,
                                    stage->shape);
                assert_int_equal(mha_view_copy(view, stage, NULL), MHA_OK);
                allowed[i] = (mha_allowance){.stage = recorded[i].stage, .computed = computed, .stored = stored};
            }
            assert_ok(mha_case_of_call(p.r.layer, &p.run.call, recorded, 2, &notes, &c, &error), error);
            mha_verdict v = checked(c, MHA_PATH_EXACT);
            mha_status status = mha_tolerance(p.r.layer, &p.run.call, allowed, 2, &error);
            assert_int_equal(status, v.outcome == MHA_OUTCOME_SKIPPED ? MHA_UNSUPPORTED : MHA_OK);
            for (size_t i = 0; i < v.stage_count; i++) {
                const mha_allowance *a = &allowed[strcmp(v.stages[i].name, "weights") == 0];
                assert_string_equal(v.stages[i].name, mha_stage_at(a->stage)->name);
                assert_true(v.stages[i].rtol == a->rtol && v.stages[i].atol == a->atol);
                assert_true(a->rtol == (which == 1 ? 0x1p-24 : 0));
                assert_true(a->stored == stored && a->computed == computed);
                compared++;
            }
            assert_int_equal(v.outcome, v.stage_count ? MHA_OUTCOME_PASSED : MHA_OUTCOME_SKIPPED);
            mha_verdict_clear(&v);
            mha_case_close(c);
        }
        pair_close(&p);
    }
    assert_true(compared > 100);
}

static void test_what_no_result_can_be_has_no_tolerance(void **state)
{
    (void)state;
    float x[4] = {1, 2, 3, 4};
    mha_case *c;
    mha_error error;
    const mha_call call = {.query = mha_heads(x, 1, 1, 1, 4), .key = mha_heads(x, 1, 1, 1, 4),
                           .value = mha_heads(x, 1, 1, 1, 4)};
    mha_allowance wrong[] = {{.stage = MHA_STAGE_COUNT}, {.computed = MHA_F16}, {.stage = MHA_STAGE_Q_LATENT}};
    assert_refused(mha_tolerance(NULL, &call, &wrong[0], 1, &error), MHA_INVALID, error, "stages of mha_stage");
    assert_refused(mha_tolerance(NULL, &call, &wrong[1], 1, &error), MHA_INVALID, error, "q: ", "in F64, found F16");
    assert_refused(mha_tolerance(NULL, &call, &wrong[2], 1, &error), MHA_UNSUPPORTED, error, "q_latent: ");
    const mha_case_notes half = {.has_computed = true, .computed = MHA_F16};
    assert_refused(mha_case_of_call(NULL, &call, NULL, 0, &half, &c, &error), MHA_INVALID, error,
                   "computed: expected F32 or F64, found F16");
    assert_null(c);
}

static void test_a_wrong_call_is_named(void **state)
{
    (void)state;
    float x[2 * 6 * 8];
    mha_layer *layer;
    mha_params *params;
    mha_error error;
    const mha_config config = {.d_model = 8, .n_heads = 2};
    assert_int_equal(mha_params_create(NULL, &params, NULL), MHA_OK);
    assert_ok(mha_layer_create(&config, params, NULL, &layer, &error), error);
    mha_layer_init(layer, 1);
    mha_call call = {.query = mha_view_of(x, MHA_F32, 3, (const size_t[]){2, 6, 8})};
    mha_random_fill(&call.query, 2, 0, -3, 3);
    call.semantics.place.has_offset = true;
    call.semantics.place.offset = 1;

    rerun wrong;
    rerun_init(&wrong, layer, &call, NULL, NULL);
    assert_ok(rerun_run(&wrong, MHA_PATH_BLAS, 1, 1u << MHA_STAGE_OUTPUT, &error), error);
    call.semantics.visible.causal = true; /* what was meant */
    mha_case *c;
    assert_ok(case_of_run(&wrong, layer, &call, NULL, &c, &error), error);
    mha_diagnosis d;
    assert_ok(mha_case_diagnose(c, NULL, 0, NULL, &d, &error), error);
    assert_string_equal(d.tensor, "expected.output");
    assert_true(d.match_count > 0 && d.matches[0].exact && d.matches[0].count == 1);
    assert_string_equal(d.matches[0].bugs[0], "causal-missing");
    mha_diagnosis_clear(&d);
    mha_case_close(c);

    const size_t right[] = {2, 6, 8}, short_of_a_row[] = {2, 5, 8};
    mha_keep bad[] = {{.stage = MHA_STAGE_OUTPUT, .view = mha_view_of(x, MHA_F32, 3, short_of_a_row)},
                      {.stage = MHA_STAGE_OUTPUT, .view = mha_view_of(x, MHA_F64, 3, right)}};
    assert_refused(mha_case_of_call(layer, &call, bad, 1, NULL, &c, &error), MHA_INVALID, error, "(2, 6, 8)");
    assert_null(c);
    bad[0].view = mha_view_of(x, MHA_I32, 3, right);
    assert_refused(mha_case_of_call(layer, &call, bad, 1, NULL, &c, &error), MHA_INVALID, error, "floating-point");
    assert_null(c);
    bad[0].view = mha_view_of(x, MHA_F32, 3, right);
    assert_refused(mha_case_of_call(layer, &call, bad, 2, NULL, &c, &error), MHA_INVALID, error, "twice");
    assert_null(c);
    bad[0].stage = MHA_STAGE_COUNT;
    assert_refused(mha_case_of_call(layer, &call, bad, 1, NULL, &c, &error), MHA_INVALID, error, "mha_stage");
    assert_null(c);
    rerun_free(&wrong);
    mha_layer_destroy(layer);
    mha_params_destroy(params);
}

/* A call that a case has no words for is refused by the name of the field. */
static void test_what_a_case_cannot_hold_is_refused(void **state)
{
    (void)state;
    float x[6 * 8], kept[6 * 8];
    int64_t at[6] = {0, 2, 4, 6, 8, 10}, elsewhere[6] = {0, 2, 4, 6, 8, 11};
    mha_layer *layer;
    mha_cache *cache;
    mha_case *c;
    mha_error error;
    const mha_cache_spec spec = {.batch = 1, .kv_heads = 2, .d_k = 4, .d_v = 4, .capacity = 8};
    assert_ok(mha_layer_create(&(mha_config){.d_model = 8, .n_heads = 2}, NULL, NULL, &layer, &error), error);
    assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
    mha_layer_init(layer, 1);
    mha_call call = {.query = mha_rows(x, 1, 6, 8), .output = mha_rows(kept, 1, 6, 8), .path = MHA_PATH_BLAS};
    mha_random_fill(&call.query, 2, 0, -1, 1);

    mha_rope *rope = &call.semantics.qkv.rope;
    const mha_view positions = mha_view_of(at, MHA_I64, 2, (const size_t[]){1, 6}),
                   others = mha_view_of(elsewhere, MHA_I64, 2, (const size_t[]){1, 6});
    *rope = (mha_rope){.kind = MHA_ROPE_INTERLEAVED, .k_positions = positions};
    assert_refused(mha_case_of_call(layer, &call, NULL, 0, NULL, &c, &error), MHA_UNSUPPORTED, error, "k_positions");
    rope->q_positions = others;
    assert_refused(mha_case_of_call(layer, &call, NULL, 0, NULL, &c, &error), MHA_UNSUPPORTED, error, "k_positions");
    call.key = mha_rows(x, 1, 5, 8); /* one key less, and so no position for each query */
    rope->k_positions.shape[1] = 5;
    assert_refused(mha_case_of_call(layer, &call, NULL, 0, NULL, &c, &error), MHA_UNSUPPORTED, error, "k_positions");
    call.key = (mha_view){0};
    rope->k_positions = others;
    assert_ok(mha_case_of_call(layer, &call, NULL, 0, NULL, &c, &error), error);
    mha_case_close(c);
    *rope = (mha_rope){.kind = MHA_ROPE_NONE};

    call.cache = cache; /* whose rows from before the call only the caller knows */
    assert_ok(mha_case_of_call(layer, &call, NULL, 0, NULL, &c, &error), error);
    mha_case_close(c);
    assert_ok(mha_run(layer, &call, &error), error);
    assert_refused(mha_case_of_call(layer, &call, NULL, 0, NULL, &c, &error), MHA_INVALID, error,
                   "past_key: expected the rows of the call's cache from before the call");
    assert_null(c);

    call.cache = NULL;
    const mha_view rows = mha_view_of(kept, MHA_I32, 4, (const size_t[]){1, 2, 3, 4});
    for (int which = 0; which < 2; which++) { /* 0 and 1: queries and keys of integers, told by the plan */
        mha_call odd = call;
        odd.key = odd.value = call.query;
        *(which ? &odd.key : &odd.query) = mha_view_of(x, MHA_I32, 3, (const size_t[]){1, 6, 8});
        assert_refused(mha_case_of_call(layer, &odd, NULL, 0, NULL, &c, &error), MHA_INVALID, error,
                       which ? "key" : "query");
    }
    const mha_case_notes past = {.past_key = rows, .past_value = rows};
    assert_refused(mha_case_of_call(layer, &call, NULL, 0, &past, &c, &error), MHA_UNSUPPORTED, error, "I32");
    mha_cache_destroy(cache);
    mha_layer_destroy(layer);
}

/* ---------------------------------------------------------------- the type of what is recorded */

enum { ROWS = 10, WIDTH = 8 }; /* enough elements to derive a tolerance from the error that occurs */

/* A layer, its input, and its output on the exact path. */
typedef struct scene {
    mha_params *params;
    mha_layer *layer;
    mha_call call;
    float x[ROWS * WIDTH];
    double y[ROWS * WIDTH];
} scene;

/* Inputs of -size to size, and scores of about 1. */
static void scene_open(scene *s, double size)
{
    mha_error error;
    memset(s, 0, sizeof *s);
    const mha_config config = {.d_model = WIDTH, .n_heads = 2};
    const size_t shape[3] = {1, ROWS, WIDTH};
    assert_int_equal(mha_params_create(NULL, &s->params, NULL), MHA_OK);
    assert_ok(mha_layer_create(&config, s->params, NULL, &s->layer, &error), error);
    mha_layer_init(s->layer, 1);
    s->call.query = mha_view_of(s->x, MHA_F32, 3, shape);
    mha_random_fill(&s->call.query, 2, 0, -size, size);
    s->call.semantics.visible.causal = true;
    s->call.semantics.softmax.has_scale = true;
    s->call.semantics.softmax.scale = 1 / (size * size);
    rerun run;
    rerun_init(&run, s->layer, &s->call, NULL, NULL);
    assert_ok(rerun_run(&run, MHA_PATH_EXACT, 1, 1u << MHA_STAGE_OUTPUT, &error), error);
    memcpy(s->y, run.stages[MHA_STAGE_OUTPUT].data, sizeof s->y);
    rerun_free(&run);
}

static void scene_close(scene *s)
{
    mha_layer_destroy(s->layer);
    mha_params_destroy(s->params);
}

/* The output as a tensor of that type. */
static mha_view stored_view(const double *y, mha_dtype type, uint16_t *memory)
{
    const mha_view v = mha_view_of(memory, type, 3, (const size_t[]){1, ROWS, WIDTH});
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        short_float_set(&v, i, short_float_pattern(y[i], type));
    return v;
}

/* The same numbers as F32. */
static mha_view widened_view(const double *y, mha_dtype type, float *memory)
{
    uint16_t bits[ROWS * WIDTH];
    const mha_view v = mha_view_of(memory, MHA_F32, 3, (const size_t[]){1, ROWS, WIDTH});
    const mha_view from = stored_view(y, type, bits);
    assert_int_equal(mha_view_copy(&v, &from, NULL), MHA_OK);
    return v;
}

static mha_verdict check_stored(scene *s, const mha_view *output, mha_path path)
{
    mha_error error;
    mha_case *c;
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = *output};
    assert_ok(mha_case_of_call(s->layer, &s->call, &recorded, 1, NULL, &c, &error), error);
    mha_verdict v = checked(c, path);
    mha_case_close(c);
    return v;
}

/* A result rounded as well as its type can passes on every path; two spacings from that fail, and so does the same
 * result as F32, which could be better. */
static void test_a_short_type_is_allowed_its_rounding(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F16, MHA_BF16, MHA_F8_E4M3, MHA_F8_E5M2};
    static const double sizes[] = {1, 1e-7}; /* normal, and where F16 is subnormal and 8 bits are 0 */
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t n = 0; n < 2; n++)
            for (int path = MHA_PATH_AUTO; path <= MHA_PATH_EXACT; path++) {
                scene s;
                uint16_t bits[ROWS * WIDTH];
                scene_open(&s, sizes[n]);
                mha_view output = stored_view(s.y, types[t], bits);
                mha_verdict v = check_stored(&s, &output, (mha_path)path);
                if (v.outcome != MHA_OUTCOME_PASSED)
                    fail_msg("%s of size %g on %s: %s", mha_dtype_name(types[t]), sizes[n],
                             mha_path_name((mha_path)path), v.reason);
                assert_int_equal(v.stages[0].stored, types[t]);
                assert_int_equal(v.stages[0].overflowed, 0);
                mha_verdict_clear(&v);

                size_t largest = 0; /* the others may drown in what float32 costs */
                for (size_t i = 0; i < ROWS * WIDTH; i++)
                    largest = fabs(s.y[i]) > fabs(s.y[largest]) ? i : largest;
                /* the second next value of the type: half to a whole spacing is allowed */
                short_float_set(&output, largest, short_float_pattern(s.y[largest], types[t]) + 2);
                v = check_stored(&s, &output, (mha_path)path);
                if (v.outcome != MHA_OUTCOME_FAILED)
                    fail_msg("%s of size %g on %s: %g stands for %g, allowed %g + %g", mha_dtype_name(types[t]),
                             sizes[n], mha_path_name((mha_path)path), v.stages[0].yours, v.stages[0].exact,
                             v.stages[0].atol, v.stages[0].rtol);
                mha_verdict_clear(&v);

                float widened[ROWS * WIDTH];
                output = widened_view(s.y, types[t], widened);
                v = check_stored(&s, &output, (mha_path)path);
                assert_int_equal(v.outcome, sizes[n] == 1 ? MHA_OUTCOME_FAILED : v.outcome);
                mha_verdict_clear(&v);
                scene_close(&s);
            }
}

/* F16 ends at 65504: a larger number is infinite in a right result, which is reported; a smaller one is not. */
static void test_an_overflow_is_told(void **state)
{
    (void)state;
    scene s;
    uint16_t bits[ROWS * WIDTH];
    scene_open(&s, 1e5);
    size_t beyond = 0, below = 0;
    mha_view output = stored_view(s.y, MHA_F16, bits);
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        if (fabs(s.y[i]) >= 65520)
            beyond++;
        else
            below = i;
    assert_true(beyond > 2 && beyond < ROWS * WIDTH);
    mha_verdict v = check_stored(&s, &output, MHA_PATH_EXACT);
    assert_int_equal(v.outcome, MHA_OUTCOME_PASSED);
    assert_int_equal(v.stages[0].overflowed, beyond);
    mha_verdict_clear(&v);
    bits[below] = s.y[below] > 0 ? 0x7c00 : 0xfc00; /* infinity of the right sign, but too early */
    v = check_stored(&s, &output, MHA_PATH_EXACT);
    assert_int_equal(v.outcome, MHA_OUTCOME_FAILED);
    mha_verdict_clear(&v);
    scene_close(&s);
}

/* In a file the type is the tensor's own, or what source_dtype says of an F32 tensor. */
static void test_a_file_says_the_type(void **state)
{
    (void)state;
    scene s;
    uint16_t bits[ROWS * WIDTH];
    float widened[ROWS * WIDTH];
    mha_error error;
    scene_open(&s, 1);
    const mha_view shorter = stored_view(s.y, MHA_F16, bits), wide = widened_view(s.y, MHA_F16, widened);
    s.call.output = wide;
    const char *from = scratch_path("wide.safetensors"), *to = scratch_path("as.safetensors");
    assert_ok(mha_case_save(from, s.layer, &s.call, NULL, &error), error);
    const struct {
        mha_view output;
        const char *source, *atol;
        mha_outcome outcome;
    } rows[] = {{shorter, NULL, NULL, MHA_OUTCOME_PASSED},    {wide, "F16", NULL, MHA_OUTCOME_PASSED},
                {wide, "BF16", NULL, MHA_OUTCOME_PASSED},     {wide, NULL, NULL, MHA_OUTCOME_FAILED},
                {wide, "F32", NULL, MHA_OUTCOME_FAILED},
                {shorter, NULL, "1e-9", MHA_OUTCOME_PASSED}, /* half a spacing is relative, and not stated */
                {wide, NULL, "1e-2", MHA_OUTCOME_PASSED}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        recase_write(from, to, &(recase){.drop = "expected",
                                         .tensors = {{"expected.output", rows[i].output}},
                                         .metadata = {{"rtol", NULL}, {"rtol64", NULL}, {"atol.expected.output", NULL},
                                                      {"atol", rows[i].atol}, {"source_dtype", rows[i].source}}});
        mha_case *c;
        assert_ok(mha_case_open(to, NULL, &c, &error), error);
        mha_verdict v = checked(c, MHA_PATH_AUTO);
        if (v.outcome != rows[i].outcome)
            fail_msg("row %zu: %s: %s", i, mha_outcome_name(v.outcome), v.reason);
        mha_verdict_clear(&v);
        mha_case_close(c);
    }
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_as_a_file),
        cmocka_unit_test(test_bugs_of_hidden_keys_apply_wherever_keys_are_hidden),
        cmocka_unit_test(test_a_wrong_number_is_found),
        cmocka_unit_test(test_a_call_has_the_tolerance_of_its_verdict),
        cmocka_unit_test(test_what_no_result_can_be_has_no_tolerance),
        cmocka_unit_test(test_a_wrong_call_is_named),
        cmocka_unit_test(test_what_a_case_cannot_hold_is_refused),
        cmocka_unit_test(test_a_short_type_is_allowed_its_rounding),
        cmocka_unit_test(test_an_overflow_is_told),
        cmocka_unit_test(test_a_file_says_the_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
