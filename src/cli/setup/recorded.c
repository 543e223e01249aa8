/* Opens recorded results to be checked or diagnosed: a case file, or --expected with weights and inputs. */
#include "cli/setup/request.h"

int recorded_check(const arguments *args)
{
    const option_code o = given_of(args, SECTIONS_OF_CALL);
    if (o != option_count())
        TRY(refuse_alone(args, o, OPT_EXPECTED));
    TRY(refuse_alone(args, OPT_PRECISION, OPT_EXPECTED));
    TRY(refuse_alone(args, OPT_EXPECTED, OPT_WEIGHTS));
    return refuse_alone(args, OPT_EXPECTED, OPT_INPUT);
}

/* Finds the stage that --expected contains. */
static int find_stage(const arguments *args, mha_stage *stage)
{
    const char *name = text_for(args, OPT_STAGE);
    *stage = MHA_STAGE_OUTPUT;
    if (!name || mha_stage_find(name, stage))
        return EXIT_DONE;
    char known[256] = "";
    for (mha_stage s = 0; s < MHA_STAGE_COUNT; s++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", s ? ", " : "", mha_stage_at(s)->name);
    return refuse_option(OPT_STAGE, "expected one of %s, found \"%s\"", known, name);
}

/* Reads the tensor without conversion; for an unbatched call it may lack the batch axis. */
static int read_stage(request *r, const arguments *args, mha_stage stage, mha_view *view)
{
    size_t planned[4];
    TRY(tensor_of_option(args, OPT_EXPECTED, NUMBERS_AS_THEY_ARE, &r->memory, view));
    if (view->rank + 1 != mha_plan_stage(&r->plan, stage, planned) || r->call.query.shape[0] != 1)
        return EXIT_DONE;
    size_t shape[MHA_MAX_RANK] = {1};
    memcpy(shape + 1, view->shape, (size_t)view->rank * sizeof *shape);
    *view = mha_view_of(view->data, view->dtype, view->rank + 1, shape);
    return EXIT_DONE;
}

int recorded_open(request *r, const arguments *args, mha_case **c)
{
    mha_error error = {0};
    mha_keep recorded = {0};
    const mha_config of_file = {0};
    const mha_case_notes notes = {.name = text_for(args, OPT_EXPECTED)};
    TRY(find_stage(args, &recorded.stage));
    TRY(request_call(r, args, &of_file));
    TRY(read_stage(r, args, recorded.stage, &recorded.view));
    const mha_status status = mha_case_of_call(r->layer, &r->call, &recorded, 1, &notes, c, &error);
    return done_or_refuse_field(status, "--expected", &error);
}
