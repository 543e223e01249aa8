/* Attention over keys that come block by block: each query keeps its place in the whole call, and the parts are joined
 * in the order of the keys. */
#include <math.h>

#include "attention/visibility/visibility.h"
#include "mha/merge.h"
#include "mpi/shared.h"

/* Blocks come in at most four ascending or descending runs of neighbours: of the lower and of the upper half of the
 * chunks those from this rank's own on, and the others. */
enum { RUNS = 4 };

/* The result over the chunks [from, to], F64. */
typedef struct run {
    size_t from, to;
    bool any; /* a part has been computed */
    mha_part result;
} run;

/* One chunk of this rank's queries. */
typedef struct group {
    mha_range queries;
    size_t at;  /* their first row among this rank's */
    run runs[RUNS];
    size_t count;
    mha_part part; /* of one block: heads of the call's type, lse F64 */
} group;

struct mha__mpi_parts {
    bool exact;
    group groups[2];
    mha_view partial; /* exact: (B, h, rows, d_v + 2), the softmaxes so far */
    mha_view heads;   /* (B, rows, h, d_v) */
    size_t keys;      /* that a mask which ends early reaches */
    int64_t *offsets; /* (B), for the call of a part */
    void *workspace;  /* of the part that needs most */
    size_t workspace_bytes;
};

mha__mpi_parts *mha__mpi_parts_create(mha__mpi_call *c, mha_status *status, mha_error *error)
{
    const size_t B = c->split.B, h = c->split.config.n_heads, d_v = c->split.config.d_v;
    const mha_mask *mask = &c->given->semantics.visible.mask;
    mha__mpi_parts *p = mha__mpi_take(c, 1, sizeof *p, status, error);
    if (!p)
        return NULL;
    p->exact = c->path == MHA_PATH_EXACT;
    p->keys = c->split.T_k;
    if (mask->kind != MHA_MASK_NONE && mask->values.shape[mask->values.rank - 1] > 1)
        p->keys = mask->values.shape[mask->values.rank - 1];
    p->heads = mha__mpi_view(c, MHA_F64, 4, (size_t[]){B, c->q_rows, h, d_v}, status, error);
    p->offsets = mha__mpi_scratch(c, B, sizeof *p->offsets, status, error);
    if (p->exact)
        p->partial = mha__mpi_view(c, MHA_F64, 4, (size_t[]){B, h, c->q_rows, d_v + 2}, status, error);
    const size_t rows = p->exact && *status == MHA_OK ? B * h * c->q_rows : 0;
    for (size_t i = 0; i < rows * (d_v + 2); i++) /* nothing seen yet: -inf, and zeros */
        ((double *)p->partial.data)[i] = i % (d_v + 2) == 0 ? -INFINITY : 0;
    for (size_t g = 0, at = 0; g < c->share.chunks; at += c->share.queries[g].count, g++) {
        group *q = &p->groups[g];
        q->queries = c->share.queries[g];
        q->at = at;
        if (p->exact)
            continue;
        const size_t n = q->queries.count, heads[4] = {B, n, h, d_v}, lse[3] = {B, h, n};
        q->part.heads = mha__mpi_view(c, c->dtype, 4, heads, status, error);
        q->part.lse = mha__mpi_view(c, MHA_F64, 3, lse, status, error);
    }
    return p;
}

/* ---------------------------------------------------------------- the call of a part */

/* Position of query 0 of batch row b in the whole call. */
static int64_t offset_of(const mha_semantics *s, size_t b)
{
    return s->place.position_offset ? s->place.position_offset[b] : s->place.offset;
}

/* Whether position lets any query of a group see any key. */
static bool may_see(const mha__mpi_call *c, mha_range queries, mha_range keys)
{
    const mha_semantics *s = &c->given->semantics;
    const mha__visibility v = mha__visibility_of(s, s->place.key_offset + (int64_t)keys.from);
    bool any = false;
    for (size_t b = 0; b < c->split.B; b++)
        any |= mha__visible_pairs(&v, offset_of(s, b) + (int64_t)queries.from, queries.count, keys.count) > 0;
    return any;
}

static mha_semantics part_semantics(const mha__mpi_call *c, const mha__mpi_parts *p, mha_range queries, mha_range keys,
                                    bool first)
{
    mha_semantics s = c->given->semantics;
    mha__mpi_between(&s);
    for (size_t b = 0; b < c->split.B; b++)
        p->offsets[b] = offset_of(&s, b) + (int64_t)queries.from;
    s.place.position_offset = p->offsets;
    s.place.has_offset = false, s.place.offset = 0;
    s.place.has_key_offset = true;
    s.place.key_offset += (int64_t)keys.from;
    s.place.keys_only |= !first;
    mha__mpi_cut(&s.visible.mask.values, 1, queries);
    mha__mpi_cut(&s.visible.mask.values, 0, keys);
    mha__mpi_cut(&s.visible.key_padding.values, 0, keys);
    mha__mpi_cut_pattern(c, &s.visible.pattern, queries, keys);
    if (!p->exact)
        s.softmax.empty_rows = MHA_EMPTY_ZERO; /* the rule is that of all parts together */
    return s;
}

/* The call of a group's queries and a block's first keys; `lse` is what it keeps. */
static mha_call part_call(mha__mpi_call *c, mha__mpi_parts *p, const group *g, const mha__mpi_block *block,
                          mha_range keys, mha_keep *lse)
{
    mha_call call = {.query = mha_view_slice(&c->Q, 1, g->at, g->queries.count),
                     .key = mha_view_slice(&block->K, 1, 0, keys.count),
                     .value = mha_view_slice(&block->V, 1, 0, keys.count),
                     .semantics = part_semantics(c, p, g->queries, keys, block->chunk == 0),
                     .weights = c->weights, .weight_count = MHA_WEIGHT_COUNT,
                     .path = c->path, .threads = c->given->threads};
    *lse = (mha_keep){.stage = MHA_STAGE_LSE, .view = g->part.lse};
    if (p->exact) {
        call.partial = mha_view_slice(&p->partial, 2, g->at, g->queries.count);
        call.output = mha_view_slice(&p->heads, 1, g->at, g->queries.count);
    } else {
        call.output = g->part.heads;
        call.keep = lse, call.keep_count = 1;
    }
    return call;
}

/* ---------------------------------------------------------------- joining */

/* The run that ends next to a chunk, or one more; it then reaches to the chunk. */
static run *run_of(group *g, size_t chunk)
{
    size_t i = 0;
    while (i < g->count && chunk != g->runs[i].to + 1 && chunk + 1 != g->runs[i].from)
        i++;
    run *r = &g->runs[i];
    if (i == g->count) {
        g->count++;
        r->from = r->to = chunk;
    }
    r->from = chunk < r->from ? chunk : r->from;
    r->to = chunk > r->to ? chunk : r->to;
    return r;
}

/* Adds the part of a chunk, which saw something, to its run. */
static mha_status join(const group *g, run *r, size_t chunk, mha_error *error)
{
    const bool before = chunk == r->from;
    const mha_part both[2] = {before ? g->part : r->result, before ? r->result : g->part};
    const bool any = r->any;
    r->any = true;
    return any ? mha_merge(both, 2, MHA_EMPTY_ZERO, &r->result, error)
               : mha_merge(&g->part, 1, MHA_EMPTY_ZERO, &r->result, error);
}

/* The keys of a block that a mask reaches. */
static mha_range reached(const mha__mpi_parts *p, const mha__mpi_block *block)
{
    const size_t left = block->rows.from < p->keys ? p->keys - block->rows.from : 0;
    return (mha_range){block->rows.from, block->rows.count < left ? block->rows.count : left};
}

/* Whether a part is computed. The first one counts what is no key, whatever it sees. */
static bool is_seen(const mha__mpi_call *c, const group *g, const mha__mpi_block *block, mha_range keys)
{
    return g->queries.count > 0 && (block->chunk == 0 || (keys.count > 0 && may_see(c, g->queries, keys)));
}

/* Plans the attention of each group of queries to a block; computes it, too, if this is no rehearsal. */
static mha_status visit(mha__mpi_call *c, mha__mpi_parts *p, const mha__mpi_block *block, bool rehearses,
                        mha_error *error)
{
    const mha_range keys = reached(p, block);
    for (size_t i = 0; i < c->share.chunks; i++) {
        group *g = &p->groups[i];
        run *r = p->exact || g->queries.count == 0 ? NULL : run_of(g, block->chunk);
        if (rehearses) {
            TRY(mha__mpi_expect_block(c, false, g->queries, error));
            TRY(mha__mpi_expect_block(c, true, block->rows, error));
        }
        if (!is_seen(c, g, block, keys))
            continue;
        mha_keep lse;
        mha_plan plan;
        const mha_call call = part_call(c, p, g, block, keys, &lse);
        TRY(mha_plan_call(NULL, &call, &plan, error));
        if (rehearses) {
            p->workspace_bytes = plan.workspace_bytes > p->workspace_bytes ? plan.workspace_bytes : p->workspace_bytes;
            if (r)
                r->any = true;
            continue;
        }
        TRY(mha_forward(&plan, p->workspace, p->workspace_bytes, error));
        if (r)
            TRY(join(g, r, block->chunk, error));
    }
    return MHA_OK;
}

mha_status mha__mpi_parts_expect(mha__mpi_call *c, mha__mpi_parts *p, const mha__mpi_block *block, mha_error *error)
{
    return visit(c, p, block, true, error);
}

mha_status mha__mpi_parts_prepare(mha__mpi_call *c, mha__mpi_parts *p, mha_error *error)
{
    const size_t B = c->split.B, h = c->split.config.n_heads, d_v = c->split.config.d_v;
    mha_status status = MHA_OK;
    for (size_t g = 0; g < c->share.chunks; g++) {
        group *q = &p->groups[g];
        const size_t n = q->queries.count;
        for (size_t i = 0; i < q->count; i++) {
            if (!q->runs[i].any)
                continue;
            q->runs[i].result.heads = mha__mpi_view(c, MHA_F64, 4, (size_t[]){B, n, h, d_v}, &status, error);
            q->runs[i].result.lse = mha__mpi_view(c, MHA_F64, 3, (size_t[]){B, h, n}, &status, error);
            q->runs[i].any = false;
        }
        q->count = 0;
    }
    p->workspace = mha__mpi_scratch(c, p->workspace_bytes, 1, &status, error);
    return status;
}

mha_status mha__mpi_parts_meet(mha__mpi_call *c, mha__mpi_parts *p, const mha__mpi_block *block, mha_error *error)
{
    return visit(c, p, block, false, error);
}

mha_status mha__mpi_parts_join(mha__mpi_call *c, mha__mpi_parts *p, mha_view *heads, mha_error *error)
{
    *heads = p->heads;
    for (size_t i = 0; i < c->share.chunks && !p->exact; i++) {
        const group *g = &p->groups[i];
        mha_part ordered[RUNS];
        size_t n = 0;
        for (size_t chunk = 0; chunk < 2 * c->split.ranks; chunk++) /* in the order of the keys */
            for (size_t k = 0; k < g->count; k++)
                if (g->runs[k].from == chunk && g->runs[k].any)
                    ordered[n++] = g->runs[k].result;
        const mha_part whole = {mha_view_slice(&p->heads, 1, g->at, g->queries.count), {0}};
        if (g->queries.count > 0)
            TRY(mha_merge(ordered, n, c->given->semantics.softmax.empty_rows, &whole, error));
    }
    return MHA_OK;
}
