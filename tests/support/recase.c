/* A case file written again with other things in it. */
#include "support/unit.h"

#include <stdlib.h>
#include <string.h>

#include "support/recase.h"

enum { MOST = 64 };

static bool is_replaced(const recase *r, const char *name)
{
    for (size_t i = 0; i < sizeof r->tensors / sizeof *r->tensors; i++)
        if (r->tensors[i].name && strcmp(r->tensors[i].name, name) == 0)
            return true;
    return r->drop && strncmp(name, r->drop, strlen(r->drop)) == 0;
}

static bool is_rekeyed(const recase *r, const char *key)
{
    for (size_t i = 0; i < sizeof r->metadata / sizeof *r->metadata; i++)
        if (r->metadata[i].key && strcmp(r->metadata[i].key, key) == 0)
            return true;
    return false;
}

void recase_write(const char *from, const char *to, const recase *changes)
{
    mha_file *f;
    mha_writer *w;
    mha_error error;
    void *blocks[MOST];
    size_t n = 0;
    assert_ok(mha_file_open(from, &f, &error), error);
    assert_ok(mha_writer_create(to, &w, &error), error);
    for (size_t i = 0; i < mha_file_count(f); i++) {
        const mha_file_tensor *t = mha_file_at(f, i);
        if (is_replaced(changes, t->name))
            continue;
        assert_true(n < MOST);
        mha_view v = mha_view_of(blocks[n++] = malloc(t->bytes + 1), t->dtype, t->rank, t->shape);
        assert_ok(mha_file_read(f, t, &v, &error), error);
        assert_ok(mha_writer_add(w, t->name, &v, &error), error);
    }
    for (size_t i = 0; i < sizeof changes->tensors / sizeof *changes->tensors; i++)
        if (changes->tensors[i].view.data)
            assert_ok(mha_writer_add(w, changes->tensors[i].name, &changes->tensors[i].view, &error), error);
    for (size_t i = 0; i < mha_file_metadata_count(f); i++) {
        const char *key, *value;
        mha_file_metadata_at(f, i, &key, &value);
        if (!is_rekeyed(changes, key))
            assert_ok(mha_writer_add_metadata(w, key, value, &error), error);
    }
    for (size_t i = 0; i < sizeof changes->metadata / sizeof *changes->metadata; i++)
        if (changes->metadata[i].value)
            assert_ok(mha_writer_add_metadata(w, changes->metadata[i].key, changes->metadata[i].value, &error), error);
    assert_ok(mha_writer_commit(w, &error), error);
    mha_writer_destroy(w);
    mha_file_close(f);
    while (n > 0)
        free(blocks[--n]);
}
