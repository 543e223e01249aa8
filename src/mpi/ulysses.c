/* Ulysses (DeepSpeed): rows outside, heads inside. All rows of some heads come together, are attended to, and go back:
 * each rank computes what one process would, number by number. */
#include <string.h>

#include "mpi/shared.h"

typedef struct turn {
    mha_view Q, K, V, heads;  /* (B, rows of all ranks, heads of this one, width) */
    char *out, *in;           /* messages, peer after peer */
    mha__mpi_message *send, *receive;
    MPI_Request *requests;
    mha_call attend;
    mha_plan plan;
    void *workspace;
} turn;

static size_t max(size_t a, size_t b)
{
    return a > b ? a : b;
}

static mha_status prepare(mha__mpi_call *c, mha_error *error)
{
    const mha_config *config = &c->split.config;
    const size_t P = c->split.ranks, B = c->split.B, H = c->share.heads.count, K = c->share.kv_heads.count;
    const size_t kv = config->d_k + config->d_v, T_q = c->split.T_q, T_k = c->split.T_k;
    mha_status status = MHA_OK;
    TRY(mha__mpi_prepare_rows(c, error));
    turn *t = c->state = mha__mpi_take(c, 1, sizeof *t, &status, error);
    TRY(status);
    t->Q = mha__mpi_rows(c, T_q, H, config->d_k, &status, error);
    t->K = mha__mpi_rows(c, T_k, K, config->d_k, &status, error);
    t->V = mha__mpi_rows(c, T_k, K, config->d_v, &status, error);
    t->heads = mha__mpi_rows(c, T_q, H, config->d_v, &status, error);
    c->heads = mha__mpi_rows(c, c->q_rows, config->n_heads, config->d_v, &status, error);
    /* Rows of this rank for the heads of all ranks, or rows of all ranks for the heads of this one. */
    const size_t there = P * (c->q_rows * H * config->d_k + c->k_rows * K * kv), back = T_q * H * config->d_v;
    const size_t here = T_q * H * config->d_k + T_k * K * kv, home = P * c->q_rows * H * config->d_v;
    const size_t bytes = mha__mpi_bytes(c->dtype);
    t->out = mha__mpi_scratch(c, B * max(there, back), bytes, &status, error);
    t->in = mha__mpi_scratch(c, B * max(here, home), bytes, &status, error);
    t->send = mha__mpi_take(c, 2 * P, sizeof *t->send, &status, error);
    t->requests = mha__mpi_take(c, 2 * P, sizeof(MPI_Request), &status, error);
    TRY(status);
    t->receive = t->send + P;
    t->attend = (mha_call){.query = t->Q, .key = t->K, .value = t->V, .output = t->heads,
                           .semantics = mha__mpi_of_heads(c), .weights = c->weights,
                           .weight_count = MHA_WEIGHT_COUNT, .cache = c->given->cache,
                           .path = c->path, .threads = c->given->threads};
    mha__mpi_between(&t->attend.semantics);
    TRY(mha_plan_call(NULL, &t->attend, &t->plan, error));
    t->workspace = mha__mpi_scratch(c, t->plan.workspace_bytes, 1, &status, error);
    return status;
}

/* The view (B, rows, heads, width) of a message at *at, which moves past it. */
static mha_view piece(const mha__mpi_call *c, char **at, size_t rows, size_t heads, size_t width)
{
    const mha_view view = mha_view_of(*at, c->dtype, 4, (size_t[]){c->split.B, rows, heads, width});
    *at += mha_view_elements(&view) * mha__mpi_bytes(c->dtype);
    return view;
}

static mha__mpi_message message(const mha__mpi_call *c, char *from, const char *to)
{
    return (mha__mpi_message){from, (size_t)(to - from) / mha__mpi_bytes(c->dtype)};
}

typedef enum direction { OUTGOING, EXPECTED, ARRIVED } direction;

/* Copies the slice of an axis of `view` to a message, or from it. */
static void copy_part(const mha_view *view, int axis, mha_range range, const mha_view *part, direction way)
{
    const mha_view slice = mha_view_slice(view, axis, range.from, range.count);
    if (way != EXPECTED && mha_view_elements(&slice) > 0)
        (void)mha_view_copy(way == ARRIVED ? &slice : part, way == ARRIVED ? part : &slice, NULL);
}

/* Packs or unpacks this rank's rows of the heads of all ranks, or `home` the rows of all ranks of this rank's heads; of
 * messages that are EXPECTED it says only where they lie. */
static void pack(const mha__mpi_call *c, const turn *t, bool home, direction way)
{
    const bool incoming = way != OUTGOING;
    const mha_config *config = &c->split.config;
    char *at = incoming ? t->in : t->out;
    for (size_t p = 0; p < c->split.ranks; p++) {
        const mha_share peer = mha_split_share(&c->split, p);
        const bool by_rows = home != incoming; /* the peer's rows of this rank's heads */
        const mha_range q_rows = by_rows ? peer.queries[0] : c->share.queries[0],
                        k_rows = by_rows ? peer.keys[0] : c->share.keys[0];
        const size_t H = c->share.heads.count, K = c->share.kv_heads.count;
        char *const begin = at;
        if (home) {
            const mha_view part = piece(c, &at, q_rows.count, H, config->d_v);
            copy_part(by_rows ? &t->heads : &c->heads, by_rows ? 1 : 2, by_rows ? q_rows : peer.heads, &part, way);
        } else {
            const mha_view q = piece(c, &at, q_rows.count, H, config->d_k),
                           k = piece(c, &at, k_rows.count, K, config->d_k),
                           v = piece(c, &at, k_rows.count, K, config->d_v);
            const int axis = by_rows ? 1 : 2;
            copy_part(by_rows ? &t->Q : &c->Q, axis, by_rows ? q_rows : peer.heads, &q, way);
            copy_part(by_rows ? &t->K : &c->K, axis, by_rows ? k_rows : peer.kv_heads, &k, way);
            copy_part(by_rows ? &t->V : &c->V, axis, by_rows ? k_rows : peer.kv_heads, &v, way);
        }
        (incoming ? t->receive : t->send)[p] = message(c, begin, at);
    }
}

static mha_status exchange(const mha__mpi_call *c, const turn *t, bool home, mha_error *error)
{
    pack(c, t, home, OUTGOING);
    pack(c, t, home, EXPECTED);
    TRY(mha__mpi_exchange(c->l, c->dtype, t->send, t->receive, t->requests, error));
    pack(c, t, home, ARRIVED);
    return MHA_OK;
}

static mha_status run(mha__mpi_call *c, mha_error *error)
{
    turn *t = c->state;
    mha_error first = {0};
    mha_status computed = mha_forward_inputs(&c->plan, c->workspace, c->plan.workspace_bytes, &first);
    TRY(exchange(c, t, false, error));
    if (computed == MHA_OK)
        computed = mha_forward(&t->plan, t->workspace, t->plan.workspace_bytes, &first);
    TRY(exchange(c, t, true, error));
    if (computed != MHA_OK)
        *error = first;
    return computed;
}

const mha__mpi_scheme mha__mpi_ulysses = {prepare, run, NULL};
