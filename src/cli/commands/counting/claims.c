/* mha claims: published statements about parameter counts, compared with what is allocated. */
#include "cli/commands/commands.h"
#include "models/claims/claims.h"

static json_t *side_record(const mha__claim_side *side)
{
    return record_of("configuration", J(side->configuration), "stated", J(side->stated), "counted", J(side->counted),
                     NULL);
}

/* A statement with its source; a second row shows a configuration in which it fails. */
static json_t *claim_record(const mha__claim *c)
{
    const char *how = !c->condition                     ? ""
                      : c->verdict == MHA_CLAIM_ONLY_IF ? "; only if "
                      : c->verdict == MHA_CLAIM_FALSE   ? "; no: "
                                                        : "; ";
    json_t *record = record_of(
        "source", J(c->source), "statement", J(c->statement), "formula", J(c->formula), "configuration",
        J(c->holds.configuration), "count", J(c->count), "stated", J(c->holds.stated), "counted", J(c->holds.counted),
        "unit", J(c->unit), "verdict", J(mha__claim_verdict_name(c->verdict)), "condition", J(c->condition), "~text",
        json_words("%s: %s%s%s", c->source, c->statement, how, c->condition ? c->condition : ""), NULL);
    if (c->fails.configuration)
        record_with(record, "fails_for", side_record(&c->fails), "~then",
                    record_with(side_record(&c->fails), "~text", json_words("  with %s", c->fails.configuration), NULL),
                    NULL);
    return record;
}

static void print_claims(const json_t *list, const size_t verdicts[3])
{
    static const char *const columns[] = {
        "verdict: verdict", ">stated: stated", ">counted: counted", "statement: ~text"};
    REPORT_TABLE(list, columns);
    say("\n");
    write_prose("%zu statements: %zu true, %zu false, %zu true only under a condition. Stated: evaluated from "
                "the number or formula as published. Counted: read from the storages of the configuration it "
                "speaks of. Pages 000 to 004: five public questions with answers about the parameters of "
                "multi-head attention (BERT in keras-bert, a general recipe, head counts in RoBERTa, LLaMA-7B, "
                "W_Q and W_K as one matrix).",
                json_array_size(list), verdicts[MHA_CLAIM_TRUE], verdicts[MHA_CLAIM_FALSE],
                verdicts[MHA_CLAIM_ONLY_IF]);
}

int run_claims(const arguments *args)
{
    size_t verdicts[3] = {0};
    json_t *list = json_array();
    mha_error error = {0};
    int code = EXIT_DONE;
    progress_begin(args, "statements");
    for (size_t i = 0; i < mha__claim_count(); i++) {
        mha__claim claim;
        progress_show(i, mha__claim_count());
        if ((code = done_or_refuse(mha__claim_check(i, &claim, &error), "", &error)) != EXIT_DONE)
            break;
        verdicts[claim.verdict]++;
        json_array_append_new(list, claim_record(&claim));
    }
    progress_end();
    json_t *root = keep_json(record_of("true", J(verdicts[MHA_CLAIM_TRUE]), "false", J(verdicts[MHA_CLAIM_FALSE]),
                                       "only_if", J(verdicts[MHA_CLAIM_ONLY_IF]), "claims", list, NULL));
    if (code == EXIT_DONE && report_is_text(args, root))
        print_claims(list, verdicts);
    return code;
}
