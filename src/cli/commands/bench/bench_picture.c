/* mha bench --picture: two charts of bars, arithmetic and reading beside their limits; with --wide every row of the
 * table. */
#include <math.h>

#include "cli/commands/bench/bench.h"
#include "picture/draw/drawing.h"

enum { MOST_BARS = 12, HEADING = 48, FOOT = 16 };

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

/* The rows of one limit, the best of each part of a shape first, then with --wide the others. Returns their number;
 * without --wide at most MOST_BARS. */
static size_t make_bars(const bench *b, bool of_reads, mha__bar *bars, size_t *left_out)
{
    const bool wide = given(b->args, OPT_WIDE);
    size_t n = 0;
    *left_out = 0;
    for (int best = 1; best >= 0; best--)
        for (size_t i = 0; i < b->n_rows; i++) {
            const bench_row *r = &b->rows[i];
            const bool reads = !isnan(r->percent_of_reads);
            if (reads != of_reads || is_best(b, r) != (best == 1))
                continue;
            if (!wide && n == MOST_BARS) {
                ++*left_out;
                continue;
            }
            mha__bar *bar = &bars[n++];
            bar->value = reads ? r->percent_of_reads : r->percent_of_peak;
            mha__text_print(bar->label, sizeof bar->label, "%s %s, %s, %d thread%s", r->part, r->shape, r->path,
                            r->threads, r->threads > 1 ? "s" : "");
            mha__text_print(bar->note, sizeof bar->note, "%%, %.1f %s, %.4g ms", reads ? r->gbs : r->gflops,
                            reads ? "GB/s" : "GFLOP/s", r->ms_min);
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
    static const char *const titles[] = {"Arithmetic: % of the multiply-adds measured here",
                                         "Reading: % of reads from memory"};
    static const char *const limit_labels[] = {"100 %: the peak", "100 %: memory; beyond it, caches"};
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
                const mha__chart chart = {titles[reads], limit_labels[reads], 100, bars[reads], counts[reads]};
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
                      .title = "Throughput beside what this machine can do",
                      .description = "throughput beside the machine's limits, drawn by mha",
                      .origin = &origin};
    return done_or_refuse(draw(b, &d, text_for(b->args, OPT_BARS), &error), "--picture", &error);
}
