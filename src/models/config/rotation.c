/* Reads the rotation of a config.json: `rope_parameters`, which may have an entry for each type of layers, or
 * `rope_scaling`, as earlier releases of transformers wrote it. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "lab/lab.h"
#include "lab/settings.h"
#include "mha/positions.h"
#include "models/config/config.h"

/* A number of the object, or `missing`. Null is no number. */
static mha_status number(const json_t *object, const char *key, double missing, double *x, mha_error *error)
{
    const json_t *value = json_object_get(object, key);
    *x = missing;
    if (!value || json_is_null(value))
        return MHA_OK;
    if (!json_is_number(value))
        return mha__fail(error, MHA_INVALID, key, "expected a number");
    *x = json_number_value(value);
    return MHA_OK;
}

static mha_status factors(const json_t *object, const char *key, size_t pairs, double *list, mha_error *error)
{
    const json_t *value = json_object_get(object, key);
    if (json_array_size(value) != pairs || pairs > MHA_ROPE_MAX_PAIRS)
        return mha__fail(error, MHA_INVALID, key, "expected a list of %zu numbers, at most %d, found %zu", pairs,
                         MHA_ROPE_MAX_PAIRS, json_array_size(value));
    for (size_t i = 0; i < pairs; i++) {
        const json_t *factor = json_array_get(value, i);
        if (!json_is_number(factor))
            return mha__fail(error, MHA_INVALID, key, "expected numbers alone");
        list[i] = json_number_value(factor);
    }
    return MHA_OK;
}

static bool is_proportional(const json_t *object)
{
    const char *name = json_string_value(json_object_get(object, "rope_type"));
    return name && strcmp(name, "proportional") == 0;
}

/* Gemma 4: the first pairs turn with the frequencies of all features, the others not at all, by infinite factors. */
static mha_status proportional(const json_t *object, size_t dim, mha_rope_scaling *s, mha_error *error)
{
    double share, factor;
    TRY(number(object, "partial_rotary_factor", 1, &share, error));
    TRY(number(object, "factor", 1, &factor, error));
    *s = (mha_rope_scaling){.kind = MHA_ROPE_LONGROPE, .pairs = dim / 2, .factor = 1, .original_length = 2,
                            .attention_factor = 1};
    for (size_t i = 0; i < s->pairs && i < MHA_ROPE_MAX_PAIRS; i++)
        s->short_factors[i] = s->long_factors[i] = (double)i < floor(share * (double)dim / 2) ? factor : INFINITY;
    return MHA_OK;
}

/* The kind that an object names. Phi-3 called longrope `su` at first. */
static mha_status kind_of(const json_t *object, mha_rope_scaling_kind *kind, mha_error *error)
{
    const json_t *type = json_object_get(object, "rope_type");
    if (!type || json_is_null(type))
        type = json_object_get(object, "type");
    if (type && !json_is_string(type) && !json_is_null(type))
        return mha__fail(error, MHA_INVALID, "rope_type", "expected a name");
    const char *name = json_is_string(type) ? json_string_value(type) : "default";
    *kind = strcmp(name, "su") == 0 || is_proportional(object) ? MHA_ROPE_LONGROPE : MHA_ROPE_UNSCALED;
    if (*kind == MHA_ROPE_LONGROPE || mha__text_among("default mrope", name) || mha__rope_scaling_find(name, kind))
        return MHA_OK;
    return mha__fail(error, MHA_UNSUPPORTED, "rope_type", "expected a known type, found '%.*s'",
                     MHA_CUT_ARGS(40, name));
}

/* The original length is the configuration's original_max_position_embeddings, else that of the rope_scaling object,
 * else max_position_embeddings; dynamic scaling takes only the last. A missing factor is max_position_embeddings over
 * the original length. */
static mha_status lengths(const json_t *config, const json_t *object, mha_rope_scaling *s, mha_error *error)
{
    double now, stated, before;
    TRY(number(config, "max_position_embeddings", 0, &now, error));
    TRY(number(object, "original_max_position_embeddings", now, &before, error));
    TRY(number(config, "original_max_position_embeddings", before, &stated, error));
    s->original_length = s->kind == MHA_ROPE_DYNAMIC ? now : stated;
    TRY(number(object, "factor", 0, &s->factor, error));
    const bool follows = s->factor == 0 && s->original_length > 0;
    if (follows && (s->kind == MHA_ROPE_YARN || s->kind == MHA_ROPE_LONGROPE))
        s->factor = now > s->original_length ? now / s->original_length : 1;
    return MHA_OK;
}

/* Refuses a member that has a value and may change the rotation, but is unknown. Ministral 3 repeats the model's
 * max_position_embeddings here, and transformers does not read it. */
static mha_status check_members(const json_t *object, mha_error *error)
{
    static const char known[] = "rope_theta factor original_max_position_embeddings attention_factor beta_fast "
                                "beta_slow mscale mscale_all_dim low_freq_factor high_freq_factor short_factor "
                                "long_factor truncate mrope_section mrope_interleaved partial_rotary_factor "
                                "llama_4_scaling_beta max_position_embeddings finetuned full_attention "
                                "sliding_attention";
    const char *member;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, member, value)
        if (!json_is_null(value) && !json_is_string(value) && !mha__text_among(known, member))
            return mha__fail(error, MHA_UNSUPPORTED, "rope_parameters", "expected known keys, found '%.*s'",
                             MHA_CUT_ARGS(40, member));
    return MHA_OK;
}

static mha_status read_scaling(const json_t *config, const json_t *object, size_t dim, mha_rope_scaling *s,
                               mha_error *error)
{
    const struct {
        const char *key;
        double *number;
    } numbers[] = {{"beta_fast", &s->beta_fast},
                   {"beta_slow", &s->beta_slow},
                   {"mscale", &s->mscale},
                   {"mscale_all_dim", &s->mscale_all_dim},
                   {"low_freq_factor", &s->low_frequency_factor},
                   {"high_freq_factor", &s->high_frequency_factor}};
    if (is_proportional(object))
        return proportional(object, dim, s, error);
    TRY(lengths(config, object, s, error));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        TRY(number(object, numbers[i].key, 0, numbers[i].number, error));
    s->untruncated = json_is_false(json_object_get(object, "truncate"));
    if (s->kind == MHA_ROPE_YARN || s->kind == MHA_ROPE_LONGROPE) /* transformers reads it of no other kind */
        TRY(number(object, "attention_factor", 0, &s->attention_factor, error));
    if (s->kind != MHA_ROPE_LONGROPE)
        return MHA_OK;
    s->pairs = dim / 2;
    TRY(factors(object, "short_factor", s->pairs, s->short_factors, error));
    return factors(object, "long_factor", s->pairs, s->long_factors, error);
}

/* M-RoPE: which pairs turn by time, height and width. */
static mha_status read_axes(const json_t *object, size_t pairs, mha_rope_axes *axes, mha_error *error)
{
    const json_t *sections = json_object_get(object, "mrope_section");
    size_t sum = 0;
    if (!sections || json_is_null(sections))
        return MHA_OK;
    axes->axes = json_array_size(sections);
    axes->kind = json_is_true(json_object_get(object, "mrope_interleaved")) ? MHA_ROPE_AXES_INTERLEAVED
                                                                            : MHA_ROPE_AXES_BLOCKS;
    for (size_t i = 0; i < axes->axes && i < MHA_ROPE_MAX_AXES; i++) {
        const json_int_t section = json_integer_value(json_array_get(sections, i));
        axes->sections[i] = section > 0 && section <= MHA_ROPE_MAX_PAIRS ? (size_t)section : 0;
        sum = axes->sections[i] > 0 ? sum + axes->sections[i] : MHA_ROPE_MAX_PAIRS + 1;
    }
    if (axes->axes < 1 || axes->axes > MHA_ROPE_MAX_AXES || sum != pairs)
        return mha__fail(error, MHA_INVALID, "mrope_section", "expected 1 to %d sizes, %zu pairs together",
                         MHA_ROPE_MAX_AXES, pairs);
    return MHA_OK;
}

/* Those of no more pairs than a table of facts has place for. */
static mha_status find_frequencies(const mha_rope_scaling *scaling, size_t dim, double base, size_t length,
                                   double frequencies[MHA_ROPE_MAX_PAIRS], double *attention_factor, mha_error *error)
{
    if (dim / 2 > MHA_ROPE_MAX_PAIRS)
        return mha__fail(error, MHA_UNSUPPORTED, "head_dim", "expected at most %d pairs of features, found %zu",
                         MHA_ROPE_MAX_PAIRS, dim / 2);
    return mha_rope_frequencies(scaling, dim, base, length, frequencies, attention_factor, error);
}

static mha_status read_rotation(const json_t *config, size_t dim, double base, mha__rope_config *rope, mha_error *error)
{
    static const char *const types[] = {"full_attention", "sliding_attention"};
    const json_t *given = json_object_get(config, "rope_parameters");
    bool by_type = false;
    if (given && !json_is_null(given) && !json_is_object(given))
        return mha__fail(error, MHA_INVALID, "rope_parameters", "expected an object");
    for (int i = 0; i < 2; i++)
        by_type |= json_is_object(json_object_get(given, types[i]));
    if (!json_is_object(given))
        given = json_object_get(config, "rope_scaling");
    if (given && !json_is_null(given) && !json_is_object(given))
        return mha__fail(error, MHA_INVALID, "rope_scaling", "expected an object");
    for (int i = 0; i < (by_type ? 2 : 1) && json_is_object(given); i++) {
        const json_t *object = by_type ? json_object_get(given, types[i]) : given;
        mha_rope_scaling *s = &rope->scaling[i];
        double frequencies[MHA_ROPE_MAX_PAIRS], times;
        TRY(kind_of(object, &s->kind, error));
        TRY(check_members(object, error));
        TRY(number(object, "rope_theta", 0, &rope->base[i], error));
        if (i == 0)
            TRY(read_axes(object, dim / 2, &rope->axes, error));
        if (s->kind == MHA_ROPE_UNSCALED)
            continue;
        TRY(read_scaling(config, object, dim, s, error));
        TRY(find_frequencies(s, dim, rope->base[i] > 0 ? rope->base[i] : base, 0, frequencies, &times, error));
    }
    return MHA_OK;
}

void mha__rope_config_read(const json_t *config, size_t dim, double base, mha__rope_config *rope)
{
    mha_error error;
    *rope = (mha__rope_config){0};
    if (read_rotation(config, dim, base, rope, &error) == MHA_OK)
        return;
    memset(rope->scaling, 0, sizeof rope->scaling);
    rope->axes = (mha_rope_axes){0};
    mha__text_print(rope->fault, sizeof rope->fault, "%s: %s", error.name, error.message);
}

mha_status mha_model_extend_context(mha_model_facts *facts, size_t length, mha_error *error)
{
    if (facts->rope_scaling.kind == MHA_ROPE_UNSCALED)
        return MHA_OK;
    mha_rope *rope = &facts->semantics.qkv.rope;
    return find_frequencies(&facts->rope_scaling, rope->dim, rope->base, length, facts->rope_frequencies,
                            &rope->attention_factor, error);
}
