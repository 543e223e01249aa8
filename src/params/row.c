/* A row of the parameter table as users see it, and the marks that layers and models set on it. */
#include <string.h>

#include "base/base.h"
#include "params/table.h"

mha_tensor_info mha_tensor_info_of(const mha_tensor *t)
{
    const mha__tensor_storage *s = t->storage;
    mha_tensor_info info = {
        .name = t->name,
        .role = t->role,
        .group = t->group,
        .dtype = s->dtype,
        .source_dtype = t->source_dtype,
        .rank = t->rank,
        .kind = s->kind,
        .trainable = s->kind == MHA_TENSOR_PARAMETER && !s->frozen,
        .elements = s->elements,
        .bytes = s->bytes,
        .packed_bytes = s->packed_bytes,
        .inert_elements = t->inert_elements,
        .inert_why = t->inert_why ? t->inert_why : "",
        .storage = s->number,
        .alias_of = s->owner == t ? NULL : s->owner->name,
        .data = s->data,
    };
    memcpy(info.shape, t->shape, sizeof info.shape);
    return info;
}

mha_status mha__tensor_set_inert(mha_tensor *tensor, size_t elements, const char *why)
{
    if (elements > tensor->storage->elements)
        return MHA_INVALID;
    size_t bytes = strlen(why) + 1;
    char *copy = mha__allocate(&tensor->table->allocator, bytes);
    if (!copy)
        return MHA_NO_MEMORY;
    mha__release(&tensor->table->allocator, tensor->inert_why, tensor->inert_bytes);
    tensor->inert_why = memcpy(copy, why, bytes);
    tensor->inert_bytes = bytes;
    tensor->inert_elements = elements;
    return MHA_OK;
}

void mha__tensor_set_derived(mha_tensor *tensor)
{
    tensor->storage->kind = MHA_TENSOR_DERIVED;
}

void mha__tensor_set_source_dtype(mha_tensor *tensor, mha_dtype dtype)
{
    tensor->source_dtype = dtype;
}
