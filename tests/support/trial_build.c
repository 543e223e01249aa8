/* A trial built: its numbers drawn from the seed, its memory guarded. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/any_setting.h"
#include "support/axes.h"
#include "support/trial_parts.h"
#include "support/unit.h"
#include "support/words.h"

/* ---------------------------------------------------------------- numbers and memory */

static uint64_t next(rig *r)
{
    return word(&r->random);
}

static double uniform(rig *r, double low, double high)
{
    return low + (high - low) * (double)(next(r) >> 11) * 0x1p-53;
}

static size_t below(rig *r, size_t n)
{
    return n ? (size_t)(next(r) % n) : 0;
}

static void *input_memory(rig *r, size_t bytes)
{
    void *block = guard_allocate(bytes, r->t.side, 0xFF);
    if (r->n_inputs == sizeof r->inputs / sizeof *r->inputs)
        abort();
    return r->inputs[r->n_inputs++] = block;
}

size_t trial_size_of(mha_dtype dtype)
{
    return dtype == MHA_F64 || dtype == MHA_I64    ? 8
           : dtype == MHA_F32                      ? 4
           : dtype == MHA_F16 || dtype == MHA_BF16 ? 2
                                                   : 1;
}

static mha_view dense(rig *r, mha_dtype dtype, int rank, const size_t *shape)
{
    size_t n = 1;
    mha_view v = {.dtype = dtype, .rank = rank};
    for (int k = rank - 1; k >= 0; k--)
        v.shape[k] = shape[k], v.stride[k] = (ptrdiff_t)n, n *= shape[k];
    v.data = input_memory(r, n * trial_size_of(dtype));
    return v;
}

/* The same with nothing between neighbours, or one element of poison. */
static mha_view spread(rig *r, mha_dtype dtype, int rank, const size_t *shape)
{
    size_t doubled[8] = {0};
    if (rank == 0 || next(r) % 3)
        return dense(r, dtype, rank, shape);
    for (int k = 0; k < rank; k++)
        doubled[k] = shape[k];
    doubled[rank - 1] = 2 * shape[rank - 1];
    mha_view v = dense(r, dtype, rank, doubled);
    v.shape[rank - 1] = shape[rank - 1], v.stride[rank - 1] = 2;
    return v;
}

static void set(const mha_view *v, const size_t *index, double x)
{
    ptrdiff_t at = 0;
    for (int k = 0; k < v->rank; k++)
        at += (ptrdiff_t)index[k] * v->stride[k];
    switch (v->dtype) {
    case MHA_F64: ((double *)v->data)[at] = x; break;
    case MHA_I64: ((int64_t *)v->data)[at] = (int64_t)x; break;
    case MHA_BOOL:
    case MHA_U8: ((uint8_t *)v->data)[at] = x != 0; break;
    case MHA_F16: ((uint16_t *)v->data)[at] = mha__f32_to_f16((float)x); break;
    case MHA_BF16: ((uint16_t *)v->data)[at] = mha__f32_to_bf16((float)x); break;
    default: ((float *)v->data)[at] = (float)x;
    }
}

static bool step(const mha_view *v, size_t *index)
{
    for (int k = v->rank - 1; k >= 0; k--) {
        if (++index[k] < v->shape[k])
            return true;
        index[k] = 0;
    }
    return false;
}

static size_t count(const mha_view *v)
{
    size_t n = 1;
    for (int k = 0; k < v->rank; k++)
        n *= v->shape[k];
    return n;
}

static void fill_uniform(rig *r, const mha_view *v, double low, double high)
{
    size_t index[8] = {0};
    if (count(v))
        do
            set(v, index, uniform(r, low, high));
        while (step(v, index));
}

/* ---------------------------------------------------------------- inputs */

/* (B, T, E), or (B, T, h, d) with bare, in the trial's layout, `gap` elements between neighbouring rows. */
mha_view trial_rows(rig *r, mha_dtype dtype, size_t T, size_t heads, size_t d, void *(*memory)(rig *, size_t))
{
    const trial *t = &r->t;
    size_t B = t->B, E = heads * d, row = E + t->gap, n = B * T * row;
    mha_view v = {.dtype = dtype, .rank = 4, .shape = {B, T, heads, d}, .stride = {0, 0, (ptrdiff_t)d, 1}};
    v.stride[0] = (ptrdiff_t)(T * row), v.stride[1] = (ptrdiff_t)row;
    if (t->layout == MHA_TBE)
        v.stride[0] = (ptrdiff_t)row, v.stride[1] = (ptrdiff_t)(B * row);
    else if (t->layout == MHA_BHTD && t->bare) {
        row = d + t->gap, n = B * T * heads * row;
        v.stride[0] = (ptrdiff_t)(heads * T * row), v.stride[2] = (ptrdiff_t)(T * row), v.stride[1] = (ptrdiff_t)row;
    }
    if (n)
        n -= t->gap; /* the last row ends where the memory ends */
    v.data = memory(r, n * trial_size_of(dtype));
    if (!t->bare)
        v.rank = 3, v.shape[2] = E, v.stride[2] = 1;
    return v;
}

static mha_view weight_view(rig *r, size_t n, double low, double high)
{
    mha_view v = dense(r, next(r) % 2 ? MHA_F32 : MHA_F64, 1, &n);
    size_t index[8] = {0};
    for (; index[0] < n; index[0]++)
        set(&v, index, (double)(float)uniform(r, low, high));
    return v;
}

/* The weight or bias of a norm, drawn around `centre`; no data where the layer has none. */
static mha_view norm_view(rig *r, mha_weight weight, double centre)
{
    size_t shape[2];
    const int rank = mha_config_weight_shape(&r->t.config, weight, shape, NULL);
    if (rank == 0)
        return (mha_view){0};
    const mha_view flat = weight_view(r, rank == 2 ? shape[0] * shape[1] : shape[0], centre - 0.5, centre + 0.5);
    return mha_view_of(flat.data, flat.dtype, rank, shape);
}

/* The table of a relative position bias; other numbers are those that they are without one. */
static void fill_table(rig *r, const mha_view *table)
{
    const uint64_t random = r->random;
    r->random ^= 0x5851f42d4c957f2du;
    fill_uniform(r, table, -2, 2);
    r->random = random;
}

static void build_weights(rig *r)
{
    const mha_config *c = &r->t.config;
    mha_view *w = r->weights;
    r->call.weights = w, r->call.weight_count = MHA_WEIGHT_COUNT;
    if (c->bias_q)
        w[MHA_B_Q] = weight_view(r, c->n_heads * c->d_k, -0.5, 0.5);
    if (c->bias_k)
        w[MHA_B_K] = weight_view(r, c->kv_heads * c->d_k, -0.5, 0.5);
    if (c->bias_v)
        w[MHA_B_V] = weight_view(r, c->kv_heads * c->d_v, -0.5, 0.5);
    if (c->bias_kv) {
        w[MHA_BIAS_K] = weight_view(r, c->kv_heads * c->d_k, -1, 1);
        w[MHA_BIAS_V] = weight_view(r, c->kv_heads * c->d_v, -1, 1);
    }
    if (c->bias_rows) {
        w[MHA_BIAS_TABLE] = dense(r, r->t.seed % 2 ? MHA_F32 : MHA_F64, 2, (size_t[]){c->bias_rows, c->n_heads});
        fill_table(r, &w[MHA_BIAS_TABLE]);
    }
    const size_t rows[] = {c->relative_k_rows, c->relative_column_rows, c->relative_q_rows};
    for (int i = 0; i < 3; i++) {
        mha_view *table = &w[MHA_RELATIVE_K + i];
        if (rows[i])
            *table = dense(r, r->t.seed % 3 ? MHA_F32 : MHA_F64, 2,
                           (size_t[]){rows[i], c->relative_by_head ? c->n_heads * c->d_k : c->d_k});
        if (rows[i])
            fill_uniform(r, table, -1, 1);
    }
    if (c->sinks)
        w[MHA_SINKS] = weight_view(r, c->n_heads, -2, 2);
    w[MHA_Q_NORM] = norm_view(r, MHA_Q_NORM, 1);
    w[MHA_K_NORM] = norm_view(r, MHA_K_NORM, 1);
    w[MHA_Q_NORM_BIAS] = norm_view(r, MHA_Q_NORM_BIAS, 0);
    w[MHA_K_NORM_BIAS] = norm_view(r, MHA_K_NORM_BIAS, 0);
}

static void build_layer(rig *r)
{
    const mha_allocator allocator = guard_allocator(r->t.side);
    mha_error error;
    if (mha_params_create(&allocator, &r->table, NULL) != MHA_OK)
        abort();
    assert_ok(mha_layer_create(&r->t.config, r->table, "", &r->layer, &error), error);
    r->t.config = *mha_layer_config(r->layer);
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        mha_tensor *tensor = mha_layer_weight(r->layer, (mha_weight)w);
        if (!tensor)
            continue;
        r->weights[w] = mha_tensor_view(tensor);
        const mha_view *v = &r->weights[w];
        double bound = v->rank == 2 ? sqrt(6.0 / (double)(v->shape[0] + v->shape[1])) : 0.5;
        bool norm = w == MHA_Q_NORM || w == MHA_K_NORM;
        if (w == MHA_BIAS_TABLE)
            fill_table(r, v);
        else
            fill_uniform(r, v, norm ? 0.5 : -bound, norm ? 1.5 : bound);
    }
    if (r->t.seed % 2 == 0) /* the fast path projects by packed weights, or by BLAS */
        assert_ok(mha_layer_pack(r->layer, &error), error);
}

static void build_inputs(rig *r)
{
    const trial *t = &r->t;
    const mha_config *c = &t->config;
    double a = t->amplitude > 0 ? t->amplitude : 1;
    mha_call *call = &r->call;
    bool bare = t->bare;
    call->query = trial_rows(r, t->input_dtype, t->T_q, bare ? c->n_heads : 1, bare ? c->d_k : c->d_q, input_memory);
    fill_uniform(r, &call->query, -a, a);
    if (t->inputs == TRIAL_SELF && !bare)
        return;
    call->key = trial_rows(r, t->input_dtype, t->T_k, bare ? c->kv_heads : 1, bare ? c->d_k : c->d_kin, input_memory);
    fill_uniform(r, &call->key, -a, a);
    if (t->inputs == TRIAL_KEY_VALUE && !bare)
        return;
    call->value = trial_rows(r, t->input_dtype, t->T_k, bare ? c->kv_heads : 1, bare ? c->d_v : c->d_vin, input_memory);
    fill_uniform(r, &call->value, -1, 1);
}

/* ---------------------------------------------------------------- semantics */

/* Counted from the beginning of the sequence of which the keys are a part. */
static int64_t *lengths_up_to(rig *r, size_t n, const int64_t *most)
{
    int64_t *x = input_memory(r, n * sizeof *x);
    for (size_t b = 0; b < n; b++) {
        x[b] = below(r, 4) == 0 ? most[b] : (int64_t)below(r, (size_t)most[b] + 1);
        x[b] += r->call.semantics.place.key_offset;
        x[b] = x[b] < 0 ? 0 : x[b];
    }
    return x;
}

/* n + 1 offsets from 0 to total; empty sequences occur. */
static int64_t *cuts(rig *r, size_t n, size_t total)
{
    int64_t *x = input_memory(r, (n + 1) * sizeof *x);
    for (size_t b = 0; b < n; b++)
        x[b] = b ? (int64_t)below(r, total + 1) : 0;
    x[n] = (int64_t)total;
    for (size_t i = 1; i < n; i++)
        for (size_t j = i; j > 1 && x[j - 1] > x[j]; j--) {
            int64_t swap = x[j];
            x[j] = x[j - 1], x[j - 1] = swap;
        }
    return x;
}

static void build_mask(rig *r, mha_mask *mask, int rank, const size_t *shape)
{
    mha_dtype dtype = mask->kind == MHA_MASK_ADDITIVE ? (next(r) % 2 ? MHA_F32 : MHA_F64)
                      : next(r) % 2                   ? MHA_BOOL
                                                      : MHA_U8;
    mask->values = spread(r, dtype, rank, shape);
    size_t index[8] = {0};
    if (count(&mask->values) == 0)
        return;
    do {
        bool hide = below(r, 3) == 0;
        double x = mask->kind == MHA_MASK_ADDITIVE ? (hide ? -(double)INFINITY : (double)(float)uniform(r, -3, 3))
                   : mask->kind == MHA_MASK_HIDES  ? hide
                                                   : !hide;
        set(&mask->values, index, x);
    } while (step(&mask->values, index));
}

/* Tables by row of positions of one to three axes. */
static void build_axes(rig *r, size_t B, size_t T, size_t pairs)
{
    mha_rope *rope = &r->call.semantics.qkv.rope;
    mha_rope_origin *o = &r->past.rope_origin;
    const size_t most = pairs < 3 ? pairs : 3;
    o->axes.axes = 1 + below(r, most);
    for (size_t left = pairs, a = 0; a < o->axes.axes; left -= o->axes.sections[a++])
        o->axes.sections[a] = a + 1 == o->axes.axes ? left : 1 + below(r, left - (o->axes.axes - 1 - a));
    o->axes.kind = (mha_rope_axes_kind)below(r, 4);
    for (size_t a = 0; a < o->axes.axes; a++)
        if (o->axes.kind == MHA_ROPE_AXES_DEALT && o->axes.sections[a] != o->axes.sections[0])
            o->axes.kind = MHA_ROPE_AXES_BLOCKS;
    o->positions = dense(r, MHA_I64, 3, (size_t[]){o->axes.axes, B, T});
    fill_uniform(r, &o->positions, 0, 30);
    if (r->t.rope_frequencies) {
        size_t largest = 0;
        for (size_t a = 0; a < o->axes.axes; a++)
            largest = o->axes.sections[a] > largest ? o->axes.sections[a] : largest;
        o->frequencies = dense(r, MHA_F64, 1, (size_t[]){o->axes.kind == MHA_ROPE_AXES_REPEATED ? largest : pairs});
        fill_uniform(r, &o->frequencies, 0, 1);
    }
    rope->cos_table = dense(r, MHA_F64, 3, (size_t[]){B, T, pairs});
    rope->sin_table = dense(r, MHA_F64, 3, (size_t[]){B, T, pairs});
    axes_fill(&o->axes, o->frequencies.data, rope->base > 0 ? rope->base : 10000, o->positions.data, B, T,
              rope->cos_table.data, rope->sin_table.data);
}

static void build_rope(rig *r, size_t sequences, size_t T_q, size_t T_k)
{
    mha_rope *rope = &r->call.semantics.qkv.rope;
    const trial *t = &r->t;
    size_t dim = rope->dim ? rope->dim : t->config.d_k, far = 64;
    if (rope->kind == MHA_ROPE_NONE)
        return;
    size_t B = sequences ? 1 : t->B;
    const size_t of_q[2] = {next(r) % 3 ? B : 1, T_q}, of_k[2] = {next(r) % 3 ? B : 1, T_k};
    bool by_position = t->rope_tables == 2, part = r->call.semantics.place.has_key_offset;
    if (t->rope_positions || by_position) { /* tables are looked up in: every row needs a place in them */
        rope->q_positions = spread(r, MHA_I64, 2, of_q);
        fill_uniform(r, &rope->q_positions, 0, (double)far);
    }
    if (t->rope_key_positions || (by_position && (T_q != T_k || part))) {
        rope->k_positions = spread(r, MHA_I64, 2, of_k);
        fill_uniform(r, &rope->k_positions, 0, (double)far);
    }
    const bool tables = t->rope_tables && !(t->rope_tables == 3 && T_q != T_k);
    if (t->rope_frequencies && !tables) {
        rope->frequencies = spread(r, next(r) % 2 ? MHA_F32 : MHA_F64, 1, (size_t[]){dim / 2});
        fill_uniform(r, &rope->frequencies, -1, 1);
    }
    if (!tables)
        return;
    if (t->rope_axes && t->rope_tables == 3) {
        build_axes(r, B, T_q, dim / 2);
        return;
    }
    const size_t by[2] = {far, dim / 2}, row[3] = {next(r) % 3 ? B : 1, T_q, dim / 2};
    mha_dtype dtype = next(r) % 2 ? MHA_F32 : MHA_F64;
    rope->cos_table = spread(r, dtype, t->rope_tables, t->rope_tables == 2 ? by : row);
    rope->sin_table = spread(r, dtype, t->rope_tables, t->rope_tables == 2 ? by : row);
    size_t index[8] = {0};
    if (count(&rope->cos_table) == 0)
        return;
    do {
        double a = uniform(r, -4, 4);
        set(&rope->cos_table, index, (double)(float)cos(a));
        set(&rope->sin_table, index, (double)(float)sin(a));
    } while (step(&rope->cos_table, index));
}

/* Numbers from `low` up to `high` in a view whose extents are broadcast where `ones` has a bit, from the right. */
static mha_view numbers(rig *r, int rank, const size_t *full, unsigned ones, int64_t low, int64_t high)
{
    size_t shape[4], index[8] = {0};
    for (int k = 0; k < rank; k++)
        shape[k] = ones >> (rank - 1 - k) & 1 ? 1 : full[k];
    mha_view v = spread(r, MHA_I64, rank, shape);
    if (count(&v))
        do
            set(&v, index, (double)(low + (int64_t)below(r, (size_t)(high - low))));
        while (step(&v, index));
    return v;
}

/* Sorts the numbers of each row. */
static void in_order(const mha_view *v)
{
    for (size_t b = 0; b < v->shape[0]; b++)
        for (size_t i = 1; i < v->shape[1]; i++)
            for (size_t j = i; j > 0; j--) {
                int64_t *x = (int64_t *)v->data + (ptrdiff_t)b * v->stride[0] + (ptrdiff_t)j * v->stride[1],
                        *y = x - v->stride[1], high = *x > *y ? *x : *y, low = *x > *y ? *y : *x;
                *x = high, *y = low;
            }
}

static void build_truths(rig *r, mha_mask *mask, int rank, const size_t *full, unsigned ones)
{
    size_t shape[4];
    for (int k = 0; k < rank; k++)
        shape[k] = ones >> (rank - 1 - k) & 1 ? 1 : full[k];
    build_mask(r, mask, rank, shape);
}

static void build_pattern(rig *r, size_t B, size_t T_q, size_t S)
{
    const trial *t = &r->t;
    mha_pattern *p = &r->call.semantics.visible.pattern;
    const size_t h = t->config.n_heads, q[2] = {B, T_q}, k[2] = {B, S}, lists[4] = {B, h, T_q, t->listed};
    const unsigned ones = t->pattern_ones;
    if (t->segments) {
        p->q_segments = numbers(r, 2, q, ones & 3, -1, 2);
        const bool same = t->segments == 3 && T_q == S && !r->call.semantics.place.has_key_offset;
        p->k_segments = same ? (mha_view){0} : numbers(r, 2, k, ones >> 1 & 3, -1, 2);
        if (!same && t->segments == 1)
            in_order(&p->k_segments);
    }
    if (t->listed) {
        const int64_t first = r->call.semantics.place.key_offset;
        p->key_lists = numbers(r, 4, lists, ones & 14, first - 2, first + (int64_t)S + 2);
    }
    if (p->query_padding.kind != MHA_MASK_NONE && !p->query_padding.values.data)
        build_truths(r, &p->query_padding, 2, q, ones >> 4 & 3);
    if (p->blocks.kind != MHA_MASK_NONE && !p->blocks.values.data) {
        const size_t m = p->block_queries, n = p->block_keys;
        build_truths(r, &p->blocks, 4, (const size_t[4]){B, h, (T_q + m - 1) / m, (S + n - 1) / n}, ones >> 4);
    }
}

static void *lent_memory(void *rig_of, size_t bytes)
{
    return input_memory(rig_of, bytes);
}

/* Arrays that nothing above makes, by the kinds and shapes of their rows. */
static void build_others(rig *r, const any_sizes *sizes)
{
    static const char *const made[] = {
        "position_offset", "cu_seqlens_q", "cu_seqlens_k", "rope_frequencies", "rope_q_positions", "rope_k_positions",
        "rope_cos", "rope_sin", "kv_lengths", "key_padding", "mask", "q_segments",
        "k_segments", "query_padding", "key_lists", "blocks", "alibi_slopes", "dropout_keep"};
    const mha_setting *row;
    for (size_t i = 0; (row = mha_setting_at(i)) != NULL; i++) {
        bool known = !any_setting_is_array(row);
        for (size_t k = 0; k < sizeof made / sizeof *made; k++)
            known |= strcmp(made[k], row->name) == 0;
        if (!known)
            any_setting_lend(row, sizes, lent_memory, r, &r->call.semantics);
    }
    any_setting_settle(&r->call.semantics);
}

static void build_semantics(rig *r)
{
    const trial *t = &r->t;
    mha_semantics *s = &r->call.semantics;
    size_t n = t->sequences, B = n ? n : t->B, T_q = t->T_q,
           T_k = t->inputs == TRIAL_SELF && !t->bare ? t->T_q : t->T_k;
    size_t longest_q = T_q, S = t->past + T_k;
    int64_t most[TRIAL_MAX_BATCH];
    build_rope(r, n, T_q, T_k);
    if (n) {
        int64_t *q = cuts(r, n, T_q), *k = T_k == T_q && next(r) % 2 ? NULL : cuts(r, n, T_k);
        s->place.n_sequences = n, s->place.cu_seqlens_q = q, s->place.cu_seqlens_k = k;
        const int64_t *keys = k ? k : q;
        longest_q = S = 0;
        for (size_t b = 0; b < n; b++) {
            longest_q = (size_t)(q[b + 1] - q[b]) > longest_q ? (size_t)(q[b + 1] - q[b]) : longest_q;
            S = (size_t)(keys[b + 1] - keys[b]) > S ? (size_t)(keys[b + 1] - keys[b]) : S;
        }
    }
    for (size_t b = 0; b < B; b++) {
        const int64_t *keys = s->place.cu_seqlens_k ? s->place.cu_seqlens_k : s->place.cu_seqlens_q;
        most[b] = n ? keys[b + 1] - keys[b] : (int64_t)S;
    }
    if (t->offset_each) {
        int64_t *offsets = input_memory(r, B * sizeof *offsets);
        for (size_t b = 0; b < B; b++)
            offsets[b] = (int64_t)below(r, S + 4) - 3;
        s->place.position_offset = offsets;
    }
    if (t->lengths)
        s->visible.kv_lengths = lengths_up_to(r, B, most);
    if (t->alibi) {
        double *slopes = input_memory(r, t->config.n_heads * sizeof *slopes);
        for (size_t h = 0; h < t->config.n_heads; h++)
            slopes[h] = uniform(r, 0, 1);
        s->added.alibi_slopes = slopes;
    }
    if (s->visible.mask.kind != MHA_MASK_NONE && !s->visible.mask.values.data) {
        const size_t full[4] = {B, t->config.n_heads, longest_q, S};
        int rank = t->mask_rank ? t->mask_rank : 4;
        size_t shape[4];
        for (int k = 0; k < rank; k++)
            shape[k] = t->mask_ones >> (rank - 1 - k) & 1 ? 1 : full[4 - rank + k];
        if (t->mask_short && shape[rank - 1] >= t->mask_short + 2)
            shape[rank - 1] -= t->mask_short;
        build_mask(r, &s->visible.mask, rank, shape);
    }
    if (s->visible.key_padding.kind != MHA_MASK_NONE && !s->visible.key_padding.values.data) {
        const size_t shape[2] = {next(r) % 4 ? B : 1, S};
        build_mask(r, &s->visible.key_padding, 2, shape);
    }
    build_pattern(r, B, longest_q, S);
    if (t->dropout > 0) {
        const bool whole = !s->place.keys_only;
        mha_mask keep = {MHA_MASK_KEEPS, {0}};
        build_truths(r, &keep, 4, (const size_t[4]){B, t->config.n_heads, longest_q,
                     S + (whole && t->config.bias_kv) + (whole && s->softmax.zero_row)}, t->pattern_ones);
        s->softmax.dropout_p = t->dropout, s->softmax.dropout_keep = keep.values;
    }
    if (t->others)
        build_others(r, &(any_sizes){B, t->config.n_heads, longest_q, T_k, S, n});
}

/* NaN and infinity where lengths or padding hide a new key from everybody. */
static void poison(rig *r)
{
    const mha_semantics *s = &r->call.semantics;
    bool own = r->call.key.data && r->call.value.data;
    for (size_t b = 0; own && !r->t.sequences && b < r->t.B; b++)
        for (size_t j = 0; j < r->t.T_k; j++) {
            const mha_view *v = &s->visible.key_padding.values;
            size_t key = r->t.past + j;
            bool hidden = s->visible.kv_lengths && s->place.key_offset + (int64_t)key >= s->visible.kv_lengths[b];
            if (s->visible.key_padding.kind != MHA_MASK_NONE && !s->visible.has_padding_fill) {
                double x = oracle_get(v, v->shape[0] == 1 ? 0 : b, key, 0, 0);
                hidden |= s->visible.key_padding.kind == MHA_MASK_ADDITIVE
                              ? isinf(x)
                              : (x != 0) == (s->visible.key_padding.kind == MHA_MASK_HIDES);
            }
            size_t index[4] = {b, j, 0, 0};
            if (!hidden)
                continue;
            set(&r->call.key, index, NAN);
            set(&r->call.value, index, next(r) % 2 ? (double)NAN : (double)INFINITY);
        }
}

static void build_cache(rig *r)
{
    const trial *t = &r->t;
    const mha_config *c = &t->config;
    if (!t->past && !t->use_cache)
        return;
    const size_t k[4] = {t->B, c->kv_heads, t->past, c->d_k}, v[4] = {t->B, c->kv_heads, t->past, c->d_v};
    r->past.length = t->past, r->past.keys = spread(r, MHA_F32, 4, k), r->past.values = spread(r, MHA_F32, 4, v);
    fill_uniform(r, &r->past.keys, -1, 1);
    fill_uniform(r, &r->past.values, -1, 1);
}

void trial_build(const trial *t, rig *r)
{
    *r = (rig){.t = *t, .random = t->seed};
    stages_list(&r->call, r->keep);
    if (t->bare) {
        mha_error error;
        assert_ok(mha_config_resolve(&r->t.config, &error), error);
        build_weights(r);
    } else
        build_layer(r);
    r->call.semantics = t->semantics;
    any_setting_settle(&r->call.semantics);
    build_inputs(r);
    build_cache(r);
    build_semantics(r);
    if (t->poison)
        poison(r);
}
