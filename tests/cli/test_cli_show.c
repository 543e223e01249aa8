/* mha show: the numbers that it prints, and the page, which is read back and holds the numbers of the trace. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mha/mha.h"
#include "support/page_data.h"
#include "support/program.h"
#include "support/scratch.h"
#include "support/unit.h"

#define LOOKUP "--weights", "weights/lookup/model.safetensors", "--input", "weights/lookup/recorded.safetensors:input"

static void runs(program_result r)
{
    if (r.code != 0)
        fail_msg("exit code %d: %s", r.code, r.err);
    assert_string_equal(r.err, "");
    program_free(&r);
}

/* A stage of a trace as float64. */
static mha_view stage_of(const char *path, const char *name)
{
    mha_file *file;
    mha_error error;
    assert_ok(mha_file_open(path, &file, &error), error);
    const mha_file_tensor *t = mha_file_find(file, name);
    assert_non_null(t);
    double *data = malloc(t->elements * sizeof *data);
    assert_non_null(data);
    mha_view view = mha_view_of(data, MHA_F64, t->rank, t->shape);
    assert_ok(mha_file_read(file, t, &view, &error), error);
    mha_file_close(file);
    return view;
}

/* Every head of the page has the numbers of the trace, (B, h, T, S). `exact`: to the last bit; else a level away. */
static void assert_page_is(const char *page_path, const char *trace, bool exact)
{
    page_data page = page_data_read(page_path);
    mha_view weights = stage_of(trace, "weights"), masked = stage_of(trace, "masked"),
             capped = stage_of(trace, "capped");
    const size_t B = weights.shape[0], h = weights.shape[1], T = weights.shape[2], S = weights.shape[3];
    for (size_t n = 0; n < B * h; n++) {
        json_t *head = page_data_head(&page, 0, n);
        assert_int_equal(page_data_count(&page, head, "weights"), T * S);
        for (size_t i = 0; i < T * S; i += exact ? 1 : 7) { /* 7 meets every column */
            const double w = ((double *)weights.data)[n * T * S + i], m = ((double *)masked.data)[n * T * S + i];
            const double found = page_data_number(&page, head, "weights", i), step = pow(10, 0.51 * 6 / 252);
            if (m == -INFINITY)
                assert_true(found == -INFINITY);
            else if (exact)
                assert_true(found == w);
            else
                assert_true(w < 1e-6 ? found == 0 : found <= w * step && found >= w / step);
            if (exact) {
                assert_true(page_data_number(&page, head, "masked", i) == m);
                assert_true(page_data_number(&page, head, "scores", i) == ((double *)capped.data)[n * T * S + i]);
            }
        }
    }
    free(weights.data);
    free(masked.data);
    free(capped.data);
    page_data_free(&page);
}

static void a_page_holds_the_numbers_of_the_trace(void **state)
{
    (void)state;
    const char *trace = scratch("trace.safetensors"), *page = scratch("run.html"), *again = scratch("trace.html");
    runs(RUN("forward", LOOKUP, "--heads", "6", "--causal", "--path", "exact", "--trace", trace, "--quiet"));
    runs(RUN("show", LOOKUP, "--heads", "6", "--causal", "--picture", page, "--quiet"));
    assert_page_is(page, trace, true);
    runs(RUN("show", trace, "--picture", again, "--quiet"));
    assert_page_is(again, trace, true);
}

/* The walk has each stage of the first batch row, the input and the weights. */
static void the_walk_holds_every_stage(void **state)
{
    (void)state;
    static const char *const stages[] = {"q",      "k",      "v",       "q_rot", "k_rot",
                                         "scores", "masked", "weights", "heads", "output"};
    const char *trace = scratch("walked.safetensors"), *path = scratch("walked.html");
    runs(RUN("forward", LOOKUP, "--heads", "6", "--rope", "half", "--path", "exact", "--trace", trace, "--quiet"));
    runs(RUN("show", LOOKUP, "--heads", "6", "--rope", "half", "--picture", path, "--quiet"));
    page_data page = page_data_read(path);
    json_t *walk = json_object_get(json_array_get(json_object_get(page.json, "layers"), 0), "walk");
    json_t *arrays = json_object_get(walk, "arrays");
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) {
        json_t *array = json_object_get(arrays, stages[s]);
        mha_view stage = stage_of(trace, stages[s]);
        const size_t count = mha_view_elements(&stage) / stage.shape[0];
        assert_int_equal(page_data_count(&page, array, "numbers"), count);
        for (size_t i = 0; i < count; i++)
            assert_true(page_data_number(&page, array, "numbers", i) == ((double *)stage.data)[i]);
        free(stage.data);
    }
    assert_int_equal(page_data_count(&page, json_object_get(arrays, "x_q"), "numbers"), 12 * 48);
    assert_int_equal(page_data_count(&page, json_object_get(arrays, "W_O"), "numbers"), 48 * 48);
    page_data_free(&page);
}

static json_t *walk_of(const page_data *page)
{
    return json_object_get(json_array_get(json_object_get(page->json, "layers"), 0), "walk");
}

/* What a page has no room for is left out one by one: matrices of weights, other heads, the walk. */
static void a_walk_says_what_it_leaves_out(void **state)
{
    (void)state;
    const char *path = scratch("walks.html");
    runs(RUN("show", "--seq", "4", "--picture", path, "--quiet"));
    page_data page = page_data_read(path);
    json_t *arrays = json_object_get(walk_of(&page), "arrays"), *W_Q = json_object_get(arrays, "W_Q");
    assert_int_equal(json_integer_value(json_object_get(W_Q, "numbers")), -1);
    assert_int_equal(json_integer_value(json_object_get(W_Q, "columns")), 768);
    assert_int_equal(page_data_count(&page, json_object_get(arrays, "q"), "numbers"), 4 * 768);
    page_data_free(&page);
    runs(RUN("show", "--seq", "64", "--d-model", "64", "--heads", "16", "--picture", path, "--quiet"));
    page = page_data_read(path);
    assert_non_null(strstr(json_string_value(walk_of(&page)), "too many numbers for a page: --head"));
    page_data_free(&page);
    runs(RUN("show", "--seq", "64", "--d-model", "64", "--heads", "16", "--head", "5", "--picture", path, "--quiet"));
    page = page_data_read(path);
    assert_int_equal(json_integer_value(json_object_get(walk_of(&page), "firstHead")), 5);
    json_t *scores = json_object_get(json_object_get(walk_of(&page), "arrays"), "weights"),
           *head = page_data_head(&page, 0, 0);
    assert_int_equal(page_data_count(&page, scores, "numbers"), 64 * 64);
    for (size_t i = 0; i < 64 * 64; i++)
        assert_true(page_data_number(&page, scores, "numbers", i) == page_data_number(&page, head, "weights", i));
    page_data_free(&page);
}

/* Keys and values of a call with a cache are those of the cache and the new ones, as present_key and present_value. */
static void a_walk_has_the_rows_of_a_cache(void **state)
{
    (void)state;
    static const char file[] = "tests/vectors/onnx_past_causal.safetensors";
    static const char *const names[][2] = {{"k_rot", "expected64.present_key"}, {"v", "expected64.present_value"}};
    const char *path = scratch("cached.html");
    runs(RUN("show", file, "--batch", "1", "--picture", path, "--quiet"));
    page_data page = page_data_read(path);
    json_t *arrays = json_object_get(walk_of(&page), "arrays");
    for (size_t n = 0; n < 2; n++) {
        const mha_view present = stage_of(file, names[n][1]); /* (B, h_kv, S, d) */
        const size_t h = present.shape[1], S = present.shape[2], d = present.shape[3];
        json_t *array = json_object_get(arrays, names[n][0]);
        assert_int_equal(json_integer_value(json_object_get(array, "rows")), S);
        for (size_t i = 0; i < S; i++)
            for (size_t c = 0; c < h * d; c++)
                assert_true(page_data_number(&page, array, "numbers", i * h * d + c) ==
                            mha_view_get(&present, (size_t[]){1, c / d, i, c % d}));
        assert_int_equal(json_integer_value(json_object_get(walk_of(&page), "past")),
                         S - (size_t)json_integer_value(json_object_get(json_object_get(arrays, "k"), "rows")));
        free(present.data);
    }
    assert_true(json_integer_value(json_object_get(walk_of(&page), "past")) > 0);
    page_data_free(&page);
}

/* Heads are shared by threads, several blocks of rows each: a page has the same bytes for any number of them. */
static void threads_change_no_byte_of_a_page(void **state)
{
    (void)state;
    static const char *const threads[] = {"1", "2", "5"};
    unsigned char *pages[3];
    size_t count[3];
    const char *path = scratch("threads.html");
    for (size_t i = 0; i < 3; i++) {
        runs(RUN("show", "--path", "blas", "--d-model", "12", "--heads", "3", "--seq", "1800", "--causal", "--threads",
                 threads[i], "--picture", path, "--quiet"));
        pages[i] = scratch_read(path, &count[i]);
        assert_int_equal(count[i], count[0]);
        assert_memory_equal(pages[i], pages[0], count[0]);
    }
    for (size_t i = 0; i < 3; i++)
        free(pages[i]);
}

/* What hides keys is on the page as the case has it: the script names it (test-page). */
static void a_walk_has_the_rules_that_hide_keys(void **state)
{
    (void)state;
    static const struct {
        const char *file, *name;
        json_int_t value;
    } rules[] = {{"prefix", "prefix", 5},
                 {"chunked", "chunk", 4},
                 {"window_keep", "window_keep", 2},
                 {"window_keep", "window_left", 2},
                 {"prefix_chunked", "prefix", 6}};
    const char *path = scratch("rules.html");
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        char file[80];
        snprintf(file, sizeof file, "tests/vectors/mask_%s.safetensors", rules[i].file);
        runs(RUN("show", file, "--picture", path, "--quiet"));
        page_data page = page_data_read(path);
        const json_t *settings = json_object_get(walk_of(&page), "settings");
        assert_true(json_real_value(json_object_get(settings, rules[i].name)) == (double)rules[i].value);
        page_data_free(&page);
    }
}

/* forward writes the same picture as show. */
static void forward_writes_it_too(void **state)
{
    (void)state;
    const char *one = scratch("forward.html"), *two = scratch("show.html");
    runs(RUN("forward", LOOKUP, "--heads", "6", "--path", "exact", "--picture", one, "--quiet"));
    runs(RUN("show", LOOKUP, "--heads", "6", "--path", "exact", "--picture", two, "--quiet"));
    page_data a = page_data_read(one), b = page_data_read(two);
    const char *command = json_string_value(json_object_get(b.json, "command"));
    assert_memory_equal(command, "mha show --heads 6 --weights weights/lookup/model.safetensors --input", 69);
    assert_int_equal(json_object_del(a.json, "command"), 0);
    assert_int_equal(json_object_del(b.json, "command"), 0);
    assert_true(json_equal(a.json, b.json));
    page_data_free(&a);
    page_data_free(&b);
    assert_program_refuses(RUN("forward", "--picture", "page.gif"), 2, "--picture: expected a name that ends in .html");
}

/* A case that records weights is two layers: as run, and as recorded. */
static void recorded_weights_stand_beside_those_that_were_run(void **state)
{
    (void)state;
    json_t *root = RUN_JSON(0, "show", "tests/vectors/torch_causal.safetensors", "--json");
    json_t *layers = json_object_get(root, "layers");
    assert_int_equal(json_array_size(layers), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(layers, 1), "name")),
                        "torch_causal, recorded");
    assert_string_equal(json_string_value(json_object_get(json_array_get(layers, 1), "path")), "recorded");
    json_decref(root);
}

static void a_large_page_holds_them_in_levels(void **state)
{
    (void)state;
    const char *trace = scratch("large.safetensors"), *page = scratch("large.html");
    runs(RUN("forward", "--d-model", "10", "--heads", "5", "--seq", "512", "--causal", "--path", "exact", "--trace",
             trace, "--quiet"));
    runs(RUN("show", trace, "--picture", page, "--quiet"));
    assert_page_is(page, trace, false);
}

/* 144 heads of 64 tokens: what random weights are in 256 levels, deflated and in base64, and 100 KiB for the style and
 * the scripts of the page. */
static void a_page_of_many_heads_is_small(void **state)
{
    (void)state;
    const char *t = scratch("layer.safetensors"), *to = scratch("many.html");
    runs(RUN("forward", "--d-model", "48", "--heads", "12", "--seq", "64", "--causal", "--trace", t, "--quiet"));
    runs(RUN("show", t, t, t, t, t, t, t, t, t, t, t, t, "--picture", to, "--quiet"));
    page_data page = page_data_read(to);
    assert_true(strlen(page.text) < 400000 + (100 << 10));
    page_data_free(&page);
}

static void the_same_picture_gives_the_same_bytes(void **state)
{
    (void)state;
    const char *const names[] = {"one.html", "two.html"};
    page_data pages[2];
    for (size_t i = 0; i < 2; i++) {
        const char *path = scratch(names[i]);
        runs(RUN("show", LOOKUP, "--heads", "6", "--threads", i ? "2" : "1", "--picture", path, "--quiet"));
        pages[i] = page_data_read(path);
    }
    assert_string_equal(pages[0].text, pages[1].text);
    for (size_t i = 0; i < 2; i++)
        page_data_free(&pages[i]);
}

/* The page asks for nothing: its policy forbids it, and it names no address but that of SVG. */
static void a_page_asks_for_nothing(void **state)
{
    (void)state;
    const char *path = scratch("alone.html");
    runs(RUN("show", "tests/vectors/torch_causal.safetensors", "--picture", path, "--quiet"));
    page_data page = page_data_read(path);
    assert_non_null(strstr(page.text, "default-src 'none'"));
    static const char svg[] = "http://www.w3.org/2000/svg";
    for (const char *at = page.text; (at = strstr(at, "://")); at++)
        assert_memory_equal(at - 4, svg, sizeof svg - 1);
    page_data_free(&page);
}

static void numbers_are_printed_and_given_as_json(void **state)
{
    (void)state;
    program_result r = RUN("show", LOOKUP, "--heads", "6", "--head", "5", "--batch", "1");
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "previous"));
    assert_non_null(strstr(r.out, "--picture page.html"));
    program_free(&r);
    json_t *root = RUN_JSON(0, "show", LOOKUP, "--heads", "6", "--causal", "--json");
    json_t *layer = json_array_get(json_object_get(root, "layers"), 0);
    assert_keys(layer, "name,path,heads");
    json_t *head = json_array_get(json_object_get(layer, "heads"), 4);
    assert_keys(head, "sequence,head,entropy,distance,self,previous,first,sink,largest,queries,empty,broken");
    /* weights/README.md: head 4 looks at the first token, head 5 at the previous one. */
    assert_true(json_real_value(json_object_get(head, "first")) > 0.95);
    head = json_array_get(json_object_get(layer, "heads"), 5);
    assert_true(json_real_value(json_object_get(head, "previous")) > 0.6);
    json_decref(root);
}

/* Several files are several layers; so are the prefixes of one trace. */
static void files_and_prefixes_are_layers(void **state)
{
    (void)state;
    static float weights[2 * 3 * 3] = {1, 0, 0, 0.5, 0.5, 0, NAN, 0, 0};
    const char *path = scratch("prefixes.safetensors");
    mha_writer *writer;
    mha_error error;
    const mha_view view = mha_view_of(weights, MHA_F32, 3, (size_t[]){2, 3, 3});
    assert_ok(mha_writer_create(path, &writer, &error), error);
    assert_ok(mha_writer_add(writer, "h.0.weights", &view, &error), error);
    assert_ok(mha_writer_add(writer, "h.1.weights", &view, &error), error);
    assert_ok(mha_writer_add(writer, "not_weights", &view, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    json_t *root = RUN_JSON(0, "show", path, "tests/vectors/torch_self.safetensors", "--json");
    json_t *layers = json_object_get(root, "layers");
    assert_int_equal(json_array_size(layers), 4); /* the case has recorded weights, too */
    assert_string_equal(json_string_value(json_object_get(json_array_get(layers, 1), "name")), "h.1");
    json_t *head = json_array_get(json_object_get(json_array_get(layers, 0), "heads"), 0);
    assert_int_equal(json_integer_value(json_object_get(head, "queries")), 2);
    assert_int_equal(json_integer_value(json_object_get(head, "broken")), 1);
    assert_true(json_real_value(json_object_get(head, "entropy")) == 0.5);
    json_decref(root);
}

/* Nothing of a name reaches the page as it is: the data is packed. */
static void names_cannot_become_markup(void **state)
{
    (void)state;
    static const char evil[] = "</script><script>document.title='broken'</script><img src=x onerror=alert(1)>\xff.";
    static float weights[4] = {1, 0, 0.5, 0.5};
    const char *path = scratch("evil.safetensors"), *to = scratch("evil.html");
    char name[200];
    mha_writer *writer;
    mha_error error;
    const mha_view view = mha_view_of(weights, MHA_F32, 3, (size_t[]){1, 2, 2});
    snprintf(name, sizeof name, "%.*sweights", (int)(sizeof evil - 3), evil); /* a file's names are UTF-8 */
    strcpy(name + strlen(name) - 7, ".weights");
    assert_ok(mha_writer_create(path, &writer, &error), error);
    assert_ok(mha_writer_add(writer, name, &view, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    runs(RUN("show", path, "--picture", to, "--quiet"));
    page_data page = page_data_read(to);
    assert_null(strstr(page.text, "onerror=alert"));
    json_t *layer = json_array_get(json_object_get(page.json, "layers"), 0);
    assert_non_null(strstr(json_string_value(json_object_get(layer, "name")), "onerror=alert"));
    page_data_free(&page);
}

/* Every command says of what it draws that it is random, first, in JSON and in the title of a page; and of what it
 * reads that it is not. */
static void what_is_random_is_said(void **state)
{
    (void)state;
    static const char both[] = "random weights and inputs (seed 3)";
    static const struct {
        const char *args[14], *said;
    } rows[] = {
        {{"show", "--d-model", "8", "--heads", "2", "--seq", "4", "--seed", "3"}, both},
        {{"show", "--preset", "gpt2", "--seq", "2", "--seed", "3"},
         "random weights and inputs (seed 3): the shape of gpt2, not its attention"},
        {{"show", "--preset", "gpt2", "--seq", "2", "--seed", "3", "--stage", "q"},
         "random weights and inputs (seed 3): the shape of gpt2, not its attention"},
        {{"show", LOOKUP, "--heads", "6"}, NULL},
        {{"show", "--weights", "weights/lookup/model.safetensors", "--heads", "6", "--seq", "4", "--seed", "3"},
         "random inputs (seed 3)"},
        {{"show", "--d-model", "48", "--heads", "6", "--input", "weights/lookup/recorded.safetensors:input"},
         "random weights (seed 0)"},
        {{"show", "tests/vectors/torch_causal.safetensors"}, NULL},
        {{"heads", "--d-model", "8", "--heads", "2,4", "--seed", "3"}, both},
        {{"heads", "--preset", "gpt2", "--heads", "12"}, NULL},
        {{"heads", "--preset", "gpt2", "--heads", "12", "--run", "--seq", "2"},
         "random weights and inputs (seed 0): the shape of gpt2, not its attention"},
        {{"power", "--d-model", "8", "--heads", "2", "--seq", "4", "--seed", "3"}, both},
        {{"power", LOOKUP, "--heads", "6"}, NULL},
        {{"power", "--d-model", "48", "--heads", "6", "--input", "weights/lookup/recorded.safetensors:input"},
         "random weights (seed 0)"},
        {{"forward", "--d-model", "8", "--heads", "2", "--seq", "4", "--seed", "3", "--merged-qk"}, both},
        {{"params", "--d-model", "8", "--heads", "2", "--merged-qk"}, "random weights (seed 0)"},
        {{"forward", "--d-model", "8", "--heads", "2", "--seq", "4", "--seed", "3"}, both},
        {{"forward", LOOKUP, "--heads", "6"}, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *args[20] = {NULL};
        size_t n = 0;
        while (rows[i].args[n])
            args[n] = rows[i].args[n], n++;
        const bool forward = strcmp(args[0], "forward") == 0 && strcmp(args[n - 1], "--merged-qk") != 0,
                   late = strcmp(args[0], "params") == 0, draws = forward || strcmp(args[0], "show") == 0;
        program_result text = program_run(args);
        const char *said = rows[i].said, *line = strchr(text.out, '\n'),
                   *found = strstr(text.out, said ? said : "random");
        if (forward) /* says it where it lists weights and input */
            assert_true((strstr(text.out, "weights  random") != NULL) == (said != NULL));
        else
            assert_true(said ? found && (found < line || late) : !found);
        program_free(&text);
        args[n] = "--json";
        program_result r = program_run(args);
        json_t *root = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL), *random = json_object_get(root, "random");
        assert_non_null(random);
        if (said)
            assert_string_equal(json_string_value(random), said);
        else
            assert_true(json_is_null(random));
        json_decref(root);
        program_free(&r);
        if (!draws)
            continue;
        const char *to = scratch("random.html");
        args[n] = "--quiet", args[n + 1] = "--picture", args[n + 2] = to;
        runs(program_run(args));
        page_data page = page_data_read(to);
        const char *title = json_string_value(json_object_get(page.json, "title"));
        assert_true(said ? title && strstr(title, said) : !title || !*title);
        page_data_free(&page);
    }
}

/* A trace remembers what was random. */
static void a_trace_remembers_what_is_random(void **state)
{
    (void)state;
    const char *drawn = scratch("drawn.safetensors"), *real = scratch("real.safetensors"),
               *one = scratch("q.npy");
    runs(RUN("forward", "--preset", "gpt2", "--seq", "3", "--trace", drawn, "--quiet"));
    runs(RUN("forward", LOOKUP, "--heads", "6", "--trace", real, "--quiet"));
    runs(RUN("forward", "--d-model", "8", "--heads", "2", "--seq", "3", "--trace", one, "--stage", "q", "--quiet"));
    static const char said[] = "random weights and inputs (seed 0): the shape of gpt2, not its attention";
    const struct {
        const char *args[6], *said;
    } rows[] = {{{"show", drawn}, said},      {{"show", drawn, "--stage", "q"}, said}, {{"show", real, drawn}, said},
                {{"show", real}, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        program_result r = program_run(rows[i].args);
        assert_int_equal(r.code, 0);
        assert_true(rows[i].said ? strncmp(r.out, said, strlen(said)) == 0 : !strstr(r.out, "random"));
        program_free(&r);
    }
}

static void tokens_have_names(void **state)
{
    (void)state;
    static const struct {
        const char *text, *names[4];
    } files[] = {{"a b\r\n\n<i>\nlast", {"a b", "", "<i>", "last"}},
                 {" [\"a b\", \"\", \"<i>\", \"last\"]", {"a b", "", "<i>", "last"}},
                 {"[\n  \"[CLS]\",\n  \"[\",\n  \"]\",\n  \"\"\n]\n", {"[CLS]", "[", "]", ""}},
                 {"[CLS]\nthe\nanimal\n[SEP]\n", {"[CLS]", "the", "animal", "[SEP]"}},
                 {"[INST]\r\nHi\r\n\"\r\n[/INST]", {"[INST]", "Hi", "\"", "[/INST]"}},
                 {"[\nINST\n]\n\"", {"[", "INST", "]", "\""}},
                 {"  [x]\n[\n]\n[]", {"  [x]", "[", "]", "[]"}}};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        const char *path = scratch_write("names", files[f].text, strlen(files[f].text)), *to = scratch("named.html");
        runs(RUN("show", "--seq", "4", "--d-model", "8", "--heads", "2", "--tokens", path, "--picture", to, "--quiet"));
        page_data page = page_data_read(to);
        json_t *tokens = json_object_get(page.json, "tokens");
        assert_int_equal(json_array_size(tokens), 4);
        for (size_t i = 0; i < 4; i++)
            assert_string_equal(json_string_value(json_array_get(tokens, i)), files[f].names[i]);
        page_data_free(&page);
    }
    static const char few[] = "a\nb\n", binary[] = "a\n\0b";
    assert_program_refuses(RUN("show", "--seq", "3", "--tokens", scratch_write("few.txt", few, sizeof few - 1)), 2,
                           "--tokens: expected a name for each of 3 keys, found 2");
    assert_program_refuses(RUN("show", "--seq", "3", "--tokens", scratch_write("none.txt", "", 0)), 2,
                           "--tokens: expected a name for each of 3 keys, found 0");
    assert_program_refuses(RUN("show", "--tokens", scratch_write("binary", binary, sizeof binary - 1)), 2,
                           "--tokens: *expected names of tokens as text*another binary file");
    const char *bad = scratch_write("bad.json", "[1]", 3);
    assert_program_refuses(RUN("show", "--tokens", bad), 2, "expected an array of texts*at index 0");
    static const char *const broken[] = {"[\"a\"", "[\"[CLS]\", \"a\" \"b\"]", " [ \"a\", \"b\"]\n[SEP]"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        bad = scratch_write("worse.json", broken[i], strlen(broken[i]));
        assert_program_refuses(RUN("show", "--tokens", bad), 2,
                               "--tokens: *expected an array of JSON, or a name in each line; line *: ");
    }
    assert_program_refuses(RUN("show", "--tokens", "no/such"), 2, "--tokens: no/such");
}

/* A GGUF file with a vocabulary of texts, or with something else in its place (`type`); no tensors. */
static const char *vocabulary(const char *name, const char *key, uint32_t type, const char *const *words, size_t count)
{
    bytes b = {0};
    bytes_text(&b, "GGUF");
    bytes_number(&b, 3, 4);
    bytes_number(&b, 0, 8);
    bytes_number(&b, 1, 8);
    bytes_number(&b, strlen(key), 8);
    bytes_text(&b, key);
    bytes_number(&b, 9, 4);
    bytes_number(&b, type, 4);
    bytes_number(&b, count, 8);
    for (size_t i = 0; i < count && type == 8; i++) {
        bytes_number(&b, strlen(words[i]), 8);
        bytes_text(&b, words[i]);
    }
    bytes_zeros(&b, type == 8 ? 0 : count); /* numbers of a byte */
    return scratch_take(name, &b);
}

/* A trace of one head and `keys` keys, with ids of tokens (none for -1) and recorded names (NULL for none). */
static const char *trace_of(const char *name, size_t rows, size_t keys, int64_t first_id, mha_dtype type,
                            const char *names)
{
    static float weights[64];
    static int64_t ids[64];
    static float floats[64];
    mha_writer *writer;
    mha_error error;
    const char *path = scratch(name);
    const mha_view w = mha_view_of(weights, MHA_F32, 4, (const size_t[]){rows, 1, keys, keys}),
                   t = mha_view_of(type == MHA_I64 ? (void *)ids : floats, type, 2, (const size_t[]){rows, keys});
    for (size_t i = 0; i < rows * keys; i++)
        ids[i] = first_id + (int64_t)i;
    assert_ok(mha_writer_create(path, &writer, &error), error);
    assert_ok(mha_writer_add(writer, "weights", &w, &error), error);
    if (first_id >= 0)
        assert_ok(mha_writer_add(writer, "tokens", &t, &error), error);
    if (names)
        assert_ok(mha_writer_add_metadata(writer, "token_names", names, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    return path;
}

static void assert_names(const char *page_path, const char *const *names, size_t count)
{
    page_data page = page_data_read(page_path);
    json_t *tokens = json_object_get(page.json, "tokens");
    assert_int_equal(json_array_size(tokens), count);
    for (size_t i = 0; i < count; i++)
        assert_string_equal(json_string_value(json_array_get(tokens, i)), names[i]);
    assert_null(strstr(page.text, "<script>alert"));
    page_data_free(&page);
}

/* Names that a file records, and ids that a vocabulary names; those of --tokens come first. */
static void recorded_tokens_have_names(void **state)
{
    (void)state;
    static const char *const words[] = {"<s>", "</script><script>alert(1)</script>", "\xe2\x80\xae\x1b[31m", "d", "e"};
    static const char key[] = "tokenizer.ggml.tokens";
    const char *to = scratch("names.html"), *gguf = vocabulary("words.gguf", key, 8, words, 5);
    const char *named =
                   trace_of("named.safetensors", 1, 2, -1, MHA_I64, "[\"</script><script>alert(1)</script>\", \"b\"]"),
               *ids = trace_of("ids.safetensors", 1, 3, 1, MHA_I64, NULL);
    runs(RUN("show", named, "--picture", to, "--quiet"));
    assert_names(to, (const char *const[]){words[1], "b"}, 2);
    runs(RUN("show", ids, "--tokens", gguf, "--picture", to, "--quiet"));
    assert_names(to, words + 1, 3);
    program_result r = RUN("show", ids, "--tokens", gguf);
    assert_int_equal(r.code, 0);
    assert_null(strstr(r.out, "\x1b"));
    program_free(&r);
    runs(RUN("show", trace_of("rows.safetensors", 2, 2, 0, MHA_I64, NULL), "--tokens", gguf, "--batch", "1",
             "--picture", to, "--quiet"));
    assert_names(to, words + 2, 2);
    const char *other = vocabulary("other.gguf", "general.other", 8, words, 5),
               *numbers = vocabulary("numbers.gguf", key, 0, NULL, 5);
    assert_program_refuses(RUN("show", ids, "--tokens", other), 2, "--tokens: *expected a vocabulary*found none");
    assert_program_refuses(RUN("show", ids, "--tokens", numbers), 2, "--tokens: *expected a vocabulary of texts");
    assert_program_refuses(RUN("show", "--seq", "3", "--tokens", gguf), 2, "--tokens: expected a file with ids");
    assert_program_refuses(RUN("show", named, "--tokens", gguf), 2, "expected the ids of its tokens*found none");
    assert_program_refuses(RUN("show", scratch("rows.safetensors"), "--tokens", gguf), 2, "one row of ids, found 2");
    assert_program_refuses(RUN("show", trace_of("far.safetensors", 1, 3, 3, MHA_I64, NULL), "--tokens", gguf), 2,
                           "tokens: expected ids below 5, *found 5 at index 2");
    assert_program_refuses(RUN("show", trace_of("float.safetensors", 1, 2, 0, MHA_F32, NULL), "--tokens", gguf), 2,
                           "expected ids of tokens, (B, S) or (S) of I32 or I64, found 2 axes of F32");
    assert_program_refuses(RUN("show", trace_of("bad.safetensors", 1, 2, -1, MHA_I64, "[\"a\"")), 2,
                           "token_names: expected an array of JSON; line 1");
    assert_program_refuses(RUN("show", trace_of("few.safetensors", 1, 2, -1, MHA_I64, "[\"a\"]")), 2,
                           "expected a name for each of 2 keys, found 1");
}

/* Stages of a trace that do not fit, and a device that takes nothing: one line, no file. */
static void broken_traces_leave_no_file(void **state)
{
    (void)state;
    static float numbers[12];
    static const struct {
        size_t weights[3], masked[3];
        const char *says;
    } traces[] = {{{1, 2, 2}, {1, 2, 3}, "masked: expected shape (1, 1, 2, 2), found (1, 1, 2, 3)"},
                  {{0, 2, 2}, {1, 2, 2}, "weights: expected numbers, found none"}};
    const char *path = scratch("broken.safetensors"), *to = scratch("broken.html"), *full = scratch("full.html");
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++) {
        mha_writer *writer;
        mha_error error;
        const mha_view weights = mha_view_of(numbers, MHA_F32, 3, traces[i].weights);
        const mha_view masked = mha_view_of(numbers, MHA_F32, 3, traces[i].masked);
        assert_ok(mha_writer_create(path, &writer, &error), error);
        assert_ok(mha_writer_add(writer, "weights", &weights, &error), error);
        assert_ok(mha_writer_add(writer, "masked", &masked, &error), error);
        assert_ok(mha_writer_commit(writer, &error), error);
        mha_writer_destroy(writer);
        assert_program_refuses(RUN("show", path, "--picture", to), 2, traces[i].says);
    }
    static const int32_t whole[4];
    static char name[1030];
    memset(name, 'n', sizeof name - 1);
    memcpy(name + sizeof name - 9, ".weights", 8);
    const struct {
        const char *name;
        mha_view view;
        const char *says;
    } alone[] = {{"weights", mha_view_of((void *)(uintptr_t)whole, MHA_I32, 3, (size_t[]){1, 2, 2}), "axes of I32"},
                 {"weights", mha_view_of(numbers, MHA_F32, 2, (size_t[]){2, 2}), "found 2 axes of F32"},
                 {name, mha_view_of(numbers, MHA_F32, 3, (size_t[]){1, 2, 2}), "at most 1000 bytes"}};
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
        mha_writer *writer;
        mha_error error;
        assert_ok(mha_writer_create(path, &writer, &error), error);
        assert_ok(mha_writer_add(writer, alone[i].name, &alone[i].view, &error), error);
        assert_ok(mha_writer_commit(writer, &error), error);
        mha_writer_destroy(writer);
        assert_program_refuses(RUN("show", path, "--picture", to), 2, alone[i].says);
    }
    assert_true(fopen(to, "r") == NULL);
    assert_int_equal(symlink("/dev/full", full), 0);
    assert_program_refuses(RUN("show", "--seq", "4", "--d-model", "8", "--heads", "2", "--picture", full), 3,
                           "full.html: cannot write it: No space left on device");
}

/* The case's fields that may hide keys, and no other, are on the page. */
static void a_walk_has_the_parts_of_a_pattern(void **state)
{
    (void)state;
    static const struct {
        const char *file, *words;
    } parts[] = {{"pattern_segments", "it is in another segment than the query"},
                 {"pattern_query_padding", "the query is padding"},
                 {"pattern_lists", "it is not in the query's list of keys"},
                 {"pattern_blocks", "the mask of blocks hides it"},
                 {"torch_causal", NULL}};
    const char *path = scratch("parts.html");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char file[80];
        snprintf(file, sizeof file, "tests/vectors/%s.safetensors", parts[i].file);
        runs(RUN("show", file, "--picture", path, "--quiet"));
        page_data page = page_data_read(path);
        json_t *hides = json_object_get(walk_of(&page), "hides");
        assert_int_equal(json_array_size(hides), parts[i].words ? 1 : 0);
        if (parts[i].words)
            assert_string_equal(json_string_value(json_array_get(hides, 0)), parts[i].words);
        page_data_free(&page);
    }
}

/* The weights that --query names are the largest of that row of the recorded weights, also where the map is pooled. */
static void one_query_has_its_strongest_keys(void **state)
{
    (void)state;
    static const char *const sizes[][2] = {{"7", "5"}, {"1500", "1234"}};
    const char *trace = scratch("query.safetensors");
    for (size_t n = 0; n < 2; n++) {
        const size_t T = strtoul(sizes[n][0], NULL, 10), query = strtoul(sizes[n][1], NULL, 10);
        runs(RUN("forward", "--d-model", "8", "--heads", "2", "--seq", sizes[n][0], "--causal", "--trace", trace,
                 "--stage", "weights", "--quiet"));
        mha_view weights = stage_of(trace, "weights");
        json_t *root = RUN_JSON(0, "show", trace, "--query", sizes[n][1], "--head", "1", "--json");
        json_t *head = json_array_get(json_object_get(json_array_get(json_object_get(root, "layers"), 0), "heads"), 0);
        json_t *strongest = json_object_get(head, "strongest");
        assert_int_equal(json_integer_value(json_object_get(head, "queries")), 1);
        assert_int_equal(json_array_size(strongest), 4);
        const double *row = (double *)weights.data + (T + query) * T;
        for (size_t i = 0; i < 4; i++) {
            json_t *one = json_array_get(strongest, i);
            const float weight = (float)json_real_value(json_object_get(one, "weight")); /* its 15 digits are enough */
            const size_t key = (size_t)json_integer_value(json_object_get(one, "key"));
            size_t larger = 0;
            for (size_t k = 0; k < T; k++)
                larger += row[k] > (double)weight;
            assert_true(key < T && row[key] == (double)weight);
            assert_int_equal(larger, i);
        }
        json_decref(root);
        free(weights.data);
    }
    program_result r = RUN("show", "--seq", "6", "--d-model", "8", "--heads", "2", "--causal", "--query", "0");
    assert_non_null(strstr(r.out, "  head 0, query 0  looks at key 0 (100.0 %)\n  head 1, query 0  looks at"));
    program_free(&r);
    r = RUN("show", "--seq", "6", "--d-model", "8", "--heads", "2", "--causal", "--query", "2", "--keys", "2:5");
    assert_non_null(strstr(r.out, "  head 0, query 2  looks at key 2 ("));
    program_free(&r);
}

static void what_cannot_be_shown_is_refused(void **state)
{
    (void)state;
    const char *to = scratch("refused.html");
    const char *npy = scratch("plain.npy");
    runs(RUN("forward", "--seq", "4", "--d-model", "8", "--heads", "2", "--output", npy, "--quiet"));
    assert_program_refuses(RUN("show", "--picture", "page.gif"), 2, "--picture: expected a name that ends in .html");
    assert_program_refuses(RUN("show", "--picture", "/nowhere/page.html"), 3, "--picture: /nowhere/page.html: cannot");
    assert_program_refuses(RUN("show", "--seq", "4", "--rows", "4:2"), 2, "--rows: expected A:B with A below B");
    assert_program_refuses(RUN("show", "--seq", "4", "--rows", "1:9"), 2, "--rows: expected an end of at most 4");
    assert_program_refuses(RUN("show", "--seq", "4", "--query", "4"), 2, "--query: expected a query below 4, found 4");
    assert_program_refuses(RUN("show", "--seq", "4", "--query", "1", "--rows", "1:2"), 2,
                           "--rows: expected no --query");
    assert_program_refuses(RUN("show", "--seq", "4", "--query", "1", "--stage", "q"), 2,
                           "--query: expected no --stage");
    assert_program_refuses(RUN("show", "--seq", "4", "--keys", "-1:2"), 2, "--keys: expected A:B");
    assert_program_refuses(RUN("show", "--seq", "4", "--head", "12"), 2, "--head: expected a head below 12, found 12");
    assert_program_refuses(RUN("show", "--seq", "4", "--batch", "1"), 2, "--batch: expected a batch row or sequence");
    assert_program_refuses(RUN("show", npy, "--picture", to), 2, "expected a case*or a trace*found neither");
    assert_program_refuses(RUN("show", npy, "--heads", "3"), 2, "--heads: expected no file beside it");
    assert_program_refuses(RUN("show", "no/such/file", "--picture", to), 2, "no/such/file");
    program_result r = RUN("show", "--seq", "4", "--d-model", "8", "--heads", "2", "--picture", "/dev/full");
    assert_int_equal(r.code, 2); /* the ending is asked for first */
    program_free(&r);
    assert_true(fopen(to, "r") == NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_holds_the_numbers_of_the_trace),
        cmocka_unit_test(the_walk_holds_every_stage),
        cmocka_unit_test(a_walk_says_what_it_leaves_out),
        cmocka_unit_test(a_walk_has_the_rows_of_a_cache),
        cmocka_unit_test(a_walk_has_the_rules_that_hide_keys),
        cmocka_unit_test(threads_change_no_byte_of_a_page),
        cmocka_unit_test(forward_writes_it_too),
        cmocka_unit_test(recorded_weights_stand_beside_those_that_were_run),
        cmocka_unit_test(a_large_page_holds_them_in_levels),
        cmocka_unit_test(a_page_of_many_heads_is_small),
        cmocka_unit_test(the_same_picture_gives_the_same_bytes),
        cmocka_unit_test(a_page_asks_for_nothing),
        cmocka_unit_test(numbers_are_printed_and_given_as_json),
        cmocka_unit_test(files_and_prefixes_are_layers),
        cmocka_unit_test(names_cannot_become_markup),
        cmocka_unit_test(what_is_random_is_said),
        cmocka_unit_test(a_trace_remembers_what_is_random),
        cmocka_unit_test(tokens_have_names),
        cmocka_unit_test(recorded_tokens_have_names),
        cmocka_unit_test(broken_traces_leave_no_file),
        cmocka_unit_test(a_walk_has_the_parts_of_a_pattern),
        cmocka_unit_test(one_query_has_its_strongest_keys),
        cmocka_unit_test(what_cannot_be_shown_is_refused),
    };
    return cmocka_run_group_tests_name("cli_show", tests, NULL, scratch_remove);
}
