/* Bugs in the relative position bias and in relative terms. */
#include "support/bugs/oracle_bugs.h"

/* Column by column instead of row by row: the cell that takes the place of cell t. */
static double turned(const mha_bias *bias, double t)
{
    const double first = bias->class_token, W = (double)bias->width, H = (double)bias->height;
    return t < first ? t : first + fmod(t - first, H) * W + floor((t - first) / H);
}

double buggy_bias(const run *r, size_t head, size_t i, double p, double q)
{
    const mha_view *table = &r->weights[MHA_BIAS_TABLE];
    const int how = oracle_arg(AT_TABLE, OP_FROM);
    const size_t n = table->shape[0];
    mha_bias bias = r->s->added.bias;
    const double first = bias.one_way ? (double)n - 1 : (double)(n / 2 - 1), own = p;
    p = how == MHA__EXCHANGED ? q : how == MHA__FROM_0 ? (double)i : p;
    q = how == MHA__EXCHANGED ? own : q;
    if (how == MHA__BY_COLUMN)
        p = turned(&bias, p), q = turned(&bias, q);
    bias.one_way ^= how == MHA__OTHER_WAYS;
    size_t row = oracle_bias_row(&bias, n, p, q);
    if (how == MHA__LINEAR)
        row = q <= p ? (size_t)fmin(p - q, first) : bias.one_way ? 0 : n / 2 + (size_t)fmin(q - p, first);
    const size_t across = 2 * bias.width - 1, down = 2 * bias.height - 1;
    row = how == MHA__BY_HEIGHT && row < across * down ? row / across * down + row % across : row;
    if (row >= n) /* past the end */
        return 0;
    row += how == MHA__NEXT_ROW && row + 1 < n;
    row -= how == MHA__ROW_BEFORE && row > 0 && row < n;
    head = how == MHA__HEAD_0 ? 0 : how == MHA__HEADS_REVERSED ? r->h - 1 - head : head;
    const size_t at = how == MHA__TRANSPOSED ? head * n + row : row * r->h + head;
    return NUMBER(TABLE, TIMES, 1) * oracle_get(table, at / r->h, at % r->h, 0, 0);
}

/* The row of a table of relative terms for a query at p, query i of its sequence, and a key at q. */
static size_t row_of(const mha_relative *right, int weight, size_t n, size_t i, double p, double q)
{
    mha_relative rule = *right;
    const mha_bias cells = {.height = rule.height, .width = rule.width};
    const int how = oracle_arg(AT_RELATIVE, OP_FROM);
    if (how == MHA__EXCHANGED || (how == MHA__OTHER_WAY && weight == MHA_RELATIVE_Q))
        return oracle_relative_row(&rule, weight, n, q, p);
    if (how == MHA__BY_COLUMN)
        return oracle_relative_row(&rule, weight, n, turned(&cells, p), turned(&cells, q));
    if (how == MHA__LINEAR)
        rule.rule = MHA_RELATIVE_DISTANCE;
    p = how == MHA__FROM_0 ? (double)i : p;
    const size_t row = oracle_relative_row(&rule, weight, n, p, q);
    const double unclamped = floor((double)n / 2) + (rule.reversed ? q - p : p - q);
    if (how == MHA__WRAPPED && unclamped < 0 && unclamped >= -(double)n)
        return (size_t)(unclamped + (double)n);
    return row + (how == MHA__NEXT_ROW && row + 1 < n);
}

double buggy_relative(const run *r, size_t head, size_t i, double p, double q_at, const number *q, const number *k)
{
    const mha_relative *rule = &r->s->added.relative;
    const double root = 1 / sqrt((double)r->d_k), usual = r->s->softmax.scale;
    double sum = 0;
    for (int w = MHA_RELATIVE_K; rule->rule && w <= MHA_RELATIVE_Q; w++) {
        const mha_view *t = &r->weights[w];
        const bool of_key = w == MHA_RELATIVE_Q;
        if (!t->data || (of_key ? IS(RELATIVE, FROM, NO_Q) : IS(RELATIVE, FROM, NO_K)))
            continue;
        const size_t row = row_of(rule, w, t->shape[0], i, p, q_at),
                     column = t->shape[1] == r->d_k || IS(RELATIVE, FROM, HEAD_0) ? 0 : head * r->d_k;
        const double own = of_key ? rule->q_scale : rule->k_scale, right = own != 0 ? own : usual;
        const double scale = IS(RELATIVE, TIMES, SCALED_TWICE) ? right * usual
                             : IS(RELATIVE, TIMES, UNSCALED)   ? 1
                             : IS(RELATIVE, TIMES, LONE_SCALE) ? root
                                                               : right;
        for (size_t f = 0; f < r->d_k; f++)
            sum += scale * (of_key ? k : q)[f].v * oracle_get(t, row, column + f, 0, 0);
    }
    return sum;
}
