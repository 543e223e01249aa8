/* The colour of a cell of a map: a level of the scale, or one of the looks that stand for no weight. */
#ifndef MHA_PICTURE_DRAW_SHADE_H
#define MHA_PICTURE_DRAW_SHADE_H

#include "picture/colour.h"
#include "picture/picture.h"

/* Colours of a picture. Hidden keys are hatched: lines on a ground. */
enum {
    MHA__LEVELS = 240, /* levels of the scale of weights, from 0 */
    MHA__SHADES,       /* shades of numbers of both signs: 0 has the one in the middle */
    MHA__HIDDEN_GROUND = MHA__SHADES,
    MHA__HIDDEN_LINE,
    MHA__BROKEN, /* NaN or infinite */
    MHA__PAPER,
    MHA__MARK, /* the frame of a cell */
    MHA__PALETTE
};

/* Fills in all of them. Of weights level 0 is palest, the last one darkest; of numbers of both signs the shade in the
 * middle is palest. */
void mha__palette(mha__colour palette[MHA__PALETTE]);
void mha__palette_of_signs(mha__colour palette[MHA__PALETTE]);

enum { MHA__DECADES = 6 }; /* what a logarithmic scale shows */

/* How weights become levels: level 0 at 0, the last one at `largest`. */
typedef struct mha__shading {
    double largest;
    bool logarithmic; /* level 0 also for weights below largest * 10^-MHA__DECADES */
} mha__shading;

/* The largest weight in a cell of a map of which so many rows and columns are joined; hidden if all of them are, NaN if
 * one is. */
double mha__pooled(const mha__head *head, size_t row, size_t column, size_t rows, size_t columns);

/* The shading under which the largest weight of all heads has the last level; 1 where no weight is above 0. */
mha__shading mha__shading_of(const mha__picture *picture);
/* The level of a weight, or MHA__HIDDEN_GROUND or MHA__BROKEN. */
int mha__level(const mha__shading *shading, double weight);
/* The least weight that has a level, but for rounding. */
double mha__level_weight(const mha__shading *shading, double level);

#endif
