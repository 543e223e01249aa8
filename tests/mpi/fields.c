/* Every field of a layer's config and every setting of a call must be the same on all ranks: each one, changed on the
 * last rank alone, is refused on all of them as a request for different things. A field that is added to the config
 * must join the list below, or this does not compile without a warning; settings come from their table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"
#include "mha/mpi.h"
#include "support/fields.h"

static int rank, ranks;

static void expect(bool true_or_not, const char *what, const char *found)
{
    if (true_or_not)
        return;
    fprintf(stderr, "rank %d of %d: %s: %s\n", rank, ranks, what, found);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The fields follow each other without a gap into which another one fits: the count, and the initialiser without names
 * that each list has beside it, say whether one is missing. */
static void expect_complete(const char *what, const field *fields, size_t count, size_t bytes)
{
    const char *missing = fields_missing(fields, count, bytes);
    expect(!missing, what, missing);
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

enum { B = 1, T = FIELDS_T, D = 56, HEADS = FIELDS_HEADS, DK = FIELDS_D_K };

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

static float frequencies[DK / 2] = {1, 0.5f}, tables[T * DK / 2];
static int64_t positions[T] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};

#define VIEW(type, data, rank, ...) mha_view_of(data, type, rank, (size_t[]){__VA_ARGS__})

static double others[HEADS];
static const int64_t fewer[B] = {T - 2}, places[B] = {2}, cu[3] = {0, 5, T};

/* Changed alone, these are refused by the rank that has them: they go with others that stay as they are. */
static const char *const alone[] = {
    "causal", "cu_seqlens_q", "cu_seqlens_k", "n_sequences", "mask_kind", "bias_rule",
    "bias_class_token", "bias_height", "bias_width", "relative_rule", "relative_height", "relative_width",
    "normaliser", "sigmoid_bias", "rope_axes", "rope_sections",
};

static bool is_alone(const char *name)
{
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (strcmp(alone[i], name) == 0)
            return true;
    return false;
}

static int words_of(const char *choices)
{
    int n = 1;
    for (; *choices; choices++)
        n += *choices == '|';
    return n;
}

/* Changes one setting to another value that it could have; false for views, which are the business of the caller. */
static bool change(const mha_setting *s, mha_semantics *semantics)
{
    char *at = (char *)semantics + s->at;
    bool truth;
    int choice;
    int64_t whole;
    size_t count;
    double real;
    const void *pointer = strcmp(s->name, "kv_lengths") == 0     ? (const void *)fewer
                          : strcmp(s->name, "alibi_slopes") == 0 ? (const void *)others
                          : strncmp(s->name, "cu_", 3) == 0      ? (const void *)cu
                                                                 : (const void *)places;
    switch (s->kind) {
    case MHA_SETTING_SWITCH: memcpy(&truth, at, sizeof truth), truth = !truth, memcpy(at, &truth, sizeof truth); break;
    case MHA_SETTING_CHOICE:
        memcpy(&choice, at, sizeof choice);
        choice = choice + 1 < words_of(s->choices) ? choice + 1 : 1;
        memcpy(at, &choice, sizeof choice);
        break;
    case MHA_SETTING_WHOLE: memcpy(&whole, at, sizeof whole), whole++, memcpy(at, &whole, sizeof whole); break;
    case MHA_SETTING_COUNT:
        memcpy(&count, at, sizeof count), count = count >= 4 ? count / 2 : count + 2, memcpy(at, &count, sizeof count);
        break;
    case MHA_SETTING_REAL:
        memcpy(&real, at, sizeof real), real = real * 0.5 + 0.0625, memcpy(at, &real, sizeof real);
        break;
    case MHA_SETTING_WHOLES:
    case MHA_SETTING_REALS: memcpy(at, &pointer, sizeof pointer); break;
    case MHA_SETTING_COUNTS: semantics->rope.origin.axes = (mha_rope_axes){.axes = 1, .sections = {DK / 2}}; break;
    default: return false;
    }
    return true;
}

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
        call.semantics = semantics_all_set();
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
    for (size_t h = 0; h < HEADS; h++)
        others[h] = h == HEADS - 1 ? 0.25 : 0.5;
    expect(mha_mpi_layer_create(MPI_COMM_WORLD, MHA_SPLIT_ULYSSES, &config, NULL, NULL, &layer, &error) == MHA_OK,
           "layer", error.message);
    mha_share share;
    expect(mha_mpi_layer_share(layer, B, T, T, MHA_F32, &share, &error) == MHA_OK, "share", error.message);
    const size_t rows = share.queries[0].count;
    call = (mha_call){.query = mha_rows(x, B, rows, D), .output = mha_rows(y, B, rows, D), .path = MHA_PATH_BLAS,
                      .threads = 1, .semantics = semantics_all_set()};
    expect(forward(&error) == MHA_OK, "all set", error.message);
    const mha_setting *setting;
    for (size_t i = 0; (setting = mha_setting_at(i)) != NULL; i++) {
        call.semantics = semantics_all_set();
        mha_semantics changed = call.semantics;
        if (!change(setting, &changed))
            continue;
        if (rank == ranks - 1)
            call.semantics = changed;
        const field f = {setting->name, 0, 0, {.count = 0}, is_alone(setting->name)};
        expect_refused(&f, forward(&error), &error);
        untouched(f.name);
    }
    views();
    call.semantics = semantics_all_set();
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
