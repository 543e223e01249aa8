/* Turns the contents of a case file into layers and semantics, and refuses contradictions. */
#include <pthread.h>
#include <string.h>

#include "attention/layer/layer.h"
#include "base/base.h"
#include "verify/attempt/attempt.h"
#include "verify/case/record.h"

/* ---------------------------------------------------------------- layers */

static mha_status norm_kind(const mha_case *c, mha_weight weight, size_t heads, mha_norm *norm, mha_error *error)
{
    const mha_view *w = &c->weights[CASE_RECORDED][weight];
    *norm = MHA_NORM_NONE;
    if (!w->data)
        return MHA_OK;
    *norm = mha__norm_of_weight(w, heads, c->d_k);
    if (*norm != MHA_NORM_HEAD || w->shape[0] == c->d_k)
        return MHA_OK;
    return mha__fail(error, MHA_INVALID, mha__case_weight_name(weight),
                     "expected %zu (per head) or %zu (per row) elements, found %zu", c->d_k, heads * c->d_k,
                     w->shape[0]);
}

/* A weight of `set`, or the recorded weight where the set does not replace it. */
static mha_view weight_of(const mha_case *c, case_weights set, mha_weight weight)
{
    const mha_view *own = &c->weights[set][weight];
    return own->data ? *own : c->weights[CASE_RECORDED][weight];
}

static mha_status build_layer(mha_case *c, case_weights set, mha_error *error)
{
    const mha_view *w = c->weights[CASE_RECORDED];
    mha_config config = {
        .d_model = c->E_out,
        .n_heads = c->H,
        .kv_heads = set == CASE_REPEATED ? c->H : c->H_kv,
        .d_k = c->d_k,
        .d_v = c->d_v,
        .d_q = c->E_q,
        .d_kin = c->E_k,
        .d_vin = c->E_v,
        .d_out = c->E_out,
        .q_rank = c->q_rank,
        .kv_rank = c->kv_rank,
        .d_rope = c->d_rope,
    };
    for (int i = 0; i < MHA_WEIGHT_COUNT; i++) {
        const mha_view from = weight_of(c, set, (mha_weight)i);
        if (from.data)
            mha__config_add_weight(&config, (mha_weight)i, from.rank, from.shape);
        if (w[i].data && w[i].dtype == MHA_F64)
            config.dtype = MHA_F64;
    }
    TRY(norm_kind(c, MHA_Q_NORM, c->H, &config.q_norm, error));
    TRY(norm_kind(c, MHA_K_NORM, c->H_kv, &config.k_norm, error));
    TRY(mha_params_create(&c->pool.allocator, &c->params[set], error));
    TRY(mha_layer_create(&config, c->params[set], NULL, &c->layers[set], error));
    for (int i = 0; i < MHA_WEIGHT_COUNT; i++) {
        const mha_weight weight = (mha_weight)i;
        const mha_view from = weight_of(c, set, weight);
        if (from.data)
            TRY(mha_layer_set(c->layers[set], weight, &from, error));
    }
    return MHA_OK;
}

mha_status mha__case_pack(const mha_case *c, mha_error *error)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* several threads may check one case */
    mha_status status = MHA_OK;
    if (!c->packed) /* the case has no weights, or borrows its layer */
        return MHA_OK;
    pthread_mutex_lock(&lock);
    for (int set = 0; set < CASE_WEIGHTS_COUNT; set++)
        if (!*c->packed && c->layers[set] && status == MHA_OK)
            status = mha_layer_pack(c->layers[set], error);
    *c->packed = status == MHA_OK;
    pthread_mutex_unlock(&lock);
    return status;
}

static mha_status build_layers(mha_case *c, mha_error *error)
{
    const mha_view *w = c->weights[CASE_RECORDED];
    if (c->kind == CASE_MHA) {
        if (c->layout == MHA_BHTD || c->layout == MHA_BTHD)
            return mha__fail(error, MHA_INVALID, "layout", "expected BTE, TBE or TE for kind mha, found %s",
                             mha__layout_name(c->layout));
        for (int set = 0; set < CASE_WEIGHTS_COUNT; set++)
            if (set == CASE_RECORDED || c->has_set[set])
                TRY(build_layer(c, (case_weights)set, error));
        c->layer = c->layers[CASE_RECORDED];
        c->packed = mha__arena_take(&c->pool, sizeof *c->packed);
        if (!c->packed)
            return mha__fail(error, MHA_NO_MEMORY, "", "no memory for the case");
        return MHA_OK;
    }
    for (int i = 0; i < MHA_WEIGHT_COUNT; i++) {
        const mha_weight_info *info = mha_weight_at((mha_weight)i);
        const bool projects = info->kind == MHA_WEIGHT_MATRIX || info->side == MHA_WEIGHT_HEADS;
        if (w[i].data && projects)
            return mha__fail(error, MHA_INVALID, mha__case_weight_name((mha_weight)i),
                             "expected none in kind %s, which projects nothing", mha_case_kind(c));
    }
    if (c->has_set[CASE_PERMUTED] || c->has_set[CASE_REPEATED])
        return mha__fail(error, MHA_INVALID, c->has_set[CASE_PERMUTED] ? "permuted.*" : "repeated.*",
                         "expected none in kind %s, which has no weights to replace", mha_case_kind(c));
    return MHA_OK;
}

/* ---------------------------------------------------------------- semantics */

/* Checks that a boolean key, if there is one, says whether the file has a tensor. */
static mha_status check_switch(const mha_case *c, const char *key, bool present, const char *tensor, mha_error *error)
{
    int value;
    TRY(mha__case_choice(c, key, &value, error));
    if (value < 0 || (value == 1) == present)
        return MHA_OK;
    return mha__fail(error, MHA_INVALID, tensor, "expected %s, as metadata %s is %d, found %s",
                     present ? "none" : "one", key, value, present ? "one" : "none");
}

static mha_status build_precision(mha_case *c, mha_error *error)
{
    static const mha_dtype types[] = {MHA_F32, MHA_F16, MHA_BF16, MHA_F8_E4M3, MHA_F8_E5M2, MHA_I8, MHA_TF32},
                           caches[] = {MHA_F64, MHA_F32, MHA_F16, MHA_BF16, MHA_I8};
    int type;
    TRY(mha__case_choice(c, "precision", &type, error));
    c->precision = mha_precision_of(types[type]);
    TRY(mha__case_choice(c, "cache_dtype", &type, error));
    c->cache_rounds = caches[type] != MHA_F64;
    c->cache = caches[type];
    return MHA_OK;
}

/* Batch rows, or sequences of a ragged batch. */
static size_t sequences_of(const mha_case *c)
{
    return c->semantics.place.cu_seqlens_q ? c->semantics.place.n_sequences : c->B;
}

/* Replaces the lengths by a copy clamped to 0 ... number of keys, the range that a call accepts. A length below 0
 * hides all keys, as 0 does; a length beyond the last key hides none. */
static mha_status clamp_lengths(mha_case *c, mha_error *error)
{
    mha_semantics *s = &c->semantics;
    const int64_t *given = s->visible.kv_lengths,
                  *cu = s->place.cu_seqlens_k ? s->place.cu_seqlens_k : s->place.cu_seqlens_q;
    const size_t rows = sequences_of(c);
    if (!given)
        return MHA_OK;
    int64_t *own = mha__arena_take(&c->pool, rows * sizeof *own);
    if (!own)
        return mha__fail(error, MHA_NO_MEMORY, "kv_lengths", "no memory");
    for (size_t b = 0; b < rows; b++) {
        const bool sound = !cu || (cu[b] >= 0 && cu[b] <= cu[b + 1]); /* the call refuses unsound cu_seqlens by name */
        const int64_t most = !cu ? (int64_t)(c->P + c->T_k) : sound ? cu[b + 1] - cu[b] : 0;
        const int64_t end = s->place.key_offset + most;
        own[b] = given[b] < 0 || end < 0 ? 0 : given[b] > end ? end : given[b];
    }
    s->visible.kv_lengths = own;
    return MHA_OK;
}

mha_status mha__case_settle(mha_case *c, size_t rows, mha_error *error)
{
    mha_semantics *s = &c->semantics;
    mha_rope *r = &s->qkv.rope;
    mha_difference d;
    if (s->place.has_offset && !s->place.position_offset) {
        int64_t *offset = mha__arena_take(&c->pool, rows * sizeof *offset);
        if (!offset)
            return mha__fail(error, MHA_NO_MEMORY, "position_offset", "no memory for a copy");
        for (size_t b = 0; b < rows; b++)
            offset[b] = s->place.offset;
        s->place.position_offset = offset;
    }
    s->place.has_offset = false, s->place.offset = 0;
    const bool other_keys = s->place.has_key_offset || !r->q_positions.data ||
                            mha_compare(&r->q_positions, &r->k_positions, 0, 0, &d, NULL) || d.mismatches > 0;
    if (r->k_positions.data && other_keys)
        return mha__fail(error, MHA_UNSUPPORTED, "rope_k_positions",
                         "a case has keys at the positions of the queries: expected equal positions");
    r->k_positions = (mha_view){0};
    return MHA_OK;
}

/* Tables of biases have no effect without a rule. */
static mha_status check_tables(const mha_case *c, mha_error *error)
{
    const mha_view *w = c->weights[CASE_RECORDED];
    if (c->semantics.added.bias.rule == MHA_BIAS_RULE_NONE && w[MHA_BIAS_TABLE].data)
        return mha__fail(error, MHA_INVALID, "bias_table", "expected bias_rule buckets or grid with it, found none");
    for (int t = MHA_RELATIVE_K; c->semantics.added.relative.rule == MHA_RELATIVE_NONE && t <= MHA_RELATIVE_Q; t++)
        if (w[t].data)
            return mha__fail(error, MHA_INVALID, mha__case_weight_name((mha_weight)t),
                             "expected relative_rule distance, log_buckets or grid with it, found none");
    return MHA_OK;
}

/* Completes the semantics that were read by what the other words of a case say. */
static mha_status build_semantics(mha_case *c, mha_error *error)
{
    const mha_view *w = c->weights[CASE_RECORDED];
    const bool bias_k = w[MHA_BIAS_K].data != NULL, bias_v = w[MHA_BIAS_V].data != NULL;
    if (bias_k != bias_v)
        return mha__fail(error, MHA_INVALID, bias_k ? "bias_v" : "bias_k", "expected one with %s, found none",
                         bias_k ? "bias_k" : "bias_v");
    TRY(check_switch(c, "add_bias_kv", bias_k, "bias_k", error));
    TRY(check_switch(c, "alibi", c->semantics.added.alibi_slopes != NULL, "alibi_slopes", error));
    mha__case_keys_only(c);
    TRY(build_precision(c, error));
    if (c->semantics.place.cu_seqlens_k && !c->semantics.place.cu_seqlens_q)
        return mha__fail(error, MHA_INVALID, "cu_seqlens_k", "expected cu_seqlens_q with it, found none");
    TRY(mha__case_check_lengths(c, error));
    TRY(clamp_lengths(c, error));
    TRY(mha__case_settle(c, sequences_of(c), error));
    TRY(mha__case_build_masks(c, error));
    TRY(mha__case_build_rope(c, error));
    return check_tables(c, error);
}

/* ---------------------------------------------------------------- contradictions */

static mha_status check_past(const mha_case *c, mha_error *error)
{
    const mha_view *key = &c->tensors[CASE_PAST_KEY], *value = &c->tensors[CASE_PAST_VALUE];
    if (!key->data && !value->data)
        return MHA_OK;
    if (c->absorbed && value->data)
        return mha__fail(error, MHA_INVALID, "past_value",
                         "expected none with absorbed latents, which hold the values");
    if (c->absorbed)
        return mha__expect_shape(error, "past_key", key, 4, (const size_t[]){c->B, 1, c->P, c->kv_rank + c->d_rope});
    if (!key->data || !value->data)
        return mha__fail(error, MHA_INVALID, key->data ? "past_value" : "past_key", "expected one with %s, found none",
                         key->data ? "past_key" : "past_value");
    TRY(mha__expect_shape(error, "past_key", key, 4, (const size_t[]){c->B, c->H_kv, c->P, c->d_k}));
    return mha__expect_shape(error, "past_value", value, 4, (const size_t[]){c->B, c->H_kv, c->P, c->d_v});
}

/* Checks a tensor that repeats the contents of other tensors: only one kind of case may have it, some of these
 * tensors need T_q = T_k, and the shape follows from the other tensors. */
static mha_status check_companion(const mha_case *c, case_tensor tensor, case_kind kind, bool equal_lengths, int rank,
                                  const size_t *shape, mha_error *error)
{
    const mha_view *v = &c->tensors[tensor];
    const char *name = mha__case_tensor_name(tensor);
    if (!v->data)
        return MHA_OK;
    if (c->kind != kind)
        return mha__fail(error, MHA_INVALID, name, "expected kind %s, found kind %s", kind == CASE_MHA ? "mha" : "sdpa",
                         mha_case_kind(c));
    if (equal_lengths && c->T_q != c->T_k)
        return mha__fail(error, MHA_INVALID, name, "expected T_q = T_k, found T_q %zu, T_k %zu", c->T_q, c->T_k);
    return mha__expect_shape(error, name, v, rank, shape);
}

static mha_status check_companions(const mha_case *c, mha_error *error)
{
    const size_t columns = c->H * c->d_k;
    const size_t packed[] = {c->B, c->T_q, columns + c->H_kv * (c->d_k + c->d_v)};
    const size_t prefill[] = {c->B, c->P + c->T_q, c->E_q};
    const size_t in_proj[] = {3 * columns, c->E_q}, out_proj[] = {c->E_out, c->H * c->d_v};
    TRY(check_companion(c, CASE_PACKED, CASE_SDPA, true, 3, packed, error));
    TRY(check_companion(c, CASE_PREFILL, CASE_MHA, true, 3, prefill, error));
    TRY(check_companion(c, CASE_IN_PROJ, CASE_MHA, false, 2, in_proj, error));
    TRY(check_companion(c, CASE_IN_BIAS, CASE_MHA, false, 1, in_proj, error));
    TRY(check_companion(c, CASE_OUT_PROJ, CASE_MHA, false, 2, out_proj, error));
    TRY(check_companion(c, CASE_OUT_BIAS, CASE_MHA, false, 1, out_proj, error));
    if (mha__case_records(c, CASE_PREFILL_OUTPUT) && !c->tensors[CASE_PREFILL].data)
        return mha__fail(error, MHA_INVALID, "prefill.query", "is missing, and expected.prefill_output is there");
    return MHA_OK;
}

static mha_status check_expected(const mha_case *c, const mha_plan *plan, int wide, int slot, mha_stage stage,
                                 mha_error *error)
{
    const case_expected *e = &c->expected[wide][slot];
    if (!e->name)
        return MHA_OK;
    size_t shape[4];
    const int rank = mha_plan_stage(plan, stage, shape);
    if (rank == 0) /* the checker skips this stage and says why */
        return MHA_OK;
    const mha_view stored = mha_view_of(NULL, MHA_F32, rank, shape);
    const mha_view shaped = mha__case_shape(c, &stored, stage, slot == CASE_QK, plan->S, e->view.rank);
    return mha__expect_shape(error, e->name, &e->view, shaped.rank, shaped.shape);
}

mha_status mha__case_check_expected(const mha_case *c, const mha_plan *plan, mha_error *error)
{
    for (int wide = 0; wide < 2; wide++) {
        for (int slot = 0; slot < CASE_PREFILL_OUTPUT; slot++)
            TRY(check_expected(c, plan, wide, slot, (mha_stage)slot, error));
        TRY(check_expected(c, plan, wide, CASE_QK, c->qk_stage, error));
    }
    return mha__case_check_gradients(c, error);
}

/* A call that no path supports is not a bug in the file: the checker skips it. */
static mha_status check_plan(mha_case *c, mha_error *error)
{
    mha_call call = mha_case_call(c);
    call.path = MHA_PATH_EXACT;
    const mha__request request = mha__case_request(c, c->layer, &call);
    mha__attempt attempt = {0};
    const mha_status status = mha__attempt_begin(&attempt, &c->pool.allocator, &request, error);
    const mha_plan plan = attempt.plan;
    mha__attempt_free(&attempt);
    if (status != MHA_OK)
        return status == MHA_UNSUPPORTED ? MHA_OK : status;
    return mha__case_check_expected(c, &plan, error);
}

/* Which form of latent attention is recorded. */
static mha_status build_latents(mha_case *c, mha_error *error)
{
    int absorbed;
    TRY(mha__case_choice(c, "absorbed", &absorbed, error));
    c->absorbed = absorbed == 1;
    if (c->absorbed && c->kv_rank == 0)
        return mha__fail(error, MHA_INVALID, "absorbed",
                         "expected W_kva with it, found none; only latents are absorbed");
    if (c->kv_rank && c->tensors[CASE_VALUE].data != c->tensors[CASE_KEY].data)
        return mha__fail(error, MHA_INVALID, "value", "expected none with latent attention, which reads key only");
    return MHA_OK;
}

mha_status mha__case_build(mha_case *c, mha_error *error)
{
    TRY(build_latents(c, error));
    if (c->kind != CASE_ROPE)
        TRY(check_past(c, error));
    TRY(check_companions(c, error));
    TRY(build_layers(c, error));
    TRY(build_semantics(c, error));
    return c->kind == CASE_ROPE ? MHA_OK : check_plan(c, error);
}
