/* Checking a kernel of one's own without a file: its output is held against the exact result, and a bug is named. */
#include <math.h>
#include <mha/lab.h>
#include <stdio.h>
#include <string.h>

enum { T = 9, H = 4, D = 8 };

static float q[T * H * D], k[T * H * D], v[T * H * D], mine[T * H * D]; /* one batch row, (T, H, D) */

/* Causal attention as one might write it, with a bug: the scores are not scaled by 1/sqrt(D). */
static void my_kernel(void)
{
    for (size_t h = 0; h < H; h++)
        for (size_t i = 0; i < T; i++) {
            double weight[T], sum = 0, most = -INFINITY;
            for (size_t j = 0; j <= i; j++) {
                weight[j] = 0;
                for (size_t c = 0; c < D; c++)
                    weight[j] += (double)q[(i * H + h) * D + c] * (double)k[(j * H + h) * D + c];
                most = fmax(most, weight[j]);
            }
            for (size_t j = 0; j <= i; j++)
                sum += weight[j] = exp(weight[j] - most);
            for (size_t c = 0; c < D; c++) {
                double value = 0;
                for (size_t j = 0; j <= i; j++)
                    value += weight[j] / sum * (double)v[(j * H + h) * D + c];
                mine[(i * H + h) * D + c] = (float)value;
            }
        }
}

int main(void)
{
    mha_call call = {.query = mha_heads(q, 1, T, H, D),
                     .key = mha_heads(k, 1, T, H, D),
                     .value = mha_heads(v, 1, T, H, D),
                     .semantics.visible.causal = true};
    mha_random_fill(&call.query, 1, 0, -2.0f, 2.0f);
    mha_random_fill(&call.key, 1, 1, -2.0f, 2.0f);
    mha_random_fill(&call.value, 1, 2, -2.0f, 2.0f);
    my_kernel();

    mha_case *recorded = NULL;
    mha_verdict verdict = {0};
    mha_diagnosis diagnosis = {0};
    mha_error error;
    const mha_keep result = {.stage = MHA_STAGE_OUTPUT, .view = mha_heads(mine, 1, T, H, D)};
    mha_status status = mha_case_of_call(NULL, &call, &result, 1, NULL, &recorded, &error);
    if (status == MHA_OK)
        status = mha_case_check(recorded, MHA_PATH_EXACT, NULL, 0, &verdict, &error);
    if (status == MHA_OK)
        status = mha_case_diagnose(recorded, NULL, 0, NULL, &diagnosis, &error);
    const char *name = diagnosis.match_count > 0 && diagnosis.matches[0].count > 0 ? diagnosis.matches[0].bugs[0] : "";
    if (status == MHA_OK)
        printf("%s; what it computes: %s\n", mha_outcome_name(verdict.outcome), name);
    else
        fprintf(stderr, "%s: %s\n", error.name, error.message);
    mha_diagnosis_clear(&diagnosis);
    mha_verdict_clear(&verdict);
    mha_case_close(recorded);
    return status != MHA_OK || strcmp(name, "scale-missing") != 0;
}
