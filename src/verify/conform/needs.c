/* What a kernel needs to answer a question: found in the question itself. */
#include <string.h>

#include "mha/setting.h"
#include "verify/conform/conform.h"

/* A word, and the settings that need it; what no setting says is found in the sizes and the weights. */
typedef struct need {
    mha_conform_word word;
    const char *settings; /* with blanks between */
} need;

static const need needs[] = {
    {{"causal", "a query sees keys up to its own"}, "causal"},
    {{"cross", "numbers of queries and keys that differ"}, ""},
    {{"gqa", "fewer key/value heads than query heads"}, ""},
    {{"value_width", "values of another width than keys"}, ""},
    {{"scale", "another scale than 1/sqrt(d_k)"}, "scale"},
    {{"softcap", "c tanh(score / c)"}, "softcap"},
    {{"window", "a sliding window"}, "window_left window_right"},
    {{"window_keep", "first keys that a window does not hide"}, "window_keep"},
    {{"prefix", "first keys that causal does not hide"}, "prefix"},
    {{"chunk", "attention inside chunks"}, "chunk"},
    {{"offset", "another alignment of queries and keys than the kernel's own"}, "offset"},
    {{"part", "keys that are a part of a longer sequence"}, "key_offset"},
    {{"mask", "numbers that are added to scores"}, ""},
    {{"bool_mask", "a boolean mask"}, ""},
    {{"padding", "a boolean mask of keys for each batch row"}, "key_padding key_padding_kind"},
    {{"lengths", "a number of keys for each batch row"}, "kv_lengths"},
    {{"varlen", "sequences packed into one row"}, "n_sequences cu_seqlens_q cu_seqlens_k"},
    {{"segments", "documents packed into a row"}, "q_segments k_segments"},
    {{"query_padding", "queries that see nothing"}, "query_padding query_padding_kind"},
    {{"lists", "a list of keys for each query"}, "key_lists"},
    {{"blocks", "a mask of blocks"}, "blocks blocks_kind block_queries block_keys"},
    {{"alibi", "a slope for each head"}, "alibi_slopes"},
    {{"bias", "a bias by position from a table"}, "bias_rule bias_max_distance bias_height bias_width"},
    {{"relative", "products with rows of a table by position"},
     "relative_rule relative_max_distance relative_height relative_width relative_k_scale"},
    {{"sinks", "one more logit for each head in the denominator"}, ""},
    {{"plus_one", "one more exp(0) in the denominator"}, "softmax_plus_one"},
    {{"zero_row", "one more key and value of zeros"}, "zero_row"},
    {{"extra_row", "one more key and value of all queries"}, ""},
    {{"sigmoid", "a sigmoid in place of the softmax"}, "normaliser sigmoid_bias"},
    {{"rope", "a rotation of q and k"},
     "rope rope_dim rope_base rope_last rope_attention_factor rope_frequencies"},
    {{"qk_norm", "norms of q and k"},
     "norm_eps norm_kind norm_plus_one norm_after_rope norm_unweighted"},
    {{"query_scale", "queries scaled by their position"},
     "query_scale_growth query_scale_every query_scale_first log_n_scale"},
    {{"clip", "limits of q, k and v"}, "clip_qkv"},
    {{"cache", "keys and values of earlier calls, in front of the new ones"}, ""},
    {{"pages", "keys and values in pages of a pool (not in files)"}, ""},
    {{"lse", "log-sum-exp of the scores beside the output"}, ""},
    {{"strides", "inputs with gaps, transposed, or that repeat memory (not in files)"}, ""},
};

const mha_conform_word *mha_conform_need_at(size_t index)
{
    return index < sizeof needs / sizeof *needs ? &needs[index].word : NULL;
}

static void add(mha_conform_row *row, const char *word)
{
    const size_t used = strlen(row->has);
    if (!mha__text_among(row->has, word))
        mha__text_print(row->has + used, sizeof row->has - used, "%s%s", used ? " " : "", word);
}

static const char *of_setting(const char *name)
{
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (mha__text_among(needs[i].settings, name))
            return needs[i].word.name;
    return NULL;
}

void mha__conform_needs(mha_question *q)
{
    mha_conform_row *r = &q->row;
    const mha_semantics *s = &q->call.semantics;
    const mha_setting *setting;
    for (size_t i = 0; (setting = mha_setting_at(i)) != NULL; i++) {
        const char *word = mha_setting_given(setting, s) ? of_setting(setting->name) : NULL;
        if (word)
            add(r, word);
    }
    const struct {
        const char *word;
        bool needed;
    } others[] = {
        {"cross", r->T_q != r->T_k},
        {"gqa", r->h != r->h_kv},
        {"value_width", r->d_k != r->d_v},
        {"mask", s->visible.mask.kind == MHA_MASK_ADDITIVE},
        {"bool_mask", s->visible.mask.kind > MHA_MASK_ADDITIVE},
        {"sinks", q->weights[MHA_SINKS].data},
        {"extra_row", q->weights[MHA_BIAS_K].data},
        {"qk_norm", q->weights[MHA_Q_NORM].data},
        {"cache", r->P > 0},
        {"pages", q->page_size > 0},
        {"lse", q->lse},
        {"strides", q->strided},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].needed)
            add(r, others[i].word);
}
