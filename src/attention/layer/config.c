/* Configuration of a layer: defaults and validation. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "params/quantise.h"
#include "mha/setting.h"

/* ---------------------------------------------------------------- defaults and validation */

/* Writes the divisors of n nearest to `around`, "1, 2, 4, 8": at most eight, none farther away than FARTHEST but 1. */
static void divisors(char *text, size_t size, size_t n, size_t around)
{
    enum { FARTHEST = 65536 };
    const size_t from = around <= n ? around : n;
    size_t first = from, below = 0;
    for (size_t d = from; d >= 1 && from - d < FARTHEST && below < 4; d--)
        if (n % d == 0)
            first = d, below++;
    size_t used = below ? 0 : (size_t)snprintf(text, size, "1"), count = !below;
    for (size_t d = first; d <= n && (d <= from || d - from < FARTHEST) && count < 8 && used < size; d++)
        if (n % d == 0)
            used += (size_t)snprintf(text + used, size - used, "%s%zu", count++ ? ", " : "", d);
}

static size_t size_at(const mha_config *c, const mha_config_field *field)
{
    size_t size;
    memcpy(&size, (const char *)c + field->at, sizeof size);
    return size;
}

/* Gives each size that is 0 the number or the other size that its row names. */
static void set_sizes(mha_config *c)
{
    const mha_config_field *f, *other;
    for (size_t i = 0; (f = mha_config_field_at(i)) != NULL; i++) {
        if (f->kind != MHA_CONFIG_SIZE || !f->unset || size_at(c, f) > 0)
            continue;
        size_t size = (size_t)strtoul(f->unset, NULL, 10);
        for (size_t j = 0; j < i && (other = mha_config_field_at(j)) != NULL; j++)
            if (strcmp(other->name, f->unset) == 0)
                size = size_at(c, other);
        memcpy((char *)c + f->at, &size, sizeof size);
    }
}

/* Checks each size and choice by its row. */
static mha_status check_fields(const mha_config *c, mha_error *error)
{
    const mha_config_field *f;
    for (size_t i = 0; (f = mha_config_field_at(i)) != NULL; i++) {
        if (f->kind == MHA_CONFIG_SIZE && size_at(c, f) > f->most)
            return mha__fail(error, MHA_INVALID, f->name, "expected at most %zu, found %zu", f->most, size_at(c, f));
        if (f->kind != MHA_CONFIG_CHOICE)
            continue;
        unsigned value, words = 1;
        memcpy(&value, (const char *)c + f->at, sizeof value);
        for (const char *at = f->choices; (at = strchr(at, '|')) != NULL; at++)
            words++;
        if (value >= words)
            return mha__fail(error, MHA_INVALID, f->name, "expected one of %s, found %u", f->choices, value);
    }
    return MHA_OK;
}

/* CBLAS counts in int: the limit of a row of all heads side by side. */
static mha_status check_rows(const mha_config *c, mha_error *error)
{
    size_t features;
    for (int v = 0; v < 2; v++) {
        const size_t width = v ? c->d_v : c->d_k;
        if (!mha__mul(c->n_heads, width, &features) || features > INT_MAX)
            return mha__fail(error, MHA_INVALID, v ? "d_v" : "d_k",
                             "expected at most %d features in a row of all heads, found %zu x %zu", INT_MAX,
                             c->n_heads, width);
    }
    return MHA_OK;
}

/* Latent attention needs this of the rest of a resolved config. */
static mha_status check_latent(const mha_config *c, mha_error *error)
{
    const bool others = c->bias_q || c->bias_k || c->bias_v || c->bias_kv || c->q_norm || c->k_norm;
    if (c->kv_rank == 0)
        return c->q_rank || c->d_rope || c->bias_latent
                   ? mha__fail(error, MHA_INVALID, "kv_rank",
                               "expected a rank with q_rank, d_rope or bias_latent, found none")
                   : MHA_OK;
    if (others)
        return mha__fail(error, MHA_INVALID, "kv_rank",
                         "expected no bias_q, bias_k, bias_v, bias_kv, q_norm or k_norm with it; latents have "
                         "bias_latent and their own norms");
    if (c->kv_heads != c->n_heads)
        return mha__fail(error, MHA_INVALID, "kv_heads",
                         "expected latent attention with keys and values for each of %zu heads, found kv_heads %zu",
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
            return mha__fail(error, MHA_UNSUPPORTED, "matrix_dtype",
                             "expected weights of this version, found weight %zu of a later version", w);
    set_sizes(&c);
    if (c.d_k == 0 && c.d_model % c.n_heads != 0) {
        char fits[120];
        divisors(fits, sizeof fits, c.d_model, c.n_heads);
        return mha__fail(
            error, MHA_INVALID, "heads",
            "expected a divisor of d_model %zu, found %zu heads; near it are %s; or give d_k, which frees the head "
            "width from d_model / heads",
            c.d_model, c.n_heads, fits);
    }
    if (c.n_heads % c.kv_heads != 0) {
        char fits[120];
        divisors(fits, sizeof fits, c.n_heads, c.kv_heads);
        return mha__fail(error, MHA_INVALID, "kv_heads",
                         "expected a divisor of %zu query heads, found %zu key/value heads; near it are %s", c.n_heads,
                         c.kv_heads, fits);
    }
    if (c.d_v == 0)
        c.d_v = c.d_k ? c.d_k : c.d_model / c.n_heads;
    if (c.d_k == 0)
        c.d_k = c.d_model / c.n_heads;
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
                             mha_weight_at((mha_weight)w)->name, mha_dtype_name(c.matrix_dtype[w]));
    TRY(check_rows(&c, error));
    TRY(check_fields(&c, error));
    if (c.bias_gate && !c.gate)
        return mha__fail(error, MHA_INVALID, "bias_gate", "expected `gate` with it, found it unset");
    if (c.norm_bias && !c.q_norm && !c.k_norm)
        return mha__fail(error, MHA_INVALID, "norm_bias", "expected q_norm or k_norm with it, found both unset");
    if (c.relative_by_head && c.relative_k_rows + c.relative_column_rows + c.relative_q_rows == 0)
        return mha__fail(error, MHA_INVALID, "relative_by_head", "expected a relative table with it, found none; "
                         "set relative_k_rows or another");
    TRY(check_latent(&c, error));
    *config = c;
    return MHA_OK;
}
