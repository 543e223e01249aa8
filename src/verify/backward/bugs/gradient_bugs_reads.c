/* Bugs of where a backward reads: rows, or D, lse and dlse, of another query or key, head or batch row than the
 * right one, in only one product or in all. */
#include <math.h>

#include "attention/call/definition.h"
#include "base/base.h"
#include "base/dot.h"
#include "verify/backward/bugs/gradient_bugs.h"

/* Readings of a ragged batch without an index map: the row of all with the number of the query in its sequence; or
 * memory of (sequences, longest), read as the rows of all. */
enum { LOCAL_INDEX = 1, PADDED_INDEX };

mha__rows mha__rows_read(const mha__backward *b, int kind)
{
    const mha__sizes *p = &b->r->plan;
    const bool keys = mha__are_keys(kind);
    const mha_view *of = keys ? &b->keys[kind == MHA__ROWS_V] : &b->r->query;
    const size_t d = kind <= MHA__ROWS_K ? p->d_k : p->d_v;
    return (mha__rows){
        keys                   ? of->data
        : kind == MHA__ROWS_Q  ? b->stages[MHA_STAGE_Q_ROT].data
        : kind == MHA__ROWS_DO ? b->d_heads.data
                               : NULL,
        {{of->shape[0], of->shape[1], keys ? p->h_kv : p->h, d}, MHA__BTHC, p->h / p->h_kv, p->d_k + p->d_v - d}};
}

double mha__round_bits(double x, int bits)
{
    int exponent;
    const double f = frexp(x, &exponent);
    return isfinite(x) && x != 0 ? ldexp(nearbyint(ldexp(f, bits)), exponent - bits) : x;
}

/* Finds the element that replaces another one; false: it is past the end, and a 0 replaces it. */
static bool find(const mha__gradient_bug *bug, const mha__extents *n, mha__element *at)
{
    const mha__other_reading *other = bug->other;
    if (!other)
        *at = mha__map_element(&bug->mutation, n, *at);
    else if (other->from)
        at->at[other->axis] = other->from[at->at[other->axis]];
    bool is_there = true;
    for (int axis = 0; axis < 4; axis++)
        is_there &= at->at[axis] < n->n[axis];
    return is_there;
}

/* Replaces the rows of a kind by the rows that the bug reads. */
static void fill(const mha__backward *b, const mha__map *map, int kind, const mha__gradient_bug *bug, double *to)
{
    const mha__mutation *m = &bug->mutation;
    const mha__other_reading *other = bug->other;
    const bool keys = mha__are_keys(kind), of_keys = other ? mha__are_keys(other->kind) : keys;
    mha__rows x = mha__rows_read(b, other ? other->kind : kind);
    x.data = other && other->kind == MHA__ROWS_O ? other->O : x.data;
    const size_t d = x.n.n[MHA__C], head = of_keys && (other || m->arg != MHA__REMAINDER) ? map->g : map->head,
                 count = (keys ? map->s.S : map->s.T_q) * d;
    const bool whole = other ? !other->from || other->axis != MHA__C : m->arg < MHA__ORIGIN && m->axis != MHA__C;
    for (size_t e = 0, step = whole ? d : 1; e < count; e += step) {
        mha__element of = {{keys ? map->s.k_batch : map->s.batch, (keys ? 0 : map->s.q_from) + e / d, head, e % d}};
        const double *from = find(bug, &x.n, &of) ? x.data + mha__join(&x.n, MHA__BTHC, of) : NULL;
        for (size_t c = 0; c < step; c++)
            to[e + c] = from ? from[c] : 0;
    }
    for (size_t e = 0; other && e < count; e++)
        to[e] = other->bits ? mha__round_bits(other->factor * to[e], other->bits) : other->factor * to[e];
}

/* Computes dP or D once more, of dO, V or O as the bug reads them. */
static void meet_again(const mha__backward *b, mha__map *map, int kind, const mha__gradient_bug *bug)
{
    const mha_allocator a = mha__allocator_default();
    const bool values = kind == MHA__ROWS_V, in_d = bug->mutation.readers & MHA__IN_D;
    const size_t d = b->r->plan.d_v, bytes = ((values ? map->s.S : map->s.T_q) * d + 1) * sizeof(double);
    const mha__extents n = mha__rows_read(b, MHA__ROWS_DO).n;
    double *room = mha__allocate(&a, bytes);
    if (!room)
        return;
    fill(b, map, kind, bug, room);
    const double *dO = values ? map->dO : room, *V = values ? room : map->V;
    for (size_t i = 0; i < map->s.T_q; i++) {
        const mha__element of = {{map->b, map->s.q_from + i, map->head, 0}};
        if (in_d)
            map->sums[i] = mha__dot(
                room + i * d, kind == MHA__ROWS_O ? map->dO + i * d : bug->other->O + mha__join(&n, MHA__BTHC, of), d);
        for (size_t j = 0; j < map->s.S && !in_d; j++)
            if (map->seen[i * map->n + j] == MHA__SEEN)
                map->d_weights[i * map->n + j] = mha__d_weight_of(b, dO + i * d, V + j * d);
    }
    mha__release(&a, room, bytes);
}

/* Rows of a tensor are read elsewhere. */
void mha__read_rows(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const mha__mutation *m = &bug->mutation;
    const unsigned copied = MHA__IN_P | MHA__AFTER;
    double *const copies[] = {map->Q, map->K, NULL, map->dO, NULL};
    for (int kind = 0; kind < MHA__ROW_KINDS; kind++)
        if (m->site >> kind & 1 && copies[kind] && m->readers & copied)
            fill(b, map, kind, bug, copies[kind]);
    if (m->readers & MHA__IN_P)
        mha__weigh_again(b, map);
    for (int kind = 0; kind <= MHA__ROWS_K && (m->readers & copied) == MHA__IN_P; kind++) {
        const mha__other_reading right = {.kind = kind, .factor = 1};
        if (m->site >> kind & 1)
            fill(b, map, kind, &(mha__gradient_bug){.other = &right}, copies[kind]);
    }
    for (int kind = MHA__ROWS_V; kind < MHA__ROW_KINDS; kind++)
        if (m->site >> kind & 1 && m->readers & (MHA__IN_DP | MHA__IN_D))
            meet_again(b, map, kind, bug);
}

/* D of a query of any sequence and head. */
static double sum_of(const mha__backward *b, size_t sequence, size_t head, size_t i)
{
    const mha__sizes *p = &b->r->plan;
    const mha__sequence s = mha__resolved_sequence(b->r, sequence);
    const size_t g = head / (p->h / p->h_kv), row = s.batch * b->r->query.shape[1] + s.q_from + i;
    const double *dO = (const double *)b->d_heads.data + (row * p->h + head) * p->d_v;
    double sum = 0;
    for (size_t j = 0; j < s.S; j++) {
        const double P = mha_view_get(&b->stages[MHA_STAGE_WEIGHTS], (size_t[]){sequence, head, i, j});
        const size_t key = s.k_batch * b->keys[1].shape[1] + s.k_from + j;
        if (P > 0)
            sum += P * mha__d_weight_of(b, dO, (const double *)b->keys[1].data + (key * p->h_kv + g) * p->d_v);
    }
    return sum;
}

/* The row of a ragged batch in which a query is looked for; false: it is in none of them. */
static bool find_ragged(const mha__backward *b, const mha__map *map, bool padded, size_t i, mha__element *at)
{
    size_t longest = 0, index = map->s.q_from + i;
    for (size_t sequence = 0; sequence < b->r->plan.B; sequence++) {
        const size_t T = mha__resolved_sequence(b->r, sequence).T_q;
        longest = T > longest ? T : longest;
    }
    if (padded) {
        at->at[MHA__B] = index / longest, at->at[MHA__T] = index % longest;
        return at->at[MHA__T] < mha__resolved_sequence(b->r, at->at[MHA__B]).T_q;
    }
    for (at->at[MHA__B] = 0; at->at[MHA__B] < b->r->plan.B; at->at[MHA__B]++) {
        const mha__sequence s = mha__resolved_sequence(b->r, at->at[MHA__B]);
        if (i >= s.q_from && i < s.q_from + s.T_q) {
            at->at[MHA__T] = i - s.q_from;
            return true;
        }
    }
    return false;
}

void mha__read_numbers(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const mha__sizes *p = &b->r->plan;
    const mha__mutation *m = &bug->mutation;
    const bool ragged = m->readers > 0, of_lse = m->site == MHA__THE_LSE, of_d = m->site == MHA__THE_D;
    const mha__extents n = {{p->B, mha__resolved_sequence(b->r, map->b).T_q, p->h, 1}, MHA__BTHC, p->h / p->h_kv, 1};
    for (size_t i = 0; i < map->s.T_q; i++) {
        mha__element of = {{map->b, (ragged ? 0 : map->s.q_from) + i, map->head, 0}};
        const bool finds = ragged ? find_ragged(b, map, m->readers == PADDED_INDEX, i, &of) : find(bug, &n, &of);
        const size_t at[3] = {of.at[MHA__B], of.at[MHA__H], of.at[MHA__T]};
        const double read = !finds ? 0
                            : of_d ? sum_of(b, at[0], at[1], at[2])
                                   : mha_view_get(of_lse ? &b->stages[MHA_STAGE_LSE] : &b->given->d_lse, at),
                     number = bug->other ? bug->other->factor * read : read;
        if (!of_lse)
            (of_d ? map->sums : map->d_lse)[i] = number;
        for (size_t j = 0; of_lse && j < map->n && isfinite(map->lse[i]) && isfinite(number); j++)
            map->weights[i * map->n + j] *= exp(map->lse[i] - number);
    }
}

/* ---------------------------------------------------------------- which calls have what it takes */

static bool moves(const mha__backward *b, const mha__mutation *m)
{
    int kind = 0;
    while (!(m->site >> kind & 1) && kind < MHA__ROWS_DO)
        kind++;
    const mha__rows x = mha__rows_read(b, kind);
    return m->arg == MHA__ORIGIN || mha__map_moves(m, &x.n);
}

/* Each batch row has rows of its own, as many as the others. */
bool mha__reads_rows(const mha__backward *b, const mha__gradient_bug *bug)
{
    const mha__resolved *r = b->r;
    return moves(b, &bug->mutation) && !mha__semantics_of(r)->place.cu_seqlens_q && b->keys[0].shape[0] == r->plan.B &&
           mha__semantics_of(r)->added.relative.rule == MHA_RELATIVE_NONE &&
           (!(bug->mutation.readers & MHA__IN_P) || mha__can_weigh_again(b));
}

bool mha__reads_numbers(const mha__backward *b, const mha__gradient_bug *bug)
{
    const mha__mutation *m = &bug->mutation;
    const bool is_ragged = mha__semantics_of(b->r)->place.cu_seqlens_q, wants = m->readers > 0;
    return mha__is_softmax(b) && is_ragged == wants && (wants ? b->r->plan.B > 1 : moves(b, m)) &&
           b->r->plan.S_extra == 0 && !b->given->whole.lse.data && (m->site != MHA__THE_DLSE || b->given->d_lse.data);
}

/* clang-format off */
/* Who reads: site, readers, step of the change, gradients that stay right. */
#define K_IN_DQ MHA__AT_ROWS_K, MHA__AFTER, READ, MHA__LEAVES_K | MHA__LEAVES_V
#define Q_IN_DK MHA__AT_ROWS_Q, MHA__AFTER, READ, MHA__LEAVES_Q | MHA__LEAVES_V
#define DO_IN_DV MHA__AT_ROWS_DO, MHA__AFTER, SCORES, MHA__LEAVES_Q | MHA__LEAVES_K
#define DO_IN_DP MHA__AT_ROWS_DO, MHA__IN_DP, SUMS, MHA__LEAVES_V
#define DO_BEHIND_D MHA__AT_ROWS_DO, MHA__IN_DP | MHA__AFTER, SUMS, 0
#define DO_EVERYWHERE MHA__AT_ROWS_DO, MHA__AFTER, READ, 0
#define V_IN_DP MHA__AT_ROWS_V, MHA__IN_DP, SUMS, MHA__LEAVES_V
#define Q_EVERYWHERE MHA__AT_ROWS_Q, MHA__IN_P | MHA__AFTER, SUMS, 0
#define K_EVERYWHERE MHA__AT_ROWS_K, MHA__IN_P | MHA__AFTER, SUMS, 0
#define K_AND_V MHA__AT_ROWS_K | MHA__AT_ROWS_V, MHA__IN_P | MHA__IN_DP | MHA__AFTER, SUMS, 0
#define K_AND_V_BEHIND_P MHA__AT_ROWS_K | MHA__AT_ROWS_V, MHA__IN_DP | MHA__AFTER, SUMS, MHA__LEAVES_V

#define READ(name, what, who, ...) READ_BY(name, what, who, __VA_ARGS__)
#define READ_BY(name, what, where, by, at, leaving, ...) \
    MHA__ROW(name, what, at, leaving, READS, .site = where, .readers = by, __VA_ARGS__)
/* Rows of dS add up to 0: with only one key dQ is 0, which has a name of its own. */
#define OTHER_PLACES(name, reads, row, ...) \
    READ(name "-of-next-" row, reads " of the next " row, __VA_ARGS__, MHA__NEXT(T)), \
    READ(name "-of-previous-" row, reads " of the " row " before", __VA_ARGS__, MHA__PREVIOUS(T)), \
    READ(name "-of-next-head", reads " of the next head", __VA_ARGS__, MHA__NEXT(H)), \
    READ(name "-of-previous-head", reads " of the head before", __VA_ARGS__, MHA__PREVIOUS(H)), \
    READ(name "-of-first-head", reads " of the first head", __VA_ARGS__, MHA__BY(FIRST, H, 0)), \
    READ(name "-of-next-batch-row", reads " of the next batch row", __VA_ARGS__, MHA__NEXT(B)), \
    READ(name "-of-first-batch-row", reads " of the first batch row", __VA_ARGS__, MHA__BY(FIRST, B, 0))
#define PLACES(name, reads, row, ...) \
    READ(name "-of-first-" row, reads " of the first " row, __VA_ARGS__, MHA__BY(FIRST, T, 0)), \
    OTHER_PLACES(name, reads, row, __VA_ARGS__)
#define OF_GROUP(name, reads, ...) \
    READ(name "-of-first-of-group", reads " of the first head of the group", __VA_ARGS__, \
         MHA__BY(FIRST_OF_GROUP, H, 0)), \
    READ(name "-of-last-of-group", reads " of the last head of the group", __VA_ARGS__, MHA__BY(LAST_OF_GROUP, H, 0))
#define OTHER_WIDTH(name, reads, order, as, ...) \
    READ(name, reads " with the row width of the other kind, d_k for d_v or d_v for d_k, in " as, __VA_ARGS__, \
         MHA__IN_ORDER(WIDTH, order))
#define OTHER_WIDTHS(name, reads, ...) \
    OTHER_WIDTH(name "-of-other-width-time", reads, BTHC, "(batch, T, heads)", __VA_ARGS__), \
    OTHER_WIDTH(name "-of-other-width-heads", reads, BHTC, "(batch, heads, T)", __VA_ARGS__)
#define STALE(name, what, row, block, ...) \
    READ("stale-" name "-" #block, what ", in each block of " #block " " row ", those of the block before", \
         __VA_ARGS__, MHA__BY(BLOCK_BEFORE, T, block)), \
    READ("first-" name "-" #block, what ", in each block of " #block " " row ", those of the first block", \
         __VA_ARGS__, MHA__BY(FIRST_BLOCK, T, block))
#define BLOCKS(name, what, row, ...) \
    STALE(name, what, row, 16, __VA_ARGS__), STALE(name, what, row, 32, __VA_ARGS__), \
    STALE(name, what, row, 64, __VA_ARGS__), STALE(name, what, row, 128, __VA_ARGS__)

#define NUMBER(name, what, where, leaving, ...) \
    MHA__ROW(name, what, SUMS, leaving, READS_NUMBERS, .site = where, __VA_ARGS__)
#define NUMBERS(name, what, ...) \
    NUMBER(name "-of-next-query", what " is that of the next query", __VA_ARGS__, MHA__NEXT(T)), \
    NUMBER(name "-of-previous-query", what " is that of the query before", __VA_ARGS__, MHA__PREVIOUS(T)), \
    NUMBER(name "-of-first-query", what " is that of the first query", __VA_ARGS__, MHA__BY(FIRST, T, 0)), \
    NUMBER(name "-of-next-head", what " is that of the next head", __VA_ARGS__, MHA__NEXT(H)), \
    NUMBER(name "-of-previous-head", what " is that of the head before", __VA_ARGS__, MHA__PREVIOUS(H)), \
    NUMBER(name "-of-first-head", what " is that of the first head", __VA_ARGS__, MHA__BY(FIRST, H, 0)), \
    NUMBER(name "-of-key-head", what " of head i is that of the head with the number of its key/value head", \
           __VA_ARGS__, MHA__BY(GROUP, H, 0)), \
    NUMBER(name "-of-first-of-group", what " is that of the first head of the group", __VA_ARGS__, \
           MHA__BY(FIRST_OF_GROUP, H, 0)), \
    NUMBER(name "-of-last-of-group", what " is that of the last head of the group", __VA_ARGS__, \
           MHA__BY(LAST_OF_GROUP, H, 0)), \
    NUMBER(name "-of-next-batch-row", what " is that of the next batch row", __VA_ARGS__, MHA__NEXT(B)), \
    NUMBER(name "-of-first-batch-row", what " is that of the first batch row", __VA_ARGS__, MHA__BY(FIRST, B, 0)), \
    NUMBER(name "-of-other-order", what " is read as (batch, T, heads) and is (batch, heads, T)", __VA_ARGS__, \
           MHA__READ_AS(BTHC, BHTC)), \
    NUMBER(name "-of-other-order-time", what " is read as (batch, heads, T) and is (batch, T, heads)", __VA_ARGS__, \
           MHA__READ_AS(BHTC, BTHC))
#define RAGGED(name, what, ...) \
    NUMBER(name "-of-local-index", what " of a ragged batch is read by the number of a query in its sequence", \
           __VA_ARGS__, .readers = LOCAL_INDEX), \
    NUMBER(name "-of-padded-index", what " of a ragged batch is (sequences, longest) and is read without padding", \
           __VA_ARGS__, .readers = PADDED_INDEX)
#define NUMBER_BLOCK(name, what, block, ...) \
    NUMBER(name "-of-first-block-" #block, what " is that of the query of the first " #block " with its place in its " \
           "block", __VA_ARGS__, MHA__BY(FIRST_BLOCK, T, block)), \
    NUMBER(name "-of-start-of-block-" #block, what " is that of the first query of each block of " #block, \
           __VA_ARGS__, \
           MHA__BY(START_OF_BLOCK, T, block))
#define NUMBER_BLOCKS(name, what, ...) \
    NUMBER_BLOCK(name, what, 16, __VA_ARGS__), NUMBER_BLOCK(name, what, 32, __VA_ARGS__), \
    NUMBER_BLOCK(name, what, 64, __VA_ARGS__), NUMBER_BLOCK(name, what, 128, __VA_ARGS__)

static const mha__gradient_bug rows[] = {
    NUMBERS("lse", "the lse of which P is made", MHA__THE_LSE, 0),
    NUMBER_BLOCKS("lse", "the lse of which P is made", MHA__THE_LSE, 0),
    RAGGED("lse", "the lse of which P is made", MHA__THE_LSE, 0),
    NUMBERS("d", "D", MHA__THE_D, MHA__LEAVES_V),
    RAGGED("d", "D", MHA__THE_D, MHA__LEAVES_V),
    NUMBER_BLOCKS("d", "D", MHA__THE_D, MHA__LEAVES_V),
    NUMBERS("dlse", "dlse", MHA__THE_DLSE, MHA__LEAVES_V),
    READ("do-of-other-order-heads", "dO is read as (batch, T, heads, width) and is (batch, heads, T, width)",
         DO_EVERYWHERE, MHA__READ_AS(BTHC, BHTC)),
    READ("do-of-other-order-time", "dO is read as (batch, heads, T, width) and is (batch, T, heads, width)",
         DO_EVERYWHERE, MHA__READ_AS(BHTC, BTHC)),
    READ("do-of-other-order-features", "dO is read as (T, width) of each head and is (width, T)",
         DO_EVERYWHERE, MHA__READ_AS(BHTC, BHCT)),
    READ("do-of-other-order-batch", "dO is read as (batch, heads) and is (heads, batch)",
         DO_EVERYWHERE, MHA__READ_AS(BHTC, HBTC)),
    READ("do-of-first-feature", "all features of a row of dO are its first one: its stride is taken for 0",
         DO_EVERYWHERE, MHA__BY(FIRST, C, 0)),
    READ("do-of-first-number", "all dO is its first number: its strides are taken for 0",
         DO_EVERYWHERE, .arg = MHA__ORIGIN),
    PLACES("do", "dO is read", "query", DO_EVERYWHERE),
    PLACES("dv-do", "dV alone reads dO", "query", DO_IN_DV),
    PLACES("dp-do", "dP alone reads dO", "query", DO_IN_DP),
    PLACES("dp-dv-do", "dP and dV read dO, and D does not,", "query", DO_BEHIND_D),
    OF_GROUP("dp-dv-do", "dP and dV read dO, and D does not,", DO_BEHIND_D),
    PLACES("values", "dP reads V", "key", V_IN_DP),
    OTHER_PLACES("dq-keys", "dQ alone reads K", "key", K_IN_DQ),
    PLACES("dk-queries", "dK alone reads Q", "query", Q_IN_DK),
    PLACES("keys", "P and dQ read K", "key", K_EVERYWHERE),
    PLACES("queries", "P and dK read Q", "query", Q_EVERYWHERE),
    PLACES("keys-values", "the backward reads K and V", "key", K_AND_V),
    OF_GROUP("do", "dO is read", DO_EVERYWHERE),
    OF_GROUP("dv-do", "dV alone reads dO", DO_IN_DV),
    OF_GROUP("dp-do", "dP alone reads dO", DO_IN_DP),
    OF_GROUP("dk-queries", "dK alone reads Q", Q_IN_DK),
    OF_GROUP("queries", "P and dK read Q", Q_EVERYWHERE),
    OTHER_WIDTHS("do", "dO is read", DO_EVERYWHERE),
    OTHER_WIDTHS("values", "dP reads V", V_IN_DP),
    OTHER_WIDTHS("dq-keys", "dQ alone reads K", K_IN_DQ),
    OTHER_WIDTHS("dk-queries", "dK alone reads Q", Q_IN_DK),
    BLOCKS("keys", "dQ meets", "keys", K_IN_DQ),
    BLOCKS("queries", "dK meets", "queries", Q_IN_DK),
    BLOCKS("do", "dV meets rows of dO", "queries", DO_IN_DV),
    BLOCKS("dp-do", "dP meets rows of dO", "queries", DO_IN_DP),
    BLOCKS("values", "dP meets", "values", V_IN_DP),
    READ("keys-by-remainder", "dQ of head i meets the keys of key/value head i mod h_kv", K_IN_DQ,
         MHA__BY(REMAINDER, H, 0)),
    READ("values-by-remainder", "dP of head i meets the values of key/value head i mod h_kv", V_IN_DP,
         MHA__BY(REMAINDER, H, 0)),
    READ("heads-by-remainder", "head i meets the keys and values of key/value head i mod h_kv", K_AND_V_BEHIND_P,
         MHA__BY(REMAINDER, H, 0)),
    READ("keys-values-by-remainder", "P, dP and dQ of head i meet keys and values of key/value head i mod h_kv",
         K_AND_V, MHA__BY(REMAINDER, H, 0)),
};
MHA__GRADIENT_BUGS(reads)
/* clang-format on */
