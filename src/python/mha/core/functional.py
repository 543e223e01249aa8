"""Attention of given queries, keys and values, with PyTorch's and with flash-attn's conventions."""
from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Mapping, Optional, Sequence, Union, overload

import numpy as np

from . import abi
from . import arrays as a
from .call import Request
from .errors import typed
from .prepared import Prepared
from .semantics import Semantics
from .settings import ROWS, has, row_of
from .shapes import Heads, layout_of, run
from .trace import Trace

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .typed import FlashSettings, TorchSettings

_torch_calls, _flash_calls = Prepared(), Prepared()
_OPEN = (-1, -1)


def torch_settings(heads: Heads, attn_mask: object, is_causal: object, enable_gqa: object,
                   settings: Mapping[str, object]) -> Mapping[str, object]:
    """PyTorch's words among the settings: a boolean mask keeps where it is true, causal is aligned top-left."""
    if not a.flag("enable_gqa", enable_gqa) and heads.h != heads.h_kv:
        raise ValueError(f"key: expected the {heads.h} heads of query, found {heads.h_kv}; enable_gqa=True shares them")
    for name in settings:
        if row_of(name) in (ROWS["mask"], ROWS["mask_kind"]):
            raise TypeError(f"{name}: expected attn_mask, found {name}; numbers of attn_mask are added, True keeps")
    if a.flag("is_causal", is_causal):
        settings = {"causal": True, "offset": 0, **settings}
    elif settings.get("causal") and heads.T_q != heads.S and not has(settings, "offset"):
        raise ValueError(f"causal: expected `offset` with {heads.T_q} queries and {heads.S} keys, found None; give "
                         "is_causal=True for offset='top-left', or offset='bottom-right'")
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
                raise ValueError(f"attn_mask: expected a shape that broadcasts to {widest}, found {mask.array.shape}"
                                 ) from None
            mask = mask.on(whole.reshape((heads.B, heads.h, heads.T_q, heads.S)))
        try:
            np.broadcast_shapes(mask.array.shape, (heads.B, heads.h, heads.T_q, heads.S))
        except ValueError:
            raise ValueError(f"attn_mask: expected a shape that broadcasts to {shape}, found {mask.array.shape}"
                             ) from None
        array = mask.array if mask.dtype in (abi.BOOL, abi.F32, abi.F64) else a.widened(mask).array
        settings = {**settings, "mask": array, "mask_kind": "keeps" if mask.dtype == abi.BOOL else "additive"}
    return settings


# The keywords of PyTorch and of flash-attn, by their names inside the module.
_TORCH = {"mask": "attn_mask"}
_FLASH = {"query": "q", "key": "k", "value": "v", "scale": "softmax_scale", "window": "window_size"}


def flash_words(settings: Mapping[str, object]) -> dict[str, str]:
    """What arguments of flash-attn are called within, but for those that were given by their own name."""
    return {ours: theirs for ours, theirs in _FLASH.items() if ours not in settings}


@overload
def scaled_dot_product_attention(
        query: a.Kind, key: a.ArrayLike, value: a.ArrayLike, attn_mask: Optional[a.ArrayLike] = ...,
        dropout_p: float = ..., is_causal: bool = ..., scale: Optional[float] = ..., enable_gqa: bool = ..., *,
        return_lse: Literal[False] = ..., path: str = ..., threads: int = ..., precision: a.Precision = ...,
        out_dtype: Optional[a.Type] = ..., **settings: Unpack[TorchSettings]) -> a.Kind: ...
@overload
def scaled_dot_product_attention(
        query: a.Kind, key: a.ArrayLike, value: a.ArrayLike, attn_mask: Optional[a.ArrayLike] = ...,
        dropout_p: float = ..., is_causal: bool = ..., scale: Optional[float] = ..., enable_gqa: bool = ..., *,
        return_lse: Literal[True], path: str = ..., threads: int = ..., precision: a.Precision = ...,
        out_dtype: Optional[a.Type] = ..., **settings: Unpack[TorchSettings]) -> tuple[a.Kind, a.Kind]: ...
@overload
def scaled_dot_product_attention(
        query: a.Kind, key: a.ArrayLike, value: a.ArrayLike, attn_mask: Optional[a.ArrayLike] = ...,
        dropout_p: float = ..., is_causal: bool = ..., scale: Optional[float] = ..., enable_gqa: bool = ..., *,
        return_lse: bool = ..., return_stages: Sequence[str], path: str = ..., threads: int = ...,
        precision: a.Precision = ..., out_dtype: Optional[a.Type] = ..., **settings: Unpack[TorchSettings]
        ) -> Union[a.Kind, tuple[a.Kind, Trace], tuple[a.Kind, a.Kind, Trace]]: ...


def scaled_dot_product_attention(query: a.ArrayLike, key: a.ArrayLike, value: a.ArrayLike,
                                 attn_mask: Optional[a.ArrayLike] = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: Optional[float] = None, enable_gqa: bool = False, *,
                                 return_lse: bool = False, return_stages: Sequence[str] = (), path: str = "auto",
                                 threads: Optional[int] = None, precision: a.Precision = None,
                                 out_dtype: Optional[a.Type] = None, **settings: Unpack[TorchSettings]) -> object:
    """softmax(scale * query key^T + mask) value, with the signature of PyTorch's function of this name.

    Arrays are of numpy, PyTorch (CPU) or JAX. mha reads them in any memory order, without a copy if features are
    contiguous. float64 inputs use the exact path. float16 and bfloat16 do too, and mha rounds once, unless `path` is
    "fast" or "blas".

    Parameters
    ----------
    query : array_like, shape (..., h, T_q, d_k)
        Queries, of floats.
    key : array_like, shape (..., h_kv, S, d_k)
        Keys.
    value : array_like, shape (..., h_kv, S, d_v)
        Values.
    attn_mask : array_like, broadcast to (..., h, T_q, S), default None
        Booleans: True keeps a key. Numbers are added to the scores.
    dropout_p : float, default 0.0
        mha divides kept weights by 1 - dropout_p. It needs dropout_keep, booleans (..., h, T_q, S), False for a dropped
        weight, because PyTorch draws numbers of its own.
    is_causal : bool, default False
        Query i sees keys j <= i, aligned top-left also if T_q != S. offset="bottom-right" aligns as flash-attn does.
    scale : float, default None
        Factor of the scores; None: 1 / sqrt(d_k).
    enable_gqa : bool, default False
        Query head i reads key/value head i // (h / h_kv).
    return_lse : bool, default False
        Also return log sum exp of the scores.
    return_stages : sequence of str, default ()
        Also return these intermediate results, as mha.Trace in the library's shapes: "scores", "weights", ...
    path : {"auto", "fast", "blas", "exact"}, default "auto"
        "exact" computes in float64 in plain loops, "fast" and "blas" in float32.
    threads : int, default None
        Number of threads; None: all cores.
    precision : str, dtype or dict, default None
        "bfloat16" models a fused kernel: it rounds inputs, exp(score - maximum) and the output; sums are float32. With
        path="exact" also "tf32", "float16", "float8_e4m3fn", "float8_e5m2", "int8", or a dict from points to types,
        such as {"probabilities": "bfloat16"}. Points: inputs, weights, rows, scores, probabilities, sums, output. None:
        no rounding.
    out_dtype : str or dtype, default None
        Type of the output; None: that of query. "float64" with path="exact" gives the reference itself.
    **settings
        Further settings, see mha.SETTINGS: window, softcap, sinks, alibi, lengths, rope, offset, cu_seqlens_q, ...

    Returns
    -------
    output : array, shape (..., h, T_q, d_v)
        Of query's kind and type. A fully masked row is 0.
    lse : array, shape (..., h, T_q)
        Only with return_lse=True.
    trace : mha.Trace
        Only with return_stages.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type, shape or value; mha.InvalidError and mha.UnsupportedError are ValueError.

    Examples
    --------
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 4, 9, 16), dtype=np.float32)
    >>> y, lse = mha.scaled_dot_product_attention(q, k, v, is_causal=True, return_lse=True)
    >>> y.shape, lse.shape
    ((2, 4, 9, 16), (2, 4, 9))
    """
    def general() -> tuple[Request, object]:
        dropped = {"dropout_p": dropout_p} if a.number("dropout_p", dropout_p) != 0 else {}
        if dropped and not has(settings, "dropout_keep"):
            raise ValueError(f"dropout_p: expected 0, or `dropout_keep` with it, found {dropout_p}; in PyTorch the "
                             "same call under the same seed with value=torch.eye(S) returns the weights, 0 where one "
                             "is dropped")
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


def flash_settings(heads: Heads, causal: object, window_size: object, settings: Mapping[str, object]
                   ) -> Mapping[str, object]:
    """flash-attn's words among the settings: causal and windows are aligned bottom-right, JAX's is_causal top-left."""
    window = a.window_pair("window_size", window_size)
    causal = a.flag("causal", causal)
    if a.flag("is_causal", settings.get("is_causal", False)):
        if (causal or (window >= 0).any()) and heads.T_q != heads.S:
            raise ValueError("is_causal: expected as many queries as keys with causal or window_size, found "
                             f"{heads.T_q} and {heads.S}; is_causal is aligned top-left, these bottom-right: use "
                             "causal=True, and offset for another alignment")
        settings = {"offset": 0, **settings}
    if (window < 0).all() and not causal:
        return settings
    if has(settings, "alibi_slopes") and not causal:
        raise ValueError("alibi_slopes: expected causal=True, found False; give a bias that falls off on both sides "
                         "as a mask")
    aligned: dict[str, object] = {"causal": causal, "offset": "bottom-right"}
    if (window >= 0).any():
        aligned["window"] = np.maximum(window, -1)
    return {**aligned, **settings}


@overload
def attention(q: a.Kind, k: a.ArrayLike, v: a.ArrayLike, *, layout: Optional[str] = ..., causal: bool = ...,
              window_size: Sequence[int] = ..., softmax_scale: Optional[float] = ..., softcap: float = ...,
              alibi_slopes: Optional[a.ArrayLike] = ..., cu_seqlens_q: Optional[a.ArrayLike] = ...,
              cu_seqlens_k: Optional[a.ArrayLike] = ..., return_lse: Literal[False] = ..., path: str = ...,
              threads: int = ..., precision: a.Precision = ..., out_dtype: Optional[a.Type] = ...,
              **settings: Unpack[FlashSettings]) -> a.Kind: ...
@overload
def attention(q: a.Kind, k: a.ArrayLike, v: a.ArrayLike, *, layout: Optional[str] = ..., causal: bool = ...,
              window_size: Sequence[int] = ..., softmax_scale: Optional[float] = ..., softcap: float = ...,
              alibi_slopes: Optional[a.ArrayLike] = ..., cu_seqlens_q: Optional[a.ArrayLike] = ...,
              cu_seqlens_k: Optional[a.ArrayLike] = ..., return_lse: Literal[True], path: str = ...,
              threads: int = ..., precision: a.Precision = ..., out_dtype: Optional[a.Type] = ...,
              **settings: Unpack[FlashSettings]) -> tuple[a.Kind, a.Kind]: ...
@overload
def attention(q: a.Kind, k: a.ArrayLike, v: a.ArrayLike, *, layout: Optional[str] = ..., causal: bool = ...,
              window_size: Sequence[int] = ..., softmax_scale: Optional[float] = ..., softcap: float = ...,
              alibi_slopes: Optional[a.ArrayLike] = ..., cu_seqlens_q: Optional[a.ArrayLike] = ...,
              cu_seqlens_k: Optional[a.ArrayLike] = ..., return_lse: bool = ..., return_stages: Sequence[str],
              path: str = ..., threads: int = ..., precision: a.Precision = ..., out_dtype: Optional[a.Type] = ...,
              **settings: Unpack[FlashSettings]
              ) -> Union[a.Kind, tuple[a.Kind, Trace], tuple[a.Kind, a.Kind, Trace]]: ...


def attention(q: a.ArrayLike, k: a.ArrayLike, v: a.ArrayLike, *, layout: Optional[str] = None, causal: bool = False,
              window_size: Sequence[int] = _OPEN, softmax_scale: Optional[float] = None, softcap: float = 0.0,
              alibi_slopes: Optional[a.ArrayLike] = None, cu_seqlens_q: Optional[a.ArrayLike] = None,
              cu_seqlens_k: Optional[a.ArrayLike] = None, return_lse: bool = False, return_stages: Sequence[str] = (),
              path: str = "auto", threads: Optional[int] = None, precision: a.Precision = None,
              out_dtype: Optional[a.Type] = None, **settings: Unpack[FlashSettings]) -> object:
    """softmax(scale * q k^T + mask) v in flash-attn's conventions: causal and window are aligned bottom-right.

    Parameters
    ----------
    q : array_like, shape (B, h, T_q, d_k)
        Queries, of floats, in any memory order; layout="BTHD": (B, T_q, h, d_k), flash-attn's own axes.
    k : array_like, shape (B, h_kv, S, d_k)
        Keys.
    v : array_like, shape (B, h_kv, S, d_v)
        Values. Query head i reads key/value head i // (h / h_kv).
    layout : {"BHTD", "BTHD", "BTNH"}, default None
        Order of the axes; None: "BHTD", but (total, heads, width) of a ragged batch. "BTNH": JAX's name of "BTHD".
    causal : bool, default False
        Query i sees keys j <= i + S - T_q. JAX's is_causal, among the settings: j <= i.
    window_size : (int, int), default (-1, -1)
        (left, right) around i + S - T_q, in keys; -1: open.
    softmax_scale : float, default None
        Factor of the scores; None: 1 / sqrt(d_k).
    softcap : float, default 0.0
        Scores become softcap * tanh(score / softcap); 0: they stay.
    alibi_slopes : array_like, shape (h,), default None
        ALiBi, with causal=True: -slope * (position of the query - position of the key) is added.
    cu_seqlens_q, cu_seqlens_k : array_like of int, shape (sequences + 1,), default None
        Ragged batch, arrays (total, heads, width): sequence b has rows [cu[b], cu[b + 1]). None: a batch of one length.
    return_lse, return_stages, path, threads, precision, out_dtype
        As in mha.scaled_dot_product_attention.
    **settings
        Further settings, see mha.SETTINGS.

    Returns
    -------
    output : array, shape (B, h, T_q, d_v)
        In the axes, of the kind and of the type of q; lse (B, h, T_q) and mha.Trace follow if asked for. A fully masked
        row is 0.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type, shape or value.

    Examples
    --------
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 4, 9, 16), dtype=np.float32)
    >>> mha.attention(q, k, v, causal=True, window_size=(3, 0)).shape
    (2, 4, 9, 16)
    """
    def general() -> tuple[Request, object]:
        with typed(flash_words(settings)):
            heads = Heads(q, k, v, layout_of(layout, q, cu_seqlens_q))
            words: dict[str, object] = {"scale": softmax_scale, "softcap": softcap, "alibi_slopes": alibi_slopes,
                     "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, **settings}
            said = flash_settings(heads, causal, window_size, words)
            request = Request(heads.inputs, Semantics(heads.sizes(), said), path=path, threads=threads,
                              precision=precision)
            return request, run(heads, request, return_lse=return_lse, return_stages=return_stages,
                                out_dtype=out_dtype)

    how = (layout, causal, softmax_scale, softcap, alibi_slopes, cu_seqlens_q, cu_seqlens_k, return_lse, return_stages,
           path, threads, precision, out_dtype)
    said = tuple(settings.items()) if window_size is _OPEN else (*settings.items(), ("window_size", window_size))
    return _flash_calls.run((q, k, v), how, said, general)
