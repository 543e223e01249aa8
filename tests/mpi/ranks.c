/* Random layers shared by the ranks that mpirun starts, against one process: bits, bounds, bytes, refusals.
 * RANKS_TRIALS=n tries n random calls, RANKS_SEED=s begins with that seed. Ends with a line of rank 0, or with
 * MPI_Abort and a line of the rank that found something wrong. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "mha/mpi.h"
#include "support/merged.h"
#include "support/rerun.h"
#include "support/trial.h"
#include "support/unit.h"

static int rank, ranks;
static uint64_t checks;

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

#define EXPECT(condition, ...)                                                                                         \
    do {                                                                                                               \
        checks++;                                                                                                      \
        if (!(condition))                                                                                              \
            wrong(__VA_ARGS__);                                                                                        \
    } while (0)

/* ---------------------------------------------------------------- what MPI is asked for */

static struct {
    uint64_t sent, received, agreed, other;
} traffic;

static uint64_t bytes_of(int count, MPI_Datatype type)
{
    int size = 0;
    PMPI_Type_size(type, &size);
    return (uint64_t)count * (uint64_t)size;
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    traffic.sent += to == rank ? 0 : bytes_of(count, type);
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
    traffic.received += from == rank ? 0 : bytes_of(count, type);
    return PMPI_Irecv(data, count, type, from, tag, comm, request);
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    traffic.agreed += bytes_of(count, type);
    return PMPI_Allreduce(in, out, count, type, op, comm);
}

int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    traffic.other += bytes_of(count, type);
    return PMPI_Bcast(data, count, type, root, comm);
}

/* ---------------------------------------------------------------- one call on all ranks */

typedef struct shared {
    mha_mpi_layer *layer;
    mha_share share;
    rerun r; /* memory, and the call of this rank */
    mha_cache *cache;
    size_t order[512], k_order[512], rows;
    mha_view output;
} shared;

static size_t list(const mha_range chunks[2], size_t *order)
{
    size_t n = 0;
    for (int i = 0; i < 2; i++)
        for (size_t t = 0; t < chunks[i].count; t++)
            order[n++] = chunks[i].from + t;
    return n;
}

static mha_view own_rows(rerun *r, const mha_view *whole, const size_t *order, size_t n)
{
    if (n == 0 && whole->data)
        return mha_view_slice(whole, 1, 0, 0);
    return n == whole->shape[1] && whole->shape[1] == 1 ? *whole : rerun_gather(r, whole, 1, order, n);
}

static mha_view without_gaps(rerun *r, mha_dtype dtype, size_t B, size_t T, size_t width)
{
    mha_view v = mha_view_of(NULL, dtype, 3, (size_t[]){B, T, width});
    v.data = rerun_memory(r, mha_view_elements(&v) * sizeof(double) + 1);
    memset(v.data, 0xFF, mha_view_elements(&v) * sizeof(double));
    return v;
}

static void make_cache(shared *s, const rig *g, mha_path path, size_t capacity)
{
    const mha_config *c = mha_layer_config(g->layer);
    mha_error error;
    mha_view k = mha_view_slice(&g->past.keys, 1, s->share.kv_heads.from, s->share.kv_heads.count),
             v = mha_view_slice(&g->past.values, 1, s->share.kv_heads.from, s->share.kv_heads.count);
    const mha_view *key = g->call.key.data ? &g->call.key : &g->call.query;
    const size_t past = k.shape[2], first = (size_t)rank * capacity;
    if (capacity > 0) { /* this rank's rows of it */
        const size_t n = first >= past ? 0 : past - first < capacity ? past - first : capacity;
        k = mha_view_slice(&k, 2, n ? first : 0, n), v = mha_view_slice(&v, 2, n ? first : 0, n);
    }
    const mha_cache_spec spec = {.batch = k.shape[0], .kv_heads = k.shape[1], .d_k = c->d_k, .d_v = c->d_v,
                                 .capacity = capacity ? capacity : k.shape[2] + key->shape[1],
                                 .dtype = path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32};
    if (mha_cache_create(&spec, NULL, &s->cache, &error) || mha_cache_load(s->cache, &k, &v, &error))
        wrong("cache: %s", error.message);
    s->r.call.cache = s->cache;
}

/* This rank's part of a call. */
static void share_call(shared *s, const rig *g, mha_path path, size_t capacity)
{
    mha_call *c = &s->r.call;
    const bool whole = s->share.config.n_heads != mha_layer_config(g->layer)->n_heads || ranks == 1 || capacity > 0;
    rerun_init(&s->r, NULL, &g->call, &g->past.keys, &g->past.values);
    s->rows = list(s->share.queries, s->order);
    const size_t k_rows = list(s->share.keys, s->k_order);
    if (!whole) {
        c->query = own_rows(&s->r, &c->query, s->order, s->rows);
        if (c->key.data)
            c->key = own_rows(&s->r, &c->key, s->k_order, k_rows);
        if (c->value.data)
            c->value = own_rows(&s->r, &c->value, s->k_order, k_rows);
    }
    c->path = path;
    c->threads = 1;
    s->output = c->output = without_gaps(&s->r, path == MHA_PATH_EXACT || s->rows % 2 ? MHA_F64 : MHA_F32,
                                         c->query.shape[0], s->rows, mha_layer_config(g->layer)->d_out);
    s->cache = NULL;
    if (g->past.keys.data)
        make_cache(s, g, path, capacity);
}

static void release(shared *s)
{
    rerun_free(&s->r);
    mha_cache_destroy(s->cache);
    mha_mpi_layer_destroy(s->layer);
    s->cache = NULL, s->layer = NULL;
}

/* ---------------------------------------------------------------- how far a result may lie */

/* `unit` is the roundoff of what is stored. */
static double ring_bound(const rig *g, const rerun *exact, const double *bound, double unit, size_t n)
{
    const mha_view W = mha_tensor_view(mha_layer_weight(g->layer, MHA_W_O));
    double X = merged_largest(&exact->stages[MHA_STAGE_V]), m = merged_largest(&exact->stages[MHA_STAGE_MASKED]);
    if (g->weights[MHA_BIAS_V].data)
        X = fmax(X, merged_largest(&g->weights[MHA_BIAS_V]));
    m = fmax(m, merged_largest(&g->weights[MHA_SINKS])) + log((double)exact->plan.S + 4);
    return merged_output(&W, X, m, bound, unit, n);
}

static void bounds(const rig *g, rerun *exact, double unit, double *bound)
{
    mha_error error;
    mha_call call = g->call;
    call.path = MHA_PATH_EXACT;
    call.cache = exact->cache;
    if (call.cache)
        mha_cache_truncate(call.cache, exact->past_key.shape[2]);
    if (mha_error_bound(g->layer, &call, unit, bound, MHA_STAGE_COUNT, &error))
        wrong("bound: %s", error.message);
}

/* ---------------------------------------------------------------- random calls */

/* Whether rows of the cache can lie on several ranks: a mask must have a column for each key, or one for all. */
static bool parts_a_cache(const rig *g)
{
    const mha_semantics *s = &g->call.semantics;
    return g->past.keys.data && !s->place.cu_seqlens_q && s->softmax.hidden_values != MHA_HIDDEN_PROPAGATE &&
           g->t.mask_short == 0 && s->softmax.normaliser == MHA_SOFTMAX;
}

/* Rows of the cache of a rank; 0 where its heads are cached. */
static size_t capacity_of(const rig *g, mha_split_scheme scheme, uint64_t seed)
{
    const mha_view *key = g->call.key.data ? &g->call.key : &g->call.query;
    const size_t S = key->shape[1] + (g->past.keys.data ? g->past.keys.shape[2] : 0), P = (size_t)ranks;
    return scheme == MHA_SPLIT_CACHE ? (S + P - 1) / P + seed % 2 + (S == 0) : 0;
}

/* Whether no part of a call begins inside a block of its pattern. */
static bool in_whole_blocks(const rig *g, const mha_split *s, size_t capacity)
{
    const mha_pattern *p = &g->call.semantics.visible.pattern;
    const mha_view *v = &p->blocks.values;
    const size_t keys = v->data ? v->shape[v->rank - 1] : 1,
                 queries = v->data && v->rank > 1 ? v->shape[v->rank - 2] : 1;
    const size_t S = s->T_k + (g->past.keys.data ? g->past.keys.shape[2] : 0);
    bool whole = true;
    for (size_t r = 0; r < s->ranks; r++) {
        const mha_share share = mha_split_share(s, r);
        for (size_t i = 0; i < share.chunks && capacity == 0; i++) {
            whole &= queries == 1 || share.queries[i].count == 0 || share.queries[i].from % p->block_queries == 0;
            whole &= keys == 1 || share.keys[i].count == 0 || share.keys[i].from % p->block_keys == 0;
        }
        whole &= capacity == 0 || keys == 1 || r * capacity >= S || r * capacity % p->block_keys == 0;
    }
    return whole;
}

static bool takes(const rig *g, mha_split_scheme scheme, uint64_t seed)
{
    const mha_semantics *s = &g->call.semantics;
    const mha_view *key = g->call.key.data ? &g->call.key : &g->call.query;
    mha_split split = {.scheme = scheme, .ranks = (size_t)ranks, .config = *mha_layer_config(g->layer),
                       .T_q = g->call.query.shape[1], .T_k = key->shape[1]};
    const bool ring = scheme == MHA_SPLIT_RING || scheme == MHA_SPLIT_ZIGZAG;
    return mha_split_check(&split, NULL) == MHA_OK && (scheme != MHA_SPLIT_CACHE || parts_a_cache(g)) &&
           !((ring || scheme == MHA_SPLIT_CACHE) && !in_whole_blocks(g, &split, capacity_of(g, scheme, seed))) &&
           !(ring && (g->past.keys.data || s->place.cu_seqlens_q || s->softmax.hidden_values == MHA_HIDDEN_PROPAGATE ||
                      s->softmax.normaliser != MHA_SOFTMAX));
}

static void expect_whole(const shared *s, const rerun *whole, const char *what, double allowed, uint64_t seed)
{
    mha_difference d;
    mha_error error;
    rerun memory;
    rerun_init(&memory, NULL, &whole->call, NULL, NULL);
    const mha_view expected = own_rows(&memory, &whole->stages[MHA_STAGE_OUTPUT], s->order, s->rows);
    if (mha_view_elements(&expected) > 0 && mha_compare(&s->output, &expected, 0, allowed, &d, &error) != MHA_OK)
        wrong("seed %llu: %s", (unsigned long long)seed, error.message);
    EXPECT(mha_view_elements(&expected) == 0 || d.mismatches == 0, "seed %llu, %s: %g off, allowed %g",
           (unsigned long long)seed, what, d.max_abs, allowed);
    rerun_free(&memory);
}

/* A call before the one that counts, of NaN in place of the queries: the memory that the layer keeps holds none of the
 * numbers which the next call must find. */
static void run_before(shared *s, size_t T_q, size_t T_k)
{
    mha_call before = s->r.call;
    const size_t length = s->cache ? mha_cache_length(s->cache) : 0, width = before.query.shape[2];
    const mha_view query = without_gaps(&s->r, MHA_F32, before.query.shape[0], before.query.shape[1], width);
    before.query = query;
    if (mha_mpi_forward(s->layer, &before, T_q, T_k, NULL) != MHA_OK)
        wrong("a call of NaN was refused");
    if (s->cache)
        mha_cache_truncate(s->cache, length);
}

static void one_scheme(const rig *g, rerun *exact, mha_split_scheme scheme, mha_path path, bool packed, uint64_t seed)
{
    shared s;
    mha_error error;
    char what[60];
    const mha_config *c = mha_layer_config(g->layer);
    const mha_view *key = g->call.key.data ? &g->call.key : &g->call.query;
    const size_t B = g->call.query.shape[0], T_q = g->call.query.shape[1], T_k = key->shape[1];
    const size_t capacity = capacity_of(g, scheme, seed);
    snprintf(what, sizeof what, "%s on %s%s", mha_split_scheme_name(scheme), mha_path_name(path),
             packed ? ", packed" : "");
    const mha_status made = mha_mpi_layer_create(MPI_COMM_WORLD, scheme, c, NULL, NULL, &s.layer, &error);
    EXPECT(made == MHA_OK, "seed %llu, %s: %s", (unsigned long long)seed, what, error.message);
    if (mha_mpi_layer_take(s.layer, g->layer, &error) ||
        (packed && mha_layer_pack(mha_mpi_layer_own(s.layer), &error)) ||
        mha_mpi_layer_share(s.layer, B, T_q, T_k, path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32, &s.share, &error))
        wrong("seed %llu, %s: %s", (unsigned long long)seed, what, error.message);
    share_call(&s, g, path, capacity);
    if (seed / 2 % 2)
        run_before(&s, T_q, T_k);
    memset(&traffic, 0, sizeof traffic);
    const mha_status status = mha_mpi_forward(s.layer, &s.r.call, T_q, T_k, &error);
    EXPECT(status == MHA_OK, "seed %llu, %s: %s: %s", (unsigned long long)seed, what, error.name, error.message);
    EXPECT(traffic.sent == s.share.bytes_sent && traffic.received == s.share.bytes_received,
           "%s: sent %llu and received %llu bytes, planned %llu and %llu", what, (unsigned long long)traffic.sent,
           (unsigned long long)traffic.received, (unsigned long long)s.share.bytes_sent,
           (unsigned long long)s.share.bytes_received);
    EXPECT(traffic.agreed == (capacity ? 88 : 80) && traffic.other == 0, "%s: agreed by %llu and %llu bytes", what,
           (unsigned long long)traffic.agreed, (unsigned long long)traffic.other);

    const bool wide = path == MHA_PATH_EXACT, ring = scheme >= MHA_SPLIT_RING;
    const bool same_order = scheme != MHA_SPLIT_TENSOR && scheme != MHA_SPLIT_CACHE;
    if ((wide && same_order) || (scheme == MHA_SPLIT_ULYSSES && packed)) { /* the same bits */
        rerun same;
        rerun_init(&same, g->layer, &g->call, &g->past.keys, &g->past.values);
        if (rerun_run(&same, path, 1, TRIAL_OUTPUT, &error))
            wrong("seed %llu: %s", (unsigned long long)seed, error.message);
        expect_whole(&s, &same, what, 0, seed);
        rerun_free(&same);
    } else {
        double bound[MHA_STAGE_COUNT], own[MHA_STAGE_COUNT];
        bounds(g, exact, wide ? 0x1p-53 : 0x1p-24, bound);
        bounds(g, exact, 0x1p-53, own);
        const double unit = wide || scheme != MHA_SPLIT_CACHE ? 0x1p-53 : 0x1p-24;
        const double allowed =
            ring ? ring_bound(g, exact, bound, unit, 2 * (size_t)ranks + 4) : bound[MHA_STAGE_OUTPUT];
        expect_whole(&s, exact, what, allowed + own[MHA_STAGE_OUTPUT], seed);
    }
    release(&s);
}

static uint64_t random_calls(uint64_t first, uint64_t n)
{
    uint64_t done = 0;
    for (uint64_t seed = first; done < n; seed++) {
        trial t = trial_draw(seed);
        rig g;
        rerun exact;
        mha_error error;
        if (t.bare)
            continue;
        t.dropout = 0; /* ranks refuse it */
        if (t.semantics.softmax.hidden_values == MHA_HIDDEN_PROPAGATE)
            t.poison = false;
        if (seed % 2) { /* heads that many ranks can share */
            t.config.kv_heads = t.config.kv_heads ? (size_t)ranks * (1 + seed % 4 / 2) : 0;
            t.config.n_heads = (size_t)ranks * (t.config.kv_heads ? t.config.kv_heads / (size_t)ranks : 1) * 2;
            t.config.d_k = t.config.d_k ? t.config.d_k : 4;
            t.config.d_v = t.config.d_v ? t.config.d_v : 3;
        }
        trial_build(&t, &g);
        rerun_init(&exact, g.layer, &g.call, &g.past.keys, &g.past.values);
        if (rerun_run(&exact, MHA_PATH_EXACT, 1, TRIAL_OUTPUT | 1u << MHA_STAGE_V | 1u << MHA_STAGE_MASKED, &error))
            wrong("seed %llu: %s", (unsigned long long)seed, error.message);
        const bool packed = seed % 3 == 0 && t.input_dtype == MHA_F32;
        if (packed && mha_layer_pack(g.layer, &error))
            wrong("pack: %s", error.message);
        for (int scheme = 0; scheme < MHA_SPLIT_COUNT; scheme++) {
            if (!takes(&g, (mha_split_scheme)scheme, seed))
                continue;
            one_scheme(&g, &exact, (mha_split_scheme)scheme, MHA_PATH_EXACT, false, seed);
            const mha_path path = packed ? MHA_PATH_FAST : seed % 2 ? MHA_PATH_BLAS : MHA_PATH_FAST;
            if (t.input_dtype == MHA_F32)
                one_scheme(&g, &exact, (mha_split_scheme)scheme, path,
                           packed && t.semantics.softmax.hidden_values != MHA_HIDDEN_PROPAGATE &&
                               t.semantics.softmax.normaliser == MHA_SOFTMAX, seed);
            done++;
        }
        rerun_free(&exact);
        trial_release(&g);
    }
    return done;
}

int main(int argc, char **argv)
{
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const uint64_t calls = random_calls(trial_number("RANKS_SEED", 1), trial_count("RANKS_TRIALS", 40));
    if (rank == 0)
        printf("%d ranks: %llu calls shared, %llu checks of rank 0\n", ranks, (unsigned long long)calls,
               (unsigned long long)checks);
    MPI_Finalize();
    return 0;
}
