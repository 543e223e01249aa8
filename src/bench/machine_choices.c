/* What the library goes by here: products of each kind that tries distances are run until one is chosen. */
#include "bench/machine_choices.h"

#include <string.h>

#include "base/base.h"
#include "compute/handover.h"
#include "compute/kernels/kernels.h"
#include "compute/packed/packed_gemm.h"

/* Memory beyond the caches, and room for what is multiplied by it. */
typedef struct trial {
    size_t bytes;
    void *memory;
    float X[MHA_FEW_ROWS * MHA_STAGED * 8], Y[MHA_FEW_ROWS * 4096];
    _Alignas(64) char scratch[1 << 16];
} trial;

/* Two query rows by keys, block by block. */
static void try_keys(trial *t)
{
    const mha__kernels *kernels = mha__kernels_get();
    const size_t n = 512, width = 128, block = n * width;
    const float *K = t->memory;
    for (size_t at = 0; (at + block) * sizeof *K <= t->bytes && mha__fetch_tries(MHA__FETCHED_KEYS); at += block) {
        const mha__fetch fetch = mha__fetch_begin(MHA__FETCHED_KEYS, t->bytes);
        kernels->product_rows(2, n, width, t->X, K + at, width, NULL, 0, fetch.ahead, t->Y, MHA_STAGED);
        mha__fetch_end(&fetch, block * sizeof *K);
    }
}

/* Rows by packed weights (2048, 2048), one matrix after the other. */
static void try_weights(trial *t, mha__fetched what, size_t rows, mha_dtype dtype)
{
    const size_t k = 2048, n = 2048;
    mha__packed_product product = {.m = rows, .k = k, .ldx = k, .X = t->X, .n_outputs = 1};
    size_t bytes = 0;
    if (dtype == MHA_F32 || dtype == MHA_BF16)
        (void)mha_dtype_bytes(dtype, k * n, &bytes, NULL);
    else
        (void)mha__packed_block_bytes(k, n, dtype, &bytes);
    if (mha__packed_scratch(rows, k, dtype) > sizeof t->scratch)
        return;
    for (size_t at = 0; at + bytes <= t->bytes && mha__fetch_tries(what); at += bytes) {
        product.outputs[0] =
            (mha__packed_output){.n = n, .ldy = n, .panels = (char *)t->memory + at, .dtype = dtype, .Y = t->Y};
        mha__packed_run(&product, 1, 1, t->scratch);
    }
}

static void try_distances(void)
{
    mha_allocator a = mha__allocator_default();
    bool tries = false;
    for (int what = 0; what < MHA__FETCHED_COUNT; what++)
        tries |= mha__fetch_tries((mha__fetched)what);
    trial *t = tries ? mha__allocate(&a, sizeof *t) : NULL;
    if (!t)
        return;
    memset(t, 0, sizeof *t);
    t->bytes = (size_t)80 << 20;
    t->memory = mha__allocate(&a, t->bytes);
    if (t->memory) {
        memset(t->memory, 0, t->bytes);
        try_keys(t);
        try_weights(t, MHA__FETCHED_ROW, 1, MHA_F32);
        try_weights(t, MHA__FETCHED_ROWS, MHA_FEW_ROWS, MHA_F32);
        try_weights(t, MHA__FETCHED_HALF, 1, MHA_BF16);
        try_weights(t, MHA__FETCHED_BLOCKS, 1, MHA_Q8_0);
        mha__release(&a, t->memory, t->bytes);
    }
    mha__release(&a, t, sizeof *t);
}

mha__choices mha__machine_choices(void)
{
    const mha__handover handover = mha__handover_get();
    try_distances();
    mha__choices chosen = {.handover_seconds = handover.seconds,
                           .operations_for_a_thread = handover.least,
                           .keys_in_group = mha__kernels_get()->lanes};
    for (int what = 0; what < MHA__FETCHED_COUNT; what++)
        chosen.ahead[what] = mha__fetch_ahead((mha__fetched)what, &chosen.measured[what]);
    return chosen;
}
