/* The parts that --batch, --head, --query, --rows and --keys cut out of heads, crossed, in every form; rows of
 * NaN; and places in which no picture can be written. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mha/lab.h"
#include "support/page_data.h"
#include "support/program.h"
#include "support/scratch.h"
#include "support/unit.h"

#define RAGGED                                                                                                         \
    "show", "--d-model", "12", "--heads", "3", "--cu-seqlens", "0,4,9,11", "--seq", "11", "--causal", "--quiet"

static const char *const endings[] = {".html", ".svg", ".png"};

static size_t number(const json_t *object, const char *key)
{
    return (size_t)json_integer_value(json_object_get(object, key));
}

/* Runs show with more options and a picture; the text of a drawing from the first map on, to be freed. */
static char *draw(const char *const *options, const char *path, const char *from)
{
    const char *args[40] = {RAGGED};
    size_t n = 11, count;
    while (*options)
        args[n++] = *options++;
    args[n++] = "--picture";
    args[n] = path;
    program_result r = program_run(args);
    if (r.code != 0)
        fail_msg("exit code %d: %s", r.code, r.err);
    program_free(&r);
    unsigned char *file = scratch_read(path, &count);
    size_t at = 0;
    while (at + strlen(from) < count && memcmp(file + at, from, strlen(from)) != 0)
        at++;
    char *text = calloc(count - at + 1, 1);
    assert_non_null(text);
    for (size_t i = at; i < count; i++) /* of a PNG, the zeros are no end */
        text[i - at] = (char)(file[i] ? file[i] : 1);
    free(file);
    return text;
}

/* The page of a cut has just the cut's cells of the page of all; the numbers of options, below 0 where not given. */
static void check_cut(const page_data *all, const char *path, int batch, int head, const size_t rows[2],
                      const size_t keys[2])
{
    static const size_t lengths[] = {4, 5, 2};
    page_data page = page_data_read(path);
    json_t *heads = json_object_get(json_array_get(json_object_get(page.json, "layers"), 0), "heads");
    size_t found = 0;
    for (size_t b = 0; b < 3; b++)
        for (size_t n = 0; n < 3; n++) {
            if ((batch >= 0 && b != (size_t)batch) || (head >= 0 && n != (size_t)head))
                continue;
            json_t *one = json_array_get(heads, found++), *whole = page_data_head(all, 0, 3 * b + n);
            const size_t T = lengths[b], past_row = rows ? rows[1] : T, past_key = keys ? keys[1] : T,
                         row = rows ? rows[0] : 0, key = keys ? keys[0] : 0;
            assert_int_equal(number(one, "sequence"), b);
            assert_int_equal(number(one, "head"), n);
            assert_int_equal(number(one, "firstQuery"), row);
            assert_int_equal(number(one, "queries"), past_row - row);
            assert_int_equal(number(one, "firstKey"), key);
            assert_int_equal(number(one, "keys"), past_key - key);
            for (size_t i = row; i < past_row; i++)
                for (size_t j = key; j < past_key; j++)
                    assert_true(page_data_number(&page, one, "weights", (i - row) * (past_key - key) + j - key) ==
                                page_data_number(all, whole, "weights", i * T + j));
        }
    assert_int_equal(json_array_size(heads), found);
    page_data_free(&page);
}

static void every_cut_is_of_the_whole(void **state)
{
    (void)state;
    static const char *const batches[] = {NULL, "0", "1", "2"};
    const char *path = scratch("cut.html");
    free(draw((const char *const[]){NULL}, path, "data"));
    page_data all = page_data_read(path);
    for (size_t b = 0; b < 4; b++)
        for (size_t cut = 0; cut < 12; cut++) { /* head, then rows or query, then keys */
            const bool one = cut % 2, keys = cut / 2 % 2;
            const char *options[9] = {NULL};
            size_t n = 0;
            if (batches[b])
                options[n++] = "--batch", options[n++] = batches[b];
            if (one)
                options[n++] = "--head", options[n++] = "2";
            if (keys)
                options[n++] = "--keys", options[n++] = "1:2";
            if (cut >= 4)
                options[n++] = cut >= 8 ? "--query" : "--rows", options[n++] = cut >= 8 ? "1" : "0:2";
            free(draw(options, path, "data"));
            static const size_t part[][2] = {{0, 2}, {1, 2}};
            check_cut(&all, path, (int)b - 1, one ? 2 : -1, cut >= 4 ? part[cut / 8] : NULL, keys ? part[1] : NULL);
        }
    page_data_free(&all);
}

/* One query is the row of its number, in every drawing; labels are the names of the tokens that are left. */
static void one_query_is_one_row(void **state)
{
    (void)state;
    const char *names = scratch_write("names.json", "[\"t0\",\"t1\",\"t2\",\"t3\",\"t4\"]", 26);
    for (size_t head = 0; head < 2; head++)
        for (size_t e = 1; e < 3; e++) {
            char file[20], *drawn[3];
            snprintf(file, sizeof file, "row%s", endings[e]);
            const char *path = scratch(file), *from = e == 1 ? "<g transform" : "IDAT";
            const char *const options[][11] = {
                {"--query", "1", "--keys", "0:2", "--tokens", names, head ? "--head" : NULL, "2"},
                {"--rows", "1:2", "--keys", "0:2", "--tokens", names, head ? "--head" : NULL, "2"},
                {"--rows", "0:1", "--keys", "0:2", "--tokens", names, head ? "--head" : NULL, "2"}};
            for (size_t i = 0; i < 3; i++)
                drawn[i] = draw(options[i], path, from);
            assert_string_equal(drawn[0], drawn[1]);
            assert_string_not_equal(drawn[0], drawn[2]);
            if (e == 1) {
                assert_non_null(strstr(drawn[0], ">t1</text>"));
                assert_null(strstr(drawn[0], ">t2</text>"));
            }
            for (size_t i = 0; i < 3; i++)
                free(drawn[i]);
        }
    assert_program_refuses(RUN(RAGGED, "--query", "2", "--picture", scratch("a.svg")), 2,
                           "--query: expected a query below 2, found 2 (sequence 2; --batch shows one alone)");
    assert_program_refuses(RUN(RAGGED, "--keys", "3:5", "--picture", scratch("a.png")), 2,
                           "--keys: expected an end of at most 4, found 5 (sequence 0; --batch shows one alone)");
    assert_program_refuses(RUN(RAGGED, "--keys", "3:5", "--batch", "0"), 2, "expected an end of at most 4, found 5\n");
    assert_true(access(scratch("a.svg"), F_OK) != 0 && access(scratch("a.png"), F_OK) != 0);
}

/* A query whose weights are NaN has a look of its own, which the drawing explains, and counts as broken. */
static void rows_of_nan_are_shown_as_such(void **state)
{
    (void)state;
    static float x[6 * 12];
    mha_error error;
    const char *input = scratch("nan.npy"), *page = scratch("nan.html"), *svg = scratch("nan.svg");
    const mha_view view = mha_rows(x, 1, 6, 12);
    mha_random_fill(&view, 5, 1, -1, 1);
    x[3 * 12] = NAN; /* queries from 3 on see key 3 */
    mha_writer *writer;
    assert_ok(mha_writer_create(input, &writer, &error), error);
    assert_ok(mha_writer_add(writer, "x", &view, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    static const char *const queries[] = {"2", "4"};
    for (size_t i = 0; i < 2; i++) {
        program_result r = RUN("show", "--d-model", "12", "--heads", "3", "--causal", "--input", input, "--query",
                               queries[i], "--head", "1", "--quiet", "--picture", page);
        assert_int_equal(r.code, 0);
        program_free(&r);
        page_data data = page_data_read(page);
        json_t *head = page_data_head(&data, 0, 0);
        assert_int_equal(number(json_object_get(head, "statistics"), "broken"), i);
        for (size_t j = 0; j < 5; j++)
            assert_true(isnan(page_data_number(&data, head, "weights", j)) == (i == 1));
        page_data_free(&data);
        r = RUN("show", "--d-model", "12", "--heads", "3", "--causal", "--input", input, "--query", queries[i],
                "--quiet", "--picture", svg);
        assert_int_equal(r.code, 0);
        program_free(&r);
        size_t count;
        char *text = (char *)scratch_read(svg, &count);
        text[count - 1] = '\0';
        assert_true((strstr(text, ">NaN or infinite</text>") != NULL) == (i == 1));
        assert_non_null(strstr(text, ">hidden key</text>"));
        free(text);
    }
}

/* A device and a disk that are full, a folder of the name, a folder that is none: one line, and nothing is left. */
static void where_nothing_can_be_written_nothing_is(void **state)
{
    (void)state;
    for (size_t e = 0; e < 3; e++) {
        char name[3][40];
        static const char *const kinds[] = {"full", "folder", "small"};
        for (size_t i = 0; i < 3; i++)
            snprintf(name[i], sizeof name[i], "%s%s", kinds[i], endings[e]);
        assert_int_equal(symlink("/dev/full", scratch(name[0])), 0);
        assert_int_equal(mkdir(scratch(name[1]), 0777), 0);
        const size_t files = scratch_count_files();
        assert_program_refuses(RUN(RAGGED, "--picture", scratch(name[0])), 3, "cannot write it: No space left");
        assert_program_refuses(RUN(RAGGED, "--picture", scratch(name[1])), 2, "found a directory");
        char path[600];
        snprintf(path, sizeof path, "%s/none/a%s", scratch(name[1]), endings[e]);
        assert_program_refuses(RUN(RAGGED, "--picture", path), 3, "cannot write into its directory");
        if (strcmp(endings[e], ".html") == 0) {
            /* A disk that is full after fewer bytes than a page has; a build that counts lines needs files itself. */
            struct rlimit before, limit;
            assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
            limit = before;
            limit.rlim_cur = 65536;
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
            program_result r = RUN(RAGGED, "--picture", scratch(name[2]));
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
            assert_program_refuses(r, 3, "cannot write it: File too large");
        }
        assert_int_equal(scratch_count_files(), files);
        assert_int_equal(rmdir(scratch(name[1])), 0); /* empty as before */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_is_of_the_whole), cmocka_unit_test(one_query_is_one_row),
        cmocka_unit_test(rows_of_nan_are_shown_as_such), cmocka_unit_test(where_nothing_can_be_written_nothing_is)};
    return cmocka_run_group_tests_name("cli_parts", tests, NULL, scratch_remove);
}
