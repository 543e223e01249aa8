/* Decoding with a cache whose rows lie on several ranks (flash-decoding): each rank attends to its own keys, and the
 * parts of all ranks are merged in the order of the keys. */
#include <string.h>

#include "mha/merge.h"
#include "mpi/shared.h"

typedef struct decoding {
    mha_range own;      /* new keys that this rank keeps */
    mha_view lse;       /* (B, h, T_q) */
    char *out, *in;     /* rows of heads, each (B, T_q, h) row of d_v numbers, followed by their lse */
    char *merged;       /* this rank's part of the rows of all keys */
    mha_part *parts;
    mha__mpi_message *messages; /* 4 for each rank */
    MPI_Request *requests;
    mha_call attend;
    mha_keep keep[2];
    mha_plan plan;
    void *workspace;
} decoding;

/* ---------------------------------------------------------------- what can be refused */

/* Rows of the sequence are cached rank after rank, each cache filled before the next one begins. */
static mha_status check_cache(const mha__mpi_call *c, mha_error *error)
{
    const mha_cache *cache = c->given->cache;
    const size_t C = c->split.capacity, first = c->l->rank * C;
    const size_t left = c->split.cached > first ? c->split.cached - first : 0, expected = left < C ? left : C;
    if (mha_cache_first(cache) != 0)
        return mha__fail(error, MHA_UNSUPPORTED, "cache",
                         "expected a cache without evicted rows: ranks share all rows");
    if (mha_cache_length(cache) != expected)
        return mha__fail(error, MHA_INVALID, "cache",
                         "expected %zu rows on this rank, of %zu in caches of %zu that fill rank after rank, found %zu",
                         expected, c->split.cached, C, mha_cache_length(cache));
    return MHA_OK;
}

static mha_status check_semantics(const mha__mpi_call *c, mha_error *error)
{
    const mha_semantics *s = &c->given->semantics;
    const size_t S = c->split.cached + c->split.T_k;
    if (s->place.cu_seqlens_q || s->softmax.hidden_values == MHA_HIDDEN_PROPAGATE)
        return mha__fail(error, MHA_UNSUPPORTED, s->place.cu_seqlens_q ? "cu_seqlens_q" : "hidden_values",
                         "expected scheme ulysses or tensor with it, found cache");
    if (s->softmax.normaliser != MHA_SOFTMAX)
        return mha__fail(error, MHA_UNSUPPORTED, "normaliser",
                         "expected softmax, whose parts merge by lse, found sigmoid; use tensor or ulysses");
    const mha_pattern *p = &s->visible.pattern;
    const size_t first = c->l->rank * c->split.capacity;
    if (c->given->absorbed && s->qkv.rope.cos_table.rank == 3)
        return mha__fail(error, MHA_UNSUPPORTED, "cos_table", "not with a row for each new row where latents lie on "
                         "several ranks: expected a table (n, dim/2), or frequencies");
    if (p->q_segments.data && !p->k_segments.data && c->split.T_q != S)
        return mha__fail(error, MHA_INVALID, "k_segments",
                         "expected one where keys are not the queries' tokens: %zu queries, %zu keys; found none",
                         c->split.T_q, S);
    const struct {
        const char *name;
        const mha_view *view;
        size_t size;
    } by_key[] = {{"mask", &s->visible.mask.values, 1}, {"k_segments", &p->k_segments, 1},
                  {"blocks", &p->blocks.values, p->block_keys > 0 ? p->block_keys : 1}};
    for (size_t i = 0; i < sizeof by_key / sizeof *by_key; i++) {
        const mha_view *v = by_key[i].view;
        const size_t columns = v->data && v->rank > 0 ? v->shape[v->rank - 1] : 1, size = by_key[i].size,
                     expected = S / size + (S % size != 0);
        if (columns != 1 && columns != expected)
            return mha__fail(error, MHA_INVALID, by_key[i].name,
                             "expected %zu columns for %zu keys or one for all, found %zu", expected, S, columns);
    }
    return mha__mpi_expect_block(c, true, (mha_range){first, first < S ? S - first : 0}, error);
}

/* The call of this rank's keys: positions count from the beginning of the sequence. With latents that are absorbed it
 * is one of the layer, for the new rows that the rank keeps; else of queries, keys and values that are made. */
static void part_call(mha__mpi_call *c, decoding *d)
{
    const size_t first = c->l->rank * c->split.capacity, held = mha_cache_length(c->given->cache);
    const mha_range keys = {first, held + d->own.count};
    mha_semantics s = c->given->semantics;
    if (!s.place.position_offset && !s.place.has_offset && s.place.offset == 0)
        s.place.offset = (int64_t)c->split.cached;
    s.place.has_offset = s.place.has_key_offset = true;
    if (c->given->absorbed)
        s.qkv.rope = c->ends.semantics.qkv.rope; /* the positions of all new rows */
    else
        mha__mpi_between(&s);
    s.place.keys_only |= c->l->rank != 0;
    s.softmax.empty_rows = MHA_EMPTY_ZERO;
    mha__mpi_cut(&s.visible.mask.values, 0, keys);
    mha__mpi_cut(&s.visible.key_padding.values, 0, keys);
    mha__mpi_cut_pattern(c, &s.visible.pattern, (mha_range){0, c->split.T_q}, keys);
    s.place.key_offset += (int64_t)first;
    d->keep[0] = (mha_keep){.stage = MHA_STAGE_LSE, .view = d->lse};
    if (c->given->absorbed) {
        const mha_view *h = &c->heads;
        if (s.qkv.rope.kind != MHA_ROPE_NONE)
            s.qkv.rope.k_positions = mha_view_slice(&s.qkv.rope.k_positions, 1, d->own.from, d->own.count);
        d->keep[1] = (mha_keep){.stage = MHA_STAGE_HEADS,
                                .view = mha_view_of(h->data, h->dtype, 3,
                                                    (size_t[]){h->shape[0], h->shape[1], h->shape[2] * h->shape[3]})};
        d->attend = (mha_call){.query = c->query, .key = mha_view_slice(&c->key, 1, d->own.from, d->own.count),
                               .keep = d->keep, .keep_count = 2, .semantics = s, .cache = c->given->cache,
                               .absorbed = true, .path = c->path, .threads = c->given->threads};
        return;
    }
    d->attend = (mha_call){.query = c->Q, .key = mha_view_slice(&c->K, 1, d->own.from, d->own.count),
                           .value = mha_view_slice(&c->V, 1, d->own.from, d->own.count), .output = c->heads,
                           .keep = d->keep, .keep_count = 1, .semantics = s, .weights = c->weights,
                           .weight_count = MHA_WEIGHT_COUNT,
                           .cache = c->given->cache, .path = c->path, .threads = c->given->threads};
}

static mha_status prepare(mha__mpi_call *c, mha_error *error)
{
    const size_t P = c->split.ranks, B = c->split.B, h = c->split.config.n_heads, d_v = c->split.config.d_v;
    const size_t n = B * c->split.T_q * h, bytes = mha__mpi_bytes(c->dtype), own = mha_range_of(n, P, c->l->rank).count;
    const mha_range keys = c->share.keys[0];
    mha_status status = MHA_OK;
    TRY(check_cache(c, error));
    TRY(check_semantics(c, error));
    c->share.keys[0] = (mha_range){0, c->split.T_k}; /* every rank projects all new rows, and keeps its own */
    c->k_rows = c->split.T_k;
    TRY(mha__mpi_prepare_rows(c, error));
    decoding *d = c->state = mha__mpi_take(c, 1, sizeof *d, &status, error);
    TRY(status);
    d->own = keys;
    c->heads = mha__mpi_rows(c, c->split.T_q, h, d_v, &status, error);
    d->lse = mha__mpi_view(c, c->dtype, 3, (size_t[]){B, h, c->split.T_q}, &status, error);
    d->out = mha__mpi_scratch(c, n * (d_v + 1), bytes, &status, error);
    d->in = mha__mpi_scratch(c, P * own * (d_v + 1), bytes, &status, error);
    d->merged = mha__mpi_scratch(c, own * d_v, bytes, &status, error);
    d->parts = mha__mpi_take(c, P, sizeof *d->parts, &status, error);
    d->messages = mha__mpi_take(c, 4 * P, sizeof *d->messages, &status, error);
    d->requests = mha__mpi_take(c, 2 * P, sizeof(MPI_Request), &status, error);
    TRY(status);
    part_call(c, d);
    TRY(mha_plan_call(c->given->absorbed ? c->l->own : NULL, &d->attend, &d->plan, error));
    d->workspace = mha__mpi_scratch(c, d->plan.workspace_bytes, 1, &status, error);
    return status;
}

/* ---------------------------------------------------------------- the exchange */

/* Puts the rows of every rank's part, heads and then lse, side by side. */
static void pack(const mha__mpi_call *c, const decoding *d, mha__mpi_message *messages)
{
    const size_t h = c->split.config.n_heads, d_v = c->split.config.d_v, bytes = mha__mpi_bytes(c->dtype);
    const size_t n = mha_view_elements(&d->lse), T_q = c->split.T_q;
    char *at = d->out;
    for (size_t p = 0; p < c->split.ranks; p++) {
        const mha_range rows = mha_range_of(n, c->split.ranks, p);
        messages[p] = (mha__mpi_message){at, rows.count * (d_v + 1)};
        memcpy(at, (const char *)c->heads.data + rows.from * d_v * bytes, rows.count * d_v * bytes);
        at += rows.count * d_v * bytes;
        for (size_t i = rows.from; i < rows.from + rows.count; i++, at += bytes) { /* (b, t, head) to (b, head, t) */
            const size_t b = i / h / T_q, t = i / h % T_q;
            memcpy(at, (const char *)d->lse.data + ((b * h + i % h) * T_q + t) * bytes, bytes);
        }
    }
}

/* Merges this rank's part of the rows: that of rank 0 first, whose keys come first. */
static mha_status merge(const mha__mpi_call *c, const decoding *d, size_t own, mha_error *error)
{
    const size_t d_v = c->split.config.d_v, heads[4] = {1, own, 1, d_v}, lse[3] = {1, 1, own};
    for (size_t p = 0; p < c->split.ranks; p++) {
        char *from = d->in + p * own * (d_v + 1) * mha__mpi_bytes(c->dtype);
        d->parts[p] = (mha_part){mha_view_of(from, c->dtype, 4, heads),
                                 mha_view_of(from + own * d_v * mha__mpi_bytes(c->dtype), c->dtype, 3, lse)};
    }
    const mha_part all = {mha_view_of(d->merged, c->dtype, 4, heads), {0}};
    return mha_merge(d->parts, c->split.ranks, c->given->semantics.softmax.empty_rows, &all, error);
}

static mha_status run(mha__mpi_call *c, mha_error *error)
{
    const decoding *d = c->state;
    const size_t P = c->split.ranks, d_v = c->split.config.d_v, n = mha_view_elements(&d->lse);
    const size_t own = mha_range_of(n, P, c->l->rank).count, bytes = mha__mpi_bytes(c->dtype);
    mha__mpi_message *parts = d->messages, *part = parts + P, *mine = part + P, *all = mine + P;
    mha_error first = {0};
    mha_status computed = MHA_OK;
    if (!c->given->absorbed)
        computed = mha_forward_inputs(&c->plan, c->workspace, c->plan.workspace_bytes, &first);
    if (computed == MHA_OK)
        computed = mha_forward(&d->plan, d->workspace, d->plan.workspace_bytes, &first);
    pack(c, d, parts);
    for (size_t p = 0; p < P; p++) {
        const mha_range rows = mha_range_of(n, P, p);
        part[p] = (mha__mpi_message){d->in + p * own * (d_v + 1) * bytes, own * (d_v + 1)};
        mine[p] = (mha__mpi_message){d->merged, own * d_v};
        all[p] = (mha__mpi_message){(char *)c->heads.data + rows.from * d_v * bytes, rows.count * d_v};
    }
    TRY(mha__mpi_exchange(c->l, c->dtype, parts, part, d->requests, error));
    if (computed == MHA_OK && own > 0)
        computed = merge(c, d, own, &first);
    TRY(mha__mpi_exchange(c->l, c->dtype, mine, all, d->requests, error));
    if (computed != MHA_OK)
        *error = first;
    return computed;
}

const mha__mpi_scheme mha__mpi_cache_rows = {prepare, run, NULL};
