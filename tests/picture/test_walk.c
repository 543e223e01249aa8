/* The walk says of each key all that hides it: every mask and part of a pattern, each for itself, by plain loops over
 * the caller's arrays. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/core/terms/terms.h"
#include "mha/random.h"
#include "mha/setting.h"
#include "picture/picture.h"
#include "support/page.h"
#include "support/unit.h"

enum { B = 2, H = 4, T = 7, D = 3, LISTED = 5 };

static float rows[B * T * H * D];
static uint8_t mask[B * T * T], padding[B * T], query_padding[B * T], blocks[H * 4 * 3];
static int64_t segments[B * T], lists[B * H * T * LISTED];
static float table[8 * H];

static const double *array_of(const mha__walk *walk, const char *name)
{
    for (size_t i = 0; i < walk->count; i++)
        if (strcmp(walk->arrays[i].name, name) == 0)
            return walk->arrays[i].view.data;
    return NULL;
}

static void fill(void)
{
    const mha_view all = mha_heads(rows, B, T, H, D);
    mha_random_fill(&all, 3, 1, -1, 1);
    for (size_t i = 0; i < sizeof mask; i++)
        mask[i] = i * 7 % 5 < 3;
    for (size_t i = 0; i < B * T; i++) {
        padding[i] = i % 4 == 1;
        query_padding[i] = i % T == 5;
        segments[i] = (int64_t)(i % T / 3);
    }
    for (size_t i = 0; i < sizeof blocks; i++)
        blocks[i] = i % 3 != 1;
    for (size_t i = 0; i < B * H * T * LISTED; i++)
        lists[i] = (int64_t)(i * 11 % 9) - 1;
    for (size_t i = 0; i < 8 * H; i++)
        table[i] = i == 2 * H + 1 ? -INFINITY : (float)i / 16;
}

static bool is_listed(size_t b, size_t head, size_t i, size_t j)
{
    for (size_t l = 0; l < LISTED; l++)
        if (lists[((b * H + head) * T + i) * LISTED + l] == (int64_t)j)
            return true;
    return false;
}

static void every_reason_is_named(void **state)
{
    (void)state;
    static const char *const words[] = {"the mask hides it",
                                        "the key padding hides it",
                                        "its bias is minus infinity",
                                        "it is in another segment than the query",
                                        "the query is padding",
                                        "it is not in the query's list of keys",
                                        "the mask of blocks hides it"};
    enum { REASONS = sizeof words / sizeof *words };
    mha_error error = {0};
    fill();
    const mha_view weights[MHA_WEIGHT_COUNT] = {[MHA_BIAS_TABLE] = mha_view_of(table, MHA_F32, 2, (size_t[]){8, H})};
    mha_call call = {.query = mha_heads(rows, B, T, H, D), .weights = weights,
                     .weight_count = MHA_WEIGHT_COUNT, .path = MHA_PATH_EXACT};
    call.key = call.value = call.query;
    mha_semantics *m = &call.semantics;
    m->visible.causal = true; /* a rule of positions: the page says it from its number */
    m->softmax.zero_row = true;
    m->visible.mask = (mha_mask){MHA_MASK_KEEPS, mha_view_of(mask, MHA_U8, 4, (size_t[]){B, 1, T, T})};
    m->visible.key_padding = (mha_mask){MHA_MASK_HIDES, mha_view_of(padding, MHA_U8, 2, (size_t[]){B, T})};
    m->added.bias = (mha_bias){.rule = MHA_BIAS_RULE_BUCKETS, .max_distance = 6};
    m->visible.pattern.q_segments = mha_view_of(segments, MHA_I64, 2, (size_t[]){B, T});
    m->visible.pattern.query_padding =
        (mha_mask){MHA_MASK_HIDES, mha_view_of(query_padding, MHA_U8, 2, (size_t[]){B, T})};
    m->visible.pattern.key_lists = mha_view_of(lists, MHA_I64, 4, (size_t[]){B, H, T, LISTED});
    m->visible.pattern.blocks = (mha_mask){MHA_MASK_KEEPS, mha_view_of(blocks, MHA_U8, 4, (size_t[]){1, H, 4, 3})};
    m->visible.pattern.block_queries = 2;
    m->visible.pattern.block_keys = 3;
    mha__picture picture = {0};
    const mha__picture_choice choice = {.one_sequence = true, .sequence = 1, .one_head = true, .head = 1};
    assert_ok(mha__picture_add_call(&picture, "", NULL, &call, NULL, &choice, &error), error);
    const mha__walk *walk = picture.layers[0].walk;
    assert_non_null(walk);
    for (size_t n = 0; n < REASONS; n++)
        assert_string_equal(walk->hides[n], words[n]);
    assert_null(walk->hides[REASONS]);

    const double *by = array_of(walk, "hidden_by"), *masked = array_of(walk, "masked");
    const size_t b = 1, head = 1;
    size_t met[REASONS] = {0}, several = 0;
    for (size_t i = 0; i < T; i++)
        for (size_t j = 0; j < T + 1; j++) {
            const bool is_key = j < T; /* the last one is the row of zeros */
            const size_t bucket = mha__bias_row(&m->added.bias, 8, (int64_t)i, (int64_t)j);
            const bool hides[REASONS] = {is_key && !mask[(b * T + i) * T + j],
                                         is_key && padding[b * T + j],
                                         is_key && table[bucket * H + head] == -INFINITY,
                                         is_key && segments[b * T + i] != segments[b * T + j],
                                         query_padding[b * T + i],
                                         is_key && !is_listed(b, head, i, j),
                                         is_key && !blocks[(head * 4 + i / 2) * 3 + j / 3]};
            size_t bits = 0, count = 0;
            for (size_t n = 0; n < REASONS; n++) {
                bits |= (size_t)hides[n] << n;
                count += hides[n];
                met[n] += hides[n];
            }
            several += count > 2;
            assert_true(by[i * (T + 1) + j] == (double)bits);
            assert_true((masked[i * (T + 1) + j] == -INFINITY) == (bits != 0 || (is_key && j > i)));
        }
    for (size_t n = 0; n < REASONS; n++)
        assert_true(met[n] > 0);
    assert_true(several > 3);
    mha__picture_free(&picture);
}

/* Numbers that are rounded on the way do not follow from each other: the page says so. */
static void a_lower_precision_has_no_walk(void **state)
{
    (void)state;
    mha_error error = {0};
    fill();
    mha_call call = {.query = mha_heads(rows, B, T, H, D), .path = MHA_PATH_EXACT,
                     .precision = mha_precision_of(MHA_BF16)};
    call.key = call.value = call.query;
    mha__picture picture = {0};
    const mha__picture_choice choice = {0};
    assert_ok(mha__picture_add_call(&picture, "", NULL, &call, NULL, &choice, &error), error);
    assert_null(picture.layers[0].walk);
    assert_non_null(strstr(picture.layers[0].no_walk, "lower precision"));
    mha__picture_free(&picture);
}

static void relative_terms_have_no_walk(void **state)
{
    (void)state;
    mha_error error = {0};
    fill();
    const mha_view weights[MHA_WEIGHT_COUNT] = {[MHA_RELATIVE_K] = mha_view_of(table, MHA_F32, 2, (size_t[]){2, D})};
    mha_call call = {.query = mha_heads(rows, B, T, H, D), .path = MHA_PATH_EXACT, .weights = weights,
                     .weight_count = MHA_WEIGHT_COUNT,
                     .semantics.added.relative.rule = MHA_RELATIVE_DISTANCE};
    call.key = call.value = call.query;
    mha__picture picture = {0};
    const mha__picture_choice choice = {0};
    assert_ok(mha__picture_add_call(&picture, "", NULL, &call, NULL, &choice, &error), error);
    assert_null(picture.layers[0].walk);
    assert_non_null(strstr(picture.layers[0].no_walk, "Relative terms"));
    mha__picture_free(&picture);
    uint8_t keep[1] = {1};
    call.semantics.added.relative.rule = MHA_RELATIVE_NONE, call.weights = NULL, call.weight_count = 0;
    call.semantics.softmax.dropout_keep = mha_view_of(keep, MHA_U8, 1, (const size_t[]){1});
    picture = (mha__picture){0};
    assert_ok(mha__picture_add_call(&picture, "", NULL, &call, NULL, &choice, &error), error);
    assert_non_null(strstr(picture.layers[0].no_walk, "dropout drops"));
    mha__picture_free(&picture);
}

/* Whether a text has `word=`, for one of the words in a list with blanks between. */
static bool gives_one_of(const char *text, const char *words)
{
    bool found = false;
    for (const char *at = words; at && *at && !found; at += strcspn(at, " "), at += strspn(at, " ")) {
        char given[80];
        const int length = snprintf(given, sizeof given, "%.*s=", (int)strcspn(at, " "), at);
        for (const char *here = strstr(text, given); here && !found; here = strstr(here + length, given))
            found = here[-1] == ' ' || here[-1] == '(';
    }
    return found;
}

/* Of each setting somebody asks whether the page's numbers follow from each other with it, unless it has no walk. */
static void every_setting_has_a_case_of_the_walk(void **state)
{
    (void)state;
    static const char path[] = "tests/page/walk_cases.py";
    static const char *const no_walk[] = {"clip_qkv", "relative_", "dropout_"}; /* src/picture/walk.c says so */
    char *cases = page_text(path);
    const mha_setting *s;
    size_t missing = 0;
    for (size_t i = 0; (s = mha_setting_at(i)); i++) {
        bool known = gives_one_of(cases, s->name) || gives_one_of(cases, s->aliases);
        for (size_t n = 0; n < sizeof no_walk / sizeof *no_walk; n++)
            known |= strncmp(s->name, no_walk[n], strlen(no_walk[n])) == 0;
        if (!known)
            printf("%s: no case of %s gives it. Add one, let src/picture/page/explain.js say what it does to the "
                   "numbers, and run `make test-page`; or let `reason_against` in src/picture/walk.c refuse it\n",
                   s->name, path);
        missing += !known;
    }
    free(cases);
    assert_int_equal(missing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_reason_is_named),
                                       cmocka_unit_test(a_lower_precision_has_no_walk),
                                       cmocka_unit_test(relative_terms_have_no_walk),
                                       cmocka_unit_test(every_setting_has_a_case_of_the_walk)};
    return cmocka_run_group_tests_name("walk", tests, NULL, NULL);
}
