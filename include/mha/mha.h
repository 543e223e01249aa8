/* mha: multi-head attention on a CPU. Includes the interface of libmha and explains its symbols.
 *
 *   MultiHead(x) = concat(head_1 ... head_h) W_O + b_O
 *   head_i = softmax(Q_i K_i^T * scale) V_i,   Q = x_q W_Q + b_Q,  K = x_k W_K + b_K,  V = x_v W_V + b_V
 *                                              Vaswani et al. 2017, sections 3.2.1 and 3.2.2
 *
 *   B          batch rows                       T_q, T_k   lengths of the query and of the new keys
 *   d_model    width of the model               S          cached + new keys; S' with extra rows
 *   h, h_kv    query heads, key/value heads     d_k, d_v   width of one head of Q and K, of V
 *   d_q d_kin d_vin d_out   widths of the query, key and value inputs and of the output
 *   scores     Q K^T * scale                    weights    softmax of the scores
 *   causal     key j is visible to query i iff j <= i + offset
 *
 * One header for each noun: status (errors), tensor (types and views), params (the parameter table), layer
 * (configuration and weights), cache (keys and values of earlier calls), pages (the same in pages of a pool), rope
 * (rotary positions), mask (masks, segments, lists of keys), bias (numbers added to scores by position), relative
 * (products added to scores by position), precision (where a kernel of 16 or 8 bits rounds), attention (semantics,
 * stages, forward), backward (its gradients), setting (what can be set of the semantics and of a layer, as tables),
 * merge (parts of the keys joined), random (random numbers), system (instruction set, BLAS, threads).
 * Files, models, test cases and known bugs are in a second library, libmha-lab: mha/lab.h. One layer on several
 * processes is in a third, libmha_mpi: mha/mpi.h.
 *
 * The library never prints, exits or aborts. Between calls it keeps three things of its own: the chosen instruction
 * set, a count of forwards that run inside the BLAS (meanwhile the BLAS uses one thread), and a pool of threads
 * (mha_threads_use, mha_threads_end), which sleep until the next forward and end when the process exits.
 *
 * Four limits of a process with many callers:
 *   - The pool serves 16 callers at a time. A further caller runs its forward on one thread, its own.
 *   - Threads of the pool that all sleep take the processors (affinity mask) of the caller that wakes them, and keep
 *     them until another caller wakes them: a caller on two processors confines them to these two.
 *   - While a forward is inside OpenBLAS, OpenBLAS has one thread for every user in the process.
 *   - A packed layer that a call on another path reads keeps both copies of its weights: see mha_layer_drop_views.
 *
 * The interface of libmha grows so that a program compiled with an older header goes on to run: functions and fields
 * are only added, words of an enum at its end. A struct that callers fill, or that is returned by value, ends with
 * reserved words. They are 0, like every field that is not given, and later versions make fields of them. A word
 * other than 0 is MHA_UNSUPPORTED: a setting of a newer header is refused, not passed over. The types without such
 * words (mha_view, mha_error, mha_allocator, mha_keep, mha_backward_keep, mha_part, mha_rope_axes, and the members
 * of the parts of mha_semantics but mha_rope) stay as they are. Structs that functions return by pointer grow at the
 * end. Until 1.0 a minor version may break this where CHANGELOG.md says so: the name of the shared library contains
 * it. The other libraries promise no more than that. */
#ifndef MHA_MHA_H
#define MHA_MHA_H

#include "mha/attention.h"
#include "mha/backward.h"
#include "mha/bias.h"
#include "mha/cache.h"
#include "mha/layer.h"
#include "mha/mask.h"
#include "mha/merge.h"
#include "mha/pages.h"
#include "mha/params.h"
#include "mha/precision.h"
#include "mha/random.h"
#include "mha/relative.h"
#include "mha/renamed.h"
#include "mha/rope.h"
#include "mha/setting.h"
#include "mha/status.h"
#include "mha/system.h"
#include "mha/tensor.h"

#endif
