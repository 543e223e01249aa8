/* Checks masks, and the parts of a pattern, against the sizes of a call. */
#include "attention/call/definition.h"
#include "attention/plan.h"

mha_status mha__expect_broadcast(const char *name, const mha_view *v, const size_t *full, int rank, bool may_be_short,
                                 mha_error *error)
{
    char expected[120], found[200];
    bool fits = v->rank >= 1 && v->rank <= rank;
    for (int k = 0; k < v->rank && fits; k++) {
        const size_t extent = v->shape[k], whole = full[rank - v->rank + k];
        fits = extent == 1 || extent == whole || whole == SIZE_MAX ||
               (k == v->rank - 1 && may_be_short && extent >= 1 && extent < whole);
    }
    if (fits)
        return MHA_OK;
    const bool list = full[rank - 1] == SIZE_MAX;
    return mha__fail(error, MHA_INVALID, name, "expected a shape that broadcasts to %s%s, found %s",
                     mha__shape_text(expected, sizeof expected, full, list ? rank - 1 : rank),
                     list ? " and a last axis of any extent" : "",
                     mha__shape_text(found, sizeof found, v->shape, v->rank));
}

mha_status mha__mask_check(const char *name, const mha_mask *mask, const size_t *full, int full_rank,
                           bool may_be_short, mha_error *error)
{
    const mha_view *v = &mask->values;
    if (mask->kind == MHA_MASK_NONE)
        return MHA_OK;
    if (!v->data)
        return mha__fail(error, MHA_INVALID, name, "expected values with a kind, found none");
    bool additive = mask->kind == MHA_MASK_ADDITIVE;
    if (additive ? v->dtype != MHA_F32 && v->dtype != MHA_F64 : v->dtype != MHA_BOOL && v->dtype != MHA_U8)
        return mha__fail(error, MHA_INVALID, name, "expected %s, found %s",
                        additive ? "F32 or F64 for an additive mask" : "BOOL or U8 for a mask that keeps or hides",
                        mha_dtype_name(v->dtype));
    return mha__expect_broadcast(name, v, full, full_rank, may_be_short, error);
}

static mha_status check_numbers(const char *name, const mha_view *v, const size_t *full, int rank, mha_error *error)
{
    if (!v->data)
        return MHA_OK;
    if (v->dtype != MHA_I64)
        return mha__fail(error, MHA_INVALID, name, "expected I64, found %s", mha_dtype_name(v->dtype));
    return mha__expect_broadcast(name, v, full, rank, false, error);
}

static size_t blocks_of(size_t n, size_t size)
{
    return n / size + (n % size != 0);
}

mha_status mha__pattern_validate(const mha__resolved *r, mha_error *error)
{
    const mha_pattern *p = &mha__semantics_of(r)->visible.pattern;
    const mha__sizes *n = &r->plan;
    const size_t q[2] = {n->B, n->T_q}, k[2] = {n->B, n->S}, lists[4] = {n->B, n->h, n->T_q, SIZE_MAX};
    if (p->k_segments.data && !p->q_segments.data)
        return mha__fail(error, MHA_INVALID, "k_segments", "expected `q_segments` with it, found it unset");
    if (p->q_segments.data && !p->k_segments.data && (n->T_q != n->S || mha__semantics_of(r)->place.has_key_offset))
        return mha__fail(error, MHA_INVALID, "k_segments",
                         "expected them, as keys are not the queries' own tokens: %zu queries, %zu keys", n->T_q, n->S);
    TRY(check_numbers("q_segments", &p->q_segments, q, 2, error));
    TRY(check_numbers("k_segments", &p->k_segments, k, 2, error));
    TRY(mha__mask_check("query_padding", &p->query_padding, q, 2, false, error));
    TRY(check_numbers("key_lists", &p->key_lists, lists, 4, error));
    const bool given = p->blocks.kind != MHA_MASK_NONE;
    if (given != (p->block_queries > 0) || given != (p->block_keys > 0))
        return mha__fail(error, MHA_INVALID, "blocks", "expected %s, found blocks of %zu queries and %zu keys",
                         given ? "sizes of 1 or more" : "no sizes without a mask of blocks", p->block_queries,
                         p->block_keys);
    const size_t blocks[4] = {n->B, n->h, given ? blocks_of(n->T_q, p->block_queries) : 0,
                              given ? blocks_of(n->S, p->block_keys) : 0};
    return mha__mask_check("blocks", &p->blocks, blocks, 4, false, error);
}
