/* A call on the ranks: checked as if one process had it, and this rank's rows of it at their positions. */
#include <string.h>

#include "base/heads.h"
#include "mpi/shared.h"

/* ---------------------------------------------------------------- memory */

static void *take(mha__mpi_call *c, void *(*from)(mha__arena *, size_t), size_t count, size_t size, mha_status *status,
                  mha_error *error)
{
    size_t bytes;
    void *block = mha__mul(count, size, &bytes) ? from(&c->arena, bytes) : NULL;
    if (!block && *status == MHA_OK)
        *status = mha__fail(error, MHA_NO_MEMORY, "call", "no memory for %zu x %zu bytes", count, size);
    c->taken += block ? bytes : 0;
    return block;
}

void *mha__mpi_take(mha__mpi_call *c, size_t count, size_t size, mha_status *status, mha_error *error)
{
    return take(c, mha__arena_take, count, size, status, error);
}

void *mha__mpi_scratch(mha__mpi_call *c, size_t count, size_t size, mha_status *status, mha_error *error)
{
    return take(c, mha__arena_scratch, count, size, status, error);
}

mha_view mha__mpi_view(mha__mpi_call *c, mha_dtype dtype, int rank, const size_t *shape, mha_status *status,
                       mha_error *error)
{
    mha_view view = mha_view_of(NULL, dtype, rank, shape);
    view.data = mha__mpi_scratch(c, mha_view_elements(&view), mha__mpi_bytes(dtype), status, error);
    return view;
}

mha_view mha__mpi_rows(mha__mpi_call *c, size_t rows, size_t heads, size_t width, mha_status *status, mha_error *error)
{
    return mha__mpi_view(c, c->dtype, 4, (size_t[]){c->split.B, rows, heads, width}, status, error);
}

/* ---------------------------------------------------------------- the call of one process */

void mha__mpi_cut(mha_view *view, int from_last, mha_range range)
{
    mha__view_cut(view, from_last, range.from, range.count);
}

mha_semantics mha__mpi_of_heads(const mha__mpi_call *c)
{
    mha_semantics s = c->given->semantics;
    if (s.added.alibi_slopes)
        s.added.alibi_slopes += c->share.heads.from;
    mha__mpi_cut(&s.visible.mask.values, 2, c->share.heads);
    mha__mpi_cut(&s.visible.pattern.key_lists, 2, c->share.heads);
    mha__mpi_cut(&s.visible.pattern.blocks.values, 2, c->share.heads);
    return s;
}

mha_status mha__mpi_expect_block(const mha__mpi_call *c, bool keys, mha_range range, mha_error *error)
{
    const mha_pattern *p = &c->given->semantics.visible.pattern;
    const mha_view *v = &p->blocks.values;
    const size_t size = keys ? p->block_keys : p->block_queries;
    const int axis = v->rank - (keys ? 1 : 2);
    if (!v->data || axis < 0 || v->shape[axis] <= 1 || range.count == 0 || range.from % size == 0)
        return MHA_OK;
    return mha__fail(error, MHA_UNSUPPORTED, "blocks",
                     "a rank's rows begin at %s %zu, inside a block of %zu: expected rows in whole blocks; tensor and "
                     "ulysses take any",
                     keys ? "key" : "query", range.from, size);
}

/* The blocks of `size` that some queries or keys lie in. */
static mha_range blocks_of(mha_range range, size_t size)
{
    const size_t from = range.from / size, end = range.from + range.count;
    return (mha_range){from, range.count ? (end - 1) / size - from + 1 : 0};
}

void mha__mpi_cut_pattern(const mha__mpi_call *c, mha_pattern *p, mha_range queries, mha_range keys)
{
    if (p->q_segments.data && !p->k_segments.data) /* keys that are the queries' own tokens */
        p->k_segments = p->q_segments;
    mha__mpi_cut(&p->k_segments, 0, keys);
    if (queries.count < c->split.T_q) {
        mha__mpi_cut(&p->q_segments, 0, queries);
        mha__mpi_cut(&p->query_padding.values, 0, queries);
        mha__mpi_cut(&p->key_lists, 1, queries);
    }
    if (p->blocks.kind != MHA_MASK_NONE) {
        mha__mpi_cut(&p->blocks.values, 1, blocks_of(queries, p->block_queries));
        mha__mpi_cut(&p->blocks.values, 0, blocks_of(keys, p->block_keys));
    }
}

void mha__mpi_between(mha_semantics *s)
{
    const mha_query_scale none = {0}, scale = s->qkv.query_scale;
    /* Without a rotation positions are those that the attention counts, see `place`. */
    s->qkv = (mha_qkv){.query_scale = s->qkv.rope.kind == MHA_ROPE_NONE ? scale : none};
}

size_t mha__mpi_cached(const mha_cache *cache)
{
    return cache ? mha_cache_first(cache) + mha_cache_length(cache) : 0;
}

mha_status mha__mpi_expect_rows(const mha__mpi_call *c, const char *name, const mha_view *view, size_t rows,
                                size_t heads, size_t width, mha_error *error)
{
    const mha_config *config = &c->split.config;
    const size_t by_head[4] = {c->split.B, rows, heads, width};
    const size_t in = view == &c->query ? config->d_q : view == &c->key ? config->d_kin : config->d_vin;
    return c->l->own ? mha__expect_shape(error, name, view, 3, (size_t[]){c->split.B, rows, in})
                     : mha__expect_shape(error, name, view, 4, by_head);
}

/* A view that stands for `rows` rows of all ranks. */
static mha_view stand_in(const mha_view *view, size_t rows)
{
    static float memory;
    size_t shape[MHA_MAX_RANK];
    memcpy(shape, view->shape, sizeof shape);
    shape[1] = rows;
    return mha_view_of(&memory, view->dtype, view->rank, shape);
}

/* Plans the whole call with this rank's layer, which is whole, too. Nothing is read of the inputs that only stand for
 * others. The plan of the call after the exchange checks the rows in a cache. */
static mha_status check_whole(mha__mpi_call *c, mha_error *error)
{
    mha_call whole = {.query = stand_in(&c->query, c->split.T_q),
                      .key = stand_in(&c->key, c->split.T_k),
                      .value = stand_in(&c->value, c->split.T_k),
                      .semantics = c->given->semantics,
                      .weights = c->given->weights,
                      .weight_count = c->given->weight_count,
                      .absorbed = c->given->absorbed,
                      .path = c->given->path,
                      .threads = c->given->threads};
    mha_semantics *s = &whole.semantics;
    if (c->given->cache) {
        if (!s->place.position_offset && !s->place.has_offset && s->place.offset == 0)
            s->place.has_offset = true, s->place.offset = (int64_t)c->cached;
        s->visible.mask = s->visible.key_padding = (mha_mask){0};
        s->visible.pattern = (mha_pattern){0};
        s->visible.kv_lengths = NULL;
        s->visible.has_padding_fill = false, s->visible.padding_fill = 0;
    }
    mha_plan plan;
    TRY(mha_plan_call(c->l->own, &whole, &plan, error));
    c->path = plan.path;
    return MHA_OK;
}

/* ---------------------------------------------------------------- positions of this rank's rows */

/* The sequence of a ragged batch that row t is in, and its row there. */
static size_t sequence_of(const int64_t *cu, size_t t, size_t *row)
{
    size_t b = 0;
    while (cu[b + 1] <= (int64_t)t)
        b++;
    *row = t - (size_t)cu[b];
    return b;
}

/* Position of row t of batch row b, as mha/attention.h defines it. */
static int64_t position_of(const mha__mpi_call *c, bool keys, const mha_view *given, size_t b, size_t t)
{
    const mha_place *s = &c->given->semantics.place;
    if (given->data)
        return ((const int64_t *)given->data)[(given->shape[0] == 1 ? 0 : (ptrdiff_t)b * given->stride[0]) +
                                              (ptrdiff_t)t * given->stride[1]];
    const int64_t *cu = keys && s->cu_seqlens_k ? s->cu_seqlens_k : s->cu_seqlens_q;
    size_t row = t, sequence = b;
    if (cu)
        sequence = sequence_of(cu, t, &row);
    if (keys)
        return s->key_offset + (int64_t)(c->cached + row);
    const int64_t offset = s->position_offset ? s->position_offset[sequence]
                           : s->has_offset || s->offset ? s->offset
                                                        : (int64_t)c->cached;
    return offset + (int64_t)row;
}

void mha__mpi_gather(const mha_view *whole, const mha_range *chunks, size_t count, const mha_view *to)
{
    for (size_t i = 0, at = 0; i < count; at += chunks[i].count, i++) {
        const mha_view from = mha_view_slice(whole, 1, chunks[i].from, chunks[i].count),
                       part = mha_view_slice(to, 1, at, chunks[i].count);
        (void)mha_view_copy(&part, &from, NULL);
    }
}

/* The rows of this rank's queries in `whole`, side by side in new memory. */
static mha_view gather(mha__mpi_call *c, const mha_view *whole, mha_status *status, mha_error *error)
{
    mha_view to = mha_view_of(NULL, whole->dtype, 3, (size_t[]){whole->shape[0], c->q_rows, whole->shape[2]});
    to.data = mha__mpi_scratch(c, mha_view_elements(&to), sizeof(double), status, error);
    if (to.data)
        mha__mpi_gather(whole, c->share.queries, c->share.chunks, &to);
    return to;
}

static mha_view positions(mha__mpi_call *c, bool keys, mha_status *status, mha_error *error)
{
    const mha_semantics *s = &c->given->semantics;
    const mha_range *chunks = keys ? c->share.keys : c->share.queries;
    const size_t B = c->split.B, rows = keys ? c->k_rows : c->q_rows;
    const bool follows = keys && !s->qkv.rope.k_positions.data && c->split.T_q == c->split.T_k &&
                         !s->place.has_key_offset && s->place.key_offset == 0;
    const mha_view *given = keys && !follows ? &s->qkv.rope.k_positions : &s->qkv.rope.q_positions;
    int64_t *to = mha__mpi_scratch(c, B * rows, sizeof *to, status, error);
    for (size_t b = 0, at = 0; to && b < B; b++)
        for (size_t i = 0; i < c->share.chunks; i++)
            for (size_t t = 0; t < chunks[i].count; t++)
                to[at++] = position_of(c, keys, given, b, chunks[i].from + t);
    return mha_view_of(to, MHA_I64, 2, (size_t[]){B, rows});
}

/* Rotation of this rank's rows at their positions. */
static mha_status place(mha__mpi_call *c, mha_semantics *s, mha_error *error)
{
    const mha_semantics *whole = &c->given->semantics;
    mha_status status = MHA_OK;
    s->qkv = whole->qkv;
    if (whole->qkv.rope.kind == MHA_ROPE_NONE) {
        s->qkv.query_scale = (mha_query_scale){0};
        return MHA_OK;
    }
    s->qkv.rope.q_positions = positions(c, false, &status, error);
    s->qkv.rope.k_positions = positions(c, true, &status, error);
    if (whole->qkv.rope.cos_table.rank == 3) {
        s->qkv.rope.cos_table = gather(c, &whole->qkv.rope.cos_table, &status, error);
        s->qkv.rope.sin_table = gather(c, &whole->qkv.rope.sin_table, &status, error);
    }
    return status;
}

static bool is_relative(mha_weight weight)
{
    return weight == MHA_RELATIVE_K || weight == MHA_RELATIVE_COLUMNS || weight == MHA_RELATIVE_Q;
}

/* The heads' share of a weight that attention needs in addition to Q, K and V; check_whole knows its shape. */
static mha_view weight_beside(const mha__mpi_call *c, mha_weight weight)
{
    const mha_config *config = &c->split.config;
    const bool relative = is_relative(weight), by_query_head = weight == MHA_SINKS || weight == MHA_BIAS_TABLE;
    const mha_range part = by_query_head || relative ? c->share.heads : c->share.kv_heads;
    const size_t width = by_query_head ? 1 : weight == MHA_BIAS_K || relative ? config->d_k : config->d_v;
    const mha_tensor *tensor = c->l->own ? mha_layer_weight(c->l->own, weight) : NULL;
    const bool is_given = c->given->weights && weight < c->given->weight_count;
    mha_view whole = is_given ? c->given->weights[weight] : (mha_view){0};
    if (tensor)
        whole = mha_tensor_view(tensor);
    if (relative && whole.data && whole.shape[1] == config->d_k) /* one table for all heads */
        return whole;
    return whole.data ? mha_view_slice(&whole, whole.rank - 1, part.from * width, part.count * width) : whole;
}

mha_status mha__mpi_prepare_rows(mha__mpi_call *c, mha_error *error)
{
    const mha_config *config = &c->split.config;
    const size_t B = c->split.B;
    mha_status status = MHA_OK;
    TRY(mha__mpi_expect_rows(c, "query", &c->query, c->q_rows, config->n_heads, config->d_k, error));
    TRY(mha__mpi_expect_rows(c, "key", &c->key, c->k_rows, config->kv_heads, config->d_k, error));
    TRY(mha__mpi_expect_rows(c, "value", &c->value, c->k_rows, config->kv_heads, config->d_v, error));
    TRY(check_whole(c, error));
    c->Q = mha__mpi_rows(c, c->q_rows, config->n_heads, config->d_k, &status, error);
    c->K = mha__mpi_rows(c, c->k_rows, config->kv_heads, config->d_k, &status, error);
    c->V = mha__mpi_rows(c, c->k_rows, config->kv_heads, config->d_v, &status, error);
    c->keep[0] = (mha_keep){.stage = MHA_STAGE_Q_ROT, .view = c->Q};
    c->keep[1] = (mha_keep){.stage = MHA_STAGE_K_ROT, .view = c->K};
    c->keep[2] = (mha_keep){.stage = MHA_STAGE_V, .view = c->V};
    for (int i = 0; i < 3; i++) { /* stages have heads side by side */
        mha_view *view = &c->keep[i].view;
        *view = mha_view_of(view->data, view->dtype, 3, (size_t[]){B, view->shape[1], view->shape[2] * view->shape[3]});
    }
    c->ends = (mha_call){.query = c->query, .key = c->key, .value = c->value, .output = c->given->output,
                         .weights = c->given->weights,
                         .weight_count = c->given->weight_count, .keep = c->keep, .keep_count = 3, .path = c->path,
                         .threads = c->given->threads};
    TRY(status);
    TRY(place(c, &c->ends.semantics, error));
    TRY(mha_plan_call(c->l->own, &c->ends, &c->plan, error));
    c->workspace = mha__mpi_scratch(c, c->plan.workspace_bytes, 1, &status, error);
    for (int w = MHA_W_Q; w < MHA_WEIGHT_COUNT; w++)
        if (w == MHA_SINKS || w == MHA_BIAS_TABLE || w == MHA_BIAS_K || w == MHA_BIAS_V || is_relative((mha_weight)w))
            c->weights[w] = weight_beside(c, (mha_weight)w);
    return status;
}
