/* Layers whose matrices are quantised: the bits of a layer of the same floats on every path, what they take, how
 * they are made, and how they come out of a file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/isa.h"
#include "support/layer.h"
#include "support/unit.h"

static const mha_dtype types[] = {MHA_Q8_0, MHA_Q4_0}; /* to which floats are rounded */
static const mha_dtype kinds[] = {MHA_Q4_K,  MHA_Q5_K, MHA_Q6_K, MHA_MXFP4, MHA_Q4_1,  MHA_Q5_0,
                                   MHA_Q5_1,  MHA_Q2_K, MHA_Q3_K, MHA_IQ4_NL, MHA_IQ4_XS, MHA_F8_E4M3_SCALED,
                                   MHA_F8_E5M2_SCALED};

/* The same layer of another type, with the values of `of`. */
static mha_layer *copied(const mha_layer *of, mha_dtype dtype)
{
    mha_config config = *mha_layer_config(of);
    mha_error error;
    config.dtype = dtype;
    mha_layer *layer = made_layer(config, 99);
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_tensor *t = mha_layer_weight(of, (mha_weight)w);
        const mha_view view = t ? mha_tensor_view(t) : (mha_view){0};
        if (t)
            assert_ok(mha_layer_set(layer, (mha_weight)w, &view, &error), error);
    }
    return layer;
}

/* Runs (B, T) rows, of which there is a last one alone, and returns the output. */
static void run(const mha_layer *layer, mha_path path, int threads, size_t B, size_t T, double *y)
{
    const mha_config *c = mha_layer_config(layer);
    const mha_dtype type = path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32;
    float *x = malloc(B * T * c->d_q * sizeof *x);
    mha_error error;
    mha_call call = {.query = mha_rows(x, B, T, c->d_q),
                     .output = mha_view_of(y, type, 3, (size_t[]){B, T, c->d_out}),
                     .semantics = {.visible.causal = true},
                     .path = path,
                     .threads = threads};
    mha_random_fill(&call.query, 3, 1, -1.0f, 1.0f);
    assert_ok(mha_run(layer, &call, &error), error);
    free(x);
}

static void expect_equal(const mha_layer *a, const mha_layer *b, mha_path path, int threads, size_t B, size_t T)
{
    static double one[9000], other[9000];
    memset(one, 0, sizeof one), memset(other, 1, sizeof other);
    const size_t n = B * T * mha_layer_config(a)->d_out;
    assert_true(n <= 9000);
    run(a, path, 1, B, T, one);
    run(b, path, threads, B, T, other);
    if (memcmp(one, other, n * (path == MHA_PATH_EXACT ? sizeof(double) : sizeof(float))) != 0)
        fail_msg("%s on %s, %zu x %zu rows: not the bits of floats", mha_dtype_name(mha_layer_config(b)->dtype),
                 mha_path_name(path), B, T);
}

/* Widths with a rest after the last panel, keys and values of other widths, biases: with and without packed copies. */
static void every_path_has_the_bits_of_floats(void **state)
{
    (void)state;
    static const mha_config shapes[] = {
        {.d_model = 96, .n_heads = 3, .bias_q = true, .bias_o = true},
        {.d_model = 416, .n_heads = 4, .kv_heads = 2, .d_k = 23, .d_v = 24, .d_out = 37, .bias_k = true,
         .bias_v = true, .q_norm = MHA_NORM_EACH_HEAD},
        {.d_model = 64, .n_heads = 2, .kv_rank = 32, .q_rank = 64, .d_rope = 8, .bias_latent = true},
    };
    static const size_t rows[][2] = {{1, 1}, {1, 5}, {3, 1}, {2, 9}, {1, 40}};
    FOR_EACH_ISA
        for (size_t i = 0; i < 6; i++) {
            mha_config config = shapes[i / 2];
            const bool first = strcmp(mha_isa(), mha_isa_at(0)) == 0; /* the others share what is not packed */
            config.dtype = types[i % 2];
            mha_layer *blocks = made_layer(config, 5 + i), *floats = copied(blocks, MHA_F32);
            for (size_t r = 0; first && r < sizeof rows / sizeof *rows; r++)
                for (int path = MHA_PATH_FAST; path <= MHA_PATH_EXACT; path++)
                    expect_equal(floats, blocks, (mha_path)path, 1 + (int)(r + i) % 2, rows[r][0], rows[r][1]);
            mha_error error;
            assert_ok(mha_layer_pack(blocks, &error), error);
            assert_ok(mha_layer_pack(floats, &error), error);
            for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
                expect_equal(floats, blocks, MHA_PATH_FAST, 1 + (int)r % 3, rows[r][0], rows[r][1]);
            mha_layer_destroy(blocks);
            mha_layer_destroy(floats);
        }
}

/* Types that files have, and several of them in one layer; kept blocks are copied from layer to layer. */
static void layers_of_other_types_have_the_bits_of_floats(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        mha_config config = {.d_model = 256, .n_heads = 2, .kv_heads = 1, .d_out = 33, .bias_q = true};
        mha_error error;
        config.dtype = i % 2 ? MHA_F32 : kinds[i];
        if (i % 2)
            config.matrix_dtype[MHA_W_Q] = kinds[i], config.matrix_dtype[MHA_W_V] = kinds[i - 1],
            config.matrix_dtype[MHA_W_O] = MHA_Q8_0;
        mha_layer *blocks = made_layer(config, 5 + i), *again = made_layer(config, 77),
                  *floats = copied(blocks, MHA_F32);
        for (int w = MHA_W_Q; w <= MHA_W_O; w++) {
            const mha_tensor *t = mha_layer_weight(blocks, (mha_weight)w);
            if (!t)
                continue;
            const mha_view view = mha_tensor_view(t);
            assert_int_equal(view.dtype, view.rank == 1                      ? MHA_F32
                                         : config.matrix_dtype[w] != MHA_F32 ? config.matrix_dtype[w]
                                                                             : config.dtype);
            double least = 0, most = 0; /* random blocks are numbers of the size that weights have */
            size_t at[2] = {0};
            do {
                const double x = mha_view_get(&view, at);
                assert_true(fabs(x) < 0.3);
                least = fmin(least, x), most = fmax(most, x);
            } while (mha__index_next(at, view.shape, view.rank));
            assert_true(least < -0.01 && most > 0.01);
            assert_ok(mha_layer_set(again, (mha_weight)w, &view, &error), error);
            assert_memory_equal(mha_tensor_info_of(t).data,
                                mha_tensor_info_of(mha_layer_weight(again, (mha_weight)w)).data,
                                mha_tensor_info_of(t).bytes);
        }
        for (int packed = 0; packed < 2; packed++) {
            if (packed) {
                assert_ok(mha_layer_pack(blocks, &error), error);
                assert_ok(mha_layer_pack(floats, &error), error);
            }
            for (int path = MHA_PATH_FAST; path <= (packed ? MHA_PATH_FAST : MHA_PATH_EXACT); path++)
                expect_equal(floats, blocks, (mha_path)path, 1 + (int)i % 2, 1 + i % 2, i % 3 ? 5 : 20);
        }
        const mha_view head = mha_layer_head(blocks, MHA_W_Q, 1),
                       whole = mha_tensor_view(mha_layer_weight(blocks, MHA_W_Q));
        assert_true(mha_view_get(&head, (size_t[]){201, 5}) == mha_view_get(&whole, (size_t[]){201, 133}));
        static float x[256 * 256];
        const mha_view from = mha_view_of(x, MHA_F32, 2, (size_t[]){256, 256});
        assert_refused(mha_layer_set(blocks, MHA_W_Q, &from, &error), MHA_UNSUPPORTED, error, "W_Q",
                       mha_dtype_name(kinds[i]), "Q8_0", "F32");
        mha_layer_destroy(blocks);
        mha_layer_destroy(again);
        mha_layer_destroy(floats);
    }
}

/* Bytes of a block of 256 rows: those of the file, and what codes of 2 to 6 bits take more in the packed copy. */
static void bytes_are_those_of_the_file_and_of_the_copy(void **state)
{
    (void)state;
    static const size_t bytes[][2] = {{144, 148},       {176, 276},       {210, 274}, {8 * 17, 8 * 18},
                                      {8 * 20, 8 * 20}, {8 * 22, 8 * 34}, {8 * 24, 8 * 36}, {84, 164},
                                      {110, 146},       {8 * 18, 8 * 18}, {136, 138}, {8 * 36, 8 * 36},
                                      {8 * 36, 8 * 36}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        mha_layer *layer = made_layer((mha_config){.d_model = 256, .n_heads = 2, .dtype = kinds[i]}, 1);
        mha_error error;
        assert_ok(mha_layer_pack(layer, &error), error);
        const mha_totals totals = mha_params_totals(mha_layer_params(layer), NULL);
        assert_int_equal(totals.parameters, 4 * 256 * 256);
        assert_int_equal(totals.parameter_bytes, 4 * 256 * bytes[i][0]);
        assert_int_equal(totals.derived_bytes, 4 * 256 * bytes[i][1]);
        mha_layer_destroy(layer);
    }
    mha_config config = {.d_model = 256, .n_heads = 2};
    mha_layer *none;
    mha_error error;
    config.matrix_dtype[MHA_B_Q] = MHA_Q4_K;
    assert_refused(mha_layer_create(&config, NULL, NULL, &none, &error), MHA_INVALID, error, "matrix_dtype", "b_Q");
    config.matrix_dtype[MHA_B_Q] = MHA_F32, config.matrix_dtype[MHA_W_Q] = MHA_F16;
    assert_refused(mha_layer_create(&config, NULL, NULL, &none, &error), MHA_INVALID, error, "matrix_dtype", "W_Q",
                   "F16");
    assert_refused(mha_layer_create(&(mha_config){.d_model = 320, .n_heads = 2, .dtype = MHA_Q6_K}, NULL, NULL, &none,
                                    &error), MHA_INVALID, error, "W_Q", "256", "Q6_K", "320");
}

static void elements_count_once_and_bytes_as_they_are_stored(void **state)
{
    (void)state;
    mha_layer *layer = made_layer((mha_config){.d_model = 64, .n_heads = 2, .dtype = MHA_Q8_0, .bias_q = true}, 1);
    const mha_totals totals = mha_params_totals(mha_layer_params(layer), NULL);
    assert_int_equal(totals.parameters, 4 * 64 * 64 + 64);
    assert_int_equal(totals.parameter_bytes, 4 * 64 * 2 * 34 + 64 * 4);
    mha_error error;
    assert_ok(mha_layer_pack(layer, &error), error);
    const mha_totals packed = mha_params_totals(mha_layer_params(layer), NULL);
    assert_int_equal(packed.parameters, totals.parameters);
    assert_int_equal(packed.derived_bytes, 4 * 64 * 2 * 34);
    /* A head is some columns of W_Q; rows of W_O that begin inside a block are no view. */
    const mha_view head = mha_layer_head(layer, MHA_W_Q, 1), whole = mha_tensor_view(mha_layer_weight(layer, MHA_W_Q));
    assert_true(mha_view_get(&head, (size_t[]){37, 5}) == mha_view_get(&whole, (size_t[]){37, 37}));
    assert_non_null(mha_layer_head(layer, MHA_W_O, 1).data);
    mha_layer_destroy(layer);
    layer = made_layer((mha_config){.d_model = 64, .n_heads = 4, .dtype = MHA_Q4_0}, 1);
    assert_null(mha_layer_head(layer, MHA_W_O, 1).data);
    assert_non_null(mha_layer_head(layer, MHA_W_O, 2).data);
    mha_layer_destroy(layer);
    mha_layer *none;
    assert_refused(mha_layer_create(&(mha_config){.d_model = 48, .n_heads = 3, .dtype = MHA_Q4_0}, NULL, "p.", &none,
                                    &error),
                   MHA_INVALID, error, "p.W_Q", "32", "Q4_0", "48");
}

/* Random weights are the numbers of a layer of floats, rounded. */
static void initial_weights_are_those_of_floats_rounded(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const mha_config config = {.d_model = 64, .n_heads = 2, .d_out = 5, .bias_v = true};
        mha_layer *floats = made_layer(config, 7), *blocks = copied(floats, types[i]), *drawn;
        mha_config quantised = config;
        quantised.dtype = types[i];
        drawn = made_layer(quantised, 7);
        for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
            const mha_tensor *t = mha_layer_weight(blocks, (mha_weight)w);
            if (t)
                assert_memory_equal(mha_tensor_info_of(t).data,
                                    mha_tensor_info_of(mha_layer_weight(drawn, (mha_weight)w)).data,
                                    mha_tensor_info_of(t).bytes);
        }
        mha_layer_destroy(floats);
        mha_layer_destroy(blocks);
        mha_layer_destroy(drawn);
    }
}

/* tests/peers/quantised_peer.py recorded what the package gguf makes of the floats x (64, 96). */
static void rounding_is_that_of_ggml(void **state)
{
    (void)state;
    mha_error error;
    mha_file *file;
    assert_ok(mha_file_open("tests/formats/quantised/rounded.gguf", &file, &error), error);
    static float x[64 * 96];
    const mha_view values = mha_view_of(x, MHA_F32, 2, (size_t[]){64, 96}), across = mha__view_swap(&values, 0, 1);
    assert_ok(mha_file_read(file, mha_file_find(file, "x"), &values, &error), error);
    for (size_t i = 0; i < 2; i++) {
        unsigned char expected[64 * 96 / 32 * 34];
        char name[16];
        snprintf(name, sizeof name, "x.%s", mha_dtype_name(types[i]));
        const mha_file_tensor *t = mha_file_find(file, name);
        const mha_view blocks = mha_view_of(expected, types[i], 1, &t->elements);
        assert_ok(mha_file_read(file, t, &blocks, &error), error);
        mha_layer *layer = made_layer((mha_config){.d_model = 96, .n_heads = 2, .d_k = 32, .dtype = types[i]}, 1);
        assert_ok(mha_layer_set(layer, MHA_W_Q, &across, &error), error);
        assert_memory_equal(mha_tensor_info_of(mha_layer_weight(layer, MHA_W_Q)).data, expected, t->bytes);
        mha_layer_destroy(layer);
    }
    mha_file_close(file);
}

static void what_has_no_scale_is_nan(void **state)
{
    (void)state;
    mha_error error;
    for (size_t i = 0; i < 2; i++) {
        mha_layer *layer = made_layer((mha_config){.d_model = 32, .n_heads = 1, .dtype = types[i]}, 1);
        static float x[32 * 32];
        for (size_t c = 0; c < 32; c++)
            for (size_t k = 0; k < 32; k++)
                x[k * 32 + c] = 1;
        x[5 * 32 + 1] = NAN, x[2] = INFINITY, x[3] = 1e9f, x[4] = 1e-44f, x[5] = 65504.0f * 7;
        const mha_view from = mha_view_of(x, MHA_F32, 2, (size_t[]){32, 32});
        assert_ok(mha_layer_set(layer, MHA_W_K, &from, &error), error);
        const mha_view W = mha_tensor_view(mha_layer_weight(layer, MHA_W_K));
        for (size_t c = 0; c < 6; c++)
            assert_int_equal(isnan(mha_view_get(&W, (size_t[]){9, c})), c >= 1 && c <= 3);
        assert_true(fabs(mha_view_get(&W, (size_t[]){0, 5}) / (65504.0 * 7) - 1) < 0x1p-10);
        for (size_t k = 0; k < 32; k++) /* a scale of which the inverse is infinite: zeros */
            x[k * 32] = 1e-44f;
        assert_ok(mha_layer_set(layer, MHA_W_K, &from, &error), error);
        assert_true(mha_view_get(&W, (size_t[]){3, 0}) == 0);
        const mha_view narrow = mha_view_of(x, MHA_F32, 2, (size_t[]){32, 31}),
                       counts = mha_view_of(x, MHA_I32, 2, (size_t[]){32, 32});
        assert_refused(mha_layer_set(layer, MHA_W_K, &narrow, &error), MHA_INVALID, error, "(32, 32)", "(32, 31)");
        assert_refused(mha_layer_set(layer, MHA_W_K, &counts, &error), MHA_UNSUPPORTED, error, "I32");
        mha_layer_destroy(layer);
    }
}

static mha_layer *loaded(const char *path, mha_load_options options)
{
    mha_file *file;
    mha_layer *layer;
    mha_error error;
    assert_ok(mha_file_open(path, &file, &error), error);
    options.layer = "blk.0";
    assert_ok(mha_model_load_layer(file, &options, NULL, &layer, NULL, &error), error);
    mha_file_close(file);
    return layer;
}

/* Blocks of a file stay as they are when that is asked for, by name or without; floats become blocks on request. */
static void blocks_of_a_file_are_kept(void **state)
{
    (void)state;
    const char *path = "tests/formats/quantised/model_q4_0.gguf", *plain = "tests/formats/quantised/model_f32.gguf";
    mha_layer *floats = loaded(path, (mha_load_options){0});
    mha_layer *blocks[] = {loaded(path, (mha_load_options){.keep_quantised = true}),
                           loaded(path, (mha_load_options){.has_dtype = true, .dtype = MHA_Q4_0}),
                           loaded(plain, (mha_load_options){.has_dtype = true, .dtype = MHA_Q4_0})};
    assert_int_equal(mha_layer_config(floats)->dtype, MHA_F32);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(mha_layer_config(blocks[i])->dtype, MHA_Q4_0);
        expect_equal(floats, blocks[i], MHA_PATH_EXACT, 1, 1, 4);
        mha_layer_destroy(blocks[i]);
    }
    mha_layer *others[] = {loaded(plain, (mha_load_options){.keep_quantised = true}),
                           loaded(path, (mha_load_options){.keep_quantised = true, .has_dtype = true,
                                                           .dtype = MHA_Q8_0}),
                           loaded(path, (mha_load_options){.keep_quantised = true,
                                                           .orientation = MHA_ORIENTATION_OUT_IN})};
    assert_int_equal(mha_layer_config(others[0])->dtype, MHA_F32);
    assert_int_equal(mha_layer_config(others[1])->dtype, MHA_Q8_0);
    assert_int_equal(mha_layer_config(others[2])->dtype, MHA_Q4_0);
    for (size_t i = 0; i < 3; i++)
        mha_layer_destroy(others[i]);
    mha_layer_destroy(floats);
    mha_file *file;
    mha_layer *share;
    mha_error error;
    mha_split split = {.ranks = 2};
    const mha_load_options named = {.layer = "blk.0", .has_dtype = true, .dtype = MHA_Q4_0};
    assert_ok(mha_file_open(path, &file, &error), error);
    assert_refused(mha_model_load_share(file, &named, &split, 0, NULL, &share, NULL, &error), MHA_UNSUPPORTED, error,
                   "dtype", "Q4_0");
    mha_file_close(file);
}

/* tests/peers/quantised_peer.py recorded a layer of which each matrix has a type of its own. */
static void each_matrix_keeps_its_own_type(void **state)
{
    (void)state;
    const char *path = "tests/formats/quantised/mixed.gguf";
    static const mha_dtype expected[] = {[MHA_W_Q] = MHA_Q4_K, [MHA_W_K] = MHA_Q5_K, [MHA_W_V] = MHA_Q6_K,
                                         [MHA_W_O] = MHA_MXFP4};
    mha_layer *kept = loaded(path, (mha_load_options){.keep_quantised = true}),
              *floats = loaded(path, (mha_load_options){0});
    mha_error error;
    for (int w = MHA_W_Q; w <= MHA_W_O; w += 2) {
        assert_int_equal(mha_tensor_info_of(mha_layer_weight(kept, (mha_weight)w)).dtype, expected[w]);
        assert_int_equal(mha_tensor_info_of(mha_layer_weight(floats, (mha_weight)w)).dtype, MHA_F32);
    }
    for (int packed = 0; packed < 2; packed++) {
        for (int p = MHA_PATH_FAST; p <= MHA_PATH_EXACT; p++)
            expect_equal(floats, kept, (mha_path)p, 2, 1, packed ? 1 : 20);
        assert_ok(mha_layer_pack(kept, &error), error);
        assert_ok(mha_layer_pack(floats, &error), error);
    }
    expect_equal(floats, kept, MHA_PATH_FAST, 2, 1, 20);
    mha_layer_destroy(kept);
    mha_layer_destroy(floats);
    mha_file *file;
    mha_layer *none;
    const mha_load_options rounded = {.layer = "blk.0", .has_dtype = true, .dtype = MHA_Q5_0};
    assert_ok(mha_file_open(path, &file, &error), error);
    assert_refused(mha_model_load_layer(file, &rounded, NULL, &none, NULL, &error), MHA_UNSUPPORTED, error, "attn_q",
                   "Q5_0", "Q8_0");
    mha_file_close(file);
}

/* Blocks of a source that begin anywhere: rows of blocks, and columns that begin inside one, are rounded anew from
 * their values; columns of whole blocks are copied. An output that lies in a weight is refused. */
static void sources_may_lie_anyhow(void **state)
{
    (void)state;
    enum { N = 64, GAP = 80 };
    static uint64_t blocks[N * GAP * 2 / 8];
    static const size_t strides[][2] = {{N, 1}, {1, GAP}, {1, N}, {1, 96}};
    unsigned char *bytes = (unsigned char *)blocks;
    for (size_t i = 0; i < sizeof blocks; i++) /* F16 scales of ordinary size in both formats */
        bytes[i] = (unsigned char)(mha__random_bits(5, 0, i) & 0x37);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t s = 0; s < sizeof strides / sizeof *strides; s++) {
            mha_layer *layer = made_layer((mha_config){.d_model = N, .n_heads = 2, .dtype = types[i]}, 1);
            mha_layer *floats = made_layer((mha_config){.d_model = N, .n_heads = 2}, 1);
            mha_view from = mha_view_of(blocks, types[i], 2, (size_t[]){N, N});
            mha_error error;
            from.stride[0] = (ptrdiff_t)strides[s][0], from.stride[1] = (ptrdiff_t)strides[s][1];
            assert_ok(mha_layer_set(layer, MHA_W_Q, &from, &error), error);
            assert_ok(mha_layer_set(floats, MHA_W_Q, &from, &error), error);
            const mha_view values = mha_tensor_view(mha_layer_weight(floats, MHA_W_Q)),
                           to = mha_tensor_view(mha_layer_weight(layer, MHA_W_Q));
            if (s < 2) { /* rounding floats is what rounding their blocks is */
                mha_layer *rounded = copied(floats, types[i]);
                const mha_view expected = mha_tensor_view(mha_layer_weight(rounded, MHA_W_Q));
                for (size_t e = 0; e < N * N; e++)
                    assert_true(mha_view_get(&to, (size_t[]){e / N, e % N}) ==
                                mha_view_get(&expected, (size_t[]){e / N, e % N}));
                mha_layer_destroy(rounded);
            } else {
                for (size_t e = 0; e < N * N; e++)
                    assert_true(mha_view_get(&to, (size_t[]){e / N, e % N}) ==
                                mha_view_get(&values, (size_t[]){e / N, e % N}));
            }
            static float x[3 * N];
            mha_plan plan;
            const mha_view W_O = mha_tensor_view(mha_layer_weight(layer, MHA_W_O));
            const mha_call call = {.query = mha_rows(x, 1, 3, N), .output = mha_rows(W_O.data, 1, 3, N)};
            assert_refused(mha_plan_call(layer, &call, &plan, &error), MHA_INVALID, error, "output", "W_O");
            mha_layer_destroy(floats);
            mha_layer_destroy(layer);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_path_has_the_bits_of_floats, isa_teardown),
        cmocka_unit_test(layers_of_other_types_have_the_bits_of_floats),
        cmocka_unit_test(bytes_are_those_of_the_file_and_of_the_copy),
        cmocka_unit_test(elements_count_once_and_bytes_as_they_are_stored),
        cmocka_unit_test(initial_weights_are_those_of_floats_rounded),
        cmocka_unit_test(rounding_is_that_of_ggml),
        cmocka_unit_test(what_has_no_scale_is_nan),
        cmocka_unit_test(blocks_of_a_file_are_kept),
        cmocka_unit_test(each_matrix_keeps_its_own_type),
        cmocka_unit_test(sources_may_lie_anyhow),
    };
    return cmocka_run_group_tests_name("quantised layer", tests, NULL, NULL);
}
