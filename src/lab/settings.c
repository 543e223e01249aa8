/* Compares semantics by the table of settings, puts arrays, finds the setting that a name means. */
#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include "lab/lab.h"
#include "lab/settings.h"

/* ---------------------------------------------------------------- compared */

/* The compared bytes of a setting: of a view, the address of its data, and then its strides. */
static size_t bytes_of(const mha_setting *s)
{
    static const size_t bytes[] = {
        [MHA_SETTING_SWITCH] = sizeof(bool),
        [MHA_SETTING_WHOLE] = sizeof(int64_t),
        [MHA_SETTING_COUNT] = sizeof(size_t),
        [MHA_SETTING_REAL] = sizeof(double),
        [MHA_SETTING_CHOICE] = sizeof(int),
        [MHA_SETTING_VIEW] = sizeof(void *),
        [MHA_SETTING_WHOLES] = sizeof(int64_t *),
        [MHA_SETTING_REALS] = sizeof(double *),
    };
    return bytes[s->kind];
}

/* Most settings are a word, which memcpy of a known size loads in one instruction. */
static inline bool agree(const mha_semantics *a, const mha_semantics *b, size_t at, size_t bytes)
{
    const char *x = (const char *)a + at, *y = (const char *)b + at;
    uint64_t from_a, from_b;
    if (bytes != sizeof from_a)
        return memcmp(x, y, bytes) == 0;
    memcpy(&from_a, x, sizeof from_a);
    memcpy(&from_b, y, sizeof from_b);
    return from_a == from_b;
}

/* Whether views of the same data are read in the same order. */
static bool view_agrees(const mha_semantics *a, const mha_semantics *b, size_t at)
{
    const mha_view *x = (const mha_view *)((const char *)a + at), *y = (const mha_view *)((const char *)b + at);
    return !x->data ||
           (x->rank == y->rank && memcmp(x->stride, y->stride, (size_t)x->rank * sizeof *x->stride) == 0);
}

/* The part of a group, in whose bytes copies of one semantics agree, padding and all. */
static const struct {
    size_t at, bytes;
} parts[MHA_SETTINGS_GROUP_COUNT] = {
    [MHA_SETTINGS_PLACE] = {offsetof(mha_semantics, place), sizeof(mha_place)},
    [MHA_SETTINGS_QKV] = {offsetof(mha_semantics, qkv), sizeof(mha_qkv)},
    [MHA_SETTINGS_VISIBLE] = {offsetof(mha_semantics, visible), sizeof(mha_visible)},
    [MHA_SETTINGS_ADDED] = {offsetof(mha_semantics, added), sizeof(mha_added)},
    [MHA_SETTINGS_SOFTMAX] = {offsetof(mha_semantics, softmax), sizeof(mha_softmax)},
};

bool mha__settings_same(mha_setting_group group, const mha_semantics *a, const mha_semantics *b)
{
    if (agree(a, b, parts[group].at, parts[group].bytes))
        return true;
    const mha_setting *s;
    bool same = true;
    for (size_t i = 0; same && (s = mha_setting_at(i)) != NULL && s->group <= group; i++) {
        if (s->group < group)
            continue;
        const size_t at = s->at + (s->kind == MHA_SETTING_VIEW ? offsetof(mha_view, data) : 0);
        same = agree(a, b, at, bytes_of(s)) &&
               (s->kind != MHA_SETTING_VIEW || view_agrees(a, b, s->at)) &&
               (s->given_at == SIZE_MAX || agree(a, b, s->given_at, sizeof(bool)));
    }
    return same;
}

/* ---------------------------------------------------------------- put, found */

/* Takes the number of sequences from the first array that has it; that of others must agree. */
static mha_status put_sequences(const mha_setting *s, size_t n, mha_semantics *semantics, mha_error *error)
{
    const size_t known = semantics->place.n_sequences;
    if (known > 0 && n != known + 1)
        return mha__fail(error, MHA_INVALID, s->name, "expected n_sequences + 1 = %zu numbers, found %zu", known + 1,
                         n);
    if (n < 2)
        return mha__fail(error, MHA_INVALID, s->name, "expected n_sequences + 1 numbers, 2 or more, found %zu", n);
    semantics->place.n_sequences = n - 1;
    return MHA_OK;
}

mha_status mha__setting_put_view(const mha_setting *s, const mha_view *view, mha_semantics *semantics, mha_error *error)
{
    const mha_dtype wanted = s->kind == MHA_SETTING_REALS ? MHA_F64 : MHA_I64;
    char *at = (char *)semantics + s->at;
    if (s->kind < MHA_SETTING_VIEW)
        return mha__fail(error, MHA_UNSUPPORTED, s->name, "expected a number, not an array");
    if (s->kind == MHA_SETTING_VIEW) {
        memcpy(at, view, sizeof *view);
        return MHA_OK;
    }
    if (view->dtype != wanted || view->rank != 1 || (view->shape[0] > 1 && view->stride[0] != 1))
        return mha__fail(error, MHA_INVALID, s->name, "expected %s of rank 1, contiguous, found %s of rank %d",
                         mha_dtype_name(wanted), mha_dtype_name(view->dtype), view->rank);
    if (s->per == MHA_PER_SEQUENCE)
        TRY(put_sequences(s, view->shape[0], semantics, error));
    memcpy(at, &view->data, sizeof view->data);
    return MHA_OK;
}

const mha_setting *mha__setting_near(const char *name)
{
    enum { LONGEST = 40 }; /* letters, more than any name has */
    const mha_setting *row, *best = NULL;
    const size_t length = strnlen(name, LONGEST + 1);
    size_t least = length / 3 + 1;
    char letters[LONGEST + 1];
    if (length > LONGEST)
        return NULL;
    for (size_t i = 0; i <= length; i++)
        letters[i] = name[i] == '-' ? '_' : name[i];
    for (size_t i = 0; (row = mha_setting_at(i)) != NULL; i++)
        if (row->foreign && mha__text_among(row->foreign, letters))
            return row;
    for (size_t i = 0; i < length; i++)
        letters[i] = (char)tolower((unsigned char)letters[i]);
    for (size_t i = 0; (row = mha_setting_at(i)) != NULL; i++) {
        const size_t apart = mha__text_distance(letters, row->name);
        if (apart < least)
            least = apart, best = row;
    }
    return best;
}
