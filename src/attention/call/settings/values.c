/* One setting of semantics, read, written and checked by its row. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/call/settings/settings.h"
#include "base/base.h"

enum { LONGEST = 40 }; /* letters of a name or number, more than any has */

/* ---------------------------------------------------------------- names */

static char plain(char letter)
{
    return letter == '-' ? '_' : letter;
}

/* Whether two names are the same, '-' and '_' alike; `length` letters of the first, or up to its end. */
static bool same_name(const char *a, size_t length, const char *b)
{
    size_t i = 0;
    while (i < length && a[i] && plain(a[i]) == plain(b[i]))
        i++;
    return (i == length || !a[i]) && !b[i];
}

/* Whether `name` stands in a list of names with blanks between them; NULL is an empty list. */
static bool is_listed(const char *list, const char *name)
{
    while (list && *list) {
        const size_t length = strcspn(list, " ");
        if (same_name(list, length, name))
            return true;
        list += length + (list[length] == ' ');
    }
    return false;
}

/* The row whose name is the first `length` letters of `name`, or all of them. */
static const mha_setting *named(const char *name, size_t length)
{
    const mha_setting *row;
    for (size_t i = 0; (row = mha_setting_at(i)) != NULL; i++)
        if (same_name(name, length, row->name))
            return row;
    return NULL;
}

const mha_setting *mha_setting_find(const char *name)
{
    const mha_setting *row = named(name, SIZE_MAX);
    if (row)
        return row;
    for (size_t i = 0; (row = mha_setting_at(i)) != NULL; i++)
        if (is_listed(row->aliases, name))
            return row;
    return NULL;
}

/* ---------------------------------------------------------------- words of a choice */

/* The spelling number `index` of the value that begins at `item`; its length, 0 past the last. */
static size_t spelling(const char *item, size_t index, const char **at)
{
    for (*at = item; index > 0; index--) {
        *at += strcspn(*at, "=|");
        if (**at != '=')
            return 0;
        ++*at;
    }
    return strcspn(*at, "=|");
}

/* Where the words of value `value` begin; NULL past the last. */
static const char *item_at(const char *choices, int value)
{
    for (; value > 0 && choices; value--)
        if ((choices = strchr(choices, '|')))
            choices++;
    return choices;
}

static int choice_of(const char *choices, const char *text)
{
    const char *item, *at;
    for (int value = 0; (item = item_at(choices, value)) != NULL; value++)
        for (size_t n, i = 0; (n = spelling(item, i, &at)) > 0; i++)
            if (same_name(at, n, text))
                return value;
    return -1;
}

/* The words of a choice for a message: "none, interleaved or half_split". */
static void choices_text(const char *choices, char *text, size_t size)
{
    const char *item, *at;
    size_t used = 0;
    text[0] = '\0';
    for (int value = 0; (item = item_at(choices, value)) != NULL && used < size; value++)
        used += (size_t)snprintf(text + used, size - used, "%s%.*s",
                                 value == 0 ? "" : item_at(choices, value + 1) ? ", " : " or ",
                                 (int)spelling(item, 0, &at), item);
}

/* ---------------------------------------------------------------- numbers */

/* The number in memory; a double holds all but whole numbers beyond 2^53, which is `whole`. */
static double number_at(const mha_setting *s, const mha_semantics *semantics, int64_t *whole)
{
    const void *at = (const char *)semantics + s->at;
    *whole = 0;
    switch (s->kind) {
    case MHA_SETTING_SWITCH: *whole = *(const bool *)at; break;
    case MHA_SETTING_WHOLE: *whole = *(const int64_t *)at; break;
    case MHA_SETTING_COUNT: *whole = *(const size_t *)at > INT64_MAX ? INT64_MAX : (int64_t)*(const size_t *)at; break;
    case MHA_SETTING_CHOICE: *whole = *(const int *)at; break;
    case MHA_SETTING_REAL: return *(const double *)at;
    default: return NAN;
    }
    return (double)*whole;
}

static void store(const mha_setting *s, mha_semantics *semantics, double real, int64_t whole)
{
    void *at = (char *)semantics + s->at;
    switch (s->kind) {
    case MHA_SETTING_SWITCH: *(bool *)at = whole != 0; break;
    case MHA_SETTING_WHOLE: *(int64_t *)at = whole; break;
    case MHA_SETTING_COUNT: *(size_t *)at = (size_t)whole; break;
    case MHA_SETTING_CHOICE: *(int *)at = (int)whole; break;
    default: *(double *)at = real; break;
    }
}

static bool mark_of(const mha_setting *s, const mha_semantics *semantics)
{
    bool given = false;
    if (s->given_at != SIZE_MAX)
        memcpy(&given, (const char *)semantics + s->given_at, sizeof given);
    return given;
}

/* The number that `unset` is; NaN where it is none. */
static double unset_number(const mha_setting *s)
{
    char *end;
    if (!s->unset)
        return NAN;
    if (s->kind == MHA_SETTING_CHOICE)
        return choice_of(s->choices, s->unset);
    const double x = strtod(s->unset, &end);
    return *end == '\0' && end != s->unset ? x : NAN;
}

static bool is_array(const mha_setting *s)
{
    return s->kind >= MHA_SETTING_VIEW;
}

/* The array of a setting, of `length` numbers if it is a pointer. */
static mha_view array_of(const mha_setting *s, const mha_semantics *semantics, size_t length)
{
    const char *at = (const char *)semantics + s->at;
    void *numbers;
    mha_view view = {0};
    if (s->kind == MHA_SETTING_VIEW) {
        memcpy(&view, at, sizeof view);
        return view;
    }
    memcpy(&numbers, at, sizeof numbers); /* all pointers to numbers have one form */
    return mha_view_of(numbers, s->kind == MHA_SETTING_WHOLES ? MHA_I64 : MHA_F64, 1, &length);
}

bool mha_setting_given(const mha_setting *s, const mha_semantics *semantics)
{
    int64_t whole;
    if (is_array(s))
        return array_of(s, semantics, 0).data;
    if (mark_of(s, semantics))
        return true;
    return number_at(s, semantics, &whole) != 0;
}

double mha_setting_number(const mha_setting *s, const mha_semantics *semantics)
{
    int64_t whole;
    if (is_array(s))
        return NAN;
    return mha_setting_given(s, semantics) ? number_at(s, semantics, &whole) : unset_number(s);
}

/* An array in words: type and shape of a view, else the shape that it must have. */
static void array_text(const mha_setting *s, const mha_semantics *semantics, char *text, size_t size)
{
    char shape[200];
    const mha_view view = array_of(s, semantics, 0);
    if (view.data && s->kind == MHA_SETTING_VIEW)
        mha__text_print(text, size, "%s %s", mha_dtype_name(view.dtype),
                        mha__shape_text(shape, sizeof shape, view.shape, view.rank));
    else
        snprintf(text, size, "%s", view.data ? s->shape : "none");
}

char *mha_setting_text(const mha_setting *s, const mha_semantics *semantics, char *text, size_t size)
{
    int64_t whole;
    const char *at = "?";
    if (is_array(s)) {
        array_text(s, semantics, text, size);
        return text;
    }
    if (!mha_setting_given(s, semantics)) {
        snprintf(text, size, "%s", s->unset ? s->unset : "0");
        return text;
    }
    const double x = number_at(s, semantics, &whole);
    const char *item = s->kind == MHA_SETTING_CHOICE && whole >= 0 ? item_at(s->choices, (int)whole) : NULL;
    if (s->kind == MHA_SETTING_REAL)
        snprintf(text, size, "%.17g", x);
    else if (item)
        snprintf(text, size, "%.*s", (int)spelling(item, 0, &at), item);
    else
        snprintf(text, size, "%" PRId64, whole);
    return text;
}

size_t mha_setting_length(const mha_setting *s, const mha_semantics *semantics, size_t B, size_t h)
{
    const size_t n = semantics->place.n_sequences;
    const size_t lengths[MHA_PER_COUNT] = {[MHA_PER_ROW] = semantics->place.cu_seqlens_q ? n : B,
                                           [MHA_PER_HEAD] = h,
                                           [MHA_PER_SEQUENCE] = n + 1};
    return is_array(s) && mha_setting_given(s, semantics) ? lengths[s->per] : 0;
}

mha_view mha__setting_view(const mha_setting *s, const mha_semantics *semantics, size_t B, size_t h)
{
    const mha_view none = {0};
    return is_array(s) && mha_setting_given(s, semantics)
               ? array_of(s, semantics, mha_setting_length(s, semantics, B, h)) : none;
}

/* ---------------------------------------------------------------- checking */

/* "from 0 to 8"; "from 0" where the end is only what can be represented, and the number found is not beyond it. */
static const char *range_of(const mha_setting *s, bool beyond, char text[64])
{
    if (s->most >= INT64_MAX / 4 && !beyond)
        snprintf(text, 64, "from %lld", (long long)s->least);
    else
        snprintf(text, 64, "from %lld to %lld", (long long)s->least, (long long)s->most);
    return text;
}

/* MHA_INVALID unless the number of a setting that is given lies in the range of its row. */
static mha_status check_number(const mha_setting *s, double x, int64_t whole, mha_error *error)
{
    char words[200];
    switch (s->kind) {
    case MHA_SETTING_SWITCH: return MHA_OK;
    case MHA_SETTING_CHOICE:
        if (whole >= 0 && whole <= INT32_MAX && item_at(s->choices, (int)whole))
            return MHA_OK;
        choices_text(s->choices, words, sizeof words);
        return mha__fail(error, MHA_INVALID, s->name, "expected %s, found %lld", words, (long long)whole);
    case MHA_SETTING_REAL:
        if (x >= s->lowest && x <= s->highest)
            return MHA_OK;
        return mha__fail(error, MHA_INVALID, s->name, "expected a finite number%s%s, found %g",
                         s->lowest > 0    ? " above 0"
                         : s->highest < 1 ? " below 1"
                                          : "",
                         unset_number(s) == 0 ? ", or 0 (off)" : "", x);
    default:
        if (whole >= s->least && whole <= s->most)
            return MHA_OK;
        return mha__fail(error, MHA_INVALID, s->name, "expected a whole number %s, found %lld",
                         range_of(s, whole > s->most, words), (long long)whole);
    }
}

/* Whether the setting that `needs` names is given, with one of the words that it lists. */
static bool has_need(const char *needs, const mha_semantics *semantics)
{
    const size_t length = strcspn(needs, "=");
    const mha_setting *needed = named(needs, length);
    if (!mha_setting_given(needed, semantics)) /* a test finds every row that is needed */
        return false;
    char word[LONGEST];
    for (const char *at = needs + length; *at; at += strlen(word)) {
        at++; /* '=' or ',' */
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
        if (choice_of(needed->choices, word) == (int)mha_setting_number(needed, semantics))
            return true;
    }
    return needs[length] == '\0';
}

/* "bias_rule=buckets" as it is said: "bias_rule buckets". */
static mha_status without(const mha_setting *s, const char *needs, mha_error *error)
{
    char text[2 * LONGEST];
    snprintf(text, sizeof text, "%s", needs);
    for (char *at = text; *at; at++)
        *at = *at == '=' ? ' ' : *at;
    return mha__fail(error, MHA_INVALID, s->name, "expected `%s` with it, found it unset", text);
}

/* No word may be set that a later version gives a meaning. */
static mha_status check_reserved(const mha_semantics *s, mha_error *error)
{
    TRY(mha__expect_unused("place", s->place.reserved, sizeof s->place.reserved, error));
    TRY(mha__expect_unused("qkv", s->qkv.reserved, sizeof s->qkv.reserved, error));
    TRY(mha__expect_unused("rope", s->qkv.rope.reserved, sizeof s->qkv.rope.reserved, error));
    TRY(mha__expect_unused("visible", s->visible.reserved, sizeof s->visible.reserved, error));
    TRY(mha__expect_unused("added", s->added.reserved, sizeof s->added.reserved, error));
    return mha__expect_unused("softmax", s->softmax.reserved, sizeof s->softmax.reserved, error);
}

/* MHA_UNSUPPORTED unless a number that float paths hold as a float is one. */
static mha_status check_float(const mha_setting *s, double x, mha_error *error)
{
    const float held = (float)x;
    if (isfinite(held) && (held != 0.0f || s->lowest <= 0))
        return MHA_OK;
    return mha__fail(error, MHA_UNSUPPORTED, s->name,
                     "expected a number that float can hold (only the exact path computes in float64), found %g", x);
}

mha_status mha__settings_check(const mha_semantics *semantics, bool in_float, mha_error *error)
{
    TRY(check_reserved(semantics, error));
    for (const mha_setting *s = mha_setting_at(0), *end = s + mha__setting_count(); s < end; s++) {
        int64_t whole;
        if (!mha_setting_given(s, semantics))
            continue;
        if (s->needs && !has_need(s->needs, semantics))
            return without(s, s->needs, error);
        const double x = number_at(s, semantics, &whole);
        if (!is_array(s))
            TRY(check_number(s, x, whole, error));
        if (in_float && s->in_float)
            TRY(check_float(s, x, error));
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- writing */

static void mark(const mha_setting *s, mha_semantics *semantics, bool given)
{
    if (s->given_at != SIZE_MAX)
        memcpy((char *)semantics + s->given_at, &given, sizeof given);
}

void mha__settings_mark(mha_semantics *semantics)
{
    for (const mha_setting *s = mha_setting_at(0), *end = s + mha__setting_count(); s < end; s++)
        if (s->given_at != SIZE_MAX && mha_setting_given(s, semantics))
            mark(s, semantics, true);
}

static mha_status put(const mha_setting *s, double x, int64_t whole, mha_semantics *semantics, mha_error *error)
{
    const double unset = unset_number(s);
    const bool marked = s->given_at != SIZE_MAX, off = s->kind == MHA_SETTING_REAL ? x == 0 : whole == 0,
               given = marked ? !(isfinite(unset) && x == unset) : !off;
    if (given)
        TRY(check_number(s, x, whole, error));
    mark(s, semantics, given);
    store(s, semantics, given ? x : 0, given ? whole : 0);
    return MHA_OK;
}

mha_status mha_setting_put_number(const mha_setting *s, double number, mha_semantics *semantics, mha_error *error)
{
    if (is_array(s))
        return mha__fail(error, MHA_UNSUPPORTED, s->name, "expected an array of shape %s, found a number", s->shape);
    const bool real = s->kind == MHA_SETTING_REAL;
    if (!real && !(fabs(number) <= 0x1p62 && number == floor(number)))
        return mha__fail(error, MHA_INVALID, s->name, "expected a whole number, found %g", number);
    if (s->kind == MHA_SETTING_SWITCH && number != 0 && number != 1)
        return mha__fail(error, MHA_INVALID, s->name, "expected 0 or 1, found %g", number);
    return put(s, number, real ? 0 : (int64_t)number, semantics, error);
}

static mha_status put_whole(const mha_setting *s, const char *text, mha_semantics *semantics, mha_error *error)
{
    char *end, range[64];
    errno = 0;
    const long long whole = strtoll(text, &end, 10);
    if (end == text || *end || errno || isspace((unsigned char)*text) || *text == '+')
        return mha__fail(error, MHA_INVALID, s->name, "expected a whole number %s, found \"%.*s\"",
                         range_of(s, errno != 0, range), MHA_CUT_ARGS(LONGEST, text));
    return put(s, (double)whole, whole, semantics, error);
}

mha_status mha_setting_put(const mha_setting *s, const char *text, mha_semantics *semantics, mha_error *error)
{
    char words[200], *end;
    int choice;
    switch (s->kind) {
    case MHA_SETTING_SWITCH:
    case MHA_SETTING_CHOICE:
        choice = choice_of(s->kind == MHA_SETTING_SWITCH ? "0=false|1=true" : s->choices, text);
        choices_text(s->kind == MHA_SETTING_SWITCH ? "0|1|false|true" : s->choices, words, sizeof words);
        return choice >= 0 ? put(s, choice, choice, semantics, error)
                           : mha__fail(error, MHA_INVALID, s->name, "expected %s, found \"%.*s\"", words,
                                       MHA_CUT_ARGS(LONGEST, text));
    case MHA_SETTING_REAL: break;
    case MHA_SETTING_WHOLE:
    case MHA_SETTING_COUNT: return put_whole(s, text, semantics, error);
    default: return mha_setting_put_number(s, 0, semantics, error);
    }
    errno = 0;
    const double x = strtod(text, &end);
    const bool vanished = errno == ERANGE && x == 0; /* 1e-400 is not 0, which may mean another thing */
    if (end == text || *end || vanished || isspace((unsigned char)*text) || *text == '+' ||
        strpbrk(text, "xX")) /* strtod reads 0x10 */
        return mha__fail(error, MHA_INVALID, s->name, "expected a number, found \"%.*s\"", MHA_CUT_ARGS(LONGEST, text));
    return put(s, x, 0, semantics, error);
}
