/* The numbers of a bug as text: "30", "5, 9, 7", the hidden keys of each batch row, "3, 5-7; none", or the rows
 * that replace others, "0-3: 8-11, 9: 2; none", of all batch rows where they are alike. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mha/random.h"
#include "verify/bugs/bugs.h"

/* The largest number of weights for which a bug states whether dropout drops each. */
enum { MOST_WEIGHTS = 1 << 22 };

static size_t count_weights(const mha_case *c)
{
    const size_t extra = (c->weights[CASE_RECORDED][MHA_BIAS_K].data != NULL) + (size_t)c->semantics.softmax.zero_row;
    return c->B * c->H * c->T_q * (c->P + c->T_k + extra);
}

bool mha__case_can_drop(const mha_case *c)
{
    return c->kind != CASE_ROPE && c->semantics.place.n_sequences == 0 && count_weights(c) <= MOST_WEIGHTS;
}

/* The form of the numbers of a bug: `lists` lists of n numbers. */
typedef struct form {
    enum { NUMBERS, OF_HEADS /* may name only some heads */, COUNTS /* of keys */, ROWS } kind;
    size_t lists, n;
} form;

static form form_of(const mha_case *c, const mha__bug_entry *e)
{
    const size_t B = c->B, H = c->H, S = c->P + c->T_k;
    /* clang-format off */
    const form forms[] = {
        [SOLVE_BY_BATCH] = {NUMBERS, 1, B}, [SOLVE_BATCHES] = {NUMBERS, 1, B},
        [SOLVE_BIASES] = {NUMBERS, 1, H * c->d_k + c->H_kv * (c->d_k + c->d_v) + c->E_out},
        [SOLVE_NORMS] = {NUMBERS, 1, 2 * c->d_k}, [SOLVE_BY_HEADS] = {NUMBERS, 1, 2 * H},
        [SOLVE_BY_HEAD] = {OF_HEADS, 1, H}, [SOLVE_FACTORS] = {OF_HEADS, 1, H}, [SOLVE_HEADS] = {OF_HEADS, 1, H},
        [SOLVE_Q_HEADS] = {OF_HEADS, 1, H}, [SOLVE_KV_HEADS] = {OF_HEADS, 1, H},
        [SOLVE_KEYS] = {COUNTS, B, S}, [SOLVE_COUNTS] = {COUNTS, B, S},
        [SOLVE_VALUES] = {ROWS, B, S}, [SOLVE_KEY_ROWS] = {ROWS, B, S},
        [SOLVE_QUERIES] = {ROWS, B, c->T_q}, [SOLVE_WRITTEN] = {ROWS, B, c->T_q},
        [SOLVE_COLUMNS] = {ROWS, 1, H * c->d_v},
        [SOLVE_BLOCKS] = {ROWS, 1, B * H}, [SOLVE_KV_BLOCKS] = {ROWS, 1, B * c->H_kv},
        [SOLVE_DROPPED] = {NUMBERS, 0, 1}, /* the share; weights follow from it */
    };
    /* clang-format on */
    return forms[e->how].kind || forms[e->how].n ? forms[e->how] : (form){NUMBERS, 1, 1};
}

size_t mha__solved_count(const mha_case *c, const mha__bug_entry *e)
{
    const form f = form_of(c, e);
    return e->how == SOLVE_DROPPED ? 1 + count_weights(c) : f.lists * f.n;
}

/* ---------------------------------------------------------------- writing */

typedef struct writer {
    char *text;
    size_t at, size;
    bool full;
} writer;

/* Adds an item if "..." still has room after it. */
static void add(writer *w, const char *item)
{
    const size_t length = strlen(item);
    w->full |= w->at + length + sizeof ", ..." > w->size;
    if (w->full)
        return;
    memcpy(w->text + w->at, item, length + 1);
    w->at += length;
}

/* Adds "4", "4-7" or "7-4". */
static void write_range(writer *w, const char *before, size_t first, size_t last)
{
    char item[64];
    if (last != first)
        mha__text_print(item, sizeof item, "%s%zu-%zu", before, first, last);
    else
        mha__text_print(item, sizeof item, "%s%zu", before, first);
    add(w, item);
}

/* The keys of S that do not count once, and how often if that is not 0. */
static void write_keys(writer *w, const double *count, size_t S)
{
    bool any = false;
    for (size_t j = 0, last; j < S; j = last + 1) {
        for (last = j; last + 1 < S && count[last + 1] == count[j];)
            last++;
        if (count[j] == 1)
            continue;
        write_range(w, any ? ", " : "", j, last);
        if (count[j] != 0)
            write_range(w, ": ", (size_t)count[j], (size_t)count[j]);
        any = true;
    }
    if (!any)
        add(w, "none");
}

/* The places of T that have another row, and which; a row for several places once. */
static void write_rows(writer *w, const double *row, size_t T)
{
    bool any = false;
    for (size_t t = 0; t < T; t++) {
        size_t last = t;
        if (row[t] == (double)t)
            continue;
        const double by = t + 1 < T ? row[t + 1] - row[t] : 0, step = fabs(by) == 1 ? by : 0;
        while (last + 1 < T && row[last + 1] == row[last] + step)
            last++;
        while (row[last] == (double)last)
            last--;
        write_range(w, any ? ", " : "", t, last);
        write_range(w, ": ", (size_t)row[t], (size_t)row[last]);
        any = true;
        t = last;
    }
    if (!any)
        add(w, "none");
}

/* True if all batch rows have the same n numbers. */
static bool are_alike(const double *x, size_t B, size_t n)
{
    bool alike = true;
    for (size_t i = n; i < B * n; i++)
        alike &= x[i] == x[i % n];
    return alike;
}

/* The number of a head in the short form: the head that the case has there, or `common`. */
static double usual_number(const mha_case *c, const mha__bug_entry *e, size_t head, double common)
{
    const bool is_order = e->how == SOLVE_HEADS || e->how == SOLVE_Q_HEADS || e->how == SOLVE_KV_HEADS;
    return is_order ? (double)(e->how == SOLVE_KV_HEADS ? head * c->H_kv / c->H : head) : common;
}

static bool is_written_alike(double x, double y)
{
    char one[32], other[32];
    mha__text_print(one, sizeof one, "%.6g", x + 0.0);
    mha__text_print(other, sizeof other, "%.6g", y + 0.0);
    return strcmp(one, other) == 0;
}

/* The number that most heads have. */
static double most_common(const double *x, size_t n)
{
    size_t most = 0, at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t count = 0;
        for (size_t k = 0; k < n; k++)
            count += is_written_alike(x[k], x[i]);
        if (count > most)
            most = count, at = i;
    }
    return x[at];
}

/* The short form of numbers of many heads, "0.25; 3: 1" or "own; 3: 17, 17: 3": which heads differ from the others. */
static void write_heads(writer *w, const mha_case *c, const mha__bug_entry *e, const double *x)
{
    const double common = most_common(x, c->H);
    char item[64];
    const char *before = "; ";
    mha__text_print(item, sizeof item, "%.6g", common + 0.0);
    add(w, isnan(usual_number(c, e, 0, NAN)) ? item : "own");
    for (size_t h = 0; h < c->H; h++) {
        if (is_written_alike(x[h], usual_number(c, e, h, common)))
            continue;
        mha__text_print(item, sizeof item, "%s%zu: %.6g", before, h, x[h] + 0.0);
        add(w, item);
        before = ", ";
    }
}

void mha__numbers_say(const mha_case *c, const mha__bug_entry *e, const double *x, char *text, size_t size)
{
    writer w = {.text = text, .size = size};
    const form f = form_of(c, e);
    const bool in_lists = f.kind == COUNTS || f.kind == ROWS;
    *text = '\0';
    for (size_t b = 0; in_lists && b < (f.kind == ROWS && are_alike(x, f.lists, f.n) ? 1 : f.lists); b++) {
        add(&w, b > 0 ? "; " : "");
        (f.kind == ROWS ? write_rows : write_keys)(&w, x + b * f.n, f.n);
    }
    for (size_t i = 0; !in_lists && i < f.n; i++) {
        char item[32];
        mha__text_print(item, sizeof item, "%s%.6g", i > 0 ? ", " : "", x[i] + 0.0); /* -0 is 0 */
        add(&w, item);
    }
    if (w.full && f.kind == OF_HEADS) {
        w = (writer){.text = text, .size = size};
        write_heads(&w, c, e, x);
    }
    if (w.full)
        mha__text_print(text + w.at, size - w.at, ", ...");
}

/* ---------------------------------------------------------------- reading */

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " ");
}

/* Reads a key's index; NULL: there is none. */
static const char *read_key(const char *text, size_t S, size_t *key)
{
    char *end;
    const double x = strtod(text, &end);
    if (end == text || !(x >= 0 && x < (double)S) || x != floor(x))
        return NULL;
    *key = (size_t)x;
    return skip_blanks(end);
}

/* Reads "4", "4-7" or "7-4"; NULL: it is none of them. */
static const char *read_range(const char *text, size_t n, size_t *first, size_t *last)
{
    const char *at = read_key(text, n, first);
    *last = *first;
    if (at && *at == '-')
        at = read_key(at + 1, n, last);
    return at;
}

/* Reads an item of n numbers: hidden keys, as "5-7", or those that count another number of times, as "5-7: 2"; or the
 * rows in place of some, as "0-3: 8-11". NULL: it is none. */
static const char *read_item(const char *text, bool rows, size_t n, double *x)
{
    size_t first = 0, last = 0, from = 0, to = 0;
    const char *at = read_range(text, n, &first, &last);
    if (at && *at == ':')
        at = rows ? read_range(skip_blanks(at + 1), n, &from, &to) : read_key(skip_blanks(at + 1), n, &from);
    else if (rows)
        return NULL;
    to = rows ? to : from;
    const size_t apart = to > from ? to - from : from - to;
    if (!at || last < first || (apart > 0 && apart != last - first))
        return NULL;
    for (size_t t = first; t <= last; t++)
        x[t] = (double)(to > from ? from + (t - first) : to < from ? from - (t - first) : from);
    return at;
}

/* Reads lists of n numbers, "none" or items with commas between, with semicolons between the lists. */
static bool read_lists(const char *text, size_t lists, size_t n, bool rows, double *x)
{
    const char *at = text;
    for (size_t b = 0; b < lists && at; b++) {
        if (b > 0 && *at++ != ';')
            return false;
        at = skip_blanks(at);
        if (strncmp(at, "none", 4) == 0) {
            at = skip_blanks(at + 4);
            continue;
        }
        do
            at = read_item(*at == ',' ? skip_blanks(at + 1) : at, rows, n, x + b * n);
        while (at && *at == ',');
    }
    return at && !*at;
}

/* Reads lists; one list of rows is that of all batch rows. */
static mha_status read_form(form f, const char *name, const char *text, double *x, mha_error *error)
{
    const bool for_all = f.kind == ROWS && f.lists > 1 && !strchr(text, ';');
    for (size_t i = 0; i < f.lists * f.n; i++)
        x[i] = f.kind == ROWS ? (double)(i % f.n) : 1;
    const bool right = read_lists(text, for_all ? 1 : f.lists, f.n, f.kind == ROWS, x);
    for (size_t i = f.n; for_all && i < f.lists * f.n; i++)
        x[i] = x[i % f.n];
    return right ? MHA_OK
                 : mha__fail(error, MHA_INVALID, name,
                             f.kind == ROWS
                                 ? "expected the rows of each batch row that replace others, as in "
                                   "\"0-3: 8-11, 9: 2; none\", found \"%.60s\""
                                 : "expected the hidden keys of each batch row, as in \"3, 5-7; none\", found "
                                   "\"%.60s\"",
                             text);
}

/* Reads what write_heads writes. */
static mha_status read_heads(const mha_case *c, const mha__bug_entry *e, const char *text, double *x, mha_error *error)
{
    const char *at = skip_blanks(text);
    char *end = mha__unconst(at);
    const bool own = strncmp(at, "own", 3) == 0 && !isnan(usual_number(c, e, 0, NAN));
    const double common = own ? 0 : strtod(at, &end);
    bool right = own || (end != at && isfinite(common) && isnan(usual_number(c, e, 0, NAN)));
    for (size_t h = 0; h < c->H; h++)
        x[h] = usual_number(c, e, h, common);
    at = own ? at + 3 : end;
    for (char before = ';'; right && *at; before = ',') {
        size_t head = 0;
        right = *at == before && (at = read_key(skip_blanks(at + 1), c->H, &head)) && *at == ':';
        if (!right)
            break;
        x[head] = strtod(at + 1, &end);
        right = end != at + 1 && isfinite(x[head]);
        at = end;
    }
    return right ? MHA_OK
                 : mha__fail(error, MHA_INVALID, e->shown.name,
                             "expected a number for each head, or \"0.25; 3: 1\" (\"own; 3: 17\" of an order): the "
                             "number of most heads, and the heads that differ, found \"%s\"",
                             text);
}

mha_status mha__numbers_read(const mha_case *c, const mha__bug_entry *e, const char *text, double *x, mha_error *error)
{
    const form f = form_of(c, e);
    const size_t n = f.n, all = mha__solved_count(c, e);
    const char *name = e->shown.name;
    if (!*text)
        return mha__fail(error, MHA_UNSUPPORTED, name,
                         "expected a bug that applies to this case, or its number after a blank");
    if (f.kind == COUNTS || f.kind == ROWS)
        return read_form(f, name, text, x, error);
    if (f.kind == OF_HEADS && strchr(text, ';'))
        return read_heads(c, e, text, x, error);
    for (size_t i = 0; i < n; i++) {
        char *end;
        x[i] = strtod(text, &end);
        if (end == text || !isfinite(x[i]) || (i + 1 < n && *end != ','))
            return mha__fail(error, MHA_INVALID, name, "expected %zu numbers, separated by commas, found \"%s\"", n,
                             text);
        text = end + (i + 1 < n);
    }
    for (size_t i = n; i < all; i++) /* those of a share p, the same for every caller */
        x[i] = (double)mha__random_bits(0, 0, i) >= x[0] * 0x1p64;
    return *text ? mha__fail(error, MHA_INVALID, name, "expected nothing more, found \"%s\"", text) : MHA_OK;
}
