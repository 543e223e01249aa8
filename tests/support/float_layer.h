/* A layer of attention in float32 and its backward as somebody writes it, with one bug if a name is given. */
#ifndef TEST_FLOAT_LAYER_H
#define TEST_FLOAT_LAYER_H

#include "mha/layer.h"

enum { FL_MOST = 4096 };

/* Numbers of rows, (rows, width), and of weights as mha_weight has them; those of weights that the layer does not have
 * are not read. `gates` 0: none, h: one for each head, h d_v: one for each feature. kv_rank 0: no latents. */
typedef struct float_layer {
    size_t B, T, S, E_q, E_k, E_v, E_o, h, h_kv, d_k, d_v, gates, kv_rank, q_rank, d_r;
    bool key_given, value_given; /* otherwise the key input is that of queries, the value input that of keys */
    const float *x_q, *x_k, *x_v, *dO;
    const float *weight[MHA_WEIGHT_COUNT];
    float *d_weight[MHA_WEIGHT_COUNT], *d_x[3]; /* of an input that is not given none */
} float_layer;

/* Computes all gradients, with the bug of that name; "" for none. False: it makes no bug of that name. */
bool float_layer_run(const float_layer *l, const char *bug);

#endif
