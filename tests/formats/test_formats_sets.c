/* Models in several files, directories of models, and formats that are refused by their name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mha/file.h"
#include "support/opening.h"
#include "support/scratch.h"
#include "support/unit.h"

/* A safetensors file of tensors U8 (2,), named by letters, element k of the tensor being letter + k. */
static const char *write_shard(const char *name, const char *letters)
{
    bytes header = {0}, b = {0};
    bytes_text(&header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; letters[i]; i++) {
        char entry[100];
        snprintf(entry, sizeof entry, ",\"%c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[%zu,%zu]}", letters[i],
                 2 * i, 2 * i + 2);
        bytes_text(&header, entry);
    }
    bytes_text(&header, "}");
    bytes_number(&b, header.count, 8);
    bytes_add(&b, header.data, header.count);
    for (size_t i = 0; letters[i]; i++)
        bytes_number(&b, (uint64_t)letters[i], 1), bytes_number(&b, (uint64_t)letters[i] + 1, 1);
    bytes_free(&header);
    return scratch_take(name, &b);
}

static const char *write_text(const char *name, const char *text)
{
    return scratch_write(name, text, strlen(text));
}

static void a_set_opens_as_one_file(void **state)
{
    (void)state;
    mkdir(scratch_path("set"), 0700);
    mkdir(scratch_path("set/sub"), 0700);
    write_shard("set/one.safetensors", "ba");
    write_shard("set/sub/two.safetensors", "c");
    const char *path = write_text(
        "set/model.safetensors.index.json",
        " {\"metadata\": {\"total_size\": 6, \"x\": [1], \"real\": 0.5, \"by\": \"hand\"}, \"other\": [],\n"
        "\"weight_map\": {\"a\": \"one.safetensors\", \"c\": \"sub/two.safetensors\", \"b\": \"one.safetensors\"}}\n");
    const char *const paths[] = {path, scratch_path("set"), scratch_path("set/")};
    for (size_t p = 0; p < 3; p++) {
        mha_error error;
        mha_file *file;
        assert_ok(mha_file_open(paths[p], &file, &error), error);
        assert_string_equal(mha_file_path(file), paths[p]);
        assert_string_equal(mha_file_format(file), "safetensors");
        assert_int_equal(mha_file_count(file), 3);
        assert_string_equal(mha_file_at(file, 0)->name, "b");
        assert_string_equal(mha_file_at(file, 2)->name, "c");
        for (const char *letter = "abc"; *letter; letter++) {
            float values[2];
            mha_view to = mha_view_of(values, MHA_F32, 1, (size_t[]){2});
            assert_ok(mha_file_read(file, mha_file_find(file, (char[]){*letter, 0}), &to, &error), error);
            assert_true(values[0] == *letter && values[1] == *letter + 1);
        }
        assert_int_equal(mha_file_metadata_count(file), 3);
        assert_string_equal(mha_file_metadata(file, "total_size"), "6");
        assert_string_equal(mha_file_metadata(file, "real"), "0.5");
        assert_string_equal(mha_file_metadata(file, "by"), "hand");
        mha_file_close(file);
    }
    /* One file beside the index wins: it is the whole model. */
    write_shard("set/model.safetensors", "z");
    mha_file *file;
    mha_error error;
    assert_ok(mha_file_open(scratch_path("set"), &file, &error), error);
    assert_int_equal(mha_file_count(file), 1);
    mha_file_close(file);
    unlink(scratch_path("set/model.safetensors"));
}

static void a_set_that_does_not_fit_its_index_is_refused(void **state)
{
    (void)state;
    mkdir(scratch_path("set"), 0700);
    write_shard("set/one.safetensors", "ba");
    write_shard("set/two.safetensors", "c");
    write_shard("set/again.safetensors", "a");
    write_shard("outside.safetensors", "c");
    write_text("set/broken.safetensors", "1234567{not a file of tensors");
    write_text("set/other.json", "{\"weight_map\":{}}");
#define ONE "\"a\":\"one.safetensors\",\"b\":\"one.safetensors\""
    static const struct {
        const char *index;
        mha_status status;
        const char *says, *says_too;
    } bad[] = {
        {"{\"weight_map\":{" ONE ",\"c\":\"one.safetensors\"}}", MHA_FORMAT, "c: expected it in one.safetensors",
         "missing"},
        {"{\"weight_map\":{\"a\":\"one.safetensors\"}}", MHA_FORMAT, "b: ", "this one missing"},
        {"{\"weight_map\":{" ONE ",\"c\":\"one.safetensors\",\"d\":\"two.safetensors\"}}", MHA_FORMAT,
         "c: expected it in one.safetensors", "found it in two.safetensors"},
        {"{\"weight_map\":{" ONE ",\"a\":\"one.safetensors\"}}", MHA_FORMAT, "a: ", "twice"},
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"one.safetensors\",\"c\":\"again.safetensors\"}}",
         MHA_FORMAT, "a: expected it in one.safetensors", "found it in again.safetensors"},
        {"{\"weight_map\":{\"c\":\"../outside.safetensors\"}}", MHA_FORMAT, "c: ", "'../outside.safetensors'"},
        {"{\"weight_map\":{\"c\":\"sub/../../outside.safetensors\"}}", MHA_FORMAT, "c: ", "next to the index"},
        {"{\"weight_map\":{\"c\":\"/etc/passwd\"}}", MHA_FORMAT, "c: ", "'/etc/passwd'"},
        {"{\"weight_map\":{\"c\":\"\"}}", MHA_FORMAT, "c: ", "next to the index"},
        {"{\"weight_map\":{\"c\":7}}", MHA_FORMAT, "c: ", "name of a file"},
        {"{\"weight_map\":{\"c\":\"none.safetensors\"}}", MHA_NOT_FOUND, "set/none.safetensors: ", "No such file"},
        {"{\"weight_map\":{\"c\":\".\"}}", MHA_INVALID, "a directory", NULL},
        {"{\"weight_map\":{\"c\":\"index.json\"}}", MHA_FORMAT, "index.json: ", "cannot name itself"},
        {"{\"weight_map\":{\"c\":\"other.json\"}}", MHA_FORMAT, "other.json: ", "another index"},
        {"{\"weight_map\":{\"c\":\"broken.safetensors\"}}", MHA_FORMAT, "set/broken.safetensors: ", NULL},
        {"{\"weight_map\":[]}", MHA_FORMAT, "expected a JSON object", NULL},
        {"{\"weight_map\":{},\"weight_map\":{}}", MHA_FORMAT, "weight_map: ", "twice"},
        {"{\"metadata\":{},\"metadata\":{},\"weight_map\":{}}", MHA_FORMAT, "metadata: ", "twice"},
        {"{\"metadata\":{\"a\":1,\"a\":2},\"weight_map\":{}}", MHA_FORMAT, "a: ", "twice"},
        {"{\"metadata\":7,\"weight_map\":{}}", MHA_FORMAT, "expected a JSON object", NULL},
        {"{\"weight_map\":{}", MHA_FORMAT, "',' or '}'", "the end"},
        {"{\"weight_map\":{}} {", MHA_FORMAT, "nothing more", NULL},
        {"{\"hidden_size\":768,\"a\":[]}", MHA_UNSUPPORTED, "weight_map", NULL},
        {"{}", MHA_UNSUPPORTED, "weight_map", NULL},
        {"{\"a", MHA_FORMAT, "premature end", NULL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mha_error error;
        assert_refused(try_open(write_text("set/index.json", bad[i].index), &error), bad[i].status, error, bad[i].says,
                       "set/index.json: ");
        if (bad[i].says_too && !strstr(error.message, bad[i].says_too))
            fail_msg("expected \"%s\" in \"%s\"", bad[i].says_too, error.message);
    }
    mha_error error;
    mha_file *file;
    const char *large = write_text("set/index.json", "{\"weight_map\":{}}"); /* without a byte of it on disk */
    assert_int_equal(truncate(large, 100000001), 0);
    assert_refused(try_open(large, &error), MHA_FORMAT, error, "an index of at most 100000000 bytes",
                   "found 100000001");
    assert_ok(mha_file_open(write_text("set/index.json", "{\"weight_map\":{}}"), &file, &error), error);
    assert_int_equal(mha_file_count(file), 0);
    mha_file_close(file);
}

static void too_many_files_are_refused(void **state)
{
    (void)state;
    bytes b = {0};
    bytes_text(&b, "{\"weight_map\":{");
    for (int i = 0; i < 1100; i++) {
        char entry[64];
        snprintf(entry, sizeof entry, "%s\"t%d\":\"%d.safetensors\"", i ? "," : "", i, i);
        bytes_text(&b, entry);
    }
    bytes_text(&b, "}}");
    mha_error error;
    assert_refused(try_open(scratch_take("many.json", &b), &error), MHA_FORMAT, error, "at most 1024 files");
}

static void every_failing_allocation_is_survived(void **state)
{
    (void)state;
    mkdir(scratch_path("set"), 0700);
    write_shard("set/one.safetensors", "ba");
    write_shard("set/two.safetensors", "c");
    write_text("set/model.safetensors.index.json",
               "{\"metadata\":{\"total_size\":6},\"weight_map\":{" ONE ",\"c\":\"two.safetensors\"}}");
    assert_true(open_with_failing_memory(scratch_path("set"), NULL) > 8);
}

/* ---------------------------------------------------------------- foreign formats */

static void foreign_formats_are_refused_by_name(void **state)
{
    (void)state;
#define START(text)                                                                                                    \
    {                                                                                                                  \
        text, sizeof text - 1                                                                                          \
    }
    static const struct {
        struct {
            const char *data;
            size_t count;
        } start;
        const char *says;
    } foreign[] = {
        {START("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19.\x80\x02M\xe9\x03."), "PyTorch"},
        {START("\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c"), "pickle"},
        {START("\x89HDF\r\n\x1a\n\0\0\0\0"), "HDF5"},
        {START("24ka\1\0\0\0@\0\0\0"), "llama2.c"},
        {START("lmgg\1\0\0\0\0\0\0\0"), "ggml"},
        {START("tjgg\3\0\0\0\0\0\0\0"), "ggml"},
        {START("\x1c\0\0\0TFL3\x14\0 \0"), "TensorFlow Lite"},
        {START("model_checkpoint_path: \"model.ckpt-100\"\n"), "TensorFlow checkpoint"},
        {START("some table of keys and values \x57\xfb\x80\x8b\x24\x75\x47\xdb"), "TensorFlow checkpoint"},
        {START("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), "git lfs pull"},
        {START("<!DOCTYPE html>\n<html><head>"), "web page"},
        {START("\x1f\x8b\x08\0\0\0\0\0\0\0"), "gzip"},
        {START("\x28\xb5\x2f\xfd\0\0\0\0\0\0"), "zstd"},
        {START("\xfd"
               "7zXZ\0\0\0\0\0"),
         "xz"},
        {START("BZh91AY&SY\0\0"), "bzip2"},
    };
    mha_error error;
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        assert_refused(try_open(scratch_write("foreign", foreign[i].start.data, foreign[i].start.count), &error),
                       MHA_UNSUPPORTED, error, foreign[i].says, "foreign: expected safetensors, npy, npz or GGUF");
    bytes tar = {0};
    bytes_text(&tar, "some/file"), bytes_zeros(&tar, 248), bytes_text(&tar, "ustar"), bytes_zeros(&tar, 250);
    assert_refused(try_open(scratch_take("foreign", &tar), &error), MHA_UNSUPPORTED, error, "tar");

    assert_refused(try_open(scratch_write("foreign", "\x08\x07\x12\x07 only some text", 20), &error), MHA_FORMAT, error,
                   "none of them", "safetensors.numpy.save_file");
    mkdir(scratch_path("torch"), 0700);
    scratch_write("torch/pytorch_model.bin", foreign[0].start.data, foreign[0].start.count);
    assert_refused(try_open(scratch_path("torch"), &error), MHA_UNSUPPORTED, error, "PyTorch",
                   "torch/pytorch_model.bin: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_opens_as_one_file),
        cmocka_unit_test(a_set_that_does_not_fit_its_index_is_refused),
        cmocka_unit_test(too_many_files_are_refused),
        cmocka_unit_test(every_failing_allocation_is_survived),
        cmocka_unit_test(foreign_formats_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
