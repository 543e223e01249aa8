/* Tensors drawn as they are: cells are the elements that differ most, and drawings hold every sheet or say so. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/file.h"
#include "mha/random.h"
#include "picture/sheet.h"
#include "support/failing.h"
#include "support/scratch.h"
#include "support/unit.h"

/* Random numbers, some of them NaN, infinite or equal in both. */
static void fill(double *a, double *b, size_t count, uint64_t seed)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, 0};
    for (size_t i = 0; i < count; i++) {
        a[i] = 2 * mha__random_unit(seed, 0, i) - 1;
        b[i] = i % 3 ? a[i] : a[i] + mha__random_unit(seed, 1, i) - 0.5;
        if (i % 11 == 0)
            a[i] = odd[i / 11 % 4], b[i] = odd[i / 22 % 4];
    }
}

static double gap(double a, double b)
{
    if (isnan(a) && isnan(b))
        return 0;
    return a == b ? 0 : isfinite(a) && isfinite(b) ? fabs(a - b) : INFINITY;
}

/* Every cell is an element of its part of the map, and no element of that part has more to show. */
static void check_cells(const mha__sheet *s, const double *a, const double *b)
{
    for (size_t m = 0; m < s->maps; m++)
        for (size_t r = 0; r < s->rows; r++)
            for (size_t c = 0; c < s->columns; c++) {
                const size_t at = (m * s->rows + r) * s->columns + c;
                double most = -1;
                bool found = false;
                for (size_t i = r * s->pool_rows; i < (r + 1) * s->pool_rows && i < s->map_rows; i++)
                    for (size_t j = c * s->pool_columns; j < (c + 1) * s->pool_columns && j < s->map_columns; j++) {
                        const size_t e = ((m + s->first_map) * s->map_rows + i) * s->map_columns + j;
                        most = fmax(most, b ? gap(a[e], b[e]) : isnan(a[e]) ? INFINITY : fabs(a[e]));
                        found |= memcmp(&a[e], &s->a[at], sizeof *a) == 0 &&
                                 (!b || memcmp(&b[e], &s->b[at], sizeof *b) == 0);
                    }
                assert_true(found);
                assert_true((b ? gap(s->a[at], s->b[at]) : isnan(s->a[at]) ? INFINITY : fabs(s->a[at])) == most);
            }
}

static const struct {
    int rank;
    size_t shape[4], cells;
} shapes[] = {{0, {0}, 100},          {1, {7}, 100},        {2, {3, 5}, 100},
              {2, {200, 3}, 1 << 15}, {2, {40, 50}, 100},   {3, {6, 8, 9}, 1 << 15},
              {3, {6, 8, 9}, 300},    {4, {5, 4, 3, 2}, 1}, {4, {2, 3, 20, 30}, 999},
              {2, {1, 1000}, 64},     {2, {1000, 1}, 64}};

static void cells_show_the_elements_that_differ_most(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int beside = 0; beside < 2; beside++) {
            size_t count = 1;
            for (int axis = 0; axis < shapes[i].rank; axis++)
                count *= shapes[i].shape[axis];
            double *a = malloc(count * sizeof *a), *b = malloc(count * sizeof *b);
            assert_true(a && b);
            fill(a, b, count, i);
            if (i % 2) /* one worst place, far behind */
                a[count - 1] = 1, b[count - 1] = 1e9;
            const mha_view x = mha_view_of(a, MHA_F64, shapes[i].rank, shapes[i].shape),
                           y = mha_view_of(b, MHA_F64, shapes[i].rank, shapes[i].shape);
            mha__picture picture = {0};
            mha__sheet *s;
            mha_difference d;
            mha_error error;
            assert_ok(mha_compare(&x, &y, 0, 0, &d, &error), error);
            assert_ok(
                mha__sheet_add(&picture, "t", &x, beside ? &y : NULL, beside ? &d : NULL, shapes[i].cells, &s, &error),
                error);
            assert_true(s->maps * s->rows * s->columns <= shapes[i].cells);
            assert_true(s->rows <= MHA__SHEET_SIDE && s->columns <= MHA__SHEET_SIDE);
            assert_int_equal(s->all_maps * s->map_rows * s->map_columns, count);
            assert_true(s->first_map + s->maps <= s->all_maps);
            check_cells(s, a, beside ? b : NULL);
            if (beside) {
                const size_t at = (s->worst_at[0] * s->map_rows + s->worst_at[1]) * s->map_columns + s->worst_at[2];
                assert_memory_equal(&a[at], &s->worst[0], sizeof *a);
                assert_memory_equal(&b[at], &s->worst[1], sizeof *b);
                assert_true(gap(a[at], b[at]) == d.max_abs);
                assert_true(s->worst_at[0] >= s->first_map && s->worst_at[0] < s->first_map + s->maps);
            } else {
                size_t broken = 0;
                double least = INFINITY, largest = -INFINITY, squares = 0;
                for (size_t e = 0; e < count; e++) {
                    broken += !isfinite(a[e]);
                    if (!isfinite(a[e]))
                        continue;
                    least = fmin(least, a[e]), largest = fmax(largest, a[e]), squares += a[e] * a[e];
                }
                assert_int_equal(s->broken, broken);
                if (broken < count) {
                    assert_true(s->least == least && s->largest == largest);
                    assert_true(s->rms == sqrt(squares / (double)(count - broken)));
                } else
                    assert_true(isnan(s->least) && isnan(s->rms));
            }
            mha__picture_free(&picture);
            free(a);
            free(b);
        }
}

/* Sheets of several forms with names that would be markup. */
static void make(mha__picture *picture, double *a, double *b)
{
    mha_error error;
    mha_difference d;
    mha__sheet *s;
    fill(a, b, 4096, 7);
    *picture = (mha__picture){.sides = {"yours", "<b>"}, .title = "a <i> & \x1b[0m"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const mha_view x = mha_view_of(a, MHA_F64, shapes[i].rank, shapes[i].shape),
                       y = mha_view_of(b, MHA_F64, shapes[i].rank, shapes[i].shape);
        assert_ok(mha_compare(&x, &y, 0, 0, &d, &error), error);
        const bool beside = i % 3;
        assert_ok(mha__sheet_add(picture, "<script>\x1b", &x, beside ? &y : NULL, beside ? &d : NULL, 1000, &s, &error),
                  error);
        if (beside)
            s->mark = i == 1 ? "FIRST" : "ok", s->beside = i == 2 ? "bug" : NULL;
    }
    const mha_view empty = mha_view_of(a, MHA_F64, 2, (const size_t[]){3, 0});
    assert_ok(mha__sheet_add(picture, "empty", &empty, NULL, NULL, 10, &s, &error), error);
    assert_string_equal(s->obstacle, "it has no elements");
    assert_ok(mha__sheet_refuse(picture, "</svg>", "only in the \"first\" file", &error), error);
    assert_ok(mha__picture_note(picture, "<failed> & why", &error), error);
}

static size_t times(const char *text, const char *word)
{
    size_t count = 0;
    for (; (text = strstr(text, word)); text += strlen(word))
        count++;
    return count;
}

static char *drawn_svg(const mha__picture *picture, const char *name)
{
    mha_error error;
    size_t count;
    const char *path = scratch_path(name);
    assert_ok(mha__draw_svg(picture, path, &error), error);
    char *svg = (char *)scratch_read(path, &count);
    svg[count - 1] = '\0';
    return svg;
}

static void a_drawing_has_every_sheet(void **state)
{
    (void)state;
    static double a[6000], b[6000];
    mha__picture picture;
    mha_error error;
    size_t count[2];
    make(&picture, a, b);
    char *svg = drawn_svg(&picture, "sheets.svg"), *again = drawn_svg(&picture, "again.svg");
    assert_string_equal(svg, again);
    assert_int_equal(times(svg, "&lt;script&gt;?"), sizeof shapes / sizeof *shapes);
    assert_int_equal(times(svg, "<script") + times(svg, "</svg>") - 1 + times(svg, "<b>") + times(svg, "\x1b"), 0);
    assert_int_equal(times(svg, "only in the &quot;first&quot; file"), 1);
    assert_int_equal(times(svg, "&lt;failed&gt; &amp; why"), 1);
    assert_int_equal(times(svg, ">FIRST<"), 1);
    assert_int_equal(times(svg, ">bug, "), 1);
    assert_int_equal(times(svg, "<g transform"), 4 + 7 * 3); /* alone 4 of 11, the others with a, b and a - b */
    assert_int_equal(times(svg, "stroke-width=\"2\""), 7);   /* each with its worst cell */
    unsigned char *png[2];
    for (size_t i = 0; i < 2; i++) {
        const char *path = scratch_path("sheets.png");
        assert_ok(mha__draw_png(&picture, path, &error), error);
        png[i] = scratch_read(path, &count[i]);
        assert_memory_equal(png[i], "\x89PNG", 4);
    }
    assert_int_equal(count[0], count[1]);
    assert_memory_equal(png[0], png[1], count[0]);
    assert_refused(mha__draw_svg(&picture, "/dev/full", &error), MHA_IO, error, "/dev/full");
    assert_refused(mha__draw_png(&picture, "/dev/full", &error), MHA_IO, error, "/dev/full");
    free(png[0]);
    free(png[1]);
    free(svg);
    free(again);
    mha__picture_free(&picture);
}

/* The drawing reports tensors that are too large for it. */
static void a_drawing_says_what_it_leaves_out(void **state)
{
    (void)state;
    mha__picture picture = {0};
    mha_error error;
    for (size_t i = 0; i < 2000; i++)
        assert_ok(mha__sheet_refuse(&picture, "t", "none", &error), error);
    char *svg = drawn_svg(&picture, "many.svg");
    const char *said = strstr(svg, " more tensors are not drawn");
    assert_non_null(said);
    while (said[-1] != '>')
        said--;
    assert_int_equal(times(svg, ">none<") + strtoul(said, NULL, 10), 2000);
    free(svg);
    mha__picture_free(&picture);
}

/* Memory that runs out anywhere is an error, and no file is there. */
static void without_memory_nothing_is_drawn(void **state)
{
    (void)state;
    static double a[64], b[64];
    const mha_view x = mha_view_of(a, MHA_F64, 2, (const size_t[]){8, 8}), y = mha_view_of(b, MHA_F64, 2, x.shape);
    mha_difference d;
    mha_error error;
    fill(a, b, 64, 3);
    assert_ok(mha_compare(&x, &y, 0, 0, &d, &error), error);
    size_t failed = 0;
    for (size_t n = 1;; n++) {
        failing f = {.fail_at = n};
        mha__picture picture = {.memory.allocator = failing_allocator(&f)};
        mha__sheet *s;
        mha_status status = MHA_OK;
        for (size_t i = 0; i < 18 && status == MHA_OK; i++)
            status = mha__sheet_add(&picture, "t", &x, &y, &d, 64, &s, &error);
        if (status == MHA_OK)
            status = mha__sheet_refuse(&picture, "t", "why", &error);
        if (status == MHA_OK)
            status = mha__picture_note(&picture, "note", &error);
        const char *path = scratch_path("never.svg"), *other = scratch_path("never.png");
        if (status == MHA_OK)
            status = mha__draw_svg(&picture, path, &error);
        if (status == MHA_OK)
            status = mha__draw_png(&picture, other, &error);
        mha__picture_free(&picture);
        assert_int_equal(f.live_blocks + f.bugs, 0);
        if (status == MHA_OK)
            break;
        assert_int_equal(status, MHA_NO_MEMORY);
        failed++;
    }
    assert_true(failed > 10);
}

/* A stage of a backward beside the weights, with memory that runs out at each place. */
static void a_stage_of_a_backward_needs_memory(void **state)
{
    (void)state;
    mha_error error;
    size_t failed = 0;
    for (size_t n = 1;; n++) {
        failing f = {.fail_at = n};
        mha__picture picture = {.memory.allocator = failing_allocator(&f)};
        const mha_status status =
            mha__picture_add_file_stage(&picture, "tests/vectors/gradients_stages.safetensors", "d_scores", &error);
        const size_t sheets = picture.sheet_count;
        mha__picture_free(&picture);
        assert_int_equal(f.live_blocks + f.bugs, 0);
        if (status == MHA_OK) {
            assert_int_equal(sheets, 2);
            break;
        }
        assert_int_equal(status, MHA_NO_MEMORY);
        failed++;
    }
    assert_true(failed > 3);
}

/* Names of tokens in each of their forms, with memory that runs out at each place. */
static void names_of_tokens_need_memory(void **state)
{
    (void)state;
    static const char text[] = "a\nb", array[] = "[\"a\", \"b\"]", brackets[] = "[a]\nb";
    static int64_t ids[] = {1, 0};
    static float weights[4];
    bytes b = {0};
    bytes_text(&b, "GGUF");
    bytes_number(&b, 3, 4);
    bytes_number(&b, 0, 8);
    bytes_number(&b, 1, 8);
    bytes_number(&b, 21, 8);
    bytes_text(&b, "tokenizer.ggml.tokens");
    bytes_number(&b, 9, 4);
    bytes_number(&b, 8, 4);
    bytes_number(&b, 2, 8);
    for (const char *word = "xy"; *word; word++) {
        bytes_number(&b, 1, 8);
        bytes_add(&b, word, 1);
    }
    const char *const files[] = {scratch_write("lines", text, sizeof text - 1),
                                 scratch_write("array", array, sizeof array - 1),
                                 scratch_write("brackets", brackets, sizeof brackets - 1),
                                 scratch_take("words.gguf", &b)};
    static const char *const first[] = {"a", "a", "[a]", "y"};
    const char *trace = scratch_path("trace.safetensors");
    const mha_view w = mha_view_of(weights, MHA_F32, 3, (const size_t[]){1, 2, 2}),
                   t = mha_view_of(ids, MHA_I64, 1, (const size_t[]){2});
    mha_writer *writer;
    mha_error error;
    assert_ok(mha_writer_create(trace, &writer, &error), error);
    assert_ok(mha_writer_add(writer, "weights", &w, &error), error);
    assert_ok(mha_writer_add(writer, "tokens", &t, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (size_t n = 1;; n++) {
            failing f = {.fail_at = n};
            mha__picture picture = {.memory.allocator = failing_allocator(&f)};
            mha_status status = mha__picture_tokens(&picture, files[i], &error);
            if (status == MHA_OK)
                status = mha__picture_add_file(&picture, trace, &(mha__picture_choice){0}, &error);
            if (status == MHA_OK) {
                assert_int_equal(picture.token_count, 2);
                assert_string_equal(picture.tokens[0], first[i]);
            }
            mha__picture_free(&picture);
            assert_int_equal(f.live_blocks + f.bugs, 0);
            if (status == MHA_OK)
                break;
            assert_int_equal(status, MHA_NO_MEMORY);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_show_the_elements_that_differ_most),
        cmocka_unit_test(a_drawing_has_every_sheet),
        cmocka_unit_test(a_drawing_says_what_it_leaves_out),
        cmocka_unit_test(without_memory_nothing_is_drawn), cmocka_unit_test(a_stage_of_a_backward_needs_memory),
        cmocka_unit_test(names_of_tokens_need_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
