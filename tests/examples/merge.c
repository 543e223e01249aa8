/* Flash-decoding: one query against 1,000 keys, whose parts are attended to apart and merged by their lse. */
#include <math.h>
#include <mha/mha.h>
#include <stdio.h>

enum { KEYS = 1000, HEADS = 4, WIDTH = 16, PARTS = 3 };

static float query[HEADS * WIDTH], key[KEYS * HEADS * WIDTH], value[KEYS * HEADS * WIDTH];
static float whole[HEADS * WIDTH], merged[HEADS * WIDTH], heads[PARTS][HEADS * WIDTH], lse[PARTS][HEADS];

/* The query attends to `count` keys from `from` on; the mask, were there one, would be cut like the keys. */
static mha_status attend(size_t from, size_t count, float *out, float *sum, mha_error *error)
{
    const size_t first = from * HEADS * WIDTH;
    mha_keep keep = {.stage = MHA_STAGE_LSE, .view = mha_view_of(sum, MHA_F32, 3, (const size_t[]){1, HEADS, 1})};
    const mha_call call = {.query = mha_heads(query, 1, 1, HEADS, WIDTH),
                           .key = mha_heads(key + first, 1, count, HEADS, WIDTH),
                           .value = mha_heads(value + first, 1, count, HEADS, WIDTH),
                           .output = mha_heads(out, 1, 1, HEADS, WIDTH),
                           .keep = &keep,
                           .keep_count = sum ? 1 : 0,
                           .semantics = {.visible.causal = true,
                                         .place.offset = KEYS - 1, /* the query stands at the last key, */
                                         .visible.window_left = 600,
                                         .softmax.softmax_plus_one = true,
                                         .place.has_key_offset = true,
                                         .place.key_offset = (int64_t)from, /* and this is where these keys stand */
                                         .place.keys_only = from > 0}};     /* the first part counts the plus-one */
    return mha_run(NULL, &call, error);
}

int main(void)
{
    const size_t from[PARTS + 1] = {0, 300, 777, KEYS};
    const mha_view inputs[] = {mha_rows(query, 1, 1, HEADS * WIDTH), mha_rows(key, 1, KEYS, HEADS * WIDTH),
                               mha_rows(value, 1, KEYS, HEADS * WIDTH)};
    const mha_part result = {.heads = mha_heads(merged, 1, 1, HEADS, WIDTH)};
    mha_part parts[PARTS];
    mha_error error;
    for (unsigned i = 0; i < 3; i++)
        mha_random_fill(&inputs[i], 7, i, -1.0f, 1.0f);
    mha_status status = attend(0, KEYS, whole, NULL, &error);
    for (size_t i = 0; i < PARTS && status == MHA_OK; i++) {
        status = attend(from[i], from[i + 1] - from[i], heads[i], lse[i], &error);
        parts[i] = (mha_part){mha_heads(heads[i], 1, 1, HEADS, WIDTH),
                              mha_view_of(lse[i], MHA_F32, 3, (const size_t[]){1, HEADS, 1})};
    }
    if (status == MHA_OK)
        status = mha_merge(parts, PARTS, MHA_EMPTY_ZERO, &result, &error);
    double farthest = 0;
    for (size_t i = 0; i < HEADS * WIDTH; i++)
        farthest = fmax(farthest, fabs((double)merged[i] - (double)whole[i]));
    if (status == MHA_OK)
        printf("%d parts, of which the window leaves two: merged and whole differ by %g at most\n", PARTS, farthest);
    else
        fprintf(stderr, "%s: %s\n", error.name, error.message);
    return status != MHA_OK || farthest > 1e-5;
}
