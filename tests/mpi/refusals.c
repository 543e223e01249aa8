/* All ranks refuse the call that one refuses, with the same words, and none waits for it: calls that are wrong on one
 * rank, calls that differ, memory that ends on one rank at every place in turn. No output is touched. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "mha/mpi.h"
#include "support/failing.h"

static int rank, ranks;

static void wrong(const char *what, const char *found)
{
    fprintf(stderr, "rank %d of %d: %s: %s\n", rank, ranks, what, found);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The same status and message as rank 0 has, which contains `words`. */
static void expect_agreed(const char *what, mha_status status, const mha_error *error, mha_status expected,
                          const char *words)
{
    mha_error first = *error;
    int code = (int)status;
    MPI_Bcast(&first, (int)sizeof first, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (status != expected || code != (int)status)
        wrong(what, status == MHA_OK ? "was not refused" : error->message);
    if (strcmp(first.message, error->message) != 0 || strcmp(first.name, error->name) != 0)
        wrong(what, "another message than that of rank 0");
    if (!strstr(error->message, words))
        wrong(what, error->message);
}

enum { B = 2, T = 16, D = 32, HEADS = 56 };

typedef struct setting {
    mha_params *table;
    mha_mpi_layer *layer;
    mha_share share;
    float x[B * T * D], y[B * T * D];
    mha_call call;
} setting;

static const mha_config config = {.d_model = D, .n_heads = HEADS, .d_k = 4, .bias_o = true};

static mha_status make(setting *s, mha_split_scheme scheme, mha_path path, const mha_allocator *allocator,
                       mha_error *error)
{
    mha_status status = mha_params_create(allocator, &s->table, NULL);
    if (status != MHA_OK) /* a rank that cannot even have a table has no layer to fail in: it takes the default */
        status = mha_params_create(NULL, &s->table, NULL);
    s->layer = NULL;
    status = mha_mpi_layer_create(MPI_COMM_WORLD, scheme, &config, s->table, NULL, &s->layer, error);
    if (status != MHA_OK)
        return status;
    if (mha_mpi_layer_share(s->layer, B, T, T, path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32, &s->share, error))
        wrong("share", error->message);
    const size_t rows = scheme == MHA_SPLIT_TENSOR ? T : s->share.queries[0].count + s->share.queries[1].count;
    memset(s->y, 0x5A, sizeof s->y);
    s->call = (mha_call){.query = mha_rows(s->x, B, rows, D), .output = mha_rows(s->y, B, rows, D), .path = path,
                         .threads = 1, .semantics = {.visible.causal = true}};
    return MHA_OK;
}

static void expect_untouched(const setting *s)
{
    for (size_t i = 0; i < sizeof s->y; i++)
        if (((const unsigned char *)s->y)[i] != 0x5A)
            wrong("output", "was touched");
}

static void done(setting *s)
{
    mha_mpi_layer_destroy(s->layer);
    mha_params_destroy(s->table);
}

/* ---------------------------------------------------------------- calls that are wrong on the last rank */

static void wrong_shape(mha_call *c)
{
    c->query.shape[2]--;
}

static void wrong_rows(mha_call *c)
{
    c->query.shape[1]++;
}

static void no_data(mha_call *c)
{
    c->query.data = NULL;
}

static void wrong_output(mha_call *c)
{
    c->output.dtype = MHA_I32;
}

static void on_the_query(mha_call *c)
{
    c->output = c->query;
}

static void stages(mha_call *c)
{
    c->keep_count = 1;
}

static void wrong_rank(mha_call *c)
{
    c->query.rank = 2;
}

static void not_causal(mha_call *c)
{
    c->semantics.visible.causal = false;
}

static void other_path(mha_call *c)
{
    c->path = c->path == MHA_PATH_BLAS ? MHA_PATH_FAST : MHA_PATH_BLAS;
}

/* Path auto of a program, which is another path on another instruction set. */
static void other_isa(mha_call *c)
{
    (void)mha_isa_select("scalar", NULL);
    other_path(c);
}

static void bad_mask(mha_call *c)
{
    static unsigned char mask[3];
    c->semantics.visible.mask = (mha_mask){MHA_MASK_KEEPS, mha_view_of(mask, MHA_BOOL, 1, (size_t[]){T + 1})};
}

static void bad_heads(mha_call *c)
{
    static int64_t lists[HEADS];
    c->semantics.visible.pattern.key_lists = mha_view_of(lists, MHA_I64, 3, (size_t[]){HEADS / 7, 1, 1});
}

static void no_latents(mha_call *c)
{
    c->absorbed = true;
}

static void wrong_calls(mha_split_scheme scheme)
{
    static const struct {
        const char *what;
        void (*spoil)(mha_call *call);
        mha_status status;
        const char *words;
    } list[] = {
        {"width", wrong_shape, MHA_INVALID, "expected shape"},   {"rows", wrong_rows, MHA_INVALID, "expected shape"},
        {"data", no_data, MHA_INVALID, "expected data"},               {"output", wrong_output, MHA_INVALID, "I32"},
        {"on the query", on_the_query, MHA_INVALID, "an overlap with query"},
        {"stages", stages, MHA_UNSUPPORTED, "no kept stages"},   {"rank", wrong_rank, MHA_INVALID, "found rank 2"},
        {"causal", not_causal, MHA_INVALID, "found different ones"}, {"path", other_path, MHA_INVALID,
                                                                      "found different ones"},
        {"instruction set", other_isa, MHA_INVALID, "different instruction sets"},
        {"mask", bad_mask, MHA_INVALID, "broadcasts"},            {"heads", bad_heads, MHA_INVALID, "56 heads or one"},
        {"absorbed", no_latents, MHA_UNSUPPORTED, "kv_rank"},
    };
    static setting s;
    mha_error error;
    if (make(&s, scheme, MHA_PATH_FAST, NULL, &error))
        wrong("make", error.message);
    const mha_call right = s.call;
    const char *isa = mha_isa();
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if ((ranks == 1 && strstr(list[i].words, "different")) ||
            (list[i].spoil == other_isa && strcmp(isa, "scalar") == 0))
            continue;
        s.call = right;
        if (rank == ranks - 1)
            list[i].spoil(&s.call);
        if (ranks > T && mha_view_elements(&right.query) == 0)
            continue;
        const mha_status status = mha_mpi_forward(s.layer, &s.call, T, T, &error);
        (void)mha_isa_select(isa, NULL);
        expect_agreed(list[i].what, status, &error, list[i].status, list[i].words);
        expect_untouched(&s);
    }
    s.call = right;
    if (mha_mpi_forward(s.layer, &s.call, T, T, rank % 2 ? NULL : &error) != MHA_OK)
        wrong("afterwards", error.message);
    done(&s);
}

/* ---------------------------------------------------------------- what a ring does not take */

static void unsupported(mha_split_scheme scheme)
{
    static setting s;
    static const int64_t cu[3] = {0, 3, T};
    mha_error error;
    if (make(&s, scheme, MHA_PATH_FAST, NULL, &error))
        wrong("make", error.message);
    const mha_call right = s.call;
    s.call.semantics.softmax.hidden_values = MHA_HIDDEN_PROPAGATE;
    expect_agreed("hidden", mha_mpi_forward(s.layer, &s.call, T, T, &error), &error, MHA_UNSUPPORTED, "propagate");
    s.call = right;
    s.call.semantics.softmax.normaliser = MHA_SIGMOID;
    expect_agreed("sigmoid", mha_mpi_forward(s.layer, &s.call, T, T, &error), &error, MHA_UNSUPPORTED, "lse");
    s.call = right;
    s.call.semantics.place.cu_seqlens_q = cu, s.call.semantics.place.n_sequences = 2;
    expect_agreed("ragged", mha_mpi_forward(s.layer, &s.call, T, T, &error), &error, MHA_UNSUPPORTED, "use ulysses");
    s.call = right;
    const mha_cache_spec spec = {.batch = B, .kv_heads = HEADS, .d_k = 4, .d_v = 4, .capacity = T};
    if (mha_cache_create(&spec, NULL, &s.call.cache, &error))
        wrong("cache", error.message);
    expect_agreed("cache", mha_mpi_forward(s.layer, &s.call, T, T, &error), &error, MHA_UNSUPPORTED, "tensor and");
    mha_cache_destroy(s.call.cache);
    s.call = right;
    static unsigned char blocks[9];
    s.call.semantics.visible.pattern = (mha_pattern){
        .blocks = {MHA_MASK_KEEPS, mha_view_of(blocks, MHA_BOOL, 1, (size_t[]){3})},
        .block_queries = 1,
        .block_keys = 7};
    if (ranks > 1)
        expect_agreed("blocks", mha_mpi_forward(s.layer, &s.call, T, T, &error), &error, MHA_UNSUPPORTED,
                      "inside a block of 7");
    s.call.semantics.visible.pattern.blocks.values = mha_view_of(blocks, MHA_BOOL, 2, (size_t[]){3, 1});
    s.call.semantics.visible.pattern.block_queries = 7, s.call.semantics.visible.pattern.block_keys = 1;
    if (ranks > 1)
        expect_agreed("blocks", mha_mpi_forward(s.layer, &s.call, T, T, &error), &error, MHA_UNSUPPORTED,
                      "inside a block of 7");
    expect_untouched(&s);
    done(&s);
}

/* Attention without a layer. */
static void alone(void)
{
    static float x[D];
    mha_error error;
    mha_call call = {.query = mha_rows(x, 1, 1, D)};
    expect_agreed("rank 3", mha_mpi_attend(MPI_COMM_WORLD, MHA_SPLIT_RING, &call, 1, 1, &error), &error, MHA_INVALID,
                  "(B, rows, heads, width)");
    call.query = mha_heads(x, 1, 1, 1, D);
    expect_agreed("tensor", mha_mpi_attend(MPI_COMM_WORLD, MHA_SPLIT_TENSOR, &call, 1, 1, &error), &error,
                  MHA_UNSUPPORTED, "use ulysses");
    call.key = mha_heads(x, 1, 1, 2, D / 2);
    expect_agreed("heads", mha_mpi_attend(MPI_COMM_WORLD, MHA_SPLIT_RING, &call, 1, 1, &error), &error, MHA_INVALID,
                  "");
    call.key = (mha_view){0};
    if (ranks > 1) /* every rank says that it has the only row */
        expect_agreed("rows", mha_mpi_attend(MPI_COMM_WORLD, MHA_SPLIT_RING, &call, 1, 1, &error), &error,
                      MHA_INVALID, "expected shape (1, 0, 1, 32)");
}

/* Parts of a cache that do not fit together. */
static void caches(mha_mpi_layer *layer)
{
    static const float x[D] = {0};
    static const int64_t cu[2] = {0, 1};
    static unsigned char mask[3];
    static float rows[HEADS * 4 * 2];
    float y[D];
    mha_error error;
    mha_call call = {.path = MHA_PATH_FAST, .query = mha_rows(x, 1, 1, D), .output = mha_rows(y, 1, 1, D)};
    expect_agreed("no cache", mha_mpi_forward(layer, &call, 1, 1, &error), &error, MHA_INVALID, "expected the part");
    const mha_cache_spec spec = {.batch = 1, .kv_heads = HEADS, .d_k = 4, .d_v = 4, .capacity = 2};
    if (mha_cache_create(&spec, NULL, &call.cache, &error))
        wrong("cache", error.message);
    call.semantics.place.cu_seqlens_q = cu, call.semantics.place.n_sequences = 1;
    expect_agreed("ragged", mha_mpi_forward(layer, &call, 1, 1, &error), &error, MHA_UNSUPPORTED, "ulysses or tensor");
    call.semantics = (mha_semantics){.visible.mask = {MHA_MASK_KEEPS, mha_view_of(mask, MHA_BOOL, 1, (size_t[]){3})}};
    expect_agreed("mask", mha_mpi_forward(layer, &call, 1, 1, &error), &error, MHA_INVALID,
                  "expected 1 columns for 1 keys");
    static int64_t segments[3];
    call.semantics =
        (mha_semantics){.visible.pattern = {.q_segments = mha_view_of(segments, MHA_I64, 1, (size_t[]){1})}};
    call.semantics.visible.pattern.k_segments = mha_view_of(segments, MHA_I64, 1, (size_t[]){3});
    expect_agreed("segments", mha_mpi_forward(layer, &call, 1, 1, &error), &error, MHA_INVALID, "3");
    call.semantics = (mha_semantics){.visible.causal = true};
    const size_t T_k = 2 * (size_t)ranks + 1;
    float *many = calloc(T_k * D, sizeof *many);
    call.key = mha_rows(many, 1, T_k, D);
    expect_agreed("room", mha_mpi_forward(layer, &call, 1, T_k, &error), &error, MHA_INVALID, "expected room");
    call.key = (mha_view){0};
    free(many);
    const mha_view one = mha_view_of(rows, MHA_F32, 4, (size_t[]){1, HEADS, 1, 4});
    if (mha_cache_load(call.cache, &one, &one, &error)) /* a row on each rank, but rank 0 has room for two */
        wrong("load", error.message);
    if (ranks > 1)
        expect_agreed("rows", mha_mpi_forward(layer, &call, 1, 1, &error), &error, MHA_INVALID, "rows on this rank");
    if (rank > 0) /* one row in all */
        mha_cache_clear(call.cache);
    for (size_t i = 0; i < 2 * (size_t)ranks - 1; i++)
        if (mha_mpi_forward(layer, &call, 1, 1, &error) != MHA_OK)
            wrong("decoding", error.message);
    if (mha_cache_length(call.cache) != 2)
        wrong("decoding", "a cache is not full");
    mha_cache_destroy(call.cache);
}

static void layers(void)
{
    mha_error error;
    mha_mpi_layer *layer = NULL;
    mha_config other = config;
    other.bias_q = ranks > 1 && rank == ranks - 1;
    mha_status status = mha_mpi_layer_create(MPI_COMM_WORLD, MHA_SPLIT_RING, &other, NULL, NULL, &layer, &error);
    if (ranks > 1)
        expect_agreed("other layers", status, &error, MHA_INVALID, "found different ones");
    mha_mpi_layer_destroy(ranks > 1 ? NULL : layer);
    other = (mha_config){.d_model = 10, .n_heads = 5};
    status = mha_mpi_layer_create(MPI_COMM_WORLD, MHA_SPLIT_TENSOR, &other, NULL, NULL, &layer, &error);
    if (ranks > 1)
        expect_agreed("5 heads", status, &error, MHA_INVALID, "(1, 5)");
    else
        mha_mpi_layer_destroy(layer);
    status = mha_mpi_layer_create(MPI_COMM_WORLD, MHA_SPLIT_CACHE, &config, NULL, NULL, &layer, &error);
    if (status)
        wrong("cache", error.message);
    caches(layer);

    /* Weights: only whole ones of the layer. */
    float w[D];
    mha_view view = mha_view_of(w, MHA_F32, 1, (size_t[]){D - 1});
    mha_layer *small;
    if (mha_mpi_layer_set(layer, MHA_B_O, &view, &error) != MHA_INVALID ||
        mha_mpi_layer_set(layer, MHA_B_Q, &view, &error) != MHA_NOT_FOUND)
        wrong("set", "was not refused");
    other = (mha_config){.d_model = 10, .n_heads = 5};
    if (mha_layer_create(&other, NULL, NULL, &small, &error) ||
        mha_mpi_layer_take(layer, small, &error) != MHA_INVALID)
        wrong("take", "was not refused");
    mha_layer_destroy(small);
    mha_share share;
    if (mha_mpi_layer_share(layer, SIZE_MAX, 2, 2, MHA_F32, &share, &error) != MHA_INVALID)
        wrong("share", "was not refused");
    mha_mpi_layer_destroy(layer);
}

/* ---------------------------------------------------------------- memory that ends on the last rank */

static void memory(mha_split_scheme scheme, mha_path path)
{
    static setting s;
    mha_error error;
    size_t refused = 0;
    for (size_t at = 2;; at++) { /* the first block is the table */
        failing f = {.fail_at = rank == ranks - 1 ? at : 0};
        const mha_allocator allocator = failing_allocator(&f);
        mha_status status = make(&s, scheme, path, &allocator, &error);
        if (status == MHA_OK) {
            status = mha_mpi_forward(s.layer, &s.call, T, T, &error);
            if (status != MHA_OK)
                expect_untouched(&s);
        }
        if (status != MHA_OK)
            expect_agreed("memory", status, &error, MHA_NO_MEMORY, "");
        done(&s);
        if (f.live_blocks != 0 || f.bugs != 0)
            wrong("memory", "was not given back");
        if (status == MHA_OK)
            break;
        refused++;
    }
    if (refused < 10)
        wrong("memory", "ended at fewer than ten places");
}

int main(int argc, char **argv)
{
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int scheme = 0; scheme < MHA_SPLIT_CACHE; scheme++) {
        const mha_split_scheme s = (mha_split_scheme)scheme;
        mha_split split = {s, (size_t)ranks, config, 1, 1, 1, MHA_F32, 0, 0, false};
        if (mha_split_check(&split, NULL) != MHA_OK)
            continue;
        wrong_calls(s);
        memory(s, scheme % 2 ? MHA_PATH_EXACT : MHA_PATH_FAST);
        if (scheme >= MHA_SPLIT_RING)
            unsupported(s);
    }
    layers();
    alone();
    if (rank == 0)
        printf("%d ranks refuse together\n", ranks);
    MPI_Finalize();
    return 0;
}
