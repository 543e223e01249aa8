/* One attention layer of a public checkpoint: found by the names of its tensors, read, and run on recorded inputs. */
#include <mha/lab.h>
#include <stdio.h>
#include <stdlib.h>

/* Reads tensor `name` into new memory, as floats; the caller frees view->data. */
static mha_status read(const mha_file *file, const char *name, mha_view *view, mha_error *error)
{
    const mha_file_tensor *tensor = mha_file_find(file, name);
    if (!tensor)
        return MHA_NOT_FOUND;
    *view = mha_view_of(malloc(tensor->elements * sizeof(float)), MHA_F32, tensor->rank, tensor->shape);
    return view->data ? mha_file_read(file, tensor, view, error) : MHA_NO_MEMORY;
}

int main(void)
{
    mha_file *weights = NULL, *recorded = NULL;
    mha_params *table = NULL;
    mha_layer *layer = NULL;
    mha_model_facts facts;
    mha_error error = {.message = "no such tensor, or no memory"};
    mha_view input = {0}, expected = {0};
    float *output = NULL;

    mha_status status = mha_file_open("weights/lookup/model.safetensors", &weights, &error);
    if (status == MHA_OK)
        status = mha_file_open("weights/lookup/recorded.safetensors", &recorded, &error);
    if (status == MHA_OK) /* a file of weights does not say how many heads it has; its config.json does */
        status = mha_model_read_config("weights/lookup/config.json", &facts, &error);
    if (status == MHA_OK)
        status = mha_params_create(NULL, &table, &error);
    if (status == MHA_OK)
        status = mha_model_load_layer(weights, &(mha_load_options){.facts = &facts}, table, &layer, NULL, &error);
    if (status == MHA_OK)
        status = read(recorded, "input", &input, &error);
    if (status == MHA_OK)
        status = read(recorded, "output", &expected, &error);
    if (status == MHA_OK && !(output = malloc(mha_view_elements(&expected) * sizeof *output)))
        status = MHA_NO_MEMORY;

    mha_difference difference = {0};
    if (status == MHA_OK) {
        mha_call call = {.query = input, .semantics = mha_model_semantics(&facts)};
        call.output = mha_rows(output, expected.shape[0], expected.shape[1], expected.shape[2]);
        status = mha_run(layer, &call, &error);
        if (status == MHA_OK)
            status = mha_compare(&call.output, &expected, 0, 1e-4, &difference, &error);
    }
    if (status == MHA_OK)
        printf("%zu heads; farthest from the recorded output: %g\n", mha_layer_config(layer)->n_heads,
               difference.max_abs);
    else
        fprintf(stderr, "%s: %s\n", error.name, error.message);

    free(output);
    free(expected.data);
    free(input.data);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
    mha_file_close(recorded);
    mha_file_close(weights);
    return status != MHA_OK || difference.mismatches > 0;
}
