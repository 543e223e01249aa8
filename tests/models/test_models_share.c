/* The share of a layer that one rank reads from a file: the same numbers as those of the whole layer, and no byte of
 * the other ranks' parts. */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mha/lab.h"
#include "support/counted.h"
#include "support/scratch.h"
#include "support/unit.h"

static size_t bytes_read;

/* In place of the C library's: counts. */
ssize_t pread(int fd, void *to, size_t count, off_t offset)
{
    const ssize_t n = syscall(SYS_pread64, fd, to, count, offset);
    bytes_read += n > 0 ? (size_t)n : 0;
    return n;
}

/* ---------------------------------------------------------------- files */

static void add(mha_writer *writer, float *data, const char *name, size_t a, size_t b)
{
    mha_error error;
    const mha_view view = mha_view_of(data, MHA_F32, b ? 2 : 1, (size_t[]){a, b});
    assert_ok(mha_writer_add(writer, name, &view, &error), error);
}

enum { E = 24, HEADS = 12, KV_HEADS = 4, D = 2 };

/* The gate of each head behind its query. */
static const char *write_gated_layer(void)
{
    static float data[4][2 * E * E];
    mha_writer *writer;
    mha_error error;
    const char *path = scratch_path("gated.safetensors");
    for (size_t i = 0; i < sizeof data / sizeof data[0][0]; i++)
        (&data[0][0])[i] = (float)(i % 8191) / 64;
    assert_ok(mha_writer_create(path, &writer, &error), error);
    add(writer, data[0], "self_attn.q_proj.weight", 2 * HEADS * D, E);
    add(writer, data[1], "self_attn.q_proj.bias", 2 * HEADS * D, 0);
    add(writer, data[1], "self_attn.k_proj.weight", KV_HEADS * D, E);
    add(writer, data[2], "self_attn.v_proj.weight", KV_HEADS * D, E);
    add(writer, data[3], "self_attn.o_proj.weight", E, HEADS * D);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    return path;
}

/* Separate or fused matrices, (out, in) or GPT-2's (in, out), all with biases. */
static const char *write_layer(const char *name, bool fused, bool in_out)
{
    static float data[8][3 * E * E];
    const size_t all = (HEADS + 2 * KV_HEADS) * D, kv = KV_HEADS * D, n = HEADS * D;
    mha_writer *writer;
    mha_error error;
    const char *path = scratch_path(name);
    for (size_t i = 0; i < sizeof data / sizeof data[0][0]; i++)
        (&data[0][0])[i] = (float)(i % 8191) / 64;
    assert_ok(mha_writer_create(path, &writer, &error), error);
    if (fused && in_out) {
        add(writer, data[0], "attn.c_attn.weight", E, 3 * E), add(writer, data[1], "attn.c_attn.bias", 3 * E, 0);
        add(writer, data[2], "attn.c_proj.weight", E, E), add(writer, data[3], "attn.c_proj.bias", E, 0);
    } else if (fused) {
        add(writer, data[0], "attn.query_key_value.weight", all, E);
        add(writer, data[1], "attn.query_key_value.bias", all, 0), add(writer, data[2], "attn.dense.weight", E, n);
    } else {
        add(writer, data[0], "self_attn.q_proj.weight", n, E), add(writer, data[1], "self_attn.q_proj.bias", n, 0);
        add(writer, data[2], "self_attn.k_proj.weight", kv, E), add(writer, data[3], "self_attn.k_proj.bias", kv, 0);
        add(writer, data[4], "self_attn.v_proj.weight", kv, E), add(writer, data[5], "self_attn.v_proj.bias", kv, 0);
        add(writer, data[6], "self_attn.o_proj.weight", E, n);
    }
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    return path;
}

/* ---------------------------------------------------------------- shares */

/* Loads the share of each rank of each split, and holds it against the whole; with `plain`, the bytes that all ranks
 * of a tensor-parallel layer read, too. Returns the number of shares. */
static size_t check_shares(const char *path, mha_load_options options, bool plain)
{
    size_t shares = 0;
    mha_error error;
    mha_file *file;
    mha_layer *whole;
    assert_ok(mha_file_open(path, &file, &error), error);
    bytes_read = 0;
    assert_ok(mha_model_load_layer(file, &options, NULL, &whole, NULL, &error), error);
    const size_t all = bytes_read;
    for (int scheme = 0; scheme < MHA_SPLIT_COUNT; scheme++)
        for (size_t ranks = 1; ranks <= 12; ranks++) {
            size_t expected = 0, total = 0;
            for (size_t rank = 0; rank < ranks; rank++) {
                mha_split split = {.scheme = (mha_split_scheme)scheme, .ranks = ranks};
                mha_layer *own = NULL;
                bytes_read = 0;
                const mha_status status =
                    mha_model_load_share(file, &options, &split, rank, NULL, &own, NULL, &error);
                if (status == MHA_INVALID && strstr(error.message, "expected a number that divides"))
                    break;
                assert_ok(status, error);
                total += bytes_read;
                shares++;
                for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
                    const mha_tensor *tensor = mha_layer_weight(whole, (mha_weight)w);
                    const mha_view view = tensor ? mha_tensor_view(tensor) : (mha_view){0},
                                   slice = mha_split_slice(&split, rank, (mha_weight)w, &view);
                    mha_tensor *part = mha_layer_weight(own, (mha_weight)w);
                    assert_int_equal(part != NULL, slice.data != NULL);
                    if (!part)
                        continue;
                    const mha_view found = mha_tensor_view(part);
                    mha_difference d;
                    assert_ok(mha_compare(&found, &slice, 0, 0, &d, &error), error);
                    assert_int_equal(d.mismatches, 0);
                    assert_int_equal(mha_tensor_info_of(part).source_dtype, mha_tensor_info_of(tensor).source_dtype);
                    expected += 4 * mha_view_elements(&found);
                }
                mha_layer_destroy(own);
            }
            if (plain)
                assert_int_equal(total, expected); /* 4 bytes for each number that is stored */
            else
                assert_true(total <= (scheme == MHA_SPLIT_TENSOR ? ranks + 2 : ranks) * all);
        }
    mha_layer_destroy(whole);
    mha_file_close(file);
    return shares;
}

/* Keys of a tensor in blocks, element by element: behind the queries, and the values where these come first. */
static void check_keys(const char *path, mha_load_options options)
{
    const size_t blocks = options.facts->fused_blocks, width = (HEADS + 2 * KV_HEADS) * D / blocks,
                 share = KV_HEADS * D / blocks,
                 before = HEADS * D / blocks + (options.facts->fused_qvk ? share : 0);
    mha_error error;
    mha_file *file;
    mha_layer *layer;
    assert_ok(mha_file_open(path, &file, &error), error);
    assert_ok(mha_model_load_layer(file, &options, NULL, &layer, NULL, &error), error);
    const mha_view W = mha_tensor_view(mha_layer_weight(layer, MHA_W_K));
    for (size_t i = 0; i < E; i++)
        for (size_t j = 0; j < KV_HEADS * D; j++) {
            const size_t row = j / share * width + before + j % share;
            assert_true(mha_view_get(&W, (size_t[]){i, j}) == (double)((row * E + i) % 8191) / 64);
        }
    mha_layer_destroy(layer);
    mha_file_close(file);
}

static void shares_are_parts_of_the_whole(void **state)
{
    (void)state;
    const mha_load_options grouped = {.n_heads = HEADS, .kv_heads = KV_HEADS};
    const size_t some = 4 * 78; /* 1 + ... + 12 ranks of the schemes that take any number, and more */
    assert_true(check_shares(write_layer("apart.safetensors", false, false), grouped, true) > some * 3 / 4);
    assert_true(check_shares(write_layer("gpt.safetensors", true, true), (mha_load_options){.n_heads = 6}, true) >
                some * 3 / 4);
    const mha_load_options quantised = {.layer = "blk.0", .has_dtype = true, .dtype = MHA_F32};
    mha_model_facts facts = {.config.n_heads = HEADS, .config.kv_heads = KV_HEADS, .config.d_k = D};
    for (facts.fused_blocks = 1; facts.fused_blocks <= KV_HEADS; facts.fused_blocks *= 2)
        for (int qvk = 0; qvk < 2; qvk++) {
            facts.fused_qvk = qvk;
            const mha_load_options blocks = {.n_heads = HEADS, .kv_heads = KV_HEADS, .facts = &facts};
            const char *path = write_layer("blocks.safetensors", true, false);
            check_keys(path, blocks);
            assert_true(check_shares(path, blocks, true) > some * 3 / 4);
        }
    const mha_model_facts gated = {.config.n_heads = HEADS,
                                   .config.kv_heads = KV_HEADS,
                                   .config.d_k = D,
                                   .config.gate = MHA_GATE_FEATURE,
                                   .fused_gate = true};
    assert_true(check_shares(write_gated_layer(), (mha_load_options){.facts = &gated}, true) > some * 3 / 4);
    check_shares("tests/formats/quantised/model_q4_0.gguf", quantised, false);
    check_shares("tests/formats/quantised/model_f32.gguf", quantised, true);
}

static mha_status load_share(mha_params *table, const void *file, mha_error *error)
{
    mha_layer *layer = NULL;
    mha_split split = {.ranks = 2};
    const mha_status status = mha_model_load_share(
        file, &(mha_load_options){.n_heads = HEADS, .kv_heads = KV_HEADS}, &split, 1, table, &layer, NULL, error);
    mha_layer_destroy(layer);
    return status;
}

static void what_cannot_be_shared_is_refused(void **state)
{
    (void)state;
    mha_file *file;
    mha_layer *layer;
    mha_error error;
    const mha_load_options options = {.n_heads = HEADS, .kv_heads = KV_HEADS};
    mha_split split = {.ranks = 5};
    assert_ok(mha_file_open(write_layer("apart.safetensors", false, false), &file, &error), error);
    assert_refused(mha_model_load_share(file, &options, &split, 0, NULL, &layer, NULL, &error), MHA_INVALID, error,
                   "(1, 2, 4, 12)");
    split.ranks = 4;
    assert_refused(mha_model_load_share(file, &options, &split, 4, NULL, &layer, NULL, &error), MHA_INVALID, error,
                   "a number below 4, found 4");
    assert_true(counted_until_it_works(load_share, file) >= 4);
    mha_file_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_parts_of_the_whole),
        cmocka_unit_test(what_cannot_be_shared_is_refused),
    };
    return cmocka_run_group_tests_name("shares of layers in files", tests, NULL, NULL);
}
