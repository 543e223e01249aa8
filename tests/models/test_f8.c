/* Layers of F8 checkpoints: matrices stay 8 bits beside their scales, and give the bits of floats of their values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/file.h"
#include "mha/lab.h"
#include "support/failing.h"
#include "support/isa.h"
#include "support/scratch.h"
#include "support/unit.h"

enum { WIDTH = 160, HEADS = 5, D_K = 32, MATRICES = 4 };
static const char *const names[MATRICES] = {"q", "k", "v", "o"};

/* A matrix (out, WIDTH) of random codes, and its scales: one for all, or one for each `rows` by `columns`. */
typedef struct plan {
    mha_dtype codes, scales;
    int rank; /* of the scales */
    size_t rows, columns;
    const char *ending;
    float special; /* the second scale, unless it is 0 */
    int code;      /* the first code, unless it is 0 */
} plan;

static unsigned char code_at(const plan *p, size_t stream, size_t i)
{
    const unsigned char code = (unsigned char)mha__random_bits(3, stream, i);
    const unsigned special = p->codes == MHA_F8_E5M2 ? 0x7c : 0x7f;
    if (i == 0 && p->code)
        return (unsigned char)p->code;
    return (code & special) == special ? code ^ 0x40 : code;
}

static void add(mha_writer *writer, const char *stem, const char *ending, mha_view view)
{
    char name[120];
    mha_error error;
    snprintf(name, sizeof name, "model.layers.0.self_attn.%s_proj.%s", stem, ending);
    assert_ok(mha_writer_add(writer, name, &view, &error), error);
}

/* A layer of LLaMA's names; matrix w is as plans[w % count] says. */
static mha_file *file_of(const plan *plans, size_t count, size_t width, bool zero_points)
{
    const char *path = scratch_path("f8.safetensors");
    mha_writer *writer;
    mha_error error;
    void *held[3 * MATRICES];
    size_t n = 0;
    assert_ok(mha_writer_create(path, &writer, &error), error);
    for (size_t w = 0; w < MATRICES; w++) {
        const plan *p = &plans[w % count];
        const size_t shape[2] = {width, width};
        unsigned char *codes = held[n++] = malloc(width * width);
        for (size_t i = 0; i < width * width; i++)
            codes[i] = code_at(p, w, i);
        add(writer, names[w], "weight", mha_view_of(codes, p->codes, 2, shape));
        if (!p->ending)
            continue;
        const size_t grid[2] = {p->rows ? (width + p->rows - 1) / p->rows : 1,
                                p->columns ? (width + p->columns - 1) / p->columns : 1};
        const mha_view scales = mha_view_of(held[n] = calloc(grid[0] * grid[1], 4), p->scales, p->rank, grid);
        const size_t all = grid[0] * grid[1];
        const mha_view line = mha_view_of(held[n++], p->scales, 1, &all);
        for (size_t i = 0; i < all; i++) {
            const double scale = (i % 3 ? 0.3 : -0.2) * (1 + mha__random_unit(7, w, i)) / 448;
            if (p->scales == MHA_U8)
                ((unsigned char *)scales.data)[i] = (unsigned char)(114 + i % 5);
            else
                mha_view_set(&line, &i, i == 1 && p->special != 0 ? p->special : scale);
        }
        add(writer, names[w], p->ending, scales);
        if (zero_points) {
            signed char *zeros = held[n++] = malloc(all);
            memset(zeros, 1, all);
            add(writer, names[w], "weight_zero_point", mha_view_of(zeros, MHA_I8, p->rank, grid));
        }
    }
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    while (n > 0)
        free(held[--n]);
    mha_file *file;
    assert_ok(mha_file_open(path, &file, &error), error);
    return file;
}

static mha_layer *loaded(const mha_file *file, bool keep)
{
    mha_layer *layer;
    mha_error error;
    const mha_load_options options = {.d_k = D_K, .keep_quantised = keep};
    assert_ok(mha_model_load_layer(file, &options, NULL, &layer, NULL, &error), error);
    return layer;
}

static void run(const mha_layer *layer, mha_path path, size_t T, float *y)
{
    static float x[40 * WIDTH];
    const mha_config *c = mha_layer_config(layer);
    mha_error error;
    mha_call call = {.query = mha_rows(x, 1, T, c->d_q), .output = mha_rows(y, 1, T, c->d_out),
                     .semantics = {.visible.causal = true}, .path = path, .threads = 1 + (int)T % 2};
    mha_random_fill(&call.query, 3, 1, -1.0f, 1.0f);
    assert_ok(mha_run(layer, &call, &error), error);
}

/* Values and outputs, a NaN equal to any other. */
static void expect_same(const float *a, const float *b, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s %s: element %zu is %.9g, of floats %.9g", mha_isa(), what, i, (double)b[i], (double)a[i]);
}

static void values_of(const mha_layer *layer, mha_weight w, float *values)
{
    const mha_view W = mha_tensor_view(mha_layer_weight(layer, w));
    const mha_view to = mha_view_of(values, MHA_F32, 2, W.shape);
    assert_int_equal(mha_view_copy(&to, &W, NULL), MHA_OK);
}

/* Every matrix is of the type expected[w]; everything else is as of a layer that is loaded in floats. */
static void check(const plan *plans, size_t count, size_t width, bool zero_points, const mha_dtype expected[MATRICES])
{
    static float one[WIDTH * WIDTH], other[WIDTH * WIDTH];
    static const mha_weight weights[MATRICES] = {MHA_W_Q, MHA_W_K, MHA_W_V, MHA_W_O};
    mha_file *file = file_of(plans, count, width, zero_points);
    mha_layer *floats = loaded(file, false), *kept = loaded(file, true);
    mha_error error;
    for (int w = 0; w < MATRICES; w++) {
        const mha_tensor_info info = mha_tensor_info_of(mha_layer_weight(kept, weights[w]));
        assert_string_equal(mha_dtype_name(info.dtype), mha_dtype_name(expected[w]));
        assert_int_equal(info.source_dtype, plans[(size_t)w % count].codes);
        assert_int_equal(info.bytes, width * width * (expected[w] == MHA_F32 ? 128 : 36) / 32);
        values_of(floats, weights[w], one);
        values_of(kept, weights[w], other);
        expect_same(one, other, width * width, names[w]);
    }
    for (int packed = 0; packed < 2; packed++) {
        for (int path = MHA_PATH_FAST; path <= (packed ? MHA_PATH_FAST : MHA_PATH_EXACT); path++)
            for (size_t T = 1; T < 40; T += 19) {
                run(floats, (mha_path)path, T, one);
                run(kept, (mha_path)path, T, other);
                expect_same(one, other, T * width, mha_path_name((mha_path)path));
            }
        assert_ok(mha_layer_pack(floats, &error), error);
        assert_ok(mha_layer_pack(kept, &error), error);
    }
    mha_layer_destroy(floats);
    mha_layer_destroy(kept);
    mha_file_close(file);
}

#define S MHA_F8_E4M3_SCALED
static const mha_dtype all_kept[MATRICES] = {S, S, S, S}, none_kept[MATRICES] = {0};

/* One scale for all, for each row, for each 128 x 128, for each 32 inputs; a block that is cut at either end; scales
 * that are infinite, NaN, 0, as large as can be; codes that are NaN. */
static void f8_stays_and_gives_the_bits_of_floats(void **state)
{
    (void)state;
    static const plan mixed[] = {{MHA_F8_E4M3, MHA_F32, 0, 0, 0, "weight_scale", 0, 0},
                                 {MHA_F8_E4M3, MHA_BF16, 2, 1, 0, "weight_scale", 0, 0x7f},
                                 {MHA_F8_E4M3, MHA_F32, 2, 128, 128, "weight_scale_inv", 0, 0},
                                 {MHA_F8_E5M2, MHA_F32, 1, 1, 0, "weight_scale_inv", 3e38f, 0xfd}};
    static const plan others[] = {{MHA_F8_E4M3, MHA_U8, 2, 1, 32, "weight_scale", 0, 0xff},
                                  {MHA_F8_E5M2, MHA_F32, 0, 0, 0, "weight_scale", 0, 0x7c},
                                  {MHA_F8_E4M3, MHA_F32, 2, 0, 32, "weight_scale", 0, 0},
                                  {MHA_F8_E4M3, MHA_F16, 2, 32, 64, "weight_scale", 0, 0}};
    static const float special[] = {INFINITY, -0x1.fffffep119f, NAN, 0x1p-149f, -0.0f};
    FOR_EACH_ISA {
        check(mixed, 4, WIDTH, false, (const mha_dtype[MATRICES]){S, S, S, MHA_F8_E5M2_SCALED});
        check(others, 4, WIDTH, false, (const mha_dtype[MATRICES]){S, MHA_F8_E5M2_SCALED, S, S});
    }
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        const plan one = {MHA_F8_E4M3, MHA_F32, 1, 1, 0, "weight_scale", special[i], 0};
        check(&one, 1, WIDTH, false, all_kept);
    }
}

/* Rows of another number than 32 k, scales for fewer than 32 inputs, scales that no block has, zero points, and F8 of
 * other makers are read as floats. */
static void what_no_block_holds_becomes_floats(void **state)
{
    (void)state;
    static const plan plans[] = {{MHA_F8_E4M3, MHA_F32, 0, 0, 0, "weight_scale", 0, 0},
                                 {MHA_F8_E4M3, MHA_F32, 2, 1, 16, "weight_scale", 0, 0},
                                 {MHA_F8_E4M3, MHA_F32, 1, 1, 0, "weight_scale", -0x1p120f, 0},
                                 {MHA_F8_E4M3FNUZ, MHA_F32, 1, 1, 0, "weight_scale", 0, 0x80}};
    check(&plans[0], 1, 128, false, all_kept);
    check(&plans[0], 1, WIDTH, true, none_kept);
    for (size_t i = 1; i < sizeof plans / sizeof *plans; i++)
        check(&plans[i], 1, WIDTH, false, none_kept);
    mha_file *file = file_of(&plans[0], 1, 48, false);
    mha_layer *layer;
    mha_error error;
    const mha_load_options options = {.n_heads = 3, .keep_quantised = true};
    assert_ok(mha_model_load_layer(file, &options, NULL, &layer, NULL, &error), error);
    assert_int_equal(mha_layer_config(layer)->dtype, MHA_F32);
    mha_layer_destroy(layer);
    const mha_load_options named = {.n_heads = 3, .has_dtype = true, .dtype = S};
    assert_refused(mha_model_load_layer(file, &named, NULL, &layer, NULL, &error), MHA_INVALID, error, "W_Q", "32",
                   "F8_E4M3_SCALED", "48");
    mha_file_close(file);
    file = file_of(&plans[1], 1, WIDTH, false);
    const mha_load_options asked = {.d_k = D_K, .has_dtype = true, .dtype = S};
    assert_refused(mha_model_load_layer(file, &asked, NULL, &layer, NULL, &error), MHA_UNSUPPORTED, error, "q_proj",
                   "F8_E4M3_SCALED", "Q8_0");
    mha_file_close(file);
}

/* Some rows, and some columns in whole blocks, are read as blocks; other parts need floats, and so does F8 without
 * scales. */
static void parts_are_read_as_blocks(void **state)
{
    (void)state;
    static const plan plans[] = {{MHA_F8_E4M3, MHA_F32, 2, 32, 32, "weight_scale_inv", 0, 0},
                                 {MHA_F8_E4M3, 0, 0, 0, 0, NULL, 0, 0}};
    static unsigned char blocks[WIDTH * WIDTH / 32 * 36];
    static float expected[WIDTH * WIDTH], found[WIDTH * WIDTH];
    mha_error error;
    mha_file *file = file_of(plans, 2, WIDTH, false);
    for (int axis = 0; axis < 2; axis++) {
        const mha_file_tensor *scaled = mha_file_find(file, "model.layers.0.self_attn.q_proj.weight"),
                              *alone = mha_file_find(file, "model.layers.0.self_attn.k_proj.weight");
        const size_t shape[2] = {axis ? WIDTH : 64, axis ? 64 : WIDTH};
        assert_int_equal(scaled->bytes, WIDTH * WIDTH + WIDTH / 32 * (WIDTH / 32) * 4);
        mha_view view = mha_view_of(blocks, S, 2, shape);
        const mha_view floats = mha_view_of(expected, MHA_F32, 2, shape), copy = mha_view_of(found, MHA_F32, 2, shape);
        assert_ok(mha_file_read_part(file, scaled, axis, 32, 64, &view, &error), error);
        assert_ok(mha_file_read_part(file, scaled, axis, 32, 64, &floats, &error), error);
        assert_int_equal(mha_view_copy(&copy, &view, NULL), MHA_OK);
        expect_same(expected, found, 64 * WIDTH, "part");
        assert_refused(mha_file_read_part(file, alone, axis, 32, 64, &view, &error), MHA_UNSUPPORTED, error, "k_proj",
                       "F8_E4M3_SCALED");
        if (axis == 1)
            assert_refused(mha_file_read_part(file, scaled, axis, 16, 64, &view, &error), MHA_UNSUPPORTED, error,
                           "q_proj", "F8_E4M3_SCALED");
        view.dtype = MHA_F8_E5M2_SCALED;
        assert_refused(mha_file_read_part(file, scaled, axis, 32, 64, &view, &error), MHA_UNSUPPORTED, error, "q_proj",
                       "F8_E5M2_SCALED");
    }
    mha_file_close(file);
}

/* Each allocation that fails while a file is read gives that error, and nothing stays allocated. */
static void missing_memory_is_reported(void **state)
{
    (void)state;
    static const plan each = {MHA_F8_E4M3, MHA_BF16, 2, 1, 0, "weight_scale", 0, 0};
    failing memory = {0};
    const mha_allocator allocator = failing_allocator(&memory);
    const mha_load_options options = {.d_k = D_K, .keep_quantised = true};
    mha_error error;
    mha_file *file;
    mha_file_close(file_of(&each, 1, WIDTH, false));
    assert_ok(mha__file_open_using(&allocator, scratch_path("f8.safetensors"), &file, &error), error);
    mha_status status = MHA_NO_MEMORY;
    size_t failures = 0;
    const size_t before = memory.live_bytes;
    while (status == MHA_NO_MEMORY) {
        mha_layer *layer = NULL;
        memory.calls = 0;
        memory.fail_at = ++failures;
        status = mha_model_load_layer(file, &options, NULL, &layer, NULL, &error);
        if (status == MHA_OK)
            mha_layer_destroy(layer);
        assert_int_equal(memory.live_bytes, before);
    }
    assert_int_equal(status, MHA_OK);
    assert_true(failures > 4 * 3 * 2); /* four matrices: scales twice when the type is chosen, and again when read */
    memory.fail_at = 0;
    mha_file_close(file);
    assert_true(memory.live_blocks == 0 && memory.bugs == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(f8_stays_and_gives_the_bits_of_floats, isa_teardown),
        cmocka_unit_test(what_no_block_holds_becomes_floats),
        cmocka_unit_test(parts_are_read_as_blocks),
        cmocka_unit_test(missing_memory_is_reported),
    };
    return cmocka_run_group_tests_name("f8", tests, NULL, NULL);
}
