/* Every field of a layer's config and every setting of a call must be the same on all ranks: each one, changed on the
 * last rank, is refused on all of them as a request for different things. Both come from their tables. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "mha/mpi.h"
#include "mha/setting.h"
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

/* `alone`: the last rank refuses what it has by itself. */
static void expect_refused(const char *name, bool alone, mha_status status, const mha_error *error)
{
    mha_error first = *error;
    expect(status != MHA_OK, name, "may differ between ranks");
    MPI_Bcast(&first, (int)sizeof first, MPI_BYTE, 0, MPI_COMM_WORLD);
    expect(strcmp(first.message, error->message) == 0, name, "another message than that of rank 0");
    expect(alone == !strstr(error->message, "found different ones"), name, error->message);
}

/* ---------------------------------------------------------------- the config */

enum { B = 1, T = FIELDS_T, D = 56, HEADS = FIELDS_HEADS, DK = FIELDS_D_K };

static const mha_config config = {
    .d_model = D, .n_heads = HEADS, .d_k = DK, .d_v = DK, .bias_q = true, .bias_k = true, .bias_v = true,
    .bias_o = true, .bias_kv = true, .sinks = true, .q_norm = MHA_NORM_HEAD, .k_norm = MHA_NORM_HEAD, .bias_rows = 8,
    .relative_k_rows = 8, .relative_q_rows = 8, .gate = MHA_GATE_FEATURE, .bias_gate = true};
/* Latents, with which not all of the rest may be set. */
static const mha_config latent = {.d_model = D, .n_heads = HEADS, .d_k = DK, .q_rank = 3, .kv_rank = 5, .d_rope = 2};

/* Whether ranks can share a layer of a config, other than `whole` with all defaults filled in. */
static bool is_other(const mha_config *own, const mha_config *whole)
{
    mha_split split = {.scheme = MHA_SPLIT_RING, .ranks = (size_t)ranks, .config = *own};
    return mha_split_check(&split, NULL) == MHA_OK && !mha_config_same(whole, &split.config);
}

/* Gives a field another value that ranks take with the rest; false, and one that they refuse, if none is found. */
static bool change_field(const mha_config_field *f, const mha_config *whole, mha_config *own)
{
    size_t now = 0;
    memcpy(&now, (const char *)whole + f->at, f->bytes < sizeof now ? f->bytes : sizeof now);
    const size_t others[] = {now + 1, !now, now - 1, now / 7, 2 * now};
    for (size_t i = sizeof others / sizeof *others; i-- > 0;) {
        *own = *whole;
        const bool truth = others[i] & 1;
        if (f->kind == MHA_CONFIG_SWITCH)
            memcpy((char *)own + f->at, &truth, sizeof truth);
        else
            memcpy((char *)own + f->at, &others[i], f->bytes < sizeof now ? f->bytes : sizeof now);
        if (is_other(own, whole))
            return true;
    }
    return false;
}

/* Changes each field on the last rank; at least `least` of them can be changed by themselves. */
static void expect_same(const mha_config *given, size_t least)
{
    char text[40];
    size_t taken = 0;
    const mha_config_field *f;
    mha_config whole = *given, own;
    mha_mpi_layer *layer;
    mha_error error;
    expect(mha_config_resolve(&whole, &error) == MHA_OK, "config", error.message);
    for (size_t i = 0; (f = mha_config_field_at(i)) != NULL; i++) {
        const bool alone = !change_field(f, &whole, &own);
        taken += !alone;
        expect_refused(f->name, alone, mha_mpi_layer_create(MPI_COMM_WORLD, MHA_SPLIT_RING,
                                                            rank == ranks - 1 ? &own : &whole, NULL, NULL, &layer,
                                                            &error), &error);
    }
    snprintf(text, sizeof text, "%zu fields can be changed by themselves", taken);
    expect(taken >= least, "config", text);
    own = whole;
    own.reserved[0] = rank == ranks - 1;
    expect_refused("reserved", true,
                   mha_mpi_layer_create(MPI_COMM_WORLD, MHA_SPLIT_RING, &own, NULL, NULL, &layer, &error), &error);
}

static void configs(void)
{
    expect_same(&config, 26);
    expect_same(&latent, 14);
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
        const bool alone = !is_taken(whole, &changed);
        taken += !alone;
        if (rank == ranks - 1)
            call.semantics = changed;
        expect_refused(row->name, alone, forward(&error), &error);
        untouched(row->name);
    }
    expect(taken > 40, "settings", "fewer than 40 can be changed by themselves");
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
