/* Properties of attention: identities and invariances, on every path. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/layer/layer.h"
#include "support/snapshot.h"
#include "support/unit.h"
#include "support/stages.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const mha_path paths[] = {MHA_PATH_FAST, MHA_PATH_BLAS, MHA_PATH_EXACT};
/* Every property is checked on every path. */
#define EACH_PATH(p)                                                                                                   \
    for (size_t path_##p = 0, p = 0; path_##p < COUNT(paths) && ((p = (size_t)paths[path_##p]), 1); path_##p++)

static trial medium(uint64_t seed)
{
    return (trial){.seed = seed,
                   .B = 2,
                   .T_q = 19,
                   .T_k = 35,
                   .config = {.d_model = 20,
                              .n_heads = 4,
                              .kv_heads = 2,
                              .d_k = 6,
                              .d_v = 5,
                              .bias_q = true,
                              .bias_k = true,
                              .bias_v = true,
                              .bias_o = true}};
}

static float *at(const mha_view *v, size_t b, size_t t, size_t c)
{
    return (float *)v->data + (ptrdiff_t)b * v->stride[0] + (ptrdiff_t)t * v->stride[1] +
           (ptrdiff_t)c * v->stride[v->rank - 1];
}

/* ---------------------------------------------------------------- the softmax */

static void weights_of_a_query_sum_to_one(void **state)
{
    (void)state;
    EACH_PATH(p)
    {
        trial t = medium(1);
        t.semantics.visible.causal = true;
        t.amplitude = 5;
        rig r;
        trial_build(&t, &r);
        snapshot w = snapshot_run(&r, (mha_path)p, 1, MHA_STAGE_WEIGHTS, true);
        const double *x = w.view.data;
        for (size_t row = 0; x && row < 2 * 4 * 19; row++) {
            double sum = 0;
            for (size_t j = 0; j < 35; j++) {
                assert_true(x[row * 35 + j] >= 0 && x[row * 35 + j] <= 1);
                sum += x[row * 35 + j];
            }
            /* 35 weights, each stored with 2^-24, from a sum of 35 terms: 70 roundings at most */
            assert_true(fabs(sum - 1) <= 70 * 0x1p-24);
        }
        snapshot_release(&w);
        trial_release(&r);
    }
}

static void equal_keys_give_the_mean_of_the_values(void **state)
{
    (void)state;
    EACH_PATH(p)
    {
        trial t = medium(2);
        rig r;
        trial_build(&t, &r);
        for (size_t b = 0; b < t.B; b++)
            for (size_t j = 1; j < t.T_k; j++)
                for (size_t c = 0; c < 20; c++)
                    *at(&r.call.key, b, j, c) = *at(&r.call.key, b, 0, c);
        snapshot heads = snapshot_run(&r, (mha_path)p, 1, MHA_STAGE_HEADS, true),
                 v = snapshot_run(&r, (mha_path)p, 1, MHA_STAGE_V, true);
        const double *x = heads.view.data, *values = v.view.data;
        for (size_t e = 0; x && e < 2 * 19 * 4 * 5; e++) {
            size_t b = e / (19 * 20), head = e % 20 / 5, c = e % 5;
            double mean = 0;
            for (size_t j = 0; j < 35; j++)
                mean += values[(b * 35 + j) * 10 + head / 2 * 5 + c] / 35;
            assert_true(fabs(x[e] - mean) <= heads.slack[e] + 40 * 0x1p-24);
        }
        snapshot_release(&heads);
        snapshot_release(&v);
        trial_release(&r);
    }
}

/* softmax(Q K^T / sqrt(d)) V, as the textbook has it, with nothing projected. */
static void one_head_is_the_textbook_formula(void **state)
{
    (void)state;
    enum { T = 9, S = 14, D = 8 };
    EACH_PATH(p)
    {
        trial t = {.seed = 3, .B = 1, .T_q = T, .T_k = S, .bare = true, .config = {.d_model = D, .n_heads = 1}};
        rig r;
        trial_build(&t, &r);
        snapshot s = snapshot_run(&r, (mha_path)p, 1, MHA_STAGE_OUTPUT, true);
        for (size_t i = 0; s.view.data && i < T; i++) {
            double score[S], sum = 0;
            for (size_t j = 0; j < S; j++) {
                score[j] = 0;
                for (size_t c = 0; c < D; c++)
                    score[j] += (double)*at(&r.call.query, 0, i, c) * (double)*at(&r.call.key, 0, j, c);
                score[j] = exp(score[j] / sqrt(D));
                sum += score[j];
            }
            for (size_t c = 0; c < D; c++) {
                double y = 0;
                for (size_t j = 0; j < S; j++)
                    y += score[j] / sum * (double)*at(&r.call.value, 0, j, c);
                size_t e = i * D + c;
                assert_true(fabs(((double *)s.view.data)[e] - y) <= s.slack[e] + 0x1p-24 * fabs(y));
            }
        }
        snapshot_release(&s);
        trial_release(&r);
    }
}

/* weights = exp(masked - lse), and weights_mean is their mean. */
static void stages_agree_with_each_other(void **state)
{
    (void)state;
    EACH_PATH(p)
    {
        trial t = medium(4);
        t.config.sinks = true, t.semantics.visible.causal = true, t.alibi = true;
        rig r;
        mha_error error;
        trial_build(&t, &r);
        mha_status status = trial_run(&r, (mha_path)p, 1, TRIAL_ALL_STAGES, MHA_F64, &error);
        for (size_t i = 0; status == MHA_OK && i < 19; i++)
            for (size_t j = 0; j < 35; j++) {
                double mean = 0;
                for (size_t h = 0; h < 4; h++) {
                    double w = oracle_get(stage_view(&r.call, MHA_STAGE_WEIGHTS), 1, h, i, j);
                    double s = oracle_get(stage_view(&r.call, MHA_STAGE_MASKED), 1, h, i, j),
                           lse = oracle_get(stage_view(&r.call, MHA_STAGE_LSE), 1, h, i, 0);
                    /* both logits are off by a rounding of their size, at most 40 here; exp makes that relative */
                    assert_true(fabs(w - exp(s - lse)) <= 200 * 0x1p-24 * w);
                    mean += w / 4;
                }
                assert_true(fabs(mean - oracle_get(stage_view(&r.call, MHA_STAGE_WEIGHTS_MEAN), 1, i, j, 0)) <=
                            8 * 0x1p-24 * mean);
            }
        trial_release(&r);
    }
}

/* ---------------------------------------------------------------- order */

static void permuting_keys_and_values_together_changes_nothing(void **state)
{
    (void)state;
    EACH_PATH(p)
    {
        trial t = medium(5);
        rig r;
        trial_build(&t, &r);
        snapshot a = snapshot_run(&r, (mha_path)p, 1, MHA_STAGE_OUTPUT, true);
        for (size_t b = 0; b < t.B; b++)
            for (size_t j = 0; j < t.T_k / 2; j++)
                for (int which = 0; which < 2; which++)
                    for (size_t c = 0; c < 20; c++) {
                        mha_view *v = which ? &r.call.value : &r.call.key;
                        float *x = at(v, b, j, c), *y = at(v, b, t.T_k - 1 - j, c), swap = *x;
                        *x = *y, *y = swap;
                    }
        snapshot z = snapshot_run(&r, (mha_path)p, 1, MHA_STAGE_OUTPUT, false);
        assert_close(&a, &z, "keys and values reversed");
        snapshot_release(&a);
        snapshot_release(&z);
        trial_release(&r);
    }
}

/* Later keys do not exist for a causal query: changing them changes no bit. */
static void later_rows_change_no_bit_of_earlier_ones(void **state)
{
    (void)state;
    EACH_PATH(p)
    for (size_t from = 1; from < 70; from += 17) {
        trial t = {.seed = from,
                   .B = 1,
                   .T_q = 70,
                   .T_k = 70,
                   .inputs = TRIAL_SELF,
                   .config = {.d_model = 24, .n_heads = 3},
                   .semantics = {.visible.causal = true}};
        rig r;
        trial_build(&t, &r);
        snapshot a = snapshot_run(&r, (mha_path)p, 1, MHA_STAGE_OUTPUT, false);
        for (size_t j = from; j < 70; j++)
            for (size_t c = 0; c < 24; c++)
                *at(&r.call.query, 0, j, c) = j % 3 ? 100.0f * (float)c : NAN;
        snapshot z = snapshot_run(&r, (mha_path)p, 1, MHA_STAGE_OUTPUT, false);
        a.view.shape[1] = z.view.shape[1] = from;
        assert_same(&a, &z, "causal prefix");
        snapshot_release(&a);
        snapshot_release(&z);
        trial_release(&r);
    }
}

/* Hidden rows may hold any numbers: the output has the same bits. */
static void hidden_rows_change_no_bit(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++)
        EACH_PATH(p)
        {
            trial t = trial_draw(seed * 104729);
            t.semantics.softmax.hidden_values = MHA_HIDDEN_IGNORE;
            t.inputs = TRIAL_CROSS, t.sequences = 0, t.input_dtype = MHA_F32;
            t.lengths = true, t.dropout = 0;
            rig clean, poisoned;
            t.poison = false;
            trial_build(&t, &clean);
            t.poison = true;
            trial_build(&t, &poisoned);
            snapshot a = snapshot_run(&clean, (mha_path)p, 1, MHA_STAGE_OUTPUT, false);
            snapshot z = snapshot_run(&poisoned, (mha_path)p, 1, MHA_STAGE_OUTPUT, false);
            char what[40];
            snprintf(what, sizeof what, "%s, seed %d", mha_path_name((mha_path)p), (int)seed);
            assert_same(&a, &z, what);
            snapshot_release(&a);
            snapshot_release(&z);
            trial_release(&poisoned);
            trial_release(&clean);
        }
}

/* ---------------------------------------------------------------- batches */

/* A call with one batch row of another call. */
static void isolate(rig *r, size_t b)
{
    mha_view *inputs[] = {&r->call.query, &r->call.key, &r->call.value};
    for (size_t k = 0; k < 3; k++)
        if (inputs[k]->data)
            *inputs[k] = mha_view_slice(inputs[k], 0, b, 1);
    r->t.B = 1;
}

/* Each row of a batch gives by itself the bits that it has among the others, whatever the sizes. */
static void splitting_a_batch_changes_no_bit(void **state)
{
    (void)state;
    static const struct {
        size_t B, T_q, T_k, width, heads;
    } sizes[] = {{4, 1, 1, 8, 2},  {3, 1, 40, 300, 4}, {3, 5, 70, 130, 2}, {2, 70, 70, 24, 3},
                 {5, 2, 9, 64, 1}, {2, 129, 3, 16, 2}, {2, 3, 600, 16, 2}};
    for (size_t k = 0; k < COUNT(sizes); k++)
        EACH_PATH(p)
        {
            trial t = {
                .seed = k,
                .B = sizes[k].B,
                .T_q = sizes[k].T_q,
                .T_k = sizes[k].T_k,
                .config = {.d_model = sizes[k].width, .n_heads = sizes[k].heads, .bias_q = true, .bias_o = true},
                .semantics = {.visible.causal = k % 2, .qkv.rope.kind = k % 3 ? MHA_ROPE_NONE : MHA_ROPE_INTERLEAVED}};
            rig all, one;
            char what[60];
            trial_build(&t, &all);
            snapshot whole = snapshot_run(&all, (mha_path)p, 2, MHA_STAGE_OUTPUT, false);
            for (size_t b = 0; whole.view.data && b < t.B; b++) {
                trial_build(&t, &one);
                isolate(&one, b);
                snapshot alone = snapshot_run(&one, (mha_path)p, 2, MHA_STAGE_OUTPUT, false), row = whole;
                row.view = mha_view_slice(&whole.view, 0, b, 1);
                snprintf(what, sizeof what, "%s, sizes %zu, row %zu", mha_path_name((mha_path)p), k, b);
                assert_same(&row, &alone, what);
                snapshot_release(&alone);
                trial_release(&one);
            }
            snapshot_release(&whole);
            trial_release(&all);
        }
}

/* A ragged batch gives each sequence the bits that it has by itself: single tokens, long ones, empty ones. */
static void a_ragged_batch_is_its_sequences_alone(void **state)
{
    (void)state;
    static int64_t cu[] = {0, 1, 1, 71, 73, 74, 130};
    for (int width = 0; width < 2; width++)
        EACH_PATH(p)
        {
            trial t = {.seed = 6, .B = 1, .T_q = 130, .T_k = 130, .inputs = TRIAL_SELF,
                       .config = {.d_model = width ? 260 : 12, .n_heads = 2, .bias_k = true, .bias_o = true},
                       .semantics = {.visible.causal = true, .qkv.rope.kind = MHA_ROPE_HALF_SPLIT}};
            rig r;
            char what[60];
            trial_build(&t, &r);
            r.call.semantics.place.n_sequences = 6, r.call.semantics.place.cu_seqlens_q = cu;
            mha_view query = r.call.query;
            snapshot whole = snapshot_run(&r, (mha_path)p, 2, MHA_STAGE_OUTPUT, false);
            r.call.semantics.place.n_sequences = 0, r.call.semantics.place.cu_seqlens_q = NULL;
            for (size_t b = 0; whole.view.data && b < 6; b++) {
                size_t from = (size_t)cu[b], n = (size_t)(cu[b + 1] - cu[b]);
                r.call.query = mha_view_slice(&query, 1, from, n);
                r.t.T_q = n;
                snapshot alone = snapshot_run(&r, (mha_path)p, 2, MHA_STAGE_OUTPUT, false), part = whole;
                part.view = mha_view_slice(&whole.view, 1, from, n);
                snprintf(what, sizeof what, "%s, width %zu, sequence %zu", mha_path_name((mha_path)p), t.config.d_model,
                         b);
                assert_same(&part, &alone, what);
                snapshot_release(&alone);
            }
            snapshot_release(&whole);
            trial_release(&r);
        }
}

/* So does one whose sequences have so many keys that some are shared out in segments, and others have just one. */
static void segments_of_a_ragged_batch_are_its_sequences_alone(void **state)
{
    (void)state;
    static int64_t cu_q[] = {0, 2, 3, 3, 4}, cu_k[] = {0, 2190, 2193, 2200, 3300};
    EACH_PATH(p)
    {
        trial t = {.seed = 8,
                   .B = 1,
                   .T_q = 4,
                   .T_k = 3300,
                   .config = {.d_model = 16, .n_heads = 2, .kv_heads = 1, .bias_o = true},
                   .semantics = {.softmax.zero_row = true}};
        rig r;
        char what[60];
        trial_build(&t, &r);
        r.call.semantics.place.n_sequences = 4, r.call.semantics.place.cu_seqlens_q = cu_q,
        r.call.semantics.place.cu_seqlens_k = cu_k;
        const mha_call all = r.call;
        snapshot whole = snapshot_run(&r, (mha_path)p, 2, MHA_STAGE_OUTPUT, false);
        r.call.semantics.place.n_sequences = 0,
        r.call.semantics.place.cu_seqlens_q = r.call.semantics.place.cu_seqlens_k = NULL;
        for (size_t b = 0; b < 4; b++) {
            const size_t from = (size_t)cu_q[b], n = (size_t)cu_q[b + 1] - from, first = (size_t)cu_k[b];
            r.call.query = mha_view_slice(&all.query, 1, from, n);
            r.call.key = mha_view_slice(&all.key, 1, first, (size_t)cu_k[b + 1] - first);
            r.call.value = mha_view_slice(&all.value, 1, first, (size_t)cu_k[b + 1] - first);
            r.t.T_q = n;
            snapshot alone = snapshot_run(&r, (mha_path)p, 1, MHA_STAGE_OUTPUT, false), part = whole;
            part.view = mha_view_slice(&whole.view, 1, from, n);
            snprintf(what, sizeof what, "%s, sequence %zu", mha_path_name((mha_path)p), b);
            assert_same(&part, &alone, what);
            snapshot_release(&alone);
        }
        snapshot_release(&whole);
        trial_release(&r);
    }
}

/* Padding a batch to one length, hiding the pads by length or by mask: the rows of the sequences alone. */
static void padding_is_no_different_from_absence(void **state)
{
    (void)state;
    EACH_PATH(p)
    {
        trial t = medium(7);
        t.B = 1;
        rig r;
        trial_build(&t, &r);
        int64_t length = 23;
        r.call.semantics.visible.kv_lengths = &length;
        snapshot padded = snapshot_run(&r, (mha_path)p, 1, MHA_STAGE_OUTPUT, true);
        r.call.semantics.visible.kv_lengths = NULL;
        r.call.key = mha_view_slice(&r.call.key, 1, 0, 23);
        r.call.value = mha_view_slice(&r.call.value, 1, 0, 23);
        snapshot shorter = snapshot_run(&r, (mha_path)p, 1, MHA_STAGE_OUTPUT, false);
        assert_close(&padded, &shorter, "padded and short");
        snapshot_release(&padded);
        snapshot_release(&shorter);
        trial_release(&r);
    }
}

/* ---------------------------------------------------------------- several names for one thing */

typedef void (*change)(rig *);

/* Two ways to ask for the same: the same bits, or within what rounding allows. */
static void assert_equivalent(const trial *t, change first, change second, bool same_bits, const char *what)
{
    EACH_PATH(p)
    {
        rig a, b;
        char text[100];
        trial_build(t, &a);
        trial_build(t, &b);
        if (first)
            first(&a);
        if (second)
            second(&b);
        if (a.layer) /* weights were written through views */
            mha__layer_repack(a.layer), mha__layer_repack(b.layer);
        snapshot x = snapshot_run(&a, (mha_path)p, 1, MHA_STAGE_OUTPUT, !same_bits);
        snapshot y = snapshot_run(&b, (mha_path)p, 1, MHA_STAGE_OUTPUT, false);
        snprintf(text, sizeof text, "%s: %s", mha_path_name((mha_path)p), what);
        if (same_bits)
            assert_same(&x, &y, text);
        else
            assert_close(&x, &y, text);
        snapshot_release(&x);
        snapshot_release(&y);
        trial_release(&b);
        trial_release(&a);
    }
}

/* Memory of masks that changes point to; (19, 35) is T_q, S of `medium`. */
static uint8_t keeps[19 * 35], hides[19 * 35];
static double added[4 * 19 * 35];

static void make_masks(void)
{
    for (size_t e = 0; e < 19 * 35; e++) {
        keeps[e] = (uint8_t)(e * 7919 % 11 > 3);
        hides[e] = !keeps[e];
        added[e] = keeps[e] ? 0 : -(double)INFINITY;
    }
}

static void keeping(rig *r)
{
    r->call.semantics.visible.mask = (mha_mask){MHA_MASK_KEEPS, mha_view_of(keeps, MHA_BOOL, 2, (size_t[]){19, 35})};
}
static void hiding(rig *r)
{
    r->call.semantics.visible.mask = (mha_mask){MHA_MASK_HIDES, mha_view_of(hides, MHA_U8, 2, (size_t[]){19, 35})};
}
static void adding(rig *r)
{
    r->call.semantics.visible.mask = (mha_mask){MHA_MASK_ADDITIVE, mha_view_of(added, MHA_F64, 2, (size_t[]){19, 35})};
}

static void the_three_kinds_of_mask_say_the_same(void **state)
{
    (void)state;
    trial t = medium(8);
    make_masks();
    assert_equivalent(&t, keeping, hiding, true, "keeps and hides");
    assert_equivalent(&t, keeping, adding, true, "keeps and -inf");
}

static void causal(rig *r)
{
    r->call.semantics.visible.causal = true, r->call.semantics.place.has_offset = true,
    r->call.semantics.place.offset = 16;
}
static void window(rig *r)
{
    causal(r);
    r->call.semantics.visible.causal = false, r->call.semantics.visible.has_window_right = true;
}
static void causal_mask(rig *r)
{
    for (size_t i = 0; i < 19; i++)
        for (size_t j = 0; j < 35; j++)
            keeps[i * 35 + j] = j <= i + 16;
    keeping(r);
}

static void causal_is_a_window_and_a_mask(void **state)
{
    (void)state;
    trial t = medium(9);
    assert_equivalent(&t, causal, window, true, "causal and a window open to the left");
    assert_equivalent(&t, causal, causal_mask, false, "causal and its mask");
}

static const double slopes[4] = {0.5, 0.25, 0.125, 1};
static void alibi(rig *r)
{
    r->call.semantics.added.alibi_slopes = slopes, r->call.semantics.place.has_offset = true,
    r->call.semantics.place.offset = 5;
}
static void alibi_mask(rig *r)
{
    for (size_t h = 0; h < 4; h++)
        for (size_t i = 0; i < 19; i++)
            for (size_t j = 0; j < 35; j++)
                added[(h * 19 + i) * 35 + j] = -slopes[h] * ((double)i + 5 - (double)j);
    r->call.semantics.visible.mask =
        (mha_mask){MHA_MASK_ADDITIVE, mha_view_of(added, MHA_F64, 3, (size_t[]){4, 19, 35})};
}

static void alibi_is_an_additive_mask(void **state)
{
    (void)state;
    trial t = medium(10);
    assert_equivalent(&t, alibi, alibi_mask, true, "ALiBi and its mask");
}

static void constant_mask(rig *r)
{
    for (size_t e = 0; e < 19; e++)
        added[e] = (double)e - 7;
    r->call.semantics.visible.mask = (mha_mask){MHA_MASK_ADDITIVE, mha_view_of(added, MHA_F64, 2, (size_t[]){19, 1})};
}
static void zero_mask(rig *r)
{
    for (size_t e = 0; e < 19; e++)
        added[e] = 0;
    r->call.semantics.visible.mask = (mha_mask){MHA_MASK_ADDITIVE, mha_view_of(added, MHA_F64, 2, (size_t[]){19, 1})};
}

static void softmax_does_not_see_what_all_scores_share(void **state)
{
    (void)state;
    trial t = medium(11);
    assert_equivalent(&t, constant_mask, NULL, false, "a number added to all scores of a query");
    assert_equivalent(&t, zero_mask, NULL, true, "zeros added");
}

static void zero_sinks(rig *r) { memset(r->weights[MHA_SINKS].data, 0, 4 * sizeof(float)); }
static void plus_one_for_sinks(rig *r)
{
    static const float none[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}; /* a sink that adds nothing */
    memcpy(r->weights[MHA_SINKS].data, none, sizeof none);
    r->call.semantics.softmax.softmax_plus_one = true;
}

static void plus_one_is_a_sink_of_zero(void **state)
{
    (void)state;
    trial t = medium(12);
    t.config.sinks = true;
    assert_equivalent(&t, zero_sinks, plus_one_for_sinks, true, "sinks of 0 and softmax plus one");
}

/* Positions that all move by the same amount: rotation shows only differences. The angles differ in their
 * last bits, by 2^-24 of a cosine; the oracle's slack for the shifted call covers both. */
static void rotate_here(rig *r) { r->call.semantics.qkv.rope.kind = MHA_ROPE_HALF_SPLIT; }
static void rotate_there(rig *r)
{
    static int64_t positions[35];
    for (int j = 0; j < 35; j++)
        positions[j] = j + 40;
    rotate_here(r);
    r->call.semantics.qkv.rope.q_positions = mha_view_of(positions, MHA_I64, 2, (size_t[]){1, 19});
    r->call.semantics.qkv.rope.k_positions = mha_view_of(positions, MHA_I64, 2, (size_t[]){1, 35});
}

static void rotation_shows_only_differences_of_positions(void **state)
{
    (void)state;
    trial t = medium(13);
    assert_equivalent(&t, rotate_there, rotate_here, false, "positions moved together");
}

/* A power of two passes through every product exactly. */
static void twice_the_scale(rig *r)
{
    r->call.semantics.softmax.has_scale = true, r->call.semantics.softmax.scale = 2 / sqrt(6);
}
static void twice_the_queries(rig *r)
{
    for (size_t e = 0; e < mha_view_elements(&r->weights[MHA_W_Q]); e++)
        ((float *)r->weights[MHA_W_Q].data)[e] *= 2;
    for (size_t e = 0; e < mha_view_elements(&r->weights[MHA_B_Q]); e++)
        ((float *)r->weights[MHA_B_Q].data)[e] *= 2;
}

static void the_scale_belongs_to_the_queries(void **state)
{
    (void)state;
    trial t = medium(14);
    assert_equivalent(&t, twice_the_scale, twice_the_queries, true, "scale and queries doubled");
}

/* Grouped heads are heads whose keys and values are copies. */
static void grouped_heads_are_repeated_heads(void **state)
{
    (void)state;
    EACH_PATH(p)
    {
        trial t = {.seed = 15,
                   .B = 2,
                   .T_q = 9,
                   .T_k = 13,
                   .bare = true,
                   .config = {.d_model = 24, .n_heads = 6, .kv_heads = 2, .d_k = 4}};
        trial u = t;
        u.config.kv_heads = 6;
        rig grouped, repeated;
        trial_build(&t, &grouped);
        trial_build(&u, &repeated);
        (void)mha_view_copy(&repeated.call.query, &grouped.call.query, NULL);
        for (size_t h = 0; h < 6; h++)
            for (int which = 0; which < 2; which++) {
                mha_view *from = which ? &grouped.call.value : &grouped.call.key,
                         *to = which ? &repeated.call.value : &repeated.call.key;
                mha_view source = mha_view_slice(from, 2, h / 3, 1), target = mha_view_slice(to, 2, h, 1);
                assert_int_equal(mha_view_copy(&target, &source, NULL), MHA_OK);
            }
        snapshot a = snapshot_run(&grouped, (mha_path)p, 1, MHA_STAGE_HEADS, false),
                 b = snapshot_run(&repeated, (mha_path)p, 1, MHA_STAGE_HEADS, false);
        assert_same(&a, &b, "grouped and repeated");
        snapshot_release(&a);
        snapshot_release(&b);
        trial_release(&repeated);
        trial_release(&grouped);
    }
}

/* The same numbers however they lie. */
static void layouts_change_no_bit(void **state)
{
    (void)state;
    static const mha_layout layouts[] = {MHA_BTE, MHA_TBE, MHA_BHTD, MHA_BTHD};
    EACH_PATH(p)
    {
        snapshot first = {0};
        for (size_t l = 0; l < COUNT(layouts); l++)
            for (size_t gap = 0; gap < 10; gap += 3) {
                trial t = {.seed = 16, .B = 3, .T_q = 9, .T_k = 13, .bare = true, .layout = layouts[l], .gap = gap,
                           .config = {.d_model = 24, .n_heads = 4, .kv_heads = 2, .d_k = 6}};
                rig r;
                trial_build(&t, &r); /* filled in the order of (batch, time, head, feature): the same in each layout */
                snapshot s = snapshot_run(&r, (mha_path)p, 1, MHA_STAGE_HEADS, false);
                if (l == 0 && gap == 0)
                    first = s;
                else {
                    assert_same(&first, &s, mha__layout_name(layouts[l]));
                    snapshot_release(&s);
                }
                trial_release(&r);
            }
        snapshot_release(&first);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, guard_teardown)
    const struct CMUnitTest tests[] = {
        TEST(weights_of_a_query_sum_to_one),
        TEST(equal_keys_give_the_mean_of_the_values),
        TEST(one_head_is_the_textbook_formula),
        TEST(stages_agree_with_each_other),
        TEST(permuting_keys_and_values_together_changes_nothing),
        TEST(later_rows_change_no_bit_of_earlier_ones),
        TEST(hidden_rows_change_no_bit),
        TEST(splitting_a_batch_changes_no_bit),
        TEST(a_ragged_batch_is_its_sequences_alone),
        TEST(segments_of_a_ragged_batch_are_its_sequences_alone),
        TEST(padding_is_no_different_from_absence),
        TEST(the_three_kinds_of_mask_say_the_same),
        TEST(causal_is_a_window_and_a_mask),
        TEST(alibi_is_an_additive_mask),
        TEST(softmax_does_not_see_what_all_scores_share),
        TEST(plus_one_is_a_sink_of_zero),
        TEST(rotation_shows_only_differences_of_positions),
        TEST(the_scale_belongs_to_the_queries),
        TEST(grouped_heads_are_repeated_heads),
        TEST(layouts_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
