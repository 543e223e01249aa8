/* Faults of symbols of a description: an order in which they cannot be evaluated, values without a meaning. */
#ifndef MHA_MODELS_DESCRIBE_SYMBOL_FAULTS_H
#define MHA_MODELS_DESCRIBE_SYMBOL_FAULTS_H

#include "models/describe/architecture.h"

/* Hands on the status of a symbol's formulas, evaluated with the values of those before it. A formula that failed is
 * blamed on the description; where the symbol needs itself or a later one, the message says so. */
mha_status mha__symbol_order_blame(const mha__architecture *architecture, const mha__arch_key *key,
                                   const mha__values *values, mha_status status, mha_error *error);

/* Refuses a negative value of a symbol that is a size in attention. */
mha_status mha__symbol_check(const mha__architecture *architecture, const char *symbol, int64_t value,
                             mha_error *error);

#endif
