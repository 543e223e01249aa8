/* Looks for the numbers of bugs with one for each head, batch row, key or weight, until one reproduces the tensor. */
#include "verify/diagnose/solve/solve.h"

mha_status mha__search_solve_each(mha__search *s, mha_error *error)
{
    enum { ALWAYS = 2 }; /* the first ones: the others are tried if nothing reproduces the tensor */
    static const struct {
        int how;
        mha__solver *solve;
    } all[] = {
        {SOLVE_HEADS, mha__solve_places},        {SOLVE_BATCHES, mha__solve_places},
        {SOLVE_UNWRITTEN, mha__solve_unwritten}, {SOLVE_WRITTEN, mha__solve_places},
        {SOLVE_QUERIES, mha__solve_readers},     {SOLVE_FACTORS, mha__solve_factors},
        {SOLVE_Q_HEADS, mha__solve_readers},     {SOLVE_KV_HEADS, mha__solve_readers},
        {SOLVE_COLUMNS, mha__solve_places},      {SOLVE_KEYS, mha__solve_keys},
        {SOLVE_VALUES, mha__solve_values},       {SOLVE_KEY_ROWS, mha__solve_key_rows},
        {SOLVE_COUNTS, mha__solve_keys},         {SOLVE_BLOCKS, mha__solve_places},
        {SOLVE_KV_BLOCKS, mha__solve_readers},   {SOLVE_BIASES, mha__solve_lacking},
        {SOLVE_NORMS, mha__solve_lacking},       {SOLVE_DROPPED, mha__solve_dropout},
        {SOLVE_BY_HEADS, mha__solve_by_heads},
    };
    mha_status status = MHA_OK;
    for (size_t k = 0; k < sizeof all / sizeof *all && status == MHA_OK; k++) {
        mha__arena pool = {.allocator = mha__allocator_default()};
        if (k >= ALWAYS && mha__search_least_order(s, s->target.wide, 1) <= 2)
            break;
        for (size_t i = 0; i < mha_bug_count() && status == MHA_OK; i++) {
            const mha__bug_entry *e = mha__solved_entry_at(i);
            if (e && e->how == all[k].how && !mha__search_is_over(s))
                status = all[k].solve(s, i, &pool, error);
        }
        mha__arena_free(&pool);
    }
    return status;
}
