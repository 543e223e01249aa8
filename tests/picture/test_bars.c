/* Bars: read back, each as long as its number on the scale of the limit, and no markup from outside. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "picture/draw/bars.h"
#include "support/scratch.h"
#include "support/unit.h"

static void bars_are_as_long_as_their_numbers(void **state)
{
    (void)state;
    static const mha__bar bars[] = {{"one", "% of it", 50}, {"<two>", "&", 7.25}, {"three", "", 0}, {"four", "", 125}};
    const mha_allocator allocator = mha__allocator_default();
    mha_error error;
    size_t count;
    for (size_t n = 3; n <= 4; n++) { /* below the limit, and beyond */
        const double most = n == 3 ? 100 : 125;
        const char *path = scratch_path("bars.svg");
        assert_ok(mha__draw_bars(bars, n, 100, "a <title>", path, &allocator, &error), error);
        char *text = (char *)scratch_read(path, &count), *at = text;
        text[count - 1] = '\0';
        long x, y, length;
        for (size_t i = 0; i < n; i++) {
            at = strstr(at, "<rect class=\"bar\"") + 1;
            assert_int_equal(sscanf(at, "rect class=\"bar\" x=\"%ld\" y=\"%ld\" width=\"%ld\"", &x, &y, &length), 3);
            assert_true(fabs((double)length - 400 * bars[i].value / most) <= 0.5); /* whole pixels */
        }
        long limit;
        assert_int_equal(sscanf(strstr(text, "<rect class=\"limit\""), "<rect class=\"limit\" x=\"%ld\"", &limit), 1);
        assert_true(fabs((double)(limit + 1 - x) - 400 * 100 / most) <= 0.5);
        assert_non_null(strstr(text, ">&lt;two&gt;</text>"));
        assert_non_null(strstr(text, ">7.25 &amp;</text>"));
        assert_non_null(strstr(text, ">a &lt;title&gt;</text>"));
        free(text);
    }
    assert_refused(mha__draw_bars(bars, 0, 100, "", scratch_path("none.svg"), &allocator, &error), MHA_INVALID, error,
                   "found none");
    assert_refused(mha__draw_bars(bars, 3, 100, "", "/dev/full", &allocator, &error), MHA_IO, error, "/dev/full");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bars_are_as_long_as_their_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
