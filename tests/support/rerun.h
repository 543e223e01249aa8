/* A call run again in another way: rows gathered, queries and keys cut, heads apart, caches filled. */
#ifndef TEST_RERUN_H
#define TEST_RERUN_H

#include "mha/mha.h"

/* A call with memory of its own for what was copied. The call is plain data: change it at will. */
typedef struct rerun {
    const mha_layer *layer;
    mha_call call;
    mha_view past_key, past_value; /* rows a cache shall hold before the call; no data: no cache */
    const mha_dtype *cache_dtype, *stage_dtype; /* NULL: F64 on the exact path, else F32 */
    size_t evicted;                /* rows that came before these */
    size_t kept;                   /* of these rows, those that stay when the call appends its own; 0: all */
    void *blocks[96];
    size_t n_blocks;
    mha_plan plan;
    mha_keep keep[MHA_STAGE_COUNT];   /* the call's list */
    mha_view stages[MHA_STAGE_COUNT]; /* of the last run, contiguous */
    mha_cache *cache;
} rerun;

void rerun_init(rerun *r, const mha_layer *layer, const mha_call *call, const mha_view *past_key,
                const mha_view *past_value);
void rerun_free(rerun *r);
void *rerun_memory(rerun *r, size_t bytes);

/* The rows order[0..n) of the view's `axis`: copied, or in place when there is one. The view itself when
 * that extent is 1 or it has no data. */
mha_view rerun_gather(rerun *r, const mha_view *v, int axis, const size_t *order, size_t n);
/* Elements [from, from + n) of an axis counted from the right (1 is the last), unless its extent is 1. */
mha_view rerun_cut(const mha_view *v, int from_right, size_t from, size_t n);

/* The views among the settings, of which only elements [from, from + n) of the axis stay that shapes call `symbol`. */
void rerun_settings(rerun *r, const char *symbol, size_t from, size_t n);

/* The call on only the batch rows order[0..n). */
void rerun_batch(rerun *r, const size_t *order, size_t n);
/* The call on query rows [from, from + n): they stay at their positions. */
void rerun_queries(rerun *r, size_t from, size_t n);
/* The call with explicit keys, key positions and offsets, so that its keys can be cut. */
void rerun_spell_out(rerun *r);

/* Makes the cache anew, as it is before the call on a path; nothing where there are no rows. */
mha_status rerun_cache(rerun *r, mha_path path, mha_error *error);
/* Runs it, keeping the stages of `keep` (a bit for each). */
mha_status rerun_run(rerun *r, mha_path path, int threads, unsigned keep, mha_error *error);

#endif
