/* Creates and compares programs of a case, and finds the results that each mutation changes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/visibility/pattern.h"
#include "lab/settings.h"
#include "verify/engine/program.h"

double mha__narrowed(double x, int type)
{
    if (type == MHA__TO_F16)
        return (double)mha__f16_to_f32(mha__f32_to_f16((float)x));
    if (type == MHA__TO_BF16)
        return (double)mha__bf16_to_f32(mha__f32_to_bf16((float)x));
    if (type == MHA__TO_BF16_CUT) {
        const float narrow = (float)x;
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        return (double)mha__bf16_to_f32((uint16_t)(bits >> 16));
    }
    return x;
}

double mha__shortened(double x, int bits)
{
    uint64_t u;
    const int dropped = 53 - abs(bits);
    if (!isfinite(x) || bits == 0 || dropped <= 0)
        return x;
    if (bits == MHA__E4M3_BITS || bits == MHA__E5M2_BITS)
        return mha__round_to(bits == MHA__E4M3_BITS ? MHA_F8_E4M3 : MHA_F8_E5M2, x);
    memcpy(&u, &x, sizeof u);
    u += bits < 0 ? 0 : ((uint64_t)1 << (dropped - 1)) - 1 + (u >> dropped & 1);
    u = u >> dropped << dropped;
    memcpy(&x, &u, sizeof u);
    return x;
}

bool mha__has_pattern(const mha_case *c)
{
    const mha__visibility v = mha__visibility_of(&c->semantics, 0);
    return v.pattern || v.pads;
}

/* True if only queries and as many keys have a time axis. */
static bool is_time_free(const mha_case *c)
{
    const mha_semantics *s = &c->semantics;
    return c->kind != CASE_ROPE && s->place.n_sequences == 0 && c->T_q == c->T_k && c->P == 0 &&
           !s->visible.kv_lengths && !s->place.has_key_offset && !s->visible.mask.kind &&
           !s->visible.key_padding.kind && !mha__has_pattern(c) && !s->qkv.rope.q_positions.data &&
           !s->qkv.rope.cos_table.data && !s->softmax.dropout_keep.data;
}

bool mha__can_exchange(const mha_case *c)
{
    return is_time_free(c) && !c->semantics.place.position_offset && c->T_q * c->B > 1;
}

bool mha__can_turn(const mha_case *c)
{
    const mha_semantics *s = &c->semantics;
    bool weighted = false;
    for (mha_weight w = 0; w < MHA_WEIGHT_COUNT; w++)
        weighted |= c->weights[CASE_RECORDED][w].data != NULL;
    return is_time_free(c) && c->kind == CASE_SDPA && !weighted && !s->added.alibi_slopes && !s->softmax.zero_row &&
           !s->qkv.rope.frequencies.data && !s->qkv.norm.unweighted && c->T_q * c->H > 1;
}

mha__program mha__program_of(const mha_case *c)
{
    mha__program p; /* sets no mutations: a search makes many programs */
    mha_semantics *s = &p.s;
    p.s = c->semantics, p.n = 0, p.sites[0] = p.sites[1] = 0;
    s->softmax.scale = s->softmax.has_scale || s->softmax.scale != 0 ? s->softmax.scale : 1 / sqrt((double)c->d_k);
    s->qkv.norm_eps = s->qkv.norm_eps > 0 ? s->qkv.norm_eps : 1e-6;
    s->qkv.rope.dim = s->qkv.rope.dim ? s->qkv.rope.dim : c->d_k;
    s->qkv.rope.base = s->qkv.rope.base > 0 ? s->qkv.rope.base : 10000;
    s->qkv.rope.attention_factor = s->qkv.rope.attention_factor > 0 ? s->qkv.rope.attention_factor : 1;
    s->visible.has_padding_fill |= s->visible.padding_fill != 0;
    return p;
}

void mha__put(mha__program *p, mha__mutation m)
{
    size_t at = 0;
    while (at < p->n && (p->m[at].site < m.site || (p->m[at].site == m.site && p->m[at].op < m.op)))
        at++;
    const bool replaces = at < p->n && p->m[at].site == m.site && p->m[at].op == m.op;
    if (!replaces && p->n == MHA__MOST_MUTATIONS)
        return;
    if (!replaces)
        memmove(p->m + at + 1, p->m + at, (p->n++ - at) * sizeof *p->m);
    p->m[at] = m;
    p->sites[m.site >> 6] |= (uint64_t)1 << (m.site & 63);
}

bool mha__drop(mha__program *p, int site, int op)
{
    const mha__mutation *m = mha__mutation_at(p, site, op);
    if (!m)
        return false;
    const size_t at = (size_t)(m - p->m);
    memmove(p->m + at, m + 1, (--p->n - at) * sizeof *m);
    return true;
}

/* ---------------------------------------------------------------- comparing */

static bool are_same(const mha__mutation *a, const mha__mutation *b)
{
    return a->site == b->site && a->op == b->op && a->arg == b->arg && a->axis == b->axis && a->written == b->written &&
           a->read == b->read && a->sides == b->sides && a->step == b->step && a->number == b->number &&
           a->table == b->table;
}

bool mha__programs_agree(const mha__program *a, const mha__program *b)
{
    bool agree = a->n == b->n && mha__settings_same(MHA_SETTINGS_SOFTMAX, &a->s, &b->s);
    for (size_t i = 0; agree && i < a->n; i++)
        agree = are_same(&a->m[i], &b->m[i]);
    return agree;
}

bool mha__programs_equal(const mha__program *a, const mha__program *b)
{
    return mha__programs_agree(a, b) && mha__settings_same(MHA_SETTINGS_QKV, &a->s, &b->s) &&
           mha__settings_same(MHA_SETTINGS_VISIBLE, &a->s, &b->s) &&
           mha__settings_same(MHA_SETTINGS_ADDED, &a->s, &b->s);
}

static bool is_of_visibility(const mha__mutation *m)
{
    return m->site == AT_W || m->site == AT_PLACE || (m->site == AT_NEW && m->op == OP_FROM) ||
           (m->site >= AT_CAUSAL && m->site <= AT_RULES && m->site != AT_RELATIVE);
}

bool mha__programs_see_alike(const mha__program *a, const mha__program *b)
{
    bool alike =
        mha__settings_same(MHA_SETTINGS_VISIBLE, &a->s, &b->s) && mha__settings_same(MHA_SETTINGS_ADDED, &a->s, &b->s);
    for (size_t i = 0, k = 0; alike; i++, k++) {
        while (i < a->n && !is_of_visibility(&a->m[i]))
            i++;
        while (k < b->n && !is_of_visibility(&b->m[k]))
            k++;
        if (i == a->n || k == b->n)
            return i == a->n && k == b->n;
        alike = !a->m[i].table && are_same(&a->m[i], &b->m[k]); /* numbers in memory may change */
    }
    return false;
}

/* ---------------------------------------------------------------- changes of a mutation */

/* Nodes that a mutation changes: bits. */
static unsigned nodes_of(const mha__mutation *m)
{
    const unsigned sides = m->sides ? m->sides : 7u, all = 7u;
    const int site = m->site;
    if (site == AT_W && m->sides)
        return sides << NODE_Y | sides << NODE_A;
    if (site >= AT_X && site <= AT_LATENT && site != AT_W_O)
        return all << NODE_Y | all << NODE_A;
    if (site >= AT_B_Q && site <= AT_BIAS)
        return all << NODE_A;
    if (site >= AT_POS && site <= AT_TURN_V)
        return (site == AT_POS_Q ? 1u : site == AT_POS_K ? 6u : all) << NODE_A;
    if (site >= AT_Y && site <= AT_JOINED)
        return (site == AT_QSCALE || site == AT_LOG_N ? 3u : sides) << NODE_A;
    return site == AT_PLACE ? 6u << NODE_A : 0;
}

static uint64_t mixed(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t mixed_bytes(uint64_t h, const void *data, size_t n)
{
    const char *at = data;
    uint64_t x;
    for (; n >= sizeof x; n -= sizeof x, at += sizeof x) {
        memcpy(&x, at, sizeof x);
        h = mixed(h, x);
    }
    for (; n > 0; n--)
        h = mixed(h, (uint64_t)(unsigned char)*at++);
    return h;
}

void mha__program_keys(const mha__program *p, uint64_t key[NODE_COUNT])
{
    const uint64_t qkv = mixed_bytes(1, &p->s.qkv, sizeof p->s.qkv), clip = mixed_bytes(1, &p->s.qkv.clip_qkv, 8);
    const bool turns = mha__has(p, AT_TURN_V, OP_DO);
    unsigned unknown = 0; /* nodes that depend on numbers in memory */
    for (unsigned node = 0; node < NODE_COUNT; node++)
        key[node] = node < NODE_A ? 1 : node == NODE_A + PROJECTION_V && !turns ? clip : qkv;
    for (const mha__mutation *m = p->m; m < p->m + p->n; m++) {
        const unsigned nodes = nodes_of(m);
        uint64_t h =
            mixed(1, (uint64_t)m->site | (uint64_t)m->op << 8 | (uint64_t)m->arg << 16 | (uint64_t)m->axis << 24 |
                         (uint64_t)m->written << 32 | (uint64_t)m->read << 40 | (uint64_t)m->sides << 48);
        h = mixed_bytes(mixed(h, (uint64_t)m->step), &m->number, sizeof m->number);
        unknown |= m->table ? nodes : 0;
        for (unsigned node = 0; node < NODE_COUNT; node++)
            key[node] = nodes >> node & 1 ? mixed(key[node], h) : key[node];
    }
    for (unsigned node = 0; node < NODE_COUNT; node++)
        key[node] = unknown >> node & 1 ? 0 : key[node] ? key[node] : 1;
}

bool mha__program_by_head(const mha__program *p)
{
    bool by_head = true;
    for (size_t i = 0; i < p->n; i++)
        by_head &= p->m[i].readers == 0 && (!p->m[i].table || p->m[i].site == AT_SLOPES || p->m[i].site == AT_PADDING);
    return by_head;
}
