/* Trials from the whole space of options: drawn from a seed, put in words, made smaller. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "support/any_setting.h"
#include "support/trial.h"
#include "support/window.h"
#include "support/words.h"

/* ---------------------------------------------------------------- words */

typedef struct text {
    char *at;
    size_t left;
} text;

__attribute__((format(printf, 2, 3))) static void say(text *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(t->at, t->left, format, arguments);
    va_end(arguments);
    size_t used = n < 0 ? 0 : (size_t)n < t->left ? (size_t)n : t->left - 1;
    t->at += used, t->left -= used;
}

void trial_text(const trial *t, char *words, size_t size)
{
    const mha_config *c = &t->config;
    text w = {words, size};
    say(&w, "seed %llu%s: B %zu T_q %zu T_k %zu", (unsigned long long)t->seed, t->bare ? " bare" : "", t->B, t->T_q,
        t->T_k);
    say(&w, " d_model %zu h %zu h_kv %zu d_k %zu d_v %zu d_q %zu d_kin %zu d_vin %zu d_out %zu", c->d_model, c->n_heads,
        c->kv_heads, c->d_k, c->d_v, c->d_q, c->d_kin, c->d_vin, c->d_out);
    say(&w, " biases %d%d%d%d", c->bias_q, c->bias_k, c->bias_v, c->bias_o);
    say(&w, " weights %s inputs %s %d layout %s gap %zu", mha_dtype_name(c->dtype), mha_dtype_name(t->input_dtype),
        (int)t->inputs, mha__layout_name(t->layout), t->gap);
#define FLAG(condition, ...)                                                                                           \
    if (condition)                                                                                                     \
        say(&w, __VA_ARGS__);
    FLAG(c->bias_kv, " bias_kv")
    FLAG(c->sinks, " sinks")
    FLAG(c->q_norm, " q_norm %d", (int)c->q_norm)
    FLAG(c->k_norm, " k_norm %d", (int)c->k_norm)
    FLAG(c->norm_bias, " norm bias")
    FLAG(c->gate, " gate %d bias %d", (int)c->gate, c->bias_gate)
    FLAG(t->past || t->use_cache, " past %zu", t->past)
    FLAG(t->sequences, " sequences %zu", t->sequences)
    FLAG(c->bias_rows, " bias rows %zu", c->bias_rows)
    FLAG(c->relative_k_rows || c->relative_q_rows, " relative rows %zu, %zu, %zu%s", c->relative_k_rows,
         c->relative_column_rows, c->relative_q_rows, c->relative_by_head ? " by head" : "")
    const size_t used = any_setting_text(&t->semantics, w.at, w.left);
    w.at += used, w.left -= used;
    FLAG(t->offset_each, " offset for each row")
    FLAG(t->lengths, " lengths")
    FLAG(t->alibi, " alibi")
    FLAG(t->semantics.visible.mask.kind, " mask rank %d ones %x short %zu", t->mask_rank, t->mask_ones, t->mask_short)
    FLAG(t->segments || t->listed, " segments %d lists %zu", t->segments, t->listed)
    FLAG(t->pattern_ones, " pattern ones %x", t->pattern_ones)
    FLAG(t->semantics.qkv.rope.kind, " positions %d%d tables %d%s frequencies %d", t->rope_positions,
         t->rope_key_positions, t->rope_tables, t->rope_axes ? " of axes" : "", t->rope_frequencies)
    FLAG(t->dropout > 0, " dropout %g", t->dropout)
    FLAG(t->others, " other arrays")
    FLAG(t->poison, " poison")
    FLAG(t->amplitude > 0, " amplitude %g", t->amplitude)
#undef FLAG
}

/* ---------------------------------------------------------------- drawing */

static size_t pick(uint64_t *state, const size_t *from, size_t n)
{
    return from[word(state) % n];
}

static bool one_in(uint64_t *state, unsigned n)
{
    return word(state) % n == 0;
}

/* A kind of mask; the order keeps recorded draws as they are. */
static mha_mask_kind any_mask_kind(uint64_t *state)
{
    static const mha_mask_kind kinds[] = {MHA_MASK_ADDITIVE, MHA_MASK_KEEPS, MHA_MASK_HIDES};
    return kinds[word(state) % 3];
}

static mha_config draw_config(uint64_t *x)
{
    static const size_t heads[] = {1, 1, 2, 3, 4, 6}, widths[] = {1, 2, 3, 4, 5, 8, 16, 17},
                        inputs[] = {1, 3, 8, 16, 17, 24};
    mha_config c = {.n_heads = pick(x, heads, 6), .d_k = pick(x, widths, 8), .d_v = pick(x, widths, 8)};
    c.kv_heads = c.n_heads;
    if (one_in(x, 2))
        for (c.kv_heads = 1 + word(x) % c.n_heads; c.n_heads % c.kv_heads; c.kv_heads--)
            ;
    c.d_model = pick(x, inputs, 6);
    if (one_in(x, 3))
        c.d_q = pick(x, inputs, 6), c.d_kin = pick(x, inputs, 6), c.d_vin = pick(x, inputs, 6),
        c.d_out = pick(x, inputs, 6);
    c.bias_q = one_in(x, 2), c.bias_k = one_in(x, 2), c.bias_v = one_in(x, 2), c.bias_o = one_in(x, 2);
    c.bias_kv = one_in(x, 6), c.sinks = one_in(x, 6);
    c.q_norm = one_in(x, 5) ? (mha_norm)(1 + word(x) % 2) : MHA_NORM_NONE;
    c.k_norm = one_in(x, 5) ? (mha_norm)(1 + word(x) % 2) : MHA_NORM_NONE;
    uint64_t other = *x + 3, *z = &other;
    c.q_norm = c.q_norm && one_in(z, 3) ? MHA_NORM_EACH_HEAD : c.q_norm;
    c.k_norm = c.k_norm && one_in(z, 3) ? MHA_NORM_EACH_HEAD : c.k_norm;
    c.norm_bias = (c.q_norm || c.k_norm) && one_in(z, 3);
    c.gate = one_in(z, 5) ? (mha_gate)(1 + word(z) % 2) : MHA_GATE_NONE;
    c.bias_gate = c.gate && one_in(z, 2);
    if (one_in(x, 6))
        c.dtype = (mha_dtype)(word(x) % 4); /* F32, F64, F16, BF16 */
    return c;
}

static mha_semantics draw_semantics(uint64_t *x, const mha_config *c)
{
    static const double scales[] = {0.0, 1.0, -0.3, 0.05, 2.0};
    const bool causal = one_in(x, 3), in_window = one_in(x, 5);
    mha_semantics s = {.visible.causal = causal,
                       .softmax.zero_row = one_in(x, 8),
                       .softmax.softmax_plus_one = one_in(x, 8)};
    if (one_in(x, 5))
        s.softmax.has_scale = true, s.softmax.scale = scales[word(x) % 5];
    if (one_in(x, 5))
        s.softmax.softcap = one_in(x, 2) ? 1.5 : 30;
    if (one_in(x, 4))
        s.place.has_offset = true, s.place.offset = (int64_t)(word(x) % 12) - 4;
    const int64_t left = (int64_t)(word(x) % 6) - 1, right = (int64_t)(word(x) % 6) - 1;
    if (in_window)
        set_window(&s, left, right);
    uint64_t other = *x + 2, *z = &other; /* the numbers after this one stay those that they were */
    s.visible.prefix = s.visible.causal && one_in(z, 4) ? 1 + (int64_t)(word(z) % 9) : 0;
    s.visible.window_keep = one_in(z, 3) ? 1 + (int64_t)(word(z) % 4) : 0;
    s.visible.chunk = one_in(z, 6) ? 1 + (int64_t)(word(z) % 9) : 0;
    if (one_in(x, 4))
        s.visible.key_padding.kind = any_mask_kind(x);
    if (s.visible.key_padding.kind && s.visible.key_padding.kind != MHA_MASK_ADDITIVE && one_in(x, 3))
        s.visible.has_padding_fill = true, s.visible.padding_fill = one_in(x, 2) ? -10000 : -2;
    if (one_in(x, 3))
        s.visible.mask.kind = any_mask_kind(x);
    if (c->d_k >= 2 && one_in(x, 3)) {
        s.qkv.rope.kind = (mha_rope_kind)(1 + word(x) % 2);
        s.qkv.rope.dim = c->d_k % 2 || one_in(x, 2) ? 2 * (1 + word(x) % (c->d_k / 2)) : 0;
        s.qkv.rope.base = one_in(x, 2) ? 0 : 500;
        uint64_t own = *x + 1, *y = &own;
        s.qkv.rope.last = one_in(y, 3);
        s.qkv.rope.attention_factor = one_in(y, 3) ? 1.25 : one_in(y, 6) ? 0.5 : 0;
    }
    s.qkv.norm_eps = one_in(x, 2) ? 0 : 1e-3;
    uint64_t of_rows = *x + 4, *w = &of_rows;
    s.qkv.norm.unweighted = one_in(w, 8);
    if (c->q_norm || c->k_norm || s.qkv.norm.unweighted) {
        s.qkv.norm.kind = one_in(w, 2) ? MHA_NORM_RMS : (mha_norm_kind)(1 + word(w) % 2);
        s.qkv.norm.after_rope = s.qkv.norm.kind != MHA_NORM_LAYER && one_in(w, 3);
        s.qkv.norm.plus_one = (c->q_norm || c->k_norm) && one_in(w, 3);
    }
    if (one_in(w, 5))
        s.qkv.query_scale = (mha_query_scale){.growth = one_in(w, 2) ? 0.1 : 2, .every = 1 + (int64_t)(word(w) % 9),
                                          .first = (int64_t)(word(w) % 3) - 1};
    if (one_in(w, 6))
        s.qkv.clip_qkv = one_in(w, 2) ? 0.3 : 1.5;
    s.softmax.empty_rows = one_in(x, 3) ? MHA_EMPTY_NAN : MHA_EMPTY_ZERO;
    s.softmax.hidden_values = one_in(x, 6) ? MHA_HIDDEN_PROPAGATE : MHA_HIDDEN_IGNORE;
    return s;
}

/* Draws from a state of its own, so that the other numbers of a seed stay those that they were. */
static void draw_pattern(trial *t)
{
    uint64_t state = t->seed * 0x9e3779b97f4a7c15u + 18, *x = &state;
    mha_pattern *p = &t->semantics.visible.pattern;
    if (!one_in(x, 4))
        return;
    t->segments = one_in(x, 2) ? 1 + (int)(word(x) % 3) : 0;
    t->listed = one_in(x, 3) ? 1 + word(x) % 9 : 0;
    t->pattern_ones = one_in(x, 2) ? (unsigned)(word(x) % 256) : 0;
    if (one_in(x, 3))
        p->query_padding.kind = one_in(x, 2) ? MHA_MASK_KEEPS : MHA_MASK_HIDES;
    if (!one_in(x, 3))
        return;
    p->blocks.kind = one_in(x, 2) ? MHA_MASK_KEEPS : MHA_MASK_HIDES;
    p->block_queries = 1 + word(x) % 9, p->block_keys = 1 + word(x) % 9;
}

/* A relative position bias; a grid where all positions are cells of one. */
static void draw_bias(uint64_t seed, trial *t)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 5, *x = &state;
    mha_bias *bias = &t->semantics.added.bias;
    const size_t past = t->use_cache ? t->past : 0, positions = past + (t->T_q > t->T_k ? t->T_q : t->T_k);
    if (!one_in(x, 4))
        return;
    if (t->semantics.place.has_offset || t->offset_each || t->semantics.place.has_key_offset || one_in(x, 2)) {
        static const size_t rows[] = {4, 5, 8, 32}, farthest[] = {0, 8, 40};
        t->config.bias_rows = pick(x, rows, 4);
        *bias = (mha_bias){.rule = MHA_BIAS_RULE_BUCKETS, .one_way = one_in(x, 2)};
        bias->max_distance = t->config.bias_rows < 16 ? pick(x, farthest, 3) : 0;
        return;
    }
    *bias = (mha_bias){.rule = MHA_BIAS_RULE_GRID, .width = 1 + word(x) % 9, .class_token = one_in(x, 2)};
    bias->height = (positions + bias->width - 1) / bias->width;
    t->config.bias_rows = (2 * bias->height - 1) * (2 * bias->width - 1) + (bias->class_token ? 3 : 0);
}

/* Relative terms, with or without a bias. */
static void draw_relative(uint64_t seed, trial *t)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 17, *x = &state;
    mha_relative *relative = &t->semantics.added.relative;
    mha_config *c = &t->config;
    const size_t past = t->use_cache ? t->past : 0, positions = past + (t->T_q > t->T_k ? t->T_q : t->T_k);
    static const size_t rows[] = {1, 2, 5, 9, 64}, buckets[] = {4, 6, 8, 10, 32}, farthest[] = {0, 12, 40};
    static const double scales[] = {0, 0, 1, -0.25};
    if (c->kv_rank || !one_in(x, 4))
        return;
    relative->k_scale = scales[word(x) % 4];
    c->relative_by_head = one_in(x, 2);
    const bool anywhere = t->semantics.place.has_offset || t->offset_each || t->semantics.place.has_key_offset;
    if (!anywhere && one_in(x, 2)) {
        relative->rule = MHA_RELATIVE_GRID, relative->width = 1 + word(x) % 9;
        relative->height = (positions + relative->width - 1) / relative->width;
        c->relative_k_rows = 2 * relative->height - 1, c->relative_column_rows = 2 * relative->width - 1;
        return;
    }
    const bool log_buckets = one_in(x, 2);
    const size_t n = log_buckets ? pick(x, buckets, 5) : pick(x, rows, 5), tables = word(x) % 3;
    relative->rule = log_buckets ? MHA_RELATIVE_LOG_BUCKETS : MHA_RELATIVE_DISTANCE;
    relative->reversed = one_in(x, 3);
    relative->max_distance = log_buckets ? pick(x, farthest, 3) : 0;
    c->relative_k_rows = tables != 1 ? n : 0, c->relative_q_rows = tables != 0 ? n : 0;
    relative->k_scale = tables != 1 ? relative->k_scale : 0;
    relative->q_scale = tables != 0 ? scales[word(x) % 4] : 0;
}

static trial draw_known(uint64_t seed)
{
    static const size_t lengths[] = {1, 1, 2, 3, 5, 7, 9, 16, 17, 33, 65};
    static const mha_layout layouts[] = {MHA_BTE, MHA_TBE, MHA_BHTD, MHA_BTHD};
    uint64_t state = seed * 0x2545f4914f6cdd1du + 1, *x = &state;
    trial t = {.seed = seed, .config = draw_config(x), .bare = one_in(x, 3), .B = 1 + word(x) % 3};
    t.T_q = pick(x, lengths, 11), t.T_k = pick(x, lengths, 11);
    t.inputs = (trial_inputs)(word(x) % 3);
    mha_config *c = &t.config;
    if (t.bare)
        t.inputs = TRIAL_CROSS;
    if (t.inputs == TRIAL_SELF)
        c->d_q = c->d_kin = c->d_vin = 0;
    if (t.inputs == TRIAL_KEY_VALUE)
        c->d_vin = c->d_kin;
    if (t.inputs == TRIAL_SELF)
        t.T_k = t.T_q;
    t.semantics = draw_semantics(x, c);
    if (one_in(x, 5))
        t.past = pick(x, lengths, 11), t.use_cache = true;
    else if (one_in(x, 10))
        t.use_cache = true;
    else if (one_in(x, 5))
        t.sequences = 1 + word(x) % 5, t.B = 1;
    t.layout = layouts[word(x) % (t.bare ? 4 : 2)];
    t.gap = one_in(x, 2) ? 0 : 1 + word(x) % 9;
    t.amplitude = one_in(x, 4) ? 8 : 1;
    t.offset_each = one_in(x, 6), t.lengths = one_in(x, 5), t.alibi = one_in(x, 5);
    t.rope_positions = one_in(x, 3), t.rope_key_positions = one_in(x, 3);
    t.rope_tables = one_in(x, 4) ? 2 + (int)(word(x) % 2) : 0;
    t.rope_frequencies = seed % 3 == 1;
    if (seed % 7 == 2 && t.semantics.qkv.rope.kind && c->d_k >= 4)
        t.rope_tables = 3, t.rope_axes = true, t.T_k = t.T_q;
    t.mask_rank = 1 + (int)(word(x) % 4), t.mask_ones = one_in(x, 2) ? (unsigned)(word(x) % 16) : 0;
    t.mask_short = one_in(x, 4) ? 1 + word(x) % 3 : 0;
    t.poison = t.semantics.softmax.hidden_values == MHA_HIDDEN_IGNORE || one_in(x, 2);
    t.input_dtype = one_in(x, 12) ? (mha_dtype)(1 + word(x) % 3) : MHA_F32;
    t.side = one_in(x, 2) ? GUARD_AFTER : GUARD_BEFORE;
    if (one_in(x, 5) && t.rope_tables != 3) { /* refused with tables by row, and with a cache but no offset */
        t.semantics.place.has_key_offset = true, t.semantics.place.key_offset = (int64_t)(word(x) % 30) - 5;
        t.semantics.place.has_offset |= t.use_cache;
    }
    t.semantics.place.keys_only = one_in(x, 8);
    draw_pattern(&t);
    draw_bias(seed, &t);
    draw_relative(seed, &t);
    if (seed % 11 == 6) { /* nothing of a denominator */
        static const double biases[] = {0, -2, 0.5, -4};
        t.semantics.softmax.normaliser = MHA_SIGMOID, t.semantics.softmax.sigmoid_bias = biases[seed / 11 % 4];
        t.config.sinks = t.semantics.softmax.softmax_plus_one = false;
        t.semantics.softmax.empty_rows = MHA_EMPTY_ZERO;
    }
    return t;
}

/* The rows that draw_known gives some trial: others are drawn only by their kind. */
static const bool *known_rows(void)
{
    enum { MOST_ROWS = 256, SEEDS = 2000 };
    static bool known[MOST_ROWS], looked;
    const mha_setting *row;
    for (uint64_t seed = 1; seed <= SEEDS && !looked; seed++) {
        const trial t = draw_known(seed);
        for (size_t i = 0; (row = mha_setting_at(i)) != NULL && i < MOST_ROWS; i++)
            known[i] |= mha_setting_given(row, &t.semantics);
    }
    looked = true;
    return known;
}

trial trial_draw(uint64_t seed)
{
    trial t = draw_known(seed);
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 28, *x = &state;
    const bool *const known = known_rows();
    const mha_setting *row;
    for (size_t i = 0; (row = mha_setting_at(i)) != NULL; i++)
        if (!any_setting_is_array(row) && !known[i] && one_in(x, 4))
            any_setting_put(row, word(x), &t.semantics);
    any_setting_settle(&t.semantics);
    t.others = one_in(x, 3);
    static const double dropped[] = {0.1, 0.5, 0.9};
    t.dropout = seed % 9 == 4 ? dropped[seed / 9 % 3] : 0;
    return t;
}

/* ---------------------------------------------------------------- shrinking */

/* Without setting number `index`, and what has no effect without it. */
static void drop(size_t index, trial *t)
{
    const mha_setting *const row = mha_setting_at(index);
    if (!mha_setting_given(row, &t->semantics))
        return;
    any_setting_clear(row, &t->semantics);
    any_setting_settle(&t->semantics);
}

/* Defines a way to make a trial simpler. */
#define SIMPLER(name, change)                                                                                          \
    static void name(trial *t) { change; }
SIMPLER(fewer_rows, t->B = 1; t->sequences = 0)
SIMPLER(half_queries, t->T_q = t->T_q > 1 ? t->T_q / 2 : 1; t->T_k = t->inputs == TRIAL_SELF ? t->T_q : t->T_k)
SIMPLER(half_keys, t->T_k = t->inputs == TRIAL_SELF || t->T_k < 2 ? t->T_k : t->T_k / 2)
SIMPLER(no_past, t->past = 0; t->use_cache = false)
SIMPLER(fewer_heads, t->config.n_heads = t->config.kv_heads = 1)
SIMPLER(narrow_k, t->config.d_k = t->semantics.qkv.rope.kind ? 2 : 1; t->semantics.qkv.rope.dim = 0)
SIMPLER(narrow_v, t->config.d_v = 1)
SIMPLER(narrow_in, t->config.d_model = 1; t->config.d_q = t->config.d_kin = t->config.d_vin = t->config.d_out = 0)
SIMPLER(no_biases, t->config.bias_q = t->config.bias_k = t->config.bias_v = t->config.bias_o = false)
SIMPLER(no_bias_kv, t->config.bias_kv = false)
SIMPLER(no_sinks, t->config.sinks = false)
SIMPLER(no_norm, t->config.q_norm = t->config.k_norm = MHA_NORM_NONE; t->config.norm_bias = false;
        t->semantics.qkv.norm = (mha_norm_rule){.kind = MHA_NORM_RMS})
SIMPLER(no_gate, t->config.gate = MHA_GATE_NONE; t->config.bias_gate = false)
SIMPLER(plain_weights, t->config.dtype = MHA_F32)
SIMPLER(plain_inputs, t->input_dtype = MHA_F32)
SIMPLER(no_offsets, t->offset_each = false)
SIMPLER(no_lengths, t->lengths = false)
SIMPLER(no_segments, t->segments = 0)
SIMPLER(no_lists, t->listed = 0)
SIMPLER(no_block_mask,
        t->semantics.visible.pattern = (mha_pattern){.query_padding = t->semantics.visible.pattern.query_padding})
SIMPLER(no_pattern_ones, t->pattern_ones = 0)
SIMPLER(no_alibi, t->alibi = false)
SIMPLER(no_table, t->semantics.added.bias = (mha_bias){0}; t->config.bias_rows = 0)
SIMPLER(no_relative, t->semantics.added.relative = (mha_relative){0};
        t->config.relative_k_rows = t->config.relative_column_rows = t->config.relative_q_rows = 0;
        t->config.relative_by_head = false)
SIMPLER(no_tables, t->rope_tables = 0; t->rope_frequencies = t->rope_axes = false)
SIMPLER(no_positions, t->rope_positions = t->rope_key_positions = false)
SIMPLER(no_dropout, t->dropout = 0)
SIMPLER(no_others, t->others = false)
SIMPLER(no_poison, t->poison = false)
SIMPLER(plain_layout, t->layout = MHA_BTE; t->gap = 0)
SIMPLER(small_numbers, t->amplitude = 0)
#undef SIMPLER

trial trial_shrink(const trial *t, trial_failure fails)
{
    static void (*const ways[])(trial *) = {
        fewer_rows,    half_queries, half_keys,   no_past,       fewer_heads,     narrow_k,      narrow_v,
        narrow_in,     no_biases,    no_bias_kv,  no_sinks,      no_norm,         no_gate,       plain_weights,
        plain_inputs,  no_offsets,   no_lengths,  no_alibi,      no_table,        no_relative,   no_tables,
        no_positions,  no_others,    no_poison,   plain_layout,  small_numbers,   no_segments,   no_lists,
        no_block_mask, no_pattern_ones, no_dropout};
    const size_t n = sizeof ways / sizeof *ways;
    char words[1800];
    trial smallest = *t;
    const bool refused = fails(t, words, sizeof words) && strstr(words, "refused");
    for (bool progress = true; progress;) {
        progress = false;
        for (size_t i = 0; i < n || mha_setting_at(i - n); i++) {
            trial next = smallest;
            i < n ? ways[i](&next) : drop(i - n, &next);
            if (memcmp(&next, &smallest, sizeof next) != 0 && fails(&next, words, sizeof words) &&
                refused == (strstr(words, "refused") != NULL))
                smallest = next, progress = true;
        }
    }
    return smallest;
}
