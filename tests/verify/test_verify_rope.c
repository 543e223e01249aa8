/* Cases of kind rope in every layout: only rotation, checked on every path, and noticed when it is wrong; how far off
 * an angle may be where the position is far. */
#include "support/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/rerun.h"
#include "support/scratch.h"
#include "support/verdict.h"
#include "support/rotate.h"

enum { B = 2, T = 5, H = 3, D = 8, MOST = 80 };

/* The case in `layout` (TE: the first batch row), its expected numbers off by `wrong` in one place; batch row b begins
 * at position `offset`[b], which the file says when `given`; how far they may be off it says when `tolerant`. */
static mha_verdict checked(mha_layout layout, mha_path path, double wrong, const int64_t offset[B], bool given,
                           bool tolerant)
{
    static float x[B * T * H * D], y[B * T * H * D];
    static double y64[B * T * H * D];
    size_t b = layout == MHA_TE ? 1 : B, n = b * T * H * D;
    mha_view in = mha_view_heads(x, MHA_F32, layout, b, T, H, D), out = mha_view_heads(y, MHA_F32, layout, b, T, H, D);
    mha_view out64 = mha_view_heads(y64, MHA_F64, layout, b, T, H, D);
    mha_random_fill(&in, 11, 0, -1.0f, 1.0f);
    mha_rope rope = {.kind = MHA_ROPE_INTERLEAVED, .dim = 6, .base = 100};
    mha_error error;
    for (size_t row = 0; row < b; row++) {
        mha_view from = mha_view_slice(&in, 0, row, 1), to = mha_view_slice(&out, 0, row, 1),
                 to64 = mha_view_slice(&out64, 0, row, 1);
        if (offset[row] == INT64_MAX) {
            assert_int_equal(rotate_alone(&from, &rope, offset[row], MHA_PATH_EXACT, &to, &error), MHA_INVALID);
            assert_string_equal(error.name, "offset");
            continue;
        }
        assert_ok(rotate_alone(&from, &rope, offset[row], MHA_PATH_EXACT, &to, &error), error);
        assert_ok(rotate_alone(&from, &rope, offset[row], MHA_PATH_EXACT, &to64, &error), error);
    }
    y[n - 1] += (float)wrong;
    y64[n - 1] += wrong;
    static const size_t shapes[][4] = {[MHA_BTE] = {B, T, H * D},
                                       [MHA_TBE] = {T, B, H * D},
                                       [MHA_TE] = {T, H * D},
                                       [MHA_BHTD] = {B, H, T, D},
                                       [MHA_BTHD] = {B, T, H, D}};
    int rank = layout == MHA_TE ? 2 : layout == MHA_BHTD || layout == MHA_BTHD ? 4 : 3;
    mha_view stored = mha_view_of(x, MHA_F32, rank, shapes[layout]),
             expected = mha_view_of(y, MHA_F32, rank, shapes[layout]);
    mha_view expected64 = mha_view_of(y64, MHA_F64, rank, shapes[layout]);
    const char *file = scratch_path("rope.safetensors");
    const char *const metadata[][2] = {{"format_version", "1"}, {"kind", "rope"}, {"name", "rope"}, {"num_heads", "3"},
                                       {"kv_heads", "3"}, {"layout", mha__layout_name(layout)}, {"rope", "interleaved"},
                                       {"rope_dim", "6"}, {"rope_base", "100"}, {"rtol", "1e-6"}, {"atol", "1e-6"},
                                       {"rtol64", "1e-12"}, {"atol64", "1e-12"}};
    mha_writer *writer;
    assert_ok(mha_writer_create(file, &writer, &error), error);
    for (size_t i = 0; i < sizeof metadata / sizeof *metadata - (tolerant ? 0 : 4); i++)
        assert_ok(mha_writer_add_metadata(writer, metadata[i][0], metadata[i][1], &error), error);
    assert_ok(mha_writer_add(writer, "query", &stored, &error), error);
    int64_t stored_offset[B];
    memcpy(stored_offset, offset, sizeof stored_offset);
    mha_view offsets = mha_view_of(stored_offset, MHA_I64, 1, (size_t[]){b});
    if (given)
        assert_ok(mha_writer_add(writer, "position_offset", &offsets, &error), error);
    assert_ok(mha_writer_add(writer, "expected.output", &expected, &error), error);
    assert_ok(mha_writer_add(writer, "expected64.output", &expected64, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    return check(file, path, NULL);
}

static const int64_t none[B] = {0, 0};

static void rotation_is_checked_in_every_layout(void **state)
{
    (void)state;
    for (int layout = 0; layout < MHA_LAYOUT_COUNT; layout++)
        for (int path = 0; path < MHA_PATH_COUNT; path++) {
            mha_verdict right = checked((mha_layout)layout, (mha_path)path, 0, none, false, true),
                        wrong = checked((mha_layout)layout, (mha_path)path, 1e-3, none, false, true);
            if (right.outcome != MHA_OUTCOME_PASSED)
                fail_msg("%s, %s: %s", mha__layout_name((mha_layout)layout), mha_path_name((mha_path)path),
                         right.reason);
            assert_int_equal(right.stages[0].difference.elements, (layout == MHA_TE ? 1 : B) * T * H * D);
            assert_int_equal(wrong.outcome, MHA_OUTCOME_FAILED);
            assert_int_equal(wrong.stages[0].difference.mismatches, 1);
            mha_verdict_clear(&right);
            mha_verdict_clear(&wrong);
        }
}

/* Every batch row begins where it says, in front of position 0 too; what is out of range is refused. */
static void every_row_has_its_own_offset(void **state)
{
    (void)state;
    static const int64_t offset[B] = {7, -3}, far[B] = {7, INT64_MAX};
    for (int layout = 0; layout < MHA_LAYOUT_COUNT; layout++)
        for (int path = 0; path < MHA_PATH_COUNT; path++) {
            mha_verdict v = checked((mha_layout)layout, (mha_path)path, 0, offset, true, true);
            if (v.outcome != MHA_OUTCOME_PASSED)
                fail_msg("%s, %s: %s", mha__layout_name((mha_layout)layout), mha_path_name((mha_path)path), v.reason);
            mha_verdict_clear(&v);
        }
    mha_verdict v = checked(MHA_BTE, MHA_PATH_EXACT, 0, far, true, true);
    assert_int_equal(v.outcome, MHA_OUTCOME_FAILED);
    assert_non_null(strstr(v.reason, "of row 1"));
    mha_verdict_clear(&v);
}

/* Without a tolerance in the file an offset counts as far as it goes: what is wrong near 0 may be rounding at 2^40. */
static void offsets_without_tolerance(void **state)
{
    (void)state;
    static const int64_t near[B] = {7, -3}, far[][B] = {{INT64_C(1) << 40, -3}, {7, -(INT64_C(1) << 40)}};
    for (int path = 0; path < MHA_PATH_COUNT; path++) {
        mha_verdict right = checked(MHA_BTE, (mha_path)path, 0, near, true, false),
                    wrong = checked(MHA_BTE, (mha_path)path, 1e-4, near, true, false);
        assert_int_equal(right.outcome, MHA_OUTCOME_PASSED);
        assert_int_equal(wrong.outcome, MHA_OUTCOME_FAILED);
        mha_verdict_clear(&right);
        mha_verdict_clear(&wrong);
        for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
            mha_verdict rounded = checked(MHA_BTE, (mha_path)path, 1e-4, far[i], true, false),
                        off = checked(MHA_BTE, (mha_path)path, 1e-2, far[i], true, false);
            assert_int_equal(rounded.outcome, MHA_OUTCOME_PASSED);
            assert_int_equal(off.outcome, MHA_OUTCOME_FAILED);
            mha_verdict_clear(&rounded);
            mha_verdict_clear(&off);
        }
    }
}

/* ---------------------------------------------------------------- far positions, no tolerance in the file */

/* How others find the angle of pair i at position p. */
typedef enum formula { QUOTIENT, RECIPROCAL, LONG_DOUBLE, FORMULAS } formula;

static void turn(formula f, double p, size_t i, double *c, double *s)
{
    const double power = pow(10000, 2.0 * (double)i / D);
    const long double wide = (long double)p / powl(10000, 2.0L * (long double)i / D);
    const double angle = f == QUOTIENT ? p / power : p * (1 / power);
    *c = f == LONG_DOUBLE ? (double)cosl(wide) : cos(angle);
    *s = f == LONG_DOUBLE ? (double)sinl(wide) : sin(angle);
}

/* A case of that kind with positions from `first` on, whose rotated queries are `shift` further on. */
static mha_verdict checked_far(const char *kind, mha_path path, int64_t first, double shift, formula f)
{
    static float x[T * H * D], y[T * H * D];
    static double y64[T * H * D];
    static int64_t positions[T];
    mha_view in = mha_view_of(x, MHA_F32, 3, (size_t[]){1, T, H * D}),
             ids = mha_view_of(positions, MHA_I64, 2, (size_t[]){1, T});
    mha_view out = mha_view_of(y, MHA_F32, 3, in.shape), out64 = mha_view_of(y64, MHA_F64, 3, in.shape);
    mha_random_fill(&in, 5, 0, -1.0f, 1.0f);
    for (size_t t = 0; t < T; t++) {
        positions[t] = first + (int64_t)t;
        for (size_t e = 0; e < H * D; e++) {
            const size_t one = e % D % (D / 2), at = t * H * D + e / D * D + one;
            double c, s;
            turn(f, (double)positions[t] + shift, one, &c, &s);
            const double turned = e % D < D / 2 ? x[at] * c - x[at + D / 2] * s : x[at + D / 2] * c + x[at] * s;
            y64[t * H * D + e] = turned;
            y[t * H * D + e] = (float)turned;
        }
    }
    const bool alone = strcmp(kind, "rope") == 0;
    const char *file = scratch_path("far.safetensors");
    const char *const metadata[][2] = {{"kind", kind}, {"num_heads", "3"}, {"layout", "BTE"}, {"rope", "half_split"}};
    mha_error error;
    mha_writer *writer;
    assert_ok(mha_writer_create(file, &writer, &error), error);
    for (size_t i = 0; i < sizeof metadata / sizeof *metadata; i++)
        assert_ok(mha_writer_add_metadata(writer, metadata[i][0], metadata[i][1], &error), error);
    assert_ok(mha_writer_add(writer, "query", &in, &error), error);
    if (!alone) {
        assert_ok(mha_writer_add(writer, "key", &in, &error), error);
        assert_ok(mha_writer_add(writer, "value", &in, &error), error);
    }
    assert_ok(mha_writer_add(writer, "position_ids", &ids, &error), error);
    assert_ok(mha_writer_add(writer, alone ? "expected.output" : "expected.q_rot", &out, &error), error);
    assert_ok(mha_writer_add(writer, alone ? "expected64.output" : "expected64.q_rot", &out64, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    return check(file, path, NULL);
}

/* An angle is as far off as its position is far: right results pass whatever formula they come from, those of the
 * neighbouring position do not, nor those a small part of a position off where a double still says so. */
static void far_positions_have_coarser_angles(void **state)
{
    (void)state;
    static const int64_t first[] = {0, 300, 5000, 1000000, INT64_C(1) << 40, -(INT64_C(1) << 40)};
    static const char *const kinds[] = {"rope", "sdpa"};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof first / sizeof *first; i++)
            for (int path = MHA_PATH_FAST; path <= MHA_PATH_EXACT; path++) {
                for (int f = 0; f < FORMULAS; f++) {
                    mha_verdict v = checked_far(kinds[k], (mha_path)path, first[i], 0, (formula)f);
                    if (v.outcome != MHA_OUTCOME_PASSED)
                        fail_msg("%s, %s, from %lld on, formula %d: %s", kinds[k], mha_path_name((mha_path)path),
                                 (long long)first[i], f, v.reason);
                    mha_verdict_clear(&v);
                }
                const double shifts[] = {1, -1, llabs(first[i]) <= 1000000 ? 1e-3 : 4e-3};
                for (size_t s = 0; s < 3; s++) {
                    mha_verdict v = checked_far(kinds[k], (mha_path)path, first[i], shifts[s], QUOTIENT);
                    if (v.outcome != MHA_OUTCOME_FAILED)
                        fail_msg("%s, %s, from %lld on: a shift of %g passed", kinds[k], mha_path_name((mha_path)path),
                                 (long long)first[i], shifts[s]);
                    mha_verdict_clear(&v);
                }
            }
}

/* ---------------------------------------------------------------- the bound */

/* One row turned at random: where, how wide, which pairs, how fast. */
typedef struct rotation {
    mha_rope rope;
    size_t d;
    int64_t position;
} rotation;

static rotation draw(uint64_t seed)
{
    static const double bases[] = {10000, 1, 2, 500, 1e6, 1e30};
    uint64_t word[5];
    for (size_t i = 0; i < 5; i++)
        word[i] = mha__random_bits(77, seed, i);
    const size_t d = 2 * (1 + word[0] % (MOST / 2)), pairs = 1 + word[1] % (d / 2);
    const int64_t far = (int64_t)pow(2, (double)(word[4] % 4600) / 100);
    return (rotation){.d = d,
                      .rope = {.kind = word[2] % 2 ? MHA_ROPE_INTERLEAVED : MHA_ROPE_HALF_SPLIT,
                               .dim = 2 * pairs,
                               .base = bases[word[3] % 6]},
                      .position = word[2] & 2 ? far : -far};
}

/* Feature e of the row turned. */
static long double turned(const rotation *r, const float *x, size_t e)
{
    const size_t dim = r->rope.dim, pairs = dim / 2;
    const bool split = r->rope.kind == MHA_ROPE_HALF_SPLIT, second = split ? e >= pairs : e % 2;
    const size_t i = split ? e % pairs : e / 2, step = split ? pairs : 1;
    if (e >= dim)
        return x[e];
    const long double angle = (long double)r->position * powl(r->rope.base, -2.0L * (long double)i / (long double)dim);
    return second ? x[e] * cosl(angle) + x[e - step] * sinl(angle) : x[e] * cosl(angle) - x[e + step] * sinl(angle);
}

/* Compares the row on a path with the bound of the rotation, which it returns; `part`: the largest used part of it. */
static double hold(const rotation *r, float *x, mha_path path, double *part)
{
    const size_t shape[4] = {1, 1, 1, r->d};
    int64_t position[1] = {r->position};
    mha_view in = mha_view_of(x, MHA_F32, 4, shape);
    mha_call call = {.query = in, .key = in, .value = in, .semantics.qkv.rope = r->rope};
    call.semantics.qkv.rope.q_positions = mha_view_of(position, MHA_I64, 2, shape);
    mha_error error;
    double bound[MHA_STAGE_COUNT];
    rerun run;
    rerun_init(&run, NULL, &call, NULL, NULL);
    assert_ok(rerun_run(&run, path, 1, 1u << MHA_STAGE_Q_ROT | 1u << MHA_STAGE_K_ROT, &error), error);
    assert_ok(mha_error_bound(NULL, &call, path == MHA_PATH_EXACT ? 0x1p-53 : 0x1p-24, bound, MHA_STAGE_COUNT, &error),
              error);
    for (size_t e = 0; e < r->d; e++)
        for (int s = MHA_STAGE_Q_ROT; s <= MHA_STAGE_K_ROT; s++) {
            const double off = fabs((double)(mha_view_get(&run.stages[s], (size_t[]){0, 0, e}) - turned(r, x, e)));
            if (!(off <= bound[s]))
                fail_msg("%s, d %zu, dim %zu, base %g, position %lld, feature %zu: off by %g, bound %g",
                         mha_path_name(path), r->d, r->rope.dim, r->rope.base, (long long)r->position, e, off,
                         bound[s]);
            *part = fmax(*part, off / bound[s]);
        }
    rerun_free(&run);
    return bound[MHA_STAGE_Q_ROT];
}

/* Rounded angles never move a row farther than the bound says, at any position, and they use up a good part of what
 * it says. */
static void rounded_angles_stay_within_the_bound(void **state)
{
    (void)state;
    float x[MOST];
    mha_view all = mha_view_of(x, MHA_F32, 1, (size_t[]){MOST});
    double check = 0, narrow = 0;
    for (uint64_t seed = 0; seed < 4000; seed++) {
        const rotation r = draw(seed);
        mha_random_fill(&all, 13, seed, -2, 2);
        (void)hold(&r, x, MHA_PATH_EXACT, &check);
        (void)hold(&r, x, MHA_PATH_FAST, &narrow);
        (void)hold(&r, x, MHA_PATH_BLAS, &narrow);
    }
    assert_true(check > 0.1 && narrow > 0.1);
}

/* Far away an ordinary head, 32 pairs of base 10000, is not as far off as if all of them turned as fast as the first
 * and had a rounded frequency: w (|ln base| + 5) p for each is more than eight times what it is. */
static void slow_pairs_are_hardly_off(void **state)
{
    (void)state;
    const rotation r = {.d = 64, .rope = {.kind = MHA_ROPE_HALF_SPLIT, .dim = 64, .base = 10000}, .position = 1 << 30};
    float x[64];
    double part = 0;
    for (size_t e = 0; e < 64; e++)
        x[e] = 1;
    const double like_the_first = 0x1p-53 * (log(10000) + 5) * 0x1p30 * 8; /* the row is 8 long */
    assert_true(hold(&r, x, MHA_PATH_EXACT, &part) < like_the_first / 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rotation_is_checked_in_every_layout),
                                       cmocka_unit_test(every_row_has_its_own_offset),
                                       cmocka_unit_test(offsets_without_tolerance),
                                       cmocka_unit_test(far_positions_have_coarser_angles),
                                       cmocka_unit_test(rounded_angles_stay_within_the_bound),
                                       cmocka_unit_test(slow_pairs_are_hardly_off)};
    return cmocka_run_group_tests_name("verify_rope", tests, NULL, NULL);
}
