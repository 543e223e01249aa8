/* Rounding to the types of mha_precision, once more. */
#include <math.h>

#include "support/rounded.h"

/* Significant bits, smallest step and largest number of a type. */
static void form_of(mha_dtype type, int *bits, double *step, double *end)
{
    static const struct {
        mha_dtype type;
        int bits;
        double step, end;
    } forms[] = {{MHA_F16, 11, 0x1p-24, 65504},         {MHA_BF16, 8, 0x1p-133, 0x1.fep127},
                 {MHA_F8_E4M3, 4, 0x1p-9, 448},         {MHA_F8_E5M2, 3, 0x1p-16, 57344},
                 {MHA_TF32, 11, 0x1p-136, 0x1.ffcp127}, {MHA_I8, 30, 1, 127}};
    size_t i = 0;
    while (forms[i].type != type && forms[i].type != MHA_I8)
        i++;
    *bits = forms[i].bits, *step = forms[i].step, *end = forms[i].end;
}

bool rounded_scaled(mha_dtype type)
{
    return type == MHA_F8_E4M3 || type == MHA_F8_E5M2 || type == MHA_I8;
}

mha_dtype rounded_stored(mha_dtype type)
{
    return type == MHA_TF32 ? MHA_F32 : type;
}

double rounded_number(mha_dtype type, double x)
{
    int bits, exponent;
    double step, end;
    if (type == MHA_F32 || !isfinite(x))
        return x;
    form_of(type, &bits, &step, &end);
    (void)frexp(x, &exponent);
    step = fmax(step, ldexp(1, exponent - bits));
    return rint(x / step) * step;
}

static double scale_of(mha_dtype type, const double *x, size_t n)
{
    int bits;
    double step, end, most = 0;
    form_of(type, &bits, &step, &end);
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i]));
    return rounded_scaled(type) && most > 0 ? most / end : 1;
}

void rounded_tensor(mha_dtype type, double *x, size_t n)
{
    const double scale = scale_of(type, x, n);
    for (size_t i = 0; i < n; i++)
        x[i] = rounded_number(type, x[i] / scale) * scale;
}

double rounded_share(mha_dtype type, double p)
{
    const double one = 1, scale = scale_of(type, &one, 1);
    return rounded_number(type, p / scale) * scale;
}
