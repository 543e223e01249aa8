/* Random right calls, saved and made cases of in memory, are checked right on every path, or refused for a reason that
 * names what a case cannot say: every setting, layout and path; caches and pages of all types, of sequences of unequal
 * lengths; ragged batches, latents, gates, low precision; any stages. CASES_TRIALS=n tries n of them, CASES_SEED=s
 * begins with that seed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/rerun.h"
#include "support/scratch.h"
#include "support/trial.h"
#include "support/unit.h"

/* ---------------------------------------------------------------- draws besides a trial */

/* Drawn only from the trial's seed, so that a smaller trial has the same. */
typedef struct extras {
    mha_path path;
    bool latent, absorbed, paged, evicts;
    size_t page_rows;
    mha_dtype rows, stages; /* of a cache or of pages; of what is kept */
    mha_precision precision;
    unsigned keep; /* a bit for each stage; 0: all */
    uint64_t random;
} extras;

static uint64_t below(uint64_t *state, uint64_t n)
{
    const uint64_t at = (*state)++;
    return mha__random_bits(at, 11, at) % n;
}

static extras extras_of(uint64_t seed)
{
    static const mha_path paths[] = {MHA_PATH_EXACT, MHA_PATH_EXACT, MHA_PATH_BLAS, MHA_PATH_AUTO};
    static const mha_dtype rows[] = {MHA_F32, MHA_F64, MHA_F16, MHA_BF16, MHA_I8, MHA_F32},
                           low[] = {MHA_F16, MHA_BF16, MHA_F8_E4M3, MHA_F8_E5M2, MHA_I8};
    uint64_t state = seed * 1000, *x = &state;
    extras e = {.path = paths[below(x, 4)]};
    const bool exact = e.path == MHA_PATH_EXACT;
    e.latent = below(x, 6) == 0, e.absorbed = e.latent && below(x, 2), e.paged = below(x, 5) == 0;
    e.page_rows = 1 + below(x, 5);
    e.rows = rows[below(x, 6)];
    e.rows = e.rows == MHA_F64 && !exact ? MHA_F32 : e.rows;
    e.stages = exact && below(x, 4) ? MHA_F64 : MHA_F32;
    if (exact && below(x, 6) == 0) {
        e.precision = mha_precision_of(low[below(x, 5)]);
        e.precision.scores = below(x, 6) == 0 ? MHA_BF16 : MHA_F32;
    }
    e.keep = below(x, 2) ? 0 : 1 + (unsigned)below(x, (1u << MHA_STAGE_COUNT) - 1);
    e.evicts = !e.paged && below(x, 8) == 0;
    e.random = state;
    return e;
}

/* The trial as the extras want it: keys in pages are rows before the call; latents have their own weights and norms. */
static void adapt(const extras *e, trial *t)
{
    mha_config *c = &t->config;
    mha_semantics *s = &t->semantics;
    t->poison &= e->precision.inputs == MHA_F32; /* a tensor with an infinity has no scale */
    if (e->latent) {
        t->bare = false, t->layout = t->layout == MHA_TBE ? MHA_TBE : MHA_BTE;
        t->inputs = t->inputs == TRIAL_CROSS ? TRIAL_KEY_VALUE : t->inputs;
        c->d_vin = c->d_kin, c->kv_heads = c->n_heads;
        c->kv_rank = 1 + c->d_v, c->q_rank = c->bias_o ? 4 : 0, c->bias_latent = c->bias_q;
        c->bias_q = c->bias_k = c->bias_v = c->bias_kv = c->norm_bias = false;
        c->q_norm = c->k_norm = MHA_NORM_NONE;
        s->qkv.norm = (mha_norm_rule){.kind = MHA_NORM_RMS}, s->qkv.clip_qkv = 0, s->qkv.rope.last = true;
        c->d_rope = s->qkv.rope.kind && c->d_k > 2 ? 2 * ((c->d_k - 1) / 2) : 0;
        s->qkv.rope.kind = c->d_rope ? s->qkv.rope.kind : MHA_ROPE_NONE, s->qkv.rope.dim = c->d_rope;
        s->added.relative = (mha_relative){0};
        c->relative_k_rows = c->relative_column_rows = c->relative_q_rows = 0, c->relative_by_head = false;
    }
    if (e->paged) {
        t->past += t->inputs == TRIAL_SELF && !t->bare ? t->T_q : t->T_k, t->use_cache = true, t->T_k = 0;
        t->inputs = TRIAL_CROSS, t->poison = false;
        if (t->rope_tables == 3)
            t->rope_tables = 0;
    }
}

/* ---------------------------------------------------------------- rows before the call */

/* Rows (B, heads, P, d) as a cache of that type stores them: rounded. */
static void round_rows(rerun *run, mha_dtype dtype)
{
    const mha_view *k = &run->past_key, *v = &run->past_value;
    const mha_cache_spec spec = {.batch = k->shape[0], .kv_heads = k->shape[1], .d_k = k->shape[3], .d_v = v->shape[3],
                                 .capacity = k->shape[2] + 1, .dtype = dtype};
    mha_cache *cache;
    mha_error error;
    assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
    assert_ok(mha_cache_load(cache, k, v, &error), error);
    mha_view *const rows[] = {&run->past_key, &run->past_value};
    for (int i = 0; i < 2; i++) {
        void *memory = rerun_memory(run, mha_view_elements(rows[i]) * sizeof(float));
        *rows[i] = mha_view_of(memory, MHA_F32, 4, rows[i]->shape);
        if (mha_view_elements(rows[i]) > 0)
            assert_ok(mha_cache_read(cache, i == 1, rows[i], &error), error);
    }
    mha_cache_destroy(cache);
}

/* The rows that a rig has before its call; of absorbed latents they are latents. */
static void take_past(const extras *e, const rig *r, rerun *run)
{
    const mha_config *c = &r->t.config;
    run->past_key = r->past.keys, run->past_value = r->past.values;
    if (!e->absorbed || !r->past.keys.data)
        return;
    const size_t P = r->t.past, shape[4] = {r->t.B, 1, P, c->kv_rank + c->d_rope}, none[4] = {r->t.B, 1, P, 0};
    const size_t n = shape[0] * P * shape[3];
    run->past_key = mha_view_of(rerun_memory(run, n * sizeof(float)), MHA_F32, 4, shape);
    run->past_value = mha_view_of(rerun_memory(run, 1), MHA_F32, 4, none);
    const mha_view all = mha_view_of(run->past_key.data, MHA_F32, 1, &n);
    mha_random_fill(&all, r->t.seed, 5, -1, 1);
}

/* An empty pool for rows like these; those of 8 bits have a scale after them. */
static mha_view pool_like(rerun *run, const mha_view *rows, mha_dtype dtype, size_t pages, size_t page_rows)
{
    const size_t d = rows->shape[3], width = dtype == MHA_I8 ? (d + 3) / 4 * 4 + 4 : d;
    const size_t n = pages * page_rows * rows->shape[1] * width;
    void *memory = rerun_memory(run, n * sizeof(double));
    memset(memory, 0xFF, n * sizeof(double));
    const mha_view all = mha_view_of(memory, dtype, 4, (size_t[]){pages, page_rows, rows->shape[1], width});
    return mha_view_slice(&all, 3, 0, d);
}

/* Writes row j of a sequence: as the type rounds it. */
static void write_row(const mha_pages *p, const mha_view *rows, const mha_view *pool, size_t b, size_t j)
{
    const size_t size = p->keys.shape[1], page = (size_t)p->table[b * p->columns + j / size];
    for (size_t g = 0; g < rows->shape[1]; g++)
        for (size_t c = 0; c < rows->shape[3]; c++)
            mha_view_set(pool, (size_t[]){page, j % size, g, c}, mha_view_get(rows, (size_t[]){b, g, j, c}));
}

/* Puts the rows before the call into pages: of sequences that have all of them, or fewer. */
static void put_into_pages(const extras *e, rerun *run)
{
    uint64_t random = e->random;
    const mha_view *k = &run->past_key, *v = &run->past_value;
    const size_t B = k->shape[0], S = k->shape[2], columns = S / e->page_rows + 1, pages = B * columns;
    mha_pages *p = &run->call.pages;
    int32_t *table = rerun_memory(run, pages * sizeof *table);
    int64_t *lengths = rerun_memory(run, B * sizeof *lengths);
    for (size_t i = 0; i < pages; i++)
        table[i] = (int32_t)(pages - 1 - i);
    for (size_t b = 0; b < B; b++)
        lengths[b] = (int64_t)(below(&random, 3) ? S - below(&random, S + 1) : S);
    lengths[below(&random, B)] = (int64_t)S;
    *p = (mha_pages){.keys = pool_like(run, k, e->rows, pages, e->page_rows), .table = table, .columns = columns,
                     .lengths = lengths};
    if (!e->absorbed)
        p->values = pool_like(run, v, e->rows, pages, e->page_rows);
    for (size_t b = 0; b < B; b++)
        for (size_t j = 0; j < (size_t)lengths[b]; j++) {
            mha_error error;
            mha_view rows[2];
            for (int i = 0; i < 2; i++) {
                const mha_view row = mha_view_slice(i ? v : k, 0, b, 1), at = mha_view_slice(&row, 2, j, 1);
                rows[i] = (mha_view){.data = at.data, .dtype = at.dtype, .rank = 3,
                                     .shape = {1, at.shape[1], at.shape[3]}, .stride = {0, at.stride[1], 1}};
            }
            if (e->rows == MHA_I8) {
                assert_ok(mha_pages_write(p, b, j, &rows[0], e->absorbed ? NULL : &rows[1], &error), error);
                continue;
            }
            write_row(p, k, &p->keys, b, j);
            if (!e->absorbed)
                write_row(p, v, &p->values, b, j);
        }
    run->past_key = run->past_value = run->call.key = run->call.value = (mha_view){0};
    run->call.semantics.qkv.rope.k_positions = (mha_view){0};
}

/* ---------------------------------------------------------------- one call */

static size_t tried, refused, checked;

/* Whether a refusal names what a case has no word for. */
static bool is_reason(mha_status status, const mha_error *error)
{
    static const char *const known[] = {"has no word", "give each sequence whole", "expected equal positions"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (status == MHA_UNSUPPORTED && *error->name && strstr(error->message, known[i]))
            return true;
    return false;
}

/* Whether a verdict says of some stage that nothing can be said, and of none that it is wrong. */
static bool is_left_open(const mha_verdict *v)
{
    bool open = false;
    for (size_t i = 0; i < v->stage_count; i++)
        open |= !v->stages[i].checked && isinf(v->stages[i].atol);
    return open && v->outcome == MHA_OUTCOME_SKIPPED && v->culprit == v->stage_count;
}

/* Whether a case of a right call is not checked right on some path; `text` says what it says. */
static bool is_wrong(const mha_case *c, const char *of, char *text, size_t size)
{
    bool wrong = false;
    for (int path = MHA_PATH_AUTO; path <= MHA_PATH_EXACT && !wrong; path++) {
        mha_verdict v;
        mha_error error;
        assert_ok(mha_case_check(c, (mha_path)path, NULL, 1, &v, &error), error);
        const bool drops = v.outcome == MHA_OUTCOME_SKIPPED &&
                           strncmp(v.reason, "dropout_keep: expected path e", 29) == 0;
        wrong = v.outcome != MHA_OUTCOME_PASSED && !is_left_open(&v) && (!drops || path == MHA_PATH_EXACT);
        if (wrong) {
            const mha_stage_verdict *s = v.culprit < v.stage_count ? &v.stages[v.culprit] : NULL;
            snprintf(text, size, "%s, on %s: %s: %.150s (off by %g, allowed %g)", of, mha_path_name((mha_path)path),
                     mha_outcome_name(v.outcome), v.reason, s ? s->difference.max_abs : 0, s ? s->atol : 0);
        }
        mha_verdict_clear(&v);
    }
    checked++;
    return wrong;
}

static bool misjudged(const rig *r, const rerun *run, const mha_case_notes *notes, char *text, size_t size)
{
    mha_keep recorded[MHA_STAGE_COUNT];
    mha_case *made[2] = {NULL, NULL};
    mha_error error;
    const char *path = scratch_path("random.safetensors");
    const bool narrow = run->stage_dtype && *run->stage_dtype == MHA_F64 && run->call.path != MHA_PATH_EXACT;
    for (int s = 0; s < MHA_STAGE_COUNT; s++)
        recorded[s] = (mha_keep){.stage = (mha_stage)s, .view = run->stages[s]};
    mha_status status[2] = {mha_case_save(path, r->layer, &run->call, notes, &error), MHA_OK};
    bool wrong = status[0] != MHA_OK && !is_reason(status[0], &error);
    if (status[0] == MHA_OK) {
        status[0] = mha_case_open(path, NULL, &made[0], &error);
        wrong = status[0] != MHA_OK;
    }
    if (!wrong && !narrow) {
        status[1] = mha_case_of_call(r->layer, &run->call, recorded, MHA_STAGE_COUNT, notes, &made[1], &error);
        wrong = status[1] != MHA_OK && !is_reason(status[1], &error);
    }
    refused += status[0] != MHA_OK;
    if (wrong)
        snprintf(text, size, "refused: %.100s: %.200s", error.name, error.message);
    for (int i = 0; i < 2; i++) {
        wrong = wrong || (made[i] && is_wrong(made[i], i ? "made of the call" : "saved", text, size));
        mha_case_close(made[i]);
    }
    return wrong;
}

static bool case_fails(const trial *drawn, char *text, size_t size)
{
    const extras e = extras_of(drawn->seed);
    trial t = *drawn;
    rig r;
    rerun run;
    mha_error error;
    bool wrong = false;
    char why[500];
    adapt(&e, &t);
    trial_build(&t, &r);
    rerun_init(&run, r.layer, &r.call, NULL, NULL);
    run.cache_dtype = &e.rows, run.stage_dtype = &e.stages;
    run.call.absorbed = e.absorbed, run.call.precision = e.precision;
    take_past(&e, &r, &run);
    if (run.past_key.data && e.paged)
        put_into_pages(&e, &run);
    else if (run.past_key.data)
        round_rows(&run, e.rows);
    if (run.past_key.data && run.past_key.shape[2] > 0 && e.evicts) {
        uint64_t random = e.random;
        run.kept = 1 + below(&random, run.past_key.shape[2]), run.evicted = below(&random, 3);
    }
    if (rerun_run(&run, e.path, 1, 0, &error) == MHA_OK) {
        unsigned keep = 0, empty = 0;
        for (int s = 0; s < MHA_STAGE_COUNT; s++) {
            size_t shape[4];
            const int rank = mha_plan_stage(&run.plan, (mha_stage)s, shape);
            const mha_view v = mha_view_of(NULL, MHA_F32, rank, shape);
            keep |= rank > 0 ? 1u << s : 0;
            empty |= mha_view_elements(&v) == 0 ? 1u << s : 0;
        }
        keep &= e.keep & keep & ~empty ? e.keep : keep; /* a case without elements is skipped */
        assert_ok(rerun_run(&run, e.path, 1, keep, &error), error);
        const mha_case_notes notes = {.past_key = run.past_key, .past_value = run.past_value,
                                      .rope_origin = r.past.rope_origin};
        tried++;
        wrong = misjudged(&r, &run, &notes, why, sizeof why);
    }
    if (wrong)
        snprintf(text, size, "%s%s%s rows %s, stages %s%s, on %s: %s", e.latent ? "latent " : "",
                 e.absorbed ? "absorbed " : "", e.paged ? "pages of" : "cache of", mha_dtype_name(e.rows),
                 mha_dtype_name(e.stages), e.precision.inputs || e.precision.scores ? ", low precision" : "",
                 mha_path_name(e.path), why);
    rerun_free(&run);
    trial_release(&r);
    return wrong;
}

static void right_calls_are_checked_right(void **state)
{
    (void)state;
    const uint64_t first = trial_number("CASES_SEED", 1), n = trial_count("CASES_TRIALS", 400);
    const size_t wrong = trials_that_fail(first, n, 0, case_fails);
    if (wrong)
        fail_msg("%zu right calls are not checked right", wrong);
    print_message("%llu drawn: %zu calls, %zu of them refused, %zu cases checked right\n", (unsigned long long)n, tried,
                  refused, checked);
    assert_true(n < 100 || (tried > n / 2 && refused < tried / 3));
}

/* lse = log(1 + e^s) near 0, by a float32 kernel that adds before it takes the logarithm: its rounding is that of a sum
 * near 1, however small lse is. */
static void a_small_lse_is_rounded_like_its_sum(void **state)
{
    (void)state;
    enum { ROWS = 80 };
    static float q[ROWS], k[1] = {1}, lse[ROWS];
    for (int i = 0; i < ROWS; i++) {
        q[i] = -10 - (float)i / 16;
        lse[i] = logf(1 + expf(q[i]));
    }
    const mha_view key = mha_heads(k, 1, 1, 1, 1);
    const mha_call call = {.query = mha_heads(q, 1, ROWS, 1, 1), .key = key, .value = key,
                           .semantics = {.softmax.zero_row = true}};
    mha_keep kept = {.stage = MHA_STAGE_LSE, .view = mha_view_of(lse, MHA_F32, 3, (size_t[]){1, 1, ROWS})};
    for (int wrong = 0; wrong < 2; wrong++) {
        mha_case *c;
        mha_error error;
        char text[400] = "";
        assert_ok(mha_case_of_call(NULL, &call, &kept, 1, NULL, &c, &error), error);
        if (is_wrong(c, "lse", text, sizeof text) != (wrong == 1))
            fail_msg("%s%s", wrong ? "passed, although it is wrong" : "", text);
        mha_case_close(c);
        lse[3] += 2e-6f;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_calls_are_checked_right),
        cmocka_unit_test(a_small_lse_is_rounded_like_its_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
