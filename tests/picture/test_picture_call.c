/* The picture of a call has the weights that the exact path keeps, cell by cell, and the statistics of their rows. */
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/case.h"
#include "mha/layer.h"
#include "mha/random.h"
#include "picture/head.h"
#include "support/layer.h"
#include "support/unit.h"
#include "verify/attempt/attempt.h"

/* ---------------------------------------------------------------- the same rows, kept by one forward */

enum { WEIGHTS, MASKED, CAPPED };

typedef struct kept {
    mha__attempt attempt;
    mha_view stage[3]; /* (B, h, T_q, S') */
} kept;

static void keep_all(kept *k, const mha_layer *layer, const mha_call *call, const mha_view past[2])
{
    mha_error error = {0};
    mha_call exact = *call;
    exact.path = MHA_PATH_EXACT;
    const mha__request request = {.layer = layer, .call = &exact, .past_key = past[0], .past_value = past[1],
                                  .precision = call->precision};
    const bool wanted[MHA_STAGE_COUNT] = {
        [MHA_STAGE_WEIGHTS] = true, [MHA_STAGE_MASKED] = true, [MHA_STAGE_CAPPED] = true};
    assert_ok(mha__attempt_begin(&k->attempt, NULL, &request, &error), error);
    assert_ok(mha__attempt_run(&k->attempt, MHA_BTE, wanted, &error), error);
    k->stage[WEIGHTS] = k->attempt.stages[MHA_STAGE_WEIGHTS];
    k->stage[MASKED] = k->attempt.stages[MHA_STAGE_MASKED];
    k->stage[CAPPED] = k->attempt.stages[MHA_STAGE_CAPPED];
}

static double at(const kept *k, int stage, const mha__head *head, size_t query, size_t key)
{
    return mha_view_get(&k->stage[stage], (size_t[]){head->sequence, head->head, query, key});
}

static bool is_same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* The cell that the definition gives: the largest weight of a visible key, NaN if one of them is. */
static double cell_of(const kept *k, const mha__head *head, size_t r, size_t c)
{
    double cell = MHA__HIDDEN;
    for (size_t i = r * head->pool_rows; i < (r + 1) * head->pool_rows && i < head->queries; i++)
        for (size_t j = c * head->pool_columns; j < (c + 1) * head->pool_columns && j < head->keys; j++) {
            const size_t query = head->first_query + i, key = head->first_key + j;
            const double w = at(k, WEIGHTS, head, query, key);
            if (at(k, MASKED, head, query, key) != -INFINITY && !isnan(cell) && !(cell >= w))
                cell = w;
        }
    return cell;
}

static void check_cells(const kept *k, const mha__head *head)
{
    for (size_t r = 0; r < head->rows; r++)
        for (size_t c = 0; c < head->columns; c++) {
            const double found = head->weights[r * head->columns + c];
            if (!is_same(found, cell_of(k, head, r, c)))
                fail_msg("sequence %zu, head %zu: cell (%zu, %zu) is %.17g, expected %.17g", head->sequence, head->head,
                         r, c, found, cell_of(k, head, r, c));
            if (!head->masked)
                continue;
            const size_t query = head->first_query + r, key = head->first_key + c;
            assert_true(is_same(head->masked[r * head->columns + c], at(k, MASKED, head, query, key)));
            assert_true(is_same(head->scores[r * head->columns + c], at(k, CAPPED, head, query, key)));
        }
}

static void check_top(const kept *k, const mha__head *head)
{
    for (size_t i = 0; i < head->queries; i++)
        for (size_t n = 0; n < head->top; n++) {
            const double w = head->top_weights[i * head->top + n];
            size_t larger = 0;
            for (size_t j = head->first_key; j < head->first_key + head->keys; j++)
                larger += at(k, WEIGHTS, head, head->first_query + i, j) > w;
            assert_true(larger <= n);
            if (w > 0)
                assert_true(w == at(k, WEIGHTS, head, head->first_query + i, head->top_keys[i * head->top + n]));
        }
}

/* The statistics in their plainest form. A sum of n terms is off by at most n units in the last place of the sum of
 * their sizes. In entropies a logarithm is the difference of two scores, with an error of their size. */
static void check_statistics(const kept *k, const mha__picture_layer *layer, const mha__head *head, size_t S)
{
    mha__head_statistics sum = {0};
    double most = 1;
    for (size_t i = head->first_query; i < head->first_query + head->queries; i++) {
        double entropy = 0, distance = 0, largest = 0, tokens = 0;
        bool sees = false, broken = false;
        const double p = (double)(layer->offset + (int64_t)i);
        for (size_t j = 0; j < S; j++) {
            const double w = at(k, WEIGHTS, head, i, j);
            broken |= !isfinite(w);
            sees |= at(k, MASKED, head, i, j) != -INFINITY;
            entropy -= w > 0 ? w * log2(w) : 0;
            largest = w > largest ? w : largest;
            most = isfinite(at(k, MASKED, head, i, j)) ? fmax(most, fabs(at(k, MASKED, head, i, j))) : most;
            if (j + layer->S_extra < S) {
                tokens += w;
                distance += w * fabs(p - (double)j);
                sum.self += p == (double)j && !broken ? w : 0;
                sum.previous += p - 1 == (double)j && !broken ? w : 0;
            }
        }
        sum.broken += broken;
        sum.empty += !broken && !sees;
        if (broken || !sees)
            continue;
        sum.queries++;
        sum.entropy += entropy;
        sum.distance += distance;
        sum.first += S > layer->S_extra ? at(k, WEIGHTS, head, i, 0) : 0;
        sum.sink += fmax(0, 1 - tokens);
        sum.largest += largest;
        most = fmax(most, (double)S * (fabs(p) + (double)S));
    }
    const mha__head_statistics *s = &head->statistics;
    assert_int_equal(s->queries, sum.queries);
    assert_int_equal(s->empty, sum.empty);
    assert_int_equal(s->broken, sum.broken);
    if (sum.queries == 0) {
        assert_true(isnan(s->entropy));
        return;
    }
    const double n = (double)sum.queries, bound = 0x1p-52 * most * 64;
    const double found[] = {s->entropy, s->distance, s->first, s->sink, s->largest};
    const double expected[] = {sum.entropy, sum.distance, sum.first, sum.sink, sum.largest};
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        if (!(fabs(found[i] - expected[i] / n) <= bound))
            fail_msg("statistic %zu of head %zu is %.17g, expected %.17g", i, head->head, found[i], expected[i] / n);
    if (sum.broken == 0) {
        assert_true(fabs(s->self - sum.self / n) <= bound);
        assert_true(fabs(s->previous - sum.previous / n) <= bound);
    }
}

static void check_picture(const mha_layer *layer, const mha_call *call, const mha_view past[2],
                          const mha__picture_choice *choice)
{
    mha__picture picture = {0};
    mha_error error = {0};
    kept k = {0};
    keep_all(&k, layer, call, past);
    assert_ok(mha__picture_add_call(&picture, "it", layer, call, past, choice, &error), error);
    assert_int_equal(picture.layer_count, 1);
    const mha__picture_layer *l = &picture.layers[0];
    assert_string_equal(l->path, "exact");
    const mha_plan *plan = &k.attempt.plan;
    assert_int_equal(l->head_count, (choice->one_sequence ? 1 : plan->B) * (choice->one_head ? 1 : plan->h));
    for (size_t i = 0; i < l->head_count; i++) {
        const mha__head *head = &l->heads[i];
        check_cells(&k, head);
        check_top(&k, head);
        if (!call->semantics.place.position_offset && !call->semantics.place.cu_seqlens_q)
            check_statistics(&k, l, head, plan->S + plan->S_extra);
    }
    mha__picture_free(&picture);
    mha__attempt_free(&k.attempt);
}

/* ---------------------------------------------------------------- recorded cases */

static size_t check_folder(const char *folder)
{
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    size_t pictured = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[512];
        mha_error error = {0};
        mha_case *c;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (!strstr(entry->d_name, ".safetensors"))
            continue;
        assert_ok(mha_case_open(path, NULL, &c, &error), error);
        if (!mha_case_skip_reason(c) && strcmp(mha_case_kind(c), "rope") != 0) {
            mha_view past[2];
            mha_call call = mha_case_call(c);
            call.path = MHA_PATH_EXACT;
            mha_case_past(c, &past[0], &past[1]);
            check_picture(mha_case_layer(c), &call, past, &(mha__picture_choice){0});
            check_picture(mha_case_layer(c), &call, past, &(mha__picture_choice){.one_head = true, .rows = {0, 1}});
            pictured++;
        }
        mha_case_close(c);
    }
    closedir(directory);
    return pictured;
}

static void recorded_cases(void **state)
{
    (void)state;
    assert_true(check_folder("tests/vectors") >= 30);
}

static void conformance_cases(void **state)
{
    (void)state;
    const char *folder = getenv("CONFORMANCE_DIR");
    if (!folder || !*folder)
        skip_because("CONFORMANCE_DIR names no folder of recorded cases");
    else
        assert_true(check_folder(folder) > 0);
}

/* ---------------------------------------------------------------- long, ragged, with everything */

static mha_call call_of(float *x, size_t B, size_t T, size_t width, mha_semantics semantics)
{
    mha_call call = {.query = mha_rows(x, B, T, width), .semantics = semantics};
    mha_random_fill(&call.query, 5, 32, -2, 2);
    return call;
}

static void long_sequences_are_pooled(void **state)
{
    (void)state;
    static float x[2 * MHA__CELLS * 4 + 12]; /* 2051 rows of 4 */
    static const mha_view none[2];
    const size_t T = sizeof x / sizeof *x / 4;
    mha_layer *layer = made_layer((mha_config){.d_model = 4, .n_heads = 1}, 5);
    const mha_call call = call_of(x, 1, T, 4, (mha_semantics){.visible.causal = true});
    const mha__picture_choice part = {.path = MHA_PATH_EXACT, .rows = {700, 1900}, .keys = {3, 1400}};
    check_picture(layer, &call, none, &part);
    mha__picture picture = {0};
    mha_error error = {0};
    assert_ok(mha__picture_add_call(&picture, "", layer, &call, NULL, &part, &error), error);
    assert_int_equal(picture.layers[0].heads[0].pool_rows, 2);
    assert_int_equal(picture.layers[0].heads[0].rows, 600);
    assert_int_equal(picture.layers[0].heads[0].columns, 699);
    assert_int_equal(picture.layers[0].heads[0].top, MHA__TOP);
    mha__picture_free(&picture);
    mha_layer_destroy(layer);
}

static void ragged_sequences(void **state)
{
    (void)state;
    float x[20 * 12];
    static const mha_view none[2];
    static const int64_t cu[] = {0, 5, 5, 6, 20};
    const mha_config config = {.d_model = 12, .n_heads = 6, .kv_heads = 2, .sinks = true, .bias_kv = true};
    const mha_semantics semantics = {.visible.causal = true,
                                     .softmax.zero_row = true,
                                     .place.n_sequences = 4,
                                     .place.cu_seqlens_q = cu,
                                     .qkv.rope = {.kind = MHA_ROPE_HALF_SPLIT}};
    mha_layer *layer = made_layer(config, 5);
    const mha_call call = call_of(x, 1, 20, 12, semantics);
    check_picture(layer, &call, none, &(mha__picture_choice){0});
    check_picture(layer, &call, none, &(mha__picture_choice){.one_sequence = true, .sequence = 3});
    mha_layer_destroy(layer);
}

static void rows_and_masks_of_batch_rows(void **state)
{
    (void)state;
    float x[3 * 9 * 8], mask[3 * 2 * 9 * 9];
    static const mha_view none[2];
    static const int64_t offsets[] = {0, 4, -3}, lengths[] = {9, 7, 0};
    const mha_config config = {.d_model = 8, .n_heads = 2, .q_norm = MHA_NORM_ROW, .k_norm = MHA_NORM_HEAD};
    const mha__picture_choice part = {.rows = {4, 8}, .keys = {2, 9}, .one_head = true, .head = 1};
    mha_layer *layer = made_layer(config, 5);
    const mha_view masks = mha_view_of(mask, MHA_F32, 4, (size_t[]){3, 2, 9, 9});
    mha_random_fill(&masks, 1, 2, -1, 1);
    mask[40] = -INFINITY;
    const mha_call call = call_of(x, 3, 9, 8,
                                  (mha_semantics){.visible.window_left = 3,
                                                  .visible.window_right = 2,
                                                  .place.position_offset = offsets,
                                                  .visible.kv_lengths = lengths,
                                                  .softmax.softcap = 3,
                                                  .softmax.softmax_plus_one = true,
                                                  .visible.mask = {MHA_MASK_ADDITIVE, masks}});
    check_picture(layer, &call, none, &(mha__picture_choice){0});
    check_picture(layer, &call, none, &part);
    mha_layer_destroy(layer);
}

static void what_a_layer_has_not_is_refused(void **state)
{
    (void)state;
    float x[4 * 8];
    mha_error error = {0};
    mha_layer *layer = made_layer((mha_config){.d_model = 8, .n_heads = 2}, 5);
    const mha_call call = call_of(x, 1, 4, 8, (mha_semantics){0});
    const struct {
        mha__picture_choice choice;
        const char *says;
    } refused[] = {{{.one_head = true, .head = 2}, "head: expected a head below 2, found 2"},
                   {{.one_sequence = true, .sequence = 1}, "batch: expected a batch row or sequence below 1, found 1"},
                   {{.rows = {3, 5}}, "rows: expected an end of at most 4, found 5"},
                   {{.keys = {3, 3}}, "keys: expected A:B with A below B, found 3:3"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        mha__picture picture = {0};
        assert_refused(mha__picture_add_call(&picture, "", layer, &call, NULL, &refused[i].choice, &error), MHA_INVALID,
                       error, refused[i].says);
        mha__picture_free(&picture);
    }
    mha_layer_destroy(layer);
}

/* 20 MB of a page are 15 million bytes: of maps at one byte a cell, and of listed weights at eight. */
static void long_sequences_of_many_heads_fit_a_page(void **state)
{
    (void)state;
    static const size_t heads[] = {1, 8, 32, 144, 1000};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        mha__arena memory = {.allocator = mha__allocator_default()};
        mha__head head = {.queries = 16384, .keys = 16384};
        mha_error error;
        assert_ok(mha__head_begin(&head, &memory, heads[i], true, &error), error);
        assert_true(heads[i] * head.rows * head.columns <= 8100000 && head.rows >= 64);
        assert_true(head.top >= 1 && head.top <= MHA__TOP);
        assert_true(head.top == 1 || heads[i] * head.queries * head.top <= 1 << 21);
        assert_true(head.top == MHA__TOP || heads[i] * head.queries * (head.top + 1) > 1 << 21);
        mha__arena_free(&memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_sequences_of_many_heads_fit_a_page),
        cmocka_unit_test(recorded_cases),
        cmocka_unit_test(conformance_cases),
        cmocka_unit_test(long_sequences_are_pooled),
        cmocka_unit_test(ragged_sequences),
        cmocka_unit_test(rows_and_masks_of_batch_rows),
        cmocka_unit_test(what_a_layer_has_not_is_refused),
    };
    return cmocka_run_group_tests_name("picture_call", tests, NULL, NULL);
}
