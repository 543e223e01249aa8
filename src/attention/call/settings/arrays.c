/* One setting of semantics that is an array, seen as a view. */
#include <string.h>

#include "attention/call/settings/settings.h"

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
