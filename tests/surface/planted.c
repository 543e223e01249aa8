/* Settings by their names, which a table has been given in a copy of the sources: found in C, and met by the random
 * calls of the tests. So is the weight "planted", one number for each head of a layer with sinks. planted NAME... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "mha/setting.h"
#include "mha/split.h"
#include "support/trial.h"

static int missing(const char *name, const char *where)
{
    fprintf(stderr, "%s is not found %s\n", name, where);
    return 1;
}

/* Whether one of the random calls of the tests gives it. */
static bool is_drawn(const mha_setting *row)
{
    enum { CALLS = 2000 };
    bool met = false;
    for (uint64_t seed = 1; seed <= CALLS && !met; seed++) {
        const trial t = trial_draw(seed);
        rig r;
        met = mha_setting_given(row, &t.semantics);
        if (!met && row->shape) { /* arrays are lent when the call is made */
            trial_build(&t, &r);
            met = mha_setting_given(row, &r.call.semantics);
            trial_release(&r);
        }
    }
    return met;
}

/* Whether a layer allocates, counts and fills the weight, and ranks share it. */
static bool has_weight(const char *name)
{
    const mha_config config = {.d_model = 8, .n_heads = 4, .sinks = true};
    mha_params *params = NULL;
    mha_layer *layer = NULL;
    mha_error error;
    bool found = false;
    if (mha_params_create(NULL, &params, &error) != MHA_OK ||
        mha_layer_create(&config, params, NULL, &layer, &error) != MHA_OK)
        return false;
    mha_layer_init(layer, 1);
    for (mha_weight w = 0; w < MHA_WEIGHT_COUNT; w++)
        if (strcmp(mha_weight_at(w)->name, name) == 0 && mha_layer_weight(layer, w)) {
            const mha_split split = {.scheme = MHA_SPLIT_TENSOR, .ranks = 2, .config = *mha_layer_config(layer)};
            found = mha_tensor_info_of(mha_layer_weight(layer, w)).elements == 4 && mha_split_copies(&split, w) == 1 &&
                    mha_params_totals(params, NULL).parameters == 4 * 8 * 8 + 2 * 4;
        }
    mha_layer_destroy(layer);
    mha_params_destroy(params);
    return found;
}

int main(int argc, char **argv)
{
    char alias[100];
    for (int i = 1; i < argc; i++) {
        const mha_setting *row = mha_setting_find(argv[i]);
        snprintf(alias, sizeof alias, "%s_alias", argv[i]);
        if (!row || mha_setting_find(alias) != row)
            return missing(argv[i], "by mha_setting_find");
        if (!is_drawn(row))
            return missing(argv[i], "in random calls");
    }
    if (!has_weight("planted"))
        return missing("the weight", "in a layer");
    printf("found in C\nfound in the random calls of the tests\n");
    return 0;
}
