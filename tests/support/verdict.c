/* Checking a case file in one call. */
#include "support/unit.h"
#include "support/verdict.h"

mha_verdict check(const char *file, mha_path path, const char *stage)
{
    mha_case *c;
    mha_error error;
    mha_verdict v;
    assert_ok(mha_case_open(file, NULL, &c, &error), error);
    assert_ok(mha_case_check(c, path, stage, 1, &v, &error), error);
    mha_case_close(c);
    return v;
}
