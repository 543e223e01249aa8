/* mha bench: its last line, and what a signal and a terminal get. */
#include "support/unit.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "support/program.h"
#include "support/scratch.h"

#define ONE "bench", "--shape", "1,1,3,8,2", "--part", "core", "--path", "fast", "--rounds", "1", "--threads", "1"

static double number(const json_t *row, const char *key)
{
    assert_true(json_is_number(json_object_get(row, key)));
    return json_number_value(json_object_get(row, key));
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
}

/* Thread counts may be given in any order; each is measured once. */
static void thread_counts_are_a_list(void **state)
{
    (void)state;
    program_result r = RUN("bench", "--shape", "1,4,4,8,2", "--part", "core", "--path", "fast", "--rounds", "1",
                           "--threads", "3,1,3,2", "--json");
    json_t *root = json_loads(r.out, 0, NULL), *rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), 3);
    for (size_t i = 0; i < 3; i++)
        assert_true(number(json_array_get(rows, i), "threads") == (double)i + 1);
    assert_true(number(json_object_get(root, "machine"), "threads") == 3);
    json_decref(root);
    program_free(&r);
}

/* The set of thirteen has a name, beside which others may stand. */
static void the_standard_set_is_asked_for(void **state)
{
    (void)state;
    program_result r = program_stop(SIGINT, "bert1x128,", 0,
                                    (const char *const[]){"bench", "--shape", "1,4,4,8,2", "--shape", "standard",
                                                          "--rounds", "1", "--threads", "1", "--path", "fast", "--csv",
                                                          NULL});
    assert_int_equal(r.code, 128 + SIGINT);
    const char *own = strstr(r.out, "\n\"1,4,4,8,2\","), *tiny = strstr(r.out, "\ntiny16,");
    assert_true(own && tiny && own < tiny && tiny < strstr(r.out, "\nbert1x128,"));
    program_free(&r);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_keeps_what_was_measured),
        cmocka_unit_test(a_signal_leaves_whole_json),
        cmocka_unit_test(what_it_comes_to_stands_last),
        cmocka_unit_test(thread_counts_are_a_list),
        cmocka_unit_test(the_standard_set_is_asked_for),
        cmocka_unit_test(a_terminal_shows_the_round),
    };
    return cmocka_run_group_tests_name("cli_bench", tests, NULL, NULL);
}
