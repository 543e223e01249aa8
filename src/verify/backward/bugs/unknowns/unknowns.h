/* Numbers of bugs that are taken from what somebody computed, as those that bring a backward nearest to it. */
#ifndef MHA_VERIFY_BACKWARD_UNKNOWNS_H
#define MHA_VERIFY_BACKWARD_UNKNOWNS_H

#include "verify/backward/bugs/gradient_bugs.h"

/* Rows go out as they are attended to, or rotated. */
bool mha__has_plain_rows(const mha__backward *b, const mha__gradient_bug *bug);
/* Row i of a head of a gradient that somebody computed, as a map has it: not yet turned back. */
void mha__found_row(const mha__backward *b, const mha__map *map, mha_gradient g, size_t i, double *row);
double mha__inner(const double *x, const double *y, size_t n);
/* The least squares w of sum_k w_k term_k = found, of n terms of `size` numbers; `otherwise` where nothing tells.
 * `room`: (n + 1) n numbers. */
void mha__least_squares(const double *terms, const double *found, size_t n, size_t size, double otherwise, double *room,
                        double *w);
/* Behind the sums of all heads: makes dQ, dK and dV whole multiples of the parts that are added up to them, those that
 * come nearest to what was found. A part of rows of dQ are `block` keys; one of rows of dK and dV are `block` queries
 * of a head that shares them. Rows are those of `block` keys or queries, or, with `whole`, all. */
void mha__fit_parts(mha__backward *b, size_t block, bool whole);
/* Behind the sums of all heads: a query that sees one key says nothing in dQ. Makes its P in dV what was found. */
void mha__fit_lone_queries(mha__backward *b);

#endif
