/* State of one mha_case_judge call, which its runs and its comparisons share. */
#ifndef MHA_VERIFY_JUDGE_JUDGE_H
#define MHA_VERIFY_JUDGE_JUDGE_H

#include "verify/attempt.h"
#include "verify/case/record.h"
#include "verify/tolerance/tolerance.h"

typedef struct mha__judgement {
    const mha_case *c;
    mha_path path;
    int threads;
    const char *only;        /* the only stage wanted, or NULL */
    mha__tolerance derived;  /* for results without a stated tolerance; derived if there are any */
    mha_stage_verdict *rows; /* rows of the verdict being made */
    size_t count, room;
} mha__judgement;

/* One computed stage, and what it is compared with. */
typedef struct mha__stage_result {
    const char *prefix; /* prefix of the row's name: "packed." */
    const mha_view *computed;
    mha_stage stage;
    int slot;           /* index of the expected tensor */
    size_t S;           /* keys without the extra rows of S' */
    bool cache_rounded; /* has passed through a float32 cache: always compared with the float32 record */
} mha__stage_result;

/* The expected tensor of a slot that is compared on this judgement's path, or NULL; *wide: whether in float64. */
const case_expected *mha__judgement_expected(const mha__judgement *j, int slot, bool cache_rounded, bool *wide);
/* Whether a stage is wanted. */
bool mha__judgement_wants(const mha__judgement *j, const char *name);
/* Adds a row to the verdict; NULL without memory. */
mha_stage_verdict *mha__judgement_row(mha__judgement *j, const char *prefix, const char *name, const char *against);
/* Compares one computed stage with the expected tensor of its slot, if there is one. */
mha_status mha__judgement_compare(mha__judgement *j, const mha__stage_result *result, mha_error *error);
/* Sets the outcome, the culprit and the reason that follow from the rows of the verdict, if there are any. */
void mha__judgement_explain(const mha__judgement *j, mha_verdict *verdict);

#endif
