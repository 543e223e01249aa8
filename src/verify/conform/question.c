/* One question: its numbers, its exact answer, and what is said of another answer. */
#include <math.h>
#include <string.h>

#include "verify/conform/conform.h"

static mha_status no_memory(const mha_question *q, mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, q->row.name, "no memory for the question");
}

/* ---------------------------------------------------------------- numbers */

/* Memory of an input: contiguous, or where inputs lie apart, q with heads before rows, v the same for all batch rows,
 * and k and the gradient of the output every other head of a larger tensor. What lies between is NaN. */
static mha_view place(mha_question *q, int tensor, const size_t shape[4])
{
    size_t whole[4] = {shape[0], shape[1], shape[2], shape[3]};
    if (!q->strided)
        return mha__arena_view(&q->pool, q->dtype, 4, whole);
    if (tensor == 0)
        whole[1] = shape[2], whole[2] = shape[1];
    else if (tensor == 2)
        whole[0] = 1;
    else
        whole[2] = 2 * shape[2];
    mha_view v = mha__arena_view(&q->pool, q->dtype, 4, whole);
    size_t index[MHA_MAX_RANK] = {0};
    for (bool more = v.data != NULL; more; more = mha__index_next(index, whole, 4))
        mha_view_set(&v, index, NAN);
    if (tensor == 0)
        return mha_view_swap(&v, 1, 2);
    memcpy(v.shape, shape, 4 * sizeof *shape);
    v.stride[2] *= tensor == 2 ? 1 : 2;
    v.stride[0] = tensor == 2 ? 0 : v.stride[0];
    return v;
}

static mha_status fill(mha_question *q, int tensor, mha_view *view, mha_error *error)
{
    const mha_conform_row *r = &q->row;
    const bool of_keys = tensor == 1 || tensor == 2;
    const size_t shape[] = {r->B, of_keys ? r->T_k : r->T_q, of_keys ? r->h_kv : r->h, tensor > 1 ? r->d_v : r->d_k};
    *view = place(q, tensor, shape);
    if (!view->data)
        return no_memory(q, error);
    size_t index[MHA_MAX_RANK] = {0}, number = 0;
    do {
        const bool same = view->stride[0] == 0 && index[0] > 0; /* written with the first batch row */
        const mha__conform_element e = {tensor, index[0], index[1], index[2], index[3], shape[1], shape[3],
                                        mha__conform_random(q, (uint64_t)tensor, number++), q->dtype};
        const bool hidden = q->regime->hidden != 0 && of_keys && (tensor == 2 || !isnan(q->regime->hidden)) &&
                            mha__conform_hidden(q, index[0], r->P + index[1]);
        if (!same)
            mha_view_set(view, index, hidden ? q->regime->hidden : tensor == 3 ? e.n : q->regime->element(&e));
    } while (mha__index_next(index, shape, 4));
    return MHA_OK;
}

/* The pool of pages for keys (0) or values (1), NaN where no key lies. Page p of a sequence is the one before the last
 * page of the pool, and so on downwards, the sequences taking turns. */
static size_t page_of(const mha_conform_row *r, size_t b, size_t page, size_t columns)
{
    return r->B * columns - (page * r->B + b);
}

static bool fill_pool(mha_question *q, const mha_view *rows, size_t columns, mha_view *pool)
{
    const size_t n = q->page_size, shape[] = {q->row.B * columns + 1, n, rows->shape[2], rows->shape[3]};
    *pool = mha__arena_view(&q->pool, q->dtype, 4, shape);
    size_t at[MHA_MAX_RANK] = {0}, index[MHA_MAX_RANK] = {0};
    for (bool more = pool->data != NULL; more; more = mha__index_next(at, shape, 4))
        mha_view_set(pool, at, NAN);
    for (bool more = pool->data != NULL; more; more = mha__index_next(index, rows->shape, 4)) {
        const size_t to[] = {page_of(&q->row, index[0], index[1] / n, columns), index[1] % n, index[2], index[3]};
        mha_view_set(pool, to, mha_view_get(rows, index));
    }
    return pool->data != NULL;
}

/* Puts keys and values into pages; the last sequence has all of them, each other one fewer. */
static mha_status put_in_pages(mha_question *q, mha_error *error)
{
    const mha_conform_row *r = &q->row;
    const size_t columns = (r->T_k + q->page_size - 1) / q->page_size;
    int32_t *table = mha__arena_take(&q->pool, r->B * columns * sizeof *table);
    int64_t *lengths = mha__arena_take(&q->pool, r->B * sizeof *lengths);
    mha_pages *pages = &q->call.pages;
    if (!table || !lengths || !fill_pool(q, &q->call.key, columns, &pages->keys) ||
        !fill_pool(q, &q->call.value, columns, &pages->values))
        return no_memory(q, error);
    for (size_t b = 0; b < r->B; b++) {
        lengths[b] = (int64_t)(r->T_k - (r->B - 1 - b) * (r->T_k - r->T_q) / r->B);
        for (size_t p = 0; p < columns; p++)
            table[b * columns + p] = (int32_t)page_of(r, b, p, columns);
    }
    pages->table = table, pages->columns = columns, pages->lengths = lengths;
    q->call.key = q->call.value = (mha_view){0};
    return MHA_OK;
}

/* Queries that see no key give nothing where their output is the mean of all values: it is a dialect, and what its
 * gradients are is none of the suite's questions. */
static mha_status silence_empty(mha_question *q, mha_error *error)
{
    const mha_conform_row *r = &q->row;
    const mha_view output = mha__arena_view(&q->pool, MHA_F64, 4, q->d_output.shape),
                   lse = mha__arena_view(&q->pool, MHA_F64, 3, (const size_t[]){r->B, r->h, r->T_q});
    if (!output.data || !lse.data)
        return no_memory(q, error);
    mha_call call = q->call;
    mha_keep kept = {.stage = MHA_STAGE_LSE, .view = lse};
    call.precision = (mha_precision){0};
    call.path = MHA_PATH_EXACT;
    call.output = output;
    call.keep = &kept;
    call.keep_count = 1;
    TRY(mha_run(NULL, &call, error));
    size_t at[MHA_MAX_RANK] = {0};
    do {
        if (isinf(mha_view_get(&lse, (const size_t[]){at[0], at[2], at[1]})))
            mha_view_set(&q->d_output, at, 0);
    } while (mha__index_next(at, q->d_output.shape, 4));
    return MHA_OK;
}

mha_status mha_question_create(size_t index, mha_dtype dtype, const mha_conform_readings *readings,
                               mha_question **question, mha_error *error)
{
    const mha_allocator a = mha__allocator_default();
    *question = NULL;
    if (dtype != MHA_F32 && dtype != MHA_F16 && dtype != MHA_BF16)
        return mha__fail(error, MHA_INVALID, "dtype", "expected F32, F16 or BF16, found %s", mha_dtype_name(dtype));
    mha_question *q = mha__allocate(&a, sizeof *q);
    if (!q)
        return mha__fail(error, MHA_NO_MEMORY, "question", "no memory for it");
    q->pool.allocator = a;
    q->dtype = dtype;
    if (readings)
        q->readings = *readings;
    if (dtype != MHA_F32)
        q->call.precision = mha_precision_of(dtype);
    mha_view *const inputs[] = {&q->call.query, &q->call.key, &q->call.value};
    mha_status status = mha__conform_begin(q, index, error);
    for (int i = 0; i < 3 && status == MHA_OK; i++)
        status = fill(q, i, inputs[i], error);
    if (status == MHA_OK && q->backward)
        status = fill(q, 3, &q->d_output, error);
    if (status == MHA_OK && q->page_size > 0)
        status = put_in_pages(q, error);
    if (status == MHA_OK)
        status = mha__conform_read(q, error);
    if (status == MHA_OK && q->backward && q->variant_count)
        status = silence_empty(q, error);
    if (status == MHA_OK)
        *question = q;
    else
        mha_question_destroy(q);
    return status;
}

void mha_question_destroy(mha_question *q)
{
    const mha_allocator a = mha__allocator_default();
    if (!q)
        return;
    mha__arena_free(&q->pool);
    mha__release(&a, q, sizeof *q);
}

const mha_conform_row *mha_question_row(const mha_question *q)
{
    return &q->row;
}

const mha_call *mha_question_call(const mha_question *q)
{
    return &q->call;
}

void mha_question_past(const mha_question *q, mha_view *keys, mha_view *values)
{
    *keys = q->past[0];
    *values = q->past[1];
}

void mha_question_d_output(const mha_question *q, mha_view *d_output)
{
    *d_output = q->d_output;
}

bool mha_question_differs(const mha_question *q, size_t dialect)
{
    return dialect < MHA_CONFORM_DIALECTS && q->differs[dialect];
}

/* ---------------------------------------------------------------- the exact answer */

static mha_status run_exact(mha_question *q, mha_view results[2], mha_error *error)
{
    const mha_conform_row *r = &q->row;
    mha_call call = q->call;
    mha_keep lse = {.stage = MHA_STAGE_LSE, .view = results[1]};
    const mha_cache_spec spec = {
        .batch = r->B, .kv_heads = r->h_kv, .d_k = r->d_k, .d_v = r->d_v, .capacity = r->P + r->T_k, .dtype = MHA_F64};
    call.precision = (mha_precision){0};
    call.path = MHA_PATH_EXACT;
    call.output = results[0];
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

/* The same where a reading is a variant. */
static mha_status run_variants(mha_question *q, mha_view results[2], mha_error *error)
{
    mha_case *c;
    mha_call call = q->call;
    call.precision = (mha_precision){0};
    const mha_case_notes notes = {.name = q->row.name, .past_key = q->past[0], .past_value = q->past[1]};
    TRY(mha_case_of_call(NULL, &call, NULL, 0, &notes, &c, error));
    mha_status status = mha_case_variant(c, q->variants, q->variant_count, MHA_STAGE_OUTPUT, &results[0], error);
    if (status == MHA_OK && q->lse)
        status = mha_case_variant(c, q->variants, q->variant_count, MHA_STAGE_LSE, &results[1], error);
    mha_case_close(c);
    return status;
}

mha_status mha_question_exact(mha_question *q, mha_view *output, mha_view *lse, mha_error *error)
{
    const mha_conform_row *r = &q->row;
    if (!q->exact[0].data) {
        mha_view results[] = {
            mha__arena_view(&q->pool, MHA_F64, 4, (const size_t[]){r->B, r->T_q, r->h, r->d_v}),
            q->lse ? mha__arena_view(&q->pool, MHA_F64, 3, (const size_t[]){r->B, r->h, r->T_q}) : (mha_view){0}};
        if (!results[0].data || (q->lse && !results[1].data))
            return no_memory(q, error);
        TRY((q->variant_count ? run_variants : run_exact)(q, results, error));
        memcpy(q->exact, results, sizeof results);
    }
    *output = q->exact[0];
    *lse = q->exact[1];
    return MHA_OK;
}

/* ---------------------------------------------------------------- an answer */

/* What an answer is recorded as. */
static mha_status record(const mha_question *q, const mha_view *output, const mha_view *lse, mha_keep kept[2],
                         mha_error *error)
{
    const mha_conform_row *r = &q->row;
    kept[0] = (mha_keep){.stage = MHA_STAGE_OUTPUT, .view = output ? *output : (mha_view){0}};
    kept[1] = (mha_keep){.stage = MHA_STAGE_LSE, .view = lse && q->lse ? *lse : (mha_view){0}};
    if (output)
        TRY(mha__expect_shape(error, "output", output, 4, (const size_t[]){r->B, r->T_q, r->h, r->d_v}));
    return kept[1].view.data ? mha__expect_shape(error, "lse", lse, 3, (const size_t[]){r->B, r->h, r->T_q}) : MHA_OK;
}

mha_status mha_question_case(const mha_question *q, const mha_view *output, const mha_view *lse, mha_case **result,
                             mha_error *error)
{
    mha_keep kept[2];
    const mha_case_notes notes = {.name = q->row.name,
                                  .past_key = q->past[0],
                                  .past_value = q->past[1],
                                  .has_computed = true,
                                  .computed = MHA_F32};
    *result = NULL;
    TRY(record(q, output, lse, kept, error));
    return mha_case_of_call(NULL, &q->call, kept, 2, &notes, result, error);
}

/* Compares an answer with the exact one of the question's readings, within the tolerance that the verdict found. */
static mha_status compare_again(mha_question *q, const mha_view *const answers[2], mha_verdict *v, mha_error *error)
{
    mha_view exact[2];
    mha__arena memory = {.allocator = q->pool.allocator};
    mha_status status = mha_question_exact(q, &exact[0], &exact[1], error);
    v->outcome = MHA_OUTCOME_PASSED;
    v->culprit = v->stage_count;
    v->reason[0] = 0;
    for (size_t i = 0; i < v->stage_count && status == MHA_OK; i++) {
        mha_stage_verdict *s = &v->stages[i];
        const bool lse = strcmp(s->name, mha_stage_name(MHA_STAGE_LSE)) == 0;
        const mha_allowance allowed = {lse ? MHA_STAGE_LSE : MHA_STAGE_OUTPUT, MHA_F32, s->stored, s->rtol, s->atol};
        const mha_view copy = mha__arena_view(&memory, MHA_F64, exact[lse].rank, exact[lse].shape);
        if (!copy.data || mha_view_copy(&copy, answers[lse]) != MHA_OK) {
            status = no_memory(q, error);
            break;
        }
        s->overflowed = mha_replace_equivalent(&exact[lse], &allowed, &copy);
        status = mha_compare(&exact[lse], &copy, s->rtol, s->atol, &s->difference, error);
        s->ok = s->difference.mismatches == 0;
        s->exact = s->difference.worst_actual, s->yours = s->difference.worst_expected;
        if (!s->ok && v->culprit == v->stage_count) {
            v->culprit = i;
            v->outcome = MHA_OUTCOME_FAILED;
            mha__text_print(v->reason, sizeof v->reason, "%s diverges first: %zu of %zu elements beyond %g + %g "
                            "|yours|, yours %.9g, exact %.9g", s->name, s->difference.mismatches,
                            s->difference.elements, s->atol, s->rtol, s->yours, s->exact);
        }
    }
    mha__arena_free(&memory);
    return status;
}

mha_status mha_question_judge(mha_question *q, const mha_view *output, const mha_view *lse, mha_verdict *verdict,
                              mha_error *error)
{
    mha_case *c;
    *verdict = (mha_verdict){.path = MHA_PATH_EXACT};
    if (!output || !output->data)
        return mha__fail(error, MHA_INVALID, "output", "expected an answer, found none");
    if (q->lse && (!lse || !lse->data))
        return mha__fail(error, MHA_INVALID, "lse", "expected log-sum-exp beside the output, found none");
    TRY(mha_question_case(q, output, lse, &c, error));
    mha_status status = mha_case_judge(c, MHA_PATH_EXACT, NULL, 0, verdict, error);
    mha_case_close(c);
    if (status == MHA_OK && q->variant_count && verdict->outcome != MHA_OUTCOME_SKIPPED)
        status = compare_again(q, (const mha_view *const[]){output, lse}, verdict, error);
    if (status != MHA_OK)
        mha_verdict_clear(verdict);
    return status;
}

/* An answer as a case file holds it: in F32 or F64, and contiguous. */
static mha_status widen(mha_question *q, mha_view *view, mha_error *error)
{
    if (!view->data)
        return MHA_OK;
    const mha_view wide = mha__arena_view(&q->pool, view->dtype == MHA_F64 ? MHA_F64 : MHA_F32, view->rank,
                                          view->shape);
    if (!wide.data || mha_view_copy(&wide, view) != MHA_OK)
        return no_memory(q, error);
    *view = wide;
    return MHA_OK;
}

mha_status mha_question_save(mha_question *q, const char *path, const mha_view *output, const mha_view *lse,
                             mha_error *error)
{
    mha_keep kept[2];
    mha_call call = q->call;
    const mha_case_notes notes = {
        .name = q->row.name, .note = MHA_CONFORM_VERSION, .past_key = q->past[0], .past_value = q->past[1]};
    TRY(record(q, output, lse, kept, error));
    if (!output) {
        TRY(mha_question_exact(q, &kept[0].view, &kept[1].view, error));
        call.path = MHA_PATH_EXACT;
    }
    for (int i = 0; i < 2; i++)
        TRY(widen(q, &kept[i].view, error));
    call.output = kept[0].view;
    call.keep = &kept[1];
    call.keep_count = kept[1].view.data != NULL;
    return mha_case_save(path, NULL, &call, &notes, error);
}
