/* mha bench --picture: two charts of bars, arithmetic and reads, with their limits; --wide draws every row. */
#include <math.h>

#include "cli/commands/bench/bench.h"
#include "picture/draw/drawing.h"

enum { MOST_BARS = 12, HEADING = 48, FOOT = 16 };

/* The number of faster rows of the same part of a shape. */
static size_t rank_of(const bench *b, const bench_row *row)
{
    size_t rank = 0;
    for (size_t i = 0; i < b->n_rows; i++) {
        const bench_row *r = &b->rows[i];
        rank += strcmp(r->shape, row->shape) == 0 && strcmp(r->part, row->part) == 0 &&
                (r->ms_min < row->ms_min || (r->ms_min == row->ms_min && i < (size_t)(row - b->rows)));
    }
    return rank;
}

/* The rows of one limit: the fastest of each part of a shape, then the second ones, and so on. Returns their number;
 * without --wide at most MOST_BARS. */
static size_t make_bars(const bench *b, bool of_reads, mha__bar *bars, size_t *left_out)
{
    const bool wide = given(b->args, OPT_WIDE);
    size_t n = 0;
    *left_out = 0;
    for (size_t rank = 0; rank < b->n_rows; rank++)
        for (size_t i = 0; i < b->n_rows; i++) {
            const bench_row *r = &b->rows[i];
            const bool reads = !isnan(r->percent_of_reads);
            if (reads != of_reads || rank_of(b, r) != rank)
                continue;
            if (!wide && n == MOST_BARS) {
                ++*left_out;
                continue;
            }
            mha__bar *bar = &bars[n++];
            bar->value = reads ? r->gbs : r->gflops;
            bar->limit = reads ? b->limits[r->limit].read_gbs : b->limits[r->limit].peak_gflops;
            mha__text_print(bar->label, sizeof bar->label, "%s %s, %s, %d thread%s", r->part, r->shape, r->path,
                            r->threads, r->threads > 1 ? "s" : "");
            mha__text_print(bar->note, sizeof bar->note, "%s, %.1f %% of %s, %.4g ms", reads ? "GB/s" : "GFLOP/s",
                            reads ? r->percent_of_reads : r->percent_of_peak, reads ? "memory" : "the peak", r->ms_min);
        }
    return n;
}

/* The processor, and what measured it when. Returns the height. */
static size_t draw_heading(mha__markup *m)
{
    enum { LINE = 17, MARGIN = 14, MOST_LETTERS = 60 };
    const char *const lines[] = {bench_cpu(), text_of("%s, mha %s, %s", bench_day(), mha_version(), mha_isa())};
    for (size_t i = 0; i < 2; i++) {
        mha__markup_print(m, "<text x=\"%d\" y=\"%zu\">", MARGIN, (i + 1) * LINE);
        mha__markup_short(m, lines[i], MOST_LETTERS);
        mha__markup_print(m, "</text>\n");
    }
    return (size_t)2 * LINE + MARGIN;
}

static mha_status draw(const bench *b, mha__drawing *d, const char *path, mha_error *error)
{
    static const char *const titles[] = {"Arithmetic, GFLOP/s", "Reads, GB/s"};
    static const char *const limit_labels[] = {"measured peak of as many threads",
                                               "reads from memory; caches are faster"};
    const mha_allocator allocator = mha__allocator_default();
    mha__bar *bars[2];
    size_t counts[2], left_out[2];
    d->width = MHA__BARS_WIDTH;
    d->height = HEADING + FOOT;
    for (int reads = 0; reads < 2; reads++) {
        bars[reads] = keep(obtain(b->n_rows, sizeof **bars));
        counts[reads] = make_bars(b, reads, bars[reads], &left_out[reads]);
        d->height += counts[reads] ? mha__bars_height(counts[reads]) : 0;
    }
    mha_status status = mha__drawing_open(d, &allocator, path, error);
    if (status == MHA_OK) {
        size_t top = draw_heading(&d->markup);
        for (int reads = 0; reads < 2; reads++)
            if (counts[reads]) {
                const mha__chart chart = {titles[reads], limit_labels[reads], bars[reads], counts[reads]};
                mha__draw_bars(&d->markup, &chart, top);
                top += mha__bars_height(counts[reads]);
            }
        if (left_out[0] + left_out[1] > 0)
            mha__markup_print(&d->markup, "<text x=\"14\" y=\"%zu\">%zu more: mha bench --wide --picture</text>\n",
                              top + 4, left_out[0] + left_out[1]);
        status = mha__drawing_close(d);
    }
    return status;
}

int bench_draw(const bench *b)
{
    mha_error error = {0};
    if (!given(b->args, OPT_BARS))
        return EXIT_DONE;
    mha__origin origin;
    TRY(origin_of(b->args, &origin));
    mha__drawing d = {.font = 13,
                      .dark = true,
                      .title = "Throughput and the limits of this machine",
                      .description = "throughput and the limits of the machine, drawn by mha",
                      .origin = &origin};
    return done_or_refuse(draw(b, &d, text_for(b->args, OPT_BARS), &error), "--picture", &error);
}
