/* Functions on files for the other rooms, in addition to mha/file.h: a choice of allocator, equal tensors. */
#ifndef MHA_FORMATS_FILE_H
#define MHA_FORMATS_FILE_H

#include "mha/file.h"

/* mha_file_open and mha_writer_create with memory from `allocator` (NULL: the default). */
mha_status mha__file_open_using(const mha_allocator *allocator, const char *path, mha_file **file, mha_error *error);
mha_status mha__writer_create_using(const mha_allocator *allocator, const char *path, mha_writer **writer,
                                    mha_error *error);

/* *dtype: the quantised type in which mha_file_read can leave a tensor of the file as it is; F32: none. Errors: MHA_IO,
 * MHA_NO_MEMORY. */
mha_status mha__file_stays(const mha_file *file, const mha_file_tensor *tensor, mha_dtype *dtype, mha_error *error);

/* *same: whether two tensors of a file have the same bytes in up to 64 pieces of 4 KiB. That is all of a small
 * tensor; trained weights that agree in so much of a large one are copies. Tensors of an archive and tensors without
 * bytes are never the same. Errors: MHA_IO. */
mha_status mha__file_same_bytes(const mha_file *file, const mha_file_tensor *a, const mha_file_tensor *b, bool *same,
                                mha_error *error);

#endif
