/* Reads the masks and the pattern of a case. Shapes are checked with the call. */
#include <math.h>

#include "base/base.h"
#include "verify/case/record.h"

static mha_status build_mask(const mha_case *c, case_tensor tensor, const char *key, mha_mask *mask, mha_error *error)
{
    enum { NONE, ADDITIVE, KEEPS, MASKS }; /* in the order of the values in the table of words */
    static const mha_mask_kind kinds[] = {
        [NONE] = MHA_MASK_NONE, [ADDITIVE] = MHA_MASK_ADDITIVE, [KEEPS] = MHA_MASK_KEEPS, [MASKS] = MHA_MASK_HIDES};
    const mha_view *v = &c->tensors[tensor];
    const char *name = mha__case_tensor_name(tensor);
    const bool real = v->dtype == MHA_F32 || v->dtype == MHA_F64;
    int kind;
    TRY(mha__case_choice(c, key, &kind, error));
    if (kind < 0 && v->data && !real)
        return mha__fail(error, MHA_INVALID, key,
                         "is missing: %s holds booleans, and where they are true, a key either"
                         " stays (bool_true_keeps) or is hidden (bool_true_masks)",
                         name);
    if (kind < 0)
        kind = v->data ? ADDITIVE : NONE;
    if ((kind != NONE) != (v->data != NULL))
        return mha__fail(error, MHA_INVALID, name, "is %s, but metadata %s is %s", v->data ? "there" : "missing", key,
                         mha_file_metadata(c->file, key));
    if (v->data && real != (kind == ADDITIVE))
        return mha__fail(error, MHA_INVALID, name, "expected %s, as metadata %s is %s, found %s", real ? "BOOL" : "F32",
                         key, mha_file_metadata(c->file, key), mha_dtype_name(v->dtype));
    mask->kind = kinds[kind];
    mask->values = *v;
    return MHA_OK;
}

/* Replaces -inf, which hides a key, by `fill` in an additive mask. The result is F64, which holds every fill. */
static mha_status fill_hidden(mha_case *c, mha_view *mask, double fill, mha_error *error)
{
    mha_view filled = mha__arena_view(&c->pool, MHA_F64, mask->rank, mask->shape);
    if (!filled.data)
        return mha__fail(error, MHA_NO_MEMORY, "key_padding_mask", "no memory");
    (void)mha_view_copy(&filled, mask);
    double *value = filled.data;
    for (size_t i = 0; i < mha_view_elements(&filled); i++)
        value[i] = value[i] == -INFINITY ? fill : value[i];
    *mask = filled;
    return MHA_OK;
}

static mha_status build_key_masks(mha_case *c, mha_error *error)
{
    mha_semantics *s = &c->semantics;
    double fill;
    TRY(build_mask(c, CASE_ATTN_MASK, "attn_mask_kind", &s->mask, error));
    TRY(build_mask(c, CASE_PADDING, "key_padding_mask_kind", &s->key_padding, error));
    mha_view *p = &s->key_padding.values;
    if (p->data && p->rank == 1)
        *p = mha_view_of(p->data, p->dtype, 2, (const size_t[]){1, p->shape[0]});
    TRY(mha__case_value(c, "mask_filter_value", &fill, error));
    if (fill == INFINITY)
        return mha__fail(error, MHA_INVALID, "mask_filter_value", "expected less than inf");
    if (fill == -INFINITY || !p->data) /* adding -inf is the same as hiding */
        return MHA_OK;
    if (s->key_padding.kind == MHA_MASK_ADDITIVE)
        return fill_hidden(c, p, fill, error);
    s->has_padding_fill = true;
    s->padding_fill = fill;
    return MHA_OK;
}

static mha_status build_pattern(mha_case *c, mha_error *error)
{
    mha_pattern *p = &c->semantics.pattern;
    int64_t queries, keys;
    p->q_segments = c->tensors[CASE_Q_SEGMENTS];
    p->k_segments = c->tensors[CASE_K_SEGMENTS];
    p->key_lists = c->tensors[CASE_KEY_LISTS];
    TRY(build_mask(c, CASE_QUERY_PADDING, "query_padding_mask_kind", &p->query_padding, error));
    TRY(build_mask(c, CASE_BLOCKS, "block_mask_kind", &p->blocks, error));
    TRY(mha__case_whole(c, "block_queries", 0, 0, &queries, error));
    TRY(mha__case_whole(c, "block_keys", 0, 0, &keys, error));
    p->block_queries = (size_t)queries;
    p->block_keys = (size_t)keys;
    return MHA_OK;
}

mha_status mha__case_build_masks(mha_case *c, mha_error *error)
{
    TRY(build_key_masks(c, error));
    return build_pattern(c, error);
}
