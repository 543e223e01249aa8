/* Bugs in visible keys and in scores. */
#include "support/bugs/oracle_bugs.h"
#include "support/bugs/oracle_row.h"
#include "support/window.h"

/* ---------------------------------------------------------------- visible keys */

/* Element of a view for these indices, from the right; *there: it reaches them. */
static double element(const mha_view *v, const size_t full[4], bool *there)
{
    size_t index[4] = {0};
    *there = true;
    for (int k = 0; k < v->rank; k++) {
        index[k] = v->shape[k] == 1 ? 0 : full[4 - v->rank + k];
        *there &= index[k] < v->shape[k];
    }
    return *there ? oracle_get(v, index[0], index[1], index[2], index[3]) : 0;
}

static double mask_number(const run *r, size_t b, size_t head, size_t i, size_t j, bool *there)
{
    const mha__mutation *m = OP(MASK, FROM);
    const size_t n[] = {r->B, r->T_q, r->h, keys_of(r, b)};
    size_t at[] = {b, i, head, j};
    if (m)
        at[m->axis] = oracle_mapped(m, b, at[m->axis], n[m->axis]);
    return element(&r->s->visible.mask.values, (size_t[]){at[0], at[2], at[1], at[3]}, there);
}

/* Where query i of sequence b is among the keys of the call, counted from 0, from the last key, or rightly. */
static double place_of(const run *r, size_t b, size_t i, int how)
{
    return (double)i + (how == MHA__FROM_0     ? 0
                        : how == MHA__FROM_END ? (double)keys_of(r, b) - (double)queries_of(r, b)
                                               : offset_of(r, b) - (double)r->s->place.key_offset - (double)r->first);
}

static bool causal_hides(const run *r, size_t b, size_t i, double at)
{
    const double n = STEP(CAUSAL_BLOCK, FROM), tile = STEP(CAUSAL_ROW, FROM),
                 p = place_of(r, b, i, oracle_arg(AT_CAUSAL, OP_FROM)) + NUMBER(CAUSAL, PLUS, 0) -
                     (tile > 0 ? fmod((double)i, tile) : 0) + (OP(CAUSAL_ROW, PLUS) ? (double)(b * r->T_q) : 0);
    if (!r->s->visible.causal || at + (double)r->s->place.key_offset < (double)r->s->visible.prefix)
        return false;
    if (n > 0)
        return floor(at / n) + (OP(CAUSAL_BLOCK, NOT) ? 1 : 0) > floor(p / n);
    return OP(CAUSAL, NOT) ? at < p : at > p;
}

static bool window_hides(const run *r, size_t b, size_t i, double at)
{
    const mha_visible *v = &r->s->visible;
    const double n = fmax(STEP(WINDOW, OVER), 1), p = place_of(r, b, i, oracle_arg(AT_WINDOW, OP_FROM)),
                 left = p - (double)v->window_left, right = p + (double)v->window_right;
    const bool kept = at + (double)r->s->place.key_offset < (double)v->window_keep,
               outside = (v->has_window_left && floor(at / n) < floor(left / n) && !kept) ||
                         (v->has_window_right && floor(at / n) > floor(right / n));
    return windowed(r->s) && outside != (OP(WINDOW, NOT) != NULL);
}

static bool length_hides(const run *r, size_t b, double at)
{
    if (!r->s->visible.kv_lengths)
        return false;
    const double n = (double)(r->s->visible.kv_lengths[b] - r->s->place.key_offset);
    return OP(LENGTHS, NOT) ? (double)keys_of(r, b) - 1 - at >= n : at >= n;
}

/* Whether chunks, or a bug in which keys there are, hide key `at`. */
static bool other_hides(const run *r, size_t b, size_t i, double at)
{
    const double chunk = (double)r->s->visible.chunk, n = (double)keys_of(r, b), p = place_of(r, b, i, 0),
                 first = (double)r->s->place.key_offset, shift = first + NUMBER(CHUNK, PLUS, 0),
                 part = STEP(KEYS, KEEP), tile = STEP(KEYS, ZERO), step = STEP(KEYS, TIMES),
                 moved = OP(CHUNK, PLUS) && OP(CHUNK, PLUS)->sides ? first : shift,
                 key = chunk > 0 ? floor((at + moved) / chunk) : 0, query = chunk > 0 ? floor((p + shift) / chunk) : 0;
    return (key != query && !(OP(CHUNK, EITHER) && key + 1 == query)) || (OP(KEYS, DO) && at < (double)r->P) ||
           (OP(KEYS, LIMIT) && at >= STEP(KEYS, LIMIT)) || (part > 0 && at < floor((n - 1) / part) * part) ||
           (tile > 0 && at >= floor(n / tile) * tile) || (step > 0 && fmod(p - at, step) != 0);
}

size_t oracle_padded(const run *r, size_t b, size_t i, size_t n)
{
    const double tile = STEP(TILE, FN);
    size_t count = 0;
    for (size_t j = n; fmod((double)j, tile) != 0; j++) {
        const double at = (double)j;
        count += IS(TILE, FN, TILE_PADDED_SEEN) ||
                 !(oracle_pads(r, b, i) || causal_hides(r, b, i, at) || window_hides(r, b, i, at) ||
                   length_hides(r, b, at) || other_hides(r, b, i, at));
    }
    return count;
}

/* Key j by the segments and lists of a kernel that takes them for something else. */
static bool pattern_hides(const run *r, size_t b, size_t head, size_t i, size_t j, double *added)
{
    const mha_pattern *p = &r->s->visible.pattern;
    const mha_view *queries = &p->q_segments, *keys = p->k_segments.data ? &p->k_segments : queries,
                   *lists = &p->key_lists;
    run other = *r;
    mha_semantics s = *r->s;
    size_t times = 0;
    bool there;
    for (size_t l = 0; OP(LISTS, TIMES) && lists->data && l < lists->shape[lists->rank - 1]; l++)
        times +=
            element(lists, (size_t[]){b, head, i, l}, &there) == (double)s.place.key_offset + (double)(r->first + j);
    *added += times > 1 ? log((double)times) : 0;
    if (!queries->data)
        return oracle_pattern_hides(r, b, head, i, j);
    const size_t of = OP(SEGMENTS, FROM) ? 0 : b;
    const double shift = NUMBER(SEGMENTS, PLUS, 0), at = fmin(fmax((double)i - shift, 0), (double)r->T_q - 1),
                 place = fmin(fmax((double)j - shift, 0), (double)r->S - 1),
                 query = element(queries, (size_t[]){0, 0, of, (size_t)at}, &there),
                 own = element(keys, (size_t[]){0, 0, of, (size_t)place}, &there);
    s.visible.pattern.q_segments = s.visible.pattern.k_segments = (mha_view){0};
    other.s = &s;
    return oracle_pattern_hides(&other, b, head, i, j) ||
           (OP(SEGMENTS, FN) ? own > query : (own != query) != (OP(SEGMENTS, NOT) != NULL));
}

/* The terms added to the score of a real key before and after the scale; whether it is hidden, or dropped later. */
static void see(const run *r, size_t b, size_t head, size_t i, size_t j, double terms[2], bool *hidden, bool *dropped)
{
    const mha_semantics *s = r->s;
    const mha_mask *mask = &s->visible.mask, *padding = &s->visible.key_padding;
    const int late = oracle_arg(AT_RULES, OP_MOVE), early = oracle_arg(AT_RULES, OP_PLUS);
    const double at = (double)j, place = place_of(r, b, i, 0), tile = STEP(ALIBI, OVER), edges = STEP(COUNT, OVER),
                 filled = STEP(COUNT, FILL), twice = STEP(COUNT, TIMES), n = (double)keys_of(r, b);
    bool there = true, causal = causal_hides(r, b, i, at), window = window_hides(r, b, i, at), masked = false;
    if (OP(WINDOW, EITHER) && !(causal && window))
        causal = window = false;
    if (mask->kind && !(OP(MASK, LIMIT) && at >= STEP(MASK, LIMIT))) {
        const double m = mask_number(r, b, head, i, j, &there) * NUMBER(MASK, TIMES, 1);
        if (mask->kind == MHA_MASK_ADDITIVE)
            masked = !there || (m == -(double)INFINITY && !(early & MHA__RULE_MASK));
        else if (!OP(MASK, FN))
            masked = there ? (m != 0) == (mask->kind == MHA_MASK_HIDES) : true;
        if ((mask->kind == MHA_MASK_ADDITIVE && !masked) || OP(MASK, FN))
            terms[early & MHA__RULE_MASK ? 0 : 1] += there ? m : mask->kind == MHA_MASK_HIDES;
    }
    if (OP(MASK, EITHER) && !(causal && masked))
        causal = masked = false;
    if (padding->kind) {
        const size_t column = OP(PADDING, FROM) ? keys_of(r, b) - 1 - j : j;
        const double m = element(&padding->values, (size_t[]){0, 0, b, column}, &there);
        const bool additive = padding->kind == MHA_MASK_ADDITIVE,
                   hides = additive ? isinf(m) : (m != 0) == (padding->kind == MHA_MASK_HIDES),
                   fills = hides && !additive && s->visible.has_padding_fill;
        terms[1] += fills ? s->visible.padding_fill : additive && !hides ? m : 0;
        if (hides && !fills)
            *(late & MHA__RULE_PADDING ? dropped : hidden) = true;
    }
    const struct {
        int rule;
        bool hides;
    } rules[] = {{MHA__RULE_CAUSAL, causal},    {MHA__RULE_WINDOW, window},
                 {MHA__RULE_MASK, masked},      {MHA__RULE_LENGTHS, length_hides(r, b, at)},
                 {0, other_hides(r, b, i, at)}, {0, pattern_hides(r, b, head, i, j, &terms[1])}};
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
        if (rules[k].hides)
            *(late & rules[k].rule ? dropped : hidden) = true;
    if (s->added.alibi_slopes) {
        const double key = tile > 0   ? at - fmod(at, tile)
                           : tile < 0 ? fmod(at, -tile)
                                      : at,
                     apart = (OP(ALIBI, FROM) ? (double)i : place) - key;
        terms[early & MHA__RULE_ALIBI ? 0 : 1] -=
            s->added.alibi_slopes[head] *
            fmin(OP(ALIBI, FN) ? fabs(apart) : apart, NUMBER(ALIBI, LIMIT, (double)INFINITY));
    }
    if (s->added.bias.rule) {
        const double first = (double)s->place.key_offset + (double)r->first;
        terms[early & MHA__RULE_TABLE ? 0 : 1] += buggy_bias(r, head, i, first + place, first + at);
    }
    if (OP(COUNT, TIMES) && at >= twice && at < twice + NUMBER(COUNT, TIMES, 0))
        terms[1] += log(2);
    const mha__mutation *counted = OP(COUNT, TAKE);
    const double times = counted ? counted->table[b * r->S + j] : 1;
    terms[1] += times > 0 ? log(times) : 0, masked |= times == 0;
    if (edges > 0 && j > 0 && fmod(at, edges) == 0)
        terms[1] += log(2);
    if (filled > 0 && at + 1 == n) /* with as many copies as there is room for */
        terms[1] += log(1 + fmod(filled - fmod(n, filled), filled));
}

/* ---------------------------------------------------------------- scores */

static double capped(const run *r, double x)
{
    const double c = r->s->softmax.softcap;
    double t = c > 0 ? tanh(IS(CAP, FN, CAP_NO_DIVISOR) ? x : x / c) : 0;
    t = IS(CAP, FN, CAP_TWICE) ? tanh(t) : t;
    return !(c > 0) ? x : IS(CAP, FN, CAP_NO_FACTOR) ? t : c * t;
}

/* The score of key j, real or not, as the kernel has it before the softmax. */
static void score(const run *r, size_t b, size_t head, size_t i, size_t j, oracle_row *x)
{
    const number *q = r->q_rot + query_row(r, b, i) * r->h * r->d_k + head * r->d_k;
    const number *k = r->keys + ((b * r->h_kv + head / (r->h / r->h_kv)) * (r->S + r->extra) + j) * r->d_k;
    const size_t at = ((b * r->h + head) * r->T_q + i) * (r->S + r->extra) + j;
    const bool real = j < x->real, first = IS(CAP, MOVE, BEFORE_SCALE), last = IS(CAP, MOVE, AFTER_MASK);
    const double scale = OP(S, TAKE) ? OP(S, TAKE)->table[head] : r->s->softmax.scale, most = NUMBER(S, LIMIT, 0),
                 fill = NUMBER(Z, FILL, 0);
    double terms[2] = {0};
    bool hidden = !real && (oracle_pads(r, b, i) || (OP(EXTRA, ZERO) && r->bias_k.data && j == x->real) ||
                            (!r->s->softmax.zero_row && j >= x->real + (r->bias_k.data != NULL)));
    x->dropped[j] = false;
    if (real)
        see(r, b, head, i, j, terms, &hidden, &x->dropped[j]);
    if (real)
        terms[1] += buggy_relative(r, head, i, offset_of(r, b) + (double)i,
                                   (double)r->s->place.key_offset + (double)(r->first + j), q, k);
    x->dropped[j] &= !hidden;
    for (size_t f = 0; f < (size_t)NUMBER(S, KEEP, (double)r->d_k); f++)
        terms[0] += q[f].v * k[f].v;
    double s = scale * (first ? capped(r, terms[0]) : terms[0]);
    s = OP(S, FN) ? fabs(s) : s;
    s = OP(S, LIMIT) && !IS(S, LIMIT, FROM_ABOVE) && s < -most ? -most : s;
    s = OP(S, LIMIT) && !IS(S, LIMIT, FROM_BELOW) && s > most ? most : s;
    s = OP(S, BITS) ? oracle_shortened(s, (int)NUMBER(S, BITS, 0)) : s;
    r->out->stage[MHA_STAGE_SCORES].value[at] = s;
    s = first || last ? s : capped(r, s);
    r->out->stage[MHA_STAGE_CAPPED].value[at] = s;
    s += terms[1];
    if (hidden)
        s = !OP(Z, FILL) || !real       ? -(double)INFINITY
            : IS(Z, FILL, FILL_REPLACE) ? fill
                                        : (double)((float)s + (float)fill);
    if (last && (real || !hidden))
        s = capped(r, s);
    r->out->stage[MHA_STAGE_MASKED].value[at] = x->s[j] = s;
}

void buggy_attend(run *r, size_t b, size_t head, size_t i, number *heads)
{
    static double s[ORACLE_KEYS], w[ORACLE_KEYS];
    static bool dropped[ORACLE_KEYS];
    oracle_row x = {.real = keys_of(r, b), .n = keys_of(r, b) + r->extra, .s = s, .w = w, .dropped = dropped};
    if (x.n > ORACLE_KEYS)
        abort();
    for (size_t j = 0; j < x.n; j++)
        score(r, b, head, i, j, &x);
    oracle_soften(r, b, head, i, &x);
    oracle_weigh(r, b, head, i, &x, heads);
}
