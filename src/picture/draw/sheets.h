/* Tensors beside each other, drawn without a browser: a line of maps for each. */
#ifndef MHA_PICTURE_DRAW_SHEETS_H
#define MHA_PICTURE_DRAW_SHEETS_H

#include "picture/picture.h"

/* For each sheet its a, b and a - b, in the map where they differ most, or its a alone; colours are those of numbers of
 * both signs. Errors as of mha__draw_svg. */
mha_status mha__draw_sheets_svg(const mha__picture *picture, const char *path, mha_error *error);
mha_status mha__draw_sheets_png(const mha__picture *picture, const char *path, mha_error *error);

#endif
