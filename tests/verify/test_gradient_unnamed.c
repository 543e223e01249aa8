/* Plants changes beyond the list in a backward of plain loops that shares no code with src, and expects their names. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/gradients.h"
#include "support/trial.h"
#include "support/unit.h"

enum { B = 2, T = 32, H = 4, G = 2, D = 8, GROUP = H / G };
#define COUNT(x) (sizeof(x) / sizeof *(x))

/* The planted change; each is one line of the backward below. */
typedef enum plant {
    NOTHING,
    OWN_LSE_AND_D,
    OWN_D,
    IN_BATCH_ROW,
    IN_HEAD,
    IN_ROWS,
    OF_OUTPUT,
    OF_KEYS,
    ODD_TILES,
    D_OVER_KEYS,
    D_LATE,
    D_OF_TILE,
    DIAGONAL,
    LOST_TILE,
    TWICE_A_HEAD,
    ROUNDED,
    EXCHANGED,
    DO_LATE,
    TWO,
    TWO_OF_P,
    TWO_APART,
    D_OF_HEAD,
    PLANTS
} plant;

static const struct {
    const char *name, *says[2];
} told[] = {
    [OWN_LSE_AND_D] = {"causal-missing", {"lse and D are those of this P"}},
    [OWN_D] = {"causal-missing", {"D is that of these P and dP"}},
    [IN_BATCH_ROW] = {"causal-missing", {"in batch row 1"}},
    [IN_HEAD] = {"scale-missing-dk", {"in head 1 of dK"}},
    [IN_ROWS] = {"scale-missing-dq", {"in rows 8-15 of dQ"}},
    [OF_OUTPUT] = {"unnamed", {"dV: P^T O in place of P^T dO"}},
    [OF_KEYS] = {"unnamed", {"dK: dS^T k in place of dS^T q"}},
    [ODD_TILES] = {"unnamed", {"dK: rows of q read one tile of 8 rows late, the odd ones alone"}},
    [D_OVER_KEYS] = {"unnamed", {"D times 1 over the number of keys", "D times 1 over the number of queries"}},
    [D_LATE] = {"unnamed", {"rows of D read one row late"}},
    [D_OF_TILE] = {"unnamed", {"rows of D read the first of each tile of 4 rows each time"}},
    [DIAGONAL] = {"unnamed", {"dK and dV: lacks the diagonal tiles of 8"}},
    [LOST_TILE] = {"unnamed", {"dQ: lacks tile 1 of 8 keys (8-15), in rows 16-23 of dQ"}},
    [TWICE_A_HEAD] = {"unnamed", {"dV: has twice head 0 of each group"}},
    [ROUNDED] = {"unnamed", {"dO rounded to bfloat16"}},
    [EXCHANGED] = {"unnamed", {"read each head in the place of its neighbour"}},
    [DO_LATE] = {"unnamed", {"rows of dO in dP read one tile of 2 rows late, around the ends"}},
    [TWO] = {"d-missing and scale-missing-dk", {"and dK lacks the scale"}},
    [TWO_OF_P] = {"causal-missing and scale-twice-dq", {"and dQ is scaled twice"}},
    [D_OF_HEAD] = {"unnamed", {"heads of O in D read one head late"}},
    [TWO_APART] = {"unnamed and result-of-next-head", {"dQ: has twice tile 0 of 8 keys (0-7); dV, by itself: "}},
};

typedef struct numbers {
    double q[B][T][H][D], k[B][T][G][D], v[B][T][G][D], dO[B][T][H][D], O[B][T][H][D];
    double dq[B][T][H][D], dk[B][T][G][D], dv[B][T][G][D];
} numbers;

static double bfloat16(double x)
{
    int exponent;
    const double f = frexp(x, &exponent);
    return ldexp(rint(ldexp(f, 8)), exponent - 8);
}

/* P of a query and the D of its row, by the right mask or by none. */
static double weigh(const numbers *n, size_t b, size_t h, size_t i, bool causal, bool own, double *P, double *dP)
{
    double sum = 0, sum_of_D = 0;
    for (size_t j = 0; j < T; j++) {
        double s = 0;
        dP[j] = 0;
        for (size_t c = 0; c < D; c++) {
            s += n->q[b][i][h][c] * n->k[b][j][h / GROUP][c];
            dP[j] += n->dO[b][i][h][c] * n->v[b][j][h / GROUP][c];
        }
        P[j] = causal && j > i ? 0 : exp(s / sqrt(D));
        sum += own || j <= i ? P[j] : 0;
    }
    for (size_t j = 0; j < T; j++) {
        P[j] /= sum;
        sum_of_D += P[j] * dP[j];
    }
    return sum_of_D;
}

/* One head; which numbers go where is that of a right backward but for what is planted. */
static void run_head(numbers *n, plant x, size_t b, size_t h, double (*sums)[T], bool causal)
{
    const size_t g = h / GROUP;
    const double scale = 1 / sqrt(D);
    const bool free_mask = x == OWN_LSE_AND_D || x == OWN_D || x == TWO_OF_P || (x == IN_BATCH_ROW && b == 1);
    for (size_t i = 0; i < T; i++) {
        double P[T], dP[T], other[T], late[T];
        double right = weigh(n, b, h, i, causal, true, P, dP), sum = right;
        if (free_mask)
            sum = weigh(n, b, h, i, false, x != OWN_D, P, dP);
        sums[h][i] = right;
        if (x == DO_LATE) {
            const size_t from = (i + T - 2) % T;
            (void)weigh(n, b, h, from, causal, true, other, late);
            memcpy(dP, late, sizeof dP);
        }
        sum = x == D_OVER_KEYS ? sum / T : x == D_LATE ? sums[h][i > 0 ? i - 1 : 0] : sum;
        for (size_t c = 0; c < D && x == D_OF_HEAD; c++) /* of the head before */
            sum = (c > 0 ? sum : 0) + n->dO[b][i][h][c] * n->O[b][i][h > 0 ? h - 1 : 0][c];
        sum = x == D_OF_TILE ? sums[h][i / 4 * 4] : x == TWO ? 0 : sum;
        for (size_t j = 0; j < T; j++) {
            const double dS = P[j] * (dP[j] - sum);
            const bool misses = x == DIAGONAL && i / 8 == j / 8, lost = x == LOST_TILE && i / 8 == 2 && j / 8 == 1;
            const size_t qi = x == ODD_TILES && i / 8 % 2 ? i - 8 : i;
            const double fq = (x == IN_ROWS && i / 8 == 1) ? 1
                              : x == TWO_OF_P              ? scale * scale
                                                           : scale,
                         fk = (x == IN_HEAD && g == 1) || x == TWO ? 1 : scale;
            for (size_t c = 0; c < D; c++) {
                n->dq[b][i][x == EXCHANGED ? h ^ 1 : h][c] +=
                    (lost ? 0 : x == TWO_APART && j < 8 ? 2 : 1) * fq * dS * n->k[b][j][g][c];
                n->dk[b][j][g][c] += misses ? 0 : fk * dS * (x == OF_KEYS ? n->k[b][i][g][c] : n->q[b][qi][h][c]);
                n->dv[b][j][x == TWO_APART ? 1 - g : g][c] += (misses                                ? 0
                                      : x == TWICE_A_HEAD && h % GROUP == 0 ? 2
                                                                            : 1) *
                                     P[j] * (x == OF_OUTPUT ? n->O[b][i][h][c] : n->dO[b][i][h][c]);
            }
        }
    }
}

static void run(numbers *n, plant x, bool causal)
{
    static double kept[B][T][H][D], sums[H][T];
    memset(n->dq, 0, sizeof n->dq), memset(n->dk, 0, sizeof n->dk), memset(n->dv, 0, sizeof n->dv);
    memset(n->O, 0, sizeof n->O);
    memcpy(kept, n->dO, sizeof kept);
    for (size_t e = 0; x == ROUNDED && e < sizeof kept / sizeof(double); e++)
        (&n->dO[0][0][0][0])[e] = bfloat16((&kept[0][0][0][0])[e]);
    for (size_t b = 0; b < B; b++)
        for (size_t h = 0; h < H; h++) {
            for (size_t i = 0; i < T; i++) {
                double P[T], dP[T];
                (void)weigh(n, b, h, i, causal, true, P, dP);
                for (size_t e = 0; e < (size_t)T * D; e++)
                    n->O[b][i][h][e % D] += P[e / D] * n->v[b][e / D][h / GROUP][e % D];
            }
            run_head(n, x, b, h, sums, causal);
        }
    memcpy(n->dO, kept, sizeof kept);
}

static mha_view heads(void *x, size_t h)
{
    return mha_view_of(x, MHA_F64, 4, (size_t[]){B, T, h, D});
}

/* The explanation of the planted change; *right: nothing is wrong. */
static size_t explain(numbers *n, bool causal, bool *right, mha_gradient_match *list, size_t room)
{
    mha_call call = {.query = heads(n->q, H), .key = heads(n->k, G), .value = heads(n->v, G)};
    mha_gradients found = {.d_output = heads(n->dO, H), .precision = {.scores = MHA_F32}};
    size_t count;
    mha_error error;
    call.semantics.visible.causal = causal;
    found.of[MHA_D_QUERY] = heads(n->dq, H), found.of[MHA_D_KEY] = heads(n->dk, G);
    found.of[MHA_D_VALUE] = heads(n->dv, G);
    assert_ok(mha_gradient_explain(NULL, &call, &found, 0x1p-53, list, room, &count, right, &error), error);
    return count;
}

static void draw(numbers *n, uint64_t *state)
{
    double *const all = &n->q[0][0][0][0];
    const size_t count = (sizeof n->q + sizeof n->k + sizeof n->v + sizeof n->dO) / sizeof(double);
    for (size_t e = 0; e < count; e++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        all[e] = (double)(*state >> 11) * 0x1p-51 - 2;
    }
}

static bool is_told(const mha_gradient_match *m, plant x)
{
    const char *const *says = told[x].says;
    return strcmp(m->name, told[x].name) == 0 && (strstr(m->help, says[0]) || (says[1] && strstr(m->help, says[1])));
}

static void what_is_planted_is_told(void **state)
{
    numbers *n = calloc(1, sizeof *n);
    uint64_t seed = (uint64_t)trial_number("UNNAMED_SEED", 7);
    (void)state;
    for (int x = NOTHING; x < PLANTS; x++) {
        mha_gradient_match list[4] = {{.name = "nothing"}};
        bool right;
        const bool causal = x != ODD_TILES && x != DO_LATE;
        draw(n, &seed);
        run(n, (plant)x, causal);
        const size_t count = explain(n, causal, &right, list, COUNT(list));
        if (x == NOTHING)
            assert_true(right && count == 0);
        else if (count == 0 || !is_told(&list[0], (plant)x))
            fail_msg("plant %d, %s: %s (%s)", x, told[x].says[0], count ? list[0].name : "nothing", list[0].help);
    }
    free(n);
}

/* Right gradients are right with any numbers; what is wrong at random is nothing that has a sentence. */
static void right_gradients_and_chance_are_nothing(void **state)
{
    numbers *n = calloc(1, sizeof *n);
    uint64_t seed = (uint64_t)trial_number("UNNAMED_SEED", 70);
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        mha_gradient_match list[1];
        bool right;
        draw(n, &seed);
        run(n, NOTHING, i % 2);
        assert_int_equal(explain(n, i % 2, &right, list, 1), 0);
        assert_true(right);
        double *d = i % 3 == 0 ? &n->dq[0][0][0][0] : i % 3 == 1 ? &n->dk[0][0][0][0] : &n->dv[0][0][0][0];
        for (size_t e = 0; e < sizeof n->dk / sizeof(double); e++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            d[e] *= 1 + 0x1p-20 * (double)(seed >> 60);
        }
        if (explain(n, i % 2, &right, list, 1))
            fail_msg("chance is explained by %s (%s)", list[0].name, list[0].help);
        assert_false(right);
    }
    free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_planted_is_told),
                                       cmocka_unit_test(right_gradients_and_chance_are_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
