/* Variants of the output: what lists/output.h asks of a case. */
#include <math.h>

#include "verify/variants/variants.h"

static bool merges(const mha_case *c)
{
    return attends(c) && c->H > 1;
}

/* What was dropped is not added twice, and needs no other place. */
static bool adds_bias_o(const mha_case *c, const mha__knobs *k)
{
    return has_weight(c, MHA_B_O) && !k->no_bias[PROJECTION_O];
}

/* Whether the merged heads are as wide as the output. */
static bool is_as_wide(const mha_case *c)
{
    return c->kind == CASE_MHA && c->H * c->d_v == c->E_out;
}

/* Whether each of n numbers is the index of one of n. */
static bool are_indices(const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(x[i] >= 0 && x[i] < (double)n && x[i] == floor(x[i])))
            return false;
    return true;
}

#define LIST mha__variants_of_output
#define LIST_FILE "verify/variants/lists/output.h"
#include "verify/variants/lists/list.h"
