/* Writes the first lines of an SVG drawing of maps. */
#include "picture/draw/svg_head.h"

#include "picture/draw/shade.h"

void mha__svg_begin(mha__markup *m, size_t width, size_t height, const char *title, const char *description)
{
    mha__colour palette[MHA__PALETTE];
    mha__palette(palette);
    const mha__colour ground = palette[MHA__HIDDEN_GROUND], line = palette[MHA__HIDDEN_LINE];
    mha__markup_print(m,
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%zu\" height=\"%zu\" "
                      "viewBox=\"0 0 %zu %zu\" font-family=\"sans-serif\" font-size=\"11\" role=\"img\">\n<title>",
                      width, height, width, height);
    mha__markup_text(m, title && *title ? title : "attention");
    mha__markup_print(m,
                      "</title>\n<desc>%s</desc>\n"
                      "<defs><pattern id=\"hidden\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
                      "<path fill=\"#%02x%02x%02x\" d=\"M0 0h6v6h-6z\"/>"
                      "<path stroke=\"#%02x%02x%02x\" d=\"M-1 1l2-2M0 6l6-6M5 7l2-2\"/></pattern></defs>\n"
                      "<rect width=\"%zu\" height=\"%zu\" fill=\"#fff\"/>\n",
                      description, ground.red, ground.green, ground.blue, line.red, line.green, line.blue, width,
                      height);
}
