/* Rows of weights by the stages that a forward of some rows of one head keeps: float64 on the exact path, else float32.
 */
#include <string.h>

#include "attention/call/definition.h"
#include "attention/visibility/pattern.h"
#include "base/heads.h"
#include "picture/call/call.h"

/* Bytes of each stage of the rows that are kept at a time, by each worker. */
static const size_t row_bytes = (size_t)16 << 20;

enum { STAGES = 3 }; /* of each row: weights, masked scores and, where they are shown, scores */

typedef struct mha__rows_worker {
    void *kept[STAGES], *workspace;
    double *row; /* three rows of S' */
} worker;

/* Fills in the weights that attention itself sees, cut to one head. */
static void cut_weights(const mha__drawn_call *d, size_t head, mha_view weights[MHA_WEIGHT_COUNT])
{
    static const mha_weight seen[] = {MHA_SINKS,  MHA_BIAS_TABLE, MHA_BIAS_K, MHA_BIAS_V, MHA_RELATIVE_K,
                                      MHA_RELATIVE_COLUMNS, MHA_RELATIVE_Q};
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        mha_view *w = &weights[seen[i]];
        *w = d->r->weight[seen[i]];
        if (!w->data)
            continue;
        const bool relative = seen[i] >= MHA_RELATIVE_K,
                   by_query_head = seen[i] == MHA_SINKS || seen[i] == MHA_BIAS_TABLE;
        if (relative && w->shape[1] == d->plan.d_k) /* one table for all heads */
            continue;
        const int last = w->rank - 1;
        const size_t heads = by_query_head || relative ? d->plan.h : d->plan.h_kv, width = w->shape[last] / heads;
        *w = mha_view_slice(w, last, head * heads / d->plan.h * width, seen[i] == MHA_BIAS_V ? 1 : width);
    }
}

/* A mask cut to one sequence, to one head and to some of its queries. */
static mha_mask cut_mask(mha_mask mask, size_t b, size_t head, size_t from, size_t count)
{
    mha__view_cut(&mask.values, 3, b, 1);
    mha__view_cut(&mask.values, 2, head, 1);
    mha__view_cut(&mask.values, 1, from, count);
    return mask;
}

/* Cuts what masks say of keys to the first ones: in a ragged batch they reach to the longest sequence. */
static void cut_keys(mha_semantics *m, size_t S)
{
    const size_t size = m->visible.pattern.block_keys, blocks = size > 0 ? S / size + (S % size != 0) : S;
    const struct {
        mha_view *view;
        size_t most;
    } all[] = {{&m->visible.mask.values, S},
               {&m->visible.key_padding.values, S},
               {&m->visible.pattern.k_segments, S},
               {&m->visible.pattern.blocks.values, blocks}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        mha_view *v = all[i].view;
        if (v->data && v->shape[v->rank - 1] > all[i].most)
            *v = mha_view_slice(v, v->rank - 1, 0, all[i].most);
    }
}

/* The number of keys of a sequence that the queries before `past` may see; all where hidden scores are kept, too. */
static size_t keys_before(const mha__drawn_call *d, const mha__sequence *s, size_t past)
{
    const mha__resolved *r = d->r;
    const mha__visibility *v = &r->visibility;
    const int64_t reach = mha__at_least(s->offset + (int64_t)past, v->prefix) - v->first_key;
    const bool by_causal_alone =
        !d->keeps_scores && v->causal && r->plan.S_extra == 0 && !v->lengths && !v->masks;
    if (!by_causal_alone || reach >= (int64_t)s->S)
        return s->S;
    return reach < 1 ? 1 : (size_t)reach;
}

/* The call that gives rows [from, from + count) of a head's weights, with `weights` as its memory. Its values do not
 * matter: they are the first features of the keys. */
static mha_call call_of_rows(const mha__rows_job *job, size_t head, size_t from, size_t count,
                             mha_view weights[MHA_WEIGHT_COUNT])
{
    const mha__drawn_call *d = job->d;
    const mha__sequence *s = &job->s;
    const mha__resolved *r = d->r;
    mha_call call = {.path = d->plan.path == MHA_PATH_EXACT ? MHA_PATH_EXACT : MHA_PATH_BLAS,
                     .threads = job->threads,
                     .weights = weights,
                     .weight_count = MHA_WEIGHT_COUNT,
                     .precision = r->precision,
                     .semantics = *mha__semantics_of(r)};
    const size_t kv = head / (r->plan.h / r->plan.h_kv) - d->first_kv, b = job->b;
    const size_t S = keys_before(d, s, from + count);
    mha_view q = mha_view_slice(&d->queries, 0, s->batch, 1), k = mha_view_slice(&d->keys, 0, s->batch, 1);
    cut_weights(d, head, weights);
    q = mha_view_slice(&q, 2, head - d->first_head, 1);
    k = mha_view_slice(&k, 2, kv, 1);
    call.query = mha_view_slice(&q, 1, s->q_from + from, count);
    call.key = mha_view_slice(&k, 1, s->k_from, S);
    call.value = mha_view_slice(&call.key, 3, 0, 1);
    mha_semantics *m = &call.semantics;
    m->softmax.has_scale = true;
    m->softmax.scale = r->plan.scale;
    m->softmax.dropout_p = 0, m->softmax.dropout_keep = (mha_view){0}; /* the weights are those before it */
    m->place = (mha_place){.has_offset = true,
                           .offset = s->offset + (int64_t)from,
                           .has_key_offset = m->place.has_key_offset || r->first_key != 0,
                           .key_offset = r->first_key,
                           .keys_only = m->place.keys_only};
    m->visible.kv_lengths = m->visible.kv_lengths ? m->visible.kv_lengths + b : NULL;
    if (m->visible.key_padding.values.data && m->visible.key_padding.values.rank == 2 &&
        m->visible.key_padding.values.shape[0] > 1)
        m->visible.key_padding.values = mha_view_slice(&m->visible.key_padding.values, 0, b, 1);
    m->visible.mask = cut_mask(m->visible.mask, b, head, from, count);
    mha__pattern_cut(&m->visible.pattern, b, (size_t[]){head, head + 1}, from, count);
    cut_keys(m, S);
    m->added.alibi_slopes = m->added.alibi_slopes ? m->added.alibi_slopes + head : NULL;
    m->qkv = (mha_qkv){.norm_eps = 0}; /* done */
    return call;
}

/* Copies row i of a kept stage, of one sequence and head; NULL when it is not kept. */
static const double *row_of(const mha_view *stage, size_t i, double *row)
{
    const size_t at = i * stage->shape[3];
    if (stage->data && stage->dtype == MHA_F64)
        memcpy(row, (const double *)stage->data + at, stage->shape[3] * sizeof *row);
    for (size_t j = 0; stage->data && stage->dtype == MHA_F32 && j < stage->shape[3]; j++)
        row[j] = ((const float *)stage->data)[at + j];
    return stage->data ? row : NULL;
}

static size_t stages_of(const mha__rows_job *job)
{
    return job->d->keeps_scores && job->bands->head->masked ? STAGES : STAGES - 1;
}

/* Computes some rows of a head and adds them to it. */
static mha_status add_rows(const mha__rows_job *job, mha__band *band, size_t from, size_t count, const worker *w,
                           mha_error *error)
{
    static const mha_stage kept[STAGES] = {MHA_STAGE_WEIGHTS, MHA_STAGE_MASKED, MHA_STAGE_CAPPED};
    const size_t stages = stages_of(job);
    const mha__drawn_call *d = job->d;
    mha_view weights[MHA_WEIGHT_COUNT] = {{0}};
    mha_call call = call_of_rows(job, band->head->head, from, count, weights);
    mha_keep keep[STAGES] = {{0}};
    mha_plan plan;
    TRY(mha_plan_call(NULL, &call, &plan, error));
    for (size_t i = 0; i < stages; i++) {
        size_t shape[4];
        const int rank = mha_plan_stage(&plan, kept[i], shape);
        keep[i] = (mha_keep){.stage = kept[i], .view = mha_view_of(w->kept[i], d->queries.dtype, rank, shape)};
    }
    call.keep = keep;
    call.keep_count = stages;
    TRY(mha_plan_call(NULL, &call, &plan, error));
    TRY(mha_forward(&plan, w->workspace, job->workspace_bytes, error));
    const size_t S = job->s.S + plan.S_extra, seen = keep[0].view.shape[3];
    double *row = w->row;
    for (size_t j = seen; j < S; j++)
        row[j] = 0, row[S + j] = -INFINITY, row[2 * S + j] = NAN; /* hidden: no score was computed */
    for (size_t i = 0; i < count; i++) {
        const mha__head_row one = {
            .query = from + i,
            .position = (double)(job->s.offset + (int64_t)(from + i) - d->r->first_key),
            .keys = S,
            .extra = plan.S_extra,
            .seen = seen,
            .weights = row_of(&keep[0].view, i, row),
            .masked = row_of(&keep[1].view, i, row + S),
            .scores = row_of(&keep[2].view, i, row + 2 * S),
            .is_softmax = mha__semantics_of(d->r)->softmax.normaliser == MHA_SOFTMAX,
        };
        mha__head_add(band->head, &band->sum, &one);
    }
    return MHA_OK;
}

/* How many rows from row i on are computed at a time: they lie in one block of a pattern or begin one. */
static size_t rows_from(const mha__rows_job *job, size_t i, size_t past)
{
    const size_t size = mha__semantics_of(job->d->r)->visible.pattern.block_queries, most = job->rows, left = past - i;
    const size_t rest = size > 0 ? size - i % size : most;
    const size_t rows = size > 0 && rest == size && most >= size ? most / size * size : rest < most ? rest : most;
    return rows < left ? rows : left;
}

mha_status mha__kept_rows_add(const mha__rows_job *job, mha__band *band, int number, mha_error *error)
{
    for (size_t i = band->first, rows; i < band->past; i += rows) {
        rows = rows_from(job, i, band->past);
        TRY(add_rows(job, band, i, rows, &job->workers[number], error));
    }
    return MHA_OK;
}

/* Finds out how much memory the rows of a band need; of every head it is as much. */
static mha_status measure(mha__rows_job *job, const mha__band *band, mha_error *error)
{
    for (size_t i = band->first, count; i < band->past; i += count) {
        mha_view weights[MHA_WEIGHT_COUNT] = {{0}};
        mha_plan plan;
        count = rows_from(job, i, band->past);
        const mha_call call = call_of_rows(job, band->head->head, i, count, weights);
        TRY(mha_plan_call(NULL, &call, &plan, error));
        if (plan.workspace_bytes > job->workspace_bytes)
            job->workspace_bytes = plan.workspace_bytes;
    }
    return MHA_OK;
}

mha_status mha__kept_rows_begin(mha__rows_job *job, size_t workers, mha_error *error)
{
    const size_t S = job->s.S + job->d->plan.S_extra, rows = row_bytes / ((S + 1) * sizeof(double));
    const bool wide = job->d->plan.path == MHA_PATH_EXACT;
    job->rows = rows < 1 ? 1 : rows < job->past - job->first ? rows : job->past - job->first;
    const mha__band *one = job->bands;
    TRY(measure(job, one, error));
    while (one->past < job->past) /* the bands of the first head */
        TRY(measure(job, ++one, error));
    const size_t bytes = job->rows * S * (wide ? sizeof(double) : sizeof(float));
    worker *w = job->workers = mha__arena_take(&job->scratch, workers * sizeof *w);
    bool taken = w;
    for (size_t n = 0; n < workers && taken; n++) {
        taken = (w[n].row = mha__arena_take(&job->scratch, 3 * S * sizeof(double))) &&
                (w[n].workspace = mha__arena_take(&job->scratch, job->workspace_bytes));
        for (size_t i = 0; i < stages_of(job) && taken; i++)
            taken = (w[n].kept[i] = mha__arena_take(&job->scratch, bytes));
    }
    return taken ? MHA_OK
                 : mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for %zu rows of weights", job->rows);
}
