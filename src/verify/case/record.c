/* Answers questions about a case: metadata as numbers and choices, its call, and the shapes of its results. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "attention/core/exact/rounding.h"
#include "attention/call/definition.h"
#include "base/base.h"
#include "verify/case/record.h"

/* ---------------------------------------------------------------- metadata */

enum { SHOWN = 60 }; /* largest number of bytes of a value that a message repeats */

mha_status mha__case_number(const mha_case *c, const char *key, double missing, double *value, mha_error *error)
{
    const char *text = mha_file_metadata(c->file, key);
    *value = missing;
    if (!text)
        return MHA_OK;
    char *end;
    errno = 0;
    const double x = strtod(text, &end);
    if (end == text || *end != '\0' || isnan(x) || strpbrk(text, "xX")) /* strtod reads 0x10 */
        return mha__fail(error, MHA_INVALID, key, "expected a number, found \"%.*s\"", MHA_CUT_ARGS(SHOWN, text));
    if (errno == ERANGE && (x == 0 || isinf(x)))
        return mha__fail(error, MHA_INVALID, key, "expected a finite number that a double can hold, found \"%.*s\"",
                         MHA_CUT_ARGS(SHOWN, text));
    *value = x;
    return MHA_OK;
}

mha_status mha__case_whole(const mha_case *c, const char *key, int64_t low, int64_t missing, int64_t *value,
                           mha_error *error)
{
    double x;
    *value = missing;
    if (!mha_file_metadata(c->file, key))
        return MHA_OK;
    TRY(mha__case_number(c, key, 0, &x, error));
    if (x != floor(x) || x < (double)low || x > 0x1p53)
        return mha__fail(error, MHA_INVALID, key, "expected a whole number of %lld or more, found %g", (long long)low,
                         x);
    *value = (int64_t)x;
    return MHA_OK;
}

mha_status mha__case_value(const mha_case *c, const char *key, double *value, mha_error *error)
{
    const char *missing = mha__case_key(key)->shown.missing;
    char *end;
    const double x = strtod(missing, &end);
    return mha__case_number(c, key, end == missing || *end != '\0' ? NAN : x, value, error);
}

void mha__case_keys_only(mha_case *c)
{
    static const mha_weight left_out[] = {MHA_SINKS, MHA_BIAS_K, MHA_BIAS_V};
    if (!c->semantics.place.keys_only)
        return;
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        c->weights[CASE_RECORDED][left_out[i]] = (mha_view){0};
    mha__semantics_complete(&c->semantics);
}

/* The index of `text` in `list`, whose items are separated by ", "; -1 when it is not in the list. */
static int place_in(const char *list, const char *text)
{
    const size_t n = strlen(text);
    int place = 0;
    for (const char *at = list;; at += strlen(", "), place++) {
        const size_t item = strcspn(at, ",");
        if (item == n && memcmp(at, text, n) == 0)
            return place;
        at += item;
        if (*at == '\0')
            return -1;
    }
}

mha_status mha__case_choice(const mha_case *c, const char *key, int *choice, mha_error *error)
{
    const mha_case_word *word = &mha__case_key(key)->shown;
    const char *text = mha_file_metadata(c->file, key);
    const bool truth = strcmp(word->form, "0, 1") == 0;
    *choice = place_in(word->form, text ? text : word->missing);
    if (text && truth && (strcasecmp(text, "true") == 0 || strcasecmp(text, "false") == 0))
        *choice = strcasecmp(text, "true") == 0;
    if (text && *choice < 0)
        return mha__fail(error, MHA_INVALID, key, "expected one of %s%s, found \"%.*s\"", word->form,
                         truth ? ", false, true" : "", MHA_CUT_ARGS(SHOWN, text));
    return MHA_OK;
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

mha_view mha__case_as(const mha_case *c, case_tensor like, const mha_view *v)
{
    const bool of_queries = like == CASE_QUERY || like == CASE_D_OUTPUT;
    const size_t T = of_queries ? c->T_q : c->T_k, heads = of_queries ? c->H : c->H_kv,
                 E = like == CASE_QUERY ? c->E_q : like == CASE_KEY ? c->E_k : like == CASE_VALUE ? c->E_v : c->E_out;
    if (!v->data)
        return (mha_view){0};
    if (c->kind == CASE_MHA)
        return mha_view_rows(v->data, v->dtype, c->layout, c->B, T, E);
    return mha_view_heads(v->data, v->dtype, c->layout, c->B, T, heads, E / heads);
}

mha_call mha_case_call(const mha_case *c)
{
    if (*c->skip) /* its sizes have not been read */
        return (mha_call){.keep_count = 0};
    const mha_view value = mha__case_as(c, CASE_VALUE, &c->tensors[CASE_VALUE]), none = {0};
    return (mha_call){
        .query = mha__case_as(c, CASE_QUERY, &c->tensors[CASE_QUERY]),
        .key = mha__case_as(c, CASE_KEY, &c->tensors[CASE_KEY]),
        .value = c->kv_rank ? none : value,
        .absorbed = c->absorbed,
        .semantics = c->semantics,
        .weights = c->kind == CASE_SDPA ? c->weights[CASE_RECORDED] : NULL,
        .weight_count = MHA_WEIGHT_COUNT,
    };
}

/* ---------------------------------------------------------------- roundings */

mha__request mha__case_request(const mha_case *c, const mha_layer *layer, const mha_call *call)
{
    mha__request request = {.layer = layer, .call = call, .cache_rounds = c->cache_rounds, .cache = c->cache,
                            .rope_origin = &c->origin};
    mha_case_past(c, &request.past_key, &request.past_value);
    return request;
}

void mha__case_round(const mha_case *c, mha__request *request)
{
    request->precision = c->precision;
    request->cache_rounds = c->cache_rounds;
    request->cache = c->cache;
}

bool mha__case_rounds(const mha_case *c)
{
    return mha__precision_rounds(&c->precision) || c->cache_rounds;
}

mha_dtype mha__case_rounding(const mha_case *c)
{
    const mha_dtype type = mha__precision_type(&c->precision);
    return type != MHA_F32 || !c->cache_rounds ? type : c->cache;
}

bool mha__cache_rounds(const mha_call *call, mha_dtype *type)
{
    const mha_dtype computed = call->path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32;
    *type = call->cache ? mha_cache_keys(call->cache).dtype : computed;
    return *type != computed && *type != MHA_F64;
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
