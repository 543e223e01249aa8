/* The meaning of each known bug, as recorded in tests/verify/programs.txt: the program that its row makes of fixed
 * cases. The oracle and the engine compute these programs (test_diagnose_planted). */
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mha/lab.h"
#include "mha/setting.h"
#include "support/page.h"
#include "support/scratch.h"
#include "verify/bugs/bugs.h"

static const char *const sites[] = {
    "CALL",   "X",       "W",           "W_Q",       "W_K",           "W_V",          "W_O",        "PROJ",
    "LATENT", "B_Q",     "B_K",         "B_V",       "B_O",           "BIAS",         "Y",          "H",
    "ROW",    "NORM",    "NORM_WEIGHT", "NORM_BIAS", "CLIP",          "POS",          "POS_ROW",    "POS_Q",
    "POS_K",  "ANGLE",   "SIN",         "SECTIONS",  "POSITION",      "PAIR",         "TURN",       "TURN_V",
    "QSCALE", "LOG_N",   "A",           "PAGE",      "PAST",          "NEW",          "JOINED",     "EXTRA",
    "KV_K",   "KV_V",    "KV",          "PLACE",     "CAUSAL",        "CAUSAL_BLOCK", "CAUSAL_ROW", "WINDOW",
    "CHUNK",  "LENGTHS", "KEYS",        "PADDING",   "QUERY_PADDING", "MASK",         "SEGMENTS",   "LISTS",
    "ALIBI",  "SLOPES",  "TABLE",       "RELATIVE",  "COUNT",         "RULES",        "S",          "CAP",
    "Z",      "E",       "TILE",        "SIGMOID",   "SINK",          "LSE",          "P",          "O",
    "M",      "COLUMN",  "GATE",        "OUT"};
static const char *const ops[] = {"FROM", "TAKE",  "TIMES", "PLUS", "ZERO", "KEEP", "ROUND", "BITS", "QUANT",
                                  "FILL", "LIMIT", "POWER", "DO",   "MOVE", "FN",   "OVER",  "NOT",  "EITHER"};
static const char *const maps[] = {"shift",          "first",          "reversed",       "block before",  "first block",
                                   "start of block", "group",          "first of group", "last of group", "remainder",
                                   "groups inside",  "groups outside", "halves",         "pairs",         "to pairs",
                                   "to halves",      "last",           "held",           "repeated",      "shifted",
                                   "table",          "origin",         "view",           "one late",      "width"};

/* ---------------------------------------------------------------- fixed cases */

enum { LAYER, HEADS, LATENTS, SIGMOID, FEW, RAGGED, PLAIN, CASES, B = 2, T = 8, D = 8, MOST = 1 << 14 };

static int64_t numbers[64];
static const uint8_t segments[B * T] = {0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1};

static mha_view view(int rank, size_t a, size_t b, size_t c, size_t d)
{
    return mha_view_of(numbers, MHA_U8, rank, (const size_t[]){a, b, c, d});
}

/* A case of which only what rows of the lists look at is there; numbers of its arrays are 0. */
static mha_case fixed(int which)
{
    mha_case c = {.kind = which == LAYER || which == LATENTS || which == PLAIN ? CASE_MHA : CASE_SDPA,
                  .B = B,
                  .T_q = T,
                  .T_k = T,
                  .H = 6,
                  .H_kv = which == HEADS || which == LATENTS ? 6 : 3,
                  .d_k = D,
                  .d_v = D};
    mha_semantics *s = &c.semantics;
    mha_visible *v = &s->visible;
    mha_view *w = c.weights[CASE_RECORDED];
    c.E_q = c.E_k = c.E_v = c.E_out = c.H * D;
    if (which == FEW)
        v->kv_lengths = numbers, v->causal = 1, v->chunk = 5, w[MHA_B_Q] = view(1, c.H * D, 1, 1, 1);
    if (which == RAGGED)
        s->place.n_sequences = 2, s->place.cu_seqlens_q = numbers, v->has_window_left = 1, v->window_left = 3;
    if (which == HEADS || which == FEW || which == RAGGED || which == PLAIN)
        return c;
    for (int i = 0; i < MHA_WEIGHT_COUNT; i++)
        w[i] = view(2, c.H * D, c.H * D, 1, 1);
    w[MHA_Q_NORM] = w[MHA_K_NORM] = view(2, c.H, D, 1, 1), w[MHA_BIAS_TABLE] = view(2, 4, 6, 1, 1);
    w[MHA_RELATIVE_K] = w[MHA_RELATIVE_Q] = view(2, 9, c.H * D, 1, 1);
    if (which == SIGMOID)
        memset(w, 0, sizeof c.weights[CASE_RECORDED]), w[MHA_BIAS_TABLE] = view(2, 9, 6, 1, 1);
    c.P = which == SIGMOID ? 0 : 4;
    s->place = (mha_place){.has_key_offset = c.P > 0, .key_offset = c.P > 0 ? 3 : 0};
    s->place.position_offset = which == LAYER ? numbers : NULL;
    s->qkv = (mha_qkv){.rope = {MHA_ROPE_HALF_SPLIT, .dim = 4, .base = 500, .attention_factor = 1.5},
                       .clip_qkv = which == LATENTS ? 0 : 2,
                       .norm_eps = 1e-3,
                       .query_scale = {0.5, 4, 1, 6},
                       .norm.after_rope = which == LATENTS,
                       .norm.plus_one = which == LATENTS,
                       .rope.frequencies = view(1, 2, 1, 1, 1)};
    s->qkv.norm.kind = which == LATENTS ? MHA_NORM_LAYER : MHA_NORM_RMS;
    *v = (mha_visible){.causal = 1,
                       .prefix = 2,
                       .has_window_left = 1,
                       .has_window_right = 1,
                       .window_left = 3,
                       .window_right = 2,
                       .window_keep = 1,
                       .chunk = 5,
                       .kv_lengths = numbers,
                       .has_padding_fill = 0};
    v->mask = (mha_mask){which == LATENTS ? MHA_MASK_ADDITIVE : MHA_MASK_HIDES, view(4, B, c.H, T, c.P + T)};
    v->key_padding = (mha_mask){MHA_MASK_KEEPS, view(2, B, c.P + T, 1, 1)};
    v->pattern = (mha_pattern){.q_segments = mha_view_of(mha__unconst(segments), MHA_U8, 2, (const size_t[]){B, T}),
                               .key_lists = view(4, B, 1, T, 3),
                               .blocks = {MHA_MASK_HIDES, view(4, B, 1, 4, 4)},
                               .block_queries = 2,
                               .block_keys = 2,
                               .query_padding = {MHA_MASK_HIDES, view(2, B, T, 1, 1)}};
    s->added.alibi_slopes = (const double *)numbers;
    s->added.bias = (mha_bias){.rule = which == SIGMOID ? MHA_BIAS_RULE_GRID : MHA_BIAS_RULE_BUCKETS,
                               .height = 2,
                               .width = 3,
                               .max_distance = 64};
    s->added.relative = (mha_relative){.rule = which == LAYER     ? MHA_RELATIVE_LOG_BUCKETS
                                               : which == LATENTS ? MHA_RELATIVE_DISTANCE
                                                                  : MHA_RELATIVE_GRID,
                                       .height = 2,
                                       .width = 3};
    s->softmax = (mha_softmax){.scale = 0.3,
                               .has_scale = 1,
                               .softcap = 4,
                               .softmax_plus_one = 1,
                               .zero_row = 1,
                               .sigmoid_bias = which == SIGMOID ? -2 : 0};
    if (which == SIGMOID)
        s->softmax.dropout_p = 0.5, s->softmax.dropout_keep = view(4, B, 1, T, 1);
    s->softmax.normaliser = which == SIGMOID ? MHA_SIGMOID : MHA_SOFTMAX;
    s->softmax.empty_rows = which == LATENTS ? MHA_EMPTY_NAN : MHA_EMPTY_ZERO;
    s->softmax.hidden_values = which == LATENTS ? MHA_HIDDEN_PROPAGATE : MHA_HIDDEN_IGNORE;
    if (which == LATENTS)
        c.q_rank = c.kv_rank = 16, c.d_rope = 4, s->place.key_offset = 0, s->place.has_key_offset = 0,
        v->key_padding.kind = MHA_MASK_HIDES, v->has_padding_fill = 1, w[MHA_BIAS_K].data = NULL;
    if (which == LAYER)
        c.tensors[CASE_KEY] = view(3, B, T, c.E_k, 1);
    if (which == LAYER)
        for (int i = CASE_PAGE_KEYS; i <= CASE_PAGE_TABLE; i++)
            c.tensors[i] = view(2, 4, 4, 1, 1);
    if (which == SIGMOID)
        s->qkv.norm.unweighted = 1, s->qkv.rope.cos_table = s->qkv.rope.sin_table = view(3, B, T, 2, 1),
        c.origin.axes = (mha_rope_axes){MHA_ROPE_AXES_BLOCKS, 2, {1, 3}};
    return c;
}

/* ---------------------------------------------------------------- as text */

/* Adds the settings that differ; of arrays whether they are gone, new, or read in another order. */
static void add_settings(bytes *page, const mha_semantics *a, const mha_semantics *b)
{
    const mha_setting *s;
    for (size_t i = 0; (s = mha_setting_at(i)) != NULL; i++) {
        const double x = mha_setting_number(s, a), y = mha_setting_number(s, b);
        const void *const *one = (const void *const *)((const char *)a + s->at),
                          *const *other = (const void *const *)((const char *)b + s->at);
        char text[100] = "";
        if (s->kind < MHA_SETTING_VIEW && (isnan(x) != isnan(y) || (!isnan(x) && x != y)))
            snprintf(text, sizeof text, " %s=%.6g", s->name, y);
        else if (s->kind == MHA_SETTING_VIEW && memcmp(one, other, sizeof(mha_view)) != 0)
            snprintf(text, sizeof text, " %s %s", s->name,
                     !((const mha_view *)other)->data                                   ? "gone"
                     : ((const mha_view *)other)->data != ((const mha_view *)one)->data ? "new"
                                                                                        : "turned");
        else if (s->kind > MHA_SETTING_VIEW && *one != *other)
            snprintf(text, sizeof text, " %s %s", s->name, *other ? "new" : "gone");
        bytes_text(page, text);
    }
}

static void add_mutation(bytes *page, const mha__mutation *m)
{
    static const char *const sides[] = {"", " q", " k", " qk", " v", " qv", " kv", " qkv"}, axes[] = "BTHC";
    char text[200];
    size_t at = (size_t)snprintf(text, sizeof text, " %s.%s", sites[m->site], ops[m->op]);
    const bool maps_index = m->op == OP_FROM && (m->step || m->axis || m->table || m->written || m->read ||
                                                 m->site == AT_KV_K || m->site == AT_KV_V || m->site == AT_Y);
    at += (size_t)snprintf(text + at, sizeof text - at, "%s", sides[m->sides & 7]);
    if (maps_index)
        at += (size_t)snprintf(text + at, sizeof text - at, " %s %c", maps[m->arg], axes[m->axis]);
    else if (m->arg)
        at += (size_t)snprintf(text + at, sizeof text - at, " %d", m->arg);
    if (m->written || m->read)
        at += (size_t)snprintf(text + at, sizeof text - at, " %02x as %02x", m->written, m->read);
    if (m->step)
        at += (size_t)snprintf(text + at, sizeof text - at, " step %lld", m->step);
    if (m->number != 0)
        at += (size_t)snprintf(text + at, sizeof text - at, " by %.6g", m->number);
    snprintf(text + at, sizeof text - at, "%s%s", m->table ? " table" : "", m->readers ? " across" : "");
    bytes_text(page, text);
}

/* The program of a bug with the first number that it takes; false: it does not apply. */
static bool apply(const mha_case *c, size_t i, double *x, mha__program *program)
{
    const mha__bug_entry *e = mha__solved_entry_at(i);
    bool applies = false;
    memset(x, 0, MOST * sizeof *x);
    if (e && e->how != SOLVE_LISTED && e->high > e->low)
        for (size_t k = 0; k < c->H; k++)
            x[k] = fmin(fmax(2, e->low), e->high);
    x[0] = e && e->how == SOLVE_UNWRITTEN ? 1 : x[0];
    if (!e || e->how != SOLVE_LISTED) {
        *program = mha__program_of(c);
        return mha__bug_apply(c, i, x, program);
    }
    for (size_t k = 0; !applies && k < 40 && e->choice(c, k, x); k++) {
        *program = mha__program_of(c);
        applies = mha__bug_apply(c, i, x, program);
    }
    return applies;
}

/* Adds an entry to the last line, or to a new one if that is full. */
static void add_entry(bytes *page, size_t *line, const bytes *entry)
{
    const bool fits = page->count + entry->count - *line <= 118;
    if (page->count > 0)
        bytes_text(page, fits ? "; " : "\n");
    *line = fits ? *line : page->count;
    bytes_add(page, entry->data, entry->count);
}

static void rows_mean_what_is_recorded(void **state)
{
    static double x[MOST];
    static mha_case cases[CASES];
    size_t line = 0;
    bytes page = {0}, entry = {0};
    (void)state;
    assert_int_equal(sizeof sites / sizeof *sites, AT_OUT + 1);
    assert_int_equal(sizeof ops / sizeof *ops, OP_EITHER + 1);
    assert_int_equal(sizeof maps / sizeof *maps, MHA__WIDTH + 1);
    for (int which = 0; which < CASES; which++)
        cases[which] = fixed(which);
    for (size_t i = 0; i < mha_bug_count(); i++) {
        mha__program program, first = {.n = 0};
        int of = -1;
        char text[100], in[CASES + 1] = "";
        for (int which = 0; which < CASES; which++)
            if (apply(&cases[which], i, x, &program)) {
                in[strlen(in)] = (char)('0' + which);
                first = of < 0 ? program : first;
                of = of < 0 ? which : of;
            }
        if (of < 0)
            fail_msg("%s applies to no fixed case", mha_bug_at(i)->name);
        snprintf(text, sizeof text, "%s (%s)", mha_bug_at(i)->name, in);
        entry.count = 0;
        bytes_text(&entry, text);
        const mha__program without = mha__program_of(&cases[of]);
        add_settings(&entry, &without.s, &first.s);
        for (size_t k = 0; k < first.n; k++)
            add_mutation(&entry, &first.m[k]);
        add_entry(&page, &line, &entry);
    }
    bytes_add(&page, "\n", 2);
    page_holds("tests/verify/programs.txt", "programs", (const char *)page.data);
    bytes_free(&page), bytes_free(&entry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_mean_what_is_recorded)};
    return cmocka_run_group_tests_name("programs", tests, NULL, NULL);
}
