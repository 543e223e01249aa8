/* The quantised types of GGUF that are decoded: what a block of packed numbers holds, and its values as F32, as ggml
 * defines them. */
#ifndef MHA_BASE_QUANTISED_DECODERS_H
#define MHA_BASE_QUANTISED_DECODERS_H

#include "base/base.h"

enum { MHA_LARGEST_BLOCK = 256 }; /* elements */

/* What a block holds, taken apart. With v = code, or values[code] where the kind has such a table, the value of element
 * i of group g is
 *   step v   or, of kinds with a least value,   step v + least
 *   step = d scale[g], least = m min[g]; without scales of groups they are d and m.
 * Every product is exact in F32 and at most that one sum is rounded, so a value has the same bits with and without
 * fused multiplication. */
typedef struct mha__block_parts {
    float d, m; /* what F16 holds, or a power of two */
    signed char scale[MHA_LARGEST_BLOCK / 16], min[MHA_LARGEST_BLOCK / 16];
    signed char code[MHA_LARGEST_BLOCK];
} mha__block_parts;

/* How codes are stored beside each other in panels (compute/kernels). */
typedef enum mha__codes {
    MHA_CODES_8,       /* bytes, -128 to 127 */
    MHA_CODES_8_LEAST, /* the same with a least value */
    MHA_CODES_4,       /* halves of bytes, -8 to 7 */
    MHA_CODES_4_LEAST, /* halves of bytes, 0 to 15, with a least value */
    MHA_CODES_4_TABLE  /* halves of bytes that number `values` */
} mha__codes;

typedef struct mha__block_kind {
    /* Takes a block apart, with the codes of its elements [from, end); NULL: the type is not decoded here. */
    void (*split)(const unsigned char *block, size_t from, size_t end, mha__block_parts *parts);
    size_t elements, bytes; /* of a block: 32 or 256 elements */
    size_t group;           /* elements of a group, 16 or 32 */
    mha__codes codes;
    bool scales;               /* groups have some of their own */
    bool power;                /* d is a power of two, which BF16 holds, and not in F16 */
    const signed char *values; /* 16 */
} mha__block_kind;

static inline bool mha__has_least(mha__codes codes)
{
    return codes == MHA_CODES_8_LEAST || codes == MHA_CODES_4_LEAST;
}

/* NULL: the type is plain, or its values are not decoded here. */
const mha__block_kind *mha__block_kind_of(mha_dtype dtype);
/* The values of one block. */
void mha__decode_block(const mha__block_kind *kind, const unsigned char *block, float *values);
/* Element `at` of blocks that lie one after the other; NaN when they are not decoded. */
double mha__block_value(mha_dtype dtype, const void *blocks, ptrdiff_t at);

void mha__split_q4_0(const unsigned char *block, size_t from, size_t end, mha__block_parts *parts);
void mha__split_q4_1(const unsigned char *block, size_t from, size_t end, mha__block_parts *parts);
void mha__split_q5_0(const unsigned char *block, size_t from, size_t end, mha__block_parts *parts);
void mha__split_q5_1(const unsigned char *block, size_t from, size_t end, mha__block_parts *parts);
void mha__split_q8_0(const unsigned char *block, size_t from, size_t end, mha__block_parts *parts);
void mha__split_iq4_nl(const unsigned char *block, size_t from, size_t end, mha__block_parts *parts);
void mha__split_mxfp4(const unsigned char *block, size_t from, size_t end, mha__block_parts *parts);
void mha__split_q2_k(const unsigned char *block, size_t from, size_t end, mha__block_parts *parts);
void mha__split_q3_k(const unsigned char *block, size_t from, size_t end, mha__block_parts *parts);
void mha__split_q4_k(const unsigned char *block, size_t from, size_t end, mha__block_parts *parts);
void mha__split_q5_k(const unsigned char *block, size_t from, size_t end, mha__block_parts *parts);
void mha__split_q6_k(const unsigned char *block, size_t from, size_t end, mha__block_parts *parts);
void mha__split_iq4_xs(const unsigned char *block, size_t from, size_t end, mha__block_parts *parts);

/* The 16 values of IQ4_NL and IQ4_XS; twice those of MXFP4 (E2M1). */
extern const signed char mha__iq4_values[16], mha__e2m1_doubled[16];

/* Half of the power of two 2^(e - 127) that E8M0 means: exact for every e, as ggml computes it. */
float mha__e8m0_half(unsigned e);

static inline float mha__half_at(const unsigned char *bytes)
{
    return mha_f16_to_f32((uint16_t)(bytes[0] | bytes[1] << 8));
}

#endif
