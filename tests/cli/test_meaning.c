/* What a report says of the settings of a call: each row of the table that is given has its name there, and a value. */
#include <math.h>
#include <string.h>

#include "cli/setup/meaning.h"
#include "mha/setting.h"
#include "support/unit.h"

/* Gives a setting some value that is not the default, without what it needs. */
static void give(const mha_setting *s, mha_semantics *semantics)
{
    static double numbers[4];
    static const void *const pointer = numbers;
    const mha_view view = mha_view_of(numbers, MHA_F64, 1, (size_t[]){4});
    mha_error error;
    if (s->kind == MHA_SETTING_VIEW)
        memcpy((char *)semantics + s->at, &view, sizeof view);
    else if (s->kind > MHA_SETTING_VIEW)
        memcpy((char *)semantics + s->at, &pointer, sizeof pointer);
    else {
        const double x = s->kind == MHA_SETTING_REAL ? fmin(1, s->highest / 2) : fmax(1, (double)s->least);
        assert_ok(mha_setting_put_number(s, x, semantics, &error), error);
    }
}

static void every_setting_is_told_by_name(void **state)
{
    (void)state;
    char text[MEANING_TEXT], before[MEANING_TEXT];
    for (size_t i = 0; mha_setting_at(i); i++) {
        const mha_setting *s = mha_setting_at(i);
        mha_semantics semantics = {0};
        const meaning_of of = {.semantics = &semantics, .normed = true};
        meaning_text(&of, before);
        give(s, &semantics);
        meaning_text(&of, text);
        json_t *object = meaning_json(&of), *value = json_object_get(object, s->name);
        const char *at = strstr(text, s->name);
        if (!at || strcmp(before, text) == 0 || !value)
            fail_msg("%s: told as \"%s\", as JSON %s", s->name, text, value ? "too" : "not at all");
        assert_int_equal(json_is_true(value), s->kind == MHA_SETTING_SWITCH);
        assert_int_equal(json_is_real(value), s->kind == MHA_SETTING_REAL);
        assert_int_equal(json_is_integer(value), s->kind == MHA_SETTING_WHOLE || s->kind == MHA_SETTING_COUNT);
        assert_int_equal(at[strlen(s->name)] == ' ', s->kind != MHA_SETTING_SWITCH);
        json_decref(object);
    }
}

static void plain_attention_needs_no_words(void **state)
{
    (void)state;
    char text[MEANING_TEXT];
    meaning_text(&(meaning_of){.semantics = &(mha_semantics){.qkv.norm_eps = 1e-5}}, text);
    assert_string_equal(text, "");
}

static void what_a_layer_adds(void **state)
{
    (void)state;
    static double turns[2];
    char text[MEANING_TEXT];
    const mha_semantics s = {.visible.causal = true,
                             .visible.has_window_left = true,
                             .visible.window_left = 2,
                             .qkv.rope = {.kind = MHA_ROPE_HALF_SPLIT,
                                      .frequencies = mha_view_of(turns, MHA_F64, 1, (size_t[]){2})},
                             .qkv.norm_eps = 0.1,
                             .softmax.has_scale = true};
    meaning_text(&(meaning_of){.semantics = &s, .normed = true, .scaling = "by 2"}, text);
    assert_string_equal(text, "norm_kind rms, norm_eps 0.1, rope half_split, rope_frequencies scaled: by 2, causal, "
                              "window_left 2, scale 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_is_told_by_name),
        cmocka_unit_test(plain_attention_needs_no_words),
        cmocka_unit_test(what_a_layer_adds),
    };
    return cmocka_run_group_tests_name("the meaning of settings", tests, NULL, NULL);
}
