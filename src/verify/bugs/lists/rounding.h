/* Bugs in which one point alone is rounded (list.h), to so many bits of the significand: 8 of bfloat16, 11 of
 * float16 and of TF32, 4 and 3 of float8; or quantised, with one scale for each row, head, ... */
/* clang-format off */

LISTED("rounded-q", "q alone rounded as it is multiplied, to so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_Q, *x), any_bits)
LISTED("rounded-k", "k alone rounded as it is multiplied, to so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_K, *x), any_bits)
LISTED("rounded-v", "v alone rounded as it is multiplied, to so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_V, *x), any_bits)
LISTED("int8-q", "q in 8 bits, a scale for each row (1), head (2), feature (3), tensor (4), n features (n)",
    spans(c, *x), quantise(k, ROUNDS_Q, INT8, *x), any_span)
LISTED("int8-k", "k in 8 bits, a scale for each row (1), head (2), feature (3), tensor (4), n features (n)",
    spans(c, *x), quantise(k, ROUNDS_K, INT8, *x), any_span)
LISTED("int8-v", "v in 8 bits, a scale for each row (1), head (2), feature (3), tensor (4), n features (n)",
    spans(c, *x), quantise(k, ROUNDS_V, INT8, *x), any_span)
LISTED("int8-qk", "q and k in 8 bits, a scale for each row (1), head (2), feature (3), tensor (4), n features (n)",
    spans(c, *x), quantise(k, ROUNDS_Q | ROUNDS_K, INT8, *x), any_span)
LISTED("int8-kv", "k and v in 8 bits, a scale for each row (1), head (2), feature (3), tensor (4), n features (n)",
    spans(c, *x), quantise(k, ROUNDS_K | ROUNDS_V, INT8, *x), any_span)
LISTED("int4-q", "q in 4 bits, a scale for each row (1), head (2), feature (3), tensor (4), n features (n)",
    spans(c, *x), quantise(k, ROUNDS_Q, INT4, *x), any_span)
LISTED("int4-k", "k in 4 bits, a scale for each row (1), head (2), feature (3), tensor (4), n features (n)",
    spans(c, *x), quantise(k, ROUNDS_K, INT4, *x), any_span)
LISTED("int4-v", "v in 4 bits, a scale for each row (1), head (2), feature (3), tensor (4), n features (n)",
    spans(c, *x), quantise(k, ROUNDS_V, INT4, *x), any_span)
LISTED("int4-kv", "k and v in 4 bits, a scale for each row (1), head (2), feature (3), tensor (4), n features (n)",
    spans(c, *x), quantise(k, ROUNDS_K | ROUNDS_V, INT4, *x), any_span)
LISTED("fp8-q", "q in float8 E4M3, a scale for each row (1), head (2), feature (3), tensor (4), n features (n)",
    spans(c, *x), quantise(k, ROUNDS_Q, E4M3, *x), any_span)
LISTED("fp8-k", "k in float8 E4M3, a scale for each row (1), head (2), feature (3), tensor (4), n features (n)",
    spans(c, *x), quantise(k, ROUNDS_K, E4M3, *x), any_span)
LISTED("fp8-v", "v in float8 E4M3, a scale for each row (1), head (2), feature (3), tensor (4), n features (n)",
    spans(c, *x), quantise(k, ROUNDS_V, E4M3, *x), any_span)
LISTED("fp8-qk", "q and k in float8 E4M3, a scale for each row (1), head (2), feature (3), tensor (4), n features (n)",
    spans(c, *x), quantise(k, ROUNDS_Q | ROUNDS_K, E4M3, *x), any_span)
LISTED("fp8-kv", "k and v in float8 E4M3, a scale for each row (1), head (2), feature (3), tensor (4), n features (n)",
    spans(c, *x), quantise(k, ROUNDS_K | ROUNDS_V, E4M3, *x), any_span)
LISTED("fp8-qkv", "q, k, v in float8 E4M3, a scale for each row (1), head (2), feature (3), tensor (4), n features (n)",
    spans(c, *x), quantise(k, ROUNDS_Q | ROUNDS_K | ROUNDS_V, E4M3, *x), any_span)
LISTED("rounded-qk", "products q.k of numbers with so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_Q | ROUNDS_K, *x), any_bits)
LISTED("rounded-kv", "k and v rounded, as in a cache, to so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_K | ROUNDS_V, *x), any_bits)
LISTED("rounded-qkv", "q, k and v rounded as they are multiplied, to so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_Q | ROUNDS_K | ROUNDS_V, *x), any_bits)
LISTED("rounded-scores", "scaled scores rounded to so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_SCORES, *x), any_bits)
LISTED("rounded-exponentials", "exp(s - maximum) rounded as it meets v, not as it is added up, to so many bits",
    rounds(c, *x) && softens(c), shorten(k, ROUNDS_EXPONENTIALS, *x), any_bits)
LISTED("rounded-exponentials-v", "products of exp(s - maximum) and v of numbers with so many bits; their sum has all",
    rounds(c, *x) && softens(c), shorten(k, ROUNDS_EXPONENTIALS | ROUNDS_V, *x), any_bits)
LISTED("rounded-weights", "weights rounded to so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_WEIGHTS, *x), any_bits)
LISTED("rounded-weights-v", "products of weights and v of numbers with so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_WEIGHTS | ROUNDS_V, *x), any_bits)
FITTED("q-raised", "a number added to all of q, as a zero point is: the number",
    attends(c) && c->kv_rank == 0, k->raised_q = *x, SOLVE_FREE, -10, 10)
FITTED("v-raised", "a number added to all of v, as a zero point is: the number",
    attends(c) && c->P == 0 && c->kv_rank == 0, k->raised_v = *x, SOLVE_FREE, -10, 10)
CHOSEN("heads-times", "heads multiplied, as by scales of others: the numbers",
    attends(c) && c->H > 1, k->head_times = x, SOLVE_FACTORS, NULL)

/* clang-format on */
