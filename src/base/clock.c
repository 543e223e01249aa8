/* The monotonic clock. */
#include <time.h>

#include "base/base.h"

double mha__clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double mha__clock_ms(void)
{
    return 1e3 * mha__clock_seconds();
}
