/* GGUF files made by tests. */
#include "support/unit.h"

#include <stdlib.h>
#include <string.h>

#include "support/gguf.h"

enum { U32 = 4, F32 = 6, FLAG = 7, STRING = 8, ARRAY = 9 };

static void add_key(gguf_plan *p, const char *key, int type)
{
    bytes_number(&p->pairs, strlen(key), 8);
    bytes_text(&p->pairs, key);
    bytes_number(&p->pairs, (uint64_t)type, 4);
    p->pair_count++;
}

void gguf_text(gguf_plan *p, const char *key, const char *value)
{
    add_key(p, key, STRING);
    bytes_number(&p->pairs, strlen(value), 8);
    bytes_text(&p->pairs, value);
}

void gguf_count(gguf_plan *p, const char *key, size_t value)
{
    add_key(p, key, U32);
    bytes_number(&p->pairs, value, 4);
}

void gguf_real(gguf_plan *p, const char *key, double value)
{
    const float number = (float)value;
    add_key(p, key, F32);
    bytes_add(&p->pairs, &number, 4);
}

void gguf_flag(gguf_plan *p, const char *key, bool value)
{
    add_key(p, key, FLAG);
    bytes_number(&p->pairs, value, 1);
}

void gguf_list(gguf_plan *p, const char *key, const size_t *values, size_t count, bool flags)
{
    add_key(p, key, ARRAY);
    bytes_number(&p->pairs, flags ? FLAG : U32, 4);
    bytes_number(&p->pairs, count, 8);
    for (size_t i = 0; i < count; i++)
        bytes_number(&p->pairs, values[i], flags ? 1 : 4);
}

void gguf_add(gguf_plan *p, const char *name, int rank, const size_t *shape, float *values)
{
    gguf_tensor *t = &p->tensors[p->count++];
    assert_true(p->count <= GGUF_MOST);
    *t = (gguf_tensor){.name = name, .rank = rank, .values = values};
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
}

static size_t elements(const gguf_tensor *t)
{
    return t->shape[0] * (t->rank > 1 ? t->shape[1] : 1) * (t->rank > 2 ? t->shape[2] : 1);
}

mha_file *gguf_open(gguf_plan *p)
{
    bytes b = {0};
    mha_file *file;
    mha_error error;
    size_t at = 0;
    bytes_text(&b, "GGUF");
    bytes_number(&b, 3, 4);
    bytes_number(&b, p->count, 8);
    bytes_number(&b, p->pair_count, 8);
    bytes_add(&b, p->pairs.data, p->pairs.count);
    for (size_t i = 0; i < p->count; i++) {
        const gguf_tensor *t = &p->tensors[i];
        bytes_number(&b, strlen(t->name), 8);
        bytes_text(&b, t->name);
        bytes_number(&b, (uint64_t)t->rank, 4);
        for (int k = t->rank; k-- > 0;)
            bytes_number(&b, t->shape[k], 8);
        bytes_number(&b, 0, 4); /* F32 */
        bytes_number(&b, at, 8);
        at += (elements(t) * 4 + 31) / 32 * 32;
    }
    for (size_t i = 0; i < p->count; i++) {
        bytes_zeros(&b, (32 - b.count % 32) % 32);
        bytes_add(&b, p->tensors[i].values, elements(&p->tensors[i]) * 4);
    }
    bytes_zeros(&b, (32 - b.count % 32) % 32);
    assert_ok(mha_file_open(scratch_take("made.gguf", &b), &file, &error), error);
    return file;
}

void gguf_free(gguf_plan *p)
{
    for (size_t i = 0; i < p->count; i++)
        free(p->tensors[i].values);
    bytes_free(&p->pairs);
}
