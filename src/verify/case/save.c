/* Writes a case in memory as a file; a call and its results are made a case first. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "attention/call/resolved.h"
#include "attention/call/settings/settings.h"
#include "base/base.h"
#include "mha/setting.h"
#include "verify/case/record.h"

/* A case being written. Until the file is complete, the arena of the case holds everything that was made for it. */
typedef struct saving {
    mha_writer *writer;
    mha_case *c;
    const mha_case_notes *notes;
    mha_error *error;
} saving;

/* ---------------------------------------------------------------- one tensor or key */

static mha_status put_text(saving *s, const char *key, const char *text)
{
    return text ? mha_writer_add_metadata(s->writer, key, text, s->error) : MHA_OK;
}

/* Writes a tensor if the view has data. Floats of less than 32 bits become F32. */
static mha_status put_view(saving *s, const char *name, const mha_view *view)
{
    mha_view wide = *view;
    if (mha__is_short_float(view->dtype))
        TRY(mha__arena_copy(&s->c->pool, MHA_F32, view, name, &wide, s->error));
    return wide.data ? mha_writer_add(s->writer, name, &wide, s->error) : MHA_OK;
}

/* ---------------------------------------------------------------- parts of a case */

static mha_status put_notes(saving *s)
{
    TRY(put_text(s, "format_version", "1"));
    TRY(put_text(s, "name", s->notes->name));
    TRY(put_text(s, "note", s->notes->note));
    TRY(put_text(s, "source", s->notes->source ? s->notes->source : "mha"));
    TRY(put_text(s, "kind", mha_case_kind(s->c)));
    return put_text(s, "layout", mha__layout_name(s->c->layout));
}

static mha_status put_sizes(saving *s)
{
    const mha_case *c = s->c;
    const struct {
        const char *key;
        size_t value;
    } sizes[] = {{"num_heads", c->H}, {"kv_heads", c->H_kv}, {"d_k", c->d_k},   {"d_v", c->d_v}, {"d_model", c->E_out},
                 {"batch", c->B},     {"q_len", c->T_q},     {"kv_len", c->T_k}, {"past_len", c->P}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char text[32];
        snprintf(text, sizeof text, "%zu", sizes[i].value);
        TRY(put_text(s, sizes[i].key, text));
    }
    return MHA_OK;
}

/* Of rows and the pages that hold them, the file has one: pages where it has their gradients. Latents make keys and
 * values of one input. A gradient of an input is also that of those that follow it. */
static bool is_left_out(const mha_case *c, case_tensor tensor)
{
    const bool gradients = mha__case_has_gradients(c), keeps_pages = c->pages.keys.data && gradients,
               of_rows = tensor >= CASE_KEY && tensor <= CASE_PAST_VALUE,
               of_pages = tensor >= CASE_PAGE_KEYS && tensor <= CASE_PAGE_LENGTHS,
               follows = (tensor == CASE_KEY || tensor == CASE_VALUE) &&
                         c->tensors[tensor].data == c->tensors[tensor - 1].data;
    return (keeps_pages ? of_rows : of_pages) || (tensor == CASE_VALUE && c->kv_rank) ||
           (follows && c->layer && gradients);
}

static mha_status put_inputs(saving *s)
{
    static const case_tensor tensors[] = {CASE_QUERY,    CASE_KEY,        CASE_VALUE, CASE_PAST_KEY,
                                          CASE_PAST_VALUE, CASE_PAGE_KEYS,  CASE_PAGE_VALUES, CASE_PAGE_TABLE,
                                          CASE_PAGE_LENGTHS, CASE_D_OUTPUT, CASE_D_LSE,
                                          CASE_ROPE_SECTIONS, CASE_ROPE_POSITIONS, CASE_ROPE_AXES_FREQUENCIES};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (!is_left_out(s->c, tensors[i]))
            TRY(put_view(s, mha__case_tensor_name(tensors[i]), &s->c->tensors[tensors[i]]));
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
        TRY(put_view(s, mha__case_weight_name((mha_weight)w), &s->c->weights[CASE_RECORDED][w]));
    return MHA_OK;
}

static mha_status put_settings(saving *s)
{
    const mha_semantics *semantics = &s->c->semantics;
    static const char *const axes[] = {NULL, "interleaved", "repeated", "dealt"};
    const mha_setting *setting;
    char text[64];
    TRY(put_text(s, "rope_axes", axes[s->c->origin.axes.kind]));
    for (size_t i = 0; (setting = mha_setting_at(i)) != NULL; i++) {
        const mha_view array = mha__setting_view(setting, semantics, s->c->B, s->c->H);
        if (array.data)
            TRY(put_view(s, setting->name, &array));
        else if (mha_setting_given(setting, semantics))
            TRY(put_text(s, setting->name, mha_setting_text(setting, semantics, text, sizeof text)));
    }
    return MHA_OK;
}

/* Writes the other settings of the numbers: absorbed latents, and the points at which a kernel rounds. */
static mha_status put_roundings(saving *s)
{
    const mha_case *c = s->c;
    const mha_dtype type = c->precision.inputs;
    const mha_precision fused = mha_precision_of(type);
    if (memcmp(&fused, &c->precision, sizeof fused) != 0)
        return mha__fail(s->error, MHA_UNSUPPORTED, "precision",
                         "expected rounding points of a fused kernel, found others, for which a case file has no word");
    if (type != MHA_F32)
        TRY(put_text(s, "precision", mha_dtype_name(type)));
    if (c->cache_rounds)
        TRY(put_text(s, "cache_dtype", mha_dtype_name(c->cache)));
    return put_text(s, "absorbed", c->absorbed ? "1" : NULL);
}

static mha_status put_results(saving *s)
{
    const mha_case *c = s->c;
    for (int i = 0; i < 2 * CASE_RESULT_COUNT; i++) {
        const case_expected *e = &c->expected[i % 2][i / 2];
        if (e->name)
            TRY(put_view(s, e->name, &e->view));
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- the whole */

mha_status mha__case_write(mha_case *c, const char *path, const mha_case_notes *notes, mha_error *error)
{
    typedef mha_status part(saving *);
    static part *const parts[] = {put_notes, put_sizes, put_inputs, put_settings, put_roundings, put_results};
    saving s = {.c = c, .notes = notes, .error = error};
    mha_status status = mha_writer_create(path, &s.writer, error);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && status == MHA_OK; i++)
        status = parts[i](&s);
    if (status == MHA_OK)
        status = mha_writer_commit(s.writer, error);
    mha_writer_destroy(s.writer);
    return status;
}

/* The view that a call keeps a stage in; NULL: none. */
static const mha_view *stage_of(const mha_call *call, mha_stage stage)
{
    if (stage == MHA_STAGE_OUTPUT)
        return call->output.data ? &call->output : NULL;
    for (size_t i = 0; i < call->keep_count; i++)
        if (call->keep[i].stage == stage)
            return call->keep[i].view.data ? &call->keep[i].view : NULL;
    return NULL;
}

mha_status mha_case_save(const char *path, const mha_layer *layer, const mha_call *call, const mha_case_notes *notes,
                         mha_error *error)
{
    static const mha_case_notes none;
    mha_case_notes own = notes ? *notes : none;
    mha_keep results[MHA_STAGE_COUNT];
    mha_case *c;
    const size_t new_rows = call->key.data ? call->key.shape[1] : call->query.shape[1];
    const bool evicted = call->cache && mha_cache_first(call->cache) > 0; /* is refused with the call */
    if (call->cache && !evicted && !own.past_key.data && mha_cache_length(call->cache) > new_rows)
        return mha__fail(error, MHA_INVALID, "past_key",
                         "the call has a cache: expected its rows from before the call");
    for (int i = 0; i < MHA_STAGE_COUNT; i++) {
        const mha_view *kept = stage_of(call, (mha_stage)i);
        results[i] = (mha_keep){.stage = (mha_stage)i, .view = kept ? *kept : (mha_view){0}};
    }
    own.has_computed = call->path != MHA_PATH_EXACT; /* the only one in float64 */
    own.computed = MHA_F32;
    TRY(mha__case_of_call(layer, call, results, MHA_STAGE_COUNT, &own, &c, error));
    const mha_status status = mha__case_write(c, path, &own, error);
    mha_case_close(c);
    return status;
}
