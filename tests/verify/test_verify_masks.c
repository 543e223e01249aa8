/* Hidden keys in the words of a case file: lengths beyond the number of keys, an additive
 * padding mask with a fill; and cached rows of a wider type than the path has. */
#include "support/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/scratch.h"
#include "support/verdict.h"
#include "support/stages.h"

enum { T = 4, D = 2 };

typedef struct file {
    const char *path;
    mha_writer *writer;
} file;

static void say(file *f, const char *key, const char *value)
{
    mha_error error;
    assert_ok(mha_writer_add_metadata(f->writer, key, value, &error), error);
}

static void hold(file *f, const char *name, const void *data, mha_dtype dtype, int rank, const size_t *shape)
{
    mha_error error;
    union {
        const void *given;
        void *view;
    } memory = {data};
    mha_view v = mha_view_of(memory.view, dtype, rank, shape);
    assert_ok(mha_writer_add(f->writer, name, &v, &error), error);
}

static file begin(const char *name)
{
    file f = {scratch_path(name), NULL};
    mha_error error;
    assert_ok(mha_writer_create(f.path, &f.writer, &error), error);
    say(&f, "kind", "sdpa");
    say(&f, "layout", "BTE");
    say(&f, "num_heads", "1");
    say(&f, "rtol", "0");
    say(&f, "atol", "1e-6");
    return f;
}

static void end_and_check(file *f, const char *what)
{
    mha_error error;
    assert_ok(mha_writer_commit(f->writer, &error), error);
    mha_writer_destroy(f->writer);
    for (int path = MHA_PATH_FAST; path <= MHA_PATH_EXACT; path++) {
        mha_verdict v = check(f->path, (mha_path)path, NULL);
        if (v.outcome != MHA_OUTCOME_PASSED)
            fail_msg("%s, %s: %s", what, mha_path_name((mha_path)path), v.reason);
        mha_verdict_clear(&v);
    }
}

/* Queries of zeros weigh all visible keys alike: the output is the mean of their values, which are 1, 2, 4, 8. */
static const float zeros[2 * T * D], values[2 * T * D] = {1, 1, 2, 2, 4, 4, 8, 8, 1, 1, 2, 2, 4, 4, 8, 8};

static void lengths_beyond_the_keys_say_what_they_say(void **state)
{
    (void)state;
    static const struct {
        int64_t length;
        float mean;
    } rows[] = {{2, 1.5f}, {4, 3.75f}, {5, 3.75f}, {INT64_MAX, 3.75f}, {0, 0}, {-1, 0}, {INT64_MIN, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int64_t lengths[2] = {rows[i].length, 1};
        float expected[2 * D] = {rows[i].mean, rows[i].mean, 1, 1};
        file f = begin("lengths.safetensors");
        hold(&f, "query", zeros, MHA_F32, 3, (size_t[]){2, 1, D});
        hold(&f, "key", zeros, MHA_F32, 3, (size_t[]){2, T, D});
        hold(&f, "value", values, MHA_F32, 3, (size_t[]){2, T, D});
        hold(&f, "kv_lengths", lengths, MHA_I64, 1, (size_t[]){2});
        hold(&f, "expected.output", expected, MHA_F32, 3, (size_t[]){2, 1, D});
        end_and_check(&f, "a length of a row");
    }
    /* Two sequences of one and three keys: each has its own end. */
    const int64_t lengths[2] = {9, 9}, cu_q[3] = {0, 1, 2}, cu_k[3] = {0, 1, 4};
    const float third = 14.0f / 3, expected[2 * D] = {1, 1, third, third};
    file f = begin("ragged.safetensors");
    hold(&f, "query", zeros, MHA_F32, 3, (size_t[]){1, 2, D});
    hold(&f, "key", zeros, MHA_F32, 3, (size_t[]){1, T, D});
    hold(&f, "value", values, MHA_F32, 3, (size_t[]){1, T, D});
    hold(&f, "kv_lengths", lengths, MHA_I64, 1, (size_t[]){2});
    hold(&f, "cu_seqlens_q", cu_q, MHA_I64, 1, (size_t[]){3});
    hold(&f, "cu_seqlens_k", cu_k, MHA_I64, 1, (size_t[]){3});
    hold(&f, "expected.output", expected, MHA_F32, 3, (size_t[]){1, 2, D});
    end_and_check(&f, "a length of a sequence");
}

/* Keys at -inf get the fill instead, the others what the mask says. With all of them hidden the fill cancels. */
static void an_additive_padding_mask_may_have_a_fill(void **state)
{
    (void)state;
    const float mask[2 * T] = {-INFINITY, 0, logf(2), -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    static const char *const fills[] = {"0.6931471805599453", "-1e4", "-1e300", NULL};
    const float some[] = {(2 * 1 + 2 + 2 * 4 + 2 * 8) / 7.0f, 10 / 3.0f, 10 / 3.0f, 10 / 3.0f},
                all[] = {3.75f, 3.75f, 3.75f, 0};
    for (size_t i = 0; i < 4; i++) {
        const float expected[2 * D] = {some[i], some[i], all[i], all[i]};
        file f = begin("fill.safetensors");
        say(&f, "key_padding_mask_kind", "additive");
        if (fills[i])
            say(&f, "mask_filter_value", fills[i]);
        hold(&f, "query", zeros, MHA_F32, 3, (size_t[]){2, 1, D});
        hold(&f, "key", zeros, MHA_F32, 3, (size_t[]){2, T, D});
        hold(&f, "value", values, MHA_F32, 3, (size_t[]){2, T, D});
        hold(&f, "key_padding_mask", mask, MHA_F32, 2, (size_t[]){2, T});
        hold(&f, "expected.output", expected, MHA_F32, 3, (size_t[]){2, 1, D});
        end_and_check(&f, fills[i] ? fills[i] : "no fill");
    }
}

/* Cached doubles are rounded where a path reads them as floats, also when no new key comes with them. */
static void cached_doubles_are_rounded(void **state)
{
    (void)state;
    double past[2][T * D];
    mha_view keys = mha_view_of(past[0], MHA_F64, 4, (size_t[]){1, 1, T, D}),
             rows = mha_view_of(past[1], MHA_F64, 4, keys.shape);
    for (size_t i = 0; i < T * D; i++)
        past[0][i] = 1.0 / (double)(i + 3), past[1][i] = -1.0 / (double)(i + 7);
    mha_call call = {.query = mha_view_of(past[0], MHA_F64, 4, (size_t[]){1, 1, 1, D}),
                     .key = mha_view_of(past[0], MHA_F64, 4, (size_t[]){1, 0, 1, D}),
                     .value = mha_view_of(past[0], MHA_F64, 4, (size_t[]){1, 0, 1, D}),
                     .path = MHA_PATH_EXACT};
    mha_error error;
    mha_cache *cache;
    const mha_cache_spec spec = {.batch = 1, .kv_heads = 1, .d_k = D, .d_v = D, .capacity = T, .dtype = MHA_F64};
    assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
    assert_ok(mha_cache_load(cache, &keys, &rows, &error), error);
    call.cache = cache;
    mha_plan plan;
    assert_ok(mha_plan_call(NULL, &call, &plan, &error), error);
    static double stages[MHA_STAGE_COUNT][T * D];
    static const mha_stage kept[] = {MHA_STAGE_PRESENT_KEY, MHA_STAGE_PRESENT_VALUE, MHA_STAGE_SCORES,
                                     MHA_STAGE_OUTPUT};
    mha_keep list[MHA_STAGE_COUNT];
    stages_list(&call, list);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        *stage_view(&call, kept[i]) = stage_of_plan(&plan, kept[i], stages[kept[i]], MHA_F64);
    assert_ok(mha_plan_call(NULL, &call, &plan, &error), error);
    void *workspace = malloc(plan.workspace_bytes + 1);
    assert_ok(mha_forward(&plan, workspace, plan.workspace_bytes, &error), error);
    free(workspace);
    mha_cache_destroy(cache);
    call.cache = NULL;
    const char *path = scratch_path("past.safetensors");
    const mha_case_notes notes = {.name = "past", .past_key = keys, .past_value = rows};
    assert_ok(mha_case_save(path, NULL, &call, &notes, &error), error);
    for (int p = MHA_PATH_FAST; p <= MHA_PATH_EXACT; p++) {
        mha_verdict v = check(path, (mha_path)p, NULL);
        if (v.outcome != MHA_OUTCOME_PASSED)
            fail_msg("%s: %s", mha_path_name((mha_path)p), v.reason);
        mha_verdict_clear(&v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_beyond_the_keys_say_what_they_say),
        cmocka_unit_test(an_additive_padding_mask_may_have_a_fill),
        cmocka_unit_test(cached_doubles_are_rounded),
    };
    return cmocka_run_group_tests_name("verify_masks", tests, NULL, NULL);
}
