/* Names from files, and of files, in pictures: what would be markup, script, a comment's end, a terminal's command, a
 * change of direction, or no text at all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "mha/lab.h"
#include "support/markup.h"
#include "support/page_data.h"
#include "support/program.h"
#include "support/scratch.h"
#include "support/unit.h"

/* In a name of a tensor, which is UTF-8: markup, the ends of CDATA and of a comment, U+2028, escape sequences in both
 * spellings, changes of direction by four characters. */
#define EVIL                                                                                                           \
    "<b>&\"']]>--></script>\xe2\x80\xa8\033[31m\xc2\x9b"                                                               \
    "31m\xe2\x80\xae\xe2\x80\x8f\xd8\x9c\xe2\x81\xa7\a"
/* In a path, which is bytes: and what is no UTF-8. No slash. */
#define EVIL_PATH "<b>&\"']]>-->\033[31m\xe2\x80\xae\xe2\x80\x8f\xff\xc3"

static const char *const controls[] = {"\033",         "\xc2\x9b",     "\xe2\x80\xae", "\xe2\x80\x8f", "\xd8\x9c",
                                       "\xe2\x81\xa7", "\xe2\x80\xa8", "\a",           "\xff"};

static void assert_harmless(const char *text)
{
    for (size_t i = 0; i < sizeof controls / sizeof *controls; i++)
        if (strstr(text, controls[i]))
            fail_msg("control %zu is in: %s", i, text);
}

static char trace[600], weights[600], tokens[600];

/* A file of weights of heads under a hostile name, with a tensor beside it. */
static void write_tensors(char path[600], const char *file, const char *const names[], size_t count, int rank)
{
    static float values[8 * 8] = {1};
    mha_writer *writer;
    mha_error error;
    snprintf(path, 600, "%s/%s", scratch(EVIL_PATH), file);
    assert_ok(mha_writer_create(path, &writer, &error), error);
    for (size_t i = 0; i < count; i++) {
        const mha_view view = mha_view_of(values, MHA_F32, rank, rank == 2 ? (size_t[]){8, 8} : (size_t[]){1, 3, 3});
        assert_ok(mha_writer_add(writer, names[i], &view, &error), error);
    }
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
}

static int write_files(void **state)
{
    (void)state;
    static const char *const layer[] = {EVIL ".attention.self.query.weight", EVIL ".attention.self.key.weight",
                                        EVIL ".attention.self.value.weight", EVIL ".attention.output.dense.weight"};
    mkdir(scratch(EVIL_PATH), 0777);
    write_tensors(trace, "trace.safetensors", (const char *const[]){EVIL ".weights"}, 1, 3);
    write_tensors(weights, "model.safetensors", layer, 4, 2);
    snprintf(tokens, sizeof tokens, "%s/tokens.txt", scratch(EVIL_PATH));
    FILE *file = fopen(tokens, "w");
    assert_non_null(file);
    fprintf(file, "%s\n<i>\xff\xc3(\n", EVIL);
    for (size_t i = 0; i < 5000; i++)
        fputs("\xf0\x9f\x98\x80", file); /* very long, four bytes at a time */
    fclose(file);
    return 0;
}

/* Characters as UTF-8 has them: a lead byte, and as many more as it says. */
static void assert_utf8(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        for (int more = *c < 0x80 ? 0 : *c >> 5 == 6 ? 1 : *c >> 4 == 14 ? 2 : *c >> 3 == 30 ? 3 : 9; more > 0; more--)
            assert_int_equal(*++c >> 6, 2);
}

static void check_svg(const char *text)
{
    assert_true(markup_walk(text) > 5);
    assert_null(strstr(text, "<b>"));
    assert_null(strstr(text, "</script"));
    assert_harmless(text);
    assert_utf8(text);
}

/* The chunks of text of a PNG; all others are numbers. */
static void check_png(const unsigned char *png, size_t count)
{
    size_t texts = 0;
    for (size_t at = 8, size; at + 12 <= count; at += 12 + size) {
        size = (size_t)png[at] << 24 | (size_t)png[at + 1] << 16 | (size_t)png[at + 2] << 8 | png[at + 3];
        if (memcmp(png + at + 4, "iTXt", 4) != 0)
            continue;
        char text[1100];
        assert_true(size < sizeof text);
        const size_t name = strlen((const char *)png + at + 8);
        memcpy(text, png + at + 8 + name + 5, size - name - 5);
        text[size - name - 5] = '\0';
        assert_harmless(text);
        assert_utf8(text);
        texts++;
    }
    assert_true(texts >= 3);
}

/* The page is the same for all pictures up to its packed data. */
static void check_page(const char *path, const char *text)
{
    page_data page = page_data_read(path);
    assert_null(strstr(text, "--></script>"));
    assert_harmless(text);
    page_data_free(&page);
}

static void no_picture_passes_them_on(void **state)
{
    (void)state;
    char beside[700];
    snprintf(beside, sizeof beside, "%s:%s.weights", trace, EVIL);
    const struct {
        const char *args[12];
        int code;
    } runs[] = {{{"show", trace, "--tokens", tokens, "--picture"}, 0},
                {{"show", trace, "--stage", EVIL ".weights", "--picture"}, 0},
                {{"show", "--weights", weights, "--heads", "2", "--seq", "3", "--tokens", tokens, "--picture"}, 0},
                {{"compare", trace, trace, "--picture"}, 0},
                {{"compare", beside, beside, "--picture"}, 0},
                {{"params", "--weights", weights, "--picture"}, 0}};
    static const char *const endings[] = {"out.svg", "out.html", "out.png"};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        for (size_t e = 0; e < 3; e++) {
            const char *args[12], *path = scratch(endings[e]);
            size_t n = 0, count;
            for (; runs[i].args[n]; n++)
                args[n] = runs[i].args[n];
            if (strcmp(args[0], "params") == 0 && e > 0)
                continue; /* which draws SVG, alone or in a page of it */
            args[n] = path;
            args[n + 1] = NULL;
            remove(path);
            program_result r = program_run(args);
            if (r.code != runs[i].code)
                fail_msg("run %zu, mha %s: exit code %d: %s", i, args[0], r.code, r.err);
            assert_harmless(r.out);
            assert_harmless(r.err);
            char *text = (char *)scratch_read(path, &count);
            char *ended = calloc(count + 1, 1);
            assert_non_null(ended);
            memcpy(ended, text, count);
            if (e == 0)
                check_svg(ended);
            else if (e == 1)
                check_page(path, ended);
            else
                check_png((const unsigned char *)text, count);
            free(ended);
            free(text);
            program_free(&r);
        }
}

/* A terminal that takes colours gets sequences for colours alone, whatever the names are. */
static void no_terminal_obeys_them(void **state)
{
    (void)state;
    program_result r = RUN_ON_TERMINALS(100, "show", trace, "--tokens", tokens);
    assert_int_equal(r.code, 0);
    for (size_t i = 1; i < sizeof controls / sizeof *controls; i++)
        assert_null(strstr(r.out, controls[i]));
    for (const char *at = r.out; (at = strchr(at, '\033')); at++) {
        const size_t length = 2 + strspn(at + 2, "0123456789;");
        assert_true(at[1] == '[' && at[length] == 'm');
        assert_true(strncmp(at, "\033[31m", 5) != 0);
    }
    program_free(&r);
}

static int remove_files(void **state)
{
    const char *const paths[] = {trace, weights, tokens, scratch(EVIL_PATH)};
    for (size_t i = 0; i < 4; i++)
        remove(paths[i]);
    return scratch_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_picture_passes_them_on),
                                       cmocka_unit_test(no_terminal_obeys_them)};
    return cmocka_run_group_tests_name("cli_hostile_pictures", tests, write_files, remove_files);
}
