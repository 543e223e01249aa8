/* Bugs of where a backward reads: rows, or D, lse and dlse, of another query or key, head or batch row than the
 * right one, in one product alone or wherever they are met. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/backward/bugs/scores.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* What is read, and where. */
typedef enum reader {
    K_IN_DQ,
    Q_IN_DK,
    DO_IN_DV,
    DO_IN_DP,
    V_IN_DP, /* which is all that a backward reads of V */
    Q_EVERYWHERE,
    K_EVERYWHERE,
    K_AND_V,
    K_AND_V_BEHIND_P, /* P is kept */
    DO_EVERYWHERE,
    DO_BEHIND_D, /* D is made of the right ones */
    THE_D,
    THE_LSE,
    THE_DLSE
} reader;

typedef enum source {
    NEXT_ROW,
    PREVIOUS_ROW,
    FIRST_ROW,
    NEXT_HEAD,
    PREVIOUS_HEAD,
    FIRST_HEAD,
    KEY_HEAD,       /* the head with the number of the key/value head */
    FIRST_OF_GROUP, /* of the heads that share keys */
    LAST_OF_GROUP,
    BY_REMAINDER, /* key/value head i mod h_kv, for head i */
    NEXT_BATCH_ROW,
    FIRST_BATCH_ROW,
    BLOCK_BEFORE, /* the same row of the block before; in the first block its own */
    FIRST_BLOCK,
    START_OF_BLOCK,
    WRITTEN_BY_TIME,       /* (T, h) in memory, read as (h, T) */
    WRITTEN_BY_HEADS,      /* the other way round */
    WRITTEN_BY_FEATURES,   /* of each head (d, T), read as (T, d) */
    WRITTEN_BY_BATCH_LAST, /* (h, B), read as (B, h) */
    FIRST_FEATURE,
    FIRST_NUMBER,
    OTHER_WIDTH_TIME,  /* rows as wide as those of the other kind, d_k for d_v or d_v for d_k, by time in memory */
    OTHER_WIDTH_HEADS, /* the same, by heads */
    LOCAL_INDEX,       /* in a ragged batch: the row of all that has the number that it has in its sequence */
    PADDED_INDEX       /* (sequences, longest) in memory, read as the rows of all */
} source;

/* A number of a tensor (batch, rows, heads, d). */
typedef struct place {
    size_t b, t, i, c;
} place;

/* That tensor, contiguous. */
typedef struct tensor {
    const double *data;
    place n;
} tensor;

enum { OF_Q, OF_K, OF_V, OF_DO };

static reader reader_of(const mha__gradient_bug *m)
{
    return (reader)(int)m->number;
}

static source kind_of(const mha__gradient_bug *m)
{
    return (source)((int)m->other / 256);
}

static size_t block_of(const mha__gradient_bug *m)
{
    return (size_t)((int)m->other % 256);
}

static tensor tensor_of(const mha__backward *b, int which)
{
    const mha__sizes *p = &b->r->plan;
    const mha_view *q = &b->r->query, *k = &b->keys[which == OF_V];
    const bool keys = which == OF_K || which == OF_V;
    const double *data = keys ? k->data : which == OF_Q ? b->stages[MHA_STAGE_Q_ROT].data : b->d_heads.data;
    return (tensor){data,
                    {keys ? k->shape[0] : q->shape[0], keys ? k->shape[1] : q->shape[1], keys ? p->h_kv : p->h,
                     which == OF_Q || which == OF_K ? p->d_k : p->d_v}};
}

/* Where a number lies of rows that are taken to be `width` wide; behind the end there is no batch row. */
static place read_apart(const place *n, size_t width, bool by_head, place at)
{
    const size_t row = by_head ? (at.b * n->i + at.i) * n->t + at.t : (at.b * n->t + at.t) * n->i + at.i,
                 index = row * width + at.c, from = index / n->c, inner = by_head ? n->t : n->i,
                 outer = by_head ? n->i : n->t, one = from / inner % outer, two = from % inner;
    return (place){from / inner / outer, by_head ? two : one, by_head ? one : two, index % n->c};
}

/* Where a number is read that belongs to a place of a tensor of these extents. */
static place read_from(const mha__gradient_bug *m, const place *n, const mha__sizes *p, size_t head, place at)
{
    const size_t block = block_of(m);
    place from = at;
    size_t index;
    switch (kind_of(m)) {
    case NEXT_ROW: from.t = at.t + 1 < n->t ? at.t + 1 : 0; break;
    case PREVIOUS_ROW: from.t = at.t > 0 ? at.t - 1 : n->t - 1; break;
    case FIRST_ROW: from.t = 0; break;
    case NEXT_HEAD: from.i = at.i + 1 < n->i ? at.i + 1 : 0; break;
    case PREVIOUS_HEAD: from.i = at.i > 0 ? at.i - 1 : n->i - 1; break;
    case FIRST_HEAD: from.i = 0; break;
    case KEY_HEAD: from.i = at.i / (p->h / p->h_kv); break;
    case BY_REMAINDER: from.i = head % p->h_kv; break;
    case NEXT_BATCH_ROW: from.b = at.b + 1 < n->b ? at.b + 1 : 0; break;
    case FIRST_BATCH_ROW: from.b = 0; break;
    case BLOCK_BEFORE: from.t = at.t >= block ? at.t - block : at.t; break;
    case FIRST_BLOCK: from.t = at.t % block; break;
    case START_OF_BLOCK: from.t = at.t / block * block; break;
    case WRITTEN_BY_TIME: index = at.i * n->t + at.t, from.t = index / n->i, from.i = index % n->i; break;
    case WRITTEN_BY_HEADS: index = at.t * n->i + at.i, from.i = index / n->t, from.t = index % n->t; break;
    case WRITTEN_BY_FEATURES: index = at.t * n->c + at.c, from.c = index / n->t, from.t = index % n->t; break;
    case WRITTEN_BY_BATCH_LAST: index = at.b * n->i + at.i, from.i = index / n->b, from.b = index % n->b; break;
    case FIRST_OF_GROUP: from.i = at.i / (p->h / p->h_kv) * (p->h / p->h_kv); break;
    case LAST_OF_GROUP: from.i = (at.i / (p->h / p->h_kv) + 1) * (p->h / p->h_kv) - 1; break;
    case OTHER_WIDTH_TIME:
    case OTHER_WIDTH_HEADS: return read_apart(n, p->d_k + p->d_v - n->c, kind_of(m) == OTHER_WIDTH_HEADS, at);
    case FIRST_FEATURE: from.c = 0; break;
    case FIRST_NUMBER: from = (place){0, 0, 0, 0}; break;
    case LOCAL_INDEX:
    case PADDED_INDEX: break;
    }
    return from;
}

/* The rows of a map that come from a tensor, as they are read. */
static void fill(const mha__backward *b, const mha__map *map, int which, const mha__gradient_bug *m, double *to)
{
    const tensor x = tensor_of(b, which);
    const bool keys = which == OF_K || which == OF_V;
    for (size_t t = 0; t < (keys ? map->s.S : map->s.T_q); t++)
        for (size_t c = 0; c < x.n.c; c++) {
            const place at = {keys ? map->s.k_batch : map->s.batch, t, keys ? map->g : map->head, c},
                        of = read_from(m, &x.n, &b->r->plan, map->head, at);
            to[t * x.n.c + c] = of.b < x.n.b ? x.data[((of.b * x.n.t + of.t) * x.n.i + of.i) * x.n.c + of.c] : 0;
        }
}

/* dP once more, of dO or of V as they are read. */
static void meet_again(const mha__backward *b, mha__map *map, int which, const mha__gradient_bug *m)
{
    const mha_allocator a = mha__allocator_default();
    const size_t d = b->r->plan.d_v, T = map->s.T_q, S = map->s.S,
                 bytes = ((which == OF_V ? S : T) * d + 1) * sizeof(double);
    double *room = mha__allocate(&a, bytes);
    if (!room)
        return;
    fill(b, map, which, m, room);
    const double *dO = which == OF_V ? map->dO : room, *V = which == OF_V ? room : map->V;
    for (size_t i = 0; i < T; i++)
        for (size_t j = 0; j < S; j++)
            if (map->seen[i * map->n + j] == MHA__SEEN)
                map->d_weights[i * map->n + j] = mha__d_weight_of(b, dO + i * d, V + j * d);
    mha__release(&a, room, bytes);
}

/* Rows of a tensor are read elsewhere. */
static void read_rows(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    switch (reader_of(m)) {
    case K_IN_DQ: fill(b, map, OF_K, m, map->K); break;
    case Q_IN_DK: fill(b, map, OF_Q, m, map->Q); break;
    case DO_IN_DV:
    case DO_EVERYWHERE: fill(b, map, OF_DO, m, map->dO); break;
    case DO_BEHIND_D: meet_again(b, map, OF_DO, m), fill(b, map, OF_DO, m, map->dO); break;
    case DO_IN_DP: meet_again(b, map, OF_DO, m); break;
    case V_IN_DP: meet_again(b, map, OF_V, m); break;
    case Q_EVERYWHERE: fill(b, map, OF_Q, m, map->Q), mha__weigh_again(b, map); break;
    case K_EVERYWHERE: fill(b, map, OF_K, m, map->K), mha__weigh_again(b, map); break;
    case K_AND_V:
        fill(b, map, OF_K, m, map->K), mha__weigh_again(b, map);
        meet_again(b, map, OF_V, m);
        break;
    case K_AND_V_BEHIND_P: fill(b, map, OF_K, m, map->K), meet_again(b, map, OF_V, m); break;
    case THE_D:
    case THE_LSE:
    case THE_DLSE: break;
    }
}

/* ---------------------------------------------------------------- D, lse and dlse */

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
static bool find_ragged(const mha__backward *b, const mha__map *map, source how, size_t i, place *at)
{
    size_t longest = 0, index = map->s.q_from + i;
    for (size_t sequence = 0; sequence < b->r->plan.B; sequence++) {
        const size_t T = mha__resolved_sequence(b->r, sequence).T_q;
        longest = T > longest ? T : longest;
    }
    if (how == PADDED_INDEX) {
        at->b = index / longest, at->t = index % longest;
        return at->t < mha__resolved_sequence(b->r, at->b).T_q;
    }
    for (at->b = 0; at->b < b->r->plan.B; at->b++) {
        const mha__sequence s = mha__resolved_sequence(b->r, at->b);
        if (i >= s.q_from && i < s.q_from + s.T_q) {
            at->t = i - s.q_from;
            return true;
        }
    }
    return false;
}

/* The D, lse or dlse of the query that is at a place. */
static double number_at(const mha__backward *b, reader what, const place *at)
{
    const size_t index[3] = {at->b, at->i, at->t};
    return what == THE_D ? sum_of(b, at->b, at->i, at->t)
                         : mha_view_get(what == THE_LSE ? &b->stages[MHA_STAGE_LSE] : &b->given->d_lse, index);
}

static void read_numbers(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const mha__sizes *p = &b->r->plan;
    const reader what = reader_of(m);
    const bool ragged = kind_of(m) == LOCAL_INDEX || kind_of(m) == PADDED_INDEX;
    const place n = {p->B, mha__resolved_sequence(b->r, map->b).T_q, p->h, 1};
    for (size_t i = 0; i < map->s.T_q; i++) {
        const place at = {map->b, i, map->head, 0};
        place from = read_from(m, &n, p, map->head, at);
        const bool there = !ragged || find_ragged(b, map, kind_of(m), i, &from);
        const double number = there ? number_at(b, what, &from) : 0;
        if (what == THE_D)
            map->sums[i] = number;
        else if (what == THE_DLSE)
            map->d_lse[i] = number;
        else
            for (size_t j = 0; j < map->n && isfinite(map->lse[i]) && isfinite(number); j++)
                map->weights[i * map->n + j] *= exp(map->lse[i] - number);
    }
}

/* ---------------------------------------------------------------- which calls have what it takes */

static bool has_places(const mha__backward *b, const mha__gradient_bug *m)
{
    const reader what = reader_of(m);
    const mha__sizes *p = &b->r->plan;
    const bool keys =
        what == K_IN_DQ || what == V_IN_DP || what == K_EVERYWHERE || what == K_AND_V || what == K_AND_V_BEHIND_P;
    const size_t heads = keys ? p->h_kv : p->h, count = keys ? p->S : p->T_q;
    switch (kind_of(m)) {
    case NEXT_ROW:
    case PREVIOUS_ROW:
    case FIRST_ROW: return count > 1;
    case NEXT_HEAD:
    case FIRST_HEAD: return heads > 1;
    case PREVIOUS_HEAD: return heads > 2;
    case FIRST_OF_GROUP:
    case LAST_OF_GROUP: return p->h > p->h_kv;
    case OTHER_WIDTH_TIME:
    case OTHER_WIDTH_HEADS: return p->d_k != p->d_v;
    case KEY_HEAD:
    case BY_REMAINDER: return p->h > p->h_kv && p->h_kv > 1;
    case NEXT_BATCH_ROW:
    case FIRST_BATCH_ROW: return p->B > 1;
    case BLOCK_BEFORE:
    case FIRST_BLOCK:
    case START_OF_BLOCK: return count > block_of(m);
    case WRITTEN_BY_TIME:
    case WRITTEN_BY_HEADS: return heads > 1 && count > 1;
    case WRITTEN_BY_BATCH_LAST: return heads > 1 && p->B > 1;
    case WRITTEN_BY_FEATURES: return count > 1 && p->d_v > 1;
    case FIRST_FEATURE: return p->d_v > 1;
    case FIRST_NUMBER: return true;
    case LOCAL_INDEX:
    case PADDED_INDEX: return p->B > 1;
    }
    return false;
}

/* Each batch row has rows of its own, as many as the others. */
static bool has_rows(const mha__backward *b, const mha__gradient_bug *m)
{
    const reader what = reader_of(m);
    const mha__resolved *r = b->r;
    const bool weighs = what == Q_EVERYWHERE || what == K_EVERYWHERE || what == K_AND_V;
    return has_places(b, m) && !r->semantics.place.cu_seqlens_q && b->keys[0].shape[0] == r->plan.B &&
           r->semantics.added.relative.rule == MHA_RELATIVE_NONE && (!weighs || mha__can_weigh_again(b));
}

static bool has_numbers(const mha__backward *b, const mha__gradient_bug *m)
{
    const reader what = reader_of(m);
    const source how = kind_of(m);
    const bool is_ragged = b->r->semantics.place.cu_seqlens_q, wants = how == LOCAL_INDEX || how == PADDED_INDEX;
    return mha__is_softmax(b) && has_places(b, m) && is_ragged == wants && b->r->plan.S_extra == 0 &&
           !b->given->whole.lse.data && (what != THE_DLSE || b->given->d_lse.data);
}

/* clang-format off */
#define READ(name, what, reader, how, block, ...) READ_AT(name, what, reader, how, block, __VA_ARGS__)
#define READ_AT(name, what, reader, how, block, step, leaves) \
    {{name, what, false}, has_rows, step, read_rows, reader, (how) * 256 + (block), NULL, leaves, {0}}
#define OTHER_PLACES(name, reads, row, reader, ...) \
    READ(name "-of-next-" row, reads " of the next " row, reader, NEXT_ROW, 0, __VA_ARGS__), \
    READ(name "-of-previous-" row, reads " of the " row " before", reader, PREVIOUS_ROW, 0, __VA_ARGS__), \
    READ(name "-of-next-head", reads " of the next head", reader, NEXT_HEAD, 0, __VA_ARGS__), \
    READ(name "-of-previous-head", reads " of the head before", reader, PREVIOUS_HEAD, 0, __VA_ARGS__), \
    READ(name "-of-first-head", reads " of the first head", reader, FIRST_HEAD, 0, __VA_ARGS__), \
    READ(name "-of-next-batch-row", reads " of the next batch row", reader, NEXT_BATCH_ROW, 0, __VA_ARGS__), \
    READ(name "-of-first-batch-row", reads " of the first batch row", reader, FIRST_BATCH_ROW, 0, __VA_ARGS__)
#define OF_GROUP(name, reads, reader, ...) \
    READ(name "-of-first-of-group", reads " of the first head of the group", reader, FIRST_OF_GROUP, 0, __VA_ARGS__), \
    READ(name "-of-last-of-group", reads " of the last head of the group", reader, LAST_OF_GROUP, 0, __VA_ARGS__)
#define OTHER_WIDTHS(name, reads, reader, ...) \
    READ(name "-of-other-width-time", reads " with the row width of the other kind, d_k for d_v or d_v for d_k, in " \
         "(batch, T, heads)", reader, OTHER_WIDTH_TIME, 0, __VA_ARGS__), \
    READ(name "-of-other-width-heads", reads " with the row width of the other kind, d_k for d_v or d_v for d_k, in " \
         "(batch, heads, T)", reader, OTHER_WIDTH_HEADS, 0, __VA_ARGS__)
/* Rows of dS add up to 0: of one key alone dQ is 0, which has a name of its own. */
#define PLACES(name, reads, row, reader, ...) \
    READ(name "-of-first-" row, reads " of the first " row, reader, FIRST_ROW, 0, __VA_ARGS__), \
    OTHER_PLACES(name, reads, row, reader, __VA_ARGS__)
#define STALE(name, what, row, reader, block, ...) \
    READ("stale-" name "-" #block, what ", in each block of " #block " " row ", those of the block before", reader, \
         BLOCK_BEFORE, block, __VA_ARGS__), \
    READ("first-" name "-" #block, what ", in each block of " #block " " row ", those of the first block", reader, \
         FIRST_BLOCK, block, __VA_ARGS__)
#define BLOCKS(name, what, row, reader, ...) \
    STALE(name, what, row, reader, 16, __VA_ARGS__), STALE(name, what, row, reader, 32, __VA_ARGS__), \
    STALE(name, what, row, reader, 64, __VA_ARGS__), STALE(name, what, row, reader, 128, __VA_ARGS__)

#define NUMBER(name, what, reader, how, block, leaves) \
    {{name, what, false}, has_numbers, MHA__BACKWARD_SUMS, read_numbers, reader, (how) * 256 + (block), NULL, \
        leaves, {0}}
#define NUMBERS(name, what, reader, leaves) \
    NUMBER(name "-of-next-query", what " is that of the next query", reader, NEXT_ROW, 0, leaves), \
    NUMBER(name "-of-previous-query", what " is that of the query before", reader, PREVIOUS_ROW, 0, leaves), \
    NUMBER(name "-of-first-query", what " is that of the first query", reader, FIRST_ROW, 0, leaves), \
    NUMBER(name "-of-next-head", what " is that of the next head", reader, NEXT_HEAD, 0, leaves), \
    NUMBER(name "-of-previous-head", what " is that of the head before", reader, PREVIOUS_HEAD, 0, leaves), \
    NUMBER(name "-of-first-head", what " is that of the first head", reader, FIRST_HEAD, 0, leaves), \
    NUMBER(name "-of-key-head", what " of head i is that of the head with the number of its key/value head", reader, \
           KEY_HEAD, 0, leaves), \
    NUMBER(name "-of-first-of-group", what " is that of the first head of the group", reader, FIRST_OF_GROUP, 0, \
           leaves), \
    NUMBER(name "-of-last-of-group", what " is that of the last head of the group", reader, LAST_OF_GROUP, 0, leaves), \
    NUMBER(name "-of-next-batch-row", what " is that of the next batch row", reader, NEXT_BATCH_ROW, 0, leaves), \
    NUMBER(name "-of-first-batch-row", what " is that of the first batch row", reader, FIRST_BATCH_ROW, 0, leaves), \
    NUMBER(name "-of-other-order", what " is read as (batch, T, heads) and is (batch, heads, T)", reader, \
           WRITTEN_BY_HEADS, 0, leaves), \
    NUMBER(name "-of-other-order-time", what " is read as (batch, heads, T) and is (batch, T, heads)", reader, \
           WRITTEN_BY_TIME, 0, leaves)
#define RAGGED(name, what, reader, leaves) \
    NUMBER(name "-of-local-index", what " of a ragged batch is read by the number of a query in its sequence", reader, \
           LOCAL_INDEX, 0, leaves), \
    NUMBER(name "-of-padded-index", what " of a ragged batch is (sequences, longest) and is read without padding", \
           reader, PADDED_INDEX, 0, leaves)
#define NUMBER_BLOCK(name, what, reader, block, leaves) \
    NUMBER(name "-of-first-block-" #block, what " is that of the query of the first " #block " with its place in its " \
           "block", reader, FIRST_BLOCK, block, leaves), \
    NUMBER(name "-of-start-of-block-" #block, what " is that of the first query of each block of " #block, reader, \
           START_OF_BLOCK, block, leaves)
#define NUMBER_BLOCKS(name, what, reader, leaves) \
    NUMBER_BLOCK(name, what, reader, 16, leaves), NUMBER_BLOCK(name, what, reader, 32, leaves), \
    NUMBER_BLOCK(name, what, reader, 64, leaves), NUMBER_BLOCK(name, what, reader, 128, leaves)

#define IN_DQ MHA__BACKWARD_READ, MHA__LEAVES_K | MHA__LEAVES_V
#define IN_DK MHA__BACKWARD_READ, MHA__LEAVES_Q | MHA__LEAVES_V
#define IN_DV MHA__BACKWARD_SCORES, MHA__LEAVES_Q | MHA__LEAVES_K
#define IN_DP MHA__BACKWARD_SUMS, MHA__LEAVES_V
#define IN_ALL MHA__BACKWARD_SUMS, 0
#define AS_READ MHA__BACKWARD_READ, 0

static const mha__gradient_bug rows[] = {
    NUMBERS("lse", "the lse of which P is made", THE_LSE, 0),
    NUMBER_BLOCKS("lse", "the lse of which P is made", THE_LSE, 0),
    RAGGED("lse", "the lse of which P is made", THE_LSE, 0),
    NUMBERS("d", "D", THE_D, MHA__LEAVES_V),
    RAGGED("d", "D", THE_D, MHA__LEAVES_V),
    NUMBER_BLOCKS("d", "D", THE_D, MHA__LEAVES_V),
    NUMBERS("dlse", "dlse", THE_DLSE, MHA__LEAVES_V),
    READ("do-of-other-order-heads", "dO is read as (batch, T, heads, width) and is (batch, heads, T, width)",
         DO_EVERYWHERE, WRITTEN_BY_HEADS, 0, AS_READ),
    READ("do-of-other-order-time", "dO is read as (batch, heads, T, width) and is (batch, T, heads, width)",
         DO_EVERYWHERE, WRITTEN_BY_TIME, 0, AS_READ),
    READ("do-of-other-order-features", "dO is read as (T, width) of each head and is (width, T)",
         DO_EVERYWHERE, WRITTEN_BY_FEATURES, 0, AS_READ),
    READ("do-of-other-order-batch", "dO is read as (batch, heads) and is (heads, batch)",
         DO_EVERYWHERE, WRITTEN_BY_BATCH_LAST, 0, AS_READ),
    READ("do-of-first-feature", "all features of a row of dO are its first one: its stride is taken for 0",
         DO_EVERYWHERE, FIRST_FEATURE, 0, AS_READ),
    READ("do-of-first-number", "all dO is its first number: its strides are taken for 0",
         DO_EVERYWHERE, FIRST_NUMBER, 0, AS_READ),
    PLACES("do", "dO is read", "query", DO_EVERYWHERE, AS_READ),
    PLACES("dv-do", "dV alone reads dO", "query", DO_IN_DV, IN_DV),
    PLACES("dp-do", "dP alone reads dO", "query", DO_IN_DP, IN_DP),
    PLACES("dp-dv-do", "dP and dV read dO, and D does not,", "query", DO_BEHIND_D, IN_ALL),
    OF_GROUP("dp-dv-do", "dP and dV read dO, and D does not,", DO_BEHIND_D, IN_ALL),
    PLACES("values", "dP reads V", "key", V_IN_DP, IN_DP),
    OTHER_PLACES("dq-keys", "dQ alone reads K", "key", K_IN_DQ, IN_DQ),
    PLACES("dk-queries", "dK alone reads Q", "query", Q_IN_DK, IN_DK),
    PLACES("keys", "P and dQ read K", "key", K_EVERYWHERE, IN_ALL),
    PLACES("queries", "P and dK read Q", "query", Q_EVERYWHERE, IN_ALL),
    PLACES("keys-values", "the backward reads K and V", "key", K_AND_V, IN_ALL),
    OF_GROUP("do", "dO is read", DO_EVERYWHERE, AS_READ),
    OF_GROUP("dv-do", "dV alone reads dO", DO_IN_DV, IN_DV),
    OF_GROUP("dp-do", "dP alone reads dO", DO_IN_DP, IN_DP),
    OF_GROUP("dk-queries", "dK alone reads Q", Q_IN_DK, IN_DK),
    OF_GROUP("queries", "P and dK read Q", Q_EVERYWHERE, IN_ALL),
    OTHER_WIDTHS("do", "dO is read", DO_EVERYWHERE, AS_READ),
    OTHER_WIDTHS("values", "dP reads V", V_IN_DP, IN_DP),
    OTHER_WIDTHS("dq-keys", "dQ alone reads K", K_IN_DQ, IN_DQ),
    OTHER_WIDTHS("dk-queries", "dK alone reads Q", Q_IN_DK, IN_DK),
    BLOCKS("keys", "dQ meets", "keys", K_IN_DQ, IN_DQ),
    BLOCKS("queries", "dK meets", "queries", Q_IN_DK, IN_DK),
    BLOCKS("do", "dV meets rows of dO", "queries", DO_IN_DV, IN_DV),
    BLOCKS("dp-do", "dP meets rows of dO", "queries", DO_IN_DP, IN_DP),
    BLOCKS("values", "dP meets", "values", V_IN_DP, IN_DP),
    READ("keys-by-remainder", "dQ of head i meets the keys of key/value head i mod h_kv", K_IN_DQ, BY_REMAINDER, 0,
         IN_DQ),
    READ("values-by-remainder", "dP of head i meets the values of key/value head i mod h_kv", V_IN_DP, BY_REMAINDER,
         0, IN_DP),
    READ("heads-by-remainder", "head i meets the keys and values of key/value head i mod h_kv", K_AND_V_BEHIND_P,
         BY_REMAINDER, 0, IN_DP),
    READ("keys-values-by-remainder", "P, dP and dQ of head i meet keys and values of key/value head i mod h_kv",
         K_AND_V, BY_REMAINDER, 0, IN_ALL),
};
/* clang-format on */

mha__gradient_bug_list mha__gradient_bugs_of_reads(void)
{
    return (mha__gradient_bug_list){rows, COUNT(rows)};
}
