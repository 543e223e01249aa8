/* A forward with exactly the memory it asks for. */
#ifndef TEST_CALL_H
#define TEST_CALL_H

#include "mha/attention.h"

/* Plans the call and runs it; neither may fail. The plan is returned. `layer` may be NULL. */
mha_plan run_call(const mha_layer *layer, mha_call *call);

#endif
