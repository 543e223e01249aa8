/* Adds each cache of a model to a parameter table, where its bytes are counted. */
#include <stdio.h>

#include "attention/cache/cache_memory.h"
#include "models/caches/caches.h"

const char *mha_cache_kind_at(size_t index)
{
    static const char *const kinds[] = {"all keys", "window", "latents", "cross-attention", "index keys", "states"};
    return index < sizeof kinds / sizeof *kinds ? kinds[index] : NULL;
}

enum { ALL_KEYS, WINDOW, LATENTS, CROSS, INDEX_KEYS, STATES };

static mha_status add(mha_params *table, const char *prefix, const char *role, size_t kind, mha_dtype dtype,
                      const size_t shape[4], mha_error *error)
{
    char name[256];
    const mha_cache_spec cache = {.dtype = dtype};
    const size_t width = mha__cache_row_elements(&cache, shape[3]);
    mha__text_print(name, sizeof name, "%zu.%s.%s", mha_params_count(table), prefix, role);
    const mha_tensor_spec spec = {.name = name, .role = role, .group = mha_cache_kind_at(kind), .dtype = dtype,
                                  .kind = MHA_TENSOR_BUFFER, .rank = 4, .shape = {shape[0], shape[1], shape[2], width}};
    return mha_params_add(table, &spec, NULL, error);
}

/* Elements of the key that an indexer of the layer has; 0: there is none. */
static mha_status index_width(const mha_model *model, size_t index, int64_t *width, mha_error *error)
{
    mha__values own;
    mha__model_layer_values(model, index, &own);
    own.trace = NULL; /* which threads that ask one model would share */
    *width = 0;
    return mha__values_find(&own, "d_index") ? mha__expression_evaluate("own_index[i] * d_index", &own, width, error)
                                             : MHA_OK;
}

static mha_status add_layer(const mha_model *model, size_t index, const mha__cache_plan *plan, size_t rows,
                            size_t kind, mha_params *table, mha_error *error)
{
    const mha_model_layer *layer = &model->layers[index].shown;
    const mha_config *c = &layer->config;
    const size_t batch = plan->pass.batch, ranks = plan->ranks ? plan->ranks : 1;
    const size_t heads = (c->kv_heads + ranks - 1) / ranks, latent = c->kv_rank + c->d_rope;
    const mha_dtype k = plan->types[0], v = plan->types[1];
    int64_t indexed;
    TRY(index_width(model, index, &indexed, error));
    if (c->kv_rank && !plan->of_heads)
        TRY(add(table, layer->prefix, "latents", LATENTS, k, (size_t[]){batch, 1, rows, latent}, error));
    else
        TRY(add(table, layer->prefix, "keys", kind, k, (size_t[]){batch, heads, rows, c->d_k}, error));
    if (c->kv_rank && !plan->of_heads && plan->latent_values)
        TRY(add(table, layer->prefix, "values", LATENTS, v, (size_t[]){batch, 1, rows, c->kv_rank}, error));
    else if (!c->kv_rank || plan->of_heads)
        TRY(add(table, layer->prefix, "values", kind, v, (size_t[]){batch, heads, rows, c->d_v}, error));
    return indexed > 0 ? add(table, layer->prefix, "index keys", INDEX_KEYS, k,
                             (size_t[]){batch, 1, rows, (size_t)indexed}, error)
                       : MHA_OK;
}

static mha_status add_states(const mha_model *model, const mha__cache_plan *plan, mha_params *table, mha_error *error)
{
    mha__values values = model->setup.values;
    const int64_t column = 2 * mha__values_get(&values, "d_keys") + mha__values_get(&values, "d_values");
    values.trace = NULL;
    for (const mha__arch_state *state = model->setup.architecture->states; state->products; state++) {
        int64_t blocks = 1, there = 1, elements = 0;
        if (state->blocks)
            TRY(mha__expression_evaluate(state->blocks, &values, &blocks, error));
        for (int64_t i = 0; i < blocks && i < MHA_BLOCK_LIMIT; i++) {
            char prefix[24];
            mha__values_set(&values, "i", i);
            if (state->when)
                TRY(mha__expression_evaluate(state->when, &values, &there, error));
            TRY(mha__expression_evaluate(state->elements, &values, &elements, error));
            elements -= plan->column_less ? column : 0;
            snprintf(prefix, sizeof prefix, "%lld", (long long)i);
            if (there && elements > 0)
                TRY(add(table, prefix, "state", STATES, MHA_F32, (size_t[]){plan->states, 1, 1, (size_t)elements},
                        error));
        }
    }
    return MHA_OK;
}

static size_t pages_of(size_t rows, size_t page)
{
    return page > 1 && rows <= SIZE_MAX - page ? (rows + page - 1) / page * page : rows;
}

mha_status mha__caches_add(const mha_model *model, const mha__cache_plan *plan, mha_params *table, size_t own[2],
                           mha_error *error)
{
    enum { LONG = 1 << 24 }; /* tokens, more than a window has */
    size_t made[2] = {0, 0}, last[2] = {0, 0}, rows[2] = {0, 0}, all[2] = {0, 0};
    mha_model_lengths of, in_long;
    for (size_t i = 0; i < model->n_layers; i++) {
        TRY(mha_model_layer_lengths(model, &plan->pass, i, &of, error));
        if (of.cached == 0)
            continue;
        TRY(mha_model_layer_lengths(model, &(mha_model_pass){.batch = 1, .seq = LONG}, i, &in_long, error));
        const int w = in_long.cached < LONG && !of.cross;
        const size_t keys = pages_of(of.keys, plan->page), near = in_long.cached + plan->ahead;
        rows[w] = plan->rows[w] ? plan->rows[w] : pages_of(w && near < keys ? near : keys, plan->page);
        for (size_t use = 0; use < model->layers[i].shown.uses; use++, all[w]++)
            if (plan->layers[w] == 0 || made[w] < plan->layers[w]) {
                TRY(add_layer(model, last[w] = i, plan, rows[w], of.cross ? CROSS : w ? WINDOW : ALL_KEYS, table,
                              error));
                made[w]++;
            }
    }
    for (int w = 0; w < 2; w++)
        for (; made[w] > 0 && made[w] < plan->layers[w]; made[w]++)
            TRY(add_layer(model, last[w], plan, rows[w], w ? WINDOW : ALL_KEYS, table, error));
    if (own)
        own[0] = all[0], own[1] = all[1];
    return add_states(model, plan, table, error);
}

mha_status mha_model_add_caches(const mha_model *model, const mha_model_pass *pass, mha_dtype dtype, size_t page,
                                size_t ahead, mha_params *table, mha_error *error)
{
    const mha__cache_plan plan = {.pass = *pass, .types = {dtype, dtype}, .page = page, .ahead = ahead,
                                  .states = pass->batch};
    return mha__caches_add(model, &plan, table, NULL, error);
}
