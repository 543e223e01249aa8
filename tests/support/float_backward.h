/* A backward in float32 as somebody writes it for a kernel, with one bug if a name is given. */
#ifndef TEST_FLOAT_BACKWARD_H
#define TEST_FLOAT_BACKWARD_H

#include "mha/backward.h"

enum { FB_MOST = 160 };

/* Contiguous (B, T, h, d_k), (B, S, h_kv, d_k), (B, S, h_kv, d_v), (B, T, h, d_v). */
typedef struct float_backward {
    size_t B, T, S, h, h_kv, d_k, d_v;
    float scale, softcap;      /* softcap 0: none */
    bool causal;
    size_t offset;             /* position of query 0 */
    int window_left, window_right; /* -1: none */
    const int64_t *lengths;    /* (B); NULL: all keys */
    const int64_t *segments;   /* (B, T), T = S: a query sees keys of its own number; NULL: all */
    bool ragged;               /* they are the sequences of a ragged batch, in order */
    const bool *padding;       /* (B, S): keys that are kept; NULL: all */
    const float *mask;         /* (mask_B, mask_h, T, S), added; NULL: none */
    size_t mask_B, mask_h;     /* 1, or B and h */
    bool flags;                /* the mask is one of flags: 0 or minus infinity */
    const float *slopes;       /* (h) of ALiBi; NULL: none */
    const float *sinks;        /* (h); NULL: none */
    const float *norms;        /* (2, d_k): weights of RMS norms of q and of k; NULL: none */
    float norm_eps;
    bool norm_of_sum;          /* they are norms of a sum of squares, not of a mean */
    bool rope;                 /* half split, base 10000, */
    size_t rope_dim;           /* of so many features; 0: all */
    const float *q, *k, *v, *dO, *dlse; /* dlse (B, h, T); NULL: 0 */
    float *dq, *dk, *dv, *dmask, *dslopes, *dsinks, *dnorms;
} float_backward;

/* Computes all gradients, with the bug of that name; "" for none. False: it makes no bug of that name. */
bool float_backward_run(const float_backward *f, const char *bug);

#endif
