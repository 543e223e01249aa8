/* Two scales of colours that people who confuse colours, and printers without any, tell apart by lightness. */
#ifndef MHA_PICTURE_COLOUR_H
#define MHA_PICTURE_COLOUR_H

#include <stdint.h>

enum { MHA__COLOURS = 256 };

/* A colour of sRGB. */
typedef struct mha__colour {
    uint8_t red, green, blue;
} mha__colour;

/* From pale yellow (0) to dark blue (255), each colour darker than the one before: more is darker, as on paper. On a
 * dark ground the scale is read backwards. */
void mha__colours_sequential(mha__colour scale[MHA__COLOURS]);
/* For numbers of both signs: from dark blue (the most negative) through nearly white (0, at 127 and 128) to dark
 * brown. Colours as far from the middle on either side are equally light. */
void mha__colours_diverging(mha__colour scale[MHA__COLOURS]);

#endif
