/* Reading a case file: which tensors and keys it holds, and what they say. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "verify/case/record.h"

/* ---------------------------------------------------------------- the format's words */

static const struct {
    const char *name;
    case_content content;
    int low, high; /* ranks */
} tensor_words[CASE_TENSOR_COUNT] = {
#define TENSOR_ROW(code, name, content, low, high) [code] = {name, content, low, high},
    CASE_TENSOR_LIST(TENSOR_ROW)
#undef TENSOR_ROW
};

static const char *const weights_prefix[CASE_WEIGHTS_COUNT] = {"", "permuted.", "repeated."};

/* Keys that change what is computed or how it is judged, then those that only describe. */
static const char *const known_keys[] = {
    "format_version",
    "kind",
    "layout",
    "num_heads",
    "kv_heads",
    "d_k",
    "d_v",
    "d_model",
    "batch",
    "q_len",
    "kv_len",
    "past_len",
    "scale",
    "softcap",
    "causal",
    "window_left",
    "window_right",
    "attn_mask_kind",
    "key_padding_mask_kind",
    "mask_filter_value",
    "add_bias_kv",
    "add_zero_attn",
    "fully_masked",
    "hidden_values",
    "rope",
    "rope_dim",
    "rope_base",
    "alibi",
    "softmax_plus_one",
    "norm_eps",
    "qk_mode",
    "rtol",
    "atol",
    "rtol64",
    "atol64",
    "tags",

    "name",
    "source",
    "source_version",
    "op",
    "opset",
    "attributes",
    "note",
    "scale_is_default",
    "softmax_precision",
    "source_dtype",
    "need_weights",
    "average_attn_weights",
    "source_rtol",
    "source_atol",
    "tolerance_origin",
    "tolerance_widened",
    "observed_max_abs_err",
    "max_abs_logit",
    "fast_path_max_abs_diff",
    "fast_path_nan",
    "decode_vs_prefill_max_abs_diff",
    "ort_local_window_size",
    "expected64_origin",
    "format", /* what many writers of safetensors add: "pt" */
};

static bool starts_with(const char *text, const char *prefix, const char **rest)
{
    size_t n = strlen(prefix);
    if (strncmp(text, prefix, n) != 0)
        return false;
    *rest = text + n;
    return true;
}

/* The slot of an expected tensor by what follows "expected."; -1 for an unknown name. */
static int expected_slot(const char *name)
{
    mha_stage stage;
    if (mha_stage_find(name, &stage))
        return (int)stage;
    if (strcmp(name, "qk") == 0)
        return CASE_QK;
    return strcmp(name, "prefill_output") == 0 ? CASE_PREFILL_OUTPUT : -1;
}

/* ---------------------------------------------------------------- tensors */

/* Floats of less than 32 bits, which are widened to F32 when they are read. */
static bool is_short(mha_dtype dtype)
{
    return dtype == MHA_F16 || dtype == MHA_BF16 || dtype == MHA_F8_E4M3 || dtype == MHA_F8_E5M2;
}

static mha_status read_tensor(mha_case *c, const mha_file_tensor *t, case_content content, int low, int high,
                              mha_view *view, mha_error *error)
{
    if (t->rank < low || t->rank > high)
        return mha__fail(error, MHA_INVALID, t->name, "tensor %s: expected rank %d to %d, found %d", t->name, low, high,
                        t->rank);
    bool real = t->dtype == MHA_F32 || t->dtype == MHA_F64 || is_short(t->dtype);
    bool truth = t->dtype == MHA_BOOL || t->dtype == MHA_U8;
    bool count = t->dtype == MHA_I64 || t->dtype == MHA_I32;
    bool fits = content == CASE_COUNT ? count : content == CASE_MASK ? real || truth : real;
    if (!fits)
        return mha__fail(error, MHA_INVALID, t->name, "tensor %s: expected %s, found %s", t->name,
                        content == CASE_COUNT  ? "I64"
                        : content == CASE_MASK ? "BOOL or F32"
                                               : "F32",
                        mha_dtype_name(t->dtype));
    mha_dtype stored = content == CASE_DOUBLE || t->dtype == MHA_F64 ? MHA_F64 : real ? MHA_F32 : t->dtype;
    mha_view v = mha__arena_view(&c->pool, stored, t->rank, t->shape);
    if (!v.data)
        return mha__fail(error, MHA_NO_MEMORY, t->name, "tensor %s: no memory for %zu elements", t->name, t->elements);
    mha_status status = mha_file_read(c->file, t, &v, error);
    if (status)
        return status;
    if (stored == MHA_I32) {
        mha_view wide = mha__arena_view(&c->pool, MHA_I64, t->rank, t->shape);
        if (!wide.data)
            return mha__fail(error, MHA_NO_MEMORY, t->name, "tensor %s: no memory", t->name);
        for (size_t i = 0; i < t->elements; i++)
            ((int64_t *)wide.data)[i] = ((const int32_t *)v.data)[i];
        v = wide;
    }
    *view = v;
    return MHA_OK;
}

/* The type in which results were recorded: metadata source_dtype where they were widened to F32 since. */
static mha_dtype recorded_type(const mha_case *c, mha_dtype found)
{
    const char *source = mha_file_metadata(c->file, "source_dtype");
    mha_dtype dtype;
    bool widened = found == MHA_F32 && source && mha_dtype_find(source, &dtype) && is_short(dtype);
    return widened ? dtype : found;
}

/* Puts one tensor of the file where it belongs; *known says whether there is such a place. */
static mha_status place(mha_case *c, const mha_file_tensor *t, bool *known, mha_error *error)
{
    const char *rest;
    *known = true;
    for (int i = 0; i < CASE_TENSOR_COUNT; i++)
        if (strcmp(t->name, tensor_words[i].name) == 0)
            return read_tensor(c, t, tensor_words[i].content, tensor_words[i].low, tensor_words[i].high, &c->tensors[i],
                               error);
    for (int set = 0; set < CASE_WEIGHTS_COUNT; set++)
        for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
            if (starts_with(t->name, weights_prefix[set], &rest) && strcmp(rest, mha__case_weight_name((mha_weight)w)) == 0) {
                c->has_set[set] = true;
                return read_tensor(c, t, CASE_REAL, 1, 2, &c->weights[set][w], error);
            }
    for (int wide = 0; wide < 2; wide++)
        if (starts_with(t->name, wide ? "expected64." : "expected.", &rest) && expected_slot(rest) >= 0) {
            case_expected *e = &c->expected[wide][expected_slot(rest)];
            e->name = t->name;
            e->stored = recorded_type(c, t->dtype);
            return read_tensor(c, t, CASE_REAL, 1, 4, &e->view, error);
        }
    *known = starts_with(t->name, "expected_fast.", &rest) && expected_slot(rest) >= 0;
    return MHA_OK;
}

static bool key_is_known(const char *key)
{
    const char *tensor, *rest;
    for (size_t i = 0; i < sizeof known_keys / sizeof *known_keys; i++)
        if (strcmp(key, known_keys[i]) == 0)
            return true;
    return starts_with(key, "atol.", &tensor) &&
           (starts_with(tensor, "expected.", &rest) || starts_with(tensor, "expected64.", &rest)) &&
           expected_slot(rest) >= 0;
}

static mha_status read_names(mha_case *c, mha_error *error)
{
    for (size_t i = 0; i < mha_file_metadata_count(c->file); i++) {
        const char *key, *value;
        mha_file_metadata_at(c->file, i, &key, &value);
        if (!key_is_known(key) && !*c->skip)
            mha__text_print(c->skip, sizeof c->skip, "unknown metadata key %s", key);
    }
    for (size_t i = 0; i < mha_file_count(c->file); i++) {
        const mha_file_tensor *t = mha_file_at(c->file, i);
        bool known;
        mha_status status = place(c, t, &known, error);
        if (status)
            return status;
        if (!known && !*c->skip)
            mha__text_print(c->skip, sizeof c->skip, "unknown tensor %s", t->name);
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- the whole */

static bool has_tag(const char *tags, const char *tag)
{
    size_t n = strlen(tag);
    for (const char *at = tags; at && (at = strstr(at, tag)); at += n)
        if ((at == tags || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

static mha_status read_qk(mha_case *c, mha_error *error)
{
    if (!c->expected[0][CASE_QK].name && !c->expected[1][CASE_QK].name)
        return MHA_OK;
    static const mha_stage modes[] = {MHA_STAGE_SCORES, MHA_STAGE_CAPPED, MHA_STAGE_MASKED, MHA_STAGE_WEIGHTS};
    static const char *const words[] = {"0", "1", "2", "3", NULL};
    int mode;
    mha_status status = mha__case_word(c, "qk_mode", words, -1, &mode, error);
    if (!status && mode < 0)
        status = mha__fail(error, MHA_INVALID, "qk_mode", "expected.qk needs metadata qk_mode, which is missing");
    if (!status)
        c->qk_stage = modes[mode];
    return status;
}

/* A tolerance, which is finite: with an infinite one every result would do. NaN where the file has none. */
static mha_status read_tolerance(const mha_case *c, const char *key, double *value, mha_error *error)
{
    mha_status status = mha__case_number(c, key, NAN, value, error);
    if (!status && !isnan(*value) && (*value < 0 || isinf(*value)))
        status = mha__fail(error, MHA_INVALID, key, "metadata %s: expected %s, found %s", key,
                          isinf(*value) ? "a finite number" : "0 or more", mha_file_metadata(c->file, key));
    return status;
}

static mha_status read_tolerances(mha_case *c, mha_error *error)
{
    const struct {
        const char *key;
        double *value;
    } keys[] = {{"rtol", &c->rtol}, {"atol", &c->atol}, {"rtol64", &c->rtol64}, {"atol64", &c->atol64}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        mha_status status = read_tolerance(c, keys[i].key, keys[i].value, error);
        if (status)
            return status;
    }
    for (size_t i = 0; i < mha_file_metadata_count(c->file); i++) {
        const char *key, *unused;
        double value;
        mha_file_metadata_at(c->file, i, &key, &unused);
        mha_status status = starts_with(key, "atol.", &unused) ? read_tolerance(c, key, &value, error) : MHA_OK;
        if (status)
            return status;
    }
    for (int slot = 0; slot < CASE_EXPECTED_COUNT; slot++) {
        const char *stage = slot == CASE_QK               ? "qk"
                            : slot == CASE_PREFILL_OUTPUT ? "prefill_output"
                                                          : mha_stage_name((mha_stage)slot);
        char key[64];
        snprintf(key, sizeof key, "atol.expected.%s", stage);
        TRY(read_tolerance(c, key, &c->expected[0][slot].atol, error));
        snprintf(key, sizeof key, "atol.expected64.%s", stage);
        TRY(read_tolerance(c, key, &c->expected[1][slot].atol, error));
    }
    return MHA_OK;
}

mha_status mha__case_read(mha_case *c, mha_error *error)
{
    static const char *const kinds[] = {"mha", "sdpa", "rope", NULL};
    static const char *const layouts[] = {
        [MHA_BTE] = "BTE", [MHA_TBE] = "TBE", [MHA_TE] = "TE", [MHA_BHTD] = "BHTD", [MHA_BTHD] = "BTHD", NULL};
    const char *path = mha_file_path(c->file), *slash = strrchr(path, '/');
    const char *name = mha_file_metadata(c->file, "name");
    mha__text_print(c->name, sizeof c->name, "%s", name ? name : slash ? slash + 1 : path);

    int kind, layout;
    if (!mha_file_metadata(c->file, "kind"))
        return mha__fail(error, MHA_INVALID, "kind", "this is no case file: metadata kind (mha, sdpa, rope) is missing");
    mha_status status = mha__case_word(c, "kind", kinds, -1, &kind, error);
    if (!status)
        status = mha__case_word(c, "layout", layouts, MHA_BTE, &layout, error);
    if (status)
        return status;
    c->kind = (case_kind)kind;
    c->layout = (mha_layout)layout;
    const char *version = mha_file_metadata(c->file, "format_version");
    if (version && strcmp(version, "1") != 0)
        mha__text_print(c->skip, sizeof c->skip, "format_version %s", version);
    c->overflow = has_tag(mha_file_metadata(c->file, "tags"), "overflow");

    status = read_names(c, error);
    if (status || *c->skip)
        return status;
    status = read_tolerances(c, error);
    if (!status)
        status = read_qk(c, error);
    if (!status)
        status = mha__case_read_sizes(c, error);
    return status;
}

mha_status mha_case_open(const char *path, const mha_allocator *allocator, mha_case **result, mha_error *error)
{
    mha_allocator a = mha__allocator_or_default(allocator);
    mha_case *c = mha__allocate(&a, sizeof *c);
    if (!c)
        return mha__fail(error, MHA_NO_MEMORY, path, "no memory for a case");
    c->pool.allocator = a;
    mha_status status = mha_file_open(path, &c->file, error);
    if (!status)
        status = mha__case_read(c, error);
    if (!status && !*c->skip)
        status = mha__case_build(c, error);
    if (status) {
        mha_case_close(c);
        return status;
    }
    *result = c;
    return MHA_OK;
}

void mha_case_close(mha_case *c)
{
    if (!c)
        return;
    for (int set = 0; set < CASE_WEIGHTS_COUNT; set++) {
        mha_layer_destroy(c->layers[set]);
        mha_params_destroy(c->params[set]);
    }
    mha__arena_free(&c->pool);
    mha_file_close(c->file);
    mha_allocator a = c->pool.allocator;
    mha__release(&a, c, sizeof *c);
}
