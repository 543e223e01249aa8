/* Keys of a config.json that nothing reads: those known to be without effect, those told, and those refused. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/lab.h"
#include "models/config/config.h"

/* Without effect whatever the architecture: no_effect.txt has the words. */
static const struct {
    const char *topic, *keys;
} everywhere[] = {
#include "no_effect.inc"
};

typedef struct search {
    const json_t *config;
    mha__setup *setup;
    char refused[120]; /* names of keys, with blanks between */
    size_t used, more; /* letters of it; names for which it has no room */
} search;

/* Whether the list has a word for the key, or for the member of an object that it is, with this value; NULL: any. */
static bool listed(const char *list, const char *key, const json_t *value)
{
    const char *dot = strrchr(key, '.');
    char word[80];
    for (const char *at = list; *at;) {
        const size_t length = strcspn(at, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        char *only = strchr(word, '=');
        if (only)
            *only++ = '\0';
        int64_t number;
        const bool same = fnmatch(word, key, 0) == 0 || (dot && fnmatch(word, dot + 1, 0) == 0);
        if (same && (!only || !value || (mha__config_whole(value, key, &number, NULL) == MHA_OK &&
                                         number == strtoll(only, NULL, 10))))
            return true;
        at += length + (at[length] == ' ');
    }
    return false;
}

const char *mha__config_key_topic(const mha__architecture *a, const char *key, const json_t *value)
{
    for (size_t i = 0; i < sizeof everywhere / sizeof *everywhere; i++)
        if (listed(everywhere[i].keys, key, value))
            return everywhere[i].topic;
    return listed(a->no_effect, key, value) ? "no number of this family" : NULL;
}

/* Whether a list of keys has this one or, followed by a dot, one of its members. */
static bool names(const char *keys, const char *key, bool member)
{
    char begin[80];
    if (!keys || !member)
        return keys && mha__text_among(keys, key);
    const size_t length = (size_t)snprintf(begin, sizeof begin, "%.70s.", key);
    for (const char *at = keys; (at = strstr(at, begin)); at += length)
        if (at == keys || at[-1] == ' ')
            return true;
    return false;
}

static bool is_read(const mha__architecture *a, const char *key, bool member)
{
    bool rotated = false;
    for (const mha__arch_key *k = a->keys; k->symbol; k++) {
        rotated |= strcmp(k->symbol, "rope") == 0;
        if (names(k->keys, key, member))
            return true;
    }
    for (const mha__arch_real *real = a->reals; real && real->symbol; real++)
        if (names(real->keys, key, member))
            return true;
    return rotated && !member && mha__text_among(MHA_ROPE_KEYS, key);
}

bool mha__config_key_has_members(const mha__architecture *a, const char *key)
{
    return is_read(a, key, true);
}

bool mha__config_says_nothing(const json_t *value)
{
    return json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

/* Whether no number can depend on a key that is not known to be without effect: its value is a text; or it is a key of
 * other families, which the library's class of this one passes over, as a class of the user's own may not. One that is
 * without effect with another value is neither. */
static bool decides_nothing(const search *s, const char *key, const json_t *value)
{
    const char *dot = strrchr(key, '.');
    return !mha__config_key_topic(s->setup->architecture, key, NULL) &&
           (json_is_string(value) || (mha__architecture_knows(dot ? dot + 1 : key) && !json_is_object(value) &&
                                      !json_is_object(json_object_get(s->config, "auto_map"))));
}

/* Puts a key that is neither read nor known on one of the two lists. */
static mha_status check(search *s, const char *key, const json_t *value, mha_error *error)
{
    if (decides_nothing(s, key, value)) {
        char *name = mha__arena_take(&s->setup->architecture->memory, strlen(key) + 1);
        if (!name)
            return mha__fail(error, MHA_NO_MEMORY, "config", "no memory for the name of a key");
        s->setup->unread[s->setup->n_unread++] = memcpy(name, key, strlen(key) + 1);
        return MHA_OK;
    }
    char next[80];
    const int length = snprintf(next, sizeof next, "%s%.*s", s->used ? " " : "", MHA_CUT_ARGS(60, key));
    if (s->used + (size_t)length < sizeof s->refused)
        s->used += (size_t)snprintf(s->refused + s->used, sizeof s->refused - s->used, "%s", next);
    else
        s->more++;
    return MHA_OK;
}

/* Checks the keys of the configuration or, under the name of an object with some read members, its members. */
static mha_status check_all(search *s, const char *object, const json_t *members, mha_error *error)
{
    const mha__architecture *a = s->setup->architecture;
    const char *member;
    json_t *value;
    char key[160];
    json_object_foreach((json_t *)(uintptr_t)members, member, value)
    {
        snprintf(key, sizeof key, "%.70s%s%.80s", object, *object ? "." : "", member);
        if (mha__config_says_nothing(value) || is_read(a, key, false) || mha__config_key_topic(a, key, value))
            continue;
        if (!*object && json_is_object(value) && is_read(a, key, true))
            TRY(check_all(s, key, value, error));
        else
            TRY(check(s, key, value, error));
    }
    return MHA_OK;
}

mha_status mha__config_keys_check(const json_t *config, mha__setup *setup, mha_error *error)
{
    search s = {.config = config, .setup = setup};
    const char *key;
    char more[40] = "";
    json_t *value;
    size_t most = json_object_size(config);
    json_object_foreach((json_t *)(uintptr_t)config, key, value)
        most += json_object_size(value);
    setup->unread = mha__arena_take(&setup->architecture->memory, (most + 1) * sizeof *setup->unread);
    if (!setup->unread)
        return mha__fail(error, MHA_NO_MEMORY, "config", "no memory for the names of %zu keys", most);
    TRY(check_all(&s, "", config, error));
    if (s.used == 0)
        return MHA_OK;
    if (s.more > 0)
        snprintf(more, sizeof more, " (and %zu more)", s.more);
    if (strcmp(setup->architecture->source, setup->architecture->name) != 0)
        return mha__fail(error, MHA_UNSUPPORTED, s.refused,
                         "numbers may depend on this%s: expected keys that %s reads, or names in \"no_effect\"", more,
                         setup->architecture->source);
    return mha__fail(error, MHA_UNSUPPORTED, s.refused,
                     "numbers may depend on this%s: expected keys that the description of %s reads or knows to be "
                     "without effect; leave it out, or count with --architecture FILE: {\"like\": \"%s\", "
                     "\"no_effect\": \"%s\"}",
                     more, setup->architecture->name, setup->architecture->name, s.refused);
}
