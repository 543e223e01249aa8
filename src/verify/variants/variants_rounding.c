/* Variants in which one point alone is rounded: to how many bits, and what lists/rounding.h asks of a case. */
#include <math.h>

#include "verify/variants/variants.h"

static bool rounds(const mha_case *c, double bits)
{
    return attends(c) && bits >= 2 && bits <= 24 && bits == floor(bits);
}

static void shorten(mha__knobs *k, int points, double bits)
{
    k->shortened = points;
    k->shortened_to = (int)bits;
}

/* Those of float16 and TF32, and of bfloat16. */
static bool any_bits(const mha_case *c, size_t index, double *x)
{
    (void)c;
    *x = index == 0 ? 11 : 8;
    return index < 2;
}

/* Whether rows have a scale over such a span: over many rows where there is no other row of a head. */
static bool spans(const mha_case *c, double span)
{
    const bool alone = c->P == 0 && c->semantics.place.n_sequences == 0 && !has_weight(c, MHA_BIAS_K) &&
                       !c->semantics.softmax.zero_row;
    return attends(c) && (span == SPAN_ROW || (alone && (span == SPAN_HEAD || span == SPAN_FEATURE)));
}

static void quantise(mha__knobs *k, int points, double span)
{
    k->int8 = points;
    k->int8_span = (int)span;
}

static bool any_span(const mha_case *c, size_t index, double *x)
{
    (void)c;
    *x = (double)index + SPAN_ROW;
    return *x <= SPAN_FEATURE;
}

#define LIST mha__variants_of_rounding
#define LIST_FILE "verify/variants/lists/rounding.h"
#include "verify/variants/lists/list.h"
