/* The recorded call in other forms, which must give the same numbers: inputs in one packed tensor, other weights,
 * weights as PyTorch packs them, and the whole sequence with its first rows in a cache. */
#include "base/base.h"
#include "verify/check/check.h"

/* Checks packed.qkv: query, key and value are columns of one tensor, read in place. */
mha_status mha__check_packed(mha__comparison *j, mha_error *error)
{
    const mha_case *c = j->c;
    const mha_view *packed = &c->tensors[CASE_PACKED];
    if (!packed->data)
        return MHA_OK;
    size_t size;
    mha_dtype_bytes(packed->dtype, 1, &size, NULL);
    const size_t row = packed->shape[2];
    mha_call call = mha__comparison_call(j);
    const struct {
        mha_view *view;
        size_t heads, d, column;
    } parts[] = {{&call.query, c->H, c->d_k, 0},
                 {&call.key, c->H_kv, c->d_k, c->H * c->d_k},
                 {&call.value, c->H_kv, c->d_v, (c->H + c->H_kv) * c->d_k}};
    for (size_t i = 0; i < 3; i++)
        *parts[i].view = (mha_view){
            .data = (char *)packed->data + parts[i].column * size,
            .dtype = packed->dtype,
            .rank = 4,
            .shape = {c->B, c->T_q, parts[i].heads, parts[i].d},
            .stride = {(ptrdiff_t)(c->T_q * row), (ptrdiff_t)row, (ptrdiff_t)parts[i].d, 1},
        };
    return mha__comparison_run(j, &(mha__checked_call){.prefix = "packed.", .call = &call}, error);
}

/* Checks other weights that give the same output: permuted weights regroup the rotated pairs, repeated weights have
 * one key/value head per query head. */
mha_status mha__check_identities(mha__comparison *j, mha_error *error)
{
    const mha_case *c = j->c;
    mha_call permuted = mha__comparison_call(j), repeated = mha__comparison_call(j);
    permuted.semantics.qkv.rope.kind = c->permuted_rope;
    if (c->layers[CASE_PERMUTED])
        TRY(mha__comparison_run(j, &(mha__checked_call){"permuted.", c->layers[CASE_PERMUTED], &permuted, true, false},
                                error));
    if (c->layers[CASE_REPEATED])
        TRY(mha__comparison_run(j, &(mha__checked_call){"repeated.", c->layers[CASE_REPEATED], &repeated, true, false},
                                error));
    return MHA_OK;
}

/* Compares PyTorch's packed projections with W_q, W_k, W_v: the numbers must be equal after transposing. */
mha_status mha__check_imports(mha__comparison *j, mha_error *error)
{
    const mha_case *c = j->c;
    const mha_view *w = c->weights[CASE_RECORDED];
    const size_t n = c->H * c->d_k;
    const struct {
        case_tensor torch;
        const char *name;
        mha_weight parts[3];
        size_t count;
    } imports[] = {{CASE_IN_PROJ, "torch.in_proj_weight", {MHA_W_Q, MHA_W_K, MHA_W_V}, 3},
                   {CASE_IN_BIAS, "torch.in_proj_bias", {MHA_B_Q, MHA_B_K, MHA_B_V}, 3},
                   {CASE_OUT_PROJ, "torch.out_proj.weight", {MHA_W_O}, 1},
                   {CASE_OUT_BIAS, "torch.out_proj.bias", {MHA_B_O}, 1}};
    for (size_t i = 0; i < sizeof imports / sizeof *imports; i++) {
        const mha_view *torch = &c->tensors[imports[i].torch];
        if (!torch->data || !mha__comparison_wants(j, imports[i].name))
            continue;
        for (size_t p = 0; p < imports[i].count; p++) {
            const char *weight = mha__case_weight_name(imports[i].parts[p]);
            mha_view part = imports[i].count == 1 ? *torch : mha_view_slice(torch, 0, p * n, n);
            const mha_view to = w[imports[i].parts[p]];
            if (part.rank == 2)
                part = mha__view_swap(&part, 0, 1);
            mha_stage_verdict *row;
            TRY(mha__comparison_row(j, "", imports[i].name, weight, &row, error));
            TRY(mha_compare(&part, &to, 0, 0, &row->difference, error));
            row->exact = row->difference.worst_expected; /* the case computes with its own weights */
            row->yours = row->difference.worst_actual;
            row->ok = row->difference.mismatches == 0;
            TRY(mha__comparison_show(j, row, &part, &to, error));
        }
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- prefill */

/* A mask's values for the first T keys. One that does not tell keys apart stays as it is. */
static mha_view first_keys(const mha_view *mask, size_t T)
{
    const bool longer = mask->data && mask->shape[mask->rank - 1] > T;
    return longer ? mha_view_slice(mask, mask->rank - 1, 0, T) : *mask;
}

/* The call on the first `T` rows of the whole sequence without a cache: every position moves back by the P cached
 * rows. Refused when masks or tables have no rows for the earlier positions. */
static mha_status whole_call(mha__comparison *j, mha__arena *pool, size_t T, mha_call *result, mha_error *error)
{
    const mha_case *c = j->c;
    mha_call call = mha__comparison_call(j);
    mha_semantics *s = &call.semantics;
    const mha_view *mask = &s->visible.mask.values;
    if (mask->data && mask->rank > 1 && mask->shape[mask->rank - 2] > 1)
        return mha__fail(error, MHA_UNSUPPORTED, "prefill.query",
                         "expected rows of attn_mask for all of prefill.query, found fewer");
    if (s->qkv.rope.cos_table.data && s->qkv.rope.cos_table.rank == 3)
        return mha__fail(error, MHA_UNSUPPORTED, "prefill.query",
                         "expected rows of cos_cache for all of prefill.query, found fewer");
    call.query = mha_view_slice(&c->tensors[CASE_PREFILL], 1, 0, T);
    call.key = call.value = (mha_view){0};
    s->visible.causal = true;
    int64_t *offset = mha__arena_take(pool, c->B * sizeof *offset);
    int64_t *positions = mha__arena_take(pool, c->B * T * sizeof *positions);
    int64_t *lengths = mha__arena_take(pool, c->B * sizeof *lengths);
    if (!offset || !positions || !lengths)
        return mha__check_no_memory(c, error);
    for (size_t b = 0; b < c->B; b++) {
        offset[b] = s->place.position_offset ? s->place.position_offset[b] - (int64_t)c->P : 0;
        const mha_view *p = &s->qkv.rope.q_positions;
        int64_t first = p->data ? ((const int64_t *)p->data)[b * p->shape[1]] - (int64_t)c->P : offset[b];
        for (size_t t = 0; t < T; t++)
            positions[b * T + t] = first + (int64_t)t;
        lengths[b] =
            s->visible.kv_lengths && s->visible.kv_lengths[b] < (int64_t)T ? s->visible.kv_lengths[b] : (int64_t)T;
    }
    s->place.has_offset = true;
    s->place.position_offset = offset;
    if (s->visible.kv_lengths)
        s->visible.kv_lengths = lengths;
    s->visible.key_padding.values = first_keys(&s->visible.key_padding.values, T);
    s->visible.mask.values = first_keys(&s->visible.mask.values, T);
    if (s->qkv.rope.kind != MHA_ROPE_NONE)
        s->qkv.rope.q_positions = mha_view_of(positions, MHA_I64, 2, (const size_t[]){c->B, T});
    *result = call;
    return MHA_OK;
}

/* Fills a cache with the first P rows of the whole sequence, then checks the recorded call again with that cache. */
static mha_status check_cached(mha__comparison *j, mha__arena *pool, mha_error *error)
{
    const mha_case *c = j->c;
    const mha_cache_spec spec = {.batch = c->B,
                                 .kv_heads = c->H_kv,
                                 .d_k = c->d_k,
                                 .d_v = c->d_v,
                                 .capacity = c->P + c->T_q,
                                 .dtype = j->path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32};
    const bool none[MHA_STAGE_COUNT] = {false};
    mha_call prefix, step = mha__comparison_call(j);
    TRY(whole_call(j, pool, c->P, &prefix, error));
    TRY(mha_cache_create(&spec, &c->pool.allocator, &step.cache, error));
    prefix.cache = step.cache;
    const mha__request request = {.layer = c->layer, .call = &prefix};
    mha__attempt attempt;
    mha_status status = mha__attempt_make(&attempt, &c->pool.allocator, &request, MHA_BTE, none, error);
    mha__attempt_free(&attempt);
    if (status == MHA_OK)
        status = mha__comparison_run(j, &(mha__checked_call){"cached.", c->layer, &step, true, true}, error);
    mha_cache_destroy(step.cache);
    return status;
}

static mha_status check_whole(mha__comparison *j, mha__arena *pool, mha_error *error)
{
    const mha_case *c = j->c;
    mha_call call;
    TRY(whole_call(j, pool, c->tensors[CASE_PREFILL].shape[1], &call, error));
    const mha__request request = {.layer = c->layer, .call = &call, .rope_origin = &c->origin};
    bool wanted[MHA_STAGE_COUNT] = {false};
    wanted[MHA_STAGE_OUTPUT] = true;
    mha__attempt attempt;
    mha_status status = mha__attempt_make(&attempt, &c->pool.allocator, &request, MHA_BTE, wanted, error);
    if (status == MHA_OK) {
        const mha__stage_result result = {.prefix = "",
                                          .computed = &attempt.stages[MHA_STAGE_OUTPUT],
                                          .stage = MHA_STAGE_OUTPUT,
                                          .slot = CASE_PREFILL_OUTPUT,
                                          .S = attempt.plan.S};
        status = mha__comparison_compare(j, &result, error);
    }
    mha__attempt_free(&attempt);
    return status;
}

mha_status mha__check_prefill(mha__comparison *j, mha_error *error)
{
    const mha_case *c = j->c;
    if (!c->tensors[CASE_PREFILL].data)
        return MHA_OK;
    mha__arena pool = {.allocator = c->pool.allocator};
    mha_status status = check_whole(j, &pool, error);
    if (status == MHA_OK && c->P > 0)
        status = check_cached(j, &pool, error);
    mha__arena_free(&pool);
    return status;
}
