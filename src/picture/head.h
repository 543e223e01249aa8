/* A head that is filled row by row: its map, its largest weights, its statistics. */
#ifndef MHA_PICTURE_HEAD_H
#define MHA_PICTURE_HEAD_H

#include "mha/file.h"
#include "picture/picture.h"

/* Takes the memory of a head, one of `heads`, whose sequence, head, first_query, queries, first_key and keys are set.
 * `numbers`: scores and masked scores are kept, too, unless the map is pooled. All maps together stay below 8 million
 * cells, and the largest weights that are listed below 2 million, but for one in each row. MHA_NO_MEMORY. */
mha_status mha__head_begin(mha__head *head, mha__arena *memory, size_t heads, bool numbers, mha_error *error);

/* One row of S' keys. What is unknown is NULL; without masked scores no key is known to be hidden. */
typedef struct mha__head_row {
    size_t query;
    double position;   /* of the query, where key 0 has position 0 */
    size_t keys, extra; /* S', and how many of these keys are no tokens: the last ones */
    size_t seen;        /* keys from here on are hidden, and have a weight of 0 */
    const double *weights, *scores, *masked;
    bool is_softmax; /* the weights were computed from the masked scores, not recorded beside them or by a sigmoid */
} mha__head_row;

/* Adds the next row, in which the first one is that of query first_query, to the map and to a sum of statistics. */
void mha__head_add(mha__head *head, mha__head_statistics *sum, const mha__head_row *row);
/* Adds a sum to the statistics of the head, and turns them into means when all have been added. */
void mha__head_sum(mha__head *head, const mha__head_statistics *sum);
void mha__head_end(mha__head *head);

/* The length of the prefix of a tensor that is called `stage` or "NAME.STAGE"; SIZE_MAX for another tensor. */
size_t mha__stage_prefix(const char *name, const char *stage);

/* ---------------------------------------------------------------- names of tokens (tokens.c) */

/* Takes the names that a file records as token_names, or its ids named by the vocabulary, unless there are names
 * already. MHA_FORMAT, MHA_INVALID, MHA_NO_MEMORY. */
mha_status mha__picture_tokens_of(mha__picture *picture, const mha_file *file, const mha__picture_choice *choice,
                                  mha_error *error);

/* ---------------------------------------------------------------- what is shown (choice.c) */

enum { MHA__SCORES = 1 << 18 }; /* elements of scores that are kept beside the weights */

typedef struct mha__choice_parts {
    size_t sequences[2], heads[2]; /* from the first to before the second */
} mha__choice_parts;

/* MHA_INVALID: a batch row or a head that the layer has not. */
mha_status mha__choice_resolve(const mha__picture_choice *choice, size_t sequences, size_t heads,
                               mha__choice_parts *parts, mha_error *error);
/* Sets the queries and keys of a head of T_q queries and S' keys, in one of so many sequences. MHA_INVALID: some that
 * it has not. */
mha_status mha__choice_cut(const mha__picture_choice *choice, size_t sequences, size_t T_q, size_t S, mha__head *head,
                           mha_error *error);

#endif
