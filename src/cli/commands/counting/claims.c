/* mha claims: published statements about parameter counts, compared with what is allocated. */
#include <inttypes.h>
#include <stdlib.h>

#include "cli/commands/commands.h"
#include "cli/output/print.h"
#include "models/claims/claims.h"

static json_t *side_json(const mha__claim_side *side)
{
    return json_pack("{so sI sI}", "configuration", json_text(side->configuration), "stated", (json_int_t)side->stated,
                     "counted", (json_int_t)side->counted);
}

static json_t *claim_json(const mha__claim *c)
{
    json_t *object = json_pack(
        "{so so so so so sI sI sI ss so}", "source", json_text(c->source), "statement", json_text(c->statement),
        "formula", json_text(c->formula), "configuration", json_text(c->holds.configuration), "count",
        json_text(c->count), "stated", (json_int_t)c->holds.stated, "counted", (json_int_t)c->holds.counted, "unit",
        (json_int_t)c->unit, "verdict", mha__claim_verdict_name(c->verdict), "condition", json_text(c->condition));
    if (c->fails.configuration)
        json_object_set_new(object, "fails_for", side_json(&c->fails));
    return object;
}

/* A cell like "64,581,632", with a sign for negative numbers. */
static void table_signed(table *t, int64_t n)
{
    char text[SHORT_TEXT];
    count_text(text, n < 0 ? 0 - (uint64_t)n : (uint64_t)n);
    table_format(t, "%s%s", n < 0 ? "-" : "", text);
}

/* Prints each statement with its source; a second row shows a configuration in which the statement fails. */
static void print_claims(const mha__claim *claims, size_t n)
{
    static const char *const titles[] = {"verdict", ">stated", ">counted", "statement"};
    table *t = table_create(TABLE_TEXT, sizeof titles / sizeof *titles, titles);
    for (size_t i = 0; i < n; i++) {
        const mha__claim *c = &claims[i];
        table_cell(t, mha__claim_verdict_name(c->verdict));
        table_signed(t, c->holds.stated);
        table_signed(t, c->holds.counted);
        table_format(t, "%s: %s%s%s", c->source, c->statement,
                     !c->condition                     ? ""
                     : c->verdict == MHA_CLAIM_ONLY_IF ? "; only if "
                     : c->verdict == MHA_CLAIM_FALSE   ? "; no: "
                                                       : "; ",
                     c->condition ? c->condition : "");
        if (!c->fails.configuration)
            continue;
        table_cell(t, "");
        table_signed(t, c->fails.stated);
        table_signed(t, c->fails.counted);
        table_format(t, "  with %s", c->fails.configuration);
    }
    table_print(t);
}

int run_claims(const arguments *args)
{
    size_t n = mha__claim_count(), verdicts[3] = {0};
    mha__claim *claims = obtain(n, sizeof *claims);
    mha_error error = {0};
    int code = EXIT_DONE;
    for (size_t i = 0; i < n && code == EXIT_DONE; i++) {
        code = mha__claim_judge(i, &claims[i], &error) == MHA_OK ? EXIT_DONE : refuse_error("", &error);
        verdicts[claims[i].verdict]++;
    }
    if (code == EXIT_DONE && given(args, OPT_JSON)) {
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++)
            json_array_append_new(list, claim_json(&claims[i]));
        json_print(json_pack("{so so so so}", "true", json_count(verdicts[MHA_CLAIM_TRUE]), "false",
                             json_count(verdicts[MHA_CLAIM_FALSE]), "only_if", json_count(verdicts[MHA_CLAIM_ONLY_IF]),
                             "claims", list));
    } else if (code == EXIT_DONE && !given(args, OPT_QUIET)) {
        print_claims(claims, n);
        char *sum =
            text_of("%zu statements: %zu true, %zu false, %zu true only under a condition. Stated: evaluated from "
                    "the number or formula as published. Counted: read from the storages of the configuration it "
                    "speaks of. Pages 000 to 004: five public questions with answers about the parameters of "
                    "multi-head attention (BERT in keras-bert, a general recipe, head counts in RoBERTa, LLaMA-7B, "
                    "W_Q and W_K as one matrix).",
                    n, verdicts[MHA_CLAIM_TRUE], verdicts[MHA_CLAIM_FALSE], verdicts[MHA_CLAIM_ONLY_IF]);
        putchar('\n');
        write_prose(sum);
        free(sum);
    }
    free(claims);
    return code;
}
