/* mha power: what a test with these inputs and this tolerance would accept; inputs for a better one. */
#include <stdio.h>
#include <string.h>

#include "mha/mha.h"
#include "support/program.h"
#include "support/unit.h"

static char made[600];

static int make_case(void **state)
{
    (void)state;
    snprintf(made, sizeof made, "%s", scratch("made.safetensors"));
    program_result r =
        RUN("forward", "--d-model", "24", "--heads", "4", "--seq", "6", "--causal", "--quiet", "--save-case", made);
    assert_int_equal(r.code, 0);
    program_free(&r);
    return 0;
}

static bool lists(json_t *rows, const char *variant)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        json_t *names = json_object_get(row, "variants");
        if (strcmp(json_string_value(names ? json_array_get(names, 0) : row), variant) == 0)
            return true;
    }
    return false;
}

static void says(program_result r, int code, const char *const *words)
{
    assert_int_equal(r.code, code);
    assert_string_equal(r.err, "");
    for (; *words; words++)
        if (!strstr(r.out, *words))
            fail_msg("\"%s\" is not in:\n%s", *words, r.out);
    program_free(&r);
}
#define SAYS(code, run, ...) says(run, code, (const char *const[]){__VA_ARGS__, NULL})

static void a_sound_tolerance_rejects_all(void **state)
{
    (void)state;
    SAYS(0, RUN("power", made), "accepted when |x - y| <= ", "wrong variants that this input shows are rejected",
         "inputs-f16", "This input cannot show", "bias-k-dropped", "mha power --suggest FILE");
    json_t *root = RUN_JSON(0, "power", made, "--json");
    assert_keys(root, "stage,criterion,derived_rtol,derived_atol,tried,same,accepted,rejected,rejections");
    assert_int_equal(json_array_size(json_object_get(root, "accepted")), 0);
    assert_true(lists(json_object_get(root, "same"), "bias-k-dropped"));
    assert_true(lists(json_object_get(root, "rejections"), "causal-missing"));
    const json_int_t tried = json_integer_value(json_object_get(root, "tried"));
    assert_int_equal(tried, json_integer_value(json_object_get(root, "rejected")) +
                                (json_int_t)json_array_size(json_object_get(root, "same")));
    json_decref(root);
    SAYS(0, RUN("power", made, "--quiet"), "");
}

static void a_wide_tolerance_accepts_some(void **state)
{
    (void)state;
    SAYS(1, RUN("power", made, "--atol", "0.5", "--rtol", "0.2"), "accepted when |x - y| <= 0.5 + 0.2 |y|",
         "wrong variants that this input shows are accepted:", "bias-q-dropped", "Rounding in float32 explains");
    SAYS(1, RUN("power", made, "--nmse", "0.9"), "sum (x - y)^2 <= 0.9 sum y^2", "plus-one-added");
    SAYS(1, RUN("power", made, "--cosine", "0.2", "--precision", "bf16"), "cosine(x, y) >= 0.2",
         "Rounding in bfloat16 explains");
    json_t *root = RUN_JSON(1, "power", made, "--json", "--cosine", "-1", "--precision", "f16");
    assert_false(lists(json_object_get(root, "accepted"), "inputs-f16"));
    assert_true(lists(json_object_get(root, "accepted"), "inputs-bf16"));
    assert_int_equal(json_integer_value(json_object_get(root, "rejected")), 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(root, "criterion"), "kind")), "cosine");
    json_decref(root);
}

/* Without a case, the options of mha forward say what is asked about. */
static void options_do_without_a_case(void **state)
{
    (void)state;
    SAYS(0, RUN("power", "--d-model", "24", "--heads", "4", "--seq", "6", "--causal"),
         "output of random weights and inputs (seed 0)");
    SAYS(0,
         RUN("power", "--weights", "weights/lookup/model.safetensors", "--input",
             "weights/lookup/recorded.safetensors:input", "--stage", "weights", "--threads", "1"),
         "weights of weights/lookup/recorded.safetensors:input", "merge-untransposed");
}

static void suggested_inputs_are_written_with_their_proof(void **state)
{
    (void)state;
    char to[600];
    snprintf(to, sizeof to, "%s", scratch("suggested.safetensors"));
    program_result r = RUN("power", "--suggest", to, "--heads", "4", "--kv-heads", "2", "--causal", "--window", "2,-1",
                           "--kind", "sdpa", "--with", "lengths,sinks,past");
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "are rejected"));
    assert_null(strstr(r.out, "--suggest"));
    program_result again = RUN("power", to);
    assert_int_equal(again.code, 0);
    assert_int_equal(strncmp(r.out, again.out, strlen(r.out)), 0);
    program_free(&r);
    program_free(&again);
    SAYS(0, RUN("power", "--suggest", scratch("layer.safetensors"), "--d-k", "6", "--with", "norms"), "are rejected");
    SAYS(0, RUN("check", to), "1 passed");
    json_t *root = RUN_JSON(0, "power", to, "--json");
    json_t *rejections = json_object_get(root, "rejections");
    static const char *const shown[] = {"sinks-missing", "lengths-more",   "window-left-more", "groups-tiled",
                                        "cache-ignored", "causal-missing", "causal-top-left"};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (!lists(rejections, shown[i]))
            fail_msg("%s is not shown", shown[i]);
    json_decref(root);
}

static void wrong_requests_are_refused(void **state)
{
    (void)state;
    assert_program_refuses(RUN("power", made, "--atol", "1", "--nmse", "1"), 2, "mha power: --nmse: expected one of");
    assert_program_refuses(RUN("power", made, "--nmse", "1", "--cosine", "1"), 2, "mha power: --cosine: expected one");
    assert_program_refuses(RUN("power", made, "--cosine", "1.5"), 2, "--cosine: expected a number from -1 to 1");
    assert_program_refuses(RUN("power", made, "--causal"), 2, "--causal: expected nothing beside a case file");
    assert_program_refuses(RUN("power", made, "--suggest", made), 2, "--suggest: expected nothing beside a case file");
    assert_program_refuses(RUN("power", made, "--with", "mask"), 2, "--with: expected --suggest beside it");
    assert_program_refuses(RUN("power", made, "--kind", "sdpa"), 2, "--kind: expected --suggest beside it");
    assert_program_refuses(RUN("power", made, "--stage", "nothing"), 2, "--stage: expected the name of a stage");
    assert_program_refuses(RUN("power", scratch("absent")), 2, "absent: expected a file");
    assert_program_refuses(RUN("power", "--suggest", "/dev/full/suggested.safetensors"), 3, "/dev/full/suggested");
    assert_program_refuses(RUN("power", "--suggest", "suggested.txt"), 2, "suggested.txt: expected a name that ends");
    assert_program_refuses(RUN("power", "--suggest", made, "--with", "mask,nothing"), 2,
                           "--with: expected mask|keeps*, found \"nothing\"");
    assert_program_refuses(RUN("power", "--suggest", made, "--with", "poison"), 2,
                           "poison: expected lengths beside it");
    assert_program_refuses(RUN("power", "--suggest", made, "--input", made), 2, "--input: expected nothing beside");
    assert_program_refuses(RUN("power", "--suggest", "/nowhere/a.safetensors"), 3,
                           "mha power: /nowhere/a.safetensors: cannot");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_tolerance_rejects_all),
        cmocka_unit_test(a_wide_tolerance_accepts_some),
        cmocka_unit_test(options_do_without_a_case),
        cmocka_unit_test(suggested_inputs_are_written_with_their_proof),
        cmocka_unit_test(wrong_requests_are_refused),
    };
    return cmocka_run_group_tests_name("cli_power", tests, make_case, scratch_remove);
}
