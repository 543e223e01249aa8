/* Tensor parallelism (Megatron): each rank computes its heads and their rows of W_O; the outputs are added. */
#include "mpi/shared.h"

typedef struct sum {
    mha_view own, total;            /* (B, T_q, d_out): of this rank's heads, of all */
    void *parts;                    /* this rank's part of all ranks' outputs, rank after rank */
    mha__mpi_message *messages;     /* 4 for each rank */
    MPI_Request *requests;
} sum;

static mha_status prepare(mha__mpi_call *c, mha_error *error)
{
    const mha_config *config = &c->split.config;
    const size_t P = c->split.ranks, B = c->split.B, shape[3] = {B, c->split.T_q, config->d_out};
    const size_t k[3] = {B, c->split.T_k, config->d_kin}, q[3] = {B, c->split.T_q, config->d_q};
    mha_status status = MHA_OK;
    TRY(mha__expect_shape(error, "query", &c->query, 3, q));
    TRY(mha__expect_shape(error, "key", &c->key, 3, k));
    c->ends = *c->given;
    c->ends.semantics = mha__mpi_of_heads(c);
    TRY(mha_plan_call(c->l->own, &c->ends, &c->plan, error)); /* what is wrong with the caller's output, too */
    sum *s = c->state = mha__mpi_take(c, 1, sizeof *s, &status, error);
    TRY(status);
    const size_t own = mha_range_of(B * c->split.T_q * config->d_out, P, c->l->rank).count;
    s->own = mha__mpi_view(c, c->dtype, 3, shape, &status, error);
    s->total = mha__mpi_view(c, c->dtype, 3, shape, &status, error);
    s->parts = mha__mpi_scratch(c, own * P, mha__mpi_bytes(c->dtype), &status, error);
    s->messages = mha__mpi_take(c, 4 * P, sizeof *s->messages, &status, error);
    s->requests = mha__mpi_take(c, 2 * P, sizeof(MPI_Request), &status, error);
    TRY(status);
    c->ends.output = s->own;
    TRY(mha_plan_call(c->l->own, &c->ends, &c->plan, error));
    c->workspace = mha__mpi_scratch(c, c->plan.workspace_bytes, 1, &status, error);
    return status;
}

static double element(mha_dtype dtype, const void *data, size_t i)
{
    return dtype == MHA_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void add_parts(const mha__mpi_call *c, const sum *s, mha_range own)
{
    for (size_t i = 0; i < own.count; i++) {
        double total = element(c->dtype, s->parts, i);
        for (size_t p = 1; p < c->split.ranks; p++)
            total += element(c->dtype, s->parts, p * own.count + i);
        if (c->dtype == MHA_F64)
            ((double *)s->total.data)[own.from + i] = total;
        else
            ((float *)s->total.data)[own.from + i] = (float)total;
    }
}

static mha_status run(mha__mpi_call *c, mha_error *error)
{
    const sum *s = c->state;
    const size_t P = c->split.ranks, n = mha_view_elements(&s->own), bytes = mha__mpi_bytes(c->dtype);
    const mha_range own = mha_range_of(n, P, c->l->rank);
    mha__mpi_message *parts = s->messages, *part = parts + P, *sum_of_all = part + P, *sums = sum_of_all + P;
    mha_error first = {0};
    const mha_status computed = mha_forward(&c->plan, c->workspace, c->plan.workspace_bytes, &first);
    for (size_t p = 0; p < P; p++) {
        const mha_range r = mha_range_of(n, P, p);
        parts[p] = (mha__mpi_message){(char *)s->own.data + r.from * bytes, r.count};
        part[p] = (mha__mpi_message){(char *)s->parts + p * own.count * bytes, own.count};
        sum_of_all[p] = (mha__mpi_message){(char *)s->total.data + own.from * bytes, own.count};
        sums[p] = (mha__mpi_message){(char *)s->total.data + r.from * bytes, r.count};
    }
    TRY(mha__mpi_exchange(c->l, c->dtype, parts, part, s->requests, error));
    add_parts(c, s, own);
    TRY(mha__mpi_exchange(c->l, c->dtype, sum_of_all, sums, s->requests, error));
    if (computed != MHA_OK)
        *error = first;
    return computed;
}

static mha_status finish(mha__mpi_call *c, mha_error *error)
{
    (void)error;
    const sum *s = c->state;
    return c->given->output.data ? mha_view_copy(&c->given->output, &s->total, error) : MHA_OK;
}

const mha__mpi_scheme mha__mpi_tensor = {prepare, run, finish};
