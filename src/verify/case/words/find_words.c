/* The words of the case format, found by their names and by what they mean. */
#include <string.h>

#include "base/base.h"
#include "verify/case/words/words.h"

static bool starts_with(const char *text, const char *prefix, const char **rest)
{
    const size_t n = strlen(prefix);
    if (strncmp(text, prefix, n) != 0)
        return false;
    *rest = text + n;
    return true;
}

/* The name of the word of that kind and code, which every tensor, weight and result has. */
static const char *name_of(case_word_kind kind, int code)
{
    const mha__case_word *word;
    for (size_t i = 0; (word = mha__case_word_at(i)) != NULL; i++)
        if (word->kind == kind && word->code == code)
            return word->shown.name;
    return "?";
}

const char *mha__case_tensor_name(case_tensor tensor)
{
    return name_of(WORD_TENSOR, (int)tensor);
}

const char *mha__case_weight_name(mha_weight weight)
{
    return name_of(WORD_WEIGHT, (int)weight);
}

const char *mha__case_gradient_name(mha_gradient gradient)
{
    return name_of(WORD_RESULT, CASE_GRADIENTS + (int)gradient);
}

/* The row of that kind and name; NULL when there is none. */
static const mha__case_word *find(case_word_kind kind, const char *name)
{
    const mha__case_word *word;
    for (size_t i = 0; (word = mha__case_word_at(i)) != NULL; i++)
        if (word->kind == kind && (strcmp(word->shown.name, name) == 0 ||
                                   (*word->shown.also && strcmp(word->shown.also, name) == 0)))
            return word;
    return NULL;
}

const mha__case_word *mha__case_key(const char *key)
{
    return find(WORD_KEY, key);
}

const mha_setting *mha__case_setting(const char *name, bool is_key)
{
    const mha_setting *s = strchr(name, '-') ? NULL : mha_setting_find(name); /* which takes '-' for '_' */
    return s && mha__setting_is_array(s) != is_key ? s : NULL;
}

/* The row of result "expected.NAME", where `name` is NAME only. */
static const mha__case_word *find_result(const char *name)
{
    char whole[64];
    mha__text_print(whole, sizeof whole, "expected.%s", name);
    return find(WORD_RESULT, whole);
}

mha__case_place mha__case_place_of(const char *tensor)
{
    static const struct {
        const char *prefix;
        mha__case_place place;
    } families[] = {{"expected64.", {.record = PLACE_DOUBLE}},
                    {"expected_fast.", {.record = PLACE_FUSED}},
                    {"permuted.", {.set = CASE_PERMUTED}},
                    {"repeated.", {.set = CASE_REPEATED}}};
    static const case_word_kind kinds[] = {WORD_TENSOR, WORD_WEIGHT, WORD_RESULT};
    const char *rest;
    mha__case_place place = {0};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (starts_with(tensor, families[i].prefix, &rest)) {
            place = families[i].place;
            place.word = place.record == PLACE_FLOAT ? find(WORD_WEIGHT, rest) : find_result(rest);
            return place;
        }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !place.word; i++)
        place.word = find(kinds[i], tensor);
    return place;
}

bool mha__case_knows_key(const char *key)
{
    const char *tensor, *name;
    if (starts_with(key, "atol.", &tensor))
        return (starts_with(tensor, "expected.", &name) || starts_with(tensor, "expected64.", &name)) &&
               find_result(name) != NULL;
    return mha__case_key(key) || mha__case_setting(key, true);
}

bool mha__case_is_own(const char *name)
{
    const char *rest;
    return starts_with(name, "my.", &rest) || starts_with(name, "my_", &rest);
}
