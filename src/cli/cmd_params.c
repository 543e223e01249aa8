/* mha params: the parameter table of a layer, counted from what was allocated. */
#include <string.h>

#include "cli/parameters.h"
#include "cli/request.h"

static void write_json(const request *r, bool per_head)
{
    json_t *root = json_object();
    parameters_json_totals(root, r->table);
    json_object_set_new(root, "tensors", parameters_json_rows(r->table, per_head ? r->layer : NULL));
    json_print(root);
}

int run_params(const arguments *args)
{
    const char *format = args->option[OPT_FORMAT].text;
    if (given(args, OPT_JSON) && given(args, OPT_FORMAT) && strcmp(format, "json") != 0)
        return refuse("--format", "expected json beside --json, found %s", format);
    bool per_head = given(args, OPT_PER_HEAD);
    mha_config config = request_config(args);
    request r = {0};
    int code = request_layer(&r, args, &config);
    if (code != EXIT_DONE)
        ;
    else if (given(args, OPT_JSON) || strcmp(format, "json") == 0)
        write_json(&r, per_head);
    else if (!given(args, OPT_QUIET))
        parameters_print(r.table, r.layer, per_head,
                         strcmp(format, "csv") == 0        ? TABLE_CSV
                         : strcmp(format, "markdown") == 0 ? TABLE_MARKDOWN
                                                           : TABLE_TEXT);
    request_free(&r);
    return code;
}
