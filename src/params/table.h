/* The parts of the parameter table: storages, rows, and the index of their names. */
#ifndef MHA_PARAMS_TABLE_H
#define MHA_PARAMS_TABLE_H

#include <stdatomic.h>

#include "params/params.h"

/* The numbers of a tensor: as its views show them, packed, or both. `owner` is the oldest row that uses it. */
typedef struct mha__tensor_storage {
    _Atomic(void *) data; /* NULL: only packed */
    void *block;          /* the addresses of `data` in a chunk; NULL: `data` is a block of the allocator */
    struct mha__chunk *chunk;
    size_t elements, bytes;
    void *packed; /* NULL: not packed */
    size_t packed_bytes;
    const mha__packer *packer;
    mha_view matrix;   /* what is packed, without data */
    atomic_bool asked; /* somebody may still use a view of `data` */
    size_t number; /* counted in the order of allocation */
    mha_dtype dtype;
    mha_tensor_kind kind;
    bool frozen, by_column;
    size_t rows;
    mha_tensor *owner;
} mha__tensor_storage;

struct mha_tensor {
    mha__tensor_storage *storage;
    mha_params *table;
    char *name, *role, *group; /* one block, in this order */
    char *inert_why;
    size_t name_bytes, inert_bytes;
    int rank;
    size_t shape[MHA_MAX_RANK];
    mha_dtype source_dtype;
    size_t inert_elements;
    size_t row;            /* index in the table */
    mha_tensor *same_hash; /* next row in the bucket */
};

struct mha_params {
    mha_allocator allocator;
    mha_tensor **rows;
    mha_tensor **buckets; /* rows by hash of their name; as many as `capacity`, a power of two */
    size_t count, capacity;
    size_t next_number;
    struct mha__chunk *chunk; /* new small blocks come from it; NULL: none yet */
    size_t small_bytes;       /* of small blocks that came from the allocator */
};

/* ---------------------------------------------------------------- tensor_storage.c */

/* Zeroed memory for the numbers of a storage, whose `bytes` are set. False: there is no memory. */
bool mha__storage_allocate(mha_params *table, mha__tensor_storage *s);
/* Returns the pages of the numbers to the system. mha__storage_renew gives memory for them again, not zeroed; NULL:
 * there is none. Threads may do this to storages of one table, each to its own. */
void mha__storage_drop(const mha_params *table, mha__tensor_storage *s);
void *mha__storage_renew(const mha_params *table, const mha__tensor_storage *s);
void mha__storage_release(mha_params *table, mha__tensor_storage *s);

#endif
