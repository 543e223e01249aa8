/* The exact path: a forward pass in float64 and plain loops. */
#ifndef MHA_ATTENTION_CORE_EXACT_EXACT_H
#define MHA_ATTENTION_CORE_EXACT_EXACT_H

#include "attention/core/exact/exact_attend.h"

/* The steps of a call, in the order of the equation. Each reads and writes the rows of the call, and keeps its stages;
 * nothing else passes between them. */
typedef void (*mha__exact_step)(mha__check *call);
enum {
    MHA__EXACT_PROJECT,   /* Q, K and V of the inputs */
    MHA__EXACT_CLIP,      /* limits; their stages */
    MHA__EXACT_TURN,      /* norms, rotation and scale by position */
    MHA__EXACT_FIND_KEYS, /* those of a cache or of pages, too */
    MHA__EXACT_ATTEND,    /* sums of values */
    MHA__EXACT_HEADS,
    MHA__EXACT_GATE,
    MHA__EXACT_OUTPUT,
    MHA__EXACT_STEPS
};
extern const mha__exact_step mha__exact_steps[MHA__EXACT_STEPS];
/* Memory of a call for its steps. Returns the bytes of workspace; with `workspace` NULL it only counts them. */
size_t mha__exact_begin(const mha__resolved *r, char *workspace, mha__check *m);

/* The forward in float64. If not `whole`: Q, K and V of the new rows with their stages, or with `heads` the output of
 * these. */
void mha__exact(const mha__resolved *r, char *workspace, bool whole, const mha_view *heads);

#endif
