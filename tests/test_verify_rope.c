/* Cases of kind rope in every layout: rotation alone, judged on every path, and noticed when it is wrong. */
#include "support/unit.h"

#include <math.h>
#include <string.h>

#include "mha/mha.h"
#include "support/scratch.h"
#include "support/verdict.h"

enum { B = 2, T = 5, H = 3, D = 8 };

/* The case in `layout` (TE: the first batch row), its expected numbers off by `wrong` in one place. */
static mha_verdict judged(mha_layout layout, mha_path path, double wrong)
{
    static float x[B * T * H * D], y[B * T * H * D];
    static double y64[B * T * H * D];
    size_t b = layout == MHA_TE ? 1 : B, n = b * T * H * D;
    mha_view in = mha_view_heads(x, MHA_F32, layout, b, T, H, D), out = mha_view_heads(y, MHA_F32, layout, b, T, H, D);
    mha_view out64 = mha_view_heads(y64, MHA_F64, layout, b, T, H, D);
    mha_random_fill(&in, 11, 0, -1.0f, 1.0f);
    mha_rope rope = {.kind = MHA_ROPE_INTERLEAVED, .dim = 6, .base = 100};
    mha_error error;
    assert_ok(mha_rotate(&in, &rope, 0, true, &out, &error), error);
    assert_ok(mha_rotate(&in, &rope, 0, true, &out64, &error), error);
    y[n - 1] += (float)wrong;
    y64[n - 1] += wrong;
    static const size_t shapes[][4] = {
        [MHA_BTE] = {B, T, H * D}, [MHA_TBE] = {T, B, H * D}, [MHA_TE] = {T, H * D}, [MHA_BHTD] = {B, H, T, D}, [MHA_BTHD] = {B, T, H, D}};
    int rank = layout == MHA_TE ? 2 : layout == MHA_BHTD || layout == MHA_BTHD ? 4 : 3;
    mha_view stored = mha_view_of(x, MHA_F32, rank, shapes[layout]), expected = mha_view_of(y, MHA_F32, rank, shapes[layout]);
    mha_view expected64 = mha_view_of(y64, MHA_F64, rank, shapes[layout]);
    const char *file = scratch_path("rope.safetensors");
    const char *const metadata[][2] = {{"format_version", "1"}, {"kind", "rope"}, {"name", "rope"}, {"num_heads", "3"},
                                       {"kv_heads", "3"}, {"layout", mha_layout_name(layout)}, {"rope", "interleaved"},
                                       {"rope_dim", "6"}, {"rope_base", "100"}, {"rtol", "1e-6"}, {"atol", "1e-6"},
                                       {"rtol64", "1e-12"}, {"atol64", "1e-12"}};
    mha_writer *writer;
    assert_ok(mha_writer_create(file, &writer, &error), error);
    for (size_t i = 0; i < sizeof metadata / sizeof *metadata; i++)
        assert_ok(mha_writer_metadata(writer, metadata[i][0], metadata[i][1], &error), error);
    assert_ok(mha_writer_add(writer, "query", &stored, &error), error);
    assert_ok(mha_writer_add(writer, "expected.output", &expected, &error), error);
    assert_ok(mha_writer_add(writer, "expected64.output", &expected64, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    return judge(file, path, NULL);
}

static void rotation_is_judged_in_every_layout(void **state)
{
    (void)state;
    for (int layout = 0; layout < MHA_LAYOUT_COUNT; layout++)
        for (int path = 0; path < MHA_PATH_COUNT; path++) {
            mha_verdict right = judged((mha_layout)layout, (mha_path)path, 0), wrong = judged((mha_layout)layout, (mha_path)path, 1e-3);
            if (right.outcome != MHA_PASSED)
                fail_msg("%s, %s: %s", mha_layout_name((mha_layout)layout), mha_path_name((mha_path)path), right.reason);
            assert_int_equal(right.stages[0].difference.elements, (layout == MHA_TE ? 1 : B) * T * H * D);
            assert_int_equal(wrong.outcome, MHA_FAILED);
            assert_int_equal(wrong.stages[0].difference.mismatches, 1);
            mha_verdict_free(&right);
            mha_verdict_free(&wrong);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rotation_is_judged_in_every_layout)};
    return cmocka_run_group_tests_name("verify_rope", tests, NULL, NULL);
}
