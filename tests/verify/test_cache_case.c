/* The type of a cache in a case: said in memory and in a file, allowed for by the checker, and no further. */
#include "mha/lab.h"
#include "support/recase.h"
#include "support/scratch.h"
#include "support/unit.h"

enum { OLD = 5, NEW = 9, WIDTH = 16 };

/* The output of NEW queries after OLD rows, by a cache of a type; its case says that the type is another. */
static mha_case *case_of_cache(mha_dtype type, mha_dtype said, mha_path path, const char *file)
{
    static float x[3][NEW * WIDTH], past[2][OLD * WIDTH];
    double memory[NEW * WIDTH];
    mha_cache *caches[2];
    mha_error error;
    mha_case *c;
    const mha_dtype given[] = {type, said};
    mha_view rows[2], inputs[3];
    for (unsigned i = 0; i < 3; i++) {
        inputs[i] = mha_heads(x[i], 1, NEW, 1, WIDTH);
        mha_random_fill(&inputs[i], 3, i, -2, 2);
    }
    for (unsigned i = 0; i < 2; i++) {
        rows[i] = mha_view_of(past[i], MHA_F32, 4, (size_t[]){1, 1, OLD, WIDTH});
        mha_random_fill(&rows[i], 3, 4 + i, -2, 2);
        const mha_cache_spec spec = {1, 1, WIDTH, WIDTH, OLD + NEW, 0, .dtype = given[i]};
        assert_ok(mha_cache_create(&spec, NULL, &caches[i], &error), error);
    }
    assert_ok(mha_cache_load(caches[0], &rows[0], &rows[1], &error), error);
    for (int i = 0; i < 2; i++)
        assert_ok(mha_cache_read(caches[0], i == 1, &rows[i], &error), error);
    mha_call call = {.query = inputs[0], .key = inputs[1], .value = inputs[2], .cache = caches[0], .path = path,
                     .semantics.qkv.rope.kind = MHA_ROPE_HALF_SPLIT, /* so that keys are no numbers of F32 */
                     .output = mha_view_of(memory, path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32, 4,
                                           (size_t[]){1, NEW, 1, WIDTH})};
    assert_ok(mha_run(NULL, &call, &error), error);
    const mha_keep output = {.stage = MHA_STAGE_OUTPUT, .view = call.output};
    const mha_case_notes notes = {.past_key = rows[0], .past_value = rows[1]};
    call.cache = caches[1];
    if (file) {
        assert_ok(mha_case_save(file, NULL, &call, &notes, &error), error);
        assert_ok(mha_case_open(file, NULL, &c, &error), error);
    } else
        assert_ok(mha_case_of_call(NULL, &call, &output, 1, &notes, &c, &error), error);
    for (int i = 0; i < 2; i++)
        mha_cache_destroy(caches[i]);
    return c;
}

/* The result of a cache of one type is correct if the case states this type or a coarser one, and wrong where it
 * says a more exact one; and the diagnosis finds nothing wrong. */
static void a_cache_rounds_to_its_type(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F64, MHA_F32, MHA_F16, MHA_BF16, MHA_I8};
    static const int grades[] = {0, 1, 2, 3, 3}; /* 8 bits and a scale round about as coarsely as BF16 */
    const char *file = scratch_path("cache.safetensors");
    for (int i = 0; i < 5 * 5 * 2 * 2; i++) {
        const mha_dtype type = types[i % 5], said = types[i / 5 % 5];
        const int from = grades[i % 5], to = grades[i / 5 % 5];
        const mha_path path = i / 25 % 2 ? MHA_PATH_EXACT : MHA_PATH_AUTO;
        if (path != MHA_PATH_EXACT && from == 0) /* which only the exact path takes */
            continue;
        mha_case *c = case_of_cache(type, said, path, i / 50 ? file : NULL);
        for (int way = MHA_PATH_AUTO; way <= MHA_PATH_EXACT; way++) {
            mha_verdict v;
            mha_error error;
            assert_ok(mha_case_check(c, (mha_path)way, NULL, 1, &v, &error), error);
            const bool floats = way != MHA_PATH_EXACT || path != MHA_PATH_EXACT, /* computed or recorded in float32 */
                       right = from <= to || (from == 1 && floats);
            if (v.outcome != (right ? MHA_OUTCOME_PASSED : MHA_OUTCOME_FAILED))
                fail_msg("a cache of %s on %s, said to be of %s, checked by %s: %s %s", mha_dtype_name(type),
                         mha_path_name(path), mha_dtype_name(said), mha_path_name((mha_path)way),
                         mha_outcome_name(v.outcome), v.reason);
            mha_verdict_clear(&v);
        }
        if (type == said) {
            mha_diagnosis d;
            mha_error error;
            assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
            assert_true(d.match_count > 0 && d.matches[0].count == 0 && d.matches[0].exact);
            assert_true(d.matches[0].rounding == type || from < 2);
            mha_diagnosis_clear(&d);
        }
        mha_case_close(c);
    }
}

/* A word that is none, and a cache that a case cannot have. */
static void bad_words_are_refused(void **state)
{
    (void)state;
    mha_error error;
    mha_case *c = case_of_cache(MHA_F16, MHA_F16, MHA_PATH_BLAS, scratch_path("cache.safetensors"));
    mha_case_close(c);
    recase_write(scratch_path("cache.safetensors"), scratch_path("other.safetensors"),
                 &(recase){.metadata = {{"cache_dtype", "F8_E4M3"}}});
    assert_refused(mha_case_open(scratch_path("other.safetensors"), NULL, &c, &error), MHA_INVALID, error,
                   "expected one of F64, F32, F16, BF16, I8, found \"F8_E4M3\"");
    static float x[8];
    mha_cache *cache;
    const mha_cache_spec spec = {1, 1, 2, 2, 2, 1, .dtype = MHA_F32};
    assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
    const mha_view one = mha_heads(x, 1, 1, 1, 2);
    mha_call call = {.query = one, .key = one, .value = one, .output = mha_heads(x + 4, 1, 1, 1, 2),
                     .cache = cache};
    for (int i = 0; i < 3; i++)
        assert_ok(mha_run(NULL, &call, &error), error);
    const mha_keep output = {.stage = MHA_STAGE_OUTPUT, .view = call.output};
    const mha_case_notes notes = {.past_key = mha_view_of(x, MHA_F32, 4, (size_t[]){1, 1, 1, 2}),
                                  .past_value = mha_view_of(x, MHA_F32, 4, (size_t[]){1, 1, 1, 2})};
    assert_refused(mha_case_of_call(NULL, &call, &output, 1, &notes, &c, &error), MHA_UNSUPPORTED, error,
                   "a cache that has evicted rows");
    assert_refused(mha_case_save(scratch_path("evicted.safetensors"), NULL, &call, &notes, &error), MHA_UNSUPPORTED,
                   error, "a cache that has evicted rows");
    mha_cache_destroy(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cache_rounds_to_its_type),
        cmocka_unit_test(bad_words_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
