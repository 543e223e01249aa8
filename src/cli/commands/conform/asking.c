/* Which test cases mha conform asks, and how a kernel is said to understand them. */
#include "cli/commands/conform/asking.h"

mha_status asking_declare(asking *a, const char *text, mha_error *error)
{
    mha_conform_choices choices = a->choices;
    const mha_status status = mha_conform_choices_put(text, &choices, error);
    for (size_t d = 0; status == MHA_OK && d < MHA_CONFORM_CONVENTIONS; d++) {
        const char *begin = text_of("%s=", mha_conform_convention_at(d)->name);
        for (const char *t = text; *t && !a->declared[d]; t += strcspn(t, ",") + (t[strcspn(t, ",")] == ','))
            a->declared[d] = strncmp(t, begin, strlen(begin)) == 0;
    }
    if (status == MHA_OK)
        a->choices = choices;
    return status;
}

const char *asking_declared(const asking *a)
{
    const char *text = "";
    for (size_t d = 0; d < MHA_CONFORM_CONVENTIONS; d++)
        if (a->declared[d])
            text = text_more(text, "%s%s=%s", *text ? "," : "", mha_conform_convention_at(d)->name,
                             mha_conform_convention_at(d)->choices[a->choices.of[d]].name);
    return text;
}

bool asks(const asking *a, const mha_conform_row *row, bool files)
{
    if (row->level > a->level || (a->only && !strstr(row->name, a->only)) ||
        (files && (mha__text_among(row->has, "strides") || mha__text_among(row->has, "pages"))))
        return false;
    return !a->has || mha_conform_asks(a->has, row);
}

/* Whether a text of --only is in a name of the test cases that are asked. */
static int check_only(const asking *a, bool files)
{
    mha_conform_row row;
    for (size_t i = 0; mha_conform_at(i, &row); i++)
        if (!a->only || asks(a, &row, files))
            return EXIT_DONE;
    return refuse_option(OPT_ASKED_ONLY,
                         "expected a part of the name of a test case of level %s, with what the kernel "
                         "has, found \"%s\"",
                         mha_conform_level_name(a->level), a->only);
}

int asking_read(const arguments *args, asking *a)
{
    static const mha_dtype types[] = {MHA_F32, MHA_F16, MHA_BF16}; /* in the order of the option's words */
    mha_error error = {0};
    *a = (asking){.level = (mha_conform_level)args->option[OPT_LEVEL].choice,
                  .dtype = types[args->option[OPT_ASKED_DTYPE].choice],
                  .has = text_for(args, OPT_HAS),
                  .only = text_for(args, OPT_ASKED_ONLY)};
    if (a->has && mha_conform_has(a->has, a->level, &error) != MHA_OK)
        return refuse_option(OPT_HAS, "%s", error.message);
    if (given(args, OPT_CONVENTION) && asking_declare(a, text_for(args, OPT_CONVENTION), &error) != MHA_OK)
        return refuse_error("--convention", &error);
    return check_only(a, given(args, OPT_WRITE));
}
