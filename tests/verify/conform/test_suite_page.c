/* The power of the suite: the page src/verify/conform/SUITE.md lists what it asks, which wrong attentions it excludes,
 * and kernels that random inputs let pass. */
#include "support/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/asked.h"
#include "support/careless.h"
#include "support/page.h"
#include "support/sanitizer.h"

static const char page_path[] = "src/verify/conform/SUITE.md";

/* ---------------------------------------------------------------- text */

static char text[100000];

static void begin(void)
{
    text[0] = 0;
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    va_list arguments;
    const size_t used = strlen(text);
    va_start(arguments, format);
    const int n = vsnprintf(text + used, sizeof text - used, format, arguments);
    va_end(arguments);
    assert_in_range(n, 0, sizeof text - used - 1);
}

/* A list with commas between, in lines of at most 120 columns. */
static void say_list(const char *const *words, size_t count)
{
    bytes page = {0};
    for (size_t i = 0; i < count; i++) {
        bytes_text(&page, i ? ", `" : "- `");
        bytes_text(&page, words[i]);
        bytes_text(&page, "`");
    }
    bytes_add(&page, "", 1);
    bytes folded = {0};
    page_item(&folded, (const char *)page.data);
    bytes_add(&folded, "", 1);
    say("%s", (const char *)folded.data);
    bytes_free(&page), bytes_free(&folded);
}

/* ---------------------------------------------------------------- what is asked */

static void words(const char *title, const mha_conform_word *at(size_t))
{
    begin();
    say("\n| %s | meaning |\n|---|---|\n", title);
    for (size_t i = 0; at(i); i++)
        say("| `%s` | %s |\n", at(i)->name, at(i)->meaning);
    say("\n");
}

static void words_of_kernels_are_listed(void **state)
{
    (void)state;
    words("word", mha_conform_need_at);
    page_holds(page_path, "needs", text);
    words("regime", mha_conform_regime_at);
    page_holds(page_path, "regimes", text);
}

static void conventions_are_listed(void **state)
{
    (void)state;
    begin();
    say("\n| convention | difference | choices |\n|---|---|---|\n");
    for (size_t i = 0; mha_conform_convention_at(i); i++) {
        const mha_conform_convention *d = mha_conform_convention_at(i);
        say("| `%s` | %s | ", d->name, d->meaning);
        for (size_t r = 0; r < d->count; r++)
            say("%s`%s`: %s", r ? "; " : "", d->choices[r].name, d->choices[r].meaning);
        say(" |\n");
    }
    say("\n");
    page_holds(page_path, "conventions", text);
}

/* The families whose names have the same first word are one item. */
static void families_are_listed(void **state)
{
    (void)state;
    mha_conform_row row, next;
    size_t n = 0, level[MHA_CONFORM_LEVEL_COUNT] = {0}, of_family = 0;
    char item[8000] = "";
    bytes page = {0};
    for (size_t i = 0; mha_conform_at(i, &row); i++, n++) {
        level[row.level]++;
        of_family++;
        const bool has_next = mha_conform_at(i + 1, &next);
        if (has_next && strcmp(next.family, row.family) == 0)
            continue;
        const size_t word = strcspn(row.family, "-"), used = strlen(item);
        const bool is_normal = strcmp(row.regime, "normal") == 0;
        const int length = snprintf(item + used, sizeof item - used, "%s`%s` (%zu)%s%s%s%s%s", used ? "; " : "- ",
                                    row.family, of_family, is_normal && !*row.settings ? "" : ": ",
                                    is_normal ? "" : row.regime, *row.settings ? is_normal ? "`" : ", `" : "",
                                    row.settings, *row.settings ? "`" : "");
        assert_in_range(length, 1, sizeof item - used - 1);
        of_family = 0;
        if (has_next && strcspn(next.family, "-") == word && strncmp(next.family, row.family, word) == 0)
            continue;
        page_item(&page, item);
        *item = 0;
    }
    bytes_add(&page, "", 1);
    begin();
    say("\n%s\n%zu test cases: %zu of level smoke, %zu more of level full, %zu more of level large.\n\n",
        (const char *)page.data, n, level[0], level[1], level[2]);
    page_holds(page_path, "families", text);
    bytes_free(&page);
}

/* ---------------------------------------------------------------- bugs */

enum { BUGS = 1000, FEW = 1200 }; /* FEW: scores of test cases that are examined */

/* Bugs with numbers, which a kernel could have. */
static const char *const numbered[] = {
    "rope-base-other 300", "rope-positions-divided 4", "case-lacks-rope-halves 300", "case-lacks-rope-pairs 300",
    "case-lacks-rope-halves-part 8", "case-lacks-rope-pairs-part 8", "norm-eps-other 1", "case-lacks-groups 2",
    "tile-not-rescaled 16", "tile-values-not-rescaled 16", "tile-sum-not-rescaled 16", "tile-padded 64",
    "tile-last-dropped 32", "tile-first-only 16", "causal-block 16", "case-lacks-prefix 5", "case-lacks-chunk 16",
    "lengths-to-tile 16", "case-lacks-lengths 5, 5", "case-lacks-padding 3; 1", "padding-other 3; 1",
    "case-lacks-sinks 2, 0, 3, 1", "case-lacks-slopes 2, 0, 3, 1", "sinks-in-every-part 4", "dropout-mask 0.1",
    "dropout-scale 0.1", "dropout-scale-twice 0.1", "scale-other 0.3", "softcap-other 4", "case-lacks-softcap 30",
    "sigmoid-bias-other 4", "window-left-other 2", "window-right-other 5", "case-lacks-window 2",
    "case-lacks-window-left 8", "case-lacks-window-right 2", "merge-permuted 2, 0, 3, 1", "batch-permuted 1, 0",
    "output-times 1.01", "rows-q-moved 1", "rows-k-moved 1", "rows-v-moved 1", "rows-kv-moved 1", "rows-k-repeated 2",
    "rows-v-repeated 2", "rows-kv-repeated 2", "rows-kv-wrapped 3", "rows-kv-held 3", "batch-q-moved 1",
    "batch-k-moved 1", "batch-v-moved 1", "batch-kv-moved -1", "heads-q-moved 1", "heads-k-moved 1", "heads-v-moved 1",
    "features-q-moved 1", "features-k-moved 1", "features-v-moved 1", "memory-q 1", "memory-k 1", "memory-v 1",
    "memory-kv 2", "sinks-other 2, 0, 3, 1", "slopes-other 2, 0, 3, 1", "scales-other 2, 0, 3, 1", "key-twice 2",
    "tile-twice 0", "parts-averaged 4", "parts-added 4", "causal-shift-other 2", "lengths-other 5, 5", "mask-moved 1",
    "mask-batch-moved 1", "rounded-q 8", "rounded-k 8", "rounded-v 8", "rounded-qk 8", "rounded-kv 8", "rounded-qkv 8",
    "rounded-scores 8", "rounded-exponentials 8", "rounded-exponentials-v 8", "rounded-weights 8",
    "rounded-weights-v 8", "rows-v-permuted 0: 1, 1: 0", "output-rows-other 1: 0", "rows-q-permuted 1: 0, 0: 1",
    "groups-other 1, 1, 0, 0", "groups-k-other 1, 1, 0, 0", "groups-v-other 1, 1, 0, 0", "parts-averaged-seen 4",
    "parts-by-sums 4", "parts-by-lse 4", "parts-by-powers-of-2 4", "parts-lse-base-2 4", "top-keys-alone 2",
    "tile-edges-twice 2", "tile-filled 4", "top-weights-alone 2", "scores-limited 0.2", "exponents-limited 0.2",
    "weights-limited 0.1", "denominator-raised 0.1", "softmax-base-2-rounded", "rows-k-permuted 0: 2, 2: 0",
    "rows-kv-permuted 0: 2, 2: 0", "tile-last-only 4", "int8-k 1", "int8-v 1", "int8-kv 1", "output-lacks-rows 4",
    "output-lacks-heads 1", "output-lacks-features 8", "output-lacks-batches 1", "output-lacks-end 100",
    "output-lacks-end-by-head 100", "weights-small-hidden 0.01", "weights-small-dropped 0.01",
    "exponentials-small-dropped 0.01", "features-scored 4", "parts-by-maxima 4", "prefix-other 5", "chunk-other 8",
    "case-lacks-window-keep 1", "fill-other -1", "fill-add-other -1", "mask-times 0.7",
    "rope-dim-other 2", "position-bias-distance-other 32768",
    "rope-queries-moved 2", "rope-twice 1", "rope-positions-run 1", "rope-one-position 1",
    "rope-positions-wrapped 4", "rope-positions-held 4", "rope-heads-other 1", "heads-q-permuted 1, 0, 3, 2",
    "cache-k-moved 1", "cache-v-moved 1",
    "cache-kv-moved 1", "cache-k-batch-moved -1", "cache-v-batch-moved -1", "cache-kv-batch-moved -1",
    "cache-k-heads-moved 1", "cache-v-heads-moved 1", "cache-kv-heads-moved 1", "cache-k-rounded 3",
    "cache-v-rounded 3", "cache-kv-rounded 3", "cache-k-times 2", "cache-v-times 2", "cosine-scores 2",
    "position-bias-times 2", "tile-rescaled-base-2 4", "tile-rescaled-inverse 4", "tile-rescaled-late 4",
    "tile-padded-seen 64", "parts-added-shifted 4", "parts-by-inverse 4", "causal-block-before 4",
    "causal-tile-first 4", "case-lacks-dilation 2", "chunk-shift 1", "mask-rows-moved 1", "mask-columns-first 4",
    "segments-moved 1", "alibi-limited 2", "weights-powered 2", "window-block 4", "int8-q 1", "int8-qk 1",
    "int4-q 1", "int4-k 1", "int4-v 1", "int4-kv 1", "fp8-q 1", "fp8-k 1", "fp8-v 1", "fp8-qk 1", "fp8-kv 1",
    "fp8-qkv 1", "q-raised 1", "v-raised 1", "heads-times 2, 1, 1, 1", "new-k-times 2", "new-v-times 2",
    "heads-scales-times 1, 1, 1, 1, 2, 1, 1, 1", "keys-counted 1: 2; none",
    "rows-q-shifted 1", "rows-k-shifted 1", "rows-v-shifted 1", "rows-kv-shifted 1", "cache-pages-heads-first 2",
    "cache-pages-rows-first 2", "alibi-by-tile 2", "alibi-restarts 2", "output-columns-other 0: 1",
};

static size_t bug_index(const char *name, size_t length)
{
    for (size_t v = 0; v < mha_bug_count(); v++)
        if (strlen(mha_bug_at(v)->name) == length && strncmp(mha_bug_at(v)->name, name, length) == 0)
            return v;
    fail_msg("no bug is called %s", name);
    return 0;
}

typedef struct tally {
    size_t applies[BUGS], excluded[BUGS];
} tally;

static bool is_examined(const mha_conform_row *row)
{
    const size_t scores = row->B * row->h * row->T_q * (row->T_k + row->P);
    return row->level < MHA_CONFORM_LARGE && scores <= FEW && !strstr(row->has, "backward");
}

static void examine(tally *t, mha_dtype type)
{
    mha_conform_row row;
    mha_error error;
    for (size_t i = 0; mha_conform_at(i, &row); i++) {
        mha_test_case *q;
        mha_case *c;
        mha_power power;
        if (!is_examined(&row))
            continue;
        assert_ok(mha_test_case_create(i, type, NULL, &q, &error), error);
        assert_ok(mha_test_case_as_case(q, NULL, &c, &error), error);
        const mha_criterion criterion = {.precision = type, .stage = strstr(row.has, "lse") ? "lse" : NULL};
        assert_ok(mha_case_power(c, &criterion, 0, NULL, &power, &error), error);
        for (size_t r = 0; r < power.count; r++) {
            const char *name = power.rows[r].bug;
            const size_t v = bug_index(name, strlen(name));
            t->applies[v]++;
            t->excluded[v] += power.rows[r].result == MHA_POWER_REJECTED;
        }
        mha_power_clear(&power);
        mha_case_close(c);
        mha_test_case_destroy(q);
    }
}

/* Whether a test case fails the bug. */
static bool excludes(mha_test_case *q, const mha_case *c, const char *bug, bool *applies)
{
    mha_test_result result = asked_memory(q, MHA_F64);
    bool excluded = false;
    *applies = mha_case_with_bugs(c, &bug, 1, MHA_STAGE_OUTPUT, &result.output, NULL) == MHA_OK;
    if (*applies)
        excluded = !asked_passes(q, &result, NULL);
    asked_free(&result);
    return excluded;
}

static void examine_numbered(tally *t, mha_dtype type)
{
    mha_conform_row row;
    mha_error error;
    for (size_t i = 0; mha_conform_at(i, &row); i++) {
        mha_test_case *q;
        mha_case *c;
        if (!is_examined(&row) || strstr(row.has, "lse"))
            continue;
        assert_ok(mha_test_case_create(i, type, NULL, &q, &error), error);
        assert_ok(mha_test_case_as_case(q, NULL, &c, &error), error);
        for (size_t n = 0; n < sizeof numbered / sizeof *numbered; n++) {
            const size_t v = bug_index(numbered[n], strcspn(numbered[n], " "));
            bool applies;
            if (t->excluded[v] || t->applies[v] >= 200)
                continue;
            t->excluded[v] += excludes(q, c, numbered[n], &applies);
            t->applies[v] += applies;
        }
        mha_case_close(c);
        mha_test_case_destroy(q);
    }
}

/* Writes the bugs that a suite of one type rejects; in float32 it must reject every bug that can be asked for. */
static void say_power(mha_dtype type)
{
    static tally t;
    const char *left[BUGS], *none[BUGS];
    size_t excluded = 0, n_left = 0, n_none = 0;
    memset(&t, 0, sizeof t);
    examine(&t, type);
    examine_numbered(&t, type);
    for (size_t v = 0; v < mha_bug_count(); v++) {
        const char *name = mha_bug_at(v)->name;
        excluded += t.excluded[v] > 0;
        if (t.applies[v] && !t.excluded[v])
            left[n_left++] = name;
        if (!t.applies[v])
            none[n_none++] = name;
    }
    say("%s: test cases reject %zu bugs%s", mha_dtype_name(type), excluded, n_left ? ", and not these:\n\n" : ".\n");
    if (n_left)
        say_list(left, n_left);
    say("\n");
    if (type != MHA_F32)
        return;
    for (size_t i = 0; i < n_left; i++)
        if (strcmp(left[i], ASKED_RIGHT_IN_FLOAT32) != 0)
            fail_msg("%s is not excluded", left[i]);
    assert_int_equal(n_left, 1);
    say("No test case can show %zu bugs, of projections, latents and gates, or of second choices of conventions:\n\n",
        n_none);
    say_list(none, n_none);
    say("\n");
}

static void every_bug_is_excluded(void **state)
{
    (void)state;
    if (ADDRESS_SANITIZER) {
        print_message("not under AddressSanitizer: minutes\n");
        return;
    }
    begin();
    say("\n");
    say_power(MHA_F32);
    page_holds(page_path, "power", text);
    if (!getenv("MHA_WRITE_PAGES") && !getenv("SUITE_TYPES"))
        return;
    begin();
    say("\n");
    say_power(MHA_F16);
    say_power(MHA_BF16);
    page_holds(page_path, "power-narrow", text);
}

/* ---------------------------------------------------------------- careless kernels */

/* How many of the test cases of a family a kernel passes, up to a level. */
static size_t passes(size_t kernel, const char *family, mha_conform_level level, size_t *asked_count)
{
    mha_conform_row row;
    size_t passed = 0;
    *asked_count = 0;
    for (size_t i = 0; mha_conform_at(i, &row); i++) {
        mha_test_case *q;
        mha_error error;
        if (strcmp(row.family, family) != 0 || row.level > level || row.T_q > 130)
            continue;
        assert_ok(mha_test_case_create(i, MHA_F32, NULL, &q, &error), error);
        mha_test_result result = asked_memory(q, MHA_F32);
        careless_run(kernel, mha_test_case_call(q), &result.output);
        passed += asked_passes(q, &result, NULL);
        ++*asked_count;
        asked_free(&result);
        mha_test_case_destroy(q);
    }
    return passed;
}

/* How many calls with random inputs about 0 a kernel passes, half of them causal: 64 or 128 tokens in 4 heads of 64. */
static size_t passes_random(size_t kernel, size_t calls)
{
    enum { D = 64, MOST = 128 * 4 * D };
    static float x[3][MOST], y[MOST];
    size_t passed = 0;
    for (size_t n = 0; n < calls; n++) {
        const size_t T = n % 4 < 2 ? 64 : 128;
        mha_view *views[3];
        mha_call call = {.semantics.visible.causal = n % 2};
        views[0] = &call.query, views[1] = &call.key, views[2] = &call.value;
        for (uint64_t i = 0; i < 3; i++) {
            *views[i] = mha_heads(x[i], 1, T, 4, D);
            mha_random_fill(views[i], 100 + n, i, -1.7320508f, 1.7320508f);
        }
        const mha_view output = mha_heads(y, 1, T, 4, D);
        const mha_keep kept = {.stage = MHA_STAGE_OUTPUT, .view = output};
        mha_case *c;
        mha_error error;
        mha_verdict v;
        careless_run(kernel, &call, &output);
        assert_ok(mha_case_of_call(NULL, &call, &kept, 1, NULL, &c, &error), error);
        assert_ok(mha_case_check(c, MHA_PATH_EXACT, NULL, 0, &v, &error), error);
        passed += v.outcome == MHA_OUTCOME_PASSED;
        mha_verdict_clear(&v);
        mha_case_close(c);
    }
    return passed;
}

/* Whether the kernels that are written in a hurry have all that a test case needs. */
static bool is_for_careless(const mha_conform_row *row)
{
    static const char *const known[] = {"causal", "cross", "gqa", "value_width", "lengths", "strides"};
    char has[sizeof row->has];
    memcpy(has, row->has, sizeof has);
    for (char *word = strtok(has, " "); word; word = strtok(NULL, " ")) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found = found || strcmp(word, known[i]) == 0;
        if (!found)
            return false;
    }
    return strcmp(row->regime, "hidden-nan") != 0 || *row->has;
}

/* A kernel without a bug, which adds terms one after the other in float32, passes whatever it can be asked. */
static void the_right_kernel_passes(void **state)
{
    (void)state;
    mha_conform_row row;
    size_t count = 0;
    for (size_t i = 0; mha_conform_at(i, &row); i++) {
        mha_test_case *q;
        mha_error error;
        char reason[400];
        if (!is_for_careless(&row) || row.T_q * row.T_k > 140000)
            continue;
        assert_ok(mha_test_case_create(i, MHA_F32, NULL, &q, &error), error);
        mha_test_result result = asked_memory(q, MHA_F32);
        careless_run(0, mha_test_case_call(q), &result.output);
        if (!asked_passes(q, &result, reason))
            fail_msg("%s: %s", row.name, reason);
        asked_free(&result);
        mha_test_case_destroy(q);
        count++;
    }
    assert_in_range(count, 150, 500);
}

static void regimes_show_what_random_inputs_let_pass(void **state)
{
    (void)state;
    enum { CALLS = 4 }; /* 64 and 128 tokens, causal and not */
    size_t asked_count;
    begin();
    say("\n| kernel | its bug | family | test cases that fail |\n|---|---|---|---|\n");
    assert_int_equal(passes_random(0, CALLS), CALLS);
    for (size_t k = 1; careless_at(k); k++) {
        const careless *row = careless_at(k);
        const size_t random = passes_random(k, CALLS);
        const mha_conform_level level = strncmp(row->regime, "far", 3) ? MHA_CONFORM_FULL : MHA_CONFORM_LARGE;
        const size_t passed = passes(k, row->regime, level, &asked_count);
        if (random < CALLS || passed == asked_count)
            fail_msg("%s passes %zu of %d random calls, %zu of %zu of %s", row->name, random, CALLS, passed,
                     asked_count, row->regime);
        say("| `%s` | %s | `%s` | %zu of %zu |\n", row->name, row->help, row->regime, asked_count - passed,
            asked_count);
    }
    say("\n");
    page_holds(page_path, "careless", text);
}

int main(void)
{
    if (getenv("MHA_TEST_FILTER"))
        cmocka_set_test_filter(getenv("MHA_TEST_FILTER"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_of_kernels_are_listed), cmocka_unit_test(conventions_are_listed),
        cmocka_unit_test(families_are_listed),         cmocka_unit_test(every_bug_is_excluded),
        cmocka_unit_test(the_right_kernel_passes),     cmocka_unit_test(regimes_show_what_random_inputs_let_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
