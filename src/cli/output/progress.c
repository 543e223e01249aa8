/* Shows how far long work is: what, how much of it, how long still. */
#include "cli/output/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/text/print.h"
#include "lab/lab.h"

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

/* "12 s", "3 min". */
static char *duration(double seconds)
{
    return seconds < 100 ? text_of("%.0f s", seconds) : text_of("%.0f min", seconds / 60);
}

void progress_show(size_t done, size_t total)
{
    const double often = 0.1, soon = 1, now = mha__clock_seconds(), taken = now - work.begun;
    if (!work.what || (now - work.shown < often && done < total))
        return;
    work.shown = now;
    char *text = text_of("  %zu of %zu %s", done, total, work.what);
    if (done > 0 && done < total && taken > soon) {
        char *rest = duration(taken / (double)done * (double)(total - done));
        text = text_more(text, ", about %s left", rest);
        free(rest);
    }
    const size_t width = mha__text_width(text);
    fprintf(stderr, "\r%s%*s ", text, (int)(width < work.width ? work.width - width : 0), "");
    work.width = width;
    free(text);
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
