/* mha params: the parameter table of a layer, counted from what was allocated. */
#include "cli/commands/commands.h"

/* Options that only apply to a whole model or a file. */
static const option_code of_models[] = {OPT_ARCHITECTURE, OPT_CLASS, OPT_BATCH, OPT_COST_SEQ, OPT_RANKS, OPT_MACHINE,
                                        OPT_GROUP,        OPT_DEPTH, OPT_ONLY,  OPT_SORT,     OPT_ALL_ROWS,
                                        OPT_ENGINE_LOG,   OPT_LEDGER_DTYPE, OPTION_COUNT};

static int show(request *r, const arguments *args)
{
    const bool per_head = given(args, OPT_PER_HEAD);
    TRY(request_layer(r, args, NULL));
    TRY(census_draw(r->table, "Multi-head attention", args));
    json_t *root = keep_json(json_object());
    parameters_json_totals(root, r->table);
    record_with(root, "tensors", parameters_json_rows(r->table, per_head ? r->layer : NULL), NULL);
    if (report_is_text(args, root))
        parameters_print(r->table, r->layer, per_head);
    return EXIT_DONE;
}

int run_params(const arguments *args)
{
    if (presets_asked(args))
        return list_presets(args);
    if (model_asked(args) || given(args, OPT_WEIGHTS))
        return run_model_params(args);
    TRY(refuse_each(args, of_models, "--preset, --config or --weights with it, found none"));
    return show(keep(obtain(1, sizeof(request))), args);
}
