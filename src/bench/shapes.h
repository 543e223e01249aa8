/* The shapes of mha bench, given by name or written out. */
#ifndef MHA_BENCH_SHAPES_H
#define MHA_BENCH_SHAPES_H

#include "mha/lab.h"

typedef struct bench_shape {
    const char *name;
    size_t B, T_q, T_k, d_model, h, h_kv, d_k; /* T_q = 1: one new token after T_k - 1 cached ones */
    bool causal, bias;
    mha_dtype weights, cache;                  /* F32, F16 or BF16, the cache also I8; F32 in the list and in texts */
    mha_dtype precision;                       /* of the products: F32 or BF16, which weights and cache then are, too */
    bool shared; /* decoding: the B sequences continue one cache of T_k - 1 rows, stored once */
    size_t docs; /* documents of equal length, told by a boolean mask; 1: a mask that hides nothing; 0: no mask */
} bench_shape;

/* The measured part of a layer: all of it; only attention, with Q, K and V given; only the four projections. */
typedef enum bench_part { BENCH_LAYER, BENCH_CORE, BENCH_PROJ, BENCH_PARTS } bench_part;
const char *bench_part_name(bench_part part);

/* Shape `index` of the list; NULL past the last. */
const bench_shape *bench_shape_at(size_t index);
enum { BENCH_STANDARD = 13 };       /* number of standard shapes */
#define BENCH_SET "standard"        /* the name of all of these */
#define BENCH_DEFAULT "bert1x512"   /* the shape without --shape */
/* Reads a name of the list, or B,Tq,Tk,d_model,h[,kv=N][,dk=N][,docs=N][,causal][,nobias][,shared]. Documents need
 * Tq = Tk, and at most as many as tokens. Returns NULL, or the form that it expected, static text. */
const char *bench_shape_fault(const char *text, bench_shape *shape);

enum { BENCH_SHAPE_TEXT = 160 };
/* Writes a shape of the list, whose d_k is d_model / h, in the form that bench_shape_fault takes. Returns `text`. */
char *bench_shape_text(char text[BENCH_SHAPE_TEXT], const bench_shape *shape);

static inline bool bench_decodes(const bench_shape *s) { return s->T_q == 1 && s->T_k > 1; }
static inline bool bench_crosses(const bench_shape *s) { return s->T_q != s->T_k && !bench_decodes(s); }

/* Tokens of each document; the last one may have fewer. docs is not 0. */
static inline size_t bench_document(const bench_shape *s) { return (s->T_k - 1) / s->docs + 1; }
/* Whether the mask lets query i see key j. */
static inline bool bench_keeps(const bench_shape *s, size_t i, size_t j)
{
    return s->docs == 0 || i / bench_document(s) == j / bench_document(s);
}

/* Floating-point operations, two for each multiply-add. Core: 2 h (d_k + d_v) for each query and each key that it
 * sees. Projections: those of T_q queries and of the new keys and values. A layer: both. */
double bench_flops(const bench_shape *s, bench_part part);
/* Bytes that decoding reads, each once: the cache for the core, the weights for the projections, both for a layer. */
double bench_bytes(const bench_shape *s, bench_part part);
/* Bytes that have to move at least: inputs, weights, the cache and a mask read once, the output written once.
 * Intermediate results (Q, K, V of a layer, scores) could stay in caches. With it operations become flop/byte. */
double bench_least_bytes(const bench_shape *s, bench_part part);

#endif
