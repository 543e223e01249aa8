/* A planned call with its settings, for planning, the exact path and its gradients. The steps of the other paths read
 * mha__resolved, which planning fills in; `make check-rooms` holds them to it. */
#ifndef MHA_ATTENTION_CALL_DEFINITION_H
#define MHA_ATTENTION_CALL_DEFINITION_H

#include "attention/call/resolved.h"

typedef struct mha__planned {
    mha__resolved call; /* the first member: a pointer to one is a pointer to the other */
    mha_semantics semantics;
} mha__planned;

/* A resolved call of a plan, with its settings; and these. */
static inline const mha__planned *mha__planned_of(const mha__resolved *r)
{
    return (const mha__planned *)(const void *)r;
}
static inline const mha_semantics *mha__semantics_of(const mha__resolved *r)
{
    return &mha__planned_of(r)->semantics;
}

/* Marks settings as given where their number is not 0 (mha__settings_mark), and clears the settings that keys_only
 * excludes. */
void mha__semantics_complete(mha_semantics *semantics);

#endif
