/* mha info: processor, instruction set, BLAS and threads that the program uses. */
#include "cli/commands/commands.h"

int run_info(const arguments *args)
{
    if (given(args, OPT_QUIET) && !given(args, OPT_JSON))
        return EXIT_DONE;
    json_t *available = json_array();
    const char *names = "";
    for (size_t i = 0; mha_isa_at(i); i++) {
        json_array_append_new(available, json_text(mha_isa_at(i)));
        names = text_more(names, " %s", mha_isa_at(i));
    }
    json_t *root = keep_json(
        record_of("version", J(mha_version()), "isa", J(mha_isa()), "isa_available", available, "blas",
                  J(mha_blas_name()), "blas_threading", J(mha_blas_threading()), "threads", J(mha_threads_available()),
                  NULL));
    if (report_is_text(args, root))
        say("mha %s\n  instruction set  %s  (available:%s)\n  BLAS             %s\n  BLAS threading   %s\n"
            "  threads          %d\n",
            mha_version(), mha_isa(), names, mha_blas_name(), mha_blas_threading(), mha_threads_available());
    return EXIT_DONE;
}
