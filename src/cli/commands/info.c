/* mha info: processor, instruction set, BLAS and threads that the program uses. */
#include "cli/commands/commands.h"
#include "cli/output/print.h"

int run_info(const arguments *args)
{
    if (given(args, OPT_JSON)) {
        json_t *available = json_array();
        for (size_t i = 0; mha_isa_at(i); i++)
            json_array_append_new(available, json_text(mha_isa_at(i)));
        json_print(json_pack("{so so so so so si}", "version", json_text(mha_version()), "isa", json_text(mha_isa()),
                             "isa_available", available, "blas", json_text(mha_blas_name()), "blas_threading",
                             json_text(mha_blas_threading()), "threads", mha_threads_available()));
        return EXIT_DONE;
    }
    if (given(args, OPT_QUIET))
        return EXIT_DONE;
    printf("mha %s\n  instruction set  %s  (available:", mha_version(), mha_isa());
    for (size_t i = 0; mha_isa_at(i); i++)
        printf(" %s", mha_isa_at(i));
    printf(")\n  BLAS             %s\n  BLAS threading   %s\n  threads          %d\n", mha_blas_name(),
           mha_blas_threading(), mha_threads_available());
    return EXIT_DONE;
}
