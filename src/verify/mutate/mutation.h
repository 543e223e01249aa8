/* Mutations: the change that a known bug makes, as data. Index maps, parts and factors serve forwards and backwards. */
#ifndef MHA_VERIFY_MUTATE_MUTATION_H
#define MHA_VERIFY_MUTATE_MUTATION_H

#include "attention/call/resolved.h"

/* Axes of a tensor: batch rows, rows, heads, features. */
typedef enum mha__axis { MHA__B, MHA__T, MHA__H, MHA__C } mha__axis;

/* An order of axes in memory, the outermost first. */
#define MHA__ORDER(a, b, c, d) (MHA__##a | MHA__##b << 2 | MHA__##c << 4 | MHA__##d << 6)
enum {
    MHA__BTHC = MHA__ORDER(B, T, H, C),
    MHA__BHTC = MHA__ORDER(B, H, T, C),
    MHA__BHCT = MHA__ORDER(B, H, C, T),
    MHA__HBTC = MHA__ORDER(H, B, T, C),
    MHA__TBHC = MHA__ORDER(T, B, H, C)
};

/* An element of a tensor, by axis. */
typedef struct mha__element {
    size_t at[4];
} mha__element;

typedef struct mha__extents {
    size_t n[4];
    unsigned char order; /* of the tensor in memory */
    size_t group;        /* heads that share a key/value head */
    size_t width;        /* features of the other kind of rows: d_v for d_k, d_k for d_v */
} mha__extents;

/* clang-format off */
/* Index maps: element i of the result is element map(i) of the operand. They change one axis; from ORIGIN on, any. */
typedef enum mha__index_map {
    MHA__SHIFT,          /* the element `step` further on; wraps */
    MHA__FIRST, MHA__REVERSED,
    MHA__BLOCK_BEFORE,   /* the same index in the block before; in the first block its own */
    MHA__FIRST_BLOCK,    /* the same index in the first block */
    MHA__START_OF_BLOCK,
    MHA__GROUP,          /* the index of the group */
    MHA__FIRST_OF_GROUP, MHA__LAST_OF_GROUP,
    MHA__REMAINDER,      /* index i mod n, of an index i of another axis */
    MHA__GROUPS_INSIDE,  /* heads written as (group, n / group), read as (n / group, group) */
    MHA__GROUPS_OUTSIDE, /* the other way round */
    MHA__HALVES, MHA__PAIRS, /* exchanged; where n is odd the index itself */
    MHA__TO_PAIRS, MHA__TO_HALVES, /* halves read as pairs, and back */
    MHA__LAST, MHA__HELD,    /* the last; at most index `step` */
    MHA__REPEATED,           /* index `step` reads the one before it */
    MHA__SHIFTED,            /* as SHIFT, but the index is n past the end */
    MHA__TABLE,              /* the index in `table`, by batch row and index or by index */
    MHA__ORIGIN,         /* the first element of the tensor */
    MHA__VIEW,           /* memory of order `written`, read as one of order `read` */
    MHA__ONE_LATE,       /* the element before, in memory of order `read` */
    MHA__WIDTH,          /* rows in memory of order `read`, read with the width of the other kind of rows */
    MHA__PITCH,          /* rows `step` features apart in the memory of their head */
    MHA__STRIDES,        /* memory of order `written` with the strides and the number of fused tensors in `table` */
    MHA__TURNED,         /* whole tiles of `step` rows and features, each transposed */
    MHA__SWIZZLED        /* blocks of `step` features in an order that differs from row to row */
} mha__index_map;

/* Parts of an axis, some of them by a block of `step` elements. */
typedef enum mha__axis_part {
    MHA__ALL, MHA__THE_FIRST, MHA__THE_LAST, MHA__BUT_LAST, MHA__FIRST_HALF,
    MHA__IN_FIRST_BLOCK, MHA__IN_LAST_BLOCK, MHA__FULL_BLOCKS, MHA__BUT_LAST_BLOCK,
    MHA__ODD, MHA__EVEN,
    MHA__OTHER_WIDTH /* as many features as the other kind of rows has */
} mha__axis_part;

/* Factors: the base to the power `number`; MHA__NUMBER is `number` itself. */
typedef enum mha__factor_base {
    MHA__NUMBER, MHA__SCALE, MHA__BATCH, MHA__QUERIES, MHA__KEYS, MHA__ROWS, MHA__HEADS, MHA__GROUP_SIZE, MHA__CAP
} mha__factor_base;

typedef struct mha__mutation {
    unsigned char site, op; /* as the lists define them */
    unsigned char arg;      /* of the operator: index map, part, factor or function */
    unsigned char axis, written, read;
    unsigned short readers; /* forward: 1 if the change reads other heads or batch rows; backward: bits of the list */
    unsigned char sides;    /* bits: q 1, k 2, v 4; 0: not of a side */
    long long step;         /* distance of a shift, or size of a block */
    unsigned needs;         /* bits, as the lists define them: what a call must have */
    double number;
    const double *table;    /* numbers that a search found; NULL: none */
} mha__mutation;

/* Arguments of a mutation in a row of a list. */
#define MHA__LOG2_E 1.4426950408889634
#define MHA__LN_2 0.6931471805599453
#define MHA__BY(map, Axis, by) .arg = MHA__##map, .axis = MHA__##Axis, .step = by
#define MHA__NEXT(Axis) MHA__BY(SHIFT, Axis, 1)
#define MHA__PREVIOUS(Axis) MHA__BY(SHIFT, Axis, -1)
#define MHA__READ_AS(order, in_memory) .arg = MHA__VIEW, .read = MHA__##order, .written = MHA__##in_memory
#define MHA__IN_ORDER(map, order) .arg = MHA__##map, .read = MHA__##order
/* clang-format on */

/* The number of an element in memory of an order of axes, and back. The outermost index may be beyond its axis. */
size_t mha__join(const mha__extents *x, unsigned char order, mha__element i);
mha__element mha__split(const mha__extents *x, unsigned char order, size_t index);
size_t mha__elements(const mha__extents *x);

/* The element that an index map reads for element `from`. */
mha__element mha__map_element(const mha__mutation *m, const mha__extents *x, mha__element from);
/* True if an index map reads another element anywhere. */
bool mha__map_moves(const mha__mutation *m, const mha__extents *x);

/* True if index i of an axis of n elements belongs to a part. */
bool mha__part_has(mha__axis_part part, size_t block, size_t i, size_t n);

/* The factor of a mutation in a call. */
double mha__factor(const mha__mutation *m, const mha__resolved *r);
/* True if the factor changes a number; a base of 0 gives no factor. */
bool mha__factor_moves(const mha__mutation *m, const mha__resolved *r);

#endif
