/* Shows how far long work is: what, how much of it, how long still. */
#include "cli/output/report.h"

#include <unistd.h>

static struct {
    const char *what; /* NULL: nothing is shown */
    double begun, shown;
    size_t width; /* of the line that is there */
} work;

void progress_begin(const arguments *args, const char *what)
{
    progress_end();
    if (isatty(STDERR_FILENO) && !given(args, OPT_QUIET))
        work.what = what, work.begun = mha__clock_seconds(), work.shown = 0;
}

void progress_show(size_t done, size_t total)
{
    const double often = 0.1, soon = 1, now = mha__clock_seconds(), taken = now - work.begun;
    if (!work.what || (now - work.shown < often && done < total))
        return;
    work.shown = now;
    char text[160];
    int length = snprintf(text, sizeof text, "  %zu of %zu %.80s", done, total, work.what);
    const double left = done > 0 ? taken / (double)done * (double)(total - done) : 0;
    if (left > 0 && taken > soon)
        snprintf(text + length, sizeof text - (size_t)length, ", about %.0f %s left", left < 100 ? left : left / 60,
                 left < 100 ? "s" : "min");
    const size_t width = mha__text_width(text);
    fprintf(stderr, "\r%s%*s ", text, (int)(width < work.width ? work.width - width : 0), "");
    work.width = width;
}

void progress_report(void *context, size_t done, size_t total)
{
    (void)context;
    progress_show(done, total);
}

void progress_end(void)
{
    if (work.what && work.width > 0)
        fprintf(stderr, "\r%*s\r", (int)work.width + 1, "");
    work.what = NULL;
    work.width = 0;
}
