/* What can go wrong, and how the library says it: a status for every call, a sentence on request. */
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

/* Code, name, meaning. The list is the only place where a status is described, so that none can be without a name. */
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

/* Filled by calls that load or validate, when the caller passes one (NULL is always allowed).
 * After MHA_OK its content is unspecified. `message` is one line without a newline: what was expected and what was
 * found. It does not repeat `name`, the subject: a field, option, tensor or file, and for something inside a file
 * "FILE: TENSOR". Of a name that is too long only the end is kept, behind "...". */
typedef struct mha_error {
    mha_status status;
    char message[400];
    char name[256];  /* what the message is about, see above; "" if nothing in particular */
    uint64_t offset; /* byte in the file the message is about, 0 if none */
} mha_error;

/* The short name and the meaning of a status; "unknown" for a value outside the list. Static text. */
MHA_API const char *mha_status_name(mha_status status);
MHA_API const char *mha_status_meaning(mha_status status);
/* "NAME: MESSAGE (byte N)" for a person to read, without the parts that are missing; an error without a message gives
 * the meaning of its status. Cut between two characters to `size` bytes, the final NUL included; a buffer of
 * sizeof(mha_error) holds all of it. Returns `text`. */
MHA_API char *mha_error_text(char *text, size_t size, const mha_error *error);

/* Where the library gets memory. NULL functions mean the default (lazily committed for large
 * blocks). Every block is zero-filled by the library's own wrapper, 64-byte aligned, and given back
 * with the size it was asked with. `allocate` may be called from one thread at a time per object
 * that was created with it; it returns NULL when it cannot. */
typedef struct mha_allocator {
    void *(*allocate)(void *context, size_t bytes, size_t alignment);
    void (*release)(void *context, void *block, size_t bytes);
    void *context;
} mha_allocator;

#ifdef __cplusplus
}
#endif
#endif
