/* The names of stages and paths, from their lists. */
#include <string.h>

#include "mha/attention.h"

static const char *const stages[MHA_STAGE_COUNT] = {
#define STAGE_ROW(code, name) [code] = name,
    MHA_STAGE_LIST(STAGE_ROW)
#undef STAGE_ROW
};

static const char *const paths[MHA_PATH_COUNT] = {
#define PATH_ROW(code, name) [code] = name,
    MHA_PATH_LIST(PATH_ROW)
#undef PATH_ROW
};

static int find(const char *const *names, int count, const char *name)
{
    int i = 0;
    while (i < count && strcmp(names[i], name) != 0)
        i++;
    return i;
}

const char *mha_stage_name(mha_stage stage)
{
    return (unsigned)stage < MHA_STAGE_COUNT ? stages[stage] : "?";
}

bool mha_stage_find(const char *name, mha_stage *stage)
{
    int i = find(stages, MHA_STAGE_COUNT, name);
    if (i < MHA_STAGE_COUNT)
        *stage = (mha_stage)i;
    return i < MHA_STAGE_COUNT;
}

const char *mha_path_name(mha_path path)
{
    return (unsigned)path < MHA_PATH_COUNT ? paths[path] : "?";
}

bool mha_path_find(const char *name, mha_path *path)
{
    int i = find(paths, MHA_PATH_COUNT, name);
    if (i < MHA_PATH_COUNT)
        *path = (mha_path)i;
    return i < MHA_PATH_COUNT;
}
