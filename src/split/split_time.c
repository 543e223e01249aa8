/* The time of a split layer: the model of cost in closed form, and the same machine message by message. */
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

/* Pairs of a query of the rank with a chunk of keys of which it may see some. */
static double seen_by(const mha_split_work *w, const mha_share *share, size_t rank)
{
    const size_t P = w->split.ranks, chunks = P * share->chunks;
    double seen = 0;
    for (size_t i = 0; i < share->chunks; i++)
        seen += (double)share->queries[i].count *
                (double)(is_triangle(w) ? (i == 0 ? rank : 2 * P - 1 - rank) + 1 : chunks);
    return seen;
}

/* Bytes that a rank reads and writes beside products and messages (src/split/README.md). */
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

/* ---------------------------------------------------------------- the simulation */

/* When each rank is done (`now`), has the keys of the step (`has`, `next`), and has its link free (`in`, `out`). */
typedef struct clocks {
    double *now, *has, *next, *in, *out;
    mha_share *shares;
} clocks;

/* Seconds of a message; one without content is not sent. */
static double message(const mha_machine *m, double bytes)
{
    return bytes > 0 ? m->latency + bytes / m->bandwidth : 0;
}

/* Every rank sends a message to every other one, and waits for theirs; bytes(w, from, to). */
static void exchange_all(const mha_split_work *w, const mha_machine *m, clocks *t,
                         double (*bytes)(const mha_split_work *, const mha_share *, size_t, size_t))
{
    const size_t P = w->split.ranks;
    for (size_t r = 0; r < P; r++)
        t->in[r] = t->out[r] = t->now[r];
    for (size_t i = 1; i < P; i++)
        for (size_t r = 0; r < P; r++) {
            const size_t to = (r + i) % P;
            const double done = fmax(t->out[r], t->in[to]) + message(m, bytes(w, t->shares, r, to));
            t->out[r] = t->in[to] = done;
        }
    for (size_t r = 0; r < P; r++)
        t->now[r] = fmax(t->in[r], t->out[r]);
}

static double number_bytes(const mha_split_work *w, double numbers)
{
    return numbers * (w->split.dtype == MHA_F64 ? 8 : 4);
}

/* A sum over all ranks: each adds up its part, then sends it to all. Elements of the part, and their widths. */
static double part(const mha_split_work *w, size_t rank)
{
    const mha_split *s = &w->split;
    const size_t each = s->scheme == MHA_SPLIT_TENSOR ? s->config.d_out : s->config.n_heads;
    return (double)mha_range_of(s->B * s->T_q * each, s->ranks, rank).count;
}

static double to_sum(const mha_split_work *w, const mha_share *shares, size_t from, size_t to)
{
    (void)shares, (void)from;
    return number_bytes(w, part(w, to) * (w->split.scheme == MHA_SPLIT_TENSOR ? 1 : (double)w->split.config.d_v + 1));
}

static double to_all(const mha_split_work *w, const mha_share *shares, size_t from, size_t to)
{
    (void)shares, (void)to;
    return number_bytes(w, part(w, from) * (w->split.scheme == MHA_SPLIT_TENSOR ? 1 : (double)w->split.config.d_v));
}

static double to_heads(const mha_split_work *w, const mha_share *shares, size_t from, size_t to)
{
    const mha_config *c = &w->split.config;
    const double q = (double)(shares[from].queries[0].count * shares[to].heads.count * c->d_k),
                 k = (double)(shares[from].keys[0].count * shares[to].kv_heads.count * (c->d_k + c->d_v));
    return number_bytes(w, (double)w->split.B * (q + k));
}

static double to_rows(const mha_split_work *w, const mha_share *shares, size_t from, size_t to)
{
    return number_bytes(w, (double)(w->split.B * shares[to].queries[0].count * shares[from].heads.count) *
                               (double)w->split.config.d_v);
}

/* Visible pairs of one query chunk with one key chunk: where a mask is causal, both are chunks of one sequence. */
static double pairs_between(const mha_split_work *w, mha_range q, mha_range k)
{
    const double pairs = (double)q.count * (double)k.count;
    if (!is_triangle(w) || q.from > k.from)
        return pairs;
    return q.from == k.from ? (pairs + (double)q.count) / 2 : 0;
}

/* Seconds for which a rank attends to the keys of another one. */
static double step(const mha_split_work *w, const mha_machine *m, const mha_share *mine, const mha_share *theirs)
{
    double pairs = 0;
    for (size_t i = 0; i < mine->chunks; i++)
        for (size_t j = 0; j < theirs->chunks; j++)
            pairs += pairs_between(w, mine->queries[i], theirs->keys[j]);
    pairs *= (double)w->split.B * (double)w->split.config.n_heads;
    return pairs > 0 ? attending(w, m, mine, pairs, (double)rows_in(theirs->keys)) : 0;
}

/* Whose keys a rank has in a step. */
static size_t owner_of(const mha_split_work *w, size_t rank, size_t at)
{
    return rank >= at ? rank - at : rank + w->split.ranks - at;
}

/* Keys and values go round: a rank passes on what has come while it attends to it. */
static void go_round(const mha_split_work *w, const mha_machine *m, clocks *t)
{
    const size_t P = w->split.ranks;
    const mha_config *c = &w->split.config;
    const double width = (double)w->split.B * (double)c->kv_heads * (double)(c->d_k + c->d_v);
    for (size_t r = 0; r < P; r++)
        t->has[r] = t->now[r];
    for (size_t s = 0; s < P; s++) {
        for (size_t r = 0; r < P; r++) {
            const size_t before = owner_of(w, r, 1);
            const double rows = (double)rows_in(t->shares[owner_of(w, before, s)].keys);
            t->next[r] = fmax(t->has[before], t->has[r]) + message(m, number_bytes(w, rows * width));
            t->now[r] = fmax(t->now[r], t->has[r]) + step(w, m, &t->shares[r], &t->shares[owner_of(w, r, s)]);
        }
        double *had = t->has;
        t->has = t->next, t->next = had;
    }
}

mha_status mha_split_simulate(const mha_split_work *w, const mha_machine *m, double *seconds, mha_error *error)
{
    enum { MOST = 8192, CLOCKS = 5 };
    const size_t P = w->split.ranks;
    TRY(check(w, m, error));
    if (m->node_ranks > 0)
        return mha__fail(error, MHA_UNSUPPORTED, "machine",
                         "a simulation has a core and a link for each rank: expected node_ranks 0, found %zu",
                         m->node_ranks);
    if (P > MOST)
        return mha__fail(error, MHA_UNSUPPORTED, "ranks", "a simulation takes at most %d ranks, found %zu", MOST, P);
    const mha_allocator allocator = mha__allocator_default();
    const size_t bytes = P * (CLOCKS * sizeof(double) + sizeof(mha_share));
    double *memory = mha__allocate(&allocator, bytes);
    if (!memory)
        return mha__fail(error, MHA_NO_MEMORY, "ranks", "no memory for the clocks of %zu ranks", P);
    clocks t = {memory, memory + P, memory + 2 * P, memory + 3 * P, memory + 4 * P, (mha_share *)(memory + CLOCKS * P)};
    for (size_t r = 0; r < P; r++) {
        t.shares[r] = mha_split_share(&w->split, r);
        t.now[r] = duty_of(w, m, r).inputs;
    }
    if (goes_round(w))
        go_round(w, m, &t);
    else {
        if (w->split.scheme == MHA_SPLIT_ULYSSES)
            exchange_all(w, m, &t, to_heads);
        for (size_t r = 0; r < P; r++)
            t.now[r] += duty_of(w, m, r).attend;
        if (w->split.scheme == MHA_SPLIT_ULYSSES)
            exchange_all(w, m, &t, to_rows);
        else if (w->split.scheme == MHA_SPLIT_CACHE) {
            exchange_all(w, m, &t, to_sum);
            exchange_all(w, m, &t, to_all);
        }
    }
    for (size_t r = 0; r < P; r++) {
        const duty d = duty_of(w, m, r);
        t.now[r] += d.output + d.join;
    }
    if (w->split.scheme == MHA_SPLIT_TENSOR) {
        exchange_all(w, m, &t, to_sum);
        exchange_all(w, m, &t, to_all);
    }
    *seconds = 0;
    for (size_t r = 0; r < P; r++)
        *seconds = fmax(*seconds, t.now[r]);
    mha__release(&allocator, memory, bytes);
    return MHA_OK;
}
