/* Blocks of query rows of the fast path: how the work is cut into them, and what each row of one sees and writes. */
#ifndef MHA_ATTENTION_CORE_FLASH_QUERY_BLOCK_H
#define MHA_ATTENTION_CORE_FLASH_QUERY_BLOCK_H

#include "attention/core/terms/terms.h"
#include "attention/core/flash/flash.h"

/* The keys [from, to) of every sequence, of which `together` neighbouring sequences share memory; whether they are the
 * last keys. `from` is 0 or the beginning of a block of mha__flash. */
typedef struct mha__key_range {
    size_t from, to, together;
    bool last;
} mha__key_range;

/* All keys of a call, each sequence with its own. */
static const mha__key_range mha__all_keys = {0, SIZE_MAX, 1, true};

/* One worker's memory. */
typedef struct mha__block_worker {
    mha__flash_row *rows;
    float *lse;
    float *relative, *relative_work; /* relative terms of all rows and MHA_BLOCK keys, and what makes them */
    void *scratch, *room; /* room: for keys in pages */
} mha__block_worker;

/* Data that all tasks share. The rows of a key/value head of a sequence are its queries under all query heads that
 * share it, position by position; those of sequences that share their keys follow each other. A block is some
 * consecutive rows. */
typedef struct mha__attention {
    const mha__resolved *r;
    const mha_view *Q, *K, *V, *heads;
    const float *bias_rows;       /* of a relative position bias */
    const mha__relative_tables *relative;
    mha__key_range range;      /* the keys that K and V are */
    size_t group;              /* query heads for each key/value head */
    size_t block_rows, blocks; /* of one key/value head of the sequences that share it */
    size_t all_blocks;
    int threads;               /* as many as are worth waking */
    size_t segments;           /* tasks into which the keys of a block are divided; 1: the block is one task */
    float *extra_k, *extra_v;  /* (h_kv, S_extra, d) */
    mha__trimmer trimmer;      /* of a call with masks */
    float *logits;             /* (h, n_logits): terms of the denominator without a key */
    size_t n_logits;
    mha__flash flash;          /* what all blocks have in common */
    char *workers;
    size_t worker_bytes;
    mha__block_worker worker_0; /* the memory of the others follows, worker_bytes apart */
} mha__attention;

/* A block of rows of one key/value head. */
typedef struct mha__query_block {
    const mha__attention *a;
    size_t b, g, first, rows; /* b: the first sequence whose rows are counted from 0 */
    size_t rows_of_one;       /* of a sequence */
    mha__sequence s;          /* of the row that was asked for last, and its number */
    size_t now;
    mha__interval held; /* the keys whose terms were computed last */
    bool any;           /* whether one of these terms is not 0 */
    mha__block_worker w;
    mha__interval related; /* the keys whose relative terms are in the memory of the worker, and of which sequence */
    size_t related_of;
    mha__flash flash;
} mha__query_block;

/* Cuts the work of a range into a few tasks for each thread. The bits of a row do not depend on it. */
void mha__blocks_cut(const mha__resolved *r, mha__attention *a);
/* Takes the memory that every call needs, but that of the workers; then theirs, for blocks that have been cut. */
void mha__blocks_take(mha__workspace *arena, const mha__resolved *r, mha__attention *a);
void mha__blocks_take_workers(mha__workspace *arena, mha__attention *a);
/* Fills what was taken. */
void mha__blocks_begin(mha__attention *a);

/* Describes a block and its rows, in the memory of a worker. False when it has none: sequences of a ragged batch differ
 * in length. */
bool mha__query_block_prepare(const mha__attention *a, size_t number, int worker, mha__query_block *t);
/* The end of its rows, over the last keys; they are then of one sequence. */
void mha__query_block_finish(const mha__query_block *t);

#endif
