/* Runs a trial on any path and compares it with the oracle. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "support/compare.h"
#include "support/trial_parts.h"
#include "support/unit.h"

static void release_stages(rig *r)
{
    for (int s = 0; s < MHA_STAGE_COUNT; s++) {
        mha_view *v = stage_view(&r->call, (mha_stage)s);
        guard_release(v->data);
        *v = (mha_view){0};
    }
}

void trial_release(rig *r)
{
    release_stages(r);
    for (int k = 0; k < 2; k++)
        if (r->has_expected[k])
            oracle_free(&r->expected[k]);
    mha_cache_destroy(r->cache);
    mha_layer_destroy(r->layer);
    mha_params_destroy(r->table);
    for (size_t i = 0; i < r->n_inputs; i++)
        guard_release(r->inputs[i]);
}

/* ---------------------------------------------------------------- running and checking */

unsigned trial_stages(const rig *r)
{
    unsigned cached = 1u << MHA_STAGE_PRESENT_KEY | 1u << MHA_STAGE_PRESENT_VALUE;
    const unsigned lacks =
        (r->t.sequences ? cached : 0) | (r->t.semantics.softmax.normaliser ? 1u << MHA_STAGE_LSE : 0);
    return TRIAL_ALL_STAGES & ~lacks;
}

static void *stage_memory(rig *r, size_t bytes)
{
    return guard_allocate(bytes, r->t.side == GUARD_AFTER ? GUARD_BEFORE : GUARD_AFTER, 0xFF);
}

static void make_stages(rig *r, const mha_plan *plan, unsigned keep, mha_dtype dtype)
{
    for (int s = 0; s < MHA_STAGE_COUNT; s++) {
        size_t shape[4];
        if (!(keep >> s & 1) || mha_plan_stage(plan, (mha_stage)s, shape) == 0)
            continue;
        mha_view *v = stage_view(&r->call, (mha_stage)s);
        if (s == MHA_STAGE_OUTPUT) { /* in the layout of the inputs */
            *v = trial_rows(r, dtype, r->t.T_q, r->t.bare ? plan->h : 1, r->t.bare ? plan->d_v : plan->d_out,
                            stage_memory);
            continue;
        }
        *v = stage_of_plan(plan, (mha_stage)s, NULL, dtype);
        v->data = stage_memory(r, mha_view_elements(v) * trial_size_of(dtype));
    }
}

/* An empty cache of the path's own precision, with the past rows in it. */
static mha_status fill_cache(rig *r, mha_path path, mha_error *error)
{
    const trial *t = &r->t;
    const mha_config *c = &t->config;
    const mha_allocator allocator = guard_allocator(t->side);
    mha_cache_spec spec = {.batch = t->B, .kv_heads = c->kv_heads, .d_k = c->d_k, .d_v = c->d_v,
                           .capacity = t->past + (t->inputs == TRIAL_SELF && !t->bare ? t->T_q : t->T_k),
                           .dtype = path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32};
    mha_cache_destroy(r->cache);
    r->call.cache = r->cache = NULL;
    mha_status status = mha_cache_create(&spec, &allocator, &r->cache, error);
    r->call.cache = r->cache;
    return status == MHA_OK ? mha_cache_load(r->cache, &r->past.keys, &r->past.values, error) : status;
}

/* Nothing but stages, cache and workspace is written. */
static void protect(rig *r, int writable)
{
    for (size_t i = 0; i < r->n_inputs; i++)
        guard_protect(r->inputs[i], writable);
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
        if (r->weights[w].data)
            guard_protect(r->weights[w].data, writable);
}

mha_status trial_run(rig *r, mha_path path, int threads, unsigned keep, mha_dtype dtype, mha_error *error)
{
    mha_plan plan;
    release_stages(r);
    r->call.path = path;
    r->call.threads = threads;
    mha_status status = r->past.keys.data ? fill_cache(r, path, error) : MHA_OK;
    if (status != MHA_OK)
        return status;
    status = mha_plan_call(r->layer, &r->call, &plan, error);
    if (status != MHA_OK)
        return status;
    make_stages(r, &plan, keep, dtype);
    status = mha_plan_call(r->layer, &r->call, &plan, error); /* what is kept may need workspace */
    if (status != MHA_OK)
        return status;
    protect(r, 0);
    void *workspace = guard_allocate(plan.workspace_bytes, GUARD_AFTER, 0xFF);
    status = mha_forward(&plan, workspace, plan.workspace_bytes, error);
    guard_release(workspace);
    protect(r, 1);
    return status;
}

/* The output of a bare call may be kept by head; the oracle has it as rows. */
static mha_view as_rows(const mha_view *v, oracle_stage *expected)
{
    if (v->rank == 4 && expected->rank == 3) {
        expected->rank = 4;
        expected->shape[2] = v->shape[2], expected->shape[3] = v->shape[3];
    }
    return *v;
}

bool trial_check(rig *r, mha_path path, char *text, size_t size)
{
    int k = path == MHA_PATH_EXACT;
    if (!r->has_expected[k]) {
        oracle_run(r->layer ? &r->t.config : NULL, r->weights, &r->call, r->cache ? &r->past : NULL,
                   k ? 0x1p-52 : 0x1p-24, &r->expected[k]);
        r->has_expected[k] = true;
    }
    for (int s = 0; s < MHA_STAGE_COUNT; s++) {
        if (!stage_view(&r->call, (mha_stage)s)->data)
            continue;
        oracle_stage expected = r->expected[k].stage[s];
        mha_view found = as_rows(stage_view(&r->call, (mha_stage)s), &expected);
        if (!compare_stage(mha_stage_at((mha_stage)s)->name, &found, &expected, text, size))
            return false;
    }
    return true;
}

bool trial_fails(const trial *t, char *text, size_t size)
{
    static const mha_path paths[] = {MHA_PATH_EXACT, MHA_PATH_BLAS, MHA_PATH_FAST};
    rig r;
    mha_error error;
    char why[300];
    bool failed = false;
    trial_build(t, &r);
    for (size_t p = 0; p < sizeof paths / sizeof *paths && !failed; p++) {
        mha_path path = paths[p];
        if (path != MHA_PATH_EXACT && (t->input_dtype != MHA_F32 || t->dropout > 0))
            break;
        unsigned keep = path == MHA_PATH_FAST && t->seed % 3 == 0 ? TRIAL_OUTPUT : trial_stages(&r);
        mha_status status = trial_run(&r, path, 1 + (int)(t->seed % 3), keep, t->seed % 2 ? MHA_F32 : MHA_F64, &error);
        if (status == MHA_UNSUPPORTED && path == MHA_PATH_FAST)
            continue;
        if (status != MHA_OK)
            snprintf(why, sizeof why, "refused: %.250s", error.message), failed = true;
        else
            failed = !trial_check(&r, path, why, sizeof why);
        if (failed)
            snprintf(text, size, "%s: %s", mha_path_name(path), why);
    }
    trial_release(&r);
    return failed;
}

void trial_assert(const trial *t, const char *file, int line)
{
    char text[400], words[900];
    if (!trial_fails(t, text, sizeof text))
        return;
    trial_text(t, words, sizeof words);
    print_error("%s:%d: %s\n  %s\n", file, line, text, words);
    _fail(file, line);
}

size_t trials_that_fail(uint64_t first, uint64_t n, double amplitude, trial_failure fails)
{
    size_t wrong = 0;
    for (uint64_t seed = first; seed < first + n && wrong < 5; seed++) {
        char text[400], words[900];
        trial t = trial_draw(seed);
        if (amplitude > 0)
            t.amplitude = amplitude;
        if (!fails(&t, text, sizeof text))
            continue;
        wrong++;
        trial_text(&t, words, sizeof words);
        print_error("%s\n  %s\n", text, words);
        const trial small = trial_shrink(&t, fails);
        fails(&small, text, sizeof text);
        trial_text(&small, words, sizeof words);
        print_error("  smaller: %s\n  %s\n", text, words);
    }
    return wrong;
}

uint64_t trial_number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

uint64_t trial_draw_seed(void)
{
    static uint64_t seed;
    if (!seed) {
        seed = trial_number("DRAW_SEED", (uint64_t)time(NULL) ^ (uint64_t)getpid() << 32);
        print_message("DRAW_SEED=%" PRIu64 "\n", seed);
    }
    return seed;
}

bool trial_drawn(uint64_t share, uint64_t i)
{
    return trial_number("DRAW_ALL", 0) || (i + trial_draw_seed()) % share == 0;
}

uint64_t trial_count(const char *name, uint64_t usual)
{
    const uint64_t divisor = trial_number("TRIALS_DIVISOR", 1), fewer = divisor ? usual / divisor : usual;
    return trial_number(name, fewer ? fewer : 1);
}
