/* A model: an architecture's tensors, evaluated for one configuration and allocated in a parameter table. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "attention/layer/layer.h"
#include "models/model.h"
#include "params/params.h"

enum { MHA_ROW_NAME = 200, MHA_ROW_LIMIT = 1 << 17 };

/* ---------------------------------------------------------------- rows */

/* Appends `pattern` to a text of *used characters, with {model}, {i} and {j} replaced. false: it does not fit. */
static bool expand(const char *pattern, const char *model, size_t i, size_t j, char *text, size_t size, size_t *used)
{
    static const char *const words[] = {"{model}", "{i}", "{j}"};
    while (*pattern && *used < size) {
        size_t word = 0;
        while (word < 3 && (*pattern != '{' || strncmp(pattern, words[word], strlen(words[word])) != 0))
            word++;
        if (word < 3) {
            *used += (size_t)(word == 0 ? snprintf(text + *used, size - *used, "%s", model)
                                        : snprintf(text + *used, size - *used, "%zu", word == 1 ? i : j));
            pattern += strlen(words[word]);
        } else {
            text[(*used)++] = *pattern++;
        }
    }
    if (*used >= size)
        return false;
    text[*used] = '\0';
    return true;
}

/* The value of a formula, or `otherwise` when there is no formula. */
static mha_status value_of(const mha_model *model, const char *formula, int64_t otherwise, int64_t *value,
                           mha_error *error)
{
    *value = otherwise;
    if (!formula)
        return MHA_OK;
    const mha_status status = mha__expression_evaluate(formula, &model->setup.values, value, error);
    return mha__architecture_blame(model->setup.architecture, formula, status, error);
}

static mha_status row_shape(const mha_model *model, const mha__arch_tensor *row, mha_tensor_spec *spec,
                            mha_error *error)
{
    int64_t extents[MHA_MAX_RANK];
    char room[MHA_ARCH_ROW];
    size_t rank = 0;
    mha_status status = mha__expression_list(row->shape, &model->setup.values, extents, MHA_MAX_RANK, &rank, error);
    if (status != MHA_OK)
        return mha__architecture_blame(model->setup.architecture, row->name, status, error);
    for (size_t i = 0; i < rank; i++) {
        if (extents[i] < 0)
            return mha__fail(error, MHA_INVALID, mha__architecture_row(model->setup.architecture, spec->name, room),
                             "expected extents of at least 0, found %" PRId64, extents[i]);
        spec->shape[i] = (size_t)extents[i];
    }
    spec->rank = (int)rank;
    return MHA_OK;
}

static mha_status add_tensor(mha_model *model, const mha__arch_tensor *row, const char *name, mha_error *error)
{
    mha_tensor_spec spec = {.name = name, .role = row->role, .group = row->group, .dtype = model->dtype};
    int64_t tied = 0, frozen = 0;
    mha_tensor *tensor = NULL;
    if (row->kind != MHA_ARCH_PARAMETER)
        spec.kind = MHA_TENSOR_BUFFER;
    if (row->kind == MHA_ARCH_BUFFER_I64)
        spec.dtype = MHA_I64;
    TRY(row_shape(model, row, &spec, error));
    if (row->alias_of)
        TRY(value_of(model, row->tied, 1, &tied, error));
    TRY(value_of(model, row->frozen, 0, &frozen, error));
    spec.frozen = frozen != 0;
    char shared[MHA_ROW_NAME], room[MHA_ARCH_ROW];
    size_t used = 0;
    mha_tensor *owner = NULL;
    if (tied && expand(row->alias_of, model->setup.architecture->base_prefix,
                       (size_t)mha__values_get(&model->setup.values, "i"), 0, shared, sizeof shared, &used))
        owner = mha_params_find(model->table, shared);
    const mha_status status = owner ? mha_params_alias(model->table, &spec, owner, &tensor, error)
                                    : mha_params_add(model->table, &spec, &tensor, error);
    if (status == MHA_INVALID && error && strcmp(error->name, name) == 0) /* it is there already */
        mha__text_print(error->name, sizeof error->name, "%s",
                        mha__architecture_row(model->setup.architecture, name, room));
    TRY(status);
    model->rows[model->n_rows++] = (struct mha__model_row){tensor, row, mha__values_get(&model->setup.values, "i"),
                                                           mha__values_get(&model->setup.values, "j")};
    return MHA_OK;
}

/* A description of few rows can ask for many blocks of them, and none needs to exist. */
static mha_status look(mha_model *model, mha_error *error)
{
    return ++model->seen <= MHA_ROW_LIMIT ? MHA_OK
                                          : mha__fail(error, MHA_INVALID, "model",
                                                      "expected at most %d rows in all blocks, found more",
                                                      MHA_ROW_LIMIT);
}

/* One row at the block that the symbols i and j say: counted only, or added. */
static mha_status add_row(mha_model *model, const mha__arch_tensor *row, size_t *count, mha_error *error)
{
    const size_t i = (size_t)mha__values_get(&model->setup.values, "i"),
                 j = (size_t)mha__values_get(&model->setup.values, "j");
    const char *base = model->setup.architecture->base_prefix;
    char name[MHA_ROW_NAME], room[MHA_ARCH_ROW];
    size_t used = 0;
    int64_t section, wanted;
    TRY(look(model, error));
    TRY(value_of(model, row->section, 1, &section, error));
    if (!section)
        return MHA_OK;
    TRY(value_of(model, row->when, 1, &wanted, error));
    if (!wanted)
        return MHA_OK;
    ++*count;
    if (!model->rows)
        return MHA_OK;
    if (!expand(row->prefix, base, i, j, name, sizeof name, &used) ||
        !expand(row->name, base, i, j, name, sizeof name, &used))
        return mha__fail(error, MHA_INVALID, mha__architecture_row(model->setup.architecture, row->name, room),
                         "expected a name that fits its buffer, found a longer one");
    return add_tensor(model, row, name, error);
}

/* The number of blocks that a formula gives; `what` they are, in messages. */
static mha_status blocks_of(const mha_model *model, const char *formula, const char *what, int64_t *blocks,
                            mha_error *error)
{
    char room[MHA_ARCH_ROW];
    TRY(value_of(model, formula, 1, blocks, error));
    if (*blocks > MHA_BLOCK_LIMIT)
        return mha__fail(error, MHA_INVALID, mha__setup_key(&model->setup, formula, room),
                         "expected at most %d %s, found %" PRId64, MHA_BLOCK_LIMIT, what, *blocks);
    return MHA_OK;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* The rows [first, end) of the description for one block; neighbours with one formula of inner blocks go together. */
static mha_status add_block(mha_model *model, int64_t block, const mha__arch_tensor *first,
                            const mha__arch_tensor *end, size_t *count, mha_error *error)
{
    int64_t inner;
    for (const mha__arch_tensor *last; first < end; first = last) {
        for (last = first + 1; first->inner && last < end && same_text(last->inner, first->inner);)
            last++;
        mha__values_set_block(&model->setup.values, block, 0);
        TRY(blocks_of(model, first->inner, "inner blocks", &inner, error));
        for (int64_t j = 0; j < inner; j++) {
            mha__values_set_block(&model->setup.values, block, j);
            for (const mha__arch_tensor *row = first; row < last; row++)
                TRY(add_row(model, row, count, error));
        }
    }
    return MHA_OK;
}

/* Adds a run of neighbouring rows with one block formula block by block: all rows of block 0, then those of block 1. */
static mha_status walk_rows(mha_model *model, size_t *count, mha_error *error)
{
    int64_t blocks;
    *count = model->seen = 0;
    for (const mha__arch_tensor *row = model->setup.architecture->tensors, *end; row->name; row = end) {
        for (end = row + 1; row->blocks && end->name && same_text(end->blocks, row->blocks);)
            end++;
        mha__values_set_block(&model->setup.values, 0, 0);
        TRY(blocks_of(model, row->blocks, "blocks", &blocks, error));
        for (int64_t block = 0; block < blocks; block++)
            TRY(add_block(model, block, row, end, count, error));
    }
    mha__values_set_block(&model->setup.values, 0, 0);
    return MHA_OK;
}

/* The symbols as an attention layer of block i, j has them. */
static mha_status own_values(const mha_model *model, const mha__arch_attention *row, int64_t i, int64_t j,
                             mha__values *own, mha_error *error)
{
    const mha__arch_own causal[] = {{"causal", row->causal}, {NULL, NULL}}, *const lists[] = {row->own, causal};
    mha__values values = model->setup.values;
    int64_t value;
    mha__values_set_block(&values, i, j);
    *own = values;
    for (int list = 0; list < (row->causal ? 2 : 1); list++)
        for (const mha__arch_own *symbol = lists[list]; symbol->symbol; symbol++) {
            values.trace->read = 0;
            const mha_status status = mha__expression_evaluate(symbol->formula, &values, &value, error);
            TRY(mha__architecture_blame(model->setup.architecture, symbol->formula, status, error));
            TRY(mha__symbol_check(model->setup.architecture, symbol->symbol, value, error));
            if (!mha__values_set(own, symbol->symbol, value))
                return mha__fail(error, MHA_INVALID, symbol->symbol, "expected fewer symbols, or a shorter one");
            mha__values_mark(own, symbol->symbol, values.trace->read);
        }
    return MHA_OK;
}

/* Writes the name of a tensor, NULL for none, with the numbers of a layer's blocks; "": there is none.
 * false: it is too long. */
static bool name_of(const mha_model *model, const struct mha__model_layer *layer, const char *pattern,
                    char name[MHA_ROW_NAME])
{
    size_t used = 0;
    name[0] = '\0';
    return !pattern || expand(pattern, model->setup.architecture->base_prefix, (size_t)layer->i, (size_t)layer->j, name,
                              MHA_ROW_NAME, &used);
}

/* Holds rule and table of a layer's biases against each other; a table under its own prefix is a weight of its own. */
static mha_status find_bias(const mha_model *model, struct mha__model_layer *made, const mha__values *own,
                            mha_error *error)
{
    size_t rows;
    const bool ruled = mha__values_bias(own, &rows).rule != MHA_BIAS_RULE_NONE;
    char name[MHA_ROW_NAME], room[MHA_ARCH_ROW];
    const bool fits = name_of(model, made, made->description->bias_table, name);
    const size_t length = strlen(made->shown.prefix);
    if (!fits || ruled != (*name != '\0'))
        return mha__fail(error, MHA_INVALID,
                         mha__architecture_row(model->setup.architecture, made->description->prefix, room),
                         fits ? "expected bias_rule and bias_table together, found one of them"
                              : "the name of its bias_table is too long with its numbers");
    if (rows <= MHA_BIAS_MOST_ROWS && strncmp(name, made->shown.prefix, length) == 0 && name[length] == '.')
        made->shown.config.bias_rows = rows;
    return MHA_OK;
}

/* The numbers and the name of an attention layer at the block that the symbols i and j say. */
static mha_status make_layer(const mha_model *model, const mha__arch_attention *row, struct mha__model_layer *made,
                             mha_error *error)
{
    const mha__values *values = &model->setup.values;
    mha_model_layer *layer = &made->shown;
    mha__values own;
    char room[MHA_ARCH_ROW];
    int64_t uses;
    size_t used = 0;
    made->description = row, made->i = mha__values_get(values, "i"), made->j = mha__values_get(values, "j");
    TRY(own_values(model, row, made->i, made->j, &own, error));
    TRY(value_of(model, row->uses, 1, &uses, error));
    *layer = (mha_model_layer){.config = mha__values_attention(&own), .causal = mha__values_get(&own, "causal")};
    layer->config.dtype = model->dtype;
    layer->uses = uses > 0 ? (size_t)uses : 0;
    if (!expand(row->prefix, model->setup.architecture->base_prefix, (size_t)made->i, (size_t)made->j, layer->prefix,
                sizeof layer->prefix, &used))
        return mha__fail(error, MHA_INVALID, mha__architecture_row(model->setup.architecture, row->prefix, room),
                         "expected a name that fits its buffer, found a longer one");
    TRY(find_bias(model, made, &own, error));
    return mha_config_resolve(&layer->config, error);
}

/* Counts the attention layers or, where there is memory for them, makes them. */
static mha_status walk_layers(mha_model *model, size_t *count, mha_error *error)
{
    int64_t blocks, inner, wanted, uses;
    *count = model->seen = 0;
    for (const mha__arch_attention *row = model->setup.architecture->attention; row->prefix; row++) {
        mha__values_set_block(&model->setup.values, 0, 0);
        TRY(blocks_of(model, row->blocks, "attention layers", &blocks, error));
        for (int64_t i = 0; i < blocks; i++) {
            mha__values_set_block(&model->setup.values, i, 0);
            TRY(look(model, error));
            TRY(value_of(model, row->when, 1, &wanted, error));
            if (!wanted)
                continue;
            TRY(blocks_of(model, row->inner, "attention layers", &inner, error));
            TRY(value_of(model, row->uses, 1, &uses, error));
            for (int64_t j = 0; j < inner; j++, ++*count) {
                mha__values_set_block(&model->setup.values, i, j);
                if (*count > MHA_BLOCK_LIMIT)
                    return mha__fail(error, MHA_INVALID, row->prefix, "expected at most %d attention layers",
                                     MHA_BLOCK_LIMIT);
                if (model->layers)
                    TRY(make_layer(model, row, &model->layers[*count], error));
            }
        }
    }
    mha__values_set_block(&model->setup.values, 0, 0);
    return MHA_OK;
}

/* The facts of a layer whose numbers and name are made. */
static void find_facts(const mha_model *model, const struct mha__model_layer *layer, const mha__values *own,
                       mha_model_facts *facts)
{
    const mha__arch_attention *row = layer->description;
    const bool normed = mha__values_get(own, "relative_normed");
    mha__setup_facts(&model->setup, own, facts);
    (void)name_of(model, layer, row->bias_table, facts->bias_table); /* cannot fail: find_bias has tried it */
    if (facts->semantics.added.relative.rule == MHA_RELATIVE_NONE)
        return;
    if (!name_of(model, layer, row->relative_table, facts->relative_table) ||
        !name_of(model, layer, normed ? row->relative_norm : NULL, facts->relative_norm))
        mha__text_print(facts->not_run, sizeof facts->not_run, "names of relative tables that are too long");
}

void mha__model_find_facts(const mha_model *model, size_t index, mha_model_facts *facts)
{
    mha__values own;
    if (index >= model->n_layers) {
        mha__setup_facts(&model->setup, &model->setup.values, facts);
        return;
    }
    mha__model_layer_values(model, index, &own);
    find_facts(model, &model->layers[index], &own, facts);
}

void mha__model_layer_values(const mha_model *model, size_t index, mha__values *own)
{
    const struct mha__model_layer *layer = &model->layers[index];
    (void)own_values(model, layer->description, layer->i, layer->j, own, NULL); /* cannot fail: it made the layer */
}

void mha__model_facts_with(const mha_model *model, size_t index, const mha__values *own, mha_model_facts *facts)
{
    find_facts(model, &model->layers[index], own, facts);
}

/* The facts of model and layers, and which part of each key bias cannot change the output: none where the
 * architecture's symbol `moving` says that the bias matters. */
static void find_all_facts(mha_model *model)
{
    const bool moving = mha__values_get(&model->setup.values, "moving");
    mha__model_find_facts(model, model->n_layers, &model->facts);
    for (size_t i = 0; i < model->n_layers; i++) {
        struct mha__model_layer *layer = &model->layers[i];
        mha__model_find_facts(model, i, &layer->facts);
        layer->inert_key_bias = moving ? 0 : mha__inert_key_bias(&layer->shown.config, &layer->facts.semantics);
    }
}

/* ---------------------------------------------------------------- creation */

static mha_status read_config(const mha_model_spec *spec, json_t **config, mha_error *error)
{
    if (!spec->preset == !spec->config)
        return mha__fail(error, MHA_INVALID, "preset", "expected a preset or a config.json, found %s",
                         spec->preset ? "both" : "neither");
    if (spec->config)
        return mha__config_read(spec->config, config, error);
    const char *text = NULL;
    mha_status status = mha__preset_find(spec->preset, &text, error);
    return status != MHA_OK ? status : mha__json_parse(text, strlen(text), spec->preset, config, error);
}

/* The setup of a new model without rows. */
static mha_status begin(const json_t *config, const mha_model_spec *spec, mha__architecture *described,
                        mha_params *table, mha_model **model, mha_error *error)
{
    mha__setup setup;
    TRY(mha__setup_read(config, spec, described, &setup, error));
    *model = mha__allocate(mha_params_allocator(table), sizeof **model);
    if (!*model) {
        mha__setup_free(&setup);
        return mha__fail(error, MHA_NO_MEMORY, "model", "no memory for a model");
    }
    **model = (mha_model){.setup = setup, .table = table, .dtype = spec->dtype};
    return mha__dtype_is_float(spec->dtype)
               ? MHA_OK
               : mha__fail(error, MHA_INVALID, "dtype", "expected F32, F64, F16 or BF16, found %s",
                           mha_dtype_name(spec->dtype));
}

mha_status mha__model_create_from(const json_t *config, const mha_model_spec *spec, mha__architecture *described,
                                  mha_params *table, mha_model **model, mha_error *error)
{
    const mha_allocator *allocator = mha_params_allocator(table);
    size_t count = 0;
    mha_model *made = NULL;
    mha_status status = begin(config, spec, described, table, &made, error);
    if (status == MHA_OK)
        made->setup.values.trace->read = 0, status = walk_layers(made, &made->n_layers, error);
    if (status == MHA_OK)
        made->of_layers = made->setup.values.trace->read, status = walk_rows(made, &count, error);
    if (status == MHA_OK && count == 0)
        status = mha__fail(error, MHA_INVALID, "model", "expected at least one tensor, found none");
    if (status == MHA_OK) {
        made->rows_bytes = count * sizeof *made->rows;
        made->rows = mha__allocate(allocator, made->rows_bytes);
        made->layers_bytes = (made->n_layers + 1) * sizeof *made->layers;
        made->layers = mha__allocate(allocator, made->layers_bytes);
        status = made->rows && made->layers
                     ? walk_rows(made, &count, error)
                     : mha__fail(error, MHA_NO_MEMORY, "model", "no memory for %zu rows", count);
    }
    if (status == MHA_OK)
        made->of_rows = made->setup.values.trace->read, status = walk_layers(made, &made->n_layers, error);
    if (status == MHA_OK) {
        find_all_facts(made);
        status = mha__model_mark_inert(made, error);
    }
    if (status != MHA_OK) {
        mha_model_destroy(made);
        return status;
    }
    *model = made;
    return MHA_OK;
}

mha_status mha_model_create(const mha_model_spec *spec, mha_params *table, mha_model **model, mha_error *error)
{
    json_t *config = NULL;
    TRY(read_config(spec, &config, error));
    mha_status status = mha__model_create_from(config, spec, NULL, table, model, error);
    json_decref(config);
    return status;
}

void mha_model_destroy(mha_model *model)
{
    if (!model)
        return;
    const mha_allocator *allocator = mha_params_allocator(model->table);
    while (model->n_rows > 0)
        mha__params_remove(model->table, model->rows[--model->n_rows].tensor); /* NOLINT: counted rows exist */
    mha__setup_free(&model->setup);
    mha__release(allocator, model->rows, model->rows_bytes);
    mha__release(allocator, model->layers, model->layers_bytes);
    mha__release(allocator, model, sizeof *model);
}

/* ---------------------------------------------------------------- what it is */

const char *mha_model_title(const mha_model *model)
{
    return model->setup.architecture->title;
}

const char *mha_model_class(const mha_model *model)
{
    return model->setup.model_class->name;
}

size_t mha_model_active_parameters(const mha_model *model, size_t *experts, size_t *chosen)
{
    const int64_t all = mha__values_get(&model->setup.values, "experts"),
                  used = mha__values_get(&model->setup.values, "top_k");
    const size_t n = all > 0 ? (size_t)all : 0, k = used > 0 && used < all ? (size_t)used : n;
    size_t routed = 0, others = 0;
    for (size_t i = 0; i < model->n_rows; i++) {
        const mha_tensor_info info = mha_tensor_info_of(model->rows[i].tensor);
        if (info.kind == MHA_TENSOR_PARAMETER && !info.alias_of)
            *(model->rows[i].description->routed ? &routed : &others) += info.elements;
    }
    if (experts)
        *experts = routed ? n : 0;
    if (chosen)
        *chosen = routed ? k : 0;
    return others + (n ? routed / n * k : routed);
}

const mha_model_facts *mha_model_facts_of(const mha_model *model)
{
    return &model->facts;
}

const mha_model_facts *mha_model_layer_facts(const mha_model *model, size_t index)
{
    return index < model->n_layers ? &model->layers[index].facts : &model->facts;
}

size_t mha_model_assumptions(const mha_model *model, const mha_assumption **list)
{
    *list = model->setup.assumed;
    return model->setup.n_assumed;
}

const char *mha_model_unread_key(const mha_model *model, size_t index)
{
    return index < model->setup.n_unread ? model->setup.unread[index] : NULL;
}

/* ---------------------------------------------------------------- its attention layers */

size_t mha_model_layer_count(const mha_model *model)
{
    return model->n_layers;
}

bool mha_model_layer_at(const mha_model *model, size_t index, mha_model_layer *layer)
{
    if (index >= model->n_layers)
        return false;
    *layer = model->layers[index].shown;
    return true;
}
