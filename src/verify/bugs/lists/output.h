/* Bugs that round one point, to bits of the significand (8 bfloat16, 11 float16 and TF32, 4 and 3 float8) or
 * quantise it, and bugs of the output (list.h): merging of heads, gate, projection, residual input. */
/* clang-format off */
ROUNDED("rounded-q", "q alone rounded as it is multiplied, to so many bits", OF_SIDES(A, BITS, Q, *x))
ROUNDED("rounded-k", "k alone rounded as it is multiplied, to so many bits", OF_SIDES(A, BITS, K, *x))
ROUNDED("rounded-v", "v alone rounded as it is multiplied, to so many bits", OF_SIDES(A, BITS, V, *x))
QUANTISED("int8-q", "q in 8 bits", Q, INT8)
QUANTISED("int8-k", "k in 8 bits", K, INT8)
QUANTISED("int8-v", "v in 8 bits", V, INT8)
QUANTISED("int8-qk", "q and k in 8 bits", Q + K, INT8)
QUANTISED("int8-kv", "k and v in 8 bits", K + V, INT8)
QUANTISED("int4-q", "q in 4 bits", Q, INT4)
QUANTISED("int4-k", "k in 4 bits", K, INT4)
QUANTISED("int4-v", "v in 4 bits", V, INT4)
QUANTISED("int4-kv", "k and v in 4 bits", K + V, INT4)
QUANTISED("fp8-q", "q in float8 E4M3", Q, E4M3)
QUANTISED("fp8-k", "k in float8 E4M3", K, E4M3)
QUANTISED("fp8-v", "v in float8 E4M3", V, E4M3)
QUANTISED("fp8-qk", "q and k in float8 E4M3", Q + K, E4M3)
QUANTISED("fp8-kv", "k and v in float8 E4M3", K + V, E4M3)
QUANTISED("fp8-qkv", "q, k, v in float8 E4M3", Q + K + V, E4M3)
ROUNDED("rounded-qk", "products q.k of numbers with so many bits", OF_SIDES(A, BITS, Q + K, *x))
ROUNDED("rounded-kv", "k and v rounded, as in a cache, to so many bits", OF_SIDES(A, BITS, K + V, *x))
ROUNDED("rounded-qkv", "q, k and v rounded as they are multiplied, to so many bits", OF_SIDES(A, BITS, Q + K + V, *x))
ROUNDED("rounded-scores", "scaled scores rounded to so many bits", NUM(S, BITS, *x))
LISTED("rounded-exponentials", "exp(s - maximum) rounded as it meets v, not as it is added up, to so many bits",
    rounds(c, *x) && softens(c), NUM(E, BITS, *x), ANY(bits))
LISTED("rounded-exponentials-v", "products of exp(s - maximum) and v of numbers with so many bits; their sum has all",
    rounds(c, *x) && softens(c), OF_SIDES(A, BITS, V, *x); NUM(E, BITS, *x), ANY(bits))
LISTED("rounded-sum", "the sum of exp(s - maximum) rounded at each step, to so many bits", rounds(c, *x) &&
    softens(c), NUM(E, ROUND, *x), ANY(bits))
ROUNDED("rounded-weights", "weights rounded to so many bits", NUM(P, BITS, *x))
ROUNDED("rounded-weights-v", "products of weights and v of numbers with so many bits", OF_SIDES(A, BITS, V, *x); NUM(P,
    BITS, *x))
LISTED("levels-exponentials", "exp(s - maximum) as it meets v a whole number of so many levels",
    rounds(c, 3) && softens(c) && *x >= 1, NUM(E, QUANT, *x), LEVELS)
LISTED("levels-weights", "weights whole numbers of so many levels", rounds(c, 3) && *x >= 1, NUM(P, QUANT, *x), LEVELS)
IN_TILES("rounded-values-bf16", "bfloat16", 8)
IN_TILES("rounded-values-f16", "float16", 11)
FREE("q-raised", "a number added to all of q, as a zero point is: the number", attends(c) && c->kv_rank == 0,
    OF_SIDES(ROW, PLUS, Q, *x), -10, 10)
FREE("v-raised", "a number added to all of v, as a zero point is: the number", attends(c) && c->P == 0 && c->kv_rank ==
    0, OF_SIDES(ROW, PLUS, V, *x), -10, 10)
SOLVED("heads-times", "heads multiplied, as by scales of others: the numbers", attends(c) && c->H > 1, NUMS(O, TIMES),
    FACTORS)

PAIRED("merge-interleaved", "heads merged as (d_v, h) instead of (h, d_v)", merges(c), VIEW(M, BTCH, BTHC))
PAIRED("merge-reversed", "heads merged in reverse order", merges(c), FROM(M, 0, REVERSED, H, 0))
PAIRED("merge-untransposed", "(h, T, d_v) viewed as (T, h*d_v) without a transpose", merges(c), VIEW(M, BHTC, BTHC))
ALONE("merge-features-first", "(h, d_v, T) viewed as (T, h*d_v) without a transpose", attends(c), VIEW(M, BHCT, BTHC))
ALONE("merge-transposed", "(T, h, d_v) viewed as (h, T, d_v) without a transpose",
    attends(c) && c->H > 1, VIEW(M, BTHC, BHTC))
ALONE("merge-turned", "in each head, (d_v, T) viewed as (T, d_v)", attends(c), VIEW_IN_HEAD(M, BHCT, BHTC))
ALONE("merge-averaged", "each head the mean of all heads", attends(c) && c->H > 1, MARK_H(O, OVER))
PAIRED("gate-missing", "the gate of the heads left out", has(c, W_G), ARG(GATE, FN, GATE_NOT))
PAIRED("gate-no-sigmoid", "the heads multiplied by x W_G + b_G without a sigmoid",
    has(c, W_G), ARG(GATE, FN, GATE_PLAIN))
PAIRED("gate-silu", "the gate a SiLU, z * sigmoid(z), instead of sigmoid(z)", has(c, W_G), ARG(GATE, FN, GATE_SILU))
ALONE("output-unprojected", "W_O left out", is_as_wide(c), MARK(OUT, DO))
ALONE("bias-o-before", "b_O added before W_O", is_as_wide(c) && adds_bias_o(c, k), MARK(B_O, MOVE))
PAIRED("bias-o-twice", "b_O added twice", adds_bias_o(c, k), FACTOR(B_O, 2))
ALONE("bias-o-per-head", "b_O added once for each head", adds_bias_o(c, k) && c->H > 1, FACTOR(B_O, (double)c->H))
LISTED("bias-o-times", "b_O added several times, as by each tensor-parallel rank: how often",
    adds_bias_o(c, k) && is_whole(*x), FACTOR(B_O, *x), UP(3, 17))
PAIRED("residual-added", "the query input added to the output",
    c->kind == CASE_MHA && c->q_rank == 0 && c->E_q == c->E_out, MARK(OUT, PLUS))
ALONE("queries-added", "the queries added to the output", c->kind == CASE_SDPA && c->d_k == c->d_v, MARK(OUT, PLUS))
SOLVED("merge-permuted", "heads merged in another order: which head is in each place", merges(c) && are_indices(x, c->H,
    c->H), TABLE(M, 0, H, x), HEADS)
SOLVED("batch-permuted", "batch rows in another order: which batch row is in each place", attends(c) && c->B > 1 &&
    s->place.n_sequences == 0 && are_indices(x, c->B, c->B), NUMS(OUT, TAKE), BATCHES)
SOLVED("batch-heads-permuted", "heads of all batch rows in the place of others: which in which place",
    attends(c) && c->B > 1 && c->H > 1 && s->place.n_sequences == 0 && are_indices(x, c->B * c->H, c->B * c->H),
    PUT(OUT, TAKE, .axis = MHA__H, .table = x, ACROSS), BLOCKS)
SOLVED("output-columns-other", "columns of the merged heads that are others: which in which place", attends(c) &&
    are_indices(x, c->H * c->d_v, c->H * c->d_v), TABLE(COLUMN, 0, C, x), COLUMNS)
SOLVED("output-rows-other", "rows of the output that are those of other queries: which in which place", attends(c) &&
    s->place.n_sequences == 0 && are_indices(x, c->B * c->T_q, c->T_q), TABLE(OUT, 0, T, x), WRITTEN)
LACKING("output-lacks-rows", "rows of the output", true, LACKS_ROWS)
LACKING("output-lacks-heads", "heads", is_unprojected(c) && merges(c), LACKS_HEADS)
LACKING("output-lacks-features", "features of each head", is_unprojected(c), LACKS_FEATURES)
LACKING("output-lacks-batches", "batch rows", c->B > 1, LACKS_BATCHES)
LACKING("output-lacks-end", "elements of the output (B, T, h, d)", true, LACKS_END)
LACKING("output-lacks-end-by-head", "elements of the output (B, h, T, d)", is_unprojected(c) && c->H > 1,
    LACKS_END_BY_HEAD)
SIGNED("output-times", "the output multiplied: the number", attends(c), NUM(OUT, TIMES, *x), 1e-4, 1e4)
/* clang-format on */
