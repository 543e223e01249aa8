/* A picture as one page that a browser opens from a file: no request, no library. */
#ifndef MHA_PICTURE_PAGE_PAGE_H
#define MHA_PICTURE_PAGE_PAGE_H

#include "picture/picture.h"

/* Writes the page: page.html with style and scripts put in, and the data, compressed (zlib) and in base64, so that no
 * text of a file can become markup. The same picture gives the same bytes. Errors: MHA_IO, MHA_NO_MEMORY; then no file
 * of that name has been created or changed. */
mha_status mha__page_write(const mha__picture *picture, const char *path, mha_error *error);

#endif
