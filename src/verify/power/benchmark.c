/* Published tests: draws their inputs anew, and finds the bugs that every case of a test accepts. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/layer/layer.h"
#include "base/arena.h"
#include "lab/lab.h"
#include "mha/random.h"
#include "mha/setting.h"
#include "verify/power/criterion.h"

static const struct {
    const char *name, *text;
} benchmarks[] = {
#include "benchmarks.inc"
};

enum { N_BENCHMARKS = sizeof benchmarks / sizeof *benchmarks };

const char *mha_benchmark_at(size_t index, const char **json)
{
    if (index >= N_BENCHMARKS)
        return NULL;
    if (json)
        *json = benchmarks[index].text;
    return benchmarks[index].name;
}

/* A case of a published test. The JSON that it is read from is tested data of the library, not input. */
typedef struct draft {
    const json_t *inputs; /* their laws */
    mha__arena pool;
    mha_layer *layer; /* NULL: query, key and value are given for each head */
    mha_config config;
    size_t batch, queries, keys;
    mha_call call;
    mha_criterion criterion;
} draft;

static mha_status open_benchmark(const char *name, json_t **file, mha_error *error)
{
    for (size_t i = 0; i < N_BENCHMARKS; i++)
        if (strcmp(benchmarks[i].name, name) == 0) {
            *file = json_loads(benchmarks[i].text, 0, NULL);
            return *file ? MHA_OK : mha__fail(error, MHA_NO_MEMORY, "benchmark", "no memory to read %s", name);
        }
    return mha__fail(error, MHA_NOT_FOUND, "benchmark", "expected the name of a published test, found \"%s\"", name);
}

/* A value of a case, or else of the whole file. */
static const json_t *value_of(const json_t *file, const json_t *one, const char *key)
{
    const json_t *own = json_object_get(one, key);
    return own ? own : json_object_get(file, key);
}

static double number(const json_t *file, const json_t *one, const char *key, double missing)
{
    const json_t *found = value_of(file, one, key);
    return found ? json_number_value(found) : missing;
}

/* Draws a tensor by its own law or by that of all inputs: "uniform": [from, to], "normal": [mean, standard deviation],
 * "clamp": the largest absolute value. Rounded to the type of the test. */
static mha_status draw(draft *d, const char *name, int rank, const size_t *shape, mha_view *view, mha_error *error)
{
    enum { SEED = 7 };
    const json_t *own = json_object_get(d->inputs, name), *law = own ? own : d->inputs,
                 *normal = json_object_get(law, "normal"), *range = normal ? normal : json_object_get(law, "uniform"),
                 *clamp = json_object_get(law, "clamp");
    const double a = json_number_value(json_array_get(range, 0)), b = json_number_value(json_array_get(range, 1)),
                 most = clamp ? json_number_value(clamp) : INFINITY;
    const mha_dtype type = d->criterion.precision == MHA_TF32 ? MHA_F32 : d->criterion.precision;
    const uint64_t stream = (uint64_t)*name;
    size_t index[MHA_MAX_RANK] = {0};
    *view = mha__arena_view(&d->pool, type, rank, shape);
    if (!view->data)
        return mha__fail(error, MHA_NO_MEMORY, "benchmark", "no memory for its inputs");
    for (uint64_t i = 0; i < mha_view_elements(view); i++, mha__index_next(index, view->shape, rank)) {
        const double u = mha__random_unit(SEED, stream, 2 * i), v = mha__random_unit(SEED, stream, 2 * i + 1);
        const double x = normal ? a + b * sqrt(-2 * log(1 - u)) * cos(2 * 3.141592653589793 * v) : a + (b - a) * u;
        mha_view_set(view, index, fmax(-most, fmin(x, most)));
    }
    return MHA_OK;
}

/* A layer as torch.nn.Linear draws it: uniform within 1 / sqrt(rows of the matrix). */
static mha_status make_layer(draft *d, mha_error *error)
{
    static const mha_weight matrices[] = {MHA_W_Q, MHA_W_K, MHA_W_V, MHA_W_O};
    d->config.bias_q = d->config.bias_k = d->config.bias_v = d->config.bias_o = true;
    TRY(mha_layer_create(&d->config, NULL, NULL, &d->layer, error));
    mha_layer_init(d->layer, 0);
    for (int i = 0; i < 4; i++) {
        const mha_view W = mha_tensor_view(mha_layer_weight(d->layer, matrices[i]));
        const float most = 1 / sqrtf((float)W.shape[0]);
        mha_random_fill(&W, 0, 64 + (uint64_t)i, -most, most);
    }
    return MHA_OK;
}

static mha_status make_inputs(draft *d, mha_error *error)
{
    const mha_config *c = &d->config;
    mha_call *call = &d->call;
    if (c->d_model > 0) {
        TRY(make_layer(d, error));
        return draw(d, "query", 3, (size_t[]){d->batch, d->queries, c->d_model}, &call->query, error);
    }
    TRY(draw(d, "query", 4, (size_t[]){d->batch, d->queries, c->n_heads, c->d_k}, &call->query, error));
    TRY(draw(d, "key", 4, (size_t[]){d->batch, d->keys, c->kv_heads, c->d_k}, &call->key, error));
    if (!json_is_string(json_object_get(d->inputs, "value")))
        return draw(d, "value", 4, (size_t[]){d->batch, d->keys, c->kv_heads, c->d_v}, &call->value, error);
    call->value = call->key; /* "key": the first columns of the keys */
    call->value.shape[3] = c->d_v;
    return MHA_OK;
}

static mha_status make(draft *d, const json_t *file, size_t index, mha_error *error)
{
    const json_t *one = json_array_get(json_object_get(file, "cases"), index);
    const char *kind = json_string_value(value_of(file, one, "criterion"));
    json_t *setting;
    const char *key;
    *d = (draft){.inputs = value_of(file, one, "inputs"), .pool.allocator = mha__allocator_default()};
    (void)mha__dtype_find(json_string_value(json_object_get(file, "type")), &d->criterion.precision);
    for (mha_criterion_kind k = 0; k <= MHA_CRITERION_ERRORS; k++)
        if (strcmp(kind, mha_criterion_name(k)) == 0)
            d->criterion.kind = k;
    d->criterion.rtol = number(file, one, "rtol", 0);
    d->criterion.atol = number(file, one, "atol", 0);
    d->criterion.limit = number(file, one, "limit", 0);
    d->batch = (size_t)number(file, one, "batch", 1);
    d->queries = (size_t)number(file, one, "queries", 0);
    d->keys = (size_t)number(file, one, "keys", (double)d->queries);
    d->config.n_heads = (size_t)number(file, one, "heads", 0);
    d->config.kv_heads = (size_t)number(file, one, "kv_heads", (double)d->config.n_heads);
    d->config.d_model = (size_t)number(file, one, "d_model", 0);
    d->config.d_k = (size_t)number(file, one, "width", 0);
    d->config.d_v = (size_t)number(file, one, "value_width", (double)d->config.d_k);
    json_object_foreach(json_object_get(one, "settings"), key, setting)
        TRY(mha_setting_put(mha_setting_find(key), json_string_value(setting), &d->call.semantics, error));
    return make_inputs(d, error);
}

static void drop(draft *d)
{
    mha_layer_destroy(d->layer);
    mha__arena_free(&d->pool);
}

/* Merges the rows of one case into `rows`, one for each known bug. Names are static, so pointers are equal. */
static void merge(mha_power_row *rows, const mha_power *found)
{
    size_t bug = 0;
    for (size_t i = 0; i < found->count; i++) {
        const mha_power_row *one = &found->rows[i];
        while (mha_bug_at(bug)->name != one->bug)
            bug++;
        mha_power_row *row = &rows[bug];
        const mha_power_row before = row->bug ? *row : *one;
        *row = *one;
        if (before.result < one->result) /* in the order rejected, accepted, same */
            row->result = before.result;
        row->max_abs = fmax(before.max_abs, one->max_abs);
        row->factor = fmax(before.factor, one->factor);
        row->excess = fmax(before.excess, one->excess);
    }
}

/* Gives the result the rows of all bugs that apply to a case. */
static mha_status finish(mha_power *p, const mha_power_row *rows, mha_error *error)
{
    const mha_allocator a = mha__allocator_default();
    size_t count = 0;
    for (size_t i = 0; i < mha_bug_count(); i++)
        count += rows[i].bug != NULL;
    if (count > 0 && !(p->rows = mha__allocate(&a, count * sizeof *p->rows)))
        return mha__fail(error, MHA_NO_MEMORY, "benchmark", "no memory for its rows");
    for (size_t i = 0; i < mha_bug_count(); i++)
        if (rows[i].bug) {
            p->rows[p->count] = rows[i];
            mha__power_count(p, &p->rows[p->count++]);
        }
    return MHA_OK;
}

mha_status mha_benchmark_power(const char *name, int threads, const mha_progress *progress, mha_power *result,
                               mha_error *error)
{
    json_t *file = NULL;
    mha_power_row *rows = calloc(mha_bug_count(), sizeof *rows);
    *result = (mha_power){.count = 0};
    mha_status status = rows ? open_benchmark(name, &file, error)
                             : mha__fail(error, MHA_NO_MEMORY, "benchmark", "no memory for its rows");
    const size_t n = json_array_size(json_object_get(file, "cases"));
    for (size_t i = 0; i < n && status == MHA_OK; i++) {
        draft d;
        mha_case *c = NULL;
        mha_power found = {.count = 0};
        status = make(&d, file, i, error);
        if (status == MHA_OK)
            status = mha_case_of_call(d.layer, &d.call, NULL, 0, NULL, &c, error);
        if (status == MHA_OK)
            status = mha_case_power(c, &d.criterion, threads, progress, &found, error);
        if (status == MHA_OK) {
            merge(rows, &found);
            if (i == 0) {
                *result = found;
                result->rows = NULL;
                result->count = result->rejected = result->accepted = result->same = result->faint = 0;
            }
        }
        mha_power_clear(&found);
        mha_case_close(c);
        drop(&d);
    }
    if (status == MHA_OK)
        status = finish(result, rows, error);
    json_decref(file);
    free(rows);
    return status;
}

mha_status mha_benchmark_suggest(const char *name, const char *path, int threads, const mha_progress *progress,
                                 mha_criterion *criterion, mha_error *error)
{
    enum { KEYS = 9, QUERIES = 5 };
    json_t *file = NULL;
    draft d;
    TRY(open_benchmark(name, &file, error));
    mha_status status = make(&d, file, 0, error);
    mha_semantics *s = &d.call.semantics;
    if (status == MHA_OK) {
        const size_t q_len = d.queries == 1 ? 1 : d.queries == d.keys ? KEYS : QUERIES;
        if (s->place.has_offset)
            s->place.offset = (int64_t)(KEYS - q_len);
        const mha_suggestion wish = {.config = d.layer ? *mha_layer_config(d.layer) : d.config, .by_head = !d.layer,
                                     .q_len = q_len, .kv_len = KEYS, .semantics = *s};
        status = mha_case_suggest(path, &wish, threads, progress, error);
    }
    *criterion = d.criterion;
    drop(&d);
    json_decref(file);
    return status;
}
