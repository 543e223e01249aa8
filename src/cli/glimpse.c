/* A look at one head's attention weights: the strongest keys of a few queries, and the matrix as a picture. */
#include "cli/glimpse.h"

#include <stdlib.h>

#include "cli/print.h"

enum { STRONGEST = 4, PICTURE_ROWS = 16, PICTURE_COLUMNS = 64 };

static double weight_at(const mha_view *weights, size_t query, size_t key)
{
    return mha_view_get(weights, (size_t[]){0, 0, query, key});
}

/* The keys with the largest weights, largest first; those of weight 0 or NaN are not among them. */
static size_t strongest_keys(const mha_view *weights, size_t query, size_t keys[STRONGEST])
{
    size_t n = 0;
    for (size_t key = 0; key < weights->shape[3]; key++) {
        double w = weight_at(weights, query, key);
        size_t at = n;
        while (at > 0 && w > weight_at(weights, query, keys[at - 1]))
            at--;
        if (!(w > 0) || at == STRONGEST)
            continue;
        n += n < STRONGEST;
        for (size_t i = n - 1; i > at; i--)
            keys[i] = keys[i - 1];
        keys[at] = key;
    }
    return n;
}

static void print_query(const mha_view *weights, size_t query)
{
    size_t keys[STRONGEST], n = strongest_keys(weights, query, keys);
    printf("  query %5zu  looks at", query);
    if (n == 0)
        printf(" no key");
    for (size_t i = 0; i < n; i++)
        printf("%s key %zu (%.1f %%)", i ? "," : "", keys[i], 100 * weight_at(weights, query, keys[i]));
    putchar('\n');
}

/* Mean weight of a block of queries and keys: [*][2] are first and one past the last. */
static double block_mean(const mha_view *weights, const size_t query[2], const size_t key[2])
{
    double sum = 0;
    for (size_t i = query[0]; i < query[1]; i++)
        for (size_t j = key[0]; j < key[1]; j++)
            sum += weight_at(weights, i, j);
    return sum / (double)((query[1] - query[0]) * (key[1] - key[0]));
}

/* Each line is as dark as its own largest block allows, so that early rows of a causal layer, which share
 * their weight among few keys, do not hide the later ones. */
static void print_picture(const mha_view *weights)
{
    static const char shades[] = " .:-=+*#%@";
    size_t T = weights->shape[2], S = weights->shape[3];
    size_t rows = T < PICTURE_ROWS ? T : PICTURE_ROWS, columns = S < PICTURE_COLUMNS ? S : PICTURE_COLUMNS;
    double mean[PICTURE_COLUMNS];
    printf("\n  keys 0 to %zu from left to right; darker is more of a query's attention\n", S - 1);
    for (size_t i = 0; i < rows; i++) {
        const size_t query[2] = {i * T / rows, (i + 1) * T / rows};
        double largest = 0;
        for (size_t j = 0; j < columns; j++) {
            mean[j] = block_mean(weights, query, (size_t[]){j * S / columns, (j + 1) * S / columns});
            largest = mean[j] > largest ? mean[j] : largest;
        }
        printf("  %5zu |", query[0]);
        for (size_t j = 0; j < columns; j++)
            putchar(mean[j] > 0 ? shades[1 + (size_t)(8 * mean[j] / largest)] : mean[j] == 0 ? ' ' : '?');
        printf("|\n");
    }
}

int glimpse_print(request *r, bool picture)
{
    const size_t most = (size_t)1 << 22; /* 16 MiB of weights */
    const size_t *shape = r->plan.stage_shape[MHA_STAGE_WEIGHTS];
    mha_view sized = mha_view_of(NULL, MHA_F32, r->plan.stage_rank[MHA_STAGE_WEIGHTS], shape);
    mha_view *weights = &r->call.stages[MHA_STAGE_WEIGHTS];
    if (mha_view_elements(&sized) > most || mha_view_elements(&sized) == 0)
        return EXIT_DONE;
    if (!weights->data) {
        double ms;
        r->call.path = r->plan.path == MHA_PATH_EXACT ? MHA_PATH_EXACT : MHA_PATH_AUTO;
        int code = request_keep(r, MHA_STAGE_WEIGHTS);
        if (code == EXIT_DONE)
            code = request_run(r, &ms);
        if (code != EXIT_DONE)
            return code;
    }
    size_t T = shape[2];
    printf("\n%sWhat head 0 looks at%s (its %zu weights; each query's sum to 1)\n", bold(), plain(), T * shape[3]);
    for (size_t i = 0; i < 3 && i < T; i++)
        print_query(weights, T < 3 ? i : i * (T - 1) / 2);
    if (picture)
        print_picture(weights);
    return EXIT_DONE;
}
