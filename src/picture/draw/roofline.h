/* A roofline (Williams, Waterman and Patterson, 2009): how fast something runs beside what the machine allows at its
 * arithmetic intensity, min(peak, intensity * reads), as a part of a drawing. */
#ifndef MHA_PICTURE_DRAW_ROOFLINE_H
#define MHA_PICTURE_DRAW_ROOFLINE_H

#include "picture/markup.h"

/* What a machine allows: GFLOP/s of multiply-adds, GB/s of reads from memory; both above 0. */
typedef struct mha__roof {
    char name[32];
    double peak_gflops, read_gbs;
} mha__roof;

typedef struct mha__roof_point {
    char label[64];           /* "": the point has none */
    char title[128];          /* what a pointer that rests on it says */
    double intensity, gflops; /* flop/byte and GFLOP/s, both above 0 */
    size_t roof;              /* below which one it stands: its colour */
    bool hollow;
} mha__roof_point;

enum { MHA__ROOFLINE_HEIGHT = 520, MHA__ROOFLINE_WIDTH = 998 };

/* Draws both axes in powers of 2, at most four roofs, and a circle for each point at the upper edge of a drawing that
 * is MHA__ROOFLINE_WIDTH wide. A label that would lie on another one moves away from its point, and a line leads to
 * it. */
void mha__draw_roofline(mha__markup *markup, const mha__roof *roofs, size_t roof_count, const mha__roof_point *points,
                        size_t count, const char *title, const char *note, const mha_allocator *allocator);

#endif
