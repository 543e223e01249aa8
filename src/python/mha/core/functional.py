"""Attention of given queries, keys and values, with PyTorch's and with flash-attn's conventions."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence

import numpy as np

from . import abi
from . import arrays as a
from .call import Request
from .errors import typed
from .prepared import Prepared
from .semantics import Semantics
from .settings import ROWS, has, row_of
from .shapes import Heads, run

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .typed import FlashSettings, TorchSettings

_torch_calls, _flash_calls = Prepared(), Prepared()
_OPEN = (-1, -1)


def torch_settings(heads: Heads, attn_mask: Optional[a.Array], is_causal: bool, enable_gqa: bool,
                   settings: dict[str, Any]) -> dict[str, Any]:
    """PyTorch's words among the settings: a boolean mask keeps where it is true, causal is aligned top-left."""
    if not a.flag("enable_gqa", enable_gqa) and heads.h != heads.h_kv:
        raise ValueError(f"key: {heads.h_kv} heads for {heads.h} query heads: enable_gqa=True shares them")
    for name in settings:
        if row_of(name) in (ROWS["mask"], ROWS["mask_kind"]):
            raise TypeError(f"{name}: the mask of this call is attn_mask: numbers are added, True keeps")
    if a.flag("is_causal", is_causal):
        settings = {"causal": True, "offset": 0, **settings}
    if attn_mask is not None:
        mask = a.given("attn_mask", attn_mask)
        shape = heads.lead + (heads.h, heads.T_q, heads.S)
        if mask.dtype != abi.BOOL and mask.dtype not in a.FLOATS:
            raise TypeError(f"attn_mask: expected booleans or floating-point numbers, found {a.NAMES[mask.dtype]}")
        if len(heads.lead) != 1 or mask.array.ndim == 0:
            widest = shape if heads.axes > 2 else shape[1:]
            try:
                whole = np.broadcast_to(mask.array, widest)
            except ValueError:
                raise ValueError(f"attn_mask: shape {mask.array.shape} cannot be broadcast to {widest}") from None
            mask = mask.on(whole.reshape((heads.B, heads.h, heads.T_q, heads.S)))
        try:
            np.broadcast_shapes(mask.array.shape, (heads.B, heads.h, heads.T_q, heads.S))
        except ValueError:
            raise ValueError(f"attn_mask: shape {mask.array.shape} cannot be broadcast to {shape}") from None
        array = mask.array if mask.dtype in (abi.BOOL, abi.F32, abi.F64) else a.widened(mask).array
        settings = {**settings, "mask": array, "mask_kind": "keeps" if mask.dtype == abi.BOOL else "additive"}
    return settings


# The keywords of PyTorch and of flash-attn, by their names inside the module.
_TORCH = {"mask": "attn_mask"}
_FLASH = {"query": "q", "key": "k", "value": "v", "scale": "softmax_scale", "window": "window_size"}


def flash_words(settings: Mapping[str, Any]) -> dict[str, str]:
    """What arguments of flash-attn are called within, but for those that were given by their own name."""
    return {ours: theirs for ours, theirs in _FLASH.items() if ours not in settings}


def scaled_dot_product_attention(
        query: a.Array, key: a.Array, value: a.Array, attn_mask: Optional[a.Array] = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: Optional[float] = None, enable_gqa: bool = False, *,
        return_lse: bool = False, return_stages: Sequence[str] = (), path: str = "auto", threads: int = 0,
        precision: Any = None, out_dtype: Any = None, **settings: Unpack[TorchSettings]) -> Any:
    """softmax(query key^T * scale) value, with the signature of PyTorch's function of this name.

    query: (..., h, T_q, d_k), key: (..., h_kv, S, d_k), value: (..., h_kv, S, d_v); arrays of numpy, PyTorch (CPU),
        JAX and others, without a copy where features lie side by side. Output: (..., h, T_q, d_v), of query's kind.
    attn_mask: broadcast to (..., h, T_q, S). Booleans: True takes part. Numbers are added to the scores.
    dropout_p: kept weights are divided by 1 - dropout_p; with dropout_keep, booleans (..., h, T_q, S), False where a
        weight was dropped. Drawn numbers are PyTorch's own, so that they must be given.
    is_causal: query i sees keys j <= i, aligned top-left as in PyTorch also where T_q and S differ; bottom-right, as
        in flash-attn, is offset="bottom-right" with it. A mask in addition hides further keys.
    scale: 1/sqrt(d_k) when None.
    enable_gqa: query head i reads key/value head i // (h / h_kv).

    float64 is computed by the exact path, in float64; so are float16 and bfloat16 and rounded once, unless path is
    "fast" or "blas", which widen them to float32. A query that sees no key gives zeros.

    return_lse: also log sum exp of the scores, (..., h, T_q).
    return_stages: also the named intermediate results, as mha.Trace, in the library's shapes: "scores", "weights", ...
    path: "auto", "fast", "blas" or "exact" (float64 in plain loops). threads: 0 is all.
    precision: "bfloat16": inputs, exp(score - maximum) and the output are rounded to it, sums are float32 (see
        mha/precision.h); with path="exact" also float16, float8, int8, and a dict of the points at which it rounds:
        {"probabilities": "bfloat16"}. None: nothing is rounded beyond what the path computes in.
    out_dtype: of the output, instead of query's: float64 with path="exact" is the reference itself.
    settings: see mha.SETTINGS: window, softcap, sinks, alibi, lengths, rope, offset, cu_seqlens_q, ...
    """
    def general() -> tuple[Request, Any]:
        dropped = {"dropout_p": dropout_p} if a.number("dropout_p", dropout_p) != 0 else {}
        if dropped and not has(settings, "dropout_keep"):
            raise ValueError("dropout_p: has no effect without `dropout_keep`, the weights that were kept: in PyTorch "
                             "the same call under the same seed with value=torch.eye(S) returns them, 0 where one "
                             "was dropped")
        with typed({} if "mask" in settings else _TORCH):
            heads = Heads(query, key, value, "BHTD")
            words = torch_settings(heads, attn_mask, is_causal, enable_gqa,
                                   {"scale": scale, **dropped, **settings})
            request = Request(heads.inputs, Semantics(heads.sizes(), words), path=path, threads=threads,
                              precision=precision)
            return request, run(heads, request, return_lse=return_lse, return_stages=return_stages,
                                out_dtype=out_dtype)

    how = dropout_p, is_causal, scale, enable_gqa, return_lse, return_stages, path, threads, precision, out_dtype
    return _torch_calls.run((query, key, value, attn_mask), how, tuple(settings.items()), general)


def flash_settings(heads: Heads, causal: bool, window_size: Sequence[int], settings: dict[str, Any]) -> dict[str, Any]:
    """flash-attn's words among the settings: causal and windows are aligned bottom-right, JAX's is_causal top-left."""
    window = a.whole_numbers("window_size", window_size, 2)
    causal = a.flag("causal", causal)
    if a.flag("is_causal", settings.get("is_causal", False)):
        if (causal or (window >= 0).any()) and heads.T_q != heads.S:
            raise ValueError("is_causal: aligned top-left, unlike causal and window_size, which are bottom-right: say "
                             "causal=True, and offset for another alignment")
        settings = {"offset": 0, **settings}
    if (window < 0).all() and not causal:
        return settings
    if has(settings, "alibi_slopes") and not causal:
        raise ValueError("alibi_slopes: flash-attn's bias without causal falls off on both sides, which is given as a "
                         "mask")
    aligned: dict[str, Any] = {"causal": causal, "offset": "bottom-right"}
    if (window >= 0).any():
        aligned["window"] = np.maximum(window, -1)
    return {**aligned, **settings}


def attention(q: a.Array, k: a.Array, v: a.Array, *, layout: str = "BTHD", causal: bool = False,
              window_size: Sequence[int] = _OPEN, softmax_scale: Optional[float] = None, softcap: float = 0.0,
              alibi_slopes: Optional[a.Array] = None, cu_seqlens_q: Optional[a.Array] = None,
              cu_seqlens_k: Optional[a.Array] = None, return_lse: bool = False, return_stages: Sequence[str] = (),
              path: str = "auto", threads: int = 0, precision: Any = None, out_dtype: Any = None,
              **settings: Unpack[FlashSettings]) -> Any:
    """Attention in flash-attn's conventions: (batch, T, heads, width), causal and windows aligned bottom-right.

    q: (B, T_q, h, d_k), k: (B, S, h_kv, d_k), v: (B, S, h_kv, d_v), or with layout "BHTD" heads before T; "BTNH", as
        JAX calls it, is "BTHD". Output as q.
    causal: query i sees keys j <= i + S - T_q; JAX's is_causal, among the settings: j <= i.
    window_size: (left, right) around i + S - T_q; -1 is open.
    cu_seqlens_q, cu_seqlens_k: sequences without padding, (total, heads, width): sequence b is rows [cu[b], cu[b+1]),
        each aligned bottom-right by its own lengths.
    alibi_slopes: (h), with causal.
    The rest is as in scaled_dot_product_attention.
    """
    def general() -> tuple[Request, Any]:
        with typed(flash_words(settings)):
            heads = Heads(q, k, v, layout)
            words = {"scale": softmax_scale, "softcap": softcap, "alibi_slopes": alibi_slopes,
                     "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, **settings}
            words = flash_settings(heads, causal, window_size, words)
            request = Request(heads.inputs, Semantics(heads.sizes(), words), path=path, threads=threads,
                              precision=precision)
            return request, run(heads, request, return_lse=return_lse, return_stages=return_stages,
                                out_dtype=out_dtype)

    how = (layout, causal, softmax_scale, softcap, alibi_slopes, cu_seqlens_q, cu_seqlens_k, return_lse, return_stages,
           path, threads, precision, out_dtype)
    said = tuple(settings.items()) if window_size is _OPEN else (*settings.items(), ("window_size", window_size))
    return _flash_calls.run((q, k, v), how, said, general)
