/* Makes up inputs with which a test tells as many known bugs from the right attention as it can. */
#include <math.h>

#include "base/arena.h"
#include "compute/sizes.h"
#include "mha/power.h"
#include "mha/random.h"
#include "verify/attempt/attempt.h"

/* One case being made up. */
typedef struct draft {
    const mha_suggestion *wish;
    size_t B, T_q, T_k, S;
    mha_config config; /* resolved */
    mha__arena pool;
    mha_layer *layer; /* NULL when the inputs are given for each head */
    mha_call call;
    mha_case_notes notes;
    mha_view weights[MHA_WEIGHT_COUNT]; /* without a layer: sinks and norms */
    uint64_t seed, stream;
} draft;

static mha_status no_memory(mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, "case", "no memory for its inputs");
}

/* ---------------------------------------------------------------- sizes */

static mha_status check(const mha_suggestion *w, mha_error *error)
{
    const bool lengths = w->with & (MHA_WITH_LENGTHS | MHA_WITH_EMPTY);
    const mha_visible *s = &w->semantics.visible;
    if ((w->with & MHA_WITH_MASK && w->with & MHA_WITH_KEEPS) ||
        (w->with & (MHA_WITH_MASK | MHA_WITH_KEEPS) && s->mask.kind != MHA_MASK_NONE))
        return mha__fail(error, MHA_INVALID, "mask", "expected one mask, found two");
    if (lengths && s->kv_lengths)
        return mha__fail(error, MHA_INVALID, "lengths", "expected lengths that are given or made up, found both");
    if (w->with & MHA_WITH_PADDING && s->key_padding.kind != MHA_MASK_NONE)
        return mha__fail(error, MHA_INVALID, "padding", "expected one key padding mask, found two");
    if (w->with & MHA_WITH_POISON && !lengths)
        return mha__fail(error, MHA_INVALID, "poison", "expected lengths with it, which hide the poisoned keys");
    if (w->with & MHA_WITH_POISON && !w->by_head && w->q_len == w->kv_len && w->q_len > 0)
        return mha__fail(error, MHA_INVALID, "poison", "expected keys that are not the queries, too");
    return MHA_OK;
}

/* Short rows, but long enough to have the edges of a window inside them; unequal lengths. */
static mha_status choose_sizes(draft *d, mha_error *error)
{
    enum { LONG = 256 };
    const mha_suggestion *w = d->wish;
    const mha_visible *s = &w->semantics.visible;
    const bool left = s->has_window_left && s->window_left > 0 && s->window_left < LONG;
    const bool right = s->has_window_right && s->window_right > 0 && s->window_right < LONG;
    d->config = w->config;
    TRY(mha_config_resolve(&d->config, error));
    d->B = w->batch ? w->batch : 3;
    d->T_q = w->q_len ? w->q_len : mha__larger(5, left ? (size_t)s->window_left + 3 : 0);
    d->T_k = w->kv_len ? w->kv_len : w->q_len ? w->q_len : d->T_q + 4 + (right ? (size_t)s->window_right : 0);
    d->S = d->T_k + w->past_len;
    return MHA_OK;
}

/* The number of keys that the last query can see before lengths and masks. */
static size_t reach(const draft *d)
{
    const mha_semantics *s = &d->wish->semantics;
    const size_t offset = s->place.has_offset && s->place.offset >= 0 ? (size_t)s->place.offset : d->wish->past_len;
    const size_t last = d->T_q + offset;
    return s->visible.causal && last < d->S ? last : d->S;
}

/* ---------------------------------------------------------------- inputs */

/* A view of uniform random numbers of variance size^2. */
static mha_status draw(draft *d, int rank, const size_t *shape, double size, mha_view *view, mha_error *error)
{
    const float most = (float)(sqrt(3) * size);
    *view = mha__arena_view(&d->pool, MHA_F32, rank, shape);
    if (!view->data)
        return no_memory(error);
    mha_random_fill(view, d->seed, ++d->stream, -most, most);
    return MHA_OK;
}

static void multiply(const mha_view *v, double factor)
{
    size_t index[MHA_MAX_RANK] = {0};
    for (bool more = v->data && mha_view_elements(v) > 0; more; more = mha__index_next(index, v->shape, v->rank))
        mha_view_set(v, index, factor * mha_view_get(v, index));
}

static void multiply_weight(const mha_layer *layer, mha_weight weight, double factor)
{
    const mha_tensor *tensor = mha_layer_weight(layer, weight);
    if (tensor) {
        const mha_view v = mha_tensor_view(tensor);
        multiply(&v, factor);
    }
}

/* Weights of attention by head: sinks, norms and the table of a bias. */
static mha_status make_weights(draft *d, mha_error *error)
{
    const mha_config *c = &d->config;
    if (c->sinks)
        TRY(draw(d, 1, &c->n_heads, 1, &d->weights[MHA_SINKS], error));
    if (c->bias_rows)
        TRY(draw(d, 2, (size_t[]){c->bias_rows, c->n_heads}, 1, &d->weights[MHA_BIAS_TABLE], error));
    for (int i = 0; i < 4; i++) {
        static const mha_weight of_norms[] = {MHA_Q_NORM, MHA_K_NORM, MHA_Q_NORM_BIAS, MHA_K_NORM_BIAS};
        mha_view *view = &d->weights[of_norms[i]];
        size_t shape[2];
        const int rank = mha_config_weight_shape(c, of_norms[i], shape, NULL);
        if (rank == 0)
            continue;
        *view = mha__arena_view(&d->pool, MHA_F32, rank, shape);
        if (!view->data)
            return no_memory(error);
        mha_random_fill(view, d->seed, ++d->stream, i < 2 ? 1 : -1, i < 2 ? 2 : 1);
    }
    return MHA_OK;
}

/* A norm takes the size of its rows away. Rows whose mean square is the norm's eps show that eps. */
static void show_eps(const draft *d)
{
    const double eps = d->wish->semantics.qkv.norm_eps > 0 ? d->wish->semantics.qkv.norm_eps : 1e-6;
    static const mha_weight weights[2][2] = {{MHA_W_Q, MHA_B_Q}, {MHA_W_K, MHA_B_K}};
    const mha_norm norms[] = {d->config.q_norm, d->config.k_norm};
    const mha_view *const inputs[] = {&d->call.query, &d->call.key};
    for (int i = 0; i < 2; i++) {
        if (norms[i] == MHA_NORM_NONE)
            continue;
        if (d->wish->by_head)
            multiply(inputs[i], sqrt(eps));
        for (int k = 0; k < 2 && !d->wish->by_head; k++)
            multiply_weight(d->layer, weights[i][k], sqrt(eps));
    }
}

/* The layer, or the inputs for each head, with scores whose standard deviation is about `peak`. */
static mha_status make_inputs(draft *d, double peak, mha_error *error)
{
    const mha_config *c = &d->config;
    const size_t B = d->B, rows[] = {d->T_q, d->T_k, d->T_k};
    const size_t heads[] = {c->n_heads, c->kv_heads, c->kv_heads}, widths[] = {c->d_k, c->d_k, c->d_v};
    const size_t inputs[] = {c->d_q, c->d_kin, c->d_vin};
    mha_view *views[] = {&d->call.query, &d->call.key, &d->call.value};
    const bool self = d->T_q == d->T_k && c->d_q == c->d_kin, shared = c->d_kin == c->d_vin;
    if (!d->wish->by_head) {
        TRY(mha_layer_create(c, NULL, NULL, &d->layer, error));
        mha_layer_init(d->layer, d->seed);
        multiply_weight(d->layer, c->q_norm ? MHA_Q_NORM : MHA_W_Q, peak);
    } else {
        TRY(make_weights(d, error));
        multiply(&d->weights[MHA_Q_NORM], peak);
    }
    for (int i = 0; i < 3; i++) {
        if (!d->wish->by_head && ((i == 1 && self) || (i == 2 && shared)))
            continue; /* the same input as the one before */
        if (d->wish->by_head)
            TRY(draw(d, 4, (const size_t[]){B, rows[i], heads[i], widths[i]}, i || c->q_norm ? 1 : peak, views[i],
                     error));
        else
            TRY(draw(d, 3, (const size_t[]){B, rows[i], inputs[i]}, 1, views[i], error));
    }
    show_eps(d);
    if (d->wish->past_len == 0)
        return MHA_OK;
    TRY(draw(d, 4, (const size_t[]){B, c->kv_heads, d->wish->past_len, c->d_k}, 1, &d->notes.past_key, error));
    return draw(d, 4, (const size_t[]){B, c->kv_heads, d->wish->past_len, c->d_v}, 1, &d->notes.past_value, error);
}

/* ---------------------------------------------------------------- what is hidden and added */

/* Whether a mask must leave a key visible, so that no query is left without one: the first key and its own. */
static bool must_see(const draft *d, size_t i, size_t j)
{
    return j == 0 || j == i + reach(d) - d->T_q || (j == i && i < d->S);
}

static mha_status make_mask(draft *d, mha_error *error)
{
    const bool numbers = d->wish->with & MHA_WITH_MASK;
    const size_t heads = numbers ? d->config.n_heads : 1, rows = numbers ? 1 : d->B;
    mha_mask *mask = &d->call.semantics.visible.mask;
    mask->kind = numbers ? MHA_MASK_ADDITIVE : MHA_MASK_KEEPS;
    mha_view drawn;
    TRY(draw(d, 4, (const size_t[]){rows, heads, d->T_q, d->S}, 1, &drawn, error));
    mask->values = numbers ? drawn : mha__arena_view(&d->pool, MHA_BOOL, 4, drawn.shape);
    if (!mask->values.data)
        return no_memory(error);
    float *x = drawn.data;
    for (size_t e = 0; e < mha_view_elements(&drawn); e++) {
        const bool hidden = x[e] < -1 && !must_see(d, e / d->S % d->T_q, e % d->S);
        if (!numbers)
            ((unsigned char *)mask->values.data)[e] = !hidden;
        else if (hidden)
            x[e] = -INFINITY;
    }
    return MHA_OK;
}

/* Hides one key that every query can see, another one in each batch row. */
static mha_status make_padding(draft *d, mha_error *error)
{
    mha_mask *padding = &d->call.semantics.visible.key_padding;
    padding->kind = MHA_MASK_HIDES;
    padding->values = mha__arena_view(&d->pool, MHA_BOOL, 2, (const size_t[]){d->B, d->S});
    if (!padding->values.data)
        return no_memory(error);
    for (size_t b = 0; b < d->B && d->S > 1; b++)
        ((unsigned char *)padding->values.data)[b * d->S + 1 + b % (d->S - 1)] = 1;
    return MHA_OK;
}

/* Lengths that fall from one key less than the last query could see. */
static mha_status make_lengths(draft *d, mha_error *error)
{
    const size_t most = reach(d) > 1 ? reach(d) - 1 : 1;
    int64_t *lengths = mha__arena_take(&d->pool, d->B * sizeof *lengths);
    if (!lengths)
        return no_memory(error);
    for (size_t b = 0; b < d->B; b++)
        lengths[b] = (int64_t)(most - b * most / (d->B + 1));
    if (d->wish->with & MHA_WITH_EMPTY)
        lengths[d->B - 1] = 0;
    d->call.semantics.visible.kv_lengths = lengths;
    return MHA_OK;
}

/* Puts NaN into the new key and value rows that lengths hide. */
static void poison(draft *d)
{
    mha_view *views[] = {&d->call.key, &d->call.value};
    for (int i = 0; i < 2; i++) {
        const mha_view *v = views[i];
        size_t index[MHA_MAX_RANK] = {0};
        for (bool more = v->data != NULL; more; more = mha__index_next(index, v->shape, v->rank))
            if ((int64_t)(index[1] + d->wish->past_len) >= d->call.semantics.visible.kv_lengths[index[0]])
                mha_view_set(v, index, NAN);
    }
}

static mha_status make_semantics(draft *d, mha_error *error)
{
    const unsigned with = d->wish->with;
    d->call.semantics = d->wish->semantics;
    if (with & (MHA_WITH_MASK | MHA_WITH_KEEPS))
        TRY(make_mask(d, error));
    if (with & MHA_WITH_PADDING)
        TRY(make_padding(d, error));
    if (with & (MHA_WITH_LENGTHS | MHA_WITH_EMPTY))
        TRY(make_lengths(d, error));
    if (with & MHA_WITH_POISON)
        poison(d);
    return MHA_OK;
}

/* ---------------------------------------------------------------- drafts */

static mha_status make(draft *d, const mha_suggestion *wish, uint64_t seed, double peak, mha_error *error)
{
    *d = (draft){.wish = wish, .seed = seed, .stream = 64, .pool.allocator = mha__allocator_default()};
    d->notes.name = "suggested inputs";
    TRY(choose_sizes(d, error));
    TRY(make_inputs(d, peak, error));
    d->call.weights = wish->by_head ? d->weights : NULL, d->call.weight_count = MHA_WEIGHT_COUNT;
    return make_semantics(d, error);
}

static void drop(draft *d)
{
    mha_layer_destroy(d->layer);
    mha__arena_free(&d->pool);
}

/* How many bugs a draft leaves undecided, and the least factor by which another one is rejected. */
typedef struct worth {
    size_t undecided;
    double least;
} worth;

static mha_status weigh(const draft *d, int threads, const mha_progress *progress, worth *w, mha_error *error)
{
    const mha_criterion criterion = {0};
    mha_case *c;
    mha_power power;
    TRY(mha_case_of_call(d->layer, &d->call, NULL, 0, &d->notes, &c, error));
    const mha_status status = mha_case_power(c, &criterion, threads, progress, &power, error);
    mha_case_close(c);
    TRY(status);
    *w = (worth){power.same + power.accepted, INFINITY};
    for (size_t i = 0; i < power.count; i++)
        if (power.rows[i].result == MHA_POWER_REJECTED)
            w->least = fmin(w->least, power.rows[i].factor);
    mha_power_clear(&power);
    return MHA_OK;
}

/* Computes the exact result of a draft, and writes both. */
static mha_status save(draft *d, const char *path, mha_error *error)
{
    const bool wanted[MHA_STAGE_COUNT] = {[MHA_STAGE_OUTPUT] = true};
    const mha__request request = {
        .layer = d->layer, .call = &d->call, .past_key = d->notes.past_key, .past_value = d->notes.past_value};
    mha__attempt attempt;
    d->call.path = MHA_PATH_EXACT;
    mha_status status = mha__attempt_make(&attempt, NULL, &request, MHA_BTE, wanted, error);
    d->call.output = attempt.stages[MHA_STAGE_OUTPUT];
    if (status == MHA_OK)
        status = mha_case_save(path, d->layer, &d->call, &d->notes, error);
    mha__attempt_free(&attempt);
    return status;
}

mha_status mha_case_suggest(const char *path, const mha_suggestion *wish, int threads, const mha_progress *progress,
                            mha_error *error)
{
    enum { SEEDS = 2 };
    static const double peaks[] = {1, 2, 4};
    uint64_t best_seed = wish->seed;
    double best_peak = peaks[0];
    worth best = {SIZE_MAX, 0};
    draft d;
    mha_status status = check(wish, error);
    for (uint64_t seed = wish->seed; seed < wish->seed + SEEDS; seed++)
        for (size_t i = 0; i < sizeof peaks / sizeof *peaks && status == MHA_OK; i++) {
            worth found = {0};
            status = make(&d, wish, seed, peaks[i], error);
            if (status == MHA_OK)
                status = weigh(&d, threads, progress, &found, error);
            drop(&d);
            if (found.undecided > best.undecided || (found.undecided == best.undecided && found.least <= best.least))
                continue;
            best = found;
            best_seed = seed;
            best_peak = peaks[i];
        }
    if (status != MHA_OK)
        return status;
    status = make(&d, wish, best_seed, best_peak, error);
    if (status == MHA_OK)
        status = save(&d, path, error);
    drop(&d);
    return status;
}
