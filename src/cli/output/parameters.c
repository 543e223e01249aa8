/* Shows the rows and totals of a parameter table, as text or JSON, in one form for all commands. */
#include "cli/output/parameters.h"

#include <string.h>

/* The weight of the layer in a row; MHA_WEIGHT_COUNT for a row that is not the layer's. */
static mha_weight weight_of(const mha_layer *layer, const mha_tensor *row)
{
    int w = 0;
    while (layer && w < MHA_WEIGHT_COUNT && mha_layer_weight(layer, (mha_weight)w) != row)
        w++;
    return layer ? (mha_weight)w : MHA_WEIGHT_COUNT;
}

/* ---------------------------------------------------------------- text */

static const char *const text_titles[] = {"name", "shape", "in symbols", "type", ">elements", ">bytes", ""};
static const char *const data_titles[] = {"name",         "role",      "shape",  "dtype",
                                          "source_dtype", ">elements", ">bytes", ">storage",
                                          "alias_of",     "trainable", "kind",   ">inert_elements"};
enum {
    TEXT_COLUMNS = sizeof text_titles / sizeof *text_titles,
    DATA_COLUMNS = sizeof data_titles / sizeof *data_titles
};

static const char *kind_name(const mha_tensor_info *info)
{
    return info->kind == MHA_TENSOR_PARAMETER ? "parameter" : info->kind == MHA_TENSOR_BUFFER ? "buffer" : "derived";
}

static void text_row(table *t, const mha_tensor_info *info, const char *symbol)
{
    table_cell(t, info->name);
    table_shape(t, info->rank, info->shape);
    table_cell(t, symbol);
    if (info->source_dtype != info->dtype)
        table_format(t, "%s (file: %s)", mha_dtype_name(info->dtype), mha_dtype_name(info->source_dtype));
    else
        table_cell(t, mha_dtype_name(info->dtype));
    table_count(t, info->elements);
    table_bytes(t, info->bytes);
    table_cell(t, info->kind == MHA_TENSOR_PARAMETER ? "" : kind_name(info));
}

static void data_row(table *t, const mha_tensor_info *info)
{
    table_cell(t, info->name);
    table_cell(t, info->role);
    table_shape(t, info->rank, info->shape);
    table_cell(t, mha_dtype_name(info->dtype));
    table_cell(t, mha_dtype_name(info->source_dtype));
    table_count(t, info->elements);
    table_count(t, info->bytes);
    table_count(t, info->storage);
    table_cell(t, info->alias_of ? info->alias_of : "");
    table_cell(t, info->trainable ? "true" : "false");
    table_cell(t, kind_name(info));
    table_count(t, info->inert_elements);
}

/* Which element of the weight, row by row, a head's slice begins with. Blocks lie along the rows of a column. */
static size_t first_element(const mha_tensor_info *info, const mha_view *slice)
{
    const size_t before = (size_t)((const char *)slice->data - (const char *)info->data);
    size_t block = 0;
    if (mha_dtype_bytes(slice->dtype, 1, &block) == MHA_OK)
        return before / block;
    const size_t in_storage = before * (info->elements / 32) / (info->bytes / 32);
    return in_storage % info->shape[0] * info->shape[1] + in_storage / info->shape[0];
}

/* A head's part of a weight, and its first element; false where the weight has none of that head. Rows of a quantised
 * W_O that begin inside a block are no view of their own: they have the shape of head 0, further down. */
static bool find_slice(const mha_layer *layer, mha_weight weight, const mha_tensor_info *info, size_t head,
                       mha_view *slice, size_t *first)
{
    *slice = mha_layer_head(layer, weight, head);
    if (slice->data) {
        *first = first_element(info, slice);
        return true;
    }
    if (weight != MHA_W_O || head >= mha_layer_config(layer)->n_heads)
        return false;
    *slice = mha_layer_head(layer, weight, 0);
    *first = head * mha_view_elements(slice);
    return true;
}

/* Adds a row for a head's slice: a view of the row above, whose elements belong to no total. */
static void head_row(table *t, table_style style, const mha_tensor_info *info, mha_weight weight, size_t head,
                     const mha_view *slice, size_t first)
{
    size_t bytes = 0;
    mha_dtype_bytes(slice->dtype, mha_view_elements(slice), &bytes);
    if (style != TABLE_CSV) {
        bool rows = weight == MHA_W_O; /* W_O is cut by rows, all other matrices by columns */
        size_t from = first / (rows ? info->shape[1] : 1);
        size_t width = slice->shape[rows ? 0 : slice->rank - 1];
        const char *what = rows ? "row" : slice->rank == 2 ? "column" : "element";
        table_format(t, "  head %zu", head);
        table_shape(t, slice->rank, slice->shape);
        if (width == 1)
            table_format(t, "%s %zu", what, from);
        else
            table_format(t, "%ss %zu to %zu", what, from, from + width - 1);
        table_cell(t, "view");
        table_count(t, mha_view_elements(slice));
        table_bytes(t, bytes);
        table_cell(t, "");
        return;
    }
    table_format(t, "%s[head %zu]", info->name, head);
    table_cell(t, info->role);
    table_shape(t, slice->rank, slice->shape);
    table_cell(t, mha_dtype_name(slice->dtype));
    table_cell(t, mha_dtype_name(info->source_dtype));
    table_count(t, mha_view_elements(slice));
    table_count(t, bytes);
    table_count(t, info->storage);
    table_cell(t, info->name);
    table_cell(t, info->trainable ? "true" : "false");
    table_cell(t, "view");
    table_count(t, 0);
}

static void total_row(table *t, const mha_totals *all)
{
    table_cell(t, "total");
    table_cell(t, "");
    table_cell(t, "");
    table_cell(t, "");
    table_count(t, all->parameters);
    table_bytes(t, all->parameter_bytes);
    table_cell(t, "");
}

static void print_totals(mha_params *params, const mha_totals *all)
{
    char elements[SHORT_TEXT], bytes[SHORT_TEXT];
    printf("\n  %stotal  %s parameters%s in %s, %zu storages\n", bold(), count_text(elements, all->parameters), plain(),
           bytes_text(bytes, all->parameter_bytes), all->storages);
    if (all->derived_bytes)
        printf("  built from parameters, not counted: %s in %zu storages\n",
               bytes_text(bytes, all->derived_bytes), all->derived_storages);
    for (size_t i = 0; all->inert && i < mha_params_count(params); i++) {
        mha_tensor_info info = mha_tensor_info_of(mha_params_at(params, i));
        if (info.inert_elements)
            printf("  %s of them, %s, cannot change the output: %s\n", count_text(elements, info.inert_elements),
                   info.name, info.inert_why);
    }
}

void parameters_print(mha_params *params, const mha_layer *layer, bool per_head, table_style style)
{
    table *t = style == TABLE_CSV ? table_create(style, DATA_COLUMNS, data_titles)
                                  : table_create(style, TEXT_COLUMNS, text_titles);
    for (size_t i = 0; i < mha_params_count(params); i++) {
        const mha_tensor *row = mha_params_at(params, i);
        mha_tensor_info info = mha_tensor_info_of(row);
        mha_weight weight = weight_of(layer, row);
        const char *symbol = "";
        size_t shape[2];
        if (weight != MHA_WEIGHT_COUNT)
            mha_config_weight_shape(mha_layer_config(layer), weight, shape, &symbol);
        if (style == TABLE_CSV)
            data_row(t, &info);
        else
            text_row(t, &info, symbol);
        for (size_t head = 0; per_head && weight != MHA_WEIGHT_COUNT; head++) {
            mha_view slice;
            size_t first;
            if (!find_slice(layer, weight, &info, head, &slice, &first))
                break;
            head_row(t, style, &info, weight, head, &slice, first);
        }
    }
    mha_totals all = mha_params_totals(params, NULL);
    if (style == TABLE_MARKDOWN)
        total_row(t, &all);
    table_print(t);
    if (style == TABLE_TEXT)
        print_totals(params, &all);
}

/* ---------------------------------------------------------------- JSON */

void parameters_json_totals(json_t *object, mha_params *params)
{
    mha_totals all = mha_params_totals(params, NULL), attention = mha_params_totals(params, "attention");
    json_object_set_new(object, "total_parameters", json_count(all.parameters));
    json_object_set_new(object, "attention_parameters", json_count(attention.parameters));
    json_object_set_new(object, "trainable_parameters", json_count(all.trainable));
    json_object_set_new(object, "total_bytes", json_count(all.parameter_bytes));
    json_object_set_new(object, "buffer_elements", json_count(all.buffers));
    json_object_set_new(object, "buffer_bytes", json_count(all.buffer_bytes));
    json_object_set_new(object, "derived_bytes", json_count(all.derived_bytes));
    json_object_set_new(object, "inert_elements", json_count(all.inert));
    json_object_set_new(object, "storages", json_count(all.storages));
}

static json_t *json_heads(const mha_layer *layer, mha_weight weight, const mha_tensor_info *info)
{
    json_t *heads = json_array();
    mha_view slice;
    for (size_t head = 0, first; find_slice(layer, weight, info, head, &slice, &first); head++) {
        json_t *stride = json_array();
        for (int k = 0; k < slice.rank; k++)
            json_array_append_new(stride, json_integer(slice.stride[k]));
        json_array_append_new(heads, json_pack("{so so so so so}", "head", json_count(head), "shape",
                                               json_shape(slice.rank, slice.shape), "first_element", json_count(first),
                                               "stride", stride, "elements", json_count(mha_view_elements(&slice))));
    }
    return heads;
}

json_t *parameters_json_row(const mha_tensor *tensor, const mha_layer *layer)
{
    mha_tensor_info info = mha_tensor_info_of(tensor);
    mha_weight weight = weight_of(layer, tensor);
    json_t *row = json_pack("{so so so so so so so so so sb ss so}", "name", json_text(info.name), "role",
                            json_text(info.role), "shape", json_shape(info.rank, info.shape), "dtype",
                            json_text(mha_dtype_name(info.dtype)), "source_dtype",
                            json_text(mha_dtype_name(info.source_dtype)), "elements", json_count(info.elements),
                            "bytes", json_count(info.bytes), "storage", json_count(info.storage), "alias_of",
                            json_text(info.alias_of), "trainable", (int)info.trainable, "kind", kind_name(&info),
                            "inert_elements", json_count(info.inert_elements));
    if (weight != MHA_WEIGHT_COUNT)
        json_object_set_new(row, "heads", json_heads(layer, weight, &info));
    return row;
}

json_t *parameters_json_rows(mha_params *params, const mha_layer *layer)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < mha_params_count(params); i++)
        json_array_append_new(rows, parameters_json_row(mha_params_at(params, i), layer));
    return rows;
}
