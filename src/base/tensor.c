/* Element types and views: sizes, strides, layouts, reading and writing elements, copies with conversion. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/heads.h"
#include "base/quantised/decoders.h"

/* ---------------------------------------------------------------- element types */

static const struct {
    const char *name;
    size_t block_elements, block_bytes;
} dtypes[MHA_DTYPE_COUNT] = {
#define DTYPE_ROW(code, name, block_elements, block_bytes) [code] = {name, block_elements, block_bytes},
    MHA_DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
};

static bool is_dtype(mha_dtype dtype)
{
    return (unsigned)dtype < MHA_DTYPE_COUNT;
}

const char *mha_dtype_name(mha_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].name : "?";
}

mha_status mha_dtype_bytes(mha_dtype dtype, size_t elements, size_t *bytes, mha_error *error)
{
    if (!is_dtype(dtype))
        return mha__fail(error, MHA_INVALID, "dtype", "expected one of mha_dtype, found %d", (int)dtype);
    if (elements % dtypes[dtype].block_elements != 0)
        return mha__fail(error, MHA_INVALID, "elements", "expected a multiple of %d for %s, found %zu",
                         (int)dtypes[dtype].block_elements, dtypes[dtype].name, elements);
    size_t product;
    if (!mha__mul(elements / dtypes[dtype].block_elements, dtypes[dtype].block_bytes, &product))
        return mha__fail(error, MHA_INVALID, "elements", "expected bytes that fit a size_t, found %zu elements of %s",
                         elements, dtypes[dtype].name);
    *bytes = product;
    return MHA_OK;
}

static bool is_plain(mha_dtype dtype)
{
    return is_dtype(dtype) && dtypes[dtype].block_elements == 1;
}

/* The largest exponent of a small binary float: that of infinity and NaN, of one NaN (E4M3), or of numbers as others
 * are. The FNUZ types have an exponent bias that is one larger, and the bits of -0 are their NaN. */
typedef enum top { INFINITE, ONE_NAN, FNUZ } top;

/* Decodes one: sign, `exponent_bits`, `fraction_bits`, with subnormals. */
static double small_float(unsigned bits, int exponent_bits, int fraction_bits, top largest)
{
    const unsigned exponent_max = (1u << exponent_bits) - 1, fraction = bits & ((1u << fraction_bits) - 1),
                   exponent = bits >> fraction_bits & exponent_max;
    const double sign = bits >> (exponent_bits + fraction_bits) & 1 ? -1.0 : 1.0;
    const int scale = 1 - (1 << (exponent_bits - 1)) - fraction_bits - (largest == FNUZ);
    if (exponent == exponent_max && largest == INFINITE)
        return fraction ? NAN : sign * INFINITY;
    if (largest == FNUZ ? bits == 0x80 : exponent == exponent_max && fraction == (1u << fraction_bits) - 1)
        return NAN;
    return exponent == 0 ? sign * ldexp(fraction, scale + 1)
                         : sign * ldexp(fraction + (1u << fraction_bits), (int)exponent + scale);
}

/* The code of the small binary float nearest to `value`, rounded once. Beyond the largest: infinity, or NaN without. */
static uint8_t small_float_code(double value, int exponent_bits, int fraction_bits, bool has_infinity)
{
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const unsigned sign = signbit(value) ? 0x80 : 0, past = has_infinity ? 0x7c : 0x7f, size = 1u << fraction_bits;
    int exponent;
    if (isnan(value))
        return (uint8_t)(sign | (has_infinity ? 0x7e : 0x7f));
    if (isinf(value))
        return (uint8_t)(sign | past);
    (void)frexp(value, &exponent);
    exponent = value == 0 || exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    const double steps = rint(ldexp(fabs(value), fraction_bits - exponent)); /* of the last bit: up to 2 size */
    const unsigned code = (unsigned)(exponent + bias - 1) * size + (unsigned)steps;
    return (uint8_t)(sign | (code < past ? code : past));
}

/* E8M0 is only an exponent. */
static double power_of_two(unsigned bits)
{
    return bits == 0xff ? NAN : ldexp(1.0, (int)bits - 127);
}

/* Element `at` of memory that may begin at any address. */
#define AT(name, type)                                                                                                 \
    static inline type name(const void *data, ptrdiff_t at)                                                            \
    {                                                                                                                  \
        type number;                                                                                                   \
        memcpy(&number, (const char *)data + at * (ptrdiff_t)sizeof number, sizeof number);                            \
        return number;                                                                                                 \
    }
AT(f32_at, float)
AT(f64_at, double)
AT(i64_at, int64_t)
AT(i32_at, int32_t)
AT(i16_at, int16_t)
AT(u64_at, uint64_t)
AT(u32_at, uint32_t)
AT(u16_at, uint16_t)
#undef AT

static double load(const void *data, mha_dtype dtype, ptrdiff_t at)
{
    switch (dtype) {
    case MHA_TF32:
    case MHA_F32: return f32_at(data, at);
    case MHA_F64: return f64_at(data, at);
    case MHA_F16: return mha__f16_to_f32(u16_at(data, at));
    case MHA_BF16: return mha__bf16_to_f32(u16_at(data, at));
    case MHA_I64: return (double)i64_at(data, at);
    case MHA_I32: return i32_at(data, at);
    case MHA_I16: return i16_at(data, at);
    case MHA_I8: return ((const int8_t *)data)[at];
    case MHA_U64: return (double)u64_at(data, at);
    case MHA_U32: return u32_at(data, at);
    case MHA_U16: return u16_at(data, at);
    case MHA_U8: return ((const uint8_t *)data)[at];
    case MHA_BOOL: return ((const uint8_t *)data)[at] != 0;
    case MHA_F8_E4M3: return small_float(((const uint8_t *)data)[at], 4, 3, ONE_NAN);
    case MHA_F8_E5M2: return small_float(((const uint8_t *)data)[at], 5, 2, INFINITE);
    case MHA_F8_E4M3FNUZ: return small_float(((const uint8_t *)data)[at], 4, 3, FNUZ);
    case MHA_F8_E5M2FNUZ: return small_float(((const uint8_t *)data)[at], 5, 2, FNUZ);
    case MHA_F8_E8M0: return power_of_two(((const uint8_t *)data)[at]);
    default: return mha__block_value(dtype, data, at);
    }
}

/* Double to a 16-bit float: through float, rounded to odd first so that the two steps round once. */
static float to_float_odd(double value)
{
    float nearest = (float)value;
    if (!isfinite(value) || (double)nearest == value)
        return nearest;
    float below = nearest;
    if (fabs((double)nearest) > fabs(value))
        below = nextafterf(nearest, 0.0f);
    uint32_t bits;
    memcpy(&bits, &below, sizeof bits);
    bits |= 1;
    memcpy(&below, &bits, sizeof below);
    return below;
}

/* Double to the nearest float with 10 bits of fraction, rounded once. */
static float to_tf32(double value)
{
    int exponent;
    if (!isfinite(value))
        return (float)value;
    (void)frexp(value, &exponent);
    const int last = exponent > -125 ? exponent - 11 : -136; /* the power of 2 of the last bit */
    return (float)ldexp(rint(ldexp(value, -last)), last);
}

static void store(void *data, mha_dtype dtype, ptrdiff_t at, double value)
{
    float single;
    uint16_t half;
    switch (dtype) {
    case MHA_F32:
        single = (float)value;
        memcpy((char *)data + 4 * at, &single, 4);
        break;
    case MHA_F64: memcpy((char *)data + 8 * at, &value, 8); break;
    case MHA_F16:
        half = mha__f32_to_f16(to_float_odd(value));
        memcpy((char *)data + 2 * at, &half, 2);
        break;
    case MHA_BF16:
        half = mha__f32_to_bf16(to_float_odd(value));
        memcpy((char *)data + 2 * at, &half, 2);
        break;
    case MHA_F8_E4M3: ((uint8_t *)data)[at] = small_float_code(value, 4, 3, false); break;
    case MHA_F8_E5M2: ((uint8_t *)data)[at] = small_float_code(value, 5, 2, true); break;
    case MHA_TF32:
        single = to_tf32(value);
        memcpy((char *)data + 4 * at, &single, 4);
        break;
    default: break;
    }
}

double mha__round_to(mha_dtype dtype, double value)
{
    double memory = 0;
    store(&memory, dtype, 0, value);
    return load(&memory, dtype, 0);
}

/* ---------------------------------------------------------------- views */

/* Callers may fill a view by hand: a rank beyond its arrays is refused before they are read. */
static bool is_rank(int rank)
{
    return rank >= 0 && rank <= MHA_MAX_RANK;
}

mha_view mha_view_of(void *data, mha_dtype dtype, int rank, const size_t *shape)
{
    mha_view view = {.data = data, .dtype = dtype, .rank = rank};
    if (!is_rank(rank))
        return (mha_view){0};
    size_t stride = 1;
    for (int k = rank - 1; k >= 0; k--) {
        view.shape[k] = shape[k];
        view.stride[k] = (ptrdiff_t)stride;
        stride *= shape[k];
    }
    return view;
}

size_t mha_view_elements(const mha_view *view)
{
    size_t product = 1;
    if (!is_rank(view->rank))
        return SIZE_MAX;
    for (int k = 0; k < view->rank; k++) /* a zero extent wins over any overflow of others */
        if (view->shape[k] == 0)
            return 0;
    for (int k = 0; k < view->rank; k++)
        if (!mha__mul(product, view->shape[k], &product))
            return SIZE_MAX;
    return product;
}

bool mha__view_is_contiguous(const mha_view *view)
{
    size_t stride = 1;
    if (!is_rank(view->rank))
        return false;
    for (int k = view->rank - 1; k >= 0; k--) {
        if (view->shape[k] != 1 && view->stride[k] != (ptrdiff_t)stride)
            return false;
        stride *= view->shape[k];
    }
    return true;
}

static ptrdiff_t position(const mha_view *view, const size_t *index)
{
    ptrdiff_t at = 0;
    for (int k = 0; k < view->rank; k++)
        at += (ptrdiff_t)index[k] * view->stride[k];
    return at;
}

mha_view mha_view_slice(const mha_view *view, int axis, size_t from, size_t count)
{
    if (!is_dtype(view->dtype) || !is_rank(view->rank) || axis < 0 || axis >= view->rank || from > view->shape[axis] ||
        count > view->shape[axis] - from)
        return (mha_view){0};
    mha_view slice = *view;
    const ptrdiff_t elements = (ptrdiff_t)from * view->stride[axis];
    const ptrdiff_t block = (ptrdiff_t)dtypes[view->dtype].block_elements;
    if (slice.data && elements % block != 0)
        return (mha_view){0};
    if (slice.data)
        slice.data = (char *)view->data + elements / block * (ptrdiff_t)dtypes[view->dtype].block_bytes;
    slice.shape[axis] = count;
    return slice;
}

mha_view mha__view_swap(const mha_view *view, int i, int j)
{
    if (!is_rank(view->rank) || i < 0 || j < 0 || i >= view->rank || j >= view->rank)
        return (mha_view){0};
    mha_view swapped = *view;
    swapped.shape[i] = view->shape[j], swapped.stride[i] = view->stride[j];
    swapped.shape[j] = view->shape[i], swapped.stride[j] = view->stride[i];
    return swapped;
}

double mha_view_get(const mha_view *view, const size_t *index)
{
    return load(view->data, view->dtype, position(view, index));
}

void mha_view_set(const mha_view *view, const size_t *index, double value)
{
    store(view->data, view->dtype, position(view, index), value);
}

void mha__view_read(const mha_view *view, const size_t *index, size_t n, double *to)
{
    const ptrdiff_t first = position(view, index), step = view->stride[view->rank - 1];
    for (size_t i = 0; i < n && view->dtype == MHA_F32; i++)
        to[i] = (double)f32_at(view->data, first + (ptrdiff_t)i * step);
    for (size_t i = 0; i < n && view->dtype == MHA_F64; i++)
        to[i] = f64_at(view->data, first + (ptrdiff_t)i * step);
    for (size_t i = 0; i < n && view->dtype != MHA_F32 && view->dtype != MHA_F64; i++)
        to[i] = load(view->data, view->dtype, first + (ptrdiff_t)i * step);
}

mha_status mha_view_copy(const mha_view *to, const mha_view *from, mha_error *error)
{
    if (!is_rank(to->rank))
        return mha__fail(error, MHA_INVALID, "to", "expected rank 0 to %d, found %d", MHA_MAX_RANK, to->rank);
    TRY(mha__expect_shape(error, "from", from, to->rank, to->shape));
    const bool stored = mha__dtype_is_float(to->dtype) || to->dtype == MHA_F8_E4M3 || to->dtype == MHA_F8_E5M2;
    const bool convertible = stored && from->dtype != MHA_C64;
    const bool readable = is_plain(from->dtype) || mha__block_kind_of(from->dtype);
    if (!readable || !is_plain(to->dtype) || (to->dtype != from->dtype && !convertible))
        return mha__fail(error, MHA_UNSUPPORTED, "from", "expected a type that converts to %s, found %s",
                         mha_dtype_name(to->dtype), mha_dtype_name(from->dtype));
    size_t n = mha_view_elements(to);
    if (n == 0)
        return MHA_OK;
    if (!to->data || !from->data)
        return mha__fail(error, MHA_INVALID, to->data ? "from" : "to", "expected data, found none");
    size_t bytes = dtypes[to->dtype].block_bytes, index[MHA_MAX_RANK] = {0};
    int outer = to->rank - 1;
    size_t row = outer >= 0 ? to->shape[outer] : 1;
    ptrdiff_t to_step = outer >= 0 ? to->stride[outer] : 1, from_step = outer >= 0 ? from->stride[outer] : 1;
    for (size_t done = 0; done < n; done += row) {
        ptrdiff_t to_at = position(to, index), from_at = position(from, index);
        if (to->dtype == from->dtype && to_step == 1 && from_step == 1)
            memcpy((char *)to->data + to_at * (ptrdiff_t)bytes, (const char *)from->data + from_at * (ptrdiff_t)bytes,
                   row * bytes);
        else if (to->dtype == from->dtype)
            for (size_t i = 0; i < row; i++)
                memcpy((char *)to->data + (to_at + (ptrdiff_t)i * to_step) * (ptrdiff_t)bytes,
                       (const char *)from->data + (from_at + (ptrdiff_t)i * from_step) * (ptrdiff_t)bytes, bytes);
        else
            for (size_t i = 0; i < row; i++)
                store(to->data, to->dtype, to_at + (ptrdiff_t)i * to_step,
                      load(from->data, from->dtype, from_at + (ptrdiff_t)i * from_step));
        mha__index_next(index, to->shape, outer);
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- layouts */

static const char *const layout_names[] = {
    [MHA_BTE] = "BTE", [MHA_TBE] = "TBE", [MHA_TE] = "TE", [MHA_BHTD] = "BHTD", [MHA_BTHD] = "BTHD"};
_Static_assert(sizeof layout_names / sizeof *layout_names == MHA_LAYOUT_COUNT, "every layout has a name");

const char *mha__layout_name(mha_layout layout)
{
    return mha__name_at(layout_names, MHA_LAYOUT_COUNT, (size_t)layout);
}

mha_view mha_view_heads(void *data, mha_dtype dtype, mha_layout layout, size_t B, size_t T, size_t h, size_t d)
{
    if ((unsigned)layout >= MHA_LAYOUT_COUNT || (layout == MHA_TE && B != 1))
        return (mha_view){0};
    mha_view view = mha_view_of(data, dtype, 4, (size_t[]){B, T, h, d});
    if (layout == MHA_TBE) {
        view.stride[0] = (ptrdiff_t)(h * d);
        view.stride[1] = (ptrdiff_t)(B * h * d);
    } else if (layout == MHA_BHTD) {
        view.stride[1] = (ptrdiff_t)d;
        view.stride[2] = (ptrdiff_t)(T * d);
    }
    return view;
}

mha_view mha_view_rows(void *data, mha_dtype dtype, mha_layout layout, size_t B, size_t T, size_t E)
{
    if ((unsigned)layout >= MHA_LAYOUT_COUNT || layout == MHA_BHTD || (layout == MHA_TE && B != 1))
        return (mha_view){0};
    mha_view view = mha_view_of(data, dtype, 3, (size_t[]){B, T, E});
    if (layout == MHA_TBE) {
        view.stride[0] = (ptrdiff_t)E;
        view.stride[1] = (ptrdiff_t)(B * E);
    }
    return view;
}

mha_view mha_rows(const float *data, size_t B, size_t T, size_t width)
{
    return mha_view_rows(mha__unconst(data), MHA_F32, MHA_BTE, B, T, width);
}

mha_view mha_heads(const float *data, size_t B, size_t T, size_t h, size_t d)
{
    return mha_view_heads(mha__unconst(data), MHA_F32, MHA_BTE, B, T, h, d);
}
