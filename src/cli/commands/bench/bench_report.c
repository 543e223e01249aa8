/* Says what mha bench measured: as a table, as CSV and as JSON. */
#include "cli/commands/bench/bench_report.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The numeric columns: name in CSV and JSON, title, format. */
static const struct {
    const char *name, *title, *format;
    size_t offset;
} numbers[] = {
    {"ms_min", ">ms", "%.4g", offsetof(bench_row, ms_min)},
    {"ms_median", "?>median", "%.4g", offsetof(bench_row, ms_median)},
    {"gflops", ">GFLOP/s", "%.1f", offsetof(bench_row, gflops)},
    {"percent_of_peak", ">% of peak", "%.1f", offsetof(bench_row, percent_of_peak)},
    {"flop_per_byte", "?>flop/byte", "%.3g", offsetof(bench_row, flop_per_byte)},
    {"gbs", ">GB/s", "%.1f", offsetof(bench_row, gbs)},
    {"percent_of_reads", ">% of reads", "%.1f", offsetof(bench_row, percent_of_reads)},
    {"percent_of_same_reads", "?>% of same", "%.1f", offsetof(bench_row, percent_of_same_reads)},
    {"tokens_per_s", ">tokens/s", "%.0f", offsetof(bench_row, tokens_per_s)},
    {"workspace_mib", "?>workspace", "%.1f", offsetof(bench_row, workspace_mib)},
    {"grew_mib", "?>grew", "%.1f", offsetof(bench_row, grew_mib)},
    {"rss_mib", "?>MiB", "%.0f", offsetof(bench_row, rss_mib)},
    {"error_of_bound", ">error / bound", "%.2g", offsetof(bench_row, error_of_bound)},
};
enum {
    N_NUMBERS = sizeof numbers / sizeof *numbers,
    N_WORDS = 4,
    N_TYPES = 3,
    N_COLUMNS = N_WORDS + N_NUMBERS + N_TYPES
};

static double number_of(const bench_row *row, size_t i)
{
    double x;
    memcpy(&x, (const char *)row + numbers[i].offset, sizeof x);
    return x;
}

void bench_print_table(const bench *b, table_style style)
{
    const char *titles[N_COLUMNS] = {"shape", "part", "path", ">threads"};
    const bool csv = style == TABLE_CSV,
               types = csv || given(b->args, OPT_BENCH_DTYPE) || given(b->args, OPT_CACHE_DTYPE) ||
                       given(b->args, OPT_RUN_PRECISION);
    for (size_t i = 0; i < N_NUMBERS; i++)
        titles[N_WORDS + i] = csv ? numbers[i].name : numbers[i].title;
    titles[N_WORDS + N_NUMBERS] = csv ? "weights_dtype" : "weights";
    titles[N_WORDS + N_NUMBERS + 1] = csv ? "cache_dtype" : "cache";
    titles[N_WORDS + N_NUMBERS + 2] = "precision";
    table *t = table_create(style, types ? N_COLUMNS : N_COLUMNS - N_TYPES, titles);
    for (size_t i = 0; i < b->n_rows; i++) {
        const bench_row *r = &b->rows[i];
        table_cell(t, r->shape);
        table_cell(t, r->part);
        table_cell(t, r->path);
        table_format(t, "%d", r->threads);
        for (size_t k = 0; k < N_NUMBERS; k++) {
            char text[SHORT_TEXT] = "";
            if (!isnan(number_of(r, k)))
                snprintf(text, sizeof text, numbers[k].format, number_of(r, k));
            table_cell(t, text);
        }
        if (types) {
            table_cell(t, r->weights ? r->weights : "");
            table_cell(t, r->cache ? r->cache : "");
            table_cell(t, r->precision);
        }
    }
    table_print(t);
}

void bench_print_text(const bench *b)
{
    printf("%s, %s, BLAS %s (%s)\n", mha_isa(), mha_version(), mha_blas_name(), mha_blas_threading());
    for (size_t i = 0; i < b->n_limits; i++)
        printf("  %d thread%s: %.1f GFLOP/s of multiply-adds, %.1f GB/s of reads from memory (512 MiB), the best of "
               "all rounds\n",
               b->limits[i].threads, b->limits[i].threads == 1 ? "" : "s", b->limits[i].peak_gflops,
               b->limits[i].read_gbs);
    putchar('\n');
    bench_print_table(b, TABLE_TEXT);
    write_prose("\nms is the best round, median the middle one. A multiply-add counts as two operations: a product "
                "of (m, k) and (k, n) is 2mnk; the core is 4 B h d_k for each pair of a query and a key that it "
                "sees, others are not counted; softmax is not counted; proj is the projections alone, 8 B T d^2 "
                "where all widths are d; layer is both. Programs that count hidden pairs too show up to twice as "
                "many for a causal core. flop/byte are over the bytes that have to move at least: inputs, weights, "
                "cache and mask read once, the output written once. tokens/s are of one layer; with --preset or "
                "--config those of a model are of all its attention layers one after the other (decode: those that "
                "keep a cache of what they have written), in their shape alone: norms, rotations, windows, biases by "
                "position and relative terms are left out. GB/s is shown where one "
                "token reads a cache: cache and weights, once, compared with reading 512 MiB, which is reading "
                "from memory, and with reading as many bytes again and again, of which the caches keep a part. "
                "Memory is in MiB: the workspace the library asks for, how much the process grew while it ran, and "
                "the whole process, inputs included, at its largest. Every path was first judged against float64; "
                "the last column is its largest error as a part of the error bound.");
}

/* Writes the processor's name into `name`; "" where the system does not state it. */
static const char *cpu_name(char name[128])
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    *name = 0;
    while (f && !*name && fgets(line, sizeof line, f))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':'))
            snprintf(name, 128, "%.*s", (int)strcspn(strchr(line, ':') + 2, "\n"), strchr(line, ':') + 2);
    if (f)
        fclose(f);
    return name;
}

void bench_write_json(const bench *b)
{
    char cpu[128];
    const limits *all = &b->limits[b->n_limits - 1];
    json_t *rows = json_array(), *each = json_array();
    for (size_t i = 0; i < b->n_limits; i++)
        json_array_append_new(each, json_pack("{si so so}", "threads", b->limits[i].threads, "peak_gflops",
                                              json_number(b->limits[i].peak_gflops), "read_gbs",
                                              json_number(b->limits[i].read_gbs)));
    for (size_t i = 0; i < b->n_rows; i++) {
        const bench_row *r = &b->rows[i];
        json_t *row = json_pack("{ss ss ss si sI so so ss}", "shape", r->shape, "part", r->part, "path", r->path,
                                "threads", r->threads, "rounds", (json_int_t)r->rounds, "weights_dtype",
                                json_text(r->weights), "cache_dtype", json_text(r->cache), "precision", r->precision);
        for (size_t k = 0; k < N_NUMBERS; k++)
            json_object_set_new(row, numbers[k].name, json_number(number_of(r, k)));
        json_array_append_new(rows, row);
    }
    json_print(json_pack("{s{so ss ss ss si so so so} so}", "machine", "cpu", json_text(*cpu_name(cpu) ? cpu : NULL),
                         "isa", mha_isa(), "blas", mha_blas_name(), "blas_threading", mha_blas_threading(), "threads",
                         all->threads, "peak_gflops", json_number(all->peak_gflops), "read_gbs",
                         json_number(all->read_gbs), "limits", each, "rows", rows));
}
