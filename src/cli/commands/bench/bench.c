/* mha bench: throughput of the shapes that are asked for, compared with the machine's limits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/bench/bench_model.h"
#include "cli/commands/bench/bench_report.h"
#include "cli/commands/commands.h"
#include "cli/output/picture_file.h"
#include "cli/output/presets.h"
#include "cli/setup/model.h"

/* ---------------------------------------------------------------- which shapes */

static int refuse_shape(const char *text, const char *fault)
{
    char known[512] = "";
    for (size_t i = 0; bench_shape_at(i); i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", bench_shape_at(i)->name);
    return refuse("--shape", "%s; names are %s; found \"%s\"", fault, known, text);
}

static bool wants_list(const option_value *asked)
{
    return asked->n_texts == 1 && strcmp(asked->texts[0], "list") == 0;
}

/* mha bench --shape list: the names of the shapes and what they stand for. */
static int list_shapes(const arguments *args)
{
    static const char *const titles[] = {"name", "B,Tq,Tk,d_model,h", ""};
    if (given(args, OPT_BARS))
        return refuse_option(OPT_BARS, "expected nothing beside --shape list, which measures nothing");
    const bool json = given(args, OPT_JSON), quiet = given(args, OPT_QUIET) && !json;
    table *t = table_create(given(args, OPT_CSV) ? TABLE_CSV : TABLE_TEXT, sizeof titles / sizeof *titles, titles);
    json_t *list = json_array();
    const bench_shape *shape;
    for (size_t i = 0; (shape = bench_shape_at(i)); i++) {
        char text[BENCH_SHAPE_TEXT];
        bench_shape_text(text, shape);
        json_array_append_new(
            list, json_pack("{ss ss sb}", "name", shape->name, "shape", text, "standard", i < BENCH_STANDARD));
        table_cell(t, shape->name);
        table_cell(t, text);
        table_cell(t, i < BENCH_STANDARD ? "of the standard set" : "");
    }
    if (json || quiet)
        table_drop(t);
    else
        table_print(t);
    if (json)
        json_print(json_pack("{so}", "shapes", list));
    else
        json_decref(list);
    return EXIT_DONE;
}

/* Shape `i` of those given, read into `room`; without any given, of the standard ones; NULL past the last. */
static const bench_shape *chosen_shape(const option_value *asked, size_t i, bench_shape *room)
{
    bool read = i < asked->n_texts && bench_shape_read(asked->texts[i], room);
    return read ? room : asked->n_texts == 0 && i < BENCH_STANDARD ? bench_shape_at(i) : NULL;
}

/* Options that say which layers of a model are measured, and over how many tokens. */
static const option_code of_models[] = {OPT_ARCHITECTURE, OPT_BATCH, OPT_COST_SEQ, OPTION_COUNT};

static int run_shapes(bench *b)
{
    const option_value *asked = &b->args->option[OPT_SHAPE];
    int code = refuse_each(b->args, of_models, "--preset or --config beside it, found neither");
    for (size_t i = 0; i < asked->n_texts && code == EXIT_DONE; i++) { /* all are checked before any is run */
        bench_shape shape;
        const char *fault = bench_shape_fault(asked->texts[i], &shape);
        if (fault)
            return refuse_shape(asked->texts[i], fault);
    }
    const bench_shape *shape;
    bench_shape read;
    for (size_t i = 0; code == EXIT_DONE && (shape = chosen_shape(asked, i, &read)); i++)
        code = bench_run_parts(b, shape);
    return code;
}

static int run_model(bench *b, bench_model *model)
{
    if (given(b->args, OPT_SHAPE))
        return refuse_option(OPT_SHAPE, "expected nothing beside a model, whose layers are measured");
    int code = bench_model_read(b->args, model);
    for (size_t i = 0; i < model->count && code == EXIT_DONE; i++)
        code = bench_run_parts(b, &model->each[i].shape);
    if (code == EXIT_DONE)
        bench_model_add_rows(b, model);
    return code;
}

/* Compares all rows with the limits, which are known only after all rounds of all shapes. */
static void compare_with_limits(bench *b)
{
    for (size_t i = 0; i < b->n_rows; i++) {
        bench_row *row = &b->rows[i];
        row->percent_of_peak = 100 * row->gflops / b->limits[row->limit].peak_gflops;
        row->percent_of_reads = 100 * row->gbs / b->limits[row->limit].read_gbs;
        row->percent_of_same_reads = row->same_gbs > 0 ? 100 * row->gbs / row->same_gbs : NAN;
    }
}

int run_bench(const arguments *args)
{
    bench b = {.args = args};
    bench_model model = {0};
    if (presets_asked(args))
        return list_presets(args);
    if (wants_list(&args->option[OPT_SHAPE]))
        return list_shapes(args);
    int most = given(args, OPT_THREADS) ? (int)count_of(args, OPT_THREADS) : mha_threads_available();
    if (!given(args, OPT_THREADS) && most > 1)
        b.limits[b.n_limits++].threads = 1;
    b.limits[b.n_limits++].threads = most;
    int code = picture_drawing_check(args, OPT_BARS);
    if (code == EXIT_DONE)
        code = model_asked(args) ? run_model(&b, &model) : run_shapes(&b);
    bench_end_progress(&b);
    compare_with_limits(&b);
    if (code == EXIT_DONE)
        code = bench_draw(&b);
    if (code == EXIT_DONE && given(args, OPT_JSON))
        bench_write_json(&b);
    else if (code == EXIT_DONE && given(args, OPT_CSV))
        bench_print_table(&b, TABLE_CSV);
    else if (code == EXIT_DONE && !given(args, OPT_QUIET))
        bench_print_text(&b);
    free(b.rows);
    return code;
}
