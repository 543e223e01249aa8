/* What a report says of the settings of a call: each field of mha_semantics has words. */
#include <string.h>

#include "cli/setup/meaning.h"
#include "support/fields.h"
#include "support/unit.h"

static void words_of(const mha_semantics *s, char text[MEANING_TEXT])
{
    meaning_text(&(meaning_of){.semantics = s, .normed = true, .bias_rows = 32, .scaling = NULL}, text);
}

/* The view of a field; NULL: it is none that has words of its own. What a mask holds is no setting, its kind is; and no
 * forward reads what tables were made of. */
static mha_view *view_of(mha_semantics *s, const field *f)
{
    const size_t length = strlen(f->name);
    const bool has_kind = length > 7 && strcmp(f->name + length - 7, ".values") == 0;
    return has_kind || strcmp(f->name, "rope.origin") == 0 ? NULL : (mha_view *)(void *)((char *)s + f->offset);
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
    static float number;
    assert_null(fields_missing(semantics_fields, semantics_field_count, sizeof(mha_semantics)));
    for (size_t i = 0; i < semantics_field_count; i++) {
        const field *f = &semantics_fields[i];
        bool told = false;
        for (int attempt = 0; attempt < 8 && !told; attempt++) {
            mha_semantics s = surroundings(attempt / 2);
            char before[MEANING_TEXT], after[MEANING_TEXT];
            words_of(&s, before);
            assert_true(strlen(before) + 200 < MEANING_TEXT); /* nothing is cut */
            if (f->size >= sizeof(mha_view)) {
                mha_view *view = view_of(&s, f);
                told = !view;
                if (view)
                    *view = view->data ? (mha_view){0} : mha_view_of(&number, MHA_F32, 1, (size_t[]){1});
            } else if (attempt % 2) /* an array is there or not: its numbers are too many for words */
                memset((char *)&s + f->offset, 0, f->size);
            else
                memcpy((char *)&s + f->offset, &f->other, f->size);
            words_of(&s, after);
            told |= strcmp(before, after) != 0;
        }
        if (!told)
            fail_msg("%s: has no words", f->name);
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
