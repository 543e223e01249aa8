/* The two sides of a window, set and asked for together. */
#ifndef TEST_WINDOW_H
#define TEST_WINDOW_H

#include "mha/attention.h"

/* A side of -1 is open. */
static inline void set_window(mha_semantics *s, int64_t left, int64_t right)
{
    s->visible.has_window_left = left >= 0, s->visible.window_left = left >= 0 ? left : 0;
    s->visible.has_window_right = right >= 0, s->visible.window_right = right >= 0 ? right : 0;
}

static inline bool has_left(const mha_semantics *s)
{
    return s->visible.has_window_left || s->visible.window_left != 0;
}

static inline bool has_right(const mha_semantics *s)
{
    return s->visible.has_window_right || s->visible.window_right != 0;
}

static inline bool windowed(const mha_semantics *s)
{
    return has_left(s) || has_right(s);
}

#endif
