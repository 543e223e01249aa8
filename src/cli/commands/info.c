/* mha info: processor, instruction set, BLAS and threads that the program uses, and from when on it uses them. */
#include "bench/machine_peak.h"
#include "cli/commands/commands.h"
#include "cli/output/print.h"

int run_info(const arguments *args)
{
    double seconds = 0, least = 0;
    if (!given(args, OPT_QUIET))
        mha__machine_handover(&seconds, &least);
    if (given(args, OPT_JSON)) {
        json_t *available = json_array();
        for (size_t i = 0; mha_isa_at(i); i++)
            json_array_append_new(available, json_text(mha_isa_at(i)));
        json_print(json_pack("{so so so so so si so so}", "version", json_text(mha_version()), "isa",
                             json_text(mha_isa()), "isa_available", available, "blas", json_text(mha_blas_name()), "blas_threading",
                             json_text(mha_blas_threading()), "threads", mha_threads_available(), "handover_us",
                             json_number(1e6 * seconds), "operations_for_a_thread", json_number(least)));
        return EXIT_DONE;
    }
    if (given(args, OPT_QUIET))
        return EXIT_DONE;
    printf("mha %s\n  instruction set  %s  (available:", mha_version(), mha_isa());
    for (size_t i = 0; mha_isa_at(i); i++)
        printf(" %s", mha_isa_at(i));
    printf(")\n  BLAS             %s\n  BLAS threading   %s\n  threads          %d\n", mha_blas_name(),
           mha_blas_threading(), mha_threads_available());
    printf("  a second thread  from %.3g operations on", 2 * least);
    printf(seconds > 0 ? " (a handover takes %.3g us)\n" : " (a handover could not be measured)\n", 1e6 * seconds);
    return EXIT_DONE;
}
