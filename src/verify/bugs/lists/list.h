/* Builds the list LIST of a region from its file, LIST_FILE, in two passes: each row becomes a function, then an entry.
 * A row is a bug: its name, a line of help, its condition on the case c, its change of the program k.
 * s and v are settings of the case; visible, softmax, rope and norm those of the program.
 *   PAIRED(name, help, when, change)                   the search tries it singly and in pairs
 *   ALONE(name, help, when, change)                    singly: pairs of rare bugs explain little and cost much
 *   LISTED(name, help, when, change, numbers)          has a number x from a list: *x is number `index`, false past it
 *   BY_BATCH(name, help, when, change, numbers)        has such a number for each batch row
 *   SOLVED(name, help, when, change, how)              has numbers x, from a solver
 *   FITTED(name, help, when, change, how, low, high)   has numbers x, which a search fits between two bounds
 * The functions of the row that ends on line 57 are bug_57 and numbers_57. */

#define JOINED(a, b) a##b
#define NUMBERED(name, line) JOINED(name, line)
#define APPLY NUMBERED(bug_, __LINE__)
#define LIST_OF_NUMBERS NUMBERED(numbers_, __LINE__)
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

#define WITH_NUMBERS(when, change, numbers)                                                                            \
    DEFINED(when, change)                                                                                              \
    static bool LIST_OF_NUMBERS(const mha_case *c, size_t index, double *x)                                            \
    {                                                                                                                  \
        (void)c;                                                                                                       \
        return numbers;                                                                                                \
    }

/* clang-format off */
#define PAIRED(name, help, when, change) ROW(name, help, true, SOLVE_NOTHING, 0, 0, when, change)
#define ALONE(name, help, when, change) FITTED(name, help, when, change, SOLVE_NOTHING, 0, 0)
#define LISTED(name, help, when, change, numbers) LISTED_ROW(name, help, SOLVE_LISTED, when, change, numbers)
#define BY_BATCH(name, help, when, change, numbers) LISTED_ROW(name, help, SOLVE_BY_BATCH, when, change, numbers)
#define SOLVED(name, help, when, change, how) FITTED(name, help, when, change, SOLVE_##how, 0, 0)
#define FITTED(name, help, when, change, how, low, high) ROW(name, help, false, how, low, high, when, change)

#define ROW(name, help, is_paired, how, low, high, when, change) DEFINED(when, change)
#define LISTED_ROW(name, help, how, when, change, numbers) WITH_NUMBERS(when, change, numbers)
#include LIST_FILE
#undef ROW
#undef LISTED_ROW

#define ROW(name, help, is_paired, how, low, high, when, change) {{name, help}, APPLY, is_paired, how, low, high, NULL},
#define LISTED_ROW(name, help, how, when, change, numbers) {{name, help}, APPLY, false, how, 0, 0, LIST_OF_NUMBERS},
/* clang-format on */
static const mha__bug_entry entries[] = {
#include LIST_FILE
};

const mha__bug_list LIST = {entries, sizeof entries / sizeof *entries};
