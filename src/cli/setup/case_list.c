/* Lists the case files that operands name: files as given, directories with every .safetensors and .npz in them. */
#include "cli/setup/request.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

static void add_path(case_list *list, const char *path)
{
    list->paths = obtain_more(list->paths, list->n, &list->capacity, sizeof *list->paths);
    list->paths[list->n++] = path;
}

/* Links to directories are not followed, because they may form a cycle. */
static int add_directory(case_list *list, const char *path)
{
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort), code = EXIT_DONE;
    if (n < 0)
        return refuse_errno(path, errno);
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        const char *below = text_of("%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/", name);
        struct stat status;
        bool known = code == EXIT_DONE && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
        if (known && lstat(below, &status) != 0) {
            known = false;
            code = errno == ENOENT ? EXIT_DONE : refuse_errno(below, errno); /* removed since the directory was read */
        }
        if (known && S_ISDIR(status.st_mode))
            code = add_directory(list, below);
        if (known && !S_ISDIR(status.st_mode) && (mha__text_ends(name, ".safetensors") || mha__text_ends(name, ".npz")))
            add_path(list, below);
        free(entries[i]);
    }
    free(entries);
    return code;
}

static int add_operand(case_list *list, const char *operand)
{
    struct stat status;
    bool found = strcmp(operand, "-") != 0 && stat(operand, &status) == 0;
    if (!found && strcmp(operand, "-") != 0 && (errno == EIO || errno == ENOMEM))
        return refuse_errno(operand, errno);
    if (found && S_ISDIR(status.st_mode))
        return add_directory(list, operand);
    add_path(list, operand); /* a file that cannot be read is refused when it is opened */
    return EXIT_DONE;
}

int case_list_read(case_list *list, const arguments *args)
{
    int code = EXIT_DONE;
    for (size_t i = 0; i < args->n_operands && code == EXIT_DONE; i++)
        code = add_operand(list, args->operands[i]);
    keep(list->paths);
    return code != EXIT_DONE || list->n > 0
               ? code
               : refuse(args->operands[0], "expected case files (.safetensors, .npz), found none");
}
