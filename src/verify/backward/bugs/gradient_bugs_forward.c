/* P of scores with each bug of a forward that changes them; sought when nothing else explains the gradients. */
#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/bugs/needs.h"

/* clang-format off */
#define ALONE(name, help, when, change) \
    {{"p-of-" name, "only where the backward recomputes P, bug " name " of a forward: " help, true}, mha__recomputes, \
        MHA__BACKWARD_SUMS, mha__recompute, NULL, 0, .mutation = {.op = 0}, .forward = name},
#define PAIRED(name, help, when, change) ALONE(name, help, when, change)
/* The search has no numbers for a bug with some. */
#define LISTED(name, help, when, change, choice)
#define CHOSEN(name, help, when, change, how, choice)
#define FITTED(name, help, when, change, how, low, high)
#define PARTS(name, what, how, choice)

static const mha__gradient_bug rows[] = {
#define ONLY_SCORES_OF_PAIRS
#include "verify/bugs/lists/scores.h"
};
MHA__GRADIENT_BUGS(forward)
/* clang-format on */
