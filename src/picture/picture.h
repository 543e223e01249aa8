/* The data of a picture: layers of heads, each with a map of its weights and with statistics in float64. */
#ifndef MHA_PICTURE_PICTURE_H
#define MHA_PICTURE_PICTURE_H

#include <math.h>

#include "attention/call/resolved.h"
#include "base/arena.h"
#include "mha/case.h"
#include "mha/file.h"
#include "picture/origin.h"

/* ---------------------------------------------------------------- a head */

/* In place of a weight: no query of the cell sees a key of it. A weight of 0 is another thing: the key is visible. */
#define MHA__HIDDEN (-INFINITY)

static inline bool mha__is_hidden(double weight) { return weight == MHA__HIDDEN; }

/* Means over the queries that see a key and whose weights are finite. All are NaN when there is no such query. */
typedef struct mha__head_statistics {
    double entropy;  /* of a row of weights, in bits: 0 looks at one key, log2(n) at n keys alike */
    double distance; /* sum of weight * |position of the query - position of the key| */
    double self, previous, first; /* weight of the key at the query's own position, at the one before, of key 0 */
    double sink;     /* share of the softmax that no key has: sinks, softmax-plus-one, the extra rows */
    double largest;  /* largest weight of the row */
    size_t queries;  /* number of these queries */
    size_t empty, broken; /* queries that see no key; queries with a weight that is NaN or infinite */
} mha__head_statistics;

/* The means one by one, with their names: "entropy", ..., "largest". */
enum { MHA__STATISTICS = 7 };
const char *mha__statistic_name(size_t index);
double *mha__statistic_at(mha__head_statistics *statistics, size_t index);

/* One head of one sequence. Row r of its map stands for `pool_rows` queries from first_query + r * pool_rows on,
 * column c for `pool_columns` keys; the last row and column may stand for fewer. Keys are those of S', in which the
 * bias_k/bias_v row and the zero row come last. */
typedef struct mha__head {
    size_t sequence, head, kv_head;
    size_t first_query, queries, first_key, keys; /* what the map shows: rows of T_q, columns of S' */
    size_t rows, columns, pool_rows, pool_columns;
    double *weights; /* (rows, columns): the largest weight in the cell, MHA__HIDDEN, or NaN if one of them is */
    /* (queries, keys), NULL where unknown or too many: scores after the softcap; then with what is added to them, -inf
     * where the key is hidden. */
    double *scores, *masked;
    /* (queries, top): the largest weights of each row, exact however the map is pooled, and their keys, which count
     * from key 0 of the sequence; a row that has fewer ends with weights of 0. NULL when the map is not pooled. */
    size_t top;
    double *top_weights;
    uint32_t *top_keys;
    mha__head_statistics statistics; /* of the queries that are shown, over all keys */
} mha__head;

/* ---------------------------------------------------------------- layers */

enum { MHA__TOP = 8, MHA__CELLS = 1024 }; /* most top weights of a row; most rows and columns of a map */

/* A stage, an input or a weight in float64: (T, width), (1, heads, T_q, S'), (in, out) or (out). With a cache k_rot and
 * v have the rows of all S keys. A weight that is left out has a shape and no data. What else the stages come from:
 * q_position and k_position (T, 1), q_cos, q_sin, k_cos, k_sin (T, rope_dim/2), frequencies, query_scale (T_q, 1),
 * alibi_slopes, bias_rows (T_q, S): rows of bias_table; mask, key_padding: what they add; hidden_by: see walk.hides. */
typedef struct mha__walk_array {
    const char *name; /* "x_q", "q", ..., "W_Q"; static */
    mha_view view;    /* contiguous F64 */
} mha__walk_array;

/* Every number of one sequence, and what the call means. Query i has position offset + i, key j first_key + j; length
 * counts from position 0, -1: not given. */
typedef struct mha__walk {
    size_t sequence, count;
    size_t first_head, heads; /* of the scores and weights */
    size_t past;              /* keys from the cache, whose inputs are not known */
    mha__walk_array arrays[64];
    mha_semantics semantics; /* as given; what its arrays point to may be gone */
    double scale;
    const char *hides[8]; /* what else may hide keys, bit n of hidden_by: "the mask hides it"; NULL ends; static */
    int64_t offset, first_key, length;
    size_t rope_dim;
    double rope_times, norm_eps;
    mha_norm norm[2]; /* of q and of k */
    mha__latent latent;
} mha__walk;

typedef struct mha__picture_layer {
    const char *name;  /* of the layer: from a file, or "" */
    const char *path;  /* how it was computed: "exact", "fast", "blas", or "recorded" */
    size_t sequences, h, h_kv, d_k, d_v;
    size_t head_count; /* heads that are shown, sequence after sequence */
    mha__head *heads;
    size_t S_extra; /* rows at the end of S' that are no tokens */
    mha__walk *walk;     /* NULL where there is none */
    const char *no_walk; /* and the sentence that says why */
    int64_t offset; /* position of query 0 of the first sequence, where key 0 has position 0 */
} mha__picture_layer;

struct mha__sheet; /* a tensor drawn as it is (sheet.h) */

/* Zero-initialised but for memory.allocator, a picture is empty. All texts may come from files: whoever writes them
 * escapes them. */
typedef struct mha__picture {
    mha__arena memory;
    size_t layer_count, layer_room;
    mha__picture_layer *layers;
    size_t token_count;       /* 0: tokens have no names */
    const char *const *tokens; /* name of the token at each position of the keys */
    size_t word_count;         /* of a vocabulary that names ids of tokens; 0: none */
    const char *const *words;
    mha__origin origin;        /* all of it borrowed */
    const char *title;         /* what is shown: a stage, what is random; "" for nothing */
    const char *random;        /* what a file that was added says was drawn at random, in words; NULL: nothing */
    bool logarithmic;          /* colours stand for six decades below the largest weight */
    /* Tensors one by one, or beside others: a drawing shows them in place of the layers. */
    size_t sheet_count, sheet_room;
    struct mha__sheet *sheets;
    const char *sides[2]; /* what a and b of the sheets are called: "yours", "exact"; static or borrowed */
    size_t note_count, note_room;
    const char **notes; /* sentences about all of it */
} mha__picture;

/* Adds an empty layer under a copy of the name. MHA_NO_MEMORY. */
mha_status mha__picture_grow(mha__picture *picture, const char *name, mha__picture_layer **layer, mha_error *error);
void mha__picture_free(mha__picture *picture);
/* A copy of a text that lives as long as the picture; NULL without memory. */
const char *mha__picture_text(mha__picture *picture, const char *text);
/* Cells of n rows or columns where `pool` of them share one. */
static inline size_t mha__cells_of(size_t n, size_t pool)
{
    return (n + pool - 1) / pool;
}
/* Takes from the metadata "random" of a trace what was drawn at random; of several traces the first that says it.
 * MHA_NO_MEMORY. */
mha_status mha__picture_random_of(mha__picture *picture, const mha_file *file, mha_error *error);
/* Adds a copy of a sentence to the notes. MHA_NO_MEMORY. */
mha_status mha__picture_note(mha__picture *picture, const char *text, mha_error *error);
/* Reads the names of tokens: a line for each, or an array of JSON; or the vocabulary of a GGUF file, which names the
 * ids of the files that are added. Errors: of the system; MHA_FORMAT, MHA_INVALID (a GGUF without one), MHA_NO_MEMORY.
 */
mha_status mha__picture_tokens(mha__picture *picture, const char *path, mha_error *error);

/* The drawn part, and its resolution. Zero-initialised: everything. */
typedef struct mha__picture_choice {
    bool one_sequence, one_head, one_query; /* only that of this number; one query goes before rows */
    size_t sequence, head, query;
    size_t rows[2], keys[2]; /* from the first to before the second; 0, 0: all */
    mha_path path;           /* of a case that is run */
    int threads;
    bool maps_alone;  /* without scores and masked scores */
    size_t projected; /* most bytes of rotated queries and keys at a time, at least those of a head; 0: 64 MiB */
} mha__picture_choice;

/* Adds the heads of a call as a layer. On the exact path, which `call->path` or a small call chooses, every number is
 * exact; else the weights are those of float32. Rows are computed some at a time, and of a layer some heads at a time:
 * memory grows with T and S', not with their product. `past` has the cached keys and values, or NULL. Errors: as of
 * mha_plan_call; MHA_INVALID (a choice that the call has not), MHA_NO_MEMORY. */
mha_status mha__picture_add_call(mha__picture *picture, const char *name, const mha_layer *layer, const mha_call *call,
                                 const mha_view past[2], const mha__picture_choice *choice, mha_error *error);
/* Adds the heads of a case. MHA_UNSUPPORTED: one that would be skipped, or of rotation alone; else as of
 * mha__picture_add_call. */
mha_status mha__picture_add_case(mha__picture *picture, const mha_case *c, const mha__picture_choice *choice,
                                 mha_error *error);
/* Adds the layers of a file: a case, which is run; or a trace, whose tensors "weights" or "NAME.weights",
 * (B, h, T_q, S') or (h, T_q, S'), are shown as recorded: "masked" and "capped" beside them say which keys are hidden,
 * and their scores. Errors: as of mha_file_open and mha_case_open; MHA_UNSUPPORTED (a case that would be skipped). */
mha_status mha__picture_add_file(mha__picture *picture, const char *path, const mha__picture_choice *choice,
                                 mha_error *error);

/* Files of a picture, each with its sheets where it has some, else with its heads. The same picture gives the same
 * bytes; with another zlib the bytes of a page or a PNG may differ. Errors: MHA_NO_MEMORY, MHA_IO; of a drawing
 * MHA_INVALID (no heads, or too many pixels). After an error no file of that name has been created or changed. */

/* One page that a browser opens from a file: no request, no library. Its data are compressed and in base64, so that no
 * text of a file becomes markup. */
mha_status mha__page_write(const mha__picture *picture, const char *path, mha_error *error);
/* A vector drawing with titles, labels at both axes, a colour bar with numbers, and hatched hidden keys. */
mha_status mha__draw_svg(const mha__picture *picture, const char *path, mha_error *error);
/* Only the maps in 8-bit colours, with a colour bar; text chunks hold title and largest weight. */
mha_status mha__draw_png(const mha__picture *picture, const char *path, mha_error *error);

#endif
