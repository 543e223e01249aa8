/* The time of a split layer: a model of cost in closed form. */
#include "mha/split_time.h"

#include <math.h>

#include "base/base.h"

/* ---------------------------------------------------------------- what a rank has to do */

typedef struct duty {
    double inputs, output; /* seconds for Q, K and V; for the product with W_O */
    double attend;         /* over all pairs of the rank */
    double sent;           /* bytes, or received if these are more */
    double join;           /* seconds of moving what other ranks sent, or will get */
} duty;

/* Whether a query sees the keys up to its own position, so that half of all pairs are left. */
static bool is_triangle(const mha_split_work *w)
{
    return w->causal && w->split.T_q == w->split.T_k && w->cached == 0;
}

/* Seconds of a product that reads so many numbers. */
static double product(const mha_split_work *w, const mha_machine *m, double operations, double numbers)
{
    return fmax(operations / m->flops, numbers * (w->split.dtype == MHA_F64 ? 8 : 4) / m->memory);
}

static bool goes_round(const mha_split_work *w)
{
    return w->split.scheme == MHA_SPLIT_RING || w->split.scheme == MHA_SPLIT_ZIGZAG;
}

static size_t rows_in(const mha_range chunks[2])
{
    return chunks[0].count + chunks[1].count;
}

/* Numbers in a row of the keys and values that a head attends to. */
static double width_of(const mha_split_work *w)
{
    const mha_config *c = &w->split.config;
    return w->split.absorbed ? (double)(2 * c->kv_rank + c->d_rope) : (double)(c->d_k + c->d_v);
}

/* Pairs are counted with batch rows and heads; keys are rows of a sequence. */
static double attending(const mha_split_work *w, const mha_machine *m, const mha_share *share, double pairs,
                        double keys)
{
    const mha_config *c = &w->split.config;
    const double row = w->split.absorbed ? (double)(c->kv_rank + c->d_rope)
                                         : (double)share->kv_heads.count * (double)(c->d_k + c->d_v);
    return product(w, m, 2 * pairs * width_of(w), keys * (double)w->split.B * row);
}

/* Elements of the matrices on one side of a rank's layer. W_KVB multiplies queries and heads of an absorbed call, else
 * new keys. */
static double elements_of(const mha_config *c, bool absorbed, mha_weight_side side)
{
    double sum = 0;
    size_t shape[2];
    for (mha_weight w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_weight_info *info = mha_weight_at(w);
        const mha_weight_side on = absorbed && w == MHA_W_KVB ? MHA_WEIGHT_QUERIES : info->side;
        if (on == side && info->kind == MHA_WEIGHT_MATRIX && mha_config_weight_shape(c, w, shape, NULL) > 0)
            sum += (double)shape[0] * (double)shape[1];
    }
    return sum;
}

/* Pairs of a query of the rank with a chunk of keys that it may see in part. */
static double seen_by(const mha_split_work *w, const mha_share *share, size_t rank)
{
    const size_t P = w->split.ranks, chunks = P * share->chunks;
    double seen = 0;
    for (size_t i = 0; i < share->chunks; i++)
        seen += (double)share->queries[i].count *
                (double)(is_triangle(w) ? (i == 0 ? rank : 2 * P - 1 - rank) + 1 : chunks);
    return seen;
}

/* Bytes that a rank reads and writes in addition to products and messages (src/split/README.md). */
static double moved(const mha_split_work *w, const mha_share *share, size_t rank)
{
    const mha_split *s = &w->split;
    const mha_config *c = &s->config;
    const double P = (double)s->ranks, B = (double)s->B, size = s->dtype == MHA_F64 ? 8 : 4, T_q = (double)s->T_q,
                 h = (double)c->n_heads, d_k = (double)c->d_k, d_v = (double)c->d_v,
                 q = (double)rows_in(share->queries), k = (double)rows_in(share->keys),
                 H = (double)share->heads.count, K = (double)share->kv_heads.count;
    switch (s->scheme) {
    case MHA_SPLIT_TENSOR: return size * B * T_q * (double)c->d_out * (1 + 1 / P);
    case MHA_SPLIT_CACHE: return size * B * T_q * h * (d_v + 1) * (1 + 1 / P);
    case MHA_SPLIT_ULYSSES:
        return 2 * size * B * ((q * P + T_q) * H * (d_k + d_v) + (k * P + (double)s->T_k) * K * (d_k + d_v));
    default: return B * (2 * size * k * K * (d_k + d_v) + (size + 16) * seen_by(w, share, rank) * h * d_v);
    }
}

static duty duty_of(const mha_split_work *w, const mha_machine *m, size_t rank)
{
    const mha_split *s = &w->split;
    const mha_share share = mha_split_share(s, rank);
    const mha_config *c = &share.config;
    const size_t P = s->ranks;
    const bool by_heads = s->scheme == MHA_SPLIT_TENSOR || s->scheme == MHA_SPLIT_ULYSSES;
    const double B = (double)s->B, queries = (double)rows_in(share.queries), keys = (double)rows_in(share.keys),
                 fresh = s->scheme == MHA_SPLIT_CACHE || s->T_k == 0
                             ? (double)(s->T_k - w->cached)
                             : keys * (double)(s->T_k - w->cached) / (double)s->T_k,
                 W_Q = elements_of(c, s->absorbed, MHA_WEIGHT_QUERIES),
                 W_KV = elements_of(c, s->absorbed, MHA_WEIGHT_KEYS), W_O = elements_of(c, false, MHA_WEIGHT_HEADS);
    duty d = {.inputs = product(w, m, 2 * B * (queries * W_Q + fresh * W_KV), W_Q + W_KV),
              .output = product(w, m, 2 * B * queries * W_O, W_O),
              .sent = (double)(share.bytes_sent > share.bytes_received ? share.bytes_sent : share.bytes_received)};
    d.attend = attending(w, m, &share, (double)(is_triangle(w) ? share.causal_pairs : share.pairs),
                         by_heads || goes_round(w) ? (double)s->T_k : keys);
    d.join = P > 1 ? moved(w, &share, rank) / m->memory : 0;
    if (P == 1)
        d.sent = 0;
    return d;
}

/* ---------------------------------------------------------------- the model */

static mha_status check(const mha_split_work *w, const mha_machine *m, mha_error *error)
{
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"flops", m->flops}, {"memory", m->memory}, {"bandwidth", m->bandwidth}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!(numbers[i].value > 0) || isinf(numbers[i].value))
            return mha__fail(error, MHA_INVALID, "machine", "expected a positive number for %s, found %g",
                             numbers[i].name, numbers[i].value);
    if (!(m->latency >= 0) || isinf(m->latency))
        return mha__fail(error, MHA_INVALID, "machine", "expected a latency of 0 or more, found %g", m->latency);
    if (w->cached > w->split.T_k)
        return mha__fail(error, MHA_INVALID, "cached", "expected at most the %zu keys of the call, found %zu",
                         w->split.T_k, w->cached);
    return MHA_OK;
}

mha_status mha_split_time_of(const mha_split_work *w, const mha_machine *m, mha_split_time *time, mha_error *error)
{
    TRY(check(w, m, error));
    const double P = (double)w->split.ranks, rounds = goes_round(w) ? P - 1 : 2 * (P - 1),
                 cores = (double)(m->cores > 0 ? m->cores : m->node_ranks);
    double node = 0; /* seconds of the ranks that share the node of `rank`, one after the other */
    mha_split_time t = {0};
    for (size_t rank = 0; rank < w->split.ranks; rank++) {
        const duty d = duty_of(w, m, rank);
        const double exchange = rounds * m->latency + d.sent / m->bandwidth,
                     all = d.inputs + d.output + d.attend + exchange + d.join;
        t.project = fmax(t.project, d.inputs + d.output);
        t.attend = fmax(t.attend, d.attend);
        t.exchange = fmax(t.exchange, exchange);
        t.join = fmax(t.join, d.join);
        node = m->node_ranks > 0 && rank % m->node_ranks > 0 ? node + all : all;
        if (m->node_ranks > 0)
            t.total = fmax(t.total, fmax(all, node / cores));
    }
    if (m->node_ranks == 0)
        t.total = t.project + t.join +
                  (goes_round(w) ? t.attend / P + fmax(t.attend * (P - 1) / P, t.exchange) : t.attend + t.exchange);
    *time = t;
    return MHA_OK;
}
