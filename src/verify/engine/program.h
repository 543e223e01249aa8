/* Programs: a call with the changes of known bugs, as settings and mutations. */
#ifndef MHA_VERIFY_ENGINE_PROGRAM_H
#define MHA_VERIFY_ENGINE_PROGRAM_H

#include "verify/case/record.h"
#include "verify/mutate/mutation.h"

enum { PROJECTION_Q, PROJECTION_K, PROJECTION_V, PROJECTION_O, PROJECTION_COUNT };
enum { MHA__SIDE_Q = 1, MHA__SIDE_K = 2, MHA__SIDE_V = 4 };

/* clang-format off */
/* Points of the equation, in its order. */
typedef enum mha__forward_site {
    AT_CALL,
    AT_X, AT_W, AT_W_Q, AT_W_K, AT_W_V, AT_W_O, AT_PROJ, /* inputs, matrices; the projection that a side reads */
    AT_LATENT,
    AT_B_Q, AT_B_K, AT_B_V, AT_B_O, AT_BIAS, /* biases of projections; the step that adds them */
    AT_Y, AT_H, AT_ROW,                      /* rows before the split; their heads; rows of heads */
    AT_NORM, AT_NORM_WEIGHT, AT_NORM_BIAS, AT_CLIP,
    AT_POS, AT_POS_ROW, AT_POS_Q, AT_POS_K, AT_ANGLE, AT_SIN, AT_SECTIONS, AT_POSITION, AT_PAIR, AT_TURN, AT_TURN_V,
    AT_QSCALE, AT_LOG_N,
    AT_A,                                    /* rows as products read them */
    AT_PAGE, AT_PAST, AT_NEW, AT_JOINED, AT_EXTRA, AT_KV_K, AT_KV_V, AT_KV,
    AT_PLACE, AT_CAUSAL, AT_CAUSAL_BLOCK, AT_CAUSAL_ROW, AT_WINDOW, AT_CHUNK, AT_LENGTHS, AT_KEYS, AT_PADDING,
    AT_QUERY_PADDING, AT_MASK, AT_SEGMENTS, AT_LISTS, AT_ALIBI, AT_SLOPES, AT_TABLE, AT_RELATIVE, AT_COUNT, AT_RULES,
    AT_S, AT_CAP, AT_Z, AT_E, AT_TILE, AT_SIGMOID, AT_SINK, AT_LSE, AT_P,
    AT_O, AT_M, AT_COLUMN, AT_GATE, AT_OUT
} mha__forward_site;

typedef enum mha__forward_op {
    OP_FROM,  /* reads the element of an index map, or another operand */
    OP_TAKE,  /* reads another operand */
    OP_TIMES, OP_PLUS, OP_ZERO, OP_KEEP,
    OP_ROUND, /* to a type: MHA__TO_... */
    OP_BITS,  /* to a number of bits of the significand */
    OP_QUANT, /* to whole numbers with a scale */
    OP_FILL, OP_LIMIT, OP_POWER,
    OP_DO,    /* does a step, or omits it, for some sides */
    OP_MOVE,  /* does a step at another point: before the scale, after the softmax, MHA__AFTER_... */
    OP_FN,    /* another function */
    OP_OVER,  /* over another axis or span */
    OP_NOT, OP_EITHER
} mha__forward_op;

/* Functions and other arguments of mutations; 0 means the argument of the equation. */
enum { MHA__TO_F16 = 1, MHA__TO_BF16, MHA__TO_BF16_CUT /* lower bits dropped */ };
enum { MHA__E4M3_BITS = 4, MHA__E5M2_BITS = 3 };
enum { MHA__BATCH_AS_TIME = 1, MHA__HEADS_AS_TIME };
enum { MHA__LAYER_NORM = 1, MHA__RMS_NORM };
enum { MHA__AFTER_NORM = 1, MHA__AFTER_ROPE, MHA__BEFORE_BIAS, MHA__BEFORE_NORM };
enum { MHA__PACKED_GROUPS = 1, MHA__PACKED_BLOCKS, MHA__PACKED_PAIRS /* of a key and a value */ };
enum { MHA__Q_UNNORMED = 1, MHA__KV_UNNORMED, MHA__SHARED_NORMED, MHA__SHARED_FIRST, MHA__SHARED_FIRST_HEAD,
       MHA__VALUES_FIRST, MHA__LATENT_BLOCKS, MHA__LATENT_NO_BIAS };
enum { MHA__TURN_ADDS = 1, MHA__FIRST_OVERWRITTEN, MHA__SECOND_OVERWRITTEN };
enum { MHA__AXES_TEXT = 1, MHA__AXES_FIRST, MHA__AXES_SWAPPED, MHA__AXES_REVERSED, MHA__AXES_DEALT,
       MHA__AXES_RESTART };
enum { MHA__SPAN_ROW = 1, MHA__SPAN_HEAD, MHA__SPAN_FEATURE, MHA__SPAN_TENSOR, MHA__SPAN_GROUPS = 8 };
enum { MHA__PAGES_IN_ORDER = 1, MHA__PAGES_TRANSPOSED, MHA__PAGES_OF_FIRST, MHA__PAGES_NEXT,
       MHA__PAGES_OF_SIZE };
enum { MHA__IN_F32 = 1 };
enum { MHA__NEW_FIRST = 1, MHA__NEW_EARLY, MHA__NEW_LATE };
/* Positions of a rule, then rows and columns of a table of biases or of relative terms. */
enum { MHA__FROM_0 = 1, MHA__FROM_END, MHA__EXCHANGED, MHA__BY_COLUMN, MHA__BY_HEIGHT, MHA__NEXT_ROW, MHA__ROW_BEFORE,
       MHA__HEAD_0, MHA__HEADS_REVERSED, MHA__TRANSPOSED, MHA__OTHER_WAYS, MHA__LINEAR, MHA__WRAPPED, MHA__OTHER_WAY,
       MHA__NO_K, MHA__NO_Q };
enum { MHA__SCALED_TWICE = 1, MHA__UNSCALED, MHA__LONE_SCALE };
enum { MHA__NAMES_FIRST = 1, MHA__NAMES_LAST }; /* the key that a negative number of a list names */
enum { MHA__USUAL_SLOPES = 1, MHA__SLOPES_FROM_0, MHA__PLAIN_SLOPES };
enum { MHA__RULE_CAUSAL = 1, MHA__RULE_WINDOW = 2, MHA__RULE_MASK = 4, MHA__RULE_PADDING = 8, MHA__RULE_LENGTHS = 16,
       MHA__RULE_ALIBI = 32, MHA__RULE_TABLE = 64 };
enum { MHA__BEFORE_SCALE = 1, MHA__AFTER_MASK };
enum { MHA__MEAN_OF_HEADS = 1, MHA__FIRST_HEAD };
enum { MHA__LOSES_KEYS = 1, MHA__LOSES_WEIGHTS, MHA__LOSES_EXPONENTIALS };
enum { MHA__FROM_ABOVE = 1, MHA__FROM_BELOW };
enum { MHA__CAP_NO_FACTOR = 1, MHA__CAP_NO_DIVISOR, MHA__CAP_TWICE };
enum { MHA__FILL_REPLACE = 1, MHA__FILL_ADD };
enum { MHA__OVER_KEYS, MHA__OVER_QUERIES, MHA__OVER_HEADS };
enum { MHA__RELU = 1, MHA__RELU_SQUARED, MHA__IDENTITY };
enum { MHA__BY_USUAL = 1, MHA__BY_SEEN };
enum { MHA__UNDIVIDED = 1, MHA__BY_ROOT, MHA__DIVIDED_TWICE };
/* Softmax in tiles of keys: wrong factors of sum and values, of values, of the sum. From MHA__TILE_PADDED on, zeros pad
 * them; from MHA__PARTS_AVERAGED on, each has its own. */
enum { MHA__NEVER_RESCALED = 1, MHA__VALUES_UNSCALED, MHA__SUM_UNSCALED, MHA__RESCALED_BASE_2, MHA__VALUES_BASE_2,
       MHA__SUM_BASE_2, MHA__RESCALED_INVERSE, MHA__VALUES_INVERSE, MHA__SUM_INVERSE, MHA__TILES_FORGOTTEN,
       MHA__VALUES_FORGOTTEN, MHA__SUM_FORGOTTEN, MHA__RESCALED_LATE, MHA__TILE_PADDED, MHA__TILE_PADDED_SEEN,
       MHA__PARTS_AVERAGED, MHA__PARTS_ADDED, MHA__PARTS_AVERAGED_SEEN, MHA__PARTS_UNDIVIDED, MHA__PARTS_BY_INVERSE,
       MHA__PARTS_BY_SUMS, MHA__PARTS_BY_LSE, MHA__PARTS_BY_POWERS_OF_2, MHA__PARTS_BASE_2, MHA__PARTS_BY_MAXIMA,
       MHA__PARTS_TIMES_SUMS, MHA__PARTS_EMPTY_SEEN, MHA__PARTS_LSE_KEPT };
/* Keys that a query does not visit: a span of them; by tiles of queries and of keys (a span: their sizes). */
enum { MHA__SPAN_HIDDEN = 1, MHA__TILES_TO_OWN, MHA__TILES_TO_FIRST, MHA__TILES_WHOLE, MHA__WINDOW_WHOLE,
       MHA__WINDOW_LAST, MHA__WINDOW_OPEN, MHA__CAUSAL_LAST /* seen in spite of the causal mask */ };
enum { MHA__LSE_BASE_2 = 1, MHA__LSE_NO_SINKS, MHA__LSE_NO_MAXIMUM, MHA__LSE_MAX_UNSCALED };
enum { MHA__GATE_NOT = 1, MHA__GATE_PLAIN, MHA__GATE_SILU };
enum { MHA__LACKS_ROWS = 1, MHA__LACKS_HEADS, MHA__LACKS_FEATURES, MHA__LACKS_BATCHES, MHA__LACKS_END,
       MHA__LACKS_END_BY_HEAD };
/* clang-format on */

enum { MHA__MOST_MUTATIONS = 40 };

typedef struct mha__program {
    mha_semantics s;   /* settings with defaults and the changes of bugs; ragged batch: those of the current sequence */
    uint64_t sites[2]; /* bits: sites that may have a mutation */
    size_t n;
    mha__mutation m[MHA__MOST_MUTATIONS]; /* at most one for a site and operator, in their order */
} mha__program;

/* The program of a case without bugs. */
mha__program mha__program_of(const mha_case *c);
/* Adds a mutation; it replaces one of the same site and operator. A full program stays as it is. */
void mha__put(mha__program *p, mha__mutation m);
/* Removes the mutation of a site and an operator; returns false if there is none. */
bool mha__drop(mha__program *p, int site, int op);

static inline const mha__mutation *mha__mutation_at(const mha__program *p, int site, int op)
{
    for (size_t i = 0; p->sites[site >> 6] >> (site & 63) & 1 && i < p->n; i++)
        if (p->m[i].site == site && p->m[i].op == op)
            return &p->m[i];
    return NULL;
}
static inline bool mha__has(const mha__program *p, int site, int op)
{
    return mha__mutation_at(p, site, op) != NULL;
}
/* Argument, number or step of a mutation, or the mutation if it has side `which`. Without it: 0, `usual`, NULL. */
static inline int mha__arg(const mha__program *p, int site, int op)
{
    const mha__mutation *m = mha__mutation_at(p, site, op);
    return m ? m->arg : 0;
}
static inline double mha__number(const mha__program *p, int site, int op, double usual)
{
    const mha__mutation *m = mha__mutation_at(p, site, op);
    return m ? m->number : usual;
}
static inline int64_t mha__step(const mha__program *p, int site, int op, int64_t usual)
{
    const mha__mutation *m = mha__mutation_at(p, site, op);
    return m ? m->step : usual;
}
static inline const mha__mutation *mha__of_side(const mha__program *p, int site, int op, int which)
{
    const mha__mutation *m = mha__mutation_at(p, site, op);
    return m && m->sides >> which & 1 ? m : NULL;
}

bool mha__programs_equal(const mha__program *a, const mha__program *b);
/* True if two programs have the same mutations and settings of the softmax. */
bool mha__programs_agree(const mha__program *a, const mha__program *b);
/* True if two programs certainly hide the same keys and add the same terms to scores. */
bool mha__programs_see_alike(const mha__program *a, const mha__program *b);
/* True if a head depends only on its own rows and those of its key/value head, in its batch row. */
bool mha__program_by_head(const mha__program *p);

/* Results that a runner keeps between runs. */
typedef enum mha__node { NODE_Y, NODE_A = NODE_Y + 3, NODE_COUNT = NODE_A + 3 } mha__node;
/* Writes a hash of the dependencies of each node; 0: a node depends on numbers in memory, which may change. */
void mha__program_keys(const mha__program *p, uint64_t key[NODE_COUNT]);

/* x rounded to a type, MHA__TO_...; 0: x itself. */
double mha__narrowed(double x, int type);
/* x rounded to `bits` bits of the significand, 53 at most; ties to even. 4 or 3 bits are float8, with its exponents.
 * Negative: the bits after these dropped. 0: x itself. */
double mha__shortened(double x, int bits);

/* True if a bug can exchange batch rows and time: only inputs have these axes. */
bool mha__can_exchange(const mha_case *c);
/* True if a bug can exchange heads and time: queries, keys and values have both axes. */
bool mha__can_turn(const mha_case *c);
bool mha__has_pattern(const mha_case *c);

/* Two numbers in the step of a mutation: the first key of a span and the count of its keys, or two sizes. */
#define MHA__SPAN(first, count) ((long long)((uint64_t)(count) << 32 | (first)))
#define MHA__SPAN_FIRST(m) ((m)->step & 0xffffffff)
#define MHA__SPAN_COUNT(m) ((m)->step >> 32)

/* i modulo n, from 0 to n - 1. */
static inline size_t mha__modulo(int64_t i, size_t n)
{
    const int64_t m = i % (int64_t)n;
    return (size_t)(m < 0 ? m + (int64_t)n : m);
}

#endif
