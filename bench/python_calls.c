/* Times calls of the library from C, for python_calls.py beside it, which hands over the library's own functions. */
#include <mha/mha.h>
#include <time.h>

/* Nanoseconds of `count` calls of `run` in a row; -1 when one of them fails. */
double time_calls(mha_status (*run)(const mha_layer *, const mha_call *, mha_error *), const mha_layer *layer,
                  const mha_call *call, int count)
{
    mha_error error;
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < count; i++) {
        if (run(layer, call, &error) != MHA_OK)
            return -1;
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
}
