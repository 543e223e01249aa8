/* The rotation of a case: tables of several axes, and the frequencies that rope_scaling asks for. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "mha/model.h"
#include "mha/positions.h"
#include "verify/case/record.h"

/* The pairing that belongs to the permuted weights: the one that the note names ("rope=half_split"), else the pairing
 * that the recorded weights do not use. */
static mha_rope_kind permuted_rope(const mha_case *c)
{
    const char *note = mha_file_metadata(c->file, "note");
    const mha_rope_kind kind = c->semantics.qkv.rope.kind;
    if (kind == MHA_ROPE_NONE)
        return kind;
    if (note && strstr(note, "rope=half_split"))
        return MHA_ROPE_HALF_SPLIT;
    if (note && strstr(note, "rope=interleaved"))
        return MHA_ROPE_INTERLEAVED;
    return mha__other_pairing(kind);
}

static double base_of(const mha_rope *r)
{
    return r->base > 0 ? r->base : 10000;
}

/* How many frequencies a rotation by several axes has. */
static size_t frequencies_of(const mha_rope_axes *a)
{
    size_t all = 0, most = 0;
    for (size_t i = 0; i < a->axes; i++) {
        all += a->sections[i];
        most = a->sections[i] > most ? a->sections[i] : most;
    }
    return a->kind == MHA_ROPE_AXES_REPEATED ? most : all;
}

/* Checks types and ranks: the rotation of kind rope is not planned before it is checked. */
static mha_status check_views(const mha_case *c, mha_error *error)
{
    const mha_rope *r = &c->semantics.qkv.rope;
    const struct {
        const char *name;
        const mha_view *view;
        int low, high;
        bool counts;
    } rows[] = {{"rope_q_positions", &r->q_positions, 2, 2, true},
                {"rope_cos", &r->cos_table, 2, 3, false},
                {"rope_sin", &r->sin_table, 2, 3, false},
                {"rope_frequencies", &r->frequencies, 1, 1, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const mha_view *v = rows[i].view;
        const bool fits = rows[i].counts ? v->dtype == MHA_I64 : v->dtype == MHA_F32 || v->dtype == MHA_F64;
        if (v->data && (!fits || v->rank < rows[i].low || v->rank > rows[i].high))
            return mha__fail(error, MHA_INVALID, rows[i].name, "expected %s of rank %d to %d, found %s of rank %d",
                             rows[i].counts ? "I64 or I32" : "F32 or F64", rows[i].low, rows[i].high,
                             mha_dtype_name(v->dtype), v->rank);
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- positions on several axes */

static mha_status read_sections(const mha_view *from, size_t pairs, mha_rope_axes *axes, mha_error *error)
{
    size_t sum = 0;
    bool known = from->shape[0] <= MHA_ROPE_MAX_AXES;
    axes->axes = known ? from->shape[0] : 0;
    for (size_t i = 0; i < axes->axes; i++) {
        const double x = mha_view_get(from, &i);
        known = known && x >= 1 && x <= MHA_ROPE_MAX_PAIRS;
        axes->sections[i] = known ? (size_t)x : 0;
        sum += axes->sections[i];
    }
    if (!known || sum != pairs)
        return mha__fail(error, MHA_INVALID, "rope_sections",
                         "expected 1 to %d axes whose sections have the %zu pairs together, found %zu axes with %zu",
                         MHA_ROPE_MAX_AXES, pairs, from->shape[0], sum);
    return MHA_OK;
}

mha_status mha__case_read_origin(mha_case *c, mha_rope_axes_kind kind, mha_error *error)
{
    const mha_rope *r = &c->semantics.qkv.rope;
    const mha_view *sections = &c->tensors[CASE_ROPE_SECTIONS], *positions = &c->tensors[CASE_ROPE_POSITIONS],
                   *frequencies = &c->tensors[CASE_ROPE_AXES_FREQUENCIES];
    const size_t T = c->T_q;
    mha_rope_origin o = {.axes.kind = kind, .positions = *positions, .frequencies = *frequencies};
    if ((positions->data != NULL) != (sections->data != NULL))
        return mha__fail(error, MHA_INVALID, positions->data ? "rope_sections" : "rope_positions",
                         "expected one with %s, found none", positions->data ? "rope_positions" : "rope_sections");
    if (!positions->data)
        return frequencies->data ? mha__fail(error, MHA_INVALID, "rope_axes_frequencies",
                                             "expected rope_positions with it, found none")
                                 : MHA_OK;
    TRY(read_sections(sections, (r->dim ? r->dim : c->d_k) / 2, &o.axes, error));
    const mha_view *p = positions;
    const bool batch = p->rank == 2 || p->shape[1] == c->B || p->shape[1] == 1;
    if (!batch || p->shape[0] != o.axes.axes || p->shape[p->rank - 1] != T || c->T_k != T)
        return mha__fail(error, MHA_INVALID, "rope_positions",
                         "expected (%zu, %zu) or (%zu, %zu, %zu), which queries and new keys share", o.axes.axes, T,
                         o.axes.axes, c->B, T);
    if (r->cos_table.data && r->cos_table.rank != 3)
        return mha__fail(error, MHA_INVALID, "rope_positions", "expected tables by row, found rope_cos of rank %d",
                         r->cos_table.rank);
    const size_t n = frequencies_of(&o.axes);
    if (frequencies->data)
        TRY(mha__expect_shape(error, "rope_axes_frequencies", frequencies, 1, &n));
    c->origin = o;
    return MHA_OK;
}

/* Makes the tables of positions of several axes, (B, T, pairs), unless the file has them. What it calls
 * rope_frequencies are then those of the axes. */
static mha_status build_axes(mha_case *c, mha_error *error)
{
    mha_rope *r = &c->semantics.qkv.rope;
    mha_rope_origin *o = &c->origin;
    const size_t pairs = (r->dim ? r->dim : c->d_k) / 2, n = frequencies_of(&o->axes), T = c->T_q;
    if (o->axes.axes == 0)
        return MHA_OK;
    if (r->frequencies.data) {
        TRY(mha__expect_shape(error, "rope_frequencies", &r->frequencies, 1, &n));
        o->frequencies = c->tensors[CASE_ROPE_AXES_FREQUENCIES] = r->frequencies;
        r->frequencies = (mha_view){0};
    }
    if (r->cos_table.data)
        return MHA_OK;
    double f[MHA_ROPE_MAX_PAIRS] = {0};
    for (size_t j = 0; j < n && j < MHA_ROPE_MAX_PAIRS; j++)
        f[j] = o->frequencies.data ? mha_view_get(&o->frequencies, &j)
                                   : pow(base_of(r), -(double)j / (double)n);
    mha_view positions = o->positions;
    if (positions.rank == 2) { /* of all batch rows */
        const size_t shape[] = {positions.shape[0], 1, positions.shape[1]};
        positions = mha_view_of(positions.data, MHA_I64, 3, shape);
    }
    r->cos_table = mha__arena_view(&c->pool, MHA_F64, 3, (const size_t[]){positions.shape[1], T, pairs});
    r->sin_table = mha__arena_view(&c->pool, MHA_F64, 3, r->cos_table.shape);
    if (!r->cos_table.data || !r->sin_table.data)
        return mha__fail(error, MHA_NO_MEMORY, "rope_positions", "no memory for tables");
    return mha_rope_axes_tables(&o->axes, f, &positions, &r->cos_table, &r->sin_table, error);
}

/* Computes the frequencies that rope_scaling asks for. */
static mha_status build_scaling(mha_case *c, int kind, mha_error *error)
{
    mha_rope *r = &c->semantics.qkv.rope;
    const mha_view *factors = &c->tensors[CASE_FACTORS];
    const size_t pairs = c->origin.axes.axes ? frequencies_of(&c->origin.axes) : (r->dim ? r->dim : c->d_k) / 2;
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
        return factors->data ? mha__fail(error, MHA_INVALID, "rope_factors",
                                         "expected rope_scaling with it, found none")
                             : MHA_OK;
    if (r->frequencies.data || r->cos_table.data)
        return mha__fail(error, MHA_INVALID, "rope_scaling", "expected none with %s",
                         r->frequencies.data ? "rope_frequencies" : "rope_cos");
    if ((factors->data != NULL) != (s.kind == MHA_ROPE_LONGROPE))
        return mha__fail(error, MHA_INVALID, "rope_factors", "expected rope_scaling longrope with it, found another");
    if (factors->data) {
        TRY(mha__expect_shape(error, "rope_factors", factors, 1, &pairs));
        s.pairs = pairs;
        for (size_t i = 0; i < pairs && i < MHA_ROPE_MAX_PAIRS; i++)
            s.short_factors[i] = s.long_factors[i] = mha_view_get(factors, &i);
    }
    r->frequencies = mha__arena_view(&c->pool, MHA_F64, 1, &pairs);
    if (!r->frequencies.data)
        return mha__fail(error, MHA_NO_MEMORY, "rope_scaling", "no memory");
    TRY(mha_rope_frequencies(&s, 2 * pairs, base_of(r), (size_t)length, r->frequencies.data, &attention_factor,
                             error));
    r->attention_factor = r->attention_factor != 0 ? r->attention_factor : attention_factor;
    return MHA_OK;
}

mha_status mha__case_build_rope(mha_case *c, mha_error *error)
{
    mha_rope *r = &c->semantics.qkv.rope;
    const bool cos = r->cos_table.data != NULL, sin = r->sin_table.data != NULL;
    char there[MHA__SPELLING_BYTES];
    int scaling, axes;
    TRY(mha__case_choice(c, "rope_scaling", &scaling, error));
    if (cos != sin)
        return mha__fail(error, MHA_INVALID, cos ? "rope_sin" : "rope_cos", "expected one with %s, found none",
                         mha__case_spelling(c, cos ? "rope_cos" : "rope_sin", there));
    if (r->kind == MHA_ROPE_NONE) {
        if (cos || sin || r->frequencies.data || c->tensors[CASE_ROPE_POSITIONS].data ||
            c->tensors[CASE_ROPE_SECTIONS].data || scaling > 0 || c->kind == CASE_ROPE)
            return mha__fail(error, MHA_INVALID, "rope", "expected interleaved or half_split, found none");
        *r = (mha_rope){.kind = MHA_ROPE_NONE};
        return MHA_OK;
    }
    if (r->dim > c->d_k)
        return mha__fail(error, MHA_INVALID, "rope_dim", "expected 0 to %zu, found %zu", c->d_k, r->dim);
    TRY(check_views(c, error));
    TRY(mha__case_choice(c, "rope_axes", &axes, error));
    TRY(mha__case_read_origin(c, (mha_rope_axes_kind)axes, error));
    if (c->origin.axes.axes == 0 && mha_file_metadata(c->file, "rope_axes"))
        return mha__fail(error, MHA_INVALID, "rope_axes", "expected rope_positions with it, found none");
    TRY(build_scaling(c, scaling, error));
    TRY(build_axes(c, error));
    c->permuted_rope = permuted_rope(c);
    return MHA_OK;
}
