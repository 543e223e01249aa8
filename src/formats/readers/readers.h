/* The readers of the formats: each turns the header of a file into a list of tensors. */
#ifndef MHA_FORMATS_READERS_READERS_H
#define MHA_FORMATS_READERS_READERS_H

#include "base/arena.h"
#include "formats/files/tensor_list.h"

enum {
    MHA_HEADER_LIMIT = 100000000, /* bytes of header a file may have, whatever the format: bounds the memory */
    MHA_NPY_HEADER_LIMIT = 1 << 20,
    MHA_NPY_TEXT_LIMIT = 1 << 16 /* characters of a text in an npz */
};

/* Each parser reads the header of source `index` and adds its tensors and metadata to the file. */
mha_status mha__safetensors_parse(mha_file *file, size_t index, mha_error *error);
mha_status mha__npy_parse(mha_file *file, size_t index, mha_error *error);
mha_status mha__gguf_parse(mha_file *file, size_t index, mha_error *error);
mha_status mha__npz_parse(mha_file *file, size_t index, mha_error *error);
/* The index of a set of safetensors files (source `number`, already open), and a directory of one model. */
mha_status mha__shards_parse(mha_file *file, size_t number, mha_error *error);
/* In a directory of a model: the path of the file to open, owned by the file object. */
mha_status mha__shards_find(mha_file *file, const char *directory, const char **path, mha_error *error);

/* The texts of the tokens of a GGUF's vocabulary, by id, in `memory`; *count is 0 where the file has none. Errors:
 * MHA_IO, MHA_FORMAT (tokens that are no texts), MHA_NO_MEMORY. */
mha_status mha__file_vocabulary(const mha_file *file, mha__arena *memory, const char *const **words, size_t *count,
                                mha_error *error);

/* The dtypes a safetensors file can hold. */
bool mha__safetensors_has(mha_dtype dtype);

/* The contents of an npy header. `name` is for messages (the file, or the member of an npz). */
typedef struct mha__npy_header {
    size_t bytes; /* the data begins here */
    mha__entry entry;
    size_t characters, character_bytes; /* of an array of text: 4 bytes (U) or 1 (S); 0 bytes for numbers */
} mha__npy_header;
enum { MHA_NPY_PREFIX = 12 }; /* enough bytes to know how long the header is */
/* Length of the whole header from its first bytes; needs MHA_NPY_PREFIX of them, or all there are. */
mha_status mha__npy_header_length(const unsigned char *bytes, size_t available, const char *name, size_t *length,
                                  mha_error *error);
/* Reads the header: `length` bytes as mha__npy_header_length said. */
mha_status mha__npy_header_parse(const unsigned char *bytes, size_t length, const char *name, mha__npy_header *header,
                                 mha_error *error);
/* MHA_UNSUPPORTED for an array of text where numbers are needed. */
mha_status mha__npy_needs_numbers(const mha__npy_header *header, const char *name, mha_error *error);
/* An array without extents, which holds a number or a text: the number of bytes of its data, and the data added to the
 * metadata of the file under `key`. `name` is for messages. The bytes may be changed. */
size_t mha__npy_scalar_bytes(const mha__npy_header *header);
mha_status mha__npy_scalar_add(mha_file *file, const char *key, size_t key_length, const mha__npy_header *header,
                               unsigned char *bytes, const char *name, mha_error *error);
/* The descr of npy for a dtype ("<f4"); NULL when it has none. */
const char *mha__npy_descr(mha_dtype dtype);

/* Member `index` of an archive, and its next bytes, from libzip. errno is set to 0 before. */
struct zip;
struct zip_file;
struct zip_error;
struct zip_file *mha__zip_member(struct zip *archive, size_t index);
int64_t mha__zip_read(struct zip_file *member, void *to, size_t bytes);
/* The error that libzip and errno report about the archive or its member `name`: no memory, a failed read, or
 * damage. */
mha_status mha__zip_failed(struct zip_error *why, const char *name, mha_error *error);

/* MHA_OK when the source is none of the known foreign formats; else MHA_UNSUPPORTED with the
 * format's name and the way to convert it. */
mha_status mha__foreign_refuse(const mha__source *source, mha_error *error);

#endif
