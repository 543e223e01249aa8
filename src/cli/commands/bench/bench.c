/* mha bench: throughput of the shapes that are asked for, compared with the machine's limits. */
#include "cli/commands/bench/bench.h"

/* ---------------------------------------------------------------- which shapes */

static int refuse_shape(const char *text, const char *fault)
{
    const char *known = BENCH_SET;
    for (size_t i = 0; bench_shape_at(i); i++)
        known = text_more(known, ", %s", bench_shape_at(i)->name);
    return refuse("--shape", "%s; names are %s; found \"%s\"", fault, known, text);
}

/* mha bench --shape list: the names of the shapes and what they stand for. */
static int list_shapes(const arguments *args)
{
    static const char *const columns[] = {"name: name", "B,Tq,Tk,d_model,h: shape", ": ~standard"};
    if (given(args, OPT_BARS))
        return refuse_option(OPT_BARS, "expected nothing with --shape list, which measures nothing");
    json_t *list = json_array(), *root = keep_json(record_of("shapes", list, NULL));
    const bench_shape *shape;
    for (size_t i = 0; (shape = bench_shape_at(i)); i++) {
        char text[BENCH_SHAPE_TEXT];
        bench_shape_text(text, shape);
        json_array_append_new(list, record_of("name", J(shape->name), "shape", J(text), "standard",
                                              json_boolean(i < BENCH_STANDARD), "~standard",
                                              J(i < BENCH_STANDARD ? "of the standard set" : ""), NULL));
    }
    if (report_is_text(args, root))
        REPORT_TABLE(list, columns);
    return EXIT_DONE;
}

/* Reads the shapes that are asked for into *shapes: all of them before any is run. */
static int read_shapes(const option_value *asked, bench_shape **shapes, size_t *n)
{
    *shapes = keep(obtain((asked->n_texts + 1) * BENCH_STANDARD, sizeof **shapes));
    for (size_t i = 0; i < asked->n_texts || (i == 0 && asked->n_texts == 0); i++) {
        const char *text = asked->n_texts > 0 ? asked->texts[i] : BENCH_DEFAULT;
        if (strcmp(text, BENCH_SET) == 0) {
            for (size_t s = 0; s < BENCH_STANDARD; s++)
                (*shapes)[(*n)++] = *bench_shape_at(s);
            continue;
        }
        const char *fault = bench_shape_fault(text, &(*shapes)[*n]);
        if (fault)
            return refuse_shape(text, fault);
        (*n)++;
    }
    return EXIT_DONE;
}

/* Options that say which layers of a model are measured, and over how many tokens. */
static const option_code of_models[] = {OPT_ARCHITECTURE, OPT_BATCH, OPT_COST_SEQ, OPTION_COUNT};

static int run_shapes(bench *b)
{
    bench_shape *shapes = NULL;
    size_t n = 0;
    int code = refuse_each(b->args, of_models, "--preset or --config with it, found neither");
    if (code == EXIT_DONE)
        code = read_shapes(&b->args->option[OPT_SHAPE], &shapes, &n);
    for (size_t i = 0; i < n; i++)
        b->widest = strlen(shapes[i].name) > b->widest ? strlen(shapes[i].name) : b->widest;
    for (size_t i = 0; code == EXIT_DONE && i < n; i++)
        code = bench_run_parts(b, &shapes[i], bench_show);
    return code;
}

static int run_model(bench *b, bench_model *model)
{
    if (given(b->args, OPT_SHAPE))
        return refuse_option(OPT_SHAPE, "expected nothing with a model, whose layers are measured");
    TRY(bench_model_read(b->args, model));
    for (size_t i = 0; i < model->count; i++)
        b->widest = strlen(model->each[i].name) > b->widest ? strlen(model->each[i].name) : b->widest;
    for (size_t i = 0; i < model->count; i++)
        TRY(bench_run_parts(b, &model->each[i].shape, bench_show));
    bench_model_add_rows(b, model);
    bench_show(b);
    return EXIT_DONE;
}

static int by_threads(const void *a, const void *b)
{
    return ((const limits *)a)->threads - ((const limits *)b)->threads;
}

/* The thread counts in increasing order, each once. */
static void choose_threads(bench *b)
{
    const option_value *list = &b->args->option[OPT_THREAD_LIST];
    const int64_t usual[] = {1, mha_threads_available()};
    const int64_t *counts = list->given ? list->numbers : usual;
    const size_t n = list->given ? list->n_numbers : sizeof usual / sizeof *usual;
    b->limits = keep(obtain(n, sizeof *b->limits));
    for (size_t i = 0; i < n; i++)
        b->limits[i].threads = (int)counts[i];
    qsort(b->limits, n, sizeof *b->limits, by_threads);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || b->limits[i].threads > b->limits[i - 1].threads)
            b->limits[b->n_limits++].threads = b->limits[i].threads;
}

int run_bench(const arguments *args)
{
    bench b = {.args = args};
    bench_model model = {0};
    if (presets_asked(args))
        return list_presets(args);
    const option_value *shapes = &args->option[OPT_SHAPE];
    if (shapes->n_texts == 1 && strcmp(shapes->texts[0], "list") == 0)
        return list_shapes(args);
    choose_threads(&b);
    int code = picture_file_check(args, OPT_BARS);
    bench_mind_signals();
    if (code == EXIT_DONE)
        code = model_asked(args) ? run_model(&b, &model) : run_shapes(&b);
    const bool stopped = code > EXIT_SIGNAL, done = code == EXIT_DONE || stopped;
    bench_show(&b);
    const int drawn = done && b.n_rows > 0 ? bench_draw(&b) : EXIT_DONE;
    if (done)
        bench_end(&b);
    if (done && bench_writes_json(&b) && drawn == EXIT_DONE)
        bench_write_json(&b);
    if (stopped)
        refuse("", "a signal stopped it, %zu rows were measured", b.n_rows);
    if (b.table)
        table_drop(b.table);
    keep(b.rows);
    return code == EXIT_DONE ? drawn : code;
}
