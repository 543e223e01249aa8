/* Finds clues of single heads in an output, although W_O mixed them: each head adds its own vectors to the rows. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/dot.h"
#include "compute/gemm.h"
#include "verify/diagnose/clues.h"
#include "verify/diagnose/solve/solve.h"
#include "verify/thresholds/thresholds.h"

/* ---------------------------------------------------------------- one head */

/* True if every row of the difference is a sum of the rows of W_O for one head, by least squares. `memory`: d_v * d_v
 * numbers, and a row of the output and of the head. */
static bool is_of_head(const mha__search *s, const mha__grid *g, size_t head, double *memory)
{
    const size_t out = g->n[3], d_v = s->c->d_v;
    const double *W = s->inputs->weight[MHA_W_O] + head * d_v * out;
    double *rest = memory + d_v * d_v, *x = rest + out;
    memset(memory, 0, d_v * d_v * sizeof *memory);
    mha__equations_add(W, d_v, out, NULL, memory, NULL);
    bool is = mha__cholesky(memory, d_v, MHA__PIVOT);
    for (size_t row = 0; is && row < g->n[0] * g->n[2]; row++) {
        double allowed = 0;
        for (size_t j = 0; j < out; j++) {
            const double at_y = mha__grid_y(g, row / g->n[2], 0, row % g->n[2], j),
                         at_x = mha__grid_x(g, row / g->n[2], 0, row % g->n[2], j);
            rest[j] = mha__search_same(g->target, at_x, at_y) ? 0 : at_y - at_x;
            allowed = fmax(allowed, mha__grid_limit(g, at_y));
        }
        for (size_t f = 0; f < d_v; f++)
            x[f] = mha__dot(W + f * out, rest, out);
        mha__cholesky_solve(memory, d_v, x);
        for (size_t j = 0; is && j < out; j++) {
            for (size_t f = 0; f < d_v; f++)
                rest[j] -= x[f] * W[f * out + j];
            is = fabs(rest[j]) <= MHA__CLUE_ROUNDINGS * allowed;
        }
    }
    return is;
}

/* Names the one head that differs, where W_O leaves room to see that it is one. */
static mha_status find_head(const mha__search *s, const mha__grid *g, mha__clue_list *list, mha_error *error)
{
    const mha_allocator a = mha__allocator_default();
    const size_t out = g->n[3], d_v = s->c->d_v, bytes = (d_v * d_v + d_v + out) * sizeof(double);
    if (d_v + 2 > out)
        return MHA_OK;
    double *memory = mha__allocate(&a, bytes);
    if (!memory)
        return mha__search_no_memory(s, error);
    size_t found = 0, which = 0;
    for (size_t h = 0; h < s->c->H; h++)
        if (is_of_head(s, g, h, memory))
            which = h, found++;
    if (found == 1)
        mha__clue_add(
            list,
            (mha_clue){
                .kind = MHA_CLUE_RANGE, .axis = MHA_CLUE_HEADS, .first = which, .last = which, .extent = s->c->H});
    mha__release(&a, memory, bytes);
    return MHA_OK;
}

/* ---------------------------------------------------------------- factors of heads */

/* The memory for one row: what each head adds to it (h, d_out), the equations, the factors, and what is left. */
typedef struct row_memory {
    double *parts, *G, *factors, *rest;
} row_memory;

/* Finds the factors of the heads in one row; false when no factors give the row. */
static bool factors_of_row(const mha__search *s, const mha__grid *g, const double *heads, size_t b, size_t t,
                           const row_memory *m)
{
    const size_t H = s->c->H, d_v = s->c->d_v, out = g->n[3];
    const double *bias = s->inputs->weight[MHA_B_O], *row = heads + (b * s->c->T_q + t) * H * d_v;
    double allowed = 0, largest = 1;
    for (size_t h = 0; h < H; h++)
        mha__gemm_double(1, out, d_v, row + h * d_v, d_v, s->inputs->weight[MHA_W_O] + h * d_v * out, out,
                         m->parts + h * out, out);
    for (size_t j = 0; j < out; j++) {
        m->rest[j] = mha__grid_y(g, b, 0, t, j) - (bias ? bias[j] : 0);
        allowed = fmax(allowed, mha__grid_limit(g, mha__grid_y(g, b, 0, t, j)));
    }
    memset(m->G, 0, H * H * sizeof *m->G), memset(m->factors, 0, H * sizeof *m->factors);
    mha__equations_add(m->parts, H, out, m->rest, m->G, m->factors);
    if (!mha__equations_solve(m->G, H, MHA__PIVOT, m->factors))
        return false;
    for (size_t h = 0; h < H; h++) {
        largest = fmax(largest, fabs(m->factors[h]));
        for (size_t j = 0; j < out; j++)
            m->rest[j] -= m->factors[h] * m->parts[h * out + j];
    }
    for (size_t j = 0; j < out; j++)
        if (!(fabs(m->rest[j]) <= MHA__CLUE_ROUNDINGS * largest * allowed))
            return false;
    return true;
}

/* Whether each checked row is made of the heads of the case, each times a number of its own. */
static void find_factors(const mha__search *s, const mha__grid *g, const double *heads, const row_memory *m,
                         mha__clue_list *list)
{
    double least = INFINITY, most = -INFINITY;
    for (size_t r = 0; r < s->c->B * s->c->T_q; r++) {
        if (!s->rows_checked[r])
            continue;
        if (!factors_of_row(s, g, heads, r / s->c->T_q, r % s->c->T_q, m))
            return;
        for (size_t h = 0; h < s->c->H; h++)
            least = fmin(least, m->factors[h]), most = fmax(most, m->factors[h]);
    }
    if (least < most)
        mha__clue_add(list, (mha_clue){.kind = MHA_CLUE_ROW_FACTORS, .factor = {least, most}});
}

static mha_status prepare_factors(const mha__search *s, const mha__grid *g, mha__clue_list *list, mha_error *error)
{
    const size_t H = s->c->H, out = g->n[3], width = H * s->c->d_v;
    mha__arena pool = {.allocator = mha__allocator_default()};
    mha_status status = MHA_OK;
    double *heads = mha__arena_take(&pool, s->c->B * s->c->T_q * width * sizeof *heads);
    const row_memory m = {mha__arena_take(&pool, H * out * sizeof(double)),
                          mha__arena_take(&pool, H * H * sizeof(double)), mha__arena_take(&pool, H * sizeof(double)),
                          mha__arena_take(&pool, out * sizeof(double))};
    if (heads && m.parts && m.G && m.factors && m.rest) {
        mha__run(s->workers.bench[0], &s->unmodified.program, MHA_STAGE_HEADS, s->rows_checked, heads);
        find_factors(s, g, heads, &m, list);
    } else
        status = mha__search_no_memory(s, error);
    mha__arena_free(&pool);
    return status;
}

mha_status mha__clues_of_heads(const mha__search *s, const mha__grid *g, mha__clue_list *list, mha_error *error)
{
    const size_t H = s->c->H;
    if (s->target.stage != MHA_STAGE_OUTPUT || s->c->kind != CASE_MHA || H < 2)
        return MHA_OK;
    TRY(find_head(s, g, list, error));
    for (size_t i = 0; i < list->count; i++)
        if (list->clues[i].kind == MHA_CLUE_FACTOR || list->clues[i].kind == MHA_CLUE_VECTOR)
            return MHA_OK;
    return 2 * H <= g->n[3] && !s->inputs->gates && !s->halted ? prepare_factors(s, g, list, error) : MHA_OK;
}
