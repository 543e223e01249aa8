/* Reads one tensor of a case file: what it may contain, and the type it has in memory. */
#include "base/base.h"
#include "verify/case/record.h"

bool mha__is_short_float(mha_dtype dtype)
{
    return dtype == MHA_F16 || dtype == MHA_BF16 || dtype == MHA_F8_E4M3 || dtype == MHA_F8_E5M2;
}

mha_status mha__case_read_tensor(mha_case *c, const mha_file_tensor *t, case_content content, mha_view *view,
                                 mha_error *error)
{
    static const char *const expected[] = {[CASE_REAL] = "F32, F64, F16 or BF16",
                                           [CASE_DOUBLE] = "F32, F64, F16 or BF16",
                                           [CASE_ANY] = "BOOL, U8, I64, I32, F32, F64, F16 or BF16",
                                           [CASE_COUNT] = "I64 or I32"};
    const bool real = t->dtype == MHA_F32 || t->dtype == MHA_F64 || mha__is_short_float(t->dtype);
    const bool truth = t->dtype == MHA_BOOL || t->dtype == MHA_U8;
    const bool count = t->dtype == MHA_I64 || t->dtype == MHA_I32;
    const bool fits = content == CASE_COUNT ? count : content == CASE_ANY ? real || truth || count : real;
    if (!fits)
        return mha__fail(error, MHA_INVALID, t->name, "expected %s, found %s", expected[content],
                         mha_dtype_name(t->dtype));
    const bool wide = content == CASE_DOUBLE || t->dtype == MHA_F64;
    const mha_dtype stored = !real ? t->dtype : wide ? MHA_F64 : MHA_F32;
    mha_view v = mha__arena_view(&c->pool, stored, t->rank, t->shape);
    if (!v.data)
        return mha__fail(error, MHA_NO_MEMORY, t->name, "no memory for %zu elements", t->elements);
    TRY(mha_file_read(c->file, t, &v, error));
    *view = v;
    if (stored == MHA_I32) {
        *view = mha__arena_view(&c->pool, MHA_I64, t->rank, t->shape);
        if (!view->data)
            return mha__fail(error, MHA_NO_MEMORY, t->name, "no memory for %zu elements", t->elements);
        for (size_t i = 0; i < t->elements; i++)
            ((int64_t *)view->data)[i] = ((const int32_t *)v.data)[i];
    }
    return MHA_OK;
}
