/* The part of a layer in a picture: sequences, heads, queries and keys. */
#include "picture/head.h"

#include <stdio.h>

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

/* A failure of a part of one of several sequences says of which. */
static mha_status refuse_part(const mha__picture_choice *choice, size_t sequences, size_t sequence, const char *what,
                              mha_error *error, const char *expected, size_t limit, size_t found)
{
    char place[64] = "";
    if (sequences > 1 && !choice->one_sequence)
        snprintf(place, sizeof place, " (sequence %zu; --batch shows one alone)", sequence);
    return mha__fail(error, MHA_INVALID, what, "expected %s %zu, found %zu%s", expected, limit, found, place);
}

mha_status mha__choice_cut(const mha__picture_choice *choice, size_t sequences, size_t T_q, size_t S, mha__head *head,
                           mha_error *error)
{
    const size_t one[] = {choice->query, choice->query + 1};
    const struct {
        const char *name;
        const size_t *part;
        size_t extent, *first, *count;
    } cuts[] = {{"rows", choice->one_query ? one : choice->rows, T_q, &head->first_query, &head->queries},
                {"keys", choice->keys, S, &head->first_key, &head->keys}};
    if (choice->one_query && choice->query >= T_q)
        return refuse_part(choice, sequences, head->sequence, "query", error, "a query below", T_q, choice->query);
    for (size_t i = 0; i < 2; i++) {
        const size_t *part = cuts[i].part;
        const bool all = part[0] == 0 && part[1] == 0;
        if (!all && part[0] >= part[1])
            return mha__fail(error, MHA_INVALID, cuts[i].name, "expected A:B with A below B, found %zu:%zu", part[0],
                             part[1]);
        if (part[1] > cuts[i].extent)
            return refuse_part(choice, sequences, head->sequence, cuts[i].name, error, "an end of at most",
                               cuts[i].extent, part[1]);
        *cuts[i].first = part[0];
        *cuts[i].count = all ? cuts[i].extent : part[1] - part[0];
    }
    return MHA_OK;
}
