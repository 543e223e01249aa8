/* The list of published statements: all can be checked, and the verdicts are those worked out by hand. */
#include <stdio.h>
#include <string.h>

#include "models/claims/claims.h"
#include "support/unit.h"

static mha__claim check(size_t index)
{
    mha__claim claim;
    mha_error error;
    assert_ok(mha__claim_check(index, &claim, &error), error);
    return claim;
}

static void every_claim_can_be_checked(void **state)
{
    (void)state;
    size_t verdicts[3] = {0};
    assert_true(mha__claim_count() >= 45);
    for (size_t i = 0; i < mha__claim_count(); i++) {
        mha__claim claim = check(i);
        verdicts[claim.verdict]++;
        assert_true(*claim.source && *claim.statement && *claim.formula && *claim.count && claim.holds.configuration);
        assert_int_equal(claim.verdict == MHA_CLAIM_ONLY_IF, claim.fails.configuration != NULL);
        if (claim.verdict == MHA_CLAIM_ONLY_IF)
            assert_non_null(claim.condition);
        if (claim.verdict == MHA_CLAIM_FALSE)
            assert_int_not_equal(claim.holds.stated, claim.holds.counted);
    }
    assert_true(verdicts[MHA_CLAIM_TRUE] > 20 && verdicts[MHA_CLAIM_FALSE] > 30 && verdicts[MHA_CLAIM_ONLY_IF] > 8);
    assert_string_equal(mha__claim_verdict_name(MHA_CLAIM_ONLY_IF), "only if");
    mha__claim claim;
    mha_error error;
    assert_refused(mha__claim_check(mha__claim_count(), &claim, &error), MHA_NOT_FOUND, error, "claims");
}

/* Worked out on paper: what is stated, what is right. */
static void verdicts_are_those_worked_out_by_hand(void **state)
{
    (void)state;
    static const struct {
        const char *source; /* begins with */
        int64_t stated, counted;
        mha__claim_verdict verdict;
    } cases[] = {
        {"page 000", 2362368, 2362368, MHA_CLAIM_TRUE},
        {"page 000", 589824, 49152, MHA_CLAIM_FALSE},
        {"page 000", 21261312, 1771776, MHA_CLAIM_FALSE},
        {"page 000", 7078656, 590592, MHA_CLAIM_FALSE},
        {"page 000", 28341504, 2362368, MHA_CLAIM_FALSE},
        {"page 000", 2363904, 2362368, MHA_CLAIM_FALSE},
        {"page 000", 2474328, 2362368, MHA_CLAIM_FALSE},
        {"page 000", 2362368, 7087872, MHA_CLAIM_FALSE},
        {"page 000", 590592, 4722432, MHA_CLAIM_FALSE},
        {"page 001", 2560, 2048, MHA_CLAIM_FALSE},
        {"page 001", 1051136, 1050624, MHA_CLAIM_FALSE},
        {"page 001", 917504, 786432, MHA_CLAIM_FALSE},
        {"page 001", 262144, 262144, MHA_CLAIM_ONLY_IF},
        {"page 001", 1036288, 1032192, MHA_CLAIM_FALSE},
        {"page 002", 109514298, 124697433, MHA_CLAIM_FALSE},
        {"page 002", 132985716, 109514298, MHA_CLAIM_FALSE},
        {"page 002", 109514298, 109514298, MHA_CLAIM_TRUE},
        {"page 003", 205621559296, 2147483648, MHA_CLAIM_FALSE},
        {"page 003", 210990268416, 2147483648, MHA_CLAIM_FALSE},
        {"page 003", 6476005376, 6476005376, MHA_CLAIM_TRUE},
        {"page 003", 6476005376, 6476271616, MHA_CLAIM_FALSE},
        {"page 003", 6885605376, 6738415616, MHA_CLAIM_FALSE},
        {"page 003", 67108864, 2147483648, MHA_CLAIM_FALSE},
        {"page 003", 2147483648, 16777216, MHA_CLAIM_FALSE},
        {"page 003", 16777216, 16777216, MHA_CLAIM_ONLY_IF},
        {"page 004", 262144, 262144, MHA_CLAIM_ONLY_IF},
        {"page 004", 1, 16, MHA_CLAIM_FALSE},
        {"page 004", 65536, 65536, MHA_CLAIM_TRUE},
        {"DeepSeek-AI", 70272, 70272, MHA_CLAIM_TRUE},
        {"DeepSeek-AI", 327680, 327680, MHA_CLAIM_TRUE},
        {"DeepSeek-AI", 516096, 516096, MHA_CLAIM_TRUE},
        {"Hugging Face", 16771847290, 16777216000, MHA_CLAIM_ONLY_IF},
        {"Hugging Face", 132123931443, 66060288000, MHA_CLAIM_FALSE},
        {"gguf-parser-go", 6442450944, 3224371200, MHA_CLAIM_FALSE},
        {"gguf-parser-go", 10737418240, 2751201280, MHA_CLAIM_FALSE},
        {"unsloth", 4702989189, 4697620480, MHA_CLAIM_TRUE},
        {"unsloth", 11510512353, 11513364480, MHA_CLAIM_TRUE},
        {"unsloth", 18446884536, 22267035648, MHA_CLAIM_FALSE},
        {"future-shock", 307200, 307200, MHA_CLAIM_ONLY_IF},
        {"NVIDIA", 2147483648, 2147483648, MHA_CLAIM_TRUE},
        {"Jiang", 8, 8, MHA_CLAIM_TRUE},
        {"Vaswani", 65000000, 64581632, MHA_CLAIM_ONLY_IF},
        {"Vaswani", 213000000, 213147648, MHA_CLAIM_ONLY_IF},
        {"Hub, gpt2", 137022720, 124439808, MHA_CLAIM_FALSE},
        {"Hub, Llama-2-70b", 68976653312, 68976648192, MHA_CLAIM_FALSE},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        bool found = false;
        for (size_t i = 0; i < mha__claim_count() && !found; i++) {
            mha__claim claim = check(i);
            found = strncmp(claim.source, cases[c].source, strlen(cases[c].source)) == 0 &&
                    claim.holds.stated == cases[c].stated && claim.holds.counted == cases[c].counted &&
                    claim.verdict == cases[c].verdict;
        }
        if (!found)
            fail_msg("no claim of %s states %lld where %lld are counted, verdict %s", cases[c].source,
                     (long long)cases[c].stated, (long long)cases[c].counted,
                     mha__claim_verdict_name(cases[c].verdict));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_claim_can_be_checked),
        cmocka_unit_test(verdicts_are_those_worked_out_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
