/* The one list of bugs, in the order of the data flow: it drives the search, the help text and the tests. */
#include "verify/bugs/needs.h"

static const mha__bug_list *const lists[] = {&mha__bugs_of_rows, &mha__bugs_of_scores, &mha__bugs_of_output};

/* NULL past the end. */
static const mha__bug_entry *find(size_t index)
{
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (index < lists[i]->count)
            return &lists[i]->entries[index];
        index -= lists[i]->count;
    }
    return NULL;
}

size_t mha_bug_count(void)
{
    size_t count = 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        count += lists[i]->count;
    return count;
}

const mha_bug *mha_bug_at(size_t index)
{
    const mha__bug_entry *e = find(index);
    return e ? &e->shown : NULL;
}

const mha__bug_entry *mha__solved_entry_at(size_t index)
{
    const mha__bug_entry *e = find(index);
    return e && e->how != SOLVE_NOTHING ? e : NULL;
}

bool mha__bug_apply(const mha_case *c, size_t index, const double *numbers, mha__program *program)
{
    const mha__bug_entry *e = find(index);
    if (!e || (!numbers && e->how != SOLVE_NOTHING) || !e->apply(c, program, numbers))
        return false;
    bool reads = false; /* a table or another operand: these have the extents of the case, not of another call */
    for (size_t i = 0; i < program->n; i++)
        reads |= program->m[i].table || program->m[i].op == OP_TAKE || program->m[i].site == AT_PROJ;
    return program->n < MHA__MOST_MUTATIONS /* else mha__put may have lost one */ &&
           !(reads && mha__has(program, AT_CALL, OP_FN));
}

bool mha__bugs_apply(const mha_case *c, int a, int b, mha__program *program)
{
    *program = mha__program_of(c);
    return (a < 0 || mha__bug_apply(c, (size_t)a, NULL, program)) &&
           (b < 0 || mha__bug_apply(c, (size_t)b, NULL, program));
}

bool mha__bugs_by_head(const mha_case *whole, const mha_case *slice, int a, int b)
{
    mha__program all, own;
    return mha__bugs_apply(whole, a, b, &all) && mha__bugs_apply(slice, a, b, &own) && mha__program_by_head(&all) &&
           mha__programs_agree(&all, &own);
}

bool mha__bug_is_paired(size_t index)
{
    const mha__bug_entry *e = find(index);
    return e && e->is_paired;
}
