/* The conformance suite: its test cases are what their table says, the same on every machine, and this library passes
 * them; wrong results, other choices and bad requests are told apart. */
#include "attention/call/settings/settings.h"
#include "support/unit.h"
#include "support/window.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/asked.h"
#include "support/scratch.h"
#include "support/trial.h"

/* Of the inputs in F32, F16 and BF16: of the test cases that versions 1.0, 1.1 and 1.2 brought, each from the first of
 * them on. */
enum { VERSIONS = 3 };
static const char *const firsts[VERSIONS] = {"probe-alignment", "backward.q17-s17", "gqa-groups"};
static const uint64_t digests[][VERSIONS] = {{0xaef4d7d81336c613, 0x481b421e116b5ec3, 0xf78dceef14cf60f3},
                                             {0xfa98fde818bfbcfb, 0x3870e76e2db48be4, 0xb7fa02bbafe835fd},
                                             {0x96ff5c61dbdf54fb, 0x71baab83e1928be4, 0x2928538a1771adfd}};

/* ---------------------------------------------------------------- the table */

static void names_are_unique_and_words_are_known(void **state)
{
    (void)state;
    static mha_conform_row rows[3000];
    size_t n = 0, level[MHA_CONFORM_LEVEL_COUNT] = {0};
    while (mha_conform_at(n, &rows[n]) && n < 2999)
        n++;
    assert_in_range(n, 300, 2998);
    for (size_t i = 0; i < n; i++) {
        level[rows[i].level]++;
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(rows[i].name, rows[j].name);
        bool regime = false;
        for (size_t k = 0; mha_conform_regime_at(k); k++)
            regime = regime || strcmp(mha_conform_regime_at(k)->name, rows[i].regime) == 0;
        assert_true(regime);
        char has[sizeof rows[i].has];
        memcpy(has, rows[i].has, sizeof has);
        for (char *word = strtok(has, " "); word; word = strtok(NULL, " ")) {
            bool known = false;
            for (size_t k = 0; mha_conform_need_at(k); k++)
                known = known || strcmp(mha_conform_need_at(k)->name, word) == 0;
            if (!known)
                fail_msg("%s needs %s, which is no word", rows[i].name, word);
        }
    }
    for (int i = 0; i < MHA_CONFORM_LEVEL_COUNT; i++)
        assert_true(level[i] > 0);
    assert_string_equal(mha_conform_level_name(MHA_CONFORM_FULL), "full");
    assert_string_equal(mha_conform_level_name(MHA_CONFORM_LEVEL_COUNT), "?");
    assert_false(mha_conform_at(SIZE_MAX, &rows[0]));
    assert_null(mha_conform_convention_at(MHA_CONFORM_CONVENTIONS));
}

static bool is_word_of(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == 0 || at[n] == ' '))
            return true;
    return false;
}

/* Whether all words of `words` are among those of `has`. */
static bool are_in(const char *words, const char *has)
{
    char each[sizeof(mha_conform_row){0}.has];
    memcpy(each, words, strlen(words) + 1);
    for (char *word = strtok(each, " "); word; word = strtok(NULL, " "))
        if (!is_word_of(has, word))
            return false;
    return true;
}

/* A set of words is accepted if each is needed by a test case that needs no other words, and else the first that is not
 * is named: random sets. */
static void words_that_nothing_exercises_are_refused(void **state)
{
    (void)state;
    const char *words[64];
    static mha_conform_row rows[3000];
    size_t n = 0, count = 0, accepted = 0;
    uint64_t random = 1;
    while (count < 3000 && mha_conform_at(count, &rows[count]))
        count++;
    while (mha_conform_need_at(n))
        words[n] = mha_conform_need_at(n)->name, n++;
    for (size_t round = 0; round < 60; round++) {
        char has[400] = "";
        const mha_conform_level level = (mha_conform_level)(round % MHA_CONFORM_LEVEL_COUNT);
        const char *lonely = NULL;
        mha_error error = {0};
        for (size_t w = 0; w < n; w++) {
            random = random * 6364136223846793005 + 1442695040888963407;
            if (random >> 60 <= round % 7)
                (void)snprintf(has + strlen(has), sizeof has - strlen(has), "%s%s", *has ? " " : "", words[w]);
        }
        for (size_t w = 0; w < n && !lonely; w++) {
            bool exercised = false;
            for (size_t i = 0; !exercised && is_word_of(has, words[w]) && i < count; i++)
                exercised = rows[i].level <= level && is_word_of(rows[i].has, words[w]) && are_in(rows[i].has, has);
            lonely = exercised || !is_word_of(has, words[w]) ? NULL : words[w];
        }
        const mha_status status = mha_conform_has(has, level, &error);
        assert_int_equal(status, lonely ? MHA_INVALID : MHA_OK);
        if (lonely) {
            char begin[80];
            (void)snprintf(begin, sizeof begin, "; %s is exercised with ", lonely);
            assert_non_null(strstr(error.message, begin));
        }
        accepted += status == MHA_OK;
    }
    assert_in_range(accepted, 6, 54);
}

/* Words that make sense on their own are exercised so, in seconds; others say with which. */
static void words_are_exercised_alone(void **state)
{
    (void)state;
    static const char *const with[][2] = {{"window_keep", "window"}, {"prefix", "causal"}, {"offset", "causal"},
                                          {"part", "causal offset"}, {"pages", "causal"}};
    mha_error error;
    for (size_t w = 0; mha_conform_need_at(w); w++) {
        char has[80];
        (void)snprintf(has, sizeof has, "%s", mha_conform_need_at(w)->name);
        for (size_t i = 0; i < sizeof with / sizeof *with; i++)
            if (strcmp(has, with[i][0]) == 0) {
                char more[160];
                assert_int_equal(mha_conform_has(has, MHA_CONFORM_LARGE, &error), MHA_INVALID);
                (void)snprintf(more, sizeof more, "%s is exercised with %s", has, with[i][1]);
                assert_non_null(strstr(error.message, more));
                (void)snprintf(has, sizeof has, "%s,%s", with[i][0], with[i][1]);
            }
        assert_ok(mha_conform_has(has, MHA_CONFORM_SMOKE, &error), error);
    }
    assert_ok(mha_conform_has("", MHA_CONFORM_SMOKE, &error), error);
    assert_ok(mha_conform_has("causal, sinks", MHA_CONFORM_SMOKE, &error), error);
    assert_int_equal(mha_conform_has("causl", MHA_CONFORM_SMOKE, &error), MHA_INVALID);
}

/* Words that exclude each other are asked apart, and each is asked: torch refuses a mask beside is_causal. */
static void words_exclude_each_other(void **state)
{
    (void)state;
    mha_conform_row row;
    mha_error error;
    size_t causal = 0, mask = 0, both = 0;
    for (size_t i = 0; mha_conform_at(i, &row); i++) {
        const bool asks = mha_conform_asks("gqa, causal/mask cross", &row);
        assert_int_equal(asks, are_in(row.has, "gqa causal mask cross") &&
                                   !(is_word_of(row.has, "causal") && is_word_of(row.has, "mask")));
        causal += asks && is_word_of(row.has, "causal");
        mask += asks && is_word_of(row.has, "mask");
        both += mha_conform_asks("causal mask", &row) && are_in("causal mask", row.has);
    }
    assert_true(causal > 20 && mask > 20 && both > 2);
    assert_ok(mha_conform_has("causal/mask", MHA_CONFORM_SMOKE, &error), error);
    assert_refused(mha_conform_has("window/window_keep", MHA_CONFORM_LARGE, &error), MHA_INVALID, error, "has",
                   "window_keep is exercised with words that exclude it");
    assert_refused(mha_conform_has("causal/masc", MHA_CONFORM_LARGE, &error), MHA_INVALID, error, "has", "masc");
}

/* Every need and every regime belongs to a case: a word that none has says nothing. */
static void words_are_used(void **state)
{
    (void)state;
    mha_conform_row row;
    for (size_t k = 0; mha_conform_need_at(k); k++) {
        const char *word = mha_conform_need_at(k)->name;
        bool used = false;
        for (size_t i = 0; mha_conform_at(i, &row) && !used; i++) {
            for (char *w = strtok(row.has, " "); w; w = strtok(NULL, " "))
                used = used || strcmp(w, word) == 0;
        }
        if (!used)
            fail_msg("no test case needs %s", word);
    }
    for (size_t k = 0; mha_conform_regime_at(k); k++) {
        bool used = false;
        for (size_t i = 0; mha_conform_at(i, &row) && !used; i++)
            used = strcmp(row.regime, mha_conform_regime_at(k)->name) == 0;
        assert_true(used);
    }
}

/* The settings of a test case decide its needs: those of a few, by hand. */
static void needs_follow_from_the_test_case(void **state)
{
    (void)state;
    static const char *const expected[][2] = {
        {"plain.q65-s65", ""},
        {"causal-bottom-right.q5-s9", "causal cross offset"},
        {"gqa.b2-h6-kv2-q9-s9", "gqa"},
        {"window-softcap.b2-h4-q9-s9", "causal gqa softcap window"},
        {"value-width.b2-q9-s9-d16-dv8", "causal value_width"},
        {"cache.b2-h4-q3-s3", "causal gqa cache"},
        {"varlen-causal.h2-q24-s24", "causal varlen"},
        {"lse-sinks.b2-h4-q9-s9", "causal gqa sinks lse"},
        {"backward-sinks.b2-h4-q9-s9", "causal gqa sinks backward"},
    };
    mha_conform_row row;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_true(mha_conform_at(asked_index(expected[i][0]), &row));
        assert_string_equal(row.has, expected[i][1]);
    }
}

/* ---------------------------------------------------------------- bytes */

static uint64_t mix(uint64_t hash, const mha_view *view)
{
    size_t index[MHA_MAX_RANK] = {0};
    for (size_t left = view->data ? mha_view_elements(view) : 0; left > 0; left--) {
        const double x = mha_view_get(view, index);
        uint64_t bits = 0x7ff8;
        if (!isnan(x))
            memcpy(&bits, &x, sizeof bits);
        hash = (hash ^ bits ^ bits >> 32) * 0x100000001b3;
        for (int k = view->rank - 1; k >= 0 && ++index[k] == view->shape[k]; k--)
            index[k] = 0;
    }
    return hash;
}

static uint64_t mix_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
    return hash;
}

/* A hash of all bits of all inputs up to level full, of the test cases that a version brought. */
static uint64_t digest(mha_dtype dtype, size_t version)
{
    const size_t end = version + 1 < VERSIONS ? asked_index(firsts[version + 1]) : SIZE_MAX;
    uint64_t hash = 0xcbf29ce484222325;
    mha_conform_row row;
    for (size_t i = asked_index(firsts[version]); i < end && mha_conform_at(i, &row); i++) {
        mha_test_case *q;
        mha_error error;
        mha_view past[2], d_output;
        const mha_setting *setting;
        if (row.level == MHA_CONFORM_LARGE)
            continue;
        assert_ok(mha_test_case_create(i, dtype, NULL, &q, &error), error);
        const mha_call *call = mha_test_case_call(q);
        mha_test_case_past(q, &past[0], &past[1]);
        mha_test_case_d_output(q, &d_output);
        const mha_view *views[] = {&call->query, &call->key, &call->value, &call->pages.keys, &call->pages.values,
                                   &past[0], &past[1], &d_output};
        for (size_t v = 0; v < sizeof views / sizeof *views; v++)
            hash = mix(hash, views[v]);
        for (size_t w = 0; w < MHA_WEIGHT_COUNT; w++)
            hash = mix(hash, &call->weights[w]);
        for (size_t s = 0; (setting = mha_setting_at(s)); s++) { /* a setting that is not given has no bytes */
            const mha_view array = mha__setting_view(setting, &call->semantics, row.B, row.h);
            char text[64];
            const bool side = windowed(&call->semantics) && strncmp(setting->name, "window_", 7) == 0 &&
                              strcmp(setting->name, "window_keep") != 0; /* an open side counts, as -1 */
            if (!side && !mha_setting_given(setting, &call->semantics))
                continue;
            hash = mix(mix_text(hash, setting->name), &array);
            if (!array.data)
                hash = mix_text(hash, mha_setting_text(setting, &call->semantics, text, sizeof text));
        }
        mha_test_case_destroy(q);
    }
    return hash;
}

/* The suite has these inputs, whatever compiler and instruction set made them. */
static void inputs_have_the_same_bits_everywhere(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F32, MHA_F16, MHA_BF16};
    assert_string_equal(MHA_CONFORM_VERSION, "mha-conform 1.2");
    bool same = true;
    for (size_t i = 0; i < 3 * VERSIONS; i++) {
        const size_t type = i / VERSIONS, version = i % VERSIONS;
        const uint64_t found = digest(types[type], version);
        if (found != digests[type][version])
            printf("%s, %zu: 0x%016llx\n", mha_dtype_name(types[type]), version, (unsigned long long)found);
        same = same && found == digests[type][version];
    }
    assert_true(same);
}

/* The input of a backward: numbers of its own, every other head of a larger tensor for inputs with gaps, and 0
 * for queries that see no key where these are read as the mean of all values. */
static void backwards_begin_with_a_gradient(void **state)
{
    (void)state;
    const mha_conform_choices mean = {.of = {[1] = 2}};
    mha_view given, silent, apart, none;
    mha_test_case *forward = asked("gqa.b2-h4-kv2-q9-s9", MHA_BF16, NULL),
                  *strided = asked("backward-strides.b2-h4-kv4-q9-s9", MHA_BF16, NULL),
                  *first = asked("backward-lengths-empty.b2-h4-q9-s9", MHA_BF16, NULL),
                  *read = asked("backward-lengths-empty.b2-h4-q9-s9", MHA_BF16, &mean);
    mha_test_case_d_output(forward, &none);
    assert_null(none.data);
    mha_test_case_d_output(strided, &apart);
    assert_int_equal(apart.stride[2], 2 * apart.shape[3]);
    mha_test_case_d_output(first, &given);
    mha_test_case_d_output(read, &silent);
    assert_int_equal(given.dtype, MHA_BF16);
    for (size_t i = 0; i < 2 * 9 * 4 * 16; i++) {
        const size_t index[] = {i / (9 * 4 * 16), i / (4 * 16) % 9, i / 16 % 4, i % 16};
        const double x = mha_view_get(&given, index);
        assert_true(fabs(x) <= 3);
        assert_true(mha_view_get(&silent, index) == (index[0] == 1 ? 0 : x)); /* the last sequence has no key */
        assert_true(isfinite(mha_view_get(&apart, index)));
    }
    mha_test_case *const all[] = {forward, strided, first, read};
    for (size_t i = 0; i < 4; i++)
        mha_test_case_destroy(all[i]);
}

/* ---------------------------------------------------------------- right results */

static void results_all(mha_path path, mha_dtype dtype, mha_conform_level level)
{
    mha_conform_row row;
    char reason[400];
    for (size_t i = 0; mha_conform_at(i, &row); i++) {
        mha_test_case *q;
        mha_error error;
        if (row.level > level || strstr(row.has, "backward") ||
            (row.level > MHA_CONFORM_SMOKE && !trial_drawn(4, i + (size_t)path)))
            continue;
        assert_ok(mha_test_case_create(i, dtype, NULL, &q, &error), error);
        mha_test_result result = asked_path(q, path, dtype);
        if (!asked_passes(q, &result, reason))
            fail_msg("%s, %s, %s: %s", row.name, mha_path_name(path), mha_dtype_name(dtype), reason);
        asked_free(&result);
        mha_test_case_destroy(q);
    }
}

/* Test cases of level smoke, and in F32 a drawn quarter of those of level full. */
static void every_path_is_right(void **state)
{
    (void)state;
    for (int path = MHA_PATH_FAST; path < MHA_PATH_COUNT; path++)
        for (int type = MHA_F32; type <= MHA_BF16; type++)
            if (type != MHA_F64)
                results_all((mha_path)path, (mha_dtype)type, type == MHA_F32 ? MHA_CONFORM_FULL : MHA_CONFORM_SMOKE);
}

/* Paths read the same numbers from strided inputs as from copies of them. */
static void strided_inputs_are_answered_as_they_lie(void **state)
{
    (void)state;
    mha_test_case *q = asked("strides.b2-h4-kv4-q9-s9", MHA_F32, NULL);
    const mha_conform_row *r = mha_test_case_row(q);
    assert_int_equal(mha_test_case_call(q)->query.stride[1], r->d_k);
    assert_int_equal(mha_test_case_call(q)->value.stride[0], 0);
    for (int path = MHA_PATH_FAST; path < MHA_PATH_COUNT; path++) {
        mha_test_result result = asked_memory(q, MHA_F32);
        mha_call call = *mha_test_case_call(q);
        mha_error error;
        call.output = result.output;
        call.path = (mha_path)path;
        assert_ok(mha_run(NULL, &call, &error), error);
        assert_true(asked_passes(q, &result, NULL));
        asked_free(&result);
    }
    mha_test_case_destroy(q);
}

/* ---------------------------------------------------------------- wrong results */

/* One wrong element of a result, by half a percent of the largest, fails it: in any type, anywhere. */
static void a_wrong_element_fails(void **state)
{
    (void)state;
    static const char *const names[] = {"plain.q33-s33", "causal.q129-s129", "deep.q65-s65", "equal.q513-s513",
                                        "window.q70-s70", "cache.b2-h4-q3-s3", "probe-empty"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        mha_test_case *q = asked(names[i], MHA_F32, NULL);
        mha_test_result result = asked_path(q, MHA_PATH_BLAS, MHA_F32);
        float *x = result.output.data;
        const size_t last = mha_view_elements(&result.output) - 1;
        assert_true(asked_passes(q, &result, NULL));
        x[last] += 0.02f;
        assert_false(asked_passes(q, &result, NULL));
        x[last] = NAN;
        assert_false(asked_passes(q, &result, NULL));
        asked_free(&result);
        mha_test_case_destroy(q);
    }
}

static void lse_is_checked_where_it_is_asked_for(void **state)
{
    (void)state;
    mha_test_case *q = asked("lse.q33-s33", MHA_F32, NULL);
    mha_test_result result = asked_path(q, MHA_PATH_BLAS, MHA_F32);
    mha_verdict verdict;
    mha_error error;
    assert_true(asked_passes(q, &result, NULL));
    ((float *)result.lse.data)[0] += 0.1f;
    assert_false(asked_passes(q, &result, NULL));
    const mha_test_result alone = {result.output, {0}, {{0}}};
    assert_refused(mha_test_case_check(q, &alone, &verdict, &error), MHA_INVALID, error, "lse");
    assert_null(verdict.stages);
    asked_free(&result);
    mha_test_case_destroy(q);
}

/* ---------------------------------------------------------------- gradients */

static void check(mha_test_case *q, const mha_test_result *result, mha_verdict *v)
{
    mha_error error;
    assert_ok(mha_test_case_check(q, result, v, &error), error);
}

/* The exact gradients of every test case pass in its own type, with a row of the verdict each. */
static void exact_gradients_are_right(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F32, MHA_F16, MHA_BF16};
    const mha_conform_choices mean = {.of = {[1] = 2}};
    mha_conform_row row;
    size_t asked_for = 0;
    for (size_t i = 0; mha_conform_at(i, &row); i++)
        for (size_t t = 0; strstr(row.has, "backward") && row.level == MHA_CONFORM_SMOKE && t < 6; t++) {
            mha_test_case *q;
            mha_error error;
            mha_verdict v;
            assert_ok(mha_test_case_create(i, types[t % 3], t < 3 ? NULL : &mean, &q, &error), error);
            mha_test_result result = asked_exact(q, types[t % 3]);
            assert_non_null(result.gradients[2].data);
            check(q, &result, &v);
            if (v.outcome != MHA_OUTCOME_PASSED)
                fail_msg("%s, %s: %s", row.name, mha_dtype_name(types[t % 3]), v.reason);
            assert_int_equal(v.stage_count, 4);
            assert_string_equal(v.stages[1].name, "d_query");
            assert_string_equal(v.stages[3].name, "d_value");
            mha_verdict_clear(&v);
            asked_free(&result);
            mha_test_case_destroy(q);
            asked_for++;
        }
    assert_true(asked_for > 200);
}

/* One wrong element of one gradient fails it, and that gradient is named, in every choice; a test of only the
 * forward says nothing of gradients. */
static void a_wrong_gradient_fails(void **state)
{
    (void)state;
    static const char *const words[] = {"d_query", "d_key", "d_value"};
    static const mha_dtype types[] = {MHA_F32, MHA_F16, MHA_BF16};
    const mha_conform_choices mean = {.of = {[1] = 2}};
    for (size_t t = 0; t < 6; t++) {
        mha_test_case *q = asked("backward-bool-mask-empty.b2-h4-q9-s9", types[t % 3], t < 3 ? NULL : &mean);
        for (int g = 0; g < 4; g++) {
            mha_test_result result = asked_exact(q, types[t % 3]);
            mha_verdict v;
            const size_t at[] = {1, 2, 1, 3};
            if (g == 3) /* the output, which comes first */
                mha_view_set(&result.output, at, mha_view_get(&result.output, at) + 1);
            mha_view_set(&result.gradients[g % 3], at, mha_view_get(&result.gradients[g % 3], at) + 1);
            check(q, &result, &v);
            assert_int_equal(v.outcome, MHA_OUTCOME_FAILED);
            assert_string_equal(v.stages[v.culprit].name, g == 3 ? "output" : words[g]);
            assert_non_null(strstr(v.reason, "diverges first"));
            assert_int_equal(v.stages[g % 3 + 1].difference.mismatches, 1);
            mha_verdict_clear(&v);
            const mha_test_result forward = {result.output, result.lse, {{0}}};
            check(q, &forward, &v);
            assert_int_equal(v.outcome, g == 3 ? MHA_OUTCOME_FAILED : MHA_OUTCOME_PASSED);
            assert_int_equal(v.stage_count, 1);
            mha_verdict_clear(&v);
            asked_free(&result);
        }
        mha_test_case_destroy(q);
    }
}

/* Of three gradients all are asked for, in the shapes of the inputs; a test case without them looks at none. */
static void gradients_are_whole(void **state)
{
    (void)state;
    mha_test_case *q = asked("backward-gqa.b2-h4-kv2-q9-s9", MHA_F32, NULL),
                  *none = asked("gqa.b2-h4-kv2-q9-s9", MHA_F32, NULL);
    mha_test_result result = asked_exact(q, MHA_F64), forward = asked_exact(none, MHA_F32), part = result;
    mha_verdict v;
    mha_error error;
    assert_null(forward.gradients[0].data);
    assert_true(asked_passes(q, &result, NULL));
    part.gradients[1] = (mha_view){0};
    assert_refused(mha_test_case_check(q, &part, &v, &error), MHA_INVALID, error, "d_key", "none");
    part = result;
    part.gradients[2].shape[2] = 1;
    assert_refused(mha_test_case_check(q, &part, &v, &error), MHA_INVALID, error, "d_value", "(2, 9, 1, 16)");
    part = forward;
    part.gradients[0] = result.gradients[0];
    assert_true(asked_passes(none, &part, NULL));
    asked_free(&result);
    asked_free(&forward);
    mha_test_case_destroy(q);
    mha_test_case_destroy(none);
}

/* ---------------------------------------------------------------- conventions */

/* Of each convention every choice has a result of its own, which the others refuse: a probe tells them apart. */
static void probes_tell_choices_apart(void **state)
{
    (void)state;
    for (size_t d = 0; d < MHA_CONFORM_CONVENTIONS; d++) {
        const mha_conform_convention *convention = mha_conform_convention_at(d);
        for (size_t r = 0; r < convention->count; r++) {
            mha_conform_choices mine = {0};
            mha_error error;
            mha_test_result result;
            mine.of[d] = r;
            mha_test_case *q = asked(convention->probe, MHA_F32, &mine);
            for (size_t other = 0; other < MHA_CONFORM_CONVENTIONS; other++)
                assert_int_equal(mha_test_case_differs(q, other), other == d);
            assert_ok(mha_test_case_exact(q, &result, &error), error);
            for (size_t as = 0; as < convention->count; as++) {
                mha_conform_choices theirs = {0};
                theirs.of[d] = as;
                mha_test_case *asker = asked(convention->probe, MHA_F32, &theirs);
                if (asked_passes(asker, &result, NULL) != (as == r))
                    fail_msg("%s: %s passes %s", convention->name, convention->choices[r].name,
                             convention->choices[as].name);
                mha_test_case_destroy(asker);
            }
            mha_test_case_destroy(q);
        }
    }
}

/* Where a query sees no key, its choice is asked for; and nowhere else. */
static void empty_rows_are_known(void **state)
{
    (void)state;
    mha_conform_row row;
    for (size_t i = 0; mha_conform_at(i, &row); i++) {
        mha_test_case *q;
        mha_error error;
        if (row.level == MHA_CONFORM_LARGE || strstr(row.settings, "sigmoid") || strstr(row.settings, "query_padding"))
            continue;
        assert_ok(mha_test_case_create(i, MHA_F32, NULL, &q, &error), error);
        mha_call call = *mha_test_case_call(q);
        mha_plan plan;
        mha_keep keep = {.stage = MHA_STAGE_LSE};
        mha_test_result result = asked_memory(q, MHA_F64);
        size_t shape[4];
        mha_view past[2];
        mha_test_case_past(q, &past[0], &past[1]);
        mha_cache *cache = NULL;
        const mha_cache_spec spec = {.batch = row.B, .kv_heads = row.h_kv, .d_k = row.d_k, .d_v = row.d_v,
                                     .capacity = row.P + row.T_k, .dtype = MHA_F64};
        if (row.P > 0) {
            assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
            assert_ok(mha_cache_load(cache, &past[0], &past[1], &error), error);
        }
        call.cache = cache;
        call.path = MHA_PATH_EXACT;
        call.output = result.output;
        assert_ok(mha_plan_call(NULL, &call, &plan, &error), error);
        const int rank = mha_plan_stage(&plan, MHA_STAGE_LSE, shape);
        double *lse = calloc(shape[0] * shape[1] * shape[2], sizeof *lse);
        keep.view = mha_view_of(lse, MHA_F64, rank, shape);
        call.keep = &keep, call.keep_count = 1;
        assert_ok(mha_run(NULL, &call, &error), error);
        bool empty = false;
        for (size_t e = 0; e < shape[0] * shape[1] * shape[2]; e++)
            empty = empty || lse[e] == -INFINITY;
        if (empty != mha_test_case_differs(q, 1))
            fail_msg("%s: empty rows are %s", row.name, empty ? "there and not told" : "told and not there");
        free(lse);
        mha_cache_destroy(cache);
        asked_free(&result);
        mha_test_case_destroy(q);
    }
}

static void choices_are_read(void **state)
{
    (void)state;
    mha_conform_choices choices = {0};
    mha_error error;
    assert_ok(mha_conform_choices_put("empty=nan,window=w", &choices, &error), error);
    assert_int_equal(choices.of[1], 1);
    assert_int_equal(choices.of[2], 1);
    assert_ok(mha_conform_choices_put("", &choices, &error), error);
    assert_refused(mha_conform_choices_put("alignment=bottom-right,empty=none", &choices, &error), MHA_INVALID, error,
                   "empty", "zero, nan, mean", "none");
    assert_int_equal(choices.of[0], 0);
    assert_refused(mha_conform_choices_put("emty=nan", &choices, &error), MHA_INVALID, error, "convention", "alignment",
                   "emty");
    assert_refused(mha_conform_choices_put("empty", &choices, &error), MHA_INVALID, error, "empty", "\"\"");
    mha_test_case *q;
    choices.of[3] = 9;
    assert_refused(mha_test_case_create(0, MHA_F32, &choices, &q, &error), MHA_INVALID, error, "mask", "9");
}

/* Another draw has other numbers of the same regime, and may have more tokens; right results pass. */
static void another_draw_is_another_test_case(void **state)
{
    (void)state;
    static const char *const names[] = {"causal.q17-s17", "decode.s33", "cross.q5-s9", "pages.b2-kv2-q5-s11",
                                        "deep-lengths.b2-h4-q9-s9"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const mha_conform_choices choices = {.seed = 7, .longer = 6};
        mha_test_case *public = asked(names[i], MHA_F32, NULL), *private = asked(names[i], MHA_F32, &choices);
        const mha_conform_row *a = mha_test_case_row(public), *b = mha_test_case_row(private);
        assert_int_equal(b->T_k, a->T_k + 6);
        assert_int_equal(b->T_q, a->T_q + (a->T_q > 1 ? 6 : 0));
        assert_string_equal(b->has, a->has);
        assert_memory_not_equal(mha_test_case_call(public)->query.data, mha_test_case_call(private)->query.data, 64);
        mha_test_result result = asked_path(private, MHA_PATH_BLAS, MHA_F32);
        mha_verdict v;
        mha_error error;
        assert_ok(mha_test_case_check(private, &result, &v, &error), error);
        assert_int_equal(v.outcome, MHA_OUTCOME_PASSED);
        mha_verdict_clear(&v);
        asked_free(&result);
        mha_test_case_destroy(public);
        mha_test_case_destroy(private);
    }
}

/* ---------------------------------------------------------------- files */

/* A test case that is written is a case that the checker passes; with a wrong result in it, one that it fails. */
static void test_cases_are_cases(void **state)
{
    (void)state;
    static const char *const names[] = {"plain.q33-s33",
                                        "cache.b2-h4-q3-s3",
                                        "varlen-causal.h2-q24-s24",
                                        "pages.b2-kv2-q5-s11",
                                        "lse-sinks.b2-h4-q9-s9",
                                        "bool-mask-empty.b2-h4-q9-s9",
                                        "backward-strides.b2-h4-kv4-q9-s9",
                                        "backward-varlen.h2-q24-s24"};
    static const mha_dtype types[] = {MHA_F32, MHA_F16, MHA_BF16};
    const char *path = scratch_path("test case.safetensors");
    for (size_t i = 0; i < 3 * sizeof names / sizeof *names; i++) {
        mha_test_case *q = asked(names[i / 3], types[i % 3], NULL);
        mha_test_result result = strstr(names[i / 3], "backward") ? asked_exact(q, types[i % 3])
                                                                  : asked_path(q, MHA_PATH_BLAS, types[i % 3]);
        for (int kind = 0; kind < 3; kind++) { /* the exact result, a right one, a wrong one */
            mha_error error;
            mha_case *c;
            mha_verdict v;
            if (kind == 2)
                mha_view_set(result.gradients[2].data ? &result.gradients[2] : &result.output,
                             (const size_t[]){0, 0, 0, 0}, 9);
            assert_ok(mha_test_case_save(q, path, kind ? &result : NULL, &error), error);
            assert_ok(mha_case_open(path, NULL, &c, &error), error);
            assert_ok(mha_case_check(c, MHA_PATH_EXACT, NULL, 0, &v, &error), error);
            if (v.outcome != (kind == 2 ? MHA_OUTCOME_FAILED : MHA_OUTCOME_PASSED))
                fail_msg("%s, %d: %s", names[i / 3], kind, v.reason);
            assert_string_equal(mha_case_name(c), names[i / 3]);
            mha_verdict_clear(&v);
            mha_case_close(c);
        }
        asked_free(&result);
        mha_test_case_destroy(q);
    }
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    mha_test_case *q;
    mha_error error;
    mha_verdict v;
    assert_refused(mha_test_case_create(SIZE_MAX, MHA_F32, NULL, &q, &error), MHA_NOT_FOUND, error, "case",
                   "mha-conform 1.2");
    assert_null(q);
    assert_refused(mha_test_case_create(0, MHA_F64, NULL, &q, &error), MHA_INVALID, error, "dtype", "F64");
    q = asked("plain.q33-s33", MHA_F32, NULL);
    mha_test_result result = asked_path(q, MHA_PATH_BLAS, MHA_F32);
    result.output.shape[1]--;
    assert_refused(mha_test_case_check(q, &result, &v, &error), MHA_INVALID, error, "output", "33", "32");
    assert_refused(mha_test_case_check(q, NULL, &v, &error), MHA_INVALID, error, "output", "none");
    asked_free(&result);
    mha_test_case_destroy(q);
    mha_test_case_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_unique_and_words_are_known),
        cmocka_unit_test(words_that_nothing_exercises_are_refused),
        cmocka_unit_test(words_are_exercised_alone),
        cmocka_unit_test(words_exclude_each_other),
        cmocka_unit_test(words_are_used),
        cmocka_unit_test(needs_follow_from_the_test_case),
        cmocka_unit_test(inputs_have_the_same_bits_everywhere),
        cmocka_unit_test(backwards_begin_with_a_gradient),
        cmocka_unit_test(every_path_is_right),
        cmocka_unit_test(strided_inputs_are_answered_as_they_lie),
        cmocka_unit_test(a_wrong_element_fails),
        cmocka_unit_test(lse_is_checked_where_it_is_asked_for),
        cmocka_unit_test(exact_gradients_are_right),
        cmocka_unit_test(a_wrong_gradient_fails),
        cmocka_unit_test(gradients_are_whole),
        cmocka_unit_test(probes_tell_choices_apart),
        cmocka_unit_test(empty_rows_are_known),
        cmocka_unit_test(choices_are_read),
        cmocka_unit_test(another_draw_is_another_test_case),
        cmocka_unit_test(test_cases_are_cases),
        cmocka_unit_test(bad_requests_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
