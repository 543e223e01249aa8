/* A case made of a call in memory says the same as the file that was written of that call. */
#include "support/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"
#include "support/rerun.h"
#include "support/scratch.h"
#include "support/trial.h"

enum { KEPT = 1u << MHA_STAGE_OUTPUT | 1u << MHA_STAGE_WEIGHTS | 1u << MHA_STAGE_Q | 1u << MHA_STAGE_LSE };

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
    const mha_case_notes notes = {.name = "trial", .past_key = p->r.past.keys, .past_value = p->r.past.values};
    p->memory = p->file = NULL;
    mha_status status = mha_case_of_call(p->r.layer, &p->run.call, p->run.stages, &notes, &p->memory, &error);
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

static mha_verdict judged(const mha_case *c, mha_path path)
{
    mha_verdict v;
    mha_error error;
    assert_ok(mha_case_judge(c, path, NULL, 1, &v, &error), error);
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
            mha_verdict v = judged(p.memory, (mha_path)path);
            if (v.outcome == MHA_OUTCOME_FAILED)
                fail_msg("seed %llu, %s: %s", (unsigned long long)seed, mha_path_name((mha_path)path), v.reason);
            assert_string_equal(mha_case_name(p.memory), "trial");
            if (p.file) {
                mha_verdict f = judged(p.file, (mha_path)path);
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
        mha_view recorded[MHA_STAGE_COUNT] = {{0}};
        const mha_view *q = &p.run.stages[MHA_STAGE_Q];
        const size_t B = q->shape[0], T = q->shape[1], E = q->shape[2];
        double *backwards = malloc(B * T * E * sizeof *backwards);
        mha_view v = mha_view_of(backwards, MHA_F64, 3, (const size_t[]){E, T, B}); /* axes exchanged in memory */
        v.shape[0] = B, v.shape[2] = E;
        v.stride[0] = 1, v.stride[1] = (ptrdiff_t)B, v.stride[2] = (ptrdiff_t)(T * B);
        assert_int_equal(mha_view_copy(&v, q), MHA_OK);
        recorded[MHA_STAGE_Q] = v;
        recorded[MHA_STAGE_OUTPUT] = p.run.stages[MHA_STAGE_OUTPUT];
        for (int wrong = 0; wrong < 2; wrong++) {
            mha_case *c;
            const mha_case_notes notes = {.past_key = p.r.past.keys, .past_value = p.r.past.values};
            if (wrong)
                backwards[B * T * E - 1] += 1; /* the last element in either order */
            assert_ok(mha_case_of_call(p.r.layer, &p.run.call, recorded, &notes, &c, &error), error);
            mha_verdict verdict = judged(c, MHA_PATH_EXACT);
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

static void test_a_wrong_call_is_named(void **state)
{
    (void)state;
    float x[2 * 6 * 8];
    mha_layer *layer;
    mha_params *params;
    mha_error error;
    const mha_config config = {.d_model = 8, .n_heads = 2};
    assert_int_equal(mha_params_create(NULL, &params), MHA_OK);
    assert_ok(mha_layer_create(&config, params, NULL, &layer, &error), error);
    mha_layer_init(layer, 1);
    mha_call call = {.query = mha_view_of(x, MHA_F32, 3, (const size_t[]){2, 6, 8})};
    mha_random_fill(&call.query, 2, 0, -3, 3);
    call.semantics.has_offset = true;
    call.semantics.offset = 1;

    rerun wrong;
    rerun_init(&wrong, layer, &call, NULL, NULL);
    assert_ok(rerun_run(&wrong, MHA_PATH_BLAS, 1, 1u << MHA_STAGE_OUTPUT, &error), error);
    call.semantics.causal = true; /* what was meant */
    mha_case *c;
    assert_ok(mha_case_of_call(layer, &call, wrong.stages, NULL, &c, &error), error);
    mha_diagnosis d;
    assert_ok(mha_case_diagnose(c, NULL, &d, &error), error);
    assert_string_equal(d.tensor, "expected.output");
    assert_true(d.match_count > 0 && d.matches[0].exact && d.matches[0].count == 1);
    assert_string_equal(d.matches[0].variants[0], "causal-missing");
    mha_diagnosis_clear(&d);
    mha_case_close(c);

    mha_view bad[MHA_STAGE_COUNT] = {{0}};
    bad[MHA_STAGE_OUTPUT] = mha_view_of(x, MHA_F32, 3, (const size_t[]){2, 5, 8});
    assert_refused(mha_case_of_call(layer, &call, bad, NULL, &c, &error), MHA_INVALID, error, "(2, 6, 8)");
    assert_null(c);
    bad[MHA_STAGE_OUTPUT] = mha_view_of(x, MHA_I32, 3, (const size_t[]){2, 6, 8});
    assert_refused(mha_case_of_call(layer, &call, bad, NULL, &c, &error), MHA_INVALID, error, "floating-point");
    assert_null(c);
    rerun_free(&wrong);
    mha_layer_destroy(layer);
    mha_params_destroy(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_as_a_file),
        cmocka_unit_test(test_a_wrong_number_is_found),
        cmocka_unit_test(test_a_wrong_call_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
