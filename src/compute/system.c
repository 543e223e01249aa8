/* Version and instruction set for mha/system.h; gemm.c names the BLAS, thread_pool.c counts threads. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "compute/kernels/kernels.h"
#include "mha/system.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const char *mha_version(void)
{
    return TEXT(MHA_VERSION_MAJOR) "." TEXT(MHA_VERSION_MINOR) "." TEXT(MHA_VERSION_PATCH);
}

const char *mha_isa(void)
{
    return mha__kernels_get()->isa;
}

const char *mha_isa_at(size_t index)
{
    const mha__kernels *kernels = mha__kernels_at(index);
    return kernels ? kernels->isa : NULL;
}

mha_status mha_isa_select(const char *name, mha_error *error)
{
    const mha_status status = mha__kernels_select(name);
    if (status == MHA_OK)
        return MHA_OK;
    char available[128] = "";
    for (size_t i = 0; mha_isa_at(i); i++)
        snprintf(available + strlen(available), sizeof available - strlen(available), "%s%s", i ? ", " : "",
                 mha_isa_at(i));
    return mha__fail(error, status, "isa", "expected one this machine has (%s), found \"%s\"", available,
                     name ? name : "");
}
