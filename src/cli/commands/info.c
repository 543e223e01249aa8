/* mha info: processor, instruction set, BLAS and threads that the program uses, and from when on it uses them. */
#include "bench/machine_peak.h"
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
    say("  fetched ahead    weights for one row %zu bytes, for few rows %zu, quantised %zu\n", chosen->row_ahead,
           chosen->rows_ahead, chosen->blocks_ahead);
    say("                   keys for 2 to 4 rows %zu groups of %zu further (%s)\n", chosen->key_groups_ahead,
           chosen->keys_in_group, chosen->key_groups_measured ? "measured" : "not measured");
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
                  J(chosen.operations_for_a_thread), "few_rows_ahead", J(chosen.rows_ahead), "one_row_ahead",
                  J(chosen.row_ahead), "blocks_ahead", J(chosen.blocks_ahead), "key_groups_ahead",
                  J(chosen.key_groups_ahead), "key_groups_measured", json_boolean(chosen.key_groups_measured), NULL);
    if (report_is_text(args, root))
        print_info(&chosen);
    json_decref(root);
    return EXIT_DONE;
}
