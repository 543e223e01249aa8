/* mha bench end to end: what it says, what it refuses; never how fast it is. */
#include "support/unit.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "support/program.h"
#include "support/scratch.h"

static json_t *bench_on(const char *threads, const char *shape, const char *part)
{
    program_result r = RUN("bench", "--shape", shape, "--part", part, "--rounds", "2", "--threads", threads, "--json");
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    json_t *root = json_loads(r.out, 0, NULL);
    assert_non_null(root);
    program_free(&r);
    return root;
}

static json_t *bench(const char *shape, const char *part)
{
    return bench_on("2", shape, part);
}

/* Times are rounded to the nanosecond, rates are not. */
#define assert_close(found, expected, tolerance) assert_true(fabs((found) - (expected)) <= (tolerance) * fabs(expected))

static double number(const json_t *row, const char *key)
{
    assert_true(json_is_number(json_object_get(row, key)));
    return json_number_value(json_object_get(row, key));
}

static const char *text(const json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

static void keys_of_the_contract(void **state)
{
    (void)state;
    json_t *root = bench("2,20,20,32,4,kv=2,causal", "all");
    json_t *machine = json_object_get(root, "machine"), *rows = json_object_get(root, "rows");
    static const char *const texts[] = {"cpu", "isa", "blas", "blas_threading"};
    for (size_t i = 0; i < 4; i++)
        assert_non_null(json_object_get(machine, texts[i]));
    assert_int_equal(json_integer_value(json_object_get(machine, "threads")), 2);
    assert_true(number(machine, "peak_gflops") > 0 && number(machine, "read_gbs") > 0);
    assert_int_equal(json_array_size(rows), 6); /* layer, core and projections, fast and blas */
    for (size_t i = 0; i < 6; i++) {
        static const char *const parts[] = {"layer", "core", "proj"};
        const json_t *row = json_array_get(rows, i);
        assert_string_equal(text(row, "part"), parts[i / 2]);
        assert_string_equal(text(row, "path"), i % 2 ? "blas" : "fast");
        assert_int_equal(json_integer_value(json_object_get(row, "rounds")), 2);
        assert_true(number(row, "ms_min") > 0 && number(row, "ms_median") >= number(row, "ms_min"));
        /* 2 B h d_k multiply-adds for each of T (T + 1) / 2 pairs; projections of 32 x 32, 32 x 16, 32 x 16 and
         * 32 x 32 for 40 rows */
        double core = 4.0 * 2 * (20 * 21 / 2) * 32, proj = 2.0 * 40 * 32 * (32 + 16 + 16 + 32);
        double expected = i / 2 == 0 ? core + proj : i / 2 == 1 ? core : proj;
        assert_close(number(row, "gflops") * number(row, "ms_min") * 1e6, expected, 1e-6);
        assert_close(number(row, "percent_of_peak"), 100 * number(row, "gflops") / number(machine, "peak_gflops"),
                     1e-6);
        assert_true(number(row, "tokens_per_s") > 0);
        assert_true(number(row, "error_of_bound") <= 1);
        assert_true(number(row, "workspace_mib") > 0 && number(row, "grew_mib") >= 0);
        assert_non_null(json_object_get(row, "rss_mib"));
        assert_true(json_is_null(json_object_get(row, "gbs")));
    }
    json_decref(root);
}

static void parts_can_be_chosen(void **state)
{
    (void)state;
    json_t *two = bench("1,9,9,16,2", "both"), *one = bench("1,9,9,16,2", "proj");
    json_t *rows = json_object_get(two, "rows");
    assert_int_equal(json_array_size(rows), 4);
    assert_string_equal(text(json_array_get(rows, 0), "part"), "layer");
    assert_string_equal(text(json_array_get(rows, 3), "part"), "core");
    rows = json_object_get(one, "rows");
    assert_int_equal(json_array_size(rows), 2);
    assert_string_equal(text(json_array_get(rows, 0), "part"), "proj");
    assert_true(number(json_array_get(rows, 0), "error_of_bound") > 0); /* judged, though no layer was */
    json_decref(one);
    json_decref(two);
}

static void decoding_counts_what_it_reads(void **state)
{
    (void)state;
    json_t *root = bench("2,1,300,32,4", "all"), *rows = json_object_get(root, "rows");
    double cache = 2.0 * 2 * 300 * 32 * 4, weights = 4.0 * 32 * 32 * 4;
    double read_gbs = number(json_object_get(root, "machine"), "read_gbs");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        double expected = i / 2 == 0 ? cache + weights : i / 2 == 1 ? cache : weights;
        assert_close(number(row, "gbs") * number(row, "ms_min") * 1e6, expected, 0.01);
        assert_close(number(row, "percent_of_reads"), 100 * number(row, "gbs") / read_gbs, 1e-6);
        assert_true(number(row, "percent_of_same_reads") > 0);
    }
    json_decref(root);
}

/* What the process grows by: the scores of 8,192 tokens would be 256 MiB for this one head. */
static void long_sequences_need_little_memory(void **state)
{
    (void)state;
    program_result r = RUN("bench", "--shape", "1,8192,8192,64,1,causal", "--part", "both", "--path", "fast",
                           "--rounds", "1", "--json");
    assert_int_equal(r.code, 0);
    json_t *root = json_loads(r.out, 0, NULL), *rows = json_object_get(root, "rows");
    const double q_k_v_concat = 4.0 * 8192 * 64 * 4 / 1048576; /* 8 MiB */
    assert_true(json_array_size(rows) >= 2);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        double beyond = strcmp(text(row, "part"), "layer") == 0 ? q_k_v_concat : 0;
        assert_true(number(row, "workspace_mib") < beyond + 16);
        assert_true(number(row, "grew_mib") < beyond + 16);
    }
    json_decref(root);
    program_free(&r);
}

/* What the list says of a name is what the name stands for. */
static void shapes_are_listed(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "bench", "--shape", "list", "--json"), *shapes = json_object_get(root, "shapes");
    assert_true(json_array_size(shapes) >= 13);
    program_result r = RUN("bench", "--shape", "list");
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    for (size_t i = 0; i < json_array_size(shapes); i++) {
        char line[200];
        snprintf(line, sizeof line, "  %-14s%s", text(json_array_get(shapes, i), "name"),
                 text(json_array_get(shapes, i), "shape"));
        assert_non_null(strstr(r.out, line));
    }
    program_free(&r);
    assert_string_equal(text(json_array_get(shapes, 0), "name"), "tiny16");
    assert_string_equal(text(json_array_get(shapes, 0), "shape"), "1,16,16,256,4,nobias");
    /* How many of two threads compute so little is measured anew in each process. */
    json_t *named = bench_on("1", "tiny16", "core"), *written = bench_on("1", "1,16,16,256,4,nobias", "core");
    const json_t *a = json_array_get(json_object_get(named, "rows"), 0),
                 *b = json_array_get(json_object_get(written, "rows"), 0);
    assert_true(number(a, "workspace_mib") == number(b, "workspace_mib"));
    json_decref(named);
    json_decref(written);
    json_decref(root);
    assert_program_refuses(RUN("bench", "--shape", "list", "--shape", "tiny16"), 2, "found \"list\"");
    assert_program_refuses(RUN("bench", "--shape", "list", "--picture", "b.svg"), 2, "nothing beside --shape list");
}

static void what_it_refuses(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "bert",      "1,2,3",         "1,16,16,30,4",  "1,16,16,32,4,kv=3", "1,16,16,32,4,fast",
        "0,1,1,4,1", "1,16,16,32,4,", "1,16,16,32,4x", "-1,16,16,32,4",     "1,16,16,32,99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        program_result r = RUN("bench", "--shape", wrong[i]);
        assert_int_equal(r.code, 2);
        assert_string_equal(r.out, "");
        assert_non_null(strstr(r.err, "--shape"));
        assert_ptr_equal(strchr(r.err, '\n'), r.err + strlen(r.err) - 1);
        program_free(&r);
    }
    program_result r = RUN("bench", "--shape", "1,4,4,8,2", "--rounds", "0");
    assert_int_equal(r.code, 2);
    program_free(&r);
    assert_program_refuses(RUN("bench", "--isa", "abacus"), 2, "--isa");
    assert_program_refuses(RUN("bench", "--shape", "1,1,1,16777216,1"), 3, "");
}

/* One table of columns: what CSV calls them JSON calls them, too. */
static void csv_and_json_use_the_same_names(void **state)
{
    (void)state;
#define ONE "bench", "--shape", "1,1,3,8,2", "--part", "core", "--path", "fast", "--rounds", "1", "--threads", "1"
    program_result r = RUN(ONE, "--csv");
    assert_int_equal(r.code, 0);
    r.out[strcspn(r.out, "\n")] = 0;
    json_t *root = RUN_JSON(0, ONE, "--json"), *row = json_array_get(json_object_get(root, "rows"), 0);
    size_t n = 0;
    for (char *name = strtok(r.out, ","); name; name = strtok(NULL, ","), n++)
        if (!json_object_get(row, name))
            fail_msg("JSON has no %s", name);
    assert_true(n == json_object_size(row) - 1); /* JSON has the number of rounds as well */
    json_decref(root);
    program_free(&r);
}

/* Documents: only pairs inside one are counted. Seven tokens in three are 3, 3 and 1, causally 6, 6 and 1 pairs. */
static void documents_hide_each_other(void **state)
{
    (void)state;
    static const struct {
        const char *shape;
        double pairs;
    } each[] = {{"1,7,7,12,3,docs=3", 19}, {"1,7,7,12,3,docs=3,causal", 13}, {"1,7,7,12,3,docs=1", 49}};
    for (size_t i = 0; i < 3; i++) {
        json_t *root = bench(each[i].shape, "core");
        const json_t *row = json_array_get(json_object_get(root, "rows"), 0);
        assert_close(number(row, "gflops") * number(row, "ms_min") * 1e6, 4 * 12 * each[i].pairs, 1e-6);
        json_decref(root);
    }
    assert_program_refuses(RUN("bench", "--shape", "1,7,9,12,3,docs=2"), 2, "as many queries as keys");
    assert_program_refuses(RUN("bench", "--shape", "2,2,9,12,3,shared"), 2, "one query and a cache to share");
    assert_program_refuses(RUN("bench", "--shape", "1,7,7,12,3,docs=8"), 2, "at most one document for each token");
    assert_program_refuses(RUN("bench", "--shape", "1,7,7,12,4,kv=3"), 2, "key/value heads that divide the heads");
    assert_program_refuses(RUN("bench", "--shape", "1,7,7,12,5"), 2, "heads that divide d_model, or dk=N");
    static const char *const malformed[] = {"1,7,7,12,3,docs=2,docs=3", "1,7,7,12,3,causal,causal", "1,7,7,12,3,kv=0",
                                            "1,7,7,12,3,nobias,nobias", "1,7,7,12,3,dk=4,dk=4", "1,7,7,12,3 "};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
        assert_program_refuses(RUN("bench", "--shape", malformed[i]), 2, "expected B,Tq,Tk,d_model,h[,kv=N]");
}

static void several_shapes_as_a_table(void **state)
{
    (void)state;
    program_result r = RUN("bench", "--shape", "1,7,7,12,3,nobias", "--shape", "1,5,9,12,2,dk=5", "--shape", "tiny16",
                           "--shape", "200,1,3,8,2,nobias", "--shape",
                           "2,7,7,12,3,docs=3,causal", "--part", "both", "--path", "fast", "--rounds", "9",
                           "--seconds", "0", "--threads", "1", "--csv");
    assert_int_equal(r.code, 0);
    static const char *const rows[] = {"\"1,7,7,12,3,nobias\",core,fast,1,", "\"1,5,9,12,2,dk=5\",core,fast,1,",
                                       "\n\"1,5,9,12,2,dk=5\",layer,fast,1,", "\ntiny16,layer,fast,1,",
                                       "\n\"200,1,3,8,2,nobias\",core,fast,1,",
                                       "\n\"2,7,7,12,3,docs=3,causal\",layer,fast,1,"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strstr(r.out, rows[i]))
            fail_msg("no row %s in %s", rows[i], r.out);
    program_free(&r);
}

/* One shape is one number, that of the fastest way, in the last line; a model has one for its layers together. */
static void what_it_comes_to_stands_last(void **state)
{
    (void)state;
    program_result r =
        RUN("bench", "--shape", "1,4,4,8,2", "--part", "all", "--rounds", "1", "--threads", "1", "--wide");
    const char *last = strrchr(r.out, '\n');
    while (last > r.out && last[-1] != '\n')
        last--;
    assert_true(strncmp(last, "1,4,4,8,2, ", 11) == 0 && strstr(last, ", 1 thread: ") && strstr(last, " tokens/s, "));
    assert_non_null(strstr(r.out, "\nrandom weights and inputs (seed 0)\n"));
    double best = 0, said = 0;
    for (const char *at = r.out; (at = strstr(at, "\n  1,4,4,8,2  layer")); at++) {
        double each;
        assert_int_equal(sscanf(at, "%*s %*s %*s %*s %*s %*s %*s %*s %*s %lf", &each), 1);
        best = each > best ? each : best;
    }
    for (const char *digit = strstr(last, ": ") + 2; *digit != ' '; digit++)
        said = *digit == ',' ? said : 10 * said + (*digit - '0');
    assert_true(best > 0 && said == best);
    program_free(&r);
    r = RUN("bench", "--shape", "1,4,4,8,2", "--shape", "1,5,5,8,2", "--rounds", "1", "--threads", "1");
    assert_null(strstr(r.out, " tokens/s, "));
    program_free(&r);
    static const char gpt2[] = "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 8, \"n_head\": 2, "
                               "\"vocab_size\": 5, \"n_positions\": 9}";
    const char *config = scratch_write("numbers.json", gpt2, sizeof gpt2 - 1);
    r = RUN("bench", "--config", config, "--seq", "3", "--rounds", "1", "--threads", "1", "--path", "fast");
    assert_non_null(strstr(r.out, "\nmodel, fast, 1 thread: "));
    assert_non_null(strstr(r.out, "\nmodel, decode, fast, 1 thread: "));
    program_free(&r);
}

/* Without a shape one is measured, in a minute; the set of thirteen has a name, beside which others may stand. */
static void the_standard_set_is_asked_for(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "bench", "--rounds", "1", "--threads", "1", "--path", "fast", "--json"),
           *rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), 1);
    assert_string_equal(text(json_array_get(rows, 0), "shape"), "bert1x512");
    assert_string_equal(text(json_array_get(rows, 0), "part"), "layer");
    json_decref(root);
    program_result r = program_stop(SIGINT, "bert1x128,", 0,
                                    (const char *const[]){"bench", "--shape", "1,4,4,8,2", "--shape", "standard",
                                                          "--rounds", "1", "--threads", "1", "--path", "fast", "--csv",
                                                          NULL});
    assert_int_equal(r.code, 128 + SIGINT);
    const char *own = strstr(r.out, "\n\"1,4,4,8,2\","), *tiny = strstr(r.out, "\ntiny16,");
    assert_true(own && tiny && own < tiny && tiny < strstr(r.out, "\nbert1x128,"));
    program_free(&r);
    assert_program_refuses(RUN("bench", "--shape", "standards"), 2, "names are standard, tiny16, ");
}

static size_t count_of_char(const char *from, const char *to, char c)
{
    size_t n = 0;
    for (; from < to; from++)
        n += *from == c;
    return n;
}

/* Rows come out as they are measured, into a pipe too; a signal ends the rest, and what there is stays whole. */
#define ENDLESS "bench", "--shape", "1,4,4,8,2", "--shape", "1,64,64,64,4", "--shape", "1,4,4,8,2", "--path", "fast", \
                "--threads", "1", "--seconds", "3600", "--rounds"
static void a_signal_keeps_what_was_measured(void **state)
{
    (void)state;
    static const struct {
        int number;
        const char *option, *words;
    } rows[] = {{SIGINT, NULL, "\n  1,4,4,8,2 "},
                {SIGTERM, NULL, "\n  1,4,4,8,2 "},
                {SIGINT, "--csv", "\n\"1,4,4,8,2\",layer,"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        program_result r = program_stop(rows[i].number, rows[i].words, 0,
                                        (const char *const[]){ENDLESS, "40", rows[i].option, NULL});
        assert_int_equal(r.code, 128 + rows[i].number);
        assert_non_null(strstr(r.err, "a signal stopped it, "));
        assert_int_equal(count_of_char(r.err, r.err + strlen(r.err), '\n'), 1);
        const char *first = strstr(r.out, rows[i].words);
        assert_non_null(first);
        assert_null(strstr(first + 1, rows[i].words)); /* the third shape was not measured */
        assert_int_equal(r.out[strlen(r.out) - 1], '\n');
        if (!rows[i].option)
            assert_non_null(strstr(r.out, "GB/s of reads from memory\n"));
        const size_t commas = count_of_char(r.out, strchr(r.out, '\n'), ',');
        for (const char *line = rows[i].option ? r.out : ""; *line; line = strchr(line, '\n') + 1) {
            const size_t quoted = line == r.out ? 0 : 4; /* commas in the name of a shape */
            assert_int_equal(count_of_char(line, strchr(line, '\n'), ','), commas + quoted);
        }
        program_free(&r);
    }
}

/* With --json, which is written at the end: the rounds that all ways have ended, and a picture of them. */
static void a_signal_leaves_whole_json(void **state)
{
    (void)state;
    const char *picture = scratch("stopped.svg");
    for (int wait = 500;; wait *= 2) { /* until a round has ended */
        program_result r = program_stop(SIGINT, NULL, wait,
                                        (const char *const[]){ENDLESS, "1000", "--json", "--picture", picture, NULL});
        assert_int_equal(r.code, 128 + SIGINT);
        json_t *root = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL), *list = json_object_get(root, "rows");
        assert_true(json_is_array(list));
        const size_t n = json_array_size(list);
        char said[64];
        snprintf(said, sizeof said, "a signal stopped it, %zu rows were measured", n);
        assert_non_null(strstr(r.err, said));
        for (size_t i = 0; i < n; i++) {
            const double rounds = number(json_array_get(list, i), "rounds");
            assert_true(rounds >= 1 && rounds <= 1000);
            assert_true(number(json_array_get(list, i), "ms_min") > 0);
        }
        json_decref(root);
        program_free(&r);
        if (n > 0) {
            assert_int_equal(access(picture, F_OK), 0);
            return;
        }
        assert_true(wait < 60000);
    }
}

/* On a terminal standard error shows the round, in a line that is erased in the end. */
static void a_terminal_shows_the_round(void **state)
{
    (void)state;
    static const char erase[] = " \r";
    program_result r = RUN_ON_TERMINALS(80, ONE);
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.err, "\r  0 of 1 rounds of 1,1,3,8,2 core"));
    assert_string_equal(r.err + strlen(r.err) - strlen(erase), erase);
    assert_null(strstr(r.out, "rounds"));
    program_free(&r);
    r = RUN_ON_TERMINALS(80, ONE, "--quiet");
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    program_free(&r);
}

/* A model's layers: each shape once, and all layers together, as many times as a forward pass runs them. */
static void layers_of_a_model_are_measured(void **state)
{
    (void)state;
    char config[256];
    snprintf(config, sizeof config, "%s", scratch("bench.json"));
    FILE *file = fopen(config, "w");
    fputs("{\"model_type\": \"llama\", \"hidden_size\": 16, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
          " \"num_hidden_layers\": 5, \"vocab_size\": 32, \"intermediate_size\": 24}", file);
    fclose(file);
    json_t *root = RUN_JSON(0, "bench", "--config", config, "--seq", "6", "--batch", "2", "--path", "fast", "--threads",
                            "1", "--rounds", "2", "--part", "all", "--json"),
           *rows = json_object_get(root, "rows");
    static const char *const parts[] = {"layer", "core", "proj", "layer", "core", "proj", "all layers", "all layers"};
    assert_int_equal(json_array_size(rows), 8);
    for (size_t i = 0; i < 8; i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(rows, i), "part")), parts[i]);
    for (size_t decodes = 0; decodes < 2; decodes++) {
        const json_t *layer = json_array_get(rows, 3 * decodes), *all = json_array_get(rows, 6 + decodes);
        assert_string_equal(json_string_value(json_object_get(all, "shape")), decodes ? "model, decode" : "model");
        const double one = json_number_value(json_object_get(layer, "ms_min")),
                     five = json_number_value(json_object_get(all, "ms_min"));
        assert_true(fabs(five - 5 * one) <= 1e-9 * five);
        const double median = json_number_value(json_object_get(all, "ms_median"));
        assert_true(fabs(median - 5 * json_number_value(json_object_get(layer, "ms_median"))) <= 1e-9 * median);
        const double gflops = json_number_value(json_object_get(all, "gflops")); /* five times the work and the time */
        assert_true(fabs(gflops - json_number_value(json_object_get(layer, "gflops"))) <= 1e-9 * gflops);
        const double tokens = json_number_value(json_object_get(all, "tokens_per_s")) * five * 1e-3;
        assert_true(fabs(tokens - (decodes ? 2 : 12)) <= 1e-6);
        assert_true(json_is_null(json_object_get(all, "gbs")));
    }
    json_decref(root);
    root = RUN_JSON(0, "bench", "--config", config, "--seq", "1", "--rounds", "1", "--part", "layer", "--path", "fast",
                    "--threads", "1", "--json"); /* one token has no cache before it */
    assert_int_equal(json_array_size(json_object_get(root, "rows")), 2);
    json_decref(root);
    assert_program_refuses(RUN("bench", "--config", config, "--shape", "tiny16"), 2, "--shape: expected nothing");
    assert_program_refuses(RUN("bench", "--shape", "tiny16", "--seq", "6"), 2, "--seq: expected --preset or --config");
    assert_program_refuses(RUN("bench", "--preset", "nothing-like-it"), 2, "nothing-like-it");
    assert_program_refuses(RUN("bench", "--preset", "list", "--shape", "tiny16"), 2, "--shape");
    char description[256];
    snprintf(description, sizeof description, "%s", scratch("wide.json"));
    file = fopen(description, "w");
    fputs("{\"like\": \"llama\", \"symbols\": {\"d_v\": {\"value\": \"d_k+1\"}}}", file);
    fclose(file);
    assert_program_refuses(RUN("bench", "--config", config, "--architecture", description), 2,
                           "whose inputs, outputs and heads have one width");
    static const char *const others[] = {"h_kv\": {\"value\": \"h\"}, \"rank_kv\": {\"value\": 4}, \"d_rope",
                                         "gate"},
                      *found[] = {"latents", "a gate"};
    for (size_t i = 0; i < 2; i++) {
        file = fopen(description, "w");
        fprintf(file, "{\"like\": \"llama\", \"symbols\": {\"%s\": {\"value\": %d}}}", others[i], i ? 1 : 2);
        fclose(file);
        assert_program_refuses(RUN("bench", "--config", config, "--architecture", description), 2, found[i]);
    }
    /* A causal shape of one new token sees all of its cache. */
    root = RUN_JSON(0, "bench", "--shape", "1,1,9,8,2,causal", "--rounds", "1", "--threads", "1", "--json");
    json_decref(root);
}

/* An encoder and a decoder: three encoder layers that see everything, two decoder layers that do not and have a cache,
 * and two that read the encoder. Each sum has the layers that it speaks of, as often as they are there. */
static void layers_of_several_kinds_are_added_up(void **state)
{
    (void)state;
    static const char text[] = "{\"model_type\": \"bart\", \"d_model\": 16, \"encoder_attention_heads\": 4,"
                               " \"decoder_attention_heads\": 2, \"encoder_layers\": 3, \"decoder_layers\": 2,"
                               " \"encoder_ffn_dim\": 8, \"decoder_ffn_dim\": 8, \"vocab_size\": 9}";
    char config[256];
    snprintf(config, sizeof config, "%s", scratch_write("kinds.json", text, strlen(text)));
    json_t *root = RUN_JSON(0, "bench", "--config", config, "--seq", "6", "--path", "fast", "--threads", "1",
                            "--rounds", "1", "--part", "layer", "--json"),
           *rows = json_object_get(root, "rows");
    double whole = 0, decode = 0;
    size_t kinds = 0;
    for (; kinds < json_array_size(rows); kinds++) {
        const json_t *row = json_array_get(rows, kinds);
        const char *shape = json_string_value(json_object_get(row, "shape"));
        if (strcmp(json_string_value(json_object_get(row, "part")), "layer") != 0)
            break;
        const double uses = strstr(shape, ".encoder.") ? 3 : 2;
        *(strstr(shape, ", decode") ? &decode : &whole) += uses * number(row, "ms_min");
    }
    assert_int_equal(json_array_size(rows), kinds + 2);
    assert_close(number(json_array_get(rows, kinds), "ms_min"), whole, 1e-9);
    assert_close(number(json_array_get(rows, kinds + 1), "ms_min"), decode, 1e-9);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_of_several_kinds_are_added_up),
        cmocka_unit_test(keys_of_the_contract),
        cmocka_unit_test(parts_can_be_chosen),
        cmocka_unit_test(decoding_counts_what_it_reads),
        cmocka_unit_test(long_sequences_need_little_memory),
        cmocka_unit_test(shapes_are_listed),
        cmocka_unit_test(what_it_refuses),
        cmocka_unit_test(csv_and_json_use_the_same_names),
        cmocka_unit_test(documents_hide_each_other),
        cmocka_unit_test(several_shapes_as_a_table),
        cmocka_unit_test(a_signal_keeps_what_was_measured),
        cmocka_unit_test(a_signal_leaves_whole_json),
        cmocka_unit_test(what_it_comes_to_stands_last),
        cmocka_unit_test(the_standard_set_is_asked_for),
        cmocka_unit_test(a_terminal_shows_the_round),
        cmocka_unit_test(layers_of_a_model_are_measured),
    };
    return cmocka_run_group_tests_name("cli_bench", tests, NULL, NULL);
}
