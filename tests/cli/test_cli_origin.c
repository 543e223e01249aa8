/* Where a picture comes from: its command and the SHA-256 of its inputs, in every form of it. The digests are the
 * examples of FIPS 180-2, and what coreutils' sha256sum says. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mha/mha.h"
#include "support/page_data.h"
#include "support/program.h"
#include "support/scratch.h"
#include "support/unit.h"

#define TINY "show", "--seq", "1", "--d-model", "4", "--heads", "1", "--quiet"

static const char abc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
static const char million[] = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

static void run(program_result r)
{
    if (r.code != 0)
        fail_msg("%s", r.err);
    program_free(&r);
}

static char *path_of(const char *name)
{
    return strdup(scratch_path(name));
}

/* Whether a file has these bytes somewhere. */
static bool holds(const char *path, const char *text)
{
    size_t count;
    unsigned char *data = scratch_read(path, &count);
    const bool found = memmem(data, count, text, strlen(text));
    free(data);
    return found;
}

/* Four zeros under each name. */
static void write_tensors(const char *path, const char *const *names)
{
    float numbers[4] = {0};
    mha_writer *writer;
    mha_error error;
    const mha_view view = mha_view_of(numbers, MHA_F32, 2, (size_t[]){1, 4});
    assert_ok(mha_writer_create(path, &writer, &error), error);
    for (size_t i = 0; names[i]; i++)
        assert_ok(mha_writer_add(writer, names[i], &view, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
}

#define WRITE_TENSORS(path, ...) write_tensors(path, (const char *const[]){__VA_ARGS__, NULL})

static void every_form_has_the_digest_of_a_file(void **state)
{
    (void)state;
    char *tokens = path_of("abc"), *svg = path_of("a.svg"), *png = path_of("a.png"), *html = path_of("a.html");
    scratch_write("abc", "abc", 3);
    run(RUN(TINY, "--tokens", tokens, "--picture", svg));
    run(RUN(TINY, "--tokens", tokens, "--picture", png));
    run(RUN(TINY, "--tokens", tokens, "--picture", html));
    char line[1200];
    snprintf(line, sizeof line, "SHA-256 %s: %s\n</metadata>", abc, tokens);
    assert_true(holds(svg, line));
    snprintf(line, sizeof line, "SHA-256 %s: %s", abc, tokens);
    assert_true(holds(png, line));
    page_data page = page_data_read(html);
    const json_t *inputs = json_object_get(page.json, "inputs"), *one = json_array_get(inputs, 0);
    assert_int_equal(json_array_size(inputs), 1);
    assert_string_equal(json_string_value(json_array_get(one, 0)), tokens);
    assert_string_equal(json_string_value(json_array_get(one, 1)), abc);
    page_data_free(&page);
    char *quotes = path_of("a'b; exit 1; 'c"); /* the command, typed again, names the same file */
    scratch_write("a'b; exit 1; 'c", "abc", 3);
    run(RUN(TINY, "--tokens", quotes, "--picture", png));
    assert_true(holds(png, "/a'\\''b; exit 1; '\\''c'"));
    free(quotes);
    run(RUN(TINY, "--picture", svg)); /* random inputs come from no file */
    assert_false(holds(svg, "SHA-256"));
    assert_true(holds(svg, "<metadata>\nWritten by: mha show "));
    free(tokens), free(svg), free(png), free(html);
}

static void a_long_file_is_read_in_pieces(void **state)
{
    (void)state;
    enum { N = 1000000 };
    char *letters = malloc(N), *svg = path_of("a.svg");
    memset(letters, 'a', N);
    run(RUN(TINY, "--tokens", scratch_write("million", letters, N), "--picture", svg));
    assert_true(holds(svg, million));
    free(letters);
    free(svg);
}

/* Standard input, which is the one stream that commands read: the command ends, and says why it has no digest. */
static void a_stream_is_not_read_twice(void **state)
{
    (void)state;
    static const char reason[] = ": no SHA-256, a stream, which is not read twice\n";
    char *svg = path_of("a.svg"), *input = path_of("input.npy"), line[200];
    WRITE_TENSORS(input, "input");
    run(program_run_with(NULL, input,
                         (const char *const[]){"show", "--d-model", "4", "--heads", "1", "--quiet", "--input", "-",
                                               "--picture", svg, NULL}));
    snprintf(line, sizeof line, "Input -%s", reason);
    assert_true(holds(svg, line));
    free(svg), free(input);
}

/* A directory stands for the index in it, and the index for its files: each is listed, in a page of parameters. */
static void the_files_of_a_set_are_listed(void **state)
{
    (void)state;
    static const char index[] =
        "{\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\",\"c\":\"m-2.safetensors\"}}";
    static const char *const names[] = {"model.safetensors.index.json", "m-1.safetensors", "m-2.safetensors"};
    char *folder = path_of("set"), *html = path_of("a.html"), path[3][1000], command[3200], line[3200];
    assert_int_equal(mkdir(folder, 0700), 0);
    for (size_t i = 0; i < 3; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", folder, names[i]);
    WRITE_TENSORS(path[1], "a");
    WRITE_TENSORS(path[2], "b", "c");
    scratch_write("set/model.safetensors.index.json", index, sizeof index - 1);
    run(RUN("params", "--weights", folder, "--quiet", "--picture", html));
    assert_true(holds(html, "<!DOCTYPE html>"));
    for (size_t i = 0; i < 3; i++) {
        char digest[65] = "";
        snprintf(command, sizeof command, "sha256sum '%s'", path[i]);
        FILE *sum = popen(command, "r");
        assert_int_equal(fscanf(sum, "%64s", digest), 1);
        pclose(sum);
        snprintf(line, sizeof line, "\nSHA-256 %s: %s\n", digest, path[i]);
        assert_true(holds(html, line));
    }
    size_t count, lines = 0;
    char *text = (char *)scratch_read(html, &count);
    text[count - 1] = '\0';
    for (const char *at = text; (at = strstr(at, "\nSHA-256 ")); at++)
        lines++;
    assert_int_equal(lines, 3);
    free(text), free(folder), free(html);
}

/* Files with holes: 5 GiB, of which nothing is read. */
static void more_than_four_gibibytes_are_not_read(void **state)
{
    (void)state;
    static const char head[] =
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[5368709120],\"data_offsets\":[0,5368709120]}}      ";
    const uint64_t length = sizeof head - 1;
    unsigned char start[8 + sizeof head];
    for (size_t i = 0; i < 8; i++)
        start[i] = (unsigned char)(length >> 8 * i);
    memcpy(start + 8, head, sizeof head);
    char *big = path_of("big.safetensors"), *svg = path_of("a.svg");
    scratch_write("big.safetensors", start, 8 + length);
    assert_int_equal(truncate(big, (off_t)(8 + length + 5368709120u)), 0);
    run(RUN("params", "--weights", big, "--quiet", "--picture", svg));
    assert_true(holds(svg, ": no SHA-256, the inputs have more than 4 GiB\n"));
    free(big), free(svg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_has_the_digest_of_a_file),
        cmocka_unit_test(a_long_file_is_read_in_pieces),
        cmocka_unit_test(a_stream_is_not_read_twice),
        cmocka_unit_test(the_files_of_a_set_are_listed),
        cmocka_unit_test(more_than_four_gibibytes_are_not_read),
    };
    return cmocka_run_group_tests_name("cli_origin", tests, NULL, NULL);
}
