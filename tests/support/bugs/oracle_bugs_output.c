/* Bugs after the weights: weights of other heads, merging, the gate, the output projection. */
#include "support/bugs/oracle_bugs.h"

/* Whether heads of all batch rows stand in the place of others. */
#define IS_OF_BLOCKS (OP(OUT, TAKE) && OP(OUT, TAKE)->axis == MHA__H)

void buggy_merging(run *r, number *heads)
{
    const size_t T = r->T_q, h = r->h, d = r->d_v, size = r->rows_q * h * d;
    const size_t n[] = {r->B, T, h, d}, step[] = {T * h * d, h * d, d, 1};
    const mha__mutation *times = OP(O, TIMES);
    if (OP(E, OVER) || OP(P, OVER))
        buggy_weights_across(r, heads);
    for (size_t e = 0; e < size && OP(O, OVER); e += h * d)
        for (size_t f = 0; f < d; f++) {
            double sum = 0;
            for (size_t g = 0; g < h; g++)
                sum += heads[e + g * d + f].v / (double)h;
            for (size_t g = 0; g < h; g++)
                heads[e + g * d + f].v = sum;
        }
    for (size_t e = 0; e < size && times; e++)
        heads[e].v *= times->table[e / d % h];
    oracle_move(OP(M, FROM), heads, n, step);
    number *old = (number *)oracle_memory(2 * size);
    memcpy(old, heads, size * sizeof *old);
    for (size_t e = 0; e < size && IS_OF_BLOCKS; e++) {
        const size_t from = (size_t)OP(OUT, TAKE)->table[e / (T * h * d) * h + e / d % h];
        heads[e] = old[(from / h * T + e / (h * d) % T) * h * d + from % h * d + e % d];
    }
    oracle_move(OP(COLUMN, FROM), heads, (const size_t[]){1, r->rows_q, 1, h * d}, (const size_t[]){0, h * d, 0, 1});
}

static double bias(const run *r, size_t j)
{
    return r->weights[MHA_B_O].data ? oracle_get(&r->weights[MHA_B_O], j, 0, 0, 0) : 0;
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
        heads[e].v *= IS(GATE, FN, GATE_SILU) ? z : (1 + exp(-z)) * (IS(GATE, FN, GATE_PLAIN) ? z : 1);
    }
}

void buggy_gate(run *r, number *heads)
{
    if (OP(GATE, FN))
        gate_wrongly(r, heads);
    for (size_t e = 0; OP(B_O, MOVE) && e < r->rows_q * r->h * r->d_v; e++)
        heads[e].v += bias(r, e % r->d_out);
}

/* Gives rows back that were read with two axes taken for each other. */
static void give_back(run *r, oracle_stage *y)
{
    const bool by_head = IS(CALL, FN, HEADS_AS_TIME);
    const size_t outer = by_head ? y->shape[0] : 1, n = by_head ? y->shape[1] : y->shape[0],
                 m = by_head ? r->h : y->shape[1], d = by_head ? r->d_v : y->shape[2];
    double *old = oracle_memory(y->elements);
    memcpy(old, y->value, y->elements * sizeof *old);
    for (size_t row = 0; row < outer * n * m; row++)
        memcpy(y->value + row * d, old + ((row / (n * m) * n + row % n) * m + row / n % m) * d, d * sizeof *old);
    y->shape[by_head ? 1 : 0] = m;
    y->shape[by_head ? 2 : 1] = by_head ? n * d : n;
}

void buggy_output(run *r, const number *heads, oracle_stage *y)
{
    const size_t T = r->T_q, rows = r->rows_q, width = rows > 0 ? y->elements / rows : 1, d = r->d_v;
    const mha__mutation *other = OP(OUT, FROM), *batch = IS_OF_BLOCKS ? NULL : OP(OUT, TAKE), *lacks = OP(OUT, ZERO);
    double *old = oracle_memory(y->elements);
    if (OP(CALL, FN) && oracle_program->s.place.n_sequences == 0)
        give_back(r, y);
    for (size_t e = 0; e < y->elements; e++) {
        const size_t row = e / width, j = e % width, b = row / (T + (T == 0)), t = row % (T + (T == 0));
        const mha_view *query = &r->call->query;
        y->value[e] = OP(OUT, DO) ? heads[e].v + bias(r, j) : y->value[e] - (OP(B_O, MOVE) ? bias(r, j) : 0);
        y->value[e] *= NUMBER(OUT, TIMES, 1);
        if (OP(OUT, PLUS))
            y->value[e] += query->rank == 3 ? oracle_get(query, b, t, j, 0) : oracle_get(query, b, t, j / d, j % d);
    }
    memcpy(old, y->value, y->elements * sizeof *old);
    for (size_t e = 0; e < y->elements && (other || batch || lacks); e++) {
        const size_t b = e / width / T, t = e / width % T, j = e % width;
        const size_t from = (batch ? (size_t)batch->table[b] : b) * T + (other ? (size_t)other->table[b * T + t] : t);
        y->value[e] = old[from * width + j];
        if (lacks &&
            (double)(lacks->arg == MHA__LACKS_ROWS       ? t
                     : lacks->arg == MHA__LACKS_BATCHES  ? b
                     : lacks->arg == MHA__LACKS_END      ? e
                     : lacks->arg == MHA__LACKS_HEADS    ? j / d
                     : lacks->arg == MHA__LACKS_FEATURES ? j % d
                                                         : ((b * r->h + j / d) * T + t) * d + j % d) >= lacks->number)
            y->value[e] = 0;
    }
}
