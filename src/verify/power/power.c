/* The power of a test: computes a case with each bug, and asks whether the test would accept the result. */
#include "mha/power.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "compute/gemm.h"
#include "compute/thread_pool.h"
#include "verify/power/criterion.h"
#include "verify/tolerance/tolerance.h"
#include "verify/bugs/bugs.h"
#include "verify/engine/runner.h"

/* State of one mha_case_power call. */
typedef struct examination {
    const mha_case *asked; /* the case as it is */
    const mha_case *c;     /* the same; of a ragged batch: with its sequences as batch rows */
    mha__inputs *inputs;
    mha__program said; /* the program of the unmodified case */
    mha__arena pool;
    mha_view right; /* the stage of the case as it is, F64 */
    double square;  /* sum of its squares */
    mha_power *result;
    size_t *which;              /* the index of each row's bug in the list */
    size_t workers, done, told; /* told: how many were reported to be done */
    mha__runner *bench[MHA__MOST_RUNNERS];
    mha_view computed[MHA__MOST_RUNNERS];
    const mha_progress *progress;
    bool failed; /* there was no memory for a bug */
} examination;

static mha_status no_memory(const examination *x, mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, x->c->name, "no memory to compute the bugs");
}

/* ---------------------------------------------------------------- the criterion */

static mha_status find_stage(const mha_case *c, const char *name, mha_stage *stage, mha_error *error)
{
    *stage = MHA_STAGE_OUTPUT;
    if (name && !mha_stage_find(name, stage))
        return mha__fail(error, MHA_NOT_FOUND, "stage", "expected the name of a stage, found %s", name);
    if (c->kind == CASE_ROPE && *stage != MHA_STAGE_OUTPUT)
        return mha__fail(error, MHA_UNSUPPORTED, "stage",
                         "expected output; a case of kind rope has no stage but the output");
    return MHA_OK;
}

/* Derives the tolerance of the stage, and fills in that of MHA_CRITERION_BOUND. */
static mha_status derive(examination *x, mha_error *error)
{
    const mha_case *c = x->c;
    mha_power *p = x->result;
    mha__tolerance t;
    if (c->kind == CASE_ROPE)
        t = mha__tolerance_of_rope(c);
    else {
        bool wanted[MHA_STAGE_COUNT] = {false};
        wanted[p->stage] = true;
        const mha_call call = mha_case_call(x->asked);
        const mha_dtype type = p->criterion.precision;
        mha__request request = mha__case_request(c, c->layer, &call);
        request.precision = type != MHA_F32 ? mha_precision_of(type) : c->precision;
        mha__two_runs runs;
        const mha_status status = mha__tolerance_of(&request, MHA_BTE, wanted, &runs, &t, error);
        mha__two_runs_free(&runs);
        TRY(status);
    }
    const mha_allowance derived = mha__allowance_of(&t, false, p->stage, p->criterion.precision);
    p->derived_rtol = derived.rtol;
    p->derived_atol = derived.atol;
    if (p->criterion.kind == MHA_CRITERION_BOUND) {
        const mha__allowed allowed = mha__allowed_of(c, (int)p->stage, false, p->stage, p->criterion.precision, &t);
        p->criterion.rtol = allowed.rtol;
        p->criterion.atol = allowed.atol;
    }
    return MHA_OK;
}

/* Sets atol of MHA_CRITERION_ERRORS from the output of a kernel that rounds to the precision, scores too. */
static mha_status derive_from_errors(examination *x, mha_error *error)
{
    mha_criterion *k = &x->result->criterion;
    const bool wanted[MHA_STAGE_COUNT] = {[MHA_STAGE_OUTPUT] = true};
    mha_call call = mha_case_call(x->asked);
    mha__request request = {.layer = x->c->layer, .call = &call, .precision = mha_precision_of(k->precision)};
    mha__attempt kernel = {.layer = NULL};
    double worst = INFINITY;
    if (k->kind != MHA_CRITERION_ERRORS)
        return MHA_OK;
    if (x->result->stage != MHA_STAGE_OUTPUT || x->c->kind == CASE_ROPE)
        return mha__fail(error, MHA_UNSUPPORTED, "errors", "expected the output of a call of attention");
    call.path = MHA_PATH_EXACT;
    request.precision.scores = k->precision == MHA_F16 || k->precision == MHA_BF16 ? k->precision : MHA_F32;
    mha_case_past(x->c, &request.past_key, &request.past_value);
    const mha_status status = mha__attempt_make(&kernel, NULL, &request, MHA_BTE, wanted, error);
    if (status == MHA_OK && mha_view_elements(&kernel.stages[MHA_STAGE_OUTPUT]) == mha_view_elements(&x->right))
        (void)mha__criterion_factor(k, &kernel.stages[MHA_STAGE_OUTPUT], &x->right, 0, &worst);
    mha__attempt_free(&kernel);
    k->atol = k->limit * worst;
    return status;
}

/* ---------------------------------------------------------------- the bugs */

/* Whether a bug does nothing but round inputs and weights to the type of the tested implementation, or to a finer
 * one, or something else to float32; cutting is not rounding. */
static bool only_rounds(const examination *x, mha__program k)
{
    const int inputs = mha__arg(&k, AT_X, OP_ROUND), weights = mha__arg(&k, AT_W, OP_ROUND);
    const bool bf16 = inputs == MHA__TO_BF16 || weights == MHA__TO_BF16,
               cut = inputs == MHA__TO_BF16_CUT || weights == MHA__TO_BF16_CUT;
    const mha_dtype precision = x->result->criterion.precision;
    const bool eleven_bits = precision == MHA_F16 || precision == MHA_TF32;
    const bool to_float = mha__drop(&k, AT_S, OP_ROUND);
    (void)mha__drop(&k, AT_X, OP_ROUND), (void)mha__drop(&k, AT_W, OP_ROUND);
    return !cut && mha__programs_equal(&k, &x->said) && (to_float || precision == MHA_BF16 || (eleven_bits && !bf16));
}

static mha_status list_rows(examination *x, mha_error *error)
{
    const mha_allocator a = mha__allocator_default();
    const size_t n = mha_bug_count();
    mha_power *p = x->result;
    size_t *which = x->which = mha__arena_take(&x->pool, n * sizeof *which);
    if (!which)
        return no_memory(x, error);
    for (size_t i = 0; i < n; i++) {
        mha__program program;
        const bool applies = mha__bugs_apply(x->c, (int)i, -1, &program) && !mha__programs_equal(&program, &x->said);
        const bool reaches =
            !mha__has(&program, AT_LSE, OP_FN) || p->stage == MHA_STAGE_LSE; /* nothing follows from it */
        if (applies && reaches && !only_rounds(x, program))
            which[p->count++] = i;
    }
    if (p->count > 0 && !(p->rows = mha__allocate(&a, p->count * sizeof *p->rows))) {
        p->count = 0;
        return no_memory(x, error);
    }
    for (size_t i = 0; i < p->count; i++)
        p->rows[i] = (mha_power_row){.bug = mha_bug_at(which[i])->name, .help = mha_bug_at(which[i])->help};
    return MHA_OK;
}

static void report(examination *x, size_t done)
{
    x->told = done;
    if (x->progress && x->progress->report)
        x->progress->report(x->progress->context, done, x->result->count);
}

static void examine(void *context, size_t task, int worker)
{
    examination *x = context;
    mha_power *p = x->result;
    mha_power_row *row = &p->rows[task];
    const mha_view *found = &x->computed[worker];
    const mha_criterion derived = {.kind = MHA_CRITERION_CLOSE, .rtol = p->derived_rtol, .atol = p->derived_atol};
    mha__program program;
    (void)mha__bugs_apply(x->c, (int)x->which[task], -1, &program);
    if (!mha__run(x->bench[worker], &program, p->stage, NULL, found->data))
        __atomic_store_n(&x->failed, true, __ATOMIC_RELAXED);
    row->excess = mha__criterion_factor(&derived, found, &x->right, 0, &row->max_abs);
    row->factor = mha__criterion_factor(&p->criterion, found, &x->right, x->square, &row->max_abs);
    row->result = mha__is_nothing(row->max_abs, p->largest) ? MHA_POWER_SAME
                  : row->factor <= 1                        ? MHA_POWER_ACCEPTED
                                                            : MHA_POWER_REJECTED;
    const size_t done = __atomic_add_fetch(&x->done, 1, __ATOMIC_RELAXED);
    if (worker == 0) /* only the calling thread reports */
        report(x, done);
}

/* ---------------------------------------------------------------- the whole */

/* Makes each worker's memory, and computes the right result. */
static mha_status make_benches(examination *x, int threads, mha_error *error)
{
    size_t shape[4], bytes;
    const int rank = mha__run_shape(x->inputs, x->result->stage, shape);
    x->right = mha__arena_view(&x->pool, MHA_F64, rank, shape);
    if (mha_view_elements(&x->right) == 0)
        return mha__fail(error, MHA_UNSUPPORTED, mha_stage_at(x->result->stage)->name,
                         "expected elements to compare, found none");
    x->workers = mha__runner_count(threads, &bytes);
    for (size_t w = 0; w < x->workers; w++) {
        x->bench[w] = mha__runner_create(x->inputs, NULL, bytes);
        x->computed[w] = mha__arena_view(&x->pool, MHA_F64, rank, shape);
        if (!x->bench[w] || !x->computed[w].data)
            return no_memory(x, error);
    }
    if (!x->right.data)
        return no_memory(x, error);
    if (!mha__run(x->bench[0], &x->said, x->result->stage, NULL, x->right.data))
        return no_memory(x, error);
    const double *y = x->right.data;
    for (size_t i = 0; i < mha_view_elements(&x->right); i++)
        if (isfinite(y[i])) {
            x->result->largest = fmax(x->result->largest, fabs(y[i]));
            x->square += y[i] * y[i];
        }
    return MHA_OK;
}

static mha_status run(examination *x, int threads, mha_error *error)
{
    mha_power *p = x->result;
    TRY(mha__criterion_check(&p->criterion, error));
    TRY(find_stage(x->c, p->criterion.stage, &p->stage, error));
    TRY(mha__inputs_create(x->asked, &x->inputs, error));
    x->c = x->inputs->c;
    x->said = mha__program_of(x->c);
    TRY(derive(x, error));
    TRY(list_rows(x, error));
    TRY(make_benches(x, threads, error));
    TRY(derive_from_errors(x, error));
    mha__parallel_for(p->count, (int)x->workers, examine, x);
    if (x->failed)
        return no_memory(x, error);
    if (x->told < p->count)
        report(x, p->count);
    for (size_t i = 0; i < p->count; i++)
        mha__power_count(p, &p->rows[i]);
    return MHA_OK;
}

mha_status mha_case_power(const mha_case *c, const mha_criterion *criterion, int threads, const mha_progress *progress,
                          mha_power *result, mha_error *error)
{
    *result = (mha_power){.criterion = *criterion};
    TRY(mha__parallel_check(threads, error));
    examination x = {.asked = c, .c = c, .result = result, .progress = progress};
    x.pool.allocator = mha__allocator_default();
    mha__gemm_bracket bracket;
    TRY(mha__gemm_begin(threads, &bracket, error));
    const mha_status status = run(&x, threads, error);
    mha__gemm_end(&bracket);
    for (size_t w = 0; w < x.workers; w++)
        mha__runner_destroy(x.bench[w]);
    mha__inputs_destroy(x.inputs);
    mha__arena_free(&x.pool);
    if (status != MHA_OK)
        mha_power_clear(result);
    return status;
}
