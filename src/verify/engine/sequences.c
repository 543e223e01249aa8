/* Ragged batches: each sequence as a batch of its own; shapes of stages, with their rows padded to the longest one. */
#include <string.h>

#include "attention/call/resolved.h"
#include "verify/engine/case_inputs.h"

/* ---------------------------------------------------------------- sequences */

static const int64_t *starts_of(const mha_semantics *s, bool keys)
{
    return keys && s->place.cu_seqlens_k ? s->place.cu_seqlens_k : s->place.cu_seqlens_q;
}

/* Cuts a view with an entry for each batch row to that of row b; one with an entry for all stays. */
static void cut_view(mha_view *v, int rank, size_t b)
{
    if (v->data && v->rank == rank && v->shape[0] > 1)
        *v = mha_view_slice(v, 0, b, 1);
}

/* Reduces settings with a value for each sequence to those of sequence b. */
static void cut_semantics(mha_semantics *s, size_t b)
{
    mha_pattern *p = &s->visible.pattern;
    s->visible.kv_lengths = s->visible.kv_lengths ? s->visible.kv_lengths + b : NULL;
    s->place.position_offset = s->place.position_offset ? s->place.position_offset + b : NULL;
    cut_view(&s->visible.key_padding.values, 2, b);
    cut_view(&s->visible.mask.values, 4, b);
    cut_view(&p->q_segments, 2, b);
    cut_view(&p->k_segments, 2, b);
    cut_view(&p->query_padding.values, 2, b);
    cut_view(&p->key_lists, 4, b);
    cut_view(&p->blocks.values, 4, b);
    cut_view(&s->softmax.dropout_keep, 4, b);
}

void mha__enter_sequence(mha__program *p, size_t b)
{
    cut_semantics(&p->s, b);
    for (size_t i = 0; i < p->n; i++)
        if (p->m[i].site == AT_LENGTHS && p->m[i].table)
            p->m[i].table += b;
}

/* The rows [from[0], to[0]) of the queries and [from[1], to[1]) of the keys of `all` as a batch of one row. */
static void cut(const mha__inputs *all, const size_t from[2], const size_t to[2], mha_case *c, mha__inputs *part)
{
    *c = *all->c;
    *part = *all;
    part->c = c;
    c->B = 1;
    c->T_q = to[0] - from[0];
    c->T_k = part->S = to[1] - from[1];
    c->semantics.place.n_sequences = 0;
    c->semantics.place.cu_seqlens_q = c->semantics.place.cu_seqlens_k = NULL;
    for (int i = 0; i < 3; i++) {
        part->T[i] = i ? c->T_k : c->T_q;
        part->first[i] = from[i > 0];
        part->x[i] += from[i > 0] * all->x_width[i];
    }
}

bool mha__inputs_split(mha__inputs *w)
{
    const mha_semantics *s = &w->c->semantics;
    const size_t n = s->place.n_sequences;
    if (n == 0)
        return true;
    mha_case *cases = mha__arena_take(&w->pool, (n + 2) * sizeof *cases);
    mha__inputs *parts = mha__arena_take(&w->pool, (n + 1) * sizeof *parts);
    if (!cases || !parts)
        return false;
    mha_case *padded = &cases[n], *joined = &cases[n + 1];
    size_t longest[2] = {0};
    for (size_t b = 0; b < n; b++) {
        size_t from[2], to[2];
        for (int keys = 0; keys < 2; keys++) {
            const int64_t *starts = starts_of(s, keys);
            from[keys] = (size_t)starts[b], to[keys] = (size_t)starts[b + 1];
            longest[keys] = to[keys] - from[keys] > longest[keys] ? to[keys] - from[keys] : longest[keys];
        }
        cut(w, from, to, &cases[b], &parts[b]);
        cut_semantics(&cases[b].semantics, b);
    }
    cut(w, (const size_t[2]){0}, (const size_t[2]){w->c->T_q, w->c->T_k}, joined, &parts[n]);
    *padded = *w->c;
    padded->B = n;
    padded->T_q = w->T[0] = longest[0];
    padded->T_k = w->T[1] = w->T[2] = w->S = longest[1];
    w->c = padded;
    w->sequences = parts;
    w->other = &parts[n];
    return true;
}

bool mha__case_join(const mha_case *c, mha__arena *pool, mha_case *joined)
{
    const mha_semantics *s = &c->semantics;
    const mha_visible *v = &s->visible;
    const int64_t *of_q = starts_of(s, false), *of_k = starts_of(s, true);
    const size_t n = s->place.n_sequences, shape[] = {1, c->T_q};
    const bool can = n > 1 && c->kind != CASE_ROPE && !v->kv_lengths && !v->mask.kind && !v->key_padding.kind &&
                     !mha__has_pattern(c),
               same = n > 1 && memcmp(of_q, of_k, (n + 1) * sizeof *of_q) == 0;
    int64_t *segments = can ? mha__arena_take(pool, (c->T_q + c->T_k + 1) * sizeof *segments) : NULL;
    for (size_t b = 0; segments && b < n; b++) {
        for (int64_t t = of_q[b]; t < of_q[b + 1]; t++)
            segments[t] = (int64_t)b;
        for (int64_t t = of_k[b]; t < of_k[b + 1]; t++)
            segments[c->T_q + (size_t)t] = (int64_t)b;
    }
    *joined = *c;
    joined->semantics.place = (mha_place){.position_offset = s->place.position_offset};
    joined->semantics.visible.pattern.q_segments = mha_view_of(segments, MHA_I64, 2, shape);
    if (segments && !same)
        joined->semantics.visible.pattern.k_segments =
            mha_view_of(segments + c->T_q, MHA_I64, 2, (size_t[]){1, c->T_k});
    return segments;
}

/* ---------------------------------------------------------------- stages */

int mha__run_shape(const mha__inputs *inputs, mha_stage stage, size_t shape[4])
{
    const mha_case *c = inputs->c;
    const mha__stage_sizes sizes = {.B = c->B,
                                    .T_q = c->T_q,
                                    .T_k = c->T_k,
                                    .S = inputs->S,
                                    .S_all = inputs->S + mha__rows_beyond(c),
                                    .h = c->H,
                                    .h_kv = c->H_kv,
                                    .d_k = c->d_k,
                                    .d_v = c->d_v,
                                    .d_out = c->kind == CASE_ROPE ? c->H * c->d_k : c->E_out,
                                    .q_rank = c->q_rank,
                                    .kv_rank = c->kv_rank,
                                    .d_rope = c->d_rope};
    const bool of_form = stage <= MHA_STAGE_K_ROT || stage == MHA_STAGE_PRESENT_KEY || stage == MHA_STAGE_PRESENT_VALUE;
    if (c->absorbed && of_form) /* bugs compute the stored form */
        return 0;
    return stage == MHA_STAGE_GATED && !inputs->gates ? 0 : mha__stage_extents(stage, &sizes, shape);
}

bool mha__stage_by_query(const mha_case *c, mha_stage stage)
{
    return mha__sample_axis(stage) >= 0 && !(stage == MHA_STAGE_OUTPUT && c->kind == CASE_ROPE);
}

/* True if a recorded stage has the rows of all sequences without padding; *keys: they are rows of keys. */
static bool is_packed(mha_stage stage, bool *keys)
{
    *keys = mha__stage_axis(stage, "T_k") == 1;
    return *keys || (mha__stage_axis(stage, "T_q") == 1 && stage != MHA_STAGE_WEIGHTS_MEAN);
}

/* Returns the number of rows of sequence b; *first: its first row. */
static size_t rows_of(const mha__inputs *w, bool keys, size_t b, size_t *first)
{
    const mha__inputs *own = &w->sequences[b];
    *first = own->first[keys];
    return own->T[keys];
}

void mha__stage_spread(const mha__inputs *inputs, mha_stage stage, size_t elements, const double *recorded,
                       double *padded)
{
    size_t shape[4] = {0}, first;
    bool keys;
    (void)mha__run_shape(inputs, stage, shape);
    if (!inputs->sequences || !is_packed(stage, &keys)) {
        memcpy(padded, recorded, elements * sizeof *padded);
        return;
    }
    for (size_t b = 0; b < shape[0]; b++, padded += shape[1] * shape[2]) {
        const size_t n = rows_of(inputs, keys, b, &first) * shape[2];
        memcpy(padded, recorded + first * shape[2], n * sizeof *padded);
        memset(padded + n, 0, (shape[1] * shape[2] - n) * sizeof *padded);
    }
}

void mha__stage_pack(const mha__inputs *inputs, mha_stage stage, double *values, size_t shape[4])
{
    size_t first, total = 0;
    bool keys;
    if (!inputs->sequences || !is_packed(stage, &keys))
        return;
    for (size_t b = 0; b < shape[0]; b++) {
        const size_t n = rows_of(inputs, keys, b, &first);
        memmove(values + first * shape[2], values + b * shape[1] * shape[2], n * shape[2] * sizeof *values);
        total += n;
    }
    shape[0] = 1, shape[1] = total;
}

void mha__stage_place(const mha__inputs *inputs, mha_stage stage, size_t b, const double *own, double *padded)
{
    size_t from[4] = {0}, to[4] = {0};
    const int rank = mha__run_shape(inputs, stage, to);
    (void)mha__run_shape(&inputs->sequences[b], stage, from);
    mha_view there = mha_view_of(padded, MHA_F64, rank, to), part = mha_view_of(mha__unconst(own), MHA_F64, rank, from);
    memset(padded, 0, mha_view_elements(&there) / to[0] * sizeof *padded);
    memcpy(there.shape, from, sizeof from);
    (void)mha_view_copy(&there, &part, NULL); /* cannot fail: the sequence is no longer than the longest */
}
