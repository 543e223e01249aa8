/* config.json: the input is its text; what it says is evaluated against the architecture it names. */
#include <stdlib.h>

#include "fuzz/fuzz.h"
#include "models/config/config.h"
#include "models/describe/architecture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *config = NULL;
    mha_error error = {0};
    mha__setup setup;
    mha_status status = mha__json_parse((const char *)data, size, "config.json", &config, &error);
    if (status == MHA_OK)
        status = mha__setup_read(config, &(mha_model_spec){0}, NULL, &setup, &error);
    if (status != MHA_OK && (error.status != status || error.message[0] == '\0'))
        abort();
    if (status == MHA_OK)
        mha__setup_free(&setup);
    json_decref(config);
    return 0;
}
