/* Opening files with and without memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/file.h"
#include "support/failing.h"
#include "support/opening.h"
#include "support/unit.h"

mha_status try_open(const char *path, mha_error *error)
{
    mha_file *file = NULL;
    memset(error, 0, sizeof *error);
    mha_status status = mha_file_open(path, &file, error);
    if (status != MHA_OK)
        assert_null(file);
    mha_file_close(file);
    return status;
}

static mha_status open_and_read(const mha_allocator *allocator, const char *path, const char *name, mha_error *error)
{
    mha_file *file = NULL;
    mha_status status = mha__file_open_using(allocator, path, &file, error);
    if (status == MHA_OK && name) {
        const mha_file_tensor *tensor = mha_file_find(file, name);
        assert_non_null(tensor);
        float *values = malloc(tensor->elements * sizeof *values + 1);
        mha_view to = mha_view_of(values, MHA_F32, tensor->rank, tensor->shape);
        status = mha_file_read(file, tensor, &to, error);
        free(values);
    }
    mha_file_close(file);
    return status;
}

static mha_status open_and_check(const mha_allocator *allocator, const char *path, mha_path how, mha_outcome expected,
                                 mha_error *error)
{
    mha_case *c = NULL;
    mha_verdict verdict = {0};
    mha_status status = mha_case_open(path, allocator, &c, error);
    if (status == MHA_OK)
        status = mha_case_check(c, how, NULL, 1, &verdict, error);
    bool starved = status == MHA_OK && strstr(verdict.reason, "no memory"); /* then the case could not be checked */
    if (starved || (status == MHA_OK && verdict.outcome != expected)) {
        status = starved ? MHA_NO_MEMORY : MHA_INVALID;
        snprintf(error->message, sizeof error->message, "%s", verdict.reason);
    }
    mha_verdict_clear(&verdict);
    mha_case_close(c);
    return status;
}

/* With the first allocation failing, then the second, ...: of `tensor` read, or else of the case checked. */
static size_t until_none_fails(const char *path, bool checks, const char *tensor, mha_path how, mha_outcome expected)
{
    failing memory = {0};
    mha_allocator allocator = failing_allocator(&memory);
    for (size_t attempt = 1;; attempt++) {
        mha_error error = {0};
        memory.calls = 0;
        memory.fail_at = attempt;
        mha_status status = checks ? open_and_check(&allocator, path, how, expected, &error)
                                   : open_and_read(&allocator, path, tensor, &error);
        assert_int_equal(memory.live_blocks, 0);
        assert_int_equal(memory.bugs, 0);
        if (status == MHA_OK)
            return attempt;
        assert_refused(status, MHA_NO_MEMORY, error, "no memory");
    }
}

size_t open_with_failing_memory(const char *path, const char *tensor)
{
    return until_none_fails(path, false, tensor, MHA_PATH_AUTO, MHA_OUTCOME_PASSED);
}

size_t check_with_failing_memory(const char *path, mha_path how, mha_outcome expected)
{
    return until_none_fails(path, true, NULL, how, expected);
}
