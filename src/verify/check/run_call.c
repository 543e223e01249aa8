/* Runs one call of a comparison, and compares its stages with the recorded ones in the order in which data flows. */
#include "base/base.h"
#include "verify/check/check.h"

mha_call mha__comparison_call(const mha__comparison *j)
{
    mha_call call = mha_case_call(j->c);
    call.path = j->path;
    call.threads = j->threads;
    return call;
}

/* Stages in the order of the data flow. Unlike in the enum, the cache is filled before it is read. */
static const mha_stage flow[] = {
    MHA_STAGE_Q_LATENT, MHA_STAGE_KV_LATENT,   MHA_STAGE_Q,
    MHA_STAGE_K,        MHA_STAGE_V,           MHA_STAGE_Q_ROT,
    MHA_STAGE_K_ROT,    MHA_STAGE_PRESENT_KEY, MHA_STAGE_PRESENT_VALUE,
    MHA_STAGE_SCORES,   MHA_STAGE_CAPPED,      MHA_STAGE_MASKED,
    MHA_STAGE_LSE,      MHA_STAGE_WEIGHTS,     MHA_STAGE_WEIGHTS_MEAN,
    MHA_STAGE_HEADS,    MHA_STAGE_GATED,       MHA_STAGE_OUTPUT,
};
_Static_assert(sizeof flow / sizeof *flow == MHA_STAGE_COUNT, "every stage has its place");

bool mha__comparison_records(const mha_case *c, mha_stage stage)
{
    return mha__case_records(c, (int)stage) || (stage == c->qk_stage && mha__case_records(c, CASE_QK));
}

bool mha__comparison_choose(const mha__comparison *j, bool output_only, bool wanted[MHA_STAGE_COUNT])
{
    bool any = false;
    for (int s = 0; s < MHA_STAGE_COUNT; s++) {
        wanted[s] = mha__comparison_records(j->c, (mha_stage)s) && (!output_only || s == MHA_STAGE_OUTPUT) &&
                    mha__comparison_wants(j, mha_stage_at((mha_stage)s)->name);
        any |= wanted[s];
    }
    return any;
}

mha_status mha__comparison_compare_all(mha__comparison *j, const mha__checked_call *of, const mha__attempt *attempt,
                                       const bool wanted[MHA_STAGE_COUNT], mha_error *error)
{
    for (size_t i = 0; i < MHA_STAGE_COUNT; i++) {
        const mha_stage s = flow[i];
        mha__stage_result result = {.prefix = of->prefix,
                                    .computed = &attempt->stages[s],
                                    .stage = s,
                                    .slot = (int)s,
                                    .S = attempt->plan.S,
                                    .cache_rounded = of->cache_rounded,
                                    .sample = attempt->sample};
        if (!wanted[s])
            continue;
        TRY(mha__comparison_compare(j, &result, error));
        result.slot = CASE_QK;
        if (s == j->c->qk_stage)
            TRY(mha__comparison_compare(j, &result, error));
    }
    return MHA_OK;
}

mha_status mha__comparison_run(mha__comparison *j, const mha__checked_call *of, mha_error *error)
{
    bool wanted[MHA_STAGE_COUNT];
    if (!mha__comparison_choose(j, of->output_only, wanted))
        return MHA_OK;
    mha__request request = mha__case_request(j->c, of->layer, of->call);
    request.sample = mha__comparison_sample(j);
    mha__attempt attempt;
    mha_status status = mha__attempt_make(&attempt, &j->c->pool.allocator, &request, j->c->layout, wanted, error);
    if (status == MHA_OK)
        status = mha__comparison_compare_all(j, of, &attempt, wanted, error);
    mha__attempt_free(&attempt);
    return status;
}
