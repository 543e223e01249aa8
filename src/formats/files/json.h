/* JSON objects walked entry by entry, so that memory is bounded by the largest entry, not by the text. */
#ifndef MHA_FORMATS_FILES_JSON_H
#define MHA_FORMATS_FILES_JSON_H

#include <jansson.h>

#include "base/base.h"

/* A position inside JSON text. */
typedef struct mha__json_walk {
    const char *text;
    size_t length, at;
    uint64_t base;    /* of text[0] in the file, for messages */
    const char *path; /* of the file, for messages */
    bool first;       /* no entry of the innermost object has been seen yet */
} mha__json_walk;

enum { MHA_JSON_ENTRY_LIMIT = 1 << 16 }; /* bytes of one key or one value */

/* json_loadb. When it returns NULL, *starved says whether there was no memory, which jansson does not always report. */
json_t *mha__json_load(const char *text, size_t length, size_t flags, json_error_t *why, bool *starved);

/* The walk's position, in bytes from the beginning of the file. */
static inline uint64_t mha__json_offset(const mha__json_walk *walk) { return walk->base + walk->at; }
/* Reads one value; the caller releases it with json_decref. Duplicate keys inside are refused. */
mha_status mha__json_value(mha__json_walk *walk, json_t **value, mha_error *error);
/* Reads the value of `key` with mha__json_value, or mha__json_each if an object is inside; `from` is the offset of the
 * entry. */
typedef mha_status mha__json_take(void *context, const json_t *key, uint64_t from, mha__json_walk *walk,
                                  mha_error *error);
/* Walks an object, entry by entry. */
mha_status mha__json_each(mha__json_walk *walk, mha__json_take *take, void *context, mha_error *error);
/* Expects nothing but white space after the outermost object. */
mha_status mha__json_end(mha__json_walk *walk, mha_error *error);

#endif
