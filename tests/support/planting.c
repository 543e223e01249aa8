/* Cases with results of the oracle, right ones and wrong ones. */
#include "support/planting.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "compute/gemm.h"
#include "mha/lab.h"
#include "support/unit.h"
#include "verify/bugs/bugs.h"
#include "verify/engine/runner.h"

void planting_run(rig *r, const mha__program *program, oracle *result)
{
    const oracle_bug bug = program ? oracle_plant(program, &r->call.semantics) : (oracle_bug){0};
    oracle_wrong = program ? &bug : NULL;
    oracle_run(r->layer ? &r->t.config : NULL, r->weights, &r->call, &r->past, 0x1p-53, result);
    oracle_wrong = NULL;
}

mha_stage planting_stage(const char *name)
{
    return strncmp(name, "lse-", 4) == 0 ? MHA_STAGE_LSE : MHA_STAGE_OUTPUT;
}

mha_case *planting_case(rig *r, mha_stage stage, mha_dtype type, const oracle_stage *recorded)
{
    mha_case *c;
    mha_error error;
    const bool by_head = !r->layer && stage == MHA_STAGE_OUTPUT;
    const size_t heads[] = {recorded->shape[0], recorded->shape[1], r->t.config.n_heads, r->t.config.d_v};
    const size_t *shape = by_head ? heads : recorded->shape;
    const int rank = by_head ? 4 : recorded->rank;
    void *memory = malloc((recorded->elements + 1) * sizeof(double));
    const mha_view values = mha_view_of(recorded->value, MHA_F64, rank, shape);
    const mha_keep keep = {.stage = stage, .view = mha_view_of(memory, type, rank, shape)};
    const mha_case_notes notes = {
        .past_key = r->past.keys, .past_value = r->past.values, .rope_origin = r->past.rope_origin};
    assert_int_equal(mha_view_copy(&keep.view, &values, NULL), MHA_OK);
    const mha_status status = mha_case_of_call(r->layer, &r->call, &keep, 1, &notes, &c, &error);
    free(memory);
    if (status != MHA_OK && status != MHA_UNSUPPORTED)
        fail_msg("seed %llu: %s: %s", (unsigned long long)r->t.seed, error.name, error.message);
    return status == MHA_OK ? c : NULL;
}

mha__inputs *planting_inputs(rig *r, const oracle *right, mha_case **c)
{
    mha__inputs *inputs = NULL;
    mha_error error;
    *c = planting_case(r, MHA_STAGE_OUTPUT, MHA_F64, &right->stage[MHA_STAGE_OUTPUT]);
    if (*c)
        assert_ok(mha__inputs_create(*c, &inputs, &error), error);
    return inputs;
}

bool planting_engine(const mha__inputs *inputs, const mha__program *program, mha_stage stage, oracle_stage *result)
{
    size_t elements = 1;
    mha_error error;
    mha__gemm_bracket bracket;
    *result = (oracle_stage){.rank = 0};
    result->rank = mha__run_shape(inputs, stage, result->shape);
    for (int k = 0; k < result->rank; k++)
        elements *= result->shape[k];
    result->value = malloc((elements + 1) * sizeof *result->value);
    mha__runner *runner = mha__runner_create(inputs, NULL, 0);
    assert_non_null(runner);
    assert_ok(mha__gemm_begin(1, &bracket, &error), error);
    const bool ran = mha__run(runner, program, stage, NULL, result->value);
    mha__gemm_end(&bracket);
    mha__runner_destroy(runner);
    mha__stage_pack(inputs, stage, result->value, result->shape);
    result->elements = 1;
    for (int k = 0; k < result->rank; k++)
        result->elements *= result->shape[k];
    return ran;
}

/* ---------------------------------------------------------------- bugs with numbers */

static double *numbers_for(size_t n)
{
    static double *blocks[256];
    static size_t at;
    double **block = &blocks[at++ % 256];
    free(*block);
    return *block = calloc(n + 1, sizeof **block);
}

static double uniform(uint64_t *seed)
{
    return (double)(mha__random_bits((*seed)++, 11, 3) >> 11) * 0x1p-53;
}

/* The number at a random place of its list; false for an empty list. */
static bool choose(const mha_case *c, const mha__bug_entry *e, uint64_t *seed, double *x)
{
    size_t n = 0;
    while (n < 40 && e->choice(c, n, x))
        n++;
    return n > 0 && e->choice(c, (size_t)(uniform(seed) * (double)n), x);
}

static bool draw_numbers(const mha_case *c, const mha__bug_entry *e, uint64_t seed, double *x)
{
    const size_t n = mha__solved_count(c, e), S = c->P + c->T_k, T = e->how == SOLVE_QUERIES ? c->T_q : S;
    const double u = 0.15 + 0.65 * uniform(&seed), sign = e->how == SOLVE_SIGNED && uniform(&seed) < 0.5 ? -1 : 1;
    bool drawn = n > 0;
    char text[32];
    for (size_t i = 0; i < n && drawn; i++) {
        const size_t t = i % (T + (T == 0)), last = n - 1;
        x[i] = (double)i;
        switch (e->how) {
        case SOLVE_LISTED: drawn = choose(c, e, &seed, x); break;
        case SOLVE_BY_BATCH: x[i] = (double)(S - i % (S + (S == 0)) - S / 3); break;
        case SOLVE_BY_HEAD: x[i] = uniform(&seed) - 0.5; break;
        case SOLVE_BY_HEADS: x[i] = 2 * i < n ? 0.2 + 0.1 * (double)i : 1 + 0.3 * (double)(i - n / 2); break;
        case SOLVE_COUNTS: x[i] = t % 3 == 1 ? 2 : 1; break;
        case SOLVE_FREE: x[i] = floor(40 * u - 20) / 10; break;
        case SOLVE_FACTORS: x[i] = 1 + 0.3 * (double)i; break;
        case SOLVE_KEYS: x[i] = (t + i / S) % 3 != 1; break;
        case SOLVE_DROPPED: x[i] = i == 0 ? 0.3 : uniform(&seed) >= 0.3; break;
        case SOLVE_UNWRITTEN: x[i] = strstr(e->shown.name, "end") ? 37 : 1 + floor(3 * u); break;
        case SOLVE_HEADS: x[i] = n < 3 ? (double)i : (double)((i + 2) % n); break;
        case SOLVE_BIASES: x[i] = uniform(&seed) - 0.5; break;
        case SOLVE_NORMS: x[i] = 0.6 + 0.8 * uniform(&seed); break;
        case SOLVE_Q_HEADS:
        case SOLVE_BLOCKS:
        case SOLVE_KV_BLOCKS:
        case SOLVE_BATCHES: x[i] = (double)(i == 0 ? last : i == last ? 0 : i); break;
        case SOLVE_COLUMNS: x[i] = (double)(n > 4 && i == 1 ? last : n > 4 && i == last ? 1 : i); break;
        case SOLVE_KV_HEADS: x[i] = (double)((i * c->H_kv / c->H + 1) % c->H_kv); break;
        case SOLVE_WRITTEN: x[i] = (double)(i % c->T_q) - (c->T_q > 4 && i % c->T_q + 2 >= c->T_q ? 2 : 0); break;
        case SOLVE_VALUES:
        case SOLVE_KEY_ROWS:
        case SOLVE_QUERIES: x[i] = (double)(T < 8 || t >= 8 ? t : t < 4 ? t + 4 : t - 4); break; /* four for four */
        default:
            snprintf(text, sizeof text, "%.2g", sign * e->low * pow(e->high / e->low, u));
            x[i] = strtod(text, NULL);
        }
    }
    return drawn;
}

bool planting_draw(const mha_case *c, size_t index, uint64_t seed, planting_bug *bug)
{
    const mha__bug_entry *e = mha__solved_entry_at(index);
    const size_t n = e ? mha__solved_count(c, e) : 0;
    char text[100] = "";
    *bug = (planting_bug){.index = index, .x = numbers_for(n)};
    if (e && !draw_numbers(c, e, seed + mha__text_hash(e->shown.name), bug->x))
        return false;
    if (n == 1 && e->how != SOLVE_UNWRITTEN)
        mha__numbers_say(c, e, bug->x, text, sizeof text);
    snprintf(bug->name, sizeof bug->name, "%s%s%s", mha_bug_at(index)->name, *text ? " " : "", text);
    return true;
}

bool planting_read(const mha_case *c, const char *text, planting_bug *bug)
{
    const size_t length = strcspn(text, " ");
    mha_error error;
    *bug = (planting_bug){0};
    while (strlen(mha_bug_at(bug->index)->name) != length || strncmp(mha_bug_at(bug->index)->name, text, length) != 0)
        bug->index++;
    snprintf(bug->name, sizeof bug->name, "%s", text);
    const mha__bug_entry *e = mha__solved_entry_at(bug->index);
    bug->x = numbers_for(e ? mha__solved_count(c, e) : 0);
    return !e || mha__numbers_read(c, e, text + length, bug->x, &error) == MHA_OK;
}

bool planting_add(const mha_case *c, const planting_bug *bug, mha__program *program)
{
    bool has = mha__bug_apply(c, bug->index, bug->x, program);
    for (size_t i = 0; i < program->n; i++)
        has &= program->m[i].site != AT_LATENT && program->m[i].site != AT_PAGE;
    return has && c->kv_rank == 0;
}

bool planting_is_ragged(const mha__program *program)
{
    bool is = program->s.qkv.norm_eps > 0;
    for (size_t i = 0; i < program->n; i++) {
        const mha__mutation *m = &program->m[i];
        is &= m->site == AT_CALL || (m->site == AT_OUT && m->op == OP_TIMES) ||
              (m->site >= AT_PLACE && m->site <= AT_P && !(m->site == AT_E && m->op == OP_OVER));
    }
    return is;
}

bool planting_is_named(const mha_bug_match *e, size_t which, const char *name)
{
    char text[128];
    const char *found = e->found[which];
    snprintf(text, sizeof text, "%s%s%s", e->bugs[which], *found ? " " : "", found);
    return strcmp(text, name) == 0 || strcmp(e->bugs[which], name) == 0 || (strchr(name, ' ') && !*found);
}
