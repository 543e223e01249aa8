/* The exact result to a test case, and what is said of another result. */
#include <string.h>

#include "verify/conform/conform.h"
#include "verify/tolerance/tolerance.h"

enum { GRADIENTS = MHA_D_VALUE + 1 };

/* ---------------------------------------------------------------- the exact result */

/* The call, computed exactly. */
static mha_call exact_call(const mha_test_case *q)
{
    mha_call call = q->call;
    call.precision = (mha_precision){0};
    call.path = MHA_PATH_EXACT;
    return call;
}

static mha_status run_exact(mha_test_case *q, mha_test_result *exact, mha_error *error)
{
    const mha_conform_row *r = &q->row;
    mha_call call = exact_call(q);
    mha_keep lse = {.stage = MHA_STAGE_LSE, .view = exact->lse};
    const mha_cache_spec spec = {
        .batch = r->B, .kv_heads = r->h_kv, .d_k = r->d_k, .d_v = r->d_v, .capacity = r->P + r->T_k, .dtype = MHA_F64};
    call.output = exact->output;
    call.keep = q->lse ? &lse : NULL;
    call.keep_count = q->lse;
    mha_cache *cache = NULL;
    if (r->P > 0)
        TRY(mha_cache_create(&spec, NULL, &cache, error));
    call.cache = cache;
    mha_status status = cache ? mha_cache_load(cache, &q->past[0], &q->past[1], error) : MHA_OK;
    if (status == MHA_OK)
        status = mha_run(NULL, &call, error);
    mha_cache_destroy(cache);
    return status;
}

/* The same where a choice is a bug. */
static mha_status run_bugs(mha_test_case *q, mha_test_result *exact, mha_error *error)
{
    mha_case *c;
    mha_call call = q->call;
    call.precision = (mha_precision){0};
    const mha_case_notes notes = {.name = q->row.name, .past_key = q->past[0], .past_value = q->past[1]};
    TRY(mha_case_of_call(NULL, &call, NULL, 0, &notes, &c, error));
    mha_status status = mha_case_with_bugs(c, q->bugs, q->bug_count, MHA_STAGE_OUTPUT, &exact->output, error);
    if (status == MHA_OK && q->lse)
        status = mha_case_with_bugs(c, q->bugs, q->bug_count, MHA_STAGE_LSE, &exact->lse, error);
    mha_case_close(c);
    return status;
}

/* Computes output and lse when they are first asked for. */
static mha_status forward_exactly(mha_test_case *q, mha_error *error)
{
    const mha_conform_row *r = &q->row;
    mha_test_result found = {0};
    if (q->exact.output.data)
        return MHA_OK;
    found.output = mha__arena_view(&q->pool, MHA_F64, 4, (const size_t[]){r->B, r->T_q, r->h, r->d_v});
    if (q->lse)
        found.lse = mha__arena_view(&q->pool, MHA_F64, 3, (const size_t[]){r->B, r->h, r->T_q});
    if (!found.output.data || (q->lse && !found.lse.data))
        return mha__conform_no_memory(q, error);
    TRY((q->bug_count ? run_bugs : run_exact)(q, &found, error));
    q->exact.output = found.output;
    q->exact.lse = found.lse;
    return MHA_OK;
}

/* The inputs, in the order of their gradients. */
static const mha_view *input_of(const mha_test_case *q, int gradient)
{
    const mha_view *const inputs[GRADIENTS] = {&q->call.query, &q->call.key, &q->call.value};
    return inputs[gradient];
}

static mha_status backward_exactly(mha_test_case *q, mha_error *error)
{
    const mha_call call = exact_call(q);
    mha_gradients found = {.d_output = q->d_output};
    if (!q->backward || q->exact.gradients[0].data)
        return MHA_OK;
    for (int g = 0; g < GRADIENTS; g++) {
        found.of[g] = mha__arena_view(&q->pool, MHA_F64, 4, input_of(q, g)->shape);
        if (!found.of[g].data)
            return mha__conform_no_memory(q, error);
    }
    TRY(mha_backward(NULL, &call, &found, error));
    memcpy(q->exact.gradients, found.of, sizeof q->exact.gradients);
    return MHA_OK;
}

mha_status mha_test_case_exact(mha_test_case *q, mha_test_result *exact, mha_error *error)
{
    TRY(forward_exactly(q, error));
    TRY(backward_exactly(q, error));
    *exact = q->exact;
    return MHA_OK;
}

/* ---------------------------------------------------------------- a result */

/* How a result is recorded. */
typedef struct recording {
    mha_keep kept[2];
    mha_gradients gradients;
    mha_case_notes notes; /* points to `gradients` where the result has some */
} recording;

/* "d_query" */
static const char *gradient_word(int gradient, char text[16])
{
    mha__text_print(text, 16, "d_%s", mha_gradient_name((mha_gradient)gradient));
    return text;
}

static mha_status record_gradients(const mha_test_case *q, const mha_test_result *result, recording *r,
                                   mha_error *error)
{
    char word[16];
    r->gradients = (mha_gradients){.d_output = q->d_output};
    for (int g = 0; q->backward && g < GRADIENTS; g++) {
        const mha_view *v = &result->gradients[g];
        r->gradients.of[g] = *v;
        if (!v->data)
            continue;
        TRY(mha__expect_shape(error, gradient_word(g, word), v, 4, input_of(q, g)->shape));
        r->notes.gradients = &r->gradients;
    }
    return MHA_OK;
}

static mha_status record(const mha_test_case *q, const mha_test_result *result, recording *r, mha_error *error)
{
    const mha_conform_row *row = &q->row;
    *r = (recording){.kept = {{.stage = MHA_STAGE_OUTPUT}, {.stage = MHA_STAGE_LSE}},
                     .notes = {.name = row->name, .past_key = q->past[0], .past_value = q->past[1]}};
    if (!result)
        return MHA_OK;
    r->kept[0].view = result->output;
    if (q->lse)
        r->kept[1].view = result->lse;
    if (result->output.data)
        TRY(mha__expect_shape(error, "output", &result->output, 4,
                              (const size_t[]){row->B, row->T_q, row->h, row->d_v}));
    if (r->kept[1].view.data)
        TRY(mha__expect_shape(error, "lse", &result->lse, 3, (const size_t[]){row->B, row->h, row->T_q}));
    return record_gradients(q, result, r, error);
}

mha_status mha_test_case_as_case(const mha_test_case *q, const mha_test_result *result, mha_case **c, mha_error *error)
{
    recording r;
    *c = NULL;
    TRY(record(q, result, &r, error));
    r.notes.has_computed = true;
    r.notes.computed = MHA_F32;
    return mha_case_of_call(NULL, &q->call, r.kept, 2, &r.notes, c, error);
}

/* Compares output or lse with the exact one of the test case's choices, within the tolerance that the verdict found. */
static mha_status compare_row(mha_test_case *q, const mha_test_result *result, mha_stage_verdict *s, mha_error *error)
{
    const bool lse = strcmp(s->name, mha_stage_at(MHA_STAGE_LSE)->name) == 0;
    const mha_view *exact = lse ? &q->exact.lse : &q->exact.output;
    const mha_allowance allowed = {lse ? MHA_STAGE_LSE : MHA_STAGE_OUTPUT, MHA_F32, s->stored, s->rtol, s->atol};
    mha__arena memory = {.allocator = q->pool.allocator};
    const mha_view copy = mha__arena_view(&memory, MHA_F64, exact->rank, exact->shape);
    mha_status status = MHA_OK;
    if (!copy.data || mha_view_copy(&copy, lse ? &result->lse : &result->output, NULL) != MHA_OK)
        status = mha__conform_no_memory(q, error);
    else {
        s->overflowed = mha_replace_equivalent(exact, &allowed, &copy);
        status = mha__compare_to_exact(exact, &copy, s->rtol, s->atol, &s->difference, error);
        s->ok = s->difference.mismatches == 0;
        s->exact = s->difference.worst_actual, s->yours = s->difference.worst_expected;
    }
    mha__arena_free(&memory);
    return status;
}

/* The same of all rows, and what follows; gradients are those of every choice. */
static mha_status compare_again(mha_test_case *q, const mha_test_result *result, mha_verdict *v, mha_error *error)
{
    TRY(forward_exactly(q, error));
    v->outcome = MHA_OUTCOME_PASSED;
    v->culprit = v->stage_count;
    v->reason[0] = 0;
    for (size_t i = 0; i < v->stage_count; i++) {
        mha_stage_verdict *s = &v->stages[i];
        if (strncmp(s->name, "d_", 2) != 0)
            TRY(compare_row(q, result, s, error));
        if (s->ok || v->culprit < v->stage_count)
            continue;
        v->culprit = i;
        v->outcome = MHA_OUTCOME_FAILED;
        mha__text_print(v->reason, sizeof v->reason,
                        "%s diverges first: %zu of %zu elements beyond %g + %g "
                        "|exact|, yours %.9g, exact %.9g",
                        s->name, s->difference.mismatches, s->difference.elements, s->atol, s->rtol, s->yours,
                        s->exact);
    }
    return MHA_OK;
}

/* Whether a result has what is asked for: the output, lse, and gradients of all inputs or of none. */
static mha_status expect_whole(const mha_test_case *q, const mha_test_result *result, mha_error *error)
{
    char word[16];
    int given = 0;
    if (!result || !result->output.data)
        return mha__fail(error, MHA_INVALID, "output", "expected a result, found none");
    if (q->lse && !result->lse.data)
        return mha__fail(error, MHA_INVALID, "lse", "expected log-sum-exp with the output, found none");
    for (int g = 0; g < GRADIENTS; g++)
        given += result->gradients[g].data != NULL;
    for (int g = 0; g < GRADIENTS && q->backward && given > 0; g++)
        if (!result->gradients[g].data)
            return mha__fail(error, MHA_INVALID, gradient_word(g, word), "expected it with the others, found none");
    return MHA_OK;
}

mha_status mha_test_case_check(mha_test_case *q, const mha_test_result *result, mha_verdict *verdict, mha_error *error)
{
    mha_case *c;
    *verdict = (mha_verdict){.path = MHA_PATH_EXACT};
    TRY(expect_whole(q, result, error));
    TRY(mha_test_case_as_case(q, result, &c, error));
    mha_status status = mha_case_check(c, MHA_PATH_EXACT, NULL, 0, verdict, error);
    mha_case_close(c);
    if (status == MHA_OK && q->bug_count && verdict->outcome != MHA_OUTCOME_SKIPPED)
        status = compare_again(q, result, verdict, error);
    if (status != MHA_OK)
        mha_verdict_clear(verdict);
    return status;
}

/* A result as a case file stores it: in F32 or F64, and contiguous. */
static mha_status widen(mha_test_case *q, mha_view *view, mha_error *error)
{
    if (!view->data)
        return MHA_OK;
    const mha_view wide =
        mha__arena_view(&q->pool, view->dtype == MHA_F64 ? MHA_F64 : MHA_F32, view->rank, view->shape);
    if (!wide.data || mha_view_copy(&wide, view, NULL) != MHA_OK)
        return mha__conform_no_memory(q, error);
    *view = wide;
    return MHA_OK;
}

mha_status mha_test_case_save(mha_test_case *q, const char *path, const mha_test_result *result, mha_error *error)
{
    recording r;
    mha_test_result exact;
    mha_call call = q->call;
    if (!result) {
        TRY(mha_test_case_exact(q, &exact, error));
        call.path = MHA_PATH_EXACT;
    }
    TRY(record(q, result ? result : &exact, &r, error));
    r.notes.note = MHA_CONFORM_VERSION;
    for (int i = 0; i < 2; i++)
        TRY(widen(q, &r.kept[i].view, error));
    call.output = r.kept[0].view;
    call.keep = &r.kept[1];
    call.keep_count = r.kept[1].view.data != NULL;
    return mha_case_save(path, NULL, &call, &r.notes, error);
}
