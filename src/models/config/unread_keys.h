/* Keys of a config.json that nothing reads. */
#ifndef MHA_MODELS_CONFIG_UNREAD_KEYS_H
#define MHA_MODELS_CONFIG_UNREAD_KEYS_H

#include "models/config/evaluate.h"

/* Looks for keys that the architecture neither reads nor knows to be without effect. Those that cannot decide a number
 * become the setup's `unread`; others are refused by name. Errors: MHA_UNSUPPORTED, MHA_NO_MEMORY. */
mha_status mha__config_keys_check(const json_t *config, mha__setup *setup, mha_error *error);

#endif
