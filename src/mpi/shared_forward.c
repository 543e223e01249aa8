/* A forward on all ranks: in which order they check, agree, exchange and write. */
#include <limits.h>
#include <string.h>

#include "mha/setting.h"
#include "mpi/shared.h"

/* Digest of the data that all ranks must share: every setting except the numbers of views. */
static uint64_t digest_settings(uint64_t digest, const mha__mpi_call *c)
{
    const mha_semantics *semantics = &c->given->semantics;
    const mha_setting *s;
    for (size_t i = 0; (s = mha_setting_at(i)) != NULL; i++) {
        char text[200];
        const void *numbers;
        const size_t length = mha_setting_length(s, semantics, c->split.B, c->split.config.n_heads);
        mha_setting_text(s, semantics, text, sizeof text);
        digest = mha__mpi_digest(digest, text, strlen(text) + 1);
        if (length > 0) { /* all pointers to numbers of 8 bytes have one form */
            memcpy(&numbers, (const char *)semantics + s->at, sizeof numbers);
            digest = mha__mpi_digest(digest, numbers, length * sizeof(int64_t));
        }
    }
    return digest;
}

static uint64_t digest_of(const mha__mpi_call *c)
{
    const int64_t whole[] = {(int64_t)c->split.B, (int64_t)c->split.T_q, (int64_t)c->split.T_k, c->given->absorbed,
                             (int64_t)c->cached, (int64_t)c->split.capacity, c->given->path,
                             c->given->output.data != NULL, c->given->cache != NULL};
    return digest_settings(mha__mpi_digest(0, whole, sizeof whole), c);
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
    const mha_visible *s = &c->given->semantics.visible;
    const mha_view *const views[] = {&s->mask.values, &s->pattern.key_lists,
                                     &s->pattern.blocks.values};
    static const char *const names_of[] = {"mask", "key_lists", "blocks"};
    const size_t h = c->split.config.n_heads;
    if (c->given->semantics.softmax.dropout_keep.data)
        return mha__fail(error, MHA_UNSUPPORTED, "dropout_keep", "ranks do not drop weights: expected none");
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
        return mha__fail(error, MHA_INVALID, "weights", "expected none with a layer, which has its own, found some");
    if (call->pages.keys.data)
        return mha__fail(error, MHA_UNSUPPORTED, "pages",
                         "expected none on several ranks, found some; give keys, or a cache");
    if (call->keep_count > 0 || call->partial.data || memcmp(&call->precision, &none, sizeof none) != 0)
        return mha__fail(error, MHA_UNSUPPORTED, "call",
                         "expected no kept stages, no `partial` and no precision on several ranks, found some");
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
    const uint64_t element = mha__mpi_bytes(c->dtype);
    if (c->share.bytes_sent / element > INT_MAX || c->share.bytes_received / element > INT_MAX)
        return mha__fail(error, MHA_UNSUPPORTED, "ranks",
                         "expected at most %d numbers for a rank, found %llu; use fewer rows in a call",
                         INT_MAX, (unsigned long long)(c->share.bytes_sent / element));
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
                           "expected a scheme for calls without a layer, found tensor; use ulysses");
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
    return view->data && mha_dtype_bytes(view->dtype, mha_view_elements(view), &bytes, NULL) == MHA_OK ? bytes : 0;
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
