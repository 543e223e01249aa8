/* Prints attention weights: the strongest keys of a few queries, and the matrices of a few heads as pictures. */
#include "cli/output/attention_map.h"

#include <math.h>
#include <stdlib.h>

#include "cli/output/print.h"

enum { STRONGEST = 4, PICTURE_ROWS = 16, PICTURE_COLUMNS = 64, LINE = 84 };

static double weight_at(const mha_view *weights, size_t head, size_t query, size_t key)
{
    return mha_view_get(weights, (size_t[]){0, head, query, key});
}

/* Finds the keys with the largest weights of a query, largest first, without keys of weight 0 or NaN. */
static size_t strongest_keys(const mha_view *weights, size_t head, size_t query, size_t keys[STRONGEST])
{
    size_t n = 0;
    for (size_t key = 0; key < weights->shape[3]; key++) {
        double w = weight_at(weights, head, query, key);
        size_t at = n;
        while (at > 0 && w > weight_at(weights, head, query, keys[at - 1]))
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

static void print_query(const mha_view *weights, size_t head, size_t query)
{
    size_t keys[STRONGEST], n = strongest_keys(weights, head, query, keys);
    printf("  query %5zu  looks at", query);
    if (n == 0)
        printf(isnan(weight_at(weights, head, query, 0)) ? " NaN" : " no key");
    for (size_t i = 0; i < n; i++)
        printf("%s key %zu (%.1f %%)", i ? "," : "", keys[i], 100 * weight_at(weights, head, query, keys[i]));
    putchar('\n');
}

/* ---------------------------------------------------------------- pictures */

/* Heads drawn side by side: a character shows the mean weight of a block of queries and keys. */
typedef struct picture {
    const mha_view *weights;
    size_t rows, columns; /* number of blocks */
    size_t cell;          /* characters for each block */
    size_t abreast;       /* number of heads in a line */
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

/* Prints one line of blocks. Shades are relative to the line's largest block: otherwise the early rows of a causal
 * layer, which share their weight among few keys, would outshine the later ones. */
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

/* Prints the heads from the first on that fit on two lines of pictures; one head only if `alone`. */
static void print_pictures(const mha_view *weights, size_t first, bool alone)
{
    size_t h = weights->shape[1], T = weights->shape[2], S = weights->shape[3];
    picture p = {.weights = weights,
                 .rows = T < PICTURE_ROWS ? T : PICTURE_ROWS,
                 .columns = S < PICTURE_COLUMNS ? S : PICTURE_COLUMNS,
                 .cell = S <= 16 ? 2 : 1};
    p.abreast = alone || p.columns * p.cell < 5 ? 1 : LINE / (p.columns * p.cell + 3);
    const size_t most = first + (p.abreast == 1 ? 1 : 2 * p.abreast), past_all = most < h ? most : h;
    printf("\n  Queries from top to bottom, keys 0 to %zu from left to right; darker is more attention.\n", S - 1);
    for (size_t head = first; head < past_all; head += p.abreast)
        print_heads(&p, head, head + p.abreast < past_all ? head + p.abreast : past_all);
}

static void print_weights(const mha_view *weights, const arguments *args)
{
    const size_t T = weights->shape[2], head = count_of(args, OPT_HEAD);
    printf("\n%sWhat head %zu looks at%s (each query has %zu weights, their sum is 1)\n", bold(), head, plain(),
           weights->shape[3]);
    if (given(args, OPT_QUERY))
        print_query(weights, head, count_of(args, OPT_QUERY));
    else
        for (size_t i = 0; i < 3 && i < T; i++)
            print_query(weights, head, T < 3 ? i : i * (T - 1) / 2);
    if (!given(args, OPT_QUERY))
        print_pictures(weights, head, given(args, OPT_HEAD));
    if (!given(args, OPT_QUERY) && !given(args, OPT_HEAD))
        printf("\n  --head N shows one head, --query N one query.\n");
}

/* Runs the forward again and keeps the weights. */
static int run_again(request *r)
{
    double ms;
    r->call.path = r->plan.path == MHA_PATH_EXACT ? MHA_PATH_EXACT : MHA_PATH_AUTO;
    int code = request_keep(r, MHA_STAGE_WEIGHTS);
    return code == EXIT_DONE ? request_run(r, &ms) : code;
}

int attention_map_check(const request *r, const arguments *args)
{
    const size_t T = r->call.semantics.cu_seqlens_q ? (size_t)r->call.semantics.cu_seqlens_q[1] : r->plan.T_q;
    if (count_of(args, OPT_HEAD) >= r->plan.h)
        return refuse_option(OPT_HEAD, "expected a head from 0 to %zu, found %zu", r->plan.h - 1,
                             count_of(args, OPT_HEAD));
    if (given(args, OPT_QUERY) && count_of(args, OPT_QUERY) >= T)
        return refuse_option(OPT_QUERY, "expected one of %zu queries, counted from 0, found %zu", T,
                             count_of(args, OPT_QUERY));
    return EXIT_DONE;
}

int attention_map_print(request *r, const arguments *args)
{
    const size_t most = (size_t)1 << 22; /* 16 MiB of weights */
    const mha_semantics *s = &r->call.semantics;
    size_t shape[4];
    const int rank = mha_plan_stage(&r->plan, MHA_STAGE_WEIGHTS, shape);
    const mha_view sized = mha_view_of(NULL, MHA_F32, rank, shape);
    const size_t elements = mha_view_elements(&sized);
    if (elements == 0)
        return EXIT_DONE;
    if (elements > most) {
        char count[SHORT_TEXT];
        printf("\n%s weights are too many to keep for a look at them; with fewer --seq or --batch they are shown.\n",
               count_text(count, elements));
        return EXIT_DONE;
    }
    int code = request_stage(r, MHA_STAGE_WEIGHTS)->data ? EXIT_DONE : run_again(r);
    if (code != EXIT_DONE)
        return code;
    mha_view weights = *request_stage(r, MHA_STAGE_WEIGHTS);
    if (s->cu_seqlens_q) { /* the first sequence alone, up to its end */
        weights = mha_view_slice(&weights, 2, 0, (size_t)s->cu_seqlens_q[1]);
        weights = mha_view_slice(&weights, 3, 0, (size_t)s->cu_seqlens_q[1] + r->plan.S_extra);
    }
    if (mha_view_elements(&weights) > 0)
        print_weights(&weights, args);
    return EXIT_DONE;
}
