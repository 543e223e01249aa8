/* A layer: defaults, refusals in words and numbers, counts read from what was allocated, head views. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/attention.h"
#include "mha/layer.h"
#include "mha/random.h"
#include "mha/setting.h"
#include "support/counted.h"
#include "support/unit.h"

static mha_layer *make(counted *f, mha_config config, const char *prefix)
{
    mha_layer *layer = NULL;
    mha_error error;
    assert_ok(mha_layer_create(&config, f->table, prefix, &layer, &error), error);
    return layer;
}

static mha_config with_biases(mha_config c)
{
    c.bias_q = c.bias_k = c.bias_v = c.bias_o = true;
    return c;
}

/* Every bias, extra and norm on, all widths different. */
static mha_config everything(void)
{
    return with_biases((mha_config){.d_model = 24,
                                    .n_heads = 6,
                                    .kv_heads = 2,
                                    .d_k = 5,
                                    .d_v = 7,
                                    .d_q = 11,
                                    .d_kin = 13,
                                    .d_vin = 17,
                                    .d_out = 19,
                                    .bias_kv = true,
                                    .sinks = true,
                                    .bias_rows = 24,
                                    .relative_k_rows = 20,
                                    .relative_column_rows = 21,
                                    .relative_q_rows = 22,
                                    .relative_by_head = true,
                                    .q_norm = MHA_NORM_ROW,
                                    .k_norm = MHA_NORM_EACH_HEAD,
                                    .gate = MHA_GATE_FEATURE,
                                    .bias_gate = true,
                                    .norm_bias = true});
}

/* Latent attention with all of its weights. */
static mha_config latents(void)
{
    return (mha_config){.d_model = 12, .n_heads = 6, .d_k = 9, .d_v = 7, .d_q = 11, .d_kin = 13, .d_out = 19,
                        .q_rank = 14, .kv_rank = 16, .d_rope = 4, .bias_latent = true, .bias_o = true};
}

/* ---------------------------------------------------------------- configuration */

static void an_all_zero_config_is_the_papers_base_layer(void **state)
{
    (void)state;
    mha_config c = {0};
    assert_int_equal(mha_config_resolve(&c, NULL), MHA_OK);
    const mha_config expected = {.d_model = 512, .n_heads = 8, .kv_heads = 8, .d_k = 64, .d_v = 64, .d_q = 512,
                                 .d_kin = 512, .d_vin = 512, .d_out = 512};
    assert_memory_equal(&c, &expected, sizeof c);
    mha_config again = c;
    assert_int_equal(mha_config_resolve(&again, NULL), MHA_OK);
    assert_memory_equal(&again, &c, sizeof c);
}

static void each_default_follows_its_rule(void **state)
{
    (void)state;
    const struct {
        mha_config given, resolved;
    } rules[] = {
        {{.d_model = 96, .n_heads = 12},
         {.d_model = 96,
          .n_heads = 12,
          .kv_heads = 12,
          .d_k = 8,
          .d_v = 8,
          .d_q = 96,
          .d_kin = 96,
          .d_vin = 96,
          .d_out = 96}},
        {{.d_model = 96, .n_heads = 5, .d_k = 4}, /* d_v follows a given d_k; d_model need not divide */
         {.d_model = 96,
          .n_heads = 5,
          .kv_heads = 5,
          .d_k = 4,
          .d_v = 4,
          .d_q = 96,
          .d_kin = 96,
          .d_vin = 96,
          .d_out = 96}},
        {{.d_model = 96, .n_heads = 4, .d_v = 3}, /* d_k does not follow d_v */
         {.d_model = 96,
          .n_heads = 4,
          .kv_heads = 4,
          .d_k = 24,
          .d_v = 3,
          .d_q = 96,
          .d_kin = 96,
          .d_vin = 96,
          .d_out = 96}},
        {{.d_model = 8, .n_heads = 4, .kv_heads = 2, .d_q = 3, .d_kin = 5}, /* d_vin follows d_kin */
         {.d_model = 8, .n_heads = 4, .kv_heads = 2, .d_k = 2, .d_v = 2, .d_q = 3, .d_kin = 5, .d_vin = 5, .d_out = 8}},
        {{.d_model = 8, .n_heads = 1, .d_vin = 6, .d_out = 9},
         {.d_model = 8, .n_heads = 1, .kv_heads = 1, .d_k = 8, .d_v = 8, .d_q = 8, .d_kin = 8, .d_vin = 6, .d_out = 9}},
        {{.d_model = 8, .n_heads = 1, .d_q = INT_MAX, .d_k = INT_MAX}, /* as far as CBLAS can count */
         {.d_model = 8,
          .n_heads = 1,
          .kv_heads = 1,
          .d_k = INT_MAX,
          .d_v = INT_MAX,
          .d_q = INT_MAX,
          .d_kin = 8,
          .d_vin = 8,
          .d_out = 8}},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        mha_config c = rules[i].given;
        assert_int_equal(mha_config_resolve(&c, NULL), MHA_OK);
        assert_memory_equal(&c, &rules[i].resolved, sizeof c);
    }
}

static void what_is_wrong_is_said_in_words_and_numbers(void **state)
{
    (void)state;
    mha_error error;
    const struct {
        mha_config config;
        const char *words[8];
    } bad[] = {
        /* both numbers, divisors on either side, the way out */
        {{.d_model = 512, .n_heads = 12}, {"512", "12", "1, 2, 4, 8, 16, 32, 64, 128", "d_k", "divis", "", "", ""}},
        {{.d_model = 7, .n_heads = 8}, {"7", "8", "1, 7", "d_k", "", "", "", ""}},
        {{.d_model = 100000, .n_heads = 70000},
         {"70000", "12500, 20000, 25000, 50000, 100000", "", "", "", "", "", ""}},
        {{.n_heads = 8, .kv_heads = 3}, {"8", "3", "2", "4", "", "", "", ""}},
        {{.n_heads = 8, .kv_heads = 16}, {"8", "16", "", "", "", "", "", ""}},
        {{.dtype = MHA_I32}, {"I32", "F32", "F64", "F16", "BF16", "", "", ""}},
        {{.dtype = MHA_Q8_1}, {"Q8_1", "F32", "Q4_K", "", "", "", "", ""}},
        {{.matrix_dtype = {[MHA_W_Q] = MHA_Q8_1}}, {"matrix_dtype", "W_Q", "Q8_1", "", "", "", "", ""}},
        {{.matrix_dtype = {[MHA_W_O] = MHA_F16}}, {"matrix_dtype", "W_O", "F16", "", "", "", "", ""}},
        {{.matrix_dtype = {[MHA_B_Q] = MHA_Q8_0}}, {"matrix_dtype", "Q8_0", "", "", "", "", "", ""}},
        {{.bias_gate = true}, {"bias_gate", "`gate`", "", "", "", "", "", ""}},
        {{.gate = (mha_gate)3}, {"gate: expected one of none|feature|head", "found 3", "", "", "", "", "", ""}},
        {{.norm_bias = true}, {"norm_bias", "q_norm", "", "", "", "", "", ""}},
        {{.q_norm = (mha_norm)4}, {"q_norm: ", "each_head", "", "", "", "", "", ""}},
        {{.k_norm = (mha_norm)-1}, {"k_norm: ", "4294967295", "", "", "", "", "", ""}},
        {{.n_heads = (size_t)1 << 40, .d_k = (size_t)1 << 30}, {"1099511627776", "1073741824", "", "", "", "", "", ""}},
        /* rows and widths beyond what CBLAS can count */
        {{.d_k = (size_t)1 << 32},
         {"d_k: expected at most 2147483647", "found 8 x 4294967296", "", "", "", "", "", ""}},
        {{.n_heads = 2, .d_k = 1 << 30},
         {"d_k: expected at most 2147483647", "2 x 1073741824", "", "", "", "", "", ""}},
        {{.d_k = 64, .d_v = INT_MAX},
         {"d_v: expected at most 2147483647", "found 8 x 2147483647", "", "", "", "", "", ""}},
        {{.d_model = (size_t)1 << 40, .d_k = 64, .d_v = 64},
         {"d_model: expected at most 2147483647", "1099511627776", "", "", "", "", "", ""}},
        {{.d_q = (size_t)1 << 31},
         {"d_q: expected at most 2147483647", "found 2147483648", "", "", "", "", "", ""}},
        {{.d_kin = (size_t)1 << 31}, {"d_kin: expected at most", "found 2147483648", "", "", "", "", "", ""}},
        {{.d_vin = (size_t)1 << 31}, {"d_vin: expected at most", "found 2147483648", "", "", "", "", "", ""}},
        {{.d_out = SIZE_MAX}, {"d_out: expected at most", "found 18446744073709551615", "", "", "", "", "", ""}},
        /* 65535 away is near, 65536 is not, on either side; 1 is always told */
        {{.d_model = 131078, .n_heads = 65538}, {"near it are 1, 65539;", "", "", "", "", "", "", ""}},
        {{.d_model = 131078, .n_heads = 65537}, {"near it are 2, 65539;", "", "", "", "", "", "", ""}},
        {{.d_model = 65539, .n_heads = 3}, {"near it are 1;", "", "", "", "", "", "", ""}},
        {{.d_model = 65539, .n_heads = 4}, {"near it are 1, 65539;", "", "", "", "", "", "", ""}},
        /* a prime so large that its divisors cannot be looked for one by one */
        {{.d_model = SIZE_MAX - 58, .n_heads = 12}, {"18446744073709551557", "12", "d_k", "", "", "", "", ""}},
        {{.d_model = SIZE_MAX - 58, .n_heads = SIZE_MAX / 2}, {"18446744073709551557", "d_k", "", "", "", "", "", ""}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mha_config c = bad[i].config;
        const char *const *w = bad[i].words;
        for (int j = 0; j < 8; j++)
            assert_refused(mha_config_resolve(&c, &error), MHA_INVALID, error, w[j] ? w[j] : "");
        assert_memory_equal(&c, &bad[i].config, sizeof c);
        assert_int_equal(mha_config_resolve(&c, NULL), MHA_INVALID);
    }
}

static bool same_with_byte(size_t at)
{
    const mha_config blank = {0};
    mha_config other = blank;
    ((unsigned char *)&other)[at] = 1;
    return mha_config_same(&blank, &other);
}

/* Rows follow each other, but for gaps into which the next one does not fit, and equality reads each byte of them. */
static void every_field_of_a_config_has_its_row(void **state)
{
    const mha_config_field *f;
    size_t end = 0;
    (void)state;
    for (size_t i = 0; (f = mha_config_field_at(i)) != NULL; i++) {
        const size_t align = f->kind == MHA_CONFIG_TYPES ? sizeof(mha_dtype) : f->bytes;
        for (; end % align != 0; end++)
            assert_true(same_with_byte(end));
        assert_int_equal(f->at, end);
        for (; end < f->at + f->bytes; end++)
            assert_false(same_with_byte(end));
    }
    assert_true(end <= offsetof(mha_config, reserved) && end + sizeof(uint64_t) > offsetof(mha_config, reserved));
    for (; end < sizeof(mha_config); end++)
        assert_true(same_with_byte(end));
}

/* ---------------------------------------------------------------- weights */

static void every_weight_has_the_shape_of_the_equation(void **state)
{
    counted *f = *state;
    mha_layer *layer = make(f, everything(), "blocks.0.");
    const struct {
        mha_weight weight;
        const char *name;
        int rank;
        size_t shape[2];
    } expected[] = {
        {MHA_W_Q, "W_Q", 2, {11, 30}},   {MHA_B_Q, "b_Q", 1, {30}},     {MHA_W_K, "W_K", 2, {13, 10}},
        {MHA_B_K, "b_K", 1, {10}},       {MHA_W_V, "W_V", 2, {17, 14}}, {MHA_B_V, "b_V", 1, {14}},
        {MHA_W_O, "W_O", 2, {42, 19}},   {MHA_B_O, "b_O", 1, {19}},     {MHA_BIAS_K, "bias_k", 1, {10}},
        {MHA_BIAS_V, "bias_v", 1, {14}}, {MHA_SINKS, "sinks", 1, {6}},  {MHA_Q_NORM, "q_norm", 1, {30}},
        {MHA_K_NORM, "k_norm", 2, {2, 5}}, {MHA_Q_NORM_BIAS, "q_norm_bias", 1, {30}},
        {MHA_K_NORM_BIAS, "k_norm_bias", 2, {2, 5}},
        {MHA_BIAS_TABLE, "bias_table", 2, {24, 6}},
        {MHA_W_G, "W_G", 2, {11, 42}}, {MHA_B_G, "b_G", 1, {42}},
        {MHA_RELATIVE_K, "relative_k", 2, {20, 30}}, {MHA_RELATIVE_COLUMNS, "relative_columns", 2, {21, 30}},
        {MHA_RELATIVE_Q, "relative_q", 2, {22, 30}},
    };
    size_t elements = 0;
    const size_t count = sizeof expected / sizeof *expected;
    assert_int_equal(count, MHA_W_QA + MHA_WEIGHT_COUNT - MHA_W_G); /* between them those of latent attention */
    for (size_t i = 0; i < count; i++) {
        char name[64];
        size_t shape[2] = {0};
        const char *symbol = NULL;
        snprintf(name, sizeof name, "blocks.0.%s", expected[i].name);
        mha_tensor *row = mha_layer_weight(layer, expected[i].weight);
        assert_non_null(row);
        assert_ptr_equal(row, mha_params_find(f->table, name));
        assert_ptr_equal(row, mha_params_at(f->table, i)); /* rows in the order of the equation */
        mha_tensor_info info = mha_tensor_info_of(row);
        assert_string_equal(mha_weight_at(expected[i].weight)->name, expected[i].name);
        assert_string_equal(info.role, expected[i].name);
        assert_string_equal(info.group, "attention");
        assert_true(info.trainable && info.kind == MHA_TENSOR_PARAMETER);
        assert_int_equal(info.rank, expected[i].rank);
        for (int k = 0; k < info.rank; k++)
            assert_int_equal(info.shape[k], expected[i].shape[k]);
        assert_int_equal(mha_config_weight_shape(mha_layer_config(layer), expected[i].weight, shape, &symbol),
                         info.rank);
        assert_int_equal(shape[0], info.shape[0]);
        assert_true(symbol && symbol[0] == '(');
        elements += info.elements;
    }
    assert_int_equal(mha_params_totals(f->table, "attention").parameters, elements);
    assert_null(mha_weight_at(MHA_WEIGHT_COUNT));
    assert_null(mha_layer_weight(layer, MHA_WEIGHT_COUNT));
    assert_ptr_equal(mha_layer_params(layer), f->table);
    mha_layer_destroy(layer);
    assert_int_equal(mha_params_count(f->table), 0);
    mha_layer_destroy(NULL);
}

static void what_the_config_does_not_ask_for_is_not_there(void **state)
{
    counted *f = *state;
    mha_layer *layer = make(f, (mha_config){.d_model = 8, .n_heads = 2, .bias_v = true}, NULL);
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        bool there = w == MHA_W_Q || w == MHA_W_K || w == MHA_W_V || w == MHA_W_O || w == MHA_B_V;
        assert_int_equal(mha_layer_weight(layer, (mha_weight)w) != NULL, there);
        size_t shape[2];
        assert_int_equal(mha_config_weight_shape(mha_layer_config(layer), (mha_weight)w, shape, NULL) != 0, there);
    }
    assert_non_null(mha_params_find(f->table, "b_V")); /* prefix NULL is "" */
    mha_layer_destroy(layer);
}

static void counts_are_what_was_allocated(void **state)
{
    counted *f = *state;
    const struct {
        mha_config config;
        size_t parameters;
    } known[] = {
        {with_biases((mha_config){.d_model = 768, .n_heads = 12}), 2362368},
        {{.d_model = 768, .n_heads = 12}, 2359296},
        {{.d_model = 512, .n_heads = 8}, 1048576},
        /* d_v 32: 512*512*2 + 512*256 + 256*512 and the biases 512 + 512 + 256 + 512 */
        {with_biases((mha_config){.d_model = 512, .n_heads = 8, .d_k = 64, .d_v = 32}), 788224},
        {{.d_model = 512, .n_heads = 8, .d_k = 64, .d_v = 32}, 786432},
        {with_biases((mha_config){.d_model = 512, .n_heads = 1, .d_k = 64}), 131776},
        {with_biases((mha_config){.d_model = 512, .n_heads = 4, .d_k = 64}), 525568},
        {with_biases((mha_config){.d_model = 512, .n_heads = 8, .d_k = 64}), 1050624},
        {with_biases((mha_config){.d_model = 512, .n_heads = 12, .d_k = 64}), 1575680},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        mha_layer *layer = make(f, known[i].config, "a.");
        mha_totals totals = mha_params_totals(f->table, NULL);
        assert_int_equal(totals.parameters, known[i].parameters);
        assert_int_equal(totals.parameter_bytes, 4 * known[i].parameters);
        size_t handed_out = 0;
        for (size_t r = 0; r < mha_params_count(f->table); r++)
            handed_out += failing_bytes_at(&f->memory, mha_tensor_info_of(mha_params_at(f->table, r)).data);
        assert_int_equal(handed_out, totals.bytes_allocated);
        mha_layer_destroy(layer);
    }
}

static void the_head_count_alone_changes_no_total(void **state)
{
    counted *f = *state;
    static const size_t heads[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 48, 96, 192, 384, 768};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        mha_layer *layer = make(f, with_biases((mha_config){.d_model = 768, .n_heads = heads[i]}), "");
        assert_int_equal(mha_params_totals(f->table, NULL).parameters, 2362368);
        assert_int_equal(mha_layer_config(layer)->d_k, 768 / heads[i]);
        mha_layer_destroy(layer);
    }
}

static void weights_of_every_floating_type_are_counted_in_their_bytes(void **state)
{
    counted *f = *state;
    const struct {
        mha_dtype dtype;
        size_t bytes;
    } types[] = {{MHA_F32, 4}, {MHA_F64, 8}, {MHA_F16, 2}, {MHA_BF16, 2}};
    for (size_t i = 0; i < 4; i++) {
        mha_config c = everything();
        c.dtype = types[i].dtype;
        mha_layer *layer = make(f, c, "");
        mha_totals totals = mha_params_totals(f->table, NULL);
        assert_int_equal(totals.parameter_bytes, types[i].bytes * totals.parameters);
        mha_layer_destroy(layer);
    }
}

/* ---------------------------------------------------------------- heads */

/* Head views against the indices of the equation; together they cover every element exactly once. */
static void expect_slices(mha_layer *layer)
{
    const mha_config *c = mha_layer_config(layer);
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        if (!mha_layer_weight(layer, (mha_weight)w))
            continue;
        mha_view whole = mha_tensor_view(mha_layer_weight(layer, (mha_weight)w));
        size_t n = mha_view_elements(&whole), covered = 0;
        for (size_t e = 0; e < n; e++)
            ((float *)whole.data)[e] = (float)e;
        size_t heads = 0, width = 0;
        switch (w) {
        case MHA_W_Q: case MHA_B_Q: heads = c->n_heads, width = c->d_k; break;
        case MHA_RELATIVE_K: case MHA_RELATIVE_COLUMNS: case MHA_RELATIVE_Q: heads = c->n_heads, width = c->d_k; break;
        case MHA_W_K: case MHA_B_K: case MHA_BIAS_K: heads = c->kv_heads, width = c->d_k; break;
        case MHA_W_V: case MHA_B_V: case MHA_BIAS_V: heads = c->kv_heads, width = c->d_v; break;
        case MHA_W_O: heads = c->n_heads, width = c->d_v; break;
        case MHA_W_KVB: heads = c->n_heads, width = c->d_k - c->d_rope + c->d_v; break;
        case MHA_BIAS_TABLE:
        case MHA_SINKS: heads = c->n_heads, width = 1; break;
        case MHA_W_G: case MHA_B_G: heads = c->n_heads, width = c->gate == MHA_GATE_HEAD ? 1 : c->d_v; break;
        case MHA_K_NORM: case MHA_K_NORM_BIAS: heads = c->kv_heads, width = 1; break;
        default: break;
        }
        for (size_t i = 0; i < heads; i++) {
            mha_view head = mha_layer_head(layer, (mha_weight)w, i);
            assert_non_null(head.data);
            assert_int_equal(head.rank, whole.rank);
            const bool by_row = w == MHA_W_O || w == MHA_K_NORM || w == MHA_K_NORM_BIAS;
            int axis = !by_row && whole.rank == 2; /* columns, but rows of W_O and of norms */
            assert_int_equal(head.shape[axis], width);
            size_t rows = head.rank == 2 ? head.shape[0] : 1, columns = head.shape[head.rank - 1];
            for (size_t r = 0; r < rows; r++)
                for (size_t k = 0; k < columns; k++, covered++) {
                    size_t two[2] = {r, k}, row = r + (by_row ? i * width : 0),
                           column = k + (by_row ? 0 : i * width);
                    size_t expected = head.rank == 2 ? row * whole.shape[1] + column : column;
                    assert_int_equal((size_t)mha_view_get(&head, head.rank == 2 ? two : two + 1), expected);
                }
        }
        assert_int_equal(covered, heads ? n : 0);
        assert_null(mha_layer_head(layer, (mha_weight)w, heads).data);
        assert_null(mha_layer_head(layer, (mha_weight)w, SIZE_MAX).data);
    }
    mha_layer_destroy(layer);
}

static void heads_are_slices_of_the_weights(void **state)
{
    counted *f = *state;
    expect_slices(make(f, everything(), ""));
    expect_slices(make(f, latents(), ""));
    expect_slices(make(f, (mha_config){.d_model = 24, .n_heads = 6, .gate = MHA_GATE_HEAD, .bias_gate = true}, ""));
    mha_layer *layer = make(f, (mha_config){.d_model = 8, .n_heads = 2}, "");
    assert_null(mha_layer_head(layer, MHA_B_Q, 0).data);
    assert_null(mha_layer_head(layer, MHA_WEIGHT_COUNT, 0).data);
    mha_layer_destroy(layer);
}

/* ---------------------------------------------------------------- values */

static void expect_uniform(mha_layer *layer)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) { /* new weights are zero */
        if (!mha_layer_weight(layer, (mha_weight)w))
            continue;
        const mha_tensor_info info = mha_tensor_info_of(mha_layer_weight(layer, (mha_weight)w));
        for (size_t i = 0; i < info.elements; i++)
            assert_true(((const float *)info.data)[i] == 0);
    }
    mha_layer_init(layer, 42);
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        if (!mha_layer_weight(layer, (mha_weight)w))
            continue;
        mha_tensor_info info = mha_tensor_info_of(mha_layer_weight(layer, (mha_weight)w));
        const float *x = info.data;
        if (info.rank == 2 && (w <= MHA_W_O || (w >= MHA_W_QA && w < MHA_RELATIVE_K))) {
            double bound = sqrt(6.0 / (double)(info.shape[0] + info.shape[1])), largest = 0;
            for (size_t e = 0; e < info.elements; e++) {
                assert_true(fabs((double)x[e]) <= bound * (1 + 0x1p-23));
                largest = fmax(largest, fabs((double)x[e]));
                float high = (float)bound;
                assert_true(x[e] == -high + (high - -high) * mha__random_unit(42, (uint64_t)w, e));
            }
            assert_true(largest > 0.9 * bound); /* 130 and more numbers: missing the last tenth has odds of e^-13 */
        } else {
            static const float widest[MHA_WEIGHT_COUNT] = {
                /* 1 / sqrt(rows of W), the rows as everything() and latents() have them */
                [MHA_B_Q] = 0.30152f, [MHA_B_K] = 0.27736f, [MHA_B_V] = 0.24254f,
                [MHA_B_O] = 0.15431f, [MHA_BIAS_K] = 2,     [MHA_BIAS_V] = 2,
                [MHA_SINKS] = 1,      [MHA_BIAS_TABLE] = 1, [MHA_Q_NORM] = 0.5f,  [MHA_K_NORM] = 0.5f,
                [MHA_Q_NORM_BIAS] = 0.5f, [MHA_K_NORM_BIAS] = 0.5f,
                [MHA_B_G] = 0.30152f, [MHA_RELATIVE_K] = 1, [MHA_RELATIVE_COLUMNS] = 1, [MHA_RELATIVE_Q] = 1,
                [MHA_B_QA] = 0.30152f, [MHA_B_KVA] = 0.27736f, [MHA_QA_NORM] = 0.5f, [MHA_KVA_NORM] = 0.5f};
            const bool norm = w == MHA_Q_NORM || w == MHA_K_NORM || w == MHA_QA_NORM || w == MHA_KVA_NORM;
            float centre = norm ? 1 : 0, largest = 0;
            for (size_t e = 0; e < info.elements; e++) {
                assert_true(x[e] != centre && fabsf(x[e] - centre) <= widest[w]);
                largest = fmaxf(largest, fabsf(x[e] - centre));
            }
            assert_true(largest > 0.3f * widest[w]); /* of 5 and more numbers */
        }
    }
}

static void initialisation_is_xavier_uniform_and_depends_on_the_counter_alone(void **state)
{
    counted *f = *state;
    mha_layer *layer = make(f, latents(), "");
    expect_uniform(layer);
    mha_layer_destroy(layer);
    layer = make(f, everything(), "");
    expect_uniform(layer);
    /* the same numbers in another layer, in another type rounded from the same ones */
    mha_config c = everything();
    c.dtype = MHA_BF16;
    mha_layer *other = make(f, c, "other.");
    mha_layer_init(other, 42);
    const float *a = mha_tensor_info_of(mha_layer_weight(layer, MHA_W_O)).data;
    const uint16_t *b = mha_tensor_info_of(mha_layer_weight(other, MHA_W_O)).data;
    for (size_t e = 0; e < 42 * 19; e++)
        assert_int_equal(b[e], mha__f32_to_bf16(a[e]));
    mha_layer_init(other, 43);
    size_t equal = 0;
    for (size_t e = 0; e < 42 * 19; e++)
        equal += b[e] == mha__f32_to_bf16(a[e]);
    assert_true(equal < 20);
    mha_layer_destroy(layer);
    mha_layer_destroy(other);
}

static void weights_are_set_from_any_floating_view_of_their_shape(void **state)
{
    counted *f = *state;
    mha_error error;
    mha_layer *layer = make(f, (mha_config){.d_model = 4, .n_heads = 2, .d_q = 3}, "");
    double values[12];
    for (int i = 0; i < 12; i++)
        values[i] = i / 8.0;
    mha_view transposed = mha_view_of(values, MHA_F64, 2, (size_t[]){3, 4});
    transposed.stride[0] = 1, transposed.stride[1] = 3; /* as PyTorch stores it: (out, in) */
    assert_ok(mha_layer_set(layer, MHA_W_Q, &transposed, &error), error);
    const float *w = mha_tensor_info_of(mha_layer_weight(layer, MHA_W_Q)).data;
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < 4; j++)
            assert_true((double)w[i * 4 + j] == values[j * 3 + i]);
    mha_view wrong = mha_view_of(values, MHA_F64, 2, (size_t[]){4, 3});
    assert_refused(mha_layer_set(layer, MHA_W_Q, &wrong, &error), MHA_INVALID, error, "W_Q", "(3, 4)",
                   "input dimension first", "(4, 3)");
    wrong = mha_view_of(values, MHA_F64, 1, (size_t[]){12});
    assert_refused(mha_layer_set(layer, MHA_W_Q, &wrong, &error), MHA_INVALID, error, "W_Q", "(3, 4)", "(12,)");
    for (mha_dtype dtype = MHA_I64; dtype <= MHA_BOOL; dtype++) {
        const mha_view whole = mha_view_of(values, dtype, 2, (size_t[]){3, 4});
        assert_refused(mha_layer_set(layer, MHA_W_Q, &whole, &error), MHA_UNSUPPORTED, error, "W_Q", "a floating type",
                       mha_dtype_name(dtype));
    }
    mha_view nowhere = mha_view_of(NULL, MHA_F32, 2, (size_t[]){3, 4});
    assert_refused(mha_layer_set(layer, MHA_W_Q, &nowhere, &error), MHA_INVALID, error, "W_Q", "expected data");
    assert_refused(mha_layer_set(layer, MHA_B_Q, &wrong, &error), MHA_NOT_FOUND, error, "b_Q");
    assert_refused(mha_layer_set(layer, MHA_WEIGHT_COUNT, &wrong, &error), MHA_NOT_FOUND, error, "weight");
    mha_layer_destroy(layer);
}

/* ---------------------------------------------------------------- inert elements */

static size_t inert(mha_layer *layer, const mha_semantics *s)
{
    assert_int_equal(mha_layer_mark_inert(layer, s, NULL), MHA_OK);
    return mha_params_totals(mha_layer_params(layer), NULL).inert;
}

static void the_key_bias_is_inert_exactly_where_softmax_cannot_see_it(void **state)
{
    counted *f = *state;
    mha_config c = with_biases((mha_config){.d_model = 24, .n_heads = 6, .kv_heads = 2, .d_k = 4});
    mha_layer *layer = make(f, c, "");
    assert_int_equal(mha_params_totals(f->table, NULL).inert, 8);
    assert_int_not_equal(mha_tensor_info_of(mha_layer_weight(layer, MHA_B_K)).inert_why[0], '\0');
    const struct {
        mha_semantics semantics;
        size_t inert;
    } cases[] = {
        {{.visible.causal = true}, 8},
        {{.visible = {.window_left = 2}}, 8},
        {{.softmax.softcap = 5}, 0},
        {{.softmax.zero_row = true}, 0},
        {{.softmax.softmax_plus_one = true}, 0},
        {{.softmax.normaliser = MHA_SIGMOID}, 0},
        {{.qkv.clip_qkv = 3}, 0},
        {{.qkv.rope = {.kind = MHA_ROPE_HALF_SPLIT}}, 0},
        {{.qkv.rope = {.kind = MHA_ROPE_INTERLEAVED, .dim = 2}}, 4},
        {{.softmax = {.has_scale = true, .scale = 3}}, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(inert(layer, &cases[i].semantics), cases[i].inert);
    assert_int_equal(inert(layer, NULL), 8);
    mha_layer_destroy(layer);
    for (int extra = 0; extra < 4; extra++) {
        mha_config d = c;
        d.sinks = extra == 0;
        d.bias_kv = extra == 1;
        d.k_norm = extra == 2 ? MHA_NORM_HEAD : MHA_NORM_NONE;
        d.bias_k = extra != 3;
        layer = make(f, d, "");
        assert_int_equal(mha_params_totals(f->table, NULL).inert, 0);
        mha_layer_destroy(layer);
    }
}

/* ---------------------------------------------------------------- failures */

static void a_layer_that_cannot_be_made_leaves_no_row_behind(void **state)
{
    counted *f = *state;
    mha_error error;
    mha_layer *first = make(f, everything(), "x."), *second = NULL;
    mha_totals before = mha_params_totals(f->table, NULL);
    size_t live = f->memory.live_bytes, rows = mha_params_count(f->table);
    mha_config c = everything();
    assert_refused(mha_layer_create(&c, f->table, "x.", &second, &error), MHA_INVALID, error, "x.W_Q");
    char prefix[600];
    memset(prefix, 'p', sizeof prefix);
    prefix[sizeof prefix - 1] = '\0';
    assert_refused(mha_layer_create(&c, f->table, prefix, &second, &error), MHA_INVALID, error, "prefix");
    c.d_model = 512, c.n_heads = 12, c.d_k = 0;
    assert_refused(mha_layer_create(&c, f->table, "y.", &second, &error), MHA_INVALID, error, "512", "12");
    c = (mha_config){.d_model = (size_t)1 << 40, .n_heads = 8};
    assert_refused(mha_layer_create(&c, f->table, "y.", &second, &error), MHA_INVALID, error, "d_k", "137438953472");
    assert_null(second);
    mha_totals after = mha_params_totals(f->table, NULL);
    assert_memory_equal(&after, &before, sizeof after);
    assert_int_equal(f->memory.live_bytes, live);

    size_t points = 0;
    for (size_t n = 1;; n++, points++) {
        c = everything();
        f->memory.fail_at = f->memory.calls + n;
        mha_status status = mha_layer_create(&c, f->table, "z.", &second, &error);
        f->memory.fail_at = 0;
        if (status == MHA_OK)
            break;
        assert_refused(status, MHA_NO_MEMORY, error, "memory");
        assert_null(second);
        assert_int_equal(mha_params_count(f->table), rows);
        after = mha_params_totals(f->table, NULL);
        assert_memory_equal(&after, &before, sizeof after);
    }
    print_message("%zu allocations failed in turn\n", points);
    assert_true(points >= 3 * MHA_W_QA);
    mha_layer_destroy(second);
    mha_layer_destroy(first);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, counted_set_up, counted_tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_all_zero_config_is_the_papers_base_layer),
        cmocka_unit_test(each_default_follows_its_rule),
        cmocka_unit_test(what_is_wrong_is_said_in_words_and_numbers),
        cmocka_unit_test(every_field_of_a_config_has_its_row),
        TEST(every_weight_has_the_shape_of_the_equation),
        TEST(what_the_config_does_not_ask_for_is_not_there),
        TEST(counts_are_what_was_allocated),
        TEST(the_head_count_alone_changes_no_total),
        TEST(weights_of_every_floating_type_are_counted_in_their_bytes),
        TEST(heads_are_slices_of_the_weights),
        TEST(initialisation_is_xavier_uniform_and_depends_on_the_counter_alone),
        TEST(weights_are_set_from_any_floating_view_of_their_shape),
        TEST(the_key_bias_is_inert_exactly_where_softmax_cannot_see_it),
        TEST(a_layer_that_cannot_be_made_leaves_no_row_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
