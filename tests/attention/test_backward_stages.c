/* The stages of a backward of random calls and layers, against their equations in plain loops: of the stages of the
 * forward, and each of those before it. BACKWARD_TRIALS=n draws n calls, BACKWARD_SEED=s begins at seed s. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/gradient.h"
#include "support/unit.h"

static size_t compared[MHA_BACKWARD_STAGE_COUNT], hidden, empty, cached;

/* A backward, and the stages of the forward that its equations speak of; what a call lacks has no data. */
typedef struct fixture {
    graded g;
    graded_stages made;
    mha_plan plan;
    mha_view forward[MHA_STAGE_COUNT];
    char *text;
    size_t size;
} fixture;

static double at(const mha_view *v, size_t a, size_t b, size_t c, size_t d)
{
    return mha_view_get(v, (size_t[]){a, b, c, d});
}

static void run_forward(fixture *f)
{
    static const mha_stage read[] = {MHA_STAGE_Q_ROT,       MHA_STAGE_K_ROT,        MHA_STAGE_V,
                                     MHA_STAGE_SCORES,      MHA_STAGE_MASKED,       MHA_STAGE_WEIGHTS,
                                     MHA_STAGE_PRESENT_KEY, MHA_STAGE_PRESENT_VALUE};
    mha_keep keep[8];
    mha_error error;
    mha_call call = f->g.r.call;
    call.path = MHA_PATH_EXACT, call.absorbed = false, call.output = (mha_view){0};
    call.keep_count = 0;
    assert_ok(mha_plan_call(f->g.r.layer, &call, &f->plan, &error), error);
    for (size_t i = 0; i < 8; i++) {
        size_t shape[4];
        const int rank = mha_plan_stage(&f->plan, read[i], shape);
        mha_view *v = &f->forward[read[i]];
        if (rank == 0)
            continue;
        *v = mha_view_of(NULL, MHA_F64, rank, shape);
        const size_t n = mha_view_elements(v);
        v->data = calloc(n ? n : 1, sizeof(double));
        keep[call.keep_count++] = (mha_keep){.stage = read[i], .view = *v};
    }
    call.keep = keep;
    assert_ok(mha_run(f->g.r.layer, &call, &error), error);
}

/* Rows and keys of sequence b: where they begin, how many there are. The first keys may be those of a cache. */
typedef struct sequence {
    size_t b, batch, q_from, T_q, k_from, S, cached;
} sequence;

static sequence sequence_of(const fixture *f, size_t b)
{
    const mha_place *p = &f->g.r.call.semantics.place;
    sequence s = {b, b, 0, f->plan.T_q, 0, f->plan.S, f->plan.S - f->plan.T_k};
    if (p->cu_seqlens_q) {
        const int64_t *q = p->cu_seqlens_q, *k = p->cu_seqlens_k ? p->cu_seqlens_k : q;
        s = (sequence){b, 0, (size_t)q[b], (size_t)(q[b + 1] - q[b]), (size_t)k[b], (size_t)(k[b + 1] - k[b]), 0};
    }
    return s;
}

/* Whether a number of a stage is that of its equation, a sum of n terms of this size together: each side is off by
 * rounding, and by what it loses below the least normal number. */
static bool is_off(fixture *f, mha_backward_stage stage, double found, double expected, double n, double size)
{
    const double allowed = (8 * n + 128) * 0x1p-53 * size + (n + 4) * DBL_MIN;
    compared[stage]++;
    if (fabs(found - expected) <= allowed || (isnan(found) && isnan(expected)))
        return false;
    snprintf(f->text, f->size, "%s: %.15g for %.15g, allowed %.3g", mha_backward_stage_at(stage)->name, found, expected,
             allowed);
    return true;
}

static const mha_view *stage(const fixture *f, mha_backward_stage s)
{
    for (size_t i = 0; i < f->made.count; i++)
        if (f->made.keep[i].stage == s)
            return &f->made.keep[i].view;
    return NULL;
}

static double of_map(const fixture *f, mha_backward_stage s, const sequence *q, size_t h, size_t i, size_t j)
{
    return at(stage(f, s), q->b, h, i, j);
}

static double d_head(const fixture *f, const sequence *q, size_t h, size_t i, size_t c)
{
    return at(stage(f, MHA_BACKWARD_D_HEADS), q->batch, q->q_from + i, h * f->plan.d_v + c, 0);
}

/* An element of key, or of value, j, of a head's group. */
static double of_key(const fixture *f, const sequence *q, size_t h, size_t j, size_t c, bool value)
{
    const size_t g = h / (f->plan.h / f->plan.h_kv), d = value ? f->plan.d_v : f->plan.d_k;
    const mha_view *present = &f->forward[value ? MHA_STAGE_PRESENT_VALUE : MHA_STAGE_PRESENT_KEY];
    return present->data
               ? at(present, q->b, g, j, c)
               : at(&f->forward[value ? MHA_STAGE_V : MHA_STAGE_K_ROT], q->batch, q->k_from + j, g * d + c, 0);
}

/* The factor of a weight where it meets its value. */
static double kept_times(const fixture *f, const sequence *q, size_t h, size_t i, size_t j)
{
    const mha_softmax *rule = &f->g.r.call.semantics.softmax;
    return oracle_keeps(rule, q->b, h, i, j) ? 1 / (1 - rule->dropout_p) : 0;
}

/* One query of a map: dP, of the given keys, and D. What is hidden is left out. */
static bool is_sum_off(fixture *f, const sequence *q, size_t h, size_t i, size_t n)
{
    double D = 0, size = 0;
    bool sees = false;
    for (size_t j = 0; j < n; j++) {
        const double P = at(&f->forward[MHA_STAGE_WEIGHTS], q->b, h, i, j),
                     found = of_map(f, MHA_BACKWARD_D_WEIGHTS, q, h, i, j);
        double sum = 0, terms = 0;
        if (at(&f->forward[MHA_STAGE_MASKED], q->b, h, i, j) == -INFINITY) {
            hidden++;
            continue;
        }
        for (size_t c = 0; j < q->S && c < f->plan.d_v; c++) {
            const double x = d_head(f, q, h, i, c) * of_key(f, q, h, j, c, true);
            sum += x, terms += fabs(x);
        }
        sum *= kept_times(f, q, h, i, j);
        if (j < q->S && is_off(f, MHA_BACKWARD_D_WEIGHTS, found, sum, (double)f->plan.d_v, terms))
            return true;
        sees = true, D += P * found, size += P * fmax(terms, fabs(found));
    }
    empty += !sees;
    return stage(f, MHA_BACKWARD_ROW_SUMS) &&
           is_off(f, MHA_BACKWARD_ROW_SUMS, of_map(f, MHA_BACKWARD_ROW_SUMS, q, h, i, 0), D, (double)n, size);
}

/* The same query: dZ and dS, of all keys. */
static bool is_pair_off(fixture *f, const sequence *q, size_t h, size_t i, size_t j)
{
    const mha_softmax *rule = &f->g.r.call.semantics.softmax;
    const mha_view *d_lse = &f->g.gradients.d_lse;
    const bool sums = stage(f, MHA_BACKWARD_ROW_SUMS),
               seen = at(&f->forward[MHA_STAGE_MASKED], q->b, h, i, j) > -INFINITY;
    const double P = seen ? at(&f->forward[MHA_STAGE_WEIGHTS], q->b, h, i, j) : 0,
                 dP = seen ? of_map(f, MHA_BACKWARD_D_WEIGHTS, q, h, i, j) : 0,
                 D = sums ? of_map(f, MHA_BACKWARD_ROW_SUMS, q, h, i, 0) : 0,
                 dlse = d_lse->data ? at(d_lse, q->b, h, i, 0) : 0,
                 z = seen ? at(&f->forward[MHA_STAGE_MASKED], q->b, h, i, j) + rule->sigmoid_bias : 0,
                 dZ = sums ? P * (dP - D + dlse) : P * dP / (1 + exp(z)),
                 found = of_map(f, MHA_BACKWARD_D_MASKED, q, h, i, j),
                 t = seen && rule->softcap > 0 ? tanh(at(&f->forward[MHA_STAGE_SCORES], q->b, h, i, j) / rule->softcap)
                                               : 0;
    return is_off(f, MHA_BACKWARD_D_MASKED, found, dZ, sums ? 1 : 1 + fabs(z), P * (fabs(dP) + fabs(D) + fabs(dlse))) ||
           is_off(f, MHA_BACKWARD_D_SCORES, of_map(f, MHA_BACKWARD_D_SCORES, q, h, i, j), found * (1 - t * t), 1,
                  fabs(found));
}

/* Element c of the gradient of query i: scale sum_j dS_ij K_j. */
static bool is_query_off(fixture *f, const sequence *q, size_t h, size_t i, size_t c)
{
    const size_t d = f->plan.d_k;
    double sum = 0, size = 0;
    for (size_t j = 0; j < q->S; j++) {
        const double dS = of_map(f, MHA_BACKWARD_D_SCORES, q, h, i, j),
                     x = dS == 0 ? 0 : f->plan.scale * dS * of_key(f, q, h, j, c, false);
        sum += x, size += fabs(x);
    }
    return is_off(f, MHA_BACKWARD_D_Q_ROT, at(stage(f, MHA_BACKWARD_D_Q_ROT), q->batch, q->q_from + i, h * d + c, 0),
                  sum, (double)q->S, size);
}

/* Element c of the gradient of key, or of value, j, of those of the call: scale sum_i dS_ij Q_i, sum_i P_ij dO_i, of
 * all heads of a group. */
static bool is_key_off(fixture *f, const sequence *q, size_t g, size_t j, size_t c, bool of_value)
{
    const size_t group = f->plan.h / f->plan.h_kv, d = of_value ? f->plan.d_v : f->plan.d_k;
    const mha_backward_stage s = of_value ? MHA_BACKWARD_D_V : MHA_BACKWARD_D_K_ROT;
    double sum = 0, size = 0;
    for (size_t h = g * group; h < (g + 1) * group; h++)
        for (size_t i = 0; i < q->T_q; i++) {
            const bool seen = at(&f->forward[MHA_STAGE_MASKED], q->b, h, i, j) > -INFINITY;
            const double factor = !seen      ? 0
                                  : of_value ? at(&f->forward[MHA_STAGE_WEIGHTS], q->b, h, i, j) *
                                                   kept_times(f, q, h, i, j)
                                             : f->plan.scale * of_map(f, MHA_BACKWARD_D_SCORES, q, h, i, j),
                         x = factor == 0 ? 0
                                         : factor * (of_value ? d_head(f, q, h, i, c)
                                                              : at(&f->forward[MHA_STAGE_Q_ROT], q->batch,
                                                                   q->q_from + i, h * d + c, 0));
            sum += x, size += fabs(x);
        }
    return is_off(f, s, at(stage(f, s), q->batch, q->k_from + j - q->cached, g * d + c, 0), sum,
                  (double)(group * q->T_q), size);
}

static bool is_map_off(fixture *f, const sequence *q, size_t h, size_t extra)
{
    for (size_t i = 0; i < q->T_q; i++) {
        if (is_sum_off(f, q, h, i, q->S + extra))
            return true;
        for (size_t j = 0; j < q->S + extra; j++)
            if (is_pair_off(f, q, h, i, j))
                return true;
    }
    return false;
}

/* Gradients of rows, where nothing else has a part: no relative terms, and in those of queries no extra rows. */
static bool are_rows_off(fixture *f, const sequence *q, size_t extra)
{
    const bool relative = f->g.r.call.semantics.added.relative.rule != MHA_RELATIVE_NONE;
    const size_t d_k = f->plan.d_k, d_v = f->plan.d_v, own = q->S - q->cached;
    for (size_t e = 0; !relative && !extra && e < f->plan.h * q->T_q * d_k; e++)
        if (is_query_off(f, q, e / (q->T_q * d_k), e / d_k % q->T_q, e % d_k))
            return true;
    for (size_t e = 0; !relative && e < f->plan.h_kv * own * d_k; e++)
        if (is_key_off(f, q, e / (own * d_k), q->cached + e / d_k % own, e % d_k, false))
            return true;
    for (size_t e = 0; e < f->plan.h_kv * own * d_v; e++)
        if (is_key_off(f, q, e / (own * d_v), q->cached + e / d_v % own, e % d_v, true))
            return true;
    return false;
}

/* Without a layer the gradients of the heads are those of the output; with one that has no gate those times W_O^T. */
static bool are_heads_off(fixture *f)
{
    const mha_view *made = stage(f, MHA_BACKWARD_D_HEADS), *W = &f->g.of[MHA_D_WEIGHTS + MHA_W_O];
    const double *d = f->g.gradients.d_output.data;
    const size_t rows = made->shape[0] * made->shape[1], wide = made->shape[2], out = f->plan.d_out;
    if (f->g.of[MHA_D_WEIGHTS + MHA_W_G].data)
        return false;
    for (size_t e = 0; e < rows * wide; e++) {
        double sum = 0, size = 0;
        for (size_t k = 0; f->g.r.layer && k < out; k++) {
            const double x = d[e / wide * out + k] * mha_view_get(W, (size_t[]){e % wide, k});
            sum += x, size += fabs(x);
        }
        if (is_off(f, MHA_BACKWARD_D_HEADS, ((double *)made->data)[e], f->g.r.layer ? sum : d[e], (double)out, size))
            return true;
    }
    return false;
}

static bool is_wrong(fixture *f)
{
    const mha_view *weights = &f->forward[MHA_STAGE_WEIGHTS];
    const size_t extra = weights->shape[3] - f->plan.S;
    bool wrong = are_heads_off(f);
    for (size_t b = 0; b < f->plan.B && !wrong; b++) {
        const sequence q = sequence_of(f, b);
        for (size_t h = 0; h < f->plan.h && !wrong; h++)
            wrong = is_map_off(f, &q, h, extra);
        wrong = wrong || are_rows_off(f, &q, extra);
    }
    return wrong;
}

static bool differs(const trial *t, char *text, size_t size)
{
    fixture f = {.text = text, .size = size};
    mha_error error;
    graded_build(t, &f.g);
    graded_keep(&f.g, &f.made, &f.g.gradients);
    bool failed = mha_backward(f.g.r.layer, &f.g.r.call, &f.g.gradients, &error) != MHA_OK;
    if (failed)
        snprintf(text, size, "refused: %.250s", error.message);
    run_forward(&f); /* which appends to a cache */
    cached += f.plan.S > f.plan.T_k && !f.g.r.call.semantics.place.cu_seqlens_q;
    failed = failed || is_wrong(&f);
    for (int s = 0; s < MHA_STAGE_COUNT; s++)
        free(f.forward[s].data);
    graded_drop(&f.made);
    graded_release(&f.g);
    return failed;
}

static bool call_fails(const trial *drawn, char *text, size_t size)
{
    trial t = *drawn;
    return graded_adapt(&t) && differs(&t, text, size);
}

static bool layer_fails(const trial *drawn, char *text, size_t size)
{
    trial t = *drawn;
    return graded_adapt_layer(&t) && differs(&t, text, size);
}

static void run(trial_failure fails, uint64_t usual, const char *what)
{
    const uint64_t n = trial_count("BACKWARD_TRIALS", usual);
    memset(compared, 0, sizeof compared);
    hidden = empty = cached = 0;
    const size_t wrong = trials_that_fail(trial_number("BACKWARD_SEED", 1), n, 0, fails);
    if (wrong)
        fail_msg("the stages of %zu random %s are not those of the equations", wrong, what);
    for (int s = 0; s < MHA_BACKWARD_STAGE_COUNT; s++)
        assert_true(n < usual || compared[s] > 1000);
    assert_true(n < usual || (hidden > 1000 && empty > 10 && cached > 10));
}

static void stages_are_those_of_the_equations(void **state)
{
    (void)state;
    run(call_fails, 1500, "calls");
    run(layer_fails, 600, "layers");
}

/* ---------------------------------------------------------------- what is kept */

enum { B = 1, T = 3, H = 2, D = 5 };

typedef struct small {
    float q[B * T * H * D], k[B * T * H * D], v[B * T * H * D], d[B * T * H * D];
    double dq[B * T * H * D], map[B * H * T * T], sums[B * H * T];
    mha_call call;
    mha_backward_keep keep[3];
    mha_gradients gradients;
} small;

static void begin(small *s)
{
    memset(s, 0, sizeof *s);
    for (size_t e = 0; e < B * T * H * D; e++) {
        s->q[e] = (float)sin(1.0 + (double)e), s->k[e] = (float)cos(2.0 * (double)e);
        s->v[e] = (float)cos(5.0 + (double)e), s->d[e] = (float)sin(3.0 * (double)e);
    }
    s->call = (mha_call){
        .query = mha_heads(s->q, B, T, H, D), .key = mha_heads(s->k, B, T, H, D), .value = mha_heads(s->v, B, T, H, D)};
    s->keep[0] =
        (mha_backward_keep){MHA_BACKWARD_D_SCORES, mha_view_of(s->map, MHA_F64, 4, (const size_t[]){B, H, T, T})};
    s->keep[1] =
        (mha_backward_keep){MHA_BACKWARD_ROW_SUMS, mha_view_of(s->sums, MHA_F64, 3, (const size_t[]){B, H, T})};
    s->gradients.d_output = mha_heads(s->d, B, T, H, D);
    s->gradients.keep = s->keep, s->gradients.keep_count = 2;
}

static void refuses(const small *s, mha_status status, const char *name, const char *text)
{
    mha_error error = {0};
    assert_refused(mha_backward(NULL, &s->call, &s->gradients, &error), status, error, name, text);
    for (size_t e = 0; e < B * H * T * T; e++)
        assert_true(s->map[e] == 0);
}

static void wrong_stages_are_refused(void **state)
{
    (void)state;
    small s;
    begin(&s);
    s.gradients.keep = NULL;
    refuses(&s, MHA_INVALID, "keep", "no list");
    begin(&s);
    s.keep[1].stage = MHA_BACKWARD_STAGE_COUNT;
    refuses(&s, MHA_INVALID, "keep", "found 8");
    begin(&s);
    s.keep[1] = s.keep[0];
    refuses(&s, MHA_INVALID, "d_scores", "found it twice");
    begin(&s);
    s.keep[1].view.shape[2] = T - 1;
    refuses(&s, MHA_INVALID, "row_sums", "(1, 2, 3)");
    begin(&s);
    s.keep[1].view.dtype = MHA_I64;
    refuses(&s, MHA_INVALID, "row_sums", "F32 or F64");
    begin(&s);
    s.call.semantics.softmax.normaliser = MHA_SIGMOID;
    refuses(&s, MHA_INVALID, "row_sums", "a stage that the backward of this call has");
    s.keep[1].view.data = NULL; /* not wanted */
    mha_error error;
    assert_ok(mha_backward(NULL, &s.call, &s.gradients, &error), error);
}

/* F32, strides, another stage without data, and gradients with them: the same numbers. */
static void stages_are_written_as_asked(void **state)
{
    (void)state;
    small s;
    mha_error error;
    float narrow[B * H * T * T];
    begin(&s);
    assert_ok(mha_backward(NULL, &s.call, &s.gradients, &error), error);
    small other;
    begin(&other);
    other.keep[0].view = mha_view_of(narrow, MHA_F32, 4, (const size_t[]){B, H, T, T});
    other.keep[0].view.stride[2] = 1, other.keep[0].view.stride[3] = T; /* transposed */
    other.keep[2] = (mha_backward_keep){MHA_BACKWARD_D_MASKED, {0}};
    other.gradients.keep_count = 3;
    other.gradients.of[MHA_D_QUERY] = mha_view_of(other.dq, MHA_F64, 4, (const size_t[]){B, T, H, D});
    assert_ok(mha_backward(NULL, &other.call, &other.gradients, &error), error);
    for (size_t e = 0; e < B * H * T * T; e++)
        assert_true(narrow[e / (T * T) * T * T + e % T * T + e / T % T] == (float)s.map[e] && s.map[e] != 0);
    assert_memory_equal(s.sums, other.sums, sizeof s.sums);
    assert_true(other.dq[0] != 0);
}

/* Rows are stored in the type in which a modelled kernel hands out gradients, here sums over heads of a group; other
 * stages as they are computed. */
static void rows_are_rounded_as_gradients_are(void **state)
{
    (void)state;
    small s;
    mha_error error;
    double rows[B * T * D];
    begin(&s);
    s.call.key = mha_heads(s.k, B, T, 1, D), s.call.value = mha_heads(s.v, B, T, 1, D);
    s.gradients.precision.gradients = MHA_BF16;
    s.gradients.of[MHA_D_KEY] = mha_view_of(s.dq, MHA_F64, 4, (const size_t[]){B, T, 1, D});
    s.keep[1] = (mha_backward_keep){MHA_BACKWARD_D_K_ROT, mha_view_of(rows, MHA_F64, 3, (const size_t[]){B, T, D})};
    assert_ok(mha_backward(NULL, &s.call, &s.gradients, &error), error);
    assert_memory_equal(rows, s.dq, sizeof rows);
    for (size_t e = 0; e < B * T * D; e++)
        assert_true(rows[e] != 0 && rows[e] == (double)mha__bf16_to_f32(mha__f32_to_bf16((float)rows[e])));
    assert_true(s.map[0] != (double)(float)s.map[0]);
}

/* The stages of absorbed latents are those of keys and values of all heads, in their shapes. */
static void absorbed_latents_have_the_same_stages(void **state)
{
    (void)state;
    static const float x[3 * 4] = {1, -1, 2, 0.5f, 3, -2, 1, 1, 0.25f, 2, -3, 1};
    const mha_config config = {.d_model = 4, .n_heads = 2, .d_k = 4, .d_v = 3, .kv_rank = 5, .d_rope = 2};
    double kept[2][MHA_BACKWARD_STAGE_COUNT][64] = {{{0}}};
    mha_layer *layer;
    mha_error error;
    assert_ok(mha_layer_create(&config, NULL, NULL, &layer, &error), error);
    mha_layer_init(layer, 1);
    for (int absorbed = 0; absorbed < 2; absorbed++) {
        mha_backward_keep keep[MHA_BACKWARD_STAGE_COUNT];
        const mha_call call = {.query = mha_rows(x, 1, 3, 4), .absorbed = absorbed};
        const mha_gradients g = {
            .d_output = mha_rows(x, 1, 3, 4), .keep = keep, .keep_count = MHA_BACKWARD_STAGE_COUNT};
        mha_plan plan;
        assert_ok(mha_plan_call(layer, &call, &plan, &error), error);
        for (int s = 0; s < MHA_BACKWARD_STAGE_COUNT; s++) {
            size_t shape[4];
            const int rank = mha_backward_stage_shape(&plan, (mha_backward_stage)s, shape);
            keep[s] = (mha_backward_keep){(mha_backward_stage)s, mha_view_of(kept[absorbed][s], MHA_F64, rank, shape)};
        }
        assert_int_equal(keep[MHA_BACKWARD_D_K_ROT].view.shape[2], 2 * 4);
        assert_int_equal(keep[MHA_BACKWARD_D_V].view.shape[2], 2 * 3);
        assert_ok(mha_backward(layer, &call, &g, &error), error);
    }
    assert_memory_equal(kept[0], kept[1], sizeof kept[0]);
    assert_true(kept[0][MHA_BACKWARD_D_V][17] != 0);
    mha_layer_destroy(layer);
}

static void stages_have_names(void **state)
{
    (void)state;
    for (int s = 0; s < MHA_BACKWARD_STAGE_COUNT; s++) {
        const mha_backward_stage_info *info = mha_backward_stage_at((mha_backward_stage)s);
        mha_stage forward;
        assert_false(mha_stage_find(info->name, &forward));
        assert_true(*info->meaning && *mha_stage_at(info->like)->name);
    }
    assert_null(mha_backward_stage_at(MHA_BACKWARD_STAGE_COUNT));
    small s;
    mha_plan plan;
    mha_error error;
    size_t shape[4];
    begin(&s);
    assert_ok(mha_plan_call(NULL, &s.call, &plan, &error), error);
    assert_int_equal(mha_backward_stage_shape(&plan, MHA_BACKWARD_STAGE_COUNT, shape), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_are_those_of_the_equations),     cmocka_unit_test(wrong_stages_are_refused),
        cmocka_unit_test(stages_are_written_as_asked),           cmocka_unit_test(rows_are_rounded_as_gradients_are),
        cmocka_unit_test(absorbed_latents_have_the_same_stages), cmocka_unit_test(stages_have_names)};
    return cmocka_run_group_tests_name("stages of a backward", tests, NULL, NULL);
}
