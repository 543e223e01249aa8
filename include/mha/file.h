/* Files of named tensors: read safetensors, npy, npz and GGUF; write safetensors and npy. */
#ifndef MHA_FILE_H
#define MHA_FILE_H

#include "mha/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An open file whose header has been read and checked; tensor data is read on request with
 * positioned reads (nothing is mapped: a file that shrinks gives MHA_IO, not a signal). */
typedef struct mha_file mha_file;

typedef struct mha_file_tensor {
    const char *name; /* borrowed from the file object; an npy file's only tensor is called "" */
    mha_dtype dtype;
    int rank;
    size_t shape[MHA_MAX_RANK]; /* row-major, slowest first (GGUF's reversed order is put right) */
    size_t elements, bytes;
    uint64_t offset; /* of the first byte in the file (npz: in the unpacked member; a set: in its own file) */
    size_t index;    /* its number in the file, as for mha_file_at */
} mha_file_tensor;

/* Opens a file, its format told by content, not by its name. Nothing in the header is believed
 * unchecked: sizes against the file, offsets against each other, names against duplicates.
 * The index of a set of safetensors files (model.safetensors.index.json) opens as one file that holds
 * all their tensors, in the order of the index's files, with the metadata of the index; the files lie
 * beside it and hold just what it says. "-" is standard input, read to its end now and kept in a file
 * without a name under $TMPDIR or /tmp. A directory stands for the model.safetensors in it, or else
 * for the index. Headers of 100 million bytes and more are refused: memory stays bounded.
 * Errors: MHA_NOT_FOUND, MHA_FORMAT (with the byte offset), MHA_UNSUPPORTED (a known foreign format,
 * by name, with the way to convert it), MHA_INVALID (a FIFO or device), MHA_IO, MHA_NO_MEMORY. */
MHA_API mha_status mha_file_open(const char *path, mha_file **file, mha_error *error);
MHA_API void mha_file_close(mha_file *file); /* NULL is allowed */

MHA_API const char *mha_file_path(const mha_file *file);   /* "standard input" for "-" */
MHA_API const char *mha_file_format(const mha_file *file); /* "safetensors", "npy", "npz", "gguf" */
/* Tensors in the order of the file's header. `at` gives NULL past the end, `find` for an unknown name. */
MHA_API size_t mha_file_count(const mha_file *file);
MHA_API const mha_file_tensor *mha_file_at(const mha_file *file, size_t index);
MHA_API const mha_file_tensor *mha_file_find(const mha_file *file, const char *name);
/* String metadata: __metadata__ of safetensors; the values of GGUF as text (numbers in digits, "true" and "false",
 * arrays as "array of N"); of an npz its arrays without extents, as np.savez(path, ..., num_heads=4, kind="mha") makes
 * them: numbers in digits, "true" and "false", and texts of at most 65536 characters (a number is also a tensor with no
 * extent, a text is none). NULL for an unknown key. */
MHA_API const char *mha_file_metadata(const mha_file *file, const char *key);
MHA_API size_t mha_file_metadata_count(const mha_file *file);
MHA_API void mha_file_metadata_at(const mha_file *file, size_t index, const char **key, const char **value);

/* Reads one tensor (as mha_file_at or mha_file_find gave it, or a copy) into `to`, which has its number of elements (any shape, row-major order; strides
 * allowed), converting plain dtypes as mha_view_copy does; numbers come in this machine's byte order.
 * An npy array in Fortran order needs a `to` of its own shape, and is then put in order.
 * Several threads may read one file at a time, except an npz. Errors: MHA_INVALID (element count, with
 * both shapes), MHA_UNSUPPORTED (quantised), MHA_NOT_FOUND (a tensor of another file), MHA_FORMAT (a damaged npz), MHA_IO (short read; `to` is
 * then unspecified). */
MHA_API mha_status mha_file_read(const mha_file *file, const mha_file_tensor *tensor, const mha_view *to,
                                 mha_error *error);

/* A tensor file being made. Nothing appears under `path` until mha_writer_commit: data goes to a
 * temporary file beside it, which takes the name when all of it is written and closed without error.
 * A `path` that is a device or FIFO, or "-" for standard output, is written directly.
 * Permissions of a file that is replaced are kept; a symbolic link is followed,
 * also to where there is nothing yet.
 * Format by extension: ".npy" (one tensor, metadata refused) or ".safetensors"; what is written
 * directly and has neither is safetensors. Errors of create, which writes nothing yet: MHA_INVALID (the
 * extension, a directory), MHA_IO (read-only, no such directory), MHA_NO_MEMORY. */
typedef struct mha_writer mha_writer;

MHA_API mha_status mha_writer_create(const char *path, mha_writer **writer, mha_error *error);
/* Names a tensor to be written. The view is borrowed until commit or destroy. Errors: MHA_INVALID
 * (duplicate or empty name, a second tensor in npy), MHA_UNSUPPORTED (a dtype the format lacks). */
MHA_API mha_status mha_writer_add(mha_writer *writer, const char *name, const mha_view *view, mha_error *error);
MHA_API mha_status mha_writer_add_metadata(mha_writer *writer, const char *key, const char *value, mha_error *error);
/* Writes header and data. Tensors lie in the file ordered by element size (8, 4, 2, 1 bytes), then
 * as added, so each is naturally aligned. Errors: MHA_IO; then no file of that name was made or changed. */
MHA_API mha_status mha_writer_commit(mha_writer *writer, mha_error *error);
/* Ends the writer, committed or not. NULL is allowed. */
MHA_API void mha_writer_destroy(mha_writer *writer);

#ifdef __cplusplus
}
#endif
#endif
