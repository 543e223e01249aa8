/* Sets the knobs to the values of a case, and compares sets of knobs. */
#include <math.h>
#include <string.h>

#include "attention/pattern/pattern.h"
#include "verify/variants/knobs.h"

double mha__variant_rounded(double x, int rounding)
{
    if (rounding == ROUND_F16)
        return (double)mha_f16_to_f32(mha_f32_to_f16((float)x));
    if (rounding == ROUND_BF16)
        return (double)mha_bf16_to_f32(mha_f32_to_bf16((float)x));
    if (rounding == ROUND_BF16_CUT) {
        const float narrow = (float)x;
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        return (double)mha_bf16_to_f32((uint16_t)(bits >> 16));
    }
    return x;
}

bool mha__case_has_pattern(const mha_case *c)
{
    const mha_pattern *p = &c->semantics.visible.pattern;
    return mha__pattern_hides_keys(p) || p->query_padding.kind != MHA_MASK_NONE;
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

mha__knobs mha__knobs_of(const mha_case *c)
{
    const mha_semantics *s = &c->semantics;
    return (mha__knobs){
        .rows = {.source = {0, 1, 2},
                 .bias_q_times = 1,
                 .norm_eps = s->qkv.norm_eps > 0 ? s->qkv.norm_eps : 1e-6,
                 .norm_kind = (int)s->qkv.norm.kind,
                 .norm_after_rope = s->qkv.norm.after_rope,
                 .norm_plus_one = s->qkv.norm.plus_one,
                 .norm_lacking = s->qkv.norm.unweighted,
                 .clip = s->qkv.clip_qkv,
                 .scale_growth = s->qkv.query_scale.growth,
                 .scale_first = s->qkv.query_scale.first,
                 .rope = (int)s->qkv.rope.kind,
                 .rope_dim = (int)(s->qkv.rope.dim ? s->qkv.rope.dim : c->d_k),
                 .rope_last = s->qkv.rope.last,
                 .rope_base = s->qkv.rope.base > 0 ? s->qkv.rope.base : 10000,
                 .rope_divisor = 1,
                 .rope_times = s->qkv.rope.attention_factor > 0 ? s->qkv.rope.attention_factor : 1},
        .scale = s->softmax.has_scale || s->softmax.scale != 0 ? s->softmax.scale : 1 / sqrt((double)c->d_k),
        .softcap = s->softmax.softcap,
        .causal = s->visible.causal,
        .prefix = s->visible.prefix,
        .chunk = s->visible.chunk,
        .window_keep = s->visible.window_keep,
        .window = s->visible.window,
        .window_left = s->visible.window_left,
        .window_right = s->visible.window_right,
        .use_lengths = s->visible.kv_lengths != NULL,
        .mask_kind = (int)s->visible.mask.kind,
        .padding_kind = (int)s->visible.key_padding.kind,
        .use_padding_fill = s->visible.has_padding_fill || s->visible.padding_fill != 0,
        .mask_sign = 1,
        .pads_queries = s->visible.pattern.query_padding.kind != MHA_MASK_NONE,
        .segments = s->visible.pattern.q_segments.data ? SEGMENTS_OWN : SEGMENTS_NONE,
        .lists = s->visible.pattern.key_lists.data ? LISTS_ONCE : LISTS_NONE,
        .blocks_kind = (int)s->visible.pattern.blocks.kind,
        .alibi_sign = s->added.alibi_slopes ? 1 : 0,
        .position_bias = s->added.bias.rule == MHA_BIAS_RULE_NONE ? POSITION_BIAS_NONE : POSITION_BIAS_RIGHT,
        .relative = s->added.relative.rule == MHA_RELATIVE_NONE ? RELATIVE_NONE : RELATIVE_RIGHT,
        .use_cache = 1,
        .weights_times = 1,
        .use_sinks = 1,
        .parts = 1,
        .normaliser = (int)s->softmax.normaliser,
        .sigmoid_bias = s->softmax.sigmoid_bias,
        .plus_one = s->softmax.softmax_plus_one,
        .bias_row = c->weights[CASE_RECORDED][MHA_BIAS_K].data != NULL,
        .zero_row = s->softmax.zero_row,
        .empty_nan = s->softmax.empty_rows == MHA_EMPTY_NAN,
        .propagate = s->softmax.hidden_values == MHA_HIDDEN_PROPAGATE,
        .bias_o_times = 1,
        .output_times = 1,
    };
}

/* Compares field by field, because padding between the fields of a struct need not be equal. */
bool mha__row_knobs_equal(const mha__row_knobs *a, const mha__row_knobs *b)
{
    bool equal = memcmp(a->source, b->source, sizeof a->source) == 0 &&
                 memcmp(a->transposed, b->transposed, sizeof a->transposed) == 0 &&
                 memcmp(a->no_bias, b->no_bias, sizeof a->no_bias) == 0;
#define SAME(type, name) equal = equal && a->name == b->name;
    ROW_KNOB_LIST(SAME)
#undef SAME
    return equal;
}

bool mha__knobs_equal(const mha__knobs *a, const mha__knobs *b)
{
    bool equal = mha__row_knobs_equal(&a->rows, &b->rows);
#define SAME(type, name) equal = equal && a->name == b->name;
    SCORE_KNOB_LIST(SAME)
    OUTPUT_KNOB_LIST(SAME)
#undef SAME
    return equal;
}

bool mha__knobs_see_alike(const mha__knobs *a, const mha__knobs *b)
{
    bool equal = true;
#define SAME(type, name) equal = equal && a->name == b->name;
    SIGHT_KNOB_LIST(SAME)
#undef SAME
    return equal;
}
