/* JSON objects walked entry by entry, so that memory is bounded by the largest entry, not by the text. */
#ifndef MHA_FORMATS_FILES_JSON_H
#define MHA_FORMATS_FILES_JSON_H

#include <jansson.h>

#include "base/base.h"

/* A position inside JSON text. An object is walked like this:
 *
 *     for (status = mha__json_enter(&walk, error); status == MHA_OK; ) {
 *         status = mha__json_key(&walk, &key, error);        key NULL: the object has ended
 *         if (status != MHA_OK || !key) break;
 *         status = mha__json_value(&walk, &value, error);    or mha__json_enter for an object inside
 *         ...
 *     }
 */
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
uint64_t mha__json_offset(const mha__json_walk *walk);
/* Steps over the '{' of an object. */
mha_status mha__json_enter(mha__json_walk *walk, mha_error *error);
/* Reads the next key and its ':', or the '}' that ends the object (*key is then NULL). The caller
 * releases the key with json_decref. */
mha_status mha__json_key(mha__json_walk *walk, json_t **key, mha_error *error);
/* Reads one value; the caller releases it with json_decref. Duplicate keys inside are refused. */
mha_status mha__json_value(mha__json_walk *walk, json_t **value, mha_error *error);
/* Expects nothing but white space after the outermost object. */
mha_status mha__json_end(mha__json_walk *walk, mha_error *error);

#endif
