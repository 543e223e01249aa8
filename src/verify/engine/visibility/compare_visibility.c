/* Compares the keys that two programs hide from a query and the terms they add to its scores, and counts keys. */
#include "verify/engine/runner.h"

bool mha__has_heads(const mha_view *v)
{
    return v->data && v->rank > 2 && v->shape[v->rank - 3] > 1;
}

bool mha__heads_see_alike(const mha__program *p)
{
    const mha_visible *v = &p->s.visible;
    const double alibi = mha__number(p, AT_ALIBI, OP_TIMES, p->s.added.alibi_slopes ? 1 : 0);
    return !mha__has(p, AT_CAUSAL_ROW, OP_TIMES) && mha__arg(p, AT_MASK, OP_FROM) != MHA__VIEW &&
           !(v->mask.kind && mha__has_heads(&v->mask.values)) && alibi == 0 && !p->s.added.bias.rule &&
           !mha__has_heads(&v->pattern.key_lists) &&
           !(v->pattern.blocks.kind && mha__has_heads(&v->pattern.blocks.values));
}

/* Visibility of the *n keys of a query row under a head. NULL: no memory, or a padding row of a ragged batch. */
static mha__sight *sights_of(const mha__inputs *in, const mha__program *p, size_t b, size_t h, size_t i,
                             mha__arena *pool, size_t *n)
{
    mha__program own = *p;
    if (in->sequences) {
        mha__enter_sequence(&own, b);
        in = &in->sequences[b];
        b = 0;
    }
    *n = in->S;
    mha__sight *keys = i < in->T[PROJECTION_Q] ? mha__arena_scratch(pool, (in->S + 1) * sizeof *keys) : NULL;
    if (keys)
        mha__see(in, &own, b, h, i, keys);
    return keys;
}

bool mha__sees_alike(const mha__inputs *in, const mha__program *one, const mha__program *other, size_t b, size_t i)
{
    const size_t heads = mha__heads_see_alike(one) && mha__heads_see_alike(other) ? 1 : in->c->H;
    if (mha__arg(one, AT_NEW, OP_FROM) != mha__arg(other, AT_NEW, OP_FROM))
        return in->sequences && i >= in->sequences[b].T[PROJECTION_Q];
    bool alike = true;
    mha__arena pool = {.allocator = mha__allocator_default()};
    for (size_t h = 0; alike && h < heads; h++) {
        size_t n;
        mha__sight *x = sights_of(in, one, b, h, i, &pool, &n), *z = sights_of(in, other, b, h, i, &pool, &n);
        for (size_t j = 0; alike && x && z && j < n; j++)
            alike = x[j].hidden == z[j].hidden &&
                    (x[j].hidden == MHA__KEY_HIDDEN || (x[j].added == z[j].added && x[j].early == z[j].early));
        mha__arena_recycle(&pool);
    }
    mha__arena_free(&pool);
    return alike;
}

size_t mha__count_seen(const mha__inputs *in, const mha__program *p, size_t b, size_t i, size_t *hidden)
{
    size_t n, seen = 0;
    mha__arena pool = {.allocator = mha__allocator_default()};
    mha__sight *keys = sights_of(in, p, b, 0, i, &pool, &n);
    for (size_t j = 0; keys && j < n; j++)
        seen += keys[j].hidden != MHA__KEY_HIDDEN;
    *hidden = keys ? n - seen : 0;
    mha__arena_free(&pool);
    return seen;
}
