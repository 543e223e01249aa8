/* Stages of a call: kept, and timed. */
#ifndef MHA_ATTENTION_CACHE_STAGES_H
#define MHA_ATTENTION_CACHE_STAGES_H

#include "attention/call/resolved.h"

/* When the last step ended, for the times of stages. */
typedef struct mha__clock {
    double last;
} mha__clock;

/* Keeps a stage if the call asks for it. `values` is (B, T, heads, d); the memory for the stage may also be
 * (B, T, heads*d). mha__stage_done also takes the time since the last one. */
void mha__stage_keep(const mha__resolved *r, mha_stage stage, const mha_view *values);
void mha__times_clear(const mha__resolved *r); /* sets all times to 0 */
mha__clock mha__clock_start(const mha__resolved *r);
void mha__stage_done(const mha__resolved *r, mha_stage stage, const mha_view *values, mha__clock *clock);
/* The same for n stages that were computed together: they share the time in proportion to their sizes. */
void mha__stages_done(const mha__resolved *r, const mha_stage *stages, const mha_view *values, size_t n,
                      mha__clock *clock);
/* Keeps all keys and values, (B, S, h_kv, d), of a cache and of the call. */
void mha__present_done(const mha__resolved *r, const mha_view *K, const mha_view *V, mha__clock *clock);
/* Keeps a row of n values of a stage; (a, b, c) are its indices before the last one. */
void mha__stage_row(const mha__resolved *r, mha_stage stage, size_t a, size_t b, size_t c, mha_dtype dtype,
                    const void *row, size_t n);

/* Fills the kept stages of a ragged batch, or of keys in pages, with zeros, which remain where a sequence is shorter
 * than the longest one. */
void mha__stages_clear_ragged(const mha__resolved *r);

#endif
