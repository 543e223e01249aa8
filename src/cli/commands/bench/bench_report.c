/* Says what mha bench measures: rows of a table or of CSV as they come, or JSON at the end. */
#include "cli/commands/bench/bench_report.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/setup/layer.h"

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

static bool shows_types(const arguments *args)
{
    return given(args, OPT_CSV) || given(args, OPT_BENCH_DTYPE) || given(args, OPT_CACHE_DTYPE) ||
           given(args, OPT_RUN_PRECISION);
}

static bool is_silent(const arguments *args)
{
    return given(args, OPT_JSON) || (given(args, OPT_QUIET) && !given(args, OPT_CSV));
}

static void begin(bench *b)
{
    static const char *titles[N_COLUMNS] = {"shape", "part", "path", ">threads"};
    enum { PART = 5, PATH = 5, NUMBER = 6, TYPE = 7 };
    size_t widths[N_COLUMNS] = {b->widest, given(b->args, OPT_PRESET) || given(b->args, OPT_CONFIG) ? 10 : PART, PATH};
    const bool csv = given(b->args, OPT_CSV);
    char cpu[128], day[32] = "";
    const time_t now = time(NULL);
    for (size_t i = 0; i < N_NUMBERS; i++)
        titles[N_WORDS + i] = csv ? numbers[i].name : numbers[i].title;
    titles[N_WORDS + N_NUMBERS] = csv ? "weights_dtype" : "weights";
    titles[N_WORDS + N_NUMBERS + 1] = csv ? "cache_dtype" : "cache";
    titles[N_WORDS + N_NUMBERS + 2] = "precision";
    for (size_t c = N_WORDS; c < N_COLUMNS; c++)
        widths[c] = c < N_WORDS + N_NUMBERS ? NUMBER : TYPE;
    if (!csv) {
        strftime(day, sizeof day, "%Y-%m-%d", localtime(&now));
        say_harmless("%s, %s, %s, BLAS %s (%s), %s", *cpu_name(cpu) ? cpu : "a processor without a name", mha_isa(),
                       mha_version(), mha_blas_name(), mha_blas_threading(), day);
        char *random = random_words(b->args, true, true);
        say("\n%s\n\n", random);
        free(random);
    }
    b->table = table_begin(csv ? TABLE_CSV : TABLE_TEXT, shows_types(b->args) ? N_COLUMNS : N_COLUMNS - N_TYPES, titles,
                           widths);
}

/* Shows one row. */
static void show_row(table *t, const bench_row *r, bool types)
{
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

void bench_show(bench *b)
{
    for (size_t i = 0; i < b->n_rows; i++) {
        bench_row *row = &b->rows[i];
        row->percent_of_peak = 100 * row->gflops / b->limits[row->limit].peak_gflops;
        row->percent_of_reads = 100 * row->gbs / b->limits[row->limit].read_gbs;
        row->percent_of_same_reads = row->same_gbs > 0 ? 100 * row->gbs / row->same_gbs : NAN;
    }
    if (b->n_rows > b->written && !b->table && !is_silent(b->args))
        begin(b);
    for (; b->table && b->written < b->n_rows; b->written++)
        show_row(b->table, &b->rows[b->written], shows_types(b->args));
}

/* The fastest row of the same part of a shape. */
static const bench_row *fastest_like(const bench *b, const bench_row *like)
{
    const bench_row *best = like;
    for (size_t i = 0; i < b->n_rows; i++) {
        const bench_row *r = &b->rows[i];
        if (strcmp(r->shape, like->shape) == 0 && strcmp(r->part, like->part) == 0 && r->ms_min < best->ms_min)
            best = r;
    }
    return best;
}

/* What it comes to, if one shape was measured, or a model: the fastest way, and how far its rounds differ. */
static void print_numbers(const bench *b)
{
    const double noise = 1.2; /* middle round / best; less is quiet */
    char tokens[SHORT_TEXT];
    bool one_shape = true;
    for (size_t i = 0; i < b->n_rows; i++)
        one_shape &= strcmp(b->rows[i].shape, b->rows->shape) == 0;
    for (size_t i = 0; i < b->n_rows; i++) {
        const bench_row *r = &b->rows[i];
        const bool is_sum = isnan(r->error_of_bound), reads = !isnan(r->gbs);
        if ((one_shape ? strcmp(r->part, b->rows->part) != 0 : !is_sum) || fastest_like(b, r) != r)
            continue;
        say("%s, %s, %d thread%s: %s%s tokens/s%s", r->shape, r->path, r->threads, r->threads == 1 ? "" : "s",
               bold(), count_text(tokens, (uint64_t)llround(r->tokens_per_s)), plain());
        if (!is_sum)
            say(", %.0f %% of the %s of so many threads", reads ? r->percent_of_reads : r->percent_of_peak,
                   reads ? "reads from memory" : "multiply-adds");
        if (r->rounds > 2 && r->ms_median > noise * r->ms_min)
            say("; the middle round took %.1f times as long as the best: the machine was busy",
                   r->ms_median / r->ms_min);
        say("\n");
    }
}

void bench_end(bench *b)
{
    if (is_silent(b->args))
        return;
    if (!b->table)
        begin(b);
    if (given(b->args, OPT_CSV))
        return;
    say("\n");
    for (size_t i = 0; i < b->n_limits; i++)
        say("  %d thread%s: %.1f GFLOP/s of multiply-adds, %.1f GB/s of reads from memory (512 MiB), the best of "
               "all rounds\n",
               b->limits[i].threads, b->limits[i].threads == 1 ? "" : "s", b->limits[i].peak_gflops,
               b->limits[i].read_gbs);
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
                "the last column is its largest error as a part of the error bound. Percentages are of the best limit "
                "that was measured before their row.\n");
    print_numbers(b);
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
    char *random = random_words(b->args, true, true);
    json_print(json_pack("{s{so ss ss ss si so so so} so so}", "machine", "cpu", json_text(*cpu_name(cpu) ? cpu : NULL),
                         "isa", mha_isa(), "blas", mha_blas_name(), "blas_threading", mha_blas_threading(), "threads",
                         all->threads, "peak_gflops", json_number(all->peak_gflops), "read_gbs",
                         json_number(all->read_gbs), "limits", each, "random", json_text(random), "rows", rows));
    free(random);
}
