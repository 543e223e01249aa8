/* Variants in which one point alone is rounded (list.h), to so many bits of the significand: 8 of bfloat16, 11 of
 * float16 and of TF32. */
/* clang-format off */

CHOSEN("rounded-q", "q alone rounded as it is multiplied, to so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_Q, *x), SOLVE_LISTED, any_bits)
CHOSEN("rounded-k", "k alone rounded as it is multiplied, to so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_K, *x), SOLVE_LISTED, any_bits)
CHOSEN("rounded-v", "v alone rounded as it is multiplied, to so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_V, *x), SOLVE_LISTED, any_bits)
CHOSEN("int8-k", "k in 8 bits with one scale for each row (1), head (2), feature of a head (3)",
    spans(c, *x), quantise(k, ROUNDS_K, *x), SOLVE_LISTED, any_span)
CHOSEN("int8-v", "v in 8 bits with one scale for each row (1), head (2), feature of a head (3)",
    spans(c, *x), quantise(k, ROUNDS_V, *x), SOLVE_LISTED, any_span)
CHOSEN("int8-kv", "k and v in 8 bits with one scale for each row (1), head (2), feature of a head (3)",
    spans(c, *x), quantise(k, ROUNDS_K | ROUNDS_V, *x), SOLVE_LISTED, any_span)
CHOSEN("rounded-qk", "products q.k of numbers with so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_Q | ROUNDS_K, *x), SOLVE_LISTED, any_bits)
CHOSEN("rounded-kv", "k and v rounded, as in a cache, to so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_K | ROUNDS_V, *x), SOLVE_LISTED, any_bits)
CHOSEN("rounded-qkv", "q, k and v rounded as they are multiplied, to so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_Q | ROUNDS_K | ROUNDS_V, *x), SOLVE_LISTED, any_bits)
CHOSEN("rounded-scores", "scaled scores rounded to so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_SCORES, *x), SOLVE_LISTED, any_bits)
CHOSEN("rounded-exponentials", "exp(s - maximum) rounded as it meets v, not as it is added up, to so many bits",
    rounds(c, *x) && softens(c), shorten(k, ROUNDS_EXPONENTIALS, *x), SOLVE_LISTED, any_bits)
CHOSEN("rounded-exponentials-v", "products of exp(s - maximum) and v of numbers with so many bits; their sum has all",
    rounds(c, *x) && softens(c), shorten(k, ROUNDS_EXPONENTIALS | ROUNDS_V, *x), SOLVE_LISTED, any_bits)
CHOSEN("rounded-weights", "weights rounded to so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_WEIGHTS, *x), SOLVE_LISTED, any_bits)
CHOSEN("rounded-weights-v", "products of weights and v of numbers with so many bits: 8 bfloat16, 11 float16 or TF32",
    rounds(c, *x), shorten(k, ROUNDS_WEIGHTS | ROUNDS_V, *x), SOLVE_LISTED, any_bits)

/* clang-format on */
