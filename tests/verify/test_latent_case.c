/* Cases of latent attention: written, read and checked in both forms; bugs that plain loops make are named. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/latent.h"
#include "support/layer.h"
#include "support/scratch.h"
#include "support/unit.h"

enum { B = 2, T = 6, P = 2, WIDTH = 16, HEADS = 3 };

typedef struct scene {
    mha_layer *layer;
    mha_call call;
    float x[B * T * WIDTH];
    double output[B * T * WIDTH];
} scene;

static void scene_open(scene *s, bool two_stages)
{
    memset(s, 0, sizeof *s);
    const mha_config config = {.d_model = WIDTH, .n_heads = HEADS, .d_k = 10, .d_v = 5, .d_rope = 4, .kv_rank = 9,
                               .q_rank = two_stages ? 7 : 0, .bias_latent = true, .bias_o = true};
    s->layer = made_layer(config, 5);
    s->call.query = mha_rows(s->x, B, T, WIDTH);
    mha_random_fill(&s->call.query, 6, 1, -2, 2);
    s->call.semantics = (mha_semantics){
        .visible.causal = true, .softmax.scale = 0.7, .qkv.norm_eps = 1e-3,
        .qkv.rope = {.kind = MHA_ROPE_INTERLEAVED, .dim = 4, .last = true, .base = 50, .attention_factor = 1.5}};
    s->call.path = MHA_PATH_EXACT;
}

/* ---------------------------------------------------------------- bugs */

static const char *const bugs[] = {
    "latent-q-unnormed",   "latent-kv-unnormed", "latent-shared-normed", "latent-shared-first", "latent-not-shared",
    "latent-values-first", "latent-blocks",      "latent-bias-dropped",  "scale-d-n",           "scale-default",
    "rope-pairing",        "weights-f16",        "weights-bf16",         "weights-bf16-cut"};
enum { BUGS = sizeof bugs / sizeof *bugs };

static bool is_named(const mha_case *c, const char *bug)
{
    mha_diagnosis d;
    mha_error error;
    bool found = false;
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    for (size_t i = 0; i < d.match_count; i++)
        found |= d.matches[i].exact && d.matches[i].count == 1 && strcmp(d.matches[i].bugs[0], bug) == 0;
    if (!found)
        print_error("%s: %s\n", bug,
                    d.match_count == 0   ? "nothing"
                    : d.matches[0].count ? d.matches[0].bugs[0]
                                         : "nothing wrong");
    mha_diagnosis_clear(&d);
    return found;
}

/* Each as the output of a case in the stored and in the absorbed form. */
static void every_bug_is_named(void **state)
{
    (void)state;
    scene s;
    mha_error error;
    scene_open(&s, true);
    const mha_keep output = {.stage = MHA_STAGE_OUTPUT,
                             .view = mha_view_of(s.output, MHA_F64, 3, (size_t[]){B, T, WIDTH})};
    for (size_t i = 0; i < 2 * BUGS; i++) {
        mha_case *c;
        s.call.absorbed = i >= BUGS;
        latent_expect(s.layer, &s.call, bugs[i % BUGS], s.output);
        assert_ok(mha_case_of_call(s.layer, &s.call, &output, 1, NULL, &c, &error), error);
        assert_true(is_named(c, bugs[i % BUGS]));
        mha_case_close(c);
    }
    mha_layer_destroy(s.layer);
}

/* Without a bug a bug computes what the exact path does, at every stage that it has. */
static void nothing_wrong_is_the_exact_path(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        scene s;
        mha_error error;
        mha_case *c;
        mha_plan plan;
        scene_open(&s, i < 2);
        const int64_t cu[] = {0, 4, 4, 6};
        if (i == 3) { /* sequences of one batch row */
            s.call.query = mha_rows(s.x, 1, T, WIDTH);
            s.call.semantics.place.n_sequences = 3, s.call.semantics.place.cu_seqlens_q = cu;
        }
        s.call.absorbed = i % 2 == 1;
        assert_ok(mha_plan_call(s.layer, &s.call, &plan, &error), error);
        mha_keep keep[MHA_STAGE_COUNT];
        size_t n = 0, compared = 0;
        for (int stage = 0; stage < MHA_STAGE_COUNT; stage++) {
            size_t shape[4];
            const int rank = mha_plan_stage(&plan, (mha_stage)stage, shape);
            const mha_view v = mha_view_of(NULL, MHA_F64, rank, shape);
            if (rank == 0)
                continue;
            keep[n] = (mha_keep){.stage = (mha_stage)stage, .view = v};
            keep[n++].view.data = calloc(mha_view_elements(&v), sizeof(double));
            if (stage == MHA_STAGE_OUTPUT)
                s.call.output = keep[--n].view;
        }
        s.call.keep = keep, s.call.keep_count = n;
        assert_ok(mha_run(s.layer, &s.call, &error), error);
        assert_ok(mha_case_of_call(s.layer, &s.call, keep, n, NULL, &c, &error), error);
        keep[n++] = (mha_keep){.stage = MHA_STAGE_OUTPUT, .view = s.call.output};
        for (size_t k = 0; k < n; k++) {
            mha_difference d;
            mha_view found = keep[k].view;
            found.data = calloc(mha_view_elements(&found), sizeof(double));
            const mha_status status = mha_case_with_bugs(c, NULL, 0, keep[k].stage, &found, &error);
            if (s.call.absorbed && status == MHA_UNSUPPORTED)
                assert_non_null(strstr(error.message, "stored"));
            else {
                assert_ok(status, error);
                assert_ok(mha_compare(&found, &keep[k].view, 0, 1e-12, &d, &error), error);
                if (d.mismatches)
                    fail_msg("%d, %s: off by %g", i, mha_stage_at(keep[k].stage)->name, d.max_abs);
                compared++;
            }
            free(found.data), free(keep[k].view.data);
        }
        assert_int_equal(compared, (s.call.absorbed ? 9 : 16) + (i < 2));
        mha_case_close(c);
        mha_layer_destroy(s.layer);
    }
}

/* ---------------------------------------------------------------- files */

/* A call with a cache of either kind, saved with all of its stages, is checked right on every path; one number that is
 * wrong is seen. */
static void files_hold_both_forms(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        scene s;
        mha_error error;
        scene_open(&s, i < 2);
        const bool absorbed = i % 2 == 1;
        const mha_cache_spec spec = {.batch = B, .kv_heads = absorbed ? 1 : HEADS, .d_k = absorbed ? 13 : 10,
                                     .d_v = absorbed ? 0 : 5, .capacity = T, .dtype = MHA_F64};
        mha_cache *cache;
        assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
        mha_call call = s.call;
        call.absorbed = absorbed, call.cache = cache;
        call.query = mha_view_slice(&s.call.query, 1, 0, P);
        call.output = mha_view_of(s.output, MHA_F64, 3, (size_t[]){B, P, WIDTH});
        assert_ok(mha_run(s.layer, &call, &error), error);

        double past[2][B * HEADS * P * 13], latent[B * T * 13], weights[B * HEADS * T * T];
        mha_view held[] = {mha_cache_keys(cache), mha_cache_values(cache)};
        mha_view copies[2];
        for (int v = 0; v < 2; v++) {
            copies[v] = mha_view_of(past[v], MHA_F64, 4, held[v].shape);
            assert_int_equal(mha_view_copy(&copies[v], &held[v], NULL), MHA_OK);
        }
        call.query = mha_view_slice(&s.call.query, 1, P, T - P);
        call.output = mha_view_of(s.output, MHA_F64, 3, (size_t[]){B, T - P, WIDTH});
        mha_keep keep[] = {{MHA_STAGE_KV_LATENT, mha_view_of(latent, MHA_F64, 3, (size_t[]){B, T - P, 13}), 0},
                           {MHA_STAGE_WEIGHTS, mha_view_of(weights, MHA_F64, 4, (size_t[]){B, HEADS, T - P, T}), 0}};
        call.keep = keep, call.keep_count = 2;
        assert_ok(mha_run(s.layer, &call, &error), error);
        mha_case_notes notes = {.past_key = copies[0], .past_value = absorbed ? (mha_view){0} : copies[1]};
        const char *path = scratch_path("latent.safetensors");
        static const mha_path paths[] = {MHA_PATH_EXACT, MHA_PATH_BLAS, MHA_PATH_FAST};
        for (int spoiled = 0; spoiled < 2; spoiled++) {
            s.output[3] += spoiled ? 0.01 : 0;
            assert_ok(mha_case_save(path, s.layer, &call, &notes, &error), error);
            mha_case *c;
            assert_ok(mha_case_open(path, NULL, &c, &error), error);
            assert_null(mha_case_skip_reason(c));
            assert_int_equal(mha_case_call(c).absorbed, absorbed);
            for (size_t p = 0; p < 3; p++) {
                mha_verdict v;
                assert_ok(mha_case_check(c, paths[p], NULL, 1, &v, &error), error);
                if (v.outcome != (spoiled ? MHA_OUTCOME_FAILED : MHA_OUTCOME_PASSED))
                    fail_msg("%d, %s: %s", i, mha_path_name(paths[p]), v.reason);
                assert_int_equal(v.stage_count, 3);
                mha_verdict_clear(&v);
            }
            mha_case_close(c);
        }
        mha_cache_destroy(cache);
        mha_layer_destroy(s.layer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bug_is_named),
        cmocka_unit_test(nothing_wrong_is_the_exact_path),
        cmocka_unit_test(files_hold_both_forms),
    };
    return cmocka_run_group_tests_name("latent cases", tests, NULL, NULL);
}
