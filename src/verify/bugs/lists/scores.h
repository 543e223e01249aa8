/* Bugs between q, k, v and the heads (list.h): keys, scores, masks, added terms, softmax, tiles, windows. */
/* clang-format off */
#ifndef ONLY_SCORES_OF_PAIRS
/* ---------------------------------------------------------------- which keys and values are read */
PAIRED("cache-ignored", "cached keys not attended to", c->P > 0, MARK(KEYS, DO))
ALONE("cache-behind", "cached keys behind the new ones",
    c->P > 0 && !mha__has(k, AT_KEYS, OP_DO), ARG(NEW, FROM, NEW_FIRST))
ALONE("cache-row-early", "new keys written one row too early, over the last cached one",
    c->P > 0 && !mha__has(k, AT_KEYS, OP_DO), ARG(NEW, FROM, NEW_EARLY))
ALONE("cache-row-late", "new keys written one row too late, behind a row of zeros",
    c->P > 0 && !mha__has(k, AT_KEYS, OP_DO), ARG(NEW, FROM, NEW_LATE))
ALONE("page-table-ignored", "the pages of the pool read one after the other, whatever the table says",
    has_pages(c, k), ARG_H(PAGE, FROM, PAGES_IN_ORDER))
ALONE("page-table-transposed", "the table of pages read as (columns, B)",
    has_pages(c, k) && c->B > 1, ARG_H(PAGE, FROM, PAGES_TRANSPOSED))
ALONE("page-table-first", "every sequence reads the pages of the first one",
    has_pages(c, k) && c->B > 1, ARG_H(PAGE, FROM, PAGES_OF_FIRST))
ALONE("page-table-next", "pages counted from 1: the page behind each one that is named",
    has_pages(c, k), ARG_H(PAGE, FROM, PAGES_NEXT))
PAIRED("bias-row-missing", "the bias_k/bias_v row left out", has(c, BIAS_K), MARK(EXTRA, ZERO))
PAIRED("zero-row-missing", "the zero row left out", s->softmax.zero_row, softmax->zero_row = 0)
PAIRED("groups-tiled", "query head i reads key/value head i % h_kv instead of i / (h/h_kv)",
    has_groups(c), FROM(KV_K, 0, REMAINDER, H, 0); FROM(KV_V, 0, REMAINDER, H, 0))
ALONE("groups-k-tiled", "the same for the keys alone", has_groups(c), FROM(KV_K, 0, REMAINDER, H, 0))
ALONE("groups-v-tiled", "the same for the values alone", has_groups(c), FROM(KV_V, 0, REMAINDER, H, 0))
ALONE("groups-first", "all query heads read the first key/value head",
    attends(c) && c->H_kv > 1, FROM(KV_K, 0, FIRST, H, 0); FROM(KV_V, 0, FIRST, H, 0))
ALONE("groups-last-first", "key/value heads in reverse order",
    attends(c) && c->H_kv > 1, FROM(KV_K, 0, REVERSED, H, 0); FROM(KV_V, 0, REVERSED, H, 0))
ALONE("groups-k-last-first", "the same for the keys alone", attends(c) && c->H_kv > 1, FROM(KV_K, 0, REVERSED, H, 0))
ALONE("groups-v-last-first", "the same for the values alone", attends(c) && c->H_kv > 1, FROM(KV_V, 0, REVERSED, H, 0))
#endif
/* ---------------------------------------------------------------- scores */
PAIRED("scale-default", "scale 1/sqrt(d_k) instead of the given one",
    is_other_scale(c, k, per_root(c->d_k)), softmax->scale = per_root(c->d_k))
ALONE("scores-0", "products q.k are 0, as of keys that were never written", attends(c), NUM(S, KEEP, 0))
PAIRED("scale-missing", "scores not scaled", is_other_scale(c, k, 1), softmax->scale = 1)
PAIRED("scale-twice", "scale applied twice",
    is_other_scale(c, k, softmax->scale * softmax->scale), softmax->scale *= softmax->scale)
PAIRED("scale-no-root", "scale 1/d_k", is_other_scale(c, k, 1 / (double)c->d_k), softmax->scale = 1 / (double)c->d_k)
PAIRED("scale-d-model", "scale 1/sqrt(d_model)",
    is_other_scale(c, k, per_root(c->E_q)), softmax->scale = per_root(c->E_q))
PAIRED("scale-d-v", "scale 1/sqrt(d_v)", is_other_scale(c, k, per_root(c->d_v)), softmax->scale = per_root(c->d_v))
PAIRED("scale-d-n", "scale 1/sqrt(d_n), without the shared features of latent attention",
    c->kv_rank > 0 && is_other_scale(c, k, per_root(c->d_k - c->d_rope)), softmax->scale = per_root(c->d_k - c->d_rope))
ALONE("scale-after-softmax", "weights, not scores, multiplied by the scale",
    is_other_scale(c, k, 1), FACTOR(P, softmax->scale); softmax->scale = 1)
ALONE("scores-absolute", "scores without their sign", attends(c), MARK(S, FN))
PAIRED("scale-inverse", "scale sqrt(d_k)",
    is_other_scale(c, k, sqrt((double)c->d_k)), softmax->scale = sqrt((double)c->d_k))
ALONE("softcap-as-limit", "scores limited to the softcap on both sides, not bent by tanh",
    has_cap(c), NUM(S, LIMIT, softmax->softcap); softmax->softcap = 0)
PAIRED("softcap-missing", "no softcap", has_cap(c), softmax->softcap = 0)
PAIRED("softcap-after-mask", "softcap after the mask: hidden keys get -c", has_cap(c), ARG(CAP, MOVE, AFTER_MASK))
PAIRED("softcap-before-scale", "softcap before the scale", has_cap(c), ARG(CAP, MOVE, BEFORE_SCALE))
PAIRED("softcap-no-factor", "tanh(s/c) without the factor c", has_cap(c), ARG(CAP, FN, CAP_NO_FACTOR))
ALONE("softcap-twice", "softcap applied twice", has_cap(c), ARG(CAP, FN, CAP_TWICE))
ALONE("softcap-no-divisor", "c*tanh(s) instead of c*tanh(s/c)", has_cap(c), ARG(CAP, FN, CAP_NO_DIVISOR))
/* ---------------------------------------------------------------- what is visible */
PAIRED("causal-missing", "future keys not hidden", v->causal, visible->causal = 0)
PAIRED("causal-top-left", "causal, aligned top-left: j <= i",
    attends(c), visible->causal = 1; ARG(CAUSAL, FROM, FROM_0))
PAIRED("causal-bottom-right", "causal, aligned bottom-right: j <= i + S - T_q",
    attends(c), visible->causal = 1; ARG(CAUSAL, FROM, FROM_END))
PAIRED("causal-strict", "causal without the query's own position: j < i", v->causal, MORE(CAUSAL, PLUS, -1))
PAIRED("causal-plus-1", "causal off by one: j <= i + 1", v->causal, MORE(CAUSAL, PLUS, 1))
ALONE("causal-reversed", "causal the other way round: j >= i", v->causal, MARK(CAUSAL, NOT))
ALONE("causal-runs-on", "causal by rows that are counted on from batch row to batch row",
    v->causal && c->B > 1 && s->place.n_sequences == 0, MARK_H(CAUSAL_ROW, PLUS))
ALONE("causal-after-softmax", "causal mask multiplied after the softmax, not renormalised",
    hiding(c) & MHA__RULE_CAUSAL, RULE(MOVE, CAUSAL))
PAIRED("window-missing", "no window", is_windowed(c), OPEN(left); OPEN(right))
PAIRED("prefix-missing", "causal over the prefix, too", v->prefix > 0, visible->prefix = 0)
PAIRED("chunk-missing", "no chunks", v->chunk > 0, visible->chunk = 0)
PAIRED("chunk-as-window", "a window of as many keys as a chunk has, instead of chunks",
    v->chunk > 0 && !is_windowed(c), LIMIT(left, visible->chunk - 1); visible->chunk = 0)
ALONE("chunk-before-too", "the chunk before the query's own visible, too", v->chunk > 0, MARK(CHUNK, EITHER))
ALONE("chunk-from-0", "chunks of queries counted without the cached rows, or without their offset",
    v->chunk > 0 && QUERY_FROM(c) != 0, OF_SIDES(CHUNK, PLUS, Q, -(double)QUERY_FROM(c)))
PAIRED("window-left-less", "window: the query's own key counted among the left ones",
    has_left(c) && visible->window_left > 0, visible->window_left -= 1)
PAIRED("window-left-more", "window: one more key to the left", has_left(c), visible->window_left += 1)
PAIRED("window-right-less", "window: the query's own key counted among the right ones",
    has_right(c) && visible->window_right > 0, visible->window_right -= 1)
PAIRED("window-right-more", "window: one more key to the right", has_right(c), visible->window_right += 1)
PAIRED("window-both-sides", "window as wide to the right as to the left",
    has_left(c), LIMIT(right, visible->window_left))
PAIRED("window-sides-exchanged", "the left and the right side of the window taken for each other",
    has_left(c) && has_right(c) && v->window_left != v->window_right,
    visible->window_left = v->window_right; visible->window_right = v->window_left)
PAIRED("window-left-only", "window open to the right", has_left(c) && has_right(c), OPEN(right))
PAIRED("window-right-only", "window open to the left", has_left(c) && has_right(c), OPEN(left))
ALONE("window-top-left", "window measured without the offset", is_windowed(c), ARG(WINDOW, FROM, FROM_0))
ALONE("window-bottom-right", "window aligned bottom-right", is_windowed(c), ARG(WINDOW, FROM, FROM_END))
ALONE("window-inverted", "keys in the window hidden, those outside visible", is_windowed(c), MARK(WINDOW, NOT))
ALONE("window-or-causal", "keys visible when the window or the causal mask allows it",
    is_windowed(c) && v->causal, MARK(WINDOW, EITHER))
ALONE("window-after-softmax", "window multiplied after the softmax, not renormalised",
    hiding(c) & MHA__RULE_WINDOW, RULE(MOVE, WINDOW))
PAIRED("mask-polarity", "boolean mask read the other way round",
    is_boolean(&v->mask), visible->mask.kind = flipped(visible->mask.kind))
PAIRED("mask-missing", "mask left out", v->mask.kind != MHA_MASK_NONE, visible->mask.kind = MHA_MASK_NONE)
PAIRED("mask-subtracted", "additive mask subtracted", v->mask.kind == MHA_MASK_ADDITIVE, NUM(MASK, TIMES, -1))
PAIRED("mask-scaled", "additive mask added before the scale: scaled, too",
    v->mask.kind == MHA_MASK_ADDITIVE, RULE(PLUS, MASK))
ALONE("mask-transposed", "mask transposed: (key, query)", is_turnable(c), transpose(&visible->mask.values))
ALONE("mask-twice", "additive mask added twice", v->mask.kind == MHA_MASK_ADDITIVE, NUM(MASK, TIMES, 2))
ALONE("mask-first-batch", "the mask of the first batch row for all",
    has_mask_axis(c, 4) && s->place.n_sequences == 0, FIRST_OF(MASK, B))
ALONE("mask-first-head", "the mask of the first head for all", has_mask_axis(c, 3), FIRST_OF(MASK, H))
ALONE("mask-first-of-group", "the mask of the first query head of a key/value head for all of them",
    has_mask_axis(c, 3) && has_groups(c), FROM(MASK, 0, START_OF_BLOCK, H, c->H / c->H_kv))
ALONE("mask-first-row", "the mask of the first query for all", has_mask_axis(c, 2), FIRST_OF(MASK, T))
ALONE("mask-or-causal", "keys visible when the mask or the causal mask allows it",
    is_boolean(&v->mask) && v->causal, MARK(MASK, EITHER))
ALONE("mask-added", "boolean mask added as 0 and 1", is_boolean(&v->mask), MARK(MASK, FN))
PAIRED("mask-after-softmax", "mask multiplied after the softmax, not renormalised",
    hiding(c) & MHA__RULE_MASK, RULE(MOVE, MASK))
ALONE("all-after-softmax", "everything that hides keys multiplied after the softmax",
    is_several(hiding(c)), RULES(MOVE, hiding(c)))
PAIRED("padding-after-softmax", "key padding mask multiplied after the softmax, not renormalised",
    hiding(c) & MHA__RULE_PADDING, RULE(MOVE, PADDING))
ALONE("padding-reversed", "key padding mask read from its other end", v->key_padding.kind, MARK(PADDING, FROM))
ALONE("padding-of-queries-too", "queries that stand where padded keys do taken for padding, too",
    is_boolean(&v->key_padding) && are_as_many(c), ARG(QUERY_PADDING, FN, RULE_PADDING))
PAIRED("padding-polarity", "key padding mask read the other way round",
    is_boolean(&v->key_padding), visible->key_padding.kind = flipped(visible->key_padding.kind))
PAIRED("padding-missing", "key padding mask left out",
    v->key_padding.kind != MHA_MASK_NONE, visible->key_padding.kind = MHA_MASK_NONE)
PAIRED("padding-excluded", "padded keys excluded instead of filled", v->has_padding_fill, visible->has_padding_fill = 0)
PAIRED("lengths-missing", "key lengths left out", v->kv_lengths, visible->kv_lengths = NULL)
PAIRED("lengths-less", "one key too few of each length", v->kv_lengths, MORE(LENGTHS, PLUS, -1))
PAIRED("lengths-more", "one key too many of each length", v->kv_lengths, MORE(LENGTHS, PLUS, 1))
ALONE("lengths-of-queries-too", "queries beyond the length of the keys taken for padding, too",
    v->kv_lengths && are_as_many(c), ARG(QUERY_PADDING, FN, RULE_LENGTHS))
ALONE("lengths-as-zeros", "keys beyond the lengths not hidden, but zeros: scores and values of 0",
    softens(c) && v->kv_lengths && adds_nothing(c), MARK(LENGTHS, FN))
ALONE("lengths-from-end", "lengths counted from the last key: padding on the left", v->kv_lengths, MARK(LENGTHS, NOT))
PAIRED("query-padding-missing", "queries of padding computed as others are",
    v->pattern.query_padding.kind, visible->pattern.query_padding.kind = MHA_MASK_NONE)
PAIRED("segments-missing", "keys of other segments seen, too",
    v->pattern.q_segments.data, visible->pattern.q_segments.data = NULL)
ALONE("segments-inverted", "only keys of other segments seen", v->pattern.q_segments.data, MARK(SEGMENTS, NOT))
ALONE("segments-first-batch", "the segments of the first batch row for all",
    end_elsewhere(&v->pattern.q_segments) && s->place.n_sequences == 0, MARK_H(SEGMENTS, FROM))
PAIRED("segments-earlier-too", "keys of segments with a smaller number seen, too",
    visible->pattern.q_segments.data, MARK(SEGMENTS, FN))
PAIRED("lists-missing", "lists of keys left out: every key seen",
    v->pattern.key_lists.data, visible->pattern.key_lists.data = NULL)
PAIRED("lists-each-time", "a key counted as often as its query's list names it",
    visible->pattern.key_lists.data, MARK(LISTS, TIMES))
PAIRED("lists-from-1", "lists of keys counted from 1: number n is key n - 1",
    v->pattern.key_lists.data, MORE(LISTS, PLUS, -1))
PAIRED("lists-one-further", "lists of keys read one key too far", v->pattern.key_lists.data, MORE(LISTS, PLUS, 1))
PAIRED("lists-fill-first", "numbers that fill a list of keys, as -1, taken for the first key",
    v->pattern.key_lists.data, ARG(LISTS, FN, NAMES_FIRST))
PAIRED("lists-fill-last", "numbers that fill a list of keys counted from the end: -1 is the last key",
    v->pattern.key_lists.data, ARG(LISTS, FN, NAMES_LAST))
PAIRED("blocks-missing", "mask of blocks left out",
    v->pattern.blocks.kind, visible->pattern.blocks.kind = MHA_MASK_NONE)
PAIRED("blocks-polarity", "mask of blocks read the other way round",
    v->pattern.blocks.kind, visible->pattern.blocks.kind = flipped(visible->pattern.blocks.kind))
PAIRED("blocks-transposed", "mask of blocks transposed: (key block, query block)",
    has_square_blocks(c), transpose(&visible->pattern.blocks.values))
PAIRED("key-offset-ignored", "the keys of a part counted from 0: key_offset left out",
    attends(c) && s->place.key_offset != 0, MARK(PLACE, ZERO))
ALONE("lengths-after-softmax", "lengths applied after the softmax, not renormalised",
    hiding(c) & MHA__RULE_LENGTHS, RULE(MOVE, LENGTHS))
/* ---------------------------------------------------------------- hidden scores */
PAIRED("fill-0", "hidden scores set to 0", attends(c), FILL(REPLACE, 0))
PAIRED("fill-1e4", "hidden scores set to -10,000", attends(c), FILL(REPLACE, -1e4))
PAIRED("fill-1e9", "hidden scores set to -1e9", attends(c), FILL(REPLACE, -1e9))
PAIRED("fill-lowest", "hidden scores set to the lowest float", attends(c), FILL(REPLACE, lowest))
PAIRED("fill-add-1e4", "-10,000 added to hidden scores in float32", attends(c), FILL(ADD, -1e4))
PAIRED("fill-add-1e9", "-1e9 added to hidden scores in float32", attends(c), FILL(ADD, -1e9))
ALONE("fill-add-f16", "the lowest float16, -65,504, added to hidden scores in float32", attends(c), FILL(ADD, -65504))
ALONE("fill-add-bf16", "the lowest bfloat16 added to hidden scores in float32", attends(c), FILL(ADD, -0x1.fep127))
/* ---------------------------------------------------------------- added terms */
PAIRED("alibi-missing", "no ALiBi", s->added.alibi_slopes, NUM(ALIBI, TIMES, 0))
PAIRED("alibi-sign", "ALiBi with the other sign", s->added.alibi_slopes, NUM(ALIBI, TIMES, -1))
PAIRED("alibi-from-0", "ALiBi with queries counted from 0: cached rows forgotten",
    s->added.alibi_slopes, MARK(ALIBI, FROM))
ALONE("alibi-scaled", "ALiBi added before the scale", s->added.alibi_slopes, RULE(PLUS, ALIBI))
ALONE("alibi-symmetric", "ALiBi by distance in both directions: -slope |i - j|", s->added.alibi_slopes, MARK(ALIBI, FN))
ALONE("alibi-slopes-usual", "the usual slopes, from 2^(-8/h) on",
    s->added.alibi_slopes, ARG_H(SLOPES, FN, USUAL_SLOPES))
ALONE("alibi-slopes-from-0", "slopes 2^(-8i/h) with heads counted from 0",
    s->added.alibi_slopes, ARG_H(SLOPES, FN, SLOPES_FROM_0))
ALONE("alibi-slopes-plain", "slopes 2^(-8i/h) where h is no power of two",
    s->added.alibi_slopes && (c->H & (c->H - 1)) != 0, ARG_H(SLOPES, FN, PLAIN_SLOPES))
PAIRED("case-lacks-alibi", "ALiBi with the usual slopes, which the case does not have",
    attends(c) && !s->added.alibi_slopes, NUM(ALIBI, TIMES, 1); ARG_H(SLOPES, FN, USUAL_SLOPES))
#ifndef ONLY_SCORES_OF_PAIRS
/* ---------------------------------------------------------------- softmax */
ALONE("lse-base-2", "log-sum-exp in base 2", softens(c), ARG(LSE, FN, LSE_BASE_2))
ALONE("lse-without-sinks", "log-sum-exp of the keys alone",
    has(c, SINKS) || s->softmax.softmax_plus_one, ARG(LSE, FN, LSE_NO_SINKS))
ALONE("lse-without-maximum", "log of the sum of exp(s - maximum), the maximum not added",
    softens(c), ARG(LSE, FN, LSE_NO_MAXIMUM))
ALONE("lse-max-unscaled", "log-sum-exp with the maximum of the unscaled scores added",
    softens(c), ARG(LSE, FN, LSE_MAX_UNSCALED))
PAIRED("softmax-base-2", "powers of 2 instead of e in the softmax", softens(c), NUM(E, TIMES, 1))
ALONE("softmax-log2e", "exp, not exp2, of scores that were multiplied by log2(e) for it", softens(c), NUM(E, TIMES, -1))
ALONE("softmax-missing", "scores are weights: no softmax", softens(c), ARG(E, FN, IDENTITY); ARG(P, FN, UNDIVIDED))
ALONE("weights-first-head", "the weights of the first head for all", attends(c) && c->H > 1, ARG_H(P, OVER, FIRST_HEAD))
ALONE("sigmoid-bias-by-row", "sigmoid with bias -log(number of keys that the query sees) instead of the given one",
    has_sigmoid(c), ARG(SIGMOID, TAKE, BY_SEEN))
ALONE("softmax-twice", "a softmax of the weights", adds_no_term(c), MARK(P, DO))
ALONE("softmax-exp-alone", "exp(s), the maximum not taken away and not divided by their sum",
    softens(c), ARG(P, FN, UNDIVIDED); MARK(E, DO))
ALONE("softmax-by-root", "exp(s - maximum) divided by the root of the sum of their squares",
    adds_no_term(c), ARG(P, FN, BY_ROOT))
ALONE("softmax-divided-twice", "divided by the sum of exp(s - maximum) twice", softens(c), ARG(P, FN, DIVIDED_TWICE))
ALONE("softmax-relu-squared", "max(s, 0)^2 instead of exp(s - maximum), not divided by their sum",
    softens(c), ARG(E, FN, RELU_SQUARED); ARG(P, FN, UNDIVIDED))
ALONE("softmax-relu-by-count", "max(s, 0), divided by the number of keys", softens(c) && s->place.n_sequences == 0,
    ARG(E, FN, RELU); ARG(P, FN, UNDIVIDED); FACTOR(P, 1 / (double)(c->P + c->T_k)))
ALONE("sigmoid-by-count", "sigmoid divided by the number of keys",
    has_sigmoid(c) && s->place.n_sequences == 0, FACTOR(P, 1 / (double)(c->P + c->T_k)))
ALONE("softmax-undivided", "exp(s - maximum), not divided by their sum", softens(c), ARG(P, FN, UNDIVIDED))
ALONE("softmax-relu", "max(s, 0) instead of exp(s - maximum), divided by their sum", softens(c), ARG(E, FN, RELU))
ALONE("softmax-relu-undivided", "max(s, 0) instead of the softmax", softens(c), ARG(E, FN, RELU); ARG(P, FN, UNDIVIDED))
ALONE("softmax-base-2-rounded", "scores times log2(e) rounded to float32 before their maximum is taken away",
    softens(c) && softmax->scale != 0, MARK(S, ROUND))
ALONE("weights-averaged", "the mean of all heads' weights for each head",
    attends(c) && c->H > 1, ARG_H(P, OVER, MEAN_OF_HEADS))
ALONE("softmax-queries", "softmax over the queries", softens(c), ARG(E, OVER, OVER_QUERIES))
PAIRED("softmax-heads", "softmax over the heads", softens(c) && c->H > 1, ARG_H(E, OVER, OVER_HEADS))
PAIRED("sigmoid-softmax", "softmax instead of the sigmoid", has_sigmoid(c), softmax->normaliser = MHA_SOFTMAX)
PAIRED("sigmoid-divided", "sigmoid, and each weight divided by the sum of them", has_sigmoid(c), MARK(SIGMOID, FN))
PAIRED("sigmoid-bias-missing", "sigmoid without its bias",
    has_sigmoid(c) && softmax->sigmoid_bias != 0, softmax->sigmoid_bias = 0)
PAIRED("sigmoid-bias-sign", "sigmoid with its bias subtracted",
    has_sigmoid(c) && softmax->sigmoid_bias != 0, softmax->sigmoid_bias *= -1)
PAIRED("sigmoid-bias-scaled", "sigmoid with its bias added before the scale",
    has_sigmoid(c) && softmax->sigmoid_bias != 0, softmax->sigmoid_bias *= softmax->scale)
PAIRED("sigmoid-bias-usual", "sigmoid with bias -log(number of keys) instead of the given one",
    has_sigmoid(c), ARG(SIGMOID, TAKE, BY_USUAL))
PAIRED("case-lacks-sigmoid", "sigmoid with bias -log(number of keys) instead of the softmax",
    softens(c), softmax->normaliser = MHA_SIGMOID; ARG(SIGMOID, TAKE, BY_USUAL))
ALONE("case-lacks-sigmoid-unbiased", "sigmoid without a bias instead of the softmax",
    softens(c), softmax->normaliser = MHA_SIGMOID; softmax->sigmoid_bias = 0)
ALONE("sinks-unshifted", "exp(sink) added to the sum of exp(s - maximum): the maximum not taken from sinks",
    has(c, SINKS) && softens(c), MARK(SINK, FN))
PAIRED("sinks-missing", "sinks left out of the denominator", has(c, SINKS), MARK(SINK, ZERO))
PAIRED("plus-one-missing", "no extra exp(0) in the denominator",
    s->softmax.softmax_plus_one, softmax->softmax_plus_one = 0)
PAIRED("plus-one-added", "an extra exp(0) in the denominator",
    softens(c) && !s->softmax.softmax_plus_one, softmax->softmax_plus_one = 1)
/* ---------------------------------------------------------------- queries without keys, and hidden values */
PAIRED("empty-nan", "NaN for queries that see no key",
    softens(c) && may_be_empty(c) && softmax->empty_rows != MHA_EMPTY_NAN, softmax->empty_rows = MHA_EMPTY_NAN)
PAIRED("empty-zero", "zero for queries that see no key",
    attends(c) && may_be_empty(c) && softmax->empty_rows == MHA_EMPTY_NAN, softmax->empty_rows = MHA_EMPTY_ZERO)
PAIRED("dropout-missing", "dropout: no weight dropped, and none divided by 1 - p", drops(c),
    softmax->dropout_p = 0; softmax->dropout_keep.data = NULL)
PAIRED("dropout-unscaled", "dropout: kept weights not divided by 1 - p", drops(c) && softmax->dropout_p > 0,
    softmax->dropout_p = 0)
PAIRED("hidden-propagate", "weight 0 times a hidden value: NaN and infinity pass", attends(c) && hides_keys(c) &&
    softmax->hidden_values != MHA_HIDDEN_PROPAGATE, softmax->hidden_values = MHA_HIDDEN_PROPAGATE)
PAIRED("hidden-ignore", "hidden values without any effect", attends(c) && hides_keys(c) && softmax->hidden_values ==
    MHA_HIDDEN_PROPAGATE, softmax->hidden_values = MHA_HIDDEN_IGNORE)

#endif
/* ---------------------------------------------------------------- bias by position */
PAIRED("position-bias-missing", "no relative position bias", has_rule(k), k->s.added.bias.rule = MHA_BIAS_RULE_NONE)
PAIRED("position-bias-reversed", "position bias with query and key exchanged", has_rule(k), ARG(TABLE, FROM, EXCHANGED))
ALONE("position-bias-scaled", "position bias added before the scale", has_rule(k), RULE(PLUS, TABLE))
PAIRED("position-bias-from-0", "position bias with queries counted from 0: cached rows forgotten",
    has_rule(k), ARG(TABLE, FROM, FROM_0))
ALONE("position-bias-next-row", "the row of the table behind the right one, the last one for the last",
    has_rule(k), ARG(TABLE, FROM, NEXT_ROW))
ALONE("position-bias-row-before", "the row of the table before the right one, the first one for the first",
    has_rule(k), ARG(TABLE, FROM, ROW_BEFORE))
ALONE("position-bias-head-0", "the column of the first head for all",
    has_rule(k) && c->H > 1, ARG_H(TABLE, FROM, HEAD_0))
ALONE("position-bias-heads-reversed", "the columns of the heads in reverse order",
    has_rule(k) && c->H > 1, ARG_H(TABLE, FROM, HEADS_REVERSED))
FREE("position-bias-times", "position bias times a number: the number", has_rule(k), NUM(TABLE, TIMES, *x), -100, 100)
ALONE("position-bias-transposed", "the memory of the table read as (h, n)",
    has_rule(k) && c->H > 1, ARG_H(TABLE, FROM, TRANSPOSED))
ALONE("position-bias-other-ways", "buckets for one direction instead of two, or for two instead of one",
    serves_other_ways(c, k), ARG(TABLE, FROM, OTHER_WAYS))
LISTED("position-bias-distance-other", "buckets that end at another distance: which",
    has_buckets(k) && *x <= 65536 && *x > (double)c->weights[CASE_RECORDED][MHA_BIAS_TABLE].shape[0] / 2,
    k->s.added.bias.max_distance = (size_t)*x, ANY(distance))
ALONE("position-bias-linear", "each distance a bucket of its own, as far as there are buckets",
    has_buckets(k), ARG(TABLE, FROM, LINEAR))
ALONE("position-bias-by-height", "rows of the grid's table 2 height - 1 apart, not 2 width - 1", has_grid_table(k),
    ARG(TABLE, FROM, BY_HEIGHT))
ALONE("position-bias-by-column", "the cells of the grid counted column by column",
    k->s.added.bias.rule == MHA_BIAS_RULE_GRID, ARG(TABLE, FROM, BY_COLUMN))
#ifndef ONLY_SCORES_OF_PAIRS
/* ---------------------------------------------------------------- relative terms */
PAIRED("relative-missing", "no relative terms", has_terms(k), k->s.added.relative.rule = MHA_RELATIVE_NONE)
ALONE("relative-k-missing", "of relative terms those of the key alone (p2c)", has_both(c, k), ARG(RELATIVE, FROM, NO_K))
ALONE("relative-q-missing", "of relative terms those of the query alone (c2p)",
    has_both(c, k), ARG(RELATIVE, FROM, NO_Q))
PAIRED("relative-reversed", "relative terms with query and key exchanged: by j - i for i - j",
    has_terms(k), ARG(RELATIVE, FROM, EXCHANGED))
ALONE("relative-q-other-way", "relative terms of the key by its distance to the query, not negated",
    has_both(c, k), ARG(RELATIVE, FROM, OTHER_WAY))
ALONE("relative-from-0", "relative terms with queries counted from 0: cached rows forgotten",
    has_terms(k), ARG(RELATIVE, FROM, FROM_0))
ALONE("relative-next-row", "the row of the tables behind the right one, the last one for the last",
    has_terms(k), ARG(RELATIVE, FROM, NEXT_ROW))
ALONE("relative-linear", "buckets of relative terms without their logarithm: the distance, clamped",
    k->s.added.relative.rule == MHA_RELATIVE_LOG_BUCKETS, ARG(RELATIVE, FROM, LINEAR))
ALONE("relative-wrapped", "rows before the first one counted from the end of the table, not clamped",
    k->s.added.relative.rule == MHA_RELATIVE_DISTANCE, ARG(RELATIVE, FROM, WRAPPED))
ALONE("relative-by-column", "cells counted column by column: rows and columns of the grid swapped",
    k->s.added.relative.rule == MHA_RELATIVE_GRID, ARG(RELATIVE, FROM, BY_COLUMN))
ALONE("relative-head-0", "the first head's columns of the tables for all heads",
    has_columns(c, k), ARG_H(RELATIVE, FROM, HEAD_0))
ALONE("relative-scaled", "relative terms of a query, or a key, that is scaled as for q.k, once more",
    has_terms(k), ARG(RELATIVE, TIMES, SCALED_TWICE))
ALONE("relative-unscaled", "relative terms without a scale", has_terms(k), ARG(RELATIVE, TIMES, UNSCALED))
ALONE("relative-lone-scale", "relative terms times 1/sqrt(d_k), whatever the scale of q.k",
    shares_scale(c, k), ARG(RELATIVE, TIMES, LONE_SCALE))

#endif
/* ---------------------------------------------------------------- keys, in tiles and chunks */
LISTED("case-lacks-groups", "query heads share so many key/value heads, the first ones",
    attends(c) && *x >= 1 && *x < (double)c->H_kv && c->H_kv % (size_t)*x == 0, NUM_H(KV, FROM, *x), UP(1, c->H_kv))
SOLVED("groups-other", "other key/value heads read: that of each query head", attends(c) && c->H_kv > 1 &&
    are_indices(x, c->H, c->H_kv), TABLE(KV_K, 0, H, x); TABLE(KV_V, 0, H, x), KV_HEADS)
SOLVED("groups-k-other", "the same of the keys alone", attends(c) && c->H_kv > 1 && are_indices(x, c->H, c->H_kv),
    TABLE(KV_K, 0, H, x), KV_HEADS)
SOLVED("groups-v-other", "the same of the values alone", attends(c) && c->H_kv > 1 && are_indices(x, c->H, c->H_kv),
    TABLE(KV_V, 0, H, x), KV_HEADS)
RESCALED("tile-not-rescaled", "sum and values not rescaled when the maximum grows", NEVER_RESCALED)
RESCALED("tile-values-not-rescaled", "values not rescaled when the maximum grows", VALUES_UNSCALED)
RESCALED("tile-sum-not-rescaled", "sum not rescaled when the maximum grows", SUM_UNSCALED)
RESCALED("tile-rescaled-base-2", "sum and values rescaled by 2^(old - new) when the maximum grows", RESCALED_BASE_2)
RESCALED("tile-values-rescaled-base-2", "values, not the sum, rescaled by 2^(old - new) when the maximum grows",
    VALUES_BASE_2)
RESCALED("tile-sum-rescaled-base-2", "the sum, not values, rescaled by 2^(old - new) when the maximum grows",
    SUM_BASE_2)
RESCALED("tile-rescaled-inverse", "sum and values rescaled by exp(new - old) when the maximum grows", RESCALED_INVERSE)
RESCALED("tile-values-rescaled-inverse", "values, not the sum, rescaled by exp(new - old) when the maximum grows",
    VALUES_INVERSE)
RESCALED("tile-sum-rescaled-inverse", "the sum, not values, rescaled by exp(new - old) when the maximum grows",
    SUM_INVERSE)
SIZED("tile-values-overwritten", "values of the tiles before lost, the sum kept; keys of a tile", softens(c),
    TILE(VALUES_FORGOTTEN), POWERS(2, keys_of(c)))
SIZED("tile-sum-overwritten", "the sum of the tiles before lost, values kept; keys of a tile", softens(c),
    TILE(SUM_FORGOTTEN), POWERS(2, keys_of(c)))
SIZED("tile-rescaled-late", "sum and values rescaled by the factor of the tile before, at first 0; keys of a tile",
    softens(c), TILE(RESCALED_LATE), POWERS(2, (double)keys_of(c) / 2))
LISTED("tile-padded-seen", "zeros scored up to a multiple of a tile, also those that a rule would hide; its keys",
    softens(c) && is_size(*x) && (v->causal || is_windowed(c) || v->kv_lengths), TILE(TILE_PADDED_SEEN),
    POWERS(2, 1025))
SIZED("tile-padded", "zeros scored up to a multiple of a tile; its keys", softens(c), TILE(TILE_PADDED),
    POWERS(2, 1025))
SIZED("tile-last-dropped", "keys of the last, partial tile dropped; keys of a tile", attends(c), STEP(KEYS, ZERO, *x),
    POWERS(2, keys_of(c)))
SIZED("tile-first-only", "keys of the first tile alone; how many", attends(c), STEP(KEYS, LIMIT, *x),
    POWERS(2, keys_of(c)))
SIZED("tile-last-only", "keys of the last tile alone, whole or not; keys of a tile", attends(c), STEP(KEYS, KEEP, *x),
    ANY(part))
PARTS("parts-averaged", "results of parts of the keys averaged, not merged by their lse", PARTS_AVERAGED)
PARTS("parts-added", "results of parts of the keys added, not merged by their lse", PARTS_ADDED)
PARTS("parts-added-shifted", "parts added with exp(lse - the greatest), not divided by their sum", PARTS_UNDIVIDED)
PARTS("parts-by-inverse", "parts merged by exp(-lse) instead of exp(lse)", PARTS_BY_INVERSE)
PARTS("parts-averaged-seen", "results of the parts that see a key averaged", PARTS_AVERAGED_SEEN)
PARTS("parts-by-sums", "parts merged by their sums of exp(s - maximum), without their maxima", PARTS_BY_SUMS)
PARTS("parts-by-lse", "parts merged by their lse instead of exp(lse)", PARTS_BY_LSE)
PARTS("parts-by-powers-of-2", "parts merged by 2^lse instead of exp(lse)", PARTS_BY_POWERS_OF_2)
PARTS("parts-lse-base-2", "parts merged by exp of an lse that is in base 2", PARTS_BASE_2)
PARTS("parts-by-maxima", "parts merged by exp(maximum), without their sums", PARTS_BY_MAXIMA)
PARTS("parts-times-sums", "sums of parts, not divided by their sums of exp(s - maximum), merged by exp(lse)",
    PARTS_TIMES_SUMS)
PARTS("parts-empty-seen", "parts that see no key merged with an lse of 0, not minus infinity", PARTS_EMPTY_SEEN)
PARTS("parts-lse-kept", "each part merged with those before by the lse of the first one, which is kept", PARTS_LSE_KEPT)
LISTED("causal-shift-other", "causal off by so many keys: j <= i + n",
    v->causal && !is_windowed(c) && is_count(fabs(*x)), NUM(CAUSAL, PLUS, *x), ANY(column))
SIZED("causal-block", "causal by blocks: the query's whole block is visible; its keys", attends(c), visible->causal = 1;
    STEP(CAUSAL_BLOCK, FROM, *x), POWERS(2, keys_of(c)))
SIZED("causal-block-before", "causal by blocks, and the query's own block hidden; its keys", attends(c) && c->P == 0,
    visible->causal = 1; STEP(CAUSAL_BLOCK, FROM, *x); MARK(CAUSAL_BLOCK, NOT), POWERS(2, keys_of(c)))
LISTED("causal-tile-first", "queries of a tile see what its first one sees; queries of a tile",
    v->causal && is_size(*x) && *x > 1, STEP(CAUSAL_ROW, FROM, *x), POWERS(2, c->T_q))
LISTED("case-lacks-dilation", "only every n-th key before the query visible: n",
    attends(c) && is_count(*x) && *x > 1, STEP(KEYS, TIMES, *x), MOST(7, UP(2, keys_of(c))))
LISTED("case-lacks-prefix", "the first keys visible in spite of the causal mask; how many",
    v->causal && v->prefix == 0 && fabs(*x) <= 0x1p31, visible->prefix = (int64_t)*x, ANY(size))
LISTED("prefix-other", "another prefix visible in spite of the causal mask; how many keys",
    v->causal && v->prefix > 0 && is_count(*x), visible->prefix = (int64_t)*x, ANY(size))
LISTED("chunk-other", "chunks of another size: keys of a chunk",
    v->chunk > 0 && is_count(*x) && *x > 0, visible->chunk = (int64_t)*x, ANY(part))
LISTED("chunk-shift", "chunks that begin n positions earlier: n",
    v->chunk > 1 && is_count(fabs(*x)), NUM(CHUNK, PLUS, *x), ANY(column))
LISTED("case-lacks-chunk", "only keys of the query's own chunk visible; keys of a chunk",
    attends(c) && v->chunk == 0 && fabs(*x) <= 0x1p31, visible->chunk = (int64_t)*x, ANY(chunk))
SIZED("lengths-to-tile", "lengths rounded up to a multiple of a tile; its keys", v->kv_lengths, STEP(LENGTHS, OVER, *x),
    POWERS(2, keys_of(c)))
SIZED("lengths-whole-tiles", "lengths rounded down to a multiple of a tile; its keys", v->kv_lengths,
    STEP(LENGTHS, OVER, -*x), POWERS(2, keys_of(c)))
/* ---------------------------------------------------------------- hidden keys */
BY_BATCH("case-lacks-lengths", "key lengths that the case does not have; one for each batch row",
    attends(c) && !v->kv_lengths, NUMS(LENGTHS, TAKE), MOST(keys_of(c), STEPS(keys_of(c), -1, INFINITY)))
BY_BATCH("lengths-other", "other key lengths; one for each batch row",
    attends(c) && v->kv_lengths, NUMS(LENGTHS, TAKE), MOST(keys_of(c), STEPS(keys_of(c), -1, INFINITY)))
SOLVED("case-lacks-padding", "keys hidden from all queries, which the case does not hide; those of each batch row",
    attends(c) && !v->key_padding.kind, keep(c, k, x), KEYS)
SOLVED("padding-other", "other keys hidden from all queries; those of each batch row", is_boolean(&v->key_padding) &&
    !v->has_padding_fill, keep(c, k, x), KEYS)

SOLVED("keys-counted", "keys counted another number of times, or hidden, by all queries: those of each batch row",
    attends(c) && softens(c) && s->place.n_sequences == 0, count_keys(k, x), COUNTS)

SIGNED("fill-other", "hidden scores set to a number: which", attends(c) && hides_keys(c), FILL(REPLACE, *x), 0.1, 1e3)
SIGNED("fill-add-other", "a number added to hidden scores: which", attends(c) && hides_keys(c), FILL(ADD, *x), 0.1, 1e3)
/* ---------------------------------------------------------------- scores and softmax */
LISTED("features-scored", "only the first features of q and k multiplied; how many",
    attends(c) && is_count(*x) && *x > 0 && *x < (double)c->d_k, NUM(S, KEEP, *x), ANY(width))

BY_HEAD("case-lacks-sinks", "sinks that the case does not have; one for each head", softens(c) && !has(c, SINKS),
    NUMS(SINK, TAKE), -30, 10)
BY_HEAD("case-lacks-slopes", "ALiBi that the case does not have; the slope of each head", attends(c) &&
    !s->added.alibi_slopes, NUM(ALIBI, TIMES, 1); k->s.added.alibi_slopes = x; NUMS(SLOPES, TAKE), -30, 10)
SIGNED("sinks-times", "sinks times a number, as by the scale, or without the log2(e) of exp2: the number",
    softens(c) && has(c, SINKS), NUM(SINK, POWER, *x), 1e-3, 100)
BY_HEAD("sinks-other", "other sinks; one for each head", softens(c) && has(c, SINKS), NUMS(SINK, TAKE), -30, 10)
REAL("alibi-times", "the terms of ALiBi times a number, as without the log2(e) of exp2: the number",
    s->added.alibi_slopes, NUM(ALIBI, TIMES, *x), 0.01, 100)
LISTED("alibi-by-tile", "distances of ALiBi to the first key of each tile; its keys",
    s->added.alibi_slopes && is_size(*x) && *x > 1, STEP(ALIBI, OVER, *x), POWERS(2, keys_of(c)))
LISTED("alibi-restarts", "keys counted from 0 in each tile by ALiBi; its keys",
    s->added.alibi_slopes && is_size(*x) && *x > 1, STEP(ALIBI, OVER, -*x), POWERS(2, keys_of(c)))
LISTED("alibi-limited", "distances of ALiBi no more than a number: the number",
    s->added.alibi_slopes && is_size(*x) && *x > 0, NUM(ALIBI, LIMIT, *x), ANY(part))
BY_HEAD("slopes-other", "other slopes of ALiBi; one for each head", attends(c) && s->added.alibi_slopes,
    k->s.added.alibi_slopes = x; NUMS(SLOPES, TAKE), -30, 10)
LISTED("key-twice", "one key counted twice: its number", softens(c) && is_count(*x), COUNT_TWICE(1), ANY(size))
LISTED("tile-twice", "16 keys counted twice; the number of the first",
    softens(c) && is_count(*x), COUNT_TWICE(16), MOST(257, STEPS(0, 16, keys_of(c))))
LISTED("tile-edges-twice", "the first key of each tile but the first counted twice; keys of a tile",
    softens(c) && is_size(*x) && *x > 0, STEP(COUNT, OVER, *x), ANY(part))
LISTED("tile-filled", "the last key counted as often as it takes to fill its tile; keys of a tile",
    softens(c) && is_size(*x) && *x > 0, STEP(COUNT, FILL, *x), POWERS(2, 1025))
LISTED("sum-of-half-tiles", "the sum of exp(s - maximum) without the second half of each tile; keys of a tile",
    softens(c) && is_size(*x) && *x > 1, STEP(E, ZERO, *x), POWERS(2, keys_of(c)))
LISTED("top-keys-alone", "only so many keys with the greatest scores of a query counted; how many",
    attends(c) && is_size(*x) && *x > 0, STEP(E, KEEP, *x), ANY(part))
LISTED("top-weights-alone", "the same after the softmax, not renormalised; how many",
    attends(c) && is_size(*x) && *x > 0, STEP(E, KEEP, *x); MARK(E, MOVE), ANY(part))
REAL("scores-limited", "scaled scores limited to a number on both sides: the number", attends(c), NUM(S, LIMIT, *x),
    0.1, 1e3)
REAL("scores-limited-above", "scaled scores no greater than a number: the number", attends(c), PUT(S, LIMIT, .number =
    *x, .arg = MHA__FROM_ABOVE), 0.1, 1e3)
REAL("scores-limited-below", "scaled scores no less than minus a number: the number", attends(c), PUT(S, LIMIT, .number
    = *x, .arg = MHA__FROM_BELOW), 0.1, 1e3)
LISTED("exp-by-polynomial", "exp by a polynomial for 2^f: 1 + f (1), one of degree 2 (2), that of FlashAttention-4 (3)",
    softens(c) && (*x == 1 || *x == 2 || *x == 3), NUM(E, POWER, *x), UP(1, 4))
REAL("exponents-limited", "exp(s - maximum) of no less than minus a number: the number", softens(c), NUM(E, LIMIT, *x),
    0.1, 100)
REAL("weights-limited", "weights of visible keys no less than a number: the number", attends(c), NUM(P, LIMIT, *x),
    1e-6, 0.5)
STEPPED("weights-small-hidden", "keys with weights below a number left out of the softmax: the number", softens(c),
    LOSE(KEYS), 1e-6, 0.5)
STEPPED("weights-small-dropped", "weights below a number set to 0, the others not renormalised: the number", attends(c),
    LOSE(WEIGHTS), 1e-6, 0.5)
STEPPED("exponentials-small-dropped", "keys with exp(s - maximum) below a number left out of the softmax: the number",
    softens(c), LOSE(EXPONENTIALS), 1e-6, 0.9)
REAL("weights-powered", "weights raised to a power, not renormalised: the power", attends(c), NUM(P, POWER, *x), 0.2, 5)
REAL("denominator-raised", "a number added to the sum of exp(s - maximum): the number", softens(c), NUM(E, PLUS, *x),
    1e-9, 10)
LISTED("mask-moved", "column j of the mask is column j - n, around the ends: n",
    v->mask.kind && is_count(fabs(*x)), FROM(MASK, 0, SHIFT, C, -*x), ANY(column))
REAL("mask-times", "numbers of the mask times another, as without the log2(e) of exp2: the number", v->mask.kind ==
    MHA_MASK_ADDITIVE, NUM(MASK, TIMES, *x), 0.01, 100)
LISTED("mask-rows-moved", "row i of the mask is row i - n, around the ends: n",
    has_mask_axis(c, 2) && s->place.n_sequences == 0 && is_count(fabs(*x)), FROM(MASK, 0, SHIFT, T, -*x), ANY(column))
LISTED("mask-columns-first", "only the first columns of the mask read: how many",
    v->mask.kind && is_size(*x) && *x > 0, STEP(MASK, LIMIT, *x), ANY(part))
LISTED("mask-heads-moved", "head g has the mask of head g - n, around the ends: n",
    has_mask_axis(c, 3) && is_count(*x), FROM(MASK, 0, SHIFT, H, -*x), MOST(64, UP(1, c->H)))
LISTED("mask-of-rank", "masks of the first n heads again for the next n, as on a rank that counts from 0: n",
    has_mask_axis(c, 3) && is_size(*x) && *x > 1, FROM(MASK, 0, FIRST_BLOCK, H, *x), MOST(64, UP(2, c->H)))
LISTED("segments-moved", "row t has the segment of row t - n: n", v->pattern.q_segments.data && c->P == 0 &&
    s->place.n_sequences == 0 && is_count(fabs(*x)), NUM(SEGMENTS, PLUS, *x), ANY(column))
LISTED("mask-batch-moved", "batch row b of the mask is batch row b - n, around the ends: n", has_mask_axis(c, 4) &&
    s->place.n_sequences == 0 && is_count(*x), FROM(MASK, 0, SHIFT, B, -*x), MOST(64, UP(1, c->B)))
LISTED("sinks-in-every-part", "sinks, extra keys and exp(0) counted once in each merged part; how many parts",
    attends(c) && is_size(*x) && (has(c, SINKS) || has(c, BIAS_K) || s->softmax.softmax_plus_one ||
    s->softmax.zero_row), NUM(SINK, TIMES, *x), UP(2, 257))
SOLVED("dropout-mask", "weights dropped at random, the others multiplied by 1/(1-p); p", mha__case_can_drop(c) && *x >=
    0 && *x < 1, NUMS(P, KEEP), DROPPED)
REAL("dropout-scale", "weights multiplied by 1/(1-p), of a dropout left on; p", attends(c), FACTOR(P, 1 / (1 - *x)),
    0.01, 0.5)
REAL("dropout-scale-twice", "weights multiplied by 1-p, as after training without 1/(1-p); p", attends(c), FACTOR(P,
    1 - *x), 0.01, 0.95)
REAL("kv-scales-other", "k times a number and v divided by it, as by each other's scales: the number", attends(c),
    FACTOR(P, 1 / *x); softmax->scale *= *x, 1e-3, 1e3)
REAL("scale-other", "another scale: the number", attends(c), softmax->scale = *x * copysign(1, softmax->scale), 1e-3,
    1e2)
SIGNED("new-k-times", "new rows of k multiplied, those of the cache not: the number", c->P > 0 && c->T_k > 0,
    OF_SIDES(NEW, TIMES, K, *x), 1e-3, 1e3)
SIGNED("new-v-times", "new rows of v multiplied, those of the cache not: the number", c->P > 0 && c->T_k > 0,
    OF_SIDES(NEW, TIMES, V, *x), 1e-3, 1e3)
SOLVED("heads-scales-times", "a scale for each head, then a factor of each: the numbers", attends(c) && c->H > 1,
    NUMS(S, TAKE); PUT(O, TIMES, .table = x + c->H), BY_HEADS)
BY_HEAD("scales-other", "a scale for each head: the numbers", attends(c) && c->H > 1, NUMS(S, TAKE), -30, 10)
REAL("softcap-other", "another softcap: the number", has_cap(c), softmax->softcap = *x, 0.1, 1e3)
REAL("case-lacks-softcap", "a softcap that the case does not have: the number", attends(c) && !has_cap(c),
    softmax->softcap = *x, 0.1, 1e3)
SIGNED("sigmoid-bias-other", "another bias of the sigmoid, or one that the case lacks: the number", has_sigmoid(c),
    softmax->sigmoid_bias = *x, 1e-2, 50)
/* ---------------------------------------------------------------- windows */
PAIRED("window-keep-missing", "window: the first keys, which it keeps, hidden as others are",
    has_left(c) && v->window_keep > 0, visible->window_keep = 0)
LISTED("case-lacks-window-keep", "first keys visible in spite of the window, as sinks of a stream; how many",
    has_left(c) && v->window_keep == 0 && is_size(*x) && *x > 0, visible->window_keep = (int64_t)*x, ANY(part))
LISTED("window-keep-other", "window: another number of first keys kept; how many",
    has_left(c) && v->window_keep > 0 && is_size(*x) && *x > 0, visible->window_keep = (int64_t)*x, ANY(part))
LISTED("window-left-other", "window: so many keys to the left",
    has_left(c) && fabs(*x) <= 0x1p31, visible->window_left = (int64_t)*x, ANY(size))
LISTED("window-right-other", "window: so many keys to the right",
    has_right(c) && fabs(*x) <= 0x1p31, visible->window_right = (int64_t)*x, ANY(size))
LISTED("window-block", "the window reaches to the ends of blocks: keys of a block",
    is_windowed(c) && is_size(*x) && *x > 1, STEP(WINDOW, OVER, *x), POWERS(2, keys_of(c)))
LISTED("case-lacks-window", "a window that the case does not have: so many keys to each side",
    attends(c) && !is_windowed(c) && fabs(*x) <= 0x1p31, LIMIT(left, (int64_t)*x); LIMIT(right, (int64_t)*x), ANY(size))
LISTED("case-lacks-window-left", "a window that the case does not have: so many keys to the left",
    attends(c) && !has_left(c) && fabs(*x) <= 0x1p31, LIMIT(left, (int64_t)*x), ANY(size))
LISTED("case-lacks-window-right", "a window that the case does not have: so many keys to the right",
    attends(c) && !has_right(c) && fabs(*x) <= 0x1p31, LIMIT(right, (int64_t)*x), ANY(size))
/* clang-format on */
