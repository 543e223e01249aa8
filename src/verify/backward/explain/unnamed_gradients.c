/* The right numbers of all maps of a backward, from which unnamed changes are computed. */
#include "attention/call/definition.h"
#include "verify/backward/explain/unnamed.h"

#include <math.h>
#include <string.h>

/* Rows as maps have them, and no keys but those that are given. */
static bool applies(const mha__backward *b)
{
    const mha__resolved *r = b->r;
    const mha__gradient_bug any = {.leaves = 0};
    return mha__has_plain_rows(b, &any) && mha__is_softmax(b) && !mha__semantics_of(r)->place.cu_seqlens_q &&
           !b->given->whole.lse.data && b->given->keep_count == 0 && b->keys[0].shape[0] == r->plan.B &&
           mha__semantics_of(r)->softmax.hidden_values != MHA_HIDDEN_PROPAGATE;
}

static mha_status no_memory(mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, "bugs", "no memory for the maps of a backward");
}

/* Copies the numbers of a map, and computes its O. */
static void copy_map(const mha__whole *w, const mha__map *map, double *O)
{
    const double *const from[] = {map->weights, map->d_scores, map->d_weights, map->d_masked};
    const size_t d = w->b->r->plan.d_v, at = map->b * w->H + map->head;
    for (int k = 0; k < MHA__MATRICES; k++)
        memcpy(w->matrix[k] + at * w->T * w->S, from[k], w->T * w->S * sizeof(double));
    for (size_t i = 0; i < w->T; i++) {
        double *row = O + ((map->b * w->T + i) * w->H + map->head) * d;
        memset(row, 0, d * sizeof *row);
        for (size_t j = 0; j < w->S; j++)
            for (size_t c = 0; c < d; c++)
                row[c] += map->weights[i * w->S + j] * map->V[j * d + c];
    }
}

/* The caller's gradient before it was rotated back. */
static void copy_found(const mha__whole *w, int g)
{
    const mha__extents *n = &w->rows[g].n;
    const size_t d = n->n[MHA__C];
    for (size_t at = 0; at < mha__elements(n); at += d) {
        const mha__element of = mha__split(n, MHA__BTHC, at);
        const mha__map map = {.b = of.at[MHA__B],
                              .head = of.at[MHA__H],
                              .g = of.at[MHA__H],
                              .s = mha__resolved_sequence(w->b->r, of.at[MHA__B])};
        mha__found_row(w->b, &map, (mha_gradient)g, of.at[MHA__T], w->found[g] + at);
    }
}

/* Chooses the row of dQ, and copies its right numbers. */
static mha_status choose_query(mha__gradient_search *s, mha__whole *w, mha_error *error)
{
    mha__backward *b = &s->b;
    mha__planned of_one = *mha__planned_of(b->r);
    mha__one_query *one = w->one = mha__arena_take(&b->memory, sizeof *one);
    const size_t d = b->r->plan.d_k;
    double most = -1;
    size_t chosen = 0;
    of_one.call.plan.T_q = 1;
    if (!one)
        return no_memory(error);
    one->bytes = mha__map_lay_out(&of_one.call, NULL, &one->map);
    one->numbers = mha__arena_scratch(&b->memory, one->bytes), one->right = mha__arena_scratch(&b->memory, one->bytes);
    if (!one->numbers || !one->right)
        return no_memory(error);
    for (size_t at = 0; at < w->B * w->H * w->T; at++) { /* (B, T, H) */
        double off = 0;
        for (size_t c = 0; c < d; c++) {
            const size_t index[4] = {at / w->H / w->T, at / w->H % w->T, at % w->H, c};
            off = fmax(off, fabs(mha_view_get(&s->found->of[MHA_D_QUERY], index) -
                                 mha_view_get(&s->exact[MHA_D_QUERY], index)));
        }
        if (off > most)
            most = off, chosen = at;
    }
    mha__make_map(b, chosen / w->H / w->T, chosen % w->H);
    one->map = b->map;
    (void)mha__map_lay_out(&of_one.call, one->numbers, &one->map);
    one->map.s.q_from = chosen / w->H % w->T, one->map.s.T_q = 1;
    mha__copy_query(b, &one->map, 0, &b->map, one->map.s.q_from);
    memcpy(one->map.K, b->map.K, w->S * d * sizeof *one->map.K);
    memcpy(one->map.V, b->map.V, w->S * b->r->plan.d_v * sizeof *one->map.V);
    memcpy(one->right, one->numbers, one->bytes);
    return MHA_OK;
}

mha_status mha__whole_begin(mha__gradient_search *s, mha__whole *w, bool *has, mha_error *error)
{
    mha__backward *b = &s->b;
    const mha__sizes *p = &b->r->plan;
    *w = (mha__whole){.b = b, .B = p->B, .T = p->T_q, .S = p->S, .H = p->h, .group = p->h / p->h_kv};
    if (!(*has = applies(b)))
        return MHA_OK;
    const size_t pairs = w->B * w->H * w->T * w->S, widest = p->d_k > p->d_v ? p->d_k : p->d_v,
                 most = w->T + w->S + w->B + w->H + widest;
    double *O = mha__arena_scratch(&b->memory, w->B * w->T * w->H * p->d_v * sizeof *O);
    w->from = mha__arena_scratch(&b->memory, most * sizeof *w->from);
    w->row = mha__arena_scratch(&b->memory, 2 * widest * sizeof *w->row);
    for (int k = 0; k < MHA__MATRICES; k++)
        if (!(w->matrix[k] = mha__arena_scratch(&b->memory, pairs * sizeof(double))))
            return no_memory(error);
    for (int g = 0; g <= MHA_D_VALUE; g++)
        if (s->wrong[g] && !(w->found[g] = mha__arena_scratch(&b->memory, mha_view_elements(&s->exact[g]) * 8)))
            return no_memory(error);
    if (!O || !w->from || !w->row)
        return no_memory(error);
    for (int kind = 0; kind < MHA__ROW_KINDS; kind++)
        w->rows[kind] = mha__rows_read(b, kind);
    w->rows[MHA__ROWS_O].data = O;
    for (size_t at = 0; at < w->B * w->H; at++) {
        mha__make_map(b, at / w->H, at % w->H);
        copy_map(w, &b->map, O);
    }
    for (int g = 0; g <= MHA_D_VALUE; g++)
        if (s->wrong[g])
            copy_found(w, g);
    return s->wrong[MHA_D_QUERY] ? choose_query(s, w, error) : MHA_OK;
}
