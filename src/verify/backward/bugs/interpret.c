/* Interprets rows that are data: formulas of the numbers of a map, and operators. */
#include <math.h>
#include <string.h>

#include "attention/call/definition.h"
#include "base/base.h"
#include "base/dot.h"
#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/mutate/formula.h"

/* Elements of a map: some whole lines of pairs, features or queries. */
typedef struct lines {
    const mha__backward *b;
    mha__map *map;
    const mha__gradient_bug *bug;
    size_t count, *query, *other, *line; /* other: a key or a feature */
    unsigned char *seen;
    double *room;
    int gradient; /* that a product is made for */
} lines;

enum { LINES = 1024 }; /* elements at once, or one line */

/* ---------------------------------------------------------------- names */

/* clang-format off */
enum { SCALE, CAP, NUMBER, WIDTH, SINK, SINK_OF_NEXT, P_OF_SINK, SCORE, AHEAD, PART, KEY, ORIGIN, DO, O, DO_OF_NEXT,
       O_OF_NEXT };
static const char *const names[] = {"scale", "c", "x", "d_v", "sink", "sink'", "Ps", "s", "ahead", "part", "key",
                                    "origin", "dO", "O", "dO'", "O'"};
/* clang-format on */

/* Feature c of dO, or of O, of a query. */
static double feature(const mha__backward *b, const mha__map *map, bool of_output, size_t i, size_t c)
{
    const size_t d_v = b->r->plan.d_v;
    double sum = 0;
    if (!of_output)
        return map->dO[i * d_v + c];
    for (size_t j = 0; j < map->n; j++)
        if (map->seen[i * map->n + j])
            sum += map->weights[i * map->n + j] * map->V[j * d_v + c];
    return sum;
}

static double sink_of(const mha__backward *b, size_t head)
{
    return mha_view_get(&b->r->weight[MHA_SINKS], &head);
}

/* Whether a part of an axis has a query, key, head or batch row. */
static bool is_in_part(const mha__backward *b, const mha__map *map, const mha__mutation *m, size_t i, size_t j)
{
    const size_t at[] = {map->b, i, map->head, j}, n[] = {b->r->plan.B, map->s.T_q, b->r->plan.h, map->s.S};
    return mha__part_has((mha__axis_part)m->arg, (size_t)m->step, at[m->axis], n[m->axis]);
}

static double number_of(const lines *x, int what, size_t i, size_t j)
{
    const mha__backward *b = x->b;
    const mha__map *map = x->map;
    const mha__sizes *p = &b->r->plan;
    switch (what) {
    case SCALE: return p->scale;
    case CAP: return mha__semantics_of(b->r)->softmax.softcap;
    case NUMBER: return x->bug->mutation.number;
    case WIDTH: return (double)p->d_v;
    case SINK: return sink_of(b, map->head);
    case SINK_OF_NEXT: return sink_of(b, (map->head + 1) % p->h);
    case P_OF_SINK: return exp(sink_of(b, map->head) - map->lse[i]);
    case SCORE: return mha__score_of(b, map, i, j);
    case AHEAD: return (double)(b->r->first_key + (int64_t)j - map->s.offset - (int64_t)i);
    case PART: return is_in_part(b, map, &x->bug->mutation, i, j);
    case KEY: return j < map->s.S;
    case ORIGIN: return map->b == 0 && map->head == 0;
    default: break;
    }
    return feature(b, map, what == O || what == O_OF_NEXT, what < DO_OF_NEXT ? i : (i + 1) % map->s.T_q, j);
}

static void read(const void *context, const char *name, double *to)
{
    const lines *x = context;
    const mha__map *map = x->map;
    const double *right = x->gradient == MHA_D_VALUE ? map->weights : map->d_scores;
    const struct {
        const char *name;
        const double *of;
        size_t width;
    } all[] = {{"P", map->weights, map->n},   {"dP", map->d_weights, map->n}, {"dZ", map->d_masked, map->n},
               {"dS", map->d_scores, map->n}, {"slope", map->slope, map->n},  {"right", right, map->n},
               {"D", map->sums, 1},           {"lse", map->lse, 1},           {"dlse", map->d_lse, 1}};
    int what = 0;
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (strcmp(all[k].name, name) == 0) {
            for (size_t e = 0; e < x->count; e++)
                to[e] = all[k].of[all[k].width > 1 ? x->query[e] * map->n + x->other[e] : x->query[e]];
            return;
        }
    while (strcmp(names[what], name) != 0)
        what++;
    for (size_t e = 0; e < x->count; e++)
        to[e] = number_of(x, what, x->query[e], x->other[e]);
}

/* ---------------------------------------------------------------- lines */

/* The features that a sum is over: half of them for `step` 2, d_k for 1, all for 0, or that number. */
size_t mha__width_of(const mha__backward *b, const mha__mutation *m)
{
    const mha__sizes *p = &b->r->plan;
    return m->step == 0 ? p->d_v : m->step == 1 ? p->d_k : m->step == 2 ? p->d_v / 2 : (size_t)m->step;
}

/* How many lines a row has, and how long they are. */
static size_t count_lines(const lines *x, size_t *length)
{
    const mha__map *map = x->map;
    switch (x->bug->along) {
    case MHA__ALONG_QUERIES: *length = map->s.T_q; return map->n;
    case MHA__ALONG_FEATURES: *length = mha__width_of(x->b, &x->bug->mutation); return map->s.T_q;
    case MHA__ALONG_NOTHING: *length = 1; return map->s.T_q;
    default: *length = map->n; return map->s.T_q;
    }
}

static void take_lines(lines *x, size_t first, size_t count, size_t length)
{
    const int along = x->bug->along;
    const bool pairs = along <= MHA__ALONG_QUERIES;
    x->count = count * length;
    for (size_t e = 0; e < x->count; e++) {
        const size_t line = first + e / length, k = e % length;
        x->query[e] = along == MHA__ALONG_QUERIES ? k : line, x->other[e] = along == MHA__ALONG_QUERIES ? line : k;
        x->line[e] = along == MHA__ALONG_BLOCKS ? line * length + k / (size_t)x->bug->mutation.step : line;
        x->seen[e] = pairs ? x->map->seen[x->query[e] * x->map->n + x->other[e]] == MHA__SEEN
                           : x->map->lse[x->query[e]] > -INFINITY || along != MHA__ALONG_NOTHING;
    }
}

/* ---------------------------------------------------------------- sites of formulas */

/* Puts it in place of numbers of the map. */
static void put_numbers(const lines *x)
{
    const mha__map *map = x->map;
    double *const sites[] = {map->weights,  map->slope, map->d_weights, map->d_masked,
                             map->d_scores, map->sums,  map->d_lse,     map->dO};
    for (size_t e = 0; e < x->count; e++)
        for (int k = 0; k < 8 && x->seen[e]; k++) {
            const size_t site = 1u << k & x->bug->mutation.site, i = x->query[e],
                         at = site < MHA__AT_D    ? i * map->n + x->other[e]
                              : site < MHA__AT_DO ? i
                                                  : i * x->b->r->plan.d_v + x->other[e];
            if (site && (site != MHA__AT_P || map->weights[at] > 0))
                sites[k][at] = x->room[e];
        }
}

static double *gradient_of(const mha__map *map, int g)
{
    return g == MHA_D_QUERY ? map->dQ : g == MHA_D_KEY ? map->dK : map->dV;
}

/* Adds a product with this matrix to a gradient; `read` 1: of dK and dV without its transpose. */
static void add_product(const lines *x)
{
    const mha__map *map = x->map;
    const mha__sizes *p = &x->b->r->plan;
    const int g = x->gradient;
    const bool by_rows = g == MHA_D_QUERY || x->bug->mutation.read;
    const size_t d = g == MHA_D_VALUE ? p->d_v : p->d_k;
    const double *rows = g == MHA_D_QUERY ? map->K
                         : g == MHA_D_KEY ? map->Q
                                          : map->dO,
                 scale = g == MHA_D_QUERY ? map->q_scale
                         : g == MHA_D_KEY ? map->k_scale
                                          : 1;
    double *to = gradient_of(map, g);
    for (size_t e = 0; e < x->count; e++) {
        const size_t row = by_rows ? x->query[e] : x->other[e], met = by_rows ? x->other[e] : x->query[e];
        const double f = scale * x->room[e];
        for (size_t c = 0; x->seen[e] && f != 0 && c < d; c++)
            to[row * d + c] += f * rows[met * d + c];
    }
}

/* Adds it to a gradient that has a number for each head. */
static void add_numbers(const lines *x)
{
    double *d = (double *)x->b->d[x->bug->mutation.site].data + x->map->head;
    for (size_t e = 0; e < x->count; e++)
        *d += x->seen[e] ? x->room[e] : 0;
}

static void make_lines(lines *x, void (*use)(const lines *x))
{
    const mha_allocator a = mha__allocator_default();
    size_t length, all = count_lines(x, &length);
    const size_t each = length > 0 && length < LINES ? LINES / length : 1, most = (each < all ? each : all) * length,
                 bytes = most * ((MHA__FORMULA_ROOM * sizeof(double)) + 3 * sizeof(size_t) + 1);
    x->room = most > 0 ? mha__allocate(&a, bytes) : NULL;
    x->query = x->room ? (size_t *)(void *)(x->room + MHA__FORMULA_ROOM * most) : NULL;
    for (size_t first = 0; x->room && first < all; first += each) {
        x->other = x->query + most, x->line = x->other + most, x->seen = (unsigned char *)(x->line + most);
        take_lines(x, first, all - first < each ? all - first : each, length);
        mha__formula(&(mha__elements_of){x->count, x->line, x->seen, read, x}, x->bug->formula, x->room);
        use(x);
    }
    mha__release(&a, x->room, x->room ? bytes : 0);
}

/* ---------------------------------------------------------------- operators */

static size_t size_of(const mha__backward *b, const mha__map *map, int g)
{
    const mha__sizes *p = &b->r->plan;
    return g == MHA_D_QUERY ? map->s.T_q * p->d_k : map->n * (g == MHA_D_KEY ? p->d_k : p->d_v);
}

static void scale_gradients(const mha__backward *b, mha__map *map, const mha__mutation *m)
{
    const size_t group = b->r->plan.h / b->r->plan.h_kv;
    const double f =
        m->op == MHA__TIMES ? mha__factor(m, b->r) : mha__part_has((mha__axis_part)m->arg, 0, map->head % group, group);
    for (int g = 0; g <= MHA_D_VALUE; g++)
        for (size_t e = 0; m->site >> g & 1 && e < size_of(b, map, g); e++)
            gradient_of(map, g)[e] *= map->sizes ? fabs(f) : f;
    map->q_scale *= m->site & MHA__OF_Q_SCALE ? f : 1, map->k_scale *= m->site & MHA__OF_K_SCALE ? f : 1;
}

static void exchange(const mha__backward *b, mha__map *map, const mha__mutation *m)
{
    const int other = m->site & MHA__OF_DQ ? MHA_D_QUERY : MHA_D_VALUE;
    double *x = map->dK, *y = gradient_of(map, other);
    for (size_t e = 0; e < size_of(b, map, other); e++) {
        const double kept = x[e];
        x[e] = y[e], y[e] = kept;
    }
}

static void meet(const mha__backward *b, mha__map *map, const mha__mutation *m)
{
    const size_t n = map->n, d = b->r->plan.d_v, width = mha__width_of(b, m);
    const double *rows = m->arg == MHA__ROWS_K ? map->K : map->V;
    for (size_t at = 0; at < map->s.T_q * n; at++)
        if (map->seen[at] && (at % n < map->s.S || !m->written))
            map->d_weights[at] =
                mha__dot(map->dO + (m->read ? at % n : at / n) * d, rows + (m->read ? at / n : at % n) * d, width);
}

/* The elements that a mask has for each pair, or a factor. */
static void scale_all(mha__backward *b, const mha__mutation *m)
{
    const mha_view *d = &b->d[m->site];
    const double f = m->read ? mha__mask_share(b) : mha__factor(m, b->r);
    for (size_t e = 0; d->data && e < mha_view_elements(d); e++)
        ((double *)d->data)[e] *= f;
}

double mha__mask_share(const mha__backward *b)
{
    const mha__sizes *p = &b->r->plan;
    return (double)mha_view_elements(&b->d[MHA_D_MASK]) / ((double)p->B * (double)p->h * (double)p->T_q * (double)p->S);
}

static void operate(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const mha__mutation *m = &bug->mutation;
    double *const rows[] = {map ? map->Q : NULL, map ? map->K : NULL, map ? map->V : NULL, map ? map->dO : NULL};
    const size_t count = map ? (m->arg == MHA__ROWS_K ? map->s.S : map->s.T_q) * b->r->plan.d_v : 0;
    switch (m->op) {
    case MHA__TIMES:
    case MHA__KEEPS: scale_gradients(b, map, m); break;
    case MHA__EXCHANGES: exchange(b, map, m); break;
    case MHA__TIMES_ALL: scale_all(b, m); break;
    case MHA__TAKES: memcpy(rows[m->arg], rows[m->read], count * sizeof **rows); break;
    case MHA__MEETS: meet(b, map, m); break;
    case MHA__READS: mha__read_rows(b, map, bug); break;
    case MHA__READS_NUMBERS: mha__read_numbers(b, map, bug); break;
    case MHA__RECOMPUTES: mha__recompute(b, map, bug); break;
    case MHA__TURNS:
        for (int side = 0; side < 2; side++)
            b->turns[side] = m->site >> side & 1 ? (mha__turning)m->arg : b->turns[side];
        break;
    case MHA__TURNS_BY: mha__turn_rows(b, m); break;
    case MHA__NORMALISES: mha__norm_by_formula(b, bug); break;
    case MHA__GATES: mha__gate_by_formula(b, bug); break;
    case MHA__WAYS: mha__change_ways(b, m); break;
    case MHA__KEEPS_OF_NORM: mha__keep_of_norm(b, m); break;
    default: map->q_scale = map->k_scale = mha__scale_of(b, (mha__other_scale)m->arg); break;
    }
}

/* Makes the products of a formula. */
static void make_products(lines *x)
{
    const mha__mutation *m = &x->bug->mutation;
    for (int g = MHA_D_QUERY; g <= MHA_D_VALUE; g++) {
        x->gradient = g;
        if (m->site >> g & 1 && m->op == MHA__PRODUCT)
            memset(gradient_of(x->map, g), 0, size_of(x->b, x->map, g) * sizeof(double));
        if (m->site >> g & 1)
            make_lines(x, add_product);
    }
}

void mha__change(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    lines x = {.b = b, .map = map, .bug = bug};
    const int op = bug->mutation.op;
    if (bug->change)
        bug->change(b, map, bug);
    else if (!bug->formula || op >= MHA__TIMES)
        operate(b, map, bug);
    else if (!map->sizes && (op == MHA__PRODUCT || op == MHA__MORE_PRODUCT)) /* the errors stay: they are larger */
        make_products(&x);
    else if (!map->sizes)
        make_lines(&x, op == MHA__ADDS ? add_numbers : put_numbers);
}
