/* The body of every kernel, written once. A file per instruction set includes it after saying:
 *   ISA_NAME, ISA_LANES    name; floats in a vector
 *   TILE_ROWS, TILE_VECS   registers of the product's accumulator: TILE_ROWS x TILE_VECS vectors
 *   FLAT_ROWS, FLAT_VECS   the same for FLAT_ROWS rows or less
 *   HALF_FLAT_ROWS         rows of a tile with half as many vectors as FLAT_VECS
 *   LONE_VECS              vectors of a tile of one row by numbers of 16 and 8 bits, if that is not as many
 *   FLAT_ROWS_IN_PLACE     FLAT_ROWS where B is read where it lies, mostly from memory; if it differs
 *   FLAT_HINTS             0 if such tiles mostly read packed panels faster without prefetching
 *   BLOCK_AHEAD            prefetch distance of quantised blocks in KiB, if not 2
 *   MOST_FEW_ROWS          most rows that product_rows takes; if it is not MHA_FEW_ROWS
 *   KERNELS                name of the table it exports
 *   ISA_WITH_PAIRS, KERNELS_WITH_PAIRS, PAIRS_BESIDE   the same of one more, with these pairs, if there are some
 *   vec                    GNU C vector of ISA_LANES floats
 *   madd(a, b, c)          a * b + c
 *   ISA_UNFUSED            if madd rounds the product before it adds
 *   greater(a, b)          the larger; b when one is NaN
 *   ISA_PARTS              if it has a load_part and a store_part of its own (simd.h)
 *   ISA_EXP                if it has an exp_nonpositive of its own (exp.h)
 *   halves(x)              the vector whose F16 bits are at x
 *   half_lanes(x)          the vector whose F16 bits are in the lower halves of the lanes of x
 *   bytes(x)               the vector of the signed bytes at x
 *   ISA_BYTE_FLOATS        if it has a byte_float(x, u): 2^15 + 128 + byte u, signed, of the lanes of x
 *   ISA_TOP                if it has a top_byte(x, u) of its own: byte u of the lanes of x, in the highest, else 0
 *   look_up(x, values)     bytes of x, 0 to 15, replaced by those of 16 signed ones; or, with ISA_PICK,
 *   pick(x, values)        the vector of the values that the lowest four bits of the lanes of x number */
#include <stdint.h>

#include "compute/kernels/kernels.h"

#ifndef FLAT_ROWS_IN_PLACE
#define FLAT_ROWS_IN_PLACE FLAT_ROWS
#endif
#ifndef FLAT_HINTS
#define FLAT_HINTS 1
#endif
#ifndef LONE_VECS
#define LONE_VECS (FLAT_VECS / 2)
#endif
#ifndef BLOCK_AHEAD
#define BLOCK_AHEAD 2
#endif
#ifndef MOST_FEW_ROWS
#define MOST_FEW_ROWS MHA_FEW_ROWS
#endif

/* In this order: each part uses those above it. */
#include "compute/kernels/simd.h"
#include "compute/kernels/product.h"
#include "compute/kernels/half.h"
#include "compute/kernels/blocks.h"
#include "compute/kernels/packing.h"
#include "compute/kernels/few_rows.h"
#include "compute/kernels/half_rows.h"
#include "compute/kernels/byte_rows.h"
#include "compute/kernels/exp.h"
#include "compute/kernels/mask.h"
#include "compute/kernels/softmax.h"
#include "compute/kernels/ordered.h"
#include "compute/kernels/peak.h"

#if ISA_LANES == 16
#define INTERLEAVE(NAME) NAME
#else
#define INTERLEAVE(NAME) NULL
#endif
#define TABLE(NAME, PAIRS)                                                                                             \
    {                                                                                                                  \
        .isa = NAME, .pairs = PAIRS,                                                                                   \
        .lanes = LANES,                                                                                                \
        .tile_rows = TILE_ROWS,                                                                                        \
        .few_rows = MOST_FEW_ROWS,                                                                                     \
        .row_ahead = FLAT_HINTS ? 8 << 10 : 0,                                                                         \
        .rows_ahead = 8 << 10,                                                                                         \
        .half_ahead = 8 << 10,                                                                                         \
        .block_columns = HALF_FLAT_VECS * LANES > MHA_PANEL ? HALF_FLAT_VECS * LANES : MHA_PANEL,                      \
        .blocks_ahead = BLOCK_AHEAD << 10,                                                                             \
        .product = product,                                                                                            \
        .product_half = product_half,                                                                                  \
        .product_blocks = product_blocks,                                                                              \
        .widen_blocks = widen_blocks,                                                                                  \
        .product_half_rows = product_half_rows,                                                                        \
        .widen = widen,                                                                                                \
        .narrow = narrow,                                                                                              \
        .round_to_bf16 = row_round_to_bf16,                                                                            \
        .pack = pack,                                                                                                  \
        .pack_transposed = pack_transposed,                                                                            \
        .product_rows = product_rows,                                                                                  \
        .interleave_rows = INTERLEAVE(interleave_rows),                                                                \
        .product_interleaved = INTERLEAVE(product_interleaved),                                                        \
        .softmax_prepare = softmax_prepare,                                                                            \
        .softmax_rows = softmax_rows,                                                                                  \
        .hide = hide,                                                                                                  \
        .trim = trim,                                                                                                  \
        .trim_terms = trim_terms,                                                                                      \
        .exp = row_exp,                                                                                                \
        .tanh = row_tanh,                                                                                              \
        .scale = row_scale,                                                                                            \
        .blend = row_blend,                                                                                            \
        .divide = row_divide,                                                                                          \
        .ordered_sums = ordered_sums,                                                                                  \
        .peak = peak,                                                                                                  \
        .read = read_all,                                                                                              \
    }

const mha__kernels KERNELS = TABLE(ISA_NAME, NULL);
#ifdef ISA_WITH_PAIRS
const mha__kernels KERNELS_WITH_PAIRS = TABLE(ISA_WITH_PAIRS, &PAIRS_BESIDE);
#endif
