/* P as a backward with a known bug of a forward computes it: from masked scores by the engine, and the right lse. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/call/definition.h"
#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/bugs/bugs.h"
#include "verify/bugs/needs.h"
#include "verify/engine/runner.h"

typedef struct mha__again {
    mha_case c; /* the rows that the call attends to, as given heads */
    mha__inputs *inputs;
    mha__runner *runner;
    mha__program right, program;
    const mha__gradient_bug *bug; /* of `program`; NULL: none */
    bool applies;
    double *numbers, *masked; /* masked: (B, h, T_q, width) */
    size_t width;
    unsigned char *needed, *wanted; /* query rows */
} mha__again;

/* The case of the rows that a backward has; it shares their numbers. False: the engine has no such case. */
static bool describe(const mha__backward *b, mha_case *c, int64_t *offsets)
{
    static const mha_weight added[] = {MHA_BIAS_K,     MHA_BIAS_V,           MHA_BIAS_TABLE,
                                       MHA_RELATIVE_K, MHA_RELATIVE_COLUMNS, MHA_RELATIVE_Q};
    const mha__resolved *r = b->r;
    const mha__sizes *p = &r->plan;
    const size_t B = r->query.shape[0], T = r->query.shape[1], S = b->keys[0].shape[1];
    const double *const rows[] = {b->stages[MHA_STAGE_Q_ROT].data, b->keys[0].data, b->keys[1].data};
    const bool evicts = r->first_key != mha__semantics_of(r)->place.key_offset,
               ragged = mha__semantics_of(r)->place.cu_seqlens_q;
    c->pool.allocator = b->memory.allocator;
    c->kind = CASE_SDPA, c->layout = MHA_BTHD;
    c->B = B, c->T_q = T, c->T_k = S, c->H = p->h, c->H_kv = p->h_kv, c->d_k = p->d_k, c->d_v = p->d_v;
    c->E_q = p->h * p->d_k, c->E_k = p->h_kv * p->d_k, c->E_v = p->h_kv * p->d_v, c->E_out = p->h * p->d_v;
    for (int i = 0; i < 3; i++)
        c->tensors[CASE_QUERY + i] = mha_view_of(mha__unconst(rows[i]), MHA_F64, 4,
                                                 (size_t[]){B, i ? S : T, i ? p->h_kv : p->h, i < 2 ? p->d_k : p->d_v});
    for (size_t i = 0; i < sizeof added / sizeof *added; i++)
        c->weights[CASE_RECORDED][added[i]] = r->weight[added[i]];
    for (size_t sequence = 0; sequence < p->B; sequence++)
        offsets[sequence] = mha__resolved_sequence(r, sequence).offset;
    c->semantics = *mha__semantics_of(r);
    c->semantics.qkv = (mha_qkv){0};
    c->semantics.softmax.scale = p->scale;
    c->semantics.place.key_offset = r->first_key, c->semantics.place.position_offset = offsets;
    return !(ragged && r->pages.keys.data) && !(evicts && c->semantics.visible.kv_lengths);
}

mha_status mha__again_begin(mha__backward *b, mha_error *error)
{
    const size_t B = b->r->plan.B;
    mha__again *again = mha__arena_take(&b->memory, sizeof *again);
    int64_t *offsets = mha__arena_take(&b->memory, (B + 1) * sizeof *offsets);
    if (!again || !offsets)
        return mha__fail(error, MHA_NO_MEMORY, "bugs", "no memory for the weights of a bug");
    if (!mha__is_softmax(b) || !describe(b, &again->c, offsets))
        return MHA_OK;
    b->again = again;
    TRY(mha__inputs_create(&again->c, &again->inputs, error));
    const mha_case *c = again->inputs->c; /* with the sequences of a ragged batch as batch rows */
    const size_t rows = B * c->T_q;
    again->right = mha__program_of(&again->c);
    again->width = again->inputs->S + mha__rows_beyond(c);
    again->numbers = mha__arena_take(&b->memory, (B + c->H) * sizeof *again->numbers);
    again->masked = mha__arena_scratch(&b->memory, rows * c->H * again->width * sizeof *again->masked);
    again->needed = mha__arena_take(&b->memory, rows + 1), again->wanted = mha__arena_take(&b->memory, rows + 1);
    const bool room = again->numbers && again->masked && again->needed && again->wanted;
    again->runner = room ? mha__runner_create(again->inputs, again->needed, 0) : NULL;
    if (!room || !again->runner)
        return mha__fail(error, MHA_NO_MEMORY, "bugs", "no memory for the weights of a bug");
    memset(again->needed, 1, rows); /* late: the runner takes memory for the scores of one head when it runs */
    return MHA_OK;
}

void mha__again_end(mha__backward *b)
{
    if (b->again) {
        mha__runner_destroy(b->again->runner);
        mha__inputs_destroy(b->again->inputs);
    }
    b->again = NULL;
}

/* Writes the numbers of a row; false: they change nothing. */
static bool make_numbers(const mha__backward *b, const mha__mutation *m, double *x, mha__program *program)
{
    const mha__sizes *p = &b->r->plan;
    const int64_t *lengths = program->s.visible.kv_lengths;
    const double *slopes = program->s.added.alibi_slopes, cap = program->s.softmax.softcap;
    const mha__extents n = {{p->B, p->T_q, p->h, p->S}, MHA__BHTC, p->h / p->h_kv, 1};
    bool differ = false;
    switch (m->read) {
    case MHA__A_FACTOR: *x = mha__factor(m, b->r); return *x != 1;
    case MHA__A_SCALE:
        program->s.softmax.scale = mha__scale_of(b, (mha__other_scale)m->arg);
        return mha__has_scale(b, (mha__other_scale)m->arg);
    case MHA__A_CAP: *x = m->step > 0 ? (double)m->step : m->number * cap; return *x != cap;
    case MHA__LENGTHS_OF:
        for (size_t at = 0; lengths && at < p->B; at++)
            x[at] = (double)(lengths[mha__map_element(m, &n, (mha__element){{at}}).at[MHA__B]] - b->r->first_key);
        return p->B > 1;
    case MHA__NO_NUMBERS: return true;
    default: break;
    }
    for (size_t h = 0; slopes && h < p->h; h++) {
        const mha__element own = {{0, 0, h, 0}};
        x[h] = m->read == MHA__SLOPES_TIMES ? mha__factor(m, b->r) * slopes[h]
                                            : slopes[mha__map_element(m, &n, own).at[MHA__H]];
        differ |= x[h] != slopes[h];
    }
    return differ;
}

/* Adds the mutation of a row: of the mask where that has elements of its own, or of the window. */
static bool put_mutation(const mha__backward *b, const mha__mutation *m, mha__program *program)
{
    static const int from_right[] = {[MHA__B] = 4, [MHA__T] = 2, [MHA__H] = 3, [MHA__C] = 1};
    const mha__sizes *p = &b->r->plan;
    const mha_mask *mask = &program->s.visible.mask;
    const int axis = mask->kind ? mask->values.rank - from_right[m->axis] : -1;
    const mha__extents n = {{p->B, p->T_q, p->h, p->S}, MHA__BHTC, p->h / p->h_kv, 1};
    mha__mutation of_forward = *m;
    of_forward.op = m->written, of_forward.readers = 0;
    mha__put(program, of_forward);
    if (m->site == AT_WINDOW)
        return program->s.visible.has_window_left;
    return axis >= 0 && mask->values.shape[axis] > 1 && !program->s.place.cu_seqlens_q &&
           (m->arg == MHA__GROUP ? n.group > 1 : mha__map_moves(m, &n));
}

/* Applies the bug of a forward that `text` names, "causal-block 16", with that number, else with `numbers`. */
static bool apply_forward(const mha_case *c, const char *text, double *numbers, mha__program *program)
{
    const size_t length = strcspn(text, " ");
    const mha_bug *of;
    size_t i = 0;
    while ((of = mha_bug_at(i)) && (strncmp(of->name, text, length) != 0 || of->name[length]))
        i++;
    if (text[length])
        *numbers = strtod(text + length, NULL);
    return mha__bug_apply(c, i, mha__solved_entry_at(i) ? numbers : NULL, program);
}

bool mha__recomputes(const mha__backward *b, const mha__gradient_bug *bug)
{
    const mha_semantics *s = mha__semantics_of(b->r);
    const bool same_pairs = bug->mutation.readers & MHA__SAME_PAIRS;
    mha__again *again = b->again;
    if (!again || again->bug == bug)
        return again && again->applies;
    if (!same_pairs && (s->softmax.hidden_values == MHA_HIDDEN_PROPAGATE ||
                        s->added.relative.rule != MHA_RELATIVE_NONE)) /* a table may have no row for a pair */
        return false;
    again->bug = bug;
    again->program = again->right;
    again->applies = (!bug->prepare || bug->prepare(b, &again->program)) &&
                     make_numbers(b, &bug->mutation, again->numbers, &again->program) &&
                     (!bug->mutation.site || put_mutation(b, &bug->mutation, &again->program)) &&
                     (!bug->forward || apply_forward(&again->c, bug->forward, again->numbers, &again->program));
    return again->applies;
}

/* The masked scores of a map as a bug has them, (T_q, width); NULL without memory. */
static const double *masked_of(const mha__backward *b, const mha__map *map, const mha__gradient_bug *bug)
{
    mha__again *again = b->again;
    const size_t T = again->inputs->c->T_q, H = again->c.H;
    const mha_stage stage = bug->mutation.readers & MHA__NOTHING_ADDED ? MHA_STAGE_CAPPED : MHA_STAGE_MASKED;
    if (!mha__recomputes(b, bug))
        return NULL;
    memset(again->wanted + map->b * T, 1, map->s.T_q);
    again->runner->head = map->head + 1;
    const bool ran = mha__run(again->runner, &again->program, stage, again->wanted, again->masked);
    memset(again->wanted + map->b * T, 0, map->s.T_q);
    return ran ? again->masked + (map->b * H + map->head) * T * again->width : NULL;
}

static void recompute(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const mha__sizes *p = &b->r->plan;
    const unsigned how = bug->mutation.readers;
    const double *masked = masked_of(b, map, bug);
    if (!masked)
        return;
    const double scale = b->again->program.s.softmax.scale, cap = b->again->program.s.softmax.softcap;
    const bool bends =
        !(how & MHA__SAME_SLOPE) && (scale != p->scale || cap != mha__semantics_of(b->r)->softmax.softcap);
    const size_t beyond =
        mha__semantics_of(b->r)->place.cu_seqlens_q ? 0 : p->S - map->s.S; /* columns of other sequences */
    for (size_t at = 0; at < map->s.T_q * map->n; at++) {
        const size_t i = at / map->n, j = at % map->n;
        const double z = masked[i * b->again->width + j + (j < map->s.S ? 0 : beyond)];
        const bool was = map->seen[at] == MHA__SEEN, may = was || (!(how & MHA__SAME_PAIRS) && isfinite(map->lse[i])),
                   shows = may && z > -INFINITY && (was || mha__has_terms(b, map, i, j));
        if (isnan(z) || (!was && !shows))
            continue;
        map->seen[at] = shows ? MHA__SEEN : MHA__HIDDEN;
        map->weights[at] = shows ? exp(z - map->lse[i]) : 0;
        if (!was)
            map->d_weights[at] = mha__d_weight_of(b, map->dO + i * p->d_v, map->V + j * p->d_v);
        if (bends)
            map->slope[at] = mha__slope_of(mha__score_of(b, map, i, j) * (scale / p->scale), cap);
    }
    if (how & MHA__SCALES_ALL)
        map->q_scale = map->k_scale = scale;
}

void mha__recompute(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const size_t bytes = map->s.T_q * map->n * sizeof(double);
    memcpy(map->turned, map->weights, bytes);
    recompute(b, map, bug);
    if (!(bug->mutation.readers & MHA__IN_DS_ALONE))
        return;
    mha__map_masked(b, map), mha__map_scores(b, map);
    memcpy(map->weights, map->turned, bytes);
    mha__map_masked(b, map);
}

/* P of scores with each bug of a forward that changes them; sought when nothing else explains the gradients. */
/* clang-format off */
#define ALONE(name, help, when, change) \
    {.shown = {"p-of-" name, "only where the backward recomputes P, bug " name " of a forward: " help, true}, \
        .step = MHA__BACKWARD_SUMS, .forward = name, .mutation = {.op = MHA__RECOMPUTES}},
#define PAIRED(name, help, when, change) ALONE(name, help, when, change)
/* The search has no numbers for a bug with some. */
#define LISTED(name, help, when, change, numbers)
#define BY_BATCH(name, help, when, change, numbers)
#define SOLVED(name, help, when, change, how)
#define FITTED(name, help, when, change, how, low, high)
#define PARTS(name, what, how)
#define RESCALED(name, what, how)

static const mha__gradient_bug rows[] = {
#define ONLY_SCORES_OF_PAIRS
#include "verify/bugs/lists/scores.h"
};
MHA__GRADIENT_BUGS(forward)
/* clang-format on */
