/* The weights of a layer, each once: what it is, its shape, the heads that it is divided among. */
#include "attention/layer/layer.h"
#include "mha/layer.h"

/* An extent of a weight: the offset of a size in mha_config, or one that follows from several. */
#define OF(size) offsetof(mha_config, size)
typedef enum extent {
    NOTHING, /* no weight has d_model */
    D_K = OF(d_k),
    D_V = OF(d_v),
    D_Q = OF(d_q),
    D_KIN = OF(d_kin),
    D_OUT = OF(d_out),
    Q_RANK = OF(q_rank),
    KV_RANK = OF(kv_rank),
    BIAS_ROWS = OF(bias_rows),
    RELATIVE_K_ROWS = OF(relative_k_rows),
    RELATIVE_COLUMN_ROWS = OF(relative_column_rows),
    RELATIVE_Q_ROWS = OF(relative_q_rows),
    ONE = sizeof(mha_config),
    D_KV,     /* d_n + d_v: a head in W_KVB */
    D_Q_READ, /* what W_Q reads: d_q or q_rank */
    D_K_READ, /* what W_K and W_V read: nothing with latents */
    D_V_READ,
    KV_LATENT, /* what W_KVA makes */
    GATES      /* gates of one head */
} extent;
_Static_assert(OF(d_model) == NOTHING, "an offset of 0 is no extent");

typedef enum owners { SHARED, EACH, EACH_OF_KEYS } owners; /* by all heads; by h or h_kv heads, side by side */

/* A weight has heads * width elements along one axis, and `other` along the other, of which a vector has none. Of a
 * norm, whose shape follows from the configuration, `of_heads` says whose it is. It is absent where an extent is 0 or a
 * switch of the configuration is off. */
typedef struct row {
    owners of_heads;
    extent width, other;
    size_t given; /* offset of the switch in mha_config; 0: it has none */
    mha_weight_info is;
} row;

#define SWITCH(name) OF(name)
#define MATRIX MHA_WEIGHT_MATRIX
#define BIAS MHA_WEIGHT_BIAS
#define ROW MHA_WEIGHT_ROW
#define SINK MHA_WEIGHT_SINK
#define NORM MHA_WEIGHT_NORM
#define NORM_BIAS MHA_WEIGHT_NORM_BIAS
#define TABLE MHA_WEIGHT_TABLE
#define Q MHA_WEIGHT_QUERIES
#define K MHA_WEIGHT_KEYS
#define H MHA_WEIGHT_HEADS
#define S MHA_WEIGHT_SCORES

/* clang-format off */
static const row rows[] = {
    [MHA_W_Q] = {EACH, D_K, D_Q_READ, 0, {"W_Q", "(d_q, h*d_k)", MATRIX, Q, MHA_W_Q, false, "W_q",
        "Wq WQ w_q wq q_proj.weight q_proj q_proj_weight q_b_proj.weight",
        "projection q = query W_q + b_q: input dimension first, so nn.Linear's weight is transposed"}},
    [MHA_B_Q] = {EACH, D_K, NOTHING, SWITCH(bias_q), {"b_Q", "(h*d_k)", BIAS, Q, MHA_W_Q, false, "b_q",
        "bq q_proj.bias", "bias of q; without W_q, mha adds it to query"}},
    [MHA_W_K] = {EACH_OF_KEYS, D_K, D_K_READ, 0, {"W_K", "(d_kin, h_kv*d_k)", MATRIX, K, MHA_W_K, false, "W_k",
        "Wk WK w_k wk k_proj.weight k_proj k_proj_weight", "projection of key"}},
    [MHA_B_K] = {EACH_OF_KEYS, D_K, NOTHING, SWITCH(bias_k), {"b_K", "(h_kv*d_k)", BIAS, K, MHA_W_K, false, "b_k",
        "bk k_proj.bias", "bias of k; without W_k, mha adds it to key"}},
    [MHA_W_V] = {EACH_OF_KEYS, D_V, D_V_READ, 0, {"W_V", "(d_vin, h_kv*d_v)", MATRIX, K, MHA_W_V, false, "W_v",
        "Wv WV w_v wv v_proj.weight v_proj v_proj_weight", "projection of value"}},
    [MHA_B_V] = {EACH_OF_KEYS, D_V, NOTHING, SWITCH(bias_v), {"b_V", "(h_kv*d_v)", BIAS, K, MHA_W_V, false, "b_v",
        "bv v_proj.bias", "bias of v; without W_v, mha adds it to value"}},
    [MHA_W_O] = {EACH, D_V, D_OUT, 0, {"W_O", "(h*d_v, d_out)", MATRIX, H, MHA_W_O, false, "W_o",
        "Wo WO w_o wo W_out o_proj.weight o_proj c_proj.weight", "output projection of the concatenated heads"}},
    [MHA_B_O] = {SHARED, D_OUT, NOTHING, SWITCH(bias_o), {"b_O", "(d_out)", BIAS, H, MHA_W_O, false, "b_o",
        "bo b_out o_proj.bias c_proj.bias", "bias of the output"}},
    [MHA_BIAS_K] = {EACH_OF_KEYS, D_K, NOTHING, SWITCH(bias_kv), {"bias_k", "(h_kv*d_k)", ROW, K, MHA_BIAS_K, false,
        NULL, NULL, "one more key behind all real ones, never hidden; with bias_v"}},
    [MHA_BIAS_V] = {EACH_OF_KEYS, D_V, NOTHING, SWITCH(bias_kv), {"bias_v", "(h_kv*d_v)", ROW, K, MHA_BIAS_V, false,
        NULL,
        NULL, "its value; with bias_k"}},
    [MHA_SINKS] = {EACH, ONE, NOTHING, SWITCH(sinks), {"sinks", "(h)", SINK, S, MHA_SINKS, false, "head_sink",
        "sink attn_sink head_sinks", "one more logit per head in the denominator of the softmax, without a value"}},
    [MHA_Q_NORM] = {EACH, D_K, NOTHING, 0, {"q_norm", "(d_k), (h*d_k) or (h, d_k)", NORM, Q, MHA_Q_NORM, false,
        "q_norm_weight",
        "q_norm.weight q_layernorm.weight",
        "weight of a norm of q: over each head, over the row, or over each head with weights of its own"}},
    [MHA_K_NORM] = {EACH_OF_KEYS, D_K, NOTHING, 0, {"k_norm", "(d_k), (h_kv*d_k) or (h_kv, d_k)", NORM, K, MHA_K_NORM,
        false, "k_norm_weight",
        "k_norm.weight k_layernorm.weight", "the same for k"}},
    [MHA_Q_NORM_BIAS] = {EACH, D_K, NOTHING, SWITCH(norm_bias), {"q_norm_bias", "(d_k), (h*d_k) or (h, d_k)",
        NORM_BIAS, Q, MHA_Q_NORM, false, NULL,
        "q_norm.bias q_layernorm.bias", "added behind the norm of q"}},
    [MHA_K_NORM_BIAS] = {EACH_OF_KEYS, D_K, NOTHING, SWITCH(norm_bias), {"k_norm_bias",
        "(d_k), (h_kv*d_k) or (h_kv, d_k)", NORM_BIAS, K, MHA_K_NORM, false, NULL,
        "k_norm.bias k_layernorm.bias", "the same for k"}},
    [MHA_BIAS_TABLE] = {EACH, ONE, BIAS_ROWS, 0, {"bias_table", "(n, h)", TABLE, S, MHA_BIAS_TABLE, false, NULL,
        "relative_attention_bias.weight relative_position_bias_table",
        "table of the relative position bias that bias_rule asks for"}},
    [MHA_W_QA] = {SHARED, Q_RANK, D_Q, 0, {"W_QA", "(d_q, q_rank)", MATRIX, Q, MHA_W_QA, true, "W_qa",
        "W_DQ q_a_proj.weight",
        "latent attention, two-stage queries: q = norm(query W_qa + b_qa) W_q, with W_q (q_rank, h*d_k)"}},
    [MHA_B_QA] = {SHARED, Q_RANK, NOTHING, SWITCH(bias_latent), {"b_QA", "(q_rank)", BIAS, Q, MHA_W_QA, true, "b_qa",
        "q_a_proj.bias", "its bias"}},
    [MHA_QA_NORM] = {SHARED, Q_RANK, NOTHING, 0, {"qa_norm", "(q_rank)", NORM, Q, MHA_QA_NORM, true, "qa_norm_weight",
        "q_a_layernorm.weight", "weight of its RMS norm"}},
    [MHA_W_KVA] = {SHARED, KV_LATENT, D_KIN, 0, {"W_KVA", "(d_kin, kv_rank + d_rope)", MATRIX, K, MHA_W_KVA, true,
        "W_kva",
        "W_DKV kv_a_proj_with_mqa.weight", "latent attention, in place of W_k and W_v: [c, k_r] = key W_kva + b_kva"}},
    [MHA_B_KVA] = {SHARED, KV_LATENT, NOTHING, SWITCH(bias_latent), {"b_KVA", "(kv_rank + d_rope)", BIAS, K,
        MHA_W_KVA, true, "b_kva",
        "kv_a_proj_with_mqa.bias", "its bias"}},
    [MHA_KVA_NORM] = {SHARED, KV_RANK, NOTHING, 0, {"kva_norm", "(kv_rank)", NORM, K, MHA_KVA_NORM, true,
        "kva_norm_weight",
        "kv_a_layernorm.weight", "weight of the RMS norm of c"}},
    [MHA_W_KVB] = {EACH, D_KV, KV_RANK, 0, {"W_KVB", "(kv_rank, h*(d_n + d_v))", MATRIX, K, MHA_W_KVB, true, "W_kvb",
        "W_UKV kv_b_proj.weight",
        "[k_n, v] = norm(c) W_kvb, head by head; a key is [k_n, k_r], and d_n = d_k - d_rope"}},
    [MHA_W_G] = {EACH, GATES, D_Q, 0, {"W_G", "(d_q, h*d_v) or (d_q, h)", MATRIX, H, MHA_W_G, false, "W_g",
        "Wg gate_proj.weight g_proj.weight",
        "gate on the heads: heads * sigmoid(query W_g + b_g), by feature or by head"}},
    [MHA_B_G] = {EACH, GATES, NOTHING, SWITCH(bias_gate), {"b_G", "(h*d_v) or (h)", BIAS, H, MHA_W_G, false, "b_g",
        "bg", "bias of the gate"}},
    [MHA_RELATIVE_K] = {EACH, D_K, RELATIVE_K_ROWS, 0, {"relative_k", "(n, d_k) or (n, h*d_k)", TABLE, S,
        MHA_RELATIVE_K, false, NULL,
        "rel_pos_h distance_embedding.weight",
        "rows that q is multiplied with, chosen by relative_rule (c2p): for all heads, or for each"}},
    [MHA_RELATIVE_COLUMNS] = {EACH, D_K, RELATIVE_COLUMN_ROWS, 0, {"relative_columns", "(n, d_k) or (n, h*d_k)",
        TABLE, S, MHA_RELATIVE_COLUMNS, false, NULL,
        "rel_pos_w", "the same by the columns of relative_rule grid"}},
    [MHA_RELATIVE_Q] = {EACH, D_K, RELATIVE_Q_ROWS, 0, {"relative_q", "(n, d_k) or (n, h*d_k)", TABLE, S,
        MHA_RELATIVE_Q, false, NULL,
        NULL, "rows that k is multiplied with, chosen by relative_rule (p2c)"}},
};
/* clang-format on */
_Static_assert(sizeof rows / sizeof *rows == MHA_WEIGHT_COUNT, "a row for every weight");

const mha_weight_info *mha_weight_at(mha_weight weight)
{
    return (unsigned)weight < MHA_WEIGHT_COUNT ? &rows[weight].is : NULL;
}

static size_t extent_of(const mha_config *c, extent which)
{
    const size_t gates[] = {[MHA_GATE_NONE] = 0, [MHA_GATE_FEATURE] = c->d_v, [MHA_GATE_HEAD] = 1};
    switch (which) {
    case NOTHING: return 0;
    case ONE: return 1;
    case D_KV: return c->d_k - c->d_rope + c->d_v;
    case D_Q_READ: return c->q_rank ? c->q_rank : c->d_q;
    case D_K_READ: return c->kv_rank ? 0 : c->d_kin;
    case D_V_READ: return c->kv_rank ? 0 : c->d_vin;
    case KV_LATENT: return c->kv_rank ? c->kv_rank + c->d_rope : 0;
    case GATES: return gates[c->gate];
    default: return *(const size_t *)(const void *)((const char *)c + which);
    }
}

bool mha__is_gate_weight(mha_weight weight)
{
    return rows[rows[weight].is.of].width == GATES;
}

bool mha__is_relative_table(mha_weight weight)
{
    const extent other = rows[weight].other;
    return other == RELATIVE_K_ROWS || other == RELATIVE_COLUMN_ROWS || other == RELATIVE_Q_ROWS;
}

/* Whether it belongs to the norm of q or of k. */
static bool is_of_norm(const row *w)
{
    return (w->is.kind == NORM || w->is.kind == NORM_BIAS) && !w->is.of_latents;
}

static mha_norm norm_of(const mha_config *c, const row *w)
{
    return w->of_heads == EACH ? c->q_norm : c->k_norm;
}

static bool is_given(const mha_config *c, const row *w)
{
    return w->given == 0 || *(const bool *)((const char *)c + w->given);
}

/* Whether all heads share the weight under this configuration. */
static bool is_shared(const mha_config *c, const row *w)
{
    const bool relative = mha__is_relative_table(w->is.of);
    return w->of_heads == SHARED || (relative && !c->relative_by_head) ||
           (is_of_norm(w) && norm_of(c, w) != MHA_NORM_EACH_HEAD);
}

static size_t heads_of(const mha_config *c, const row *w)
{
    return w->of_heads == EACH ? c->n_heads : c->kv_heads;
}

/* The weight or bias of a norm over the features of a head, over a whole row, or of each head. */
static int norm_shape(const mha_config *c, const row *w, size_t shape[2])
{
    const mha_norm norm = norm_of(c, w);
    shape[0] = norm == MHA_NORM_HEAD ? c->d_k : norm == MHA_NORM_ROW ? heads_of(c, w) * c->d_k : heads_of(c, w);
    shape[1] = norm == MHA_NORM_EACH_HEAD ? c->d_k : 1;
    return norm == MHA_NORM_EACH_HEAD ? 2 : 1;
}

/* The axis along which heads lie: outputs of a matrix, inputs of W_O. */
static int axis_of(const row *w)
{
    return w->other != NOTHING && w->is.of != MHA_W_O;
}

int mha_config_weight_shape(const mha_config *c, mha_weight weight, size_t shape[2], const char **symbol)
{
    if ((unsigned)weight >= MHA_WEIGHT_COUNT)
        return 0;
    const row *w = &rows[weight];
    const size_t width = extent_of(c, w->width), other = extent_of(c, w->other), heads = heads_of(c, w);
    const int rank = w->other == NOTHING ? 1 : 2, axis = axis_of(w);
    const bool absent = width == 0 || (rank == 2 && other == 0) || (is_of_norm(w) && norm_of(c, w) == MHA_NORM_NONE);
    if (absent || !is_given(c, w))
        return 0;
    if (symbol)
        *symbol = weight == MHA_W_Q && c->q_rank ? "(q_rank, h*d_k)" : w->is.symbol;
    if (is_of_norm(w))
        return norm_shape(c, w, shape);
    shape[1 - axis] = rank == 2 ? other : 1;
    shape[axis] = is_shared(c, w) ? width : heads * width;
    return rank;
}

void mha__config_add_weight(mha_config *c, mha_weight weight, int rank, const size_t shape[])
{
    const row *w = &rows[weight];
    const size_t table = w->is.kind == TABLE ? w->other : NOTHING; /* where its number of rows is */
    if (w->given)
        *(bool *)((char *)c + w->given) = true;
    if (table && rank == 2)
        *(size_t *)(void *)((char *)c + table) = shape[0];
    if (mha__is_relative_table(weight) && rank == 2)
        c->relative_by_head |= shape[1] != c->d_k;
    if (w->width == GATES && w->other != NOTHING)
        c->gate = rank == 2 && shape[1] == c->n_heads ? MHA_GATE_HEAD : MHA_GATE_FEATURE;
}

mha__weight_heads mha__config_weight_heads(const mha_config *c, mha_weight weight)
{
    size_t shape[2];
    if (mha_config_weight_shape(c, weight, shape, NULL) == 0 || is_shared(c, &rows[weight]))
        return (mha__weight_heads){0};
    const row *w = &rows[weight];
    return (mha__weight_heads){.axis = axis_of(w), .heads = heads_of(c, w), .of_keys = w->of_heads == EACH_OF_KEYS,
                              .width = is_of_norm(w) ? 1 : extent_of(c, w->width)};
}
