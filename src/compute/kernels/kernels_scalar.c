/* The kernels for any machine: vectors of four floats, which the compiler maps onto what the base of the
 * architecture has. The version that is always there and always right. */
#include <stddef.h>

#define ISA_NAME "scalar"
#define ISA_LANES 4
#define TILE_ROWS 4
#define TILE_VECS 2
#define FLAT_ROWS 1
#define HALF_FLAT_ROWS 2
#define FLAT_VECS 8
#define KERNELS mha_kernels_scalar

typedef float vec __attribute__((vector_size(16)));
typedef int mask_of_vec __attribute__((vector_size(16)));

static inline vec madd(vec a, vec b, vec c)
{
    return a * b + c;
}

static inline vec greater(vec a, vec b)
{
    mask_of_vec above = a > b;
    return (vec)(((mask_of_vec)a & above) | ((mask_of_vec)b & ~above));
}

typedef float vec_anywhere __attribute__((vector_size(16), aligned(4), may_alias));

static inline vec quads(const float *x, size_t stride)
{
    (void)stride;
    return *(const vec_anywhere *)x;
}

#include "compute/kernels/body.h"
