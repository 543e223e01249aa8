/* A diagnosis in words: its answer, and the limit that it reached. */
#include <stdarg.h>
#include <string.h>

#include "base/base.h"
#include "mha/case.h"

char *mha_diagnosis_limit_text(const mha_diagnosis *d, char *text, size_t size)
{
    const bool memory = d->limits.reached == MHA_LIMIT_MEMORY, slices = d->limits.slices > 0;
    const size_t tried = slices ? d->part.slices : d->tried,
                 all = tried + (slices ? d->limits.slices : d->limits.untried);
    mha__text_print(text, size, "not all %s: %zu of %zu (%s limit %g %s)",
                    slices ? "slices were compared" : "known bugs were tried", tried, all, memory ? "memory" : "time",
                    memory ? d->limits.gigabytes : d->limits.seconds, memory ? "GB" : "s");
    if (d->limits.reached == MHA_LIMIT_NONE && size > 0)
        *text = '\0';
    return text;
}

/* ---------------------------------------------------------------- the answer */

/* A text that grows until its buffer is full. */
typedef struct sentence {
    char *text;
    size_t size;
} sentence;

__attribute__((format(printf, 2, 3))) static void add(sentence *s, const char *format, ...)
{
    const size_t used = s->size > 0 ? strlen(s->text) : 0;
    va_list arguments;
    va_start(arguments, format);
    mha__text_vprint(s->text + used, s->size - used, format, arguments);
    va_end(arguments);
}

/* What a match agrees within: "float16". */
static const char *within(const mha_bug_match *e)
{
    static const char *const words[] = {[MHA_F64] = "float64", [MHA_TF32] = "tf32", [MHA_F16] = "float16",
                                        [MHA_BF16] = "bfloat16", [MHA_F8_E4M3] = "float8_e4m3fn",
                                        [MHA_F8_E5M2] = "float8_e5m2", [MHA_I8] = "int8"};
    const bool named = e->rounding < sizeof words / sizeof *words && words[e->rounding];
    return e->stated ? "the case's own tolerance's" : named ? words[e->rounding] : "float32";
}

static void add_names(sentence *s, const mha_bug_match *e)
{
    for (size_t i = 0; i < e->count; i++)
        add(s, "%s%s%s%s", i > 0 ? " + " : "", e->bugs[i], *e->found[i] ? " " : "", e->found[i]);
}

static const char *meaning_of(const char *bug)
{
    for (size_t i = 0; i < mha_bug_count(); i++)
        if (strcmp(mha_bug_at(i)->name, bug) == 0)
            return mha_bug_at(i)->help;
    return "a change that no known bug makes";
}

/* "causal-missing (no causal mask)" */
static void add_match(sentence *s, const mha_bug_match *e)
{
    if (e->heads > 0)
        add(s, "%zu heads (the call with so many heads)", e->heads);
    else if (e->count == 0)
        add(s, "the call without a bug");
    for (size_t i = 0; i < e->count && e->heads == 0; i++)
        add(s, "%s%s%s%s (%s)", i > 0 ? " and " : "", e->bugs[i], *e->found[i] ? " " : "", e->found[i],
            meaning_of(e->bugs[i]));
}

static void add_reproduced(sentence *s, const mha_diagnosis *d)
{
    add(s, "your numbers equal, within %s rounding, ", within(&d->matches[0]));
    add_match(s, &d->matches[0]);
    for (size_t i = 0; i < d->closest_count; i++) {
        add(s, "; ");
        add_names(s, &d->closest[i]);
        add(s, " leaves %.1f%% of what differs", 100 * d->closest[i].relative / d->baseline.relative);
    }
    for (size_t i = 1; i < d->match_count && i < 3; i++) {
        add(s, i == 1 ? "; this input cannot tell it from " : ", ");
        add_names(s, &d->matches[i]);
    }
    if (d->match_count > 3)
        add(s, " or %zu more", d->match_count - 3);
}

char *mha_diagnosis_text(const mha_diagnosis *d, char *text, size_t size)
{
    sentence s = {text, size};
    const mha_bug_match *first = d->match_count > 0 ? &d->matches[0] : NULL, *near = first ? first : d->closest;
    const bool exact = first && first->exact, meant = exact && first->count == 0 && first->heads == 0;
    if (size > 0)
        *text = '\0';
    if (meant && d->baseline.exact)
        add(&s, "your numbers are right, within %s rounding", within(first));
    else if (meant)
        add(&s, "your numbers are off by %.2g (rms), within %s rounding: a kernel of that precision, or quantised "
                "weights, may explain it; state the precision (dtype) to accept it",
            d->baseline.relative, within(first));
    else if (exact)
        add_reproduced(&s, d);
    else if (first || d->closest_count > 0) {
        add(&s, "no known bug gives your numbers; the closest is ");
        add_match(&s, near);
        add(&s, ", off by %.2g (rms)", near->relative);
    } else
        add(&s, "no known bug gives your numbers, or explains most of what differs");
    if (d->limits.reached != MHA_LIMIT_NONE) {
        char limit[MHA_DIAGNOSIS_TEXT];
        add(&s, "; %s", mha_diagnosis_limit_text(d, limit, sizeof limit));
    }
    return text;
}
