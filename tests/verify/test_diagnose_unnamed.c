/* Changes that no known bug makes, and known bugs with a number, in places: the diagnosis says them, nothing else. */
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/planting.h"

enum { MOST_T = 40, MOST_H = 4, D = 8, MOST = 2 * MOST_T * MOST_H * D };

/* A call of q, k and v (B, T, H, D), with some that a kernel reads wrongly. */
typedef struct attention {
    size_t B, T, H;
    bool causal, rotates;
    double q[MOST], k[MOST], v[MOST];
    double scale, weights; /* factors */
    long beyond;           /* keys that causal adds */
    /* Of 8 keys, the second; FEW: that of the query, of 16; OPEN: causal masks only the last one of 16 queries. */
    enum { WHOLE, HIDDEN, TWICE, VALUES_TWICE, FEW, OPEN } tile;
    size_t inside, odd; /* tile in which causal counts rows from 0; tile of a softmax that skips odd rescalings */
    double (*round_weight)(double x);
    size_t shared; /* queries that divide by the sum of the first of them */
    size_t wide;   /* features of products, beyond D those in memory after the head, in the batch row */
} attention;

static size_t at(const attention *x, size_t b, size_t t, size_t h)
{
    return ((b * x->T + t) * x->H + h) * D;
}

static void rotate(const attention *x, double *rows)
{
    for (size_t t = 0; t < x->T; t++)
        for (size_t e = 0; e < x->B * x->H * D / 2; e++) {
            const size_t i = e % (D / 2), head = e / (D / 2);
            double *row = rows + at(x, head / x->H, t, head % x->H);
            const double angle = (double)t * pow(10000, -2.0 * (double)i / D), a = row[i], b = row[i + D / 2];
            row[i] = a * cos(angle) - b * sin(angle);
            row[i + D / 2] = b * cos(angle) + a * sin(angle);
        }
}

/* Numerators that odd tiles of keys do not rescale when the maximum grows. */
static void skip_odd_rescaling(const attention *x, const double *weights, double *numerators)
{
    double most = 0;
    for (size_t first = 0; x->odd && first < x->T; first += x->odd) {
        double greater = most;
        for (size_t j = first; j < x->T && j < first + x->odd; j++)
            greater = fmax(greater, weights[j]);
        for (size_t j = 0; j < first && first / x->odd % 2 && most > 0; j++)
            numerators[j] *= greater / most;
        most = greater;
    }
}

static void attend(const attention *x, double *output)
{
    double weights[MOST_T], numerators[MOST_T], sums[MOST_T * MOST_H];
    for (size_t row = 0; row < x->B * x->T * x->H; row++) {
        const size_t h = row % x->H, t = row / x->H % x->T, b = row / x->H / x->T;
        double sum = 0, *o = output + row * D;
        memset(o, 0, D * sizeof *o);
        for (size_t j = 0; j < x->T; j++) {
            double dot = 0;
            for (size_t f = 0; f < D; f++)
                dot += x->q[at(x, b, t, h) + f] * x->k[at(x, b, j, h) + f];
            for (size_t f = D; f < x->wide; f++)
                if (at(x, 0, t, h) + f < at(x, 1, 0, 0) && at(x, 0, j, h) + f < at(x, 1, 0, 0))
                    dot += x->q[at(x, b, t, h) + f] * x->k[at(x, b, j, h) + f];
            const size_t own = x->inside ? t % x->inside : t;
            const bool second = j / 8 == 1,
                       hidden = (x->tile == HIDDEN && second) || (x->tile == FEW && j / 8 > t / 16);
            const bool open = x->tile == OPEN && j / 8 < t / 16 * 2 + 1;
            const bool seen = !hidden && (!x->causal || open || (long)j <= (long)own + x->beyond);
            weights[j] = seen ? exp(dot * x->scale / sqrt(D)) : 0;
            weights[j] *= x->tile == TWICE && second ? 2 : 1;
            sum += weights[j];
        }
        if (x->shared) { /* of exp(s - maximum) */
            double most = 0;
            for (size_t j = 0; j < x->T; j++)
                most = fmax(most, weights[j]);
            sums[t * x->H + h] = sum / most;
            sum = sums[t / x->shared * x->shared * x->H + h] * most;
        }
        memcpy(numerators, weights, sizeof weights);
        skip_odd_rescaling(x, weights, numerators);
        for (size_t j = 0; j < x->T; j++)
            for (size_t f = 0; f < D; f++) {
                const double w = x->weights * numerators[j] / sum * (x->tile == VALUES_TWICE && j / 8 == 1 ? 2 : 1);
                o[f] += (x->round_weight ? x->round_weight(w) : w) * x->v[at(x, b, j, h) + f];
            }
    }
}

/* ---------------------------------------------------------------- what is planted */

static double to_bits(double x, int bits)
{
    int exponent;
    const double m = frexp(x, &exponent);
    return ldexp(rint(ldexp(m, bits)), exponent - bits);
}

static double to_bf16(double x)
{
    return to_bits(x, 8);
}

static void round_all(const attention *x, double *rows)
{
    for (size_t e = 0; e < x->B * x->T * x->H * D; e++)
        rows[e] = to_bf16(rows[e]);
}

/* 8 bits with a scale for each row of a head. */
static void quantise(const attention *x, double *rows)
{
    for (size_t row = 0; row < x->B * x->T * x->H; row++) {
        double most = 0, *r = rows + row * D;
        for (size_t f = 0; f < D; f++)
            most = fmax(most, fabs(r[f]));
        for (size_t f = 0; f < D; f++)
            r[f] = rint(r[f] * 127 / most) * most / 127;
    }
}

/* Row t is row `from` of t; zeros for one past the end. */
static void move_rows(const attention *x, double *rows, size_t (*from)(size_t t, size_t T))
{
    double *copy = calloc(MOST + 1, sizeof *copy);
    memcpy(copy, rows, MOST * sizeof *copy);
    for (size_t b = 0; b < x->B; b++)
        for (size_t t = 0; t < x->T; t++) {
            const size_t to = from(t, x->T);
            for (size_t e = 0; e < x->H * D; e++)
                rows[at(x, b, t, 0) + e] = to < x->T ? copy[at(x, b, to, 0) + e] : 0;
        }
    free(copy);
}

static size_t late_4(size_t t, size_t T)
{
    (void)T;
    return t < 4 ? t : t - 4;
}

static size_t late_8_last(size_t t, size_t T)
{
    return t / 8 == (T - 1) / 8 ? t - 8 : t;
}

static size_t first_8(size_t t, size_t T)
{
    (void)T;
    return t % 8;
}

static size_t reversed_in_4(size_t t, size_t T)
{
    const size_t first = t / 4 * 4, n = T - first < 4 ? T - first : 4;
    return first + n - 1 - t % 4;
}

static size_t halves_of_8(size_t t, size_t T)
{
    return t / 8 < T / 8 ? t / 8 * 8 + (t + 4) % 8 : t;
}

static size_t without_last_8(size_t t, size_t T)
{
    return t / 8 == (T - 1) / 8 ? T : t;
}

static size_t start_of_4(size_t t, size_t T)
{
    (void)T;
    return t - t % 4;
}

static size_t odd_late_4(size_t t, size_t T)
{
    (void)T;
    return t / 4 % 2 ? t - 4 : t;
}

static size_t third_late_4(size_t t, size_t T)
{
    (void)T;
    return t >= 4 && t / 4 % 3 == 0 ? t - 12 : t;
}

static size_t early_8(size_t t, size_t T)
{
    (void)T;
    return t - t / 8;
}

static size_t third_8_first(size_t t, size_t T)
{
    (void)T;
    return t / 8 == 0 ? t + 16 : t;
}

static void k_odd_late(attention *x)
{
    move_rows(x, x->k, odd_late_4);
}
static void v_third(attention *x)
{
    move_rows(x, x->v, third_late_4);
}
static void k_early(attention *x)
{
    move_rows(x, x->k, early_8);
}
static void causal_open(attention *x)
{
    x->tile = OPEN;
}
static void v_tiles(attention *x)
{
    move_rows(x, x->v, third_8_first);
}
static void causal_inside(attention *x)
{
    x->inside = 16;
}
static void odd_unscaled(attention *x)
{
    x->odd = 8;
}

static void tile_hidden(attention *x)
{
    x->tile = HIDDEN;
}
static void tile_twice(attention *x)
{
    x->tile = TWICE;
}
static void values_twice(attention *x)
{
    x->tile = VALUES_TWICE;
}
static void wide_products(attention *x)
{
    x->wide = 16;
}

static void few_tiles(attention *x)
{
    x->tile = FEW;
}

static void sums_shared(attention *x)
{
    x->shared = 4;
}

/* Row t of a head begins 7 features after the one before. */
static void v_pitched(attention *x)
{
    double *copy = calloc(MOST, sizeof *copy);
    memcpy(copy, x->v, MOST * sizeof *copy);
    for (size_t e = 0; e < x->B * x->T * x->H * D; e++) {
        const size_t flat = e / D / x->H % x->T * 7 + e % D;
        x->v[e] = copy[at(x, e / D / x->H / x->T, flat / D, e / D % x->H) + flat % D];
    }
    free(copy);
}

/* Head h of batch row b is number b * H + h, taken for h * B + b. */
static void kv_heads(attention *x)
{
    double *copy = calloc(MOST, sizeof *copy), *const sides[] = {x->k, x->v};
    for (int side = 0; side < 2; side++) {
        memcpy(copy, sides[side], MOST * sizeof *copy);
        for (size_t e = 0; e < x->B * x->T * x->H * D; e++) {
            const size_t index = e / D / x->H / x->T * x->H + e / D % x->H;
            sides[side][e] = copy[at(x, index % x->B, e / D / x->H % x->T, index / x->B) + e % D];
        }
    }
    free(copy);
}

static void k_late(attention *x)
{
    move_rows(x, x->k, late_4);
}
static void v_late(attention *x)
{
    move_rows(x, x->v, late_4);
}
static void kv_late(attention *x)
{
    k_late(x), v_late(x);
}
static void q_late(attention *x)
{
    move_rows(x, x->q, late_4);
}
static void k_first(attention *x)
{
    move_rows(x, x->k, first_8);
}
static void k_last_late(attention *x)
{
    move_rows(x, x->k, late_8_last);
}
static void k_reversed(attention *x)
{
    move_rows(x, x->k, reversed_in_4);
}
static void kv_halves(attention *x)
{
    move_rows(x, x->k, halves_of_8), move_rows(x, x->v, halves_of_8);
}
static void v_lost(attention *x)
{
    move_rows(x, x->v, without_last_8);
}
static void v_start(attention *x)
{
    move_rows(x, x->v, start_of_4);
}
static void qv_rounded(attention *x)
{
    round_all(x, x->q), round_all(x, x->v);
}
static void k_rounded(attention *x)
{
    round_all(x, x->k);
}
static void all_quantised(attention *x)
{
    quantise(x, x->q), quantise(x, x->k), quantise(x, x->v);
}
static void weights_rounded(attention *x)
{
    x->round_weight = to_bf16;
}
static void scores_negated(attention *x)
{
    x->scale = -1;
}
static void weights_doubled(attention *x)
{
    x->weights = 2;
}
static void causal_ahead(attention *x)
{
    x->beyond = 4;
}

static void k_features(attention *x)
{
    for (size_t e = 0; e < x->B * x->T * x->H * D; e += 4)
        for (size_t f = 0; f < 2; f++) {
            const double kept = x->k[e + f];
            x->k[e + f] = x->k[e + 3 - f];
            x->k[e + 3 - f] = kept;
        }
}

/* Where it is made. */
enum { ALL, HEADS, BATCH, ROWS, BATCH_AND_HEADS };
static const char *const where_said[] = {"", ", in heads 2-3", ", in batch row 1", ", in rows 9-15",
                                         ", in batch row 1, heads 2-3"};

static bool is_there(int where, size_t b, size_t t, size_t h)
{
    switch (where) {
    case HEADS: return h >= 2;
    case BATCH: return b == 1;
    case ROWS: return t >= 9 && t < 16;
    case BATCH_AND_HEADS: return b == 1 && h >= 2;
    default: return true;
    }
}

typedef struct row {
    void (*spoil)(attention *x);
    const char *says; /* after "=": the name and the number of a known bug */
    int where;
    bool causal, before_rotation, rotates;
} row;

static const row rows[] = {
    {k_late, "scores: rows of k read one tile of 4 late", HEADS, false, false, false},
    {k_late, "scores: rows of k read one tile of 4 late", HEADS, true, false, true},
    {k_late, "projections: rows of k read one tile of 4 late", HEADS, true, true, true},
    {k_late, "scores: rows of k read one tile of 4 late", ALL, false, false, false},
    {v_late, "values: rows of v read one tile of 4 late", ROWS, false, false, false},
    {kv_late, "scores and values: rows of k and v read one tile of 4 late", HEADS, true, false, false},
    {q_late, "scores: rows of q read one tile of 4 late", HEADS, false, false, true},
    {k_first, "scores: rows of k read the first tile of 8 each time", ALL, false, false, true},
    {k_first, "scores: rows of k read the first tile of 8 each time", BATCH_AND_HEADS, true, false, false},
    {k_last_late, "scores: rows of k read one tile of 8 late, the last alone", HEADS, false, false, false},
    {k_reversed, "scores: rows of k reversed in each tile of 4", HEADS, false, false, false},
    {kv_halves, "scores and values: rows of k and v read each tile of 4 in the place of its neighbour", HEADS, true,
     false, false},
    {v_lost, "values: rows of v are 0 in a tile of 8, the last alone", HEADS, false, false, false},
    {v_start, "values: rows of v read the first of each tile of 4 each time", ROWS, false, false, false},
    {k_features, "scores: features of k reversed in each tile of 4", ALL, false, false, false},
    {k_features, "scores: features of k reversed in each tile of 4", ROWS, true, false, true},
    {qv_rounded, "q and v rounded to bfloat16 before the products", BATCH, false, false, false},
    {k_rounded, "=rounded-k 8", HEADS, true, false, false},
    {all_quantised, "q, k and v in 8 bits, a scale for each row", HEADS, false, false, false},
    {weights_rounded, "=rounded-weights 8", HEADS, false, false, false},
    {scores_negated, "scores times -1", ROWS, true, false, false},
    {weights_doubled, "weights times 2", BATCH_AND_HEADS, false, false, false},
    {causal_ahead, "=causal-shift-other 4", HEADS, true, false, false},
    {k_odd_late, "scores: rows of k read one tile of 4 late, the odd ones alone", HEADS, true, false, false},
    {v_third, "values: rows of v read, each third tile of 4, that of three before", HEADS, true, false, false},
    {k_early, "scores: rows of k begin one row too early for each tile of 8 before", HEADS, false, false, false},
    {causal_open, "visibility: query tiles of 16 have the causal mask in the last of their key tiles of 8 alone", ALL,
     true, false, false},
    {v_tiles, "values: rows of v: tile 2 read in place of tile 0, of 8 rows", HEADS, true, false, true},
    {causal_inside, "causal: rows of q counted from 0 in each tile of 16", ALL, true, false, false},
    {odd_unscaled, "softmax: values not rescaled in odd tiles of 8 keys", HEADS, false, false, false},
    {tile_hidden, "visibility: tile 1 of 8 keys hidden", HEADS, false, false, false},
    {tile_hidden, "visibility: tile 1 of 8 keys hidden", ROWS, false, false, true},
    {tile_twice, "=keys-counted 8-15: 2; 8-15: 2", ALL, false, false, false},
    {values_twice, "values: tile 1 of 8 keys added twice", BATCH, true, false, false},
    {few_tiles, "visibility: query tile n of 16 sees key tiles 0 to n of 8", ALL, true, false, false},
    {sums_shared, "softmax: sum of the first query of each tile of 4 used for all of it", HEADS, true, false, false},
    {v_pitched, "memory: v in (B, h, T, d), strides of rows as of 7 features", ALL, false, false, false},
    {wide_products, "memory: products of 16 features, the last ones those that lie behind the head", ALL, false, false,
     false},
    {kv_heads, "=batch-heads-kv-permuted 1: 4, 2: 1, 3: 5, 4: 2, 5: 6, 6: 3", ALL, true, false, false},
};

/* ---------------------------------------------------------------- the diagnosis of it */

/* A call of the plain loop, with its inputs as floats. */
typedef struct drawn {
    attention right;
    float input[3][MOST], output[MOST];
    double wanted[MOST], wrong[MOST];
} drawn;

static mha_case *case_of(drawn *x, const row *r, uint64_t seed)
{
    attention *a = &x->right;
    *a = (attention){.B = 2, .T = seed % 2 ? 40 : 32, .H = MOST_H, .causal = r->causal, .scale = 1, .weights = 1};
    mha_view in[3];
    double *const to[] = {a->q, a->k, a->v};
    for (uint64_t i = 0; i < 3; i++) {
        in[i] = mha_heads(x->input[i], a->B, a->T, a->H, D);
        mha_random_fill(&in[i], 50 + seed, i, -1.5, 1.5);
        for (size_t e = 0; e < a->B * a->T * a->H * D; e++)
            to[i][e] = (double)x->input[i][e];
    }
    attention bad = *a;
    if (r->before_rotation)
        r->spoil(&bad);
    for (int side = 0; side < 2 && r->rotates; side++)
        rotate(a, to[side]), rotate(&bad, side ? bad.k : bad.q);
    if (!r->before_rotation)
        r->spoil(&bad);
    attend(a, x->wanted);
    attend(&bad, x->wrong);
    for (size_t e = 0; e < a->B * a->T * a->H * D; e++)
        x->output[e] =
            (float)(is_there(r->where, e / D / a->H / a->T, e / D / a->H % a->T, e / D % a->H) ? x->wrong[e]
                                                                                               : x->wanted[e]);
    const mha_call call = {
        .query = in[0],
        .key = in[1],
        .value = in[2],
        .semantics.visible.causal = r->causal,
        .semantics.qkv.rope = {.kind = r->rotates ? MHA_ROPE_HALF_SPLIT : MHA_ROPE_NONE, .dim = r->rotates ? D : 0}};
    const mha_keep expected = {.stage = MHA_STAGE_OUTPUT,
                               .view = mha_view_of(x->output, MHA_F32, 4, (size_t[]){a->B, a->T, a->H, D})};
    mha_case *c;
    mha_error error;
    assert_ok(mha_case_of_call(NULL, &call, &expected, 1, NULL, &c, &error), error);
    return c;
}

/* Whether a match says it; computed again, it gives the same numbers. */
static bool is_said(const mha_case *c, const drawn *x, const mha_bug_match *e, const char *says)
{
    static double again[MOST];
    const attention *a = &x->right;
    const mha_view view = mha_view_of(again, MHA_F64, 4, (size_t[]){a->B, a->T, a->H, D});
    char text[256];
    const char *bug = text;
    mha_error error;
    snprintf(text, sizeof text, "%s %s", e->bugs[0], e->found[0]);
    if (!e->exact || e->count != 1 || strcmp(text, says) != 0)
        return false;
    assert_ok(mha_case_with_bugs(c, &bug, 1, MHA_STAGE_OUTPUT, &view, &error), error);
    for (size_t i = 0; i < a->B * a->T * a->H * D; i++)
        assert_true(fabs(again[i] - (double)x->output[i]) < 1e-6);
    return true;
}

static void test_changes_are_said(void **state)
{
    (void)state;
    static drawn x;
    const uint64_t seeds = trial_count("UNNAMED_TRIALS", 2);
    size_t missed = 0;
    for (size_t i = 0; i < seeds * sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i / seeds];
        mha_case *c = case_of(&x, r, i % seeds);
        mha_diagnosis d;
        mha_error error;
        char says[256];
        bool said = false;
        if (*r->says == '=')
            snprintf(says, sizeof says, "%s%s", r->says + 1, where_said[r->where] + (*where_said[r->where] ? 1 : 0));
        else
            snprintf(says, sizeof says, "unnamed %s%s", r->says, where_said[r->where]);
        assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
        for (size_t k = 0; k < d.match_count; k++)
            said |= is_said(c, &x, &d.matches[k], says);
        missed += !said;
        if (!said)
            print_error("%s: %zu matches, %s %s\n", says, d.match_count, d.match_count ? d.matches[0].bugs[0] : "-",
                        d.match_count ? d.matches[0].found[0] : "");
        if (said)
            assert_int_equal(d.clue_count, 0);
        mha_diagnosis_clear(&d);
        mha_case_close(c);
    }
    assert_int_equal(missed, 0);
}

/* ---------------------------------------------------------------- what has a name, or is right */

/* Whether the diagnosis of a stage says a change without a name. */
static bool says_unnamed(rig *r, mha_dtype type, const oracle_stage *recorded)
{
    mha_case *c = planting_case(r, MHA_STAGE_OUTPUT, type, recorded);
    mha_diagnosis d;
    mha_error error;
    bool says = false;
    if (!c)
        return false;
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    for (size_t i = 0; i < d.match_count; i++)
        says |= d.matches[i].count > 0 && strcmp(d.matches[i].bugs[0], "unnamed") == 0;
    for (size_t i = 0; i < d.closest_count; i++)
        says |= d.closest[i].count > 0 && strcmp(d.closest[i].bugs[0], "unnamed") == 0;
    mha_diagnosis_clear(&d);
    mha_case_close(c);
    return says;
}

static void draw_rig(uint64_t seed, rig *r)
{
    trial t = trial_draw(seed);
    t.T_q = t.T_q > 17 ? 9 : t.T_q;
    t.T_k = t.inputs == TRIAL_SELF ? t.T_q : t.T_k > 17 ? 9 : t.T_k;
    t.past = t.past > 17 ? 9 : t.past;
    trial_build(&t, r);
}

/* Right results of several types, and results of kernels that are off by noise: no change explains them. */
static void test_right_results_and_noise_have_none(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F32, MHA_F16, MHA_BF16, MHA_F64};
    static const double noises[] = {0, 1e-6, 1e-4, 1e-2};
    for (uint64_t seed = 0; seed < trial_count("RIGHT_TRIALS", 48); seed++) {
        rig r;
        draw_rig(900 + seed, &r);
        oracle right;
        planting_run(&r, NULL, &right);
        oracle_stage *o = &right.stage[MHA_STAGE_OUTPUT];
        for (size_t e = 0; e < o->elements; e++)
            o->value[e] += noises[seed / 4 % 4] * (2 * mha__random_unit(3, seed, e) - 1);
        if (says_unnamed(&r, types[seed % 4], o))
            fail_msg("seed %d", (int)seed);
        oracle_free(&right);
        trial_release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_changes_are_said),
                                       cmocka_unit_test(test_right_results_and_noise_have_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
