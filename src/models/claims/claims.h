/* Published statements about parameter counts, held against what is counted when the configuration is allocated. */
#ifndef MHA_MODELS_CLAIMS_CLAIMS_H
#define MHA_MODELS_CLAIMS_CLAIMS_H

#include "mha/status.h"

typedef enum mha__claim_verdict {
    MHA_CLAIM_TRUE,
    MHA_CLAIM_FALSE,
    MHA_CLAIM_ONLY_IF, /* holds for the configuration it speaks of, fails for another one it covers */
    MHA_CLAIM_VERDICT_COUNT
} mha__claim_verdict;

const char *mha__claim_verdict_name(mha__claim_verdict verdict); /* "only if"; "?" outside the list */

/* A configuration, what the statement gives for it, and what its storages hold. */
typedef struct mha__claim_side {
    const char *configuration; /* "layer d_model=512 h=8", "gpt2", "transformer-base vocab_size=40000"; NULL: none */
    int64_t stated, counted;
} mha__claim_side;

/* One statement, judged. All texts are static. */
typedef struct mha__claim {
    const char *source;          /* who says it, where */
    const char *statement;       /* what is said */
    const char *formula;         /* the number as stated, or the formula it comes from */
    const char *count;           /* what was counted, in the words of `mha params` */
    int64_t unit;                /* stated to the nearest this many; 1: exactly */
    mha__claim_side holds, fails; /* `fails` has a configuration only for a verdict "only if" */
    mha__claim_verdict verdict;
    const char *condition; /* what it depends on, or what is meant instead; NULL: nothing to add */
} mha__claim;

size_t mha__claim_count(void);
/* Allocates the configurations of claim `index`, counts and compares. Nothing stays allocated.
 * Errors: MHA_NOT_FOUND past the end, MHA_NO_MEMORY. */
mha_status mha__claim_judge(size_t index, mha__claim *claim, mha_error *error);

#endif
