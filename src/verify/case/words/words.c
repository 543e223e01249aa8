/* The words of the case format, each once: reading, messages, `mha help case` and CASES.md all use this table. Words of
 * what a call means are the rows of mha/setting.h, those of weights and stages the rows of mha/layer.h,
 * mha/attention.h and mha/backward.h; this table has the other words of a case. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "verify/case/words/words.h"

#define INPUTS "inputs"
#define WEIGHTS "weights"
#define RESULTS "results"
#define GRADIENTS "gradients"
#define CACHE "cache and pages"
#define AGAIN "the same in another form"
#define SHAPE "shape"
#define MEANING "beside the settings"
#define COMPARISON "how it is checked"
#define NOTES "notes"
#define OWN "one's own"

/* clang-format off */
#define ROW(group, name, also, foreign, form, missing, meaning, ...) \
    {{group, name, also, form, missing, meaning}, foreign, __VA_ARGS__}
#define TENSOR(group, code, name, content, low, high, foreign, form, missing, meaning) \
    ROW(group, name, "", foreign, form, missing, meaning, WORD_TENSOR, code, content, low, high)
#define RESULT(slot, name, also, foreign, form, meaning) \
    ROW(RESULTS, name, also, foreign, form, "", meaning, WORD_RESULT, slot, CASE_REAL, 1, 4)
#define FAMILY(group, name, also, form, meaning) WORD(group, name, also, form, "", meaning, WORD_OTHER_TENSOR)
#define KEY(group, name, foreign, form, missing, meaning) \
    ROW(group, name, "", foreign, form, missing, meaning, WORD_KEY, 0, CASE_REAL, 0, 0)
#define WORD(group, name, also, form, missing, meaning, kind) \
    ROW(group, name, also, "", form, missing, meaning, kind, 0, CASE_REAL, 0, 0)
/* clang-format on */

#define BOOLEAN "0, 1"
#define NUMBER "number"
#define COUNT "whole number"
#define TEXT "text"
#define TOLD "from the tensors' shapes"

static const mha__case_word words[] = {
    TENSOR(INPUTS, CASE_QUERY, "query", CASE_REAL, 2, 4, "q Q x X input inputs hidden_states x_q",
           "(B, T_q, d_q), by layout", "required", "input of the queries"),
    TENSOR(INPUTS, CASE_KEY, "key", CASE_REAL, 2, 4, "k K keys x_k x_kv memory context", "(B, T_k, d_kin), by layout",
           "query", "input of the keys"),
    TENSOR(INPUTS, CASE_VALUE, "value", CASE_REAL, 2, 4, "v V values x_v", "(B, T_k, d_vin), by layout", "key",
           "input of the values"),

    {{WEIGHTS, "", "", "", "", ""}, "", WORD_WEIGHTS, 0, CASE_REAL, 1, 2},

    {{RESULTS, "", "", "", "", ""}, "", WORD_STAGES, 0, CASE_REAL, 1, 4},
    RESULT(CASE_QK, "expected.qk", "", "qk qk_matmul_output", "(B, h, T_q, S)",
           "scores, capped, masked or weights without extra rows, as qk_mode says"),
    RESULT(CASE_PREFILL_OUTPUT, "expected.prefill_output", "", "", "(B, P+T_q, d_out)",
           "causal result of prefill.query"),
    FAMILY(RESULTS, "expected64.*", "", "as expected.*", "results in float64, with which the exact path is compared"),
    FAMILY(RESULTS, "expected_fast.*", "", "as expected.*",
           "results of a source's fused kernels; known and not checked"),

    TENSOR(GRADIENTS, CASE_D_OUTPUT, "d_output", CASE_REAL, 2, 4, "grad_output dO dout do dy d_out output_grad",
           "as output", "needed with the gradients below", "gradient of the output, from which they were computed"),
    TENSOR(GRADIENTS, CASE_D_LSE, "d_lse", CASE_REAL, 2, 3, "dlse", "(B, h, T_q)", "0", "gradient of the lse"),
    {{GRADIENTS, "", "", "", "", ""}, "", WORD_BACKWARDS, 0, CASE_REAL, 1, 4},
    {{GRADIENTS, "", "", "", "", ""}, "", WORD_GRADIENTS, 0, CASE_REAL, 1, 4},

    TENSOR(CACHE, CASE_PAST_KEY, "past_key", CASE_REAL, 4, 4, "past_k k_cache cache_k key_cache past_keys",
           "(B, h_kv, P, d_k)", "", "cached keys, projected and rotated, in front of the new ones; with past_value"),
    TENSOR(CACHE, CASE_PAST_VALUE, "past_value", CASE_REAL, 4, 4, "past_v v_cache cache_v value_cache past_values",
           "(B, h_kv, P, d_v)", "", "cached values; with past_key"),
    TENSOR(CACHE, CASE_PAGE_KEYS, "page_keys", CASE_REAL, 4, 4, "kv_pages k_pages paged_k",
           "(pages, page_size, h_kv, d_k)", "",
           "all keys, in pages, in place of key and past_key; with page_values, page_table and page_lengths"),
    TENSOR(CACHE, CASE_PAGE_VALUES, "page_values", CASE_REAL, 4, 4, "v_pages paged_v", "(pages, page_size, h_kv, d_v)",
           "", "all values, in the same pages"),
    TENSOR(CACHE, CASE_PAGE_TABLE, "page_table", CASE_COUNT, 2, 2, "block_table block_tables", "(B, columns)", "",
           "key j of batch row b is row j % page_size of page page_table[b][j / page_size]"),
    TENSOR(CACHE, CASE_PAGE_LENGTHS, "page_lengths", CASE_COUNT, 1, 1, "cache_seqlens seq_lens context_lens", "(B,)",
           "", "keys of each batch row; without position_offset its queries are the last tokens"),

    TENSOR(AGAIN, CASE_IN_PROJ, "torch.in_proj_weight", CASE_REAL, 2, 2, "in_proj_weight", "(3*h*d_k, d_q)", "",
           "of nn.MultiheadAttention: W_q, W_k, W_v transposed; read where they are missing"),
    TENSOR(AGAIN, CASE_IN_BIAS, "torch.in_proj_bias", CASE_REAL, 1, 1, "in_proj_bias", "(3*h*d_k,)", "",
           "b_q, b_k, b_v; read where they are missing"),
    TENSOR(AGAIN, CASE_OUT_PROJ, "torch.out_proj.weight", CASE_REAL, 2, 2, "out_proj.weight out_proj out_proj_weight",
           "(d_out, h*d_v)", "", "W_o transposed; read where it is missing"),
    TENSOR(AGAIN, CASE_OUT_BIAS, "torch.out_proj.bias", CASE_REAL, 1, 1, "out_proj.bias out_proj_bias", "(d_out,)", "",
           "b_o; read where it is missing"),
    TENSOR(AGAIN, CASE_PACKED, "packed.qkv", CASE_REAL, 3, 3, "qkv", "(B, T, (h+2*h_kv)*d)", "",
           "query, key and value of kind sdpa side by side: computed again from there"),
    TENSOR(AGAIN, CASE_PREFILL, "prefill.query", CASE_REAL, 3, 3, "", "(B, P+T_q, d_q)", "",
           "all rows of a decoding step: computed at once, compared with expected.prefill_output"),
    FAMILY(AGAIN, "permuted.*", "", "as the weight",
           "weights for the other pairing of the rotation, with the same output"),
    FAMILY(AGAIN, "repeated.*", "", "as the weight",
           "weights with one key/value head per query head, with the same output"),

    KEY(SHAPE, "kind", "", "mha, sdpa, rope", "mha with W_q, W_k, W_v, W_o or torch.*, else sdpa",
        "mha: inputs are projected; sdpa: they are q, k, v of all heads; rope: query is only rotated"),
    KEY(SHAPE, "layout", "", "BTE, TBE, TE, BHTD, BTHD", "BTE",
        "order of inputs and output: batch, time, heads, features (E of all heads side by side, D of one)"),
    KEY(SHAPE, "num_heads", "heads n_heads n_head nhead num_attention_heads h H", COUNT,
        "required unless BHTD, BTHD",
        "h, query heads; head i is columns i*d_k ... (i+1)*d_k - 1 of a projected row"),
    KEY(SHAPE, "kv_heads", "n_kv_heads num_kv_heads num_key_value_heads h_kv", COUNT, TOLD,
        "h_kv, key/value heads; query head i reads head i / (h/h_kv), rounded down"),
    KEY(SHAPE, "d_k", "head_dim head_size d_head dk", COUNT, TOLD, "width of one head of q and k"),
    KEY(SHAPE, "d_v", "dv v_head_dim", COUNT, TOLD, "width of one head of v"),
    KEY(SHAPE, "d_model", "embed_dim hidden_size dim", COUNT, TOLD, "width of the output, d_out or h*d_v"),
    KEY(SHAPE, "batch", "batch_size B", COUNT, TOLD, "B"),
    KEY(SHAPE, "q_len", "T_q seq_len", COUNT, TOLD, "T_q"),
    KEY(SHAPE, "kv_len", "T_k", COUNT, TOLD, "T_k, new keys"),
    KEY(SHAPE, "past_len", "", COUNT, TOLD, "P, cached keys"),

    WORD("settings", "", "", "", "", "", WORD_SETTINGS),

    KEY(MEANING, "rope_scaling", "", "none, linear, dynamic, yarn, longrope, llama3", "none",
        "how the frequencies are changed for long contexts, by the definitions in mha/rope.h"),
    KEY(MEANING, "rope_factor", "rope_scaling_factor", NUMBER, "1", "factor of rope_scaling, 1 or more"),
    KEY(MEANING, "rope_original_length", "original_max_position_embeddings max_position_embeddings", COUNT, "0",
        "positions of the training; rope_scaling other than linear needs it"),
    KEY(MEANING, "rope_length", "", COUNT, "past_len + q_len or kv_len, the greater",
        "positions in use, for rope_scaling dynamic"),
    TENSOR(MEANING, CASE_FACTORS, "rope_factors", CASE_DOUBLE, 1, 1, "long_factor short_factor", "(rope_dim/2,)", "",
           "with rope_scaling longrope: what each frequency is divided by, the long or the short factors"),
    KEY(MEANING, "rope_axes", "mrope_interleaved", "blocks, interleaved, repeated, dealt", "blocks",
        "which axis of rope_positions a pair turns by, and how fast, as mha/rope.h defines it"),
    TENSOR(MEANING, CASE_ROPE_SECTIONS, "rope_sections", CASE_COUNT, 1, 1, "mrope_section sections", "(axes,)", "",
           "pairs of features that turn by each axis of rope_positions, rope_dim/2 together"),
    TENSOR(MEANING, CASE_ROPE_POSITIONS, "rope_positions", CASE_COUNT, 2, 3, "mrope_position_ids axes_positions",
           "(axes, B, T) or (axes, T)", "", "positions on several axes; rope_cos and rope_sin are made of them"),
    TENSOR(MEANING, CASE_ROPE_AXES_FREQUENCIES, "rope_axes_frequencies", CASE_REAL, 1, 1, "", "(rope_dim/2,)",
           "rope_frequencies", "frequencies of rope_positions"),
    KEY(MEANING, "rope_beta_fast", "beta_fast", NUMBER, "32", "of rope_scaling yarn"),
    KEY(MEANING, "rope_beta_slow", "beta_slow", NUMBER, "1", "of rope_scaling yarn"),
    KEY(MEANING, "rope_truncate", "truncate", BOOLEAN, "1", "yarn's ramp begins and ends at whole pairs"),
    KEY(MEANING, "rope_low_freq_factor", "low_freq_factor", NUMBER, "1", "of rope_scaling llama3"),
    KEY(MEANING, "rope_high_freq_factor", "high_freq_factor", NUMBER, "4", "of rope_scaling llama3"),
    KEY(MEANING, "absorbed", "", BOOLEAN, "0",
        "latent attention with W_kvb beside the queries: keys are [norm(c), k_r] for all heads, values norm(c)"),
    KEY(MEANING, "alibi", "", BOOLEAN, "1 with alibi_slopes", "whether alibi_slopes is used"),
    KEY(MEANING, "add_bias_kv", "", BOOLEAN, "1 with bias_k", "whether bias_k and bias_v are used"),
    KEY(MEANING, "qk_mode", "", "0, 1, 2, 3", "needed with expected.qk",
        "what expected.qk is: scores, capped, masked, weights"),

    KEY(COMPARISON, "rtol", "", NUMBER, "0", "of expected.*: abs(yours - exact) <= atol + rtol * abs(exact)"),
    KEY(COMPARISON, "atol", "tol tolerance", NUMBER, "what rounding may cost", "of expected.*, as above"),
    KEY(COMPARISON, "rtol64", "", NUMBER, "0", "of expected64.*"),
    KEY(COMPARISON, "atol64", "", NUMBER, "what rounding may cost", "of expected64.*"),
    WORD(COMPARISON, "atol.*", "", NUMBER, "atol", "atol of one recorded tensor: atol.expected.weights",
         WORD_OTHER_KEY),
    KEY(COMPARISON, "precision", "", "F32, F16, BF16, F8_E4M3, F8_E5M2, I8, TF32", "F32",
        "type in which a fused kernel computed expected.*: its roundings are allowed for where no tolerance is stated"),
    KEY(COMPARISON, "cache_dtype", "kv_cache_dtype", "F64, F32, F16, BF16, I8", "F64",
        "type to which a cache rounded all rows before they were attended to (F64: none): allowed for as precision is"),
    KEY(COMPARISON, "source_dtype", "dtype", "F16, BF16, F32, F64, ...", "type of the tensor",
        "type in which expected.* was computed, when it was widened since; its rounding is allowed for"),
    KEY(COMPARISON, "tags", "", TEXT, "",
        "words separated by commas; overflow: a float32 result may also be that of expected64.*"),

    KEY(NOTES, "format_version", "", "1", "1", "of this format"),
    KEY(NOTES, "name", "", TEXT, "the file's name", "how reports call the case"),
    KEY(NOTES, "note", "comment description", TEXT, "",
        "anything; rope=half_split or rope=interleaved is the pairing of permuted.*"),
    TENSOR(NOTES, CASE_TOKENS, "tokens", CASE_COUNT, 1, 2, "token_ids input_ids ids", "(B, S) or (S,)", "",
           "ids of the tokens of the keys, which a vocabulary names in pictures (mha show --tokens FILE.gguf)"),
    KEY(NOTES, "token_names", "token_texts", TEXT, "",
        "a JSON array of texts: the names in pictures of the tokens of the keys"),
    KEY(NOTES, "source", "author", TEXT, "", "who computed the results"),
    KEY(NOTES, "source_version", "", TEXT, "", "which version"),
    KEY(NOTES, "op", "", TEXT, "", "the source's operator"),
    KEY(NOTES, "opset", "", TEXT, "", "its operator set"),
    KEY(NOTES, "attributes", "", TEXT, "", "its attributes"),
    KEY(NOTES, "softmax_precision", "", TEXT, "", "type of its softmax"),
    KEY(NOTES, "need_weights", "", TEXT, "", "argument of nn.MultiheadAttention"),
    KEY(NOTES, "average_attn_weights", "", TEXT, "", "argument of nn.MultiheadAttention"),
    KEY(NOTES, "ort_local_window_size", "", TEXT, "", "the window as ONNX Runtime counts it"),
    KEY(NOTES, "scale_is_default", "", TEXT, "", "whether scale is 1/sqrt(d_k)"),
    KEY(NOTES, "source_rtol", "", TEXT, "", "what the source's own tests allow"),
    KEY(NOTES, "source_atol", "", TEXT, "", "what the source's own tests allow"),
    KEY(NOTES, "tolerance_origin", "", TEXT, "", "where these come from"),
    KEY(NOTES, "tolerance_widened", "", TEXT, "", "whether atol and rtol were widened for the source's own rounding"),
    KEY(NOTES, "observed_max_abs_err", "", TEXT, "", "largest distance of expected.output from expected64.output"),
    KEY(NOTES, "max_abs_logit", "", TEXT, "", "largest finite score"),
    KEY(NOTES, "fast_path_max_abs_diff", "", TEXT, "", "largest distance of expected_fast.output from expected.output"),
    KEY(NOTES, "fast_path_nan", "", TEXT, "", "whether expected_fast.output holds NaN"),
    KEY(NOTES, "decode_vs_prefill_max_abs_diff", "", TEXT, "", "distance of a decoding step from the whole sequence"),
    KEY(NOTES, "expected64_origin", "", TEXT, "", "who computed expected64.*"),
    KEY(NOTES, "format", "", TEXT, "", "what many writers of safetensors add: pt"),

    WORD(OWN, "my.*", "my_*", "any tensor", "", "your own, never read: my.debug or my_debug", WORD_OTHER_TENSOR),
    WORD(OWN, "my.*", "my_*", "any key", "", "your own, never read: my.seed or my_seed", WORD_OTHER_KEY),
};

enum { WORDS = sizeof words / sizeof *words };

/* ---------------------------------------------------------------- weights and stages as words */

/* The words of the table, those of weights and stages at their common indices. */
static mha__case_word all[WORDS - 4 + MHA_WEIGHT_COUNT + MHA_STAGE_COUNT + MHA_GRADIENT_COUNT +
                          MHA_BACKWARD_STAGE_COUNT];
static char expected[CASE_RESULT_COUNT][40], of_gradients[MHA_GRADIENT_COUNT][40];

static void write_weight(mha__case_word *word, mha_weight weight)
{
    const mha_weight_info *is = mha_weight_at(weight);
    word->kind = WORD_WEIGHT;
    word->code = (int)weight;
    word->foreign = is->foreign ? is->foreign : "";
    word->shown.name = is->word ? is->word : is->name;
    word->shown.also = is->word ? is->name : "";
    word->shown.missing = is->kind == MHA_WEIGHT_MATRIX && weight <= MHA_W_O ? "required by kind mha" : "";
    word->shown.meaning = is->meaning;
    mha__text_print(word->shown.form, sizeof word->shown.form, "%s", is->symbol);
}

/* The word of a result, by its slot. */
static void write_result(mha__case_word *word, int slot, const char *name, const char *foreign, const char *meaning,
                         const char *form)
{
    mha__text_print(expected[slot], sizeof expected[slot], "expected.%s", name);
    word->kind = WORD_RESULT;
    word->code = slot;
    word->foreign = foreign ? foreign : "";
    word->shown.name = expected[slot];
    word->shown.meaning = meaning;
    mha__text_print(word->shown.form, sizeof word->shown.form, "%s", form);
}

/* The subject of a gradient: the word of a weight or of an input, "mask". */
static const char *subject(mha_gradient gradient)
{
    const mha_weight_info *of = gradient < MHA_D_WEIGHTS ? NULL : mha_weight_at((mha_weight)(gradient - MHA_D_WEIGHTS));
    return of && of->word ? of->word : mha_gradient_name(gradient);
}

static void write_gradient(mha__case_word *word, mha_gradient gradient)
{
    static const char *const foreign[] = {[MHA_D_QUERY] = "dq dQ grad_q grad_query d_q",
                                          [MHA_D_KEY] = "dk dK grad_k grad_key",
                                          [MHA_D_VALUE] = "dv dV grad_v grad_value"};
    const char *of = subject(gradient);
    char name[40], form[40];
    mha__text_print(name, sizeof name, "d_%s", of);
    mha__text_print(form, sizeof form, "as %s", of);
    mha__text_print(of_gradients[gradient], sizeof of_gradients[gradient], "gradient of %s", of);
    write_result(word, CASE_GRADIENTS + (int)gradient, name, gradient <= MHA_D_VALUE ? foreign[gradient] : NULL,
                 of_gradients[gradient], form);
}

static void write_all(void)
{
    size_t n = 0;
    for (size_t i = 0; i < WORDS; i++) {
        const case_word_kind kind = words[i].kind;
        const int count = kind == WORD_WEIGHTS     ? MHA_WEIGHT_COUNT
                          : kind == WORD_STAGES    ? MHA_STAGE_COUNT
                          : kind == WORD_GRADIENTS ? MHA_GRADIENT_COUNT
                          : kind == WORD_BACKWARDS ? MHA_BACKWARD_STAGE_COUNT
                                                   : 1;
        for (int k = 0; k < count; k++) {
            all[n] = words[i];
            if (kind == WORD_WEIGHTS)
                write_weight(&all[n], (mha_weight)k);
            else if (kind == WORD_STAGES) {
                const mha_stage_info *is = mha_stage_at((mha_stage)k);
                write_result(&all[n], k, is->name, is->foreign, is->meaning, is->shape);
                all[n].shown.also = k == MHA_STAGE_OUTPUT ? is->name : "";
            } else if (kind == WORD_GRADIENTS)
                write_gradient(&all[n], (mha_gradient)k);
            else if (kind == WORD_BACKWARDS) {
                const mha_backward_stage_info *is = mha_backward_stage_at((mha_backward_stage)k);
                write_result(&all[n], CASE_BACKWARDS + k, is->name, is->foreign, is->meaning,
                             mha_stage_at(is->like)->shape);
            }
            n++;
        }
    }
}

const mha__case_word *mha__case_word_at(size_t index)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, write_all);
    return index < sizeof all / sizeof *all ? &all[index] : NULL;
}

/* ---------------------------------------------------------------- settings as words */

bool mha__setting_is_array(const mha_setting *setting)
{
    return setting->kind >= MHA_SETTING_VIEW;
}

static void write_form(const mha_setting *s, char *form, size_t size)
{
    const bool bounded = s->kind == MHA_SETTING_WHOLE && s->least > -(INT64_MAX / 4);
    size_t used = 0;
    if (mha__setting_is_array(s))
        mha__text_print(form, size, "%s", s->shape);
    else if (s->kind == MHA_SETTING_CHOICE) /* "none|half_split=half" is listed as "none, half_split=half" */
        for (const char *at = s->choices; *at && used < size; at += strcspn(at, "|") + (at[strcspn(at, "|")] == '|'))
            used += (size_t)snprintf(form + used, size - used, "%s%.*s", used ? ", " : "", (int)strcspn(at, "|"), at);
    else if (s->kind == MHA_SETTING_REAL)
        mha__text_print(form, size, "%s", s->lowest > 0 ? "number above 0" : NUMBER);
    else if (s->kind == MHA_SETTING_SWITCH)
        mha__text_print(form, size, "%s", BOOLEAN);
    else if (bounded)
        mha__text_print(form, size, COUNT " from %lld", (long long)s->least);
    else
        mha__text_print(form, size, COUNT);
}

static mha_case_word word_of(const mha_setting *s)
{
    static const char *const groups[MHA_SETTINGS_GROUP_COUNT] = {
        [MHA_SETTINGS_PLACE] = "settings: where rows stand",
        [MHA_SETTINGS_QKV] = "settings: what is done to q, k and v",
        [MHA_SETTINGS_VISIBLE] = "settings: which keys a query sees",
        [MHA_SETTINGS_ADDED] = "settings: what is added to scores",
        [MHA_SETTINGS_SOFTMAX] = "settings: how scores become weights",
    };
    mha_case_word word = {.group = groups[s->group], .name = s->name, .also = s->aliases ? s->aliases : "",
                          .missing = s->unset ? s->unset : "", .meaning = s->meaning};
    write_form(s, word.form, sizeof word.form);
    return word;
}

bool mha_case_word_at(size_t index, mha_case_word *word)
{
    size_t settings = 0;
    while (mha_setting_at(settings))
        settings++;
    const mha__case_word *one;
    for (size_t i = 0; (one = mha__case_word_at(i)) != NULL; i++) {
        const size_t count = one->kind == WORD_SETTINGS ? settings : 1;
        if (index < count) {
            *word = count > 1 ? word_of(mha_setting_at(index)) : one->shown;
            return true;
        }
        index -= count;
    }
    return false;
}
