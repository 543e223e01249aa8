/* Functions with which layers and models fill in and pack rows of the parameter table. */
#ifndef MHA_PARAMS_PARAMS_H
#define MHA_PARAMS_PARAMS_H

#include <stdbool.h>

#include "mha/params.h"

/* Marks `elements` of the row as unable to change the output, with the reason, which is copied. MHA_INVALID: more
 * than the row has, or no parameters. MHA_NO_MEMORY. */
mha_status mha__tensor_set_inert(mha_tensor *tensor, size_t elements, const char *why);
/* Makes the storage of a parameter one that is built from others: derived. */
void mha__tensor_set_derived(mha_tensor *tensor);
/* Sets the type that the row was read from. */
void mha__tensor_set_source_dtype(mha_tensor *tensor, mha_dtype dtype);

/* Removes the row. Its storage is released when no other row uses it; otherwise the oldest remaining row owns it.
 * NULL is allowed. */
void mha__params_remove(mha_params *table, mha_tensor *tensor);

/* A second layout of a matrix, and the way back, which gives the same bits; NULL where packing rounds or drops some. */
typedef struct mha__packer {
    void (*pack)(const mha_view *plain, void *packed);
    void (*unpack)(const void *packed, const mha_view *plain);
} mha__packer;

/* Packs a matrix into `bytes` bytes of its own, in place of its numbers where there is a way back and nobody has asked
 * for a view. Nothing happens when it is packed. MHA_NO_MEMORY: the matrix is then as before. */
mha_status mha__tensor_pack(mha_tensor *tensor, size_t bytes, const mha__packer *packer);
/* Renews what is packed, where the numbers are there as well. */
void mha__tensor_repack(mha_tensor *tensor);
/* Releases what is packed, unless the numbers have to be unpacked first and there is no memory for them. */
void mha__tensor_unpack(mha_tensor *tensor);
/* The packed form of a tensor; NULL: none. */
void *mha__tensor_packed(const mha_tensor *tensor);
/* The whole tensor as mha_tensor_view gives it, which is unpacked if need be; but mha__tensor_drop_plain and
 * mha__tensor_pack may release it. Without data when there is no memory. */
mha_view mha__tensor_plain(const mha_tensor *tensor);
/* Releases the numbers of a matrix that can be unpacked again, with all views of them; false: there was nothing to
 * release. */
bool mha__tensor_drop_plain(mha_tensor *tensor);

#endif
