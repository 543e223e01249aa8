/* The coverage of the suite: each feature meets each size class, and there every known bug of the feature that shows is
 * rejected. The bugs of a feature are those that apply to test cases with its word and to no others. */
#include "support/unit.h"

#include <stdlib.h>
#include <string.h>

#include "lab/lab.h"
#include "support/asked.h"
#include "support/page.h"
#include "support/sanitizer.h"
#include "support/trial.h"
#include "verify/bugs/bugs.h"

enum { BUGS = 1000, WORDS = 64, SEEDS = 20 };

/* ---------------------------------------------------------------- size classes */

static bool is_wide(const mha_conform_row *r, size_t d)
{
    return r->d_k == d;
}

static bool is_one_query(const mha_conform_row *r, size_t n)
{
    return r->T_q == n;
}

static bool is_grouped(const mha_conform_row *r, size_t h)
{
    return r->h == h && r->h_kv == (h == 8 ? 4 : 8);
}

static bool has_batch(const mha_conform_row *r, size_t n)
{
    return r->B >= n;
}

/* The number of keys is one more or one fewer than a multiple. */
static bool is_beside(const mha_conform_row *r, size_t tile)
{
    const size_t keys = r->P + r->T_k, rest = keys % tile;
    return rest == 1 || rest + 1 == tile;
}

static const struct {
    const char *name, *words; /* the words that a kernel has beside the feature's */
    bool (*is)(const mha_conform_row *r, size_t n);
    size_t n;
    const char *without; /* features that have no such test cases */
} classes[] = {
    {"d 64", "", is_wide, 64, ""},
    {"d 80", "", is_wide, 80, ""},
    {"d 96", "", is_wide, 96, ""},
    {"d 128", "", is_wide, 128, ""},
    {"d 256", "", is_wide, 256, ""},
    {"1 query", "cross offset", is_one_query, 1, "varlen segments query_padding"},
    {"8 on 4", "gqa", is_grouped, 8, ""},
    {"32 on 8", "gqa", is_grouped, 32, ""},
    {"B 5", "", has_batch, 5, "varlen"},
    {"tile 16", "", is_beside, 16, ""},
    {"tile 32", "", is_beside, 32, ""},
    {"tile 64", "", is_beside, 64, ""},
    {"tile 128", "", is_beside, 128, ""},
};
enum { CLASSES = sizeof classes / sizeof *classes };

/* ---------------------------------------------------------------- bugs of a feature */

static bool of_word[WORDS][BUGS], of_any[BUGS];
static size_t word_count;

/* Whether a bug changes the case; one of lse alone, where that is asked for. */
static bool applies(const mha_case *c, size_t bug, bool lse)
{
    mha__program program, said = mha__program_of(c);
    return mha__bugs_apply(c, (int)bug, -1, &program) && !mha__programs_equal(&program, &said) &&
           (lse || !mha__has(&program, AT_LSE, OP_FN));
}

/* Whether all words of a row are among these. */
static bool is_within(const mha_conform_row *row, const char *words)
{
    bool within = true;
    for (size_t w = 0; w < word_count; w++) {
        const char *need = mha_conform_need_at(w)->name;
        within = within && (!mha__text_among(row->has, need) || mha__text_among(words, need));
    }
    return within;
}

/* Whether the row asks a kernel that has the feature, causal and what the class needs, and nothing else but words
 * without which nothing asks for the feature. */
static bool is_for(const mha_conform_row *row, const char *word, const char *more)
{
    static const char *const companions[][2] = {
        {"window_keep", "window"}, {"part", "offset cross"}, {"offset", "cross"}, {"pages", "cross"}};
    char words[200];
    const char *with = "";
    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++)
        with = strcmp(companions[i][0], word) ? with : companions[i][1];
    (void)snprintf(words, sizeof words, "%s causal %s %s", word, more, with);
    return mha__text_among(row->has, word) && is_within(row, words);
}

/* Finds them by the test cases of level smoke: the bugs that apply to one with the feature's word, and to none with
 * other words out of causal and gqa alone. */
static int find_bugs(void **state)
{
    (void)state;
    static bool plain[WORDS][BUGS];
    mha_conform_row row;
    assert_in_range(mha_bug_count(), 1, BUGS);
    while (mha_conform_need_at(word_count))
        word_count++;
    for (size_t i = 0; mha_conform_at(i, &row); i++) {
        mha_error error;
        mha_test_case *q;
        mha_case *c;
        if (row.level > MHA_CONFORM_SMOKE || strstr(row.has, "backward"))
            continue;
        assert_ok(mha_test_case_create(i, MHA_F32, NULL, &q, &error), error);
        assert_ok(mha_test_case_as_case(q, NULL, &c, &error), error);
        for (size_t v = 0; v < mha_bug_count(); v++) {
            const bool here = applies(c, v, strstr(row.has, "lse")) &&
                              strcmp(mha_bug_at(v)->name, ASKED_RIGHT_IN_FLOAT32) != 0;
            of_any[v] = of_any[v] || (here && !*row.has);
            for (size_t w = 0; here && w < word_count; w++)
                if (is_for(&row, mha_conform_need_at(w)->name, "gqa cross offset"))
                    of_word[w][v] = true;
                else if (is_within(&row, "causal gqa"))
                    plain[w][v] = true;
        }
        mha_case_close(c);
        mha_test_case_destroy(q);
    }
    for (size_t w = 0; w < word_count; w++)
        for (size_t v = 0; v < mha_bug_count(); v++)
            of_word[w][v] = of_word[w][v] && !plain[w][v];
    return 0;
}

/* A feature that no bug has of its own is asked with bugs of every attention, which a seed draws. */
static bool is_bug_of(size_t w, size_t bug, uint64_t seed)
{
    size_t own = 0;
    for (size_t v = 0; v < mha_bug_count(); v++)
        own += of_word[w][v];
    return own ? of_word[w][bug] : of_any[bug] && (bug + seed) % SEEDS == 0;
}

/* ---------------------------------------------------------------- what is rejected */

/* Of a bug in a class: no test case of it, none that shows it, accepted wherever it shows, rejected by one. */
enum { NOWHERE, SAME, ACCEPTED, REJECTED };
static unsigned char found[CLASSES][BUGS];

static int judge(mha_test_case *q, const mha_case *c, const char *bug, bool lse)
{
    mha_test_result exact, result = asked_memory(q, MHA_F64);
    mha_error error;
    mha_difference d;
    int found_here = NOWHERE;
    assert_ok(mha_test_case_exact(q, &exact, &error), error);
    if (mha_case_with_bugs(c, &bug, 1, MHA_STAGE_OUTPUT, &result.output, NULL) == MHA_OK &&
        (!lse || mha_case_with_bugs(c, &bug, 1, MHA_STAGE_LSE, &result.lse, NULL) == MHA_OK)) {
        assert_ok(mha_compare(&result.output, &exact.output, 1e-9, 1e-9, &d, &error), error);
        size_t differing = d.mismatches;
        if (lse)
            assert_ok(mha_compare(&result.lse, &exact.lse, 1e-6, 1e-6, &d, &error), error);
        differing += lse ? d.mismatches : 0;
        found_here = differing == 0 ? SAME : asked_passes(q, &result, NULL) ? ACCEPTED : REJECTED;
    }
    asked_free(&result);
    return found_here;
}

/* Fills `found` for a feature, with the numbers of a seed. */
static void cover(size_t w, uint64_t seed)
{
    const mha_conform_choices choices = {.seed = seed};
    const char *word = mha_conform_need_at(w)->name;
    mha_conform_row row;
    memset(found, NOWHERE, sizeof found);
    for (size_t i = 0; mha_conform_at(i, &row); i++) {
        bool of[CLASSES], any = false;
        for (size_t k = 0; k < CLASSES; k++) {
            of[k] = row.level < MHA_CONFORM_LARGE && classes[k].is(&row, classes[k].n) &&
                    is_for(&row, word, classes[k].words);
            any = any || of[k];
        }
        if (!any || strstr(row.has, "backward"))
            continue;
        mha_test_case *q = NULL;
        mha_case *c = NULL;
        mha_error error;
        for (size_t v = 0; v < mha_bug_count(); v++) {
            bool left = false;
            for (size_t k = 0; k < CLASSES; k++)
                left = left || (of[k] && found[k][v] < REJECTED);
            if (!is_bug_of(w, v, seed) || !left)
                continue;
            if (!q) {
                assert_ok(mha_test_case_create(i, MHA_F32, &choices, &q, &error), error);
                assert_ok(mha_test_case_as_case(q, NULL, &c, &error), error);
            }
            const bool lse = strstr(row.has, "lse");
            const int here = applies(c, v, lse) ? judge(q, c, mha_bug_at(v)->name, lse) : NOWHERE;
            for (size_t k = 0; k < CLASSES; k++)
                if (of[k] && here > found[k][v])
                    found[k][v] = (unsigned char)here;
        }
        mha_case_close(c);
        mha_test_case_destroy(q);
    }
}

static size_t count_of(size_t k, int what)
{
    size_t count = 0;
    for (size_t v = 0; v < BUGS; v++)
        count += found[k][v] == what;
    return count;
}

/* ---------------------------------------------------------------- gradients */

/* The same of the word backward, whose bugs are those of a backward. A bug counts as accepted only where its gradients
 * leave their bound. */
static void cover_backward(uint64_t seed)
{
    const mha_conform_choices choices = {.seed = seed};
    mha_conform_row row;
    memset(found, NOWHERE, sizeof found);
    for (size_t i = 0; mha_conform_at(i, &row); i++) {
        bool of[CLASSES], any = false;
        for (size_t k = 0; k < CLASSES; k++) {
            of[k] = row.level < MHA_CONFORM_LARGE && classes[k].is(&row, classes[k].n) &&
                    is_for(&row, "backward", classes[k].words) && strcmp(row.regime, "normal") == 0;
            any = any || of[k];
        }
        if (!any)
            continue;
        mha_test_case *q;
        mha_power power;
        mha_error error;
        assert_ok(mha_test_case_create(i, MHA_F32, &choices, &q, &error), error);
        const mha_criterion criterion = {.precision = MHA_F32};
        mha_gradients gradients = {0};
        mha_test_result exact = asked_exact(q, MHA_F64);
        mha_test_case_d_output(q, &gradients.d_output);
        memcpy(gradients.of, exact.gradients, sizeof exact.gradients);
        mha_call call = *mha_test_case_call(q);
        call.path = MHA_PATH_EXACT;
        assert_ok(mha_examine_gradients(NULL, &call, &gradients, &criterion, &power, &error), error);
        for (size_t r = 0; r < power.count; r++)
            for (size_t k = 0, v = 0; k < CLASSES; k++) {
                const mha_power_result result = power.rows[r].result;
                while (mha_gradient_bug_at(v)->name != power.rows[r].bug)
                    v++;
                const int here = result == MHA_POWER_REJECTED ? REJECTED
                                 : result == MHA_POWER_SAME || power.rows[r].excess <= 1 ? SAME : ACCEPTED;
                if (of[k] && here > found[k][v])
                    found[k][v] = (unsigned char)here;
            }
        mha_power_clear(&power);
        asked_free(&exact);
        mha_test_case_destroy(q);
    }
}

/* ---------------------------------------------------------------- tests */

static bool is_backward(size_t w)
{
    return strcmp(mha_conform_need_at(w)->name, "backward") == 0;
}

static const char *bug_name(size_t w, size_t v)
{
    return is_backward(w) ? mha_gradient_bug_at(v)->name : mha_bug_at(v)->name;
}

/* How many of a feature's classes let a bug pass that shows there, or have no bug that they reject. */
static size_t holes(size_t w, uint64_t seed)
{
    const char *word = mha_conform_need_at(w)->name;
    size_t count = 0;
    is_backward(w) ? cover_backward(seed) : cover(w, seed);
    for (size_t k = 0; k < CLASSES; k++) {
        if (mha__text_among(classes[k].without, word))
            continue;
        for (size_t v = 0; v < BUGS; v++)
            if (found[k][v] == ACCEPTED)
                print_message("%s, %s, seed %d: %s is accepted\n", word, classes[k].name, (int)seed, bug_name(w, v));
        if (count_of(k, REJECTED) == 0)
            print_message("%s, %s, seed %d: no bug is rejected\n", word, classes[k].name, (int)seed);
        count += count_of(k, ACCEPTED) + (count_of(k, REJECTED) == 0);
    }
    return count;
}

/* In each class every bug of a feature that shows there is rejected, and one is, for each of 20 draws of the numbers:
 * one in 200, or all with DRAW_ALL (make test-long). */
static void every_bug_of_a_feature_is_rejected_in_each_class(void **state)
{
    (void)state;
    size_t count = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        for (size_t w = 0; w < word_count; w++)
            count += trial_drawn(200, seed * word_count + w) ? holes(w, seed) : 0;
    assert_int_equal(count, 0);
}

/* Whether test case i rejects a known bug; `last` is the bug that the last one rejected, which is tried first. */
static bool rejects_one(size_t i, const mha_conform_row *row, size_t *last)
{
    const mha_conform_choices choices = {.seed = 1};
    const bool lse = strstr(row->has, "lse");
    mha_test_case *q;
    mha_case *c;
    mha_error error;
    bool rejected = false;
    assert_ok(mha_test_case_create(i, MHA_F32, &choices, &q, &error), error);
    assert_ok(mha_test_case_as_case(q, NULL, &c, &error), error);
    for (size_t n = 0; n < mha_bug_count() && !rejected; n++) {
        const size_t v = (*last + n) % mha_bug_count();
        rejected = applies(c, v, lse) && judge(q, c, mha_bug_at(v)->name, lse) == REJECTED;
        *last = rejected ? v : *last;
    }
    mha_case_close(c);
    mha_test_case_destroy(q);
    return rejected;
}

static void every_test_case_rejects_a_bug(void **state)
{
    (void)state;
    mha_conform_row row;
    size_t count = 0, last = 0;
    for (size_t i = 0; mha_conform_at(i, &row); i++) {
        if (row.level == MHA_CONFORM_LARGE || !trial_drawn(20, i) || rejects_one(i, &row, &last))
            continue;
        print_message("%s rejects no bug\n", row.name);
        count++;
    }
    assert_int_equal(count, 0);
}

/* The bugs of a feature that are rejected somewhere, as an item of a list; behind a bug of a forward the classes where
 * it is not. */
static void say_bugs(bytes *page, size_t w)
{
    char item[20000];
    size_t used = (size_t)snprintf(item, sizeof item, "- `%s`: ", mha_conform_need_at(w)->name), listed = 0;
    for (size_t v = 0; v < BUGS; v++) {
        char without[400] = "";
        size_t rejecting = 0;
        for (size_t k = 0; k < CLASSES; k++) {
            const size_t at = strlen(without);
            rejecting += found[k][v] == REJECTED;
            if (found[k][v] != REJECTED && count_of(k, REJECTED) && !is_backward(w))
                (void)snprintf(without + at, sizeof without - at, "%s%s", at ? ", " : " (not ", classes[k].name);
        }
        if (rejecting)
            used += (size_t)snprintf(item + used, sizeof item - used, "%s`%s`%s%s", listed++ ? ", " : "",
                                     bug_name(w, v), without, *without ? ")" : "");
        assert_in_range(used, 1, sizeof item - 600);
    }
    page_item(page, item);
}

/* The table of the manual, of the suite's own numbers. */
static void the_page_has_the_coverage(void **state)
{
    (void)state;
    if (ADDRESS_SANITIZER || (!getenv("MHA_WRITE_PAGES") && !getenv("DRAW_ALL"))) {
        print_message("in make test-long: a minute\n");
        return;
    }
    bytes table = {0}, lists = {0};
    bytes_text(&table, "\n| word |");
    for (size_t k = 0; k < CLASSES; k++)
        bytes_text(&table, " "), bytes_text(&table, classes[k].name), bytes_text(&table, " |");
    bytes_text(&table, "\n|---|");
    for (size_t k = 0; k < CLASSES; k++)
        bytes_text(&table, "---|");
    for (size_t w = 0; w < word_count; w++) {
        char cell[100];
        (void)holes(w, 0);
        (void)snprintf(cell, sizeof cell, "\n| `%s` |", mha_conform_need_at(w)->name);
        bytes_text(&table, cell);
        for (size_t k = 0; k < CLASSES; k++) {
            (void)snprintf(cell, sizeof cell, count_of(k, REJECTED) ? " %zu |" : " |", count_of(k, REJECTED));
            bytes_text(&table, cell);
        }
        say_bugs(&lists, w);
    }
    bytes_text(&table, "\n\n");
    bytes_add(&lists, "", 1);
    bytes_text(&table, (const char *)lists.data);
    bytes_text(&table, "\n");
    bytes_add(&table, "", 1);
    page_holds("src/verify/conform/SUITE.md", "coverage", (const char *)table.data);
    bytes_free(&table), bytes_free(&lists);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_bug_of_a_feature_is_rejected_in_each_class),
                                       cmocka_unit_test(every_test_case_rejects_a_bug),
                                       cmocka_unit_test(the_page_has_the_coverage)};
    return cmocka_run_group_tests(tests, find_bugs, NULL);
}
