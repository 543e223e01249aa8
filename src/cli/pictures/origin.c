/* The command line as it could be typed again, and the SHA-256 of the files that it names. */
#include "cli/pictures/pictures.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---------------------------------------------------------------- the command */

/* The command line without what does not change the picture. */
static const char *command_of(const arguments *args)
{
    const char *text = text_of("mha %s", command_rows[args->command].name);
    for (option_code o = 0; o < option_count(); o++) {
        const bool is_picture = strcmp(option_at(o)->name, "picture") == 0;
        if (!given(args, o) || is_picture || o == OPT_THREADS || o == OPT_WIDE || o == OPT_QUIET ||
            o == OPT_JSON || o == OPT_FORMAT || o == OPT_CSV)
            continue;
        const option_value *value = &args->option[o];
        for (size_t i = 0; i < (value->n_texts > 1 ? value->n_texts : 1); i++) {
            text = text_more(text, " --%s", option_at(o)->name);
            if (option_at(o)->type != FLAG)
                text = text_more(text, " %s", shell_word(value->n_texts > 0 ? value->texts[i] : value->text));
        }
    }
    for (size_t i = 0; i < args->n_operands; i++)
        text = text_more(text, " %s", shell_word(args->operands[i]));
    return text;
}

/* ---------------------------------------------------------------- the files */

typedef struct file_list {
    mha__input *inputs;
    size_t count, room;
    uint64_t read; /* bytes so far */
    int code;      /* after the first file that cannot be read: that exit code */
} file_list;

static const uint64_t most_bytes = (uint64_t)4 << 30;

/* Why a file is not read for its digest; NULL when it is. */
static const char *reason_against(const char *path, uint64_t bytes_read, uint64_t *bytes)
{
    struct stat status = {0};
    if (strcmp(path, "-") == 0 || (stat(path, &status) == 0 && !S_ISREG(status.st_mode)))
        return "a stream, which is not read twice";
    *bytes = (uint64_t)status.st_size;
    return *bytes > most_bytes - bytes_read ? "the inputs have more than 4 GiB" : NULL;
}

/* Hashes a file to its end, piece by piece. */
static bool hash_file(const char *path, struct sha256_ctx *hash)
{
    enum { PIECE = 1 << 18 };
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    uint8_t *piece = obtain(PIECE, 1);
    ssize_t count = -1;
    while (file >= 0 && (count = read(file, piece, PIECE)) > 0)
        sha256_update(hash, (size_t)count, piece);
    if (file >= 0)
        close(file);
    free(piece);
    return count == 0;
}

/* Fills in the digest in hexadecimal digits, or why there is none. */
static int take_digest(mha__input *input, uint64_t *bytes_read)
{
    struct sha256_ctx hash;
    uint8_t digest[SHA256_DIGEST_SIZE];
    uint64_t bytes = 0;
    sha256_init(&hash);
    input->unknown = reason_against(input->path, *bytes_read, &bytes);
    if (input->unknown)
        return EXIT_DONE;
    if (!hash_file(input->path, &hash)) {
        refuse(input->path, "cannot read it again, for its SHA-256: %s", strerror(errno));
        return EXIT_MACHINE;
    }
    *bytes_read += bytes;
    sha256_digest(&hash, sizeof digest, digest);
    char *text = keep(obtain(2 * sizeof digest + 1, 1));
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    input->sha256 = text;
    return EXIT_DONE;
}

/* Adds a file unless it is listed already. */
static void add(file_list *list, const char *path)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->inputs[i].path, path) == 0)
            return;
    list->inputs = obtain_more(list->inputs, list->count, &list->room, sizeof *list->inputs);
    mha__input *input = &list->inputs[list->count++];
    *input = (mha__input){.path = path};
    if (list->code == EXIT_DONE)
        list->code = take_digest(input, &list->read);
}

/* Adds the files that the index of a set of safetensors files names; nothing for any other file. */
static void add_set(file_list *list, const char *index)
{
    const char *slash = strrchr(index, '/'), *key;
    if (!mha__text_ends(index, ".index.json"))
        return;
    json_t *root = keep_json(json_load_file(index, 0, NULL)), *file;
    json_object_foreach(json_object_get(root, "weight_map"), key, file) if (json_is_string(file))
        add(list, text_of("%.*s%s", slash ? (int)(slash + 1 - index) : 0, index, json_string_value(file)));
}

/* Adds what stands for FILE or FILE:TENSOR on the command line. */
static void add_named(file_list *list, const char *text)
{
    static const char *const of_directory[] = {"model.safetensors", "model.safetensors.index.json"};
    const char *colon = strrchr(text, ':');
    const bool whole = strcmp(text, "-") == 0 || access(text, F_OK) == 0 || !colon;
    const char *path = text_of("%.*s", whole ? (int)strlen(text) : (int)(colon - text), text);
    for (size_t i = 0; i < 2; i++) {
        const char *inside = text_of("%s/%s", path, of_directory[i]);
        path = access(inside, F_OK) == 0 ? inside : path;
    }
    const size_t at = list->count;
    add(list, path);
    if (list->count > at)
        add_set(list, list->inputs[at].path);
}

int origin_of(const arguments *args, mha__origin *origin)
{
    file_list list = {0};
    for (option_code o = 0; o < option_count(); o++)
        if (given(args, o) && args->option[o].text && names_file(o, args->option[o].text) &&
            (option_at(o)->section != SECTION_RESULT || o == OPT_TOKENS)) /* all others of results are written */
            add_named(&list, args->option[o].text);
    for (size_t i = 0; i < args->n_operands; i++)
        add_named(&list, args->operands[i]);
    *origin = (mha__origin){.command = command_of(args), .input_count = list.count, .inputs = keep(list.inputs)};
    return list.code;
}
