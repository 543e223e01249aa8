/* The words of `has`: which test cases they ask, and that a test case of the level exercises each of them. */
#include <stdint.h>
#include <string.h>

#include "lab/lab.h"
#include "verify/conform/conform.h"

/* The set of the words in the first bytes of a list: bit i is mha_conform_need_at(i). */
static uint64_t set_of(const char *list, size_t length)
{
    uint64_t set = 0;
    const mha_conform_word *need;
    for (size_t at = 0; at < length; at++) {
        const size_t n = strcspn(list + at, " ,/");
        for (size_t i = 0; (need = mha_conform_need_at(i)); i++)
            set |= (uint64_t)(strlen(need->name) == n && memcmp(need->name, list + at, n) == 0) << i;
        at += n;
    }
    return set;
}

bool mha_conform_asks(const char *has, const mha_conform_row *row)
{
    const uint64_t set = set_of(row->has, strlen(row->has));
    bool asks = (set & ~set_of(has, strlen(has))) == 0;
    for (const char *at = has; *(at += strspn(at, " ,")); at += strcspn(at, " ,")) {
        const uint64_t among = set & set_of(at, strcspn(at, " ,")); /* more than one word: "causal/mask" */
        asks = asks && (among & (among - 1)) == 0;
    }
    return asks;
}

/* Writes the names of a set, separated by blanks; returns their number. */
static size_t names_of(uint64_t set, char *text, size_t size)
{
    size_t count = 0;
    const mha_conform_word *need;
    text[0] = '\0';
    for (size_t i = 0; (need = mha_conform_need_at(i)); i++)
        if (set >> i & 1) {
            const size_t used = strlen(text);
            mha__text_print(text + used, size - used, "%s%s", count++ ? " " : "", need->name);
        }
    return count;
}

/* Checks that a kernel with the words of `list`, the set `has`, is asked a test case up to the level that needs word
 * `one`. If it is asked none, the message names the missing words of the nearest test case: the one with the fewest, at
 * the first level. */
static mha_status check_word(size_t one, const char *list, uint64_t has, mha_conform_level level, mha_error *error)
{
    mha_conform_row row;
    char more[sizeof row.has], least[sizeof row.has] = "";
    size_t fewest = SIZE_MAX;
    mha_conform_level first = MHA_CONFORM_LEVEL_COUNT;
    for (size_t i = 0; mha_conform_at(i, &row); i++) {
        const uint64_t set = set_of(row.has, strlen(row.has));
        if (!(set >> one & 1))
            continue;
        const bool asks = mha_conform_asks(list, &row);
        const size_t count = names_of(set & ~has, more, sizeof more);
        if (asks && row.level <= level)
            return MHA_OK;
        if (count == 0 && !asks)
            memcpy(more, "words that exclude it", 22);
        if (count < fewest || (count == fewest && row.level < first))
            fewest = count, first = row.level, memcpy(least, more, sizeof least);
    }
    const bool later = first > level;
    return mha__fail(error, MHA_INVALID, "has",
                     "expected words that a test case of level %s exercises; %s is exercised%s%s%s%s",
                     mha_conform_level_name(level), mha_conform_need_at(one)->name, *least ? " with " : "", least,
                     later ? " at level " : "", later ? mha_conform_level_name(first) : "");
}

mha_status mha_conform_has(const char *has, mha_conform_level level, mha_error *error)
{
    char known[sizeof error->message], word[32];
    const uint64_t set = set_of(has, strlen(has));
    names_of(UINT64_MAX, known, sizeof known);
    for (const char *at = has; *(at += strspn(at, " ,/")); at += strcspn(at, " ,/")) {
        mha__text_print(word, sizeof word, "%.*s", (int)strcspn(at, " ,/"), at);
        if (set_of(word, strlen(word)) == 0)
            return mha__fail(error, MHA_INVALID, "has", "expected words of %s; found %s", known, word);
    }
    for (size_t i = 0; i < 64; i++)
        if (set >> i & 1)
            TRY(check_word(i, has, set, level, error));
    return MHA_OK;
}
