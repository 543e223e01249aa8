/* Names of statuses, and the only place where an mha_error is filled. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

static const struct {
    const char *name, *meaning;
} statuses[] = {
#define STATUS_ROW(code, name, meaning) [code] = {name, meaning},
    MHA_STATUS_LIST(STATUS_ROW)
#undef STATUS_ROW
};

static bool known(mha_status status)
{
    return (size_t)status < sizeof statuses / sizeof *statuses;
}

const char *mha__status_name(mha_status status)
{
    return known(status) ? statuses[status].name : "unknown";
}

const char *mha__status_meaning(mha_status status)
{
    return known(status) ? statuses[status].meaning : "unknown";
}

mha_status mha__vfail(mha_error *error, mha_status status, const char *name, uint64_t offset, const char *format,
                      va_list arguments)
{
    if (error) {
        error->status = status;
        error->offset = offset;
        mha__text_end(error->name, sizeof error->name, name ? name : "");
        mha__text_vprint(error->message, sizeof error->message, format, arguments);
        mha__text_harmless(error->name);
        mha__text_harmless(error->message);
    }
    return status;
}

mha_status mha__fail(mha_error *error, mha_status status, const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    mha__vfail(error, status, name, 0, format, arguments);
    va_end(arguments);
    return status;
}

mha_status mha__expect_unused(const char *name, const uint64_t *words, size_t bytes, mha_error *error)
{
    for (size_t i = 0; i < bytes / sizeof *words; i++)
        if (words[i])
            return mha__fail(error, MHA_UNSUPPORTED, name,
                             "reserved[%zu]: expected 0, found %" PRIu64 ", a setting of a later version", i, words[i]);
    return MHA_OK;
}

mha_status mha__expect_unused_types(const char *name, const mha_dtype *types, size_t count, mha_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t word = (uint64_t)types[i];
        TRY(mha__expect_unused(name, &word, sizeof word, error));
    }
    return MHA_OK;
}

mha_status mha__expect_shape(mha_error *error, const char *name, const mha_view *view, int rank, const size_t *shape)
{
    if (view->rank == rank && memcmp(view->shape, shape, sizeof *shape * (size_t)rank) == 0)
        return MHA_OK;
    char expected[200], found[200];
    return mha__fail(error, MHA_INVALID, name, "expected shape %s, found %s",
                     mha__shape_text(expected, sizeof expected, shape, rank),
                     mha__shape_text(found, sizeof found, view->shape, view->rank));
}

char *mha_error_text(char *text, size_t size, const mha_error *error)
{
    char at[48];
    snprintf(at, sizeof at, "byte %" PRIu64, error->offset);
    const bool with_offset = error->offset && !strstr(error->message, at);
    mha__text_print(text, size, "%s%s%s%s%s%s", error->name, *error->name ? ": " : "",
                    *error->message ? error->message : mha__status_meaning(error->status), with_offset ? " (" : "",
                    with_offset ? at : "", with_offset ? ")" : "");
    return text;
}
