/* Drawings of mha bench, read back: bars as long as their numbers, on an axis that says so, the least bytes of a shape,
 * and no markup from outside. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/shapes.h"
#include "picture/draw/drawing.h"
#include "support/scratch.h"
#include "support/unit.h"

static mha_allocator allocator;

static char *text_of_file(const char *path)
{
    size_t count;
    char *text = (char *)scratch_read(path, &count);
    text[count - 1] = '\0';
    return text;
}

/* No line at the limit runs through a row of text, whose letters stand on its y. */
static void check_text_is_free(const char *svg)
{
    enum { ABOVE = 9, BELOW = 2 };
    size_t lines = 0;
    for (const char *at = svg; (at = strstr(at, "<rect class=\"limit\"")); at++, lines++) {
        long top, height, y;
        assert_int_equal(
            sscanf(at, "<rect class=\"limit\" x=\"%*d\" y=\"%ld\" width=\"2\" height=\"%ld\"", &top, &height), 2);
        for (const char *row = svg; (row = strstr(row, "<text ")); row++) {
            assert_int_equal(sscanf(strstr(row, " y=\""), " y=\"%ld\"", &y), 1);
            assert_true(top > y + BELOW || top + height < y - ABOVE);
        }
    }
    assert_true(lines > 0);
}

static void bars_are_as_long_as_their_numbers(void **state)
{
    (void)state;
    static const mha__bar bars[] = {
        {"one", "% of it", 50, 80}, {"<two>", "&", 7.25, 100}, {"three", "", 0, 100}, {"four", "", 125, 100}};
    mha_error error;
    enum { WIDTH = MHA__BARS_WIDTH - 28 }; /* of a bar at the limit */
    for (size_t n = 3; n <= 4; n++) {      /* below the limit, and beyond */
        const double most = n == 3 ? 100 : 125;
        const char *path = scratch_path("bars.svg");
        mha__drawing d = {.width = MHA__BARS_WIDTH, .height = mha__bars_height(n), .font = 12, .description = ""};
        assert_ok(mha__drawing_open(&d, &allocator, path, &error), error);
        const mha__chart chart = {"a <title>", "the <limit>", bars, n};
        mha__draw_bars(&d.markup, &chart, 0);
        assert_ok(mha__drawing_close(&d), error);
        char *text = text_of_file(path), *at = text;
        long x, y, length;
        for (size_t i = 0; i < n; i++) {
            at = strstr(at, "<rect class=\"bar\"") + 1;
            assert_int_equal(sscanf(at, "rect class=\"bar\" x=\"%ld\" y=\"%ld\" width=\"%ld\"", &x, &y, &length), 3);
            assert_true(fabs((double)length - WIDTH * bars[i].value / most) <= 0.5); /* whole pixels */
            long limit, place_of_limit;
            at = strstr(at, "<rect class=\"limit\"");
            assert_int_equal(sscanf(at, "<rect class=\"limit\" x=\"%ld\" y=\"%ld\"", &limit, &place_of_limit), 2);
            assert_true(fabs((double)(limit + 1 - x) - WIDTH * bars[i].limit / most) <= 0.5);
            assert_true(place_of_limit < y && y < place_of_limit + 18);
        }
        check_text_is_free(text);
        long place = 0, last = -1;
        for (const char *tick = text; (tick = strstr(tick, "<text class=\"tick\"")); tick++)
            assert_int_equal(sscanf(tick, "<text class=\"tick\" x=\"%ld\" %*[^>]>%ld", &place, &last), 2);
        assert_int_equal(last, 100);
        assert_true(fabs((double)(place - x) - WIDTH * 100 / most) <= 0.5);
        assert_non_null(strstr(text, ">| the &lt;limit&gt;</text>"));
        assert_non_null(strstr(text, ">&lt;two&gt;</text>"));
        assert_non_null(strstr(text, ">7.25 &amp;</text>"));
        assert_non_null(strstr(text, ">a &lt;title&gt;</text>"));
        free(text);
    }
}

/* By hand: elements of tensors, times their bytes. */
static void the_least_bytes_of_a_shape_are_its_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *shape;
        double layer, core, proj;
    } each[] = {
        /* (2, 3, 8) in and out, four (8, 8); Q, K, V and heads of (2, 3, 8) */
        {"2,3,3,8,2", 4 * (48 + 48 + 256), 4 * 4 * 48, 4 * (48 + 48 + 256 + 4 * 48)},
        /* one key/value head of 4: W_K and W_V (8, 4) */
        {"2,3,3,8,2,kv=1", 4 * (48 + 48 + 192), 4 * (2 * 48 + 2 * 24), 4 * (48 + 48 + 192 + 2 * 48 + 2 * 24)},
        /* keys of another input, (2, 5, 8) */
        {"2,3,5,8,2", 4 * (48 + 48 + 80 + 256), 4 * (2 * 48 + 2 * 80), 4 * (48 + 48 + 80 + 256 + 2 * 48 + 2 * 80)},
        /* one row of 8 in and out, a cache of two (7, 8); one new key */
        {"1,1,7,8,2", 4 * (8 + 8 + 256 + 112), 4 * (16 + 112), 4 * (8 + 8 + 256 + 4 * 8)},
        /* a mask of (6, 6) bytes */
        {"1,6,6,8,2,docs=2", 4 * (48 + 48 + 256) + 36, 4 * 4 * 48 + 36, 4 * (48 + 48 + 256 + 4 * 48)},
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        bench_shape shape = {0};
        assert_null(bench_shape_fault(each[i].shape, &shape));
        shape.weights = shape.cache = MHA_F32;
        assert_true(bench_least_bytes(&shape, BENCH_LAYER) == each[i].layer);
        assert_true(bench_least_bytes(&shape, BENCH_CORE) == each[i].core);
        assert_true(bench_least_bytes(&shape, BENCH_PROJ) == each[i].proj);
    }
    bench_shape shape = {0};
    assert_null(bench_shape_fault("1,1,7,8,2", &shape));
    shape.weights = MHA_BF16, shape.cache = MHA_F16;
    assert_true(bench_least_bytes(&shape, BENCH_LAYER) == 4 * (8 + 8) + 2 * (256 + 112));
}

/* A page of a drawing forbids all requests, says where it comes from, and is the drawing otherwise. */
static void a_page_holds_the_drawing(void **state)
{
    (void)state;
    static const mha__input inputs[] = {{"a<b>.npy", "00ff", NULL}, {"-", NULL, "a stream"}};
    static const mha__origin origin = {"mha bench '<x>'", 2, inputs};
    static const char lines[] = "Written by: mha bench &#39;&lt;x&gt;&#39;\nSHA-256 00ff: a&lt;b&gt;.npy\n"
                                "Input -: no SHA-256, a stream\n";
    mha_error error;
    for (int is_page = 0; is_page < 2; is_page++) {
        const char *path = scratch_path(is_page ? "drawing.html" : "drawing.svg");
        mha__drawing d = {
            .width = 10, .height = 10, .font = 12, .title = "</title>", .description = "", .origin = &origin};
        assert_ok(mha__drawing_open(&d, &allocator, path, &error), error);
        assert_ok(mha__drawing_close(&d), error);
        char *text = text_of_file(path);
        assert_non_null(strstr(text, lines));
        assert_int_equal(strstr(text, "<metadata>\nWritten by") != NULL, !is_page);
        assert_int_equal(strstr(text, "default-src 'none'") != NULL, is_page);
        assert_memory_equal(text, is_page ? "<!DOCTYPE html>" : "<svg", is_page ? 15 : 4);
        assert_non_null(strstr(text, "<title>&lt;/title&gt;</title>"));
        free(text);
    }
    mha__drawing d = {.width = 10, .height = 10, .font = 12, .description = ""};
    assert_ok(mha__drawing_open(&d, &allocator, "/dev/full", &error), error);
    assert_refused(mha__drawing_close(&d), MHA_IO, error, "/dev/full");
}

int main(void)
{
    allocator = mha__allocator_default();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bars_are_as_long_as_their_numbers),
        cmocka_unit_test(the_least_bytes_of_a_shape_are_its_tensors),
        cmocka_unit_test(a_page_holds_the_drawing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
