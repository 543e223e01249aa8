/* What files offer inside the library, beside mha/file.h: memory from an allocator, and copies found. */
#ifndef MHA_FORMATS_FILE_H
#define MHA_FORMATS_FILE_H

#include "mha/file.h"

/* mha_file_open and mha_writer_create with memory from `allocator` (NULL: the default). */
mha_status mha__file_open_using(const mha_allocator *allocator, const char *path, mha_file **file, mha_error *error);
mha_status mha__writer_create_using(const mha_allocator *allocator, const char *path, mha_writer **writer,
                                    mha_error *error);

/* Whether two tensors of a file hold the same bytes, compared in up to 64 places of 4 KiB: all of a small tensor; of a
 * large one enough that trained weights which agree there are copies. Tensors of an archive, and tensors without
 * bytes, are never the same. Errors: MHA_IO. */
mha_status mha__file_same_bytes(const mha_file *file, const mha_file_tensor *a, const mha_file_tensor *b, bool *same,
                                mha_error *error);

#endif
