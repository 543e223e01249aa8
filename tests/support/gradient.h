/* A call whose numbers are all float64 and may be moved: what its gradients are held against. */
#ifndef TEST_GRADIENT_H
#define TEST_GRADIENT_H

#include "mha/backward.h"
#include "support/trial.h"

/* A built trial with float64 copies of what it has gradients of, random d_output and d_lse, and its gradients. */
typedef struct graded {
    rig r;
    mha_gradients gradients;
    mha_view of[MHA_GRADIENT_COUNT]; /* what they are the gradients of; no data: the call has none */
} graded;

/* The trial as one without a layer, or values that propagate NaN; false when it cannot be that. */
bool graded_adapt(trial *t);
/* The trial as one with a layer, of latents for some seeds; false when it has none. Where a query sees nothing the loss
 * has a number. */
bool graded_adapt_layer(trial *t);
/* Builds a trial that was adapted, with memory for all of its gradients in F64. */
void graded_build(const trial *t, graded *g);
void graded_release(graded *g);

/* The stages of a backward that the call has. */
typedef struct graded_stages {
    mha_backward_keep keep[MHA_BACKWARD_STAGE_COUNT];
    size_t count;
} graded_stages;

/* Lets a backward keep all of them, in zeros of F64, until graded_drop. */
void graded_keep(graded *g, graded_stages *stages, mha_gradients *to);
void graded_drop(graded_stages *stages);
/* The numbers of one of them; NULL: the call has none. */
double *graded_stage(const graded_stages *stages, mha_backward_stage stage);

/* sum dO O + sum dlse lse over what is finite, of the exact path; *size: the sum of their absolute values. */
double graded_loss(graded *g, double *size);
/* The derivative of that along `direction` by central differences of step `h` (an error of h^4), which moves what
 * gradient number `which` is of. */
double graded_difference(graded *g, int which, const double *direction, double h);

#endif
