/* mha bench: throughput, against the machine's limit measured in the same rounds. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/bench_plot.h"
#include "cli/bench_run.h"
#include "cli/options.h"
#include "cli/print.h"
#include "cli/request.h"

enum { MOST_WAYS = 8, MOST_ROUNDS = 1000 };

/* The limits of the machine at one thread count: the best seen in any round. */
typedef struct limits {
    int threads;
    double peak_gflops, read_gbs;
} limits;

typedef struct bench {
    const arguments *args;
    limits limits[2];
    size_t n_limits;
    bench_row *rows;
    size_t n_rows;
} bench;

/* ---------------------------------------------------------------- memory */

/* The most memory the process held since the last reset, in MiB; 0 where the system does not say. */
static double most_memory(void)
{
    double mib = 0;
    char line[128];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "VmHWM:", 6) == 0)
            mib = atof(line + 6) / 1024;
    if (f)
        fclose(f);
    return mib;
}

static void reset_memory(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (f) {
        fputs("5", f);
        fclose(f);
    }
}

/* ---------------------------------------------------------------- progress */

static void progress(const bench *b, const bench_shape *shape, const char *part, size_t round, size_t rounds)
{
    if (isatty(STDERR_FILENO) && !given(b->args, OPT_QUIET))
        fprintf(stderr, "\r\033[K%s %s, round %zu of %zu", shape->name, part, round, rounds);
}

static void end_progress(const bench *b)
{
    if (isatty(STDERR_FILENO) && !given(b->args, OPT_QUIET))
        fputs("\r\033[K", stderr);
}

/* ---------------------------------------------------------------- one shape */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure_limits(bench *b)
{
    for (size_t i = 0; i < b->n_limits; i++) {
        double gflops = 0, gbs = 0;
        if (mha_machine_limits(b->limits[i].threads, &gflops, &gbs) != MHA_OK)
            continue;
        b->limits[i].peak_gflops = gflops > b->limits[i].peak_gflops ? gflops : b->limits[i].peak_gflops;
        b->limits[i].read_gbs = gbs > b->limits[i].read_gbs ? gbs : b->limits[i].read_gbs;
    }
}

/* A path with a thread count, and how long each round took. */
typedef struct way {
    mha_path asked, taken;
    size_t limit;
    double ms[MOST_ROUNDS], mib;
} way;

static size_t choose_ways(const bench *b, way *ways)
{
    size_t n = 0, path = b->args->option[OPT_PATH].choice; /* auto: both float paths, side by side */
    for (size_t i = 0; i < b->n_limits; i++) {
        if (path != 0) {
            ways[n++] = (way){.asked = (mha_path)path, .limit = i};
            continue;
        }
        ways[n++] = (way){.asked = MHA_PATH_FAST, .limit = i};
        ways[n++] = (way){.asked = MHA_PATH_BLAS, .limit = i};
    }
    return n;
}

static void add_row(bench *b, const bench_subject *subject, way *w, size_t rounds, double error)
{
    qsort(w->ms, rounds, sizeof *w->ms, by_size);
    const bench_shape *s = &subject->shape;
    bench_row row = {.shape = s->name, .path = mha_path_name(w->taken), .part = subject->layer ? "layer" : "core",
                     .threads = b->limits[w->limit].threads, .limit = w->limit, .length = s->T_k, .ms_min = w->ms[0],
                     .ms_median = w->ms[rounds / 2], .rss_mib = w->mib, .error = error};
    row.gflops = bench_flops(s, subject->layer) / row.ms_min * 1e-6;
    row.tokens_per_s = (double)(s->B * s->T_q) / row.ms_min * 1e3;
    row.operations_per_byte = bench_flops(s, subject->layer) / bench_bytes(s, subject->layer);
    row.gbs = bench_decodes(s) ? bench_bytes(s, subject->layer) / row.ms_min * 1e-6 : 0;
    bench_row *more = obtain(b->n_rows + 1, sizeof *more);
    if (b->n_rows)
        memcpy(more, b->rows, b->n_rows * sizeof *more);
    more[b->n_rows++] = row;
    free(b->rows);
    b->rows = more;
}

/* Judges every way first, then lets them take turns. */
static int run_shape(bench *b, const bench_shape *shape, bool layer)
{
    size_t rounds = count_of(b->args, OPT_ROUNDS);
    bench_subject subject;
    way *ways = obtain(MOST_WAYS, sizeof *ways);
    double worst[MOST_WAYS] = {0};
    size_t n = choose_ways(b, ways);
    int code = bench_subject_make(&subject, shape, layer, !given(b->args, OPT_NO_PACK));
    for (size_t i = 0; i < n && code == EXIT_DONE; i++) {
        progress(b, shape, layer ? "layer" : "core", 0, rounds);
        size_t judged = 0; /* once for each path: thread counts give the same bits */
        while (judged < i && ways[judged].asked != ways[i].asked)
            judged++;
        worst[i] = worst[judged];
        if (judged < i)
            continue;
        code = bench_subject_check(&subject, ways[i].asked, b->limits[ways[i].limit].threads, &worst[i]);
        if (code == EXIT_DONE && !(worst[i] <= 1)) {
            end_progress(b);
            refuse(shape->name, "path %s is wrong: %g times the error bound from the float64 result",
                   mha_path_name(ways[i].asked), worst[i]);
            code = EXIT_NO;
        }
    }
    for (size_t round = 0; round < rounds && code == EXIT_DONE; round++) {
        progress(b, shape, layer ? "layer" : "core", round + 1, rounds);
        measure_limits(b);
        for (size_t i = 0; i < n && code == EXIT_DONE; i++) {
            if (round == 0)
                reset_memory();
            ways[i].ms[round] = bench_subject_run(&subject, ways[i].asked, b->limits[ways[i].limit].threads, &ways[i].taken);
            if (ways[i].ms[round] < 0)
                code = EXIT_REQUEST;
            if (round == 0)
                ways[i].mib = most_memory();
        }
    }
    for (size_t i = 0; i < n && code == EXIT_DONE; i++)
        add_row(b, &subject, &ways[i], rounds, worst[i]);
    bench_subject_free(&subject);
    free(ways);
    return code;
}

/* ---------------------------------------------------------------- which shapes */

static int refuse_shape(const char *text)
{
    char known[512] = "";
    for (size_t i = 0; bench_shape_at(i); i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", bench_shape_at(i)->name);
    return refuse("--shape", "expected B,Tq,Tk,d_model,h[,kv=N][,dk=N][,causal][,nobias] or one of %s; found \"%s\"", known, text);
}

static int run_both_parts(bench *b, const bench_shape *shape)
{
    size_t part = b->args->option[OPT_PART].choice; /* both, layer, core */
    int code = part == 2 ? EXIT_DONE : run_shape(b, shape, true);
    return code == EXIT_DONE && part != 1 ? run_shape(b, shape, false) : code;
}

static int run_shapes(bench *b)
{
    const option_value *asked = &b->args->option[OPT_SHAPE];
    int code = EXIT_DONE;
    for (size_t i = 0; i < asked->n_texts; i++) { /* all are read before any is run */
        bench_shape shape;
        if (!bench_shape_read(asked->texts[i], &shape))
            return refuse_shape(asked->texts[i]);
    }
    for (size_t i = 0; i < asked->n_texts && code == EXIT_DONE; i++) {
        bench_shape shape;
        if (bench_shape_read(asked->texts[i], &shape))
            code = run_both_parts(b, &shape);
    }
    for (size_t i = 0; asked->n_texts == 0 && bench_shape_at(i) && code == EXIT_DONE; i++)
        if (bench_shape_at(i)->standard)
            code = run_both_parts(b, bench_shape_at(i));
    return code;
}

/* ---------------------------------------------------------------- what it shows */

static double percent_of_peak(const bench *b, const bench_row *row)
{
    return 100 * row->gflops / b->limits[row->limit].peak_gflops;
}

static double percent_of_reads(const bench *b, const bench_row *row)
{
    return 100 * row->gbs / b->limits[row->limit].read_gbs;
}

static void print_table(const bench *b, table_style style)
{
    static const char *const titles[] = {"shape", "part", "path", ">threads", ">ms", ">median", ">GFLOP/s", ">% of peak",
                                         ">GB/s", ">% of reads", ">tokens/s", ">MiB", ">error / bound"};
    table *t = table_create(style, sizeof titles / sizeof *titles, titles);
    for (size_t i = 0; i < b->n_rows; i++) {
        const bench_row *r = &b->rows[i];
        table_cell(t, r->shape);
        table_cell(t, r->part);
        table_cell(t, r->path);
        table_format(t, "%d", r->threads);
        table_format(t, "%.4g", r->ms_min);
        table_format(t, "%.4g", r->ms_median);
        table_format(t, "%.1f", r->gflops);
        table_format(t, "%.1f", percent_of_peak(b, r));
        if (r->gbs > 0) {
            table_format(t, "%.1f", r->gbs);
            table_format(t, "%.1f", percent_of_reads(b, r));
        } else {
            table_cell(t, "");
            table_cell(t, "");
        }
        table_format(t, "%.0f", r->tokens_per_s);
        table_format(t, "%.0f", r->rss_mib);
        table_format(t, "%.2g", r->error);
    }
    table_print(t);
}

static void print_text(const bench *b)
{
    printf("%s, %s, BLAS %s (%s)\n", mha_isa(), mha_version(), mha_blas_name(), mha_blas_threading());
    for (size_t i = 0; i < b->n_limits; i++)
        printf("  %d thread%s: %.1f GFLOP/s of multiply-adds, %.1f GB/s of reads, the best of all rounds\n",
               b->limits[i].threads, b->limits[i].threads == 1 ? "" : "s", b->limits[i].peak_gflops, b->limits[i].read_gbs);
    putchar('\n');
    print_table(b, TABLE_TEXT);
    write_prose("\nms is the best round, median the middle one. A multiply-add counts as two operations: a product of (m, k) and "
                "(k, n) is 2mnk; the core is 4 B Tq Tk h d_k, half of it when causal; softmax is not counted. GB/s is shown where "
                "one token reads a cache: cache and weights, once. Every path was first judged against float64; the last column is "
                "its largest error as a part of the error bound.");
}

static void write_json(const bench *b)
{
    const limits *all = &b->limits[b->n_limits - 1];
    json_t *rows = json_array(), *each = json_array();
    for (size_t i = 0; i < b->n_limits; i++)
        json_array_append_new(each, json_pack("{si so so}", "threads", b->limits[i].threads, "peak_gflops",
                                              json_number(b->limits[i].peak_gflops), "read_gbs", json_number(b->limits[i].read_gbs)));
    for (size_t i = 0; i < b->n_rows; i++) {
        const bench_row *r = &b->rows[i];
        json_array_append_new(
            rows, json_pack("{ss ss si ss so so so so so so so so so}", "shape", r->shape, "path", r->path, "threads", r->threads,
                            "part", r->part, "ms_min", json_milliseconds(r->ms_min), "ms_median", json_milliseconds(r->ms_median),
                            "gflops", json_number(r->gflops), "percent_of_peak", json_number(percent_of_peak(b, r)), "gbs",
                            r->gbs > 0 ? json_number(r->gbs) : json_null(), "percent_of_reads",
                            r->gbs > 0 ? json_number(percent_of_reads(b, r)) : json_null(), "tokens_per_s",
                            json_number(r->tokens_per_s), "rss_mib", json_number(r->rss_mib), "error_of_bound",
                            json_number(r->error)));
    }
    json_print(json_pack("{s{so ss ss ss si so so so} so}", "machine", "cpu", json_text(bench_cpu()), "isa", mha_isa(), "blas",
                         mha_blas_name(), "blas_threading", mha_blas_threading(), "threads", all->threads, "peak_gflops",
                         json_number(all->peak_gflops), "read_gbs", json_number(all->read_gbs), "limits", each, "rows", rows));
}

int run_bench(const arguments *args)
{
    bench b = {.args = args};
    int code = request_isa(args), most = given(args, OPT_THREADS) ? (int)count_of(args, OPT_THREADS) : mha_threads_available();
    if (code != EXIT_DONE)
        return code;
    if (!given(args, OPT_THREADS) && most > 1)
        b.limits[b.n_limits++].threads = 1;
    b.limits[b.n_limits++].threads = most;
    code = run_shapes(&b);
    end_progress(&b);
    if (code == EXIT_DONE && given(args, OPT_JSON))
        write_json(&b);
    else if (code == EXIT_DONE && given(args, OPT_CSV))
        print_table(&b, TABLE_CSV);
    else if (code == EXIT_DONE && !given(args, OPT_QUIET))
        print_text(&b);
    if (code == EXIT_DONE && given(args, OPT_PLOT)) {
        double peak[2], reads[2];
        for (size_t i = 0; i < b.n_limits; i++)
            peak[i] = b.limits[i].peak_gflops, reads[i] = b.limits[i].read_gbs;
        code = bench_plot(args->option[OPT_PLOT].text, b.rows, b.n_rows, peak, reads, b.n_limits);
    }
    free(b.rows);
    return code;
}
