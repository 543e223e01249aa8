/* Bugs of rows on their way back: how the rotation is turned back, and the norms of q and k. */
#include <math.h>
#include <string.h>

#include "attention/call/definition.h"
#include "attention/core/exact/exact_rows.h"
#include "base/base.h"
#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/mutate/formula.h"

/* Sites: sides, one or two of them. */
enum { OF_Q = 1, OF_K = 2, OF_V = 4 };

/* ---------------------------------------------------------------- rotation */

/* clang-format off */
/* By which rows are turned in place of their position, or with which rule. */
enum { ONE_MORE, ONE_LESS, TWICE,
       FROM_ROW,    /* the number of the row, without an offset */
       WITH_OFFSET, /* their position and the offset of the queries */
       IN_BLOCKS,   /* the number of the row in its block of `step` */
       SHIFTED,     /* their position less `step` */
       OTHER_PAIRS,  /* halves for neighbours, or the other way round */
       ALL_FEATURES, /* not only the rotated ones */
       WITHOUT_SINES,
       HALF_FORWARD, /* the second number of a pair by the angle of the forward */
       FOUND_BASE    /* another base, which is read from what somebody computed */ };
/* clang-format on */

/* The rotation is known by angles of positions, and changes no length. */
bool mha__has_angles(const mha__backward *b, const mha__gradient_bug *bug)
{
    const mha__resolved *r = b->r;
    const mha__mutation *m = &bug->mutation;
    const size_t longest = r->plan.T_q > r->plan.T_k ? r->plan.T_q : r->plan.T_k;
    const mha_qkv *qkv = &mha__semantics_of(r)->qkv;
    if (qkv->rope.kind == MHA_ROPE_NONE || r->pages.keys.data || qkv->rope.cos_table.data ||
        r->qkv.rope.attention_factor != 1 || qkv->norm.after_rope)
        return false;
    if (m->arg == IN_BLOCKS)
        return longest > (size_t)m->step;
    if (m->site & OF_V && r->plan.d_k != r->plan.d_v)
        return false;
    if (m->arg == WITH_OFFSET)
        return mha__semantics_of(r)->place.offset != 0;
    if (m->arg == ALL_FEATURES)
        return r->qkv.rope.dim < r->plan.d_k && !mha__semantics_of(r)->qkv.rope.frequencies.data;
    return m->arg != FOUND_BASE || (!r->layer && !mha__semantics_of(r)->qkv.rope.frequencies.data &&
                                    r->qkv.rope.dim > 2 && r->norm[0] == MHA_NORM_NONE && r->norm[1] == MHA_NORM_NONE);
}

/* Rows of a gradient of a side, of one sequence. */
typedef struct turned {
    const mha__backward *b;
    mha__side side;
    mha_gradient gradient;
    mha__sequence s;
    size_t heads, width, rows, from;
} turned;

static turned turned_rows(const mha__backward *b, int which, size_t sequence)
{
    const mha__sizes *p = &b->r->plan;
    const mha__sequence s = mha__resolved_sequence(b->r, sequence);
    const bool keys = which != OF_Q;
    return (turned){b,
                    keys ? MHA_KEYS : MHA_QUERIES,
                    which == OF_Q   ? MHA_D_QUERY
                    : which == OF_K ? MHA_D_KEY
                                    : MHA_D_VALUE,
                    s,
                    keys ? p->h_kv : p->h,
                    (keys ? p->h_kv : p->h) * p->d_k,
                    keys ? s.T_k : s.T_q,
                    keys ? s.k_from : s.q_from};
}

static double *row_of(const turned *x, size_t i)
{
    const mha_view *d = &x->b->d[x->gradient];
    return (double *)d->data + (x->s.batch * d->shape[1] + x->from + i) * x->width;
}

/* Makes a row that is to be turned back what a backward gives that mixes up the sines. */
static void mix_sines(const turned *x, int how, double *row, size_t t, int64_t p)
{
    const mha__resolved *r = x->b->r;
    const size_t d = r->plan.d_k, half = r->qkv.rope.dim / 2,
                 from = mha__semantics_of(r)->qkv.rope.last ? d - r->qkv.rope.dim : 0;
    const bool side_by_side = mha__semantics_of(r)->qkv.rope.kind == MHA_ROPE_INTERLEAVED;
    double *forward = x->b->row;
    memcpy(forward, row, x->width * sizeof *row);
    mha__exact_rotate(r, forward, x->heads, x->s.batch, t, p, false);
    mha__exact_rotate(r, row, x->heads, x->s.batch, t, p, true);
    for (size_t e = 0; e < x->width; e++) {
        const size_t c = e % d - from;
        const bool second = c < r->qkv.rope.dim && (side_by_side ? c % 2 > 0 : c >= half);
        row[e] = how == WITHOUT_SINES ? (row[e] + forward[e]) / 2 : second ? forward[e] : row[e];
    }
}

/* Turns a row so that the backward, which turns it back from its position on, gives what the bug does. */
static void turn_row(const turned *x, const mha__resolved *with, const mha__mutation *m, size_t i)
{
    const mha__resolved *r = x->b->r;
    const int64_t p = mha__exact_position(r, x->side, &x->s, i);
    double *row = row_of(x, i);
    const size_t t = x->from + i;
    if (x->gradient == MHA_D_VALUE) { /* is turned back as dK is */
        mha__exact_rotate(r, row, x->heads, x->s.batch, t, p, true);
        return;
    }
    const int64_t forward = m->arg == ONE_LESS      ? 1
                            : m->arg == ONE_MORE    ? -1
                            : m->arg == TWICE       ? -p
                            : m->arg == FROM_ROW    ? p - (int64_t)i
                            : m->arg == WITH_OFFSET ? -x->s.offset
                            : m->arg == SHIFTED     ? (int64_t)m->step
                            : m->arg == IN_BLOCKS   ? p - (int64_t)(i % (size_t)m->step)
                                                    : p;
    if (m->arg == WITHOUT_SINES || m->arg == HALF_FORWARD)
        mix_sines(x, m->arg, row, t, p);
    else if (m->arg >= OTHER_PAIRS)
        mha__exact_rotate(with, row, x->heads, x->s.batch, t, p, true);
    mha__exact_rotate(r, row, x->heads, x->s.batch, t, forward, false);
}

/* The base by which somebody turned the second pair of the rows after the first one; 0: nothing tells. Bases are
 * round numbers: two digits are left. */
static double found_base(const mha__backward *b, int which)
{
    const mha__resolved *r = b->r;
    const size_t d = r->plan.d_k, half = r->qkv.rope.dim / 2,
                 from = mha__semantics_of(r)->qkv.rope.last ? d - r->qkv.rope.dim : 0;
    const bool side_by_side = mha__semantics_of(r)->qkv.rope.kind == MHA_ROPE_INTERLEAVED;
    const size_t one = from + (side_by_side ? 2 : 1), two = from + (side_by_side ? 3 : half + 1);
    double along = 0, across = 0;
    for (size_t sequence = 0; sequence < r->plan.B; sequence++) {
        const turned x = turned_rows(b, which, sequence);
        const mha_view *found = &b->given->of[x.gradient];
        for (size_t i = 0; i < x.rows && found->data; i++)
            for (size_t g = 0; g < x.heads && mha__exact_position(r, x.side, &x.s, i) == 1; g++) {
                const double *D = row_of(&x, i) + g * d,
                             F1 = mha_view_get(found, (size_t[]){x.s.batch, x.from + i, g, one}),
                             F2 = mha_view_get(found, (size_t[]){x.s.batch, x.from + i, g, two});
                along += D[one] * F1 + D[two] * F2, across += D[two] * F1 - D[one] * F2;
            }
    }
    const double base = pow(atan2(across, along), -(double)r->qkv.rope.dim / 2), unit = pow(10, floor(log10(base)) - 1);
    return isfinite(base) && base > 1 ? nearbyint(base / unit) * unit : 0;
}

void mha__turn_rows(mha__backward *b, const mha__mutation *m)
{
    mha__planned otherwise = *mha__planned_of(b->r);
    mha__resolved *with = &otherwise.call;
    mha_rope_kind *kind = &otherwise.semantics.qkv.rope.kind;
    with->qkv.rope.dim = m->arg == ALL_FEATURES ? with->plan.d_k : with->qkv.rope.dim;
    if (m->arg == OTHER_PAIRS)
        *kind = *kind == MHA_ROPE_INTERLEAVED ? MHA_ROPE_HALF_SPLIT : MHA_ROPE_INTERLEAVED;
    for (int which = OF_Q; which <= OF_K; which *= 2)
        if (m->arg == FOUND_BASE && (with->qkv.rope.base == b->r->qkv.rope.base || with->qkv.rope.base == 0))
            with->qkv.rope.base = found_base(b, which);
    for (int which = OF_Q; which <= OF_V && with->qkv.rope.base > 0; which *= 2)
        for (size_t sequence = 0; m->site & which && sequence < b->r->plan.B; sequence++) {
            const turned x = turned_rows(b, which, sequence);
            for (size_t i = 0; i < x.rows; i++)
                turn_row(&x, with, m, i);
        }
}

bool mha__turns_shifted(const mha__backward *b, int sides, long long n, mha__gradient_bug *bug)
{
    *bug = (mha__gradient_bug){.step = MHA__BACKWARD_HEADS,
                               .leaves = MHA__LEAVES_V | (sides & OF_Q ? 0u : MHA__LEAVES_Q) |
                                         (sides & OF_K ? 0u : MHA__LEAVES_K),
                               .mutation = {.op = MHA__TURNS_BY, .site = (unsigned char)sides, .arg = SHIFTED,
                                            .step = n}};
    return mha__has_angles(b, bug);
}

/* ---------------------------------------------------------------- rows that are not rotated */

enum { NOT_TURNED_BACK = 8 };

static bool has_unrotated(const mha__backward *b, const mha__gradient_bug *bug)
{
    const mha__gradient_bug plain = {.mutation = {.site = OF_Q, .arg = TWICE}};
    const bool weighs = (bug->mutation.site & (OF_Q | OF_K)) == (OF_Q | OF_K);
    return mha__has_angles(b, &plain) && !mha__holds_keys(b->r) && (!weighs || mha__can_weigh_again(b));
}

/* What reads Q, or K, reads the rows before their rotation; what reads both weighs them, too. */
static void read_unrotated(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const mha__resolved *r = b->r;
    const int which = bug->mutation.site;
    for (size_t i = 0; which & OF_Q && i < map->s.T_q; i++)
        mha__exact_rotate(r, map->Q + i * r->plan.d_k, 1, map->s.batch, map->s.q_from + i,
                          mha__exact_position(r, MHA_QUERIES, &map->s, i), true);
    for (size_t j = 0; which & OF_K && j < map->s.S; j++)
        mha__exact_rotate(r, map->K + j * r->plan.d_k, 1, map->s.k_batch, map->s.k_from + j,
                          mha__exact_position(r, MHA_KEYS, &map->s, j), true);
    if ((which & (OF_Q | OF_K)) == (OF_Q | OF_K))
        mha__weigh_again(b, map);
    if (which & NOT_TURNED_BACK)
        b->turns[0] = b->turns[1] = MHA__NOT_TURNED;
}

/* ---------------------------------------------------------------- norms */

bool mha__has_norms(const mha__backward *b, const mha__gradient_bug *bug)
{
    const bool sides[2] = {b->r->norm[MHA_QUERIES] != MHA_NORM_NONE || b->r->latent.q_rank > 0,
                           b->r->norm[MHA_KEYS] != MHA_NORM_NONE || b->r->latent.kv_rank > 0};
    return bug->mutation.site == (OF_Q | OF_K) ? sides[0] || sides[1] : sides[0] && sides[1]; /* one of two */
}

typedef struct normed {
    const mha__norm *norm;
    size_t first, n;
    const double *x, *dy;
    double mean, r;
} normed;

static void read_norm(const void *context, const char *name, double *to)
{
    const normed *x = context;
    const double N = x->norm->kind == MHA_NORM_L2 ? 1 : (double)x->n, plus = x->norm->plus_one ? -1 : 1;
    for (size_t c = 0; c < x->n; c++)
        switch (*name) {
        case 'd': to[c] = x->dy[c]; break;
        case 'z': to[c] = x->x[c] - x->mean; break;
        case 'w': to[c] = mha__norm_weight(x->norm, x->first + c, x->n); break;
        case 'v': to[c] = mha__norm_weight(x->norm, x->first + c, x->n) + plus; break;
        case 'r': to[c] = x->r; break;
        case 'l': to[c] = x->norm->kind == MHA_NORM_LAYER; break;
        default: to[c] = *name == 'N' ? N : (double)x->n; break;
        }
}

/* With z = x - m right is dx = w dy / r - z sum(w dy z) / (r^3 N), less its mean where m is not 0, and dw = dy z / r.
 * v: 1 + w for w, or w for 1 + w; layer: 1 where m is not 0. */
#define ALONG "sum(w*dy*z)"
#define DX "w*dy/r-z*" ALONG "/(r^3*N)"

/* A row has a formula of dx, or with `read` 1 of dw. `written` 1: its mean is not taken away; `step` 1: without eps. */
static void back_otherwise(const mha__norm *norm, size_t first, size_t n, const double *x, double *d)
{
    const mha_allocator a = mha__allocator_default();
    const mha__gradient_bug *bug = norm->otherwise->how;
    const mha__mutation *m = &bug->mutation;
    const size_t bytes = (MHA__FORMULA_ROOM + 1) * n * sizeof(double);
    normed of = {norm, first, n, x, d, 0, 0};
    const mha__elements_of all = {.count = n, .read = read_norm, .context = &of};
    double squares = 0, mean = 0, *room = mha__allocate(&a, bytes + 1);
    if (!room)
        return;
    double *dx = room + MHA__FORMULA_ROOM * n;
    for (size_t c = 0; c < n && norm->kind == MHA_NORM_LAYER; c++)
        of.mean += x[c] / (double)n;
    for (size_t c = 0; c < n; c++)
        squares += (x[c] - of.mean) * (x[c] - of.mean) / (norm->kind == MHA_NORM_L2 ? 1 : (double)n);
    of.r = sqrt(squares + (m->step > 0 ? 0 : norm->eps));
    mha__formula(&all, m->read ? DX : bug->formula, room);
    memcpy(dx, room, n * sizeof *dx);
    mha__formula(&all, m->read ? bug->formula : "dy*z/r", room);
    for (size_t c = 0; c < n; c++) {
        const mha_view *const of_bias = norm->d_bias, *const of_weight = norm->d_weight;
        if (of_weight->data)
            ((double *)of_weight->data)[first + c] += room[c];
        if (of_bias->data)
            ((double *)of_bias->data)[first + c] += d[c];
        mean += norm->kind == MHA_NORM_LAYER && !m->written ? dx[c] / (double)n : 0;
    }
    for (size_t c = 0; c < n; c++)
        d[c] = dx[c] - mean;
    mha__release(&a, room, bytes + 1);
}

void mha__norm_by_formula(mha__backward *b, const mha__gradient_bug *bug)
{
    b->norms = (mha__norm_otherwise){back_otherwise, bug};
    b->norms_of = bug->mutation.site;
}

/* The gradient of the weight of a norm is that of a part of the batch rows, rows or heads. */
bool mha__has_norm_part(const mha__backward *b, const mha__gradient_bug *bug)
{
    const mha__mutation *m = &bug->mutation;
    const mha__sizes *p = &b->r->plan;
    bool any = false, both = true;
    for (int side = 0; side < 2; side++) {
        const mha_gradient w = (mha_gradient)(MHA_D_WEIGHTS + (side ? MHA_K_NORM : MHA_Q_NORM));
        const bool has = b->r->norm[side] == MHA_NORM_HEAD && b->d[w].data;
        any |= has && m->site >> side & 1, both &= has;
    }
    return any && (both || m->site == (OF_Q | OF_K)) && !mha__semantics_of(b->r)->qkv.norm.after_rope &&
           !mha__holds_keys(b->r) && (m->axis == MHA__H ? p->h : m->axis == MHA__B ? p->B : p->T_q) > 1;
}

static bool is_in(const mha__mutation *m, const turned *x, size_t i, size_t head)
{
    const size_t batches = x->b->rows[x->side].shape[0] / x->b->d[x->gradient].shape[1],
                 at[] = {x->s.batch, i, head}, n[] = {batches, x->rows, x->heads};
    return mha__part_has((mha__axis_part)m->arg, 1, at[m->axis], n[m->axis]);
}

/* Takes away what the other rows are going to add. */
void mha__keep_of_norm(mha__backward *b, const mha__mutation *m)
{
    const mha__resolved *r = b->r;
    const size_t d_k = r->plan.d_k;
    const mha_norm_rule *rule = &mha__semantics_of(r)->qkv.norm;
    for (int side = 0; side < 2; side++) {
        const mha_weight w = side ? MHA_K_NORM : MHA_Q_NORM, bias = side ? MHA_K_NORM_BIAS : MHA_Q_NORM_BIAS;
        const mha__norm norm = {rule->kind,    rule->plus_one,           r->qkv.norm_eps,
                                &r->weight[w], &b->d[MHA_D_WEIGHTS + w], &b->d[MHA_D_WEIGHTS + bias],
                                NULL};
        const bool parts = r->norm[side] == MHA_NORM_HEAD && m->site >> side & 1;
        for (size_t sequence = 0; parts && sequence < r->plan.B; sequence++) {
            const turned x = turned_rows(b, side ? OF_K : OF_Q, sequence);
            for (size_t i = 0; i < x.rows; i++) {
                const size_t at = x.s.batch * b->d[x.gradient].shape[1] + x.from + i;
                const int64_t p = mha__exact_position(r, x.side, &x.s, i);
                for (size_t c = 0; c < x.width; c++)
                    b->row[c] = -row_of(&x, i)[c] * (side ? 1 : mha__exact_query_scale(r, p));
                mha__exact_rotate(r, b->row, x.heads, x.s.batch, x.from + i, p, true);
                for (size_t head = 0; head < x.heads; head++)
                    if (!is_in(m, &x, i, head))
                        mha__norm_back(&norm, 0, d_k, mha__matrix_row(&b->rows[x.side], at) + head * d_k,
                                       b->row + head * d_k);
            }
        }
    }
}

/* clang-format off */
#define ROW(name, what, rounds, operator, leaving, where, ...) \
    {.shown = {name, what, rounds}, .step = MHA__BACKWARD_HEADS, .leaves = leaving, \
        .mutation = {.op = MHA__##operator, .site = where, __VA_ARGS__}}
#define TURN(name, what, sides, turning) \
    ROW("rope-" name, what, false, TURNS, MHA__LEAVES_V, sides, .arg = turning)
#define ANGLE(name, what, sides, ...) \
    ROW("rope-" name, what, false, TURNS_BY, MHA__LEAVES_V, sides, .arg = __VA_ARGS__)
#define ANGLES(name, what, ...) \
    ANGLE(name, "dQ and dK are turned back " what, OF_Q | OF_K, __VA_ARGS__), \
    ANGLE("dq-" name, "dQ is turned back " what, OF_Q, __VA_ARGS__), \
    ANGLE("dk-" name, "dK is turned back " what, OF_K, __VA_ARGS__)
#define BLOCK(B) \
    ANGLES("by-blocks-" #B, "by positions that begin at 0 in each block of " #B " rows", IN_BLOCKS, .step = B)
#define UNROTATED(name, what, which, stage, leaves) \
    {{"rope-" name, what, false}, has_unrotated, MHA__BACKWARD_##stage, read_unrotated, NULL, leaves, \
        .mutation = {.site = which}}
#define NORM_OF(name, what, text, sides, leaving, ...) \
    {.shown = {"norm-" name, what, false}, .step = MHA__BACKWARD_HEADS, .leaves = leaving, .formula = text, \
        .mutation = {.op = MHA__NORMALISES, .site = sides, __VA_ARGS__}}
#define NORM_BY(name, what, text, ...) \
    NORM_OF(name, what, text, OF_Q | OF_K, MHA__LEAVES_V, __VA_ARGS__), \
    NORM_OF(name "-q", what "; that of keys is right", text, OF_Q, MHA__LEAVES_K | MHA__LEAVES_V, __VA_ARGS__), \
    NORM_OF(name "-k", what "; that of queries is right", text, OF_K, MHA__LEAVES_Q | MHA__LEAVES_V, __VA_ARGS__)
#define NORM(name, what, text) NORM_BY(name, what, text, .read = 0)
#define NORM_WEIGHT(name, what, text) NORM_BY(name, what, text, .read = 1)
#define PART_OF(name, what, sides, ...) \
    ROW("norm-weight-" name, "the gradient of a norm's weight is that of " what, false, KEEPS_OF_NORM, \
        MHA__LEAVES_Q | MHA__LEAVES_K | MHA__LEAVES_V, sides, __VA_ARGS__)
#define PART(name, what, ...) \
    PART_OF(name, what, OF_Q | OF_K, __VA_ARGS__), \
    PART_OF(name "-q", what "; that of keys is right", OF_Q, __VA_ARGS__), \
    PART_OF(name "-k", what "; that of queries is right", OF_K, __VA_ARGS__)

static const mha__gradient_bug rows[] = {
    TURN("not-turned-back", "dQ and dK are those of rotated rows: the rotation is not turned back", OF_Q | OF_K,
         MHA__NOT_TURNED),
    TURN("turned-forward", "dQ and dK are rotated forward, not back", OF_Q | OF_K, MHA__TURNED_FORWARD),
    TURN("dq-not-turned-back", "dQ is that of rotated rows, dK is turned back", OF_Q, MHA__NOT_TURNED),
    TURN("dk-not-turned-back", "dK is that of rotated rows, dQ is turned back", OF_K, MHA__NOT_TURNED),
    TURN("dq-turned-forward", "dQ is rotated forward, dK is turned back", OF_Q, MHA__TURNED_FORWARD),
    TURN("dk-turned-forward", "dK is rotated forward, dQ is turned back", OF_K, MHA__TURNED_FORWARD),
    ROW("rope-dv-turned-back", "dV is turned back as if V were rotated", false, TURNS_BY, MHA__LEAVES_Q | MHA__LEAVES_K,
        OF_V, .arg = TWICE),
    ANGLES("one-more", "by the position after theirs", ONE_MORE),
    ANGLES("one-less", "by the position before theirs", ONE_LESS),
    ANGLES("twice", "twice", TWICE),
    ANGLE("from-0", "dQ and dK are turned back by positions that begin at 0", OF_Q | OF_K, FROM_ROW),
    ANGLE("dk-with-offset", "dK is turned back by positions to which the offset of the queries is added", OF_K,
          WITH_OFFSET),
    BLOCK(16), BLOCK(32), BLOCK(64), BLOCK(128),
    ANGLES("other-pairs", "by pairs of the other kind: halves for neighbours, or neighbours for halves", OTHER_PAIRS),
    ANGLES("all-features", "in all features, not in those alone that are rotated", ALL_FEATURES),
    ANGLES("without-sines", "by cosines alone", WITHOUT_SINES),
    ANGLES("half-forward", "in the first number of each pair and forward in the second", HALF_FORWARD),
    UNROTATED("dk-of-unrotated-queries", "dK meets queries before their rotation", OF_Q, READ,
              MHA__LEAVES_Q | MHA__LEAVES_V),
    UNROTATED("dq-of-unrotated-keys", "dQ meets keys before their rotation", OF_K, READ,
              MHA__LEAVES_K | MHA__LEAVES_V),
    UNROTATED("rows-not-rotated", "the backward reads queries and keys before their rotation", OF_Q | OF_K,
              SUMS, 0),
    UNROTATED("missing", "the backward knows no rotation: neither of what it reads nor back",
              OF_Q | OF_K | NOT_TURNED_BACK, SUMS, 0),
    ROW("rope-other-base", "dQ and dK are turned back by angles of another base", true, TURNS_BY, MHA__LEAVES_V,
        OF_Q | OF_K, .arg = FOUND_BASE),
    NORM("second-term-missing", "the divisor of a norm of q or k is taken for a constant: dx = dy w / r", "w*dy/r"),
    NORM("skipped", "a norm of q or k is not differentiated, but for its weight: dx = dy w", "w*dy"),
    NORM("ignored", "a norm of q or k is not differentiated: dx = dy", "dy"),
    NORM("undivided", "the gradient behind a norm is not divided by the norm's divisor", "w*dy-z*" ALONG "/(r^2*N)"),
    NORM("divided-twice", "the gradient behind a norm is divided by the norm's divisor twice", "(" DX ")/r"),
    NORM("sum-for-mean", "the second term of a norm's gradient has a sum where a mean belongs",
         "w*dy/r-z*" ALONG "/r^3"),
    NORM("unweighted", "the gradient behind a norm lacks its weight", "dy/r-z*sum(dy*z)/(r^3*N)"),
    NORM("unweighted-second-term", "the second term of a norm's gradient lacks the weight",
         "w*dy/r-z*sum(dy*z)/(r^3*N)"),
    NORM("unweighted-first-term", "the first term of a norm's gradient lacks the weight", "dy/r-z*" ALONG "/(r^3*N)"),
    NORM("weighted-twice", "the gradient behind a norm has the weight twice", "w*(" DX ")"),
    NORM("second-term-weighted", "the second term of a norm's gradient has the weight once more",
         "w*dy/r-w*z*" ALONG "/(r^3*N)"),
    NORM("second-term-added", "the second term of a norm's gradient is added, not taken away",
         "w*dy/r+z*" ALONG "/(r^3*N)"),
    NORM_BY("centred", "a norm's gradient is centred as if the norm took the mean away, or is not where it does",
        DX "-(1-layer)*sum(w*dy/r)/n", .written = 1),
    NORM("second-term-divided", "the second term of a norm's gradient is divided by the divisor once more",
         "w*dy/r-z*" ALONG "/(r^4*N)"),
    NORM("second-term-undivided", "the second term of a norm's gradient has x where x over the divisor belongs",
         "w*dy/r-z*" ALONG "/(r^2*N)"),
    NORM_WEIGHT("weight-of-x", "the gradient of a norm's weight has x where x over the divisor belongs", "dy*z"),
    NORM_WEIGHT("weight-of-dy", "the gradient of a norm's weight is that of a bias: the sum of dy", "dy"),
    NORM_WEIGHT("weight-weighted", "the gradient of a norm's weight is multiplied by the weight", "dy*z/r*w"),
    NORM("plus-one", "the gradient behind a norm has the weight for 1 + weight, or 1 + weight for the weight",
         "v*dy/r-z*sum(v*dy*z)/(r^3*N)"),
    NORM("mean-for-sum", "the second term of the gradient of a norm of a sum has a mean", "w*dy/r-z*" ALONG "/(r^3*n)"),
    NORM_BY("without-eps", "the gradient behind a norm is that of a norm without eps", DX, .step = 1),
    PART("of-last-head", "the last head alone", MHA__BY(THE_LAST, H, 0)),
    PART("of-first-head", "the first head alone", MHA__BY(THE_FIRST, H, 0)),
    PART("of-first-batch-row", "the first batch row alone", MHA__BY(THE_FIRST, B, 0)),
    PART("of-last-batch-row", "the last batch row alone", MHA__BY(THE_LAST, B, 0)),
    PART("of-last-row", "the last row of each batch row alone", MHA__BY(THE_LAST, T, 0)),
    PART("of-first-row", "the first row of each batch row alone", MHA__BY(THE_FIRST, T, 0)),
};
MHA__GRADIENT_BUGS(ways_back)
/* clang-format on */
