/* Rounding at the named points of a low precision, in float64. */
#ifndef MHA_ATTENTION_CORE_EXACT_ROUNDING_H
#define MHA_ATTENTION_CORE_EXACT_ROUNDING_H

#include "mha/precision.h"

/* Numbers are stored as value / scale in a type; F32 leaves them as they are. */
typedef struct mha__rounding {
    mha_dtype dtype;
    double scale;
} mha__rounding;

/* For numbers of at most `largest`: 8 bits get the scale that takes it to the largest number of the type. */
mha__rounding mha__rounding_of(mha_dtype dtype, double largest);
/* The same for the finite elements of a view; the view is not read for types without a scale. */
mha__rounding mha__rounding_of_view(mha_dtype dtype, const mha_view *view);
double mha__rounded(const mha__rounding *rounding, double value);
void mha__round_all(mha_dtype dtype, double *values, size_t count);

/* How numbers of a type are stored, and how a product reads what is stored so: TF32 rounds in products alone. */
static inline mha_dtype mha__stored_in(mha_dtype type)
{
    return type == MHA_TF32 ? MHA_F32 : type;
}
static inline mha_dtype mha__read_in(mha_dtype type)
{
    return type == MHA_TF32 ? MHA_TF32 : MHA_F32;
}

/* NULL, or the name of the first point whose type is none that it takes. */
const char *mha__precision_fault(const mha_precision *precision);
/* The type of the first point that rounds; MHA_F32, which is 0, when none does. */
mha_dtype mha__precision_type(const mha_precision *precision);
static inline bool mha__precision_rounds(const mha_precision *precision)
{
    return mha__precision_type(precision) != MHA_F32;
}

#endif
