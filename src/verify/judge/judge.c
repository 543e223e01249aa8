/* The judge: plans a case on a path, derives the tolerance where none is given, runs it, and compares every recorded
 * result with the computed one. Each of these happens once. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "compute/thread_pool.h"
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

/* Stages in the order of the data flow. Unlike in the enum, the cache is filled before it is read. */
static const mha_stage flow[] = {
    MHA_STAGE_Q,       MHA_STAGE_K,           MHA_STAGE_V,             MHA_STAGE_Q_ROT,  MHA_STAGE_K_ROT,
    MHA_STAGE_PRESENT_KEY, MHA_STAGE_PRESENT_VALUE, MHA_STAGE_SCORES,  MHA_STAGE_CAPPED, MHA_STAGE_MASKED,
    MHA_STAGE_LSE,     MHA_STAGE_WEIGHTS,     MHA_STAGE_WEIGHTS_MEAN,  MHA_STAGE_HEADS,  MHA_STAGE_OUTPUT,
};
_Static_assert(sizeof flow / sizeof *flow == MHA_STAGE_COUNT, "every stage has its place");

/* Whether the file records a stage under its own name, or as `qk` with qk_stage naming this stage. */
static bool records(const mha_case *c, mha_stage stage)
{
    const bool qk = stage == c->qk_stage && (c->expected[0][CASE_QK].name || c->expected[1][CASE_QK].name);
    return c->expected[0][stage].name || c->expected[1][stage].name || qk;
}

/* Chooses the stages of the case's call that are recorded and wanted; false when there are none. */
static bool choose(const mha__judgement *j, bool output_only, bool wanted[MHA_STAGE_COUNT])
{
    bool any = false;
    for (int s = 0; s < MHA_STAGE_COUNT; s++) {
        wanted[s] = records(j->c, (mha_stage)s) && (!output_only || s == MHA_STAGE_OUTPUT) &&
                    mha__judgement_wants(j, mha_stage_name((mha_stage)s));
        any |= wanted[s];
    }
    return any;
}

/* A call whose stages are compared with the recorded ones. */
typedef struct judged_call {
    const char *prefix;
    const mha_layer *layer;
    const mha_call *call;
    bool output_only;   /* the stages before the output differ on purpose */
    bool cache_rounded; /* see mha__stage_result */
} judged_call;

static mha_status compare_stages(mha__judgement *j, const judged_call *of, const mha__attempt *attempt,
                                 const bool wanted[MHA_STAGE_COUNT], mha_error *error)
{
    for (size_t i = 0; i < MHA_STAGE_COUNT; i++) {
        const mha_stage s = flow[i];
        mha__stage_result result = {.prefix = of->prefix,
                                    .computed = &attempt->stages[s],
                                    .stage = s,
                                    .slot = (int)s,
                                    .S = attempt->plan.S,
                                    .cache_rounded = of->cache_rounded};
        if (!wanted[s])
            continue;
        TRY(mha__judgement_compare(j, &result, error));
        result.slot = CASE_QK;
        if (s == j->c->qk_stage)
            TRY(mha__judgement_compare(j, &result, error));
    }
    return MHA_OK;
}

static mha__request request_of(const mha_case *c, const mha_layer *layer, const mha_call *call)
{
    mha__request request = {.layer = layer, .call = call};
    mha_case_past(c, &request.past_key, &request.past_value);
    return request;
}

static mha_status judge_call(mha__judgement *j, const judged_call *of, mha_error *error)
{
    bool wanted[MHA_STAGE_COUNT];
    if (!choose(j, of->output_only, wanted))
        return MHA_OK;
    const mha__request request = request_of(j->c, of->layer, of->call);
    mha__attempt attempt;
    mha_status status = mha__attempt_begin(&attempt, &j->c->pool.allocator, &request, error);
    if (status == MHA_OK)
        status = mha__attempt_run(&attempt, j->c->layout, wanted, error);
    if (status == MHA_OK)
        status = compare_stages(j, of, &attempt, wanted, error);
    mha__attempt_free(&attempt);
    return status;
}

/* ---------------------------------------------------------------- the case's own call */

/* Whether the file leaves open the tolerance of any result that will be compared. */
static bool needs_tolerance(const mha__judgement *j)
{
    for (int slot = 0; slot < CASE_EXPECTED_COUNT; slot++)
        for (int cache_rounded = 0; cache_rounded < 2; cache_rounded++) {
            bool wide;
            const case_expected *e = mha__judgement_expected(j, slot, cache_rounded, &wide);
            if (e && isinf(mha__allowed_of(j->c, slot, wide, MHA_STAGE_OUTPUT, e->stored, NULL).atol))
                return true;
        }
    return false;
}

/* Derives the tolerance of all recorded stages from two runs of the case, which the caller keeps in `runs`. */
static mha_status derive(mha__judgement *j, mha__two_runs *runs, mha_error *error)
{
    const mha_case *c = j->c;
    mha_call call = base_call(j);
    mha__request request = request_of(c, c->layer, &call);
    request.precision = c->precision;
    bool wanted[MHA_STAGE_COUNT];
    for (int s = 0; s < MHA_STAGE_COUNT; s++)
        wanted[s] = records(c, (mha_stage)s);
    wanted[MHA_STAGE_OUTPUT] |= c->expected[0][CASE_PREFILL_OUTPUT].name || c->expected[1][CASE_PREFILL_OUTPUT].name;
    mha_error inner = {0};
    mha_status status = mha__tolerance_of(&request, c->layout, wanted, runs, &j->derived, &inner);
    if (status == MHA_UNSUPPORTED)
        return mha__fail(error, status, inner.name,
                         "no tolerance is given, and none is derived where float32 cannot run it: %s", inner.message);
    if (status != MHA_OK && error)
        *error = inner;
    return status;
}

/* Judges the call as it is recorded: plan, tolerance, run, compare. */
static mha_status judge_recorded(mha__judgement *j, mha_path *used, mha_error *error)
{
    const mha_case *c = j->c;
    mha_call call = base_call(j);
    const judged_call own = {.prefix = "", .layer = c->layer, .call = &call};
    const mha__request request = request_of(c, c->layer, &call);
    bool wanted[MHA_STAGE_COUNT];
    const bool any = choose(j, false, wanted);
    mha__two_runs runs = {0};
    mha__attempt attempt;
    const mha__attempt *ran = &attempt;
    mha_status status = mha__attempt_begin(&attempt, &c->pool.allocator, &request, error);
    if (status == MHA_OK && needs_tolerance(j)) {
        status = derive(j, &runs, error);
        if (j->path == MHA_PATH_EXACT || j->path == MHA_PATH_BLAS)
            ran = j->path == MHA_PATH_EXACT ? &runs.exact : &runs.narrow;
    }
    if (status == MHA_OK && any && ran == &attempt)
        status = mha__attempt_run(&attempt, c->layout, wanted, error);
    if (status == MHA_OK && any) {
        *used = ran->plan.path;
        status = compare_stages(j, &own, ran, wanted, error);
    }
    mha__attempt_free(&attempt);
    mha__two_runs_free(&runs);
    return status;
}

/* ---------------------------------------------------------------- the call in another form */

/* Judges packed.qkv: query, key and value are columns of one tensor, read in place. */
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
    return judge_call(j, &(judged_call){.prefix = "packed.", .call = &call}, error);
}

/* Judges other weights that give the same output: permuted weights regroup the rotated pairs, repeated weights have
 * one key/value head per query head. */
static mha_status judge_identities(mha__judgement *j, mha_error *error)
{
    const mha_case *c = j->c;
    mha_call permuted = base_call(j), repeated = base_call(j);
    permuted.semantics.rope.kind = c->permuted_rope;
    if (c->layers[CASE_PERMUTED])
        TRY(judge_call(j, &(judged_call){"permuted.", c->layers[CASE_PERMUTED], &permuted, true, false}, error));
    if (c->layers[CASE_REPEATED])
        TRY(judge_call(j, &(judged_call){"repeated.", c->layers[CASE_REPEATED], &repeated, true, false}, error));
    return MHA_OK;
}

/* The matrix with its two axes exchanged. */
static mha_view exchanged(const mha_view *matrix)
{
    mha_view v = *matrix;
    v.shape[0] = matrix->shape[1], v.stride[0] = matrix->stride[1];
    v.shape[1] = matrix->shape[0], v.stride[1] = matrix->stride[0];
    return v;
}

/* Compares PyTorch's packed projections with W_q, W_k, W_v: the numbers must be equal after transposing. */
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
        if (!torch->data || !mha__judgement_wants(j, imports[i].name))
            continue;
        for (size_t p = 0; p < imports[i].count; p++) {
            const char *weight = mha__case_weight_name(imports[i].parts[p]);
            mha_view part = imports[i].count == 1 ? *torch : mha_view_slice(torch, 0, p * n, n);
            const mha_view to = w[imports[i].parts[p]];
            if (part.rank == 2)
                part = exchanged(&part);
            mha_stage_verdict *row = mha__judgement_row(j, "", imports[i].name, weight);
            if (!row)
                return mha__fail(error, MHA_NO_MEMORY, c->name, "no memory to judge the case");
            TRY(mha_compare(&part, &to, 0, 0, &row->difference, error));
            row->exact = row->difference.worst_expected; /* the case computes with its own weights */
            row->yours = row->difference.worst_actual;
            row->ok = row->difference.mismatches == 0;
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
    s->key_padding.values = first_keys(&s->key_padding.values, T);
    s->mask.values = first_keys(&s->mask.values, T);
    if (s->rope.kind != MHA_ROPE_NONE)
        s->rope.q_positions = mha_view_of(positions, MHA_I64, 2, (const size_t[]){c->B, T});
    *result = call;
    return MHA_OK;
}

/* Fills a cache with the first P rows of the whole sequence, then judges the recorded call again with that cache. */
static mha_status fill_and_judge(mha__judgement *j, mha__arena *pool, mha_cache *cache, mha_error *error)
{
    const mha_case *c = j->c;
    const bool none[MHA_STAGE_COUNT] = {false};
    mha_call prefix;
    TRY(whole_call(j, pool, c->P, &prefix, error));
    prefix.cache = cache;
    const mha__request request = {.layer = c->layer, .call = &prefix};
    mha__attempt attempt;
    mha_status status = mha__attempt_begin(&attempt, &c->pool.allocator, &request, error);
    if (status == MHA_OK)
        status = mha__attempt_run(&attempt, MHA_BTE, none, error);
    mha__attempt_free(&attempt);
    if (status != MHA_OK)
        return status;
    mha_call step = base_call(j);
    step.cache = cache;
    return judge_call(j, &(judged_call){"cached.", c->layer, &step, true, true}, error);
}

static mha_status judge_cached(mha__judgement *j, mha__arena *pool, mha_error *error)
{
    const mha_case *c = j->c;
    const mha_cache_spec spec = {.batch = c->B,
                                 .kv_heads = c->H_kv,
                                 .d_k = c->d_k,
                                 .d_v = c->d_v,
                                 .capacity = c->P + c->T_q,
                                 .dtype = j->path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32};
    mha_cache *cache;
    TRY(mha_cache_create(&spec, &c->pool.allocator, &cache, error));
    mha_status status = fill_and_judge(j, pool, cache, error);
    mha_cache_destroy(cache);
    return status;
}

static mha_status judge_whole(mha__judgement *j, mha__arena *pool, mha_error *error)
{
    const mha_case *c = j->c;
    mha_call call;
    TRY(whole_call(j, pool, c->tensors[CASE_PREFILL].shape[1], &call, error));
    const mha__request request = {.layer = c->layer, .call = &call};
    bool wanted[MHA_STAGE_COUNT] = {false};
    wanted[MHA_STAGE_OUTPUT] = true;
    mha__attempt attempt;
    mha_status status = mha__attempt_begin(&attempt, &c->pool.allocator, &request, error);
    if (status == MHA_OK)
        status = mha__attempt_run(&attempt, MHA_BTE, wanted, error);
    if (status == MHA_OK) {
        const mha__stage_result result = {.prefix = "",
                                          .computed = &attempt.stages[MHA_STAGE_OUTPUT],
                                          .stage = MHA_STAGE_OUTPUT,
                                          .slot = CASE_PREFILL_OUTPUT,
                                          .S = attempt.plan.S};
        status = mha__judgement_compare(j, &result, error);
    }
    mha__attempt_free(&attempt);
    return status;
}

static mha_status judge_prefill(mha__judgement *j, mha_error *error)
{
    const mha_case *c = j->c;
    if (!c->tensors[CASE_PREFILL].data)
        return MHA_OK;
    mha__arena pool = {.allocator = c->pool.allocator};
    mha_status status = judge_whole(j, &pool, error);
    if (status == MHA_OK && c->P > 0)
        status = judge_cached(j, &pool, error);
    mha__arena_free(&pool);
    return status;
}

/* ---------------------------------------------------------------- rotation alone */

/* Judges a rotation: runs a call whose keys and values are its queries, and keeps only the rotated queries. */
static mha_status judge_rope(mha__judgement *j, mha_path *used, mha_error *error)
{
    const mha_case *c = j->c;
    mha_call call = base_call(j);
    call.key = call.value = call.query;
    call.weights = NULL;
    const mha__request request = {.call = &call};
    bool wanted[MHA_STAGE_COUNT] = {false};
    wanted[MHA_STAGE_Q_ROT] = true;
    j->derived = mha__tolerance_of_rope(c);
    mha__attempt attempt;
    mha_status status = mha__attempt_begin(&attempt, &c->pool.allocator, &request, error);
    if (status == MHA_OK)
        status = mha__attempt_run(&attempt, MHA_BTE, wanted, error);
    if (status == MHA_OK) {
        /* copied to the memory order of the case's tensors */
        const mha_view *rotated = &attempt.stages[MHA_STAGE_Q_ROT];
        const mha_view heads = mha_view_heads(rotated->data, rotated->dtype, MHA_BTE, c->B, c->T_q, c->H, c->d_k);
        mha_view stored = mha__arena_view(&attempt.pool, rotated->dtype, rotated->rank, rotated->shape);
        mha_view ordered = mha_view_heads(stored.data, stored.dtype, c->layout, c->B, c->T_q, c->H, c->d_k);
        const mha__stage_result result = {
            .prefix = "", .computed = &stored, .stage = MHA_STAGE_OUTPUT, .slot = MHA_STAGE_OUTPUT, .S = c->T_q};
        *used = attempt.plan.path;
        if (!stored.data || mha_view_copy(&ordered, &heads) != MHA_OK)
            status = mha__fail(error, MHA_NO_MEMORY, c->name, "no memory to judge the case");
        else
            status = mha__judgement_compare(j, &result, error);
    }
    mha__attempt_free(&attempt);
    return status;
}

/* ---------------------------------------------------------------- the whole */

void mha_verdict_clear(mha_verdict *verdict)
{
    mha_allocator a = mha__allocator_default();
    mha__release(&a, verdict->stages, verdict->stage_count * sizeof *verdict->stages);
    verdict->stages = NULL;
    verdict->stage_count = 0;
}

static mha_status judge_all(mha__judgement *j, mha_path *used, mha_error *error)
{
    if (j->c->kind == CASE_ROPE)
        return judge_rope(j, used, error);
    if (j->path != MHA_PATH_EXACT)
        TRY(mha__case_pack(j->c, error));
    TRY(judge_imports(j, error));
    TRY(judge_recorded(j, used, error));
    TRY(judge_packed(j, error));
    TRY(judge_identities(j, error));
    return judge_prefill(j, error);
}

/* Copies the rows to the verdict, in memory of exactly their size. */
static mha_status give_rows(mha__judgement *j, mha_verdict *verdict, mha_error *error)
{
    mha_allocator a = mha__allocator_default();
    if (j->count > 0) {
        verdict->stages = mha__allocate(&a, j->count * sizeof *j->rows);
        if (!verdict->stages)
            return mha__fail(error, MHA_NO_MEMORY, j->c->name, "no memory to judge the case");
        memcpy(verdict->stages, j->rows, j->count * sizeof *j->rows);
    }
    verdict->stage_count = j->count;
    return MHA_OK;
}

/* Refuses a stage that does not exist, and names those that do. */
static mha_status refuse_stage(const char *stage, mha_error *error)
{
    char names[300] = "";
    for (int s = 0; s < MHA_STAGE_COUNT; s++) {
        size_t used = strlen(names);
        mha__text_print(names + used, sizeof names - used, "%s, ", mha_stage_name((mha_stage)s));
    }
    return mha__fail(error, MHA_NOT_FOUND, "stage", "expected one of %sprefill_output, found %s", names, stage);
}

mha_status mha_case_judge(const mha_case *c, mha_path path, const char *stage, int threads, mha_verdict *verdict,
                          mha_error *error)
{
    mha_stage known;
    *verdict = (mha_verdict){.path = path};
    if (stage && !mha_stage_find(stage, &known) && strcmp(stage, "prefill_output") != 0)
        return refuse_stage(stage, error);
    if ((unsigned)path > MHA_PATH_EXACT)
        return mha__fail(error, MHA_INVALID, "path", "expected one of mha_path, found %d", (int)path);
    TRY(mha__parallel_check(threads, error));
    if (*c->skip) {
        verdict->outcome = MHA_OUTCOME_SKIPPED;
        mha__text_print(verdict->reason, sizeof verdict->reason, "%s", c->skip);
        return MHA_OK;
    }
    mha_error inner = {0};
    mha__judgement j = {.c = c, .path = path, .threads = threads, .only = stage};
    mha_allocator a = mha__allocator_default();
    mha_status status = judge_all(&j, &verdict->path, &inner);
    const mha_status given = status == MHA_NO_MEMORY ? status : give_rows(&j, verdict, &inner);
    mha__release(&a, j.rows, j.room * sizeof *j.rows);
    if (given != MHA_OK) {
        if (error)
            *error = inner;
        return given;
    }
    mha__judgement_explain(&j, verdict);
    if (status != MHA_OK) {
        const bool skipped = status == MHA_UNSUPPORTED && verdict->outcome == MHA_OUTCOME_PASSED;
        verdict->outcome = skipped ? MHA_OUTCOME_SKIPPED : MHA_OUTCOME_FAILED;
        if (verdict->culprit == verdict->stage_count)
            mha_error_text(verdict->reason, sizeof verdict->reason, &inner);
    } else if (verdict->stage_count == 0) {
        verdict->outcome = MHA_OUTCOME_SKIPPED;
        mha__text_print(verdict->reason, sizeof verdict->reason, "no expected tensor%s%s",
                        stage ? " for stage " : ": the result to be judged goes into the case as `output`",
                        stage ? stage : "");
    }
    return MHA_OK;
}
