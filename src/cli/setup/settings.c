/* Settings of a call, taken from the options that name them: by the row of each, and words that stand for several. */
#include "cli/setup/request.h"

#include "lab/settings.h"

static bool is_array(const mha_setting *s)
{
    return s->kind >= MHA_SETTING_VIEW;
}

/* ---------------------------------------------------------------- numbers, switches and choices */

/* Sets the setting `name` to a number that comes from the option `code`. */
static int put(option_code code, const char *name, double number, mha_semantics *semantics)
{
    mha_error error = {0};
    const mha_status status = mha_setting_put_number(mha_setting_find(name), number, semantics, &error);
    return status == MHA_OK ? EXIT_DONE : refuse_option(code, "%s", error.message);
}

/* --window L,R, --sigmoid X and --position-offset N of all batch rows stand for other settings. */
static int put_short_words(const arguments *args, mha_semantics *semantics)
{
    const option_value *window = &args->option[OPT_WINDOW], *offset = &args->option[OPT_POSITION_OFFSET];
    if (window->given) {
        TRY(put(OPT_WINDOW, "window_left", (double)window->numbers[0], semantics));
        TRY(put(OPT_WINDOW, "window_right", (double)window->numbers[1], semantics));
    }
    if (given(args, OPT_SIGMOID)) {
        semantics->softmax.normaliser = MHA_SIGMOID;
        TRY(put(OPT_SIGMOID, "sigmoid", args->option[OPT_SIGMOID].real, semantics));
    }
    if (offset->n_numbers == 1) {
        semantics->place.has_offset = true;
        semantics->place.offset = offset->numbers[0];
    }
    return EXIT_DONE;
}

int settings_of_options(const arguments *args, mha_semantics *semantics)
{
    mha_error error = {0};
    TRY(put_short_words(args, semantics));
    for (option_code o = OPTION_COUNT; o < option_count(); o++) {
        const mha_setting *s = setting_of(o);
        if (s && given(args, o) && !is_array(s) &&
            mha_setting_put(s, text_for(args, o), semantics, &error) != MHA_OK)
            return refuse_option(o, "%s", error.message); /* unreachable: arguments_parse has tried it */
    }
    return EXIT_DONE;
}

/* ---------------------------------------------------------------- arrays */

/* Reads numbers with commas between them as a row of I64 or F64. */
static int read_list(request *r, const arguments *args, option_code o, mha_dtype dtype, mha_view *view)
{
    const char *at = text_for(args, o);
    size_t n = 1;
    for (const char *c = at; *c; c++)
        n += *c == ',';
    *view = obtain_view(&r->memory, dtype, 1, &n);
    for (size_t i = 0; i < n; i++) {
        char *end;
        if (dtype == MHA_I64)
            ((int64_t *)view->data)[i] = strtoll(at, &end, 10);
        else
            ((double *)view->data)[i] = strtod(at, &end);
        if (end == at || (*end && *end != ','))
            return refuse_option(o, "expected %s between commas, found \"%s\"",
                                 dtype == MHA_I64 ? "whole numbers" : "numbers", text_for(args, o));
        at = end + 1;
    }
    return EXIT_DONE;
}

/* A mask X of numbers is additive unless X_kind says otherwise; one of booleans needs it. */
static int settle_kind(const arguments *args, const mha_setting *mask, mha_dtype dtype, mha_semantics *semantics)
{
    const size_t n = strlen(mask->name);
    const mha_setting *kind = mask->needs ? mha_setting_find(mask->needs) : NULL;
    if (!kind || strncmp(kind->name, mask->name, n) != 0 || strcmp(kind->name + n, "_kind") != 0)
        return EXIT_DONE;
    const option_code o = option_of(kind);
    mha_semantics adding = {0};
    const bool numbers = dtype != MHA_BOOL && dtype != MHA_U8,
               may_add = mha_setting_put(kind, "additive", &adding, NULL) == MHA_OK;
    if (!given(args, o) && !(numbers && may_add))
        return refuse_option(o, "expected keeps or hides for a mask of %s, found neither", mha_dtype_name(dtype));
    if (!given(args, o))
        return put(o, kind->name, MHA_MASK_ADDITIVE, semantics);
    if (may_add && (mha_setting_number(kind, semantics) == MHA_MASK_ADDITIVE) != numbers)
        return refuse_option(o, "expected %s for a mask of %s, found %s", numbers ? "additive" : "keeps or hides",
                             mha_dtype_name(dtype), text_for(args, o));
    return EXIT_DONE;
}

/* Refuses a row of numbers that has another length than the call asks for. */
static int check_length(const request *r, option_code o, const mha_setting *s, size_t found)
{
    const size_t B = r->call.query.shape[0], h = mha_layer_config(r->layer)->n_heads;
    const size_t expected = mha_setting_length(s, &r->call.semantics, B, h);
    return found == expected ? EXIT_DONE
                             : refuse_option(o, "expected %zu numbers, %s, found %zu", expected, s->shape, found);
}

/* Lets a setting point to a row of numbers. */
static int point_to(request *r, option_code o, const mha_setting *s, const mha_view *from)
{
    mha_semantics *semantics = &r->call.semantics;
    mha_error error = {0};
    if (from->rank != 1)
        return refuse_option(o, "expected a row of numbers, %s, found shape %s", s->shape,
                             shape_text(from->rank, from->shape));
    const mha_dtype dtype = s->kind == MHA_SETTING_WHOLES ? MHA_I64 : MHA_F64;
    mha_view row = obtain_view(&r->memory, dtype, 1, from->shape);
    if (mha_view_copy(&row, from, NULL) != MHA_OK)
        return refuse_option(o, "expected %s, found %s", mha_dtype_name(dtype), mha_dtype_name(from->dtype));
    if (mha__setting_put_view(s, &row, semantics, &error) != MHA_OK)
        return refuse_option(o, "%s", error.message);
    return check_length(r, o, s, row.shape[0]);
}

static int take_array(request *r, const arguments *args, option_code o)
{
    const mha_setting *s = setting_of(o);
    mha_semantics *semantics = &r->call.semantics;
    mha_view view;
    TRY(names_file(o, text_for(args, o))
            ? tensor_of_option(args, o, NUMBERS_OR_TRUTH, &r->memory, &view)
            : read_list(r, args, o, s->kind == MHA_SETTING_WHOLES ? MHA_I64 : MHA_F64, &view));
    if (s->kind != MHA_SETTING_VIEW)
        return point_to(r, o, s, &view);
    memcpy((char *)semantics + s->at, &view, sizeof view);
    return settle_kind(args, s, view.dtype, semantics);
}

int arrays_of_options(request *r, const arguments *args)
{
    const option_value *offset = &args->option[OPT_POSITION_OFFSET];
    const size_t h = mha_layer_config(r->layer)->n_heads;
    if (given(args, OPT_ALIBI)) {
        double *slopes = obtain_view(&r->memory, MHA_F64, 1, &h).data;
        mha_alibi_slopes(h, slopes);
        r->call.semantics.added.alibi_slopes = slopes;
    }
    for (option_code o = OPTION_COUNT; o < option_count(); o++)
        if (given(args, o) && setting_of(o) && is_array(setting_of(o)))
            TRY(take_array(r, args, o));
    if (offset->n_numbers <= 1)
        return EXIT_DONE;
    r->call.semantics.place.position_offset = offset->numbers;
    return check_length(r, OPT_POSITION_OFFSET, mha_setting_find("position_offset"), offset->n_numbers);
}

/* ---------------------------------------------------------------- what is said */

bool options_state_attention(const arguments *args)
{
    for (option_code o = OPTION_COUNT; o < option_count(); o++) {
        const mha_setting *s = setting_of(o);
        const bool of_no_key = s && (strcmp(s->name, "empty_rows") == 0 || strcmp(s->name, "hidden_values") == 0);
        if (s && given(args, o) && s->group != MHA_SETTINGS_PLACE && !of_no_key)
            return true;
    }
    return given(args, OPT_WINDOW) || given(args, OPT_ALIBI) || given(args, OPT_SIGMOID);
}
