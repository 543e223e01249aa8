/* Writes the first and the last lines of an SVG drawing, and the page around it where it stands in one. */
#include "picture/draw/drawing.h"

#include <string.h>

#include "mha/system.h"
#include "picture/draw/figure.h"

char *mha__input_line(char line[MHA__INPUT_LINE], const mha__input *input)
{
    if (input->sha256)
        mha__text_print(line, MHA__INPUT_LINE, "SHA-256 %s: %s", input->sha256, input->path);
    else
        mha__text_print(line, MHA__INPUT_LINE, "Input %s: no SHA-256, %s", input->path, input->unknown);
    return line;
}

/* The command and the inputs, a line for each. */
static void write_origin(mha__markup *m, const mha__origin *origin)
{
    if (origin->command) {
        mha__markup_print(m, "Written by: ");
        mha__markup_text(m, origin->command);
        mha__markup_print(m, "\n");
    }
    for (size_t i = 0; i < origin->input_count; i++) {
        char line[MHA__INPUT_LINE];
        mha__markup_text(m, mha__input_line(line, &origin->inputs[i]));
        mha__markup_print(m, "\n");
    }
}

static void begin_page(mha__drawing *d)
{
    mha__markup_print(&d->markup, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                                  "<meta http-equiv=\"Content-Security-Policy\" "
                                  "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
                                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
    mha__markup_text(&d->markup, d->title ? d->title : "");
    mha__markup_print(&d->markup, "</title>\n<style>body{margin:16px;background:#fff;color:#111;font:13px sans-serif}"
                                  "svg{max-width:100%%;height:auto}pre{white-space:pre-wrap;overflow-wrap:anywhere}"
                                  "div{overflow-x:auto}%s</style>\n</head>\n<body>\n<div>",
                      d->dark ? "svg{width:44em}@media (prefers-color-scheme:dark){body{background:#111;color:#ddd}}"
                              : "svg{min-width:54em}"); /* its text stays legible on a phone, which scrolls it */
}

mha_status mha__drawing_open(mha__drawing *d, const mha_allocator *allocator, const char *path, mha_error *error)
{
    const char *dot = strrchr(path, '.');
    mha__markup *m = &d->markup;
    mha__colour palette[MHA__PALETTE];
    mha__palette(palette);
    const mha__colour ground = palette[MHA__HIDDEN_GROUND], line = palette[MHA__HIDDEN_LINE];
    TRY(mha__markup_open(m, allocator, path, error));
    d->is_page = dot && strcmp(dot, ".html") == 0;
    if (d->is_page)
        begin_page(d);
    mha__markup_print(m,
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%zu\" height=\"%zu\" "
                      "viewBox=\"0 0 %zu %zu\" font-family=\"sans-serif\" font-size=\"%zu\" role=\"img\">\n<title>",
                      d->width, d->height, d->width, d->height, d->font);
    mha__markup_text(m, d->title && *d->title ? d->title : "attention");
    mha__markup_print(m, "</title>\n<desc>%s</desc>\n", d->description);
    if (d->origin && !d->is_page && (d->origin->command || d->origin->input_count > 0)) {
        mha__markup_print(m, "<metadata>\n");
        write_origin(m, d->origin);
        mha__markup_print(m, "</metadata>\n");
    }
    if (d->dark)
        mha__markup_print(m, "<style>@media (prefers-color-scheme:dark){.paper{fill:#111}text{fill:#ddd}"
                             ".bar{fill:#56b4e9}path.tick{stroke:#444}}</style>\n");
    mha__markup_print(m,
                      "<defs><pattern id=\"hidden\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
                      "<path fill=\"#%02x%02x%02x\" d=\"M0 0h6v6h-6z\"/>"
                      "<path stroke=\"#%02x%02x%02x\" d=\"M-1 1l2-2M0 6l6-6M5 7l2-2\"/></pattern></defs>\n"
                      "<rect%s width=\"%zu\" height=\"%zu\" fill=\"#fff\"/>\n",
                      ground.red, ground.green, ground.blue, line.red, line.green, line.blue,
                      d->dark ? " class=\"paper\"" : "", d->width, d->height);
    return MHA_OK;
}

mha_status mha__drawing_close(mha__drawing *d)
{
    mha__markup *m = &d->markup;
    mha__markup_print(m, "</svg>\n");
    if (d->is_page) {
        mha__markup_print(m, "</div>\n<pre>");
        if (d->origin)
            write_origin(m, d->origin);
        mha__markup_print(m, "mha %s. Instruction set: %s.</pre>\n</body>\n</html>\n", mha_version(), mha_isa());
    }
    return mha__markup_close(m);
}
