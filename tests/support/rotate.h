/* Rotation by itself: the rotated queries of a call without a layer whose keys and values are its queries. */
#ifndef TEST_ROTATE_H
#define TEST_ROTATE_H

#include "mha/attention.h"

/* Rotates x (B, T, h, d) into y of the same shape; row 0 stands at `first` unless `rope` has positions. */
mha_status rotate_alone(const mha_view *x, const mha_rope *rope, int64_t first, mha_path path, const mha_view *y,
                        mha_error *error);

#endif
