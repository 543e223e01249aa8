/* Pages with lists and tables that tests write and compare. */
#ifndef TEST_PAGE_H
#define TEST_PAGE_H

#include "support/scratch.h"

/* The whole text of a page, to be freed. Tests run where `make` does: the path begins there. */
char *page_text(const char *path);
/* Asserts that between "<!-- NAME: ... -->" and "<!-- end of NAME -->" the page holds `wanted`, line for line. With
 * MHA_WRITE_PAGES=1 in the environment (`make pages`) it is written there instead. */
void page_holds(const char *path, const char *name, const char *wanted);
/* Adds an item of a list, in lines of at most 120 columns. */
void page_item(bytes *page, const char *item);

#endif
