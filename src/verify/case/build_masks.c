/* Reads the masks and the pattern of a case. Shapes are checked with the call. */
#include <math.h>

#include "base/base.h"
#include "verify/case/record.h"

/* Masks by the setting of their values. */
typedef struct named_mask {
    const char *name, *kind;
    mha_mask *mask;
} named_mask;

/* Floats without a kind are added; a kind and values go together. */
static mha_status complete_mask(const mha_case *c, const named_mask *m, mha_error *error)
{
    const mha_view *v = &m->mask->values;
    const bool real = v->dtype == MHA_F32 || v->dtype == MHA_F64;
    char spelling[MHA__SPELLING_BYTES], kind_spelling[MHA__SPELLING_BYTES];
    const char *name = mha__case_spelling(c, m->name, spelling), *key = mha__case_spelling(c, m->kind, kind_spelling),
               *stated = mha_file_metadata(c->file, key);
    mha_mask_kind *kind = &m->mask->kind;
    if (v->data && !stated && !real)
        return mha__fail(error, MHA_INVALID, key,
                         "expected keeps or hides, whether true in %s keeps or hides a key, found none",
                         name);
    if (v->data && !stated)
        *kind = MHA_MASK_ADDITIVE;
    if ((*kind != MHA_MASK_NONE) != (v->data != NULL))
        return mha__fail(error, MHA_INVALID, name, "expected %s, as metadata %s is %s, found %s",
                         v->data ? "none" : "one", key,
                         stated, v->data ? "one" : "none");
    if (v->data && real != (*kind == MHA_MASK_ADDITIVE))
        return mha__fail(error, MHA_INVALID, name, "expected %s, as metadata %s is %s, found %s", real ? "BOOL" : "F32",
                         key, stated, mha_dtype_name(v->dtype));
    return MHA_OK;
}

mha_status mha__case_build_masks(mha_case *c, mha_error *error)
{
    mha_semantics *s = &c->semantics;
    const named_mask masks[] = {{"mask", "mask_kind", &s->visible.mask},
                                {"key_padding", "key_padding_kind", &s->visible.key_padding},
                                {"query_padding", "query_padding_kind", &s->visible.pattern.query_padding},
                                {"blocks", "blocks_kind", &s->visible.pattern.blocks}};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++)
        TRY(complete_mask(c, &masks[i], error));
    mha_view *padding = &s->visible.key_padding.values;
    const bool adds = s->visible.key_padding.kind == MHA_MASK_ADDITIVE, fills = adds && s->visible.has_padding_fill;
    if (fills) /* F64 represents every fill */
        TRY(mha__arena_copy(&c->pool, MHA_F64, padding, "key_padding", padding, error));
    double *value = padding->data;
    for (size_t i = 0; fills && i < mha_view_elements(padding); i++)
        value[i] = value[i] == -INFINITY ? s->visible.padding_fill : value[i]; /* -inf hides a key */
    if (adds || !padding->data)
        s->visible.has_padding_fill = false, s->visible.padding_fill = 0;
    return MHA_OK;
}
