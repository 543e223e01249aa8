/* Random calls of every kind, with settings turned to extremes, contiguous, with caches of every type that evict, in
 * pages: what the float paths compute, and what the models of low precision do, is within mha_error_bound and
 * mha_precision_tolerance, and neither answers where the other refuses. The tolerance of float, unlike the bound, is an
 * estimate from the error of one run, which one call in a thousand may exceed. Each real setting of the table counts in
 * the bound: some call is beyond the bound of another number.
 * BOUNDS_TRIALS=n tries n calls, BOUNDS_SEED=s begins at seed s: a failure is tried again by its seed. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/call/settings/settings.h"
#include "mha/lab.h"
#include "support/any_setting.h"
#include "support/rerun.h"
#include "support/trial.h"
#include "support/unit.h"
#include "support/words.h"

typedef enum layout { CONTIGUOUS, CACHE, PAGES, LAYOUTS } layout;

static const char *const layout_names[] = {"contiguous", "with a cache", "in pages"};

/* The allowed error of each stage, and its source. */
typedef struct answer {
    const char *name;
    mha_status status;
    mha_error error;
    double allowed[MHA_STAGE_COUNT];
} answer;

/* One call under test. */
typedef struct subject {
    uint64_t random;
    layout layout;
    rig r;
    mha_dtype cache_dtype; /* of `given` */
    rerun given;      /* the call in its layout; `given.past_key`: the rows of its cache */
    char turned[300]; /* the settings that were turned, and by what */
    mha_precision precision;
    answer bound, tolerance, low; /* of float; of float and of the precision */
    char text[400];   /* what is wrong */
    bool of_estimate; /* only a tolerance is exceeded */
} subject;

static size_t checked[LAYOUTS], bounded[LAYOUTS], refused[LAYOUTS];

static const mha_precision none; /* that of float32 */

static size_t below(subject *s, size_t n)
{
    return n ? (size_t)(word(&s->random) % n) : 0;
}

static double unit(subject *s)
{
    return (double)(word(&s->random) >> 11) * 0x1p-53;
}

/* ---------------------------------------------------------------- settings turned */

/* A number of a type that is as near as finite ones are. */
static double finite_in(mha_dtype type, double x)
{
    const double most = type == MHA_F16 ? 65504 : type == MHA_BF16 ? 0x1.fep127 : type == MHA_F64 ? DBL_MAX : FLT_MAX;
    return isfinite(x) ? fmin(fmax(x, -most), most) : x;
}

/* Multiplies all elements; none becomes infinite in a type. */
static void multiply(const mha_view *v, double factor, mha_dtype type)
{
    size_t index[MHA_MAX_RANK] = {0};
    const size_t n = v->data ? mha_view_elements(v) : 0;
    for (size_t at = 0; at < n; at++) {
        size_t rest = at;
        for (int k = v->rank - 1; k >= 0; rest /= v->shape[k--])
            index[k] = rest % v->shape[k];
        const double x = mha_view_get(v, index);
        mha_view_set(v, index, isfinite(x) ? finite_in(type, x * factor) : x);
    }
}

/* The fields of a call that can be turned: a view or a number, and whether scores are a product with it. */
typedef struct turned {
    const char *name;
    mha_view *view;
    double *number, otherwise; /* otherwise: the meaning of 0, where it can be turned; 0: it cannot */
    bool of_scores;
} turned;

enum { MOST_TURNED = 128 };

/* The meaning of a number that is 0, by its row; 0 where the call would be another one, or none, with a number. */
static double stands_for(const subject *s, const mha_setting *row)
{
    const mha_call *c = &s->given.call;
    const mha_config *config = &s->r.t.config;
    mha_semantics with = c->semantics;
    const double unset = mha_setting_number(row, &with);
    const bool of_a_table = strncmp(row->name, "relative_", 9) == 0, is_k = strcmp(row->name, "relative_k_scale") == 0;
    mha_error error;
    if ((strcmp(row->name, "clip_qkv") == 0 && (config->kv_rank || s->r.t.poison)) ||
        (strcmp(row->name, "rope_base") == 0 && c->semantics.qkv.rope.cos_table.data) ||
        (strcmp(row->name, "query_scale_growth") == 0 && !c->semantics.qkv.query_scale.every) ||
        (of_a_table && !(is_k ? config->relative_k_rows : config->relative_q_rows)) || isinf(unset))
        return 0;
    const double number = isnan(unset) ? 1 / sqrt((double)config->d_k) : unset != 0 ? unset : 1;
    any_setting_clear(row, &with);
    return mha_setting_put_number(row, number, &with, &error) || mha__settings_check(&with, false, &error) ? 0 : number;
}

/* All that can be turned: inputs, arrays of numbers, every real setting, weights. */
static size_t list_turned(subject *s, turned list[MOST_TURNED])
{
    mha_call *c = &s->given.call;
    mha_semantics *m = &c->semantics;
    const turned first[] = {
        {"query", &c->query, NULL, 0, true},
        {"key", &c->key, NULL, 0, true},
        {"value", &c->value, NULL, 0, false},
        {"cached keys", &s->given.past_key, NULL, 0, true},
        {"cached values", &s->given.past_value, NULL, 0, false},
        {"frequencies", &m->qkv.rope.frequencies, NULL, 0, false},
        {"mask", m->visible.mask.kind == MHA_MASK_ADDITIVE ? &m->visible.mask.values : NULL, NULL, 0, false},
        {"key padding", m->visible.key_padding.kind == MHA_MASK_ADDITIVE ? &m->visible.key_padding.values : NULL, NULL,
         0, false},
        {"slope", NULL, (double *)(uintptr_t)m->added.alibi_slopes, 1, false},
    };
    static const char *const factors[] = {"scale", "query_scale_growth", "rope_attention_factor"};
    const mha_setting *row;
    size_t n = 0;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if (first[i].view ? first[i].view->data != NULL : first[i].number != NULL)
            list[n++] = first[i];
    for (size_t i = 0; (row = mha_setting_at(i)) != NULL; i++) {
        if (row->kind != MHA_SETTING_REAL)
            continue;
        turned one = {row->name, NULL, (double *)(void *)((char *)m + row->at), 0, false};
        for (size_t k = 0; k < sizeof factors / sizeof *factors; k++)
            one.of_scores |= strcmp(factors[k], row->name) == 0;
        one.otherwise = mha_setting_given(row, m) && *one.number == 0 ? 0 : stands_for(s, row);
        if (*one.number != 0 || one.otherwise != 0)
            list[n++] = one;
    }
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
        if (s->r.weights[w].data)
            list[n++] = (turned){mha_weight_at((mha_weight)w)->name, &s->r.weights[w], NULL, 0,
                                 w == MHA_W_Q || w == MHA_W_K || w == MHA_Q_NORM || w == MHA_K_NORM};
    return n;
}

/* Turns up to three settings, each by a factor between 10^-1 and 10, 10^-4 and 10^4, or 10^-38 and 10^38. In every
 * third call they are factors of the scores, and the last one undoes what the others did together, which may be too
 * much for a float. */
static void turn(subject *s)
{
    static const double reaches[] = {1, 4, 4, 38}, products[] = {1, 4, 30};
    const bool balanced = below(s, 3) == 0;
    const size_t turns = balanced ? 2 + below(s, 2) : below(s, 4);
    const double beyond_float = (below(s, 2) ? 1 : -1) * (38 + 4 * unit(s)), part = unit(s), /* of the first factor */
        product = below(s, 4) ? products[below(s, 3)] * (2 * unit(s) - 1) : beyond_float;    /* its logarithm */
    size_t used = 0;
    for (size_t i = 0; i < turns; i++) {
        turned list[MOST_TURNED];
        const size_t n = list_turned(s, list);
        const turned *one = &list[below(s, n)];
        while (balanced && !one->of_scores)
            one = &list[below(s, n)];
        const double size = !balanced        ? reaches[below(s, 4)] * (2 * unit(s) - 1)
                            : i + 1 == turns ? -product
                            : turns == 2     ? product
                            : i == 0         ? part * product
                                             : (1 - part) * product;
        if (one->view)
            multiply(one->view, pow(10, size), one->view->dtype);
        else
            *one->number = pow(10, size) * (*one->number != 0 ? *one->number : one->otherwise);
        const int wrote = snprintf(s->turned + used, sizeof s->turned - used, "%s by 10^%.2g, ", one->name, size);
        used += wrote > 0 && (size_t)wrote < sizeof s->turned - used ? (size_t)wrote : 0;
    }
    if (s->r.layer)
        assert_int_equal(mha_layer_pack(s->r.layer, NULL), MHA_OK);
}

/* ---------------------------------------------------------------- calls and layouts */

/* Latent attention has fewer settings. */
static void make_latent(subject *s, trial *t)
{
    mha_config *c = &t->config;
    mha_semantics *m = &t->semantics;
    t->bare = false;
    t->inputs = t->inputs == TRIAL_CROSS ? TRIAL_KEY_VALUE : t->inputs;
    *c = (mha_config){.d_model = c->d_model, .n_heads = c->n_heads, .d_k = c->d_k + 1, .d_v = c->d_v,
                      .kv_rank = 1 + below(s, 20), .q_rank = below(s, 2) * (1 + below(s, 12)),
                      .bias_latent = below(s, 2), .bias_o = c->bias_o, .sinks = c->sinks, .dtype = c->dtype,
                      .gate = c->gate, .bias_gate = c->bias_gate, .bias_rows = c->bias_rows,
                      .d_rope = 2 * below(s, (c->d_k + 2) / 2)};
    m->qkv.clip_qkv = 0;
    m->qkv.norm = (mha_norm_rule){.kind = MHA_NORM_RMS};
    m->added.relative = (mha_relative){0};
    m->qkv.rope.kind = c->d_rope ? m->qkv.rope.kind : MHA_ROPE_NONE;
    if (m->qkv.rope.kind)
        m->qkv.rope.dim = c->d_rope, m->qkv.rope.last = true;
}

static trial draw(subject *s, uint64_t seed)
{
    trial t = trial_draw(seed);
    s->random = seed * 0x2545f4914f6cdd1du + 77;
    s->layout = (layout)below(s, LAYOUTS);
    t.past = 0, t.use_cache = false;
    if (t.inputs != TRIAL_SELF && t.rope_tables != 3 && below(s, 3) == 0)
        t.T_q = 1;
    if (s->layout != CONTIGUOUS && t.sequences)
        t.sequences = 0, t.B = 1 + below(s, 3);
    if (s->layout == CACHE) {
        t.past = 1 + below(s, 20), t.use_cache = true;
        t.semantics.place.has_offset |= t.semantics.place.has_key_offset;
        t.poison = false; /* which a row of 8 bits takes for itself as a whole */
    }
    if (below(s, 5) == 0)
        make_latent(s, &t);
    t.poison &= t.semantics.qkv.clip_qkv == 0; /* which makes numbers of infinities */
    t.amplitude = 1;
    return t;
}

static mha_view random_rows(subject *s, size_t B, size_t heads, size_t n, size_t d)
{
    const size_t shape[4] = {B, heads, n, d}, all = B * heads * n * d;
    float *x = rerun_memory(&s->given, all * sizeof *x);
    for (size_t i = 0; i < all; i++)
        x[i] = (float)(2 * unit(s) - 1);
    return mha_view_of(x, MHA_F32, 4, shape);
}

/* Multiplies rows that the call evicts, so that they are of another size than those that stay. */
static void resize_rows(const mha_view *rows, size_t n, double factor)
{
    if (mha_view_elements(rows) == 0)
        return;
    const mha_view first = mha_view_slice(rows, 2, 0, n);
    multiply(&first, factor, first.dtype);
}

/* Rows in a cache of some type, of which the call evicts some, after others that are gone. */
static void put_into_cache(subject *s)
{
    static const mha_dtype types[] = {MHA_F32, MHA_F32, MHA_F16, MHA_BF16, MHA_I8};
    rerun *g = &s->given;
    const mha_config *c = &s->r.t.config;
    const size_t kept = s->r.t.past, gone = below(s, 2) * (1 + below(s, 9)), B = s->r.t.B;
    const bool absorbed = g->call.absorbed;
    const size_t heads = absorbed ? 1 : c->kv_heads, d = absorbed ? c->kv_rank + c->d_rope : c->d_k;
    g->past_key = random_rows(s, B, heads, gone + kept, d);
    g->past_value = random_rows(s, B, heads, gone + kept, absorbed ? 0 : c->d_v);
    const double factor = pow(10, below(s, 2) * (8 * unit(s) - 4));
    resize_rows(&g->past_key, gone, factor);
    resize_rows(&g->past_value, gone, factor);
    g->kept = gone ? kept : 0;
    g->evicted = below(s, 2) * below(s, below(s, 2) ? 2000000 : 12);
    s->cache_dtype = types[below(s, 5)];
}

/* Makes the rows numbers that the cache can represent. */
static void settle_cache(subject *s)
{
    rerun *g = &s->given, held;
    mha_error error;
    multiply(&g->past_key, 1, s->cache_dtype);
    multiply(&g->past_value, 1, s->cache_dtype);
    rerun_init(&held, g->layer, &g->call, &g->past_key, &g->past_value);
    held.cache_dtype = &s->cache_dtype;
    assert_ok(rerun_cache(&held, MHA_PATH_BLAS, &error), error);
    assert_ok(mha_cache_read(held.cache, false, &g->past_key, &error), error);
    assert_ok(mha_cache_read(held.cache, true, &g->past_value, &error), error);
    rerun_free(&held);
}

static unsigned stages_of(const mha_plan *plan)
{
    unsigned keep = 0;
    size_t shape[4];
    for (int k = 0; k < MHA_STAGE_COUNT; k++)
        keep |= mha_plan_stage(plan, (mha_stage)k, shape) > 0 ? 1u << k : 0;
    return keep;
}

/* The call as it is given, with a cache of its own, which rounds new rows or does not. */
static void begin(const subject *s, bool rounds, rerun *r)
{
    const rerun *g = &s->given;
    rerun_init(r, g->layer, &g->call, &g->past_key, &g->past_value);
    r->kept = g->kept, r->evicted = g->evicted;
    r->cache_dtype = rounds && s->cache_dtype != MHA_F32 ? &s->cache_dtype : NULL;
}

/* Runs it, and keeps all stages that it has. */
static mha_status run(const subject *s, mha_path path, mha_precision precision, bool rounds, rerun *r, mha_error *error)
{
    mha_plan plan;
    begin(s, rounds, r);
    r->call.path = path;
    r->call.precision = precision;
    mha_status status = rerun_cache(r, path, error);
    if (status == MHA_OK)
        status = mha_plan_call(r->layer, &r->call, &plan, error);
    return status == MHA_OK ? rerun_run(r, path, 1, stages_of(&plan), error) : status;
}

/* Puts all keys of the call into pages of some type; sequences but the first may lose their last keys. */
static mha_status put_into_pages(subject *s, mha_error *error)
{
    static const mha_dtype types[] = {MHA_F32, MHA_F32, MHA_F16, MHA_BF16};
    rerun all, *g = &s->given;
    mha_semantics *m = &g->call.semantics;
    mha_status status = run(s, MHA_PATH_EXACT, none, false, &all, error);
    const size_t B = s->r.t.B, S = all.plan.S, size = 1 + below(s, 7), columns = (S + size - 1) / size;
    const mha_dtype type = types[below(s, 4)];
    if (status == MHA_OK) {
        mha_pages *p = &g->call.pages;
        int64_t *lengths = rerun_memory(g, B * sizeof *lengths), *limits = rerun_memory(g, B * sizeof *limits);
        int32_t *table = rerun_memory(g, (B * columns + 1) * sizeof *table);
        *p = (mha_pages){.table = table, .columns = columns, .lengths = lengths};
        for (size_t i = 0; i < B * columns; i++)
            table[i] = (int32_t)(B * columns - 1 - i);
        for (size_t b = 0; b < B; b++) {
            lengths[b] = (int64_t)(b && below(s, 2) ? below(s, S + 1) : S);
            limits[b] =
                m->visible.kv_lengths && m->visible.kv_lengths[b] < lengths[b] ? m->visible.kv_lengths[b] : lengths[b];
        }
        for (int v = 0; v < (g->call.absorbed ? 1 : 2); v++) {
            const mha_view *from = &all.stages[v ? MHA_STAGE_PRESENT_VALUE : MHA_STAGE_PRESENT_KEY];
            mha_view *to = v ? &p->values : &p->keys;
            *to = mha_view_of(NULL, type, 4, (size_t[]){B * columns + 1, size, from->shape[1], from->shape[3]});
            to->data = rerun_memory(g, mha_view_elements(to) * sizeof(double));
            for (size_t b = 0; b < B; b++)
                for (size_t j = 0; j < S; j++)
                    for (size_t h = 0; h < from->shape[1]; h++)
                        for (size_t c = 0; c < from->shape[3]; c++)
                            mha_view_set(to, (size_t[]){(size_t)table[b * columns + j / size], j % size, h, c},
                                         finite_in(type, mha_view_get(from, (size_t[]){b, h, j, c})));
        }
        m->visible.kv_lengths = m->visible.kv_lengths ? limits : NULL;
        m->qkv.rope.k_positions = (mha_view){0};
        g->call.key = g->call.value = (mha_view){0};
        if (B == 1 && below(s, 4) == 0) { /* a ragged batch */
            int64_t *cu = rerun_memory(g, 2 * sizeof *cu);
            cu[1] = (int64_t)all.plan.T_q;
            m->place.n_sequences = 1, m->place.cu_seqlens_q = cu;
        }
    }
    rerun_free(&all);
    return status;
}

/* ---------------------------------------------------------------- checked */

/* Whether a stage is farther from the exact one than is allowed. */
static bool beyond(subject *s, const char *who, const rerun *found, const rerun *exact, const answer *by)
{
    for (int k = 0; k < MHA_STAGE_COUNT; k++) {
        const mha_view *a = &found->stages[k], *e = &exact->stages[k];
        const size_t n = a->data && e->data ? mha_view_elements(e) : 0;
        const double allowed = by->allowed[k];
        for (size_t i = 0; i < n && allowed < (double)INFINITY; i++) {
            const double x = a->dtype == MHA_F64 ? ((double *)a->data)[i] : (double)((float *)a->data)[i],
                         y = ((double *)e->data)[i];
            if (!isfinite(y) || fabs(x - y) <= allowed)
                continue;
            snprintf(s->text, sizeof s->text, "%s: %s[%zu] is %.9g, exactly %.9g: off by %.3g, %s %.3g", who,
                     mha_stage_at((mha_stage)k)->name, i, x, y, fabs(x - y), by->name, allowed);
            s->of_estimate = by == &s->tolerance;
            return true;
        }
    }
    return false;
}

static mha_precision draw_precision(subject *s)
{
    static const mha_dtype types[] = {MHA_BF16, MHA_F16, MHA_F8_E4M3, MHA_F8_E5M2, MHA_I8, MHA_F32};
    if (s->r.t.poison || below(s, 2)) /* the scale of a tensor knows its infinities */
        return mha_precision_of(types[below(s, s->r.t.poison ? 2 : 5)]);
    mha_precision p = {0};
    mha_dtype *const points[] = {&p.inputs, &p.weights, &p.rows, &p.probabilities, &p.output, &p.scores, &p.sums};
    for (size_t i = 0; i < 7; i++) {
        const mha_dtype type = types[below(s, i < 5 ? 6 : 2)];
        *points[i] = below(s, 3) ? MHA_F32 : type;
    }
    return p;
}

/* Asks for the bound and for both tolerances; false when one of them answers and another does not. */
static bool ask(subject *s)
{
    rerun call;
    mha_plan plan;
    mha_error error;
    answer *b = &s->bound, *t = &s->tolerance, *l = &s->low;
    b->name = "bound", t->name = "tolerance", l->name = "tolerance of low precision";
    begin(s, true, &call);
    assert_ok(rerun_cache(&call, MHA_PATH_BLAS, &error), error);
    b->status = mha_error_bound(call.layer, &call.call, 0x1p-24, b->allowed, MHA_STAGE_COUNT, &b->error);
    t->status = mha_precision_tolerance(call.layer, &call.call, &none, t->allowed, MHA_STAGE_COUNT, &t->error);
    l->status = mha_precision_tolerance(call.layer, &call.call, &s->precision, l->allowed, MHA_STAGE_COUNT, &l->error);
    call.call.path = MHA_PATH_BLAS; /* on which a tolerance runs the call, too */
    const bool taken = mha_plan_call(call.layer, &call.call, &plan, &error) == MHA_OK;
    rerun_free(&call);
    const answer *odd = t->status != b->status && (b->status || taken) ? t : l->status != t->status ? l : NULL;
    if (odd)
        snprintf(s->text, sizeof s->text, "bound: %s %.90s, %s: %s %.90s", mha__status_name(b->status),
                 b->status ? b->error.message : "", odd->name, mha__status_name(odd->status),
                 odd->status ? odd->error.message : "");
    return !odd;
}

static bool results_are_beyond(subject *s, const rerun exact[2])
{
    static const mha_path paths[] = {MHA_PATH_BLAS, MHA_PATH_FAST};
    mha_error error;
    rerun one;
    bool failed = false;
    for (int k = 0; k < MHA_STAGE_COUNT; k++) /* where one kernel may leave the range, and another not */
        s->tolerance.allowed[k] = isinf(s->bound.allowed[k]) ? INFINITY : s->tolerance.allowed[k];
    for (size_t p = 0; p < 2 && !failed; p++) {
        if (run(s, paths[p], none, true, &one, &error) == MHA_OK) /* inputs may be doubles */
            for (int rounds = 0; rounds < 2 && !failed; rounds++)
                failed = beyond(s, mha_path_name(paths[p]), &one, &exact[rounds], &s->bound) ||
                         beyond(s, mha_path_name(paths[p]), &one, &exact[rounds], &s->tolerance);
        rerun_free(&one);
    }
    if (!failed && s->low.status == MHA_OK) {
        assert_ok(run(s, MHA_PATH_EXACT, s->precision, true, &one, &error), error);
        failed = beyond(s, "low precision", &one, &exact[0], &s->low);
        rerun_free(&one);
    }
    return failed;
}

static bool check(subject *s)
{
    mha_error error;
    rerun exact[2]; /* with rows that are not rounded in the cache, and rounded */
    s->precision = draw_precision(s);
    bool failed = false;
    for (int rounds = 0; rounds < 2; rounds++)
        failed |= run(s, MHA_PATH_EXACT, none, rounds, &exact[rounds], &error) != MHA_OK;
    const bool takes = !failed, answers = ask(s),
               refuses = s->bound.status != MHA_OK && strcmp(s->bound.error.name, "pages") != 0; /* of a ragged batch */
    failed = !answers || takes == refuses;
    if (answers && failed)
        snprintf(s->text, sizeof s->text, "exact: %.200s, bound: %.150s", takes ? "ok" : error.message,
                 refuses ? s->bound.error.message : "ok");
    if (!failed && takes && s->tolerance.status == MHA_OK) {
        checked[s->layout]++;
        bounded[s->layout] += isfinite(s->bound.allowed[MHA_STAGE_HEADS]) != 0;
        failed = results_are_beyond(s, exact);
    } else
        refused[s->layout]++;
    rerun_free(&exact[0]);
    rerun_free(&exact[1]);
    return failed;
}

static bool fails(const trial *given, bool *of_estimate, char *text, size_t size)
{
    subject s = {.turned = ""};
    const trial t = draw(&s, given->seed);
    mha_error error;
    char words[900];
    trial_build(&t, &s.r);
    rerun_init(&s.given, s.r.layer, &s.r.call, NULL, NULL);
    s.given.call.absorbed = t.config.kv_rank > 0 && below(&s, 2);
    if (s.layout == CACHE)
        put_into_cache(&s);
    turn(&s);
    if (s.layout == CACHE)
        settle_cache(&s);
    const bool put = s.layout != PAGES || put_into_pages(&s, &error) == MHA_OK, failed = put && check(&s);
    refused[PAGES] += !put;
    trial_text(&t, words, sizeof words);
    snprintf(text, size, "%s\n  turned: %s%s, cache %s\n  %s", s.text, s.turned, layout_names[s.layout],
             mha_dtype_name(s.cache_dtype), words);
    *of_estimate = s.of_estimate;
    rerun_free(&s.given);
    trial_release(&s.r);
    return failed;
}

static void random_calls_are_within_bound_and_tolerance(void **state)
{
    (void)state;
    const uint64_t first = trial_number("BOUNDS_SEED", 1), n = trial_count("BOUNDS_TRIALS", 300);
    size_t wrong = 0, exceeded = 0;
    for (uint64_t seed = first; seed < first + n && wrong < 5; seed++) {
        char text[1800];
        bool of_estimate;
        const trial t = {.seed = seed};
        if (!fails(&t, &of_estimate, text, sizeof text))
            continue;
        print_error("seed %llu: %s\n", (unsigned long long)seed, text);
        exceeded += of_estimate;
        wrong += !of_estimate || exceeded > n / 1000;
    }
    assert_int_equal(wrong, 0);
    for (int l = 0; l < LAYOUTS; l++) {
        print_message("%s: %zu calls checked, %zu refused\n", layout_names[l], checked[l], refused[l]);
        assert_true(n < 30 || (checked[l] > n / 6 && bounded[l] > checked[l] / 2)); /* there was something to check */
    }
}

/* ---------------------------------------------------------------- settings forgotten */

/* Queries, and new keys without positions of their own, are far from position 0, where angles lose much. */
static void go_far(subject *s)
{
    mha_semantics *m = &s->given.call.semantics;
    if (m->place.position_offset || m->place.cu_seqlens_q || m->qkv.rope.cos_table.data || below(s, 2))
        return;
    m->place.has_offset = true;
    m->place.offset = (int64_t)pow(2, 50 * unit(s));
}

/* The number of a setting, of any size that it may have; NULL where the call cannot have it. */
static double *number_of(subject *s, const mha_setting *row)
{
    turned list[MOST_TURNED];
    const size_t n = list_turned(s, list);
    size_t at = 0;
    while (at < n && strcmp(list[at].name, row->name) != 0)
        at++;
    if (at == n)
        return NULL;
    double *const number = list[at].number, is = *number != 0 ? *number : list[at].otherwise;
    *number = (row->lowest < 0 && below(s, 2) ? -1 : 1) * pow(10, 8 * unit(s) - 4) * is;
    return number;
}

/* Whether a call with 1000 times the number, or a thousandth of it, is beyond the bound of the call with the number. */
static bool shows(subject *s, const char *name, double *number)
{
    static const mha_path paths[] = {MHA_PATH_BLAS, MHA_PATH_FAST, MHA_PATH_EXACT};
    mha_error error;
    rerun call, exact = {0};
    const mha_precision of_scores = {.scores = MHA_BF16},
                        precision = below(s, 2) ? none : below(s, 2) ? of_scores : draw_precision(s);
    const bool rounds = memcmp(&precision, &none, sizeof none) != 0;
    begin(s, true, &call);
    call.call.precision = precision;
    s->bound = (answer){.name = "bound"};
    s->bound.status = mha_error_bound(call.layer, &call.call, 0x1p-24, s->bound.allowed, MHA_STAGE_COUNT, &error);
    rerun_free(&call);
    *number *= below(s, 2) ? 1e3 : 1e-3;
    bool shown = false;
    if (s->bound.status == MHA_OK && run(s, MHA_PATH_EXACT, none, false, &exact, &error) == MHA_OK)
        for (size_t p = rounds ? 2 : 0; p < (rounds ? 3 : 2) && !shown; p++) {
            shown = run(s, paths[p], precision, true, &call, &error) == MHA_OK &&
                    beyond(s, name, &call, &exact, &s->bound);
            rerun_free(&call);
        }
    rerun_free(&exact);
    return shown;
}

/* Every real setting counts: some call would be beyond a bound that takes it for another number. */
static void no_setting_can_be_forgotten(void **state)
{
    (void)state;
    const mha_setting *row;
    size_t settings = 0;
    for (size_t i = 0; (row = mha_setting_at(i)) != NULL; i++) {
        bool shown = row->kind != MHA_SETTING_REAL || strcmp(row->name, "dropout_p") == 0; /* no path in float has it */
        settings += !shown;
        const mha_setting *needed = row->needs ? mha_setting_find(row->needs) : NULL; /* "rope", not "rule=grid" */
        for (uint64_t seed = 1; seed <= 200000 && !shown; seed++) { /* rope_base shows in one call of 40,000 */
            subject s = {.turned = ""};
            trial t = draw(&s, seed);
            if (s.layout != CONTIGUOUS || (needed && !mha_setting_given(needed, &t.semantics)))
                continue;
            if (t.bare && !t.semantics.qkv.rope.kind && below(&s, 2))
                t.config.d_k = 1;
            trial_build(&t, &s.r);
            rerun_init(&s.given, s.r.layer, &s.r.call, NULL, NULL);
            turn(&s);
            go_far(&s);
            double *const number = number_of(&s, row);
            shown = number && shows(&s, row->name, number);
            rerun_free(&s.given);
            trial_release(&s.r);
        }
        if (!shown)
            fail_msg("no random call is beyond a bound that takes %s for another number", row->name);
    }
    assert_true(settings > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_calls_are_within_bound_and_tolerance),
        cmocka_unit_test(no_setting_can_be_forgotten),
    };
    return cmocka_run_group_tests_name("bounds_random", tests, NULL, NULL);
}
