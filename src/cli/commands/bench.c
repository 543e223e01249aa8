/* mha bench: throughput, compared with the machine's limits measured in the same rounds. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/timed_run.h"
#include "cli/commands/commands.h"
#include "cli/output/picture_file.h"
#include "cli/output/print.h"
#include "picture/draw/bars.h"
#include "bench/machine_peak.h"

enum { MOST_WAYS = 8, MOST_ROUNDS = 1000 };

/* The limits of the machine at one thread count: the largest of all rounds. */
typedef struct limits {
    int threads;
    double peak_gflops, read_gbs;
    double same_gbs; /* reading as many bytes as the current shape reads */
} limits;

/* The results of one path for one part of a shape. */
typedef struct bench_row {
    const char *shape, *path, *part;
    const char *weights, *cache; /* their types; NULL where there are none */
    int threads;
    size_t limit; /* index of the limits with its thread count */
    size_t rounds;
    double ms_min, ms_median, gflops, tokens_per_s;
    double gbs, same_gbs;       /* reads of the shape, and reads of as many bytes alone; NaN where reads are no limit */
    double workspace_mib;       /* size of the library's workspace */
    double grew_mib, rss_mib;   /* growth of the process in the first run, workspace included; its peak */
    double error_of_bound;
    double percent_of_peak, percent_of_reads, percent_of_same_reads; /* computed after all rounds */
} bench_row;

/* The numeric columns: name in CSV and JSON, title, format. */
static const struct {
    const char *name, *title, *format;
    size_t offset;
} numbers[] = {
    {"ms_min", ">ms", "%.4g", offsetof(bench_row, ms_min)},
    {"ms_median", "?>median", "%.4g", offsetof(bench_row, ms_median)},
    {"gflops", ">GFLOP/s", "%.1f", offsetof(bench_row, gflops)},
    {"percent_of_peak", ">% of peak", "%.1f", offsetof(bench_row, percent_of_peak)},
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
    N_TYPES = 2,
    N_COLUMNS = N_WORDS + N_NUMBERS + N_TYPES
};

typedef struct bench {
    const arguments *args;
    limits limits[2];
    size_t n_limits;
    double judged[MHA_PATH_COUNT]; /* of the current shape's layer, by path: error / bound; negative: not yet judged */
    bench_row *rows;
    size_t n_rows, room;
} bench;

/* ---------------------------------------------------------------- memory */

/* Memory of the process now (VmRSS) or at most since the last reset (VmHWM), in MiB; 0 where it is unknown. */
static double memory(const char *which)
{
    double mib = 0;
    char line[128];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, which, strlen(which)) == 0)
            mib = atof(line + strlen(which) + 1) / 1024;
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

static void progress(const bench *b, const bench_shape *shape, bench_part part, size_t round, size_t rounds)
{
    if (isatty(STDERR_FILENO) && !given(b->args, OPT_QUIET))
        fprintf(stderr, "\r\033[K%s %s, round %zu of %zu", shape->name, bench_part_name(part), round, rounds);
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

static void keep_largest(double *largest, double x)
{
    *largest = x > *largest ? x : *largest;
}

static void measure_limits(bench *b, const bench_subject *subject, size_t round)
{
    bool reads = bench_decodes(&subject->shape);
    for (size_t i = 0; i < b->n_limits; i++) {
        limits *l = &b->limits[i];
        double gflops = 0, gbs = 0, same = 0;
        bool beyond = reads || (round == 0 && l->read_gbs == 0);
        (void)mha__machine_limits(l->threads, &gflops, beyond ? &gbs : NULL); /* 0 without memory for the measurement */
        keep_largest(&l->peak_gflops, gflops);
        keep_largest(&l->read_gbs, gbs);
        if (reads)
            (void)mha__machine_reads(l->threads, (size_t)bench_bytes(&subject->shape, subject->part), &same);
        keep_largest(&l->same_gbs, same);
    }
}

/* A path with a thread count, and its time in each round. */
typedef struct way {
    mha_path asked, taken;
    size_t limit;
    double ms[MOST_ROUNDS], mib, workspace_mib, grew_mib;
} way;

static size_t choose_ways(const bench *b, way *ways)
{
    size_t n = 0, path = b->args->option[OPT_PATH].choice; /* auto: both float paths */
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
    bench_row row = {.shape = s->name,
                     .path = mha_path_name(w->taken),
                     .part = bench_part_name(subject->part),
                     .threads = b->limits[w->limit].threads,
                     .limit = w->limit,
                     .ms_min = w->ms[0],
                     .ms_median = w->ms[rounds / 2],
                     .rounds = rounds,
                     .rss_mib = w->mib,
                     .workspace_mib = w->workspace_mib,
                     .grew_mib = w->grew_mib,
                     .error_of_bound = error};
    row.weights = subject->part == BENCH_CORE ? NULL : mha_dtype_name(s->weights);
    row.cache = !bench_decodes(s) || subject->part == BENCH_PROJ ? NULL : mha_dtype_name(s->cache);
    row.gflops = bench_flops(s, subject->part) / row.ms_min * 1e-6;
    row.tokens_per_s = (double)(s->B * s->T_q) / row.ms_min * 1e3;
    row.gbs = bench_decodes(s) ? bench_bytes(s, subject->part) / row.ms_min * 1e-6 : NAN;
    row.same_gbs = b->limits[w->limit].same_gbs;
    b->rows = obtain_more(b->rows, b->n_rows, &b->room, sizeof *b->rows);
    b->rows[b->n_rows++] = row;
}

/* Judges each path once, since thread counts give the same bits. The projections are judged with the whole layer. */
static int judge_ways(bench *b, bench_subject *subject, const way *ways, size_t n, double *worst)
{
    for (size_t i = 0; i < n; i++) {
        size_t judged = 0;
        while (judged < i && ways[judged].asked != ways[i].asked)
            judged++;
        worst[i] = judged < i ? worst[judged] : b->judged[ways[i].asked];
        if (judged < i || (subject->part == BENCH_PROJ && worst[i] >= 0))
            continue;
        mha_error error;
        const int threads = b->limits[b->n_limits - 1].threads;
        if (bench_subject_check(subject, ways[i].asked, threads, &worst[i], &error) != MHA_OK) {
            end_progress(b);
            return refuse_error("", &error);
        }
        if (!(worst[i] <= 1)) {
            end_progress(b); /* unreachable: the library is right */
            const char *path = mha_path_name(ways[i].asked); /* unreachable: as above */
            refuse(subject->shape.name, "%s is wrong by %g bounds", path, worst[i]); /* unreachable: as above */
            return EXIT_NO; /* unreachable: as above */
        }
        if (subject->part == BENCH_LAYER)
            b->judged[ways[i].asked] = worst[i];
    }
    return EXIT_DONE;
}

/* Runs one path in one round. The first round also measures its memory, with a new workspace. */
static int take_turn(const bench *b, bench_subject *subject, way *w, size_t round)
{
    mha_error error;
    double before = 0;
    if (round == 0) {
        bench_subject_forget(subject);
        reset_memory();
        before = memory("VmRSS");
    }
    const int threads = b->limits[w->limit].threads;
    if (bench_subject_run(subject, w->asked, threads, &w->taken, &w->ms[round], &error) != MHA_OK)
        return refuse_error("", &error); /* unreachable: the same call was judged */
    if (round == 0) {
        w->mib = memory("VmHWM");
        w->grew_mib = w->mib > before ? w->mib - before : 0;
        w->workspace_mib = (double)subject->needs_bytes / 1048576;
    }
    return EXIT_DONE;
}

/* Judges all paths and thread counts first, then runs them in turn. */
static int run_shape(bench *b, const bench_shape *shape, bench_part part)
{
    size_t rounds = count_of(b->args, OPT_ROUNDS);
    bench_subject subject;
    way *ways = obtain(MOST_WAYS, sizeof *ways);
    double worst[MOST_WAYS] = {0};
    size_t n = choose_ways(b, ways);
    for (size_t i = 0; i < b->n_limits; i++)
        b->limits[i].same_gbs = 0;
    progress(b, shape, part, 0, rounds);
    mha_error error;
    int code = EXIT_DONE;
    if (bench_subject_make(&subject, shape, part, !given(b->args, OPT_NO_PACK), &error) != MHA_OK)
        code = refuse_error("", &error);
    if (code == EXIT_DONE)
        code = judge_ways(b, &subject, ways, n, worst);
    time_t end = time(NULL) + (time_t)count_of(b->args, OPT_SECONDS);
    for (size_t round = 0; round < rounds && code == EXIT_DONE; round++) {
        progress(b, shape, part, round + 1, rounds);
        if (round >= 2 && time(NULL) > end) {
            rounds = round;
            break;
        }
        measure_limits(b, &subject, round);
        for (size_t i = 0; i < n && code == EXIT_DONE; i++)
            code = take_turn(b, &subject, &ways[i], round);
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
    return refuse("--shape", "expected B,Tq,Tk,d_model,h[,kv=N][,dk=N][,causal][,nobias] or one of %s; found \"%s\"",
                  known, text);
}

static bool wants_list(const option_value *asked)
{
    return asked->n_texts == 1 && strcmp(asked->texts[0], "list") == 0;
}

/* mha bench --shape list: the names of the shapes and what they stand for. */
static int list_shapes(const arguments *args)
{
    static const char *const titles[] = {"name", "B,Tq,Tk,d_model,h", ""};
    const bool json = given(args, OPT_JSON), quiet = given(args, OPT_QUIET) && !json;
    table *t = table_create(given(args, OPT_CSV) ? TABLE_CSV : TABLE_TEXT, sizeof titles / sizeof *titles, titles);
    json_t *list = json_array();
    const bench_shape *shape;
    for (size_t i = 0; (shape = bench_shape_at(i)); i++) {
        char text[BENCH_SHAPE_TEXT];
        bench_shape_text(text, shape);
        json_array_append_new(
            list, json_pack("{ss ss sb}", "name", shape->name, "shape", text, "standard", i < BENCH_STANDARD));
        table_cell(t, shape->name);
        table_cell(t, text);
        table_cell(t, i < BENCH_STANDARD ? "of the standard set" : "");
    }
    if (json || quiet)
        table_drop(t);
    else
        table_print(t);
    if (json)
        json_print(json_pack("{so}", "shapes", list));
    else
        json_decref(list);
    return EXIT_DONE;
}

static int run_parts(bench *b, const bench_shape *named)
{
    bench_shape with_types = *named, *shape = &with_types;
    shape->weights = dtype_of(b->args, OPT_BENCH_DTYPE);
    shape->cache = dtype_of(b->args, OPT_CACHE_DTYPE);
    enum { ALL, BOTH, ONE }; /* the choices of --part; from the third on, each is one part */
    size_t asked = b->args->option[OPT_PART].choice;
    int code = EXIT_DONE;
    for (int path = 0; path < MHA_PATH_COUNT; path++)
        b->judged[path] = -1;
    for (bench_part part = 0; part < BENCH_PARTS && code == EXIT_DONE; part++)
        if (asked == ALL || (asked == BOTH && part != BENCH_PROJ) || asked == ONE + (size_t)part)
            code = run_shape(b, shape, part);
    return code;
}

/* Shape `i` of those given, read into `room`; without any given, of the standard ones; NULL past the last. */
static const bench_shape *chosen_shape(const option_value *asked, size_t i, bench_shape *room)
{
    bool read = i < asked->n_texts && bench_shape_read(asked->texts[i], room);
    return read ? room : asked->n_texts == 0 && i < BENCH_STANDARD ? bench_shape_at(i) : NULL;
}

static int run_shapes(bench *b)
{
    const option_value *asked = &b->args->option[OPT_SHAPE];
    int code = EXIT_DONE;
    for (size_t i = 0; i < asked->n_texts; i++) { /* all are checked before any is run */
        bench_shape shape;
        if (!bench_shape_read(asked->texts[i], &shape))
            return refuse_shape(asked->texts[i]);
    }
    const bench_shape *shape;
    bench_shape read;
    for (size_t i = 0; code == EXIT_DONE && (shape = chosen_shape(asked, i, &read)); i++)
        code = run_parts(b, shape);
    return code;
}

/* ---------------------------------------------------------------- what it shows */

static double number_of(const bench_row *row, size_t i)
{
    double x;
    memcpy(&x, (const char *)row + numbers[i].offset, sizeof x);
    return x;
}

/* Compares all rows with the limits, which are known only after all rounds of all shapes. */
static void compare_with_limits(bench *b)
{
    for (size_t i = 0; i < b->n_rows; i++) {
        bench_row *row = &b->rows[i];
        row->percent_of_peak = 100 * row->gflops / b->limits[row->limit].peak_gflops;
        row->percent_of_reads = 100 * row->gbs / b->limits[row->limit].read_gbs;
        row->percent_of_same_reads = row->same_gbs > 0 ? 100 * row->gbs / row->same_gbs : NAN;
    }
}

static void print_table(const bench *b, table_style style)
{
    const char *titles[N_COLUMNS] = {"shape", "part", "path", ">threads"};
    const bool csv = style == TABLE_CSV,
               types = csv || given(b->args, OPT_BENCH_DTYPE) || given(b->args, OPT_CACHE_DTYPE);
    for (size_t i = 0; i < N_NUMBERS; i++)
        titles[N_WORDS + i] = csv ? numbers[i].name : numbers[i].title;
    titles[N_WORDS + N_NUMBERS] = csv ? "weights_dtype" : "weights";
    titles[N_WORDS + N_NUMBERS + 1] = csv ? "cache_dtype" : "cache";
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
        }
    }
    table_print(t);
}

static void print_text(const bench *b)
{
    printf("%s, %s, BLAS %s (%s)\n", mha_isa(), mha_version(), mha_blas_name(), mha_blas_threading());
    for (size_t i = 0; i < b->n_limits; i++)
        printf("  %d thread%s: %.1f GFLOP/s of multiply-adds, %.1f GB/s of reads from memory (512 MiB), the best of "
               "all rounds\n",
               b->limits[i].threads, b->limits[i].threads == 1 ? "" : "s", b->limits[i].peak_gflops,
               b->limits[i].read_gbs);
    putchar('\n');
    print_table(b, TABLE_TEXT);
    write_prose("\nms is the best round, median the middle one. A multiply-add counts as two operations: a product of "
                "(m, k) and (k, n) is 2mnk; the core is 4 B h d_k for each pair of a query and a key that it sees, "
                "others are not counted; softmax is not counted; proj is the projections alone, 8 B T d^2 where all "
                "widths are d; layer is both. Programs that count hidden pairs too show up to twice as many for a "
                "causal core. tokens/s are of one layer: a model divides them by its layers. GB/s is shown where one "
                "token reads a cache: cache and weights, once, compared with reading 512 MiB, which is reading from "
                "memory, and with reading as many bytes again and again, of which the caches keep a "
                "part. Memory is in MiB: the workspace the library asks for, how much the process grew while it ran, "
                "and the whole process, inputs included, at its largest. Every path was first judged against "
                "float64; the last column is its largest error as a part of the error bound.");
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

static void write_json(const bench *b)
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
        json_t *row = json_pack("{ss ss ss si sI so so}", "shape", r->shape, "part", r->part, "path", r->path,
                                "threads", r->threads, "rounds", (json_int_t)r->rounds, "weights_dtype",
                                json_text(r->weights), "cache_dtype", json_text(r->cache));
        for (size_t k = 0; k < N_NUMBERS; k++)
            json_object_set_new(row, numbers[k].name, json_number(number_of(r, k)));
        json_array_append_new(rows, row);
    }
    json_print(json_pack("{s{so ss ss ss si so so so} so}", "machine", "cpu", json_text(*cpu_name(cpu) ? cpu : NULL),
                         "isa", mha_isa(), "blas", mha_blas_name(), "blas_threading", mha_blas_threading(), "threads",
                         all->threads, "peak_gflops", json_number(all->peak_gflops), "read_gbs",
                         json_number(all->read_gbs), "limits", each, "rows", rows));
}

/* Draws each row's share of what limits it: reading where it decodes, arithmetic elsewhere. */
static int draw_rows(const bench *b)
{
    mha_error error = {0};
    if (!given(b->args, OPT_BARS))
        return EXIT_DONE;
    mha__bar *bars = obtain(b->n_rows + 1, sizeof *bars);
    for (size_t i = 0; i < b->n_rows; i++) {
        const bench_row *r = &b->rows[i];
        const bool reads = !isnan(r->percent_of_reads);
        bars[i].value = reads ? r->percent_of_reads : r->percent_of_peak;
        mha__text_print(bars[i].label, sizeof bars[i].label, "%s %s, %s, %d thread%s", r->part, r->shape, r->path,
                        r->threads, r->threads > 1 ? "s" : "");
        mha__text_print(bars[i].note, sizeof bars[i].note, "%% of %s, %.1f %s", reads ? "reading" : "the FMA peak",
                        reads ? r->gbs : r->gflops, reads ? "GB/s" : "GFLOP/s");
    }
    const mha_allocator allocator = mha__allocator_default();
    const mha_status status = mha__draw_bars(bars, b->n_rows, 100, "Throughput in % of what the machine can do",
                                             text_for(b->args, OPT_BARS), &allocator, &error);
    free(bars);
    return status == MHA_OK ? EXIT_DONE : refuse_error("--picture", &error);
}

int run_bench(const arguments *args)
{
    bench b = {.args = args};
    if (wants_list(&args->option[OPT_SHAPE]))
        return list_shapes(args);
    int most = given(args, OPT_THREADS) ? (int)count_of(args, OPT_THREADS) : mha_threads_available();
    if (!given(args, OPT_THREADS) && most > 1)
        b.limits[b.n_limits++].threads = 1;
    b.limits[b.n_limits++].threads = most;
    int code = picture_svg_check(args, OPT_BARS);
    if (code == EXIT_DONE)
        code = run_shapes(&b);
    end_progress(&b);
    compare_with_limits(&b);
    if (code == EXIT_DONE)
        code = draw_rows(&b);
    if (code == EXIT_DONE && given(args, OPT_JSON))
        write_json(&b);
    else if (code == EXIT_DONE && given(args, OPT_CSV))
        print_table(&b, TABLE_CSV);
    else if (code == EXIT_DONE && !given(args, OPT_QUIET))
        print_text(&b);
    free(b.rows);
    return code;
}
