/* The table of settings: rows that hold what they promise, numbers written and read, ranges, and what needs what. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/plan.h"
#include "attention/call/definition.h"
#include "attention/call/settings/settings.h"
#include "mha/mha.h"
#include "support/unit.h"

static bool is_array(const mha_setting *s)
{
    return s->kind >= MHA_SETTING_VIEW;
}

/* Word `index` of a list; "" past the last. */
static const char *word_of(const char *list, char separator, size_t index, char word[80])
{
    const char *at = list ? list : "";
    for (; index > 0 && *at; index--)
        at = strchr(at, separator) ? strchr(at, separator) + 1 : "";
    snprintf(word, 80, "%.*s", (int)(strchr(at, separator) ? strchr(at, separator) - at : (ptrdiff_t)strlen(at)), at);
    return word;
}

/* ---------------------------------------------------------------- rows */

static void names_are_found_and_unique(void **state)
{
    (void)state;
    const mha_setting *s;
    size_t rows = 0;
    char word[80];
    for (; (s = mha_setting_at(rows)) != NULL; rows++) {
        assert_ptr_equal(mha_setting_find(s->name), s);
        for (size_t i = 0; *word_of(s->aliases, ' ', i, word); i++)
            assert_ptr_equal(mha_setting_find(word), s);
        for (size_t i = 0; *word_of(s->foreign, ' ', i, word); i++)
            assert_null(mha_setting_find(word));
        char option[80];
        snprintf(option, sizeof option, "%s", s->name);
        for (char *at = option; *at; at++)
            *at = *at == '_' ? '-' : *at;
        assert_ptr_equal(mha_setting_find(option), s);
    }
    assert_true(rows > 60);
    assert_null(mha_setting_at(rows));
    assert_null(mha_setting_at(SIZE_MAX));
    static const char *const unknown[] = {"", "w", "window", "window_lef", "window_lefty", "window_left "};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_null(mha_setting_find(unknown[i]));
}

static void rows_are_whole(void **state)
{
    (void)state;
    const mha_setting *s;
    char word[80], need[80];
    int group = 0;
    for (size_t i = 0; (s = mha_setting_at(i)) != NULL; i++) {
        assert_true((int)s->group >= group && (int)s->group < MHA_SETTINGS_GROUP_COUNT);
        group = (int)s->group;
        assert_true(s->kind < MHA_SETTING_KIND_COUNT);
        assert_true(s->meaning && strlen(s->meaning) > 5 && s->meaning[strlen(s->meaning) - 1] != '.');
        assert_true(s->at + sizeof(bool) <= sizeof(mha_semantics));
        assert_int_equal(s->kind == MHA_SETTING_CHOICE, s->choices != NULL);
        assert_int_equal(is_array(s), s->shape != NULL);
        assert_int_equal(s->kind > MHA_SETTING_VIEW, s->per != MHA_PER_NOTHING);
        if (s->kind == MHA_SETTING_REAL)
            assert_true(s->lowest < s->highest);
        if (s->kind == MHA_SETTING_WHOLE || s->kind == MHA_SETTING_COUNT)
            assert_true(s->least < s->most);
        if (!s->needs)
            continue;
        const mha_setting *needed = mha_setting_find(word_of(s->needs, '=', 0, word));
        assert_non_null(needed);
        const char *const words = strchr(s->needs, '=');
        for (size_t k = 0; words && *word_of(words + 1, ',', k, need); k++) {
            mha_semantics semantics = {0};
            mha_error error;
            assert_ok(mha_setting_put(needed, need, &semantics, &error), error);
            assert_true(mha_setting_given(needed, &semantics));
        }
    }
}

/* ---------------------------------------------------------------- one number */

static bool is_marked(const mha_setting *s)
{
    return s->given_at != SIZE_MAX;
}

/* Numbers that a row takes: both ends of its range and some between. */
static size_t numbers_of(const mha_setting *s, double numbers[8])
{
    size_t n = 0;
    char word[80];
    if (s->kind == MHA_SETTING_CHOICE)
        while (n < 8 && *word_of(s->choices, '|', n, word))
            numbers[n] = (double)n, n++;
    else if (s->kind == MHA_SETTING_SWITCH)
        numbers[n++] = 0, numbers[n++] = 1;
    else if (s->kind == MHA_SETTING_REAL) {
        const double some[] = {s->lowest, s->highest, fmin(fmax(0.1, s->lowest), s->highest), s->highest / 2};
        for (; n < 4; n++)
            numbers[n] = fmax(some[n], s->lowest);
    } else {
        const double low = s->least < -1 ? -0x1p53 : (double)s->least, high = fmin((double)s->most, 0x1p53);
        numbers[n++] = low, numbers[n++] = fmin(fmax(1, low), high), numbers[n++] = fmin(7, high), numbers[n++] = high;
    }
    return n;
}

/* Every number, from a number and from text, is what is read; no byte but the setting's own and its mark's changes. */
static void what_is_put_is_read(void **state)
{
    (void)state;
    const mha_setting *s, *other;
    mha_error error;
    for (size_t i = 0; (s = mha_setting_at(i)) != NULL; i++) {
        double numbers[8];
        const size_t n = is_array(s) ? 0 : numbers_of(s, numbers);
        for (size_t k = 0; k < n; k++) {
            mha_semantics one = {0}, two = {0}, plain = {0};
            char text[80], again[80];
            assert_ok(mha_setting_put_number(s, numbers[k], &one, &error), error);
            assert_true(mha_setting_number(s, &one) == numbers[k] ||
                        (numbers[k] == 0 && !mha_setting_given(s, &one)));
            mha_setting_text(s, &one, text, sizeof text);
            if (mha_setting_given(s, &one)) {
                assert_ok(mha_setting_put(s, text, &two, &error), error);
                assert_memory_equal(&one, &two, sizeof one);
                assert_string_equal(mha_setting_text(s, &two, again, sizeof again), text);
            }
            assert_true(mha_setting_given(s, &one) == (numbers[k] != 0 || (is_marked(s) && numbers[k] != -1)) ||
                        (s->unset && atof(s->unset) == numbers[k]));
            for (size_t j = 0; (other = mha_setting_at(j)) != NULL; j++)
                if (other != s)
                    assert_false(mha_setting_given(other, &one));
            /* Putting 0, or what is unset, back gives plain semantics where nothing says that 0 is given. */
            assert_ok(is_marked(s) ? MHA_OK : mha_setting_put_number(s, 0, &one, &error), error);
            if (!is_marked(s))
                assert_memory_equal(&one, &plain, sizeof one);
        }
    }
}

static void windows_are_open_on_the_other_side(void **state)
{
    (void)state;
    mha_error error;
    mha_semantics s = {0};
    assert_ok(mha_setting_put(mha_setting_find("window_right"), "-1", &s, &error), error);
    assert_false(s.visible.has_window_right);
    assert_ok(mha_setting_put(mha_setting_find("window_left"), "0", &s, &error), error);
    assert_true(s.visible.has_window_left && s.visible.window_left == 0 && !s.visible.has_window_right);
    assert_ok(mha_setting_put(mha_setting_find("window_right"), "3", &s, &error), error);
    assert_true(s.visible.has_window_left && s.visible.window_left == 0 && s.visible.window_right == 3);
    assert_ok(mha_setting_put(mha_setting_find("window_left"), "-1", &s, &error), error);
    assert_true(!s.visible.has_window_left && s.visible.window_left == 0 && s.visible.window_right == 3);
    assert_true(mha_setting_number(mha_setting_find("window_left"), &(mha_semantics){0}) == -1);
    assert_true(isnan(mha_setting_number(mha_setting_find("scale"), &(mha_semantics){0})));
    assert_true(isnan(mha_setting_number(mha_setting_find("mask"), &s)));
    char text[80];
    assert_string_equal(mha_setting_text(mha_setting_find("scale"), &s, text, sizeof text), "1/sqrt(d_k)");
    s = (mha_semantics){.softmax.has_scale = true};
    assert_string_equal(mha_setting_text(mha_setting_find("scale"), &s, text, sizeof text), "0");
}

static void other_spellings_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *written;
    } words[] = {{"rope", "half", "half_split"},       {"rope", "half-split", "half_split"},
                 {"mask_kind", "keeps", "keeps"},      {"attn_mask_kind", "bool_true_masks", "hides"},
                 {"fully_masked", "none", "nan"},      {"causal", "true", "1"},
                 {"add_zero_attn", "true", "1"},       {"softcap", "1e1", "10"},
                 {"scale", "0.1", "0.10000000000000001"}, {"offset", "-9007199254740993", "-9007199254740993"},
                 {"softcap", "4.9406564584124654e-324", "4.9406564584124654e-324"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        mha_semantics s = {0};
        mha_error error;
        char text[80];
        const mha_setting *row = mha_setting_find(words[i].name);
        assert_ok(mha_setting_put(row, words[i].text, &s, &error), error);
        assert_string_equal(mha_setting_text(row, &s, text, sizeof text), words[i].written);
    }
}

/* ---------------------------------------------------------------- refusals */

static void refuse_text(const mha_setting *s, const char *text)
{
    mha_semantics semantics = {.softmax.softcap = 3}, before = semantics;
    mha_error error;
    assert_refused(mha_setting_put(s, text, &semantics, &error), is_array(s) ? MHA_UNSUPPORTED : MHA_INVALID, error,
                   s->name);
    assert_string_equal(error.name, s->name);
    assert_memory_equal(&semantics, &before, sizeof before);
}

static void refuse_number(const mha_setting *s, double number)
{
    mha_semantics semantics = {.softmax.softcap = 3}, before = semantics;
    mha_error error;
    assert_refused(mha_setting_put_number(s, number, &semantics, &error),
                   is_array(s) ? MHA_UNSUPPORTED : MHA_INVALID, error, s->name);
    assert_memory_equal(&semantics, &before, sizeof before);
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"", " 1", "1 ", "+1", "0x1", "1.5.", "one", "nan", "-", "1,2", "1e999"};
    const mha_setting *s;
    for (size_t i = 0; (s = mha_setting_at(i)) != NULL; i++) {
        const bool real = s->kind == MHA_SETTING_REAL,
                   whole = s->kind == MHA_SETTING_WHOLE || s->kind == MHA_SETTING_COUNT;
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
            if (!(real && (k == 1 || k == 3)) && !(s->kind == MHA_SETTING_CHOICE && strcmp(texts[k], "nan") == 0))
                refuse_text(s, texts[k]);
        refuse_number(s, NAN);
        refuse_number(s, INFINITY);
        refuse_number(s, -INFINITY);
        if (real && s->lowest > 0)
            refuse_number(s, -DBL_TRUE_MIN);
        if (!real)
            refuse_number(s, 0.5);
        if (s->kind == MHA_SETTING_SWITCH)
            refuse_number(s, 2), refuse_number(s, -1), refuse_text(s, "2");
        if (s->kind == MHA_SETTING_CHOICE)
            refuse_number(s, 9), refuse_number(s, -1), refuse_text(s, "1");
        char text[40];
        if (whole && s->least > INT64_MIN && s->least != 1) {
            const bool clears = s->least == 0 && s->unset && strcmp(s->unset, "-1") == 0; /* -1: not given */
            snprintf(text, sizeof text, "%lld", (long long)s->least - (clears ? 2 : 1));
            refuse_text(s, text);
        }
        if (whole && s->most < INT64_MAX) {
            snprintf(text, sizeof text, "%lld", (long long)s->most + 1);
            refuse_text(s, text);
        }
        if (whole)
            refuse_text(s, "9223372036854775808");
    }
}

/* ---------------------------------------------------------------- what needs what */

static int64_t some[8];

/* Gives a setting some value, of any kind. */
static void give(const mha_setting *s, const char *words, mha_semantics *semantics)
{
    const mha_view view = mha_view_of(some, MHA_I64, 1, (size_t[]){8});
    const int64_t *const pointer = some;
    mha_error error;
    char word[80];
    if (s->kind == MHA_SETTING_VIEW)
        memcpy((char *)semantics + s->at, &view, sizeof view);
    else if (is_array(s))
        memcpy((char *)semantics + s->at, &pointer, sizeof pointer);
    else if (words)
        assert_ok(mha_setting_put(s, word_of(words, ',', 0, word), semantics, &error), error);
    else {
        const bool below_1 = s->kind == MHA_SETTING_REAL && s->highest < 1;
        const double number = below_1 ? s->highest : s->least > 1 ? (double)s->least : 1;
        assert_ok(mha_setting_put_number(s, number, semantics, &error), error);
    }
    assert_true(mha_setting_given(s, semantics));
}

/* Gives what a setting needs, and what that needs. */
static void give_needs(const mha_setting *s, mha_semantics *semantics)
{
    char name[80];
    if (!s->needs)
        return;
    const mha_setting *needed = mha_setting_find(word_of(s->needs, '=', 0, name));
    give_needs(needed, semantics);
    give(needed, strchr(s->needs, '=') ? strchr(s->needs, '=') + 1 : NULL, semantics);
}

static float rows_of_call[16];

static mha_call a_call(void)
{
    const mha_view rows = mha_heads(rows_of_call, 1, 4, 1, 4);
    return (mha_call){.query = rows, .key = rows, .value = rows};
}

/* A setting alone is refused by its name and that of what it needs; with all that it needs it is fine; with another
 * word of a choice that it needs it is refused again. */
static void settings_without_effect_are_refused(void **state)
{
    (void)state;
    const mha_setting *s;
    mha_error error;
    char name[80], word[80];
    for (size_t i = 0; (s = mha_setting_at(i)) != NULL; i++) {
        mha_semantics semantics = {0};
        give(s, NULL, &semantics);
        if (!s->needs) {
            assert_ok(mha__settings_check(&semantics, false, &error), error);
            continue;
        }
        assert_refused(mha__settings_check(&semantics, false, &error), MHA_INVALID, error, s->name,
                       word_of(s->needs, '=', 0, name), "with it, found it unset");
        assert_string_equal(error.name, s->name);
        mha_call call = a_call();
        mha_plan plan;
        call.semantics = semantics;
        assert_refused(mha_plan_call(NULL, &call, &plan, &error), MHA_INVALID, error, s->name,
                       "with it, found it unset");
        give_needs(s, &semantics);
        assert_ok(mha__settings_check(&semantics, false, &error), error);
        const char *words = strchr(s->needs, '=');
        const mha_setting *needed = mha_setting_find(name);
        for (int value = 0; words && *word_of(needed->choices, '|', (size_t)value, word); value++) {
            char *const other = strchr(word, '=');
            if (other)
                *other = '\0';
            bool listed = false;
            char one[80];
            for (size_t k = 0; *word_of(words + 1, ',', k, one); k++)
                listed |= strcmp(one, word) == 0;
            assert_ok(mha_setting_put_number(needed, value, &semantics, &error), error);
            if (listed)
                assert_ok(mha__settings_check(&semantics, false, &error), error);
            else
                assert_refused(mha__settings_check(&semantics, false, &error), MHA_INVALID, error, s->name,
                               "with it, found it unset");
        }
    }
}

/* Writes a number past the table that its row has no room for, and what says that it is given; false: no such way. */
static bool write_beyond(const mha_setting *s, int way, mha_semantics *semantics)
{
    const double reals[] = {NAN, INFINITY, -INFINITY, s->lowest > 0 ? -DBL_TRUE_MIN : NAN};
    const int choice = way ? -1 : 99;
    const int64_t whole = way ? s->most : s->least;
    char *const at = (char *)semantics + s->at;
    if (s->kind == MHA_SETTING_REAL)
        memcpy(at, &reals[way], sizeof *reals);
    else if (s->kind == MHA_SETTING_CHOICE && way < 2)
        memcpy(at, &choice, sizeof choice);
    else if (s->kind == MHA_SETTING_WHOLE && way < 2 && whole != INT64_MAX && whole != 1)
        memcpy(at, &(int64_t){way ? whole + 1 : whole - 1}, sizeof whole);
    else
        return false;
    if (s->given_at != SIZE_MAX)
        memcpy((char *)semantics + s->given_at, &(bool){true}, sizeof(bool));
    return true;
}

/* Numbers that were written into the struct past the table are refused when a call is planned, by the same words. */
static void a_plan_refuses_what_the_table_refuses(void **state)
{
    (void)state;
    const mha_setting *s;
    size_t refused = 0;
    for (size_t i = 0; (s = mha_setting_at(i)) != NULL; i++)
        for (int way = 0; way < 4; way++) {
            mha_call call = a_call();
            mha_error error, planned;
            mha_plan plan;
            give_needs(s, &call.semantics);
            if (!write_beyond(s, way, &call.semantics))
                continue;
            assert_refused(mha__settings_check(&call.semantics, false, &error), MHA_INVALID, error, s->name,
                           "expected");
            assert_refused(mha_plan_call(NULL, &call, &plan, &planned), MHA_INVALID, planned, s->name);
            assert_string_equal(error.message, planned.message);
            refused++;
        }
    assert_true(refused > 80);
    mha_semantics window = {.visible.window_right = 3, .visible.window_keep = 1};
    mha_error error;
    assert_refused(mha__settings_check(&window, false, &error), MHA_INVALID, error, "window_keep", "`window_left`");
    window = (mha_semantics){.visible.window_left = -1};
    assert_refused(mha__settings_check(&window, false, &error), MHA_INVALID, error, "window_left", "from 0, found -1");
}

/* ---------------------------------------------------------------- arrays */

static void arrays_have_a_length_and_a_text(void **state)
{
    (void)state;
    static const int64_t cu[4] = {0, 1, 2, 3};
    static const double slopes[5] = {1, 1, 1, 1, 1};
    mha_semantics s = {
        .place = {.n_sequences = 3, .cu_seqlens_q = cu}, .visible.kv_lengths = cu, .added.alibi_slopes = slopes};
    char text[80];
    assert_int_equal(mha_setting_length(mha_setting_find("cu_seqlens_q"), &s, 1, 5), 4);
    assert_int_equal(mha_setting_length(mha_setting_find("cu_seqlens_k"), &s, 1, 5), 0);
    assert_int_equal(mha_setting_length(mha_setting_find("kv_lengths"), &s, 1, 5), 3);
    assert_int_equal(mha_setting_length(mha_setting_find("alibi_slopes"), &s, 1, 5), 5);
    assert_int_equal(mha_setting_length(mha_setting_find("softcap"), &s, 1, 5), 0);
    s.place.cu_seqlens_q = NULL;
    assert_int_equal(mha_setting_length(mha_setting_find("kv_lengths"), &s, 2, 5), 2);
    assert_string_equal(mha_setting_text(mha_setting_find("kv_lengths"), &s, text, sizeof text), "(B)");
    assert_string_equal(mha_setting_text(mha_setting_find("mask"), &s, text, sizeof text), "none");
    s.visible.mask = (mha_mask){MHA_MASK_ADDITIVE, mha_view_of(some, MHA_F32, 2, (size_t[]){2, 4})};
    assert_string_equal(mha_setting_text(mha_setting_find("mask"), &s, text, sizeof text), "F32 (2, 4)");
    s.softmax.normaliser = (mha_normaliser)7;
    assert_string_equal(mha_setting_text(mha_setting_find("normaliser"), &s, text, sizeof text), "7");
}

/* A number that float cannot hold is for the exact path; others refuse it, before they look at the inputs. */
static void numbers_beyond_float_need_the_exact_path(void **state)
{
    (void)state;
    static const double beyond[] = {1e300, 1e-60};
    const mha_setting *s;
    size_t found = 0;
    for (size_t i = 0; (s = mha_setting_at(i)) != NULL; i++)
        for (size_t k = 0; s->in_float && k < 2; k++) {
            mha_call call = a_call();
            mha_plan plan;
            mha_error error;
            assert_true(s->kind == MHA_SETTING_REAL);
            give_needs(s, &call.semantics);
            assert_ok(mha_setting_put_number(s, beyond[k], &call.semantics, &error), error);
            assert_ok(mha__settings_check(&call.semantics, false, &error), error);
            for (mha_path path = MHA_PATH_AUTO; path < MHA_PATH_COUNT; path++) {
                call.path = path;
                const mha_status status = mha_plan_call(NULL, &call, &plan, &error);
                const bool refused = status != MHA_OK && strstr(error.message, "float can hold");
                assert_true(refused == (path != MHA_PATH_EXACT && (beyond[k] > 1 || s->lowest > 0)));
                assert_true(!refused || (status == MHA_UNSUPPORTED && strcmp(error.name, s->name) == 0));
                found += refused;
            }
        }
    assert_true(found > 10);
}

/* A result in the memory of an array is refused by the name of the setting. */
static void no_result_is_written_over_a_setting(void **state)
{
    (void)state;
    static int64_t memory[8];
    const mha_setting *s;
    size_t found = 0;
    for (size_t i = 0; (s = mha_setting_at(i)) != NULL; i++) {
        if (!is_array(s))
            continue;
        mha__planned r = {.call.plan = {.B = 2, .h = 2}};
        mha_error error;
        r.semantics.place.n_sequences = 1;
        r.call.output = mha_view_of(memory, MHA_F64, 1, (const size_t[]){8});
        assert_ok(mha__expect_apart(&r.call, &error), error);
        const mha_view view = mha_view_of(memory + 6, MHA_I64, 1, (const size_t[]){2});
        char *const at = (char *)&r.semantics + s->at;
        if (s->kind == MHA_SETTING_VIEW)
            memcpy(at, &view, sizeof view);
        else
            memcpy(at, &view.data, sizeof view.data);
        char text[80];
        snprintf(text, sizeof text, "an overlap with %s", s->name);
        assert_refused(mha__expect_apart(&r.call, &error), MHA_INVALID, error, "output", text);
        found++;
    }
    assert_true(found >= 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_result_is_written_over_a_setting),
        cmocka_unit_test(names_are_found_and_unique),
        cmocka_unit_test(rows_are_whole),
        cmocka_unit_test(what_is_put_is_read),
        cmocka_unit_test(windows_are_open_on_the_other_side),
        cmocka_unit_test(other_spellings_are_read),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(settings_without_effect_are_refused),
        cmocka_unit_test(a_plan_refuses_what_the_table_refuses),
        cmocka_unit_test(arrays_have_a_length_and_a_text),
        cmocka_unit_test(numbers_beyond_float_need_the_exact_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
