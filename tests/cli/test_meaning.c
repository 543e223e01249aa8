/* What a report says of the settings of a call: each field of mha_semantics has words. */
#include <string.h>

#include "cli/setup/meaning.h"
#include "support/any_setting.h"
#include "support/fields.h"
#include "support/unit.h"

static void words_of(const mha_semantics *s, char text[MEANING_TEXT])
{
    meaning_text(&(meaning_of){.semantics = s, .normed = true, .bias_rows = 32, .scaling = NULL}, text);
}

/* Whether a report may be silent about a setting: what a mask holds is none, its kind is; and no forward reads what
 * tables were made of. */
static bool may_be_silent(const mha_setting *row)
{
    return strstr(row->field, ".values") || strncmp(row->field, "rope.origin.", 12) == 0;
}

static void *lent(void *context, size_t bytes)
{
    static double memory[4096];
    (void)context;
    assert_true(bytes <= sizeof memory);
    return memory;
}

/* Settings with which the others have a meaning: rules that exclude each other, numbers of which only the value 0 needs
 * a has_ field. */
static mha_semantics surroundings(int which)
{
    static const int64_t cu[2] = {0, 1};
    mha_semantics s = semantics_all_set();
    if (which == 1)
        s.bias.rule = MHA_BIAS_RULE_GRID, s.relative.rule = MHA_RELATIVE_GRID;
    if (which == 2)
        s.scale = s.padding_fill = 0, s.offset = s.key_offset = 0;
    if (which == 3)
        s.normaliser = MHA_SIGMOID, s.cu_seqlens_q = cu, s.n_sequences = 1;
    return s;
}

static void every_setting_has_words(void **state)
{
    (void)state;
    const mha_setting *row;
    for (size_t i = 0; (row = mha_setting_at(i)) != NULL; i++) {
        bool told = may_be_silent(row);
        for (int attempt = 0; attempt < 8 && !told; attempt++) {
            mha_semantics s = surroundings(attempt / 2);
            char before[MEANING_TEXT], after[MEANING_TEXT];
            words_of(&s, before);
            assert_true(strlen(before) + 200 < MEANING_TEXT); /* nothing is cut */
            if (attempt % 2 || (any_setting_is_array(row) && mha_setting_given(row, &s)))
                any_setting_clear(row, &s);
            else if (any_setting_is_array(row))
                any_setting_lend(row, &(any_sizes){.B = 1, .h = 1, .T_q = 1, .T_k = 1, .S = 1}, lent, NULL, &s);
            else
                any_setting_change(row, &s);
            words_of(&s, after);
            told |= strcmp(before, after) != 0;
        }
        if (!told)
            fail_msg("%s: has no words", row->name);
    }
}

static void plain_attention_needs_no_words(void **state)
{
    (void)state;
    char text[MEANING_TEXT];
    meaning_text(&(meaning_of){.semantics = &(mha_semantics){0}}, text);
    assert_string_equal(text, "");
}

static void words_follow_the_data(void **state)
{
    (void)state;
    char text[MEANING_TEXT];
    const mha_semantics s = {.causal = true,
                             .chunk = 8192,
                             .rope = {.kind = MHA_ROPE_INTERLEAVED, .base = 500000},
                             .norm = {.after_rope = true, .unweighted = true},
                             .norm_eps = 1e-5,
                             .query_scale = {.growth = 0.1, .every = 8192, .first = 1}};
    meaning_text(&(meaning_of){.semantics = &s}, text);
    assert_string_equal(text, "causal, chunks of 8192, q/k norm (RMS, without weights, behind the rotation), "
                              "epsilon of norms 1e-05, queries scaled by position (1 + 0.1 log(1 + (p + 1) / 8192)), "
                              "rotated by position (interleaved, base 500000)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_has_words),
        cmocka_unit_test(plain_attention_needs_no_words),
        cmocka_unit_test(words_follow_the_data),
    };
    return cmocka_run_group_tests_name("the meaning of settings", tests, NULL, NULL);
}
