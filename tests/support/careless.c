/* Attention kernels with one bug each, which ordinary inputs do not show. */
#include "support/careless.h"

#include <math.h>
#include <stdlib.h>

enum {
    NONE,
    MAXIMUM_FROM_0,
    ZERO_KEY_IN_MAXIMUM,
    HIDDEN_F16_LOWEST,
    LOW_ROWS_EMPTY,
    NO_MAXIMUM,
    RESCALE_CLAMPED,
    HIDDEN_LEAK,
    KEYS_15_BITS,
    LAST_KEY_DROPPED,
    BATCH_OF_10,
    STRIDES_IGNORED,
    GROUPS_FOR_HEADS,
    COUNT
};

static const careless rows[COUNT] = {
    [NONE] = {"right", "no bug", ""},
    [MAXIMUM_FROM_0] = {"maximum-from-0", "the maximum of a row begins at 0", "deep"},
    [ZERO_KEY_IN_MAXIMUM] = {"zero-key-in-maximum",
                             "a key of zeros after the last, up to a multiple of 64, enters the maximum", "deep"},
    [HIDDEN_F16_LOWEST] = {"hidden-f16-lowest", "hidden scores become -65,504", "lowest-causal"},
    [LOW_ROWS_EMPTY] = {"low-rows-empty", "a row whose maximum is below -50,000 is taken for empty: zeros", "lowest"},
    [NO_MAXIMUM] = {"no-maximum", "exp of the scores without their maximum taken off", "large"},
    [RESCALE_CLAMPED] = {"rescale-clamped", "tiles of 16 keys; exp(old - new maximum) is never below exp(-12)",
                         "rising"},
    [HIDDEN_LEAK] = {"hidden-leak", "hidden keys have the weight of a score 18 below the maximum", "hidden-huge"},
    [KEYS_15_BITS] = {"keys-15-bits", "keys are counted in 15 bits", "far-equal"},
    [LAST_KEY_DROPPED] = {"last-key-dropped", "the last key is dropped when their number leaves 1 over multiples of 32",
                          "plain"},
    [BATCH_OF_10] = {"batch-of-10", "batch rows from the tenth on read the keys of the ninth", "count"},
    [STRIDES_IGNORED] = {"strides-ignored", "keys are read as if they lay without gaps", "strides"},
    [GROUPS_FOR_HEADS] = {"groups-for-heads", "of grouped heads, head i reads key/value head i / h_kv", "gqa-groups"},
};

const careless *careless_at(size_t index)
{
    return index < COUNT ? &rows[index] : NULL;
}

typedef struct row {
    size_t bug, S, tile;
    size_t b, head, i;
    bool *seen;
    float *score;
    float maximum, sum;
} row;

/* The key/value head of the row's head. */
static size_t group_of(const mha_call *call, const row *r)
{
    const size_t h = call->query.shape[2], h_kv = call->key.shape[2];
    return r->bug == GROUPS_FOR_HEADS && h > h_kv ? r->head / h_kv % h_kv : r->head / (h / h_kv);
}

static float value_at(const mha_call *call, const row *r, size_t j, size_t f)
{
    const mha_view *v = &call->value;
    const size_t group = group_of(call, r);
    const size_t b = r->bug == BATCH_OF_10 && r->b > 8 ? 8 : r->b;
    return (float)mha_view_get(v, (const size_t[]){b, j, group, f});
}

static float key_at(const mha_call *call, const row *r, size_t b, size_t j, size_t group, size_t f)
{
    const mha_view *k = &call->key;
    if (r->bug == STRIDES_IGNORED) /* gaps only make the memory longer than that */
        return ((const float *)k->data)[((b * k->shape[1] + j) * k->shape[2] + group) * k->shape[3] + f];
    return (float)mha_view_get(k, (const size_t[]){b, j, group, f});
}

static void find_scores(const mha_call *call, row *r)
{
    const mha_visible *s = &call->semantics.visible;
    const size_t d = call->query.shape[3], group = group_of(call, r);
    const size_t b = r->bug == BATCH_OF_10 && r->b > 8 ? 8 : r->b;
    r->maximum = r->bug == MAXIMUM_FROM_0 || (r->bug == ZERO_KEY_IN_MAXIMUM && r->S % 64) ? 0 : -INFINITY;
    for (size_t j = 0; j < r->S; j++) {
        float dot = 0;
        r->seen[j] = (!s->causal || j <= r->i) && (!s->kv_lengths || (int64_t)j < s->kv_lengths[r->b]);
        for (size_t f = 0; f < d; f++)
            dot += (float)mha_view_get(&call->query, (const size_t[]){r->b, r->i, r->head, f}) *
                   key_at(call, r, b, j, group, f);
        r->score[j] = dot / sqrtf((float)d);
        if (!r->seen[j] && r->bug == HIDDEN_F16_LOWEST)
            r->seen[j] = true, r->score[j] = -65504;
        if (r->seen[j])
            r->maximum = fmaxf(r->maximum, r->score[j]);
    }
    for (size_t j = 0; j < r->S && r->bug == HIDDEN_LEAK; j++)
        if (!r->seen[j] && r->maximum > -INFINITY)
            r->seen[j] = true, r->score[j] = r->maximum - 18;
}

/* Sums and weighted values, tile by tile. */
static void attend(const mha_call *call, row *r, float *out)
{
    const size_t d = call->value.shape[3];
    float top = r->bug == RESCALE_CLAMPED ? -INFINITY : r->bug == NO_MAXIMUM ? 0 : r->maximum;
    r->sum = 0;
    for (size_t f = 0; f < d; f++)
        out[f] = 0;
    for (size_t j = 0; j < r->S; j++) {
        if (r->bug == RESCALE_CLAMPED && j % r->tile == 0) {
            float next = top;
            for (size_t t = j; t < j + r->tile && t < r->S; t++)
                next = r->seen[t] ? fmaxf(next, r->score[t]) : next;
            const float factor = top == -INFINITY ? 0 : expf(fmaxf(top - next, -12));
            r->sum *= factor;
            for (size_t f = 0; f < d; f++)
                out[f] *= factor;
            top = next;
        }
        if (!r->seen[j])
            continue;
        const float weight = expf(r->score[j] - top);
        r->sum += weight;
        for (size_t f = 0; f < d; f++)
            out[f] += weight * value_at(call, r, j, f);
    }
}

static void finish(const mha_call *call, row *r, float *out)
{
    const size_t d = call->value.shape[3];
    const bool empty = r->maximum == -INFINITY || (r->bug == LOW_ROWS_EMPTY && r->maximum < -50000);
    for (size_t f = 0; f < d; f++)
        out[f] = empty ? 0 : out[f] / r->sum;
}

void careless_run(size_t index, const mha_call *call, const mha_view *output)
{
    row r = {.bug = index, .S = call->key.shape[1], .tile = 16};
    if (index == KEYS_15_BITS)
        r.S &= 0x7fff;
    if (index == LAST_KEY_DROPPED && r.S % 32 == 1 && r.S > 1)
        r.S--;
    r.seen = calloc(r.S + 1, sizeof *r.seen);
    r.score = calloc(r.S + 1, sizeof *r.score);
    float *out = calloc(call->value.shape[3], sizeof *out);
    for (r.b = 0; r.b < call->query.shape[0]; r.b++)
        for (r.head = 0; r.head < call->query.shape[2]; r.head++)
            for (r.i = 0; r.i < call->query.shape[1]; r.i++) {
                find_scores(call, &r);
                attend(call, &r, out);
                finish(call, &r, out);
                for (size_t f = 0; f < call->value.shape[3]; f++)
                    mha_view_set(output, (const size_t[]){r.b, r.i, r.head, f}, out[f]);
            }
    free(out);
    free(r.seen);
    free(r.score);
}
