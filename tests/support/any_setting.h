/* Settings of any kind, by their rows: given a value, changed, taken away. */
#ifndef TEST_ANY_SETTING_H
#define TEST_ANY_SETTING_H

#include <stdint.h>

#include "mha/setting.h"

/* The values of the symbols of shapes; a symbol that is not among them is 2. */
typedef struct any_sizes {
    size_t B, h, T_q, T_k, S, n_sequences;
} any_sizes;

bool any_setting_is_array(const mha_setting *row);

/* Gives a number, switch or choice one of the values of its row, other than what holds without it; `bits` say which. */
void any_setting_put(const mha_setting *row, uint64_t bits, mha_semantics *semantics);

/* Lends an array of the kind and shape of its row: bytes from `memory`, filled with small numbers. */
void any_setting_lend(const mha_setting *row, const any_sizes *sizes, void *(*memory)(void *, size_t), void *context,
                      mha_semantics *semantics);

/* Which axis of a view of so many the shape of its row calls by this symbol; -1: none. A view of another rank than the
 * shapes of the row is broadcast from the right. */
int any_setting_axis(const mha_setting *row, int rank, const char *symbol);

/* Makes it another number, switch or choice than it is. */
void any_setting_change(const mha_setting *row, mha_semantics *semantics);

/* Takes it away. */
void any_setting_clear(const mha_setting *row, mha_semantics *semantics);

/* Takes away all settings that have no effect, because what they need is not given. */
void any_setting_settle(mha_semantics *semantics);

/* Writes " name value" of all that are given; returns the bytes written. */
size_t any_setting_text(const mha_semantics *semantics, char *text, size_t size);

#endif
