/* Pictures that the program draws without a browser: .svg and .png of mha show. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "picture/draw/figure.h"
#include "support/page_data.h"
#include "support/program.h"
#include "support/scratch.h"
#include "support/unit.h"

/* The command of the manual draws the picture of the manual, byte by byte. */
static void the_picture_in_the_tree_is_drawn_as_its_page_says(void **state)
{
    (void)state;
    static const char begin[] = "$ mha show weights/induction/recorded.safetensors --head ", file[] = "heads.svg";
    const char *path = scratch("heads.svg"), *args[12] = {"show", "weights/induction/recorded.safetensors", "--head"};
    size_t n = 3, length;
    char *page = (char *)scratch_read("src/manual/howto/look.md", &length);
    page[length - 1] = '\0';
    char *command = strstr(page, begin), *next = NULL;
    assert_non_null(command);
    assert_non_null(strstr(page, "](../../../weights/induction/heads.svg)"));
    *strchr(command, '\n') = '\0';
    for (char *word = strtok_r(command + strlen(begin), " ", &next); word && n < 10; word = strtok_r(NULL, " ", &next))
        args[n++] = word;
    assert_string_equal(args[n - 1], file);
    args[n - 1] = path;
    args[n] = "--quiet";
    program_result r = program_run(args);
    assert_int_equal(r.code, 0);
    program_free(&r);
    free(page);
    size_t count[2];
    unsigned char *drawn = scratch_read(path, &count[0]),
                  *kept = scratch_read("weights/induction/heads.svg", &count[1]);
    if (count[0] != count[1] || memcmp(drawn, kept, count[0]) != 0)
        fail_msg("weights/induction/heads.svg differs from what mha show draws of recorded.safetensors with --head 1");
    free(drawn);
    free(kept);
}

/* The elements in the titles of all areas, "NAME: 2,304 (1.2 %)". */
static size_t elements_drawn(const char *svg)
{
    size_t sum = 0;
    for (const char *at = svg; (at = strstr(at, "<g><title>")); at++) {
        size_t n = 0;
        for (const char *digit = strstr(at, ": ") + 2; *digit != ' '; digit++)
            n = *digit == ',' ? n : 10 * n + (size_t)(*digit - '0');
        sum += n;
    }
    return sum;
}

/* Published counts, to be rounded by nobody; tied weights and buffers count once and never. */
static void a_map_of_parameters_has_each_storage_once(void **state)
{
    (void)state;
    static const struct {
        const char *args[6];
        size_t parameters;
    } maps[] = {{{"--preset", "gpt2"}, 124439808},
                {{"--preset", "gpt2", "--only", "attention"}, 28348416},
                {{"--d-model", "768", "--heads", "12"}, 2362368},
                {{"--weights", "weights/induction/model.safetensors"}, 11227}};
    const char *path = scratch("areas.svg");
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        const char *const *a = maps[i].args;
        size_t count;
        program_result r = RUN("params", "--picture", path, "--quiet", a[0], a[1], a[2], a[3]);
        assert_int_equal(r.code, 0);
        program_free(&r);
        char *svg = (char *)scratch_read(path, &count);
        svg[count - 1] = '\0';
        assert_int_equal(elements_drawn(svg), maps[i].parameters);
        free(svg);
    }
}

/* A bar with its time for each row of the table: two paths of a core that computes, and of one that decodes. */
static void a_benchmark_is_drawn_beside_its_limits(void **state)
{
    (void)state;
    const char *path = scratch("bench.svg");
    json_t *root = RUN_JSON(0, "bench", "--shape", "1,8,8,16,2", "--shape", "1,1,64,16,2", "--part", "core", "--rounds",
                            "1", "--threads", "1", "--wide", "--picture", path, "--json");
    const size_t rows = json_array_size(json_object_get(root, "rows"));
    size_t count, bars = 0;
    char *svg = (char *)scratch_read(path, &count);
    svg[count - 1] = '\0';
    for (const char *at = svg; (at = strstr(at, "class=\"bar\"")); at++)
        bars++;
    assert_int_equal(bars, rows);
    for (size_t i = 0; i < rows; i++) {
        char time[32];
        const json_t *row = json_array_get(json_object_get(root, "rows"), i);
        snprintf(time, sizeof time, ", %.4g ms</text>", json_number_value(json_object_get(row, "ms_min")));
        assert_non_null(strstr(svg, time));
    }
    json_decref(root);
    assert_non_null(strstr(svg, "Arithmetic, GFLOP/s"));
    assert_non_null(strstr(svg, "Reads, GB/s"));
    free(svg);
}

/* ---------------------------------------------------------------- stage by stage */

#define DIGITS (1 + 1e-14) /* JSON has 15 digits of a number */
#define ROTATION "tests/vectors/rope_linear.safetensors"
#define WRONG_PORT "weights/lookup/wrong_port.safetensors"

static void answers(int code, program_result r)
{
    assert_int_equal(r.code, code);
    assert_string_equal(r.err, "");
    program_free(&r);
}

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* A tensor of a file against the numbers of a sheet; `off` is how far they may be apart. */
static void assert_sheet_is(const page_data *page, const json_t *sheet, const char *side, const char *path,
                            const char *name, double off)
{
    mha_file *file;
    mha_error error;
    double numbers[6 * 8 * 8];
    assert_ok(mha_file_open(path, &file, &error), error);
    const mha_file_tensor *t = mha_file_find(file, name);
    assert_true(t && t->elements <= sizeof numbers / sizeof *numbers);
    const mha_view view = mha_view_of(numbers, MHA_F64, t->rank, t->shape);
    assert_ok(mha_file_read(file, t, &view, &error), error);
    assert_int_equal(page_data_count(page, sheet, side), t->elements);
    for (size_t i = 0; i < t->elements; i++)
        if (!(fabs(page_data_number(page, sheet, side, i) - numbers[i]) <= off))
            fail_msg("%s of %s: number %zu is %.17g, not %.17g within %g", side, name, i,
                     page_data_number(page, sheet, side, i), numbers[i], off);
    mha_file_close(file);
}

/* The page of a checked case has the recorded tensors and what check says of them; where the case is right, so is b. */
static void a_checked_case_is_drawn_stage_by_stage(void **state)
{
    (void)state;
    const char *path = scratch("checked.html");
    json_t *root = RUN_JSON(1, "check", WRONG_PORT, "--json", "--picture", path);
    json_t *stages = json_object_get(json_array_get(json_object_get(root, "cases"), 0), "stages");
    page_data page = page_data_read(path);
    json_t *sheets = json_object_get(page.json, "sheets");
    assert_int_equal(json_array_size(sheets), json_array_size(stages));
    assert_int_equal(json_array_size(json_object_get(page.json, "layers")), 1);
    static const char *const marks[] = {"ok", "FIRST", "differs"};
    static const char *const recorded[] = {"expected.weights", "expected.heads", "output"};
    for (size_t i = 0; i < 3; i++) {
        json_t *sheet = json_array_get(sheets, i), *stage = json_array_get(stages, i);
        json_t *difference = json_object_get(sheet, "difference");
        assert_string_equal(text_at(sheet, "name"), text_at(stage, "name"));
        assert_string_equal(text_at(sheet, "mark"), marks[i]);
        assert_sheet_is(&page, sheet, "a", WRONG_PORT, recorded[i], 0);
        if (i == 0)
            assert_sheet_is(&page, sheet, "b", WRONG_PORT, recorded[i],
                            json_number_value(json_object_get(stage, "max_abs")) * DIGITS);
        assert_true(json_equal(json_object_get(difference, "worstIndex"), json_object_get(stage, "worst_index")));
        char most[32];
        snprintf(most, sizeof most, "%.9g", json_number_value(json_object_get(stage, "max_abs")));
        assert_string_equal(text_at(difference, "most"), most);
    }
    const char *note = json_string_value(json_array_get(json_object_get(page.json, "notes"), 0));
    assert_non_null(strstr(note, "failed: heads diverges first"));
    page_data_free(&page);
    json_decref(root);
    answers(0, RUN("check", ROTATION, "--picture", path, "--quiet")); /* which has no heads */
    page = page_data_read(path);
    assert_int_equal(json_array_size(json_object_get(page.json, "layers")), 0);
    assert_int_equal(json_array_size(json_object_get(page.json, "sheets")), 1);
    page_data_free(&page);
}

/* The bug that diagnose names stands beside the recorded output, and gives it. */
static void a_diagnosed_case_is_drawn_beside_its_bug(void **state)
{
    (void)state;
    const char *path = scratch("diagnosed.html");
    json_t *root = RUN_JSON(0, "diagnose", WRONG_PORT, "--json", "--picture", path);
    const double most =
        json_number_value(json_object_get(json_array_get(json_object_get(root, "matches"), 0), "max_abs"));
    page_data page = page_data_read(path);
    json_t *sheets = json_object_get(page.json, "sheets"), *last = json_array_get(sheets, json_array_size(sheets) - 1);
    assert_string_equal(text_at(last, "name"), "output by merge-untransposed");
    assert_string_equal(text_at(last, "beside"), "bug");
    assert_string_equal(text_at(last, "mark"), "ok");
    assert_sheet_is(&page, last, "a", WRONG_PORT, "output", 0);
    assert_sheet_is(&page, last, "b", WRONG_PORT, "output", most * DIGITS);
    assert_non_null(strstr(json_string_value(json_array_get(json_object_get(page.json, "notes"), 0)),
                           "Reproduced, within float32 rounding, by merge-untransposed: (h, T, d_v) viewed"));
    page_data_free(&page);
    json_decref(root);
    answers(0, RUN("diagnose", WRONG_PORT, "--tensor", "weights", "--picture", path, "--quiet"));
    page = page_data_read(path);
    assert_non_null(
        strstr(json_string_value(json_array_get(json_object_get(page.json, "notes"), 0)), "by the case without a bug"));
    page_data_free(&page);
}

/* Tensors of one name stand beside each other; what has no partner, or another shape, says so. */
static void compared_files_are_drawn_tensor_by_tensor(void **state)
{
    (void)state;
    const char *path = scratch("compared.html"), *other = "weights/lookup/recorded.safetensors";
    answers(1, RUN("compare", WRONG_PORT, other, "--picture", path, "--quiet"));
    page_data page = page_data_read(path);
    json_t *sheets = json_object_get(page.json, "sheets");
    size_t alone = 0, unlike = 0;
    for (size_t i = 0; i < json_array_size(sheets); i++) {
        const char *why = text_at(json_array_get(sheets, i), "obstacle");
        alone += strstr(why, "only in the") != NULL;
        unlike += strstr(why, "shapes differ: (8, 48) and (2, 12, 48)") != NULL;
    }
    assert_int_equal(unlike, 1); /* output */
    assert_int_equal(alone, json_array_size(sheets) - 1);
    page_data_free(&page);
    char input[200], output[200];
    snprintf(input, sizeof input, "%s:input", other);
    snprintf(output, sizeof output, "%s:output", other);
    answers(1, RUN("compare", input, output, "--picture", path, "--quiet"));
    page = page_data_read(path);
    json_t *sheet = json_array_get(json_object_get(page.json, "sheets"), 0);
    assert_int_equal(page_data_count(&page, sheet, "a"), 2 * 12 * 48);
    page_data_free(&page);
}

/* Any stage of a trace, of a case, of a run. */
static void any_stage_can_be_shown(void **state)
{
    (void)state;
    static const char trace[] = "weights/induction/recorded.safetensors";
    const char *path = scratch("stage.html");
    answers(0, RUN("show", trace, "--stage", "masked", "--quiet", "--picture", path));
    page_data page = page_data_read(path);
    assert_int_equal(page_data_count(&page, json_array_get(json_object_get(page.json, "sheets"), 0), "a"), 4 * 32 * 32);
    page_data_free(&page);
    answers(0, RUN("show", WRONG_PORT, "--stage", "weights", "--quiet", "--picture", path));
    page = page_data_read(path);
    assert_sheet_is(&page, json_array_get(json_object_get(page.json, "sheets"), 0), "a", WRONG_PORT, "expected.weights",
                    1e-6); /* which the port has right; check allows 1.1e-5 */
    page_data_free(&page);
}

/* ---------------------------------------------------------------- on a terminal */

enum { MOST_LINES = 256, MOST_COLUMNS = 256 };
typedef struct screen {
    int ground[MOST_LINES][MOST_COLUMNS]; /* the colour of each character's ground; -1: the terminal's own */
    size_t width[MOST_LINES], lines;
} screen;

/* The colours of a terminal of 256 colours. Every other escape sequence than bold and those of colours is a failure. */
static void show_on(screen *s, const char *text)
{
    memset(s, 0, sizeof *s);
    for (int ground = -1; *text;) {
        int read = 0;
        if (*text == '\n') {
            assert_true(++s->lines < MOST_LINES);
            text++;
        } else if (*text == '\033') {
            if (sscanf(text, "\033[48;5;%dm%n", &ground, &read) != 1 || !read) {
                assert_true(!strncmp(text, "\033[0m", 4) || !strncmp(text, "\033[1m", 4));
                read = 4;
                ground = -1;
            }
            text += read;
        } else {
            size_t *width = &s->width[s->lines];
            assert_true(*width < MOST_COLUMNS);
            *width += (unsigned char)*text >= 0xE0; /* may be two columns wide */
            s->ground[s->lines][(*width)++] = ground;
            for (text++; ((unsigned char)*text & 0xC0) == 0x80;)
                text++;
        }
    }
}

static void set_terminal(const char *colorterm, const char *term)
{
    setenv("COLORTERM", colorterm, 1);
    setenv("TEST_TERM", term, 1);
}

#define CAUSAL "--seq", "7", "--d-model", "8", "--heads", "2", "--causal", "--path", "exact", "--threads", "1"

/* Of the terminal's cube of 6 x 6 x 6 colours, numbered from 16, the nearest one, by trying them all. */
static int nearest_of_cube(mha__colour c)
{
    static const int values[] = {0, 95, 135, 175, 215, 255};
    int best = 0, least = 3 * 256;
    for (int n = 0; n < 6 * 6 * 6; n++) {
        const int far = abs(values[n / 36] - c.red) + abs(values[n / 6 % 6] - c.green) + abs(values[n % 6] - c.blue);
        if (far < least)
            least = far, best = n;
    }
    return 16 + best;
}

/* Both maps of 7 tokens, two characters for each cell: every character has the colour of its weight, or none. */
static void colours_show_every_weight(void **state)
{
    (void)state;
    enum { N = 7, CELL = 2, LEFT = 8, FRAME = 3 };
    const char *trace = scratch("trace.safetensors");
    program_result r = RUN("forward", CAUSAL, "--trace", trace, "--quiet");
    assert_int_equal(r.code, 0);
    program_free(&r);
    double weights[2 * N * N], largest = 0;
    mha_error error;
    mha_file *file;
    assert_ok(mha_file_open(trace, &file, &error), error);
    const mha_file_tensor *tensor = mha_file_find(file, "weights");
    const mha_view view = mha_view_of(weights, MHA_F64, tensor->rank, tensor->shape);
    assert_ok(mha_file_read(file, tensor, &view, &error), error);
    mha_file_close(file);
    for (size_t i = 0; i < 2 * N * N; i++)
        largest = weights[i] > largest ? weights[i] : largest;
    mha__colour palette[MHA__PALETTE];
    mha__palette(palette);
    set_terminal("truecolor", "xterm");
    r = RUN_ON_TERMINALS(100, "forward", CAUSAL);
    assert_int_equal(r.code, 0);
    const char *title = strstr(r.out, "        head 0");
    assert_non_null(title);
    static screen s;
    show_on(&s, title);
    for (size_t h = 0; h < 2; h++)
        for (size_t q = 0; q < N; q++)
            for (size_t x = 0; x < N * CELL; x++) {
                const double weight = weights[(h * N + q) * N + x / CELL];
                const int shade = 239 - (int)(239 * weight / largest + 0.5);
                const int wanted = x / CELL > q ? -1 : nearest_of_cube(palette[shade]);
                assert_int_equal(s.ground[1 + q][LEFT + 1 + h * (N * CELL + FRAME) + x], wanted);
            }
    program_free(&r);
}

static void maps_keep_to_the_terminal_and_to_its_colours(void **state)
{
    (void)state;
    bytes names = {0};
    bytes_text(&names, "\033[2Jclear\n\xe2\x80\xaereversed\n\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2\xe5\xad\x97\na\n");
    for (size_t i = 4; i < 300; i++)
        bytes_text(&names, "b\n");
    const char *tokens = scratch_take("tokens.txt", &names);
    static const struct {
        const char *colorterm, *term;
        bool colours;
    } kinds[] = {
        {"truecolor", "xterm", true}, {"", "xterm-256color", true}, {"", "xterm", false}, {"truecolor", "dumb", false}};
    static const unsigned short widths[] = {20, 33, 200};
    static const char *const lengths[] = {"1", "50", "300"};
    static screen s;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t w = 0; w < 3; w++)
            for (size_t n = 0; n < 3; n++) {
                if (k != 0 && k != 2 && n != w) /* with and without colours in every size, the rest in some */
                    continue;
                set_terminal(kinds[k].colorterm, kinds[k].term);
                program_result r = RUN_ON_TERMINALS(widths[w], "show", "--seq", lengths[n], "--d-model", "12",
                                                    "--heads", "3", "--threads", "1", "--tokens", tokens);
                assert_int_equal(r.code, 0);
                const char *maps = strstr(r.out, "Queries from");
                assert_non_null(maps);
                assert_true((strstr(maps, "\033[48;5;") != NULL) == kinds[k].colours);
                show_on(&s, maps);
                for (size_t line = 0; line < s.lines; line++)
                    if (s.width[line] > widths[w])
                        fail_msg("kind %zu, %s tokens: a line of %zu characters on %d columns: %s", k, lengths[n],
                                 s.width[line], widths[w], maps);
                program_free(&r);
            }
    program_result r = RUN("show", "--seq", "5", "--d-model", "12", "--heads", "3"); /* not a terminal */
    assert_null(strchr(r.out, '\033'));
    program_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_map_of_parameters_has_each_storage_once),
        cmocka_unit_test(a_checked_case_is_drawn_stage_by_stage),
        cmocka_unit_test(a_diagnosed_case_is_drawn_beside_its_bug),
        cmocka_unit_test(compared_files_are_drawn_tensor_by_tensor),
        cmocka_unit_test(any_stage_can_be_shown),
        cmocka_unit_test(a_benchmark_is_drawn_beside_its_limits),
        cmocka_unit_test(colours_show_every_weight),
        cmocka_unit_test(maps_keep_to_the_terminal_and_to_its_colours),
        cmocka_unit_test(the_picture_in_the_tree_is_drawn_as_its_page_says),
    };
    return cmocka_run_group_tests_name("cli_pictures", tests, NULL, scratch_remove);
}
