/* mha-mpi forward, bench and params: what the ranks of each scheme have and send, against one process. */
#include <math.h>

#include "cli/mpi/commands_mpi.h"
#include "mpi/shared.h"

/* How far the output may be from that of one process. */
typedef struct allowance {
    double most;
    bool of_bound; /* of the error bound: too long to be checked */
} allowance;

/* One scheme, as rank 0 reports it. */
typedef struct scheme_report {
    shared_result result;
    rank_report *ranks;
    double model_ms; /* by the model of cost (bench) */
    double difference; /* largest |difference| from one process, on all ranks */
    allowance allowed;
} scheme_report;

/* ---------------------------------------------------------------- one process */

/* The output of one process, on every rank. */
static int alone(request *q, mha_view *output)
{
    double ms;
    int code = request_keep(q, MHA_STAGE_OUTPUT);
    if (code == EXIT_DONE)
        code = request_run(q, &ms);
    *output = *request_stage(q, MHA_STAGE_OUTPUT);
    return worst_code(code);
}

/* Products of attention that rank 0 computes in float64 for the sake of a verdict: some seconds. */
static const double MOST_PRODUCTS = 0x1p30;

/* How far two results may lie apart: what the checker allows a result; twice the error bound, which is far larger,
 * where the checker would take minutes. Rank 0 computes it for all. */
static int tolerance(const mpi_request *r, const request *q, allowance *allowed)
{
    const mha_plan *p = &q->plan;
    const mha_dtype type = p->path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32;
    mha_allowance a = {.stage = MHA_STAGE_OUTPUT, .computed = type, .stored = type};
    mha_error error = {0};
    mha_status status = MHA_OK;
    *allowed = (allowance){
        .of_bound = (double)(p->B * p->h) * (double)p->T_q * (double)p->S * (double)(p->d_k + p->d_v) > MOST_PRODUCTS};
    if (r->rank == 0 && !allowed->of_bound) {
        status = mha_tolerance(q->layer, &q->call, &a, 1, &error);
        allowed->most = a.atol;
    } else if (r->rank == 0) {
        double bound[MHA_STAGE_COUNT];
        status = mha_error_bound(q->layer, &q->call, type == MHA_F64 ? 0x1p-53 : 0x1p-24, bound, MHA_STAGE_COUNT,
                                 &error);
        allowed->most = 2 * bound[MHA_STAGE_OUTPUT];
    }
    MPI_Bcast(&allowed->most, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return worst_code(done_or_refuse(status, "", &error));
}

/* ---------------------------------------------------------------- reports */

static const char *range_text(mha_range r)
{
    return r.count == 0   ? "-"
           : r.count == 1 ? text_of("%zu", r.from)
                          : text_of("%zu-%zu", r.from, r.from + r.count - 1);
}

static json_t *range_json(mha_range r)
{
    return json_pack("[o, o]", json_count(r.from), json_count(r.from + r.count));
}

/* Ranges under a name, and as text under "~name". */
static void add_ranges(json_t *record, const char *name, const mha_range *chunks, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, range_json(chunks[i]));
    const char *first = range_text(chunks[0]);
    record_with(record, name, list, text_of("~%s", name),
                count > 1 ? json_words("%s, %s", first, range_text(chunks[1])) : J(first), NULL);
}

static json_t *rank_record(int rank, const rank_report *r)
{
    json_t *record = record_of("rank", J(rank), "heads", range_json(r->share.heads), "~heads",
                               J(range_text(r->share.heads)), "kv_heads", range_json(r->share.kv_heads), "~kv_heads",
                               J(range_text(r->share.kv_heads)), NULL);
    add_ranges(record, "queries", r->share.queries, r->share.chunks);
    add_ranges(record, "keys", r->share.keys, r->share.chunks);
    return record_with(record, "parameters", J(r->parameters), "bytes_sent", J(r->share.bytes_sent), "bytes_received",
                       J(r->share.bytes_received), "bytes_in_memory", J(r->memory.total), "causal_pairs",
                       J(r->share.causal_pairs), "ms", json_milliseconds(r->ms), NULL);
}

static json_t *scheme_record(const mpi_request *q, const scheme_report *s, mha_split_scheme scheme)
{
    json_t *record = record_of("scheme", J(mha_split_scheme_name(scheme)), NULL);
    if (s->result.status != MHA_OK)
        return record_with(record, "refused", J(s->result.error.message), NULL);
    json_t *list = json_array();
    for (int i = 0; i < q->ranks; i++)
        json_array_append_new(list, rank_record(i, &s->ranks[i]));
    return record_with(
        record, "refused", json_null(), "max_abs_difference", J(s->difference), "allowed", J(s->allowed.most),
        "same_bits", json_boolean(s->difference == 0), "ms", json_milliseconds(s->result.ms), "quartiles_ms",
        json_pack("[o, o]", json_milliseconds(s->result.quartiles[0]), json_milliseconds(s->result.quartiles[1])),
        "model_ms", J(s->model_ms), "ranks", list, NULL);
}

static void print_scheme(const mpi_request *q, const scheme_report *s, const json_t *record, const char *path)
{
    static const char *const columns[] = {
        ">rank: rank: %d", "heads: ~heads", "key/value heads: ~kv_heads", "queries: ~queries", "keys: ~keys",
        ">parameters: parameters", ">bytes sent: bytes_sent", ">received: bytes_received",
        ">in memory: bytes_in_memory", ">pairs if causal: causal_pairs", ">ms: ms: %.2f"};
    const char *name = json_string_value(json_object_get(record, "scheme"));
    if (s->result.status != MHA_OK) {
        say_harmless("%s: %s\n", name, s->result.error.message);
        return;
    }
    say("%s on %d ranks, %s path\n", name, q->ranks, path);
    REPORT_TABLE(json_object_get(record, "ranks"), columns);
    if (s->difference == 0)
        say("  The output is that of one process, to the last bit.\n\n");
    else
        say("  The output is at most %.3g from that of one process; %.3g %s%s.\n\n", s->difference,
               s->allowed.most, s->difference <= s->allowed.most ? "is allowed" : "WOULD BE ALLOWED",
               s->allowed.of_bound ? ", by the error bound" : "");
}

/* The path of --weights, where each rank can read its own part of the layer from it; else NULL. */
static const char *file_of_ranks(const arguments *args)
{
    const char *path = given(args, OPT_WEIGHTS) && !given(args, OPT_SINKS) ? text_for(args, OPT_WEIGHTS) : NULL;
    return path && strcmp(path, "-") != 0 ? path : NULL;
}

/* Times measured, and times by the model of cost (src/split/README.md). */
static void print_times(const mpi_request *r, const mha_machine *m, const scheme_report *all)
{
    static const char *const titles[] = {"scheme", ">ms", ">half between", ">model", ">model / measured"};
    table *t = table_create(sizeof titles / sizeof *titles, titles);
    int first = -1, said = -1;
    for (int i = 0; i < MHA_SPLIT_COUNT; i++) {
        if (!all[i].ranks)
            continue;
        table_cell(t, mha_split_scheme_name((mha_split_scheme)i));
        const shared_result *s = &all[i].result;
        table_cell(t, text_of("%.3f", s->ms));
        table_cell(t, text_of("%.3f and %.3f", s->quartiles[0], s->quartiles[1]));
        table_cell(t, text_of("%.3f", all[i].model_ms));
        table_cell(t, text_of("%.2f", all[i].model_ms / s->ms));
        first = first < 0 || s->ms < all[first].result.ms ? i : first;
        said = said < 0 || all[i].model_ms < all[said].model_ms ? i : said;
    }
    say("%d ranks, %zu on a node of %zu cores. A core, while all ranks work: %.1f GFLOP/s, %.1f GB/s from memory; a "
           "message takes %.2f us and 1 s for %.2f GB (--machine %.4g,%.4g,%.4g,%.4g,%zu,%zu)\n",
           r->ranks, m->node_ranks, m->cores, m->flops / 1e9, m->memory / 1e9, m->latency * 1e6, m->bandwidth / 1e9,
           m->flops / 1e9, m->memory / 1e9, m->latency * 1e6, m->bandwidth / 1e9, m->cores, m->node_ranks);
    table_print(t);
    if (first < 0)
        return;
    const bool near = all[said].result.quartiles[0] <= all[first].result.quartiles[1];
    say("  The fastest was %s; the model says %s%s.\n", mha_split_scheme_name((mha_split_scheme)first),
           mha_split_scheme_name((mha_split_scheme)said),
           said == first ? "" : near ? ", whose times overlap with those of the fastest" : ", which was slower");
}

static json_t *machine_json(const mha_machine *m)
{
    return record_of("gflops", J(m->flops / 1e9), "memory_gbs", J(m->memory / 1e9), "latency_us", J(m->latency * 1e6),
                     "link_gbs", J(m->bandwidth / 1e9), "cores", J(m->cores), "node_ranks", J(m->node_ranks), NULL);
}

/* ---------------------------------------------------------------- forward, bench */

static int forward(const mpi_request *r, request *q, size_t rounds)
{
    mha_view whole = {0};
    allowance allowed = {0};
    int code = alone(q, &whole), taken = 0;
    if (code == EXIT_DONE)
        code = tolerance(r, q, &allowed);
    json_t *list = keep_json(json_array());
    bool near = true;
    const bool json = given(r->args, OPT_JSON);
    scheme_report s = {.ranks = keep(obtain((size_t)r->ranks, sizeof *s.ranks))},
                  all[MHA_SPLIT_COUNT] = {{.ranks = NULL}};
    mha_machine machine = {0};
    if (code == EXIT_DONE && !json && q->random)
        say("%s\n", q->random);
    if (code == EXIT_DONE && rounds > 1)
        code = worst_code(measure_machine(q, r->ranks, &machine));
    for (int scheme = 0; scheme < MHA_SPLIT_COUNT && code == EXIT_DONE; scheme++) {
        mha__arena arena = {.allocator = mha__allocator_default()};
        shared_call call = {.layer = q->layer, .call = q->call, .scheme = (mha_split_scheme)scheme, .rounds = rounds,
                            .path = file_of_ranks(r->args), .options = &q->asked};
        call.call.path = q->plan.path;
        if (r->scheme >= 0 && r->scheme != scheme)
            continue;
        run_shared(&call, &arena, &s.result);
        if (s.result.status == MHA_OK) {
            taken++;
            s.allowed = allowed;
            uint64_t mismatches; /* NaN beside a number */
            s.difference = compare_shared(&whole, &call, &s.result, 0, INFINITY, &arena, &mismatches);
            s.difference = mismatches ? INFINITY : s.difference;
            near &= s.difference <= allowed.most;
            MPI_Gather(&s.result.own, (int)sizeof s.result.own, MPI_BYTE, s.ranks, (int)sizeof s.result.own, MPI_BYTE,
                       0, MPI_COMM_WORLD);
            s.model_ms = rounds > 1 ? predict(&s.result.split, q->call.semantics.visible.causal, &machine) : NAN;
            all[scheme] = s;
        } else if (r->scheme >= 0) {
            code = refuse_error("--scheme", &s.result.error);
        }
        if (code == EXIT_DONE) {
            json_array_append_new(list, scheme_record(r, &s, call.scheme));
            if (!json)
                print_scheme(r, &s, json_array_get(list, json_array_size(list) - 1), mha_path_name(q->plan.path));
        }
        mha__arena_free(&arena);
    }
    if (code == EXIT_DONE && rounds > 1 && !json)
        print_times(r, &machine, all);
    if (code == EXIT_DONE && json)
        json_print(record_of("ranks", J(r->ranks), "random", J(q->random), "path", J(mha_path_name(q->plan.path)),
                             "machine", rounds > 1 ? machine_json(&machine) : json_null(), "schemes",
                             json_incref(list), NULL));
    if (code == EXIT_DONE && taken == 0)
        code = refuse("", "expected a call that a scheme can take, found none");
    return code != EXIT_DONE ? code : near ? EXIT_DONE : EXIT_NO;
}

int run_mpi_forward(const mpi_request *r, size_t rounds)
{
    request *q = keep(obtain(1, sizeof *q));
    const int code = worst_code(request_call(q, r->args, NULL));
    return worst_code(code == EXIT_DONE ? forward(r, q, rounds) : code);
}

/* ---------------------------------------------------------------- params */

/* A column for each rank. */
static void print_params(const mpi_request *r, const json_t *rows, const mha_mpi_sum *sum, mha_split_scheme scheme,
                         bool equal)
{
    const size_t P = (size_t)r->ranks;
    const char **columns = keep(obtain(P + 4, sizeof *columns));
    columns[0] = "weight: weight";
    for (size_t p = 0; p < P; p++)
        columns[p + 1] = text_of(">rank %zu: ~rank%zu", p, p);
    columns[P + 1] = ">stored: stored", columns[P + 2] = ">copies: copies", columns[P + 3] = ">of the layer: unique";
    say("%s on %d ranks\n", mha_split_scheme_name(scheme), r->ranks);
    report_table(rows, P + 4, columns);
    say("  %s stored, %s of them replicas; without these %s, %s the layer of one process.\n\n", count_text(sum->stored),
        count_text(sum->stored - sum->unique), count_text(sum->unique), equal ? "exactly" : "NOT");
}

/* The table of a scheme on rank 0, or with `list` its object; 1 unless the sum is the layer. */
static int params_of(const mpi_request *r, const mha_layer *whole, mha_mpi_layer *layer, mha_split_scheme scheme,
                     json_t *list)
{
    const size_t P = (size_t)r->ranks;
    uint64_t own[MHA_WEIGHT_COUNT], *all = keep(obtain(P * MHA_WEIGHT_COUNT, sizeof *all));
    mha_mpi_sum sum;
    mha_error error = {0};
    TRY(done_or_refuse(mha_mpi_totals(layer, &sum, &error), "", &error)); /* fails only where MPI does */
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_layer *mine = mha_mpi_layer_own(layer);
        const mha_tensor *tensor = mine ? mha_layer_weight(mine, (mha_weight)w) : NULL;
        own[w] = tensor ? mha_tensor_info_of(tensor).elements : 0;
    }
    MPI_Gather(own, MHA_WEIGHT_COUNT, MPI_UINT64_T, all, MHA_WEIGHT_COUNT, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    const uint64_t one = mha_params_totals(mha_layer_params(whole), NULL).parameters;
    const bool equal = sum.unique == one;
    json_t *rows = keep_json(json_array());
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        if (!mha_layer_weight(whole, (mha_weight)w))
            continue;
        const uint64_t stored = sum.weights[w].stored, copies = sum.weights[w].copies;
        json_t *ranks = json_array(), *record = record_of("weight", J(mha_weight_at((mha_weight)w)->name), NULL);
        for (size_t p = 0; p < P; p++) {
            json_array_append_new(ranks, json_count(all[p * MHA_WEIGHT_COUNT + (size_t)w]));
            record_with(record, text_of("~rank%zu", p), J(all[p * MHA_WEIGHT_COUNT + (size_t)w]), NULL);
        }
        json_array_append_new(rows, record_with(record, "ranks", ranks, "stored", J(stored), "copies", J(copies),
                                                "unique", J(stored / copies), NULL));
    }
    if (!list)
        print_params(r, rows, &sum, scheme, equal);
    else
        json_array_append_new(list, record_of("scheme", J(mha_split_scheme_name(scheme)), "weights", json_incref(rows),
                                              "stored", J(sum.stored), "unique", J(sum.unique), "one_process", J(one),
                                              "equal", json_boolean(equal), NULL));
    return equal ? EXIT_DONE : EXIT_NO;
}

/* The share of a scheme, and the whole layer as a table that nobody fills. Of a file, each rank reads its part. */
static mha_status share_of(const mpi_request *r, const request *q, mha_split_scheme scheme, mha_mpi_layer **layer,
                           mha_layer **whole, mha_error *error)
{
    const char *path = file_of_ranks(r->args);
    if (path)
        TRY(mha_mpi_layer_load(MPI_COMM_WORLD, scheme, path, &q->asked, NULL, layer, NULL, error));
    else
        TRY(mha_mpi_layer_create(MPI_COMM_WORLD, scheme, mha_layer_config(q->layer), NULL, NULL, layer, error));
    mha_status status = mha_layer_create(mha_mpi_layer_config(*layer), NULL, NULL, whole, error);
    status = mha__mpi_agree(MPI_COMM_WORLD, status, 0, error);
    if (status != MHA_OK) {
        mha_layer_destroy(*whole);
        mha_mpi_layer_destroy(*layer);
    }
    return status;
}

int run_mpi_params(const mpi_request *r)
{
    request q = {0};
    mha_file *file = NULL;
    int taken = 0, code = worst_code(file_of_ranks(r->args) ? request_weights(&q, r->args, &file)
                                                            : request_layer(&q, r->args, NULL));
    mha_file_close(file);
    json_t *list = keep_json(given(r->args, OPT_JSON) ? json_array() : NULL);
    for (int scheme = 0; scheme < MHA_SPLIT_COUNT && (code == EXIT_DONE || code == EXIT_NO); scheme++) {
        mha_mpi_layer *layer = NULL;
        mha_layer *whole = NULL;
        mha_error error = {0};
        if (r->scheme >= 0 && r->scheme != scheme)
            continue;
        const mha_status status = share_of(r, &q, (mha_split_scheme)scheme, &layer, &whole, &error);
        if (status != MHA_OK && (r->scheme >= 0 || (status != MHA_INVALID && status != MHA_UNSUPPORTED)))
            code = refuse_error("", &error);
        else if (status != MHA_OK && !list)
            say("%s: %s\n\n", mha_split_scheme_name((mha_split_scheme)scheme), error.message);
        if (status != MHA_OK)
            continue;
        taken++;
        const int equal = params_of(r, whole, layer, (mha_split_scheme)scheme, list);
        code = equal > code ? equal : code;
        mha_layer_destroy(whole);
        mha_mpi_layer_destroy(layer);
    }
    if (list && taken > 0)
        json_print(json_pack("{si sO}", "ranks", r->ranks, "schemes", list));
    request_free(&q);
    if (code == EXIT_DONE && taken == 0)
        code = refuse("", "expected a layer that a scheme can share, found none");
    return worst_code(code);
}
