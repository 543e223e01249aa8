/* Shares of a layer in a file: every rank reads its own part of each weight, counted in bytes, and allocates no more;
 * what is wrong with the file of one rank, or with its memory, all ranks say alike. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mha/lab.h"
#include "mha/mpi.h"
#include "support/failing.h"

static int rank, ranks;
static size_t bytes_read;

/* In place of the C library's: counts. */
ssize_t pread(int fd, void *to, size_t count, off_t offset)
{
    const ssize_t n = syscall(SYS_pread64, fd, to, count, offset);
    bytes_read += n > 0 ? (size_t)n : 0;
    return n;
}

static void expect(bool true_or_not, const char *what, const char *found)
{
    if (true_or_not)
        return;
    fprintf(stderr, "rank %d of %d: %s: %s\n", rank, ranks, what, found);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void expect_agreed(const char *what, mha_status status, mha_status expected, const mha_error *error,
                          const char *words)
{
    mha_error first = *error;
    MPI_Bcast(&first, (int)sizeof first, MPI_BYTE, 0, MPI_COMM_WORLD);
    expect(status == expected, what, status == MHA_OK ? "was not refused" : error->message);
    expect(strcmp(first.message, error->message) == 0, what, "another message than that of rank 0");
    expect(strstr(error->message, words) != NULL, what, error->message);
}

/* ---------------------------------------------------------------- the file */

enum { D = 224, HEADS = 56, KV_HEADS = 8, WIDTH = 4, T = 5 };
static const mha_load_options options = {.n_heads = HEADS, .kv_heads = KV_HEADS};
static char directory[] = "/tmp/mha-mpi-XXXXXX";

static const char *path_of(const char *name)
{
    static char paths[4][100];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

/* BF16, so that what is read is not what is stored. Rank 0 writes, all know the directory. */
static void write_files(void)
{
    static const struct {
        const char *name;
        size_t out, in;
    } tensors[] = {{"q_proj.weight", (size_t)HEADS * WIDTH, D}, {"k_proj.weight", (size_t)KV_HEADS * WIDTH, D},
                   {"v_proj.weight", (size_t)KV_HEADS * WIDTH, D}, {"o_proj.weight", D, (size_t)HEADS * WIDTH},
                   {"q_proj.bias", (size_t)HEADS * WIDTH, 0}};
    static uint16_t data[D * HEADS * WIDTH + sizeof tensors / sizeof *tensors]; /* each begins one further on */
    mha_writer *writer;
    mha_error error;
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        data[i] = (uint16_t)(0x3c00 + i % 509 + (i % 2 ? 0x8000 : 0));
    expect(mkdtemp(directory) != NULL, "mkdtemp", directory);
    expect(mha_writer_create(path_of("whole.safetensors"), &writer, &error) == MHA_OK, "writer", error.message);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char name[60];
        const mha_view view = mha_view_of(data + i, MHA_BF16, tensors[i].in ? 2 : 1,
                                          (size_t[]){tensors[i].out, tensors[i].in});
        snprintf(name, sizeof name, "model.layers.0.self_attn.%s", tensors[i].name);
        expect(mha_writer_add(writer, name, &view, &error) == MHA_OK, "writer", error.message);
    }
    expect(mha_writer_commit(writer, &error) == MHA_OK, "writer", error.message);
    mha_writer_destroy(writer);
    FILE *from = fopen(path_of("whole.safetensors"), "rb"), *to = fopen(path_of("short.safetensors"), "wb");
    for (int byte, n = 0; n < 50000 && (byte = getc(from)) != EOF; n++)
        putc(byte, to);
    fclose(from);
    fclose(to);
}

static void remove_files(void)
{
    unlink(path_of("whole.safetensors"));
    unlink(path_of("short.safetensors"));
    rmdir(directory);
}

/* ---------------------------------------------------------------- what a rank reads and has */

static void check_scheme(mha_split_scheme scheme)
{
    mha_error error;
    mha_file *file;
    mha_layer *whole;
    mha_mpi_layer *layer;
    mha_params *table;
    failing counted = {0};
    const mha_allocator allocator = failing_allocator(&counted);
    const char *path = path_of("whole.safetensors");
    bytes_read = 0;
    expect(mha_file_open(path, &file, &error) == MHA_OK, "open", error.message);
    const size_t header = bytes_read;
    expect(mha_model_load_layer(file, &options, NULL, &whole, NULL, &error) == MHA_OK, "whole", error.message);
    const size_t data = bytes_read - header;
    expect(mha_params_create(&allocator, &table, NULL) == MHA_OK, "table", "");
    bytes_read = 0;
    mha_load_report report;
    expect(mha_mpi_layer_load(MPI_COMM_WORLD, scheme, path, &options, table, &layer, &report, &error) == MHA_OK,
           "load", error.message);
    const mha_totals totals = mha_params_totals(table, NULL);
    expect(bytes_read == header + 2 * totals.parameters, "bytes", "not 2 for each number of this rank");
    /* Beside the numbers: the rows of the table, and nothing that grows with the layer. */
    expect(counted.peak_bytes <= totals.parameter_bytes + 16384, "memory", "more than this rank's numbers");
    expect(report.tensors == 5 && strcmp(report.layer.scheme, "LLaMA") == 0, "report", report.layer.scheme);
    if (scheme == MHA_SPLIT_TENSOR) { /* all ranks together read the file, and twice what they store twice */
        mha_mpi_sum sum;
        uint64_t own = 2 * totals.parameters, all;
        MPI_Allreduce(&own, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        expect(mha_mpi_totals(layer, &sum, &error) == MHA_OK, "totals", error.message);
        expect(all == 2 * sum.stored && data == 2 * sum.unique, "bytes", "of all ranks are not those that are stored");
        expect(ranks == 1 || own <= data / (uint64_t)ranks + data / 2, "bytes", "nearly the whole on one rank");
    }
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_tensor *mine = mha_layer_weight(mha_mpi_layer_own(layer), (mha_weight)w),
                         *theirs = mha_layer_weight(whole, (mha_weight)w);
        mha_split split = {.scheme = scheme, .ranks = (size_t)ranks, .config = *mha_mpi_layer_config(layer)};
        expect(mha_split_check(&split, &error) == MHA_OK, "split", error.message);
        const mha_view view = theirs ? mha_tensor_view(theirs) : (mha_view){0},
                       slice = mha_split_slice(&split, (size_t)rank, (mha_weight)w, &view);
        mha_difference d = {0};
        const mha_view found = mine ? mha_tensor_view(mine) : (mha_view){0};
        expect((mine != NULL) == (slice.data != NULL), mha_weight_at((mha_weight)w)->name, "on this rank or not");
        if (mine)
            expect(mha_compare(&found, &slice, 0, 0, &d, &error) == MHA_OK && d.mismatches == 0,
                   mha_weight_at((mha_weight)w)->name, "other numbers than in the whole layer");
    }
    mha_mpi_layer_destroy(layer);
    mha_params_destroy(table);
    expect(counted.live_blocks == 0 && counted.bugs == 0, "memory", "was not given back");
    mha_layer_destroy(whole);
    mha_file_close(file);
}

/* ---------------------------------------------------------------- one rank that cannot */

static void refusals(mha_split_scheme scheme)
{
    const bool last = rank == ranks - 1;
    mha_error error;
    mha_mpi_layer *layer = NULL;
    const char *whole = path_of("whole.safetensors");
    mha_status status = mha_mpi_layer_load(MPI_COMM_WORLD, scheme, last ? path_of("short.safetensors") : whole,
                                           &options, NULL, &layer, NULL, &error);
    expect_agreed("a short file", status, MHA_FORMAT, &error, "");
    status = mha_mpi_layer_load(MPI_COMM_WORLD, scheme, last ? path_of("nothere") : whole, &options, NULL, &layer, NULL,
                                &error);
    expect_agreed("no file", status, MHA_NOT_FOUND, &error, "found none");
    const mha_load_options other = {.n_heads = HEADS, .kv_heads = KV_HEADS, .layer = last ? "1" : NULL};
    status = mha_mpi_layer_load(MPI_COMM_WORLD, scheme, whole, &other, NULL, &layer, NULL, &error);
    expect_agreed("no layer", status, MHA_NOT_FOUND, &error, "found no prefix '1'");
    const mha_load_options halves = {.n_heads = last ? HEADS / 2 : HEADS, .d_k = last ? 2 * WIDTH : WIDTH};
    status = mha_mpi_layer_load(MPI_COMM_WORLD, scheme, whole, &halves, NULL, &layer, NULL, &error);
    if (ranks > 1 && HEADS / 2 % ranks == 0 && scheme == MHA_SPLIT_TENSOR)
        expect_agreed("other heads", status, MHA_INVALID, &error, "found different ones");
    if (status == MHA_OK)
        mha_mpi_layer_destroy(layer);
    for (size_t at = 2;; at++) { /* the first block is the table */
        failing f = {.fail_at = last ? at : 0};
        const mha_allocator allocator = failing_allocator(&f);
        mha_params *table;
        expect(mha_params_create(&allocator, &table, NULL) == MHA_OK, "table", "");
        status = mha_mpi_layer_load(MPI_COMM_WORLD, scheme, whole, &options, table, &layer, NULL, &error);
        if (status == MHA_OK)
            mha_mpi_layer_destroy(layer);
        else
            expect_agreed("memory", status, MHA_NO_MEMORY, &error, "");
        mha_params_destroy(table);
        expect(f.live_blocks == 0, "memory", "was not given back");
        if (status == MHA_OK) {
            expect(at > 6, "memory", "ended at fewer than five places");
            return;
        }
    }
}

int main(int argc, char **argv)
{
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == 0)
        write_files();
    MPI_Bcast(directory, (int)sizeof directory, MPI_CHAR, 0, MPI_COMM_WORLD);
    for (int scheme = 0; scheme < MHA_SPLIT_COUNT; scheme++) {
        mha_error error;
        const mha_config config = {.d_model = D, .n_heads = HEADS, .kv_heads = KV_HEADS, .d_k = WIDTH};
        mha_split split = {.scheme = (mha_split_scheme)scheme, .ranks = (size_t)ranks, .config = config};
        if (mha_split_check(&split, &error) != MHA_OK)
            continue;
        check_scheme((mha_split_scheme)scheme);
        refusals((mha_split_scheme)scheme);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        remove_files();
        printf("%d ranks read their own parts\n", ranks);
    }
    MPI_Finalize();
    return 0;
}
