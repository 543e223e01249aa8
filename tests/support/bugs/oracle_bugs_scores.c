/* Bugs between q, k, v and the heads, in kernels that compute something else. */
#include <stdlib.h>
#include <string.h>

#include "support/bugs/oracle_bugs.h"
#include "support/window.h"

/* ---------------------------------------------------------------- the cache, sinks */

/* Logits that join the softmax of each head; or they do not. */
static void add_sinks(run *r)
{
    static double sinks[16];
    for (size_t h = 0; h < r->h; h++)
        sinks[h] = given_at(h, 0.4 - 0.3 * (double)h);
    if (is("sinks-missing"))
        r->sinks = (mha_view){0};
    else if (!r->sinks.data != is("sinks-other"))
        r->sinks = mha_view_of(sinks, MHA_F64, 1, &r->h);
}

/* Puts the rows of the cache and the new ones together in another order. */
static void join_cache(run *r)
{
    size_t all = r->S + r->extra, widths[] = {r->d_k, r->d_v};
    number *parts[] = {r->keys, r->values};
    for (int part = 0; part < 2 && r->P > 0; part++)
        for (size_t head = 0; head < r->B * r->h_kv; head++) {
            size_t d = widths[part], row = d * sizeof(number), new = r->S - r->P;
            number *to = parts[part] + head * all * d, *old = malloc(r->S * row);
            memcpy(old, to, r->S * row);
            if (is("cache-behind")) {
                memcpy(to, old + r->P * d, new *row);
                memcpy(to + new *d, old, r->P * row);
            } else if (is("cache-row-early")) {
                memcpy(to + (r->P - 1) * d, old + r->P * d, new *row);
                memset(to + (r->S - 1) * d, 0, row);
            } else {
                memset(to + r->P * d, 0, row);
                memcpy(to + (r->P + 1) * d, old + r->P * d, (new - 1) * row);
            }
            free(old);
        }
}

/* ---------------------------------------------------------------- the scores of a query */

/* The keys of one query, one by one: the real ones first. */
typedef struct row {
    size_t n, real;
    double *s;     /* scores; -inf: hidden */
    bool *dropped; /* its weight is set to 0 later */
    double *w;
} row;

/* i, counted around the ends of n. */
static size_t around(double i, size_t n)
{
    return (size_t)fmod(fmod(i, (double)n) + (double)n, (double)n);
}

static double mask_number(const run *r, size_t b, size_t head, size_t i, size_t j, bool *there)
{
    const mha_view *m = &r->s->visible.mask.values;
    size_t full[4] = {b, head, i, j}, index[4] = {0};
    if (!ragged(r) && is("mask-batch-moved"))
        full[0] = around((double)b - given(), r->B);
    if (!ragged(r) && is("mask-first-batch"))
        full[0] = 0;
    full[1] = is("mask-first-head") ? 0 : head;
    full[2] = is("mask-first-row") ? 0 : is("mask-rows-moved") && !ragged(r) ? around((double)i - given(), r->T_q) : i;
    full[3] = is("mask-moved") ? around((double)j - given(), r->S) : j;
    if (is("mask-transposed") && m->rank > 1 && m->shape[m->rank - 1] > 1 &&
        m->shape[m->rank - 1] == m->shape[m->rank - 2] && r->T_q == r->S)
        full[2] = j, full[3] = i;
    *there = true;
    for (int k = 0; k < m->rank; k++) {
        index[k] = m->shape[k] == 1 ? 0 : full[4 - m->rank + k];
        *there &= index[k] < m->shape[k];
    }
    return *there ? oracle_get(m, index[0], index[1], index[2], index[3]) : 0;
}

/* Where query i of sequence b stands among the keys of the call. */
static double place_of(const run *r, size_t b, size_t i)
{
    return offset_of(r, b) - (double)r->s->place.key_offset - (double)r->first + (double)i;
}

static int block_of(double x, double n)
{
    return (int)floor(x / n);
}

static bool causal_hides(const run *r, size_t b, size_t i, size_t j)
{
    double p = place_of(r, b, i);
    double n = given(), at = (double)j;
    const double prefix = begins("case-lacks-prefix")                      ? n
                          : is("prefix-missing")                           ? 0
                          : is("prefix-other") && r->s->visible.prefix > 0 ? n
                                                                           : (double)r->s->visible.prefix;
    if (at + (begins("case-lacks-prefix") ? 0 : (double)r->s->place.key_offset) < prefix)
        return false;
    if (is("causal-top-left") || is("causal-bottom-right"))
        return at > (double)i + (is("causal-top-left") ? 0 : (double)keys_of(r, b) - (double)queries_of(r, b));
    if (is("causal-strict") || is("causal-plus-1"))
        p += is("causal-strict") ? -1 : 1;
    if (is("causal-shift-other") && !windowed(r->s))
        p += n;
    if (is("causal-runs-on") && !ragged(r))
        p += (double)(b * r->T_q);
    if (is("causal-tile-first"))
        p -= fmod((double)i, n);
    if (is("causal-block-before"))
        return block_of(at, n) >= block_of(p, n);
    if (begins("causal-block"))
        return block_of(at, n) > block_of(p, n);
    return r->s->visible.causal && (is("causal-reversed") ? at < p : at > p);
}

static bool window_hides(const run *r, size_t b, size_t i, size_t j)
{
    const mha_semantics *s = r->s;
    double p = place_of(r, b, i), at = (double)j;
    if (is("window-top-left"))
        p = (double)i;
    if (is("window-bottom-right"))
        p = (double)i + (double)keys_of(r, b) - (double)queries_of(r, b);
    if (is("chunk-as-window") && s->visible.chunk > 0 && !windowed(s))
        return p - at > (double)(s->visible.chunk - 1);
    const bool lacks_keep = is("case-lacks-window-keep") && s->visible.window_keep == 0;
    const double keep = is("window-keep-missing") ? 0 : lacks_keep ? given() : (double)s->visible.window_keep;
    const bool kept = at + (double)s->place.key_offset < keep;
    const double n = given(), left = p - (double)s->visible.window_left, right = p + (double)s->visible.window_right;
    if (is("window-block") && windowed(s))
        return (s->visible.has_window_left && block_of(at, n) < block_of(left, n) && !kept) ||
               (s->visible.has_window_right && block_of(at, n) > block_of(right, n));
    const bool outside = (s->visible.has_window_left && p - at > (double)s->visible.window_left && !kept) ||
                         (s->visible.has_window_right && at - p > (double)s->visible.window_right);
    return windowed(s) && (is("window-inverted") ? !outside : outside);
}

static bool length_hides(const run *r, size_t b, size_t j)
{
    if (!r->s->visible.kv_lengths)
        return false;
    const int64_t n = r->s->visible.kv_lengths[b] - r->s->place.key_offset;
    return is("lengths-from-end") ? (int64_t)(keys_of(r, b) - 1 - j) >= n : (int64_t)j >= n;
}

/* Whether more than one rule hides whole keys. */
static bool several_hide(const mha_semantics *s)
{
    return s->visible.causal + windowed(s) + (s->visible.kv_lengths != NULL) +
               has_flags(&s->visible.mask) +
               (has_flags(&s->visible.key_padding) && !s->visible.has_padding_fill) >
           1;
}

/* Whether key j is among those of the b-th part of a list: "3, 5-7; none". */
static bool is_listed(const char *list, size_t b, size_t j)
{
    for (; list && b > 0; b--)
        list = strchr(list + 1, ';');
    while (list && (*list == ' ' || *list == ';' || *list == ',')) {
        char *end;
        const size_t first = strtoul(list + 1, &end, 10), last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        if (end > list + 1 && j >= first && j <= last)
            return true;
        list = *end == ',' ? end : NULL;
    }
    return false;
}

/* Keys that another list of padded ones would hide: one of three, others in each batch row. */
static bool is_padded_elsewhere(size_t b, size_t j)
{
    const char *blank = strchr(oracle_wrong->name, ' ');
    if (blank)
        return is_listed(blank, b, j);
    return (j + b) % 3 == 1;
}

/* Key j by the segments and lists of a kernel that takes them for something else. */
static bool pattern_hides(const run *r, size_t b, size_t head, size_t i, size_t j, double *added)
{
    const mha_pattern *p = &r->s->visible.pattern;
    const mha_view *keys = p->k_segments.data ? &p->k_segments : &p->q_segments, *lists = &p->key_lists;
    run other = *r;
    mha_semantics s = *r->s;
    size_t times = 0;
    for (size_t l = 0; is("lists-each-time") && lists->data && l < lists->shape[3]; l++)
        times += oracle_get(lists, lists->shape[0] == 1 ? 0 : b, lists->shape[1] == 1 ? 0 : head,
                            lists->shape[2] == 1 ? 0 : i, l) == (double)s.place.key_offset + (double)(r->first + j);
    *added += times > 1 ? log((double)times) : 0;
    if (!begins("segments-") || is("segments-missing") || !p->q_segments.data)
        return oracle_pattern_hides(r, b, head, i, j);
    const size_t of = is("segments-first-batch") && !ragged(r) ? 0 : b;
    const double moved = is("segments-moved") && r->P == 0 && !ragged(r) ? given() : 0,
                 at = fmin(fmax((double)i - moved, 0), (double)r->T_q - 1),
                 place = fmin(fmax((double)j - moved, 0), (double)r->S - 1);
    const double query = oracle_get(&p->q_segments, p->q_segments.shape[0] == 1 ? 0 : of,
                                    p->q_segments.shape[1] == 1 ? 0 : (size_t)at, 0, 0);
    const double own = oracle_get(keys, keys->shape[0] == 1 ? 0 : of, keys->shape[1] == 1 ? 0 : (size_t)place, 0, 0);
    s.visible.pattern.q_segments = s.visible.pattern.k_segments = (mha_view){0};
    other.s = &s;
    return oracle_pattern_hides(&other, b, head, i, j) || (is("segments-earlier-too") ? own > query
                                                           : is("segments-inverted")  ? own == query
                                                                                      : own != query);
}

/* What is added to the score of a real key before and after the scale; whether it is hidden, or dropped later. */
static double bias_of(const run *r, size_t b, size_t head, size_t i, size_t j, double *early, bool *hidden,
                      bool *dropped)
{
    const mha_semantics *s = r->s;
    double p = place_of(r, b, i), added = 0;
    bool there, either = false, causal = causal_hides(r, b, i, j), window = window_hides(r, b, i, j),
                all = is("all-after-softmax") && several_hide(s);
    if (is("window-or-causal") && windowed(s) && s->visible.causal && !(causal && window))
        causal = window = false;
    if (is("mask-or-causal") && s->visible.causal && has_flags(&s->visible.mask)) {
        const double m = mask_number(r, b, head, i, j, &there);
        if (!causal || (there && (m != 0) != (s->visible.mask.kind == MHA_MASK_HIDES)))
            causal = false, either = true;
    }
    const struct {
        const char *late;
        bool hides;
    } rules[] = {{"causal-after-softmax", causal},
                 {"window-after-softmax", window},
                 {"lengths-after-softmax", length_hides(r, b, j)}};
    for (size_t k = 0; k < 3; k++)
        if (rules[k].hides)
            *(is(rules[k].late) || all ? dropped : hidden) = true;
    const bool unread = is("mask-columns-first") && (double)j >= given();
    if (s->visible.mask.kind == MHA_MASK_ADDITIVE && !unread) {
        double m = mask_number(r, b, head, i, j, &there);
        if (!there)
            m = -(double)INFINITY;
        if (is("mask-subtracted") && there)
            m = -m;
        if (is("mask-twice"))
            m *= 2;
        if (is("mask-times"))
            m *= given();
        if (begins("fill-") && isinf(m)) /* which cannot tell it from what else it hides */
            *hidden = true;
        else
            *(is("mask-scaled") ? early : &added) += m;
    } else if (s->visible.mask.kind && !unread) {
        double m = mask_number(r, b, head, i, j, &there);
        if (!there)
            m = s->visible.mask.kind == MHA_MASK_HIDES;
        if (is("mask-added"))
            added += m;
        else if ((m != 0) == (s->visible.mask.kind == MHA_MASK_HIDES) && !either)
            *(is("mask-after-softmax") || all ? dropped : hidden) = true;
    }
    const bool elsewhere =
        is("padding-other") && has_flags(&s->visible.key_padding) && !s->visible.has_padding_fill;
    if ((elsewhere || (is("case-lacks-padding") && !s->visible.key_padding.kind)) && is_padded_elsewhere(b, j))
        *hidden = true;
    if (s->visible.key_padding.kind && !elsewhere) {
        const mha_view *v = &s->visible.key_padding.values;
        size_t column = is("padding-reversed") ? keys_of(r, b) - 1 - j : j;
        double m = oracle_get(v, v->shape[0] == 1 ? 0 : b, v->shape[1] == 1 ? 0 : column, 0, 0);
        if (s->visible.key_padding.kind == MHA_MASK_ADDITIVE && !isinf(m))
            added += m;
        else if (s->visible.key_padding.kind == MHA_MASK_ADDITIVE)
            *hidden = true;
        else if ((m != 0) == (s->visible.key_padding.kind == MHA_MASK_HIDES)) {
            if (s->visible.has_padding_fill)
                added += s->visible.padding_fill;
            else
                *(is("padding-after-softmax") || all ? dropped : hidden) = true;
        }
    }
    if (s->added.alibi_slopes) {
        const double place = is("alibi-by-tile")    ? (double)j - fmod((double)j, given())
                             : is("alibi-restarts") ? fmod((double)j, given())
                                                    : (double)j;
        double apart = (is("alibi-from-0") ? (double)i : p) - place;
        apart = is("alibi-limited") ? fmin(apart, given()) : apart;
        *(is("alibi-scaled") ? early : &added) -=
            s->added.alibi_slopes[head] * (is("alibi-symmetric") ? fabs(apart) : apart);
    }
    *hidden |= pattern_hides(r, b, head, i, j, &added);
    if (s->added.bias.rule) {
        const double first = (double)s->place.key_offset + (double)r->first;
        *(is("position-bias-scaled") ? early : &added) += buggy_bias(r, head, i, first + p, first + (double)j);
    }
    if (is("cache-ignored") && j < r->P)
        *hidden = true;
    if (begins("tile-first-only") && j >= (size_t)given())
        *hidden = true;
    if (begins("tile-last-only") && (double)j < floor(((double)keys_of(r, b) - 1) / given()) * given())
        *hidden = true;
    if (begins("tile-last-dropped") && j >= keys_of(r, b) / (size_t)given() * (size_t)given())
        *hidden = true;
    const bool lacks = begins("case-lacks-chunk"),
               no_chunk = is("chunk-missing") || (is("chunk-as-window") && !windowed(s));
    const bool other = is("chunk-other") && s->visible.chunk > 0;
    const double chunk = lacks || other ? given()
                         : no_chunk     ? 0
                                        : (double)s->visible.chunk,
                 first = (double)s->place.key_offset;
    const double shift = is("chunk-shift") && s->visible.chunk > 1 ? given() : 0;
    const int key = chunk > 0 ? block_of((double)j + first + shift, chunk) : 0,
              query = chunk > 0 ? block_of(p + first + shift, chunk) : 0;
    if (key != query && !(is("chunk-before-too") && key + 1 == query))
        *hidden = true;
    if (is("case-lacks-dilation") && fmod(p - (double)j, given()) != 0)
        *hidden = true;
    return added;
}

static double capped(const run *r, double x)
{
    const double c = r->s->softmax.softcap;
    if (is("softcap-as-limit") && c > 0)
        return fmin(fmax(x, -c), c);
    double t = c > 0 ? tanh(is("softcap-no-divisor") ? x : x / c) : 0;
    t = is("softcap-twice") ? tanh(t) : t;
    return !(c > 0) ? x : is("softcap-no-factor") ? t : c * t;
}

/* What is written over a hidden score, or added to it in float32. */
static double filled(double x)
{
    if (is("fill-other") || is("fill-add-other"))
        return is("fill-other") ? given() : (double)((float)x + (float)given());
    if (begins("fill-add-"))
        return (double)((float)x + (float)(is("fill-add-f16")    ? -65504
                                           : is("fill-add-bf16") ? -3.3895313892515355e38
                                                                 : -atof(oracle_wrong->name + strlen("fill-add-"))));
    return is("fill-lowest") ? -3.4028234663852886e38 : -atof(oracle_wrong->name + strlen("fill-"));
}

/* The score of key j, real or not, as the kernel has it before the softmax. */
static void score(const run *r, size_t b, size_t head, size_t i, size_t j, row *x)
{
    const number *q = r->q_rot + query_row(r, b, i) * r->h * r->d_k + head * r->d_k;
    const number *k = r->keys + ((b * r->h_kv + head / (r->h / r->h_kv)) * (r->S + r->extra) + j) * r->d_k;
    double scale = r->s->softmax.has_scale ? r->s->softmax.scale : 1 / sqrt((double)r->d_k), early = 0;
    if (is("scales-other") && r->h > 1)
        scale = given_at(head, 0.4 - 0.06 * (double)head);
    const size_t at = ((b * r->h + head) * r->T_q + i) * (r->S + r->extra) + j;
    const bool real = j < x->real, first = is("softcap-before-scale"), last = is("softcap-after-mask");
    bool hidden = !real && (oracle_pads(r, b, i) || (is("bias-row-missing") && r->bias_k.data && j == x->real) ||
                            (is("zero-row-missing") && r->s->softmax.zero_row && j + 1 == x->n));
    x->dropped[j] = false;
    double added = real ? bias_of(r, b, head, i, j, &early, &hidden, &x->dropped[j]) : 0;
    if (real)
        added += buggy_relative(r, head, i, offset_of(r, b) + (double)i,
                                (double)r->s->place.key_offset + (double)(r->first + j), q, k);
    for (size_t f = 0; f < (is("features-scored") ? (size_t)given() : r->d_k); f++)
        early += q[f].v * k[f].v;
    scale = is("scores-0") ? 0 : scale;
    double s = first ? scale * capped(r, early) : scale * early;
    s = is("scores-absolute") ? fabs(s) : s;
    s = is("scores-limited") ? fmin(fmax(s, -given()), given()) : s;
    s = is("rounded-scores") ? buggy_rounding(s) : s;
    r->out->stage[MHA_STAGE_SCORES].value[at] = s;
    if (!first && !last)
        s = capped(r, s);
    r->out->stage[MHA_STAGE_CAPPED].value[at] = s;
    const double twice = is("key-twice") ? 1 : is("tile-twice") ? 16 : 0;
    if (real && (double)j >= given() && (double)j < given() + twice)
        added += log(2);
    if (real && is("tile-edges-twice") && j > 0 && j % (size_t)given() == 0)
        added += log(2);
    if (is("tile-filled") && j + 1 == x->real) /* with as many copies as there is room for */
        added += log(1 + fmod(given() - fmod((double)x->real, given()), given()));
    s += added;
    if (hidden)
        s = begins("fill-") && real ? filled(s) : -(double)INFINITY;
    if (last && (real || !hidden))
        s = capped(r, s);
    r->out->stage[MHA_STAGE_MASKED].value[at] = x->s[j] = s;
}

/* ---------------------------------------------------------------- the softmax of a query */

enum { MOST = 256 };

/* The softmax over one tile after the other, without some of its corrections. Whether there was anything to see. */
static bool soften_in_tiles(row *x, const double *more, size_t n_more, double *lse)
{
    double m = -(double)INFINITY, l = 0, n = fabs(given()), late = 1;
    size_t size = (size_t)n, tiles = (x->n + size - 1) / size;
    for (size_t k = 0; k < tiles; k++) {
        size_t t = given() < 0 ? tiles - 1 - k : k;
        double before = m;
        for (size_t j = t * size; j < x->n && j < (t + 1) * size; j++)
            m = x->s[j] > m ? x->s[j] : m;
        if (isinf(m))
            continue;
        const bool both = begins("tile-rescaled");
        double correction = exp(before - m), own = correction;
        if (is("tile-rescaled-base-2"))
            correction = pow(2, before - m);
        if (is("tile-rescaled-inverse"))
            correction = isinf(before) ? 0 : exp(m - before);
        if (is("tile-rescaled-late"))
            correction = late;
        late = own;
        if (both || (!begins("tile-sum") && !begins("tile-not")))
            l *= correction;
        for (size_t j = 0; j < x->n && (both || begins("tile-sum")); j++)
            x->w[j] *= correction;
        for (size_t j = t * size; j < x->n && j < (t + 1) * size; j++)
            x->w[j] = exp(x->s[j] - m), l += x->w[j];
    }
    if (isinf(m))
        return false;
    for (size_t k = 0; k < n_more; k++)
        l += exp(more[k] - m);
    for (size_t j = 0; j < x->n; j++)
        x->w[j] /= l;
    *lse = m + log(l);
    return true;
}

/* A softmax over each part of the keys, averaged, added, or merged by what is taken for its weight. */
static void soften_parts(row *x)
{
    const size_t n = (size_t)given(), parts = (x->n + n - 1) / n;
    double sum = 0, greatest = -(double)INFINITY;
    for (size_t from = 0; from < x->n; from += n) {
        double all = 0;
        for (size_t j = from; j < x->n && j < from + n; j++)
            all += exp(x->s[j]);
        greatest = all > 0 ? fmax(greatest, log(all)) : greatest;
    }
    for (size_t from = 0; from < x->n; from += n) {
        const size_t end = from + n < x->n ? from + n : x->n;
        double m = -(double)INFINITY, all = 0;
        for (size_t j = from; j < end; j++)
            m = fmax(m, x->s[j]);
        for (size_t j = from; j < end; j++)
            all += x->w[j] = isinf(m) ? 0 : exp(x->s[j] - m);
        const double lse = m + log(all), factor = isinf(m)                     ? 0
                                                  : is("parts-by-sums")        ? all
                                                  : is("parts-by-lse")         ? lse
                                                  : is("parts-by-powers-of-2") ? pow(2, lse)
                                                  : is("parts-lse-base-2")     ? exp(lse / log(2))
                                                  : is("parts-by-maxima")      ? exp(m)
                                                  : is("parts-by-inverse")     ? exp(-lse)
                                                  : is("parts-added-shifted")  ? exp(lse - greatest)
                                                                               : 1;
        sum += factor;
        for (size_t j = from; j < end && all > 0; j++)
            x->w[j] *= factor / all;
    }
    for (size_t j = 0; j < x->n && sum != 0 && !begins("parts-added"); j++)
        x->w[j] /= is("parts-averaged") ? (double)parts : sum;
}

/* Whether key j is not among so many with the greatest scores. */
static bool is_below_top(const row *x, size_t j)
{
    size_t greater = 0;
    for (size_t k = 0; k < x->n; k++)
        greater += x->s[k] > x->s[j];
    return (double)greater >= given();
}

/* Sigmoid in place of softmax. */
static void squash(const run *r, row *x)
{
    const bool usual = is("case-lacks-sigmoid") || is("sigmoid-bias-usual");
    double bias = usual ? -log((double)x->real) : r->s->softmax.sigmoid_bias, seen = 0;
    double all = 0;
    for (size_t j = 0; j < x->n; j++)
        seen += !isinf(x->s[j]);
    bias = is("sigmoid-bias-by-row") && seen > 0 ? -log(seen) : bias;
    for (size_t j = 0; j < x->n; j++)
        all += x->w[j] = x->dropped[j] ? 0 : 1 / (1 + exp(-x->s[j] - bias));
    for (size_t j = 0; j < x->n && is("sigmoid-divided") && all > 0; j++)
        x->w[j] /= all;
    for (size_t j = 0; j < x->n && is("sigmoid-by-count") && !ragged(r); j++)
        x->w[j] /= (double)r->S;
}

/* A dropout that was left on, of finished weights. */
static void drop(const run *r, size_t b, size_t head, size_t i, row *x)
{
    const mha_softmax *right = &r->call->semantics.softmax;
    for (size_t j = 0; j < x->n; j++) {
        const double random = fmod(1e4 * fabs(sin((double)(1 + j + 31 * (i + 17 * (head + 5 * b))))), 1);
        if (is("dropout-mask"))
            x->w[j] *= random < given() ? 0 : 1 / (1 - given());
        if (begins("dropout-scale "))
            x->w[j] *= 1 / (1 - given());
        if (begins("dropout-scale-twice "))
            x->w[j] *= 1 - given();
        if (is("weights-powered"))
            x->w[j] = pow(x->w[j], given());
        if (is("scale-after-softmax"))
            x->w[j] *= right->has_scale ? right->scale : 1 / sqrt((double)r->d_k);
        if (is("weights-limited") && !isinf(x->s[j]))
            x->w[j] = fmax(x->w[j], given());
        if (is("weights-small-dropped") && x->w[j] < given_at(0, 0.06))
            x->w[j] = 0;
        if (begins("rounded-weights"))
            x->w[j] = buggy_rounding(x->w[j]);
    }
}

/* Whether max(s, 0) takes the place of exp(s - maximum). */
static bool is_relu(const run *r)
{
    return begins("softmax-relu") && !(is("softmax-relu-by-count") && ragged(r));
}

static void soften(const run *r, size_t b, size_t head, size_t i, row *x, double *lse)
{
    if (r->s->softmax.normaliser == MHA_SIGMOID || begins("case-lacks-sigmoid")) {
        squash(r, x);
        *lse = 0;
        return;
    }
    double more[2] = {0}, m = -(double)INFINITY, keys = 0, all = 0,
           scale = r->s->softmax.has_scale ? r->s->softmax.scale : 1 / sqrt((double)r->d_k);
    size_t n_more = 0, padded = 0;
    bool nothing = oracle_pads(r, b, i);
    for (size_t j = 0; j < x->n; j++)
        nothing &= x->s[j] == -(double)INFINITY;
    if (!nothing && r->sinks.data && isfinite(oracle_get(&r->sinks, head, 0, 0, 0)))
        more[n_more++] = oracle_get(&r->sinks, head, 0, 0, 0);
    if (r->s->softmax.softmax_plus_one && !nothing)
        more[n_more++] = 0;
    for (size_t j = 0; j < x->n; j++)
        x->w[j] = 0;
    for (size_t j = 0; j < x->n && is("top-weights-alone"); j++)
        x->dropped[j] |= is_below_top(x, j);
    bool below[MOST] = {false};
    for (size_t j = 0; j < x->n && is("top-keys-alone"); j++)
        below[j] = is_below_top(x, j);
    for (size_t j = 0; j < x->n; j++)
        x->s[j] = below[j] ? -(double)INFINITY : x->s[j];
    const bool tiles = strstr(oracle_wrong->name, "not-rescaled") || begins("tile-rescaled");
    if (tiles && soften_in_tiles(x, more, n_more, lse))
        return;
    if (begins("parts-") && n_more == 0) {
        soften_parts(x);
        *lse = 0;
        return;
    }
    for (size_t j = x->n; begins("tile-padded") && j % (size_t)given(); j++)
        padded += is("tile-padded-seen") ? r->s->visible.causal || windowed(r->s) || r->s->visible.kv_lengths
                                         : !oracle_pads(r, b, i) && !causal_hides(r, b, i, j) &&
                                               !length_hides(r, b, j) && !window_hides(r, b, i, j);
    bool odd = false;
    for (size_t j = 0; j < x->n; j++)
        m = fmax(m, x->s[j]), odd |= isnan(x->s[j]) || (isinf(x->s[j]) && x->s[j] > 0);
    for (size_t k = 0; k < n_more && !(is("sinks-unshifted") && r->sinks.data); k++)
        m = fmax(m, more[k]);
    for (size_t j = 0; j < x->n && odd; j++)
        x->w[j] = *lse = (double)NAN;
    if (odd)
        return;
    if (isinf(m) && padded == 0) {
        for (size_t j = 0; j < x->n; j++)
            x->w[j] = r->s->softmax.empty_rows == MHA_EMPTY_NAN ? (double)NAN : 0;
        *lse = r->s->softmax.empty_rows == MHA_EMPTY_NAN ? (double)NAN : -(double)INFINITY;
        return;
    }
    if (isinf(m))
        m = 0;
    const double parts = is("sinks-in-every-part") ? given() : 1;
    for (size_t j = 0; j < x->n; j++) {
        x->w[j] = is("softmax-base-2")         ? pow(2, x->s[j] - m)
                  : is("softmax-exp-alone")    ? exp(x->s[j])
                  : is("softmax-relu-squared") ? pow(fmax(x->s[j], 0), 2)
                  : is_relu(r)                 ? fmax(x->s[j], 0)
                  : is("softmax-log2e")        ? exp((x->s[j] - m) / log(2))
                  : !is("softmax-missing")     ? exp(x->s[j] - m)
                  : isinf(x->s[j])             ? 0
                                               : x->s[j];
        if (is("exponentials-small-dropped") && x->w[j] < given_at(0, 0.2))
            x->w[j] = 0;
        if (is("exponents-limited") && !isinf(x->s[j]))
            x->w[j] = fmax(x->w[j], exp(-given()));
        keys += x->w[j] *= j < x->real ? 1 : parts;
    }
    all = padded > 0 ? keys + (double)padded * exp(-m) : keys;
    all += is("denominator-raised") ? given() : 0;
    for (size_t k = 0; k < n_more; k++)
        all += is("softmax-base-2")                     ? pow(2, more[k] - m)
               : is_relu(r)                             ? fmax(more[k], 0)
               : is("softmax-log2e")                    ? exp((more[k] - m) / log(2))
               : is("sinks-unshifted") && r->sinks.data ? exp(more[k])
                                                        : parts * exp(more[k] - m);
    const double whole = all;
    for (size_t j = 0; j < x->n && is("weights-small-hidden"); j++)
        if (x->w[j] < given_at(0, 0.06) * whole)
            all -= x->w[j], x->w[j] = 0;
    const bool undivided = strstr(oracle_wrong->name, "-undivided") || is("softmax-missing") ||
                           is("softmax-exp-alone") || is("softmax-relu-squared") ||
                           (is("softmax-relu-by-count") && !ragged(r));
    double squares = 0, by = undivided ? 1 : is("softmax-divided-twice") ? all * all : all;
    by = is("softmax-relu-by-count") && !ragged(r) ? (double)r->S : by;
    for (size_t j = 0; j < x->n; j++)
        squares += x->w[j] * x->w[j];
    if (is("softmax-by-root") && n_more == 0)
        by = sqrt(squares);
    for (size_t j = 0; j < x->n; j++)
        x->w[j] = x->dropped[j] ? 0 : (begins("rounded-exponentials") ? buggy_rounding(x->w[j]) : x->w[j]) / by;
    double again = 0;
    for (size_t j = 0; j < x->n && is("softmax-twice") && n_more == 0; j++)
        again += isinf(x->s[j]) ? 0 : exp(x->w[j]);
    for (size_t j = 0; j < x->n && again > 0; j++)
        x->w[j] = isinf(x->s[j]) ? 0 : exp(x->w[j]) / again;
    *lse = is("softmax-missing") ? 0 : m + log(all); /* of a sum that may be negative */
    if (is("lse-base-2"))
        *lse = m / log(2) + log2(all);
    if (is("lse-without-sinks"))
        *lse = m + log(keys);
    if (is("lse-without-maximum"))
        *lse = log(all);
    if (is("lse-max-unscaled"))
        *lse = m / scale + log(all);
}

/* The weighted values of a query; its weights are kept. */
static void weigh(run *r, size_t b, size_t head, size_t i, const row *x, double lse, number *heads)
{
    const size_t all = r->S + r->extra, at = ((b * r->h + head) * r->T_q + i) * all;
    const number *v = r->values + (b * r->h_kv + head / (r->h / r->h_kv)) * all * r->d_v;
    const bool propagate = r->s->softmax.hidden_values == MHA_HIDDEN_PROPAGATE && !oracle_pads(r, b, i);
    for (size_t f = 0; f < r->d_v; f++) {
        double sum = isnan(lse) ? lse : 0; /* without keys, too */
        for (size_t j = 0; j < x->n; j++)
            if (x->w[j] != 0 || (propagate && j < x->real) || !isinf(x->s[j]))
                sum += x->w[j] * v[j * r->d_v + f].v;
        heads[query_row(r, b, i) * r->h * r->d_v + head * r->d_v + f] = (number){sum, 0};
    }
    for (size_t j = 0; j < x->n; j++)
        r->out->stage[MHA_STAGE_WEIGHTS].value[at + j] = x->w[j];
}

void buggy_attend(run *r, size_t b, size_t head, size_t i, number *heads)
{
    static double s[MOST], w[MOST];
    static bool dropped[MOST];
    row x = {.real = keys_of(r, b), .n = keys_of(r, b) + r->extra, .s = s, .w = w, .dropped = dropped};
    double lse;
    if (x.n > MOST)
        abort();
    for (size_t j = 0; j < x.n; j++)
        score(r, b, head, i, j, &x);
    soften(r, b, head, i, &x, &lse);
    drop(r, b, head, i, &x);
    r->out->stage[MHA_STAGE_LSE].value[(b * r->h + head) * r->T_q + i] = lse;
    weigh(r, b, head, i, &x, lse, heads);
}

/* softmax(scores, dim=-2), or dim=-3; the right scores have been kept. */
static void attend_across(run *r, number *heads)
{
    static double s[MOST], w[MOST];
    const bool queries = is("softmax-queries");
    const size_t n = r->S + r->extra, T = r->T_q, many = queries ? T : r->h, step = queries ? n : T * n;
    const double *masked = r->out->stage[MHA_STAGE_MASKED].value;
    const row x = {.real = r->S, .n = n, .s = s, .w = w};
    if (n > MOST)
        abort();
    const bool softens = r->s->softmax.normaliser == MHA_SOFTMAX && (queries || r->h > 1);
    for (size_t at = 0; at < r->B * r->h * T && softens; at++) {
        const size_t b = at / T / r->h, h = at / T % r->h, i = at % T;
        const double *first = masked + (queries ? at - i : b * r->h * T + i) * n;
        memcpy(s, masked + at * n, n * sizeof *s);
        for (size_t j = 0; j < n; j++) {
            double m = -(double)INFINITY, sum = 0;
            for (size_t k = 0; k < many; k++)
                m = fmax(m, first[k * step + j]);
            for (size_t k = 0; k < many && !isinf(m); k++)
                sum += exp(first[k * step + j] - m);
            w[j] = !isinf(m) ? exp(s[j] - m) / sum : r->s->softmax.empty_rows == MHA_EMPTY_NAN ? (double)NAN : 0;
        }
        weigh(r, b, h, i, &x, 0, heads);
    }
}

/* The mean of all heads' weights for each of them, or those of the first, the right ones having been kept. */
static void average_weights(run *r, number *heads)
{
    static double s[MOST], w[MOST];
    const size_t n = r->S + r->extra, T = r->T_q, step = T * n;
    const double *masked = r->out->stage[MHA_STAGE_MASKED].value, *weights = r->out->stage[MHA_STAGE_WEIGHTS].value;
    double *mean = calloc(r->B * step + 1, sizeof *mean);
    for (size_t at = 0; at < r->B * r->h * step; at++)
        mean[at / step / r->h * step + at % step] += is("weights-averaged")  ? weights[at] / (double)r->h
                                                     : at / step % r->h == 0 ? weights[at]
                                                                             : 0;
    for (size_t at = 0; at < r->B * r->h * T; at++) {
        const size_t b = at / T / r->h, h = at / T % r->h, i = at % T;
        const row x = {.real = keys_of(r, b), .n = keys_of(r, b) + r->extra, .s = s, .w = w};
        if (i >= queries_of(r, b))
            continue;
        for (size_t j = 0; j < x.n; j++) {
            s[j] = -(double)INFINITY;
            for (size_t g = 0; g < (is("weights-averaged") ? r->h : 1); g++)
                s[j] = fmax(s[j], masked[((b * r->h + g) * T + i) * n + j]);
            w[j] = mean[b * step + i * n + j];
        }
        weigh(r, b, h, i, &x, 0, heads);
    }
    free(mean);
}

/* The sequences of a ragged batch taken for one. */
static void join_sequences(mha_call *call, bool cached)
{
    mha_semantics *s = &call->semantics;
    (void)cached;
    if (s->place.n_sequences > 1 && !s->visible.kv_lengths && !s->visible.mask.kind && !s->visible.key_padding.kind &&
        !s->visible.pattern.q_segments.data && !s->visible.pattern.query_padding.kind &&
        !s->visible.pattern.key_lists.data && !s->visible.pattern.blocks.kind)
        s->place.n_sequences = 0, s->place.cu_seqlens_q = s->place.cu_seqlens_k = NULL;
}

/* Weights multiplied by the scale in place of scores. */
static void say_scale_1(const run *r, mha_semantics *s)
{
    (void)r;
    s->softmax.has_scale = true, s->softmax.scale = 1;
}

/* Whether a key of zeros has score 0, and nothing but lengths is said of single keys. */
static bool may_be_zeros(const run *r)
{
    const mha_semantics *s = &r->call->semantics;
    const mha_pattern *p = &s->visible.pattern;
    return s->visible.kv_lengths && !ragged(r) && !s->visible.mask.kind && !s->visible.key_padding.kind &&
           !s->added.alibi_slopes && !s->added.bias.rule && !s->added.relative.rule && !p->q_segments.data &&
           !p->query_padding.kind && !p->key_lists.data && !p->blocks.kind;
}

static void say_no_lengths(const run *r, mha_semantics *s)
{
    if (may_be_zeros(r) && s->softmax.normaliser == MHA_SOFTMAX)
        s->visible.kv_lengths = NULL;
}

/* A buffer that is longer than what was written into it. */
static void clear_behind(run *r)
{
    const mha_semantics *s = &r->call->semantics;
    const size_t all = r->S + r->extra, d[] = {r->d_k, r->d_v};
    number *parts[] = {r->keys, r->values};
    for (size_t e = 0; e < 2 * r->B * r->h_kv * r->S && may_be_zeros(r); e++) {
        const size_t part = e % 2, head = e / 2 / r->S, j = e / 2 % r->S;
        if ((int64_t)(j + r->first) + s->place.key_offset >= s->visible.kv_lengths[head / r->h_kv] &&
            s->softmax.normaliser == MHA_SOFTMAX)
            for (size_t f = 0; f < d[part]; f++)
                parts[part][(head * all + j) * d[part] + f].v = 0;
    }
}

/* A part of the keys that does not know where it begins. */
static void say_part(const run *r, mha_semantics *s)
{
    (void)r;
    s->place.key_offset = 0;
}

const oracle_bug *bug_of_scores_at(size_t index)
{
    static const oracle_bug all[] = {
        {.name = "sinks-other", .gathered = add_sinks},
        {.name = "scales-other", .attend = buggy_attend},
        {.name = "key-twice 2", .attend = buggy_attend},
        {.name = "tile-twice 0", .attend = buggy_attend},
        {.name = "parts-averaged-seen 4", .attend = buggy_attend},
        {.name = "parts-by-sums 4", .attend = buggy_attend},
        {.name = "parts-by-lse 4", .attend = buggy_attend},
        {.name = "parts-by-powers-of-2 3", .attend = buggy_attend},
        {.name = "parts-lse-base-2 5", .attend = buggy_attend},
        {.name = "tile-edges-twice 3", .attend = buggy_attend},
        {.name = "tile-filled 8", .attend = buggy_attend},
        {.name = "top-keys-alone 3", .attend = buggy_attend},
        {.name = "top-weights-alone 2", .attend = buggy_attend},
        {.name = "scores-limited 0.25", .attend = buggy_attend},
        {.name = "exponents-limited 0.5", .attend = buggy_attend},
        {.name = "weights-limited 0.1", .attend = buggy_attend},
        {.name = "denominator-raised 0.01", .attend = buggy_attend},
        {.name = "scores-0", .attend = buggy_attend},
        {.name = "features-scored 2", .attend = buggy_attend},
        {.name = "softmax-log2e", .attend = buggy_attend},
        {.name = "softmax-missing", .attend = buggy_attend},
        {.name = "case-lacks-sigmoid-unbiased", .attend = buggy_attend},
        {.name = "sinks-unshifted", .attend = buggy_attend},
        {.name = "softcap-as-limit", .attend = buggy_attend},
        {.name = "parts-by-maxima 4", .attend = buggy_attend},
        {.name = "prefix-other 3", .attend = buggy_attend},
        {.name = "chunk-other 3", .attend = buggy_attend},
        {.name = "case-lacks-window-keep 1", .attend = buggy_attend},
        {.name = "fill-other -1", .attend = buggy_attend},
        {.name = "fill-add-other -2", .attend = buggy_attend},
        {.name = "mask-times 0.7", .attend = buggy_attend},
        {.name = "causal-runs-on", .attend = buggy_attend},
        {.name = "causal-tile-first 4", .attend = buggy_attend},
        {.name = "causal-block-before 2", .attend = buggy_attend},
        {.name = "window-block 4", .attend = buggy_attend},
        {.name = "window-inverted", .attend = buggy_attend},
        {.name = "case-lacks-dilation 2", .attend = buggy_attend},
        {.name = "chunk-shift 1", .attend = buggy_attend},
        {.name = "chunk-before-too", .attend = buggy_attend},
        {.name = "mask-rows-moved 1", .attend = buggy_attend},
        {.name = "mask-columns-first 4", .attend = buggy_attend},
        {.name = "segments-inverted", .attend = buggy_attend},
        {.name = "segments-first-batch", .attend = buggy_attend},
        {.name = "segments-moved 1", .attend = buggy_attend},
        {.name = "alibi-limited 2", .attend = buggy_attend},
        {.name = "softcap-twice", .attend = buggy_attend},
        {.name = "scores-absolute", .attend = buggy_attend},
        {.name = "tile-rescaled-base-2 4", .attend = buggy_attend},
        {.name = "tile-rescaled-inverse 4", .attend = buggy_attend},
        {.name = "tile-rescaled-late 4", .attend = buggy_attend},
        {.name = "tile-padded-seen 16", .attend = buggy_attend},
        {.name = "parts-by-inverse 4", .attend = buggy_attend},
        {.name = "parts-added-shifted 4", .attend = buggy_attend},
        {.name = "sigmoid-by-count", .attend = buggy_attend},
        {.name = "weights-powered 2", .attend = buggy_attend},
        {.name = "scale-after-softmax", .says = say_scale_1, .attend = buggy_attend},
        {.name = "lengths-as-zeros", .says = say_no_lengths, .gathered = clear_behind},
        {.name = "softmax-exp-alone", .attend = buggy_attend},
        {.name = "softmax-relu-squared", .attend = buggy_attend},
        {.name = "softmax-relu-by-count", .attend = buggy_attend},
        {.name = "softmax-by-root", .attend = buggy_attend},
        {.name = "softmax-divided-twice", .attend = buggy_attend},
        {.name = "softmax-twice", .attend = buggy_attend},
        {.name = "softmax-undivided", .attend = buggy_attend},
        {.name = "softmax-relu", .attend = buggy_attend},
        {.name = "softmax-relu-undivided", .attend = buggy_attend},
        {.name = "weights-averaged", .merged = average_weights},
        {.name = "weights-first-head", .merged = average_weights},
        {.name = "sigmoid-bias-by-row", .attend = buggy_attend},
        {.name = "alibi-by-tile 4", .attend = buggy_attend},
        {.name = "alibi-restarts 4", .attend = buggy_attend},
        {.name = "weights-small-hidden", .attend = buggy_attend},
        {.name = "weights-small-dropped", .attend = buggy_attend},
        {.name = "exponentials-small-dropped", .attend = buggy_attend},
        {.name = "mask-or-causal", .attend = buggy_attend},
        {.name = "parts-averaged 4", .attend = buggy_attend},
        {.name = "parts-added 5", .attend = buggy_attend},
        {.name = "causal-shift-other 3", .attend = buggy_attend},
        {.name = "mask-twice", .attend = buggy_attend},
        {.name = "mask-first-batch", .attend = buggy_attend},
        {.name = "mask-first-head", .attend = buggy_attend},
        {.name = "mask-first-row", .attend = buggy_attend},
        {.name = "mask-moved 1", .attend = buggy_attend},
        {.name = "mask-batch-moved 1", .attend = buggy_attend},
        {.name = "sinks-in-every-part 3", .attend = buggy_attend},
        {.name = "segments-earlier-too", .attend = buggy_attend},
        {.name = "lists-each-time", .attend = buggy_attend},
        {.name = "key-offset-ignored", .says = say_part},
        {.name = "dropout-mask 0.3", .attend = buggy_attend},
        {.name = "case-lacks-padding", .attend = buggy_attend},
        {.name = "padding-other", .attend = buggy_attend},
        {.name = "case-lacks-sinks", .gathered = add_sinks},
        {.name = "cache-behind", .gathered = join_cache},
        {.name = "cache-row-early", .gathered = join_cache},
        {.name = "cache-row-late", .gathered = join_cache},
        {.name = "softcap-no-divisor", .attend = buggy_attend},
        {.name = "causal-reversed", .attend = buggy_attend},
        {.name = "causal-block 4", .attend = buggy_attend},
        {.name = "case-lacks-prefix 3", .attend = buggy_attend},
        {.name = "case-lacks-chunk 5", .attend = buggy_attend},
        {.name = "prefix-missing", .attend = buggy_attend},
        {.name = "chunk-missing", .attend = buggy_attend},
        {.name = "chunk-as-window", .attend = buggy_attend},
        {.name = "window-keep-missing", .attend = buggy_attend},
        {.name = "causal-after-softmax", .attend = buggy_attend},
        {.name = "window-after-softmax", .attend = buggy_attend},
        {.name = "lengths-after-softmax", .attend = buggy_attend},
        {.name = "mask-after-softmax", .attend = buggy_attend},
        {.name = "padding-after-softmax", .attend = buggy_attend},
        {.name = "all-after-softmax", .attend = buggy_attend},
        {.name = "window-top-left", .attend = buggy_attend},
        {.name = "window-bottom-right", .attend = buggy_attend},
        {.name = "window-or-causal", .attend = buggy_attend},
        {.name = "mask-scaled", .attend = buggy_attend},
        {.name = "mask-transposed", .attend = buggy_attend},
        {.name = "mask-added", .attend = buggy_attend},
        {.name = "padding-reversed", .attend = buggy_attend},
        {.name = "lengths-from-end", .attend = buggy_attend},
        {.name = "alibi-scaled", .attend = buggy_attend},
        {.name = "alibi-symmetric", .attend = buggy_attend},
        {.name = "fill-add-f16", .attend = buggy_attend},
        {.name = "fill-add-bf16", .attend = buggy_attend},
        {.name = "softmax-base-2", .attend = buggy_attend},
        {.name = "sigmoid-divided", .attend = buggy_attend},
        {.name = "sigmoid-bias-usual", .attend = buggy_attend},
        {.name = "case-lacks-sigmoid", .attend = buggy_attend},
        {.name = "tile-not-rescaled 4", .attend = buggy_attend},
        {.name = "tile-values-not-rescaled 2", .attend = buggy_attend},
        {.name = "tile-sum-not-rescaled 8", .attend = buggy_attend},
        {.name = "tile-not-rescaled -4", .attend = buggy_attend},
        {.name = "tile-values-not-rescaled -8", .attend = buggy_attend},
        {.name = "tile-sum-not-rescaled -2", .attend = buggy_attend},
        {.name = "tile-padded 8", .attend = buggy_attend},
        {.name = "tile-last-dropped 4", .attend = buggy_attend},
        {.name = "tile-first-only 4", .attend = buggy_attend},
        {.name = "tile-last-only 4", .attend = buggy_attend},
        {.name = "dropout-scale 0.1", .attend = buggy_attend},
        {.name = "dropout-scale-twice 0.25", .attend = buggy_attend},
        {.name = "lse-base-2", .attend = buggy_attend},
        {.name = "lse-without-sinks", .attend = buggy_attend},
        {.name = "lse-without-maximum", .attend = buggy_attend},
        {.name = "lse-max-unscaled", .attend = buggy_attend},
        {.name = "cache-ignored", .attend = buggy_attend},
        {.name = "causal-top-left", .attend = buggy_attend},
        {.name = "causal-bottom-right", .attend = buggy_attend},
        {.name = "causal-strict", .attend = buggy_attend},
        {.name = "causal-plus-1", .attend = buggy_attend},
        {.name = "bias-row-missing", .attend = buggy_attend},
        {.name = "zero-row-missing", .attend = buggy_attend},
        {.name = "mask-subtracted", .attend = buggy_attend},
        {.name = "alibi-from-0", .attend = buggy_attend},
        {.name = "softcap-after-mask", .attend = buggy_attend},
        {.name = "softcap-before-scale", .attend = buggy_attend},
        {.name = "softcap-no-factor", .attend = buggy_attend},
        {.name = "fill-0", .attend = buggy_attend},
        {.name = "fill-1e4", .attend = buggy_attend},
        {.name = "fill-1e9", .attend = buggy_attend},
        {.name = "fill-lowest", .attend = buggy_attend},
        {.name = "fill-add-1e4", .attend = buggy_attend},
        {.name = "fill-add-1e9", .attend = buggy_attend},
        {.name = "sinks-missing", .gathered = add_sinks},
        {.name = "softmax-queries", .merged = attend_across},
        {.name = "softmax-heads", .merged = attend_across},
        {.name = "sequences-joined", .inputs = join_sequences},
    };
    return index < sizeof all / sizeof *all ? &all[index] : NULL;
}
