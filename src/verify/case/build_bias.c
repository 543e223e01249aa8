/* The relative position bias and the relative terms of a case, by their keys. */
#include "base/base.h"
#include "verify/case/record.h"

mha_status mha__case_build_bias(mha_case *c, mha_error *error)
{
    mha_bias *bias = &c->semantics.bias;
    const char *const keys[] = {"bias_max_distance", "bias_height", "bias_width"};
    size_t *const counts[] = {&bias->max_distance, &bias->height, &bias->width};
    int rule, one_way, class_token;
    TRY(mha__case_choice(c, "bias_rule", &rule, error));
    TRY(mha__case_choice(c, "bias_one_way", &one_way, error));
    TRY(mha__case_choice(c, "bias_class_token", &class_token, error));
    bias->rule = (mha_bias_rule)rule;
    bias->one_way = one_way != 0;
    bias->class_token = class_token != 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t count;
        TRY(mha__case_whole(c, keys[i], 0, 0, &count, error));
        *counts[i] = (size_t)count;
    }
    if (rule == 0 && c->weights[CASE_RECORDED][MHA_BIAS_TABLE].data)
        return mha__fail(error, MHA_INVALID, "bias_table", "has no effect without bias_rule: buckets or grid");
    return MHA_OK;
}

mha_status mha__case_build_relative(mha_case *c, mha_error *error)
{
    mha_relative *relative = &c->semantics.relative;
    const char *const keys[] = {"relative_max_distance", "relative_height", "relative_width"};
    size_t *const counts[] = {&relative->max_distance, &relative->height, &relative->width};
    int rule, reversed;
    TRY(mha__case_choice(c, "relative_rule", &rule, error));
    TRY(mha__case_choice(c, "relative_reversed", &reversed, error));
    relative->rule = (mha_relative_rule)rule;
    relative->reversed = reversed != 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t count;
        TRY(mha__case_whole(c, keys[i], 0, 0, &count, error));
        *counts[i] = (size_t)count;
    }
    TRY(mha__case_number(c, "relative_k_scale", 0, &relative->k_scale, error));
    TRY(mha__case_number(c, "relative_q_scale", 0, &relative->q_scale, error));
    for (int w = MHA_RELATIVE_K; rule == 0 && w <= MHA_RELATIVE_Q; w++)
        if (c->weights[CASE_RECORDED][w].data)
            return mha__fail(error, MHA_INVALID, mha__case_weight_name((mha_weight)w),
                             "has no effect without relative_rule: distance, log_buckets or grid");
    return MHA_OK;
}
