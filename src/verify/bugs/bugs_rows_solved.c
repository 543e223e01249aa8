/* Bugs whose rows of q, k or v lie elsewhere: the numbers to try, and what lists/rows_solved.h asks of a case. */
#include "verify/bugs/bugs.h"

/* clang-format off */
enum { Q = 1, K = 2, V = 4 }; /* bits of mha__knobs.moved */

/* Whether rows of q have one place in a batch row: none behind other sequences. */
PREDICATE(moves_q, attends(c) && c->semantics.place.n_sequences == 0)
/* Whether those of k and v have one, too: none in a cache. */
PREDICATE(moves, moves_q(c) && c->P == 0)
/* Whether they have one in a cache; rows that are made of cached latents have none. */
PREDICATE(moves_rows, moves_q(c) && (c->P == 0 || c->kv_rank == 0))

/* Rows of k or v lie elsewhere: before they are normalised and rotated, or where they were cached. */
static void lie(const mha_case *c, mha__knobs *k, int whose)
{
    if (c->P > 0)
        k->joined = whose;
    else
        k->moved = whose;
}

static size_t count_keys(const mha_case *c)
{
    return c->P + c->T_k;
}

/* Whether numbers say which row stands at each place of the keys. */
static bool are_places(const mha_case *c, const double *x)
{
    return are_indices(x, c->B * count_keys(c), count_keys(c));
}

static bool is_row(const mha_case *c, double x)
{
    return is_whole(x) && x >= (c->P > 0 ? 2 : 1) && x < (double)count_keys(c);
}

static bool is_order(double x)
{
    return x == MEMORY_ROWS_FIRST || x == MEMORY_HEADS_FIRST || x == MEMORY_FEATURES_FIRST;
}

NUMBERS_OF(any_query, any_move(c->T_q, index, x))
NUMBERS_OF(any_key, any_move(count_keys(c), index, x))
/* Few of them: 1, -1, ... -4; for the first query of a causal mask, which sees one key, 0 is as good as another. */
NUMBERS_OF(any_few_queries, any_query(c, index + c->semantics.visible.causal, x) && index < 8)
NUMBERS_OF(any_few_keys, any_key(c, index, x) && index < 8)
NUMBERS_OF(any_query_head, any_move(c->H, index, x))
NUMBERS_OF(any_key_head, any_move(c->H_kv, index, x))
NUMBERS_OF(any_feature, any_move(c->d_k, index, x))
NUMBERS_OF(any_value_feature, any_move(c->d_v, index, x))
/* The first for all, then by how much they are moved. */
NUMBERS(any_batch, index == 0 ? MOVE_TO_FIRST : (double)index, c->B > 1 && index < c->B && index <= 64)
/* Keys from the second on, behind a cache from the third: of one key others tell as well. */
NUMBERS(any_later_key, (double)index + (c->P > 0 ? 2 : 1), *x < (double)count_keys(c) && index < 512)

/* Whether so many features have such an order, FEATURES_...: pairs of more than one. */
static bool is_order_of(size_t features, double x)
{
    const bool named =
        x == FEATURES_REVERSED || x == FEATURES_EXCHANGED || x == FEATURES_TO_PAIRS || x == FEATURES_TO_HALVES;
    return named && features > 2 && features % 2 == 0;
}

NUMBERS(any_of_two, (double)index + 1, index < 2)
NUMBERS(any_of_four, (double)index + 1, index < FEATURES_TO_HALVES)
NUMBERS(any_order, (double)index + 1, index < MEMORY_FEATURES_FIRST)
/* clang-format on */

#define LIST mha__bugs_of_rows_solved
#define LIST_FILE "verify/bugs/lists/rows_solved.h"
#include "verify/bugs/lists/list.h"
