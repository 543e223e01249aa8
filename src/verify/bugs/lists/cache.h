/* Bugs of what is found in a cache, and of new rows behind it (list.h). */
/* clang-format off */

/* ---------------------------------------------------------------- which rows are read */

LISTED("cache-k-moved", "cached row t of k is cached row t - n, around the ends: n",
    caches(c) && is_whole(*x), find(k, K); k->past_rows = (int64_t)*x, any_row)
LISTED("cache-v-moved", "cached row t of v is cached row t - n, around the ends: n",
    caches(c) && is_whole(*x), find(k, V); k->past_rows = (int64_t)*x, any_row)
LISTED("cache-kv-moved", "cached row t of k and v is cached row t - n, around the ends: n",
    caches(c) && is_whole(*x), find(k, K + V); k->past_rows = (int64_t)*x, any_row)
LISTED("cache-k-batch-moved", "batch row b reads the cached k of batch row b - n, or of the first (-1): n",
    caches(c) && is_whole(*x), find(k, K); k->past_batch = (int64_t)*x, any_batch)
LISTED("cache-v-batch-moved", "batch row b reads the cached v of batch row b - n, or of the first (-1): n",
    caches(c) && is_whole(*x), find(k, V); k->past_batch = (int64_t)*x, any_batch)
LISTED("cache-kv-batch-moved", "batch row b reads the cache of batch row b - n, or of the first (-1): n",
    caches(c) && is_whole(*x), find(k, K + V); k->past_batch = (int64_t)*x, any_batch)
LISTED("cache-k-heads-moved", "head g of the cached k is head g - n, around the ends: n",
    caches(c) && is_whole(*x), find(k, K); k->past_heads = (int64_t)*x, any_head)
LISTED("cache-v-heads-moved", "head g of the cached v is head g - n, around the ends: n",
    caches(c) && is_whole(*x), find(k, V); k->past_heads = (int64_t)*x, any_head)
LISTED("cache-kv-heads-moved", "head g of the cached k and v is head g - n, around the ends: n",
    caches(c) && is_whole(*x), find(k, K + V); k->past_heads = (int64_t)*x, any_head)
ALONE("cache-heads-reversed", "heads of the cache in reverse order",
    caches(c) && c->H_kv > 2, find(k, K + V); k->past_heads_reversed = 1)

LISTED("cache-pages-heads-first", "pages of n rows that lie in memory heads first read as rows first: n",
    caches(c) && c->H_kv > 1 && is_whole(*x) && *x > 1, k->joined_page = (int64_t)*x, any_page)
LISTED("cache-pages-rows-first", "pages of n rows that lie in memory rows first read as heads first: n",
    caches(c) && c->H_kv > 1 && is_whole(*x) && *x > 1, k->joined_page = -(int64_t)*x, any_page)

/* ---------------------------------------------------------------- what they hold */

ALONE("cache-kv-exchanged", "cached keys and values taken for each other",
    is_exchangeable(c), find(k, K + V); k->past_exchanged = 1)
ALONE("cache-k-for-v", "cached keys in the place of cached values, too",
    is_exchangeable(c), find(k, V); k->past_exchanged = 1)
ALONE("cache-v-for-k", "cached values in the place of cached keys, too",
    is_exchangeable(c), find(k, K); k->past_exchanged = 1)
ALONE("cache-k-turned-again", "cached keys, which are rotated, rotated by their positions once more",
    turns(c), find(k, K); k->past_turned = 1)
ALONE("cache-k-turned-back", "cached keys without their rotation", turns(c), find(k, K); k->past_turned = -1)
ALONE("cache-k-new-lost", "new keys not written behind the cached ones: 0", caches(c), find(k, K); k->new_lost = K)
ALONE("cache-v-new-lost", "new values not written behind the cached ones: 0", caches(c), find(k, V); k->new_lost = V)
ALONE("cache-kv-new-lost", "new keys and values not written behind the cached ones: 0",
    caches(c), find(k, K + V); k->new_lost = K + V)
LISTED("cache-k-rounded", "cached keys alone rounded: 11 float16, 8 bfloat16, 4 float8 E4M3, 3 E5M2",
    caches(c) && is_bits(*x), find(k, K); k->past_shortened = (int)*x, any_bits)
LISTED("cache-v-rounded", "cached values alone rounded: 11 float16, 8 bfloat16, 4 float8 E4M3, 3 E5M2",
    caches(c) && is_bits(*x), find(k, V); k->past_shortened = (int)*x, any_bits)
LISTED("cache-kv-rounded", "cached keys and values alone rounded: 11 float16, 8 bfloat16, 4 float8 E4M3, 3 E5M2",
    caches(c) && is_bits(*x), find(k, K + V); k->past_shortened = (int)*x, any_bits)
FITTED("cache-k-times", "cached keys multiplied, as by a scale too many: the number",
    caches(c) && *x > 0, find(k, K); k->past_times = *x, SOLVE_REAL, 0.01, 100)
FITTED("cache-v-times", "cached values multiplied, as by a scale too many: the number",
    caches(c) && *x > 0, find(k, V); k->past_times = *x, SOLVE_REAL, 0.01, 100)

/* clang-format on */
