/* Laboratory. One layer on several processes: libmha_mpi, which is no part of libmha. What each rank has and sends is
 * the arithmetic of mha/split.h.
 *
 * Every function says whether it is collective: then all ranks of the communicator call it, in the same order. The
 * library never calls MPI_Init, MPI_Finalize or MPI_Abort; it needs MPI_THREAD_FUNNELED and calls MPI from the thread
 * that called it. Errors that a rank finds by itself are agreed on before anybody waits for data: a collective function
 * returns the same status with the same message on every rank, that of the first rank that refused, and then no rank
 * has written an output. Errors of MPI itself are left to the error handler of the communicator; where that one
 * returns, they are MHA_IO. */
#ifndef MHA_MPI_H
#define MHA_MPI_H

#include <mpi.h>

#include "mha/attention.h"
#include "mha/model.h"
#include "mha/split.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The part of a layer that this rank has. */
typedef struct mha_mpi_layer mha_mpi_layer;

/* Collective. Duplicates `comm`, and allocates the weights of this rank's share in `table`, as mha_layer_create does
 * (table and prefix may be NULL). `config` is that of the whole layer and, like `scheme`, the same on all ranks. The
 * caller destroys the layer. Errors: those of mha_split_check and of mha_layer_create; MHA_INVALID: the ranks ask for
 * different layers. */
MHA_API mha_status mha_mpi_layer_create(MPI_Comm comm, mha_split_scheme scheme, const mha_config *config,
                                        mha_params *table, const char *prefix, mha_mpi_layer **layer,
                                        mha_error *error);
/* Collective. The same from a weights file, which every rank opens under its own `path`: each reads its part of every
 * weight (mha_model_load_share), so that no rank has the whole layer in memory. `report` may be NULL. Errors:
 * also those of mha_file_open and mha_model_load_share, of the first rank that has one. */
MHA_API mha_status mha_mpi_layer_load(MPI_Comm comm, mha_split_scheme scheme, const char *path,
                                      const mha_load_options *options, mha_params *table, mha_mpi_layer **layer,
                                      mha_load_report *report, mha_error *error);
/* Collective: frees the communicator, and removes the rows from the table. NULL is allowed, on all ranks. */
MHA_API void mha_mpi_layer_destroy(mha_mpi_layer *layer);

/* Not collective. The config of the whole layer, resolved; it lives as long as the layer. */
MHA_API const mha_config *mha_mpi_layer_config(const mha_mpi_layer *layer);
/* Not collective. This rank's layer: its table, packing, and with MHA_SPLIT_TENSOR a config with only its heads. */
MHA_API mha_layer *mha_mpi_layer_own(const mha_mpi_layer *layer);
/* Not collective. Copies this rank's part of every weight from a whole layer of the same config, which may then go.
 * MHA_INVALID: another config. */
MHA_API mha_status mha_mpi_layer_take(mha_mpi_layer *layer, const mha_layer *whole, mha_error *error);
/* Not collective. The same for one whole weight of any floating type. Errors as of mha_layer_set. */
MHA_API mha_status mha_mpi_layer_set(mha_mpi_layer *layer, mha_weight weight, const mha_view *whole, mha_error *error);
/* Not collective. Which rows of a call this rank has, and what it will send: mha_split_share of this rank for B batch
 * rows, T_q queries and T_k new keys. `dtype` is F64 for the exact path, else F32. Errors: those of mha_split_check. */
MHA_API mha_status mha_mpi_layer_share(const mha_mpi_layer *layer, size_t B, size_t T_q, size_t T_k, mha_dtype dtype,
                                       mha_share *share, mha_error *error);

/* Collective. One forward of the whole layer.
 *
 * MHA_SPLIT_TENSOR: every rank passes the same query, key and value and gets the whole output. Each adds up a part of
 * the ranks' outputs in float64, in the order of the ranks, so that the bits are the same on all ranks and runs.
 * MHA_SPLIT_ULYSSES, RING, ZIGZAG: query, key, value and output are this rank's rows, (B, rows, width), chunk after
 * chunk in the order of mha_share; T_q and T_k are the rows of all ranks together. Inputs that are left out follow the
 * others as in mha_call.
 * MHA_SPLIT_CACHE, for decoding: every rank passes the same query, key and value and gets the whole output. Its cache,
 * of the same capacity C on all ranks, keeps rows [rank * C, (rank + 1) * C) of the sequence: the caches fill up rank
 * after rank, and nothing is evicted. Masks and segments of keys have a column for every key, or one for all.
 *
 * call->semantics is that of the whole call and the same on every rank: positions, masks, lengths and slopes count all
 * rows and heads, and every query keeps its place among them. With MHA_SPLIT_TENSOR and
 * MHA_SPLIT_ULYSSES each rank's cache has the share's key/value heads, and all have cached the same number of rows.
 * Latents are made into keys and values before these are sent; with call->absorbed they are attended to themselves, and
 * cached: by MHA_SPLIT_TENSOR whole on every rank, by MHA_SPLIT_CACHE in rows.
 *
 * Against one process: MHA_SPLIT_ULYSSES gives the same bits on the exact path and, with packed weights, on the fast
 * one; MHA_SPLIT_RING and ZIGZAG on the exact path, where keys are visited in their order. Otherwise float results lie
 * within the error bound, wider by the rounding of parts that are merged. A ring on a float path starts with the rank's
 * own keys, while the others are on their way, and merges the parts in the order of the keys (mha_merge); parts that no
 * query sees are passed on but not computed.
 *
 * Errors: those of mha_plan_call; MHA_INVALID: rows that are not this rank's, calls that differ between ranks;
 * MHA_UNSUPPORTED: a ring or MHA_SPLIT_CACHE whose ranks' rows begin inside a block of a pattern; `absorbed` with
 * MHA_SPLIT_ULYSSES or a ring; stages to keep, pages, `partial`, a precision; messages of more than INT_MAX
 * numbers; a cache with a ring; a ragged batch, MHA_HIDDEN_PROPAGATE or MHA_SIGMOID with a ring or MHA_SPLIT_CACHE;
 * MHA_NO_MEMORY. A cache has the rows from before after an error. */
MHA_API mha_status mha_mpi_forward(mha_mpi_layer *layer, const mha_call *call, size_t T_q, size_t T_k,
                                   mha_error *error);

/* Collective. Attention without projections, as mha_run does it without a layer: query and output are
 * (B, rows, h, d_k) and (B, rows, h, d_v), key and value (B, rows, h_kv, width), and the call's weights those of all
 * heads. The rest is as of mha_mpi_forward with the same scheme. Errors: as there; MHA_UNSUPPORTED:
 * MHA_SPLIT_TENSOR, which has nothing to add up. */
MHA_API mha_status mha_mpi_attend(MPI_Comm comm, mha_split_scheme scheme, const mha_call *call, size_t T_q, size_t T_k,
                                  mha_error *error);

/* Bytes that a rank has in memory while a forward runs. */
typedef struct mha_mpi_memory {
    uint64_t weights; /* of its table, packed copies included */
    uint64_t rows;    /* the call's query, key, value and output */
    uint64_t cache;   /* the call's */
    uint64_t call;    /* what mha_mpi_forward takes, messages and workspace included; the layer keeps it for a next
                       * call of as many rows, until one of other sizes, or its end */
    uint64_t total;   /* the sum; MPI's own buffers and the programs are extra */
} mha_mpi_memory;

/* Collective. What a forward of this call will have in memory on this rank; nothing is computed, and no element of the
 * inputs is read. With MHA_SPLIT_RING and ZIGZAG `rows` and `call` are O(T / P). Errors: those of mha_mpi_forward. */
MHA_API mha_status mha_mpi_layer_memory(mha_mpi_layer *layer, const mha_call *call, size_t T_q, size_t T_k,
                                        mha_mpi_memory *memory, mha_error *error);

/* The parameters of all ranks, weight by weight. */
typedef struct mha_mpi_sum {
    uint64_t stored; /* elements on all ranks together, read from their tables */
    uint64_t unique; /* of the layer: stored / copies, summed; exactly what one process has */
    struct {
        uint64_t stored;
        size_t copies; /* ranks that hold the same elements (mha_split_copies) */
    } weights[MHA_WEIGHT_COUNT];
} mha_mpi_sum;

/* Collective. stored - unique are replicas: those of weights with more than one copy. */
MHA_API mha_status mha_mpi_totals(const mha_mpi_layer *layer, mha_mpi_sum *sum, mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
