/* Evaluates a config.json against the description of its architecture. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "lab/lab.h"
#include "models/config/config.h"

/* ---------------------------------------------------------------- the class */

/* Finds a class by its whole name, by the part of it after "For" ("MaskedLM"), or by a part that it adds ("pooler"). */
static const mha__arch_class *find_class(const mha__architecture *architecture, const char *name)
{
    const char *family = architecture->class_families, *rest = name;
    for (size_t own = family ? strcspn(family, " ") : 0; family && *family;) {
        const size_t length = strcspn(family, " ");
        if (strncmp(name, family, length) == 0)
            rest = name + length;
        for (const mha__arch_class *c = architecture->classes; c->name && rest != name; c++)
            if (strlen(c->name) >= own && strcmp(c->name + own, rest) == 0)
                return c;
        family += length + (family[length] == ' ');
    }
    for (const mha__arch_class *c = architecture->classes; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    for (const mha__arch_class *c = architecture->classes; c->name; c++) {
        const char *kind = strstr(c->name, "For");
        if (strcasecmp(c->name, name) == 0 || (kind && strcasecmp(kind + 3, name) == 0))
            return c;
    }
    for (const mha__arch_class *c = architecture->classes; c->name; c++)
        if (mha__text_among(c->parts, name))
            return c;
    return NULL;
}

static mha_status choose_class(const json_t *config, const char *wanted, mha__setup *setup, mha_error *error)
{
    const mha__architecture *architecture = setup->architecture;
    const char *said_by = wanted ? "class" : "architectures";
    if (!wanted) {
        const json_t *listed = json_array_get(json_object_get(config, "architectures"), 0);
        wanted = json_is_string(listed) ? json_string_value(listed) : NULL;
    }
    setup->model_class = wanted ? find_class(architecture, wanted) : architecture->classes;
    if (setup->model_class)
        return MHA_OK;
    char known[260] = "";
    size_t used = 0;
    for (const mha__arch_class *c = architecture->classes; c->name && used < sizeof known; c++) /* NOLINT */
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", c->name);
    return mha__fail(error, MHA_INVALID, said_by, "expected one of %s, found '%.*s'", known, MHA_CUT_ARGS(60, wanted));
}

/* Makes each of some parts a symbol: 1 if this class has the part, else 0. */
static bool set_parts(mha__setup *setup, const char *parts)
{
    for (const char *at = parts; *at;) {
        char part[MHA_SYMBOL];
        size_t n = strcspn(at, " ");
        snprintf(part, sizeof part, "%.*s", (int)n, at);
        const bool has_part = mha__text_among(setup->model_class->parts, part);
        if (n >= sizeof part || (n > 0 && !mha__values_set(&setup->values, part, has_part)))
            return false;
        at += n + (at[n] == ' ');
    }
    return true;
}

static bool set_all_parts(mha__setup *setup)
{
    for (const mha__arch_class *c = setup->architecture->classes; c->name; c++)
        if (!set_parts(setup, c->parts))
            return false;
    return set_parts(setup, setup->architecture->parts);
}

/* ---------------------------------------------------------------- the whole */

/* Reads the description of the file at `path`, or of the model type that the config names. */
static mha_status find_architecture(const json_t *config, const char *path, mha__setup *setup, mha_error *error)
{
    const json_t *type = json_object_get(config, "model_type");
    const json_t *class_name = json_array_get(json_object_get(config, "architectures"), 0);
    const char *name = json_is_string(type) ? json_string_value(type) : "";
    if (path || mha__architecture_known(name))
        return mha__architecture_read(name, path, &setup->architecture, error);
    char found[160], near[100] = "";
    const char *nearest = mha__architecture_nearest(name);
    if (*name)
        snprintf(found, sizeof found, "'%.*s'", MHA_CUT_ARGS(40, name));
    else if (json_is_string(class_name))
        snprintf(found, sizeof found, "none (architectures says '%.*s')",
                 MHA_CUT_ARGS(40, json_string_value(class_name)));
    else
        snprintf(found, sizeof found, "none");
    const char *text = json_string_value(mha__config_value(config, "text_config.model_type"));
    if (text && mha__architecture_known(text))
        snprintf(near, sizeof near, ", whose text_config is described (%.40s): give that object", text);
    else if (nearest)
        snprintf(near, sizeof near, ", the nearest is %.48s", nearest);
    return mha__fail(error, MHA_UNSUPPORTED, "model_type",
                     "expected a model type that is described (mha help architectures lists them), found %s%s; "
                     "--architecture FILE describes another, and mha params --weights FILE counts any checkpoint",
                     found, near);
}

/* Refuses sizes that do not go together; a width that the heads do not divide with the message of a layer. */
static mha_status check_values(const json_t *config, const mha__setup *setup, mha_error *error)
{
    const mha__values *v = &setup->values;
    const mha__arch_key *d_k = setup->architecture->keys;
    char name[64], room[MHA_ARCH_ROW];
    for (; strcmp(d_k->symbol, "d_k") != 0; d_k++) /* NOLINT: every architecture has a key d_k */
        ;
    bool tied_to_heads = !d_k->keys || !mha__config_first(config, d_k->keys, name);
    if (tied_to_heads && strcmp(d_k->fallback, "d_model/h") == 0) {
        mha_config attempt = {.d_model = (size_t)mha__values_get(v, "d_model"),
                              .n_heads = (size_t)mha__values_get(v, "h")};
        TRY(mha_config_resolve(&attempt, error));
    }
    if (mha__values_get(v, "d_k") < 1)
        return mha__fail(error, MHA_INVALID, mha__setup_key(setup, "d_k", room), "expected at least 1, found %" PRId64,
                         mha__values_get(v, "d_k"));
    const char *row = mha__setup_key(setup, "h_kv", room), *kv_heads = row == room ? row : "kv_heads";
    if (mha__values_get(v, "h") % mha__values_get(v, "h_kv") != 0)
        return mha__fail(error, MHA_INVALID, kv_heads, "expected a divisor of %" PRId64 " heads, found %" PRId64,
                         mha__values_get(v, "h"), mha__values_get(v, "h_kv"));
    return MHA_OK;
}

/* The reason of the first refusal whose formula holds, or NULL. */
static mha_status find_refusal(const mha__setup *setup, const mha__arch_refusal *list, const char **why,
                               mha_error *error)
{
    *why = NULL;
    for (const mha__arch_refusal *r = list; r->when && !*why; r++) {
        int64_t holds = 0;
        const mha_status status = mha__expression_evaluate(r->when, &setup->values, &holds, error);
        TRY(mha__architecture_blame(setup->architecture, r->when, status, error));
        *why = holds ? r->why : NULL;
    }
    return MHA_OK;
}

/* Refuses 0 for a symbol that formulas divide by, as soon as it is read. */
static mha_status check_divisor(const mha__setup *setup, const mha__arch_key *key, mha_error *error)
{
    static const char *const divisors[] = {"d_model", "h", "h_kv", "patch"};
    const int64_t number = mha__values_get(&setup->values, key->symbol);
    char room[MHA_ARCH_ROW];
    for (size_t i = 0; i < sizeof divisors / sizeof *divisors; i++)
        if (strcmp(key->symbol, divisors[i]) == 0 && number < 1)
            return mha__fail(error, MHA_INVALID, mha__setup_key(setup, key->symbol, room),
                             "expected at least 1, found %" PRId64, number);
    return MHA_OK;
}

static mha_status read_setup(const json_t *config, const mha_model_spec *asked, mha__setup *setup, mha_error *error)
{
    static const mha_model_spec none;
    const mha_model_spec *spec = asked ? asked : &none;
    if (!setup->architecture)
        TRY(find_architecture(config, spec->architecture, setup, error));
    setup->model_class = setup->architecture->classes;
    setup->values.trace = mha__arena_take(&setup->architecture->memory, sizeof *setup->values.trace);
    if (!setup->values.trace)
        return mha__fail(error, MHA_NO_MEMORY, "config", "no memory for the record of its evaluation");
    if (asked)
        TRY(choose_class(config, spec->class_name, setup, error));
    if (!mha__values_set(&setup->values, "i", 0) || !mha__values_set(&setup->values, "j", 0) || !set_all_parts(setup))
        return mha__fail(error, MHA_INVALID, setup->architecture->source,
                         "classes: expected at most %d symbols of %d letters", MHA_VALUES, MHA_SYMBOL - 1);
    if (spec->n_heads > (size_t)MHA_CONFIG_LARGEST || spec->kv_heads > (size_t)MHA_CONFIG_LARGEST)
        return mha__fail(error, MHA_INVALID, "heads", "expected at most 2^40, found %zu and %zu", spec->n_heads,
                         spec->kv_heads);
    for (const mha__arch_key *key = setup->architecture->keys; key->symbol; key++) {
        TRY(mha__setup_read_key(config, key, setup, error));
        if (strcmp(key->symbol, "h") == 0 && spec->n_heads > 0)
            mha__values_set(&setup->values, "h", (int64_t)spec->n_heads);
        if (strcmp(key->symbol, "h_kv") == 0 && spec->kv_heads > 0)
            mha__values_set(&setup->values, "h_kv", (int64_t)spec->kv_heads);
        TRY(check_divisor(setup, key, error));
    }
    TRY(mha__setup_read_reals(config, setup, error));
    const char *refused;
    TRY(check_values(config, setup, error));
    if (mha__values_get(&setup->values, "rope"))
        mha__rope_config_read(config, mha__values_rope_dim(&setup->values), setup->numbers.qkv.rope.base, &setup->rope);
    TRY(find_refusal(setup, setup->architecture->refusals, &refused, error));
    if (refused)
        return mha__fail(error, MHA_UNSUPPORTED, "config", "%s", refused);
    if (!setup->architecture->of_metadata)
        TRY(mha__config_keys_check(config, setup, error));
    return find_refusal(setup, setup->architecture->not_run, &setup->not_run, error);
}

mha_status mha__setup_read(const json_t *config, const mha_model_spec *spec, mha__architecture *described,
                           mha__setup *setup, mha_error *error)
{
    *setup = (mha__setup){.architecture = described};
    const mha_status status = read_setup(config, spec, setup, error);
    if (status != MHA_OK)
        mha__setup_free(setup);
    return status;
}

void mha__setup_free(mha__setup *setup)
{
    mha__architecture_free(setup->architecture);
    setup->architecture = NULL;
}
