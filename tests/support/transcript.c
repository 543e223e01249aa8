/* Runs the transcripts of a file of prose, and its code, and compares what they say. */
#include "support/transcript.h"

#include <ctype.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/program.h"
#include "support/scratch.h"
#include "support/unit.h"

enum { MOST_WORDS = 60, LINE = 2000 };

/* A command, and what is expected of it. */
typedef struct said {
    const char *file;
    char command[LINE];
    program_result result;
    const char *out, *err; /* what is not compared yet */
    json_t *json;
    bool code_checked;
} said;

#define FAIL(s, ...)                                                                                                   \
    do {                                                                                                               \
        print_error("%s: $ %s\n%.700s\n%s", (s)->file, (s)->command, (s)->result.out, (s)->result.err);                \
        fail_msg(__VA_ARGS__);                                                                                         \
    } while (0)

/* ---------------------------------------------------------------- lines */

/* Copies a line with one blank for several, and none at its ends. */
static void copy_plain(char to[LINE], const char *from, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length && n + 1 < LINE; i++)
        if (from[i] != ' ')
            to[n++] = from[i];
        else if (n > 0 && to[n - 1] != ' ')
            to[n++] = ' ';
    to[n - (n > 0 && to[n - 1] == ' ')] = '\0';
}

/* Whether `line` is `expected`, in which "..." is any text. */
static bool same_line(const char *line, const char *expected)
{
    const char *any = strstr(expected, "...");
    const size_t length = any ? (size_t)(any - expected) : strlen(expected);
    if (strncmp(line, expected, length) != 0)
        return false;
    if (!any)
        return line[length] == '\0';
    for (line += length;; line++) {
        if (same_line(line, any + 3))
            return true;
        if (!*line)
            return false;
    }
}

/* Moves behind the first line that is as expected. */
static bool find_line(const char **text, const char *expected)
{
    for (char line[LINE]; **text; *text += **text == '\n') {
        const size_t n = strcspn(*text, "\n");
        copy_plain(line, *text, n);
        *text += n;
        if (same_line(line, expected))
            return true;
    }
    return false;
}

/* Copies a line and those on which it goes on behind a backslash, as one; moves behind them. */
static void copy_joined(char to[LINE], const char **from)
{
    size_t n = strcspn(*from, "\n");
    while (n > 0 && (*from)[n - 1] == '\\' && (*from)[n])
        n += 1 + strcspn(*from + n + 1, "\n");
    assert_true(n < LINE);
    char line[LINE];
    for (size_t i = 0; i < n; i++)
        line[i] = (*from)[i] == '\\' || (*from)[i] == '\n' ? ' ' : (*from)[i];
    copy_plain(to, line, n);
    *from += n + ((*from)[n] == '\n');
}

/* Copies `length` characters with the path of a scratch file for each @name. */
static void copy_named(char to[LINE], const char *from, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length && n + 1 < LINE;) {
        char name[64];
        size_t k = 0;
        if (from[i] == '@' && (isalnum((unsigned char)from[i + 1]) || from[i + 1] == '.'))
            for (; k + 1 < sizeof name && i + 1 + k < length; k++) {
                if (!isalnum((unsigned char)from[i + 1 + k]) && !strchr("._-", from[i + 1 + k]))
                    break;
                name[k] = from[i + 1 + k];
            }
        if (k > 0) {
            name[k] = '\0';
            n += (size_t)snprintf(to + n, LINE - n, "%s", scratch(name));
            assert_true(n < LINE);
            i += k + 1;
        } else
            to[n++] = from[i++];
    }
    to[n] = '\0';
}

/* ---------------------------------------------------------------- JSON */

/* The value at a path; *at moves behind it. NULL: there is none. */
static const json_t *value_at(const json_t *root, const char **at)
{
    while (root && (**at == '.' || **at == '[')) {
        char key[128];
        if (**at == '.') {
            const size_t length = strcspn(++*at, ".[ ");
            snprintf(key, sizeof key, "%.*s", (int)length, *at);
            *at += length;
            root = *key ? json_object_get(root, key) : root;
        } else {
            char *end;
            const unsigned long i = strtoul(*at + 1, &end, 10);
            *at = end + (*end == ']');
            root = json_array_get(root, i);
        }
    }
    return root;
}

static bool compares(const json_t *value, const char *relation, const json_t *with)
{
    const bool numbers = json_is_number(value) && json_is_number(with);
    const double a = json_number_value(value), b = json_number_value(with);
    const bool same = numbers ? a == b : json_equal(value, with);
    if (strcmp(relation, "==") == 0)
        return same;
    if (strcmp(relation, "!=") == 0)
        return !same;
    if (strcmp(relation, "holds") == 0) {
        bool holds = json_is_string(value) && strstr(json_string_value(value), json_string_value(with));
        for (size_t i = 0; i < json_array_size(value); i++)
            holds |= json_equal(json_array_get(value, i), with);
        return holds;
    }
    if (strcmp(relation, "size") == 0)
        return (json_int_t)(json_object_size(value) + json_array_size(value)) == json_integer_value(with);
    assert_true(strcmp(relation, "<") == 0 || strcmp(relation, "<=") == 0 || strcmp(relation, ">") == 0 ||
                strcmp(relation, ">=") == 0);
    return numbers && (relation[0] == '<' ? a < b || (relation[1] && a == b) : a > b || (relation[1] && a == b));
}

static void check_json(said *s, const char *line)
{
    json_error_t error;
    if (!s->json && !(s->json = json_loadb(s->result.out, s->result.out_size, JSON_REJECT_DUPLICATES, &error)))
        FAIL(s, "no JSON: line %d: %s", error.line, error.text);
    const char *at = line;
    const json_t *value = value_at(s->json, &at);
    char relation[8];
    int length = 0;
    if (sscanf(at, " %7s %n", relation, &length) != 1)
        FAIL(s, "\"%s\": expected a path, a relation and a value", line);
    at += length;
    if (!value)
        FAIL(s, "\"%s\": there is no such value", line);
    if (strcmp(relation, "has") == 0) {
        assert_keys(value, at);
        return;
    }
    json_t *given = *at == '.' ? json_deep_copy(value_at(s->json, &at))
                               : json_loads(at, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    char *found = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!given || !compares(value, relation, given))
        FAIL(s, "\"%s\" is not so, but %.200s", line, found);
    free(found);
    json_decref(given);
}

/* ---------------------------------------------------------------- commands */

/* Splits a command into words, in place; 'a b' is one word. */
static void split_words(char *line, const char *words[MOST_WORDS])
{
    size_t n = 0;
    for (char *at = line; *at && n + 1 < MOST_WORDS;) {
        at += strspn(at, " ");
        char *to = at;
        if (*at)
            words[n++] = at;
        bool quoted = false;
        for (; *at && (quoted || *at != ' '); at++)
            if (*at == '\'')
                quoted = !quoted;
            else
                *to++ = *at;
        at += *at == ' ';
        *to = '\0';
    }
    words[n] = NULL;
}

/* Runs the words of a command: variables, "mha", arguments, "<" with a file. */
static void run(said *s)
{
    char line[LINE];
    const char *words[MOST_WORDS], *names[MOST_WORDS] = {NULL}, *input = NULL;
    copy_named(line, s->command, strlen(s->command));
    split_words(line, words);
    size_t first = 0, last;
    for (; words[first] && strchr(words[first], '='); first++) {
        char *value = strchr(line + (words[first] - line), '=');
        *value = '\0';
        names[first] = words[first];
        assert_int_equal(value[1] ? setenv(words[first], value + 1, 1) : unsetenv(words[first]), 0);
    }
    assert_true(words[first] && strcmp(words[first], "mha") == 0);
    for (last = first; words[last]; last++) {
    }
    if (words[last - 1][0] == '<') {
        input = words[last - 1] + 1;
        words[last - 1] = NULL;
    }
    s->result = program_run_with(NULL, input, words + first + 1);
    for (size_t i = 0; i < first; i++)
        unsetenv(names[i]);
}

static void write_file(said *s, const char *text)
{
    char name[LINE];
    const char *end = text;
    while (*end && *end != '\n')
        end += strcspn(end, "\n") + 1;
    copy_named(name, s->command + sizeof "cat >" - 1, strlen(s->command) - (sizeof "cat >" - 1));
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    for (const char *at = text; at < end; at += strcspn(at, "\n") + 1) {
        const size_t margin = strspn(at, " ") < 4 ? strspn(at, " ") : 4;
        fprintf(file, "%.*s\n", (int)(strcspn(at, "\n") - margin), at + margin);
    }
    assert_int_equal(fclose(file), 0);
}

/* Compares one expected line. */
static void check_line(said *s, const char *line)
{
    if (*line == '?') {
        char *words;
        const long code = strtol(line + 1, &words, 10);
        if (s->result.code != code)
            FAIL(s, "exit code %d, expected %ld", s->result.code, code);
        s->code_checked = true;
        if (*words == ' ') {
            program_result refused = s->result;
            refused.out = strdup(s->result.out), refused.err = strdup(s->result.err);
            assert_program_refuses(refused, (int)code, words + 1);
        }
    } else if (*line == '!' && line[1] == ' ') {
        if (strstr(s->result.out, line + 2))
            FAIL(s, "it says \"%s\"", line + 2);
    } else if (strncmp(line, "2> ", 3) == 0) {
        if (!find_line(&s->err, line + 3))
            FAIL(s, "standard error does not say \"%s\", in this order", line + 3);
    } else if ((*line == '.' && line[1] != '.') || *line == '[')
        check_json(s, line);
    else if (strcmp(line, "...") != 0 && !find_line(&s->out, line))
        FAIL(s, "it does not say \"%s\", in this order", line);
}

/* Compares the lines at `at`, up to a command or to a line without a margin, which is returned. */
static const char *check_lines(said *s, const char *at, bool compared)
{
    for (; strncmp(at, "    ", 4) == 0 || (*at == '\n' && compared); at += strcspn(at, "\n") + 1) {
        char line[LINE], expected[LINE];
        if (strncmp(at, "    $ ", 6) == 0)
            break;
        copy_plain(line, at, strcspn(at, "\n"));
        copy_named(expected, line, strlen(line));
        if (*expected && compared)
            check_line(s, expected);
    }
    return at;
}

/* Runs the command at `at`; returns what follows its lines. */
static const char *check_command(said *s, const char *at, bool lenient)
{
    copy_joined(s->command, &at);
    memmove(s->command, s->command + 2, strlen(s->command + 2) + 1);
    const bool writes = strncmp(s->command, "cat >", 5) == 0;
    if (writes)
        write_file(s, at);
    else
        run(s);
    s->out = s->result.out, s->err = s->result.err;
    at = check_lines(s, at, !writes);
    if (!s->code_checked && s->result.code != 0 && !(lenient && s->result.code == 1))
        FAIL(s, "exit code %d", s->result.code);
    if (!writes)
        program_free(&s->result);
    json_decref(s->json);
    return at;
}

/* ---------------------------------------------------------------- code between fences */

/* Whether a Python imports the modules that are named with blanks between them. */
static bool imports(const char *python, const char *modules)
{
    char line[LINE];
    snprintf(line, sizeof line, "import mha, %s", modules);
    for (char *at = strchr(line, ',') + 2; (at = strchr(at, ' ')) != NULL; *at = ',') {
    }
    program_result r = program_run_other((const char *const[]){python, "-c", line, NULL});
    const bool can = r.code == 0;
    program_free(&r);
    return can;
}

/* Runs the lines that begin with "mha", which may go on behind a backslash, without their comments. */
static size_t run_shell(said *s, const char *at, const char *end)
{
    size_t count = 0;
    while (at < end) {
        copy_joined(s->command, &at);
        if (strncmp(s->command, "mha ", 4) != 0)
            continue;
        s->command[strcspn(s->command, "#")] = '\0';
        run(s);
        if (s->result.code > 1)
            FAIL(s, "exit code %d", s->result.code);
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
        print_message("skipped: a block of %s, which needs%s\n", s->file, modules);
        return 0;
    }
    if (is_shell)
        return run_shell(s, code, end);
    strncat(python_so_far, code, (size_t)(end - code));
    snprintf(s->command, sizeof s->command, "%s", python);
    s->result = program_run_other((const char *const[]){python, "-c", python_so_far, NULL});
    s->out = s->result.out, s->err = s->result.err;
    if (s->result.code != 0)
        FAIL(s, "exit code %d", s->result.code);
    const char *after = *from + (**from == '\n');
    if (strncmp(after, "    ", 4) == 0)
        *from = check_lines(s, after, true);
    program_free(&s->result);
    return 1;
}

size_t transcript_check(const char *file, int lenient)
{
    size_t size, count = 0;
    char *text = (char *)scratch_read(file, &size), *python = calloc(1, size + 1);
    text = realloc(text, size + 1);
    assert_true(text && python);
    text[size] = '\0';
    for (const char *at = text; *at;) {
        said s = {.file = file};
        if (strncmp(at, "    $ ", 6) == 0) {
            at = check_command(&s, at, lenient);
            count++;
        } else if (strncmp(at, "```", 3) == 0)
            count += check_fence(&s, &at, python);
        else
            at += strcspn(at, "\n") + 1;
    }
    free(python);
    free(text);
    return count;
}
