"""The settings of a call as a type checker sees them. Written by `make pages` (wheel_types.py)."""
from __future__ import annotations

from typing import Any, Optional, SupportsFloat, SupportsIndex, TypedDict, Union

import numpy as np

Flag = Union[bool, "np.bool_"]


class Settings(TypedDict, total=False):
    """What every call takes, see mha.SETTINGS."""

    add_zero_attn: Optional[Flag]
    alibi: Optional[Any]
    attn_mask_kind: Optional[str]
    bias_class_token: Optional[Flag]
    bias_height: Optional[SupportsIndex]
    bias_max_distance: Optional[SupportsIndex]
    bias_one_way: Optional[Flag]
    bias_rule: Optional[str]
    bias_width: Optional[SupportsIndex]
    block_keys: Optional[SupportsIndex]
    block_mask: Optional[Any]
    block_mask_kind: Optional[str]
    block_queries: Optional[SupportsIndex]
    block_size: Optional[Any]
    blocks: Optional[Any]
    blocks_kind: Optional[str]
    chunk: Optional[SupportsIndex]
    clip_qkv: Optional[SupportsFloat]
    cos_cache: Optional[Any]
    cu_seqlens: Optional[Any]
    empty_rows: Optional[str]
    fully_masked: Optional[str]
    hidden_values: Optional[str]
    k_segments: Optional[Any]
    key_lists: Optional[Any]
    key_offset: Optional[SupportsIndex]
    key_padding: Optional[Any]
    key_padding_kind: Optional[str]
    key_padding_mask: Optional[Any]
    key_padding_mask_kind: Optional[str]
    keys_only: Optional[Flag]
    kv_lengths: Optional[Any]
    lengths: Optional[Any]
    log_n_scale: Optional[SupportsIndex]
    mask: Optional[Any]
    mask_filter_value: Optional[SupportsFloat]
    mask_kind: Optional[str]
    n_sequences: Optional[SupportsIndex]
    norm_after_rope: Optional[Flag]
    norm_eps: Optional[SupportsFloat]
    norm_kind: Optional[str]
    norm_plus_one: Optional[Flag]
    norm_unweighted: Optional[Flag]
    normaliser: Optional[str]
    offset: Optional[Any]
    padding_fill: Optional[SupportsFloat]
    position_bias: Optional[Any]
    position_ids: Optional[Any]
    position_offset: Optional[Any]
    prefix: Optional[SupportsIndex]
    q_segments: Optional[Any]
    query_padding: Optional[Any]
    query_padding_kind: Optional[str]
    query_padding_mask: Optional[Any]
    query_padding_mask_kind: Optional[str]
    query_scale: Optional[Any]
    query_scale_every: Optional[SupportsIndex]
    query_scale_first: Optional[SupportsIndex]
    query_scale_growth: Optional[SupportsFloat]
    relative: Optional[Any]
    relative_height: Optional[SupportsIndex]
    relative_k_scale: Optional[SupportsFloat]
    relative_max_distance: Optional[SupportsIndex]
    relative_q_scale: Optional[SupportsFloat]
    relative_reversed: Optional[Flag]
    relative_rule: Optional[str]
    relative_width: Optional[SupportsIndex]
    rope: Optional[Any]
    rope_attention_factor: Optional[SupportsFloat]
    rope_base: Optional[SupportsFloat]
    rope_cos: Optional[Any]
    rope_dim: Optional[SupportsIndex]
    rope_frequencies: Optional[Any]
    rope_k_positions: Optional[Any]
    rope_last: Optional[Flag]
    rope_q_positions: Optional[Any]
    rope_sin: Optional[Any]
    sigmoid: Optional[SupportsFloat]
    sigmoid_bias: Optional[SupportsFloat]
    sin_cache: Optional[Any]
    sinks: Optional[Any]
    softmax_plus_one: Optional[Flag]
    window: Optional[Any]
    window_keep: Optional[SupportsIndex]
    window_left: Optional[SupportsIndex]
    window_right: Optional[SupportsIndex]
    zero_row: Optional[Flag]


class TorchSettings(Settings, total=False):
    """Of scaled_dot_product_attention."""

    alibi_slopes: Optional[Any]
    causal: Optional[Flag]
    cu_seqlens_k: Optional[Any]
    cu_seqlens_q: Optional[Any]
    softcap: Optional[SupportsFloat]


class FlashSettings(Settings, total=False):
    """Of attention."""

    attn_mask: Optional[Any]
    is_causal: Optional[Flag]
    scale: Optional[SupportsFloat]


class PagedSettings(Settings, total=False):
    """Of paged_attention."""

    attn_mask: Optional[Any]
    cu_seqlens_k: Optional[Any]
    cu_seqlens_q: Optional[Any]
    is_causal: Optional[Flag]
    scale: Optional[SupportsFloat]


class LayerFields(Settings, total=False):
    """Of MultiHeadAttention.__init__."""

    alibi_slopes: Optional[Any]
    attn_mask: Optional[Any]
    bias_gate: Optional[Flag]
    bias_k: Optional[Flag]
    bias_kv: Optional[Flag]
    bias_latent: Optional[Flag]
    bias_o: Optional[Flag]
    bias_q: Optional[Flag]
    bias_rows: Optional[SupportsIndex]
    bias_v: Optional[Flag]
    causal: Optional[Flag]
    cu_seqlens_k: Optional[Any]
    cu_seqlens_q: Optional[Any]
    d_k: Optional[SupportsIndex]
    d_kin: Optional[SupportsIndex]
    d_out: Optional[SupportsIndex]
    d_q: Optional[SupportsIndex]
    d_rope: Optional[SupportsIndex]
    d_v: Optional[SupportsIndex]
    d_vin: Optional[SupportsIndex]
    embed_dim: Optional[SupportsIndex]
    gate: Optional[str]
    is_causal: Optional[Flag]
    k_norm: Optional[str]
    kv_heads: Optional[SupportsIndex]
    kv_rank: Optional[SupportsIndex]
    norm_bias: Optional[Flag]
    num_heads: Optional[SupportsIndex]
    q_norm: Optional[str]
    q_rank: Optional[SupportsIndex]
    relative_by_head: Optional[Flag]
    relative_column_rows: Optional[SupportsIndex]
    relative_k_rows: Optional[SupportsIndex]
    relative_q_rows: Optional[SupportsIndex]
    scale: Optional[SupportsFloat]
    softcap: Optional[SupportsFloat]


class LayerSettings(Settings, total=False):
    """Of MultiHeadAttention.from_torch, MultiHeadAttention.from_file."""

    alibi_slopes: Optional[Any]
    attn_mask: Optional[Any]
    causal: Optional[Flag]
    cu_seqlens_k: Optional[Any]
    cu_seqlens_q: Optional[Any]
    is_causal: Optional[Flag]
    scale: Optional[SupportsFloat]
    softcap: Optional[SupportsFloat]


class CallSettings(Settings, total=False):
    """Of MultiHeadAttention.__call__."""

    alibi_slopes: Optional[Any]
    attn_mask: Optional[Any]
    causal: Optional[Flag]
    cu_seqlens_k: Optional[Any]
    cu_seqlens_q: Optional[Any]
    is_causal: Optional[Flag]
    scale: Optional[SupportsFloat]
    softcap: Optional[SupportsFloat]


class MeantSettings(Settings, total=False):
    """Of check, diagnose, assert_attention_close, power."""

    alibi_slopes: Optional[Any]
    attn_mask: Optional[Any]
    causal: Optional[Flag]
    cu_seqlens_k: Optional[Any]
    cu_seqlens_q: Optional[Any]
    enable_gqa: Optional[Flag]
    is_causal: Optional[Flag]
    past_key: Optional[Any]
    past_value: Optional[Any]
    scale: Optional[SupportsFloat]
    softcap: Optional[SupportsFloat]
    softmax_scale: Optional[SupportsFloat]
    window_size: Optional[Any]
