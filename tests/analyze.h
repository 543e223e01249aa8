/* For static analysers across files: these give back the status they are given. Without it
 * every variable that is set on success would look unset behind every error. Included by `make analyze`,
 * but for the files that define them. */
#include "base/base.h"
#include "lab/lab.h"

#define mha__fail(error, status, ...) ((void)mha__fail(error, status, __VA_ARGS__), (status))
#define mha__fail_at(error, status, ...) ((void)mha__fail_at(error, status, __VA_ARGS__), (status))
#define mha__fail_inside(error, status, ...) ((void)mha__fail_inside(error, status, __VA_ARGS__), (status))
