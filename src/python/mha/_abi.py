"""The C interface of the library as ctypes declares it: types, lists of names, structs, functions.

tests/python/test_abi.py compiles a program against include/mha/mha.h and holds every line of this file against it.
"""
from __future__ import annotations

import ctypes as c
import re
from typing import Any

SERIES = "0.2"  # versions 0.x promise no binary interface across minor versions: these declarations are of 0.2.x

# ---------------------------------------------------------------- lists, in the order of their enums

STATUS = ("ok", "invalid", "unsupported", "format", "not found", "i/o", "no memory")
DTYPES = ("F32", "F64", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL", "F8_E4M3",
          "F8_E5M2")  # the plain types that arrays have; C64 stands farther back
F32, F64, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, F8_E4M3, F8_E5M2 = range(len(DTYPES))
BLOCKS = {name: len(DTYPES) + at for at, name in enumerate(
    "q4_0 q4_1 q5_0 q5_1 q8_0 - q2_k q3_k q4_k q5_k q6_k - - - - - iq4_nl - - iq4_xs - - - mxfp4".split())
    if name != "-"} | {"f8_e4m3_scaled": 54, "f8_e5m2_scaled": 55}
PATHS = ("auto", "fast", "blas", "exact")
STAGES = ("q", "k", "v", "q_rot", "k_rot", "scores", "capped", "masked", "weights", "weights_mean", "heads", "output",
          "present_key", "present_value", "lse", "q_latent", "kv_latent", "gated")
OUTPUT, LSE = STAGES.index("output"), STAGES.index("lse")
WEIGHTS = ("W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V", "W_O", "b_O", "bias_k", "bias_v", "sinks", "q_norm", "k_norm",
           "q_norm_bias", "k_norm_bias", "bias_table", "W_QA", "b_QA", "qa_norm", "W_KVA", "b_KVA", "kva_norm", "W_KVB",
           "W_G", "b_G", "relative_k", "relative_columns", "relative_q")
MASK_KINDS = ("none", "additive", "keeps", "hides")
RELATIVE_RULES = ("none", "distance", "log_buckets", "grid")
BIAS_RULES = ("none", "buckets", "grid")
ROPE_KINDS = ("none", "interleaved", "half_split")
ROPE_SCALINGS = ("none", "linear", "dynamic", "yarn", "longrope", "llama3")
ROPE_AXES = ("blocks", "interleaved", "repeated", "dealt")
ROPE_MAX_PAIRS, ROPE_MAX_AXES = 256, 4
ALIBI_MAX_HEADS = 256
NORMALISERS = ("softmax", "sigmoid")
EMPTY_ROWS = ("zero", "nan")
HIDDEN_VALUES = ("ignore", "propagate")
NORMS = ("none", "head", "row", "each_head")
GATES = ("none", "feature", "head")
NORM_KINDS = ("rms", "layer", "l2")
TENSOR_KINDS = ("parameter", "buffer", "derived")
ORIENTATIONS = ("auto", "in_out", "out_in")
CRITERIA = ("judge", "close", "nmse", "cosine")
POWER_ANSWERS = ("rejected", "accepted", "same")
OUTCOMES = ("passed", "failed", "skipped")
FINDINGS = ("missing", "extra", "misshapen", "stored twice", "buffer")
MAX_RANK = 8

# ---------------------------------------------------------------- structs

_size, _ssize, _i64, _double = c.c_size_t, c.c_ssize_t, c.c_int64, c.c_double


def _each(names: str, kind: Any) -> list[Any]:
    """Fields of one type."""
    return [(name, kind) for name in names.split()]


class Struct(c.Structure):
    """A struct of the library, called `c_name` there."""

    c_name = ""


class Error(Struct):
    c_name = "mha_error"
    _fields_ = [("status", c.c_int), ("message", c.c_char * 400), ("name", c.c_char * 256), ("offset", c.c_uint64)]


class View(Struct):
    c_name = "mha_view"
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int), ("rank", c.c_int), ("shape", _size * MAX_RANK),
                ("stride", _ssize * MAX_RANK)]


class Config(Struct):
    c_name = "mha_config"
    _fields_ = (_each("d_model n_heads kv_heads d_k d_v d_q d_kin d_vin d_out", _size)
                + _each("bias_q bias_k bias_v bias_o bias_kv sinks", c.c_bool)
                + [("q_norm", c.c_int), ("k_norm", c.c_int), ("norm_bias", c.c_bool), ("bias_rows", _size)]
                + _each("relative_k_rows relative_column_rows relative_q_rows", _size)
                + [("relative_by_head", c.c_bool), ("dtype", c.c_int), ("gate", c.c_int), ("bias_gate", c.c_bool)]
                + _each("q_rank kv_rank d_rope", _size) + [("bias_latent", c.c_bool),
                                                               ("matrix_dtype", c.c_int * len(WEIGHTS))])


class CacheSpec(Struct):
    c_name = "mha_cache_spec"
    _fields_ = (_each("batch kv_heads d_k d_v capacity window", _size)
                + [("dtype", c.c_int)])


class Mask(Struct):
    c_name = "mha_mask"
    _fields_ = [("kind", c.c_int), ("values", View)]


class Bias(Struct):
    c_name = "mha_bias"
    _fields_ = [("rule", c.c_int), ("one_way", c.c_bool), ("class_token", c.c_bool), ("max_distance", _size),
                ("height", _size), ("width", _size)]


class Relative(Struct):
    c_name = "mha_relative"
    _fields_ = [("rule", c.c_int), ("reversed", c.c_bool), ("max_distance", _size), ("height", _size),
                ("width", _size), ("k_scale", _double), ("q_scale", _double)]


class RopeAxes(Struct):
    c_name = "mha_rope_axes"
    _fields_ = [("kind", c.c_int), ("axes", _size), ("sections", _size * ROPE_MAX_AXES)]


class RopeOrigin(Struct):
    c_name = "mha_rope_origin"
    _fields_ = [("axes", RopeAxes), ("positions", View), ("frequencies", View)]


class Rope(Struct):
    c_name = "mha_rope"
    _fields_ = ([("kind", c.c_int), ("dim", _size), ("base", _double), ("last", c.c_bool),
                 ("attention_factor", _double), ("frequencies", View)]
                + _each("q_positions k_positions cos_table sin_table", View) + [("origin", RopeOrigin)])


class RopeScaling(Struct):
    c_name = "mha_rope_scaling"
    _fields_ = ([("kind", c.c_int)] + _each("factor original_length beta_fast beta_slow", _double)
                + [("untruncated", c.c_bool)]
                + _each("mscale mscale_all_dim low_frequency_factor high_frequency_factor attention_factor", _double)
                + [("pairs", _size), ("short_factors", _double * ROPE_MAX_PAIRS),
                   ("long_factors", _double * ROPE_MAX_PAIRS)])


class NormRule(Struct):
    c_name = "mha_norm_rule"
    _fields_ = [("kind", c.c_int)] + _each("plus_one after_rope unweighted", c.c_bool)


class QueryScale(Struct):
    c_name = "mha_query_scale"
    _fields_ = [("growth", _double), ("every", _i64), ("first", _i64)]


class Pattern(Struct):
    c_name = "mha_pattern"
    _fields_ = [("q_segments", View), ("k_segments", View), ("query_padding", Mask), ("key_lists", View),
                ("blocks", Mask), ("block_queries", _size), ("block_keys", _size)]


class Semantics(Struct):
    c_name = "mha_semantics"
    _fields_ = [("has_scale", c.c_bool), ("scale", _double), ("softcap", _double), ("has_offset", c.c_bool),
                ("offset", _i64), ("position_offset", c.c_void_p), ("has_key_offset", c.c_bool), ("key_offset", _i64),
                ("keys_only", c.c_bool), ("causal", c.c_bool), ("prefix", _i64), ("window", c.c_bool),
                ("window_left", _i64), ("window_right", _i64), ("window_keep", _i64), ("chunk", _i64),
                ("kv_lengths", c.c_void_p), ("key_padding", Mask),
                ("has_padding_fill", c.c_bool), ("padding_fill", _double), ("mask", Mask), ("pattern", Pattern),
                ("alibi_slopes", c.c_void_p), ("bias", Bias),
                ("relative", Relative), ("rope", Rope), ("norm_eps", _double), ("norm", NormRule),
                ("query_scale", QueryScale), ("clip_qkv", _double), ("zero_row", c.c_bool),
                ("softmax_plus_one", c.c_bool), ("normaliser", c.c_int),
                ("sigmoid_bias", _double), ("empty_rows", c.c_int), ("hidden_values", c.c_int),
                ("n_sequences", _size), ("cu_seqlens_q", c.c_void_p), ("cu_seqlens_k", c.c_void_p)]


class Pages(Struct):
    c_name = "mha_pages"
    _fields_ = [("keys", View), ("values", View), ("table", c.c_void_p), ("columns", _size), ("lengths", c.c_void_p)]


class Keep(Struct):
    c_name = "mha_keep"
    _fields_ = [("stage", c.c_int), ("view", View), ("ms", _double)]


class Precision(Struct):
    c_name = "mha_precision"
    _fields_ = [(n, c.c_int) for n in (
        "inputs", "weights", "rows", "scores", "probabilities", "sums", "output")]


class Call(Struct):
    c_name = "mha_call"
    _fields_ = (_each("query key value output", View)
                + [("semantics", Semantics), ("weights", c.POINTER(View)), ("cache", c.c_void_p),
                   ("pages", Pages), ("absorbed", c.c_bool),
                   ("keep", c.POINTER(Keep)), ("keep_count", _size), ("partial", View),
                   ("precision", Precision), ("path", c.c_int), ("threads", c.c_int)])


class Plan(Struct):
    c_name = "mha_plan"
    _fields_ = ([("path", c.c_int), ("path_reason", c.c_char_p)]
                + _each("B T_q T_k S S_extra h h_kv d_k d_v d_out", _size)
                + [("scale", _double), ("threads", c.c_int), ("workspace_bytes", _size),
                   ("internal", c.c_uint64 * (10240 // 8))])


class MergePart(Struct):
    c_name = "mha_part"
    _fields_ = [("heads", View), ("lse", View)]


class TensorSpec(Struct):
    c_name = "mha_tensor_spec"
    _fields_ = [("name", c.c_char_p), ("role", c.c_char_p), ("group", c.c_char_p), ("dtype", c.c_int),
                ("source_dtype", c.c_int), ("has_source", c.c_bool), ("rank", c.c_int), ("shape", _size * MAX_RANK),
                ("kind", c.c_int), ("frozen", c.c_bool), ("by_column", c.c_bool)]


class TensorInfo(Struct):
    c_name = "mha_tensor_info"
    _fields_ = [("name", c.c_char_p), ("role", c.c_char_p), ("group", c.c_char_p), ("dtype", c.c_int),
                ("source_dtype", c.c_int), ("rank", c.c_int), ("shape", _size * MAX_RANK), ("kind", c.c_int),
                ("trainable", c.c_bool), ("elements", _size), ("bytes", _size), ("inert_elements", _size),
                ("inert_why", c.c_char_p), ("storage", _size), ("alias_of", c.c_char_p), ("data", c.c_void_p)]


class Totals(Struct):
    c_name = "mha_totals"
    _fields_ = _each("parameters parameter_bytes trainable buffers buffer_bytes derived_bytes inert storages "
                     "derived_storages tensors aliases bytes_allocated", _size)


class FileTensor(Struct):
    c_name = "mha_file_tensor"
    _fields_ = [("name", c.c_char_p), ("dtype", c.c_int), ("rank", c.c_int), ("shape", _size * MAX_RANK),
                ("elements", _size), ("bytes", _size), ("offset", c.c_uint64), ("index", _size), ("reads_as", c.c_int),
                ("packing", c.c_char_p)]


class FileTotals(Struct):
    c_name = "mha_file_totals"
    _fields_ = _each("tensors elements bytes bytes_here parameters buffers unique attention", _size)


class ModelFacts(Struct):
    c_name = "mha_model_facts"
    _fields_ = [("model_type", c.c_char * 48), ("d_model", _size), ("n_heads", _size), ("kv_heads", _size),
                ("d_k", _size), ("has_semantics", c.c_bool), ("causal", c.c_bool), ("rope", c.c_int),
                ("rope_dim", _size), ("rope_last", c.c_bool), ("rope_base", _double), ("norm_eps", _double),
                ("softcap", _double), ("clip_qkv", _double), ("norm", NormRule),
                ("query_scale", QueryScale),
                ("rope_axes", RopeAxes), ("rope_scaling", RopeScaling), ("rope_attention_factor", _double),
                ("rope_frequencies", _double * ROPE_MAX_PAIRS),
                ("has_scale", c.c_bool), ("scale", _double), ("window", _size),
                ("window_both", c.c_bool), ("chunk", _size), ("bias", Bias), ("bias_rows", _size),
                ("bias_table", c.c_char * 200), ("shift", _size), ("image_height", _size), ("image_width", _size),
                ("relative", Relative), ("relative_rows", _size), ("relative_table", c.c_char * 200),
                ("relative_norm", c.c_char * 200), ("relative_shared", c.c_bool),
                ("made", c.c_uint64), ("bias_span", _size), ("alibi", c.c_bool),
                ("alibi_slopes", _double * ALIBI_MAX_HEADS), ("fused_blocks", _size), ("fused_qvk", c.c_bool),
                ("gate", c.c_int), ("fused_gate", c.c_bool), ("weights", c.c_uint64), ("caveat", c.c_char * 160),
                ("not_run", c.c_char * 160)]


class FoundLayer(Struct):
    c_name = "mha_found_layer"
    _fields_ = [("prefix", c.c_char * 256), ("scheme", c.c_char_p)]


class LoadOptions(Struct):
    c_name = "mha_load_options"
    _fields_ = [("layer", c.c_char_p), ("n_heads", _size), ("kv_heads", _size), ("d_k", _size),
                ("facts", c.POINTER(ModelFacts)), ("orientation", c.c_int), ("has_dtype", c.c_bool),
                ("dtype", c.c_int), ("keep_quantised", c.c_bool), ("row_prefix", c.c_char_p)]


class LoadReport(Struct):
    c_name = "mha_load_report"
    _fields_ = [("layer", FoundLayer), ("orientation", c.c_int), ("tensors", _size), ("ignored", _size)]


class ModelSpec(Struct):
    c_name = "mha_model_spec"
    _fields_ = [("preset", c.c_char_p), ("config", c.c_char_p), ("class_name", c.c_char_p), ("n_heads", _size),
                ("kv_heads", _size), ("dtype", c.c_int), ("architecture", c.c_char_p)]


class ModelLayer(Struct):
    c_name = "mha_model_layer"
    _fields_ = [("prefix", c.c_char * 200), ("config", Config), ("causal", c.c_bool), ("uses", _size)]


class ModelCosts(Struct):
    c_name = "mha_model_costs"
    _fields_ = _each("projections scores_full scores_causal feed_forward heads patches cache_elements latent_elements",
                     c.c_uint64)


class Assumption(Struct):
    c_name = "mha_assumption"
    _fields_ = [("key", c.c_char_p), ("value", _i64)]


class Difference(Struct):
    c_name = "mha_difference"
    _fields_ = ([("elements", _size), ("mismatches", _size)]
                + _each("max_abs max_rel max_ulp rms cosine", _double)
                + [("rank", c.c_int), ("worst_index", _size * MAX_RANK), ("worst_actual", _double),
                   ("worst_expected", _double)]
                + _each("nan_actual nan_expected inf_actual inf_expected", _size)
                + [("tolerance_needed", _double), ("tolerance_factor", _double)])


class CaseNotes(Struct):
    c_name = "mha_case_notes"
    _fields_ = [("name", c.c_char_p), ("note", c.c_char_p), ("past_key", View), ("past_value", View),
                ("source", c.c_char_p)]


class StageVerdict(Struct):
    c_name = "mha_stage_verdict"
    _fields_ = [("name", c.c_char * 40), ("against", c.c_char * 48), ("ok", c.c_bool), ("rtol", _double),
                ("atol", _double), ("derived", c.c_bool), ("stored", c.c_int), ("overflowed", _size),
                ("difference", Difference), ("yours", _double), ("exact", _double), ("worst_head", c.c_int)]


class Verdict(Struct):
    c_name = "mha_verdict"
    _fields_ = [("outcome", c.c_int), ("path", c.c_int), ("reason", c.c_char * 400), ("stage_count", _size),
                ("stages", c.POINTER(StageVerdict)), ("culprit", _size)]


class Variant(Struct):
    c_name = "mha_variant"
    _fields_ = [("name", c.c_char_p), ("help", c.c_char_p)]


class Explanation(Struct):
    c_name = "mha_explanation"
    _fields_ = [("count", _size), ("variants", c.c_char_p * 2), ("number", _double * 2),
                ("found", (c.c_char * 64) * 2), ("heads", _size), ("max_abs", _double), ("relative", _double),
                ("exact", c.c_bool), ("rounding", c.c_int), ("stated", c.c_bool)]


class Part(Struct):
    _fields_ = [("judged", _size), ("rows", _size)]


class Clue(Struct):
    c_name = "mha_clue"
    _fields_ = [("kind", c.c_int), ("axis", c.c_int), ("first", _size), ("last", _size), ("step", _size),
                ("extent", _size), ("shift", c.c_ssize_t), ("factor", _double * 2)]


class Diagnosis(Struct):
    c_name = "mha_diagnosis"
    _fields_ = [("tensor", c.c_char * 48), ("stored", c.c_int), ("match_count", _size),
                ("matches", c.POINTER(Explanation)), ("undecided_count", _size), ("undecided", c.POINTER(c.c_char_p)),
                ("baseline", Explanation), ("closest_count", _size), ("closest", Explanation * 3),
                ("clue_count", _size), ("clues", c.POINTER(Clue)), ("tried", _size),
                ("part", Part)]


class Criterion(Struct):
    c_name = "mha_criterion"
    _fields_ = [("kind", c.c_int), ("rtol", _double), ("atol", _double), ("limit", _double), ("stage", c.c_char_p),
                ("precision", c.c_int)]


class PowerRow(Struct):
    c_name = "mha_power_row"
    _fields_ = [("variant", c.POINTER(Variant)), ("answer", c.c_int), ("max_abs", _double), ("factor", _double),
                ("faint", c.c_bool)]


class Power(Struct):
    c_name = "mha_power"
    _fields_ = ([("stage", c.c_int), ("criterion", Criterion), ("derived_rtol", _double), ("derived_atol", _double),
                 ("largest", _double), ("count", _size), ("rows", c.POINTER(PowerRow))]
                + _each("rejected accepted same faint", _size))


# ---------------------------------------------------------------- functions

# As in the headers, without the names of arguments. Pointers to objects that the library hides are addresses.
PROTOTYPES = """
const char *mha_version(void);
const char *mha_blas_name(void);
int mha_threads_available(void);
const char *mha_isa(void);
char *mha_error_text(char *, size_t, const mha_error *);

const char *mha_dtype_name(mha_dtype);
bool mha_dtype_find(const char *, mha_dtype *);
const char *mha_path_name(mha_path);
const char *mha_stage_name(mha_stage);
const char *mha_weight_name(mha_weight);
const char *mha_finding_name(mha_finding_kind);
mha_status mha_view_copy(const mha_view *, const mha_view *);
mha_status mha_compare(const mha_view *, const mha_view *, double, double, mha_difference *, mha_error *);
mha_status mha_error_bound(const mha_layer *, const mha_call *, double, double *, size_t, mha_error *);
mha_precision mha_precision_of(mha_dtype);
mha_status mha_precision_tolerance(const mha_layer *, const mha_call *, const mha_precision *, double *, size_t,
                                   mha_error *);

mha_status mha_plan_call(const mha_layer *, const mha_call *, mha_plan *, mha_error *);
int mha_plan_stage(const mha_plan *, mha_stage, size_t *);
mha_status mha_plan_move(mha_plan *, const void *, const void *, const void *, void *, mha_error *);
mha_status mha_forward(const mha_plan *, void *, size_t, mha_error *);
mha_status mha_run(const mha_layer *, const mha_call *, mha_error *);
mha_status mha_merge(const mha_part *, size_t, mha_empty_rows, const mha_part *, mha_error *);
mha_status mha_layer_mark_inert(mha_layer *, const mha_semantics *);

mha_status mha_config_resolve(mha_config *, mha_error *);
const char *mha_rope_scaling_name(mha_rope_scaling_kind);
mha_status mha_rope_frequencies(const mha_rope_scaling *, size_t, double, size_t, double *, double *, mha_error *);
mha_status mha_rope_axes_tables(const mha_rope_axes *, const double *, const mha_view *, const mha_view *,
                                const mha_view *, mha_error *);
mha_status mha_layer_create(const mha_config *, mha_params *, const char *, mha_layer **, mha_error *);
void mha_layer_destroy(mha_layer *);
const mha_config *mha_layer_config(const mha_layer *);
mha_params *mha_layer_params(const mha_layer *);
mha_tensor *mha_layer_weight(const mha_layer *, mha_weight);
mha_view mha_layer_head(const mha_layer *, mha_weight, size_t);
void mha_layer_init(mha_layer *, uint64_t);
mha_status mha_layer_set(mha_layer *, mha_weight, const mha_view *, mha_error *);
mha_status mha_layer_pack(mha_layer *, mha_error *);
void mha_layer_repack(mha_layer *);
void mha_layer_unpack(mha_layer *);

mha_status mha_cache_create(const mha_cache_spec *, const mha_allocator *, mha_cache **, mha_error *);
void mha_cache_destroy(mha_cache *);
size_t mha_cache_length(const mha_cache *);
size_t mha_cache_first(const mha_cache *);
size_t mha_cache_bytes(const mha_cache *);
void mha_cache_clear(mha_cache *);
void mha_cache_truncate(mha_cache *, size_t);
mha_view mha_cache_keys(const mha_cache *);
mha_view mha_cache_values(const mha_cache *);
mha_status mha_cache_read(const mha_cache *, bool, const mha_view *, mha_error *);
mha_status mha_cache_load(mha_cache *, const mha_view *, const mha_view *, mha_error *);
mha_status mha_cache_continue(const mha_cache *, size_t, size_t, const mha_allocator *, mha_cache **, mha_error *);
size_t mha_cache_shared(const mha_cache *);
mha_status mha_cache_reorder(mha_cache *, const size_t *, mha_error *);

mha_status mha_params_create(const mha_allocator *, mha_params **);
void mha_params_destroy(mha_params *);
mha_status mha_params_add(mha_params *, const mha_tensor_spec *, mha_tensor **, mha_error *);
mha_status mha_params_alias(mha_params *, const mha_tensor_spec *, mha_tensor *, mha_tensor **, mha_error *);
size_t mha_params_count(const mha_params *);
mha_tensor *mha_params_at(const mha_params *, size_t);
mha_tensor_info mha_tensor_info_of(const mha_tensor *);
mha_view mha_tensor_view(const mha_tensor *);
mha_totals mha_params_totals(const mha_params *, const char *);

mha_status mha_file_open(const char *, mha_file **, mha_error *);
void mha_file_close(mha_file *);
const char *mha_file_path(const mha_file *);
const char *mha_file_format(const mha_file *);
size_t mha_file_count(const mha_file *);
const mha_file_tensor *mha_file_at(const mha_file *, size_t);
size_t mha_file_metadata_count(const mha_file *);
void mha_file_metadata_at(const mha_file *, size_t, const char **, const char **);
mha_status mha_file_read(const mha_file *, const mha_file_tensor *, const mha_view *, mha_error *);
mha_status mha_file_read_part(const mha_file *, const mha_file_tensor *, int, size_t, size_t, const mha_view *,
                              mha_error *);
mha_status mha_writer_create(const char *, mha_writer **, mha_error *);
mha_status mha_writer_add(mha_writer *, const char *, const mha_view *, mha_error *);
mha_status mha_writer_add_metadata(mha_writer *, const char *, const char *, mha_error *);
mha_status mha_writer_commit(mha_writer *, mha_error *);
void mha_writer_destroy(mha_writer *);

mha_status mha_model_read_config(const char *, mha_model_facts *, mha_error *);
mha_status mha_model_read_layer(const char *, const char *, mha_model_facts *, mha_error *);
mha_status mha_model_stretch(mha_model_facts *, size_t, mha_error *);
mha_model_facts mha_model_layer_facts(const mha_model *, size_t);
mha_semantics mha_model_semantics(const mha_model_facts *);
void mha_alibi_slopes(size_t, double *);
mha_status mha_window_segments(size_t, size_t, size_t, size_t, int64_t *, mha_error *);
size_t mha_model_find_layers(const mha_file *, mha_found_layer *, size_t);
mha_status mha_model_load_layer(const mha_file *, const mha_load_options *, mha_params *, mha_layer **,
                                mha_load_report *, mha_error *);
mha_status mha_model_create(const mha_model_spec *, mha_params *, mha_model **, mha_error *);
void mha_model_destroy(mha_model *);
const char *mha_model_title(const mha_model *);
const char *mha_model_class(const mha_model *);
mha_model_facts mha_model_facts_of(const mha_model *);
size_t mha_model_assumptions(const mha_model *, const mha_assumption **);
const char *mha_model_unread_key(const mha_model *, size_t);
size_t mha_model_active_parameters(const mha_model *, size_t *, size_t *);
size_t mha_model_layer_count(const mha_model *);
bool mha_model_layer_at(const mha_model *, size_t, mha_model_layer *);
mha_status mha_model_costs_of(const mha_model *, size_t, size_t, mha_model_costs *, mha_error *);
const char *mha_preset_at(size_t, const char **);
mha_status mha_file_list_params(const mha_file *, mha_params *, mha_finding_function, void *, mha_file_totals *,
                                mha_error *);

mha_status mha_case_open(const char *, const mha_allocator *, mha_case **, mha_error *);
void mha_case_close(mha_case *);
const char *mha_case_name(const mha_case *);
mha_status mha_case_of_call(const mha_layer *, const mha_call *, const mha_keep *, size_t, const mha_case_notes *,
                            mha_case **, mha_error *);
mha_status mha_case_judge(const mha_case *, mha_path, const char *, int, mha_verdict *, mha_error *);
void mha_verdict_clear(mha_verdict *);
mha_status mha_case_save(const char *, const mha_layer *, const mha_call *, const mha_case_notes *, mha_error *);
size_t mha_variant_count(void);
const mha_variant *mha_variant_at(size_t);
char *mha_clue_text(const mha_clue *, char *, size_t);
bool mha_variant_is_paired(size_t);
mha_status mha_case_diagnose(const mha_case *, const char *, int, const mha_progress *, mha_diagnosis *, mha_error *);
void mha_diagnosis_clear(mha_diagnosis *);
mha_status mha_case_power(const mha_case *, const mha_criterion *, int, const mha_progress *, mha_power *, mha_error *);
void mha_power_clear(mha_power *);
mha_status mha_case_variant(const mha_case *, const char *const *, size_t, mha_stage, const mha_view *, mha_error *);
"""

_STRUCTS = {s.c_name: s for s in Struct.__subclasses__()}
_PLAIN: dict[str, Any] = {"size_t": _size, "int": c.c_int, "double": _double, "bool": c.c_bool, "uint64_t": c.c_uint64}
_ENUMS = ("mha_status", "mha_dtype", "mha_path", "mha_stage", "mha_weight", "mha_finding_kind",
          "mha_empty_rows", "mha_rope_scaling_kind")


def _type(text: str) -> Any:
    """The ctypes type of a C type; None for void. Objects that the library hides are addresses."""
    stars = text.count("*")
    word = re.sub(r"\bconst\b|\*", "", text).strip()
    if stars == 0:
        plain = c.c_int if word in _ENUMS else c.c_void_p if word == "mha_finding_function" else _PLAIN.get(word)
        return None if word == "void" else plain or _STRUCTS[word]
    target: Any = (c.c_char_p if word == "char" else c.POINTER(_STRUCTS[word]) if word in _STRUCTS else
                   c.POINTER(_PLAIN.get(word, c.c_int)) if word in _PLAIN or word in _ENUMS else c.c_void_p)
    return c.POINTER(target) if stars == 2 else target


def declare(library: c.CDLL) -> None:
    """Gives every function of the library its types; AttributeError for one that the library lacks."""
    for result, name, arguments in re.findall(r"([\w ]+?[ *]+)(mha_\w+)\((.*?)\);", PROTOTYPES, re.S):
        function = getattr(library, name)
        function.restype = _type(result)
        types = [a for a in arguments.replace("\n", " ").split(",") if a.strip() != "void"]
        function.argtypes = [_type(a) for a in types]
