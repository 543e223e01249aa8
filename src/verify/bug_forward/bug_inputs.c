/* Inputs and weights of a case as doubles. */
#include <string.h>

#include "base/base.h"
#include "attention/layer/layer.h"
#include "verify/bug_forward/bug_inputs.h"

/* ---------------------------------------------------------------- reading the case */

static mha_status no_memory(const mha_case *c, mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, c->name, "no memory to diagnose the case");
}

/* A contiguous copy in float64; NULL for a view without data. Without memory, *missing is set. */
static double *doubles(mha__bug_inputs *w, const mha_view *v, bool *missing)
{
    if (!v->data)
        return NULL;
    mha_view copy = mha__arena_view(&w->pool, MHA_F64, v->rank, v->shape);
    if (copy.data && mha_view_copy(&copy, v, NULL) == MHA_OK)
        return copy.data;
    *missing = true;
    return NULL;
}

double mha__bug_gate_of(const mha_case *c, const double *x, size_t column, int rounding)
{
    const mha_view *W = &c->weights[CASE_RECORDED][MHA_W_G], *b = &c->weights[CASE_RECORDED][MHA_B_G];
    double sum = b->data ? mha__bug_rounded(mha_view_get(b, &column), rounding) : 0;
    for (size_t i = 0; i < c->E_q; i++)
        sum += x[i] * mha__bug_rounded(mha_view_get(W, (size_t[]){i, column}), rounding);
    return sum;
}

/* Computes x_q W_G + b_G; false without memory. */
static bool project_gate(mha__bug_inputs *w)
{
    const mha_view *W = &w->c->weights[CASE_RECORDED][MHA_W_G];
    const size_t rows = w->c->B * w->c->T_q, in = w->c->E_q;
    if (!W->data)
        return true;
    w->gates = W->shape[1];
    w->gate = mha__arena_take(&w->pool, rows * w->gates * sizeof(double) + 1);
    for (size_t e = 0; w->gate && e < rows * w->gates; e++)
        w->gate[e] = mha__bug_gate_of(w->c, w->x[PROJECTION_Q] + e / w->gates * in, e % w->gates, ROUND_NOT);
    return w->gate != NULL;
}

static bool read_numbers(mha__bug_inputs *w)
{
    static const mha_weight W[] = {MHA_W_Q, MHA_W_K, MHA_W_V, MHA_W_O}, b[] = {MHA_B_Q, MHA_B_K, MHA_B_V, MHA_B_O};
    static const mha_weight norms[] = {MHA_Q_NORM, MHA_K_NORM}, norm_biases[] = {MHA_Q_NORM_BIAS, MHA_K_NORM_BIAS};
    static const mha_weight bias_kv[] = {MHA_BIAS_K, MHA_BIAS_V};
    static const case_tensor past[] = {CASE_PAST_KEY, CASE_PAST_VALUE};
    const mha_case *c = w->c;
    const mha_view *recorded = c->weights[CASE_RECORDED];
    const mha_call call = mha_case_call(c);
    const mha_view *x[] = {&call.query, &call.key, &call.value}; /* the value is the key's, where there are latents */
    bool missing = false;
    for (int i = 0; i < 3; i++)
        w->x[i] = doubles(w, x[i], &missing);
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        w->W[i] = doubles(w, &recorded[W[i]], &missing);
        w->b[i] = doubles(w, &recorded[b[i]], &missing);
    }
    for (int i = 0; i < 2; i++) {
        const mha_view *norm = &recorded[norms[i]];
        w->norm[i] = doubles(w, norm, &missing);
        w->norm_bias[i] = doubles(w, &recorded[norm_biases[i]], &missing);
        w->norm_weights[i] = norm->data ? mha_view_elements(norm) : 0;
        w->norm_over_row[i] = mha__norm_of_weight(norm, i ? c->H_kv : c->H, c->d_k) == MHA_NORM_ROW;
        w->bias_kv[i] = doubles(w, &recorded[bias_kv[i]], &missing);
        if (c->P > 0)
            w->past[i] = doubles(w, &c->tensors[past[i]], &missing);
    }
    w->sinks = doubles(w, &recorded[MHA_SINKS], &missing);
    w->bias_table = doubles(w, &recorded[MHA_BIAS_TABLE], &missing);
    for (int t = 0; t < 3; t++)
        w->relative[t] = doubles(w, &recorded[MHA_RELATIVE_K + t], &missing);
    return !missing && project_gate(w) && mha__bug_axes(w) &&
           (c->kv_rank == 0 || mha__bug_latents(w)); /* which takes the place of x */
}

/* Inputs like `w` with a case of their own, *other, like that of `w`, all in memory of `w`; NULL without memory. */
static mha__bug_inputs *twin_of(mha__bug_inputs *w, mha_case **other)
{
    mha__bug_inputs *twin = mha__arena_take(&w->pool, sizeof *twin);
    *other = mha__arena_take(&w->pool, sizeof **other);
    if (!twin || !*other)
        return NULL;
    **other = *w->c;
    *twin = *w;
    twin->c = *other;
    return twin;
}

/* A copy of rows (outer, n, m, width) as (outer, m, n, width); NULL without memory. */
static double *exchanged(mha__bug_inputs *w, const double *rows, size_t outer, size_t n, size_t m, size_t width)
{
    double *copy = mha__arena_take(&w->pool, outer * n * m * width * sizeof *copy + 1);
    for (size_t row = 0; copy && row < outer * n * m; row++) {
        const size_t o = row / (n * m), i = row / m % n, k = row % m;
        memcpy(copy + ((o * m + k) * n + i) * width, rows + row * width, width * sizeof *copy);
    }
    return copy;
}

/* Copies the inputs with their batch rows in the place of time; false without memory. */
static bool exchange(mha__bug_inputs *w)
{
    const mha_case *c = w->c;
    mha_case *other;
    if (!mha__case_exchanges(c))
        return true;
    mha__bug_inputs *e = twin_of(w, &other);
    if (!e)
        return false;
    other->B = c->T_q;
    other->T_q = other->T_k = e->S = c->B;
    for (int i = 0; i < 3; i++) {
        e->T[i] = c->B;
        if (!(e->x[i] = exchanged(w, w->x[i], 1, c->B, c->T_q, w->in[i])))
            return false;
        for (int m = 0; m < LATENT_COUNT; m++) /* rows are moved once: with what is right of the latents */
            e->of_latents[m].x[i] = e->x[i];
    }
    w->other = e;
    e->gate = w->gate ? exchanged(w, w->gate, 1, c->B, c->T_q, w->gates) : NULL;
    return e->gate || !w->gate;
}

/* Copies the inputs with their heads in the place of time, likewise. */
static bool turn(mha__bug_inputs *w)
{
    const mha_case *c = w->c;
    mha_case *other;
    if (!mha__case_turns(c))
        return true;
    mha__bug_inputs *e = twin_of(w, &other);
    if (!e)
        return false;
    e->other = NULL;
    other->H = other->H_kv = c->T_q;
    other->T_q = c->H;
    other->T_k = e->S = c->H_kv;
    other->E_q = c->T_q * c->d_k;
    other->E_k = c->T_k * c->d_k;
    other->E_v = e->in[PROJECTION_O] = other->E_out = e->out[PROJECTION_O] = c->T_k * c->d_v;
    for (int i = 0; i < 3; i++) {
        e->T[i] = w->h[i];
        e->h[i] = w->T[i];
        e->in[i] = e->out[i] = w->T[i] * w->d[i];
        if (!(e->x[i] = exchanged(w, w->x[i], c->B, w->T[i], w->h[i], w->d[i])))
            return false;
    }
    w->turned = e;
    return true;
}

mha_status mha__bug_inputs_create(const mha_case *c, mha__bug_inputs **inputs, mha_error *error)
{
    *inputs = NULL;
    if (*c->skip)
        return mha__fail(error, MHA_UNSUPPORTED, c->name, "the case cannot be computed: %s", c->skip);
    mha_allocator a = c->pool.allocator;
    mha__bug_inputs *w = mha__allocate(&a, sizeof *w);
    if (!w)
        return no_memory(c, error);
    w->pool.allocator = a;
    w->c = c;
    w->S = c->P + c->T_k;
    w->one_list = c->T_q == c->T_k && !c->semantics.place.has_key_offset;
    const size_t latent = c->kv_rank + c->d_rope;
    const size_t in[] = {c->q_rank ? c->q_rank : c->E_q, c->kv_rank ? latent : c->E_k, c->kv_rank ? latent : c->E_v,
                         c->H * c->d_v};
    const size_t out[] = {c->H * c->d_k, c->H_kv * c->d_k, c->H_kv * c->d_v, c->E_out};
    const size_t T[] = {c->T_q, c->T_k, c->T_k}, h[] = {c->H, c->H_kv, c->H_kv}, d[] = {c->d_k, c->d_k, c->d_v};
    memcpy(w->in, in, sizeof in);
    memcpy(w->out, out, sizeof out);
    memcpy(w->T, T, sizeof T);
    memcpy(w->h, h, sizeof h);
    memcpy(w->d, d, sizeof d);
    if (!read_numbers(w) || !exchange(w) || !turn(w) || !mha__bug_split(w)) {
        mha__bug_inputs_destroy(w);
        return no_memory(c, error);
    }
    *inputs = w;
    return MHA_OK;
}

void mha__bug_inputs_destroy(mha__bug_inputs *inputs)
{
    if (!inputs)
        return;
    mha__arena_free(&inputs->pool);
    mha_allocator a = inputs->pool.allocator;
    mha__release(&a, inputs, sizeof *inputs);
}
