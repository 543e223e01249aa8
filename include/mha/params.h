/* The parameter table: all weights are allocated through it, and are counted by what has been allocated. */
#ifndef MHA_PARAMS_H
#define MHA_PARAMS_H

#include "mha/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* storage  one allocation.
 * tensor   a named, typed, shaped use of a storage: one row of the table.
 * alias    a second name for the same storage (tied weights): a row, but no new elements.
 * view     a slice of a tensor, made on demand: never a row, never counted.
 * Totals are always computed by walking the storages. `mha_params` is the table. */
typedef struct mha_params mha_params;
typedef struct mha_tensor mha_tensor; /* a row; valid as long as the layer or model that added it, and the table */

typedef enum mha_tensor_kind {
    MHA_TENSOR_PARAMETER = 0, /* learned */
    MHA_TENSOR_BUFFER,        /* not learned: causal masks, position ids, rotary tables */
    MHA_TENSOR_DERIVED        /* built from parameters: gradients ("W_Q.gradient"), and weights that are made of others
                               * at load (mha_model_load_layer); bytes are shown, elements never counted */
} mha_tensor_kind;

/* One row to be added. Zero in a field is its usual value. The strings are copied. */
typedef struct mha_tensor_spec {
    const char *name;  /* unique in the table, not empty */
    const char *role;  /* the tensor's purpose: "W_Q", "embedding", ...; NULL is "" */
    const char *group; /* the part of the model it belongs to: "attention", "ffn", ...; NULL is "" */
    mha_dtype dtype;
    mha_dtype source_dtype; /* of the file it will be read from */
    bool has_source;        /* false: source_dtype equals dtype */
    int rank;
    size_t shape[MHA_MAX_RANK];
    mha_tensor_kind kind;
    bool frozen; /* a parameter that is not trained */
    bool by_column; /* a matrix whose columns lie one after the other: strides (1, rows) */
    uint64_t reserved[4]; /* 0; see mha.h */
} mha_tensor_spec;

/* A row as it is now: plain values; strings and data are borrowed from the table. */
typedef struct mha_tensor_info {
    const char *name, *role, *group;
    mha_dtype dtype, source_dtype;
    int rank;
    size_t shape[MHA_MAX_RANK];
    mha_tensor_kind kind;
    bool trainable;
    size_t elements;       /* product of the shape */
    size_t bytes;          /* what these elements occupy in the storage */
    size_t inert_elements; /* parameter elements that cannot change the output */
    const char *inert_why; /* the rule that makes them inert; "" when there are none */
    size_t storage;        /* number of the storage, counted from 0 in order of allocation */
    const char *alias_of;  /* name of the row that owns the storage, NULL for the owner itself */
    void *data;            /* 64-byte aligned; NULL for zero elements, and while only panels are stored */
    size_t packed_bytes;   /* of the panels of mha_layer_pack, with what pads them; 0: it is not packed */
    uint64_t reserved[3]; /* 0; see mha.h */
} mha_tensor_info;

/* Sums over storages (each once), except `tensors` and `aliases`, which count rows. Of a weight that is packed and has
 * its numbers as well, the panels are derived. */
typedef struct mha_totals {
    size_t parameters; /* elements of parameter storages */
    size_t parameter_bytes;
    size_t trainable; /* those not frozen */
    size_t buffers;   /* elements of buffer storages */
    size_t buffer_bytes;
    size_t derived_bytes;
    size_t inert;    /* inert elements among the parameters */
    size_t storages; /* of parameters and buffers */
    size_t derived_storages;
    size_t tensors, aliases;
    size_t bytes_allocated; /* asked of the allocator for all storages, padding included */
    uint64_t reserved[4]; /* 0; see mha.h */
} mha_totals;

/* An empty table. `allocator` NULL: the default; otherwise its functions are copied and its context must outlive the
 * table. The caller destroys the table, after every object (layer, model) that added rows to it.
 * Errors: MHA_NO_MEMORY. */
MHA_API mha_status mha_params_create(const mha_allocator *allocator, mha_params **table, mha_error *error);
/* Releases all storages. NULL is allowed. */
MHA_API void mha_params_destroy(mha_params *table);

/* The allocator of the table, for objects that live with its rows. Valid as long as the table. */
MHA_API const mha_allocator *mha_params_allocator(const mha_params *table);

/* Adds a row with a storage of its own, filled with zeros; the system commits a large storage page by page, as it is
 * written. `tensor` may be NULL. Errors: MHA_INVALID (a name that is empty or in use, a rank out of range, a size
 * that does not fit a size_t), MHA_NO_MEMORY; the table is then as before. */
MHA_API mha_status mha_params_add(mha_params *table, const mha_tensor_spec *spec, mha_tensor **tensor,
                                  mha_error *error);
/* Adds a second name for the storage of `of`, with the dtype, kind and training state of `of`. `spec` gives name,
 * role, group and a shape with the same number of elements; with rank 0 the row takes the shape of `of`. Errors as of
 * mha_params_add. */
MHA_API mha_status mha_params_alias(mha_params *table, const mha_tensor_spec *spec, mha_tensor *of, mha_tensor **tensor,
                                    mha_error *error);

/* Rows in the order they were added. `at` gives NULL past the end; `find` NULL for an unknown name. */
MHA_API size_t mha_params_count(const mha_params *table);
MHA_API mha_tensor *mha_params_at(const mha_params *table, size_t index);
MHA_API mha_tensor *mha_params_find(const mha_params *table, const char *name);

MHA_API mha_tensor_info mha_tensor_info_of(const mha_tensor *tensor);
/* The whole tensor: a contiguous view, or by column (quantised weights of a layer). Whoever changes a packed weight
 * through it calls mha_layer_pack again. A weight stored only in panels is unpacked by the first view of it, and stays
 * so (mha_layer_drop_views); the view is without data when there is no memory for that. */
MHA_API mha_view mha_tensor_view(const mha_tensor *tensor);

/* Totals of the whole table, or of one group ("attention") when `group` is not NULL: a storage
 * belongs to the group of the row that owns it. */
MHA_API mha_totals mha_params_totals(const mha_params *table, const char *group);

#ifdef __cplusplus
}
#endif
#endif
