/* Bugs between q, k, v and the heads (list.h): which keys are read, scores, masks and added terms, softmax. */
/* clang-format off */

/* ---------------------------------------------------------------- which keys and values are read */

PAIRED("cache-ignored", "cached keys not attended to", c->P > 0, k->use_cache = 0)
ALONE("cache-behind", "cached keys behind the new ones", c->P > 0 && k->use_cache, k->cache_order = CACHE_BEHIND)
ALONE("cache-row-early", "new keys written one row too early, over the last cached one",
    c->P > 0 && k->use_cache, k->cache_order = CACHE_EARLY)
ALONE("cache-row-late", "new keys written one row too late, behind a row of zeros",
    c->P > 0 && k->use_cache, k->cache_order = CACHE_LATE)
ALONE("page-table-ignored", "the pages of the pool read one after the other, whatever the table says",
    has_pages(c, k), k->pages = PAGES_IN_ORDER)
ALONE("page-table-transposed", "the table of pages read as (columns, B)",
    has_pages(c, k) && c->B > 1, k->pages = PAGES_TRANSPOSED)
ALONE("page-table-first", "every sequence reads the pages of the first one",
    has_pages(c, k) && c->B > 1, k->pages = PAGES_OF_FIRST)
ALONE("page-table-next", "pages counted from 1: the page behind each one that is named",
    has_pages(c, k), k->pages = PAGES_NEXT)
PAIRED("bias-row-missing", "the bias_k/bias_v row left out", has_weight(c, MHA_BIAS_K), k->bias_row = 0)
PAIRED("zero-row-missing", "the zero row left out", c->semantics.softmax.zero_row, k->s.softmax.zero_row = 0)
PAIRED("groups-tiled", "query head i reads key/value head i % h_kv instead of i / (h/h_kv)",
    has_groups(c), k->group_k = k->group_v = GROUPS_TILED)
ALONE("groups-k-tiled", "the same for the keys alone", has_groups(c), k->group_k = GROUPS_TILED)
ALONE("groups-v-tiled", "the same for the values alone", has_groups(c), k->group_v = GROUPS_TILED)
ALONE("groups-first", "all query heads read the first key/value head",
    attends(c) && c->H_kv > 1, k->group_k = k->group_v = GROUPS_FIRST)
ALONE("groups-last-first", "key/value heads in reverse order",
    attends(c) && c->H_kv > 1, k->group_k = k->group_v = GROUPS_LAST_FIRST)

/* ---------------------------------------------------------------- scores */

PAIRED("scale-default", "scale 1/sqrt(d_k) instead of the given one",
    is_other_scale(c, k, per_root(c->d_k)), k->s.softmax.scale = per_root(c->d_k))
ALONE("scores-0", "products q.k are 0, as of keys that were never written", attends(c), k->scored_features = -1)
PAIRED("scale-missing", "scores not scaled", is_other_scale(c, k, 1), k->s.softmax.scale = 1)
PAIRED("scale-twice", "scale applied twice",
    is_other_scale(c, k, k->s.softmax.scale * k->s.softmax.scale), k->s.softmax.scale *= k->s.softmax.scale)
PAIRED("scale-no-root", "scale 1/d_k",
    is_other_scale(c, k, 1 / (double)c->d_k), k->s.softmax.scale = 1 / (double)c->d_k)
PAIRED("scale-d-model", "scale 1/sqrt(d_model)",
    is_other_scale(c, k, per_root(c->E_q)), k->s.softmax.scale = per_root(c->E_q))
PAIRED("scale-d-v", "scale 1/sqrt(d_v)", is_other_scale(c, k, per_root(c->d_v)), k->s.softmax.scale = per_root(c->d_v))
PAIRED("scale-d-n", "scale 1/sqrt(d_n), without the shared features of latent attention", c->kv_rank > 0 &&
    is_other_scale(c, k, per_root(c->d_k - c->d_rope)), k->s.softmax.scale = per_root(c->d_k - c->d_rope))
ALONE("scale-after-softmax", "weights, not scores, multiplied by the scale",
    is_other_scale(c, k, 1), k->weights_times = k->s.softmax.scale; k->s.softmax.scale = 1)
ALONE("scores-absolute", "scores without their sign", attends(c), k->absolute = 1)
PAIRED("scale-inverse", "scale sqrt(d_k)",
    is_other_scale(c, k, sqrt((double)c->d_k)), k->s.softmax.scale = sqrt((double)c->d_k))
ALONE("softcap-as-limit", "scores limited to the softcap on both sides, not bent by tanh",
    has_cap(c), k->most_score = k->s.softmax.softcap; k->s.softmax.softcap = 0)
PAIRED("softcap-missing", "no softcap", has_cap(c), k->s.softmax.softcap = 0)
PAIRED("softcap-after-mask", "softcap after the mask: hidden keys get -c", has_cap(c), k->cap_after_mask = 1)
PAIRED("softcap-before-scale", "softcap before the scale", has_cap(c), k->cap_before_scale = 1)
PAIRED("softcap-no-factor", "tanh(s/c) without the factor c", has_cap(c), k->cap_no_factor = 1)
ALONE("softcap-twice", "softcap applied twice", has_cap(c), k->cap_twice = 1)
ALONE("softcap-no-divisor", "c*tanh(s) instead of c*tanh(s/c)", has_cap(c), k->cap_no_divisor = 1)

/* ---------------------------------------------------------------- what is visible */

PAIRED("causal-missing", "future keys not hidden", c->semantics.visible.causal, k->s.visible.causal = 0)
PAIRED("causal-top-left", "causal, aligned top-left: j <= i",
    attends(c), k->s.visible.causal = 1; k->causal_align = CAUSAL_TOP_LEFT)
PAIRED("causal-bottom-right", "causal, aligned bottom-right: j <= i + S - T_q",
    attends(c), k->s.visible.causal = 1; k->causal_align = CAUSAL_BOTTOM_RIGHT)
PAIRED("causal-strict", "causal without the query's own position: j < i",
    c->semantics.visible.causal, k->causal_shift -= 1)
PAIRED("causal-plus-1", "causal off by one: j <= i + 1", c->semantics.visible.causal, k->causal_shift += 1)
ALONE("causal-reversed", "causal the other way round: j >= i", c->semantics.visible.causal, k->causal_reversed = 1)
ALONE("causal-runs-on", "causal by rows that are counted on from batch row to batch row",
    c->semantics.visible.causal && c->B > 1 && c->semantics.place.n_sequences == 0, k->causal_runs = 1)
ALONE("causal-after-softmax", "causal mask multiplied after the softmax, not renormalised",
    hiding(c) & HIDES_CAUSAL, k->late |= HIDES_CAUSAL)
PAIRED("window-missing", "no window", is_windowed(c),
    open_left(k); open_right(k))
PAIRED("prefix-missing", "causal over the prefix, too", c->semantics.visible.prefix > 0, k->s.visible.prefix = 0)
PAIRED("chunk-missing", "no chunks", c->semantics.visible.chunk > 0, k->s.visible.chunk = 0)
PAIRED("chunk-as-window", "a window of as many keys as a chunk has, instead of chunks",
    c->semantics.visible.chunk > 0 && !is_windowed(c), take_chunk_for_window(k))
ALONE("chunk-before-too", "the chunk before the query's own visible, too",
    c->semantics.visible.chunk > 0, k->chunk_before = 1)
PAIRED("window-left-less", "window: the query's own key counted among the left ones",
    has_left(c) && k->s.visible.window_left > 0, k->s.visible.window_left -= 1)
PAIRED("window-left-more", "window: one more key to the left", has_left(c), k->s.visible.window_left += 1)
PAIRED("window-right-less", "window: the query's own key counted among the right ones",
    has_right(c) && k->s.visible.window_right > 0, k->s.visible.window_right -= 1)
PAIRED("window-right-more", "window: one more key to the right", has_right(c), k->s.visible.window_right += 1)
PAIRED("window-both-sides", "window as wide to the right as to the left",
    has_left(c), limit_right(k, k->s.visible.window_left))
PAIRED("window-left-only", "window open to the right", has_left(c) && has_right(c), open_right(k))
PAIRED("window-right-only", "window open to the left", has_left(c) && has_right(c), open_left(k))
ALONE("window-top-left", "window measured without the offset", is_windowed(c), k->window_align = CAUSAL_TOP_LEFT)
ALONE("window-bottom-right", "window aligned bottom-right", is_windowed(c), k->window_align = CAUSAL_BOTTOM_RIGHT)
ALONE("window-inverted", "keys in the window hidden, those outside visible", is_windowed(c), k->window_inverted = 1)
ALONE("window-or-causal", "keys visible when the window or the causal mask allows it",
    is_windowed(c) && c->semantics.visible.causal, k->window_or_causal = 1)
ALONE("window-after-softmax", "window multiplied after the softmax, not renormalised",
    hiding(c) & HIDES_WINDOW, k->late |= HIDES_WINDOW)
PAIRED("mask-polarity", "boolean mask read the other way round",
    is_boolean(&c->semantics.visible.mask), k->s.visible.mask.kind = flipped(k->s.visible.mask.kind))
PAIRED("mask-missing", "mask left out",
    c->semantics.visible.mask.kind != MHA_MASK_NONE, k->s.visible.mask.kind = MHA_MASK_NONE)
PAIRED("mask-subtracted", "additive mask subtracted",
    c->semantics.visible.mask.kind == MHA_MASK_ADDITIVE, k->mask_sign = -1)
PAIRED("mask-scaled", "additive mask added before the scale: scaled, too",
    c->semantics.visible.mask.kind == MHA_MASK_ADDITIVE, k->early |= ADDS_MASK)
ALONE("mask-transposed", "mask transposed: (key, query)", is_turnable(c), transpose(&k->s.visible.mask.values))
ALONE("mask-twice", "additive mask added twice", c->semantics.visible.mask.kind == MHA_MASK_ADDITIVE, k->mask_sign = 2)
ALONE("mask-first-batch", "the mask of the first batch row for all",
    has_mask_axis(c, 4) && c->semantics.place.n_sequences == 0, k->mask_first = 4)
ALONE("mask-first-head", "the mask of the first head for all", has_mask_axis(c, 3), k->mask_first = 2)
ALONE("mask-first-row", "the mask of the first query for all", has_mask_axis(c, 2), k->mask_first = 1)
ALONE("mask-or-causal", "keys visible when the mask or the causal mask allows it",
    is_boolean(&c->semantics.visible.mask) && c->semantics.visible.causal, k->mask_or_causal = 1)
ALONE("mask-added", "boolean mask added as 0 and 1", is_boolean(&c->semantics.visible.mask), k->mask_as_number = 1)
PAIRED("mask-after-softmax", "mask multiplied after the softmax, not renormalised",
    hiding(c) & HIDES_MASK, k->late |= HIDES_MASK)
ALONE("all-after-softmax", "everything that hides keys multiplied after the softmax",
    is_several(hiding(c)), k->late = hiding(c))
PAIRED("padding-after-softmax", "key padding mask multiplied after the softmax, not renormalised",
    hiding(c) & HIDES_PADDING, k->late |= HIDES_PADDING)
ALONE("padding-reversed", "key padding mask read from its other end",
    c->semantics.visible.key_padding.kind, k->padding_reversed = 1)
ALONE("padding-of-queries-too", "queries that stand where padded keys do taken for padding, too",
    is_boolean(&c->semantics.visible.key_padding) && are_as_many(c), k->padding_of_queries = 1)
PAIRED("padding-polarity", "key padding mask read the other way round",
    is_boolean(&c->semantics.visible.key_padding),
    k->s.visible.key_padding.kind = flipped(k->s.visible.key_padding.kind))
PAIRED("padding-missing", "key padding mask left out",
    c->semantics.visible.key_padding.kind != MHA_MASK_NONE, k->s.visible.key_padding.kind = MHA_MASK_NONE)
PAIRED("padding-excluded", "padded keys excluded instead of filled",
    c->semantics.visible.has_padding_fill, k->s.visible.has_padding_fill = 0)
PAIRED("lengths-missing", "key lengths left out", c->semantics.visible.kv_lengths, k->s.visible.kv_lengths = NULL)
PAIRED("lengths-less", "one key too few of each length", c->semantics.visible.kv_lengths, k->lengths_shift -= 1)
PAIRED("lengths-more", "one key too many of each length", c->semantics.visible.kv_lengths, k->lengths_shift += 1)
ALONE("lengths-of-queries-too", "queries beyond the length of the keys taken for padding, too",
    c->semantics.visible.kv_lengths && are_as_many(c), k->padding_of_queries = 2)
ALONE("lengths-as-zeros", "keys beyond the lengths not hidden, but zeros: scores and values of 0", softens(c) &&
    c->semantics.visible.kv_lengths && adds_nothing(c), k->lengths_zeros = 1)
ALONE("lengths-from-end", "lengths counted from the last key: padding on the left",
    c->semantics.visible.kv_lengths, k->lengths_from_end = 1)
PAIRED("query-padding-missing", "queries of padding computed as others are",
    c->semantics.visible.pattern.query_padding.kind, k->s.visible.pattern.query_padding.kind = MHA_MASK_NONE)
PAIRED("segments-missing", "keys of other segments seen, too",
    c->semantics.visible.pattern.q_segments.data, k->s.visible.pattern.q_segments.data = NULL)
ALONE("segments-inverted", "only keys of other segments seen",
    c->semantics.visible.pattern.q_segments.data, k->segments_inverted = 1)
ALONE("segments-first-batch", "the segments of the first batch row for all",
    end_elsewhere(&c->semantics.visible.pattern.q_segments) && c->semantics.place.n_sequences == 0,
    k->segments_first = 1)
PAIRED("segments-earlier-too", "keys of segments with a smaller number seen, too",
    k->s.visible.pattern.q_segments.data, k->segments_earlier = 1)
PAIRED("lists-missing", "lists of keys left out: every key seen",
    c->semantics.visible.pattern.key_lists.data, k->s.visible.pattern.key_lists.data = NULL)
PAIRED("lists-each-time", "a key counted as often as its query's list names it",
    k->s.visible.pattern.key_lists.data, k->lists_each_time = 1)
PAIRED("lists-from-1", "lists of keys counted from 1: number n is key n - 1",
    c->semantics.visible.pattern.key_lists.data, k->lists_shift -= 1)
PAIRED("lists-one-further", "lists of keys read one key too far",
    c->semantics.visible.pattern.key_lists.data, k->lists_shift += 1)
PAIRED("lists-fill-first", "numbers that fill a list of keys, as -1, taken for the first key",
    c->semantics.visible.pattern.key_lists.data, k->lists_fill = FILL_NAMES_FIRST)
PAIRED("lists-fill-last", "numbers that fill a list of keys counted from the end: -1 is the last key",
    c->semantics.visible.pattern.key_lists.data, k->lists_fill = FILL_NAMES_LAST)
PAIRED("blocks-missing", "mask of blocks left out",
    c->semantics.visible.pattern.blocks.kind, k->s.visible.pattern.blocks.kind = MHA_MASK_NONE)
PAIRED("blocks-polarity", "mask of blocks read the other way round", c->semantics.visible.pattern.blocks.kind,
    k->s.visible.pattern.blocks.kind = flipped(k->s.visible.pattern.blocks.kind))
PAIRED("blocks-transposed", "mask of blocks transposed: (key block, query block)",
    has_square_blocks(c), transpose(&k->s.visible.pattern.blocks.values))
PAIRED("key-offset-ignored", "the keys of a part counted from 0: key_offset left out",
    attends(c) && c->semantics.place.key_offset != 0, k->part_at_0 = k->rope_part_at_0 = 1)
ALONE("lengths-after-softmax", "lengths applied after the softmax, not renormalised",
    hiding(c) & HIDES_LENGTHS, k->late |= HIDES_LENGTHS)

/* ---------------------------------------------------------------- hidden scores */

PAIRED("fill-0", "hidden scores set to 0", attends(c), fill_hidden(k, FILL_REPLACE, 0))
PAIRED("fill-1e4", "hidden scores set to -10,000", attends(c), fill_hidden(k, FILL_REPLACE, -1e4))
PAIRED("fill-1e9", "hidden scores set to -1e9", attends(c), fill_hidden(k, FILL_REPLACE, -1e9))
PAIRED("fill-lowest", "hidden scores set to the lowest float", attends(c), fill_hidden(k, FILL_REPLACE, lowest))
PAIRED("fill-add-1e4", "-10,000 added to hidden scores in float32", attends(c), fill_hidden(k, FILL_ADD, -1e4))
PAIRED("fill-add-1e9", "-1e9 added to hidden scores in float32", attends(c), fill_hidden(k, FILL_ADD, -1e9))
ALONE("fill-add-f16", "the lowest float16, -65,504, added to hidden scores in float32",
    attends(c), fill_hidden(k, FILL_ADD, -65504))
ALONE("fill-add-bf16", "the lowest bfloat16 added to hidden scores in float32",
    attends(c), fill_hidden(k, FILL_ADD, -0x1.fep127))

/* ---------------------------------------------------------------- added terms */

PAIRED("alibi-missing", "no ALiBi", c->semantics.added.alibi_slopes, k->alibi_sign = 0)
PAIRED("alibi-sign", "ALiBi with the other sign", c->semantics.added.alibi_slopes, k->alibi_sign = -1)
PAIRED("alibi-from-0", "ALiBi with queries counted from 0: cached rows forgotten",
    c->semantics.added.alibi_slopes, k->alibi_from_0 = 1)
ALONE("alibi-scaled", "ALiBi added before the scale", c->semantics.added.alibi_slopes, k->early |= ADDS_ALIBI)
ALONE("alibi-symmetric", "ALiBi by distance in both directions: -slope |i - j|",
    c->semantics.added.alibi_slopes, k->alibi_symmetric = 1)
ALONE("alibi-slopes-usual", "the usual slopes, from 2^(-8/h) on",
    c->semantics.added.alibi_slopes, k->alibi_formula = ALIBI_USUAL)
ALONE("alibi-slopes-from-0", "slopes 2^(-8i/h) with heads counted from 0",
    c->semantics.added.alibi_slopes, k->alibi_formula = ALIBI_FROM_0)
ALONE("alibi-slopes-plain", "slopes 2^(-8i/h) where h is no power of two",
    c->semantics.added.alibi_slopes && (c->H & (c->H - 1)) != 0, k->alibi_formula = ALIBI_PLAIN)
PAIRED("case-lacks-alibi", "ALiBi with the usual slopes, which the case does not have",
    attends(c) && !c->semantics.added.alibi_slopes, k->alibi_sign = 1; k->alibi_formula = ALIBI_USUAL)

/* ---------------------------------------------------------------- softmax */

PAIRED("softmax-base-2", "powers of 2 instead of e in the softmax", softens(c), k->base_2 = 1)
ALONE("softmax-log2e", "exp, not exp2, of scores that were multiplied by log2(e) for it", softens(c), k->base_2 = -1)
ALONE("softmax-missing", "scores are weights: no softmax", softens(c), k->relu = -1; k->undivided = 1)
ALONE("weights-first-head", "the weights of the first head for all", attends(c) && c->H > 1, k->weights_averaged = 2)
ALONE("sigmoid-bias-by-row", "sigmoid with bias -log(number of keys that the query sees) instead of the given one",
    has_sigmoid(c), k->sigmoid_usual = 2)
ALONE("softmax-twice", "a softmax of the weights", adds_no_term(c), k->softened_twice = 1)
ALONE("softmax-exp-alone", "exp(s), the maximum not taken away and not divided by their sum",
    softens(c), k->undivided = k->unshifted = 1)
ALONE("softmax-by-root", "exp(s - maximum) divided by the root of the sum of their squares", adds_no_term(c),
    k->by_root = 1)
ALONE("softmax-divided-twice", "divided by the sum of exp(s - maximum) twice", softens(c), k->divided_twice = 1)
ALONE("softmax-relu-squared", "max(s, 0)^2 instead of exp(s - maximum), not divided by their sum",
    softens(c), k->relu = 2; k->undivided = 1)
ALONE("softmax-relu-by-count", "max(s, 0), divided by the number of keys", softens(c) &&
    c->semantics.place.n_sequences == 0, k->relu = 1; k->undivided = 1; k->weights_times = 1 / (double)(c->P + c->T_k))
ALONE("sigmoid-by-count", "sigmoid divided by the number of keys", has_sigmoid(c) &&
    c->semantics.place.n_sequences == 0, k->weights_times = 1 / (double)(c->P + c->T_k))
ALONE("softmax-undivided", "exp(s - maximum), not divided by their sum", softens(c), k->undivided = 1)
ALONE("softmax-relu", "max(s, 0) instead of exp(s - maximum), divided by their sum", softens(c), k->relu = 1)
ALONE("softmax-relu-undivided", "max(s, 0) instead of the softmax", softens(c), k->relu = k->undivided = 1)
ALONE("softmax-base-2-rounded", "scores times log2(e) rounded to float32 before their maximum is taken away",
    softens(c) && k->s.softmax.scale != 0, k->base_2_rounded = 1)
ALONE("weights-averaged", "the mean of all heads' weights for each head",
    attends(c) && c->H > 1, k->weights_averaged = 1)
ALONE("softmax-queries", "softmax over the queries", softens(c), k->axis = AXIS_QUERIES)
PAIRED("softmax-heads", "softmax over the heads", softens(c) && c->H > 1, k->axis = AXIS_HEADS)
PAIRED("sigmoid-softmax", "softmax instead of the sigmoid", has_sigmoid(c), k->s.softmax.normaliser = MHA_SOFTMAX)
PAIRED("sigmoid-divided", "sigmoid, and each weight divided by the sum of them", has_sigmoid(c), k->sigmoid_divided = 1)
PAIRED("sigmoid-bias-missing", "sigmoid without its bias",
    has_sigmoid(c) && k->s.softmax.sigmoid_bias != 0, k->s.softmax.sigmoid_bias = 0)
PAIRED("sigmoid-bias-sign", "sigmoid with its bias subtracted",
    has_sigmoid(c) && k->s.softmax.sigmoid_bias != 0, k->s.softmax.sigmoid_bias *= -1)
PAIRED("sigmoid-bias-scaled", "sigmoid with its bias added before the scale",
    has_sigmoid(c) && k->s.softmax.sigmoid_bias != 0, k->s.softmax.sigmoid_bias *= k->s.softmax.scale)
PAIRED("sigmoid-bias-usual", "sigmoid with bias -log(number of keys) instead of the given one",
    has_sigmoid(c), k->sigmoid_usual = 1)
PAIRED("case-lacks-sigmoid", "sigmoid with bias -log(number of keys) instead of the softmax",
    softens(c), k->s.softmax.normaliser = MHA_SIGMOID; k->sigmoid_usual = 1)
ALONE("case-lacks-sigmoid-unbiased", "sigmoid without a bias instead of the softmax",
    softens(c), k->s.softmax.normaliser = MHA_SIGMOID; k->s.softmax.sigmoid_bias = 0)
ALONE("sinks-unshifted", "exp(sink) added to the sum of exp(s - maximum): the maximum not taken from sinks",
    has_weight(c, MHA_SINKS) && softens(c), k->sinks_unshifted = 1)
PAIRED("sinks-missing", "sinks left out of the denominator", has_weight(c, MHA_SINKS), k->use_sinks = 0)
PAIRED("plus-one-missing", "no extra exp(0) in the denominator",
    c->semantics.softmax.softmax_plus_one, k->s.softmax.softmax_plus_one = 0)
PAIRED("plus-one-added", "an extra exp(0) in the denominator",
    softens(c) && !c->semantics.softmax.softmax_plus_one, k->s.softmax.softmax_plus_one = 1)
ALONE("lse-base-2", "log-sum-exp in base 2", softens(c), k->lse = LSE_BASE_2)
ALONE("lse-without-sinks", "log-sum-exp of the keys alone",
    has_weight(c, MHA_SINKS) || c->semantics.softmax.softmax_plus_one, k->lse = LSE_NO_SINKS)
ALONE("lse-without-maximum", "log of the sum of exp(s - maximum), the maximum not added",
    softens(c), k->lse = LSE_NO_MAXIMUM)
ALONE("lse-max-unscaled", "log-sum-exp with the maximum of the unscaled scores added",
    softens(c), k->lse = LSE_MAX_UNSCALED)

/* ---------------------------------------------------------------- queries without keys, and hidden values */

PAIRED("empty-nan", "NaN for queries that see no key", softens(c) && may_be_empty(c) &&
    k->s.softmax.empty_rows != MHA_EMPTY_NAN, k->s.softmax.empty_rows = MHA_EMPTY_NAN)
PAIRED("empty-zero", "zero for queries that see no key", attends(c) && may_be_empty(c) &&
    k->s.softmax.empty_rows == MHA_EMPTY_NAN, k->s.softmax.empty_rows = MHA_EMPTY_ZERO)
PAIRED("hidden-propagate", "weight 0 times a hidden value: NaN and infinity pass", attends(c) && hides_keys(c) &&
    k->s.softmax.hidden_values != MHA_HIDDEN_PROPAGATE, k->s.softmax.hidden_values = MHA_HIDDEN_PROPAGATE)
PAIRED("hidden-ignore", "hidden values without any effect", attends(c) && hides_keys(c) &&
    k->s.softmax.hidden_values == MHA_HIDDEN_PROPAGATE, k->s.softmax.hidden_values = MHA_HIDDEN_IGNORE)

/* clang-format on */
