/* Rounding at the named points of a low precision, in float64: scales, presets, and which types a point takes. */
#include <math.h>
#include <string.h>

#include "attention/core/exact/rounding.h"
#include "base/base.h"

static bool is_scaled(mha_dtype dtype)
{
    return dtype == MHA_F8_E4M3 || dtype == MHA_F8_E5M2 || dtype == MHA_I8;
}

mha__rounding mha__rounding_of(mha_dtype dtype, double largest)
{
    const double end = dtype == MHA_F8_E4M3 ? 448 : dtype == MHA_F8_E5M2 ? 57344 : 127, scale = largest / end;
    return (mha__rounding){dtype, is_scaled(dtype) && scale > 0 ? scale : 1};
}

mha__rounding mha__rounding_of_view(mha_dtype dtype, const mha_view *view)
{
    double most = 0;
    size_t index[MHA_MAX_RANK] = {0};
    const bool reads = is_scaled(dtype) && view->data && mha_view_elements(view) > 0;
    for (bool more = reads; more; more = mha__index_next(index, view->shape, view->rank)) {
        const double x = fabs(mha_view_get(view, index));
        most = isfinite(x) ? fmax(most, x) : most;
    }
    return mha__rounding_of(dtype, most);
}

double mha__rounded(const mha__rounding *rounding, double value)
{
    if (rounding->dtype == MHA_F32 || !isfinite(value))
        return value;
    /* the largest number, divided by its scale, may be a rounding beyond the end of the type */
    const double end = rounding->dtype == MHA_F8_E4M3 ? 448 : rounding->dtype == MHA_F8_E5M2 ? 57344 : 127;
    const double x = value / rounding->scale, y = is_scaled(rounding->dtype) ? fmax(fmin(x, end), -end) : x;
    return (rounding->dtype == MHA_I8 ? rint(y) : mha__round_to(rounding->dtype, y)) * rounding->scale;
}

void mha__round_all(mha_dtype dtype, double *values, size_t count)
{
    const mha_view all = mha_view_of(values, MHA_F64, 1, &count);
    const mha__rounding rounding = mha__rounding_of_view(dtype, &all);
    for (size_t i = 0; dtype != MHA_F32 && i < count; i++)
        values[i] = mha__rounded(&rounding, values[i]);
}

mha_precision mha_precision_of(mha_dtype type)
{
    if (type != MHA_F16 && type != MHA_BF16 && type != MHA_TF32 && !is_scaled(type))
        return (mha_precision){.inputs = MHA_F32};
    return (mha_precision){.inputs = type,
                           .weights = type,
                           .rows = type,
                           .probabilities = type, .output = is_scaled(type) ? MHA_BF16 : type};
}

enum { POINTS = 7 };

typedef struct point {
    const char *name;
    mha_dtype type;
    bool unscaled; /* 16 bits alone have a meaning here: no tensor that could be scaled, no product that reads it */
} point;

static void list_points(const mha_precision *p, point list[POINTS])
{
    const point all[POINTS] = {{"precision.rows", p->rows, false},
                               {"precision.inputs", p->inputs, false},
                               {"precision.weights", p->weights, false},
                               {"precision.probabilities", p->probabilities, false},
                               {"precision.scores", p->scores, true},
                               {"precision.sums", p->sums, true},
                               {"precision.output", p->output, false}};
    memcpy(list, all, sizeof all);
}

const char *mha__precision_fault(const mha_precision *precision)
{
    point list[POINTS];
    list_points(precision, list);
    for (size_t i = 0; i < POINTS; i++) {
        const mha_dtype t = list[i].type;
        const bool narrow = is_scaled(t) || t == MHA_TF32;
        if (t != MHA_F32 && t != MHA_F16 && t != MHA_BF16 && (list[i].unscaled || !narrow))
            return list[i].name;
    }
    return NULL;
}

mha_dtype mha__precision_type(const mha_precision *precision)
{
    point list[POINTS];
    list_points(precision, list);
    for (size_t i = 0; i < POINTS; i++)
        if (list[i].type != MHA_F32)
            return list[i].type;
    return MHA_F32;
}
