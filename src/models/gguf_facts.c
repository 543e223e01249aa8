/* What the metadata of a GGUF file say about the attention layers of its model. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "mha/model.h"

/* The text under a key that begins with the architecture ("llama.rope.scaling.type"), or NULL. */
static const char *text_of(const mha_file *file, const char *architecture, const char *key)
{
    char name[128];
    snprintf(name, sizeof name, "%.40s.%s", architecture, key);
    return mha_file_metadata(file, name);
}

/* The number under such a key; 0 for what is none, or no size. */
static double number_of(const mha_file *file, const char *architecture, const char *key)
{
    static const double largest = 0x1p40;
    double number = 0;
    const char *text = text_of(file, architecture, key);
    return text && sscanf(text, "%lf", &number) == 1 && number >= 0 && number <= largest ? number : 0;
}

/* A factor for each pair of features, by which its frequency is divided (Llama 3). */
static mha_status read_factors(const mha_file *file, const mha_file_tensor *tensor, mha_model_facts *facts,
                               mha_error *error)
{
    const size_t pairs = facts->rope_dim / 2;
    mha_rope_scaling *s = &facts->rope_scaling;
    if (s->kind != MHA_ROPE_UNSCALED || tensor->rank != 1 || tensor->elements != pairs || pairs > MHA_ROPE_MAX_PAIRS)
        return mha__fail(error, MHA_UNSUPPORTED, tensor->name,
                         "expected factors of %zu pairs of features and no other scaling, found %zu", pairs,
                         tensor->elements);
    *s = (mha_rope_scaling){ /* the factors are the same at every length */
        .kind = MHA_ROPE_LONGROPE, .pairs = pairs, .factor = 1, .original_length = 2, .attention_factor = 1};
    const mha_view view = mha_view_of(s->short_factors, MHA_F64, 1, &pairs);
    TRY(mha_file_read(file, tensor, &view, error));
    memcpy(s->long_factors, s->short_factors, sizeof s->long_factors);
    return MHA_OK;
}

static mha_status read_scaling(const mha_file *file, const char *a, mha_model_facts *facts, mha_error *error)
{
    mha_rope_scaling *s = &facts->rope_scaling;
    const mha_file_tensor *factors = mha_file_find(file, "rope_freqs.weight");
    const char *type = text_of(file, a, "rope.scaling.type");
    const double times = number_of(file, a, "rope.scaling.attn_factor");
    if (type && strcmp(type, "none") != 0) {
        if (strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0)
            return mha__fail(error, MHA_UNSUPPORTED, "rope.scaling.type", "expected none, linear or yarn, found '%.*s'",
                             MHA_CUT_ARGS(40, type));
        s->kind = strcmp(type, "linear") == 0 ? MHA_ROPE_LINEAR : MHA_ROPE_YARN;
        s->factor = number_of(file, a, "rope.scaling.factor");
        s->original_length = number_of(file, a, "rope.scaling.original_context_length");
        s->beta_fast = number_of(file, a, "rope.scaling.yarn_beta_fast");
        s->beta_slow = number_of(file, a, "rope.scaling.yarn_beta_slow");
        s->attention_factor = facts->rope_last ? 1 : 0; /* of latent attention: it is in the scale */
    }
    if (times != 0 && times != 1)
        return mha__fail(error, MHA_UNSUPPORTED, "rope.scaling.attn_factor", "expected 1, found %g", times);
    if (factors)
        TRY(read_factors(file, factors, facts, error));
    return mha_model_stretch(facts, 0, error);
}

/* Latent attention: a key is what W_KVB makes of a latent, and rope.dimension_count features for all heads. Files for
 * its absorbed form say the lengths of that, and those of heads beside them. Its scale grows with the context,
 * (d_k)^-1/2 m^2 with m = 1 + yarn_log_multiplier ln F. */
static void read_latents(const mha_file *file, const char *a, mha_model_facts *facts)
{
    const size_t of_head = (size_t)number_of(file, a, "attention.key_length_mla");
    const double grows = number_of(file, a, "rope.scaling.yarn_log_multiplier"),
                 factor = number_of(file, a, "rope.scaling.factor");
    facts->d_k = of_head ? of_head : facts->d_k;
    facts->kv_heads = facts->n_heads;
    facts->rope_last = true;
    if (grows > 0 && factor > 1 && facts->d_k > 0) {
        const double m = 1 + grows * log(factor);
        facts->has_scale = true;
        facts->scale = m * m / sqrt((double)facts->d_k);
    }
}

bool mha_model_read_metadata(const mha_file *file, mha_model_facts *facts)
{
    *facts = (mha_model_facts){0};
    const char *a = mha_file_metadata(file, "general.architecture");
    mha_error error = {0};
    if (!a || strcmp(mha_file_format(file), "gguf") != 0)
        return false;
    mha__text_print(facts->model_type, sizeof facts->model_type, "%s", a);
    facts->d_model = (size_t)number_of(file, a, "embedding_length");
    facts->n_heads = (size_t)number_of(file, a, "attention.head_count");
    facts->kv_heads = (size_t)number_of(file, a, "attention.head_count_kv");
    facts->d_k = (size_t)number_of(file, a, "attention.key_length");
    facts->norm_eps = number_of(file, a, "attention.layer_norm_rms_epsilon");
    const bool latent = strcmp(a, "deepseek2") == 0;
    if (facts->n_heads == 0 || (!latent && strcmp(a, "llama") != 0))
        return facts->n_heads > 0;
    /* GGUF rotates Meta's pairs, also when converted from Hugging Face */
    facts->has_semantics = facts->causal = true;
    facts->rope = MHA_ROPE_INTERLEAVED;
    facts->rope_dim = (size_t)number_of(file, a, "rope.dimension_count");
    facts->rope_base = number_of(file, a, "rope.freq_base");
    if (facts->rope_base == 0)
        facts->rope_base = 10000;
    if (latent)
        read_latents(file, a, facts);
    const size_t asked = facts->rope_dim, all = facts->d_k ? facts->d_k : facts->d_model / facts->n_heads;
    facts->rope_dim = asked ? asked : all;
    if (read_scaling(file, a, facts, &error) != MHA_OK)
        mha__text_print(facts->not_run, sizeof facts->not_run, "%s: %s", error.name, error.message);
    if (facts->rope_scaling.kind == MHA_ROPE_UNSCALED)
        facts->rope_dim = asked;
    return true;
}
