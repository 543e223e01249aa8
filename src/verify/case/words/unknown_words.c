/* Errors for a name that the case format lacks: the nearest word, and the known words. */
#include <ctype.h>
#include <string.h>

#include "base/base.h"
#include "lab/lab.h"
#include "verify/case/words/words.h"

enum { LONGEST_NAME = 40 }; /* longer names have no nearest word */

static bool is_for(const mha__case_word *word, bool is_key)
{
    return is_key ? word->kind == WORD_KEY
                  : word->kind == WORD_TENSOR || word->kind == WORD_WEIGHT || word->kind == WORD_RESULT;
}

/* A word that may be near: a name, other spellings and foreign names with blanks between them. */
typedef struct candidate {
    const char *name, *also, *foreign;
} candidate;

/* The next word for keys or for tensors: those of the table, then the settings. False past the end. */
static bool next(size_t *index, bool is_key, candidate *one)
{
    const mha__case_word *word;
    size_t i = *index, words = 0;
    for (; (word = mha__case_word_at(i)) != NULL; i++)
        if (is_for(word, is_key)) {
            *one = (candidate){word->shown.name, word->shown.also, word->foreign};
            *index = i + 1;
            return true;
        }
    while (mha__case_word_at(words))
        words++;
    const mha_setting *s;
    for (; (s = mha_setting_at(i - words)) != NULL; i++)
        if (mha__setting_is_array(s) != is_key) {
            *one = (candidate){s->name, s->aliases ? s->aliases : "", s->foreign ? s->foreign : ""};
            *index = i + 1;
            return true;
        }
    return false;
}

/* The least distance of a name in small letters from a word in any of its spellings. */
static size_t letters_apart(const char *name, const candidate *one)
{
    char text[4 * LONGEST_NAME];
    size_t least = LONGEST_NAME;
    mha__text_print(text, sizeof text, "%s %s", one->name, one->also);
    for (char *at = text, *end; *at; at = end) {
        end = at + strcspn(at, " ");
        end += *end ? (*end = '\0', 1) : 0;
        for (char *letter = at; *letter; letter++)
            *letter = (char)tolower((unsigned char)*letter);
        const size_t apart = mha__text_distance(name, at);
        least = apart < least ? apart : least;
    }
    return least;
}

/* Writes a name of at most LONGEST_NAME letters in small ones. */
static void lower(const char *name, char small[LONGEST_NAME + 1])
{
    size_t i = 0;
    for (; name[i]; i++)
        small[i] = (char)tolower((unsigned char)name[i]);
    small[i] = '\0';
}

/* The letters in which a name of some length may differ from the word that it means, and one. */
static size_t too_many(size_t length)
{
    return length / 3 + 1;
}

bool mha__case_means(const char *name, const char *word)
{
    char small[LONGEST_NAME + 1];
    candidate one = {0};
    for (size_t i = 0; next(&i, false, &one) && strcmp(one.name, word) != 0;)
        ;
    const size_t length = strlen(name);
    if (!mha__text_among(one.foreign, name)) {
        if (length > LONGEST_NAME)
            return false;
        lower(name, small);
        if (letters_apart(small, &one) >= too_many(length))
            return false;
    }
    const char *near = mha__case_nearest(name, false);
    return near && strcmp(near, word) == 0;
}

const char *mha__case_nearest(const char *name, bool is_key)
{
    const char *best = NULL;
    const size_t length = strlen(name);
    size_t least = too_many(length);
    char small[LONGEST_NAME + 1];
    candidate one;
    for (size_t i = 0; next(&i, is_key, &one);)
        if (mha__text_among(one.foreign, name))
            return one.name;
    if (length > LONGEST_NAME)
        return NULL;
    lower(name, small);
    for (size_t i = 0; next(&i, is_key, &one);) {
        const size_t apart = letters_apart(small, &one);
        if (apart < least)
            least = apart, best = one.name;
    }
    return best;
}

void mha__case_explain_unknown(char *text, size_t size, const char *name, bool is_key)
{
    enum { ENOUGH = 120 }; /* bytes of known words in a message: the table lists the most common words first */
    static const char *const families[] = {"expected64.", "expected_fast.",   "permuted.",
                                           "repeated.",   "atol.expected64.", "atol.expected."};
    char known[ENOUGH + 64] = "";
    const mha__case_word *word;
    for (size_t i = 0; (word = mha__case_word_at(i)) != NULL && strlen(known) < ENOUGH; i++)
        if (is_for(word, is_key)) {
            const size_t used = strlen(known);
            mha__text_print(known + used, sizeof known - used, "%s, ", word->shown.name);
        }
    /* A name with the prefix of a family is compared with the words of that family. */
    char plain[LONGEST_NAME + 16] = "", hint[128] = "";
    const char *rest = name, *family = "";
    for (size_t i = 0; i < sizeof families / sizeof *families && !*family; i++)
        if (strncmp(name, families[i], strlen(families[i])) == 0) {
            family = families[i];
            rest = name + strlen(family);
        }
    const bool result = strstr(family, "expected") != NULL;
    mha__text_print(plain, sizeof plain, "%s%s", result ? "expected." : "", rest);
    const char *near = mha__case_nearest(plain, is_key && !*family);
    const mha__case_word *known_near = near ? mha__case_place_of(near).word : NULL;
    const bool of_family = known_near && known_near->kind == (result ? WORD_RESULT : WORD_WEIGHT);
    if (near && (!*family || of_family))
        mha__text_print(hint, sizeof hint, " did you mean %s%s?", family, near + (result ? strlen("expected.") : 0));
    const mha__case_word *tensor = mha__case_place_of(name).word;
    const mha_setting *array = mha__case_setting(name, false);
    if (is_key && (tensor || array)) {
        mha__text_print(text, size, "unknown metadata key %s: that is a tensor, %s", name,
                        tensor ? tensor->shown.form : array->shape);
        return;
    }
    if (!is_key && (mha__case_key(name) || mha__case_setting(name, true))) {
        mha__text_print(text, size, "unknown tensor %s: that is a metadata key, in an npz an array without extents",
                        name);
        return;
    }
    mha__text_print(text, size,
                    "unknown %s %.*s;%s the known ones are %sand others (mha help case); a name beginning with"
                    " my. is your own",
                    is_key ? "metadata key" : "tensor", MHA_CUT_ARGS(LONGEST_NAME, name), hint, known);
}
