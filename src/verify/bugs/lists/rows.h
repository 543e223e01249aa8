/* Bugs of the rows of q, k and v (list.h): rounding, projections, splitting into heads, rotation. */
/* clang-format off */

/* ---------------------------------------------------------------- rounding */

PAIRED("inputs-f16", "inputs rounded to float16", c->kv_rank == 0, k->round_inputs = ROUND_F16)
PAIRED("inputs-bf16", "inputs rounded to bfloat16", c->kv_rank == 0, k->round_inputs = ROUND_BF16)
PAIRED("inputs-bf16-cut", "inputs cut to bfloat16, not rounded to the nearest",
    c->kv_rank == 0, k->round_inputs = ROUND_BF16_CUT)
PAIRED("weights-f16", "all weights rounded to float16 on the way",
    has_own_rows(c), k->round_weights = ROUND_F16; k->latent = latent_of(c, LATENT_F16))
PAIRED("weights-bf16", "all weights rounded to bfloat16 on the way",
    has_own_rows(c), k->round_weights = ROUND_BF16; k->latent = latent_of(c, LATENT_BF16))
PAIRED("weights-bf16-cut", "all weights cut to bfloat16, not rounded to the nearest",
    has_own_rows(c), k->round_weights = ROUND_BF16_CUT; k->latent = latent_of(c, LATENT_BF16_CUT))

/* ---------------------------------------------------------------- projections */

PAIRED("transpose-q", "W_Q transposed", is_square(c, MHA_W_Q), k->transposed[PROJECTION_Q] = 1)
PAIRED("transpose-k", "W_K transposed", is_square(c, MHA_W_K), k->transposed[PROJECTION_K] = 1)
PAIRED("transpose-v", "W_V transposed", is_square(c, MHA_W_V), k->transposed[PROJECTION_V] = 1)
PAIRED("transpose-o", "W_O transposed", is_square(c, MHA_W_O), k->transposed[PROJECTION_O] = 1)
PAIRED("transpose-all", "all four matrices transposed", are_square(c), transpose_all(k))
PAIRED("order-kqv", "q and k taken for each other", is_packable(c), take_order(k, 1, 0, 2))
PAIRED("order-qvk", "k and v taken for each other", is_packable(c) || exchanges_kv(c), take_order(k, 0, 2, 1))
PAIRED("order-vkq", "q and v taken for each other", is_packable(c), take_order(k, 2, 1, 0))
PAIRED("order-kvq", "k, v, q taken for q, k, v", is_packable(c), take_order(k, 1, 2, 0))
PAIRED("order-vqk", "v, q, k taken for q, k, v", is_packable(c), take_order(k, 2, 0, 1))
ALONE("order-qqv", "q in the place of k, too", is_packable(c), take_order(k, 0, 0, 2))
ALONE("order-kkv", "k in the place of q, too", is_packable(c), take_order(k, 1, 1, 2))
ALONE("order-qkk", "k in the place of v, too", is_packable(c) || exchanges_kv(c), take_order(k, 0, 1, 1))
ALONE("order-qvv", "v in the place of k, too", is_packable(c) || exchanges_kv(c), take_order(k, 0, 2, 2))
ALONE("order-qkq", "q in the place of v, too", is_packable(c), take_order(k, 0, 1, 0))
ALONE("order-vkv", "v in the place of q, too", is_packable(c), take_order(k, 2, 1, 2))
PAIRED("packed-interleaved", "a packed tensor of blocks q|k|v read as (q, k, v) for each head, or each group of them",
    packs_heads(c), k->packing = PACKING_READ_INTERLEAVED)
PAIRED("packed-blocks", "a packed tensor of (q, k, v) for each head, or each group of them, read as blocks q|k|v",
    packs_heads(c), k->packing = PACKING_READ_BLOCKS)
ALONE("input-layer-norm", "a layer norm of the inputs, without weights",
    has_layer(c) && c->kv_rank == 0, k->input_norm = INPUT_NORM_LAYER)
ALONE("input-rms-norm", "an RMS norm of the inputs, without weights",
    has_layer(c) && c->kv_rank == 0, k->input_norm = INPUT_NORM_RMS)

/* ---------------------------------------------------------------- latents */

PAIRED("latent-q-unnormed", "the latent of the queries not normalised", c->q_rank > 0, k->latent = LATENT_Q_UNNORMED)
PAIRED("latent-kv-unnormed", "the latent of keys and values not normalised",
    c->kv_rank > 0, k->latent = LATENT_KV_UNNORMED)
PAIRED("latent-shared-normed", "the norm over [c, k_r] instead of c", has_shared(c), k->latent = LATENT_K_R_NORMED)
PAIRED("latent-shared-first", "the outputs of W_KVA read as [k_r, c] instead of [c, k_r]",
    has_shared(c), k->latent = LATENT_K_R_FIRST)
PAIRED("latent-not-shared", "k_r in the keys of the first head alone",
    has_shared(c) && c->H > 1, k->latent = LATENT_K_R_FIRST_HEAD)
PAIRED("latent-values-first", "the columns of a head in W_KVB read as [v, k_n] instead of [k_n, v]",
    c->kv_rank > 0, k->latent = LATENT_KVB_SWAPPED)
PAIRED("latent-blocks", "W_KVB read as the k_n of all heads, then their v, instead of head by head",
    c->kv_rank > 0 && c->H > 1, k->latent = LATENT_KVB_BLOCKS)
PAIRED("latent-bias-dropped", "b_QA and b_KVA dropped", has_weight(c, MHA_B_KVA), k->latent = LATENT_NO_BIAS)

/* ---------------------------------------------------------------- axes and features */

ALONE("batch-as-time", "attention over the batch rows of each position: (B, T, E) read as (T, B, E)",
    mha__case_exchanges(c), k->reading = READING_OTHER)
ALONE("heads-as-time", "attention over the heads of each position: (B, h, T, d) read as (B, T, h, d), or the reverse",
    mha__case_turns(c), k->reading = READING_HEADS_FOR_TIME)
ALONE("sequences-joined", "the sequences of a ragged batch taken for one", can_join(c), k->reading = READING_OTHER)
ALONE("inputs-reversed", "the inputs read from the last row to the first", attends(c), k->inputs_reversed = 1)
ALONE("permute-q", "features of q from halves to pairs, as converters of weights move them",
    has_pairs(c), k->permuted_q = PERMUTED_TO_PAIRS)
ALONE("permute-k", "features of k from halves to pairs", has_pairs(c) && attends(c), k->permuted_k = PERMUTED_TO_PAIRS)
ALONE("permute-qk", "features of q and k from halves to pairs",
    has_pairs(c) && attends(c), k->permuted_q = k->permuted_k = PERMUTED_TO_PAIRS)
ALONE("unpermute-q", "features of q from pairs to halves, as converters of weights move them",
    has_pairs(c), k->permuted_q = PERMUTED_TO_HALVES)
ALONE("unpermute-k", "features of k from pairs to halves",
    has_pairs(c) && attends(c), k->permuted_k = PERMUTED_TO_HALVES)
ALONE("unpermute-qk", "features of q and k from pairs to halves",
    has_pairs(c) && attends(c), k->permuted_q = k->permuted_k = PERMUTED_TO_HALVES)

/* ---------------------------------------------------------------- biases */

PAIRED("bias-q-dropped", "b_Q dropped", has_weight(c, MHA_B_Q), k->no_bias[PROJECTION_Q] = 1)
PAIRED("bias-k-dropped", "b_K dropped", has_weight(c, MHA_B_K), k->no_bias[PROJECTION_K] = 1)
PAIRED("bias-v-dropped", "b_V dropped", has_weight(c, MHA_B_V), k->no_bias[PROJECTION_V] = 1)
PAIRED("bias-o-dropped", "b_O dropped", has_weight(c, MHA_B_O), k->no_bias[PROJECTION_O] = 1)
PAIRED("biases-dropped", "all projection biases dropped", count_biases(c) > 1, drop_biases(c, k))
ALONE("bias-q-unscaled", "q scaled before b_Q is added", scales_bias_q(c, k), k->bias_q_times = 1 / k->s.softmax.scale)
ALONE("bias-after-norm", "b_Q and b_K added after the norm",
    has_bias_qk(c) && has_norm(c) && c->semantics.qkv.clip_qkv == 0, k->bias_place = BIAS_AFTER_NORM)
ALONE("bias-after-rope", "b_Q and b_K added after the rotation",
    has_bias_qk(c) && has_rope(c) && c->semantics.qkv.clip_qkv == 0, k->bias_place = BIAS_AFTER_ROPE)

/* ---------------------------------------------------------------- splitting into heads */

PAIRED("split-interleaved", "features split as (d_k, h) instead of (h, d_k)", c->H > 1, k->split = HEADS_INTERLEAVED)
PAIRED("split-untransposed", "(T, h*d_k) viewed as (h, T, d_k) without a transpose",
    c->H > 1, k->split = HEADS_UNTRANSPOSED)

/* ---------------------------------------------------------------- rotation */

PAIRED("rope-missing", "no rotation", has_rope(c), k->s.qkv.rope.kind = MHA_ROPE_NONE)
PAIRED("rope-pairing", "rotation pairs (2i, 2i+1) instead of (i, i + dim/2), or the reverse",
    has_rope(c), k->s.qkv.rope.kind = other_pairing(k->s.qkv.rope.kind))
PAIRED("rope-inverse", "rotation in the other direction", has_rope(c), k->rope_inverse = 7)
ALONE("rope-inverse-q", "queries rotated in the other direction", has_rope(c) && attends(c), k->rope_inverse = 1)
ALONE("rope-inverse-k", "keys rotated in the other direction", has_rope(c) && attends(c), k->rope_inverse = 2)
PAIRED("rope-query-ahead", "queries rotated one position too far",
    has_rope(c) && attends(c) && tables_reach(c, 1), k->rope_shift_q += 1)
PAIRED("rope-query-behind", "queries rotated one position too little",
    has_rope(c) && attends(c) && tables_reach(c, -1), k->rope_shift_q -= 1)
PAIRED("rope-from-1", "positions counted from 1",
    has_rope(c) && tables_reach(c, 1), k->rope_shift_q += 1; k->rope_shift_k += 1)
ALONE("rope-offset-less", "queries and new keys rotated one position too little, behind cached keys",
    has_rope(c) && c->P > 0 && tables_reach(c, -1), k->rope_shift_q -= 1; k->rope_shift_k -= 1)
PAIRED("rope-restart", "positions start at 0 in every call: cached rows forgotten",
    has_rope(c) && has_positions(c) && tables_reach(c, 0), k->rope_restart = 7)
ALONE("rope-restart-q", "positions of queries, not of keys, start at 0 in every call",
    has_rope(c) && attends(c) && has_positions(c) && tables_reach(c, 0), k->rope_restart = 1)
ALONE("rope-restart-k", "positions of keys, not of queries, start at 0 in every call",
    has_rope(c) && attends(c) && has_positions(c) && tables_reach(c, 0), k->rope_restart = 2)
ALONE("rope-first-batch", "positions of the first batch row for all",
    has_rope(c) && has_positions_by_batch(c), k->rope_first_batch = 1)
ALONE("rope-reversed", "positions counted from the last row", has_rope(c), k->rope_reversed = 1)
PAIRED("rope-queries-only", "only the queries rotated", has_rope(c) && attends(c), k->rope_not = 2)
PAIRED("rope-keys-only", "only the keys rotated", has_rope(c) && attends(c), k->rope_not = 1)
ALONE("rope-pairing-q", "queries rotated by the other pairing, keys not",
    has_rope(c) && attends(c) && k->s.qkv.rope.dim > 2, k->rope_pairing = 1)
ALONE("rope-pairing-k", "keys rotated by the other pairing, queries not",
    has_rope(c) && attends(c) && k->s.qkv.rope.dim > 2, k->rope_pairing = 2)
ALONE("rope-adds", "x cos + y sin in place of x cos - y sin: half of the features not negated",
    has_rope(c), k->rope_turn = TURN_ADDS)
ALONE("rope-first-overwritten", "the second feature of a pair made of the first as it is rotated already",
    has_rope(c), k->rope_turn = TURN_FIRST_OVERWRITTEN)
ALONE("rope-second-overwritten", "the first feature of a pair made of the second as it is rotated already",
    has_rope(c), k->rope_turn = TURN_SECOND_OVERWRITTEN)
ALONE("rope-frequencies-reversed", "the slowest frequency for the first pair, the fastest for the last",
    has_rope(c) && k->s.qkv.rope.dim > 2, k->rope_reversed_angles = 1)
ALONE("rope-sin-cos", "sine and cosine exchanged", has_rope(c), k->rope_swapped = 1)
ALONE("rope-angles-mixed", "angles laid out for the other pairing",
    has_rope(c) && k->s.qkv.rope.dim > 2, k->rope_mixed = 1)
ALONE("rope-regrouped", "rotated features in the order of the other pairing",
    has_rope(c) && k->s.qkv.rope.dim > 2, k->rope_regrouped = 1)
PAIRED("rope-values", "the values rotated, too", has_rope(c) && attends(c), k->rope_values = 1)
PAIRED("rope-full", "all features rotated instead of the first rope_dim",
    has_rope(c) && k->s.qkv.rope.dim < c->d_k && c->d_k % 2 == 0, k->s.qkv.rope.dim = c->d_k; k->rope_formula = 1)
ALONE("rope-last-features", "the last rope_dim features rotated instead of the first, or the reverse",
    has_rope(c) && k->s.qkv.rope.dim < c->d_k, k->s.qkv.rope.last = !k->s.qkv.rope.last)
PAIRED("rope-unscaled", "frequencies of the base instead of those scaled for longer contexts",
    has_rope(c) && c->semantics.qkv.rope.frequencies.data, k->rope_formula = 1)
PAIRED("rope-factor-missing", "no attention factor (YaRN) on rotated features",
    has_rope(c) && k->s.qkv.rope.attention_factor != 1, k->s.qkv.rope.attention_factor = 1)
PAIRED("rope-axes-text", "the number of a token as its position on every axis, as in a text",
    has_axes(c, 1) && counts_rows(c), k->rope_axes = AXES_TEXT)
PAIRED("rope-axes-first", "the positions of the first axis for all pairs", has_axes(c, 2), k->rope_axes = AXES_FIRST)
PAIRED("rope-axes-swapped", "the last two axes, height and width, taken for each other",
    has_axes(c, 2), k->rope_axes = AXES_SWAPPED)
PAIRED("rope-sections-reversed", "the sections of the axes in reverse order",
    has_uneven_axes(c), k->rope_axes = AXES_REVERSED)
PAIRED("rope-axes-dealt", "axes that have blocks of pairs taken for axes that take turns, or the reverse",
    takes_turns(c), k->rope_axes = AXES_DEALT)
PAIRED("rope-axes-restart", "frequencies that begin anew in the block of each axis, or the reverse",
    has_free_blocks(c), k->rope_axes = AXES_RESTART)
ALONE("rope-half-dim", "half of the rope_dim features rotated",
    has_rope(c) && k->s.qkv.rope.dim % 4 == 0, k->s.qkv.rope.dim /= 2; k->rope_formula = 1)
ALONE("rope-theta-d-model", "angles base^(-2i/(h*d_k)) instead of base^(-2i/rope_dim)",
    has_rope(c) && c->H * c->d_k > k->s.qkv.rope.dim, k->rope_width = (int)(c->H * c->d_k); k->rope_formula = 1)
ALONE("rope-theta-d-k", "angles base^(-2i/d_k) instead of base^(-2i/rope_dim)",
    has_rope(c) && k->s.qkv.rope.dim < c->d_k, k->rope_width = (int)c->d_k; k->rope_formula = 1)
PAIRED("rope-base-1e4", "rotation base 10,000", is_other_base(c, k, 1e4), k->s.qkv.rope.base = 1e4; k->rope_formula = 1)
PAIRED("rope-base-5e5", "rotation base 500,000",
    is_other_base(c, k, 5e5), k->s.qkv.rope.base = 5e5; k->rope_formula = 1)
PAIRED("rope-base-1e6", "rotation base 1,000,000",
    is_other_base(c, k, 1e6), k->s.qkv.rope.base = 1e6; k->rope_formula = 1)

/* ---------------------------------------------------------------- rotation, with a number */

LISTED("rope-dim-other", "another number of features rotated: how many",
    has_rope(c) && is_rotated(*x) && *x < (double)c->d_k && 2 * *x != (double)k->s.qkv.rope.dim,
    k->s.qkv.rope.dim = (size_t)*x; k->rope_formula = 1, any_rotated)
FITTED("rope-base-other", "another base of the rotation: the number",
    has_rope(c) && k->s.qkv.rope.dim > 2, k->s.qkv.rope.base = *x; k->rope_formula = 1, SOLVE_REAL, 10, 1e8)
LISTED("rope-queries-moved", "queries, not keys, rotated by positions n too far: n",
    has_rope(c) && attends(c) && is_whole(*x) && tables_reach(c, (int64_t)*x), k->rope_shift_q = (int64_t)*x, any_shift)
LISTED("rope-twice", "rows rotated twice: those of q (1), of k (2), both (3)",
    has_rope(c) && attends(c) && is_among(*x, 3), k->rope_twice = (int)*x, any_of_three)
LISTED("rope-positions-run", "positions that run on from batch row to batch row: of q (1), of k (2), both (3)",
    has_rope(c) && attends(c) && c->B > 1 && !c->semantics.qkv.rope.cos_table.data && is_among(*x, 3),
    k->rope_runs = (int)*x, any_of_three)
LISTED("rope-one-position", "all rows of a call rotated by the position of the first (1), of the last (2)",
    has_rope(c) && attends(c) && c->T_q * c->T_k > 1 && is_among(*x, 2), k->rope_one = (int)*x, any_of_three)
LISTED("rope-positions-wrapped", "positions modulo n, as of a table that is too short: n",
    has_rope(c) && has_no_rows_of_tables(c) && is_whole(*x) && *x >= 1, k->rope_wraps = (int64_t)*x, any_length)
LISTED("rope-positions-held", "positions from n on taken for n - 1, as of a table that is too short: n",
    has_rope(c) && has_no_rows_of_tables(c) && is_whole(*x) && *x >= 1, k->rope_holds = (int64_t)*x, any_length)
LISTED("rope-heads-other", "only the first heads rotated: how many",
    has_rope(c) && attends(c) && is_among(*x, (double)c->H - 1), k->rope_heads = (int64_t)*x, any_heads)
/* With one pair, another base does not matter, but positions that are divided do. */
FITTED("rope-positions-divided", "positions divided by a number before they are rotated by (linear scaling)",
    has_rope(c) && !c->semantics.qkv.rope.cos_table.data, k->rope_divisor = *x, SOLVE_REAL, 1.01, 1000)
FITTED("case-lacks-rope-halves", "a rotation in halves that the case does not have: its base",
    can_rotate(c, c->d_k), rotate(k, MHA_ROPE_HALF_SPLIT, c->d_k, *x), SOLVE_REAL, 10, 1e8)
FITTED("case-lacks-rope-pairs", "a rotation in pairs that the case does not have: its base",
    can_rotate(c, c->d_k), rotate(k, MHA_ROPE_INTERLEAVED, c->d_k, *x), SOLVE_REAL, 10, 1e8)
LISTED("case-lacks-rope-halves-part", "a rotation in halves, of base 10,000, of so many features",
    *x < (double)c->d_k && can_rotate(c, (size_t)*x), rotate(k, MHA_ROPE_HALF_SPLIT, (size_t)*x, 1e4), any_part)
LISTED("case-lacks-rope-pairs-part", "a rotation in pairs, of base 10,000, of so many features", *x < (double)c->d_k &&
    can_rotate(c, (size_t)*x), rotate(k, MHA_ROPE_INTERLEAVED, (size_t)*x, 1e4), any_part)

/* clang-format on */
