/* Floats that are rounded to BF16 and stay floats. */
#include "compute/bf16_floats.h"
#include "compute/kernels/kernels.h"

void mha__round_floats(size_t n, const float *x, float *y)
{
    const mha__kernels *k = mha__kernels_get();
    uint16_t room[MHA_BLOCK];
    for (size_t at = 0, some; at < n; at += some) {
        some = n - at < MHA_BLOCK ? n - at : MHA_BLOCK;
        k->narrow(1, some, x + at, some, MHA_BF16, room, some);
        k->widen(1, some, room, some, MHA_BF16, y + at, some, NULL);
    }
}
