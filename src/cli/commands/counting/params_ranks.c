/* mha params --ranks: what each of several processes would hold and send of a whole model, scheme by scheme. */
#include "cli/commands/counting/counting.h"

#include <math.h>

enum { DEFAULT_SEQ = 4096 }; /* tokens, unless --seq says how many */

/* Layers of one configuration and length. */
typedef struct layer_kind {
    mha_model_layer layer;
    mha_model_lengths lengths;
    size_t layers, uses; /* of that kind; times that one pass runs them */
    mha_totals whole;    /* of one layer, as it is allocated on one machine */
} layer_kind;

/* A scheme in one of two phases: all tokens at once, or one more token behind them. */
typedef struct way {
    const char *name;
    mha_split_scheme scheme;
    bool decodes;
} way;

static const way ways[] = {
    {"tensor", MHA_SPLIT_TENSOR, false},
    {"ulysses", MHA_SPLIT_ULYSSES, false},
    {"ring", MHA_SPLIT_RING, false},
    {"zigzag", MHA_SPLIT_ZIGZAG, false},
    {"decode by heads", MHA_SPLIT_TENSOR, true},
    {"decode by rows", MHA_SPLIT_CACHE, true},
};
enum { WAYS = sizeof ways / sizeof *ways, DECODING = 4 }; /* the first that decodes */

/* The total of a way over all attention layers; of several ranks the largest. */
typedef struct outcome {
    mha_error refused;        /* status MHA_OK: it is not */
    size_t parameters, bytes; /* of attention on a rank */
    size_t stored;            /* parameters of attention on all ranks together */
    bool copied[MHA_WEIGHT_COUNT]; /* several ranks store the same elements of it */
    size_t cache_bytes;
    uint64_t sent, sent_by_layer; /* bytes of one pass; of the layer that sends most */
    double balance;               /* pairs of the rank with most / pairs of the mean rank */
    mha_split_time time;          /* with --machine */
} outcome;

typedef struct table_of_ranks {
    const mha_model *model;
    mha_model_pass pass;
    size_t ranks;
    layer_kind *kinds;
    size_t n_kinds;
    mha_totals all, attention; /* of the model's table; of its layers, as allocated */
    bool decodes;              /* it has causal layers, to which one more token can be given */
    bool timed;
    mha_machine machine;
    outcome outcomes[WAYS];
    size_t n_ways;
} ranks_table;

/* ---------------------------------------------------------------- counting */

/* The parameters of a layer, which is allocated to count them. */
static mha_status allocated(const mha_config *config, mha_totals *totals, mha_error *error)
{
    mha_layer *layer;
    TRY(mha_layer_create(config, NULL, NULL, &layer, error));
    *totals = mha_params_totals(mha_layer_params(layer), NULL);
    mha_layer_destroy(layer);
    return MHA_OK;
}

static mha_status find_kinds(ranks_table *t, mha_error *error)
{
    mha_model_layer layer;
    mha_model_lengths lengths;
    size_t room = 0;
    for (size_t i = 0; mha_model_layer_at(t->model, i, &layer); i++) {
        size_t k = 0;
        TRY(mha_model_layer_lengths(t->model, &t->pass, i, &lengths, error));
        while (k < t->n_kinds && !(mha_config_same(&t->kinds[k].layer.config, &layer.config) &&
                                   t->kinds[k].layer.causal == layer.causal &&
                                   lengths_same(&t->kinds[k].lengths, &lengths)))
            k++;
        if (k == t->n_kinds) {
            t->kinds = obtain_more(t->kinds, t->n_kinds, &room, sizeof *t->kinds);
            t->kinds[t->n_kinds++] = (layer_kind){.layer = layer, .lengths = lengths};
            TRY(allocated(&layer.config, &t->kinds[k].whole, error));
        }
        t->decodes |= lengths.cached > 0;
        t->kinds[k].layers++;
        t->kinds[k].uses += layer.uses;
        t->attention.parameters += t->kinds[k].whole.parameters;
        t->attention.parameter_bytes += t->kinds[k].whole.parameter_bytes;
    }
    return MHA_OK;
}

/* Elements in the cache of a rank: of the rows that it has, those that the layer's window or chunk keeps. */
static size_t kept_elements(const mha_split *s, const mha_share *share, const mha_model_lengths *of)
{
    const bool by_heads = s->scheme == MHA_SPLIT_TENSOR || s->scheme == MHA_SPLIT_ULYSSES;
    const size_t first = s->T_k - (of->cached < s->T_k ? of->cached : s->T_k);
    size_t rows = 0, kept = 0;
    for (size_t i = 0; i < share->chunks; i++) {
        const mha_range held = by_heads ? (mha_range){0, s->T_k} : share->keys[i];
        const size_t past = held.from + held.count, from = held.from > first ? held.from : first;
        rows += held.count;
        kept += past > from ? past - from : 0;
    }
    return rows ? share->cache_elements / rows * kept : 0;
}

/* Adds the layers of one kind to an outcome. */
static mha_status add_kind(const ranks_table *t, const way *how, const layer_kind *k, outcome *o, mha_error *error)
{
    const mha_model_lengths *of = &k->lengths;
    mha_split s = {.scheme = how->scheme, .ranks = t->ranks, .config = k->layer.config,
                   .B = t->pass.batch * of->windows, .T_q = how->decodes ? 1 : of->queries,
                   .T_k = how->decodes ? of->cached : of->keys,
                   .absorbed = how->decodes && k->layer.config.kv_rank > 0};
    mha_totals first, other;
    TRY(mha_split_check(&s, error));
    /* Rank 0 has b_O; the others are alike. */
    const mha_config of_first = mha_split_share(&s, 0).config, of_other = mha_split_share(&s, t->ranks - 1).config;
    TRY(allocated(&of_first, &first, error));
    TRY(allocated(&of_other, &other, error));
    uint64_t sent = 0, most = 0;
    double pairs = 0;
    size_t cache = 0;
    for (size_t rank = 0; rank < t->ranks; rank++) {
        const mha_share share = mha_split_share(&s, rank);
        const uint64_t mine = k->layer.causal && !how->decodes ? share.causal_pairs : share.pairs;
        const uint64_t bytes = share.bytes_sent > share.bytes_received ? share.bytes_sent : share.bytes_received;
        sent = bytes > sent ? bytes : sent;
        most = mine > most ? mine : most;
        const size_t kept = how->decodes ? share.cache_elements : kept_elements(&s, &share, of);
        cache = kept > cache ? kept : cache;
        pairs += (double)mine;
    }
    const double balance = pairs > 0 ? (double)most * (double)t->ranks / pairs : 1;
    o->parameters += k->layers * first.parameters;
    o->bytes += k->layers * first.parameter_bytes;
    o->stored += k->layers * (first.parameters + (t->ranks - 1) * other.parameters);
    for (mha_weight w = 0; w < MHA_WEIGHT_COUNT; w++)
        o->copied[w] |= mha_config_weight_shape(&s.config, w, (size_t[2]){0}, NULL) > 0 && mha_split_copies(&s, w) > 1;
    if (how->decodes && !of->cached)
        return MHA_OK;
    o->cache_bytes += of->cached ? k->uses * cache * sizeof(float) : 0;
    o->sent += k->uses * sent;
    o->sent_by_layer = sent > o->sent_by_layer ? sent : o->sent_by_layer;
    o->balance = fmax(o->balance, balance);
    if (!t->timed)
        return MHA_OK;
    const mha_split_work work = {s, how->decodes ? of->cached - !of->cross : 0, k->layer.causal};
    mha_split_time time;
    TRY(mha_split_time_of(&work, &t->machine, &time, error));
    o->time.project += (double)k->uses * time.project;
    o->time.attend += (double)k->uses * time.attend;
    o->time.exchange += (double)k->uses * time.exchange;
    o->time.join += (double)k->uses * time.join;
    o->time.total += (double)k->uses * time.total;
    return MHA_OK;
}

/* An error that ends the table: a way that the model cannot go is none. */
static mha_status count(ranks_table *t, mha_error *error)
{
    mha_model_costs costs; /* which are larger than all that is added up here */
    TRY(mha_model_costs_of(t->model, &t->pass, &costs, error));
    TRY(find_kinds(t, error));
    t->n_ways = t->decodes ? WAYS : DECODING;
    for (size_t w = 0; w < t->n_ways; w++) {
        outcome *o = &t->outcomes[w];
        mha_status status = MHA_OK;
        for (size_t k = 0; k < t->n_kinds && status == MHA_OK; k++)
            status = add_kind(t, &ways[w], &t->kinds[k], o, error);
        if ((status == MHA_INVALID && strcmp(error->name, "ranks") == 0) || status == MHA_UNSUPPORTED)
            *o = (outcome){.refused = *error};
        else
            TRY(status);
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- showing */

/* Of the model's parameters a rank has all but attention as a whole. */
static json_t *way_record(const ranks_table *t, size_t w)
{
    const outcome *o = &t->outcomes[w];
    const bool refused = o->refused.status != MHA_OK;
    json_t *row = record_of("scheme", J(mha_split_scheme_name(ways[w].scheme)), "phase",
                            J(ways[w].decodes ? "decode" : "prefill"), "refused",
                            J(refused ? o->refused.message : NULL), "~name", J(ways[w].name), NULL);
    if (refused)
        return row;
    json_t *replicated = json_array();
    for (mha_weight i = 0; i < MHA_WEIGHT_COUNT; i++)
        if (o->copied[i])
            json_array_append_new(replicated, json_string(mha_weight_at(i)->name));
    record_with(row, "attention_parameters", J(o->parameters), "parameters",
                J(t->all.parameters - t->attention.parameters + o->parameters), "parameter_bytes",
                J(t->all.parameter_bytes - t->attention.parameter_bytes + o->bytes), "stored_attention_parameters",
                J(o->stored), "replicated", replicated, "cache_bytes", J(o->cache_bytes), "sent_bytes", J(o->sent),
                "sent_bytes_layer", J(o->sent_by_layer), "balance", J(o->balance), "~replicas",
                J(o->stored - t->attention.parameters), "~sent_token",
                J(o->sent / (ways[w].decodes ? t->pass.batch : t->pass.batch * t->pass.seq)), NULL);
    if (!t->timed)
        return row;
    return record_with(row, "project_seconds", J(o->time.project), "attend_seconds", J(o->time.attend),
                       "exchange_seconds", J(o->time.exchange), "join_seconds", J(o->time.join), "seconds",
                       J(o->time.total), "~ms", json_words(o->time.total < 1 ? "%.4g" : "%.0f", 1e3 * o->time.total),
                       NULL);
}

/* Each reason once, behind the names of all that it refuses. */
static void print_refusals(const ranks_table *t)
{
    for (size_t w = 0; w < t->n_ways; w++) {
        const char *reason = t->outcomes[w].refused.message;
        bool first = t->outcomes[w].refused.status != MHA_OK;
        for (size_t i = 0; i < w; i++)
            first = first && strcmp(t->outcomes[i].refused.message, reason) != 0;
        if (!first)
            continue;
        for (size_t i = w; i < t->n_ways; i++)
            if (strcmp(t->outcomes[i].refused.message, reason) == 0)
                say("%s%s", i == w ? "  " : ", ", ways[i].name);
        say_harmless(": %s\n", reason);
    }
}

/* Whether every weight of the layers has replicas. */
static bool is_whole(const ranks_table *t, const outcome *o)
{
    bool whole = true;
    for (size_t k = 0; k < t->n_kinds; k++)
        for (mha_weight w = 0; w < MHA_WEIGHT_COUNT; w++)
            whole &= o->copied[w] || mha_config_weight_shape(&t->kinds[k].layer.config, w, (size_t[2]){0}, NULL) == 0;
    return whole;
}

/* Which weights are stored by several ranks: those of schemes that share no weight are all. */
static void print_replicas(const ranks_table *t)
{
    for (size_t w = 0; w < DECODING; w++) { /* a scheme that decodes has the same */
        const outcome *o = &t->outcomes[w];
        bool any = false;
        for (size_t i = 0; i < MHA_WEIGHT_COUNT && !is_whole(t, o); i++) {
            if (!o->copied[i])
                continue;
            if (!any)
                say("  replicas of %s: ", ways[w].name);
            say("%s%s", any ? ", " : "", mha_weight_at((mha_weight)i)->name);
            any = true;
        }
        if (any)
            say("\n");
    }
}

static void print_report(const ranks_table *t, const json_t *schemes)
{
    static const char *const columns[] = {
        "scheme: ~name", ">attention: attention_parameters: : -", ">??replicas: ~replicas: : -",
        ">weights of a rank: parameter_bytes: %B: -", ">cache: cache_bytes: %B: -",
        ">sent, a layer: sent_bytes_layer: %B: -", ">sent, a token: ~sent_token: %B: -", "?>balance: balance: %.2f: -",
        ">ms: ~ms: : -"};
    model_print_name(t->model);
    say(": %s parameters, %s of them in %zu attention layers\n", count_text(t->all.parameters),
        count_text(t->attention.parameters), mha_model_layer_count(t->model));
    say("%zu ranks share attention over %zu x %s tokens; all else is whole on each. What is sent is F32, and so is "
        "the cache\n\n",
        t->ranks, t->pass.batch, count_text(t->pass.seq));
    REPORT_TABLE(schemes, columns);
    say("\n");
    print_refusals(t);
    print_replicas(t);
    for (int decodes = 0; decodes < 2 && t->timed; decodes++) {
        size_t best = WAYS;
        for (size_t w = 0; w < t->n_ways; w++)
            if (ways[w].decodes == decodes && t->outcomes[w].refused.status == MHA_OK &&
                (best == WAYS || t->outcomes[w].time.total < t->outcomes[best].time.total))
                best = w;
        if (best < WAYS)
            say("  fastest %s: %s\n", decodes ? "for one more token" : "for all tokens", ways[best].name);
    }
    write_prose("Of unequal ranks the one with most is shown. replicas: elements of attention that ranks store again; "
                "balance: pairs of query and key of the rank with most, over the mean. mha help ranks");
}

static int read_machine(const char *text, mha_machine *machine)
{
    double gflops, memory, latency, link;
    unsigned cores = 0, node_ranks = 0;
    char end;
    const int read =
        sscanf(text, "%lf,%lf,%lf,%lf,%u,%u%c", &gflops, &memory, &latency, &link, &cores, &node_ranks, &end);
    if ((read != 4 && read != 6) || (read == 6 && node_ranks == 0) || (read == 4 && text[strlen(text) - 1] == ','))
        return refuse_option(OPT_MACHINE,
                             "expected four numbers with commas between, or six with the cores and the ranks of a "
                             "node, found %s",
                             text);
    *machine = (mha_machine){gflops * 1e9, memory * 1e9, latency * 1e-6, link * 1e9, cores, node_ranks};
    return EXIT_DONE;
}

int ranks_show(const arguments *args, const mha_model *model, const mha_params *params)
{
    ranks_table t = {.model = model,
                     .pass = model_pass(args, DEFAULT_SEQ),
                     .ranks = count_of(args, OPT_RANKS),
                     .all = mha_params_totals(params, NULL),
                     .timed = given(args, OPT_MACHINE)};
    if (t.timed)
        TRY(read_machine(text_for(args, OPT_MACHINE), &t.machine));
    mha_error error = {0};
    const mha_status status = count(&t, &error);
    keep(t.kinds);
    TRY(done_or_refuse_field(status, "", &error));
    json_t *schemes = json_array();
    for (size_t w = 0; w < t.n_ways; w++)
        json_array_append_new(schemes, way_record(&t, w));
    json_t *root = keep_json(record_of("architecture", J(mha_model_title(model)), "class", J(mha_model_class(model)),
                                       "ranks", J(t.ranks), "batch", J(t.pass.batch), "seq", J(t.pass.seq),
                                       "parameters", J(t.all.parameters), "attention_parameters",
                                       J(t.attention.parameters), "schemes", schemes, NULL));
    if (report_is_text(args, root))
        print_report(&t, schemes);
    return EXIT_DONE;
}
