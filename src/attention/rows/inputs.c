/* Rows of queries, keys and values around their projection: what is projected, and what becomes of the result before it
 * is attended to. In BF16 rows are rounded once, by whoever reads them last before a product. */
#include "attention/rows/rows.h"
#include "base/heads.h"
#include "compute/half.h"

bool mha__changes_rows(const mha__resolved *r, int which)
{
    static const mha_weight bias[] = {MHA_B_Q, MHA_B_K, MHA_B_V};
    const bool turns = r->qkv.rope.kind != MHA_ROPE_NONE;
    return r->layer || r->qkv.clip_qkv > 0 || r->weight[bias[which]].data ||
           (which < 2 && (turns || r->norm[which] != MHA_NORM_NONE)) || (which == 0 && mha__scales_queries(&r->qkv));
}

bool mha__projects_copies(const mha__resolved *r)
{
    bool rounds = mha__rounds_to_bf16(r), changes = false;
    for (int which = 0; which < 3 && rounds; which++)
        changes |= mha__changes_rows(r, which);
    return rounds && (r->layer ? mha__project_uses_blas(r) : changes || !mha__rounds_late(r));
}

void mha__inputs_to_project(const mha__resolved *r, char *workspace, size_t n, mha_view x[])
{
    const mha_view *given[3] = {&r->query, &r->key, &r->value};
    const bool follows[3] = {false, r->key_follows, r->value_follows};
    for (size_t i = 0; i < n && i < 3; i++) {
        x[i] = *given[i];
        if (!mha__projects_copies(r))
            continue;
        if (follows[i] && given[i]->data == given[i - 1]->data) { /* mha_plan_move may have set them apart */
            x[i] = x[i - 1];
            continue;
        }
        const bool by_head = given[i]->rank == 4;
        const mha_view to = mha__result_in(r, workspace, &r->layout.rounded[i]),
                       heads = mha__split_heads(&to, by_head ? given[i]->shape[2] : 1),
                       from = by_head ? *given[i] : mha__split_heads(given[i], 1);
        mha__round_to_bf16(&heads, &from, r->plan.threads);
        x[i] = by_head ? heads : to;
    }
}

void mha__clip_projected(const mha__resolved *r, const mha_view heads[3])
{
    for (size_t i = 0; i < 3; i++)
        if (i == 2 || !mha__normalises_first(r, i))
            mha__clip(r, &heads[i]);
}

void mha__finish_rows(const mha__resolved *r, mha__side side, const mha_view *x, const mha_view *rows)
{
    if (mha__normalises_first(r, side)) {
        mha__normalise(r, side, rows);
        mha__clip(r, rows);
    }
    mha__rotate_heads(r, side, rows);
    if (r->qkv.norm.after_rope)
        mha__normalise(r, side, rows);
    if (side == MHA_QUERIES)
        mha__scale_queries(r, rows);
    mha__finish_values(r, x, rows);
}

void mha__finish_values(const mha__resolved *r, const mha_view *x, const mha_view *rows)
{
    if (mha__rounds_to_bf16(r) && !mha__rounds_late(r) && rows->data != x->data)
        mha__round_to_bf16(rows, rows, r->plan.threads);
}
