/* Which questions mha conform asks, and how a kernel is said to understand them. */
#include "cli/commands/conform/asking.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int refuse_errno(const char *path, int why)
{
    refuse(path, "%s", strerror(why));
    return why == ENOENT || why == ENOTDIR || why == EACCES || why == EISDIR ? EXIT_REQUEST : EXIT_MACHINE;
}

/* The next word of a list with blanks or commas between; its length, 0 after the last. */
static size_t next_word(const char **list)
{
    *list += strspn(*list, " ,");
    return strcspn(*list, " ,");
}

static bool among(const char *list, const char *word, size_t length)
{
    for (size_t n; (n = next_word(&list)) > 0; list += n)
        if (n == length && strncmp(list, word, n) == 0)
            return true;
    return false;
}

static int check_has(const char *has)
{
    char *known = text_of("%s", "");
    int code = EXIT_DONE;
    for (size_t i = 0; mha_conform_need_at(i); i++)
        known = text_more(known, "%s%s", i ? " " : "", mha_conform_need_at(i)->name);
    for (size_t n; code == EXIT_DONE && (n = next_word(&has)) > 0; has += n)
        if (!among(known, has, n))
            code = refuse_option(OPT_HAS, "expected words of %s; found %.*s", known, (int)n, has);
    free(known);
    return code;
}

mha_status asking_declare(asking *a, const char *text, mha_error *error)
{
    mha_conform_readings readings = a->readings;
    const mha_status status = mha_conform_readings_put(text, &readings, error);
    for (size_t d = 0; status == MHA_OK && d < MHA_CONFORM_DIALECTS; d++) {
        char *begin = text_of("%s=", mha_conform_dialect_at(d)->name);
        for (const char *t = text; *t && !a->declared[d]; t += strcspn(t, ",") + (t[strcspn(t, ",")] == ','))
            a->declared[d] = strncmp(t, begin, strlen(begin)) == 0;
        free(begin);
    }
    if (status == MHA_OK)
        a->readings = readings;
    return status;
}

char *asking_declared(const asking *a)
{
    char *text = text_of("%s", "");
    for (size_t d = 0; d < MHA_CONFORM_DIALECTS; d++)
        if (a->declared[d])
            text = text_more(text, "%s%s=%s", *text ? "," : "", mha_conform_dialect_at(d)->name,
                             mha_conform_dialect_at(d)->readings[a->readings.of[d]].name);
    return text;
}

/* Whether files can hold what a question needs. */
static bool fits_files(const char *needs)
{
    static const char *const others[] = {"strides", "pages"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (among(needs, others[i], strlen(others[i])))
            return false;
    return true;
}

bool asks(const asking *a, const mha_conform_row *row, bool files)
{
    const char *needs = row->has;
    if (row->level > a->level || (files && !fits_files(needs)) || (a->only && !strstr(row->name, a->only)))
        return false;
    for (size_t n; a->has && (n = next_word(&needs)) > 0; needs += n)
        if (!among(a->has, needs, n))
            return false;
    return true;
}

/* Whether a text of --only is in a name of the questions that are asked. */
static int check_only(const asking *a, bool files)
{
    mha_conform_row row;
    for (size_t i = 0; mha_conform_at(i, &row); i++)
        if (!a->only || asks(a, &row, files))
            return EXIT_DONE;
    return refuse_option(OPT_ASKED_ONLY, "expected a part of the name of a question of level %s, with what the kernel "
                         "has, found \"%s\"", mha_conform_level_name(a->level), a->only);
}

int asking_read(const arguments *args, asking *a)
{
    static const mha_dtype types[] = {MHA_F32, MHA_F16, MHA_BF16}; /* in the order of the option's words */
    mha_error error = {0};
    *a = (asking){.level = (mha_conform_level)args->option[OPT_LEVEL].choice,
                  .dtype = types[args->option[OPT_ASKED_DTYPE].choice],
                  .has = text_for(args, OPT_HAS),
                  .only = text_for(args, OPT_ASKED_ONLY)};
    if (a->has && check_has(a->has) != EXIT_DONE)
        return EXIT_REQUEST;
    if (given(args, OPT_DIALECT) && asking_declare(a, text_for(args, OPT_DIALECT), &error) != MHA_OK)
        return refuse_error("--dialect", &error);
    return check_only(a, given(args, OPT_WRITE));
}
