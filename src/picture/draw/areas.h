/* Sizes drawn as areas: a treemap in SVG, or in a page with it. */
#ifndef MHA_PICTURE_DRAW_AREAS_H
#define MHA_PICTURE_DRAW_AREAS_H

#include "base/base.h"
#include "picture/origin.h"

/* A rectangle. Texts may come from files. */
typedef struct mha__area {
    const char *group; /* all of one group lie together, in one colour */
    const char *name;
    size_t elements, times; /* in all, and of how many tensors of this name's pattern */
} mha__area;

/* Draws every area that has elements, each as large as its share of all; `title` stands above, groups and their totals
 * below. Areas are ordered, largest first. `origin` may be NULL. MHA_INVALID (nothing to draw), MHA_NO_MEMORY,
 * MHA_IO; then there is no such file. */
mha_status mha__draw_areas(mha__area *areas, size_t count, const char *title, const mha__origin *origin,
                           const char *path, const mha_allocator *allocator, mha_error *error);

#endif
