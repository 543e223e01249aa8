/* Two files of one model: which tensors are the same under other names, and how far quantising moves an output. */
#include "cli/commands/compare_files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli/setup/model.h"

/* ---------------------------------------------------------------- names */

/* What GGUF calls a tensor of LLaMA and the models like it; behind a '.', of a block. */
static const char *const names[][2] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {".attn_norm", ".input_layernorm"},
    {".ffn_norm", ".post_attention_layernorm"},
    {".attn_q", ".self_attn.q_proj"},
    {".attn_k", ".self_attn.k_proj"},
    {".attn_v", ".self_attn.v_proj"},
    {".attn_output", ".self_attn.o_proj"},
    {".attn_q_norm", ".self_attn.q_norm"},
    {".attn_k_norm", ".self_attn.k_norm"},
    {".attn_sinks", ".self_attn.sinks"},
    {".ffn_gate", ".mlp.gate_proj"},
    {".ffn_up", ".mlp.up_proj"},
    {".ffn_down", ".mlp.down_proj"},
};
static const char *const blocks[2] = {"blk.", "model.layers."};

/* The name in the other spelling: 0 is GGUF's. NULL: it has none. Must be freed. */
static char *spelled(const char *name, int from)
{
    const size_t start = strlen(blocks[from]);
    const bool inside = strncmp(name, blocks[from], start) == 0;
    const size_t digits = inside ? strspn(name + start, "0123456789") : 0;
    const char *rest = inside ? name + start + digits : name;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *mine = names[i][from];
        const size_t length = strlen(mine);
        if ((*mine == '.') == inside && strncmp(rest, mine, length) == 0 &&
            (strcmp(rest + length, ".weight") == 0 || strcmp(rest + length, ".bias") == 0))
            return text_of("%s%.*s%s%s", inside ? blocks[!from] : "", (int)digits, inside ? name + start : "",
                           names[i][!from], rest + length);
    }
    return NULL;
}

const mha_file_tensor *tensor_alike(const mha_file *file, const char *name)
{
    const mha_file_tensor *found = mha_file_find(file, name);
    for (int from = 0; from < 2 && !found; from++) {
        char *other = spelled(name, from);
        found = other ? mha_file_find(file, other) : NULL;
        free(other);
    }
    return found;
}

/* ---------------------------------------------------------------- the order of rows */

static bool ends_in(const char *name, const char *ending)
{
    const size_t n = strlen(name), e = strlen(ending);
    return n >= e && strcmp(name + n - e, ending) == 0;
}

/* Splits the first axis into heads, `one` and `two`. */
static mha_view split_rows(const mha_view *view, size_t heads, size_t one, size_t two)
{
    mha_view split = *view;
    split.rank = view->rank + 2;
    split.shape[0] = heads;
    split.shape[1] = one;
    split.shape[2] = two;
    split.stride[2] = view->stride[0];
    split.stride[1] = view->stride[0] * (ptrdiff_t)two;
    split.stride[0] = split.stride[1] * (ptrdiff_t)one;
    if (view->rank == 2) {
        split.shape[3] = view->shape[1];
        split.stride[3] = view->stride[1];
    }
    return split;
}

mha_view in_common_order(const mha_file *file, const mha_file_tensor *tensor, mha__arena *arena, const mha_view *view)
{
    mha_model_facts facts;
    const bool query = ends_in(tensor->name, ".attn_q.weight") || ends_in(tensor->name, ".attn_q.bias");
    const bool key = ends_in(tensor->name, ".attn_k.weight") || ends_in(tensor->name, ".attn_k.bias");
    if (!(query || key) || !mha_model_read_metadata(file, &facts) || facts.rope != MHA_ROPE_INTERLEAVED)
        return *view;
    const size_t heads = query ? facts.n_heads : facts.kv_heads, rows = view->rank > 0 ? view->shape[0] : 0;
    if (heads == 0 || rows % (2 * heads) != 0 || view->rank > 2 || rows == 0)
        return *view;
    const mha_view pairs = split_rows(view, heads, rows / heads / 2, 2), from = mha_view_swap(&pairs, 1, 2),
                   ordered = obtain_view(arena, view->dtype, view->rank, view->shape),
                   to = split_rows(&ordered, heads, 2, rows / heads / 2);
    (void)mha_view_copy(&to, &from); /* never fails: equal shapes of one plain type */
    return ordered;
}

/* ---------------------------------------------------------------- layers */

enum { TOKENS = 32, SEED = 7 };

static bool is_quantised(const mha_file *file)
{
    const mha_file_tensor *tensor;
    bool found = false;
    for (size_t i = 0; (tensor = mha_file_at(file, i)) && !found; i++)
        found = tensor->reads_as != tensor->dtype || tensor->packing;
    return found;
}

/* What is known about the layer of a file: from its metadata or the config.json beside it. */
static mha_status own_facts(const mha_file *file, const char *layer, mha_model_facts *facts, bool *known,
                            mha_error *error)
{
    char *config = NULL;
    mha_status status = MHA_OK;
    *known = mha_model_read_metadata(file, facts);
    if (!*known && config_beside(mha_file_path(file), &config) == EXIT_DONE && config) {
        status = mha_model_read_layer(config, layer, facts, error);
        *known = true;
    }
    free(config);
    return status;
}

/* A file that says nothing about its model is taken for one of the other's, with halves rotated as in all but GGUF. */
static mha_status facts_of_both(const source *sides[2], const mha_found_layer *layers[2], mha_model_facts facts[2],
                                mha_error *error)
{
    bool known[2];
    for (int s = 0; s < 2; s++)
        TRY(own_facts(sides[s]->file, layers[s]->prefix, &facts[s], &known[s], error));
    for (int s = 0; s < 2; s++)
        if (!known[s] && known[!s]) {
            facts[s] = facts[!s];
            if (facts[s].rope != MHA_ROPE_NONE)
                facts[s].rope = MHA_ROPE_HALF_SPLIT;
        }
    return MHA_OK;
}

/* The output of a layer, in memory of the arena. */
static mha_status run_layer(const source *side, const mha_found_layer *found, const mha_model_facts *facts,
                            mha__arena *arena, mha_view *output, mha_error *error)
{
    mha_layer *layer = NULL;
    const mha_load_options options = {.layer = found->prefix, .facts = facts->n_heads ? facts : NULL};
    mha_status status = mha_model_load_layer(side->file, &options, NULL, &layer, NULL, error);
    if (status != MHA_OK)
        return status;
    const mha_config *config = mha_layer_config(layer);
    const mha_view input = obtain_view(arena, MHA_F32, 3, (size_t[]){1, TOKENS, config->d_q});
    *output = obtain_view(arena, MHA_F32, 3, (size_t[]){1, TOKENS, config->d_out});
    mha_random_fill(&input, SEED, 0, -1.0f, 1.0f);
    mha_call call = {.query = input, .output = *output, .semantics = mha_model_semantics(facts)};
    status = mha_run(layer, &call, error);
    mha_layer_destroy(layer);
    return status;
}

static mha_status compare_layer(const source *sides[2], const mha_found_layer *layers[2], layer_difference *found,
                                mha_error *error)
{
    mha__arena arena = {0};
    mha_view outputs[2] = {{0}};
    mha_model_facts facts[2] = {{.n_heads = 0}, {.n_heads = 0}};
    mha_status status = facts_of_both(sides, layers, facts, error);
    for (int s = 0; s < 2 && status == MHA_OK; s++)
        status = run_layer(sides[s], layers[s], &facts[s], &arena, &outputs[s], error);
    if (status == MHA_OK)
        status = mha_compare(&outputs[0], &outputs[1], 0, 0, &found->output, error);
    double squares = 0;
    for (size_t i = 0; status == MHA_OK && i < found->output.elements; i++)
        squares += pow((double)((const float *)outputs[1].data)[i], 2);
    if (status == MHA_OK && found->output.rms > 0)
        found->relative = found->output.rms / sqrt(squares / (double)found->output.elements);
    found->layer = *layers[0];
    mha__arena_free(&arena);
    return status;
}

int compare_layers(const source *a, const source *b, layer_difference **list, size_t *n, char **obstacle)
{
    const source *sides[2] = {a, b};
    const size_t count = mha_model_find_layers(a->file, NULL, 0);
    *list = NULL;
    *n = 0;
    *obstacle = NULL;
    if (count == 0 || count != mha_model_find_layers(b->file, NULL, 0) ||
        (!is_quantised(a->file) && !is_quantised(b->file)))
        return EXIT_DONE;
    mha_found_layer *found[2];
    for (int s = 0; s < 2; s++) {
        found[s] = obtain(count, sizeof **found);
        mha_model_find_layers(sides[s]->file, found[s], count);
    }
    *list = obtain(count, sizeof **list);
    int code = EXIT_DONE;
    for (*n = 0; *n < count && !*obstacle && code == EXIT_DONE; ++*n) {
        mha_error error = {0};
        const mha_found_layer *layers[2] = {&found[0][*n], &found[1][*n]};
        const mha_status status = compare_layer(sides, layers, &(*list)[*n], &error);
        if (status != MHA_OK && exit_code_of(status) == EXIT_MACHINE)
            code = refuse_error(mha_file_path(a->file), &error);
        else if (status != MHA_OK)
            *obstacle = text_of("%s: %s", error.name, error.message);
    }
    if (*obstacle)
        --*n;
    free(found[0]);
    free(found[1]);
    return code;
}
