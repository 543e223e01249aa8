/* Random bugs, single and in pairs, in random cases: never a wrong name, never taken for right. DIAGNOSE_TRIALS=n
 * plants n of them, DIAGNOSE_SEED=s begins with the call of seed s. */
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/planting.h"

/* ---------------------------------------------------------------- what is planted */

typedef struct planting {
    const mha_case *c; /* programs are made for it */
    planting_bug bugs[2];
    mha__program program;
    size_t count;
    mha_stage stage;
    mha_dtype type;
    double noise; /* added to each element, as a share of the tolerance */
} planting;

static uint64_t word(uint64_t *state)
{
    const uint64_t at = (*state)++;
    return mha__random_bits(at, 7, at);
}

static double uniform(uint64_t *x, double low, double high)
{
    return low + (high - low) * (double)(word(x) >> 11) * 0x1p-53;
}

/* Whether two mutations are made at the same step, so that one would undo the other. */
static bool share_step(int a, int b)
{
    static const int ends[] = {AT_X, AT_PROJ, AT_Y, AT_ROW, AT_LOG_N, AT_KV, AT_P, AT_COLUMN, AT_GATE, AT_OUT};
    size_t k = 0;
    while (a > ends[k] && b > ends[k])
        k++;
    return a <= ends[k] && b <= ends[k];
}

static bool collide(const mha__program *one, const mha__program *other)
{
    bool do_collide = false;
    for (size_t i = 0; i < one->n; i++)
        for (size_t k = 0; k < other->n; k++)
            do_collide |= share_step(one->m[i].site, other->m[k].site);
    return do_collide;
}

/* Puts the bugs together in a program; false: the oracle does not make them in such a batch, up to this stage. */
static bool combine(const mha_case *c, const planting_bug *bugs, size_t count, const trial *t, mha_stage stage,
                    mha__program *program)
{
    mha__program own[2];
    *program = mha__program_of(c);
    bool can = true;
    for (size_t k = 0; k < count && can; k++) {
        own[k] = mha__program_of(c);
        can = planting_add(c, &bugs[k], &own[k]) && planting_add(c, &bugs[k], program);
        for (size_t i = 0; can && i < own[k].n; i++) {
            const mha__mutation *m = &own[k].m[i];
            can = (m->site != AT_CALL || stage == MHA_STAGE_OUTPUT) &&
                  (stage != MHA_STAGE_LSE || !(m->site == AT_E && m->op == OP_OVER));
        }
    }
    if (!can || (t->sequences > 0 && !planting_is_ragged(program)) || (count == 2 && collide(&own[0], &own[1])))
        return false;
    return stage != MHA_STAGE_LSE || (!t->semantics.softmax.normaliser && !program->s.softmax.normaliser);
}

/* Draws one bug or two; false: they do not apply to the case. */
static bool draw(uint64_t *x, const mha_case *c, const trial *t, planting *to)
{
    static const mha_stage stages[] = {MHA_STAGE_HEADS, MHA_STAGE_WEIGHTS, MHA_STAGE_MASKED, MHA_STAGE_SCORES,
                                       MHA_STAGE_Q_ROT, MHA_STAGE_K_ROT,   MHA_STAGE_Q,      MHA_STAGE_V,
                                       MHA_STAGE_LSE,   MHA_STAGE_LSE};
    static const mha_dtype types[] = {MHA_F64, MHA_F64, MHA_F32, MHA_F32, MHA_F32, MHA_F32, MHA_F32, MHA_F32};
    planting p = {.c = c, .count = 1 + (word(x) % 3 == 0), .type = types[word(x) % 8]};
    p.stage = word(x) % 10 < 7 ? MHA_STAGE_OUTPUT : stages[word(x) % 10];
    p.noise = p.type != MHA_F64 && word(x) % 2 ? 0.5 : 0;
    for (size_t k = 0; k < p.count; k++) {
        if (!planting_draw(c, word(x) % mha_bug_count(), word(x), &p.bugs[k]) ||
            strcmp(p.bugs[k].name, "softmax-base-2-rounded") == 0)
            return false;
        p.stage = planting_stage(p.bugs[k].name) == MHA_STAGE_LSE ? MHA_STAGE_LSE : p.stage;
    }
    *to = p;
    return combine(c, to->bugs, to->count, t, to->stage, &to->program);
}

/* ---------------------------------------------------------------- how far apart */

/* By how many tolerances x and y, which was recorded, differ; infinite where only one of them is a number that the type
 * represents. The lowest number of the type stands for a hidden score. */
static double apart(const oracle_stage *x, const oracle_stage *y, const mha_stage_verdict *v, double atol)
{
    const bool masked = strcmp(v->name, "masked") == 0;
    const double overflow = v->stored == MHA_F16 ? 65504 : v->stored == MHA_F64 ? INFINITY : 0x1.fffffep127;
    double most = 0;
    for (size_t e = 0; e < x->elements; e++) {
        const double a = x->value[e], b = y->value[e], off = fabs(a - b);
        const bool equal = a == b || (isnan(a) && isnan(b)) ||
                           (isinf(b) && fabs(a) >= overflow && (a > 0) == (b > 0)) ||
                           (masked && a == -(double)INFINITY && (b == -overflow || b == -0x1.fffffep127));
        most = equal ? most : isfinite(off) ? fmax(most, (off - v->rtol * fabs(b)) / atol) : INFINITY;
    }
    return most;
}

static mha_stage_verdict check(const mha_case *c, bool *passed)
{
    mha_verdict v;
    mha_error error;
    assert_ok(mha_case_check(c, MHA_PATH_EXACT, NULL, 1, &v, &error), error);
    const mha_stage_verdict stage = v.stage_count > 0 ? v.stages[0] : (mha_stage_verdict){.atol = 0};
    *passed = v.outcome == MHA_OUTCOME_PASSED;
    mha_verdict_clear(&v);
    return stage;
}

/* ---------------------------------------------------------------- what is claimed */

typedef struct tally {
    size_t planted, pairs, named, equal, near, clue, nothing, unchecked;
    size_t wrong, passed, refused; /* bugs of the checker */
} tally;

/* The oracle's result with the bugs of a match; false when it has none. The number of a dropout mask is p, and not
 * which weights it dropped. */
static bool run_claim(rig *r, const mha_case *c, const mha_bug_match *e, mha_stage stage, oracle *result)
{
    planting_bug made[2];
    mha__program program;
    for (size_t k = 0; k < e->count; k++) {
        char text[200];
        const bool elsewhere = strcmp(e->bugs[k], "batch-permuted") == 0 && stage != MHA_STAGE_OUTPUT;
        if (strcmp(e->bugs[k], "unnamed") == 0 || strcmp(e->bugs[k], "dropout-mask") == 0 || elsewhere ||
            strstr(e->found[k], "...") || strncmp(e->found[k], "in ", 3) == 0) /* the oracle makes it everywhere */
            return false;
        if (!isnan(e->number[k]))
            snprintf(text, sizeof text, "%s %.17g", e->bugs[k], e->number[k]);
        else
            snprintf(text, sizeof text, "%s%s%s", e->bugs[k], *e->found[k] ? " " : "", e->found[k]);
        if (!planting_read(c, text, &made[k]))
            return false;
    }
    if (e->heads || !combine(c, made, e->count, &r->t, stage, &program))
        return false;
    planting_run(r, e->count > 0 ? &program : NULL, result);
    return true;
}

static double most_slack(const oracle_stage *s)
{
    double most = 0;
    for (size_t e = 0; e < s->elements; e++)
        most = fmax(most, s->slack[e]);
    return most;
}

/* How much farther from the exact result a kernel that makes these bugs may be: its scores may be larger. */
static double louder(const oracle *claimed, const oracle *right)
{
    const double a = most_slack(&claimed->stage[MHA_STAGE_SCORES]), b = most_slack(&right->stage[MHA_STAGE_SCORES]);
    return a > b && b > 0 ? a / b : 1;
}

/* The tolerance of a kernel with these bugs: that of the correct one, or where that has much smaller
 * numbers, the rounding of a sum over the keys and the heads (oracle_error.h). */
static double allowed(const oracle *claimed, const oracle *right, const oracle_stage *recorded,
                      const mha_stage_verdict *v)
{
    const double unit = v->stored == MHA_F64 ? 0x1p-53 : 0x1p-24;
    const size_t terms = 2 * right->stage[MHA_STAGE_SCORES].shape[3] + right->stage[MHA_STAGE_HEADS].shape[2];
    double largest = 0;
    for (size_t e = 0; e < recorded->elements; e++)
        largest = isfinite(recorded->value[e]) ? fmax(largest, fabs(recorded->value[e])) : largest;
    return fmax(louder(claimed, right) * v->atol, oracle_gamma(fmin((double)terms + 11, 64), unit) * largest);
}

static void complain(const char *what, const rig *r, const planting *p, const char *text)
{
    char words[1000];
    trial_text(&r->t, words, sizeof words);
    print_error("%s: %s%s%s at %s in %s, noise %g: %s\n  %s\n", what, p->bugs[0].name, p->count > 1 ? " and " : "",
                p->count > 1 ? p->bugs[1].name : "", mha_stage_at(p->stage)->name, mha_dtype_name(p->type), p->noise,
                text, words);
}

/* Whether every exact match gives the recorded numbers; *named: one has the names of the planted bugs. */
static bool are_true(rig *r, const planting *p, const oracle *right, const mha_case *c, const oracle_stage *recorded,
                     const mha_diagnosis *d, bool *named, tally *t, char *text, size_t size)
{
    bool unused;
    mha_case *narrow = planting_case(r, p->stage, p->type == MHA_F64 ? MHA_F32 : p->type, recorded);
    const mha_stage_verdict in_f64 = check(c, &unused), in_f32 = check(narrow, &unused);
    bool all_true = true;
    mha_case_close(narrow);
    *named = false;
    for (size_t i = 0; i < d->match_count; i++) {
        const mha_bug_match *e = &d->matches[i];
        oracle claimed;
        if (!e->exact)
            continue;
        bool same = e->count == p->count && e->count > 0;
        for (size_t k = 0; k < e->count && same; k++)
            same = planting_is_named(e, k, p->bugs[0].name) || planting_is_named(e, k, p->bugs[p->count - 1].name);
        *named |= same;
        const bool coarser = p->type <= MHA_F64 && e->rounding > MHA_F64; /* as a kernel of 16 bits: not computed */
        if (coarser || !run_claim(r, p->c, e, p->stage, &claimed)) {
            t->unchecked++;
            continue;
        }
        const mha_stage_verdict *v = e->rounding == MHA_F64 && !strchr(e->found[0], ',') ? &in_f64 : &in_f32;
        const double atol = allowed(&claimed, right, recorded, v);
        const double far = apart(&claimed.stage[p->stage], recorded, v, atol);
        if (far > 1) {
            snprintf(text, size, "%s%s%s %s%s%s within %s: off by %g", e->count ? e->bugs[0] : "as it says",
                     *e->found[0] ? " " : "", e->found[0], e->count > 1 ? e->bugs[1] : "", *e->found[1] ? " " : "",
                     e->found[1], mha_dtype_name(e->rounding), far);
            all_true = false;
        }
        oracle_free(&claimed);
    }
    return all_true;
}

static void diagnose(rig *r, const planting *p, const oracle *right, const mha_case *c, const oracle_stage *recorded,
                     tally *t)
{
    mha_diagnosis d;
    mha_error error;
    char text[600] = "";
    bool named;
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    const bool exact = d.match_count > 0 && d.matches[0].exact;
    if (exact && d.matches[0].count == 0 && !d.matches[0].heads && d.matches[0].rounding == p->type)
        t->passed++, complain("taken for right", r, p, "");
    else if (!are_true(r, p, right, c, recorded, &d, &named, t, text, sizeof text))
        t->wrong++, complain("wrong name", r, p, text);
    else if (exact && named)
        t->named++;
    else if (exact && d.matches[0].count > 0)
        t->equal++;
    else if (d.match_count > 0)
        t->near++;
    else if (d.clue_count > 0)
        t->clue++;
    else
        t->nothing++;
    mha_diagnosis_clear(&d);
}

/* Plants the bugs if they matter by more than what the checker allows; false when they do not. */
static bool plant(rig *r, const oracle *right, planting *p, uint64_t *x, tally *t)
{
    oracle wrong;
    planting_run(r, &p->program, &wrong);
    oracle_stage *recorded = &wrong.stage[p->stage];
    mha_case *c =
        recorded->elements == right->stage[p->stage].elements ? planting_case(r, p->stage, p->type, recorded) : NULL;
    bool matters = false, passed;
    if (c) {
        mha_stage_verdict v = check(c, &passed);
        for (size_t e = 0; e < recorded->elements && p->noise > 0; e++)
            recorded->value[e] += p->noise * v.atol * uniform(x, -1, 1);
        mha_case_close(c);
        c = planting_case(r, p->stage, p->type, recorded);
        mha_view stored = mha_view_of(recorded->value, MHA_F64, 1, &recorded->elements);
        void *memory = malloc((recorded->elements + 1) * sizeof(double));
        const mha_view as = mha_view_of(memory, p->type, 1, &recorded->elements);
        assert_int_equal(mha_view_copy(&as, &stored, NULL), MHA_OK);
        assert_int_equal(mha_view_copy(&stored, &as, NULL), MHA_OK); /* what the case has */
        free(memory);
        v = check(c, &passed);
        const double far = apart(&right->stage[p->stage], recorded, &v, v.atol);
        matters = far > 1.01; /* the oracle rounds otherwise */
        if (matters && passed)
            t->passed++, complain("passed", r, p, "");
        if (far < 0.99 && !passed)
            t->refused++, complain("refused", r, p, "");
    }
    if (matters) {
        t->planted++, t->pairs += p->count == 2;
        diagnose(r, p, right, c, recorded, t);
    }
    mha_case_close(c);
    oracle_free(&wrong);
    return matters;
}

static void test_random_bugs(void **state)
{
    (void)state;
    const uint64_t wanted = trial_count("DIAGNOSE_TRIALS", 150), first = trial_number("DIAGNOSE_SEED", 1);
    tally t = {0};
    for (uint64_t seed = first; t.planted < wanted; seed++) {
        trial drawn = trial_draw(seed);
        uint64_t state_of = seed, *x = &state_of;
        rig r;
        oracle right;
        drawn.poison &= seed % 4 == 0;
        drawn.T_q = drawn.T_q > 17 ? 9 : drawn.T_q;
        drawn.T_k = drawn.inputs == TRIAL_SELF ? drawn.T_q : drawn.T_k > 17 ? 9 : drawn.T_k;
        drawn.past = drawn.past > 17 ? 9 : drawn.past;
        trial_build(&drawn, &r);
        planting_run(&r, NULL, &right);
        mha_case *c;
        mha__inputs *inputs = planting_inputs(&r, &right, &c);
        int count = 0;
        for (int tries = 0; inputs && tries < 100 && count < 2 && t.planted < wanted; tries++) {
            planting p;
            if (draw(x, inputs->c, &drawn, &p))
                count += plant(&r, &right, &p, x, &t);
        }
        mha__inputs_destroy(inputs);
        mha_case_close(c);
        oracle_free(&right);
        trial_release(&r);
    }
    print_message("%zu plantings, %zu of them pairs: named %zu, as another that gives the same %zu, near %zu, "
                  "by a clue %zu, not at all %zu; wrong names %zu, taken for right %zu; %zu claims not computed\n",
                  t.planted, t.pairs, t.named, t.equal, t.near, t.clue, t.nothing, t.wrong, t.passed, t.unchecked);
    assert_int_equal(t.wrong, 0);
    assert_int_equal(t.passed, 0);
    assert_int_equal(t.refused, 0);
    assert_true(100 * (t.named + t.equal) >= 75 * t.planted); /* a checker that names nothing would pass the rest */
}

/* Sequences without queries, and without keys: each stage is right as it is, and wrong with one other number. */
static void test_empty_sequences(void **state)
{
    static const mha_stage stages[] = {MHA_STAGE_OUTPUT, MHA_STAGE_K, MHA_STAGE_V};
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        const trial t = {
            .seed = seed,
            .config = {.d_model = 4, .n_heads = 2},
            .inputs = TRIAL_CROSS,
            .B = 1,
            .T_q = 3,
            .T_k = 4,
            .sequences = 4,
            .semantics = {.visible.causal = true, .softmax.empty_rows = seed % 2 ? MHA_EMPTY_NAN : MHA_EMPTY_ZERO}};
        rig r;
        oracle right;
        trial_build(&t, &r);
        planting_run(&r, NULL, &right);
        for (int i = 0; i < 6; i++) {
            oracle_stage *s = &right.stage[stages[i / 2]];
            double *wrong = &s->value[seed % s->elements];
            mha_diagnosis d;
            mha_error error;
            *wrong = i % 2 == 0 ? *wrong : isnan(*wrong) ? 0 : *wrong + 1;
            mha_case *c = planting_case(&r, stages[i / 2], MHA_F64, s);
            assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
            const bool said = d.match_count > 0 && d.matches[0].exact && d.matches[0].count == 0;
            if (said != (i % 2 == 0))
                fail_msg("seed %zu: %s", (size_t)seed, mha_stage_at(stages[i / 2])->name);
            mha_diagnosis_clear(&d);
            mha_case_close(c);
        }
        oracle_free(&right);
        trial_release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_empty_sequences), cmocka_unit_test(test_random_bugs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
