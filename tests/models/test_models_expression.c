/* Formulas as text: precedence, names, and every way to be wrong. */
#include <stdio.h>
#include <string.h>

#include "models/describe/expression.h"
#include "support/unit.h"

static mha__values some_values(void)
{
    mha__values v = {0};
    mha_error error;
    assert_ok(mha__values_parse(&v, "d_model=512 h=8 d_k=d_model/h  odd=7 minus=-3", &error), error);
    return v;
}

static void formulas_have_their_usual_meaning(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {{"1+2*3", 7},
                 {"(1+2)*3", 9},
                 {"2^3^1*2", 16},
                 {"10-3-2", 5},
                 {"d_k", 64},
                 {"h*(2*d_k+d_k)", 1536},
                 {"odd/2", 3},
                 {"odd%4", 3},
                 {"-odd+1", -6},
                 {"!odd", 0},
                 {"!0 && odd == 7", 1},
                 {"2 <= 2", 1},
                 {"2 < 2", 0},
                 {"2 >= 2", 1},
                 {"2 > 2", 0},
                 {"1 < 2", 1},
                 {"2 <= 1", 0},
                 {"3 > 2", 1},
                 {"2 >= 3", 0},
                 {"0 || 0", 0},
                 {"0 || 5", 1},
                 {"1 != 1", 0},
                 {"minus*minus", 9},
                 {" 4 ", 4},
                 {"32*766*2048*4096", 205621559296},
                 {"9223372036854775807", INT64_MAX},
                 {"1 - -1", 2}};
    mha__values v = some_values();
    mha_error error;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t value = 0;
        assert_ok(mha__expression_evaluate(cases[i].text, &v, &value, &error), error);
        if (value != cases[i].value)
            fail_msg("%s = %lld", cases[i].text, (long long)value);
    }
    int64_t list[3];
    size_t count;
    assert_ok(mha__expression_list("h, 3*d_model ,1", &v, list, 3, &count, &error), error);
    assert_int_equal(count, 3);
    assert_int_equal(list[1], 1536);
    assert_ok(mha__expression_list("", &v, list, 3, &count, &error), error);
    assert_int_equal(count, 0);
}

static void lists_are_indexed(void **state)
{
    (void)state;
    static const int64_t list[] = {3, 5, 9};
    mha__values v = some_values();
    mha_error error;
    int64_t value = 0;
    assert_true(mha__values_set_list(&v, "wide", list, 3));
    assert_ok(mha__expression_evaluate("2*wide[wide[0]-h+6] + wide[0]", &v, &value, &error), error);
    assert_int_equal(value, 2 * 5 + 3);
    assert_refused(mha__expression_evaluate("wide+1", &v, &value, &error), MHA_INVALID, error, "'[' and an index",
                   "character 5");
    assert_refused(mha__expression_evaluate("wide[1+]", &v, &value, &error), MHA_INVALID, error, "a number");
    assert_refused(mha__expression_evaluate("wide[1", &v, &value, &error), MHA_INVALID, error, "']'", "character 7");
    assert_refused(mha__expression_evaluate("wide[3]", &v, &value, &error), MHA_INVALID, error, "inside the list");
    assert_refused(mha__expression_evaluate("wide[-1]", &v, &value, &error), MHA_INVALID, error, "inside the list");
    assert_refused(mha__expression_evaluate("h[1]", &v, &value, &error), MHA_INVALID, error, "an operator");
    assert_true(mha__values_set(&v, "wide", 7));
    assert_ok(mha__expression_evaluate("wide+1", &v, &value, &error), error);
    assert_int_equal(value, 8);
}

static void what_is_wrong_is_pointed_at(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wanted, *where;
    } cases[] = {{"", "a number", "character 1"},
                 {"1+", "a number", "character 3"},
                 {"(1", "')'", "character 3"},
                 {"1 2", "an operator", "character 3"},
                 {"h*width", "a known name", "character 3"},
                 {"1/0", "other than 0", ""},
                 {"9223372036854775807+1", "63 bits", ""},
                 {"9223372036854775808", "63 bits", ""},
                 {"2^63", "63 bits", ""},
                 {"2^65", "exponent", ""},
                 {"1%(h-8)", "other than 0", ""},
                 {"(0-9223372036854775807-1)/(0-1)", "other than 0", ""},
                 {"(0-9223372036854775807-1)-1", "63 bits", ""},
                 {"9223372036854775807*2", "63 bits", ""},
                 {"2^(0-1)", "exponent", ""},
                 {"_h", "a known name", "character 1"},
                 {"hh", "a known name", "character 1"},
                 {"-(0-9223372036854775807-1)", "63 bits", ""}};
    mha__values v = some_values();
    mha_error error;
    int64_t value = 42;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(mha__expression_evaluate(cases[i].text, &v, &value, &error), MHA_INVALID, error, cases[i].wanted,
                       cases[i].where);
    assert_int_equal(value, 42);
    char deep[400];
    memset(deep, '(', 399);
    deep[399] = '\0';
    assert_refused(mha__expression_evaluate(deep, &v, &value, &error), MHA_INVALID, error, "nested");
    memset(deep, '-', 399);
    assert_refused(mha__expression_evaluate(deep, &v, &value, &error), MHA_INVALID, error, "nested");
    int64_t list[2];
    size_t count;
    assert_refused(mha__expression_list("1,2,3", &v, list, 2, &count, &error), MHA_INVALID, error, "fewer");
    assert_refused(mha__expression_list("1 2", &v, list, 2, &count, &error), MHA_INVALID, error,
                   "an operator or the end");
    assert_refused(mha__expression_list("1,", &v, list, 2, &count, &error), MHA_INVALID, error, "behind the comma");
    assert_refused(mha__values_parse(&v, "h", &error), MHA_INVALID, error, "name=value");
}

static void a_list_of_values_has_its_bounds(void **state)
{
    (void)state;
    mha__values v = {0};
    mha_error error;
    char name[MHA_SYMBOL + 20];
    assert_false(mha__values_set(&v, "", 1));
    assert_false(mha__values_set(&v, "a_symbol_of_24_letters__", 1));
    assert_int_equal(v.count, 0);
    for (int i = 0; i < MHA_VALUES; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_true(mha__values_set(&v, name, i));
    }
    assert_false(mha__values_set(&v, "more", 1));
    assert_true(mha__values_set(&v, "n7", 70));
    assert_int_equal(mha__values_get(&v, "n7"), 70);
    assert_refused(mha__values_parse(&v, "more=1", &error), MHA_INVALID, error, "more");
    assert_refused(mha__values_parse(&v, "n7=1/0", &error), MHA_INVALID, error, "other than 0");
}

/* A factor 0, and a condition that decides, are the only reasons for a result; the roots of other operands are skipped
 * because of them. */
static void a_record_has_the_roots_that_decide(void **state)
{
    (void)state;
    enum { A = 1, B = 2, C = 4 };
    static const struct {
        const char *formula;
        int64_t a, b;
        uint64_t read, skipped_a, skipped_b, skipped_c;
    } rows[] = {
        {"a + b", 1, 2, A | B, 0, 0, 0},
        {"a * b * c", 0, 2, A, 0, A, A},
        {"a * b * c", 1, 0, B, B, 0, B},
        {"a * b * c", 0, 0, A, 0, A, A},
        {"a * b * c", 1, 2, A | B | C, 0, 0, 0},
        {"a && b", 0, 1, A, 0, A, 0},
        {"a || b", 1, 0, A, 0, A, 0},
        {"a || b", 0, 0, A | B, 0, 0, 0},
        {"(a == 3) * b + (a != 3) * c", 3, 2, A | B, 0, 0, A},
        {"1 + l[a * b]", 0, 2, A | C, 0, A, 0},
        {"-(a * b)", 0, 2, A, 0, A, 0},
        {"a * a", 0, 2, A, 0, 0, 0},
    };
    static const int64_t list[] = {7};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mha__trace trace = {0};
        mha__values v = {.trace = &trace};
        mha_error error;
        int64_t value;
        assert_true(mha__values_set(&v, "a", rows[i].a) && mha__values_set(&v, "b", rows[i].b) &&
                    mha__values_set(&v, "c", 5) && mha__values_set_list(&v, "l", list, 1));
        mha__values_mark(&v, "a", A), mha__values_mark(&v, "b", B), mha__values_mark(&v, "c", C);
        mha__values_mark(&v, "l", C), mha__values_mark(&v, "unknown", C);
        assert_ok(mha__expression_evaluate(rows[i].formula, &v, &value, &error), error);
        if (trace.read != rows[i].read || trace.skipped[0] != rows[i].skipped_a ||
            trace.skipped[1] != rows[i].skipped_b || trace.skipped[2] != rows[i].skipped_c)
            fail_msg("%s, a = %d: read %d, skipped %d, %d, %d", rows[i].formula, (int)rows[i].a, (int)trace.read,
                     (int)trace.skipped[0], (int)trace.skipped[1], (int)trace.skipped[2]);
        assert_true(mha__values_set(&v, "a", 9)); /* another value has no roots yet */
        trace.read = 0;
        assert_ok(mha__expression_evaluate("a", &v, &value, &error), error);
        assert_int_equal(trace.read, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formulas_have_their_usual_meaning),
        cmocka_unit_test(lists_are_indexed),
        cmocka_unit_test(what_is_wrong_is_pointed_at),
        cmocka_unit_test(a_list_of_values_has_its_bounds),
        cmocka_unit_test(a_record_has_the_roots_that_decide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
