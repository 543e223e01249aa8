/* Variants whose rows of q, k or v lie elsewhere: the numbers to try, and what lists/rows_solved.h asks of a case. */
#include <math.h>

#include "verify/variants/variants.h"

enum { Q = 1, K = 2, V = 4 }; /* bits of mha__knobs.moved */

/* Whether rows have one place in a batch row: none in a cache, none behind other sequences. */
static bool moves(const mha_case *c)
{
    return attends(c) && c->P == 0 && c->semantics.place.n_sequences == 0;
}

static bool is_whole(double x)
{
    return fabs(x) <= 0x1p31 && x == floor(x);
}

static bool is_row(const mha_case *c, double x)
{
    return is_whole(x) && x >= 1 && x < (double)c->T_k;
}

static bool is_order(double x)
{
    return x == MEMORY_ROWS_FIRST || x == MEMORY_HEADS_FIRST || x == MEMORY_FEATURES_FIRST;
}

/* 1, -1, 2, -2, ... as far as half of n, and not beyond 64. */
static bool any_move(size_t n, size_t index, double *x)
{
    const size_t size = index / 2 + 1;
    *x = index % 2 ? -(double)size : (double)size;
    return size <= 64 && (index % 2 ? 2 * size < n : 2 * size <= n);
}

static bool any_query(const mha_case *c, size_t index, double *x)
{
    return any_move(c->T_q, index, x);
}

static bool any_key(const mha_case *c, size_t index, double *x)
{
    return any_move(c->T_k, index, x);
}

static bool any_query_head(const mha_case *c, size_t index, double *x)
{
    return any_move(c->H, index, x);
}

static bool any_key_head(const mha_case *c, size_t index, double *x)
{
    return any_move(c->H_kv, index, x);
}

static bool any_feature(const mha_case *c, size_t index, double *x)
{
    return any_move(c->d_k, index, x);
}

static bool any_value_feature(const mha_case *c, size_t index, double *x)
{
    return any_move(c->d_v, index, x);
}

/* The first for all, then by how much they are moved. */
static bool any_batch(const mha_case *c, size_t index, double *x)
{
    *x = index == 0 ? MOVE_TO_FIRST : (double)index;
    return c->B > 1 && index < c->B && index <= 64;
}

/* Keys from the second on. */
static bool any_later_key(const mha_case *c, size_t index, double *x)
{
    *x = (double)index + 1;
    return index + 1 < c->T_k && index < 512;
}

static bool any_order(const mha_case *c, size_t index, double *x)
{
    (void)c;
    *x = (double)index + 1;
    return index < MEMORY_FEATURES_FIRST;
}

#define LIST mha__variants_of_rows_solved
#define LIST_FILE "verify/variants/lists/rows_solved.h"
#include "verify/variants/lists/list.h"
