/* Bugs in the relative position bias and in relative terms. */
#include "support/bugs/oracle_bugs.h"

static double at_most(double a, double b)
{
    return a < b ? a : b;
}

/* Column by column instead of row by row: the cell that takes the place of cell t. */
static double turned(const mha_bias *bias, double t)
{
    const double first = bias->class_token, W = (double)bias->width, H = (double)bias->height;
    if (t < first)
        return t;
    const double y = fmod(t - first, H), x = floor((t - first) / H);
    return first + y * W + x;
}

double buggy_bias(const run *r, size_t head, size_t i, double p, double q)
{
    const mha_view *table = &r->weights[MHA_BIAS_TABLE];
    const size_t n = table->shape[0];
    mha_bias bias = r->s->added.bias;
    const double first = bias.one_way ? (double)n - 1 : (double)(n / 2 - 1);
    if (is("position-bias-reversed")) {
        const double other = p;
        p = q, q = other;
    }
    p = is("position-bias-from-0") ? (double)i : p;
    if (is("position-bias-by-column") && bias.rule == MHA_BIAS_RULE_GRID)
        p = turned(&bias, p), q = turned(&bias, q);
    if (is("position-bias-other-ways") && bias.rule == MHA_BIAS_RULE_BUCKETS)
        bias.one_way = !bias.one_way;
    if (is("position-bias-distance-other") && bias.rule == MHA_BIAS_RULE_BUCKETS && given() > (double)n / 2)
        bias.max_distance = (size_t)given();
    size_t row = oracle_bias_row(&bias, n, p, q);
    if (is("position-bias-linear") && bias.rule == MHA_BIAS_RULE_BUCKETS)
        row = q <= p ? (size_t)at_most(p - q, first) : bias.one_way ? 0 : n / 2 + (size_t)at_most(q - p, first);
    row += is("position-bias-next-row") && row + 1 < n;
    row -= is("position-bias-row-before") && row > 0 && row < n;
    if (is("position-bias-head-0") || is("position-bias-heads-reversed"))
        head = is("position-bias-head-0") ? 0 : r->h - 1 - head;
    const size_t at = is("position-bias-transposed") ? head * n + row : row * r->h + head;
    return (is("position-bias-times") ? given() : 1) * oracle_get(table, at / r->h, at % r->h, 0, 0);
}

/* The row of a table of relative terms for a query at p, query i of its sequence, and a key at q. */
static size_t buggy_row(const mha_relative *right, bool both, int weight, size_t n, size_t i, double p, double q)
{
    mha_relative rule = *right;
    const mha_bias cells = {.height = rule.height, .width = rule.width};
    if (is("relative-reversed") || (is("relative-q-other-way") && both && weight == MHA_RELATIVE_Q))
        return oracle_relative_row(&rule, weight, n, q, p);
    if (is("relative-by-column") && rule.rule == MHA_RELATIVE_GRID)
        return oracle_relative_row(&rule, weight, n, turned(&cells, p), turned(&cells, q));
    if (is("relative-linear") && rule.rule == MHA_RELATIVE_LOG_BUCKETS)
        rule.rule = MHA_RELATIVE_DISTANCE;
    p = is("relative-from-0") ? (double)i : p;
    const size_t row = oracle_relative_row(&rule, weight, n, p, q);
    const double unclamped = floor((double)n / 2) + (rule.reversed ? q - p : p - q);
    if (is("relative-wrapped") && rule.rule == MHA_RELATIVE_DISTANCE && unclamped < 0 && unclamped >= -(double)n)
        return (size_t)(unclamped + (double)n);
    return row + (is("relative-next-row") && row + 1 < n);
}

double buggy_relative(const run *r, size_t head, size_t i, double p, double q_at, const number *q, const number *k)
{
    const mha_relative *rule = &r->s->added.relative;
    const double root = 1 / sqrt((double)r->d_k), usual = r->s->softmax.has_scale ? r->s->softmax.scale : root;
    const bool both = r->weights[MHA_RELATIVE_K].data && r->weights[MHA_RELATIVE_Q].data,
               shared = rule->k_scale == 0 && rule->q_scale == 0 && r->s->softmax.has_scale && r->s->softmax.scale != 0;
    double sum = 0;
    for (int w = MHA_RELATIVE_K; rule->rule && w <= MHA_RELATIVE_Q; w++) {
        const mha_view *t = &r->weights[w];
        const bool of_key = w == MHA_RELATIVE_Q;
        if (!t->data || (both && is(of_key ? "relative-q-missing" : "relative-k-missing")))
            continue;
        const size_t row = buggy_row(rule, both, w, t->shape[0], i, p, q_at),
                     column = t->shape[1] == r->d_k || is("relative-head-0") ? 0 : head * r->d_k;
        const double own = of_key ? rule->q_scale : rule->k_scale, right = own != 0 ? own : usual;
        const double scale = is("relative-scaled")                 ? right * usual
                             : is("relative-unscaled")             ? 1
                             : is("relative-lone-scale") && shared ? root
                                                                   : right;
        for (size_t f = 0; f < r->d_k; f++)
            sum += scale * (of_key ? k : q)[f].v * oracle_get(t, row, column + f, 0, 0);
    }
    return sum;
}

static void say_no_terms(const run *r, mha_semantics *s)
{
    (void)r;
    s->added.relative = (mha_relative){.rule = MHA_RELATIVE_NONE};
}

static void say_none(const run *r, mha_semantics *s)
{
    (void)r;
    s->added.bias = (mha_bias){.rule = MHA_BIAS_RULE_NONE};
}

const oracle_bug *bug_of_bias_at(size_t index)
{
    static const oracle_bug all[] = {
        {.name = "position-bias-missing", .says = say_none},
        {.name = "position-bias-reversed", .attend = buggy_attend},
        {.name = "position-bias-scaled", .attend = buggy_attend},
        {.name = "position-bias-distance-other 16", .attend = buggy_attend},
        {.name = "position-bias-from-0", .attend = buggy_attend},
        {.name = "position-bias-next-row", .attend = buggy_attend},
        {.name = "position-bias-row-before", .attend = buggy_attend},
        {.name = "position-bias-head-0", .attend = buggy_attend},
        {.name = "position-bias-heads-reversed", .attend = buggy_attend},
        {.name = "position-bias-times 1.44", .attend = buggy_attend},
        {.name = "position-bias-transposed", .attend = buggy_attend},
        {.name = "position-bias-other-ways", .attend = buggy_attend},
        {.name = "position-bias-linear", .attend = buggy_attend},
        {.name = "position-bias-by-column", .attend = buggy_attend},
        {.name = "relative-missing", .says = say_no_terms},
        {.name = "relative-k-missing", .attend = buggy_attend},
        {.name = "relative-q-missing", .attend = buggy_attend},
        {.name = "relative-reversed", .attend = buggy_attend},
        {.name = "relative-q-other-way", .attend = buggy_attend},
        {.name = "relative-from-0", .attend = buggy_attend},
        {.name = "relative-next-row", .attend = buggy_attend},
        {.name = "relative-linear", .attend = buggy_attend},
        {.name = "relative-wrapped", .attend = buggy_attend},
        {.name = "relative-by-column", .attend = buggy_attend},
        {.name = "relative-head-0", .attend = buggy_attend},
        {.name = "relative-scaled", .attend = buggy_attend},
        {.name = "relative-unscaled", .attend = buggy_attend},
        {.name = "relative-lone-scale", .attend = buggy_attend},
    };
    return index < sizeof all / sizeof *all ? &all[index] : NULL;
}
