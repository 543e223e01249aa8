/* Kept stages of a backward: copied as the steps make them, and handed out. */
#include <string.h>

#include "attention/backward/stages/stages.h"
#include "attention/exact/rounding.h"

bool mha__backward_begin_stages(mha__backward *b)
{
    for (size_t i = 0; i < b->given->keep_count; i++) {
        const mha_backward_keep *keep = &b->given->keep[i];
        const mha_view *of = &keep->view;
        if (of->data && !(b->kept[keep->stage] = mha__arena_view(&b->memory, MHA_F64, of->rank, of->shape)).data)
            return false;
    }
    return true;
}

const mha_view *mha__backward_stage_made(const mha__backward *b, mha_backward_stage stage, mha__backward_step step)
{
    const mha__backward_stage *row = mha__backward_stage_of(stage);
    return row->made == step ? (const mha_view *)(const void *)((const char *)b + row->at) : NULL;
}

double *mha__backward_kept_at(const mha__backward *b, mha_backward_stage stage, const mha__map *map, size_t i,
                              size_t j)
{
    const mha_view *kept = &b->kept[stage];
    if (!kept->data)
        return NULL;
    const size_t row = (map->b * kept->shape[1] + map->head) * kept->shape[2] + i;
    return (double *)kept->data + (kept->rank == 4 ? row * kept->shape[3] + j : row);
}

/* What a step made of a map. */
static void keep_map(const mha__backward *b, mha_backward_stage stage, const mha__map *map)
{
    const double *made = *(double *const *)(const void *)((const char *)map + mha__backward_stage_of(stage)->at);
    const size_t n = b->kept[stage].rank == 4 ? map->n : 1;
    for (size_t i = 0; i < map->s.T_q; i++)
        memcpy(mha__backward_kept_at(b, stage, map, i, 0), made + i * n, n * sizeof *made);
}

void mha__backward_keep(const mha__backward *b, mha__backward_step step, const mha__map *map)
{
    for (int s = 0; s < MHA_BACKWARD_STAGE_COUNT; s++) {
        const mha_view *kept = &b->kept[s];
        const mha_view *made = mha__backward_stage_made(b, (mha_backward_stage)s, step);
        if (!kept->data || !made)
            continue;
        if (map)
            keep_map(b, (mha_backward_stage)s, map);
        else
            memcpy(kept->data, made->data, mha_view_elements(kept) * sizeof(double));
    }
}

void mha__backward_hand_stages(const mha__backward *b, mha_dtype rows, const mha_gradients *to)
{
    for (size_t i = 0; i < to->keep_count; i++) {
        const mha_backward_keep *keep = &to->keep[i];
        const mha_view *kept = &b->kept[keep->stage];
        if (!keep->view.data)
            continue;
        if (mha__backward_stage_of(keep->stage)->made == MHA__BACKWARD_HEADS)
            mha__round_all(rows, kept->data, mha_view_elements(kept));
        (void)mha_view_copy(&keep->view, kept);
    }
}
