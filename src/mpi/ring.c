/* Ring and zigzag: keys and values go round from rank to rank, and each rank attends to those that pass. */
#include <string.h>

#include "mpi/shared.h"

/* One message of the ring: all chunks of a rank, or on the exact path one chunk after the other, because
 * there the keys must come in their order. */
typedef struct unit {
    size_t owner, first, count; /* of the owner's chunks */
} unit;

typedef struct ring {
    char *own, *buffers[2];
    mha__mpi_parts *parts;
    MPI_Request receiving, sending;
} ring;

/* Elements in a row of keys and values. */
static size_t row_width(const mha__mpi_call *c)
{
    return c->split.B * c->split.config.kv_heads * (c->split.config.d_k + c->split.config.d_v);
}

/* ---------------------------------------------------------------- the order of visits */

static size_t unit_count(const mha__mpi_call *c)
{
    return c->path == MHA_PATH_EXACT ? c->split.ranks * c->share.chunks : c->split.ranks;
}

static unit unit_at(const mha__mpi_call *c, size_t i)
{
    const size_t P = c->split.ranks;
    if (c->path != MHA_PATH_EXACT) /* own keys first, then those of the ranks before this one */
        return (unit){(c->l->rank + P - i) % P, 0, c->share.chunks};
    return (unit){i < P ? i : 2 * P - 1 - i, i >= P, 1};
}

static size_t unit_rows(const mha__mpi_call *c, const unit *u)
{
    const mha_share owner = mha_split_share(&c->split, u->owner);
    return owner.keys[u->first].count + (u->count > 1 ? owner.keys[1].count : 0);
}

/* ---------------------------------------------------------------- blocks in memory */

/* Chunk `i` of a rank, at `data`: its keys, then its values. */
static mha__mpi_block block_at(const mha__mpi_call *c, size_t owner, size_t i, char *data)
{
    const mha_config *config = &c->split.config;
    const mha_range rows = mha_split_share(&c->split, owner).keys[i];
    const size_t B = c->split.B, h = config->kv_heads, k[4] = {B, rows.count, h, config->d_k},
                 v[4] = {B, rows.count, h, config->d_v};
    mha__mpi_block block = {i == 0 ? owner : 2 * c->split.ranks - 1 - owner, rows, mha_view_of(data, c->dtype, 4, k),
                            {0}};
    block.V = mha_view_of(data + mha_view_elements(&block.K) * mha__mpi_bytes(c->dtype), c->dtype, 4, v);
    return block;
}

static size_t block_bytes(const mha__mpi_call *c, size_t rows)
{
    return rows * row_width(c) * mha__mpi_bytes(c->dtype);
}

/* This rank's keys and values as blocks. */
static void fill_own(const mha__mpi_call *c, const ring *r)
{
    char *data = r->own;
    for (size_t i = 0, from = 0; i < c->share.chunks; i++) {
        const size_t rows = c->share.keys[i].count;
        const mha__mpi_block block = block_at(c, c->l->rank, i, data);
        const mha_view K = mha_view_slice(&c->K, 1, from, rows), V = mha_view_slice(&c->V, 1, from, rows);
        (void)mha_view_copy(&block.K, &K, NULL);
        (void)mha_view_copy(&block.V, &V, NULL);
        data += block_bytes(c, rows);
        from += rows;
    }
}

/* ---------------------------------------------------------------- the scheme */

static mha_status prepare(mha__mpi_call *c, mha_error *error)
{
    const mha_semantics *s = &c->given->semantics;
    mha_status status = MHA_OK;
    if (c->given->cache)
        return mha__fail(error, MHA_UNSUPPORTED, "cache", "expected none with ring or zigzag, found one; "
                         "tensor and ulysses keep a cache by heads");
    if (s->place.cu_seqlens_q)
        return mha__fail(error, MHA_UNSUPPORTED, "cu_seqlens_q",
                         "expected none with ring or zigzag, found one; use ulysses");
    if (s->softmax.hidden_values == MHA_HIDDEN_PROPAGATE)
        return mha__fail(error, MHA_UNSUPPORTED, "hidden_values",
                         "expected ignore with ring or zigzag, found propagate; use tensor or ulysses");
    if (s->softmax.normaliser != MHA_SOFTMAX)
        return mha__fail(error, MHA_UNSUPPORTED, "normaliser",
                         "expected softmax, whose parts merge by lse, found sigmoid; use tensor or ulysses");
    TRY(mha__mpi_prepare_rows(c, error));
    ring *r = c->state = mha__mpi_take(c, 1, sizeof *r, &status, error);
    TRY(status);
    size_t most = 0, coming = 0;
    for (size_t i = 0; i < unit_count(c); i++) {
        const unit u = unit_at(c, i);
        const size_t bytes = u.owner == c->l->rank ? 0 : block_bytes(c, unit_rows(c, &u));
        most = bytes > most ? bytes : most;
        coming += bytes > 0;
    }
    r->own = mha__mpi_scratch(c, block_bytes(c, c->k_rows), 1, &status, error);
    for (size_t i = 0; i < 2; i++) /* the second one is for what comes while the first is passed on */
        r->buffers[i] = mha__mpi_scratch(c, coming > i ? most : 0, 1, &status, error);
    r->receiving = r->sending = MPI_REQUEST_NULL;
    r->parts = mha__mpi_parts_create(c, &status, error);
    TRY(status);
    for (size_t i = 0; i < unit_count(c); i++) {
        const unit u = unit_at(c, i);
        char *data = u.owner == c->l->rank ? r->own : r->buffers[0];
        for (size_t k = u.first; k < u.first + u.count; k++) {
            const mha__mpi_block block = block_at(c, u.owner, k, data);
            TRY(mha__mpi_parts_expect(c, r->parts, &block, error));
        }
    }
    return mha__mpi_parts_prepare(c, r->parts, error);
}

/* Keys that have not come yet are received from the rank before this one; `*next` is the unit to be waited for. */
static mha_status expect(const mha__mpi_call *c, ring *r, size_t *next, char *buffer, mha_error *error)
{
    const size_t P = c->split.ranks, before = (c->l->rank + P - 1) % P;
    unit u;
    do
        u = unit_at(c, ++*next);
    while (*next < unit_count(c) && (u.owner == c->l->rank || unit_rows(c, &u) == 0));
    if (*next >= unit_count(c))
        return MHA_OK;
    return mha__mpi_status(MPI_Irecv(buffer, (int)(unit_rows(c, &u) * row_width(c)), mha__mpi_type(c->dtype),
                                     (int)before, 0, c->l->comm, &r->receiving),
                           error);
}

static mha_status pass_on(const mha__mpi_call *c, ring *r, const unit *u, char *data, mha_error *error)
{
    const size_t after = (c->l->rank + 1) % c->split.ranks, rows = unit_rows(c, u);
    if (u->owner == after || rows == 0) /* it has been everywhere */
        return MHA_OK;
    return mha__mpi_status(MPI_Isend(data, (int)(rows * row_width(c)), mha__mpi_type(c->dtype), (int)after, 0,
                                     c->l->comm, &r->sending),
                           error);
}

static mha_status meet(mha__mpi_call *c, const ring *r, const unit *u, char *data, mha_error *error)
{
    for (size_t i = u->first; i < u->first + u->count; i++) {
        const mha__mpi_block block = block_at(c, u->owner, i, data);
        TRY(mha__mpi_parts_meet(c, r->parts, &block, error));
        data += block_bytes(c, block.rows.count);
    }
    return MHA_OK;
}

static mha_status run(mha__mpi_call *c, mha_error *error)
{
    ring *r = c->state;
    mha_error first = {0};
    mha_status computed = mha_forward_inputs(&c->plan, c->workspace, c->plan.workspace_bytes, &first);
    fill_own(c, r);
    size_t next = SIZE_MAX, slot = 0; /* of the unit that is waited for, and its buffer */
    TRY(expect(c, r, &next, r->buffers[0], error));
    for (size_t i = 0; i < unit_count(c); i++) {
        const unit u = unit_at(c, i);
        const mha_range mine = c->share.keys[0];
        char *data = u.owner == c->l->rank ? r->own + (u.first ? block_bytes(c, mine.count) : 0) : r->buffers[slot];
        const bool arrives = i == next;
        if (arrives)
            TRY(mha__mpi_status(MPI_Wait(&r->receiving, MPI_STATUS_IGNORE), error));
        TRY(mha__mpi_status(MPI_Wait(&r->sending, MPI_STATUS_IGNORE), error)); /* the other buffer is free now */
        if (arrives)
            TRY(expect(c, r, &next, r->buffers[slot = 1 - slot], error));
        TRY(pass_on(c, r, &u, data, error));
        if (computed == MHA_OK)
            computed = meet(c, r, &u, data, &first);
    }
    TRY(mha__mpi_status(MPI_Wait(&r->sending, MPI_STATUS_IGNORE), error));
    if (computed == MHA_OK)
        computed = mha__mpi_parts_join(c, r->parts, &c->heads, &first);
    if (computed != MHA_OK)
        *error = first;
    return computed;
}

const mha__mpi_scheme mha__mpi_ring = {prepare, run, NULL};
