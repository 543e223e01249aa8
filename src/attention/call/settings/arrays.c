/* One setting of semantics that is an array, seen and put as a view. */
#include <string.h>

#include "attention/call/settings/settings.h"
#include "base/base.h"

mha_view mha__setting_view(const mha_setting *s, const mha_semantics *semantics, size_t B, size_t h)
{
    const char *at = (const char *)semantics + s->at;
    const size_t n = mha_setting_length(s, semantics, B, h);
    mha_view view = {0};
    void *numbers;
    if (s->kind < MHA_SETTING_VIEW || !mha_setting_given(s, semantics))
        return view;
    if (s->kind == MHA_SETTING_VIEW) {
        memcpy(&view, at, sizeof view);
        return view;
    }
    memcpy(&numbers, at, sizeof numbers);
    return mha_view_of(numbers, s->kind == MHA_SETTING_WHOLES ? MHA_I64 : MHA_F64, 1, &n);
}

/* Takes the number of sequences from the first array that has it; that of others must agree. */
static mha_status put_sequences(const mha_setting *s, size_t n, mha_semantics *semantics, mha_error *error)
{
    const size_t known = semantics->place.n_sequences;
    if (known > 0 && n != known + 1)
        return mha__fail(error, MHA_INVALID, s->name, "expected n_sequences + 1 = %zu numbers, found %zu", known + 1,
                         n);
    if (n < 2)
        return mha__fail(error, MHA_INVALID, s->name, "expected n_sequences + 1 numbers, 2 or more, found %zu", n);
    semantics->place.n_sequences = n - 1;
    return MHA_OK;
}

mha_status mha__setting_put_view(const mha_setting *s, const mha_view *view, mha_semantics *semantics, mha_error *error)
{
    const mha_dtype wanted = s->kind == MHA_SETTING_REALS ? MHA_F64 : MHA_I64;
    char *at = (char *)semantics + s->at;
    if (s->kind < MHA_SETTING_VIEW)
        return mha__fail(error, MHA_UNSUPPORTED, s->name, "is a number, not an array");
    if (s->kind == MHA_SETTING_VIEW) {
        memcpy(at, view, sizeof *view);
        return MHA_OK;
    }
    if (view->dtype != wanted || view->rank != 1 || (view->shape[0] > 1 && view->stride[0] != 1))
        return mha__fail(error, MHA_INVALID, s->name, "expected %s of rank 1, contiguous, found %s of rank %d",
                         mha_dtype_name(wanted), mha_dtype_name(view->dtype), view->rank);
    if (strcmp(s->shape, "(n_sequences + 1)") == 0)
        TRY(put_sequences(s, view->shape[0], semantics, error));
    memcpy(at, &view->data, sizeof view->data);
    return MHA_OK;
}
