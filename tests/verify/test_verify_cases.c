/* Case files of every kind with one thing changed: refused by name, skipped with a reason, checked all the same,
 * with tolerances that nobody wrote down; and calls that cannot be saved as one. */
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/call.h"
#include "support/failing.h"
#include "support/opening.h"
#include "support/recase.h"
#include "support/scratch.h"
#include "support/verdict.h"

/* ---------------------------------------------------------------- files made from a few words */

enum { MAX_CHANGES = 6, ELEMENTS = 512 };

/* A tensor of zeros (or of `value`), which replaces that of the kind's own or joins them; rank -1 leaves it out. */
typedef struct entry {
    const char *name;
    mha_dtype dtype;
    int rank;
    size_t shape[4];
    int64_t value; /* of integers; of floats the bits of two F32 */
} entry;

typedef struct made {
    const char *kind;
    const char *metadata[MAX_CHANGES][2]; /* a NULL value leaves the key out */
    entry tensors[MAX_CHANGES];
} made;

static const entry plain[] = {
    {"query", MHA_F32, 3, {1, 2, 4}, 0}, {"key", MHA_F32, 3, {1, 2, 4}, 0},
    {"value", MHA_F32, 3, {1, 2, 4}, 0}, {"expected.output", MHA_F32, 3, {1, 2, 4}, 0},
    {"W_q", MHA_F32, 2, {4, 4}, 0},      {"W_k", MHA_F32, 2, {4, 4}, 0},
    {"W_v", MHA_F32, 2, {4, 4}, 0},      {"W_o", MHA_F32, 2, {4, 4}, 0},
};

static void add_entry(mha_writer *w, const entry *e)
{
    static double zeros[ELEMENTS];
    static int64_t values[MAX_CHANGES][ELEMENTS];
    static size_t turn;
    mha_error error;
    mha_view v = mha_view_of(zeros, e->dtype, e->rank, e->shape);
    assert_true(mha_view_elements(&v) <= ELEMENTS);
    if (e->value) {
        int64_t *data = values[turn++ % MAX_CHANGES];
        for (size_t i = 0; i < ELEMENTS; i++)
            data[i] = e->value;
        if (e->dtype == MHA_I32)
            for (size_t i = 0; i < ELEMENTS; i++)
                ((int32_t *)data)[i] = (int32_t)e->value;
        v.data = data;
    }
    assert_ok(mha_writer_add(w, e->name, &v, &error), error);
}

static const char *write_made(const made *m)
{
    const char *path = scratch_path("made.safetensors");
    mha_error error;
    mha_writer *w;
    assert_ok(mha_writer_create(path, &w, &error), error);
    size_t n = strcmp(m->kind, "mha") == 0 ? 8 : 4;
    for (size_t i = 0; i < n; i++) {
        bool replaced = strcmp(m->kind, "rope") == 0 && (i == 1 || i == 2);
        for (size_t k = 0; k < MAX_CHANGES; k++)
            replaced |= m->tensors[k].name && strcmp(m->tensors[k].name, plain[i].name) == 0;
        if (!replaced)
            add_entry(w, &plain[i]);
    }
    for (size_t k = 0; k < MAX_CHANGES; k++)
        if (m->tensors[k].name && m->tensors[k].rank >= 0)
            add_entry(w, &m->tensors[k]);
    const char *const own[][2] = {{"kind", m->kind},
                                  {"num_heads", "2"},
                                  {"rtol", "0"},
                                  {"atol", "1e-6"},
                                  {"rope", strcmp(m->kind, "rope") == 0 ? "interleaved" : "none"}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        bool replaced = false;
        for (size_t k = 0; k < MAX_CHANGES; k++)
            replaced |= m->metadata[k][0] && strcmp(m->metadata[k][0], own[i][0]) == 0;
        if (!replaced)
            assert_ok(mha_writer_add_metadata(w, own[i][0], own[i][1], &error), error);
    }
    for (size_t k = 0; k < MAX_CHANGES; k++)
        if (m->metadata[k][0] && m->metadata[k][1])
            assert_ok(mha_writer_add_metadata(w, m->metadata[k][0], m->metadata[k][1], &error), error);
    assert_ok(mha_writer_commit(w, &error), error);
    mha_writer_destroy(w);
    return path;
}

/* ---------------------------------------------------------------- refused, by name */

static void what_contradicts_itself_is_refused(void **state)
{
    (void)state;
    static const struct {
        made file;
        const char *texts[3];
    } rows[] = {
        {{"mha",
          {{"layout", "BTHD"}},
          {{"query", MHA_F32, 4, {1, 2, 2, 2}, 0},
           {"key", MHA_F32, 4, {1, 2, 2, 2}, 0},
           {"value", MHA_F32, 4, {1, 2, 2, 2}, 0}}},
         {"kind mha", "BTE, TBE or TE", "BTHD"}},
        {{"mha", {{NULL}}, {{"W_v", MHA_F32, -1, {0}, 0}}}, {"W_v", "expected one for kind mha", ""}},
        {{"mha", {{NULL}}, {{"W_q", MHA_F32, -1, {0}, 0}}}, {"W_q", "expected one for kind mha", ""}},
        {{"mha", {{NULL}}, {{"W_k", MHA_F32, 2, {4, 5}, 0}}}, {"num_heads", "W_q is 4 wide, W_k 5, W_v 4", "found 2"}},
        {{"mha", {{NULL}}, {{"W_k", MHA_F32, 1, {4}, 0}}}, {"W_k", "a matrix", "(4,)"}},
        {{"mha", {{NULL}}, {{"W_o", MHA_F32, -1, {0}, 0}}}, {"W_o", "expected one", "kind mha"}},
        {{"mha", {{NULL}}, {{"W_o", MHA_F32, 1, {4}, 0}}}, {"W_o", "a matrix", "(4,)"}},
        {{"mha", {{NULL}}, {{"q_norm_weight", MHA_F32, 1, {3}, 0}}},
         {"q_norm_weight", "2 (per head) or 4 (per row)", "found 3"}},
        {{"mha", {{NULL}}, {{"k_norm_weight", MHA_F32, 1, {7}, 0}}}, {"k_norm_weight", "found 7", ""}},
        {{"mha", {{NULL}}, {{"bias_table", MHA_F32, 2, {4, 2}, 0}}}, {"bias_table", "with it, found none",
                                                                      "bias_rule"}},
        {{"mha",
          {{"num_heads", "2"}},
          {{"W_k", MHA_F32, -1, {0}, 0},
           {"W_v", MHA_F32, -1, {0}, 0},
           {"W_kva", MHA_F32, 2, {4, 3}, 0},
           {"W_kvb", MHA_F32, 2, {2, 6}, 0}}},
         {"kva_norm_weight", "ones", ""}},
        {{"mha", {{NULL}}, {{"prefill.query", MHA_F32, 3, {1, 3, 4}, 0}}}, {"prefill.query", "(1, 2, 4)", "(1, 3, 4)"}},
        {{"mha", {{NULL}}, {{"torch.in_proj_weight", MHA_F32, 2, {11, 4}, 0}}},
         {"torch.in_proj_weight", "(12, 4)", "(11, 4)"}},
        {{"sdpa", {{NULL}}, {{"prefill.query", MHA_F32, 3, {1, 2, 4}, 0}}},
         {"prefill.query", "kind mha", "found kind sdpa"}},
        {{"sdpa", {{NULL}}, {{"torch.out_proj.bias", MHA_F32, 1, {4}, 0}}},
         {"torch.out_proj.bias", "kind mha", "kind sdpa"}},
        {{"sdpa", {{NULL}}, {{"permuted.W_q", MHA_F32, 2, {4, 4}, 0}}}, {"kind sdpa", "no weights to replace", ""}},
        {{"sdpa", {{NULL}}, {{"repeated.W_k", MHA_F32, 2, {4, 4}, 0}}}, {"kind sdpa", "no weights to replace", ""}},
        {{"sdpa", {{NULL}}, {{"bias_k", MHA_F32, 1, {4}, 0}}}, {"bias_v: expected one with bias_k", "found none", ""}},
        {{"sdpa", {{"mask_filter_value", "inf"}}, {{0}}}, {"mask_filter_value", "a finite number", ""}},
        {{"sdpa", {{"mask_filter_value", "low"}}, {{0}}}, {"mask_filter_value", "a number", "low"}},
        {{"sdpa", {{"rope", "half_split"}, {"rope_dim", "3.5"}}, {{0}}}, {"rope_dim", "a whole number", "3.5"}},
        {{"sdpa", {{"rope", "half_split"}, {"rope_dim", "4"}}, {{0}}}, {"rope_dim", "0 to 2", "4"}},
        {{"sdpa", {{NULL}}, {{"cos_cache", MHA_F32, 2, {2, 1}, 0}, {"sin_cache", MHA_F32, 2, {2, 1}, 0}}},
         {"rope", "interleaved or half_split", "none"}},
        {{"rope", {{"rope", "none"}}, {{0}}}, {"rope", "interleaved or half_split", "none"}},
        {{"sdpa", {{"rope_scaling", "yarn"}}, {{0}}}, {"rope", "interleaved or half_split", "none"}},
        {{"sdpa", {{"rope_scaling", "ntk"}}, {{0}}}, {"rope_scaling", "linear, dynamic, yarn", "ntk"}},
        {{"rope", {{"rope_factor", "x"}}, {{0}}}, {"rope_factor", "x", ""}},
        {{"rope", {{"rope_original_length", "x"}}, {{0}}}, {"rope_original_length", "x", ""}},
        {{"rope", {{"rope_length", "x"}}, {{0}}}, {"rope_length", "x", ""}},
        {{"rope", {{"rope_beta_fast", "x"}}, {{0}}}, {"rope_beta_fast", "x", ""}},
        {{"rope", {{"rope_beta_slow", "x"}}, {{0}}}, {"rope_beta_slow", "x", ""}},
        {{"rope", {{"rope_truncate", "x"}}, {{0}}}, {"rope_truncate", "x", ""}},
        {{"rope", {{"rope_low_freq_factor", "x"}}, {{0}}}, {"rope_low_freq_factor", "x", ""}},
        {{"rope", {{"rope_high_freq_factor", "x"}}, {{0}}}, {"rope_high_freq_factor", "x", ""}},
        {{"rope", {{NULL}}, {{"rope_factors", MHA_F64, 1, {1}, 0}}}, {"rope_factors", "with it, found none",
                                                                      "rope_scaling"}},
        {{"rope", {{"rope_scaling", "linear"}}, {{"rope_factors", MHA_F64, 1, {1}, 0}}},
         {"rope_factors", "longrope", ""}},
        {{"rope", {{"rope_scaling", "longrope"}}, {{"rope_factors", MHA_F64, 1, {2}, 0}}},
         {"rope_factors", "(1,)", "(2,)"}},
        {{"rope", {{"rope_scaling", "linear"}}, {{"rope_frequencies", MHA_F64, 1, {1}, 0}}},
         {"rope_scaling", "expected none with", "rope_frequencies"}},
        {{"rope", {{"rope_scaling", "yarn"}}, {{0}}}, {"rope_scaling", "yarn: expected an original length", "0"}},
        {{"rope", {{"d_k", "3"}}, {{0}}}, {"d_k", "3", "2"}},
        {{"sdpa", {{"prefix", "-1"}}, {{0}}}, {"prefix", "0", "-1"}},
        {{"sdpa", {{"prefix", "1"}}, {{0}}}, {"prefix", "causal", "unset"}},
        {{"sdpa", {{"chunk", "1.5"}}, {{0}}}, {"chunk", "whole", "1.5"}},
        {{"sdpa", {{"window_right", "-2"}}, {{0}}}, {"window_right", "a whole number from 0", "-2"}},
        {{"sdpa", {{"key_padding_mask_kind", "additive"}}, {{0}}}, {"key_padding_mask", "found none", ""}},
        {{"sdpa", {{"qk_mode", "4"}}, {{"expected.qk", MHA_F32, 4, {1, 2, 2, 2}, 0}}}, {"qk_mode", "0, 1, 2, 3", "4"}},
        {{"sdpa", {{NULL}}, {{"cu_seqlens_k", MHA_I64, 1, {2}, 0}}}, {"cu_seqlens_k", "expected cu_seqlens_q", ""}},
        {{"sdpa", {{NULL}}, {{"cu_seqlens_q", MHA_I64, 1, {1}, 0}}}, {"cu_seqlens_q", "2 or more", "1"}},
        {{"sdpa", {{NULL}}, {{"cu_seqlens_q", MHA_I64, 1, {3}, 0}, {"cu_seqlens_k", MHA_I64, 1, {2}, 0}}},
         {"cu_seqlens_k", "3 numbers", "found 2"}},
        {{"sdpa", {{NULL}}, {{"position_offset", MHA_I64, 1, {2}, 0}}}, {"position_offset", "1 elements, (B)", "2"}},
        {{"sdpa", {{"alibi", "1"}}, {{"alibi_slopes", MHA_F32, 1, {3}, 0}}}, {"alibi_slopes", "2 elements, (h)", "3"}},
        {{"sdpa", {{NULL}}, {{"past_key", MHA_F32, 4, {1, 2, 3, 3}, 0}, {"past_value", MHA_F32, 4, {1, 2, 3, 2}, 0}}},
         {"past_key", "(1, 2, 3, 2)", "(1, 2, 3, 3)"}},
        {{"sdpa", {{NULL}}, {{"past_key", MHA_F32, 4, {1, 2, 3, 2}, 0}, {"past_value", MHA_F32, 4, {1, 2, 4, 2}, 0}}},
         {"past_value", "(1, 2, 3, 2)", "(1, 2, 4, 2)"}},
        {{"sdpa", {{NULL}}, {{"kv_lengths", MHA_I64, 2, {1, 1}, 0}}}, {"kv_lengths", "of rank 1", "of rank 2"}},
        {{"sdpa", {{NULL}}, {{"kv_lengths", MHA_F32, 1, {1}, 0}}}, {"kv_lengths", "I64 or I32", "F32"}},
        {{"sdpa", {{"attn_mask_kind", "additive"}}, {{"attn_mask", MHA_I64, 2, {2, 2}, 0}}},
         {"attn_mask", "expected F32", "I64"}},
        {{"sdpa",
          {{"layout", "BHTD"}},
          {{"query", MHA_F32, 4, {1, 3, 2, 2}, 0},
           {"key", MHA_F32, 4, {1, 2, 2, 2}, 0},
           {"value", MHA_F32, 4, {1, 2, 2, 2}, 0}}},
         {"query", "2 heads in layout BHTD", "found 3"}},
        {{"sdpa", {{NULL}}, {{"query", MHA_I64, 3, {1, 2, 4}, 1}}}, {"query", "expected F32, F64, F16 or BF16", "I64"}},
        {{"rope", {{NULL}}, {{"query", MHA_I64, 3, {1, 2, 4}, 1}}}, {"query", "expected F32", "I64"}},
        {{"sdpa", {{"rtol64", "-2"}}, {{0}}}, {"rtol64", "0 or more", "-2"}},
        {{"sdpa", {{"rtol", "inf"}}, {{0}}}, {"rtol", "finite", "inf"}},
        {{"sdpa", {{"atol", "-0.5"}}, {{0}}}, {"atol", "0 or more", "-0.5"}},
        {{"sdpa", {{"rtol64", "1e999"}}, {{0}}}, {"rtol64", "finite", "1e999"}},
        {{"sdpa", {{"atol64", "infinity"}}, {{0}}}, {"atol64", "finite", "infinity"}},
        {{"sdpa", {{"atol.expected.output", "inf"}}, {{0}}}, {"atol.expected.output", "finite", "inf"}},
        {{"sdpa", {{"atol.expected64.lse", "-1"}}, {{0}}}, {"atol.expected64.lse", "0 or more", "-1"}},
        {{"sdpa", {{"atol.expected.output", "nan"}}, {{0}}}, {"atol.expected.output", "a number", "nan"}},
        {{"sdpa", {{"atol.expected.output", "x"}}, {{0}}}, {"atol.expected.output", "a number", "x"}},
        {{"sdpa", {{"rtol", ""}}, {{0}}}, {"rtol", "a number", ""}},
        {{"sdpa", {{"rtol", "1e-3x"}}, {{0}}}, {"rtol", "a number", "1e-3x"}},
        {{"sdpa", {{"rtol", "nan"}}, {{0}}}, {"rtol", "a number", "nan"}},
        {{"sdpa", {{"num_heads", "1.5"}}, {{0}}}, {"num_heads", "a whole number", "1.5"}},
        {{"sdpa", {{"num_heads", "0x2"}}, {{0}}}, {"num_heads", "a number", "0x2"}},
        {{"sdpa", {{"source_dtype", "float16"}}, {{0}}}, {"source_dtype", "F16, BF16, F32", "float16"}},
        {{"sdpa", {{"source_dtype", "TF32"}}, {{0}}}, {"source_dtype", "F16, BF16, F32", "TF32"}},
        {{"sdpa", {{"num_heads", "0"}}, {{0}}}, {"num_heads", "a whole number", "0"}},
        {{"sdpa", {{"num_heads", "1e300"}}, {{0}}}, {"num_heads", "a whole number", "1e+300"}},
        {{"sdpa", {{"window_right", "1e300"}}, {{0}}}, {"window_right", "a whole number", "1e+300"}},
        {{"sdpa", {{"rope", "half_split"}, {"rope_dim", "-2"}}, {{0}}}, {"rope_dim", "from 0", "-2"}},
        {{"sdpa", {{"alibi", "1"}}, {{0}}}, {"alibi_slopes", "alibi is 1", "found none"}},
        {{"sdpa", {{"alibi", "0"}}, {{"alibi_slopes", MHA_F32, 1, {2}, 0}}},
         {"alibi_slopes", "alibi is 0", "found one"}},
        {{"sdpa", {{"attn_mask_kind", "none"}}, {{"attn_mask", MHA_F32, 2, {2, 2}, 0}}},
         {"attn_mask", "is none", "found one"}},
        {{"sdpa", {{"attn_mask_kind", "bool_true_keeps"}}, {{"attn_mask", MHA_F32, 2, {2, 2}, 0}}},
         {"attn_mask", "expected BOOL, as metadata attn_mask_kind is bool_true_keeps", "found F32"}},
        {{"sdpa", {{"attn_mask_kind", "additive"}}, {{"attn_mask", MHA_BOOL, 2, {2, 2}, 0}}},
         {"attn_mask", "expected F32, as metadata attn_mask_kind is additive", "found BOOL"}},
        {{"mha", {{NULL}}, {{"packed.qkv", MHA_F32, 3, {1, 2, 12}, 0}}}, {"packed.qkv", "kind sdpa", "found kind mha"}},
        {{"sdpa", {{NULL}}, {{"packed.qkv", MHA_F32, 3, {1, 2, 11}, 0}}}, {"packed.qkv", "(1, 2, 12)", "(1, 2, 11)"}},
        {{"sdpa",
          {{NULL}},
          {{"packed.qkv", MHA_F32, 3, {1, 2, 12}, 0},
           {"key", MHA_F32, 3, {1, 3, 4}, 0},
           {"value", MHA_F32, 3, {1, 3, 4}, 0}}},
         {"packed.qkv", "T_q = T_k", "T_k 3"}},
        {{"mha",
          {{NULL}},
          {{"prefill.query", MHA_F32, 3, {1, 2, 4}, 0},
           {"key", MHA_F32, 3, {1, 3, 4}, 0},
           {"value", MHA_F32, 3, {1, 3, 4}, 0}}},
         {"prefill.query", "T_q = T_k", "T_k 3"}},
        {{"mha", {{NULL}}, {{"expected64.prefill_output", MHA_F64, 3, {1, 2, 4}, 0}}},
         {"prefill_output", "prefill.query", "missing"}},
        {{"sdpa", {{NULL}}, {{"expected.output", MHA_F32, 2, {2, 4}, 0}}}, {"expected.output", "(1, 2, 4)", "(2, 4)"}},
        {{"sdpa", {{NULL}}, {{"expected.output", MHA_F32, 3, {1, 2, 5}, 0}}},
         {"expected.output", "(1, 2, 4)", "(1, 2, 5)"}},
        {{"sdpa", {{NULL}}, {{"expected64.qk", MHA_F64, 4, {1, 2, 2, 2}, 0}}}, {"qk_mode", "missing", ""}},
        {{"sdpa", {{NULL}}, {{"sin_cache", MHA_F32, 2, {2, 1}, 0}}},
         {"rope_cos: expected one with sin_cache", "found none", ""}},
        {{"sdpa", {{NULL}}, {{"query", MHA_F32, 1, {4}, 0}}}, {"query", "rank", "found 1"}},
        {{"mha", {{"num_heads", NULL}}, {{0}}},
         {"num_heads: expected 1, 2 or 4", "W_q, W_k and W_v are 4 wide", "found none"}},
        {{"mha", {{"num_heads", "3"}}, {{0}}}, {"num_heads: expected 1, 2 or 4", "4 wide", "found 3"}},
        {{"mha", {{"kv_heads", "1"}}, {{0}}}, {"kv_heads: expected 2", "W_k is 4 wide and one head 2", "found 1"}},
        {{"sdpa", {{"num_heads", NULL}}, {{"key", MHA_F32, 3, {1, 2, 6}, 0}, {"value", MHA_F32, 3, {1, 2, 6}, 0}}},
         {"num_heads: expected widths that heads can share", "query is 4 wide, key 6, value 6", "found none"}},
        {{"sdpa",
          {{"layout", "BHTD"}, {"num_heads", NULL}},
          {{"query", MHA_F32, 4, {1, 2, 2, 4}, 0},
           {"key", MHA_F32, 4, {1, 2, 2, 3}, 0},
           {"value", MHA_F32, 4, {1, 2, 2, 3}, 0}}},
         {"key: expected heads as wide as those of query", "which are 4", "found 3"}},
        {{"sdpa", {{"num_heads", NULL}, {"kv_heads", "3"}}, {{0}}},
         {"num_heads: expected 1, 2 or 4, as query, key and value are 4 wide, found none", "", ""}},
        {{"sdpa", {{"num_heads", NULL}, {"kv_heads", "2"}}, {{"key", MHA_F32, 3, {1, 2, 2}, 0}}},
         {"num_heads: expected 4, as query is 4 wide, key 2, value 4 and kv_heads is 2, found none", "", ""}},
        {{"sdpa", {{"num_heads", "4"}}, {{"value", MHA_F32, 3, {1, 2, 6}, 0}}},
         {"num_heads: expected 1 or 2, as query is 4 wide, key 4, value 6, found 4", "", ""}},
        {{"sdpa",
          {{"num_heads", NULL}},
          {{"query", MHA_F32, 3, {1, 2, 120}, 0},
           {"key", MHA_F32, 3, {1, 2, 120}, 0},
           {"value", MHA_F32, 3, {1, 2, 120}, 0}}},
         {"num_heads: expected 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, ..., as", "120 wide", "found none"}},
        {{"sdpa", {{NULL}}, {{"query", MHA_F32, 3, {1, 2, 0}, 0}}}, {"query is 0 wide, key 4", "found 2", ""}},
        {{"sdpa",
          {{"layout", "BTHD"}},
          {{"query", MHA_F32, 4, {1, 2, 2, 2}, 0},
           {"key", MHA_F32, 4, {1, 2, 0, 2}, 0},
           {"value", MHA_F32, 4, {1, 2, 0, 2}, 0}}},
         {"num_heads: expected widths that heads can share", "query is 4 wide, key 0", "found 2"}},
        {{"sdpa",
          {{"layout", "BTHD"}, {"num_heads", "3"}},
          {{"query", MHA_F32, 4, {1, 2, 3, 2}, 0},
           {"key", MHA_F32, 4, {1, 2, 2, 2}, 0},
           {"value", MHA_F32, 4, {1, 2, 2, 2}, 0}}},
         {"kv_heads: expected a divisor of num_heads 3, found 2", "", ""}},
        {{"sdpa", {{NULL}}, {{"key", MHA_F32, 2, {2, 4}, 0}}},
         {"key: expected rank 3 in layout BTE", "(2, 4)", ": rank 2 is layout TE"}},
        {{"sdpa", {{NULL}}, {{"query", MHA_F32, 4, {1, 2, 3, 4}, 0}}},
         {"expected rank 3 in layout BTE (the file states none), ", "(1, 2, 3, 4)", ": rank 4 is layout BHTD or BTHD"}},
        {{"sdpa", {{"layout", "BTHD"}}, {{0}}},
         {"expected rank 4 in layout BTHD, found", "", ": rank 3 is layout BTE"}},
        {{"mha", {{NULL}}, {{"query", MHA_F32, 4, {1, 2, 3, 4}, 0}}},
         {"expected rank 3 in layout BTE", "(1, 2, 3, 4)", ""}},
        {{"sdpa", {{NULL}}, {{"value", MHA_F32, 2, {2, 4}, 0}}}, {"value: expected rank 3", "(2, 4)", ""}},
        {{"sdpa", {{NULL}}, {{"key", MHA_F32, 3, {2, 2, 4}, 0}}}, {"key: ", "batches 1, 2, 1", "lengths 2, 2"}},
        {{"sdpa", {{NULL}}, {{"value", MHA_F32, 3, {2, 2, 4}, 0}}}, {"key: ", "batches 1, 1, 2", "lengths 2, 2"}},
        {{"sdpa", {{NULL}}, {{"value", MHA_F32, 3, {1, 3, 4}, 0}}}, {"key: ", "batches 1, 1, 1", "lengths 2, 3"}},
        {{"sdpa", {{"d_v", "x"}}, {{0}}}, {"d_v: ", "expected a number", "x"}},
        {{"mha", {{NULL}}, {{"W_q", MHA_F32, 2, {0, 4}, 0}}}, {"W_q: ", "a matrix", "(0, 4)"}},
        {{"mha", {{NULL}}, {{"W_q", MHA_F32, 2, {4, 0}, 0}}}, {"W_q: ", "a matrix", "(4, 0)"}},
        {{"mha", {{NULL}}, {{"W_Q", MHA_F32, 2, {4, 4}, 0}}}, {"W_q and W_Q", "one word", ""}},
        {{"sdpa", {{NULL}}, {{"output", MHA_F32, 3, {1, 2, 4}, 0}}}, {"expected.output and output", "one word", ""}},
        {{"sdpa", {{NULL}}, {{"attn_mask", MHA_BOOL, 2, {2, 2}, 0}}},
         {"mask_kind: expected keeps or hides, whether true in attn_mask", "keeps", "hides"}},
        {{"sdpa", {{"scale", "1e999"}}, {{0}}}, {"scale: ", "that a double can hold", "1e999"}},
        {{"sdpa", {{"scale", "-1e999"}}, {{0}}}, {"scale: ", "that a double can hold", "-1e999"}},
        {{"sdpa", {{"softcap", "1e-400"}}, {{0}}}, {"softcap: ", "that a double can hold", "1e-400"}},
        {{"sdpa", {{"causal", "truest"}}, {{0}}}, {"causal: ", "0, 1, false or true", "truest"}},
        {{"sdpa", {{"causal", "truthful"}}, {{0}}}, {"causal: ", "0, 1, false or true", "truthful"}},
        {{"sdpa", {{"chunk", ""}}, {{0}}}, {"chunk: ", "expected a number", ""}},
        {{"sdpa", {{"chunk", "-1"}}, {{0}}}, {"chunk: ", "a whole number from 0", "-1"}},
        {{"sdpa", {{NULL}}, {{"mask", MHA_F32, 0, {0}, 0}}}, {"mask: ", "expected an array", "without extents"}},
        {{"sdpa", {{NULL}}, {{"mask", MHA_F32, 2, {2, 2}, 0}, {"attn_mask", MHA_F32, 2, {2, 2}, 0}}},
         {"mask and attn_mask", "one word", ""}},
        {{"rope", {{NULL}}, {{"position_ids", MHA_F32, 2, {1, 2}, 0}}}, {"rope_q_positions", "I64", "F32"}},
        {{"rope", {{NULL}}, {{"position_ids", MHA_I64, 3, {1, 1, 2}, 0}}}, {"rope_q_positions", "rank 2", "rank 3"}},
        {{"rope", {{NULL}}, {{"rope_cos", MHA_I64, 2, {2, 1}, 0}, {"rope_sin", MHA_F32, 2, {2, 1}, 0}}},
         {"rope_cos", "F32 or F64", "I64"}},
        {{"sdpa", {{"n_sequences", "3"}}, {{"cu_seqlens_q", MHA_I64, 1, {3}, 0}}},
         {"cu_seqlens_q", "n_sequences + 1 = 4", "found 3"}},
        {{"mha", {{NULL}}, {{"W_q", MHA_F32, -1, {0}, 0}, {"torch.in_proj_weight", MHA_F32, 2, {11, 4}, 0}}},
         {"torch.in_proj_weight: ", "the rows of q, k and v, as many of each", "found 11"}},
        {{"sdpa", {{"kind", NULL}}, {{"query", MHA_F32, -1, {0}, 0}}},
         {"made.safetensors: expected a case file", "it has no tensor query", "mha help case"}},
        {{"sdpa", {{"kind", NULL}}, {{"query", MHA_F32, -1, {0}, 0}, {"x", MHA_F32, 3, {1, 2, 4}, 0}}},
         {"made.safetensors: expected a case file", "unknown tensor x; did you mean query?", "my."}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mha_case *c = NULL;
        mha_error error = {0};
        assert_refused(mha_case_open(write_made(&rows[i].file), NULL, &c, &error), MHA_INVALID, error,
                       rows[i].texts[0], rows[i].texts[1], rows[i].texts[2]);
    }
}

/* ---------------------------------------------------------------- checked all the same */

/* All zeros give zeros, or NaN where nobody is seen: what is expected decides. */
static void unusual_cases_are_checked(void **state)
{
    (void)state;
    static const struct {
        made file;
        mha_outcome outcome;
        const char *reason;
    } rows[] = {
        {{"mha", {{NULL}}, {{0}}}, MHA_OUTCOME_PASSED, ""},
        {{"rope", {{NULL}}, {{0}}}, MHA_OUTCOME_PASSED, ""},
        {{"sdpa", {{"window_left", "0"}, {"window_right", "-1"}}, {{0}}}, MHA_OUTCOME_PASSED, ""},
        {{"sdpa", {{"fully_masked", "nan"}}, {{"kv_lengths", MHA_I32, 1, {1}, 1}}}, MHA_OUTCOME_PASSED, ""},
        {{"sdpa", {{"fully_masked", "nan"}}, {{"kv_lengths", MHA_I32, 1, {1}, 0}}}, MHA_OUTCOME_FAILED, "exact nan"},
        {{"sdpa", {{"fully_masked", "none"}}, {{"kv_lengths", MHA_I64, 1, {1}, 0}}}, MHA_OUTCOME_FAILED, "exact nan"},
        {{"sdpa",
          {{"layout", "TE"}, {"key_padding_mask_kind", "bool_true_keeps"}, {"fully_masked", "nan"}},
          {{"query", MHA_F32, 2, {2, 4}, 0},
           {"key", MHA_F32, 2, {2, 4}, 0},
           {"value", MHA_F32, 2, {2, 4}, 0},
           {"expected.output", MHA_F32, 2, {2, 4}, 0}}},
         MHA_OUTCOME_FAILED,
         "mask kind without its mask"},
        {{"sdpa", {{"rope", "half_split"}}, {{"position_ids", MHA_I64, 1, {2}, 3}}}, MHA_OUTCOME_PASSED, ""},
        {{"mha", {{"rtol", NULL}, {"atol", NULL}}, {{0}}}, MHA_OUTCOME_PASSED, ""},
        {{"rope", {{"rtol", NULL}, {"atol", NULL}}, {{0}}}, MHA_OUTCOME_PASSED, ""},
        {{"sdpa", {{"rtol", NULL}}, {{0}}}, MHA_OUTCOME_PASSED, ""},
        {{"sdpa", {{"key_padding_mask_kind", "bool_true_masks"}}, {{"key_padding_mask", MHA_BOOL, 1, {2}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"sdpa",
          {{"key_padding_mask_kind", "bool_true_masks"}, {"mask_filter_value", "-1e4"}},
          {{"key_padding_mask", MHA_BOOL, 1, {2}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"sdpa", {{"mask_filter_value", "-1e4"}}, {{0}}}, MHA_OUTCOME_PASSED, ""},
        {{"sdpa",
          {{"key_padding_mask_kind", "additive"}, {"mask_filter_value", "-1e4"}},
          {{"key_padding_mask", MHA_F32, 2, {1, 2}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"rope", {{NULL}}, {{"position_offset", MHA_I64, 1, {1}, 3}}}, MHA_OUTCOME_PASSED, ""},
        {{"sdpa",
          {{"scale", "1e300"}, {"rtol64", "0"}, {"atol64", "1e-6"}},
          {{"expected64.output", MHA_F64, 3, {1, 2, 4}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"sdpa",
          {{"scale", "1e300"}, {"rtol", NULL}, {"atol", NULL}},
          {{"expected64.output", MHA_F64, 3, {1, 2, 4}, 0}}},
         MHA_OUTCOME_SKIPPED,
         "expected atol, because mha derives none where float32 cannot run: expected a number that float can "
         "hold"},
        {{"sdpa", {{"rtol", NULL}, {"atol", NULL}, {"qk_mode", "0"}}, {{"expected64.qk", MHA_F64, 4, {1, 2, 2, 2}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"sdpa",
          {{"rtol", NULL}, {"atol", NULL}, {"qk_mode", "2"}},
          {{"expected.qk", MHA_F32, 4, {1, 2, 2, 2}, 0}, {"expected64.scores", MHA_F64, 4, {1, 2, 2, 2}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"mha",
          {{"rtol", NULL}, {"atol", NULL}},
          {{"prefill.query", MHA_F32, 3, {1, 2, 4}, 0}, {"expected64.prefill_output", MHA_F64, 3, {1, 2, 4}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"mha",
          {{"rtol", NULL}, {"atol", NULL}},
          {{"prefill.query", MHA_F32, 3, {1, 2, 4}, 0},
           {"expected.prefill_output", MHA_F32, 3, {1, 2, 4}, 0},
           {"expected.output", MHA_F32, -1, {0}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"sdpa",
          {{NULL}},
          {{"expected64.output", MHA_F64, 3, {1, 2, 4}, 0}, {"expected.output", MHA_F32, -1, {0}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"sdpa",
          {{"layout", "TE"}},
          {{"query", MHA_F32, 2, {2, 4}, 0},
           {"key", MHA_F32, 2, {2, 4}, 0},
           {"value", MHA_F32, 2, {2, 4}, 0},
           {"expected.output", MHA_F32, 2, {2, 4}, 0},
           {"expected.scores", MHA_F32, 4, {1, 2, 2, 2}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"sdpa",
          {{"layout", "TE"}},
          {{"query", MHA_F32, 2, {2, 4}, 0},
           {"key", MHA_F32, 2, {2, 4}, 0},
           {"value", MHA_F32, 2, {2, 4}, 0},
           {"expected.output", MHA_F32, 2, {2, 4}, 0},
           {"expected.scores", MHA_F32, 3, {2, 2, 2}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"sdpa", {{"add_zero_attn", "1"}, {"qk_mode", "0"}}, {{"expected.qk", MHA_F32, 4, {1, 2, 2, 2}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"sdpa", {{"fully_masked", "nan"}}, {{"kv_lengths", MHA_I64, 1, {1}, INT64_MAX}}}, MHA_OUTCOME_PASSED, ""},
        {{"sdpa", {{"fully_masked", "nan"}}, {{"kv_lengths", MHA_I64, 1, {1}, INT64_MIN}}},
         MHA_OUTCOME_FAILED,
         "exact nan"},
        {{"sdpa", {{NULL}}, {{"kv_lengths", MHA_I64, 1, {1}, -1}}}, MHA_OUTCOME_PASSED, ""},
        {{"sdpa", {{"atol", NULL}}, {{0}}}, MHA_OUTCOME_PASSED, ""},
        {{"sdpa", {{"tags", "overflowing,no_overflow"}}, {{0}}}, MHA_OUTCOME_PASSED, ""},
        {{"sdpa", {{"atol.expected.output", "0"}, {"atol.expected64.output", "0"}}, {{0}}}, MHA_OUTCOME_PASSED, ""},
        {{"sdpa", {{"atol.output", "0"}}, {{0}}}, MHA_OUTCOME_SKIPPED, "unknown metadata key atol.output"},
        {{"sdpa", {{"atol.expected.nothing", "0"}, {"future", "1"}}, {{0}}},
         MHA_OUTCOME_SKIPPED,
         "unknown metadata key atol.expected.nothing"},
        {{"sdpa", {{NULL}}, {{"expected_fast.output", MHA_F32, 3, {1, 2, 4}, 0}}}, MHA_OUTCOME_PASSED, ""},
        {{"sdpa", {{NULL}}, {{"expected_fast.nothing", MHA_F32, 3, {1, 2, 4}, 0}, {"future", MHA_F32, 1, {1}, 0}}},
         MHA_OUTCOME_SKIPPED,
         "unknown tensor expected_fast.nothing"},
        {{"sdpa", {{"future", "1"}}, {{"future", MHA_F32, 1, {1}, 0}}},
         MHA_OUTCOME_SKIPPED,
         "unknown metadata key future"},
        {{"sdpa", {{"kind", NULL}}, {{0}}}, MHA_OUTCOME_PASSED, ""},
        {{"mha", {{"kind", NULL}}, {{0}}}, MHA_OUTCOME_PASSED, ""},
        {{"mha", {{NULL}}, {{"key", MHA_F32, -1, {0}, 0}, {"value", MHA_F32, -1, {0}, 0}}}, MHA_OUTCOME_PASSED, ""},
        {{"sdpa", {{NULL}}, {{"value", MHA_F32, -1, {0}, 0}}}, MHA_OUTCOME_PASSED, ""},
        {{"mha", {{NULL}}, {{"W_q", MHA_F32, -1, {0}, 0}, {"W_Q", MHA_F32, 2, {4, 4}, 0}, {"b_O", MHA_F32, 1, {4}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"sdpa", {{NULL}}, {{"expected.output", MHA_F32, -1, {0}, 0}, {"output", MHA_F32, 3, {1, 2, 4}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"sdpa",
          {{"atol.expected.output", "0"}},
          {{"expected.output", MHA_F32, -1, {0}, 0}, {"output", MHA_F64, 3, {1, 2, 4}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"sdpa", {{"causal", "True"}, {"add_zero_attn", "FALSE"}, {"softmax_plus_one", "false"}}, {{0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"sdpa",
          {{"my.author", "1"}, {"my_seed", "2"}},
          {{"my.debug", MHA_BOOL, 1, {3}, 0}, {"my_debug", MHA_F32, 1, {3}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"sdpa", {{"mystery", "1"}}, {{0}}}, MHA_OUTCOME_SKIPPED, "unknown metadata key mystery"},
        {{"sdpa", {{NULL}}, {{"attn_mask", MHA_F32, 2, {2, 2}, 0}, {"key_padding_mask", MHA_F32, 1, {2}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"sdpa", {{NULL}}, {{"key", MHA_F32, 3, {1, 2, 2}, 0}, {"value", MHA_F32, 3, {1, 2, 2}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"sdpa", {{NULL}}, {{"q", MHA_F32, 3, {1, 2, 4}, 0}}},
         MHA_OUTCOME_SKIPPED,
         "unknown tensor q; did you mean query?"},
        {{"sdpa", {{NULL}}, {{"num_heads", MHA_I64, 0, {0}, 2}}},
         MHA_OUTCOME_SKIPPED,
         "unknown tensor num_heads: that is a metadata key"},
        {{"mha",
          {{"kind", NULL}},
          {{"W_q", MHA_F32, -1, {0}, 0},
           {"W_k", MHA_F32, -1, {0}, 0},
           {"W_v", MHA_F32, -1, {0}, 0},
           {"torch.in_proj_weight", MHA_F32, 2, {12, 4}, 0},
           {"W_o", MHA_F32, -1, {0}, 0},
           {"torch.out_proj.weight", MHA_F32, 2, {4, 4}, 0}}},
         MHA_OUTCOME_PASSED,
         ""},
        {{"rope", {{"rope_scaling", "linear"}, {"rope_factor", "4"}}, {{0}}}, MHA_OUTCOME_PASSED, ""},
        {{"sdpa", {{"offset", "1"}, {"causal", "True"}, {"chunk", "4.0"}}, {{0}}}, MHA_OUTCOME_PASSED, ""},
        {{"sdpa",
          {{"rope", "half"}},
          {{"rope_q_positions", MHA_I64, 2, {1, 2}, 3}, {"rope_k_positions", MHA_I64, 1, {2}, 3}}},
         MHA_OUTCOME_PASSED,
         ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *path = write_made(&rows[i].file);
        mha_case *c = NULL;
        mha_error error = {0};
        if (i == 6) { /* the switch says there is a mask */
            assert_refused(mha_case_open(path, NULL, &c, &error), MHA_INVALID, error, "key_padding_mask", "found none");
            continue;
        }
        mha_verdict v = check(path, MHA_PATH_EXACT, NULL);
        if (v.outcome != rows[i].outcome || !strstr(v.reason, rows[i].reason))
            fail_msg("row %zu: %s: %s", i, mha_outcome_name(v.outcome), v.reason);
        mha_verdict_clear(&v);
        assert_true(check_with_failing_memory(path, MHA_PATH_EXACT, rows[i].outcome) > 1);
    }
}

/* Which bugs have a meaning for the case. */
static bool applies(const mha_case *c, const char *bug)
{
    double numbers[8];
    mha_error error = {0};
    mha_view to = mha_view_heads(numbers, MHA_F64, MHA_BHTD, 1, 2, 2, 2);
    mha_status status = mha_case_with_bugs(c, &bug, 1, MHA_STAGE_OUTPUT, &to, &error);
    if (status != MHA_OK)
        assert_refused(status, MHA_UNSUPPORTED, error, bug, "that applies");
    return status == MHA_OK;
}

/* A rotation without attention has no scores, no weights, no heads to merge. */
static void a_rotation_has_few_bugs(void **state)
{
    (void)state;
    static const char *const there[] = {"inputs-bf16-cut",
                                        "inputs-f16",    "inputs-bf16",  "split-interleaved", "split-untransposed",
                                        "rope-missing",  "rope-pairing", "rope-inverse",      "rope-from-1",
                                        "rope-base-5e5", "rope-base-1e6", "rope-reversed",    "rope-sin-cos",
                                        "rope-theta-d-model", "rope-adds", "rope-first-overwritten",
                                        "rope-second-overwritten"};
    mha_case *c;
    mha_error error;
    assert_ok(mha_case_open(write_made(&(made){"rope", {{NULL}}, {{0}}}), NULL, &c, &error), error);
    for (size_t i = 0; i < mha_bug_count(); i++) {
        const char *name = mha_bug_at(i)->name;
        bool expected = false;
        for (size_t k = 0; k < sizeof there / sizeof *there; k++)
            expected |= strcmp(name, there[k]) == 0;
        if (applies(c, name) != expected)
            fail_msg("%s: expected that it %s", name, expected ? "applies" : "does not apply");
    }
    mha_case_close(c);
}

/* Positions may be taken for their neighbours where the tables have rows for those. */
static void bugs_stay_inside_the_tables(void **state)
{
    (void)state;
    static const struct {
        size_t rows;    /* of the tables; 0: one for each row of the input */
        bool positions; /* all of them the first */
        bool ahead, behind;
    } rows[] = {{2, false, false, true},
                {3, false, true, true},
                {2, true, true, false},
                {1, true, false, false},
                {0, false, false, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int rank = rows[i].rows ? 2 : 3;
        const size_t n = rows[i].rows;
        const made file = {"sdpa",
                           {{"rope", "half_split"}},
                           {{"cos_cache", MHA_F32, rank, {n ? n : 1, n ? 1 : 2, 1}, 0},
                            {"sin_cache", MHA_F32, rank, {n ? n : 1, n ? 1 : 2, 1}, 0},
                            {rows[i].positions ? "position_ids" : NULL, MHA_I64, 1, {2}, 0}}};
        mha_case *c;
        mha_error error;
        assert_ok(mha_case_open(write_made(&file), NULL, &c, &error), error);
        assert_int_equal(applies(c, "rope-query-ahead"), rows[i].ahead);
        assert_int_equal(applies(c, "rope-from-1"), rows[i].ahead);
        assert_int_equal(applies(c, "rope-query-behind"), rows[i].behind);
        mha_case_close(c);
    }
}

static void a_verdict_for_every_path_and_stage(void **state)
{
    (void)state;
    static const made with_prefill = {
        "mha",
        {{NULL}},
        {{"prefill.query", MHA_F32, 3, {1, 2, 4}, 0}, {"expected.prefill_output", MHA_F32, 3, {1, 2, 4}, 0}}};
    static const char *const stages[] = {"output", "prefill_output", "weights"};
    static const mha_outcome outcomes[] = {MHA_OUTCOME_PASSED, MHA_OUTCOME_PASSED, MHA_OUTCOME_SKIPPED};
    for (size_t i = 0; i < 3; i++) {
        mha_verdict v = check(write_made(&with_prefill), MHA_PATH_BLAS, stages[i]);
        if (v.outcome != outcomes[i])
            fail_msg("%s: %s", stages[i], v.reason);
        assert_int_equal(v.stage_count, i < 2);
        if (i == 2)
            assert_string_equal(v.reason, "no expected tensor for stage weights");
        mha_verdict_clear(&v);
    }
    mha_case *c;
    mha_error error;
    assert_ok(mha_case_open(write_made(&with_prefill), NULL, &c, &error), error);
    assert_string_equal(mha_case_kind(c), "mha");
    assert_null(mha_case_skip_reason(c));
    assert_string_equal(mha_case_name(c), "made.safetensors");
    mha_case_close(c);
    assert_ok(mha_case_open(write_made(&(made){"sdpa", {{"future", "1"}}, {{0}}}), NULL, &c, &error), error);
    assert_non_null(strstr(mha_case_skip_reason(c), "unknown metadata key future;"));
    mha_case_close(c);
    assert_ok(mha_case_open(write_made(&(made){"sdpa", {{"format_version", "2"}, {"name", ""}}, {{0}}}), NULL, &c,
                            &error),
              error);
    assert_string_equal(mha_case_skip_reason(c), "expected format_version 1, found 2");
    assert_string_equal(mha_case_name(c), "made.safetensors");
    mha_case_close(c);
    mha_case_close(NULL);
}

/* A case that cannot be checked has no call: whoever does not ask for the reason is refused, by each function. */
static void a_skipped_case_has_an_empty_call(void **state)
{
    (void)state;
    static const char *const kinds[] = {"sdpa", "mha", "rope"};
    for (size_t i = 0; i < 3; i++) {
        mha_case *c;
        mha_error error;
        mha_plan plan;
        mha_view rows[2];
        mha_diagnosis d;
        mha_power p;
        double x[64];
        const mha_view result = mha_view_of(x, MHA_F64, 1, (size_t[]){64});
        const mha_criterion criterion = {.kind = MHA_CRITERION_BOUND};
        assert_ok(mha_case_open(write_made(&(made){kinds[i], {{"future", "1"}}, {{0}}}), NULL, &c, &error), error);
        assert_non_null(mha_case_skip_reason(c));
        const mha_call call = mha_case_call(c);
        assert_true(!call.query.data && !call.key.data && !call.value.data && !call.weights);
        mha_case_past(c, &rows[0], &rows[1]);
        assert_null(rows[0].data);
        assert_null(mha_case_layer(c));
        assert_refused(mha_plan_call(NULL, &call, &plan, &error), MHA_INVALID, error, "");
        assert_refused(mha_case_diagnose(c, NULL, 1, NULL, &d, &error), MHA_UNSUPPORTED, error, "future");
        assert_refused(mha_case_with_bugs(c, NULL, 0, MHA_STAGE_OUTPUT, &result, &error), MHA_UNSUPPORTED, error,
                       "future");
        assert_refused(mha_case_power(c, &criterion, 1, NULL, &p, &error), MHA_UNSUPPORTED, error, "future");
        mha_case_close(c);
    }
}

/* No queries, and no output of any: nothing that could be wrong has been compared. */
static void results_without_elements_are_not_checked(void **state)
{
    (void)state;
    const made file = {"sdpa",
                       {{NULL}},
                       {{"query", MHA_F32, 3, {1, 0, 4}, 0}, {"expected.output", MHA_F32, 3, {1, 0, 4}, 0}}};
    mha_verdict v = check(write_made(&file), MHA_PATH_AUTO, NULL);
    assert_int_equal(v.outcome, MHA_OUTCOME_SKIPPED);
    assert_string_equal(v.reason, "expected elements to compare, found none in output");
    mha_verdict_clear(&v);
}

/* Where the exact result is NaN, the failure says which input or weight is; and of a finite one it does not. */
static void a_failure_names_the_input_that_is_not_finite(void **state)
{
    (void)state;
    enum { ROWS = 4 };
    static const int64_t nan = 0x7fc000007fc00000, infinity = 0x7f8000007f800000, seven = 0x40e0000040e00000;
    const entry spoilt[ROWS] = {{"query", MHA_F32, 3, {1, 2, 4}, nan},
                                {"value", MHA_F32, 3, {1, 2, 4}, infinity},
                                {"W_v", MHA_F32, 2, {4, 4}, nan},
                                {"expected.output", MHA_F32, 3, {1, 2, 4}, seven}};
    static const char *const words[ROWS] = {"; query holds 8 NaN and 0 infinities",
                                            "; value holds 0 NaN and 8 infinities",
                                            "; W_V holds 16 NaN and 0 infinities", NULL};
    for (size_t i = 0; i < ROWS; i++) {
        const made file = {"mha", {{NULL}}, {spoilt[i]}};
        mha_verdict v = check(write_made(&file), MHA_PATH_EXACT, NULL);
        assert_int_equal(v.outcome, MHA_OUTCOME_FAILED);
        if (words[i] ? !strstr(v.reason, words[i]) : strstr(v.reason, "holds") != NULL)
            fail_msg("%s: %s", spoilt[i].name, v.reason);
        mha_verdict_clear(&v);
    }
}

/* Words that the whole of prefill.query cannot be run with: skipped, with the reason. */
static void a_prefill_without_rows_for_it_is_skipped(void **state)
{
    (void)state;
    static const entry whole = {"prefill.query", MHA_F32, 3, {1, 2, 4}, 0},
                       there = {"expected.prefill_output", MHA_F32, 3, {1, 2, 4}, 0};
    const made masked = {"mha", {{"attn_mask_kind", "additive"}}, {whole, there, {"attn_mask", MHA_F32, 2, {2, 2}, 0}}};
    const made tables = {
        "mha",
        {{"rope", "half_split"}},
        {whole, there, {"cos_cache", MHA_F32, 3, {1, 2, 1}, 0}, {"sin_cache", MHA_F32, 3, {1, 2, 1}, 0}}};
    const made *const files[] = {&masked, &tables};
    static const char *const reasons[] = {"rows of attn_mask", "rows of cos_cache"};
    for (size_t i = 0; i < 2; i++) {
        mha_verdict v = check(write_made(files[i]), MHA_PATH_EXACT, NULL);
        assert_int_equal(v.outcome, MHA_OUTCOME_SKIPPED);
        if (!strstr(v.reason, reasons[i]))
            fail_msg("%s: %s", reasons[i], v.reason);
        mha_verdict_clear(&v);
    }
}

/* The same, where a mask, a padding, lengths and a table of positions do reach: cut to the rows there are. */
static void a_prefill_takes_what_reaches(void **state)
{
    (void)state;
    static const entry whole = {"prefill.query", MHA_F32, 3, {1, 2, 4}, 0};
    const made files[] = {
        {"mha",
         {{"attn_mask_kind", "additive"}},
         {whole, {"expected.prefill_output", MHA_F32, 3, {1, 2, 4}, 0}, {"attn_mask", MHA_F32, 2, {1, 2}, 0}}},
        {"mha",
         {{"attn_mask_kind", "additive"}},
         {{"prefill.query", MHA_F32, 3, {1, 3, 4}, 0},
          {"expected.prefill_output", MHA_F32, 3, {1, 3, 4}, 0},
          {"attn_mask", MHA_F32, 2, {1, 3}, 0},
          {"past_key", MHA_F32, 4, {1, 2, 1, 2}, 0},
          {"past_value", MHA_F32, 4, {1, 2, 1, 2}, 0}}},
        {"mha",
         {{"key_padding_mask_kind", "additive"}},
         {whole, {"expected.prefill_output", MHA_F32, 3, {1, 2, 4}, 0}, {"key_padding_mask", MHA_F32, 2, {1, 2}, 0}}},
        {"mha",
         {{NULL}},
         {whole, {"expected.prefill_output", MHA_F32, 3, {1, 2, 4}, 0}, {"kv_lengths", MHA_I64, 1, {1}, 1}}},
        {"mha",
         {{"rope", "half_split"}},
         {whole,
          {"expected.prefill_output", MHA_F32, 3, {1, 2, 4}, 0},
          {"cos_cache", MHA_F32, 2, {2, 1}, 0},
          {"sin_cache", MHA_F32, 2, {2, 1}, 0}}},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        mha_verdict v = check(write_made(&files[i]), MHA_PATH_EXACT, NULL);
        if (v.outcome != MHA_OUTCOME_PASSED || v.stage_count != (i == 1 ? 3u : 2u)) /* rows from before: a stage more */
            fail_msg("file %zu: %s, %zu stages: %s", i, mha_outcome_name(v.outcome), v.stage_count, v.reason);
        mha_verdict_clear(&v);
    }
}

/* A recorded case whose tolerances are taken away: they are derived, the right numbers pass and others do not. */
static void tolerances_are_derived(void **state)
{
    (void)state;
    static const char *const files[] = {"tests/vectors/torch_self.safetensors", "tests/vectors/torch_cross.safetensors",
                                        "tests/vectors/torch_one_token.safetensors"};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
        for (int wrong = 0; wrong < 2; wrong++) {
            mha_file *file;
            mha_error error;
            static float output[4096];
            assert_ok(mha_file_open(files[f], &file, &error), error);
            const mha_file_tensor *t = mha_file_find(file, "expected.output");
            assert_true(t && t->elements <= 4096);
            mha_view view = mha_view_of(output, MHA_F32, t->rank, t->shape);
            assert_ok(mha_file_read(file, t, &view, &error), error);
            output[t->elements / 2] += wrong ? 1e-3f : 0.0f;
            const recase changes = {.drop = "expected",
                                    .tensors = {{"expected.output", view}},
                                    .metadata = {{"rtol", NULL},
                                                 {"atol", NULL},
                                                 {"rtol64", NULL},
                                                 {"atol64", NULL},
                                                 {"atol.expected.output", NULL}}};
            const char *path = scratch_path("derived.safetensors");
            recase_write(files[f], path, &changes);
            mha_file_close(file);
            mha_verdict v = check(path, MHA_PATH_BLAS, NULL);
            if ((v.outcome == MHA_OUTCOME_FAILED) != wrong)
                fail_msg("%s, wrong %d: %s %s", files[f], wrong, mha_outcome_name(v.outcome), v.reason);
            const mha_stage_verdict *row = &v.stages[v.stage_count - 1];
            assert_true(row->derived && row->rtol == 0 && row->atol > 0 && row->atol < 1e-3);
            mha_verdict_clear(&v);
        }
}

/* Two results that differ from what is computed in the same way: the merge of both counts only where both are there. */
static void half_an_overflow_is_none(void **state)
{
    (void)state;
    static const made files[] = {
        {"sdpa", {{"tags", "overflow"}}, {{0}}},
        {"sdpa",
         {{"tags", "overflow"}},
         {{"expected64.output", MHA_F64, 3, {1, 2, 4}, 0}, {"expected.output", MHA_F32, -1, {0}, 0}}},
        {"sdpa", {{"tags", "overflow"}}, {{"expected64.output", MHA_F64, 3, {1, 2, 4}, 0}}},
        {"sdpa", {{NULL}}, {{"query", MHA_F64, 3, {1, 2, 4}, 0}}}, /* made narrower for this path */
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = write_made(&files[i]);
        mha_verdict v = check(path, MHA_PATH_BLAS, NULL);
        assert_int_equal(v.outcome, MHA_OUTCOME_PASSED);
        assert_int_equal(v.stage_count, 1);
        mha_verdict_clear(&v);
        assert_true(check_with_failing_memory(path, MHA_PATH_BLAS, MHA_OUTCOME_PASSED) > 1);
    }
}

/* Records in any order of memory, and with any meaning of qk, are explained by the case itself. */
static void every_recorded_tensor_can_be_diagnosed(void **state)
{
    (void)state;
    static const struct {
        made file;
        const char *tensor, *chosen;
        mha_status status;
        const char *bug; /* NULL: the case as it says */
    } rows[] = {
        {{"rope", {{NULL}}, {{0}}}, NULL, "expected.output", MHA_OK, NULL},
        {{"mha", {{NULL}}, {{0}}}, "expected.output", "expected.output", MHA_OK, NULL},
        {{"mha", {{"layout", "TBE"}}, {{"expected.output", MHA_F32, 3, {1, 2, 4}, 0}}},
         "output",
         "expected.output",
         MHA_OK,
         NULL},
        {{"sdpa",
          {{"layout", "BHTD"}},
          {{"query", MHA_F32, 4, {1, 2, 3, 2}, 0},
           {"key", MHA_F32, 4, {1, 2, 2, 2}, 0},
           {"value", MHA_F32, 4, {1, 2, 2, 2}, 0},
           {"expected.output", MHA_F32, 4, {1, 2, 3, 2}, 0}}},
         NULL,
         "expected.output",
         MHA_OK,
         NULL},
        {{"sdpa", {{"qk_mode", "0"}}, {{"expected64.qk", MHA_F64, 4, {1, 2, 2, 2}, 0}}},
         "qk",
         "expected64.qk",
         MHA_OK,
         NULL},
        {{"sdpa",
          {{"qk_mode", "2"}},
          {{"expected.qk", MHA_F32, 4, {1, 2, 2, 2}, 0}, {"expected.output", MHA_F32, -1, {0}, 0}}},
         NULL,
         "expected.qk",
         MHA_OK,
         NULL},
        {{"sdpa", {{NULL}}, {{"query", MHA_F32, 3, {1, 0, 4}, 0}, {"expected.output", MHA_F32, 3, {1, 0, 4}, 0}}},
         NULL,
         NULL,
         MHA_UNSUPPORTED,
         NULL},
        {{"mha",
          {{NULL}},
          {{"prefill.query", MHA_F32, 3, {1, 2, 4}, 0},
           {"expected.prefill_output", MHA_F32, 3, {1, 2, 4}, 0},
           {"expected.output", MHA_F32, -1, {0}, 0}}},
         NULL,
         NULL,
         MHA_NOT_FOUND,
         NULL},
        {{"sdpa",
          {{NULL}},
          {{"cu_seqlens_q", MHA_I64, 1, {2}, 0},
           {"query", MHA_F32, 3, {1, 0, 4}, 0},
           {"key", MHA_F32, 3, {1, 0, 4}, 0},
           {"value", MHA_F32, 3, {1, 0, 4}, 0},
           {"expected.output", MHA_F32, 3, {1, 0, 4}, 0}}},
         NULL,
         NULL,
         MHA_UNSUPPORTED,
         NULL},
        {{"sdpa",
          {{"fully_masked", "nan"}},
          {{"query", MHA_F32, 3, {1, 16, 4}, 0},
           {"expected.output", MHA_F32, 3, {1, 16, 4}, 0},
           {"kv_lengths", MHA_I64, 1, {1}, 0}}},
         NULL,
         "expected.output",
         MHA_OK,
         "lengths-missing"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mha_case *c;
        mha_diagnosis d;
        mha_error error = {0};
        assert_ok(mha_case_open(write_made(&rows[i].file), NULL, &c, &error), error);
        mha_status status = mha_case_diagnose(c, rows[i].tensor, 0, NULL, &d, &error);
        if (status != rows[i].status)
            fail_msg("row %zu: %s", i, error.message);
        if (!status) {
            assert_string_equal(d.tensor, rows[i].chosen);
            bool found = false;
            for (size_t k = 0; k < d.match_count; k++) {
                const mha_bug_match *e = &d.matches[k];
                found |=
                    e->exact && (rows[i].bug ? e->count == 1 && strcmp(e->bugs[0], rows[i].bug) == 0 : e->count == 0);
            }
            if (!found)
                fail_msg("row %zu: %zu matches, none of them %s", i, d.match_count,
                         rows[i].bug ? rows[i].bug : "the case");
            mha_diagnosis_clear(&d);
        }
        mha_case_close(c);
    }
}

/* Where float32 may overflow nothing is promised: the derived tolerance is infinite, from the scores on. */
static void a_tolerance_beyond_float32_is_infinite(void **state)
{
    (void)state;
    const char *from = "tests/vectors/torch_self.safetensors";
    for (int huge = 0; huge < 2; huge++) {
        mha_file *file;
        mha_error error;
        static float query[4096];
        assert_ok(mha_file_open(from, &file, &error), error);
        const mha_file_tensor *t = mha_file_find(file, "query");
        assert_true(t && t->elements <= 4096);
        mha_view view = mha_view_of(query, MHA_F32, t->rank, t->shape);
        assert_ok(mha_file_read(file, t, &view, &error), error);
        for (size_t i = 0; i < t->elements; i++)
            query[i] *= huge ? 1e30f : 1e3f;
        const recase changes = {
            .tensors = {{"query", view}, {"key", view}},
            .metadata = {
                {"rtol", NULL}, {"atol", NULL}, {"rtol64", NULL}, {"atol64", NULL}, {"atol.expected.output", NULL}}};
        const char *path = scratch_path("huge.safetensors");
        recase_write(from, path, &changes);
        mha_file_close(file);
        mha_verdict v = check(path, MHA_PATH_BLAS, "output");
        assert_int_equal(v.stage_count, 1);
        assert_true(v.stages[0].derived);
        assert_int_equal(isinf(v.stages[0].atol) != 0, huge);
        mha_verdict_clear(&v);
    }
}

/* Explaining a tensor with memory that ends: an error, and no leak. */
static void diagnosing_survives_every_failing_allocation(void **state)
{
    (void)state;
    static const made files[] = {
        {"sdpa",
         {{"fully_masked", "none"}, {"causal", "1"}},
         {{"kv_lengths", MHA_I64, 1, {1}, 0}, {"value", MHA_F64, 3, {1, 2, 4}, 0}}},
        {"mha", {{NULL}}, {{0}}},
    };
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        const char *path = write_made(&files[f]);
        failing memory = {0};
        const mha_allocator allocator = failing_allocator(&memory);
        mha_status status = MHA_NO_MEMORY;
        for (int what = 0; what < 2; what++)
            for (size_t n = 1; n == 1 || status != MHA_OK; n++) {
                mha_case *c;
                mha_error error = {0};
                mha_diagnosis d;
                double numbers[8];
                const char *bug = "transpose-v";
                mha_view to = f == 0 ? mha_view_heads(numbers, MHA_F64, MHA_BTHD, 1, 2, 2, 2)
                                     : mha_view_of(numbers, MHA_F64, 3, (const size_t[]){1, 2, 4});
                memory.fail_at = 0;
                assert_ok(mha_case_open(path, &allocator, &c, &error), error);
                memory.fail_at = memory.calls + n;
                status = what ? mha_case_with_bugs(c, &bug, f == 1, MHA_STAGE_OUTPUT, &to, &error)
                              : mha_case_diagnose(c, NULL, 0, NULL, &d, &error);
                if (status != MHA_OK)
                    assert_refused(status, MHA_NO_MEMORY, error, "no memory");
                else if (!what)
                    mha_diagnosis_clear(&d);
                mha_case_close(c);
                assert_int_equal(memory.live_blocks, 0);
            }
    }
}

/* The note names the pairing of the permuted weights, also when that is interleaved. */
static void a_note_names_the_other_pairing(void **state)
{
    (void)state;
    static const made file = {"mha",
                              {{"rope", "half_split"}, {"note", "permuted weights go with rope=interleaved"}},
                              {{"permuted.W_q", MHA_F32, 2, {4, 4}, 0}, {"permuted.W_k", MHA_F32, 2, {4, 4}, 0}}};
    static const made none = {"mha", {{NULL}}, {{"permuted.W_q", MHA_F32, 2, {4, 4}, 0}}};
    static const made other = {"mha", {{"rope", "half_split"}}, {{"permuted.W_q", MHA_F32, 2, {4, 4}, 0}}};
    const made *const files[] = {&file, &none, &other};
    for (size_t i = 0; i < 3; i++) {
        mha_verdict v = check(write_made(files[i]), MHA_PATH_BLAS, NULL);
        assert_int_equal(v.outcome, MHA_OUTCOME_PASSED);
        assert_string_equal(v.stages[v.stage_count - 1].name, "permuted.output");
        mha_verdict_clear(&v);
    }
}

static void keys_are_where_the_queries_are(void **state)
{
    (void)state;
    const made file = {"sdpa",
                       {{"rope", "half_split"}},
                       {{"position_ids", MHA_I64, 2, {1, 2}, 3}, {"rope_k_positions", MHA_I64, 2, {1, 2}, 4}}};
    mha_case *c;
    mha_error error;
    assert_refused(mha_case_open(write_made(&file), NULL, &c, &error), MHA_UNSUPPORTED, error, "rope_k_positions",
                   "equal positions");
}

/* ---------------------------------------------------------------- what cannot be saved or compared */

static void calls_that_no_case_can_hold(void **state)
{
    (void)state;
    mha_params *table;
    mha_layer *layer;
    mha_cache *cache;
    mha_error error;
    static float x[4 * 8], out[4 * 8];
    const mha_config config = {.d_model = 8, .n_heads = 2};
    const mha_cache_spec spec = {.batch = 1, .kv_heads = 2, .d_k = 4, .d_v = 4, .capacity = 4, .window = 2};
    assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
    assert_ok(mha_layer_create(&config, table, NULL, &layer, &error), error);
    assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
    mha_call call = {.query = mha_view_of(x, MHA_F32, 3, (const size_t[]){1, 2, 8}),
                     .cache = cache,
                     .path = MHA_PATH_BLAS,
                     .threads = 1};
    call.output = mha_view_of(out, MHA_F32, 3, (const size_t[]){1, 2, 8});
    const char *path = scratch_path("unsaved.safetensors");
    for (int step = 0; step < 3; step++) {
        run_call(layer, &call);
        if (step == 1)
            assert_refused(mha_case_save(path, layer, &call, NULL, &error), MHA_INVALID, error,
                           "rows from before the call");
    }
    assert_true(mha_cache_first(cache) > 0);
    assert_refused(mha_case_save(path, layer, &call, NULL, &error), MHA_UNSUPPORTED, error, "evicted rows");
    call.cache = NULL;
    const mha_case_notes notes = {.name = "with notes", .note = "a note", .source = "somebody"};
    assert_ok(mha_case_save(path, layer, &call, &notes, &error), error);
    mha_file *file;
    assert_ok(mha_file_open(path, &file, &error), error);
    assert_string_equal(mha_file_metadata(file, "note"), "a note");
    assert_string_equal(mha_file_metadata(file, "source"), "somebody");
    mha_file_close(file);
    static const mha_dtype no_floats[] = {MHA_I32, MHA_C64, MHA_Q8_0};
    for (size_t i = 0; i < 3; i++)
        for (int p = MHA_PATH_FAST; p < MHA_PATH_COUNT; p++) {
            mha_call odd = call;
            odd.path = (mha_path)p;
            odd.query.dtype = no_floats[i];
            assert_refused(mha_case_save(path, layer, &odd, NULL, &error), MHA_INVALID, error,
                           "query: ", mha_dtype_name(no_floats[i]));
        }
    assert_refused(mha_case_save(scratch_path("no/such.safetensors"), layer, &call, NULL, &error), MHA_IO, error,
                   "no/such");
    mha_cache_destroy(cache);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
}

static void without_data_there_is_nothing_to_compare(void **state)
{
    (void)state;
    mha_error error;
    mha_difference d;
    float x[2] = {1, 2};
    mha_view there = mha_view_of(x, MHA_F32, 1, (const size_t[]){2}), gone = there;
    gone.data = NULL;
    assert_refused(mha_compare(&there, &gone, 0, 0, &d, &error), MHA_INVALID, error, "with data");
    assert_refused(mha_compare(&gone, &there, 0, 0, &d, &error), MHA_INVALID, error, "with data");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_contradicts_itself_is_refused),
        cmocka_unit_test(unusual_cases_are_checked),
        cmocka_unit_test(keys_are_where_the_queries_are),
        cmocka_unit_test(a_rotation_has_few_bugs),
        cmocka_unit_test(bugs_stay_inside_the_tables),
        cmocka_unit_test(a_verdict_for_every_path_and_stage),
        cmocka_unit_test(results_without_elements_are_not_checked),
        cmocka_unit_test(a_failure_names_the_input_that_is_not_finite),
        cmocka_unit_test(a_skipped_case_has_an_empty_call),
        cmocka_unit_test(a_prefill_without_rows_for_it_is_skipped),
        cmocka_unit_test(a_prefill_takes_what_reaches),
        cmocka_unit_test(tolerances_are_derived),
        cmocka_unit_test(half_an_overflow_is_none),
        cmocka_unit_test(every_recorded_tensor_can_be_diagnosed),
        cmocka_unit_test(a_tolerance_beyond_float32_is_infinite),
        cmocka_unit_test(diagnosing_survives_every_failing_allocation),
        cmocka_unit_test(a_note_names_the_other_pairing),
        cmocka_unit_test(calls_that_no_case_can_hold),
        cmocka_unit_test(without_data_there_is_nothing_to_compare),
    };
    return cmocka_run_group_tests_name("verify_cases", tests, NULL, NULL);
}
