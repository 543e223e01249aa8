/* Failing together: the ranks agree on an error, and on what they are asked for, before anybody waits for data. */
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
                         "the ranks ask for different things: sizes, settings and path must be the same on all%s",
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
