/* The suite as a list of test cases: families unfolded by shape, and names for them. */
#include <stdio.h>
#include <string.h>

#include "verify/conform/conform.h"

const char *mha_conform_level_name(mha_conform_level level)
{
    static const char *const names[] = {"smoke", "full", "large"};
    return mha__name_at(names, sizeof names / sizeof *names, (size_t)level);
}

enum { AXES = 7 };

/* A shape of a family, with the numbers that go round. */
static mha__conform_shape shape_of(const mha__conform_family *f, size_t index)
{
    static const size_t keys[] = {129, 33, 63, 17, 127, 65, 31, 15}, widths[] = {64, 128, 80, 256, 96};
    const size_t at = (size_t)(f - mha__conform_families) + index;
    mha__conform_shape s = f->shapes[index];
    s.T_k = s.T_k ? s.T_k : keys[at % (sizeof keys / sizeof *keys)];
    s.T_q = s.T_q ? s.T_q : s.T_k;
    s.d_k = s.d_k ? s.d_k : widths[at % (sizeof widths / sizeof *widths)];
    s.d_v = s.d_v ? s.d_v : s.d_k;
    return s;
}

static void sizes_of(const mha__conform_family *f, size_t index, size_t sizes[AXES])
{
    const mha__conform_shape shape = shape_of(f, index), *s = &shape;
    const size_t all[AXES] = {s->B, s->h, s->h_kv, s->T_q, s->T_k, s->d_k, s->d_v};
    memcpy(sizes, all, sizeof all);
}

/* The family's name, and of the shape the sizes in which the family's shapes differ: "causal.q65-s65". */
static void name_row(const mha__conform_family *f, size_t index, mha_conform_row *row)
{
    static const char *const letters[AXES] = {"b", "h", "kv", "q", "s", "d", "dv"};
    size_t mine[AXES], other[AXES];
    sizes_of(f, index, mine);
    mha__text_print(row->name, sizeof row->name, "%s", f->name);
    bool first = true;
    for (int a = 0; a < AXES; a++) {
        bool differs = false;
        for (size_t i = 0; i < f->count; i++) {
            sizes_of(f, i, other);
            differs = differs || other[a] != mine[a];
        }
        const size_t used = strlen(row->name);
        if (differs)
            mha__text_print(row->name + used, sizeof row->name - used, "%s%s%zu", first ? "." : "-", letters[a],
                            mine[a]);
        first = first && !differs;
    }
}

bool mha_conform_at(size_t index, mha_conform_row *row)
{
    for (size_t f = 0; f < mha__conform_family_count; f++) {
        const mha__conform_family *family = &mha__conform_families[f];
        if (index >= family->count) {
            index -= family->count;
            continue;
        }
        const mha__conform_shape shape = shape_of(family, index), *s = &shape;
        *row = (mha_conform_row){.family = family->name,
                                 .regime = family->regime,
                                 .settings = family->settings,
                                 .level = s->level,
                                 .B = s->B,
                                 .h = s->h,
                                 .h_kv = s->h_kv,
                                 .T_q = s->T_q,
                                 .T_k = s->T_k,
                                 .P = mha__conform_past(family->settings),
                                 .d_k = s->d_k,
                                 .d_v = s->d_v};
        name_row(family, index, row);
        mha__conform_needs(row);
        return true;
    }
    return false;
}

mha_status mha__conform_begin(mha_test_case *q, size_t index, mha_error *error)
{
    char name[48], value[48];
    if (!mha_conform_at(index, &q->row))
        return mha__fail(error, MHA_NOT_FOUND, "case", "expected one of " MHA_CONFORM_VERSION ", found number %zu",
                         index);
    mha_conform_row *r = &q->row;
    r->T_q += r->T_q > 1 || r->T_q == r->T_k ? q->choices.longer : 0;
    r->T_k += q->choices.longer;
    q->seed = mha__text_hash(r->name);
    if (q->choices.seed)
        q->seed = mha__random_bits(q->choices.seed, q->seed, 0);
    q->regime = mha__conform_regime_of(q->row.regime);
    q->call.weights = q->weights;
    q->call.weight_count = MHA_WEIGHT_COUNT;
    for (const char *text = q->row.settings; mha__conform_token(&text, name, value);)
        if (!mha__conform_set(q, name, value))
            return mha__fail(error, MHA_NO_MEMORY, q->row.name, "no memory for %s", name);
    return MHA_OK;
}
