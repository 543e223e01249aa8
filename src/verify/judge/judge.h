/* Between the judge's runs and its comparisons: one judgement in progress. */
#ifndef MHA_VERIFY_JUDGE_JUDGE_H
#define MHA_VERIFY_JUDGE_JUDGE_H

#include "verify/attempt.h"
#include "verify/case/record.h"
#include "verify/tolerance/tolerance.h"

typedef struct mha__judgement {
    const mha_case *c;
    mha_path path;
    int threads;
    const char *only; /* the one stage asked for, or NULL */
    mha_verdict *verdict;
    bool measured;
    mha__tolerance derived; /* for what the file gives no tolerance */
} mha__judgement;

/* Whether a stage is asked for. */
bool mha__judgement_wants(const mha__judgement *j, const char *name);
/* Whether the case holds anything to compare a stage with. */
bool mha__case_records(const mha_case *c, int stage);
/* A new row of the verdict; NULL without memory. */
mha_stage_verdict *mha__judgement_row(mha__judgement *j, const char *prefix, const char *name, const char *against);
/* Holds one computed stage against the expected tensor of a slot, if there is one. `loose`: against the
 * float32 record with its tolerance, whatever the path (what lies between is a cache rounded to float32). */
mha_status mha__judgement_hold(mha__judgement *j, const char *prefix, mha__attempt *attempt, const mha_view *computed,
                              mha_stage stage, int slot, bool loose, mha_error *error);

#endif
