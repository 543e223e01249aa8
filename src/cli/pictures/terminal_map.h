/* Draws the maps of heads on a terminal, or as text where colours have no place. */
#ifndef MHA_CLI_PICTURES_TERMINAL_MAP_H
#define MHA_CLI_PICTURES_TERMINAL_MAP_H

#include "picture/picture.h"

/* Prints the heads of each layer side by side, as many as fit into two lines of maps: in characters, coloured on a
 * terminal of at least 256 colours unless NO_COLOR is set. No line is wider than the terminal. Rows and columns that do
 * not fit are joined: the largest weight is shown, and a line says so. */
void terminal_map_print(const mha__picture *picture);

#endif
