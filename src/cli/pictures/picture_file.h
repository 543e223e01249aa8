/* --picture: writes a picture to a file whose ending says the form. */
#ifndef MHA_CLI_PICTURES_PICTURE_FILE_H
#define MHA_CLI_PICTURES_PICTURE_FILE_H

#include "cli/options/options.h"
#include "picture/picture.h"

/* Both return 0, or the exit code after one line on standard error; without --picture they do nothing. */

/* Refuses an ending that is not known and a file that cannot be written, before anything is computed. */
int picture_file_check(const arguments *args);
/* Sets picture->origin for that time. */
int picture_file_write(mha__picture *picture, const arguments *args);

/* Refuses a file of --picture, under whichever `option`, that ends in neither .svg nor .html: for what is drawn with
 * labels alone. Returns 0 or the exit code. */
int picture_drawing_check(const arguments *args, option_code option);

#endif
