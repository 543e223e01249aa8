/* Keys in pages in a case: read from a file by its words, made of a call, saved, checked, and bounded as cached rows.
 * */
#include "support/unit.h"

#include <math.h>
#include <string.h>

#include "mha/lab.h"
#include "support/scratch.h"

enum { B = 3, T = 2, H = 4, KV = 2, D = 8, PAGES = 9, PAGE = 4, COLUMNS = 3, MODEL = H * D };

static float query[B * H * T * D], pool[2][PAGES * PAGE * KV * D], output[B * H * T * D];
static int32_t table[B * COLUMNS] = {4, 7, 1, 0, 99, -3, 8, 2, 5};
static int64_t lengths[B] = {11, 3, 9};

static mha_pages pages_of(void)
{
    const size_t shape[4] = {PAGES, PAGE, KV, D};
    return (mha_pages){mha_view_of(pool[0], MHA_F32, 4, shape), mha_view_of(pool[1], MHA_F32, 4, shape), table, COLUMNS,
                       lengths, {0}};
}

static void fill_in(void)
{
    for (int v = 0; v < 2; v++) {
        const mha_view all = mha_view_of(pool[v], MHA_F32, 1, (size_t[]){sizeof pool[v] / sizeof *pool[v]});
        mha_random_fill(&all, 5, (uint64_t)v, -2, 2);
    }
    const mha_view all = mha_view_of(query, MHA_F32, 1, (size_t[]){sizeof query / sizeof *query});
    mha_random_fill(&all, 5, 2, -1, 1);
}

/* The page of a sequence's key as the kernel finds it, by the bug that it makes; "" is none. */
static const char *bug = "";

static size_t page_of(size_t b, size_t column)
{
    const size_t entry = b * COLUMNS + column;
    if (strcmp(bug, "page-table-ignored") == 0)
        return entry;
    if (strcmp(bug, "page-table-first") == 0)
        return (size_t)table[column];
    if (strcmp(bug, "page-table-transposed") == 0)
        return (size_t)table[column * B + b];
    return (size_t)table[entry] + (strcmp(bug, "page-table-next") == 0);
}

static const float *row(int v, size_t b, size_t g, size_t j)
{
    return &pool[v][((page_of(b, j / PAGE) * PAGE + j % PAGE) * KV + g) * D];
}

/* Causal attention by its definition: query i is token lengths[b] - T + i. The query is stored as (B, h, T, d). */
static void attend(void)
{
    for (size_t n = 0; n < B * H * T; n++) {
        const size_t b = n / T / H, g = n / T % H / (H / KV), seen = (size_t)lengths[b] - T + n % T + 1;
        double sum = 0, out[D] = {0};
        for (size_t j = 0; j < seen; j++) {
            double score = 0;
            for (size_t c = 0; c < D; c++)
                score += (double)query[n * D + c] * (double)row(0, b, g, j)[c];
            const double e = exp(score / sqrt(D));
            sum += e;
            for (size_t c = 0; c < D; c++)
                out[c] += e * (double)row(1, b, g, j)[c];
        }
        for (size_t c = 0; c < D; c++)
            output[n * D + c] = (float)(out[c] / sum);
    }
}

typedef struct change {
    const char *without, *also; /* a word that is left out, or added */
    int64_t entry;              /* of the table, in place of its last one; 0: none */
} change;

/* A case file of these pages by its words. */
static mha_status open_file(const change *d, mha_case **c, mha_error *error)
{
    const char *path = scratch_path("paged.safetensors");
    int64_t entries[B * COLUMNS];
    for (size_t i = 0; i < B * COLUMNS; i++)
        entries[i] = table[i];
    if (d->entry)
        entries[B * COLUMNS - 1] = d->entry;
    const mha_pages p = pages_of();
    const mha_view q = mha_view_of(query, MHA_F32, 4, (size_t[]){B, H, T, D}),
                   out = mha_view_of(output, MHA_F32, 4, (size_t[]){B, H, T, D}),
                   all = mha_view_of(entries, MHA_I64, 2, (size_t[]){B, COLUMNS}),
                   counts = mha_view_of(lengths, MHA_I64, 1, (size_t[]){B});
    const struct {
        const char *name;
        const mha_view *view;
    } tensors[] = {{"query", &q},
                   {"expected.output", &out},
                   {"page_keys", &p.keys},
                   {"page_values", &p.values},
                   {"page_table", &all},
                   {"page_lengths", &counts},
                   {d->also, &q}};
    mha_writer *w;
    assert_ok(mha_writer_create(path, &w, error), *error);
    assert_ok(mha_writer_add_metadata(w, "layout", "BHTD", error), *error);
    assert_ok(mha_writer_add_metadata(w, "causal", "1", error), *error);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i].name && (!d->without || strcmp(d->without, tensors[i].name) != 0))
            assert_ok(mha_writer_add(w, tensors[i].name, tensors[i].view, error), *error);
    assert_ok(mha_writer_commit(w, error), *error);
    mha_writer_destroy(w);
    return mha_case_open(path, NULL, c, error);
}

static mha_outcome checked(const mha_case *c, mha_path path)
{
    mha_verdict v;
    mha_error error;
    assert_ok(mha_case_check(c, path, NULL, 1, &v, &error), error);
    const mha_outcome outcome = v.outcome;
    mha_verdict_clear(&v);
    return outcome;
}

static void expect_checked(const mha_case *c, mha_outcome outcome)
{
    for (int path = MHA_PATH_FAST; path <= MHA_PATH_EXACT; path++)
        assert_int_equal(checked(c, (mha_path)path), outcome);
}

static void a_file_has_words_for_pages(void **state)
{
    (void)state;
    mha_error error;
    mha_case *c;
    fill_in();
    attend();
    assert_ok(open_file(&(change){0}, &c, &error), error);
    expect_checked(c, MHA_OUTCOME_PASSED);
    mha_case_close(c);
    const int32_t page = table[7]; /* a kernel that reads another page */
    table[7] = 3;
    attend();
    table[7] = page;
    assert_ok(open_file(&(change){0}, &c, &error), error);
    expect_checked(c, MHA_OUTCOME_FAILED);
    mha_case_close(c);
}

static void expect_named(const mha_case *c, const char *name)
{
    mha_diagnosis d;
    mha_error error;
    assert_ok(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), error);
    bool found = false;
    for (size_t i = 0; i < d.match_count; i++)
        found |= d.matches[i].exact && d.matches[i].count == 1 && strcmp(d.matches[i].bugs[0], name) == 0;
    if (!found)
        fail_msg("%s was not named", name);
    mha_diagnosis_clear(&d);
}

/* In a file and in a call; the pools have a page more than is named, and entries without keys name some page, too. */
static void bugs_in_the_table_are_named(void **state)
{
    (void)state;
    static const char *const names[] = {"page-table-ignored", "page-table-transposed", "page-table-first",
                                        "page-table-next"};
    const int32_t whole[B * COLUMNS] = {4, 7, 1, 0, 6, 3, 2, 5, 7};
    int32_t as_it_was[B * COLUMNS];
    memcpy(as_it_was, table, sizeof table);
    fill_in();
    memcpy(table, whole, sizeof table);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        mha_error error;
        mha_case *c;
        bug = names[i];
        attend();
        bug = "";
        assert_ok(open_file(&(change){0}, &c, &error), error);
        expect_named(c, names[i]);
        mha_case_close(c);
        static float by_time[B * T * H * D];
        mha_call call = {
            .query = mha_heads(by_time, B, T, H, D), .pages = pages_of(), .semantics = {.visible.causal = true}};
        for (size_t n = 0; n < B * H * T; n++)
            memcpy(by_time + ((n / T / H * T + n % T) * H + n / T % H) * D, query + n * D, D * sizeof *query);
        float recorded[B * T * H * D];
        for (size_t n = 0; n < B * H * T; n++)
            memcpy(recorded + ((n / T / H * T + n % T) * H + n / T % H) * D, output + n * D, D * sizeof *output);
        const mha_keep kept = {.stage = MHA_STAGE_OUTPUT, .view = mha_heads(recorded, B, T, H, D)};
        assert_ok(mha_case_of_call(NULL, &call, &kept, 1, NULL, &c, &error), error);
        expect_named(c, names[i]);
        mha_case_close(c);
    }
    memcpy(table, as_it_was, sizeof table);
}

static void bad_words_are_refused(void **state)
{
    (void)state;
    static const struct {
        change change;
        const char *words;
    } rows[] = {
        {{.without = "page_table"}, "page_table: expected page_keys, page_values, page_table"},
        {{.without = "page_keys"}, "page_keys: expected page_keys"},
        {{.without = "page_lengths"}, "page_lengths: expected page_keys"},
        {{.without = "page_values"}, "past_value: expected one with past_key"},
        {{.also = "key"}, "key: expected none with pages"},
        {{.also = "past_key"}, "past_key: expected none with pages"},
        {{.entry = 9}, "expected pages below 9, found 9 for page 2 of sequence 2"},
        {{.entry = (int64_t)1 << 32}, "found -1 for page 2 of sequence 2"},
    };
    mha_error error;
    mha_case *c;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_refused(open_file(&rows[i].change, &c, &error), MHA_INVALID, error, rows[i].words);
}

/* A call, with a layer and without, is recorded, saved and bounded as one with cached rows. */
static void a_call_with_pages_is_checked(void **state)
{
    (void)state;
    static const mha_config config = {.d_model = MODEL, .n_heads = H, .kv_heads = KV, .d_k = D, .d_v = D};
    fill_in();
    for (int with = 0; with < 2; with++) {
        mha_layer *layer = NULL;
        mha_error error;
        mha_case *cases[2];
        double bound[2][MHA_STAGE_COUNT];
        if (with) {
            assert_ok(mha_layer_create(&config, NULL, NULL, &layer, &error), error);
            mha_layer_init(layer, 3);
        }
        mha_call call = {.query = with ? mha_rows(query, B, T, MODEL) : mha_heads(query, B, T, H, D),
                         .pages = pages_of(), .semantics = {.visible.causal = true}};
        call.output = with ? mha_rows(output, B, T, MODEL) : mha_heads(output, B, T, H, D);
        assert_ok(mha_run(layer, &call, &error), error);
        const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = call.output};
        assert_ok(mha_case_of_call(layer, &call, &recorded, 1, NULL, &cases[0], &error), error);
        expect_checked(cases[0], MHA_OUTCOME_PASSED);
        output[5] += 0.01f;
        mha_case_close(cases[0]);
        assert_ok(mha_case_of_call(layer, &call, &recorded, 1, NULL, &cases[0], &error), error);
        expect_checked(cases[0], MHA_OUTCOME_FAILED);

        const char *path = scratch_path("saved.safetensors");
        assert_ok(mha_case_save(path, layer, &call, NULL, &error), error);
        assert_ok(mha_case_open(path, NULL, &cases[1], &error), error);
        mha_view past[2][2];
        for (int i = 0; i < 2; i++) {
            mha_case_past(cases[i], &past[i][0], &past[i][1]);
            assert_int_equal(past[i][0].shape[2], 11);
        }
        assert_memory_equal(past[0][0].data, past[1][0].data, B * KV * 11 * D * sizeof(float));
        assert_true(memcmp((const float *)past[0][1].data + 10 * D, row(1, 0, 0, 10), D * sizeof(float)) == 0);

        assert_ok(mha_error_bound(layer, &call, 0x1p-24, bound[0], MHA_STAGE_COUNT, &error), error);
        mha_cache *cache;
        const mha_cache_spec spec = {B, KV, D, D, 11, 0, .dtype = MHA_F32};
        assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
        assert_ok(mha_cache_load(cache, &past[0][0], &past[0][1], &error), error);
        const mha_pages pages = call.pages;
        call.pages = (mha_pages){.columns = 0}, call.cache = cache;
        call.key = with ? mha_rows(query, B, 0, MODEL) : mha_heads(query, B, 0, KV, D);
        call.value = call.key;
        static const int64_t offsets[B] = {9, 1, 7};
        call.semantics.visible.kv_lengths = lengths, call.semantics.place.position_offset = offsets;
        assert_ok(mha_error_bound(layer, &call, 0x1p-24, bound[1], MHA_STAGE_COUNT, &error), error);
        assert_true(bound[0][MHA_STAGE_OUTPUT] > 0);
        assert_memory_equal(bound[0], bound[1], sizeof bound[0]);
        mha_cache_destroy(cache);

        static const int64_t cu[2] = {0, T};
        call.pages = pages, call.cache = NULL, call.key = call.value = (mha_view){0};
        call.semantics = (mha_semantics){.place = {.cu_seqlens_q = cu, .n_sequences = 1}};
        call.query.shape[0] = call.output.shape[0] = 1;
        assert_refused(mha_error_bound(layer, &call, 0x1p-24, bound[0], MHA_STAGE_COUNT, &error), MHA_UNSUPPORTED,
                       error, "give each sequence whole");
        for (int i = 0; i < 2; i++)
            mha_case_close(cases[i]);
        mha_layer_destroy(layer);
    }
}

/* Stages over keys, of sequences of 11, 3 and 9 keys and one row of zeros after each: right ones pass, in memory and
 * in a file, and one number that is wrong is seen: of a key, of the extra row, or of what should be zero after it. */
static void stages_over_keys_are_checked(void **state)
{
    (void)state;
    enum { WIDE = 11 + 1 };
    static const mha_stage stages[] = {MHA_STAGE_SCORES, MHA_STAGE_CAPPED, MHA_STAGE_MASKED, MHA_STAGE_WEIGHTS,
                                       MHA_STAGE_WEIGHTS_MEAN};
    static const int last[] = {-1, 2, 3, 4}; /* nothing; of sequence 1: its last key, its extra row, after it */
    enum { STAGES = sizeof stages / sizeof *stages };
    fill_in();
    for (int path = MHA_PATH_FAST; path <= MHA_PATH_EXACT; path++)
        for (size_t s = 0; s < STAGES; s++) {
            double memory[B * H * T * WIDE];
            const mha_dtype type = path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32;
            const size_t shape[] = {B, H, T, WIDE}, mean[] = {B, T, WIDE};
            mha_keep kept = {.stage = stages[s], .view = stages[s] == MHA_STAGE_WEIGHTS_MEAN
                                                                   ? mha_view_of(memory, type, 3, mean)
                                                                   : mha_view_of(memory, type, 4, shape)};
            mha_call call = {.query = mha_heads(query, B, T, H, D),
                             .pages = pages_of(),
                             .path = (mha_path)path,
                             .semantics = {.visible.causal = true, .softmax = {.zero_row = true, .softcap = 3}},
                             .keep = &kept,
                             .keep_count = 1};
            mha_error error;
            assert_ok(mha_run(NULL, &call, &error), error);
            for (size_t w = 0; w < sizeof last / sizeof *last; w++) {
                const mha_view *v = &kept.view;
                const size_t at[] = {1, 0, v->rank == 4 ? 0 : (size_t)last[w], (size_t)last[w]};
                const double right = w > 0 ? mha_view_get(v, at) : 0;
                mha_case *cases[2];
                if (w > 0)
                    mha_view_set(v, at, isinf(right) ? 0 : right + 0.25);
                assert_ok(mha_case_of_call(NULL, &call, &kept, 1, NULL, &cases[0], &error), error);
                assert_ok(mha_case_save(scratch_path("kept.safetensors"), NULL, &call, NULL, &error), error);
                assert_ok(mha_case_open(scratch_path("kept.safetensors"), NULL, &cases[1], &error), error);
                for (int i = 0; i < 2; i++) {
                    expect_checked(cases[i], w > 0 ? MHA_OUTCOME_FAILED : MHA_OUTCOME_PASSED);
                    mha_case_close(cases[i]);
                }
                if (w > 0)
                    mha_view_set(v, at, right);
            }
        }
}

/* Gradients of pages are recorded with the pages, and checked; of a call with a layer and without. */
static void gradients_of_pages_are_checked(void **state)
{
    (void)state;
    static const mha_config config = {.d_model = MODEL, .n_heads = H, .kv_heads = KV, .d_k = D, .d_v = D};
    static double d[3][PAGES * PAGE * KV * D];
    const char *path = scratch_path("gradients.safetensors");
    const size_t pool_shape[4] = {PAGES, PAGE, KV, D};
    fill_in();
    for (int with = 0; with < 2; with++) {
        mha_layer *layer = NULL;
        mha_error error;
        mha_file *file;
        if (with) {
            assert_ok(mha_layer_create(&config, NULL, NULL, &layer, &error), error);
            mha_layer_init(layer, 3);
        }
        const mha_view q = with ? mha_rows(query, B, T, MODEL) : mha_heads(query, B, T, H, D);
        const mha_call call = {
            .query = q, .pages = pages_of(), .path = MHA_PATH_EXACT, .semantics = {.visible.causal = true}};
        mha_gradients g = {.d_output = q};
        g.of[MHA_D_QUERY] = mha_view_of(d[0], MHA_F64, q.rank, q.shape);
        g.of[MHA_D_PAGE_KEYS] = mha_view_of(d[1], MHA_F64, 4, pool_shape);
        g.of[MHA_D_PAGE_VALUES] = mha_view_of(d[2], MHA_F64, 4, pool_shape);
        assert_ok(mha_backward(layer, &call, &g, &error), error);
        const mha_case_notes notes = {.gradients = &g};
        const size_t moved = (4 * PAGE + 1) * KV * D; /* key 1 of sequence 0 */
        for (int wrong = 0; wrong < 2; wrong++) {
            mha_case *cases[2];
            d[2][moved] *= wrong ? 1.001 : 1;
            assert_ok(mha_case_of_call(layer, &call, NULL, 0, &notes, &cases[0], &error), error);
            assert_ok(mha_case_save(path, layer, &call, &notes, &error), error);
            assert_ok(mha_file_open(path, &file, &error), error);
            assert_true(mha_file_find(file, "page_table") && !mha_file_find(file, "past_key"));
            mha_file_close(file);
            assert_ok(mha_case_open(path, NULL, &cases[1], &error), error);
            for (int i = 0; i < 2; i++) {
                mha_verdict v;
                assert_ok(mha_case_check(cases[i], MHA_PATH_EXACT, NULL, 1, &v, &error), error);
                assert_int_equal(v.outcome, wrong ? MHA_OUTCOME_FAILED : MHA_OUTCOME_PASSED);
                assert_string_equal(v.stages[v.stage_count - 1].name, "d_page_values");
                assert_int_equal(v.stages[v.stage_count - 1].difference.mismatches, wrong);
                mha_verdict_clear(&v);
                mha_case_close(cases[i]);
            }
        }
        g.of[MHA_D_KEY] = g.of[MHA_D_QUERY];
        assert_refused(mha_backward(layer, &call, &g, &error), MHA_INVALID, error, "d_key", "no such gradient");
        mha_layer_destroy(layer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_has_words_for_pages),     cmocka_unit_test(bugs_in_the_table_are_named),
        cmocka_unit_test(bad_words_are_refused),          cmocka_unit_test(a_call_with_pages_is_checked),
        cmocka_unit_test(gradients_of_pages_are_checked), cmocka_unit_test(stages_over_keys_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
