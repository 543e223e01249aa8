/* Keys and values in pages, copied one after the other, as a cache has them; stages as a call with that has them. */
#include <string.h>

#include "attention/cache/pages.h"
#include "attention/call/resolved.h"
#include "base/base.h"
#include "base/heads.h"
#include "verify/attempt/unpaged.h"

mha_status mha__unpage(const mha_pages *pages, size_t B, size_t T_q, mha__arena *pool, mha__unpaged *unpaged,
                       mha_error *error)
{
    TRY(mha__pages_check(pages, B, error));
    size_t S = 0;
    int64_t *const lengths = mha__arena_take(pool, (B + 1) * sizeof *lengths),
                   *const offsets = mha__arena_take(pool, (B + 1) * sizeof *offsets);
    if (!lengths || !offsets)
        return mha__fail(error, MHA_NO_MEMORY, "pages", "no memory for the rows of all sequences");
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
            return mha__fail(error, MHA_NO_MEMORY, "pages", "no memory for the rows of all sequences");
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
    if (s->place.cu_seqlens_q || s->place.has_key_offset || s->place.key_offset != 0)
        return mha__fail(error, MHA_UNSUPPORTED, "pages",
                         "expected neither a ragged batch nor a part of the keys; give each sequence whole");
    TRY(mha__unpage(&call->pages, B, call->query.shape[1], pool, unpaged, error));
    if (!s->visible.kv_lengths)
        s->visible.kv_lengths = unpaged->lengths;
    if (!s->place.position_offset && !s->place.has_offset)
        s->place.position_offset = unpaged->offsets;
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

/* True if a kept stage has the keys of several sequences side by side, in the shape of the call. */
static bool is_spread(const mha__unpaged *unpaged, const mha_keep *kept)
{
    const mha_view *v = &kept->view, *rows = &unpaged->keys;
    return v->data && mha__stage_axis(kept->stage, "S'") >= 0 && v->rank > 1 && v->shape[0] == rows->shape[0] &&
           v->shape[v->rank - 1] >= rows->shape[2];
}

/* Copies what is not zero. */
static void copy_others(const mha_view *to, const mha_view *from)
{
    size_t index[MHA_MAX_RANK] = {0};
    for (bool more = mha_view_elements(from) > 0; more; more = mha__index_next(index, from->shape, from->rank)) {
        const double x = mha_view_get(from, index);
        if (x != 0)
            mha_view_set(to, index, x);
    }
}

/* Puts the numbers of a kept stage into `whole`, which has those of hidden keys, and the extra rows after the longest
 * sequence. What should be zeros and is not stays to be checked. */
static void place(const mha__unpaged *unpaged, const mha_view *kept, const mha_view *whole)
{
    const int axis = kept->rank - 1;
    const size_t S = unpaged->keys.shape[2], extra = kept->shape[axis] - S;
    for (size_t b = 0; b < kept->shape[0]; b++) {
        const size_t n = (size_t)unpaged->lengths[b];
        const mha_view from = mha_view_slice(kept, 0, b, 1), to = mha_view_slice(whole, 0, b, 1);
        const mha_view parts[] = {mha_view_slice(&to, axis, 0, n), mha_view_slice(&from, axis, 0, n),
                                  mha_view_slice(&to, axis, S, extra), mha_view_slice(&from, axis, n, extra)};
        for (int i = 0; i < 4; i += 2)
            (void)mha_view_copy(&parts[i], &parts[i + 1], NULL); /* cannot fail: of one type and shape */
        const mha_view hidden = mha_view_slice(&to, axis, n, S - n),
                       zeros = mha_view_slice(&from, axis, n + extra, S - n);
        copy_others(&hidden, &zeros);
    }
}

mha_status mha__unpage_stages(const mha__unpaged *unpaged, const mha__request *request, mha_keep *kept, size_t count,
                              mha__arena *pool, mha_error *error)
{
    bool wanted[MHA_STAGE_COUNT] = {false}, any = false, unequal = false;
    mha_call exact = *request->call;
    mha__request again = *request;
    mha__attempt attempt;
    exact.path = MHA_PATH_EXACT;
    again.call = &exact;
    for (size_t b = 0; b < unpaged->keys.shape[0]; b++)
        unequal |= (size_t)unpaged->lengths[b] != unpaged->keys.shape[2];
    for (size_t i = 0; i < count && unequal; i++)
        if (is_spread(unpaged, &kept[i]))
            wanted[kept[i].stage] = any = true;
    if (!any)
        return MHA_OK;
    mha_status status = mha__attempt_make(&attempt, &pool->allocator, &again, MHA_BTE, wanted, error);
    for (size_t i = 0; i < count && status == MHA_OK; i++) {
        mha_view *v = &kept[i].view;
        if (!is_spread(unpaged, &kept[i]))
            continue;
        const mha_view whole = mha__arena_view(pool, v->dtype, v->rank, v->shape);
        if (!whole.data)
            status = mha__fail(error, MHA_NO_MEMORY, mha_stage_at(kept[i].stage)->name, "no memory for a copy");
        else if (mha_view_copy(&whole, &attempt.stages[kept[i].stage], NULL) == MHA_OK) { /* else of another type */
            place(unpaged, v, &whole);
            *v = whole;
        }
    }
    mha__attempt_free(&attempt);
    return status;
}
