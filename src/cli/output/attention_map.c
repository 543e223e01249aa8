/* A look at one head's attention weights: the strongest keys of a few queries, and the matrix as a picture. */
#include "cli/output/attention_map.h"

#include <math.h>
#include <stdlib.h>

#include "cli/output/print.h"

enum { STRONGEST = 4, PICTURE_ROWS = 16, PICTURE_COLUMNS = 64, LINE = 84 };

static double weight_at(const mha_view *weights, size_t head, size_t query, size_t key)
{
    return mha_view_get(weights, (size_t[]){0, head, query, key});
}

/* The keys with the largest weights of head 0, largest first; those of weight 0 or NaN are not among them. */
static size_t strongest_keys(const mha_view *weights, size_t query, size_t keys[STRONGEST])
{
    size_t n = 0;
    for (size_t key = 0; key < weights->shape[3]; key++) {
        double w = weight_at(weights, 0, query, key);
        size_t at = n;
        while (at > 0 && w > weight_at(weights, 0, query, keys[at - 1]))
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
        printf(isnan(weight_at(weights, 0, query, 0)) ? " NaN" : " no key");
    for (size_t i = 0; i < n; i++)
        printf("%s key %zu (%.1f %%)", i ? "," : "", keys[i], 100 * weight_at(weights, 0, query, keys[i]));
    putchar('\n');
}

/* ---------------------------------------------------------------- pictures */

/* Heads side by side: what stands for a block of queries and keys is its mean weight. */
typedef struct picture {
    const mha_view *weights;
    size_t rows, columns; /* blocks */
    size_t cell;          /* characters for each */
    size_t abreast;       /* heads on a line */
} picture;

static double block_mean(const picture *p, size_t head, size_t row, size_t column)
{
    size_t T = p->weights->shape[2], S = p->weights->shape[3];
    size_t first = row * T / p->rows, past = (row + 1) * T / p->rows;
    size_t left = column * S / p->columns, right = (column + 1) * S / p->columns;
    double sum = 0;
    for (size_t i = first; i < past; i++)
        for (size_t j = left; j < right; j++)
            sum += weight_at(p->weights, head, i, j);
    return sum / (double)((past - first) * (right - left));
}

/* Each line is as dark as its own largest block allows, so that early rows of a causal layer, which share
 * their weight among few keys, do not hide the later ones. */
static void print_line(const picture *p, size_t head, size_t row)
{
    static const char shades[] = " .:-=+*#%@";
    double mean[PICTURE_COLUMNS], largest = 0;
    for (size_t j = 0; j < p->columns; j++) {
        mean[j] = block_mean(p, head, row, j);
        largest = mean[j] > largest ? mean[j] : largest;
    }
    putchar('|');
    for (size_t j = 0; j < p->columns; j++)
        for (size_t i = 0; i < p->cell; i++)
            putchar(mean[j] > 0 ? shades[1 + (size_t)(8 * mean[j] / largest)] : mean[j] == 0 ? ' ' : '?');
    putchar('|');
}

static void print_heads(const picture *p, size_t first, size_t past)
{
    printf("\n      ");
    for (size_t head = first; head < past; head++)
        printf("  %s%-*zu", "head ", head + 1 < past ? (int)(p->columns * p->cell) - 4 : 0, head);
    putchar('\n');
    for (size_t row = 0; row < p->rows; row++) {
        printf("  %5zu", row * p->weights->shape[2] / p->rows);
        for (size_t head = first; head < past; head++) {
            putchar(' ');
            print_line(p, head, row);
        }
        putchar('\n');
    }
}

static void print_pictures(const mha_view *weights)
{
    size_t h = weights->shape[1], T = weights->shape[2], S = weights->shape[3];
    picture p = {.weights = weights,
                 .rows = T < PICTURE_ROWS ? T : PICTURE_ROWS,
                 .columns = S < PICTURE_COLUMNS ? S : PICTURE_COLUMNS,
                 .cell = S <= 16 ? 2 : 1};
    p.abreast = p.columns * p.cell < 5 ? 1 : LINE / (p.columns * p.cell + 3);
    size_t shown = p.abreast == 1 ? 1 : 2 * p.abreast;
    printf("\n  Queries from top to bottom, keys 0 to %zu from left to right; darker is more attention.\n", S - 1);
    for (size_t head = 0; head < h && head < shown; head += p.abreast) {
        size_t past = head + p.abreast < h ? head + p.abreast : h;
        print_heads(&p, head, past < shown ? past : shown);
    }
}

static void print_weights(const mha_view *weights, bool pictures)
{
    size_t T = weights->shape[2];
    printf("\n%sWhat head 0 looks at%s (each query has %zu weights, their sum is 1)\n", bold(), plain(), weights->shape[3]);
    for (size_t i = 0; i < 3 && i < T; i++)
        print_query(weights, T < 3 ? i : i * (T - 1) / 2);
    if (pictures)
        print_pictures(weights);
}

/* The same forward once more, which keeps the weights. */
static int run_again(request *r)
{
    double ms;
    r->call.path = r->plan.path == MHA_PATH_EXACT ? MHA_PATH_EXACT : MHA_PATH_AUTO;
    int code = request_keep(r, MHA_STAGE_WEIGHTS);
    return code == EXIT_DONE ? request_run(r, &ms) : code;
}

int glimpse_print(request *r, bool pictures)
{
    const size_t most = (size_t)1 << 22; /* 16 MiB of weights */
    size_t shape[4];
    const int rank = mha_plan_stage(&r->plan, MHA_STAGE_WEIGHTS, shape);
    const mha_view sized = mha_view_of(NULL, MHA_F32, rank, shape);
    const mha_view *weights = request_stage(r, MHA_STAGE_WEIGHTS);
    if (mha_view_elements(&sized) > most || mha_view_elements(&sized) == 0)
        return EXIT_DONE;
    int code = weights->data ? EXIT_DONE : run_again(r);
    if (code == EXIT_DONE)
        print_weights(weights, pictures);
    return code;
}
