/* Functions with which layers and models fill in rows of the parameter table. */
#ifndef MHA_PARAMS_PARAMS_H
#define MHA_PARAMS_PARAMS_H

#include "mha/params.h"

/* Marks `elements` of the row as unable to change the output, with the reason, which is copied. MHA_INVALID: more
 * than the row has, or no parameters. MHA_NO_MEMORY. */
mha_status mha__tensor_set_inert(mha_tensor *tensor, size_t elements, const char *why);
/* Makes the storage of a parameter one that is built from others: derived. */
void mha__tensor_set_derived(mha_tensor *tensor);
/* Sets the type that the row was read from. */
void mha__tensor_set_source_dtype(mha_tensor *tensor, mha_dtype dtype);

#endif
