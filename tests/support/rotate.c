/* Rotation by itself: the rotated queries of a call without a layer whose keys and values are its queries. */
#include <stdlib.h>

#include "support/rotate.h"

mha_status rotate_alone(const mha_view *x, const mha_rope *rope, int64_t first, mha_path path, const mha_view *y,
                        mha_error *error)
{
    const size_t rows[3] = {y->shape[0], y->shape[1], y->shape[2] * y->shape[3]};
    double *turned = calloc(mha_view_elements(y) + 1, sizeof *turned);
    mha_keep keep = {.stage = MHA_STAGE_Q_ROT, .view = mha_view_of(turned, MHA_F64, 3, rows)};
    mha_call call = {.query = *x, .key = *x, .value = *x, .path = path, .threads = 1, .keep = &keep, .keep_count = 1};
    call.semantics = (mha_semantics){.qkv.rope = *rope, .place = {.has_offset = true, .offset = first}};
    mha_status status = mha_run(NULL, &call, error);
    if (status == MHA_OK) {
        const mha_view by_head = mha_view_of(turned, MHA_F64, 4, y->shape);
        status = mha_view_copy(y, &by_head, NULL);
    }
    free(turned);
    return status;
}
