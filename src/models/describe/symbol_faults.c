/* Faults of symbols of a description: some need each other, or a later one; a size is negative. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab.h"
#include "models/describe/architecture.h"

enum { FORMULAS = 6 };

typedef struct search {
    const mha__arch_key *keys, *wanted;
    bool seen[MHA_VALUES];
    char path[200]; /* "a needs b, which needs a" */
} search;

/* The key that the next name of a formula means, whose text begins at *at; moves *at on. NULL: it means no key. */
static const mha__arch_key *next_key(const mha__arch_key *keys, const char **at)
{
    const char *begin = *at + strcspn(*at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz");
    size_t length = 0;
    while (isalnum((unsigned char)begin[length]) || begin[length] == '_')
        length++;
    *at = begin + length;
    while (keys->symbol && (strlen(keys->symbol) != length || strncmp(keys->symbol, begin, length) != 0))
        keys++;
    return keys->symbol ? keys : NULL;
}

/* Whether `from` needs the wanted symbol, perhaps through others, whose names are added to the path. */
static bool needs(search *s, const mha__arch_key *from)
{
    const size_t place = (size_t)(from - s->keys);
    const char *const formulas[FORMULAS] = {from->fallback, from->null,    from->list,
                                             from->times,    from->matters, from->text};
    const size_t used = strlen(s->path);
    snprintf(s->path + used, sizeof s->path - used, used ? "%s, which needs " : "%s needs ", from->symbol);
    if (place >= MHA_VALUES || s->seen[place])
        return false;
    s->seen[place] = true;
    for (size_t i = 0; i < FORMULAS; i++)
        for (const char *at = formulas[i] ? formulas[i] : ""; *at;) {
            const mha__arch_key *key = next_key(s->keys, &at);
            if (!key)
                continue;
            const size_t end = strlen(s->path);
            if (key == s->wanted || needs(s, key)) {
                if (key == s->wanted)
                    snprintf(s->path + end, sizeof s->path - end, "%s", key->symbol);
                return true;
            }
            s->path[end] = '\0';
        }
    return false;
}

mha_status mha__symbol_order_blame(const mha__architecture *a, const mha__arch_key *key, const mha__values *values,
                                   mha_status status, mha_error *error)
{
    const char *const formulas[FORMULAS] = {key->fallback, key->null, key->list, key->times, key->matters, key->text};
    char room[MHA_ARCH_ROW];
    search s = {.keys = a->keys, .wanted = key};
    if (status != MHA_INVALID || !error || strcmp(error->name, "expression") != 0)
        return status;
    if (needs(&s, key))
        return mha__fail(error, MHA_INVALID, mha__architecture_row(a, key->symbol, room),
                         "expected no symbol that needs itself: %s", s.path);
    for (size_t i = 0; i < FORMULAS; i++)
        for (const char *at = formulas[i] ? formulas[i] : ""; *at;) {
            const mha__arch_key *other = next_key(a->keys, &at);
            if (other && !mha__values_find(values, other->symbol))
                return mha__fail(error, MHA_INVALID, mha__architecture_row(a, key->symbol, room),
                                 "expected symbols in an order in which each needs those before it alone, found %.40s "
                                 "further on",
                                 other->symbol);
        }
    return mha__architecture_blame(a, key->symbol, status, error);
}

mha_status mha__symbol_check(const mha__architecture *a, const char *symbol, int64_t value, mha_error *error)
{
    char room[MHA_ARCH_ROW];
    static const char counts[] = "d_v window chunk rope_dim alibi fused_blocks experts top_k bias_rule bias_buckets "
                                 "bias_distance bias_height bias_width shift image_height image_width";
    if (value >= 0 || !mha__text_among(counts, symbol))
        return MHA_OK;
    return mha__fail(error, MHA_INVALID, mha__architecture_row(a, symbol, room), "expected at least 0, found %" PRId64,
                     value);
}
