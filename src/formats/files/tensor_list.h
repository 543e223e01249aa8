/* The inside of an mha_file: its list of tensors and metadata, which the readers of the formats fill. */
#ifndef MHA_FORMATS_FILES_TENSOR_LIST_H
#define MHA_FORMATS_FILES_TENSOR_LIST_H

#include "base/arena.h"
#include "formats/files/input_file.h"
#include "mha/file.h"

/* The tensors of a file that together hold one: its packed numbers, and what turns them into values. */
typedef enum mha__part {
    MHA_PART_CODES,
    MHA_PART_SCALES,
    MHA_PART_ZEROS,         /* zero points */
    MHA_PART_GROUPS,        /* the group of each input */
    MHA_PART_TABLE,         /* the values of the codes */
    MHA_PART_NESTED_SCALES, /* of scales that are quantised, too */
    MHA_PART_NESTED_TABLE,
    MHA_PART_STATE,   /* what else is to be known, as JSON */
    MHA_PART_UNUSED,  /* what has no influence on the values */
    MHA_PART_UNUSED_2,
    MHA_PARTS
} mha__part;

/* How a tensor is packed into several ones. */
typedef struct mha__packing {
    const struct mha__packing_kind *kind; /* NULL: it is one tensor of the file */
    const char *name;                     /* of the tensor that they hold */
    size_t parts[MHA_PARTS];              /* their numbers among the parts of the file; SIZE_MAX: there is none */
    size_t grid_rows, grid_columns;       /* the scales: a grid for the last two axes */
    size_t block_rows, block_columns;     /* the numbers that share a scale */
    bool one_grid;                        /* for all leading axes; otherwise one for each */
    bool powers;                          /* the scales are bytes that mean F8_E8M0 */
    bool symmetric;                       /* the middle of the codes means 0 */
    int bits;                             /* of a code */
    size_t nested_block;                  /* the scales that share a nested one */
    float offset;                         /* of nested scales */
} mha__packing;

/* A tensor as mha/file.h shows it, and the position of its bytes. */
typedef struct mha__entry {
    mha_file_tensor tensor; /* first: what mha_file_at returns points here */
    size_t source;          /* number of the file, or of the member in an npz */
    bool big_endian;
    bool fortran; /* the first index varies fastest */
    mha__packing packing;
} mha__entry;

typedef struct mha__pair {
    const char *key, *value;
} mha__pair;

/* A growing array of `room` items, `count` of them in use. */
typedef struct mha__list {
    void *items;
    size_t count, room, item_bytes;
} mha__list;

struct mha_file {
    mha_allocator allocator;
    const char *path, *format;
    mha__list sources;            /* mha__source */
    mha__list entries;            /* mha__entry */
    mha__list parts;              /* mha__entry: found by name, not listed */
    mha__list metadata;           /* mha__pair */
    const void **by_name;         /* pointers to the entries in order of their names */
    const void **by_part;         /* the same for the parts */
    const void **by_key;          /* the same for the metadata */
    mha__arena texts;             /* the strings of the file object */
    void *archive;                /* npz: the zip_t */
    uint64_t vocabulary;          /* GGUF: the byte of the array of its tokens; 0: none */
};

/* Opens `path` as one more source of the file. *index is its number. */
mha_status mha__file_add_source(mha_file *file, const char *path, size_t *index, mha_error *error);
const mha__source *mha__file_source(const mha_file *file, size_t index);
/* The path of the file that holds a tensor: in a set one of its files. */
const char *mha__entry_path(const mha_file *file, const mha__entry *entry);
/* Appends a tensor with the given name, dtype, shape, offset, source and order; computes elements and bytes. `where`
 * is the byte of its description, for messages. */
mha_status mha__file_add_tensor(mha_file *file, const char *name, size_t name_length, const mha__entry *entry,
                                uint64_t where, mha_error *error);
mha_status mha__file_add_metadata(mha_file *file, const char *key, size_t key_length, const char *value,
                                  size_t value_length, mha_error *error);
/* A copy of `length` bytes (zeros for NULL) with a final NUL, owned by the file object; NULL when there
 * is no memory. */
char *mha__file_text(mha_file *file, const char *text, size_t length);
/* The tensors from number `first` on, in the order of their data: an array with a NULL pointer at its end, which the
 * caller releases; NULL when there is no memory. */
const mha_file_tensor **mha__file_by_offset(const mha_file *file, size_t first);
/* Sorts tensors, parts and metadata by name, for mha_file_find and mha_file_metadata. MHA_FORMAT: a tensor or a key is
 * there twice. `forget` also ends a file in which that failed; it must come before the lists change. */
mha_status mha__names_index(mha_file *file, mha_error *error);
void mha__names_forget(mha_file *file);
/* Closes the sources, releases lists and strings. */
void mha__file_release_lists(mha_file *file);
mha_status mha__file_no_memory(const mha_file *file, mha_error *error);
/* Appends one zeroed item and returns it; NULL when there is no memory. The other items may move. */
void *mha__list_add(const mha_allocator *allocator, mha__list *list);
void mha__list_release(const mha_allocator *allocator, mha__list *list);

#endif
