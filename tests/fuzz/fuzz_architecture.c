/* Descriptions of architectures: the input is the text of one, counted for a small configuration. */

#include <stdlib.h>

#include "fuzz/fuzz.h"
#include "mha/mha.h"
#include "models/config_json.h"
#include "models/json_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "{\"hidden_size\": 8, \"num_attention_heads\": 2, \"num_hidden_layers\": 1}";
    json_t *config = NULL;
    mha_error error = {0};
    mha__setup setup;
    const char *path = fuzz_file("", 0, data, size);
    if (mha__json_parse(text, sizeof text - 1, "config.json", &config, &error) != MHA_OK)
        abort();
    const mha_status status = mha__setup_read(config, &(mha_model_spec){.architecture = path}, &setup, &error);
    if (status != MHA_OK)
        fuzz_require_reason(status, &error);
    if (status == MHA_OK)
        mha__setup_free(&setup);
    json_decref(config);
    return 0;
}
