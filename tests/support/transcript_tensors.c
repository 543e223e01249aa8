/* Files of tensors that transcripts write line by line. */
#include "support/transcript.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/lab.h"
#include "mha/lab.h"
#include "support/short_float.h"
#include "support/unit.h"

enum { MOST = 64, NAME = 1100 };

/* The content of the file. */
typedef struct contents {
    struct {
        char name[NAME];
        mha_view view;
    } tensors[MOST];
    struct {
        char *key, *value;
    } metadata[MOST];
    size_t n, n_metadata;
} contents;

static mha_view *tensor_of(contents *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->tensors[i].name, name) == 0)
            return &c->tensors[i].view;
    return NULL;
}

/* Adds a tensor of zeros, or takes the place of the one with its name. */
static mha_view *add(contents *c, const char *name, mha_dtype dtype, int rank, const size_t *shape)
{
    size_t bytes = 0;
    mha_view view = mha_view_of(NULL, dtype, rank, shape), *at = tensor_of(c, name);
    assert_int_equal(mha_dtype_bytes(dtype, mha_view_elements(&view), &bytes, NULL), MHA_OK);
    view.data = calloc(bytes + 1, 1);
    assert_non_null(view.data);
    if (!at) {
        assert_true(c->n < MOST);
        snprintf(c->tensors[c->n].name, NAME, "%s", name);
        at = &c->tensors[c->n++].view;
    } else
        free(at->data);
    *at = view;
    return at;
}

static void put(const mha_view *view, size_t i, double value)
{
    const size_t count = mha_view_elements(view);
    const mha_view flat = mha_view_of(view->data, view->dtype, 1, &count);
    assert_true(i < count);
    switch ((int)view->dtype) {
    case MHA_I64: ((int64_t *)view->data)[i] = (int64_t)value; break;
    case MHA_I32: ((int32_t *)view->data)[i] = (int32_t)value; break;
    case MHA_BOOL:
    case MHA_U8: ((uint8_t *)view->data)[i] = (uint8_t)value; break;
    case MHA_F8_E4M3:
    case MHA_F8_E5M2: short_float_set(&flat, i, short_float_pattern(value, view->dtype)); break;
    default: mha_view_set(&flat, &i, value);
    }
}

static void set_metadata(contents *c, const char *key, const char *value)
{
    size_t i = 0;
    while (i < c->n_metadata && strcmp(c->metadata[i].key, key) != 0)
        i++;
    assert_true(i < MOST);
    if (i == c->n_metadata)
        c->metadata[c->n_metadata++].key = strdup(key);
    else
        free(c->metadata[i].value);
    json_t *quoted = *value == '"' ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
    c->metadata[i].value = *value ? strdup(quoted ? json_string_value(quoted) : value) : NULL;
    json_decref(quoted);
}

/* Takes over a tensor of a file under a name, or all of it (NULL). */
static void take_over(contents *c, const char *path, const char *tensor, const char *name)
{
    mha_file *file;
    mha_error error;
    const char *key, *value;
    bool found = false;
    assert_ok(mha_file_open(path, &file, &error), error);
    for (size_t i = 0; i < mha_file_count(file); i++) {
        const mha_file_tensor *t = mha_file_at(file, i);
        if (tensor && strcmp(t->name, tensor) != 0)
            continue;
        found = true;
        mha_view *view = name ? tensor_of(c, name) : NULL;
        size_t bytes; /* numbers in blocks are read as F32 */
        const mha_dtype dtype = mha_dtype_bytes(t->dtype, 1, &bytes, NULL) == MHA_OK ? t->dtype : MHA_F32;
        if (!view || view->dtype == dtype || mha_view_elements(view) != t->elements)
            view = add(c, name ? name : t->name, dtype, t->rank, t->shape);
        assert_ok(mha_file_read(file, t, view, &error), error); /* rounded to the type of a tensor that is there */
    }
    if (!tensor)
        for (size_t i = 0; i < mha_file_metadata_count(file); i++) {
            mha_file_metadata_at(file, i, &key, &value);
            set_metadata(c, key, value);
        }
    if (tensor && !found)
        fail_msg("%s has no %s", path, tensor);
    mha_file_close(file);
}

/* "TYPE (2,3) = 1 2 3" or "TYPE (2,3) ~ 7 -1 1". */
static void make(contents *c, const char *name, const char *rest)
{
    char type[20], dimensions[100];
    int length = 0, rank = 0;
    size_t shape[MHA_MAX_RANK] = {0};
    mha_dtype dtype;
    if (sscanf(rest, "%19s (%99[0-9,]) %n", type, dimensions, &length) != 2) {
        assert_int_equal(sscanf(rest, "%19s () %n", type, &length), 1);
        *dimensions = '\0';
    }
    if (!mha__dtype_find(type, &dtype) || length == 0)
        fail_msg("%s %s: expected a type and a shape", name, rest);
    for (char *at = strtok(dimensions, ","); at; at = strtok(NULL, ","))
        shape[rank++] = strtoul(at, NULL, 10);
    const mha_view *view = add(c, name, dtype, rank, shape);
    const char *values = rest + length, *at = values + 1;
    if (*values == '~') {
        unsigned long seed;
        double least, most;
        assert_int_equal(sscanf(at, "%lu %lf %lf", &seed, &least, &most), 3);
        mha_random_fill(view, seed, 1, (float)least, (float)most);
        return;
    }
    assert_int_equal(*values, '=');
    for (size_t i = 0, count = mha_view_elements(view); i < count; i++) {
        char *end;
        double value = strtod(at, &end);
        if (end == at) /* again from the first */
            value = strtod(values + 1, &end);
        put(view, i, value);
        at = end + strspn(end, " ");
    }
}

/* Multiplies some elements, and adds to them. */
static void change(const mha_view *view, size_t from, size_t to, double factor, double more)
{
    assert_non_null(view);
    const size_t count = mha_view_elements(view);
    const mha_view flat = mha_view_of(view->data, view->dtype, 1, &count);
    assert_true(from < count);
    for (size_t i = from; i < count && i < to; i++)
        put(view, i, factor * mha_view_get(&flat, &i) + more);
}

/* Obeys one line. */
static void obey(contents *c, const char *line)
{
    char name[NAME], path[NAME];
    int length = 0;
    unsigned long element;
    double number;
    if (sscanf(line, "< %1099s", path) == 1)
        take_over(c, path, NULL, NULL);
    else if (sscanf(line, "%1099s < %1099[^:]:%n", name, path, &length) == 2 && length > 0)
        take_over(c, path, line + length, name);
    else if (strncmp(line, "- ", 2) == 0 && sscanf(line + 2, "%1099s", name) == 1) {
        size_t kept = 0;
        for (size_t i = 0; i < c->n; i++)
            if (strncmp(c->tensors[i].name, name, strlen(name)) != 0)
                c->tensors[kept++] = c->tensors[i];
            else
                free(c->tensors[i].view.data);
        assert_true(kept < c->n); /* it was there */
        c->n = kept;
    } else if (sscanf(line, "%1099[^ [][%lu] += %lf", name, &element, &number) == 3)
        change(tensor_of(c, name), element, element + 1, 1, number);
    else if (sscanf(line, "%1099s += %lf", name, &number) == 2)
        change(tensor_of(c, name), 0, SIZE_MAX, 1, number);
    else if (sscanf(line, "%1099s *= %lf", name, &number) == 2)
        change(tensor_of(c, name), 0, SIZE_MAX, number, 0);
    else if (*line != '"' && sscanf(line, "%1099[^ :]:%n", name, &length) == 1 && length > 0)
        set_metadata(c, name, line + length + (line[length] == ' '));
    else { /* a name with blanks and more is a text of JSON */
        json_t *quoted = json_loads(line, JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, NULL);
        const char *text = json_string_value(quoted);
        const char *end = text ? strchr(line + 1, '"') : line + strcspn(line, " ");
        while (text && end[-1] == '\\')
            end = strchr(end + 1, '"');
        snprintf(name, sizeof name, "%.*s", text ? NAME - 1 : (int)(end - line), text ? text : line);
        make(c, name, end + (text != NULL) + 1);
        json_decref(quoted);
    }
}

void transcript_tensors(const char *path, const char *text)
{
    contents *c = calloc(1, sizeof *c);
    mha_writer *writer;
    mha_error error;
    assert_non_null(c);
    for (char line[NAME + 100]; *text; text += strcspn(text, "\n") + 1) {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
        obey(c, line);
    }
    assert_ok(mha_writer_create(path, &writer, &error), error);
    for (size_t i = 0; i < c->n; i++)
        assert_ok(mha_writer_add(writer, c->tensors[i].name, &c->tensors[i].view, &error), error);
    for (size_t i = 0; i < c->n_metadata; i++)
        if (c->metadata[i].value)
            assert_ok(mha_writer_add_metadata(writer, c->metadata[i].key, c->metadata[i].value, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    for (size_t i = 0; i < c->n; i++)
        free(c->tensors[i].view.data);
    for (size_t i = 0; i < c->n_metadata; i++) {
        free(c->metadata[i].key);
        free(c->metadata[i].value);
    }
    free(c);
}
