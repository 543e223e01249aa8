/* Settings of any kind, by their rows: given a value, changed, taken away. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/call/settings/settings.h"
#include "support/any_setting.h"

bool any_setting_is_array(const mha_setting *row)
{
    return row->kind >= MHA_SETTING_VIEW;
}

static void put(const mha_setting *row, double number, mha_semantics *semantics)
{
    mha_error error;
    if (mha_setting_put_number(row, number, semantics, &error) != MHA_OK) {
        fprintf(stderr, "%s: %s\n", row->name, error.message);
        abort();
    }
}

static size_t words_of(const mha_setting *row)
{
    size_t n = 1;
    for (const char *at = row->choices; *at; at++)
        n += *at == '|';
    return n;
}

void any_setting_put(const mha_setting *row, uint64_t bits, mha_semantics *semantics)
{
    static const double reals[] = {0.5, 1.25, 2, 10};
    int64_t whole = (int64_t)(bits % 9) + 1;
    switch (row->kind) {
    case MHA_SETTING_SWITCH: put(row, 1, semantics); break;
    case MHA_SETTING_CHOICE: put(row, (double)(1 + bits % (words_of(row) - 1)), semantics); break;
    case MHA_SETTING_REAL: {
        const double real = reals[bits % 4];
        put(row, real > row->highest ? row->highest : real < row->lowest ? row->lowest : real, semantics);
        break;
    }
    default:
        whole = whole < row->least ? row->least : whole > row->most ? row->most : whole;
        put(row, (double)whole, semantics);
    }
}

void any_setting_change(const mha_setting *row, mha_semantics *semantics)
{
    const double is = mha_setting_given(row, semantics) ? mha_setting_number(row, semantics) : 0;
    double other = is + 1;
    mha_error error;
    if (row->kind == MHA_SETTING_SWITCH)
        other = is == 0;
    else if (row->kind == MHA_SETTING_CHOICE)
        other = other < (double)words_of(row) ? other : 1;
    else if (row->kind == MHA_SETTING_REAL)
        other = is * 0.5 + 0.0625;
    else if (row->kind == MHA_SETTING_COUNT)
        other = is >= 4 ? floor(is / 2) : is + 2;
    if (mha_setting_put_number(row, other, semantics, &error) == MHA_OK)
        return;
    any_setting_put(row, 0, semantics); /* its range is another one */
    if (mha_setting_number(row, semantics) == is)
        any_setting_put(row, 2, semantics);
}

/* ---------------------------------------------------------------- arrays */

/* The symbols of the shape that begins at '('; how many. */
static int symbols_of(const char *at, char symbols[MHA_MAX_RANK][40])
{
    int rank = 0;
    for (; *at != ')' && rank < MHA_MAX_RANK; at += strcspn(at, ",)")) {
        at += 1 + (*at == ',');
        snprintf(symbols[rank++], sizeof *symbols, "%.*s", (int)strcspn(at, ",)"), at);
    }
    return rank;
}

int any_setting_axis(const mha_setting *row, int rank, const char *symbol)
{
    char symbols[MHA_MAX_RANK][40];
    int first = -1;
    if (strncmp(row->shape, "as ", 3) == 0)
        return any_setting_axis(mha_setting_find(row->shape + 3), rank, symbol);
    for (const char *at = strchr(row->shape, '('); at; at = strchr(at + 1, '(')) {
        const int n = symbols_of(at, symbols);
        int axis = -1;
        for (int k = 0; k < n; k++)
            axis = strcmp(symbols[k], symbol) == 0 && k >= n - rank ? k - (n - rank) : axis;
        if (n == rank)
            return axis;
        first = at == strchr(row->shape, '(') ? axis : first;
    }
    return first;
}

/* The number that a symbol of a shape stands for. */
static size_t extent(const char *symbol, const any_sizes *z)
{
    const struct {
        const char *name;
        size_t is;
    } known[] = {{"B", z->B}, {"h", z->h}, {"T_q", z->T_q}, {"T_k", z->T_k}, {"S", z->S},
                 {"n_sequences + 1", z->n_sequences + 1}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, symbol) == 0)
            return known[i].is;
    return 2;
}

void any_setting_lend(const mha_setting *row, const any_sizes *sizes, void *(*memory)(void *, size_t), void *context,
                      mha_semantics *semantics)
{
    char *const at = (char *)semantics + row->at;
    const char *const first = strchr(row->shape, '(');
    char symbols[MHA_MAX_RANK][40];
    size_t shape[MHA_MAX_RANK] = {0}, n = 1;
    const int rank = first ? symbols_of(first, symbols) : 0;
    for (int k = 0; k < rank; k++)
        n *= shape[k] = extent(symbols[k], sizes);
    void *const data = memory(context, n * 8);
    mha_view view = mha_view_of(data, MHA_F32, rank, shape);
    for (size_t i = 0; i < n; i++)
        switch (row->kind) {
        case MHA_SETTING_VIEW: ((float *)data)[i] = (float)(i % 2); break;
        case MHA_SETTING_WHOLES: ((int64_t *)data)[i] = (int64_t)(1 + i % 2); break;
        default: ((double *)data)[i] = 0.5;
        }
    if (row->kind == MHA_SETTING_VIEW)
        memcpy(at, &view, sizeof view);
    else
        memcpy(at, &data, sizeof data);
}

/* ---------------------------------------------------------------- taken away */

void any_setting_clear(const mha_setting *row, mha_semantics *semantics)
{
    char *const at = (char *)semantics + row->at;
    const bool off = false;
    if (row->kind == MHA_SETTING_VIEW)
        memset(at, 0, sizeof(mha_view));
    else if (any_setting_is_array(row))
        memset(at, 0, sizeof(void *));
    else
        put(row, 0, semantics);
    if (row->given_at != SIZE_MAX)
        memcpy((char *)semantics + row->given_at, &off, sizeof off);
}

void any_setting_settle(mha_semantics *semantics)
{
    mha_error error;
    while (mha__settings_check(semantics, false, &error) != MHA_OK)
        any_setting_clear(mha_setting_find(error.name), semantics);
}

size_t any_setting_text(const mha_semantics *semantics, char *text, size_t size)
{
    const mha_setting *row;
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; (row = mha_setting_at(i)) != NULL; i++) {
        char value[80];
        if (!mha_setting_given(row, semantics))
            continue;
        const int n = snprintf(text + used, size - used, " %s %s", row->name,
                               mha_setting_text(row, semantics, value, sizeof value));
        used = (size_t)n < size - used ? used + (size_t)n : size - 1;
    }
    return used;
}
