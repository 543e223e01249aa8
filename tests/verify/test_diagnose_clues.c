/* Clues for a result that no bug explains: the planted change, and no other. */
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/trial.h"

enum { BATCH = 3, HEADS = 4, D = 5, D_OUT = 23 };

/* A call with a layer or without, its exact output, and what the output becomes. */
typedef struct scene {
    mha_layer *layer;
    mha_call call;
    float *inputs[3];
    size_t T, width, elements;
    double *right, *wrong;
    mha_view output;
} scene;

static void scene_open(scene *s, bool bare, size_t T)
{
    mha_error error;
    const mha_config config = {.d_model = HEADS * D, .n_heads = HEADS, .d_out = D_OUT, .bias_o = true};
    memset(s, 0, sizeof *s);
    s->T = T, s->width = bare ? HEADS * D : D_OUT, s->elements = BATCH * T * s->width;
    for (int i = 0; i < 3; i++)
        s->inputs[i] = calloc(BATCH * T * HEADS * D, sizeof(float));
    mha_view *x[] = {&s->call.query, &s->call.key, &s->call.value};
    for (int i = 0; i < (bare ? 3 : 1); i++) {
        *x[i] = bare ? mha_heads(s->inputs[i], BATCH, T, HEADS, D) : mha_rows(s->inputs[i], BATCH, T, HEADS * D);
        mha_random_fill(x[i], 4, (uint64_t)i, -1, 1);
    }
    if (!bare) {
        assert_ok(mha_layer_create(&config, NULL, NULL, &s->layer, &error), error);
        mha_layer_init(s->layer, 5);
        const mha_view bias = mha_tensor_view(mha_layer_weight(s->layer, MHA_B_O));
        mha_random_fill(&bias, 6, 0, -1, 1);
    }
    s->right = malloc(s->elements * sizeof *s->right), s->wrong = malloc(s->elements * sizeof *s->wrong);
    const size_t rows[] = {BATCH, T, s->width}, heads[] = {BATCH, T, HEADS, D};
    s->output = mha_view_of(s->right, MHA_F64, bare ? 4 : 3, bare ? heads : rows);
    s->call.output = s->output;
    s->call.path = MHA_PATH_EXACT;
    s->call.semantics.visible.causal = true;
    assert_ok(mha_run(s->layer, &s->call, &error), error);
    s->call.output = (mha_view){0};
    memcpy(s->wrong, s->right, s->elements * sizeof *s->wrong);
}

static void scene_close(scene *s)
{
    mha_layer_destroy(s->layer);
    for (int i = 0; i < 3; i++)
        free(s->inputs[i]);
    free(s->right), free(s->wrong);
}

static double noise(size_t i)
{
    return sin((double)(i * i % 1009 + 3 * i + 1));
}

/* Element f of head h of row t: of the output without a layer. */
static double *at(scene *s, size_t b, size_t t, size_t j)
{
    return &s->wrong[(b * s->T + t) * s->width + j];
}

/* ---------------------------------------------------------------- what is planted */

static void plant_one_head(scene *s)
{
    for (size_t r = 0; r < BATCH * s->T; r++)
        for (size_t f = 0; f < D; f++)
            *at(s, 0, r, 2 * D + f) += noise(r * D + f);
}

/* The same after W_O. */
static void plant_one_head_behind(scene *s)
{
    const mha_view W = mha_tensor_view(mha_layer_weight(s->layer, MHA_W_O));
    for (size_t r = 0; r < BATCH * s->T; r++)
        for (size_t f = 0; f < D; f++)
            for (size_t j = 0; j < D_OUT; j++)
                *at(s, 0, r, j) += noise(r * D + f) * mha_view_get(&W, (const size_t[]){2 * D + f, j});
}

static void plant_batch_row(scene *s)
{
    for (size_t e = 0; e < s->T * s->width; e++)
        s->wrong[s->T * s->width + e] += noise(e);
}

static void plant_rows(scene *s, size_t from, size_t to, size_t step)
{
    for (size_t b = 0; b < BATCH; b++)
        for (size_t t = from; t < to; t += step)
            for (size_t j = 0; j < s->width; j++)
                *at(s, b, t, j) += noise(b * s->T * s->width + t * s->width + j);
}

static void plant_late_rows(scene *s)
{
    plant_rows(s, 5, s->T, 1);
}
static void plant_early_rows(scene *s)
{
    plant_rows(s, 0, 4, 1);
}
static void plant_every_second(scene *s)
{
    plant_rows(s, 1, s->T, 2);
}
static void plant_some_rows(scene *s)
{
    plant_rows(s, 2, 5, 1);
}

static void plant_columns(scene *s)
{
    for (size_t r = 0; r < BATCH * s->T; r++)
        for (size_t j = s->width - 4; j < s->width; j++)
            *at(s, 0, r, j) += noise(r * 4 + j);
}

static void plant_factor(scene *s)
{
    for (size_t e = 0; e < s->elements; e++)
        s->wrong[e] *= -20000; /* a smaller one has a name */
}
static void plant_zero(scene *s)
{
    memset(s->wrong, 0, s->elements * sizeof *s->wrong);
}
static void plant_vector(scene *s)
{
    for (size_t e = 0; e < s->elements; e++)
        s->wrong[e] += noise(e % s->width);
}

static void plant_nan(scene *s)
{
    for (size_t e = 7; e < s->elements; e += 31)
        s->wrong[e] = e % 2 ? (double)NAN : (double)INFINITY;
}

static double factor_of(size_t r, size_t h)
{
    return 0.5 + 0.5 / (double)(1 + r * HEADS + h);
}

static void plant_row_factors(scene *s)
{
    for (size_t r = 0; r < BATCH * s->T; r++)
        for (size_t j = 0; j < s->width; j++)
            *at(s, 0, r, j) *= factor_of(r, j / D);
}

static void plant_row_factors_behind(scene *s)
{
    const mha_view W = mha_tensor_view(mha_layer_weight(s->layer, MHA_W_O));
    mha_error error;
    const mha_keep none = {.stage = MHA_STAGE_OUTPUT, .view = s->output};
    mha_case *c;
    double *heads = malloc(BATCH * s->T * HEADS * D * sizeof *heads);
    const mha_view v = mha_view_of(heads, MHA_F64, 3, (const size_t[]){BATCH, s->T, HEADS * D});
    assert_ok(mha_case_of_call(s->layer, &s->call, &none, 1, NULL, &c, &error), error);
    assert_ok(mha_case_with_bugs(c, NULL, 0, MHA_STAGE_HEADS, &v, &error), error);
    mha_case_close(c);
    for (size_t r = 0; r < BATCH * s->T; r++)
        for (size_t k = 0; k < HEADS * D; k++)
            for (size_t j = 0; j < D_OUT; j++)
                *at(s, 0, r, j) +=
                    (factor_of(r, k / D) - 1) * heads[r * HEADS * D + k] * mha_view_get(&W, (const size_t[]){k, j});
    free(heads);
}

/* Moves rows of `size` numbers: row i is what row order(i) was. */
static void move(scene *s, size_t rows, size_t size, size_t (*order)(size_t i, size_t n), size_t n)
{
    for (size_t i = 0; i < rows; i++)
        memcpy(s->wrong + i * size, s->right + (i / n * n + order(i % n, n)) * size, size * sizeof(double));
}

static size_t next(size_t i, size_t n)
{
    return (i + 1) % n;
}
static size_t before(size_t i, size_t n)
{
    return i > 0 ? i - 1 : n - 1;
}
static size_t from_the_end(size_t i, size_t n)
{
    return n - 1 - i;
}
/* Two batch rows in the place of others, and the third one wrong: no order of them explains it. */
static void plant_batch_order(scene *s)
{
    move(s, BATCH, s->T * s->width, next, BATCH);
    for (size_t e = 0; e < s->T * s->width; e++)
        s->wrong[2 * s->T * s->width + e] += noise(e);
}
/* One head in the place of another, and a third one wrong: no order of heads explains it. */
static void plant_head_order(scene *s)
{
    for (size_t r = 0; r < BATCH * s->T; r++)
        for (size_t f = 0; f < D; f++) {
            *at(s, 0, r, f) = s->right[r * s->width + D + f];
            *at(s, 0, r, 2 * D + f) += noise(r * D + f);
        }
}
static void plant_shift(scene *s)
{
    move(s, BATCH * s->T, s->width, before, s->T);
}
static void plant_reversed(scene *s)
{
    move(s, BATCH * s->T, s->width, from_the_end, s->T);
}
static void plant_noise(scene *s)
{
    for (size_t e = 0; e < s->elements; e++)
        s->wrong[e] += noise(e);
}

/* Steps to the next index of a view; false after the last. */
static bool step(size_t *index, const mha_view *v)
{
    for (int k = v->rank - 1; k >= 0; k--) {
        if (++index[k] < v->shape[k])
            return true;
        index[k] = 0;
    }
    return false;
}

/* ---------------------------------------------------------------- what is said */

static mha_diagnosis diagnose(const scene *s, mha_dtype stored, double seconds)
{
    mha_error error;
    mha_case *c;
    mha_diagnosis d;
    const mha_view wide = mha_view_of(s->wrong, MHA_F64, s->output.rank, s->output.shape);
    const mha_view narrow = mha_view_of(malloc(s->elements * sizeof(double)), stored, wide.rank, wide.shape);
    assert_int_equal(mha_view_copy(&narrow, &wide, NULL), MHA_OK);
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = narrow};
    assert_ok(mha_case_of_call(s->layer, &s->call, &recorded, 1, NULL, &c, &error), error);
    mha_case_limit(c, seconds, INFINITY);
    assert_ok(mha_case_diagnose(c, NULL, 0, NULL, &d, &error), error);
    mha_case_close(c);
    free(narrow.data);
    return d;
}

/* All clues of a diagnosis, each with a full stop. */
static void clues_of(scene *s, mha_dtype stored, double seconds, char *text, size_t size)
{
    mha_diagnosis d = diagnose(s, stored, seconds);
    assert_int_equal(d.part.checked<d.part.rows, s->T> 100);
    *text = 0;
    for (size_t i = 0, used = 0; i < d.clue_count; i++) {
        char sentence[200];
        used +=
            (size_t)snprintf(text + used, size - used, "%s.", mha_clue_text(&d.clues[i], sentence, sizeof sentence));
        assert_true(used < size);
    }
    for (size_t i = 0; i < d.closest_count; i++)
        assert_true(d.closest[i].relative < 0.5 * d.baseline.relative);
    mha_diagnosis_clear(&d);
}

typedef struct row {
    void (*plant)(scene *s);
    const char *bare, *layer; /* what is said without W_O and after it; NULL: not planted there */
} row;

static const row rows[] = {
    {plant_one_head, "only head 2 differs.", NULL},
    {plant_one_head_behind, NULL, "only head 2 differs."},
    {plant_batch_row, "only batch row 1 differs.", "only batch row 1 differs."},
    {plant_late_rows, "the rows up to row 4 agree.", "the rows up to row 4 agree."},
    {plant_early_rows, "the rows from row 4 on agree.", "the rows from row 4 on agree."},
    {plant_every_second, "one row of 2 differs, from row 1 on.", "one row of 2 differs, from row 1 on."},
    {plant_some_rows, "only rows 2 to 4 differ.", "only rows 2 to 4 differ."},
    {plant_columns, "only head 3 differs.the columns up to column 0 agree.", "the columns up to column 18 agree."},
    {plant_factor, "it is what the case says times -2e+04.", "it is what the case says times -2e+04."},
    {plant_zero, "it is zero throughout.", "it is zero throughout."},
    {plant_vector, "the difference is one vector, the same in every row, as a bias makes it.", NULL},
    {plant_nan, "only elements differ that are NaN or infinite on one side: ",
     "only elements differ that are NaN or infinite on one side: "},
    {plant_row_factors, "each row of each head", NULL},
    {plant_row_factors_behind, NULL, "each row of each head"},
    {plant_batch_order,
     "batch row 0 is batch row 1 of the case.batch row 1 is batch row 2 of the case.",
     "batch row 0 is batch row 1 of the case.batch row 1 is batch row 2 of the case."},
    {plant_head_order, "the heads from head 3 on agree.head 0 is head 1 of the case.", NULL},
    {plant_noise, "", ""},
};

/* Of smaller cases these have a name: output-rows-other, case-lacks-biases. */
static const row large_rows[] = {
    {plant_one_head_behind, NULL, "only head 2 differs."},
    {plant_shift, NULL, "row i is row i - 1 of the case."},
    {plant_reversed, NULL, "the rows are those of the case in reverse order."},
    {plant_vector, NULL, "the difference is one vector, the same in every row, as a bias makes it."},
};

/* Compares the clues after a search of at most `seconds`; clues need no search. */
static void check(const row *r, bool bare, size_t T, mha_dtype stored, double seconds)
{
    const char *expected = bare ? r->bare : r->layer;
    char text[1000];
    scene s;
    if (!expected)
        return;
    scene_open(&s, bare, T);
    r->plant(&s);
    clues_of(&s, stored, seconds, text, sizeof text);
    const bool begins = *expected && expected[strlen(expected) - 1] != '.'; /* the rest has numbers */
    if (begins ? strncmp(text, expected, strlen(expected)) != 0 : strcmp(text, expected) != 0)
        fail_msg("%s, T %zu, %s: expected \"%s\", found \"%s\"", bare ? "bare" : "layer", T, mha_dtype_name(stored),
                 expected, text);
    scene_close(&s);
}

static void test_each_clue_is_found_and_no_other(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int bare = 0; bare < 2; bare++) {
            check(&rows[i], bare, 9, MHA_F64, MHA_TIME_LIMIT);
            check(&rows[i], bare, 9, MHA_F32, 0);
            check(&rows[i], bare, 9, MHA_F16, 0);
        }
}

/* Stages with other axes: one index of one axis is wrong, and is named as what it is. */
static void test_clues_of_other_stages(void **state)
{
    (void)state;
    static const struct {
        mha_stage stage;
        int axis;
        size_t index;
        const char *said;
    } table[] = {
        {MHA_STAGE_WEIGHTS, 3, 2, "only key 2 differs."},      {MHA_STAGE_WEIGHTS, 1, 3, "only head 3 differs."},
        {MHA_STAGE_WEIGHTS_MEAN, 2, 1, "only key 1 differs."}, {MHA_STAGE_SCORES, 2, 4, "only row 4 differs."},
        {MHA_STAGE_LSE, 1, 2, "only head 2 differs."},         {MHA_STAGE_LSE, 2, 7, "only row 7 differs."},
        {MHA_STAGE_HEADS, 0, 1, "only batch row 1 differs."},  {MHA_STAGE_K, 1, 6, "only row 6 differs."},
        {MHA_STAGE_PRESENT_KEY, 1, 0, "only head 0 differs."}, {MHA_STAGE_V, 0, 2, "only batch row 2 differs."},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        scene s;
        mha_plan plan;
        mha_error error;
        mha_case *c;
        mha_diagnosis d;
        char sentence[200];
        scene_open(&s, false, 9);
        s.call.output = (mha_view){0};
        mha_keep keep = {.stage = table[i].stage};
        assert_ok(mha_plan_call(s.layer, &s.call, &plan, &error), error);
        size_t shape[4];
        const int rank = mha_plan_stage(&plan, table[i].stage, shape);
        keep.view = mha_view_of(NULL, MHA_F64, rank, shape);
        keep.view.data = calloc(mha_view_elements(&keep.view), sizeof(double));
        s.call.keep = &keep, s.call.keep_count = 1;
        s.call.output = s.output;
        assert_ok(mha_run(s.layer, &s.call, &error), error);
        s.call.keep = NULL, s.call.keep_count = 0, s.call.output = (mha_view){0};
        const mha_view wrong = mha_view_slice(&keep.view, table[i].axis, table[i].index, 1);
        size_t at[4] = {0}, n = 0;
        do /* hidden keys have no weight, and scores of -inf stay so */
            mha_view_set(&wrong, at, mha_view_get(&wrong, at) + 3 + noise(n++));
        while (step(at, &wrong));
        assert_ok(mha_case_of_call(s.layer, &s.call, &keep, 1, NULL, &c, &error), error);
        assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
        assert_true(d.clue_count > 0);
        mha_clue_text(&d.clues[0], sentence, sizeof sentence - 1);
        if (strcmp(strcat(sentence, "."), table[i].said) != 0)
            fail_msg("%s: expected \"%s\", found \"%s\"", mha_stage_at(table[i].stage)->name, table[i].said, sentence);
        mha_diagnosis_clear(&d);
        mha_case_close(c);
        free(keep.view.data);
        scene_close(&s);
    }
}

/* A large case is checked on some of its rows; clues speak of all of them. */
static void test_clues_of_a_large_case(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof large_rows / sizeof *large_rows; i++)
        if (trial_drawn(3, i))
            check(&large_rows[i], false, 950, MHA_F32, 0);
}

/* NaN agrees with NaN, whatever made it: where hardly a number is left, nothing reproduces the rest or comes near it.
 * Without NaN a few numbers are enough to tell. */
static void test_nan_explains_nothing(void **state)
{
    (void)state;
    for (int bare = 0; bare < 2; bare++)
        for (size_t left = 0; left <= 8; left += 4)
            for (int type = 0; type < 2; type++) {
                scene s;
                scene_open(&s, bare, 6);
                for (size_t e = left; e < s.elements; e++)
                    s.wrong[e] = NAN;
                mha_diagnosis d = diagnose(&s, type ? MHA_F32 : MHA_F64, MHA_TIME_LIMIT);
                if (d.match_count + d.closest_count > 0)
                    fail_msg("%s, %zu numbers left: %s", bare ? "bare" : "layer", left,
                             (d.match_count ? d.matches : d.closest)->bugs[0]);
                mha_diagnosis_clear(&d);
                scene_close(&s);
            }
}

/* Scores far below 0, whose softmax begins with a maximum of 0, so that all exponentials are 0: what is small, too,
 * does not explain zeros, and weights of which none was made larger were not dropped. */
static void test_zeros_explain_nothing(void **state)
{
    (void)state;
    for (int causal = 0; causal < 2; causal++)
        for (size_t from = 0; from < 5; from += 2)
            for (int type = 0; type < 2; type++) {
                scene s;
                mha_error error;
                scene_open(&s, true, 6);
                s.call.semantics.visible.causal = causal;
                for (size_t e = 0; e < BATCH * 6 * HEADS * D; e++)
                    s.inputs[0][e] = 30 * fabsf(s.inputs[0][e]) + 5, s.inputs[1][e] = -30 * fabsf(s.inputs[1][e]) - 5;
                mha_call call = s.call;
                call.output = mha_view_of(s.wrong, MHA_F64, 4, s.output.shape);
                assert_ok(mha_run(NULL, &call, &error), error);
                for (size_t e = 0; e < s.elements; e++)
                    s.wrong[e] = e / s.width % 6 < from ? s.wrong[e] : 0;
                mha_diagnosis d = diagnose(&s, type ? MHA_F32 : MHA_F64, MHA_TIME_LIMIT);
                const bool is_end = d.match_count > 0 && strncmp(d.matches[0].bugs[0], "output-lacks-", 13) == 0;
                if (d.match_count > 0 && !(is_end && from > 0)) /* which is what there is to see */
                    fail_msg("causal %d, zeros from row %zu: %s", causal, from, d.matches[0].bugs[0]);
                mha_diagnosis_clear(&d);
                scene_close(&s);
            }
}

/* Keys in the place of values: what is closest to that leaves most of it, and is not said. */
static void test_what_leaves_most_is_not_close(void **state)
{
    (void)state;
    for (size_t T = 4; T <= 16; T += 2) {
        scene s;
        mha_error error;
        scene_open(&s, true, T);
        mha_view *const x[] = {&s.call.query, &s.call.key, &s.call.value};
        for (uint64_t i = 0; i < 3; i++)
            mha_random_fill(x[i], 4, i, -1.7320508f, 1.7320508f);
        mha_call call = s.call;
        call.value = call.key;
        call.output = mha_view_of(s.wrong, MHA_F64, 4, s.output.shape);
        assert_ok(mha_run(NULL, &call, &error), error);
        mha_diagnosis d = diagnose(&s, MHA_F32, MHA_TIME_LIMIT);
        assert_true(d.baseline.relative > 1);
        for (size_t i = 0; i < d.closest_count; i++)
            assert_true(d.closest[i].relative < 0.5);
        mha_diagnosis_clear(&d);
        scene_close(&s);
    }
}

/* Random calls whose output is mostly NaN or infinite, also where all scores are negative, of which a relu leaves
 * 0 / 0: the clue, and no name. */
static void test_few_numbers_have_no_names(void **state)
{
    (void)state;
    const uint64_t trials = trial_count("NAN_TRIALS", 24);
    for (uint64_t seed = 0; seed < trials; seed++) {
        const uint64_t kind = seed % 4;
        scene s;
        scene_open(&s, kind != 3, 4 + mha__random_bits(51, seed, 0) % 8);
        if (kind == 0) { /* q = 1, k = -1 */
            mha_error error;
            for (size_t i = 0; i < BATCH * s.T * HEADS * D; i++)
                s.inputs[0][i] = 1, s.inputs[1][i] = -1 - 0.1f * (float)fabs(noise(i));
            s.call.output = s.output;
            assert_ok(mha_run(s.layer, &s.call, &error), error);
            s.call.output = (mha_view){0};
        }
        size_t finite = kind == 0 ? 0 : mha__random_bits(51, seed, 1) % (s.elements / 2);
        for (size_t i = 0; i < s.elements; i++)
            s.wrong[i] = i % 7 == 3 && finite > 0 ? (finite--, s.right[i]) : kind == 2 && i % 3 ? INFINITY : NAN;
        mha_diagnosis d = diagnose(&s, MHA_F32, MHA_TIME_LIMIT);
        if (d.match_count + d.closest_count > 0)
            fail_msg("seed %zu: %s", (size_t)seed,
                     d.match_count == 0 || d.matches[0].count == 0 ? "-" : d.matches[0].bugs[0]);
        assert_true(d.clue_count > 0 && d.clues[0].kind == MHA_CLUE_NONFINITE);
        mha_diagnosis_clear(&d);
        scene_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_clue_is_found_and_no_other),
        cmocka_unit_test(test_clues_of_a_large_case),
        cmocka_unit_test(test_clues_of_other_stages),
        cmocka_unit_test(test_nan_explains_nothing),
        cmocka_unit_test(test_few_numbers_have_no_names),
        cmocka_unit_test(test_zeros_explain_nothing),
        cmocka_unit_test(test_what_leaves_most_is_not_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
