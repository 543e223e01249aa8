/* Prints errors in one line, numbers in a readable form, and folded text. Tables are in table.c, JSON in memory.c. */
#include "cli/text/print.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lab/settings.h"

/* ---------------------------------------------------------------- errors */

static void complain(const char *about, const char *message)
{
    const char *line = harmless(text_of("%s: %s%s%s", spoken_as(), about, *about ? ": " : "", message));
    fflush(stdout);
    fprintf(stderr, "%s\n", line);
}

int refuse_text(const char *about, const char *text)
{
    complain(about, text);
    return EXIT_REQUEST;
}

int refuse_errno(const char *path, int why)
{
    refuse(path, "%s", strerror(why));
    return mha__names_no_file(why) ? EXIT_REQUEST : EXIT_MACHINE;
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
    const char *file = harmless(path);
    const size_t length = strlen(file);
    const bool same = strncmp(name, file, length) == 0;
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

int expect_memory(size_t bytes, const char *what)
{
    if (memory_allows(bytes))
        return EXIT_DONE;
    mha_error error = {.status = MHA_NO_MEMORY};
    snprintf(error.message, sizeof error.message, "expected about %zu bytes of memory for %s, found %zu at hand", bytes,
             what, mha__memory_at_hand());
    return refuse_error("", &error);
}

int done_or_refuse(mha_status status, const char *about, const mha_error *error)
{
    return status == MHA_OK ? EXIT_DONE : refuse_error(about, error);
}

const char *file_error_text(const char *path, const mha_error *error)
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

/* ---------------------------------------------------------------- text */

bool has_colour(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return !(no && *no) && term && strcmp(term, "dumb") != 0 && isatty(STDOUT_FILENO);
}

const char *bold(void)
{
    return has_colour() ? "\033[1m" : "";
}

const char *plain(void)
{
    return has_colour() ? "\033[0m" : "";
}

const char *count_text(uint64_t n)
{
    const char *digits = text_of("%" PRIu64, n);
    const size_t length = strlen(digits);
    char *text = keep(obtain(2 * length, 1)), *to = text;
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    return text;
}

const char *bytes_text(uint64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double size = (double)bytes;
    size_t u = 0;
    for (; size >= 1023.95 && u < 6; u++)
        size /= 1024;
    return text_of("%.*f %s", u == 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2, size, unit[u]);
}

const char *real_text(double x)
{
    return isnan(x) ? "NaN" : text_of("%.6g", x);
}

const char *shape_text(int rank, const size_t *shape)
{
    char text[192];
    size_t at = 0;
    for (int i = 0; i < rank; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%zu", i ? ", " : "", shape[i]);
    return text_of("(%.*s%s)", (int)at, text, rank == 1 ? "," : "");
}

size_t line_width(void)
{
    const size_t narrowest = 20, usual = 100;
    struct winsize size = {0};
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
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

static table_style style;

void tables_styled(const char *format)
{
    static const char *const names[] = {
        [TABLE_TEXT] = "table", [TABLE_MARKDOWN] = "markdown", [TABLE_LATEX] = "latex", [TABLE_CSV] = "csv"};
    const int found = mha__name_find(names, sizeof names / sizeof *names, format);
    style = found < 0 ? TABLE_TEXT : (table_style)found;
}

table_style tables_style(void)
{
    return style;
}

void write_folded(const char *text, size_t indent)
{
    if (style != TABLE_TEXT)
        return;
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

void say_text(const char *text)
{
    static char *line; /* that has not ended */
    static size_t length, room;
    for (; *text && style == TABLE_TEXT; text++) {
        line = obtain_more(line, length, &room, 1);
        line[length++] = *text == '\n' ? '\0' : *text;
        if (*text != '\n')
            continue;
        write_line(line);
        length = 0;
    }
}

void say_harmless(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    char *text = text_of_list(format, values);
    va_end(values);
    const size_t ends = format[strlen(format) - 1] == '\n';
    text[strlen(text) - ends] = '\0';
    say_text(mha__text_harmless(text));
    say_text(ends ? "\n" : "");
    free(text);
}

const char *scaling_text(const mha_model_facts *facts)
{
    const mha_rope_scaling *s = &facts->rope_scaling;
    if (s->kind == MHA_ROPE_UNSCALED)
        return NULL;
    const char *text = text_of("%s, factor %g", mha__rope_scaling_name(s->kind), s->factor);
    return s->kind == MHA_ROPE_LINEAR ? text : text_more(text, ", of %g positions", s->original_length);
}
