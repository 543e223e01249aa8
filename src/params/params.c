/* The parameter table: rows by their names, the storages that they share, totals. */
#include <string.h>

#include "base/base.h"
#include "params/table.h"

/* ---------------------------------------------------------------- names */

static mha_tensor **bucket_of(const mha_params *table, const char *name)
{
    return &table->buckets[mha__text_hash(name) & (table->capacity - 1)];
}

mha_tensor *mha_params_find(const mha_params *table, const char *name)
{
    if (table->capacity == 0)
        return NULL;
    mha_tensor *t = *bucket_of(table, name);
    while (t && strcmp(t->name, name) != 0)
        t = t->same_hash;
    return t;
}

static void bucket_insert(mha_params *table, mha_tensor *t)
{
    mha_tensor **bucket = bucket_of(table, t->name);
    t->same_hash = *bucket;
    *bucket = t;
}

static void bucket_remove(mha_params *table, mha_tensor *t)
{
    mha_tensor **link = bucket_of(table, t->name);
    while (*link != t)
        link = &(*link)->same_hash;
    *link = t->same_hash;
}

/* ---------------------------------------------------------------- the table */

mha_status mha_params_create(const mha_allocator *allocator, mha_params **table, mha_error *error)
{
    mha_allocator a = mha__allocator_or_default(allocator);
    mha_params *t = mha__allocate(&a, sizeof *t);
    if (!t)
        return mha__fail(error, MHA_NO_MEMORY, NULL, "no memory for a parameter table");
    t->allocator = a;
    *table = t;
    return MHA_OK;
}

const mha_allocator *mha_params_allocator(const mha_params *table)
{
    return &table->allocator;
}

static void release_row(mha_params *table, mha_tensor *t)
{
    mha__release(&table->allocator, t->name, t->name_bytes);
    mha__release(&table->allocator, t->inert_why, t->inert_bytes);
    mha__release(&table->allocator, t, sizeof *t);
}

static void release_index(mha_params *table)
{
    mha__release(&table->allocator, table->rows, table->capacity * sizeof *table->rows);
    mha__release(&table->allocator, table->buckets, table->capacity * sizeof *table->buckets);
}

void mha_params_destroy(mha_params *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->count; i++) {
        mha__tensor_storage *s = table->rows[i]->storage;
        if (--s->rows == 0)
            mha__storage_release(table, s);
        release_row(table, table->rows[i]);
    }
    release_index(table);
    mha_allocator a = table->allocator;
    mha__release(&a, table, sizeof *table);
}

/* Makes room for one more row. */
static bool grow(mha_params *table)
{
    if (table->count < table->capacity)
        return true;
    size_t capacity = table->capacity ? table->capacity * 2 : 16;
    mha_tensor **rows = mha__allocate(&table->allocator, capacity * sizeof *rows);
    mha_tensor **buckets = mha__allocate(&table->allocator, capacity * sizeof *buckets);
    if (!rows || !buckets) {
        mha__release(&table->allocator, rows, capacity * sizeof *rows);
        mha__release(&table->allocator, buckets, capacity * sizeof *buckets);
        return false;
    }
    if (table->count)
        memcpy(rows, table->rows, table->count * sizeof *rows);
    release_index(table);
    table->rows = rows;
    table->buckets = buckets;
    table->capacity = capacity;
    for (size_t i = 0; i < table->count; i++)
        bucket_insert(table, rows[i]);
    return true;
}

/* Adds a row that uses `s`; the strings of `spec` are copied. NULL when there is no memory. */
static mha_tensor *add_row(mha_params *table, const mha_tensor_spec *spec, int rank, const size_t *shape,
                           mha__tensor_storage *s)
{
    const char *role = spec->role ? spec->role : "", *group = spec->group ? spec->group : "";
    size_t name_size = strlen(spec->name) + 1, role_size = strlen(role) + 1, group_size = strlen(group) + 1;
    size_t bytes = name_size + role_size + group_size;
    if (!grow(table))
        return NULL;
    mha_tensor *t = mha__allocate(&table->allocator, sizeof *t);
    char *text = mha__allocate(&table->allocator, bytes);
    if (!t || !text) {
        mha__release(&table->allocator, t, sizeof *t);
        mha__release(&table->allocator, text, bytes);
        return NULL;
    }
    t->name = memcpy(text, spec->name, name_size);
    t->role = memcpy(text + name_size, role, role_size);
    t->group = memcpy(text + name_size + role_size, group, group_size);
    t->name_bytes = bytes;
    t->table = table;
    t->storage = s;
    t->rank = rank;
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    t->source_dtype = spec->has_source ? spec->source_dtype : s->dtype;
    t->row = table->count;
    table->rows[table->count++] = t;
    bucket_insert(table, t);
    if (s->rows++ == 0)
        s->owner = t;
    return t;
}

static mha_status check_spec(const mha_params *table, const mha_tensor_spec *spec, mha_error *error)
{
    if (!spec->name || !*spec->name)
        return mha__fail(error, MHA_INVALID, "", "expected a name of the tensor, found none");
    if (mha_params_find(table, spec->name))
        return mha__fail(error, MHA_INVALID, spec->name, "expected a new name; the table already has a tensor of it");
    TRY(mha__expect_unused(spec->name, spec->reserved, sizeof spec->reserved, error));
    if (spec->rank < 0 || spec->rank > MHA_MAX_RANK)
        return mha__fail(error, MHA_INVALID, spec->name, "expected a rank of 0 to %d, found %d", MHA_MAX_RANK,
                         spec->rank);
    return MHA_OK;
}

static mha__tensor_storage *allocate_storage(mha_params *table, const mha_tensor_spec *spec, size_t elements,
                                             size_t bytes)
{
    mha__tensor_storage *s = mha__allocate(&table->allocator, sizeof *s);
    if (!s)
        return NULL;
    *s = (mha__tensor_storage){.elements = elements,
                               .bytes = bytes,
                               .dtype = spec->dtype,
                               .kind = spec->kind,
                               .frozen = spec->frozen,
                               .by_column = spec->by_column && spec->rank == 2};
    if (mha__storage_allocate(table, s))
        return s;
    mha__storage_release(table, s);
    return NULL;
}

mha_status mha_params_add(mha_params *table, const mha_tensor_spec *spec, mha_tensor **tensor, mha_error *error)
{
    TRY(check_spec(table, spec, error));
    char shape[160];
    mha_view extent = mha_view_of(NULL, spec->dtype, spec->rank, spec->shape);
    size_t elements = mha_view_elements(&extent), bytes;
    if (elements == SIZE_MAX || mha_dtype_bytes(spec->dtype, elements, &bytes, NULL) != MHA_OK || bytes > PTRDIFF_MAX)
        return mha__fail(error, MHA_INVALID, spec->name, "expected bytes that a size can count, found shape %s of %s",
                         mha__shape_text(shape, sizeof shape, spec->shape, spec->rank), mha_dtype_name(spec->dtype));
    mha__tensor_storage *s = allocate_storage(table, spec, elements, bytes);
    mha_tensor *t = s ? add_row(table, spec, spec->rank, spec->shape, s) : NULL;
    if (!t) {
        if (s)
            mha__storage_release(table, s);
        return mha__fail(error, MHA_NO_MEMORY, spec->name, "no memory for shape %s of %s (%zu bytes)",
                         mha__shape_text(shape, sizeof shape, spec->shape, spec->rank), mha_dtype_name(spec->dtype),
                         bytes);
    }
    s->number = table->next_number++;
    if (tensor)
        *tensor = t;
    return MHA_OK;
}

mha_status mha_params_alias(mha_params *table, const mha_tensor_spec *spec, mha_tensor *of, mha_tensor **tensor,
                            mha_error *error)
{
    TRY(check_spec(table, spec, error));
    if (of->table != table)
        return mha__fail(error, MHA_INVALID, spec->name, "expected a row of this table, found %s of another table",
                         of->name);
    bool same_shape = spec->rank == 0 && of->rank != 0;
    int rank = same_shape ? of->rank : spec->rank;
    const size_t *shape = same_shape ? of->shape : spec->shape;
    mha_view extent = mha_view_of(NULL, of->storage->dtype, rank, shape);
    if (mha_view_elements(&extent) != of->storage->elements) {
        char found[160];
        return mha__fail(error, MHA_INVALID, spec->name, "expected %zu elements, as in %s, found shape %s",
                         of->storage->elements, of->name, mha__shape_text(found, sizeof found, shape, rank));
    }
    mha_tensor *t = add_row(table, spec, rank, shape, of->storage);
    if (!t)
        return mha__fail(error, MHA_NO_MEMORY, spec->name, "no memory for a row of the table");
    if (tensor)
        *tensor = t;
    return MHA_OK;
}

void mha__params_remove(mha_params *table, mha_tensor *tensor)
{
    if (!tensor)
        return;
    mha__tensor_storage *s = tensor->storage;
    bucket_remove(table, tensor);
    table->count--;
    for (size_t i = tensor->row; i < table->count; i++) {
        table->rows[i] = table->rows[i + 1];
        table->rows[i]->row = i;
    }
    if (--s->rows == 0) {
        mha__storage_release(table, s);
    } else if (s->owner == tensor) {
        size_t i = 0;
        while (table->rows[i]->storage != s)
            i++;
        s->owner = table->rows[i];
    }
    release_row(table, tensor);
}

size_t mha_params_count(const mha_params *table)
{
    return table->count;
}

mha_tensor *mha_params_at(const mha_params *table, size_t index)
{
    return index < table->count ? table->rows[index] : NULL;
}

/* ---------------------------------------------------------------- totals */

mha_totals mha_params_totals(const mha_params *table, const char *group)
{
    mha_totals totals = {0};
    for (size_t i = 0; i < table->count; i++) {
        const mha_tensor *t = table->rows[i];
        const mha__tensor_storage *s = t->storage;
        if (group && strcmp(t->group, group) != 0)
            continue;
        totals.tensors++;
        totals.aliases += s->owner != t;
        if (s->owner != t) /* a storage counts once, with its owner */
            continue;
        *(s->kind == MHA_TENSOR_DERIVED ? &totals.derived_storages : &totals.storages) += 1;
        const size_t plain = s->data ? s->bytes : 0, copied = s->data ? s->packed_bytes : 0;
        totals.bytes_allocated += plain + s->packed_bytes;
        totals.derived_storages += copied > 0;
        totals.derived_bytes += copied;
        switch (s->kind) {
        case MHA_TENSOR_PARAMETER:
            totals.parameters += s->elements;
            totals.parameter_bytes += s->bytes;
            totals.trainable += s->frozen ? 0 : s->elements;
            totals.inert += s->owner->inert_elements;
            break;
        case MHA_TENSOR_BUFFER:
            totals.buffers += s->elements;
            totals.buffer_bytes += s->bytes;
            break;
        case MHA_TENSOR_DERIVED: totals.derived_bytes += s->bytes; break;
        }
    }
    return totals;
}
