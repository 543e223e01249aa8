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
    memcpy(w->sums + at * w->T, map->sums, w->T * sizeof(double));
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
    const bool keys = g != MHA_D_QUERY;
    const mha__sizes *p = &w->b->r->plan;
    const size_t rows = keys ? w->S : w->T, heads = keys ? w->G : w->H, d = g == MHA_D_VALUE ? p->d_v : p->d_k;
    for (size_t b = 0; b < w->B; b++)
        for (size_t r = 0; r < rows; r++)
            for (size_t head = 0; head < heads; head++) {
                const mha__map at = {.b = b, .head = head, .g = head, .s = mha__resolved_sequence(w->b->r, b)};
                mha__found_row(w->b, &at, (mha_gradient)g, r, w->found[g] + ((b * rows + r) * heads + head) * d);
            }
}

/* Chooses the row of dQ, and copies its right numbers. */
static mha_status choose_query(mha__gradient_search *s, mha__whole *w, mha_error *error)
{
    mha__backward *b = &s->b;
    const mha__sizes *p = &b->r->plan;
    const size_t bytes = mha__map_lay_out(b->r, NULL, &(mha__map){.n = 0}), d = p->d_k;
    mha__one_query *one = w->one = mha__arena_take(&b->memory, sizeof *one);
    char *data = mha__arena_scratch(&b->memory, bytes);
    double *more = mha__arena_scratch(&b->memory, (p->S * (d + 1) + d + p->d_v) * sizeof *more);
    double most = -1;
    size_t chosen = 0;
    if (!one || !data || !more)
        return no_memory(error);
    (void)mha__map_lay_out(b->r, data, &one->map);
    one->slope = more, one->Q = more + p->S, one->dO = one->Q + d, one->room = one->dO + p->d_v;
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
    mha__map_read(b, chosen / w->H / w->T, chosen % w->H);
    const mha__map *map = &b->map;
    const size_t i = one->query = chosen / w->H % w->T;
    one->map.b = map->b, one->map.head = map->head, one->map.g = map->g, one->map.s = map->s, one->map.n = map->n;
    one->map.s.T_q = 1;
    memcpy(one->slope, map->slope + i * map->n, p->S * sizeof *more);
    memcpy(one->map.seen, map->seen + i * map->n, map->n);
    memcpy(one->Q, map->Q + i * d, d * sizeof *more);
    memcpy(one->dO, map->dO + i * p->d_v, p->d_v * sizeof *more);
    memcpy(one->map.K, map->K, p->S * d * sizeof *more), memcpy(one->map.V, map->V, p->S * p->d_v * sizeof *more);
    one->lse = map->lse[i], one->d_lse = map->d_lse[i];
    return MHA_OK;
}

mha_status mha__whole_begin(mha__gradient_search *s, mha__whole *w, bool *has, mha_error *error)
{
    mha__backward *b = &s->b;
    const mha__sizes *p = &b->r->plan;
    *w = (mha__whole){.b = b, .B = p->B, .T = p->T_q, .S = p->S, .H = p->h, .G = p->h_kv, .group = p->h / p->h_kv};
    if (!(*has = applies(b)))
        return MHA_OK;
    const size_t pairs = w->B * w->H * w->T * w->S, widest = p->d_k > p->d_v ? p->d_k : p->d_v,
                 most = w->T + w->S + w->B + w->H + widest;
    double *O = mha__arena_scratch(&b->memory, w->B * w->T * w->H * p->d_v * sizeof *O);
    w->sums = mha__arena_scratch(&b->memory, w->B * w->H * w->T * sizeof *w->sums);
    w->from = mha__arena_scratch(&b->memory, most * sizeof *w->from);
    w->row = mha__arena_scratch(&b->memory, 2 * widest * sizeof *w->row);
    for (int k = 0; k < MHA__MATRICES; k++)
        if (!(w->matrix[k] = mha__arena_scratch(&b->memory, pairs * sizeof(double))))
            return no_memory(error);
    for (int g = 0; g <= MHA_D_VALUE; g++)
        if (s->wrong[g] && !(w->found[g] = mha__arena_scratch(&b->memory, mha_view_elements(&s->exact[g]) * 8)))
            return no_memory(error);
    if (!O || !w->sums || !w->from || !w->row)
        return no_memory(error);
    const double *const rows[] = {b->stages[MHA_STAGE_Q_ROT].data, b->keys[0].data, b->keys[1].data, b->d_heads.data,
                                  O};
    memcpy(w->rows, rows, sizeof rows);
    for (size_t at = 0; at < w->B * w->H; at++) {
        mha__map_read(b, at / w->H, at % w->H);
        mha__map_weights(b, &b->map), mha__map_sums(b, &b->map);
        mha__map_masked(b, &b->map), mha__map_scores(b, &b->map);
        copy_map(w, &b->map, O);
    }
    for (int g = 0; g <= MHA_D_VALUE; g++)
        if (s->wrong[g])
            copy_found(w, g);
    return s->wrong[MHA_D_QUERY] ? choose_query(s, w, error) : MHA_OK;
}
