/* Calls that say something else than the case. */
#include <stdlib.h>
#include <string.h>

#include "support/bugs/oracle_bugs.h"
#include "support/window.h"

static void say_slopes(mha_semantics *s, size_t h)
{
    static double slopes[64];
    size_t n = 1;
    while (2 * n <= h)
        n *= 2;
    for (size_t i = 0; i < h; i++)
        if (is("alibi-slopes-from-0"))
            slopes[i] = pow(2, -8.0 * (double)i / (double)h);
        else if (is("alibi-slopes-plain") || i < n)
            slopes[i] = pow(2, -8.0 * (double)(i + 1) / (double)(is("alibi-slopes-plain") ? h : n));
        else /* every second one of twice as many */
            slopes[i] = pow(2, -8.0 * (double)(2 * (i - n) + 1) / (double)(2 * n));
    s->added.alibi_slopes = slopes;
}

static void say_alibi(const run *r, mha_semantics *s)
{
    if (is("case-lacks-alibi") ? !s->added.alibi_slopes
                               : s->added.alibi_slopes && !(is("alibi-slopes-plain") && !(r->h & (r->h - 1))))
        say_slopes(s, r->h);
}

static void say_lengths(const run *r, mha_semantics *s)
{
    static int64_t lengths[16];
    const int64_t n = (int64_t)given(), most = (int64_t)r->S;
    for (size_t b = 0; b < r->B && s->visible.kv_lengths; b++) {
        int64_t length = s->visible.kv_lengths[b] - s->place.key_offset,
                whole = length > 0 ? (length + n - 1) / n * n : 0;
        lengths[b] = (whole < most ? whole : most) + s->place.key_offset;
    }
    if (s->visible.kv_lengths)
        s->visible.kv_lengths = lengths;
}

static void say_more(const run *r, mha_semantics *s)
{
    static int64_t lengths[16];
    static double slopes[16];
    for (size_t b = 0; b < r->B; b++)
        lengths[b] = s->place.key_offset + (int64_t)given_at(b, (double)(r->S - b % r->S - r->S / 3));
    for (size_t h = 0; h < r->h; h++)
        slopes[h] = given_at(h, 0.3 - 0.07 * (double)h);
    if (is("lengths-other") ? s->visible.kv_lengths != NULL : is("case-lacks-lengths") && !s->visible.kv_lengths)
        s->visible.kv_lengths = lengths;
    if (is("slopes-other") ? s->added.alibi_slopes != NULL : is("case-lacks-slopes") && !s->added.alibi_slopes)
        s->added.alibi_slopes = slopes;
}

static void say_scale(const run *r, mha_semantics *s)
{
    (void)r;
    s->softmax.scale = s->softmax.has_scale && s->softmax.scale < 0 ? -given() : given();
    s->softmax.has_scale = true;
}

static void say_softcap(const run *r, mha_semantics *s)
{
    (void)r;
    if ((s->softmax.softcap > 0) == begins("softcap-other"))
        s->softmax.softcap = given();
}

static void say_window(const run *r, mha_semantics *s)
{
    (void)r;
    if (begins("window-left-other") && s->visible.has_window_left)
        s->visible.window_left = (int64_t)given();
    else if (begins("window-right-other") && s->visible.has_window_right)
        s->visible.window_right = (int64_t)given();
    else if (begins("case-lacks")) {
        const bool left = s->visible.has_window_left, right = s->visible.has_window_right,
                   both = is("case-lacks-window") && !left && !right;
        if (both || (!left && is("case-lacks-window-left")))
            s->visible.has_window_left = true, s->visible.window_left = (int64_t)given();
        if (both || (!right && is("case-lacks-window-right")))
            s->visible.has_window_right = true, s->visible.window_right = (int64_t)given();
    }
}

/* Rules that are left out, turned round or moved by one. */
static void say_otherwise(const run *r, mha_semantics *s)
{
    static int64_t lengths[16];
    const int64_t shift = is("lengths-more") ? 1 : is("lengths-less") ? -1 : 0;
    (void)r;
    if (is("causal-missing"))
        s->visible.causal = false;
    if (is("mask-missing"))
        s->visible.mask.kind = MHA_MASK_NONE;
    if (is("mask-polarity") && has_flags(&s->visible.mask))
        s->visible.mask.kind = s->visible.mask.kind == MHA_MASK_HIDES ? MHA_MASK_KEEPS : MHA_MASK_HIDES;
    if (is("padding-missing"))
        s->visible.key_padding.kind = MHA_MASK_NONE;
    if (is("padding-polarity") && has_flags(&s->visible.key_padding))
        s->visible.key_padding.kind = s->visible.key_padding.kind == MHA_MASK_HIDES ? MHA_MASK_KEEPS : MHA_MASK_HIDES;
    if (is("padding-excluded"))
        s->visible.has_padding_fill = false;
    for (size_t b = 0; b < r->B && s->visible.kv_lengths; b++)
        lengths[b] = s->visible.kv_lengths[b] + shift;
    if (s->visible.kv_lengths)
        s->visible.kv_lengths = is("lengths-missing") ? NULL : lengths;
    if (is("plus-one-missing") || is("plus-one-added"))
        s->softmax.softmax_plus_one = is("plus-one-added");
    if (is("empty-nan") || is("empty-zero"))
        s->softmax.empty_rows = is("empty-nan") ? MHA_EMPTY_NAN : MHA_EMPTY_ZERO;
    if (is("hidden-propagate") || is("hidden-ignore"))
        s->softmax.hidden_values = is("hidden-propagate") ? MHA_HIDDEN_PROPAGATE : MHA_HIDDEN_IGNORE;
    if (is("softcap-missing"))
        s->softmax.softcap = 0;
}

static void say_sigmoid(const run *r, mha_semantics *s)
{
    const double scale = s->softmax.has_scale ? s->softmax.scale : 1 / sqrt((double)r->d_k);
    if (is("sigmoid-softmax"))
        s->softmax.normaliser = MHA_SOFTMAX;
    if (is("sigmoid-bias-other"))
        s->softmax.sigmoid_bias = given();
    else if (begins("sigmoid-bias-"))
        s->softmax.sigmoid_bias *= is("sigmoid-bias-missing") ? 0 : is("sigmoid-bias-sign") ? -1 : scale;
}

static void say_other_window(const run *r, mha_semantics *s)
{
    (void)r;
    const bool left = s->visible.has_window_left, right = s->visible.has_window_right;
    if (is("window-missing"))
        set_window(s, -1, -1);
    if (left && (is("window-left-more") || (is("window-left-less") && s->visible.window_left > 0)))
        s->visible.window_left += is("window-left-more") ? 1 : -1;
    if (right && (is("window-right-more") || (is("window-right-less") && s->visible.window_right > 0)))
        s->visible.window_right += is("window-right-more") ? 1 : -1;
    if (left && is("window-both-sides"))
        s->visible.has_window_right = true, s->visible.window_right = s->visible.window_left;
    if (left && right && is("window-left-only"))
        set_window(s, s->visible.window_left, -1);
    if (left && right && is("window-right-only"))
        set_window(s, -1, s->visible.window_right);
}

static void say_other_slopes(const run *r, mha_semantics *s)
{
    static double slopes[16];
    for (size_t h = 0; h < r->h && s->added.alibi_slopes; h++)
        slopes[h] = -s->added.alibi_slopes[h];
    if (s->added.alibi_slopes)
        s->added.alibi_slopes = is("alibi-sign") ? slopes : NULL;
}

static void say_usual_scale(const run *r, mha_semantics *s)
{
    const double d_k = (double)r->d_k, now = s->softmax.has_scale ? s->softmax.scale : 1 / sqrt(d_k);
    const mha_view *query = &r->call->query;
    const double width = (double)(query->rank == 3 ? query->shape[2] : r->h * r->d_k);
    s->softmax.has_scale = true;
    s->softmax.scale = is("scale-missing")   ? 1
                       : is("scale-twice")   ? now * now
                       : is("scale-no-root") ? 1 / d_k
                       : is("scale-d-model") ? 1 / sqrt(width)
                       : is("scale-d-v")     ? 1 / sqrt((double)r->d_v)
                       : is("scale-inverse") ? sqrt(d_k)
                                             : 1 / sqrt(d_k);
}

const oracle_bug *bug_of_call_at(size_t index)
{
    static const oracle_bug all[] = {
        {.name = "scale-other 0.83", .says = say_scale},
        {.name = "softcap-other 2.5", .says = say_softcap},
        {.name = "case-lacks-softcap 0.75", .says = say_softcap},
        {.name = "window-left-other 3", .says = say_window},
        {.name = "window-right-other 3", .says = say_window},
        {.name = "case-lacks-window 2", .says = say_window},
        {.name = "case-lacks-window-left 2", .says = say_window},
        {.name = "case-lacks-window-right 2", .says = say_window},
        {.name = "lengths-to-tile 4", .says = say_lengths},
        {.name = "case-lacks-lengths", .says = say_more},
        {.name = "case-lacks-slopes", .says = say_more},
        {.name = "lengths-other", .says = say_more},
        {.name = "slopes-other", .says = say_more},
        {.name = "case-lacks-alibi", .says = say_alibi},
        {.name = "alibi-slopes-usual", .says = say_alibi},
        {.name = "alibi-slopes-from-0", .says = say_alibi},
        {.name = "alibi-slopes-plain", .says = say_alibi},
        {.name = "causal-missing", .says = say_otherwise},
        {.name = "mask-missing", .says = say_otherwise},
        {.name = "mask-polarity", .says = say_otherwise},
        {.name = "padding-missing", .says = say_otherwise},
        {.name = "padding-polarity", .says = say_otherwise},
        {.name = "padding-excluded", .says = say_otherwise},
        {.name = "lengths-missing", .says = say_otherwise},
        {.name = "lengths-less", .says = say_otherwise},
        {.name = "lengths-more", .says = say_otherwise},
        {.name = "plus-one-missing", .says = say_otherwise},
        {.name = "plus-one-added", .says = say_otherwise},
        {.name = "empty-nan", .says = say_otherwise},
        {.name = "empty-zero", .says = say_otherwise},
        {.name = "hidden-propagate", .says = say_otherwise},
        {.name = "hidden-ignore", .says = say_otherwise},
        {.name = "softcap-missing", .says = say_otherwise},
        {.name = "sigmoid-softmax", .says = say_sigmoid},
        {.name = "sigmoid-bias-missing", .says = say_sigmoid},
        {.name = "sigmoid-bias-sign", .says = say_sigmoid},
        {.name = "sigmoid-bias-scaled", .says = say_sigmoid},
        {.name = "sigmoid-bias-other -1.25", .says = say_sigmoid},
        {.name = "window-missing", .says = say_other_window},
        {.name = "window-left-less", .says = say_other_window},
        {.name = "window-left-more", .says = say_other_window},
        {.name = "window-right-less", .says = say_other_window},
        {.name = "window-right-more", .says = say_other_window},
        {.name = "window-both-sides", .says = say_other_window},
        {.name = "window-left-only", .says = say_other_window},
        {.name = "window-right-only", .says = say_other_window},
        {.name = "alibi-missing", .says = say_other_slopes},
        {.name = "alibi-sign", .says = say_other_slopes},
        {.name = "scale-default", .says = say_usual_scale},
        {.name = "scale-missing", .says = say_usual_scale},
        {.name = "scale-twice", .says = say_usual_scale},
        {.name = "scale-no-root", .says = say_usual_scale},
        {.name = "scale-d-model", .says = say_usual_scale},
        {.name = "scale-d-v", .says = say_usual_scale},
        {.name = "scale-inverse", .says = say_usual_scale},
    };
    return index < sizeof all / sizeof *all ? &all[index] : NULL;
}
