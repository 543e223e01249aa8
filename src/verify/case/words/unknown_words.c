/* What is said of a name that the case format does not have: the word that is probably meant, and those there are. */
#include <ctype.h>
#include <string.h>

#include "base/base.h"
#include "verify/case/words/words.h"

enum { LONGEST_NAME = 40 }; /* longer names have no nearest word */

/* The edit distance of two names: how many letters have to be inserted, removed or replaced, ignoring case. */
static size_t letters_apart(const char *a, const char *b)
{
    const size_t columns = strlen(b);
    size_t row[LONGEST_NAME + 1];
    for (size_t j = 0; j <= columns; j++)
        row[j] = j;
    for (size_t i = 1; *a; i++, a++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            const bool same = tolower((unsigned char)*a) == tolower((unsigned char)b[j - 1]);
            size_t best = corner + (same ? 0 : 1);
            corner = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            row[j] = best;
        }
    }
    return row[columns];
}

static bool is_for(const mha__case_word *word, bool is_key)
{
    return is_key ? word->kind == WORD_KEY
                  : word->kind == WORD_TENSOR || word->kind == WORD_WEIGHT || word->kind == WORD_RESULT;
}

const mha__case_word *mha__case_nearest(const char *name, bool is_key)
{
    const mha__case_word *best = NULL, *word;
    const size_t length = strlen(name);
    for (size_t i = 0; (word = mha__case_word_at(i)) != NULL; i++)
        if (is_for(word, is_key) && mha__text_among(word->foreign, name))
            return word;
    size_t least = length / 3 + 1;
    if (length > LONGEST_NAME)
        return NULL;
    for (size_t i = 0; (word = mha__case_word_at(i)) != NULL; i++) {
        if (!is_for(word, is_key))
            continue;
        const char *also = word->shown.also;
        const size_t apart = letters_apart(name, word->shown.name);
        const size_t other = *also ? letters_apart(name, also) : apart;
        if (apart < least || other < least) {
            least = other < apart ? other : apart;
            best = word;
        }
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
    const mha__case_word *near = mha__case_nearest(plain, is_key && !*family);
    if (near && (!*family || near->kind == (result ? WORD_RESULT : WORD_WEIGHT)))
        mha__text_print(hint, sizeof hint, " did you mean %s%s?", family,
                        near->shown.name + (result ? strlen("expected.") : 0));
    const mha__case_word *tensor = mha__case_place_of(name).word;
    if (is_key && tensor) {
        mha__text_print(text, size, "unknown metadata key %s: that is a tensor, %s", name, tensor->shown.form);
        return;
    }
    if (!is_key && mha__case_key(name)) {
        mha__text_print(text, size, "unknown tensor %s: that is a metadata key, in an npz an array without extents",
                        name);
        return;
    }
    mha__text_print(text, size,
                    "unknown %s %.*s;%s the known ones are %sand others (mha help case); a name beginning with"
                    " my. is your own",
                    is_key ? "metadata key" : "tensor", MHA_CUT_ARGS(LONGEST_NAME, name), hint, known);
}
