/* Finds the known bug that gives the caller's gradients: it computes each bug and compares. */
#include <math.h>
#include <string.h>

#include "attention/call/definition.h"
#include "attention/core/exact/exact_rows.h"
#include "base/base.h"
#include "verify/backward/explain/search.h"
#include "verify/thresholds/thresholds.h"

/* Where dQ is right all queries are computed, so that bugs in only the kernel of dK and dV are looked for up to so
 * many pairs of queries and keys. */
enum { ALONE_PAIRS = 1 << 17, LIMIT_SECONDS = 10 };

/* Counts the first queries, of the map that is farthest off, among which some rows of dQ are wrong. */
static size_t few_of(const mha__gradient_search *s)
{
    enum { WRONG_ROWS = 6 };
    const mha__sequence q = mha__resolved_sequence(s->b.r, s->sequence);
    const size_t d = s->b.r->plan.d_k;
    size_t wrong = 0, few = 0;
    while (few < q.T_q && few < MHA__FEW_QUERIES && wrong < WRONG_ROWS) {
        bool is_wrong = false;
        for (size_t c = 0; c < d; c++) {
            const size_t at[4] = {q.batch, q.q_from + few, s->head, c};
            const double x = mha_view_get(&s->found->of[MHA_D_QUERY], at), y = mha_view_get(&s->exact[MHA_D_QUERY], at);
            is_wrong |= !(fabs(x - y) <= mha_view_get(&s->right[MHA_D_QUERY], at));
        }
        wrong += is_wrong, few++;
    }
    return wrong < WRONG_ROWS ? MHA__FEW_QUERIES : few;
}

/* The map whose rows of dQ are farthest off: a bug that does not give these explains nothing. */
static void choose_map(mha__gradient_search *s)
{
    const mha__resolved *r = s->b.r;
    const mha_view *theirs = &s->found->of[MHA_D_QUERY];
    double most = -1;
    s->by_map = theirs->data && !r->layer && r->norm[MHA_QUERIES] != MHA_NORM_ROW &&
                (r->plan.B * r->plan.h > 1 || r->plan.T_q > MHA__FEW_QUERIES);
    for (size_t sequence = 0; s->by_map && sequence < r->plan.B; sequence++) {
        const mha__sequence q = mha__resolved_sequence(r, sequence);
        for (size_t e = 0; e < r->plan.h * q.T_q * r->plan.d_k; e++) {
            const size_t row = e / r->plan.d_k,
                         at[4] = {q.batch, q.q_from + row / r->plan.h, row % r->plan.h, e % r->plan.d_k};
            const double y = mha_view_get(theirs, at), off = fabs(y - mha_view_get(&s->exact[MHA_D_QUERY], at));
            s->largest = isfinite(y) ? fmax(s->largest, fabs(y)) : s->largest;
            if (off > most)
                most = off, s->sequence = sequence, s->head = row % r->plan.h;
        }
    }
    s->few = s->by_map ? few_of(s) : MHA__FEW_QUERIES;
}

/* Given heads have two kernels, one of dQ and one of dK and dV, that compute P and dS each for itself. */
static void choose_kernels(mha__gradient_search *s)
{
    const mha__sizes *p = &s->b.r->plan;
    bool right = false, wrong = false;
    for (int g = 0; g <= MHA_D_VALUE; g++)
        right |= s->found->of[g].data && !s->wrong[g], wrong |= s->wrong[g];
    s->alone = right && wrong && !s->b.r->layer && s->found->keep_count == 0 &&
               (s->wrong[MHA_D_QUERY] || p->B * p->h * p->T_q * p->S <= ALONE_PAIRS);
}

/* Copies errors; a missing one is 0. */
static mha_status keep_errors(mha__gradient_search *s, const mha_view *errors, mha_view *copy, mha_error *error)
{
    if (!errors->data)
        return MHA_OK;
    *copy = mha__arena_view(&s->b.memory, MHA_F64, errors->rank, errors->shape);
    if (!copy->data)
        return mha__fail(error, MHA_NO_MEMORY, "bound", "no memory for the errors of this backward");
    return mha_view_copy(copy, errors, error);
}

/* Room for the largest gradient. */
static mha_status take_room(mha__gradient_search *s, double **room, mha_error *error)
{
    size_t most = 1;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        if (s->exact[g].data && mha_view_elements(&s->exact[g]) > most)
            most = mha_view_elements(&s->exact[g]);
    *room = mha__arena_scratch(&s->b.memory, most * sizeof **room);
    return *room ? MHA_OK : mha__fail(error, MHA_NO_MEMORY, "bound", "no memory for the gradients of a bug");
}

/* Whether what was found is right, and which stages are; keeps the errors of what is. */
static mha_status is_right(mha__gradient_search *s, bool *right, mha_error *error)
{
    TRY(mha__run_bug(s, NULL, &s->found->precision, error));
    *right = mha__are_near(s, GIVES_ALL, false, 1, 0);
    for (size_t i = 0; i < s->found->keep_count; i++)
        s->fits[s->found->keep[i].stage] = mha__is_stage_near(s, &s->found->keep[i], false, 1, 0);
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        const mha_view *made = mha__backward_result(&s->b, g), *errors = mha__backward_result(&s->e.sizes, g);
        TRY(keep_errors(s, errors, &s->right[g], error));
        TRY(keep_errors(s, made, &s->exact[g], error));
        s->wrong[g] = s->found->of[g].data && !mha__is_near(&s->found->of[g], made, errors, 1, 0, NULL);
    }
    for (int sizes = 0; sizes < 2; sizes++)
        TRY(take_room(s, &s->made[sizes], error));
    for (int i = 0; i < MHA_BACKWARD_STAGE_COUNT; i++)
        TRY(keep_errors(s, &s->e.sizes.kept[i], &s->kept[i], error));
    memcpy(s->from, s->exact, sizeof s->from), memcpy(s->errors, s->right, sizeof s->errors);
    choose_map(s);
    choose_kernels(s);
    return MHA_OK;
}

/* Whether what a bug may be off by explains all that is wrong: noise of this size, or a rounding, but no bug. */
static bool is_faint(const mha__gradient_search *s)
{
    bool faint = true;
    for (size_t i = 0; i < s->found->keep_count; i++)
        faint &= s->fits[s->found->keep[i].stage];
    for (int g = 0; g < MHA_GRADIENT_COUNT && faint; g++)
        faint =
            !s->wrong[g] || mha__is_near(&s->found->of[g], &s->exact[g], &s->right[g], 1, MHA__PART * s->e.unit, NULL);
    return faint;
}

/* Whether at least half of the elements of the gradients that were found are finite: NaN agrees with NaN, whatever made
 * it. */
static bool has_numbers(const mha_gradients *found)
{
    size_t all = 0, finite = 0;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        const mha_view *v = &found->of[g];
        size_t index[MHA_MAX_RANK] = {0};
        for (bool more = v->data && mha_view_elements(v) > 0; more; more = mha__index_next(index, v->shape, v->rank)) {
            finite += isfinite(mha_view_get(v, index)) != 0;
            all++;
        }
    }
    return 2 * finite >= all;
}

/* Tries each row of the list by itself. */
static mha_status try_rows(mha__gradient_search *s, mha_error *error)
{
    const mha__gradient_bug *row, *unknowns = mha__gradient_bugs_of_unknowns().rows; /* the last ones */
    const bool faint = is_faint(s);
    size_t changes = 0;
    for (size_t i = 0; (row = mha__gradient_bug_at(i)) != NULL && row != unknowns && !mha__is_over(s); i++) {
        mha__given gives = GIVES_NOTHING;
        changes = mha__has_result(row) ? changes : s->count; /* rows of results come after these */
        if (!mha__gradient_bug_applies(&s->b, row) || (row->shown.wide && s->count + s->partly > 0) ||
            (faint && (mha__changes(row) || mha__has_result(row))) ||
            (mha__has_result(row) && (changes > 0 || row->shown.wide)))
            continue;
        TRY(mha__row_gives(s, row, &gives, error));
        mha__search_tell_there(s, gives, row->shown.name, row->shown.help);
    }
    return MHA_OK;
}

/* Explains each of a few wrong gradients as if it were the only one: they may have bugs of their own. */
static mha_status try_each(mha__gradient_search *s, mha_error *error)
{
    enum { MOST_WRONG = 4 };
    static const char *const rows[] = {"dQ", "dK", "dV"};
    mha__gradient_search each = *s;
    mha_gradient_match one, all = {.name = ""};
    size_t wrong = 0, told = 0;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        wrong += s->wrong[g];
    if (wrong < 2 || wrong > MOST_WRONG || s->found->keep_count > 0)
        return MHA_OK;
    s->each = true, s->alone = false, s->list = &one, s->room = 1;
    for (int g = 0; g < MHA_GRADIENT_COUNT && told == s->count; g++) {
        char *const name = all.name + strlen(all.name), *const help = all.help + strlen(all.help);
        mha_gradients only = *each.found;
        if (!each.wrong[g])
            continue;
        memset(only.of, 0, sizeof only.of), memset(s->wrong, 0, sizeof s->wrong);
        only.of[g] = each.found->of[g], s->wrong[g] = true;
        s->found = &only, s->by_map = each.by_map && g == MHA_D_QUERY, s->count = 0, s->narrow = false;
        TRY(try_rows(s, error));
        if (s->count == 0)
            TRY(mha__explain_further(s, error));
        told += s->count > 0, s->count = s->count > 0 ? told : 0;
        if (s->count > 0)
            mha__text_print(name, (size_t)(all.name + sizeof all.name - name), "%s%s", told > 1 ? " and " : "",
                            one.name);
        if (s->count > 0)
            mha__text_print(help, (size_t)(all.help + sizeof all.help - help), "%s%s%s, by itself: %s",
                            told > 1 ? "; " : "", g > MHA_D_VALUE ? "d_" : "",
                            g > MHA_D_VALUE ? mha_gradient_name((mha_gradient)g) : rows[g], one.help);
    }
    s->found = each.found, s->list = each.list, s->room = each.room, s->count = 0, s->each = false;
    memcpy(s->wrong, each.wrong, sizeof s->wrong);
    if (told == wrong)
        mha__search_tell(s, GIVES_ALL, all.name, all.help);
    return MHA_OK;
}

static mha_status look(mha__gradient_search *s, const mha_view *exact, size_t *count, bool *right, mha_error *error)
{
    bool same = !mha__semantics_of(s->b.r)->softmax.dropout_keep.data; /* bugs that compute dP anew drop nothing */
    TRY(is_right(s, right, error));
    for (int g = 0; g < MHA_GRADIENT_COUNT && exact; g++)
        same &= !s->exact[g].data || mha__is_near(&exact[g], &s->exact[g], &s->right[g], 1, 0x1p-30, NULL);
    if (!*right && same && has_numbers(s->found)) {
        TRY(mha__again_begin(&s->b, error));
        TRY(try_rows(s, error));
        const bool two = exact || mha__semantics_of(s->b.r)->place.cu_seqlens_q; /* searches */
        s->until = mha__clock_seconds() + LIMIT_SECONDS / (two ? 2.0 : 1.0);
        if (s->count + s->partly == 0 && !is_faint(s))
            TRY(mha__explain_further(s, error));
        if (s->count + s->partly == 0 && !is_faint(s))
            TRY(try_each(s, error));
    }
    *count = s->count > 0 ? s->count : s->partly;
    return MHA_OK;
}

/* Looks for bugs of a call; with `exact` only if these are its right gradients. */
static mha_status search(const mha_layer *layer, const mha_call *call, const mha_gradients *found, double unit,
                         const mha_view *exact, mha_gradient_match *list, size_t room, size_t *count, bool *right,
                         mha_error *error);

/* Looks for bugs of a ragged batch as of one sequence with a segment for each of its own, where that is the same. */
static mha_status search_joined(const mha__gradient_search *s, const mha_call *call, double unit, size_t *count,
                                mha_error *error)
{
    const mha_allocator a = mha__allocator_default();
    const mha_place *place = &call->semantics.place;
    const mha_visible *visible = &call->semantics.visible;
    const int64_t *of_q = place->cu_seqlens_q, *of_k = place->cu_seqlens_k ? place->cu_seqlens_k : of_q;
    const size_t T = call->query.shape[1], bytes = (T + 1) * sizeof(int64_t);
    mha_call joined = *call;
    bool right, same = of_q && memcmp(of_q, of_k, (place->n_sequences + 1) * sizeof *of_q) == 0 &&
                       !s->found->d_lse.data && s->found->keep_count == 0 && !visible->kv_lengths &&
                       !visible->mask.kind && !visible->key_padding.kind && !visible->pattern.q_segments.data;
    for (size_t b = 0; same && place->position_offset && b < place->n_sequences; b++)
        same = place->position_offset[b] == 0;
    if (!same)
        return MHA_OK;
    int64_t *segments = mha__allocate(&a, bytes);
    for (size_t b = 0; segments && b < place->n_sequences; b++)
        for (int64_t t = of_q[b]; t < of_q[b + 1]; t++)
            segments[t] = (int64_t)b;
    joined.semantics.place = (mha_place){.has_offset = true, .offset = place->offset};
    joined.semantics.visible.pattern.q_segments = mha_view_of(segments, MHA_I64, 2, (size_t[]){1, T});
    const mha_status status =
        segments ? search(s->b.r->layer, &joined, s->found, unit, s->exact, s->list, s->room, count, &right, error)
                 : mha__fail(error, MHA_NO_MEMORY, "bugs", "no memory for the segments of a batch");
    for (size_t i = 0; i < *count && i < s->room; i++) {
        char *help = s->list[i].help, *end = help + strlen(help);
        mha__text_print(end, (size_t)(help + sizeof s->list->help - end), "; a segment is a sequence of the batch");
    }
    mha__release(&a, segments, segments ? bytes : 0);
    return status == MHA_NO_MEMORY ? status : MHA_OK; /* a call that is refused is not looked into */
}

static mha_status search(const mha_layer *layer, const mha_call *call, const mha_gradients *found, double unit,
                         const mha_view *exact, mha_gradient_match *list, size_t room, size_t *count, bool *right,
                         mha_error *error)
{
    if (!(unit > 0 && unit < 1))
        return mha__fail(error, MHA_INVALID, "unit", "expected a roundoff between 0 and 1, found %g", unit);
    TRY(mha__backward_precision_check(layer, &found->precision, error));
    mha__gradient_search s = {.found = found, .asked = *found, .list = list, .room = room};
    *count = 0, *right = false;
    s.asked.precision = (mha_backward_precision){.scores = MHA_F32};
    mha_status status = mha__backward_begin(&s.b, layer, call, &s.asked, NULL, error);
    if (status == MHA_OK) {
        status = mha__bound_begin(&s.e, &s.b, &found->precision, unit, error);
        mha__search_watch(&s);
        if (status == MHA_OK)
            status = look(&s, exact, count, right, error);
        if (status == MHA_OK && *count == 0 && !*right && !exact)
            status = search_joined(&s, call, unit, count, error);
        mha__bound_free(&s.e);
    }
    mha__again_end(&s.b);
    mha__backward_free(&s.b);
    return status;
}

mha_status mha_gradient_explain(const mha_layer *layer, const mha_call *call, const mha_gradients *found, double unit,
                                mha_gradient_match *list, size_t room, size_t *count, bool *right, mha_error *error)
{
    return search(layer, call, found, unit, NULL, list, room, count, right, error);
}
