/* The index of a set of safetensors files: the input is its text, the files beside it are two that it
 * may name, one.safetensors with the tensor "a" and two.safetensors with "b". */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

static char directory[64], path[128];

static void write_file(const char *name, const void *data, size_t size)
{
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
}

static void remove_directory(void)
{
    static const char *const names[] = {"one.safetensors", "two.safetensors", "index.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    rmdir(directory);
}

/* In memory where the system has such a place: the index is written anew for every input. */
static int make_directory(void)
{
    static const char one[] = "\x35\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}xx";
    static const char two[] = "\x35\0\0\0\0\0\0\0{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}xx";
    strcpy(directory, "/dev/shm/mha-fuzz-XXXXXX");
    if (!mkdtemp(directory)) {
        strcpy(directory, "/tmp/mha-fuzz-XXXXXX");
        if (!mkdtemp(directory))
            abort();
    }
    atexit(remove_directory);
    write_file("one.safetensors", one, sizeof one - 1);
    write_file("two.safetensors", two, sizeof two - 1);
    write_file("index.json", "", 0);
    return open(path, O_WRONLY | O_CLOEXEC);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int index = -1;
    if (index < 0)
        index = make_directory();
    if (ftruncate(index, 0) != 0 || pwrite(index, data, size, 0) != (ssize_t)size)
        abort();
    fuzz_open_everything(path);
    return 0;
}
