/* Part of the body of every kernel: what the machine can do at best. */

static double peak(size_t rounds, float *sink)
{
    enum { CHAINS = LANES == 16 ? 24 : 12 }; /* enough to hide the latency, few enough for the registers */
    vec sum[CHAINS], a = splat(1.0f + *sink), b = splat(1.0f - *sink);
    for (int c = 0; c < CHAINS; c++)
        sum[c] = splat((float)c); /* equal chains would be computed once */
    for (size_t r = 0; r < rounds; r++) {
        UNROLL
        for (int c = 0; c < CHAINS; c++)
            sum[c] = madd(a, b, sum[c]);
    }
    for (int c = 0; c < CHAINS; c++)
        *sink += sum_lanes(sum[c]);
    return 2.0 * CHAINS * LANES * (double)rounds;
}

static float read_all(const float *x, size_t n)
{
    vec sum[8] = {{0}};
    for (size_t i = 0; i + 8 * LANES <= n; i += 8 * LANES) {
        UNROLL
        for (int w = 0; w < 8; w++) {
            sum[w] += load(x + i + w * LANES);
            if (w * LANES % 16 == 0)
                __builtin_prefetch(x + i + w * LANES + 1024, 0, 3); /* a page ahead, where the hardware stops */
        }
    }
    for (int w = 1; w < 8; w++)
        sum[0] += sum[w];
    return sum_lanes(sum[0]);
}
