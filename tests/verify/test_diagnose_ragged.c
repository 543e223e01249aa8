/* The diagnosis of ragged batches: a bug acts in each sequence separately, and explains all or none. */
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/planting.h"
#include "support/recase.h"
#include "support/trial.h"
#include "verify/bugs/bugs.h"

/* A random ragged batch of ordinary numbers. */
static void build(uint64_t seed, rig *r)
{
    trial t = trial_draw(seed);
    t.sequences = 2 + seed % 3;
    t.B = 1, t.past = 0, t.use_cache = false;
    t.poison = false, t.amplitude = 0, t.input_dtype = MHA_F32;
    t.layout = MHA_BTE;
    if (t.dropout > 0) /* its array ends with the extra rows */
        t.config.bias_kv = t.semantics.softmax.zero_row = false;
    t.semantics.place.has_offset = false, t.semantics.place.offset = 0;
    t.semantics.place.has_key_offset = t.semantics.place.keys_only = false, t.semantics.place.key_offset = 0;
    t.T_q = 9 + seed % 7, t.T_k = t.inputs == TRIAL_SELF && !t.bare ? t.T_q : 9 + seed % 5;
    mha_bias *bias = &t.semantics.added.bias;
    if (bias->rule == MHA_BIAS_RULE_GRID) { /* with a cell for every position */
        bias->height = 16;
        t.config.bias_rows = (2 * bias->height - 1) * (2 * bias->width - 1) + (bias->class_token ? 3 : 0);
    }
    if (t.semantics.added.relative.rule == MHA_RELATIVE_GRID) {
        t.semantics.added.relative.height = 16;
        t.config.relative_k_rows = 2 * t.semantics.added.relative.height - 1;
    }
    trial_build(&t, r);
}

static size_t rows_of(const mha_semantics *s, bool keys, size_t b, size_t *first)
{
    const int64_t *starts = keys && s->place.cu_seqlens_k ? s->place.cu_seqlens_k : s->place.cu_seqlens_q;
    *first = (size_t)starts[b];
    return (size_t)(starts[b + 1] - starts[b]);
}

static mha_view cut(const mha_view *v, int axis, size_t from, size_t n)
{
    return v->data ? mha_view_slice(v, axis, from, n) : *v;
}

/* The call of only sequence b; false when its positions would not be those of the ragged batch. */
static bool alone(const mha_call *all, size_t b, mha_call *one, size_t *q_from, size_t *n_q)
{
    mha_semantics *s = &one->semantics;
    size_t k_from, n_k = rows_of(&all->semantics, true, b, &k_from);
    *n_q = rows_of(&all->semantics, false, b, q_from);
    *one = *all;
    one->query = cut(&all->query, 1, *q_from, *n_q);
    one->key = cut(&all->key, 1, k_from, n_k);
    one->value = cut(&all->value, 1, k_from, n_k);
    if (!all->key.data && (n_k != *n_q || k_from != *q_from))
        one->key = cut(&all->query, 1, k_from, n_k);
    s->place.n_sequences = 0;
    s->place.cu_seqlens_q = s->place.cu_seqlens_k = NULL;
    s->visible.kv_lengths = s->visible.kv_lengths ? s->visible.kv_lengths + b : NULL;
    s->place.position_offset = s->place.position_offset ? s->place.position_offset + b : NULL;
    mha_mask *masks[] = {&s->visible.mask, &s->visible.key_padding};
    for (int i = 0; i < 2; i++) {
        mha_view *v = &masks[i]->values;
        if (v->data && v->rank == (i ? 2 : 4) && v->shape[0] > 1)
            *v = mha_view_slice(v, 0, b, 1);
        if (v->data && v->shape[v->rank - 1] > n_k && n_k > 0)
            *v = mha_view_slice(v, v->rank - 1, 0, n_k);
        if (i == 0 && v->data && v->rank > 1 && v->shape[v->rank - 2] > 1)
            *v = mha_view_slice(v, v->rank - 2, 0, *n_q);
    }
    mha_pattern *pattern = &s->visible.pattern;
    if (pattern->q_segments.data && !pattern->k_segments.data)
        pattern->k_segments = pattern->q_segments;
    const struct {
        mha_view *v;
        int axis; /* along which it is cut, from the right */
        size_t n;
    } parts[] = {{&pattern->q_segments, 1, *n_q},
                 {&pattern->k_segments, 1, n_k},
                 {&pattern->query_padding.values, 1, *n_q},
                 {&pattern->key_lists, 2, *n_q},
                 {&s->softmax.dropout_keep, 2, *n_q},
                 {&s->softmax.dropout_keep, 1, n_k},
                 {&pattern->blocks.values, 2, pattern->blocks.kind ? (*n_q - 1) / pattern->block_queries + 1 : 0},
                 {&pattern->blocks.values, 1, pattern->blocks.kind ? (n_k - 1) / pattern->block_keys + 1 : 0}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts && *n_q > 0 && n_k > 1; i++) {
        mha_view *v = parts[i].v;
        if (v->data && v->shape[0] > 1)
            *v = mha_view_slice(v, 0, b, 1);
        if (v->data && v->shape[v->rank - parts[i].axis] > 1)
            *v = mha_view_slice(v, v->rank - parts[i].axis, 0, parts[i].n);
    }
    mha_rope *p = &s->qkv.rope;
    const bool by_row = p->q_positions.data || p->k_positions.data || p->cos_table.rank == 3;
    if (by_row && (k_from != *q_from || n_k != *n_q || p->k_positions.data))
        return false;
    p->q_positions = cut(&p->q_positions, 1, *q_from, *n_q);
    if (p->cos_table.data && p->cos_table.rank == 3) {
        p->cos_table = cut(&p->cos_table, 1, *q_from, *n_q);
        p->sin_table = cut(&p->sin_table, 1, *q_from, *n_q);
    }
    return *n_q > 0 && n_k > 1;
}

static mha_case *case_of(const rig *r, const mha_call *call, const mha_view *output)
{
    mha_case *c;
    mha_error error;
    mha_call plain = *call;
    plain.keep_count = 0, plain.output = (mha_view){0};
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = output ? *output : (mha_view){0}};
    const mha_status status = mha_case_of_call(r->layer, &plain, &recorded, 1, NULL, &c, &error);
    if (status && status != MHA_UNSUPPORTED)
        fail_msg("seed %llu: %s: %s", (unsigned long long)r->t.seed, error.name, error.message);
    return status ? NULL : c;
}

/* The output under a bug (NULL: none), (1, T, width); false when it does not apply. */
static bool compute(const rig *r, const mha_case *c, const char *name, size_t T, double *to, mha_view *output)
{
    const size_t width = r->layer ? mha_layer_config(r->layer)->d_out : r->t.config.n_heads * r->t.config.d_v;
    mha_error error;
    *output = mha_view_of(to, MHA_F64, 3, (const size_t[]){1, T, width});
    const mha_status status = mha_case_with_bugs(c, &name, name != NULL, MHA_STAGE_OUTPUT, output, &error);
    if (status && status != MHA_UNSUPPORTED && status != MHA_INVALID)
        fail_msg("%s: %s", name, error.message);
    return status == MHA_OK;
}

enum { MOST = 1 << 14 };

/* Every bug of a ragged batch gives each sequence the result of that sequence in a call of its own. */
static void test_each_sequence_is_a_case_of_its_own(void **state)
{
    (void)state;
    static double all[MOST], one[MOST];
    size_t compared = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        rig r;
        build(seed, &r);
        mha_case *whole = case_of(&r, &r.call, NULL);
        for (size_t b = 0; whole && b < r.call.semantics.place.n_sequences; b++) {
            mha_call call;
            size_t first, n;
            mha_case *own = alone(&r.call, b, &call, &first, &n) ? case_of(&r, &call, NULL) : NULL;
            for (size_t v = 0; own && v <= mha_bug_count(); v++) {
                planting_bug bug = {.name = ""};
                const char *name = v < mha_bug_count() ? bug.name : NULL;
                mha_view full, part;
                mha_difference d;
                mha_error error;
                if (name && !planting_draw(own, v, seed, &bug))
                    continue;
                mha__program of_all = mha__program_of(whole); /* other bugs make the batch one row of segments */
                if (name && !mha__bug_apply(whole, v, bug.x, &of_all))
                    continue;
                if (name && (strcmp(name, "sequences-joined") == 0 || strcmp(name, "batch-as-time") == 0))
                    continue;
                if (!compute(&r, whole, name, r.t.T_q, all, &full) || !compute(&r, own, name, n, one, &part))
                    continue;
                const mha_view there = mha_view_slice(&full, 1, first, n);
                assert_ok(mha_compare(&there, &part, 0, 0, &d, &error), error);
                if (!(d.max_abs <= 1e-12))
                    fail_msg("seed %llu, sequence %zu: %s differs by %g", (unsigned long long)seed, b,
                             name ? name : "nothing", d.max_abs);
                compared++;
            }
            mha_case_close(own);
        }
        mha_case_close(whole);
        trial_release(&r);
    }
    assert_true(compared > 1000);
}

/* Whether rounding explains the output as well, in a case whose numbers lose that much of it. */
static bool within_bound(const mha_case *c)
{
    mha_verdict verdict;
    mha_error error;
    assert_ok(mha_case_check(c, MHA_PATH_EXACT, "output", 1, &verdict, &error), error);
    const bool passed = verdict.outcome == MHA_OUTCOME_PASSED;
    mha_verdict_clear(&verdict);
    return passed;
}

/* The planted bug is named, in float64 and float32; a correct result is correct. */
static void test_bugs_are_named(void **state)
{
    (void)state;
    static double right[MOST], wrong[MOST];
    static float narrow[MOST];
    size_t planted = 0, hidden = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        rig r;
        build(seed, &r);
        mha_case *said = case_of(&r, &r.call, NULL);
        mha_view plain, output;
        if (said && compute(&r, said, NULL, r.t.T_q, right, &plain)) {
            for (uint64_t draw = 0; draw < 9; draw++) {
                const size_t v = mha__random_bits(seed, 0, draw) % mha_bug_count();
                const char *name = draw ? mha_bug_at(v)->name : NULL;
                mha_difference d;
                mha_error error;
                mha_diagnosis found;
                if (!compute(&r, said, name, r.t.T_q, wrong, &output))
                    continue; /* or it needs a number: some inputs are too small for them */
                assert_ok(mha_compare(&output, &plain, 0, 0, &d, &error), error);
                if (name && !(d.max_abs > 1e-3 && isfinite(d.max_abs)))
                    continue;
                mha_view rounded = mha_view_of(narrow, MHA_F32, output.rank, output.shape);
                if (seed % 2)
                    assert_int_equal(mha_view_copy(&rounded, &output, NULL), MHA_OK);
                mha_case *c = case_of(&r, &r.call, seed % 2 ? &rounded : &output);
                if (name && within_bound(c)) {
                    hidden++;
                    mha_case_close(c);
                    continue;
                }
                assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &found, &error), error);
                assert_int_equal(found.part.rows, r.t.T_q);
                bool named = false;
                for (size_t i = 0; i < found.match_count; i++)
                    named |= found.matches[i].exact &&
                             (name ? found.matches[i].count == 1 &&
                                         strncmp(found.matches[i].bugs[0], name, strlen(found.matches[i].bugs[0])) == 0
                                   : found.matches[i].count == 0);
                if (!named)
                    fail_msg("seed %llu: %s is not found but %s", (unsigned long long)seed, name ? name : "nothing",
                             found.match_count && found.matches[0].count ? found.matches[0].bugs[0] : "nothing");
                planted += name != NULL;
                mha_diagnosis_clear(&found);
                mha_case_close(c);
            }
        }
        mha_case_close(said);
        trial_release(&r);
    }
    assert_true(planted > 20 && hidden < planted / 10);
}

/* ---------------------------------------------------------------- a layer of 1,000 rows, and of few */

enum { WIDTH = 32, MOST_ROWS = 1000 };
static const int64_t few[] = {0, 5, 5, 12, 21}, many[] = {0, 300, 301, 1000};

/* The diagnosis of what a layer computes for `wrong`, as the output of a ragged batch of the same rows. */
static mha_diagnosis diagnose_layer(size_t n, const int64_t *starts, mha_call wrong, int threads)
{
    static float x[MOST_ROWS * WIDTH], y[MOST_ROWS * WIDTH];
    const size_t T = (size_t)starts[n];
    const mha_config config = {.d_model = WIDTH, .n_heads = 4, .d_k = 16, .bias_o = true};
    mha_layer *layer;
    mha_error error;
    mha_case *c;
    mha_diagnosis d;
    assert_ok(mha_layer_create(&config, NULL, NULL, &layer, &error), error);
    mha_layer_init(layer, 3);
    wrong.query = mha_rows(x, 1, T, WIDTH);
    wrong.output = mha_rows(y, 1, T, WIDTH);
    mha_random_fill(&wrong.query, 3, 0, -2, 2);
    assert_ok(mha_run(layer, &wrong, &error), error);
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = wrong.output};
    mha_call call = {.query = wrong.query};
    call.semantics.visible.causal = true, call.semantics.place.n_sequences = n,
    call.semantics.place.cu_seqlens_q = starts;
    assert_ok(mha_case_of_call(layer, &call, &recorded, 1, NULL, &c, &error), error);
    assert_ok(mha_case_diagnose(c, NULL, threads, NULL, &d, &error), error);
    if (d.match_count > 0 && d.matches[0].count == 1) { /* computed again, it gives the same numbers */
        static double again[MOST_ROWS * WIDTH];
        char text[256];
        const char *bug = text;
        const mha_view view = mha_view_of(again, MHA_F64, 3, (size_t[]){1, T, WIDTH});
        snprintf(text, sizeof text, "%s%s%s", d.matches[0].bugs[0], *d.matches[0].found[0] ? " " : "",
                 d.matches[0].found[0]);
        assert_ok(mha_case_with_bugs(c, &bug, 1, MHA_STAGE_OUTPUT, &view, &error), error);
        for (size_t e = 0; e < T * WIDTH; e++)
            assert_true(fabs(again[e] - (double)y[e]) < 1e-4);
    }
    mha_case_close(c);
    mha_layer_destroy(layer);
    return d;
}

static void expect(const mha_diagnosis *d, const char *name)
{
    assert_true(d->match_count >= 1 && d->matches[0].exact);
    assert_int_equal(d->matches[0].count, name != NULL);
    if (name)
        assert_string_equal(d->matches[0].bugs[0], name);
}

static void test_bugs_with_the_sequences(void **state)
{
    (void)state;
    static const int64_t shifted[] = {0, 6, 6, 12, 21};
    for (int large = 0; large < 2; large++) {
        const size_t n = large ? 3 : 4;
        const int64_t *starts = large ? many : few;
        mha_call call = {.semantics = {.visible.causal = true, .place = {.n_sequences = n, .cu_seqlens_q = starts}}};
        mha_diagnosis d = diagnose_layer(n, starts, call, 1);
        expect(&d, NULL);
        assert_int_equal(d.part.rows, starts[n]);
        assert_int_equal(d.part.checked < d.part.rows, large);
        mha_diagnosis_clear(&d);
        call.semantics.visible.causal = false;
        d = diagnose_layer(n, starts, call, 2);
        expect(&d, "causal-missing");
        mha_diagnosis_clear(&d);
        d = diagnose_layer(n, starts, (mha_call){.semantics.visible.causal = true}, 1);
        expect(&d, "sequences-joined");
        mha_diagnosis_clear(&d);
    }
    /* One boundary that is a row too late: the batch is searched as one row of segments. */
    mha_diagnosis d = diagnose_layer(4, few,
                                     (mha_call){.semantics = {.visible.causal = true, .place.n_sequences = 4,
                                                              .place.cu_seqlens_q = shifted}}, 1);
    expect(&d, "segments-moved");
    assert_string_equal(d.matches[0].found[0], "1 in rows 5-11");
    mha_diagnosis_clear(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_sequence_is_a_case_of_its_own),
        cmocka_unit_test(test_bugs_are_named),
        cmocka_unit_test(test_bugs_with_the_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
