/* What knobs of bugs choose: each bug of several that exclude each other. */
#ifndef MHA_VERIFY_BUGS_CHOICES_H
#define MHA_VERIFY_BUGS_CHOICES_H

enum { PROJECTION_Q, PROJECTION_K, PROJECTION_V, PROJECTION_O, PROJECTION_COUNT };

/* Which column of which projection is read as column c of q, k or v. */
enum {
    PACKING_RIGHT,
    PACKING_READ_INTERLEAVED, /* a packed tensor of blocks q|k|v read as h_kv times (h/h_kv times q, k, v) */
    PACKING_READ_BLOCKS       /* a packed tensor of h_kv times (h/h_kv times q, k, v) read as blocks */
};

enum { ROUND_NOT, ROUND_F16, ROUND_BF16, ROUND_BF16_CUT /* lower bits dropped */ };
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

#endif
