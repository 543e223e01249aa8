/* Results that were recorded from another library. */
#include "support/unit.h"

#include <math.h>
#include <stdlib.h>

#include "support/recorded.h"

mha_view recorded_view(const mha_file *file, const char *name, mha_dtype dtype)
{
    const mha_file_tensor *tensor = mha_file_find(file, name);
    mha_view view = {0};
    mha_error error;
    size_t size;
    if (!tensor)
        return view;
    assert_int_equal(mha_dtype_bytes(dtype, tensor->elements, &size, NULL), MHA_OK);
    view = mha_view_of(calloc(1, size), dtype, tensor->rank, tensor->shape);
    assert_ok(mha_file_read(file, tensor, &view, &error), error);
    return view;
}

/* The largest difference, and the largest number that was recorded. */
static double difference(const mha_view *found, const mha_view *expected, double *largest)
{
    const double *a = found->data, *b = expected->data;
    double worst = 0;
    size_t count = 1;
    *largest = 0;
    assert_int_equal(found->rank, expected->rank);
    for (int i = 0; i < found->rank; i++) {
        assert_int_equal(found->shape[i], expected->shape[i]);
        count *= found->shape[i];
    }
    for (size_t i = 0; i < count; i++) {
        worst = fabs(a[i] - b[i]) <= worst ? worst : fabs(a[i] - b[i]); /* NaN is a difference */
        *largest = fmax(*largest, fabs(b[i]));
    }
    return worst;
}

void recorded_meets(const char *what, const char *prefix, const mha_view *found, const mha_view *expected,
                    double bound)
{
    double largest;
    const double off = difference(found, expected, &largest), allowed = bound + RECORDED_EXACT * largest;
    if (!(off <= allowed))
        fail_msg("%s of %s is off by %g, allowed %g", what, prefix, off, allowed);
}
