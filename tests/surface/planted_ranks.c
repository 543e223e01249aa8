/* Whether the digest by which ranks agree changes with each setting: planted_ranks NAME... Needs no second rank. */
#include <stdio.h>

#include "mpi/shared_forward.c"
#include "support/any_setting.h"

static void *lent(void *context, size_t bytes)
{
    static double numbers[64];
    (void)context;
    return bytes <= sizeof numbers ? numbers : NULL;
}

int main(int argc, char **argv)
{
    const any_sizes sizes = {.B = 1, .h = 2, .T_q = 3, .T_k = 3, .S = 3, .n_sequences = 1};
    for (int i = 1; i < argc; i++) {
        const mha_setting *row = mha_setting_find(argv[i]);
        mha_call given = {.path = MHA_PATH_AUTO};
        mha__mpi_call c = {.given = &given};
        c.split.B = 1, c.split.config.n_heads = 2;
        const uint64_t without = digest_of(&c);
        if (row && any_setting_is_array(row))
            any_setting_lend(row, &sizes, lent, NULL, &given.semantics);
        else if (row)
            any_setting_put(row, 1, &given.semantics);
        if (digest_of(&c) == without) {
            fprintf(stderr, "%s is not in the digest of ranks\n", argv[i]);
            return 1;
        }
    }
    printf("found in the digest of ranks\n");
    return 0;
}
