/* What the parameter table is made of: storages, rows, and the index of their names. */
#ifndef MHA_PARAMS_TABLE_H
#define MHA_PARAMS_TABLE_H

#include <stdatomic.h>

#include "params/params.h"

/* The numbers of a tensor: as its views show them, packed, or both. `owner` is the oldest row that uses it. */
typedef struct mha__tensor_storage {
    _Atomic(void *) data; /* NULL: packed alone */
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
    struct mha__tensor_storage *previous, *next;
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
    mha__tensor_storage *first, *last;
    size_t next_number;
};

#endif
