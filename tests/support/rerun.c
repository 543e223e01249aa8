/* A call run again in another way: rows gathered, queries and keys cut, heads apart, caches filled. */
#include <stdlib.h>
#include <string.h>

#include "attention/cache/cache.h"
#include "support/any_setting.h"
#include "support/rerun.h"

void *rerun_memory(rerun *r, size_t bytes)
{
    if (r->n_blocks == sizeof r->blocks / sizeof *r->blocks)
        abort();
    void *block = calloc(1, bytes ? bytes : 1);
    if (!block)
        abort();
    return r->blocks[r->n_blocks++] = block;
}

void rerun_init(rerun *r, const mha_layer *layer, const mha_call *call, const mha_view *past_key,
                const mha_view *past_value)
{
    memset(r, 0, sizeof *r);
    r->layer = layer;
    r->call = *call;
    r->call.cache = NULL;
    r->call.output = (mha_view){0};
    r->call.keep = r->keep;
    r->call.keep_count = 0;
    if (past_key && past_key->data)
        r->past_key = *past_key, r->past_value = *past_value;
}

void rerun_free(rerun *r)
{
    for (size_t i = 0; i < r->n_blocks; i++)
        free(r->blocks[i]);
    mha_cache_destroy(r->cache);
    r->n_blocks = 0;
    r->cache = NULL;
}

static size_t size_of(mha_dtype dtype)
{
    size_t bytes = 0;
    mha_dtype_bytes(dtype, 1, &bytes, NULL);
    return bytes;
}

static mha_view dense(rerun *r, mha_dtype dtype, int rank, const size_t *shape)
{
    mha_view v = mha_view_of(NULL, dtype, rank, shape);
    v.data = rerun_memory(r, mha_view_elements(&v) * size_of(dtype));
    return v;
}

mha_view rerun_gather(rerun *r, const mha_view *v, int axis, const size_t *order, size_t n)
{
    if (!v->data || v->shape[axis] == 1)
        return *v;
    if (n == 1)
        return mha_view_slice(v, axis, order[0], 1);
    size_t shape[MHA_MAX_RANK];
    memcpy(shape, v->shape, sizeof shape);
    shape[axis] = n;
    mha_view copy = dense(r, v->dtype, v->rank, shape);
    for (size_t i = 0; i < n; i++) {
        mha_view to = mha_view_slice(&copy, axis, i, 1), from = mha_view_slice(v, axis, order[i], 1);
        if (mha_view_copy(&to, &from, NULL))
            abort();
    }
    return copy;
}

mha_view rerun_cut(const mha_view *v, int from_right, size_t from, size_t n)
{
    int axis = v->rank - from_right;
    return !v->data || axis < 0 || v->shape[axis] == 1 ? *v : mha_view_slice(v, axis, from, n);
}

void rerun_settings(rerun *r, const char *symbol, size_t from, size_t n)
{
    const mha_setting *row;
    for (size_t i = 0; (row = mha_setting_at(i)) != NULL; i++) {
        mha_view *const v = (void *)((char *)&r->call.semantics + row->at);
        const int axis = row->kind == MHA_SETTING_VIEW ? any_setting_axis(row, v->rank, symbol) : -1;
        if (axis >= 0)
            *v = rerun_cut(v, v->rank - axis, from, n);
    }
}

static const int64_t *gather_counts(rerun *r, const int64_t *x, const size_t *order, size_t n)
{
    if (!x)
        return NULL;
    int64_t *copy = rerun_memory(r, n * sizeof *copy);
    for (size_t i = 0; i < n; i++)
        copy[i] = x[order[i]];
    return copy;
}

void rerun_batch(rerun *r, const size_t *order, size_t n)
{
    mha_call *c = &r->call;
    mha_view *views[] = {&c->query, &c->key, &c->value, &r->past_key, &r->past_value};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        *views[i] = rerun_gather(r, views[i], 0, order, n);
    const mha_setting *row;
    for (size_t i = 0; (row = mha_setting_at(i)) != NULL; i++) {
        void *const at = (char *)&c->semantics + row->at;
        if (row->kind == MHA_SETTING_VIEW) {
            mha_view *const v = at;
            const int axis = any_setting_axis(row, v->rank, "B");
            if (axis >= 0)
                *v = rerun_gather(r, v, axis, order, n);
        } else if (row->kind == MHA_SETTING_WHOLES && strcmp(row->shape, "(B)") == 0) {
            const int64_t **const counts = at;
            *counts = gather_counts(r, *counts, order, n);
        }
    }
}

void rerun_spell_out(rerun *r)
{
    mha_call *c = &r->call;
    mha_semantics *s = &c->semantics;
    size_t T_q = c->query.shape[1];
    if (r->layer && !c->key.data)
        c->key = c->query;
    if (r->layer && !c->value.data)
        c->value = c->key;
    if (s->qkv.rope.q_positions.data && !s->qkv.rope.k_positions.data && T_q == c->key.shape[1] &&
        !s->place.has_key_offset)
        s->qkv.rope.k_positions = s->qkv.rope.q_positions;
    if (!s->place.has_offset && !s->place.position_offset)
        s->place.offset = r->past_key.data ? (int64_t)r->past_key.shape[2] : 0;
    s->place.has_offset = true;
}

void rerun_queries(rerun *r, size_t from, size_t n)
{
    mha_call *c = &r->call;
    mha_semantics *s = &c->semantics;
    size_t B = s->place.n_sequences ? s->place.n_sequences : c->query.shape[0];
    c->query = mha_view_slice(&c->query, 1, from, n);
    if (s->visible.pattern.q_segments.data && !s->visible.pattern.k_segments.data)
        s->visible.pattern.k_segments = s->visible.pattern.q_segments;
    rerun_settings(r, "T_q", from, n);
    s->place.offset += (int64_t)from;
    if (s->place.position_offset) {
        int64_t *moved = rerun_memory(r, B * sizeof *moved);
        for (size_t b = 0; b < B; b++)
            moved[b] = s->place.position_offset[b] + (int64_t)from;
        s->place.position_offset = moved;
    }
}

static mha_dtype type_for(const mha_dtype *given, mha_path path)
{
    return given ? *given : path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32;
}

mha_status rerun_cache(rerun *r, mha_path path, mha_error *error)
{
    const mha_view *k = &r->past_key, *v = &r->past_value;
    const mha_view *key = r->call.key.data ? &r->call.key : &r->call.query;
    if (!k->data)
        return MHA_OK;
    const size_t rows = k->shape[2], stay = r->kept ? r->kept : rows, room = stay + key->shape[1];
    mha_cache_spec spec = {.batch = k->shape[0],
                           .kv_heads = k->shape[1],
                           .d_k = k->shape[3],
                           .d_v = v->shape[3],
                           .capacity = room > rows ? room : rows,
                           .window = r->kept,
                           .dtype = type_for(r->cache_dtype, path)};
    mha_cache_destroy(r->cache);
    r->cache = NULL;
    mha_status status = mha_cache_create(&spec, NULL, &r->cache, error);
    r->call.cache = r->cache;
    if (!status)
        status = mha_cache_load(r->cache, k, v, error);
    if (!status)
        mha__cache_count_evicted(r->cache, r->evicted);
    return status;
}

mha_status rerun_run(rerun *r, mha_path path, int threads, unsigned keep, mha_error *error)
{
    mha_call *c = &r->call;
    c->path = path;
    c->threads = threads;
    memset(r->stages, 0, sizeof r->stages);
    c->output = (mha_view){0};
    c->keep_count = 0;
    mha_status status = rerun_cache(r, path, error);
    if (!status)
        status = mha_plan_call(r->layer, c, &r->plan, error);
    if (status)
        return status;
    for (int s = 0; s < MHA_STAGE_COUNT; s++) {
        size_t shape[4];
        const int rank = mha_plan_stage(&r->plan, (mha_stage)s, shape);
        if (!(keep >> s & 1) || rank == 0) /* the call has none */
            continue;
        r->stages[s] = dense(r, type_for(r->stage_dtype, path), rank, shape);
        if (s == MHA_STAGE_OUTPUT)
            c->output = r->stages[s];
        else
            r->keep[c->keep_count++] = (mha_keep){.stage = (mha_stage)s, .view = r->stages[s]};
    }
    status = mha_plan_call(r->layer, c, &r->plan, error);
    if (status)
        return status;
    void *workspace = malloc(r->plan.workspace_bytes);
    if (!workspace)
        abort();
    status = mha_forward(&r->plan, workspace, r->plan.workspace_bytes, error);
    free(workspace);
    return status;
}
