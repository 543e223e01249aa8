/* A picture of files: cases, which are run, and traces, whose recorded weights are shown. */
#include <stdio.h>
#include <string.h>

#include "lab/lab.h"
#include "mha/case.h"
#include "mha/file.h"
#include "picture/head.h"

/* ---------------------------------------------------------------- traces */

/* A stage of a trace, read whole as (B, h, T_q, S'); without data when the trace has none. `weights` has the shape that
 * it must have. */
static mha_status read_stage(const mha_file *file, const char *prefix, const char *stage, const mha_view *weights,
                             mha__arena *memory, mha_view *view, mha_error *error)
{
    char name[1024];
    if (snprintf(name, sizeof name, "%s%s", prefix, stage) >= (int)sizeof name)
        return mha__fail_inside(error, MHA_UNSUPPORTED, mha_file_path(file), prefix, 0,
                                "expected a name of at most 1000 bytes, found more");
    const mha_file_tensor *tensor = mha_file_find(file, name);
    *view = (mha_view){0};
    if (!tensor)
        return MHA_OK;
    if (!mha__dtype_is_float(tensor->dtype) || (tensor->rank != 3 && tensor->rank != 4))
        return mha__fail_inside(error, MHA_INVALID, mha_file_path(file), name, 0,
                                "expected (B, h, T_q, S) or (h, T_q, S) of floating-point numbers, found %d axes of %s",
                                tensor->rank, mha_dtype_name(tensor->dtype));
    if (tensor->elements == 0)
        return mha__fail_inside(error, MHA_INVALID, mha_file_path(file), name, 0, "expected numbers, found none");
    size_t shape[4] = {1};
    memcpy(shape + 4 - tensor->rank, tensor->shape, (size_t)tensor->rank * sizeof *shape);
    char inside[256];
    const mha_view found = mha_view_of(NULL, MHA_F64, 4, shape);
    mha__name_inside(inside, sizeof inside, mha_file_path(file), name);
    if (weights)
        TRY(mha__expect_shape(error, inside, &found, 4, weights->shape));
    if (tensor->bytes > mha__memory_at_hand())
        return mha__fail(error, MHA_NO_MEMORY, inside, "not enough memory to read its %zu bytes", tensor->bytes);
    *view = mha__arena_view(memory, tensor->dtype, 4, shape);
    if (!view->data)
        return mha__fail(error, MHA_NO_MEMORY, inside, "no memory to read its %zu bytes", tensor->bytes);
    return mha_file_read(file, tensor, view, error);
}

enum { WEIGHTS, MASKED, SCORES, STAGES };

/* One layer of a trace: its stages, and a row of each as it is read. */
typedef struct trace_layer {
    mha_view stages[STAGES];
    double *rows;
} trace_layer;

static const double *row_of(const trace_layer *t, int stage, const mha__head *head, size_t i)
{
    const mha_view *v = &t->stages[stage];
    double *row = t->rows + (size_t)stage * t->stages[WEIGHTS].shape[3];
    for (size_t j = 0; v->data && j < v->shape[3]; j++)
        row[j] = mha_view_get(v, (size_t[]){head->sequence, head->head, i, j});
    return v->data ? row : NULL;
}

static mha_status add_heads(mha__picture *picture, mha__picture_layer *layer, trace_layer *t,
                            const mha__picture_choice *choice, mha_error *error)
{
    const size_t *shape = t->stages[WEIGHTS].shape;
    mha__choice_parts parts;
    TRY(mha__choice_resolve(choice, shape[0], shape[1], &parts, error));
    const size_t heads = (parts.sequences[1] - parts.sequences[0]) * (parts.heads[1] - parts.heads[0]);
    layer->heads = mha__arena_take(&picture->memory, heads * sizeof *layer->heads);
    t->rows = mha__arena_take(&picture->memory, STAGES * shape[3] * sizeof *t->rows);
    if (!layer->heads || !t->rows)
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for %zu heads", heads);
    const size_t scores = heads * shape[2] * shape[3];
    for (size_t b = parts.sequences[0]; b < parts.sequences[1]; b++)
        for (size_t n = parts.heads[0]; n < parts.heads[1]; n++) {
            mha__head *head = &layer->heads[layer->head_count];
            *head = (mha__head){.sequence = b, .head = n, .kv_head = n};
            TRY(mha__choice_cut(choice, shape[0], shape[2], shape[3], head, error));
            TRY(mha__head_begin(head, &picture->memory, heads, t->stages[MASKED].data && scores <= MHA__SCORES, error));
            for (size_t i = head->first_query; i < head->first_query + head->queries; i++) {
                const mha__head_row row = {.query = i,
                                           .position = (double)(layer->offset + (int64_t)i),
                                           .keys = shape[3],
                                           .seen = shape[3],
                                           .weights = row_of(t, WEIGHTS, head, i),
                                           .masked = row_of(t, MASKED, head, i),
                                           .scores = row_of(t, SCORES, head, i)};
                mha__head_add(head, &head->statistics, &row);
            }
            mha__head_end(head);
            layer->head_count++;
        }
    return MHA_OK;
}

/* Adds the stages whose names begin with `prefix` as a layer called `name`; `weights` is what they are called there. */
static mha_status add_trace_layer(mha__picture *picture, const mha_file *file, const char *prefix, const char *weights,
                                  const char *name, const mha__picture_choice *choice, mha_error *error)
{
    const char *const names[STAGES] = {weights, "masked", "capped"};
    mha__arena scratch = {.allocator = mha__allocator_or_default(&picture->memory.allocator)};
    trace_layer t = {0};
    mha__picture_layer *layer;
    mha_status status = MHA_OK;
    for (int s = 0; s < STAGES && status == MHA_OK; s++)
        status = read_stage(file, prefix, names[s], s > 0 ? &t.stages[WEIGHTS] : NULL, &scratch, &t.stages[s], error);
    if (status == MHA_OK)
        status = mha__picture_grow(picture, name, &layer, error);
    if (status == MHA_OK) {
        const size_t *shape = t.stages[WEIGHTS].shape;
        layer->path = "recorded";
        layer->sequences = shape[0];
        layer->h = layer->h_kv = shape[1];
        layer->offset = (int64_t)shape[3] - (int64_t)shape[2];
        status = add_heads(picture, layer, &t, choice, error);
    }
    mha__arena_free(&scratch);
    return status;
}

size_t mha__stage_prefix(const char *name, const char *stage)
{
    const size_t stem = mha__text_stem(name, stage);
    return stem == SIZE_MAX || stem == 0 || name[stem - 1] == '.' ? stem : SIZE_MAX;
}

/* Whether a file has a tensor without a name of its own, (B, h, T_q, S): an npy. */
static bool is_lone_map(const mha_file *file)
{
    return strcmp(mha_file_format(file), "npy") == 0 && mha_file_at(file, 0)->rank == 4;
}

static mha_status add_trace(mha__picture *picture, const mha_file *file, const mha__picture_choice *choice,
                            mha_error *error)
{
    char prefix[1024];
    size_t layers = 0;
    for (size_t i = 0; i < mha_file_count(file); i++) {
        const char *tensor = mha_file_at(file, i)->name;
        const size_t length = mha__stage_prefix(tensor, "weights");
        if (length >= sizeof prefix)
            continue;
        char name[sizeof prefix];
        snprintf(prefix, sizeof prefix, "%.*s", (int)length, tensor);
        snprintf(name, sizeof name, "%.*s", (int)(length ? length - 1 : 0), tensor); /* without the dot */
        TRY(add_trace_layer(picture, file, prefix, "weights", name, choice, error));
        layers++;
    }
    if (layers == 0 && is_lone_map(file))
        return add_trace_layer(picture, file, "", mha_file_at(file, 0)->name, "", choice, error);
    if (layers == 0)
        return mha__fail(error, MHA_INVALID, mha_file_path(file),
                         "expected a case, with a tensor \"query\", a trace, with \"weights\" or \"NAME.weights\", or "
                         "an npy of (B, h, T_q, S); found none of them (\"mha forward --trace FILE\" writes a trace)");
    return MHA_OK;
}

/* ---------------------------------------------------------------- cases */

/* Adds the weights that a case records beside the layer that was run, so that both can be compared. */
static mha_status add_recorded(mha__picture *picture, const char *path, const mha__picture_choice *choice,
                               mha_error *error)
{
    static const char *const prefixes[] = {"expected64.", "expected."};
    mha_file *file;
    TRY(mha_file_open(path, &file, error));
    mha_status status = MHA_OK;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        char weights[32], name[300];
        snprintf(weights, sizeof weights, "%sweights", prefixes[i]);
        if (!mha_file_find(file, weights))
            continue;
        const int64_t offset = picture->layers[picture->layer_count - 1].offset;
        mha__text_print(name, sizeof name, "%s, recorded", picture->layers[picture->layer_count - 1].name);
        status = add_trace_layer(picture, file, prefixes[i], "weights", name, choice, error);
        if (status == MHA_OK)
            picture->layers[picture->layer_count - 1].offset = offset;
        break;
    }
    mha_file_close(file);
    return status;
}

mha_status mha__picture_add_case(mha__picture *picture, const mha_case *c, const mha__picture_choice *choice,
                                 mha_error *error)
{
    mha_view past[2];
    if (mha_case_skip_reason(c))
        return mha__fail(error, MHA_UNSUPPORTED, mha_case_name(c), "%s", mha_case_skip_reason(c));
    if (strcmp(mha_case_kind(c), "rope") == 0)
        return mha__fail(error, MHA_UNSUPPORTED, mha_case_name(c),
                         "expected weights to show, found a case of rotation only");
    mha_call call = mha_case_call(c);
    call.path = choice->path;
    call.threads = choice->threads;
    mha_case_past(c, &past[0], &past[1]);
    return mha__picture_add_call(picture, mha_case_name(c), mha_case_layer(c), &call, past, choice, error);
}

static mha_status add_case(mha__picture *picture, const char *path, const mha__picture_choice *choice, mha_error *error)
{
    mha_case *c = NULL;
    TRY(mha_case_open(path, NULL, &c, error));
    mha_status status = mha__picture_add_case(picture, c, choice, error);
    if (status == MHA_OK && !mha_case_call(c).semantics.place.cu_seqlens_q)
        status = add_recorded(picture, path, choice, error);
    mha_case_close(c);
    return status;
}

mha_status mha__picture_add_file(mha__picture *picture, const char *path, const mha__picture_choice *choice,
                                 mha_error *error)
{
    mha_file *file;
    TRY(mha_file_open(path, &file, error));
    const bool is_case = mha_file_find(file, "query");
    picture->memory.allocator = mha__allocator_or_default(&picture->memory.allocator);
    mha_status status = mha__picture_tokens_of(picture, file, choice, error);
    if (status == MHA_OK)
        status = mha__picture_random_of(picture, file, error);
    if (status == MHA_OK && !is_case)
        status = add_trace(picture, file, choice, error);
    mha_file_close(file);
    return status == MHA_OK && is_case ? add_case(picture, path, choice, error) : status;
}
