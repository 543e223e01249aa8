/* Bugs of dO, D, dlse and dS. */
#include "verify/backward/bugs/gradient_bugs.h"

/* clang-format off */
#define ROW(name, what, at, leaving, where, text, lines, has, ...) \
    MHA__BY_LINES(name, what, at, leaving, MHA__AT_##where, text, lines, .needs = has, __VA_ARGS__)
#define D_IS(name, what, text, has) \
    ROW(name, what, SUMS, MHA__LEAVES_V, D, text, KEYS, MHA__HAS_SOFTMAX | (has), 0)
#define D_TIMES(name, what, text, has) \
    ROW(name, what, SUMS, MHA__LEAVES_V, D, text, NOTHING, MHA__HAS_SOFTMAX | (has), 0)
#define DLSE(name, what, text, x) \
    ROW("dlse-" name, "the gradient of lse is " what, SUMS, MHA__LEAVES_V, DLSE, text, NOTHING, MHA__HAS_D_LSE, \
        .number = x)
#define MADE_OF(name, what, text, count, has) \
    ROW("d-" name, "D is " what ", not rowsum(dO O)", SUMS, MHA__LEAVES_V | MHA__READS_ALL_QUERIES, D, \
        "sum(" text ")", FEATURES, MHA__HAS_SOFTMAX | MHA__HAS_WHOLE | MHA__HAS_FEATURES | (has), .step = count)
#define FEATURES(B) \
    MADE_OF("of-features-" #B, "the sum over the first " #B " features", "dO*O", B, 0), \
    MHA__ROW("dp-of-features-" #B, "dP is the sum over the first " #B " features of dO and V", SUMS, MHA__LEAVES_V, \
        MEETS, .arg = MHA__ROWS_V, .step = B, .needs = MHA__HAS_FEATURES)
#define DZ_IS(name, what, text, has) \
    ROW(name, what, MASKED, MHA__LEAVES_V, DZ, text, KEYS, MHA__HAS_SOFTMAX | (has), 0)
#define OF_BLOCKS(B) \
    ROW("d-of-blocks-" #B, "D is summed up in each block of " #B " keys by itself, not over all keys", MASKED, \
        MHA__LEAVES_V, DZ, "P*(dP-sum(P*dP)+dlse)", BLOCKS, MHA__HAS_SOFTMAX | MHA__HAS_KEY_BLOCKS, .step = B)

static const mha__gradient_bug rows[] = {
    D_TIMES("d-missing", "dS = P dP: D = rowsum(dO O) is not taken away", "0", 0),
    D_TIMES("d-added", "dS = P (dP + D): D is added", "-D", 0),
    D_TIMES("d-twice", "D is taken away twice", "2*D", 0),
    D_TIMES("d-scaled", "D is multiplied by the scale, dP is not", "D*scale", MHA__HAS_SCALE),
    D_TIMES("d-mean", "D is a mean over the features, not their sum", "D/d_v", 0),
    D_IS("d-unnormalised", "D is made of an O that is not divided by the sum of its exponentials", "D/max(P)", 0),
    D_IS("d-unweighted", "D = sum dP, without P", "sum(dP)", 0),
    D_IS("d-of-squares", "D = sum P^2 dP, with the squares of P", "sum(P^2*dP)", 0),
    D_IS("d-mean-of-dp", "D is the mean of dP over the keys", "sum(dP)/sum(1)", 0),
    DZ_IS("softmax-diagonal", "dS = P (1 - P) dP: of the derivative of softmax the diagonal alone", "P*(1-P)*dP", 0),
    DZ_IS("d-outside-weights", "dS = P dP - D, in place of P (dP - D)", "P*(dP+dlse)-D", 0),
    OF_BLOCKS(16), OF_BLOCKS(32), OF_BLOCKS(64), OF_BLOCKS(128),
    ROW("d-over-queries", "D is summed up over the queries of each key, not over the keys of each query", MASKED,
        MHA__LEAVES_V | MHA__READS_ALL_QUERIES, DZ, "P*(dP-sum(P*dP)+dlse)", QUERIES,
        MHA__HAS_SOFTMAX | MHA__HAS_QUERIES, 0),
    MADE_OF("of-do", "rowsum(dO dO)", "dO*dO", 0, 0),
    MADE_OF("of-output", "rowsum(O O)", "O*O", 0, 0),
    MADE_OF("sum-of-output", "rowsum(O)", "O", 0, 0),
    MADE_OF("sum-of-do", "rowsum(dO)", "dO", 0, 0),
    MADE_OF("of-first-half", "the sum over the first half of the features", "dO*O", 2, 0),
    MADE_OF("of-fewer-features", "the sum over d_k features", "dO*O", 1, 0),
    MADE_OF("of-do-of-next-query", "rowsum(dO O) with dO of the next query", "dO'*O", 0, MHA__HAS_QUERIES),
    MADE_OF("of-output-of-next-query", "rowsum(dO O) with O of the next query", "dO*O'", 0, MHA__HAS_QUERIES),
    FEATURES(8), FEATURES(16), FEATURES(32), FEATURES(64), FEATURES(128),
    D_IS("d-without-sinks", "D is a sum over keys whose weights add up to 1, without the share of the sinks",
        "D/sum(P)", MHA__HAS_MORE_TERMS),
    MHA__BY_FORMULA("softcap-slope-before-d", "dS = P (dP / cosh^2 - D): the slope of the softcap reaches dP alone",
        SCORES, MHA__LEAVES_V, MHA__AT_DZ | MHA__AT_DS, "P*(slope*dP-D+dlse)",
        .needs = MHA__HAS_SOFTMAX | MHA__HAS_SOFTCAP),
    ROW("do-of-ones", "dO is taken for ones: the gradient of a sum of the output", READ, 0, DO, "1", FEATURES, 0, 0),
    DZ_IS("ds-unnormalised", "dS is made of exponentials that are not divided by their sum, dV of P", "dZ/max(P)", 0),
    DLSE("dropped", "left out", "0", 0),
    DLSE("subtracted", "taken away, as D is", "-dlse", 0),
    DLSE("twice", "added twice", "2*dlse", 0),
    DLSE("times-log2e", "multiplied by log2(e)", "dlse*x", MHA__LOG2_E),
    DLSE("times-ln2", "multiplied by ln(2)", "dlse*x", MHA__LN_2),
    ROW("dlse-scaled", "the gradient of lse is multiplied by the scale", SUMS, MHA__LEAVES_V, DLSE, "dlse*scale",
        NOTHING, MHA__HAS_D_LSE | MHA__HAS_SCALE, 0),
    DZ_IS("dlse-outside-weights", "dS = P (dP - D) + dlse, in place of P (dP - D + dlse)", "dZ+(1-P)*dlse",
        MHA__HAS_D_LSE),
    DZ_IS("weights-missing-in-ds", "dS = dP - D, without P", "dP-D+dlse", 0),
};
MHA__GRADIENT_BUGS(sums)
/* clang-format on */
