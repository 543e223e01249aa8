/* Bugs of the rows of q, k and v (list.h): rounding, projections, heads, rotation, order of rows, norms, a cache. */
/* clang-format off */
/* ---------------------------------------------------------------- rounding */
PAIRED("inputs-f16", "inputs rounded to float16", c->kv_rank == 0, ARG(X, ROUND, TO_F16))
PAIRED("inputs-bf16", "inputs rounded to bfloat16", c->kv_rank == 0, ARG(X, ROUND, TO_BF16))
PAIRED("inputs-bf16-cut", "inputs cut to bfloat16, not rounded to the nearest",
    c->kv_rank == 0, ARG(X, ROUND, TO_BF16_CUT))
PAIRED("weights-f16", "all weights rounded to float16 on the way", has_own_rows(c), ARG(W, ROUND, TO_F16))
PAIRED("weights-bf16", "all weights rounded to bfloat16 on the way", has_own_rows(c), ARG(W, ROUND, TO_BF16))
PAIRED("weights-bf16-cut", "all weights cut to bfloat16, not rounded to the nearest",
    has_own_rows(c), ARG(W, ROUND, TO_BF16_CUT))
/* ---------------------------------------------------------------- projections */
PAIRED("transpose-q", "W_Q transposed", is_square(c, MHA_W_Q), MARK(W_Q, FROM))
PAIRED("transpose-k", "W_K transposed", is_square(c, MHA_W_K), MARK(W_K, FROM))
PAIRED("transpose-v", "W_V transposed", is_square(c, MHA_W_V), MARK(W_V, FROM))
PAIRED("transpose-o", "W_O transposed", is_square(c, MHA_W_O), MARK(W_O, FROM))
PAIRED("transpose-all", "all four matrices transposed",
    are_square(c), MARK(W_Q, FROM); MARK(W_K, FROM); MARK(W_V, FROM); MARK(W_O, FROM))
PAIRED("order-kqv", "q and k taken for each other", is_packable(c), ORDER(1, 0, 2))
PAIRED("order-qvk", "k and v taken for each other", is_packable(c) || exchanges_kv(c), ORDER(0, 2, 1))
PAIRED("order-vkq", "q and v taken for each other", is_packable(c), ORDER(2, 1, 0))
PAIRED("order-kvq", "k, v, q taken for q, k, v", is_packable(c), ORDER(1, 2, 0))
PAIRED("order-vqk", "v, q, k taken for q, k, v", is_packable(c), ORDER(2, 0, 1))
ALONE("order-qqv", "q in the place of k, too", is_packable(c), ORDER(0, 0, 2))
ALONE("order-kkv", "k in the place of q, too", is_packable(c), ORDER(1, 1, 2))
ALONE("order-qkk", "k in the place of v, too", is_packable(c) || exchanges_kv(c), ORDER(0, 1, 1))
ALONE("order-qvv", "v in the place of k, too", is_packable(c) || exchanges_kv(c), ORDER(0, 2, 2))
ALONE("order-qkq", "q in the place of v, too", is_packable(c), ORDER(0, 1, 0))
ALONE("order-vkv", "v in the place of q, too", is_packable(c), ORDER(2, 1, 2))
PAIRED("packed-interleaved", "a packed tensor of blocks q|k|v read as (q, k, v) for each head, or each group of them",
    packs_heads(c), ARG_H(PROJ, FROM, PACKED_GROUPS))
PAIRED("packed-blocks", "a packed tensor of (q, k, v) for each head, or each group of them, read as blocks q|k|v",
    packs_heads(c), ARG_H(PROJ, FROM, PACKED_BLOCKS))
LISTED("inputs-other", "k and v (1), v (2), k (3) made of the query input, v of the key's (4), k of the value's (5)",
    is_cross(c) && is_among(*x, 5) && (*x > 3 || c->T_q >= c->T_k), PUT(X, TAKE,
    .sides = inputs_other[(int)*x - 1][0], .arg = inputs_other[(int)*x - 1][1]), UP(1, 6))
ALONE("input-layer-norm", "a layer norm of the inputs, without weights",
    has_layer(c) && c->kv_rank == 0, ARG(X, FN, LAYER_NORM))
ALONE("input-rms-norm", "an RMS norm of the inputs, without weights",
    has_layer(c) && c->kv_rank == 0, ARG(X, FN, RMS_NORM))
/* ---------------------------------------------------------------- latents */
PAIRED("latent-q-unnormed", "the latent of the queries not normalised", c->q_rank > 0, ARG(LATENT, FN, Q_UNNORMED))
PAIRED("latent-kv-unnormed", "the latent of keys and values not normalised",
    c->kv_rank > 0, ARG(LATENT, FN, KV_UNNORMED))
PAIRED("latent-shared-normed", "the norm over [c, k_r] instead of c", has_shared(c), ARG(LATENT, FN, SHARED_NORMED))
PAIRED("latent-shared-first", "the outputs of W_KVA read as [k_r, c] instead of [c, k_r]",
    has_shared(c), ARG(LATENT, FN, SHARED_FIRST))
PAIRED("latent-not-shared", "k_r in the keys of the first head alone",
    has_shared(c) && c->H > 1, ARG(LATENT, FN, SHARED_FIRST_HEAD))
PAIRED("latent-values-first", "the columns of a head in W_KVB read as [v, k_n] instead of [k_n, v]",
    c->kv_rank > 0, ARG(LATENT, FN, VALUES_FIRST))
PAIRED("latent-blocks", "W_KVB read as the k_n of all heads, then their v, instead of head by head",
    c->kv_rank > 0 && c->H > 1, ARG(LATENT, FN, LATENT_BLOCKS))
PAIRED("latent-bias-dropped", "b_QA and b_KVA dropped", has(c, B_KVA), ARG(LATENT, FN, LATENT_NO_BIAS))
/* ---------------------------------------------------------------- axes and features */
ALONE("batch-as-time", "attention over the batch rows of each position: (B, T, E) read as (T, B, E)",
    mha__can_exchange(c), ARG_H(CALL, FN, BATCH_AS_TIME))
ALONE("heads-as-time", "attention over the heads of each position: (B, h, T, d) read as (B, T, h, d), or the reverse",
    mha__can_turn(c), ARG_H(CALL, FN, HEADS_AS_TIME))
ALONE("sequences-joined", "the sequences of a ragged batch taken for one", can_join(c), ARG_H(CALL, FN, BATCH_AS_TIME))
ALONE("inputs-reversed", "the inputs read from the last row to the first", attends(c), MARK(X, FROM))
ALONE("permute-q", "features of q from halves to pairs, as converters of weights move them",
    has_pairs(c), FROM(Y, Q, TO_PAIRS, C, 0))
ALONE("permute-k", "features of k from halves to pairs", has_pairs(c) && attends(c), FROM(Y, K, TO_PAIRS, C, 0))
ALONE("permute-qk", "features of q and k from halves to pairs",
    has_pairs(c) && attends(c), FROM(Y, Q + K, TO_PAIRS, C, 0))
ALONE("unpermute-q", "features of q from pairs to halves, as converters of weights move them",
    has_pairs(c), FROM(Y, Q, TO_HALVES, C, 0))
ALONE("unpermute-k", "features of k from pairs to halves", has_pairs(c) && attends(c), FROM(Y, K, TO_HALVES, C, 0))
ALONE("unpermute-qk", "features of q and k from pairs to halves",
    has_pairs(c) && attends(c), FROM(Y, Q + K, TO_HALVES, C, 0))
/* ---------------------------------------------------------------- biases */
PAIRED("bias-q-dropped", "b_Q dropped", has(c, B_Q), MARK(B_Q, ZERO))
PAIRED("bias-k-dropped", "b_K dropped", has(c, B_K), MARK(B_K, ZERO))
PAIRED("bias-v-dropped", "b_V dropped", has(c, B_V), MARK(B_V, ZERO))
LISTED("bias-q-dropped-head", "b_Q of one head dropped: which", has(c, B_Q) && is_below(*x, c->H), LACK_BIAS(B_Q),
    MOST(64, UP(0, c->H)))
LISTED("bias-k-dropped-head", "b_K of one head dropped: which", has(c, B_K) && is_below(*x, c->H_kv), LACK_BIAS(B_K),
    MOST(64, UP(0, c->H_kv)))
LISTED("bias-v-dropped-head", "b_V of one head dropped: which", has(c, B_V) && is_below(*x, c->H_kv), LACK_BIAS(B_V),
    MOST(64, UP(0, c->H_kv)))
PAIRED("bias-o-dropped", "b_O dropped", has(c, B_O), MARK(B_O, ZERO))
PAIRED("biases-dropped", "all projection biases dropped", count_biases(c) > 1, drop_biases(c, k))
SOLVED("case-lacks-biases", "biases of projections that the case does not have: b_Q, b_K, b_V, b_O",
    has_layer(c) && c->kv_rank == 0 && count_biases(c) < PROJECTION_COUNT, give_biases(c, k, x), BIASES)
ALONE("bias-q-unscaled", "q scaled before b_Q is added", scales_bias_q(c, k), FACTOR(B_Q, 1 / softmax->scale))
ALONE("bias-after-norm", "b_Q and b_K added after the norm",
    has_bias_qk(c) && has_norm(c) && s->qkv.clip_qkv == 0, ARG(BIAS, MOVE, AFTER_NORM))
ALONE("bias-after-rope", "b_Q and b_K added after the rotation",
    has_bias_qk(c) && has_rope(c) && s->qkv.clip_qkv == 0, ARG(BIAS, MOVE, AFTER_ROPE))
/* ---------------------------------------------------------------- splitting into heads */
PAIRED("split-interleaved", "features split as (d_k, h) instead of (h, d_k)", c->H > 1, VIEW(H, BTHC, BTCH))
PAIRED("split-untransposed", "(T, h*d_k) viewed as (h, T, d_k) without a transpose", c->H > 1, VIEW(H, BTHC, BHTC))
/* ---------------------------------------------------------------- rotation */
PAIRED("rope-missing", "no rotation", has_rope(c), rope->kind = MHA_ROPE_NONE)
PAIRED("rope-pairing", "rotation pairs (2i, 2i+1) instead of (i, i + dim/2), or the reverse",
    has_rope(c), rope->kind = mha__other_pairing(rope->kind))
PAIRED("rope-inverse", "rotation in the other direction", has_rope(c), SIDES(SIN, TIMES, 7))
ALONE("rope-inverse-q", "queries rotated in the other direction", has_rope(c) && attends(c), SIDES(SIN, TIMES, 1))
ALONE("rope-inverse-k", "keys rotated in the other direction", has_rope(c) && attends(c), SIDES(SIN, TIMES, 2))
PAIRED("rope-query-ahead", "queries rotated one position too far",
    has_rope(c) && attends(c) && tables_reach(c, 1), MORE(POS_Q, PLUS, 1))
PAIRED("rope-query-behind", "queries rotated one position too little",
    has_rope(c) && attends(c) && tables_reach(c, -1), MORE(POS_Q, PLUS, -1))
PAIRED("rope-from-1", "positions counted from 1",
    has_rope(c) && tables_reach(c, 1), MORE(POS_Q, PLUS, 1); MORE(POS_K, PLUS, 1))
ALONE("rope-offset-less", "queries and new keys rotated one position too little, behind cached keys",
    has_rope(c) && c->P > 0 && tables_reach(c, -1), MORE(POS_Q, PLUS, -1); MORE(POS_K, PLUS, -1))
PAIRED("rope-restart", "positions start at 0 in every call: cached rows forgotten",
    has_rope(c) && has_positions(c) && tables_reach(c, 0), SIDES(POS, ZERO, 7))
ALONE("rope-restart-q", "positions of queries, not of keys, start at 0 in every call",
    has_rope(c) && attends(c) && has_positions(c) && tables_reach(c, 0), SIDES(POS, ZERO, 1))
ALONE("rope-restart-k", "positions of keys, not of queries, start at 0 in every call",
    has_rope(c) && attends(c) && has_positions(c) && tables_reach(c, 0), SIDES(POS, ZERO, 2))
ALONE("rope-first-batch", "positions of the first batch row for all",
    has_rope(c) && has_positions_by_batch(c), MARK_H(POS, FROM))
ALONE("rope-reversed", "positions counted from the last row", has_rope(c), FROM(POS_ROW, 0, REVERSED, T, 0))
PAIRED("rope-queries-only", "only the queries rotated", has_rope(c) && attends(c), SIDES(TURN, ZERO, 2))
PAIRED("rope-keys-only", "only the keys rotated", has_rope(c) && attends(c), SIDES(TURN, ZERO, 1))
ALONE("rope-pairing-q", "queries rotated by the other pairing, keys not",
    has_rope(c) && attends(c) && rope->dim > 2, SIDES(PAIR, FN, 1))
ALONE("rope-pairing-k", "keys rotated by the other pairing, queries not",
    has_rope(c) && attends(c) && rope->dim > 2, SIDES(PAIR, FN, 2))
ALONE("rope-adds", "x cos + y sin in place of x cos - y sin: half of the features not negated",
    has_rope(c), ARG(TURN, FN, TURN_ADDS))
ALONE("rope-first-overwritten", "the second feature of a pair made of the first as it is rotated already",
    has_rope(c), ARG(TURN, FN, FIRST_OVERWRITTEN))
ALONE("rope-second-overwritten", "the first feature of a pair made of the second as it is rotated already",
    has_rope(c), ARG(TURN, FN, SECOND_OVERWRITTEN))
ALONE("rope-frequencies-reversed", "the slowest frequency for the first pair, the fastest for the last",
    has_rope(c) && rope->dim > 2, MARK(ANGLE, FROM))
ALONE("rope-sin-cos", "sine and cosine exchanged", has_rope(c), MARK(SIN, TAKE))
ALONE("rope-angles-mixed", "angles laid out for the other pairing", has_rope(c) && rope->dim > 2, MARK(ANGLE, MOVE))
ALONE("rope-regrouped", "rotated features in the order of the other pairing",
    has_rope(c) && rope->dim > 2, MARK(PAIR, MOVE))
PAIRED("rope-values", "the values rotated, too", has_rope(c) && attends(c), MARK(TURN_V, DO))
PAIRED("rope-full", "all features rotated instead of the first rope_dim",
    has_rope(c) && rope->dim < c->d_k && c->d_k % 2 == 0, rope->dim = c->d_k; by_formula(k))
ALONE("rope-last-features", "the last rope_dim features rotated instead of the first, or the reverse",
    has_rope(c) && rope->dim < c->d_k, rope->last = !rope->last)
PAIRED("rope-unscaled", "frequencies of the base instead of those scaled for longer contexts",
    has_rope(c) && s->qkv.rope.frequencies.data, by_formula(k))
PAIRED("rope-factor-missing", "no attention factor (YaRN) on rotated features",
    has_rope(c) && rope->attention_factor != 1, rope->attention_factor = 1)
PAIRED("rope-axes-text", "the number of a token as its position on every axis, as in a text",
    has_axes(c, 1) && s->place.n_sequences == 0 && !s->place.position_offset, ARG(SECTIONS, FROM, AXES_TEXT))
PAIRED("rope-axes-first", "the positions of the first axis for all pairs",
    has_axes(c, 2), ARG(SECTIONS, FROM, AXES_FIRST))
PAIRED("rope-axes-swapped", "the last two axes, height and width, taken for each other",
    has_axes(c, 2), ARG(SECTIONS, FROM, AXES_SWAPPED))
PAIRED("rope-sections-reversed", "the sections of the axes in reverse order",
    has_uneven_axes(c), ARG(SECTIONS, FROM, AXES_REVERSED))
PAIRED("rope-axes-dealt", "axes that have blocks of pairs taken for axes that take turns, or the reverse",
    takes_turns(c), ARG(SECTIONS, FROM, AXES_DEALT))
PAIRED("rope-axes-restart", "frequencies that begin anew in the block of each axis, or the reverse",
    has_free_blocks(c), ARG(SECTIONS, FROM, AXES_RESTART))
ALONE("rope-half-dim", "half of the rope_dim features rotated",
    has_rope(c) && rope->dim % 4 == 0, rope->dim /= 2; by_formula(k))
ALONE("rope-theta-d-model", "angles base^(-2i/(h*d_k)) instead of base^(-2i/rope_dim)",
    has_rope(c) && c->H * c->d_k > rope->dim, NUM_H(ANGLE, OVER, (double)(c->H * c->d_k)); by_formula(k))
ALONE("rope-theta-d-k", "angles base^(-2i/d_k) instead of base^(-2i/rope_dim)",
    has_rope(c) && rope->dim < c->d_k, NUM_H(ANGLE, OVER, (double)c->d_k); by_formula(k))
PAIRED("rope-base-1e4", "rotation base 10,000", is_other_base(c, k, 1e4), rope->base = 1e4; by_formula(k))
PAIRED("rope-base-5e5", "rotation base 500,000", is_other_base(c, k, 5e5), rope->base = 5e5; by_formula(k))
PAIRED("rope-base-1e6", "rotation base 1,000,000", is_other_base(c, k, 1e6), rope->base = 1e6; by_formula(k))
/* ---------------------------------------------------------------- rotation, with a number */
LISTED("rope-dim-other", "another number of features rotated: how many", has_rope(c) && is_rotated(*x) && *x <
    (double)c->d_k && 2 * *x != (double)rope->dim, rope->dim = (size_t)*x; by_formula(k), ANY(rotated))
REAL("rope-base-other", "another base of the rotation: the number", has_rope(c) && rope->dim > 2, rope->base = *x;
    by_formula(k), 10, 1e8)
LISTED("rope-queries-moved", "queries, not keys, rotated by positions n too far: n", has_rope(c) && attends(c) &&
    is_whole(*x) && tables_reach(c, (int64_t)*x), NUM(POS_Q, PLUS, *x), MOST(64, MOVES(2 * keys_of(c))))
LISTED("rope-twice", "rows rotated twice: those of q (1), of k (2), both (3)",
    has_rope(c) && attends(c) && is_among(*x, 3), SIDES(TURN, TIMES, *x), UP(1, 4))
LISTED("rope-positions-run", "positions that run on from batch row to batch row: of q (1), of k (2), both (3)",
    has_rope(c) && attends(c) && c->B > 1 && !s->qkv.rope.cos_table.data && is_among(*x, 3), SIDES_H(POS, PLUS, *x),
    UP(1, 4))
LISTED("rope-one-position", "all rows of a call rotated by the position of the first (1), of the last (2)",
    has_rope(c) && attends(c) && c->T_q * c->T_k > 1 && is_among(*x, 2), FROM_END(*x), UP(1, 4))
LISTED("rounded-rope-tables", "cosines and sines rounded to so many bits: 8 bfloat16, 11 float16; negative: cut",
    has_rope(c) && is_bits(*x), NUM(SIN, BITS, *x), ANY(bits))
LISTED("rounded-rope-angles", "angles of the rotation rounded to so many bits",
    has_rope(c) && is_bits(*x), NUM(ANGLE, BITS, *x), ANY(bits))
LISTED("rounded-rope-frequencies", "frequencies of the rotation rounded to so many bits",
    has_rope(c) && is_bits(*x), NUM(ANGLE, ROUND, *x), ANY(bits))
LISTED("rounded-rope-positions", "positions rounded to a number of bits before the rotation",
    has_rope(c) && !s->qkv.rope.cos_table.data && is_bits(*x), NUM(POSITION, BITS, *x), ANY(bits))
LISTED("rope-positions-wrapped", "positions modulo n, as of a table that is too short: n", has_rope(c) &&
    has_no_rows_of_tables(c) && is_whole(*x) && *x >= 1, FROM(POSITION, 0, FIRST_BLOCK, T, *x), ANY(length))
LISTED("rope-positions-held", "positions from n on taken for n - 1, as of a table that is too short: n",
    has_rope(c) && has_no_rows_of_tables(c) && is_whole(*x) && *x >= 1, FROM(POSITION, 0, HELD, T, *x), ANY(length))
LISTED("rope-heads-other", "only the first heads rotated: how many",
    has_rope(c) && attends(c) && is_among(*x, (double)c->H - 1), NUM_H(TURN, KEEP, *x), MOST(8, UP(1, c->H)))
/* With one pair, another base does not matter, but positions that are divided do. */
REAL("rope-positions-divided", "positions divided by a number before they are rotated by (linear scaling)", has_rope(c)
    && !s->qkv.rope.cos_table.data, NUM(POS, TIMES, *x), 1.01, 1000)
REAL("case-lacks-rope-halves", "a rotation in halves that the case does not have: its base", can_rotate(c, c->d_k),
    ROTATE(HALF_SPLIT, c->d_k, *x), 10, 1e8)
REAL("case-lacks-rope-pairs", "a rotation in pairs that the case does not have: its base", can_rotate(c, c->d_k),
    ROTATE(INTERLEAVED, c->d_k, *x), 10, 1e8)
LISTED("case-lacks-rope-halves-part", "a rotation in halves, of base 10,000, of so many features", *x < (double)c->d_k
    && can_rotate(c, (size_t)*x), ROTATE(HALF_SPLIT, (size_t)*x, 1e4), STEPS(2, 2, c->d_k))
LISTED("case-lacks-rope-pairs-part", "a rotation in pairs, of base 10,000, of so many features", *x < (double)c->d_k &&
    can_rotate(c, (size_t)*x), ROTATE(INTERLEAVED, (size_t)*x, 1e4), STEPS(2, 2, c->d_k))

/* ---------------------------------------------------------------- rows */
WHOLE("rows-q-moved", "row t of q is row t - n, around the ends", moves_q(c), FROM(ROW, Q, SHIFT, T, -*x),
    MOVES(c->T_q))
WHOLE("rows-k-moved", "row t of k is row t - n, around the ends", moves_rows(c), LIE(K, SHIFT, -*x), MOVES(keys_of(c)))
WHOLE("rows-v-moved", "row t of v is row t - n, around the ends", moves_rows(c), LIE(V, SHIFT, -*x), MOVES(keys_of(c)))
WHOLE("rows-kv-moved", "row t of k and v is row t - n, around the ends", moves_rows(c), LIE(K + V, SHIFT, -*x),
    MOVES(keys_of(c)))
WHOLE("rows-q-shifted", "row t of q is row t - n, and 0 where there is none", moves_q(c), FROM(ROW, Q, SHIFTED, T, -*x),
    ANY(few_queries))
WHOLE("rows-k-shifted", "row t of k is row t - n, and 0 where there is none", moves_rows(c), LIE(K, SHIFTED, -*x),
    MOST(8, MOVES(keys_of(c))))
WHOLE("rows-v-shifted", "row t of v is row t - n, and 0 where there is none", moves_rows(c), LIE(V, SHIFTED, -*x),
    MOST(8, MOVES(keys_of(c))))
WHOLE("rows-kv-shifted", "row t of k and v is row t - n, and 0 where there is none", moves_rows(c) && v->causal, LIE(K +
    V, SHIFTED, -*x), MOST(8, MOVES(keys_of(c))))
LISTED("rows-k-repeated", "row n of k is row n - 1, its own was not written: n",
    moves_rows(c) && is_row(c, *x), LIE(K, REPEATED, *x), MOST(512, UP(LATER_KEY, keys_of(c))))
LISTED("rows-v-repeated", "row n of v is row n - 1, its own was not written: n",
    moves_rows(c) && is_row(c, *x), LIE(V, REPEATED, *x), MOST(512, UP(LATER_KEY, keys_of(c))))
LISTED("rows-kv-repeated", "row n of k and v is row n - 1, its own was not written: n",
    moves_rows(c) && is_row(c, *x), LIE(K + V, REPEATED, *x), MOST(512, UP(LATER_KEY, keys_of(c))))
LISTED("rows-kv-wrapped", "row t of k and v is row t modulo n, as in a ring that is too short: n",
    moves_rows(c) && is_row(c, *x), LIE(K + V, FIRST_BLOCK, *x), MOST(512, UP(LATER_KEY, keys_of(c))))
LISTED("rows-kv-held", "all rows of k and v from n on are row n - 1: n",
    moves_rows(c) && is_row(c, *x), LIE(K + V, HELD, *x - 1), MOST(512, UP(LATER_KEY, keys_of(c))))

SOLVED("rows-q-permuted", "rows of q in the place of others: which in which place", moves_q(c) && are_indices(x, c->B *
    c->T_q, c->T_q), TABLE(ROW, Q, T, x), QUERIES)
SOLVED("rows-k-permuted", "rows of k in the place of others, under a mask of places: which in which place",
    moves_rows(c) && are_places(c, x), LIE_TABLE(K, x), KEY_ROWS)
SOLVED("rows-kv-permuted", "rows of k and v in the place of others, under a mask of places: which in which place",
    moves_rows(c) && are_places(c, x), LIE_TABLE(K + V, x), KEY_ROWS)
SOLVED("rows-v-permuted", "rows of v in the place of others, as pages in a wrong order: which in which place",
    moves_rows(c) && are_places(c, x), LIE_TABLE(V, x), VALUES)
/* ---------------------------------------------------------------- batch rows, heads, features */
WHOLE("batch-q-moved", "batch row b of q is batch row b - n, around the ends, or the first (-1)", moves_q(c), BATCH(ROW,
    Q), BATCHES(64))
WHOLE("batch-k-moved", "batch row b of k is batch row b - n, around the ends, or the first (-1)", moves(c), BATCH(ROW,
    K), BATCHES(64))
WHOLE("batch-v-moved", "batch row b of v is batch row b - n, around the ends, or the first (-1)", moves(c), BATCH(ROW,
    V), BATCHES(64))
WHOLE("batch-kv-moved", "batch row b of k and v is batch row b - n, around the ends, or the first (-1)", moves(c),
    BATCH(ROW, K + V), BATCHES(64))
WHOLE("heads-q-moved", "head g of q is head g - n, around the ends", moves_q(c), FROM(ROW, Q, SHIFT, H, -*x),
    MOVES(c->H))
WHOLE("heads-k-moved", "head g of k is head g - n, around the ends", moves(c), FROM(ROW, K, SHIFT, H, -*x),
    MOVES(c->H_kv))
WHOLE("heads-v-moved", "head g of v is head g - n, around the ends", moves(c), FROM(ROW, V, SHIFT, H, -*x),
    MOVES(c->H_kv))
SOLVED("heads-q-permuted", "queries of other heads: which head's in which place", moves_q(c) && c->H > 1 &&
    are_indices(x, c->H, c->H), TABLE(ROW, Q, H, x), Q_HEADS)
WHOLE("features-q-moved", "feature c of the heads of q is feature c - n, around the ends", moves_q(c), FROM(ROW, Q,
    SHIFT, C, -*x), MOVES(c->d_k))
WHOLE("features-k-moved", "feature c of the heads of k is feature c - n, around the ends", moves(c), FROM(ROW, K, SHIFT,
    C, -*x), MOVES(c->d_k))
WHOLE("features-v-moved", "feature c of the heads of v is feature c - n, around the ends", moves(c), FROM(ROW, V, SHIFT,
    C, -*x), MOVES(c->d_v))
SOLVED("batch-heads-k-permuted", "heads of k of all batch rows in the place of others: which in which place",
    are_blocks(c, x), MOVE_BLOCKS(K), KV_BLOCKS)
SOLVED("batch-heads-v-permuted", "heads of v of all batch rows in the place of others: which in which place",
    are_blocks(c, x), MOVE_BLOCKS(V), KV_BLOCKS)
SOLVED("batch-heads-kv-permuted", "heads of k and v of all batch rows in the place of others: which in which "
    "place", are_blocks(c, x), MOVE_BLOCKS(K + V), KV_BLOCKS)
/* ---------------------------------------------------------------- memory */
LISTED("memory-q", "q read in another order of the axes of its memory: rows (1), heads (2), features (3) first",
    moves_q(c) && is_order(*x), MEMORY(Q), UP(1, 4))
LISTED("memory-k", "k read in another order of the axes of its memory: rows (1), heads (2), features (3) first",
    moves(c) && is_order(*x), MEMORY(K), UP(1, 4))
LISTED("memory-v", "v read in another order of the axes of its memory: rows (1), heads (2), features (3) first",
    moves(c) && is_order(*x), MEMORY(V), UP(1, 4))
LISTED("memory-kv", "k and v read in another order of axes of their memory: rows (1), heads (2), features (3) first",
    moves(c) && is_order(*x), MEMORY(K + V), UP(1, 4))

/* ---------------------------------------------------------------- norms */
PAIRED("norm-missing", "norms of q and k left out", has_q_norm(c) && has_k_norm(c), SIDES(NORM, ZERO, 3))
ALONE("norm-q-missing", "norm of q left out", has_q_norm(c), SIDES(NORM, ZERO, 1))
ALONE("norm-k-missing", "norm of k left out", has_k_norm(c), SIDES(NORM, ZERO, 2))
PAIRED("norm-rms", "q/k norm divides by the root mean square",
    is_other_norm(c, MHA_NORM_RMS), norm->kind = MHA_NORM_RMS)
PAIRED("norm-layer", "q/k norm subtracts the mean, as a layer norm",
    is_other_norm(c, MHA_NORM_LAYER), norm->kind = MHA_NORM_LAYER)
ALONE("norm-l2", "q/k norm divides by the length of the row instead of its root mean square",
    is_other_norm(c, MHA_NORM_L2), norm->kind = MHA_NORM_L2)
ALONE("norm-other-span", "q/k norm over the whole row instead of each head, or the reverse",
    has_norm(c) && c->H > 1, MARK_H(NORM, OVER))
ALONE("norm-first-head", "the norm weights of the first head taken for all heads",
    has_own_weights(c) && c->H > 1, MARK_H(NORM_WEIGHT, FROM))
LISTED("norm-weight-other", "rows of q (1), of k (2), both (3) times the weight of the other's norm",
    exchanges_norms(c) && is_among(*x, 3), SIDES(NORM_WEIGHT, TAKE, *x), UP(1, 4))
PAIRED("norm-no-weight", "q/k norm without its weight", has_norm_weight(c), MARK(NORM_WEIGHT, ZERO))
PAIRED("norm-bias-missing", "q/k norm without its bias", has_norm_bias(c), MARK(NORM_BIAS, ZERO))
ALONE("norm-eps-outside", "q/k norm adds eps outside the root", has_norm(c), MARK(NORM, FN))
PAIRED("norm-eps-1e-5", "q/k norm with eps 1e-5", is_other_eps(c, k, 1e-5), k->s.qkv.norm_eps = 1e-5)
ALONE("norm-eps-1e-6", "q/k norm with eps 1e-6", is_other_eps(c, k, 1e-6), k->s.qkv.norm_eps = 1e-6)
ALONE("norm-eps-1e-8", "q/k norm with eps 1e-8", is_other_eps(c, k, 1e-8), k->s.qkv.norm_eps = 1e-8)
ALONE("norm-eps-0", "q/k norm without eps", is_other_eps(c, k, 0), k->s.qkv.norm_eps = 0)
PAIRED("norm-after-rope", "q/k norm after the rotation",
    has_norm(c) && has_rope(c) && !s->qkv.norm.after_rope, norm->after_rope = 1)
PAIRED("norm-before-rope", "q/k norm before the rotation",
    has_norm(c) && has_rope(c) && s->qkv.norm.after_rope, norm->after_rope = 0)
PAIRED("norm-plus-one", "q/k norm multiplies by 1 + weight", has_norm_weight(c) && !norm->plus_one, norm->plus_one = 1)
PAIRED("norm-not-plus-one", "q/k norm multiplies by the weight instead of 1 + weight",
    has_norm_weight(c) && s->qkv.norm.plus_one, norm->plus_one = 0)
/* ---------------------------------------------------------------- limits */
PAIRED("clip-missing", "q, k and v not limited by clip_qkv", clips(c), k->s.qkv.clip_qkv = 0)
PAIRED("clip-queries-alone", "k and v not limited by clip_qkv", clips(c), SIDES(CLIP, ZERO, 2 + 4))
PAIRED("clip-without-values", "v not limited by clip_qkv", clips(c), SIDES(CLIP, ZERO, 4))
PAIRED("clip-before-bias", "q, k and v limited by clip_qkv before their biases are added",
    clips(c) && has_bias(c), ARG(CLIP, MOVE, BEFORE_BIAS))
PAIRED("clip-before-norm", "q and k limited by clip_qkv before their norm",
    clips(c) && has_norm(c) && !s->qkv.norm.after_rope, ARG(CLIP, MOVE, BEFORE_NORM))
PAIRED("clip-after-rope", "q and k limited by clip_qkv after the rotation",
    clips(c) && has_rope(c), ARG(CLIP, MOVE, AFTER_ROPE))
/* ---------------------------------------------------------------- scale by position */
PAIRED("query-scale-missing", "queries not scaled by their position",
    has_query_scale(c), k->s.qkv.query_scale.growth = 0)
PAIRED("query-scale-first", "positions of the scale counted from 0 instead of 1, or the reverse",
    has_query_scale(c), k->s.qkv.query_scale.first = k->s.qkv.query_scale.first == 0)
ALONE("query-scale-smooth", "the scale grows with each position, not in whole steps",
    has_query_scale(c) && s->qkv.query_scale.every > 1, MARK(QSCALE, FN))
ALONE("query-scale-keys", "the keys scaled by their positions, too",
    mha__scales_queries(&c->semantics.qkv) && attends(c), MARK(QSCALE, DO))
PAIRED("log-n-missing", "queries beyond the training length not scaled (log_n_scale)",
    has_log_n(k), k->s.qkv.query_scale.log_n = 0)
PAIRED("log-n-from-0", "log(p) instead of log(p + 1): positions of log_n_scale counted from 0",
    has_log_n(k), NUM(LOG_N, PLUS, 0))
PAIRED("log-n-always", "queries below the training length scaled, too, to less than they are",
    has_log_n(k), MARK(LOG_N, FN))
/* ---------------------------------------------------------------- what the case does not have, or with a number */
ALONE("case-lacks-rms-norm", "an RMS norm of q and k, without weights, that the case lacks",
    attends(c) && !(has_q_norm(c) && has_k_norm(c)), norm->unweighted = 1)
ALONE("case-lacks-layer-norm", "a layer norm of q and k, without weights, that the case lacks",
    lacks_norm(c), norm->unweighted = 1; norm->kind = MHA_NORM_LAYER)
ALONE("case-lacks-l2-norm", "q and k divided by their length, which the case does not say",
    lacks_norm(c), norm->unweighted = 1; norm->kind = MHA_NORM_L2)
SOLVED("case-lacks-norm-weights", "weights of norms of q and k that the case lacks: those of q, those of k",
    attends(c) && c->kv_rank == 0 && !has_norm_weight(c), norm->unweighted = 1; NUMS(NORM_WEIGHT, TIMES), NORMS)
REAL("cosine-scores", "scores that are cosines, q and k divided by their length, times a number: the number",
    lacks_norm(c), norm->unweighted = 1; norm->kind = MHA_NORM_L2; k->s.qkv.norm_eps = 0; softmax->scale = *x, 0.1, 100)
REAL("norm-eps-other", "q/k norm with another eps: the number", has_norm(c), k->s.qkv.norm_eps = *x, 1e-12, 1)

/* ---------------------------------------------------------------- which rows are read */
WHOLE("cache-k-moved", "cached row t of k is cached row t - n, around the ends", caches(c), FROM(PAST, K, SHIFT, T,
    -*x), MOVES(c->P))
WHOLE("cache-v-moved", "cached row t of v is cached row t - n, around the ends", caches(c), FROM(PAST, V, SHIFT, T,
    -*x), MOVES(c->P))
WHOLE("cache-kv-moved", "cached row t of k and v is cached row t - n, around the ends", caches(c), FROM(PAST, K + V,
    SHIFT, T, -*x), MOVES(c->P))
WHOLE("cache-k-batch-moved", "batch row b reads the cached k of batch row b - n, or of the first (-1)", caches(c),
    BATCH(PAST, K), BATCHES(16))
WHOLE("cache-v-batch-moved", "batch row b reads the cached v of batch row b - n, or of the first (-1)", caches(c),
    BATCH(PAST, V), BATCHES(16))
WHOLE("cache-kv-batch-moved", "batch row b reads the cache of batch row b - n, or of the first (-1)", caches(c),
    BATCH(PAST, K + V), BATCHES(16))
WHOLE("cache-k-heads-moved", "head g of the cached k is head g - n, around the ends", caches(c), FROM(PAST, K, SHIFT, H,
    -*x), MOVES(c->H_kv))
WHOLE("cache-v-heads-moved", "head g of the cached v is head g - n, around the ends", caches(c), FROM(PAST, V, SHIFT, H,
    -*x), MOVES(c->H_kv))
WHOLE("cache-kv-heads-moved", "head g of the cached k and v is head g - n, around the ends", caches(c), FROM(PAST, K +
    V, SHIFT, H, -*x), MOVES(c->H_kv))
ALONE("cache-heads-reversed", "heads of the cache in reverse order",
    caches(c) && c->H_kv > 2, FROM(PAST, K + V, REVERSED, H, 0))

LISTED("cache-pages-heads-first", "pages of n rows that lie in memory heads first read as rows first: n",
    caches(c) && c->H_kv > 1 && is_whole(*x) && *x > 1, STEP_H(JOINED, TAKE, *x), ANY(page))
LISTED("cache-pages-rows-first", "pages of n rows that lie in memory rows first read as heads first: n",
    caches(c) && c->H_kv > 1 && is_whole(*x) && *x > 1, STEP_H(JOINED, TAKE, -*x), ANY(page))
/* ---------------------------------------------------------------- contents of caches */
ALONE("cache-kv-exchanged", "cached keys and values taken for each other",
    is_exchangeable(c), SIDES_H(PAST, TAKE, K + V))
ALONE("cache-k-for-v", "cached keys in the place of cached values, too", is_exchangeable(c), SIDES_H(PAST, TAKE, V))
ALONE("cache-v-for-k", "cached values in the place of cached keys, too", is_exchangeable(c), SIDES_H(PAST, TAKE, K))
ALONE("cache-k-turned-again", "cached keys, which are rotated, rotated by their positions once more",
    turns(c), OF_SIDES(PAST, DO, K, 1))
ALONE("cache-k-turned-back", "cached keys without their rotation", turns(c), OF_SIDES(PAST, DO, K, -1))
ALONE("cache-k-new-lost", "new keys not written behind the cached ones: 0", caches(c), SIDES_H(NEW, ZERO, K))
ALONE("cache-v-new-lost", "new values not written behind the cached ones: 0", caches(c), SIDES_H(NEW, ZERO, V))
ALONE("cache-kv-new-lost", "new keys and values not written behind the cached ones: 0",
    caches(c), SIDES_H(NEW, ZERO, K + V))
LISTED("cache-k-rounded", "cached keys alone rounded: 11 float16, 8 bfloat16, 4 float8 E4M3, 3 E5M2",
    caches(c) && is_bits(*x), OF_SIDES(PAST, BITS, K, *x), ANY(bits))
LISTED("cache-v-rounded", "cached values alone rounded: 11 float16, 8 bfloat16, 4 float8 E4M3, 3 E5M2",
    caches(c) && is_bits(*x), OF_SIDES(PAST, BITS, V, *x), ANY(bits))
LISTED("cache-kv-rounded", "cached keys and values alone rounded: 11 float16, 8 bfloat16, 4 float8 E4M3, 3 E5M2",
    caches(c) && is_bits(*x), OF_SIDES(PAST, BITS, K + V, *x), ANY(bits))
REAL("cache-k-times", "cached keys multiplied, as by a scale too many: the number", caches(c) && *x > 0, OF_SIDES(PAST,
    TIMES, K, *x), 0.01, 100)
REAL("cache-v-times", "cached values multiplied, as by a scale too many: the number", caches(c) && *x > 0,
    OF_SIDES(PAST, TIMES, V, *x), 0.01, 100)
/* clang-format on */
