/* Pages whose lists and tables are written by tests, and held against what the tests find. */
#ifndef TEST_PAGE_H
#define TEST_PAGE_H

/* The whole text of a page, to be freed. Tests run where `make` does: the path begins there. */
char *page_text(const char *path);
/* Asserts that between "<!-- NAME: ... -->" and "<!-- end of NAME -->" the page holds `wanted`, line for line. With
 * MHA_WRITE_PAGES=1 in the environment (`make pages`) it is written there instead. */
void page_holds(const char *path, const char *name, const char *wanted);

#endif
