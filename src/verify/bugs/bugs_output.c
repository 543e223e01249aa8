/* Bugs of the output: what lists/output.h asks of a case. */
#include <math.h>

#include "verify/bugs/bugs.h"

/* clang-format off */
PREDICATE(merges, attends(c) && c->H > 1)
/* What was dropped is not added twice, and needs no other place. */
PREDICATE_OF_BOTH(adds_bias_o, has_weight(c, MHA_B_O) && !k->no_bias[PROJECTION_O])
/* Whether the merged heads are as wide as the output. */
PREDICATE(is_as_wide, c->kind == CASE_MHA && c->H * c->d_v == c->E_out)
PREDICATE(is_unprojected, c->kind == CASE_SDPA)

/* Whether the output, which has one order, may end at a number. */
static bool lacks(const mha_case *c, double from)
{
    return attends(c) && c->semantics.place.n_sequences == 0 && from >= 1 && from <= 0x1p53 && from == floor(from);
}

static void lack(mha__knobs *k, int what, double from)
{
    k->unwritten = what;
    k->unwritten_from = (int64_t)from;
}
/* clang-format on */

#define LIST mha__bugs_of_output
#define LIST_FILE "verify/bugs/lists/output.h"
#include "verify/bugs/lists/list.h"
