/* Configuration of a layer: defaults and validation. */
#include <limits.h>
#include <stdio.h>

#include "base/base.h"
#include "base/quantised/quantise.h"
#include "mha/layer.h"

/* ---------------------------------------------------------------- defaults and validation */

/* Writes the divisors of n nearest to `around`, "1, 2, 4, 8": at most eight, none farther away than FARTHEST but 1. */
static void divisors(char *text, size_t size, size_t n, size_t around)
{
    enum { FARTHEST = 65536 };
    size_t found[8], count = 0, from = around <= n ? around : n;
    for (size_t d = from; d >= 1 && from - d < FARTHEST && count < 4; d--)
        if (n % d == 0)
            found[count++] = d;
    if (count == 0)
        found[count++] = 1;
    for (size_t i = 0; i < count / 2; i++) {
        size_t swap = found[i];
        found[i] = found[count - 1 - i];
        found[count - 1 - i] = swap;
    }
    for (size_t d = from + 1; d <= n && d - from < FARTHEST && count < 8; d++)
        if (n % d == 0)
            found[count++] = d;
    size_t used = 0;
    for (size_t i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%zu", i ? ", " : "", found[i]);
}

/* CBLAS counts in int: the limit of a width and of a row of all heads side by side. */
static mha_status check_widths(const mha_config *c, mha_error *error)
{
    const struct {
        const char *name;
        size_t heads, width;
    } rows[] = {{"d_k", c->n_heads, c->d_k}, {"d_v", c->n_heads, c->d_v}, {"d_model", 1, c->d_model},
                {"d_q", 1, c->d_q},          {"d_kin", 1, c->d_kin},      {"d_vin", 1, c->d_vin},
                {"d_out", 1, c->d_out},      {"q_rank", 1, c->q_rank}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t features;
        if (mha__mul(rows[i].heads, rows[i].width, &features) && features <= INT_MAX)
            continue;
        return rows[i].heads == 1 ? mha__fail(error, MHA_INVALID, rows[i].name,
                                              "expected a width of at most %d, found %zu", INT_MAX, rows[i].width)
                                  : mha__fail(error, MHA_INVALID, rows[i].name,
                                              "expected at most %d features in a row of all heads, found %zu x %zu",
                                              INT_MAX, rows[i].heads, rows[i].width);
    }
    return MHA_OK;
}

/* What latent attention asks of the rest of a resolved config. */
static mha_status check_latent(const mha_config *c, mha_error *error)
{
    const bool others = c->bias_q || c->bias_k || c->bias_v || c->bias_kv || c->q_norm || c->k_norm;
    if (c->kv_rank == 0)
        return c->q_rank || c->d_rope || c->bias_latent
                   ? mha__fail(error, MHA_INVALID, "kv_rank",
                               "q_rank, d_rope and bias_latent belong to latent attention, which needs a kv_rank")
                   : MHA_OK;
    if (others)
        return mha__fail(error, MHA_INVALID, "kv_rank",
                         "latent attention has no bias_q, bias_k, bias_v, bias_kv, q_norm or k_norm: its own are "
                         "bias_latent and the norms of the latents");
    if (c->kv_heads != c->n_heads)
        return mha__fail(error, MHA_INVALID, "kv_heads",
                         "latent attention has keys and values for each of its %zu heads, found kv_heads %zu",
                         c->n_heads, c->kv_heads);
    if (c->d_vin != c->d_kin)
        return mha__fail(error, MHA_INVALID, "d_vin", "latent attention makes keys and values from one input: expected "
                         "d_kin %zu, found %zu", c->d_kin, c->d_vin);
    if (c->d_rope >= c->d_k)
        return mha__fail(error, MHA_INVALID, "d_rope", "expected less than d_k %zu, found %zu", c->d_k, c->d_rope);
    size_t row, shared, all;
    if (mha__add(c->kv_rank, c->d_rope, &row) && mha__mul(row, c->n_heads, &all) && all <= INT_MAX &&
        mha__add(c->d_k - c->d_rope, c->d_v, &shared) && mha__mul(shared, c->n_heads, &all) && all <= INT_MAX)
        return MHA_OK;
    return mha__fail(error, MHA_INVALID, "kv_rank", "expected at most %d features in a row of all heads, found %zu x "
                     "(%zu + %zu)", INT_MAX, c->n_heads, c->kv_rank, c->d_rope);
}

mha_status mha_config_resolve(mha_config *config, mha_error *error)
{
    mha_config c = *config;
    TRY(mha__expect_unused("config", c.reserved, sizeof c.reserved, error));
    for (size_t w = MHA_WEIGHT_COUNT; w < MHA_WEIGHT_ROOM; w++)
        if (c.matrix_dtype[w])
            return mha__fail(error, MHA_UNSUPPORTED, "matrix_dtype", "weight %zu is of a later version", w);
    if (c.d_model == 0)
        c.d_model = 512;
    if (c.n_heads == 0)
        c.n_heads = 8;
    if (c.kv_heads == 0)
        c.kv_heads = c.n_heads;
    if (c.d_k == 0 && c.d_model % c.n_heads != 0) {
        char fits[120];
        divisors(fits, sizeof fits, c.d_model, c.n_heads);
        return mha__fail(
            error, MHA_INVALID, "heads",
            "d_model %zu is not divisible by %zu heads: head counts near it that divide are %s; or give d_k, "
            "which frees the head width from d_model / heads",
            c.d_model, c.n_heads, fits);
    }
    if (c.n_heads % c.kv_heads != 0) {
        char fits[120];
        divisors(fits, sizeof fits, c.n_heads, c.kv_heads);
        return mha__fail(error, MHA_INVALID, "kv_heads",
                        "%zu query heads cannot share %zu key/value heads evenly: counts near it that divide are %s",
                        c.n_heads, c.kv_heads, fits);
    }
    if (c.d_v == 0)
        c.d_v = c.d_k ? c.d_k : c.d_model / c.n_heads;
    if (c.d_k == 0)
        c.d_k = c.d_model / c.n_heads;
    if (c.d_q == 0)
        c.d_q = c.d_model;
    if (c.d_kin == 0)
        c.d_kin = c.d_model;
    if (c.d_vin == 0)
        c.d_vin = c.d_kin;
    if (c.d_out == 0)
        c.d_out = c.d_model;
    if (!mha__dtype_is_float(c.dtype) && !mha__is_quantised_weight(c.dtype))
        return mha__fail(error, MHA_INVALID, "dtype",
                         "expected weights of F32, F64, F16, BF16 or a quantised type that is decoded, such as Q8_0 or "
                         "Q4_K, found %s",
                         mha_dtype_name(c.dtype));
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
        if (c.matrix_dtype[w] && (!mha__is_quantised_weight(c.matrix_dtype[w]) ||
                                  mha_weight_at((mha_weight)w)->kind != MHA_WEIGHT_MATRIX))
            return mha__fail(error, MHA_INVALID, "matrix_dtype",
                             "expected a matrix of a quantised type that is decoded, found %s of %s",
                             mha_weight_name((mha_weight)w), mha_dtype_name(c.matrix_dtype[w]));
    if ((unsigned)c.q_norm > MHA_NORM_EACH_HEAD || (unsigned)c.k_norm > MHA_NORM_EACH_HEAD)
        return mha__fail(error, MHA_INVALID, "norm", "unknown kind of q/k norm");
    if ((unsigned)c.gate > MHA_GATE_HEAD)
        return mha__fail(error, MHA_INVALID, "gate", "unknown kind of gate");
    if (c.bias_gate && !c.gate)
        return mha__fail(error, MHA_INVALID, "bias_gate", "has no effect without `gate`, which is not set");
    if (c.norm_bias && !c.q_norm && !c.k_norm)
        return mha__fail(error, MHA_INVALID, "norm_bias", "has no effect without q_norm or k_norm, which are not set");
    const size_t rows[] = {c.bias_rows, c.relative_k_rows, c.relative_column_rows, c.relative_q_rows};
    static const char *const names[] = {"bias_rows", "relative_k_rows", "relative_column_rows", "relative_q_rows"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i] > 65536)
            return mha__fail(error, MHA_INVALID, names[i], "expected a table of at most 65536 rows, found %zu",
                             rows[i]);
    if (c.relative_by_head && rows[1] + rows[2] + rows[3] == 0)
        return mha__fail(error, MHA_INVALID, "relative_by_head", "has no effect without a relative table: set "
                         "relative_k_rows or another");
    mha_status status = check_widths(&c, error);
    if (status == MHA_OK)
        status = check_latent(&c, error);
    if (status != MHA_OK)
        return status;
    *config = c;
    return MHA_OK;
}
