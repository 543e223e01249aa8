/* Index maps, parts and factors, each written once. */
#include "attention/call/definition.h"
#include "verify/mutate/mutation.h"

#include <math.h>
#include <stdlib.h>

size_t mha__join(const mha__extents *x, unsigned char order, mha__element i)
{
    size_t index = 0;
    for (int k = 0; k < 8; k += 2)
        index = index * x->n[order >> k & 3] + i.at[order >> k & 3];
    return index;
}

mha__element mha__split(const mha__extents *x, unsigned char order, size_t index)
{
    mha__element i;
    for (int k = 6; k > 0; k -= 2) {
        const size_t n = x->n[order >> k & 3];
        i.at[order >> k & 3] = index % n, index /= n;
    }
    i.at[order & 3] = index;
    return i;
}

size_t mha__elements(const mha__extents *x)
{
    return x->n[0] * x->n[1] * x->n[2] * x->n[3];
}

/* Index i of an axis of n that is written as (inner, n / inner) and read as (n / inner, inner). */
static size_t turned(size_t i, size_t inner, size_t n)
{
    return i % inner * (n / inner) + i / inner;
}

mha__element mha__map_element(const mha__mutation *m, const mha__extents *x, mha__element from)
{
    const size_t n = x->n[m->axis], group = x->group, block = (size_t)m->step, batch = from.at[MHA__B];
    size_t *const i = &from.at[m->axis];
    mha__extents wide = *x;
    switch ((mha__index_map)m->arg) {
    case MHA__SHIFT: *i = (*i + n + (size_t)(m->step % (long long)n)) % n; break;
    case MHA__SHIFTED: *i = *i + block < n ? *i + block : n; break;
    case MHA__LAST: *i = n - 1; break;
    case MHA__HELD: *i = *i < block ? *i : block; break;
    case MHA__REPEATED: *i -= *i == block; break;
    case MHA__TO_PAIRS: *i = n % 2 ? *i : turned(*i, 2, n); break;
    case MHA__TO_HALVES: *i = n % 2 ? *i : turned(*i, n / 2, n); break;
    case MHA__TABLE: *i = (size_t)m->table[m->axis == MHA__T ? batch * n + *i : *i]; break;
    case MHA__FIRST: *i = 0; break;
    case MHA__REVERSED: *i = n - 1 - *i; break;
    case MHA__BLOCK_BEFORE: *i -= *i >= block ? block : 0; break;
    case MHA__FIRST_BLOCK: *i %= block; break;
    case MHA__START_OF_BLOCK: *i -= *i % block; break;
    case MHA__GROUP: *i /= group; break;
    case MHA__FIRST_OF_GROUP: *i -= *i % group; break;
    case MHA__LAST_OF_GROUP: *i += group - 1 - *i % group; break;
    case MHA__REMAINDER: *i %= n; break;
    case MHA__GROUPS_INSIDE: *i = turned(*i, group, n); break;
    case MHA__GROUPS_OUTSIDE: *i = turned(*i, n / group, n); break;
    case MHA__HALVES: *i = n % 2 ? *i : (*i + n / 2) % n; break;
    case MHA__PAIRS: *i = n % 2 ? *i : *i ^ 1; break;
    case MHA__ORIGIN: return (mha__element){{0}};
    case MHA__VIEW: return mha__split(x, m->written, mha__join(x, m->read, from));
    case MHA__ONE_LATE: {
        const size_t all = mha__elements(x);
        return mha__split(x, m->read, (mha__join(x, m->read, from) + all - 1) % all);
    }
    case MHA__WIDTH: wide.n[MHA__C] = x->width; return mha__split(x, m->read, mha__join(&wide, m->read, from));
    case MHA__STRIDES: break; /* reads other tensors: joined.c */
    case MHA__TURNED: {
        size_t *const t = &from.at[MHA__T], *const c = &from.at[MHA__C], row = *t % block, feature = *c % block;
        if (*t - row + block <= x->n[MHA__T] && *c - feature + block <= x->n[MHA__C])
            *t += feature - row, *c += row - feature;
        break;
    }
    case MHA__SWIZZLED: *i ^= from.at[MHA__T] % (n / block) * block; break;
    case MHA__PITCH: { /* negative: written so, a gap is past the end */
        const size_t apart = (size_t)llabs(m->step), n_c = x->n[MHA__C], reads = m->step > 0 ? apart : n_c,
                     flat = from.at[MHA__T] * reads + from.at[MHA__C], written = m->step > 0 ? n_c : apart;
        from.at[MHA__T] = flat % written < n_c ? flat / written : x->n[MHA__T];
        from.at[MHA__C] = flat % written % n_c;
        break;
    }
    }
    return from;
}

/* True if two orders of axes differ in memory: axes of one element do not count. */
static bool orders_differ(const mha__extents *x, unsigned char one, unsigned char other)
{
    for (int k = 0, l = 0;; k += 2, l += 2) {
        while (k < 8 && x->n[one >> k & 3] < 2)
            k += 2;
        while (l < 8 && x->n[other >> l & 3] < 2)
            l += 2;
        if (k >= 8 || l >= 8)
            return false;
        if ((one >> k & 3) != (other >> l & 3))
            return true;
    }
}

bool mha__map_moves(const mha__mutation *m, const mha__extents *x)
{
    const size_t n = x->n[m->axis];
    switch ((mha__index_map)m->arg) {
    case MHA__SHIFT: return n > (m->axis == MHA__H && m->step < 0 ? 2 : 1); /* of two heads one is next and before */
    case MHA__BLOCK_BEFORE:
    case MHA__FIRST_BLOCK:
    case MHA__START_OF_BLOCK:
    case MHA__REPEATED: return n > (size_t)m->step;
    case MHA__FIRST_OF_GROUP:
    case MHA__LAST_OF_GROUP: return x->group > 1;
    case MHA__REMAINDER: return x->group > 1 && n > 1;
    case MHA__GROUP:
    case MHA__GROUPS_INSIDE:
    case MHA__GROUPS_OUTSIDE: return x->group > 1 && n > x->group;
    case MHA__ORIGIN:
    case MHA__ONE_LATE: return mha__elements(x) > 1;
    case MHA__VIEW: return orders_differ(x, m->read, m->written);
    case MHA__HALVES:
    case MHA__PAIRS: return n % 2 == 0;
    case MHA__TO_PAIRS:
    case MHA__TO_HALVES: return n % 2 == 0 && n > 2;
    case MHA__HELD: return n > (size_t)m->step + 1;
    case MHA__TURNED: return x->n[MHA__T] >= (size_t)m->step && x->n[MHA__C] >= (size_t)m->step;
    case MHA__WIDTH: return x->width != x->n[MHA__C];
    default: return n > 1;
    }
}

bool mha__part_has(mha__axis_part part, size_t block, size_t i, size_t n)
{
    switch (part) {
    case MHA__THE_FIRST: return i == 0;
    case MHA__THE_LAST: return i + 1 == n;
    case MHA__BUT_LAST: return i + 1 < n;
    case MHA__FIRST_HALF: return i < n / 2;
    case MHA__IN_FIRST_BLOCK:
    case MHA__OTHER_WIDTH: return i < block;
    case MHA__IN_LAST_BLOCK: return i >= (n - 1) / block * block;
    case MHA__BUT_LAST_BLOCK: return i < (n - 1) / block * block;
    case MHA__ODD: return i % 2 > 0;
    case MHA__EVEN: return i % 2 == 0;
    case MHA__FULL_BLOCKS: return i < n / block * block;
    case MHA__ALL: break;
    }
    return true;
}

double mha__factor(const mha__mutation *m, const mha__resolved *r)
{
    const mha__sizes *p = &r->plan;
    const double B = (double)p->B, T = (double)p->T_q, h = (double)p->h;
    const double base[] = {[MHA__SCALE] = p->scale,
                           [MHA__BATCH] = B,
                           [MHA__QUERIES] = T,
                           [MHA__KEYS] = (double)p->S,
                           [MHA__ROWS] = B * T,
                           [MHA__HEADS] = h,
                           [MHA__GROUP_SIZE] = h / (double)p->h_kv,
                           [MHA__CAP] = mha__semantics_of(r)->softmax.softcap};
    return m->arg == MHA__NUMBER ? m->number : pow(base[m->arg], m->number);
}

bool mha__factor_moves(const mha__mutation *m, const mha__resolved *r)
{
    const double f = mha__factor(m, r);
    return isfinite(f) && f != 1 && (m->arg == MHA__NUMBER || f != 0);
}
