/* Applies the words of a test case's settings: settings, and arrays that belong to them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/lab.h"
#include "mha/random.h"
#include "mha/setting.h"
#include "verify/conform/conform.h"

bool mha__conform_token(const char **text, char name[48], char value[48])
{
    *text += strspn(*text, " ");
    const size_t length = strcspn(*text, " "), middle = strcspn(*text, " =");
    name[0] = value[0] = 0;
    if (length == 0)
        return false;
    mha__text_print(name, 48, "%.*s", (int)middle, *text);
    if (middle < length)
        mha__text_print(value, 48, "%.*s", (int)(length - middle - 1), *text + middle + 1);
    *text += length;
    return true;
}

double mha__conform_random(const mha_test_case *q, uint64_t stream, uint64_t i)
{
    const uint64_t bits = mha__random_bits(q->seed, stream, i), third = (1 << 21) - 1;
    const uint64_t sum = (bits & third) + (bits >> 21 & third) + (bits >> 42 & third);
    return ldexp((double)(int64_t)sum - 3 * ldexp(1, 20), -20);
}

/* ---------------------------------------------------------------- arrays */

enum { LENGTHS = 16, PADDING, MASK, KEEPS, SINKS, SLOPES, NORMS, PAST_K, PAST_V, LISTS, BLOCKS, TABLES }; /* streams */

static size_t all_keys(const mha_test_case *q)
{
    return q->row.P + q->row.T_k;
}

/* An array of F32 numbers that are random and exact in 16 bits, times `factor`, about `middle`. */
static bool numbers(mha_test_case *q, mha_view *view, uint64_t stream, double factor, double middle, int rank,
                    const size_t *shape)
{
    *view = mha__arena_view(&q->pool, MHA_F32, rank, shape);
    float *x = view->data;
    for (size_t e = 0; x && e < mha_view_elements(view); e++)
        x[e] = (float)mha__round_to(MHA_BF16, middle + factor * mha__conform_random(q, stream, e));
    return x != NULL;
}

static bool make_lengths(mha_test_case *q, const char *value)
{
    int64_t *lengths = mha__arena_take(&q->pool, q->row.B * sizeof *lengths);
    const size_t S = all_keys(q);
    q->call.semantics.visible.kv_lengths = lengths;
    for (size_t b = 0; lengths && b < q->row.B; b++)
        lengths[b] = (int64_t)(b == 0 ? S - S / 4 : 1 + mha__random_bits(q->seed, LENGTHS, b) % S);
    if (lengths && strcmp(value, "empty") == 0)
        lengths[q->row.B - 1] = 0;
    return lengths != NULL;
}

/* Hides about a quarter of the keys, never the first. */
static bool make_padding(mha_test_case *q, const char *value)
{
    (void)value;
    const size_t shape[] = {q->row.B, all_keys(q)};
    mha_mask *padding = &q->call.semantics.visible.key_padding;
    *padding = (mha_mask){MHA_MASK_HIDES, mha__arena_view(&q->pool, MHA_BOOL, 2, shape)};
    unsigned char *hidden = padding->values.data;
    for (size_t e = 0; hidden && e < shape[0] * shape[1]; e++)
        hidden[e] = e % shape[1] > 0 && mha__conform_random(q, PADDING, e) > 0.6875;
    return hidden != NULL;
}

/* Whether a mask hides a key: never the first one, and not the one of the query's own number. */
static bool hides(const mha_test_case *q, uint64_t stream, size_t e)
{
    const size_t S = all_keys(q), t = e % S, i = e / S % q->row.T_q;
    return t > 0 && t != i && mha__conform_random(q, stream + 64, e) > 0.6875;
}

/* The shape of a mask by a word: for each head, for each batch row ("shared"), for both ("batch", "heads"), for queries
 * and keys alone ("rows", two axes), for keys of a batch row ("keys"). Returns its axes. */
static int mask_shape(const mha_test_case *q, const char *word, size_t shape[4])
{
    const bool both = mha__text_among("batch heads", word), one = mha__text_among("shared keys empty keeps", word);
    const size_t all[] = {both || one ? q->row.B : 1, one ? 1 : q->row.h,
                          strcmp(word, "keys") == 0 ? 1 : q->row.T_q, all_keys(q)};
    const int skipped = strcmp(word, "rows") == 0 ? 2 : 0;
    memcpy(shape, all + skipped, (size_t)(4 - skipped) * sizeof *all);
    return 4 - skipped;
}

/* Numbers to add; "finite" hides nothing. */
static bool make_mask(mha_test_case *q, const char *value)
{
    size_t shape[4];
    const int rank = mask_shape(q, value, shape);
    mha_mask *mask = &q->call.semantics.visible.mask;
    mask->kind = MHA_MASK_ADDITIVE;
    if (!numbers(q, &mask->values, MASK, 1, 0, rank, shape))
        return false;
    float *x = mask->values.data;
    for (size_t e = 0; e < mha_view_elements(&mask->values) && strcmp(value, "finite") != 0; e++)
        x[e] = hides(q, MASK, e) ? -INFINITY : x[e];
    return true;
}

/* A boolean mask for each batch row, or as the word says; "empty": every third query sees nothing. */
static bool make_keeps(mha_test_case *q, const char *value)
{
    size_t shape[4];
    const int rank = mask_shape(q, *value ? value : "keeps", shape);
    mha_mask *mask = &q->call.semantics.visible.mask;
    *mask = (mha_mask){MHA_MASK_KEEPS, mha__arena_view(&q->pool, MHA_BOOL, rank, shape)};
    unsigned char *keeps = mask->values.data;
    for (size_t e = 0; keeps && e < mha_view_elements(&mask->values); e++)
        keeps[e] = !hides(q, KEEPS, e) && (strcmp(value, "empty") != 0 || e / all_keys(q) % q->row.T_q % 3 != 1);
    return keeps != NULL;
}

static bool make_sinks(mha_test_case *q, const char *value)
{
    (void)value;
    return numbers(q, &q->weights[MHA_SINKS], SINKS, 1, 1, 1, &q->row.h);
}

/* Slopes that are no usual ones. */
static bool make_slopes(mha_test_case *q, const char *value)
{
    (void)value;
    double *slopes = mha__arena_take(&q->pool, q->row.h * sizeof *slopes);
    q->call.semantics.added.alibi_slopes = slopes;
    for (size_t i = 0; slopes && i < q->row.h; i++)
        slopes[i] = mha__round_to(MHA_BF16, ldexp(4 + mha__conform_random(q, SLOPES, i), -5 - (int)(i % 4)));
    return slopes != NULL;
}

/* Weights of norms for all heads; or, with biases, for each ("heads"). */
static bool make_norms(mha_test_case *q, const char *value)
{
    static const mha_weight weights[] = {MHA_Q_NORM, MHA_K_NORM, MHA_Q_NORM_BIAS, MHA_K_NORM_BIAS};
    const bool heads = strcmp(value, "heads") == 0;
    for (int i = 0; i < (heads ? 4 : 2); i++) {
        const size_t shape[] = {i % 2 ? q->row.h_kv : q->row.h, q->row.d_k};
        if (!numbers(q, &q->weights[weights[i]], NORMS + 64 * (uint64_t)i, 0.25, i < 2, heads ? 2 : 1, shape + !heads))
            return false;
    }
    return true;
}

/* A frequency for each pair of features, from 1 on down, no powers of one base. */
static bool make_frequencies(mha_test_case *q, const char *value)
{
    (void)value;
    const size_t n = q->row.d_k / 2;
    mha_view *view = &q->call.semantics.qkv.rope.frequencies;
    *view = mha__arena_view(&q->pool, MHA_F64, 1, &n);
    double *x = view->data;
    for (size_t i = 0; x && i < n; i++)
        x[i] = ldexp((double)(8 - i % 3), -3 - (int)i);
    return x != NULL;
}

static bool make_extra_row(mha_test_case *q, const char *value)
{
    (void)value;
    const size_t k = q->row.h_kv * q->row.d_k, v = q->row.h_kv * q->row.d_v;
    return numbers(q, &q->weights[MHA_BIAS_K], TABLES, 1, 0, 1, &k) &&
           numbers(q, &q->weights[MHA_BIAS_V], TABLES + 64, 1, 0, 1, &v);
}

static bool make_past(mha_test_case *q, const char *value)
{
    (void)value;
    for (int i = 0; i < 2; i++) {
        const size_t shape[] = {q->row.B, q->row.h_kv, q->row.P, i ? q->row.d_v : q->row.d_k};
        q->past[i] = mha__arena_view(&q->pool, q->dtype, 4, shape);
        size_t index[MHA_MAX_RANK] = {0}, e = 0;
        if (!q->past[i].data)
            return false;
        do
            mha_view_set(&q->past[i], index, mha__conform_random(q, i ? PAST_V : PAST_K, e++));
        while (mha__index_next(index, shape, 4));
    }
    return true;
}

/* Sequences of a ragged batch: so many, one of them of a single token; "gap": four, one of them without any. */
static bool make_sequences(mha_test_case *q, const char *value)
{
    const bool gap = strcmp(value, "gap") == 0;
    const size_t n = gap ? 4 : strtoul(value, NULL, 10), T = q->row.T_q;
    int64_t *starts = mha__arena_take(&q->pool, (n + 1) * sizeof *starts);
    q->call.semantics.place.n_sequences = n;
    q->call.semantics.place.cu_seqlens_q = starts;
    for (size_t s = 0; starts && s <= n; s++)
        starts[s] = (int64_t)(s == 2 ? T / n + !gap : s * T / n);
    return starts != NULL;
}

static bool make_segments(mha_test_case *q, const char *value)
{
    (void)value;
    const size_t shape[] = {q->row.B, q->row.T_q};
    mha_view *segments = &q->call.semantics.visible.pattern.q_segments;
    *segments = mha__arena_view(&q->pool, MHA_I64, 2, shape);
    int64_t *x = segments->data;
    for (size_t e = 0; x && e < shape[0] * shape[1]; e++)
        x[e] = (int64_t)(2 - e % shape[1] * 3 / shape[1]) + (int64_t)(e / shape[1]);
    return x != NULL;
}

static bool make_query_padding(mha_test_case *q, const char *value)
{
    (void)value;
    const size_t shape[] = {q->row.B, q->row.T_q};
    mha_mask *padding = &q->call.semantics.visible.pattern.query_padding;
    *padding = (mha_mask){MHA_MASK_HIDES, mha__arena_view(&q->pool, MHA_BOOL, 2, shape)};
    unsigned char *x = padding->values.data;
    for (size_t e = 0; x && e < shape[0] * shape[1]; e++)
        x[e] = e % shape[1] + 2 >= shape[1];
    return x != NULL;
}

/* A third of the keys for each query, one of them named twice, some places filled with -1. */
static bool make_lists(mha_test_case *q, const char *value)
{
    (void)value;
    const size_t S = all_keys(q), n = S / 3 + 2, shape[] = {q->row.B, q->row.h, q->row.T_q, n};
    mha_view *lists = &q->call.semantics.visible.pattern.key_lists;
    *lists = mha__arena_view(&q->pool, MHA_I64, 4, shape);
    int64_t *x = lists->data;
    for (size_t e = 0; x && e < mha_view_elements(lists); e++)
        x[e] = e % n == 1 ? x[e - 1]
               : e % n == 2 ? -1
                            : (int64_t)(mha__random_bits(q->seed, LISTS, e) % S);
    return x != NULL;
}

/* Blocks of 2 queries and 4 keys, or of 4 and 4 ("square"). */
static bool make_blocks(mha_test_case *q, const char *value)
{
    mha_pattern *p = &q->call.semantics.visible.pattern;
    p->block_queries = strcmp(value, "square") == 0 ? 4 : 2, p->block_keys = 4;
    const size_t n = p->block_queries, shape[] = {1, q->row.h, (q->row.T_q + n - 1) / n, (all_keys(q) + 3) / 4};
    p->blocks = (mha_mask){MHA_MASK_KEEPS, mha__arena_view(&q->pool, MHA_BOOL, 4, shape)};
    unsigned char *x = p->blocks.values.data;
    for (size_t e = 0; x && e < mha_view_elements(&p->blocks.values); e++)
        x[e] = e % shape[3] == e / shape[3] % shape[2] % shape[3] || mha__conform_random(q, BLOCKS, e) > 0;
    return x != NULL;
}

/* By buckets, or by cells of a grid of 3 rows ("grid"). */
static bool make_bias(mha_test_case *q, const char *value)
{
    const size_t width = (all_keys(q) + 2) / 3;
    const bool grid = strcmp(value, "grid") == 0;
    q->call.semantics.added.bias = grid ? (mha_bias){.rule = MHA_BIAS_RULE_GRID, .height = 3, .width = width}
                                        : (mha_bias){.rule = MHA_BIAS_RULE_BUCKETS, .max_distance = 16};
    const size_t shape[] = {grid ? 5 * (2 * width - 1) : 8, q->row.h};
    return numbers(q, &q->weights[MHA_BIAS_TABLE], TABLES, 1, 0, 2, shape);
}

/* By buckets of distances, with tables for each head; by distances ("distance"), of only the key's term with a scale
 * of its own; or by cells of a grid of 3 rows ("grid"). */
static bool make_relative(mha_test_case *q, const char *value)
{
    const size_t width = (all_keys(q) + 2) / 3, rows[] = {8, q->row.h * q->row.d_k}, few[] = {5, q->row.d_k},
                 columns[] = {2 * width - 1, q->row.d_k};
    mha_view *w = q->weights;
    mha_relative *r = &q->call.semantics.added.relative;
    if (strcmp(value, "grid") == 0) {
        *r = (mha_relative){.rule = MHA_RELATIVE_GRID, .height = 3, .width = width, .k_scale = 1};
        return numbers(q, &w[MHA_RELATIVE_K], TABLES, 1, 0, 2, few) &&
               numbers(q, &w[MHA_RELATIVE_COLUMNS], TABLES + 64, 1, 0, 2, columns);
    }
    if (strcmp(value, "distance") == 0) {
        r->rule = MHA_RELATIVE_DISTANCE;
        return numbers(q, &w[MHA_RELATIVE_K], TABLES, 1, 0, 2, few);
    }
    *r = (mha_relative){.rule = MHA_RELATIVE_LOG_BUCKETS, .max_distance = 9};
    return numbers(q, &w[MHA_RELATIVE_K], TABLES, 1, 0, 2, rows) &&
           numbers(q, &w[MHA_RELATIVE_Q], TABLES + 64, 1, 0, 2, rows);
}

/* ---------------------------------------------------------------- words */

static bool lie_in_pages(mha_test_case *q, const char *value)
{
    return (q->page_size = strtoul(value, NULL, 10)) > 0;
}

static bool lie_apart(mha_test_case *q, const char *value)
{
    static const char *const ways[] = {"", "packed", "query", "base"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        q->strided = strcmp(ways[i], value) == 0 ? (mha__conform_strides)(i + 1) : q->strided;
    return q->strided != MHA__TOGETHER;
}

static bool align_last(mha_test_case *q, const char *value)
{
    (void)value;
    q->call.semantics.place.has_offset = true;
    q->call.semantics.place.offset = (int64_t)all_keys(q) - (int64_t)q->row.T_q;
    return true;
}

static const struct {
    const char *name;
    bool (*make)(mha_test_case *q, const char *value);
} makers[] = {
    {"past", make_past},     {"lengths", make_lengths},     {"padding", make_padding},
    {"mask", make_mask},     {"keeps", make_keeps},         {"sinks", make_sinks},
    {"alibi", make_slopes},  {"norms", make_norms},         {"extra_row", make_extra_row},
    {"bias", make_bias},     {"relative", make_relative},   {"sequences", make_sequences},
    {"lists", make_lists},   {"segments", make_segments},   {"query_padding", make_query_padding},
    {"blocks", make_blocks}, {"bottom_right", align_last},  {"frequencies", make_frequencies},
    {"pages", lie_in_pages}, {"strides", lie_apart},
};

bool mha__conform_set(mha_test_case *q, const char *name, const char *value)
{
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"lse", &q->lse}, {"backward", &q->backward}};
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (strcmp(makers[i].name, name) == 0)
            return makers[i].make(q, value);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strcmp(flags[i].name, name) == 0)
            return *flags[i].flag = true;
    const mha_setting *setting = mha_setting_find(name);
    return setting && mha_setting_put(setting, *value ? value : "1", &q->call.semantics, NULL) == MHA_OK;
}

size_t mha__conform_past(const char *settings)
{
    char name[48], value[48];
    while (mha__conform_token(&settings, name, value))
        if (strcmp(name, "past") == 0)
            return strtoul(value, NULL, 10);
    return 0;
}

bool mha__conform_hidden(const mha_test_case *q, size_t b, size_t t)
{
    const mha_visible *v = &q->call.semantics.visible;
    const unsigned char *hidden = v->key_padding.values.data;
    return (v->kv_lengths && (int64_t)t >= v->kv_lengths[b]) || (hidden && hidden[b * all_keys(q) + t]);
}
