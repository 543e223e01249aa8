/* Terms added to scores by positions: ALiBi, tables of biases and of relative terms, keys counted several times. */
#include <math.h>
#include <stdlib.h>

#include "attention/core/terms/terms.h"
#include "verify/engine/runner.h"

mha__query mha__query_of(const mha__inputs *in, const mha__program *p, size_t b, size_t i)
{
    const bool at_0 = mha__has(p, AT_PLACE, OP_ZERO);
    const int64_t offset = in->c->semantics.place.key_offset;
    return (mha__query){in, p, b, i, at_0 ? 0 : offset, mha__first_query(in->c, b) + (at_0 ? offset : 0)};
}

double mha__slope_at(const mha__inputs *in, const mha__program *p, size_t h)
{
    const double times = mha__number(p, AT_ALIBI, OP_TIMES, in->c->semantics.added.alibi_slopes ? 1 : 0);
    const double H = (double)in->c->H, below = exp2(floor(log2(H))), i = (double)h;
    if (times == 0)
        return 0;
    switch (mha__arg(p, AT_SLOPES, OP_FN)) {
    case MHA__SLOPES_FROM_0: return times * exp2(-8 * i / H);
    case MHA__PLAIN_SLOPES: return times * exp2(-8 * (i + 1) / H);
    case MHA__USUAL_SLOPES: return times * exp2(i < below ? -8 * (i + 1) / below : -4 * (2 * (i - below) + 1) / below);
    default: return times * p->s.added.alibi_slopes[h];
    }
}

double mha__distance(const mha__query *q, size_t j)
{
    const mha__program *p = q->p;
    const int64_t tile = mha__step(p, AT_ALIBI, OP_OVER, 0), offset = mha__has(p, AT_ALIBI, OP_FROM) ? 0 : q->offset;
    int64_t key = (int64_t)j;
    if (tile != 0)
        key = tile > 0 ? key - key % tile : key % -tile;
    double distance = (double)(offset + (int64_t)q->i - key);
    if (mha__has(p, AT_ALIBI, OP_FN))
        distance = fabs(distance);
    return fmin(distance, mha__number(p, AT_ALIBI, OP_LIMIT, INFINITY));
}

/* Positions of query i and key j for a read of a table. */
static void positions_of(const mha__query *q, int how, bool class_token, size_t height, size_t width, size_t j,
                         int64_t at[2])
{
    const int64_t query = (int64_t)q->i + (how == MHA__FROM_0 ? 0 : q->first + q->offset), key = q->first + (int64_t)j;
    at[0] = how == MHA__EXCHANGED ? key : query;
    at[1] = how == MHA__EXCHANGED ? query : key;
    for (int k = 0; k < 2 && how == MHA__BY_COLUMN; k++) { /* cells counted column by column */
        const int64_t first = class_token, cell = at[k] - first, H = (int64_t)height;
        at[k] = cell < 0 ? at[k] : first + cell % H * (int64_t)width + cell / H;
    }
}

double mha__bias_term(const mha__query *q, size_t h, size_t j)
{
    const size_t n = q->in->c->weights[CASE_RECORDED][MHA_BIAS_TABLE].shape[0], H = q->in->c->H;
    const int how = mha__arg(q->p, AT_TABLE, OP_FROM);
    mha_bias bias = q->p->s.added.bias;
    int64_t at[2];
    positions_of(q, how, bias.class_token, bias.height, bias.width, j, at);
    const int64_t query = at[0], key = at[1];
    bias.one_way ^= how == MHA__OTHER_WAYS;
    size_t row = mha__bias_row(&bias, n, query, key);
    if (how == MHA__LINEAR) {
        const int64_t last = (int64_t)(bias.one_way ? n : n / 2) - 1, apart = llabs(key - query);
        row = key > query && bias.one_way ? 0 : (size_t)(apart < last ? apart : last);
        row += key > query && !bias.one_way ? n / 2 : 0;
    }
    const size_t across = 2 * bias.width - 1, down = 2 * bias.height - 1;
    if (row < across * down && bias.rule == MHA_BIAS_RULE_GRID) {
        const int64_t apart =
                          mha__step(q->p, AT_TABLE, OP_OVER, how == MHA__BY_HEIGHT ? (int64_t)down : (int64_t)across),
                      mirrored = mha__step(q->p, AT_TABLE, OP_NOT, 0);
        const size_t y = row / across, x = row % across;
        row = (mirrored & 2 ? down - 1 - y : y) * (size_t)apart + (mirrored & 1 ? across - 1 - x : x);
        row = row < n || how == MHA__BY_HEIGHT ? row : n - 1; /* as an index that is limited to the table */
    }
    row += how == MHA__NEXT_ROW && row + 1 < n;
    row -= how == MHA__ROW_BEFORE && row > 0 && row < n;
    const size_t head = how == MHA__HEAD_0           ? 0
                        : how == MHA__HEADS_REVERSED ? H - 1 - h
                                                     : h,
                 place = how == MHA__TRANSPOSED ? h * n + row : row * H + head;
    return row < n ? mha__number(q->p, AT_TABLE, OP_TIMES, 1) *
                         mha__narrowed(q->in->weight[MHA_BIAS_TABLE][place], mha__arg(q->p, AT_W, OP_ROUND))
                   : 0;
}

size_t mha__relative_at(const mha__inputs *in, const mha__program *p, mha_weight table, size_t b, size_t i, size_t j)
{
    const size_t n = in->c->weights[CASE_RECORDED][table].shape[0];
    const mha__query q = mha__query_of(in, p, b, i);
    const int how = mha__arg(p, AT_RELATIVE, OP_FROM);
    mha_relative relative = p->s.added.relative;
    int64_t at[2];
    positions_of(&q, how == MHA__OTHER_WAY && table == MHA_RELATIVE_Q ? MHA__EXCHANGED : how, false, relative.height,
                 relative.width, j, at);
    if (how == MHA__LINEAR)
        relative.rule = MHA_RELATIVE_DISTANCE;
    size_t row = mha__relative_row(&relative, table, n, at[0], at[1]);
    const int64_t d = relative.reversed ? at[1] - at[0] : at[0] - at[1], before = -(d + (int64_t)(n / 2));
    if (how == MHA__WRAPPED && before > 0 && before <= (int64_t)n)
        row = n - (size_t)before;
    return row + (how == MHA__NEXT_ROW && row + 1 < n);
}

double mha__count_term(const mha__query *q, size_t j)
{
    const mha__mutation *twice = mha__mutation_at(q->p, AT_COUNT, OP_TIMES);
    const size_t edges = (size_t)mha__step(q->p, AT_COUNT, OP_OVER, 0),
                 tile = (size_t)mha__step(q->p, AT_COUNT, OP_FILL, 0), S = q->in->S,
                 filled = tile > 0 ? (S + tile - 1) / tile * tile : S;
    double added = 0;
    if (twice && (int64_t)j >= twice->step && (int64_t)j < twice->step + (int64_t)twice->number)
        added += log(2);
    if (edges > 0 && j > 0 && j % edges == 0)
        added += log(2);
    if (tile > 0 && j + 1 == S)
        added += log((double)(filled - j));
    return added;
}
