/* Measures a part of a shape: every path and thread count is checked, then all take turns, round by round, beside the
 * machine's limits. */
#include <math.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "bench/machine_peak.h"
#include "cli/commands/bench/bench.h"

enum { MOST_ROUNDS = 1000 };

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

/* ---------------------------------------------------------------- signals */

static volatile sig_atomic_t stopped_by; /* 0: nothing */

static void stop(int number)
{
    stopped_by = number;
}

void bench_mind_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    const struct sigaction once = {.sa_handler = stop, .sa_flags = SA_RESETHAND | SA_RESTART};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before;
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) /* as nohup has it */
            sigaction(numbers[i], &once, NULL);
    }
}

/* EXIT_DONE, or the exit code behind a signal. */
static int unless_stopped(void)
{
    return stopped_by ? EXIT_SIGNAL + (int)stopped_by : EXIT_DONE;
}

/* ---------------------------------------------------------------- one shape */

static void measure_limits(bench *b, const bench_subject *subject, size_t round)
{
    bool reads = bench_decodes(&subject->shape);
    for (size_t i = 0; i < b->n_limits; i++) {
        limits *l = &b->limits[i];
        double gflops = 0, gbs = 0, same = 0;
        bool beyond = reads || (round == 0 && l->read_gbs == 0);
        (void)mha__machine_limits(l->threads, &gflops, beyond ? &gbs : NULL); /* 0 without memory for the measurement */
        l->peak_gflops = fmax(l->peak_gflops, gflops);
        l->read_gbs = fmax(l->read_gbs, gbs);
        if (reads)
            (void)mha__machine_reads(l->threads, (size_t)bench_bytes(&subject->shape, subject->part), &same);
        l->same_gbs = fmax(l->same_gbs, same);
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
        ways[n++] = (way){.asked = path ? (mha_path)path : MHA_PATH_FAST, .limit = i};
        if (path == 0)
            ways[n++] = (way){.asked = MHA_PATH_BLAS, .limit = i};
    }
    return n;
}

static void add_row(bench *b, const bench_subject *subject, way *w, size_t rounds, double error)
{
    sort_numbers(w->ms, rounds);
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
    row.precision = mha_dtype_name(s->precision);
    row.weights = subject->part == BENCH_CORE ? NULL : mha_dtype_name(s->weights);
    row.cache = !bench_decodes(s) || subject->part == BENCH_PROJ ? NULL : mha_dtype_name(s->cache);
    row.gflops = bench_flops(s, subject->part) / row.ms_min * 1e-6;
    row.flop_per_byte = bench_flops(s, subject->part) / bench_least_bytes(s, subject->part);
    row.tokens_per_s = (double)(s->B * s->T_q) / row.ms_min * 1e3;
    row.gbs = bench_decodes(s) ? bench_bytes(s, subject->part) / row.ms_min * 1e-6 : NAN;
    row.same_gbs = b->limits[w->limit].same_gbs;
    b->rows = obtain_more(b->rows, b->n_rows, &b->room, sizeof *b->rows);
    b->rows[b->n_rows++] = row;
}

/* Checks each path once, since thread counts give the same bits. The projections are checked with the whole layer. */
static int check_ways(bench *b, bench_subject *subject, const way *ways, size_t n, double *worst)
{
    for (size_t i = 0; i < n; i++) {
        if (stopped_by)
            return unless_stopped();
        size_t checked = 0;
        while (checked < i && ways[checked].asked != ways[i].asked)
            checked++;
        worst[i] = checked < i ? worst[checked] : b->checked[ways[i].asked];
        if (checked < i || (subject->part == BENCH_PROJ && worst[i] >= 0))
            continue;
        mha_error error;
        const int threads = b->limits[b->n_limits - 1].threads;
        if (bench_subject_check(subject, ways[i].asked, threads, &worst[i], &error) != MHA_OK) {
            progress_end();
            return refuse_error("", &error);
        }
        if (!(worst[i] <= 1)) {
            progress_end(); /* unreachable: the library is right */
            const char *path = mha_path_name(ways[i].asked); /* unreachable: as above */
            refuse(subject->shape.name, "%s is wrong by %g bounds", path, worst[i]); /* unreachable: as above */
            return EXIT_NO; /* unreachable: as above */
        }
        if (subject->part == BENCH_LAYER)
            b->checked[ways[i].asked] = worst[i];
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
        return refuse_error("", &error); /* unreachable: the same call was checked */
    if (round == 0) {
        w->mib = memory("VmHWM");
        w->grew_mib = w->mib > before ? w->mib - before : 0;
        w->workspace_mib = (double)subject->needs_bytes / 1048576;
    }
    return EXIT_DONE;
}

/* Checks all paths and thread counts first, then runs them in turn. */
static int run_shape(bench *b, const bench_shape *shape, bench_part part)
{
    const size_t rounds = count_of(b->args, OPT_ROUNDS);
    size_t ended = 0;
    bench_subject subject;
    way *ways = keep(obtain(2 * b->n_limits, sizeof *ways));
    double *worst = keep(obtain(2 * b->n_limits, sizeof *worst));
    size_t n = choose_ways(b, ways);
    for (size_t i = 0; i < b->n_limits; i++)
        b->limits[i].same_gbs = 0;
    progress_begin(b->args, text_of("rounds of %s %s", shape->name, bench_part_name(part)));
    progress_show(0, rounds);
    mha_error error;
    int code = done_or_refuse(bench_subject_make(&subject, shape, part, !given(b->args, OPT_NO_PACK), &error), "",
                              &error);
    if (code == EXIT_DONE)
        code = check_ways(b, &subject, ways, n, worst);
    time_t end = time(NULL) + (time_t)count_of(b->args, OPT_SECONDS);
    for (size_t round = 0; round < rounds && code == EXIT_DONE; round++) {
        progress_show(round, rounds);
        if (round >= 2 && time(NULL) > end)
            break;
        measure_limits(b, &subject, round);
        for (size_t i = 0; i < n && code == EXIT_DONE; i++)
            if ((code = unless_stopped()) == EXIT_DONE)
                code = take_turn(b, &subject, &ways[i], round);
        ended += code == EXIT_DONE;
    }
    for (size_t i = 0; i < n && ended > 0 && (code == EXIT_DONE || code > EXIT_SIGNAL); i++)
        add_row(b, &subject, &ways[i], ended, worst[i]);
    progress_end();
    bench_subject_free(&subject);
    return code;
}

int bench_run_parts(bench *b, const bench_shape *named, void (*added)(bench *b))
{
    bench_shape with_types = *named, *shape = &with_types;
    const mha_dtype precision = dtype_of(b->args, OPT_RUN_PRECISION),
                    stored = precision == MHA_TF32 ? MHA_F32 : precision;
    shape->precision = precision;
    shape->weights = given(b->args, OPT_BENCH_DTYPE) ? dtype_of(b->args, OPT_BENCH_DTYPE) : stored;
    shape->cache = given(b->args, OPT_CACHE_DTYPE) ? dtype_of(b->args, OPT_CACHE_DTYPE) : stored;
    enum { ALL, BOTH, ONE }; /* the choices of --part; from the third on, each is one part */
    size_t asked = b->args->option[OPT_PART].choice;
    int code = EXIT_DONE;
    for (int path = 0; path < MHA_PATH_COUNT; path++)
        b->checked[path] = -1;
    for (bench_part part = 0; part < BENCH_PARTS && code == EXIT_DONE; part++)
        if (asked == ALL || (asked == BOTH && part != BENCH_PROJ) || asked == ONE + (size_t)part) {
            code = run_shape(b, shape, part);
            added(b);
        }
    return code;
}
