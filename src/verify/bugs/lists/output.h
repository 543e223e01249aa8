/* Bugs of the output (list.h): merging of heads, gate, projection, what is added. */
/* clang-format off */

PAIRED("merge-interleaved", "heads merged as (d_v, h) instead of (h, d_v)", merges(c), k->merge = HEADS_INTERLEAVED)
PAIRED("merge-reversed", "heads merged in reverse order", merges(c), k->merge = HEADS_REVERSED)
PAIRED("merge-untransposed", "(h, T, d_v) viewed as (T, h*d_v) without a transpose",
    merges(c), k->merge = HEADS_UNTRANSPOSED)
ALONE("merge-features-first", "(h, d_v, T) viewed as (T, h*d_v) without a transpose",
    attends(c), k->merge = HEADS_FEATURES_FIRST)
ALONE("merge-transposed", "(T, h, d_v) viewed as (h, T, d_v) without a transpose",
    attends(c) && c->H > 1, k->merge = HEADS_TRANSPOSED)
ALONE("merge-turned", "in each head, (d_v, T) viewed as (T, d_v)", attends(c), k->merge = HEADS_TURNED)
ALONE("merge-averaged", "each head the mean of all heads", attends(c) && c->H > 1, k->heads_averaged = 1)
PAIRED("gate-missing", "the gate of the heads left out", has_weight(c, MHA_W_G), k->gate = GATE_NOT)
PAIRED("gate-no-sigmoid", "the heads multiplied by x W_G + b_G without a sigmoid",
    has_weight(c, MHA_W_G), k->gate = GATE_PLAIN)
PAIRED("gate-silu", "the gate a SiLU, z * sigmoid(z), instead of sigmoid(z)",
    has_weight(c, MHA_W_G), k->gate = GATE_SILU)
ALONE("output-unprojected", "W_O left out", is_as_wide(c), k->output_unprojected = 1)
ALONE("bias-o-before", "b_O added before W_O", is_as_wide(c) && adds_bias_o(c, k), k->bias_o_before = 1)
PAIRED("bias-o-twice", "b_O added twice", adds_bias_o(c, k), k->bias_o_times = 2)
ALONE("bias-o-per-head", "b_O added once for each head", adds_bias_o(c, k) && c->H > 1, k->bias_o_times = (double)c->H)
PAIRED("residual-added", "the query input added to the output",
    c->kind == CASE_MHA && c->q_rank == 0 && c->E_q == c->E_out, k->residual = 1)
ALONE("queries-added", "the queries added to the output", c->kind == CASE_SDPA && c->d_k == c->d_v, k->residual = 1)
CHOSEN("merge-permuted", "heads merged in another order: which head is in each place",
    merges(c) && are_indices(x, c->H, c->H), k->merge_order = x, SOLVE_HEADS, NULL)
CHOSEN("batch-permuted", "batch rows in another order: which batch row is in each place", attends(c) && c->B > 1 &&
    c->semantics.place.n_sequences == 0 && are_indices(x, c->B, c->B), k->batch_order = x, SOLVE_BATCHES, NULL)
CHOSEN("output-columns-other", "columns of the merged heads that are others: which in which place",
    attends(c) && are_indices(x, c->H * c->d_v, c->H * c->d_v), k->column_order = x, SOLVE_COLUMNS, NULL)
CHOSEN("output-rows-other", "rows of the output that are those of other queries: which in which place", attends(c) &&
    c->semantics.place.n_sequences == 0 && are_indices(x, c->B * c->T_q, c->T_q), k->row_order = x, SOLVE_WRITTEN, NULL)
CHOSEN("output-lacks-rows", "rows of the output from a number on not written, 0: the number",
    lacks(c, *x), lack(k, LACKS_ROWS, *x), SOLVE_UNWRITTEN, NULL)
CHOSEN("output-lacks-heads", "heads from a number on not written, 0: the number",
    lacks(c, *x) && is_unprojected(c) && merges(c), lack(k, LACKS_HEADS, *x), SOLVE_UNWRITTEN, NULL)
CHOSEN("output-lacks-features", "features of each head from a number on not written, 0: the number",
    lacks(c, *x) && is_unprojected(c), lack(k, LACKS_FEATURES, *x), SOLVE_UNWRITTEN, NULL)
CHOSEN("output-lacks-batches", "batch rows from a number on not written, 0: the number",
    lacks(c, *x) && c->B > 1, lack(k, LACKS_BATCHES, *x), SOLVE_UNWRITTEN, NULL)
CHOSEN("output-lacks-end", "elements of the output (B, T, h, d) from a number on not written, 0: the number",
    lacks(c, *x), lack(k, LACKS_END, *x), SOLVE_UNWRITTEN, NULL)
CHOSEN("output-lacks-end-by-head", "elements of the output (B, h, T, d) from a number on not written, 0: the number",
    lacks(c, *x) && is_unprojected(c) && c->H > 1, lack(k, LACKS_END_BY_HEAD, *x), SOLVE_UNWRITTEN, NULL)
FITTED("output-times", "the output multiplied: the number", attends(c), k->output_times = *x, SOLVE_SIGNED, 1e-4, 1e4)

/* clang-format on */
