/* Test cases of the conformance suite answered by this library. */
#include "support/unit.h"

#include <stdlib.h>
#include <string.h>

#include "support/asked.h"

size_t asked_index(const char *name)
{
    mha_conform_row row;
    for (size_t i = 0; mha_conform_at(i, &row); i++)
        if (strcmp(row.name, name) == 0)
            return i;
    fail_msg("no test case is called %s", name);
    return 0;
}

mha_test_case *asked(const char *name, mha_dtype dtype, const mha_conform_choices *choices)
{
    mha_error error;
    mha_test_case *q;
    assert_ok(mha_test_case_create(asked_index(name), dtype, choices, &q, &error), error);
    return q;
}

static mha_view memory(mha_dtype dtype, int rank, const size_t *shape)
{
    const mha_view empty = mha_view_of(NULL, dtype, rank, shape);
    return mha_view_of(calloc(mha_view_elements(&empty) + 1, 8), dtype, rank, shape);
}

mha_test_result asked_memory(const mha_test_case *q, mha_dtype dtype)
{
    const mha_conform_row *r = mha_test_case_row(q);
    return (mha_test_result){memory(dtype, 4, (const size_t[]){r->B, r->T_q, r->h, r->d_v}),
                             memory(MHA_F32, 3, (const size_t[]){r->B, r->h, r->T_q}),
                             {{0}}};
}

void asked_free(mha_test_result *result)
{
    free(result->output.data);
    free(result->lse.data);
    for (int g = 0; g < 3; g++)
        free(result->gradients[g].data);
}

mha_test_result asked_exact(mha_test_case *q, mha_dtype dtype)
{
    mha_test_result exact, result = asked_memory(q, dtype);
    mha_error error;
    assert_ok(mha_test_case_exact(q, &exact, &error), error);
    assert_int_equal(mha_view_copy(&result.output, &exact.output, NULL), MHA_OK);
    if (exact.lse.data)
        assert_int_equal(mha_view_copy(&result.lse, &exact.lse, NULL), MHA_OK);
    for (int g = 0; g < 3 && exact.gradients[g].data; g++) {
        result.gradients[g] = memory(dtype, 4, exact.gradients[g].shape);
        assert_int_equal(mha_view_copy(&result.gradients[g], &exact.gradients[g], NULL), MHA_OK);
    }
    return result;
}

/* A contiguous copy in F32, as float paths take it; nothing of nothing. */
static mha_view widened(const mha_view *view)
{
    if (!view->data)
        return *view;
    const mha_view copy = memory(MHA_F32, view->rank, view->shape);
    assert_int_equal(mha_view_copy(&copy, view, NULL), MHA_OK);
    return copy;
}

mha_test_result asked_path(const mha_test_case *q, mha_path path, mha_dtype dtype)
{
    const mha_conform_row *r = mha_test_case_row(q);
    mha_call call = *mha_test_case_call(q);
    mha_test_result wide = asked_memory(q, MHA_F32), result = asked_memory(q, dtype);
    mha_keep lse = {.stage = MHA_STAGE_LSE, .view = wide.lse};
    mha_view *views[] = {&call.query, &call.key, &call.value, &call.pages.keys, &call.pages.values}, past[2];
    mha_error error;
    mha_cache *cache = NULL;
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        *views[i] = widened(views[i]);
    mha_test_case_past(q, &past[0], &past[1]);
    if (r->P > 0) {
        const mha_cache_spec spec = {
            .batch = r->B, .kv_heads = r->h_kv, .d_k = r->d_k, .d_v = r->d_v, .capacity = r->P + r->T_k};
        assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
        assert_ok(mha_cache_load(cache, &past[0], &past[1], &error), error);
    }
    call.precision = (mha_precision){0};
    call.cache = cache;
    call.path = path;
    call.output = wide.output;
    call.keep = strstr(r->has, "lse") ? &lse : NULL;
    call.keep_count = call.keep != NULL;
    assert_ok(mha_run(NULL, &call, &error), error);
    mha_cache_destroy(cache);
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        free(views[i]->data);
    assert_int_equal(mha_view_copy(&result.output, &wide.output, NULL), MHA_OK);
    assert_int_equal(mha_view_copy(&result.lse, &wide.lse, NULL), MHA_OK);
    asked_free(&wide);
    return result;
}

bool asked_passes(mha_test_case *q, const mha_test_result *result, char *reason)
{
    mha_error error;
    mha_verdict verdict;
    assert_ok(mha_test_case_check(q, result, &verdict, &error), error);
    if (reason)
        memcpy(reason, verdict.reason, sizeof verdict.reason);
    const bool passed = verdict.outcome == MHA_OUTCOME_PASSED;
    assert_int_not_equal(verdict.outcome, MHA_OUTCOME_SKIPPED);
    mha_verdict_clear(&verdict);
    return passed;
}
