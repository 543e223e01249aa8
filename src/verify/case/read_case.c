/* Reads a case file: its tensors and metadata keys, their meaning, and the defaults for what is missing. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "lab/lab.h"
#include "verify/case/record.h"

/* ---------------------------------------------------------------- tensors */

static mha_status read_word(mha_case *c, const mha_file_tensor *t, const mha__case_word *word, mha_view *view,
                            mha_error *error)
{
    if (view->data)
        return mha__fail(error, MHA_INVALID, t->name, "expected one of %s and %s, which are one word, found both",
                         word->shown.name, word->shown.also);
    if (t->rank < word->low || t->rank > word->high)
        return mha__fail(error, MHA_INVALID, t->name, "expected rank %d to %d, found %d; %s is %s", word->low,
                         word->high, t->rank, word->shown.name, word->shown.form);
    return mha__case_read_tensor(c, t, word->content, view, error);
}

/* Reads one tensor of the file into the field of the case that its name denotes. */
static mha_status read_placed(mha_case *c, const mha_file_tensor *t, const mha__case_place *place, mha_error *error)
{
    const mha__case_word *word = place->word;
    if (word->kind == WORD_TENSOR)
        return read_word(c, t, word, &c->tensors[word->code], error);
    if (word->kind == WORD_WEIGHT) {
        c->has_set[place->set] = true;
        return read_word(c, t, word, &c->weights[place->set][word->code], error);
    }
    if (place->record == PLACE_FUSED)
        return MHA_OK;
    case_expected *e = &c->expected[place->record == PLACE_DOUBLE][word->code];
    const char *source = mha_file_metadata(c->file, "source_dtype"); /* the type of results that were widened to F32 */
    mha_dtype dtype;
    const bool widened =
        t->dtype == MHA_F32 && source && mha__dtype_find(source, &dtype) && mha__is_short_float(dtype);
    e->name = place->record == PLACE_DOUBLE ? t->name : word->shown.name;
    e->stored = widened ? dtype : t->dtype;
    return read_word(c, t, word, &e->view, error);
}

static mha_status read_names(mha_case *c, mha_error *error)
{
    for (size_t i = 0; i < mha_file_metadata_count(c->file); i++) {
        const char *key, *value;
        mha_file_metadata_at(c->file, i, &key, &value);
        if (!mha__case_knows_key(key) && !mha__case_is_own(key) && !*c->skip)
            mha__case_explain_unknown(c->skip, sizeof c->skip, key, true);
    }
    const bool npz = strcmp(mha_file_format(c->file), "npz") == 0; /* in an npz, arrays of rank 0 are metadata */
    for (size_t i = 0; i < mha_file_count(c->file); i++) {
        const mha_file_tensor *t = mha_file_at(c->file, i);
        if (mha__case_is_own(t->name) || (npz && t->rank == 0))
            continue;
        const mha__case_place place = mha__case_place_of(t->name);
        if (place.word)
            TRY(read_placed(c, t, &place, error));
        else if (!*c->skip && !mha__case_setting(t->name, false))
            mha__case_explain_unknown(c->skip, sizeof c->skip, t->name, false);
    }
    return MHA_OK;
}

/* Refuses a file that neither states a kind nor has a query. If a tensor's name resembles "query", the message
 * suggests it. */
static mha_status refuse_other_files(const mha_case *c, mha_error *error)
{
    char text[sizeof c->skip] = "it has no tensor query (mha help case: what a case holds)";
    if (mha_file_metadata(c->file, "kind") || c->tensors[CASE_QUERY].data)
        return MHA_OK;
    bool found = false;
    for (size_t i = 0; i < mha_file_count(c->file) && !found; i++) {
        const char *name = mha_file_at(c->file, i)->name;
        found = mha__case_means(name, mha__case_tensor_name(CASE_QUERY));
        if (found)
            mha__case_explain_unknown(text, sizeof text, name, false);
    }
    return mha__fail(error, MHA_INVALID, mha_file_path(c->file), "expected a case file: %s", text);
}

/* ---------------------------------------------------------------- defaults */

/* Takes a weight from `part` of a PyTorch tensor. If the file has the weight itself, *taken is false. */
static mha_status take_weight(mha_case *c, mha_weight weight, const mha_view *part, bool *taken, mha_error *error)
{
    mha_view *w = &c->weights[CASE_RECORDED][weight], from = *part;
    *taken = !w->data;
    if (w->data)
        return MHA_OK;
    if (from.rank == 2)
        from = mha__view_swap(part, 0, 1);
    return mha__arena_copy(&c->pool, from.dtype, &from, mha__case_weight_name(weight), w, error);
}

/* Fills in weights that the file has only in PyTorch's packed tensors. A tensor from which all parts were taken is
 * dropped: comparing it with itself would show nothing. */
static mha_status take_from_torch(mha_case *c, mha_error *error)
{
    static const struct {
        case_tensor torch;
        size_t count;
        mha_weight parts[3];
    } rows[] = {{CASE_IN_PROJ, 3, {MHA_W_Q, MHA_W_K, MHA_W_V}},
                {CASE_IN_BIAS, 3, {MHA_B_Q, MHA_B_K, MHA_B_V}},
                {CASE_OUT_PROJ, 1, {MHA_W_O}},
                {CASE_OUT_BIAS, 1, {MHA_B_O}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mha_view *torch = &c->tensors[rows[i].torch];
        if (!torch->data)
            continue;
        const size_t n = torch->shape[0] / rows[i].count;
        bool all = true;
        for (size_t p = 0; p < rows[i].count; p++) {
            const mha_view part = mha_view_slice(torch, 0, p * n, n);
            bool taken;
            if (n * rows[i].count != torch->shape[0] && !c->weights[CASE_RECORDED][rows[i].parts[p]].data)
                return mha__fail(error, MHA_INVALID, mha__case_tensor_name(rows[i].torch),
                                 "expected the rows of q, k and v, as many of each, found %zu", torch->shape[0]);
            TRY(take_weight(c, rows[i].parts[p], &part, &taken, error));
            all &= taken;
        }
        if (all)
            torch->data = NULL;
    }
    return MHA_OK;
}

/* Sets the kind: the one the file states, else mha if it has a projection, else sdpa. */
static mha_status read_kind(mha_case *c, mha_error *error)
{
    static const mha_weight projections[] = {MHA_W_Q, MHA_W_K, MHA_W_V, MHA_W_O};
    int kind;
    TRY(mha__case_choice(c, "kind", &kind, error));
    c->kind = kind < 0 ? CASE_SDPA : (case_kind)kind;
    if (kind >= 0)
        return MHA_OK;
    for (size_t i = 0; i < sizeof projections / sizeof *projections; i++)
        if (c->weights[CASE_RECORDED][projections[i]].data)
            c->kind = CASE_MHA;
    if (c->tensors[CASE_IN_PROJ].data || c->tensors[CASE_OUT_PROJ].data)
        c->kind = CASE_MHA;
    return MHA_OK;
}

static mha_status fill_in(mha_case *c, mha_error *error)
{
    TRY(mha__case_unpage(c, error));
    mha_view *query = &c->tensors[CASE_QUERY], *key = &c->tensors[CASE_KEY], *value = &c->tensors[CASE_VALUE];
    if (!key->data && c->kind != CASE_ROPE)
        *key = *query;
    if (!value->data && c->kind != CASE_ROPE)
        *value = *key;
    return c->kind == CASE_MHA ? take_from_torch(c, error) : MHA_OK;
}

/* ---------------------------------------------------------------- the whole */

static bool has_tag(const char *tags, const char *tag)
{
    if (!tags)
        return false;
    const size_t n = strlen(tag);
    for (const char *at = strstr(tags, tag); at; at = strstr(at + n, tag))
        if ((at == tags || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

static mha_status read_qk(mha_case *c, mha_error *error)
{
    static const mha_stage modes[] = {MHA_STAGE_SCORES, MHA_STAGE_CAPPED, MHA_STAGE_MASKED, MHA_STAGE_WEIGHTS};
    if (!mha__case_records(c, CASE_QK))
        return MHA_OK;
    int mode;
    TRY(mha__case_choice(c, "qk_mode", &mode, error));
    if (mode < 0)
        return mha__fail(error, MHA_INVALID, "qk_mode", "is missing: it says which stage expected.qk is");
    c->qk_stage = modes[mode];
    return MHA_OK;
}

/* Reads a tolerance; NaN when the file has none. Infinity is refused: every result would pass. */
static mha_status read_tolerance(const mha_case *c, const char *key, double *value, mha_error *error)
{
    TRY(mha__case_number(c, key, NAN, value, error));
    if (*value < 0 || isinf(*value))
        return mha__fail(error, MHA_INVALID, key, "expected %s, found %s",
                         isinf(*value) ? "a finite number" : "0 or more", mha_file_metadata(c->file, key));
    return MHA_OK;
}

static mha_status read_tolerances(mha_case *c, mha_error *error)
{
    TRY(read_tolerance(c, "rtol", &c->rtol, error));
    TRY(read_tolerance(c, "atol", &c->atol, error));
    TRY(read_tolerance(c, "rtol64", &c->rtol64, error));
    TRY(read_tolerance(c, "atol64", &c->atol64, error));
    const mha__case_word *word;
    for (size_t i = 0; (word = mha__case_word_at(i)); i++) {
        if (word->kind != WORD_RESULT)
            continue;
        char key[64];
        snprintf(key, sizeof key, "atol.%s", word->shown.name);
        TRY(read_tolerance(c, key, &c->expected[0][word->code].atol, error));
        snprintf(key, sizeof key, "atol.expected64.%s", strchr(word->shown.name, '.') + 1);
        TRY(read_tolerance(c, key, &c->expected[1][word->code].atol, error));
    }
    return MHA_OK;
}

/* Refuses a source_dtype that names no type: the rounding of the meant one would not be allowed for. */
static mha_status check_source_type(const mha_case *c, mha_error *error)
{
    const char *source = mha_file_metadata(c->file, "source_dtype");
    mha_dtype dtype;
    if (!source || (mha__dtype_find(source, &dtype) && dtype != MHA_TF32)) /* TF32 is stored as F32 */
        return MHA_OK;
    return mha__fail(error, MHA_INVALID, "source_dtype", "expected the name of a type (%s), found \"%.*s\"",
                     mha__case_key("source_dtype")->shown.form, MHA_CUT_ARGS(60, source));
}

/* Reads everything except layers and semantics. */
static mha_status read_file(mha_case *c, mha_error *error)
{
    const char *path = mha_file_path(c->file), *slash = strrchr(path, '/');
    const char *name = mha_file_metadata(c->file, "name");
    const char *version = mha_file_metadata(c->file, "format_version");
    mha__text_print(c->name, sizeof c->name, "%s", name && *name ? name : slash ? slash + 1 : path);
    if (version && strcmp(version, "1") != 0)
        mha__text_print(c->skip, sizeof c->skip, "expected format_version 1, found %s", version);

    int layout;
    TRY(mha__case_choice(c, "layout", &layout, error));
    c->layout = (mha_layout)layout;
    TRY(check_source_type(c, error));
    TRY(read_names(c, error));
    TRY(refuse_other_files(c, error));
    TRY(read_kind(c, error));
    c->overflow = has_tag(mha_file_metadata(c->file, "tags"), "overflow");
    if (*c->skip)
        return MHA_OK;
    TRY(mha__case_read_settings(c, error));
    TRY(fill_in(c, error));
    TRY(read_tolerances(c, error));
    TRY(read_qk(c, error));
    return mha__case_read_sizes(c, error);
}

/* Puts the file's name in front of the name in an error. */
static mha_status inside(mha_error *error, mha_status status, const char *path)
{
    char name[sizeof error->name];
    if (status == MHA_OK || !error || strncmp(error->name, path, strlen(path)) == 0)
        return status;
    mha__text_print(name, sizeof name, "%s", error->name);
    if (*name)
        mha__name_inside(error->name, sizeof error->name, path, name);
    else
        mha__text_print(error->name, sizeof error->name, "%s", path);
    return status;
}

mha_status mha_case_open(const char *path, const mha_allocator *allocator, mha_case **result, mha_error *error)
{
    mha_allocator a = mha__allocator_or_default(allocator);
    mha_case *c = mha__allocate(&a, sizeof *c);
    if (!c)
        return mha__fail(error, MHA_NO_MEMORY, path, "no memory for a case");
    c->pool.allocator = a;
    mha_status status = mha_file_open(path, &c->file, error);
    if (status == MHA_OK) {
        status = read_file(c, error);
        if (status == MHA_OK && !*c->skip)
            status = mha__case_build(c, error);
        status = inside(error, status, mha_file_path(c->file));
    }
    if (status != MHA_OK) {
        mha_case_close(c);
        return status;
    }
    *result = c;
    return MHA_OK;
}

void mha_case_close(mha_case *c)
{
    if (!c)
        return;
    for (int set = 0; set < CASE_WEIGHTS_COUNT; set++) {
        mha_layer_destroy(c->layers[set]);
        mha_params_destroy(c->params[set]);
    }
    mha__arena_free(&c->pool);
    mha_file_close(c->file);
    mha_allocator a = c->pool.allocator;
    mha__release(&a, c, sizeof *c);
}
