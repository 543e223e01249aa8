/* Cuts a case into slices: one batch row and one key/value head, with the query heads that read it. */
#include <string.h>

#include "attention/call/resolved.h"
#include "attention/layer/layer.h"
#include "attention/call/settings/settings.h"
#include "base/base.h"
#include "lab/settings.h"
#include "verify/diagnose/search_case.h"

/* Which part of the case a slice is. */
typedef struct part {
    size_t b, head, heads, group; /* batch row; first query head, and how many; key/value head */
} part;

static part part_of(const mha_case *c, size_t n)
{
    const size_t heads = c->H / c->H_kv, group = n % c->H_kv;
    return (part){n / c->H_kv, group * heads, heads, group};
}

/* ---------------------------------------------------------------- settings */

/* The axis that `symbol` names in a view of this rank, by the shape of a setting, "(n, rope_dim/2) or (B, T, ...)";
 * -1: none. Missing leading axes are those of a mask. */
static int axis_of(const char *shape, const char *symbol, int rank)
{
    int axis = -1, count = 0, found;
    for (const char *at = strchr(shape, '('); at && count != rank; at = strchr(at + 1, '(')) {
        found = mha__axis_named(at, symbol, &count);
        axis = found < 0 ? -1 : found - (count - rank);
    }
    return axis;
}

/* Cuts an axis to some of its indices; one that is broadcast stays. */
static void cut(mha_view *v, int axis, size_t from, size_t count)
{
    if (v->data && axis >= 0 && v->shape[axis] > 1)
        *v = mha_view_slice(v, axis, from, count);
}

static mha_status cut_settings(const mha_case *c, const part *p, mha_semantics *s, mha_error *error)
{
    const mha_setting *row;
    const char *shape = NULL;
    for (size_t i = 0; (row = mha_setting_at(i)); i++) {
        if (row->kind < MHA_SETTING_VIEW)
            continue;
        shape = shape && strncmp(row->shape, "as ", 3) == 0 ? shape : row->shape; /* as the row before it */
        mha_view v = mha__setting_view(row, &c->semantics, c->B, c->H);
        if (!v.data)
            continue;
        cut(&v, axis_of(shape, "B", v.rank), p->b, 1);
        cut(&v, axis_of(shape, "h", v.rank), p->head, p->heads);
        TRY(mha__setting_put_view(row, &v, s, error));
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- weights and inputs */

static void cut_weights(const mha_case *c, const part *p, mha_view weights[MHA_WEIGHT_COUNT])
{
    const mha_view *whole = c->weights[CASE_RECORDED];
    const mha_config config = mha__config_of_weights(whole, c->H, c->H_kv, c->d_k, c->d_v);
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        weights[w] = whole[w];
        const mha__weight_heads by = mha__config_weight_heads(&config, (mha_weight)w);
        if (by.heads > 0)
            cut(&weights[w], by.axis, (by.of_keys ? p->group : p->head) * by.width,
                (by.of_keys ? 1 : p->heads) * by.width);
    }
}

/* Cuts the axes of batch rows and of heads. */
static void cut_rows(mha_view *v, size_t b, int axis, size_t from, size_t count)
{
    if (!v->data)
        return;
    *v = mha_view_slice(v, 0, b, 1);
    *v = mha_view_slice(v, axis, from, count);
}

size_t mha__slice_count(const mha_case *c, int slot)
{
    const mha_view *weights = c->weights[CASE_RECORDED];
    const bool by_head = slot == (int)MHA_STAGE_OUTPUT || slot == (int)MHA_STAGE_HEADS || slot == (int)MHA_STAGE_LSE;
    if (c->kind != CASE_SDPA || !by_head || *c->skip || c->semantics.place.n_sequences > 0 ||
        c->tensors[CASE_PAGE_TABLE].data || mha__norm_of_weight(&weights[MHA_Q_NORM], c->H, c->d_k) == MHA_NORM_ROW ||
        mha__norm_of_weight(&weights[MHA_K_NORM], c->H_kv, c->d_k) == MHA_NORM_ROW)
        return 1;
    return c->B * c->H_kv;
}

/* ---------------------------------------------------------------- the case */

/* Copies the statements of a case about its results. */
static void take_over(const mha_case *c, int wide, int slot, mha_case *slice)
{
    slice->rtol = c->rtol, slice->atol = c->atol;
    slice->rtol64 = c->rtol64, slice->atol64 = c->atol64;
    slice->precision = c->precision;
    slice->cache_rounds = c->cache_rounds, slice->cache = c->cache;
    slice->overflow = c->overflow;
    slice->sample = c->sample;
    for (int w = 0; w < 2; w++)
        slice->expected[w][slot].atol = c->expected[w][slot].atol;
    slice->expected[wide][slot].name = c->expected[wide][slot].name;
    slice->expected[wide][slot].stored = c->expected[wide][slot].stored;
}

mha_status mha__slice_of(const mha_case *c, int wide, int slot, size_t n, mha_case **slice, mha_error *error)
{
    const part p = part_of(c, n);
    const mha_stage stage = (mha_stage)slot;
    mha_call call = mha_case_call(c);
    mha_view weights[MHA_WEIGHT_COUNT];
    mha_case_notes notes = {.name = c->name, .has_computed = true, .computed = wide ? MHA_F64 : MHA_F32};
    mha_keep recorded = {.stage = stage, .view = mha__target_view(c, &c->expected[wide][slot], stage)};
    cut_rows(&call.query, p.b, 2, p.head, p.heads);
    cut_rows(&call.key, p.b, 2, p.group, 1);
    cut_rows(&call.value, p.b, 2, p.group, 1);
    mha_case_past(c, &notes.past_key, &notes.past_value);
    cut_rows(&notes.past_key, p.b, 1, p.group, 1);
    cut_rows(&notes.past_value, p.b, 1, p.group, 1);
    if (stage == MHA_STAGE_HEADS)
        cut_rows(&recorded.view, p.b, 2, p.head * c->d_v, p.heads * c->d_v);
    else
        cut_rows(&recorded.view, p.b, stage == MHA_STAGE_LSE ? 1 : 2, p.head, p.heads);
    cut_weights(c, &p, weights);
    TRY(cut_settings(c, &p, &call.semantics, error));
    call.weights = weights;
    notes.rope_origin = c->origin;
    mha_view *positions = &notes.rope_origin.positions;
    cut(positions, axis_of("(axes, B, T) or (axes, T)", "B", positions->rank), p.b, 1);
    TRY(mha__case_of_call(NULL, &call, &recorded, 1, &notes, slice, error));
    take_over(c, wide, slot, *slice);
    return MHA_OK;
}
