/* What mha bench measured, and drawing it. */
#ifndef MHA_CLI_OUTPUT_BENCH_PLOT_H
#define MHA_CLI_OUTPUT_BENCH_PLOT_H

#include <stddef.h>

typedef struct bench_row {
    const char *shape, *path, *part;
    const char *weights, *cache; /* types; NULL where there are none */
    int threads;
    size_t limit;  /* which thread count's limits it is held against */
    size_t length; /* keys */
    size_t rounds;
    double ms_min, ms_median, gflops, tokens_per_s, rss_mib, error;
    double gbs, read_gbs;       /* what it reads, and reading as many bytes alone; 0 where reading is not the limit */
    double workspace_mib;       /* what the library asks for */
    double grew_mib;            /* by how much the process grew while it ran, the workspace included */
    double operations_per_byte; /* of what must be read at least */
} bench_row;

/* The name of the processor; NULL where the system does not say. */
const char *bench_cpu(void);

/* Whether a drawing can have that name: 0, or an exit code after a line. */
int bench_plot_check(const char *path);
/* Draws throughput over length, a curve for each part, path and thread count, and a roofline, through gnuplot.
 * Gives 0 or an exit code after a line. */
int bench_plot(const char *path, const bench_row *rows, size_t n, const double *peak, const double *reads, size_t n_limits);

#endif
