/* Element types, and strided views of memory. */
#ifndef MHA_TENSOR_H
#define MHA_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mha/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Type, name as files spell it, elements per block, bytes per block. A plain type has one element in a block; a
 * quantised type of GGUF has 32 to 256; the packed F6, F4, U2 to U4 and bitsandbytes' NF4 and FP4 have as many as fill
 * whole bytes. C64 is two F32, real and imaginary part: it is copied, never converted. The value 0 is F32.
 * F8_E4M3_SCALED and F8_E5M2_SCALED are how a layer holds F8 with scales (mha/file.h): a block is the F32 scale of
 * 32 codes, its lowest byte first, and the codes. The value of a code, times the scale, is rounded to F32 once; with
 * E4M3 a scale of 2^120 or more counts as infinite. TF32 is F32 with 10 bits of fraction: no file and no input of a
 * call has it, it is a precision (mha/precision.h). */
#define MHA_DTYPE_LIST(X)                                                                          \
    X(MHA_F32, "F32", 1, 4)                                                                        \
    X(MHA_F64, "F64", 1, 8)                                                                        \
    X(MHA_F16, "F16", 1, 2)                                                                        \
    X(MHA_BF16, "BF16", 1, 2)                                                                      \
    X(MHA_I64, "I64", 1, 8)                                                                        \
    X(MHA_I32, "I32", 1, 4)                                                                        \
    X(MHA_I16, "I16", 1, 2)                                                                        \
    X(MHA_I8, "I8", 1, 1)                                                                          \
    X(MHA_U64, "U64", 1, 8)                                                                        \
    X(MHA_U32, "U32", 1, 4)                                                                        \
    X(MHA_U16, "U16", 1, 2)                                                                        \
    X(MHA_U8, "U8", 1, 1)                                                                          \
    X(MHA_BOOL, "BOOL", 1, 1)                                                                      \
    X(MHA_F8_E4M3, "F8_E4M3", 1, 1)                                                                \
    X(MHA_F8_E5M2, "F8_E5M2", 1, 1)                                                                \
    X(MHA_Q4_0, "Q4_0", 32, 18)                                                                    \
    X(MHA_Q4_1, "Q4_1", 32, 20)                                                                    \
    X(MHA_Q5_0, "Q5_0", 32, 22)                                                                    \
    X(MHA_Q5_1, "Q5_1", 32, 24)                                                                    \
    X(MHA_Q8_0, "Q8_0", 32, 34)                                                                    \
    X(MHA_Q8_1, "Q8_1", 32, 36)                                                                    \
    X(MHA_Q2_K, "Q2_K", 256, 84)                                                                   \
    X(MHA_Q3_K, "Q3_K", 256, 110)                                                                  \
    X(MHA_Q4_K, "Q4_K", 256, 144)                                                                  \
    X(MHA_Q5_K, "Q5_K", 256, 176)                                                                  \
    X(MHA_Q6_K, "Q6_K", 256, 210)                                                                  \
    X(MHA_Q8_K, "Q8_K", 256, 292)                                                                  \
    X(MHA_IQ2_XXS, "IQ2_XXS", 256, 66)                                                             \
    X(MHA_IQ2_XS, "IQ2_XS", 256, 74)                                                               \
    X(MHA_IQ3_XXS, "IQ3_XXS", 256, 98)                                                             \
    X(MHA_IQ1_S, "IQ1_S", 256, 50)                                                                 \
    X(MHA_IQ4_NL, "IQ4_NL", 32, 18)                                                                \
    X(MHA_IQ3_S, "IQ3_S", 256, 110)                                                                \
    X(MHA_IQ2_S, "IQ2_S", 256, 82)                                                                 \
    X(MHA_IQ4_XS, "IQ4_XS", 256, 136)                                                              \
    X(MHA_IQ1_M, "IQ1_M", 256, 56)                                                                 \
    X(MHA_TQ1_0, "TQ1_0", 256, 54)                                                                 \
    X(MHA_TQ2_0, "TQ2_0", 256, 66)                                                                 \
    X(MHA_MXFP4, "MXFP4", 32, 17)                                                                  \
    X(MHA_NVFP4, "NVFP4", 64, 36)                                                                  \
    X(MHA_Q1_0, "Q1_0", 128, 18)                                                                   \
    X(MHA_Q2_0, "Q2_0", 64, 18)                                                                    \
    X(MHA_F8_E8M0, "F8_E8M0", 1, 1)                                                                \
    X(MHA_F8_E4M3FNUZ, "F8_E4M3FNUZ", 1, 1)                                                        \
    X(MHA_F8_E5M2FNUZ, "F8_E5M2FNUZ", 1, 1)                                                        \
    X(MHA_F6_E2M3, "F6_E2M3", 4, 3)                                                                \
    X(MHA_F6_E3M2, "F6_E3M2", 4, 3)                                                                \
    X(MHA_F4, "F4", 2, 1)                                                                          \
    X(MHA_C64, "C64", 1, 8)                                                                        \
    X(MHA_U2, "U2", 4, 1)                                                                          \
    X(MHA_U3, "U3", 8, 3)                                                                          \
    X(MHA_U4, "U4", 2, 1)                                                                          \
    X(MHA_NF4, "NF4", 2, 1)                                                                        \
    X(MHA_FP4, "FP4", 2, 1)                                                                        \
    X(MHA_F8_E4M3_SCALED, "F8_E4M3_SCALED", 32, 36)                                                \
    X(MHA_F8_E5M2_SCALED, "F8_E5M2_SCALED", 32, 36)                                                \
    X(MHA_TF32, "TF32", 1, 4)

typedef enum mha_dtype {
#define MHA_DTYPE_ENUM(code, name, block_elements, block_bytes) code,
    MHA_DTYPE_LIST(MHA_DTYPE_ENUM)
#undef MHA_DTYPE_ENUM
    MHA_DTYPE_COUNT
} mha_dtype;

MHA_API const char *mha_dtype_name(mha_dtype dtype); /* "F32"; "?" outside the list */
/* Bytes of `elements` elements of `dtype`. MHA_INVALID when the number does not fit a size_t or the elements do not
 * fill whole blocks; *bytes is then untouched. */
MHA_API mha_status mha_dtype_bytes(mha_dtype dtype, size_t elements, size_t *bytes, mha_error *error);

enum { MHA_MAX_RANK = 8 };

/* A tensor in memory of another owner. Element (i_0, i_1, ...) is sum(i_k * stride[k]) elements of `dtype`
 * after `data`. A stride may be 0 (broadcast), but not of what is written. `data` NULL means "no tensor". `data` is
 * not const because views serve for inputs and results; inputs are never written. The functions of this header, the
 * readers and the writers of files take data at any address. Calls (attention.h, merge.h) expect it at a multiple of
 * the bytes of an element, as C does; what x86-64 and AArch64 load and store elsewhere, too, has the same bits. */
typedef struct mha_view {
    void *data;
    mha_dtype dtype;
    int rank;
    size_t shape[MHA_MAX_RANK];
    ptrdiff_t stride[MHA_MAX_RANK]; /* in elements */
} mha_view;

/* A contiguous view of `data`: row-major, the last index varies fastest. `shape` has `rank` entries. A rank outside
 * 0..MHA_MAX_RANK gives a view without data. */
MHA_API mha_view mha_view_of(void *data, mha_dtype dtype, int rank, const size_t *shape);
/* Product of the extents; 1 for rank 0; SIZE_MAX when it does not fit, or for a rank outside 0..MHA_MAX_RANK. */
MHA_API size_t mha_view_elements(const mha_view *view);
/* Elements [from, from + count) of `axis`: same memory, smaller extent. A view without data and extents when the axis
 * or some of the elements are not the view's, or when it would begin inside a block of a quantised type. */
MHA_API mha_view mha_view_slice(const mha_view *view, int axis, size_t from, size_t count);

/* The order in memory of an input's or output's indices: batch B, time T, head H, feature d, slowest first; E = h*d
 * is a head's features side by side with those of the next head. */
typedef enum mha_layout {
    MHA_BTE,  /* [B, T, E], the default */
    MHA_TBE,  /* [T, B, E] */
    MHA_TE,   /* [T, E], no batch */
    MHA_BHTD, /* [B, H, T, d] */
    MHA_BTHD, /* [B, T, H, d] */
    MHA_LAYOUT_COUNT
} mha_layout;

/* Memory in `layout` as a view (B, T, h, d), the index order of every call of this library. TE takes B = 1; another B
 * gives a view without data. */
MHA_API mha_view mha_view_heads(void *data, mha_dtype dtype, mha_layout layout, size_t B, size_t T, size_t h, size_t d);
/* Memory in `layout` as a view (B, T, E). BHTD gives a view without data, because the heads of one time step do not
 * lie side by side in it (with one head use BTE). */
MHA_API mha_view mha_view_rows(void *data, mha_dtype dtype, mha_layout layout, size_t B, size_t T, size_t E);
/* The two views that most callers make, of row-major F32 memory without gaps: (B, T, width) and (B, T, h, d). `data`
 * is const for the sake of inputs; a view of a result needs memory that may be written. */
MHA_API mha_view mha_rows(const float *data, size_t B, size_t T, size_t width);
MHA_API mha_view mha_heads(const float *data, size_t B, size_t T, size_t h, size_t d);

/* One element of any plain dtype (F8 included) as a double; integers beyond 2^53 are rounded. Of a quantised type that
 * is decoded (mha_file_read), the value in F32: `data` begins with a block, and element e of the blocks is e elements
 * after it; NaN for the other ones. `index` has view->rank entries and is not checked. */
MHA_API double mha_view_get(const mha_view *view, const size_t *index);
/* Stores a double into an F32, F64, F16, BF16, F8_E4M3 or F8_E5M2 element, rounded once: to nearest even, unless the
 * calling thread has chosen another rounding mode. F8_E4M3 has no infinity: what rounds beyond 448 becomes NaN. Nothing
 * happens for another type. */
MHA_API void mha_view_set(const mha_view *view, const size_t *index, double value);
/* Copies all elements between views of equal shape and converts plain dtypes (widening is exact, narrowing rounds to
 * nearest even). MHA_INVALID: unequal shapes, or elements without data. MHA_UNSUPPORTED: to a quantised type or
 * from one that is not decoded, or unequal dtypes where the target is not a floating type. */
MHA_API mha_status mha_view_copy(const mha_view *to, const mha_view *from, mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
