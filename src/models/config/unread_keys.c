/* Keys of a config.json that nothing reads: those known to be without effect, those told, and those refused. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/lab.h"
#include "models/config/unread_keys.h"
#include "models/config/symbols.h"

/* Without effect on tensors and on attention layers, whatever the architecture: `*` stands for any letters, and
 * `key=0` for the key with the value 0 or false alone, as `key=1` for 1 or true. */
static const char *const everywhere[] = {
    /* names and versions */
    "_* model_type architectures auto_map custom_pipelines name_or_path transformers_version *_version "
    "transformers.js_config model_name model_id language license tokenizer_class tokenizer_type processor_class "
    "id2label num_labels label2id finetuning_task problem_type prefix task_specific_params use_task_specific_params "
    "is_llama_config sentence_transformers pipeline_tag",
    /* how numbers are stored */
    "dtype torch_dtype params_dtype quantization quantization_config compression_config use_bfloat16 bf16 fp16 fp32 "
    "*_in_fp32 *_in_float32",
    /* how a forward pass is run */
    "use_cache attn_implementation experts_implementation attn_impl use_flash_attn* use_flash_attention* flash_attn* "
    "use_sdpa* use_triton* use_memory_efficient_attention use_logn_attn=0 use_dynamic_ntk=0 use_kernels "
    "gradient_checkpointing* activation_checkpoint* torchscript return_dict* return_unused_kwargs output_attentions "
    "output_hidden_states output_past output_scores output_logits output_router_logits chunk_size_feed_forward "
    "is_encoder_decoder keys_to_ignore_at_inference tie_last_hidden_states pretraining_tp tensor_parallel* ep_size "
    "tp_size xla_device use_return_dict unsloth_fixed onnx_* low_cpu_mem_usage",
    /* training */
    "*dropout* *_pdrop *layerdrop drop_path_rate initializer_range initializer_factor init_std init_device "
    "init_config *_loss_coef *_loss_weight *_loss_alpha *_loss_reduction aux_loss_alpha seq_aux router_jitter_noise "
    "z_loss* tf_legacy_loss neftune_noise_alpha label_smoothing loss_type",
    /* tokens */
    "*_token_id *_token_ids *_token_index bos_token eos_token pad_token unk_token sep_token cls_token mask_token "
    "bos_id eos_id pad_id do_lower_case model_max_length tokenizer_* max_sequence_length",
    /* generation */
    "generation_config do_sample early_stopping max_length min_length max_new_tokens min_new_tokens max_time "
    "num_beams num_beam_groups num_return_sequences diversity_penalty length_penalty repetition_penalty "
    "encoder_repetition_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size exponential_decay_length_penalty "
    "penalty_alpha temperature top_k top_p min_p typical_p epsilon_cutoff eta_cutoff bad_words_ids force_words_ids "
    "constraints suppress_tokens begin_suppress_tokens forced_decoder_ids sequence_bias stop_strings token_healing "
    "guidance_scale remove_invalid_values renormalize_logits low_memory watermarking_config cache_implementation "
    "cache_config is_assistant num_assistant_tokens* assistant_* prompt_lookup_num_tokens max_matching_ngram_size "
    "dola_layers force_bos_token_to_be_generated",
    /* between tensors: functions, and what is added before a root */
    "hidden_act hidden_activation activation_function *_norm_eps *_norm_epsilon norm_eps norm_epsilon",
    /* written by old releases, for every model, when they are off */
    "is_decoder=0 add_cross_attention=0 tie_encoder_decoder=0",
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

static bool without_effect(const mha__architecture *a, const char *key, const json_t *value)
{
    for (size_t i = 0; i < sizeof everywhere / sizeof *everywhere; i++)
        if (listed(everywhere[i], key, value))
            return true;
    return listed(a->no_effect, key, value);
}

/* Whether a list of keys has this one or, with a dot behind it, one of its members. */
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

static bool says_nothing(const json_t *value)
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
    return !without_effect(s->setup->architecture, key, NULL) &&
           (json_is_string(value) || (mha__architecture_knows(dot ? dot + 1 : key) &&
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

/* Checks the keys of the configuration or, under the name of an object of which some members are read, its members. */
static mha_status check_all(search *s, const char *object, const json_t *members, mha_error *error)
{
    const mha__architecture *a = s->setup->architecture;
    const char *member;
    json_t *value;
    char key[160];
    json_object_foreach((json_t *)(uintptr_t)members, member, value)
    {
        snprintf(key, sizeof key, "%.70s%s%.80s", object, *object ? "." : "", member);
        if (says_nothing(value) || is_read(a, key, false) || without_effect(a, key, value))
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
