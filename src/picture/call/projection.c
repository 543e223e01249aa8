/* Rotated queries and keys of a call: of all heads at once, or of some after the other where they take much memory. */
#include "mha/split.h"
#include "picture/call/call.h"

/* A stage (B, T, heads * width) as (B, T, heads, width). */
static mha_view by_head(mha_view stage, size_t heads)
{
    const size_t width = stage.shape[2] / heads;
    return mha_view_of(stage.data, stage.dtype, 4, (size_t[]){stage.shape[0], stage.shape[1], heads, width});
}

/* Runs the call that was asked for as far as it is needed. To have the keys of a cache, it attends, too: each query to
 * its own key alone. */
static mha_status project_all(mha__drawn_call *d, mha_error *error)
{
    bool wanted[MHA_STAGE_COUNT] = {[MHA_STAGE_Q_ROT] = true};
    mha_semantics *m = &d->asked.call.semantics;
    const mha_view *stages = d->asked.stages;
    d->first_head = d->first_kv = 0;
    if (d->r->cache) {
        m->visible.has_window_left = m->visible.has_window_right = true;
        m->visible.window_left = m->visible.window_right = 0;
        wanted[MHA_STAGE_PRESENT_KEY] = true;
        TRY(mha__attempt_run(&d->asked, MHA_BTE, wanted, error));
        d->keys = mha__view_swap(&stages[MHA_STAGE_PRESENT_KEY], 1, 2);
    } else {
        wanted[MHA_STAGE_K_ROT] = true;
        TRY(mha__attempt_run_inputs(&d->asked, wanted, error));
        d->keys = by_head(stages[MHA_STAGE_K_ROT], d->plan.h_kv);
    }
    d->queries = by_head(stages[MHA_STAGE_Q_ROT], d->plan.h);
    return MHA_OK;
}

/* ---------------------------------------------------------------- some heads */

static mha_split split_of(const mha__drawn_call *d, size_t ranks)
{
    return (mha_split){.scheme = MHA_SPLIT_TENSOR, .ranks = ranks, .config = *mha_layer_config(d->r->layer),
                       .B = d->r->query.shape[0], .T_q = d->r->query.shape[1], .T_k = d->r->key.shape[1]};
}

size_t mha__drawn_call_group(const mha__drawn_call *d, size_t bytes)
{
    const mha_plan *p = &d->plan;
    size_t best = p->h, parts = 1;
    if (!d->r->layer || d->r->cache || p->path == MHA_PATH_EXACT ||
        !mha__dtype_is_float(mha_layer_config(d->r->layer)->dtype))
        return best;
    const double all = (double)sizeof(float) * (double)p->d_k *
                       ((double)d->r->query.shape[0] * (double)d->r->query.shape[1] * (double)p->h +
                        (double)d->r->key.shape[0] * (double)d->r->key.shape[1] * (double)p->h_kv);
    for (size_t ranks = 1; ranks <= p->h && all / (double)parts > (double)bytes; ranks++) {
        mha_split split = split_of(d, ranks);
        mha_error unused;
        if (mha_split_check(&split, &unused) == MHA_OK)
            best = p->h / ranks, parts = ranks;
    }
    return best;
}

/* A layer of some heads that makes queries and keys; values and output have one feature, and mean nothing. */
static mha_status make_part(const mha_split *split, size_t rank, const mha_layer *whole, mha_layer **part,
                            mha_error *error)
{
    static const mha_weight made[] = {MHA_W_Q, MHA_B_Q, MHA_W_K, MHA_B_K, MHA_Q_NORM, MHA_K_NORM, MHA_Q_NORM_BIAS,
                                      MHA_K_NORM_BIAS};
    mha_config config = mha_split_share(split, rank).config;
    config.d_v = config.d_out = 1;
    config.d_vin = config.d_kin;
    config.bias_v = config.bias_o = config.bias_kv = config.sinks = config.bias_gate = false;
    config.gate = MHA_GATE_NONE;
    config.bias_rows = config.relative_k_rows = config.relative_column_rows = config.relative_q_rows = 0;
    config.relative_by_head = false;
    TRY(mha_layer_create(&config, NULL, NULL, part, error));
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        const mha_tensor *tensor = mha_layer_weight(whole, made[i]);
        if (!tensor)
            continue;
        const mha_view view = mha_tensor_view(tensor), slice = mha_split_slice(split, rank, made[i], &view);
        if (!view.data)
            return mha__fail(error, MHA_NO_MEMORY, mha_weight_at(made[i])->name, "no memory to unpack it");
        TRY(mha_layer_set(*part, made[i], &slice, error));
    }
    return MHA_OK;
}

static mha_status project_part(mha__drawn_call *d, const mha_layer *part, mha_error *error)
{
    const mha_call *asked = &d->asked.call;
    const mha_semantics *m = &asked->semantics;
    const mha_call call = {.query = asked->query,
                           .key = asked->key,
                           .path = d->plan.path,
                           .threads = asked->threads,
                           .semantics = {.place = m->place, .qkv = m->qkv}};
    const mha__request request = {.layer = part, .call = &call};
    const bool wanted[MHA_STAGE_COUNT] = {[MHA_STAGE_Q_ROT] = true, [MHA_STAGE_K_ROT] = true};
    TRY(mha__attempt_begin(&d->projection, &d->memory->allocator, &request, error));
    TRY(mha__attempt_run_inputs(&d->projection, wanted, error));
    d->queries = by_head(d->projection.stages[MHA_STAGE_Q_ROT], d->projection.plan.h);
    d->keys = by_head(d->projection.stages[MHA_STAGE_K_ROT], d->projection.plan.h_kv);
    return MHA_OK;
}

mha_status mha__drawn_call_project(mha__drawn_call *d, size_t first, size_t group, mha_error *error)
{
    if (group == d->plan.h)
        return project_all(d, error);
    mha_split split = split_of(d, d->plan.h / group);
    mha_layer *part = NULL;
    mha__attempt_free(&d->projection);
    d->first_head = first;
    d->first_kv = mha_split_share(&split, first / group).kv_heads.from;
    mha_status status = make_part(&split, first / group, d->r->layer, &part, error);
    if (status == MHA_OK)
        status = project_part(d, part, error);
    mha_layer_destroy(part);
    return status;
}
