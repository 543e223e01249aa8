/* Failing together: the ranks agree on an error and on the request before any of them waits for data. Then
 * data between all pairs of ranks: the messages that mha_share counts, each once, none to the rank itself. */
#include <string.h>

#include "mha/system.h"
#include "mpi/shared.h"

mha_status mha__mpi_status(int code, mha_error *error)
{
    if (code == MPI_SUCCESS)
        return MHA_OK;
    char text[MPI_MAX_ERROR_STRING + 1] = ""; /* unreachable: only where the caller's error handler returns */
    int length = 0;                           /* unreachable: */
    (void)MPI_Error_string(code, text, &length); /* unreachable: */
    return mha__fail(error, MHA_IO, "mpi", "%.300s", text); /* unreachable: */
}

uint64_t mha__mpi_digest(uint64_t digest, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    digest = digest ? digest : 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < bytes; i++)
        digest = (digest ^ at[i]) * 0x100000001b3u;
    return digest;
}

mha_status mha__mpi_agree(MPI_Comm comm, mha_status own, uint64_t digest, mha_error *error)
{
    int rank = 0;
    TRY(mha__mpi_status(MPI_Comm_rank(comm, &rank), error));
    /* The least of each: the first rank that fails, the digests of the call and of the instruction set, and their
     * complements, which tell the greatest. Signed, because MPICH 4.0.2 and Open MPI 4.1.4 compare some unsigned types
     * as signed ones. */
    enum { NUMBERS = 5 };
    const int64_t none = INT64_MAX, set = (int64_t)mha__mpi_digest(0, mha_isa(), strlen(mha_isa())),
                  mine[NUMBERS] = {own == MHA_OK ? none : rank, (int64_t)digest, (int64_t)~digest, set, ~set};
    int64_t least[NUMBERS];
    TRY(mha__mpi_status(MPI_Allreduce(mine, least, NUMBERS, MPI_INT64_T, MPI_MIN, comm), error));
    if (least[0] == none && least[1] != ~least[2])
        return mha__fail(error, MHA_INVALID, "ranks",
                         "expected the same sizes, settings and path on all ranks, found different ones%s",
                         least[3] == ~least[4] ? ""
                                               : "; the ranks have different instruction sets (MHA_ISA), and path auto "
                                                 "depends on them");
    if (least[0] == none)
        return MHA_OK;
    mha_error first = {0};
    if (own != MHA_OK)
        first = *error, first.status = own;
    TRY(mha__mpi_status(MPI_Bcast(&first, (int)sizeof first, MPI_BYTE, (int)least[0], comm), error));
    *error = first;
    return first.status;
}

MPI_Datatype mha__mpi_type(mha_dtype dtype)
{
    return dtype == MHA_F64 ? MPI_DOUBLE : MPI_FLOAT;
}

mha_status mha__mpi_exchange(const mha_mpi_layer *l, mha_dtype dtype, const mha__mpi_message *send,
                             const mha__mpi_message *receive, MPI_Request *requests, mha_error *error)
{
    MPI_Datatype type = mha__mpi_type(dtype);
    const size_t P = l->split.ranks, bytes = mha__mpi_bytes(dtype);
    int count = 0;
    for (size_t step = 1; step < P; step++) { /* each rank begins with another peer */
        const size_t to = (l->rank + step) % P, from = (l->rank + P - step) % P;
        if (receive[from].count > 0)
            TRY(mha__mpi_status(MPI_Irecv(receive[from].data, (int)receive[from].count, type, (int)from, 0, l->comm,
                                          &requests[count++]),
                                error));
        if (send[to].count > 0)
            TRY(mha__mpi_status(MPI_Isend(send[to].data, (int)send[to].count, type, (int)to, 0, l->comm,
                                          &requests[count++]),
                                error));
    }
    if (send[l->rank].count > 0 && send[l->rank].data != receive[l->rank].data)
        memcpy(receive[l->rank].data, send[l->rank].data, send[l->rank].count * bytes);
    for (int i = 0; i < count; i++) /* gcc takes MPICH's MPI_STATUSES_IGNORE of MPI_Waitall for an array without room */
        TRY(mha__mpi_status(MPI_Wait(&requests[i], MPI_STATUS_IGNORE), error));
    return MHA_OK;
}
