/* mha compare: the difference of two tensors, or of all tensors of two files. */
#include <math.h>

#include "cli/commands/commands.h"
#include "picture/sheet.h"

/* A name, with its tensors on both sides or on one side only. */
typedef struct pair {
    const char *name;
    const mha_file_tensor *a, *b; /* NULL where the side lacks it */
    mha_difference difference;
    char obstacle[200]; /* why they could not be compared; "" when they were */
} pair;

static bool equal(const pair *p)
{
    return p->a && p->b && !*p->obstacle && p->difference.mismatches == 0;
}

static const char *name_of(const pair *p)
{
    return *p->name ? p->name : "(unnamed)";
}

/* Asks for the memory of both sides before the first is read: a small archive can hold a large tensor. */
static int expect_both(const pair *p)
{
    size_t a = 0, b = 0;
    const bool counted = mha_dtype_bytes(p->a->reads_as, p->a->elements, &a, NULL) == MHA_OK &&
                         mha_dtype_bytes(p->b->reads_as, p->b->elements, &b, NULL) == MHA_OK;
    return expect_memory(counted && a <= SIZE_MAX - b ? a + b : SIZE_MAX, text_of("%s of both files", name_of(p)));
}

/* The caller compares shapes without leading axes of extent 1, as in a batch of one. */
static mha_view without_leading_ones(const mha_view *view, int rank)
{
    int first = 0;
    while (view->rank - first > rank && view->shape[first] == 1)
        first++;
    return mha_view_of(view->data, view->dtype, view->rank - first, view->shape + first);
}

static const char *obstacle_of(const pair *p)
{
    return p->a && p->b ? p->obstacle : p->a ? "only in the first file" : "only in the second file";
}

/* The picture of compare_pair; cells: the most of one tensor. */
typedef struct canvas {
    mha__picture *picture; /* NULL without --picture */
    size_t cells;
    double rtol, atol;
} canvas;

static int draw_pair(const canvas *on, const pair *p, const mha_view *x, const mha_view *y)
{
    mha__sheet *sheet = NULL;
    mha_error error = {0};
    if (!on->picture)
        return EXIT_DONE;
    const mha_status status =
        *obstacle_of(p) ? mha__sheet_refuse(on->picture, name_of(p), obstacle_of(p), &error)
                        : mha__sheet_add(on->picture, name_of(p), x, y, &p->difference, on->cells, &sheet, &error);
    if (status == MHA_OK && sheet) {
        sheet->mark = equal(p) ? "ok" : "differs";
        sheet->rtol = on->rtol;
        sheet->atol = on->atol;
    }
    return done_or_refuse(status, "--picture", &error);
}

static int compare_pair(pair *p, const source *a, const source *b, const canvas *on)
{
    if (!p->a || !p->b)
        return draw_pair(on, p, NULL, NULL);
    mha_view x = mha_view_of(NULL, p->a->dtype, p->a->rank, p->a->shape);
    mha_view y = mha_view_of(NULL, p->b->dtype, p->b->rank, p->b->shape);
    int rank = x.rank < y.rank ? x.rank : y.rank;
    x = without_leading_ones(&x, rank);
    y = without_leading_ones(&y, rank);
    if (x.rank != y.rank || memcmp(x.shape, y.shape, (size_t)x.rank * sizeof *x.shape) != 0) {
        snprintf(p->obstacle, sizeof p->obstacle, "shapes differ: %.80s and %.80s", shape_text(p->a->rank, p->a->shape),
                 shape_text(p->b->rank, p->b->shape));
        return draw_pair(on, p, NULL, NULL);
    }
    mha_error error = {0};
    mha__arena memory = {0};
    int code = expect_both(p);
    if (code == EXIT_DONE) /* without conversion: float64 is compared as float64; narrower numbers are exact in it */
        code = source_read(a, p->a, p->a->reads_as, &memory, &x);
    if (code == EXIT_DONE)
        code = source_read(b, p->b, p->b->reads_as, &memory, &y);
    x = without_leading_ones(&x, rank);
    y = without_leading_ones(&y, rank);
    if (code == EXIT_DONE) {
        x = in_common_order(a->file, p->a, &memory, &x);
        y = in_common_order(b->file, p->b, &memory, &y);
    }
    mha_status status = code == EXIT_DONE ? mha_compare(&x, &y, on->rtol, on->atol, &p->difference, &error) : MHA_OK;
    if (status != MHA_OK)
        snprintf(p->obstacle, sizeof p->obstacle, "%.199s", error.message); /* unreachable: these types compare */
    else if (code == EXIT_DONE)
        code = draw_pair(on, p, &x, &y);
    mha__arena_free(&memory);
    return code;
}

/* The size of a tensor in its file, with scales. */
static double bits_each(const mha_file_tensor *tensor)
{
    return tensor->elements ? 8 * (double)tensor->bytes / (double)tensor->elements : 0;
}

/* The picture of compare_layers. */
static const char random_tokens[] = "32 random tokens";

/* ---------------------------------------------------------------- pairs */

typedef struct comparison {
    source a, b;
    pair *pairs;
    size_t n;
    compared_layers layers;
    mha__picture picture;
} comparison;

/* Pairs tensors by name: first those of the first file in its order, then those of the second file alone. */
static void pair_all(comparison *c)
{
    const mha_file *a = c->a.file, *b = c->b.file;
    c->pairs = keep(obtain(mha_file_count(a) + mha_file_count(b), sizeof *c->pairs));
    for (size_t i = 0; i < mha_file_count(a); i++) {
        const mha_file_tensor *t = mha_file_at(a, i);
        c->pairs[c->n++] = (pair){.name = t->name, .a = t, .b = tensor_alike(b, t->name)};
    }
    for (size_t i = 0; i < mha_file_count(b); i++) {
        const mha_file_tensor *t = mha_file_at(b, i);
        if (!tensor_alike(a, t->name))
            c->pairs[c->n++] = (pair){.name = t->name, .b = t};
    }
}

/* Pairs a named tensor with the tensor named for the other file, else the one of equal name, else the only one. */
static int make_pairs(comparison *c)
{
    source *a = &c->a, *b = &c->b;
    if (!a->tensor && mha_file_count(a->file) == 1)
        a->tensor = mha_file_at(a->file, 0);
    if (!b->tensor && mha_file_count(b->file) == 1)
        b->tensor = mha_file_at(b->file, 0);
    if (a->tensor && !b->tensor)
        b->tensor = mha_file_find(b->file, a->tensor->name);
    if (b->tensor && !a->tensor)
        a->tensor = mha_file_find(a->file, b->tensor->name);
    if (!a->tensor && !b->tensor) {
        pair_all(c);
        return EXIT_DONE;
    }
    TRY(source_choose(a, mha_file_path(a->file)));
    TRY(source_choose(b, mha_file_path(b->file)));
    c->pairs = keep(obtain(1, sizeof *c->pairs));
    c->pairs[c->n++] =
        (pair){.name = *a->tensor->name ? a->tensor->name : b->tensor->name, .a = a->tensor, .b = b->tensor};
    return EXIT_DONE;
}

/* ---------------------------------------------------------------- text and JSON */

/* A pair; what quantising costs stands apart, as text. */
static json_t *pair_record(const pair *p)
{
    const mha_difference *d = &p->difference;
    if (*obstacle_of(p))
        return record_of("name", J(p->name), "max_abs", json_null(), "max_rel", json_null(), "max_ulp", json_null(),
                         "rms", json_null(), "cosine", json_null(), "mismatches", json_null(), "worst_index",
                         json_null(), "equal", json_false(), "reason", J(obstacle_of(p)), NULL);
    return record_of("name", J(p->name), "elements", J(d->elements), "max_abs", J(d->max_abs), "max_rel", J(d->max_rel),
                     "max_ulp", J(d->max_ulp), "rms", J(d->rms), "cosine", J(d->cosine), "worst_index",
                     json_shape(d->rank, d->worst_index), "worst_a", J(d->worst_actual), "worst_b",
                     J(d->worst_expected), "mismatches", J(d->mismatches), "tolerance_needed", J(d->tolerance_needed),
                     "nan_a", J(d->nan_actual), "nan_b", J(d->nan_expected), "inf_a", J(d->inf_actual), "inf_b",
                     J(d->inf_expected), "dtype_a", J(mha_dtype_name(p->a->dtype)), "dtype_b",
                     J(mha_dtype_name(p->b->dtype)), "bits_a", J(bits_each(p->a)), "bits_b", J(bits_each(p->b)),
                     "equal", json_boolean(equal(p)), "~name", J(name_of(p)), "~agree", J(equal(p) ? "yes" : "NO"),
                     "~quantised", json_boolean(is_quantised(p->a) || is_quantised(p->b)), NULL);
}

static json_t *report_of(const pair *pairs, size_t n, bool all, const compared_layers *layers)
{
    json_t *list = json_array(), *outputs = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, pair_record(&pairs[i]));
    for (size_t i = 0; i < layers->n; i++) {
        const layer_difference *l = &layers->list[i];
        const char *name = l->layer.prefix;
        json_array_append_new(outputs, record_of("layer", J(name), "max_abs", J(l->output.max_abs), "rms",
                                                 J(l->output.rms), "relative", J(l->relative), "cosine",
                                                 J(l->output.cosine), "~name",
                                                 J(*name ? name : "(without a prefix)"), NULL));
    }
    return record_of("equal", json_boolean(all), "tensors", list, layers->n ? "layer_outputs" : "~layer_outputs",
                     outputs, "random", J(layers->n ? random_tokens : NULL), NULL);
}

/* The cost of quantising: bits of each number, and changes of the numbers and of the outputs of layers. */
static void print_cost(const json_t *root, const compared_layers *layers)
{
    static const char *const types[] = {
        "tensor: ~name", "types: dtype_a dtype_b: %s, %s", ">bits each: bits_a: %.4g", ": bits_b: %.4g",
        ">rms: rms: %.3g", ">cosine: cosine: %.9g"};
    static const char *const outputs[] = {
        "output of layer: ~name", ">max |a-b|: max_abs: %.3g", ">rms: rms: %.3g", ">of rms of b: relative: %.3g",
        ">cosine: cosine: %.9g"};
    json_t *quantised = records_where(json_object_get(root, "tensors"), "~quantised", NULL);
    if (json_array_size(quantised)) {
        say("\n");
        REPORT_TABLE(quantised, types);
    }
    if (layers->n) {
        say("\n  %s through each attention layer\n", random_tokens);
        REPORT_TABLE(json_object_get(root, "layer_outputs"), outputs);
    }
    if (layers->obstacle)
        say("\n"), say_harmless("  the layers were not run: %s\n", layers->obstacle);
}

static void print_pairs(const json_t *root, const pair *pairs, size_t n, const double tolerance[2])
{
    static const char *const columns[] = {
        "tensor: ~name", "?>elements: elements", ">differ: mismatches", ">max |a-b|: max_abs: %.3g",
        ">??max rel: max_rel: %.3g", ">???max ULP: max_ulp: %.4g", ">??rms: rms: %.3g", ">??cosine: cosine: %.9g",
        "worst at: worst_index", "?>a there: worst_a: %.9g", "?>b there: worst_b: %.9g", "agree: ~agree"};
    json_t *compared = records_where(json_object_get(root, "tensors"), "~name", NULL);
    size_t differing = 0;
    if (json_array_size(compared))
        REPORT_TABLE(compared, columns);
    for (size_t i = 0; i < n; i++) {
        const pair *p = &pairs[i];
        differing += !equal(p);
        if (*obstacle_of(p))
            say_harmless("  %s: %s\n", name_of(p), obstacle_of(p));
    }
    say("\n%s%s%s (rtol %g, atol %g)\n", bold(),
           differing == 0 ? "Equal"
           : n == 1       ? "Not equal"
                          : "Not all equal",
           plain(), tolerance[0], tolerance[1]);
    if (differing && n > 1)
        say("%zu of %zu tensors differ.\n", differing, n);
}

/* ---------------------------------------------------------------- the command */

static int compare_pairs(comparison *c, const arguments *args, const double tolerance[2])
{
    const size_t most = (size_t)1 << 19,
                 share = c->n > 0 && most / c->n < MHA__SHEET_CELLS ? most / c->n : MHA__SHEET_CELLS;
    const canvas on = {given(args, OPT_PICTURE) ? &c->picture : NULL, share, tolerance[0], tolerance[1]};
    int code = EXIT_DONE;
    progress_begin(args, "tensors");
    for (size_t i = 0; i < c->n && code == EXIT_DONE; i++) {
        progress_show(i, c->n);
        code = compare_pair(&c->pairs[i], &c->a, &c->b, &on);
    }
    progress_end();
    return code;
}

/* The layers of both files, and with --dtype their matrices as the pairs that are compared, in place of the tensors. */
static int layers_of(comparison *c, const arguments *args, const double tolerance[2])
{
    const compared_layers *layers = &c->layers;
    const bool rounds = given(args, OPT_ROUND_DTYPE);
    TRY(compare_layers(&c->a, &c->b, rounds ? dtype_of(args, OPT_ROUND_DTYPE) : MHA_F32, tolerance, &c->layers));
    if (!rounds)
        return EXIT_DONE;
    if (layers->obstacle)
        return refuse_option(OPT_ROUND_DTYPE, "%s", layers->obstacle);
    if (layers->n_matrices == 0)
        return refuse_option(OPT_ROUND_DTYPE, "expected two files with the same number of attention layers");
    c->n = layers->n_matrices;
    c->pairs = keep(obtain(c->n, sizeof *c->pairs));
    for (size_t i = 0; i < c->n; i++) {
        const matrix_difference *m = &layers->matrices[i];
        c->pairs[i] = (pair){.name = m->name, .a = &m->a, .b = &m->b, .difference = m->difference};
    }
    return EXIT_DONE;
}

int run_compare(const arguments *args)
{
    comparison *c = keep(obtain(1, sizeof *c));
    const double tolerance[2] = {args->option[OPT_RTOL].real, args->option[OPT_ATOL].real};
    const bool rounds = given(args, OPT_ROUND_DTYPE);
    c->picture.sides[0] = "a", c->picture.sides[1] = "b";
    TRY(picture_file_check(args, OPT_PICTURE));
    if (rounds && given(args, OPT_PICTURE))
        return refuse_option(OPT_PICTURE, "expected nothing with --dtype, which compares no tensors of the files");
    TRY(source_open(&c->a, args->operands[0]));
    TRY(source_open(&c->b, args->operands[1]));
    if (rounds && (c->a.tensor || c->b.tensor))
        return refuse_option(OPT_ROUND_DTYPE, "expected two whole files, found a tensor of one");
    if (!rounds)
        TRY(make_pairs(c));
    TRY(compare_pairs(c, args, tolerance));
    if (!c->a.tensor && !c->b.tensor)
        TRY(layers_of(c, args, tolerance));
    if (c->n == 0)
        return refuse(args->operands[0], "expected tensors to compare, found none in either file");
    bool all = true;
    for (size_t i = 0; i < c->n; i++)
        all &= equal(&c->pairs[i]);
    c->picture.title = text_of("a: %s, b: %s", args->operands[0], args->operands[1]);
    TRY(picture_file_write(&c->picture, all ? "Equal, within the tolerance." : "Not all equal.", args));
    json_t *root = keep_json(report_of(c->pairs, c->n, all, &c->layers));
    if (report_is_text(args, root)) {
        print_pairs(root, c->pairs, c->n, tolerance);
        print_cost(root, &c->layers);
    }
    return all ? EXIT_DONE : EXIT_NO;
}
