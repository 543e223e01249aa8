/* Scales of colours: straight lines in a space where equal distances look equal, turned into sRGB. */
#include "picture/colour.h"

#include <math.h>

/* Oklab (B. Ottosson, 2020): lightness from 0 to 1, green to red, blue to yellow. Lines that run between blue and
 * yellow or brown look alike to people who confuse red and green. */
typedef struct oklab {
    double L, a, b;
} oklab;

static const oklab pale_yellow = {0.98, -0.012, 0.04}, dark_blue = {0.20, 0.01, -0.10};
static const oklab white = {0.965, 0, 0}, blue = {0.38, -0.01, -0.15}, brown = {0.38, 0.06, 0.075};

static uint8_t encode(double linear)
{
    const double x = linear < 0 ? 0 : linear > 1 ? 1 : linear;
    return (uint8_t)lround(255 * (x <= 0.0031308 ? 12.92 * x : 1.055 * pow(x, 1 / 2.4) - 0.055));
}

static mha__colour to_srgb(oklab c)
{
    /* Responses of the three kinds of cones. */
    const double l = pow(c.L + 0.3963377774 * c.a + 0.2158037573 * c.b, 3);
    const double m = pow(c.L - 0.1055613458 * c.a - 0.0638541728 * c.b, 3);
    const double s = pow(c.L - 0.0894841775 * c.a - 1.2914855480 * c.b, 3);
    return (mha__colour){.red = encode(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
                         .green = encode(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
                         .blue = encode(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s)};
}

/* The colour at t of the way from p to q. */
static mha__colour between(oklab p, oklab q, double t)
{
    return to_srgb((oklab){p.L + t * (q.L - p.L), p.a + t * (q.a - p.a), p.b + t * (q.b - p.b)});
}

void mha__colours_sequential(mha__colour scale[MHA__COLOURS])
{
    for (int i = 0; i < MHA__COLOURS; i++)
        scale[i] = between(pale_yellow, dark_blue, i / (MHA__COLOURS - 1.0));
}

void mha__colours_diverging(mha__colour scale[MHA__COLOURS])
{
    for (int i = 0; i < MHA__COLOURS; i++) {
        const double t = 2 * i / (MHA__COLOURS - 1.0) - 1;
        scale[i] = between(white, t < 0 ? blue : brown, fabs(t));
    }
}
