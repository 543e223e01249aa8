/* Every field of a layer's config and every setting of a call must be the same on all ranks: each one, changed on the
 * last rank alone, is refused on all of them as a request for different things. A field that is added to the config
 * must join the list below, or this does not compile without a warning; settings come from their table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/mha.h"
#include "mha/mpi.h"
#include "support/any_setting.h"
#include "support/fields.h"

static int rank, ranks;

static void expect(bool true_or_not, const char *what, const char *found)
{
    if (true_or_not)
        return;
    fprintf(stderr, "rank %d of %d: %s: %s\n", rank, ranks, what, found);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* One field: what it becomes. `alone`: a call that has it beside all else that is set is refused for it. */
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

/* The field that does not follow the one before it without a gap into which another fits, so that one is missing there;
 * NULL: the list is complete. An initialiser without names says whether one is missing in a gap. */
static const char *fields_missing(const field *fields, size_t count, size_t bytes)
{
    size_t end = 0;
    for (size_t i = 0; i < count; i++) {
        const bool types = strcmp(fields[i].name, "matrix_dtype") == 0; /* an array of four bytes each */
        const size_t size = fields[i].size, align = size < 8 ? size : size % 8 || types ? 4 : 8,
                     from = (end + align - 1) / align * align;
        if (fields[i].offset != from)
            return fields[i].name;
        end = from + size;
    }
    return (end + 7) / 8 * 8 == bytes ? NULL : "has more at its end";
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
                                  0, 0, 0, false, {MHA_F32}, {0}};

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
        ALONE(mha_config, reserved, count, 1),
    };
    expect_complete("mha_config", fields, sizeof fields / sizeof *fields, sizeof config);
    expect_same(&config, fields, sizeof fields / sizeof *fields);
    expect_same(&latent, latent_fields, sizeof latent_fields / sizeof *latent_fields);
}

/* ---------------------------------------------------------------- the semantics */

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

static void *lent(void *context, size_t bytes)
{
    static double memory[T * T * HEADS];
    (void)context;
    expect(bytes <= sizeof memory, "an array", "has more numbers than are foreseen");
    return memory;
}

/* Another last number in an array. */
static void change_last(const mha_setting *row, size_t length, mha_semantics *semantics)
{
    static int64_t wholes[HEADS];
    static double reals[HEADS];
    const bool whole = row->kind == MHA_SETTING_WHOLES;
    void *const copy = whole ? (void *)wholes : (void *)reals;
    const void *numbers;
    memcpy(&numbers, (char *)semantics + row->at, sizeof numbers);
    memcpy(copy, numbers, length * 8);
    if (whole)
        wholes[length - 1] -= 1;
    else
        reals[length - 1] *= 0.5;
    memcpy((char *)semantics + row->at, &copy, sizeof copy);
}

/* Another number of a setting; what a view holds is the business of the caller, but not whether it is there. */
static void change(const mha_setting *row, mha_semantics *semantics)
{
    const any_sizes sizes = {.B = B, .h = HEADS, .T_q = T, .T_k = T, .S = T};
    const size_t length = mha_setting_length(row, semantics, B, HEADS);
    if (!any_setting_is_array(row))
        any_setting_change(row, semantics);
    else if (length > 0)
        change_last(row, length, semantics);
    else if (mha_setting_given(row, semantics))
        any_setting_clear(row, semantics);
    else
        any_setting_lend(row, &sizes, lent, NULL, semantics);
}

/* Whether one process would take the call: otherwise a rank refuses it by itself. */
static bool is_taken(const mha_layer *whole, const mha_semantics *semantics)
{
    static float rows[T * D];
    mha_error error;
    mha_plan plan;
    const mha_call one = {.query = mha_rows(rows, B, T, D), .path = MHA_PATH_BLAS, .semantics = *semantics};
    return mha_plan_call(whole, &one, &plan, &error) == MHA_OK;
}

static void semantics(void)
{
    mha_error error;
    mha_layer *whole;
    size_t taken = 0;
    expect(mha_layer_create(&config, NULL, NULL, &whole, &error) == MHA_OK, "layer", error.message);
    expect(mha_mpi_layer_create(MPI_COMM_WORLD, MHA_SPLIT_ULYSSES, &config, NULL, NULL, &layer, &error) == MHA_OK,
           "layer", error.message);
    mha_share share;
    expect(mha_mpi_layer_share(layer, B, T, T, MHA_F32, &share, &error) == MHA_OK, "share", error.message);
    const size_t rows = share.queries[0].count;
    call = (mha_call){.query = mha_rows(x, B, rows, D), .output = mha_rows(y, B, rows, D), .path = MHA_PATH_BLAS,
                      .threads = 1, .semantics = semantics_all_set()};
    expect(forward(&error) == MHA_OK, "all set", error.message);
    const mha_setting *row;
    for (size_t i = 0; (row = mha_setting_at(i)) != NULL; i++) {
        mha_semantics changed = call.semantics = semantics_all_set();
        change(row, &changed);
        const field f = {row->name, 0, 0, {.count = 0}, !is_taken(whole, &changed)};
        taken += !f.alone;
        if (rank == ranks - 1)
            call.semantics = changed;
        expect_refused(&f, forward(&error), &error);
        untouched(f.name);
    }
    expect(taken > 40, "settings", "fewer than 40 can be changed alone");
    call.semantics = semantics_all_set();
    expect(forward(&error) == MHA_OK, "afterwards", error.message);
    mha_mpi_layer_destroy(layer);
    mha_layer_destroy(whole);
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
