/* The diagnosis: which variants, alone or in pairs, turn the inputs of a case into the tensor it holds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "verify/diagnose/variant_forward.h"
#include "verify/tolerance/tolerance.h"

/* One candidate: entries of the list of variants, -1 for none, and how well it fits. */
typedef struct candidate {
    int a, b;
    size_t order;  /* variants it takes */
    bool complete; /* compared on all batch rows */
    bool numbers;  /* finite and not at the same places */
    double max_abs, relative, noise[2];
} candidate;

typedef struct search {
    const mha_case *c;
    mha__dialect_bench *bench;
    mha_stage stage;
    size_t B, row, columns, wanted; /* rows: elements of a batch row; computed and expected last extents */
    double *expected, *computed;
    double *distance;        /* of each query row */
    unsigned char *left_out; /* query rows, while pairs are tried */
    mha__arena pool;
    double scale; /* rms of the tensor */
    double largest;
    bool wide;         /* an F64 tensor: float64 explains it first */
    bool by_query;     /* lines of the tensor belong to query rows, which can be left out */
    double noise[2];   /* what rounding may explain, in float32 and float64 */
    double scale_said; /* the case's own scale */
    candidate *candidates;
    size_t count, room;
    mha_allocator allocator;
} search;

/* ---------------------------------------------------------------- the tensor */

/* An expected tensor in the order and shape in which dialects compute it, batch row by batch row. */
static mha_view in_order(const mha_case *c, const case_expected *e, mha_stage stage)
{
    const mha_view *v = &e->view;
    if (stage == MHA_STAGE_OUTPUT && c->kind == CASE_MHA)
        return mha_view_rows(v->data, v->dtype, c->layout, c->B, c->T_q, c->E_out);
    if (stage == MHA_STAGE_OUTPUT)
        return mha_view_heads(v->data, v->dtype, c->layout, c->B, c->T_q, c->H, c->kind == CASE_ROPE ? c->d_k : c->d_v);
    return *v;
}

static bool find_tensor(const mha_case *c, const char *name, int *wide, int *slot)
{
    static const char *const prefix[] = {"expected.", "expected64."};
    /* Without a name: the output, else what comes latest. */
    for (int s = name ? CASE_EXPECTED_COUNT - 1 : CASE_EXPECTED_COUNT; s >= 0; s--) {
        int candidate_slot = s == CASE_EXPECTED_COUNT ? (int)MHA_STAGE_OUTPUT : s;
        for (int w = 0; w < 2; w++) {
            const char *full = c->expected[w][candidate_slot].name;
            bool skip = !full || candidate_slot == CASE_PREFILL_OUTPUT;
            if (!skip && (!name || strcmp(name, full) == 0 || strcmp(name, full + strlen(prefix[w])) == 0)) {
                *wide = w;
                *slot = candidate_slot;
                return true;
            }
        }
    }
    return false;
}

static mha_status load(search *s, const char *name, char *chosen, size_t size, mha_error *error)
{
    const mha_case *c = s->c;
    int wide, slot;
    if (!find_tensor(c, name, &wide, &slot))
        return name ? mha__fail(error, MHA_NOT_FOUND, "tensor", "expected a recorded stage, found none named %s", name)
                    : mha__fail(error, MHA_NOT_FOUND, NULL, "expected a recorded stage, found none");
    const case_expected *e = &c->expected[wide][slot];
    mha__text_print(chosen, size, "%s", e->name);
    s->stage = slot == CASE_QK ? c->qk_stage : (mha_stage)slot;
    size_t shape[4], n = 1;
    int rank = mha__dialect_shape(s->bench, s->stage, shape);
    for (int k = 1; k < rank; k++)
        n *= shape[k];
    mha_view v = in_order(c, e, s->stage);
    size_t elements = mha_view_elements(&v);
    s->B = c->B;
    s->row = n;
    s->columns = shape[rank - 1];
    s->wanted = slot == CASE_QK ? v.shape[v.rank - 1] : s->columns;
    s->wide = v.dtype == MHA_F64;
    s->by_query = c->kind != CASE_ROPE && s->stage >= MHA_STAGE_SCORES && s->stage <= MHA_STAGE_OUTPUT;
    s->expected = mha__arena_take(&s->pool, elements * sizeof *s->expected);
    s->computed = mha__arena_take(&s->pool, s->B * n * sizeof *s->computed);
    s->distance = mha__arena_take(&s->pool, c->T_q * sizeof *s->distance);
    s->left_out = mha__arena_take(&s->pool, c->T_q);
    if (elements == 0 || !s->expected || !s->computed || !s->distance || !s->left_out)
        return mha__fail(error, elements ? MHA_NO_MEMORY : MHA_UNSUPPORTED, e->name, "tensor %s: %s", e->name,
                        elements ? "no memory" : "no elements");
    mha_view copy = mha_view_of(s->expected, MHA_F64, v.rank, v.shape);
    mha_view_copy(&copy, &v);
    double sum = 0;
    size_t finite = 0;
    for (size_t i = 0; i < elements; i++)
        if (isfinite(s->expected[i])) {
            s->largest = fmax(s->largest, fabs(s->expected[i]));
            sum += s->expected[i] * s->expected[i];
            finite++;
        }
    s->scale = finite ? sqrt(sum / (double)finite) : 0;
    return MHA_OK;
}

/* Somebody's float32 is not ours: another factor of 4. */
static mha_status measure(search *s, mha_error *error)
{
    bool wanted[MHA_STAGE_COUNT] = {false};
    mha__tolerance tolerance = {0};
    wanted[s->stage] = true;
    mha_status status = MHA_OK;
    if (s->c->kind == CASE_ROPE)
        tolerance = mha__tolerance_of_rope(s->c);
    else {
        mha__two_runs runs;
        mha_call call = mha_case_call(s->c);
        mha__request request = {.layer = s->c->layer, .call = &call};
        mha_case_past(s->c, &request.past_key, &request.past_value);
        status = mha__tolerance_of(&request, MHA_BTE, wanted, &runs, &tolerance, error);
        mha__two_runs_free(&runs);
    }
    for (int wide = 0; wide < 2 && !status; wide++)
        s->noise[wide] = 4 * tolerance.atol[wide][s->stage];
    s->scale_said = mha__dialect_of(s->c).scale;
    return status;
}

/* ---------------------------------------------------------------- one candidate */

static mha__dialect dialect_of(const search *s, int a, int b, bool *applies)
{
    mha__dialect d = mha__dialect_of(s->c);
    *applies = (a < 0 || mha__variant_entry_at((size_t)a)->apply(s->c, &d)) &&
               (b < 0 || mha__variant_entry_at((size_t)b)->apply(s->c, &d));
    return d;
}

/* Two variants go together when each still does something after the other, and the order does not matter. */
static bool are_compatible(const search *s, int a, int b, mha__dialect *both)
{
    bool x, y, xy, yx;
    mha__dialect one = dialect_of(s, a, -1, &x), other = dialect_of(s, b, -1, &y);
    mha__dialect reverse = dialect_of(s, b, a, &yx);
    *both = dialect_of(s, a, b, &xy);
    return x && y && xy && yx && mha__dialect_is(both, &reverse) && !mha__dialect_is(both, &one) &&
           !mha__dialect_is(both, &other);
}

/* Computes batch rows [from, from + count) and compares them. */
static void fit(search *s, const mha__dialect *d, size_t from, size_t count, candidate *result)
{
    mha__dialect_run(s->bench, d, s->stage, from, count, s->computed);
    double sum = 0, most = 0;
    size_t lines = s->row / s->columns * count, n = 0, odd = 0;
    const double *e = s->expected + from * (s->row / s->columns) * s->wanted;
    const unsigned char *skipped = mha__dialect_skipped(s->bench);
    for (size_t l = 0; l < lines; l++)
        for (size_t j = 0; j < s->wanted; j++) {
            double x = s->computed[l * s->columns + j], y = e[l * s->wanted + j];
            if (s->by_query && skipped[l % s->c->T_q])
                break;
            n++;
            if (isfinite(x) && isfinite(y)) {
                most = fmax(most, fabs(x - y));
                sum += (x - y) * (x - y);
            } else
                odd += !(x == y || (isnan(x) && isnan(y)));
        }
    double size = s->scale > 0 ? s->scale : 1;
    result->numbers = odd == 0;
    result->max_abs = odd ? INFINITY : most;
    result->relative = sqrt(sum / (double)n) / size + (double)odd / (double)n;
    result->complete = count == s->B;
    double louder = fmax(1, fabs(d->scale / s->scale_said)); /* errors of scores grow with them */
    for (int wide = 0; wide < 2; wide++)
        result->noise[wide] = fmax(louder * s->noise[wide], 64 * (wide ? 0x1p-53 : 0x1p-24) * s->largest);
}

static mha_status add(search *s, const candidate *x, mha_error *error)
{
    candidate *more = mha__array_grow(&s->allocator, s->candidates, s->count, &s->room, sizeof *more);
    if (!more)
        return mha__fail(error, MHA_NO_MEMORY, s->c->name, "no memory to diagnose the case");
    s->candidates = more;
    s->candidates[s->count++] = *x;
    return MHA_OK;
}

/* ---------------------------------------------------------------- searching */

/* Whether rounding explains the difference. What it may explain is generous, so who explains the tensor must
 * also come about as near as the best does. And what a louder variant may be off by excuses only who comes nearer
 * than the case as it says, which is tried first. */
static bool is_exact(const search *s, const candidate *x, bool wide, double best)
{
    double unit = wide ? 0x1p-53 : 0x1p-24, floor = fmax(best, 4 * unit * s->largest);
    const candidate *said = s->candidates, *excused = x->max_abs < 0.9 * said->max_abs ? x : said;
    return x->complete && x->numbers && x->max_abs <= excused->noise[wide] && x->max_abs <= 16 * floor;
}

static double best_of(const search *s, size_t order)
{
    double best = INFINITY;
    for (size_t i = 0; i < s->count; i++)
        if (s->candidates[i].complete && s->candidates[i].order <= order)
            best = fmin(best, s->candidates[i].max_abs);
    return best;
}

/* The least number of variants with which there is an exact explanation; 3 when there is none. */
static size_t least_order(const search *s, bool wide, size_t most)
{
    double best = best_of(s, most);
    size_t least = 3;
    for (size_t i = 0; i < s->count; i++)
        if (s->candidates[i].order < least && is_exact(s, &s->candidates[i], wide, best))
            least = s->candidates[i].order;
    return least;
}

static mha_status try_singles(search *s, mha_error *error)
{
    int n = (int)mha_variant_count();
    for (int a = -1; a < n; a++) {
        bool applies;
        candidate x = {.a = a, .b = -1, .order = a >= 0};
        mha__dialect d = dialect_of(s, a, -1, &applies);
        if (!applies)
            continue;
        fit(s, &d, 0, s->B, &x);
        mha_status status = add(s, &x, error);
        if (status)
            return status;
    }
    return MHA_OK;
}

/* The batch row in which the case as it says is farthest from the tensor. */
static size_t telling_row(search *s)
{
    bool applies;
    mha__dialect d = dialect_of(s, -1, -1, &applies);
    size_t row = 0;
    double most = -1;
    for (size_t b = 0; b < s->B; b++) {
        candidate x;
        fit(s, &d, b, 1, &x);
        if (x.relative > most)
            most = x.relative, row = b;
    }
    return row;
}

/* Chooses `keep` query rows of batch row b: those where the case as it says is farthest from the tensor, and
 * some evenly spread. s->left_out marks the others. */
static void choose_rows(search *s, size_t b, size_t keep)
{
    size_t T_q = s->c->T_q, lines = s->row / s->columns;
    if (!s->by_query || T_q <= keep)
        return;
    bool applies;
    mha__dialect d = dialect_of(s, -1, -1, &applies);
    mha__dialect_run(s->bench, &d, s->stage, b, 1, s->computed);
    const double *e = s->expected + b * lines * s->wanted;
    memset(s->distance, 0, T_q * sizeof *s->distance);
    for (size_t l = 0; l < lines; l++)
        for (size_t j = 0; j < s->wanted; j++) {
            double x = s->computed[l * s->columns + j], y = e[l * s->wanted + j];
            bool same = x == y || (isnan(x) && isnan(y));
            s->distance[l % T_q] += same ? 0 : isfinite(x - y) ? (x - y) * (x - y) : s->scale * s->scale;
        }
    memset(s->left_out, 1, T_q);
    for (size_t n = 0; n < keep; n++) {
        size_t best = n * (T_q - 1) / (keep - 1);
        for (size_t i = 0; i < T_q && n % 2 == 0; i++)
            if (s->left_out[i] && s->distance[i] > (s->left_out[best] ? s->distance[best] : -1))
                best = i;
        s->left_out[best] = 0;
    }
}

/* A total order: how qsort leaves equals is the C library's affair, and the memory's that it finds. */
static int by_fit(const void *x, const void *y)
{
    const candidate *a = x, *b = y;
    if (a->complete != b->complete)
        return a->complete ? -1 : 1;
    if (a->relative != b->relative)
        return a->relative < b->relative ? -1 : 1;
    if (a->order != b->order)
        return a->order < b->order ? -1 : 1;
    return a->a != b->a ? a->a - b->a : a->b - b->b;
}

/* Pairs are tried on some query rows of one batch row; those that fit there, and the best few, on all. */
static mha_status try_pairs(search *s, mha_error *error)
{
    enum { MORE = 16, QUERIES = 12 };
    int n = (int)mha_variant_count();
    size_t row = telling_row(s), kept = 0;
    double nearest[MORE];
    unsigned char *skipped = mha__dialect_skipped(s->bench);
    choose_rows(s, row, QUERIES);
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            candidate x = {.a = a, .b = b, .order = 2};
            mha__dialect d;
            if (!are_compatible(s, a, b, &d))
                continue;
            memcpy(skipped, s->left_out, s->c->T_q);
            fit(s, &d, row, 1, &x);
            memset(skipped, 0, s->c->T_q);
            x.complete = false;
            bool near = kept < MORE || x.relative < nearest[MORE - 1];
            if (near || (x.numbers && x.max_abs <= x.noise[0])) {
                fit(s, &d, 0, s->B, &x);
                size_t at = kept < MORE ? kept++ : MORE - 1;
                for (; near && at > 0 && nearest[at - 1] > x.relative; at--)
                    nearest[at] = nearest[at - 1];
                if (near)
                    nearest[at] = x.relative;
            }
            mha_status status = add(s, &x, error);
            if (status)
                return status;
        }
    return MHA_OK;
}

/* ---------------------------------------------------------------- reporting */

static mha_explanation explain(const candidate *x, bool exact)
{
    const int which[] = {x->a, x->b};
    mha_explanation e = {.max_abs = x->max_abs, .relative = x->relative, .exact = exact};
    for (int i = 0; i < 2; i++)
        if (which[i] >= 0)
            e.variants[e.count++] = mha__variant_entry_at((size_t)which[i])->shown.name;
    return e;
}

static mha_status report_match(mha_diagnosis *d, const mha_explanation *e, mha_error *error)
{
    mha_allocator a = mha__allocator_default();
    mha_explanation *more = mha__array_grow(&a, d->matches, d->match_count, &d->capacity, sizeof *more);
    if (!more)
        return mha__fail(error, MHA_NO_MEMORY, d->tensor, "no memory to diagnose the case");
    d->matches = more;
    d->matches[d->match_count++] = *e;
    return MHA_OK;
}

void mha_diagnosis_clear(mha_diagnosis *diagnosis)
{
    mha_allocator a = mha__allocator_default();
    mha__release(&a, diagnosis->matches, diagnosis->capacity * sizeof *diagnosis->matches);
    diagnosis->matches = NULL;
    diagnosis->match_count = diagnosis->capacity = 0;
}

/* All candidates of `order` that explain the tensor exactly. */
static mha_status report_exact(const search *s, size_t order, bool wide, mha_diagnosis *d, mha_error *error)
{
    double best = best_of(s, order);
    mha_status status = MHA_OK;
    for (size_t i = 0; i < s->count && !status; i++) {
        const candidate *x = &s->candidates[i];
        /* Singles that fit as well as the case itself do nothing on this input: the same class. */
        if ((x->order == order || (order == 0 && x->order == 1)) && is_exact(s, x, wide, best)) {
            mha_explanation e = explain(x, true);
            status = report_match(d, &e, error);
        }
    }
    return status;
}

/* The rms differs by little, and by no more than twice what the best one leaves. */
static bool is_near(const candidate *x, double best)
{
    const double near = 0.02;
    return x->complete && x->numbers && x->relative <= near && x->relative <= 2 * best;
}

/* Without an exact explanation: near ones, and the closest three that differ from each other. */
static mha_status report_closest(search *s, mha_diagnosis *d, mha_error *error)
{
    enum { MOST_NEAR = 8 };
    qsort(s->candidates, s->count, sizeof *s->candidates, by_fit);
    double last = -1, best = s->count ? s->candidates[0].relative : INFINITY;
    for (size_t i = 0; i < s->count && d->closest_count < 3; i++) {
        const candidate *x = &s->candidates[i];
        if (!x->complete || (last >= 0 && x->relative <= last * (1 + 1e-9)))
            continue;
        last = x->relative;
        d->closest[d->closest_count++] = explain(x, false);
    }
    size_t least = 3;
    for (size_t i = 0; i < s->count; i++)
        if (is_near(&s->candidates[i], best) && s->candidates[i].order < least)
            least = s->candidates[i].order;
    for (size_t order = least; order <= 2 && order <= least + (least == 0); order++)
        for (size_t i = 0; i < s->count && d->match_count < MOST_NEAR; i++) {
            const candidate *x = &s->candidates[i];
            if (x->order != order || !is_near(x, best))
                continue;
            mha_explanation e = explain(x, false);
            mha_status status = report_match(d, &e, error);
            if (status)
                return status;
        }
    return MHA_OK;
}

static mha_status find(search *s, mha_diagnosis *d, mha_error *error)
{
    mha_status status = try_singles(s, error);
    if (status)
        return status;
    /* What was computed in float64 is explained to float64; only then is float32 taken into account. */
    for (size_t most = 1; most <= 2; most++) {
        if (most == 2 && (status = try_pairs(s, error)))
            return status;
        d->tried = s->count;
        size_t order = least_order(s, s->wide, most);
        if (order <= 2)
            return report_exact(s, order, s->wide, d, error);
    }
    size_t order = s->wide ? least_order(s, false, 2) : 3;
    return order <= 2 ? report_exact(s, order, false, d, error) : report_closest(s, d, error);
}

/* ---------------------------------------------------------------- calls */

mha_status mha_case_diagnose(const mha_case *c, const char *tensor, mha_diagnosis *diagnosis, mha_error *error)
{
    *diagnosis = (mha_diagnosis){0};
    search s = {.c = c, .allocator = mha__allocator_default()};
    s.pool.allocator = s.allocator;
    mha_status status = mha__dialect_bench_create(c, &s.bench, error);
    if (!status)
        status = load(&s, tensor, diagnosis->tensor, sizeof diagnosis->tensor, error);
    if (!status)
        status = measure(&s, error);
    if (!status)
        status = find(&s, diagnosis, error);
    mha__release(&s.allocator, s.candidates, s.room * sizeof *s.candidates);
    mha__arena_free(&s.pool);
    mha__dialect_bench_destroy(s.bench);
    if (status)
        mha_diagnosis_clear(diagnosis);
    return status;
}
