/* The data of a page as a list of pieces: a description in JSON, then arrays of numbers. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "lab/lab.h"
#include "mha/setting.h"
#include "mha/system.h"
#include "picture/colour.h"
#include "picture/markup.h"
#include "picture/page/page.h"
#include "picture/sheet.h"

/* ---------------------------------------------------------------- numbers */

size_t mha__page_bytes(mha__page_type type)
{
    static const size_t bytes[] = {8, 4, 1, 4, 1};
    return bytes[type];
}

static uint8_t level_of(double weight)
{
    enum { STEPS = 252, NAN_LEVEL = 254, HIDDEN_LEVEL = 255 };
    if (isnan(weight))
        return NAN_LEVEL;
    if (mha__is_hidden(weight))
        return HIDDEN_LEVEL;
    if (weight < 1e-6)
        return 0;
    const double level = 1 + STEPS * (6 + log10(weight)) / 6;
    return level > 1 + STEPS ? 1 + STEPS : (uint8_t)lround(level);
}

static void store(uint8_t *bytes, uint64_t bits, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(bits >> 8 * i);
}

void mha__page_encode(const mha__page_piece *piece, uint8_t *bytes)
{
    const double *numbers = piece->numbers;
    for (size_t i = 0; i < piece->count; i++) {
        uint64_t bits;
        uint32_t half;
        switch (piece->type) {
        case MHA__PAGE_F64: memcpy(&bits, &numbers[i], 8), store(bytes + 8 * i, bits, 8); break;
        case MHA__PAGE_F32: memcpy(&half, &(float){(float)numbers[i]}, 4), store(bytes + 4 * i, half, 4); break;
        case MHA__PAGE_LEVEL: bytes[i] = level_of(numbers[i]); break;
        case MHA__PAGE_U32: store(bytes + 4 * i, ((const uint32_t *)piece->numbers)[i], 4); break;
        case MHA__PAGE_BYTES: bytes[i] = ((const uint8_t *)piece->numbers)[i]; break;
        }
    }
}

/* ---------------------------------------------------------------- the description */

/* Most cells of a page in float64, with scores, and in float32; the rest is levels. Most numbers of all its walks. */
static const size_t most_wide = (size_t)1 << 16, most_scores = (size_t)1 << 18, most_narrow = (size_t)1 << 19,
                    most_of_walks = (size_t)1 << 19;

/* Both take the value; one that is NULL was left without memory. */
static void append(mha__page_data *data, json_t *list, json_t *value)
{
    data->failed |= json_array_append_new(list, value) != 0;
}

static void set(mha__page_data *data, json_t *object, const char *key, json_t *value)
{
    data->failed |= json_object_set_new(object, key, value) != 0;
}

/* Gives an object an array: its index among the pieces, or -1 for an array that is missing. */
static void set_piece(json_t *object, const char *key, mha__page_data *data, const void *numbers, size_t count,
                      mha__page_type type)
{
    if (!numbers) {
        set(data, object, key, json_integer(-1));
        return;
    }
    mha__page_piece *pieces =
        mha__array_grow(&data->memory.allocator, data->pieces, data->piece_count, &data->piece_room, sizeof *pieces);
    if (!pieces) {
        data->failed = true;
        return;
    }
    data->pieces = pieces;
    pieces[data->piece_count] = (mha__page_piece){numbers, count, type};
    set(data, object, key, json_integer((json_int_t)data->piece_count++));
}

/* JSON has no NaN: null stands for it. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *count_of(size_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *indices(mha__page_data *data, const size_t *index, int rank)
{
    json_t *list = json_array();
    for (int i = 0; i < rank; i++)
        append(data, list, count_of(index[i]));
    return list;
}

/* A text of a file; bytes beyond ASCII become '?' where they are not UTF-8. */
static json_t *text(mha__page_data *data, const char *s)
{
    json_t *value = json_string(s ? s : "");
    if (value || !s)
        return value;
    char *copy = mha__arena_text(&data->memory, s, strlen(s));
    for (char *c = copy; c && *c; c++)
        *c = (unsigned char)*c > 126 ? '?' : *c;
    return copy ? json_string(copy) : NULL;
}

static json_t *texts(mha__page_data *data, const char *const *all, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        append(data, list, text(data, all[i]));
    return list;
}

static json_t *statistics(mha__page_data *data, mha__head_statistics s)
{
    json_t *o = json_pack("{so so so}", "queries", count_of(s.queries), "empty", count_of(s.empty), "broken",
                          count_of(s.broken));
    for (size_t i = 0; i < MHA__STATISTICS; i++)
        set(data, o, mha__statistic_name(i), number(*mha__statistic_at(&s, i)));
    return o;
}

static json_t *describe_head(mha__page_data *data, const mha__head *head, mha__page_type type)
{
    const size_t cells = head->rows * head->columns, top = head->queries * head->top;
    const mha__page_type scores = type == MHA__PAGE_F64 ? MHA__PAGE_F64 : MHA__PAGE_F32;
    const bool all = data->has_scores;
    json_t *o = json_pack(
        "{so so so so so so so so so so so so so}", "sequence", count_of(head->sequence), "head", count_of(head->head),
        "kvHead", count_of(head->kv_head), "firstQuery", count_of(head->first_query), "queries",
        count_of(head->queries), "firstKey", count_of(head->first_key), "keys", count_of(head->keys), "rows",
        count_of(head->rows), "columns", count_of(head->columns), "poolRows", count_of(head->pool_rows), "poolColumns",
        count_of(head->pool_columns), "top", count_of(head->top), "statistics", statistics(data, head->statistics));
    set_piece(o, "weights", data, head->weights, cells, type);
    set_piece(o, "scores", data, all ? head->scores : NULL, cells, scores);
    set_piece(o, "masked", data, all ? head->masked : NULL, cells, scores);
    set_piece(o, "topWeights", data, head->top_weights, top, MHA__PAGE_F32);
    set_piece(o, "topKeys", data, head->top_keys, top, MHA__PAGE_U32);
    return o;
}

static size_t numbers_of(const mha__walk *walk)
{
    size_t count = 0;
    for (size_t i = 0; i < walk->count; i++)
        count += walk->arrays[i].view.data ? mha_view_elements(&walk->arrays[i].view) : 0;
    return count;
}

/* The numbers, switches (0, 1) and choices (their values) of a call by their names; arrays lie beside them. */
static json_t *settings_of(mha__page_data *data, const mha_semantics *semantics)
{
    json_t *settings = json_object();
    const mha_setting *s;
    for (size_t i = 0; (s = mha_setting_at(i)); i++)
        if (s->kind < MHA_SETTING_VIEW && isfinite(mha_setting_number(s, semantics)))
            set(data, settings, s->name, number(mha_setting_number(s, semantics)));
    return settings;
}

static json_t *describe_walk(mha__page_data *data, const mha__walk *walk)
{
    json_t *arrays = json_object(), *hides = json_array();
    for (size_t i = 0; i < walk->count; i++) {
        const mha_view *v = &walk->arrays[i].view;
        json_t *array = json_pack("{so so}", "rows", count_of(v->rank == 1 ? 1 : v->shape[v->rank - 2]), "columns",
                                  count_of(v->shape[v->rank - 1]));
        set_piece(array, "numbers", data, v->data, mha_view_elements(v), MHA__PAGE_F64);
        set(data, arrays, walk->arrays[i].name, array);
    }
    for (size_t i = 0; walk->hides[i]; i++)
        append(data, hides, json_string(walk->hides[i]));
    const mha__latent *l = &walk->latent;
    json_t *rows = json_pack(
        "{s[ii] so so so so sb}", "norms", (int)walk->norm[0], (int)walk->norm[1], "normEps", number(walk->norm_eps),
        "kvRank", count_of(l->kv_rank), "ownFeatures", count_of(l->d_n), "valueWidth", count_of(l->d_v), "absorbed",
        l->absorbed);
    return json_pack("{so so so so so so so so so sI sI sI so so}", "rows", rows, "hides", hides, "settings",
                     settings_of(data, &walk->semantics), "sequence", count_of(walk->sequence), "firstHead",
                     count_of(walk->first_head), "heads", count_of(walk->heads), "past", count_of(walk->past), "scale",
                     number(walk->scale), "ropeDim", count_of(walk->rope_dim), "offset", (json_int_t)walk->offset,
                     "firstKey", (json_int_t)walk->first_key, "length", (json_int_t)walk->length, "ropeTimes",
                     number(walk->rope_times), "arrays", arrays);
}

static json_t *describe_layer(mha__page_data *data, const mha__picture_layer *layer, mha__page_type type)
{
    json_t *heads = json_array();
    for (size_t i = 0; i < layer->head_count; i++)
        append(data, heads, describe_head(data, &layer->heads[i], type));
    static const char *const too_many = "The layers of this page have too many numbers for a walk: show one alone.";
    data->walked += layer->walk ? numbers_of(layer->walk) : 0;
    json_t *walk = !layer->walk                   ? text(data, layer->no_walk)
                   : data->walked > most_of_walks ? text(data, too_many)
                                                  : describe_walk(data, layer->walk);
    return json_pack("{so so ss so so so so so so so so}", "walk", walk, "name", text(data, layer->name), "path",
                     layer->path, "sequences", count_of(layer->sequences), "h", count_of(layer->h), "kvHeads",
                     count_of(layer->h_kv), "d_k", count_of(layer->d_k), "d_v", count_of(layer->d_v), "extra",
                     count_of(layer->S_extra), "offset", json_integer(layer->offset), "heads", heads);
}

/* Numbers of which some may be infinite: as texts. */
static json_t *number_text(double x)
{
    char digits[32];
    return json_string(mha__number_text(digits, 9, x));
}

static json_t *describe_difference(mha__page_data *data, const mha__sheet *s)
{
    const mha_difference *d = &s->difference;
    return json_pack("{so so so so so so so so so so s[ooo] s[oo]}", "elements", count_of(d->elements), "differ",
                     count_of(d->mismatches), "most", number_text(d->max_abs), "ulps", number_text(d->max_ulp), "rms",
                     number_text(d->rms), "cosine", number_text(d->cosine), "rtol", number_text(s->rtol), "atol",
                     number_text(s->atol), "head", json_integer(s->worst_head), "worstIndex",
                     indices(data, d->worst_index, s->rank), "worstAt", count_of(s->worst_at[0]),
                     count_of(s->worst_at[1]), count_of(s->worst_at[2]), "worst", number_text(s->worst[0]),
                     number_text(s->worst[1]));
}

static json_t *describe_sheet(mha__page_data *data, const mha__sheet *s)
{
    const size_t cells = s->a ? s->maps * s->rows * s->columns : 0;
    json_t *o = json_pack(
        "{so ss ss* so so so so so so so so so so so}", "name", text(data, s->name), "mark", s->mark, "beside",
        s->beside, "obstacle", text(data, s->obstacle), "shape", indices(data, s->shape, s->rank), "allMaps",
        count_of(s->all_maps), "firstMap", count_of(s->first_map), "maps", count_of(s->maps), "mapRows",
        count_of(s->map_rows), "mapColumns", count_of(s->map_columns), "rows", count_of(s->rows), "columns",
        count_of(s->columns), "poolRows", count_of(s->pool_rows), "poolColumns", count_of(s->pool_columns));
    json_t *facts = s->b
                        ? describe_difference(data, s)
                        : json_pack("{so so so so}", "least", number_text(s->least), "largest", number_text(s->largest),
                                    "rms", number_text(s->rms), "broken", count_of(s->broken));
    set_piece(o, "a", data, s->a, cells, MHA__PAGE_F64);
    set_piece(o, "b", data, s->b, cells, MHA__PAGE_F64);
    set(data, o, s->b ? "difference" : "alone", facts);
    return o;
}

/* Gives the description what compares tensors: sheets, the names of their sides, notes. */
static void set_sheets(json_t *object, mha__page_data *data, const mha__picture *picture)
{
    json_t *sheets = json_array();
    for (size_t i = 0; i < picture->sheet_count; i++)
        append(data, sheets, describe_sheet(data, &picture->sheets[i]));
    set(data, object, "sheets", sheets);
    set(data, object, "notes", texts(data, picture->notes, picture->note_count));
    set(data, object, "sides", texts(data, picture->sides, 2));
}

static size_t cells_of(const mha__picture *picture)
{
    size_t cells = 0;
    for (size_t i = 0; i < picture->layer_count; i++)
        for (size_t n = 0; n < picture->layers[i].head_count; n++)
            cells += picture->layers[i].heads[n].rows * picture->layers[i].heads[n].columns;
    return cells;
}

static json_t *describe_pieces(mha__page_data *data)
{
    static const char *const names[] = {"f64", "f32", "level", "u32", "bytes"};
    json_t *list = json_array();
    for (size_t i = 0; i < data->piece_count; i++) {
        const mha__page_piece *p = &data->pieces[i];
        append(data, list, json_pack("[so]", names[p->type], count_of(p->count)));
    }
    return list;
}

/* For each file its path, its SHA-256 or null, and why that is not known. */
static json_t *describe_inputs(mha__page_data *data, const mha__origin *origin)
{
    json_t *list = json_array();
    for (size_t i = 0; i < origin->input_count; i++) {
        const mha__input *input = &origin->inputs[i];
        append(data, list, json_pack("[os?s?]", text(data, input->path), input->sha256, input->unknown));
    }
    return list;
}

static void copy_colours(const mha__colour scale[MHA__COLOURS], uint8_t bytes[MHA__COLOURS * 3])
{
    for (size_t i = 0; i < MHA__COLOURS; i++) {
        bytes[3 * i] = scale[i].red;
        bytes[3 * i + 1] = scale[i].green;
        bytes[3 * i + 2] = scale[i].blue;
    }
}

static json_t *describe(mha__page_data *data, const mha__picture *picture)
{
    const size_t cells = cells_of(picture);
    const mha__page_type type = cells <= most_wide     ? MHA__PAGE_F64
                                : cells <= most_narrow ? MHA__PAGE_F32
                                                       : MHA__PAGE_LEVEL;
    data->has_scores = cells <= most_scores;
    mha__colour scale[MHA__COLOURS];
    mha__colours_sequential(scale);
    copy_colours(scale, data->colours[0]);
    mha__colours_diverging(scale);
    copy_colours(scale, data->colours[1]);
    json_t *layers = json_array();
    for (size_t i = 0; i < picture->layer_count; i++)
        append(data, layers, describe_layer(data, &picture->layers[i], type));
    json_t *o = json_pack("{so so so ss ss so so}", "title", text(data, picture->title), "command",
                          text(data, picture->origin.command), "inputs", describe_inputs(data, &picture->origin),
                          "version", mha_version(), "isa", mha_isa(), "tokens",
                          texts(data, picture->tokens, picture->token_count), "layers", layers);
    set_piece(o, "sequential", data, data->colours[0], sizeof *data->colours, MHA__PAGE_BYTES);
    set_piece(o, "diverging", data, data->colours[1], sizeof *data->colours, MHA__PAGE_BYTES);
    set_sheets(o, data, picture);
    set(data, o, "pieces", describe_pieces(data));
    return o;
}

mha_status mha__page_describe(mha__page_data *data, const mha__picture *picture, mha_error *error)
{
    *data = (mha__page_data){.memory.allocator = mha__allocator_or_default(&picture->memory.allocator)};
    json_t *root = describe(data, picture);
    data->json = root && !data->failed ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return data->json ? MHA_OK : mha__fail(error, MHA_NO_MEMORY, "picture", "no memory to describe it");
}

void mha__page_clear(mha__page_data *data)
{
    free(data->json);
    mha__release(&data->memory.allocator, data->pieces, data->piece_room * sizeof *data->pieces);
    mha__arena_free(&data->memory);
}
