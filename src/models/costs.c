/* The costs of a model's forward pass: floating-point operations by part, and the key/value cache. */
#include <string.h>

#include "attention/work.h"
#include "models/model.h"

typedef struct sum {
    bool overflow;
} sum;

/* *total += a * b * c; s->overflow is set when it does not fit. */
static void add(sum *s, uint64_t *total, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t product;
    s->overflow = __builtin_mul_overflow(a, b, &product) || __builtin_mul_overflow(product, c, &product) ||
                  __builtin_add_overflow(*total, product, total) || s->overflow;
}

static void add_layer(sum *s, const mha_model_layer *layer, uint64_t batch, uint64_t seq, mha_model_costs *costs)
{
    const mha_config *c = &layer->config;
    uint64_t tokens = batch, pairs = batch, visible = batch, uses = layer->uses;
    add(s, &(uint64_t){0}, batch, seq, seq); /* nothing below is larger before it is multiplied by a width */
    if (s->overflow)
        return;
    tokens *= seq;
    pairs *= seq * seq;
    visible *= mha__visible_pairs(seq, seq, 0, layer->causal, -1, -1, 0);
    uint64_t matrices = 0, width = c->n_heads * (c->d_k + c->d_v);
    if (c->kv_rank) { /* as stored: keys and values of every head are made of each latent */
        add(s, &matrices, c->q_rank ? c->q_rank : c->d_q, c->n_heads, c->d_k);
        add(s, &matrices, c->d_q, c->q_rank, 1);
        add(s, &matrices, c->d_kin, c->kv_rank + c->d_rope, 1);
        add(s, &matrices, c->kv_rank, c->n_heads, c->d_k - c->d_rope + c->d_v);
    } else {
        add(s, &matrices, c->d_q, c->n_heads, c->d_k);
        add(s, &matrices, c->d_kin, c->kv_heads, c->d_k);
        add(s, &matrices, c->d_vin, c->kv_heads, c->d_v);
    }
    add(s, &matrices, c->d_out, c->n_heads, c->d_v);
    if (c->gate)
        add(s, &matrices, c->d_q, c->n_heads, c->gate == MHA_GATE_HEAD ? 1 : c->d_v);
    add(s, &costs->projections, 2 * uses, tokens, matrices);
    add(s, &costs->scores_full, 2 * uses, pairs, width);
    add(s, &costs->scores_causal, 2 * uses, visible, width);
    if (layer->causal)
        add(s, &costs->cache_elements, uses, tokens, c->kv_heads * (c->d_k + c->d_v));
    if (layer->causal && c->kv_rank)
        add(s, &costs->latent_elements, uses, tokens, c->kv_rank + c->d_rope);
}

mha_status mha_model_costs_of(const mha_model *model, size_t batch, size_t seq, mha_model_costs *costs,
                              mha_error *error)
{
    mha_model_costs sums = {0};
    sum s = {0};
    mha_model_layer layer;
    uint64_t uses = 1, tokens = 0, patches = (uint64_t)mha__values_get(&model->setup.values, "patches");
    for (size_t i = 0; mha_model_layer_at(model, i, &layer); i++) {
        add_layer(&s, &layer, batch, seq, &sums);
        uses = layer.uses; /* the feed-forward of a block runs as often as its attention */
    }
    add(&s, &tokens, batch, seq, 1);
    for (size_t i = 0; i < model->n_rows; i++) {
        mha_tensor_info info = mha_tensor_info_of(model->rows[i].tensor);
        if (info.kind != MHA_TENSOR_PARAMETER || info.rank < 2)
            continue;
        if (strcmp(info.group, MHA_GROUP_FFN) == 0)
            add(&s, &sums.feed_forward, 2 * uses, tokens, info.elements);
        else if (strcmp(info.role, "patches") == 0)
            add(&s, &sums.patches, 2 * patches, batch, info.elements);
        else if (strcmp(info.role, "token logits") == 0 || strcmp(info.role, "transform") == 0 ||
                 strcmp(info.role, "widening") == 0) /* the last is ALBERT's, of its narrow embedding */
            add(&s, &sums.heads, 2, tokens, info.elements);
        else if (strcmp(info.group, MHA_GROUP_HEAD) == 0)
            add(&s, &sums.heads, 2, batch, info.elements);
    }
    if (s.overflow)
        return mha__fail(error, MHA_INVALID, "seq",
                         "expected a length and batch whose operations fit in 64 bits, found %zu x %zu", batch, seq);
    *costs = sums;
    return MHA_OK;
}
