/* Runs a fuzzer over files and directories without libFuzzer: each must be survived. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz/fuzz.h"

static size_t replayed;

static void replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(size > 0 ? size : 1); /* no byte more, so that a sanitizer sees a read past the end */
    if (!data || fread(data, 1, size, file) != size)
        exit(1);
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    replayed++;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct stat status;
        if (stat(argv[i], &status) == 0 && S_ISDIR(status.st_mode)) {
            DIR *directory = opendir(argv[i]);
            for (const struct dirent *entry; directory && (entry = readdir(directory));) {
                char path[4096];
                snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
                if (entry->d_name[0] != '.')
                    replay_file(path);
            }
            if (directory)
                closedir(directory);
        } else
            replay_file(argv[i]);
    }
    printf("%s: %zu inputs replayed\n", argv[0], replayed);
    return replayed == 0;
}
