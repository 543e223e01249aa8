/* Says what mha bench measures: rows of text or of CSV as they come; Markdown, LaTeX or JSON at the end. */
#include "cli/commands/bench/bench.h"

#include <math.h>
#include <time.h>

/* The numeric columns: name in CSV and JSON, title, format. Those without `usual` are shown with --wide. */
static const struct {
    const char *name, *title, *format;
    size_t offset;
    bool usual;
} numbers[] = {
    {"ms_min", ">ms", "%.4g", offsetof(bench_row, ms_min), true},
    {"ms_median", ">median", "%.4g", offsetof(bench_row, ms_median), false},
    {"gflops", ">GFLOP/s", "%.1f", offsetof(bench_row, gflops), true},
    {"percent_of_peak", ">% of peak", "%.1f", offsetof(bench_row, percent_of_peak), true},
    {"flop_per_byte", ">flop/byte", "%.3g", offsetof(bench_row, flop_per_byte), false},
    {"gbs", ">GB/s", "%.1f", offsetof(bench_row, gbs), false},
    {"percent_of_reads", ">% of reads", "%.1f", offsetof(bench_row, percent_of_reads), false},
    {"percent_of_same_reads", ">% of same", "%.1f", offsetof(bench_row, percent_of_same_reads), false},
    {"tokens_per_s", ">tokens/s", "%.0f", offsetof(bench_row, tokens_per_s), false},
    {"workspace_mib", ">workspace", "%.1f", offsetof(bench_row, workspace_mib), false},
    {"grew_mib", ">grew", "%.1f", offsetof(bench_row, grew_mib), false},
    {"rss_mib", ">MiB", "%.0f", offsetof(bench_row, rss_mib), false},
    {"error_of_bound", ">error / bound", "%.2g", offsetof(bench_row, error_of_bound), false},
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

/* The processor's name; NULL where the system does not state it. */
static const char *cpu_name(void)
{
    char line[256];
    const char *name = NULL;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !name && fgets(line, sizeof line, f))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':'))
            name = text_of("%.*s", (int)strcspn(strchr(line, ':') + 2, "\n"), strchr(line, ':') + 2);
    if (f)
        fclose(f);
    return name && *name ? name : NULL;
}

const char *bench_cpu(void)
{
    const char *name = cpu_name();
    return name ? name : "a processor without a name";
}

const char *bench_day(void)
{
    char day[32] = "";
    const time_t now = time(NULL);
    strftime(day, sizeof day, "%Y-%m-%d", localtime(&now));
    return text_of("%s", day);
}

bool bench_writes_json(const bench *b)
{
    return given(b->args, OPT_JSON);
}

static bool is_silent(const bench *b)
{
    return bench_writes_json(b) || (given(b->args, OPT_QUIET) && tables_style() == TABLE_TEXT);
}

static json_t *row_record(const bench_row *r)
{
    json_t *row = record_of("shape", J(r->shape), "part", J(r->part), "path", J(r->path), "threads", J(r->threads),
                            "rounds", J(r->rounds), "weights_dtype", J(r->weights), "cache_dtype", J(r->cache),
                            "precision", J(r->precision), NULL);
    for (size_t k = 0; k < N_NUMBERS; k++)
        record_with(row, numbers[k].name, isnan(number_of(r, k)) ? json_null() : J(number_of(r, k)), NULL);
    return row;
}

static void begin(bench *b)
{
    static const char *const words[N_WORDS] = {"shape: shape", "part: part", "path: path", ">threads: threads: %d"};
    static const char *const types[2][N_TYPES] = {
        {"weights: weights_dtype", "cache: cache_dtype", "precision: precision"},
        {"weights_dtype: weights_dtype", "cache_dtype: cache_dtype", "precision: precision"}};
    enum { PART = 5, SUM = 10, PATH = 5, NUMBER = 6, TYPE = 7 };
    const char **columns = keep(obtain(N_COLUMNS, sizeof *columns));
    size_t widths[N_COLUMNS] = {b->widest, given(b->args, OPT_PRESET) || given(b->args, OPT_CONFIG) ? SUM : PART, PATH};
    size_t n = N_WORDS;
    const bool csv = tables_style() == TABLE_CSV, as_they_come = csv || tables_style() == TABLE_TEXT;
    const bool typed = csv || given(b->args, OPT_BENCH_DTYPE) || given(b->args, OPT_CACHE_DTYPE) ||
                       given(b->args, OPT_RUN_PRECISION);
    memcpy(columns, words, sizeof words);
    for (size_t i = 0; i < N_NUMBERS; i++)
        if (numbers[i].usual || csv || given(b->args, OPT_WIDE)) {
            columns[n] = text_of("%s: %s: %s", csv ? numbers[i].name : numbers[i].title, numbers[i].name,
                                 numbers[i].format);
            widths[n++] = NUMBER;
        }
    for (size_t i = 0; i < N_TYPES && typed; i++) {
        columns[n] = types[csv][i];
        widths[n++] = TYPE;
    }
    say_harmless("%s, %s, %s, BLAS %s (%s), %s", bench_cpu(), mha_isa(), mha_version(), mha_blas_name(),
                 mha_blas_threading(), bench_day());
    say("\n%s\n\n", random_words(b->args, true, true));
    b->table = as_they_come ? table_begin(n, columns, widths) : table_create(n, columns);
}

void bench_show(bench *b)
{
    progress_end();
    for (size_t i = 0; i < b->n_rows; i++) {
        bench_row *row = &b->rows[i];
        row->percent_of_peak = 100 * row->gflops / b->limits[row->limit].peak_gflops;
        row->percent_of_reads = 100 * row->gbs / b->limits[row->limit].read_gbs;
        row->percent_of_same_reads = row->same_gbs > 0 ? 100 * row->gbs / row->same_gbs : NAN;
    }
    if (b->n_rows > b->written && !b->table && !is_silent(b))
        begin(b);
    for (; b->table && b->written < b->n_rows; b->written++)
        report_row(b->table, row_record(&b->rows[b->written]));
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

/* The summary of each shape, or of a model: the fastest way, and how far its rounds differ. */
static void print_numbers(const bench *b)
{
    const double noise = 1.2; /* middle round / best; less is quiet */
    bool has_sums = false;
    for (size_t i = 0; i < b->n_rows; i++)
        has_sums |= isnan(b->rows[i].error_of_bound);
    for (size_t i = 0; i < b->n_rows; i++) {
        const bench_row *r = &b->rows[i];
        const bool is_sum = isnan(r->error_of_bound), reads = !isnan(r->gbs);
        if ((has_sums ? !is_sum : strcmp(r->part, b->rows->part) != 0) || fastest_like(b, r) != r)
            continue;
        say("%s, %s, %d thread%s: %s%s tokens/s%s", r->shape, r->path, r->threads, r->threads == 1 ? "" : "s", bold(),
            count_text((uint64_t)llround(r->tokens_per_s)), plain());
        if (!is_sum)
            say(", %.0f %% of this machine's %s", reads ? r->percent_of_reads : r->percent_of_peak,
                reads ? "reads from memory" : "peak");
        if (r->rounds > 2 && r->ms_median > noise * r->ms_min)
            say("; rounds differ by %.1f times: the machine was busy", r->ms_median / r->ms_min);
        say("\n");
    }
}

void bench_end(bench *b)
{
    if (is_silent(b))
        return;
    if (!b->table)
        begin(b);
    if (tables_style() == TABLE_MARKDOWN || tables_style() == TABLE_LATEX)
        table_print(b->table);
    else
        table_drop(b->table);
    b->table = NULL;
    say("\n");
    for (size_t i = 0; i < b->n_limits; i++)
        say("  %d thread%s: %.1f GFLOP/s of multiply-adds (the peak), %.1f GB/s of reads from memory\n",
            b->limits[i].threads, b->limits[i].threads == 1 ? "" : "s", b->limits[i].peak_gflops,
            b->limits[i].read_gbs);
    say("  %s\"mha help bench\" says what all numbers mean\n\n",
        given(b->args, OPT_WIDE) ? "" : "medians, reads, memory and errors: --wide or --json; ");
    print_numbers(b);
}

void bench_write_json(const bench *b)
{
    const limits *all = &b->limits[b->n_limits - 1];
    json_t *rows = json_array(), *each = json_array();
    for (size_t i = 0; i < b->n_limits; i++)
        json_array_append_new(each, record_of("threads", J(b->limits[i].threads), "peak_gflops",
                                              J(b->limits[i].peak_gflops), "read_gbs", J(b->limits[i].read_gbs), NULL));
    for (size_t i = 0; i < b->n_rows; i++)
        json_array_append_new(rows, row_record(&b->rows[i]));
    json_t *machine = record_of("cpu", J(cpu_name()), "isa", J(mha_isa()), "blas",
                                J(mha_blas_name()), "blas_threading", J(mha_blas_threading()), "threads",
                                J(all->threads), "peak_gflops", J(all->peak_gflops), "read_gbs", J(all->read_gbs),
                                "limits", each, NULL);
    json_print(record_of("machine", machine, "random", J(random_words(b->args, true, true)), "rows", rows, NULL));
}
