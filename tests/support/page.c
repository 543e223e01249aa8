/* Pages with lists and tables that tests write and compare. */
#include "support/unit.h"

#include <stdlib.h>
#include <string.h>

#include "support/page.h"

char *page_text(const char *path)
{
    size_t count;
    char *text = (char *)scratch_read(path, &count);
    text = realloc(text, count + 1);
    assert_non_null(text);
    text[count] = '\0';
    return text;
}

static void write_page(const char *path, const char *page, const char *from, const char *wanted, const char *to)
{
    FILE *file = fopen("build/page.md", "w");
    assert_non_null(file);
    fprintf(file, "%.*s%s%s", (int)(from - page), page, wanted, to);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename("build/page.md", path), 0);
}

void page_holds(const char *path, const char *name, const char *wanted)
{
    char *page = page_text(path), begin[64], end[64];
    snprintf(begin, sizeof begin, "<!-- %s:", name);
    snprintf(end, sizeof end, "<!-- end of %s -->", name);
    char *from = strstr(page, begin), *to = strstr(page, end);
    assert_true(from && to && from < to);
    from = strstr(from, "-->\n");
    assert_true(from && from < to);
    from += strlen("-->\n");
    const bool same = (size_t)(to - from) == strlen(wanted) && memcmp(from, wanted, strlen(wanted)) == 0;
    if (!same && getenv("MHA_WRITE_PAGES"))
        write_page(path, page, from, wanted, to);
    else if (!same) {
        size_t line = 1;
        for (const char *a = from, *b = wanted; *a == *b && *a; a++, b++)
            line += *a == '\n';
        fail_msg("%s: line %zu of its %s is not as it should be; \"make pages\" writes it anew", path, line, name);
    }
    free(page);
}

void page_item(bytes *page, const char *item)
{
    enum { COLUMNS = 120, INDENT = 2 };
    size_t column = 0;
    while (*item) {
        const size_t length = strcspn(item, " ");
        const bool folds = column + 1 + length > COLUMNS;
        bytes_text(page, folds ? "\n  " : column ? " " : "");
        bytes_add(page, item, length);
        column = folds ? INDENT + length : column + (column > 0) + length;
        item += length + (item[length] == ' ');
    }
    bytes_text(page, "\n");
}
