/* Bugs in norms, rotations, limits and scales by position of rows. */
#include "support/bugs/oracle_bugs.h"

/* ---------------------------------------------------------------- norm */

static void normalise(const run *r, double *x, size_t n, const double *weight, const double *bias, size_t period)
{
    const mha_norm_rule *rule = &r->s->qkv.norm;
    const double eps = r->s->qkv.norm_eps;
    double mean = 0, squares = 0;
    for (size_t i = 0; i < n && rule->kind == MHA_NORM_LAYER; i++)
        mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        x[i] -= mean, squares += x[i] * x[i];
    const double mean_square = rule->kind == MHA_NORM_L2 ? squares : squares / (double)n,
                 by = OP(NORM, FN) ? sqrt(mean_square) + eps : sqrt(mean_square + eps);
    for (size_t i = 0; i < n; i++) {
        x[i] = x[i] / by * (OP(NORM_WEIGHT, ZERO) || !weight ? 1 : weight[i % period] + rule->plus_one);
        x[i] += bias && !OP(NORM_BIAS, ZERO) ? bias[i % period] : 0;
    }
}

static void norm_rows(const run *r, double *x, size_t rows, size_t width, bool key)
{
    const oracle_norm *norm = &r->norm[key];
    const size_t period = OP(NORM_WEIGHT, FROM) || !norm->weights ? r->d_k : norm->weights;
    size_t span = norm->span;
    if (!span || OF(NORM, ZERO, key))
        return;
    if (OP(NORM, OVER))
        span = span == r->d_k ? width : r->d_k;
    for (size_t at = 0; at < rows * width; at += span) {
        const size_t first = at % period;
        normalise(r, x + at, span,
                  norm->weight ? r->norm[OF(NORM_WEIGHT, TAKE, key) ? !key : key].weight + first : NULL,
                  norm->bias ? norm->bias + first : NULL, span < period ? span : period);
    }
    for (size_t e = 0; e < rows * width && OP(NORM_WEIGHT, TIMES); e++)
        x[e] *= OP(NORM_WEIGHT, TIMES)->table[(key ? r->d_k : 0) + e % r->d_k];
}

/* A query's row, or with the bug a key's, multiplied by the scale of its position. */
static void scale_row(const run *r, double *x, size_t n, double position, bool key)
{
    const mha_query_scale *q = &r->s->qkv.query_scale;
    double f = 1;
    if (key && !OP(QSCALE, DO))
        return;
    if (q->growth != 0) {
        const double steps = fmax(0, position + (double)q->first) / (double)q->every;
        f += q->growth * log(1 + (OP(QSCALE, FN) ? steps : floor(steps)));
    }
    if (q->log_n) {
        const double grown = log(fmax(1, position + NUMBER(LOG_N, PLUS, 1))) / log((double)q->log_n);
        f *= grown > 1 || OP(LOG_N, FN) ? grown : 1;
    }
    for (size_t i = 0; i < n; i++)
        x[i] *= f;
}

/* ---------------------------------------------------------------- rotation */

/* Where row t of T of batch row b is, as the bugs have it. */
static double position_of(const run *r, size_t b, size_t t, size_t T, bool key)
{
    const mha__mutation *row = OP(POS_ROW, FROM), *held = OP(POSITION, FROM), *run_on = OF(POS, PLUS, key);
    t = row ? oracle_mapped(row, b, t, T) : t;
    double position = OF(POS, ZERO, key) ? (double)t : oracle_position(r, OP(POS, FROM) ? 0 : b, t, key);
    position += (key ? NUMBER(POS_K, PLUS, 0) : NUMBER(POS_Q, PLUS, 0)) + (run_on ? (double)(b * T) : 0);
    if (OP(POSITION, BITS))
        position = oracle_shortened(position, (int)NUMBER(POSITION, BITS, 0));
    if (held && held->arg == MHA__HELD)
        return fmin(position, (double)held->step - 1);
    return held ? (double)oracle_around(position, (size_t)held->step) : position / NUMBER(POS, TIMES, 1);
}

/* y = x * cos + rotate(x) * sin over the rotated features of one head, as libraries write it: with the two tables
 * laid out feature by feature. */
void buggy_rotation(const run *r, double *x, size_t b, size_t t, size_t T, bool key)
{
    const mha_rope *rope = &r->s->qkv.rope;
    const bool pairs = (rope->kind == MHA_ROPE_INTERLEAVED) != (OF(PAIR, FN, key) != NULL),
               laid = OP(ANGLE, MOVE) ? !pairs : pairs, second_first = IS(TURN, FN, SECOND_OVERWRITTEN);
    const size_t dim = rope->dim ? rope->dim : r->d_k, half = dim / 2;
    const double m = rope->attention_factor > 0 ? rope->attention_factor : 1, position = position_of(r, b, t, T, key);
    double turned[64], cosine[64], sine[64], off;
    x += rope->last ? r->d_k - dim : 0;
    if (OP(POS_ROW, FROM) && OP(POS_ROW, FROM)->arg == MHA__REVERSED)
        t = T - 1 - t; /* of tables by row, too */
    for (size_t e = 0; e < dim; e++) {
        size_t i = laid ? e / 2 : e % half;
        i = OP(ANGLE, FROM) ? half - 1 - i : i;
        const double angle = position / pow(rope->base, 2 * (double)i / NUMBER(ANGLE, OVER, 1));
        cosine[e] = cos(angle), sine[e] = sin(angle);
        if (!OP(ANGLE, OVER))
            oracle_angle(r, b, t, position, i, dim, &cosine[e], &sine[e], &off);
        if ((OP(ANGLE, BITS) || OP(ANGLE, ROUND)) && !rope->cos_table.data) {
            double f = rope->frequencies.data ? oracle_get(&rope->frequencies, i, 0, 0, 0)
                                              : pow(rope->base, -2 * (double)i / (double)dim);
            f = OP(ANGLE, ROUND) ? oracle_shortened(f, (int)NUMBER(ANGLE, ROUND, 0)) : f;
            f = OP(ANGLE, BITS) ? oracle_shortened(position * f, (int)NUMBER(ANGLE, BITS, 0)) : position * f;
            cosine[e] = cos(f), sine[e] = sin(f);
        }
        for (int n = 0; n < 2 && OP(SIN, BITS); n++)
            *(n ? &sine[e] : &cosine[e]) = oracle_shortened(n ? sine[e] : cosine[e], (int)NUMBER(SIN, BITS, 0));
        const double c = cosine[e], s = OF(SIN, TIMES, key) ? -sine[e] : sine[e];
        cosine[e] = OP(SIN, TAKE) ? s : c, sine[e] = OP(SIN, TAKE) ? c : s;
    }
    for (size_t n = 0; n < dim; n++) { /* x1 = x1 cos - x2 sin; x2 = x2 cos + x1 sin; or x2 first */
        const size_t e = second_first ? dim - 1 - n : n, partner = pairs ? e ^ 1 : e < half ? e + half : e - half;
        const bool again = partner < e ? IS(TURN, FN, FIRST_OVERWRITTEN) : second_first;
        const double other = again ? turned[partner] : x[partner];
        turned[e] = m * (x[e] * cosine[e] + (partner > e && !IS(TURN, FN, TURN_ADDS) ? -other : other) * sine[e]);
    }
    for (size_t e = 0; e < dim; e++)
        x[!OP(PAIR, MOVE) ? e : pairs ? e / 2 + e % 2 * half : e % half * 2 + e / half] = turned[e];
}

/* ---------------------------------------------------------------- limits */

bool buggy_clips(const run *r, int which, int place)
{
    const mha_qkv *right = &r->call->semantics.qkv;
    const int moved = oracle_arg(AT_CLIP, OP_MOVE);
    const bool normed = which < 2 && !right->norm.after_rope && (r->norm[which].weight || right->norm.unweighted);
    if (OF(CLIP, ZERO, which))
        return false;
    if (moved == MHA__BEFORE_BIAS || (moved && which < 2))
        return place == (moved == MHA__BEFORE_BIAS   ? ORACLE_BEFORE_BIAS
                         : moved == MHA__BEFORE_NORM ? ORACLE_PROJECTED
                                                     : ORACLE_ROTATED);
    return place == (normed ? ORACLE_NORMED : ORACLE_PROJECTED);
}

static void clip(const run *r, int which, int place, double *x, size_t n)
{
    const double c = r->s->qkv.clip_qkv;
    for (size_t i = 0; oracle_clips(r, which, place) && i < n; i++)
        x[i] = x[i] > c ? c : x[i] < -c ? -c : x[i];
}

/* ---------------------------------------------------------------- all of it */

static void turn_rows(run *r, bool key)
{
    const size_t heads = key ? r->h_kv : r->h, width = heads * r->d_k, rows = key ? r->rows_k : r->rows_q,
                 T = key ? r->T_k : r->T_q;
    const mha_view *bias = &r->weights[key ? MHA_B_K : MHA_B_Q];
    const bool late = bias->data && OP(BIAS, MOVE);
    number *to = key ? r->k_rot : r->q_rot;
    double *x = oracle_memory(rows * width);
    for (size_t e = 0; e < rows * width; e++)
        x[e] = (key ? r->k : r->q)[e].v - (late ? oracle_get(bias, e % width, 0, 0, 0) : 0);
    for (size_t e = 0; e < rows * width && late; e++)
        r->out->stage[key ? MHA_STAGE_K : MHA_STAGE_Q].value[e] = x[e];
    if (!r->s->qkv.norm.after_rope)
        norm_rows(r, x, rows, width, key);
    clip(r, key, ORACLE_NORMED, x, rows * width);
    for (size_t e = 0; e < rows * width && late && IS(BIAS, MOVE, AFTER_NORM); e++)
        x[e] += oracle_get(bias, e % width, 0, 0, 0);
    const size_t turned = (size_t)NUMBER(TURN, KEEP, (double)heads);
    for (size_t row = 0; row < rows && r->s->qkv.rope.kind && !OF(TURN, ZERO, key); row++)
        for (size_t h = 0; h < heads && h < turned; h++)
            for (int n = 0; n < (OF(TURN, TIMES, key) ? 2 : 1); n++)
                buggy_rotation(r, x + row * width + h * r->d_k, row / T, row % T, T, key);
    clip(r, key, ORACLE_ROTATED, x, rows * width);
    for (size_t e = 0; e < rows * width && late && IS(BIAS, MOVE, AFTER_ROPE); e++)
        x[e] += oracle_get(bias, e % width, 0, 0, 0);
    if (r->s->qkv.norm.after_rope)
        norm_rows(r, x, rows, width, key);
    for (size_t row = 0; row < rows; row++)
        scale_row(r, x + row * width, width, oracle_position(r, row / T, row % T, key), key);
    for (size_t e = 0; e < rows * width; e++)
        to[e].v = x[e];
}

void buggy_turns(run *r)
{
    turn_rows(r, false);
    turn_rows(r, true);
}
