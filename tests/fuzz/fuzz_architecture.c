/* Descriptions of architectures: the input is the text of one, of which a model of a small configuration is made, and
 * asked for everything that it says. */

#include <stdlib.h>

#include "fuzz/fuzz.h"
#include "mha/lab.h"
#include "models/describe/architecture.h"
#include "models/model.h"

/* Rows and layers are as many as the model says, and none of them is without a meaning. */
static void ask(const mha_model *model, const mha_params *table)
{
    mha_error error = {0};
    mha_model_costs costs;
    mha_model_lengths lengths;
    mha_model_layer layer;
    const mha_assumption *assumed;
    size_t n = 0, experts, chosen;
    for (; mha_model_layer_at(model, n, &layer); n++) {
        const mha_model_facts *facts = mha_model_layer_facts(model, n);
        const mha_semantics semantics = mha_model_semantics(facts);
        fuzz_require(layer.config.n_heads > 0 && layer.config.d_k > 0 && *layer.prefix != '\n');
        fuzz_require(semantics.visible.window_left >= 0 && semantics.visible.chunk >= 0);
    }
    fuzz_require(n == mha_model_layer_count(model));
    (void)mha_model_assumptions(model, &assumed);
    const size_t active = mha_model_active_parameters(model, &experts, &chosen);
    fuzz_require(active <= mha_params_totals(table, NULL).parameters && chosen <= experts);
    const mha_model_pass pass = {1, 4, 0};
    const mha_status counted = mha_model_costs_of(model, &pass, &costs, &error);
    if (counted != MHA_OK)
        fuzz_require_reason(counted, &error);
    for (size_t i = 0; i < n && counted == MHA_OK; i++) {
        fuzz_require(mha_model_layer_lengths(model, &pass, i, &lengths, &error) == MHA_OK);
        fuzz_require(lengths.visible <= lengths.pairs && lengths.cached <= lengths.keys);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "{\"hidden_size\": 8, \"num_attention_heads\": 2, \"num_hidden_layers\": 1}";
    json_t *config = NULL;
    mha_error error = {0};
    mha_params *table = NULL;
    mha_model *model = NULL;
    const char *path = fuzz_file("", 0, data, size);
    if (mha__json_parse(text, sizeof text - 1, "config.json", &config, &error) != MHA_OK)
        abort();
    fuzz_require(mha_params_create(NULL, &table, NULL) == MHA_OK);
    const mha_status status =
        mha__model_create_from(config, &(mha_model_spec){.architecture = path}, NULL, table, &model, &error);
    if (status != MHA_OK)
        fuzz_require_reason(status, &error);
    else
        ask(model, table);
    mha_model_destroy(model);
    fuzz_require(mha_params_count(table) == 0);
    mha_params_destroy(table);
    json_decref(config);
    return 0;
}
