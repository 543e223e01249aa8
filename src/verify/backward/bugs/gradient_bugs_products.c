/* Bugs of dQ, dK and dV, and of heads that share keys and values. */
#include "verify/backward/bugs/gradient_bugs.h"

enum { DQ = MHA__OF_DQ, DK = MHA__OF_DK, DV = MHA__OF_DV };

/* dK and dV of head i are added to those of key/value head i mod h_kv; or rows of the heads of a group are written as
 * (group, S) and added up as if they were (S, group). */
static void deal(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const mha__sizes *p = &b->r->plan;
    const bool by_remainder = bug->mutation.arg == MHA__REMAINDER;
    const size_t group = p->h / p->h_kv, g = by_remainder ? map->head % p->h_kv : map->g;
    for (int v = 0; v < 2; v++) {
        const size_t d = v ? p->d_v : p->d_k, from = map->s.k_batch * b->d_keys[v].shape[1] + map->s.k_from;
        double *of_map = v ? map->dV : map->dK, *to = b->d_keys[v].data;
        for (size_t e = 0; bug->mutation.site & (v ? DV : DK) && e < map->s.S * d; e++) {
            const size_t row = by_remainder ? e / d : (map->head % group * map->s.S + e / d) / group;
            to[((from + row) * p->h_kv + g) * d + e % d] += of_map[e];
            of_map[e] = 0;
        }
    }
}

/* clang-format off */
#define LEFT_BY(sites) (7u & ~(unsigned)(sites))
#define HAS(what) MHA__HAS_##what
#define SCALED(name, what, sites, has, factor, x) \
    MHA__ROW("scale-" name, what, SUMS, LEFT_BY(sites), TIMES, .site = (sites) << 3, .arg = MHA__##factor, \
        .number = x, .needs = has)
#define SCALE(name, what, how) \
    MHA__ROW("scale-" name, "dQ and dK have the scale " what, SUMS, MHA__LEAVES_V, OTHER_SCALE, .arg = how, \
        .needs = HAS(OTHER_SCALE))
#define TIMES(name, what, sites, factor, x, has) \
    MHA__ROW(name, what, ADDED, LEFT_BY(sites), TIMES, .site = sites, .arg = MHA__##factor, .number = x, \
        .needs = has)
#define PRODUCT(name, what, has, where, text, untransposed) \
    MHA__BY_FORMULA(name, what, ADDED, LEFT_BY(where), where, text, .op = MHA__PRODUCT, .read = untransposed, \
        .needs = has)
#define TAKES(name, what, stage, leaves, to, from) \
    MHA__ROW(name, what, stage, leaves, TAKES, .arg = MHA__ROWS_##to, .read = MHA__ROWS_##from, \
        .needs = EQUAL_ROWS)
#define MEETS(name, what, leaves, has, ...) \
    MHA__ROW(name, what, SUMS, MHA__LEAVES_V | (leaves), MEETS, .needs = has, __VA_ARGS__)
/* Without the terms outside a part. */
#define PART(name, what, sites, has, ...) \
    MHA__BY_FORMULA(name, what, ADDED, LEFT_BY(sites), sites, "-(1-part)*right", .op = MHA__MORE_PRODUCT, \
        .needs = has, __VA_ARGS__)
#define OF_KEYS(name, what, sites, has, ...) \
    MHA__BY_FORMULA(name, what, ADDED, LEFT_BY(sites), sites, "-key*(1-part)*right", .op = MHA__MORE_PRODUCT, \
        .needs = has, __VA_ARGS__)
#define PARTS(B) \
    OF_KEYS("tail-queries-missing-" #B, "dK and dV lack the queries of the last block of " #B ", which is not full", \
         DK | DV, HAS(QUERY_BLOCKS) | HAS(TAIL), MHA__BY(FULL_BLOCKS, T, B)), \
    OF_KEYS("tail-keys-missing-" #B, "dQ lacks the keys of the last block of " #B ", which is not full", DQ, \
         HAS(KEY_BLOCKS) | HAS(TAIL), MHA__BY(FULL_BLOCKS, C, B)), \
    OF_KEYS("dq-of-last-block-" #B, "dQ has the last block of " #B " keys alone: what the others add is lost", DQ, \
         HAS(KEY_BLOCKS), MHA__BY(IN_LAST_BLOCK, C, B)), \
    PART("dk-dv-of-last-block-" #B, \
         "dK and dV have the last block of " #B " queries alone: what the others add is lost", \
         DK | DV, HAS(QUERY_BLOCKS), MHA__BY(IN_LAST_BLOCK, T, B))
#define GROUP(name, what, sites, part) \
    MHA__ROW("group-" name, what, ADDED, LEFT_BY(sites), KEEPS, .site = sites, .needs = HAS(GROUPS), \
        MHA__BY(part, H, 0))
#define DEALT(name, what, sites, map, has) \
    {{name, what, false}, NULL, MHA__BACKWARD_ADDED, deal, NULL, LEFT_BY(sites), \
        .mutation = {.site = sites, .arg = map, .needs = HAS(GROUPS) | (has)}}
#define PLAIN (HAS(SOFTMAX) | HAS(KEYS_ALONE))
#define EQUAL_ROWS (HAS(EQUAL_WIDTHS) | HAS(NO_RELATIVE) | HAS(NO_EXTRA))

static const mha__gradient_bug rows[] = {
    SCALED("missing", "dQ and dK lack the scale", DQ | DK, HAS(SCALE), SCALE, -1),
    SCALED("twice", "dQ and dK are scaled twice", DQ | DK, HAS(SCALE), SCALE, 1),
    SCALED("missing-dq", "dQ lacks the scale, dK has it", DQ, HAS(SCALE), SCALE, -1),
    SCALED("missing-dk", "dK lacks the scale, dQ has it", DK, HAS(SCALE), SCALE, -1),
    SCALED("twice-dq", "dQ is scaled twice, dK once", DQ, HAS(SCALE), SCALE, 1),
    SCALED("twice-dk", "dK is scaled twice, dQ once", DK, HAS(SCALE), SCALE, 1),
    SCALE("default", "1/sqrt(d_k), the forward has another", MHA__SCALE_DEFAULT),
    SCALE("of-values", "1/sqrt(d_v)", MHA__SCALE_OF_VALUES),
    SCALE("of-padded", "1/sqrt(n), n the power of two to which d_k is padded", MHA__SCALE_OF_PADDED),
    SCALE("of-model", "1/sqrt(h d_k)", MHA__SCALE_OF_MODEL),
    SCALE("over-width", "1/d_k", MHA__SCALE_OVER_WIDTH),
    SCALED("times-log2e", "dQ and dK are also multiplied by log2(e), which belongs to the exponent", DQ | DK, 0, NUMBER,
           MHA__LOG2_E),
    SCALED("times-ln2", "dQ and dK are also multiplied by ln(2)", DQ | DK, 0, NUMBER, MHA__LN_2),
    SCALED("root", "dQ and dK have the root of the scale", DQ | DK, HAS(SCALE), SCALE, -0.5),
    PRODUCT("dv-unnormalised", "dV is made of exponentials that are not divided by their sum", PLAIN, DV,
            "P/max(P)", 0),
    TIMES("dv-scaled", "dV is multiplied by the scale", DV, SCALE, 1, HAS(SCALE)),
    TIMES("dq-twice", "dQ is twice what it should be: it was added to itself", DQ, NUMBER, 2, 0),
    TIMES("dk-dv-twice", "dK and dV are twice what they should be: they were added to themselves", DK | DV, NUMBER,
          2, 0),
    TIMES("dq-negated", "dQ has the other sign", DQ, NUMBER, -1, 0),
    TIMES("dk-negated", "dK has the other sign", DK, NUMBER, -1, 0),
    TIMES("dv-negated", "dV has the other sign", DV, NUMBER, -1, 0),
    TIMES("all-negated", "dQ, dK and dV have the other sign", DQ | DK | DV, NUMBER, -1, 0),
    TIMES("all-over-batch", "dQ, dK and dV are divided by the number of batch rows", DQ | DK | DV, BATCH, -1,
          HAS(BATCH)),
    TIMES("dq-half", "dQ is half of what it should be", DQ, NUMBER, 0.5, 0),
    TIMES("dq-zero", "dQ is 0", DQ, NUMBER, 0, 0),
    TIMES("dk-zero", "dK is 0", DK, NUMBER, 0, 0),
    TIMES("dv-zero", "dV is 0", DV, NUMBER, 0, 0),
    PRODUCT("dk-untransposed", "dK = scale dS Q, without the transpose of dS",
            HAS(SQUARE) | HAS(ALL_KV_HEADS) | HAS(NO_RELATIVE), DK, "dS", 1),
    PRODUCT("dv-untransposed", "dV = P dO, without the transpose of P", HAS(SQUARE) | HAS(ALL_KV_HEADS), DV, "P", 1),
    PRODUCT("dv-of-squares", "dV is made of the squares of P", 0, DV, "P^2", 0),
    PRODUCT("dv-of-d-scores", "dV = dS^T dO: dS is read where P belongs", 0, DV, "dS", 0),
    PRODUCT("dk-of-weights", "dK = scale P^T Q: P is read where dS belongs", HAS(NO_RELATIVE), DK, "P", 0),
    PRODUCT("dq-of-weights", "dQ = scale P K: P is read where dS belongs", HAS(NO_RELATIVE), DQ, "P", 0),
    TAKES("dq-of-values", "dQ reads V where K belongs", READ, LEFT_BY(DQ), K, V),
    TAKES("dk-of-do", "dK reads dO where Q belongs", READ, LEFT_BY(DK), Q, DO),
    TAKES("dv-of-queries", "dV reads Q where dO belongs", SCORES, LEFT_BY(DV), DO, Q),
    MEETS("dp-of-keys", "dP reads K where V belongs", 0, EQUAL_ROWS, .arg = MHA__ROWS_K),
    MEETS("dp-transposed", "dP = V dO^T, without the transpose", MHA__READS_ALL_QUERIES, HAS(SQUARE),
        .arg = MHA__ROWS_V, .read = 1),
    MEETS("dp-of-fewer-features", "dP is the sum over d_k features of dO and V", 0, HAS(WIDE_VALUES),
        .arg = MHA__ROWS_V, .step = 1, .written = 1),
    MHA__ROW("dq-dk-exchanged", "dQ and dK stand in each other's place", ADDED,
        MHA__LEAVES_V | MHA__READS_ALL_QUERIES, EXCHANGES, .site = DQ | DK, .needs = HAS(SQUARE) | HAS(ALL_KV_HEADS)),
    MHA__ROW("dk-dv-exchanged", "dK and dV stand in each other's place", ADDED, MHA__LEAVES_Q, EXCHANGES,
        .site = DK | DV, .needs = HAS(EQUAL_WIDTHS)),
    PARTS(16), PARTS(32), PARTS(64), PARTS(128),
    GROUP("last", "dK and dV are those of the last head of a group, not their sum", DK | DV, THE_LAST),
    GROUP("first", "dK and dV are those of the first head of a group, not their sum", DK | DV, THE_FIRST),
    GROUP("last-dk", "dK is that of the last head of a group, dV is the sum", DK, THE_LAST),
    GROUP("last-dv", "dV is that of the last head of a group, dK is the sum", DV, THE_LAST),
    TIMES("group-mean", "dK and dV are means over the heads of a group, not sums", DK | DV, GROUP_SIZE, -1,
          HAS(GROUPS)),
    TIMES("group-mean-dk", "dK is a mean over the heads of a group, dV is the sum", DK, GROUP_SIZE, -1, HAS(GROUPS)),
    TIMES("group-mean-dv", "dV is a mean over the heads of a group, dK is the sum", DV, GROUP_SIZE, -1, HAS(GROUPS)),
    DEALT("group-by-remainder", "dK and dV of head i go to key/value head i mod h_kv", DK | DV, MHA__REMAINDER,
          HAS(KV_HEADS)),
    DEALT("group-of-other-order", "dK and dV of a group are written as (group, S) and added up as (S, group)", DK | DV,
          MHA__GROUPS_INSIDE, 0),
};
MHA__GRADIENT_BUGS(products)
/* clang-format on */
