/* The scaling of rotary positions out of the metadata of a GGUF file, or out of its factors, which are tensors. */
#include <string.h>

#include "lab/lab.h"
#include "lab/settings.h"
#include "models/config/config.h"
#include "models/gguf/gguf.h"

/* The number under a key, `missing` where there is none. */
static mha_status number(const json_t *config, const char *key, double missing, double *x, mha_error *error)
{
    const json_t *value = mha__config_value(config, key);
    *x = missing;
    if (value && !(json_is_number(value) && json_number_value(value) >= 0))
        return mha__fail(error, MHA_INVALID, key, "expected a number of at least 0");
    if (value)
        *x = json_number_value(value);
    return MHA_OK;
}

/* Refuses any number but that which asks for nothing. */
static mha_status only(const json_t *config, const char *key, double nothing, mha_error *error)
{
    double x;
    TRY(number(config, key, nothing, &x, error));
    return x == 0 || x == nothing ? MHA_OK
                                  : mha__fail(error, MHA_UNSUPPORTED, key, "expected %g, found %g", nothing, x);
}

/* A factor for each pair of features, by which its frequency is divided. */
static mha_status read_factors(const mha_file *file, const mha_file_tensor *tensor, size_t pairs, bool alone,
                               double *factors, mha_error *error)
{
    if (!alone || tensor->rank != 1 || tensor->elements != pairs || pairs > MHA_ROPE_MAX_PAIRS)
        return mha__fail(error, MHA_UNSUPPORTED, tensor->name,
                         "expected factors of %zu pairs of features and no other scaling, found %zu", pairs,
                         tensor->elements);
    const mha_view view = mha_view_of(factors, MHA_F64, 1, &pairs);
    return mha_file_read(file, tensor, &view, error);
}

/* Phi-3: other factors for more than the original length, and a factor for all scores. */
static mha_status read_long(const mha_file *file, const json_t *config, size_t pairs, mha_rope_scaling *s,
                            mha_error *error)
{
    const mha_file_tensor *longer = mha_file_find(file, "rope_factors_long.weight"),
                          *shorter = mha_file_find(file, "rope_factors_short.weight");
    double context, original;
    if (!longer || !shorter)
        return mha__fail(error, MHA_NOT_FOUND, longer ? "rope_factors_short.weight" : "rope_factors_long.weight",
                         "expected factors for short and for long sequences, found one of them at most");
    TRY(number(config, "context_length", 0, &context, error));
    TRY(number(config, "rope.scaling.original_context_length", context, &original, error));
    TRY(number(config, "rope.scaling.attn_factor", 0, &s->attention_factor, error));
    const bool alone = s->kind == MHA_ROPE_UNSCALED || s->kind == MHA_ROPE_LONGROPE;
    s->kind = MHA_ROPE_LONGROPE;
    s->pairs = pairs;
    s->original_length = original;
    s->factor = context > original && original > 0 ? context / original : 1;
    TRY(read_factors(file, shorter, pairs, alone, s->short_factors, error));
    return read_factors(file, longer, pairs, alone, s->long_factors, error);
}

static mha_status read_kind(const json_t *config, mha_rope_scaling *s, mha_error *error)
{
    const json_t *type = mha__config_value(config, "rope.scaling.type");
    const char *name = json_is_string(type) ? json_string_value(type) : NULL;
    TRY(number(config, "rope.scaling.factor", 0, &s->factor, error));
    if (!type && s->factor != 0 && s->factor != 1)
        name = "linear";
    if ((!type && !name) || (name && strcmp(name, "none") == 0))
        return MHA_OK;
    if (!name || !mha__text_among("linear yarn longrope", name) || !mha__rope_scaling_find(name, &s->kind))
        return mha__fail(error, MHA_UNSUPPORTED, "rope.scaling.type",
                         "expected none, linear, yarn or longrope, found '%.*s'", MHA_CUT_ARGS(40, name ? name : "?"));
    return MHA_OK;
}

mha_status mha__gguf_scaling(const mha_file *file, const json_t *config, const mha__values *values,
                             mha_rope_scaling *s, mha_error *error)
{
    const size_t pairs = mha__values_rope_dim(values) / 2;
    const mha_file_tensor *factors = mha_file_find(file, "rope_freqs.weight");
    const bool latent = mha__values_get(values, "rank_kv") > 0;
    double log_multiplier, context;
    *s = (mha_rope_scaling){0};
    TRY(read_kind(config, s, error));
    TRY(only(config, "rope.scaling.yarn_attn_factor", 1, error));
    TRY(only(config, "rope.scaling.yarn_ext_factor", 1, error));
    TRY(number(config, "rope.scaling.yarn_log_multiplier", 0, &log_multiplier, error));
    if (s->kind == MHA_ROPE_LONGROPE || mha_file_find(file, "rope_factors_long.weight") ||
        mha_file_find(file, "rope_factors_short.weight"))
        return read_long(file, config, pairs, s, error);
    TRY(only(config, "rope.scaling.attn_factor", 1, error));
    if (s->kind == MHA_ROPE_YARN) {
        s->untruncated = mha__values_get(values, "untruncated");
        s->mscale_all_dim = latent ? 10 * log_multiplier : 0; /* in the scale of latent attention: 1 + 0.1 m ln F */
        s->attention_factor = latent ? 1 : 0;
        TRY(number(config, "rope.scaling.yarn_beta_fast", 0, &s->beta_fast, error));
        TRY(number(config, "rope.scaling.yarn_beta_slow", 0, &s->beta_slow, error));
    }
    if (!latent)
        TRY(only(config, "rope.scaling.yarn_log_multiplier", 0, error));
    TRY(number(config, "rope.scaling.original_context_length", 0, &s->original_length, error));
    TRY(number(config, "context_length", 0, &context, error));
    if (!factors && !mha__config_value(config, "rope.scaling.type") && s->kind == MHA_ROPE_UNSCALED &&
        s->original_length > 0 && context > s->original_length)
        return mha__fail(error, MHA_NOT_FOUND, "rope_factors_long.weight",
                         "expected factors for a context of %.0f positions above the original %.0f, found none",
                         context, s->original_length);
    if (!factors)
        return MHA_OK;
    const bool alone = s->kind == MHA_ROPE_UNSCALED;
    *s = (mha_rope_scaling){ /* Llama 3: the same factors at every length */
        .kind = MHA_ROPE_LONGROPE, .pairs = pairs, .factor = 1, .original_length = 2, .attention_factor = 1};
    TRY(read_factors(file, factors, pairs, alone, s->short_factors, error));
    memcpy(s->long_factors, s->short_factors, sizeof s->long_factors);
    return MHA_OK;
}
