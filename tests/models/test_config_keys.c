/* Keys of a config.json that nothing reads: known to be without effect, told, or refused. */
#include "support/unit.h"

#include <stdio.h>
#include <string.h>

#include "mha/lab.h"
#include "support/built.h"
#include "support/scratch.h"

/* A model of some type with more keys; `description` may be NULL. */
static mha_status typed(built *b, const char *type, const char *more, const char *description)
{
    char text[5000];
    snprintf(text, sizeof text, "{\"model_type\": \"%s\"%s%s}", type, *more ? ", " : "", more);
    return build_text(b, text, NULL, description);
}

#define OLD                                                                                                            \
    "\"_name_or_path\": \"x\", \"_attn_implementation_autoset\": true, \"_commit_hash\": null, "                       \
    "\"add_cross_attention\": false, \"bad_words_ids\": null, \"begin_suppress_tokens\": [1, 2], "                     \
    "\"bos_token_id\": 0, \"chunk_size_feed_forward\": 0, \"cross_attention_hidden_size\": null, "                     \
    "\"decoder_start_token_id\": 1, \"diversity_penalty\": 0.0, \"do_sample\": false, \"early_stopping\": true, "      \
    "\"encoder_no_repeat_ngram_size\": 0, \"eos_token_id\": [1, 2], \"finetuning_task\": \"x\", "                      \
    "\"forced_bos_token_id\": 5, \"gradient_checkpointing\": false, \"id2label\": {\"0\": \"a\", \"1\": \"b\"}, "      \
    "\"is_decoder\": false, \"is_encoder_decoder\": false, \"label2id\": {\"a\": 0, \"b\": 1}, "                       \
    "\"length_penalty\": 2.0, \"max_length\": 142, \"min_length\": 56, \"no_repeat_ngram_size\": 3, "                  \
    "\"num_beam_groups\": 1, \"num_beams\": 4, \"num_return_sequences\": 1, \"output_attentions\": false, "            \
    "\"output_hidden_states\": false, \"output_past\": true, \"output_scores\": false, \"pad_token_id\": 0, "          \
    "\"prefix\": \"x\", \"problem_type\": null, \"pruned_heads\": {}, \"remove_invalid_values\": false, "              \
    "\"repetition_penalty\": 1.0, \"return_dict\": true, \"return_dict_in_generate\": false, \"sep_token_id\": 3, "    \
    "\"task_specific_params\": {\"a\": {\"b\": 1}}, \"temperature\": 1.0, \"tf_legacy_loss\": false, "                 \
    "\"tie_encoder_decoder\": false, \"tokenizer_class\": \"T\", \"top_k\": 50, \"top_p\": 1.0, "                      \
    "\"torch_dtype\": \"float32\", \"torchscript\": false, \"transformers_version\": \"4.21.0\", "                     \
    "\"typical_p\": 1.0, \"use_bfloat16\": false, \"use_cache\": true"
#define NEW                                                                                                            \
    "\"attention_dropout\": 0.0, \"auto_map\": {\"AutoConfig\": \"a.B\"}, \"dtype\": \"bfloat16\", "                   \
    "\"hidden_act\": \"silu\", \"initializer_range\": 0.02, \"quantization_config\": {\"bits\": 4}, "                  \
    "\"rms_norm_eps\": 1e-06, \"unsloth_version\": \"2025.1\", \"unsloth_fixed\": true, \"use_cache\": true"
#define FAIRSEQ                                                                                                        \
    "\"add_bias_logits\": false, \"add_final_layer_norm\": true, \"classif_dropout\": 0.1, "                           \
    "\"extra_pos_embeddings\": 1, \"force_bos_token_to_be_generated\": true, \"normalize_before\": true, "             \
    "\"normalize_embedding\": true, \"num_hidden_layers\": 6, \"scale_embedding\": false, "                            \
    "\"static_position_embeddings\": true"
#define SUMMARY                                                                                                        \
    "\"summary_activation\": null, \"summary_first_dropout\": 0.1, \"summary_proj_to_labels\": true, "                 \
    "\"summary_type\": \"cls_index\", \"summary_use_proj\": true"

/* Keys without effect in public files of a family. */
static void keys_of_public_files_are_known(void **state)
{
    (void)state;
    static const struct {
        const char *type, *more;
    } rows[] = {
        {"bert", OLD},
        {"bert", "\"directionality\": \"bidi\", \"pooler_fc_size\": 768, \"pooler_num_attention_heads\": 12, "
                 "\"pooler_num_fc_layers\": 3, \"pooler_size_per_head\": 128, \"pooler_type\": \"first_token\""},
        {"distilbert", "\"activation\": \"gelu\", \"qa_dropout\": 0.1, \"seq_classif_dropout\": 0.2, "
                       "\"sinusoidal_pos_embds\": false, \"tie_weights_\": true"},
        {"albert", "\"down_scale_factor\": 1, \"gap_size\": 0, \"net_structure_type\": 0, \"num_memory_blocks\": 0"},
        {"electra", SUMMARY},
        {"deberta-v2", "\"attention_head_size\": 64, \"conv_act\": \"gelu\", \"pooler_dropout\": 0, "
                       "\"pooler_hidden_act\": \"gelu\", \"hidden_size\": 1536, \"num_attention_heads\": 24"},
        {"gpt2", OLD ", " SUMMARY ", \"n_ctx\": 2048, \"resid_pdrop\": 0.1, \"predict_special_tokens\": true"},
        {"gpt_neo", SUMMARY ", \"embed_dropout\": 0, \"resid_dropout\": 0"},
        {"gptj", SUMMARY ", \"scale_attn_weights\": true, \"n_positions\": 2048"},
        {"codegen", SUMMARY ", \"scale_attn_weights\": true, \"n_ctx\": 2048, \"n_positions\": 2048"},
        {"gpt_bigcode", SUMMARY ", \"attention_softmax_in_fp32\": true, \"inference_runner\": 0, "
                                "\"max_sequence_length\": null, \"pad_key_length\": true, "
                                "\"pre_allocate_kv_cache\": false, \"scale_attention_softmax_in_fp32\": true, "
                                "\"validate_runner_input\": true"},
        {"gpt_neox", "\"rotary_emb_base\": 10000, \"rotary_pct\": 0.25, \"use_parallel_residual\": true"},
        {"bloom", "\"apply_residual_connection_post_layernorm\": false, \"bias_dropout_fusion\": true, "
                  "\"masked_softmax_fusion\": true, \"offset_alibi\": 100, \"pretraining_tp\": 4, "
                  "\"seq_length\": 2048, \"skip_bias_add\": true, \"skip_bias_add_qkv\": false"},
        {"falcon", NEW ", \"apply_residual_connection_post_layernorm\": false"},
        {"mpt", "\"attn_config\": {\"alibi\": true, \"alibi_bias_max\": 8, \"attn_impl\": \"torch\", \"attn_pdrop\": 0,"
                " \"attn_type\": \"multihead_attention\", \"attn_uses_sequence_id\": false, \"clip_qkv\": null, "
                "\"prefix_lm\": false, \"qk_ln\": false, \"softmax_scale\": null}, \"emb_pdrop\": 0, "
                "\"embedding_fraction\": 1.0, \"expansion_ratio\": 4, \"init_config\": {\"name\": \"k\"}, "
                "\"init_device\": \"cpu\", \"learned_pos_emb\": true, \"logit_scale\": null, \"max_seq_len\": 2048, "
                "\"no_bias\": true, \"norm_type\": \"low_precision_layernorm\", \"verbose\": 0"},
        {"qwen", "\"bf16\": true, \"fp16\": false, \"fp32\": false, \"attn_dropout_prob\": 0, "
                 "\"emb_dropout_prob\": 0, \"kv_channels\": 128, \"max_position_embeddings\": 32768, "
                 "\"no_bias\": true, \"onnx_safe\": null, \"rotary_emb_base\": 10000, \"rotary_pct\": 1.0, "
                 "\"scale_attn_weights\": true, "
                 "\"seq_length\": 8192, \"use_dynamic_ntk\": true, \"use_flash_attn\": \"auto\", "
                 "\"use_logn_attn\": true"},
        {"t5", OLD ", \"n_positions\": 512, \"dense_act_fn\": \"relu\", \"is_gated_act\": false"},
        {"bart", OLD ", " FAIRSEQ ", \"save_step\": 58, \"do_blenderbot_90_layernorm\": false"},
        {"mbart", FAIRSEQ},
        {"pegasus", FAIRSEQ},
        {"marian", FAIRSEQ},
        {"m2m_100", FAIRSEQ ", \"max_position_embeddings\": 1024"},
        {"whisper", "\"apply_spec_augment\": false, \"mask_time_prob\": 0.05, \"mask_time_min_masks\": 2, "
                    "\"median_filter_width\": 7, \"num_hidden_layers\": 4, \"suppress_tokens\": [1], "
                    "\"forced_decoder_ids\": [[1, 2]], \"use_weighted_layer_sum\": false"},
        {"wav2vec2", "\"ctc_loss_reduction\": \"sum\", \"ctc_zero_infinity\": false, \"feat_quantizer_dropout\": 0.0, "
                     "\"mask_channel_length\": 10, \"mask_channel_prob\": 0.0, \"mask_time_min_space\": 1, "
                     "\"mask_time_prob\": 0.05, \"no_mask_time_overlap\": false, \"num_negatives\": 100, "
                     "\"freeze_feat_extract_train\": true, \"num_feat_extract_layers\": 7"},
        {"vit", OLD ", \"encoder_stride\": 16, \"pooler_act\": \"tanh\", \"layer_norm_eps\": 1e-12"},
        {"swin", "\"path_norm\": true, \"drop_path_rate\": 0.1, \"hidden_size\": 768, \"num_layers\": 4, "
                 "\"stage_names\": [\"stem\"], \"out_indices\": [4]"},
        {"dinov2", "\"apply_layernorm\": true, \"layerscale_value\": 1.0, \"reshape_hidden_states\": true"},
        {"clip", "\"initializer_factor\": 1.0, \"logit_scale_init_value\": 2.6592, \"text_config_dict\": null, "
                 "\"vision_config_dict\": null, \"text_config\": {\"projection_dim\": 512, \"dropout\": 0.0, "
                 "\"tie_word_embeddings\": true, " OLD "}, \"vision_config\": {\"projection_dim\": 512, " OLD "}"},
        {"llama", NEW ", \"is_llama_config\": true, \"rope_interleaved\": false, \"pretraining_tp\": 1, "
                      "\"max_sequence_length\": 2048, \"transformers.js_config\": {\"dtype\": {\"a\": 1}}"},
        {"mistral", NEW},
        {"mixtral", NEW ", \"output_router_logits\": false, \"router_aux_loss_coef\": 0.02, "
                        "\"router_jitter_noise\": 0.0"},
        {"qwen2", NEW ", \"use_mrope\": false, \"max_window_layers\": 28, "
                      "\"dual_chunk_attention_config\": {\"chunk_size\": 1}"},
        {"qwen3_moe", NEW ", \"max_window_layers\": 62, \"norm_topk_prob\": true, \"qkv_bias\": false, "
                          "\"shared_expert_intermediate_size\": 0, \"use_qk_norm\": true, \"num_hidden_layers\": 1"},
        {"deepseek_v3", NEW ", \"aux_loss_alpha\": 0.001, \"ep_size\": 1, \"moe_layer_freq\": 1, \"n_group\": 8, "
                            "\"norm_topk_prob\": true, \"num_key_value_heads\": 128, "
                            "\"num_nextn_predict_layers\": 1, \"routed_scaling_factor\": 2.5, "
                            "\"scoring_func\": \"sigmoid\", \"seq_aux\": true, \"topk_group\": 4, "
                            "\"topk_method\": \"noaux_tc\", \"num_hidden_layers\": 1"},
        {"gemma2", NEW ", \"cache_implementation\": \"hybrid\", \"final_logit_softcapping\": 30.0, "
                       "\"hidden_activation\": \"gelu\", \"sliding_window_size\": 4096"},
        {"phi3", NEW ", \"attention_bias\": false, \"embd_pdrop\": 0.0, \"full_attn_mod\": 1, "
                     "\"interpolate_factor\": 1, \"lm_head_bias\": false, \"mlp_bias\": false"},
        {"cohere2", NEW ", \"logit_scale\": 0.25, \"order_of_interleaved_layers\": \"local_attn_first\", "
                        "\"position_embedding_type\": \"rope_gptj\", \"rotary_pct\": 1.0, "
                        "\"use_embedding_sharing\": true, \"use_gated_activation\": true, "
                        "\"use_parallel_block\": true, \"use_parallel_embedding\": false"},
        {"granite", NEW ", \"embedding_multiplier\": 12.0, \"logits_scaling\": 8.0, \"residual_multiplier\": 0.22"},
        {"gpt_oss", NEW ", \"experts_per_token\": 4, \"initial_context_length\": 4096, \"swiglu_limit\": 7.0"},
        {"exaone4", NEW ", \"sliding_window_pattern\": \"LLLG\", \"num_hidden_layers\": 1, "
                        "\"layer_types\": [\"full_attention\"]"},
        {"modernbert", "\"classifier_pooling\": \"mean\", \"deterministic_flash_attn\": false, "
                       "\"initializer_cutoff_factor\": 2.0, \"reference_compile\": null, "
                       "\"sparse_pred_ignore_index\": -100, \"sparse_prediction\": false"},
        {"nomic_bert", "\"n_embd\": 768, \"n_head\": 12, \"n_inner\": 3072, \"n_layer\": 12, \"n_positions\": 8192, "
                       "\"causal\": false, \"dense_seq_output\": true, \"fused_bias_fc\": true, "
                       "\"mlp_fc1_bias\": false, \"qkv_proj_bias\": false, \"rotary_emb_base\": 1000, "
                       "\"rotary_emb_fraction\": 1.0, \"scale_attn_weights\": true, \"use_flash_attn\": true, "
                       "\"use_xentropy\": true, \"vocab_size\": 30528, " SUMMARY},
        {"esm", "\"token_dropout\": true, \"is_folding_model\": false, \"esmfold_config\": null, "
                "\"vocab_list\": null, \"vocab_size\": 33"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        built b, plain;
        if (typed(&b, rows[i].type, rows[i].more, NULL) != MHA_OK)
            fail_msg("%s: %s: %s", rows[i].type, b.error.name, b.error.message);
        if (mha_model_unread_key(b.model, 0))
            fail_msg("%s: %s is not known", rows[i].type, mha_model_unread_key(b.model, 0));
        if (strcmp(rows[i].type, "bert") == 0 || strcmp(rows[i].type, "gpt2") == 0) { /* and without effect */
            assert_ok(typed(&plain, rows[i].type, "", NULL), plain.error);
            assert_int_equal(mha_params_totals(b.table, NULL).parameters,
                             mha_params_totals(plain.table, NULL).parameters);
            unbuild(&plain);
        }
        unbuild(&b);
    }
}

/* Unknown keys are refused if a number may depend on them, and otherwise named. */
static void unknown_keys_are_refused_or_named(void **state)
{
    (void)state;
    static const struct {
        const char *type, *more;
        const char *refused; /* names, with blanks between; NULL: none */
        const char *told;    /* the same of the model */
    } rows[] = {
        {"llama", "\"num_extra_layers\": 2", "num_extra_layers", ""},
        {"llama", "\"use_extra\": false", "use_extra", ""},
        {"llama", "\"extra\": 0.5, \"more\": [1], \"rest\": {\"a\": 1}", "extra more rest", ""},
        {"llama", "\"per_layer_config\": {\"0\": {\"intermediate_size\": 8}}", "per_layer_config", ""},
        {"llama", "\"note\": \"mine\", \"extra\": 1, \"mlp_bias\": true", "extra", ""},
        {"llama", "\"note\": \"mine\", \"\": \"x\"", NULL, "note "},
        {"llama", "\"extra\": null, \"more\": [], \"rest\": {}", NULL, ""},
        {"llama", "\"num_experts\": 8, \"clip_qkv\": 8.0", NULL, "num_experts clip_qkv"}, /* of other families */
        {"llama", "\"num_experts\": 8, \"auto_map\": {\"AutoConfig\": \"a.B\"}", "num_experts", ""},
        {"llama", "\"rope_interleaved\": true", "rope_interleaved", ""}, /* known when it is off */
        {"gpt2", "\"rope_interleaved\": true", NULL, "rope_interleaved"},
        {"mistral", "\"rope_interleaved\": false", NULL, ""}, /* as of the one it is like */
        {"t5", "\"is_decoder\": true", "is_decoder", ""},
        {"bloom", "\"is_decoder\": \"true\"", "is_decoder", ""},
        {"bert", "\"tie_encoder_decoder\": true", "tie_encoder_decoder", ""},
        {"bert", "\"tie_encoder_decoder\": 0", NULL, ""},
        {"bert", "\"pruned_heads\": {\"1\": [0]}", "pruned_heads", ""},
        {"bert", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", "rope_scaling", ""},
        {"clip", "\"text_config\": {\"extra\": 1, \"note\": \"x\"}", "text_config.extra", ""},
        {"clip", "\"text_config\": {\"note\": \"x\", \"num_experts\": 2}", NULL,
         "text_config.note text_config.num_experts"},
        {"clip", "\"text_config_dict\": {\"hidden_size\": 8}", "text_config_dict", ""},
        {"siglip", "\"vision_config\": {\"layer_norm_eps\": 1e-6, \"vision_use_head\": false}", NULL, ""},
        {"qwen3_moe", "\"num_hidden_layers\": 1, \"use_qk_norm\": true", NULL, ""},
        {"qwen3_moe", "\"num_hidden_layers\": 1, \"use_qk_norm\": false", "use_qk_norm", ""},
        {"transformer", "\"n_layers\": 3", NULL, "n_layers"},
        {"transformer", "\"num_layer\": 3", "num_layer", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        built b;
        char told[200] = "";
        const char *key;
        const mha_status status = typed(&b, rows[i].type, rows[i].more, NULL);
        for (size_t k = 0; b.model && (key = mha_model_unread_key(b.model, k)); k++)
            snprintf(told + strlen(told), sizeof told - strlen(told), "%s%s", k ? " " : "", key);
        if (status != (rows[i].refused ? MHA_UNSUPPORTED : MHA_OK) || strcmp(told, rows[i].told) != 0 ||
            (rows[i].refused && (strcmp(b.error.name, rows[i].refused) != 0 ||
                                 !strstr(b.error.message, "\"no_effect\": \"") ||
                                 !strstr(b.error.message, rows[i].refused) || !strstr(b.error.message, rows[i].type))))
            fail_msg("%s: %s: '%s', %s: %s", rows[i].type, rows[i].more, told, b.error.name, b.error.message);
        unbuild(&b);
    }
}

/* Many names are cut behind a whole one, and the others counted; long ones between two letters. */
static void as_many_keys_are_named_as_fit(void **state)
{
    (void)state;
    built b;
    char more[1200] = "";
    for (int i = 0; i < 30; i++)
        snprintf(more + strlen(more), sizeof more - strlen(more), "%s\"unheard_of_%02d\": %d", i ? ", " : "", i, i);
    assert_refused(typed(&b, "llama", more, NULL), MHA_UNSUPPORTED, b.error, "unheard_of_07", "(and 22 more)");
    assert_null(strstr(b.error.name, "unheard_of_08"));
    unbuild(&b);
    snprintf(more, sizeof more, "\"%0200d\": 1", 0);
    assert_refused(typed(&b, "llama", more, NULL), MHA_UNSUPPORTED, b.error, "00000", "expected keys");
    assert_true(strlen(b.error.name) == 60);
    unbuild(&b);
}

/* A description adds to what the one that it is like knows. */
static void descriptions_name_keys_without_effect(void **state)
{
    (void)state;
    static const struct {
        const char *type, *more, *description;
        mha_status status;
        const char *what;
    } rows[] = {
        {"llama", "\"extra\": 1", "{\"like\": \"llama\", \"no_effect\": \"extra\"}", MHA_OK, ""},
        {"mine", "\"extra\": 1, \"rope_interleaved\": false", "{\"like\": \"llama\", \"no_effect\": \"extra\"}", MHA_OK,
         ""},
        {"mine", "\"extra_a\": 1, \"extra_b\": true", "{\"like\": \"llama\", \"no_effect\": \"extra_*\"}", MHA_OK, ""},
        {"mine", "\"extra\": 3", "{\"like\": \"llama\", \"no_effect\": \"extra=3\"}", MHA_OK, ""},
        {"mine", "\"extra\": 4", "{\"like\": \"llama\", \"no_effect\": \"extra=3\"}", MHA_UNSUPPORTED, "extra"},
        {"mine", "\"extra\": [3]", "{\"like\": \"llama\", \"no_effect\": \"extra=3\"}", MHA_UNSUPPORTED, "extra"},
        {"mine", "\"extra\": 1", "{\"like\": \"llama\", \"no_effect\": \"extras\"}", MHA_UNSUPPORTED,
         "description.json"},
        {"mine", "\"extra\": 1", "{\"like\": \"llama\", \"no_effect\": [\"extra\"]}", MHA_FORMAT, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        built b;
        const mha_status status = typed(&b, rows[i].type, rows[i].more, rows[i].description);
        if (status != rows[i].status ||
            (status && !strstr(b.error.name, rows[i].what) && !strstr(b.error.message, rows[i].what)))
            fail_msg("%s, %s: %s: %s", rows[i].more, rows[i].description, b.error.name, b.error.message);
        unbuild(&b);
    }
}

/* The facts of a layer are refused as the model is; a member of a rotation that is not known leaves it out. */
static void layers_are_held_to_the_same(void **state)
{
    (void)state;
    mha_model_facts facts;
    mha_error error;
    static const char text[] = "{\"model_type\": \"llama\", \"extra\": 1}",
                      turned[] = "{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2,"
                                 " \"note\": \"x\", \"twist\": 3}}";
    assert_refused(mha_model_read_config(config_file(text), &facts, &error),
                   MHA_UNSUPPORTED, error, "extra", "llama");
    assert_ok(mha_model_read_config(config_file(turned), &facts, &error), error);
    assert_string_equal(facts.not_run, "rope_scaling: rope_parameters: expected known keys, found 'twist'");
}

/* Both names of a key are read, that first which the library's class reads first. */
static void both_names_of_a_key_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *type, *more, *plain;
    } rows[] = {
        {"qwen3_moe", "\"num_hidden_layers\": 1, \"num_local_experts\": 8, \"num_experts\": 4",
         "\"num_hidden_layers\": 1, \"num_experts\": 8"},
        {"minimax_m2", "\"num_hidden_layers\": 1, \"num_local_experts\": 8, \"num_experts\": 4",
         "\"num_hidden_layers\": 1, \"num_experts\": 4"},
        {"glm4_moe", "\"num_hidden_layers\": 2, \"num_local_experts\": 8, \"n_routed_experts\": 4",
         "\"num_hidden_layers\": 2, \"n_routed_experts\": 8"},
        {"deepseek_v32", "\"num_hidden_layers\": 4, \"n_routed_experts\": 8, \"num_experts\": 4",
         "\"num_hidden_layers\": 4, \"n_routed_experts\": 4"},
        {"gpt2", "\"hidden_size\": 48, \"n_embd\": 96", "\"n_embd\": 48"},
        {"gpt2", "\"hidden_size\": null, \"n_embd\": 96", "\"n_embd\": 96"},
        {"t5", "\"num_hidden_layers\": 2", "\"num_layers\": 2, \"num_decoder_layers\": 6"},
        {"t5", "\"num_layers\": 2", "\"num_layers\": 2, \"num_decoder_layers\": 2"},
        {"t5", "\"is_gated_act\": true, \"feed_forward_proj\": \"relu\"", "\"feed_forward_proj\": \"gated-gelu\""},
        {"nomic_bert", "\"n_embd\": 96, \"n_layer\": 2", "\"hidden_size\": 96, \"num_hidden_layers\": 2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        built a, b;
        assert_ok(typed(&a, rows[i].type, rows[i].more, NULL), a.error);
        assert_ok(typed(&b, rows[i].type, rows[i].plain, NULL), b.error);
        if (mha_params_totals(a.table, NULL).parameters != mha_params_totals(b.table, NULL).parameters)
            fail_msg("%s: %s", rows[i].type, rows[i].more);
        unbuild(&a);
        unbuild(&b);
    }
}

/* Values of other kinds than whole numbers, where a description expects them; sizes that it does not describe. */
static void numbers_may_be_texts_or_real(void **state)
{
    (void)state;
    static const struct {
        const char *type, *more;
        mha_status status;
        const char *what;
        size_t windowed; /* of the attention layers */
    } rows[] = {
        {"exaone4", "\"num_hidden_layers\": 8", MHA_OK, "", 6},
        {"exaone4", "\"num_hidden_layers\": 8, \"sliding_window_pattern\": 2", MHA_OK, "", 4},
        {"exaone4", "\"num_hidden_layers\": 8, \"sliding_window_pattern\": 2, \"sliding_window\": null", MHA_OK, "", 0},
        {"exaone4", "\"num_hidden_layers\": 2, \"sliding_window_pattern\": \"LG\", \"layer_types\": "
                    "[\"sliding_attention\", \"full_attention\"]", MHA_OK, "", 1},
        {"exaone4", "\"sliding_window_pattern\": \"LG\"", MHA_UNSUPPORTED, "layer_types", 0},
        {"exaone4", "\"sliding_window_pattern\": 0", MHA_UNSUPPORTED, "layer_types", 0},
        {"wav2vec2", "\"mask_time_prob\": \"often\"", MHA_INVALID, "mask_time_prob", 0},
        {"wav2vec2", "\"mask_time_prob\": true", MHA_INVALID, "mask_time_prob", 0},
        {"olmoe", "\"head_dim\": 12", MHA_UNSUPPORTED, "head_dim", 0},
        {"deberta-v2", "\"attention_head_size\": 12", MHA_UNSUPPORTED, "attention_head_size", 0},
        {"gpt_bigcode", "\"add_cross_attention\": true", MHA_UNSUPPORTED, "add_cross_attention", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        built b;
        const mha_status status = typed(&b, rows[i].type, rows[i].more, NULL);
        if (status != rows[i].status ||
            (status && !strstr(b.error.name, rows[i].what) && !strstr(b.error.message, rows[i].what)))
            fail_msg("%s: %s: %s", rows[i].more, b.error.name, b.error.message);
        size_t windowed = 0;
        for (size_t k = 0; b.model && k < mha_model_layer_count(b.model); k++)
            windowed += mha_model_layer_facts(b.model, k)->semantics.visible.has_window_left;
        assert_int_equal(windowed, rows[i].windowed);
        unbuild(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_public_files_are_known),
        cmocka_unit_test(unknown_keys_are_refused_or_named),
        cmocka_unit_test(as_many_keys_are_named_as_fit),
        cmocka_unit_test(descriptions_name_keys_without_effect),
        cmocka_unit_test(layers_are_held_to_the_same),
        cmocka_unit_test(both_names_of_a_key_are_read),
        cmocka_unit_test(numbers_may_be_texts_or_real),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
