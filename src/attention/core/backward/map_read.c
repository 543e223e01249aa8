/* One head of one sequence: read from the stages of the forward, and its gradients added to those of all heads. */
#include <math.h>
#include <string.h>

#include "attention/call/definition.h"
#include "attention/core/backward/backward.h"
#include "attention/core/exact/exact_visible.h"

size_t mha__map_lay_out(const mha__resolved *r, char *base, mha__map *map)
{
    const mha__sizes *p = &r->plan;
    const size_t n = p->S + p->S_extra, T = p->T_q;
    mha__workspace arena = {base, 0};
    const struct {
        double **at;
        size_t rows, width;
    } parts[] = {{&map->Q, T, p->d_k},     {&map->K, n, p->d_k},     {&map->V, n, p->d_v},  {&map->dO, T, p->d_v},
                 {&map->dQ, T, p->d_k},    {&map->dK, n, p->d_k},    {&map->dV, n, p->d_v}, {&map->weights, T, n},
                 {&map->kept, T, n},
                 {&map->slope, T, n},      {&map->d_weights, T, n},  {&map->d_masked, T, n}, {&map->d_scores, T, n},
                 {&map->lse, T, 1},        {&map->d_lse, T, 1},      {&map->sums, T, 1},
                 {&map->turned, n, T > p->d_v ? T : p->d_v}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        *parts[i].at = mha__workspace_take(&arena, parts[i].rows, parts[i].width * sizeof(double));
    map->seen = mha__workspace_take(&arena, T, n);
    return arena.used;
}

/* Row `row` of the inputs of a head in a contiguous (rows, heads, d). */
static double *row_of(const mha_view *rows, size_t row, size_t heads, size_t head, size_t d)
{
    return (double *)rows->data + (row * heads + head) * d;
}

/* Row `at` of an extra row's weight; the zero row has none. */
static double extra(const mha_view *weight, size_t at, bool is_bias)
{
    return is_bias && weight->data ? mha_view_get(weight, &at) : 0;
}

static void read_rows(const mha__backward *b, mha__map *map)
{
    const mha__resolved *r = b->r;
    const mha__sizes *p = &r->plan;
    const mha__sequence *s = &map->s;
    const size_t q_row = s->batch * r->query.shape[1] + s->q_from,
                 k_row = s->k_batch * b->keys[0].shape[1] + s->k_from;
    for (size_t i = 0; i < s->T_q; i++) {
        memcpy(map->Q + i * p->d_k, row_of(&b->stages[MHA_STAGE_Q_ROT], q_row + i, p->h, map->head, p->d_k),
               p->d_k * sizeof *map->Q);
        memcpy(map->dO + i * p->d_v, row_of(&b->d_heads, q_row + i, p->h, map->head, p->d_v), p->d_v * sizeof *map->dO);
    }
    for (size_t j = 0; j < s->S; j++) {
        memcpy(map->K + j * p->d_k, row_of(&b->keys[0], k_row + j, p->h_kv, map->g, p->d_k),
               p->d_k * sizeof *map->K);
        memcpy(map->V + j * p->d_v, row_of(&b->keys[1], k_row + j, p->h_kv, map->g, p->d_v),
               p->d_v * sizeof *map->V);
    }
    for (size_t j = s->S; j < map->n; j++) {
        for (size_t c = 0; c < p->d_k; c++)
            map->K[j * p->d_k + c] = extra(&r->weight[MHA_BIAS_K], map->g * p->d_k + c, j == s->S);
        for (size_t c = 0; c < p->d_v; c++)
            map->V[j * p->d_v + c] = extra(&r->weight[MHA_BIAS_V], map->g * p->d_v + c, j == s->S);
    }
}

/* Results of the forward for query i: its weights, the slope of its softcap, its lse. */
static void read_query(const mha__backward *b, mha__map *map, size_t i)
{
    const mha__resolved *r = b->r;
    const size_t n = map->n, at = i * n;
    const mha_view *lse = &b->stages[MHA_STAGE_LSE], *d_lse = &b->given->d_lse;
    const double softcap = mha__semantics_of(r)->softmax.softcap;
    const bool pads = mha__exact_pads(r, map->b, i),
               propagates = !pads && mha__semantics_of(r)->softmax.hidden_values == MHA_HIDDEN_PROPAGATE;
    mha__exact_see(r, &map->s, map->b, map->head, i, map->seen + at, map->d_masked + at);
    memset(map->seen + at + map->s.S, !pads, n - map->s.S);
    for (size_t j = 0; j < n; j++) {
        const size_t index[4] = {map->b, map->head, i, j};
        map->weights[at + j] = map->seen[at + j] ? mha_view_get(&b->stages[MHA_STAGE_WEIGHTS], index) : 0;
        if (!map->seen[at + j] && propagates)
            map->seen[at + j] = MHA__PROPAGATES;
        const double turn = softcap > 0 ? cosh(mha_view_get(&b->stages[MHA_STAGE_SCORES], index) / softcap) : 1;
        map->slope[at + j] = 1 / (turn * turn);
        map->kept[at + j] = mha__exact_dropout(r, map->b, map->head, i, j);
    }
    map->lse[i] = lse->data ? mha_view_get(lse, (size_t[]){map->b, map->head, i}) : NAN;
    map->d_lse[i] = d_lse->data ? mha_view_get(d_lse, (size_t[]){map->b, map->head, i}) : 0;
}

double mha__map_whole(const mha__map *map, const mha_view *rows, size_t i, size_t c)
{
    return mha_view_get(rows, (size_t[]){map->s.batch, map->s.q_from + i, map->head, c});
}

/* Makes the weights of query i among the keys of the call those among all keys. */
static void read_whole(const mha__backward *b, mha__map *map, size_t i)
{
    const double lse = mha_view_get(&b->given->whole.lse, (size_t[]){map->b, map->head, i});
    for (size_t j = 0; j < map->n; j++)
        if (map->seen[i * map->n + j] == MHA__SEEN)
            map->weights[i * map->n + j] *= exp(map->lse[i] - lse);
    map->lse[i] = lse;
}

void mha__map_read(mha__backward *b, size_t sequence, size_t head)
{
    const mha__sizes *p = &b->r->plan;
    mha__map *map = &b->map;
    map->b = sequence, map->head = head, map->g = head / (p->h / p->h_kv);
    map->s = mha__resolved_sequence(b->r, sequence);
    if (b->alone && map->s.T_q > b->alone_queries)
        map->s.T_q = b->alone_queries;
    map->n = map->s.S + p->S_extra;
    map->q_scale = map->k_scale = p->scale;
    read_rows(b, map);
    for (size_t i = 0; i < map->s.T_q; i++) {
        read_query(b, map, i);
        if (b->given->whole.lse.data)
            read_whole(b, map, i);
    }
}

static void add(double *to, const double *from, size_t n)
{
    for (size_t c = 0; c < n; c++)
        to[c] += from[c];
}

void mha__map_gather(const mha__backward *b, const mha__map *map)
{
    const mha__resolved *r = b->r;
    const mha__sizes *p = &r->plan;
    const mha__sequence *s = &map->s;
    const mha_view *bias_k = &b->d[MHA_D_WEIGHTS + MHA_BIAS_K], *bias_v = &b->d[MHA_D_WEIGHTS + MHA_BIAS_V];
    const size_t q_row = s->batch * r->query.shape[1] + s->q_from,
                 k_row = s->k_batch * b->d_keys[0].shape[1] + s->k_from;
    for (size_t i = 0; i < s->T_q; i++)
        add(row_of(&b->d[MHA_D_QUERY], q_row + i, p->h, map->head, p->d_k), map->dQ + i * p->d_k, p->d_k);
    for (size_t j = 0; j < s->S; j++) {
        add(row_of(&b->d_keys[0], k_row + j, p->h_kv, map->g, p->d_k), map->dK + j * p->d_k, p->d_k);
        add(row_of(&b->d_keys[1], k_row + j, p->h_kv, map->g, p->d_v), map->dV + j * p->d_v, p->d_v);
    }
    if (bias_k->data && r->weight[MHA_BIAS_K].data)
        add(row_of(bias_k, 0, p->h_kv, map->g, p->d_k), map->dK + s->S * p->d_k, p->d_k);
    if (bias_v->data && r->weight[MHA_BIAS_V].data)
        add(row_of(bias_v, 0, p->h_kv, map->g, p->d_v), map->dV + s->S * p->d_v, p->d_v);
}
