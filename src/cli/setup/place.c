/* Where a file that shall be written would come to lie: an inode, or a free name in a directory. */
#include "cli/setup/place.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/output/print.h"

typedef struct place {
    bool known;
    dev_t device; /* of the file; of the directory where there is no file yet, */
    ino_t inode;
    char *name; /* and then what it would be called there, else NULL */
} place;

bool is_standard_output(const char *path)
{
    return strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0;
}

/* The directory in front of the last component, with its slash. */
static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? text_of("%.*s", (int)(slash - path) + 1, path) : text_of("./");
}

/* What the link `path` says, seen from here; NULL when it is none. */
static char *target_of(const char *path)
{
    char link[4096];
    ssize_t length = readlink(path, link, sizeof link);
    if (length <= 0 || length == (ssize_t)sizeof link)
        return NULL;
    char *directory = directory_of(path), *target = text_of("%s%.*s", link[0] == '/' ? "" : directory, (int)length, link);
    free(directory);
    return target;
}

static place place_of(const char *path)
{
    struct stat status;
    if (is_standard_output(path) ? fstat(STDOUT_FILENO, &status) == 0 : stat(path, &status) == 0)
        return (place){true, status.st_dev, status.st_ino, NULL};
    enum { MOST_LINKS = 40 }; /* as the system */
    char *at = text_of("%s", path), *next;
    for (int links = 0; links < MOST_LINKS && (next = target_of(at)); links++) {
        free(at);
        at = next;
    }
    char *directory = directory_of(at), *slash = strrchr(at, '/');
    place found = {.known = stat(directory, &status) == 0};
    if (found.known)
        found = (place){true, status.st_dev, status.st_ino, text_of("%s", slash ? slash + 1 : at)};
    free(directory);
    free(at);
    return found;
}

bool is_one_place(const char *a, const char *b)
{
    place p = place_of(a), q = place_of(b);
    bool one = strcmp(a, b) == 0 || (p.known && q.known && p.device == q.device && p.inode == q.inode && !p.name == !q.name &&
                                     (!p.name || strcmp(p.name, q.name) == 0));
    free(p.name);
    free(q.name);
    return one;
}
