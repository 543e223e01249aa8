/* How a test compares, as a record and in words. */
#include "cli/commands/power.h"

json_t *criterion_record(const mha_criterion *k)
{
    static const char *const kinds[] = {"bound", "close", "nmse", "cosine"};
    json_t *criterion = record_of("kind", J(kinds[k->kind]), NULL);
    if (k->kind == MHA_CRITERION_BOUND || k->kind == MHA_CRITERION_CLOSE)
        record_with(criterion, "rtol", J(k->rtol), "atol", J(k->atol), NULL);
    else
        record_with(criterion, "limit", J(k->limit), NULL);
    return criterion;
}

const char *criterion_text(const mha_criterion *k)
{
    if (k->kind == MHA_CRITERION_NMSE)
        return text_of("sum (x - y)^2 <= %g sum y^2", k->limit);
    if (k->kind == MHA_CRITERION_COSINE)
        return text_of("cosine(x, y) >= %.9g", k->limit);
    return text_of(k->rtol > 0 ? "|x - y| <= %.3g + %.3g |y|" : "|x - y| <= %.3g", k->atol, k->rtol);
}
