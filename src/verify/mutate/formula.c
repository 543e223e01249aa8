/* Evaluates formulas, each operator for all elements. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "verify/mutate/formula.h"

typedef struct reader {
    const mha__elements_of *x;
    const char *at;
} reader;

static void read_sum(reader *r, double *to);

/* Sums or maxima of lines, in each of their elements. */
static void reduce(const mha__elements_of *x, bool adds, double *to)
{
    for (size_t from = 0, end; from < x->count; from = end) {
        double all = 0;
        for (end = from; end < x->count && (!x->line || x->line[end] == x->line[from]); end++)
            if (!x->counts || x->counts[end])
                all = adds ? all + to[end] : fmax(all, to[end]);
        for (size_t e = from; e < end; e++)
            to[e] = all;
    }
}

static void apply(const reader *r, const char *name, double *to)
{
    static const struct {
        const char *name;
        double (*of)(double x);
    } functions[] = {{"exp", exp},   {"tanh", tanh}, {"cosh", cosh}, {"atanh", atanh},
                     {"sqrt", sqrt}, {"abs", fabs},  {"log", log}};
    size_t k = 0;
    if (strcmp(name, "sum") == 0 || strcmp(name, "max") == 0) {
        reduce(r->x, *name == 's', to);
        return;
    }
    while (strcmp(functions[k].name, name) != 0)
        k++;
    for (size_t e = 0; e < r->x->count; e++)
        to[e] = functions[k].of(to[e]);
}

/* A number, a name, a function or a formula in brackets. */
static void read_operand(reader *r, double *to)
{
    const size_t n = r->x->count;
    char name[8] = "";
    if (isdigit((unsigned char)*r->at)) {
        char *end;
        const double number = strtod(r->at, &end);
        r->at = end;
        for (size_t e = 0; e < n; e++)
            to[e] = number;
        return;
    }
    for (size_t k = 0; (isalpha((unsigned char)*r->at) || *r->at == '_' || *r->at == '\'') && k + 1 < sizeof name; k++)
        name[k] = *r->at++;
    if (*r->at != '(') {
        r->x->read(r->x->context, name, to);
        return;
    }
    r->at++;
    read_sum(r, to);
    r->at++;
    if (*name)
        apply(r, name, to);
}

static double to_power(double x, double power)
{
    return power == 2 ? x * x : power == 3 ? x * x * x : pow(x, power);
}

/* Operands with the operators of one rank; the ranks below it first. */
static void read_rank(reader *r, int rank, double *to)
{
    static const char *const operators[] = {"+-", "*/", "^"};
    double *const other = to + r->x->count;
    const bool negates = rank == 1 && *r->at == '-';
    if (rank > 2) {
        read_operand(r, to);
        return;
    }
    r->at += negates;
    read_rank(r, rank + 1, to);
    for (size_t e = 0; negates && e < r->x->count; e++)
        to[e] = -to[e];
    while (*r->at && strchr(operators[rank], *r->at)) {
        const char by = *r->at++;
        read_rank(r, rank + 1, other);
        for (size_t e = 0; e < r->x->count; e++)
            to[e] = by == '+'   ? to[e] + other[e]
                    : by == '-' ? to[e] - other[e]
                    : by == '*' ? to[e] * other[e]
                    : by == '^' ? to_power(to[e], other[e])
                                : to[e] / (other[e] != 0 ? other[e] : 1);
    }
}

static void read_sum(reader *r, double *to)
{
    read_rank(r, 0, to);
}

void mha__formula(const mha__elements_of *x, const char *text, double *room)
{
    reader r = {x, text};
    read_sum(&r, room);
}
