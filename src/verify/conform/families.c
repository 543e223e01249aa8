/* The table of the suite: families of test cases, each a regime, settings, and the shapes of its tensors. */
#include "verify/conform/conform.h"

#define SMOKE MHA_CONFORM_SMOKE
#define FULL MHA_CONFORM_FULL
#define LARGE MHA_CONFORM_LARGE
/* Batch rows, query heads, key/value heads, queries, new keys, widths of keys and values. */
#define SHAPE(level, B, h, h_kv, T_q, T_k, d_k, d_v) {level, B, h, h_kv, T_q, T_k, d_k, d_v}
/* At least 64 numbers in the output: of fewer no error is typical, and the tolerance is the bound. */
#define SELF(level, T) SHAPE(level, 1, 4, 4, T, T, 16, 16)
#define KEYS(level, T_q, T_k) SHAPE(level, 1, 4, 4, T_q, T_k, 16, 16)

static const mha__conform_shape one[] = {SHAPE(SMOKE, 2, 4, 4, 9, 9, 16, 16)};
static const mha__conform_shape probe[] = {SHAPE(SMOKE, 2, 2, 2, 7, 7, 16, 16)};
static const mha__conform_shape probe_cross[] = {SHAPE(SMOKE, 2, 2, 2, 5, 9, 16, 16)};
static const mha__conform_shape small[] = {SHAPE(SMOKE, 2, 4, 4, 9, 9, 16, 16), SHAPE(FULL, 3, 3, 3, 33, 33, 16, 16)};
static const mha__conform_shape groups[] = {
    SHAPE(SMOKE, 2, 4, 2, 9, 9, 16, 16),   SHAPE(FULL, 2, 6, 2, 9, 9, 16, 16),  SHAPE(FULL, 1, 7, 1, 9, 9, 16, 16),
    SHAPE(FULL, 1, 12, 4, 33, 33, 16, 16), SHAPE(FULL, 3, 10, 5, 9, 9, 16, 16),
};
/* More groups than heads in a group: head / h_kv is not head / group. */
static const mha__conform_shape more_groups[] = {SHAPE(SMOKE, 1, 8, 4, 9, 9, 16, 16)};
static const mha__conform_shape group[] = {SHAPE(SMOKE, 2, 4, 2, 9, 9, 16, 16),
                                           SHAPE(FULL, 3, 6, 2, 70, 70, 16, 16)};
/* Around every tile from 1 to 513; 97 is where split decoding once began to differ. */
static const mha__conform_shape lengths[] = {
    SELF(SMOKE, 1),  SELF(FULL, 2),   SELF(FULL, 3),   SELF(FULL, 7),   SELF(FULL, 8),   SELF(FULL, 15),
    SELF(FULL, 16),  SELF(SMOKE, 17), SELF(FULL, 31),  SELF(FULL, 32),  SELF(SMOKE, 33), SELF(FULL, 63),
    SELF(FULL, 64),  SELF(SMOKE, 65), SELF(FULL, 97),  SELF(FULL, 127), SELF(FULL, 128), SELF(FULL, 129),
    SELF(FULL, 191), SELF(FULL, 193), SELF(FULL, 255), SELF(FULL, 257), SELF(FULL, 320), SELF(FULL, 511),
    SELF(FULL, 513),
};
static const mha__conform_shape tails[] = {
    SELF(SMOKE, 17), SELF(FULL, 33),  SELF(SMOKE, 65), SELF(FULL, 97),
    SELF(FULL, 129), SELF(FULL, 193), SELF(FULL, 257), SELF(FULL, 513),
};
static const mha__conform_shape tail[] = {SELF(SMOKE, 33), SELF(FULL, 70), SELF(FULL, 129), SELF(FULL, 300)};
/* Of gradients, which take ten times as long. */
static const mha__conform_shape back_tails[] = {SELF(SMOKE, 17), SELF(FULL, 33),  SELF(SMOKE, 65),
                                                SELF(FULL, 97),  SELF(FULL, 129), SELF(FULL, 192)};
static const mha__conform_shape back_tail[] = {SELF(SMOKE, 33), SELF(FULL, 70), SELF(FULL, 129)};
/* Of more keys the gradients of float16 may leave its range, as far as can be told, and are not checked. */
static const mha__conform_shape back_lowest[] = {SELF(SMOKE, 33)};
static const mha__conform_shape back_widths[] = {
    SHAPE(SMOKE, 2, 2, 2, 17, 17, 3, 3),    SHAPE(FULL, 1, 2, 2, 33, 33, 40, 40), SHAPE(FULL, 1, 2, 2, 33, 33, 64, 64),
    SHAPE(FULL, 1, 2, 2, 33, 33, 100, 100), SHAPE(FULL, 1, 1, 1, 70, 70, 128, 128),
};
static const mha__conform_shape decoding[] = {
    KEYS(SMOKE, 1, 1),  KEYS(SMOKE, 1, 33), KEYS(FULL, 1, 64),  KEYS(FULL, 1, 97),  KEYS(FULL, 1, 128),
    KEYS(FULL, 1, 257), KEYS(FULL, 1, 513), KEYS(FULL, 1, 1000), KEYS(FULL, 1, 1025), KEYS(FULL, 1, 4097),
};
static const mha__conform_shape unequal[] = {
    KEYS(SMOKE, 5, 9), KEYS(FULL, 3, 64), KEYS(FULL, 17, 33), KEYS(FULL, 65, 130), KEYS(FULL, 2, 257),
};
static const mha__conform_shape more_queries[] = {KEYS(SMOKE, 9, 5), KEYS(FULL, 33, 17), KEYS(FULL, 130, 65)};
static const mha__conform_shape widths[] = {
    SHAPE(FULL, 1, 2, 2, 33, 33, 1, 1),     SHAPE(SMOKE, 2, 2, 2, 17, 17, 3, 3),     SHAPE(FULL, 1, 2, 2, 9, 9, 8, 8),
    SHAPE(FULL, 1, 2, 2, 9, 9, 17, 17),     SHAPE(FULL, 1, 2, 2, 9, 9, 24, 24),    SHAPE(FULL, 1, 2, 2, 33, 33, 40, 40),
    SHAPE(SMOKE, 1, 2, 2, 33, 33, 64, 64),  SHAPE(FULL, 1, 2, 2, 33, 33, 72, 72),  SHAPE(FULL, 1, 2, 2, 33, 33, 80, 80),
    SHAPE(FULL, 1, 2, 2, 33, 33, 96, 96), SHAPE(FULL, 1, 2, 2, 33, 33, 100, 100),
    SHAPE(FULL, 1, 2, 2, 70, 70, 128, 128),
    SHAPE(FULL, 1, 2, 2, 70, 70, 192, 192), SHAPE(FULL, 1, 1, 1, 70, 70, 256, 256),
    SHAPE(FULL, 1, 1, 1, 33, 33, 512, 512),
};
static const mha__conform_shape value_widths[] = {
    SHAPE(SMOKE, 2, 2, 2, 9, 9, 16, 8),    SHAPE(FULL, 2, 2, 2, 9, 9, 8, 24),      SHAPE(FULL, 1, 2, 2, 33, 33, 16, 5),
    SHAPE(FULL, 1, 2, 2, 70, 70, 192, 128), SHAPE(FULL, 1, 2, 2, 33, 33, 40, 96),
};
static const mha__conform_shape value_width[] = {SHAPE(SMOKE, 2, 4, 4, 9, 9, 16, 8)};
static const mha__conform_shape counts[] = {
    SHAPE(SMOKE, 3, 5, 5, 9, 9, 16, 16), SHAPE(FULL, 7, 3, 3, 9, 9, 16, 16),   SHAPE(FULL, 10, 1, 1, 9, 9, 16, 16),
    SHAPE(FULL, 11, 2, 2, 9, 9, 16, 16), SHAPE(FULL, 1, 12, 12, 9, 9, 16, 16), SHAPE(FULL, 1, 25, 25, 9, 9, 16, 16),
    SHAPE(FULL, 33, 1, 1, 9, 9, 16, 16), SHAPE(FULL, 1, 1, 1, 9, 9, 16, 16),
};
static const mha__conform_shape ragged[] = {SHAPE(SMOKE, 1, 2, 2, 24, 24, 16, 16),
                                            SHAPE(FULL, 1, 4, 2, 130, 130, 16, 16)};
static const mha__conform_shape steps[] = {SHAPE(SMOKE, 2, 4, 2, 3, 3, 16, 16), SHAPE(FULL, 2, 6, 2, 1, 1, 16, 16),
                                           SHAPE(FULL, 1, 2, 2, 33, 33, 16, 16)};
static const mha__conform_shape step[] = {SHAPE(SMOKE, 2, 4, 4, 4, 4, 16, 16)};
static const mha__conform_shape paged[] = {SHAPE(SMOKE, 2, 4, 2, 5, 11, 16, 16), SHAPE(FULL, 3, 4, 4, 2, 70, 16, 16)};
static const mha__conform_shape square[] = {SHAPE(FULL, 2, 4, 4, 12, 12, 16, 16)};
static const mha__conform_shape far[] = {
    SHAPE(FULL, 1, 4, 1, 2, 16385, 8, 8),  SHAPE(LARGE, 1, 4, 1, 2, 32767, 8, 8), SHAPE(LARGE, 1, 4, 1, 2, 32769, 8, 8),
    SHAPE(LARGE, 1, 4, 1, 2, 65535, 8, 8), SHAPE(LARGE, 1, 4, 1, 2, 65537, 8, 8),
};
static const mha__conform_shape long_self[] = {SHAPE(LARGE, 1, 2, 1, 2049, 2049, 64, 64)};

/* ---------------------------------------------------------------- size classes
 * Each feature below meets each class. A 0 goes round from family to family and from shape to shape: of keys it stands
 * for a number beside a tile, of widths for a usual one (suite.c), so that classes, tiles and widths meet in pairs. */
#define ROUND(level, B, h, h_kv, T, d) SHAPE(level, B, h, h_kv, T, T, d, d)
static const mha__conform_shape sizes[] = {
    ROUND(SMOKE, 1, 2, 2, 17, 64), ROUND(FULL, 1, 2, 2, 0, 80),  ROUND(FULL, 1, 2, 2, 0, 96),
    ROUND(FULL, 1, 2, 2, 0, 128),  ROUND(FULL, 1, 2, 2, 0, 256), ROUND(FULL, 5, 13, 13, 0, 16),
    ROUND(FULL, 1, 8, 4, 0, 0),    ROUND(FULL, 2, 32, 8, 33, 0),
};
static const mha__conform_shape group_sizes[] = {
    ROUND(FULL, 1, 8, 4, 0, 64),  ROUND(FULL, 2, 8, 4, 0, 80),  ROUND(FULL, 1, 8, 4, 0, 96),
    ROUND(FULL, 1, 8, 4, 0, 128), ROUND(FULL, 1, 8, 4, 0, 256), ROUND(FULL, 1, 32, 8, 17, 64),
    ROUND(FULL, 5, 32, 8, 17, 128),
};
static const mha__conform_shape packed_sizes[] = {
    ROUND(SMOKE, 1, 2, 2, 17, 64), ROUND(FULL, 1, 2, 2, 0, 80),  ROUND(FULL, 1, 2, 2, 0, 96),
    ROUND(FULL, 1, 2, 2, 0, 128),  ROUND(FULL, 1, 2, 2, 0, 256), ROUND(FULL, 1, 8, 4, 0, 0),
    ROUND(FULL, 1, 32, 8, 33, 0),
};
static const mha__conform_shape one_query[] = {
    SHAPE(SMOKE, 2, 4, 4, 1, 33, 64, 64), SHAPE(FULL, 5, 4, 4, 1, 0, 0, 0), SHAPE(FULL, 1, 13, 13, 1, 0, 0, 0),
    SHAPE(FULL, 2, 8, 4, 1, 0, 0, 0),     SHAPE(FULL, 1, 32, 8, 1, 0, 0, 0),
};
/* Of one batch row: offsets of batch rows that are the same have bugs that do not show. */
static const mha__conform_shape last_query[] = {
    SHAPE(SMOKE, 1, 4, 4, 1, 33, 64, 64), SHAPE(FULL, 1, 13, 13, 1, 0, 0, 0), SHAPE(FULL, 1, 8, 4, 1, 0, 0, 0),
    SHAPE(FULL, 1, 32, 8, 1, 0, 0, 0),
};
static const mha__conform_shape one_step[] = {
    ROUND(FULL, 5, 4, 4, 1, 0), ROUND(FULL, 2, 4, 4, 3, 0), ROUND(FULL, 2, 8, 4, 2, 0), ROUND(FULL, 1, 32, 8, 1, 0),
};
static const mha__conform_shape cross_sizes[] = {
    SHAPE(FULL, 1, 2, 2, 5, 0, 64, 64),   SHAPE(FULL, 5, 2, 2, 7, 0, 80, 80),   SHAPE(FULL, 1, 2, 2, 3, 0, 96, 96),
    SHAPE(FULL, 1, 2, 2, 9, 0, 128, 128), SHAPE(FULL, 1, 2, 2, 5, 0, 256, 256),
};
static const mha__conform_shape step_widths[] = {
    ROUND(FULL, 1, 2, 2, 1, 64),  ROUND(FULL, 1, 2, 2, 3, 80),  ROUND(FULL, 5, 2, 2, 1, 96),
    ROUND(FULL, 1, 2, 2, 3, 128), ROUND(FULL, 1, 2, 2, 1, 256),
};
static const mha__conform_shape page_sizes[] = {
    SHAPE(FULL, 6, 2, 2, 1, 0, 0, 0), SHAPE(FULL, 2, 4, 4, 3, 0, 0, 0), SHAPE(FULL, 2, 8, 4, 1, 0, 0, 0),
    SHAPE(FULL, 2, 32, 8, 1, 0, 0, 0),
};
static const mha__conform_shape value_sizes[] = {
    SHAPE(FULL, 1, 2, 2, 0, 0, 64, 128), SHAPE(FULL, 1, 2, 2, 0, 0, 80, 64),   SHAPE(FULL, 1, 2, 2, 0, 0, 96, 64),
    SHAPE(FULL, 1, 2, 2, 0, 0, 128, 64), SHAPE(FULL, 1, 2, 2, 0, 0, 256, 128), SHAPE(FULL, 5, 13, 13, 0, 0, 24, 16),
    SHAPE(FULL, 1, 8, 4, 0, 0, 192, 128), SHAPE(FULL, 2, 32, 8, 33, 33, 192, 128), SHAPE(FULL, 2, 4, 4, 1, 0, 192, 128),
};
static const mha__conform_shape back_sizes[] = {
    ROUND(FULL, 1, 2, 2, 17, 64), ROUND(FULL, 1, 2, 2, 33, 80),  ROUND(FULL, 1, 2, 2, 31, 96),
    ROUND(FULL, 1, 2, 2, 65, 128), ROUND(FULL, 1, 2, 2, 17, 256), ROUND(FULL, 5, 13, 13, 9, 16),
    ROUND(FULL, 1, 8, 4, 17, 0),  ROUND(FULL, 1, 32, 8, 9, 0),
};
static const mha__conform_shape back_query[] = {
    SHAPE(FULL, 2, 4, 4, 1, 0, 0, 0), SHAPE(FULL, 1, 8, 4, 1, 0, 0, 0), SHAPE(FULL, 1, 32, 8, 1, 33, 0, 0),
};
static const mha__conform_shape many_keys[] = {SELF(FULL, 641)};

#define FAMILY(name, regime, settings, shapes) {name, regime, settings, sizeof shapes / sizeof *shapes, shapes}

const mha__conform_family mha__conform_families[] = {
    /* one test case for each convention, which differs only by that */
    FAMILY("probe-alignment", "normal", "causal", probe_cross),
    FAMILY("probe-empty", "normal", "lengths=empty", probe),
    FAMILY("probe-window", "normal", "causal window_left=3", probe),
    FAMILY("probe-mask", "normal", "keeps", probe),
    FAMILY("probe-hidden", "hidden-nan", "lengths", probe),
    FAMILY("probe-softcap", "normal", "softcap=2 mask=finite", probe),
    FAMILY("probe-lse", "normal", "lse sinks", probe),
    /* sizes */
    FAMILY("plain", "normal", "", lengths),
    FAMILY("causal", "normal", "causal", lengths),
    FAMILY("decode", "normal", "", decoding),
    FAMILY("cross", "normal", "", unequal),
    FAMILY("cross-short", "normal", "", more_queries),
    FAMILY("causal-cross", "normal", "causal", unequal),
    FAMILY("causal-bottom-right", "normal", "causal bottom_right", unequal),
    FAMILY("causal-bottom-right-empty", "normal", "causal bottom_right", more_queries),
    FAMILY("width", "normal", "causal", widths),
    FAMILY("value-width", "normal", "causal", value_widths),
    FAMILY("count", "normal", "causal", counts),
    FAMILY("far-dominant", "dominant-key", "", far),
    FAMILY("far-equal", "equal-scores", "", far),
    FAMILY("long", "normal", "causal", long_self),
    FAMILY("strides", "normal", "causal strides", small),
    /* regimes, at lengths around tiles */
    FAMILY("deep", "deep-negative", "", tails),
    FAMILY("deep-causal", "deep-negative", "causal", tails),
    FAMILY("deep-lengths", "deep-negative", "lengths", group),
    FAMILY("lowest", "below-lowest", "", tail),
    FAMILY("lowest-causal", "below-lowest", "causal", tail),
    FAMILY("lowest-mask", "below-lowest", "keeps", small),
    FAMILY("lowest-lengths", "below-lowest", "lengths", group),
    FAMILY("large", "large-logits", "", tail),
    FAMILY("large-causal", "large-logits", "causal", tail),
    FAMILY("cancelling", "cancelling-values", "causal", tail),
    FAMILY("dominant", "dominant-key", "", tails),
    FAMILY("equal", "equal-scores", "", tails),
    FAMILY("equal-causal", "equal-scores", "causal", tails),
    FAMILY("equal-lengths", "equal-scores", "lengths", group),
    FAMILY("rising", "rising", "", tails),
    FAMILY("rising-causal", "rising", "causal", tail),
    FAMILY("falling", "falling", "causal", tail),
    FAMILY("subnormal", "subnormal", "causal", tail),
    FAMILY("values", "large-values", "causal", tail),
    FAMILY("unit", "unit-values", "", tail),
    FAMILY("unit-causal", "unit-values", "causal", tail),
    FAMILY("hidden-huge", "hidden-huge", "lengths", group),
    FAMILY("hidden-huge-padding", "hidden-huge", "padding", group),
    FAMILY("hidden-nan", "hidden-nan", "lengths", group),
    FAMILY("hidden-nan-padding", "hidden-nan", "padding", group),
    /* settings */
    FAMILY("gqa", "normal", "", groups),
    FAMILY("gqa-causal", "normal", "causal", groups),
    FAMILY("gqa-unit", "unit-values", "causal", group),
    FAMILY("scale", "normal", "scale=0.5", small),
    FAMILY("scale-odd", "normal", "scale=0.40625 causal", group),
    FAMILY("scale-negative", "normal", "scale=-0.25", one),
    FAMILY("scale-zero", "normal", "scale=0", one),
    FAMILY("softcap", "normal", "softcap=2", small),
    FAMILY("softcap-large", "large-logits", "softcap=30 causal", tail),
    FAMILY("softcap-mask", "normal", "softcap=2 mask", small),
    FAMILY("window", "normal", "causal window_left=3", tail),
    FAMILY("window-wide", "normal", "causal window_left=31", tail),
    FAMILY("window-narrow", "normal", "causal window_left=1", small),
    FAMILY("window-both", "normal", "window_left=2 window_right=1", small),
    FAMILY("window-right", "normal", "window_right=2", small),
    FAMILY("window-cross", "normal", "causal window_left=3", unequal),
    FAMILY("window-deep", "deep-negative", "causal window_left=5", tail),
    FAMILY("window-gqa", "equal-scores", "causal window_left=5", group),
    FAMILY("window-keep", "normal", "causal window_left=3 window_keep=2", small),
    FAMILY("window-softcap", "normal", "causal window_left=4 softcap=5", group),
    FAMILY("window-sinks", "normal", "causal window_left=4 sinks", group),
    FAMILY("mask", "normal", "mask", small),
    FAMILY("mask-batch", "normal", "mask=batch", small),
    FAMILY("mask-finite", "normal", "mask=finite", small),
    FAMILY("mask-causal", "normal", "mask=batch causal", small),
    FAMILY("mask-gqa", "normal", "mask=batch scale=0.5", group),
    FAMILY("mask-cross", "normal", "mask", unequal),
    FAMILY("mask-deep", "deep-negative", "mask", small),
    FAMILY("bool-mask", "normal", "keeps", small),
    FAMILY("bool-mask-heads", "normal", "keeps=heads", group),
    FAMILY("bool-mask-causal", "normal", "keeps causal", small),
    FAMILY("bool-mask-deep", "deep-negative", "keeps", small),
    FAMILY("bool-mask-empty", "normal", "keeps=empty", group),
    FAMILY("padding", "normal", "padding", small),
    FAMILY("padding-causal", "normal", "padding causal", group),
    FAMILY("padding-fill", "normal", "padding padding_fill=-3", small),
    FAMILY("lengths", "normal", "lengths", group),
    FAMILY("lengths-causal", "normal", "lengths causal", group),
    FAMILY("lengths-decode", "normal", "lengths", unequal),
    FAMILY("lengths-empty", "normal", "lengths=empty", group),
    FAMILY("varlen", "normal", "sequences=4", ragged),
    FAMILY("varlen-causal", "normal", "sequences=4 causal", ragged),
    FAMILY("varlen-deep", "deep-negative", "sequences=4 causal", ragged),
    FAMILY("varlen-window", "normal", "sequences=3 causal window_left=3", ragged),
    FAMILY("segments", "normal", "segments", small),
    FAMILY("segments-causal", "normal", "segments causal", group),
    FAMILY("query-padding", "normal", "query_padding=empty causal", small),
    FAMILY("lists", "normal", "lists", group),
    FAMILY("blocks", "normal", "blocks", group),
    FAMILY("blocks-square", "normal", "blocks=square", square),
    FAMILY("prefix", "normal", "causal prefix=3", small),
    FAMILY("chunk", "normal", "causal chunk=4", small),
    FAMILY("offset", "normal", "causal offset=2", unequal),
    FAMILY("part", "normal", "causal offset=6 key_offset=3 alibi", unequal),
    FAMILY("sinks", "normal", "sinks", group),
    FAMILY("sinks-causal", "normal", "sinks causal", group),
    FAMILY("sinks-lengths", "normal", "sinks lengths", group),
    FAMILY("plus-one", "normal", "softmax_plus_one", small),
    FAMILY("zero-row", "normal", "zero_row", small),
    FAMILY("extra-row", "normal", "extra_row", small),
    FAMILY("sigmoid", "normal", "normaliser=sigmoid sigmoid_bias=-1 causal", small),
    FAMILY("alibi", "normal", "alibi causal", small),
    FAMILY("alibi-gqa", "normal", "alibi causal", groups),
    FAMILY("alibi-cache", "normal", "alibi causal past=3", step),
    FAMILY("alibi-cache-sinks", "normal", "alibi causal past=3 sinks", step),
    FAMILY("alibi-both", "normal", "alibi", small),
    FAMILY("bias", "normal", "bias", small),
    FAMILY("bias-grid", "normal", "bias=grid", square),
    FAMILY("bias-cache", "normal", "bias past=3", step),
    FAMILY("relative", "normal", "relative", small),
    FAMILY("relative-distance", "normal", "relative=distance", square),
    FAMILY("relative-distance-cache", "normal", "relative=distance past=3 relative_k_scale=0.5", step),
    FAMILY("relative-grid", "normal", "relative=grid", square),
    FAMILY("relative-cache", "normal", "relative past=3", step),
    FAMILY("rope", "normal", "rope=half_split causal", small),
    FAMILY("rope-pairs", "normal", "rope=interleaved causal", small),
    FAMILY("rope-part", "normal", "rope=half_split rope_dim=8 rope_base=1000 causal", group),
    FAMILY("rope-last", "normal", "rope=interleaved rope_dim=8 rope_last=1 causal", small),
    FAMILY("rope-factor", "normal", "rope=half_split rope_attention_factor=1.25 causal", small),
    FAMILY("rope-frequencies", "normal", "rope=interleaved frequencies rope_attention_factor=1.25 causal", small),
    FAMILY("rope-cache", "normal", "rope=half_split causal past=5", steps),
    FAMILY("qk-norm", "normal", "norms norm_eps=1e-5", small),
    FAMILY("qk-norm-rope", "normal", "norms rope=half_split causal norm_plus_one", small),
    FAMILY("qk-norm-heads", "normal", "norms=heads norm_kind=layer norm_plus_one", small),
    FAMILY("qk-norm-after-rope", "normal", "norms norm_kind=l2 norm_after_rope rope=interleaved causal", small),
    FAMILY("query-scale", "normal", "query_scale_growth=2 query_scale_every=2 causal", small),
    FAMILY("log-n", "normal", "log_n_scale=4 causal", small),
    FAMILY("clip", "normal", "clip_qkv=0.5", small),
    FAMILY("clip-rope", "normal", "clip_qkv=0.5 norms rope=half_split causal", small),
    FAMILY("cache", "normal", "past=5 causal", steps),
    FAMILY("cache-gqa", "normal", "past=29 causal", group),
    FAMILY("cache-deep", "deep-negative", "past=29 causal", steps),
    FAMILY("cache-window", "normal", "past=5 causal window_left=3", steps),
    FAMILY("cache-lengths", "normal", "past=5 lengths", steps),
    FAMILY("pages", "normal", "causal pages=4", paged),
    FAMILY("pages-deep", "deep-negative", "causal pages=16", paged),
    /* log-sum-exp */
    FAMILY("lse", "normal", "lse", tail),
    FAMILY("lse-causal", "normal", "lse causal", group),
    FAMILY("lse-deep", "deep-negative", "lse causal", tail),
    FAMILY("lse-lowest", "below-lowest", "lse", small),
    FAMILY("lse-sinks", "normal", "lse sinks causal", group),
    FAMILY("lse-softcap", "normal", "lse softcap=3 scale=0.5", small),
    /* gradients */
    FAMILY("backward", "normal", "backward", back_tails),
    FAMILY("backward-causal", "normal", "backward causal", back_tails),
    FAMILY("backward-cross", "normal", "backward", unequal),
    FAMILY("backward-cross-short", "normal", "backward", more_queries),
    FAMILY("backward-causal-cross", "normal", "backward causal", unequal),
    FAMILY("backward-bottom-right", "normal", "backward causal bottom_right", unequal),
    FAMILY("backward-bottom-right-empty", "normal", "backward causal bottom_right", more_queries),
    FAMILY("backward-width", "normal", "backward causal", back_widths),
    FAMILY("backward-value-width", "normal", "backward causal", value_widths),
    FAMILY("backward-count", "normal", "backward causal", counts),
    FAMILY("backward-strides", "normal", "backward causal strides", small),
    FAMILY("backward-deep", "deep-negative", "backward", back_tails),
    FAMILY("backward-deep-causal", "deep-negative", "backward causal", back_tails),
    FAMILY("backward-lowest", "below-lowest", "backward", back_lowest),
    FAMILY("backward-large", "large-logits", "backward", back_tail),
    FAMILY("backward-large-causal", "large-logits", "backward causal", back_tail),
    FAMILY("backward-cancelling", "cancelling-values", "backward causal", back_tail),
    FAMILY("backward-dominant", "dominant-key", "backward", back_tail),
    FAMILY("backward-equal", "equal-scores", "backward", back_tail),
    FAMILY("backward-equal-causal", "equal-scores", "backward causal", back_tail),
    FAMILY("backward-rising", "rising", "backward causal", back_tail),
    FAMILY("backward-hidden-huge", "hidden-huge", "backward lengths", group),
    FAMILY("backward-hidden-nan", "hidden-nan", "backward lengths", group),
    FAMILY("backward-gqa", "normal", "backward", groups),
    FAMILY("backward-gqa-causal", "normal", "backward causal", groups),
    FAMILY("backward-scale", "normal", "backward scale=0.40625 causal", group),
    FAMILY("backward-softcap", "normal", "backward softcap=2", small),
    FAMILY("backward-softcap-large", "large-logits", "backward softcap=30 causal", back_tail),
    FAMILY("backward-window", "normal", "backward causal window_left=3", back_tail),
    FAMILY("backward-window-both", "normal", "backward window_left=2 window_right=1", small),
    FAMILY("backward-mask", "normal", "backward mask=batch", small),
    FAMILY("backward-mask-finite", "normal", "backward mask=finite", group),
    FAMILY("backward-bool-mask", "normal", "backward keeps", small),
    FAMILY("backward-bool-mask-heads", "normal", "backward keeps=heads", group),
    FAMILY("backward-bool-mask-empty", "normal", "backward keeps=empty", group),
    FAMILY("backward-padding", "normal", "backward padding causal", group),
    FAMILY("backward-lengths", "normal", "backward lengths causal", group),
    FAMILY("backward-lengths-empty", "normal", "backward lengths=empty", group),
    FAMILY("backward-varlen", "normal", "backward sequences=4 causal", ragged),
    FAMILY("backward-segments", "normal", "backward segments causal", group),
    FAMILY("backward-blocks", "normal", "backward blocks", group),
    FAMILY("backward-sinks", "normal", "backward sinks causal", group),
    FAMILY("backward-alibi", "normal", "backward alibi causal", small),
    FAMILY("backward-bias", "normal", "backward bias", small),
    FAMILY("backward-rope", "normal", "backward rope=half_split causal", small),
    FAMILY("backward-rope-pairs", "normal", "backward rope=interleaved rope_dim=8 causal", group),
    FAMILY("backward-qk-norm", "normal", "backward norms rope=half_split causal norm_eps=1e-5", small),
    FAMILY("gqa-groups", "normal", "", more_groups),
    /* words of a kernel on their own, and the most usual ones with causal */
    FAMILY("value-width-full", "normal", "", value_width),
    FAMILY("window-keep-full", "normal", "window_left=3 window_keep=2", one),
    FAMILY("chunk-full", "normal", "chunk=4", one),
    FAMILY("offset-square", "normal", "causal offset=2", one),
    FAMILY("part-square", "normal", "causal offset=6 key_offset=3", one),
    FAMILY("query-padding-full", "normal", "query_padding=empty", one),
    FAMILY("lists-full", "normal", "lists", one),
    FAMILY("blocks-full", "normal", "blocks", one),
    FAMILY("sinks-full", "normal", "sinks", one),
    FAMILY("sinks-heads", "normal", "sinks causal", one),
    FAMILY("sinks-window", "normal", "causal window_left=4 sinks", one),
    FAMILY("sigmoid-full", "normal", "normaliser=sigmoid sigmoid_bias=-1", one),
    FAMILY("rope-full", "normal", "rope=half_split", one),
    FAMILY("query-scale-full", "normal", "query_scale_growth=2 query_scale_every=2", one),
    FAMILY("cache-full", "normal", "past=3", step),
    FAMILY("cache-heads", "normal", "past=3 causal", step),
    FAMILY("pages-heads", "normal", "pages=4 causal", one),
    FAMILY("strides-full", "normal", "strides", one),
    /* Features in each size class: alone; with one query; behind P rows of a cache; in pages of so many rows; with
     * gradients; with one query at the end of the keys. */
#define SIZES(name, settings) FAMILY(name "-sizes", "normal", settings, sizes)
#define QUERY(name, settings) FAMILY(name "-query", "normal", settings, one_query)
#define STEP(name, settings, P) FAMILY(name "-step", "normal", settings " past=" #P, one_step)
#define PAGED(name, settings, rows) \
    FAMILY("pages-" name #rows, "normal", settings "causal pages=" #rows, page_sizes)
#define BACK(name, settings) FAMILY("backward-" name "-sizes", "normal", "backward" settings, back_sizes)
#define CROSSED(name, settings) SIZES(name, settings), QUERY(name, settings)
#define COVERED(name, settings, P) CROSSED(name, settings), STEP(name, settings, P)
#define ENDING(name, settings) FAMILY(name "-end", "normal", settings " causal bottom_right", last_query)
    COVERED("plain", "", 30),
    COVERED("causal", "causal", 62),
    COVERED("scale", "scale=0.3125", 126),
    COVERED("softcap", "softcap=2", 32),
    COVERED("softcap-causal", "softcap=2 causal", 64),
    COVERED("softcap-sinks", "softcap=2 sinks causal", 14),
    COVERED("softcap-lengths", "softcap=2 lengths", 30),
    COVERED("softcap-window", "softcap=2 causal window_left=20", 62),
    COVERED("sinks", "sinks", 126),
    COVERED("sinks-causal", "sinks causal", 32),
    COVERED("sinks-lengths", "sinks lengths", 64),
    COVERED("window", "causal window_left=7", 14),
    COVERED("window-far", "causal window_left=64", 30),
    COVERED("window-beyond", "causal window_left=200", 62),
    COVERED("window-both", "window_left=9 window_right=5", 126),
    COVERED("window-lengths", "window_right=5 lengths", 32),
    COVERED("window-rope", "causal window_left=7 rope=half_split", 64),
    COVERED("window-sinks", "causal window_left=12 sinks", 14),
    COVERED("window-keep", "causal window_left=6 window_keep=3", 30),
    COVERED("mask", "mask", 62),
    COVERED("mask-batch", "mask=batch", 126),
    COVERED("mask-rows", "mask=rows", 32),
    COVERED("mask-keys", "mask=keys", 64),
    COVERED("mask-shared", "mask=shared", 14),
    COVERED("mask-causal", "mask=rows causal", 30),
    COVERED("bool-mask", "keeps", 62),
    COVERED("bool-mask-heads", "keeps=heads", 126),
    COVERED("bool-mask-rows", "keeps=rows", 32),
    COVERED("bool-mask-keys", "keeps=keys", 64),
    COVERED("bool-mask-causal", "keeps causal", 14),
    COVERED("padding", "padding", 30),
    COVERED("padding-causal", "padding causal", 62),
    COVERED("lengths", "lengths", 126),
    COVERED("lengths-causal", "lengths causal", 32),
    COVERED("alibi", "alibi", 64),
    COVERED("alibi-causal", "alibi causal", 14),
    COVERED("alibi-window", "alibi causal window_left=7", 30),
    COVERED("rope", "rope=half_split", 62),
    COVERED("rope-causal", "rope=half_split causal", 126),
    COVERED("rope-pairs", "rope=interleaved causal", 32),
    CROSSED("qk-norm", "norms norm_eps=0.0625"),
    CROSSED("qk-norm-rope", "norms rope=half_split causal norm_eps=0.0625"),
    COVERED("lse", "lse", 64),
    COVERED("lse-causal", "lse causal", 14),
    COVERED("lse-sinks", "lse sinks", 30),
    COVERED("plus-one", "softmax_plus_one", 62),
    COVERED("zero-row", "zero_row", 126),
    CROSSED("extra-row", "extra_row"),
    COVERED("sigmoid", "normaliser=sigmoid sigmoid_bias=-1", 32),
    COVERED("bias", "bias", 64),
    COVERED("relative", "relative", 14),
    CROSSED("clip", "clip_qkv=0.5"),
    COVERED("query-scale", "query_scale_growth=2 query_scale_every=2", 30),
    COVERED("prefix", "causal prefix=9", 62),
    COVERED("chunk", "chunk=8", 126),
    CROSSED("chunk-causal", "causal chunk=8"),
    COVERED("blocks", "blocks", 32),
    COVERED("lists", "lists", 64),
    SIZES("query-padding", "query_padding=empty"),
    SIZES("segments", "segments causal"),
    FAMILY("varlen-sizes", "normal", "sequences=4", packed_sizes),
    FAMILY("varlen-causal-sizes", "normal", "sequences=4 causal", packed_sizes),
    FAMILY("varlen-gap-sizes", "normal", "sequences=gap causal", packed_sizes),
    CROSSED("strides", "strides"),
    CROSSED("strides-causal", "causal strides"),
    CROSSED("strides-packed", "strides=packed"),
    CROSSED("strides-query", "strides=query"),
    CROSSED("strides-base", "strides=base"),
    CROSSED("offset", "causal offset=2"),
    CROSSED("part", "causal offset=6 key_offset=3"),
    ENDING("causal", ""),
    ENDING("softcap", "softcap=2"),
    ENDING("sinks", "sinks"),
    ENDING("window", "window_left=7"),
    ENDING("window-far", "window_left=64"),
    ENDING("window-keep", "window_left=6 window_keep=3"),
    ENDING("chunk", "chunk=8"),
    ENDING("query-scale", "query_scale_growth=2 query_scale_every=2"),
    ENDING("alibi", "alibi"),
    ENDING("rope", "rope=half_split"),
    ENDING("lse", "lse"),
    PAGED("", "", 16),
    PAGED("", "", 32),
    PAGED("", "", 64),
    PAGED("", "", 128),
    PAGED("window-", "window_left=7 ", 32),
    PAGED("softcap-", "softcap=2 ", 64),
    PAGED("sinks-", "sinks ", 16),
    PAGED("alibi-", "alibi ", 32),
    PAGED("softcap-", "softcap=2 ", 16),
    BACK("causal", " causal"),
    BACK("full", ""),
    BACK("softcap", " softcap=2"),
    BACK("sinks", " sinks causal"),
    BACK("window", " causal window_left=7"),
    BACK("mask", " mask=batch"),
    BACK("bool-mask", " keeps"),
    BACK("padding", " padding"),
    BACK("lengths", " lengths"),
    BACK("alibi", " alibi causal"),
    BACK("rope", " rope=half_split causal"),
    BACK("scale", " scale=0.3125"),
    FAMILY("backward-query", "normal", "backward", back_query),
    FAMILY("cache-14", "normal", "past=14", step_widths), FAMILY("cache-30", "normal", "past=30 causal", step_widths),
    FAMILY("cache-62", "normal", "past=62", step_widths), FAMILY("cache-126", "normal", "past=126 causal", step_widths),
    FAMILY("cross-sizes", "normal", "", cross_sizes), FAMILY("causal-cross-sizes", "normal", "causal", cross_sizes),
    FAMILY("gqa-sizes", "normal", "", group_sizes),
    FAMILY("gqa-causal-sizes", "normal", "causal", group_sizes),
    FAMILY("value-width-sizes", "normal", "", value_sizes),
    FAMILY("many-keys", "normal", "", many_keys), FAMILY("many-keys-causal", "normal", "causal", many_keys),
    FAMILY("causal-short", "normal", "causal", more_queries),
};

const size_t mha__conform_family_count = sizeof mha__conform_families / sizeof *mha__conform_families;
