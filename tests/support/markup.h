/* Markup as a strict reader takes it. */
#ifndef TEST_MARKUP_H
#define TEST_MARKUP_H

#include <stdbool.h>
#include <stddef.h>

/* Fails the test unless elements nest, attributes are quoted, `&` begins one of five entities, nothing is left open and
 * there is no control character. Returns the number of elements. */
size_t markup_walk(const char *text);

#endif
