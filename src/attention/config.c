/* Configuration: defaults, validation in words, and the one list of a layer's weights with their shapes. */
#include <limits.h>
#include <stdio.h>

#include "base/base.h"
#include "mha/layer.h"

/* ---------------------------------------------------------------- weights and their shapes */

/* Whether the config asks for the weight; its extents in a resolved config; the same in symbols. */
typedef struct weight_rule {
    const char *name, *symbol;
    int rank;
    bool (*present)(const mha_config *);
    size_t (*rows)(const mha_config *), (*columns)(const mha_config *);
} weight_rule;

#define FIELD(name, value)                                                                         \
    static size_t name(const mha_config *c) { return value; }
FIELD(d_q, c->d_q)
FIELD(d_kin, c->d_kin)
FIELD(d_vin, c->d_vin)
FIELD(d_out, c->d_out)
FIELD(h, c->n_heads)
FIELD(h_d_k, c->n_heads * c->d_k)
FIELD(h_d_v, c->n_heads * c->d_v)
FIELD(kv_d_k, c->kv_heads * c->d_k)
FIELD(kv_d_v, c->kv_heads * c->d_v)
FIELD(q_norm_width, c->q_norm == MHA_NORM_ROW ? c->n_heads * c->d_k : c->d_k)
FIELD(k_norm_width, c->k_norm == MHA_NORM_ROW ? c->kv_heads * c->d_k : c->d_k)
#undef FIELD

static size_t one(const mha_config *c)
{
    (void)c;
    return 1;
}

#define WHEN(name, condition)                                                                      \
    static bool name(const mha_config *c) { return condition; }
WHEN(with_bias_q, c->bias_q)
WHEN(with_bias_k, c->bias_k)
WHEN(with_bias_v, c->bias_v)
WHEN(with_bias_o, c->bias_o)
WHEN(with_bias_kv, c->bias_kv)
WHEN(with_sinks, c->sinks)
WHEN(with_q_norm, c->q_norm != MHA_NORM_NONE)
WHEN(with_k_norm, c->k_norm != MHA_NORM_NONE)
#undef WHEN

static bool always(const mha_config *c)
{
    (void)c;
    return true;
}

static const weight_rule rules[MHA_WEIGHT_COUNT] = {
    [MHA_W_Q] = {"W_Q", "(d_q, h*d_k)", 2, always, d_q, h_d_k},
    [MHA_B_Q] = {"b_Q", "(h*d_k)", 1, with_bias_q, h_d_k, one},
    [MHA_W_K] = {"W_K", "(d_kin, h_kv*d_k)", 2, always, d_kin, kv_d_k},
    [MHA_B_K] = {"b_K", "(h_kv*d_k)", 1, with_bias_k, kv_d_k, one},
    [MHA_W_V] = {"W_V", "(d_vin, h_kv*d_v)", 2, always, d_vin, kv_d_v},
    [MHA_B_V] = {"b_V", "(h_kv*d_v)", 1, with_bias_v, kv_d_v, one},
    [MHA_W_O] = {"W_O", "(h*d_v, d_out)", 2, always, h_d_v, d_out},
    [MHA_B_O] = {"b_O", "(d_out)", 1, with_bias_o, d_out, one},
    [MHA_BIAS_K] = {"bias_k", "(h_kv*d_k)", 1, with_bias_kv, kv_d_k, one},
    [MHA_BIAS_V] = {"bias_v", "(h_kv*d_v)", 1, with_bias_kv, kv_d_v, one},
    [MHA_SINKS] = {"sinks", "(h)", 1, with_sinks, h, one},
    [MHA_Q_NORM] = {"q_norm", "(d_k) or (h*d_k)", 1, with_q_norm, q_norm_width, one},
    [MHA_K_NORM] = {"k_norm", "(d_k) or (h_kv*d_k)", 1, with_k_norm, k_norm_width, one},
};

const char *mha_weight_name(mha_weight weight)
{
    return (unsigned)weight < MHA_WEIGHT_COUNT ? rules[weight].name : "?";
}

int mha_config_weight_shape(const mha_config *config, mha_weight weight, size_t shape[2], const char **symbol)
{
    if ((unsigned)weight >= MHA_WEIGHT_COUNT || !rules[weight].present(config))
        return 0;
    const weight_rule *rule = &rules[weight];
    shape[0] = rule->rows(config);
    shape[1] = rule->columns(config);
    if (symbol)
        *symbol = rule->symbol;
    return rule->rank;
}

/* ---------------------------------------------------------------- defaults and validation */

/* "1, 2, 4, 8": the divisors of n nearest to `around`, at most eight of them, looked for no further
 * away than a person would try; 1 always divides. */
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

/* CBLAS counts in int, and so do the rows of all heads side by side. */
static mha_status check_widths(const mha_config *c, mha_error *error)
{
    const struct {
        const char *name;
        size_t heads, width;
    } rows[] = {{"d_k", c->n_heads, c->d_k}, {"d_v", c->n_heads, c->d_v}, {"d_model", 1, c->d_model}, {"d_q", 1, c->d_q},
                {"d_kin", 1, c->d_kin},      {"d_vin", 1, c->d_vin},      {"d_out", 1, c->d_out}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t features;
        if (mha__mul(rows[i].heads, rows[i].width, &features) && features <= INT_MAX)
            continue;
        return rows[i].heads == 1
                   ? mha__fail(error, MHA_INVALID, rows[i].name, "expected a width of at most %d, found %zu",
                              INT_MAX, rows[i].width)
                   : mha__fail(error, MHA_INVALID, rows[i].name, "expected at most %d features in a row of all heads, found %zu x %zu", INT_MAX, rows[i].heads, rows[i].width);
    }
    return MHA_OK;
}

mha_status mha_config_resolve(mha_config *config, mha_error *error)
{
    mha_config c = *config;
    if (c.d_model == 0)
        c.d_model = 512;
    if (c.n_heads == 0)
        c.n_heads = 8;
    if (c.kv_heads == 0)
        c.kv_heads = c.n_heads;
    if (c.d_k == 0 && c.d_model % c.n_heads != 0) {
        char fits[120];
        divisors(fits, sizeof fits, c.d_model, c.n_heads);
        return mha__fail(error, MHA_INVALID, "heads",
                        "d_model %zu is not divisible by %zu heads: head counts near it that divide are %s; or give d_k, "
                        "which frees the head width from d_model / heads",
                        c.d_model, c.n_heads, fits);
    }
    if (c.n_heads % c.kv_heads != 0) {
        char fits[120];
        divisors(fits, sizeof fits, c.n_heads, c.kv_heads);
        return mha__fail(error, MHA_INVALID, "kv-heads",
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
    if (c.dtype != MHA_F32 && c.dtype != MHA_F64 && c.dtype != MHA_F16 && c.dtype != MHA_BF16)
        return mha__fail(error, MHA_INVALID, "dtype", "expected weights of F32, F64, F16 or BF16, found %s",
                        mha_dtype_name(c.dtype));
    if ((unsigned)c.q_norm > MHA_NORM_ROW || (unsigned)c.k_norm > MHA_NORM_ROW)
        return mha__fail(error, MHA_INVALID, "norm", "unknown kind of q/k norm");
    mha_status status = check_widths(&c, error);
    if (status != MHA_OK)
        return status;
    *config = c;
    return MHA_OK;
}
