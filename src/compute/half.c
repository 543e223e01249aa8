/* Conversion of narrow numbers, of 16 or 8 bits, to floats, which BLAS needs, and of floats to narrow numbers, for the
 * cache. */
#include <string.h>

#include "base/heads.h"
#include "compute/half.h"
#include "compute/kernels/kernels.h"
#include "compute/thread_pool.h"

enum { ROWS_AT_ONCE = 64 };

typedef struct conversion {
    const mha_view *to, *from;
    size_t blocks; /* of rows */
} conversion;

static void widen_rows(void *context, size_t task, int worker)
{
    (void)worker;
    const conversion *j = context;
    const size_t heads = j->to->shape[2], T = j->to->shape[1];
    const size_t first = task % j->blocks * ROWS_AT_ONCE, g = task / j->blocks % heads, b = task / j->blocks / heads;
    mha__kernels_get()->widen(T - first < ROWS_AT_ONCE ? T - first : ROWS_AT_ONCE, j->to->shape[3],
                              mha__narrow_row_at(j->from, b, first, g), (size_t)j->from->stride[1], j->from->dtype,
                              mha__row(j->to, b, first, g), (size_t)j->to->stride[1], NULL);
}

/* Rows of 8 bits to numbers of any floating type, wherever these lie. */
static void widen_bytes(const mha_view *to, const mha_view *from)
{
    const size_t *n = from->shape;
    for (size_t b = 0; b < n[0]; b++)
        for (size_t t = 0; t < n[1]; t++)
            for (size_t g = 0; g < n[2]; g++) {
                const unsigned char *row = mha__narrow_row_at(from, b, t, g);
                float scale;
                memcpy(&scale, row + from->stride[1] - MHA_ROW_SCALE, sizeof scale);
                for (size_t c = 0; c < n[3]; c++)
                    mha_view_set(to, (size_t[]){b, t, g, c}, (double)((float)(int8_t)row[c] * scale));
            }
}

void mha__widen(const mha_view *to, const mha_view *from, int threads)
{
    if (mha_view_elements(to) == 0)
        return;
    const bool rows = to->dtype == MHA_F32 && to->stride[3] == 1 && to->stride[1] >= 0 && from->stride[1] >= 0;
    if (rows && (from->dtype == MHA_F16 || from->dtype == MHA_BF16 || from->dtype == MHA_I8)) {
        conversion j = {to, from, (to->shape[1] + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE};
        mha__parallel_for(to->shape[0] * to->shape[2] * j.blocks, threads, widen_rows, &j);
    } else if (from->dtype == MHA_I8) {
        widen_bytes(to, from);
    } else {
        (void)mha_view_copy(to, from, NULL);
    }
}

void mha__narrow(const mha_view *to, const mha_view *from, float *room)
{
    const bool bytes = to->dtype == MHA_I8, narrow = bytes || to->dtype == MHA_F16 || to->dtype == MHA_BF16,
               direct = narrow && from->dtype == MHA_F32 && from->stride[3] == 1 && from->stride[2] >= 0;
    const size_t d = to->shape[3], at_once = direct ? to->shape[2] : 1;
    const mha_view floats = mha_view_of(room, MHA_F32, 4, (size_t[]){1, 1, 1, d});
    if (mha_view_elements(to) == 0)
        return;
    if (!direct && !bytes) {
        (void)mha_view_copy(to, from, NULL);
        return;
    }
    for (size_t a = 0; a < to->shape[0]; a++)
        for (size_t b = 0; b < to->shape[1]; b++)
            for (size_t c = 0; c < to->shape[2]; c += at_once) {
                const mha_view row = mha__one_row(from, a, b, c, d);
                if (!direct)
                    (void)mha_view_copy(&floats, &row, NULL);
                mha__kernels_get()->narrow(at_once, d, direct ? row.data : room, direct ? (size_t)from->stride[2] : d,
                                           to->dtype, mha__narrow_row_at(to, a, b, c), (size_t)to->stride[2]);
            }
}

/* ---------------------------------------------------------------- rounded, still floats */

/* Heads that lie beside each other are one row. */
static void round_rows(void *context, size_t task, int worker)
{
    (void)worker;
    const conversion *j = context;
    const size_t T = j->to->shape[1], heads = j->to->shape[2], d = j->to->shape[3];
    const bool whole = j->to->stride[2] == (ptrdiff_t)d && j->from->stride[2] == (ptrdiff_t)d;
    for (size_t g = 0; g < heads; g += whole ? heads : 1)
        mha__kernels_get()->round_to_bf16(whole ? heads * d : d, mha__row(j->from, task / T, task % T, g),
                                          mha__row(j->to, task / T, task % T, g));
}

void mha__round_to_bf16(const mha_view *to, const mha_view *from, int threads)
{
    mha__parallel_for(to->shape[0] * to->shape[1], threads, round_rows, &(conversion){.to = to, .from = from});
}
