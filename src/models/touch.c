/* Writes a whole model's memory, after asking the machine whether it has that much. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mha/random.h"
#include "models/model.h"

/* The number behind `label` in a file of the system; false when there is none. */
static bool system_number(const char *path, const char *label, size_t *number)
{
    char line[128];
    FILE *file = fopen(path, "r");
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file))
        found = strncmp(line, label, strlen(label)) == 0 && sscanf(line + strlen(label), "%zu", number) == 1;
    if (file)
        fclose(file);
    return found;
}

/* Bytes that can be written without pushing anything out: what the kernel estimates, and what is left
 * of a control group's limit. SIZE_MAX when nobody says. */
static size_t memory_at_hand(void)
{
    size_t available = SIZE_MAX, kib, limit, used;
    long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (system_number("/proc/meminfo", "MemAvailable:", &kib))
        available = kib * 1024;
    else if (pages > 0 && page > 0)
        available = (size_t)pages * (size_t)page;
    if ((system_number("/sys/fs/cgroup/memory.max", "", &limit) &&
         system_number("/sys/fs/cgroup/memory.current", "", &used)) ||
        (system_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", "", &limit) &&
         system_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", "", &used)))
        if (limit - (used < limit ? used : limit) < available)
            available = limit - (used < limit ? used : limit);
    return available;
}

mha_status mha_model_touch(mha_model *model, uint64_t seed, mha_error *error)
{
    size_t needed = 0, at_hand = memory_at_hand();
    for (size_t i = 0; i < model->n_rows; i++) {
        mha_tensor_info info = mha_tensor_get_info(model->rows[i].tensor);
        needed += info.alias_of || info.kind == MHA_BUFFER ? 0 : info.bytes;
    }
    if (needed > at_hand)
        return mha_fail(error, MHA_NO_MEMORY, "touch",
                        "touch: expected %zu bytes of memory for the weights, found %zu at hand", needed, at_hand);
    for (size_t i = 0; i < model->n_rows; i++) {
        mha_tensor_info info = mha_tensor_get_info(model->rows[i].tensor);
        mha_view view = mha_tensor_view(model->rows[i].tensor);
        if (info.alias_of || info.kind == MHA_BUFFER)
            continue;
        bool scale = strcmp(info.role, "norm") == 0 && !strstr(info.name, "bias");
        float bound = info.rank > 1 ? 0.02f : 0;
        mha_random_fill(&view, seed, i, scale ? 1 : -bound, scale ? 1 : bound);
    }
    return MHA_OK;
}
