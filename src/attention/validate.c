/* The semantics of a call against its sizes: masks, lengths, windows, rotation; and its precision. */
#include <math.h>
#include <string.h>

#include "attention/call/definition.h"
#include "attention/core/terms/terms.h"
#include "attention/plan.h"
#include "attention/visibility/pattern.h"
#include "mha/setting.h"

static const int64_t far = INT64_MAX / 4; /* positions, windows and their sums stay representable */

/* ---------------------------------------------------------------- rotation */

static mha_status check_positions(const mha__resolved *r, const char *name, const mha_view *p, size_t T,
                                  mha_error *error)
{
    if (!p->data)
        return MHA_OK;
    if (p->dtype != MHA_I64 || p->rank != 2 || (p->shape[0] != r->query.shape[0] && p->shape[0] != 1) ||
        p->shape[1] != T) {
        char found[200];
        return mha__fail(error, MHA_INVALID, name, "expected I64 of shape (%zu, %zu), found %s of %s",
                         r->query.shape[0], T, mha_dtype_name(p->dtype),
                         mha__shape_text(found, sizeof found, p->shape, p->rank));
    }
    return MHA_OK;
}

/* Every position must have a row in a table of n rows. */
static mha_status check_range(const char *name, const mha_view *p, int64_t from, size_t T, size_t n,
                              mha_error *error)
{
    int64_t low = from, high = from + (int64_t)T - 1;
    if (p->data)
        for (size_t b = 0; b < p->shape[0]; b++)
            for (size_t t = 0; t < T; t++) {
                int64_t at = ((const int64_t *)p->data)[(ptrdiff_t)b * p->stride[0] + (ptrdiff_t)t * p->stride[1]];
                low = (b == 0 && t == 0) || at < low ? at : low;
                high = (b == 0 && t == 0) || at > high ? at : high;
            }
    if (T > 0 && (low < 0 || high >= (int64_t)n))
        return mha__fail(error, MHA_INVALID, name,
                         "expected positions in the %zu rows of the rotation tables, found positions from %lld to %lld",
                         n, (long long)low, (long long)high);
    return MHA_OK;
}

static mha_status check_tables(const mha__resolved *r, const mha_rope *rope, size_t T_q, size_t T_k, mha_error *error)
{
    const mha_view *c = &rope->cos_table, *s = &rope->sin_table;
    if (!c->data && !s->data)
        return MHA_OK;
    if (!c->data || !s->data)
        return mha__fail(error, MHA_INVALID, "rope",
                         "expected rotation tables in pairs, rope_cos and rope_sin, found one");
    char found_c[200], found_s[200];
    mha__shape_text(found_c, sizeof found_c, c->shape, c->rank);
    mha__shape_text(found_s, sizeof found_s, s->shape, s->rank);
    bool types = (c->dtype == MHA_F32 || c->dtype == MHA_F64) && s->dtype == c->dtype;
    bool by_position = c->rank == 2 && s->rank == 2 && c->shape[0] == s->shape[0];
    bool by_row = c->rank == 3 && s->rank == 3;
    for (int k = 0; k < 2 && by_row; k++) {
        size_t whole = k ? T_q : r->query.shape[0];
        by_row = c->shape[k] == s->shape[k] && (c->shape[k] == whole || (k == 0 && c->shape[k] == 1));
    }
    if (!types || !(by_position || by_row) || c->shape[c->rank - 1] != r->qkv.rope.dim / 2 ||
        s->shape[s->rank - 1] != r->qkv.rope.dim / 2)
        return mha__fail(
            error, MHA_INVALID, "rope",
            "rotation tables: expected cos and sin of F32 or F64, (n, %zu) or (%zu, %zu, %zu), found %s and %s",
            r->qkv.rope.dim / 2, r->query.shape[0], T_q, r->qkv.rope.dim / 2, found_c, found_s);
    if (by_row && mha__semantics_of(r)->place.has_key_offset)
        return mha__fail(error, MHA_UNSUPPORTED, "key_offset",
                         "expected rotation tables by position for a part of the keys, found a row for each token");
    if (by_row && T_q != T_k)
        return mha__fail(
            error, MHA_UNSUPPORTED, "rope",
            "expected as many keys as queries for tables with a row for each token, found %zu queries, %zu keys", T_q,
            T_k);
    if (by_row)
        return MHA_OK;
    const mha_view *q = &r->qkv.rope.q_positions, *k = &r->qkv.rope.k_positions;
    for (size_t b = 0; b < r->plan.B; b++) {
        mha__sequence seq = mha__resolved_sequence(r, b);
        TRY(check_range("rope_q_positions", q, seq.offset, q->data ? T_q : seq.T_q, c->shape[0], error));
        TRY(check_range("rope_k_positions", k, r->cached, k->data ? T_k : seq.T_k, c->shape[0], error));
    }
    return MHA_OK;
}

static mha_status check_frequencies(const mha__resolved *r, const mha_view *f, mha_error *error)
{
    char found[200];
    if (!f->data)
        return MHA_OK;
    if ((f->dtype != MHA_F32 && f->dtype != MHA_F64) || f->rank != 1 || f->shape[0] != r->qkv.rope.dim / 2)
        return mha__fail(error, MHA_INVALID, "rope_frequencies", "expected F32 or F64 of shape (%zu,), found %s of %s",
                         r->qkv.rope.dim / 2, mha_dtype_name(f->dtype),
                         mha__shape_text(found, sizeof found, f->shape, f->rank));
    if (mha__semantics_of(r)->qkv.rope.cos_table.data)
        return mha__fail(error, MHA_INVALID, "rope_frequencies", "expected either frequencies or tables, found both");
    for (size_t i = 0; i < f->shape[0]; i++)
        if (!isfinite(mha_view_get(f, &i)))
            return mha__fail(error, MHA_INVALID, "rope_frequencies", "expected finite numbers, found %g for pair %zu",
                             mha_view_get(f, &i), i);
    return MHA_OK;
}

static mha_rope filled_in(const mha__resolved *r, mha_rope rope)
{
    const bool own = rope.k_positions.data || r->query.shape[1] != r->key.shape[1] || /* keys may be the queries */
                     mha__semantics_of(r)->place.has_key_offset;
    rope.dim = rope.dim ? rope.dim : r->plan.d_k;
    rope.base = rope.base != 0 ? rope.base : 10000.0;
    rope.attention_factor = rope.attention_factor != 0 ? rope.attention_factor : 1;
    rope.k_positions = own ? rope.k_positions : rope.q_positions;
    return rope;
}

static mha_status check_rope(mha__resolved *r, mha_error *error)
{
    const mha_rope *rope = &mha__semantics_of(r)->qkv.rope;
    if (rope->kind == MHA_ROPE_NONE)
        return MHA_OK;
    r->qkv.rope = filled_in(r, *rope);
    if (r->qkv.rope.dim % 2 != 0 || r->qkv.rope.dim > r->plan.d_k)
        return mha__fail(error, MHA_INVALID, "rope_dim",
                         "expected an even number of features up to d_k = %zu, found %zu", r->plan.d_k,
                         r->qkv.rope.dim);
    if (r->latent.kv_rank && (!rope->last || r->qkv.rope.dim != r->latent.d_r))
        return mha__fail(error, MHA_INVALID, "rope_dim", "latent attention rotates the last d_rope features: expected "
                         "rope_last and rope_dim %zu, found the %s %zu",
                         r->latent.d_r, rope->last ? "last" : "first", r->qkv.rope.dim);
    if (r->plan.path != MHA_PATH_EXACT && !isfinite((float)r->qkv.rope.attention_factor))
        return mha__fail(error, MHA_INVALID, "rope_attention_factor",
                         "expected a positive factor that float can hold, found %g", rope->attention_factor);
    TRY(check_frequencies(r, &rope->frequencies, error));
    size_t T_q = r->query.shape[1], T_k = r->key.shape[1];
    TRY(check_positions(r, "rope_q_positions", &rope->q_positions, T_q, error));
    TRY(check_positions(r, "rope_k_positions", &rope->k_positions, T_k, error));
    return check_tables(r, rope, T_q, T_k, error);
}

/* ---------------------------------------------------------------- norms, scale by position */

mha_status mha__validate_norms(mha__resolved *r, mha_error *error)
{
    const mha_norm_rule *rule = &mha__semantics_of(r)->qkv.norm;
    if (r->latent.kv_rank && rule->unweighted)
        return mha__fail(error, MHA_UNSUPPORTED, "norm_unweighted",
                         "expected none with latent attention, which normalises its latents only");
    const bool weighted = r->norm[0] || r->norm[1], any = weighted || rule->unweighted;
    if ((rule->kind != MHA_NORM_RMS || rule->after_rope) && !any)
        return mha__fail(error, MHA_INVALID, rule->after_rope ? "norm_after_rope" : "norm_kind",
                         "expected q_norm, k_norm or `norm_unweighted` with it, found none");
    if (rule->after_rope && rule->kind == MHA_NORM_LAYER)
        return mha__fail(error, MHA_UNSUPPORTED, "norm_after_rope",
                         "expected another norm_kind, found layer; a LayerNorm comes before the rotation");
    if (rule->plus_one && !weighted)
        return mha__fail(error, MHA_INVALID, "norm_plus_one", "expected the weight of a norm with it, found none");
    for (int side = 0; side < 2; side++)
        if (!r->norm[side] && rule->unweighted)
            r->norm[side] = MHA_NORM_HEAD;
    return MHA_OK;
}

static mha_status check_query_scale(const mha__resolved *r, mha_error *error)
{
    const mha_query_scale *q = &mha__semantics_of(r)->qkv.query_scale;
    const double most = (1 + fabs(q->growth) * 44) * (q->log_n ? 44 / log((double)q->log_n) : 1); /* log(2^63) < 44 */
    if (!isfinite(most) || (r->plan.path != MHA_PATH_EXACT && !isfinite((float)most)))
        return mha__fail(error, MHA_INVALID, "query_scale_growth",
                         "expected a number that %s can hold 44 times, found %g",
                         r->plan.path == MHA_PATH_EXACT ? "a double" : "float", q->growth);
    if (q->growth != 0 && q->every < 1)
        return mha__fail(error, MHA_INVALID, "query_scale_every", "expected 1 position or more, found %lld",
                         (long long)q->every);
    return MHA_OK;
}

/* ---------------------------------------------------------------- numbers */

/* A sigmoid has no denominator, and so nothing that belongs to one. */
static mha_status check_normaliser(const mha__resolved *r, mha_error *error)
{
    const mha_softmax *s = &mha__semantics_of(r)->softmax;
    const bool sinks = r->weight[MHA_SINKS].data != NULL;
    if (s->normaliser == MHA_SOFTMAX)
        return MHA_OK;
    if (sinks || s->softmax_plus_one)
        return mha__fail(error, MHA_UNSUPPORTED, sinks ? "sinks" : "softmax_plus_one",
                         "expected a softmax, found a sigmoid, which has no denominator");
    if (s->empty_rows == MHA_EMPTY_NAN)
        return mha__fail(error, MHA_UNSUPPORTED, "empty_rows", "expected zero for a sigmoid, found nan");
    return MHA_OK;
}

static mha_status check_dropout(const mha__resolved *r, mha_error *error)
{
    const mha_view *keep = &mha__semantics_of(r)->softmax.dropout_keep;
    const size_t full[4] = {r->plan.B, r->plan.h, r->plan.T_q, r->plan.S + r->plan.S_extra};
    if (!keep->data)
        return MHA_OK;
    if (keep->dtype != MHA_BOOL && keep->dtype != MHA_U8)
        return mha__fail(error, MHA_INVALID, "dropout_keep", "expected BOOL or U8, true where a weight is kept, found "
                         "%s", mha_dtype_name(keep->dtype));
    return mha__expect_broadcast("dropout_keep", keep, full, 4, false, error);
}

mha_status mha__validate_semantics(mha__resolved *r, mha_error *error)
{
    const mha_semantics *s = mha__semantics_of(r);
    const mha__sizes *p = &r->plan;
    bool by_row = s->place.position_offset || s->visible.kv_lengths;
    for (size_t b = 0; b < (by_row ? p->B : 1); b++) {
        mha__sequence q = mha__resolved_sequence(r, b);
        if (q.offset > far || q.offset < -far)
            return mha__fail(error, MHA_INVALID, "position_offset",
                             "expected positions of 63 bits, found offset %lld of row %zu", (long long)q.offset, b);
        if (s->visible.kv_lengths &&
            (s->visible.kv_lengths[b] < 0 || s->visible.kv_lengths[b] > (s->place.has_key_offset ? far : (int64_t)q.S)))
            return mha__fail(error, MHA_INVALID, "kv_lengths",
                             "expected from 0 to %zu keys, found length %lld of row %zu", q.S,
                             (long long)s->visible.kv_lengths[b], b);
    }
    if (s->visible.has_padding_fill && s->visible.key_padding.kind != MHA_MASK_KEEPS &&
        s->visible.key_padding.kind != MHA_MASK_HIDES)
        return mha__fail(error, MHA_UNSUPPORTED, "padding_fill", "expected a boolean key_padding with it, found none");
    TRY(check_normaliser(r, error));
    TRY(check_dropout(r, error));
    if (s->qkv.clip_qkv > 0 && r->latent.kv_rank)
        return mha__fail(error, MHA_UNSUPPORTED, "clip_qkv", "queries, keys and values of latent attention have no "
                         "limit: expected 0, found %g", s->qkv.clip_qkv);
    TRY(check_query_scale(r, error));
    const size_t full[4] = {p->B, p->h, p->T_q, p->S}, padding[2] = {p->B, p->S};
    TRY(mha__mask_check("mask", &s->visible.mask, full, 4, true, error));
    TRY(mha__mask_check("key_padding", &s->visible.key_padding, padding, 2, false, error));
    TRY(mha__pattern_validate(r, error));
    TRY(mha__bias_check(r, error));
    TRY(mha__relative_check(r, error));
    return check_rope(r, error);
}

mha_status mha__validate_precision(const mha__resolved *r, mha_error *error)
{
    const mha_precision bf16 = mha_precision_of(MHA_BF16);
    if (r->partial.data)
        return mha__fail(error, MHA_UNSUPPORTED, "precision", "expected none with `partial`, found one");
    if (r->plan.path == MHA_PATH_EXACT)
        return MHA_OK;
    if (r->latent.kv_rank)
        return mha__fail(error, MHA_UNSUPPORTED, "precision", "expected the exact path for latent attention, found %s",
                         mha_path_name(r->plan.path));
    if (memcmp(&r->precision, &bf16, sizeof bf16) != 0)
        return mha__fail(error, MHA_UNSUPPORTED, "precision",
                         "expected BF16 on the %s path, found another; take the exact path",
                         mha_path_name(r->plan.path));
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_weight_info *info = mha_weight_at((mha_weight)w);
        const bool multiplied = info->kind == MHA_WEIGHT_MATRIX || info->kind == MHA_WEIGHT_BIAS ||
                                info->kind == MHA_WEIGHT_ROW;
        const mha_view *view = &r->weight[w];
        if (multiplied && view->rank > 0 && view->dtype != MHA_BF16)
            return mha__fail(error, MHA_UNSUPPORTED, info->name,
                             "expected BF16 for products of BF16, found %s: store the layer in BF16, or take the exact "
                             "path", mha_dtype_name(view->dtype));
    }
    const mha_dtype rows = r->cache             ? mha_cache_keys(r->cache).dtype
                           : r->pages.keys.data ? r->pages.keys.dtype
                                                : MHA_BF16;
    return rows == MHA_BF16 ? MHA_OK
                            : mha__fail(error, MHA_UNSUPPORTED, r->cache ? "cache" : "page keys",
                                        "expected BF16 for products of BF16, found %s", mha_dtype_name(rows));
}
