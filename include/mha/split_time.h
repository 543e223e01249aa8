/* Laboratory. How long a layer takes on several processes: a model of cost. */
#ifndef MHA_SPLIT_TIME_H
#define MHA_SPLIT_TIME_H

#include "mha/split.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ranks that are all alike. With node_ranks 0 each has one link, on which it sends one message and receives another at
 * the same time, while it computes. Otherwise neighbouring ranks share a node: its cores compute and copy the messages,
 * so that nothing hides a message, and more ranks than cores take turns. */
typedef struct mha_machine {
    double flops;     /* operations a second of a rank that has a core to itself; a multiply-add is two */
    double memory;    /* bytes a second that it reads, or reads and writes (join) */
    double latency;   /* seconds that a message takes in addition to its bytes */
    double bandwidth; /* bytes a second of a link */
    size_t cores, node_ranks; /* of a node. node_ranks 0: no nodes; else cores 0: one for each rank */
} mha_machine;

/* A call whose time is asked for. */
typedef struct mha_split_work {
    mha_split split; /* checked */
    size_t cached;   /* of its T_k keys, those that are projected already: T_k - 1 when one token is decoded */
    bool causal;
} mha_split_work;

/* Seconds. A product takes its operations / flops, or its bytes / memory if that is more. */
typedef struct mha_split_time {
    double project;  /* W_Q, W_K, W_V and W_O, on the rank with the most rows or heads */
    double attend;   /* on the rank with the most pairs */
    double exchange; /* all messages of the rank with the most bytes: their latencies, and the bytes / bandwidth */
    double join;     /* outputs added up, parts merged, rows put into messages: the bytes that the rank with most moves
                      * / memory */
    /* project + attend + exchange + join; where keys and values go round, each step of attending hides a message:
     * project + attend / P + (P-1) max(attend, exchange P / (P-1)) / P + join. On a node with cores for its ranks: the
     * sum of the rank with most, or that of all its ranks / cores if this is more. */
    double total;
} mha_split_time;

/* The model (src/split/README.md derives it). Errors: MHA_INVALID (a number of the machine that is not positive and
 * finite; a latency may be 0; more cached keys than there are). */
MHA_API mha_status mha_split_time_of(const mha_split_work *work, const mha_machine *machine, mha_split_time *time,
                                     mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
