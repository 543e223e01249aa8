/* Drawing benchmark results with gnuplot, which is asked for only here. */
#include "cli/output/bench_plot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output/print.h"

const char *bench_cpu(void)
{
    static char name[128];
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !*name && fgets(line, sizeof line, f))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':'))
            snprintf(name, sizeof name, "%.*s", (int)strcspn(strchr(line, ':') + 2, "\n"), strchr(line, ':') + 2);
    if (f)
        fclose(f);
    return *name ? name : NULL;
}

static bool same_curve(const bench_row *a, const bench_row *b)
{
    return strcmp(a->part, b->part) == 0 && strcmp(a->path, b->path) == 0 && a->threads == b->threads;
}

/* The rows that start a curve: the first of their part, path and thread count. */
static bool starts_curve(const bench_row *rows, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (same_curve(&rows[k], &rows[i]))
            return false;
    return true;
}

static void write_data(FILE *f, const bench_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (starts_curve(rows, i)) {
            fprintf(f, "$curve%zu << END\n", i);
            for (size_t k = i; k < n; k++)
                if (same_curve(&rows[i], &rows[k]))
                    fprintf(f, "%zu %g %g\n", rows[k].length, rows[k].gflops, rows[k].operations_per_byte);
            fputs("END\n", f);
        }
}

static void write_curves(FILE *f, const bench_row *rows, size_t n, int column, const char *style)
{
    for (size_t i = 0; i < n; i++)
        if (starts_curve(rows, i))
            fprintf(f, "%s$curve%zu using %d:2 %s title '%s, %s, %d thread%s'", i ? ", " : "", i, column, style, rows[i].part,
                    rows[i].path, rows[i].threads, rows[i].threads == 1 ? "" : "s");
}

int bench_plot_check(const char *path)
{
    size_t length = strlen(path);
    if (length < 5 || strcmp(path + length - 4, ".svg") != 0 || strchr(path, '\'') || strchr(path, '\n'))
        return refuse("--plot", "expected a name that ends in .svg, found \"%s\"", path);
    return EXIT_DONE;
}

/* Whether gnuplot drew it. */
static bool draw(const char *path, const bench_row *rows, size_t n, const double *peak, const double *reads, size_t n_limits)
{
    FILE *f = popen("gnuplot 2>/dev/null", "w");
    if (!f)
        return false; /* unreachable: a missing gnuplot is told by its exit code */
    write_data(f, rows, n);
    fprintf(f, "set terminal svg size 1000,1000 dynamic background 'white'\nset output '%s'\nset multiplot layout 2,1\n", path);
    fputs("set logscale xy\nset grid\nset key outside right\nset ylabel 'GFLOP/s'\n", f);
    fputs("set title 'Throughput'\nset xlabel 'keys'\nplot ", f);
    write_curves(f, rows, n, 1, "with points pt 7");
    fputs("\nset title 'Roofline'\nset xlabel 'operations for each byte that must be read'\nplot ", f);
    for (size_t i = 0; i < n_limits; i++)
        fprintf(f, "%s(x * %g < %g ? x * %g : %g) with lines lc 'black' dt %zu notitle", i ? ", " : "", reads[i], peak[i], reads[i],
                peak[i], i + 1);
    fputs(", ", f);
    write_curves(f, rows, n, 3, "with points pt 7");
    fputs("\nunset multiplot\nset output\n", f);
    return pclose(f) == 0;
}

int bench_plot(const char *path, const bench_row *rows, size_t n, const double *peak, const double *reads, size_t n_limits)
{
    char *temporary = text_of("%s.part", path);
    bool drawn = draw(temporary, rows, n, peak, reads, n_limits) && rename(temporary, path) == 0;
    if (!drawn)
        remove(temporary);
    free(temporary);
    if (drawn)
        return EXIT_DONE;
    refuse("--plot", "gnuplot (package gnuplot-nox) could not draw %s", path);
    return EXIT_MACHINE;
}
