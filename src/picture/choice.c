/* What a picture shows of a layer: sequences, heads, queries and keys. */
#include "picture/head.h"

mha_status mha__choice_resolve(const mha__picture_choice *choice, size_t sequences, size_t heads,
                               mha__choice_parts *parts, mha_error *error)
{
    *parts = (mha__choice_parts){.sequences = {0, sequences}, .heads = {0, heads}};
    if (choice->one_sequence && choice->sequence >= sequences)
        return mha__fail(error, MHA_INVALID, "batch", "expected a batch row or sequence below %zu, found %zu",
                         sequences, choice->sequence);
    if (choice->one_head && choice->head >= heads)
        return mha__fail(error, MHA_INVALID, "head", "expected a head below %zu, found %zu", heads, choice->head);
    if (choice->one_sequence)
        parts->sequences[0] = choice->sequence, parts->sequences[1] = choice->sequence + 1;
    if (choice->one_head)
        parts->heads[0] = choice->head, parts->heads[1] = choice->head + 1;
    return MHA_OK;
}

/* The part [*first, *first + *count) of `extent` that [from, past) names. */
static mha_status cut(const size_t part[2], size_t extent, const char *what, size_t *first, size_t *count,
                      mha_error *error)
{
    const bool all = part[0] == 0 && part[1] == 0;
    if (!all && part[0] >= part[1])
        return mha__fail(error, MHA_INVALID, what, "expected A:B with A below B, found %zu:%zu", part[0], part[1]);
    if (part[1] > extent)
        return mha__fail(error, MHA_INVALID, what, "expected an end of at most %zu, found %zu", extent, part[1]);
    *first = part[0];
    *count = all ? extent : part[1] - part[0];
    return MHA_OK;
}

mha_status mha__choice_cut(const mha__picture_choice *choice, size_t T_q, size_t S, mha__head *head, mha_error *error)
{
    if (choice->one_query && choice->query >= T_q)
        return mha__fail(error, MHA_INVALID, "query", "expected a query below %zu, found %zu", T_q, choice->query);
    const size_t one[] = {choice->query, choice->query + 1};
    TRY(cut(choice->one_query ? one : choice->rows, T_q, "rows", &head->first_query, &head->queries, error));
    return cut(choice->keys, S, "keys", &head->first_key, &head->keys, error);
}
