/* A layer and a call that are shared by the ranks of a communicator: what the schemes are written with. */
#ifndef MHA_MPI_SHARED_H
#define MHA_MPI_SHARED_H

#include "base/arena.h"
#include "mha/mpi.h"

struct mha_mpi_layer {
    MPI_Comm comm;
    size_t rank;
    mha_split split; /* without the sizes of a call */
    mha_layer *own;  /* NULL: only attention, of query, key and value that are given head by head */
    mha__arena spare;       /* memory of the last call, for the next one of the same sizes */
    uint64_t spare_of;      /* those sizes, as a digest */
};

/* ---------------------------------------------------------------- agree.c */

/* MHA_IO with MPI's own words unless `code` is MPI_SUCCESS. */
mha_status mha__mpi_status(int code, mha_error *error);
/* Collective. The status of the first rank that has another than MHA_OK, with its *error, on every rank. A `digest`
 * that is not the same everywhere is an error, too: the ranks do not ask for the same. error may not be NULL. */
mha_status mha__mpi_agree(MPI_Comm comm, mha_status own, uint64_t digest, mha_error *error);
/* Another digest, of `bytes` more bytes; 0 begins one. */
uint64_t mha__mpi_digest(uint64_t digest, const void *data, size_t bytes);

/* `count` numbers at `data` for a peer, or from it. */
typedef struct mha__mpi_message {
    void *data;
    size_t count;
} mha__mpi_message;

/* Collective. Sends send[p] to rank p and receives receive[p] from it, for all ranks p, this one included. */
mha_status mha__mpi_exchange(const mha_mpi_layer *l, mha_dtype dtype, const mha__mpi_message *send,
                             const mha__mpi_message *receive, MPI_Request *requests, mha_error *error);
/* Bytes of F32 and F64, and MPI's names for them. */
static inline size_t mha__mpi_bytes(mha_dtype dtype)
{
    return dtype == MHA_F64 ? sizeof(double) : sizeof(float);
}
MPI_Datatype mha__mpi_type(mha_dtype dtype);

/* ---------------------------------------------------------------- shared_call.c */

/* A call on its way through a scheme. */
typedef struct mha__mpi_call {
    const mha_mpi_layer *l;
    const mha_call *given;
    mha_split split; /* with the sizes of the call */
    mha_share share;
    mha_dtype dtype; /* of what is computed between the projections, and sent */
    mha_path path;
    mha__arena arena;
    uint64_t taken; /* bytes of it */
    mha_view query, key, value; /* of this rank */
    size_t q_rows, k_rows;      /* of this rank */
    size_t cached;              /* rows cached before the call, on all ranks that share a cache */
    mha_call ends;              /* this rank's rows only through the projections */
    mha_view Q, K, V;           /* (B, rows, heads, width) of this rank's rows, rotated */
    mha_plan plan;              /* of `ends` */
    mha_keep keep[3];
    void *workspace;
    mha_view heads; /* (B, rows, h, d_v): what this rank's rows have attended to, once a scheme has run */
    mha_view weights[MHA_WEIGHT_COUNT]; /* for calls without a layer: what is not a projection, of the share's heads */
    void *state;                        /* of the scheme */
} mha__mpi_call;

/* The steps of a scheme: everything that can be refused first, then the exchange, then the output. */
typedef struct mha__mpi_scheme {
    mha_status (*prepare)(mha__mpi_call *c, mha_error *error);
    mha_status (*run)(mha__mpi_call *c, mha_error *error); /* communicates to the end, whatever fails */
    mha_status (*finish)(mha__mpi_call *c, mha_error *error); /* NULL: c->heads times W_O */
} mha__mpi_scheme;

extern const mha__mpi_scheme mha__mpi_tensor, mha__mpi_ulysses, mha__mpi_ring, mha__mpi_cache_rows;

/* Memory that lives as long as the call; NULL when there is none. */
void *mha__mpi_take(mha__mpi_call *c, size_t count, size_t size, mha_status *status, mha_error *error);
/* The same for rows, messages and workspace, which are written before they are read: not filled with zeros. */
void *mha__mpi_scratch(mha__mpi_call *c, size_t count, size_t size, mha_status *status, mha_error *error);
/* Refuses a view whose rows are not `rows` of a config's `heads`, side by side or without a layer one by one. */
mha_status mha__mpi_expect_rows(const mha__mpi_call *c, const char *name, const mha_view *view, size_t rows,
                                size_t heads, size_t width, mha_error *error);
/* Rows cached so far, evicted ones included; 0 without a cache. */
size_t mha__mpi_cached(const mha_cache *cache);
/* A contiguous view of new memory for F32 or F64; of (B, rows, heads, width) numbers of c->dtype. */
mha_view mha__mpi_view(mha__mpi_call *c, mha_dtype dtype, int rank, const size_t *shape, mha_status *status,
                       mha_error *error);
mha_view mha__mpi_rows(mha__mpi_call *c, size_t rows, size_t heads, size_t width, mha_status *status,
                       mha_error *error);
/* Copies the rows of `count` chunks of a view, whose axis 1 has rows, side by side to another. */
void mha__mpi_gather(const mha_view *whole, const mha_range *chunks, size_t count, const mha_view *to);
/* Elements of `range` of the axis that is so many from the last, unless it is broadcast; none of them where they lie
 * past the last element. */
void mha__mpi_cut(mha_view *view, int from_last, mha_range range);
/* The part of a pattern that some queries and keys have; blocks are cut where `range` begins with one. */
void mha__mpi_cut_pattern(const mha__mpi_call *c, mha_pattern *p, mha_range queries, mha_range keys);
/* Refuses blocks of a pattern that a part would begin inside of: `from` is its first query, or key. */
mha_status mha__mpi_expect_block(const mha__mpi_call *c, bool keys, mha_range range, mha_error *error);
/* The semantics of the whole call for the heads of the share: their slopes, their part of a mask. */
mha_semantics mha__mpi_of_heads(const mha__mpi_call *c);
/* Takes out what the projections of the ranks' rows have done already: rotation, norms, the scale by position. */
void mha__mpi_between(mha_semantics *s);
/* Checks the call as if one process had it, and plans the projections of this rank's rows at their positions. */
mha_status mha__mpi_prepare_rows(mha__mpi_call *c, mha_error *error);

/* ---------------------------------------------------------------- ring_parts.c */

/* Keys and values of some chunks, (B, rows, heads, width) each. */
typedef struct mha__mpi_block {
    size_t chunk;   /* number of the chunk in the order of keys */
    mha_range rows; /* of all keys */
    mha_view K, V;
} mha__mpi_block;

/* The attention of this rank's queries over the blocks that it has met. */
typedef struct mha__mpi_parts mha__mpi_parts;

/* NULL, with *status, where there is no memory. */
mha__mpi_parts *mha__mpi_parts_create(mha__mpi_call *c, mha_status *status, mha_error *error);
/* Before the first block: each of them, in the order of visits, with memory where its numbers will be. */
mha_status mha__mpi_parts_expect(mha__mpi_call *c, mha__mpi_parts *parts, const mha__mpi_block *block,
                                 mha_error *error);
/* Takes the memory for what is expected. */
mha_status mha__mpi_parts_prepare(mha__mpi_call *c, mha__mpi_parts *parts, mha_error *error);
/* Attends to a block, and joins the result with that of its neighbours. */
mha_status mha__mpi_parts_meet(mha__mpi_call *c, mha__mpi_parts *parts, const mha__mpi_block *block, mha_error *error);
/* After the last block: the heads (B, rows of this rank, h, d_v), in the order of the keys. */
mha_status mha__mpi_parts_join(mha__mpi_call *c, mha__mpi_parts *parts, mha_view *heads, mha_error *error);

#endif
