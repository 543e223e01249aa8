/* Bugs in which heads are read, how they are merged, and in the output projection. */
#include <stdlib.h>
#include <string.h>

#include "support/bugs/oracle_bugs.h"

/* ---------------------------------------------------------------- key/value heads */

/* Makes one key/value head for each query head, as kernels do that do not know groups. */
static void repeat_heads(run *r)
{
    size_t all = (r->S + r->extra), each = r->h / r->h_kv;
    number **parts[] = {&r->keys, &r->values};
    const size_t widths[] = {r->d_k, r->d_v};
    for (int part = 0; part < 2; part++) {
        size_t size = all * widths[part];
        bool right = is(part ? "groups-k-tiled" : "groups-v-tiled");
        number *more = malloc((r->B * r->h * size + 1) * sizeof *more);
        for (size_t b = 0; b < r->B; b++)
            for (size_t h = 0; h < r->h; h++) {
                size_t g = right || is("groups-last-first") ? h / each : is("groups-first") ? 0 : h % r->h_kv;
                if (is("groups-last-first"))
                    g = r->h_kv - 1 - g;
                if (begins("groups-") && strstr(oracle_wrong->name, "other")) /* each head the next group's */
                    g = is(part ? "groups-k-other" : "groups-v-other")
                            ? h / each
                            : (size_t)given_at(h, (double)((h / each + 1) % r->h_kv)) % r->h_kv;
                if (is("case-lacks-groups"))
                    g = r->h_kv % 2 ? h / each : h * 2 / r->h;
                memcpy(more + (b * r->h + h) * size, *parts[part] + (b * r->h_kv + g) * size, size * sizeof *more);
            }
        free(*parts[part]);
        *parts[part] = more;
    }
    r->h_kv = r->h;
}

/* ---------------------------------------------------------------- merging */

/* Writes each number of the heads to another place of the memory that is then read as (B, T, h*d_v). */
static void merge(run *r, number *heads)
{
    size_t T = r->T_q, h = r->h, d = r->d_v, size = T * h * d, places = 1;
    number *old = malloc((size + 1) * sizeof *old);
    for (const char *c = oracle_wrong->name; *c; c++)
        places += *c == ',';
    for (size_t b = 0; b < r->B; b++, heads += size) {
        memcpy(old, heads, size * sizeof *old);
        for (size_t t = 0; t < T; t++)
            for (size_t i = 0; i < h; i++)
                for (size_t f = 0; f < d; f++) {
                    number x = old[(t * h + i) * d + f];
                    if (is("merge-averaged")) {
                        number *y = &heads[(t * h + i) * d + f];
                        y->v = 0;
                        for (size_t other = 0; other < h; other++)
                            y->v += old[(t * h + other) * d + f].v / (double)h;
                    } else if (is("merge-permuted"))
                        heads[(t * h + i) * d + f] = old[(t * h + (places == h ? (size_t)given_at(i, 0) : i)) * d + f];
                    else if (is("merge-reversed"))
                        heads[(t * h + h - 1 - i) * d + f] = x;
                    else if (is("merge-features-first")) /* np.ascontiguousarray(o.transpose(1, 2, 0)).reshape(T, -1) */
                        heads[(i * d + f) * T + t] = x;
                    else if (is("merge-interleaved"))
                        heads[(t * d + f) * h + i] = x;
                    else if (is("merge-untransposed")) /* o.reshape(B, T, -1) of (B, h, T, d) */
                        heads[(i * T + t) * d + f] = x;
                    else if (is("merge-transposed")) /* o.transpose(1, 2).reshape(B, h, T, -1) of (B, h, T, d) */
                        heads[((t * h + i) % T * h + (t * h + i) / T) * d + f] = x;
                    else /* o[:, head] = o[:, head].T.reshape(T, d) */
                        heads[((f * T + t) / d * h + i) * d + (f * T + t) % d] = x;
                }
    }
    free(old);
}

/* ---------------------------------------------------------------- output */

static double bias(const run *r, size_t j)
{
    return r->weights[MHA_B_O].data ? oracle_get(&r->weights[MHA_B_O], j, 0, 0, 0) : 0;
}

/* (heads + b_O) W_O: the oracle adds b_O behind. */
static void add_before(run *r, number *heads)
{
    for (size_t e = 0; e < r->rows_q * r->h * r->d_v && r->h * r->d_v == r->d_out; e++)
        heads[e].v += bias(r, e % r->d_out);
}

/* Two batch rows written into each other's place. */
static void exchange(run *r, const number *heads, oracle_stage *y)
{
    const size_t half = y->elements / 2;
    (void)heads;
    for (size_t e = 0; e < half && y->shape[0] == 2 && r->s->place.n_sequences == 0; e++) {
        const double other = y->value[half + e];
        y->value[half + e] = y->value[e], y->value[e] = other;
    }
}

/* Two columns of the merged heads, written into each other's place. */
static void exchange_columns(run *r, number *heads)
{
    const size_t n = r->h * r->d_v;
    for (size_t row = 0; row < r->rows_q && n > 4; row++, heads += n) {
        const number kept = heads[1];
        heads[1] = heads[n - 1], heads[n - 1] = kept;
    }
}

/* The last two rows written with those before them. */
static void leave_tail(run *r, const number *heads, oracle_stage *y)
{
    const size_t T = r->T_q, rows = r->B * T, width = rows > 0 ? y->elements / rows : 1;
    (void)heads;
    for (size_t e = 0; e < y->elements && T > 4 && r->s->place.n_sequences == 0; e++)
        if (e / width % T >= T - 2)
            y->value[e] = y->value[e - 2 * width];
}

/* A tail that nobody writes. */
static void leave_unwritten(run *r, const number *heads, oracle_stage *y)
{
    const size_t T = r->T_q, h = r->h, d = r->d_v, width = T > 0 ? y->elements / r->B / T : 1;
    const bool bare = r->call->query.rank == 4;
    (void)heads;
    for (size_t e = 0; e < y->elements && r->s->place.n_sequences == 0; e++) {
        const size_t b = e / width / T, t = e / width % T, head = e % width / d, f = e % width % d;
        if (is("output-lacks-rows")       ? (double)t >= given_at(0, 3)
            : is("output-lacks-batches")  ? (double)b >= given_at(0, 1)
            : is("output-lacks-end")      ? (double)e >= given_at(0, 37)
            : is("output-lacks-heads")    ? bare && (double)head >= given_at(0, 1)
            : is("output-lacks-features") ? bare && (double)f >= given_at(0, 2)
                                          : bare && (double)(((b * h + head) * T + t) * d + f) >= given_at(0, 41))
            y->value[e] = 0;
    }
}

static void finish(run *r, const number *heads, oracle_stage *y)
{
    for (size_t e = 0; e < y->elements; e++) {
        size_t j = e % r->d_out;
        if (is("output-times"))
            y->value[e] *= given();
        else if (is("bias-o-twice"))
            y->value[e] += bias(r, j);
        else if (is("residual-added") && r->call->query.rank == 3 && r->call->query.shape[2] == r->d_out)
            y->value[e] += oracle_get(&r->call->query, e / r->d_out / r->T_q, e / r->d_out % r->T_q, j, 0);
        else if (is("queries-added") && r->call->query.rank == 4 && r->d_k == r->d_v)
            y->value[e] += oracle_get(&r->call->query, e / r->d_out / r->T_q, e / r->d_out % r->T_q,
                                      e % r->d_out / r->d_k, e % r->d_k);
        else if (is("bias-o-per-head"))
            y->value[e] += ((double)r->h - 1) * bias(r, j);
        else if (is("bias-o-before") && r->h * r->d_v == r->d_out)
            y->value[e] -= bias(r, j);
        else if (is("output-unprojected") && r->h * r->d_v == r->d_out)
            y->value[e] = heads[e].v + bias(r, j);
    }
}

/* Divides by the sigmoid that the heads were multiplied by, which is above 0 for the numbers of these tests. */
static void gate_wrongly(run *r, number *heads)
{
    const mha_view *W = &r->weights[MHA_W_G], *b = &r->weights[MHA_B_G];
    const size_t width = r->h * r->d_v, T = r->call->query.shape[1];
    for (size_t e = 0; e < r->rows_q * width && W->data; e++) {
        const size_t row = e / width, gate = e % width / (width / W->shape[1]);
        double z = b->data ? oracle_get(b, gate, 0, 0, 0) : 0;
        for (size_t i = 0; i < W->shape[0]; i++)
            z += oracle_get(&r->call->query, row / T, row % T, i, 0) * oracle_get(W, i, gate, 0, 0);
        heads[e].v *= is("gate-silu") ? z : (1 + exp(-z)) * (is("gate-no-sigmoid") ? z : 1);
    }
}

const oracle_bug *bug_of_output_at(size_t index)
{
    static const oracle_bug all[] = {
        {.name = "groups-k-tiled", .gathered = repeat_heads},
        {.name = "groups-v-tiled", .gathered = repeat_heads},
        {.name = "groups-other", .gathered = repeat_heads},
        {.name = "groups-k-other", .gathered = repeat_heads},
        {.name = "groups-v-other", .gathered = repeat_heads},
        {.name = "groups-first", .gathered = repeat_heads},
        {.name = "groups-last-first", .gathered = repeat_heads},
        {.name = "gate-missing", .gated = gate_wrongly},
        {.name = "gate-no-sigmoid", .gated = gate_wrongly},
        {.name = "gate-silu", .gated = gate_wrongly},
        {.name = "merge-reversed", .merged = merge},
        {.name = "merge-features-first", .merged = merge},
        {.name = "merge-turned", .merged = merge},
        {.name = "merge-transposed", .merged = merge},
        {.name = "bias-o-per-head", .finished = finish},
        {.name = "bias-o-before", .gated = add_before, .finished = finish},
        {.name = "output-unprojected", .finished = finish},
        {.name = "output-times 1.25", .finished = finish},
        {.name = "output-times -0.8", .finished = finish},
        {.name = "batch-permuted 1, 0", .finished = exchange},
        {.name = "output-columns-other", .merged = exchange_columns},
        {.name = "output-rows-other", .finished = leave_tail},
        {.name = "output-lacks-rows", .finished = leave_unwritten},
        {.name = "output-lacks-batches", .finished = leave_unwritten},
        {.name = "output-lacks-end", .finished = leave_unwritten},
        {.name = "output-lacks-heads", .finished = leave_unwritten},
        {.name = "output-lacks-features", .finished = leave_unwritten},
        {.name = "output-lacks-end-by-head", .finished = leave_unwritten},
        {.name = "merge-averaged", .merged = merge},
        {.name = "merge-permuted 2, 0, 1", .merged = merge},
        {.name = "case-lacks-groups 2", .gathered = repeat_heads},
        {.name = "groups-tiled", .gathered = repeat_heads},
        {.name = "merge-interleaved", .merged = merge},
        {.name = "merge-untransposed", .merged = merge},
        {.name = "bias-o-twice", .finished = finish},
        {.name = "residual-added", .finished = finish},
        {.name = "queries-added", .finished = finish},
    };
    return index < sizeof all / sizeof *all ? &all[index] : NULL;
}
