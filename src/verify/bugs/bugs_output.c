/* Bugs of the output and of rounding: numbers to try, and predicates of a case for lists/output.h. */
#include <math.h>

#include "verify/bugs/needs.h"

/* clang-format off */
/* Rows of lists that share a description. */
#define QUANTISED(name, what, of, to) \
    LISTED(name, what ", a scale for each row (1), head (2), feature (3), tensor (4), n features (n)", \
        spans(c, *x), QUANTISE(of, to), ANY(span))
#define ROUNDED(name, what, change) \
    LISTED(name, what ": 8 bfloat16, 11 float16 or TF32; negative: cut", rounds(c, *x), change, ANY(bits))
#define IN_TILES(name, type, bits) \
    LISTED(name, "sums of weighted values rounded to " type " after each tile; its keys", softens(c) && *x >= 1 && \
        *x <= (double)(c->P + c->T_k) && softmax->hidden_values != MHA_HIDDEN_PROPAGATE && \
        !softmax->dropout_keep.data, \
        PUT(O, BITS, .number = bits, .step = (long long)*x), POWERS(1, 2 * keys_of(c)))
#define LACKING(name, what, when, how) \
    SOLVED(name, what " from a number on not written, 0: the number", lacks(c, *x) && (when), LACK(how), UNWRITTEN)
#define QUANTISE(of, to) \
    PUT(A, QUANT, .sides = of, .number = to, .step = (long long)*x, .readers = *x == MHA__SPAN_TENSOR)
enum { INT8 = 127, INT4 = 7, E4M3 = 448 }; /* the largest numbers */

TEST(rounds, (const mha_case *c, double bits), attends(c) && fabs(bits) > 2 && fabs(bits) <= 24 && bits == floor(bits))
/* True if a scale can have this span. A span of many rows needs a head without other rows; groups of features must
 * divide a head. */
static bool spans(const mha_case *c, double span)
{
    const bool no_other = c->P == 0 && c->semantics.place.n_sequences == 0 && !has_weight(c, MHA_BIAS_K) &&
                       !c->semantics.softmax.zero_row;
    const bool whole = span == MHA__SPAN_HEAD || span == MHA__SPAN_FEATURE || span == MHA__SPAN_TENSOR;
    const bool groups = is_whole(span) && span >= MHA__SPAN_GROUPS && span < (double)c->d_k && c->d_k == c->d_v &&
                        c->d_k % (size_t)span == 0;
    return attends(c) && (span == MHA__SPAN_ROW || groups || (no_other && whole));
}

/* All but groups; groups of 8, 16, ... */
TEST(any_span, (const mha_case *c, size_t index, double *x), index < 4 ? UP(1, INFINITY) :
    index < 12 && (*x = ldexp(MHA__SPAN_GROUPS, (int)index - 4)) < (double)c->d_k)

/* Levels of eight and of four bits. */
#define LEVELS (index < 5 && (*x = ((const double[]){255, 127, 256, 15, 7})[index], true))
#define LACK(what) PUT(OUT, ZERO, .arg = MHA__##what, .number = *x, .readers = 1)
PREDICATE(merges, attends(c) && c->H > 1)
/* A program without the bias cannot add it twice or elsewhere. */
PREDICATE_OF_BOTH(adds_bias_o, has_weight(c, MHA_B_O) && !mha__has(k, AT_B_O, OP_ZERO))
/* True if the merged heads are as wide as the output. */
PREDICATE(is_as_wide, c->kind == CASE_MHA && c->H * c->d_v == c->E_out)
PREDICATE(is_unprojected, c->kind == CASE_SDPA)

/* True if the output, which has one order, may end at a number. */
TEST(lacks, (const mha_case *c, double from), attends(c) && c->semantics.place.n_sequences == 0 && from >= 1 && from <=
    0x1p53 && from == floor(from))
/* clang-format on */

#define LIST mha__bugs_of_output
#define LIST_FILE "verify/bugs/lists/output.h"
#include "verify/bugs/lists/list.h"
