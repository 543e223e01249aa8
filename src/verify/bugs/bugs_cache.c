/* Bugs of what is found in a cache: the numbers to try, and what lists/cache.h asks of a case. */
#include "verify/bugs/bugs.h"

enum { K = 1 << 1, V = 1 << 2 }; /* bits of mha__knobs.past */

/* Whether keys and values are cached as they are attended to, of as many rows in each batch row. */
static bool caches(const mha_case *c)
{
    return c->P > 0 && c->kv_rank == 0 && c->semantics.place.n_sequences == 0;
}

static void find(mha__knobs *k, int whose)
{
    k->past = whose;
}

static bool is_exchangeable(const mha_case *c)
{
    return caches(c) && c->d_k == c->d_v;
}

/* Whether cached keys were rotated by positions that have an angle. */
static bool turns(const mha_case *c)
{
    return caches(c) && c->semantics.qkv.rope.kind != MHA_ROPE_NONE && c->semantics.qkv.rope.cos_table.rank != 3;
}

static bool any_row(const mha_case *c, size_t index, double *x)
{
    return any_move(c->P, index, x);
}

static bool any_head(const mha_case *c, size_t index, double *x)
{
    return any_move(c->H_kv, index, x);
}

static bool is_bits(double x)
{
    return is_whole(x) && x > 2 && x <= 24;
}

/* Powers of two, and all rows together. */
static bool any_page(const mha_case *c, size_t index, double *x)
{
    const double rows = (double)(c->P + c->T_k);
    *x = index == 0 ? rows : ldexp(1, (int)index);
    return index == 0 || (index < 32 && *x < rows);
}

/* The first for all, then by how much they are moved. */
static bool any_batch(const mha_case *c, size_t index, double *x)
{
    *x = index == 0 ? MOVE_TO_FIRST : (double)index;
    return c->B > 1 && index < c->B && index <= 16;
}

#define LIST mha__bugs_of_caches
#define LIST_FILE "verify/bugs/lists/cache.h"
#include "verify/bugs/lists/list.h"
