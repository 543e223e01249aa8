/* Names of keys in a report, and its fields. */
#include <stdio.h>
#include <string.h>

#include "lab/lab.h"
#include "models/explain/explain.h"

void mha__report_put(mha__subject *s, json_t *object, const char *name, json_t *value)
{
    s->starved |= json_object_set_new(object, name, value) != 0;
}

void mha__report_append(mha__subject *s, json_t *list, json_t *value)
{
    s->starved |= json_array_append_new(list, value) != 0;
}

const char *mha__key_name(const mha__subject *s, const char *key, char room[160])
{
    if (!s->file)
        mha__text_print(room, 160, "%s", key);
    else if (strncmp(key, "tensors.", 8) == 0)
        mha__text_print(room, 160, "blk.*.%s", key + 8);
    else
        mha__text_print(room, 160, "%s.%s", s->model->setup.architecture->name, key);
    return mha__text_harmless(room); /* keys of a file are any bytes */
}

bool mha__key_read(const mha__subject *s, const char *keys, char room[64])
{
    if (mha__config_first(s->config, keys, room))
        return true;
    for (const char *at = keys; *at; at += strcspn(at, " "), at += *at == ' ') {
        snprintf(room, 64, "%.*s", (int)strcspn(at, " "), at);
        if (mha__config_value(s->config, room))
            return true;
    }
    snprintf(room, 64, "%.*s", (int)strcspn(keys, " "), keys);
    return false;
}

json_t *mha__root_keys(mha__subject *s, uint64_t roots)
{
    json_t *keys = json_object();
    char key[64], room[160];
    for (const mha__arch_key *k = s->model->setup.architecture->keys; k->symbol; k++)
        if (mha__setup_root(&s->model->setup, k) & roots) {
            const bool stated = mha__key_read(s, k->keys, key);
            if (stated || !s->file || strncmp(key, "attention.", 10) == 0 || strncmp(key, "rope.", 5) == 0)
                mha__report_put(s, keys, mha__key_name(s, key, room), json_boolean(stated));
        }
    return keys;
}
