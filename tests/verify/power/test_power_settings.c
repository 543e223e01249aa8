/* Bugs that the tolerances of well-known tests accept: their inputs drawn anew, every known bug compared with them. */
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/page.h"
#include "support/scratch.h"

typedef enum distribution { NORMAL, UNIFORM } distribution;

/* The inputs of a test, drawn anew. */
typedef struct inputs {
    const char *words; /* as the page says them */
    size_t T_q, T_k, h, h_kv, d;
    distribution drawn;
    double a, b; /* mean and standard deviation, or from and to */
    double scale;
    bool causal;
    int64_t offset;
} inputs;

static const inputs triton = {"128^2, 2 heads, d 64, N(0, 0.5), scale 0.5, causal", 128, 128, 2, 2, 64, NORMAL, 0, 0.5,
                              0.5, true, 0};
static const inputs prefill = {"134 of 1024, 4 heads on 2, d 32, N(0, 1), causal", 134, 1024, 4, 2, 32, NORMAL, 0, 1, 0,
                               true, 890};
static const inputs decode = {"1 of 1024, 8 heads on 2, d 128, N(0, 1), causal", 1, 1024, 8, 2, 128, NORMAL, 0, 1, 0,
                              true, 1023};
static const inputs ggml = {"8 of 1024, 8 heads, d 64, U(-1, 1)", 8, 1024, 8, 8, 64, UNIFORM, -1, 1, 0, false, 0};
static const inputs air = {"256^2, 2 heads, d 64, U(0.5, 1), causal", 256, 256, 2, 2, 64, UNIFORM, 0.5, 1, 0, true, 0};

typedef struct setting {
    const char *name;
    const inputs *inputs;
    mha_criterion criterion;
    const char *rule; /* the criterion, as the page says it */
    const char *accepted[4], *rejected[4]; /* some bugs that must be found there, whatever others there are */
} setting;

#define CLOSE(r, t) {.kind = MHA_CRITERION_CLOSE, .rtol = (r), .atol = (t)}

static const setting settings[] = {
    {"Triton 06-fused-attention", &triton, CLOSE(0, 1e-2), "atol 1e-2",
     {"inputs-bf16"}, {"causal-strict", "scale-default"}},
    {"vLLM CPU attention, prefill", &prefill, CLOSE(1e-2, 1.5e-2), "atol 1.5e-2, rtol 1e-2",
     {"inputs-bf16", "plus-one-added"}, {"causal-missing", "scale-twice"}},
    {"vLLM CPU attention, decode", &decode, CLOSE(1e-2, 1.5e-2), "atol 1.5e-2, rtol 1e-2",
     {"causal-strict", "plus-one-added"}, {"scale-twice", "groups-tiled"}},
    {"vLLM CPU attention, decode, FP8 cache", &decode, CLOSE(0.1, 0.2), "atol 0.2, rtol 0.1",
     {"causal-strict", "scale-twice", "scale-no-root"}, {"scale-missing"}},
    {"vLLM CPU attention, prefill, FP8 cache", &prefill, CLOSE(0.1, 0.2), "atol 0.2, rtol 0.1",
     {"causal-missing", "causal-strict", "causal-plus-1"}, {"scale-missing"}},
    {"llama.cpp test-backend-ops", &ggml, {.kind = MHA_CRITERION_NMSE, .limit = 5e-4}, "NMSE 5e-4",
     {"inputs-bf16"}, {"scale-missing", "merge-interleaved"}},
    {"mlir-air, issue 1427", &air, CLOSE(0.2, 0.5), "atol 0.5, rtol 0.2",
     {"causal-missing", "order-kvq", "scale-missing", "merge-interleaved"}, {"softmax-queries"}},
    {"mlir-air, issue 1450", &air, CLOSE(0.04, 0.15), "atol 0.15, rtol 0.04",
     {"scale-missing", "scale-twice", "order-kqv"}, {"causal-missing"}},
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

/* ---------------------------------------------------------------- inputs */

/* Normal numbers by the transform of Box and Muller, or uniform ones. */
static mha_view draw(const inputs *s, uint64_t stream, size_t T, size_t h)
{
    const size_t n = T * h * s->d;
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) {
        const double u = mha__random_unit(7, stream, 2 * i), v = mha__random_unit(7, stream, 2 * i + 1);
        x[i] = (float)(s->drawn == UNIFORM ? s->a + (s->b - s->a) * u
                                           : s->a + s->b * sqrt(-2 * log(1 - u)) * cos(2 * 3.141592653589793 * v));
    }
    return mha_heads(x, 1, T, h, s->d);
}

static mha_power measure(const inputs *s, const mha_criterion *criterion)
{
    mha_call call = {.query = draw(s, 1, s->T_q, s->h),
                     .key = draw(s, 2, s->T_k, s->h_kv),
                     .value = draw(s, 3, s->T_k, s->h_kv),
                     .semantics = {.softmax.scale = s->scale, .visible.causal = s->causal, .place.offset = s->offset}};
    mha_case *c;
    mha_power p;
    mha_error error;
    assert_ok(mha_case_of_call(NULL, &call, NULL, 0, NULL, &c, &error), error);
    assert_ok(mha_case_power(c, criterion, 0, NULL, &p, &error), error);
    mha_case_close(c);
    free(call.query.data);
    free(call.key.data);
    free(call.value.data);
    return p;
}

static const mha_power_row *row_of(const mha_power *p, const char *bug)
{
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->rows[i].bug->name, bug) == 0)
            return &p->rows[i];
    fail_msg("%s does not apply", bug);
    return NULL;
}

/* ---------------------------------------------------------------- the page */

/* A setting with the bugs that it accepts, or, when they are most of them, with those that it rejects. */
static void write_line(const setting *s, const mha_power *p, bytes *page)
{
    const size_t shown = p->accepted + p->rejected;
    const bool most = 2 * p->accepted > shown;
    char line[400];
    snprintf(line, sizeof line, "| %s | %s | %s | %zu | %zu |%s", s->name, s->inputs->words, s->rule, shown,
             p->accepted, most ? " all but" : "");
    bytes_text(page, line);
    for (size_t i = 0; i < p->count; i++)
        if (p->rows[i].result == (most ? MHA_POWER_REJECTED : MHA_POWER_ACCEPTED)) {
            snprintf(line, sizeof line, " %s", p->rows[i].bug->name);
            bytes_text(page, line);
        }
    bytes_text(page, " |\n");
}

/* ---------------------------------------------------------------- tests */

static void known_tests_accept_wrong_attentions(void **state)
{
    (void)state;
    bytes page = {0};
    bytes_text(&page, "\n| test | inputs | accepts when | shown | accepted | which |\n|---|---|---|---:|---:|---|\n");
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const setting *s = &settings[i];
        mha_power p = measure(s->inputs, &s->criterion);
        for (size_t k = 0; k < 4; k++)
            for (int accepted = 0; accepted < 2; accepted++) {
                const char *bug = accepted ? s->accepted[k] : s->rejected[k];
                if (bug && row_of(&p, bug)->result != (accepted ? MHA_POWER_ACCEPTED : MHA_POWER_REJECTED))
                    fail_msg("%s: %s is not %s", s->name, bug, accepted ? "accepted" : "rejected");
            }
        /* The inputs are not to blame: what rounding explains is less than any of these bugs. */
        assert_int_equal(p.faint, 0);
        write_line(s, &p, &page);
        mha_power_clear(&p);
    }
    bytes_add(&page, "\n", 2);
    page_holds("src/verify/power/POWER.md", "settings", (const char *)page.data);
    bytes_free(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_tests_accept_wrong_attentions),
    };
    return cmocka_run_group_tests_name("power_settings", tests, NULL, NULL);
}
