/* Inputs and weights of a case as doubles, and the other calls that a bug computes. */
#include <string.h>

#include "attention/call/resolved.h"
#include "attention/layer/layer.h"
#include "base/base.h"
#include "verify/engine/runner.h"

/* A contiguous copy in float64; NULL for a view without data. Sets *missing without memory. */
static double *doubles(mha__inputs *w, const mha_view *v, bool *missing)
{
    mha_view copy = {0};
    *missing |= mha__arena_copy(&w->pool, MHA_F64, v, "", &copy, NULL) != MHA_OK;
    return copy.data;
}

static bool read_numbers(mha__inputs *w)
{
    const mha_case *c = w->c;
    const mha_view *recorded = c->weights[CASE_RECORDED];
    const mha_call call = mha_case_call(c);
    const mha_view *x[] = {&call.query, &call.key, c->kv_rank ? &call.key : &call.value};
    bool missing = false;
    for (int i = 0; i < 3; i++)
        w->x[i] = doubles(w, x[i], &missing);
    for (int i = 0; i < MHA_WEIGHT_COUNT; i++)
        w->weight[i] = doubles(w, &recorded[i], &missing);
    for (int i = 0; i < 2; i++) {
        const mha_view *norm = &recorded[MHA_Q_NORM + i];
        w->norm_weights[i] = norm->data ? mha_view_elements(norm) : 0;
        w->norm_over_row[i] = mha__norm_of_weight(norm, i ? c->H_kv : c->H, c->d_k) == MHA_NORM_ROW;
        w->past[i] = c->P > 0 ? doubles(w, &c->tensors[CASE_PAST_KEY + i], &missing) : NULL;
    }
    w->gates = recorded[MHA_W_G].data ? recorded[MHA_W_G].shape[1] : 0;
    return !missing;
}

/* ---------------------------------------------------------------- other calls */

/* Inputs of another call: those of `w` with heads, or batch rows, and time exchanged. NULL without memory. */
static mha__inputs *recast(mha__inputs *w, bool heads, const mha_case *as)
{
    const mha_call call = mha_case_call(w->c);
    const mha_view *x[] = {&call.query, &call.key, as->kv_rank ? &call.key : &call.value};
    mha__inputs *to = mha__arena_take(&w->pool, sizeof *to);
    mha_case *c = mha__arena_take(&w->pool, sizeof *c);
    bool missing = false;
    if (!to || !c)
        return NULL;
    *c = *as;
    *to = *w;
    to->c = c;
    to->other = to->turned = NULL;
    to->S = c->T_k;
    for (int i = 0; i < 3; i++) {
        const mha_view exchanged = mha__view_swap(x[i], heads, heads + 1);
        to->x[i] = doubles(w, &exchanged, &missing);
        to->T[i] = i ? c->T_k : c->T_q;
        to->h[i] = i ? c->H_kv : c->H;
        if (heads)
            to->in[i] = to->out[i] = to->x_width[i] = w->T[i] * w->d[i];
    }
    return missing ? NULL : to;
}

/* Creates the calls with batch rows, or heads, as time. */
static bool recast_all(mha__inputs *w)
{
    mha_case c = *w->c;
    c.B = w->c->T_q, c.T_q = c.T_k = w->c->B;
    if (mha__can_exchange(w->c) && !(w->other = recast(w, false, &c)))
        return false;
    c = *w->c;
    c.H = c.H_kv = w->c->T_q, c.T_q = w->c->H, c.T_k = w->c->H_kv;
    c.E_q = c.H * c.d_k, c.E_k = w->c->T_k * c.d_k, c.E_v = c.E_out = w->c->T_k * c.d_v;
    if (mha__can_turn(w->c) && !(w->turned = recast(w, true, &c)))
        return false;
    if (w->turned)
        w->turned->in[PROJECTION_O] = w->turned->out[PROJECTION_O] = c.E_v;
    return true;
}

/* ---------------------------------------------------------------- all of it */

mha_status mha__inputs_create(const mha_case *c, mha__inputs **inputs, mha_error *error)
{
    *inputs = NULL;
    if (*c->skip)
        return mha__fail(error, MHA_UNSUPPORTED, c->name, "the case cannot be computed: %s", c->skip);
    mha_allocator a = c->pool.allocator;
    mha__inputs *w = mha__allocate(&a, sizeof *w);
    if (!w)
        return mha__fail(error, MHA_NO_MEMORY, c->name, "no memory to diagnose the case");
    w->pool.allocator = a;
    w->c = c;
    w->S = c->P + c->T_k;
    w->one_list = c->T_q == c->T_k && !c->semantics.place.has_key_offset;
    const size_t latent = c->kv_rank + c->d_rope, x_k = c->E_k, x_v = c->kv_rank ? c->E_k : c->E_v;
    const size_t in[] = {c->q_rank ? c->q_rank : c->E_q, c->kv_rank ? latent : c->E_k, c->kv_rank ? latent : c->E_v,
                         c->H * c->d_v},
                 x[] = {c->E_q, x_k, x_v};
    const size_t out[] = {c->H * c->d_k, c->H_kv * c->d_k, c->H_kv * c->d_v, c->E_out};
    const size_t T[] = {c->T_q, c->T_k, c->T_k}, h[] = {c->H, c->H_kv, c->H_kv}, d[] = {c->d_k, c->d_k, c->d_v};
    memcpy(w->in, in, sizeof in), memcpy(w->out, out, sizeof out), memcpy(w->x_width, x, sizeof x);
    memcpy(w->T, T, sizeof T), memcpy(w->h, h, sizeof h), memcpy(w->d, d, sizeof d);
    if (!read_numbers(w) || !mha__latent_past(w) || !recast_all(w) || !mha__inputs_split(w)) {
        mha__inputs_destroy(w);
        return mha__fail(error, MHA_NO_MEMORY, c->name, "no memory to diagnose the case");
    }
    *inputs = w;
    return MHA_OK;
}

void mha__inputs_destroy(mha__inputs *inputs)
{
    if (!inputs)
        return;
    mha__arena_free(&inputs->pool);
    mha_allocator a = inputs->pool.allocator;
    mha__release(&a, inputs, sizeof *inputs);
}

int64_t mha__first_query(const mha_case *c, size_t b)
{
    return (c->semantics.place.position_offset ? c->semantics.place.position_offset[b] : (int64_t)c->P) -
           c->semantics.place.key_offset;
}
