/* Files made by tests: bytes put together piece by piece, in a directory that is removed at the end. */
#ifndef TEST_SCRATCH_H
#define TEST_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

/* Bytes being put together. Zero-initialised is empty. */
typedef struct bytes {
    unsigned char *data;
    size_t count, room;
} bytes;

void bytes_add(bytes *b, const void *data, size_t count);
void bytes_text(bytes *b, const char *text);            /* without its final NUL */
void bytes_number(bytes *b, uint64_t value, int width); /* little-endian */
void bytes_zeros(bytes *b, size_t count);
void bytes_free(bytes *b);

/* The path of `name` in this program's own temporary directory, which is made on first use and removed
 * with everything in it at exit. Valid until the 16th following call. */
const char *scratch_path(const char *name);
/* Writes a file there and returns its path. */
const char *scratch_write(const char *name, const void *data, size_t count);
/* The same, and frees the bytes. */
const char *scratch_take(const char *name, bytes *b);
/* A whole file, freed by the caller. */
unsigned char *scratch_read(const char *path, size_t *count);
/* Removes every file in the directory. */
void scratch_empty(void);
/* The number of files in the directory, hidden ones included. */
size_t scratch_count_files(void);

#endif
