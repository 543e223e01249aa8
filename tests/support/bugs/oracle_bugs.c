/* Plants a program in the oracle, and changes the settings of its call. */
#include "support/axes.h"
#include "support/bugs/oracle_bugs.h"
#include "mha/tensor.h"

const mha__program *oracle_program;

double *oracle_memory(size_t n)
{
    static double *blocks[256];
    static size_t at;
    double **block = &blocks[at++ % 256];
    free(*block);
    *block = calloc(n + 1, sizeof **block);
    if (!*block)
        abort();
    return *block;
}

oracle_bug oracle_plant(const mha__program *p, const mha_semantics *call)
{
    oracle_bug bug = {.inputs = buggy_inputs,
                      .reads = buggy_weights,
                      .says = buggy_settings,
                      .clips = buggy_clips,
                      .projected = buggy_projections,
                      .split = buggy_heads,
                      .gathered = buggy_keys,
                      .merged = buggy_merging,
                      .gated = buggy_gate,
                      .finished = buggy_output};
    oracle_program = p;
    for (const mha__mutation *m = p->m; m < p->m + p->n; m++) {
        if (m->site == AT_BIAS || (m->site >= AT_NORM && m->site <= AT_LOG_N))
            bug.turned = buggy_turns;
        if (m->site == AT_EXTRA || (m->site >= AT_CAUSAL && m->site <= AT_O))
            bug.attend = buggy_attend;
    }
    if (p->s.qkv.norm_eps == 0)
        bug.turned = buggy_turns; /* 0 of a call is the usual one */
    if (call->softmax.zero_row && !p->s.softmax.zero_row)
        bug.attend = buggy_attend; /* which hides the row of zeros */
    return bug;
}

/* ---------------------------------------------------------------- lengths, slopes, padding, lists */

static void change_lengths(const run *r, mha_semantics *s)
{
    const mha__mutation *taken = OP(LENGTHS, TAKE);
    const double block = STEP(LENGTHS, OVER), first = (double)s->place.key_offset;
    int64_t *lengths = (int64_t *)oracle_memory(r->B);
    for (size_t b = 0; b < r->B && (taken || s->visible.kv_lengths); b++) {
        double n = taken ? taken->table[b] : (double)s->visible.kv_lengths[b] + NUMBER(LENGTHS, PLUS, 0) - first;
        n = taken || block == 0 ? n : block > 0 ? ceil(n / block) * block : floor(n / -block) * -block;
        lengths[b] = (int64_t)(n + first);
    }
    if (taken || s->visible.kv_lengths)
        s->visible.kv_lengths = OP(LENGTHS, FN) ? NULL : lengths;
}

static void change_slopes(const run *r, mha_semantics *s)
{
    double *slopes = oracle_memory(r->h), n = 1;
    const double h = (double)r->h;
    while (2 * n <= h)
        n *= 2;
    for (size_t i = 0; i < r->h; i++) {
        const double at = (double)i;
        slopes[i] = IS(SLOPES, FN, SLOPES_FROM_0)   ? pow(2, -8 * at / h)
                    : IS(SLOPES, FN, PLAIN_SLOPES)  ? pow(2, -8 * (at + 1) / h)
                    : !IS(SLOPES, FN, USUAL_SLOPES) ? (s->added.alibi_slopes ? s->added.alibi_slopes[i] : 0)
                    : at < n                        ? pow(2, -8 * (at + 1) / n)
                                                    : pow(2, -8 * (2 * (at - n) + 1) / (2 * n)); /* every second one */
        slopes[i] *= NUMBER(ALIBI, TIMES, 1);
    }
    s->added.alibi_slopes = slopes;
}

/* Queries that are padding because the keys at their places are. */
static void change_padding(const run *r, mha_semantics *s)
{
    double *pads = oracle_memory(r->B * r->T_q);
    const mha_mask *keys = &s->visible.key_padding;
    for (size_t e = 0; e < r->B * r->T_q; e++) {
        const size_t b = e / r->T_q, i = e % r->T_q;
        const size_t rows = keys->values.shape[0], columns = keys->values.shape[1];
        const bool hides = keys->kind && (oracle_get(&keys->values, rows == 1 ? 0 : b, columns == 1 ? 0 : i, 0, 0) !=
                                          0) == (keys->kind == MHA_MASK_HIDES);
        pads[e] = oracle_pads(r, b, i) ||
                  (IS(QUERY_PADDING, FN, RULE_LENGTHS) ? (double)i >= (double)s->visible.kv_lengths[b] : hides);
    }
    const size_t shape[] = {r->B, r->T_q};
    s->visible.pattern.query_padding = (mha_mask){MHA_MASK_HIDES, mha_view_of(pads, MHA_F64, 2, shape)};
}

/* Lists of all queries and heads, each number changed. */
static void change_lists(const run *r, mha_semantics *s)
{
    const mha_view *v = &s->visible.pattern.key_lists;
    const size_t shape[4] = {r->B, r->h, r->T_q, v->shape[v->rank - 1]};
    double *numbers = oracle_memory(shape[0] * shape[1] * shape[2] * shape[3]), *to = numbers;
    for (size_t b = 0; b < r->B; b++)
        for (size_t row = 0; row < r->h * r->T_q * shape[3]; row++) {
            const size_t index[4] = {b, row / shape[3] / r->T_q, row / shape[3] % r->T_q, row % shape[3]};
            size_t own[4] = {0};
            for (int k = 0; k < v->rank; k++)
                own[k] = v->shape[k] == 1 ? 0 : index[4 - v->rank + k];
            double key = oracle_get(v, own[0], own[1], own[2], own[3]);
            if (key < 0 && OP(LISTS, FN))
                key = (double)s->place.key_offset + (double)r->first +
                      (IS(LISTS, FN, NAMES_LAST) ? (double)keys_of(r, b) + key : 0);
            *to++ = key + NUMBER(LISTS, PLUS, 0);
        }
    s->visible.pattern.key_lists = mha_view_of(numbers, MHA_F64, 4, shape);
}

/* ---------------------------------------------------------------- axes */

/* Makes the tables of positions of several axes anew, wrongly. */
static void misplace_axes(const run *r, mha_semantics *s)
{
    const mha_rope_origin *o = &r->past->rope_origin;
    mha_rope_axes axes = o->axes;
    const size_t n = axes.axes, B = s->qkv.rope.cos_table.shape[0], T = s->qkv.rope.cos_table.shape[1], rows = B * T;
    const bool blocks = axes.kind == MHA_ROPE_AXES_BLOCKS;
    for (size_t a = 0; a < n && IS(SECTIONS, FROM, AXES_REVERSED); a++)
        axes.sections[a] = o->axes.sections[n - 1 - a];
    if (IS(SECTIONS, FROM, AXES_DEALT))
        axes.kind = blocks ? MHA_ROPE_AXES_INTERLEAVED : MHA_ROPE_AXES_BLOCKS;
    if (IS(SECTIONS, FROM, AXES_RESTART))
        axes.kind = blocks ? MHA_ROPE_AXES_REPEATED : MHA_ROPE_AXES_BLOCKS;
    const size_t elements = rows * axes_pairs(&axes);
    double *cosines = oracle_memory(elements), *sines = oracle_memory(elements);
    int64_t *places = (int64_t *)oracle_memory(n * rows);
    for (size_t e = 0; e < n * rows; e++) {
        size_t a = IS(SECTIONS, FROM, AXES_FIRST) ? 0 : e / rows;
        if (IS(SECTIONS, FROM, AXES_SWAPPED) && a + 2 >= n)
            a = a + 1 == n ? n - 2 : n - 1;
        places[e] = IS(SECTIONS, FROM, AXES_TEXT) ? (int64_t)(r->P + e % T)
                                                  : (int64_t)oracle_get(&o->positions, a, e % rows / T, e % T, 0);
    }
    axes_fill(&axes, o->frequencies.data, s->qkv.rope.base > 0 ? s->qkv.rope.base : 10000, places, B, T, cosines,
              sines);
    s->qkv.rope.cos_table.data = cosines, s->qkv.rope.sin_table.data = sines;
}

/* ---------------------------------------------------------------- settings of the program */

void buggy_settings(const run *r, mha_semantics *s)
{
    const mha_semantics *other = &oracle_program->s;
    const mha_view positions[] = {s->qkv.rope.q_positions, s->qkv.rope.k_positions};
    s->qkv = other->qkv, s->visible = other->visible, s->added = other->added, s->softmax = other->softmax;
    s->qkv.rope.q_positions = positions[0], s->qkv.rope.k_positions = positions[1];
    s->softmax.has_scale = true;
    if (OP(PLACE, ZERO))
        s->place.key_offset = 0;
    change_lengths(r, s);
    if (s->added.alibi_slopes || OP(ALIBI, TIMES))
        change_slopes(r, s);
    if (OP(QUERY_PADDING, FN))
        change_padding(r, s);
    if (OP(LISTS, PLUS) || OP(LISTS, FN))
        change_lists(r, s);
    if (OP(SECTIONS, FROM))
        misplace_axes(r, s);
}
