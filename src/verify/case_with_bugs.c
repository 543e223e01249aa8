/* Computes a case as given bugs would compute it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "compute/gemm.h"
#include "verify/places.h"
#include "verify/bugs/bugs.h"
#include "verify/engine/runner.h"

/* Takes the other heads of an output, which W_O mixes, from another program, and leaves one place for all heads. */
static bool take_heads(const mha__program *outside, mha__runner *bench, mha__places *p, double *heads)
{
    uint64_t inside = 0;
    for (size_t h = 0; h < p->n[PLACES_HEADS] && h < 64; h++)
        inside |= (uint64_t)p->among[PLACES_HEADS][h] << h;
    const bool all = mha__places_count(p, PLACES_HEADS) == p->n[PLACES_HEADS];
    if (!all && !mha__run(bench, outside, MHA_STAGE_HEADS, NULL, heads))
        return false;
    bench->inside = all ? 0 : inside, bench->outside = heads;
    p->n[PLACES_HEADS] = p->among[PLACES_HEADS][0] = 1;
    return true;
}

/* Puts the numbers of another program back where no place is meant, of the output or the heads. */
static bool leave_places(const mha__program *outside, mha__runner *bench, mha_stage stage, const mha__places *p,
                         const size_t shape[4], double *computed, double *said)
{
    const size_t T = p->n[PLACES_ROWS], width = shape[2], d = width / p->n[PLACES_HEADS];
    bench->inside = 0;
    if (!mha__run(bench, outside, stage, NULL, said))
        return false;
    for (size_t e = 0; e < p->n[PLACES_BATCH] * T * width; e++)
        if (!mha__places_have(p, e / width / T, e % width / d, e / width % T))
            computed[e] = said[e];
    return true;
}

/* Applies the change without a name that a diagnosis says, and reads its places. */
static mha_status apply_unnamed(const mha_case *c, const char *text, mha__arena *pool, size_t heads,
                                mha__program *program, mha__places *places, mha_error *error)
{
    const mha__program before = *program;
    double *memory = mha__arena_take(pool, mha__unnamed_room(c) * sizeof *memory);
    if (!memory || !mha__places_begin(places, c->B, heads, c->T_q, pool))
        return mha__fail(error, MHA_NO_MEMORY, MHA__UNNAMED, "no memory for a change");
    for (size_t i = 0; i < mha__unnamed_count(); i++) {
        char said[160];
        *program = before;
        if (!mha__unnamed_apply(c, i, memory, program, said, sizeof said) || strncmp(text, said, strlen(said)) != 0)
            continue;
        const char *rest = text + strlen(said);
        if (!*rest)
            places->among[0] = NULL;
        if (!*rest || (strncmp(rest, ", ", 2) == 0 && mha__places_read(places, rest + 2)))
            return MHA_OK;
    }
    return mha__fail(error, MHA_INVALID, MHA__UNNAMED, "expected what a diagnosis of this case says, found \"%s\"",
                     text);
}

/* Applies a bug to the program. `text`: its name, or its name, a blank, and its numbers or the places
 * of its change. */
static mha_status apply_named(const mha_case *c, const char *text, mha__arena *pool, size_t heads,
                              mha__program *program, mha__places *places, mha_error *error)
{
    const size_t length = strcspn(text, " ");
    double *numbers;
    if (strncmp(text, MHA__UNNAMED " ", sizeof MHA__UNNAMED) == 0)
        return apply_unnamed(c, text + sizeof MHA__UNNAMED, pool, heads, program, places, error);
    for (size_t i = 0; i < mha_bug_count(); i++) {
        const char *name = mha_bug_at(i)->name;
        if (strlen(name) != length || strncmp(name, text, length) != 0)
            continue;
        const mha__bug_entry *e = mha__solved_entry_at(i);
        const size_t n = e ? mha__solved_count(c, e) : 0;
        numbers = mha__arena_take(pool, (n + 1) * sizeof *numbers);
        if (!numbers)
            return mha__fail(error, MHA_NO_MEMORY, name, "no memory for %zu numbers", n);
        const char *in = !e || e->how == SOLVE_LISTED ? strstr(text, " in ") : NULL;
        const bool somewhere = in && (e || in == text + length) && c->semantics.place.n_sequences == 0;
        char said[32] = ""; /* a number before its places */
        if (somewhere && !mha__places_begin(places, c->B, heads, c->T_q, pool))
            return mha__fail(error, MHA_NO_MEMORY, name, "no memory for the places where it is made");
        if ((!e || somewhere) && text[length] && !(somewhere && mha__places_read(places, in + 1)))
            return mha__fail(error, MHA_INVALID, name,
                             "expected nothing more, or places such as \"in heads 0 and 2\", found \"%s\"",
                             text + length);
        if (somewhere)
            mha__text_print(said, sizeof said, "%.*s", (int)(in - text - (ptrdiff_t)length), text + length);
        if (e)
            TRY(mha__numbers_read(c, e, somewhere ? said : text + length, numbers, error));
        return mha__bug_apply(c, i, numbers, program)
                   ? MHA_OK
                   : mha__fail(error, MHA_UNSUPPORTED, name, "expected a bug that applies to this case");
    }
    return mha__fail(error, MHA_NOT_FOUND, text, "expected the name of a bug");
}

static mha_status compute(const mha__inputs *inputs, const mha__program *program, const mha__program *outside,
                          mha__places *places, mha_stage stage, const mha_view *result, mha__arena *pool,
                          mha_error *error)
{
    const mha_case *c = inputs->c;
    size_t shape[4];
    int rank = mha__run_shape(inputs, stage, shape);
    if (rank == 0)
        return mha__fail(error, MHA_UNSUPPORTED, mha_stage_at(stage)->name,
                         "expected a stage that bugs compute, found one of stored latents");
    const bool ends = stage == MHA_STAGE_OUTPUT || stage == MHA_STAGE_HEADS,
               mixes = places->among[0] && stage == MHA_STAGE_OUTPUT && c->kind == CASE_MHA;
    double *outside_heads = mixes ? mha__take(pool, c->B * c->T_q * c->H * c->d_v) : NULL;
    mha_view computed = mha__arena_view(pool, MHA_F64, rank, shape), said = computed;
    if (places->among[0] && ends)
        said = mha__arena_view(pool, MHA_F64, rank, shape);
    mha__runner *bench = mha__runner_create(inputs, NULL, 0);
    if (!bench || !computed.data || !said.data || (mixes && !outside_heads)) {
        mha__runner_destroy(bench);
        return mha__fail(error, MHA_NO_MEMORY, c->name, "no memory for stage %s", mha_stage_at(stage)->name);
    }
    mha__gemm_bracket bracket;
    mha_status status = mha__gemm_begin(1, &bracket, error);
    if (status == MHA_OK) {
        const bool ran = !mixes || take_heads(outside, bench, places, outside_heads);
        if (!ran || !mha__run(bench, program, stage, NULL, computed.data) ||
            (said.data != computed.data &&
             !leave_places(outside, bench, stage, places, shape, computed.data, said.data)))
            status = mha__fail(error, MHA_NO_MEMORY, c->name, "no memory for stage %s", mha_stage_at(stage)->name);
        mha__gemm_end(&bracket);
    }
    mha__runner_destroy(bench);
    TRY(status);
    mha__stage_pack(inputs, stage, computed.data, shape);
    if (stage == MHA_STAGE_OUTPUT && result->rank == 4)
        rank = 4, shape[2] = c->H, shape[3] = c->d_v;
    computed = mha_view_of(computed.data, MHA_F64, rank, shape);
    char expected[128], found[128];
    if (mha_view_copy(result, &computed, NULL) != MHA_OK)
        return mha__fail(error, MHA_INVALID, mha_stage_at(stage)->name, "expected shape %s, found %s",
                         mha__shape_text(expected, sizeof expected, shape, rank),
                         mha__shape_text(found, sizeof found, result->shape, result->rank));
    return MHA_OK;
}

mha_status mha_case_with_bugs(const mha_case *c, const char *const *bugs, size_t count, mha_stage stage,
                              const mha_view *result, mha_error *error)
{
    if ((unsigned)stage >= MHA_STAGE_COUNT)
        return mha__fail(error, MHA_INVALID, "stage", "expected one of mha_stage, found %d", (int)stage);
    mha__inputs *inputs;
    const mha_case *asked = c;
    TRY(mha__inputs_create(c, &inputs, error));
    c = inputs->c;
    mha__program program = mha__program_of(c), outside = program;
    mha__arena pool = {.allocator = c->pool.allocator};
    mha_status status = MHA_OK;
    mha__places places = {0};
    for (size_t i = 0; i < count && status == MHA_OK; i++) {
        outside = places.among[0] ? outside : program; /* what is everywhere comes before what is in places */
        status = apply_named(c, bugs[i], &pool, c->H, &program, &places, error);
    }
    if (status == MHA_OK)
        status = compute(inputs, &program, &outside, &places, stage, result, &pool, error);
    const bool packed = stage == MHA_STAGE_OUTPUT || stage == MHA_STAGE_HEADS,
               in_places = count > 0 &&
                           (strncmp(bugs[0], MHA__UNNAMED " ", sizeof MHA__UNNAMED) == 0 || strstr(bugs[0], " in "));
    mha__inputs_destroy(inputs);
    mha_case joined; /* a ragged batch may have been searched as one row of segments */
    if ((status == MHA_UNSUPPORTED || (status == MHA_INVALID && in_places)) && packed &&
        mha__case_join(asked, &pool, &joined))
        status = mha_case_with_bugs(&joined, bugs, count, stage, result, error);
    mha__arena_free(&pool);
    return status;
}
