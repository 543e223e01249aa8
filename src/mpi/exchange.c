/* Data between all pairs of ranks. What is sent is what mha_share counts: each message once, nothing to oneself. */
#include <string.h>

#include "mpi/shared.h"

MPI_Datatype mha__mpi_type(mha_dtype dtype)
{
    return dtype == MHA_F64 ? MPI_DOUBLE : MPI_FLOAT;
}

mha_status mha__mpi_exchange(const mha_mpi_layer *l, mha_dtype dtype, const mha__mpi_message *send,
                             const mha__mpi_message *receive, MPI_Request *requests, mha_error *error)
{
    MPI_Datatype type = mha__mpi_type(dtype);
    const size_t P = l->split.ranks, bytes = dtype == MHA_F64 ? sizeof(double) : sizeof(float);
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
