/* The effect of each key of a configuration: on values of layers, on tensors, or none, with the reason. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab.h"
#include "lab/settings.h"
#include "models/explain/explain.h"

/* ---------------------------------------------------------------- one key */

typedef struct effect {
    const char *kind;
    char reason[300];
} effect;

/* Adds to a reason, after what it has. */
#define REASON(e, ...)                                                                                                 \
    mha__text_print((e)->reason + strlen((e)->reason), sizeof(e)->reason - strlen((e)->reason), __VA_ARGS__)

/* "use_sliding_window is false and ...": the keys that rule out an effect, with their values. */
static void blame(mha__subject *s, uint64_t roots, effect *e)
{
    char key[64], room[160];
    for (const mha__arch_key *k = s->model->setup.architecture->keys; k->symbol; k++) {
        if (!(mha__setup_root(&s->model->setup, k) & roots))
            continue;
        const bool stated = mha__key_read(s, k->keys, key);
        const json_t *value = mha__config_value(s->config, key);
        char *text = stated && !json_is_array(value) ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
        REASON(e, "%s%s ", *e->reason ? " and " : "", mha__key_name(s, key, room));
        if (text)
            REASON(e, "is %.60s", text);
        else if (stated)
            REASON(e, "rules it out in every layer");
        else if (k->list)
            REASON(e, "is not given, and its default rules it out");
        else
            REASON(e, "is not given, its default is %lld",
                   (long long)mha__values_get(&s->model->setup.values, k->symbol));
        free(text);
    }
}

/* Whether another value of symbols with these roots changes active parameters, visible keys or operations. */
static bool decides_costs(const mha_model *model, uint64_t roots)
{
    const mha_model_pass pass = {.batch = 1, .seq = 1 << 14};
    mha_model changed = *model;
    uint64_t active[2];
    mha_model_costs costs[2] = {{0}};
    for (size_t i = 0; i < model->setup.values.count; i++) {
        if (!(model->setup.values.items[i].from & roots) || model->setup.values.items[i].list)
            continue;
        changed.setup.values.items[i].value = model->setup.values.items[i].value / 2;
        for (int k = 0; k < 2; k++) {
            active[k] = mha_model_active_parameters(k ? &changed : model, NULL, NULL);
            (void)mha_model_costs_of(k ? &changed : model, &pass, &costs[k], NULL);
        }
        if (active[0] != active[1] || costs[0].scores_causal != costs[1].scores_causal ||
            costs[0].state_elements != costs[1].state_elements || costs[0].linear != costs[1].linear)
            return true;
        changed.setup.values = model->setup.values;
    }
    return false;
}

/* Whether a list of keys has this one, or a pattern that it matches. */
static bool has_key(const char *keys, const char *key)
{
    return keys && (mha__text_among(keys, key) || (strchr(keys, '*') && fnmatch(keys, key, 0) == 0));
}

/* The effect of a key that symbols read. false: none does, or nothing is known of its effect. */
static bool of_symbols(mha__subject *s, const char *key, effect *e)
{
    const mha_model *model = s->model;
    char first[64], room[160];
    bool read = false;
    uint64_t because = 0, roots = 0;
    for (const mha__arch_key *k = model->setup.architecture->keys; k->symbol; k++) {
        if (!has_key(k->keys, key))
            continue;
        const uint64_t root = mha__setup_root(&model->setup, k);
        mha__key_read(s, k->keys, first);
        if (!has_key(first, key)) {
            if (!*e->reason)
                REASON(e, "%s is read instead", mha__key_name(s, first, room));
            continue;
        }
        read = true;
        if (root & (model->of_layers | model->of_rows)) {
            e->kind = root & model->of_layers ? "layers" : "tensors";
            return true;
        }
        roots |= root;
        for (int bit = 0; bit < MHA_ROOTS; bit++)
            because |= root >> bit & 1 ? model->setup.values.trace->skipped[bit] & ~root : 0;
    }
    if (because)
        e->reason[0] = '\0', blame(s, because, e);
    else if (roots && decides_costs(model, roots))
        e->kind = "costs", e->reason[0] = '\0';
    else if (read && !*e->reason)
        e->kind = "other", REASON(e, "no tensor and no value of a layer of %s depends on it", mha_model_class(model));
    return strcmp(e->kind, "costs") == 0 || *e->reason != '\0';
}

/* The keys of a value in any kind of layer, with commas between. */
static void name_sources(const json_t *sources, const char *value, effect *e)
{
    size_t kind;
    json_t *of, *flag;
    const char *key;
    json_array_foreach((json_t *)(uintptr_t)sources, kind, of)
        json_object_foreach(json_object_get(of, value), key, flag)
            if (!strstr(e->reason, key))
                REASON(e, "%s%s", *e->reason ? ", " : "", key);
}

static bool of_numbers(mha__subject *s, const char *key, const json_t *sources, effect *e)
{
    char first[64], room[160];
    const mha__arch_real *real = s->model->setup.architecture->reals;
    while (real && real->symbol && !mha__text_among(real->keys, key))
        real++;
    if (!real || !real->symbol)
        return false;
    mha__key_read(s, real->keys, first);
    if (real->setting && strcmp(first, key) == 0) {
        name_sources(sources, real->setting->name, e);
        if (*e->reason)
            REASON(e, " %s", strchr(e->reason, ',') ? "are read instead" : "is read instead");
    } else if (strcmp(first, key) != 0)
        REASON(e, "%s is read instead", mha__key_name(s, first, room));
    return *e->reason != '\0';
}

static bool of_rotation(mha__subject *s, const char *key, effect *e)
{
    char object[64];
    mha_rope_scaling_kind kind = MHA_ROPE_UNSCALED;
    snprintf(object, sizeof object, "%.*s", (int)strcspn(key, "."), key);
    if (!mha__text_among(mha__rotation_keys(s), object))
        return false;
    for (size_t i = 0; i < s->model->n_layers; i++)
        kind = s->model->layers[i].facts.rope_scaling.kind ? s->model->layers[i].facts.rope_scaling.kind : kind;
    if (strcmp(object, "rope_scaling") == 0 && json_is_object(json_object_get(s->config, "rope_parameters")))
        REASON(e, "rope_parameters is read instead");
    else if (!mha__values_get(&s->model->setup.values, "rope"))
        REASON(e, "the model has no rotation");
    else
        REASON(e, "no number of the rotation depends on it (rope_scaling %s)", mha__rope_scaling_name(kind));
    if (mha__text_among("max_position_embeddings context_length", key)) /* read as the longest sequence */
        e->kind = "other";
    return true;
}

static void add_key(mha__subject *s, json_t *list, const char *key, const json_t *value, const json_t *sources)
{
    const mha__architecture *a = s->model->setup.architecture;
    char room[160], text[200];
    effect e = {.kind = "none"};
    json_t *row = json_object(), *names = json_object(), *of, *of_kind;
    const char *name, *topic = s->file ? NULL : mha__config_key_topic(a, key, value);
    size_t kind;
    mha__key_name(s, key, room);
    mha__text_print(text, sizeof text, "%s", json_is_string(value) ? json_string_value(value) : "");
    json_array_foreach((json_t *)(uintptr_t)sources, kind, of_kind)
        json_object_foreach(of_kind, name, of)
            if (json_object_get(of, room))
                mha__report_put(s, names, name, json_true());
    const bool unused = json_object_size(names) == 0;
    const bool known = unused && (of_symbols(s, key, &e) || (!topic && of_numbers(s, key, sources, &e)) ||
                                  of_rotation(s, key, &e));
    if (!unused)
        e.kind = "values";
    else if (!known && topic)
        e.kind = "other", REASON(&e, "it concerns %s", topic);
    else if (!known && s->file)
        e.kind = "other", REASON(&e, "no number of attention depends on it");
    else if (!known)
        e.kind = "unknown", REASON(&e, "no known reader");
    json_t *listed = json_array();
    json_object_foreach(names, name, of)
        mha__report_append(s, listed, json_string(name));
    json_decref(names);
    mha__report_put(s, row, "key", json_string(room));
    mha__report_put(s, row, "value", json_is_string(value) ? json_string(mha__text_harmless(text))
                                                           : json_incref((json_t *)(uintptr_t)value));
    mha__report_put(s, row, "effect", json_string(e.kind));
    mha__report_put(s, row, "values", listed);
    mha__report_put(s, row, "reason", *e.reason ? json_string(e.reason) : json_null());
    mha__report_append(s, list, row);
}

/* ---------------------------------------------------------------- all keys */

static void add_members(mha__subject *s, json_t *list, const json_t *object, const char *path, const json_t *sources)
{
    const mha__architecture *a = s->model->setup.architecture;
    const char *member;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, member, value)
    {
        char key[120];
        const bool outside = s->file ? !*path && strcmp(member, "tensors") == 0
                                     : mha__text_among("model_type architectures", member);
        mha__text_print(key, sizeof key, "%s%s%s", path, *path ? "." : "", member);
        if (outside || mha__config_says_nothing(value))
            continue;
        if (json_is_object(value) && (s->file || *path || mha__text_among(MHA_ROPE_OBJECTS, key) ||
                                      mha__config_key_has_members(a, key)))
            add_members(s, list, value, key, sources);
        else
            add_key(s, list, key, value, sources);
    }
}

json_t *mha__key_effects(mha__subject *s, const json_t *sources)
{
    json_t *list = json_array();
    add_members(s, list, s->config, "", sources);
    return list;
}
