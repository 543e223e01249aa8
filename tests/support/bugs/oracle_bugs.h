/* Bugs as a kernel contains them, planted in the oracle by the mutations of a program: loops of their own, which share
 * no code with the library. */
#ifndef TEST_ORACLE_BUGS_H
#define TEST_ORACLE_BUGS_H

#include <stdlib.h>
#include <string.h>

#include "support/oracle_run.h"
#include "verify/engine/program.h"

/* The program of the planted bugs. */
extern const mha__program *oracle_program;

/* Plants a program in a call: the oracle computes it until another is planted. */
oracle_bug oracle_plant(const mha__program *p, const mha_semantics *call);

/* Its steps, as oracle_bug has them (oracle_run.h). */
void buggy_inputs(mha_call *call, bool cached);
void buggy_weights(const run *r, mha_view *w);
void buggy_settings(const run *r, mha_semantics *s);
bool buggy_clips(const run *r, int which, int place);
void buggy_projections(run *r);
void buggy_heads(run *r);
void buggy_turns(run *r);
void buggy_keys(run *r);
void buggy_attend(run *r, size_t b, size_t head, size_t i, number *heads);
void buggy_merging(run *r, number *heads);
void buggy_weights_across(run *r, number *heads); /* of a softmax or a mean over heads or queries */
void buggy_gate(run *r, number *heads);
void buggy_output(run *r, const number *heads, oracle_stage *y);

/* Bias of query i at p and a key at q; relative terms of the rows q and k; memory for what replaces an array, until 256
 * others have been taken; a rotation of one head's row at token t of T. */
double buggy_bias(const run *r, size_t head, size_t i, double p, double q);
double buggy_relative(const run *r, size_t head, size_t i, double p, double q_at, const number *q, const number *k);
double *oracle_memory(size_t n);
void buggy_rotation(const run *r, double *x, size_t b, size_t t, size_t T, bool key);
/* x with so many significant bits; those with 4 and 3 are numbers of 8 bits, with few exponents. A negative number: the
 * bits after them dropped. */
double oracle_shortened(double x, int bits);
/* The index that a map reads for index i of n of batch row b; n: a row of zeros. */
size_t oracle_mapped(const mha__mutation *m, size_t b, size_t i, size_t n);
/* Reads the elements of an array (B, T, h, d) where a map says; `step`: from one to the next of each axis. */
void oracle_move(const mha__mutation *m, number *x, const size_t n[4], const size_t step[4]);

/* Reads blocks of an array where a table says (NULL: where they are). */
void oracle_exchange(const mha__mutation *m, number *x, size_t blocks, size_t size);

/* The mutation of a site and an operator, if it has that side (q 0, k 1, v 2); NULL: none. */
static inline const mha__mutation *oracle_mutation(int site, int op, int side)
{
    const mha__mutation *m = oracle_program->m, *end = m + oracle_program->n;
    while (m < end && !(m->site == site && m->op == op))
        m++;
    return m < end && (side < 0 || m->sides >> side & 1) ? m : NULL;
}

static inline int oracle_arg(int site, int op)
{
    const mha__mutation *m = oracle_mutation(site, op, -1);
    return m ? m->arg : 0;
}

static inline double oracle_number(int site, int op, double usual)
{
    const mha__mutation *m = oracle_mutation(site, op, -1);
    return m ? m->number : usual;
}

static inline double oracle_step(int site, int op)
{
    const mha__mutation *m = oracle_mutation(site, op, -1);
    return m ? (double)m->step : 0;
}

#define OP(Site, Op) oracle_mutation(AT_##Site, OP_##Op, -1)
#define OF(Site, Op, side) oracle_mutation(AT_##Site, OP_##Op, side)
#define IS(Site, Op, what) (oracle_arg(AT_##Site, OP_##Op) == MHA__##what)
#define NUMBER(Site, Op, usual) oracle_number(AT_##Site, OP_##Op, usual)
#define STEP(Site, Op) oracle_step(AT_##Site, OP_##Op)

/* i, counted around the ends of n. */
static inline size_t oracle_around(double i, size_t n)
{
    return (size_t)fmod(fmod(i, (double)n) + (double)n, (double)n);
}

#endif
