/* Treemaps: the rectangles are read back; they fill the map without overlap, each as large as its share. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/random.h"
#include "picture/draw/drawing.h"
#include "support/scratch.h"
#include "support/unit.h"

enum { WIDTH = 960, HEIGHT = 540, LEFT = 14, TOP = 48 };

static void draw(mha__area *areas, size_t count, bytes *text)
{
    mha_error error;
    const mha_allocator allocator = mha__allocator_default();
    const char *path = scratch_path("areas.svg");
    assert_ok(mha__draw_areas(areas, count, "<b>all</b>", NULL, path, &allocator, &error), error);
    size_t size;
    unsigned char *data = scratch_read(path, &size);
    *text = (bytes){.data = data, .count = size, .room = size};
    bytes_zeros(text, 1);
}

static const mha__area *named(const mha__area *areas, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(areas[i].name, name, strlen(areas[i].name)) == 0 && strchr(",:", name[strlen(areas[i].name)]))
            return &areas[i];
    fail_msg("an area of another name: %.40s", name);
    return NULL;
}

/* Areas of sizes that differ by up to `decades`, in `groups` groups. */
static void check_map(size_t count, size_t groups, double decades, uint64_t seed)
{
    static const char *const group_names[] = {"attention", "ffn", "", "<i>", "norm"};
    static unsigned char painted[HEIGHT][WIDTH];
    mha__area *areas = calloc(count, sizeof *areas);
    char(*names)[40] = calloc(count, sizeof *names);
    double all = 0;
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "tensor%zu.weight", i);
        const double size = pow(10, decades * mha__random_unit(seed, 0, i));
        areas[i] = (mha__area){group_names[i % groups], names[i], (size_t)(1000 * size), 1 + i % 2};
        all += (double)areas[i].elements;
    }
    bytes text;
    draw(areas, count, &text);
    memset(painted, 0, sizeof painted);
    for (const char *at = (char *)text.data; (at = strstr(at, "<g><title>")); at++) {
        const mha__area *area = named(areas, count, at + 10);
        long x, y, width, height;
        assert_int_equal(sscanf(strstr(at, "<rect"), "<rect x=\"%ld\" y=\"%ld\" width=\"%ld\" height=\"%ld\"", &x, &y,
                                &width, &height),
                         4);
        /* Each edge is rounded to a pixel: the area moves by half a pixel along each of its sides. */
        const double exact = (double)area->elements / all * WIDTH * HEIGHT;
        assert_true(fabs((double)(width * height) - exact) <= (double)(width + height) + 1);
        for (long r = y - TOP; r < y - TOP + height; r++)
            for (long c = x - LEFT; c < x - LEFT + width; c++) {
                assert_true(r >= 0 && r < HEIGHT && c >= 0 && c < WIDTH);
                painted[r][c]++;
            }
    }
    for (size_t r = 0; r < HEIGHT; r++)
        for (size_t c = 0; c < WIDTH; c++)
            assert_int_equal(painted[r][c], 1);
    assert_null(strstr((char *)text.data, "<b>"));
    assert_null(strstr((char *)text.data, "<i>"));
    bytes_free(&text);
    free(names);
    free(areas);
}

static void areas_fill_the_map_by_their_shares(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 2, 3, 7, 40, 300};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (size_t groups = 1; groups <= 5; groups += 2)
            for (int decades = 0; decades <= 4; decades += 2)
                check_map(counts[i], groups, decades, 7 * i + groups);
}

static void many_groups_share_the_last_colour_and_nothing_is_refused(void **state)
{
    (void)state;
    enum { N = 40 };
    mha__area areas[N + 1] = {{"", "", 0, 1}};
    char names[N][8];
    for (size_t i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "g%zu", i);
        areas[i + 1] = (mha__area){names[i], names[i], 1, 1};
    }
    bytes text;
    draw(areas, N + 1, &text);
    assert_non_null(strstr((char *)text.data, ">others 25 (62.5 %)</text>"));
    assert_non_null(strstr((char *)text.data, ": 40 parameters</text>"));
    bytes_free(&text);
    mha_error error;
    const mha_allocator allocator = mha__allocator_default();
    assert_refused(mha__draw_areas(areas, 0, "", NULL, scratch_path("none.svg"), &allocator, &error), MHA_INVALID,
                   error, "found none");
    assert_refused(mha__draw_areas(areas, N, "", NULL, "/dev/full", &allocator, &error), MHA_IO, error, "/dev/full");
}

/* An area that is too narrow for its name has it from top to bottom, from 10 pixels of width on. */
static void a_narrow_area_has_its_name_downwards(void **state)
{
    (void)state;
    mha__area areas[] = {{"embedding", "wte.weight", 38597376, 1}, {"embedding", "wpe.weight", 786432, 1},
                         {"embedding", "thin.weight", 9000, 1}};
    bytes text;
    draw(areas, 3, &text);
    const char *name = strstr((char *)text.data, ">wpe.weight</text>");
    assert_non_null(name);
    assert_memory_equal(name - 13, "font-size=\"9\">", 14);
    assert_null(strstr((char *)text.data, ">thin.weight</text>"));
    bytes_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(areas_fill_the_map_by_their_shares),
        cmocka_unit_test(a_narrow_area_has_its_name_downwards),
        cmocka_unit_test(many_groups_share_the_last_colour_and_nothing_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
