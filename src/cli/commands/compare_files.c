/* Two files of one model: which tensors are the same under other names, how far quantising moves an output, and what
 * rounding does to matrices. */
#include "cli/commands/commands.h"

#include <math.h>

#include "lab/lab.h"

const mha_file_tensor *tensor_alike(const mha_file *file, const char *name)
{
    const mha_file_tensor *found = mha_file_find(file, name);
    char room[MHA_SPELLING];
    size_t next = 0;
    for (const char *other; !found && (other = mha__other_spelling(name, &next, room));)
        found = mha_file_find(file, other);
    return found;
}

/* ---------------------------------------------------------------- the order of rows */

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

/* Rows of W_Q or W_K of so many heads, pair by pair, copied to where all first ones come before all second ones. The
 * view itself where it has no such rows. */
static mha_view firsts_before_seconds(const mha_view *view, size_t heads, mha__arena *arena)
{
    const size_t rows = view->rank > 0 ? view->shape[0] : 0;
    if (heads == 0 || rows % (2 * heads) != 0 || view->rank > 2 || rows == 0)
        return *view;
    const mha_view pairs = split_rows(view, heads, rows / heads / 2, 2), from = mha__view_swap(&pairs, 1, 2),
                   ordered = obtain_view(arena, view->dtype, view->rank, view->shape),
                   to = split_rows(&ordered, heads, 2, rows / heads / 2);
    (void)mha_view_copy(&to, &from, NULL); /* never fails: equal shapes of one plain type */
    return ordered;
}

mha_view in_common_order(const mha_file *file, const mha_file_tensor *tensor, mha__arena *arena, const mha_view *view)
{
    mha_model_facts facts;
    const bool query = mha__text_ends(tensor->name, ".attn_q.weight") || mha__text_ends(tensor->name, ".attn_q.bias");
    const bool key = mha__text_ends(tensor->name, ".attn_k.weight") || mha__text_ends(tensor->name, ".attn_k.bias");
    if (!(query || key) || mha_model_read_metadata(file, NULL, &facts, NULL) != MHA_OK ||
        !facts.reordered)
        return *view;
    return firsts_before_seconds(view, query ? facts.config.n_heads : facts.config.kv_heads, arena);
}

/* ---------------------------------------------------------------- layers */

enum { TOKENS = 32, SEED = 7 };

bool is_quantised(const mha_file_tensor *tensor)
{
    return tensor && (tensor->packing || tensor->reads_as != tensor->dtype);
}

static bool has_quantised(const mha_file *file)
{
    size_t i = 0;
    while (i < mha_file_count(file) && !is_quantised(mha_file_at(file, i)))
        i++;
    return i < mha_file_count(file);
}

/* Facts about the layer of a file: from its metadata or the config.json beside it. */
static mha_status own_facts(const mha_file *file, const char *layer, mha_model_facts *facts, bool *known,
                            mha_error *error)
{
    const char *config = NULL;
    mha_status status = mha_model_read_metadata(file, layer, facts, error);
    *known = facts->has_semantics;
    if (status == MHA_NOT_FOUND)
        status = MHA_OK;
    if (status == MHA_OK && !*known && config_beside(mha_file_path(file), &config) == EXIT_DONE && config) {
        status = mha_model_read_layer(config, layer, facts, error);
        if (status == MHA_OK)
            status = mha_model_fit_file(file, facts, error);
        *known = true;
    }
    return status;
}

/* A file that says nothing about its model is taken for one of the other's, as it was before a converter changed it. */
static mha_status facts_of_both(const source *sides[2], const mha_found_layer *layers[2], mha_model_facts facts[2],
                                mha_error *error)
{
    bool known[2];
    for (int s = 0; s < 2; s++)
        TRY(own_facts(sides[s]->file, layers[s]->prefix, &facts[s], &known[s], error));
    for (int s = 0; s < 2; s++)
        if (!known[s] && known[!s]) {
            facts[s] = facts[!s];
            if (facts[s].reordered)
                facts[s].semantics.qkv.rope.kind = MHA_ROPE_HALF_SPLIT;
            facts[s].semantics.qkv.norm.plus_one = facts[s].norm_folded;
            facts[s].reordered = facts[s].norm_folded = false;
        }
    return MHA_OK;
}

/* The output of a layer, in memory of the arena. */
static mha_status run_layer(const mha_layer *layer, const mha_model_facts *facts, mha__arena *arena, mha_view *output,
                            mha_error *error)
{
    const mha_config *config = mha_layer_config(layer);
    const mha_view input = obtain_view(arena, MHA_F32, 3, (size_t[]){1, TOKENS, config->d_q});
    *output = obtain_view(arena, MHA_F32, 3, (size_t[]){1, TOKENS, config->d_out});
    mha_random_fill(&input, SEED, 0, -1.0f, 1.0f);
    mha_call call = {.query = input, .output = *output, .semantics = mha_model_semantics(facts)};
    return mha_run(layer, &call, error);
}

/* A matrix of a layer as a file of its type would store it. */
static mha_file_tensor as_in_file(const mha_view *view, mha_dtype dtype)
{
    mha_file_tensor t = {.dtype = dtype, .reads_as = MHA_F32, .rank = view->rank, .elements = mha_view_elements(view)};
    memcpy(t.shape, view->shape, sizeof t.shape);
    (void)mha_dtype_bytes(dtype, t.elements, &t.bytes, NULL); /* never fails: such a tensor is there */
    return t;
}

/* A matrix of a layer in F32, its outputs in the order in which halves are rotated. */
static mha_view values_of(const mha_layer *layer, mha_weight w, bool in_pairs, mha__arena *arena)
{
    const mha_view view = mha_tensor_view(mha_layer_weight(layer, w)),
                   values = obtain_view(arena, MHA_F32, view.rank, view.shape);
    (void)mha_view_copy(&values, &view, NULL); /* never fails: a layer has types that can be read */
    if (!in_pairs || (w != MHA_W_Q && w != MHA_W_K) || view.rank != 2)
        return values;
    const mha_config *config = mha_layer_config(layer);
    const mha_view rows = mha__view_swap(&values, 0, 1),
                   ordered = firsts_before_seconds(&rows, w == MHA_W_Q ? config->n_heads : config->kv_heads, arena);
    return mha__view_swap(&ordered, 0, 1);
}

static mha_status compare_matrices(mha_layer *const both[2], const mha_model_facts facts[2], const char *prefix,
                                   const double tolerance[2], mha__arena *arena, compared_layers *to,
                                   mha_error *error)
{
    const bool differ = facts[0].reordered != facts[1].reordered;
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_tensor *a = mha_layer_weight(both[0], (mha_weight)w), *b = mha_layer_weight(both[1], (mha_weight)w);
        if (!a || !b || mha_tensor_info_of(b).dtype == MHA_F32)
            continue;
        mha_view values[2];
        for (int s = 0; s < 2; s++)
            values[s] = values_of(both[s], (mha_weight)w, differ && facts[s].reordered, arena);
        matrix_difference d = {.a = as_in_file(&values[0], mha_tensor_info_of(a).source_dtype),
                               .b = as_in_file(&values[1], mha_tensor_info_of(b).dtype)};
        TRY(mha_compare(&values[0], &values[1], tolerance[0], tolerance[1], &d.difference, error));
        d.name = text_of("%s%s%s", prefix, *prefix ? "." : "", mha_weight_at((mha_weight)w)->name);
        to->matrices[to->n_matrices++] = d;
    }
    return MHA_OK;
}

static mha_status compare_layer(const source *sides[2], const mha_found_layer *layers[2], mha_dtype rounded,
                                const double tolerance[2], compared_layers *to, mha_error *error)
{
    layer_difference *found = &to->list[to->n];
    mha_layer *both[2] = {NULL};
    mha__arena arena = {0};
    mha_view outputs[2] = {{0}};
    mha_model_facts facts[2] = {{.made = 0}, {.made = 0}};
    mha_status status = facts_of_both(sides, layers, facts, error);
    for (int s = 0; s < 2 && status == MHA_OK; s++)
        status = mha_model_load_layer(sides[s]->file,
                                      &(mha_load_options){.layer = layers[s]->prefix,
                                                          .facts = facts[s].config.n_heads ? &facts[s] : NULL,
                                                          .has_dtype = s == 1 && rounded != MHA_F32,
                                                          .dtype = rounded},
                                      NULL, &both[s], NULL, error);
    for (int s = 0; s < 2 && status == MHA_OK; s++)
        status = run_layer(both[s], &facts[s], &arena, &outputs[s], error);
    if (status == MHA_OK)
        status = mha_compare(&outputs[0], &outputs[1], 0, 0, &found->output, error);
    double squares = 0;
    for (size_t i = 0; status == MHA_OK && i < found->output.elements; i++)
        squares += pow((double)((const float *)outputs[1].data)[i], 2);
    if (status == MHA_OK && found->output.rms > 0)
        found->relative = found->output.rms / sqrt(squares / (double)found->output.elements);
    found->layer = *layers[0];
    if (status == MHA_OK && rounded != MHA_F32)
        status = compare_matrices(both, facts, layers[0]->prefix, tolerance, &arena, to, error);
    mha_layer_destroy(both[0]);
    mha_layer_destroy(both[1]);
    mha__arena_free(&arena);
    return status;
}

int compare_layers(const source *a, const source *b, mha_dtype rounded, const double tolerance[2],
                   compared_layers *layers)
{
    const source *sides[2] = {a, b};
    const size_t count = mha_model_find_layers(a->file, NULL, 0);
    *layers = (compared_layers){0};
    if (count == 0 || count != mha_model_find_layers(b->file, NULL, 0) ||
        (rounded == MHA_F32 && !has_quantised(a->file) && !has_quantised(b->file)))
        return EXIT_DONE;
    mha_found_layer *found[2];
    for (int s = 0; s < 2; s++) {
        found[s] = keep(obtain(count, sizeof **found));
        mha_model_find_layers(sides[s]->file, found[s], count);
    }
    layers->list = keep(obtain(count, sizeof *layers->list));
    layers->matrices = keep(obtain(count * MHA_WEIGHT_COUNT, sizeof *layers->matrices));
    int code = EXIT_DONE;
    while (layers->n < count && !layers->obstacle && code == EXIT_DONE) {
        mha_error error = {0};
        const mha_found_layer *one[2] = {&found[0][layers->n], &found[1][layers->n]};
        const mha_status status = compare_layer(sides, one, rounded, tolerance, layers, &error);
        if (status != MHA_OK && exit_code_of(status) == EXIT_MACHINE)
            code = refuse_error(mha_file_path(a->file), &error);
        else if (status != MHA_OK)
            layers->obstacle = text_of("%s: %s", error.name, error.message);
        else
            layers->n++;
    }
    return code;
}
