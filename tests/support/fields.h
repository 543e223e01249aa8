/* The fields of structs, one by one: what each becomes in a test that walks all of them. */
#ifndef TEST_FIELDS_H
#define TEST_FIELDS_H

#include <stddef.h>
#include <stdint.h>

#include "mha/attention.h"

/* One field: what it becomes. `alone`: a call that has it beside all else that is set is refused for it. */
typedef struct field {
    const char *name;
    size_t offset, size;
    union {
        bool truth;
        int64_t whole;
        size_t count;
        double real;
        int choice;
        const void *pointer;
    } other;
    bool alone;
} field;

#define F(type, name, member, value)                                                                                   \
    {                                                                                                                  \
        #name, offsetof(type, name), sizeof(((type *)NULL)->name), {.member = (value)}, false                          \
    }
#define ALONE(type, name, member, value)                                                                               \
    {                                                                                                                  \
        #name, offsetof(type, name), sizeof(((type *)NULL)->name), {.member = (value)}, true                           \
    }

/* The field that does not follow the one before it without a gap into which another fits, so that one is missing there;
 * NULL: the list is complete. An initialiser without names says whether one is missing in a gap. */
const char *fields_missing(const field *fields, size_t count, size_t bytes);

/* All fields of mha_semantics. */
extern const field semantics_fields[];
extern const size_t semantics_field_count;
/* Everything that can be set beside the rest, for one batch row of FIELDS_T tokens and heads of FIELDS_D_K. */
enum { FIELDS_T = 16, FIELDS_D_K = 4, FIELDS_HEADS = 168 };
mha_semantics semantics_all_set(void);

#endif
