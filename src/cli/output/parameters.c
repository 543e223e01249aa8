/* Shows the rows and totals of a parameter table, as text or JSON, in one form for all commands. */
#include "attention/layer/layer.h"
#include "cli/output/report.h"

/* The weight of the layer in a row; MHA_WEIGHT_COUNT for a row that is not the layer's. */
static mha_weight weight_of(const mha_layer *layer, const mha_tensor *row)
{
    int w = 0;
    while (layer && w < MHA_WEIGHT_COUNT && mha_layer_weight(layer, (mha_weight)w) != row)
        w++;
    return layer ? (mha_weight)w : MHA_WEIGHT_COUNT;
}

/* ---------------------------------------------------------------- records */

static const char *kind_name(const mha_tensor_info *info)
{
    return info->kind == MHA_TENSOR_PARAMETER ? "parameter" : info->kind == MHA_TENSOR_BUFFER ? "buffer" : "derived";
}

/* A row of a table, or a part of one. `kind`: NULL for that of the row. */
static json_t *info_record(const mha_tensor_info *info, const char *kind)
{
    return record_of("name", J(info->name), "role", J(info->role), "shape", json_shape(info->rank, info->shape),
                     "dtype", J(mha_dtype_name(info->dtype)), "source_dtype", J(mha_dtype_name(info->source_dtype)),
                     "elements", J(info->elements), "bytes", J(info->bytes), "packed_bytes", J(info->packed_bytes),
                     "storage", J(info->storage), "alias_of", J(info->alias_of), "trainable",
                     json_boolean(info->trainable), "kind", J(kind ? kind : kind_name(info)), "inert_elements",
                     J(info->inert_elements), NULL);
}

/* A row in text: its shape in symbols, and the type that its file has. */
static json_t *row_record(const mha_tensor_info *info, const char *symbols)
{
    const char *type = mha_dtype_name(info->dtype), *packed = info->data ? "packed, too" : "packed";
    const char *kind = info->kind != MHA_TENSOR_PARAMETER ? kind_name(info) : info->packed_bytes ? packed : NULL;
    return record_with(info_record(info, NULL), "~name", J(info->name), "~symbols", J(symbols), "~type",
                       info->source_dtype != info->dtype
                           ? json_words("%s (file: %s)", type, mha_dtype_name(info->source_dtype))
                           : J(type),
                       "~kind", J(kind), NULL);
}

/* A head's part of a weight, without data, and which element of the weight, row by row, it begins with; false where the
 * weight has none of that head. */
static bool find_slice(const mha_layer *layer, mha_weight weight, const mha_tensor_info *info, size_t head,
                       mha_view *slice, size_t *first)
{
    const mha__weight_heads by = mha__config_weight_heads(mha_layer_config(layer), weight);
    size_t bytes;
    if (head >= by.heads)
        return false;
    mha_view whole = mha_view_of(NULL, info->dtype, info->rank, info->shape);
    if (mha_dtype_bytes(info->dtype, 1, &bytes, NULL) != MHA_OK) /* blocks, which run down the columns */
        whole.stride[0] = 1, whole.stride[1] = (ptrdiff_t)info->shape[0];
    *slice = mha_view_slice(&whole, by.axis, head * by.width, by.width);
    *first = head * by.width * (by.axis + 1 < info->rank ? info->shape[1] : 1);
    return true;
}

/* A row for a head's slice: a view of the row above, whose elements belong to no total. */
static json_t *head_record(const mha_tensor_info *whole, mha_weight weight, size_t head, const mha_view *slice,
                           size_t first)
{
    const bool rows = weight == MHA_W_O; /* W_O is cut by rows, all other matrices by columns */
    const size_t from = first / (rows ? whole->shape[1] : 1), width = slice->shape[rows ? 0 : slice->rank - 1];
    const char *what = rows ? "row" : slice->rank == 2 ? "column" : "element";
    mha_tensor_info info = *whole;
    info.name = text_of("%s[head %zu]", whole->name, head);
    info.alias_of = whole->name;
    info.rank = slice->rank;
    memcpy(info.shape, slice->shape, sizeof info.shape);
    info.dtype = slice->dtype;
    info.elements = mha_view_elements(slice);
    info.inert_elements = info.bytes = 0;
    mha_dtype_bytes(info.dtype, info.elements, &info.bytes, NULL);
    return record_with(info_record(&info, "view"), "~name", json_words("  head %zu", head), "~symbols",
                                 width == 1 ? json_words("%s %zu", what, from)
                                            : json_words("%ss %zu to %zu", what, from, from + width - 1),
                                 "~type", J("view"), NULL);
}

static void print_totals(mha_params *params, const mha_totals *all)
{
    say("\n  %stotal  %s parameters%s in %s, %zu storages\n", bold(), count_text(all->parameters), plain(),
        bytes_text(all->parameter_bytes), all->storages);
    if (all->derived_bytes)
        say("  built from parameters, not counted: %s in %zu storages\n", bytes_text(all->derived_bytes),
            all->derived_storages);
    for (size_t i = 0; all->inert && i < mha_params_count(params); i++) {
        mha_tensor_info info = mha_tensor_info_of(mha_params_at(params, i));
        if (info.inert_elements)
            say("  %s of them, %s, cannot change the output: %s\n", count_text(info.inert_elements), info.name,
                info.inert_why);
    }
}

table *parameters_csv(void)
{
    static const char *const columns[] = {
        "name: name", "role: role", "shape: shape", "dtype: dtype", "source_dtype: source_dtype",
        ">elements: elements", ">bytes: bytes", ">storage: storage", "alias_of: alias_of", "trainable: trainable",
        "kind: kind", ">inert_elements: inert_elements"};
    return table_create(sizeof columns / sizeof *columns, columns);
}

void parameters_csv_row(table *t, const mha_tensor_info *info)
{
    report_row(t, info_record(info, NULL));
}

void parameters_print(mha_params *params, const mha_layer *layer, bool per_head)
{
    static const char *const of_text[] = {
        "name: ~name", "shape: shape", "??in symbols: ~symbols", "?type: ~type", ">elements: elements",
        ">bytes: bytes: %B", ": ~kind"};
    table *t = tables_style() == TABLE_CSV ? parameters_csv() : table_create(sizeof of_text / sizeof *of_text, of_text);
    for (size_t i = 0; i < mha_params_count(params); i++) {
        const mha_tensor *row = mha_params_at(params, i);
        const mha_tensor_info info = mha_tensor_info_of(row);
        const mha_weight weight = weight_of(layer, row);
        const char *symbols = "";
        size_t shape[2], first;
        mha_view slice;
        if (weight != MHA_WEIGHT_COUNT)
            mha_config_weight_shape(mha_layer_config(layer), weight, shape, &symbols);
        report_row(t, row_record(&info, symbols));
        for (size_t head = 0; per_head && weight != MHA_WEIGHT_COUNT; head++) {
            if (!find_slice(layer, weight, &info, head, &slice, &first))
                break;
            report_row(t, head_record(&info, weight, head, &slice, first));
        }
    }
    const mha_totals all = mha_params_totals(params, NULL);
    if (tables_style() == TABLE_MARKDOWN || tables_style() == TABLE_LATEX)
        report_row(
            t, record_of("~name", J("total"), "elements", J(all.parameters), "bytes", J(all.parameter_bytes), NULL));
    table_print(t);
    print_totals(params, &all);
}

/* ---------------------------------------------------------------- JSON */

void parameters_json_totals(json_t *object, mha_params *params)
{
    const mha_totals all = mha_params_totals(params, NULL), attention = mha_params_totals(params, "attention");
    record_with(object, "total_parameters", J(all.parameters), "attention_parameters", J(attention.parameters),
                "trainable_parameters", J(all.trainable), "total_bytes", J(all.parameter_bytes), "buffer_elements",
                J(all.buffers), "buffer_bytes", J(all.buffer_bytes), "derived_bytes", J(all.derived_bytes),
                "inert_elements", J(all.inert), "storages", J(all.storages), NULL);
}

json_t *parameters_json_row(const mha_tensor *tensor, const mha_layer *layer)
{
    const mha_tensor_info info = mha_tensor_info_of(tensor);
    const mha_weight weight = weight_of(layer, tensor);
    json_t *row = info_record(&info, NULL);
    mha_view slice;
    if (weight == MHA_WEIGHT_COUNT)
        return row;
    json_t *heads = json_array();
    for (size_t head = 0, first; find_slice(layer, weight, &info, head, &slice, &first); head++) {
        json_t *stride = json_array();
        for (int k = 0; k < slice.rank; k++)
            json_array_append_new(stride, json_integer(slice.stride[k]));
        json_array_append_new(heads, record_of("head", J(head), "shape", json_shape(slice.rank, slice.shape),
                                               "first_element", J(first), "stride", stride, "elements",
                                               J(mha_view_elements(&slice)), NULL));
    }
    return record_with(row, "heads", heads, NULL);
}

json_t *parameters_json_rows(mha_params *params, const mha_layer *layer)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < mha_params_count(params); i++)
        json_array_append_new(rows, parameters_json_row(mha_params_at(params, i), layer));
    return rows;
}
