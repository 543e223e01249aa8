/* One case: its numbers, and what is asked with them. */
#include <math.h>
#include <string.h>

#include "verify/conform/conform.h"

mha_status mha__conform_no_memory(const mha_test_case *q, mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, q->row.name, "no memory for the test case");
}

/* ---------------------------------------------------------------- numbers */

/* Memory of an input: contiguous, or in memory of NaN. Where inputs are apart, q has heads before rows, v is the same
 * for all batch rows, and k and the gradient of the output are every other head of a larger tensor. */
static mha_view place(mha_test_case *q, int tensor, const size_t shape[4])
{
    const size_t first = q->strided == MHA__SHIFTED || (q->strided == MHA__PACKED && tensor > 0);
    const bool apart = q->strided == MHA__APART, query = tensor == 0 && (apart || q->strided == MHA__QUERY_APART);
    size_t whole[4] = {shape[0] + first, shape[1], shape[2], shape[3]};
    if (q->strided == MHA__TOGETHER || (q->strided == MHA__QUERY_APART && tensor > 0))
        return mha__arena_view(&q->pool, q->dtype, 4, whole);
    if (query)
        whole[1] = shape[2], whole[2] = shape[1];
    else if (apart && tensor == 2)
        whole[0] = 1;
    else
        whole[2] *= apart ? 2 : q->strided == MHA__PACKED ? 3 : 1;
    mha_view v = mha__arena_view(&q->pool, q->dtype, 4, whole);
    size_t index[MHA_MAX_RANK] = {0};
    for (bool more = v.data != NULL; more; more = mha__index_next(index, whole, 4))
        mha_view_set(&v, index, NAN);
    if (query)
        return mha__view_swap(&v, 1, 2);
    memcpy(v.shape, shape, 4 * sizeof *shape);
    v.stride[2] *= apart && tensor != 2 ? 2 : 1;
    v.stride[0] = apart && tensor == 2 ? 0 : v.stride[0];
    size_t bytes = 0;
    (void)mha_dtype_bytes(q->dtype, q->strided == MHA__PACKED ? shape[2] * shape[3] : 1, &bytes, NULL);
    if (v.data && first)
        v.data = (char *)v.data + bytes;
    return v;
}

static mha_status fill(mha_test_case *q, int tensor, mha_view *view, mha_error *error)
{
    const mha_conform_row *r = &q->row;
    const bool of_keys = tensor == 1 || tensor == 2;
    const size_t shape[] = {r->B, of_keys ? r->T_k : r->T_q, of_keys ? r->h_kv : r->h, tensor > 1 ? r->d_v : r->d_k};
    *view = place(q, tensor, shape);
    if (!view->data)
        return mha__conform_no_memory(q, error);
    size_t index[MHA_MAX_RANK] = {0}, number = 0;
    do {
        const bool same = view->stride[0] == 0 && index[0] > 0; /* written with the first batch row */
        const mha__conform_element e = {
            tensor,   index[0], index[1], index[2],
            index[3], shape[1], shape[3], mha__conform_random(q, (uint64_t)tensor, number++),
            q->dtype};
        const bool hidden = q->regime->hidden != 0 && of_keys && (tensor == 2 || !isnan(q->regime->hidden)) &&
                            mha__conform_hidden(q, index[0], r->P + index[1]);
        if (!same)
            mha_view_set(view, index, hidden ? q->regime->hidden : tensor == 3 ? e.n : q->regime->element(&e));
    } while (mha__index_next(index, shape, 4));
    return MHA_OK;
}

/* The pool of pages for keys (0) or values (1), NaN where there is no key. Page p of a sequence is the one before the
 * last page of the pool, and so on downwards, the sequences taking turns. */
static size_t page_of(const mha_conform_row *r, size_t b, size_t page, size_t columns)
{
    return r->B * columns - (page * r->B + b);
}

static bool fill_pool(mha_test_case *q, const mha_view *rows, size_t columns, mha_view *pool)
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
static mha_status put_in_pages(mha_test_case *q, mha_error *error)
{
    const mha_conform_row *r = &q->row;
    const size_t columns = (r->T_k + q->page_size - 1) / q->page_size;
    int32_t *table = mha__arena_take(&q->pool, r->B * columns * sizeof *table);
    int64_t *lengths = mha__arena_take(&q->pool, r->B * sizeof *lengths);
    mha_pages *pages = &q->call.pages;
    if (!table || !lengths || !fill_pool(q, &q->call.key, columns, &pages->keys) ||
        !fill_pool(q, &q->call.value, columns, &pages->values))
        return mha__conform_no_memory(q, error);
    for (size_t b = 0; b < r->B; b++) {
        lengths[b] = (int64_t)(r->T_k - (r->B - 1 - b) * (r->T_k - r->T_q) / r->B);
        for (size_t p = 0; p < columns; p++)
            table[b * columns + p] = (int32_t)page_of(r, b, p, columns);
    }
    pages->table = table, pages->columns = columns, pages->lengths = lengths;
    q->call.key = q->call.value = (mha_view){0};
    return MHA_OK;
}

/* Queries that see no key give nothing where their output is the mean of all values: it is a convention, and what its
 * gradients are is none of the suite's test cases. */
static mha_status silence_empty(mha_test_case *q, mha_error *error)
{
    const mha_conform_row *r = &q->row;
    const mha_view output = mha__arena_view(&q->pool, MHA_F64, 4, q->d_output.shape),
                   lse = mha__arena_view(&q->pool, MHA_F64, 3, (const size_t[]){r->B, r->h, r->T_q});
    if (!output.data || !lse.data)
        return mha__conform_no_memory(q, error);
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

mha_status mha_test_case_create(size_t index, mha_dtype dtype, const mha_conform_choices *choices,
                                mha_test_case **test_case, mha_error *error)
{
    const mha_allocator a = mha__allocator_default();
    *test_case = NULL;
    if (dtype != MHA_F32 && dtype != MHA_F16 && dtype != MHA_BF16)
        return mha__fail(error, MHA_INVALID, "dtype", "expected F32, F16 or BF16, found %s", mha_dtype_name(dtype));
    mha_test_case *q = mha__allocate(&a, sizeof *q);
    if (!q)
        return mha__fail(error, MHA_NO_MEMORY, "case", "no memory for it");
    q->pool.allocator = a;
    q->dtype = dtype;
    if (choices)
        q->choices = *choices;
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
    if (status == MHA_OK && q->backward && q->bug_count)
        status = silence_empty(q, error);
    if (status == MHA_OK)
        *test_case = q;
    else
        mha_test_case_destroy(q);
    return status;
}

void mha_test_case_destroy(mha_test_case *q)
{
    const mha_allocator a = mha__allocator_default();
    if (!q)
        return;
    mha__arena_free(&q->pool);
    mha__release(&a, q, sizeof *q);
}

const mha_conform_row *mha_test_case_row(const mha_test_case *q)
{
    return &q->row;
}

const mha_call *mha_test_case_call(const mha_test_case *q)
{
    return &q->call;
}

void mha_test_case_past(const mha_test_case *q, mha_view *keys, mha_view *values)
{
    *keys = q->past[0];
    *values = q->past[1];
}

void mha_test_case_d_output(const mha_test_case *q, mha_view *d_output)
{
    *d_output = q->d_output;
}

bool mha_test_case_differs(const mha_test_case *q, size_t convention)
{
    return convention < MHA_CONFORM_CONVENTIONS && q->differs[convention];
}
