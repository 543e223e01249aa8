/* The workspace of a call, laid out when it is planned. */
#ifndef MHA_ATTENTION_LAYOUT_H
#define MHA_ATTENTION_LAYOUT_H

#include "attention/resolved.h"

/* Fills r->layout. Returns the bytes of workspace that the call takes, aligned; SIZE_MAX when they do not fit a size.
 * */
size_t mha__lay_out(mha__resolved *r);

#endif
