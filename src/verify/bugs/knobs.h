/* A known bug: settings that differ from those of the case, and knobs for bugs that no setting says. */
#ifndef MHA_VERIFY_BUGS_KNOBS_H
#define MHA_VERIFY_BUGS_KNOBS_H

#include "verify/case/record.h"
#include "verify/bugs/choices.h"

/* A number as the type of that rounding has it. */
double mha__bug_rounded(double x, int rounding);
/* x with so many bits of the significand, 53 at most; of two as near the even one. With 4 or 3 bits it is a number of
 * float8, E4M3 or E5M2, with its exponents. */
double mha__bug_shortened(double x, int bits);

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
    X(int64_t, joined_page) /* in pages of n, (h, n, d) in memory viewed as (n, h, d); negative: the reverse */        \
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
#define VISIBLE_KNOB_LIST(X)                                                                                           \
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
    VISIBLE_KNOB_LIST(X)                                                                                               \
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
    X(int, tile_bug)                                                                                                   \
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
    /* What the bug takes for the semantics of the call: theirs, with defaults filled in, but for what it changes or
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

/* How the numbers of a bug are found. */
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

typedef struct mha__bug_entry {
    mha_bug shown;
    /* Changes the knobs; false when the bug does not apply to the case. The numbers x, where it has some, must live
     * as long as the knobs. */
    bool (*apply)(const mha_case *c, mha__knobs *k, const double *x);
    bool is_paired; /* the diagnosis tries it in pairs, too */
    int how;        /* its numbers are found */
    double low, high;                                           /* of SOLVE_REAL, ... _BY_HEAD */
    bool (*choice)(const mha_case *c, size_t index, double *x); /* of SOLVE_LISTED; false past the end */
} mha__bug_entry;

/* The bug at an index of the one list as one with a number; NULL when it has none. */
const mha__bug_entry *mha__solved_entry_at(size_t index);
size_t mha__solved_count(const mha_case *c, const mha__bug_entry *e); /* how many numbers it has */
/* Whether it can be said of each weight that it is dropped: there are not too many. */
bool mha__case_can_drop(const mha_case *c);
/* Writes its numbers x, as many as have room, in the words that mha__numbers_read reads. */
void mha__numbers_say(const mha_case *c, const mha__bug_entry *e, const double *x, char *text, size_t size);
/* MHA_UNSUPPORTED: there is no text. MHA_INVALID: it is something else. */
mha_status mha__numbers_read(const mha_case *c, const mha__bug_entry *e, const char *text, double *x,
                             mha_error *error);
/* Changes the knobs to those of one bug; `numbers`: of a bug that has some. False when it does not apply. */
bool mha__bug_apply(const mha_case *c, size_t index, const double *numbers, mha__knobs *knobs);
/* Whether the diagnosis tries the bug `index` in pairs, too: it leaves that to the more usual ones. */
bool mha__bug_is_paired(size_t index);
/* The knobs of the case with up to two bugs without numbers, given by index (-1: none); false when the bugs do
 * not apply. */
bool mha__bugs_apply(const mha_case *c, int a, int b, mha__knobs *knobs);
/* Whether up to two bugs, as those above, make of a slice of a case what they make of its part of the whole: they
 * look at one head, and change it alike. */
bool mha__bugs_by_head(const mha_case *whole, const mha_case *slice, int a, int b);

#endif
