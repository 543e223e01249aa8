/* Prints errors in one line, numbers in a readable form, folded text and JSON. Tables are in table.c. */
#include "cli/text/print.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/lab.h"
#include "lab/rope_scaling.h"

/* ---------------------------------------------------------------- errors */

static const char *program = "mha";

void speak_as(const char *name)
{
    program = name;
}

const char *spoken_as(void)
{
    return program;
}

char *harmless(char *text)
{
    return mha__text_harmless(text);
}

static void complain(const char *about, const char *message)
{
    char *line = harmless(text_of("%s: %s%s%s", program, about, *about ? ": " : "", message));
    fflush(stdout);
    fprintf(stderr, "%s\n", line);
    free(line);
}

int refuse(const char *about, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    char *message = text_of_list(format, values);
    va_end(values);
    complain(about, message);
    free(message);
    return EXIT_REQUEST;
}

int refuse_errno(const char *path, int why)
{
    refuse(path, "%s", strerror(why));
    return why == ENOENT || why == ENOTDIR || why == EACCES || why == EISDIR ? EXIT_REQUEST : EXIT_MACHINE;
}

/* 2: the request is wrong; 3: the machine could not. */
int exit_code_of(mha_status status)
{
    return status == MHA_OK ? EXIT_DONE : status == MHA_IO || status == MHA_NO_MEMORY ? EXIT_MACHINE : EXIT_REQUEST;
}

/* The length of `path`, made harmless, with which the name in an error begins: "PATH: TENSOR" or "PATH"; 0 when the
 * name does not begin with it. */
static size_t repeats(const char *name, const char *path)
{
    char *file = harmless(text_of("%s", path));
    const size_t length = strlen(file);
    const bool same = strncmp(name, file, length) == 0;
    free(file);
    return same && (name[length] == 0 || strncmp(name + length, ": ", 2) == 0) ? length : 0;
}

/* Whether standard output is a pipe whose reader has closed it. */
static bool reader_is_gone(void)
{
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&output, 1, 0) == 1 && output.revents & POLLERR;
}

int refuse_error(const char *about, const mha_error *error)
{
    char text[sizeof *error];
    if (error->status == MHA_IO && strcmp(error->name, "standard output") == 0 && reader_is_gone())
        return EXIT_DONE;
    about = strcmp(about, "-") == 0 ? "standard input" : about;
    const bool named = strncmp(error->name, "...", 3) == 0 || repeats(error->name, about); /* "...": was too long */
    complain(named ? "" : about, mha_error_text(text, sizeof text, error));
    return exit_code_of(error->status);
}

char *file_error_text(const char *path, const mha_error *error)
{
    char whole[sizeof *error];
    path = strcmp(path, "-") == 0 ? "standard input" : path;
    mha_error_text(whole, sizeof whole, error);
    const size_t length = repeats(error->name, path);
    return text_of("%s", whole + (length ? length + strlen(": ") : 0));
}

int finish_output(int code)
{
    const bool gone = reader_is_gone();
    bool failed = ferror(stdout);
    failed |= fclose(stdout) != 0;
    if (!failed || gone)
        return code;
    complain("standard output", strerror(errno ? errno : EIO));
    return EXIT_MACHINE;
}

/* Large requests are compared with the free memory, because the system grants more than it has and later ends the
 * program that uses it. */
bool memory_allows(size_t bytes)
{
    const size_t large = (size_t)1 << 28;
    return bytes < large || bytes <= mha__memory_at_hand();
}

int expect_memory(size_t bytes, const char *what)
{
    if (memory_allows(bytes))
        return EXIT_DONE;
    mha_error error = {.status = MHA_NO_MEMORY};
    snprintf(error.message, sizeof error.message, "expected about %zu bytes of memory for %s, found %zu at hand", bytes,
             what, mha__memory_at_hand());
    return refuse_error("", &error);
}

void *obtain_more(void *items, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity)
        return items;
    *capacity = n ? 2 * n : 64;
    void *more = obtain(*capacity, size);
    if (n)
        memcpy(more, items, n * size);
    free(items);
    return more;
}

static bool is_hopeless(size_t count, size_t size)
{
    return size && (count > SIZE_MAX / size || !memory_allows(count * size));
}

static _Noreturn void give_up(size_t count, size_t size)
{
    fprintf(stderr, "%s: no memory: expected %zu x %zu bytes, found none\n", program, count, size);
    exit(EXIT_MACHINE);
}

void *obtain(size_t count, size_t size)
{
    void *memory = is_hopeless(count, size) ? NULL : calloc(count ? count : 1, size);
    if (!memory)
        give_up(count, size);
    return memory;
}

mha_view obtain_view(mha__arena *arena, mha_dtype dtype, int rank, const size_t *shape)
{
    size_t bytes = SIZE_MAX;
    mha_view view = mha_view_of(NULL, dtype, rank, shape);
    const size_t elements = mha_view_elements(&view);
    if (!arena->allocator.allocate)
        arena->allocator = mha__allocator_default();
    if (elements == SIZE_MAX || mha_dtype_bytes(dtype, elements, &bytes, NULL) != MHA_OK || !memory_allows(bytes) ||
        !(view.data = mha__arena_take(arena, bytes)))
        give_up(elements, bytes / (elements ? elements : 1));
    return view;
}

char *text_of_list(const char *format, va_list values)
{
    va_list again;
    va_copy(again, values);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *text = obtain((size_t)length + 1, 1);
    vsnprintf(text, (size_t)length + 1, format, values);
    return text;
}

char *text_of(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    char *text = text_of_list(format, values);
    va_end(values);
    return text;
}

char *text_more(char *text, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    char *more = text_of_list(format, values), *both = text_of("%s%s", text, more);
    va_end(values);
    free(more);
    free(text);
    return both;
}

char *shell_word(const char *word)
{
    static const char plain_ones[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,=+-";
    if (*word && !word[strspn(word, plain_ones)])
        return text_of("%s", word);
    char *text = text_of("'");
    for (const char *quote; (quote = strchr(word, '\'')); word = quote + 1)
        text = text_more(text, "%.*s'\\''", (int)(quote - word), word);
    return text_more(text, "%s'", word);
}

/* ---------------------------------------------------------------- text */

bool has_colour(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return !(no && *no) && term && strcmp(term, "dumb") != 0 && is_terminal();
}

const char *bold(void)
{
    return has_colour() ? "\033[1m" : "";
}

const char *plain(void)
{
    return has_colour() ? "\033[0m" : "";
}

char *count_text(char text[SHORT_TEXT], uint64_t n)
{
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n);
    char *to = text;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = 0;
    return text;
}

char *bytes_text(char text[SHORT_TEXT], uint64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double size = (double)bytes;
    size_t u = 0;
    for (; size >= 1023.95 && u < 6; u++)
        size /= 1024;
    int decimals = u == 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
    snprintf(text, SHORT_TEXT, "%.*f %s", decimals, size, unit[u]);
    return text;
}

char *real_text(char text[SHORT_TEXT], double x)
{
    if (isnan(x))
        snprintf(text, SHORT_TEXT, "NaN");
    else
        snprintf(text, SHORT_TEXT, "%.6g", x);
    return text;
}

char *shape_text(char text[SHAPE_TEXT], int rank, const size_t *shape)
{
    size_t at = (size_t)snprintf(text, SHAPE_TEXT, "(");
    for (int i = 0; i < rank; i++)
        at += (size_t)snprintf(text + at, SHAPE_TEXT - at, "%s%zu", i ? ", " : "", shape[i]);
    snprintf(text + at, SHAPE_TEXT - at, "%s)", rank == 1 ? "," : "");
    return text;
}

bool is_terminal(void)
{
    return isatty(STDOUT_FILENO);
}

size_t line_width(void)
{
    const size_t narrowest = 20, usual = 100;
    struct winsize size = {0};
    if (!is_terminal() || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        return usual;
    const char *columns = getenv("COLUMNS"); /* of a terminal that does not say how wide it is */
    const unsigned long width = size.ws_col > 0 ? size.ws_col : columns ? strtoul(columns, NULL, 10) : 0;
    return width == 0 || width > USHRT_MAX ? usual : width > narrowest ? width : narrowest;
}

/* The length of the escape sequence that a text begins with; 0 without one. */
static size_t escape(const char *at)
{
    return *at == '\033' ? strcspn(at, "m") + 1 : 0;
}

size_t bytes_that_fit(const char *text, size_t width)
{
    size_t at = 0, word = 0, part = 0; /* where a word ends, and where a long one can be broken */
    for (size_t characters = 0; text[at]; at++) {
        at += escape(text + at);
        if (!text[at])
            break;
        characters += ((unsigned char)text[at] & 0xC0) != 0x80;
        if (characters > width && text[at] != ' ')
            return word ? word : part ? part : at;
        if (text[at] == ' ')
            word = at;
        if (strchr(".,/|_-", text[at]))
            part = at + 1;
    }
    return at;
}

void write_folded(const char *text, size_t indent)
{
    const size_t narrowest = 16, width = line_width() > indent + narrowest ? line_width() - indent : narrowest;
    for (size_t n; *text; text += n + (text[n] == ' ')) {
        n = bytes_that_fit(text, width);
        printf("%.*s\n", (int)n, text);
        if (text[n])
            printf("%*s", (int)indent, "");
    }
}

/* Writes a line, whose further lines are folded behind its blanks and two more. */
static void write_line(const char *line)
{
    const size_t indent = strspn(line, " ") + 2, first = bytes_that_fit(line, line_width());
    printf("%.*s\n", (int)first, line);
    line += first + (line[first] == ' ');
    if (!*line)
        return;
    printf("%*s", (int)indent, "");
    write_folded(line, indent);
}

static char *pending; /* the beginning of a line that has not ended; NULL: nothing */

static void say_text(const char *text)
{
    for (size_t length; *text; text += length + 1) {
        length = strcspn(text, "\n");
        pending = text_more(pending ? pending : text_of("%s", ""), "%.*s", (int)length, text);
        if (!text[length])
            return;
        write_line(pending);
        free(pending);
        pending = NULL;
    }
}

void say(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    char *text = text_of_list(format, values);
    va_end(values);
    say_text(text);
    free(text);
}

void say_harmless(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    char *text = text_of_list(format, values);
    va_end(values);
    const size_t ends = format[strlen(format) - 1] == '\n';
    text[strlen(text) - ends] = '\0';
    say_text(harmless(text));
    say_text(ends ? "\n" : "");
    free(text);
}

void write_prose(const char *text)
{
    write_folded(text, 0);
}

/* ---------------------------------------------------------------- JSON */

static void *json_memory(size_t bytes)
{
    return obtain(bytes, 1);
}

void json_mind_memory(void)
{
    json_set_alloc_funcs(json_memory, free);
}

/* What stands in a tree for NaN, the infinity and the negative one: one value each. */
static const char *const no_numbers[] = {"nan", "inf", "-inf"};
static json_t *no_number[sizeof no_numbers / sizeof *no_numbers];

const char *json_word_of(const json_t *value)
{
    for (size_t i = 0; value && i < sizeof no_numbers / sizeof *no_numbers; i++)
        if (value == no_number[i])
            return no_numbers[i];
    return NULL;
}

json_t *json_number(double x)
{
    if (isfinite(x))
        return json_real(x);
    const size_t which = isnan(x) ? 0 : x > 0 ? 1 : 2;
    if (!no_number[which])
        no_number[which] = json_string(no_numbers[which]);
    return json_incref(no_number[which]);
}

json_t *json_milliseconds(double ms)
{
    return json_number(round(ms * 1e6) / 1e6);
}

json_t *json_count(size_t n)
{
    return json_integer((json_int_t)n);
}

json_t *json_shape(int rank, const size_t *shape)
{
    json_t *list = json_array();
    for (int i = 0; i < rank; i++)
        json_array_append_new(list, json_count(shape[i]));
    return list;
}

json_t *json_text(const char *text)
{
    if (!text)
        return json_null();
    json_t *value = json_string(text);
    if (value)
        return value;
    char *copy = text_of("%s", text);
    for (char *c = copy; *c; c++)
        *c = (unsigned char)*c > 126 ? '?' : *c;
    value = json_string(copy);
    free(copy);
    return value;
}

/* Takes out of the tree what is no JSON: fields for text alone, and numbers that are none, which become null. */
static void strip(json_t *node)
{
    const char *name;
    void *next;
    size_t i;
    json_t *value;
    json_object_foreach_safe(node, next, name, value)
    {
        if (*name == '~')
            json_object_del(node, name);
        else if (json_word_of(value))
            json_object_set_new(node, name, json_null());
        else
            strip(value);
    }
    json_array_foreach(node, i, value)
    {
        if (json_word_of(value))
            json_array_set_new(node, i, json_null());
        else
            strip(value);
    }
}

void json_print(json_t *root)
{
    strip(root);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15) | JSON_ENSURE_ASCII);
    json_decref(root);
    puts(text);
    free(text);
}

const char *scaling_text(const mha_model_facts *facts, char text[SHORT_TEXT])
{
    const mha_rope_scaling *s = &facts->rope_scaling;
    if (s->kind == MHA_ROPE_UNSCALED)
        return NULL;
    int used = snprintf(text, SHORT_TEXT, "%s, factor %g", mha__rope_scaling_name(s->kind), s->factor);
    if (s->kind != MHA_ROPE_LINEAR)
        snprintf(text + used, SHORT_TEXT - (size_t)used, ", of %g positions", s->original_length);
    return text;
}
