/* Checks a case: plans its call on a path, derives the tolerance if the case states none, runs the call once, and
 * compares every recorded result with the computed one. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "compute/thread_pool.h"
#include "verify/check/check.h"
#include "verify/sample.h"

const char *mha_outcome_name(mha_outcome outcome)
{
    static const char *const names[] = {
        [MHA_OUTCOME_PASSED] = "passed",
        [MHA_OUTCOME_FAILED] = "failed",
        [MHA_OUTCOME_SKIPPED] = "skipped",
    };
    return (unsigned)outcome < sizeof names / sizeof *names ? names[outcome] : "?";
}

/* ---------------------------------------------------------------- the case's own call */

/* Whether the file leaves open the tolerance of any result that will be compared. */
static bool needs_tolerance(const mha__comparison *j)
{
    for (int slot = 0; slot < CASE_BACKWARDS; slot++)
        for (int cache_rounded = 0; cache_rounded < 2; cache_rounded++) {
            bool wide;
            const case_expected *e = mha__comparison_expected(j, slot, cache_rounded, &wide);
            if (e && isinf(mha__allowed_of(j->c, slot, wide, MHA_STAGE_OUTPUT, e->stored, NULL).atol))
                return true;
        }
    return false;
}

/* Derives the tolerance of all recorded stages from two runs of the case, which the caller keeps in `runs`. */
static mha_status derive(mha__comparison *j, mha__two_runs *runs, mha_error *error)
{
    const mha_case *c = j->c;
    mha_call call = mha__comparison_call(j);
    mha__request request = mha__case_request(c, c->layer, &call);
    request.sample = j->sample; /* also where another path computes all rows */
    request.precision = c->precision;
    bool wanted[MHA_STAGE_COUNT];
    for (int s = 0; s < MHA_STAGE_COUNT; s++)
        wanted[s] = mha__comparison_records(c, (mha_stage)s);
    wanted[MHA_STAGE_OUTPUT] |= mha__case_records(c, CASE_PREFILL_OUTPUT);
    mha_error inner = {0};
    mha_status status = mha__tolerance_of(&request, c->layout, wanted, runs, &j->derived, &inner);
    if (status == MHA_UNSUPPORTED)
        return mha__fail(error, status, inner.name,
                         "expected atol, because mha derives none where float32 cannot run: %s", inner.message);
    if (status != MHA_OK && error)
        *error = inner;
    return status;
}

/* Checks the call as it is recorded: plan, tolerance, run, compare. */
static mha_status check_recorded(mha__comparison *j, mha_path *used, mha_error *error)
{
    const mha_case *c = j->c;
    mha_call call = mha__comparison_call(j);
    const mha__checked_call own = {.prefix = "", .layer = c->layer, .call = &call};
    mha__request request = mha__case_request(c, c->layer, &call);
    request.sample = mha__comparison_sample(j);
    bool wanted[MHA_STAGE_COUNT];
    const bool any = mha__comparison_choose(j, false, wanted);
    mha__two_runs runs = {0};
    mha__attempt attempt;
    const mha__attempt *ran = &attempt;
    mha_status status = mha__attempt_begin(&attempt, &c->pool.allocator, &request, error);
    if (status == MHA_OK && needs_tolerance(j)) {
        status = derive(j, &runs, error);
        if (!c->cache_rounds && j->path == MHA_PATH_EXACT)
            ran = &runs.exact;
    }
    if (status == MHA_OK && any && ran == &attempt)
        status = mha__attempt_run(&attempt, c->layout, wanted, error);
    if (status == MHA_OK && any) {
        *used = ran->plan.path;
        status = mha__comparison_compare_all(j, &own, ran, wanted, error);
    }
    mha__attempt_free(&attempt);
    mha__two_runs_free(&runs);
    return status;
}

/* ---------------------------------------------------------------- only rotation */

/* Checks a rotation: runs a call whose keys and values are its queries, and keeps only the rotated queries. */
static mha_status check_rope(mha__comparison *j, mha_path *used, mha_error *error)
{
    const mha_case *c = j->c;
    mha_call call = mha__comparison_call(j);
    call.key = call.value = call.query;
    call.weights = NULL;
    const mha__request request = {.call = &call};
    bool wanted[MHA_STAGE_COUNT] = {false};
    wanted[MHA_STAGE_Q_ROT] = true;
    j->derived = mha__tolerance_of_rope(c);
    mha__attempt attempt;
    mha_status status = mha__attempt_make(&attempt, &c->pool.allocator, &request, MHA_BTE, wanted, error);
    if (status == MHA_OK) {
        /* copied to the memory order of the case's tensors */
        const mha_view *rotated = &attempt.stages[MHA_STAGE_Q_ROT];
        const mha_view heads = mha_view_heads(rotated->data, rotated->dtype, MHA_BTE, c->B, c->T_q, c->H, c->d_k);
        mha_view stored = mha__arena_view(&attempt.pool, rotated->dtype, rotated->rank, rotated->shape);
        mha_view ordered = mha_view_heads(stored.data, stored.dtype, c->layout, c->B, c->T_q, c->H, c->d_k);
        const mha__stage_result result = {
            .prefix = "", .computed = &stored, .stage = MHA_STAGE_OUTPUT, .slot = MHA_STAGE_OUTPUT, .S = c->T_q};
        *used = attempt.plan.path;
        if (!stored.data || mha_view_copy(&ordered, &heads, NULL) != MHA_OK)
            status = mha__check_no_memory(c, error);
        else
            status = mha__comparison_compare(j, &result, error);
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

static mha_status check_all(mha__comparison *j, mha_path *used, mha_error *error)
{
    if (j->c->kind == CASE_ROPE)
        return check_rope(j, used, error);
    if (j->path != MHA_PATH_EXACT)
        TRY(mha__case_pack(j->c, error));
    TRY(mha__sample_of(j->c, &j->memory, &j->sample, error));
    TRY(mha__check_imports(j, error));
    TRY(check_recorded(j, used, error));
    TRY(mha__check_packed(j, error));
    TRY(mha__check_identities(j, error));
    TRY(mha__check_prefill(j, error));
    const size_t stages = j->count;
    TRY(mha__check_gradients(j, error));
    if (stages == 0 && j->count > 0)
        *used = MHA_PATH_EXACT; /* of gradients, which are all that there is */
    return MHA_OK;
}

/* Copies the rows to the verdict, in memory of exactly their size. */
static mha_status give_rows(mha__comparison *j, mha_verdict *verdict, mha_error *error)
{
    mha_allocator a = mha__allocator_default();
    if (j->count > 0) {
        verdict->stages = mha__allocate(&a, j->count * sizeof *j->rows);
        if (!verdict->stages)
            return mha__check_no_memory(j->c, error);
        memcpy(verdict->stages, j->rows, j->count * sizeof *j->rows);
    }
    verdict->stage_count = j->count;
    return MHA_OK;
}

/* Refuses a stage that does not exist, and names those that do. */
static mha_status refuse_stage(const char *stage, mha_error *error)
{
    char names[300] = "";
    for (int s = 0; s < MHA_STAGE_COUNT + MHA_BACKWARD_STAGE_COUNT; s++) {
        const size_t used = strlen(names);
        mha__text_print(names + used, sizeof names - used, "%s, ",
                        s < MHA_STAGE_COUNT ? mha_stage_at((mha_stage)s)->name
                                            : mha_backward_stage_at((mha_backward_stage)(s - MHA_STAGE_COUNT))->name);
    }
    return mha__fail(error, MHA_NOT_FOUND, "stage",
                     "expected one of %sd_query and other gradients, prefill_output, "
                     "found %s",
                     names, stage);
}

mha_status mha_case_check(const mha_case *c, mha_path path, const char *stage, int threads, mha_verdict *verdict,
                          mha_error *error)
{
    return mha__case_check(c, path, stage, threads, NULL, verdict, error);
}

mha_status mha__case_check(const mha_case *c, mha_path path, const char *stage, int threads,
                           const mha__check_watch *watch, mha_verdict *verdict, mha_error *error)
{
    mha_stage known;
    *verdict = (mha_verdict){.path = path};
    if (stage && !mha_stage_find(stage, &known) && strcmp(stage, "prefill_output") != 0 &&
        !mha__check_knows_gradient(stage))
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
    mha_allocator a = mha__allocator_default();
    mha__comparison j = {
        .c = c, .watch = watch, .path = path, .threads = threads, .only = stage, .memory.allocator = a};
    mha_status status = check_all(&j, &verdict->path, &inner);
    const mha_status given = status == MHA_NO_MEMORY ? status : give_rows(&j, verdict, &inner);
    mha__release(&a, j.rows, j.room * sizeof *j.rows);
    mha__arena_free(&j.memory);
    if (given != MHA_OK) {
        if (error)
            *error = inner;
        return given;
    }
    mha__comparison_explain(&j, verdict);
    if (status != MHA_OK) {
        const bool skipped = status == MHA_UNSUPPORTED && verdict->outcome == MHA_OUTCOME_PASSED;
        verdict->outcome = skipped ? MHA_OUTCOME_SKIPPED : MHA_OUTCOME_FAILED;
        if (verdict->culprit == verdict->stage_count)
            mha_error_text(verdict->reason, sizeof verdict->reason, &inner);
    } else if (verdict->stage_count == 0) {
        verdict->outcome = MHA_OUTCOME_SKIPPED;
        mha__text_print(verdict->reason, sizeof verdict->reason, "no expected tensor%s%s",
                        stage ? " for stage " : ": the result to be checked goes into the case as `output`",
                        stage ? stage : "");
    }
    return MHA_OK;
}
