/* Part of the body of every kernel: the two halves of a softmax. */

static const int32_t lane_numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* Adds bias to the vectors [from, to) of x; hides what it or [begin, end) hides. True when a key is left. */
INLINE bool add_bias(float *x, size_t from, size_t to, size_t begin, size_t end, const float *bias)
{
    const vec hidden = splat(minus_infinity);
    ivec visible = {0};
    for (size_t i = from; i < to; i += LANES) {
        vec b;
        if (i >= begin && i + LANES <= end) {
            b = load(bias + i);
        } else {
            float lane[LANES];
            for (size_t l = 0; l < LANES; l++)
                lane[l] = i + l >= begin && i + l < end ? bias[i + l] : minus_infinity;
            b = load(lane);
        }
        ivec keeps = b != hidden;
        visible |= keeps;
        store(x + i, choose(keeps, load(x + i) + b, hidden));
    }
    return any_lane(visible);
}

static bool softmax_prepare(float *x, size_t n, size_t begin, size_t end, const float *bias, float softcap)
{
    const size_t from = begin / LANES * LANES, to = (end + LANES - 1) / LANES * LANES, room = (n + 15) / 16 * 16;
    const vec hidden = splat(minus_infinity);
    if (begin >= end) {
        for (size_t i = 0; i < room; i += LANES)
            store(x + i, hidden);
        return false;
    }
    for (size_t i = 0; i < from; i += LANES)
        store(x + i, hidden);
    for (size_t i = to; i < room; i += LANES)
        store(x + i, hidden);
    if (softcap > 0.0f) {
        const vec cap = splat(softcap);
        for (size_t i = from; i < to; i += LANES)
            store(x + i, cap * tanh_all(load(x + i) / cap));
    }
    if (bias)
        return add_bias(x, from, to, begin, end, bias);
    const ivec lane = *(const ivec_at *)lane_numbers;
    if (begin > from)
        store(x + from, choose(lane >= (ivec){0} + (int32_t)(begin - from), load(x + from), hidden));
    if (end < to)
        store(x + to - LANES, choose(lane < (ivec){0} + (int32_t)(end + LANES - to), load(x + to - LANES), hidden));
    return true;
}

/* Each lane holds the largest of a share of the n numbers, NaN left aside. */
INLINE vec largest(const float *x, size_t n)
{
    vec high[4];
    for (int w = 0; w < 4; w++)
        high[w] = splat(minus_infinity);
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        UNROLL
        for (int w = 0; w < 4; w++)
            high[w] = greater(load(x + i + w * LANES), high[w]);
    }
    for (; i < n; i += LANES)
        high[0] = greater(load(x + i), high[0]);
    return greater(greater(high[0], high[1]), greater(high[2], high[3]));
}

/* x = exp(x - shift). Each lane of the result sums a share of x; which of the four sums a vector joins does not depend
 * on n. */
INLINE vec weigh(float *x, size_t n, vec shift)
{
    vec sum[4] = {{0}};
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        UNROLL
        for (int w = 0; w < 4; w++) {
            vec e = exp_nonpositive(load(x + i + w * LANES) - shift);
            store(x + i + w * LANES, e);
            sum[w] += e;
        }
    }
    for (int w = 0; i < n; i += LANES, w++) {
        vec e = exp_nonpositive(load(x + i) - shift);
        store(x + i, e);
        sum[w] += e;
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* `most` is a constant wherever this is expanded: m rows at most. */
INLINE void softmax_some(const int most, size_t m, size_t n, float *x, size_t ldx, float *max, float *sum,
                         float *factor)
{
    const size_t room = (n + LANES - 1) / LANES * LANES;
    const vec zero = {0}, hidden = splat(minus_infinity);
    vec row[MHA_TILE_ROWS];
    float shift[MHA_TILE_ROWS];
    for (size_t i = 0; i < (size_t)most; i++)
        row[i] = i < m ? largest(x + i * ldx, room) : hidden;
    for (size_t i = 0; i < m; i += LANES) {
        const vec before = load(max + i), now = greater(max_of_each(most, row + i), before);
        const vec base = choose(now == hidden, zero, now); /* exp(-inf - 0) is 0; -inf - -inf would be NaN */
        store(max + i, now);
        store(shift + i, base);
        store(factor + i, exp_nonpositive(choose(before == now, base, before) - base));
    }
    for (size_t i = 0; i < (size_t)most; i++)
        row[i] = i < m ? weigh(x + i * ldx, room, splat(shift[i])) : zero;
    for (size_t i = 0; i < m; i += LANES)
        store(sum + i, madd(load(sum + i), load(factor + i), sum_of_each(most, row + i)));
}

static void softmax_rows(size_t m, size_t n, float *x, size_t ldx, float *max, float *sum, float *factor)
{
    if (m == 1)
        softmax_some(1, 1, n, x, ldx, max, sum, factor);
    else if (m <= MHA_FEW_ROWS)
        softmax_some(MHA_FEW_ROWS, m, n, x, ldx, max, sum, factor);
    else if (m <= MHA_TILE_ROWS / 2)
        softmax_some(MHA_TILE_ROWS / 2, m, n, x, ldx, max, sum, factor);
    else
        softmax_some(MHA_TILE_ROWS, m, n, x, ldx, max, sum, factor);
}
