/* A temporary directory and files in it. */
#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "support/scratch.h"

void bytes_add(bytes *b, const void *data, size_t count)
{
    if (b->count + count > b->room) {
        b->room = 2 * (b->count + count) + 64;
        b->data = realloc(b->data, b->room);
    }
    if (count > 0)
        memcpy(b->data + b->count, data, count);
    b->count += count;
}

void bytes_text(bytes *b, const char *text)
{
    bytes_add(b, text, strlen(text));
}

void bytes_number(bytes *b, uint64_t value, int width)
{
    for (int i = 0; i < width; i++) {
        unsigned char byte = (unsigned char)(value >> 8 * i);
        bytes_add(b, &byte, 1);
    }
}

void bytes_zeros(bytes *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes_add(b, "", 1);
}

void bytes_free(bytes *b)
{
    free(b->data);
    *b = (bytes){0};
}

static char directory[64];

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status, (void)kind, (void)where;
    return remove(path);
}

static int remove_below(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    return where->level > 0 ? remove_one(path, status, kind, where) : 0;
}

static void remove_directory(void)
{
    nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *scratch_path(const char *name)
{
    static char paths[16][4096];
    static unsigned next;
    if (directory[0] == '\0') {
        strcpy(directory, "/tmp/mha-test-XXXXXX");
        if (!mkdtemp(directory))
            abort();
        atexit(remove_directory);
    }
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

void scratch_empty(void)
{
    nftw(scratch_path(""), remove_below, 16, FTW_DEPTH | FTW_PHYS);
}

const char *scratch_write(const char *name, const void *data, size_t count)
{
    const char *path = scratch_path(name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, count, file) != count || fclose(file) != 0)
        abort();
    return path;
}

const char *scratch_take(const char *name, bytes *b)
{
    const char *path = scratch_write(name, b->count ? b->data : (const void *)"", b->count);
    bytes_free(b);
    return path;
}

unsigned char *scratch_read(const char *path, size_t *count)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    bytes all = {0};
    char part[4096];
    for (size_t got; (got = fread(part, 1, sizeof part, file)) > 0;)
        bytes_add(&all, part, got);
    bytes_add(&all, "", 1);
    fclose(file);
    *count = all.count - 1;
    return all.data;
}

size_t scratch_count_files(void)
{
    scratch_path("");
    size_t count = 0;
    DIR *open = opendir(directory);
    for (const struct dirent *entry; (entry = readdir(open));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(open);
    return count;
}
