/* --picture: writes a picture to a file whose ending says the form. */
#include "cli/pictures/pictures.h"

#include <string.h>

#include "cli/text/print.h"
#include "formats/files/atomic_file.h"
#include "picture/draw/draw.h"
#include "picture/page/page.h"

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

int picture_drawing_check(const arguments *args, option_code option)
{
    mha_error error = {0};
    const char *path = given(args, option) ? text_for(args, option) : "a.svg", *dot = strrchr(path, '.');
    if (!dot || (strcmp(dot, ".svg") != 0 && strcmp(dot, ".html") != 0))
        return refuse_option(option, "expected a name that ends in .svg or .html, found \"%s\"", path);
    return !given(args, option) || mha__output_check(path, &error) == MHA_OK ? EXIT_DONE
                                                                             : refuse_error("--picture", &error);
}

int picture_file_check(const arguments *args)
{
    mha_error error = {0};
    if (!given(args, OPT_PICTURE))
        return EXIT_DONE;
    const char *path = text_for(args, OPT_PICTURE);
    if (form_of(path) == N_FORMS) {
        char known[64] = "";
        for (size_t i = 0; i < N_FORMS; i++)
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", forms[i].ending);
        return refuse_option(OPT_PICTURE, "expected a name that ends in %s, found \"%s\"", known, path);
    }
    return mha__output_check(path, &error) == MHA_OK ? EXIT_DONE : refuse_error("--picture", &error);
}

int picture_file_write(mha__picture *picture, const arguments *args)
{
    mha_error error = {0};
    if (!given(args, OPT_PICTURE))
        return EXIT_DONE;
    const char *path = text_for(args, OPT_PICTURE);
    TRY(origin_of(args, &picture->origin));
    return forms[form_of(path)].write(picture, path, &error) == MHA_OK ? EXIT_DONE
                                                                       : refuse_error("--picture", &error);
}
