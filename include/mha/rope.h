/* Rotary positions: how pairs are laid out, how fast each turns in models whose context was stretched, which axis turns
 * it. mha/positions.h computes frequencies and tables. */
#ifndef MHA_ROPE_H
#define MHA_ROPE_H

#include <stdbool.h>

#include "mha/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mha_rope_kind {
    MHA_ROPE_NONE = 0,
    MHA_ROPE_INTERLEAVED, /* rotates features (0,1), (2,3), ... (Meta, GPT-J) */
    MHA_ROPE_HALF_SPLIT   /* rotates features (i, i + dim/2) (NeoX, Hugging Face) */
} mha_rope_kind;

/* How the frequencies f_i = base^(-2i/dim) are changed so that positions beyond those of the training can be used.
 * L is original_length, F is `factor`. */
typedef enum mha_rope_scaling_kind {
    MHA_ROPE_UNSCALED = 0,
    MHA_ROPE_LINEAR,   /* f_i / F (Chen et al. 2023) */
    MHA_ROPE_DYNAMIC,  /* dynamic NTK: when length n > L, base is multiplied by (F n / L - F + 1)^(dim / (dim - 2)) */
    MHA_ROPE_YARN,     /* f_i / F for slow pairs, f_i for fast ones, a ramp between beta_slow and beta_fast turns within
                        * L; attention factor 0.1 ln F + 1 (Peng et al. 2023) */
    MHA_ROPE_LONGROPE, /* f_i / long_factors[i] when length n > L, else f_i / short_factors[i], 0 for infinite factors;
                        * attention factor sqrt(1 + ln F / ln L) (Ding et al. 2024) */
    MHA_ROPE_LLAMA3,   /* f_i / F where the wavelength 2 pi / f_i exceeds L / low_frequency_factor, f_i where it is
                        * below L / high_frequency_factor, a mean of both between */
    MHA_ROPE_SCALING_COUNT
} mha_rope_scaling_kind;

enum { MHA_ROPE_MAX_PAIRS = 256 };

/* A kind of scaling and its numbers; 0 is the default that the comment gives, and what other kinds do not read. */
typedef struct mha_rope_scaling {
    mha_rope_scaling_kind kind;
    double factor;          /* F, 1 or more; required, but with 1 of `longrope` */
    double original_length; /* L, positions of the training; required by all but `linear` */
    double beta_fast, beta_slow;           /* of yarn: 32 and 1 */
    bool untruncated;                      /* yarn's ramp begins and ends between pairs, not on whole ones */
    double mscale, mscale_all_dim;         /* of yarn: with both the attention factor is (0.1 mscale ln F + 1) /
                                            * (0.1 mscale_all_dim ln F + 1) (DeepSeek) */
    double low_frequency_factor, high_frequency_factor; /* of llama3: required, the second greater */
    double attention_factor;               /* of any kind: instead of the one that follows, which is 1 where none is
                                            * named above; 0: that */
    size_t pairs;                          /* of longrope: length of the two lists, dim/2 */
    double short_factors[MHA_ROPE_MAX_PAIRS], long_factors[MHA_ROPE_MAX_PAIRS];
} mha_rope_scaling;

/* Rotations by positions of several axes, as tokens of images and films have them: time, height, width. Pair i turns by
 * p_a f_j in a token at position p_a of axis a; which axis and which frequency that are: */
typedef enum mha_rope_axes_kind {
    MHA_ROPE_AXES_BLOCKS = 0,  /* a block of pairs for each axis, and j = i (M-RoPE: Qwen2-VL, Wang et al. 2024) */
    MHA_ROPE_AXES_INTERLEAVED, /* a = i mod axes where i < axes * sections[a], else 0, and j = i (Qwen3-VL, Qwen3.5) */
    MHA_ROPE_AXES_REPEATED,    /* blocks; j begins at 0 in each (images in Qwen2-VL; Llama 4, which counts from 1) */
    MHA_ROPE_AXES_DEALT,       /* blocks of one size; j = axes * (place in the block) + a (Pixtral) */
    MHA_ROPE_AXES_COUNT
} mha_rope_axes_kind;

enum { MHA_ROPE_MAX_AXES = 4 };

typedef struct mha_rope_axes {
    mha_rope_axes_kind kind;
    size_t axes; /* 0 in mha_model_facts: positions have one axis */
    size_t sections[MHA_ROPE_MAX_AXES]; /* pairs of each axis, 1 or more, dim/2 together; dealt: all equal */
} mha_rope_axes;

/* Positions on several axes from which a caller made rope_cos and rope_sin (mha_rope_axes_tables). A case records them
 * (mha/case.h). */
typedef struct mha_rope_origin {
    mha_rope_axes axes;   /* no axes: not given */
    mha_view positions;   /* I64 (axes, T) or (axes, B, T) */
    mha_view frequencies; /* F32 or F64, as mha_rope_axes_tables takes them; no data: rope_base^(-2 j / n), where n is
                           * twice their number */
} mha_rope_origin;

#ifdef __cplusplus
}
#endif
#endif
