/* Many callers at once: calls whose answers are known, on layers that all of them share. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/callers.h"
#include "support/snapshot.h"
#include "support/unit.h"

static const mha_path paths[] = {MHA_PATH_FAST, MHA_PATH_BLAS, MHA_PATH_EXACT};

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void add_jobs(crew *c, const trial *t)
{
    rig *r = &c->rigs[c->n_rigs++];
    trial_build(t, r);
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        snapshot s = snapshot_run(r, paths[p], 1, MHA_STAGE_OUTPUT, false);
        mha_plan plan;
        mha_error error;
        if (!s.view.data) /* the fast path does not take this call */
            continue;
        job *j = &c->jobs[c->n_jobs++];
        *j = (job){.layer = r->layer, .call = r->call, .elements = mha_view_elements(&s.view)};
        assert_ok(mha_plan_call(r->layer, &r->call, &plan, &error), error);
        j->call.output = (mha_view){0};
        j->call.keep = NULL;
        j->call.keep_count = 0;
        size_t shape[4];
        j->rank = mha_plan_stage(&plan, MHA_STAGE_OUTPUT, shape);
        memcpy(j->shape, shape, sizeof j->shape);
        j->expected = malloc((j->elements + 1) * sizeof *j->expected);
        for (size_t e = 0; e < j->elements; e++)
            j->expected[e] = (float)((const double *)s.view.data)[e];
        snapshot_release(&s);
    }
}

void crew_make(crew *c)
{
    memset(c, 0, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    const trial chosen[] = {
        {.seed = 1,
         .B = 2,
         .T_q = 70,
         .T_k = 90,
         .config = {.d_model = 48, .n_heads = 4, .kv_heads = 2, .bias_o = true},
         .semantics = {.visible.causal = true, .qkv.rope.kind = MHA_ROPE_HALF_SPLIT}},
        /* many keys for one query: they are cut, and the pieces are put together; weights packed */
        {.seed = 2, .B = 1, .T_q = 1, .T_k = 3000, .config = {.d_model = 32, .n_heads = 2}},
        {.seed = 3, .B = 1, .T_q = 200, .T_k = 200, .bare = true, .config = {.d_model = 64, .n_heads = 4}},
    };
    for (size_t k = 0; k < sizeof chosen / sizeof *chosen; k++)
        add_jobs(c, &chosen[k]);
    for (uint64_t seed = 1; c->n_rigs < CREW_RIGS; seed++) {
        trial t = trial_draw(seed * 7919);
        t.input_dtype = MHA_F32, t.dropout = 0;
        if (!t.use_cache && t.past == 0) /* a cache is for one forward at a time */
            add_jobs(c, &t);
    }
}

void crew_free(crew *c)
{
    for (size_t k = 0; k < c->n_jobs; k++)
        free(c->jobs[k].expected);
    for (size_t k = 0; k < c->n_rigs; k++)
        trial_release(&c->rigs[k]);
    pthread_mutex_destroy(&c->lock);
}

void crew_blame(crew *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&c->lock);
    if (!c->wrong[0])
        vsnprintf(c->wrong, sizeof c->wrong, format, arguments);
    pthread_mutex_unlock(&c->lock);
    va_end(arguments);
}

static bool blamed(crew *c)
{
    pthread_mutex_lock(&c->lock);
    bool wrong = c->wrong[0] != '\0';
    pthread_mutex_unlock(&c->lock);
    return wrong;
}

/* The objects of one caller. */
typedef struct memory {
    void *workspace;
    float *output;
    size_t workspace_bytes, elements;
} memory;

static void run_job(crew *c, const job *j, int threads, memory *m)
{
    mha_call call = j->call;
    mha_plan plan;
    mha_error error = {0};
    call.threads = threads;
    if (m->elements < j->elements) {
        free(m->output);
        m->output = malloc((m->elements = j->elements) * sizeof *m->output);
    }
    memset(m->output, 0xFF, j->elements * sizeof *m->output);
    call.output = mha_view_of(m->output, MHA_F32, j->rank, j->shape);
    mha_status status = mha_plan_call(j->layer, &call, &plan, &error);
    if (status == MHA_OK && m->workspace_bytes < plan.workspace_bytes) {
        free(m->workspace);
        m->workspace = malloc(m->workspace_bytes = plan.workspace_bytes);
    }
    if (status == MHA_OK)
        status = mha_forward(&plan, m->workspace, m->workspace_bytes, &error);
    if (status != MHA_OK) {
        crew_blame(c, "job %d: %s", (int)(j - c->jobs), error.message);
        return;
    }
    for (size_t e = 0; e < j->elements; e++) {
        float x = m->output[e], y = j->expected[e];
        if (!(isnan(x) && isnan(y)) && !(x == y && !signbit(x) == !signbit(y))) {
            crew_blame(c, "job %d, %s, %d threads: element %zu is %.9g, expected %.9g", (int)(j - c->jobs),
                       mha_path_name(call.path), threads, e, (double)x, (double)y);
            return;
        }
    }
    atomic_fetch_add(&c->calls, 1);
}

void crew_work(crew *c, unsigned seed, double deadline)
{
    memory m = {0};
    for (size_t k = 0; k < c->n_jobs || now() < deadline; k++) { /* callers start at different jobs */
        run_job(c, &c->jobs[(k + seed) % c->n_jobs], 1 + rand_r(&seed) % 3, &m);
        if (blamed(c))
            break;
    }
    free(m.workspace);
    free(m.output);
}
