/* Walks over markup. */
#include "support/markup.h"

#include <string.h>

#include "support/unit.h"

size_t markup_walk(const char *at)
{
    const char *open[32];
    size_t depth = 0, elements = 0;
    for (; *at; at++) {
        assert_true((unsigned char)*at >= 32 || *at == '\n');
        if (*at == '&')
            assert_true(!strncmp(at, "&lt;", 4) || !strncmp(at, "&gt;", 4) || !strncmp(at, "&amp;", 5) ||
                        !strncmp(at, "&quot;", 6) || !strncmp(at, "&#39;", 5));
        assert_true(*at != '>');
        if (*at != '<')
            continue;
        const bool closes = at[1] == '/';
        const char *name = at + 1 + closes;
        const size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzG");
        assert_true(length > 0);
        if (closes) {
            assert_true(depth > 0);
            depth--;
            assert_memory_equal(open[depth], name, length);
        }
        for (at = name + length; *at != '>' && *at != '/'; at++)
            if (*at == '"') {
                at++;
                for (; *at != '"'; at++)
                    assert_true(*at && *at != '<' && (unsigned char)*at >= 32);
            }
        if (*at == '/')
            at++;
        else if (!closes) {
            assert_true(depth < 32);
            open[depth++] = name;
        }
        assert_int_equal(*at, '>');
        elements++;
    }
    assert_int_equal(depth, 0);
    return elements;
}
