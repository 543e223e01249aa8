/* A failing machine: allocations, mappings and file operations of every call of the library fail, each once: the
 * first of each call stack, and a drawn share of the others. Nothing crashes, nothing leaks, the status is
 * MHA_NO_MEMORY or MHA_IO with one line of message, what was made can be destroyed, files appear whole or not at all;
 * and where the call succeeds all the same, its result is the one without the failure. Interrupted and partial
 * transfers are no failure. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/timed_run.h"
#include "inject/inject.h"
#include "lab/lab.h"
#include "models/claims/claims.h"
#include "mha/lab.h"
#include "mha/model.h"
#include "support/recase.h"
#include "support/scratch.h"
#include "support/trial.h"
#include "support/unit.h"
#include "base/base.h"

/* ---------------------------------------------------------------- the harness */

/* Does one thing with the library, start to end, and releases everything. What comes out goes to `digest`. */
typedef mha_status (*scenario)(const char *path, mha_error *error);

static uint64_t digest;

static void digest_bytes(const void *data, size_t count)
{
    for (size_t i = 0; i < count; i++)
        digest = (digest ^ ((const unsigned char *)data)[i]) * 0x100000001B3u; /* FNV-1a */
}

static void digest_text(const char *text)
{
    digest_bytes(text, strlen(text));
}

typedef struct outcome {
    mha_status status;
    mha_error error;
    uint64_t digest;
    const char *fired;
    long live;
} outcome;

static outcome attempt(scenario run, const char *path, inject_mode mode, size_t at)
{
    outcome o = {0};
    digest = 0xCBF29CE484222325u;
    inject_arm(mode, at);
    o.status = run(path, &o.error);
    inject_disarm();
    o.fired = inject_fired();
    o.live = inject_live();
    o.digest = digest;
    return o;
}

static bool one_line(const char *message)
{
    return *message && !strchr(message, '\n');
}

/* The fault of an outcome; NULL: none. */
static const char *check(const outcome *o, const outcome *normal, inject_mode mode)
{
    bool machine = o->status == MHA_NO_MEMORY || o->status == MHA_IO;
    if (o->live != 0)
        return "something is still held";
    if (o->status != normal->status && (mode != INJECT_FAILURE || !machine))
        return "the status is another";
    if (o->status != MHA_OK && !one_line(o->error.message))
        return "no line of message";
    if (o->status == normal->status && !machine && o->digest != normal->digest)
        return "the result is another";
    return NULL;
}

enum { VISITED = 1 << 20 };
static uint64_t *visited; /* hashes of failed calls, which the processes of all scenarios share; 0: free */

/* True if no call with this stack has failed before in a scenario of this kind. */
static bool is_new(scenario run, int mode, uint64_t stack)
{
    const uint64_t key = mha__random_bits(stack, (uint64_t)mode, (uint64_t)(uintptr_t)run) | 1;
    size_t at = key % VISITED;
    while (visited[at] && visited[at] != key)
        at = (at + 1) % VISITED;
    const bool found = visited[at] == key;
    visited[at] = key;
    return !found;
}

/* Number of points that failed in turn, 0 when one was not survived. */
static size_t every_point(const char *name, scenario run, const char *path)
{
    static const char *const modes[] = {"", "failing", "interrupted", "short"};
    attempt(run, path, INJECT_NOTHING, 0); /* work that a process does once */
    const outcome normal = attempt(run, path, INJECT_NOTHING, 0);
    size_t points = 0;
    if (normal.live != 0) {
        fprintf(stderr, "%s: without any failure %ld things are still held\n", name, normal.live);
        return 0;
    }
    for (int mode = INJECT_FAILURE; mode <= INJECT_SHORT; mode++) {
        uint64_t stack;
        for (size_t at = 1; (stack = inject_stack(at, mode != INJECT_FAILURE)) != 0; at++) {
            if (!is_new(run, mode, stack) && !trial_drawn(29, at))
                continue;
            const outcome o = attempt(run, path, (inject_mode)mode, at);
            if (!o.fired) /* a benchmark makes as many calls as its time allows */
                continue;
            const char *wrong = check(&o, &normal, (inject_mode)mode);
            points++;
            if (wrong) {
                fprintf(stderr, "%s: call %zu, a %s %s: %s: %s (%s), without it %s, %ld held\n", name, at, modes[mode],
                        o.fired, wrong, mha__status_name(o.status), o.error.message, mha__status_name(normal.status),
                        o.live);
                return 0;
            }
        }
    }
    return points + 1; /* the run without failure */
}

static size_t all_points;

/* In a process of its own: a crash or a hang there is a finding here. */
static void survives(const char *name, scenario run, const char *path)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(HANG_SECONDS);
        size_t points = every_point(name, run, path);
        inject_exit(write(ends[1], &points, sizeof points) == sizeof points ? 0 : 1);
    }
    close(ends[1]);
    size_t points = 0;
    bool told = read(ends[0], &points, sizeof points) == sizeof points;
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        fail_msg("%s: ended by signal %d", name, WTERMSIG(status));
    if (!told || points == 0)
        fail_msg("%s: a failure was not survived", name);
    all_points += points - 1;
}

/* ---------------------------------------------------------------- layers */

static mha_config small_layer(void)
{
    return (mha_config){.d_model = 8, .n_heads = 2, .bias_q = true, .bias_k = true, .bias_v = true, .bias_o = true,
                        .bias_kv = true, .sinks = true, .q_norm = MHA_NORM_HEAD, .k_norm = MHA_NORM_ROW};
}

enum { T = 3, D = 8 };
static float inputs[T * D], results[T * D];

static mha_call small_call(mha_path path)
{
    for (size_t i = 0; i < T * D; i++)
        inputs[i] = (float)(i % 7) - 3.0f;
    mha_call call = {.query = mha_view_of(inputs, MHA_F32, 3, (const size_t[]){1, T, D}), .path = path, .threads = 1};
    call.output = mha_view_of(results, MHA_F32, 3, (const size_t[]){1, T, D});
    call.semantics.visible.causal = true;
    return call;
}

static mha_status run_layer(const mha_layer *layer, mha_path path, mha_cache *cache, mha_error *error)
{
    mha_call call = small_call(path);
    call.cache = cache;
    mha_plan plan;
    mha_status status = mha_plan_call(layer, &call, &plan, error);
    if (status != MHA_OK)
        return status;
    void *workspace = malloc(plan.workspace_bytes);
    if (!workspace) {
        snprintf(error->message, sizeof error->message, "the test has no memory");
        return MHA_NO_MEMORY;
    }
    status = mha_forward(&plan, workspace, plan.workspace_bytes, error);
    free(workspace);
    digest_bytes(results, sizeof results);
    return status;
}

static mha_status make_layer(mha_params **table, mha_layer **layer, mha_error *error)
{
    *layer = NULL;
    mha_config config = small_layer();
    mha_status status = mha_params_create(NULL, table, NULL);
    if (status != MHA_OK) /* this call has no room for a message */
        return snprintf(error->message, sizeof error->message, "no table"), status;
    status = mha_layer_create(&config, *table, "layer.", layer, error);
    if (status != MHA_OK) { /* then no row remains */
        digest_text(mha_params_count(*table) == 0 ? "" : "a row remained");
        if (mha_params_count(*table) != 0)
            status = MHA_INVALID;
        mha_params_destroy(*table);
        *table = NULL;
        return status;
    }
    mha_layer_init(*layer, 1);
    return MHA_OK;
}

static mha_status layer_and_forward(const char *path, mha_error *error)
{
    (void)path;
    mha_params *table = NULL;
    mha_layer *layer = NULL;
    mha_status status = make_layer(&table, &layer, error);
    if (status != MHA_OK)
        return status;
    status = mha_layer_mark_inert(layer, NULL, NULL);
    if (status != MHA_OK)
        snprintf(error->message, sizeof error->message, "no marks");
    for (int p = MHA_PATH_AUTO; status == MHA_OK && p < MHA_PATH_COUNT; p++)
        status = run_layer(layer, (mha_path)p, NULL, error);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
    return status;
}

static mha_status cache_of_keys(const char *path, mha_error *error)
{
    (void)path;
    mha_params *table = NULL;
    mha_layer *layer = NULL;
    mha_cache *cache = NULL;
    mha_cache_spec spec = {.batch = 1, .kv_heads = 2, .d_k = 4, .d_v = 4, .capacity = 8};
    mha_status status = make_layer(&table, &layer, error);
    if (status != MHA_OK)
        return status;
    status = mha_cache_create(&spec, NULL, &cache, error);
    if (status == MHA_OK)
        status = run_layer(layer, MHA_PATH_AUTO, cache, error);
    if (status == MHA_OK)
        status = run_layer(layer, MHA_PATH_AUTO, cache, error);
    mha_cache_destroy(cache);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
    return status;
}

static mha_status table_of_rows(const char *path, mha_error *error)
{
    (void)path;
    mha_params *table = NULL;
    mha_status status = mha_params_create(NULL, &table, NULL);
    if (status != MHA_OK)
        return snprintf(error->message, sizeof error->message, "no table"), status;
    char name[32], alias[32];
    for (int i = 0; i < 40 && status == MHA_OK; i++) {
        mha_tensor *row = NULL;
        snprintf(name, sizeof name, "row.%d", i);
        snprintf(alias, sizeof alias, "alias.%d", i);
        mha_tensor_spec spec = {.name = name, .role = "W", .group = "attention", .rank = 2, .shape = {3, 5}};
        status = mha_params_add(table, &spec, &row, error);
        spec.name = alias;
        if (status == MHA_OK)
            status = mha_params_alias(table, &spec, row, NULL, error);
        mha_totals totals = mha_params_totals(table, NULL); /* what it holds stays consistent */
        if (totals.tensors != mha_params_count(table) || totals.parameters != 15 * totals.storages)
            return MHA_INVALID;
    }
    digest_bytes(&(size_t){mha_params_count(table)}, sizeof(size_t));
    mha_params_destroy(table);
    return status;
}

/* A layer whose weights cannot all be packed has none packed, and computes the same. */
static mha_status packed_layer(const char *path, mha_error *error)
{
    (void)path;
    mha_params *table = NULL;
    mha_layer *layer = NULL;
    mha_status status = make_layer(&table, &layer, error);
    if (status != MHA_OK)
        return status;
    size_t before = mha_params_count(table);
    status = mha_layer_pack(layer, error);
    if (status != MHA_OK && mha_params_count(table) != before)
        status = MHA_INVALID;
    if (status == MHA_OK)
        status = run_layer(layer, MHA_PATH_FAST, NULL, error);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
    return status;
}

/* ---------------------------------------------------------------- files */

static mha_status read_all(const char *path, mha_error *error)
{
    mha_file *file = NULL;
    mha_status status = mha_file_open(path, &file, error);
    for (size_t i = 0; status == MHA_OK && i < mha_file_count(file); i++) {
        const mha_file_tensor *tensor = mha_file_at(file, i);
        static double values[4096];
        digest_text(tensor->name);
        if (tensor->elements > sizeof values / sizeof *values)
            continue;
        mha_view to = mha_view_of(values, MHA_F64, tensor->rank, tensor->shape);
        mha_error why = {0};
        mha_status read = mha_file_read(file, tensor, &to, &why);
        if (read == MHA_OK)
            digest_bytes(values, tensor->elements * sizeof *values);
        else if (read == MHA_IO || read == MHA_NO_MEMORY)
            status = read, *error = why;
    }
    mha_file_close(file);
    return status;
}

static mha_status read_config(const char *path, mha_error *error)
{
    mha_model_facts facts = {0};
    mha_status status = mha_model_read_config(path, &facts, error);
    if (status == MHA_OK)
        digest_bytes(&facts.config.d_model, 4 * sizeof facts.config.d_model);
    return status;
}

/* A file of a few tensors and metadata, over one that is there already. */
static mha_status write_over(const char *path, mha_error *error)
{
    static const float values[6] = {1, 2, 3, 4, 5, 6};
    static const char before[] = "what was there before";
    bool npy = strstr(path, ".npy") != NULL;
    inject_disarm();
    const char *target = scratch_write(path, before, sizeof before - 1);
    chmod(target, 0640);
    inject_resume();
    union {
        const float *in;
        void *out;
    } data = {values};
    mha_view view = mha_view_of(data.out, MHA_F32, 2, (const size_t[]){2, 3});
    mha_writer *writer = NULL;
    mha_status status = mha_writer_create(target, &writer, error);
    if (status == MHA_OK)
        status = mha_writer_add(writer, "a", &view, error);
    if (status == MHA_OK && !npy)
        status = mha_writer_add(writer, "b", &view, error);
    if (status == MHA_OK && !npy)
        status = mha_writer_add_metadata(writer, "key", "value", error);
    if (status == MHA_OK)
        status = mha_writer_commit(writer, error);
    mha_writer_destroy(writer);

    inject_disarm();
    size_t count;
    unsigned char *now = scratch_read(target, &count);
    bool old = count == sizeof before - 1 && memcmp(now, before, count) == 0;
    if (status == MHA_OK)
        digest_bytes(now, count);
    free(now);
    struct stat kept = {0};
    if (stat(target, &kept) != 0 || (kept.st_mode & 0777) != 0640)
        return snprintf(error->message, sizeof error->message, "its permissions are others"), MHA_INVALID;
    const char *fired = inject_fired();
    bool mess = scratch_count_files() != 1 && !(fired && strcmp(fired, "unlink") == 0);
    remove(target);
    if (status != MHA_OK ? !old : old)
        return snprintf(error->message, sizeof error->message, "the file is neither the old one nor whole"),
               MHA_INVALID;
    if (mess)
        return snprintf(error->message, sizeof error->message, "another file was left"), MHA_INVALID;
    return status;
}

/* ---------------------------------------------------------------- cases, models, claims */

static mha_status check_case(const char *path, mha_error *error)
{
    mha_case *c = NULL;
    mha_status status = mha_case_open(path, NULL, &c, error);
    for (int p = MHA_PATH_FAST; status == MHA_OK && p < MHA_PATH_COUNT; p++) {
        mha_verdict verdict;
        status = mha_case_check(c, (mha_path)p, NULL, 1, &verdict, error);
        if (status == MHA_OK) {
            digest_bytes(&verdict.outcome, sizeof verdict.outcome);
            digest_bytes(&verdict.stage_count, sizeof verdict.stage_count);
            mha_verdict_clear(&verdict);
        }
    }
    mha_case_close(c);
    return status;
}

/* Gradients that no bug explains, their bound, and the search for one. */
static mha_status gradients_of_call(const char *path, mha_error *error)
{
    static const float x[2 * 3 * 4] = {1, -1, 2, 0.5f, 3, -2, 1, 1};
    mha_gradient_match found[4];
    const mha_call call = {.query = mha_heads(x, 1, 3, 2, 4), .key = mha_heads(x, 1, 3, 2, 4),
                           .value = mha_heads(x, 1, 3, 2, 4), .threads = 1};
    double d[3][2 * 3 * 4], scores[2 * 3 * 3];
    const mha_backward_keep keep = {MHA_BACKWARD_D_SCORES,
                                    mha_view_of(scores, MHA_F64, 4, (const size_t[]){1, 2, 3, 3})};
    mha_gradients g = {.d_output = mha_heads(x, 1, 3, 2, 4), .keep = &keep, .keep_count = 1};
    size_t count = 0;
    bool right = false;
    (void)path;
    for (int i = 0; i < 3; i++)
        g.of[i] = mha_view_of(d[i], MHA_F64, 4, (const size_t[]){1, 3, 2, 4});
    mha_status status = mha_backward(NULL, &call, &g, error);
    if (status == MHA_OK)
        digest_bytes(d, sizeof d), digest_bytes(scores, sizeof scores);
    d[0][5] += 1;
    if (status == MHA_OK)
        status = mha_gradient_explain(NULL, &call, &g, 0x1p-24, found, 4, &count, &right, error);
    if (status == MHA_OK)
        digest_bytes(&count, sizeof count), digest_bytes(&right, sizeof right);
    if (status == MHA_OK)
        status = mha_gradient_bound(NULL, &call, &g, 0x1p-24, error);
    if (status == MHA_OK)
        digest_bytes(d, sizeof d), digest_bytes(scores, sizeof scores);
    return status;
}

/* Gradients of a layer of latents, in its table. */
static mha_status gradients_of_layer(const char *path, mha_error *error)
{
    static const float x[3 * 4] = {1, -1, 2, 0.5f, 3, -2, 1, 1};
    const mha_config config = {.d_model = 4, .n_heads = 2, .d_k = 4, .kv_rank = 3, .q_rank = 2, .d_rope = 2,
                               .gate = MHA_GATE_HEAD};
    const mha_call call = {.query = mha_rows(x, 1, 3, 4), .threads = 1};
    mha_gradients g = {.d_output = mha_rows(x, 1, 3, 4)};
    mha_layer *layer = NULL;
    (void)path;
    mha_status status = mha_layer_create(&config, NULL, NULL, &layer, error);
    if (status == MHA_OK) {
        mha_layer_init(layer, 1);
        status = mha_layer_add_gradients(layer, MHA_F64, error);
        mha_layer_lend_gradients(layer, &g);
    }
    if (status == MHA_OK)
        status = mha_backward(layer, &call, &g, error);
    for (int w = 0; w < MHA_WEIGHT_COUNT && status == MHA_OK; w++)
        if (g.of[MHA_D_WEIGHTS + w].data)
            digest_bytes(g.of[MHA_D_WEIGHTS + w].data, mha_view_elements(&g.of[MHA_D_WEIGHTS + w]) * sizeof(double));
    mha_layer_destroy(layer);
    return status;
}

static mha_status save_case(const char *path, mha_error *error)
{
    mha_params *table = NULL;
    mha_layer *layer = NULL;
    mha_status status = make_layer(&table, &layer, error);
    if (status != MHA_OK)
        return status;
    const char *target = scratch_path(path);
    mha_call call = small_call(MHA_PATH_BLAS);
    mha_case_notes notes = {.name = "a name"};
    status = run_layer(layer, MHA_PATH_BLAS, NULL, error);
    if (status == MHA_OK)
        status = mha_case_save(target, layer, &call, &notes, error);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
    return status;
}

/* A call with all that a case copies, checked by what it was told. */
static mha_status case_of_call(const char *path, mha_error *error)
{
    (void)path;
    static int64_t positions[T] = {4, 1, 7};
    mha_params *table = NULL;
    mha_layer *layer = NULL;
    mha_case *c = NULL;
    mha_verdict verdict = {0};
    mha_status status = make_layer(&table, &layer, error);
    if (status != MHA_OK)
        return status;
    mha_call call = small_call(MHA_PATH_AUTO);
    call.semantics.place.offset = 1;
    call.semantics.qkv.rope = (mha_rope){
        .kind = MHA_ROPE_HALF_SPLIT, .q_positions = mha_view_of(positions, MHA_I64, 2, (const size_t[]){1, T})};
    const mha_keep recorded = {.stage = MHA_STAGE_OUTPUT, .view = call.query}; /* a wrong one */
    status = mha_case_of_call(layer, &call, &recorded, 1, NULL, &c, error);
    if (status == MHA_OK)
        status = mha_case_check(c, MHA_PATH_AUTO, NULL, 1, &verdict, error);
    digest_bytes(&verdict.outcome, sizeof verdict.outcome);
    digest_bytes(&verdict.stage_count, sizeof verdict.stage_count);
    mha_verdict_clear(&verdict);
    mha_case_close(c);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
    return status;
}

/* A shape of mha bench, checked and timed; the first word is the part. */
static mha_status benchmark(const char *words, mha_error *error)
{
    bench_shape shape;
    bench_subject subject;
    mha_path taken = MHA_PATH_AUTO;
    double worst = 0, ms;
    size_t part = 0;
    const char *text = strchr(words, ' ') + 1;
    while (part < BENCH_PARTS && strncmp(words, bench_part_name((bench_part)part), (size_t)(text - words - 1)) != 0)
        part++;
    if (part == BENCH_PARTS || bench_shape_fault(text, &shape))
        return snprintf(error->message, sizeof error->message, "no shape: %s", words), MHA_INVALID;
    shape.cache = shape.T_q == 1 ? MHA_F16 : MHA_F32;
    mha_status status = bench_subject_make(&subject, &shape, (bench_part)part, true, error);
    if (status == MHA_OK)
        status = bench_subject_check(&subject, MHA_PATH_FAST, 1, &worst, error);
    if (status == MHA_OK)
        status = bench_subject_run(&subject, MHA_PATH_FAST, 1, &taken, &ms, error);
    digest_bytes(&worst, sizeof worst);
    digest_bytes(&taken, sizeof taken);
    bench_subject_free(&subject);
    return status;
}

static mha_status diagnose_case(const char *path, mha_error *error)
{
    mha_case *c = NULL;
    mha_diagnosis diagnosis = {0};
    mha_status status = mha_case_open(path, NULL, &c, error);
    if (status == MHA_OK)
        status = mha_case_diagnose(c, NULL, 1, NULL, &diagnosis, error);
    digest_bytes(&diagnosis.tried, sizeof diagnosis.tried);
    digest_bytes(&diagnosis.match_count, sizeof diagnosis.match_count);
    for (size_t i = 0; i < diagnosis.match_count; i++)
        for (size_t v = 0; v < diagnosis.matches[i].count; v++)
            digest_text(diagnosis.matches[i].bugs[v]);
    mha_diagnosis_clear(&diagnosis);
    mha_case_close(c);
    return status;
}

static mha_status measure_power(const char *path, mha_error *error)
{
    mha_case *c = NULL;
    mha_power power = {0};
    mha_status status = mha_case_open(path, NULL, &c, error);
    if (status == MHA_OK)
        status = mha_case_power(c, &(mha_criterion){0}, 1, NULL, &power, error);
    digest_bytes(&power.rejected, sizeof power.rejected);
    mha_power_clear(&power);
    mha_case_close(c);
    return status;
}

/* Makes a test case by its name, its result by a choice that is a bug, checks that and writes both. */
static mha_status ask_test_case(const char *name, mha_error *error)
{
    mha_conform_row row;
    mha_test_case *q = NULL;
    mha_test_result result;
    mha_verdict verdict = {0};
    mha_conform_choices choices = {0};
    size_t index = 0;
    while (mha_conform_at(index, &row) && strcmp(row.name, name) != 0)
        index++;
    mha_status status = mha_conform_choices_put("lse=base-2,empty=mean", &choices, error);
    if (status == MHA_OK)
        status = mha_test_case_create(index, MHA_F16, &choices, &q, error);
    if (status == MHA_OK)
        status = mha_test_case_exact(q, &result, error);
    if (status == MHA_OK)
        status = mha_test_case_check(q, &result, &verdict, error);
    digest_bytes(&verdict.outcome, sizeof verdict.outcome);
    mha_verdict_clear(&verdict);
    if (status == MHA_OK)
        status = mha_test_case_save(q, scratch_path("test case.safetensors"), &result, error);
    mha_test_case_destroy(q);
    return status;
}

static mha_status suggest_case(const char *name, mha_error *error)
{
    const mha_suggestion wish = {.config = {.n_heads = 1, .d_k = 1, .sinks = true, .q_norm = MHA_NORM_HEAD},
                                 .by_head = true,
                                 .batch = 1,
                                 .q_len = 1,
                                 .kv_len = 2,
                                 .past_len = 1,
                                 .with = MHA_WITH_MASK | MHA_WITH_PADDING | MHA_WITH_LENGTHS | MHA_WITH_POISON};
    return mha_case_suggest(scratch_path(name), &wish, 1, NULL, error);
}

static mha_status whole_model(const char *config, mha_error *error)
{
    mha_params *table = NULL;
    mha_model *model = NULL;
    mha_model_costs costs;
    mha_model_spec spec = {.config = config};
    mha_status status = mha_params_create(NULL, &table, NULL);
    if (status != MHA_OK)
        return snprintf(error->message, sizeof error->message, "no table"), status;
    status = mha_model_create(&spec, table, &model, error);
    if (status == MHA_OK)
        status = mha_model_costs_of(model, &(mha_model_pass){1, 4, 0}, &costs, error);
    if (status == MHA_OK) {
        mha_totals totals = mha_params_totals(table, NULL);
        digest_bytes(&totals.parameters, sizeof totals.parameters);
        mha_model_destroy(model);
    }
    if (mha_params_count(table) != 0)
        status = MHA_INVALID;
    mha_params_destroy(table);
    return status;
}

static mha_status layer_of_checkpoint(const char *path, mha_error *error)
{
    mha_params *table = NULL;
    mha_layer *layer = NULL;
    mha_file *file = NULL;
    mha_load_options options = {.n_heads = 2};
    mha_status status = mha_params_create(NULL, &table, NULL);
    if (status != MHA_OK)
        return snprintf(error->message, sizeof error->message, "no table"), status;
    status = mha_file_open(path, &file, error);
    if (status == MHA_OK)
        status = mha_model_load_layer(file, &options, table, &layer, NULL, error);
    mha_file_totals totals;
    mha_layer_destroy(layer);
    if (status == MHA_OK)
        status = mha_file_list_params(file, table, NULL, NULL, &totals, error);
    mha_file_close(file);
    mha_params_destroy(table);
    return status;
}

static mha_status claim(const char *path, mha_error *error)
{
    mha__claim checked;
    mha_status status = mha__claim_check((size_t)atoi(path), &checked, error);
    if (status == MHA_OK)
        digest_bytes(&checked.verdict, sizeof checked.verdict),
            digest_bytes(&checked.holds.counted, sizeof checked.holds.counted);
    return status;
}

/* The claim whose configuration begins so. */
static const char *claim_about(const char *configuration)
{
    static char number[24];
    for (size_t i = 0; i < mha__claim_count(); i++) {
        mha__claim checked;
        mha_status status = mha__claim_check(i, &checked, NULL); /* not every machine has the room for every model */
        snprintf(number, sizeof number, "%zu", i);
        if (status == MHA_OK && strncmp(checked.holds.configuration, configuration, strlen(configuration)) == 0)
            return number;
    }
    fail_msg("no claim about %s", configuration);
    return NULL;
}

/* A question that the system refuses has another result, never none. */
static mha_status ask_the_machine(const char *path, mha_error *error)
{
    (void)path;
    if (mha__memory_at_hand() > 0 && mha_threads_available() > 0)
        return MHA_OK;
    snprintf(error->message, sizeof error->message, "nothing there");
    return MHA_INVALID;
}

/* ---------------------------------------------------------------- tests */

static void layers_survive(void **state)
{
    (void)state;
    survives("layer and forward", layer_and_forward, NULL);
    survives("cache", cache_of_keys, NULL);
    survives("table", table_of_rows, NULL);
    survives("packed layer", packed_layer, NULL);
}

/* A fuzzer's input with what its format begins with, which the fuzzer puts before it. */
static const char *completed(const char *path, const char *magic)
{
    size_t count;
    unsigned char *content = scratch_read(path, &count);
    size_t header = count;
    while (header > 0 && content[header - 1] != '}')
        header--;
    bytes whole = {0};
    if (strcmp(magic, "safetensors") == 0)
        bytes_number(&whole, header, 8);
    else
        bytes_text(&whole, magic);
    bytes_add(&whole, content, count);
    free(content);
    return scratch_take("whole", &whole);
}

/* Runs a scenario on one of `every` files of a directory; `magic` NULL: as it is (an npz without its magic number is
 * refused). */
static void survives_each(const char *directory, const char *magic, int every, scenario run)
{
    struct dirent **entries;
    int n = scandir(directory, &entries, NULL, alphasort);
    assert_true(n > 2);
    for (int i = 0; i < n; i++) {
        char path[512];
        struct stat status;
        snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        if (i % every == 0 && stat(path, &status) == 0 && S_ISREG(status.st_mode))
            survives(path, run, magic ? completed(path, magic) : path);
        free(entries[i]);
    }
    free(entries);
    remove(scratch_path("whole"));
}

/* A set of two files, by a path so long that each of its files' names needs a block of its own. */
static void a_set_by_a_long_path_survives(void)
{
    static const char index[] = "{\"weight_map\": {\"a\": \"one.safetensors\", \"b\": \"two.safetensors\"}}";
    static char path[2600];
    scratch_write("model.safetensors.index.json", index, sizeof index - 1);
    for (int second = 0; second < 2; second++) {
        char header[80];
        bytes b = {0};
        snprintf(header, sizeof header, "{\"%c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                 "ab"[second]);
        bytes_number(&b, strlen(header), 8), bytes_text(&b, header), bytes_number(&b, 7, 1);
        scratch_take(second ? "two.safetensors" : "one.safetensors", &b);
    }
    int used = snprintf(path, sizeof path, "%s", scratch_path(""));
    while (used + 2 < (int)sizeof path)
        used += snprintf(path + used, sizeof path - (size_t)used, "./");
    survives("a set of files by a long path", read_all, path);
    remove(scratch_path("model.safetensors.index.json"));
    remove(scratch_path("one.safetensors"));
    remove(scratch_path("two.safetensors"));
}

static void readers_survive(void **state)
{
    (void)state;
    const char *const formats[][2] = {
        {"safetensors", "safetensors"},
        {"npy", "\x93NUMPY"},
        {"npz", inject_reaches_libraries() ? "PK\3\4" : NULL}, /* its stream is libzip's */
        {"gguf", "GGUF"},
        {"file", NULL}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        char directory[64];
        snprintf(directory, sizeof directory, "tests/fuzz/corpus/%s", formats[i][0]);
        survives_each(directory, formats[i][1], 1, read_all);
    }
    survives("a set of files", read_all, "weights/lookup");
    a_set_by_a_long_path_survives();
    survives_each("weights/presets", NULL, 5, read_config);
}

static void writers_survive(void **state)
{
    (void)state;
    survives("npy over a file", write_over, "over.npy");
    survives("safetensors over a file", write_over, "over.safetensors");
    survives("case and trace", save_case, "case.safetensors");
}

/* A case with an output that no bug and no pair explains, but that some come near. */
static const char *nearly_explained(void)
{
    static const char from[] = "tests/vectors/torch_cross_kdim_vdim.safetensors";
    mha_file *file;
    mha_error error;
    double output[2 * 4 * 24];
    mha_view view = mha_view_of(output, MHA_F64, 3, (const size_t[]){2, 4, 24});
    assert_ok(mha_file_open(from, &file, &error), error);
    assert_ok(mha_file_read(file, mha_file_find(file, "expected64.output"), &view, &error), error);
    mha_file_close(file);
    for (size_t i = 0; i < sizeof output / sizeof *output; i++)
        output[i] *= i % 2 ? 1.005 : 0.995;
    const char *to = scratch_path("nearly.safetensors");
    recase_write(from, to, &(recase){.drop = "expected", .tensors = {{"expected.output", view}}});
    return to;
}

static void checks_survive(void **state)
{
    (void)state;
    survives("case with a bias row", check_case, "tests/vectors/torch_bias_kv.safetensors");
    survives("case with stages of a backward", check_case, "tests/vectors/gradients_stages.safetensors");
    survives("case with a mask", check_case, "tests/vectors/torch_mask_per_head.safetensors");
    survives("case of a call", case_of_call, NULL);
    survives("diagnosis", diagnose_case, "tests/vectors/torch_one_token.safetensors");
    survives("case", ask_test_case, "probe-lse");
    survives("test case with gradients", ask_test_case, "backward-lengths-empty.b2-h4-q9-s9");
    survives("test case in pages", ask_test_case, "pages.b2-kv2-q5-s11");
    survives("test case with a cache", ask_test_case, "cache.b2-h4-q3-s3");
    survives("gradients", gradients_of_call, NULL);
    survives("gradients of a layer", gradients_of_layer, NULL);
    survives("power", measure_power, "tests/vectors/torch_one_token.safetensors");
    survives("suggestion", suggest_case, "suggested.safetensors");
    survives("diagnosis without a result", diagnose_case, nearly_explained());
}

static void benchmarks_survive(void **state)
{
    (void)state;
    static const char *const each[] = {"layer 1,3,3,8,2", "layer 1,2,3,8,2",  "layer 1,1,4,8,2", "core 1,3,3,8,2",
                                       "core 1,1,4,8,2",  "proj 1,70,70,8,2", "proj 1,1,4,8,2"};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        survives(each[i], benchmark, each[i]);
}

static void models_survive(void **state)
{
    (void)state;
    survives("model", whole_model, "weights/presets/albert-base-v2.json");
    survives("model of GPT-2", whole_model, "weights/presets/gpt2.json");
    survives("checkpoint", layer_of_checkpoint, "weights/lookup/model.safetensors");
    survives("claim about a layer", claim, "0");
    survives("claim about merged heads", claim, claim_about("layer d_model=64 h=4"));
    survives("claim about a model", claim, claim_about("transformer-base vocab_size=40000 d_k=16"));
    survives("the machine's memory and processors", ask_the_machine, NULL);
}

static int report(void **state)
{
    (void)state;
    print_message("%zu failures injected into the library, all survived\n", all_points);
    return 0;
}

int main(void)
{
    trial_draw_seed();
    visited = mmap(NULL, VISITED * sizeof *visited, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (visited == MAP_FAILED)
        return 1;
    scratch_path(""); /* makes the directory, which is this process's to remove */
    /* libzip asks mktime for the age of each member. With no TZ the C library reads the zone's file at the first
     * such call and keeps three blocks of it for good: the name, the table and its strings, held by nobody else. */
    setenv("TZ", "UTC0", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_survive), cmocka_unit_test(readers_survive),    cmocka_unit_test(writers_survive),
        cmocka_unit_test(checks_survive), cmocka_unit_test(benchmarks_survive), cmocka_unit_test(models_survive),
    };
    return cmocka_run_group_tests(tests, NULL, report);
}
