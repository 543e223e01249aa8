/* The shapes of mha bench, by name or written out. */
#ifndef MHA_BENCH_SHAPES_H
#define MHA_BENCH_SHAPES_H

#include "mha/mha.h"

typedef struct bench_shape {
    const char *name;
    size_t B, T_q, T_k, d_model, h, h_kv, d_k; /* T_q 1: one new token, T_k - 1 cached before it */
    bool causal, bias;
    mha_dtype weights, cache;                  /* F32, F16 or BF16; the list and the names say F32 */
} bench_shape;

/* What of a layer is run: all of it; attention alone, with Q, K and V given; its four projections alone. */
typedef enum bench_part { BENCH_LAYER, BENCH_CORE, BENCH_PROJ, BENCH_PARTS } bench_part;
const char *bench_part_name(bench_part part);

/* By number; NULL past the last. */
const bench_shape *bench_shape_at(size_t index);
enum { BENCH_STANDARD = 13 }; /* the first of them, which are run when none is asked for */
/* A name of the list, or B,Tq,Tk,d_model,h[,kv=N][,dk=N][,causal][,nobias]; false when it is neither. */
bool bench_shape_read(const char *text, bench_shape *shape);

enum { BENCH_SHAPE_TEXT = 160 };
/* The shape written out, as bench_shape_read takes it; of the list, where d_k is d_model / h. Returns `text`. */
char *bench_shape_text(char text[BENCH_SHAPE_TEXT], const bench_shape *shape);

static inline bool bench_decodes(const bench_shape *s) { return s->T_q == 1 && s->T_k > 1; }
static inline bool bench_crosses(const bench_shape *s) { return s->T_q != s->T_k && !bench_decodes(s); }

/* Floating-point operations, two for each multiply-add: of the core 2 h (d_k + d_v) for each pair of a query and a key
 * that it sees; the projections of T_q queries and of the new keys and values; for a layer both. */
double bench_flops(const bench_shape *s, bench_part part);
/* Bytes that decoding has to read: the cache, the weights, for a layer both, each once. */
double bench_bytes(const bench_shape *s, bench_part part);

#endif
