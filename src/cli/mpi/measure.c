/* Measures what the model of cost asks for, on all ranks at the same time, and lets it predict. */
#include "cli/mpi/commands_mpi.h"

#include <math.h>
#include <unistd.h>

#include "bench/machine_peak.h"

enum { ROUNDS = 5, SMALL = 8, LARGE = 1 << 20, READ = 64 << 20 };

/* The median of this rank's times, or of another's if that is more. */
static double slowest(double times[ROUNDS])
{
    double most;
    sort_numbers(times, ROUNDS);
    MPI_Allreduce(&times[ROUNDS / 2], &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

/* Seconds of a message of `bytes` bytes to the next rank, while one comes from the rank before. */
static double pass_round(char *memory, int bytes)
{
    enum { EACH = 20 };
    int rank, ranks;
    double times[ROUNDS];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begun = MPI_Wtime();
        for (int k = 0; k < EACH; k++)
            MPI_Sendrecv(memory, bytes, MPI_BYTE, (rank + 1) % ranks, 0, memory + LARGE, bytes, MPI_BYTE,
                         (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        times[i] = (MPI_Wtime() - begun) / EACH;
    }
    return slowest(times);
}

/* Times measured while all ranks of a node took turns on its cores, for a rank that has one to itself. */
static void of_a_core(mha_machine *m)
{
    MPI_Comm node;
    int ranks = 1;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &ranks);
    MPI_Comm_free(&node);
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const double turns = cores > 0 && ranks > cores ? (double)ranks / (double)cores : 1;
    *m = (mha_machine){m->flops * turns, m->memory * turns, m->latency / turns, m->bandwidth * turns,
                       cores > 0 ? (size_t)cores : 0, (size_t)ranks};
    MPI_Bcast(m, (int)sizeof *m, MPI_BYTE, 0, MPI_COMM_WORLD);
}

int measure_machine(request *q, int ranks, mha_machine *machine)
{
    double times[ROUNDS], read = 0, least;
    int code = EXIT_DONE;
    if (q->plan.path == MHA_PATH_FAST) { /* with packed weights, as the ranks have them */
        (void)mha_layer_pack(q->layer, NULL);
        free(q->workspace);
        q->workspace = NULL;
    }
    for (int i = 0; i < ROUNDS; i++) { /* to the end on all ranks, whatever fails on one */
        MPI_Barrier(MPI_COMM_WORLD);
        const int done = request_run(q, &times[i]);
        code = done > code ? done : code;
    }
    if (code == EXIT_DONE && mha__machine_reads(1, READ, &read) != MHA_OK)
        code = refuse_error("", &(mha_error){.status = MHA_NO_MEMORY});
    MPI_Allreduce(&read, &least, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    *machine = (mha_machine){request_flops(q) / (slowest(times) * 1e-3), least * 1e9, 0, least * 1e9, 0, 0};
    if (ranks > 1) {
        char *memory = obtain(2, LARGE);
        machine->latency = pass_round(memory, SMALL);
        machine->bandwidth = LARGE / fmax(pass_round(memory, LARGE) - machine->latency, 1e-9);
        free(memory);
    }
    of_a_core(machine);
    return code;
}

double predict(const mha_split *split, bool causal, const mha_machine *machine)
{
    const mha_split_work work = {.split = *split, .causal = causal};
    mha_split_time time;
    return mha_split_time_of(&work, machine, &time, NULL) == MHA_OK ? time.total * 1e3 : NAN;
}
