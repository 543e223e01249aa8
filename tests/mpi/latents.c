/* Layers with latents and gates, shared by the ranks that mpirun starts, against one process: tables, bits, bounds,
 * bytes and what is cached; in one call, or in two with a cache, of keys and values or of latents (absorbed).
 * LATENTS_TRIALS=n tries n layers, LATENTS_SEED=s begins with that seed. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "mha/mpi.h"
#include "support/merged.h"
#include "support/trial.h"
#include "support/words.h"

enum { MOST = 1 << 13 }; /* numbers of one array */

static int rank, ranks;
static uint64_t state, sent, shared;

__attribute__((format(printf, 1, 2), noreturn)) static void wrong(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "rank %d of %d: ", rank, ranks);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    int size = 0;
    PMPI_Type_size(type, &size);
    sent += (uint64_t)count * (uint64_t)size;
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

static size_t below(size_t n)
{
    return (size_t)(word(&state) % n);
}

/* ---------------------------------------------------------------- a drawn layer and its sequence */

typedef struct drawn {
    mha_layer *layer;
    size_t B, T, first; /* rows; of those the ones of the first of two calls, 0: one call has all */
    mha_semantics semantics;
    double *inputs;   /* (B, T, d_q), numbers of a float */
    double slopes[16];
    double *expected; /* (B, T, d_out), by the exact path of one process */
    double X, m;      /* largest value, largest score and logarithm of the terms */
} drawn;

static mha_view rows_of(const drawn *d, size_t from, size_t n, mha_dtype type, void *memory)
{
    const size_t width = mha_layer_config(d->layer)->d_q;
    const mha_view all = mha_view_of(d->inputs, MHA_F64, 3, (size_t[]){d->B, d->T, width}),
                   some = mha_view_slice(&all, 1, from, n),
                   own = mha_view_of(memory, type, 3, (size_t[]){d->B, n, width});
    if (mha_view_copy(&own, &some, NULL) != MHA_OK)
        wrong("rows");
    return own;
}

static void expect(drawn *d, uint64_t seed)
{
    static double v[MOST], masked[MOST * 4];
    mha_error error;
    const mha_config *c = mha_layer_config(d->layer);
    const size_t B = d->B, T = d->T;
    mha_keep keep[2] = {
        {MHA_STAGE_V, mha_view_of(v, MHA_F64, 3, (size_t[]){B, T, c->kv_heads * c->d_v}), 0},
        {MHA_STAGE_MASKED, mha_view_of(masked, MHA_F64, 4, (size_t[]){B, c->n_heads, T, T}), 0}};
    static double x[MOST];
    const mha_call call = {.query = rows_of(d, 0, T, MHA_F64, x), .keep = keep, .keep_count = 2, .path = MHA_PATH_EXACT,
                           .output = mha_view_of(d->expected, MHA_F64, 3, (size_t[]){B, T, c->d_out}),
                           .semantics = d->semantics};
    if (mha_run(d->layer, &call, &error))
        wrong("seed %llu: %s: %s", (unsigned long long)seed, error.name, error.message);
    d->X = merged_largest(&keep[0].view);
    d->m = merged_largest(&keep[1].view);
    if (c->sinks) {
        const mha_view sinks = mha_tensor_view(mha_layer_weight(d->layer, MHA_SINKS));
        d->m = fmax(d->m, merged_largest(&sinks));
    }
    d->m += log((double)T + 4);
}

static void draw(drawn *d, uint64_t seed)
{
    static double inputs[MOST], expected[MOST];
    *d = (drawn){.inputs = inputs, .expected = expected, .B = 1 + seed % 2};
    state = seed;
    mha_config c = {.d_model = 6 + below(12), .d_k = 3 + below(6), .d_v = 1 + below(6), .gate = (mha_gate)below(3),
                    .bias_o = below(2), .sinks = below(3) == 0};
    c.n_heads = below(3) ? (size_t)ranks * (1 + below(2)) : 1 + below(6);
    c.bias_gate = c.gate != MHA_GATE_NONE && below(2);
    if (below(4)) {
        c.kv_rank = 1 + below(9), c.q_rank = below(2) * (1 + below(7)), c.bias_latent = below(2);
        c.d_rope = 2 * below((c.d_k + 1) / 2);
    } else {
        c.q_norm = below(2) ? MHA_NORM_EACH_HEAD : MHA_NORM_HEAD;
        c.k_norm = below(2) ? MHA_NORM_EACH_HEAD : MHA_NORM_HEAD;
        c.bias_k = below(2), c.norm_bias = below(2);
    }
    mha_error error;
    if (mha_layer_create(&c, NULL, NULL, &d->layer, &error))
        wrong("seed %llu: %s: %s", (unsigned long long)seed, error.name, error.message);
    mha_layer_init(d->layer, seed);
    mha_semantics *s = &d->semantics;
    d->T = 1 + below(20);
    d->first = below(2) ? below(d->T) : 0;
    s->visible.causal = below(4) != 0;
    s->softmax.softcap = below(3) ? 0 : 3;
    s->qkv.norm_eps = below(2) ? 0 : 0.02;
    if (below(4) == 0)
        s->visible.has_window_left = true, s->visible.window_left = (int64_t)below(6);
    if (below(4) == 0)
        s->added.alibi_slopes = d->slopes;
    for (size_t i = 0; i < 16; i++)
        d->slopes[i] = 1.0 / (double)(1 + below(9));
    const size_t turned = c.kv_rank ? c.d_rope : c.d_k / 2 * 2;
    if (turned > 0 && below(4))
        s->qkv.rope = (mha_rope){.kind = below(2) ? MHA_ROPE_INTERLEAVED : MHA_ROPE_HALF_SPLIT, .base = 100,
                             .dim = turned, .last = c.kv_rank};
    const mha_view x = mha_view_of(inputs, MHA_F64, 1, (size_t[]){d->B * d->T * mha_layer_config(d->layer)->d_q});
    mha_random_fill(&x, seed, 100, -1, 1);
    for (size_t i = 0; i < mha_view_elements(&x); i++)
        inputs[i] = (float)inputs[i];
    expect(d, seed);
}

/* ---------------------------------------------------------------- one scheme */

typedef struct form {
    mha_split_scheme scheme;
    mha_path path;
    bool absorbed, packed;
} form;

static double allowed(const drawn *d, const form *f, const mha_call *call)
{
    double bound[MHA_STAGE_COUNT], own[MHA_STAGE_COUNT];
    mha_error error;
    static double x[MOST];
    mha_call whole = {.query = rows_of(d, 0, d->T, MHA_F64, x), .path = MHA_PATH_EXACT, .semantics = d->semantics};
    if (mha_error_bound(d->layer, &whole, 0x1p-53, own, MHA_STAGE_COUNT, &error))
        wrong("bound: %s", error.message);
    whole.absorbed = call->absorbed;
    const double unit = f->path == MHA_PATH_EXACT ? 0x1p-53 : 0x1p-24;
    if (mha_error_bound(d->layer, &whole, unit, bound, MHA_STAGE_COUNT, &error))
        wrong("bound: %s", error.message);
    const mha_view W = mha_tensor_view(mha_layer_weight(d->layer, MHA_W_O));
    const double most = f->scheme < MHA_SPLIT_RING
                            ? bound[MHA_STAGE_OUTPUT]
                            : merged_output(&W, d->X, d->m, bound, unit, 2 * (size_t)ranks + 4);
    return most + own[MHA_STAGE_OUTPUT];
}

/* The numbers that all ranks store: the layer, once without replicas. */
static void expect_table(const drawn *d, const mha_mpi_layer *layer, uint64_t seed)
{
    mha_mpi_sum sum;
    mha_error error;
    if (mha_mpi_totals(layer, &sum, &error) != MHA_OK)
        wrong("totals: %s", error.message);
    if (sum.unique != mha_params_totals(mha_layer_params(d->layer), NULL).parameters)
        wrong("seed %llu: the tables have %llu parameters without replicas", (unsigned long long)seed,
              (unsigned long long)sum.unique);
}

/* This rank's cache of the first call's rows, or of all of one decoding call. */
static mha_cache *make_cache(const drawn *d, const form *f, const mha_share *share)
{
    const mha_config *c = mha_layer_config(d->layer);
    const size_t P = (size_t)ranks;
    mha_cache *cache;
    mha_error error;
    const mha_cache_spec spec = {.batch = d->B, .kv_heads = f->absorbed ? 1 : share->kv_heads.count,
                                 .d_k = f->absorbed ? c->kv_rank + c->d_rope : c->d_k, .d_v = f->absorbed ? 0 : c->d_v,
                                 .capacity = f->scheme == MHA_SPLIT_CACHE ? (d->T + P - 1) / P : d->T,
                                 .dtype = f->path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32};
    if (mha_cache_create(&spec, NULL, &cache, &error))
        wrong("cache: %s", error.message);
    return cache;
}

/* One call for rows [from, from + n) of the sequence, and what this rank has of it against what is expected. */
static void one_call(const drawn *d, const form *f, mha_mpi_layer *layer, mha_cache *cache, size_t from, size_t n,
                     uint64_t seed)
{
    static char x[MOST * 8], y[MOST * 8];
    mha_error error;
    mha_share share;
    const bool wide = f->path == MHA_PATH_EXACT, all = f->scheme == MHA_SPLIT_TENSOR || f->scheme == MHA_SPLIT_CACHE;
    const mha_dtype type = wide ? MHA_F64 : MHA_F32;
    const size_t d_out = mha_layer_config(d->layer)->d_out;
    if (mha_mpi_layer_share(layer, d->B, n, n, type, &share, &error))
        wrong("share: %s", error.message);
    mha_range chunks[2] = {{0, n}, {n, 0}};
    if (!all)
        memcpy(chunks, share.queries, sizeof chunks);
    const size_t rows = chunks[0].count + chunks[1].count;
    const mha_view query = rows_of(d, from, n, type, x);
    mha_call call = {.query = query, .semantics = d->semantics, .cache = cache, .absorbed = f->absorbed,
                     .path = f->path, .threads = 1,
                     .output = mha_view_of(y, type, 3, (size_t[]){d->B, rows, d_out})};
    static char own[MOST * 8];
    if (!all) {
        call.query = mha_view_of(own, type, 3, (size_t[]){d->B, rows, query.shape[2]});
        for (size_t i = 0, at = 0; i < 2; at += chunks[i].count, i++) {
            const mha_view part = mha_view_slice(&query, 1, chunks[i].from, chunks[i].count),
                           to = mha_view_slice(&call.query, 1, at, chunks[i].count);
            (void)mha_view_copy(&to, &part, NULL);
        }
    }
    sent = 0;
    if (mha_mpi_forward(layer, &call, n, n, &error))
        wrong("seed %llu, %s on %s: %s: %s", (unsigned long long)seed, mha_split_scheme_name(f->scheme),
              mha_path_name(f->path), error.name, error.message);
    if (sent != share.bytes_sent)
        wrong("seed %llu: sent %llu bytes, planned %llu", (unsigned long long)seed, (unsigned long long)sent,
              (unsigned long long)share.bytes_sent);
    if (!d->semantics.visible.causal && from + n < d->T) /* later rows are seen, too */
        return;
    const bool same = wide && !all && !cache;
    const double most = same ? 0 : allowed(d, f, &call);
    for (size_t b = 0; b < d->B; b++)
        for (size_t i = 0, at = 0; i < 2; i++)
            for (size_t t = 0; t < chunks[i].count; t++, at++)
                for (size_t j = 0; j < d_out; j++) {
                    const double found = mha_view_get(&call.output, (size_t[]){b, at, j}),
                                 e = d->expected[(b * d->T + from + chunks[i].from + t) * d_out + j];
                    if (!(fabs(found - e) <= most))
                        wrong("seed %llu, %s on %s%s: (%zu, %zu, %zu) is %.9g, expected %.9g within %.3g",
                              (unsigned long long)seed, mha_split_scheme_name(f->scheme), mha_path_name(f->path),
                              f->absorbed ? ", absorbed" : "", b, from + chunks[i].from + t, j, found, e, most);
                }
    shared++;
}

static void one_form(const drawn *d, const form *f, uint64_t seed)
{
    mha_error error;
    mha_mpi_layer *layer;
    mha_share share;
    const mha_config *c = mha_layer_config(d->layer);
    mha_split split = {.scheme = f->scheme, .ranks = (size_t)ranks, .config = *c, .absorbed = f->absorbed};
    const bool ring = f->scheme == MHA_SPLIT_RING || f->scheme == MHA_SPLIT_ZIGZAG,
               in_two = (d->first > 0 && !ring) || f->scheme == MHA_SPLIT_CACHE;
    if (mha_split_check(&split, NULL) != MHA_OK)
        return;
    if (mha_mpi_layer_create(MPI_COMM_WORLD, f->scheme, c, NULL, NULL, &layer, &error) ||
        mha_mpi_layer_take(layer, d->layer, &error) ||
        (f->packed && mha_layer_pack(mha_mpi_layer_own(layer), &error)) ||
        mha_mpi_layer_share(layer, d->B, d->T, d->T, MHA_F32, &share, &error))
        wrong("seed %llu: %s", (unsigned long long)seed, error.message);
    expect_table(d, layer, seed);
    mha_cache *cache = in_two ? make_cache(d, f, &share) : NULL;
    if (d->first > 0 && in_two)
        one_call(d, f, layer, cache, 0, d->first, seed);
    const size_t from = in_two ? d->first : 0;
    one_call(d, f, layer, cache, from, d->T - from, seed);
    if (in_two && f->scheme != MHA_SPLIT_CACHE && mha_cache_length(cache) != d->T)
        wrong("seed %llu: %zu rows are cached", (unsigned long long)seed, mha_cache_length(cache));
    mha_cache_destroy(cache);
    mha_mpi_layer_destroy(layer);
}

int main(int argc, char **argv)
{
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const uint64_t first = trial_number("LATENTS_SEED", 1), n = trial_count("LATENTS_TRIALS", 8);
    static const struct {
        mha_path path;
        bool packed;
    } ways[] = {{MHA_PATH_EXACT, false}, {MHA_PATH_BLAS, false}, {MHA_PATH_FAST, true}};
    for (uint64_t seed = first; seed < first + n; seed++) {
        drawn d;
        draw(&d, seed);
        for (int scheme = 0; scheme < MHA_SPLIT_COUNT; scheme++)
            for (size_t w = 0; w < 3; w++)
                for (int absorbed = 0; absorbed < 2; absorbed++) {
                    const form f = {(mha_split_scheme)scheme, ways[w].path, absorbed, ways[w].packed};
                    if (w == 0 || (seed + (uint64_t)scheme) % 2 == w - 1)
                        one_form(&d, &f, seed);
                }
        mha_layer_destroy(d.layer);
    }
    if (rank == 0)
        printf("%d ranks: %llu calls of layers with latents and gates shared\n", ranks, (unsigned long long)shared);
    MPI_Finalize();
    return 0;
}
