/* Numbers rounded on the way, and two changes at once, in a plain loop: both are named, noise is not. */
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "mha/lab.h"
#include "support/trial.h"

enum { B = 2, T = 12, S = 40, H = 4, D = 8, QUERIES = B * T * H * D, KEYS = B * S * H * D };

typedef struct attention {
    float q[QUERIES], k[KEYS], v[KEYS], output[QUERIES];
    int score_bits, term_bits, weight_levels; /* 0: exact */
    long ahead;                               /* keys that causal adds */
    size_t of_head;                           /* 0: to all heads, else only to this one */
    bool keys_reversed,
        values_of_neighbour;               /* keys and values from the last head; each head's in the next one's place */
    bool values_of_first, queries_of_next; /* of the first batch row, of the next head */
    bool values_stale;                     /* the last 8 keys read the values of the 8 before them */
    double multiplied, added;              /* noise */
} attention;

static float to_bits(float x, int bits)
{
    int exponent;
    const float m = frexpf(x, &exponent);
    return bits ? ldexpf(rintf(ldexpf(m, bits)), exponent - bits) : x;
}

/* Causal attention in floats; keys end where queries do. */
static void attend(attention *x, uint64_t seed)
{
    for (size_t row = 0; row < B * T * H; row++) {
        const size_t h = row % H, t = row / H % T, b = row / H / T, from = x->queries_of_next ? (h + 1) % H : h,
                     of_k = x->keys_reversed ? H - 1 - h : h,
                     of_v = x->values_of_neighbour ? (h ^ 1)
                            : x->keys_reversed     ? H - 1 - h
                                                   : h;
        const float *q = x->q + ((b * T + t) * H + from) * D;
        float s[S], most = -INFINITY, sum = 0, *o = x->output + row * D;
        memset(o, 0, D * sizeof *o);
        for (size_t j = 0; j < S; j++) {
            s[j] = 0;
            for (size_t f = 0; f < D; f++)
                s[j] += q[f] * x->k[((b * S + j) * H + of_k) * D + f];
            const long ahead = x->of_head && h != x->of_head ? 0 : x->ahead;
            s[j] = (long)j <= (long)(t + S - T) + ahead ? to_bits(s[j] / sqrtf(D), x->score_bits) : -INFINITY;
            most = fmaxf(most, s[j]);
        }
        for (size_t j = 0; j < S; j++)
            sum += expf(s[j] - most);
        for (size_t j = 0; j < S; j++) {
            float w = to_bits(expf(s[j] - most), x->term_bits) / sum;
            w = x->weight_levels ? rintf(w * (float)x->weight_levels) / (float)x->weight_levels : w;
            const size_t row_v = x->values_stale && j >= S - 8 ? j - 8 : j;
            for (size_t f = 0; f < D; f++)
                o[f] += w * x->v[(((x->values_of_first ? 0 : b) * S + row_v) * H + of_v) * D + f];
        }
        for (size_t f = 0; f < D; f++)
            o[f] = (float)(o[f] * (1 + x->multiplied * (2 * mha__random_unit(seed, 7, row * D + f) - 1)) +
                           x->added * (2 * mha__random_unit(seed, 8, row * D + f) - 1));
    }
}

/* The bugs of a match, where it says, give the numbers for which they are named. */
static void reproduce(const mha_case *c, const attention *x, const mha_bug_match *e)
{
    static double again[QUERIES];
    char text[2][256];
    const char *bugs[] = {text[0], text[1]};
    const mha_view view = mha_view_of(again, MHA_F64, 4, (size_t[]){B, T, H, D});
    mha_error error;
    for (size_t i = 0; i < e->count; i++)
        snprintf(text[i], sizeof text[i], "%s%s%s", e->bugs[i], *e->found[i] ? " " : "", e->found[i]);
    assert_ok(mha_case_with_bugs(c, bugs, e->count, MHA_STAGE_OUTPUT, &view, &error), error);
    for (size_t i = 0; i < QUERIES; i++)
        assert_true(fabs(again[i] - (double)x->output[i]) < 1e-5);
}

static mha_diagnosis diagnosed(attention *x, uint64_t seed)
{
    float *const to[] = {x->q, x->k, x->v};
    mha_view in[3];
    mha_diagnosis d;
    mha_case *c;
    mha_error error;
    for (uint64_t i = 0; i < 3; i++) {
        in[i] = mha_heads(to[i], B, i ? S : T, H, D);
        mha_random_fill(&in[i], 70 + seed, i, -2, 2);
    }
    attend(x, seed);
    const int64_t offset[B] = {S - T, S - T};
    const mha_call call = {.query = in[0],
                           .key = in[1],
                           .value = in[2],
                           .semantics.visible.causal = true,
                           .semantics.place = {.has_offset = true, .position_offset = offset}};
    const mha_keep expected = {.stage = MHA_STAGE_OUTPUT,
                               .view = mha_view_of(x->output, MHA_F32, 4, (size_t[]){B, T, H, D})};
    assert_ok(mha_case_of_call(NULL, &call, &expected, 1, NULL, &c, &error), error);
    if (x->multiplied == 0 && x->added == 0) /* a busy machine finds pairs, too */
        mha_case_limit(c, 20 * MHA_TIME_LIMIT, MHA_MEMORY_LIMIT);
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    for (size_t i = 0; i < d.match_count; i++)
        if (d.matches[i].count == 2)
            reproduce(c, x, &d.matches[i]);
    mha_case_close(c);
    return d;
}

/* "name number" of the bugs of a match, in the order of their names. */
static bool is_of(const mha_bug_match *e, const char *one, const char *other)
{
    char text[2][128] = {"", ""};
    for (size_t i = 0; i < e->count && i < 2; i++)
        snprintf(text[i], sizeof text[i], "%s%s%s", e->bugs[i], *e->found[i] ? " " : "", e->found[i]);
    return (strcmp(text[0], one) == 0 && strcmp(text[1], other) == 0) ||
           (strcmp(text[0], other) == 0 && strcmp(text[1], one) == 0);
}

static const struct planted {
    attention what;
    const char *one, *other;
} planted[] = {
    {{.score_bits = 11}, "rounded-scores 11", ""},
    {{.score_bits = 8}, "rounded-scores 8", ""},
    {{.term_bits = 8}, "rounded-exponentials 8", ""},
    {{.term_bits = 11}, "rounded-exponentials 11", ""},
    {{.weight_levels = 127}, "levels-weights 127", ""},
    {{.keys_reversed = true, .ahead = 1}, "groups-last-first", "causal-plus-1"},
    {{.keys_reversed = true, .ahead = 1, .of_head = 3}, "groups-last-first", "causal-plus-1 in head 3"},
    {{.values_of_first = true, .ahead = -1}, "batch-v-moved -1", "causal-strict"},
    {{.values_of_first = true, .ahead = 2, .of_head = 1}, "batch-v-moved -1", "causal-shift-other 2 in head 1"},
    {{.values_of_neighbour = true, .ahead = 1}, "groups-v-other 1, 0, 3, 2", "causal-plus-1"},
    {{.queries_of_next = true, .ahead = 3}, "heads-q-moved -1", "causal-shift-other 3"},
    {{.keys_reversed = true, .values_stale = true},
     "unnamed values: rows of v read one tile of 8 late, the last alone",
     "groups-last-first"},
};

static void test_roundings_and_pairs_are_named(void **state)
{
    (void)state;
    static attention x;
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++)
        for (uint64_t seed = 0; seed < trial_count("PRECISION_TRIALS", 1); seed++) {
            const struct planted *p = &planted[i];
            x = p->what;
            mha_diagnosis d = diagnosed(&x, seed);
            bool found = d.closest_count > 0 && !*p->other && is_of(&d.closest[0], p->one, p->other);
            for (size_t k = 0; k < d.match_count; k++)
                found |= is_of(&d.matches[k], p->one, p->other);
            if (!found)
                fail_msg("%s %s: %zu matches, %s %s", p->one, p->other, d.match_count,
                         d.match_count && d.matches[0].count ? d.matches[0].bugs[0] : "-",
                         d.closest_count && d.closest[0].count ? d.closest[0].bugs[0] : "-");
            mha_diagnosis_clear(&d);
        }
}

/* Noise is as large as roundings are, and none of them. */
static void test_noise_has_no_name(void **state)
{
    (void)state;
    static attention x;
    for (uint64_t seed = 0; seed < trial_count("NOISE_TRIALS", 4); seed++) {
        const double size = ldexp(1, -(int)(seed / 2 % 4) * 3 - 4);
        x = (attention){.multiplied = seed % 2 ? size : 0, .added = seed % 2 ? 0 : size};
        mha_diagnosis d = diagnosed(&x, seed);
        for (size_t k = 0; k < d.match_count; k++)
            if (d.matches[k].count > 0)
                fail_msg("seed %d: %s", (int)seed, d.matches[k].bugs[0]);
        for (size_t k = 0; k < d.closest_count; k++)
            if (d.closest[k].count > 0)
                fail_msg("seed %d: close to %s", (int)seed, d.closest[k].bugs[0]);
        mha_diagnosis_clear(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_roundings_and_pairs_are_named),
                                       cmocka_unit_test(test_noise_has_no_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
