/* A forward on all ranks: in which order they check, agree, exchange and write. */
#include <limits.h>
#include <string.h>

#include "mpi/shared.h"

/* The type and the shape of an array, which may not be there; not what it holds. */
static uint64_t digest_shape(uint64_t digest, const mha_view *view)
{
    uint64_t numbers[2 + MHA_MAX_RANK] = {view->dtype, (uint64_t)view->rank};
    for (int k = 0; k < view->rank && view->data; k++)
        numbers[2 + k] = view->shape[k];
    return view->data ? mha__mpi_digest(digest, numbers, sizeof numbers) : mha__mpi_digest(digest, "", 1);
}

/* What all ranks must have in common: all numbers, lists that are short, and the shapes of arrays. */
static uint64_t digest_of(const mha__mpi_call *c)
{
    const mha_semantics *s = &c->given->semantics;
    const mha_pattern *p = &s->pattern;
    const size_t B = s->cu_seqlens_q ? s->n_sequences : c->split.B;
    const double real[] = {s->scale, s->softcap, s->padding_fill, s->norm_eps, s->rope.base,
                           s->rope.attention_factor, s->query_scale.growth, s->sigmoid_bias, s->relative.k_scale,
                           s->relative.q_scale, s->clip_qkv};
    const int64_t whole[] = {(int64_t)c->split.B, (int64_t)c->split.T_q, (int64_t)c->split.T_k, s->has_scale,
                             s->has_offset, s->offset, s->position_offset != NULL, s->has_key_offset, s->key_offset,
                             s->keys_only, s->causal, s->prefix, s->window, s->window_left,
                             s->window_right, s->window_keep, s->chunk, s->rope.last,
                             s->kv_lengths != NULL, s->key_padding.kind, s->has_padding_fill, s->mask.kind,
                             s->bias.rule, s->bias.one_way, (int64_t)s->bias.max_distance, (int64_t)s->bias.height,
                             (int64_t)s->bias.width, s->bias.class_token, s->relative.rule, s->relative.reversed,
                             (int64_t)s->relative.max_distance, (int64_t)s->relative.height,
                             (int64_t)s->relative.width,
                             s->alibi_slopes != NULL, s->rope.kind, (int64_t)s->rope.dim, s->zero_row,
                             s->softmax_plus_one, s->normaliser, s->empty_rows, s->hidden_values,
                             s->norm.kind, s->norm.plus_one, s->norm.after_rope,
                             s->norm.unweighted, s->query_scale.every, s->query_scale.first,
                             (int64_t)s->n_sequences, p->query_padding.kind, p->blocks.kind,
                             (int64_t)p->block_queries, (int64_t)p->block_keys, c->given->absorbed,
                             (int64_t)c->cached, (int64_t)c->split.capacity, c->given->path,
                             c->given->output.data != NULL,
                             c->given->cache != NULL};
    uint64_t digest = mha__mpi_digest(mha__mpi_digest(0, real, sizeof real), whole, sizeof whole);
    const mha_view *const arrays[] = {&s->mask.values, &s->key_padding.values, &s->rope.frequencies,
                                      &s->rope.q_positions, &s->rope.k_positions, &s->rope.cos_table,
                                      &s->rope.sin_table, &p->q_segments, &p->k_segments, &p->query_padding.values,
                                      &p->key_lists, &p->blocks.values};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        digest = digest_shape(digest, arrays[i]);
    const int64_t *const bounds[] = {s->cu_seqlens_q, s->cu_seqlens_k};
    for (size_t i = 0; i < 2; i++)
        digest = bounds[i] ? mha__mpi_digest(digest, bounds[i], (s->n_sequences + 1) * sizeof *bounds[i]) : ~digest;
    if (s->position_offset)
        digest = mha__mpi_digest(digest, s->position_offset, B * sizeof *s->position_offset);
    if (s->kv_lengths)
        digest = mha__mpi_digest(digest, s->kv_lengths, B * sizeof *s->kv_lengths);
    if (s->alibi_slopes)
        digest = mha__mpi_digest(digest, s->alibi_slopes, c->split.config.n_heads * sizeof *s->alibi_slopes);
    return digest;
}

/* Collective: rows cached so far, and room in the caches, where these are parts of one. */
static mha_status count_cached(mha__mpi_call *c, mha_error *error)
{
    const mha_cache *cache = c->given->cache;
    uint64_t own = cache ? mha_cache_length(cache) : 0, all = 0;
    c->cached = mha__mpi_cached(cache);
    if (c->split.scheme != MHA_SPLIT_CACHE)
        return MHA_OK;
    TRY(mha__mpi_status(MPI_Allreduce(&own, &all, 1, MPI_UINT64_T, MPI_SUM, c->l->comm), error));
    c->cached = c->split.cached = (size_t)all;
    c->split.capacity = cache ? mha_cache_capacity(cache) : 0;
    return MHA_OK;
}

/* Masks and patterns are cut by heads before they are checked: an axis of heads has all of them, or one for all. */
static mha_status check_heads(const mha__mpi_call *c, mha_error *error)
{
    const mha_semantics *s = &c->given->semantics;
    const mha_view *const views[] = {&s->mask.values, &s->pattern.key_lists, &s->pattern.blocks.values};
    static const char *const names_of[] = {"mask", "key_lists", "blocks"};
    const size_t h = c->split.config.n_heads;
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        const size_t heads = views[i]->data && views[i]->rank > 2 ? views[i]->shape[views[i]->rank - 3] : 1;
        if (heads != 1 && heads != h)
            return mha__fail(error, MHA_INVALID, names_of[i], "expected %zu heads or one for all, found %zu", h, heads);
    }
    return MHA_OK;
}

static mha_status check_call(mha__mpi_call *c, size_t T_q, size_t T_k, mha_error *error)
{
    const mha_call *call = c->given;
    static const mha_precision none;
    c->query = call->query;
    c->key = !call->key.data && call->key.rank == 0 ? c->query : call->key;
    c->value = !call->value.data && call->value.rank == 0 ? c->key : call->value;
    if (c->query.rank != (c->l->own ? 3 : 4))
        return mha__fail(error, MHA_INVALID, "query", "expected shape (B, rows, %s), found rank %d",
                         c->l->own ? "width" : "h, d_k", c->query.rank);
    if (call->weights && c->l->own)
        return mha__fail(error, MHA_INVALID, "weights", "the layer has its own");
    if (call->pages.keys.data)
        return mha__fail(error, MHA_UNSUPPORTED, "pages", "ranks do not share keys in pages: give keys, or a cache");
    if (call->keep_count > 0 || call->partial.data || memcmp(&call->precision, &none, sizeof none) != 0)
        return mha__fail(error, MHA_UNSUPPORTED, "call",
                         "a call that ranks share has no stages to keep, no `partial` and no precision");
    c->path = call->path;
    c->split.absorbed = call->absorbed;
    c->dtype = call->path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32;
    c->split.B = c->query.shape[0], c->split.T_q = T_q, c->split.T_k = T_k, c->split.dtype = c->dtype;
    if (c->split.scheme == MHA_SPLIT_CACHE && !call->cache)
        return mha__fail(error, MHA_INVALID, "cache", "expected the part of the cache that this rank keeps");
    TRY(mha_split_check(&c->split, error));
    TRY(check_heads(c, error));
    c->share = mha_split_share(&c->split, c->l->rank);
    c->q_rows = c->share.queries[0].count + c->share.queries[1].count;
    c->k_rows = c->share.keys[0].count + c->share.keys[1].count;
    const uint64_t element = c->dtype == MHA_F64 ? 8 : 4;
    if (c->share.bytes_sent / element > INT_MAX || c->share.bytes_received / element > INT_MAX)
        return mha__fail(error, MHA_UNSUPPORTED, "ranks",
                         "%llu numbers for one rank are more than MPI counts (%d): fewer rows in a call",
                         (unsigned long long)(c->share.bytes_sent / element), INT_MAX);
    return MHA_OK;
}

static const mha__mpi_scheme *scheme_of(mha_split_scheme scheme)
{
    switch (scheme) {
    case MHA_SPLIT_TENSOR: return &mha__mpi_tensor;
    case MHA_SPLIT_ULYSSES: return &mha__mpi_ulysses;
    case MHA_SPLIT_RING:
    case MHA_SPLIT_ZIGZAG: return &mha__mpi_ring;
    default: return &mha__mpi_cache_rows;
    }
}

/* The memory of the last call where it was of the same sizes, else none. */
static mha__arena take_spare(mha_mpi_layer *layer, uint64_t sizes)
{
    mha__arena spare = {.allocator = layer->own ? *mha_params_allocator(mha_layer_params(layer->own))
                                                : mha__allocator_default()};
    if (sizes != layer->spare_of)
        mha__arena_free(&layer->spare);
    spare.spare = layer->spare.spare;
    layer->spare = (mha__arena){0};
    layer->spare_of = sizes;
    return spare;
}

/* Collective: all that can be refused. The status, agreed on by all ranks; the caller frees or recycles the arena in
 * any case. */
static mha_status begin(mha__mpi_call *c, mha_mpi_layer *layer, const mha_call *call, size_t T_q, size_t T_k,
                        mha_error *e)
{
    const uint64_t sizes[] = {call->query.rank > 0 ? call->query.shape[0] : 0, T_q, T_k, call->path};
    *c = (mha__mpi_call){.l = layer, .given = call, .split = layer->split,
                         .arena = take_spare(layer, mha__mpi_digest(0, sizes, sizeof sizes))};
    TRY(count_cached(c, e));
    mha_status status = check_call(c, T_q, T_k, e);
    if (status == MHA_OK)
        status = scheme_of(layer->split.scheme)->prepare(c, e);
    return mha__mpi_agree(layer->comm, status, status == MHA_OK ? digest_of(c) : 0, e);
}

mha_status mha_mpi_forward(mha_mpi_layer *layer, const mha_call *call, size_t T_q, size_t T_k, mha_error *error)
{
    mha_error held = {0};
    mha_error *const e = error ? error : &held;
    const mha__mpi_scheme *scheme = scheme_of(layer->split.scheme);
    const size_t length = call->cache ? mha_cache_length(call->cache) : 0;
    mha__mpi_call c;
    mha_status status = begin(&c, layer, call, T_q, T_k, e);
    if (status == MHA_OK) {
        status = scheme->run(&c, e);
        status = mha__mpi_agree(layer->comm, status, 0, e);
    }
    if (status == MHA_OK)
        status = scheme->finish ? scheme->finish(&c, e)
                                : mha_forward_output(&c.plan, &c.heads, c.workspace, c.plan.workspace_bytes, e);
    if (status != MHA_OK && call->cache) /* what was appended before another rank failed */
        mha_cache_truncate(call->cache, length);
    mha__arena_recycle(&c.arena);
    layer->spare = c.arena;
    return status;
}

mha_status mha_mpi_attend(MPI_Comm comm, mha_split_scheme scheme, const mha_call *call, size_t T_q, size_t T_k,
                          mha_error *error)
{
    mha_error held = {0};
    mha_error *const e = error ? error : &held;
    const mha_view *q = &call->query, *k = call->key.rank ? &call->key : q, *v = call->value.rank ? &call->value : k;
    mha_mpi_layer layer = {.split = {.scheme = scheme}};
    int rank = 0, size = 0;
    TRY(mha__mpi_status(MPI_Comm_dup(comm, &layer.comm), e));
    (void)MPI_Comm_rank(layer.comm, &rank);
    (void)MPI_Comm_size(layer.comm, &size);
    layer.rank = (size_t)rank, layer.split.ranks = (size_t)size;
    mha_status status = MHA_OK;
    if (scheme == MHA_SPLIT_TENSOR)
        status = mha__fail(e, MHA_UNSUPPORTED, "scheme",
                           "attention alone has no outputs to add up: ulysses shares the heads");
    else if (q->rank != 4 || k->rank != 4 || v->rank != 4)
        status = mha__fail(e, MHA_INVALID, "query", "expected query, key and value (B, rows, heads, width)");
    layer.split.config = (mha_config){.d_model = 1, .n_heads = q->shape[2], .kv_heads = k->shape[2],
                                      .d_k = q->shape[3], .d_v = v->shape[3]};
    status = mha__mpi_agree(layer.comm, status, 0, e);
    if (status == MHA_OK)
        status = mha_mpi_forward(&layer, call, T_q, T_k, e);
    mha__arena_free(&layer.spare);
    (void)MPI_Comm_free(&layer.comm);
    return status;
}

/* Bytes of an array that the caller has. */
static uint64_t bytes_of(const mha_view *view)
{
    size_t bytes = 0;
    return view->data && mha_dtype_bytes(view->dtype, mha_view_elements(view), &bytes) == MHA_OK ? bytes : 0;
}

mha_status mha_mpi_layer_memory(mha_mpi_layer *layer, const mha_call *call, size_t T_q, size_t T_k,
                                mha_mpi_memory *memory, mha_error *error)
{
    mha_error held = {0};
    mha__mpi_call c;
    const mha_status status = begin(&c, layer, call, T_q, T_k, error ? error : &held);
    if (status == MHA_OK) {
        const mha_totals totals = mha_params_totals(mha_layer_params(layer->own), NULL);
        *memory = (mha_mpi_memory){.weights = totals.parameter_bytes + totals.derived_bytes,
                                   .rows = bytes_of(&call->query) + bytes_of(&call->key) + bytes_of(&call->value) +
                                           bytes_of(&call->output),
                                   .cache = call->cache ? mha_cache_bytes(call->cache) : 0,
                                   .call = c.taken};
        memory->total = memory->weights + memory->rows + memory->cache + memory->call;
    }
    mha__arena_free(&c.arena);
    return status;
}
