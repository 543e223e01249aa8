/* The values of a quantised tensor in row-major order, as F32: of blocks, or of several tensors that hold one. */
#ifndef MHA_FORMATS_QUANTISED_UNPACK_H
#define MHA_FORMATS_QUANTISED_UNPACK_H

#include "formats/files/tensor_list.h"

/* A tensor that is being unpacked, in the order of its values. */
typedef struct mha__unpacking mha__unpacking;

/* Whether the values of a tensor have to be unpacked, and can be. */
bool mha__is_packed(const mha__entry *entry);
/* Begins at value `first`; `count` values from there on are enough. Errors: MHA_NO_MEMORY; of several tensors also
 * MHA_IO and MHA_FORMAT. */
mha_status mha__unpack_begin(const mha_file *file, const mha__entry *entry, size_t first, size_t count,
                             mha__unpacking **unpacking, mha_error *error);
/* The next `count` values. MHA_IO: the file has become shorter. */
mha_status mha__unpack_next(mha__unpacking *unpacking, float *values, size_t count, mha_error *error);
/* The type of blocks in which a tensor can stay as it is: its own, or that of F8 and its scales; F32: none. Errors:
 * MHA_NO_MEMORY, MHA_IO. */
mha_status mha__unpack_stays(const mha_file *file, const mha__entry *entry, mha_dtype *dtype, mha_error *error);
/* The next `count` values, as blocks of F8 and scales. */
void mha__unpack_f8(mha__unpacking *unpacking, size_t count, unsigned char *blocks);
/* Passes over `count` values. Blocks of them that are not in the buffer are not read. */
void mha__unpack_skip(mha__unpacking *unpacking, size_t count);
void mha__unpack_end(mha__unpacking *unpacking); /* NULL is allowed */

#endif
