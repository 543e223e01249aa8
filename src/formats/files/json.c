/* Walking JSON objects with jansson, one entry at a time. */
#include <errno.h>
#include <inttypes.h>

#include "formats/files/json.h"
#include "formats/files/input_file.h"
#include "lab/lab.h"

json_t *mha__json_load(const char *text, size_t length, size_t flags, json_error_t *why, bool *starved)
{
    errno = 0; /* malloc sets it */
    json_t *value = json_loadb(text, length, flags, why);
    *starved = !value && errno == ENOMEM;
    return value;
}

static void skip_blanks(mha__json_walk *walk)
{
    while (walk->at < walk->length) {
        char c = walk->text[walk->at];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            break;
        walk->at++;
    }
}

static mha_status expected(const mha__json_walk *walk, const char *what, mha_error *error)
{
    uint64_t offset = mha__json_offset(walk);
    if (walk->at == walk->length)
        return mha__fail_at(error, MHA_FORMAT, walk->path, offset, "expected %s at byte %" PRIu64 ", found the end",
                            what, offset);
    unsigned char c = (unsigned char)walk->text[walk->at];
    if (c > 32 && c < 127)
        return mha__fail_at(error, MHA_FORMAT, walk->path, offset, "expected %s at byte %" PRIu64 ", found '%c'", what,
                            offset, c);
    return mha__fail_at(error, MHA_FORMAT, walk->path, offset, "expected %s at byte %" PRIu64 ", found the byte 0x%02x",
                        what, offset, c);
}

static bool take(mha__json_walk *walk, char c)
{
    skip_blanks(walk);
    if (walk->at == walk->length || walk->text[walk->at] != c)
        return false;
    walk->at++;
    return true;
}

mha_status mha__json_value(mha__json_walk *walk, json_t **value, mha_error *error)
{
    skip_blanks(walk);
    size_t window = walk->length - walk->at;
    bool cut = window > MHA_JSON_ENTRY_LIMIT;
    if (cut)
        window = MHA_JSON_ENTRY_LIMIT;
    json_error_t why;
    bool starved;
    *value = mha__json_load(walk->text + walk->at, window,
                            JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &why, &starved);
    if (!*value) {
        uint64_t offset = mha__json_offset(walk);
        if (starved)
            return mha__fail_at(error, MHA_NO_MEMORY, walk->path, offset, "no memory for the JSON at byte %" PRIu64,
                                offset);
        if (cut && json_error_code(&why) == json_error_premature_end_of_input)
            return mha__fail_at(error, MHA_FORMAT, walk->path, offset,
                                "expected a JSON value of at most %d bytes at byte %" PRIu64 ", found a longer one",
                                MHA_JSON_ENTRY_LIMIT, offset);
        offset += why.position > 0 ? (uint64_t)why.position : 0;
        return mha__fail_at(error, MHA_FORMAT, walk->path, offset, "expected JSON near byte %" PRIu64 ": %s", offset,
                            why.text);
    }
    walk->at += (size_t)why.position;
    return MHA_OK;
}

/* Reads the next key and its ':', or the '}' that ends the object: *key is then NULL. */
static mha_status next_key(mha__json_walk *walk, json_t **key, mha_error *error)
{
    *key = NULL;
    if (take(walk, '}')) {
        walk->first = false; /* the enclosing object, if any, has this one as an entry */
        return MHA_OK;
    }
    if (!walk->first && !take(walk, ','))
        return expected(walk, "',' or '}'", error);
    walk->first = false;
    skip_blanks(walk);
    if (walk->at == walk->length || walk->text[walk->at] != '"')
        return expected(walk, "a name in quotes", error);
    mha_status status = mha__json_value(walk, key, error);
    if (status == MHA_OK && !take(walk, ':')) {
        json_decref(*key);
        *key = NULL;
        return expected(walk, "':'", error);
    }
    return status;
}

mha_status mha__json_each(mha__json_walk *walk, mha__json_take *take_entry, void *context, mha_error *error)
{
    if (!take(walk, '{'))
        return expected(walk, "a JSON object ('{')", error);
    walk->first = true;
    for (;;) {
        json_t *key;
        const uint64_t from = mha__json_offset(walk);
        TRY(next_key(walk, &key, error));
        if (!key)
            return MHA_OK;
        const mha_status status = take_entry(context, key, from, walk, error);
        json_decref(key);
        TRY(status);
    }
}

mha_status mha__json_end(mha__json_walk *walk, mha_error *error)
{
    skip_blanks(walk);
    return walk->at == walk->length ? MHA_OK : expected(walk, "nothing more", error);
}
