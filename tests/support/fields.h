/* Semantics in which nearly everything is set that can be set together with the rest. */
#ifndef TEST_FIELDS_H
#define TEST_FIELDS_H

#include "mha/attention.h"

/* For one batch row of FIELDS_T tokens and heads of FIELDS_D_K with norms and tables of a bias and relative terms. */
enum { FIELDS_T = 16, FIELDS_D_K = 4, FIELDS_HEADS = 168 };
mha_semantics semantics_all_set(void);

#endif
