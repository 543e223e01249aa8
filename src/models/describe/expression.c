/* Evaluates small integer formulas by recursive descent: one table of operators, one function for all. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "models/describe/expression.h"

/* ---------------------------------------------------------------- named values */

/* The place of the name that the first `length` letters of a text are; values->count: there is none. */
static size_t find(const mha__values *values, const char *name, size_t length)
{
    size_t i = 0;
    while (i < values->count &&
           (values->items[i].name[0] != *name || strncmp(values->items[i].name, name, length) != 0 ||
            values->items[i].name[length] != '\0'))
        i++;
    return i;
}

bool mha__values_set_list(mha__values *values, const char *name, const int64_t *list, size_t length)
{
    const size_t letters = strlen(name), at = find(values, name, letters);
    if (letters == 0 || letters >= MHA_SYMBOL || at == MHA_VALUES)
        return false;
    memcpy(values->items[at].name, name, letters + 1);
    values->items[at].value = (int64_t)length;
    values->items[at].list = list;
    values->items[at].from = 0;
    values->count += at == values->count;
    return true;
}

bool mha__values_set(mha__values *values, const char *name, int64_t value)
{
    if (!mha__values_set_list(values, name, NULL, 0))
        return false;
    values->items[find(values, name, strlen(name))].value = value;
    return true;
}

void mha__values_mark(mha__values *values, const char *name, uint64_t from)
{
    const size_t at = find(values, name, strlen(name));
    if (at < values->count)
        values->items[at].from = from;
}

const int64_t *mha__values_find(const mha__values *values, const char *name)
{
    const size_t at = find(values, name, strlen(name));
    return at < values->count ? &values->items[at].value : NULL;
}

int64_t mha__values_get(const mha__values *values, const char *name)
{
    const int64_t *value = mha__values_find(values, name);
    return value ? *value : 0;
}

/* ---------------------------------------------------------------- formulas */

typedef struct parser {
    const char *text, *at;
    const mha__values *values;
    const char *wanted; /* after an error: what was expected; else NULL */
    uint64_t from;      /* the roots that decide the operand or term read last */
    int depth;
} parser;

/* From the lowest precedence to the highest. Longer spellings come first: "<=" before "<". */
static const struct operator
{
    const char *spelling;
    int level;
}
operators[] = {{"||", 0}, {"&&", 1}, {"==", 2}, {"!=", 2}, {"<=", 2}, {">=", 2}, {"<", 2},
               {">", 2},  {"+", 3},  {"-", 3},  {"*", 4},  {"/", 4},  {"%", 4},  {"^", 5}};

enum { DEEPEST = 64 };

static int64_t evaluate(parser *p, int level);

static int64_t stop(parser *p, const char *wanted)
{
    if (!p->wanted)
        p->wanted = wanted;
    return 0;
}

static void skip_spaces(parser *p)
{
    while (*p->at == ' ')
        p->at++;
}

static int64_t number(parser *p)
{
    int64_t value = 0;
    for (; isdigit((unsigned char)*p->at); p->at++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *p->at - '0', &value))
            return stop(p, "a number of at most 63 bits");
    return value;
}

static int64_t name(parser *p)
{
    const char *start = p->at;
    while (isalnum((unsigned char)*p->at) || *p->at == '_')
        p->at++;
    const size_t at = find(p->values, start, (size_t)(p->at - start));
    if (at == p->values->count) {
        p->at = start;
        return stop(p, "a known name");
    }
    p->from |= p->values->items[at].from;
    if (!p->values->items[at].list)
        return p->values->items[at].value;
    if (*p->at != '[')
        return stop(p, "'[' and an index of the list");
    p->at++;
    const int64_t index = evaluate(p, 0);
    skip_spaces(p);
    if (*p->at != ']')
        return stop(p, "']'");
    if (index < 0 || index >= p->values->items[at].value)
        return stop(p, "an index inside the list");
    p->at++;
    return p->values->items[at].list[index];
}

static int64_t operand(parser *p)
{
    if (++p->depth > DEEPEST)
        return stop(p, "fewer nested terms");
    skip_spaces(p);
    int64_t value = 0;
    if (isdigit((unsigned char)*p->at)) {
        value = number(p);
    } else if (isalpha((unsigned char)*p->at) || *p->at == '_') {
        value = name(p);
    } else if (*p->at == '!') {
        p->at++;
        value = !operand(p);
    } else if (*p->at == '-') {
        p->at++;
        if (__builtin_sub_overflow((int64_t)0, operand(p), &value))
            value = stop(p, "a value of at most 63 bits");
    } else if (*p->at == '(') {
        p->at++;
        value = evaluate(p, 0);
        skip_spaces(p);
        if (*p->at != ')')
            return stop(p, "')'");
        p->at++;
    } else {
        value = stop(p, "a number, a name or '('");
    }
    p->depth--;
    return value;
}

static int64_t power(parser *p, int64_t base, int64_t exponent)
{
    int64_t value = 1;
    if (exponent < 0 || exponent > 64)
        return stop(p, "an exponent of 0 to 64");
    for (int64_t i = 0; i < exponent; i++)
        if (__builtin_mul_overflow(value, base, &value))
            return stop(p, "a value of at most 63 bits");
    return value;
}

static int64_t apply(parser *p, const char *spelling, int64_t a, int64_t b)
{
    int64_t value = 0;
    switch (spelling[0]) {
    case '|': return a || b;
    case '&': return a && b;
    case '=': return a == b;
    case '!': return a != b;
    case '<': return spelling[1] ? a <= b : a < b;
    case '>': return spelling[1] ? a >= b : a > b;
    case '^': return power(p, a, b);
    case '/':
    case '%':
        if (b == 0 || (b == -1 && a == INT64_MIN))
            return stop(p, "a divisor other than 0");
        return spelling[0] == '/' ? a / b : a % b;
    case '+':
        if (!__builtin_add_overflow(a, b, &value))
            return value;
        break;
    case '-':
        if (!__builtin_sub_overflow(a, b, &value))
            return value;
        break;
    default:
        if (!__builtin_mul_overflow(a, b, &value))
            return value;
    }
    return stop(p, "a value of at most 63 bits");
}

static const struct operator *operator_at(const char *at)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (operators[i].spelling[0] == *at && (!operators[i].spelling[1] || operators[i].spelling[1] == at[1]))
            return &operators[i];
    return NULL;
}

/* The roots of the term `a OP b` from those of both: only of the operand that decides it, if one does. */
static void decide(parser *p, const char *spelling, int64_t a, uint64_t from_a, int64_t b, uint64_t from_b)
{
    const bool product = *spelling == '*' || *spelling == '&', either = *spelling == '|';
    const bool by_a = (product && a == 0) || (either && a != 0), by_b = (product && b == 0) || (either && b != 0);
    p->from = by_a ? from_a : by_b ? from_b : from_a | from_b;
    const uint64_t skipped = (from_a | from_b) & ~p->from;
    for (int root = 0; skipped && p->values->trace && root < MHA_ROOTS; root++)
        if (skipped >> root & 1)
            p->values->trace->skipped[root] |= p->from;
}

/* An operand and the operators of at least this level after it. Operators of one level go from left to right. */
static int64_t evaluate(parser *p, int level)
{
    const uint64_t before = p->from;
    p->from = 0;
    int64_t value = operand(p);
    while (!p->wanted) {
        skip_spaces(p);
        const struct operator *next = operator_at(p->at);
        if (!next || next->level < level)
            break;
        p->at += strlen(next->spelling);
        const uint64_t from = p->from;
        p->from = 0;
        const int64_t other = evaluate(p, next->level + 1);
        decide(p, next->spelling, value, from, other, p->from);
        value = apply(p, next->spelling, value, other);
    }
    p->from |= before;
    return value;
}

static void record(const parser *p)
{
    if (p->values->trace)
        p->values->trace->read |= p->from;
}

static mha_status failed(const parser *p, mha_error *error)
{
    return mha__fail(error, MHA_INVALID, "expression", "expression '%.*s': expected %s at character %zu",
                     MHA_CUT_ARGS(160, p->text), p->wanted, (size_t)(p->at - p->text) + 1);
}

mha_status mha__expression_list(const char *text, const mha__values *values, int64_t *results, size_t capacity,
                                size_t *count, mha_error *error)
{
    parser p = {.text = text, .at = text, .values = values};
    size_t n = 0;
    skip_spaces(&p);
    while (*p.at && !p.wanted) {
        if (n == capacity) {
            p.wanted = "fewer values";
            break;
        }
        results[n++] = evaluate(&p, 0);
        skip_spaces(&p);
        if (*p.at == ',') {
            p.at++;
            skip_spaces(&p);
            if (!*p.at)
                stop(&p, "a value behind the comma");
        } else if (*p.at) {
            stop(&p, "an operator or the end");
        }
    }
    if (p.wanted)
        return failed(&p, error);
    record(&p);
    *count = n;
    return MHA_OK;
}

mha_status mha__expression_evaluate(const char *text, const mha__values *values, int64_t *result, mha_error *error)
{
    parser p = {.text = text, .at = text, .values = values};
    int64_t value = evaluate(&p, 0);
    skip_spaces(&p);
    if (*p.at)
        stop(&p, "an operator or the end");
    if (p.wanted)
        return failed(&p, error);
    record(&p);
    *result = value;
    return MHA_OK;
}

mha_status mha__values_parse(mha__values *values, const char *text, mha_error *error)
{
    while (*text) {
        char symbol[MHA_SYMBOL], formula[160];
        int used = 0;
        int64_t value;
        if (sscanf(text, "%23[A-Za-z0-9_]=%159[^ ]%n", symbol, formula, &used) != 2)
            return mha__fail(error, MHA_INVALID, "values", "expected name=value, found '%.*s'",
                             MHA_CUT_ARGS(160, text));
        TRY(mha__expression_evaluate(formula, values, &value, error));
        if (!mha__values_set(values, symbol, value))
            return mha__fail(error, MHA_INVALID, symbol, "expected at most %d names, '%s' is one more", MHA_VALUES,
                             symbol);
        for (text += used; *text == ' ';)
            text++;
    }
    return MHA_OK;
}
