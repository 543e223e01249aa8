/* The judge: runs a case on a path and holds every recorded result against what comes out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "verify/judge/judge.h"

const char *mha_outcome_name(mha_outcome outcome)
{
    static const char *const names[] = {
        [MHA_OUTCOME_PASSED] = "passed",
        [MHA_OUTCOME_FAILED] = "failed",
        [MHA_OUTCOME_SKIPPED] = "skipped",
    };
    return (unsigned)outcome < sizeof names / sizeof *names ? names[outcome] : "?";
}

/* ---------------------------------------------------------------- runs */

static mha_call base_call(const mha__judgement *j)
{
    mha_call call = mha_case_call(j->c);
    call.path = j->path;
    call.threads = j->threads;
    return call;
}

/* All stages of one call, in the order data flows. `output_only`: what lies before differs on purpose. */
static mha_status judge_call(mha__judgement *j, const char *prefix, const mha_layer *layer, const mha_call *call,
                             bool output_only, bool loose, mha_error *error)
{
    const mha_case *c = j->c;
    bool wanted[MHA_STAGE_COUNT] = {false}, any = false;
    for (int s = 0; s < MHA_STAGE_COUNT; s++) {
        bool recorded = c->expected[0][s].name || c->expected[1][s].name;
        bool qk = s == (int)c->qk_stage && (c->expected[0][CASE_QK].name || c->expected[1][CASE_QK].name);
        wanted[s] = (recorded || qk) && (!output_only || s == MHA_STAGE_OUTPUT) &&
                    mha__judgement_wants(j, mha_stage_name((mha_stage)s));
        any |= wanted[s];
    }
    if (!any)
        return MHA_OK;
    mha__request request = {.layer = layer, .call = call};
    mha_case_past(c, &request.past_key, &request.past_value);
    mha__attempt attempt;
    mha_status status = mha__attempt_begin(&attempt, &c->pool.allocator, &request, error);
    if (!status)
        status = mha__attempt_run(&attempt, c->layout, wanted, error);
    if (!status && !*prefix)
        j->verdict->path = attempt.plan.path;
    for (int s = 0; s < MHA_STAGE_COUNT && !status; s++) {
        if (!wanted[s])
            continue;
        status = mha__judgement_hold(j, prefix, &attempt, &attempt.stages[s], (mha_stage)s, s, loose, error);
        if (!status && s == (int)c->qk_stage)
            status = mha__judgement_hold(j, prefix, &attempt, &attempt.stages[s], (mha_stage)s, CASE_QK, loose, error);
    }
    mha__attempt_free(&attempt);
    return status;
}

/* packed.qkv: query, key and value as columns of one tensor, read in place. */
static mha_status judge_packed(mha__judgement *j, mha_error *error)
{
    const mha_case *c = j->c;
    const mha_view *packed = &c->tensors[CASE_PACKED];
    if (!packed->data)
        return MHA_OK;
    size_t size;
    mha_dtype_bytes(packed->dtype, 1, &size);
    const size_t row = packed->shape[2];
    mha_call call = base_call(j);
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
    return judge_call(j, "packed.", NULL, &call, false, false, error);
}

/* Other weights with the same output: permuted ones regroup the rotated pairs, repeated ones are one
 * key/value head per query head. */
static mha_status judge_identities(mha__judgement *j, mha_error *error)
{
    const mha_case *c = j->c;
    mha_status status = MHA_OK;
    if (c->layers[CASE_PERMUTED]) {
        mha_call call = base_call(j);
        call.semantics.rope.kind = c->permuted_rope;
        status = judge_call(j, "permuted.", c->layers[CASE_PERMUTED], &call, true, false, error);
    }
    if (c->layers[CASE_REPEATED] && !status) {
        mha_call call = base_call(j);
        status = judge_call(j, "repeated.", c->layers[CASE_REPEATED], &call, true, false, error);
    }
    return status;
}

/* PyTorch's packed projection against W_q, W_k, W_v: the same numbers, transposed. */
static mha_status judge_imports(mha__judgement *j, mha_error *error)
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
        for (size_t p = 0; p < imports[i].count && torch->data; p++) {
            const char *weight = mha__case_weight_name(imports[i].parts[p]);
            if (!mha__judgement_wants(j, imports[i].name))
                continue;
            mha_view part = imports[i].count == 1 ? *torch : mha_view_slice(torch, 0, p * n, n),
                     to = w[imports[i].parts[p]];
            if (part.rank == 2) {
                size_t rows = part.shape[0];
                ptrdiff_t step = part.stride[0];
                part.shape[0] = part.shape[1], part.shape[1] = rows;
                part.stride[0] = part.stride[1], part.stride[1] = step;
            }
            mha_stage_verdict *row = mha__judgement_row(j, "", imports[i].name, weight);
            if (!row)
                return mha__fail(error, MHA_NO_MEMORY, c->name, "no memory to judge the case");
            mha_status status = mha_compare(&part, &to, 0, 0, &row->difference, error);
            if (status)
                return status;
            row->ok = row->difference.mismatches == 0;
        }
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- prefill */

/* The call on the first `T` rows of the whole sequence, without anything cached: every position moves
 * back by the cached rows. Tables of one row per new row do not reach so far. */
static mha_status whole_call(mha__judgement *j, mha__arena *pool, size_t T, mha_call *result, mha_error *error)
{
    const mha_case *c = j->c;
    mha_call call = base_call(j);
    mha_semantics *s = &call.semantics;
    const mha_view *mask = &s->mask.values;
    if (mask->data && mask->rank > 1 && mask->shape[mask->rank - 2] > 1)
        return mha__fail(error, MHA_UNSUPPORTED, "prefill.query",
                        "attn_mask has no rows for the whole of prefill.query");
    if (s->rope.cos_table.data && s->rope.cos_table.rank == 3)
        return mha__fail(error, MHA_UNSUPPORTED, "prefill.query",
                        "cos_cache has no rows for the whole of prefill.query");
    call.query = mha_view_slice(&c->tensors[CASE_PREFILL], 1, 0, T);
    call.key = call.value = (mha_view){0};
    s->causal = true;
    int64_t *offset = mha__arena_take(pool, c->B * sizeof *offset);
    int64_t *positions = mha__arena_take(pool, c->B * T * sizeof *positions);
    int64_t *lengths = mha__arena_take(pool, c->B * sizeof *lengths);
    if (!offset || !positions || !lengths)
        return mha__fail(error, MHA_NO_MEMORY, c->name, "no memory to judge the case");
    for (size_t b = 0; b < c->B; b++) {
        offset[b] = s->position_offset ? s->position_offset[b] - (int64_t)c->P : 0;
        const mha_view *p = &s->rope.q_positions;
        int64_t first = p->data ? ((const int64_t *)p->data)[b * p->shape[1]] - (int64_t)c->P : offset[b];
        for (size_t t = 0; t < T; t++)
            positions[b * T + t] = first + (int64_t)t;
        lengths[b] = s->kv_lengths && s->kv_lengths[b] < (int64_t)T ? s->kv_lengths[b] : (int64_t)T;
    }
    s->has_offset = true;
    s->position_offset = offset;
    if (s->kv_lengths)
        s->kv_lengths = lengths;
    if (s->key_padding.values.data)
        s->key_padding.values = mha_view_slice(&s->key_padding.values, 1, 0, T);
    if (mask->data && mask->shape[mask->rank - 1] > T)
        s->mask.values = mha_view_slice(mask, mask->rank - 1, 0, T);
    if (s->rope.kind != MHA_ROPE_NONE)
        s->rope.q_positions = mha_view_of(positions, MHA_I64, 2, (const size_t[]){c->B, T});
    *result = call;
    return MHA_OK;
}

/* Fills a cache with the first P rows of the whole sequence and judges the step once more with it. */
static mha_status judge_cached(mha__judgement *j, mha__arena *pool, mha_error *error)
{
    const mha_case *c = j->c;
    const mha_cache_spec spec = {.batch = c->B,
                                 .kv_heads = c->H_kv,
                                 .d_k = c->d_k,
                                 .d_v = c->d_v,
                                 .capacity = c->P + c->T_q,
                                 .dtype = j->path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32};
    const bool none[MHA_STAGE_COUNT] = {false};
    mha_cache *cache = NULL;
    mha__attempt attempt = {0};
    mha_call prefix;
    mha_status status = whole_call(j, pool, c->P, &prefix, error);
    if (!status)
        status = mha_cache_create(&spec, &c->pool.allocator, &cache, error);
    if (!status) {
        prefix.cache = cache;
        const mha__request request = {.layer = mha_case_layer(c), .call = &prefix};
        status = mha__attempt_begin(&attempt, &c->pool.allocator, &request, error);
        if (!status)
            status = mha__attempt_run(&attempt, MHA_BTE, none, error);
        mha__attempt_free(&attempt);
    }
    if (!status) {
        mha_call step = base_call(j);
        step.cache = cache;
        status = judge_call(j, "cached.", mha_case_layer(c), &step, true, true, error);
    }
    mha_cache_destroy(cache);
    return status;
}

static mha_status judge_prefill(mha__judgement *j, mha_error *error)
{
    const mha_case *c = j->c;
    const mha_view *whole = &c->tensors[CASE_PREFILL];
    if (!whole->data)
        return MHA_OK;
    mha__arena pool = {.allocator = c->pool.allocator};
    mha__attempt attempt = {0};
    mha_call call;
    bool wanted[MHA_STAGE_COUNT] = {false};
    wanted[MHA_STAGE_OUTPUT] = true;
    mha_status status = whole_call(j, &pool, whole->shape[1], &call, error);
    if (!status) {
        const mha__request request = {.layer = mha_case_layer(c), .call = &call};
        status = mha__attempt_begin(&attempt, &c->pool.allocator, &request, error);
        if (!status)
            status = mha__attempt_run(&attempt, MHA_BTE, wanted, error);
        if (!status)
            status = mha__judgement_hold(j, "", &attempt, &attempt.stages[MHA_STAGE_OUTPUT], MHA_STAGE_OUTPUT,
                                        CASE_PREFILL_OUTPUT, false, error);
        mha__attempt_free(&attempt);
    }
    if (!status && c->P > 0)
        status = judge_cached(j, &pool, error);
    mha__arena_free(&pool);
    return status;
}

/* ---------------------------------------------------------------- rotation alone */

/* Positions (B, T) that count from each batch row's own offset. */
static mha_status positions_of_rows(const mha_case *c, mha__arena *pool, mha_view *positions, mha_error *error)
{
    const int64_t *offset = c->semantics.position_offset, far = INT64_MAX / 4;
    int64_t *position = mha__arena_take(pool, c->B * c->T_q * sizeof *position);
    if (!position)
        return mha__fail(error, MHA_NO_MEMORY, c->name, "no memory to judge the case");
    for (size_t b = 0; b < c->B; b++) {
        if (offset[b] > far || offset[b] < -far)
            return mha__fail(error, MHA_INVALID, "position_offset", "offset %lld of row %zu is out of range",
                            (long long)offset[b], b);
        for (size_t t = 0; t < c->T_q; t++)
            position[b * c->T_q + t] = offset[b] + (int64_t)t;
    }
    *positions = mha_view_of(position, MHA_I64, 2, (const size_t[]){c->B, c->T_q});
    return MHA_OK;
}

static mha_status judge_rope(mha__judgement *j, mha_error *error)
{
    const mha_case *c = j->c;
    bool exact = j->path == MHA_PATH_EXACT;
    j->verdict->path = j->path == MHA_PATH_AUTO ? MHA_PATH_BLAS : j->path;
    mha__attempt attempt = {.pool.allocator = c->pool.allocator};
    const size_t shape[] = {c->B, c->T_q, c->E_q};
    mha_view x = mha_case_call(c).query;
    mha_view stored = mha__arena_view(&attempt.pool, exact ? MHA_F64 : MHA_F32, 3, shape);
    if (!stored.data)
        return mha__fail(error, MHA_NO_MEMORY, c->name, "no memory to judge the case");
    mha_view y = mha_view_heads(stored.data, stored.dtype, c->layout, c->B, c->T_q, c->H, c->d_k);
    mha_rope rope = c->semantics.rope;
    mha_status status = mha_view_copy(&y, &x);
    if (status)
        status = mha__fail(error, status, "query", /* unreachable: a case holds floats */
                          "expected a floating type, found %s", mha_dtype_name(x.dtype)); /* unreachable: so */
    else if (c->semantics.position_offset && !rope.q_positions.data)
        status = positions_of_rows(c, &attempt.pool, &rope.q_positions, error);
    if (!status)
        status = mha_rotate(&y, &rope, 0, exact, &y, error);
    if (!status)
        status = mha__judgement_hold(j, "", &attempt, &stored, MHA_STAGE_OUTPUT, MHA_STAGE_OUTPUT, false, error);
    mha__attempt_free(&attempt);
    return status;
}

/* ---------------------------------------------------------------- the whole */

void mha_verdict_clear(mha_verdict *verdict)
{
    mha_allocator a = mha__allocator_default();
    mha__release(&a, verdict->stages, verdict->capacity * sizeof *verdict->stages);
    verdict->stages = NULL;
    verdict->stage_count = verdict->capacity = 0;
}

static mha_status judge_all(mha__judgement *j, mha_error *error)
{
    const mha_case *c = j->c;
    if (c->kind == CASE_ROPE)
        return judge_rope(j, error);
    mha_status status = judge_imports(j, error);
    if (!status) {
        mha_call call = base_call(j);
        status = judge_call(j, "", mha_case_layer(c), &call, false, false, error);
    }
    if (!status)
        status = judge_packed(j, error);
    if (!status)
        status = judge_identities(j, error);
    if (!status)
        status = judge_prefill(j, error);
    return status;
}

static void explain(mha_verdict *v)
{
    v->culprit = v->stage_count;
    for (size_t i = v->stage_count; i-- > 0;)
        if (!v->stages[i].ok)
            v->culprit = i;
    if (v->culprit == v->stage_count)
        return;
    v->outcome = MHA_OUTCOME_FAILED;
    const mha_stage_verdict *s = &v->stages[v->culprit];
    const mha_difference *d = &s->difference;
    char index[128];
    mha__text_print(v->reason, sizeof v->reason,
             "%s diverges first: %zu of %zu elements beyond %g + %g |e|, worst at %s: expected %.9g, "
             "found %.9g",
             s->name, d->mismatches, d->elements, s->atol, s->rtol,
             mha__shape_text(index, sizeof index, d->worst_index, d->rank), d->worst_expected, d->worst_actual);
}

#define STAGE_NAME(code, name) name ", "

mha_status mha_case_judge(const mha_case *c, mha_path path, const char *stage, int threads, mha_verdict *verdict,
                          mha_error *error)
{
    mha_stage known;
    *verdict = (mha_verdict){.path = path};
    if (stage && !mha_stage_find(stage, &known) && strcmp(stage, "prefill_output") != 0)
        return mha__fail(error, MHA_NOT_FOUND, "stage", "expected one of " MHA_STAGE_LIST(STAGE_NAME) "prefill_output, found %s",
                        stage);
    if (*c->skip) {
        verdict->outcome = MHA_OUTCOME_SKIPPED;
        mha__text_print(verdict->reason, sizeof verdict->reason, "%s", c->skip);
        return MHA_OK;
    }
    mha_error inner = {0};
    mha__judgement j = {.c = c, .path = path, .threads = threads, .only = stage, .verdict = verdict};
    mha_status status = judge_all(&j, &inner);
    if (status == MHA_NO_MEMORY) {
        mha_verdict_clear(verdict);
        if (error)
            *error = inner;
        return status;
    }
    explain(verdict);
    if (status) {
        verdict->outcome = status == MHA_UNSUPPORTED && verdict->outcome == MHA_OUTCOME_PASSED ? MHA_OUTCOME_SKIPPED : MHA_OUTCOME_FAILED;
        if (verdict->culprit == verdict->stage_count)
            mha__text_print(verdict->reason, sizeof verdict->reason, "%s", inner.message);
    } else if (verdict->stage_count == 0) {
        verdict->outcome = MHA_OUTCOME_SKIPPED;
        mha__text_print(verdict->reason, sizeof verdict->reason, "no expected tensor%s%s", stage ? " for stage " : "",
                 stage ? stage : "");
    }
    return MHA_OK;
}
