/* Segments of the windows of an image that was rolled before it was cut. */
#include "mha/positions.h"
#include "support/unit.h"

/* Two cells of a window of the rolled image see each other when they were as near before. */
static void windows_of_a_rolled_image_keep_neighbours_together(void **state)
{
    (void)state;
    enum { HEIGHT = 6, WIDTH = 9, WINDOW = 3, AREA = WINDOW * WINDOW };
    int64_t segments[HEIGHT * WIDTH];
    mha_error error;
    for (size_t shift = 0; shift < WINDOW; shift++) {
        assert_ok(mha_window_segments(HEIGHT, WIDTH, WINDOW, shift, segments, &error), error);
        for (size_t w = 0; w < HEIGHT * WIDTH / AREA; w++)
            for (size_t i = 0; i < AREA; i++)
                for (size_t j = 0; j < AREA; j++) {
                    const size_t top = w / (WIDTH / WINDOW) * WINDOW, left = w % (WIDTH / WINDOW) * WINDOW,
                                 y = (top + i / WINDOW + shift) % HEIGHT, x = (left + i % WINDOW + shift) % WIDTH,
                                 y2 = (top + j / WINDOW + shift) % HEIGHT,
                                 x2 = (left + j % WINDOW + shift) % WIDTH;
                    const bool near = y + WINDOW > y2 && y2 + WINDOW > y && x + WINDOW > x2 && x2 + WINDOW > x;
                    assert_int_equal(segments[w * AREA + i] == segments[w * AREA + j], near);
                }
    }
    static const struct {
        size_t sizes[4];
        const char *name, *what;
    } cases[] = {{{0, 3, 3, 0}, "height", "found 0 x 3"},       {{3, 65537, 1, 0}, "height", "found 3 x 65537"},
                 {{6, 8, 3, 1}, "window", "divisor of 6 and 8"}, {{8, 6, 3, 1}, "window", "divisor of 8 and 6"},
                 {{6, 6, 0, 0}, "window", "found 0"},            {{6, 6, 3, 3}, "shift", "less than a window of 3"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t *n = cases[i].sizes;
        assert_refused(mha_window_segments(n[0], n[1], n[2], n[3], segments, &error), MHA_INVALID, error, cases[i].name,
                       cases[i].what);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(windows_of_a_rolled_image_keep_neighbours_together)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
