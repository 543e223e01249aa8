/* Chunks of strided views in row-major order, and byte order, for reading and writing. */
#include <string.h>

#include "base/heads.h"
#include "formats/files/chunks.h"

void mha__swap_bytes(void *data, mha_dtype dtype, size_t count)
{
    size_t width = mha__element_bytes(dtype);
    if (dtype == MHA_C64) {
        width /= 2;
        count *= 2;
    }
    unsigned char *at = data;
    for (size_t i = 0; i < count && width > 1; i++, at += width)
        for (size_t k = 0; k < width / 2; k++) {
            unsigned char kept = at[k];
            at[k] = at[width - 1 - k];
            at[width - 1 - k] = kept;
        }
}

mha_status mha__view_pieces(const mha_view *view, size_t limit, mha__piece_visit visit, void *context)
{
    size_t n = mha_view_elements(view);
    if (n == 0)
        return MHA_OK;
    if (n <= limit)
        return visit(context, view);
    size_t rows = view->shape[0], row = n / rows;
    size_t step = row > limit ? 1 : limit / row;
    mha_status status = MHA_OK;
    for (size_t from = 0; from < rows && status == MHA_OK; from += step) {
        mha_view part = row > limit ? mha__view_at(view, from)
                                    : mha_view_slice(view, 0, from, rows - from < step ? rows - from : step);
        status = mha__view_pieces(&part, limit, visit, context);
    }
    return status;
}
