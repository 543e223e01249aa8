/* The stages of a call, each once: its name, its shape, what it is. */
#include "attention/call/resolved.h"

#include <string.h>

#include "base/base.h"

#define OF_QUERIES "(B, T_q, h*d_k)"
#define OF_KEYS "(B, T_k, h_kv*d_k)"
#define OF_PAIRS "(B, h, T_q, S')"

/* clang-format off */
static const mha_stage_info rows[] = {
    [MHA_STAGE_Q_LATENT] = {"q_latent", "(B, T_q, q_rank)",
        "x_q W_QA + b_QA: the latent of the queries, before its norm", NULL, 0},
    [MHA_STAGE_KV_LATENT] = {"kv_latent", "(B, T_k, kv_rank + d_rope)",
        "x_k W_KVA + b_KVA: the latent of keys and values, before its norm, and k_r for all heads", "compressed_kv", 1},
    [MHA_STAGE_Q] = {"q", OF_QUERIES, "x_q W_Q + b_Q: what each position asks, before norm and rotation", NULL, 2},
    [MHA_STAGE_K] = {"k", OF_KEYS, "x_k W_K + b_K: what each position offers, before norm and rotation", NULL, 3},
    [MHA_STAGE_V] = {"v", "(B, T_k, h_kv*d_v)", "x_v W_V + b_V: what each position gives", NULL, 4},
    [MHA_STAGE_Q_ROT] = {"q_rot", OF_QUERIES, "q after norm, rotation and the scale by position", NULL, 5},
    [MHA_STAGE_K_ROT] = {"k_rot", OF_KEYS, "k after norm and rotation", NULL, 6},
    [MHA_STAGE_SCORES] = {"scores", OF_PAIRS, "scale * Q K^T, one matrix for each head, of hidden keys too",
        "logits attn_scores attention_scores", 7},
    [MHA_STAGE_CAPPED] = {"capped", OF_PAIRS, "c tanh(scores / c), c the softcap", NULL, 8},
    [MHA_STAGE_MASKED] = {"masked", OF_PAIRS, "scores with what is added to them, hidden keys at -inf", NULL, 9},
    [MHA_STAGE_WEIGHTS] = {"weights", OF_PAIRS, "softmax over the keys: each row sums to 1",
        "weights attn attn_weights attention_weights attn_output_weights probs attentions", 10},
    [MHA_STAGE_HEADS] = {"heads", "(B, T_q, h*d_v)", "weights V, the heads side by side", "heads_output concat", 11},
    [MHA_STAGE_GATED] = {"gated", "(B, T_q, h*d_v)", "heads * sigmoid(x_q W_G + b_G)", NULL, 12},
    [MHA_STAGE_OUTPUT] = {"output", "(B, T_q, d_out)", "heads W_O + b_O; without W_O the heads",
        "y Y out o attn_output attention_output expected result yours", 13},
    [MHA_STAGE_WEIGHTS_MEAN] = {"weights_mean", "(B, T_q, S')", "mean of the weights over the heads", "weights_mean",
        -1},
    [MHA_STAGE_PRESENT_KEY] = {"present_key", "(B, h_kv, S, d_k)", "cached and new keys", "present_key", -1},
    [MHA_STAGE_PRESENT_VALUE] = {"present_value", "(B, h_kv, S, d_v)", "cached and new values", "present_value", -1},
    [MHA_STAGE_LSE] = {"lse", "(B, h, T_q)", "log of the softmax's denominator", "lse logsumexp softmax_lse", -1},
};
/* clang-format on */
_Static_assert(sizeof rows / sizeof *rows == MHA_STAGE_COUNT, "a row for every stage");

const mha_stage_info *mha_stage_at(mha_stage stage)
{
    return (unsigned)stage < MHA_STAGE_COUNT ? &rows[stage] : NULL;
}

bool mha_stage_find(const char *name, mha_stage *stage)
{
    for (int s = 0; name && s < MHA_STAGE_COUNT; s++)
        if (strcmp(rows[s].name, name) == 0) {
            *stage = (mha_stage)s;
            return true;
        }
    return false;
}

int mha__axis_named(const char *shape, const char *symbol, int *count)
{
    const size_t length = strlen(symbol);
    int axis = -1;
    *count = 0;
    for (const char *at = shape + 1; *at && *at != ')'; ++*count) {
        const size_t n = strcspn(at, ",)");
        if (n == length && memcmp(at, symbol, n) == 0)
            axis = *count;
        at += n + strspn(at + n, ", ");
    }
    return axis;
}

int mha__stage_axis(mha_stage stage, const char *symbol)
{
    int count;
    return (unsigned)stage < MHA_STAGE_COUNT ? mha__axis_named(rows[stage].shape, symbol, &count) : -1;
}

bool mha__stage_is_of_scores(mha_stage stage)
{
    return stage == MHA_STAGE_LSE || mha__stage_axis(stage, "S'") >= 0;
}

/* The size that a symbol of `length` letters stands for. */
static size_t size_of(const char *symbol, size_t length, const mha__stage_sizes *s)
{
    const struct {
        const char *name;
        size_t size;
    } all[] = {{"B", s->B},         {"T_q", s->T_q},       {"T_k", s->T_k},        {"S", s->S},  {"S'", s->S_all},
               {"h", s->h},         {"h_kv", s->h_kv},     {"d_k", s->d_k},        {"d_v", s->d_v}, {"d_out", s->d_out},
               {"q_rank", s->q_rank}, {"kv_rank", s->kv_rank}, {"d_rope", s->d_rope}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strlen(all[i].name) == length && strncmp(all[i].name, symbol, length) == 0)
            return all[i].size;
    return 0; /* unreachable: the shapes of the table have these symbols */
}

int mha__stage_extents(mha_stage stage, const mha__stage_sizes *sizes, size_t shape[4])
{
    int rank = 0;
    if ((stage == MHA_STAGE_Q_LATENT && !sizes->q_rank) || (stage == MHA_STAGE_KV_LATENT && !sizes->kv_rank))
        return 0;
    for (const char *at = rows[stage].shape; *at; rank++) { /* "(B, T_k, kv_rank + d_rope)": a sum or a product */
        size_t length = strcspn(++at, " *,)");
        shape[rank] = size_of(at, length, sizes);
        at += length;
        const bool product = *at == '*', sum = strncmp(at, " + ", 3) == 0;
        if (product || sum) {
            at += product ? 1 : 3;
            length = strcspn(at, ",)");
            const size_t other = size_of(at, length, sizes);
            shape[rank] = product ? shape[rank] * other : shape[rank] + other;
            at += length;
        }
        at++; /* behind the comma or the bracket */
    }
    return rank;
}
