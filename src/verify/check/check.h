/* State of one mha_case_check call, which its runs and its comparisons share. */
#ifndef MHA_VERIFY_CHECK_CHECK_H
#define MHA_VERIFY_CHECK_CHECK_H

#include "base/base.h"
#include "verify/attempt/attempt.h"
#include "verify/case/record.h"
#include "verify/tolerance/tolerance.h"

/* Sees each recorded tensor ("yours") with the computed one, in one shape, once its row of the verdict is made. */
typedef struct mha__check_watch {
    mha_status (*see)(void *context, const mha_stage_verdict *row, const mha_view *yours, const mha_view *exact,
                      mha_error *error);
    void *context;
} mha__check_watch;

/* mha_case_check with somebody who watches; NULL: nobody. */
mha_status mha__case_check(const mha_case *c, mha_path path, const char *stage, int threads,
                           const mha__check_watch *watch, mha_verdict *verdict, mha_error *error);

typedef struct mha__comparison {
    const mha_case *c;
    const mha__check_watch *watch; /* or NULL */
    mha_path path;
    int threads;
    const char *only;          /* the only stage wanted, or NULL */
    const mha__sample *sample; /* the rows that the exact path computes; NULL: all */
    mha__arena memory;         /* of the sample */
    mha__tolerance derived;    /* for results without a stated tolerance; derived if there are any */
    mha_stage_verdict *rows;   /* rows of the verdict being made */
    size_t count, room;
} mha__comparison;

/* One computed stage, and what it is compared with. */
typedef struct mha__stage_result {
    const char *prefix; /* prefix of the row's name: "packed." */
    const mha_view *computed;
    mha_stage stage;
    int slot;                  /* index of the expected tensor */
    size_t S;                  /* keys without the extra rows of S' */
    bool cache_rounded;        /* has passed through a float32 cache: always compared with the float32 record */
    const mha__sample *sample; /* the rows that were computed; NULL: all */
} mha__stage_result;

static inline mha_status mha__check_no_memory(const mha_case *c, mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, c->name, "no memory to check the case");
}
/* The expected tensor of a slot that is compared on this comparison's path, or NULL; *wide: whether in float64. */
const case_expected *mha__comparison_expected(const mha__comparison *j, int slot, bool cache_rounded, bool *wide);
/* Whether a stage is wanted. */
bool mha__comparison_wants(const mha__comparison *j, const char *name);
/* Adds a row to the verdict. */
mha_status mha__comparison_row(mha__comparison *j, const char *prefix, const char *name, const char *against,
                               mha_stage_verdict **row, mha_error *error);
/* Shows a row of the verdict to whoever watches. */
mha_status mha__comparison_show(const mha__comparison *j, const mha_stage_verdict *row, const mha_view *yours,
                                const mha_view *exact, mha_error *error);
/* Compares one computed stage with the expected tensor of its slot, if there is one. */
mha_status mha__comparison_compare(mha__comparison *j, const mha__stage_result *result, mha_error *error);
/* A call whose stages are compared with the recorded ones. */
typedef struct mha__checked_call {
    const char *prefix;
    const mha_layer *layer;
    const mha_call *call;
    bool output_only;   /* the stages before the output differ on purpose */
    bool cache_rounded; /* see mha__stage_result */
} mha__checked_call;

/* The rows of its sample that a call of this comparison is asked for: all on paths other than the exact one. */
static inline const mha__sample *mha__comparison_sample(const mha__comparison *j)
{
    return j->path == MHA_PATH_EXACT ? j->sample : NULL;
}

/* The case's call on the path and the threads of this comparison. */
mha_call mha__comparison_call(const mha__comparison *j);
/* Whether the file records a stage under its own name, or as `qk` with qk_stage naming this stage. */
bool mha__comparison_records(const mha_case *c, mha_stage stage);
/* Chooses the stages of the case's call that are recorded and wanted; false when there are none. */
bool mha__comparison_choose(const mha__comparison *j, bool output_only, bool wanted[MHA_STAGE_COUNT]);
/* Compares the wanted stages of a call that ran. */
mha_status mha__comparison_compare_all(mha__comparison *j, const mha__checked_call *of, const mha__attempt *attempt,
                                       const bool wanted[MHA_STAGE_COUNT], mha_error *error);
/* Runs a call and compares its recorded stages. */
mha_status mha__comparison_run(mha__comparison *j, const mha__checked_call *of, mha_error *error);

/* Each checks one other form of the call, if the case records it. */
mha_status mha__check_imports(mha__comparison *j, mha_error *error);
mha_status mha__check_packed(mha__comparison *j, mha_error *error);
mha_status mha__check_identities(mha__comparison *j, mha_error *error);
mha_status mha__check_prefill(mha__comparison *j, mha_error *error);

/* Checks the recorded stages of the backward and gradients; whether a name is that of one, "d_scores", "d_query". */
mha_status mha__check_gradients(mha__comparison *j, mha_error *error);
bool mha__check_knows_gradient(const char *name);

/* Sets the outcome, the culprit and the reason that follow from the rows of the verdict, if there are any. */
void mha__comparison_explain(const mha__comparison *j, mha_verdict *verdict);

#endif
