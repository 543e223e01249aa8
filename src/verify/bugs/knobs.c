/* Sets the knobs to the values of a case, and compares sets of knobs. */
#include <math.h>
#include <string.h>

#include "attention/visibility/pattern.h"
#include "lab/settings.h"
#include "verify/bugs/knobs.h"

double mha__bug_rounded(double x, int rounding)
{
    if (rounding == ROUND_F16)
        return (double)mha__f16_to_f32(mha__f32_to_f16((float)x));
    if (rounding == ROUND_BF16)
        return (double)mha__bf16_to_f32(mha__f32_to_bf16((float)x));
    if (rounding == ROUND_BF16_CUT) {
        const float narrow = (float)x;
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        return (double)mha__bf16_to_f32((uint16_t)(bits >> 16));
    }
    return x;
}

double mha__bug_shortened(double x, int bits)
{
    uint64_t u;
    const int dropped = 53 - bits;
    if (!isfinite(x) || dropped <= 0)
        return x;
    if (bits == BITS_E4M3 || bits == BITS_E5M2)
        return mha__round_to(bits == BITS_E4M3 ? MHA_F8_E4M3 : MHA_F8_E5M2, x);
    memcpy(&u, &x, sizeof u);
    u += ((uint64_t)1 << (dropped - 1)) - 1 + (u >> dropped & 1);
    u = u >> dropped << dropped;
    memcpy(&x, &u, sizeof u);
    return x;
}

bool mha__case_has_pattern(const mha_case *c)
{
    const mha__visibility v = mha__visibility_of(&c->semantics, 0);
    return v.pattern || v.pads;
}

/* Whether nothing but queries and as many keys has an axis for time. */
static bool is_time_free(const mha_case *c)
{
    const mha_semantics *s = &c->semantics;
    return c->kind != CASE_ROPE && s->place.n_sequences == 0 && c->T_q == c->T_k && c->P == 0 &&
           !s->visible.kv_lengths && !s->place.has_key_offset && !s->visible.mask.kind &&
           !s->visible.key_padding.kind && !mha__case_has_pattern(c) && !s->qkv.rope.q_positions.data &&
           !s->qkv.rope.cos_table.data;
}

bool mha__case_exchanges(const mha_case *c)
{
    return is_time_free(c) && !c->semantics.place.position_offset && c->T_q * c->B > 1;
}

bool mha__case_turns(const mha_case *c)
{
    const mha_semantics *s = &c->semantics;
    bool weighted = false;
    for (mha_weight w = 0; w < MHA_WEIGHT_COUNT; w++)
        weighted |= c->weights[CASE_RECORDED][w].data != NULL;
    return is_time_free(c) && c->kind == CASE_SDPA && !weighted && !s->added.alibi_slopes && !s->softmax.zero_row &&
           !s->qkv.rope.frequencies.data && !s->qkv.norm.unweighted && c->T_q * c->H > 1;
}

/* Fills in the defaults of the numbers that bugs change or measure themselves by. */
static void fill_in(const mha_case *c, mha_semantics *s)
{
    s->softmax.scale = s->softmax.has_scale || s->softmax.scale != 0 ? s->softmax.scale : 1 / sqrt((double)c->d_k);
    s->qkv.norm_eps = s->qkv.norm_eps > 0 ? s->qkv.norm_eps : 1e-6;
    s->qkv.rope.dim = s->qkv.rope.dim ? s->qkv.rope.dim : c->d_k;
    s->qkv.rope.base = s->qkv.rope.base > 0 ? s->qkv.rope.base : 10000;
    s->qkv.rope.attention_factor = s->qkv.rope.attention_factor > 0 ? s->qkv.rope.attention_factor : 1;
    s->visible.has_padding_fill |= s->visible.padding_fill != 0;
}

mha__knobs mha__knobs_of(const mha_case *c)
{
    mha__knobs k = {
        .source = {0, 1, 2},
        .bias_q_times = 1,
        .rope_divisor = 1,
        .mask_sign = 1,
        .alibi_sign = c->semantics.added.alibi_slopes ? 1 : 0,
        .use_cache = 1,
        .position_bias_times = 1,
        .past_times = 1,
        .weights_times = 1,
        .use_sinks = 1,
        .parts = 1,
        .bias_row = c->weights[CASE_RECORDED][MHA_BIAS_K].data != NULL,
        .bias_o_times = 1,
        .output_times = 1,
        .s = c->semantics,
    };
    fill_in(c, &k.s);
    return k;
}

/* ---------------------------------------------------------------- comparing */

#define SAME(type, name) equal &= a->name == b->name;

/* Compares field by field, because padding between the fields of a struct need not be equal. */
bool mha__knobs_make_rows_alike(const mha__knobs *a, const mha__knobs *b)
{
    bool equal = memcmp(a->source, b->source, sizeof a->source) == 0 &&
                 memcmp(a->transposed, b->transposed, sizeof a->transposed) == 0 &&
                 memcmp(a->no_bias, b->no_bias, sizeof a->no_bias) == 0;
    ROW_KNOB_LIST(SAME)
    return equal && mha__settings_same(MHA_SETTINGS_QKV, &a->s, &b->s);
}

bool mha__knobs_equal(const mha__knobs *a, const mha__knobs *b)
{
    bool equal = true;
    if (memcmp(a, b, sizeof *a) == 0) /* NOLINT: most are; others are compared field by field */
        return true;
    SCORE_KNOB_LIST(SAME)
    OUTPUT_KNOB_LIST(SAME)
    return equal && mha__knobs_make_rows_alike(a, b) && mha__settings_same(MHA_SETTINGS_VISIBLE, &a->s, &b->s) &&
           mha__settings_same(MHA_SETTINGS_ADDED, &a->s, &b->s) &&
           mha__settings_same(MHA_SETTINGS_SOFTMAX, &a->s, &b->s);
}

bool mha__knobs_by_head(const mha__knobs *k)
{
    const bool rows = k->split == HEADS_RIGHT && k->packing == PACKING_RIGHT && k->rope_width == 0 &&
                      k->rope_heads == 0 && !k->rope_runs && !k->rope_first_batch &&
                      !(k->quantised && k->quantised_span == SPAN_TENSOR) && !k->norm_first_head &&
                      !k->norm_other_span && !k->moved;
    const bool scores = k->group_k == GROUPS_RIGHT && k->group_v == GROUPS_RIGHT && k->groups == 0 &&
                        k->pages == PAGES_RIGHT && k->axis != AXIS_HEADS && k->alibi_formula == ALIBI_GIVEN &&
                        k->position_bias != POSITION_BIAS_TRANSPOSED && k->position_bias != POSITION_BIAS_HEAD_0 &&
                        k->position_bias != POSITION_BIAS_HEADS_REVERSED && !k->causal_runs && !k->segments_first &&
                        k->relative != RELATIVE_HEAD_0 && !k->sinks && !k->lengths && !k->dropped && !k->scales &&
                        !k->mask_batch && !k->mask_first && !k->weights_averaged && !k->joined && !k->past &&
                        k->joined_page == 0;
    return rows && scores && (k->merge == HEADS_RIGHT || k->merge == HEADS_TURNED) && k->reading == READING_RIGHT &&
           !k->batch_order && !k->merge_order && !k->row_order && !k->heads_averaged && !k->head_times &&
           !k->column_order && !k->unwritten;
}

bool mha__knobs_agree(const mha__knobs *a, const mha__knobs *b)
{
    bool equal = true;
    ROW_KNOB_LIST(SAME)
    SCORE_KNOB_LIST(SAME)
    OUTPUT_KNOB_LIST(SAME)
    return equal && mha__settings_same(MHA_SETTINGS_SOFTMAX, &a->s, &b->s);
}

bool mha__knobs_see_alike(const mha__knobs *a, const mha__knobs *b)
{
    bool equal = true;
    VISIBLE_KNOB_LIST(SAME)
    return equal && mha__settings_same(MHA_SETTINGS_VISIBLE, &a->s, &b->s) &&
           mha__settings_same(MHA_SETTINGS_ADDED, &a->s, &b->s);
}
