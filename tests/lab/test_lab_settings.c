/* Functions of libmha-lab on the table of settings: compare semantics, find a name that is nearly right, put an array.
 */
#include <string.h>

#include "attention/call/settings/settings.h"
#include "lab/settings.h"
#include "support/any_setting.h"
#include "support/unit.h"

static int64_t some[8];

static void a_name_that_is_nearly_right_is_found(void **state)
{
    (void)state;
    const mha_setting *s;
    for (size_t i = 0; (s = mha_setting_at(i)) != NULL; i++) {
        char names[200], *rest;
        snprintf(names, sizeof names, "%s", s->foreign ? s->foreign : "");
        for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
            assert_ptr_equal(mha__setting_near(name), s);
    }
    assert_string_equal(mha__setting_near("Window-lef")->name, "window_left");
    assert_string_equal(mha__setting_near("casual")->name, "causal");
    assert_string_equal(mha__setting_near("sm_scale")->name, "scale");
    assert_null(mha__setting_near("xyzzyxyzzy"));
    assert_null(mha__setting_near("a_name_that_is_longer_than_any_setting_could_ever_be_called"));
}

static void an_array_is_put_and_seen_as_a_view(void **state)
{
    (void)state;
    static int64_t whole[5] = {1, 2, 3, 4, 5};
    static double real[5];
    static float narrow[5];
    const mha_view three = mha_view_of(whole, MHA_I64, 1, (size_t[]){3}), none = {0},
                   five = mha_view_of(whole, MHA_I64, 1, (size_t[]){5}),
                   wide = mha_view_of(real, MHA_F64, 1, (size_t[]){5}),
                   slim = mha_view_of(narrow, MHA_F32, 1, (size_t[]){5});
    const mha_setting *s;
    mha_semantics m = {.softmax.has_scale = false};
    mha_error error;
    for (size_t i = 0; (s = mha_setting_at(i)) != NULL; i++) {
        const mha_view before = mha__setting_view(s, &m, 2, 5), *put = s->kind == MHA_SETTING_REALS ? &wide : &three;
        assert_null(before.data);
        if (s->kind < MHA_SETTING_VIEW) {
            assert_refused(mha__setting_put_view(s, &none, &m, &error), MHA_UNSUPPORTED, error, "not an array");
            continue;
        }
        mha_semantics own = {.softmax.has_scale = false};
        assert_ok(mha__setting_put_view(s, put, &own, &error), error);
        const mha_view seen = mha__setting_view(s, &own, 3, 5);
        assert_int_equal(seen.dtype, put->dtype);
        assert_int_equal(seen.shape[0], put->shape[0]);
        assert_true(mha_view_get(&seen, (size_t[]){2}) == mha_view_get(put, (size_t[]){2}));
        if (s->kind != MHA_SETTING_VIEW)
            assert_refused(mha__setting_put_view(s, &slim, &m, &error), MHA_INVALID, error, s->name);
    }
    s = mha_setting_find("cu_seqlens_k");
    m.place.n_sequences = 2;
    assert_refused(mha__setting_put_view(s, &five, &m, &error), MHA_INVALID, error, "n_sequences + 1 = 3", "found 5");
    assert_ok(mha__setting_put_view(s, &three, &m, &error), error);
}

/* Gives a setting some value, of any kind. */
static void give(const mha_setting *s, mha_semantics *semantics)
{
    const mha_dtype type = s->kind == MHA_SETTING_REALS ? MHA_F64 : MHA_I64;
    const mha_view view = mha_view_of(some, type, 1, (size_t[]){8});
    if (any_setting_is_array(s))
        assert_int_equal(mha__setting_put_view(s, &view, semantics, NULL), MHA_OK);
    else
        any_setting_put(s, 0, semantics);
}

/* A setting makes its group differ, and no other. */
static void groups_are_compared(void **state)
{
    (void)state;
    static const mha_semantics none;
    const mha_setting *s;
    for (size_t i = 0; (s = mha_setting_at(i)) != NULL; i++)
        for (mha_setting_group group = MHA_SETTINGS_PLACE; group < MHA_SETTINGS_GROUP_COUNT; group++) {
            mha_semantics semantics = {.place = {0}};
            give(s, &semantics);
            const mha_semantics copy = semantics;
            assert_true(mha__settings_same(group, &semantics, &none) == (s->group != group));
            assert_true(mha__settings_same(group, &semantics, &copy));
        }
}

/* The same numbers in another order are another array. */
static void strides_are_compared(void **state)
{
    (void)state;
    const mha_semantics s = {
        .visible.mask = {MHA_MASK_ADDITIVE, mha_view_of(some, MHA_F32, 2, (size_t[]){2, 2})}};
    mha_semantics turned = s;
    turned.visible.mask.values = mha__view_swap(&s.visible.mask.values, 0, 1);
    assert_true(turned.visible.mask.values.data == s.visible.mask.values.data);
    assert_false(mha__settings_same(MHA_SETTINGS_VISIBLE, &s, &turned));
    turned.visible.mask.values = s.visible.mask.values;
    turned.visible.mask.values.stride[2] = 7; /* beyond the rank */
    assert_true(mha__settings_same(MHA_SETTINGS_VISIBLE, &s, &turned));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_that_is_nearly_right_is_found),
        cmocka_unit_test(an_array_is_put_and_seen_as_a_view),
        cmocka_unit_test(groups_are_compared),
        cmocka_unit_test(strides_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
