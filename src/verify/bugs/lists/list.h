/* Builds the list LIST of a region from its file, LIST_FILE, in two passes: each row becomes a function, then an entry.
 * A row is a bug: its name, a line of help, its condition on the case c, its change of the program k.
 * s and v are settings of the case; visible, softmax, rope and norm those of the program.
 *   PAIRED(name, help, when, change)                   the search tries it singly and in pairs
 *   ALONE(name, help, when, change)                    singly: pairs of rare bugs explain little and cost much
 *   LISTED(name, help, when, change, choice)           has a number x from a list
 *   CHOSEN(name, help, when, change, how, choice)      has numbers x, each from a list, or from a solver
 *   FITTED(name, help, when, change, how, low, high)   has numbers x, which a search fits between two bounds
 * The function of the row that ends on line 57 is bug_57. */

#define JOINED(a, b) a##b
#define NUMBERED(name, line) JOINED(name, line)
#define APPLY NUMBERED(bug_, __LINE__)
#define DEFINED(when, change)                                                                                          \
    static bool APPLY(const mha_case *c, mha__program *k, const double *x)                                             \
    {                                                                                                                  \
        const mha_semantics *const s = &c->semantics;                                                                  \
        const mha_visible *const v = &s->visible;                                                                      \
        mha_visible *const visible = &k->s.visible;                                                                    \
        mha_softmax *const softmax = &k->s.softmax;                                                                    \
        mha_rope *const rope = &k->s.qkv.rope;                                                                         \
        mha_norm_rule *const norm = &k->s.qkv.norm;                                                                    \
        (void)x, (void)s, (void)v, (void)visible, (void)softmax, (void)rope, (void)norm;                               \
        if (!(when))                                                                                                   \
            return false;                                                                                              \
        change;                                                                                                        \
        return true;                                                                                                   \
    }

#define PAIRED(name, help, when, change) DEFINED(when, change)
#define ALONE(name, help, when, change) DEFINED(when, change)
#define LISTED(name, help, when, change, choice) DEFINED(when, change)
#define CHOSEN(name, help, when, change, how, choice) DEFINED(when, change)
#define FITTED(name, help, when, change, how, low, high) DEFINED(when, change)
#include LIST_FILE
#undef PAIRED
#undef ALONE
#undef LISTED
#undef CHOSEN
#undef FITTED

/* clang-format off */
#define PAIRED(name, help, when, change) {{name, help}, APPLY, true, SOLVE_NOTHING, 0, 0, NULL},
#define ALONE(name, help, when, change) {{name, help}, APPLY, false, SOLVE_NOTHING, 0, 0, NULL},
#define LISTED(name, help, when, change, choice) {{name, help}, APPLY, false, SOLVE_LISTED, 0, 0, choice},
#define CHOSEN(name, help, when, change, how, choice) {{name, help}, APPLY, false, how, 0, 0, choice},
#define FITTED(name, help, when, change, how, low, high) {{name, help}, APPLY, false, how, low, high, NULL},
/* clang-format on */
static const mha__bug_entry entries[] = {
#include LIST_FILE
};

const mha__bug_list LIST = {entries, sizeof entries / sizeof *entries};
