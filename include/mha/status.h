/* Errors and memory: a status for every call, a message on request, and the allocator. */
#ifndef MHA_STATUS_H
#define MHA_STATUS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MHA_API __attribute__((visibility("default")))
#else
#define MHA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Code, name, meaning. A status is described nowhere else, which gives each one a name. */
#define MHA_STATUS_LIST(X)                                                                         \
    X(MHA_OK, "ok", "done")                                                                        \
    X(MHA_INVALID, "invalid", "an argument, option or shape is wrong")                             \
    X(MHA_UNSUPPORTED, "unsupported", "a combination without meaning, or one not built in")        \
    X(MHA_FORMAT, "format", "a file does not hold what its format promises")                       \
    X(MHA_NOT_FOUND, "not found", "no such file, tensor or name")                                  \
    X(MHA_IO, "i/o", "the machine could not read or write")                                        \
    X(MHA_NO_MEMORY, "no memory", "the machine could not give the memory")

typedef enum mha_status {
#define MHA_STATUS_ENUM(code, name, meaning) code,
    MHA_STATUS_LIST(MHA_STATUS_ENUM)
#undef MHA_STATUS_ENUM
} mha_status;

/* Filled by a call that fails, when the caller passes one (NULL is always allowed). After MHA_OK its content is
 * unspecified. `message` is one line without a newline: what was expected and what was found. It does not repeat
 * `name`, which is a field, option, tensor or file; something inside a file is named "FILE: TENSOR". A name that is
 * too long is cut to "..." and its end. */
typedef struct mha_error {
    mha_status status;
    char message[400];
    char name[256];  /* what the message is about; "" for nothing in particular */
    uint64_t offset; /* the byte of the file that the message is about; 0 for none */
} mha_error;

/* Writes "NAME: MESSAGE (byte N)", without the parts that are missing; an error without a message gives the meaning
 * of its status. The text is cut between two characters to `size` bytes, the final NUL included; 700 bytes hold
 * every text whole, and with a size of 0 nothing is written. Returns `text`. */
MHA_API char *mha_error_text(char *text, size_t size, const mha_error *error);

/* Where the library gets memory. With NULL functions it uses its default allocator, which commits large blocks
 * lazily. `allocate` returns `bytes` bytes at the given alignment (64), or NULL when it cannot; the library fills
 * them with zeros. `release` gets the block with the size that was asked for. The library calls them from one thread
 * at a time for each object that was created with the allocator. */
typedef struct mha_allocator {
    void *(*allocate)(void *context, size_t bytes, size_t alignment);
    void (*release)(void *context, void *block, size_t bytes);
    void *context;
} mha_allocator;

#ifdef __cplusplus
}
#endif
#endif
