/* Bugs of the weights that a backward computes once more from scores and lse. D is that of the forward's output,
 * which is right. */
#include "verify/backward/bugs/gradient_bugs.h"

/* clang-format off */
#define HAS(what) MHA__HAS_##what
#define P(name, what, text, has, ...) \
    MHA__BY_FORMULA(name, what, SUMS, 0, MHA__AT_P, text, .needs = HAS(SOFTMAX) | (has), __VA_ARGS__)
#define OF_BLOCKS(B) \
    MHA__BY_LINES("lse-of-blocks-" #B, "P is normalised in each block of " #B " keys by itself, not over all keys", \
        SUMS, 0, MHA__AT_P, "P/sum(P)", BLOCKS, .step = B, .needs = HAS(SOFTMAX) | HAS(KEY_BLOCKS))
/* Of e^lse' = e^lse - e^sink + e^sink', or one e^sink more: P = e^(z - lse'). */
#define SINKS(name, what, others, has) \
    P("lse-with-sinks-" name, "P is computed from an lse " what, "P/(1+" others "-Ps)", HAS(SINKS) | (has), 0)
#define SCALED_BY(name, what, how) \
    MHA__P_OF("scores-scale-" name, "P is computed from scores with the scale " what, NULL, NULL, \
        .read = MHA__A_SCALE, .arg = MHA__SCALE_##how, .readers = MHA__SAME_PAIRS), \
    MHA__P_OF("all-scale-" name, "P, dQ and dK have the scale " what, NULL, NULL, .read = MHA__A_SCALE, \
        .arg = MHA__SCALE_##how, .readers = MHA__SAME_PAIRS | MHA__SCALES_ALL)
#define FEATURES(B) \
    MHA__P_OF("scores-of-features-" #B, "P is computed from scores that are sums over the first " #B " features", \
        "features-scored " #B, NULL, .readers = MHA__SAME_PAIRS)
#define CAP(name, what, cap, times) \
    MHA__P_OF("softcap-" name, "the softcap of the backward is " what, "softcap-other", NULL, .step = cap, \
        .read = MHA__A_CAP, .number = times, .readers = MHA__SAME_PAIRS)
/* Of score s and cap c. */
#define SLOPE(name, what, text) \
    MHA__BY_FORMULA("softcap-slope-" name, what, SUMS, MHA__LEAVES_V, MHA__AT_SLOPE, text, .needs = HAS(SOFTCAP))

static const mha__gradient_bug rows[] = {
    P("lse-without-sinks", "P is computed from an lse of the keys alone, without sinks or plus-one", "P/sum(P)",
        HAS(MORE_TERMS), 0),
    P("lse-in-base-2", "an lse in base 2 is taken for a natural one: P = exp(s - lse / ln 2)", "P*exp(lse*(1-x))", 0,
        .number = MHA__LOG2_E),
    P("lse-taken-for-base-2", "a natural lse is taken for one in base 2: P = exp(s - lse ln 2)", "P*exp(lse*(1-x))", 0,
        .number = MHA__LN_2),
    P("lse-missing", "P is not normalised: exp(s)", "P*exp(lse)", 0, 0),
    P("lse-is-maximum", "the largest score is taken for lse: P = exp(s - m), without the sum", "P/max(P)", 0, 0),
    P("lse-without-maximum", "lse lacks the largest score: P = exp(s - log l)", "P*(max(P)*exp(lse))", 0, 0),
    P("weights-in-base-2", "P = 2^(s - lse)", "P^x", 0, .number = MHA__LN_2),
    MHA__P_OF("added-not-recomputed", "P is computed from scores without mask, ALiBi, bias or relative terms", NULL,
        NULL, .needs = HAS(ADDED), .readers = MHA__SAME_PAIRS | MHA__NOTHING_ADDED),
    OF_BLOCKS(16), OF_BLOCKS(32), OF_BLOCKS(64), OF_BLOCKS(128),
    MHA__BY_LINES("weights-over-queries", "P is normalised over the queries of each key once more", SUMS,
        MHA__READS_ALL_QUERIES, MHA__AT_P, "P/sum(P)", QUERIES, .needs = HAS(SOFTMAX) | HAS(QUERIES)),
    SINKS("of-next-head", "with the sink of the next head", "exp(sink'-lse)", HAS(HEADS)),
    SINKS("in-base-2", "with sinks whose base is 2: 2^sink", "exp(sink*log(2)-lse)", 0),
    SINKS("scaled", "with sinks times the scale", "exp(sink*scale-lse)", HAS(SCALE)),
    SINKS("twice", "in which sinks count twice", "2*Ps", 0),
    SCALED_BY("missing", "1: it is left out", MISSING),
    SCALED_BY("twice", "twice", TWICE),
    SCALED_BY("default", "1/sqrt(d_k), the forward has another", DEFAULT),
    SCALED_BY("of-values", "1/sqrt(d_v)", OF_VALUES),
    SCALED_BY("of-padded", "1/sqrt(n), n the power of two to which d_k is padded", OF_PADDED),
    SCALED_BY("of-model", "1/sqrt(h d_k)", OF_MODEL),
    SCALED_BY("over-width", "1/d_k", OVER_WIDTH),
    SCALED_BY("times-log2e", "times log2(e), which belongs to the exponent", TIMES_LOG2E),
    SCALED_BY("times-ln2", "times ln(2)", TIMES_LN2),
    FEATURES(8), FEATURES(16), FEATURES(32), FEATURES(64), FEATURES(128),
    CAP("twice", "twice that of the forward", 0, 2), CAP("half", "half of that of the forward", 0, 0.5),
    CAP("of-50", "50", 50, 0), CAP("of-30", "30", 30, 0),
    MHA__P_OF("softcap-without-factor", "P is computed from tanh(s / c), not c tanh(s / c)",
        "softcap-no-factor", NULL, .readers = MHA__SAME_PAIRS),
    MHA__P_OF("softcap-missing", "the backward has no softcap: neither in P nor its derivative", "softcap-missing",
        NULL, .readers = MHA__SAME_PAIRS),
    MHA__P_OF("softcap-not-recomputed", "P is computed from scores without softcap", "softcap-missing", NULL,
        .readers = MHA__SAME_PAIRS | MHA__SAME_SLOPE),
    SLOPE("missing", "dS lacks the derivative of the softcap", "1"),
    SLOPE("of-capped", "the derivative of the softcap is taken at the capped score", "1/cosh(tanh(s/c))^2"),
    SLOPE("unsquared", "the derivative of the softcap is taken for 1 - tanh, not 1 - tanh^2", "1-tanh(s/c)"),
    SLOPE("times-cap", "the derivative of the softcap is multiplied by the cap", "slope*c"),
    SLOPE("over-cap", "the derivative of the softcap is divided by the cap", "slope/c"),
    SLOPE("undivided", "the derivative of the softcap is 1 - tanh^2 of the score, not of score / cap", "1/cosh(s)^2"),
    SLOPE("plus", "the derivative of the softcap is taken for 1 + tanh^2", "1+tanh(s/c)^2"),
    SLOPE("of-capped-squared", "the derivative of the softcap is taken for 1 - s^2, s the capped score",
          "1-(c*tanh(s/c))^2"),
    SLOPE("of-uncapped", "the derivative of the softcap is taken for 1 - (s / cap)^2, s the score before the softcap",
          "1-(s/c)^2"),
    SLOPE("twice", "dS has the derivative of the softcap twice", "slope^2"),
    SLOPE("root", "the derivative of the softcap is taken for 1 / cosh, not 1 / cosh^2", "sqrt(slope)"),
    SLOPE("of-unscaled", "the derivative of the softcap is taken at scores without their scale", "1/cosh(s/scale/c)^2"),
    SLOPE("of-scaled-twice", "the derivative of the softcap is taken at scores with the scale twice",
          "1/cosh(s*scale/c)^2"),
    SLOPE("inverse", "the derivative of the softcap is taken for cosh^2, not 1 / cosh^2", "1/slope"),
};
MHA__GRADIENT_BUGS(weights)
/* clang-format on */
