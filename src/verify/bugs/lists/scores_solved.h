/* Bugs between q, k, v and the heads, with numbers that have to be found (list.h). */
/* clang-format off */

/* ---------------------------------------------------------------- keys, in tiles and chunks */

LISTED("case-lacks-groups", "query heads share so many key/value heads, the first ones", attends(c) && *x >= 1 &&
    *x < (double)c->H_kv && c->H_kv % (size_t)*x == 0, k->groups = (int)*x, any_groups)
CHOSEN("groups-other", "other key/value heads read: that of each query head", attends(c) && c->H_kv > 1 &&
    are_indices(x, c->H, c->H_kv), k->group_order = x; k->group_k = k->group_v = GROUPS_OTHER, SOLVE_KV_HEADS, NULL)
CHOSEN("groups-k-other", "the same of the keys alone", attends(c) && c->H_kv > 1 && are_indices(x, c->H, c->H_kv),
    k->group_order = x; k->group_k = GROUPS_OTHER, SOLVE_KV_HEADS, NULL)
CHOSEN("groups-v-other", "the same of the values alone", attends(c) && c->H_kv > 1 && are_indices(x, c->H, c->H_kv),
    k->group_order = x; k->group_v = GROUPS_OTHER, SOLVE_KV_HEADS, NULL)
LISTED("tile-not-rescaled", "sum and values not rescaled when the maximum grows; keys of a tile (negative: last first)",
    softens(c) && is_size(*x), k->tile = (int64_t)*x; k->tile_bug = TILE_NEVER_RESCALED, any_direction)
LISTED("tile-values-not-rescaled", "values not rescaled when the maximum grows; keys of a tile (negative: last first)",
    softens(c) && is_size(*x), k->tile = (int64_t)*x; k->tile_bug = TILE_VALUES_UNSCALED, any_direction)
LISTED("tile-sum-not-rescaled", "sum not rescaled when the maximum grows; keys of a tile (negative: last first)",
    softens(c) && is_size(*x), k->tile = (int64_t)*x; k->tile_bug = TILE_SUM_UNSCALED, any_direction)
LISTED("tile-rescaled-base-2", "sum and values rescaled by 2^(old - new) when the maximum grows; keys of a tile",
    softens(c) && is_size(*x), k->tile = (int64_t)*x; k->tile_bug = TILE_RESCALED_IN_BASE_2, any_direction)
LISTED("tile-rescaled-inverse", "sum and values rescaled by exp(new - old) when the maximum grows; keys of a tile",
    softens(c) && is_size(*x), k->tile = (int64_t)*x; k->tile_bug = TILE_RESCALED_INVERSELY, any_direction)
LISTED("tile-rescaled-late", "sum and values rescaled by the factor of the tile before, at first 0; keys of a tile",
    softens(c) && is_size(*x), k->tile = (int64_t)*x; k->tile_bug = TILE_RESCALED_LATE, any_of_three_tiles)
LISTED("tile-padded-seen", "zeros scored up to a multiple of a tile, also those that a rule would hide; its keys",
    softens(c) && is_size(*x) && hides_padded(c), k->tile = (int64_t)*x; k->tile_bug = TILE_PADDED_SEEN, any_padding)
LISTED("tile-padded", "zeros scored up to a multiple of a tile; its keys",
    softens(c) && is_size(*x), k->tile = (int64_t)*x; k->tile_bug = TILE_PADDED, any_padding)
LISTED("tile-last-dropped", "keys of the last, partial tile dropped; keys of a tile",
    attends(c) && is_size(*x), k->whole_tiles = (int64_t)*x, any_tile)
LISTED("tile-first-only", "keys of the first tile alone; how many",
    attends(c) && is_size(*x), k->keys_below = (int64_t)*x, any_tile)
LISTED("tile-last-only", "keys of the last tile alone, whole or not; keys of a tile",
    attends(c) && is_size(*x), k->keys_from = (int64_t)*x, any_part)
LISTED("parts-averaged", "results of parts of the keys averaged, not merged by their lse; keys of a part",
    is_divided(c) && is_size(*x), merge_parts(k, *x, TILE_AVERAGED), any_divisor)
LISTED("parts-added", "results of parts of the keys added, not merged by their lse; keys of a part",
    is_divided(c) && is_size(*x), merge_parts(k, *x, TILE_ADDED), any_divisor)
LISTED("parts-added-shifted", "parts added with exp(lse - the greatest), not divided by their sum; keys of a part",
    is_divided(c) && is_size(*x), merge_parts(k, *x, TILE_UNDIVIDED), any_several)
LISTED("parts-by-inverse", "parts merged by exp(-lse) instead of exp(lse); keys of a part",
    is_divided(c) && is_size(*x), merge_parts(k, *x, TILE_BY_INVERSE), any_several)
LISTED("parts-averaged-seen", "results of the parts that see a key averaged; keys of a part",
    is_divided(c) && is_size(*x), merge_parts(k, *x, TILE_AVERAGED_SEEN), any_several)
LISTED("parts-by-sums", "parts merged by their sums of exp(s - maximum), without their maxima; keys of a part",
    is_divided(c) && is_size(*x), merge_parts(k, *x, TILE_BY_SUMS), any_several)
LISTED("parts-by-lse", "parts merged by their lse instead of exp(lse); keys of a part",
    is_divided(c) && is_size(*x), merge_parts(k, *x, TILE_BY_LSE), any_several)
LISTED("parts-by-powers-of-2", "parts merged by 2^lse instead of exp(lse); keys of a part",
    is_divided(c) && is_size(*x), merge_parts(k, *x, TILE_BY_POWERS_OF_2), any_several)
LISTED("parts-lse-base-2", "parts merged by exp of an lse that is in base 2; keys of a part",
    is_divided(c) && is_size(*x), merge_parts(k, *x, TILE_BY_BASE_2), any_several)
LISTED("parts-by-maxima", "parts merged by exp(maximum), without their sums; keys of a part",
    is_divided(c) && is_size(*x), merge_parts(k, *x, TILE_BY_MAXIMA), any_several)
LISTED("causal-shift-other", "causal off by so many keys: j <= i + n", c->semantics.visible.causal &&
    !is_windowed(c) && is_count(fabs(*x)), k->causal_shift = (int64_t)*x, any_column)
LISTED("causal-block", "causal by blocks: the query's whole block is visible; its keys",
    attends(c) && is_size(*x), k->s.visible.causal = 1; k->causal_block = (int64_t)*x, any_tile)
LISTED("causal-block-before", "causal by blocks, and the query's own block hidden; its keys", attends(c) && c->P == 0 &&
    is_size(*x), k->s.visible.causal = 1; k->causal_block = (int64_t)*x; k->causal_block_strict = 1, any_tile)
LISTED("causal-tile-first", "queries of a tile see what its first one sees; queries of a tile",
    c->semantics.visible.causal && is_size(*x) && *x > 1, k->causal_tile = (int64_t)*x, any_query_tile)
LISTED("case-lacks-dilation", "only every n-th key before the query visible: n",
    attends(c) && is_count(*x) && *x > 1, k->dilation = (int64_t)*x, any_step)
LISTED("case-lacks-prefix", "the first keys visible in spite of the causal mask; how many",
    c->semantics.visible.causal && c->semantics.visible.prefix == 0 && fabs(*x) <= 0x1p31,
    k->s.visible.prefix = (int64_t)*x, any_size)
LISTED("prefix-other", "another prefix visible in spite of the causal mask; how many keys",
    c->semantics.visible.causal && c->semantics.visible.prefix > 0 && is_count(*x),
    k->s.visible.prefix = (int64_t)*x, any_size)
LISTED("chunk-other", "chunks of another size: keys of a chunk",
    c->semantics.visible.chunk > 0 && is_count(*x) && *x > 0, k->s.visible.chunk = (int64_t)*x, any_part)
LISTED("chunk-shift", "chunks that begin n positions earlier: n",
    c->semantics.visible.chunk > 1 && is_count(fabs(*x)), k->chunk_shift = (int64_t)*x, any_column)
LISTED("case-lacks-chunk", "only keys of the query's own chunk visible; keys of a chunk", attends(c) &&
    c->semantics.visible.chunk == 0 && fabs(*x) <= 0x1p31, k->s.visible.chunk = (int64_t)*x, any_chunk)
LISTED("lengths-to-tile", "lengths rounded up to a multiple of a tile; its keys",
    c->semantics.visible.kv_lengths && is_size(*x), k->lengths_block = (int64_t)*x, any_tile)

/* ---------------------------------------------------------------- hidden keys */

CHOSEN("case-lacks-lengths", "key lengths that the case does not have; one for each batch row",
    attends(c) && !c->semantics.visible.kv_lengths, k->lengths = x, SOLVE_BY_BATCH, any_length)
CHOSEN("lengths-other", "other key lengths; one for each batch row",
    attends(c) && c->semantics.visible.kv_lengths, k->lengths = x, SOLVE_BY_BATCH, any_length)
CHOSEN("case-lacks-padding", "keys hidden from all queries, which the case does not hide; those of each batch row",
    attends(c) && !c->semantics.visible.key_padding.kind, keep(c, k, x), SOLVE_KEYS, NULL)
CHOSEN("padding-other", "other keys hidden from all queries; those of each batch row",
    is_boolean(&c->semantics.visible.key_padding) && !c->semantics.visible.has_padding_fill,
    keep(c, k, x), SOLVE_KEYS, NULL)

LISTED("fill-other", "hidden scores set to a number: which", attends(c) && hides_keys(c) && isfinite(*x), fill_hidden(k,
    FILL_REPLACE, *x), any_fill)
LISTED("fill-add-other", "a number added to hidden scores: which", attends(c) && hides_keys(c) && isfinite(*x),
    fill_hidden(k, FILL_ADD, *x), any_fill)

/* ---------------------------------------------------------------- scores and softmax */

LISTED("features-scored", "only the first features of q and k multiplied; how many",
    attends(c) && is_count(*x) && *x > 0 && *x < (double)c->d_k, k->scored_features = (int64_t)*x, any_width)

FITTED("case-lacks-sinks", "sinks that the case does not have; one for each head",
    softens(c) && !has_weight(c, MHA_SINKS), k->sinks = x, SOLVE_BY_HEAD, -30, 10)
FITTED("case-lacks-slopes", "ALiBi that the case does not have; the slope of each head", attends(c) &&
    !c->semantics.added.alibi_slopes, k->alibi_sign = 1; k->s.added.alibi_slopes = x, SOLVE_BY_HEAD, -30, 10)
FITTED("sinks-other", "other sinks; one for each head",
    softens(c) && has_weight(c, MHA_SINKS), k->sinks = x, SOLVE_BY_HEAD, -30, 10)
LISTED("alibi-by-tile", "distances of ALiBi to the first key of each tile; its keys",
    c->semantics.added.alibi_slopes && is_size(*x) && *x > 1, k->alibi_tile = (int64_t)*x, any_tile)
LISTED("alibi-restarts", "keys counted from 0 in each tile by ALiBi; its keys",
    c->semantics.added.alibi_slopes && is_size(*x) && *x > 1, k->alibi_tile = -(int64_t)*x, any_tile)
LISTED("alibi-limited", "distances of ALiBi no more than a number: the number",
    c->semantics.added.alibi_slopes && is_size(*x) && *x > 0, k->alibi_most = (int64_t)*x, any_part)
FITTED("slopes-other", "other slopes of ALiBi; one for each head",
    attends(c) && c->semantics.added.alibi_slopes, k->s.added.alibi_slopes = x, SOLVE_BY_HEAD, -30, 10)
LISTED("key-twice", "one key counted twice: its number",
    softens(c) && is_count(*x), k->twice_from = (int64_t)*x; k->twice_to = (int64_t)*x + 1, any_size)
LISTED("tile-twice", "16 keys counted twice; the number of the first",
    softens(c) && is_count(*x), k->twice_from = (int64_t)*x; k->twice_to = (int64_t)*x + 16, any_16th)
LISTED("tile-edges-twice", "the first key of each tile but the first counted twice; keys of a tile",
    softens(c) && is_size(*x) && *x > 0, k->edges_twice = (int64_t)*x, any_part)
LISTED("tile-filled", "the last key counted as often as it takes to fill its tile; keys of a tile",
    softens(c) && is_size(*x) && *x > 0, k->last_fills = (int64_t)*x, any_padding)
LISTED("top-keys-alone", "only so many keys with the greatest scores of a query counted; how many",
    attends(c) && is_size(*x) && *x > 0, k->top = (int64_t)*x, any_part)
LISTED("top-weights-alone", "the same after the softmax, not renormalised; how many",
    attends(c) && is_size(*x) && *x > 0, k->top = (int64_t)*x; k->top_late = 1, any_part)
FITTED("scores-limited", "scaled scores limited to a number on both sides: the number",
    attends(c), k->most_score = *x, SOLVE_REAL, 0.1, 1e3)
FITTED("exponents-limited", "exp(s - maximum) of no less than minus a number: the number",
    softens(c), k->most_below = *x, SOLVE_REAL, 0.1, 100)
FITTED("weights-limited", "weights of visible keys no less than a number: the number",
    attends(c), k->least_weight = *x, SOLVE_REAL, 1e-6, 0.5)
FITTED("weights-small-hidden", "keys with weights below a number left out of the softmax: the number",
    softens(c), k->loses = LOSES_KEYS; k->loses_below = *x, SOLVE_STEPPED, 1e-6, 0.5)
FITTED("weights-small-dropped", "weights below a number set to 0, the others not renormalised: the number",
    attends(c), k->loses = LOSES_WEIGHTS; k->loses_below = *x, SOLVE_STEPPED, 1e-6, 0.5)
FITTED("exponentials-small-dropped", "keys with exp(s - maximum) below a number left out of the softmax: the number",
    softens(c), k->loses = LOSES_EXPONENTIALS; k->loses_below = *x, SOLVE_STEPPED, 1e-6, 0.9)
FITTED("weights-powered", "weights raised to a power, not renormalised: the power",
    attends(c), k->weights_power = *x, SOLVE_REAL, 0.2, 5)
FITTED("denominator-raised", "a number added to the sum of exp(s - maximum): the number",
    softens(c), k->sum_raised = *x, SOLVE_REAL, 1e-9, 10)
LISTED("mask-moved", "column j of the mask is column j - n, around the ends: n",
    c->semantics.visible.mask.kind && is_count(fabs(*x)), k->mask_roll = (int64_t)*x, any_column)
FITTED("mask-times", "numbers of the mask times another, as without the log2(e) of exp2: the number",
    c->semantics.visible.mask.kind == MHA_MASK_ADDITIVE, k->mask_sign = *x, SOLVE_REAL, 0.01, 100)
LISTED("mask-rows-moved", "row i of the mask is row i - n, around the ends: n", has_mask_axis(c, 2) &&
    c->semantics.place.n_sequences == 0 && is_count(fabs(*x)), k->mask_rows = (int64_t)*x, any_column)
LISTED("mask-columns-first", "only the first columns of the mask read: how many",
    c->semantics.visible.mask.kind && is_size(*x) && *x > 0, k->mask_below = (int64_t)*x, any_part)
LISTED("segments-moved", "row t has the segment of row t - n: n", c->semantics.visible.pattern.q_segments.data &&
    c->P == 0 && c->semantics.place.n_sequences == 0 && is_count(fabs(*x)), k->segments_shift = (int64_t)*x, any_column)
LISTED("mask-batch-moved", "batch row b of the mask is batch row b - n, around the ends: n", has_mask_axis(c, 4) &&
    c->semantics.place.n_sequences == 0 && is_count(*x), k->mask_batch = (int64_t)*x, any_batch)
LISTED("sinks-in-every-part", "sinks, extra keys and exp(0) counted once in each merged part; how many parts",
    attends(c) && is_size(*x) && adds_once(c), k->parts = *x, any_parts)
CHOSEN("dropout-mask", "weights dropped at random, the others multiplied by 1/(1-p); p",
    mha__case_can_drop(c) && *x >= 0 && *x < 1, k->dropped = x, SOLVE_DROPPED, NULL)
FITTED("dropout-scale", "weights multiplied by 1/(1-p), of a dropout left on; p",
    attends(c), k->weights_times = 1 / (1 - *x), SOLVE_REAL, 0.01, 0.5)
FITTED("dropout-scale-twice", "weights multiplied by 1-p, as after training without 1/(1-p); p",
    attends(c), k->weights_times = 1 - *x, SOLVE_REAL, 0.01, 0.95)
FITTED("scale-other", "another scale: the number",
    attends(c), k->s.softmax.scale = *x * sign_of(k->s.softmax.scale), SOLVE_REAL, 1e-3, 1e2)
FITTED("scales-other", "a scale for each head: the numbers",
    attends(c) && c->H > 1, k->scales = x, SOLVE_BY_HEAD, -30, 10)
FITTED("softcap-other", "another softcap: the number", has_cap(c), k->s.softmax.softcap = *x, SOLVE_REAL, 0.1, 1e3)
FITTED("case-lacks-softcap", "a softcap that the case does not have: the number",
    attends(c) && !has_cap(c), k->s.softmax.softcap = *x, SOLVE_REAL, 0.1, 1e3)
FITTED("sigmoid-bias-other", "another bias of the sigmoid, or one that the case lacks: the number",
    has_sigmoid(c), k->s.softmax.sigmoid_bias = *x, SOLVE_SIGNED, 1e-2, 50)

/* ---------------------------------------------------------------- windows */

PAIRED("window-keep-missing", "window: the first keys, which it keeps, hidden as others are",
    has_left(c) && c->semantics.visible.window_keep > 0, k->s.visible.window_keep = 0)
LISTED("case-lacks-window-keep", "first keys visible in spite of the window, as sinks of a stream; how many",
    has_left(c) && c->semantics.visible.window_keep == 0 && is_size(*x) && *x > 0,
    k->s.visible.window_keep = (int64_t)*x, any_part)
LISTED("window-left-other", "window: so many keys to the left",
    has_left(c) && fabs(*x) <= 0x1p31, k->s.visible.window_left = (int64_t)*x, any_size)
LISTED("window-right-other", "window: so many keys to the right",
    has_right(c) && fabs(*x) <= 0x1p31, k->s.visible.window_right = (int64_t)*x, any_size)
LISTED("window-block", "the window reaches to the ends of blocks: keys of a block",
    is_windowed(c) && is_size(*x) && *x > 1, k->window_block = (int64_t)*x, any_tile)
LISTED("case-lacks-window", "a window that the case does not have: so many keys to each side",
    attends(c) && !is_windowed(c) && fabs(*x) <= 0x1p31,
    limit_left(k, (int64_t)*x); limit_right(k, (int64_t)*x), any_size)
LISTED("case-lacks-window-left", "a window that the case does not have: so many keys to the left",
    attends(c) && !has_left(c) && fabs(*x) <= 0x1p31, limit_left(k, (int64_t)*x), any_size)
LISTED("case-lacks-window-right", "a window that the case does not have: so many keys to the right",
    attends(c) && !has_right(c) && fabs(*x) <= 0x1p31, limit_right(k, (int64_t)*x), any_size)

/* clang-format on */
