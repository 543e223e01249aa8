/* Bugs of dO, D, dlse and dS. */
#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/backward/bugs/scores.h"

/* Sites: D, dlse, dP and dZ of a map. */
enum { D, DLSE, DP, DZ };

/* Formulas of D, row by row, */
enum {
    PRODUCTS, /* sum over features: `read` times `written` */
    SUM_OF_DP,
    MEAN_OF_DP,
    OVER_LARGEST, /* D over the largest P */
    OVER_SUM,     /* D over the sum of P */
    OVER_WIDTH,   /* D over the features */
    /* and of dZ, pair by pair: P, dP, D and dlse are those of the map. */
    DIAGONAL,       /* P (1 - P) dP */
    D_OUTSIDE,      /* P (dP + dlse) - D */
    DLSE_OUTSIDE,   /* dZ + (1 - P) dlse */
    WITHOUT_P,      /* dP - D + dlse */
    SLOPE_INSIDE,   /* P (dP / cosh^2 - D + dlse) */
    DZ_OVER_LARGEST /* dZ over the largest P */
};

/* Factors of a product over features: of this query, or of the next one. */
enum { ONE, DO, DO_OF_NEXT, O, O_OF_NEXT };

/* D or dlse times a factor. */
static void times(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const double f = mha__factor(&bug->mutation, b->r);
    for (size_t i = 0; i < map->s.T_q; i++)
        (bug->mutation.site == D ? map->sums : map->d_lse)[i] *= f;
}

/* Feature c of what D is made of, for query i. */
static double feature(const mha__backward *b, const mha__map *map, int what, size_t i, size_t c)
{
    const bool next = what == DO_OF_NEXT || what == O_OF_NEXT;
    const size_t d_v = b->r->plan.d_v, of = next ? (i + 1) % map->s.T_q : i;
    double sum = 0;
    if (what < O)
        return what == ONE ? 1 : map->dO[of * d_v + c];
    for (size_t j = 0; j < map->n; j++)
        if (map->seen[of * map->n + j])
            sum += map->weights[of * map->n + j] * map->V[j * d_v + c];
    return sum;
}

/* The features that a sum is over: half of them for `step` 2, d_k for 1, all for 0, or that number. */
static size_t width_of(const mha__backward *b, const mha__mutation *m)
{
    const size_t d_v = b->r->plan.d_v;
    return m->step == 0 ? d_v : m->step == 1 ? b->r->plan.d_k : m->step == 2 ? d_v / 2 : (size_t)m->step;
}

static double sum_by(const mha__backward *b, const mha__map *map, const mha__mutation *m, size_t i)
{
    double sum = 0, count = 0, weights = 0;
    for (size_t c = 0; m->arg == PRODUCTS && c < width_of(b, m); c++)
        sum += feature(b, map, m->read, i, c) * feature(b, map, m->written, i, c);
    for (size_t at = i * map->n; m->arg != PRODUCTS && at < (i + 1) * map->n; at++) {
        weights += map->weights[at];
        if (map->seen[at] == MHA__SEEN)
            sum += map->d_weights[at], count++;
    }
    const double most = m->arg == OVER_LARGEST ? mha__largest_weight(map, i) : 0;
    return m->arg == OVER_LARGEST              ? (most > 0 ? map->sums[i] / most : 0)
           : m->arg == OVER_SUM                ? map->sums[i] / (weights > 0 ? weights : 1)
           : m->arg == OVER_WIDTH              ? map->sums[i] / (double)b->r->plan.d_v
           : m->arg == MEAN_OF_DP && count > 0 ? sum / count
                                               : sum;
}

static void sum_otherwise(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    for (size_t i = 0; i < map->s.T_q; i++)
        map->sums[i] = sum_by(b, map, &bug->mutation, i);
}

static double pair_by(const mha__map *map, int how, size_t at, double most)
{
    const double P = map->weights[at], dP = map->d_weights[at], sum = map->sums[at / map->n],
                 dlse = map->d_lse[at / map->n];
    switch (how) {
    case DIAGONAL: return P * (1 - P) * dP;
    case D_OUTSIDE: return P * (dP + dlse) - sum;
    case DLSE_OUTSIDE: return map->d_masked[at] + (1 - P) * dlse;
    case WITHOUT_P: return dP - sum + dlse;
    case SLOPE_INSIDE: return P * (map->slope[at] * dP - sum + dlse);
    default: return most > 0 ? map->d_masked[at] / most : map->d_masked[at];
    }
}

static void pair_otherwise(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const mha__mutation *m = &bug->mutation;
    (void)b;
    for (size_t i = 0; i < map->s.T_q; i++) {
        const double most = m->arg == DZ_OVER_LARGEST ? mha__largest_weight(map, i) : 0;
        for (size_t at = i * map->n; at < (i + 1) * map->n; at++) {
            if (map->seen[at] == MHA__SEEN)
                map->d_masked[at] = pair_by(map, m->arg, at, most);
            if (map->seen[at] == MHA__SEEN && m->arg == SLOPE_INSIDE)
                map->d_scores[at] = map->d_masked[at];
        }
    }
}

/* dZ with another D for each part of a map: the sum of P dP over `step` keys of a query,
    or over the queries of a key. */
static void sum_parts(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const size_t n = map->n, T = map->s.T_q;
    const bool of_queries = bug->mutation.axis == MHA__T;
    const size_t block = of_queries ? 1 : (size_t)bug->mutation.step, lines = of_queries ? 1 : T;
    (void)b;
    for (size_t line = 0; line < lines; line++)
        for (size_t from = 0; from < n; from += block) {
            const size_t width = n - from < block ? n - from : block, count = of_queries ? T : width;
            double sum = 0;
            for (int turn = 0; turn < 2; turn++)
                for (size_t k = 0; k < count; k++) {
                    const size_t i = of_queries ? k : line, at = i * n + from + (of_queries ? 0 : k);
                    if (map->seen[at] == MHA__SEEN && turn == 0)
                        sum += map->weights[at] * map->d_weights[at];
                    else if (map->seen[at] == MHA__SEEN)
                        map->d_masked[at] = map->weights[at] * (map->d_weights[at] - sum + map->d_lse[i]);
                }
        }
}

/* dP of the first `step` features. */
static void fewer_features(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const size_t d = b->r->plan.d_v, n = map->n;
    for (size_t at = 0; at < map->s.T_q * n; at++) {
        double sum = 0;
        for (size_t c = 0; map->seen[at] && c < (size_t)bug->mutation.step; c++)
            sum += map->dO[at / n * d + c] * map->V[at % n * d + c];
        map->d_weights[at] = sum;
    }
}

static void ones_for_d_output(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    (void)bug;
    for (size_t e = 0; e < map->s.T_q * b->r->plan.d_v; e++)
        map->dO[e] = 1;
}

/* A row of V has more features than the sum is over. */
static bool has_more_features(const mha__backward *b, const mha__gradient_bug *bug)
{
    const size_t width = width_of(b, &bug->mutation);
    return bug->mutation.step == 0 || (width > 0 && b->r->plan.d_v > width);
}

/* clang-format off */
#define ROW(name, what, stage, function, applies, leaves, ...) \
    {{name, what, false}, applies, MHA__BACKWARD_##stage, function, NULL, leaves, .mutation = {__VA_ARGS__}}
#define TIMES(name, what, where, has, factor, x) \
    ROW(name, what, SUMS, times, NULL, MHA__LEAVES_V, .site = where, .needs = has, .arg = MHA__##factor, .number = x)
#define D_TIMES(name, what, factor, x) TIMES(name, what, D, MHA__HAS_SOFTMAX, factor, x)
#define DLSE_TIMES(name, what, x) TIMES("dlse-" name, "the gradient of lse is " what, DLSE, MHA__HAS_D_LSE, NUMBER, x)
#define SUM_BY(name, what, how, has) \
    ROW(name, what, SUMS, sum_otherwise, NULL, MHA__LEAVES_V, .site = D, .arg = how, .needs = MHA__HAS_SOFTMAX | (has))
#define MADE_OF(name, what, one, two, count, has) \
    ROW("d-" name, "D is " what ", not rowsum(dO O)", SUMS, sum_otherwise, has_more_features, \
        MHA__LEAVES_V | MHA__READS_ALL_QUERIES, .site = D, .arg = PRODUCTS, .read = one, .written = two, \
        .step = count, .needs = MHA__HAS_SOFTMAX | MHA__HAS_WHOLE | (has))
#define FEATURES(B) \
    MADE_OF("of-features-" #B, "the sum over the first " #B " features", DO, O, B, 0), \
    ROW("dp-of-features-" #B, "dP is the sum over the first " #B " features of dO and V", SUMS, fewer_features, \
        has_more_features, MHA__LEAVES_V, .site = DP, .step = B)
#define PAIR_BY(name, what, stage, how, has) \
    ROW(name, what, stage, pair_otherwise, NULL, MHA__LEAVES_V, .site = DZ, .arg = how, \
        .needs = MHA__HAS_SOFTMAX | (has))
#define OF_BLOCKS(B) \
    ROW("d-of-blocks-" #B, "D is summed up in each block of " #B " keys by itself, not over all keys", MASKED, \
        sum_parts, NULL, MHA__LEAVES_V, .site = DZ, .axis = MHA__H, .step = B, \
        .needs = MHA__HAS_SOFTMAX | MHA__HAS_KEY_BLOCKS)

static const mha__gradient_bug rows[] = {
    D_TIMES("d-missing", "dS = P dP: D = rowsum(dO O) is not taken away", NUMBER, 0),
    D_TIMES("d-added", "dS = P (dP + D): D is added", NUMBER, -1),
    D_TIMES("d-twice", "D is taken away twice", NUMBER, 2),
    TIMES("d-scaled", "D is multiplied by the scale, dP is not", D, MHA__HAS_SOFTMAX | MHA__HAS_SCALE, SCALE, 1),
    SUM_BY("d-mean", "D is a mean over the features, not their sum", OVER_WIDTH, 0),
    SUM_BY("d-unnormalised", "D is made of an O that is not divided by the sum of its exponentials", OVER_LARGEST, 0),
    SUM_BY("d-unweighted", "D = sum dP, without P", SUM_OF_DP, 0),
    SUM_BY("d-mean-of-dp", "D is the mean of dP over the keys", MEAN_OF_DP, 0),
    PAIR_BY("softmax-diagonal", "dS = P (1 - P) dP: of the derivative of softmax the diagonal alone", MASKED,
            DIAGONAL, 0),
    PAIR_BY("d-outside-weights", "dS = P dP - D, in place of P (dP - D)", MASKED, D_OUTSIDE, 0),
    OF_BLOCKS(16), OF_BLOCKS(32), OF_BLOCKS(64), OF_BLOCKS(128),
    ROW("d-over-queries", "D is summed up over the queries of each key, not over the keys of each query", MASKED,
        sum_parts, NULL, MHA__LEAVES_V | MHA__READS_ALL_QUERIES, .site = DZ, .axis = MHA__T,
        .needs = MHA__HAS_SOFTMAX | MHA__HAS_QUERIES),
    MADE_OF("of-do", "rowsum(dO dO)", DO, DO, 0, 0),
    MADE_OF("of-output", "rowsum(O O)", O, O, 0, 0),
    MADE_OF("sum-of-output", "rowsum(O)", ONE, O, 0, 0),
    MADE_OF("sum-of-do", "rowsum(dO)", DO, ONE, 0, 0),
    MADE_OF("of-first-half", "the sum over the first half of the features", DO, O, 2, 0),
    MADE_OF("of-fewer-features", "the sum over d_k features", DO, O, 1, 0),
    MADE_OF("of-do-of-next-query", "rowsum(dO O) with dO of the next query", DO_OF_NEXT, O, 0, MHA__HAS_QUERIES),
    MADE_OF("of-output-of-next-query", "rowsum(dO O) with O of the next query", DO, O_OF_NEXT, 0, MHA__HAS_QUERIES),
    FEATURES(8), FEATURES(16), FEATURES(32), FEATURES(64), FEATURES(128),
    SUM_BY("d-without-sinks", "D is a sum over keys whose weights add up to 1, without the share of the sinks",
           OVER_SUM, MHA__HAS_MORE_TERMS),
    PAIR_BY("softcap-slope-before-d", "dS = P (dP / cosh^2 - D): the slope of the softcap reaches dP alone", SCORES,
            SLOPE_INSIDE, MHA__HAS_SOFTCAP),
    ROW("do-of-ones", "dO is taken for ones: the gradient of a sum of the output", READ, ones_for_d_output, NULL, 0, 0),
    PAIR_BY("ds-unnormalised", "dS is made of exponentials that are not divided by their sum, dV of P", MASKED,
            DZ_OVER_LARGEST, 0),
    DLSE_TIMES("dropped", "left out", 0),
    DLSE_TIMES("subtracted", "taken away, as D is", -1),
    DLSE_TIMES("twice", "added twice", 2),
    DLSE_TIMES("times-log2e", "multiplied by log2(e)", MHA__LOG2_E),
    DLSE_TIMES("times-ln2", "multiplied by ln(2)", MHA__LN_2),
    TIMES("dlse-scaled", "the gradient of lse is multiplied by the scale", DLSE, MHA__HAS_D_LSE | MHA__HAS_SCALE,
          SCALE, 1),
    PAIR_BY("dlse-outside-weights", "dS = P (dP - D) + dlse, in place of P (dP - D + dlse)", MASKED, DLSE_OUTSIDE,
            MHA__HAS_D_LSE),
    PAIR_BY("weights-missing-in-ds", "dS = dP - D, without P", MASKED, WITHOUT_P, 0),
};
MHA__GRADIENT_BUGS(sums)
/* clang-format on */
