/* mha bench --picture: a roofline with a point for each row of the table, and below it a bar for each. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/bench/bench_report.h"
#include "cli/pictures/origin.h"
#include "picture/draw/bars.h"
#include "picture/draw/drawing.h"
#include "picture/draw/roofline.h"

/* Whether no row of the same part of a shape is faster. */
static bool is_best(const bench *b, const bench_row *row)
{
    for (size_t i = 0; i < b->n_rows; i++) {
        const bench_row *r = &b->rows[i];
        if (strcmp(r->shape, row->shape) == 0 && strcmp(r->part, row->part) == 0 &&
            (r->ms_min < row->ms_min || (r->ms_min == row->ms_min && i < (size_t)(row - b->rows))))
            return false;
    }
    return true;
}

/* Returns the number of points: rows of which operations and bytes are known. */
static size_t make_points(const bench *b, mha__roof_point *points)
{
    size_t n = 0;
    for (size_t i = 0; i < b->n_rows; i++) {
        const bench_row *r = &b->rows[i];
        const limits *l = &b->limits[r->limit];
        if (!(r->flop_per_byte > 0 && l->peak_gflops > 0 && l->read_gbs > 0))
            continue;
        mha__roof_point *p = &points[n++];
        *p = (mha__roof_point){.intensity = r->flop_per_byte,
                               .gflops = r->gflops,
                               .roof = r->limit,
                               .hollow = strcmp(r->path, mha_path_name(MHA_PATH_FAST)) != 0};
        mha__text_print(p->title, sizeof p->title, "%s %s, %s, %d thread%s: %.4g flop/byte, %.4g GFLOP/s", r->part,
                        r->shape, r->path, r->threads, r->threads > 1 ? "s" : "", r->flop_per_byte, r->gflops);
        if (is_best(b, r))
            mha__text_print(p->label, sizeof p->label, "%s %s", r->part, r->shape);
    }
    return n;
}

static void make_bars(const bench *b, mha__bar *bars)
{
    for (size_t i = 0; i < b->n_rows; i++) {
        const bench_row *r = &b->rows[i];
        const bool reads = !isnan(r->percent_of_reads);
        bars[i].value = reads ? r->percent_of_reads : r->percent_of_peak;
        mha__text_print(bars[i].label, sizeof bars[i].label, "%s %s, %s, %d thread%s", r->part, r->shape, r->path,
                        r->threads, r->threads > 1 ? "s" : "");
        mha__text_print(bars[i].note, sizeof bars[i].note, "%% of %s, %.1f %s", reads ? "reading" : "the FMA peak",
                        reads ? r->gbs : r->gflops, reads ? "GB/s" : "GFLOP/s");
    }
}

static mha_status draw(const bench *b, mha__drawing *d, const char *path, mha_error *error)
{
    const mha_allocator allocator = mha__allocator_default();
    mha__bar *bars = obtain(b->n_rows, sizeof *bars);
    mha__roof_point *points = obtain(b->n_rows, sizeof *points);
    mha__roof roofs[sizeof b->limits / sizeof *b->limits];
    const size_t n = make_points(b, points);
    make_bars(b, bars);
    for (size_t i = 0; i < b->n_limits; i++) {
        roofs[i] = (mha__roof){.peak_gflops = b->limits[i].peak_gflops, .read_gbs = b->limits[i].read_gbs};
        mha__text_print(roofs[i].name, sizeof roofs[i].name, "%d thread%s", b->limits[i].threads,
                        b->limits[i].threads > 1 ? "s" : "");
    }
    d->height = (n > 0 ? MHA__ROOFLINE_HEIGHT : 0) + mha__bars_height(b->n_rows);
    mha_status status = mha__drawing_open(d, &allocator, path, error);
    if (status == MHA_OK) {
        if (n > 0)
            mha__draw_roofline(&d->markup, roofs, b->n_limits, points, n, "Roofline, measured in this run",
                               "Bytes are those that have to move at least: inputs, weights, cache and mask read once, "
                               "the output written once. Above a slope: caches. Filled: the fast path.",
                               &allocator);
        mha__draw_bars(&d->markup, bars, b->n_rows, 100, d->title, d->height - mha__bars_height(b->n_rows));
        status = mha__drawing_close(d);
    }
    free(points);
    free(bars);
    return status;
}

int bench_draw(const bench *b)
{
    mha_error error = {0};
    if (!given(b->args, OPT_BARS))
        return EXIT_DONE;
    mha__origin origin;
    int code = origin_of(b->args, &origin);
    mha__drawing d = {.width = MHA__BARS_WIDTH,
                      .font = 12,
                      .title = "Throughput in % of what the machine can do",
                      .description = "throughput beside the machine's limits, drawn by mha",
                      .origin = &origin};
    if (code == EXIT_DONE && draw(b, &d, text_for(b->args, OPT_BARS), &error) != MHA_OK)
        code = refuse_error("--picture", &error);
    origin_free(&origin);
    return code;
}
