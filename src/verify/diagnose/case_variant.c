/* A case computed the way some variants would. */
#include <string.h>

#include "base/base.h"
#include "verify/diagnose/variant_forward.h"

static mha_status apply_named(const mha_case *c, const char *name, mha__dialect *d, mha_error *error)
{
    for (size_t i = 0; i < mha_variant_count(); i++) {
        const mha__variant_entry *e = mha__variant_entry_at(i);
        if (strcmp(e->shown.name, name) == 0)
            return e->apply(c, d)
                       ? MHA_OK
                       : mha__fail(error, MHA_UNSUPPORTED, name, "variant %s does not apply to this case", name);
    }
    return mha__fail(error, MHA_NOT_FOUND, name, "expected the name of a variant, found %s", name);
}

mha_status mha_case_variant(const mha_case *c, const char *const *variants, size_t count, mha_stage stage,
                            const mha_view *result, mha_error *error)
{
    mha__dialect_bench *bench = NULL;
    mha_status status = mha__dialect_bench_create(c, &bench, error);
    if (status)
        return status;
    mha__dialect d = mha__dialect_of(c);
    for (size_t i = 0; i < count && !status; i++)
        status = apply_named(c, variants[i], &d, error);
    size_t shape[4], heads[4] = {c->B, c->T_q, c->H, c->d_v};
    int rank = mha__dialect_shape(bench, stage, shape);
    if (stage == MHA_STAGE_OUTPUT && result->rank == 4)
        rank = 4, memcpy(shape, heads, sizeof shape);
    mha__arena pool = {.allocator = c->pool.allocator};
    mha_view computed = {0};
    if (!status)
        computed = mha__arena_view(&pool, MHA_F64, rank, shape);
    if (!status && !computed.data)
        status = mha__fail(error, MHA_NO_MEMORY, c->name, "no memory for stage %s", mha_stage_name(stage));
    if (!status) {
        mha__dialect_run(bench, &d, stage, 0, c->B, computed.data);
        char expected[128], found[128];
        if (mha_view_copy(result, &computed))
            status = mha__fail(error, MHA_INVALID, mha_stage_name(stage), "stage %s: expected shape %s, found %s",
                              mha_stage_name(stage), mha__shape_text(expected, sizeof expected, shape, rank),
                              mha__shape_text(found, sizeof found, result->shape, result->rank));
    }
    mha__arena_free(&pool);
    mha__dialect_bench_destroy(bench);
    return status;
}
