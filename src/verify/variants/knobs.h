/* A variant of attention: settings that differ from those of the case, and knobs for mistakes that no setting says. */
#ifndef MHA_VERIFY_VARIANTS_KNOBS_H
#define MHA_VERIFY_VARIANTS_KNOBS_H

#include "verify/case/record.h"

enum { PROJECTION_Q, PROJECTION_K, PROJECTION_V, PROJECTION_O, PROJECTION_COUNT };

/* Which column of which projection is read as column c of q, k or v. */
enum {
    PACKING_RIGHT,
    PACKING_READ_INTERLEAVED, /* a packed tensor of blocks q|k|v read as h_kv times (h/h_kv times q, k, v) */
    PACKING_READ_BLOCKS       /* a packed tensor of h_kv times (h/h_kv times q, k, v) read as blocks */
};

enum { ROUND_NOT, ROUND_F16, ROUND_BF16, ROUND_BF16_CUT /* lower bits dropped */ };
/* A number as the type of that rounding has it. */
double mha__variant_rounded(double x, int rounding);
/* x with so many bits of the significand, 53 at most; of two as near the even one. With 4 or 3 bits it is a number of
 * float8, E4M3 or E5M2, with its exponents. */
double mha__variant_shortened(double x, int bits);
enum { BITS_E4M3 = 4, BITS_E5M2 = 3 };
/* Where numbers are rounded alone: the rows of q, k and v as they are multiplied, scores, the exponentials that meet
 * the values but not those that are added up, and weights. */
enum { ROUNDS_Q = 1, ROUNDS_K = 2, ROUNDS_V = 4, ROUNDS_SCORES = 8, ROUNDS_EXPONENTIALS = 16, ROUNDS_WEIGHTS = 32 };

/* How heads are arranged in a row of features. */
enum {
    HEADS_RIGHT,          /* column h*d + f */
    HEADS_INTERLEAVED,    /* column f*h_count + h: viewed as (d, h) */
    HEADS_REVERSED,       /* the last head first */
    HEADS_UNTRANSPOSED,   /* (T, h*d) viewed as (h, T, d) without moving anything; this and the next mix rows */
    HEADS_FEATURES_FIRST, /* (T, h*d) viewed as (h, d, T) */
    HEADS_TURNED,         /* in each head, (T, d) viewed as (d, T) */
    HEADS_TRANSPOSED      /* (h, T, d) viewed as (T, h*d): the reverse of HEADS_UNTRANSPOSED */
};

/* What goes wrong with the latents of latent attention. */
enum {
    LATENT_RIGHT,
    LATENT_Q_UNNORMED,     /* the latent of the queries is not normalised */
    LATENT_KV_UNNORMED,    /* nor that of keys and values */
    LATENT_K_R_NORMED,     /* the norm is over [c, k_r], with factor 1 for k_r */
    LATENT_K_R_FIRST,      /* rows of W_KVA's outputs read as [k_r, c] */
    LATENT_K_R_FIRST_HEAD, /* k_r is a part of the first head's keys alone */
    LATENT_KVB_SWAPPED,    /* the columns of a head in W_KVB read as [v, k_n] */
    LATENT_KVB_BLOCKS,     /* W_KVB read as the k_n of all heads, then their v */
    LATENT_NO_BIAS,        /* without b_QA and b_KVA */
    LATENT_F16,            /* all weights rounded, as round_weights says of the others */
    LATENT_BF16,
    LATENT_BF16_CUT,
    LATENT_COUNT
};

/* How the features of a head are permuted by those who change weights from one pairing of the rotation to the other. */
enum { PERMUTED_NOT, PERMUTED_TO_PAIRS, PERMUTED_TO_HALVES };

/* In which order the memory of rows is read, where another one is meant. */
enum {
    MEMORY_RIGHT,
    MEMORY_ROWS_FIRST,    /* (h, T, d) in memory viewed as (T, h, d) */
    MEMORY_HEADS_FIRST,   /* (T, h, d) in memory viewed as (h, T, d) */
    MEMORY_FEATURES_FIRST /* in each head, (T, d) in memory viewed as (d, T): transposed where both are as many */
};

/* In which order the features of a head are read, where another one is meant. */
enum {
    FEATURES_RIGHT,
    FEATURES_REVERSED,
    FEATURES_EXCHANGED, /* neighbours for each other */
    FEATURES_TO_PAIRS,  /* two halves read as pairs: those of one half are every second one */
    FEATURES_TO_HALVES  /* the reverse */
};

/* Of which batch row the rows are, where they are those of one for all. */
enum { MOVE_TO_FIRST = -1 };

/* What goes wrong with positions of several axes. */
enum {
    AXES_RIGHT,
    AXES_TEXT,     /* the number of the row on all axes */
    AXES_FIRST,    /* the first axis for all pairs */
    AXES_SWAPPED,  /* the last two axes, height and width, for each other */
    AXES_REVERSED, /* the sections in reverse order */
    AXES_DEALT,    /* blocks of pairs taken for pairs that take turns, or the reverse */
    AXES_RESTART,  /* frequencies that begin anew in each block, or the reverse */
    AXES_COUNT
};

/* Over what quantised rows have one scale, which takes the largest number to that of the type. */
enum { SPAN_ROW = 1, SPAN_HEAD, SPAN_FEATURE, SPAN_TENSOR, SPAN_GROUPS = 8 /* so many features of a row, and more */ };
/* What becomes of the features x, y of a pair; right: x cos - y sin, y cos + x sin. */
enum {
    TURN_RIGHT,
    TURN_ADDS,              /* x cos + y sin */
    TURN_FIRST_OVERWRITTEN, /* the second is made of the first as it is rotated already */
    TURN_SECOND_OVERWRITTEN
};
/* Which weights are lost: those below a number, and their keys do not count; those below it, and the others stay as
 * they are; those of which exp(s - maximum) is below it, and their keys do not count. */
enum { LOSES_NOTHING, LOSES_KEYS, LOSES_WEIGHTS, LOSES_EXPONENTIALS };
/* What of the output is not written, and 0: rows, heads or features of a head from a number on, batch rows, elements in
 * the order (B, T, h, d) or (B, h, T, d) of its memory. */
enum { WRITES_ALL, LACKS_ROWS, LACKS_HEADS, LACKS_FEATURES, LACKS_BATCHES, LACKS_END, LACKS_END_BY_HEAD };

enum { INPUT_NORM_NOT, INPUT_NORM_LAYER, INPUT_NORM_RMS };
enum { BIAS_FIRST, BIAS_AFTER_NORM, BIAS_AFTER_ROPE };
/* Where q, k and v are limited; right: after a norm that comes before the rotation, before one that comes behind it. */
enum { CLIP_RIGHT, CLIP_BEFORE_BIAS, CLIP_BEFORE_NORM, CLIP_AFTER_NORM, CLIP_AFTER_ROPE };

/* Which key/value head a query head reads. */
enum {
    GROUPS_RIGHT, /* i / (h/h_kv) */
    GROUPS_TILED, /* i % h_kv */
    GROUPS_FIRST, /* the first one */
    GROUPS_LAST_FIRST,
    GROUPS_OTHER /* as group_order says */
};

enum {
    FILL_EXCLUDE, /* a hidden key does not enter the softmax */
    FILL_REPLACE, /* its score becomes `fill_value` */
    FILL_ADD      /* `fill_value` is added to it in float32 */
};

enum { FILL_NAMES_NONE, FILL_NAMES_FIRST, FILL_NAMES_LAST }; /* which key a negative number of a list names */

enum { AXIS_KEYS, AXIS_QUERIES, AXIS_HEADS };
/* READING_OTHER: batch rows taken for time, or the sequences of a ragged batch for one. */
enum { READING_RIGHT, READING_OTHER, READING_HEADS_FOR_TIME };
enum { HIDES_MASK = 1, HIDES_PADDING = 2, HIDES_CAUSAL = 4, HIDES_WINDOW = 8, HIDES_LENGTHS = 16 };
enum { ADDS_MASK = 1, ADDS_ALIBI = 2, ADDS_POSITION_BIAS = 4 };

/* Which entry of the table of a relative position bias is added. */
enum {
    POSITION_BIAS_RIGHT,
    POSITION_BIAS_REVERSED, /* query and key exchanged */
    POSITION_BIAS_FROM_0,   /* queries counted from 0 */
    POSITION_BIAS_NEXT_ROW,
    POSITION_BIAS_ROW_BEFORE,
    POSITION_BIAS_HEAD_0,         /* the column of the first head for all */
    POSITION_BIAS_HEADS_REVERSED,
    POSITION_BIAS_TRANSPOSED, /* the memory of the table read as (h, n) */
    POSITION_BIAS_OTHER_WAYS, /* buckets for one direction instead of two, or for two instead of one */
    POSITION_BIAS_LINEAR,     /* each distance a bucket of its own */
    POSITION_BIAS_BY_COLUMN   /* cells counted column by column */
};

/* Which relative terms are added, by which rows. */
enum {
    RELATIVE_RIGHT,
    RELATIVE_REVERSED,  /* query and key exchanged */
    RELATIVE_OTHER_WAY, /* relative_q by the distance from the key to the query */
    RELATIVE_FROM_0,    /* queries counted from 0 */
    RELATIVE_NEXT_ROW,
    RELATIVE_LINEAR,    /* buckets without their logarithm */
    RELATIVE_WRAPPED,   /* rows before the first one are counted from the end of the table, not clamped */
    RELATIVE_BY_COLUMN, /* cells counted column by column */
    RELATIVE_NO_K,
    RELATIVE_NO_Q,
    RELATIVE_HEAD_0     /* the first head's columns for all */
};
/* What their products are multiplied by: also by the scale of q.k, by 1, by 1/sqrt(d_k). */
enum { RELATIVE_SCALE_RIGHT, RELATIVE_SCALE_TWICE, RELATIVE_SCALE_ONE, RELATIVE_SCALE_LONE };

/* The slopes of ALiBi, head by head. */
enum {
    ALIBI_GIVEN,
    ALIBI_USUAL,  /* Press et al.: 2^(-8 (i+1) / h); for h that is no power of two, those of the power below first */
    ALIBI_FROM_0, /* 2^(-8 i / h) */
    ALIBI_PLAIN   /* 2^(-8 (i+1) / h) for every h */
};

/* Where the new rows of keys and values join the cached ones. */
enum {
    CACHE_RIGHT,
    CACHE_BEHIND, /* the cached rows come last */
    CACHE_EARLY,  /* new rows begin one row too early; the last row is zero */
    CACHE_LATE    /* new rows begin one row too late, behind a zero row; the last one is lost */
};

/* How the table of pages is read, where cached keys and values lie in pages. */
enum {
    PAGES_RIGHT,
    PAGES_IN_ORDER,   /* not at all: the pages of the pool one after the other, sequence by sequence */
    PAGES_TRANSPOSED, /* as (columns, B) */
    PAGES_OF_FIRST,   /* every sequence reads the row of the first one */
    PAGES_NEXT        /* the page behind the one that is named: numbers counted from 1 */
};

/* What goes wrong in a softmax that is computed over one tile of keys after the other. */
enum {
    TILE_RIGHT,
    TILE_NEVER_RESCALED,  /* neither the sum nor the weighted values follow a greater maximum */
    TILE_VALUES_UNSCALED, /* the sum follows, the weighted values do not */
    TILE_SUM_UNSCALED,    /* the weighted values follow, the sum does not */
    TILE_RESCALED_IN_BASE_2, /* both follow a greater maximum by powers of 2 */
    TILE_RESCALED_INVERSELY, /* ... by exp(new - old) */
    TILE_RESCALED_LATE,   /* ... by the factor of the tile before; nothing is left of the first tile */
    TILE_PADDED,          /* keys up to a multiple of the tile join with score 0 and value 0 */
    TILE_PADDED_SEEN,     /* ... also where a rule would hide them */
    TILE_AVERAGED,        /* tiles have a softmax each, and their results are averaged */
    TILE_ADDED,           /* ... or added */
    TILE_AVERAGED_SEEN,   /* ... or averaged, but for those without a visible key */
    TILE_UNDIVIDED,       /* ... or added with the factors of a merge, which are not divided by their sum */
    TILE_BY_INVERSE,      /* ... or merged by exp(-lse) */
    TILE_BY_SUMS,         /* ... or merged by their sums of exponentials without their maxima */
    TILE_BY_LSE,          /* ... by their lse, instead of exp(lse) */
    TILE_BY_POWERS_OF_2,  /* ... by 2^lse */
    TILE_BY_BASE_2,       /* ... by exp of an lse in base 2 */
    TILE_BY_MAXIMA        /* ... by exp of their maxima, without their sums */
};

enum {
    LSE_RIGHT,
    LSE_BASE_2,      /* log2 of the sum */
    LSE_NO_SINKS,    /* without sinks and the extra exp(0) */
    LSE_NO_MAXIMUM,  /* log of the sum of exp(s - maximum) */
    LSE_MAX_UNSCALED /* the maximum is that of the scores before the scale */
};
enum { GATE_SIGMOID, GATE_NOT, GATE_PLAIN, GATE_SILU }; /* times sigmoid(z), nothing, z, z sigmoid(z) */
enum { CAUSAL_OFFSET, CAUSAL_TOP_LEFT, CAUSAL_BOTTOM_RIGHT };

/* Type and name of each knob of the norm of q and k. */
#define NORM_KNOB_LIST(X)                                                                                              \
    X(int, norm_other_span) /* over the row instead of each head, or the reverse */                                    \
    X(int, norm_no_weight)                                                                                             \
    X(int, norm_eps_outside)                                                                                           \
    X(int, norm_no_bias)                                                                                               \
    X(int, norm_first_head) /* all heads take the weights of the first */

/* Type and name of each knob of the rotation, but for what differs between q, k and v. */
#define ROPE_KNOB_LIST(X)                                                                                              \
    X(int, rope_axes) /* what is taken for the axes of positions */                                                    \
    X(int, rope_width) /* in the exponent of the angles; 0: as many features as are rotated */                         \
    X(int, rope_reversed) /* positions count from the last row */                                                      \
    X(int, rope_regrouped) /* the result in the order of the other pairing */                                          \
    X(int, rope_mixed) /* angles laid out for the other pairing */                                                     \
    X(int, rope_swapped) /* sine and cosine */                                                                         \
    X(int, rope_turn)    /* TURN_...: what becomes of a pair */                                                        \
    X(int, rope_first_batch) /* those of the first batch row are those of all */                                       \
    X(int, rope_one)     /* all rows have the position of the first (1), of the last (2) */                            \
    X(int64_t, rope_wraps) /* positions count modulo n; 0: they do not */                                              \
    X(int64_t, rope_holds) /* positions from n on are n - 1; 0: they are not */                                        \
    X(int64_t, rope_heads) /* only the first n heads are rotated; 0: all */                                            \
    X(int, rope_reversed_angles) /* the angle of the last pair is that of the first, and so on */                      \
    X(int, rope_formula) /* angles from the base, not tables or frequencies */                                         \
    X(double, rope_divisor) /* of the positions */

/* Type and name of each knob of the rotation that a side has for itself: bits, 1 of q, 2 of k, 4 of v that is rotated,
 * too. */
#define ROPE_SIDE_KNOB_LIST(X)                                                                                         \
    X(int, rope_inverse)                                                                                               \
    X(int, rope_pairing) /* the other one */                                                                           \
    X(int, rope_twice)                                                                                                 \
    X(int, rope_restart) /* positions begin at 0 in every call */                                                      \
    X(int, rope_runs) /* positions run on over the batch rows */

/* Type and name of each knob of the scale by position. */
#define SCALE_KNOB_LIST(X)                                                                                             \
    X(int, scale_smooth) /* grows without rounding down to whole steps */                                              \
    X(int, log_n_from_0) /* log(p), not log(p + 1) */                                                                  \
    X(int, log_n_always) /* also below the training length */

/* Type and name of each knob that says where moved rows lie. */
#define MOVE_KNOB_LIST(X)                                                                                              \
    X(int, move_memory)                                                                                                \
    X(int64_t, move_rows)     /* row t is row t - n, around the ends */                                                \
    X(int64_t, move_heads)    /* head g is head g - n */                                                               \
    X(int64_t, move_features) /* feature c of a head is feature c - n */                                               \
    X(int64_t, move_batch)    /* batch row b is batch row b - n, or the first: MOVE_TO_FIRST */                        \
    X(int64_t, move_repeats)  /* row n is row n - 1; 0: none */                                                        \
    X(int64_t, move_wraps)    /* row t is row t mod n; 0: none */                                                      \
    X(int64_t, move_holds)    /* rows from n on are row n - 1; 0: none */                                              \
    X(int, move_ends)         /* rows beyond the ends are 0, not those around them */                                  \
    X(int, move_feature_order)    /* FEATURES_... */                                                                   \
    X(const double *, move_order) /* (B, T): which row stands in the place of each; NULL: itself */                    \
    X(const double *, move_head_order) /* (h): which head does; NULL: itself */

/* Type and name of each knob that says what is found in the cache. */
#define PAST_KNOB_LIST(X)                                                                                              \
    X(int, joined) /* bits: 2 rows of k, 4 of v lie elsewhere among cached and new ones together: MOVE_KNOB_LIST */    \
    X(int, past)   /* bits: 2 of the cached keys, 4 of the cached values, something else is found, as follows */       \
    X(int64_t, joined_page) /* in pages of n, (h, n, d) in memory viewed as (n, h, d); negative: the reverse */       \
    X(int64_t, past_rows)  /* row t is row t - n, around the ends */                                                   \
    X(int64_t, past_heads) /* head g is head g - n */                                                                  \
    X(int, past_heads_reversed)                                                                                        \
    X(int64_t, past_batch) /* batch row b is batch row b - n, or the first: MOVE_TO_FIRST */                           \
    X(int, past_exchanged) /* keys are values, values are keys */                                                      \
    X(double, past_times)                                                                                              \
    X(int, past_shortened) /* to so many bits; 0: not */                                                               \
    X(int, past_turned)    /* keys are rotated by their positions once more; negative: back */                         \
    X(int, new_lost)       /* bits: 2 new keys, 4 new values were not written, and are 0 */

/* Type and name of each knob that changes the rows of q, k and v before the scores. */
#define ROW_KNOB_LIST(X)                                                                                               \
    X(int, packing)                                                                                                    \
    X(int, latent)                                                                                                     \
    X(int, round_weights)                                                                                              \
    X(int, round_inputs)                                                                                               \
    X(int, input_norm) /* the inputs are normalised */                                                                 \
    X(int, inputs_reversed) /* in time */                                                                              \
    X(int, permuted_q)                                                                                                 \
    X(int, permuted_k)                                                                                                 \
    X(int, bias_place) /* where b_Q and b_K are added */                                                               \
    X(double, bias_q_times)                                                                                            \
    X(int, split) /* heads in the rows */                                                                              \
    X(int, moved) /* bits: 1 rows of q, 2 of k, 4 of v lie elsewhere: MOVE_KNOB_LIST */                                \
    X(int, no_norm) /* bits: 1 of q, 2 of k */                                                                         \
    X(int, rope_not) /* bits: 1 q, 2 k is not rotated */                                                               \
    X(int, rope_values) /* values are rotated too */                                                                   \
    X(int64_t, rope_shift_q) /* added to positions */                                                                  \
    X(int64_t, rope_shift_k)                                                                                           \
    X(int, rope_part_at_0) /* key_offset is taken for 0 */                                                             \
    X(int, clip_place)                                                                                                 \
    X(int, clip_not) /* bits: 1 q, 2 k, 4 v is not clipped */                                                          \
    X(int, scale_keys) /* keys are scaled by position, too */                                                          \
    X(int, shortened) /* bits ROUNDS_...: where numbers keep so many bits as follow */                                 \
    X(int, shortened_to)                                                                                               \
    X(int, quantised) /* bits 1, 2, 4: q, k, v are quantised, over a SPAN */                                           \
    X(int, quantised_span)                                                                                             \
    X(int, quantised_to) /* the largest number: whole ones up to 127 or 7, or those of E4M3 up to 448 */               \
    X(double, raised_q) /* added to every number of q, before the rotation */                                          \
    X(double, raised_v)                                                                                                \
    MOVE_KNOB_LIST(X)                                                                                                  \
    SCALE_KNOB_LIST(X)                                                                                                 \
    NORM_KNOB_LIST(X)                                                                                                  \
    ROPE_KNOB_LIST(X)                                                                                                  \
    ROPE_SIDE_KNOB_LIST(X)

/* Type and name of each knob that decides which keys a query sees and what is added to their scores. */
#define SIGHT_KNOB_LIST(X)                                                                                             \
    X(int, causal_align)                                                                                               \
    X(int64_t, causal_shift) /* a key is visible iff j <= i + offset + shift */                                        \
    X(int, causal_reversed)  /* a key is visible iff j >= i + offset + shift */                                        \
    X(int64_t, causal_block) /* every key of a block of so many is visible as soon as one of them is; 0: none */       \
    X(int, causal_block_strict) /* and no key of the block of the query itself */                                      \
    X(int64_t, causal_tile) /* a query sees what the first one of its tile of so many sees; 0: it does not */          \
    X(int, causal_runs)     /* rows are counted on from batch row to batch row */                                      \
    X(int, window_align)                                                                                               \
    X(int64_t, window_block) /* keys of blocks of so many that the window reaches are visible; 0: not all */           \
    X(int, window_inverted)  /* keys outside it are visible */                                                         \
    X(int64_t, dilation)     /* only every n-th key before and behind the query is visible; 0: all */                  \
    X(int64_t, chunk_shift)  /* added to positions before they are counted in chunks */                                \
    X(int, chunk_before)     /* the chunk before is visible, too */                                                    \
    X(int, window_or_causal) /* a key is visible if one of the two allows it */                                        \
    X(int64_t, lengths_shift)                                                                                          \
    X(int64_t, lengths_block) /* lengths are rounded up to a multiple; 0: they are not */                              \
    X(int, part_at_0) /* key_offset is taken for 0 */                                                                  \
    X(int, lengths_from_end)   /* the last keys are the real ones */                                                   \
    X(const double *, lengths) /* (B), instead of those of the case; NULL: those */                                    \
    X(int64_t, keys_below)     /* later keys are hidden; 0: none */                                                    \
    X(int64_t, keys_from)      /* keys before the last tile of so many are hidden; 0: none */                          \
    X(int64_t, whole_tiles)    /* keys behind the last whole tile of so many are hidden; 0: none */                    \
    X(int, mask_or_causal) /* a key is visible if one of the two allows it */                                          \
    X(int, mask_as_number) /* the numbers 0 and 1 of a boolean mask are added */                                       \
    X(double, mask_sign) /* what an additive mask is multiplied by */                                                  \
    X(int, mask_first) /* bits: 1 of the first query, 2 head, 4 batch row for all */                                   \
    X(int64_t, mask_roll) /* column j is column j - n, around the ends */                                              \
    X(int64_t, mask_batch) /* batch row b is batch row b - n */                                                        \
    X(int64_t, mask_rows)  /* row i is row i - n, around the ends */                                                   \
    X(int64_t, mask_below) /* only the first n columns are read; 0: all */                                             \
    X(int64_t, twice_from) /* keys from here on, below twice_to, are counted twice */                                  \
    X(int64_t, twice_to)                                                                                               \
    X(int64_t, edges_twice) /* so are the first keys of tiles of so many, but for key 0; 0: none */                    \
    X(int64_t, last_fills) /* the last key counts as often as it takes to fill a tile of so many; 0: once */           \
    X(int, padding_reversed)                                                                                           \
    X(int, padding_of_queries) /* hides queries, too: bit 1 of padded keys, 2 beyond lengths */                        \
    X(int, lengths_zeros) /* keys beyond the lengths are zeros: of score and value 0 */                                \
    X(int, segments_inverted) /* only keys of other segments are seen */                                               \
    X(int, segments_first)    /* those of the first batch row are those of all */                                      \
    X(int64_t, segments_shift) /* row t has the segment of row t - n, as far as there is one */                        \
    X(int, segments_earlier) /* keys of segments with a smaller number are seen, too */                                \
    X(int, lists_each_time) /* a key counts as often as it is named */                                                 \
    X(int, lists_fill)                                                                                                 \
    X(int64_t, lists_shift) /* added to the keys of the lists */                                                       \
    X(int, late)          /* bits HIDES_...: hides keys only after the softmax, by weight 0 */                         \
    X(int, early)         /* bits ADDS_...: is added before the scale */                                               \
    X(double, alibi_sign) /* 0: none */                                                                                \
    X(int, alibi_from_0)                                                                                               \
    X(int, alibi_formula)                                                                                              \
    X(int64_t, alibi_tile) /* keys stand where the first one of their tile of n does; negative: in the first tile */   \
    X(int64_t, alibi_most) /* distances are no more than so many; 0: as they are */                                    \
    X(double, position_bias_times)                                                                                     \
    X(int, alibi_symmetric)         /* by the distance in both directions */                                           \
    X(int, position_bias)                                                                                              \
    X(int, use_cache)                                                                                                  \
    X(int, cache_order)

/* Type and name of each other knob that changes what lies between q, k, v and the heads. */
#define SCORE_KNOB_LIST(X)                                                                                             \
    SIGHT_KNOB_LIST(X)                                                                                                 \
    PAST_KNOB_LIST(X)                                                                                                  \
    X(int, group_k)                                                                                                    \
    X(int, group_v)                                                                                                    \
    X(const double *, group_order) /* (h): the key/value head that each query head reads */                            \
    X(int, groups) /* how many key/value heads are read; 0: those of the case */                                       \
    X(int, pages)                                                                                                      \
    X(int, relative)                                                                                                   \
    X(int, relative_scale)                                                                                             \
    X(int, cap_after_mask)                                                                                             \
    X(int, cap_before_scale)                                                                                           \
    X(int, cap_no_factor)                                                                                              \
    X(int, cap_no_divisor)                                                                                             \
    X(int, cap_twice)                                                                                                  \
    X(int, absolute) /* scores lose their sign */                                                                      \
    X(int, fill) /* how a hidden key's score is treated */                                                             \
    X(double, fill_value)                                                                                              \
    X(const double *, scales) /* (h), instead of that of the case; NULL: that */                                       \
    X(int, base_2)   /* powers of 2 instead of e; negative: of e^(1/ln 2) */                                           \
    X(int64_t, tile) /* keys of a tile of the softmax; negative: the last tile comes first; 0: no tiles */             \
    X(int, tile_mistake)                                                                                               \
    X(int64_t, top) /* only so many keys with the greatest scores count; 0: all */                                     \
    X(int, top_late) /* the others only lose their weight */                                                           \
    X(double, most_score) /* scores are limited to so much on both sides; 0: they are not */                           \
    X(double, most_below) /* scores lie at most so far below the maximum; 0: as far as they do */                      \
    X(double, least_weight) /* of a visible key */                                                                     \
    X(double, sum_raised) /* what the sum of exp(s - maximum) is raised by */                                          \
    X(int, relu) /* max(s, 0) in place of exp(s - maximum); 2: its square; negative: s itself */                       \
    X(int, sinks_unshifted) /* exp(sink) meets sums of exp(s - maximum) of the keys */                                 \
    X(int64_t, scored_features) /* only the first ones of q and k are multiplied; 0: all; -1: none */                  \
    X(int, loses) /* weights: LOSES_... */                                                                             \
    X(double, loses_below)                                                                                             \
    X(int, base_2_rounded) /* scores times log2(e) are rounded to float before their maximum is taken away */          \
    X(int, weights_averaged) /* over the heads, for all of them; 2: those of the first head are */                     \
    X(int, undivided) /* exponentials are not divided by their sum */                                                  \
    X(int, unshifted) /* and are exp(s), the maximum not taken away */                                                 \
    X(int, by_root)   /* they are divided by the root of the sum of their squares */                                   \
    X(int, divided_twice)                                                                                              \
    X(int, softened_twice) /* weights go through another softmax */                                                    \
    X(double, weights_power) /* weights are raised to it; 0: they are not */                                           \
    X(int, sigmoid_usual)   /* the bias is -log of the number of keys; 2: of those that the query sees */              \
    X(int, sigmoid_divided) /* the weights of a sigmoid are divided by their sum */                                    \
    X(int, use_sinks)                                                                                                  \
    X(const double *, sinks) /* (h), instead of those of the case; NULL: those */                                      \
    X(double, parts) /* how often what is no key of the case is counted */                                             \
    X(int, bias_row)                                                                                                   \
    X(int, axis) /* the axis that softmax normalises */                                                                \
    X(const double *, dropped) /* p, then 0 for each weight (B, h, T_q, S') that is dropped; NULL: none */             \
    X(double, weights_times)                                                                                           \
    X(int, lse)                                                                                                        \

/* Type and name of each knob that changes the merging of heads or what follows it. */
#define OUTPUT_KNOB_LIST(X)                                                                                            \
    X(int, heads_averaged)         /* each head is the mean of all */                                                  \
    X(const double *, head_times)  /* (h): what each head is multiplied by; NULL: 1 */                                 \
    X(int, unwritten)              /* LACKS_... */                                                                     \
    X(int64_t, unwritten_from)                                                                                         \
    X(int, merge)                  /* arrangement of heads in the merged rows */                                       \
    X(int, reading) /* which axes of the inputs are taken for others */                                                \
    X(const double *, batch_order) /* which batch row stands in the place of each; NULL: itself */                     \
    X(const double *, row_order) /* (B, T_q): which row of the output stands in the place of each; NULL: itself */     \
    X(const double *, merge_order) /* which head stands in the place of each; NULL: itself */                          \
    X(const double *, column_order) /* (h*d_v): which column of the merged heads does; NULL: itself */                 \
    X(int, gate) /* how the heads are gated */                                                                         \
    X(int, output_unprojected)                                                                                         \
    X(int, bias_o_before) /* added to the merged heads */                                                              \
    X(double, bias_o_times)                                                                                            \
    X(double, output_times)                                                                                            \
    X(int, residual) /* the query input is added to the output, or the queries */

typedef struct mha__knobs {
    int source[3]; /* the projection (without a layer: the input) read as q, k, v */
    int transposed[PROJECTION_COUNT], no_bias[PROJECTION_COUNT];
#define KNOB(type, name) type name;
    ROW_KNOB_LIST(KNOB)
    SCORE_KNOB_LIST(KNOB)
    OUTPUT_KNOB_LIST(KNOB)
#undef KNOB
    /* What the variant takes for the semantics of the call: theirs, with defaults filled in, but for what it changes or
     * leaves out. While a sequence of a ragged batch is computed, they are cut to it (mha__cut_to_sequence). */
    mha_semantics s;
} mha__knobs;

/* Whether batch rows and time can be taken for each other: nothing else has an axis for one of them. */
bool mha__case_exchanges(const mha_case *c);
/* The same of heads and time, of queries, keys and values that have an axis for both. */
bool mha__case_turns(const mha_case *c);
/* Whether any part of a pattern is given. */
bool mha__case_has_pattern(const mha_case *c);
/* All knobs at the values of the case. */
mha__knobs mha__knobs_of(const mha_case *c);
bool mha__knobs_equal(const mha__knobs *a, const mha__knobs *b);
/* Whether two sets agree on all knobs and settings that change the rows of q, k and v before the scores. */
bool mha__knobs_make_rows_alike(const mha__knobs *a, const mha__knobs *b);
/* Whether a head's rows follow from its own rows and those of its key/value head, in its batch row alone: from nothing
 * of other heads or batch rows. */
bool mha__knobs_by_head(const mha__knobs *k);
/* Whether two sets agree on all knobs and on the settings of the softmax. */
bool mha__knobs_agree(const mha__knobs *a, const mha__knobs *b);
/* Whether they agree on all that decides which keys a query sees and what is added to their scores. */
bool mha__knobs_see_alike(const mha__knobs *a, const mha__knobs *b);

/* How the numbers of a variant are found. */
enum {
    SOLVE_NOTHING,  /* it has none */
    SOLVE_LISTED,   /* one of a list */
    SOLVE_BY_BATCH, /* one of a list for each batch row */
    SOLVE_REAL,     /* any between two others of the same sign */
    SOLVE_SIGNED,   /* the same, or its negative */
    SOLVE_STEPPED,  /* any, between which the result changes in steps alone */
    SOLVE_FREE,     /* any, of which 0 or a little more changes little */
    SOLVE_BY_HEAD,  /* the same for each query head */
    SOLVE_HEADS,    /* one for each query head: which head stands in its place */
    SOLVE_Q_HEADS,  /* one for each query head: which head's queries it has */
    SOLVE_KV_HEADS, /* one for each query head: which key/value head it reads */
    SOLVE_BATCHES,  /* one for each batch row: which batch row stands in its place */
    SOLVE_KEYS,     /* one for each key of each batch row: 0 hides it, 1 does not */
    SOLVE_VALUES,   /* one for each row of v of each batch row: which row stands in its place */
    SOLVE_KEY_ROWS, /* the same for each row of k, or of k and v, that different queries see */
    SOLVE_QUERIES,  /* the same for each row of q */
    SOLVE_WRITTEN,  /* and for each row of the output */
    SOLVE_FACTORS,  /* one for each query head: what it is multiplied by */
    SOLVE_COLUMNS,  /* one for each column of the merged heads: which column stands in its place */
    SOLVE_UNWRITTEN, /* from which on the tensor is 0 */
    SOLVE_DROPPED   /* p; then one for each weight (B, h, T_q, S'): 0 drops it, 1 does not */
};

typedef struct mha__variant_entry {
    mha_variant shown;
    /* Changes the knobs; false when the variant does not apply to the case. The numbers x, where it has some, must live
     * as long as the knobs. */
    bool (*apply)(const mha_case *c, mha__knobs *k, const double *x);
    bool is_paired; /* the diagnosis tries it in pairs, too */
    int how;        /* its numbers are found */
    double low, high;                                           /* of SOLVE_REAL, ... _BY_HEAD */
    bool (*choice)(const mha_case *c, size_t index, double *x); /* of SOLVE_LISTED; false past the end */
} mha__variant_entry;

/* The variant at an index of the one list as one with a number; NULL when it has none. */
const mha__variant_entry *mha__solved_entry_at(size_t index);
size_t mha__solved_count(const mha_case *c, const mha__variant_entry *e); /* how many numbers it has */
/* Whether it can be said of each weight that it is dropped: there are not too many. */
bool mha__case_can_drop(const mha_case *c);
/* Writes its numbers x, as many as have room, in the words that mha__numbers_read reads. */
void mha__numbers_say(const mha_case *c, const mha__variant_entry *e, const double *x, char *text, size_t size);
/* MHA_UNSUPPORTED: there is no text. MHA_INVALID: it is something else. */
mha_status mha__numbers_read(const mha_case *c, const mha__variant_entry *e, const char *text, double *x,
                             mha_error *error);
/* Changes the knobs to those of one variant; `numbers`: of a variant that has some. False when it does not apply. */
bool mha__variant_apply(const mha_case *c, size_t index, const double *numbers, mha__knobs *knobs);
/* The knobs of the case with up to two variants without numbers, given by index (-1: none); false when the variants do
 * not apply. */
bool mha__variants_apply(const mha_case *c, int a, int b, mha__knobs *knobs);
/* Whether up to two variants, as those above, make of a slice of a case what they make of its part of the whole: they
 * look at one head, and change it alike. */
bool mha__variants_by_head(const mha_case *whole, const mha_case *slice, int a, int b);

#endif
