/* The diagnosis of a case that says another number of heads than its result was computed with. */
#include "support/unit.h"

#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/recase.h"
#include "support/scratch.h"

enum { BATCH = 2, TOKENS = 9, WIDTH = 48, ELEMENTS = BATCH * TOKENS * WIDTH };

/* How a result is computed: with `used` query heads of a width that key/value heads share. */
typedef struct setting {
    size_t used, kv_heads, said, said_kv;
    bool causal, rope, sinks;
    mha_dtype dtype; /* of the recorded output */
    bool large;      /* checked on a part of its rows */
} setting;

/* A layer with random weights, biases too; those of `like` where it is given. */
static mha_layer *make_layer(size_t heads, size_t kv_heads, size_t d_k, bool sinks, const mha_layer *like)
{
    mha_layer *layer;
    mha_error error;
    const mha_config config = {.d_model = WIDTH, .n_heads = heads, .kv_heads = kv_heads, .d_k = d_k, .bias_q = true,
                               .bias_v = true, .bias_o = true, .sinks = sinks};
    assert_ok(mha_layer_create(&config, NULL, NULL, &layer, &error), error);
    mha_layer_init(layer, 1);
    for (int i = 0; i < MHA_WEIGHT_COUNT; i++) {
        const mha_tensor *own = mha_layer_weight(layer, (mha_weight)i);
        const mha_tensor *other = like ? mha_layer_weight(like, (mha_weight)i) : NULL;
        const mha_view v = own ? mha_tensor_view(own) : (mha_view){0};
        if (own && v.rank == 1)
            mha_random_fill(&v, 3, (uint64_t)i, -1, 1);
        if (own && other) {
            const mha_view from = mha_tensor_view(other);
            assert_ok(mha_layer_set(layer, (mha_weight)i, &from, &error), error);
        }
    }
    return layer;
}

/* The diagnosis of a result of one layer in a case of another. */
static mha_diagnosis diagnose(const setting *s)
{
    const size_t T = s->large ? 800 : TOKENS, n = BATCH * T * WIDTH, d_k = WIDTH / s->used;
    mha_layer *right = make_layer(s->used, s->kv_heads, d_k, s->sinks, NULL);
    mha_layer *said = make_layer(s->said, s->said_kv, WIDTH / s->said, s->sinks, s->sinks ? NULL : right);
    float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
    double *stored = malloc(n * sizeof *stored);
    mha_error error;
    mha_case *c;
    mha_diagnosis d;
    mha_call call = {.query = mha_rows(x, BATCH, T, WIDTH), .output = mha_rows(y, BATCH, T, WIDTH)};
    call.semantics.visible.causal = s->causal;
    if (s->rope)
        call.semantics.qkv.rope = (mha_rope){.kind = MHA_ROPE_HALF_SPLIT, .dim = 4};
    mha_random_fill(&call.query, 2, 0, -2, 2);
    assert_ok(mha_run(right, &call, &error), error);
    mha_keep recorded = {.stage = MHA_STAGE_OUTPUT};
    recorded.view = mha_view_of(stored, s->dtype, 3, (const size_t[]){BATCH, T, WIDTH});
    assert_int_equal(mha_view_copy(&recorded.view, &call.output, NULL), MHA_OK);
    assert_ok(mha_case_of_call(said, &call, &recorded, 1, NULL, &c, &error), error);
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    assert_int_equal(d.part.checked < d.part.rows, s->large);
    mha_case_close(c);
    mha_layer_destroy(right);
    mha_layer_destroy(said);
    free(x);
    free(y);
    free(stored);
    return d;
}

static void test_the_number_is_named(void **state)
{
    (void)state;
    static const mha_dtype dtypes[] = {MHA_F32, MHA_F16, MHA_F64};
    static const size_t said[] = {1, 2, 6, 12};
    for (size_t h = 0; h < 4; h++)
        for (size_t t = 0; t < 3; t++)
            for (int bits = 0; bits < 4; bits++) {
                const setting s = {4, 4, said[h], said[h], bits & 1, bits & 2, false, dtypes[t], false};
                mha_diagnosis d = diagnose(&s);
                assert_int_equal(d.match_count, 1);
                assert_int_equal(d.matches[0].heads, 4);
                assert_int_equal(d.matches[0].count, 0);
                assert_true(d.matches[0].exact);
                /* float32 wrote it: it is explained to that, in any type in which it is stored */
                assert_int_equal(d.matches[0].rounding, dtypes[t] == MHA_F16 ? MHA_F16 : MHA_F32);
                mha_diagnosis_clear(&d);
            }
}

static void test_grouped_and_large(void **state)
{
    (void)state;
    const setting settings[] = {{6, 2, 12, 4, true, true, false, MHA_F32, false},
                                {12, 4, 6, 2, false, false, false, MHA_F32, false},
                                {4, 4, 8, 8, true, false, false, MHA_F32, true}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        mha_diagnosis d = diagnose(&settings[i]);
        assert_int_equal(d.match_count, 1);
        assert_int_equal(d.matches[0].heads, settings[i].used);
        mha_diagnosis_clear(&d);
    }
}

/* A correct result has no other number; where sinks tell the number, no other is tried. */
static void test_no_other_number(void **state)
{
    (void)state;
    const setting settings[] = {{4, 4, 4, 4, true, false, false, MHA_F32, false},
                                {4, 4, 8, 8, true, false, true, MHA_F32, false}};
    for (size_t i = 0; i < 2; i++) {
        mha_diagnosis d = diagnose(&settings[i]);
        for (size_t m = 0; m < d.match_count; m++)
            assert_int_equal(d.matches[m].heads, 0);
        assert_int_equal(d.match_count > 0, i == 0);
        mha_diagnosis_clear(&d);
    }
}

/* A case without projections: the heads of query, key and value are concatenated. */
static void test_without_projections(void **state)
{
    (void)state;
    static float x[3][ELEMENTS], y[ELEMENTS];
    mha_error error;
    mha_call call = {.query = mha_heads(x[0], BATCH, TOKENS, 4, 12), .key = mha_heads(x[1], BATCH, TOKENS, 4, 12),
                     .value = mha_heads(x[2], BATCH, TOKENS, 4, 12), .output = mha_heads(y, BATCH, TOKENS, 4, 12)};
    const mha_view *inputs[] = {&call.query, &call.key, &call.value};
    recase changes = {.metadata = {{"layout", "BTE"}, {"num_heads", "6"}, {"kv_heads", NULL}, {"d_k", NULL},
                                   {"d_v", NULL}, {"d_model", NULL}}};
    static const char *const names[] = {"query", "key", "value"};
    for (size_t i = 0; i < 3; i++) {
        mha_random_fill(inputs[i], 5, i, -2, 2);
        changes.tensors[i].name = names[i];
        changes.tensors[i].view = mha_rows(x[i], BATCH, TOKENS, WIDTH);
    }
    assert_ok(mha_run(NULL, &call, &error), error);
    changes.tensors[3].name = "expected.output";
    changes.tensors[3].view = mha_rows(y, BATCH, TOKENS, WIDTH);
    const char *right = scratch_path("right.safetensors"), *wrong = scratch_path("wrong.safetensors");
    assert_ok(mha_case_save(right, NULL, &call, NULL, &error), error);
    recase_write(right, wrong, &changes);
    mha_case *c;
    mha_diagnosis d;
    assert_ok(mha_case_open(wrong, NULL, &c, &error), error);
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    assert_int_equal(d.match_count, 1);
    assert_int_equal(d.matches[0].heads, 4);
    mha_diagnosis_clear(&d);
    mha_case_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_number_is_named), cmocka_unit_test(test_grouped_and_large),
        cmocka_unit_test(test_no_other_number), cmocka_unit_test(test_without_projections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
