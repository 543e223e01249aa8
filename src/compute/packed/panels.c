/* Weights packed into panels, as floats, in 16 bits or as quantised blocks, and unpacked again. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/quantised/decoders.h"
#include "compute/kernels/kernels.h"
#include "compute/packed/packed_gemm.h"
#include "compute/sizes.h"

mha_dtype mha__packed_type(mha_dtype dtype)
{
    return dtype == MHA_F64 ? MHA_F32 : dtype;
}

static size_t element_bytes(mha_dtype dtype)
{
    return dtype == MHA_F32 ? sizeof(float) : sizeof(uint16_t);
}

bool mha__packed_bytes(size_t k, size_t n, mha_dtype dtype, size_t *bytes)
{
    const mha__block_kind *kind = mha__block_kind_of(dtype);
    const size_t panels = n / MHA_PANEL + (n % MHA_PANEL != 0), rows = kind ? k / kind->elements : k;
    size_t all;
    return mha__mul(panels, rows, &all) &&
           mha__mul(all, kind ? mha__block_shape_of(kind).bytes : MHA_PANEL * element_bytes(mha__packed_type(dtype)),
                    bytes);
}

/* Copies rows of elements of `size` bytes into panels, `panel` bytes apart. */
static void copy_rows(size_t rows, size_t n, size_t size, const char *W, size_t ldw, char *panels, size_t panel)
{
    for (size_t j = 0; j < n; j += MHA_PANEL, panels += panel)
        for (size_t p = 0; p < rows; p++) {
            const size_t all = MHA_PANEL * size, there = mha__smaller(n - j, MHA_PANEL) * size;
            memcpy(panels + p * all, W + (p * ldw + j) * size, there);
            memset(panels + p * all + there, 0, all - there);
        }
}

void mha__pack_row(size_t k, size_t p, size_t column, size_t n, mha_dtype dtype, const void *row, void *panels)
{
    const size_t size = element_bytes(dtype);
    copy_rows(1, n, size, row, n, (char *)panels + (column * k + p * MHA_PANEL) * size, k * MHA_PANEL * size);
}

/* Rounded to F32, some elements of a row at a time. */
static void pack_doubles(size_t k, size_t n, const double *W, size_t ldw, float *panels)
{
    enum { AT_ONCE = 32 * MHA_PANEL };
    for (size_t p = 0; p < k; p++, W += ldw)
        for (size_t j = 0, some; j < n; j += some) {
            float row[AT_ONCE];
            some = mha__smaller(n - j, AT_ONCE);
            for (size_t i = 0; i < some; i++)
                row[i] = (float)W[j + i];
            mha__pack_row(k, p, j, some, MHA_F32, row, panels);
        }
}

void mha__unpack(size_t k, size_t n, mha_dtype dtype, const void *panels, void *W)
{
    const size_t size = element_bytes(dtype);
    const char *from = panels;
    for (size_t j = 0; j < n; j += MHA_PANEL)
        for (size_t p = 0; p < k; p++, from += MHA_PANEL * size)
            memcpy((char *)W + (p * n + j) * size, from, mha__smaller(n - j, MHA_PANEL) * size);
}

static void put_scale(const mha__block_kind *kind, float value, unsigned char *to)
{
    const uint16_t half = kind->power ? mha__f32_to_bf16(value) : mha__f32_to_f16(value);
    memcpy(to, &half, sizeof half);
}

/* Kernels know no NaN among codes of E4M3: with one of them a column becomes NaN in a product, and so it does where the
 * scale of the block is NaN. */
static void put_f8_scale(const mha__block_kind *kind, const mha__block_parts *parts, unsigned char *to)
{
    float scale = parts->d;
    for (size_t i = 0; i < kind->elements && kind->codes == MHA_CODES_E4M3; i++)
        if (mha__is_e4m3_nan((unsigned char)parts->code[i]))
            scale = NAN;
    memcpy(to, &scale, sizeof scale);
}

/* Term t of column c in words of so many terms. */
static size_t word_byte(size_t t, size_t c, size_t terms)
{
    return t / terms * terms * MHA_PANEL + terms * c + t % terms;
}

/* A block of column c; beyond the last column, one of zeros. */
static void pack_block(const mha__block_kind *kind, const unsigned char *from, size_t c, unsigned char *to)
{
    const mha__block_shape s = mha__block_shape_of(kind);
    const int more = kind->codes == MHA_CODES_4 ? 8 : 0;
    mha__block_parts parts;
    kind->split(from, 0, kind->elements, &parts);
    if (mha__is_f8(kind->codes))
        put_f8_scale(kind, &parts, to + sizeof(float) * c);
    else
        put_scale(kind, parts.d, to + 2 * c);
    if (mha__has_least(kind->codes))
        put_scale(kind, parts.m, to + 2 * (MHA_PANEL + c));
    for (size_t i = 0; i < kind->elements; i++) {
        unsigned char *part = to + s.header + i / MHA_QUANT * s.part;
        const size_t t = i % MHA_QUANT, g = i / kind->group;
        if (kind->scales && i % kind->group == 0) {
            part[t / kind->group * MHA_PANEL + c] = (unsigned char)parts.scale[g];
            if (mha__has_least(kind->codes))
                part[s.least + t / kind->group * MHA_PANEL + c] = (unsigned char)parts.min[g];
        }
        if (mha__is_byte_wide(kind->codes))
            part[s.codes + word_byte(t, c, mha__is_f8(kind->codes) ? 2 : 4)] = (unsigned char)parts.code[i];
        else
            part[s.codes + word_byte(t % 16, c, 4)] |= (unsigned char)((parts.code[i] + more) << t / 16 * 4);
    }
}

/* Column j is its blocks as files have them, one column after the other. */
static void pack_blocks(size_t k, size_t n, const mha__block_kind *kind, const unsigned char *blocks,
                        unsigned char *panels)
{
    const size_t bytes = mha__block_shape_of(kind).bytes, count = k / kind->elements;
    memset(panels, 0, mha__ceil_div(n, MHA_PANEL) * count * bytes);
    for (size_t j = 0; j < n; j++)
        for (size_t b = 0; b < count; b++, blocks += kind->bytes)
            pack_block(kind, blocks, j % MHA_PANEL, panels + (j / MHA_PANEL * count + b) * bytes);
}

void mha__pack(size_t k, size_t n, mha_dtype dtype, const void *W, size_t ldw, void *panels)
{
    const size_t size = element_bytes(dtype);
    if (mha__block_kind_of(dtype))
        pack_blocks(k, n, mha__block_kind_of(dtype), W, panels);
    else if (dtype == MHA_F64)
        pack_doubles(k, n, W, ldw, panels);
    else if (dtype == MHA_F32)
        (void)mha__kernels_get()->pack(k, n, W, ldw, panels, k * MHA_PANEL);
    else
        copy_rows(k, n, size, W, ldw, panels, k * MHA_PANEL * size);
}
