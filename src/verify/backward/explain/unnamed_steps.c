/* Unnamed changes of the operands of dS and P (D, lse, dP, scores), and of the places where gradients are written. */
#include <math.h>
#include <string.h>

#include "attention/call/definition.h"
#include "base/base.h"
#include "base/dot.h"
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

static const struct {
    const char *says; /* what is changed */
    int rows;         /* that are read; -1: numbers of each query, or of each pair */
    mha__backward_step step;
    unsigned leaves;
} places[] = {
    [THE_D] = {"D", -1, MHA__BACKWARD_SUMS, MHA__LEAVES_V},
    [THE_LSE] = {"lse", -1, MHA__BACKWARD_SUMS, 0},
    [THE_DLSE] = {"dlse", -1, MHA__BACKWARD_SUMS, MHA__LEAVES_V},
    [DO_IN_DP] = {"dO in dP", MHA__ROWS_DO, MHA__BACKWARD_SUMS, MHA__LEAVES_V},
    [V_IN_DP] = {"v in dP", MHA__ROWS_V, MHA__BACKWARD_SUMS, MHA__LEAVES_V},
    [DO_EVERYWHERE] = {"dO", MHA__ROWS_DO, MHA__BACKWARD_READ, 0},
    [Q_IN_P] = {"q in P", MHA__ROWS_Q, MHA__BACKWARD_SUMS, 0},
    [K_IN_P] = {"k in P", MHA__ROWS_K, MHA__BACKWARD_SUMS, 0},
    [Q_IN_P_AND_DK] = {"q in P and dK", MHA__ROWS_Q, MHA__BACKWARD_SUMS, 0},
    [K_IN_P_AND_DQ] = {"k in P and dQ", MHA__ROWS_K, MHA__BACKWARD_SUMS, 0},
    [THE_P] = {"P", -1, MHA__BACKWARD_SUMS, 0},
    [THE_DP] = {"dP", -1, MHA__BACKWARD_SUMS, MHA__LEAVES_V},
    [O_IN_D] = {"O in D", MHA__ROWS_O, MHA__BACKWARD_SUMS, MHA__LEAVES_V},
    [DO_IN_D] = {"dO in D", MHA__ROWS_DO, MHA__BACKWARD_SUMS, MHA__LEAVES_V},
};

typedef struct change {
    mha__gradient_bug bug;
    const mha__whole *w;
    place what;
    int axis; /* of a reading; -1: none */
    int kind; /* of the rows that are read */
    int bits; /* 0: not rounded */
    double factor;
    size_t reading; /* of results */
    size_t first;   /* query of the map's first row */
} change;

static bool weighs(place what)
{
    return what >= Q_IN_P && what <= K_IN_P_AND_DQ;
}

/* Rows of a map as they are read. */
static void fill(const change *x, const mha__map *map, double *to, size_t count)
{
    const mha__whole *w = x->w;
    const bool keys = mha__is_of_keys(x->kind);
    const size_t d = mha__width_of_rows(w, x->kind), heads = keys ? w->G : w->H, rows = keys ? w->S : w->T;
    for (size_t t = 0; t < count; t++) {
        size_t at[3] = {map->b, t + (mha__is_of_keys(places[x->what].rows) ? 0 : x->first), keys ? map->g : map->head};
        if (x->axis >= 0 && x->axis < MHA__C)
            at[x->axis] = w->from[at[x->axis]];
        const bool has = at[0] < w->B && at[1] < rows && at[2] < heads;
        const double *from = has ? w->rows[x->kind] + ((at[0] * rows + at[1]) * heads + at[2]) * d : NULL;
        for (size_t c = 0; c < d; c++) {
            const size_t of = x->axis == MHA__C ? w->from[c] : c;
            const double y = from && of < d ? x->factor * from[of] : 0;
            to[t * d + c] = x->bits ? mha__round_bits(y, x->bits) : y;
        }
    }
}

static void change_numbers(const change *x, mha__backward *b, mha__map *map)
{
    const mha__whole *w = x->w;
    for (size_t i = 0; i < map->s.T_q; i++) {
        size_t at[3] = {map->b, i + x->first, map->head};
        if (x->axis >= 0)
            at[x->axis] = w->from[at[x->axis]];
        const bool has = at[0] < w->B && at[1] < w->T && at[2] < w->H;
        const size_t index[3] = {at[0], at[2], at[1]};
        double *P = map->weights + i * map->n, *dP = map->d_weights + i * map->n;
        if (x->what == THE_D)
            map->sums[i] = has ? x->factor * w->sums[(at[0] * w->H + at[2]) * w->T + at[1]] : 0;
        if (x->what == THE_DLSE)
            map->d_lse[i] = has ? x->factor * mha_view_get(&b->given->d_lse, index) : 0;
        const double lse = has ? x->factor * mha_view_get(&b->stages[MHA_STAGE_LSE], index) : 0;
        const double f = x->what == THE_P                                               ? x->factor
                         : x->what == THE_LSE && isfinite(lse) && isfinite(map->lse[i]) ? exp(map->lse[i] - lse)
                                                                                        : 1;
        for (size_t j = 0; j < map->n; j++)
            P[j] *= f, dP[j] *= x->what == THE_DP ? x->factor : 1;
    }
}

/* D of other rows: rowsum(dO O). `room`: for the rows. */
static void sum_again(const change *x, mha__map *map, double *room)
{
    const mha__whole *w = x->w;
    const size_t d = w->b->r->plan.d_v;
    fill(x, map, room, map->s.T_q);
    for (size_t i = 0; i < map->s.T_q; i++) {
        const double *O = w->rows[MHA__ROWS_O] + ((map->b * w->T + i + x->first) * w->H + map->head) * d;
        map->sums[i] = mha__dot(room + i * d, x->what == O_IN_D ? map->dO + i * d : O, d);
    }
}

static void make(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const change *x = (const change *)(const void *)bug;
    const int kind = places[x->what].rows;
    const mha_allocator a = mha__allocator_default();
    const bool keys = mha__is_of_keys(kind);
    const size_t rows = keys ? map->s.S : map->s.T_q, d = kind < 0 ? 0 : mha__width_of_rows(x->w, kind),
                 bytes = rows * d * sizeof(double);
    if (kind < 0) {
        change_numbers(x, b, map);
        return;
    }
    double *room = mha__allocate(&a, bytes + 1);
    if (!room)
        return;
    if (x->what == O_IN_D || x->what == DO_IN_D) {
        sum_again(x, map, room);
        mha__release(&a, room, bytes + 1);
        return;
    }
    double *own = kind == MHA__ROWS_Q ? map->Q : kind == MHA__ROWS_K ? map->K : kind == MHA__ROWS_V ? map->V : map->dO;
    memcpy(room, own, bytes);
    fill(x, map, own, rows);
    if (weighs(x->what))
        mha__weigh_again(b, map);
    for (size_t at = 0; (x->what == DO_IN_DP || x->what == V_IN_DP) && at < map->s.T_q * map->n; at++)
        if (map->seen[at])
            map->d_weights[at] = mha__d_weight_of(b, map->dO + at / map->n * d, map->V + at % map->n * b->r->plan.d_v);
    if (x->what != DO_EVERYWHERE && x->what != Q_IN_P_AND_DK && x->what != K_IN_P_AND_DQ)
        memcpy(own, room, bytes);
    mha__release(&a, room, bytes + 1);
}

/* ---------------------------------------------------------------- the row of dQ that is farthest off */

/* Makes P of a map of one query again, of rows that are read otherwise. */
static void weigh_row(const change *x, mha__backward *b, mha__map *map, double *room)
{
    const bool keys = mha__is_of_keys(places[x->what].rows);
    const size_t d = b->r->plan.d_k, rows = keys ? map->n : 1;
    double *own = keys ? map->K : map->Q;
    for (size_t j = 0; j < map->n; j++)
        map->weights[j] *= exp(-mha__softcapped(b, mha__score_of(b, map, 0, j)));
    memcpy(room, own, rows * d * sizeof *own);
    fill(x, map, own, rows);
    for (size_t j = 0; j < map->n; j++) {
        const double score = mha__score_of(b, map, 0, j);
        map->weights[j] *= exp(mha__softcapped(b, score));
        map->slope[j] = mha__slope_of(score, mha__semantics_of(b->r)->softmax.softcap);
    }
    if (x->what == Q_IN_P || x->what == K_IN_P)
        memcpy(own, room, rows * d * sizeof *own);
}

/* Whether a change may give that row. */
static bool may_give(mha__gradient_search *s, const change *x)
{
    const mha__whole *w = x->w;
    mha__backward *b = &s->b;
    change row = *x;
    double largest = 0, off = 0;
    if (!w->one || !s->wrong[MHA_D_QUERY]) /* dQ is right */
        return true;
    mha__map *map = &w->one->map;
    const size_t T = w->T, S = w->S, d = b->r->plan.d_k, i = w->one->query, at = (map->b * w->H + map->head) * T + i;
    memcpy(map->weights, w->matrix[MHA__MATRIX_P] + at * S, S * sizeof(double));
    memcpy(map->d_weights, w->matrix[MHA__MATRIX_DP] + at * S, S * sizeof(double));
    memcpy(map->slope, w->one->slope, S * sizeof(double));
    memcpy(map->Q, w->one->Q, d * sizeof(double)), memcpy(map->dO, w->one->dO, b->r->plan.d_v * sizeof(double));
    map->sums[0] = w->sums[at], map->lse[0] = w->one->lse, map->d_lse[0] = w->one->d_lse;
    row.first = i;
    if (weighs(x->what))
        weigh_row(&row, b, map, w->one->room);
    else
        make(b, map, &row.bug);
    if (x->what == DO_EVERYWHERE)
        for (size_t j = 0; j < S; j++)
            map->d_weights[j] = mha__d_weight_of(b, map->dO, map->V + j * b->r->plan.d_v);
    mha__make_own(b, map, s->form | (x->what == DO_EVERYWHERE ? MHA__OWN_D : 0));
    for (size_t c = 0; c < d; c++) {
        const double found = w->found[MHA_D_QUERY][((map->b * T + i) * w->H + map->head) * d + c];
        double sum = 0;
        for (size_t j = 0; j < S; j++)
            if (map->weights[j] != 0)
                sum += map->weights[j] * (map->d_weights[j] - map->sums[0] + map->d_lse[0]) * map->slope[j] *
                       map->K[j * d + c];
        largest = fmax(largest, fabs(found)), off = fmax(off, fabs(found - b->r->plan.scale * sum));
    }
    if (x->what == K_IN_P_AND_DQ)
        memcpy(map->K, w->one->room, S * d * sizeof(double));
    return !(off > MHA__STEP_PART * largest);
}

/* Tries a change in all forms of P and D that it leaves open. */
static mha_status try_change(mha__gradient_search *s, const change *x, const char *text, mha_error *error)
{
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
static size_t extent_of(const mha__whole *w, place what, int kind, int axis)
{
    const bool keys = mha__is_of_keys(kind);
    const size_t n[] = {w->B, keys ? w->S : w->T, keys ? w->G : w->H, kind < 0 ? 0 : mha__width_of_rows(w, kind)};
    return what == THE_P || what == THE_DP ? 0 : n[axis];
}

static bool applies(const mha__gradient_search *s, place what)
{
    return (what != THE_DLSE || s->b.given->d_lse.data) && (!weighs(what) || mha__can_weigh_again(&s->b));
}

static change change_of(const mha__whole *w, place what)
{
    return (change){.bug = {.step = places[what].step, .change = make, .leaves = places[what].leaves},
                    .w = w,
                    .what = what,
                    .axis = -1,
                    .kind = places[what].rows,
                    .factor = 1};
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
        x.factor = all[i].number;
        mha__text_print(text, sizeof text, "%s times %s", places[what].says, all[i].says);
        if (all[i].number != 1 && isfinite(all[i].number))
            TRY(try_change(s, &x, text, error));
    }
    return MHA_OK;
}

static mha_status try_roundings(mha__gradient_search *s, const mha__whole *w, place what, mha_error *error)
{
    for (size_t i = 0; places[what].rows >= 0 && i < 4 && s->count + s->partly == 0; i++) {
        char text[64];
        change x = change_of(w, what);
        x.bits = mha__types[i].bits;
        mha__text_print(text, sizeof text, "%s rounded to %s", places[what].says, mha__types[i].type);
        TRY(try_change(s, &x, text, error));
    }
    return MHA_OK;
}

/* Rows of another kind. */
static mha_status try_kinds(mha__gradient_search *s, const mha__whole *w, place what, mha_error *error)
{
    const int own = places[what].rows;
    for (int kind = 0; own >= 0 && kind < MHA__ROW_KINDS && s->count + s->partly == 0; kind++) {
        char text[64];
        change x = change_of(w, what);
        x.kind = kind;
        mha__text_print(text, sizeof text, "%s in place of %s", mha__row_kinds[kind], places[what].says);
        if (kind != own && mha__width_of_rows(w, kind) == mha__width_of_rows(w, own) &&
            (mha__is_of_keys(kind) == mha__is_of_keys(own) || w->T == w->S))
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
        x.axis = (int)(i / readings);
        if (!mha__reading(i % readings, extent_of(w, what, x.kind, x.axis), mha__units[x.axis], w->from, says,
                          sizeof says))
            continue;
        mha__text_print(text, sizeof text, "%ss of %s %s", mha__units[x.axis], places[what].says, says);
        TRY(try_change(s, &x, text, error));
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- what goes out */

static bool read_result(const mha__wrong_gradient *r, const mha__gradient_bug *bug)
{
    const change *x = (const change *)(const void *)bug;
    const size_t *n = r->from.shape;
    const double *from = r->from.data;
    char says[128];
    if (r->gradient > MHA_D_VALUE || r->from.rank != 4 ||
        !mha__reading(x->reading, n[x->axis], mha__units[x->axis], x->w->from, says, sizeof says))
        return false;
    for (size_t e = 0; e < mha_view_elements(&r->from); e++) {
        size_t at[4] = {e / n[3] / n[2] / n[1], e / n[3] / n[2] % n[1], e / n[3] % n[2], e % n[3]};
        at[x->axis] = x->w->from[at[x->axis]];
        if (at[x->axis] < n[x->axis])
            r->to[e] = from[((at[0] * n[1] + at[1]) * n[2] + at[2]) * n[3] + at[3]];
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
    const size_t *n = s->exact[g].shape;
    const double *exact = s->exact[g].data, *errors = s->right[g].data;
    size_t at[4] = {of / n[3] / n[2] / n[1], of / n[3] / n[2] % n[1], of / n[3] % n[2], of % n[3]};
    const double found = mha_view_get(&s->found->of[g], at);
    at[axis] = w->from[at[axis]];
    const size_t read = ((at[0] * n[1] + at[1]) * n[2] + at[2]) * n[3] + at[3];
    return at[axis] >= n[axis]
               ? found == 0
               : !(fabs(exact[read] - found) > MHA__LOOSE * errors[read] + MHA__READ_PART * fabs(found));
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
