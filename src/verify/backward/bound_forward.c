/* What the forward of a layer is off by, from its own numbers: mha_error_bound has 2-norms of whole rows and the least
 * divisor of all norms in their place, which is valid, too, and two or three times as large. Each is the
 * smaller one of both. With x off by E_x, and t the least normal number in place of every underflow:
 *
 *   x W + b    sum E_x |W| + gamma(n + 4) (sum (|x| + E_x) |W| + |b|) + (n + 4 + sum |x| + sum |W|) t
 *   norms      bound_norm.c; rotation: bound_rows.c
 *   rows       the largest error of an element of all rows of q, of k and of v: E_q, E_k, E_v
 *   scores     the largest of all pairs (bound_sums.c)
 *   lse        has the error of scores as a term
 *   heads      error_bound.c, with d = E_lse + 8u in place of the error of masked scores and what rounding them costs,
 *              which is a part of E_lse; of what is gated they are a term */
#include <math.h>
#include <string.h>

#include "attention/call/definition.h"
#include "attention/core/exact/exact_rows.h"
#include "verify/backward/bound.h"
#include "verify/tolerance/tolerance.h"

/* Rows that go one way, from x W to norm and rotation. */
static bool is_plain(const mha__backward *b)
{
    const mha__resolved *r = b->r;
    const mha_qkv *s = &mha__semantics_of(r)->qkv;
    return r->layer && !mha__holds_keys(r) && r->plan.S_extra == 0 && r->qkv.clip_qkv == 0 && !s->norm.after_rope &&
           !mha__scales_queries(&r->qkv) && r->softmax.normaliser == MHA_SOFTMAX && !b->given->whole.lse.data;
}

/* The errors of n numbers x W + b, of a row x. */
static void bound_product(const mha__gradient_errors *e, const mha__backward *b, mha_weight W, const double *x,
                          const double *E_x, double *to)
{
    const mha_view *matrix = &b->matrix[W], *bias = &b->r->weight[mha__bias_of(W)];
    const bool biased = mha__bias_of(W) != W && bias->data;
    const size_t terms = matrix->shape[0], n = matrix->shape[1];
    for (size_t c = 0; c < n; c++) {
        double moved = 0, size = biased ? fabs(mha_view_get(bias, &c)) : 0, met = (double)terms + 4;
        for (size_t k = 0; k < terms; k++) {
            const double w = fabs(mha__matrix_row(matrix, k)[c]), E = E_x ? E_x[k] : 0;
            moved += E * w, size += (fabs(x[k]) + E) * w, met += fabs(x[k]) + w;
        }
        to[c] = moved + mha__gradient_gamma((double)terms + 4, e->sums) * size + met * e->tiny;
    }
}

/* The errors of row `at` of a latent after its norm. `raw`: room for those before it. */
static void bound_latent(const mha__gradient_errors *e, const mha__backward *b, mha_weight A, mha_weight weight,
                         const mha_view *x, const mha_view *latent, const mha_view *normed, size_t at, double *raw,
                         double *to)
{
    static const mha_view none = {0};
    const mha__norm norm = {MHA_NORM_RMS, false, b->r->qkv.norm_eps, &b->r->weight[weight], &none, &none, NULL};
    bound_product(e, b, A, mha__matrix_row(x, at), NULL, raw);
    mha__bound_normed(e, &norm, 0, normed->shape[1], mha__matrix_row(latent, at), raw, mha__matrix_row(normed, at), to);
}

/* The errors of row `at` of q (side 0), k or v as they were projected. `room`: three rows. */
static void bound_projected(const mha__gradient_errors *e, const mha__backward *b, int side, size_t at, double *room[3],
                            double *to)
{
    static const mha_weight W[3] = {MHA_W_Q, MHA_W_K, MHA_W_V};
    const mha__latent *l = &b->r->latent;
    const mha__latent_rows *x = &b->latents;
    if (l->kv_rank == 0 || (side == 0 && l->q_rank == 0)) {
        bound_product(e, b, W[side], mha__matrix_row(&b->x[side], at), NULL, to);
        return;
    }
    if (side == 0) {
        bound_latent(e, b, MHA_W_QA, MHA_QA_NORM, &b->x[0], &x->q, &x->q_normed, at, room[0], room[1]);
        bound_product(e, b, MHA_W_Q, mha__matrix_row(&x->q_normed, at), room[1], to);
        return;
    }
    const size_t wide = l->d_n + l->d_v, d_k = l->d_n + l->d_r;
    bound_latent(e, b, MHA_W_KVA, MHA_KVA_NORM, &b->x[1], &x->kv, &x->kv_normed, at, room[0], room[1]);
    bound_product(e, b, MHA_W_KVB, mha__matrix_row(&x->kv_normed, at), room[1], room[2]);
    for (size_t head = 0; head < b->r->plan.h; head++) {
        const double *made = room[2] + head * wide;
        if (side == 2)
            memcpy(to + head * l->d_v, made + l->d_n, l->d_v * sizeof *to);
        else
            memcpy(to + head * d_k, made, l->d_n * sizeof *to),
                memcpy(to + head * d_k + l->d_n, room[0] + l->kv_rank, l->d_r * sizeof *to);
    }
}

static double largest(const double *x, size_t n)
{
    double most = 0;
    for (size_t c = 0; c < n; c++)
        most = x[c] <= most ? most : x[c]; /* NaN is the largest */
    return most;
}

/* The errors E of a row of q or k after norm and rotation, and the row. */
static void bound_row(const mha__gradient_errors *e, const mha__backward *b, int side, const mha__sequence *s, size_t i,
                      double *row, double *E, double *spare)
{
    const mha__resolved *r = b->r;
    const mha_norm_rule *rule = &mha__semantics_of(r)->qkv.norm;
    const size_t heads = side ? r->plan.h_kv : r->plan.h, n = heads * r->plan.d_k, d_k = r->plan.d_k,
                 t = i + (side ? s->k_from : s->q_from), at = s->batch * (side ? r->key : r->query).shape[1] + t,
                 each = r->norm[side] == MHA_NORM_ROW ? n : d_k;
    const mha__norm norm = {rule->kind, rule->plus_one, r->qkv.norm_eps, &r->weight[side ? MHA_K_NORM : MHA_Q_NORM],
                            NULL, NULL, NULL};
    const double *given = mha__matrix_row(&b->rows[side], at);
    memcpy(row, given, n * sizeof *row);
    mha__exact_normalise(r, side ? MHA_KEYS : MHA_QUERIES, row, heads);
    for (size_t from = 0; r->norm[side] != MHA_NORM_NONE && from < n; from += each) {
        mha__bound_normed(e, &norm, r->norm[side] == MHA_NORM_EACH_HEAD ? from : 0, each, given + from, E + from,
                          row + from, spare);
        memcpy(E + from, spare, each * sizeof *E);
    }
    mha__bound_rotate(e, r, heads, row, E, s->batch, t, mha__exact_position(r, side ? MHA_KEYS : MHA_QUERIES, s, i));
}

/* The largest errors of an element of q, k or v, as they were projected and as they are attended to. */
static void bound_side(const mha__gradient_errors *e, const mha__backward *b, int side, double *room[5], double most[2])
{
    const mha__resolved *r = b->r;
    const size_t n = b->rows[side].shape[1];
    most[0] = most[1] = 0;
    for (size_t sequence = 0; sequence < r->plan.B; sequence++) {
        const mha__sequence s = mha__resolved_sequence(r, sequence);
        for (size_t i = 0; i < (side ? s.T_k : s.T_q); i++) {
            const size_t at = s.batch * (side ? r->key : r->query).shape[1] + i + (side ? s.k_from : s.q_from);
            bound_projected(e, b, side, at, room, room[3]);
            const double projected = largest(room[3], n);
            if (side < 2)
                bound_row(e, b, side, &s, i, room[4], room[3], room[0]);
            const double attended = largest(room[3], n);
            most[0] = projected <= most[0] ? most[0] : projected, most[1] = attended <= most[1] ? most[1] : attended;
        }
    }
}

/* The error of a score, the largest of all pairs of queries and keys. */
static double bound_scores(const mha__gradient_errors *e, const mha__backward *b)
{
    const mha__sizes *p = &b->r->plan;
    const mha_view Q = mha__as_matrix(&b->stages[MHA_STAGE_Q_ROT]), K = mha__as_matrix(&b->stages[MHA_STAGE_K_ROT]);
    const size_t d = p->d_k, group = p->h / p->h_kv;
    double most = 0;
    for (size_t sequence = 0; sequence < p->B; sequence++) {
        const mha__sequence s = mha__resolved_sequence(b->r, sequence);
        for (size_t at = 0; at < s.T_q * s.S * p->h; at++) {
            const size_t head = at % p->h, i = at / p->h / s.S, j = at / p->h % s.S;
            const double *q = mha__matrix_row(&Q, s.batch * b->r->query.shape[1] + s.q_from + i) + head * d,
                         *k = mha__matrix_row(&K, s.k_batch * b->r->key.shape[1] + s.k_from + j) + head / group * d,
                         E = mha__bound_score(e, p, q, k, (double)d);
            most = E <= most ? most : E;
        }
    }
    return most;
}

/* The error of heads, by those of lse and of values; V: the largest value. */
static double bound_heads(const mha__gradient_errors *e, const mha__backward *b, double V)
{
    const double terms = mha__gradient_gamma(2 * (double)(b->r->plan.S + 1) + 16, e->sums),
                 F = fmin(exp(2 * (e->lse + 8 * e->unit)) * (1 + terms) - 1, 2), all = V + e->rows[2];
    return F * all + e->rows[2] + terms * (1 + F) * all + (double)(b->r->plan.S + 2) * e->tiny;
}

static double smaller(double one, double other)
{
    return one < other ? one : other; /* NaN is no bound */
}

bool mha__bound_forward(mha__gradient_errors *e, const mha__backward *b)
{
    const mha__sizes *p = &b->r->plan;
    size_t width = p->h * (p->d_k + p->d_v) + b->r->latent.q_rank + b->r->latent.kv_rank + b->r->latent.d_r;
    if (!is_plain(b) || !isfinite(e->score) || !isfinite(e->heads) || !isfinite(e->lse))
        return true;
    double *room[5], *all = mha__arena_take(&e->sizes.memory, 5 * width * sizeof *all);
    for (int i = 0; all && i < 5; i++)
        room[i] = all + (size_t)i * width;
    for (int side = 0; all && side < 3; side++) {
        double most[2];
        bound_side(e, b, side, room, most);
        e->projected[side] = smaller(most[0], e->projected[side]), e->rows[side] = smaller(most[1], e->rows[side]);
    }
    if (!all)
        return false;
    const double score = smaller(bound_scores(e, b), e->score);
    e->lse -= e->score - score, e->score = score;
    const mha_view *V = &b->stages[MHA_STAGE_V];
    double most = 0;
    for (size_t c = 0; c < mha_view_elements(V); c++)
        most = fmax(most, fabs(((const double *)V->data)[c]));
    const double heads = smaller(bound_heads(e, b, most), e->heads);
    e->gated -= e->gated > 0 ? e->heads - heads : 0, e->heads = heads;
    return true;
}
