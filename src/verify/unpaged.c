/* Keys and values in pages, copied one after the other, as a cache has them. */
#include <string.h>

#include "attention/pages/pages.h"
#include "attention/steps/steps.h"
#include "base/base.h"
#include "verify/unpaged.h"

static mha_status no_memory(mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, "pages", "no memory for the rows of all sequences");
}

mha_status mha__unpage(const mha_pages *pages, size_t B, size_t T_q, mha__arena *pool, mha__unpaged *unpaged,
                       mha_error *error)
{
    TRY(mha__pages_check(pages, B, error));
    size_t S = 0;
    int64_t *const lengths = mha__arena_take(pool, (B + 1) * sizeof *lengths),
                   *const offsets = mha__arena_take(pool, (B + 1) * sizeof *offsets);
    if (!lengths || !offsets)
        return no_memory(error);
    for (size_t b = 0; b < B; b++) {
        lengths[b] = pages->lengths[b];
        offsets[b] = lengths[b] - (int64_t)T_q;
        S = (size_t)lengths[b] > S ? (size_t)lengths[b] : S;
    }
    *unpaged = (mha__unpaged){.lengths = lengths, .offsets = offsets};
    for (int v = 0; v < 2; v++) {
        const mha_view *from = v ? &pages->values : &pages->keys;
        mha_view *to = v ? &unpaged->values : &unpaged->keys;
        if (!from->data)
            continue;
        *to = mha__arena_view(pool, from->dtype == MHA_F64 ? MHA_F64 : MHA_F32, 4,
                              (size_t[]){B, from->shape[2], S, from->shape[3]});
        if (!to->data)
            return no_memory(error);
        const mha_view rows = mha__swap_time_and_heads(*to);
        mha__pages_copy(pages, B, from, from->shape[3], &rows);
    }
    return MHA_OK;
}

mha_status mha__unpage_call(mha_call *call, const mha_config *config, mha__arena *pool, mha__unpaged *unpaged,
                            mha_error *error)
{
    mha_semantics *s = &call->semantics;
    const size_t B = call->query.shape[0];
    const mha_view *keys = &call->pages.keys, *values = &call->pages.values;
    if (s->cu_seqlens_q || s->has_key_offset || s->key_offset != 0)
        return mha__fail(error, MHA_UNSUPPORTED, "pages",
                         "a ragged batch or a part of the keys in pages is not judged: give each sequence whole");
    TRY(mha__unpage(&call->pages, B, call->query.shape[1], pool, unpaged, error));
    if (!s->kv_lengths)
        s->kv_lengths = unpaged->lengths;
    if (!s->position_offset && !s->has_offset)
        s->position_offset = unpaged->offsets;
    void *const nowhere = mha__unconst(unpaged->lengths); /* inputs without rows, which are there all the same */
    if (config) {
        call->key = mha_view_of(nowhere, MHA_F32, 3, (size_t[]){B, 0, config->d_kin});
        call->value = config->kv_rank ? call->key : mha_view_of(nowhere, MHA_F32, 3, (size_t[]){B, 0, config->d_vin});
    } else {
        call->key = mha_view_of(nowhere, MHA_F32, 4, (size_t[]){B, 0, keys->shape[2], keys->shape[3]});
        call->value = mha_view_of(nowhere, MHA_F32, 4, (size_t[]){B, 0, keys->shape[2], values->shape[3]});
    }
    call->pages = (mha_pages){.columns = 0};
    return MHA_OK;
}
