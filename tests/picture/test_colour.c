/* The scales of colours: lightness that only falls, colours that differ, for people who confuse colours, too. */
#include <math.h>
#include <string.h>

#include "picture/colour.h"
#include "support/unit.h"

static double linear(uint8_t encoded)
{
    const double x = encoded / 255.0;
    return x <= 0.04045 ? x / 12.92 : pow((x + 0.055) / 1.055, 2.4);
}

/* CIE L* under D65, 0 to 100. */
static double lightness(mha__colour c)
{
    const double Y = 0.2126 * linear(c.red) + 0.7152 * linear(c.green) + 0.0722 * linear(c.blue);
    return Y > 216 / 24389.0 ? 116 * cbrt(Y) - 16 : Y * 24389 / 27;
}

/* The colours that a person without green-sensitive cones sees (Vienot, Brettel, Mollon 1999, for deuteranopes):
 * red and green become one number. */
static void seen_without_green(mha__colour c, double seen[2])
{
    seen[0] = 0.29275 * linear(c.red) + 0.70725 * linear(c.green);
    seen[1] = -0.02234 * linear(c.red) + 0.02234 * linear(c.green) + linear(c.blue);
}

static void more_is_darker_and_no_two_colours_are_alike(void **state)
{
    (void)state;
    mha__colour scale[MHA__COLOURS];
    mha__colours_sequential(scale);
    for (int i = 1; i < MHA__COLOURS; i++)
        assert_true(lightness(scale[i]) < lightness(scale[i - 1]));
    assert_true(lightness(scale[0]) > 94);
    assert_true(lightness(scale[MHA__COLOURS - 1]) < 16);
    /* Steps look about equal: an eighth of the scale is an eighth of its lightness, give or take a third of it. */
    const double eighth = (lightness(scale[0]) - lightness(scale[MHA__COLOURS - 1])) / 8;
    for (int i = 0; i < 7; i++)
        assert_true(fabs(lightness(scale[32 * i]) - lightness(scale[32 * (i + 1)]) - eighth) < eighth / 3);
}

static void signs_differ_in_colour_and_sizes_in_lightness(void **state)
{
    (void)state;
    mha__colour scale[MHA__COLOURS];
    mha__colours_diverging(scale);
    assert_true(lightness(scale[127]) > 94);
    for (int i = 0; i < 127; i++) {
        const mha__colour low = scale[i], high = scale[255 - i];
        assert_true(lightness(low) < lightness(scale[i + 1]));
        assert_true(lightness(high) < lightness(scale[254 - i]));
        assert_true(fabs(lightness(low) - lightness(high)) < 4);
        assert_true(low.blue > low.red);
        assert_true(high.red > high.blue);
    }
    /* Half way out the signs are far apart for a deuteranope: several times what the eye needs. */
    double low[2], high[2];
    seen_without_green(scale[64], low);
    seen_without_green(scale[191], high);
    assert_true(low[1] - high[1] > 0.3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_is_darker_and_no_two_colours_are_alike),
        cmocka_unit_test(signs_differ_in_colour_and_sizes_in_lightness),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
