/* Bugs of what is found in a cache: the numbers to try, and what lists/cache.h asks of a case. */
#include "verify/bugs/bugs.h"

/* clang-format off */
enum { K = 1 << 1, V = 1 << 2 }; /* bits of mha__knobs.past */

/* Whether keys and values are cached as they are attended to, of as many rows in each batch row. */
PREDICATE(caches, c->P > 0 && c->kv_rank == 0 && c->semantics.place.n_sequences == 0)

static void find(mha__knobs *k, int whose)
{
    k->past = whose;
}

PREDICATE(is_exchangeable, caches(c) && c->d_k == c->d_v)
/* Whether cached keys were rotated by positions that have an angle. */
PREDICATE(turns, caches(c) && c->semantics.qkv.rope.kind != MHA_ROPE_NONE && c->semantics.qkv.rope.cos_table.rank != 3)
NUMBERS_OF(any_row, any_move(c->P, index, x))
NUMBERS_OF(any_head, any_move(c->H_kv, index, x))

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
NUMBERS(any_batch, index == 0 ? MOVE_TO_FIRST : (double)index, c->B > 1 && index < c->B && index <= 16)
/* clang-format on */

#define LIST mha__bugs_of_caches
#define LIST_FILE "verify/bugs/lists/cache.h"
#include "verify/bugs/lists/list.h"
