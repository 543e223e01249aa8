/* Checkpoint files: the table of all their tensors, their differences from a model, and whose names these are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/file.h"
#include "lab/lab.h"
#include "models/model.h"
#include "models/layer/tensor_names.h"

const char *mha_finding_name(mha_finding_kind kind)
{
    static const char *const names[] = {[MHA_FINDING_MISSING] = "missing",
                                        [MHA_FINDING_EXTRA] = "extra",
                                        [MHA_FINDING_MISSHAPEN] = "misshapen",
                                        [MHA_FINDING_TIED] = "stored twice",
                                        [MHA_FINDING_BUFFER] = "buffer"};
    _Static_assert(sizeof names / sizeof *names == MHA_FINDING_COUNT, "every kind has a name");
    return mha__name_at(names, MHA_FINDING_COUNT, (size_t)kind);
}

static void tell(mha_finding_function found, void *context, mha_finding finding)
{
    if (found)
        found(context, &finding);
}

static mha_finding about(mha_finding_kind kind, const mha_file_tensor *tensor)
{
    mha_finding finding = {
        .kind = kind, .name = tensor->name, .found_rank = tensor->rank, .elements = tensor->elements};
    memcpy(finding.found_shape, tensor->shape, sizeof finding.found_shape);
    return finding;
}

/* ---------------------------------------------------------------- what a name says */

/* Names under which libraries store tensors that are not learned. GPT-2's causal mask is called a bias, but has rank
 * 4. */
static bool is_buffer(const mha_file_tensor *tensor)
{
    static const char *const endings[] = {"position_ids", ".inv_freq", "rope.freqs", "attn.masked_bias",
                                          "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight",
                                          "num_batches_tracked", ".k_scale", ".v_scale", ".input_scale"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (mha__text_ends(tensor->name, endings[i]))
            return true;
    return mha__text_ends(tensor->name, "attn.bias") && tensor->rank == 4;
}

/* Endings of the names of tensors that libraries tie. */
static const struct {
    const char *alias, *owner;
} ties[] = {
#include "ties.inc"
};

static bool same_place(const mha_file_tensor *a, const mha_file_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0;
}

/* The numbers of tensors that may own a copy and of pairs that are compared. A real file has fewer; in a hostile one
 * they bound the work. */
enum { OWNERS = 64, COPIES = 64 };

typedef struct owners {
    const mha_file_tensor *list[OWNERS];
    size_t count, copies; /* copies: pairs compared so far */
} owners;

static void find_owners(const mha_file *file, owners *found)
{
    const mha_file_tensor *tensor;
    for (size_t i = 0; (tensor = mha_file_at(file, i)); i++)
        for (size_t t = 0; t < sizeof ties / sizeof *ties; t++)
            if (found->count < OWNERS && mha__text_ends(tensor->name, ties[t].owner)) {
                found->list[found->count++] = tensor;
                break;
            }
}

/* *original: the tensor that `tensor` copies, or NULL. */
static mha_status find_original(const mha_file *file, owners *candidates, const mha_file_tensor *tensor,
                                const mha_file_tensor **original, mha_error *error)
{
    *original = NULL;
    for (size_t t = 0; t < sizeof ties / sizeof *ties; t++) {
        if (!mha__text_ends(tensor->name, ties[t].alias))
            continue;
        for (size_t i = 0; i < candidates->count && candidates->copies < COPIES; i++) {
            const mha_file_tensor *owner = candidates->list[i];
            if (owner == tensor || !mha__text_ends(owner->name, ties[t].owner) || !same_place(owner, tensor))
                continue;
            bool equal = false;
            candidates->copies++;
            mha_status status = mha__file_same_bytes(file, tensor, owner, &equal, error);
            if (status != MHA_OK || equal) {
                *original = status != MHA_OK ? NULL : owner;
                return status;
            }
        }
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- listing */

mha_status mha_file_list_params(const mha_file *file, mha_params *table, mha_finding_function found, void *context,
                                mha_file_totals *totals, mha_error *error)
{
    mha_file_totals sum = {0};
    const mha_file_tensor *tensor, *original;
    owners candidates = {0};
    find_owners(file, &candidates);
    for (size_t i = 0; (tensor = mha_file_at(file, i)); i++) {
        mha__file_layer layer;
        const bool held = mha__file_layer_of(file, tensor, &layer);
        bool buffer = is_buffer(tensor);
        mha_tensor_spec spec = {
            .name = *tensor->name ? tensor->name : "tensor", .dtype = tensor->dtype, .rank = tensor->rank};
        memcpy(spec.shape, tensor->shape, sizeof spec.shape);
        spec.kind = buffer ? MHA_TENSOR_BUFFER : MHA_TENSOR_PARAMETER;
        spec.group = held ? MHA_GROUP_ATTENTION : "";
        if (held)
            spec.role = !mha__scheme_fuses(layer.scheme, layer.weight) ? mha_weight_at(layer.weight)->name
                        : mha__scheme_needs(layer.scheme, layer.weight) ? "W_QKV"
                                                                       : "b_QKV";
        TRY(mha_params_add(table, &spec, NULL, error));
        TRY(find_original(file, &candidates, tensor, &original, error));
        sum.tensors++;
        sum.elements += tensor->elements;
        sum.bytes += tensor->bytes;
        size_t here = 0;
        mha_dtype_bytes(tensor->reads_as, tensor->elements, &here, NULL); /* fits: as many elements have been counted */
        sum.bytes_here += here;
        *(buffer ? &sum.buffers : &sum.parameters) += tensor->elements;
        sum.unique += buffer || original ? 0 : tensor->elements;
        sum.attention += held ? tensor->elements : 0;
        mha_finding finding = about(original ? MHA_FINDING_TIED : MHA_FINDING_BUFFER, tensor);
        finding.other = original ? original->name : NULL;
        if (original || buffer)
            tell(found, context, finding);
    }
    if (totals)
        *totals = sum;
    return MHA_OK;
}

/* ---------------------------------------------------------------- against a model */

/* The spellings under which a tensor of the model may be in a file, and the other way round: the name and its other
 * spellings, each as it is, without the base prefix, with it. A visitor returns what it finds under one, or NULL. */
typedef const void *visit_name(const void *where, const char *name);

static const void *in_file(const void *file, const char *name)
{
    return mha_file_find(file, name);
}

static const void *in_table(const void *table, const char *name)
{
    return mha_params_find(table, name);
}

static const void *find_spelled(const mha_model *model, const char *spelled, visit_name *visit, const void *where)
{
    const char *prefix = model->setup.architecture->base_prefix;
    const size_t length = strlen(prefix);
    char room[MHA_SPELLING], other[MHA_SPELLING];
    const void *found = NULL;
    size_t next = 0;
    for (const char *name = spelled; name && !found; name = mha__other_spelling(spelled, &next, other)) {
        found = visit(where, name);
        if (!found && strncmp(name, prefix, length) == 0)
            found = visit(where, name + length);
        if (!found && snprintf(room, sizeof room, "%s%s", prefix, name) < MHA_SPELLING)
            found = visit(where, room);
    }
    return found;
}

size_t mha_model_check_file(const mha_model *model, const mha_file *file, mha_finding_function found, void *context)
{
    size_t wrong = 0;
    for (size_t i = 0; i < model->n_rows; i++) {
        mha_tensor_info info = mha_tensor_info_of(model->rows[i].tensor);
        const mha_file_tensor *tensor = find_spelled(model, info.name, in_file, file);
        mha_finding finding = {.kind = MHA_FINDING_MISSING, .name = info.name, .elements = info.elements};
        if (tensor)
            finding = about(MHA_FINDING_MISSHAPEN, tensor);
        finding.other = info.alias_of;
        finding.expected_rank = info.rank;
        memcpy(finding.expected_shape, info.shape, sizeof finding.expected_shape);
        bool same = tensor && tensor->rank == info.rank &&
                    memcmp(tensor->shape, info.shape, (size_t)info.rank * sizeof *info.shape) == 0;
        if (!tensor && (info.kind == MHA_TENSOR_BUFFER || info.alias_of || model->rows[i].description->unsaved))
            continue; /* a file need not have them */
        if (tensor && (same || info.kind == MHA_TENSOR_BUFFER)) {
            finding.kind = info.kind == MHA_TENSOR_BUFFER ? MHA_FINDING_BUFFER : MHA_FINDING_TIED;
            if (info.kind == MHA_TENSOR_BUFFER || info.alias_of)
                tell(found, context, finding);
            continue;
        }
        wrong++;
        tell(found, context, finding);
    }
    const mha_file_tensor *tensor;
    for (size_t i = 0; (tensor = mha_file_at(file, i)); i++) {
        if (find_spelled(model, tensor->name, in_table, model->table))
            continue;
        bool buffer = is_buffer(tensor);
        wrong += !buffer;
        tell(found, context, about(buffer ? MHA_FINDING_BUFFER : MHA_FINDING_EXTRA, tensor));
    }
    return wrong;
}

/* ---------------------------------------------------------------- whose names they are */

/* Blocks and experts beyond this number have the names of those before them. Fewer kinds of tensors than FEWEST are
 * not taken for a model. */
enum { LAST_BLOCK = 3, FEWEST = 4, MOST_ROWS = 512, MOST_ARCHITECTURES = 256 };

/* Whether `name` is spelled as `pattern`, in which {i} and {j} stand for whole numbers and {model} for `base` or
 * nothing; `rest` (may be NULL) is a pattern that follows. */
static bool spelled(const char *pattern, const char *rest, const char *base, const char *name)
{
    static const char model[] = "{model}";
    for (;; pattern++, name++) {
        if (!*pattern && rest)
            return spelled(rest, NULL, base, name);
        if (strncmp(pattern, model, sizeof model - 1) == 0) {
            const char *after = pattern + sizeof model - 1;
            const size_t n = strlen(base);
            return (strncmp(name, base, n) == 0 && spelled(after, rest, base, name + n)) ||
                   spelled(after, rest, base, name);
        }
        if (*pattern == '{') {
            const size_t digits = strspn(name, "0123456789");
            const char *end = strchr(pattern, '}');
            if (digits == 0 || !end)
                return false;
            pattern = end;
            name += digits - 1;
        } else if (*pattern != *name)
            return false;
        else if (!*pattern)
            return true;
    }
}

static bool is_row(const mha__architecture *a, const mha__arch_tensor *row, const char *name)
{
    const size_t n = strlen(a->base_prefix);
    return spelled(row->prefix, row->name, a->base_prefix, name) ||
           (n > 0 && strncmp(name, a->base_prefix, n) == 0 &&
            spelled(row->prefix, row->name, a->base_prefix, name + n));
}

/* The first of `rows` rows, those marked `never` aside, whose name a tensor has in any spelling; `rows`: none. */
static size_t row_of(const mha__architecture *a, size_t rows, const bool *never, const char *tensor)
{
    char room[MHA_SPELLING];
    size_t next = 0, row = rows;
    for (const char *name = tensor; name && row == rows; name = mha__other_spelling(tensor, &next, room))
        for (row = 0; row < rows && (never[row] || !is_row(a, &a->tensors[row], name));)
            row++;
    return row;
}

static bool in_first_blocks(const char *name)
{
    for (; *name; name++)
        if (*name >= '0' && *name <= '9') {
            char *end;
            if (strtoul(name, &end, 10) > LAST_BLOCK)
                return false;
            name = end - 1;
        }
    return true;
}

/* The rows of a description that no tensor of a file has: those that every model of it has, and those that only some
 * have. */
typedef struct missing_rows {
    bool known; /* all tensors of the file are rows */
    size_t always, sometimes;
} missing_rows;

static bool is_always_there(const mha__arch_tensor *row)
{
    return !row->section && !row->when && !row->alias_of && !row->unsaved &&
           row->kind == MHA_ARCH_PARAMETER;
}

static bool is_always_0(const mha__architecture *a, const char *formula)
{
    for (const mha__arch_key *k = a->keys; formula && k->symbol; k++)
        if (!k->keys && strcmp(k->symbol, formula) == 0)
            return strcmp(k->fallback, "0") == 0;
    return false;
}

/* Whether no model of the description has it. */
static bool is_never_there(const mha__architecture *a, const mha__arch_tensor *row)
{
    return is_always_0(a, row->when) || is_always_0(a, row->section);
}

static missing_rows rows_without_tensor(const mha__architecture *a, const mha_file *file)
{
    const mha_file_tensor *tensor;
    bool has[MOST_ROWS] = {false}, never[MOST_ROWS];
    size_t kinds = 0, attention = 0, rows = 0;
    missing_rows missing = {0};
    for (; rows < MOST_ROWS && a->tensors[rows].name; rows++)
        never[rows] = is_never_there(a, &a->tensors[rows]);
    for (size_t i = 0; (tensor = mha_file_at(file, i)); i++) {
        if (is_buffer(tensor) || !in_first_blocks(tensor->name))
            continue;
        const size_t row = row_of(a, rows, never, tensor->name);
        if (row == rows)
            return missing;
        kinds += !has[row];
        attention += strcmp(a->tensors[row].group, MHA_GROUP_ATTENTION) == 0;
        has[row] = true;
    }
    for (size_t row = 0; row < rows; row++)
        if (!has[row] && !never[row])
            *(is_always_there(&a->tensors[row]) ? &missing.always : &missing.sometimes) += 1;
    missing.known = kinds >= FEWEST && attention > 0;
    return missing;
}

size_t mha_file_architectures(const mha_file *file, const char **names, size_t capacity)
{
    missing_rows missing[MOST_ARCHITECTURES];
    size_t all = 0, count = 0, best = SIZE_MAX;
    const char *name;
    for (; all < MOST_ARCHITECTURES && (name = mha_architecture_at(all)); all++) {
        mha__architecture *a;
        missing[all] = (missing_rows){0};
        if (mha__architecture_read(name, NULL, &a, NULL) != MHA_OK)
            continue; /* no memory */
        missing[all] = rows_without_tensor(a, file);
        mha__architecture_free(a);
        if (missing[all].known && missing[all].always < best)
            best = missing[all].always;
    }
    for (size_t some = 0; some < MOST_ROWS; some++) /* those with the fewest rows to spare come first */
        for (size_t i = 0; i < all; i++)
            if (missing[i].known && missing[i].always == best && missing[i].sometimes == some) {
                if (count < capacity)
                    names[count] = mha_architecture_at(i);
                count++;
            }
    return count;
}
