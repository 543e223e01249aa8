/* Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2): keys and values made from one latent of each token, or
 * left as latents, with W_KVB put beside the queries and behind the weighted sum. */
#include <string.h>

#include "attention/rows/rows.h"
#include "base/heads.h"
#include "compute/gemm.h"
#include "compute/thread_pool.h"

/* The first `width` features of rows (B, T, n), or those behind `from`. */
static mha_view features(const mha_view *rows, size_t from, size_t width)
{
    return mha_view_slice(rows, rows->rank - 1, from, width);
}

/* Copies d_n features of each head from W_KVB's rows, and the one row of d_r to all heads. */
static void assemble_keys(const mha__resolved *r, const mha_view *wide, const mha_view *latents, const mha_view *K)
{
    const mha__latent *l = &r->latent;
    for (size_t b = 0; b < K->shape[0]; b++)
        for (size_t t = 0; t < K->shape[1]; t++)
            for (size_t g = 0; g < K->shape[2]; g++) {
                float *key = mha__row(K, b, t, g);
                memcpy(key, mha__row(wide, b, t, g), l->d_n * sizeof(float));
                memcpy(key + l->d_n, mha__row(latents, b, t, 0) + l->kv_rank, l->d_r * sizeof(float));
            }
}

/* ---------------------------------------------------------------- each head times its columns of W_KVB */

enum { TASK_ROWS = 512 }; /* of one sequence, so that other sequences do not change its bits */

typedef struct by_head {
    const mha__resolved *r;
    const mha_view *x, *y; /* (B, T_q, h, width) */
    const float *W;        /* W_KVB */
    bool enter;            /* y = x W_K^T and the rotated features beside it; else y = x W_V */
    size_t row_tasks;
} by_head;

static void run_block(void *context, size_t task, int worker)
{
    (void)worker;
    const by_head *p = context;
    const mha__latent *l = &p->r->latent;
    const size_t h = p->r->plan.h, head = task % h, first = task / h % p->row_tasks * TASK_ROWS;
    const mha__sequence s = mha__resolved_sequence(p->r, task / h / p->row_tasks);
    if (first >= s.T_q)
        return;
    const size_t m = s.T_q - first < TASK_ROWS ? s.T_q - first : TASK_ROWS, ld = h * (l->d_n + l->d_v);
    const float *x = mha__row(p->x, s.batch, s.q_from + first, head), *W = p->W + head * (l->d_n + l->d_v);
    float *y = mha__row(p->y, s.batch, s.q_from + first, head);
    const size_t ldx = (size_t)p->x->stride[1], ldy = (size_t)p->y->stride[1];
    if (!p->enter) {
        mha__gemm(m, l->d_v, l->kv_rank, x, ldx, W + l->d_n, ld, y, ldy);
        return;
    }
    mha__gemm_nt(m, l->kv_rank, l->d_n, x, ldx, W, ld, y, ldy);
    for (size_t i = 0; i < m; i++)
        memcpy(y + i * ldy + l->kv_rank, x + i * ldx + l->d_n, l->d_r * sizeof(float));
}

static void through_heads(const mha__resolved *r, const mha_view *x, const mha_view *y, bool enter, float *scratch)
{
    const mha__sizes *p = &r->plan;
    by_head job = {r, x, y, mha__weight_as_floats(&r->weight[MHA_W_KVB], scratch, p->threads), enter,
                   (p->T_q + TASK_ROWS - 1) / TASK_ROWS};
    mha__parallel_for(p->B * job.row_tasks * p->h, p->threads, run_block, &job);
}

void mha__latent_leave(const mha__resolved *r, const mha_view *mixed, const mha_view *heads, float *scratch)
{
    through_heads(r, mixed, heads, false, scratch);
}

/* ---------------------------------------------------------------- queries, keys and values */

mha_view mha__latent_values(const mha__resolved *r, const mha_view *keys)
{
    return features(keys, 0, r->latent.kv_rank);
}

void mha__latent_inputs(const mha__resolved *r, const mha_view to[MHA_LATENT_RESULTS], const mha_view *Q,
                        const mha_view *K, mha_view heads[3], float *scratch, mha__clock *clock)
{
    const mha__latent *l = &r->latent;
    const mha_view *wide_q = l->absorbed ? &to[MHA_WIDE_Q] : Q;
    const mha__projection down[] = {
        {MHA_QUERIES, &r->query, l->q_rank ? MHA_W_QA : MHA_W_Q, l->q_rank ? MHA_B_QA : MHA_B_Q,
         l->q_rank ? 1 : r->plan.h, l->q_rank ? &to[MHA_Q_LATENT] : wide_q},
        {MHA_KEYS, &r->key, MHA_W_KVA, MHA_B_KVA, 1, &to[MHA_KV_LATENT]}};
    mha_view made[2];
    mha__project(r, down, 2, made, scratch);
    if (l->q_rank)
        mha__stages_done(r, (mha_stage[]){MHA_STAGE_Q_LATENT, MHA_STAGE_KV_LATENT}, made, 2, clock);
    else
        mha__stage_done(r, MHA_STAGE_KV_LATENT, &made[1], clock);

    if (l->q_rank) {
        mha__normalise_rows(r, &r->weight[MHA_QA_NORM], &to[MHA_Q_LATENT]);
        const mha__projection up = {MHA_QUERIES, &to[MHA_Q_LATENT], MHA_W_Q, MHA_B_Q, r->plan.h, wide_q};
        mha__project(r, &up, 1, made, scratch);
    }
    heads[0] = made[0];
    if (l->absorbed) {
        heads[0] = mha__split_heads(Q, r->plan.h);
        through_heads(r, &made[0], &heads[0], true, scratch);
    }
    mha__stage_done(r, MHA_STAGE_Q, &heads[0], clock);

    const mha_view c = features(&to[MHA_KV_LATENT], 0, l->kv_rank);
    mha__normalise_rows(r, &r->weight[MHA_KVA_NORM], &c);
    if (l->absorbed) {
        heads[1] = made[1];
        heads[2] = mha__latent_values(r, &made[1]);
    } else {
        const mha__projection up = {MHA_KEYS, &c, MHA_W_KVB, MHA_B_V, r->plan.h, &to[MHA_WIDE_KV]};
        mha_view wide;
        mha__project(r, &up, 1, &wide, scratch);
        heads[1] = mha__split_heads(K, r->plan.h);
        assemble_keys(r, &wide, &made[1], &heads[1]);
        heads[2] = features(&wide, l->d_n, l->d_v);
    }
    mha__stages_done(r, (mha_stage[]){MHA_STAGE_K, MHA_STAGE_V}, &heads[1], 2, clock);
}
