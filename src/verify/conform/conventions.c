/* The conventions: what kernels understand differently, and what each choice makes of a test case. */
#include <math.h>
#include <string.h>

#include "verify/conform/conform.h"

/* The effect of a convention on a test case q: whether it matters, and the changes of a choice. */
/* clang-format off */
#define MATTERS(name, is) \
    static bool name##_matters(const mha_test_case *q) { const mha_semantics *s = &q->call.semantics; return is; }
#define READ(name, change) \
    static void name##_read(mha_test_case *q, size_t choice) { mha_semantics *s = &q->call.semantics; change; }

MATTERS(empty, strstr(q->row.settings, "=empty") ||
        (s->visible.causal && s->place.has_offset && s->place.offset < 0))
MATTERS(alignment, (s->visible.causal || s->visible.has_window_left || s->visible.has_window_right) &&
        q->row.T_q != q->row.T_k && q->row.P == 0 && q->page_size == 0 && !s->place.has_offset)
MATTERS(window, s->visible.window_left > 0)
MATTERS(mask, s->visible.mask.kind == MHA_MASK_KEEPS)
MATTERS(hidden, s && isnan(q->regime->hidden))
MATTERS(softcap, s->softmax.softcap > 0 && s->visible.mask.kind == MHA_MASK_ADDITIVE)
MATTERS(lse, s && q->lse)

static void add_bug(mha_test_case *q, bool is_chosen, const char *bug)
{
    if (is_chosen)
        q->bugs[q->bug_count++] = bug;
}

READ(alignment, s->place.has_offset = choice == 1;
     s->place.offset = choice == 1 ? (int64_t)q->row.T_k - (int64_t)q->row.T_q : 0)
READ(empty, s->softmax.empty_rows = choice == 1 ? MHA_EMPTY_NAN : s->softmax.empty_rows;
     add_bug(q, choice == 2, "fill-lowest"))
READ(window, s->visible.window_left -= (int64_t)choice)
READ(mask, s->visible.mask.kind = choice == 1 ? MHA_MASK_HIDES : MHA_MASK_KEEPS)
READ(hidden, s->softmax.hidden_values = choice == 1 ? MHA_HIDDEN_PROPAGATE : MHA_HIDDEN_IGNORE)
READ(softcap, (void)s; add_bug(q, choice == 1, "softcap-after-mask"))
READ(lse, (void)s; add_bug(q, choice == 1, "lse-base-2");
     add_bug(q, choice == 2 && q->weights[MHA_SINKS].data, "lse-without-sinks"))

typedef struct convention {
    mha_conform_convention row;
    bool (*matters)(const mha_test_case *q);
    void (*read)(mha_test_case *q, size_t choice);
} convention;

#define CONVENTION(name, what, count, ...) \
    {{#name, what, count, {__VA_ARGS__}, "probe-" #name}, name##_matters, name##_read}

/* Alignment comes before empty: it decides which queries see no key. */
static const convention conventions[MHA_CONFORM_CONVENTIONS] = {
    CONVENTION(alignment, "causal and windows of numbers of queries and keys that differ", 2,
               {"top-left", "query i is at position i"},
               {"bottom-right", "the last query is at the last key's position"}),
    CONVENTION(empty, "what a query gives that sees no key", 3, {"zero", "zeros"}, {"nan", "NaN"},
               {"mean", "the mean of all values"}),
    CONVENTION(window, "what a window of W to the left keeps", 2, {"w-plus-1", "W keys and the query's own"},
               {"w", "W keys, the query's own among them"}),
    CONVENTION(mask, "what true says in a boolean mask", 2, {"keeps", "the key takes part"},
               {"hides", "the key is hidden"}),
    CONVENTION(hidden, "what NaN does in the value of a hidden key", 2, {"ignored", "nothing"},
               {"propagates", "0 times NaN reaches the output"}),
    CONVENTION(softcap, "where the softcap stands beside an additive mask", 2,
               {"before-mask", "the mask is added to capped scores"},
               {"after-mask", "scores with the mask are capped"}),
    CONVENTION(lse, "what the log-sum-exp is", 3, {"natural", "to base e, sinks counted"}, {"base-2", "to base 2"},
               {"without-sinks", "to base e, of the keys alone"}),
};
/* clang-format on */

const mha_conform_convention *mha_conform_convention_at(size_t index)
{
    return index < MHA_CONFORM_CONVENTIONS ? &conventions[index].row : NULL;
}

mha_status mha__conform_read(mha_test_case *q, mha_error *error)
{
    for (size_t i = 0; i < MHA_CONFORM_CONVENTIONS; i++) {
        const size_t choice = q->choices.of[i];
        if (choice >= conventions[i].row.count)
            return mha__fail(error, MHA_INVALID, conventions[i].row.name, "expected a choice below %zu, found %zu",
                             conventions[i].row.count, choice);
        q->differs[i] = conventions[i].matters(q);
        if (q->differs[i])
            conventions[i].read(q, choice);
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- choices by name */

/* The names of the choices of a convention, or of all conventions, with commas between. */
static char *names(const mha_conform_convention *d, char *text, size_t size)
{
    text[0] = 0;
    for (size_t i = 0; i < (d ? d->count : MHA_CONFORM_CONVENTIONS); i++) {
        const size_t used = strlen(text);
        mha__text_print(text + used, size - used, "%s%s", i ? ", " : "",
                        d ? d->choices[i].name : conventions[i].row.name);
    }
    return text;
}

static mha_status put(const char *name, const char *value, mha_conform_choices *choices, mha_error *error)
{
    char text[200];
    for (size_t i = 0; i < MHA_CONFORM_CONVENTIONS; i++) {
        const mha_conform_convention *d = &conventions[i].row;
        if (strcmp(d->name, name) != 0)
            continue;
        for (size_t r = 0; r < d->count; r++)
            if (strcmp(d->choices[r].name, value) == 0) {
                choices->of[i] = r;
                return MHA_OK;
            }
        return mha__fail(error, MHA_INVALID, d->name, "expected one of %s, found \"%s\"", names(d, text, sizeof text),
                         value);
    }
    return mha__fail(error, MHA_INVALID, "convention", "expected one of %s, with = and a choice, found \"%s\"",
                     names(NULL, text, sizeof text), name);
}

mha_status mha_conform_choices_put(const char *text, mha_conform_choices *choices, mha_error *error)
{
    mha_conform_choices found = *choices;
    while (*text) {
        char name[48], value[48];
        const size_t length = strcspn(text, ","), middle = strcspn(text, ",=");
        mha__text_print(name, sizeof name, "%.*s", (int)middle, text);
        mha__text_print(value, sizeof value, "%.*s", middle < length ? (int)(length - middle - 1) : 0,
                        text + (middle < length ? middle + 1 : middle));
        TRY(put(name, value, &found, error));
        text += length + (text[length] == ',');
    }
    *choices = found;
    return MHA_OK;
}
