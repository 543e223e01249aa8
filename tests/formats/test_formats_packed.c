/* Weights that several tensors of a file hold: their values, what is listed and counted, and sets that do not fit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mha/model.h"
#include "support/opening.h"
#include "support/quantised.h"
#include "support/scratch.h"
#include "support/unit.h"

/* A tensor of a file to be made: element i is `first` + i, or for floats 1 + i / 8. */
typedef struct planned {
    const char *name;
    mha_dtype dtype;
    int rank;
    size_t shape[4];
    long first;
} planned;

static const char *write_planned(const char *name, const planned *list, size_t count, const char *const metadata[2])
{
    mha_error error;
    mha_writer *writer = NULL;
    void *data[16];
    const char *path = scratch_path(name);
    assert_ok(mha_writer_create(path, &writer, &error), error);
    for (size_t t = 0; t < count && list[t].name; t++) {
        const planned *p = &list[t];
        mha_view view = mha_view_of(NULL, p->dtype, p->rank, p->shape);
        const size_t n = mha_view_elements(&view);
        view.data = data[t] = calloc(n + 1, 8);
        for (size_t i = 0; i < n; i++) {
            const int32_t whole = (int32_t)(p->first + (long)i);
            const size_t at[1] = {i};
            const mha_view line = mha_view_of(view.data, p->dtype, 1, &n);
            if (p->dtype == MHA_I32)
                memcpy((char *)view.data + 4 * i, &whole, 4);
            else if (p->dtype == MHA_U8 || p->dtype == MHA_I8)
                ((unsigned char *)view.data)[i] = (unsigned char)whole;
            else
                mha_view_set(&line, at, 1 + (double)p->first + (double)i / 8);
        }
        assert_ok(mha_writer_add(writer, p->name, &view, &error), error);
    }
    if (metadata)
        assert_ok(mha_writer_add_metadata(writer, metadata[0], metadata[1], &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    for (size_t t = 0; t < count && list[t].name; t++)
        free(data[t]);
    return path;
}

static mha_file *open_planned(const char *name, const planned *list, size_t count)
{
    mha_error error;
    mha_file *file = NULL;
    assert_ok(mha_file_open(write_planned(name, list, count, NULL), &file, &error), error);
    return file;
}

static void packed_weights_have_the_recorded_values(void **state)
{
    (void)state;
    check_recorded_values("tests/formats/quantised/packed.safetensors", 36);
    check_recorded_values("tests/formats/quantised/compressed.safetensors", 12);
}

static const planned gptq[] = {
    {"bias", MHA_F32, 1, {32}, 0},          {"a.qweight", MHA_I32, 2, {8, 32}, 0x01234567},
    {"a.qzeros", MHA_I32, 2, {2, 4}, 0x11}, {"a.scales", MHA_F16, 2, {2, 32}, 0},
    {"a.g_idx", MHA_I32, 1, {64}, -62}, /* as -62 is no group, reading refuses it */
};
enum { GPTQ_PARTS = sizeof gptq / sizeof *gptq };

static void the_weight_is_listed_and_its_parts_are_not(void **state)
{
    (void)state;
    mha_error error;
    mha_file *file = open_planned("listed.safetensors", gptq, GPTQ_PARTS);
    assert_int_equal(mha_file_count(file), 2);
    const mha_file_tensor *bias = mha_file_find(file, "bias"), *weight = mha_file_find(file, "a.weight");
    assert_true(bias && weight && mha_file_at(file, weight->index) == weight);
    assert_null(bias->packing);
    assert_string_equal(weight->packing, "GPTQ");
    assert_string_equal(mha_dtype_name(weight->dtype), "U4");
    assert_int_equal(weight->reads_as, MHA_F32);
    assert_int_equal(weight->rank, 2);
    assert_int_equal(weight->shape[0], 32);
    assert_int_equal(weight->shape[1], 64);
    assert_int_equal(weight->elements, 2048);
    assert_int_equal(weight->bytes, 4 * 8 * 32 + 4 * 2 * 4 + 2 * 2 * 32 + 4 * 64);

    const mha_file_tensor *codes = mha_file_find(file, "a.qweight");
    int32_t raw[256];
    const mha_view view = mha_view_of(raw, MHA_I32, 2, (size_t[]){8, 32});
    assert_true(codes && codes->dtype == MHA_I32 && codes->elements == 256);
    assert_ok(mha_file_read(file, codes, &view, &error), error);
    assert_true(raw[0] == 0x01234567 && raw[255] == 0x01234567 + 255);
    assert_null(mha_file_find(file, "b.qweight"));

    mha_params *table = NULL;
    mha_file_totals totals;
    assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
    assert_ok(mha_file_list_params(file, table, NULL, NULL, &totals, &error), error);
    assert_int_equal(totals.tensors, 2);
    assert_int_equal(totals.parameters, 32 + 2048);
    assert_int_equal(totals.bytes, 4 * 32 + weight->bytes);
    assert_int_equal(totals.bytes_here, 4 * 32 + 4 * 2048);
    assert_int_equal(mha_params_totals(table, NULL).parameters, 32 + 2048);
    mha_params_destroy(table);
    mha_file_close(file);
}

static void groups_that_there_are_not_are_refused(void **state)
{
    (void)state;
    mha_error error;
    static float values[2048];
    const mha_view view = mha_view_of(values, MHA_F32, 2, (size_t[]){32, 64});
    mha_file *file = open_planned("groups.safetensors", gptq, GPTQ_PARTS);
    assert_refused(mha_file_read(file, mha_file_find(file, "a.weight"), &view, &error), MHA_FORMAT, error, "a.g_idx",
                   "groups from 0 to 1");
    mha_file_close(file);
    planned many[GPTQ_PARTS]; /* 64 groups: numbers 0 to 63, and then one beyond the last */
    memcpy(many, gptq, sizeof many);
    many[2].shape[0] = many[3].shape[0] = 64;
    for (long first = 0; first < 2; first++) {
        many[4].first = first;
        file = open_planned("groups.safetensors", many, GPTQ_PARTS);
        const mha_status status = mha_file_read(file, mha_file_find(file, "a.weight"), &view, &error);
        assert_int_equal(status, first ? MHA_FORMAT : MHA_OK);
        mha_file_close(file);
    }
}

/* Scale (code - zero point - 1), but scale (code - zero point) for the format that does not subtract 1. */
static void the_second_format_of_gptq_keeps_its_zero_points(void **state)
{
    (void)state;
    float first[2048], second[2048];
    for (int format = 0; format < 2; format++) {
        mha_error error;
        mha_file *file = NULL;
        const char *const v2[2] = {"checkpoint_format", "gptq_v2"};
        const char *path = write_planned("format.safetensors", gptq, GPTQ_PARTS - 1, format ? v2 : NULL);
        assert_ok(mha_file_open(path, &file, &error), error);
        float *values = read_values(file, mha_file_find(file, "a.weight"));
        memcpy(format ? second : first, values, sizeof first);
        free(values);
        mha_file_close(file);
    }
    assert_true(first[0] == 1.0f * (7 - (1 + 1))); /* code 7 and zero point 1 are the lowest four bits */
    for (size_t i = 0; i < 2048; i++) {
        const float scale = 1 + (float)(i % 64 / 32 * 32 + i / 64) / 8;
        assert_true(second[i] - first[i] == scale);
    }
}

/* The same where a file beside the weights says it, which may say many things; metadata go before it. */
static void files_beside_it_say_the_format_of_gptq(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *metadata;
        bool second;
    } cases[] = {
        {"config.json", "{\"quantization_config\": {\"checkpoint_format\": \"gptq_v2\"}}", NULL, true},
        {"config.json", "{\"quantization_config\": {\"checkpoint_format\": \"gptq\"}}", NULL, false},
        {"config.json", "{\"quantization_config\": {\"checkpoint_format\": \"gptq_v2\"}}", "gptq", false},
        {"quantize_config.json", "{\"bits\": 4, \"checkpoint_format\": \"gptq_v2\"}", NULL, true},
        {"config.json", "{\"quantization_config\": 3, \"checkpoint_format\": 4}", NULL, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mha_error error;
        mha_file *file = NULL;
        const char *const said[2] = {"checkpoint_format", cases[i].metadata};
        const char *path = write_planned("beside.safetensors", gptq, GPTQ_PARTS - 1, cases[i].metadata ? said : NULL);
        const char *beside = scratch_write(cases[i].name, cases[i].text, strlen(cases[i].text));
        assert_ok(mha_file_open(path, &file, &error), error);
        float *values = read_values(file, mha_file_find(file, "a.weight"));
        assert_true(values[0] == 7 - (1.0f + !cases[i].second)); /* see above */
        free(values);
        mha_file_close(file);
        remove(beside);
    }
    mha_error error;
    mha_file *file = NULL;
    const char *path = write_planned("beside.safetensors", gptq, GPTQ_PARTS - 1, NULL);
    static const char *const broken[][2] = {
        {"{\"checkpoint_format\": \"gptq_v2\"", "cut off"}, {"[]", "another value"}, {"", "found nothing"}};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        const char *beside = scratch_write(i ? "config.json" : "quantize_config.json", broken[i][0],
                                           strlen(broken[i][0]));
        assert_refused(mha_file_open(path, &file, &error), MHA_FORMAT, error, "config.json", broken[i][1]);
        remove(beside);
    }
    assert_int_equal(mkdir(scratch_path("config.json"), 0777), 0);
    assert_refused(mha_file_open(path, &file, &error), MHA_INVALID, error, "config.json", "directory");
    rmdir(scratch_path("config.json"));
    static const char *const unknown[2] = {"checkpoint_format", "gptq_v3"}; /* its zero points are not known */
    path = write_planned("beside.safetensors", gptq, GPTQ_PARTS - 1, unknown);
    assert_refused(mha_file_open(path, &file, &error), MHA_UNSUPPORTED, error, "a.qweight",
                   "expected checkpoint_format gptq or gptq_v2, found 'gptq_v3'");
}

/* GPTQ stores zero points minus 1, its second format does not. Where `sym` is true, the zero point is the middle of the
 * codes: stored ones that say otherwise are refused. */
static void symmetric_gptq_has_the_middle_as_zero_point(void **state)
{
    (void)state;
    static const char *const formats[] = {"", "\"checkpoint_format\": \"gptq\", ",
                                          "\"checkpoint_format\": \"gptq_v2\", "};
    static const char *const symmetric[] = {"\"sym\": null", "\"sym\": false", "\"sym\": true"};
    for (int i = 0; i < 18; i++) {
        const int format = i / 6, sym = i / 2 % 3, stored = 7 + i % 2;
        const planned list[] = {{"a.qweight", MHA_I32, 2, {2, 8}, 0x01234567},
                                {"a.scales", MHA_F32, 2, {1, 8}, 0},
                                {"a.qzeros", MHA_I32, 2, {1, 1}, stored * 0x11111111L}};
        char text[200];
        mha_error error;
        mha_file *file = NULL;
        float values[128];
        const mha_view view = mha_view_of(values, MHA_F32, 2, (size_t[]){8, 16});
        const int length = snprintf(text, sizeof text, "{\"quantization_config\": {%s%s}}", formats[format],
                                    symmetric[sym]);
        const char *path = write_planned("symmetric.safetensors", list, 3, NULL);
        const char *beside = scratch_write("config.json", text, (size_t)length);
        assert_ok(mha_file_open(path, &file, &error), error);
        const int zero = stored + (format < 2);
        const mha_status status = mha_file_read(file, mha_file_find(file, "a.weight"), &view, &error);
        if (sym == 2 && zero != 8)
            assert_refused(status, MHA_FORMAT, error, "a.qzeros", "as sym is true");
        else
            assert_true(status == MHA_OK && values[0] == (float)(7 - zero)); /* code 7, scale 1 */
        mha_file_close(file);
        remove(beside);
    }
}

/* Codes of 4 bits with zero points, those of 8 bits without, whose words are not full; shapes that do not fit. */
static void words_of_compressed_tensors_have_their_values(void **state)
{
    (void)state;
    static const planned list[] = {
        {"a.weight_packed", MHA_I32, 2, {7, 1}, 0x76543210}, {"a.weight_scale", MHA_F32, 2, {7, 2}, 0},
        {"a.weight_shape", MHA_I32, 1, {2}, 7},              {"a.weight_zero_point", MHA_I32, 2, {1, 2}, 0x654321},
        {"b.weight_packed", MHA_I32, 2, {5, 2}, 0x03020100}, {"b.weight_scale", MHA_F32, 2, {5, 1}, 0},
        {"b.weight_shape", MHA_I32, 1, {2}, 5},
        {"c.weight_packed", MHA_I32, 2, {3, 1}, 0}, {"c.weight_scale", MHA_F32, 2, {3, 1}, 0},
        {"c.weight_shape", MHA_I32, 1, {2}, 3}, /* of 4 inputs: 4 or 8 bits */
        {"d.weight_packed", MHA_I32, 2, {7, 1}, 0}, {"d.weight_scale", MHA_F32, 2, {7, 2}, 0},
        {"d.weight_shape", MHA_I32, 1, {2}, 7}, {"d.weight_zero_point", MHA_I32, 2, {2, 2}, 0},
    };
    mha_file *file = open_planned("compressed.safetensors", list, sizeof list / sizeof *list);
    assert_int_equal(mha_file_count(file), 2 + 3 + 4);
    const mha_file_tensor *a = mha_file_find(file, "a.weight"), *b = mha_file_find(file, "b.weight");
    assert_true(a && b);
    assert_string_equal(a->packing, "compressed-tensors");
    assert_true(a->dtype == MHA_U4 && b->dtype == MHA_U8);
    float *four = read_values(file, a), *eight = read_values(file, b);
    for (int i = 0; i < 56; i++) {
        const int row = i / 8, column = i % 8, group = column / 4, code = column ? column : row;
        const int zero = row == 0 ? 1 + group : row == 6 ? 0 : row + 1;
        assert_true(four[i] == (1 + (float)(2 * row + group) / 8) * (float)(code - zero));
    }
    for (int i = 0; i < 30; i++) {
        const int row = i / 6, code = i % 6 == 0 ? 2 * row : i % 6 == 4 ? 2 * row + 1 : i % 6 % 4;
        assert_true(eight[i] == (1 + (float)row / 8) * (float)(code - 128));
    }
    free(four);
    free(eight);
    mha_file_close(file);
}

/* Tensors that do not fit together are listed as they are. Each row changes one part of a set that fits. */
static void what_does_not_fit_is_listed_as_it_is(void **state)
{
    (void)state;
#define WORDS(rows) {"x.qweight", MHA_I32, 2, {rows, 32}, 9}
#define ZEROS(groups, columns) {"x.qzeros", MHA_I32, 2, {groups, columns}, 9}
#define SCALES {"x.scales", MHA_F16, 2, {2, 32}, 0}
    static const struct {
        planned parts[4];
        size_t listed;
    } sets[] = {
        /* of F8: one scale, for rows, for blocks whose last are cut, for each of two experts, of powers of two */
        {{{"x", MHA_F8_E4M3, 2, {9, 6}, 0}, {"x_scale", MHA_F32, 0, {0}, 0}}, 1},
        {{{"x", MHA_F8_E4M3, 2, {9, 6}, 0}, {"x_scale", MHA_BF16, 1, {9}, 0}}, 1},
        {{{"x", MHA_F8_E4M3, 2, {200, 300}, 0}, {"x_scale_inv", MHA_F32, 2, {2, 3}, 0}}, 1},
        {{{"x", MHA_F8_E4M3, 3, {2, 9, 6}, 0}, {"x_scale", MHA_F32, 1, {2}, 0}}, 1},
        {{{"x", MHA_F8_E5M2, 2, {9, 64}, 0}, {"x_scale", MHA_U8, 2, {9, 2}, 100}}, 1},
        {{{"x.weight", MHA_I8, 2, {9, 6}, 0}, {"x.weight_scale", MHA_F32, 1, {9}, 0},
          {"x.weight_zero_point", MHA_I8, 1, {9}, 0}}, 1},
        {{{"x", MHA_F8_E4M3, 2, {9, 6}, 0}, {"x_scale", MHA_F32, 1, {6}, 0}}, 2},
        {{{"x", MHA_F8_E4M3, 2, {9, 6}, 0}, {"x_scale", MHA_F32, 2, {4, 6}, 0}}, 2},
        {{{"x", MHA_F8_E4M3, 2, {9, 6}, 0}, {"x_scale", MHA_I32, 1, {9}, 0}}, 2},
        {{{"x", MHA_F8_E4M3, 1, {9}, 0}, {"x_scale", MHA_F32, 2, {9, 2}, 0}}, 2},
        {{{"x", MHA_F8_E4M3, 3, {2, 9, 6}, 0}, {"x_scale", MHA_F32, 3, {3, 9, 6}, 0}}, 2},
        {{{"x", MHA_F8_E4M3, 2, {0, 6}, 0}, {"x_scale", MHA_F32, 0, {0}, 0}}, 2},
        {{{"x", MHA_I8, 2, {9, 6}, 0}, {"x_scale", MHA_U8, 1, {9}, 0}}, 2},
        {{{"x.weight", MHA_I8, 2, {9, 6}, 0}, {"x.weight_scale", MHA_F32, 1, {9}, 0},
          {"x.weight_zero_point", MHA_I8, 1, {8}, 0}}, 3},
        {{{"x", MHA_F32, 2, {9, 6}, 0}, {"x_scale", MHA_F32, 1, {9}, 0}}, 2},
        /* of bytes with a scale for each row */
        {{{"x.weight", MHA_I8, 2, {9, 6}, 0}, {"x.SCB", MHA_F32, 1, {9}, 0}}, 1},
        {{{"x.weight", MHA_I8, 2, {9, 6}, 0}, {"x.SCB", MHA_F32, 1, {6}, 0}}, 2},
        {{{"x.weight", MHA_U8, 2, {9, 6}, 0}, {"x.SCB", MHA_F32, 1, {9}, 0}}, 2},
        /* of blocks of FP4 */
        {{{"x_blocks", MHA_U8, 4, {2, 3, 2, 16}, 0}, {"x_scales", MHA_U8, 3, {2, 3, 2}, 100}}, 1},
        {{{"x_blocks", MHA_U8, 4, {2, 3, 2, 15}, 0}, {"x_scales", MHA_U8, 3, {2, 3, 2}, 100}}, 2},
        {{{"x_blocks", MHA_U8, 4, {2, 3, 2, 16}, 0}, {"x_scales", MHA_U8, 3, {2, 2, 3}, 100}}, 2},
        /* of words: AWQ, GPTQ of 2, 3 and 8 bits, then one thing wrong */
        {{{"x.qweight", MHA_I32, 2, {64, 4}, 9}, ZEROS(2, 4), SCALES}, 1},
        {{WORDS(4), ZEROS(2, 2), SCALES}, 1},
        {{WORDS(6), ZEROS(2, 3), SCALES}, 1},
        {{WORDS(16), ZEROS(2, 8), SCALES}, 1},
        {{WORDS(8), ZEROS(2, 5), SCALES}, 3},
        {{WORDS(8), ZEROS(1, 4), SCALES}, 3},
        {{WORDS(8), ZEROS(2, 4), {"x.scales", MHA_F16, 2, {2, 31}, 0}}, 3},
        {{{"x.qweight", MHA_I32, 2, {8, 36}, 9}, ZEROS(2, 4), {"x.scales", MHA_F16, 2, {2, 36}, 0}}, 3},
        {{WORDS(8), ZEROS(2, 4), {"x.scales", MHA_I32, 2, {2, 32}, 0}}, 3},
        {{WORDS(8), {"x.qzeros", MHA_I32, 1, {4}, 9}, {"x.scales", MHA_F16, 1, {32}, 0}}, 3},
        {{WORDS(8), SCALES}, 2},
        {{WORDS(8), ZEROS(2, 4), SCALES,
          {"x.weight", MHA_F32, 2, {2, 2}, 0}}, 4},
        {{WORDS(8), ZEROS(2, 4), SCALES,
          {"x.g_idx", MHA_I32, 1, {63}, 0}}, 4},
        /* of compressed-tensors: 5 outputs, 6 inputs of 8 bits, with zero points; then one thing wrong */
#define FIVE(first) {"x.weight_packed", MHA_I32, 2, {5, 2}, 0}, {"x.weight_shape", MHA_I32, 1, {2}, first}
#define FIVE_SCALES(rows) {"x.weight_scale", MHA_F32, 2, {rows, 1}, 0}
        {{FIVE(5), FIVE_SCALES(5), {"x.weight_zero_point", MHA_I32, 2, {2, 1}, 0}}, 1},
        {{{"x.weight_packed", MHA_I32, 2, {7, 1}, 0}, {"x.weight_shape", MHA_I32, 1, {2}, 7},
          {"x.weight_scale", MHA_F32, 2, {7, 1}, 0}}, 1},
        {{FIVE(5), FIVE_SCALES(5), {"x.weight_g_idx", MHA_I32, 1, {5}, 0}}, 4},
        {{FIVE(5), FIVE_SCALES(4)}, 3},
        {{FIVE(4), FIVE_SCALES(5)}, 3},
        {{FIVE(-3), FIVE_SCALES(5)}, 3},
        {{FIVE(5), {"x.weight_scale", MHA_I32, 2, {5, 1}, 0}}, 3},
        {{{"x.weight_packed", MHA_I32, 2, {5, 2}, 0}, {"x.weight_shape", MHA_I32, 1, {3}, 5}, FIVE_SCALES(5)}, 3},
        {{{"x.weight_packed", MHA_I32, 2, {5, 2}, 0}, {"x.weight_shape", MHA_F32, 1, {2}, 5}, FIVE_SCALES(5)}, 3},
        /* of NVFP4 under both names, then one thing wrong */
#define NV(columns, blocks, all)                                                                                       \
    {"x.weight_packed", MHA_U8, 2, {3, columns}, 0}, {"x.weight_scale", MHA_F8_E4M3, 2, {3, blocks}, 0},               \
        {"x.weight_global_scale", MHA_F32, 1, {all}, 0}
        {{NV(8, 1, 1)}, 1},
        {{{"x.weight", MHA_U8, 2, {3, 8}, 0}, {"x.weight_scale", MHA_F8_E4M3, 2, {3, 1}, 0},
          {"x.weight_scale_2", MHA_F32, 0, {0}, 0}}, 1},
        {{{"x.weight", MHA_U8, 2, {3, 8}, 0}, {"x.weight_scale", MHA_F8_E4M3, 2, {3, 1}, 0}}, 2}, /* no scale of all */
        {{NV(8, 2, 1)}, 3},
        {{NV(9, 1, 1)}, 3},
        {{NV(8, 1, 2)}, 3},
        /* zero points that are a packed tensor themselves belong to no other one */
        {{{"x.weight_zero_point", MHA_I8, 1, {9}, 0}, {"x.weight_zero_point_scale", MHA_F32, 0, {0}, 0},
          {"x.weight", MHA_I8, 2, {9, 6}, 0}, {"x.weight_scale", MHA_F32, 1, {9}, 0}}, 3},
    };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        mha_file *file = open_planned("set.safetensors", sets[i].parts, 4);
        if (mha_file_count(file) != sets[i].listed)
            fail_msg("set %zu: %zu tensors, expected %zu", i, mha_file_count(file), sets[i].listed);
        for (size_t t = 0; t < mha_file_count(file); t++)
            free(read_values(file, mha_file_at(file, t))); /* whatever is listed can be read */
        mha_file_close(file);
    }
}

/* One layer with two schemes: q of F8 with a scale for each row, k and v of NVFP4. ModelOpt multiplies by the scale of
 * the whole matrix, and compressed-tensors divides by it: 4 is 16 times as much under one name as under the other. */
static void schemes_mix_in_a_layer(void **state)
{
    (void)state;
    static const planned list[] = {
        {"q.weight", MHA_I8, 2, {3, 16}, 1},           {"q.weight_scale", MHA_F32, 2, {3, 1}, 0},
        {"k.weight", MHA_U8, 2, {3, 8}, 0x22},         {"k.weight_scale", MHA_F8_E4M3, 2, {3, 1}, 0},
        {"k.weight_scale_2", MHA_F32, 0, {0}, 3},      {"v.weight_packed", MHA_U8, 2, {3, 8}, 0x22},
        {"v.weight_scale", MHA_F8_E4M3, 2, {3, 1}, 0}, {"v.weight_global_scale", MHA_F32, 1, {1}, 3},
    };
    mha_file *file = open_planned("mixed.safetensors", list, sizeof list / sizeof *list);
    assert_int_equal(mha_file_count(file), 3);
    static const char *const names[] = {"q.weight", "k.weight", "v.weight"};
    float *values[3];
    for (int i = 0; i < 3; i++)
        values[i] = read_values(file, mha_file_find(file, names[i]));
    for (int i = 0; i < 48; i++)
        assert_true(values[0][i] == (float)(1 + i) * (1 + (float)(i / 16) / 8)); /* a scale for each row */
    assert_true(values[1][0] == 4 && values[2][0] == 0.25F);                     /* code 2 is 1, its scale 1 */
    for (int i = 0; i < 3; i++)
        free(values[i]);
    mha_file_close(file);
}

/* Blocks of 128 with the last ones cut, zero points, and a scale for each of two experts. */
static void each_number_gets_the_scale_of_its_block(void **state)
{
    (void)state;
    static const planned list[] = {
        {"x", MHA_I8, 2, {200, 300}, 0},          {"x_scale", MHA_F32, 2, {2, 3}, 0},
        {"e", MHA_I8, 3, {2, 3, 4}, -12},         {"e_scale", MHA_F32, 3, {2, 1, 1}, 0},
        {"z.weight", MHA_I8, 2, {3, 4}, -6},      {"z.weight_scale", MHA_F32, 2, {3, 1}, 0},
        {"z.weight_zero_point", MHA_I8, 1, {3}, 2}, {"z.input_scale", MHA_F32, 0, {0}, 0},
    };
    mha_file *file = open_planned("blocks.safetensors", list, sizeof list / sizeof *list);
    assert_int_equal(mha_file_count(file), 3);
    float *x = read_values(file, mha_file_find(file, "x")), *e = read_values(file, mha_file_find(file, "e")),
          *z = read_values(file, mha_file_find(file, "z.weight"));
    for (size_t i = 0; i < 60000; i++)
        assert_true(x[i] == (float)(signed char)i * (1 + (float)(i / 300 / 128 * 3 + i % 300 / 128) / 8));
    for (int i = 0; i < 24; i++)
        assert_true(e[i] == (float)(i - 12) * (1 + (float)(i / 12) / 8));
    for (int i = 0; i < 12; i++)
        assert_true(z[i] == (float)(i - 6 - (2 + i / 4)) * (1 + (float)(i / 4) / 8));
    free(x);
    free(e);
    free(z);
    mha_file_close(file);
}

/* bitsandbytes says block and shape in JSON; what it says must fit the tensors. */
static void a_state_must_fit_its_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        bool fits;
    } cases[] = {
        {"{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": [16, 8]}", true},
        {"{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": [128]}", true},
        {"{\"quant_type\": \"nf4\", \"blocksize\": 32, \"shape\": [16, 8]}", false},
        {"{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": [16, 9]}", false},
        {"{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": [16, 0]}", false},
        {"{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": [2, 4, 16]}", false},
        {"{\"quant_type\": \"nf4\", \"blocksize\": 64, \"shape\": []}", false},
        {"{\"quant_type\": \"nf4\", \"blocksize\": 0, \"shape\": [16, 8]}", false},
        {"{\"quant_type\": 4, \"blocksize\": 64, \"shape\": [16, 8]}", false},
        {"{\"quant_type\": \"nf4\"", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mha_error error;
        mha_writer *writer = NULL;
        mha_file *file = NULL;
        float table[16] = {0}, scales[2] = {1, 2};
        unsigned char codes[64] = {0};
        const char *path = scratch_path("state.safetensors");
        const size_t length = strlen(cases[i].json);
        const mha_view views[] = {mha_view_of(codes, MHA_U8, 2, (size_t[]){64, 1}),
                                  mha_view_of(scales, MHA_F32, 1, (size_t[]){2}),
                                  mha_view_of(table, MHA_F32, 1, (size_t[]){16}),
                                  mha_view_of((void *)(uintptr_t)cases[i].json, MHA_U8, 1, &length)};
        static const char *const names[] = {"x.weight", "x.weight.absmax", "x.weight.quant_map",
                                            "x.weight.quant_state.bitsandbytes__nf4"};
        assert_ok(mha_writer_create(path, &writer, &error), error);
        for (size_t t = 0; t < 4; t++)
            assert_ok(mha_writer_add(writer, names[t], &views[t], &error), error);
        assert_ok(mha_writer_commit(writer, &error), error);
        mha_writer_destroy(writer);
        assert_ok(mha_file_open(path, &file, &error), error);
        if ((mha_file_count(file) == 1) != cases[i].fits)
            fail_msg("%s: %zu tensors", cases[i].json, mha_file_count(file));
        mha_file_close(file);
    }
}

static void missing_memory_is_told_wherever_it_is_missing(void **state)
{
    (void)state;
    const char *path = write_planned("memory.safetensors", gptq, GPTQ_PARTS - 1, NULL);
    assert_true(open_with_failing_memory(path, "a.weight") > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_weights_have_the_recorded_values),
        cmocka_unit_test(the_weight_is_listed_and_its_parts_are_not),
        cmocka_unit_test(groups_that_there_are_not_are_refused),
        cmocka_unit_test(the_second_format_of_gptq_keeps_its_zero_points),
        cmocka_unit_test(files_beside_it_say_the_format_of_gptq),
        cmocka_unit_test(symmetric_gptq_has_the_middle_as_zero_point),
        cmocka_unit_test(words_of_compressed_tensors_have_their_values),
        cmocka_unit_test(what_does_not_fit_is_listed_as_it_is),
        cmocka_unit_test(schemes_mix_in_a_layer),
        cmocka_unit_test(each_number_gets_the_scale_of_its_block),
        cmocka_unit_test(a_state_must_fit_its_tensors),
        cmocka_unit_test(missing_memory_is_told_wherever_it_is_missing),
    };
    return cmocka_run_group_tests_name("packed formats", tests, NULL, NULL);
}
