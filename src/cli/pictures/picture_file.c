/* --picture: writes a picture to a file whose ending says the form. */
#include "cli/pictures/pictures.h"

#include "formats/files/atomic_file.h"

static const struct {
    const char *ending;
    mha_status (*write)(const mha__picture *picture, const char *path, mha_error *error);
} forms[] = {{".html", mha__page_write}, {".svg", mha__draw_svg}, {".png", mha__draw_png}};
enum { N_FORMS = sizeof forms / sizeof *forms };

static size_t form_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    size_t i = 0;
    while (i < N_FORMS && (!dot || strcmp(dot, forms[i].ending) != 0))
        i++;
    return i;
}

int picture_file_check(const arguments *args, option_code option)
{
    const bool drawing = option != OPT_PICTURE;
    const char *path = text_for(args, option);
    mha_error error = {0};
    if (!given(args, option))
        return EXIT_DONE;
    const size_t form = form_of(path);
    if (form == N_FORMS || (drawing && forms[form].write == mha__draw_png))
        return refuse_option(option, "expected a name that ends in %s, found \"%s\"",
                             drawing ? ".svg or .html" : ".html, .svg, .png", path);
    return done_or_refuse(mha__output_check(path, &error), "--picture", &error);
}

int picture_file_write(mha__picture *picture, const char *note, const arguments *args)
{
    mha_error error = {0};
    if (!given(args, OPT_PICTURE))
        return EXIT_DONE;
    const char *path = text_for(args, OPT_PICTURE);
    if (note)
        TRY(done_or_refuse(mha__picture_note(picture, note, &error), "--picture", &error));
    TRY(origin_of(args, &picture->origin));
    return done_or_refuse(forms[form_of(path)].write(picture, path, &error), "--picture", &error);
}
