/* The list of the ways to hold a weight in several tensors. */
#include "formats/quantised/packings.h"

#define BIT(part) (1u << MHA_PART_##part)

/* clang-format off */
const mha__packing_kind mha__packing_kinds[] = {
    {"GPTQ", {".qweight", ".scales", ".qzeros", ".g_idx"}, BIT(SCALES) | BIT(ZEROS), ".weight",
     mha__fit_gptq, mha__check_gptq, mha__value_gptq},
    {"AWQ", {".qweight", ".scales", ".qzeros"}, BIT(SCALES) | BIT(ZEROS), ".weight",
     mha__fit_awq, NULL, mha__value_awq},
    {"bitsandbytes", {".weight", ".SCB", [MHA_PART_UNUSED] = ".weight_format"}, BIT(SCALES), ".weight",
     mha__fit_int8, NULL, mha__value_int8},
    {"bitsandbytes", {".weight", ".weight.absmax", [MHA_PART_TABLE] = ".weight.quant_map",
     ".weight.nested_absmax", ".weight.nested_quant_map", ".weight.quant_state.bitsandbytes__nf4"},
     BIT(SCALES) | BIT(TABLE) | BIT(STATE), ".weight", mha__fit_4bit, NULL, mha__value_4bit},
    {"bitsandbytes", {".weight", ".weight.absmax", [MHA_PART_TABLE] = ".weight.quant_map",
     ".weight.nested_absmax", ".weight.nested_quant_map", ".weight.quant_state.bitsandbytes__fp4"},
     BIT(SCALES) | BIT(TABLE) | BIT(STATE), ".weight", mha__fit_4bit, NULL, mha__value_4bit},
    {"compressed-tensors", {".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_g_idx",
     [MHA_PART_STATE] = ".weight_shape"}, BIT(SCALES) | BIT(STATE), ".weight",
     mha__fit_compressed, mha__check_groups, mha__value_compressed},
    {"NVFP4", {".weight_packed", ".weight_scale", [MHA_PART_TABLE] = ".weight_global_scale",
     [MHA_PART_UNUSED] = ".input_global_scale"}, BIT(SCALES) | BIT(TABLE), ".weight",
     mha__fit_nvfp4, NULL, mha__value_nvfp4_divided},
    {"NVFP4", {".weight", ".weight_scale", [MHA_PART_TABLE] = ".weight_scale_2", [MHA_PART_UNUSED] = ".input_scale"},
     BIT(SCALES) | BIT(TABLE), ".weight", mha__fit_nvfp4, NULL, mha__value_nvfp4},
    {"scaled", {".weight", ".weight_scale", ".weight_zero_point", [MHA_PART_UNUSED] = ".input_scale",
     ".output_scale"}, BIT(SCALES), ".weight", mha__fit_scaled, NULL, mha__value_scaled},
    {"scaled", {".weight", ".weight_scale_inv", ".weight_zero_point", [MHA_PART_UNUSED] = ".input_scale",
     ".activation_scale"}, BIT(SCALES), ".weight", mha__fit_scaled, NULL, mha__value_scaled},
    {"scaled", {"", "_scale_inv", "_zero_point"}, BIT(SCALES), "", mha__fit_scaled, NULL, mha__value_scaled},
    {"scaled", {"", "_scale", "_zero_point"}, BIT(SCALES), "", mha__fit_scaled, NULL, mha__value_scaled},
    {"MXFP4", {"_blocks", "_scales"}, BIT(SCALES), "", mha__fit_mxfp4, NULL, mha__value_mxfp4},
    {0},
};
/* clang-format on */
