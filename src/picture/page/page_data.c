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

void mha__page_encode(const mha__page_piece *piece, size_t from, size_t count, uint8_t *bytes)
{
    for (size_t i = 0; i < count; i++) {
        union {
            double wide;
            uint64_t wide_bits;
            float narrow;
            uint32_t narrow_bits;
        } u;
        switch (piece->type) {
        case MHA__PAGE_F64:
            u.wide = ((const double *)piece->numbers)[from + i];
            store(bytes + 8 * i, u.wide_bits, 8);
            break;
        case MHA__PAGE_F32:
            u.narrow = (float)((const double *)piece->numbers)[from + i];
            store(bytes + 4 * i, u.narrow_bits, 4);
            break;
        case MHA__PAGE_LEVEL: bytes[i] = level_of(((const double *)piece->numbers)[from + i]); break;
        case MHA__PAGE_U32: store(bytes + 4 * i, ((const uint32_t *)piece->numbers)[from + i], 4); break;
        case MHA__PAGE_BYTES: bytes[i] = ((const uint8_t *)piece->numbers)[from + i]; break;
        }
    }
}

/* ---------------------------------------------------------------- the description */

/* Most cells of a page in float64, with scores, and in float32; the rest is levels. Most numbers of all its walks. */
static const size_t most_wide = (size_t)1 << 16, most_scores = (size_t)1 << 18, most_narrow = (size_t)1 << 19,
                    most_of_walks = (size_t)1 << 19;

/* Gives an object an array: its index among the pieces, or -1 for an array that is missing. False without memory. */
static bool set_piece(json_t *object, const char *key, mha__page_data *data, const void *numbers, size_t count,
                      mha__page_type type)
{
    if (!numbers)
        return json_object_set_new(object, key, json_integer(-1)) == 0;
    mha__page_piece *pieces =
        mha__array_grow(&data->memory.allocator, data->pieces, data->piece_count, &data->piece_room, sizeof *pieces);
    if (!pieces)
        return false;
    data->pieces = pieces;
    pieces[data->piece_count] = (mha__page_piece){numbers, count, type};
    return json_object_set_new(object, key, json_integer((json_int_t)data->piece_count++)) == 0;
}

/* The object if all that belongs into it is there, else NULL. */
static json_t *whole(json_t *object, bool is_whole)
{
    if (is_whole)
        return object;
    json_decref(object);
    return NULL;
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

static json_t *indices(const size_t *index, int rank)
{
    json_t *list = json_array();
    bool ok = list;
    for (int i = 0; i < rank && ok; i++)
        ok = json_array_append_new(list, count_of(index[i])) == 0;
    return whole(list, ok);
}

/* A text of a file; bytes beyond ASCII become '?' where they are not UTF-8. */
static json_t *text(mha__page_data *data, const char *s)
{
    json_t *value = json_string(s ? s : "");
    if (value || !s)
        return value;
    char *copy = mha__arena_take(&data->memory, strlen(s) + 1);
    for (size_t i = 0; copy && s[i]; i++)
        copy[i] = (unsigned char)s[i] > 126 ? '?' : s[i];
    return copy ? json_string(copy) : NULL;
}

static json_t *statistics(mha__head_statistics s)
{
    json_t *o = json_pack("{so so so}", "queries", count_of(s.queries), "empty", count_of(s.empty), "broken",
                          count_of(s.broken));
    bool ok = o;
    for (size_t i = 0; i < MHA__STATISTICS && ok; i++)
        ok = json_object_set_new(o, mha__statistic_name(i), number(*mha__statistic_at(&s, i))) == 0;
    return whole(o, ok);
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
        count_of(head->pool_columns), "top", count_of(head->top), "statistics", statistics(head->statistics));
    return whole(o, o && set_piece(o, "weights", data, head->weights, cells, type) &&
                        set_piece(o, "scores", data, all ? head->scores : NULL, cells, scores) &&
                        set_piece(o, "masked", data, all ? head->masked : NULL, cells, scores) &&
                        set_piece(o, "topWeights", data, head->top_weights, top, MHA__PAGE_F32) &&
                        set_piece(o, "topKeys", data, head->top_keys, top, MHA__PAGE_U32));
}

static size_t numbers_of(const mha__walk *walk)
{
    size_t count = 0;
    for (size_t i = 0; i < walk->count; i++)
        count += walk->arrays[i].view.data ? mha_view_elements(&walk->arrays[i].view) : 0;
    return count;
}

/* The numbers, switches (0, 1) and choices (their values) of a call by their names; arrays lie beside them. */
static json_t *settings_of(const mha_semantics *semantics)
{
    json_t *settings = json_object();
    const mha_setting *s;
    bool ok = settings;
    for (size_t i = 0; ok && (s = mha_setting_at(i)); i++)
        if (s->kind < MHA_SETTING_VIEW && isfinite(mha_setting_number(s, semantics)))
            ok = json_object_set_new(settings, s->name, number(mha_setting_number(s, semantics))) == 0;
    return whole(settings, ok);
}

static json_t *describe_walk(mha__page_data *data, const mha__walk *walk)
{
    json_t *arrays = json_object();
    bool ok = arrays;
    for (size_t i = 0; i < walk->count && ok; i++) {
        const mha_view *v = &walk->arrays[i].view;
        json_t *array = json_pack("{so so}", "rows", count_of(v->rank == 1 ? 1 : v->shape[v->rank - 2]), "columns",
                                  count_of(v->shape[v->rank - 1]));
        ok = array && set_piece(array, "numbers", data, v->data, mha_view_elements(v), MHA__PAGE_F64);
        ok = json_object_set_new(arrays, walk->arrays[i].name, whole(array, ok)) == 0;
    }
    json_t *hides = json_array();
    bool listed = hides;
    for (size_t i = 0; walk->hides[i] && listed; i++)
        listed = json_array_append_new(hides, json_string(walk->hides[i])) == 0;
    const mha__latent *l = &walk->latent;
    json_t *rows = json_pack(
        "{s[ii] so so so so sb}", "norms", (int)walk->norm[0], (int)walk->norm[1], "normEps", number(walk->norm_eps),
        "kvRank", count_of(l->kv_rank), "ownFeatures", count_of(l->d_n), "valueWidth", count_of(l->d_v), "absorbed",
        l->absorbed);
    return json_pack("{so so so so so so so so so sI sI sI so so}", "rows", rows, "hides", whole(hides, listed),
                     "settings", settings_of(&walk->semantics), "sequence", count_of(walk->sequence), "firstHead",
                     count_of(walk->first_head), "heads", count_of(walk->heads), "past", count_of(walk->past), "scale",
                     number(walk->scale), "ropeDim", count_of(walk->rope_dim), "offset", (json_int_t)walk->offset,
                     "firstKey", (json_int_t)walk->first_key, "length", (json_int_t)walk->length, "ropeTimes",
                     number(walk->rope_times), "arrays", whole(arrays, ok));
}

static json_t *describe_layer(mha__page_data *data, const mha__picture_layer *layer, mha__page_type type)
{
    json_t *heads = json_array();
    bool ok = heads;
    for (size_t i = 0; i < layer->head_count && ok; i++)
        ok = json_array_append_new(heads, describe_head(data, &layer->heads[i], type)) == 0;
    static const char *const too_many = "The layers of this page have too many numbers for a walk: show one alone.";
    data->walked += layer->walk ? numbers_of(layer->walk) : 0;
    json_t *walk = !layer->walk                   ? text(data, layer->no_walk)
                   : data->walked > most_of_walks ? text(data, too_many)
                                                  : describe_walk(data, layer->walk);
    return json_pack("{so so ss so so so so so so so so}", "walk", walk, "name", text(data, layer->name), "path",
                     layer->path, "sequences", count_of(layer->sequences), "h", count_of(layer->h), "kvHeads",
                     count_of(layer->h_kv), "d_k", count_of(layer->d_k), "d_v", count_of(layer->d_v), "extra",
                     count_of(layer->S_extra), "offset", json_integer(layer->offset), "heads", whole(heads, ok));
}

/* Numbers of which some may be infinite: as texts. */
static json_t *number_text(double x)
{
    char digits[32];
    return json_string(mha__number_text(digits, 9, x));
}

static json_t *describe_difference(const mha__sheet *s)
{
    const mha_difference *d = &s->difference;
    return json_pack("{so so so so so so so so so so s[ooo] s[oo]}", "elements", count_of(d->elements), "differ",
                     count_of(d->mismatches), "most", number_text(d->max_abs), "ulps", number_text(d->max_ulp), "rms",
                     number_text(d->rms), "cosine", number_text(d->cosine), "rtol", number_text(s->rtol), "atol",
                     number_text(s->atol), "head", json_integer(s->worst_head), "worstIndex",
                     indices(d->worst_index, s->rank), "worstAt", count_of(s->worst_at[0]), count_of(s->worst_at[1]),
                     count_of(s->worst_at[2]), "worst", number_text(s->worst[0]), number_text(s->worst[1]));
}

static json_t *describe_sheet(mha__page_data *data, const mha__sheet *s)
{
    const size_t cells = s->a ? s->maps * s->rows * s->columns : 0;
    json_t *o = json_pack("{so ss ss* so so so so so so so so so so so}", "name", text(data, s->name), "mark", s->mark,
                          "beside", s->beside, "obstacle", text(data, s->obstacle), "shape", indices(s->shape, s->rank),
                          "allMaps", count_of(s->all_maps), "firstMap", count_of(s->first_map), "maps",
                          count_of(s->maps), "mapRows", count_of(s->map_rows), "mapColumns", count_of(s->map_columns),
                          "rows", count_of(s->rows), "columns", count_of(s->columns), "poolRows",
                          count_of(s->pool_rows), "poolColumns", count_of(s->pool_columns));
    json_t *facts = s->b
                        ? describe_difference(s)
                        : json_pack("{so so so so}", "least", number_text(s->least), "largest", number_text(s->largest),
                                    "rms", number_text(s->rms), "broken", count_of(s->broken));
    return whole(o, o && set_piece(o, "a", data, s->a, cells, MHA__PAGE_F64) &&
                        set_piece(o, "b", data, s->b, cells, MHA__PAGE_F64) &&
                        json_object_set_new(o, s->b ? "difference" : "alone", facts) == 0);
}

/* Gives the description what compares tensors: sheets, the names of their sides, notes. */
static bool set_sheets(json_t *object, mha__page_data *data, const mha__picture *picture)
{
    json_t *sheets = json_array(), *notes = json_array(), *sides = json_array();
    bool ok = true;
    for (size_t i = 0; i < picture->sheet_count && ok; i++)
        ok = json_array_append_new(sheets, describe_sheet(data, &picture->sheets[i])) == 0;
    for (size_t i = 0; i < picture->note_count && ok; i++)
        ok = json_array_append_new(notes, text(data, picture->notes[i])) == 0;
    for (size_t i = 0; i < 2 && ok; i++)
        ok = json_array_append_new(sides, text(data, picture->sides[i])) == 0;
    ok = json_object_set_new(object, "sheets", sheets) == 0 && ok; /* each takes its list, whatever went before */
    ok = json_object_set_new(object, "notes", notes) == 0 && ok;
    return json_object_set_new(object, "sides", sides) == 0 && ok;
}

static size_t cells_of(const mha__picture *picture)
{
    size_t cells = 0;
    for (size_t i = 0; i < picture->layer_count; i++)
        for (size_t n = 0; n < picture->layers[i].head_count; n++)
            cells += picture->layers[i].heads[n].rows * picture->layers[i].heads[n].columns;
    return cells;
}

static json_t *describe_pieces(const mha__page_data *data)
{
    static const char *const names[] = {"f64", "f32", "level", "u32", "bytes"};
    json_t *list = json_array();
    bool ok = list;
    for (size_t i = 0; i < data->piece_count && ok; i++) {
        const mha__page_piece *p = &data->pieces[i];
        ok = json_array_append_new(list, json_pack("[so]", names[p->type], count_of(p->count))) == 0;
    }
    return whole(list, ok);
}

static json_t *describe_tokens(mha__page_data *data, const mha__picture *picture)
{
    json_t *tokens = json_array();
    bool ok = tokens;
    for (size_t i = 0; i < picture->token_count && ok; i++)
        ok = json_array_append_new(tokens, text(data, picture->tokens[i])) == 0;
    return whole(tokens, ok);
}

/* For each file its path, its SHA-256 or null, and why that is not known. */
static json_t *describe_inputs(mha__page_data *data, const mha__origin *origin)
{
    json_t *list = json_array();
    bool ok = list;
    for (size_t i = 0; i < origin->input_count && ok; i++) {
        const mha__input *input = &origin->inputs[i];
        ok = json_array_append_new(list,
                                   json_pack("[os?s?]", text(data, input->path), input->sha256, input->unknown)) == 0;
    }
    return whole(list, ok);
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
    bool ok = layers;
    for (size_t i = 0; i < picture->layer_count && ok; i++)
        ok = json_array_append_new(layers, describe_layer(data, &picture->layers[i], type)) == 0;
    json_t *o = json_pack("{so so so ss ss so so}", "title", text(data, picture->title), "command",
                          text(data, picture->origin.command), "inputs", describe_inputs(data, &picture->origin),
                          "version", mha_version(), "isa", mha_isa(), "tokens", describe_tokens(data, picture),
                          "layers", whole(layers, ok));
    return whole(o, o && set_piece(o, "sequential", data, data->colours[0], sizeof *data->colours, MHA__PAGE_BYTES) &&
                        set_piece(o, "diverging", data, data->colours[1], sizeof *data->colours, MHA__PAGE_BYTES) &&
                        set_sheets(o, data, picture) && json_object_set_new(o, "pieces", describe_pieces(data)) == 0);
}

mha_status mha__page_describe(mha__page_data *data, const mha__picture *picture, mha_error *error)
{
    *data = (mha__page_data){.memory.allocator = mha__allocator_or_default(&picture->memory.allocator)};
    json_t *root = describe(data, picture);
    data->json = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return data->json ? MHA_OK : mha__fail(error, MHA_NO_MEMORY, "picture", "no memory to describe it");
}

void mha__page_clear(mha__page_data *data)
{
    free(data->json);
    mha__release(&data->memory.allocator, data->pieces, data->piece_room * sizeof *data->pieces);
    mha__arena_free(&data->memory);
}
