/* GGUF files made by tests: metadata, and tensors of F32. */
#ifndef TEST_GGUF_H
#define TEST_GGUF_H

#include "mha/file.h"
#include "support/scratch.h"

enum { GGUF_MOST = 12 }; /* tensors of a plan */

typedef struct gguf_tensor {
    const char *name;
    int rank;
    size_t shape[3];
    float *values;
} gguf_tensor;

/* A file to be. Zero-initialised is empty. */
typedef struct gguf_plan {
    bytes pairs;
    size_t pair_count, count;
    gguf_tensor tensors[GGUF_MOST];
} gguf_plan;

void gguf_text(gguf_plan *p, const char *key, const char *value);
void gguf_count(gguf_plan *p, const char *key, size_t value);
void gguf_real(gguf_plan *p, const char *key, double value);
void gguf_flag(gguf_plan *p, const char *key, bool value);
/* An array of `count` numbers below 2^32, or of flags. */
void gguf_list(gguf_plan *p, const char *key, const size_t *values, size_t count, bool flags);
/* The values are freed with the plan. */
void gguf_add(gguf_plan *p, const char *name, int rank, const size_t *shape, float *values);
/* Writes the file and opens it; the plan stays as it is. */
mha_file *gguf_open(gguf_plan *p);
void gguf_free(gguf_plan *p);

#endif
