/* The values of an attention layer, and which keys of its configuration decide them: a value depends on a symbol, a
 * number or a member of the rotation's object if changing that changes the layer. The layer itself is asked, so that no
 * list of keys and no formula is repeated here. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "attention/call/resolved.h"
#include "attention/layer/layer.h"
#include "lab/lab.h"
#include "lab/settings.h"
#include "models/explain/explain.h"
#include "models/gguf/gguf.h"

/* ---------------------------------------------------------------- values */

static json_t *real_of(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *reals_of(mha__subject *s, const double *x, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        mha__report_append(s, list, real_of(x[i]));
    return list;
}

/* A size that is not stated is null if it is 0 or that of another field. */
static json_t *field_value(const mha_config_field *f, const mha_config *stated, const mha_config *config)
{
    const char *at = (const char *)config + f->at;
    char word[40];
    size_t size, own;
    int choice;
    switch (f->kind) {
    case MHA_CONFIG_SIZE:
        memcpy(&size, at, sizeof size);
        memcpy(&own, (const char *)stated + f->at, sizeof own);
        return own == 0 && !(f->unset && strchr(f->unset, ' ')) ? json_null() : json_integer((json_int_t)size);
    case MHA_CONFIG_SWITCH: return json_boolean(*(const bool *)at);
    case MHA_CONFIG_CHOICE:
        memcpy(&choice, at, sizeof choice);
        for (at = f->choices; choice > 0 && (at = strchr(at, '|')); choice--)
            at++;
        mha__text_print(word, sizeof word, "%.*s", at ? (int)strcspn(at, "|") : 1, at ? at : "?");
        return json_string(word);
    default: return NULL;
    }
}

/* Whether a setting can have an effect in the layer. */
static bool matters(const mha_setting *setting, const mha_semantics *semantics, const mha_config *c)
{
    char needed[40];
    const bool normed = c->q_norm || c->k_norm || semantics->qkv.norm.unweighted;
    if (strcmp(setting->name, "norm_eps") == 0)
        return normed || c->kv_rank;
    if (strncmp(setting->name, "norm_", 5) == 0)
        return normed;
    if (!setting->needs)
        return true;
    mha__text_print(needed, sizeof needed, "%.*s", (int)strcspn(setting->needs, "="), setting->needs);
    return mha_setting_given(mha_setting_find(needed), semantics);
}

static json_t *setting_value(mha__subject *s, const mha_setting *setting, const mha_semantics *semantics,
                             const mha_config *c)
{
    char text[80];
    if (strcmp(setting->name, "scale") == 0)
        return real_of(mha__score_scale(&semantics->softmax, c->d_k));
    if (setting->kind == MHA_SETTING_SWITCH && matters(setting, semantics, c))
        return json_boolean(mha_setting_number(setting, semantics) != 0);
    if (!matters(setting, semantics, c) ||
        !(mha_setting_given(setting, semantics) || strcmp(setting->name, "norm_kind") == 0))
        return json_null();
    const mha_view *view = (const mha_view *)((const char *)semantics + setting->at);
    switch (setting->kind) {
    case MHA_SETTING_WHOLE:
    case MHA_SETTING_COUNT: return json_integer((json_int_t)mha_setting_number(setting, semantics));
    case MHA_SETTING_REAL: return real_of(mha_setting_number(setting, semantics));
    case MHA_SETTING_CHOICE: return json_string(mha_setting_text(setting, semantics, text, sizeof text));
    case MHA_SETTING_VIEW: return reals_of(s, view->data, view->shape[0]); /* frequencies */
    default: return reals_of(s, semantics->added.alibi_slopes, c->n_heads);
    }
}

/* Numbers of the facts that are neither fields of a layer nor settings of a call. */
static const struct {
    const char *name;
    size_t at;
    bool flag;
} more[] = {
#define COUNT(f) {#f, offsetof(mha_model_facts, f), false}
#define FLAG(f) {#f, offsetof(mha_model_facts, f), true}
    COUNT(shift),     COUNT(image_height), COUNT(image_width), COUNT(bias_span),   COUNT(fused_blocks),
    FLAG(fused_qvk),  FLAG(fused_gate),    FLAG(reordered),    FLAG(norm_folded), FLAG(relative_shared)};

/* The frequencies of long sequences, where they are others: null if they are not. */
static json_t *long_frequencies(mha__subject *s, const mha_model_facts *facts)
{
    enum { LONG = 1 << 24 }; /* positions, more than any model is trained on */
    mha_model_facts longer = *facts;
    const size_t pairs = facts->semantics.qkv.rope.dim / 2;
    if (facts->rope_scaling.kind == MHA_ROPE_UNSCALED || mha_model_extend_context(&longer, LONG, NULL) != MHA_OK ||
        memcmp(longer.rope_frequencies, facts->rope_frequencies, pairs * sizeof *facts->rope_frequencies) == 0)
        return json_null();
    return reals_of(s, longer.rope_frequencies, pairs);
}

json_t *mha__layer_values(mha__subject *s, const mha_model_facts *facts)
{
    const mha_rope_axes *axes = &facts->rope_axes;
    const mha__rope_config *rope = &s->model->setup.rope;
    const mha_semantics semantics = mha_model_semantics(facts);
    mha_config config = facts->config;
    config.bias_rows *= config.bias_rows <= MHA_BIAS_MOST_ROWS; /* `not_run` names a larger table */
    char sections[80] = "";
    json_t *values = mha_config_resolve(&config, NULL) == MHA_OK ? json_object() : NULL;
    if (!values)
        return NULL;
    for (size_t i = 0; mha_config_field_at(i); i++) {
        json_t *value = field_value(mha_config_field_at(i), &facts->config, &config);
        if (value)
            mha__report_put(s, values, mha_config_field_at(i)->word, value);
    }
    for (size_t i = 0; mha_setting_at(i); i++)
        mha__report_put(s, values, mha_setting_at(i)->name, setting_value(s, mha_setting_at(i), &semantics, &config));
    mha__report_put(s, values, "rope_scaling",
                    json_string(*rope->fault ? rope->fault : mha__rope_scaling_name(facts->rope_scaling.kind)));
    json_t *longer = long_frequencies(s, facts);
    mha__report_put(s, values, "rope_frequencies_long", longer);
    mha__report_put(s, values, "rope_original_length",
                    json_is_array(longer) ? real_of(facts->rope_scaling.original_length) : json_null());
    for (size_t i = 0; i < axes->axes; i++)
        mha__text_print(sections + strlen(sections), sizeof sections - strlen(sections), " %zu", axes->sections[i]);
    mha__report_put(s, values, "rope_axes",
                    axes->axes ? json_sprintf("%s%s", axes->kind ? "interleaved" : "blocks", sections) : json_null());
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        const char *at = (const char *)facts + more[i].at;
        size_t n = 0;
        memcpy(&n, at, more[i].flag ? sizeof(bool) : sizeof n);
        mha__report_put(s, values, more[i].name,
                        more[i].flag ? json_boolean(n) : n ? json_integer((json_int_t)n) : json_null());
    }
    return values;
}

/* ---------------------------------------------------------------- sources */

typedef struct search {
    mha__subject *s;
    size_t index;
    mha__values own;
    const json_t *values;
    json_t *sources;
} search;

/* Adds the keys, which are taken over, to the sources of each value that the layer now has otherwise; without a
 * rotation only to those of the rotation itself. */
static void compare(search *at, json_t *keys)
{
    const char *name;
    json_t *value;
    mha_model_facts facts;
    mha__model_facts_with(at->s->model, at->index, &at->own, &facts);
    json_t *now = mha__layer_values(at->s, &facts);
    const bool still = json_is_null(json_object_get(at->values, "rope")) || !json_is_null(json_object_get(now, "rope"));
    json_object_foreach(now ? (json_t *)(uintptr_t)at->values : NULL, name, value)
    {
        json_t *found = json_object_get(at->sources, name);
        if (json_equal(value, json_object_get(now, name)) || !(still || strcmp(name, "rope") == 0))
            continue;
        if (!found)
            mha__report_put(at->s, at->sources, name, found = json_object());
        at->s->starved |= json_object_update(found, keys) != 0;
    }
    json_decref(now);
    json_decref(keys);
}

/* Gives a symbol another value, and all that equal it for the same reason: both numbers of heads of latents. */
static void change_symbols(search *at)
{
    const mha__values before = at->own;
    for (size_t i = 0; i < before.count; i++) {
        const int64_t value = before.items[i].value, others[] = {value + 1, 2 * value, 0};
        const uint64_t from = before.items[i].from;
        if (before.items[i].list || from == 0)
            continue;
        for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
            for (size_t j = 0; j < before.count; j++)
                if (before.items[j].from == from && before.items[j].value == value)
                    at->own.items[j].value = others[k];
            compare(at, mha__root_keys(at->s, from));
        }
        at->own = before;
    }
}

static json_t *one_key(const mha__subject *s, const char *key, bool stated)
{
    char room[160];
    return json_pack("{sb}", mha__key_name(s, key, room), stated);
}

static void change_numbers(search *at)
{
    mha__setup *setup = &at->s->model->setup;
    const mha__setup before = *setup;
    for (const mha__arch_real *real = setup->architecture->reals; real && real->symbol; real++) {
        char key[64];
        const double x = real->setting ? mha_setting_number(real->setting, &setup->numbers)
                                       : *mha__setup_real(setup, real);
        const double other = x > 0 ? 2 * x : 1;
        const bool stated = mha__config_first(at->s->config, real->keys, key) != NULL;
        if (!*real->keys)
            continue;
        if (real->setting)
            (void)mha_setting_put_number(real->setting, other, &setup->numbers, NULL);
        else
            *mha__setup_real(setup, real) = other;
        if (!stated)
            snprintf(key, sizeof key, "%.*s", (int)strcspn(real->keys, " "), real->keys);
        compare(at, one_key(at->s, key, stated));
        *setup = before;
    }
}

/* Another value in place of one, which the caller releases: of a number its multiple. */
static json_t *another(const json_t *value, int times)
{
    const double x = json_number_value(value);
    json_t *list;
    switch (json_typeof(value)) {
    case JSON_INTEGER:
    case JSON_REAL: return json_real(x != 0 ? times * x : times);
    case JSON_ARRAY:
        list = json_copy((json_t *)(uintptr_t)value);
        if (json_array_size(list) > 0)
            json_array_set_new(list, 0, another(json_array_get(list, 0), times));
        return list;
    case JSON_STRING: return json_string("?");
    default: return json_boolean(!json_is_true(value));
    }
}

static void read_rotation(mha__subject *s)
{
    mha__setup *setup = &s->model->setup;
    mha_error error;
    if (!s->file)
        mha__rope_config_read(s->config, mha__values_rope_dim(&setup->values), setup->numbers.qkv.rope.base,
                              &setup->rope);
    else if (mha__gguf_scaling(s->file, s->config, &setup->values, &setup->rope.scaling[0], &error) != MHA_OK)
        mha__text_print(setup->rope.fault, sizeof setup->rope.fault, "%s: %s", error.name, error.message);
}

/* Gives a key of the configuration another value. Keys of a file are any bytes. */
static void put(mha__subject *s, json_t *object, const char *key, json_t *value)
{
    s->starved |= json_object_set_new_nocheck(object, key, value) != 0;
}

/* Changes the members of an object, and those of objects in it, one by one. */
static void change_members(search *at, json_t *object, const char *path)
{
    const char *name;
    json_t *value;
    void *next;
    json_object_foreach_safe(object, next, name, value)
    {
        char key[120];
        mha__text_print(key, sizeof key, "%s%s%s", path, *path ? "." : "", name);
        if (json_is_null(value) || (!*path && !mha__text_among(mha__rotation_keys(at->s), name)))
            continue;
        if (json_is_object(value)) {
            change_members(at, value, key);
            continue;
        }
        static const int times[] = {2, 1 << 20}; /* yarn has limits within which small changes are without effect */
        const mha__rope_config before = at->s->model->setup.rope;
        json_incref(value);
        for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
            put(at->s, object, name, another(value, times[i]));
            read_rotation(at->s);
            if (*at->s->model->setup.rope.fault) /* it leaves out the bases, whatever they are */
                memcpy(at->s->model->setup.rope.base, before.base, sizeof before.base);
            compare(at, one_key(at->s, key, true));
            at->s->model->setup.rope = before;
        }
        put(at->s, object, name, value);
    }
}

/* Gives factors that are tensors of a GGUF file other values. */
static void change_factors(search *at)
{
    static const char *const names[] = {"rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"};
    mha_rope_scaling *scaling = &at->s->model->setup.rope.scaling[0];
    const mha_rope_scaling before = *scaling;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        if (!mha_file_find(at->s->file, names[k]))
            continue;
        for (size_t i = 0; i < before.pairs; i++)
            *(k == 1 ? &scaling->short_factors[i] : &scaling->long_factors[i]) *= 2;
        if (k == 0)
            scaling->kind = MHA_ROPE_UNSCALED;
        compare(at, json_pack("{sb}", names[k], true));
        *scaling = before;
    }
}

json_t *mha__layer_sources(mha__subject *s, size_t index, const json_t *values)
{
    search at = {.s = s, .index = index, .values = values, .sources = json_object()};
    mha__model_layer_values(s->model, index, &at.own);
    change_symbols(&at);
    change_numbers(&at);
    if (mha__values_get(&s->model->setup.values, "rope"))
        change_members(&at, s->config, "");
    if (s->file)
        change_factors(&at);
    return at.sources;
}
