/* Reads FILE[:TENSOR] of the command line: finds the file and the tensor, and reads it into memory. */
#include "cli/setup/request.h"

#include <unistd.h>

/* Whether `name` may be meant by `asked`: it contains `asked`, or differs in a few letters. */
static bool is_near(const char *name, const char *asked)
{
    const size_t few = strlen(asked) / 4 + 1, letters = mha__text_distance(name, asked);
    return strstr(name, asked) || (letters <= few && letters < strlen(asked));
}

/* The names of a file's tensors, separated by commas, as many as fit in a line; `near`: only names near to it, ""
 * when there are none. */
static const char *names_of(const mha_file *file, const char *near)
{
    const size_t enough = 200; /* bytes of names */
    const char *names = "";
    for (size_t i = 0; i < mha_file_count(file); i++) {
        const char *name = mha_file_at(file, i)->name;
        if (near && !is_near(name, near))
            continue;
        const bool full = strlen(names) >= enough;
        names = text_more(names, "%s%s", *names ? ", " : "", full ? "..." : name);
        if (full)
            break;
    }
    return names;
}

static int refuse_name(const mha_file *file, const char *asked)
{
    if (mha_file_count(file) == 1 && !*mha_file_at(file, 0)->name)
        return refuse(mha_file_path(file), "expected no name behind the file, whose one tensor has none, found \"%s\"",
                      asked);
    const char *near = names_of(file, asked), *all = names_of(file, NULL);
    return refuse(mha_file_path(file), "expected a tensor called \"%s\", found %s %s", asked,
                  *near ? "only near ones:" : "none near it:", *near ? near : all);
}

int source_open(source *s, const char *text)
{
    mha_error error = {0};
    const bool whole = access(text, F_OK) == 0 && strcmp(text, "-") != 0;
    const char *colon = whole ? NULL : strrchr(text, ':'),
               *path = colon ? text_of("%.*s", (int)(colon - text), text) : text;
    *s = (source){0};
    TRY(done_or_refuse(mha_file_open(path, &s->file, &error), path, &error));
    if (!colon || (s->tensor = mha_file_find(s->file, colon + 1)))
        return EXIT_DONE;
    const int code = refuse_name(s->file, colon + 1);
    mha_file_close(s->file);
    s->file = NULL;
    return code;
}

int source_choose(source *s, const char *about)
{
    const size_t n = mha_file_count(s->file);
    if (!s->tensor && n == 1)
        s->tensor = mha_file_at(s->file, 0);
    if (s->tensor)
        return EXIT_DONE;
    return refuse(about, "expected FILE:TENSOR, found a file of %zu tensors: %s", n, names_of(s->file, NULL));
}

int source_read(const source *s, const mha_file_tensor *tensor, mha_dtype dtype, mha__arena *arena, mha_view *view)
{
    mha_error error = {0};
    const char *path = mha_file_path(s->file);
    size_t bytes = SIZE_MAX;
    if (!arena->allocator.allocate)
        arena->allocator = mha__allocator_default();
    *view = mha_view_of(NULL, dtype, tensor->rank, tensor->shape);
    if (mha_dtype_bytes(dtype, tensor->elements, &bytes, NULL) == MHA_OK && memory_allows(bytes))
        *view = mha__arena_view(arena, dtype, tensor->rank, tensor->shape);
    if (!view->data)
        mha__fail_inside(&error, MHA_NO_MEMORY, path, tensor->name, 0, "no memory for its %zu bytes", bytes);
    else if (mha_file_read(s->file, tensor, view, &error) == MHA_OK)
        return EXIT_DONE;
    return refuse_error(path, &error);
}

static bool is_floating(mha_dtype dtype)
{
    return mha__dtype_is_float(dtype) || dtype == MHA_F8_E4M3 || dtype == MHA_F8_E5M2;
}

int tensor_of_option(const arguments *args, option_code option, tensor_types types, mha__arena *arena, mha_view *view)
{
    source s;
    int code = source_open(&s, text_for(args, option));
    if (code == EXIT_DONE)
        code = source_choose(&s, text_of("--%s", option_at(option)->name));
    if (code == EXIT_DONE) {
        const mha_dtype from = s.tensor->reads_as;
        const bool floating = is_floating(from), any = types == NUMBERS_OR_TRUTH;
        const bool kept = types == NUMBERS_AS_THEY_ARE || (types != FLOATS && from == MHA_F64);
        if (!floating && !any)
            code = refuse_option(option, "expected floating-point numbers, found %s", mha_dtype_name(s.tensor->dtype));
        else
            code = source_read(&s, s.tensor, kept || !floating ? from : MHA_F32, arena, view);
    }
    mha_file_close(s.file);
    return code;
}
