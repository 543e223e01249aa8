/* Unnamed changes of the operands of dS and P (D, lse, dP, scores), and of the places where gradients are written. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/backward/explain/unnamed.h"
#include "verify/bugs/bugs.h"
#include "verify/thresholds/thresholds.h"

/* Operands that are read differently, rounded or multiplied. */
typedef enum place {
    THE_D,
    THE_LSE,
    THE_DLSE,
    DO_IN_DP,
    V_IN_DP,
    DO_EVERYWHERE,
    Q_IN_P,
    K_IN_P,
    Q_IN_P_AND_DK,
    K_IN_P_AND_DQ,
    THE_P,
    THE_DP,
    O_IN_D,
    DO_IN_D,
    PLACES
} place;

#define READS(name, at, leaving, rows, by)                                                                             \
    MHA__ROW(name, "", at, leaving, READS, .site = MHA__AT_ROWS_##rows, .readers = (by))

/* Changes; `shown.name` says the operand. */
static const mha__gradient_bug places[] = {
    [THE_D] = MHA__ROW("D", "", SUMS, MHA__LEAVES_V, READS_NUMBERS, .site = MHA__THE_D),
    [THE_LSE] = MHA__ROW("lse", "", SUMS, 0, READS_NUMBERS, .site = MHA__THE_LSE),
    [THE_DLSE] = MHA__ROW("dlse", "", SUMS, MHA__LEAVES_V, READS_NUMBERS, .site = MHA__THE_DLSE),
    [DO_IN_DP] = READS("dO in dP", SUMS, MHA__LEAVES_V, DO, MHA__IN_DP),
    [V_IN_DP] = READS("v in dP", SUMS, MHA__LEAVES_V, V, MHA__IN_DP),
    [DO_EVERYWHERE] = READS("dO", READ, 0, DO, MHA__AFTER),
    [Q_IN_P] = READS("q in P", SUMS, 0, Q, MHA__IN_P),
    [K_IN_P] = READS("k in P", SUMS, 0, K, MHA__IN_P),
    [Q_IN_P_AND_DK] = READS("q in P and dK", SUMS, 0, Q, MHA__IN_P | MHA__AFTER),
    [K_IN_P_AND_DQ] = READS("k in P and dQ", SUMS, 0, K, MHA__IN_P | MHA__AFTER),
    [THE_P] = MHA__BY_FORMULA("P", "", SUMS, 0, MHA__AT_P, "P*x", .number = 1),
    [THE_DP] = MHA__BY_FORMULA("dP", "", SUMS, MHA__LEAVES_V, MHA__AT_DP, "dP*x", .number = 1),
    [O_IN_D] = READS("O in D", SUMS, MHA__LEAVES_V, O, MHA__IN_D),
    [DO_IN_D] = READS("dO in D", SUMS, MHA__LEAVES_V, DO, MHA__IN_D),
};

/* The kind of rows that a place reads; -1: it reads a number of each query, or of each pair. */
static int rows_at(place what)
{
    int kind = 0;
    while (kind < MHA__ROW_KINDS && !(places[what].mutation.site >> kind & 1))
        kind++;
    return places[what].mutation.op == MHA__READS ? kind : -1;
}

typedef struct change {
    mha__gradient_bug bug;
    const mha__whole *w;
    place what;
    mha__other_reading other;
    int axis;       /* of a reading of results, */
    size_t reading; /* and its index */
} change;

/* Whether a change may give the row of dQ that is farthest off. */
static bool may_give(mha__gradient_search *s, const change *x)
{
    const mha__whole *w = x->w;
    mha__one_query *one = w->one;
    mha__backward *b = &s->b;
    const size_t d = b->r->plan.d_k;
    const bool everywhere = x->what == DO_EVERYWHERE;
    double largest = 0, off = 0;
    if (!one || !s->wrong[MHA_D_QUERY]) /* dQ is right */
        return true;
    mha__map *map = &one->map;
    memcpy(one->numbers, one->right, one->bytes);
    mha__change(b, map, &x->bug);
    if (everywhere)
        mha__map_weights(b, map);
    mha__make_own(b, map, s->form | (everywhere ? MHA__OWN_D : 0));
    mha__map_masked(b, map), mha__map_scores(b, map), mha__map_products(b, map);
    const mha__element of = {{map->b, map->s.q_from, map->head, 0}};
    const double *found = w->found[MHA_D_QUERY] + mha__join(&w->rows[MHA__ROWS_Q].n, MHA__BTHC, of);
    for (size_t c = 0; c < d; c++)
        largest = fmax(largest, fabs(found[c])), off = fmax(off, fabs(found[c] - map->dQ[c]));
    return !(off > MHA__STEP_PART * largest);
}

/* Tries a change in all forms of P and D that it leaves open. */
static mha_status try_change(mha__gradient_search *s, change *x, const char *text, mha_error *error)
{
    x->bug.other = places[x->what].formula ? NULL : &x->other, x->bug.mutation.number = x->other.factor;
    const unsigned leaves = x->bug.leaves;
    for (unsigned form = 0; form < 4 && s->count + s->partly == 0; form++) {
        mha__given gives;
        if ((form & MHA__OWN_LSE && leaves & MHA__LEAVES_V) ||
            (form &&
             (x->what == THE_D || x->what >= O_IN_D || x->what == THE_DLSE || x->bug.step != MHA__BACKWARD_SUMS)) ||
            (form & MHA__OWN_LSE && (x->what == THE_LSE || x->what == THE_P)))
            continue;
        s->form = form;
        if (!may_give(s, x))
            continue;
        TRY(mha__change_gives(s, &x->bug, &gives, error));
        mha__search_tell_there(s, gives, MHA__UNNAMED, text);
    }
    s->form = 0;
    return MHA_OK;
}

/* How many elements an axis has of what is changed; 0: none that can be read otherwise. */
static size_t extent_of(const mha__whole *w, place what, int axis)
{
    const int kind = rows_at(what);
    const size_t n[] = {w->B, w->T, w->H, 0};
    return places[what].formula ? 0 : kind < 0 ? n[axis] : w->rows[kind].n.n[axis];
}

static bool applies(const mha__gradient_search *s, place what)
{
    return (what != THE_DLSE || s->b.given->d_lse.data) &&
           (!(places[what].mutation.readers & MHA__IN_P) || mha__can_weigh_again(&s->b));
}

static change change_of(const mha__whole *w, place what)
{
    return (change){.bug = places[what],
                    .w = w,
                    .what = what,
                    .other = {.kind = rows_at(what), .factor = 1, .O = w->rows[MHA__ROWS_O].data}};
}

static mha_status try_factors(mha__gradient_search *s, const mha__whole *w, place what, mha_error *error)
{
    const mha__sizes *p = &w->b->r->plan;
    const struct {
        double number;
        const char *says;
    } all[] = {{0, "0"},
               {-1, "-1"},
               {2, "2"},
               {0.5, "1/2"},
               {p->scale, "the scale"},
               {1 / p->scale, "1 / scale"},
               {MHA__LOG2_E, "log2(e)"},
               {MHA__LN_2, "ln 2"},
               {(double)p->S, "the number of keys"},
               {1 / (double)p->S, "1 over the number of keys"},
               {(double)p->T_q, "the number of queries"},
               {1 / (double)p->T_q, "1 over the number of queries"},
               {(double)p->d_k, "d_k"},
               {1 / (double)p->d_k, "1 / d_k"},
               {(double)p->d_v, "d_v"},
               {1 / (double)p->d_v, "1 / d_v"},
               {1 / sqrt((double)p->d_v), "1 / sqrt(d_v)"},
               {1 / (double)p->h, "1 over the number of heads"},
               {1 / (double)p->B, "1 over the number of batch rows"}};
    for (size_t i = 0; i < sizeof all / sizeof *all && s->count + s->partly == 0; i++) {
        char text[96];
        change x = change_of(w, what);
        x.other.factor = all[i].number;
        mha__text_print(text, sizeof text, "%s times %s", places[what].shown.name, all[i].says);
        if (all[i].number != 1 && isfinite(all[i].number))
            TRY(try_change(s, &x, text, error));
    }
    return MHA_OK;
}

static mha_status try_roundings(mha__gradient_search *s, const mha__whole *w, place what, mha_error *error)
{
    for (size_t i = 0; rows_at(what) >= 0 && i < 4 && s->count + s->partly == 0; i++) {
        char text[64];
        change x = change_of(w, what);
        x.other.bits = mha__types[i].bits;
        mha__text_print(text, sizeof text, "%s rounded to %s", places[what].shown.name, mha__types[i].type);
        TRY(try_change(s, &x, text, error));
    }
    return MHA_OK;
}

/* Rows of another kind. */
static mha_status try_kinds(mha__gradient_search *s, const mha__whole *w, place what, mha_error *error)
{
    const int own = rows_at(what);
    for (int kind = 0; own >= 0 && kind < MHA__ROW_KINDS && s->count + s->partly == 0; kind++) {
        char text[64];
        change x = change_of(w, what);
        x.other.kind = kind;
        mha__text_print(text, sizeof text, "%s in place of %s", mha__row_kinds[kind], places[what].shown.name);
        if (kind != own && mha__width_of_rows(w, kind) == mha__width_of_rows(w, own) &&
            (mha__are_keys(kind) == mha__are_keys(own) || w->T == w->S))
            TRY(try_change(s, &x, text, error));
    }
    return MHA_OK;
}

static mha_status try_readings(mha__gradient_search *s, const mha__whole *w, place what, mha_error *error)
{
    const size_t readings = mha__reading_count();
    for (size_t i = 0; i < 4 * readings && s->count + s->partly == 0 && !mha__is_over(s); i++) {
        char says[128], text[192];
        change x = change_of(w, what);
        const int axis = (int)(i / readings);
        if (!mha__reading(i % readings, extent_of(w, what, axis), mha__units[axis], w->from, says, sizeof says))
            continue;
        x.other.axis = axis, x.other.from = w->from;
        mha__text_print(text, sizeof text, "%ss of %s %s", mha__units[axis], places[what].shown.name, says);
        TRY(try_change(s, &x, text, error));
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- what goes out */

static bool read_result(const mha__wrong_gradient *r, const mha__gradient_bug *bug)
{
    const change *x = (const change *)(const void *)bug;
    const mha__extents *n = &x->w->rows[r->gradient <= MHA_D_VALUE ? r->gradient : 0].n; /* as of its rows */
    char says[128];
    if (r->gradient > MHA_D_VALUE ||
        !mha__reading(x->reading, n->n[x->axis], mha__units[x->axis], x->w->from, says, sizeof says))
        return false;
    for (size_t e = 0; e < mha__elements(n); e++) {
        mha__element at = mha__split(n, MHA__BTHC, e);
        at.at[x->axis] = x->w->from[at.at[x->axis]];
        if (at.at[x->axis] < n->n[x->axis])
            r->to[e] = ((const double *)r->from.data)[mha__join(n, MHA__BTHC, at)];
    }
    return true;
}

/* The number of a gradient that is farthest off. */
static size_t farthest(const mha__gradient_search *s, int g)
{
    size_t index[MHA_MAX_RANK] = {0}, at = 0, of = 0;
    double most = -1;
    bool more = mha_view_elements(&s->exact[g]) > 0;
    for (; more; at++, more = mha__index_next(index, s->found->of[g].shape, s->found->of[g].rank)) {
        const double off = fabs(mha_view_get(&s->found->of[g], index) - ((const double *)s->exact[g].data)[at]);
        if (off > most)
            most = off, of = at;
    }
    return of;
}

/* Whether the number that is farthest off may be the one that is read for it. */
static bool may_be_read(const mha__gradient_search *s, const mha__whole *w, int g, int axis, size_t of)
{
    const mha__extents *n = &w->rows[g].n;
    mha__element at = mha__split(n, MHA__BTHC, of);
    const double found = mha_view_get(&s->found->of[g], at.at);
    at.at[axis] = w->from[at.at[axis]];
    const size_t read = mha__join(n, MHA__BTHC, at);
    return at.at[axis] >= n->n[axis] ? found == 0
                                     : !(fabs(((const double *)s->exact[g].data)[read] - found) >
                                         MHA__LOOSE * ((const double *)s->right[g].data)[read] +
                                             MHA__READ_PART * fabs(found));
}

mha_status mha__unnamed_results(mha__gradient_search *s, const mha__whole *w, mha_error *error)
{
    const size_t readings = mha__reading_count();
    int g = 0;
    while (g < MHA_D_VALUE && !s->wrong[g])
        g++;
    const size_t of = farthest(s, g);
    for (size_t i = 0; i < 4 * readings && s->count == 0 && !mha__is_over(s); i++) {
        mha__given gives = GIVES_NOTHING;
        char says[128], text[192];
        const change x = {.bug = {.result = read_result}, .w = w, .axis = (int)(i / readings), .reading = i % readings};
        if (!s->wrong[g] || s->exact[g].rank != 4 ||
            !mha__reading(x.reading, s->exact[g].shape[x.axis], mha__units[x.axis], w->from, says, sizeof says) ||
            !may_be_read(s, w, g, x.axis, of))
            continue;
        TRY(mha__row_gives(s, &x.bug, &gives, error));
        mha__text_print(text, sizeof text, "%ss of the gradients that are wrong %s", mha__units[x.axis], says);
        mha__search_tell_there(s, gives, MHA__UNNAMED, text);
    }
    return MHA_OK;
}

mha_status mha__unnamed_steps(mha__gradient_search *s, const mha__whole *w, mha_error *error)
{
    static mha_status (*const ways[])(mha__gradient_search * s, const mha__whole *w, place what,
                                      mha_error *error) = {try_factors, try_roundings, try_kinds, try_readings};
    /* Else they would show in dQ. */
    const bool reads = s->wrong[MHA_D_QUERY] || !(s->found->of[MHA_D_QUERY].data || s->each);
    for (size_t k = 0; k < sizeof ways / sizeof *ways - !reads; k++)
        for (int what = 0; what < PLACES && s->count + s->partly == 0; what++)
            if (applies(s, (place)what))
                TRY(ways[k](s, w, (place)what, error));
    return MHA_OK;
}
