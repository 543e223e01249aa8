/* What a case that was read says: its words, its metadata as numbers, its call and the shapes of its results. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "verify/case/record.h"

/* ---------------------------------------------------------------- the format's words */

static const char *const weight_words[MHA_WEIGHT_COUNT] = {
    [MHA_W_Q] = "W_q",
    [MHA_B_Q] = "b_q",
    [MHA_W_K] = "W_k",
    [MHA_B_K] = "b_k",
    [MHA_W_V] = "W_v",
    [MHA_B_V] = "b_v",
    [MHA_W_O] = "W_o",
    [MHA_B_O] = "b_o",
    [MHA_BIAS_K] = "bias_k",
    [MHA_BIAS_V] = "bias_v",
    [MHA_SINKS] = "head_sink",
    [MHA_Q_NORM] = "q_norm_weight",
    [MHA_K_NORM] = "k_norm_weight",
};

const char *mha__case_weight_name(mha_weight weight)
{
    return weight_words[weight];
}

const char *mha__case_tensor_name(case_tensor tensor)
{
    static const char *const names[CASE_TENSOR_COUNT] = {
#define TENSOR_NAME(code, name, content, low, high) [code] = name,
        CASE_TENSOR_LIST(TENSOR_NAME)
#undef TENSOR_NAME
    };
    return names[tensor];
}

/* ---------------------------------------------------------------- metadata */

mha_status mha__case_number(const mha_case *c, const char *key, double missing, double *value, mha_error *error)
{
    const char *text = mha_file_metadata(c->file, key);
    *value = missing;
    if (!text)
        return MHA_OK;
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end != '\0' || isnan(x))
        return mha__fail(error, MHA_INVALID, key, "metadata %s: expected a number, found \"%s\"", key, text);
    *value = x;
    return MHA_OK;
}

mha_status mha__case_whole(const mha_case *c, const char *key, int64_t low, int64_t missing, int64_t *value,
                          mha_error *error)
{
    double x;
    mha_status status = mha__case_number(c, key, (double)missing, &x, error);
    if (status)
        return status;
    if (x != floor(x) || x < (double)low || x > 0x1p53)
        return mha__fail(error, MHA_INVALID, key, "%s: expected a whole number of %lld or more, found %g", key,
                        (long long)low, x);
    *value = (int64_t)x;
    return MHA_OK;
}

mha_status mha__case_word(const mha_case *c, const char *key, const char *const *words, int missing, int *value,
                         mha_error *error)
{
    const char *text = mha_file_metadata(c->file, key);
    *value = missing;
    if (!text)
        return MHA_OK;
    char list[160] = "";
    for (int i = 0; words[i]; i++) {
        if (strcmp(words[i], text) == 0) {
            *value = i;
            return MHA_OK;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", words[i]);
    }
    return mha__fail(error, MHA_INVALID, key, "metadata %s: expected one of %s, found \"%s\"", key, list, text);
}

/* ---------------------------------------------------------------- the whole and the call */

const char *mha_case_name(const mha_case *c)
{
    return c->name;
}

const char *mha_case_kind(const mha_case *c)
{
    return c->kind == CASE_MHA ? "mha" : c->kind == CASE_SDPA ? "sdpa" : "rope";
}

const char *mha_case_skip_reason(const mha_case *c)
{
    return *c->skip ? c->skip : NULL;
}

const mha_layer *mha_case_layer(const mha_case *c)
{
    return c->layer;
}

void mha_case_past(const mha_case *c, mha_view *keys, mha_view *values)
{
    *keys = c->P ? c->tensors[CASE_PAST_KEY] : (mha_view){0};
    *values = c->P ? c->tensors[CASE_PAST_VALUE] : (mha_view){0};
}

static mha_view input(const mha_case *c, case_tensor tensor, size_t T, size_t heads, size_t E)
{
    const mha_view *v = &c->tensors[tensor];
    if (!v->data)
        return (mha_view){0};
    if (c->kind == CASE_MHA)
        return mha_view_rows(v->data, v->dtype, c->layout, c->B, T, E);
    return mha_view_heads(v->data, v->dtype, c->layout, c->B, T, heads, E / heads);
}

mha_call mha_case_call(const mha_case *c)
{
    return (mha_call){
        .query = input(c, CASE_QUERY, c->T_q, c->H, c->E_q),
        .key = input(c, CASE_KEY, c->T_k, c->H_kv, c->E_k),
        .value = input(c, CASE_VALUE, c->T_k, c->H_kv, c->E_v),
        .semantics = c->semantics,
        .extras = c->extras,
    };
}

/* ---------------------------------------------------------------- shapes of results */

mha_view mha__case_shape(const mha_case *c, const mha_view *stage, mha_stage which, bool is_qk, size_t S, int rank)
{
    mha_view v = *stage;
    if (which == MHA_STAGE_OUTPUT) {
        size_t B = v.shape[0], T = v.shape[1], H = c->H, d = c->d_v, E = c->E_out;
        switch (c->layout) {
        case MHA_TE: return mha_view_of(v.data, v.dtype, 2, (const size_t[]){T, E});
        case MHA_TBE: return mha_view_of(v.data, v.dtype, 3, (const size_t[]){T, B, E});
        case MHA_BHTD: return mha_view_of(v.data, v.dtype, 4, (const size_t[]){B, H, T, d});
        case MHA_BTHD: return mha_view_of(v.data, v.dtype, 4, (const size_t[]){B, T, H, d});
        default: return mha_view_of(v.data, v.dtype, 3, (const size_t[]){B, T, E});
        }
    }
    if (is_qk && v.rank == 4 && v.shape[3] > S)
        v = mha_view_slice(&v, 3, 0, S);
    if (c->layout == MHA_TE && rank == v.rank - 1 && v.shape[0] == 1) {
        v.rank = rank;
        memmove(v.shape, v.shape + 1, sizeof v.shape[0] * (size_t)rank);
        memmove(v.stride, v.stride + 1, sizeof v.stride[0] * (size_t)rank);
    }
    return v;
}
