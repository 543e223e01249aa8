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

/* How many frequencies a rotation by several axes has. */
static size_t frequencies_of(const mha_case *c)
{
    const mha_rope_axes *a = &c->semantics.rope.origin.axes;
    size_t all = 0, most = 0;
    for (size_t i = 0; i < a->axes; i++) {
        all += a->sections[i];
        most = a->sections[i] > most ? a->sections[i] : most;
    }
    return a->kind == MHA_ROPE_AXES_REPEATED ? most : all;
}

/* Reads axes and sections; the positions stay what the file has. */
static mha_status read_axes(mha_case *c, mha_error *error)
{
    mha_rope_origin *o = &c->semantics.rope.origin;
    const mha_view *positions = &c->tensors[CASE_AXES], *sections = &c->tensors[CASE_SECTIONS];
    int kind;
    TRY(mha__case_choice(c, "rope_axes", &kind, error));
    if ((positions->data != NULL) != (sections->data != NULL))
        return mha__fail(error, MHA_INVALID, positions->data ? "rope_sections" : "rope_positions",
                         "is missing, and %s is there", positions->data ? "rope_positions" : "rope_sections");
    if (!positions->data)
        return mha_file_metadata(c->file, "rope_axes")
                   ? mha__fail(error, MHA_INVALID, "rope_axes", "has no effect without rope_positions")
                   : MHA_OK;
    if (c->tensors[CASE_POSITIONS].data)
        return mha__fail(error, MHA_INVALID, "position_ids", "expected none beside rope_positions");
    o->axes.kind = (mha_rope_axes_kind)kind; /* the words are in the order of the enum */
    o->positions = *positions;
    o->axes.axes = sections->shape[0];
    for (size_t i = 0; i < o->axes.axes; i++) {
        const double n = mha_view_get(sections, &i);
        if (o->axes.axes > MHA_ROPE_MAX_AXES || n < 1 || n > MHA_ROPE_MAX_PAIRS)
            return mha__fail(error, MHA_INVALID, "rope_sections",
                             "expected 1 to %d axes of 1 to %d pairs, found %g pairs in the first wrong one of %zu",
                             MHA_ROPE_MAX_AXES, MHA_ROPE_MAX_PAIRS, n, o->axes.axes);
        o->axes.sections[i] = (size_t)n;
    }
    return MHA_OK;
}

/* Makes the tables of positions of several axes, (B, T, pairs), unless the file has them. */
static mha_status build_axes(mha_case *c, mha_error *error)
{
    mha_rope *r = &c->semantics.rope;
    mha_rope_origin *o = &r->origin;
    double f[MHA_ROPE_MAX_PAIRS] = {0};
    const size_t pairs = (r->dim ? r->dim : c->d_k) / 2, n = frequencies_of(c), T = c->T_q;
    if (o->axes.axes == 0)
        return MHA_OK;
    o->frequencies = r->frequencies;
    r->frequencies = (mha_view){0};
    if (r->cos_table.data)
        return MHA_OK;
    if (o->frequencies.data)
        TRY(mha__expect_shape(error, "rope_frequencies", &o->frequencies, 1, &n));
    for (size_t j = 0; j < n && j < MHA_ROPE_MAX_PAIRS; j++)
        f[j] = o->frequencies.data ? mha_view_get(&o->frequencies, &j)
                                   : pow(r->base > 0 ? r->base : 10000, -(double)j / (double)n);
    mha_view positions = o->positions;
    if (positions.rank == 2) { /* of all batch rows */
        const size_t shape[] = {positions.shape[0], 1, positions.shape[1]};
        positions = mha_view_of(positions.data, MHA_I64, 3, shape);
    }
    if (positions.shape[2] != T || c->T_k != T || (positions.shape[1] != 1 && positions.shape[1] != c->B))
        return mha__fail(error, MHA_INVALID, "rope_positions",
                         "expected one for each of %zu rows, which queries and new keys share, found (%zu, %zu, %zu)",
                         T, positions.shape[0], positions.shape[1], positions.shape[2]);
    r->cos_table = mha__arena_view(&c->pool, MHA_F64, 3, (const size_t[]){positions.shape[1], T, pairs});
    r->sin_table = mha__arena_view(&c->pool, MHA_F64, 3, r->cos_table.shape);
    if (!r->cos_table.data || !r->sin_table.data)
        return mha__fail(error, MHA_NO_MEMORY, "rope_positions", "no memory for tables");
    return mha_rope_axes_tables(&o->axes, f, &positions, &r->cos_table, &r->sin_table, error);
}

/* Computes the frequencies that rope_scaling asks for. */
static mha_status build_scaling(mha_case *c, int kind, mha_error *error)
{
    mha_rope *r = &c->semantics.rope;
    const mha_view *factors = &c->tensors[CASE_FACTORS];
    const size_t pairs = r->origin.axes.axes ? frequencies_of(c) : (r->dim ? r->dim : c->d_k) / 2;
    const size_t now = c->P + (c->T_q > c->T_k ? c->T_q : c->T_k);
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
        if (cos->data || scaling > 0 || c->tensors[CASE_FREQUENCIES].data || c->tensors[CASE_AXES].data ||
            c->tensors[CASE_SECTIONS].data || c->kind == CASE_ROPE)
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
    TRY(read_axes(c, error));
    TRY(build_scaling(c, scaling, error));
    TRY(build_axes(c, error));
    r->q_positions = c->tensors[CASE_POSITIONS];
    if (r->q_positions.data && r->q_positions.rank == 1)
        r->q_positions = mha_view_of(r->q_positions.data, MHA_I64, 2, (const size_t[]){1, r->q_positions.shape[0]});
    c->permuted_rope = permuted_rope(c);
    return MHA_OK;
}
