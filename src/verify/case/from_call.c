/* Makes a case of a call in memory and of results recorded for it, without a file. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attention/call/definition.h"
#include "base/base.h"
#include "verify/attempt/attempt.h"
#include "verify/attempt/unpaged.h"
#include "verify/case/record.h"

static mha_status no_memory(const char *name, mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, name, "no memory for a copy");
}

static bool is_real(mha_dtype dtype)
{
    return dtype == MHA_F32 || dtype == MHA_F64 || mha__is_short_float(dtype);
}

/* A contiguous copy: F64 stays F64, other floats become F32. A view without data gives a view without data. */
static mha_status copy_reals(mha_case *c, const char *name, const mha_view *from, mha_view *to, mha_error *error)
{
    if (from->data && !is_real(from->dtype))
        return mha__fail(error, MHA_INVALID, name, "expected floating-point numbers, found %s",
                         mha_dtype_name(from->dtype));
    return mha__arena_copy(&c->pool, from->dtype == MHA_F64 ? MHA_F64 : MHA_F32, from, name, to, error);
}

static mha_status copy_inputs(mha_case *c, const mha_call *call, const mha_case_notes *notes, mha_error *error)
{
    const mha_view *key = call->key.data ? &call->key : &call->query, *value = call->value.data ? &call->value : key;
    TRY(copy_reals(c, "query", &call->query, &c->tensors[CASE_QUERY], error));
    if (call->key.data)
        TRY(copy_reals(c, "key", key, &c->tensors[CASE_KEY], error));
    else
        c->tensors[CASE_KEY] = c->tensors[CASE_QUERY];
    if (c->kv_rank || !call->value.data)
        c->tensors[CASE_VALUE] = c->tensors[CASE_KEY];
    else
        TRY(copy_reals(c, "value", value, &c->tensors[CASE_VALUE], error));
    TRY(copy_reals(c, "past_key", &notes->past_key, &c->tensors[CASE_PAST_KEY], error));
    if (c->absorbed)
        return MHA_OK;
    return copy_reals(c, "past_value", &notes->past_value, &c->tensors[CASE_PAST_VALUE], error);
}

/* The pages themselves, for those who look how they are read, and for their gradients. */
static mha_status copy_pages(mha_case *c, const mha_pages *pages, size_t B, mha_error *error)
{
    if (!is_real(pages->keys.dtype) || !pages->values.data)
        return MHA_OK;
    mha_view *table = &c->tensors[CASE_PAGE_TABLE], *lengths = &c->tensors[CASE_PAGE_LENGTHS];
    TRY(copy_reals(c, "page_keys", &pages->keys, &c->tensors[CASE_PAGE_KEYS], error));
    TRY(copy_reals(c, "page_values", &pages->values, &c->tensors[CASE_PAGE_VALUES], error));
    *table = mha__arena_view(&c->pool, MHA_I64, 2, (size_t[]){B, pages->columns});
    *lengths = mha__arena_view(&c->pool, MHA_I64, 1, &B);
    int32_t *numbers = mha__arena_take(&c->pool, B * pages->columns * sizeof *numbers + 1);
    if (!table->data || !lengths->data || !numbers)
        return no_memory("page_table", error);
    for (size_t i = 0; i < B * pages->columns; i++)
        ((int64_t *)table->data)[i] = numbers[i] = pages->table[i];
    memcpy(lengths->data, pages->lengths, B * sizeof *pages->lengths);
    c->pages = (mha_pages){.keys = c->tensors[CASE_PAGE_KEYS], .values = c->tensors[CASE_PAGE_VALUES],
                           .table = numbers, .columns = pages->columns, .lengths = lengths->data};
    return MHA_OK;
}

static void read_sizes(mha_case *c, const mha_plan *plan)
{
    const mha_view *q = &c->tensors[CASE_QUERY], *k = &c->tensors[CASE_KEY], *v = &c->tensors[CASE_VALUE];
    c->B = q->shape[0];
    c->T_q = q->shape[1];
    c->T_k = k->shape[1];
    c->P = c->tensors[CASE_PAST_KEY].data ? c->tensors[CASE_PAST_KEY].shape[2] : 0;
    c->H = plan->h;
    c->H_kv = plan->h_kv;
    c->d_k = plan->d_k;
    c->d_v = plan->d_v;
    if (c->kv_rank) { /* whether absorbed or not, the sizes are those of the layer */
        const mha_config *config = mha_layer_config(c->layer);
        c->H_kv = config->kv_heads, c->d_k = config->d_k, c->d_v = config->d_v;
    }
    c->E_q = c->layer ? q->shape[2] : c->H * c->d_k;
    c->E_k = c->layer ? k->shape[2] : c->H_kv * c->d_k;
    c->E_v = c->layer ? v->shape[2] : c->H_kv * c->d_v;
    c->E_out = c->layer ? plan->d_out : c->H * c->d_v;
}

static mha_status read_weights(mha_case *c, const mha_call *call, mha_error *error)
{
    mha_view *w = c->weights[CASE_RECORDED];
    for (size_t i = 0; !c->layer && call->weights && i < call->weight_count && i < MHA_WEIGHT_COUNT; i++)
        w[i] = call->weights[i];
    for (int i = 0; c->layer && i < MHA_WEIGHT_COUNT; i++) {
        const mha_tensor *t = mha_layer_weight(c->layer, (mha_weight)i);
        w[i] = t ? mha_tensor_view(t) : (mha_view){0};
        if (t && !w[i].data)
            return no_memory(mha_weight_at((mha_weight)i)->name, error);
    }
    return MHA_OK;
}

static mha_status copy_origin(mha_case *c, const mha_rope_origin *o, mha_error *error)
{
    int64_t sections[MHA_ROPE_MAX_AXES] = {0};
    if (o->axes.axes > MHA_ROPE_MAX_AXES || (unsigned)o->axes.kind >= MHA_ROPE_AXES_COUNT)
        return mha__fail(error, MHA_INVALID, "rope_origin", "expected at most %d axes of a known kind, found %zu of %d",
                         MHA_ROPE_MAX_AXES, o->axes.axes, (int)o->axes.kind);
    if (o->positions.data && o->positions.dtype != MHA_I64)
        return mha__fail(error, MHA_INVALID, "rope_positions", "expected I64, found %s",
                         mha_dtype_name(o->positions.dtype));
    if (o->frequencies.data && o->frequencies.dtype != MHA_F32 && o->frequencies.dtype != MHA_F64)
        return mha__fail(error, MHA_INVALID, "rope_axes_frequencies", "expected F32 or F64, found %s",
                         mha_dtype_name(o->frequencies.dtype));
    for (size_t i = 0; i < o->axes.axes; i++)
        sections[i] = o->axes.sections[i] > MHA_ROPE_MAX_PAIRS ? 0 : (int64_t)o->axes.sections[i];
    const mha_view list = mha_view_of(o->axes.axes ? sections : NULL, MHA_I64, 1, &o->axes.axes);
    mha_view *to = c->tensors;
    TRY(mha__arena_copy(&c->pool, MHA_I64, &list, "rope_sections", &to[CASE_ROPE_SECTIONS], error));
    TRY(mha__arena_copy(&c->pool, MHA_I64, &o->positions, "rope_positions", &to[CASE_ROPE_POSITIONS], error));
    TRY(mha__arena_copy(&c->pool, MHA_F64, &o->frequencies, "rope_axes_frequencies", &to[CASE_ROPE_AXES_FREQUENCIES],
                        error));
    return mha__case_read_origin(c, o->axes.kind, error);
}

/* A row of heads side by side as an output of the case's layout. */
static mha_view by_head(const mha_case *c, const mha_view *v)
{
    if (c->layer || v->rank != 3 || v->shape[2] != c->H * c->d_v)
        return *v;
    return mha_view_of(v->data, v->dtype, 4, (const size_t[]){v->shape[0], v->shape[1], c->H, c->d_v});
}

/* Records a result that the caller gives, contiguous, in the shape that the case's layout gives it; `word`: its
 * name. */
static mha_status record(mha_case *c, const char *word, const mha_view *recorded, const mha_case_notes *notes, int slot,
                         mha_error *error)
{
    const int wide = (notes->has_computed ? notes->computed : recorded->dtype) == MHA_F64;
    case_expected *e = &c->expected[wide][slot];
    char *name = mha__arena_take(&c->pool, 48);
    if (mha__case_records(c, slot))
        return mha__fail(error, MHA_INVALID, word, "expected each stage once, found it twice");
    if (!name)
        return no_memory(word, error);
    snprintf(name, 48, "%s.%s", wide ? "expected64" : "expected", word);
    TRY(copy_reals(c, slot < MHA_STAGE_COUNT ? word : name, recorded, &e->view, error));
    if (slot == MHA_STAGE_OUTPUT)
        e->view = by_head(c, &e->view);
    e->name = name;
    e->stored = recorded->dtype;
    return MHA_OK;
}

static mha_status record_gradients(mha_case *c, const mha_case_notes *notes, mha_error *error)
{
    const mha_gradients *given = notes->gradients;
    TRY(copy_reals(c, "d_output", &given->d_output, &c->tensors[CASE_D_OUTPUT], error));
    TRY(copy_reals(c, "d_lse", &given->d_lse, &c->tensors[CASE_D_LSE], error));
    c->tensors[CASE_D_OUTPUT] = by_head(c, &c->tensors[CASE_D_OUTPUT]);
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        const char *word = strchr(mha__case_gradient_name((mha_gradient)g), '.') + 1;
        const bool left_out = c->layer && g >= MHA_D_WEIGHTS && !c->weights[CASE_RECORDED][g - MHA_D_WEIGHTS].data;
        if (given->of[g].data && !left_out) /* keys_only leaves weights out of a case */
            TRY(record(c, word, &given->of[g], notes, CASE_GRADIENTS + g, error));
    }
    for (size_t i = 0; i < given->keep_count; i++) {
        const mha_backward_keep *keep = &given->keep[i];
        if ((unsigned)keep->stage >= MHA_BACKWARD_STAGE_COUNT)
            return mha__fail(error, MHA_INVALID, "keep", "expected stages of a backward, found %d", (int)keep->stage);
        if (keep->view.data)
            TRY(record(c, mha_backward_stage_at(keep->stage)->name, &keep->view, notes,
                       CASE_BACKWARDS + (int)keep->stage, error));
    }
    return MHA_OK;
}

static mha_status fill(mha_case *c, const mha_layer *layer, const mha_call *call, const mha_keep *recorded,
                       size_t count, const mha_case_notes *notes, mha_error *error)
{
    mha__text_print(c->name, sizeof c->name, "%s", notes->name ? notes->name : "the call");
    c->kind = layer ? CASE_MHA : CASE_SDPA;
    c->layout = layer ? MHA_BTE : MHA_BTHD;
    c->layer = layer;
    c->absorbed = call->absorbed;
    if (layer) {
        const mha_config *config = mha_layer_config(layer);
        c->q_rank = config->q_rank, c->kv_rank = config->kv_rank, c->d_rope = config->d_rope;
    }
    c->rtol = c->atol = c->rtol64 = c->atol64 = NAN;
    for (int slot = 0; slot < CASE_RESULT_COUNT; slot++)
        c->expected[0][slot].atol = c->expected[1][slot].atol = NAN;

    mha_call exact = *call;
    exact.path = MHA_PATH_EXACT;
    exact.cache = NULL;
    mha_call unpaged = *call;
    mha_case_notes rows = *notes;
    mha__unpaged u;
    const bool paged = call->pages.keys.data != NULL;
    if (paged) {
        mha_plan planned;
        TRY(mha_plan_call(layer, &exact, &planned, error));
        TRY(mha__unpage_call(&unpaged, layer ? mha_layer_config(layer) : NULL, &c->pool, &u, error));
        TRY(copy_pages(c, &call->pages, planned.B, error));
        rows.past_key = u.keys, rows.past_value = u.values;
        exact.pages = unpaged.pages, exact.key = unpaged.key, exact.value = unpaged.value;
        exact.semantics = unpaged.semantics;
        call = &unpaged, notes = &rows;
    }
    const mha__request request = {
        .layer = layer, .call = &exact, .past_key = notes->past_key, .past_value = notes->past_value};
    mha__attempt attempt;
    mha_status status = mha__attempt_begin(&attempt, &c->pool.allocator, &request, error);
    const mha_plan plan = attempt.plan;
    mha__attempt_free(&attempt);
    TRY(status);

    TRY(copy_inputs(c, call, notes, error));
    read_sizes(c, &plan);
    TRY(read_weights(c, call, error));
    c->precision = call->precision;
    c->cache_rounds = mha__cache_rounds(call, &c->cache);
    c->semantics = call->semantics;
    mha__semantics_complete(&c->semantics);
    TRY(mha__case_settle(c, plan.B, error));
    mha_view *positions = &c->semantics.qkv.rope.q_positions;
    TRY(mha__arena_copy(&c->pool, MHA_I64, positions, "rope_q_positions", positions, error));
    TRY(copy_origin(c, &notes->rope_origin, error));
    mha__case_keys_only(c);
    mha_keep *kept = mha__arena_take(&c->pool, (count + 1) * sizeof *kept);
    if (!kept)
        return no_memory("recorded", error);
    for (size_t i = 0; i < count; i++)
        kept[i] = recorded[i];
    if (paged)
        TRY(mha__unpage_stages(&u, &request, kept, count, &c->pool, error));
    for (size_t i = 0; i < count; i++) {
        if (kept[i].view.data && (unsigned)kept[i].stage >= MHA_STAGE_COUNT)
            return mha__fail(error, MHA_INVALID, "recorded", "expected stages of mha_stage, found %d",
                             (int)kept[i].stage);
        if (kept[i].view.data)
            TRY(record(c, mha_stage_at(kept[i].stage)->name, &kept[i].view, notes, (int)kept[i].stage, error));
    }
    if (notes->gradients)
        TRY(record_gradients(c, notes, error));
    return mha__case_check_expected(c, &plan, error);
}

mha_status mha_case_of_call(const mha_layer *layer, const mha_call *call, const mha_keep *recorded, size_t count,
                            const mha_case_notes *notes, mha_case **result, mha_error *error)
{
    static const mha_case_notes none;
    notes = notes ? notes : &none;
    *result = NULL;
    if (call->cache && !notes->past_key.data && mha_cache_length(call->cache) > 0)
        return mha__fail(error, MHA_INVALID, "past_key", "expected the rows of the call's cache from before the call");
    return mha__case_of_call(layer, call, recorded, count, notes, result, error);
}

mha_status mha__case_of_call(const mha_layer *layer, const mha_call *call, const mha_keep *recorded, size_t count,
                             const mha_case_notes *notes, mha_case **result, mha_error *error)
{
    if (notes->has_computed && notes->computed != MHA_F32 && notes->computed != MHA_F64)
        return mha__fail(error, MHA_INVALID, "computed", "expected F32 or F64, found %s",
                         mha_dtype_name(notes->computed));
    if (call->partial.data)
        return mha__fail(error, MHA_UNSUPPORTED, "partial",
                         "expected none, found keys of earlier calls; a case has no word for them");
    if (call->cache && mha_cache_first(call->cache) > 0)
        return mha__fail(error, MHA_UNSUPPORTED, "cache",
                         "expected one with all its rows, found a cache that has evicted rows; a case has no "
                         "word for it");
    mha_allocator a = mha__allocator_default();
    mha_case *c = mha__allocate(&a, sizeof *c);
    if (!c)
        return no_memory("case", error);
    c->pool.allocator = a;
    mha_status status = fill(c, layer, call, recorded, count, notes, error);
    if (status != MHA_OK) {
        mha_case_close(c);
        return status;
    }
    *result = c;
    return MHA_OK;
}
