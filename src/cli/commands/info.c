/* mha info: processor, instruction set, BLAS and threads that the program uses. */
#include "cli/commands/commands.h"
#include "cli/output/report.h"

static void print_info(void)
{
    say("mha %s\n  instruction set  %s  (available:", mha_version(), mha_isa());
    for (size_t i = 0; mha_isa_at(i); i++)
        say(" %s", mha_isa_at(i));
    say(")\n  BLAS             %s\n  BLAS threading   %s\n  threads          %d\n", mha_blas_name(),
           mha_blas_threading(), mha_threads_available());
}

int run_info(const arguments *args)
{
    if (given(args, OPT_QUIET) && !given(args, OPT_JSON))
        return EXIT_DONE;
    json_t *available = json_array();
    for (size_t i = 0; mha_isa_at(i); i++)
        json_array_append_new(available, json_text(mha_isa_at(i)));
    json_t *root = keep_json(
        record_of("version", J(mha_version()), "isa", J(mha_isa()), "isa_available", available, "blas",
                  J(mha_blas_name()), "blas_threading", J(mha_blas_threading()), "threads", J(mha_threads_available()),
                  NULL));
    if (report_is_text(args, root))
        print_info();
    return EXIT_DONE;
}
