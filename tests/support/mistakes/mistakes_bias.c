/* Mistakes in the relative position bias. */
#include "support/mistakes/mistakes.h"

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

double mistaken_bias(const run *r, size_t head, size_t i, double p, double q)
{
    const mha_view *table = &r->weights[MHA_BIAS_TABLE];
    const size_t n = table->shape[0];
    mha_bias bias = r->s->bias;
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
    size_t row = oracle_bias_row(&bias, n, p, q);
    if (is("position-bias-linear") && bias.rule == MHA_BIAS_RULE_BUCKETS)
        row = q <= p ? (size_t)at_most(p - q, first) : bias.one_way ? 0 : n / 2 + (size_t)at_most(q - p, first);
    row += is("position-bias-next-row") && row + 1 < n;
    const size_t at = is("position-bias-transposed") ? head * n + row : row * r->h + head;
    return oracle_get(table, at / r->h, at % r->h, 0, 0);
}

static void say_none(const run *r, mha_semantics *s)
{
    (void)r;
    s->bias = (mha_bias){.rule = MHA_BIAS_RULE_NONE};
}

const oracle_mistake *mistake_of_bias_at(size_t index)
{
    static const oracle_mistake all[] = {
        {.name = "position-bias-missing", .says = say_none},
        {.name = "position-bias-reversed", .attend = mistaken_attend},
        {.name = "position-bias-scaled", .attend = mistaken_attend},
        {.name = "position-bias-from-0", .attend = mistaken_attend},
        {.name = "position-bias-next-row", .attend = mistaken_attend},
        {.name = "position-bias-transposed", .attend = mistaken_attend},
        {.name = "position-bias-other-ways", .attend = mistaken_attend},
        {.name = "position-bias-linear", .attend = mistaken_attend},
        {.name = "position-bias-by-column", .attend = mistaken_attend},
    };
    return index < sizeof all / sizeof *all ? &all[index] : NULL;
}
