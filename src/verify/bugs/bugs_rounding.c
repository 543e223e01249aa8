/* Bugs in which one point alone is rounded: to how many bits, and what lists/rounding.h asks of a case. */
#include <math.h>

#include "verify/bugs/bugs.h"

/* clang-format off */
enum { INT8 = 127, INT4 = 7, E4M3 = 448 }; /* the largest numbers */

static bool rounds(const mha_case *c, double bits)
{
    return attends(c) && bits > 2 && bits <= 24 && bits == floor(bits);
}

static void shorten(mha__knobs *k, int points, double bits)
{
    k->shortened = points;
    k->shortened_to = (int)bits;
}

/* Whether rows have a scale over such a span: over many rows where there is no other row of a head; over groups of
 * features that are parts of a head. */
static bool spans(const mha_case *c, double span)
{
    const bool alone = c->P == 0 && c->semantics.place.n_sequences == 0 && !has_weight(c, MHA_BIAS_K) &&
                       !c->semantics.softmax.zero_row;
    const bool whole = span == SPAN_HEAD || span == SPAN_FEATURE || span == SPAN_TENSOR;
    const bool groups = is_whole(span) && span >= SPAN_GROUPS && span < (double)c->d_k && c->d_k == c->d_v &&
                        c->d_k % (size_t)span == 0;
    return attends(c) && (span == SPAN_ROW || groups || (alone && whole));
}

static void quantise(mha__knobs *k, int points, int to, double span)
{
    k->quantised = points;
    k->quantised_to = to;
    k->quantised_span = (int)span;
}

/* All but groups; groups of 8, 16, ... */
NUMBERS(any_span, index < SPAN_TENSOR ? (double)index + SPAN_ROW : ldexp(SPAN_GROUPS, (int)index - SPAN_TENSOR), index <
    SPAN_TENSOR || (index < SPAN_TENSOR + 8 && *x < (double)c->d_k))
/* clang-format on */

#define LIST mha__bugs_of_rounding
#define LIST_FILE "verify/bugs/lists/rounding.h"
#include "verify/bugs/lists/list.h"
