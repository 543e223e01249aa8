/* Every field of a layer's config and of a call's semantics must be the same on all ranks: each one, changed on the
 * last rank alone, is refused on all of them as a request for different things. A field that is added to either struct
 * must join the lists below, or this does not compile without a warning. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"
#include "mha/mpi.h"

static int rank, ranks;

static void expect(bool true_or_not, const char *what, const char *found)
{
    if (true_or_not)
        return;
    fprintf(stderr, "rank %d of %d: %s: %s\n", rank, ranks, what, found);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* One field: what it becomes on the last rank. `alone` is refused by that rank itself, whatever the others have. */
typedef struct field {
    const char *name;
    size_t offset, size;
    union {
        bool truth;
        int64_t whole;
        size_t count;
        double real;
        int choice;
        const void *pointer;
    } other;
    bool alone;
} field;

#define F(type, name, member, value)                                                                                   \
    {                                                                                                                  \
        #name, offsetof(type, name), sizeof(((type *)NULL)->name), {.member = (value)}, false                          \
    }
#define ALONE(type, name, member, value)                                                                               \
    {                                                                                                                  \
        #name, offsetof(type, name), sizeof(((type *)NULL)->name), {.member = (value)}, true                           \
    }

/* The fields follow each other without a gap into which another one fits: the count, and the initialiser without names
 * that each list has beside it, say whether one is missing. */
static void expect_complete(const char *what, const field *fields, size_t count, size_t bytes)
{
    size_t end = 0;
    for (size_t i = 0; i < count; i++) {
        const bool types = strcmp(fields[i].name, "matrix_dtype") == 0; /* an array of four bytes each */
        const size_t size = fields[i].size, align = size < 8 ? size : size % 8 || types ? 4 : 8,
                     from = (end + align - 1) / align * align;
        expect(fields[i].offset == from, what, fields[i].name);
        end = from + size;
    }
    expect((end + 7) / 8 * 8 == bytes, what, "has more at its end");
}

static void expect_refused(const field *f, mha_status status, const mha_error *error)
{
    mha_error first = *error;
    expect(status != MHA_OK, f->name, "may differ between ranks");
    MPI_Bcast(&first, (int)sizeof first, MPI_BYTE, 0, MPI_COMM_WORLD);
    expect(strcmp(first.message, error->message) == 0, f->name, "another message than that of rank 0");
    expect(f->alone == !strstr(error->message, "different things"), f->name, error->message);
}

/* ---------------------------------------------------------------- the config */

enum { B = 1, T = 16, D = 56, HEADS = 168, DK = 4 };

/* Without names: a field that is added is missed here by the compiler. */
static const mha_config config = {D, HEADS, HEADS, DK,   DK,    D,    D,    D,     D,          true, true, true, true,
                                  true, true, MHA_NORM_HEAD, MHA_NORM_HEAD, false, 8, 8, 0, 8, false, MHA_F32,
                                  MHA_GATE_FEATURE, true,
                                  0, 0, 0, false, {MHA_F32}};

/* Latents, beside which not all of the rest may be set. */
static const mha_config latent = {.d_model = D, .n_heads = HEADS, .d_k = DK, .q_rank = 3, .kv_rank = 5, .d_rope = 2};
static const field latent_fields[] = {
    F(mha_config, q_rank, count, 4),
    F(mha_config, kv_rank, count, 6),
    F(mha_config, d_rope, count, 0),
    F(mha_config, bias_latent, truth, true),
};

static void expect_same(const mha_config *whole, const field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mha_config own = *whole;
        mha_mpi_layer *layer;
        mha_error error;
        if (rank == ranks - 1)
            memcpy((char *)&own + fields[i].offset, &fields[i].other,
                   fields[i].size < sizeof fields[i].other ? fields[i].size : sizeof fields[i].other);
        expect_refused(&fields[i],
                       mha_mpi_layer_create(MPI_COMM_WORLD, MHA_SPLIT_RING, &own, NULL, NULL, &layer, &error), &error);
    }
}

static void configs(void)
{
    static const field fields[] = {
        F(mha_config, d_model, count, 2 * D),        F(mha_config, n_heads, count, 2 * HEADS),
        F(mha_config, kv_heads, count, HEADS / 7),   F(mha_config, d_k, count, 6),
        F(mha_config, d_v, count, 6),                F(mha_config, d_q, count, 3),
        F(mha_config, d_kin, count, 3),              F(mha_config, d_vin, count, 3),
        F(mha_config, d_out, count, 3),              F(mha_config, bias_q, truth, false),
        F(mha_config, bias_k, truth, false),         F(mha_config, bias_v, truth, false),
        F(mha_config, bias_o, truth, false),         F(mha_config, bias_kv, truth, false),
        F(mha_config, sinks, truth, false),          F(mha_config, q_norm, choice, MHA_NORM_NONE),
        F(mha_config, k_norm, choice, MHA_NORM_NONE), F(mha_config, norm_bias, truth, true),
        F(mha_config, bias_rows, count, 9),          F(mha_config, relative_k_rows, count, 9),
        F(mha_config, relative_column_rows, count, 9), F(mha_config, relative_q_rows, count, 9),
        F(mha_config, relative_by_head, truth, true),
        F(mha_config, dtype, choice, MHA_BF16),      F(mha_config, gate, choice, MHA_GATE_HEAD),
        F(mha_config, bias_gate, truth, false),      ALONE(mha_config, q_rank, count, 1),
        ALONE(mha_config, kv_rank, count, 1),        ALONE(mha_config, d_rope, count, 2),
        ALONE(mha_config, bias_latent, truth, true),
        ALONE(mha_config, matrix_dtype, count, MHA_Q8_0), /* of the first matrix, whose rows 32 does not divide */
    };
    expect_complete("mha_config", fields, sizeof fields / sizeof *fields, sizeof config);
    expect_same(&config, fields, sizeof fields / sizeof *fields);
    expect_same(&latent, latent_fields, sizeof latent_fields / sizeof *latent_fields);
}

/* ---------------------------------------------------------------- the semantics */

static unsigned char padding[T], block[1] = {1};
static float added[T * T], frequencies[DK / 2] = {1, 0.5f}, tables[T * DK / 2];
static double slopes[HEADS], others[HEADS];
static const int64_t lengths[B] = {T - 1}, fewer[B] = {T - 2}, places[B] = {2}, cu[3] = {0, 5, T};
static int64_t segments[T], positions[T] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};

#define VIEW(type, data, rank, ...) mha_view_of(data, type, rank, (size_t[]){__VA_ARGS__})

/* Without names, as above: everything is set that can be set beside the rest. */
static mha_semantics all_set(void)
{
    const mha_rope rope = {MHA_ROPE_HALF_SPLIT, DK, 0, true, 1.5, {0}, {0}, {0}, {0}, {0},
                           {{0}, {0}, {0}}};
    const mha_bias bias = {MHA_BIAS_RULE_BUCKETS, false, false, 40, 0, 0};
    const mha_relative relative = {MHA_RELATIVE_LOG_BUCKETS, false, 40, 0, 0, 0.5, 0.25};
    const mha_norm_rule norm = {MHA_NORM_RMS, true, false, false};
    const mha_query_scale query_scale = {0.5, 3, 1};
    const mha_pattern pattern = {VIEW(MHA_I64, segments, 2, B, T), VIEW(MHA_I64, segments, 2, B, T),
                                 {MHA_MASK_KEEPS, VIEW(MHA_BOOL, padding, 2, B, T)}, {0},
                                 {MHA_MASK_KEEPS, VIEW(MHA_BOOL, block, 2, 1, 1)}, 4, 4};
    return (mha_semantics){
        true, 0.5, 5, true, 0, NULL, true, 0, false, true, 2, true, 9, -1, 1, 12, lengths,
        {MHA_MASK_KEEPS, VIEW(MHA_BOOL, padding, 2, B, T)}, true, -3,
        {MHA_MASK_ADDITIVE, VIEW(MHA_F32, added, 2, T, T)}, pattern, slopes, bias, relative, rope, 1e-5, norm,
        query_scale, 3, false, false, MHA_SOFTMAX, 0, MHA_EMPTY_ZERO, MHA_HIDDEN_IGNORE, 0, NULL, NULL};
}

#define S(name, member, value) F(mha_semantics, name, member, value)
#define A(name, member, value) ALONE(mha_semantics, name, member, value)
/* Says what tables were made of; no forward reads it. */
#define UNREAD(name) {#name, offsetof(mha_semantics, name), sizeof(((mha_semantics *)NULL)->name), {.count = 0}, true}
#define VIEWS(name) {#name, offsetof(mha_semantics, name), sizeof(mha_view), {.count = 0}, true}

static const field semantics_fields[] = {
    S(has_scale, truth, false), S(scale, real, 0.25), S(softcap, real, 6), S(has_offset, truth, false),
    S(offset, whole, 1), S(position_offset, pointer, places), S(has_key_offset, truth, false), S(key_offset, whole, 1),
    S(keys_only, truth, true), A(causal, truth, false), S(prefix, whole, 3), A(window, truth, false),
    S(window_left, whole, 8), S(window_right, whole, 2), S(window_keep, whole, 2), S(chunk, whole, 11),
    S(kv_lengths, pointer, fewer), S(key_padding.kind, choice, MHA_MASK_HIDES), VIEWS(key_padding.values),
    S(has_padding_fill, truth, false), S(padding_fill, real, -4), A(mask.kind, choice, MHA_MASK_NONE),
    VIEWS(mask.values), VIEWS(pattern.q_segments), VIEWS(pattern.k_segments),
    S(pattern.query_padding.kind, choice, MHA_MASK_HIDES), VIEWS(pattern.query_padding.values),
    VIEWS(pattern.key_lists), S(pattern.blocks.kind, choice, MHA_MASK_HIDES), VIEWS(pattern.blocks.values),
    S(pattern.block_queries, count, 2), S(pattern.block_keys, count, 2),
    S(alibi_slopes, pointer, others), A(bias.rule, choice, MHA_BIAS_RULE_NONE), S(bias.one_way, truth, true),
    A(bias.class_token, truth, true), S(bias.max_distance, count, 41), A(bias.height, count, 3),
    A(bias.width, count, 3), A(relative.rule, choice, MHA_RELATIVE_DISTANCE), S(relative.reversed, truth, true),
    S(relative.max_distance, count, 41), A(relative.height, count, 3), A(relative.width, count, 3),
    S(relative.k_scale, real, 1), S(relative.q_scale, real, 1),
    S(rope.kind, choice, MHA_ROPE_INTERLEAVED), S(rope.dim, count, 2),
    S(rope.base, real, 500), S(rope.last, truth, false), S(rope.attention_factor, real, 1.25), VIEWS(rope.frequencies),
    VIEWS(rope.q_positions), VIEWS(rope.k_positions), VIEWS(rope.cos_table), VIEWS(rope.sin_table),
    UNREAD(rope.origin),
    S(norm_eps, real, 1e-3), S(norm.kind, choice, MHA_NORM_L2), S(norm.plus_one, truth, false),
    S(norm.after_rope, truth, true), S(norm.unweighted, truth, true), S(query_scale.growth, real, 1),
    S(query_scale.every, whole, 2), S(query_scale.first, whole, 0), S(clip_qkv, real, 2), S(zero_row, truth, true),
    S(softmax_plus_one, truth, true), A(normaliser, choice, MHA_SIGMOID), A(sigmoid_bias, real, 0.5),
    S(empty_rows, choice, MHA_EMPTY_NAN),
    S(hidden_values, choice, MHA_HIDDEN_PROPAGATE), A(n_sequences, count, 2), A(cu_seqlens_q, pointer, cu),
    A(cu_seqlens_k, pointer, cu),
};

static float x[B * T * D], y[B * T * D];
static mha_call call;
static mha_mpi_layer *layer;

static mha_status forward(mha_error *error)
{
    memset(y, 0x5A, sizeof y);
    return mha_mpi_forward(layer, &call, T, T, error);
}

static void untouched(const char *name)
{
    for (size_t i = 0; i < sizeof y; i++)
        expect(((const unsigned char *)y)[i] == 0x5A, name, "an output was touched");
}

/* Views: what they hold is the business of the caller, but not whether they are there. */
static void views(void)
{
    mha_error error;
    const struct {
        const char *name;
        mha_view *view, *second;
        mha_view given;
    } list[] = {
        {"rope.frequencies", &call.semantics.rope.frequencies, NULL, VIEW(MHA_F32, frequencies, 1, DK / 2)},
        {"pattern.key_lists", &call.semantics.pattern.key_lists, NULL, VIEW(MHA_I64, positions, 2, T, 1)},
        {"rope.q_positions", &call.semantics.rope.q_positions, NULL, VIEW(MHA_I64, positions, 2, B, T)},
        {"rope.cos_table", &call.semantics.rope.cos_table, &call.semantics.rope.sin_table,
         VIEW(MHA_F32, tables, 2, T, DK / 2)},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        call.semantics = all_set();
        call.semantics.rope.attention_factor = 0;
        if (rank == ranks - 1)
            *list[i].view = list[i].given;
        if (rank == ranks - 1 && list[i].second)
            *list[i].second = list[i].given;
        const field f = {list[i].name, 0, 0, {.count = 0}, false};
        expect_refused(&f, forward(&error), &error);
        untouched(f.name);
    }
}

static void semantics(void)
{
    mha_error error;
    expect_complete("mha_semantics", semantics_fields, sizeof semantics_fields / sizeof *semantics_fields,
                    sizeof(mha_semantics));
    memset(padding, 1, sizeof padding);
    for (size_t h = 0; h < HEADS; h++)
        slopes[h] = 0.5, others[h] = h == HEADS - 1 ? 0.25 : 0.5;
    expect(mha_mpi_layer_create(MPI_COMM_WORLD, MHA_SPLIT_ULYSSES, &config, NULL, NULL, &layer, &error) == MHA_OK,
           "layer", error.message);
    mha_share share;
    expect(mha_mpi_layer_share(layer, B, T, T, MHA_F32, &share, &error) == MHA_OK, "share", error.message);
    const size_t rows = share.queries[0].count;
    call = (mha_call){.query = mha_rows(x, B, rows, D), .output = mha_rows(y, B, rows, D), .path = MHA_PATH_BLAS,
                      .threads = 1, .semantics = all_set()};
    expect(forward(&error) == MHA_OK, "all set", error.message);
    for (size_t i = 0; i < sizeof semantics_fields / sizeof *semantics_fields; i++) {
        const field *f = &semantics_fields[i];
        call.semantics = all_set();
        if (rank == ranks - 1)
            memcpy((char *)&call.semantics + f->offset, &f->other, f->size >= sizeof(mha_view) ? 0 : f->size);
        if (f->size >= sizeof(mha_view))
            continue;
        expect_refused(f, forward(&error), &error);
        untouched(f->name);
    }
    views();
    call.semantics = all_set();
    expect(forward(&error) == MHA_OK, "afterwards", error.message);
    mha_mpi_layer_destroy(layer);
}

int main(int argc, char **argv)
{
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > 1) {
        configs();
        semantics();
    }
    if (rank == 0)
        printf("%d ranks have every field in common\n", ranks);
    MPI_Finalize();
    return 0;
}
