/* Checks published statements: allocates their configurations, counts in the storages, compares. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "models/claims/claims.h"
#include "models/model.h"

/* Public statements about parameter counts (statements.json). Pages 000 to 004 are five public questions with answers
 * about multi-head attention: 000 BERT-base in keras-bert, 001 a general recipe with d_k and d_v, 002 head counts in
 * RoBERTa, 003 LLaMA-7B, 004 why W_Q and W_K are not one matrix.
 *
 * A configuration is written "layer NAME=VALUE ..." (only an attention layer: d_model h h_kv d_k d_v kdim vdim bias
 * bias_kv) or "PRESET KEY=VALUE ..." (a model: keys of its config.json, class=NAME, and seq=N: tokens in its caches).
 *
 * `stated` is evaluated over the configuration's own symbols; `counted` over what its storages hold:
 *   total attention ffn norm embedding head   elements of parameters, of a group
 *   blocks            elements of the tensors that stand in blocks
 *   aliased buffers inert layers              elements of second names, of buffers, inert ones; attention layers
 *   W_Q b_Q ...       elements of all tensors in a role; W_Q_0, W_Q_1: extents of the first of them, as stored
 *   cache             bytes of the caches of seq tokens, in 16 bits
 *   heads head_W_Q head_b_V ...               head views one attention layer gives; elements of the first one
 *   merged_qk         elements of one d_q x d_kin matrix per head, W_Q W_K^T, in place of W_Q and W_K
 *   rank_qk equal_qk  its least rank of all heads; 1 if its scores are those of W_Q and W_K (mha__merge_qk) */
static const struct statement {
    const char *source, *statement;
    const char *stated;
    const char *configuration;
    const char *counted;
    int64_t unit;          /* 0 means 1 */
    const char *otherwise; /* a configuration that the statement also covers and fails for; NULL: none */
    const char *condition;
} statements[] = {
#include "statements.inc"
};

enum { STATEMENTS = sizeof statements / sizeof *statements };

const char *mha__claim_verdict_name(mha__claim_verdict verdict)
{
    static const char *const names[] = {
        [MHA_CLAIM_TRUE] = "true", [MHA_CLAIM_FALSE] = "false", [MHA_CLAIM_ONLY_IF] = "only if"};
    _Static_assert(sizeof names / sizeof *names == MHA_CLAIM_VERDICT_COUNT, "every verdict has a name");
    return mha__name_at(names, MHA_CLAIM_VERDICT_COUNT, (size_t)verdict);
}

size_t mha__claim_count(void)
{
    return STATEMENTS;
}

/* ---------------------------------------------------------------- what storages hold */

/* The list of names and values that is being filled; `full` once one did not fit. */
typedef struct counts {
    mha__values values;
    bool full;
} counts;

static void set(counts *c, const char *name, size_t value)
{
    c->full = !mha__values_set(&c->values, name, (int64_t)value) || c->full;
}

static void add(counts *c, const char *name, size_t value)
{
    set(c, name, (size_t)mha__values_get(&c->values, name) + value);
}

/* Whether a role has only characters that a formula allows in a name. */
static bool is_symbol(const char *role)
{
    if (!isalpha((unsigned char)*role))
        return false;
    for (; *role; role++)
        if (!isalnum((unsigned char)*role) && *role != '_')
            return false;
    return true;
}

/* The extents of the first tensor in a role: "W_O_0", "W_O_1". */
static void set_extents(counts *c, const mha_tensor_info *info)
{
    for (int i = 0; i < info->rank && i < 2; i++) {
        char name[MHA_SYMBOL];
        if (snprintf(name, sizeof name, "%s_%d", info->role, i) < (int)sizeof name &&
            !mha__values_find(&c->values, name))
            set(c, name, info->shape[i]);
    }
}

static void count_table(counts *c, const mha_params *table)
{
    static const char *const groups[] = {"attention", "ffn", "norm", "embedding", "head"};
    mha_totals totals = mha_params_totals(table, NULL);
    set(c, "total", totals.parameters);
    set(c, "buffers", totals.buffers);
    set(c, "inert", totals.inert);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        set(c, groups[i], mha_params_totals(table, groups[i]).parameters);
    set(c, "aliased", 0);
    for (size_t i = 0; i < mha_params_count(table); i++) {
        mha_tensor_info info = mha_tensor_info_of(mha_params_at(table, i));
        if (info.alias_of)
            add(c, "aliased", info.elements);
        if (info.kind != MHA_TENSOR_PARAMETER || info.alias_of || !is_symbol(info.role))
            continue;
        bool matrix_or_bias = info.role[1] == '_' || strncmp(info.role, "bias_", 5) == 0;
        if (!matrix_or_bias)
            continue;
        add(c, info.role, info.elements);
        set_extents(c, &info);
    }
}

/* "heads", and the first head's slice of every weight: "head_W_Q". */
static void count_heads(counts *c, const mha_layer *layer)
{
    size_t heads = 0;
    while (mha_layer_head(layer, MHA_W_Q, heads).data)
        heads++;
    set(c, "heads", heads);
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        mha_view view = mha_layer_head(layer, (mha_weight)w, 0);
        char name[MHA_SYMBOL];
        snprintf(name, sizeof name, "head_%s", mha_weight_at((mha_weight)w)->name);
        if (view.data)
            set(c, name, mha_view_elements(&view));
    }
}

/* Counts a table that has W_QK of each head and nothing else. */
static mha_status count_merged(counts *c, const mha_config *config, mha_error *error)
{
    const mha_tensor_spec spec = {
        .name = "W_QK", .dtype = MHA_F32, .rank = 3, .shape = {config->n_heads, config->d_q, config->d_kin}};
    mha_params *table = NULL;
    mha_tensor *tensor = NULL;
    TRY(mha_params_create(NULL, &table, error));
    const mha_status status = mha_params_add(table, &spec, &tensor, error);
    set(c, "merged_qk", mha_params_totals(table, NULL).parameters);
    mha_params_destroy(table);
    return status;
}

static mha_status compare_merged(counts *c, mha_layer *layer, mha_error *error)
{
    mha__merged_qk merged;
    mha_layer_init(layer, 0);
    TRY(mha__merge_qk(layer, &merged, error));
    set(c, "rank_qk", merged.rank);
    set(c, "equal_qk", merged.equal);
    return MHA_OK;
}

/* ---------------------------------------------------------------- configurations */

/* Adds the counts of one layer's heads, and those of the table when the layer is `alone` in it. */
static mha_status count_layer(counts *c, const mha_config *config, bool alone, bool compared, mha_params *table,
                              mha_error *error)
{
    mha_layer *layer = NULL;
    TRY(mha_layer_create(config, table, NULL, &layer, error));
    count_heads(c, layer);
    const mha_status status = compared ? compare_merged(c, layer, error) : MHA_OK;
    if (alone)
        count_table(c, table);
    mha_layer_destroy(layer);
    return status;
}

static size_t symbol(const counts *c, const char *name)
{
    return (size_t)mha__values_get(&c->values, name);
}

/* Creates the layer of "d_model=512 h=8 ...", and makes its resolved widths symbols. */
static mha_status count_layer_of(counts *c, const char *words, const char *counted, mha_params *table,
                                 mha_error *error)
{
    TRY(mha__values_parse(&c->values, words, error)); /* never fails: the claims are our own text */
    mha_config config = mha__values_attention(&c->values);
    config.d_kin = symbol(c, "kdim"), config.d_vin = symbol(c, "vdim"), config.bias_kv = symbol(c, "bias_kv");
    config.bias_q = config.bias_k = config.bias_v = config.bias_o = symbol(c, "bias");
    TRY(mha_config_resolve(&config, error));
    set(c, "d_model", config.d_model);
    set(c, "h", config.n_heads);
    set(c, "d_k", config.d_k);
    set(c, "d_v", config.d_v);
    if (strstr(counted, "merged_qk"))
        TRY(count_merged(c, &config, error));
    return count_layer(c, &config, true, strstr(counted, "rank_qk") || strstr(counted, "equal_qk"), table, error);
}

/* The config of "PRESET KEY=VALUE ... class=NAME": the preset's with the values replaced. */
static mha_status read_preset(const char *words, json_t **config, char class_name[64], size_t *seq, mha_error *error)
{
    char word[128];
    const char *text = NULL;
    size_t length = strcspn(words, " ");
    snprintf(word, sizeof word, "%.*s", (int)length, words);
    mha_status status = mha__preset_find(word, &text, error);
    if (status == MHA_OK)
        status = mha__json_parse(text, strlen(text), word, config, error);
    for (words += length; status == MHA_OK && *words; words += length) {
        words += strspn(words, " ");
        length = strcspn(words, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, words);
        char *value = strchr(word, '=');
        if (!value)
            return mha__fail(error, MHA_INVALID, word, /* unreachable: the claims are our own text */
                            "expected KEY=VALUE, found '%s'", word);
        *value++ = '\0';
        if (strcmp(word, "class") == 0)
            snprintf(class_name, 64, "%s", value);
        else if (strcmp(word, "seq") == 0)
            *seq = (size_t)strtoll(value, NULL, 10);
        else if (json_object_set_new(*config, word, json_integer(strtoll(value, NULL, 10))) != 0)
            return mha__fail(error, MHA_NO_MEMORY, word, "no memory for a configuration");
    }
    return status;
}

static void count_model(counts *c, const mha_model *model)
{
    for (size_t i = 0; i < model->setup.values.count; i++)
        set(c, model->setup.values.items[i].name, (size_t)model->setup.values.items[i].value);
    count_table(c, model->table);
    set(c, "layers", mha_model_layer_count(model));
    set(c, "blocks", 0);
    for (size_t i = 0; i < model->n_rows; i++) {
        mha_tensor_info info = mha_tensor_info_of(model->rows[i].tensor);
        if (model->rows[i].description->blocks && info.kind == MHA_TENSOR_PARAMETER && !info.alias_of)
            add(c, "blocks", info.elements);
    }
}

static mha_status count_caches(counts *c, const mha_model *model, size_t seq, mha_error *error)
{
    const mha_model_pass pass = {.batch = 1, .seq = seq};
    mha_params *table = NULL;
    TRY(mha_params_create(mha_params_allocator(model->table), &table, error));
    const mha_status status = mha_model_add_caches(model, &pass, MHA_F16, 1, 0, table, error);
    set(c, "seq", seq);
    set(c, "cache", mha_params_totals(table, NULL).buffer_bytes);
    mha_params_destroy(table);
    return status;
}

static mha_status count_model_of(counts *c, const char *words, mha_params *table, mha_error *error)
{
    json_t *config = NULL;
    char class_name[64] = "";
    mha_model *model = NULL;
    mha_params *other = NULL;
    mha_model_layer layer;
    size_t seq = 0;
    mha_status status = read_preset(words, &config, class_name, &seq, error);
    if (status == MHA_OK)
        status = mha__model_create_from(config, &(mha_model_spec){.class_name = *class_name ? class_name : NULL}, NULL,
                                       table, &model, error);
    json_decref(config);
    if (status != MHA_OK)
        return status;
    count_model(c, model);
    if (seq > 0)
        status = count_caches(c, model, seq, error);
    if (status == MHA_OK && mha_model_layer_at(model, 0, &layer)) {
        status = mha_params_create(NULL, &other, error)
                     ? mha__fail(error, MHA_NO_MEMORY, "claims", "no memory for a parameter table")
                     : count_layer(c, &layer.config, false, false, other, error);
        mha_params_destroy(other);
    }
    mha_model_destroy(model);
    return status;
}

static mha_status check_side(const struct statement *row, mha__claim_side *side, mha_error *error)
{
    static const char layer[] = "layer ";
    mha_params *table = NULL;
    counts c = {0};
    mha__regions regions = {.count = 0};
    const mha_allocator allocator = mha__regions_allocator(&regions);
    TRY(mha_params_create(&allocator, &table, error));
    bool alone = strncmp(side->configuration, layer, sizeof layer - 1) == 0;
    mha_status status = alone ? count_layer_of(&c, side->configuration + sizeof layer - 1, row->counted, table, error)
                              : count_model_of(&c, side->configuration, table, error);
    mha_params_destroy(table);
    if (status == MHA_OK && c.full)
        status = mha__fail(error, MHA_INVALID, "claims", /* unreachable: a layer or model has fewer */
                          "expected at most %d counts", MHA_VALUES);
    if (status == MHA_OK)
        status = mha__expression_evaluate(row->stated, &c.values, &side->stated, error);
    return status != MHA_OK ? status : mha__expression_evaluate(row->counted, &c.values, &side->counted, error);
}

/* ---------------------------------------------------------------- verdicts */

/* Equal, or within half a unit when the statement is rounded to units. */
static bool agrees(const mha__claim_side *side, int64_t unit)
{
    int64_t difference = side->stated - side->counted;
    return unit <= 1 ? difference == 0 : (difference < 0 ? -difference : difference) <= unit / 2;
}

mha_status mha__claim_check(size_t index, mha__claim *claim, mha_error *error)
{
    if (index >= (size_t)STATEMENTS)
        return mha__fail(error, MHA_NOT_FOUND, "claims", "expected a number below %zu, found %zu",
                        (size_t)STATEMENTS, index);
    const struct statement *row = &statements[index];
    mha__claim checked = {.source = row->source,
                          .statement = row->statement,
                          .formula = row->stated,
                          .count = row->counted,
                          .unit = row->unit ? row->unit : 1,
                          .holds = {.configuration = row->configuration},
                          .fails = {.configuration = row->otherwise},
                          .condition = row->condition};
    TRY(check_side(row, &checked.holds, error));
    if (row->otherwise)
        TRY(check_side(row, &checked.fails, error));
    bool here = agrees(&checked.holds, checked.unit);
    bool there = !row->otherwise || agrees(&checked.fails, checked.unit);
    checked.verdict = here && there ? MHA_CLAIM_TRUE : here ? MHA_CLAIM_ONLY_IF : MHA_CLAIM_FALSE;
    *claim = checked;
    return MHA_OK;
}
