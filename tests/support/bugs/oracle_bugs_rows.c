/* Bugs in projections, biases, norms and rotations, before the scores. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "support/axes.h"
#include "support/bugs/oracle_bugs.h"

/* ---------------------------------------------------------------- inputs */

/* A copy of the input, each token's features normalised, or the tokens of each sequence in reverse order. */
static mha_view reread(const mha_view *x, double **memory)
{
    size_t shape[4] = {1, 1, 1, 1}, T = x->shape[1], n = 1;
    for (int k = 0; k < x->rank; k++)
        shape[k] = x->shape[k];
    n = shape[2] * shape[3];
    free(*memory);
    double *y = *memory = malloc((shape[0] * T * n + 1) * sizeof *y);
    for (size_t row = 0; row < shape[0] * T; row++) {
        size_t b = row / T, t = is("inputs-reversed") ? T - 1 - row % T : row % T;
        double mean = 0, var = 0, *to = y + row * n;
        for (size_t e = 0; e < n; e++)
            mean += (to[e] = oracle_get(x, b, t, e / shape[3], e % shape[3]));
        mean = is("input-layer-norm") ? mean / (double)n : 0;
        for (size_t e = 0; e < n; e++)
            var += (to[e] - mean) * (to[e] - mean) / (double)n;
        for (size_t e = 0; e < n && begins("input-"); e++)
            to[e] = (to[e] - mean) / sqrt(var + (is("input-layer-norm") ? 1e-5 : 1e-6));
    }
    return mha_view_of(y, MHA_F64, x->rank, x->shape);
}

static void other_inputs(mha_call *call, bool cached)
{
    (void)cached;
    static double *memory[3];
    mha_view *x[] = {&call->query, &call->key, &call->value};
    for (int i = 0; i < 3; i++)
        if (x[i]->data && (is("inputs-reversed") || x[i]->rank == 3)) /* heads that are given come from norms */
            *x[i] = reread(x[i], &memory[i]);
}

/* (B, T, E) given to a layer that takes (T, B, E), where nothing else tells them apart. */
static bool exchanged;

static void take_batch_for_time(mha_call *call, bool cached)
{
    const mha_semantics *s = &call->semantics;
    const mha_view *key = call->key.data ? &call->key : &call->query;
    mha_view *x[] = {&call->query, &call->key, &call->value};
    exchanged = !cached && call->query.shape[1] == key->shape[1] && !s->visible.kv_lengths && !s->place.has_offset &&
                !s->place.position_offset && !s->place.has_key_offset && !s->visible.mask.kind &&
                !s->visible.key_padding.kind && !s->visible.pattern.q_segments.data &&
                !s->visible.pattern.query_padding.kind && !s->visible.pattern.key_lists.data &&
                !s->visible.pattern.blocks.kind && !s->qkv.rope.q_positions.data && !s->qkv.rope.k_positions.data &&
                !s->qkv.rope.cos_table.data;
    for (int i = 0; i < 3 && exchanged; i++) {
        const size_t B = x[i]->shape[0];
        const ptrdiff_t step = x[i]->stride[0];
        x[i]->shape[0] = x[i]->shape[1], x[i]->shape[1] = B;
        x[i]->stride[0] = x[i]->stride[1], x[i]->stride[1] = step;
    }
}

static void give_back(run *r, const number *heads, oracle_stage *y)
{
    size_t T = y->shape[0], B = y->shape[1], n = y->shape[2];
    double *old = malloc((y->elements + 1) * sizeof *old);
    (void)r, (void)heads;
    memcpy(old, y->value, y->elements * sizeof *old);
    for (size_t row = 0; row < B * T && exchanged; row++)
        memcpy(y->value + row * n, old + (row % T * B + row / T) * n, n * sizeof *old);
    if (exchanged)
        y->shape[0] = B, y->shape[1] = T;
    free(old);
}

/* (B, h, T, d) taken for (B, T, h, d), where nothing else has an axis for one of them; and the output given back so. */
static void take_heads_for_time(mha_call *call, bool cached)
{
    const mha_semantics *s = &call->semantics;
    mha_view *x[] = {&call->query, &call->key, &call->value};
    mha_call still = {.query = call->query, .key = call->key, .semantics = *s};
    still.semantics.place.position_offset = NULL; /* of a batch row, which stays one */
    take_batch_for_time(&still, cached);
    exchanged = exchanged && call->query.rank == 4 && !s->added.alibi_slopes && !s->softmax.zero_row &&
                !s->qkv.rope.frequencies.data;
    for (int w = 0; w < MHA_WEIGHT_COUNT && call->weights; w++)
        exchanged = exchanged && !call->weights[w].data;
    for (int i = 0; i < 3 && exchanged; i++)
        *x[i] = mha__view_swap(x[i], 1, 2);
}

static void give_heads_back(run *r, const number *heads, oracle_stage *y)
{
    const size_t B = y->shape[0], h = y->shape[1], T = r->h, d = r->d_v;
    double *old = malloc((y->elements + 1) * sizeof *old);
    (void)heads;
    memcpy(old, y->value, y->elements * sizeof *old);
    for (size_t row = 0; row < B * T * h && exchanged; row++)
        memcpy(y->value + row * d, old + ((row / (T * h) * h + row % h) * T + row / h % T) * d, d * sizeof *old);
    if (exchanged)
        y->shape[1] = T, y->shape[2] = h * d;
    free(old);
}

/* ---------------------------------------------------------------- biases and columns */

/* q = scale * (x W_Q) + b_Q, and no scale later. The oracle scales later. */
static void add_after_scale(run *r)
{
    double scale = r->s->softmax.has_scale ? r->s->softmax.scale : 1 / sqrt((double)r->d_k);
    for (size_t e = 0; e < r->rows_q * r->h * r->d_k && r->weights[MHA_B_Q].data && !r->norm[0].span && scale != 0; e++)
        r->q[e].v += oracle_get(&r->weights[MHA_B_Q], e % (r->h * r->d_k), 0, 0, 0) * (1 / scale - 1);
}

/* w.reshape(h, 2, d/2).swapaxes(1, 2), as a converter does for the other pairing, or its reverse. */
static void convert(const run *r, number *x, size_t rows, size_t heads)
{
    size_t d = r->d_k;
    number *old = malloc(d * sizeof *old);
    for (size_t at = 0; at < rows * heads; at++, x += d) {
        memcpy(old, x, d * sizeof *old);
        for (size_t a = 0; a < 2; a++)
            for (size_t i = 0; i < d / 2; i++)
                if (begins("un"))
                    x[a * (d / 2) + i] = old[i * 2 + a];
                else
                    x[i * 2 + a] = old[a * (d / 2) + i];
    }
    free(old);
}

static void permute(run *r)
{
    const char *which = strrchr(oracle_wrong->name, '-');
    if (r->d_k % 2)
        return;
    if (strchr(which, 'q'))
        convert(r, r->q, r->rows_q, r->h);
    if (strchr(which, 'k'))
        convert(r, r->k, r->rows_k, r->h_kv);
}

/* ---------------------------------------------------------------- norm */

static mha_norm_kind kind_of(const run *r)
{
    return is("norm-layer") || is("case-lacks-layer-norm") ? MHA_NORM_LAYER
           : is("norm-l2") || is("case-lacks-l2-norm")     ? MHA_NORM_L2
           : is("cosine-scores")                           ? MHA_NORM_L2
           : is("norm-rms")                                ? MHA_NORM_RMS
                                                           : r->s->qkv.norm.kind;
}

static void normalise(const run *r, double *x, size_t n, const double *weight, const double *bias, size_t period,
                      double eps)
{
    const mha_norm_kind kind = kind_of(r);
    const double more = is("norm-not-plus-one") ? 0 : is("norm-plus-one") ? 1 : r->s->qkv.norm.plus_one;
    double mean = 0, squares = 0;
    for (size_t i = 0; i < n && kind == MHA_NORM_LAYER; i++)
        mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        x[i] -= mean, squares += x[i] * x[i];
    double mean_square = kind == MHA_NORM_L2 ? squares : squares / (double)n;
    double by = is("norm-eps-outside") ? sqrt(mean_square) + eps : sqrt(mean_square + eps);
    for (size_t i = 0; i < n; i++) {
        x[i] = x[i] / by * (is("norm-no-weight") || !weight ? 1 : weight[i % period] + more);
        x[i] += bias && !is("norm-bias-missing") ? bias[i % period] : 0;
    }
}

static void norm_rows(const run *r, double *x, size_t rows, size_t width, bool key)
{
    const oracle_norm *norm = &r->norm[key];
    const bool lacks = (begins("case-lacks") && strstr(oracle_wrong->name, "norm")) || is("cosine-scores");
    size_t span = norm->span ? norm->span : lacks ? r->d_k : 0, period = norm->weights ? norm->weights : span;
    double eps = r->s->qkv.norm_eps > 0 ? r->s->qkv.norm_eps : 1e-6;
    if (!span || (is("norm-missing") && r->norm[0].span && r->norm[1].span) ||
        is(key ? "norm-k-missing" : "norm-q-missing"))
        return;
    if (is("norm-other-span"))
        span = span == r->d_k ? width : r->d_k;
    if (is("norm-first-head"))
        period = r->d_k;
    if (begins("norm-eps-1e-"))
        eps = atof(oracle_wrong->name + strlen("norm-eps-"));
    if (is("norm-eps-0") || is("norm-eps-other") || is("cosine-scores"))
        eps = is("cosine-scores") ? 0 : given();
    for (size_t at = 0; at < rows * width; at += span) {
        size_t first = at % period;
        normalise(r, x + at, span, norm->weight ? norm->weight + first : NULL, norm->bias ? norm->bias + first : NULL,
                  span < period ? span : period, eps);
    }
}

/* A query's row, or with the bug a key's, multiplied by the scale of its position. */
static void scale_row(const run *r, double *x, size_t n, double position, bool key)
{
    const mha_query_scale *q = &r->s->qkv.query_scale;
    double f = 1;
    if (key && !is("query-scale-keys"))
        return;
    if (q->growth != 0 && !is("query-scale-missing")) {
        const double first = is("query-scale-first") ? q->first == 0 : (double)q->first,
                     steps = fmax(0, position + first) / (double)q->every;
        f += q->growth * log(1 + (is("query-scale-smooth") ? steps : floor(steps)));
    }
    if (q->log_n && !is("log-n-missing")) {
        const double count = fmax(1, position + (is("log-n-from-0") ? 0 : 1)),
                     grown = log(count) / log((double)q->log_n);
        f *= grown > 1 || is("log-n-always") ? grown : 1;
    }
    for (size_t i = 0; i < n; i++)
        x[i] *= f;
}

/* ---------------------------------------------------------------- rotation */

/* y = x * cos + rotate(x) * sin over the rotated features of one head, as libraries write it: with the two tables
 * laid out feature by feature. */
static void rotate_row(const run *r, double *row, size_t b, size_t t, size_t T, bool key)
{
    const mha_rope *rope = &r->s->qkv.rope;
    const mha_view *table = &rope->cos_table;
    bool lacks = begins("case-lacks-rope"), wide = is("rope-theta-d-model"),
         part = lacks && strstr(oracle_wrong->name, "part");
    const bool other_pairs = is("rope-pairing") || is(key ? "rope-pairing-k" : "rope-pairing-q");
    bool pairs =
             lacks ? strstr(oracle_wrong->name, "pairs") != NULL : (rope->kind == MHA_ROPE_INTERLEAVED) != other_pairs,
         laid = is("rope-angles-mixed") ? !pairs : pairs;
    const bool sized = is("rope-dim-other") && given() < (double)r->d_k && 2 * given() != (double)rope->dim;
    size_t full = part || sized                                        ? (size_t)given()
                  : rope->dim && !(is("rope-full") && r->d_k % 2 == 0) ? rope->dim
                                                                       : r->d_k,
           half = is("rope-half-dim") && full % 4 == 0 ? full / 4 : full / 2;
    size_t dim = 2 * half;
    double *x = row + (is("rope-last-features") != rope->last ? r->d_k - dim : 0);
    double turned[64], cosine[64], sine[64], c, s, off;
    const double m = rope->attention_factor > 0 && !is("rope-factor-missing") ? rope->attention_factor : 1;
    if (is(key ? "rope-queries-only" : "rope-keys-only"))
        return;
    if (is("rope-reversed"))
        t = T - 1 - t;
    if (is("rope-one-position") && given() <= 2)
        t = given() == 1 ? 0 : T - 1;
    const size_t all = T, of = is("rope-first-batch") && table->rank != 3 && !ragged(r) ? 0 : b;
    double position = oracle_position(r, of, t, key);
    if (is("rope-restart") || is(key ? "rope-restart-k" : "rope-restart-q"))
        position = (double)t;
    if (is("rope-positions-run") && !table->data && ((int)given() & (key ? 2 : 1)))
        position += (double)(b * all);
    const double moved = position + (!key && is("rope-queries-moved") && !table->data ? given() : 0) +
                         (is("rope-from-1") || (!key && is("rope-query-ahead"))) -
                         ((!key && is("rope-query-behind")) || (is("rope-offset-less") && r->P > 0));
    if (!table->data || (table->rank == 2 && moved >= 0 && moved < (double)table->shape[0]))
        position = moved;
    if (is("rope-positions-divided") && !table->data)
        position /= given();
    if (is("rope-positions-wrapped") && table->rank != 3)
        position = fmod(position, given());
    if (is("rope-positions-held") && table->rank != 3)
        position = fmin(position, given() - 1);
    for (size_t e = 0; e < dim; e++) {
        size_t i = laid ? e / 2 : e % half;
        i = is("rope-frequencies-reversed") ? half - 1 - i : i;
        double over = wide ? (double)(r->h * r->d_k) : is("rope-theta-d-k") ? (double)r->d_k : (double)dim;
        bool rebased = (is("rope-base-other") && full > 2) || (lacks && !part); /* two features have one angle */
        double usual = begins("rope-base-") ? atof(oracle_wrong->name + strlen("rope-base-")) : 0;
        bool formula = over != (double)full || rebased || lacks || usual > 0 ||
                       (is("rope-full") && full != rope->dim && rope->dim) || sized ||
                       (is("rope-unscaled") && rope->frequencies.data);
        if (!formula)
            oracle_angle(r, b, t, position, i, full, &c, &s, &off);
        else {
            double base = rebased ? given() : usual > 0 ? usual : rope->base > 0 && !lacks ? rope->base : 10000;
            double a = position / pow(base, 2 * (double)i / over);
            c = cos(a), s = sin(a);
        }
        if (is("rope-inverse") || is(key ? "rope-inverse-k" : "rope-inverse-q"))
            s = -s;
        if (is("rope-sin-cos")) {
            double swap = c;
            c = s, s = swap;
        }
        cosine[e] = c, sine[e] = s;
    }
    for (size_t n = 0; n < dim; n++) { /* x1 = x1 cos - x2 sin; x2 = x2 cos + x1 sin; or x2 first */
        const size_t e = is("rope-second-overwritten") ? dim - 1 - n : n, partner = pairs      ? e ^ 1
                                                                                    : e < half ? e + half
                                                                                               : e - half;
        const bool again = is(partner < e ? "rope-first-overwritten" : "rope-second-overwritten");
        const double other = again ? turned[partner] : x[partner];
        turned[e] = m * (x[e] * cosine[e] + (partner > e && !is("rope-adds") ? -other : other) * sine[e]);
    }
    for (size_t e = 0; e < dim; e++) {
        size_t to = !is("rope-regrouped") ? e : pairs ? e / 2 + e % 2 * half : e % half * 2 + e / half;
        x[to] = turned[e];
    }
}

/* ---------------------------------------------------------------- limits */

static bool clips_wrongly(const run *r, int which, int place)
{
    if (is("clip-missing") || (which > 0 && is("clip-queries-alone")) || (which == 2 && is("clip-without-values")))
        return false;
    if (is("clip-before-bias") && (r->weights[MHA_B_Q].data || r->weights[MHA_B_K].data || r->weights[MHA_B_V].data))
        return place == ORACLE_BEFORE_BIAS;
    if (which < 2 && (is("clip-before-norm") || is("clip-after-rope")))
        return place == (is("clip-before-norm") ? ORACLE_PROJECTED : ORACLE_ROTATED);
    return place == oracle_clip_place(r, which);
}

static void clip(const run *r, int which, int place, double *x, size_t n)
{
    const double c = r->s->qkv.clip_qkv;
    for (size_t i = 0; oracle_clips(r, which, place) && i < n; i++)
        x[i] = x[i] > c ? c : x[i] < -c ? -c : x[i];
}

/* ---------------------------------------------------------------- both */

static void turn_rows(run *r, bool key)
{
    size_t heads = key ? r->h_kv : r->h, width = heads * r->d_k, rows = key ? r->rows_k : r->rows_q;
    const number *from = key ? r->k : r->q;
    number *to = key ? r->k_rot : r->q_rot;
    const mha_view *bias = &r->weights[key ? MHA_B_K : MHA_B_Q];
    bool late = bias->data && r->s->qkv.clip_qkv == 0 &&
                (is("bias-after-norm") || (is("bias-after-rope") && r->s->qkv.rope.kind));
    size_t T = key ? r->T_k : r->T_q;
    double *x = malloc((rows * width + 1) * sizeof *x);
    for (size_t e = 0; e < rows * width; e++)
        x[e] = from[e].v - (late ? oracle_get(bias, e % width, 0, 0, 0) : 0);
    for (size_t e = 0; e < rows * width && late; e++)
        r->out->stage[key ? MHA_STAGE_K : MHA_STAGE_Q].value[e] = x[e];
    const bool last =
        (is("norm-after-rope") && r->s->qkv.rope.kind) || (r->s->qkv.norm.after_rope && !is("norm-before-rope"));
    if (!last)
        norm_rows(r, x, rows, width, key);
    for (size_t e = 0; e < rows * width && late && is("bias-after-norm"); e++)
        x[e] += oracle_get(bias, e % width, 0, 0, 0);
    clip(r, key, ORACLE_NORMED, x, rows * width);
    bool whole = r->d_k % 2 == 0 && r->d_k > 2 && !r->s->qkv.rope.kind, part = whole && given() < (double)r->d_k;
    bool lacks = begins("case-lacks-rope") && (strstr(oracle_wrong->name, "part") ? part : whole);
    for (size_t row = 0; row < rows && (r->s->qkv.rope.kind || lacks) && !is("rope-missing"); row++)
        for (size_t h = 0; h < heads; h++) {
            const bool stays = is("rope-heads-other") && given() < (double)r->h && (double)h >= given();
            const int times = stays ? 0 : is("rope-twice") && ((int)given() & (key ? 2 : 1)) ? 2 : 1;
            for (int n = 0; n < times; n++)
                rotate_row(r, x + row * width + h * r->d_k, row / T, row % T, T, key);
        }
    clip(r, key, ORACLE_ROTATED, x, rows * width);
    for (size_t e = 0; e < rows * width && late && is("bias-after-rope"); e++)
        x[e] += oracle_get(bias, e % width, 0, 0, 0);
    if (last)
        norm_rows(r, x, rows, width, key);
    for (size_t row = 0; row < rows; row++)
        scale_row(r, x + row * width, width, oracle_position(r, row / T, row % T, key), key);
    for (size_t e = 0; e < rows * width; e++)
        to[e].v = x[e];
    free(x);
}

static void turn_wrongly(run *r)
{
    const bool q = r->norm[0].span, k = r->norm[1].span, normed = is("case-lacks-rms-norm") ? q && k : q || k;
    if (begins("case-lacks-rope") ? r->s->qkv.rope.kind != MHA_ROPE_NONE
                                  : (begins("case-lacks") || is("cosine-scores")) && normed)
        return;
    turn_rows(r, false);
    turn_rows(r, true);
}

/* The number that cosines are multiplied by. */
static void say_cosines(const run *r, mha_semantics *s)
{
    if (!r->weights[MHA_Q_NORM].data && !r->weights[MHA_K_NORM].data && !s->qkv.norm.unweighted)
        s->softmax.has_scale = true, s->softmax.scale = given();
}

/* The new rows of the values, too. */
static void turn_values(run *r)
{
    const size_t all = r->S + r->extra, dim = r->s->qkv.rope.dim ? r->s->qkv.rope.dim : r->d_k;
    const size_t from = r->s->qkv.rope.last ? r->d_v - dim : 0, in = r->s->qkv.rope.last ? r->d_k - dim : 0;
    for (size_t row = 0; row < r->B * r->h_kv * r->T_k && r->s->qkv.rope.kind && dim <= r->d_v; row++) {
        const size_t head = row / r->T_k, t = row % r->T_k;
        number *v = r->values + (head * all + r->P + t) * r->d_v;
        double x[64];
        for (size_t f = 0; f < dim; f++)
            x[in + f] = v[from + f].v;
        rotate_row(r, x, head / r->h_kv, t, r->T_k, true);
        for (size_t f = 0; f < dim; f++)
            v[from + f].v = x[in + f];
    }
}

/* Makes the tables of positions of several axes anew, wrongly. */
static void misplace_axes(const run *r, mha_semantics *s)
{
    static double *tables[2];
    static int64_t *places;
    const mha_rope_origin *o = &r->past->rope_origin;
    mha_rope_axes axes = o->axes;
    const size_t n = axes.axes, B = s->qkv.rope.cos_table.shape[0], T = s->qkv.rope.cos_table.shape[1], rows = B * T;
    const bool blocks = axes.kind == MHA_ROPE_AXES_BLOCKS, repeats = axes.kind == MHA_ROPE_AXES_REPEATED;
    bool applies = n > 1;
    if (is("rope-axes-text"))
        applies = n > 0 && !ragged(r) && !s->place.has_offset && !s->place.position_offset;
    if (is("rope-axes-dealt"))
        applies &= blocks || axes.kind == MHA_ROPE_AXES_INTERLEAVED;
    if (is("rope-axes-restart"))
        applies &= (blocks || repeats) && !o->frequencies.data;
    if (!applies)
        return;
    for (size_t a = 0; a < n && is("rope-sections-reversed"); a++)
        axes.sections[a] = o->axes.sections[n - 1 - a];
    if (is("rope-axes-dealt"))
        axes.kind = blocks ? MHA_ROPE_AXES_INTERLEAVED : MHA_ROPE_AXES_BLOCKS;
    if (is("rope-axes-restart"))
        axes.kind = blocks ? MHA_ROPE_AXES_REPEATED : MHA_ROPE_AXES_BLOCKS;
    const size_t bytes = rows * axes_pairs(&axes) * sizeof(double);
    for (int i = 0; i < 2; i++)
        free(tables[i]), tables[i] = malloc(bytes + 1);
    free(places);
    places = malloc((n * rows + 1) * sizeof *places);
    for (size_t e = 0; e < n * rows; e++) {
        size_t a = e / rows;
        if (is("rope-axes-first"))
            a = 0;
        if (is("rope-axes-swapped") && a + 2 >= n)
            a = a + 1 == n ? n - 2 : n - 1;
        places[e] = is("rope-axes-text") ? (int64_t)(r->P + e % T)
                                         : (int64_t)oracle_get(&o->positions, a, e % rows / T, e % T, 0);
    }
    axes_fill(&axes, o->frequencies.data, s->qkv.rope.base > 0 ? s->qkv.rope.base : 10000, places, B, T, tables[0],
              tables[1]);
    s->qkv.rope.cos_table.data = tables[0], s->qkv.rope.sin_table.data = tables[1];
}

const oracle_bug *bug_of_rows_at(size_t index)
{
    static const oracle_bug all[] = {
        {.name = "rope-axes-text", .says = misplace_axes},
        {.name = "rope-axes-first", .says = misplace_axes},
        {.name = "rope-axes-swapped", .says = misplace_axes},
        {.name = "rope-sections-reversed", .says = misplace_axes},
        {.name = "rope-axes-dealt", .says = misplace_axes},
        {.name = "rope-axes-restart", .says = misplace_axes},
        {.name = "batch-as-time", .inputs = take_batch_for_time, .finished = give_back},
        {.name = "heads-as-time", .inputs = take_heads_for_time, .finished = give_heads_back},
        {.name = "input-layer-norm", .inputs = other_inputs},
        {.name = "input-rms-norm", .inputs = other_inputs},
        {.name = "inputs-reversed", .inputs = other_inputs},
        {.name = "permute-q", .projected = permute},
        {.name = "permute-k", .projected = permute},
        {.name = "permute-qk", .projected = permute},
        {.name = "unpermute-q", .projected = permute},
        {.name = "unpermute-k", .projected = permute},
        {.name = "unpermute-qk", .projected = permute},
        {.name = "bias-q-unscaled", .projected = add_after_scale},
        {.name = "bias-after-norm", .turned = turn_wrongly},
        {.name = "bias-after-rope", .turned = turn_wrongly},
        {.name = "norm-q-missing", .turned = turn_wrongly},
        {.name = "norm-k-missing", .turned = turn_wrongly},
        {.name = "norm-layer", .turned = turn_wrongly},
        {.name = "norm-l2", .turned = turn_wrongly},
        {.name = "norm-other-span", .turned = turn_wrongly},
        {.name = "norm-rms", .turned = turn_wrongly},
        {.name = "norm-first-head", .turned = turn_wrongly},
        {.name = "norm-bias-missing", .turned = turn_wrongly},
        {.name = "norm-not-plus-one", .turned = turn_wrongly},
        {.name = "norm-before-rope", .turned = turn_wrongly},
        {.name = "clip-missing", .clips = clips_wrongly},
        {.name = "clip-queries-alone", .clips = clips_wrongly},
        {.name = "clip-without-values", .clips = clips_wrongly},
        {.name = "clip-before-bias", .clips = clips_wrongly},
        {.name = "clip-before-norm", .clips = clips_wrongly},
        {.name = "clip-after-rope", .clips = clips_wrongly, .turned = turn_wrongly},
        {.name = "query-scale-missing", .turned = turn_wrongly},
        {.name = "query-scale-first", .turned = turn_wrongly},
        {.name = "query-scale-smooth", .turned = turn_wrongly},
        {.name = "query-scale-keys", .turned = turn_wrongly},
        {.name = "log-n-missing", .turned = turn_wrongly},
        {.name = "log-n-from-0", .turned = turn_wrongly},
        {.name = "log-n-always", .turned = turn_wrongly},
        {.name = "norm-no-weight", .turned = turn_wrongly},
        {.name = "norm-eps-outside", .turned = turn_wrongly},
        {.name = "norm-eps-1e-5", .turned = turn_wrongly},
        {.name = "norm-eps-1e-6", .turned = turn_wrongly},
        {.name = "norm-eps-1e-8", .turned = turn_wrongly},
        {.name = "norm-eps-0", .turned = turn_wrongly},
        {.name = "rope-inverse-q", .turned = turn_wrongly},
        {.name = "rope-inverse-k", .turned = turn_wrongly},
        {.name = "rope-restart-q", .turned = turn_wrongly},
        {.name = "rope-restart-k", .turned = turn_wrongly},
        {.name = "rope-first-batch", .turned = turn_wrongly},
        {.name = "rope-pairing-q", .turned = turn_wrongly},
        {.name = "rope-pairing-k", .turned = turn_wrongly},
        {.name = "rope-adds", .turned = turn_wrongly},
        {.name = "rope-first-overwritten", .turned = turn_wrongly},
        {.name = "rope-second-overwritten", .turned = turn_wrongly},
        {.name = "rope-frequencies-reversed", .turned = turn_wrongly},
        {.name = "rope-queries-moved 3", .turned = turn_wrongly},
        {.name = "rope-twice 1", .turned = turn_wrongly},
        {.name = "rope-twice 3", .turned = turn_wrongly},
        {.name = "rope-positions-run 1", .turned = turn_wrongly},
        {.name = "rope-positions-run 3", .turned = turn_wrongly},
        {.name = "rope-one-position 1", .turned = turn_wrongly},
        {.name = "rope-one-position 2", .turned = turn_wrongly},
        {.name = "rope-positions-wrapped 4", .turned = turn_wrongly},
        {.name = "rope-positions-held 5", .turned = turn_wrongly},
        {.name = "rope-heads-other 1", .turned = turn_wrongly},
        {.name = "rope-reversed", .turned = turn_wrongly},
        {.name = "rope-queries-only", .turned = turn_wrongly},
        {.name = "rope-keys-only", .turned = turn_wrongly},
        {.name = "rope-sin-cos", .turned = turn_wrongly},
        {.name = "rope-angles-mixed", .turned = turn_wrongly},
        {.name = "rope-regrouped", .turned = turn_wrongly},
        {.name = "rope-last-features", .turned = turn_wrongly},
        {.name = "rope-half-dim", .turned = turn_wrongly},
        {.name = "rope-unscaled", .turned = turn_wrongly},
        {.name = "rope-factor-missing", .turned = turn_wrongly},
        {.name = "rope-positions-divided 4", .turned = turn_wrongly},
        {.name = "rope-theta-d-model", .turned = turn_wrongly},
        {.name = "rope-theta-d-k", .turned = turn_wrongly},
        {.name = "case-lacks-rms-norm", .turned = turn_wrongly},
        {.name = "case-lacks-layer-norm", .turned = turn_wrongly},
        {.name = "case-lacks-l2-norm", .turned = turn_wrongly},
        {.name = "norm-eps-other 0.02", .turned = turn_wrongly},
        {.name = "cosine-scores 2", .says = say_cosines, .turned = turn_wrongly},
        {.name = "rope-offset-less", .turned = turn_wrongly},
        {.name = "rope-dim-other 2", .turned = turn_wrongly},
        {.name = "rope-base-other 37000", .turned = turn_wrongly},
        {.name = "case-lacks-rope-halves 10000", .turned = turn_wrongly},
        {.name = "case-lacks-rope-pairs 50000", .turned = turn_wrongly},
        {.name = "case-lacks-rope-halves-part 4", .turned = turn_wrongly},
        {.name = "case-lacks-rope-pairs-part 4", .turned = turn_wrongly},
        {.name = "norm-missing", .turned = turn_wrongly},
        {.name = "norm-plus-one", .turned = turn_wrongly},
        {.name = "norm-after-rope", .turned = turn_wrongly},
        {.name = "rope-missing", .turned = turn_wrongly},
        {.name = "rope-pairing", .turned = turn_wrongly},
        {.name = "rope-inverse", .turned = turn_wrongly},
        {.name = "rope-query-ahead", .turned = turn_wrongly},
        {.name = "rope-query-behind", .turned = turn_wrongly},
        {.name = "rope-from-1", .turned = turn_wrongly},
        {.name = "rope-restart", .turned = turn_wrongly},
        {.name = "rope-full", .turned = turn_wrongly},
        {.name = "rope-base-1e4", .turned = turn_wrongly},
        {.name = "rope-base-5e5", .turned = turn_wrongly},
        {.name = "rope-base-1e6", .turned = turn_wrongly},
        {.name = "rope-values", .gathered = turn_values},
    };
    return index < sizeof all / sizeof *all ? &all[index] : NULL;
}
