/* The names of paths. */
#include "base/base.h"
#include "mha/attention.h"

static const char *const paths[] = {
    [MHA_PATH_AUTO] = "auto",
    [MHA_PATH_FAST] = "fast",
    [MHA_PATH_BLAS] = "blas",
    [MHA_PATH_EXACT] = "exact",
};
_Static_assert(sizeof paths / sizeof *paths == MHA_PATH_COUNT, "a name for every path");

const char *mha_path_name(mha_path path)
{
    return mha__name_at(paths, MHA_PATH_COUNT, (size_t)path);
}

bool mha_path_find(const char *name, mha_path *path)
{
    const int found = mha__name_find(paths, MHA_PATH_COUNT, name);
    if (found >= 0)
        *path = (mha_path)found;
    return found >= 0;
}
