/* The features that a kernel needs for a test case, from the words of its settings and its sizes. */
#include <stdint.h>
#include <string.h>

#include "lab/lab.h"
#include "verify/conform/conform.h"

/* A word, and the words of a test case's settings that need it, with blanks between; or what its sizes say. */
typedef struct need {
    mha_conform_word word;
    const char *settings;
    bool (*of_sizes)(const mha_conform_row *row);
} need;

static bool is_cross(const mha_conform_row *row)
{
    return row->T_q != row->T_k;
}

static bool is_grouped(const mha_conform_row *row)
{
    return row->h != row->h_kv;
}

static bool has_value_width(const mha_conform_row *row)
{
    return row->d_k != row->d_v;
}

static const need needs[] = {
    {{"causal", "a query sees keys up to its own"}, "causal", NULL},
    {{"cross", "numbers of queries and keys that differ"}, "", is_cross},
    {{"gqa", "fewer key/value heads than query heads"}, "", is_grouped},
    {{"value_width", "values of another width than keys"}, "", has_value_width},
    {{"scale", "another scale than 1/sqrt(d_k)"}, "scale", NULL},
    {{"softcap", "c tanh(score / c)"}, "softcap", NULL},
    {{"window", "a sliding window"}, "window_left window_right", NULL},
    {{"window_keep", "first keys that a window does not hide"}, "window_keep", NULL},
    {{"prefix", "first keys that causal does not hide"}, "prefix", NULL},
    {{"chunk", "attention inside chunks"}, "chunk", NULL},
    {{"offset", "another alignment of queries and keys than the kernel's own"}, "offset bottom_right", NULL},
    {{"part", "keys that are a part of a longer sequence"}, "key_offset", NULL},
    {{"mask", "numbers that are added to scores"}, "mask", NULL},
    {{"bool_mask", "a boolean mask"}, "keeps", NULL},
    {{"padding", "a boolean mask of keys for each batch row"}, "padding padding_fill", NULL},
    {{"lengths", "a number of keys for each batch row"}, "lengths", NULL},
    {{"varlen", "sequences packed into one row"}, "sequences", NULL},
    {{"segments", "documents packed into a row"}, "segments", NULL},
    {{"query_padding", "queries that see nothing"}, "query_padding", NULL},
    {{"lists", "a list of keys for each query"}, "lists", NULL},
    {{"blocks", "a mask of blocks"}, "blocks", NULL},
    {{"alibi", "a slope for each head"}, "alibi", NULL},
    {{"bias", "a bias by position from a table"}, "bias", NULL},
    {{"relative", "products with rows of a table by position"}, "relative relative_k_scale", NULL},
    {{"sinks", "one more logit for each head in the denominator"}, "sinks", NULL},
    {{"plus_one", "one more exp(0) in the denominator"}, "softmax_plus_one", NULL},
    {{"zero_row", "one more key and value of zeros"}, "zero_row", NULL},
    {{"extra_row", "one more key and value of all queries"}, "extra_row", NULL},
    {{"sigmoid", "a sigmoid in place of the softmax"}, "normaliser sigmoid_bias", NULL},
    {{"rope", "a rotation of q and k"}, "rope rope_dim rope_base rope_last rope_attention_factor frequencies", NULL},
    {{"qk_norm", "norms of q and k"}, "norms norm_eps norm_kind norm_plus_one norm_after_rope", NULL},
    {{"query_scale", "queries scaled by their position"},
     "query_scale_growth query_scale_every query_scale_first log_n_scale", NULL},
    {{"clip", "limits of q, k and v"}, "clip_qkv", NULL},
    {{"cache", "keys and values of earlier calls, in front of the new ones"}, "past", NULL},
    {{"pages", "keys and values in pages of a pool (not in files)"}, "pages", NULL},
    {{"lse", "log-sum-exp of the scores beside the output"}, "lse", NULL},
    {{"backward", "the gradients of q, k and v"}, "backward", NULL},
    {{"strides", "inputs with gaps, transposed, or that repeat memory (not in files)"}, "strides", NULL},
};

enum { NEEDS = sizeof needs / sizeof *needs };
_Static_assert(NEEDS <= 64, "a set of needs is 64 bits");

const mha_conform_word *mha_conform_need_at(size_t index)
{
    return index < NEEDS ? &needs[index].word : NULL;
}

/* Whether one of the words of a test case's settings is among these. */
static bool is_set(const char *settings, const char *words)
{
    char name[48], value[48];
    while (mha__conform_token(&settings, name, value))
        if (mha__text_among(words, name))
            return true;
    return false;
}

void mha__conform_needs(mha_conform_row *row)
{
    for (size_t i = 0; i < NEEDS; i++) {
        const size_t used = strlen(row->has);
        if (is_set(row->settings, needs[i].settings) || (needs[i].of_sizes && needs[i].of_sizes(row)))
            mha__text_print(row->has + used, sizeof row->has - used, "%s%s", used ? " " : "", needs[i].word.name);
    }
}
