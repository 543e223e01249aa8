/* Files of named tensors: read safetensors, npy, npz and GGUF; write safetensors and npy. */
#ifndef MHA_FILE_H
#define MHA_FILE_H

#include "mha/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An open file whose header has been read and checked. Tensor data is read on request and never mapped: a file that
 * shrinks meanwhile gives MHA_IO, not a signal. */
typedef struct mha_file mha_file;

typedef struct mha_file_tensor {
    const char *name; /* borrowed from the file object; an npy file's only tensor is called "" */
    mha_dtype dtype;
    int rank;
    size_t shape[MHA_MAX_RANK]; /* row-major, slowest index first (GGUF lists its extents the other way round) */
    size_t elements, bytes;
    uint64_t offset; /* of the first byte: in the file; npz: in the unpacked member; a set of files: in its file */
    size_t index;    /* number of the tensor in the file, as mha_file_at takes it */
    mha_dtype reads_as; /* the type to read it as: F32 for a quantised type that is decoded, else dtype */
    /* "GPTQ", "AWQ", "compressed-tensors", "bitsandbytes", "scaled", "MXFP4" or "NVFP4": several tensors of the file
     * hold this one, with its scales and zero points. They are in `bytes`, and found by their names, but not listed and
     * never counted. Else NULL. */
    const char *packing;
} mha_file_tensor;

/* Opens a file; its content tells the format, not its name. The whole header is checked: sizes against the file,
 * offsets against each other, names against duplicates. Headers of 100 million bytes and more are refused, which
 * bounds the memory. The caller closes the file. The index of a set of safetensors files
 * (model.safetensors.index.json) opens as one file with the tensors of the whole set, in the order of the index's
 * files, and with the metadata of the index; the files lie in the directory of the index and have exactly the tensors
 * that it lists. A directory stands for the model.safetensors in it, or else for the index. "-" is standard input: it
 * is read to its end and kept in an unnamed temporary file in $TMPDIR or /tmp. Errors: MHA_NOT_FOUND, MHA_FORMAT
 * (with the byte offset), MHA_UNSUPPORTED (a known format that is not read; the message says how to convert it),
 * MHA_INVALID (a FIFO or device), MHA_IO, MHA_NO_MEMORY. */
MHA_API mha_status mha_file_open(const char *path, mha_file **file, mha_error *error);
MHA_API void mha_file_close(mha_file *file); /* NULL is allowed */

MHA_API const char *mha_file_path(const mha_file *file);   /* "standard input" for "-" */
MHA_API const char *mha_file_format(const mha_file *file); /* "safetensors", "npy", "npz", "gguf" */
/* Tensors in the order of the file's header. `at` gives NULL past the end, `find` for an unknown name. Tensors of a
 * safetensors file that hold a weight only together are listed as that weight, in F32 and of the shape that its library
 * gives it:
 *   scaled        X (F8 or I8) and X_scale or X_scale_inv: one for all, for each row, or for each block
 *   GPTQ          X.qweight, X.qzeros, X.scales, X.g_idx: X.weight (out, in), scale (code - zero point - 1); but scale
 *                 (code - zero point) where "checkpoint_format" is "gptq_v2": in the metadata, or next to the file
 *   AWQ           X.qweight, X.qzeros, X.scales: X.weight (out, in), scale (code - zero point)
 *   compressed-tensors  X.weight_packed, X.weight_scale, X.weight_shape, X.weight_zero_point, X.weight_g_idx: X.weight
 *                 (out, in) of 4 or 8 bits, scale (code - zero point); without zero points these are 8 or 128
 *   bitsandbytes  X.weight (I8) and X.SCB; X.weight (U8), .absmax, .quant_map, .quant_state.bitsandbytes__nf4 or __fp4,
 *                 and where the scales are quantised .nested_absmax, .nested_quant_map
 *   MXFP4         X_blocks and X_scales: X (experts, in, out)
 *   NVFP4         X.weight_packed, X.weight_scale (F8) and X.weight_global_scale, by which scales are divided; or
 *                 X.weight (U8), X.weight_scale and X.weight_scale_2, by which they are multiplied: X.weight (out, in)
 * The numbers that share a scale are those that X.g_idx or X.weight_g_idx says; or so many in a row as the metadata
 * ("gptq_group_size") or the files next to this one say ("group_size", "q_group_size", "weight_block_size",
 * "block_structure": in the quantization_config of a config.json, in a quantize_config.json or a quant_config.json),
 * the last ones fewer. Where several sizes are said, that one which makes as many groups as there are scales. Where
 * none is said: groups of AWQ and compressed-tensors are never cut, so that in / groups is their size; the last one of
 * GPTQ may be cut, so that in / groups is taken only for a power of two; blocks of F8 and I8 are of a power of two,
 * the last ones cut or not, or else of what divides evenly.
 * Tensors that do not fit together, or whose groups cannot be known so, are listed as they are. */
MHA_API size_t mha_file_count(const mha_file *file);
MHA_API const mha_file_tensor *mha_file_at(const mha_file *file, size_t index);
MHA_API const mha_file_tensor *mha_file_find(const mha_file *file, const char *name);
/* Metadata, all as text (numbers in digits, "true" and "false"): __metadata__ of safetensors; the values of GGUF,
 * arrays of at most 512 numbers as "[1, 2]", others, and those of a tokenizer, as "array of N"; the arrays of rank 0 in
 * an npz, which np.savez(path, ..., num_heads=4, kind="mha") writes: numbers, which are tensors, too, and texts of at
 * most 65536 characters, which are not. NULL for an unknown key. The text lives as long as the file object. */
MHA_API const char *mha_file_metadata(const mha_file *file, const char *key);
MHA_API size_t mha_file_metadata_count(const mha_file *file);
MHA_API void mha_file_metadata_at(const mha_file *file, size_t index, const char **key, const char **value);

/* Reads one tensor, which mha_file_at or mha_file_find returned or a copy of it, into `to`: a view of any shape with
 * the same number of elements, in row-major order, with any strides. Plain dtypes are converted as in mha_view_copy,
 * byte order to this machine's. Quantised types are decoded: the values are those F32 that the format's own programs
 * compute, to the bit (a NaN is a NaN), and are then converted as F32 is; a contiguous view of the tensor's own
 * quantised type takes its blocks as they are. So does one of F8_E4M3_SCALED or F8_E5M2_SCALED with a matrix of that F8
 * and its scales, if 32 numbers of a row always have one; with E4M3 no finite one is 2^120 or more. An npy array in
 * Fortran order needs a `to`
 * of its own shape. Several threads may read one file at a time, except an npz. Errors: MHA_INVALID (another number of
 * elements; the message has both shapes), MHA_UNSUPPORTED (a quantised type without a decoder, which its name tells;
 * a target that is not of a floating type), MHA_NOT_FOUND (a tensor of another file), MHA_FORMAT (a damaged npz),
 * MHA_IO (the file is shorter than before; the content of `to` is then unspecified), MHA_NO_MEMORY. */
MHA_API mha_status mha_file_read(const mha_file *file, const mha_file_tensor *tensor, const mha_view *to,
                                 mha_error *error);

/* Reads elements [from, from + count) of one axis of a tensor, as mha_file_read does: `to` has the number of elements
 * of this part. Of a plain tensor of an uncompressed file no other byte is read. Of a quantised one whole blocks are,
 * and the bytes between the rows of a part of columns; of an npz everything; but nothing is kept of either. MHA_INVALID
 * also where the tensor has no such part. */
MHA_API mha_status mha_file_read_part(const mha_file *file, const mha_file_tensor *tensor, int axis, size_t from,
                                      size_t count, const mha_view *to, mha_error *error);

/* A tensor file to be written. mha_writer_commit writes all data to a temporary file in the same directory and
 * renames it to `path` when it has been closed without error; until then nothing appears under `path`. A device or
 * FIFO, and "-", which is standard output, are written directly. A file that is replaced leaves its permissions to
 * the new one; a symbolic link is followed, even if its target does not exist yet. The extension of `path` chooses
 * the format: ".npy" (one tensor, no metadata) or ".safetensors", which is also the format of devices, FIFOs and "-"
 * without extension. Errors of mha_writer_create, which writes nothing: MHA_INVALID (extension, a directory), MHA_IO
 * (read-only, no such directory), MHA_NO_MEMORY. */
typedef struct mha_writer mha_writer;

MHA_API mha_status mha_writer_create(const char *path, mha_writer **writer, mha_error *error);
/* Adds a tensor. The name is copied, the view is borrowed until commit or destroy. Errors: MHA_INVALID (a name that
 * is empty or in use, a second tensor in npy), MHA_UNSUPPORTED (a dtype that the format lacks), MHA_NO_MEMORY. */
MHA_API mha_status mha_writer_add(mha_writer *writer, const char *name, const mha_view *view, mha_error *error);
MHA_API mha_status mha_writer_add_metadata(mha_writer *writer, const char *key, const char *value, mha_error *error);
/* Writes header and data. Tensors are ordered by element size (8, 4, 2, 1 bytes), then as added, which aligns each
 * one. Errors: MHA_IO; then no file of that name has been created or changed. */
MHA_API mha_status mha_writer_commit(mha_writer *writer, mha_error *error);
/* Ends the writer, committed or not. NULL is allowed. */
MHA_API void mha_writer_destroy(mha_writer *writer);

#ifdef __cplusplus
}
#endif
#endif
