/* Copies of stages after a run, to compare two runs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/compare.h"
#include "support/snapshot.h"
#include "support/unit.h"
#include "support/stages.h"

snapshot snapshot_run(rig *r, mha_path path, int threads, mha_stage stage, bool slack)
{
    mha_error error;
    char text[400];
    snapshot s = {0};
    mha_status status = trial_run(r, path, threads, 1u << stage, MHA_F32, &error);
    if (status == MHA_UNSUPPORTED && path == MHA_PATH_FAST)
        return s;
    assert_ok(status, error);
    const mha_view *kept = stage_view(&r->call, stage);
    size_t n = mha_view_elements(kept);
    s.view = mha_view_of(calloc(n + 1, sizeof(double)), MHA_F64, kept->rank, kept->shape);
    assert_int_equal(mha_view_copy(&s.view, kept, NULL), MHA_OK);
    if (!slack)
        return s;
    if (!trial_check(r, path, text, sizeof text))
        fail_msg("%s: %s", mha_path_name(path), text);
    s.slack = calloc(n + 1, sizeof *s.slack);
    memcpy(s.slack, r->expected[path == MHA_PATH_EXACT].stage[stage].slack, n * sizeof *s.slack);
    return s;
}

void snapshot_release(snapshot *s)
{
    free(s->view.data);
    free(s->slack);
    *s = (snapshot){0};
}

void assert_same(const snapshot *a, const snapshot *b, const char *what)
{
    char text[300];
    if (!a->view.data || !b->view.data)
        return;
    if (!compare_bits("output", &a->view, &b->view, text, sizeof text))
        fail_msg("%s: %s", what, text);
}

void assert_close(const snapshot *a, const snapshot *b, const char *what)
{
    if (!a->view.data || !b->view.data)
        return;
    const double *x = a->view.data, *y = b->view.data;
    for (size_t e = 0; e < mha_view_elements(&a->view); e++) {
        bool close = (isnan(x[e]) && isnan(y[e])) || x[e] == y[e] ||
                     fabs(x[e] - y[e]) <= 2 * a->slack[e] + 0x1p-22 * fabs(x[e]) + 0x1p-148; /* both stored as F32 */
        if (!close)
            fail_msg("%s: element %zu: %.9g and %.9g, allowed %.3g", what, e, x[e], y[e], 2 * a->slack[e]);
    }
}
