/* The costs of a model's forward pass: lengths of its layers, floating-point operations by part, caches. */
#include <inttypes.h>
#include <string.h>

#include "attention/visibility/visibility.h"
#include "models/model.h"

/* The sums of a count; after an overflow they mean nothing. */
typedef struct sum {
    const mha_model *model;
    mha__values values; /* with seq and encoder_seq, for formulas of lengths */
    size_t batch;
    bool overflow;
} sum;

/* *total += a * b * c; s->overflow is set when it does not fit. */
static void add(sum *s, uint64_t *total, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t product;
    s->overflow = __builtin_mul_overflow(a, b, &product) || __builtin_mul_overflow(product, c, &product) ||
                  __builtin_add_overflow(*total, product, total) || s->overflow;
}

static uint64_t times(sum *s, uint64_t a, uint64_t b)
{
    uint64_t product = 0;
    add(s, &product, a, b, 1);
    return product;
}

static mha_status too_long(const mha_model_pass *pass, mha_error *error)
{
    return mha__fail(error, MHA_INVALID, "seq",
                     "expected lengths and a batch whose operations fit in 64 bits, found %zu x %zu%s", pass->batch,
                     pass->seq, pass->encoder_seq ? " with an encoder's" : "");
}

/* The value of a formula, or `otherwise` when there is no formula. */
static mha_status number(const sum *s, const char *formula, uint64_t otherwise, uint64_t *value, mha_error *error)
{
    int64_t found = 0;
    char room[MHA_ARCH_ROW];
    *value = otherwise;
    if (!formula)
        return MHA_OK;
    const mha_status status = mha__expression_evaluate(formula, &s->values, &found, error);
    TRY(mha__architecture_blame(s->model->setup.architecture, formula, status, error));
    if (found < 0)
        return mha__fail(error, MHA_INVALID, mha__architecture_row(s->model->setup.architecture, formula, room),
                         "expected at least 0, found %" PRId64, found);
    *value = (uint64_t)found;
    return MHA_OK;
}

/* Whether an encoder reads something else than the rest: some layer has cross-attention. */
static bool has_encoder(const mha_model *model)
{
    bool found = false;
    for (size_t i = 0; i < model->n_layers; i++)
        found |= model->layers[i].description->cross != 0;
    return found;
}

static mha_status begin(const mha_model *model, const mha_model_pass *pass, sum *s, mha_error *error)
{
    const int64_t stated = mha__values_get(&model->setup.values, "encoder_tokens");
    const size_t encoder = pass->encoder_seq ? pass->encoder_seq : stated > 0 ? (size_t)stated : pass->seq;
    *s = (sum){.model = model, .values = model->setup.values, .batch = pass->batch};
    s->values.trace = NULL; /* which threads that ask one model would share */
    if (pass->encoder_seq && !has_encoder(model))
        return mha__fail(error, MHA_INVALID, "encoder_seq",
                         "expected a model with an encoder and a decoder, found %s (%s)", mha_model_title(model),
                         mha_model_class(model));
    if (pass->seq > INT64_MAX || encoder > INT64_MAX)
        return too_long(pass, error);
    if (!mha__values_set(&s->values, "seq", (int64_t)pass->seq) ||
        !mha__values_set(&s->values, "encoder_seq", (int64_t)encoder))
        return mha__fail(error, MHA_INVALID, model->setup.architecture->source,
                         "expected at most %d symbols besides seq and encoder_seq", MHA_VALUES - 2);
    return MHA_OK;
}

/* ---------------------------------------------------------------- attention */

static size_t least(size_t a, size_t b)
{
    return b > 0 && b < a ? b : a;
}

static mha_status layer_lengths(sum *s, size_t index, mha_model_lengths *lengths, mha_error *error)
{
    const struct mha__model_layer *layer = &s->model->layers[index];
    const mha__arch_attention *row = layer->description;
    const uint64_t seq = (uint64_t)mha__values_get(&s->values, "seq"),
                   encoder = (uint64_t)mha__values_get(&s->values, "encoder_seq");
    const bool causal = layer->shown.causal;
    uint64_t queries, keys, windows;
    mha__values_set_block(&s->values, layer->i, layer->j);
    TRY(number(s, row->tokens, seq, &queries, error));
    TRY(number(s, row->keys, row->cross ? encoder : queries, &keys, error));
    TRY(number(s, row->windows, 1, &windows, error));
    const uint64_t pairs = times(s, windows, times(s, queries, keys));
    (void)times(s, pairs, s->batch); /* nothing is larger before it is multiplied by a width */
    *lengths = (mha_model_lengths){.queries = queries, .keys = keys, .windows = windows, .cross = row->cross != 0,
                                   .pairs = pairs};
    if (s->overflow)
        return MHA_OK;
    /* Of the keys that it sees a query may attend only to some: as many pairs as a window of that many leaves. */
    const size_t picked = (size_t)mha__values_get(&s->values, "picked");
    mha__visibility visible = mha__visibility_of(&layer->facts.semantics, 0);
    const size_t window = (size_t)(visible.left + 1), near = window ? least(window, picked) : picked;
    visible.causal = causal, visible.left = (int64_t)near - 1;
    visible.right = visible.right >= 0 ? visible.left : -1;
    lengths->visible = row->cross ? pairs : windows * mha__visible_pairs(&visible, 0, queries, keys);
    if (row->cross)
        lengths->cached = keys;
    else if (causal && !row->uncached)
        lengths->cached = least(least(keys, window), (size_t)visible.chunk);
    const mha_config *c = &layer->shown.config;
    lengths->cached_width = c->kv_heads * (c->d_k + c->d_v);
    lengths->latent_width = c->kv_rank ? c->kv_rank + c->d_rope : 0;
    return MHA_OK;
}

mha_status mha_model_layer_lengths(const mha_model *model, const mha_model_pass *pass, size_t index,
                                   mha_model_lengths *lengths, mha_error *error)
{
    sum s;
    mha_model_lengths found;
    if (index >= model->n_layers)
        return mha__fail(error, MHA_NOT_FOUND, "index", "expected an attention layer below %zu, found %zu",
                         model->n_layers, index);
    TRY(begin(model, pass, &s, error));
    TRY(layer_lengths(&s, index, &found, error));
    if (s.overflow)
        return too_long(pass, error);
    *lengths = found;
    return MHA_OK;
}

static void add_projections(sum *s, const mha_config *c, uint64_t queries, uint64_t keys, mha_model_costs *costs)
{
    uint64_t of_queries = 0, of_keys = 0;
    if (c->kv_rank) { /* as stored: keys and values of every head are made of each latent */
        add(s, &of_queries, c->q_rank ? c->q_rank : c->d_q, c->n_heads, c->d_k);
        add(s, &of_queries, c->d_q, c->q_rank, 1);
        add(s, &of_keys, c->d_kin, c->kv_rank + c->d_rope, 1);
        add(s, &of_keys, c->kv_rank, c->n_heads, c->d_k - c->d_rope + c->d_v);
    } else {
        add(s, &of_queries, c->d_q, c->n_heads, c->d_k);
        add(s, &of_keys, c->d_kin, c->kv_heads, c->d_k);
        add(s, &of_keys, c->d_vin, c->kv_heads, c->d_v);
    }
    add(s, &of_queries, c->d_out, c->n_heads, c->d_v);
    if (c->gate)
        add(s, &of_queries, c->d_q, c->n_heads, c->gate == MHA_GATE_HEAD ? 1 : c->d_v);
    add(s, &costs->projections, 2, queries, of_queries);
    add(s, &costs->projections, 2, keys, of_keys);
}

static mha_status add_layer(sum *s, size_t index, mha_model_costs *costs, mha_error *error)
{
    const mha_model_layer *layer = &s->model->layers[index].shown;
    const mha_config *c = &layer->config;
    const mha_relative *relative = &s->model->layers[index].facts.semantics.added.relative;
    mha_model_lengths of;
    TRY(layer_lengths(s, index, &of, error));
    if (s->overflow)
        return MHA_OK;
    const uint64_t rows = times(s, layer->uses, s->batch), all = times(s, rows, of.windows);
    const uint64_t queries = times(s, all, of.queries), keys = times(s, all, of.keys);
    const uint64_t cached = times(s, rows, of.cached);
    const uint64_t width = c->n_heads * (c->d_k + c->d_v), cache = of.cached_width;
    add_projections(s, c, queries, keys, costs);
    add(s, &costs->scores_full, 2 * width, rows, of.pairs);
    add(s, &costs->scores_causal, 2 * width, rows, of.visible);
    add(s, &costs->relative, 2 * c->n_heads * c->d_k, queries,
        relative->rule == MHA_RELATIVE_GRID ? relative->height + relative->width : c->relative_k_rows);
    add(s, &costs->relative, 2 * c->n_heads * c->d_k, keys, c->relative_q_rows);
    add(s, &costs->cache_elements, cached, cache, 1);
    if (of.cross)
        add(s, &costs->cross_elements, cached, cache, 1);
    add(s, &costs->latent_elements, cached, of.latent_width, 1);
    return MHA_OK;
}

/* ---------------------------------------------------------------- the rest of the model */

static mha_status add_states(sum *s, mha_model_costs *costs, mha_error *error)
{
    const uint64_t tokens = times(s, s->batch, (uint64_t)mha__values_get(&s->values, "seq"));
    for (const mha__arch_state *state = s->model->setup.architecture->states; state->products; state++) {
        uint64_t blocks, there, products, elements;
        mha__values_set_block(&s->values, 0, 0);
        TRY(number(s, state->blocks, 1, &blocks, error));
        if (blocks > MHA_BLOCK_LIMIT)
            return mha__fail(error, MHA_INVALID, "states", "expected at most %d blocks, found %" PRIu64,
                             MHA_BLOCK_LIMIT, blocks);
        for (uint64_t i = 0; i < blocks; i++) {
            mha__values_set_block(&s->values, (int64_t)i, 0);
            TRY(number(s, state->when, 1, &there, error));
            if (!there)
                continue;
            TRY(number(s, state->products, 0, &products, error));
            TRY(number(s, state->elements, 0, &elements, error));
            add(s, &costs->linear, 2, tokens, products);
            add(s, &costs->state_elements, s->batch, elements, 1);
        }
    }
    return MHA_OK;
}

/* The sum that a matrix belongs to; NULL: its products are counted with its layer, or it is looked up. *tokens: formula
 * of the vectors that it multiplies, unless its description has one. */
static uint64_t *sum_of(const mha_tensor_info *info, mha_model_costs *costs, const char **tokens)
{
    const bool every = strcmp(info->role, "token logits") == 0 || strcmp(info->role, "transform") == 0;
    *tokens = "seq";
    if (strcmp(info->group, MHA_GROUP_FFN) == 0)
        return &costs->feed_forward;
    if (strcmp(info->role, "linear attention") == 0)
        return &costs->linear;
    if (strcmp(info->role, "indexer") == 0)
        return &costs->projections;
    if (strcmp(info->group, MHA_GROUP_HEAD) == 0) {
        *tokens = every ? "seq" : "1";
        return &costs->heads;
    }
    *tokens = strcmp(info->role, "patches") == 0 ? "patches" : NULL;
    return strcmp(info->group, MHA_GROUP_EMBEDDING) == 0 ? &costs->patches : NULL;
}

static mha_status add_rows(sum *s, mha_model_costs *costs, mha_error *error)
{
    size_t experts, chosen;
    mha_model_costs routed = {0}; /* of all experts */
    (void)mha_model_active_parameters(s->model, &experts, &chosen);
    for (size_t i = 0; i < s->model->n_rows; i++) {
        const struct mha__model_row *row = &s->model->rows[i];
        const mha_tensor_info info = mha_tensor_info_of(row->tensor);
        const char *formula;
        uint64_t tokens;
        if (info.kind != MHA_TENSOR_PARAMETER || info.rank < 2)
            continue;
        uint64_t *total = sum_of(&info, row->description->routed ? &routed : costs, &formula);
        if (!total)
            continue;
        mha__values_set_block(&s->values, row->i, row->j);
        TRY(number(s, row->description->tokens ? row->description->tokens : formula, 0, &tokens, error));
        add(s, total, 2, times(s, s->batch, tokens), info.elements);
    }
    add(s, &costs->feed_forward, experts ? routed.feed_forward / experts : routed.feed_forward, experts ? chosen : 1,
        1);
    return MHA_OK;
}

/* The first reason that holds: a description says all that its class leaves out in one. */
static mha_status name_others(const sum *s, mha_model_costs *costs, mha_error *error)
{
    uint64_t holds = 0;
    const mha__arch_refusal *row = s->model->setup.architecture->not_counted;
    for (; row->when && !holds; row++) {
        TRY(number(s, row->when, 0, &holds, error));
        if (holds)
            mha__text_print(costs->not_counted, sizeof costs->not_counted, "%s", row->why);
    }
    return MHA_OK;
}

mha_status mha_model_costs_of(const mha_model *model, const mha_model_pass *pass, mha_model_costs *costs,
                              mha_error *error)
{
    mha_model_costs sums = {0};
    sum s;
    TRY(begin(model, pass, &s, error));
    for (size_t i = 0; i < model->n_layers; i++)
        TRY(add_layer(&s, i, &sums, error));
    TRY(add_states(&s, &sums, error));
    TRY(add_rows(&s, &sums, error));
    TRY(name_others(&s, &sums, error));
    if (s.overflow)
        return too_long(pass, error);
    *costs = sums;
    return MHA_OK;
}
