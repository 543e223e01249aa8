/* The inside of an mha_file, and what the readers of the formats share to fill it. */
#ifndef MHA_FORMATS_TENSOR_LIST_H
#define MHA_FORMATS_TENSOR_LIST_H

#include "formats/input_file.h"
#include "mha/file.h"

enum {
    MHA_HEADER_LIMIT = 100000000, /* bytes of header a file may have, whatever the format: bounds the memory */
    MHA_NPY_HEADER_LIMIT = 1 << 20
};

/* A tensor as the public knows it, and where its bytes are. */
typedef struct mha__entry {
    mha_file_tensor tensor; /* first: what mha_file_at returns points here */
    size_t source;          /* which of the files; in an npz: which member */
    bool big_endian;
    bool fortran; /* first index fastest */
} mha__entry;

typedef struct mha__pair {
    const char *key, *value;
} mha__pair;

/* A growing array of `room` items, `count` of them in use. */
typedef struct mha__list {
    void *items;
    size_t count, room, item_bytes;
} mha__list;

struct mha__text_block;

struct mha_file {
    mha_allocator allocator;
    const char *path, *format;
    mha__list sources;            /* mha__source */
    mha__list entries;            /* mha__entry */
    mha__list metadata;           /* mha__pair */
    const void **by_name;        /* pointers to the entries in order of their names */
    const void **by_key;         /* the same for the metadata */
    struct mha__text_block *text; /* the strings of the file object */
    void *archive;               /* npz: the zip_t */
};

/* ---------------------------------------------------------------- filling (file.c) */

/* Opens with memory from `allocator` (NULL: the default): mha_file_open with more control. */
mha_status mha__file_open_using(const mha_allocator *allocator, const char *path, mha_file **file, mha_error *error);
mha_status mha__writer_create_using(const mha_allocator *allocator, const char *path, mha_writer **writer,
                                   mha_error *error);
/* Opens `path` as one more source of the file. *index is its number. */
mha_status mha__file_add_source(mha_file *file, const char *path, size_t *index, mha_error *error);
const mha__source *mha__file_source(const mha_file *file, size_t index);
/* Appends a tensor: name, dtype, shape, offset, source and order are given, elements and bytes are
 * computed here. `where` is the byte of its description, for messages. */
mha_status mha__file_add_tensor(mha_file *file, const char *name, size_t name_length, const mha__entry *entry,
                               uint64_t where, mha_error *error);
mha_status mha__file_add_metadata(mha_file *file, const char *key, size_t key_length, const char *value,
                                 size_t value_length, mha_error *error);
/* A copy of `length` bytes (zeros for NULL) with a final NUL, owned by the file object; NULL when there
 * is no memory. */
char *mha__file_text(mha_file *file, const char *text, size_t length);
/* The tensors from number `first` on in the order of their data: an array of one pointer more than
 * there are, released by the caller; NULL when there is no memory. */
const mha_file_tensor **mha__file_by_offset(const mha_file *file, size_t first);
mha_status mha__file_no_memory(const mha_file *file, mha_error *error);
/* Room for one more item, zeroed and counted; NULL when there is no memory. Older items may move. */
void *mha__list_add(const mha_allocator *allocator, mha__list *list);
void mha__list_release(const mha_allocator *allocator, mha__list *list);

/* ---------------------------------------------------------------- formats */

/* Each reads the header of source `index` and adds what it describes. */
mha_status mha__safetensors_parse(mha_file *file, size_t index, mha_error *error);
mha_status mha__npy_parse(mha_file *file, size_t index, mha_error *error);
mha_status mha__gguf_parse(mha_file *file, size_t index, mha_error *error);
mha_status mha__npz_parse(mha_file *file, size_t index, mha_error *error);
/* The index of a set of safetensors files (source `number`, already open), and a directory of one model. */
mha_status mha__shards_parse(mha_file *file, size_t number, mha_error *error);
/* In a directory of a model: the path of the file to open, owned by the file object. */
mha_status mha__shards_find(mha_file *file, const char *directory, const char **path, mha_error *error);

/* The dtypes a safetensors file can hold. */
bool mha__safetensors_has(mha_dtype dtype);

/* What the header of an npy array says. `name` is for messages (the file, or the member of an npz). */
typedef struct mha__npy_header {
    size_t bytes; /* the data begins here */
    mha__entry entry;
} mha__npy_header;
enum { MHA_NPY_PREFIX = 12 }; /* enough bytes to know how long the header is */
/* Length of the whole header from its first bytes; needs MHA_NPY_PREFIX of them, or all there are. */
mha_status mha__npy_header_length(const unsigned char *bytes, size_t available, const char *name, size_t *length,
                                 mha_error *error);
/* Reads the header: `length` bytes as mha__npy_header_length said. */
mha_status mha__npy_header_parse(const unsigned char *bytes, size_t length, const char *name, mha__npy_header *header,
                                mha_error *error);
/* The descr of npy for a dtype ("<f4"); NULL when it has none. */
const char *mha__npy_descr(mha_dtype dtype);

/* Member `index` of an archive, and the next bytes of it; what libzip does, with nothing in errno before. */
struct zip;
struct zip_file;
struct zip_error;
struct zip_file *mha__zip_member(struct zip *archive, size_t index);
int64_t mha__zip_read(struct zip_file *member, void *to, size_t bytes);
/* What libzip and errno say went wrong with the archive or its member `name`: no memory, input/output, or damage. */
mha_status mha__zip_failed(struct zip_error *why, const char *name, mha_error *error);

/* MHA_OK when the source is none of the known foreign formats; else MHA_UNSUPPORTED with the
 * format's name and the way to convert it. */
mha_status mha__foreign_refuse(const mha__source *source, mha_error *error);

/* ---------------------------------------------------------------- bytes */

static inline uint64_t mha__little_endian(const unsigned char *bytes, int count)
{
    uint64_t value = 0;
    for (int i = count - 1; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

/* Bytes of one element; 0 for a type that comes in blocks. */
static inline size_t mha__element_bytes(mha_dtype dtype)
{
    size_t bytes = 0;
    return mha_dtype_bytes(dtype, 1, &bytes) == MHA_OK ? bytes : 0;
}

/* Reverses the bytes of each of `count` numbers; those of a complex element apart. */
void mha__swap_bytes(void *data, mha_dtype dtype, size_t count);

static inline bool mha__host_is_big_endian(void)
{
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
}

/* Calls `visit` with consecutive row-major pieces of `view` (a plain dtype), each of at most `limit`
 * elements (at least 1), until one returns another status than MHA_OK. */
typedef mha_status (*mha__piece_visit)(void *context, const mha_view *piece);
mha_status mha__view_pieces(const mha_view *view, size_t limit, mha__piece_visit visit, void *context);

#endif
