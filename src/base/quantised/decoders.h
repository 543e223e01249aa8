/* The quantised types that are decoded: what a block of packed numbers holds, and its values as F32, as ggml defines
 * those of GGUF, and mha/tensor.h scaled F8. */
#ifndef MHA_BASE_QUANTISED_DECODERS_H
#define MHA_BASE_QUANTISED_DECODERS_H

#include "base/quantised/short_float.h"
#include "mha/tensor.h"

enum { MHA_LARGEST_BLOCK = 256 }; /* elements */

/* The fields of a block. With v = code, or values[code] if the kind has such a table, the value of element
 * i of group g is
 *   step v   or, of kinds with a least value,   step v + least
 *   step = d scale[g], least = m min[g]; without scales of groups they are d and m.
 * Every product is exact in F32 and at most that one sum is rounded, so a value has the same bits with and without
 * fused multiplication. Of F8 v is what the F16 mha__f8_half(code) holds, and step v a product that is rounded. */
typedef struct mha__block_parts {
    float d, m; /* what F16 holds, a power of two, or any F32 */
    signed char scale[MHA_LARGEST_BLOCK / 16], min[MHA_LARGEST_BLOCK / 16];
    signed char code[MHA_LARGEST_BLOCK];
} mha__block_parts;

/* The order of codes in panels (compute/kernels). */
typedef enum mha__codes {
    MHA_CODES_8,       /* bytes, -128 to 127, with a scale of F16 */
    MHA_CODES_8_GROUPS, /* the same with scales of groups */
    MHA_CODES_8_LEAST, /* the same with a least value */
    MHA_CODES_4,       /* halves of bytes, -8 to 7 */
    MHA_CODES_4_LEAST, /* halves of bytes, 0 to 15, with a least value */
    MHA_CODES_4_TABLE, /* halves of bytes that number `values` */
    MHA_CODES_E4M3,    /* bytes that are F8, with a scale of F32 */
    MHA_CODES_E5M2,
    MHA_CODES_COUNT
} mha__codes;

/* Takes a block apart, with the codes of its elements [from, end). */
typedef void mha__block_splitter(const unsigned char *block, size_t from, size_t end, mha__block_parts *parts);

typedef struct mha__block_kind {
    mha__block_splitter *split; /* NULL: the type is not decoded here */
    size_t elements, bytes; /* of a block: 32 or 256 elements */
    size_t group;           /* elements of a group, 16 or 32 */
    mha__codes codes;
    bool scales;               /* groups have some of their own */
    bool power;                /* d is a power of two, which BF16 holds, and not in F16 */
    const signed char *values; /* 16 */
} mha__block_kind;

static inline __attribute__((always_inline)) bool mha__has_least(mha__codes codes)
{
    return codes == MHA_CODES_8_LEAST || codes == MHA_CODES_4_LEAST;
}

static inline __attribute__((always_inline)) bool mha__is_f8(mha__codes codes)
{
    return codes == MHA_CODES_E4M3 || codes == MHA_CODES_E5M2;
}

/* The bits of an F16 that holds the value of a code of F8, exactly: of E5M2 codes are its upper half; of E4M3 it is
 * 2^-8 times the value, and not a NaN, but 1.875, where the code is one. */
static inline uint16_t mha__f8_half(mha__codes codes, unsigned char code)
{
    return (uint16_t)(codes == MHA_CODES_E5M2 ? code << 8 : (code & 0x80) << 8 | (code & 0x7f) << 7);
}

static inline bool mha__is_e4m3_nan(unsigned char code)
{
    return (code & 0x7f) == 0x7f;
}

/* NULL: the type is plain, or its values are not decoded here. */
const mha__block_kind *mha__block_kind_of(mha_dtype dtype);
/* The values of one block. */
void mha__decode_block(const mha__block_kind *kind, const unsigned char *block, float *values);
/* Element `at` of blocks that lie one after the other; NaN when they are not decoded. */
double mha__block_value(mha_dtype dtype, const void *blocks, ptrdiff_t at);

mha__block_splitter mha__split_q4_0, mha__split_q4_1, mha__split_q5_0, mha__split_q5_1, mha__split_q8_0,
    mha__split_iq4_nl, mha__split_mxfp4, mha__split_q2_k, mha__split_q3_k, mha__split_q4_k, mha__split_q5_k,
    mha__split_q6_k, mha__split_iq4_xs, mha__split_f8_e4m3, mha__split_f8_e5m2;

/* Blocks of F8: the bytes of the scale, which comes first, and the codes; and the limit of scales of E4M3. */
enum { MHA_F8_SCALE = sizeof(float), MHA_F8_BLOCK = 32 };
#define MHA_F8_SCALE_LIMIT 0x1p120f
void mha__put_f8_scale(unsigned char *block, float scale);

/* The 16 values of IQ4_NL and IQ4_XS; twice those of MXFP4 (E2M1). */
extern const signed char mha__iq4_values[16], mha__e2m1_doubled[16];

/* Half of the power of two 2^(e - 127) that E8M0 means: exact for every e, as ggml computes it. */
float mha__e8m0_half(unsigned e);

static inline float mha__half_at(const unsigned char *block)
{
    return mha__f16_to_f32((uint16_t)(block[0] | block[1] << 8));
}

#endif
