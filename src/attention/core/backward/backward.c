/* The gradients of a call: the equations on one page, in the order in which they run. Each line is a step.
 *
 * A layer begins with the gradients of its end, W_O and the gate (backward_output.c), which give those of its heads.
 * A forward of the exact path has made, for each sequence and head, with queries i and keys j (extra rows included),
 *
 *   S = scale Q K^T   C = c tanh(S / c)   Z = C + what is added   P = softmax(Z)   O = P m V   lse_i = log sum_j e^Z_ij
 *
 * where P m is P times the m of a dropout, element by element: 1, or 0 and 1 / (1 - p).
 *
 * With dO and dlse the gradients of O and lse (Vaswani et al. 2017 for the forward; Dao 2023, FlashAttention-2,
 * section 2.2 and algorithm 2 for dV, dP, dS, dQ, dK; the rest is the chain rule):
 *
 *   dP_ij = m_ij dO_i . V_j
 *   D_i   = sum_j P_ij dP_ij, which is dO_i . O_i
 *   dZ_ij = P_ij (dP_ij - D_i + dlse_i)            sigmoid: P_ij (1 - P_ij) dP_ij
 *   dS_ij = dZ_ij / cosh^2(S_ij / c)               without softcap dZ_ij
 *   dQ_i  = scale sum_j dS_ij K_j                  dK_j = scale sum_i dS_ij Q_i            dV_j = sum_i P_ij m_ij dO_i
 *
 * where a key/value head has the sum over the query heads of its group. Where the keys are a part of those of a softmax
 * whose O and lse are given, P_ij = exp(Z_ij - lse_i) and D_i = dO_i . O_i are by these. Of the terms of Z:
 *
 *   mask, key padding    dZ_ij, summed over what shared an element
 *   ALiBi                d slope = -sum_ij (p_i - q_j) dZ_ij
 *   bias table           d of a row = the sum of dZ_ij over the pairs that it stands for
 *   relative terms       k_scale Q_i . R: dQ_i += k_scale dZ_ij R, dR += k_scale dZ_ij Q_i; the same for K
 *   sinks                one more key without a value: d sink = sum_i e^(sink - lse_i) (0 - D_i + dlse_i)
 *
 * Keys and values in a cache or in pages are those of other calls, and their gradients end there (backward_held.c).
 * Rows of the call go back through what was done to them, last step first (backward_rows.c), and then through their
 * projections (backward_inputs.c; backward_latents.c):
 *
 *   y = x W + b          dx = dy W^T   dW = x^T dy   db = the sum of dy over all rows (backward_products.c) */
#include "attention/call/definition.h"
#include "attention/core/backward/backward.h"

#include <string.h>

#include "attention/cache/cache.h"
#include "attention/core/exact/rounding.h"

static mha_status refuse(const char *what, mha_error *error)
{
    return mha__fail(error, MHA_UNSUPPORTED, what,
                     "expected none with gradients of given inputs in float64; leave this out");
}

static mha_status check_call(const mha_layer *layer, const mha_call *call, const mha_gradients *given, mha_error *error)
{
    if (call->absorbed && (call->cache || call->pages.keys.data))
        return mha__fail(error, MHA_UNSUPPORTED, "absorbed", "gradients of latents in a cache or in pages are not "
                         "computed: expected their keys and values");
    if (call->partial.data)
        return refuse("partial", error);
    if (mha__precision_rounds(&call->precision))
        return refuse("precision", error);
    if (call->semantics.softmax.dropout_keep.data && given->whole.lse.data)
        return mha__fail(error, MHA_UNSUPPORTED, "dropout_keep",
                         "expected gradients of all keys with dropped weights; leave whole.lse out");
    TRY(mha__backward_precision_check(layer, &given->precision, error));
    TRY(mha__expect_unused_types("precision", given->precision.reserved,
                                 sizeof given->precision.reserved / sizeof *given->precision.reserved, error));
    TRY(mha__expect_unused("whole", given->whole.reserved, sizeof given->whole.reserved, error));
    for (int g = MHA_GRADIENT_COUNT; g < MHA_GRADIENT_ROOM; g++)
        if (given->of[g].data)
            return mha__fail(error, MHA_UNSUPPORTED, "gradients",
                             "expected gradients of this version, found gradient %d of a later version", g);
    return mha__expect_unused("gradients", given->reserved, sizeof given->reserved, error);
}

static mha_status check_view(const char *name, const mha_view *view, bool written, int rank, const size_t *shape,
                             mha_error *error)
{
    TRY(mha__expect_shape(error, name, view, rank, shape));
    if (!view->data && mha_view_elements(view) != 0)
        return mha__fail(error, MHA_INVALID, name, "expected data, found none");
    if (!mha__dtype_is_float(view->dtype) || (written && view->dtype != MHA_F32 && view->dtype != MHA_F64))
        return mha__fail(error, MHA_INVALID, name, "expected elements of F32%s, found %s",
                         written ? " or F64" : ", F64, F16 or BF16", mha_dtype_name(view->dtype));
    return MHA_OK;
}

/* Checks what is known of all keys, of which those of the call are a part. */
static mha_status check_whole(const mha__backward *b, const size_t by_head[4], mha_error *error)
{
    const mha_whole_softmax *whole = &b->given->whole;
    size_t shape[4];
    const int rank = mha_plan_stage(&b->plan, MHA_STAGE_LSE, shape);
    if (!whole->lse.data)
        return MHA_OK;
    if (b->r->layer || rank == 0)
        return mha__fail(error, MHA_UNSUPPORTED, "whole lse", "expected given heads and a softmax, found %s",
                         rank == 0 ? "a sigmoid, whose keys are each by itself" : "a layer");
    TRY(check_view("whole lse", &whole->lse, false, rank, shape, error));
    TRY(check_view("whole output", &whole->output, false, 4, by_head, error));
    return whole->sizes.data ? check_view("whole sizes", &whole->sizes, false, 4, by_head, error) : MHA_OK;
}

/* Checks the stages that are to be kept; those without data are not. */
static mha_status check_stages(const mha__backward *b, mha_error *error)
{
    const mha_gradients *given = b->given;
    bool wanted[MHA_BACKWARD_STAGE_COUNT] = {false};
    if (given->keep_count > 0 && !given->keep)
        return mha__fail(error, MHA_INVALID, "keep", "expected %zu stages, found no list", given->keep_count);
    for (size_t i = 0; i < given->keep_count; i++) {
        const mha_backward_keep *keep = &given->keep[i];
        size_t shape[4];
        if ((unsigned)keep->stage >= MHA_BACKWARD_STAGE_COUNT)
            return mha__fail(error, MHA_INVALID, "keep", "expected stages of a backward, found %d", (int)keep->stage);
        const char *name = mha_backward_stage_at(keep->stage)->name;
        if (wanted[keep->stage])
            return mha__fail(error, MHA_INVALID, name, "expected each stage once, found it twice");
        wanted[keep->stage] = keep->view.data;
        if (!keep->view.data)
            continue;
        const int rank = mha_backward_stage_shape(&b->plan, keep->stage, shape);
        if (rank == 0)
            return mha__fail(error, MHA_INVALID, name, "expected a stage that the backward of this call has");
        TRY(check_view(name, &keep->view, true, rank, shape, error));
    }
    return MHA_OK;
}

/* Checks what is given against the planned call. */
static mha_status check_gradients(const mha__backward *b, mha_error *error)
{
    const mha__resolved *r = b->r;
    const mha_gradients *given = b->given;
    const size_t B = r->query.shape[0], T = r->query.shape[1];
    const size_t by_head[4] = {B, T, r->plan.h, r->plan.d_v}, by_row[3] = {B, T, r->plan.d_out};
    const int rank = r->layer || given->d_output.rank == 3 ? 3 : 4;
    TRY(check_view("d_output", &given->d_output, false, rank, rank == 3 ? by_row : by_head, error));
    if (given->d_lse.data) {
        size_t shape[4];
        const int of_lse = mha_plan_stage(&b->plan, MHA_STAGE_LSE, shape);
        if (of_lse == 0)
            return mha__fail(error, MHA_UNSUPPORTED, "d_lse", "expected a softmax, found a sigmoid, which has no lse");
        TRY(check_view("d_lse", &given->d_lse, false, of_lse, shape, error));
    }
    TRY(check_whole(b, by_head, error));
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        char name[64];
        size_t shape[4];
        if (!given->of[g].data)
            continue;
        mha__text_print(name, sizeof name, "d_%s", mha_gradient_name((mha_gradient)g));
        const int of_g = mha_gradient_shape(&b->plan, (mha_gradient)g, shape);
        if (of_g == 0)
            return mha__fail(error, MHA_INVALID, name, "expected none: the call has no such gradient");
        TRY(check_view(name, &given->of[g], true, of_g, shape, error));
    }
    return MHA_OK;
}

/* The stages of the forward that the backward reads. */
static void want_stages(const mha__resolved *r, bool wanted[MHA_STAGE_COUNT])
{
    static const mha_stage read[] = {MHA_STAGE_Q, MHA_STAGE_K, MHA_STAGE_V, MHA_STAGE_Q_ROT, MHA_STAGE_K_ROT,
                                     MHA_STAGE_WEIGHTS};
    const bool sigmoid = mha__semantics_of(r)->softmax.normaliser == MHA_SIGMOID;
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        wanted[read[i]] = true;
    wanted[MHA_STAGE_LSE] = !sigmoid;
    wanted[MHA_STAGE_MASKED] = sigmoid; /* 1 - P is that of -Z, where P is nearly 1 */
    wanted[MHA_STAGE_SCORES] = mha__semantics_of(r)->softmax.softcap > 0;
    wanted[MHA_STAGE_HEADS] = r->layer != NULL;
}

/* Plans the forward, with a cache of its own, because it appends to it. */
static mha_status plan(mha__backward *b, const mha_layer *layer, mha_error *error)
{
    mha_call call = b->call;
    call.cache = b->cache;
    return mha_plan_call(layer, &call, &b->plan, error);
}

static mha_status no_memory(mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, "backward", "no memory for the stages of this call");
}

static mha_status run_forward(mha__backward *b, mha_error *error)
{
    bool wanted[MHA_STAGE_COUNT] = {false};
    want_stages(b->r, wanted);
    for (int s = 0; s < MHA_STAGE_COUNT; s++) {
        size_t shape[4];
        if (!wanted[s])
            continue;
        const int rank = mha_plan_stage(&b->plan, (mha_stage)s, shape);
        b->stages[s] = mha__arena_view(&b->memory, MHA_F64, rank, shape);
        if (!b->stages[s].data)
            return no_memory(error);
        b->keep[b->call.keep_count++] = (mha_keep){.stage = (mha_stage)s, .view = b->stages[s]};
    }
    if (!mha__backward_keep_keys(b))
        return no_memory(error);
    b->call.keep = b->keep;
    TRY(plan(b, b->r->layer, error));
    void *workspace = mha__arena_scratch(&b->memory, b->plan.workspace_bytes);
    if (!workspace)
        return no_memory(error);
    return mha_forward(&b->plan, workspace, b->plan.workspace_bytes, error);
}

/* The shape in which a gradient is added up: of query, key and value that of q, k and v. */
static int gathered_shape(const mha__resolved *r, const mha_plan *plan, mha_gradient g, size_t shape[4])
{
    const mha__sizes *p = &r->plan;
    if (g > MHA_D_VALUE)
        return mha_gradient_shape(plan, g, shape);
    const mha_view *x = g == MHA_D_QUERY ? &r->query : &r->key;
    const size_t by_head[4] = {x->shape[0], x->shape[1], g == MHA_D_QUERY ? p->h : p->h_kv,
                               g == MHA_D_VALUE ? p->d_v : p->d_k};
    memcpy(shape, by_head, sizeof by_head);
    return 4;
}

mha_status mha__backward_begin(mha__backward *b, const mha_layer *layer, const mha_call *call,
                               const mha_gradients *gradients, const bool wanted[MHA_GRADIENT_COUNT], mha_error *error)
{
    *b = (mha__backward){.given = gradients, .memory.allocator = mha__allocator_default(), .call = *call};
    if (layer)
        b->memory.allocator = *mha_params_allocator(mha_layer_params(layer));
    TRY(check_call(layer, call, gradients, error));
    b->call.path = MHA_PATH_EXACT;
    b->call.output = (mha_view){0};
    b->call.keep_count = 0;
    b->call.absorbed = false; /* another way to the same output */
    if (layer) /* W_O, too, gets nothing from a query that sees no key */
        b->call.semantics.softmax.empty_rows = MHA_EMPTY_ZERO;
    b->call.precision.scores = gradients->precision.scores;
    if (call->cache)
        TRY(mha__cache_duplicate(call->cache, &b->cache, error));
    TRY(plan(b, layer, error));
    b->r = mha__plan_resolved(&b->plan);
    TRY(check_gradients(b, error));
    TRY(check_stages(b, error));
    TRY(run_forward(b, error));
    if (!mha__backward_begin_stages(b))
        return no_memory(error);
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        size_t shape[4];
        const int rank = gathered_shape(b->r, &b->plan, (mha_gradient)g, shape);
        if (g > MHA_D_VALUE && !gradients->of[g].data && !(wanted && wanted[g] && rank > 0))
            continue;
        b->d[g] = mha__arena_view(&b->memory, MHA_F64, rank, shape);
        if (!b->d[g].data)
            return no_memory(error);
    }
    if (!mha__backward_begin_keys(b))
        return no_memory(error);
    const mha__sizes *p = &b->r->plan;
    const size_t of_k = (p->h > p->h_kv ? p->h : p->h_kv) * p->d_k, of_v = p->h_kv * p->d_v;
    b->row = mha__arena_scratch(&b->memory, (of_k > of_v ? of_k : of_v) * sizeof *b->row);
    char *maps = mha__arena_scratch(&b->memory, mha__map_lay_out(b->r, NULL, &b->map));
    if (!maps || !b->row || !mha__backward_begin_inputs(b) || !mha__backward_begin_output(b))
        return no_memory(error);
    (void)mha__map_lay_out(b->r, maps, &b->map);
    return MHA_OK;
}

static void show(mha__backward *b, mha__backward_step step, mha__map *map)
{
    mha__backward_round(b, step, map);
    if (b->watch)
        b->watch(b->context, b, step, map);
    mha__backward_keep(b, step, map);
}

/* One head of one sequence: the equations above. */
static void run_map(mha__backward *b, size_t sequence, size_t head)
{
    static void (*const steps[])(const mha__backward *, mha__map *) = {
        mha__map_weights, mha__map_sums, mha__map_masked, mha__map_scores, mha__map_products, mha__map_added};
    mha__map *map = &b->map;
    mha__map_read(b, sequence, head);
    show(b, MHA__BACKWARD_READ, map);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        steps[i](b, map);
        show(b, (mha__backward_step)(MHA__BACKWARD_WEIGHTS + i), map);
    }
    mha__map_gather(b, map);
}

void mha__backward_run(mha__backward *b)
{
    b->turns[0] = b->turns[1] = MHA__TURNED_BACK;
    b->norms_of = 0;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        mha__matrix_clear(&b->d[g]);
    for (int i = 0; i < 3; i++)
        mha__matrix_clear(&b->d_x[i]);
    mha__backward_clear_keys(b);
    mha__backward_output(b);
    show(b, MHA__BACKWARD_OUTPUT, NULL);
    for (size_t sequence = 0; sequence < b->r->plan.B; sequence++)
        for (size_t head = 0; head < b->r->plan.h; head++)
            if (!b->alone || (sequence == b->alone_sequence && head == b->alone_head))
                run_map(b, sequence, head);
    mha__backward_deal_keys(b);
    show(b, MHA__BACKWARD_HEADS, NULL);
    mha__backward_rows(b);
    mha__backward_inputs(b);
    show(b, MHA__BACKWARD_INPUTS, NULL);
}

void mha__backward_free(mha__backward *b)
{
    mha__arena_free(&b->memory);
    mha_cache_destroy(b->cache);
}

const mha_view *mha__backward_result(const mha__backward *b, int gradient)
{
    const bool of_input = gradient <= MHA_D_VALUE;
    return of_input && b->d_x[gradient].data ? &b->d_x[gradient] : &b->d[gradient];
}

/* Copies a gradient, as a modelled precision stores it. */
static void hand_out(const mha_view *d, mha_dtype type, const mha_view *to)
{
    const mha_view shaped = mha_view_of(d->data, MHA_F64, to->rank, to->shape);
    mha__round_all(type, d->data, mha_view_elements(d));
    (void)mha_view_copy(to, &shaped, NULL);
}

mha_status mha_backward(const mha_layer *layer, const mha_call *call, const mha_gradients *gradients, mha_error *error)
{
    mha__backward b;
    const mha_status status = mha__backward_begin(&b, layer, call, gradients, NULL, error);
    if (status == MHA_OK) {
        mha__backward_run(&b);
        for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
            if (gradients->of[g].data)
                hand_out(mha__backward_result(&b, g), gradients->precision.gradients, &gradients->of[g]);
        mha__backward_hand_stages(&b, gradients->precision.gradients, gradients);
    }
    mha__backward_free(&b);
    return status;
}
