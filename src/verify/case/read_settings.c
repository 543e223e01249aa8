/* The settings of a case, row by row: numbers, switches and choices from metadata keys, arrays from tensors. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "lab/settings.h"
#include "verify/case/record.h"

/* Finds the spelling of a setting that the file has: its name or an alias; "" for none. */
static mha_status find_spelling(const mha_case *c, const mha_setting *s, char found[MHA__SPELLING_BYTES],
                                mha_error *error)
{
    char names[4 * MHA__SPELLING_BYTES], *rest = NULL;
    snprintf(names, sizeof names, "%s %s", s->name, s->aliases ? s->aliases : "");
    found[0] = '\0';
    for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
        const mha_file_tensor *t = mha__setting_is_array(s) ? mha_file_find(c->file, name) : NULL;
        const bool is_key = mha_file_metadata(c->file, name) != NULL, /* in an npz, an array without extents is one */
                   there = mha__setting_is_array(s) ? t && !(t->rank == 0 && is_key) : is_key;
        if (there && *found)
            return mha__fail(error, MHA_INVALID, name, "expected one of %s and %s, which are one word, found both",
                             found, name);
        if (there)
            snprintf(found, MHA__SPELLING_BYTES, "%s", name);
    }
    return MHA_OK;
}

const char *mha__case_spelling(const mha_case *c, const char *setting, char found[MHA__SPELLING_BYTES])
{
    (void)find_spelling(c, mha_setting_find(setting), found, NULL); /* has been found before */
    if (!*found)
        snprintf(found, MHA__SPELLING_BYTES, "%s", setting);
    return found;
}

/* A number may be spelled as a real one: "4.0". An infinity that is the default is not put. */
static mha_status read_number(const mha_case *c, const mha_setting *s, const char *key, mha_semantics *semantics,
                              mha_error *error)
{
    double x;
    const char *text = mha_file_metadata(c->file, key);
    const bool digits = s->kind != MHA_SETTING_REAL && *text && text[strspn(text, "-0123456789")] == '\0';
    char small[8] = "";
    for (size_t i = 0; s->kind == MHA_SETTING_SWITCH && i + 1 < sizeof small && text[i]; i++)
        small[i] = (char)tolower((unsigned char)text[i]); /* Python writes True */
    if (s->kind == MHA_SETTING_SWITCH)
        return mha_setting_put(s, strlen(text) < sizeof small ? small : text, semantics, error);
    if (s->kind == MHA_SETTING_CHOICE || digits)
        return mha_setting_put(s, text, semantics, error);
    TRY(mha__case_number(c, key, 0, &x, error));
    if (isinf(x) && s->unset && strtod(s->unset, NULL) == x)
        return MHA_OK;
    return mha_setting_put_number(s, x, semantics, error);
}

static mha_status read_array(mha_case *c, const mha_setting *s, const char *name, mha_error *error)
{
    const case_content content = s->kind == MHA_SETTING_VIEW    ? CASE_ANY
                                 : s->kind == MHA_SETTING_REALS ? CASE_DOUBLE
                                                                : CASE_COUNT;
    const mha_file_tensor *t = mha_file_find(c->file, name);
    mha_view v;
    if (t->rank == 0)
        return mha__fail(error, MHA_INVALID, name, "expected an array, %s, found one without extents", s->shape);
    TRY(mha__case_read_tensor(c, t, content, &v, error));
    const bool by_batch = strncmp(s->shape, "(B, ", 4) == 0 && !strchr(s->shape + 4, ','); /* (B, T) */
    if (s->kind == MHA_SETTING_VIEW && by_batch && v.rank == 1) /* the same for all batch rows */
        v = mha_view_of(v.data, v.dtype, 2, (const size_t[]){1, v.shape[0]});
    return mha__setting_put_view(s, &v, &c->semantics, error);
}

mha_status mha__case_read_settings(mha_case *c, mha_error *error)
{
    const mha_setting *s;
    char name[MHA__SPELLING_BYTES];
    for (size_t i = 0; (s = mha_setting_at(i)) != NULL; i++) {
        TRY(find_spelling(c, s, name, error));
        if (!*name)
            continue;
        const mha_status status = mha__setting_is_array(s) ? read_array(c, s, name, error)
                                                           : read_number(c, s, name, &c->semantics, error);
        if (status != MHA_OK && error)
            mha__text_print(error->name, sizeof error->name, "%s", name);
        TRY(status);
    }
    return MHA_OK;
}

mha_status mha__case_check_lengths(const mha_case *c, mha_error *error)
{
    const mha_setting *s;
    char name[MHA__SPELLING_BYTES];
    for (size_t i = 0; (s = mha_setting_at(i)) != NULL; i++) {
        const size_t wanted = mha_setting_length(s, &c->semantics, c->B, c->H);
        TRY(find_spelling(c, s, name, error));
        const mha_file_tensor *t = *name && wanted > 0 ? mha_file_find(c->file, name) : NULL;
        if (t && t->elements != wanted)
            return mha__fail(error, MHA_INVALID, name, "expected %zu elements, %s, found %zu", wanted, s->shape,
                             t->elements);
    }
    return MHA_OK;
}
