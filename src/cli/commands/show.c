/* mha show: what heads look at, in numbers and as pictures. */
#include "cli/commands/commands.h"
#include "picture/sheet.h"

/* ---------------------------------------------------------------- what is asked for */

/* Reads "A:B". */
static int part_of(const arguments *args, option_code option, size_t part[2])
{
    const char *text = text_for(args, option);
    int end = 0;
    if (given(args, option) && (sscanf(text, "%9zu:%9zu%n", &part[0], &part[1], &end) != 2 || text[end] != '\0' ||
                                !strchr("0123456789", text[0]) || part[1] <= part[0]))
        return refuse_option(option, "expected A:B with A below B, found \"%s\"", text);
    return EXIT_DONE;
}

static int choose(const arguments *args, mha__picture_choice *choice)
{
    *choice = (mha__picture_choice){.one_sequence = given(args, OPT_BATCH_ROW),
                                    .sequence = count_of(args, OPT_BATCH_ROW),
                                    .one_head = given(args, OPT_HEAD),
                                    .head = count_of(args, OPT_HEAD),
                                    .one_query = given(args, OPT_QUERY),
                                    .query = count_of(args, OPT_QUERY),
                                    .threads = (int)count_of(args, OPT_THREADS)};
    mha_path_find(text_for(args, OPT_PATH), &choice->path);
    if (given(args, OPT_QUERY) && given(args, OPT_ROWS))
        return refuse_option(OPT_ROWS, "expected no --query with it, which is one row");
    TRY(part_of(args, OPT_ROWS, choice->rows));
    return part_of(args, OPT_KEYS, choice->keys);
}

/* Files say themselves what the options of a layer and of a call would say. */
static int add_files(mha__picture *picture, const arguments *args, const mha__picture_choice *choice)
{
    mha_error error = {0};
    const option_code o = given_of(args, SECTIONS_OF_CALL);
    if (o != option_count())
        return refuse_option(o, "expected no file with it, found %s, which says that itself", args->operands[0]);
    for (size_t i = 0; i < args->n_operands; i++) {
        const char *path = args->operands[i];
        const mha_status status =
            given(args, OPT_STAGE) ? mha__picture_add_file_stage(picture, path, text_for(args, OPT_STAGE), &error)
                                   : mha__picture_add_file(picture, path, choice, &error);
        TRY(done_or_refuse_field(status, path, &error));
    }
    return EXIT_DONE;
}

/* Shows the stage of --stage of a request. */
static int add_stage(mha__picture *picture, const request *r, const arguments *args)
{
    mha_error error = {0};
    mha_stage stage;
    const char *name = text_for(args, OPT_STAGE);
    const mha__request one = {.layer = r->layer, .call = &r->call};
    if (!mha_stage_find(name, &stage))
        return refuse_option(OPT_STAGE, "expected a stage of the forward (\"mha help stage\" lists them), found \"%s\"",
                             name);
    return done_or_refuse_field(mha__picture_add_stage(picture, name, &one, stage, &error), "", &error);
}

static int add_layer(mha__picture *picture, request *r, const arguments *args, const mha__picture_choice *choice)
{
    mha_error error = {0};
    TRY(request_call(r, args, NULL));
    if (given(args, OPT_STAGE))
        TRY(add_stage(picture, r, args));
    else if (mha__picture_add_call(picture, r->loaded.layer.prefix, r->layer, &r->call, NULL, choice, &error) != MHA_OK)
        return refuse_field("", &error);
    picture->random = r->random;
    return EXIT_DONE;
}

/* ---------------------------------------------------------------- the answer */

/* The largest weights of the one query that is shown. A pooled map has them beside it. */
static size_t strongest_of(const mha__head *head, strongest_key found[STRONGEST])
{
    const double *weights = head->top_weights ? head->top_weights : head->weights;
    const size_t n = strongest_keys(weights, head->top_weights ? head->top : head->columns, found);
    for (size_t i = 0; i < n; i++)
        found[i].key = head->top_weights ? head->top_keys[found[i].key] : head->first_key + found[i].key;
    return n;
}

static json_t *head_record(const mha__head *head, bool one_query)
{
    strongest_key found[STRONGEST] = {{0}};
    mha__head_statistics s = head->statistics;
    json_t *record = record_of("sequence", J(head->sequence), "head", J(head->head), "queries", J(s.queries), "empty",
                               J(s.empty), "broken", J(s.broken), NULL);
    for (size_t i = 0; i < MHA__STATISTICS; i++)
        record_with(record, mha__statistic_name(i), J(*mha__statistic_at(&s, i)), NULL);
    if (!one_query)
        return record;
    json_t *strongest = json_array();
    for (size_t i = 0, n = strongest_of(head, found); i < n; i++)
        json_array_append_new(strongest, record_of("key", J(found[i].key), "weight", J(found[i].weight), NULL));
    return record_with(record, "strongest", strongest, NULL);
}

static json_t *report_of(const mha__picture *picture, bool one_query)
{
    json_t *layers = json_array(), *stages = json_array();
    for (size_t i = 0; i < picture->layer_count; i++) {
        const mha__picture_layer *layer = &picture->layers[i];
        json_t *heads = json_array();
        for (size_t n = 0; n < layer->head_count; n++)
            json_array_append_new(heads, head_record(&layer->heads[n], one_query));
        json_array_append_new(layers, record_of("name", J(layer->name), "path", J(layer->path), "heads", heads, NULL));
    }
    for (size_t i = 0; i < picture->sheet_count; i++) {
        const mha__sheet *s = &picture->sheets[i];
        json_array_append_new(stages, record_of("name", J(s->name), "shape", json_shape(s->rank, s->shape), "least",
                                                J(s->least), "largest", J(s->largest), "rms", J(s->rms), "broken",
                                                J(s->broken), NULL));
    }
    return record_of("random", J(picture->random), "layers", layers, "stages", stages, NULL);
}

static void print_layer(const mha__picture_layer *layer, const json_t *record)
{
    static const char *const columns[] = {
        "?>sequence: sequence", ">head: head", ">entropy: entropy: %.3f: -", ">distance: distance: %.3f: -",
        ">itself: self: %.3f: -", "?>previous: previous: %.3f: -", ">first: first: %.3f: -", "?>no key: sink: %.3f: -",
        ">largest: largest: %.3f: -"};
    say_harmless("%s%s%zu heads", layer->name, *layer->name ? ": " : "", layer->h);
    if (strcmp(layer->path, "recorded") == 0)
        say(", weights as recorded\n");
    else
        say(", computed on the %s path\n", layer->path);
    table_name(layer->name);
    REPORT_TABLE(json_object_get(record, "heads"), columns);
    say("\n");
}

static void print_query(const mha__picture *picture, const mha__picture_layer *layer)
{
    for (size_t i = 0; i < layer->head_count; i++) {
        const mha__head *head = &layer->heads[i];
        strongest_key found[STRONGEST] = {{0}};
        const size_t n = strongest_of(head, found);
        if (layer->sequences > 1)
            say("  sequence %zu", head->sequence);
        const int64_t position = (int64_t)head->first_query + layer->offset;
        const bool named = position >= 0 && (uint64_t)position < picture->token_count;
        say_harmless("  head %zu, query %zu%s%s", head->head, head->first_query, named ? " " : "",
                     named ? picture->tokens[position] : "");
        strongest_print(found, n, head->statistics.broken > 0, picture->tokens, picture->token_count);
    }
    say("\n");
}

static void print_text(const mha__picture *picture, const json_t *root, const arguments *args)
{
    static const char *const stages[] = {
        "stage: name", "shape: shape", ">least: least: %.6g", ">largest: largest: %.6g", ">rms: rms: %.6g",
        ">NaN or infinite: broken"};
    if (picture->random) {
        say_harmless("%s", picture->random);
        say("\n\n");
    }
    if (picture->sheet_count > 0) {
        REPORT_TABLE(json_object_get(root, "stages"), stages); /* of the finite elements */
        return;
    }
    for (size_t i = 0; i < picture->layer_count; i++) {
        print_layer(&picture->layers[i], json_array_get(json_object_get(root, "layers"), i));
        if (given(args, OPT_QUERY))
            print_query(picture, &picture->layers[i]);
    }
    terminal_map_print(picture);
    say("\n");
    write_prose("Means over the queries. entropy: in bits, 0 looks at one key and log2(n) at n alike; distance: to the "
                "keys looked at, in tokens; then the weight of the query's own key, of the one before it and of key 0, "
                "what no key has (sinks, extra rows), and the largest weight.");
    if (!given(args, OPT_PICTURE)) {
        say("\n");
        write_prose("--picture page.html writes a page that shows all of it; .svg and .png are drawings.");
    }
}

/* Names that would end before the keys do; rows at the end of S' are no tokens. */
static int refuse_few_names(const arguments *args, const mha__picture *picture)
{
    size_t keys = 0;
    for (size_t i = 0; i < picture->layer_count; i++) {
        const mha__picture_layer *layer = &picture->layers[i];
        for (size_t n = 0; n < layer->head_count; n++) {
            const mha__head *head = &layer->heads[n];
            const size_t past = head->first_key + head->keys;
            const size_t of_tokens = past > layer->S_extra ? past - layer->S_extra : 0;
            keys = keys > of_tokens ? keys : of_tokens;
        }
    }
    if (picture->word_count > 0 && picture->token_count == 0)
        return refuse_option(OPT_TOKENS, "expected a file with ids of tokens for a vocabulary, found a run");
    if (picture->token_count >= keys || (picture->token_count == 0 && !given(args, OPT_TOKENS)))
        return EXIT_DONE;
    return refuse_option(OPT_TOKENS, "expected a name for each of %zu keys, found %zu", keys, picture->token_count);
}

int run_show(const arguments *args)
{
    mha__picture *picture = keep(obtain(1, sizeof *picture));
    request *r = keep(obtain(1, sizeof *r));
    mha__picture_choice choice;
    mha_error error = {0};
    static const option_code cut[] = {OPT_HEAD, OPT_BATCH_ROW, OPT_QUERY, OPT_ROWS, /* out of heads only */
                                      OPT_KEYS, OPT_TOKENS,    OPT_LOG,   OPTION_COUNT};
    picture->logarithmic = given(args, OPT_LOG);
    TRY(choose(args, &choice));
    if (given(args, OPT_STAGE))
        TRY(refuse_each(args, cut, "no --stage with it: a stage is shown whole"));
    TRY(picture_file_check(args, OPT_PICTURE));
    if (given(args, OPT_TOKENS))
        TRY(done_or_refuse(mha__picture_tokens(picture, text_for(args, OPT_TOKENS), &error), "--tokens", &error));
    TRY(args->n_operands > 0 ? add_files(picture, args, &choice) : add_layer(picture, r, args, &choice));
    TRY(refuse_few_names(args, picture));
    const char *stage = text_for(args, OPT_STAGE), *random = picture->random;
    picture->title = text_of("%s%s%s", stage ? stage : "", stage && random ? ", of " : "", random ? random : "");
    TRY(picture_file_write(picture, NULL, args));
    json_t *root = keep_json(report_of(picture, given(args, OPT_QUERY)));
    if (report_is_text(args, root))
        print_text(picture, root, args);
    return EXIT_DONE;
}
