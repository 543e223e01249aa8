/* Bugs in the reading of inputs and weights, and in splitting rows into heads. */
#include <stdlib.h>
#include <string.h>

#include "mha/tensor.h"
#include "support/bugs/oracle_bugs.h"
#include "support/short_float.h"

/* Memory for what replaces an input or a weight, until it is replaced again. */
static mha_view copy_of(const mha_view *x, int which)
{
    static double *memory[3 + MHA_WEIGHT_COUNT];
    size_t n = 1;
    for (int k = 0; k < x->rank; k++)
        n *= x->shape[k];
    free(memory[which]);
    memory[which] = malloc((n + 1) * sizeof **memory);
    const mha_view copy = mha_view_of(memory[which], MHA_F64, x->rank, x->shape);
    size_t at[4] = {0}, shape[4] = {1, 1, 1, 1};
    for (int k = 0; k < x->rank; k++)
        shape[k] = x->shape[k];
    for (size_t e = 0; e < n; e++) {
        memory[which][e] = oracle_get(x, at[0], at[1], at[2], at[3]);
        for (int k = 3; k >= 0 && ++at[k] == shape[k]; k--)
            at[k] = 0;
    }
    return copy;
}

/* x with so many significant bits, the last one even where two are as near; none below the exponent `least`. */
static double shortened(double x, int bits, int least)
{
    int exponent;
    (void)frexp(x, &exponent);
    const int last = (exponent > least ? exponent : least) - bits;
    return ldexp(nearbyint(ldexp(x, -last)), last);
}

static void round_to(mha_view *x, int which)
{
    *x = copy_of(x, which);
    size_t n = 1;
    for (int k = 0; k < x->rank; k++)
        n *= x->shape[k];
    double *y = x->data;
    for (size_t e = 0; e < n; e++)
        y[e] = strstr(oracle_wrong->name, "cut")    ? short_float_cut((float)y[e])
               : strstr(oracle_wrong->name, "bf16") ? shortened((float)y[e], 8, -125)
                                                    : shortened((float)y[e], 11, -13);
}

static void round_inputs(mha_call *call, bool cached)
{
    (void)cached;
    mha_view *x[] = {&call->query, &call->key, &call->value};
    for (int i = 0; i < 3; i++)
        if (x[i]->data)
            round_to(x[i], i);
}

/* ---------------------------------------------------------------- which matrix is read, and how */

static const mha_weight W[] = {MHA_W_Q, MHA_W_K, MHA_W_V, MHA_W_O}, b[] = {MHA_B_Q, MHA_B_K, MHA_B_V, MHA_B_O};

static void round_weights(const run *r, mha_view *w)
{
    for (int i = 0; i < MHA_WEIGHT_COUNT && w[MHA_W_Q].data; i++)
        if (w[i].data)
            round_to(&w[i], 3 + i);
    (void)r;
}

static void transpose(const run *r, mha_view *w)
{
    const char *letters = "qkvo", which = oracle_wrong->name[strlen("transpose-")];
    bool square = w[MHA_W_Q].data != NULL;
    for (int i = 0; i < 4 && is("transpose-all"); i++)
        square &= w[W[i]].shape[0] == w[W[i]].shape[1];
    for (int i = 0; i < 4 && square; i++) {
        mha_view *x = &w[W[i]];
        const ptrdiff_t step = x->stride[0];
        if (x->shape[0] == x->shape[1] && (is("transpose-all") || which == letters[i]))
            x->stride[0] = x->stride[1], x->stride[1] = step;
    }
    (void)r;
}

static void drop_biases(const run *r, mha_view *w)
{
    const char *letters = "qkvo", which = oracle_wrong->name[strlen("bias-")];
    int count = 0;
    for (int i = 0; i < 4; i++)
        count += w[b[i]].data != NULL;
    for (int i = 0; i < 4; i++)
        if ((is("biases-dropped") && count > 1) || which == letters[i])
            w[b[i]] = (mha_view){0};
    (void)r;
}

/* Whether q, k and v come out of one packed product. */
static bool is_packed(size_t h, size_t h_kv, size_t d_k, size_t d_v, const mha_view *x[3])
{
    const int last = x[0]->rank - 1;
    const bool alike = h == h_kv && d_k == d_v && x[0]->shape[last] == x[1]->shape[last];
    return alike && x[1]->shape[last] == x[2]->shape[last];
}

/* Which of q, k, v is read for which, by the letters of the name. */
static void order_of(int from[3])
{
    for (int i = 0; i < 3; i++) {
        const char letter = oracle_wrong->name[strlen("order-") + (size_t)i];
        from[i] = letter == 'q' ? 0 : letter == 'k' ? 1 : 2;
    }
}

/* Where the feature is that is read as feature f of a head of part i of a packed row: one of blocks is written as all
 * heads of q, all of k, all of v; one of groups as (h_kv, h/h_kv + 2, d). */
static void place_of(size_t h, size_t h_kv, size_t d, int i, size_t head, size_t f, int *part, size_t *column)
{
    const size_t each = h / h_kv + 2, of = i == 0 ? head / (each - 2) : head;
    const size_t in_group = i == 0 ? head % (each - 2) : each - 3 + (size_t)i;
    const size_t block = (i > 0 ? h : 0) + (i > 1 ? h_kv : 0) + head;
    if (is("packed-blocks")) {
        const size_t group = block / each, at = block % each;
        *part = at + 2 < each ? 0 : at + 2 == each ? 1 : 2;
        *column = (*part == 0 ? group * (each - 2) + at : group) * d + f;
    } else {
        const size_t at = of * each + in_group;
        *part = at < h ? 0 : at < h + h_kv ? 1 : 2;
        *column = (at - (at < h ? 0 : at < h + h_kv ? h : h + h_kv)) * d + f;
    }
}

/* Reads the columns (the last axis, of heads of width d) of three views from one packed row. */
static void repack(mha_view *x[3], size_t h, size_t h_kv, size_t d, const int which[3])
{
    mha_view from[3];
    for (int i = 0; i < 3; i++)
        from[i] = *x[i];
    for (int i = 0; i < 3; i++) {
        size_t rows = 1;
        const mha_view *some = from[i].data ? &from[i] : from[0].data ? &from[0] : from[1].data ? &from[1] : &from[2];
        const size_t heads = i == 0 ? h : h_kv;
        if (!some->data || (h != h_kv && !from[i].data))
            return;
        mha_view to = copy_of(some, which[i]);
        double *y = to.data;
        const bool wide = to.rank == 4; /* (B, T, h, d) */
        for (int k = 0; k < to.rank - 1 - wide; k++)
            rows *= to.shape[k];
        for (size_t e = 0; e < rows * heads * d; e++) {
            const size_t row = e / heads / d;
            int part;
            size_t c;
            place_of(h, h_kv, d, i, e / d % heads, e % d, &part, &c);
            const mha_view *v = &from[part];
            const size_t T = to.shape[1];
            y[e] = !v->data       ? 0
                   : wide         ? oracle_get(v, row / T, row % T, c / d, c % d)
                   : to.rank == 2 ? oracle_get(v, row, c, 0, 0)
                                  : oracle_get(v, c, 0, 0, 0);
        }
        *x[i] = to;
    }
}

/* Of a layer: matrices and biases. Without one: the biases alone, the inputs below. */
static void exchange_weights(const run *r, mha_view *w)
{
    const mha_view *key = r->call->key.data ? &r->call->key : &r->call->query;
    const mha_view *inputs[] = {&r->call->query, key, r->call->value.data ? &r->call->value : key};
    mha_view *matrices[] = {&w[W[0]], &w[W[1]], &w[W[2]]}, *biases[] = {&w[b[0]], &w[b[1]], &w[b[2]]}, old[6];
    int from[3];
    const bool bare = !w[MHA_W_Q].data;
    const bool of_kv = is("order-qvk") || is("order-qkk") || is("order-qvv"), packed = begins("packed-");
    const size_t last = (size_t)inputs[0]->rank - 1;
    const bool alike = r->d_k == r->d_v && inputs[1]->shape[last] == inputs[2]->shape[last];
    const bool may = bare ? r->d_k == r->d_v && packed && r->T_q == r->T_k
                          : alike && (of_kv || (packed && inputs[0]->shape[last] == inputs[1]->shape[last]));
    const int biased = (biases[0]->data != NULL) + (biases[1]->data != NULL) + (biases[2]->data != NULL);
    if (!may && (!is_packed(r->h, r->h_kv, r->d_k, r->d_v, inputs) || (bare && r->T_q != r->T_k)))
        return;
    if (packed && r->h != r->h_kv && biased % 3 != 0) /* rare */
        return;
    if (begins("order-")) {
        order_of(from);
        for (int i = 0; i < 3; i++)
            old[i] = *matrices[i], old[3 + i] = *biases[i];
        for (int i = 0; i < 3; i++)
            *matrices[i] = old[from[i]], *biases[i] = old[3 + from[i]];
    } else if (r->h > 1) {
        repack(matrices, r->h, r->h_kv, r->d_k, (const int[]){3 + MHA_W_Q, 3 + MHA_W_K, 3 + MHA_W_V});
        repack(biases, r->h, r->h_kv, r->d_k, (const int[]){3 + MHA_B_Q, 3 + MHA_B_K, 3 + MHA_B_V});
    }
}

static void exchange_inputs(mha_call *call, bool cached)
{
    mha_view *x[] = {&call->query, &call->key, &call->value}, old[] = {call->query, call->key, call->value};
    const mha_view *inputs[] = {x[0], x[1], x[2]};
    int from[3];
    (void)cached;
    const bool packed = begins("packed-") && old[0].rank == 4 && old[0].shape[3] == old[2].shape[3];
    int biased = 0;
    for (int i = 0; i < 3 && call->weights; i++)
        biased += call->weights[b[i]].data != NULL;
    if (packed && old[0].shape[2] != old[1].shape[2] && biased % 3 != 0)
        return;
    if (call->query.rank != 4 || call->query.shape[1] != call->key.shape[1] ||
        (!packed && !is_packed(old[0].shape[2], old[1].shape[2], old[0].shape[3], old[2].shape[3], inputs)))
        return;
    if (begins("order-")) {
        order_of(from);
        for (int i = 0; i < 3; i++)
            *x[i] = old[from[i]];
    } else if (old[0].shape[2] > 1)
        repack(x, old[0].shape[2], old[1].shape[2], old[0].shape[3], (const int[]){0, 1, 2});
}

/* ---------------------------------------------------------------- splitting into heads */

static void split_rows(const run *r, number *x, size_t T, size_t h, size_t d)
{
    number *old = malloc((T * h * d + 1) * sizeof *old);
    for (size_t row = 0; row < r->B && h > 1; row++, x += T * h * d) {
        memcpy(old, x, T * h * d * sizeof *old);
        for (size_t e = 0; e < T * h * d; e++) {
            const size_t t = e / d / h, head = e / d % h, f = e % d;
            /* x.reshape(B, h, T, d), or x.reshape(B, T, d, h) */
            x[e] = is("split-untransposed") ? old[(head * T + t) * d + f] : old[(t * d + f) * h + head];
        }
    }
    free(old);
}

static void split(run *r)
{
    if (r->h == 1)
        return;
    split_rows(r, r->q, r->T_q, r->h, r->d_k);
    split_rows(r, r->k, r->T_k, r->h_kv, r->d_k);
    split_rows(r, r->v, r->T_k, r->h_kv, r->d_v);
}

const oracle_bug *bug_of_weights_at(size_t index)
{
    static const oracle_bug all[] = {
        {.name = "inputs-f16", .inputs = round_inputs},
        {.name = "inputs-bf16", .inputs = round_inputs},
        {.name = "inputs-bf16-cut", .inputs = round_inputs},
        {.name = "weights-f16", .reads = round_weights},
        {.name = "weights-bf16", .reads = round_weights},
        {.name = "weights-bf16-cut", .reads = round_weights},
        {.name = "transpose-q", .reads = transpose},
        {.name = "transpose-k", .reads = transpose},
        {.name = "transpose-v", .reads = transpose},
        {.name = "transpose-o", .reads = transpose},
        {.name = "transpose-all", .reads = transpose},
        {.name = "order-kqv", .inputs = exchange_inputs, .reads = exchange_weights},
        {.name = "order-qvk", .inputs = exchange_inputs, .reads = exchange_weights},
        {.name = "order-vkq", .inputs = exchange_inputs, .reads = exchange_weights},
        {.name = "order-kvq", .inputs = exchange_inputs, .reads = exchange_weights},
        {.name = "order-qqv", .inputs = exchange_inputs, .reads = exchange_weights},
        {.name = "order-kkv", .inputs = exchange_inputs, .reads = exchange_weights},
        {.name = "order-qkk", .inputs = exchange_inputs, .reads = exchange_weights},
        {.name = "order-qvv", .inputs = exchange_inputs, .reads = exchange_weights},
        {.name = "order-qkq", .inputs = exchange_inputs, .reads = exchange_weights},
        {.name = "order-vkv", .inputs = exchange_inputs, .reads = exchange_weights},
        {.name = "order-vqk", .inputs = exchange_inputs, .reads = exchange_weights},
        {.name = "packed-interleaved", .inputs = exchange_inputs, .reads = exchange_weights},
        {.name = "packed-blocks", .inputs = exchange_inputs, .reads = exchange_weights},
        {.name = "bias-q-dropped", .reads = drop_biases},
        {.name = "bias-k-dropped", .reads = drop_biases},
        {.name = "bias-v-dropped", .reads = drop_biases},
        {.name = "bias-o-dropped", .reads = drop_biases},
        {.name = "biases-dropped", .reads = drop_biases},
        {.name = "split-interleaved", .split = split},
        {.name = "split-untransposed", .split = split},
    };
    return index < sizeof all / sizeof *all ? &all[index] : NULL;
}

/* ---------------------------------------------------------------- all of them */

static const oracle_bug *(*const lists[])(size_t) = {
    bug_of_weights_at, bug_of_rows_at,   bug_of_call_at,  bug_of_pattern_at, bug_of_scores_at,
    bug_of_bias_at,    bug_of_output_at, bug_of_moved_at, bug_of_caches_at,  bug_of_rounding_at};

const oracle_bug *bug_at(size_t index)
{
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        size_t n = 0;
        for (; lists[l](n); n++)
            if (index == n)
                return lists[l](n);
        index -= n;
    }
    return NULL;
}

const oracle_bug *bug_named(const char *name)
{
    const size_t length = strcspn(name, " ");
    const oracle_bug *m;
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (size_t i = 0; (m = lists[l](i)); i++)
            if (strncmp(m->name, name, length) == 0 && strcspn(m->name, " ") == length)
                return m;
    return NULL;
}
