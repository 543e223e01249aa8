/* Forwards with known edges, one by one, against the oracle: sizes, every semantic alone, layouts, what is
 * kept, how memory lies. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/system.h"
#include "support/compare.h"
#include "support/trial.h"
#include "support/window.h"
#include "support/unit.h"
#include "support/stages.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static mha_config all_biases(mha_config c)
{
    c.bias_q = c.bias_k = c.bias_v = c.bias_o = true;
    return c;
}

/* Six heads over two, all widths different, three batch rows. */
static trial rich(uint64_t seed)
{
    return (trial){.seed = seed, .B = 3, .T_q = 9, .T_k = 13,
                   .config = all_biases((mha_config){.d_model = 24, .n_heads = 6, .kv_heads = 2, .d_k = 6, .d_v = 5,
                                                     .d_q = 11, .d_kin = 7, .d_vin = 10, .d_out = 12})};
}

/* ---------------------------------------------------------------- sizes */

static void every_length_around_an_edge(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 7, 16, 17, 33, 64, 65, 127};
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (size_t j = 0; j < COUNT(sizes); j++)
            for (int causal = 0; causal < 2; causal++) {
                trial t = {.seed = i * 16 + j * 2 + (size_t)causal, .B = 1, .T_q = sizes[i], .T_k = sizes[j],
                           .config = {.d_model = 8, .n_heads = 2}, .semantics = {.visible.causal = causal}};
                assert_trial(&t);
            }
}

static void every_width_around_an_edge(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 7, 16, 17, 33, 64, 65, 127};
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (size_t j = 0; j < COUNT(sizes); j++) {
            trial t = {.seed = i * 8 + j, .B = 1, .T_q = 3, .T_k = 5, .side = j % 2 ? GUARD_BEFORE : GUARD_AFTER,
                       .config = {.d_model = sizes[(i + j) % 8], .n_heads = 2, .d_k = sizes[i], .d_v = sizes[j],
                                  .d_q = sizes[(i + 3) % 8], .d_out = sizes[(j + 5) % 8]}};
            assert_trial(&t);
        }
}

static void head_counts_and_groups(void **state)
{
    (void)state;
    for (size_t h = 1; h <= 12; h++)
        for (size_t g = 1; g <= h; g++) {
            if (h % g)
                continue;
            trial t = {.seed = h * 100 + g, .B = 2, .T_q = 4, .T_k = 6, .config = all_biases((mha_config){
                       .d_model = 5, .n_heads = h, .kv_heads = g, .d_k = 3, .d_v = 2})};
            assert_trial(&t);
            t.bare = true;
            assert_trial(&t);
        }
}

/* The rows are cut into pieces for projections and blocks for scores: both edges crossed. */
static void long_inputs_cross_every_cut(void **state)
{
    (void)state;
    trial t = {.seed = 3,
               .B = 1,
               .T_q = 530,
               .T_k = 70,
               .config = all_biases((mha_config){.d_model = 9, .n_heads = 1, .d_k = 4})};
    assert_trial(&t);
    t = (trial){
        .seed = 4, .B = 1, .T_q = 2, .T_k = 3, .config = all_biases((mha_config){.d_model = 300, .n_heads = 2})};
    assert_trial(&t);
    t = (trial){
        .seed = 5, .B = 2, .T_q = 1, .T_k = 3, .config = all_biases((mha_config){.d_model = 1030, .n_heads = 10})};
    assert_trial(&t);
}

/* Keys beyond one block and one segment of the streaming core, few and many queries, one and several tasks for
 * each block; heads so wide that a product takes several steps. */
static void long_keys_and_wide_heads_cross_every_cut(void **state)
{
    (void)state;
    static const size_t lengths[] = {255, 256, 257, 511, 513, 1023, 1024, 1025, 2049, 3072};
    for (size_t k = 0; k < COUNT(lengths); k++)
        for (int what = 0; what < 9; what++) {
            trial t = {.seed = k * 16 + (size_t)what, .B = 1 + k % 2, .T_q = what % 2 ? 1 : 5, .T_k = lengths[k],
                       .config = {.d_model = 6, .n_heads = 2, .kv_heads = 1, .d_k = 4, .d_v = what % 3 ? 3 : 16}};
            mha_semantics *s = &t.semantics;
            switch (what) {
            case 1:
                s->visible.causal = true, s->place.has_offset = true, s->place.offset = (int64_t)lengths[k] - 3;
                break;
            case 2:
                s->visible.window_left = 300, s->visible.window_right = 40,
                t.offset_each = true;
                break;
            case 3: t.lengths = t.poison = true; break;
            case 4: s->visible.mask.kind = MHA_MASK_KEEPS, t.mask_rank = 2; break;
            case 5: t.alibi = true, s->softmax.softcap = 3, t.config.sinks = true; break;
            case 6:
                s->visible.key_padding.kind = MHA_MASK_HIDES, t.poison = true, s->softmax.zero_row = true,
                t.config.bias_kv = true;
                break;
            case 7: t.past = lengths[k] - 1, t.T_k = 1, s->visible.causal = true; break;
            case 8: t.amplitude = 30, s->softmax.softmax_plus_one = true; break;
            default: break;
            }
            assert_trial(&t);
        }
    static const size_t widths[] = {127, 128, 129, 255, 256, 257, 512, 513, 600};
    for (size_t k = 0; k < COUNT(widths); k++)
        for (size_t j = 0; j < 2; j++) {
            trial t = {.seed = k,
                       .B = 1,
                       .T_q = 9,
                       .T_k = 130,
                       .bare = true,
                       .config = {.d_model = 4,
                                  .n_heads = 2,
                                  .kv_heads = 1,
                                  .d_k = j ? widths[k] : 16,
                                  .d_v = j ? 16 : widths[k]},
                       .semantics = {.visible.causal = true, .place = {.has_offset = true, .offset = 100}}};
            assert_trial(&t);
        }
}

static void nothing_to_do_is_done(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{0, 3, 4}, {2, 0, 4}, {2, 3, 0}, {0, 0, 0}};
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (int bare = 0; bare < 2; bare++) {
            trial t = {.seed = i, .B = shapes[i][0], .T_q = shapes[i][1], .T_k = shapes[i][2], .bare = bare,
                       .config = all_biases((mha_config){.d_model = 6, .n_heads = 2})};
            assert_trial(&t);
            t.semantics.softmax.empty_rows = MHA_EMPTY_NAN;
            assert_trial(&t);
            t.semantics.softmax.zero_row = true;
            assert_trial(&t);
        }
}

/* ---------------------------------------------------------------- semantics, one at a time */

static void every_semantic_alone(void **state)
{
    (void)state;
    trial t = rich(1);
#define ALONE(...)                                                                                                     \
    t = rich(t.seed + 1);                                                                                              \
    __VA_ARGS__;                                                                                                       \
    assert_trial(&t);                                                                                                  \
    t.bare = true;                                                                                                     \
    assert_trial(&t);
    ALONE(t.semantics.softmax.has_scale = true, t.semantics.softmax.scale = 0.7)
    ALONE(t.semantics.softmax.has_scale = true, t.semantics.softmax.scale = -1)
    ALONE(t.semantics.softmax.has_scale = true, t.semantics.softmax.scale = 0)
    ALONE(t.semantics.softmax.softcap = 0.5)
    ALONE(t.semantics.visible.causal = true)
    ALONE(t.semantics.visible.causal = true, t.semantics.place.has_offset = true, t.semantics.place.offset = 4)
    ALONE(t.semantics.visible.causal = true, t.semantics.place.has_offset = true, t.semantics.place.offset = -5)
    ALONE(t.semantics.visible.causal = true, t.semantics.place.has_offset = true, t.semantics.place.offset = 100)
    ALONE(t.semantics.visible.causal = true, t.semantics.place.has_offset = true, t.semantics.place.offset = -100)
    ALONE(t.semantics.visible.causal = true, t.offset_each = true)
    for (int64_t left = -1; left < 4; left++)
        for (int64_t right = -1; right < 3; right++) {
            ALONE(set_window(&t.semantics, left, right))
            ALONE(set_window(&t.semantics, left, right), t.offset_each = true)
        }
    ALONE(t.lengths = true)
    for (int kind = 1; kind <= 3; kind++) {
        ALONE(t.semantics.visible.key_padding.kind = (mha_mask_kind)kind)
        for (int rank = 1; rank <= 4; rank++)
            for (unsigned ones = 0; ones < 1u << rank; ones++) {
                ALONE(t.semantics.visible.mask.kind = (mha_mask_kind)kind, t.mask_rank = rank, t.mask_ones = ones)
            }
        ALONE(t.semantics.visible.mask.kind = (mha_mask_kind)kind, t.mask_short = 3)
        ALONE(t.semantics.visible.mask.kind = (mha_mask_kind)kind, t.mask_short = 11) /* two keys reached */
        if (kind != MHA_MASK_ADDITIVE) {
            ALONE(t.semantics.visible.key_padding.kind = (mha_mask_kind)kind,
                  t.semantics.visible.has_padding_fill = true, t.semantics.visible.padding_fill = -10000)
            ALONE(t.semantics.visible.key_padding.kind = (mha_mask_kind)kind,
                  t.semantics.visible.has_padding_fill = true, t.semantics.visible.padding_fill = 1)
        }
    }
    ALONE(t.alibi = true)
    ALONE(t.alibi = true, t.offset_each = true)
    for (int kind = 1; kind <= 2; kind++) {
        ALONE(t.semantics.qkv.rope.kind = (mha_rope_kind)kind)
        ALONE(t.semantics.qkv.rope.kind = (mha_rope_kind)kind, t.semantics.qkv.rope.dim = 4,
              t.semantics.qkv.rope.base = 500)
        ALONE(t.semantics.qkv.rope.kind = (mha_rope_kind)kind, t.offset_each = true)
        ALONE(t.semantics.qkv.rope.kind = (mha_rope_kind)kind, t.rope_positions = true)
        ALONE(t.semantics.qkv.rope.kind = (mha_rope_kind)kind, t.rope_positions = true,
              t.T_k = t.T_q) /* keys follow queries */
        ALONE(t.semantics.qkv.rope.kind = (mha_rope_kind)kind, t.rope_positions = t.rope_key_positions = true)
        ALONE(t.semantics.qkv.rope.kind = (mha_rope_kind)kind, t.rope_tables = 2)
        ALONE(t.semantics.qkv.rope.kind = (mha_rope_kind)kind, t.rope_tables = 3, t.T_k = t.T_q)
    }
    for (int norm = 1; norm <= 2; norm++) {
        ALONE(t.config.q_norm = (mha_norm)norm)
        ALONE(t.config.k_norm = (mha_norm)norm, t.semantics.qkv.norm_eps = 0.1)
    }
    ALONE(t.config.bias_kv = true)
    ALONE(t.semantics.softmax.zero_row = true)
    ALONE(t.config.bias_kv = true, t.semantics.softmax.zero_row = true)
    ALONE(t.config.sinks = true)
    ALONE(t.semantics.softmax.softmax_plus_one = true)
    ALONE(t.past = 4)
    ALONE(t.past = 4, t.semantics.visible.causal = true)
    ALONE(t.past = 4, t.semantics.qkv.rope.kind = MHA_ROPE_HALF_SPLIT)
    ALONE(t.use_cache = true)
    ALONE(t.B = 1, t.sequences = 4)
    for (int dtype = 0; dtype < 4; dtype++) {
        ALONE(t.config.dtype = (mha_dtype)dtype)
        ALONE(t.input_dtype = (mha_dtype)dtype)
    }
#undef ALONE
}

/* Fully masked queries, with and without a sink or key bias that adds to their softmax. */
static void empty_rows_follow_their_rule(void **state)
{
    (void)state;
    for (int rule = MHA_EMPTY_ZERO; rule <= MHA_EMPTY_NAN; rule++)
        for (int hidden = MHA_HIDDEN_IGNORE; hidden <= MHA_HIDDEN_PROPAGATE; hidden++)
            for (int extra = 0; extra < 5; extra++) {
                trial t = rich((uint64_t)(rule * 100 + hidden * 10 + extra));
                t.semantics = (mha_semantics){.visible.causal = true,
                                              .place.has_offset = true,
                                              .place.offset = -4,
                                              .softmax.empty_rows = (mha_empty_rows)rule,
                                              .softmax.hidden_values = (mha_hidden_values)hidden,
                                              .softmax.zero_row = extra == 1,
                                              .softmax.softmax_plus_one = extra == 2};
                t.config.sinks = extra == 3;
                t.config.bias_kv = extra == 4;
                assert_trial(&t);
                t.lengths = t.poison = true;
                assert_trial(&t);
            }
}

/* An empty row is exactly that: weights 0, lse -inf, output the output bias to the last bit. */
static void an_empty_row_gives_the_output_bias(void **state)
{
    (void)state;
    trial t = rich(9);
    t.semantics = (mha_semantics){.visible.causal = true, .place = {.has_offset = true, .offset = -100}};
    rig r;
    mha_error error;
    for (int p = MHA_PATH_FAST; p <= MHA_PATH_EXACT; p++) {
        trial_build(&t, &r);
        mha_status status = trial_run(&r, (mha_path)p, 1, trial_stages(&r), MHA_F32, &error);
        if (p != MHA_PATH_FAST || status != MHA_UNSUPPORTED) {
            assert_ok(status, error);
            const float *weights = stage_view(&r.call, MHA_STAGE_WEIGHTS)->data,
                        *lse = stage_view(&r.call, MHA_STAGE_LSE)->data;
            for (size_t e = 0; e < 3 * 6 * 9 * 13; e++)
                assert_true(weights[e] == 0.0f);
            for (size_t e = 0; e < 3 * 6 * 9; e++)
                assert_true(lse[e] == -INFINITY);
            for (size_t row = 0; row < 3 * 9; row++)
                for (size_t c = 0; c < 12; c++)
                    assert_true(oracle_get(&r.call.output, row / 9, row % 9, c, 0) ==
                                oracle_get(&r.weights[MHA_B_O], c, 0, 0, 0));
        }
        trial_release(&r);
    }
}

/* ---------------------------------------------------------------- NaN and infinity */

static void put(rig *r, mha_view *v, size_t b, size_t t, size_t c, float x)
{
    (void)r;
    ((float *)v->data)[(ptrdiff_t)b * v->stride[0] + (ptrdiff_t)t * v->stride[1] + (ptrdiff_t)c] = x;
}

/* Each bad number at each place, visible to some and hidden from others: it goes exactly where it should. */
static void bad_numbers_go_where_the_equation_takes_them(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int which = 0; which < 3; which++)
        for (size_t k = 0; k < COUNT(bad); k++)
            for (int hidden = 0; hidden < 2; hidden++)
                for (int p = MHA_PATH_FAST; p <= MHA_PATH_EXACT; p++) {
                    trial t = {
                        .seed = (uint64_t)which + 3 * k,
                        .B = 2,
                        .T_q = 70,
                        .T_k = 70,
                        .config = {.d_model = 4, .n_heads = 2},
                        .semantics = {.visible.causal = true, .softmax.hidden_values = (mha_hidden_values)hidden}};
                    rig r;
                    mha_error error;
                    char text[400];
                    trial_build(&t, &r);
                    mha_view *v = which == 0 ? &r.call.query : which == 1 ? &r.call.key : &r.call.value;
                    put(&r, v, 0, 40, 1, bad[k]);
                    put(&r, v, 1, 69, 3, bad[k]);
                    mha_status status = trial_run(&r, (mha_path)p, 2, trial_stages(&r), MHA_F32, &error);
                    if (p != MHA_PATH_FAST || status != MHA_UNSUPPORTED) {
                        assert_ok(status, error);
                        if (!trial_check(&r, (mha_path)p, text, sizeof text))
                            fail_msg("%s, %g in input %d, hidden values rule %d: %s", mha_path_name((mha_path)p),
                                     (double)bad[k], which, hidden, text);
                    }
                    trial_release(&r);
                }
}

/* Visible keys whose scores are all -inf, or one of them +inf: NaN, not zero and not a guess. */
static void infinite_scores_give_nan(void **state)
{
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2)
        for (int p = MHA_PATH_FAST; p <= MHA_PATH_EXACT; p++) {
            trial t = {.seed = 5, .B = 1, .T_q = 2, .T_k = 3, .bare = true, .config = {.d_model = 2, .n_heads = 1}};
            rig r;
            mha_error error;
            char text[400];
            trial_build(&t, &r);
            for (size_t i = 0; i < 2; i++)
                put(&r, &r.call.query, 0, i, 0, 1), put(&r, &r.call.query, 0, i, 1, 0.5f);
            for (size_t j = 0; j < 3; j++)
                put(&r, &r.call.key, 0, j, 0, sign < 0 || j == 1 ? (float)sign * INFINITY : 1.0f);
            mha_status status = trial_run(&r, (mha_path)p, 1, trial_stages(&r), MHA_F32, &error);
            if (p != MHA_PATH_FAST || status != MHA_UNSUPPORTED) {
                assert_ok(status, error);
                assert_true(isnan(oracle_get(&r.call.output, 0, 0, 0, 0)));
                if (!trial_check(&r, (mha_path)p, text, sizeof text))
                    fail_msg("%s: %s", mha_path_name((mha_path)p), text);
            }
            trial_release(&r);
        }
}

/* A finite number that hides stays a number: -1e300 and the lowest float are added, not turned into -inf. */
static void finite_fills_stay_finite(void **state)
{
    (void)state;
    static const double fills[] = {-1e300, -(double)FLT_MAX, -1e4, 1e300};
    for (size_t k = 0; k < COUNT(fills); k++)
        for (int additive = 0; additive < 2; additive++)
            for (int p = MHA_PATH_FAST; p <= MHA_PATH_EXACT; p++) {
                double values[3] = {fills[k], fills[k], fills[k]};
                uint8_t hides[3] = {1, 1, 1};
                trial t = {.seed = k, .B = 1, .T_q = 2, .T_k = 3, .config = {.d_model = 2, .n_heads = 1}};
                if (additive)
                    t.semantics.visible.mask =
                        (mha_mask){MHA_MASK_ADDITIVE, mha_view_of(values, MHA_F64, 1, (size_t[]){3})};
                else {
                    t.semantics.visible.key_padding =
                        (mha_mask){MHA_MASK_HIDES, mha_view_of(hides, MHA_U8, 2, (size_t[]){1, 3})};
                    t.semantics.visible.has_padding_fill = true, t.semantics.visible.padding_fill = fills[k];
                }
                rig r;
                mha_error error;
                trial_build(&t, &r);
                mha_status status = trial_run(&r, (mha_path)p, 1, trial_stages(&r), MHA_F64, &error);
                if (p != MHA_PATH_FAST || status != MHA_UNSUPPORTED) {
                    assert_ok(status, error);
                    double sum = 0;
                    for (size_t j = 0; j < 3; j++) {
                        double w = oracle_get(stage_view(&r.call, MHA_STAGE_WEIGHTS), 0, 0, 1, j);
                        assert_true(w > 0 && w < 1);
                        sum += w;
                    }
                    assert_true(fabs(sum - 1) < 1e-6);
                }
                trial_release(&r);
            }
}

/* ---------------------------------------------------------------- what is kept */

static unsigned bit(int stage)
{
    return 1u << stage;
}

/* Each stage by itself, all together, only the output, in either type: the same bits each time. */
static void keeping_a_stage_changes_no_bit(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        for (int p = MHA_PATH_FAST; p <= MHA_PATH_EXACT; p++) {
            trial t = trial_draw(seed * 7919);
            rig all, one;
            mha_error error;
            char text[400];
            if (p != MHA_PATH_EXACT)
                t.input_dtype = MHA_F32, t.dropout = 0;
            trial_build(&t, &all);
            mha_status status = trial_run(&all, (mha_path)p, 1, trial_stages(&all), MHA_F64, &error);
            if (p == MHA_PATH_FAST && status == MHA_UNSUPPORTED) {
                trial_release(&all);
                continue;
            }
            assert_ok(status, error);
            trial_build(&t, &one);
            for (int s = 0; s <= MHA_STAGE_COUNT; s++) {
                unsigned keep = s < MHA_STAGE_COUNT ? bit(s) | (seed % 2 ? TRIAL_OUTPUT : 0) : TRIAL_OUTPUT;
                if (keep & ~trial_stages(&one))
                    continue;
                assert_ok(trial_run(&one, (mha_path)p, 1, keep, MHA_F64, &error), error);
                for (int k = 0; k < MHA_STAGE_COUNT; k++)
                    if (stage_view(&one.call, (mha_stage)k)->data &&
                        !compare_bits(mha_stage_at((mha_stage)k)->name, stage_view(&one.call, (mha_stage)k),
                                      stage_view(&all.call, (mha_stage)k), text, sizeof text))
                        fail_msg("%s, seed %d, kept %x: %s", mha_path_name((mha_path)p), (int)seed, keep, text);
            }
            trial_release(&one);
            trial_release(&all);
        }
}

static void nothing_kept_is_allowed(void **state)
{
    (void)state;
    trial t = rich(3);
    rig r;
    mha_error error;
    trial_build(&t, &r);
    assert_ok(trial_run(&r, MHA_PATH_AUTO, 2, 0, MHA_F32, &error), error);
    assert_ok(trial_run(&r, MHA_PATH_EXACT, 2, 0, MHA_F32, &error), error);
    trial_release(&r);
}

/* ---------------------------------------------------------------- how memory lies */

/* Runs `r` with inputs as they are and compares output bits with `reference`. */
static void assert_same_output(rig *r, mha_path path, const mha_view *reference, const char *what)
{
    mha_error error;
    char text[300];
    assert_ok(trial_run(r, path, 1, TRIAL_OUTPUT, MHA_F32, &error), error);
    if (!compare_bits("output", &r->call.output, reference, text, sizeof text))
        fail_msg("%s, %s: %s", mha_path_name(path), what, text);
}

/* A stride of zero shows one row many times: at every time (only the exact path takes that), for every
 * batch row, or for every head. */
static void broadcast_inputs_are_rows_like_any_other(void **state)
{
    (void)state;
    for (int bare = 0; bare < 2; bare++)
        for (int p = MHA_PATH_FAST; p <= MHA_PATH_EXACT; p++)
            for (int axis = 0; axis < 2 + bare; axis++) {
                trial t = rich(21);
                t.bare = bare;
                t.layout = MHA_BHTD;
                rig r;
                mha_error error;
                char text[300];
                trial_build(&t, &r);
                mha_view *inputs[3] = {&r.call.query, &r.call.key, &r.call.value};
                for (int k = 0; k < 3; k++)
                    inputs[k]->stride[axis] = 0;
                mha_status status = trial_run(&r, (mha_path)p, 1, trial_stages(&r), MHA_F64, &error);
                if (axis == 1 && p != MHA_PATH_EXACT)
                    assert_true(status == MHA_INVALID || (p == MHA_PATH_FAST && status == MHA_UNSUPPORTED));
                else if (p != MHA_PATH_FAST || status != MHA_UNSUPPORTED) {
                    assert_ok(status, error);
                    if (!trial_check(&r, (mha_path)p, text, sizeof text))
                        fail_msg("%s, %s: %s", mha_path_name((mha_path)p), bare ? "bare" : "layer", text);
                }
                trial_release(&r);
            }
}

/* The stride of an extent of one is never stepped over, whatever it says. */
static void strides_of_single_rows_mean_nothing(void **state)
{
    (void)state;
    static const ptrdiff_t strides[] = {0, 1, -7, PTRDIFF_MAX / 16};
    for (int p = MHA_PATH_BLAS; p <= MHA_PATH_EXACT; p++)
        for (int bare = 0; bare < 2; bare++) {
            trial t = rich(22);
            t.B = t.T_q = t.T_k = 1, t.bare = bare;
            rig r, reference;
            mha_error error;
            trial_build(&t, &reference);
            assert_ok(trial_run(&reference, (mha_path)p, 1, TRIAL_OUTPUT, MHA_F32, &error), error);
            trial_build(&t, &r);
            for (size_t s = 0; s < COUNT(strides); s++) {
                mha_view *inputs[3] = {&r.call.query, &r.call.key, &r.call.value};
                for (int k = 0; k < 3; k++)
                    inputs[k]->stride[0] = inputs[k]->stride[1] = strides[s];
                assert_same_output(&r, (mha_path)p, &reference.call.output, "single rows");
            }
            trial_release(&r);
            trial_release(&reference);
        }
}

/* Any strides for what is kept: rows backwards, features far apart, transposed. */
static void the_output_may_lie_anyhow(void **state)
{
    (void)state;
    enum { B = 3, T = 9, E = 12 };
    trial t = rich(23);
    rig r;
    mha_error error;
    char text[300];
    for (int p = MHA_PATH_BLAS; p <= MHA_PATH_EXACT; p++) {
        trial_build(&t, &r);
        assert_ok(trial_run(&r, (mha_path)p, 1, TRIAL_OUTPUT, MHA_F32, &error), error);
        const ptrdiff_t strides[][4] = { /* of B, T, E; where element 0 lies */
            {T * E, -E, 1, (T - 1) * E}, {-T * E, E, 1, (B - 1) * T * E}, {E, B * E, 1, 0}, {T * E, 1, T, 0},
            {2 * T * E, 2 * E, 2, 0},    {1, B, B * T, 0},
        };
        for (size_t s = 0; s < COUNT(strides); s++) {
            static float memory[2 * B * T * E];
            mha_call call = r.call;
            memset(memory, 0xff, sizeof memory);
            call.output = (mha_view){.data = memory + strides[s][3], .dtype = MHA_F32, .rank = 3, .shape = {B, T, E},
                                                       .stride = {strides[s][0], strides[s][1], strides[s][2]}};
            mha_plan plan;
            assert_ok(mha_plan_call(r.layer, &call, &plan, &error), error);
            void *workspace = guard_allocate(plan.workspace_bytes, GUARD_AFTER, 0xff);
            assert_ok(mha_forward(&plan, workspace, plan.workspace_bytes, &error), error);
            guard_release(workspace);
            if (!compare_bits("output", &call.output, &r.call.output, text, sizeof text))
                fail_msg("%s, strides %zu: %s", mha_path_name((mha_path)p), s, text);
        }
        trial_release(&r);
    }
}

static void the_workspace_may_lie_at_any_address(void **state)
{
    (void)state;
    trial t = rich(24);
    rig r;
    mha_error error;
    char text[300];
    for (int p = MHA_PATH_AUTO; p <= MHA_PATH_EXACT; p++) {
        trial_build(&t, &r);
        mha_status status = trial_run(&r, (mha_path)p, 2, TRIAL_OUTPUT, MHA_F32, &error);
        if (p == MHA_PATH_FAST && status == MHA_UNSUPPORTED) {
            trial_release(&r);
            continue;
        }
        assert_ok(status, error);
        mha_call call = r.call;
        float *output = calloc(3 * 9 * 12, sizeof *output);
        call.output.data = output;
        mha_plan plan;
        assert_ok(mha_plan_call(r.layer, &call, &plan, &error), error);
        for (size_t shift = 0; shift < 64; shift++) {
            char *block = guard_allocate(plan.workspace_bytes + shift, GUARD_BEFORE, (unsigned char)shift);
            assert_ok(mha_forward(&plan, block + shift, plan.workspace_bytes, &error), error);
            guard_release(block);
            if (!compare_bits("output", &call.output, &r.call.output, text, sizeof text))
                fail_msg("%s, shift %zu: %s", mha_path_name((mha_path)p), shift, text);
        }
        free(output);
        trial_release(&r);
    }
}

/* ---------------------------------------------------------------- plans and names */

static void a_plan_says_what_will_happen(void **state)
{
    (void)state;
    trial t = rich(25);
    t.semantics.softmax.zero_row = true, t.config.bias_kv = true, t.past = 4;
    rig r;
    mha_error error;
    mha_plan plan;
    trial_build(&t, &r);
    assert_ok(trial_run(&r, MHA_PATH_AUTO, 2, 0, MHA_F32, &error), error); /* makes the cache and empties it again */
    mha_cache_clear(r.cache);
    assert_ok(mha_cache_load(r.cache, &r.past.keys, &r.past.values, &error), error);
    assert_ok(mha_plan_call(r.layer, &r.call, &plan, &error), error);
    assert_true(plan.path == MHA_PATH_BLAS || plan.path == MHA_PATH_FAST);
    assert_non_null(plan.path_reason);
    assert_true(plan.B == 3 && plan.T_q == 9 && plan.T_k == 13 && plan.S == 17 && plan.S_extra == 2);
    assert_true(plan.h == 6 && plan.h_kv == 2 && plan.d_k == 6 && plan.d_v == 5 && plan.d_out == 12);
    assert_true(plan.scale == 1 / sqrt(6) && plan.threads == 2);
    const size_t shapes[MHA_STAGE_COUNT][5] = {
        [MHA_STAGE_Q] = {3, 3, 9, 36},
        [MHA_STAGE_K] = {3, 3, 13, 12},
        [MHA_STAGE_V] = {3, 3, 13, 10},
        [MHA_STAGE_Q_ROT] = {3, 3, 9, 36},
        [MHA_STAGE_K_ROT] = {3, 3, 13, 12},
        [MHA_STAGE_SCORES] = {4, 3, 6, 9, 19},
        [MHA_STAGE_CAPPED] = {4, 3, 6, 9, 19},
        [MHA_STAGE_MASKED] = {4, 3, 6, 9, 19},
        [MHA_STAGE_WEIGHTS] = {4, 3, 6, 9, 19},
        [MHA_STAGE_WEIGHTS_MEAN] = {3, 3, 9, 19},
        [MHA_STAGE_HEADS] = {3, 3, 9, 30},
        [MHA_STAGE_OUTPUT] = {3, 3, 9, 12},
        [MHA_STAGE_PRESENT_KEY] = {4, 3, 2, 17, 6},
        [MHA_STAGE_PRESENT_VALUE] = {4, 3, 2, 17, 5},
        [MHA_STAGE_LSE] = {3, 3, 6, 9},
    };
    for (int s = 0; s < EVERY_STAGE; s++) {
        size_t shape[4] = {0};
        assert_int_equal(mha_plan_stage(&plan, (mha_stage)s, shape), shapes[s][0]);
        for (int k = 0; k < 4; k++)
            assert_int_equal(shape[k], shapes[s][k + 1]);
    }
    r.call.threads = 0;
    assert_ok(mha_plan_call(r.layer, &r.call, &plan, &error), error);
    assert_int_equal(plan.threads, mha_threads_available());
    trial_release(&r);
}

/* Positions at the ends of their type: the number of a position does not wrap. */
static void the_scale_by_position_saturates(void **state)
{
    (void)state;
    static float x[4] = {1, 1, 1, 1}, rotated[4];
    static double still[1];
    static int64_t at[2];
    for (mha_path path = MHA_PATH_BLAS; path <= MHA_PATH_EXACT; path++)
        for (int low = 0; low < 2; low++) {
            mha_error error;
            at[0] = low ? INT64_MIN : INT64_MAX, at[1] = low ? 0 : INT64_MAX - 2;
            mha_keep keep = {.stage = MHA_STAGE_Q_ROT, .view = mha_rows(rotated, 1, 2, 2)};
            const mha_view heads = mha_heads(x, 1, 2, 1, 2);
            mha_call call = {
                .query = heads, .key = heads, .value = heads, .keep = &keep, .keep_count = 1, .path = path};
            call.semantics.qkv.rope = (mha_rope){.kind = MHA_ROPE_HALF_SPLIT,
                                             .frequencies = mha_view_of(still, MHA_F64, 1, (size_t[]){1}),
                                             .q_positions = mha_view_of(at, MHA_I64, 2, (size_t[]){1, 2})};
            call.semantics.qkv.query_scale = (mha_query_scale){.growth = 1, .every = 1, .first = low ? -1 : 1};
            assert_ok(mha_run(NULL, &call, &error), error);
            assert_true(rotated[0] == rotated[2] && rotated[0] == (low ? 1.0f : (float)(1 + log(0x1p63))));
        }
}

static void stages_and_paths_are_found_by_name(void **state)
{
    (void)state;
    static const char *const stages[] = {"q", "k", "v", "q_rot", "k_rot", "scores", "capped", "masked", "weights",
                                         "weights_mean", "heads", "output", "present_key", "present_value", "lse",
                                         "q_latent", "kv_latent", "gated"};
    static const char *const paths[] = {"auto", "fast", "blas", "exact"};
    assert_int_equal(COUNT(stages), MHA_STAGE_COUNT);
    assert_int_equal(COUNT(paths), MHA_PATH_COUNT);
    for (int s = 0; s < MHA_STAGE_COUNT; s++) {
        mha_stage found;
        assert_string_equal(mha_stage_at((mha_stage)s)->name, stages[s]);
        assert_true(mha_stage_find(stages[s], &found) && found == (mha_stage)s);
    }
    for (int p = 0; p < MHA_PATH_COUNT; p++) {
        mha_path found;
        assert_string_equal(mha_path_name((mha_path)p), paths[p]);
        assert_true(mha_path_find(paths[p], &found) && found == (mha_path)p);
    }
    mha_stage s = MHA_STAGE_V;
    mha_path p = MHA_PATH_BLAS;
    assert_false(mha_stage_find("Q", &s) || mha_path_find("", &p));
    assert_true(s == MHA_STAGE_V && p == MHA_PATH_BLAS);
    assert_null(mha_stage_at(MHA_STAGE_COUNT));
    assert_string_equal(mha_path_name(MHA_PATH_COUNT), "?");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, guard_teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_length_around_an_edge),
        TEST(every_width_around_an_edge),
        TEST(head_counts_and_groups),
        TEST(long_inputs_cross_every_cut),
        TEST(long_keys_and_wide_heads_cross_every_cut),
        TEST(nothing_to_do_is_done),
        TEST(every_semantic_alone),
        TEST(empty_rows_follow_their_rule),
        TEST(an_empty_row_gives_the_output_bias),
        TEST(bad_numbers_go_where_the_equation_takes_them),
        TEST(infinite_scores_give_nan),
        TEST(finite_fills_stay_finite),
        TEST(keeping_a_stage_changes_no_bit),
        TEST(nothing_kept_is_allowed),
        TEST(broadcast_inputs_are_rows_like_any_other),
        TEST(strides_of_single_rows_mean_nothing),
        TEST(the_output_may_lie_anyhow),
        TEST(the_workspace_may_lie_at_any_address),
        TEST(a_plan_says_what_will_happen),
        TEST(the_scale_by_position_saturates),
        TEST(stages_and_paths_are_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
