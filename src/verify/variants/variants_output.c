/* Variants of the output: what lists/output.h asks of a case. */
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

#define LIST mha__variants_of_output
#define LIST_FILE "verify/variants/lists/output.h"
#include "verify/variants/lists/list.h"
