/* Bugs whose rows of q, k or v lie elsewhere, by numbers that have to be found (list.h). Behind a cache, rows of k
 * and v are those that were cached and the new ones, together. */
/* clang-format off */

/* ---------------------------------------------------------------- rows */

LISTED("rows-q-moved", "row t of q is row t - n, around the ends: n",
    moves_q(c) && is_whole(*x), k->moved = Q; k->move_rows = (int64_t)*x, any_query)
LISTED("rows-k-moved", "row t of k is row t - n, around the ends: n",
    moves_rows(c) && is_whole(*x), lie(c, k, K); k->move_rows = (int64_t)*x, any_key)
LISTED("rows-v-moved", "row t of v is row t - n, around the ends: n",
    moves_rows(c) && is_whole(*x), lie(c, k, V); k->move_rows = (int64_t)*x, any_key)
LISTED("rows-kv-moved", "row t of k and v is row t - n, around the ends: n",
    moves_rows(c) && is_whole(*x), lie(c, k, K + V); k->move_rows = (int64_t)*x, any_key)
LISTED("rows-q-shifted", "row t of q is row t - n, and 0 where there is none: n",
    moves_q(c) && is_whole(*x), k->moved = Q; k->move_ends = 1; k->move_rows = (int64_t)*x, any_few_queries)
LISTED("rows-k-shifted", "row t of k is row t - n, and 0 where there is none: n",
    moves_rows(c) && is_whole(*x), lie(c, k, K); k->move_ends = 1; k->move_rows = (int64_t)*x, any_few_keys)
LISTED("rows-v-shifted", "row t of v is row t - n, and 0 where there is none: n",
    moves_rows(c) && is_whole(*x), lie(c, k, V); k->move_ends = 1; k->move_rows = (int64_t)*x, any_few_keys)
LISTED("rows-kv-shifted", "row t of k and v is row t - n, and 0 where there is none: n",
    moves_rows(c) && c->semantics.visible.causal && is_whole(*x),
    lie(c, k, K + V); k->move_ends = 1; k->move_rows = (int64_t)*x, any_few_keys)
LISTED("rows-k-repeated", "row n of k is row n - 1, its own was not written: n",
    moves_rows(c) && is_row(c, *x), lie(c, k, K); k->move_repeats = (int64_t)*x, any_later_key)
LISTED("rows-v-repeated", "row n of v is row n - 1, its own was not written: n",
    moves_rows(c) && is_row(c, *x), lie(c, k, V); k->move_repeats = (int64_t)*x, any_later_key)
LISTED("rows-kv-repeated", "row n of k and v is row n - 1, its own was not written: n",
    moves_rows(c) && is_row(c, *x), lie(c, k, K + V); k->move_repeats = (int64_t)*x, any_later_key)
LISTED("rows-kv-wrapped", "row t of k and v is row t modulo n, as in a ring that is too short: n",
    moves_rows(c) && is_row(c, *x), lie(c, k, K + V); k->move_wraps = (int64_t)*x, any_later_key)
LISTED("rows-kv-held", "all rows of k and v from n on are row n - 1: n",
    moves_rows(c) && is_row(c, *x), lie(c, k, K + V); k->move_holds = (int64_t)*x, any_later_key)

CHOSEN("rows-q-permuted", "rows of q in the place of others: which in which place",
    moves_q(c) && are_indices(x, c->B * c->T_q, c->T_q), k->moved = Q; k->move_order = x, SOLVE_QUERIES, NULL)
CHOSEN("rows-k-permuted", "rows of k in the place of others, under a mask of places: which in which place",
    moves_rows(c) && are_places(c, x), lie(c, k, K); k->move_order = x, SOLVE_KEY_ROWS, NULL)
CHOSEN("rows-kv-permuted", "rows of k and v in the place of others, under a mask of places: which in which place",
    moves_rows(c) && are_places(c, x), lie(c, k, K + V); k->move_order = x, SOLVE_KEY_ROWS, NULL)
CHOSEN("rows-v-permuted", "rows of v in the place of others, as pages in a wrong order: which in which place",
    moves_rows(c) && are_places(c, x), lie(c, k, V); k->move_order = x, SOLVE_VALUES, NULL)

/* ---------------------------------------------------------------- batch rows, heads, features */

LISTED("batch-q-moved", "batch row b of q is batch row b - n, around the ends, or the first (-1): n",
    moves_q(c) && is_whole(*x), k->moved = Q; k->move_batch = (int64_t)*x, any_batch)
LISTED("batch-k-moved", "batch row b of k is batch row b - n, around the ends, or the first (-1): n",
    moves(c) && is_whole(*x), k->moved = K; k->move_batch = (int64_t)*x, any_batch)
LISTED("batch-v-moved", "batch row b of v is batch row b - n, around the ends, or the first (-1): n",
    moves(c) && is_whole(*x), k->moved = V; k->move_batch = (int64_t)*x, any_batch)
LISTED("batch-kv-moved", "batch row b of k and v is batch row b - n, around the ends, or the first (-1): n",
    moves(c) && is_whole(*x), k->moved = K + V; k->move_batch = (int64_t)*x, any_batch)
LISTED("heads-q-moved", "head g of q is head g - n, around the ends: n",
    moves_q(c) && is_whole(*x), k->moved = Q; k->move_heads = (int64_t)*x, any_query_head)
LISTED("heads-k-moved", "head g of k is head g - n, around the ends: n",
    moves(c) && is_whole(*x), k->moved = K; k->move_heads = (int64_t)*x, any_key_head)
LISTED("heads-v-moved", "head g of v is head g - n, around the ends: n",
    moves(c) && is_whole(*x), k->moved = V; k->move_heads = (int64_t)*x, any_key_head)
CHOSEN("heads-q-permuted", "queries of other heads: which head's in which place",
    moves_q(c) && c->H > 1 && are_indices(x, c->H, c->H), k->moved = Q; k->move_head_order = x, SOLVE_Q_HEADS, NULL)
LISTED("features-q-moved", "feature c of the heads of q is feature c - n, around the ends: n",
    moves_q(c) && is_whole(*x), k->moved = Q; k->move_features = (int64_t)*x, any_feature)
LISTED("features-k-moved", "feature c of the heads of k is feature c - n, around the ends: n",
    moves(c) && is_whole(*x), k->moved = K; k->move_features = (int64_t)*x, any_feature)
LISTED("features-v-moved", "feature c of the heads of v is feature c - n, around the ends: n",
    moves(c) && is_whole(*x), k->moved = V; k->move_features = (int64_t)*x, any_value_feature)
LISTED("features-q-order", "features of the heads of q reversed (1), neighbours for each other (2)", moves_q(c) &&
    is_order_of(c->d_k, *x) && *x <= FEATURES_EXCHANGED, k->moved = Q; k->move_feature_order = (int)*x, any_of_two)
LISTED("features-k-order", "features of the heads of k reversed (1), neighbours for each other (2)", moves(c) &&
    is_order_of(c->d_k, *x) && *x <= FEATURES_EXCHANGED, k->moved = K; k->move_feature_order = (int)*x, any_of_two)
LISTED("features-v-order", "features of v reversed (1), neighbours exchanged (2), from halves to pairs (3) or back (4)",
    moves(c) && is_order_of(c->d_v, *x), k->moved = V; k->move_feature_order = (int)*x, any_of_four)

/* ---------------------------------------------------------------- memory */

LISTED("memory-q", "q read in another order of the axes of its memory: rows (1), heads (2), features (3) first",
    moves_q(c) && is_order(*x), k->moved = Q; k->move_memory = (int)*x, any_order)
LISTED("memory-k", "k read in another order of the axes of its memory: rows (1), heads (2), features (3) first",
    moves(c) && is_order(*x), k->moved = K; k->move_memory = (int)*x, any_order)
LISTED("memory-v", "v read in another order of the axes of its memory: rows (1), heads (2), features (3) first",
    moves(c) && is_order(*x), k->moved = V; k->move_memory = (int)*x, any_order)
LISTED("memory-kv", "k and v read in another order of axes of their memory: rows (1), heads (2), features (3) first",
    moves(c) && is_order(*x), k->moved = K + V; k->move_memory = (int)*x, any_order)

/* clang-format on */
