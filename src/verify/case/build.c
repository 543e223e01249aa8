/* From what a case file says to a call: layers, semantics, extras, and what contradicts itself. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/attempt.h"
#include "verify/case/record.h"

/* ---------------------------------------------------------------- layers */

static mha_status norm_kind(const mha_case *c, mha_weight weight, size_t heads, mha_norm *norm, mha_error *error)
{
    const mha_view *w = &c->weights[CASE_RECORDED][weight];
    *norm = MHA_NORM_NONE;
    if (!w->data)
        return MHA_OK;
    *norm = w->shape[0] == c->d_k ? MHA_NORM_HEAD : MHA_NORM_ROW;
    if (*norm == MHA_NORM_ROW && w->shape[0] != heads * c->d_k)
        return mha__fail(error, MHA_INVALID, mha__case_weight_name(weight),
                        "tensor %s: expected %zu (per head) or %zu (per row) elements, found %zu",
                        mha__case_weight_name(weight), c->d_k, heads * c->d_k, w->shape[0]);
    return MHA_OK;
}

/* The weights of `set`, with those it does not replace taken from the recorded ones. */
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
        .bias_q = weight_of(c, set, MHA_B_Q).data != NULL,
        .bias_k = weight_of(c, set, MHA_B_K).data != NULL,
        .bias_v = weight_of(c, set, MHA_B_V).data != NULL,
        .bias_o = weight_of(c, set, MHA_B_O).data != NULL,
        .bias_kv = w[MHA_BIAS_K].data != NULL,
        .sinks = w[MHA_SINKS].data != NULL,
    };
    for (int i = 0; i < MHA_WEIGHT_COUNT; i++)
        if (w[i].data && w[i].dtype == MHA_F64)
            config.dtype = MHA_F64;
    mha_status status = norm_kind(c, MHA_Q_NORM, c->H, &config.q_norm, error);
    if (!status)
        status = norm_kind(c, MHA_K_NORM, c->H_kv, &config.k_norm, error);
    if (!status && mha_params_create(&c->pool.allocator, &c->params[set]))
        status = mha__fail(error, MHA_NO_MEMORY, c->name, "no memory for the parameter table");
    if (!status)
        status = mha_layer_create(&config, c->params[set], NULL, &c->layers[set], error);
    for (int i = 0; i < MHA_WEIGHT_COUNT && !status; i++) {
        mha_view from = weight_of(c, set, (mha_weight)i);
        if (from.data || mha_layer_weight(c->layers[set], (mha_weight)i))
            status = from.data ? mha_layer_set(c->layers[set], (mha_weight)i, &from, error)
                               : mha__fail(error, MHA_INVALID, mha__case_weight_name((mha_weight)i),
                                          "tensor %s is missing", mha__case_weight_name((mha_weight)i));
    }
    return status ? status : mha_layer_pack(c->layers[set], error);
}

static mha_status build_layers(mha_case *c, mha_error *error)
{
    const mha_view *w = c->weights[CASE_RECORDED];
    if (c->kind == CASE_MHA) {
        if (c->layout == MHA_BHTD || c->layout == MHA_BTHD)
            return mha__fail(error, MHA_INVALID, "layout", "kind mha: expected layout BTE, TBE or TE, found %s",
                            mha_layout_name(c->layout));
        for (int set = 0; set < CASE_WEIGHTS_COUNT; set++)
            if (set == CASE_RECORDED || c->has_set[set]) {
                mha_status status = build_layer(c, (case_weights)set, error);
                if (status)
                    return status;
            }
        c->layer = c->layers[CASE_RECORDED];
        return MHA_OK;
    }
    static const mha_weight projections[] = {MHA_W_Q, MHA_W_K, MHA_W_V, MHA_W_O, MHA_B_O};
    for (size_t i = 0; i < sizeof projections / sizeof *projections; i++)
        if (w[projections[i]].data)
            return mha__fail(error, MHA_INVALID, mha__case_weight_name(projections[i]),
                            "kind %s has no projection, but tensor %s is there", mha_case_kind(c),
                            mha__case_weight_name(projections[i]));
    if (c->has_set[CASE_PERMUTED] || c->has_set[CASE_REPEATED])
        return mha__fail(error, MHA_INVALID, "permuted", "kind %s has no weights to replace", mha_case_kind(c));
    c->extras = (mha_extras){
        .b_q = w[MHA_B_Q],
        .b_k = w[MHA_B_K],
        .b_v = w[MHA_B_V],
        .bias_k = w[MHA_BIAS_K],
        .bias_v = w[MHA_BIAS_V],
        .sinks = w[MHA_SINKS],
        .q_norm = w[MHA_Q_NORM],
        .k_norm = w[MHA_K_NORM],
    };
    return MHA_OK;
}

/* ---------------------------------------------------------------- semantics */

/* A switch and the tensor it needs, one or both of which the file has. */
static mha_status switched(const mha_case *c, const char *key, bool present, const char *tensor, bool *on,
                           mha_error *error)
{
    static const char *const words[] = {"0", "1", NULL};
    int value;
    mha_status status = mha__case_word(c, key, words, present, &value, error);
    if (status)
        return status;
    *on = value == 1;
    if (tensor && *on != present)
        return mha__fail(error, MHA_INVALID, tensor, "metadata %s is %d, but %s is %s", key, value, tensor,
                        present ? "there" : "missing");
    return MHA_OK;
}

static mha_status build_mask(const mha_case *c, case_tensor tensor, const char *key, const char *name, mha_mask *mask,
                             mha_error *error)
{
    static const char *const words[] = {"none", "additive", "bool_true_keeps", "bool_true_masks", NULL};
    static const mha_mask_kind kinds[] = {MHA_MASK_NONE, MHA_MASK_ADDITIVE, MHA_MASK_KEEPS, MHA_MASK_HIDES};
    const mha_view *v = &c->tensors[tensor];
    int kind;
    mha_status status = mha__case_word(c, key, words, 0, &kind, error);
    if (status)
        return status;
    if ((kind != 0) != (v->data != NULL))
        return mha__fail(error, MHA_INVALID, name, "metadata %s is %s, but tensor %s is %s", key, words[kind], name,
                        v->data ? "there" : "missing");
    bool real = v->dtype == MHA_F32 || v->dtype == MHA_F64;
    if (v->data && real != (kinds[kind] == MHA_MASK_ADDITIVE))
        return mha__fail(error, MHA_INVALID, name, "tensor %s: expected %s for %s, found %s", name,
                        real ? "BOOL" : "F32", words[kind], mha_dtype_name(v->dtype));
    mask->kind = kinds[kind];
    mask->values = *v;
    return MHA_OK;
}

/* An additive mask in which what hides, -inf, is `fill`; in doubles, which hold every fill. */
static mha_status fill_hidden(mha_case *c, mha_view *mask, double fill, mha_error *error)
{
    mha_view filled = mha__arena_view(&c->pool, MHA_F64, mask->rank, mask->shape);
    if (!filled.data)
        return mha__fail(error, MHA_NO_MEMORY, c->name, "no memory for a mask");
    (void)mha_view_copy(&filled, mask);
    double *value = filled.data;
    for (size_t i = 0; i < mha_view_elements(&filled); i++)
        value[i] = value[i] == -INFINITY ? fill : value[i];
    *mask = filled;
    return MHA_OK;
}

static mha_status build_masks(mha_case *c, mha_error *error)
{
    mha_semantics *s = &c->semantics;
    mha_status status = build_mask(c, CASE_ATTN_MASK, "attn_mask_kind", "attn_mask", &s->mask, error);
    if (!status)
        status = build_mask(c, CASE_PADDING, "key_padding_mask_kind", "key_padding_mask", &s->key_padding, error);
    mha_view *p = &s->key_padding.values;
    if (p->data && p->rank == 1)
        *p = mha_view_of(p->data, p->dtype, 2, (const size_t[]){1, p->shape[0]});
    double fill = -INFINITY;
    if (!status)
        status = mha__case_number(c, "mask_filter_value", -INFINITY, &fill, error);
    if (!status && fill == INFINITY)
        status =
            mha__fail(error, MHA_INVALID, "mask_filter_value", "metadata mask_filter_value: expected less than inf");
    if (!status && fill != -INFINITY && p->data) { /* adding -inf is hiding */
        if (s->key_padding.kind == MHA_MASK_ADDITIVE)
            return fill_hidden(c, p, fill, error);
        s->has_padding_fill = true;
        s->padding_fill = fill;
    }
    return status;
}

static mha_status build_rope(mha_case *c, mha_error *error)
{
    static const char *const words[] = {"none", "interleaved", "half_split", NULL};
    static const mha_rope_kind kinds[] = {MHA_ROPE_NONE, MHA_ROPE_INTERLEAVED, MHA_ROPE_HALF_SPLIT};
    mha_rope *r = &c->semantics.rope;
    int kind;
    double dim, base;
    mha_status status = mha__case_word(c, "rope", words, 0, &kind, error);
    if (!status)
        status = mha__case_number(c, "rope_dim", 0, &dim, error);
    if (!status)
        status = mha__case_number(c, "rope_base", 0, &base, error);
    if (status)
        return status;
    const mha_view *cos = &c->tensors[CASE_COS], *sin = &c->tensors[CASE_SIN];
    if ((cos->data != NULL) != (sin->data != NULL))
        return mha__fail(error, MHA_INVALID, "cos_cache", "expected both cos_cache and sin_cache, found one");
    if (kinds[kind] == MHA_ROPE_NONE) {
        if (cos->data || c->kind == CASE_ROPE)
            return mha__fail(error, MHA_INVALID, "rope", "expected metadata rope interleaved or half_split, found none");
        return MHA_OK;
    }
    if (dim < 0 || dim != floor(dim) || dim > (double)c->d_k)
        return mha__fail(error, MHA_INVALID, "rope_dim", "metadata rope_dim: expected 0 to %zu, found %g", c->d_k, dim);
    *r = (mha_rope){.kind = kinds[kind], .dim = (size_t)dim, .base = base, .cos_table = *cos, .sin_table = *sin};
    r->q_positions = c->tensors[CASE_POSITIONS];
    if (r->q_positions.data && r->q_positions.rank == 1)
        r->q_positions = mha_view_of(r->q_positions.data, MHA_I64, 2, (const size_t[]){1, r->q_positions.shape[0]});
    return MHA_OK;
}

/* The pairing that goes with permuted weights: the one the note names ("rope=half_split"), else the
 * other one than the recorded weights have. */
static mha_rope_kind permuted_rope(const mha_case *c)
{
    const char *note = mha_file_metadata(c->file, "note");
    mha_rope_kind kind = c->semantics.rope.kind;
    if (kind == MHA_ROPE_NONE)
        return kind;
    if (note && strstr(note, "rope=half_split"))
        return MHA_ROPE_HALF_SPLIT;
    if (note && strstr(note, "rope=interleaved"))
        return MHA_ROPE_INTERLEAVED;
    return kind == MHA_ROPE_INTERLEAVED ? MHA_ROPE_HALF_SPLIT : MHA_ROPE_INTERLEAVED;
}

static mha_status build_window(mha_case *c, mha_error *error)
{
    double left, right;
    mha_status status = mha__case_number(c, "window_left", -1, &left, error);
    if (!status)
        status = mha__case_number(c, "window_right", -1, &right, error);
    if (status)
        return status;
    if (left != floor(left) || right != floor(right) || left < -1 || right < -1 || left > 0x1p53 || right > 0x1p53)
        return mha__fail(error, MHA_INVALID, "window_left",
                        "metadata window_left, window_right: expected whole numbers of -1 or more, found %g, %g", left,
                        right);
    c->semantics.window = left >= 0 || right >= 0;
    c->semantics.window_left = (int64_t)left;
    c->semantics.window_right = (int64_t)right;
    return MHA_OK;
}

/* "none" means that the equation is taken as it stands, and its 0/0 is NaN. */
static mha_status build_rows(mha_case *c, mha_error *error)
{
    static const char *const empty[] = {"zero", "nan", "none", NULL};
    static const char *const hidden[] = {"ignore", "propagate", NULL};
    int e, h;
    mha_status status = mha__case_word(c, "fully_masked", empty, 0, &e, error);
    if (!status)
        status = mha__case_word(c, "hidden_values", hidden, 0, &h, error);
    if (status)
        return status;
    c->semantics.empty_rows = e == 0 ? MHA_EMPTY_ZERO : MHA_EMPTY_NAN;
    c->semantics.hidden_values = h == 0 ? MHA_HIDDEN_IGNORE : MHA_HIDDEN_PROPAGATE;
    return MHA_OK;
}

/* A tensor of one number per `what`; NULL when the file has none. */
static mha_status per(const mha_case *c, case_tensor tensor, const char *name, const char *what, size_t n,
                      const void **data, mha_error *error)
{
    const mha_view *v = &c->tensors[tensor];
    *data = v->data;
    if (v->data && v->shape[0] != n)
        return mha__fail(error, MHA_INVALID, name, "tensor %s: expected %zu elements, one per %s, found %zu", name, n,
                        what, v->shape[0]);
    return MHA_OK;
}

/* The lengths as a call takes them, between 0 and the keys there are: beyond either end they say the same. */
static mha_status clamp_lengths(mha_case *c, size_t rows, const int64_t **lengths, mha_error *error)
{
    const int64_t *given = *lengths, *cu = c->semantics.cu_seqlens_k ? c->semantics.cu_seqlens_k : c->semantics.cu_seqlens_q;
    if (!given)
        return MHA_OK;
    int64_t *own = mha__arena_take(&c->pool, rows * sizeof *own);
    if (!own)
        return mha__fail(error, MHA_NO_MEMORY, c->name, "no memory for kv_lengths");
    for (size_t b = 0; b < rows; b++) {
        const bool sound = !cu || (cu[b] >= 0 && cu[b] <= cu[b + 1]); /* the call refuses others by name */
        const int64_t most = !cu ? (int64_t)(c->P + c->T_k) : sound ? cu[b + 1] - cu[b] : 0;
        own[b] = given[b] < 0 ? 0 : given[b] > most ? most : given[b];
    }
    *lengths = own;
    return MHA_OK;
}

static mha_status build_arrays(mha_case *c, mha_error *error)
{
    mha_semantics *s = &c->semantics;
    const mha_view *cu = &c->tensors[CASE_CU_Q], *cu_k = &c->tensors[CASE_CU_K];
    size_t rows = c->B;
    if (cu_k->data && !cu->data)
        return mha__fail(error, MHA_INVALID, "cu_seqlens_k",
                        "tensor cu_seqlens_k is there, but cu_seqlens_q is missing");
    if (cu->data) {
        if (cu->shape[0] < 2 || (cu_k->data && cu_k->shape[0] != cu->shape[0]))
            return mha__fail(error, MHA_INVALID, "cu_seqlens_q",
                            "expected cu_seqlens_q and cu_seqlens_k of one length, 2 or more, found %zu and %zu",
                            cu->shape[0], cu_k->data ? cu_k->shape[0] : cu->shape[0]);
        rows = s->n_sequences = cu->shape[0] - 1;
        s->cu_seqlens_q = cu->data;
        s->cu_seqlens_k = cu_k->data;
    }
    const void *lengths, *offset, *slopes;
    mha_status status = per(c, CASE_LENGTHS, "kv_lengths", "batch row", rows, &lengths, error);
    if (!status)
        status = per(c, CASE_OFFSET, "position_offset", "batch row", rows, &offset, error);
    if (!status)
        status = per(c, CASE_ALIBI, "alibi_slopes", "head", c->H, &slopes, error);
    if (status)
        return status;
    s->kv_lengths = lengths;
    if ((status = clamp_lengths(c, rows, &s->kv_lengths, error)))
        return status;
    s->has_offset = offset != NULL;
    s->position_offset = offset;
    s->alibi_slopes = slopes;
    return MHA_OK;
}

static mha_status build_semantics(mha_case *c, mha_error *error)
{
    mha_semantics *s = &c->semantics;
    const mha_view *w = c->weights[CASE_RECORDED];
    bool bias_kv = false, alibi = false;
    mha_status status = mha__case_number(c, "scale", NAN, &s->scale, error);
    s->has_scale = !isnan(s->scale);
    if (!s->has_scale)
        s->scale = 0;
    if (!status)
        status = mha__case_number(c, "softcap", 0, &s->softcap, error);
    if (!status)
        status = mha__case_number(c, "norm_eps", 0, &s->norm_eps, error);
    if (!status)
        status = switched(c, "causal", false, NULL, &s->causal, error);
    if (!status)
        status = switched(c, "add_zero_attn", false, NULL, &s->zero_row, error);
    if (!status)
        status = switched(c, "softmax_plus_one", false, NULL, &s->softmax_plus_one, error);
    if (!status && (w[MHA_BIAS_K].data != NULL) != (w[MHA_BIAS_V].data != NULL))
        status = mha__fail(error, MHA_INVALID, "bias_k", "expected both bias_k and bias_v, found one");
    if (!status)
        status = switched(c, "add_bias_kv", w[MHA_BIAS_K].data != NULL, "bias_k", &bias_kv, error);
    if (!status)
        status = switched(c, "alibi", c->tensors[CASE_ALIBI].data != NULL, "alibi_slopes", &alibi, error);
    if (!status)
        status = build_arrays(c, error);
    if (!status)
        status = build_window(c, error);
    if (!status)
        status = build_masks(c, error);
    if (!status)
        status = build_rope(c, error);
    c->permuted_rope = permuted_rope(c);
    if (!status)
        status = build_rows(c, error);
    return status;
}

/* ---------------------------------------------------------------- contradictions */

static mha_status check_past(const mha_case *c, mha_error *error)
{
    const struct {
        case_tensor tensor;
        const char *name;
        size_t d;
    } past[] = {{CASE_PAST_KEY, "past_key", c->d_k}, {CASE_PAST_VALUE, "past_value", c->d_v}};
    for (size_t i = 0; i < 2; i++) {
        const mha_view *v = &c->tensors[past[i].tensor];
        if (!v->data != !c->tensors[CASE_PAST_KEY].data)
            return mha__fail(error, MHA_INVALID, "past_key", "expected both past_key and past_value, found one");
        const size_t shape[] = {c->B, c->H_kv, c->P, past[i].d};
        char expected[128], found[128];
        if (v->data && memcmp(v->shape, shape, sizeof shape) != 0)
            return mha__fail(error, MHA_INVALID, past[i].name, "tensor %s: expected shape %s, found %s", past[i].name,
                            mha__shape_text(expected, sizeof expected, shape, 4),
                            mha__shape_text(found, sizeof found, v->shape, 4));
    }
    return MHA_OK;
}

/* The companions of a case: tensors that say the same in another way, of the shape that makes sense. */
static mha_status check_companions(const mha_case *c, mha_error *error)
{
    const mha_view *packed = &c->tensors[CASE_PACKED], *prefill = &c->tensors[CASE_PREFILL];
    char found[128];
    if (packed->data) {
        const size_t shape[] = {c->B, c->T_q, c->H * c->d_k + c->H_kv * (c->d_k + c->d_v)};
        if (c->kind != CASE_SDPA || c->T_q != c->T_k || memcmp(packed->shape, shape, sizeof shape) != 0)
            return mha__fail(error, MHA_INVALID, "packed.qkv",
                            "tensor packed.qkv: expected kind sdpa, T_q = T_k and width %zu, found kind %s, T_q %zu, "
                            "T_k %zu, shape %s",
                            shape[2], mha_case_kind(c), c->T_q, c->T_k,
                            mha__shape_text(found, sizeof found, packed->shape, 3));
    }
    if (prefill->data) {
        const size_t shape[] = {c->B, c->P + c->T_q, c->E_q};
        if (c->kind != CASE_MHA || c->T_q != c->T_k || memcmp(prefill->shape, shape, sizeof shape) != 0)
            return mha__fail(error, MHA_INVALID, "prefill.query",
                            "tensor prefill.query: expected kind mha, T_q = T_k and length %zu, found kind %s, T_q "
                            "%zu, T_k %zu, shape %s",
                            shape[1], mha_case_kind(c), c->T_q, c->T_k,
                            mha__shape_text(found, sizeof found, prefill->shape, 3));
    }
    bool wanted = c->expected[0][CASE_PREFILL_OUTPUT].name || c->expected[1][CASE_PREFILL_OUTPUT].name;
    if (wanted && !prefill->data)
        return mha__fail(error, MHA_INVALID, "prefill.query",
                        "expected.prefill_output needs tensor prefill.query, which is missing");
    const struct {
        case_tensor tensor;
        const char *name;
        size_t shape[2];
        int rank;
    } torch[] = {{CASE_IN_PROJ, "torch.in_proj_weight", {3 * c->H * c->d_k, c->E_q}, 2},
                 {CASE_IN_BIAS, "torch.in_proj_bias", {3 * c->H * c->d_k, 0}, 1},
                 {CASE_OUT_PROJ, "torch.out_proj.weight", {c->E_out, c->H * c->d_v}, 2},
                 {CASE_OUT_BIAS, "torch.out_proj.bias", {c->E_out, 0}, 1}};
    for (size_t i = 0; i < sizeof torch / sizeof *torch; i++) {
        const mha_view *v = &c->tensors[torch[i].tensor];
        char expected[128];
        if (v->data &&
            (c->kind != CASE_MHA || memcmp(v->shape, torch[i].shape, sizeof(size_t) * (size_t)torch[i].rank) != 0))
            return mha__fail(error, MHA_INVALID, torch[i].name,
                            "tensor %s: expected kind mha and shape %s, found kind %s and %s", torch[i].name,
                            mha__shape_text(expected, sizeof expected, torch[i].shape, torch[i].rank), mha_case_kind(c),
                            mha__shape_text(found, sizeof found, v->shape, v->rank));
    }
    return MHA_OK;
}

static mha_status check_expected(const mha_case *c, const mha_plan *plan, int wide, int slot, mha_stage stage,
                                 mha_error *error)
{
    const case_expected *e = &c->expected[wide][slot];
    if (!e->name)
        return MHA_OK;
    mha_view stored = mha_view_of(NULL, MHA_F32, plan->stage_rank[stage], plan->stage_shape[stage]);
    mha_view shaped = mha__case_shape(c, &stored, stage, slot == CASE_QK, plan->S, e->view.rank);
    char expected[128], found[128];
    if (shaped.rank != e->view.rank || memcmp(shaped.shape, e->view.shape, sizeof(size_t) * (size_t)shaped.rank) != 0)
        return mha__fail(error, MHA_INVALID, e->name, "tensor %s: expected shape %s, found %s", e->name,
                        mha__shape_text(expected, sizeof expected, shaped.shape, shaped.rank),
                        mha__shape_text(found, sizeof found, e->view.shape, e->view.rank));
    return MHA_OK;
}

/* Asks the library what it makes of the call. What no path can do is not wrong: the judge will skip it. */
mha_status mha__case_check_plan(mha_case *c, mha_error *error)
{
    mha_call call = mha_case_call(c);
    call.path = MHA_PATH_EXACT;
    mha__request request = {.layer = mha_case_layer(c), .call = &call};
    mha_case_past(c, &request.past_key, &request.past_value);
    mha__attempt attempt = {0};
    mha_status status = mha__attempt_begin(&attempt, &c->pool.allocator, &request, error);
    mha_plan plan = attempt.plan;
    mha__attempt_free(&attempt);
    if (status)
        return status == MHA_UNSUPPORTED ? MHA_OK : status;
    for (int wide = 0; wide < 2; wide++)
        for (int slot = 0; slot < CASE_PREFILL_OUTPUT; slot++)
            if ((status = check_expected(c, &plan, wide, slot, (mha_stage)slot, error)))
                return status;
    for (int wide = 0; wide < 2 && !status; wide++)
        status = check_expected(c, &plan, wide, CASE_QK, c->qk_stage, error);
    return status;
}

mha_status mha__case_build(mha_case *c, mha_error *error)
{
    mha_status status = c->kind == CASE_ROPE ? MHA_OK : check_past(c, error);
    if (!status)
        status = check_companions(c, error);
    if (!status)
        status = build_layers(c, error);
    if (!status)
        status = build_semantics(c, error);
    if (status || c->kind == CASE_ROPE)
        return status;
    return mha__case_check_plan(c, error);
}
