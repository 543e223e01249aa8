/* mha info: processor, instruction set, BLAS and threads that the program uses, and from when on it uses them. */
#include "bench/machine_choices.h"
#include "cli/commands/commands.h"
#include "cli/output/report.h"

static void print_info(const mha__choices *chosen)
{
    say("mha %s\n  instruction set  %s  (available:", mha_version(), mha_isa());
    for (size_t i = 0; mha_isa_at(i); i++)
        say(" %s", mha_isa_at(i));
    say(")\n  BLAS             %s\n  BLAS threading   %s\n  threads          %d\n", mha_blas_name(),
           mha_blas_threading(), mha_threads_available());
    say("  a second thread  from %.3g operations on", 2 * chosen->operations_for_a_thread);
    if (chosen->handover_seconds > 0)
        say(" (a handover takes %.3g us)\n", 1e6 * chosen->handover_seconds);
    else
        say(" (a handover could not be measured)\n");
    for (int what = 0; what < MHA__FETCHED_COUNT; what++)
        say("  %-15s  %-6s  %2zu %s (%s)\n", what == 0 ? "fetched ahead" : "", mha__fetched_name((mha__fetched)what),
            chosen->ahead[what], mha__fetched_unit((mha__fetched)what),
            chosen->measured[what] ? "measured" : "not measured");
}

static json_t *fetched_ahead(const mha__choices *chosen)
{
    json_t *of = json_object();
    for (int what = 0; what < MHA__FETCHED_COUNT; what++)
        json_object_set_new(of, mha__fetched_name((mha__fetched)what),
                            record_of("ahead", J(chosen->ahead[what]), "unit",
                                      json_text(mha__fetched_unit((mha__fetched)what)), "measured",
                                      json_boolean(chosen->measured[what]), NULL));
    return of;
}

int run_info(const arguments *args)
{
    if (given(args, OPT_QUIET) && !given(args, OPT_JSON))
        return EXIT_DONE;
    const mha__choices chosen = mha__machine_choices();
    json_t *available = json_array();
    for (size_t i = 0; mha_isa_at(i); i++)
        json_array_append_new(available, json_text(mha_isa_at(i)));
    json_t *root =
        record_of("version", J(mha_version()), "isa", J(mha_isa()), "isa_available", available, "blas",
                  J(mha_blas_name()), "blas_threading", J(mha_blas_threading()), "threads", J(mha_threads_available()),
                  "handover_us", J(1e6 * chosen.handover_seconds), "operations_for_a_thread",
                  J(chosen.operations_for_a_thread), "fetched_ahead", fetched_ahead(&chosen), NULL);
    if (report_is_text(args, root))
        print_info(&chosen);
    json_decref(root);
    return EXIT_DONE;
}
