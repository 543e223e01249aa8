/* Arrays that grow, the memory that the system can give, words in lists, names of types. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lab/lab.h"

void *mha__array_grow(const mha_allocator *allocator, void *items, size_t count, size_t *room, size_t item_bytes)
{
    if (count < *room)
        return items;
    size_t larger = *room ? 2 * *room : 8, bytes;
    void *copy = mha__mul(larger, item_bytes, &bytes) ? mha__allocate(allocator, bytes) : NULL;
    if (!copy)
        return NULL;
    if (items)
        memcpy(copy, items, count * item_bytes);
    mha__release(allocator, items, *room * item_bytes);
    *room = larger;
    return copy;
}

/* Reads the number after `label` in a file of the system; false when there is no such file or number. */
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

/* The smaller of two numbers: the kernel's estimate, and the limit of the control group minus its use. */
size_t mha__memory_at_hand(void)
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

size_t mha__text_stem(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0 ? length - tail : SIZE_MAX;
}

bool mha__text_ends(const char *text, const char *end)
{
    return mha__text_stem(text, end) != SIZE_MAX;
}

bool mha__text_among(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; n > 0 && (at = strstr(at, word)); at++)
        if ((at == list || strchr(" ,", at[-1])) && strchr(" ,", at[n]))
            return true;
    return false;
}

size_t mha__text_width(const char *text)
{
    size_t width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

size_t mha__text_distance(const char *a, const char *b)
{
    enum { MOST = 128 };
    size_t row[MOST + 1];
    const size_t m = strnlen(a, MOST), n = strnlen(b, MOST);
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            row[j] = replaced < row[j] ? replaced : row[j];
        }
    }
    return row[n];
}

bool mha__dtype_find(const char *name, mha_dtype *dtype)
{
    for (int i = 0; i < MHA_DTYPE_COUNT; i++)
        if (strcmp(mha_dtype_name((mha_dtype)i), name) == 0) {
            *dtype = (mha_dtype)i;
            return true;
        }
    return false;
}
