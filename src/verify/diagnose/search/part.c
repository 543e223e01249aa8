/* Chooses the rows of a case that are checked, and derives what rounding may explain there. */
#include <math.h>
#include <string.h>

#include "attention/core/exact/rounding.h"
#include "base/base.h"
#include "verify/diagnose/search/search.h"
#include "verify/sample.h"

enum {
    FAR = 12,          /* checked rows: those farthest from the unmodified case */
    SPREAD = 12,       /* checked rows: those at equal distances from the first to the last */
    MOST_BATCHES = 16, /* the farthest row of each is checked, too */
    SECOND = 8,        /* rows of the second pass when a part is checked */
    SECOND_OF_ALL = 12 /* when all rows are checked */
};

/* Only a part of the case is checked when one forward takes more multiply-adds than this. */
static const double large = 1e8;

/* ---------------------------------------------------------------- distances */

/* Adds up each query row's squared distance between `computed` and the tensor. If the stage's lines do not belong to
 * query rows, the sum of a batch row is stored at its first row. */
static void measure_distances(mha__search *s, const double *computed)
{
    const mha__target *t = &s->target;
    const size_t T_q = s->c->T_q, lines = t->row / t->columns;
    for (size_t b = 0; b < s->c->B; b++)
        for (size_t l = 0; l < lines; l++) {
            const double *x = computed + b * t->row + l * t->columns;
            const double *y = t->values + (b * lines + l) * t->recorded_columns;
            double *sum = &s->unmodified.distance[b * T_q + (t->by_query ? l % T_q : 0)];
            for (size_t j = 0; j < t->recorded_columns; j++) {
                const bool same = x[j] == y[j] || (isnan(x[j]) && isnan(y[j]));
                *sum += same ? 0 : isfinite(x[j] - y[j]) ? (x[j] - y[j]) * (x[j] - y[j]) : t->rms * t->rms;
            }
        }
}

/* The batch row that is farthest from the tensor. */
static size_t farthest_batch(const mha__search *s)
{
    size_t row = 0;
    double most = -1;
    for (size_t b = 0; b < s->c->B; b++) {
        double sum = 0;
        for (size_t i = 0; i < s->c->T_q; i++)
            sum += s->unmodified.distance[b * s->c->T_q + i];
        if (sum > most)
            most = sum, row = b;
    }
    return row;
}

void mha__search_mark(const mha__search *s, size_t b, size_t far, size_t spread, const unsigned char *among,
                      unsigned char *marks)
{
    const size_t T = s->c->T_q, first = b * T;
    size_t count = 0, seen = 0;
    for (size_t i = 0; i < T; i++)
        count += among[first + i];
    for (size_t i = 0; i < T; i++) {
        if (!among[first + i])
            continue;
        const size_t k = seen++;
        for (size_t n = 0; n < spread; n++)
            if (k == (spread > 1 ? n * (count - 1) / (spread - 1) : 0))
                marks[first + i] = 1;
    }
    for (size_t n = 0; n < far; n++) {
        size_t best = T;
        for (size_t i = 0; i < T; i++)
            if (!marks[first + i] && among[first + i] &&
                (best == T || s->unmodified.distance[first + i] > s->unmodified.distance[first + best]))
                best = i;
        if (best < T)
            marks[first + best] = 1;
    }
}

/* Columns of an output that are looked at first: enough to tell what does not fit. */
static size_t some_columns(const mha__search *s)
{
    enum { SOME = 64 };
    const mha__target *t = &s->target;
    const bool projected = t->stage == MHA_STAGE_OUTPUT && s->c->kind == CASE_MHA;
    return s->in_part && projected && t->columns > SOME ? SOME : t->recorded_columns;
}

void mha__search_choose_regions(mha__search *s)
{
    const size_t T = s->c->T_q, most = s->in_part ? SECOND : SECOND_OF_ALL, b = farthest_batch(s);
    s->region_full = (mha__region){s->rows_checked, s->target.recorded_columns};
    s->region_second.columns = s->region_first.columns = some_columns(s);
    if (!s->target.by_query)
        memset(s->region_second.rows + b * T, 1, T);
    else
        mha__search_mark(s, b, most / 2, most / 2, s->rows_checked, s->region_second.rows);
    if (s->target.by_query)
        mha__search_mark(s, b, 1, 0, s->region_second.rows, s->region_first.rows);
    else
        memcpy(s->region_first.rows, s->region_second.rows, s->c->B * T);
}

/* ---------------------------------------------------------------- rows in which bugs differ */

/* Checks one more row if no checked row shows that another program sees keys differently. `other` NULL: that a query
 * has hidden keys, which bugs treat differently (`all`: all of its keys). */
static void show(mha__search *s, const mha__program *other, bool all)
{
    const mha__program *said = &s->unmodified.program;
    const size_t T = s->c->T_q, rows = s->c->B * T;
    for (int checked = 1; checked >= 0; checked--)
        for (size_t r = 0; r < rows; r++) {
            size_t hidden = 0, seen = 0;
            if (s->rows_checked[r] != checked || (!other && !s->rows_present[r]))
                continue;
            if (!other)
                seen = mha__count_seen(s->inputs, said, r / T, r % T, &hidden);
            if (other ? !mha__sees_alike(s->inputs, said, other, r / T, r % T) : all ? seen == 0 : hidden > 0) {
                s->rows_checked[r] = 1;
                return;
            }
        }
}

/* Chooses rows such that each bug which changes any row changes a chosen one. Bugs of the projections, heads,
 * rotation and softmax change nearly every row. Bugs of masks and of terms added to the scores may change few
 * rows, so these rows are searched for. */
static void choose_part(mha__search *s)
{
    const size_t b = farthest_batch(s), T = s->c->T_q;
    if (!s->target.by_query) {
        memset(s->rows_checked + b * T, 1, T);
        return;
    }
    const size_t half = (s->c->sample + 1) / 2;
    mha__search_mark(s, b, half ? half : FAR, half ? half : SPREAD, s->rows_present, s->rows_checked);
    for (size_t other = 0; other < s->c->B && other < MOST_BATCHES; other++)
        mha__search_mark(s, other, 1, 0, s->rows_present, s->rows_checked);
    show(s, NULL, false);
    show(s, NULL, true);
    for (size_t v = 0; v < mha_bug_count(); v++) {
        mha__program program;
        if (mha__bugs_apply(s->c, (int)v, -1, &program) && mha__search_tries(s, (int)v, -1, &program) &&
            !mha__search_is_over(s) && !mha__programs_see_alike(&program, &s->unmodified.program) &&
            !mha__search_knows_visibility(s, (int)v, &program))
            show(s, &program, false);
    }
}

/* ---------------------------------------------------------------- what rounding may explain */

/* The largest error of the float32 stage on the checked rows; *largest: the largest finite element of the
 * unmodified case there. */
static double error_on_part(const mha__search *s, const double *narrow, double *largest)
{
    const mha__target *t = &s->target;
    const size_t T_q = s->c->T_q, lines = t->row / t->columns;
    double error = 0;
    *largest = 0;
    for (size_t b = 0; b < s->c->B; b++)
        for (size_t l = 0; l < lines; l++) {
            const unsigned char *checked = s->rows_checked + b * T_q;
            if (t->by_query ? !checked[l % T_q] : !memchr(checked, 1, T_q))
                continue;
            for (size_t j = 0; j < t->columns; j++) {
                const size_t at = b * t->row + l * t->columns + j;
                const double x = narrow[at], y = s->unmodified.stage[at];
                if (!isfinite(y))
                    continue;
                *largest = fmax(*largest, fabs(y));
                error = fmax(error, isfinite(x) ? fabs(x - y) : 0);
            }
        }
    return error;
}

static void allow(mha__search *s, const double atol[2])
{
    mha__target *t = &s->target;
    mha__tolerance derived = {0};
    for (int wide = 0; wide < 2; wide++)
        derived.atol[wide][t->stage] = atol[wide];
    for (int wide = 0; wide < 2; wide++) {
        t->allowed[wide] = mha__allowed_of(s->c, t->slot, wide, t->stage, t->stored, &derived);
        t->states[wide] = !t->allowed[wide].derived;
        t->noise[wide] = atol[wide];
    }
}

static mha__request request_of(const mha_case *c, const mha_call *call)
{
    mha__request request = {.layer = c->layer, .call = call, .rope_origin = &c->origin};
    mha_case_past(c, &request.past_key, &request.past_value);
    return request;
}

/* ---------------------------------------------------------------- rows and rounding together */

/* Computes the stage of the unmodified case. */
static mha_status compute_unmodified(mha__search *s, mha_error *error)
{
    const unsigned char *rows = s->in_part ? s->rows_checked : NULL;
    mha__runner *bench = mha__runner_create(s->inputs, rows, 0);
    if (!bench)
        return mha__search_no_memory(s, error);
    mha__run(bench, &s->unmodified.program, s->target.stage, rows, s->unmodified.stage);
    mha__runner_destroy(bench);
    return MHA_OK;
}

/* The rows that are checked of a part, as the sample that a forward is asked for; NULL: all rows. */
static mha_status checked_rows(const mha__search *s, mha__arena *pool, const mha__sample **sample, mha_error *error)
{
    const size_t T = s->c->T_q;
    *sample = NULL;
    if (!s->in_part || s->inputs->sequences)
        return MHA_OK;
    mha__sample *made = mha__arena_take(pool, sizeof *made);
    bool *rows = mha__arena_take(pool, T * sizeof *rows);
    if (!made || !rows)
        return mha__search_no_memory(s, error);
    for (size_t r = 0; r < s->c->B * T; r++)
        rows[r % T] |= s->rows_checked[r];
    *made = (mha__sample){rows, 0};
    for (size_t row = 0; row < T; row++)
        made->count += rows[row];
    *sample = made;
    return MHA_OK;
}

/* The tolerance of the stage, from runs of the whole call, or of the rows that are checked of a part. */
static mha_status derive(mha__search *s, const mha_call *call, double atol[2], mha_error *error)
{
    const mha_stage stage = s->target.stage;
    bool wanted[MHA_STAGE_COUNT] = {false};
    wanted[stage] = true;
    mha__two_runs runs;
    mha__tolerance tolerance;
    mha__request request = request_of(s->c, call);
    mha__case_round(s->c, &request);
    TRY(checked_rows(s, &s->pool, &request.sample, error));
    const mha_status status = mha__tolerance_of(&request, MHA_BTE, wanted, &runs, &tolerance, error);
    mha__two_runs_free(&runs);
    atol[0] = tolerance.atol[0][stage], atol[1] = tolerance.atol[1][stage];
    return status;
}

static mha_status prepare_whole(mha__search *s, mha_error *error)
{
    const mha__target *t = &s->target;
    const mha_call call = mha_case_call(s->asked);
    memset(s->rows_checked, 1, s->c->B * s->c->T_q);
    if (t->by_query) /* a sequence without queries may have keys */
        memcpy(s->rows_checked, s->rows_present, s->c->B * s->c->T_q);
    double atol[2];
    if (s->c->kind == CASE_ROPE) {
        const mha__tolerance tolerance = mha__tolerance_of_rope(s->c);
        atol[0] = tolerance.atol[0][t->stage], atol[1] = tolerance.atol[1][t->stage];
    } else
        TRY(derive(s, &call, atol, error));
    allow(s, atol);
    TRY(compute_unmodified(s, error));
    s->unmodified.whole = s->unmodified.stage;
    measure_distances(s, s->unmodified.stage);
    return MHA_OK;
}

/* Copies the rows of a sample to their index among all rows. */
static void spread_sample(const mha__sample *sample, int axis, const mha_view *rows, const mha_view *all)
{
    for (size_t n = 0; n < sample->count; n++) {
        const mha_view from = mha_view_slice(rows, axis, n, 1),
                       to = mha_view_slice(all, axis, mha__sample_row(sample, n), 1);
        (void)mha_view_copy(&to, &from, NULL); /* cannot fail: both are floats of one shape */
    }
}

/* The stage that a forward of the call has kept, in the order in which bugs compute it; of a sample, its rows. */
static mha_status read_stage(const mha__search *s, const mha__attempt *ran, double *values, mha_error *error)
{
    const mha_view *stage = &ran->stages[s->target.stage];
    mha__arena pool = {.allocator = mha__allocator_default()};
    if (ran->sample) {
        const int axis = mha__sample_axis(s->target.stage);
        mha_view all = mha_view_of(values, MHA_F64, stage->rank, stage->shape);
        all.shape[axis] = s->c->T_q;
        all = mha_view_of(values, MHA_F64, all.rank, all.shape);
        spread_sample(ran->sample, axis, stage, &all);
        return MHA_OK;
    }
    const mha_view copy = mha__arena_view(&pool, MHA_F64, stage->rank, stage->shape);
    if (copy.data) {
        (void)mha_view_copy(&copy, stage, NULL); /* cannot fail: both are floats of one shape */
        mha__stage_spread(s->inputs, s->target.stage, mha_view_elements(stage), copy.data, values);
    }
    mha__arena_free(&pool);
    return copy.data ? MHA_OK : mha__search_no_memory(s, error);
}

/* Uses one forward in float32 to find the rows that are far from the tensor; its error against float64 on the checked
 * rows gives the tolerance. That error is doubled, because other rows may have a larger one. */
static mha_status prepare_from(mha__search *s, const mha__request *request, const mha__attempt *ran, mha_error *error)
{
    const mha__target *t = &s->target;
    double *narrow = mha__arena_take(&s->pool, s->c->B * t->row * sizeof *narrow), largest, atol[2];
    if (!narrow)
        return mha__search_no_memory(s, error);
    TRY(read_stage(s, ran, narrow, error));
    s->unmodified.whole = narrow;
    measure_distances(s, narrow);
    choose_part(s);
    TRY(compute_unmodified(s, error));
    const double found = error_on_part(s, narrow, &largest);
    if (mha__case_rounds(s->c)) { /* its error is found on all rows */
        mha_call call = mha_case_call(s->asked);
        TRY(derive(s, &call, atol, error));
    } else
        mha__tolerance_of_error(request, ran, t->stage, 2 * found, largest, atol);
    allow(s, atol);
    return MHA_OK;
}

static mha_status prepare_part(mha__search *s, mha_error *error)
{
    mha_call call = mha_case_call(s->asked);
    const bool drops = call.semantics.softmax.dropout_keep.data; /* by the exact path only */
    call.path = s->wish->whole || drops ? MHA_PATH_AUTO : MHA_PATH_BLAS;
    mha__request request = request_of(s->c, &call);
    request.base_2 = true; /* see tolerance.c */
    bool wanted[MHA_STAGE_COUNT] = {false};
    wanted[s->target.stage] = true;
    wanted[MHA_STAGE_LSE] |= call.semantics.softmax.normaliser == MHA_SOFTMAX;
    mha__magnitudes_want(request.layer, wanted);
    mha__attempt attempt;
    mha_status status = mha__attempt_make(&attempt, NULL, &request, MHA_BTE, wanted, error);
    if (status == MHA_OK)
        status = prepare_from(s, &request, &attempt, error);
    mha__attempt_free(&attempt);
    return status;
}

mha_status mha__search_model(mha__search *s, mha_dtype type, double *values, mha_error *error)
{
    mha_call call = mha_case_call(s->asked);
    call.path = MHA_PATH_EXACT;
    mha__request request = request_of(s->c, &call);
    request.precision = mha_precision_of(type);
    TRY(checked_rows(s, &s->pool, &request.sample, error));
    bool wanted[MHA_STAGE_COUNT] = {false};
    wanted[s->target.stage] = true;
    mha__attempt attempt;
    mha_status status = mha__attempt_make(&attempt, NULL, &request, MHA_BTE, wanted, error);
    if (status == MHA_OK)
        status = read_stage(s, &attempt, values, error);
    mha__attempt_free(&attempt);
    return status;
}

/* Whether the caller wants a part. */
static bool is_asked_for(const mha_case *c)
{
    return c->sample > 0 && c->sample < c->T_q;
}

mha_status mha__search_prepare(mha__search *s, mha_error *error)
{
    s->in_part = s->c->kind != CASE_ROPE && (mha__case_work(s->c) > large || is_asked_for(s->c));
    return s->in_part ? prepare_part(s, error) : prepare_whole(s, error);
}
