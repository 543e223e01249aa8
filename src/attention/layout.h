/* The workspace of a call, laid out when it is planned. */
#ifndef MHA_ATTENTION_LAYOUT_H
#define MHA_ATTENTION_LAYOUT_H

#include "attention/call/resolved.h"

/* Fills in r->layout. Returns the bytes of aligned workspace that the call takes, or SIZE_MAX for too many. */
size_t mha__lay_out(mha__resolved *r);

#endif
