/* What planning asks of the forward. */
#ifndef MHA_ATTENTION_FORWARD_H
#define MHA_ATTENTION_FORWARD_H

#include "attention/resolved.h"

/* Bytes of workspace that a call takes, aligned; SIZE_MAX when they do not fit a size. */
size_t mha__forward_bytes(const mha__resolved *r);

#endif
