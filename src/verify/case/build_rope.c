/* The rotation of a case: pairing, width, positions, tables, and the frequencies that rope_scaling asks for. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/case/record.h"

/* The pairing that belongs to the permuted weights: the one that the note names ("rope=half_split"), else the pairing
 * that the recorded weights do not use. */
static mha_rope_kind permuted_rope(const mha_case *c)
{
    const char *note = mha_file_metadata(c->file, "note");
    const mha_rope_kind kind = c->semantics.rope.kind;
    if (kind == MHA_ROPE_NONE)
        return kind;
    if (note && strstr(note, "rope=half_split"))
        return MHA_ROPE_HALF_SPLIT;
    if (note && strstr(note, "rope=interleaved"))
        return MHA_ROPE_INTERLEAVED;
    return kind == MHA_ROPE_INTERLEAVED ? MHA_ROPE_HALF_SPLIT : MHA_ROPE_INTERLEAVED;
}

/* Computes the frequencies that rope_scaling asks for. */
static mha_status build_scaling(mha_case *c, int kind, mha_error *error)
{
    mha_rope *r = &c->semantics.rope;
    const mha_view *factors = &c->tensors[CASE_FACTORS];
    const size_t pairs = (r->dim ? r->dim : c->d_k) / 2, now = c->P + (c->T_q > c->T_k ? c->T_q : c->T_k);
    mha_rope_scaling s = {.kind = (mha_rope_scaling_kind)kind};
    int64_t length;
    int truncated;
    double attention_factor = 0;
    TRY(mha__case_value(c, "rope_factor", &s.factor, error));
    TRY(mha__case_value(c, "rope_original_length", &s.original_length, error));
    TRY(mha__case_whole(c, "rope_length", 1, (int64_t)now, &length, error));
    TRY(mha__case_value(c, "rope_beta_fast", &s.beta_fast, error));
    TRY(mha__case_value(c, "rope_beta_slow", &s.beta_slow, error));
    TRY(mha__case_choice(c, "rope_truncate", &truncated, error));
    TRY(mha__case_value(c, "rope_low_freq_factor", &s.low_frequency_factor, error));
    TRY(mha__case_value(c, "rope_high_freq_factor", &s.high_frequency_factor, error));
    s.untruncated = !truncated;
    s.attention_factor = r->attention_factor;
    if (s.kind == MHA_ROPE_UNSCALED)
        return factors->data ? mha__fail(error, MHA_INVALID, "rope_factors", "has no effect without rope_scaling")
                             : MHA_OK;
    if (r->frequencies.data || r->cos_table.data)
        return mha__fail(error, MHA_INVALID, "rope_scaling", "expected none beside %s",
                         r->frequencies.data ? "rope_frequencies" : "cos_cache");
    if ((factors->data != NULL) != (s.kind == MHA_ROPE_LONGROPE))
        return mha__fail(error, MHA_INVALID, "rope_factors", "goes with rope_scaling longrope, and with no other");
    if (factors->data) {
        TRY(mha__expect_shape(error, "rope_factors", factors, 1, &pairs));
        s.pairs = pairs;
        for (size_t i = 0; i < pairs && i < MHA_ROPE_MAX_PAIRS; i++)
            s.short_factors[i] = s.long_factors[i] = mha_view_get(factors, &i);
    }
    r->frequencies = mha__arena_view(&c->pool, MHA_F64, 1, &pairs);
    if (!r->frequencies.data)
        return mha__fail(error, MHA_NO_MEMORY, "rope_scaling", "no memory");
    TRY(mha_rope_frequencies(&s, 2 * pairs, r->base, (size_t)length, r->frequencies.data, &attention_factor, error));
    r->attention_factor = r->attention_factor != 0 ? r->attention_factor : attention_factor;
    return MHA_OK;
}

mha_status mha__case_build_rope(mha_case *c, mha_error *error)
{
    static const mha_rope_kind kinds[] = {MHA_ROPE_NONE, MHA_ROPE_INTERLEAVED, MHA_ROPE_HALF_SPLIT};
    mha_rope *r = &c->semantics.rope;
    const mha_view *cos = &c->tensors[CASE_COS], *sin = &c->tensors[CASE_SIN];
    int kind, scaling, last;
    double dim, base, times;
    TRY(mha__case_choice(c, "rope", &kind, error));
    TRY(mha__case_choice(c, "rope_scaling", &scaling, error));
    TRY(mha__case_value(c, "rope_attention_factor", &times, error));
    TRY(mha__case_choice(c, "rope_last", &last, error));
    TRY(mha__case_value(c, "rope_dim", &dim, error));
    TRY(mha__case_value(c, "rope_base", &base, error));
    if ((cos->data != NULL) != (sin->data != NULL))
        return mha__fail(error, MHA_INVALID, cos->data ? "sin_cache" : "cos_cache", "is missing, and %s is there",
                         cos->data ? "cos_cache" : "sin_cache");
    if (kinds[kind] == MHA_ROPE_NONE) {
        if (cos->data || scaling > 0 || c->tensors[CASE_FREQUENCIES].data || c->kind == CASE_ROPE)
            return mha__fail(error, MHA_INVALID, "rope", "expected interleaved or half_split, found none");
        return MHA_OK;
    }
    if (isnan(dim))
        dim = 0; /* all d_k features */
    if (dim < 0 || dim != floor(dim) || dim > (double)c->d_k)
        return mha__fail(error, MHA_INVALID, "rope_dim", "expected 0 to %zu, found %g", c->d_k, dim);
    *r = (mha_rope){.kind = kinds[kind],
                    .dim = (size_t)dim,
                    .base = base,
                    .last = last == 1,
                    .cos_table = *cos,
                    .sin_table = *sin,
                    .frequencies = c->tensors[CASE_FREQUENCIES],
                    .attention_factor = isnan(times) ? 0 : times};
    TRY(build_scaling(c, scaling, error));
    r->q_positions = c->tensors[CASE_POSITIONS];
    if (r->q_positions.data && r->q_positions.rank == 1)
        r->q_positions = mha_view_of(r->q_positions.data, MHA_I64, 2, (const size_t[]){1, r->q_positions.shape[0]});
    c->permuted_rope = permuted_rope(c);
    return MHA_OK;
}
