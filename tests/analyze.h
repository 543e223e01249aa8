/* For static analysers across files: these give back the status they are given. Without it
 * every variable that is set on success would look unset behind every error. Included by `make analyze`,
 * but for the files that define them. */
#include "base/base.h"
#include "lab/lab.h"

#define mha__fail(error, status, ...) ((void)mha__fail(error, status, __VA_ARGS__), (status))
#define mha__fail_at(error, status, ...) ((void)mha__fail_at(error, status, __VA_ARGS__), (status))
#define mha__fail_inside(error, status, ...) ((void)mha__fail_inside(error, status, __VA_ARGS__), (status))

#ifndef __GNUC__ /* cppcheck, which does not read jansson.h */
#define json_array_foreach(array, index, value) \
    for (index = 0; index < json_array_size(array) && (value = json_array_get(array, index)); index++)
#define json_object_foreach(object, key, value) \
    for (key = json_key(object); key && (value = json_value(object, key)); key = json_next(object, key))
#endif
