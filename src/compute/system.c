/* Version and threads of the library that runs. */
#include "compute/thread_pool.h"
#include "mha/system.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const char *mha_version(void)
{
    return TEXT(MHA_VERSION_MAJOR) "." TEXT(MHA_VERSION_MINOR) "." TEXT(MHA_VERSION_PATCH);
}

int mha_threads_available(void)
{
    return mha__parallel_default();
}
