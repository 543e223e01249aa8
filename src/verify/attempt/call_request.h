/* A call of a caller as the request that is checked. */
#ifndef MHA_VERIFY_ATTEMPT_CALL_REQUEST_H
#define MHA_VERIFY_ATTEMPT_CALL_REQUEST_H

#include "verify/attempt/attempt.h"

/* A call, planned, and what it attends to besides its new rows: those of its cache that stay, or those of its pages. */
typedef struct mha__call_request {
    mha_call call;       /* without output, kept stages, precision and pages, on the exact path */
    mha_plan plan;       /* of the call, which says its sizes and stages */
    mha__request request; /* of `call`, with these rows */
    mha__arena memory;   /* of rows that had to be copied */
} mha__call_request;

/* Must be freed in any case. Errors: as of mha_plan_call on the exact path; MHA_UNSUPPORTED (pages that are not
 * checked); MHA_NO_MEMORY. */
mha_status mha__call_request_begin(mha__call_request *c, const mha_layer *layer, const mha_call *call,
                                   mha_error *error);
void mha__call_request_free(mha__call_request *c);

#endif
