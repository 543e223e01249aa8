/* The power of a test of gradients: what each kind of tolerance lets pass, of calls and of cases. */
#include <math.h>
#include <string.h>

#include "mha/power.h"
#include "support/unit.h"

enum { B = 2, T = 6, H = 4, H_KV = 2, D = 8 };

typedef struct fixture {
    float q[B * T * H * D], k[B * T * H_KV * D], v[B * T * H_KV * D], d[B * T * H * D];
    double right[3][B * T * H * D];
    mha_call call;
    mha_gradients gradients;
} fixture;

static void begin(fixture *f)
{
    memset(f, 0, sizeof *f);
    for (size_t e = 0; e < B * T * H * D; e++)
        f->q[e] = (float)sin(1.0 + 0.7 * (double)e), f->d[e] = (float)cos(3.1 * (double)e);
    for (size_t e = 0; e < B * T * H_KV * D; e++)
        f->k[e] = (float)sin(2.3 * (double)e), f->v[e] = (float)cos(5.0 + 1.3 * (double)e);
    f->call = (mha_call){.query = mha_heads(f->q, B, T, H, D), .key = mha_heads(f->k, B, T, H_KV, D),
                         .value = mha_heads(f->v, B, T, H_KV, D), .semantics.visible.causal = true};
    f->gradients.d_output = mha_heads(f->d, B, T, H, D);
    for (int i = 0; i < 3; i++)
        f->gradients.of[i] = mha_view_of(f->right[i], MHA_F64, 4, (const size_t[]){B, T, i ? H_KV : H, D});
}

static mha_power examined(fixture *f, const mha_criterion *k)
{
    mha_power p;
    mha_error error;
    assert_ok(mha_examine_gradients(NULL, &f->call, &f->gradients, k, &p, &error), error);
    assert_int_equal(p.count, p.rejected + p.accepted + p.same);
    return p;
}

static const mha_power_row *row_of(const mha_power *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->rows[i].bug, name) == 0)
            return &p->rows[i];
    return NULL;
}

static void the_bound_lets_no_bug_pass(void **state)
{
    (void)state;
    fixture f;
    double dq[B * T * H * D];
    mha_error error;
    begin(&f);
    mha_power p = examined(&f, &(mha_criterion){.precision = MHA_F32});
    assert_true(p.rejected > 40 && p.accepted == 0);
    assert_int_equal(row_of(&p, "causal-missing")->result, MHA_POWER_REJECTED);
    assert_string_equal(row_of(&p, "group-last-dv")->seen_in, "value");
    assert_true(isfinite(row_of(&p, "dq-twice")->factor) && row_of(&p, "dq-twice")->factor > 1000);
    assert_null(row_of(&p, "softcap-slope-missing"));
    mha_gradients g = {.d_output = f.gradients.d_output}; /* the right ones are written */
    g.of[MHA_D_QUERY] = mha_view_of(dq, MHA_F64, 4, (const size_t[]){B, T, H, D});
    assert_ok(mha_backward(NULL, &f.call, &g, &error), error);
    assert_memory_equal(dq, f.right[0], sizeof dq);
    mha_power_clear(&p);
}

/* Each criterion is that of numbers computed here from the right gradients. */
static void each_kind_of_tolerance_has_its_own_power(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    mha_power p = examined(&f, &(mha_criterion){.kind = MHA_CRITERION_CLOSE, .atol = 1e3});
    assert_true(p.rejected == 0 && p.accepted > 40 && p.faint == 0);
    mha_power_clear(&p);
    double largest = 0;
    p = examined(&f, &(mha_criterion){.kind = MHA_CRITERION_CLOSE, .rtol = 0.5});
    for (size_t e = 0; e < B * T * H * D; e++)
        largest = fmax(largest, fabs(f.right[0][e]));
    assert_true(fabs(row_of(&p, "dq-twice")->factor - 2) < 1e-12); /* |2y - y| over 0.5 |y| */
    assert_true(fabs(row_of(&p, "dq-twice")->max_abs - largest) < 1e-12);
    assert_int_equal(row_of(&p, "dq-twice")->result, MHA_POWER_REJECTED);
    mha_power_clear(&p);
    p = examined(&f, &(mha_criterion){.kind = MHA_CRITERION_CLOSE, .rtol = 1});
    assert_int_equal(row_of(&p, "dq-twice")->result, MHA_POWER_ACCEPTED);
    mha_power_clear(&p);
    p = examined(&f, &(mha_criterion){.kind = MHA_CRITERION_COSINE, .limit = 0.999}); /* blind to factors */
    assert_int_equal(row_of(&p, "scale-missing")->result, MHA_POWER_ACCEPTED);
    assert_int_equal(row_of(&p, "causal-missing")->result, MHA_POWER_REJECTED);
    mha_power_clear(&p);
    p = examined(&f, &(mha_criterion){.kind = MHA_CRITERION_NMSE, .limit = 1});
    assert_true(fabs(row_of(&p, "dq-twice")->factor - 1) < 1e-12);
    mha_power_clear(&p);
}

/* A rounding that a kernel of the type always makes is no bug. */
static void roundings_of_the_type_are_right(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    for (int i = 0; i < 3; i++) {
        static const mha_dtype types[3] = {MHA_F32, MHA_F16, MHA_BF16};
        static const bool tried[3][2] = {{true, true}, {false, true}, {false, false}}; /* F16, BF16 */
        mha_power p = examined(&f, &(mha_criterion){.precision = types[i]});
        const mha_power_row *rows[2] = {row_of(&p, "output-in-float16"), row_of(&p, "output-in-bfloat16")};
        for (int k = 0; k < 2; k++) {
            assert_int_equal(rows[k] != NULL, tried[i][k]);
            if (rows[k] && types[i] == MHA_F32)
                assert_int_equal(rows[k]->result, MHA_POWER_REJECTED);
        }
        mha_power_clear(&p);
    }
}

static void cases_are_asked_by_the_name_of_a_gradient(void **state)
{
    (void)state;
    fixture f;
    mha_error error;
    mha_case *c;
    mha_power p;
    begin(&f);
    for (int recorded = 0; recorded < 2; recorded++) {
        mha_gradients g = f.gradients;
        if (!recorded)
            memset(g.of, 0, sizeof g.of);
        const mha_case_notes notes = {.gradients = &g};
        if (recorded)
            assert_ok(mha_backward(NULL, &f.call, &g, &error), error);
        assert_ok(mha_case_of_call(NULL, &f.call, NULL, 0, &notes, &c, &error), error);
        assert_ok(mha_case_examine_gradients(c, &(mha_criterion){.precision = MHA_F32}, &p, &error), error);
        assert_true(p.rejected > 40 && p.accepted == 0);
        assert_int_equal(row_of(&p, "scale-missing-dk")->result, MHA_POWER_REJECTED);
        mha_power_clear(&p);
        assert_ok(mha_case_examine_gradients(c, &(mha_criterion){.stage = "d_query"}, &p, &error), error);
        assert_int_equal(row_of(&p, "scale-missing-dk")->result, MHA_POWER_SAME);
        assert_int_equal(row_of(&p, "scale-missing-dq")->result, MHA_POWER_REJECTED);
        mha_power_clear(&p);
        assert_refused(mha_case_examine_gradients(c, &(mha_criterion){.stage = "d_keys"}, &p, &error), MHA_NOT_FOUND,
                       error, "stage", "d_keys");
        assert_refused(mha_case_examine_gradients(c, &(mha_criterion){.stage = "d_mask"}, &p, &error), MHA_NOT_FOUND,
                       error, "stage", "d_mask");
        mha_case_close(c);
    }
    assert_ok(mha_case_of_call(NULL, &f.call, NULL, 0, NULL, &c, &error), error);
    assert_refused(mha_case_examine_gradients(c, &(mha_criterion){.rtol = 0}, &p, &error), MHA_NOT_FOUND, error,
                   "d_output", "expected the gradient of the output");
    mha_case_close(c);
    assert_refused(mha_examine_gradients(NULL, &f.call, &f.gradients,
                                         &(mha_criterion){.kind = MHA_CRITERION_CLOSE, .rtol = -1}, &p, &error),
                   MHA_INVALID, error, "rtol", "0 or more");
    memset(f.gradients.of, 0, sizeof f.gradients.of);
    assert_refused(mha_examine_gradients(NULL, &f.call, &f.gradients, &(mha_criterion){.rtol = 0}, &p, &error),
                   MHA_INVALID, error, "gradients", "memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bound_lets_no_bug_pass), cmocka_unit_test(each_kind_of_tolerance_has_its_own_power),
        cmocka_unit_test(roundings_of_the_type_are_right), cmocka_unit_test(cases_are_asked_by_the_name_of_a_gradient)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
