/* Runs the transcripts of a file of prose, and its code, and compares what they say. */
#include "support/transcript.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/page_data.h"
#include "support/program.h"
#include "support/scratch.h"
#include "support/unit.h"

enum { MOST_BRACES = 9, WORD = 200, LINE = 4000, TEXT = 1 << 16 };

/* A command, and what is expected of it. */
typedef struct said {
    const char *file;
    char command[LINE];
    char words[MOST_BRACES][WORD]; /* which of the braces' words it has */
    size_t braces;
    program_result result;
    const char *out, *err; /* what is not compared yet */
    json_t *json;
    bool code_checked, errors_checked;
} said;

/* Says what is wrong; the test fails after its last command. */
#define WRONG(s, ...)                                                                                                  \
    do {                                                                                                               \
        print_error("%s: $ %s\n%.900s\n%.400s\n", (s)->file, (s)->command, (s)->result.out, (s)->result.err);          \
        print_error(__VA_ARGS__);                                                                                      \
        print_error("\n\n");                                                                                           \
        wrong++;                                                                                                       \
    } while (0)
static size_t wrong;

/* ---------------------------------------------------------------- lines */

/* Copies a line with one blank for several and for a tab, and none at its ends. */
static void copy_plain(char to[LINE], const char *from, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length && n + 1 < LINE; i++)
        if (from[i] != ' ' && from[i] != '\t')
            to[n++] = from[i];
        else if (n > 0 && to[n - 1] != ' ')
            to[n++] = ' ';
    to[n - (n > 0 && to[n - 1] == ' ')] = '\0';
}

/* Whether `line` is `expected`, in which "..." is any text, or begins so where more may follow. */
static bool is_like(const char *line, const char *expected, bool more)
{
    const char *any = strstr(expected, "...");
    const size_t length = any ? (size_t)(any - expected) : strlen(expected);
    if (strncmp(line, expected, length) != 0)
        return false;
    if (!any)
        return more || line[length] == '\0';
    for (line += length;; line++) {
        if (is_like(line, any + 3, more))
            return true;
        if (!*line)
            return false;
    }
}

/* Whether a text has these words somewhere, wherever its lines break. */
static bool has_words(const char *text, const char *words)
{
    char *joined = calloc(strlen(text) + 1, 1), *to = joined;
    assert_non_null(joined);
    for (; *text; text++)
        if (!strchr(" \n", *text))
            *to++ = *text;
        else if (to > joined && to[-1] != ' ')
            *to++ = ' ';
    bool found = false;
    for (const char *at = joined; *at && !found; at++)
        found = is_like(at, words, true);
    free(joined);
    return found;
}

/* Moves past the first line that is as expected. */
static bool find_line(const char **text, const char *expected)
{
    for (char line[LINE]; **text; *text += **text == '\n') {
        const size_t n = strcspn(*text, "\n");
        copy_plain(line, *text, n);
        *text += n;
        if (is_like(line, expected, false))
            return true;
    }
    return false;
}

/* Copies a text with the words of braces for {1}, {2}. */
static void copy_words(const said *s, char *to, size_t room, const char *from)
{
    size_t n = 0;
    while (*from) {
        const bool braces = from[0] == '{' && isdigit((unsigned char)from[1]) && from[2] == '}';
        const size_t word = braces ? (size_t)(from[1] - '0') : 0;
        if (word > 0 && word <= s->braces) {
            n += (size_t)snprintf(to + n, room - n, "%s", s->words[word - 1]);
            from += 3;
        } else
            to[n++] = *from++;
        assert_true(n + 1 < room);
    }
    to[n] = '\0';
}

/* The same, with the path of a scratch file for each @name. */
static void copy_named(const said *s, char *to, size_t room, const char *text)
{
    size_t n = 0;
    char *worded = malloc(room);
    assert_non_null(worded);
    copy_words(s, worded, room, text);
    for (const char *from = worded; *from;) {
        size_t k = 0;
        while (*from == '@' && from[1 + k] &&
               (isalnum((unsigned char)from[1 + k]) || (k > 0 && strchr("._-/", from[1 + k]))))
            k++;
        while (k > 1 && from[k] == '.') /* the end of a sentence */
            k--;
        char name[100];
        snprintf(name, sizeof name, "%.*s", (int)k, from + 1);
        if (k > 0)
            n += (size_t)snprintf(to + n, room - n, "%s", scratch_path(name));
        else
            to[n++] = *from;
        from += k > 0 ? k + 1 : 1;
        assert_true(n + 1 < room);
    }
    to[n] = '\0';
    free(worded);
}

/* Copies a line that may go on in the next ones; returns what follows. */
static const char *copy_continued(char to[LINE], const char *from)
{
    size_t n = 0;
    for (;; from += strspn(from, " ")) {
        const size_t length = strcspn(from, "\n");
        const bool goes_on = length > 0 && from[length - 1] == '\\' && from[length];
        assert_true(n + length < LINE);
        memcpy(to + n, from, length);
        n += length - goes_on;
        from += length + (from[length] == '\n');
        if (!goes_on)
            break;
    }
    to[n] = '\0';
    return from;
}

/* The lines after a command, without its margin, up to an empty line. */
static void copy_block(char to[TEXT], const char *from)
{
    size_t n = 0;
    while (*from && *from != '\n') {
        from += strspn(from, " ") < 4 ? strspn(from, " ") : 4;
        const size_t length = strcspn(from, "\n") + 1;
        assert_true(n + length < TEXT);
        memcpy(to + n, from, length);
        n += length;
        from += length;
    }
    to[n] = '\0';
}

/* ---------------------------------------------------------------- answers */

static void check_json(said *s, const char *line)
{
    json_error_t error;
    char why[200];
    if (!s->json && !(s->json = json_loadb(s->result.out, s->result.out_size, JSON_REJECT_DUPLICATES, &error)))
        WRONG(s, "no JSON: line %d: %s", error.line, error.text);
    else if (!transcript_claim(s->json, line, why))
        WRONG(s, "\"%s\" is not so: %s", line, why);
}

/* The code is `expected`; what follows it is returned. */
static const char *check_code(said *s, const char *expected)
{
    char *rest;
    const long code = strtol(expected, &rest, 10);
    if (rest == expected || s->result.code != code)
        WRONG(s, "exit code %d, expected %s", s->result.code, expected);
    s->code_checked = true;
    return rest;
}

/* "CODE" or "CODE WORDS": the words, with "*" for any text, are in the one line that is said. */
static void check_refusal(said *s, const char *expected)
{
    char words[LINE];
    const char *rest = check_code(s, expected);
    const program_result *r = &s->result;
    if (*rest != ' ')
        return;
    size_t n = 0;
    for (rest++; *rest && n + 4 < sizeof words; rest++)
        n += (size_t)snprintf(words + n, 4, "%s", *rest == '*' ? "..." : (char[]){*rest, '\0'});
    const char *end = strchr(r->err, '\n');
    if (r->out_size > 0 || strncmp(r->err, "mha", 3) != 0 || !end || end[1] || !has_words(r->err, words))
        WRONG(s, "not a refusal in one line with the words \"%s\"", words);
    s->errors_checked = true;
}

/* Compares one expected line. */
static void check_line(said *s, const char *line)
{
    if (*line == '?')
        check_refusal(s, line + 1);
    else if (strncmp(line, "[exit code ", 11) == 0)
        check_code(s, line + 11);
    else if (*line == '!' && line[1] == ' ') {
        if (strstr(s->result.out, line + 2))
            WRONG(s, "it says \"%s\"", line + 2);
    } else if (strncmp(line, "~ ", 2) == 0) {
        if (!has_words(s->result.out, line + 2))
            WRONG(s, "it does not have the words \"%s\"", line + 2);
    } else if (strncmp(line, "2> ", 3) == 0) {
        s->errors_checked = true;
        if (!find_line(&s->err, line + 3))
            WRONG(s, "standard error does not say \"%s\", in this order", line + 3);
    } else if (strcmp(line, "(nothing)") == 0) {
        if (s->result.out_size > 0)
            WRONG(s, "it says something");
    } else if ((*line == '.' && line[1] != '.') || strncmp(line, "sum(", 4) == 0)
        check_json(s, line);
    else if (strcmp(line, "...") != 0 && !find_line(&s->out, line))
        WRONG(s, "it does not say \"%s\", in this order", line);
}

/* Compares the lines at `at`, up to a command or to a line without a margin, which is returned. */
static const char *check_lines(said *s, const char *at, bool compared)
{
    for (char line[LINE], plain[LINE], expected[LINE]; strncmp(at, "    ", 4) == 0 || (*at == '\n' && compared);) {
        if (strncmp(at, "    $ ", 6) == 0)
            break;
        at = copy_continued(line, at);
        copy_plain(plain, line, strlen(line));
        copy_named(s, expected, sizeof expected, plain);
        if (*expected && compared)
            check_line(s, expected);
    }
    return at;
}

/* ---------------------------------------------------------------- commands */

/* A command of the runner itself, which writes a file or reads a page; false: it is one of the shell. */
static bool run_own(said *s, const char *command, const char *block)
{
    char text[TEXT], named[TEXT];
    if (strncmp(command, "page ", 5) == 0) {
        snprintf(text, sizeof text, "%.*s", (int)strcspn(command + 5, " "), command + 5);
        const char *to = strchr(command + 5, '>');
        page_data page = page_data_read(text);
        s->result = (program_result){.out = json_dumps(page.json, 0), .err = strdup("")};
        s->result.out_size = strlen(s->result.out);
        assert_true(!to || json_dump_file(page.json, to + 1, 0) == 0);
        page_data_free(&page);
        return true;
    }
    const bool tensors = strncmp(command, "tensors >", 9) == 0;
    if (!tensors && strncmp(command, "cat >", 5) != 0)
        return false;
    copy_block(text, block);
    copy_named(s, named, sizeof named, text);
    if (tensors)
        transcript_tensors(command + 9, named);
    else {
        FILE *file = fopen(command + 5, "w");
        assert_non_null(file);
        fputs(named, file);
        assert_int_equal(fclose(file), 0);
    }
    return true;
}

/* Runs a command without braces and compares; returns what follows its lines. */
static const char *run(const said *as, const char *at)
{
    said one = *as, *s = &one;
    char named[LINE];
    copy_named(s, named, sizeof named, s->command);
    const bool own = run_own(s, named, at), writes = own && !s->result.out;
    if (!own)
        s->result = program_run_in_shell(named);
    s->out = s->result.out, s->err = s->result.err;
    at = check_lines(s, at, !writes);
    if (writes)
        return at;
    if (!s->code_checked && s->result.code != 0)
        WRONG(s, "exit code %d", s->result.code);
    if (!s->errors_checked && *s->result.err)
        WRONG(s, "it says something on standard error");
    program_free(&s->result);
    json_decref(s->json);
    return at;
}

/* Runs a command for each word of its first braces, and so on; returns what follows its lines. */
static const char *run_each(const said *as, const char *at)
{
    const char *open = as->command, *shut, *after = at;
    while ((open = strchr(open, '{')) && !((shut = strchr(open, '}')) && memchr(open, '|', (size_t)(shut - open))))
        open++;
    if (!open)
        return run(as, at);
    assert_true(as->braces < MOST_BRACES);
    for (const char *word = open + 1; word <= shut; word += strcspn(word, "|}") + 1) {
        said one = *as;
        const int length = (int)strcspn(word, "|}");
        snprintf(one.words[one.braces++], WORD, "%.*s", length, word);
        snprintf(one.command, LINE, "%.*s%.*s%s", (int)(open - as->command), as->command, length, word, shut + 1);
        after = run_each(&one, at);
    }
    return after;
}

/* ---------------------------------------------------------------- code between fences */

/* Whether a Python imports the modules that are named with blanks between them; PyTorch is 2.0 or newer. */
static bool imports(const char *python, const char *modules)
{
    char line[LINE];
    snprintf(line, sizeof line, "import mha, %s%s", modules,
             strncmp(modules, "torch", 5) == 0 ? "\ntorch.nn.functional.scaled_dot_product_attention" : "");
    for (char *at = strchr(line, ',') + 2; (at = strchr(at, ' ')) != NULL; *at = ',') {
    }
    program_result r = program_run_other((const char *const[]){python, "-c", line, NULL});
    const bool can = r.code == 0;
    program_free(&r);
    return can;
}

/* Runs the lines that begin with "mha". A comment may say "exit code N". */
static size_t run_shell(said *s, const char *at, const char *end)
{
    size_t count = 0;
    while (at < end) {
        at = copy_continued(s->command, at);
        if (strncmp(s->command, "mha ", 4) != 0)
            continue;
        s->result = program_run_in_shell(s->command);
        const char *comment = strstr(s->command, " # "), *code = comment ? strstr(comment, "exit code ") : NULL;
        check_code(s, code ? code + 10 : "0");
        program_free(&s->result);
        count++;
    }
    return count;
}

/* Runs the code of the fence at *from, of Python behind all that came before it, and moves behind what it says. Returns
 * how many runs there were. */
static size_t check_fence(said *s, const char **from, char *python_so_far)
{
    const char *at = *from + 3, *code = at + strcspn(at, "\n") + 1, *end = strstr(code, "```\n");
    char kind[LINE];
    assert_non_null(end);
    copy_plain(kind, at, (size_t)(code - 1 - at));
    *from = end + 4;
    char *modules = kind + strcspn(kind, " ");
    const bool is_python = strncmp(kind, "python", 6) == 0, is_shell = strncmp(kind, "sh", 2) == 0;
    if (!is_python && !is_shell)
        return 0;
    const char *peer = getenv("PEER_PYTHON"), *python = *modules && peer ? peer : "python3";
    if (*modules && !imports(python, modules + 1)) {
        snprintf(s->command, sizeof s->command, "%s, importing%s", python, modules);
        if (getenv("MHA_NO_SKIPS"))
            WRONG(s, "a block is skipped, with MHA_NO_SKIPS set");
        else
            print_message("skipped: make test-torch runs tests that need packages of tests/peers/requirements.txt\n");
        return 0;
    }
    if (is_shell)
        return run_shell(s, code, end);
    strncat(python_so_far, code, (size_t)(end - code));
    snprintf(s->command, sizeof s->command, "%s", python);
    s->result = program_run_other((const char *const[]){python, "-c", python_so_far, NULL});
    s->out = s->result.out, s->err = s->result.err;
    if (s->result.code != 0)
        WRONG(s, "exit code %d", s->result.code);
    const char *after = *from + (**from == '\n');
    if (strncmp(after, "    ", 4) == 0)
        *from = check_lines(s, after, true);
    program_free(&s->result);
    return 1;
}

size_t transcript_check(const char *file)
{
    size_t size, count = 0;
    wrong = 0;
    char *text = (char *)scratch_read(file, &size), *python = calloc(1, size + 1);
    assert_true(text && python);
    text[size] = '\0';
    for (const char *at = text; *at;) {
        said s = {.file = file};
        if (strncmp(at, "    $ ", 6) == 0) {
            at = copy_continued(s.command, at + 6);
            at = run_each(&s, at);
            count++;
        } else if (strncmp(at, "```", 3) == 0)
            count += check_fence(&s, &at, python);
        else
            at += strcspn(at, "\n") + (at[strcspn(at, "\n")] == '\n');
    }
    free(python);
    free(text);
    if (wrong > 0)
        fail_msg("%s: %zu answers are not as expected", file, wrong);
    return count;
}
