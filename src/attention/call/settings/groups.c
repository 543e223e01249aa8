/* Compares the settings of one group, because padding between the fields of a part need not be equal. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "attention/call/settings/settings.h"

/* What of a setting is compared: of a view, the place of its data, and then its strides. */
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
    const mha_setting *s = mha_setting_at(0), *const end = s + mha__setting_count();
    bool same = true;
    while (s < end && s->group < group)
        s++;
    for (; same && s < end && s->group == group; s++) {
        const size_t at = s->at + (s->kind == MHA_SETTING_VIEW ? offsetof(mha_view, data) : 0);
        same = agree(a, b, at, bytes_of(s)) &&
               (s->kind != MHA_SETTING_VIEW || view_agrees(a, b, s->at)) &&
               (s->given_at == SIZE_MAX || agree(a, b, s->given_at, sizeof(bool)));
    }
    return same;
}
