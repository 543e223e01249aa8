/* Summarises a large parameter table: rows grouped by name, part, role, layer or type, with shares of the whole. */
#include "cli/output/report.h"

#include "cli/pictures/pictures.h"
#include "picture/draw/drawing.h"

/* Rows that are shown as one. */
typedef struct fold {
    const char *key;     /* the key that they share */
    mha_tensor_info one; /* the first of them */
    size_t tensors, elements, bytes, inert, in_file, here;
    size_t order;
} fold;

typedef struct census {
    fold *folds;
    size_t count;
    json_t *index; /* of a fold by its key */
} census;

census_view census_view_of(const arguments *args)
{
    return (census_view){.by = args->option[OPT_GROUP].text,
                         .depth = count_of(args, OPT_DEPTH),
                         .only = args->option[OPT_ONLY].text,
                         .sort = args->option[OPT_SORT].text,
                         .whole = given(args, OPT_ALL_ROWS)};
}

bool census_shows(const census_view *view, const mha_tensor_info *info)
{
    return !view->only || strcmp(view->only, info->group) == 0;
}

/* ---------------------------------------------------------------- keys */

static bool is_number(const char *at)
{
    size_t digits = strspn(at, "0123456789");
    return digits > 0 && (at[digits] == '.' || at[digits] == '\0');
}

/* "h.11.attn.bias" becomes "h.{i}.attn.bias". */
static const char *pattern_of(const char *name)
{
    char *pattern = keep(obtain(strlen(name) * 3 + 1, 1)), *to = pattern;
    for (bool start = true; *name; start = name[-1] == '.') {
        if (start && is_number(name)) {
            to += sprintf(to, "{i}");
            name += strspn(name, "0123456789");
            if (!*name)
                break;
        }
        *to++ = *name++;
    }
    return pattern;
}

/* The first `depth` components of a name. */
static const char *head_of(const char *name, size_t depth)
{
    const char *end = name;
    for (size_t i = 0; i < depth && *end; i++) {
        end += *end == '.';
        end += strcspn(end, ".");
    }
    return text_of("%.*s", (int)(end - name), name);
}

/* The name up to its first number: the transformer block of a row. */
static const char *layer_of(const char *name)
{
    for (const char *at = name; *at; at += strcspn(at, "."), at += *at == '.')
        if (is_number(at))
            return text_of("%.*s", (int)(at - name) + (int)strspn(at, "0123456789"), name);
    return "(outside the blocks)";
}

static const char *key_of(const census_view *view, const mha_tensor_info *info)
{
    if (view->by && strcmp(view->by, "role") == 0)
        return *info->role ? info->role : "(none)";
    if (view->by && strcmp(view->by, "part") == 0)
        return *info->group ? info->group : "(none)";
    if (view->by && strcmp(view->by, "dtype") == 0)
        return mha_dtype_name(info->dtype);
    if (view->by)
        return layer_of(info->name);
    if (view->depth)
        return head_of(info->name, view->depth);
    if (view->whole)
        return info->name;
    return text_of("%s %s %d %s", pattern_of(info->name), shape_text(info->rank, info->shape), (int)info->dtype,
                   info->alias_of ? info->alias_of : "");
}

/* ---------------------------------------------------------------- folding */

/* Finds the fold of a key or makes an empty one. */
static fold *fold_of(census *c, const char *key)
{
    const json_t *index = json_object_get(c->index, key);
    if (index)
        return &c->folds[json_integer_value(index)];
    json_object_set_new_nocheck(c->index, key, J(c->count));
    c->folds[c->count] = (fold){.key = key, .order = c->count};
    return &c->folds[c->count++];
}

static int by_elements(const void *a, const void *b)
{
    const fold *x = a, *y = b;
    if (x->elements != y->elements)
        return x->elements < y->elements ? 1 : -1;
    return x->order < y->order ? -1 : 1;
}

static int by_name(const void *a, const void *b)
{
    const fold *x = a, *y = b;
    return strcmp(x->key, y->key);
}

void bytes_of_row(const mha_file *file, const mha_tensor_info *info, size_t *in_file, size_t *here)
{
    const mha_file_tensor *tensor = mha_file_find(file, info->name);
    size_t read = info->bytes;
    if (tensor)
        (void)mha_dtype_bytes(tensor->reads_as, tensor->elements, &read, NULL); /* fits: the elements were counted */
    *in_file += tensor ? tensor->bytes : info->bytes;
    *here += read;
}

static census take(mha_params *params, const census_view *view)
{
    census c = {.folds = keep(obtain(mha_params_count(params) + 1, sizeof *c.folds)),
                .index = keep_json(json_object())};
    bool names = !view->by && !view->depth; /* then aliases and buffers are rows too, else they are left out */
    for (size_t i = 0; i < mha_params_count(params); i++) {
        mha_tensor_info info = mha_tensor_info_of(mha_params_at(params, i));
        bool counts = !info.alias_of && info.kind == MHA_TENSOR_PARAMETER;
        if (!census_shows(view, &info) || !(counts || names))
            continue;
        fold *f = fold_of(&c, key_of(view, &info));
        if (f->tensors++ == 0)
            f->one = info;
        f->elements += info.alias_of ? 0 : info.elements;
        f->bytes += info.alias_of ? 0 : info.bytes;
        f->inert += info.inert_elements;
        if (view->file && !info.alias_of)
            bytes_of_row(view->file, &info, &f->in_file, &f->here);
    }
    if (view->sort)
        qsort(c.folds, c.count, sizeof *c.folds, strcmp(view->sort, "name") == 0 ? by_name : by_elements);
    return c;
}

/* ---------------------------------------------------------------- what it shows */

/* The label of a fold: the pattern of the name for several rows, the name for one. */
static const char *label_of(const census_view *view, const fold *f)
{
    return view->by || view->depth ? f->key : f->tensors > 1 ? pattern_of(f->one.name) : f->one.name;
}

/* The name of a fold: its own, or that of its group. */
static json_t *fold_record(const census_view *view, const fold *f, const mha_totals *all)
{
    const bool counts = all->parameters && f->one.kind == MHA_TENSOR_PARAMETER;
    const double percent = counts ? 100.0 * (double)f->elements / (double)all->parameters : 0;
    json_t *record = record_of("name", J(label_of(view, f)), "tensors", J(f->tensors), "elements", J(f->elements),
                               "bytes", J(f->bytes), "percent", J(percent), NULL);
    if (view->file)
        record_with(record, "bytes_in_file", J(f->in_file), "bytes_here", J(f->here), NULL);
    else
        record_with(record, "~bytes", J(f->bytes), NULL);
    if (view->by || view->depth)
        return record;
    return record_with(record, "~shape", json_shape(f->one.rank, f->one.shape), "~type",
                       J(mha_dtype_name(f->one.dtype)), "~each", J(f->one.elements), "~note",
                       f->one.alias_of                       ? json_words("same storage as %s", f->one.alias_of)
                       : f->one.kind != MHA_TENSOR_PARAMETER ? J("buffer, not learned")
                       : f->inert                            ? json_words("%s inert", count_text(f->inert))
                                                             : json_null(),
                       NULL);
}

int census_draw(mha_params *params, const char *title, const arguments *args)
{
    const census_view flat = {.only = args->option[OPT_ONLY].text};
    if (!given(args, OPT_AREAS))
        return EXIT_DONE;
    TRY(picture_file_check(args, OPT_AREAS));
    census c = take(params, &flat);
    mha__area *areas = keep(obtain(c.count + 1, sizeof *areas));
    size_t n = 0;
    for (size_t i = 0; i < c.count; i++) { /* aliases have no elements of their own */
        const fold *f = &c.folds[i];
        if (f->one.kind == MHA_TENSOR_PARAMETER)
            areas[n++] = (mha__area){f->one.group, label_of(&flat, f), f->elements, f->tensors};
    }
    mha_error error = {0};
    mha__origin origin;
    TRY(origin_of(args, &origin));
    return done_or_refuse(
        mha__draw_areas(areas, n, title, &origin, text_for(args, OPT_AREAS), mha_params_allocator(params), &error),
        "--picture", &error);
}

json_t *census_json(mha_params *params, const census_view *view)
{
    census c = take(params, view);
    const mha_totals all = mha_params_totals(params, NULL);
    json_t *list = json_array();
    for (size_t i = 0; i < c.count; i++)
        json_array_append_new(list, fold_record(view, &c.folds[i], &all));
    return list;
}

void census_print(mha_params *params, const census_view *view)
{
    if (tables_style() == TABLE_CSV && !view->by && !view->depth) {
        const census c = take(params, view);
        table *t = parameters_csv();
        for (size_t i = 0; i < c.count; i++)
            parameters_csv_row(t, &c.folds[i].one);
        table_print(t);
        return;
    }
    static const char *const names[] = {
        "name: name", "shape: ~shape", "??type: ~type", ">???each: ~each", "?>times: tensors", ">elements: elements",
        ">???%: percent: %.2f", ">??bytes: ~bytes: %B", ">in the file: bytes_in_file: %B", ">here: bytes_here: %B",
        ": ~note"};
    const char *title = text_of("%s: name", view->by ? view->by : "name");
    const char *const groups[] = {title,
                                  ">tensors: tensors",
                                  ">elements: elements",
                                  ">%: percent: %.2f",
                                  ">bytes: ~bytes: %B",
                                  ">in the file: bytes_in_file: %B",
                                  ">here: bytes_here: %B"};
    json_t *list = keep_json(census_json(params, view));
    if (tables_style() == TABLE_MARKDOWN || tables_style() == TABLE_LATEX) { /* which have no sentence behind them */
        const mha_totals all = mha_params_totals(params, view->only);
        json_array_append_new(list, record_of("name", J("total"), "elements", J(all.parameters), "~bytes",
                                              J(all.parameter_bytes), NULL));
    }
    if (view->by || view->depth)
        REPORT_TABLE(list, groups);
    else
        REPORT_TABLE(list, names);
}
