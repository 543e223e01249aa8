/* Each bug of a backward, planted in one in float32 that shares nothing with src, is named. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/gradients.h"
#include "support/float_backward.h"
#include "support/trial.h"
#include "support/window.h"
#include "support/unit.h"
#include "support/wrong_results.h"

enum { MOST = 160 * 160 * 8, FOUND = 128 };
#define COUNT(x) (sizeof(x) / sizeof *(x))

/* Numbers for one call, and its gradients. */
typedef struct numbers {
    float q[MOST], k[MOST], v[MOST], dO[MOST], dlse[4096], mask[MOST], slopes[8], sinks[8], norms[2 * 64];
    float dq[MOST], dk[MOST], dv[MOST], dmask[MOST], dslopes[8], dsinks[8], dnorms[2 * 64], bias[64], dbias[64];
    float plain_q[MOST];
    bool flags[MOST], padding[MOST];
    int64_t lengths[4], segments[MOST], ends[4];
} numbers;

/* The calls that bugs are planted in: one for each thing that they need. */
typedef struct setting {
    const char *name;
    size_t B, T, S, h, h_kv, d_k, d_v;
    float scale, softcap;
    bool causal;
    int window_left;
    bool lengths, mask, slopes, sinks, rope, dlse, empty, norms, bias, flags;
    size_t offset;
    bool both, each, padding, segments, ragged; /* limits of a window; a mask for each head of each batch row */
    size_t rope_dim;
    bool sum;  /* a norm of a sum of squares */
    float eps; /* of norms; 0: 1e-5 */
} setting;

static const setting settings[] = {
    {"plain", 2, 20, 20, 2, 2, 8, 8, 0.35355338f, 0, false, -1, .lengths = false},
    {"own scale", 1, 9, 13, 2, 2, 8, 6, 0.5f, 0, false, -1, .lengths = false},
    {"grouped", 1, 12, 17, 6, 2, 8, 4, 0.35355338f, 0, false, -1, .lengths = false},
    {"causal", 2, 21, 21, 2, 1, 8, 8, 0.35355338f, 0, true, -1, .lengths = false},
    {"causal, first", 1, 12, 20, 2, 2, 8, 8, 0.35355338f, 0, true, -1, .lengths = false},
    {"causal, last", 1, 12, 20, 2, 2, 8, 8, 0.35355338f, 0, true, -1, .offset = 8},
    {"window", 1, 21, 21, 2, 2, 8, 8, 0.35355338f, 0, false, 3, .lengths = false},
    {"lengths", 2, 11, 14, 2, 2, 8, 8, 0.35355338f, 0, false, -1, .lengths = true},
    {"softcap", 1, 12, 12, 2, 2, 8, 8, 0.35355338f, 1.5f, false, -1, .lengths = false},
    {"mask", 2, 12, 15, 2, 2, 8, 8, 0.35355338f, 0, false, -1, .mask = true},
    {"alibi", 2, 12, 12, 2, 2, 8, 8, 0.35355338f, 0, true, -1, .slopes = true},
    {"sinks", 2, 12, 15, 4, 2, 8, 8, 0.35355338f, 0, false, -1, .sinks = true},
    {"lse", 1, 12, 15, 2, 2, 8, 8, 0.35355338f, 0, false, -1, .dlse = true},
    {"rope", 1, 12, 12, 2, 2, 8, 8, 0.35355338f, 0, true, -1, .rope = true},
    {"empty", 2, 9, 9, 2, 2, 8, 8, 0.35355338f, 0, false, -1, .lengths = true, .empty = true},
    {"square mask", 2, 12, 12, 2, 2, 8, 8, 0.35355338f, 0, false, -1, .mask = true},
    {"norms", 2, 9, 11, 2, 2, 8, 8, 0.35355338f, 0, false, -1, .rope = true, .norms = true},
    {"flags", 2, 12, 15, 2, 2, 8, 8, 0.35355338f, 0, false, -1, .flags = true},
    {"bias", 2, 9, 11, 4, 2, 8, 6, 0.35355338f, 0, false, -1, .bias = true},
    {"many", 2, 12, 15, 6, 3, 8, 8, 0.35355338f, 0, false, -1, .dlse = true},
    {"window of two sides", 2, 21, 21, 2, 2, 8, 8, 0.35355338f, 0, false, 3, .both = true},
    {"causal and lengths", 2, 14, 14, 2, 2, 8, 8, 0.35355338f, 0, true, -1, .lengths = true},
    {"mask of each", 2, 12, 15, 4, 2, 8, 8, 0.35355338f, 0, false, -1, .mask = true, .each = true},
    {"mask and slopes", 2, 12, 12, 2, 2, 8, 8, 0.35355338f, 0, false, -1, .mask = true, .slopes = true},
    {"sinks and lse", 2, 12, 15, 4, 2, 8, 8, 0.35355338f, 0, false, -1, .sinks = true, .dlse = true},
    {"wide", 2, 12, 15, 2, 2, 6, 8, 0.40824829f, 0, false, -1, .lengths = false},
    {"padding", 2, 12, 15, 2, 2, 8, 8, 0.35355338f, 0, false, -1, .padding = true},
    {"segments", 2, 14, 14, 2, 2, 8, 8, 0.35355338f, 0, true, -1, .segments = true},
    {"ragged", 1, 21, 21, 2, 2, 8, 8, 0.35355338f, 0, false, -1, .segments = true, .ragged = true},
    {"rope, last", 1, 12, 20, 2, 2, 8, 8, 0.35355338f, 0, false, -1, .rope = true, .offset = 8},
    {"alibi of two sides", 2, 12, 12, 2, 2, 8, 8, 0.35355338f, 0, false, -1, .slopes = true},
    {"rope of some", 1, 12, 12, 2, 2, 8, 8, 0.35355338f, 0, true, -1, .rope = true, .rope_dim = 4},
    {"norms of sums", 2, 9, 11, 2, 2, 8, 8, 0.35355338f, 0, false, -1, .norms = true, .sum = true},
    {"norms with eps", 2, 9, 11, 2, 2, 8, 8, 0.35355338f, 0, false, -1, .norms = true, .eps = 0.1f},
    {"padded", 2, 9, 11, 2, 2, 6, 6, 0.40824829f, 0, false, -1, .lengths = false},
    {"slopes of groups", 2, 12, 12, 4, 2, 8, 8, 0.35355338f, 0, true, -1, .slopes = true},
    {"large", 1, 5, 6, 1, 1, 140, 140, 0.08451543f, 0, false, -1, .lengths = false},
    {"long keys", 1, 6, 150, 1, 1, 24, 8, 0.20412415f, 0, false, -1, .lengths = false},
    {"long lengths", 1, 6, 150, 1, 1, 4, 4, 0.5f, 0, false, -1, .lengths = true},
    {"long window", 1, 150, 150, 1, 1, 2, 2, 0.70710678f, 0, false, 9, .lengths = false},
    {"long mask", 1, 3, 150, 1, 1, 2, 2, 0.70710678f, 0, false, -1, .mask = true},
    {"long and tall mask", 1, 150, 3, 1, 1, 2, 2, 0.70710678f, 0, false, -1, .mask = true},
    {"long rope", 1, 150, 150, 1, 1, 4, 4, 0.5f, 0, false, -1, .rope = true},
    {"long sinks", 1, 150, 7, 1, 1, 2, 2, 0.70710678f, 0, false, -1, .sinks = true},
    {"long bias", 1, 150, 7, 1, 1, 2, 2, 0.70710678f, 0, false, -1, .bias = true},
    {"long causal", 1, 150, 150, 1, 1, 2, 2, 0.70710678f, 0, true, -1, .lengths = false},
    {"long", 1, 150, 150, 1, 1, 2, 2, 0.70710678f, 0, false, -1, .lengths = false},
};

static void fill(float *x, size_t n, uint64_t *state, float size)
{
    for (size_t e = 0; e < n; e++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        x[e] = size * (float)((double)(*state >> 11) * 0x1p-52 - 1);
    }
}

static mha_view heads(float *x, size_t B, size_t T, size_t h, size_t d)
{
    return mha_heads(x, B, T, h, d);
}

/* The call of a setting, its float32 backward, and views of that one's gradients. */
typedef struct planted {
    float_backward f;
    mha_call call;
    mha_gradients found;
    mha_view weights[MHA_WEIGHT_COUNT];
    double slopes[8];
} planted;

static void build(const setting *s, numbers *n, uint64_t seed, planted *p)
{
    uint64_t state = seed;
    memset(p, 0, sizeof *p);
    fill(n->q, s->B * s->T * s->h * s->d_k, &state, 2), fill(n->k, s->B * s->S * s->h_kv * s->d_k, &state, 2);
    fill(n->v, s->B * s->S * s->h_kv * s->d_v, &state, 1), fill(n->dO, s->B * s->T * s->h * s->d_v, &state, 1);
    fill(n->dlse, s->B * s->h * s->T, &state, 1), fill(n->mask, s->B * s->h * s->T * s->S, &state, 2);
    fill(n->slopes, s->h, &state, 0.3f), fill(n->sinks, s->h, &state, 1), fill(n->norms, 2 * s->d_k, &state, 2);
    for (size_t e = 0; e < s->B * s->h * s->T * s->S; e += 7)
        n->mask[e] = e % s->S > 0 ? -INFINITY : n->mask[e];
    for (size_t b = 0; b < s->B; b++)
        n->lengths[b] = s->empty && b == 0 ? 0 : (int64_t)(s->S - 3 - 2 * b);
    for (size_t e = 0; e < s->B * s->S; e++)
        n->padding[e] = e % 5 != 3, n->segments[e] = e % s->S < 6 ? 0 : e % s->S < 15 ? 1 : 2;
    p->f = (float_backward){
        .B = s->B, .T = s->T, .S = s->S, .h = s->h, .h_kv = s->h_kv, .d_k = s->d_k, .d_v = s->d_v,
        .scale = s->scale, .softcap = s->softcap, .causal = s->causal, .offset = s->offset, .rope = s->rope,
        .window_left = s->window_left, .window_right = s->both ? 1 : -1, .lengths = s->lengths ? n->lengths : NULL,
        .segments = s->segments ? n->segments : NULL, .ragged = s->ragged, .padding = s->padding ? n->padding : NULL,
        .mask = s->mask ? n->mask : NULL, .mask_B = s->each ? s->B : 1, .mask_h = s->each ? s->h : 1,
        .flags = s->flags, .slopes = s->slopes ? n->slopes : NULL, .sinks = s->sinks ? n->sinks : NULL,
        .norms = s->norms ? n->norms : NULL, .norm_of_sum = s->sum, .norm_eps = s->eps > 0 ? s->eps : 1e-5f,
        .rope_dim = s->rope_dim, .q = n->q, .k = n->k, .v = n->v, .dO = n->dO,
        .dlse = s->dlse ? n->dlse : NULL, .dq = n->dq, .dk = n->dk, .dv = n->dv, .dnorms = n->dnorms,
        .dmask = s->mask ? n->dmask : NULL, .dslopes = s->slopes ? n->dslopes : NULL,
        .dsinks = s->sinks ? n->dsinks : NULL};
    mha_semantics *m = &p->call.semantics;
    p->call.query = heads(n->q, s->B, s->T, s->h, s->d_k), p->call.key = heads(n->k, s->B, s->S, s->h_kv, s->d_k);
    p->call.value = heads(n->v, s->B, s->S, s->h_kv, s->d_v);
    m->softmax.scale = s->scale, m->softmax.softcap = s->softcap;
    m->visible.causal = s->causal, m->place.has_offset = true, m->place.offset = (int64_t)s->offset;
    set_window(m, s->window_left, s->both ? 1 : -1);
    m->visible.kv_lengths = p->f.lengths;
    for (size_t e = 0; e < s->T * s->S && s->flags; e++)
        n->flags[e] = e % 3 != 1, n->mask[e] = n->flags[e] ? 0 : -INFINITY;
    if (s->flags) {
        p->f.mask = n->mask;
        m->visible.mask = (mha_mask){MHA_MASK_KEEPS, mha_view_of(n->flags, MHA_BOOL, 2, (size_t[]){s->T, s->S})};
    }
    const mha_view mask = mha_view_of(n->mask, MHA_F32, 4, (size_t[]){p->f.mask_B, p->f.mask_h, s->T, s->S});
    if (s->mask)
        m->visible.mask = (mha_mask){MHA_MASK_ADDITIVE, mask};
    if (s->padding)
        m->visible.key_padding = (mha_mask){MHA_MASK_KEEPS, mha_view_of(n->padding, MHA_BOOL, 2,
                                                                        (size_t[]){s->B, s->S})};
    if (s->ragged)
        m->place.cu_seqlens_q = n->ends, m->place.n_sequences = 3;
    else if (s->segments)
        m->visible.pattern.q_segments = mha_view_of(n->segments, MHA_I64, 2, (size_t[]){s->B, s->S});
    for (size_t i = 0; i < s->h; i++)
        p->slopes[i] = n->slopes[i];
    m->added.alibi_slopes = s->slopes ? p->slopes : NULL;
    m->qkv.rope.kind = s->rope ? MHA_ROPE_HALF_SPLIT : MHA_ROPE_NONE, m->qkv.rope.dim = s->rope_dim;
    if (s->sinks) {
        p->weights[MHA_SINKS] = mha_view_of(n->sinks, MHA_F32, 1, &s->h);
        p->call.weights = p->weights, p->call.weight_count = MHA_WEIGHT_COUNT;
        p->found.of[MHA_D_WEIGHTS + MHA_SINKS] = mha_view_of(n->dsinks, MHA_F32, 1, &s->h);
    }
    memcpy(n->ends, (const int64_t[]){0, 6, 15, (int64_t)s->T}, sizeof n->ends);
    for (int side = 0; side < 2 && s->norms; side++) {
        p->found.of[MHA_D_WEIGHTS + (side ? MHA_K_NORM : MHA_Q_NORM)] =
            mha_view_of(n->dnorms + (size_t)side * s->d_k, MHA_F32, 1, &s->d_k);
        p->weights[side ? MHA_K_NORM : MHA_Q_NORM] = mha_view_of(n->norms + (size_t)side * s->d_k, MHA_F32, 1, &s->d_k);
        p->call.weights = p->weights, p->call.weight_count = MHA_WEIGHT_COUNT;
        m->qkv.norm_eps = p->f.norm_eps, m->qkv.norm.kind = s->sum ? MHA_NORM_L2 : MHA_NORM_RMS;
    }
    if (s->bias) { /* the call adds it to q, of which float_backward has the sum */
        const size_t width = s->h * s->d_k;
        fill(n->bias, width, &state, 1);
        for (size_t e = 0; e < s->B * s->T * width; e++)
            n->plain_q[e] = n->q[e], n->q[e] += n->bias[e % width];
        p->call.query = heads(n->plain_q, s->B, s->T, s->h, s->d_k);
        p->weights[MHA_B_Q] = mha_view_of(n->bias, MHA_F32, 1, &width);
        p->call.weights = p->weights, p->call.weight_count = MHA_WEIGHT_COUNT;
        p->found.of[MHA_D_WEIGHTS + MHA_B_Q] = mha_view_of(n->dbias, MHA_F32, 1, &width);
    }
    p->found.d_output = heads(n->dO, s->B, s->T, s->h, s->d_v);
    if (s->dlse)
        p->found.d_lse = mha_view_of(n->dlse, MHA_F32, 3, (size_t[]){s->B, s->h, s->T});
    p->found.of[MHA_D_QUERY] = heads(n->dq, s->B, s->T, s->h, s->d_k);
    p->found.of[MHA_D_KEY] = heads(n->dk, s->B, s->S, s->h_kv, s->d_k);
    p->found.of[MHA_D_VALUE] = heads(n->dv, s->B, s->S, s->h_kv, s->d_v);
    if (s->mask)
        p->found.of[MHA_D_MASK] = mha_view_of(n->dmask, MHA_F32, 4, (size_t[]){p->f.mask_B, p->f.mask_h, s->T, s->S});
    if (s->slopes)
        p->found.of[MHA_D_ALIBI_SLOPES] = mha_view_of(n->dslopes, MHA_F32, 1, &s->h);
}

/* Whether a name is among those that explain the gradients; *right: there is nothing to explain. */
static bool is_named(const planted *p, const char *name, bool *right, size_t *count, const char **first)
{
    mha_gradient_match list[FOUND];
    mha_error error;
    bool named = false;
    assert_ok(mha_gradient_explain(NULL, &p->call, &p->found, 0x1p-24, list, FOUND, count, right, &error), error);
    for (size_t i = 0; i < *count && i < FOUND; i++)
        named |= strcmp(list[i].name, name) == 0;
    *first = *count ? list[0].name : "nothing";
    return named;
}

static void right_gradients_need_no_match(void **state)
{
    (void)state;
    numbers *n = calloc(1, sizeof *n);
    for (size_t i = 0; i < COUNT(settings); i++) {
        planted p;
        bool right;
        size_t count;
        const char *first;
        build(&settings[i], n, 11 + i, &p);
        assert_true(float_backward_run(&p.f, ""));
        (void)wrong_bias(&p.f, "", n->dbias);
        is_named(&p, "", &right, &count, &first);
        if (!right || count > 0)
            fail_msg("%s: right gradients are taken for %s", settings[i].name, first);
    }
    free(n);
}

/* The layer around the heads, and the bugs that only a matrix can have. */
static bool is_of_layer(const char *name)
{
    static const char *const begins[] = {"heads-un", "heads-of-", "heads-gated", "gate-", "latent-", "input-",
                                         "parameter-of-next", "parameter-of-previous", "parameter-of-queries",
                                         "parameter-of-keys", "parameter-of-values", "parameter-of-un",
                                         "parameter-of-first-row-of-", "parameter-of-first-batch-row-of-",
                                         "parameter-of-heads-first", "parameter-of-dy", "parameter-transposed",
                                         "parameter-parts"};
    for (size_t i = 0; i < COUNT(begins); i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

/* Runs a backward with a bug inside it, of what it writes out (of q, k or v) or of the gradient of its bias. */
static bool plant(const planted *p, const char *bug, size_t m, numbers *n)
{
    const bool inside = float_backward_run(&p->f, bug);
    const bool of_bias = p->weights[MHA_B_Q].data && wrong_bias(&p->f, bug, n->dbias);
    return wrong_result(&p->f, bug, "qkv"[m % 3]) || inside || of_bias;
}

/* Of a drawn share of the list, without some that round: each row is planted in the first call in which it shows, or
 * in the first BUGS_SHOWN of them. A bug of a step may explain a wrong gradient with the same numbers. */
static void planted_bugs_are_named(void **state)
{
    (void)state;
    numbers *n = calloc(1, sizeof *n);
    const mha_gradient_bug *row;
    size_t names = 0, plants = 0, alone = 0, wrong = 0, silent = 0;
    const size_t most_shown = (size_t)trial_number("BUGS_SHOWN", 1);
    for (size_t m = 0; (row = mha_gradient_bug_at(m)) != NULL; m++) {
        size_t shown = 0;
        bool made = false;
        if (is_of_layer(row->name) || !trial_drawn(4, m)) /* of layers: test_layer_bugs.c */
            continue;
        if (row->wide && strcmp(row->name, "output-in-bfloat16") != 0) /* it rounds; tests/python/test_backward.py */
            continue;
        const bool behind = strncmp(row->name, "result-", 7) == 0;
        for (size_t at = 0; at < COUNT(settings) * (behind ? 3 : 1) && shown < most_shown; at++) {
            const size_t i = at % COUNT(settings);
            planted p;
            bool right;
            size_t count;
            const char *first;
            if (strncmp(settings[i].name, "long", 4) == 0 && shown > 0)
                continue; /* the long calls take longest */
            build(&settings[i], n, 100 * m + i, &p);
            if (!plant(&p, row->name, m + at / COUNT(settings), n))
                continue;
            made = true;
            const bool is_there = is_named(&p, row->name, &right, &count, &first),
                       named = is_there || (behind && count > 0 && strncmp(first, "result-", 7) != 0);
            if (right)
                continue;
            shown++, plants++, alone += named && count == 1;
            if (!named && ++wrong < 20)
                print_error("%s in %s: explained by %s (%zu)\n", row->name, settings[i].name, first, count);
        }
        names++;
        if (!made || shown == 0)
            print_error("%s: %s\n", row->name, made ? "shows in no call" : "the planted backward does not make it");
        silent += !made || shown == 0;
    }
    free(n);
    print_message("%zu bugs planted in %zu calls: %zu named alone, %zu not named\n", names, plants, alone, wrong);
    assert_int_equal(wrong, 0);
    assert_int_equal(silent, 0);
}

/* A name, and the calls in which it is planted. */
typedef struct planting {
    const char *name, *settings[4];
} planting;

static const setting *setting_of(const char *name)
{
    for (size_t i = 0; i < COUNT(settings); i++)
        if (strcmp(settings[i].name, name) == 0)
            return &settings[i];
    fail_msg("no setting %s", name);
    return NULL;
}

/* A bug of a forward in P, which only the backward has, is named where no bug of a backward is the same. */
static void bugs_of_a_forward_in_p_are_named(void **state)
{
    static const char *const in[] = {"window", "long window"}, name[] = "p-of-window-both-sides";
    (void)state;
    numbers *n = calloc(1, sizeof *n);
    for (size_t i = 0; i < COUNT(in); i++) {
        const char *first;
        planted p;
        bool right;
        size_t count;
        build(setting_of(in[i]), n, 5 + i, &p);
        assert_true(float_backward_run(&p.f, name));
        if (!is_named(&p, name, &right, &count, &first) || count > 1)
            fail_msg("%s in %s: explained by %s", name, in[i], right ? "rounding" : first);
    }
    free(n);
}

/* Numbers that are unknown are found where queries see one key, and where heads share keys. */
static void unknown_numbers_are_found_in_every_call(void **state)
{
    static const planting all[] = {{"lse-unknown", {"causal", "causal, last", "segments", "rope"}},
                                   {"d-unknown", {"causal", "causal, first", "many", "rope"}},
                                   {"dp-unknown", {"causal", "plain", "many", "rope"}},
                                   {"pairs-miscounted", {"large"}},
                                   {"queries-missing", {"causal", "many", "window"}},
                                   {"heads-miscounted", {"grouped", "many", "sinks"}},
                                   {"rows-miscounted", {"causal", "many", "window"}},
                                   {"blocks-miscounted-16", {"causal", "plain", "window"}}};
    (void)state;
    numbers *n = calloc(1, sizeof *n);
    for (size_t i = 0; i < 4 * COUNT(all); i++) {
        const char *name = all[i / 4].name, *in = all[i / 4].settings[i % 4], *first;
        planted p;
        bool right;
        size_t count;
        if (!in)
            continue;
        build(setting_of(in), n, 7 + i, &p);
        assert_true(float_backward_run(&p.f, name));
        if (!is_named(&p, name, &right, &count, &first) &&
            !(strstr(name, "miscounted") && strcmp(first, "unnamed") == 0)) /* which says the parts */
            fail_msg("%s in %s: explained by %s", name, in, right ? "rounding" : first);
    }
    free(n);
}

/* A ragged batch whose sequences see each other has the bug of one row whose segments do. */
static void sequences_are_segments(void **state)
{
    numbers *n = calloc(1, sizeof *n);
    planted p;
    bool right;
    size_t count;
    const char *first;
    (void)state;
    build(setting_of("ragged"), n, 5, &p);
    p.f.ragged = false; /* it knows segments */
    assert_true(float_backward_run(&p.f, "segments-missing"));
    if (!is_named(&p, "segments-missing", &right, &count, &first))
        fail_msg("explained by %s", right ? "rounding" : first);
    free(n);
}

/* A bug in only the kernel of dQ, or in that of dK and dV, has its name. */
static void bugs_in_one_kernel_are_named(void **state)
{
    static const planting all[] = {{"lse-of-next-head", {"plain", "grouped", "causal"}},
                                   {"d-missing", {"plain", "grouped", "wide"}},
                                   {"causal-missing", {"causal", "causal, last"}},
                                   {"window-missing", {"window", "window of two sides"}},
                                   {"softcap-slope-twice", {"softcap"}},
                                   {"lse-without-sinks", {"sinks", "sinks and lse"}},
                                   {"dlse-dropped", {"lse", "many"}},
                                   {"alibi-of-next-head", {"alibi"}},
                                   {"scores-scale-missing", {"plain", "many"}}};
    (void)state;
    numbers *n = calloc(1, sizeof *n), *wrong = calloc(1, sizeof *n);
    for (size_t i = 0; i < 8 * COUNT(all); i++) {
        const char *name = all[i / 8].name, *in = all[i / 8].settings[i / 2 % 4], *first;
        planted p;
        bool right;
        size_t count;
        if (!in)
            continue;
        build(setting_of(in), n, 3 + i / 2, &p);
        assert_true(float_backward_run(&p.f, name));
        memcpy(wrong, n, sizeof *n);
        assert_true(float_backward_run(&p.f, ""));
        if (i % 2)
            memcpy(n->dq, wrong->dq, sizeof n->dq);
        else
            memcpy(n->dk, wrong->dk, sizeof n->dk), memcpy(n->dv, wrong->dv, sizeof n->dv);
        if (!is_named(&p, name, &right, &count, &first))
            fail_msg("%s of %s in %s: explained by %s", name, i % 2 ? "dQ" : "dK and dV", in,
                     right ? "rounding" : first);
    }
    free(n), free(wrong);
}

/* Where the gradients of rows are right, no rounding and no other D makes that of a slope or a sink another one. */
static void sums_alone_are_not_explained_by_what_shows_in_rows(void **state)
{
    static const char *const in[] = {"alibi of two sides", "alibi", "sinks", "sinks and lse"};
    (void)state;
    numbers *n = calloc(1, sizeof *n);
    for (size_t i = 0; i < 4 * COUNT(in); i++) {
        const char *first;
        planted p;
        bool right;
        size_t count;
        build(setting_of(in[i % COUNT(in)]), n, 40 + i, &p);
        assert_true(float_backward_run(&p.f, ""));
        float *sum = p.f.dslopes ? n->dslopes : n->dsinks, more = 2e-6f;
        do /* by as much as shows */
            sum[0] *= 1 + (more *= 2);
        while ((is_named(&p, "", &right, &count, &first), right));
        if (count > 0 && strncmp(first, "gradients-in-", 13) != 0) /* only one output gradient may be wrong */
            fail_msg("%s: explained by %s", in[i % COUNT(in)], first);
    }
    free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(right_gradients_need_no_match),
                                       cmocka_unit_test(bugs_of_a_forward_in_p_are_named),
                                       cmocka_unit_test(unknown_numbers_are_found_in_every_call),
                                       cmocka_unit_test(bugs_in_one_kernel_are_named),
                                       cmocka_unit_test(sequences_are_segments),
                                       cmocka_unit_test(sums_alone_are_not_explained_by_what_shows_in_rows),
                                       cmocka_unit_test(planted_bugs_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
