/* The oracle's relative position bias: which row of the table a query and a key have, found by counting. */
#include <math.h>

#include "support/oracle_run.h"

/* T5: the first buckets of a direction hold one distance each; a later one begins where the geometric series from there
 * to max_distance has reached it. */
static size_t bucket(const mha_bias *bias, size_t n, double d)
{
    const size_t m = bias->one_way ? n : n / 2, each = m / 2;
    const double far = d <= 0 ? -d : bias->one_way ? 0 : d;
    const double most = bias->max_distance ? (double)bias->max_distance : 128;
    size_t row = 0;
    for (size_t k = 1; k < m; k++) {
        double begin = (double)k;
        if (k > each)
            begin = (double)each * pow(most / (double)each, (double)(k - each) / (double)(m - each)) * (1 - 1e-11);
        row += far >= begin;
    }
    return row + (d > 0 && !bias->one_way ? m : 0);
}

/* Swin and BEiT: rows are numbered by the offset of the cells, of which the upper left query and the lower right key
 * have the first. */
static size_t cell_offset(const mha_bias *bias, double p, double q)
{
    const double tokens = bias->class_token, H = (double)bias->height, W = (double)bias->width;
    const double cells = (2 * H - 1) * (2 * W - 1);
    if (p < tokens || q < tokens)
        return (size_t)cells + (p < tokens && q < tokens ? 2 : q < tokens ? 1 : 0);
    const double y = floor((p - tokens) / W) - floor((q - tokens) / W), x = fmod(p - tokens, W) - fmod(q - tokens, W);
    return (size_t)((y + H - 1) * (2 * W - 1) + x + W - 1);
}

size_t oracle_bias_row(const mha_bias *bias, size_t n, double p, double q)
{
    return bias->rule == MHA_BIAS_RULE_BUCKETS ? bucket(bias, n, q - p) : cell_offset(bias, p, q);
}

/* DeBERTa: b steps of one distance each as far as b/2, then steps whose ends are a geometric series, which has reached
 * max_distance - 1 after b/2 - 1 of them. The other tables: by the distance, or by the offset along an axis. */
size_t oracle_relative_row(const mha_relative *relative, int weight, size_t n, double p, double q)
{
    const double W = (double)relative->width, d = relative->reversed ? q - p : p - q, last = (double)(n - 1);
    double row = floor((double)n / 2);
    if (relative->rule == MHA_RELATIVE_GRID)
        return (size_t)(weight == MHA_RELATIVE_K ? floor(p / W) - floor(q / W) + (double)relative->height - 1
                                                 : fmod(p, W) - fmod(q, W) + W - 1);
    if (relative->rule == MHA_RELATIVE_LOG_BUCKETS) {
        const double m = floor(row / 2), end = (relative->max_distance ? (double)relative->max_distance : 512) - 1;
        double steps = fmin(fabs(d), m);
        for (double k = 0; k + 1 <= row && m > 1; k++) /* so far as to leave the table */
            steps += fabs(d) > m * pow(end / m, k / (m - 1)) * (1 + 1e-11);
        row += copysign(steps, d);
    } else {
        row += d;
    }
    return (size_t)(row < 0 ? 0 : row > last ? last : row);
}
